"""Equal expressions over different elements as one expression with a leading axis.

`Forms` numbers the forms of values: values of one form are built alike. `Roller.rolled` takes such
values and gives their STACK as if it had been written with arrays: where they differ in constants
there is an array, where they read different places of one value there is a gather, and where they
are the same they stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import TypeAlias

import numpy as np

from uopc.ir.builder import alu, fold, movement
from uopc.ir.builder.rebuild import remake
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.evaluate import Array
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.core.walk import computed
from uopc.ir.index import affine
from uopc.passes.reroll.constant_folding import Constants, array_node

Parts: TypeAlias = tuple["UOp", ...]
# A value, and whether it has the leading axis; None where the parts are not alike.
Rolled: TypeAlias = "tuple[UOp, bool] | None"
Plan: TypeAlias = tuple[list[Parts], Callable[[list[tuple["UOp", bool]]], "UOp"]]

# This many values that are not alike are still stacked: their reader chooses among them.
MOST_UNLIKE = 16
_SAME_ARG = (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP, Ops.PAD, Ops.SHRINK, Ops.REDUCE,
             Ops.STACK, Ops.CAT)  # fmt: skip


class Forms:
    """Forms by memo. Constants of one shape have one form, and so have windows of one size of
    values of one form; everything else must be the same."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.form: dict[UOp, int] = {}
        self.numbers: dict[Hashable, int] = {}

    def of(self, root: UOp) -> int:
        """The form of a value: equal numbers for values that are built alike."""
        form, constant = self.form, self.constants.constant
        for u in walk.toposort(root, gate=lambda u: u not in form and u not in constant):
            if u not in form:
                form[u] = self.numbers.setdefault(self._key(u), len(self.numbers))
        return form[root]

    def _key(self, u: UOp) -> Hashable:
        dims = shapes.shape(u)
        if u in self.constants.constant:
            return "constant", u.dtype, dims
        if not u.src or not (u.op.movement or u.op.is_alu or u.op in _COMPARED):
            return u
        arg = u.arg if u.op is not Ops.SHRINK else None
        return u.op, u.dtype, dims, arg, tuple([self.form[s] for s in u.src])

    def groups(self, parts: tuple[UOp, ...]) -> list[list[int]]:
        """The places of the parts of each form, in the order in which forms are first met."""
        found: dict[int, list[int]] = {}
        for i, p in enumerate(parts):
            found.setdefault(self.of(p), []).append(i)
        return list(found.values())


_COMPARED = (Ops.CAST, Ops.WHERE, Ops.REDUCE, Ops.STACK, Ops.CAT)


