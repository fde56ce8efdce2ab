"""Equal expressions over different elements as one expression with a leading axis.

`Forms` numbers the forms of values: values of one form are built alike. `Roller.rolled` takes such
values and returns their STACK as one expression: constants that differ become an array, reads of
different elements of one value become a gather, and equal operands stay.
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
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.parts import shared_work
from uopc.passes.reroll.constant_folding import Constants, array_node

Parts: TypeAlias = tuple["UOp", ...]
# A value, and whether it has the leading axis; None where the parts are not alike.
Rolled: TypeAlias = "tuple[UOp, bool] | None"
# The operands of the parts, and a function that makes the whole of them.
ByOperands: TypeAlias = tuple[list[Parts], Callable[[list[tuple["UOp", bool]]], "UOp"]]

# This many values that are not alike are still stacked: their reader chooses among them.
MOST_UNLIKE = 16
# Parts of a greater cost than this are not searched for work that they share.
MOST_SHARED = 4096


def _is_rolled(op: Op) -> bool:
    return op.movement or op.is_alu or op in (Ops.CAST, Ops.REDUCE, Ops.STACK, Ops.CAT)


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
        stack = [root]
        while stack:
            u = stack[-1]
            below = () if u in form or u in constant else u.src
            missing = [s for s in below if s not in form]
            stack.extend(missing)
            if not missing:
                stack.pop()
                if u not in form:
                    form[u] = self.numbers.setdefault(self._key(u), len(self.numbers))
        return form[root]

    def _key(self, u: UOp) -> Hashable:
        dims = shapes.shape(u)
        if u in self.constants.constant:
            return "constant", u.dtype, dims
        if not u.src or not _is_rolled(u.op):
            return u
        arg = u.arg if u.op is not Ops.SHRINK else None
        return u.op, u.dtype, dims, arg, tuple([self.form[s] for s in u.src])


class Roller:
    """Rolls tuples of values, by memo: a tuple that is met twice is one value."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.memo: dict[Parts, Rolled] = {}

    def rolled(self, parts: Parts) -> UOp | None:
        """The parts along a new leading axis; None when they are not built alike."""
        if all(p is parts[0] for p in parts):
            return movement.repeated(parts[0], len(parts))
        if self._by_operands(parts) is None:
            return None
        got = walk.computed(parts, self._rolled, self.memo)
        return None if got is None else got[0]

    def _rolled(self, parts: Parts) -> Generator[list[Parts], list[Rolled], Rolled]:
        first, found = parts[0], self._by_operands(parts)
        if found is not None:
            operands, make = found
            made = yield operands
            known = [b for b in made if b is not None]
            return (make(known), True) if len(known) == len(made) else None
        if all(p is first for p in parts):
            return first, False
        few = len(parts) <= MOST_UNLIKE and all(
            p.dtype is first.dtype and shapes.shape(p) == shapes.shape(first) for p in parts
        )
        # A STACK of parts that share work would be stored, in a kernel of its own.
        alone = few and not shared_work(parts, (), MOST_SHARED)
        return (movement.stack(*parts), True) if alone else None

    def _by_operands(self, parts: Parts) -> ByOperands | None:
        first = parts[0]
        if all(p is first for p in parts):
            return None
        dims = shapes.shape(first)
        alike = all(p.dtype is first.dtype and shapes.shape(p) == dims for p in parts)
        if not alike or not all(isinstance(d, int) for d in dims):
            return None
        if all(p in self.constants.constant for p in parts):
            array = self.constants.array
            return [], lambda _: array_node(np.stack([array(p) for p in parts]), first.dtype)
        if any(p.op is not first.op or len(p.src) != len(first.src) for p in parts):
            return None
        if first.op is Ops.SHRINK and any(p.arg != first.arg for p in parts):
            return _windows(parts)
        if not _is_rolled(first.op) or any(p.arg != first.arg for p in parts):
            return None
        if first.op.movement and len(first.src) > 1:  # variables decide where it moves
            return None
        columns = list(zip(*[p.src for p in parts]))
        if any(shapes.shape(s) != shapes.shape(c[0]) for c in columns for s in c):
            return None
        return columns, lambda below: _batched(first, len(parts), below)


