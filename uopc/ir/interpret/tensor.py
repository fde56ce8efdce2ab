"""Level tensor, run on NumPy: one array per node, and a new value of storage per effect.

PARAM, BUFFER and DATA mean their first contents. An AFTER of a view of storage is the view after
every store below the AFTER, in dependency order, and after no other store. A store makes a new
array of the complete storage, so the result depends on no order that the graph leaves open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from uopc.errors import InvalidIR, Unsupported
from uopc.ir.core import evaluate
from uopc.ir.core.calls import (
    exchanges_of,
    graph_order,
    is_length,
    operands,
    written_argument,
    written_slot,
)  # fmt: skip
from uopc.ir.core.evaluate import Array
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.shapes import with_dims
from uopc.ir.core.storage import is_program, written_slots
from uopc.ir.core.uop import UOp
from uopc.ir.index import size_conditions
from uopc.ir.index.size_conditions import SizeCondition
from uopc.ir.interpret.arguments import Variables, check_array, undefined
from uopc.ir.interpret.machine import Steps, program_steps, run_kernel

# One write: the target view, the values, and a mask of those that exist (None: all).
Write = tuple[UOp, Array, Array | None]

_LEAVES = frozenset((Ops.VARIABLE, Ops.BIND, Ops.IOTA, Ops.PARAM, Ops.BUFFER))
_VIEWS = frozenset((
    Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP, Ops.PAD, Ops.SHRINK, Ops.SLICE, Ops.DETACH,
    Ops.SHARD, Ops.CONTIGUOUS_BACKWARD, Ops.BITCAST, Ops.INDEX, Ops.PRIMITIVE,
))  # fmt: skip
_JOINS = frozenset((Ops.STACK, Ops.CAT))
_COMPUTED = _JOINS | {Ops.CONST, Ops.DATA, Ops.CAST}  # and all elementwise ops
_COPIES = frozenset((Ops.CONTIGUOUS, Ops.COPY, Ops.STAGE))
_EFFECTS = frozenset((Ops.STORE, Ops.CALL))
_NOTHING = frozenset((Ops.SINK, Ops.GROUP, Ops.NOOP, Ops.FUNCTION))
_LATER = frozenset((Ops.SHAPED_WMMA, Ops.WMMA))


def _called_exchanges(u: UOp) -> list[UOp]:
    return exchanges_of(u.src[0]) if u.op is Ops.CALL else []


def _has_exchanges(u: UOp) -> bool:
    """True for a CALL of a program with exchanges."""
    if u.op is not Ops.CALL or not is_program(u.src[0]):
        return False
    return any([exchanges_of(c.src[0]) for c in u.src[0].src])


class TensorRun:
    """Evaluate tensor graphs; `initial` returns the first contents of a PARAM."""

    def __init__(self, initial: Callable[[UOp], Array], variables: Variables) -> None:
        self.initial = initial
        self.variables = variables
        self.values: dict[UOp, Array] = {}
        # Elements that exist, for the nodes where some do not (INVALID).
        self.masks: dict[UOp, Array] = {}
        self.tuples: dict[UOp, list[tuple[Array, Array | None]]] = {}  # of TUPLE and CALL
        self.bases: dict[UOp, UOp] = {}  # views of storage → the storage
        # A version of storage is a set of effects, as bits: bit i stands for `effects[i]`.
        self.effects: list[UOp] = []
        self.versions: dict[UOp, int] = {}  # node → the effects below it
        self.writes: dict[UOp, dict[UOp, list[Write]]] = {}  # effect → storage → its writes
        self._writers: dict[UOp, int] = {}  # storage → the effects that write it
        self._contents: dict[tuple[UOp, int], Array] = {}
        self._unchecked: list[SizeCondition] = []

    def reads(self, u: UOp) -> Sequence[UOp]:
        """The nodes whose values `u` needs."""
        return operands(u)

    def nested(self, initial: Callable[[UOp], Array], variables: Variables) -> TensorRun:
        """The run of the body of a FUNCTION."""
        return type(self)(initial, variables)

    # ------------------------------------------------------------ the walk
    def run(self, roots: Sequence[UOp]) -> None:
        """Evaluate every node below the roots, and keep the values of the roots."""
        for u, _ in self.steps(roots):
            raise Unsupported(f"{u.op!r} needs all devices: see interpret/lockstep.py")

    def steps(self, roots: Sequence[UOp]) -> Steps:
        """`run` as a generator: at each exchange, yield the node and the sent value, and receive
        the result."""
        nodes = graph_order(roots, self.reads)
        for u in nodes:
            if u.op is Ops.BIND and not is_length(u):
                self.variables.bind(u.src[0].arg.name, u.src[1].arg)
        self._check_sizes(nodes)
        effects = any(u.op in _EFFECTS for u in nodes)
        left = Counter([s for u in nodes for s in self.reads(u)])
        left.update(roots)
        for u in nodes:
            if effects:
                self._track(u)
            if u.op in GroupOp.Exchange:
                self._set(u, (yield u, self.given(u.src[0])))
            elif called := _called_exchanges(u):
                writes: dict[UOp, list[Write]] = {}
                for target, exchange in [s.src for s in called]:
                    got = yield exchange, self.given(u.src[1 + exchange.src[0].arg.slot])
                    written = u.src[1 + target.arg.slot]
                    writes[self.bases[written]] = [(written, got, None)]
                self._note_writes(u, writes)
            elif _has_exchanges(u):
                yield from self._program(u)
            else:
                self._evaluate(u)
            if effects:  # values of storage are read again
                continue
            for s in self.reads(u):
                left[s] -= 1
                if not left[s]:
                    self.values.pop(s, None)
                    self.masks.pop(s, None)

    def given(self, u: UOp) -> Array:
        """A value, with 0 for elements that do not exist."""
        value, ok = self.values[u], self.masks.get(u)
        return value if ok is None else np.where(ok, value, np.zeros((), value.dtype))

    def _check_sizes(self, nodes: Sequence[UOp]) -> None:
        """UserError if the variables break a condition that nodes rely on."""
        lengths = {u.src[0] for u in nodes if is_length(u)}
        found = dict.fromkeys([u for u in nodes if u.op is Ops.VARIABLE])
        if found:
            self._unchecked = size_conditions.of_nodes(nodes, calls=False)
            given = [u for u in found if u not in lengths]
            self._check_conditions({u.arg.name: self.variables[u] for u in given})

    def _check_conditions(self, named: Mapping[str, int]) -> None:
        """UserError if a condition whose variables all have values does not hold."""
        known = [c for c in self._unchecked if size_conditions.names(c) <= named.keys()]
        self._unchecked = [c for c in self._unchecked if c not in known]
        size_conditions.check(known, named)

    def _track(self, u: UOp) -> None:
        """Record the storage that `u` is a view of, and the effects below `u`."""
        version = 0
        for s in self.reads(u):
            version |= self.versions[s]
        if u.op in _EFFECTS:
            version |= 1 << len(self.effects)
            self.effects.append(u)
        self.versions[u] = version
        if u.op in _VIEWS or u.op is Ops.AFTER:
            self.bases[u] = self.bases[u.src[0]]
        elif (argument := written_argument(u)) is not None:
            self.bases[u] = self.bases[argument]
        else:  # storage, or a value, which a store copies
            self.bases[u] = u

    def _evaluate(self, u: UOp) -> None:
        if u.op in _NOTHING:
            return
        if u.op is Ops.STORE:
            self._store(u)
        elif u.op is Ops.CALL:
            self._call(u)
        elif u.op is Ops.TUPLE:
            self.tuples[u] = [(self.values[s], self.masks.get(s)) for s in u.src]
        elif u.op is Ops.GETTUPLE:
            self._set(u, *self.tuples[u.src[0]][u.arg])
        elif u.op in _LEAVES:
            self._set(u, self._leaf(u))
        elif u.op is Ops.INVALID:
            self._set(u, np.zeros((), u.dtype.numpy), np.zeros((), np.bool_))
        elif u.op in _VIEWS:
            ok = self.masks.get(u.src[0])
            moved = None if ok is None else self._move(u, ok, 1)
            self._set(u, self._move(u, self.values[u.src[0]], 0), moved)
        elif u.op in _COPIES:
            self._set(u, self.values[u.src[0]], self.masks.get(u.src[0]))
        elif u.op is Ops.AFTER:
            self._after(u)
        elif u.op is Ops.REDUCE:
            self._set(u, *self.reduced(u))
        elif u.op is Ops.ACCUMULATE:
            ok = self.masks.get(u.src[0])
            value = evaluate.accumulate(u.arg.op, self.values[u.src[0]], u.arg.axes[0], u.dtype)
            before = None if ok is None else np.logical_and.accumulate(ok, axis=u.arg.axes[0])
            self._set(u, value, before)
        elif u.op.is_alu or u.op in _COMPUTED:
            self._compute(u)
        elif u.op in _LATER:
            raise Unsupported(f"the interpreter does not run {u.op!r} yet")
        else:
            raise InvalidIR(f"{u.op!r} has no meaning at level tensor")

    def _set(self, u: UOp, value: Array, ok: Array | None = None) -> None:
        self.values[u] = value
        if ok is not None and not ok.all():
            self.masks[u] = ok

    def _leaf(self, u: UOp) -> Array:
        if u.op is Ops.VARIABLE:
            return np.asarray(self.variables[u], np.int64)
        if is_length(u):
            self.variables.bind(u.src[0].arg.name, int(self.values[u.src[1]]))
            self.variables[u.src[0]]  # its bounds hold
            self._check_conditions(self.variables.values)
        if u.op is Ops.BIND:
            return self.values[u.src[1]]
        if u.op is Ops.IOTA:
            return np.arange(self._dims(u.arg, u.src)[0], dtype=np.int64)
        dims = self._dims(u.arg.dims, u.src)
        if u.op is Ops.BUFFER:
            return undefined(u.dtype, dims)
        array = self.initial(u)
        check_array(u, array, dims)
        return array

    def _dims(self, dims: Sequence[int | None], symbolic: Sequence[UOp]) -> Sequence[int]:
        return with_dims(dims, self.integers(symbolic))  # type: ignore[arg-type]

    def integers(self, nodes: Sequence[UOp]) -> list[int]:
        return [int(self.values[s]) for s in nodes]

    def _compute(self, u: UOp) -> None:
        sources = [self.values[s] for s in u.src]
        value = evaluate.compute(u, sources)
        if not any(s in self.masks for s in u.src):
            self._set(u, value)
        elif u.op in _JOINS:
            masks = [self.masks.get(s, np.ones(self.values[s].shape, np.bool_)) for s in u.src]
            self._set(u, value, evaluate.join(u, masks))
        else:
            ok = evaluate.present(u, [self.masks.get(s) for s in u.src], sources)
            self._set(u, value, np.broadcast_to(np.asarray(ok), value.shape))

    def reduced(self, u: UOp) -> tuple[Array, Array | None]:
        """The value of a REDUCE, and a mask of the elements that exist (None: all)."""
        ok = self.masks.get(u.src[0])
        value = evaluate.fold(u.arg.op, self.values[u.src[0]], u.arg.axes, u.dtype)
        return value, None if ok is None else np.asarray(ok.all(axis=u.arg.axes))

    # ------------------------------------------------------------ views
    def _move(self, u: UOp, a: Array, fill: int) -> Array:
        """The view that `u` takes of the array of its first source."""
        if u.op is Ops.INDEX:
            return self._gather(u, a, fill)
        symbolic = self.integers(u.src[1:]) if isinstance(u.arg, tuple) else ()
        return evaluate.move(u, a, symbolic, fill)

    def _gather(self, u: UOp, a: Array, fill: int) -> Array:
        if len(u.src) == 1:
            return a
        shape = np.broadcast_shapes(*[self.values[s].shape for s in u.src[1:]])
        ok = np.ones(shape, np.bool_)
        for s in u.src[1:]:
            ok = ok & self.masks.get(s, np.True_)
        picked = []
        for axis, s in enumerate(u.src[1:]):
            i, n = np.where(ok, self.values[s], 0), a.shape[axis]
            inside = (i >= 0) & (i < n)
            ok = ok & inside
            picked.append(np.where(inside, i, 0))
        rest = a.shape[len(picked) :]
        if not ok.any():
            return np.full((*shape, *rest), fill, a.dtype)
        out = np.asarray(a[tuple(picked)])
        return np.where(np.reshape(ok, (*shape, *[1] * len(rest))), out, np.asarray(fill, a.dtype))

    def _path(self, u: UOp) -> list[UOp]:
        """The views from the storage to `u`, in order."""
        base = self.bases[u]
        path: list[UOp] = []
        while u is not base:
            if u.op is not Ops.AFTER and u.op is not Ops.GETTUPLE:
                path.append(u)
            argument = written_argument(u)
            u = u.src[0] if argument is None else argument
        return path[::-1]

    # ------------------------------------------------------------ effects
    def _store(self, u: UOp) -> None:
        target, value = u.src[:2]
        ok = self.masks.get(value)
        if len(u.src) == 3:
            ok = self.values[u.src[2]] & (np.True_ if ok is None else ok)
        self._note_writes(u, {self.bases[target]: [(target, self.values[value], ok)]})

    def _after(self, u: UOp) -> None:
        base = self.bases.get(u)
        if base is None:
            self._set(u, self.values[u.src[0]], self.masks.get(u.src[0]))
            return
        value = self.contents(base, self.versions[u])
        for v in self._path(u):
            value = self._move(v, value, 0)
        effect = u.src[1]
        ok = None
        if len(u.src) == 2 and effect.op is Ops.STORE and effect.src[0] is u.src[0]:
            ok = self.masks.get(effect.src[1])
        # After one STORE of INVALID to all of a view no element of it exists.
        self._set(u, value, None if ok is None or ok.any() else ok)

    def _note_writes(self, u: UOp, writes: dict[UOp, list[Write]]) -> None:
        """Record the writes of the effect under evaluation, the latest so far."""
        self.writes[u] = writes
        for base in writes:
            self._writers[base] = self._writers.get(base, 0) | 1 << len(self.effects) - 1

    def contents(self, base: UOp, version: int) -> Array:
        """The contents of a storage after the effects of a version."""
        left = version = version & self._writers.get(base, 0)
        pending: list[UOp] = []
        while left and (base, left) not in self._contents:
            latest = left.bit_length() - 1
            pending.append(self.effects[latest])
            left ^= 1 << latest
        array = self._contents.get((base, left), self.values[base])
        if pending:
            array = array.copy()
        for effect in reversed(pending):
            for target, value, ok in self.writes[effect][base]:
                self._write(array, target, value, ok)
        self._contents[base, version] = array
        return array

    def _write(self, array: Array, target: UOp, value: Array, ok: Array | None) -> None:
        """Write `value` to the elements of `array` that `target`, a chain of views, shows."""
        outer: list[tuple[Array, Array]] = []  # the operands of BITCASTs, and the offsets they show
        offsets = np.arange(array.size).reshape(array.shape)
        for v in self._path(target):
            if v.op is not Ops.BITCAST:
                offsets = self._move(v, offsets, -1)
                continue
            outer.append((array, offsets))
            array = evaluate.bitcast(array.reshape(-1)[offsets], v.dtype.numpy).copy()
            offsets = np.arange(array.size).reshape(array.shape)
        chosen = offsets >= 0 if ok is None else (offsets >= 0) & ok
        array.reshape(-1)[offsets[chosen]] = np.broadcast_to(value, offsets.shape)[chosen]
        for below, where in reversed(outer):
            below.reshape(-1)[where] = evaluate.bitcast(array, below.dtype).reshape(where.shape)
            array = below

    def final_contents(self, roots: Sequence[UOp]) -> dict[UOp, Array]:
        """The last contents of every storage that an effect below the roots writes."""
        version = 0
        for root in roots:
            version |= self.versions.get(root, 0)
        written = [base for base, writers in self._writers.items() if writers & version]
        return {base: self.contents(base, version) for base in written}

    # ------------------------------------------------------------ calls
    def _call(self, u: UOp) -> None:
        body, args = u.src[0], u.src[1:]
        if body.op is Ops.FUNCTION:
            written = self._call_function(u, body, args)
        else:
            written = self._call_kernel(body, args)
        self._note_written(u, written)

    def _note_written(self, call: UOp, written: Mapping[int, Array]) -> None:
        """Record the new contents of arguments of a CALL, by slot."""
        writes: dict[UOp, list[Write]] = {}
        for slot, array in written.items():
            a = call.src[1 + slot]
            writes.setdefault(self.bases[a], []).append((a, array, None))
        self._note_writes(call, writes)

    def _call_function(self, u: UOp, body: UOp, args: Sequence[UOp]) -> dict[int, Array]:
        """Evaluate a FUNCTION. Return the new contents of the arguments that it stores to, by slot.
        """
        held = {slot: self.values[a] for slot, a in enumerate(args)}
        if not body.arg.repeats:
            self.tuples[u], written = self._run_body(body, held)
            return written
        for _ in range(int(held[len(args) - 1])):
            held |= self._run_body(body, held)[1]
        slots = [written_slot(s) for s in body.src]
        self.tuples[u] = [(held[slot], None) for slot in slots if slot is not None]
        return {}

    def _run_body(
        self, body: UOp, held: Mapping[int, Array]
    ) -> tuple[list[tuple[Array, Array | None]], dict[int, Array]]:
        """The results of one run of a FUNCTION, and the new contents of arguments, by slot."""
        variables = Variables(self.variables.values)

        def argument(param: UOp) -> Array:
            return held[param.arg.slot] if param.arg.slot >= 0 else self.initial(param)

        for p in graph_order(body.src):
            if p.op is Ops.PARAM:
                variables.solve(p, argument(p))
        inner = self.nested(argument, variables)
        inner.run(body.src)
        results = [(inner.values[s], inner.masks.get(s)) for s in body.src if s in inner.values]
        written = inner.final_contents(body.src).items()
        stored = {b.arg.slot: a for b, a in written if b.op is Ops.PARAM and b.arg.slot >= 0}
        return results, stored

    def _program(self, u: UOp) -> Steps:
        """Run a program with exchanges on copies of its arguments."""
        arrays, variables = self._taken(u.src[1:])
        yield from program_steps(u.src[0], arrays, variables)
        self._note_written(u, {slot: arrays[slot] for slot in written_slots(u.src[0])})

    def _call_kernel(self, body: UOp, args: Sequence[UOp]) -> dict[int, Array]:
        """Run a kernel on copies of its arguments. Return the written ones, by slot."""
        arrays, variables = self._taken(args)
        run_kernel(body, arrays, variables)
        return {slot: arrays[slot] for slot in written_slots(body)}

    def _taken(self, args: Sequence[UOp]) -> tuple[list[Array], dict[str, int]]:
        """Copies of the arguments of a kernel, and the values of its variables."""
        variables = Variables(self.variables.values)
        arrays: list[Array] = []
        for a in args:
            arrays.append(np.array(self.values[a], order="C"))
            if a.op in (Ops.VARIABLE, Ops.BIND):
                variables.bind((a.src[0] if a.src else a).arg.name, int(self.values[a]))
        return arrays, variables.values