class Roller:
    """Rolls tuples of values, by memo: a tuple that is met twice is one value."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.memo: dict[Parts, Rolled] = {}

    def rolled(self, parts: Parts) -> UOp | None:
        """The parts along a new leading axis; None when they are not built alike."""
        if all(p is parts[0] for p in parts):
            return _spread(parts[0], len(parts))
        if self._plan(parts) is None:
            return None
        got = computed(parts, self._step, self.memo)
        return None if got is None else got[0]

    def _step(self, parts: Parts) -> Rolled | Generator[list[Parts], list[Rolled], Rolled]:
        plan = self._plan(parts)
        return self._unlike(parts) if plan is None else _followed(*plan)

    def _unlike(self, parts: Parts) -> Rolled:
        first = parts[0]
        if all(p is first for p in parts):
            return first, False
        few = len(parts) <= MOST_UNLIKE and all(
            p.dtype is first.dtype and shapes.shape(p) == shapes.shape(first) for p in parts
        )
        return (movement.stack(*parts), True) if few else None

    def _plan(self, parts: Parts) -> Plan | None:
        """The operands of the parts, and a function that makes the whole of them."""
        first = parts[0]
        if all(p is first for p in parts):
            return None
        dims = shapes.shape(first)
        alike = all(p.dtype is first.dtype and shapes.shape(p) == dims for p in parts)
        if not alike or not all(isinstance(d, int) for d in dims):
            return None
        if all(p in self.constants.constant for p in parts):
            return [], lambda _: self._array(parts)
        if any(p.op is not first.op or len(p.src) != len(first.src) for p in parts):
            return None
        if first.op is Ops.SHRINK and any(p.arg != first.arg for p in parts):
            return _windows(parts)
        if not (first.op.is_alu or first.op in (Ops.CAST, Ops.WHERE, *_SAME_ARG)):
            return None
        if any(p.arg != first.arg for p in parts):
            return None
        if first.op.movement and len(first.src) > 1:  # where it moves, variables say
            return None
        columns = [tuple([p.src[i] for p in parts]) for i in range(len(first.src))]
        for column in columns:
            if any(shapes.shape(s) != shapes.shape(column[0]) for s in column):
                return None
        return columns, lambda below: _batched(first, len(parts), below)

    def _array(self, parts: Parts) -> UOp:
        arrays = [self.constants.array(p) for p in parts]
        return array_node(np.stack(arrays), parts[0].dtype)


def _followed(
    below: list[Parts], make: Callable[[list[tuple[UOp, bool]]], UOp]
) -> Generator[list[Parts], list[Rolled], Rolled]:
    """A plan carried out: what it is made of first."""
    made = yield below
    known = [b for b in made if b is not None]
    return (make(known), True) if len(known) == len(made) else None


# ------------------------------------------------------------ one op with a leading axis
def _batched(u: UOp, n: int, below: list[tuple[UOp, bool]]) -> UOp:
    dims = shapes.shape(u)
    if u.op in (Ops.STACK, Ops.CAT):
        every = [s if has else _spread(s, n) for s, has in below]
        if u.op is Ops.CAT:
            return movement.cat(*every, axis=u.arg + 1)
        return movement.stack(*every, axis=1)
    if u.op is Ops.RESHAPE:
        return movement.reshape(below[0][0], (n, *dims))
    if u.op is Ops.EXPAND:
        return movement.expand(_aligned(*below[0], len(dims)), (n, *dims))
    if u.op is Ops.PERMUTE:
        return movement.permute(below[0][0], (0, *[a + 1 for a in u.arg]))
    if u.op is Ops.FLIP:
        return movement.flip(below[0][0], *[a + 1 for a in u.arg])
    if u.op in (Ops.PAD, Ops.SHRINK):
        begins, sizes = shapes.window(u)
        return intern(u.op, u.dtype, (below[0][0],), (0, *begins, n, *sizes))
    if u.op is Ops.REDUCE:
        axes = tuple([a + 1 for a in u.arg.axes])
        return intern(Ops.REDUCE, u.dtype, (below[0][0],), ReduceArg(u.arg.op, axes))
    src = tuple([_aligned(s, has, len(dims)) for s, has in below])
    return remake(u, src)


def _aligned(s: UOp, has: bool, rank: int) -> UOp:
    """An operand that broadcasts to a result of `rank` dimensions and the leading axis."""
    dims = shapes.shape(s)
    if not has or len(dims) == rank + 1:
        return s
    return movement.reshape(s, (dims[0], *(1,) * (rank + 1 - len(dims)), *dims[1:]))


def _spread(s: UOp, n: int) -> UOp:
    dims = shapes.shape(s)
    return movement.expand(movement.reshape(s, (1, *dims)), (n, *dims))


# ------------------------------------------------------------ windows at different places
def _windows(parts: Parts) -> Plan | None:
    """SHRINKs of one size at different places, of one value or of several that are alike."""
    dims = shapes.shape(parts[0])
    if any(len(p.src) != 1 for p in parts):
        return None
    inner = shapes.shape(parts[0].src[0])
    if any(shapes.shape(p.src[0]) != inner for p in parts):
        return None
    begins = np.asarray([p.arg[: len(dims)] for p in parts], np.int64)
    read = tuple(dict.fromkeys([p.src[0] for p in parts]))
    number = {s: i for i, s in enumerate(read)}
    which = np.asarray([number[p.src[0]] for p in parts], np.int64)

    def build_gather(below: list[tuple[UOp, bool]]) -> UOp:
        value, has = below[0]
        if not has:
            return gathered(value, begins, dims)
        places = np.concatenate([which[:, None], begins], 1)
        got = gathered(value, places, (1, *dims))
        return movement.reshape(got, (len(parts), *dims))

    return [read], build_gather


def _is_stored(value: UOp) -> bool:
    """True if its elements are read, not computed once per window."""
    while value.op.movement or value.op is Ops.AFTER:
        value = value.src[0]
    return value.op.is_storage or value.op in (Ops.CONTIGUOUS, Ops.CONST)


def gathered(value: UOp, begins: Array, sizes: Sequence[int]) -> UOp:
    """n windows of one value, by where they begin: (n, rank) → (n, *sizes)."""
    n, rank = begins.shape
    inner = shapes.shape(value)
    if n > MOST_UNLIKE and not _is_stored(value):
        value = intern(Ops.CONTIGUOUS, value.dtype, (value,))
    irregular = [i for i in range(rank) if not _is_regular(begins[:, i])]
    whole = value.op.is_storage or value.op is Ops.CONTIGUOUS
    if whole and len(irregular) > 1 and all([s == 1 for s in sizes]):
        # Elements are counted as they lie: one array of places, and not one for each axis.
        flat = np.ravel_multi_index(tuple(begins.T), tuple(inner))
        line = movement.reshape(value, (math.prod(inner),))
        return movement.reshape(gathered(line, flat[:, None], (1,)), (n, *sizes))
    same = [bool((begins[:, i] == begins[0, i]).all()) for i in range(rank)]
    first = [int(begins[0, i]) if same[i] else 0 for i in range(rank)]
    kept = [sizes[i] if same[i] else inner[i] for i in range(rank)]
    value = movement.window(value, first, kept)
    moving = [i for i in range(rank) if not same[i]]
    order = [*moving, *[i for i in range(rank) if same[i]]]
    value = movement.permute(value, tuple(order))
    long = [i for i in moving if sizes[i] > 1]
    places = []
    for i in moving:
        along = fold.cast(_numbers(begins[:, i]), dtypes.index)
        along = movement.reshape(along, (n, *(1,) * len(long)))
        if i in long:
            ramp = [sizes[i] if j == i else 1 for j in long]
            along = alu.alu(along, Ops.ADD, movement.reshape(_iota(sizes[i]), (1, *ramp)))
        places.append(along)
    got = movement.index(value, *places)
    back = [0, *[1 + order.index(i) for i in range(rank)]]
    return movement.permute(movement.reshape(got, (n, *[sizes[i] for i in order])), tuple(back))


def _iota(n: int) -> UOp:
    return intern(Ops.IOTA, dtypes.index, (), (n,))


def _is_regular(values: Array) -> bool:
    steps = np.diff(values)
    return bool((steps == steps[:1]).all())


def _numbers(values: Array) -> UOp:
    """A vector of integers: counted where they grow by a fixed step, else an array."""
    if len(values) > 1 and _is_regular(values):
        steps = np.diff(values)
        step, start = affine.const(int(steps[0])), affine.const(int(values[0]))
        return alu.alu(alu.alu(_iota(len(values)), Ops.MUL, step), Ops.ADD, start)
    small = values.max(initial=0) < 1 << 31
    t = dtypes.int32 if small else dtypes.int64
    return array_node(values.astype(t.numpy), t)
