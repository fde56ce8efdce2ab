"""Loops in the graph: a body that is applied once for each step, with values carried along.

    for t < n:  carry, y[t] = body(carry, x[t], constants)

If the body is small and has no loops, the loop is one kernel: the carried values stay in
registers and every element is unrolled. If a step has, or deserves, its own kernels, the loop
launches them in each step (`launches.py`). Otherwise the loop, with the loops in its body, is one
kernel that keeps the carried values in memory and stores each sum of the body before it is used.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from uopc.errors import Unsupported, UserError
from uopc.ir.builder import alu, kernel, leaves, movement, rebuild
from uopc.ir.builder.elements import Elements, Key, Needs
from uopc.ir.builder.index_maps import Index, true
from uopc.ir.core import bounds, calls, dtypes, shapes
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.storage import base
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop
from uopc.ir.records import dataclass
from uopc.tensor import creation, elementwise
from uopc.tensor.loops import bodies, launches
from uopc.tensor.primitive import primitive

MOST_REGISTERS = 64  # elements of all carried values
MOST_OPERATIONS = 2000  # of a body that is spelled out
LARGE_STEP = 1 << 8  # operations of a step that gets kernels of its own: a launch takes 20 ns
MOST_WRITTEN_OUT = 20_000  # operations of steps that follow each other in a body
_POWERS = 60  # of 2: the iterations of a loop that a value ends

Values = tuple[UOp, ...]


class Way(NamedTuple):
    """Options of a loop. `reverse`: run from the last step to the first. `every`: reverse mode
    keeps the carried values of every `every`-th step and recomputes those between; 0: keep all.
    `unroll`: the number of steps in the body of a kernel that keeps the carried values in
    registers."""

    reverse: bool = False
    every: int = 0
    unroll: int = 1


PLAIN = Way()


# ---------------------------------------------------------------- the loop
def scan(
    body: UOp, first: Sequence[UOp], xs: Sequence[UOp], constants: Sequence[UOp], length: Dim,
    way: Way = PLAIN,
) -> list[UOp]:  # fmt: skip
    """The last carried values, and the other results of each step along a new first dimension.

    `body`: a FUNCTION of the carried values, the elements of xs along their first dimension, and
    constants; returns the next carried values and the step's results.
    """
    plain = _plain(body)
    in_registers = _fits_registers(plain, len(first))
    if _has_kernels(body) or (not in_registers and _has_large_steps(plain)):
        made = launches.repeated(body, first, xs, constants, length, way.reverse)
    else:
        made = _ScanKernel(body, first, xs, constants, length, way).results()
    fixed = length if isinstance(length, int) else -1
    details = (len(first), len(xs), int(way.reverse), fixed, way.every, way.unroll)
    steps = () if isinstance(length, int) else (length,)
    given = (body, *first, *xs, *constants, *steps)
    return [primitive(u, "scan", *given, details=(i, *details)) for i, u in enumerate(made)]


def while_loop(body: UOp, first: Sequence[UOp], constants: Sequence[UOp]) -> list[UOp]:
    """The carried values once the last carried value, a bool, is False.

    `body`: a FUNCTION of the carried values and constants that returns the next carried values.
    """
    if _has_kernels(body):
        raise Unsupported(
            "while_loop: a sort, a kernel or an exchange in the loop is not supported"
        )
    made = _ScanKernel(body, first, (), constants, None).results()
    given = (body, *first, *constants)
    return [primitive(u, "while", *given, details=(i, len(first))) for i, u in enumerate(made)]


def _has_kernels(body: UOp) -> bool:
    """True if a body has kernels that are not loops, or exchanges between devices."""
    nodes = _order(_plain(body).src)
    kernels = (Ops.CALL, Ops.ACCUMULATE, Ops.SHARD, *GroupOp.Exchange)
    return any([u.op in kernels or (_is_loop(u) and _has_kernels(u.src[1])) for u in nodes])


def _has_large_steps(body: UOp) -> bool:
    """True if the steps, or those of a loop inside, deserve their own kernels, with threads and
    tiles."""
    nodes = _order(body.src)
    if any([_is_loop(u) and _has_large_steps(_plain(u.src[1])) for u in nodes]):
        return True
    work = [u for u in nodes if u.op.is_alu] + [u.src[0] for u in nodes if u.op is Ops.REDUCE]
    return sum([bounds.max_dim(shapes.size(shapes.shape(u))) for u in work]) >= LARGE_STEP


def _is_loop(u: UOp) -> bool:
    return u.op is Ops.PRIMITIVE and u.arg.name in ("scan", "while")


def _plain(body: UOp) -> UOp:
    """Remove the PRIMITIVEs that are not loops and the marks for derivatives from a body."""

    def change(u: UOp, src: Values) -> UOp | None:
        mark = u.op in (Ops.DETACH, Ops.CONTIGUOUS_BACKWARD)
        return src[0] if mark or (u.op is Ops.PRIMITIVE and not _is_loop(u)) else None

    return rebuild.rewritten(body, change)


def _order(roots: Iterable[UOp]) -> list[UOp]:
    """The nodes of a body in order. An inner loop is one node, without the nodes of its kernel."""

    def sources(u: UOp) -> Sequence[UOp]:
        return u.src[2:] if _is_loop(u) else calls.operands(u)

    return calls.graph_order(roots, sources)


class _ScanKernel:
    """Builds the kernel of a loop."""

    def __init__(
        self, body: UOp, first: Sequence[UOp], xs: Sequence[UOp], constants: Sequence[UOp],
        length: Dim | None, way: Way = PLAIN,
    ) -> None:  # fmt: skip
        self.body, self.length, self.count = _plain(body), length, len(first)
        self.storage: list[UOp] = []
        self.finals = [self.new(shapes.shape(v), v.dtype) for v in first]
        outputs = body.src[self.count :]
        self.stacks = [self.new((length, *shapes.shape(u)), u.dtype) for u in outputs]
        self.first = [self._given(v) for v in first]
        self.xs = [self._given(v) for v in xs]
        self.constants = [self._given(v) for v in constants]
        self.way = way
        self.at: UOp  # the element of xs and of results

    def new(self, dims: Shape, dtype: Any) -> UOp:
        return self._param(creation.buffer(dims, dtype))

    def _given(self, value: UOp) -> UOp:
        return self._param(elementwise.contiguous(value))

    def _param(self, storage: UOp) -> UOp:
        """The storage, as an argument of the kernel."""
        self.storage.append(storage)
        slot = len(self.storage) - 1
        return creation.kernel_param(slot, shapes.shape(storage), storage.dtype)

    def results(self) -> list[UOp]:
        """The storage of the results, after the kernel has run."""
        small = _fits_registers(self.body, self.count)
        effects = _InRegisters(self).effects() if small else _InMemory(self).effects()
        sink = kernel.sink(*effects, name="scan", opts=self._opts() if small else None)
        call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, *self.storage)))
        count = len(self.finals) + len(self.stacks)
        return [kernel.after(s, call) for s in self.storage[:count]]


    def _opts(self) -> tuple[Opt, ...] | None:
        """The Opts of a loop in registers; None if the scheduler should choose."""
        n = 1 if self.length is None else min(self.way.unroll, bounds.max_dim(self.length))
        if n < 2 or not _total_elements(self.body.src[: self.count]):
            return None
        operations = n * _total_elements(_order(self.body.src))
        if operations > MOST_WRITTEN_OUT:
            raise UserError(
                f"scan: unroll={n} makes {operations} operations, expected {MOST_WRITTEN_OUT} at"
                " most"
            )
        return (Opt("UNROLL", 0, n),)


def _fits_registers(body: UOp, count: int) -> bool:
    """True if a body can be unrolled: it is small, with known sizes and no computed index."""
    nodes = _order(body.src)
    if any([_is_loop(u) for u in nodes]):
        return False
    if any([not isinstance(d, int) for u in nodes for d in shapes.shape(u)]):
        return False
    if any([u.op in (Ops.INDEX, Ops.CALL, Ops.AFTER, Ops.ACCUMULATE) for u in nodes]):
        return False
    registers, operations = _total_elements(body.src[:count]), _total_elements(nodes)
    return registers <= MOST_REGISTERS and operations <= MOST_OPERATIONS


def _total_elements(nodes: Iterable[UOp]) -> int:
    """The number of elements of nodes; their sizes must be known."""
    return sum([int(shapes.size(shapes.shape(u))) for u in nodes])


def _places(dims: Shape) -> list[tuple[int, ...]]:
    return list(itertools.product(*[range(int(d)) for d in dims]))


def _ranges(
    length: Dim | None, axis: int, reverse: bool, going: Callable[..., UOp]
) -> tuple[Values, UOp]:
    """Make the ranges around a body, and the index of its element of xs. `going`: the last carried
    value after effects.

    Without a length, loops of 1, 2, 4, … iterations follow each other while `going` holds; in each
    iteration the body runs only if `going` holds.
    """
    if length is not None:
        step = kernel.range(length, axis)
        return (step,), dim_uop(length) - 1 - step if reverse else step
    power = kernel.range(_POWERS, (axis, 0))
    one = leaves.const(dtypes.int64, 1)
    count = alu.alu(one, Ops.SHL, power.cast(dtypes.int64)).cast(dtypes.index)
    times = kernel.range(alu.where(going(power), count, dim_uop(0)), (axis, 1))
    once = kernel.range(going(power, times).cast(dtypes.index), (axis, 2))
    return (power, times, once), once


def _ended(effect: UOp, ranges: Values) -> UOp:
    for r in reversed(ranges):
        effect = kernel.end(effect, r)
    return effect


# ---------------------------------------------------------------- in registers
class _InRegisters(Elements):
    """Keeps every carried element in a register. New values go to other registers first, because
    each new value may need all old ones."""

    def __init__(self, loop: _ScanKernel) -> None:
        super().__init__(itertools.count(1))
        self._loop = loop
        self._slots = itertools.count()
        self._carried = [self._registers(u) for u in loop.body.src[: loop.count]]
        self._next = [self._registers(u) for u in loop.body.src[: loop.count]]
        self._now: Values = ()

    def _registers(self, like: UOp) -> UOp:
        size = int(shapes.size(shapes.shape(like)))
        return creation.buffer((max(size, 1),), like.dtype, "reg")

    def effects(self) -> Values:
        """The stores of the final values, after the loop."""
        loop, outputs = self._loop, self._loop.body.src
        begun = self._stores(self._carried, loop.first)
        going = lambda *effects: self._element(loop.count - 1, 0, *begun, *effects)  # noqa: E731
        ranges, loop.at = _ranges(loop.length, 0, loop.way.reverse, going)
        self._now = (*begun, *ranges)
        wanted = [[(u, p) for p in _places(shapes.shape(u))] for u in outputs]
        found = [
            [self.lower((u, tuple(map(dim_uop, p)), true())) for u, p in row]
            for row in wanted
        ]
        kept = [
            kernel.store(movement.index(register, i), value)
            for register, row in zip(self._next, found)
            for i, value in enumerate(row)
        ]
        stacked = [
            kernel.store(movement.index(stack, loop.at, *p), value)
            for stack, row, places in zip(loop.stacks, found[loop.count :], wanted[loop.count :])
            for value, (_, p) in zip(row, places)
        ]
        moved = [
            kernel.store(
                movement.index(register, i),
                movement.index(kernel.after(other, *kept, *stacked), i),
            )
            for register, other, row in zip(self._carried, self._next, found)
            for i in range(len(row))
        ]
        ended = _ended(kernel.group(*(moved or stacked)), ranges)
        finals = []
        for register, final in zip(self._carried, loop.finals):
            read = kernel.after(register, *begun, ended)
            finals += [
                kernel.store(movement.index(final, *p), movement.index(read, i))
                for i, p in enumerate(_places(shapes.shape(final)))
            ]
        return (*finals, ended)

    def _stores(self, registers: Sequence[UOp], values: Sequence[UOp]) -> list[UOp]:
        return [
            kernel.store(movement.index(register, i), movement.index(value, *p))
            for register, value in zip(registers, values)
            for i, p in enumerate(_places(shapes.shape(value)))
        ]

    def step(self, key: Key) -> UOp | Needs:
        u, index, guard = key
        if u.op in GroupOp.Exchange:
            raise Unsupported(f"scan: {u.op.name} in the loop is not supported{made_at(u)}")
        if u.op in (Ops.CONTIGUOUS, Ops.SHARD):  # each device runs the whole loop
            return _computed(u.src[0], index, guard)
        return super().step(key)

    def _element(self, i: int, flat: int, *effects: UOp) -> UOp:
        """Read an element of a carried value after effects."""
        return movement.index(kernel.after(self._carried[i], *effects), flat)

    def read(self, u: UOp, index: Index, guard: UOp) -> UOp | Needs:
        loop, slot = self._loop, bodies.slot_of(u)
        if slot < loop.count:
            flat = 0
            for i, d in zip(index, shapes.shape(u)):
                flat = flat * int(d) + int(i)
            return self._element(slot, flat, *self._now)
        slot -= loop.count
        if slot < len(loop.xs):
            return movement.index(loop.xs[slot], loop.at, *index)
        return movement.index(loop.constants[slot - len(loop.xs)], *index)

    def reduced(self, u: UOp, index: Index, guard: UOp) -> Needs:
        """Unroll the reduction into its elements."""
        dims = shapes.shape(u.src[0])
        keys = []
        for place in _places(tuple([dims[i] for i in u.arg.axes])):
            left, inner = iter(index), map(dim_uop, place)
            whole = [next(inner if i in u.arg.axes else left) for i in range(len(dims))]
            keys.append((u.src[0], tuple(whole), guard))
        values = yield keys
        op = {"add": Ops.ADD, "mul": Ops.MUL, "max": Ops.MAX, "min": Ops.MIN}[u.arg.op]
        return functools.reduce(lambda a, b: alu.alu(a, op, b), values)


# ---------------------------------------------------------------- in memory
@dataclass
class _Scope:
    """The arguments of a body: storage, or values of the body around it."""

    finals: list[UOp]
    xs: Sequence[UOp]
    constants: Sequence[UOp]
    at: UOp


class _InMemory(Elements):
    """Keeps carried values in arrays. Statements run in the order in which they are made."""

    def __init__(self, loop: _ScanKernel) -> None:
        super().__init__(itertools.count(1))
        self._loop = loop
        self._now: Values = ()
        self._scopes: dict[int, _Scope] = {}  # by the level of a body
        # The storage of each REDUCE, CONTIGUOUS and loop of the bodies so far.
        self._stored: dict[UOp, UOp] = {}

    def effects(self) -> Values:
        """Emit the loop; the storage of the final values starts with the first values."""
        loop = self._loop
        finals = [self._temporary(u) if shapes.shape(u) == () else u for u in loop.finals]
        for final, first in zip(finals, loop.first):
            self._copy(final, first)
        scope = _Scope(finals, loop.xs, loop.constants, dim_uop(0))
        self._run(loop.body, scope, loop.stacks, (loop.length, 0, loop.way.reverse))
        for result, final in zip(loop.finals, finals):
            if result is not final:
                self._copy(result, final)
        return self._now

    def _run(
        self, body: UOp, scope: _Scope, stacks: Sequence[UOp], how: tuple[Dim | None, int, bool]
    ) -> None:
        """Emit the statements of a loop; the storage of the final values holds the first values."""
        begun, count, around = self._now, len(scope.finals), dict(self._stored)
        going = lambda *effects: movement.index(  # noqa: E731
            kernel.after(scope.finals[-1], *begun, *effects)
        )
        ranges, scope.at = _ranges(*how, going)
        self._now = (*begun, *ranges)
        for u in bodies.params(body):
            self._scopes[bodies.level_of(u)] = scope
        inner: dict[Any, list[UOp]] = {}
        for u in _order(body.src):
            if u.op is Ops.REDUCE:
                self._stored[u] = self._stored_value(u)
            elif u.op is Ops.CONTIGUOUS:
                self._stored[u] = self._stored_value(u.src[0])
            elif _is_loop(u):
                key = (u.arg.name, u.arg.details[1:], u.src[1:])
                if key not in inner:
                    inner[key] = self._inner(u)
                self._stored[u] = inner[key][u.arg.details[0]]
        others = [self._stored_value(u) for u in body.src[:count]]
        for stack, u in zip(stacks, body.src[count:]):
            self._statement(stack, (scope.at,), u)
        for final, other in zip(scope.finals, others):
            self._copy(final, other)
        self._now = (_ended(self._now[0], ranges),)
        self._stored = around  # another body may have the same nodes

    def _inner(self, u: UOp) -> list[UOp]:
        """Emit the statements of an inner loop, and return the storage of its results."""
        count, inputs, reverse, fixed = (*u.arg.details[1:5], 0, 0, -1)[:4]
        body, *rest = u.src[1:]
        length: Dim | None = None
        if u.arg.name == "scan":
            length = fixed if fixed >= 0 else rest.pop()
        finals = [self._stored_value(v) for v in rest[:count]]
        given = [self._readable(v) for v in rest[count:]]
        stacks = [
            self._loop.new((length, *shapes.shape(v)), v.dtype)
            for v in body.src[count:] if length is not None
        ]  # fmt: skip
        scope = _Scope(finals, given[:inputs], given[inputs:], dim_uop(0))
        self._run(_plain(body), scope, stacks, (length, next(self.axes), bool(reverse)))
        return [*finals, *stacks]

    def _readable(self, value: UOp) -> UOp:
        """Store a value that is read repeatedly, unless it is a param or stored already."""
        inner = base(value)
        if inner.op is not Ops.PARAM and inner not in self._stored:
            self._stored[value] = self._stored_value(value)
        return value

    def _stored_value(self, value: UOp) -> UOp:
        storage = self._temporary(value)
        self._statement(storage, (), value)
        return storage

    def _temporary(self, like: UOp) -> UOp:
        """Make storage for a value: a register if the value is a single number."""
        if shapes.shape(like) == ():
            return creation.buffer((), like.dtype, "reg")
        return self._loop.new(shapes.shape(like), like.dtype)

    def _statement(self, storage: UOp, lead: Index, value: UOp) -> None:
        """Store the elements of a value, at the index `lead` followed by the element's index."""
        self.memo.clear()  # what was read before may have changed
        self._each(storage, lead, shapes.shape(value), lambda at: self.lower((value, at, true())))

    def _copy(self, storage: UOp, source: UOp) -> None:
        self._each(
            storage, (), shapes.shape(storage),
            lambda at: movement.index(kernel.after(source, *self._now), *at),
        )  # fmt: skip

    def _each(
        self, storage: UOp, lead: Index, dims: Shape, element: Callable[[Index], UOp]
    ) -> None:
        ranges = tuple([kernel.range(d, next(self.axes)) for d in dims])
        value = element(ranges)
        at = movement.index(kernel.after(storage, *self._now), *lead, *ranges)
        effect = kernel.store(at, value)
        self._now = (kernel.end(effect, *ranges) if ranges else effect,)

    def step(self, key: Key) -> UOp | Needs:
        u, index, guard = key
        if u in self._stored:
            return _element(kernel.after(self._stored[u], *self._now), index, guard)
        return super().step(key)

    def read(self, u: UOp, index: Index, guard: UOp) -> UOp | Needs:
        if u.op is not Ops.PARAM:
            raise Unsupported(f"scan: a loop over {u.op.name} is not supported{made_at(u)}")
        if not bodies.is_slot(u):  # storage of the kernel
            return _element(u, index, guard)
        scope, slot = self._scopes[bodies.level_of(u)], bodies.slot_of(u)
        finals, xs = scope.finals, scope.xs
        if slot < len(finals):
            return _element(kernel.after(finals[slot], *self._now), index, guard)
        slot -= len(finals)
        if slot < len(xs):
            return _computed(xs[slot], (scope.at, *index), guard)
        return _computed(scope.constants[slot - len(xs)], index, guard)


def _computed(value: UOp, index: Index, guard: UOp) -> Needs:
    """Compute the element of a value that is not stored."""
    return (yield [(value, index, guard)])[0]


def _element(storage: UOp, index: Index, guard: UOp) -> UOp:
    """Read an element of storage; 0 if the guard does not hold."""
    if guard.op is not Ops.CONST and index:
        index = (alu.where(guard, index[0], UOp.invalid(dtypes.index)), *index[1:])
    return movement.index(storage, *index)
