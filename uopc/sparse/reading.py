"""Elements of values at known positions: slices if the positions are evenly spaced, else gathers.

A position is the index of an element in a flattened value. Positions are arrays of int64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Sequence

import numpy as np
import numpy.typing as npt

from uopc.derivatives import gather
from uopc.derivatives.values import fit, number_in, part
from uopc.ir.builder import alu, fold, leaves, movement, operands
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop
from uopc.sparse.sparsity import Places

Mask = npt.NDArray[np.bool_]
Dims = tuple[int, ...]
Form = tuple[int, tuple[int, ...]]  # a constant, and a step along each axis


class ArrayReader:
    """Reads of values. Equal arrays of positions are one object, whose form is computed once."""

    def __init__(self) -> None:
        self._one: dict[tuple[Dims, bytes], Places] = {}
        self._forms: dict[tuple[int, Dims], list[Form | Places]] = {}
        self._read: dict[tuple[UOp, int, Dims], UOp] = {}

    def one(self, places: npt.NDArray[np.integer]) -> Places:
        """The object for all arrays equal to this array."""
        made: Places = np.asarray(places, np.int64, order="C")
        return self._one.setdefault((made.shape, made.tobytes()), made)

    def read(self, f: UOp, at: Places, dims: Dims) -> UOp:
        """The elements of a value at positions in the shape `dims`, to which the value broadcasts.

        The result has the axes of `at`, with size 1 where it is constant.
        """
        number = number_in(f)
        if number is not None:
            return leaves.const(f.dtype, number)
        key = f, id(at), dims
        found = self._read.get(key)
        if found is None:
            own: Dims = shapes.shape(f)
            forms = self._forms_of(at, dims)[len(dims) - len(own) :]
            still: Form = (0, (0,) * at.ndim)
            moving = [still if d == 1 else form for form, d in zip(forms, own)]
            found = self._read[key] = _read_forms(f, moving, at.shape)
        return found

    def taken(self, vector: UOp, at: Places) -> UOp:
        """The elements of a vector at these positions, as a vector."""
        n = shapes.shape(vector)[0]
        if at.size == n and np.array_equal(at, np.arange(n)):
            return vector
        return fit(self.read(vector, self.one(at), (int(n),)), (at.size,))

    def _forms_of(self, at: Places, dims: Dims) -> list[Form | Places]:
        """The index along each dimension of the value, as a form if possible."""
        key = id(at), dims
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = [
                form_of(k) for k in (np.unravel_index(at, dims) if dims else ())
            ]
        return found


def form_of(k: npt.NDArray[np.integer]) -> Form | Places:
    """Evenly spaced numbers as a constant and a step for each axis; other numbers unchanged."""
    first = int(k[(0,) * k.ndim])
    steps = [
        int(k[tuple([1 if i == axis else 0 for i in range(k.ndim)])]) - first if n > 1 else 0
        for axis, n in enumerate(k.shape)
    ]
    form = first, tuple(steps)
    return form if (_numbers(form, k.shape) == k).all() else np.asarray(k, np.int64)


def _read_forms(f: UOp, forms: Sequence[Form | Places], box: Dims) -> UOp:
    """The elements of a value at a form, or an array of numbers, for each dimension."""
    even = [form for form in forms if isinstance(form, tuple)]
    axes = [[k for k, s in enumerate(steps) if s] for _, steps in even]
    flat = [k for used in axes for k in used]
    if len(even) == len(forms) and all([len(a) < 2 for a in axes]) and len(set(flat)) == len(flat):
        return _sliced(f, even, axes, box)
    if len(even) == len(forms):
        return movement.index(f, *[_even(form, box) for form in even])
    numbers = [_numbers(form, box) for form in forms]
    moving = tuple([i for i in range(len(box)) if any([n.shape[i] != 1 for n in numbers])])
    inner = tuple([box[i] for i in moving])
    at = np.broadcast_to(
        np.ravel_multi_index(np.broadcast_arrays(*numbers), shapes.shape(f)),
        [box[i] if i in moving else 1 for i in range(len(box))],
    )
    line = movement.reshape(f, (shapes.size(shapes.shape(f)),))
    table = operands.constant(at.reshape(inner).astype(np.int32))
    got = movement.index(line, fold.cast(table, dtypes.index))
    return movement.reshape(got, at.shape)


def _numbers(form: Form | Places, box: Dims) -> Places:
    """The numbers of a form, with size 1 along axes where they are constant."""
    if not isinstance(form, tuple):
        return form
    found: Places = np.full((1,) * len(box), form[0], np.int64)
    for axis, (n, step) in enumerate(zip(box, form[1])):
        if step:
            along = [n if i == axis else 1 for i in range(len(box))]
            found = found + (np.arange(n) * step).reshape(along)
    return found


def _even(form: Form, box: Dims) -> UOp:
    found: UOp = dim_uop(form[0])
    for axis, (n, step) in enumerate(zip(box, form[1])):
        if step:
            counter = movement.reshape(leaves.iota(n), (n, *(1,) * (len(box) - 1 - axis)))
            found = alu.binary(Ops.ADD, found, alu.binary(Ops.MUL, counter, step))
    return movement.reshape(
        found, (*(1,) * (len(box) - len(shapes.shape(found))), *shapes.shape(found))
    )


def _sliced(f: UOp, forms: Sequence[Form], axes: Sequence[Sequence[int]], box: Dims) -> UOp:
    """A strided window of a value, with dimensions in the order of the box."""
    begins, sizes, steps = [], [], []
    for (first, along), used in zip(forms, axes):
        step = along[used[0]] if used else 1
        last = first + step * (box[used[0]] - 1) if used else first
        begins.append(min(first, last))
        sizes.append(abs(last - first) + 1)
        steps.append(step)
    g = part(f, begins, sizes)
    turned = [i for i, s in enumerate(steps) if s < 0]
    g = movement.flip(g, tuple(turned)) if turned else g
    if any([abs(s) > 1 for s in steps]):
        g = g[tuple([slice(None, None, abs(s)) for s in steps])]
    moving = [used[0] for used in axes if used]
    g = movement.reshape(g, tuple([box[k] for k in moving]))
    g = movement.permute(g, tuple(sorted(range(len(moving)), key=lambda i: moving[i])))
    return movement.reshape(g, tuple([n if k in moving else 1 for k, n in enumerate(box)]))


# ---------------------------------------------------------------- values known now
_LEAVES = frozenset((Ops.CONST, Ops.DATA, Ops.IOTA, Ops.INVALID))
_MOST_KNOWN = 1 << 22  # elements of a value that is computed here


def _unread(u: UOp, read: Container[UOp]) -> list[UOp]:
    """The unread nodes among a value and its sources, sources first."""
    return [v for v in walk.toposort(u, gate=lambda v: v not in read) if v not in read]


class KnownArrays:
    """Values that depend on constant arrays only, as arrays."""

    def __init__(self) -> None:
        self._is: dict[UOp, bool] = {}
        self._arrays: dict[UOp, npt.NDArray[np.generic]] = {}

    def __contains__(self, u: UOp) -> bool:
        for v in _unread(u, self._is):
            self._is[v] = self._is_known(v)
        return self._is[u]

    def _is_known(self, u: UOp) -> bool:
        dims = shapes.shape(u)
        if not all([isinstance(d, int) for d in dims]) or math.prod(dims) > _MOST_KNOWN:
            return False
        if u.op in _LEAVES:
            return True
        moves = u.op.is_alu or u.op.movement or u.op in (Ops.CAST, Ops.STACK, Ops.CAT, Ops.REDUCE)
        return bool(u.src) and moves and all([self._is[s] for s in u.src])

    def array(self, u: UOp) -> npt.NDArray[np.generic]:
        """The elements of a known value; an INVALID index is -1."""
        if u not in self._arrays:
            self._arrays[u] = gather.evaluated(u)
        return self._arrays[u]


# 0 where all operands are 0.
_ODD = frozenset((
    Ops.NEG, Ops.ABS, Ops.SQRT, Ops.SIN, Ops.TAN, Ops.TANH, Ops.ERF, Ops.TRUNC, Ops.FLOOR, Ops.CEIL,
    Ops.ROUND, Ops.CAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.ADD, Ops.SUB, Ops.MAX, Ops.MIN,
))  # fmt: skip


class Zeros:
    """The elements of values that are zero by structure, such as the padding of a PAD."""

    def __init__(self, known: KnownArrays) -> None:
        self._known = known
        self._masks: dict[UOp, Mask | None] = {}

    def other(self, u: UOp) -> Mask | None:
        """The mask of elements that may be nonzero; None if all may be."""
        for v in _unread(u, self._masks):
            found = self._other(v)
            if found is not None:
                found = None if found.all() else np.broadcast_to(found, shapes.shape(v))
            self._masks[v] = found
        return self._masks[u]

    def _other(self, u: UOp) -> Mask | None:
        if u in self._known:
            return np.asarray(self._known.array(u) != 0)
        masks, op = [self._masks[s] for s in u.src], u.op
        if not all([isinstance(d, int) for s in (u, *u.src) for d in shapes.shape(s)]):
            return None
        if op is Ops.PAD or (op.movement and masks[0] is not None):
            whole = masks[0] if masks[0] is not None else np.ones(shapes.shape(u.src[0]), np.bool_)
            return gather.rearranged(whole, u, False)
        if op is Ops.WHERE and u.src[0] in self._known:
            on = self._known.array(u.src[0])
            return np.asarray(np.where(on, *[True if m is None else m for m in masks[1:]]))
        if op is Ops.FDIV:
            masks = masks[:1]
        if all([m is None for m in masks]):
            return None
        full = [
            np.ones(shapes.shape(s), np.bool_) if m is None else m for s, m in zip(u.src, masks)
        ]
        if op is Ops.STACK:
            return np.stack(full)
        if op is Ops.CAT:
            return np.concatenate(full, u.arg)
        if op in (Ops.MUL, Ops.FDIV):
            return functools.reduce(np.logical_and, full)
        return functools.reduce(np.logical_or, full) if op in _ODD else None


def guarded(table: Places) -> UOp:
    """A table of positions as an index; -1 becomes INVALID."""
    index = fold.cast(operands.constant(np.maximum(table, 0).astype(np.int32)), dtypes.index)
    if (table >= 0).all():
        return index
    nothing = intern(Ops.INVALID, dtypes.index)
    return alu.where(operands.constant(table >= 0), index, nothing)
