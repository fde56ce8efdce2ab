"""Loops in the graph: a body that is applied once for each step, with values carried along.

    for t < n:  carry, y[t] = body(carry, x[t], constants)

A loop is one kernel. If the body is small, what is carried stays in registers and every element is
spelled out; else it is in memory, and each sum of the body is stored before it is used.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from uopc.errors import Unsupported
from uopc.ir.builder import alu, kernel, leaves, movement, rebuild
from uopc.ir.builder.elements import Elements, Key, Needs
from uopc.ir.builder.index_maps import Index, true
from uopc.ir.core import calls, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.tensor import creation, elementwise
from uopc.tensor.loops import bodies
from uopc.tensor.primitive import primitive

MOST_REGISTERS = 64  # elements of all carried values
MOST_OPERATIONS = 2000  # of a body that is spelled out
_POWERS = 60  # of 2: the iterations of a loop that a value ends

Values = tuple[UOp, ...]


# ---------------------------------------------------------------- the loop
def scan(
    body: UOp, first: Sequence[UOp], xs: Sequence[UOp], constants: Sequence[UOp], length: Dim,
    reverse: bool = False,
) -> list[UOp]:  # fmt: skip
    """The last carried values, and the other results of each step along a new first dimension.

    `body`: a FUNCTION of the carried values, the elements of xs along their first dimension, and
    constants; it gives the next carried values, and more. `reverse`: from the last step to the
    first one.
    """
    if _has_kernels(body):
        made = _written_out(body, first, xs, constants, length, reverse)
    else:
        made = _Loop(body, first, xs, constants, length, reverse).results()
    fixed = length if isinstance(length, int) else -1
    details = (len(first), len(xs), int(reverse), fixed)
    steps = () if isinstance(length, int) else (length,)
    given = (body, *first, *xs, *constants, *steps)
    return [primitive(u, "scan", *given, details=(i, *details)) for i, u in enumerate(made)]


def while_loop(body: UOp, first: Sequence[UOp], constants: Sequence[UOp]) -> list[UOp]:
    """The carried values when the last one, a bool, does not hold.

    `body`: a FUNCTION of the carried values and constants that gives the next carried values.
    """
    if _has_kernels(body):
        raise Unsupported("a while_loop around another loop, a sort or a kernel")
    made = _Loop(body, first, (), constants, None).results()
    given = (body, *first, *constants)
    return [primitive(u, "while", *given, details=(i, len(first))) for i, u in enumerate(made)]


def _has_kernels(body: UOp) -> bool:
    nodes = calls.graph_order(rebuild.without_primitives(body).src)
    return any([u.op is Ops.CALL for u in nodes])


def _written_out(
    body: UOp, carried: Sequence[UOp], xs: Sequence[UOp], constants: Sequence[UOp], length: Dim,
    reverse: bool,
) -> list[UOp]:  # fmt: skip
    """The steps one after another: a kernel cannot call the kernels of the body."""
    if not isinstance(length, int):
        raise Unsupported("a loop of a symbolic length around another loop, a sort or a kernel")
    nodes = calls.graph_order(body.src)
    slots = bodies.params(body)
    own = [u for u in nodes if u.op is Ops.BUFFER]  # each step has storage of its own
    rows: list[Sequence[UOp]] = []
    for step in reversed(range(length)) if reverse else range(length):
        given = [*carried, *[movement.index(x, step) for x in xs], *constants]
        root = intern(Ops.TUPLE, dtypes.void, body.src)
        mapping = {u: given[bodies.slot_of(u)] for u in slots}
        mapping |= {u: creation.buffer(shapes.shape(u), u.dtype) for u in own}
        made = rebuild.rebuild(root, mapping).src
        carried = made[: len(carried)]
        rows.append(made[len(carried) :])
    if reverse:
        rows.reverse()
    outputs = body.src[len(carried) :]
    zeros = [leaves.full(leaves.const(u.dtype, 0), (0, *shapes.shape(u))) for u in outputs]
    stacks = [movement.stack(*ys) for ys in zip(*rows)] if rows else zeros
    return [*carried, *stacks]


class _Loop:
    """The kernel of a loop in the making."""

    def __init__(
        self, body: UOp, first: Sequence[UOp], xs: Sequence[UOp], constants: Sequence[UOp],
        length: Dim | None, reverse: bool = False,
    ) -> None:  # fmt: skip
        self.body, self.length, self.count = rebuild.without_primitives(body), length, len(first)
        self.storage: list[UOp] = []
        self.finals = [self.new(shapes.shape(v), v.dtype) for v in first]
        outputs = body.src[self.count :]
        self.stacks = [self.new((length, *shapes.shape(u)), u.dtype) for u in outputs]
        self.first = [self._given(v) for v in first]
        self.xs = [self._given(v) for v in xs]
        self.constants = [self._given(v) for v in constants]
        self.at = leaves.dim_uop(0)  # the element of xs and of results
        if length is not None:
            self._step = kernel.range(length, 0)
            last = leaves.dim_uop(length) - 1
            self.at = last - self._step if reverse else self._step

    def new(self, dims: Shape, dtype: Any) -> UOp:
        return self._param(creation.buffer(dims, dtype))

    def _given(self, value: UOp) -> UOp:
        return self._param(elementwise.contiguous(value))

    def _param(self, storage: UOp) -> UOp:
        """The storage, as an argument of the kernel."""
        self.storage.append(storage)
        slot = len(self.storage) - 1
        return creation.kernel_param(slot, shapes.shape(storage), storage.dtype)

    def ranges(self, going: Callable[..., UOp]) -> Values:
        """The ranges around the body. `going`: the last carried value after effects.

        Of a loop that a value ends: 1, 2, 4, … iterations as long as it holds, in each of which the
        body runs if it holds.
        """
        if self.length is not None:
            return (self._step,)
        power = kernel.range(_POWERS, (0, 0))
        one = leaves.const(dtypes.int64, 1)
        count = alu.alu(one, Ops.SHL, power.cast(dtypes.int64)).cast(dtypes.index)
        times = kernel.range(alu.where(going(power), count, leaves.dim_uop(0)), (0, 1))
        return (power, times, kernel.range(going(power, times).cast(dtypes.index), (0, 2)))

    def results(self) -> list[UOp]:
        """What is in the storage of the results when the kernel has run."""
        small = _registers(self.body, self.count)
        effects = _InRegisters(self).effects() if small else _InMemory(self).effects()
        sink = kernel.sink(*effects, name="scan")
        call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, *self.storage)))
        count = len(self.finals) + len(self.stacks)
        return [kernel.after(s, call) for s in self.storage[:count]]


def _registers(body: UOp, count: int) -> bool:
    """True if a body can be spelled out: its sizes are known, and no place is computed."""
    nodes = calls.graph_order(body.src)
    if any([not isinstance(d, int) for u in nodes for d in shapes.shape(u)]):
        return False
    if any([u.op in (Ops.INDEX, Ops.CALL, Ops.AFTER, Ops.ACCUMULATE) for u in nodes]):
        return False
    sizes = [int(shapes.size(shapes.shape(u))) for u in nodes]
    carried = sum([int(shapes.size(shapes.shape(u))) for u in body.src[:count]])
    return carried <= MOST_REGISTERS and sum(sizes) <= MOST_OPERATIONS


def _places(dims: Shape) -> list[tuple[int, ...]]:
    return list(itertools.product(*[range(int(d)) for d in dims]))


def _ended(effect: UOp, ranges: Values) -> UOp:
    for r in reversed(ranges):
        effect = kernel.end(effect, r)
    return effect


# ---------------------------------------------------------------- in registers
class _InRegisters(Elements):
    """Every carried element is a register. The new values are put into other registers first, since
    each may need all the old ones."""

    def __init__(self, loop: _Loop) -> None:
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
        ranges = loop.ranges(going)
        self._now = (*begun, *ranges)
        wanted = [[(u, p) for p in _places(shapes.shape(u))] for u in outputs]
        found = [
            [self.lower((u, tuple(map(leaves.dim_uop, p)), true())) for u, p in row]
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

    def _element(self, i: int, flat: int, *effects: UOp) -> UOp:
        """An element of a carried value after effects."""
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
        """The elements one by one."""
        dims = shapes.shape(u.src[0])
        keys = []
        for place in _places(tuple([dims[i] for i in u.arg.axes])):
            left, inner = iter(index), map(leaves.dim_uop, place)
            whole = [next(inner if i in u.arg.axes else left) for i in range(len(dims))]
            keys.append((u.src[0], tuple(whole), guard))
        values = yield keys
        op = {"add": Ops.ADD, "mul": Ops.MUL, "max": Ops.MAX, "min": Ops.MIN}[u.arg.op]
        return functools.reduce(lambda a, b: alu.alu(a, op, b), values)



# ---------------------------------------------------------------- in memory
class _InMemory(Elements):
    """Carried values are arrays. Statements run in the order in which they are made."""

    def __init__(self, loop: _Loop) -> None:
        super().__init__(itertools.count(1))
        self._loop = loop
        self._now: Values = ()
        self._sums: dict[UOp, UOp] = {}  # each REDUCE of the body, by its storage

    def effects(self) -> Values:
        """The loop, after the first values are in the storage of the final ones."""
        loop, outputs = self._loop, self._loop.body.src
        for final, first in zip(loop.finals, loop.first):
            self._copy(final, first)
        begun = self._now
        going = lambda *effects: movement.index(  # noqa: E731
            kernel.after(loop.finals[-1], *begun, *effects)
        )
        ranges = loop.ranges(going)
        self._now = (*begun, *ranges)
        for u in calls.graph_order(outputs):
            if u.op is Ops.REDUCE:
                storage = self._temporary(u)
                self._statement(storage, (), u)
                self._sums[u] = storage
        others = [self._temporary(u) for u in outputs[: loop.count]]
        for other, u in zip(others, outputs):
            self._statement(other, (), u)
        for stack, u in zip(loop.stacks, outputs[loop.count :]):
            self._statement(stack, (loop.at,), u)
        for final, other in zip(loop.finals, others):
            self._copy(final, other)
        return (_ended(self._now[0], ranges),)

    def _temporary(self, like: UOp) -> UOp:
        return self._loop.new(shapes.shape(like), like.dtype)

    def _statement(self, storage: UOp, lead: Index, value: UOp) -> None:
        """Store the elements of a value, from the place `lead` on."""
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
        if u in self._sums:
            return _element(kernel.after(self._sums[u], *self._now), index, guard)
        return super().step(key)

    def read(self, u: UOp, index: Index, guard: UOp) -> UOp | Needs:
        if u.op is not Ops.PARAM:
            raise Unsupported(f"a loop over {u.op.name}{made_at(u)}")
        loop, slot = self._loop, bodies.slot_of(u)
        if slot < loop.count:
            return _element(kernel.after(loop.finals[slot], *self._now), index, guard)
        slot -= loop.count
        if slot < len(loop.xs):
            return _element(loop.xs[slot], (loop.at, *index), guard)
        return _element(loop.constants[slot - len(loop.xs)], index, guard)


def _element(storage: UOp, index: Index, guard: UOp) -> UOp:
    """An element of storage, where there is one: 0 where the guard does not hold."""
    if guard.op is not Ops.CONST and index:
        index = (alu.where(guard, index[0], UOp.invalid(dtypes.index)), *index[1:])
    return movement.index(storage, *index)