# ------------------------------------------------------------ one op with a leading axis
def _batched(u: UOp, n: int, below: list[tuple[UOp, bool]]) -> UOp:
    dims = shapes.shape(u)
    if u.op in (Ops.STACK, Ops.CAT):
        every = [s if has else movement.repeated(s, n) for s, has in below]
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


# ------------------------------------------------------------ windows at different places
def _windows(parts: Parts) -> ByOperands | None:
    """SHRINKs of one size at different places, of one value or of several that are alike."""
    dims, inner = shapes.shape(parts[0]), shapes.shape(parts[0].src[0])
    if any(len(p.src) != 1 or shapes.shape(p.src[0]) != inner for p in parts):
        return None
    begins = np.asarray([p.arg[: len(dims)] for p in parts], np.int64)
    read = tuple(dict.fromkeys([p.src[0] for p in parts]))
    number = {s: i for i, s in enumerate(read)}
    which = np.asarray([number[p.src[0]] for p in parts], np.int64)

    def build_gather(below: list[tuple[UOp, bool]]) -> UOp:
        value, has = below[0]
        if not has:
            return gathered(value, begins, dims)
        got = gathered(value, np.concatenate([which[:, None], begins], 1), (1, *dims))
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
        # Elements are counted in memory order: one array of indices instead of one per axis.
        flat = np.ravel_multi_index(tuple(begins.T), tuple(inner))
        line = movement.reshape(value, (math.prod(inner),))
        return movement.reshape(gathered(line, flat[:, None], (1,)), (n, *sizes))
    same = (begins == begins[:1]).all(0)
    first = [int(begin) if s else 0 for begin, s in zip(begins[0], same)]
    value = movement.window(value, first, [sizes[i] if same[i] else inner[i] for i in range(rank)])
    order = sorted(range(rank), key=lambda i: same[i])  # axes that differ first
    value = movement.permute(value, tuple(order))
    differing = [i for i in order if not same[i]]
    indices = _window_indices(begins[:, differing], [sizes[i] for i in differing])
    got = movement.index(value, *indices)
    back = [0, *[1 + order.index(i) for i in range(rank)]]
    return movement.permute(movement.reshape(got, (n, *[sizes[i] for i in order])), tuple(back))


def _window_indices(begins: Array, sizes: Sequence[int]) -> list[UOp]:
    """The index along each axis: (n, rank) → rank of shape (n, *sizes), without sizes of 1."""
    long = [i for i, size in enumerate(sizes) if size > 1]
    indices = []
    for i, size in enumerate(sizes):
        along = fold.cast(_numbers(begins[:, i]), dtypes.index)
        along = movement.reshape(along, (len(begins), *(1,) * len(long)))
        if size > 1:
            ramp = [size if j == i else 1 for j in long]
            along = alu.alu(along, Ops.ADD, movement.reshape(_iota(size), (1, *ramp)))
        indices.append(along)
    return indices


def _iota(n: int) -> UOp:
    return intern(Ops.IOTA, dtypes.index, (), (n,))


def _is_regular(values: Array) -> bool:
    steps = np.diff(values)
    return bool((steps == steps[:1]).all())


def _numbers(values: Array) -> UOp:
    """A vector of integers: counted where they grow by a fixed step, else an array."""
    if len(values) > 1 and _is_regular(values):
        step, start = affine.const(int(values[1] - values[0])), affine.const(int(values[0]))
        return alu.alu(alu.alu(_iota(len(values)), Ops.MUL, step), Ops.ADD, start)
    t = dtypes.int32 if values.max(initial=0) < 1 << 31 else dtypes.int64
    return array_node(values.astype(t.numpy), t)
