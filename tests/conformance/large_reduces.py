"""The interpreter for recorded graphs, some of which are too large to be run node by node.

A REDUCE of an operand that is too large to be made is computed block by block along the kept axes:
arithmetic and PERMUTE between it and arrays of a bearable size are computed for one block alone. A
sum of products is one call of `np.einsum`, a sum over movement of a constant (an arange written as
a sum) takes no elements at all (`constant_sums.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tests.conformance.constant_sums import path_to_constant, sum_of_constant
from uopc.ir.core.bounds import max_dim
from uopc.ir.core.evaluate import Array, elementwise, fold, present
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import shape
from uopc.ir.core.uop import UOp
from uopc.ir.interpret.tensor import TensorRun

MOST_ELEMENTS = 1 << 24
# Of a factor of a sum of products, which is made as a whole in float64.
MOST_IN_FACTOR = 1 << 27
# Of each axis, from where to where.
Region = tuple[tuple[int, int], ...]
# The elements of a block, and which of them exist (None: all).
Part = tuple[Array, Array | None]


def is_large(u: UOp) -> bool:
    return math.prod([max_dim(d) for d in shape(u)]) > MOST_ELEMENTS


def _is_inner(u: UOp) -> bool:
    return (u.op.is_alu or u.op in (Ops.CAST, Ops.PERMUTE)) and is_large(u)


def leaves(u: UOp) -> list[UOp]:
    """The arrays that a REDUCE of a large operand is computed from; its operand itself if small."""
    found: dict[UOp, None] = {}
    done: set[UOp] = set()
    stack = [u.src[0]]
    while stack:
        v = stack.pop()
        if v in done:
            continue
        done.add(v)
        if _is_inner(v):
            stack.extend(reversed(v.src))
        else:
            found[v] = None
    return list(found)


class Blocks:
    """The operand of a REDUCE, given the values and masks of its leaves."""

    def __init__(self, u: UOp, values: Mapping[UOp, Array], masks: Mapping[UOp, Array]) -> None:
        self.u, self.values, self.masks = u, values, masks
        self.leaves = set(leaves(u))
        self.dims: dict[UOp, tuple[int, ...]] = {}
        stack = [u.src[0]]
        while stack:
            v = stack[-1]
            missing = [] if v in self.leaves else [s for s in v.src if s not in self.dims]
            stack.extend(missing)
            if not missing:
                self.dims[stack.pop()] = self._dims(v)

    def _dims(self, v: UOp) -> tuple[int, ...]:
        if v in self.leaves:
            return self.values[v].shape
        if v.op is Ops.PERMUTE:
            return tuple([self.dims[v.src[0]][axis] for axis in v.arg])
        return np.broadcast_shapes(*[self.dims[s] for s in v.src])

    def __iter__(self) -> Iterator[tuple[tuple[slice, ...], Part]]:
        """The part of the result that each block gives, and the block."""
        operand = self.u.src[0]
        dims, kept = self.dims[operand], self._kept()
        widths = list(dims)
        for i in kept:
            rest = math.prod(widths) // max(widths[i], 1)
            widths[i] = max(1, min(widths[i], MOST_ELEMENTS // max(rest, 1)))
        starts = [range(0, n, w) if w else range(1) for n, w in zip(dims, widths)]
        for corner in itertools.product(*starts):
            region = tuple([(b, min(b + w, n)) for b, w, n in zip(corner, widths, dims)])
            yield tuple([slice(*region[i]) for i in kept]), self._part(operand, region)

    def _kept(self) -> list[int]:
        rank = len(self.dims[self.u.src[0]])
        summed = {axis % rank for axis in self.u.arg.axes}
        return [i for i in range(rank) if i not in summed]

    def result_dims(self) -> tuple[int, ...]:
        return tuple([self.dims[self.u.src[0]][i] for i in self._kept()])

    def unrepeated(self, v: UOp) -> Array | None:
        """The elements of an inner value, once along each axis on which it only repeats; None where
        these are too many. No element may be missing."""
        varies = self._varying(v)
        region = tuple([(0, d if i in varies else min(d, 1)) for i, d in enumerate(self.dims[v])])
        if math.prod([end for _, end in region]) > MOST_IN_FACTOR:
            return None
        return self._part(v, region)[0]

    def _varying(self, root: UOp) -> set[int]:
        """The axes along which the elements of an inner value differ."""
        found: dict[UOp, set[int]] = {}
        stack = [root]
        while stack:
            v = stack[-1]
            missing = [] if v in self.leaves else [s for s in v.src if s not in found]
            stack.extend(missing)
            if not missing:
                found[stack.pop()] = self._varying_given(v, found)
        return found[root]

    def _varying_given(self, v: UOp, found: Mapping[UOp, set[int]]) -> set[int]:
        if v in self.leaves:
            array = self.values[v]
            return {i for i, d in enumerate(array.shape) if d > 1 and array.strides[i]}
        if v.op is Ops.PERMUTE:
            return {i for i, axis in enumerate(v.arg) if axis in found[v.src[0]]}
        rank = len(self.dims[v])
        return {i + rank - len(self.dims[s]) for s in v.src for i in found[s]}

    def _part(self, root: UOp, region: Region) -> Part:
        """The elements of a region, computed for it alone."""
        done: dict[tuple[UOp, Region], Part] = {}
        stack = [(root, region)]
        while stack:
            v, at = stack[-1]
            if v in self.leaves:
                done[stack.pop()] = self._cut(v, at)
                continue
            sources = [(s, self._source_region(v, s, at)) for s in v.src]
            missing = [key for key in sources if key not in done]
            stack.extend(missing)
            if not missing:
                done[stack.pop()] = _computed(v, [done[key] for key in sources])
        return done[root, region]

    def _cut(self, v: UOp, at: Region) -> Part:
        place = tuple([slice(*bounds) for bounds in at])
        ok = self.masks.get(v)
        return np.asarray(self.values[v][place]), None if ok is None else np.asarray(ok[place])

    def _source_region(self, v: UOp, s: UOp, at: Region) -> Region:
        if v.op is Ops.PERMUTE:
            source = list(at)
            for i, axis in enumerate(v.arg):
                source[axis] = at[i]
            return tuple(source)
        dims = self.dims[s]
        return tuple([(0, 1) if d == 1 else r for d, r in zip(dims, at[len(at) - len(dims) :])])


def _computed(v: UOp, sources: list[Part]) -> Part:
    if v.op is Ops.PERMUTE:
        value, ok = sources[0]
        return value.transpose(v.arg), None if ok is None else ok.transpose(v.arg)
    values = [value for value, _ in sources]
    made = elementwise(v, values)
    ok = present(v, [ok for _, ok in sources], values)
    return made, None if ok is None else np.broadcast_to(ok, made.shape)


# ---------------------------------------------------------------- contractions
def _unpermuted(v: UOp) -> tuple[UOp, list[tuple[int, ...]]]:
    """The operand of a large PERMUTE, or of several, and their axes, the outermost first."""
    moves: list[tuple[int, ...]] = []
    while _is_inner(v) and v.op is Ops.PERMUTE:
        moves.append(v.arg)
        v = v.src[0]
    return v, moves


def _contracted(
    u: UOp, values: Mapping[UOp, Array], masks: Mapping[UOp, Array], absolute: bool = False
) -> Array | None:
    """A sum of products of two values, in float64 and in any order; None for any other REDUCE.

    An axis along which a value only repeats is no axis of it, so a matrix product is one, and so is
    a sum of what a condition picks: the condition is a factor, 1 or 0.
    """
    product, moves = _unpermuted(u.src[0])
    if u.arg.op != "add" or u.dtype.kind != "float" or u.dtype.bits < 32:
        return None
    if not _is_inner(product) or any(leaf in masks for leaf in leaves(u)):
        return None
    picks = product.op is Ops.WHERE and _is_nothing(product.src[2], values)
    if not picks and product.op is not Ops.MUL:
        return None
    blocks = Blocks(u, values, masks)
    factors: list[Array] = []
    for s in product.src[:2]:
        factor = blocks.unrepeated(s)
        if factor is None:
            return None
        # The magnitudes of the terms need not be exact.
        factors.append(np.abs(factor).astype(np.float32) if absolute else factor.astype(np.float64))
    rank = len(blocks.dims[product])
    axes = list(range(rank))
    for move in reversed(moves):
        axes = [axes[i] for i in move]
    factors = [f.reshape([1] * (rank - f.ndim) + [*f.shape]).transpose(axes) for f in factors]
    dims = [blocks.dims[product][i] for i in axes]
    summed = [a % rank for a in u.arg.axes]
    make = _sum_of_picked if picks else _sum_of_products
    return make(factors[0], factors[1], dims, summed)


def _is_nothing(v: UOp, values: Mapping[UOp, Array]) -> bool:
    """True if a leaf is 0 everywhere, as far as one can see without looking at each element."""
    found = values.get(v)
    if found is None or not found.size:
        return False
    repeats = not any([d > 1 and step for d, step in zip(found.shape, found.strides)])
    return repeats and not found.flat[0]


def _sum_of_picked(picks: Array, terms: Array, dims: list[int], summed: list[int]) -> Array:
    """The sum of the terms that are picked, where 0 times infinity is not what is not picked."""
    finite = np.isfinite(terms)
    total = _sum_of_products(picks, np.where(finite, terms, 0), dims, summed)
    if not finite.all():
        for value, found in (
            (np.inf, terms == np.inf), (-np.inf, terms == -np.inf), (np.nan, np.isnan(terms))
        ):  # fmt: skip
            count = _sum_of_products(picks, found.astype(terms.dtype), dims, summed)
            total = np.where(count > 0, total + value, total)
    return total


def _sum_of_products(a: Array, b: Array, dims: list[int], summed: list[int]) -> Array:
    """Factors of size 1 along axes of `dims` on which they repeat, multiplied and summed."""
    used = [[i for i, d in enumerate(f.shape) if d > 1] for f in (a, b)]
    parts = [f.reshape([d for d in f.shape if d > 1]) for f in (a, b)]
    kept = [i for i in range(len(dims)) if i not in summed]
    either = {*used[0], *used[1]}
    shown = [i for i in kept if i in either]
    made = np.einsum(parts[0], used[0], parts[1], used[1], shown, optimize=True)
    times = math.prod([dims[i] for i in summed if i not in either])
    shaped = (made * times).reshape([dims[i] if i in either else 1 for i in kept])
    return np.array(np.broadcast_to(shaped, [dims[i] for i in kept]))


# ---------------------------------------------------------------- reductions
def reduced(u: UOp, values: Mapping[UOp, Array], masks: Mapping[UOp, Array]) -> Part:
    """The value of a REDUCE, and which elements of it exist."""
    if not is_large(u.src[0]):
        return _folded(u, values[u.src[0]], masks.get(u.src[0]))
    product = _contracted(u, values, masks)
    if product is not None:
        return product.astype(u.dtype.numpy), None
    blocks = Blocks(u, values, masks)
    dims = blocks.result_dims()
    result, exists = np.empty(dims, u.dtype.numpy), np.ones(dims, np.bool_)
    for place, (value, ok) in blocks:
        part, some = _folded(u, value, ok)
        result[place] = part
        exists[place] = True if some is None else some
    return result, None if exists.all() else exists


def _folded(u: UOp, value: Array, ok: Array | None) -> Part:
    made = fold(u.arg.op, value, u.arg.axes, u.dtype)
    return made, None if ok is None else np.asarray(ok.all(axis=u.arg.axes))


def magnitude(u: UOp, values: Mapping[UOp, Array]) -> tuple[Array, int]:
    """The sums of the absolute values of what a REDUCE combines, in float64; of how many."""

    def total(terms: Array) -> Array:
        return np.asarray(np.abs(terms.astype(np.float64)).sum(axis=u.arg.axes))

    if not is_large(u.src[0]):
        terms = values[u.src[0]]
        out = total(terms)
        return out, terms.size // max(1, out.size)
    product = _contracted(u, values, {}, absolute=True)
    if product is not None:
        whole = math.prod([max_dim(d) for d in shape(u.src[0])])
        return product, whole // max(1, product.size)
    blocks = Blocks(u, values, {})
    out = np.empty(blocks.result_dims())
    count = 0
    for place, (terms, _) in blocks:
        out[place] = total(terms)
        count += terms.size
    return out, count // max(1, out.size)


class LargeRun(TensorRun):
    """A TensorRun that does not make the large operand of a REDUCE."""

    def reads(self, u: UOp) -> Sequence[UOp]:
        if u.op is not Ops.REDUCE or not is_large(u.src[0]):
            return super().reads(u)
        path = path_to_constant(u)
        return leaves(u) if path is None else [s for v in path for s in v.src[1:]]

    def reduced(self, u: UOp) -> Part:
        if path_to_constant(u) is not None and is_large(u.src[0]):
            return sum_of_constant(u, self.integers), None
        return reduced(u, self.values, self.masks)
