"""Reductions of operands that are too large to be made: block by block along the kept axes.

What lies between a REDUCE and arrays of a bearable size, arithmetic and PERMUTE, is computed only
for the elements of a block. EXPAND costs nothing where it is read, so a matrix product needs its
two matrices and one block of the products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from uopc.ir.analysis import max_dim, shape
from uopc.ir.interpret_values import Array, apply, fold, present
from uopc.ir.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

MOST_ELEMENTS = 1 << 24
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
    made = apply(v, values)
    ok = present(v, [ok for _, ok in sources], values[0])
    return made, None if ok is None else np.broadcast_to(ok, made.shape)


# ---------------------------------------------------------------- contractions
def _unpermuted(v: UOp) -> tuple[UOp, list[tuple[int, ...]]]:
    """What a large PERMUTE, or several, is of; their axes, the outermost first."""
    moves: list[tuple[int, ...]] = []
    while _is_inner(v) and v.op is Ops.PERMUTE:
        moves.append(v.arg)
        v = v.src[0]
    return v, moves


def _contracted(
    u: UOp, values: Mapping[UOp, Array], masks: Mapping[UOp, Array], absolute: bool = False
) -> Array | None:
    """A sum of products of two arrays, in float64 and in any order; None for any other REDUCE.

    An axis along which an array only repeats is no axis of it, so a matrix product is one.
    """
    product, moves = _unpermuted(u.src[0])
    if u.arg.op != "add" or u.dtype.kind != "float" or u.dtype.bits < 32:
        return None
    if not (_is_inner(product) and product.op is Ops.MUL):
        return None
    factors: list[Array] = []
    for s in product.src:
        leaf, inner = _unpermuted(s)
        if _is_inner(leaf) or leaf in masks:
            return None
        factor = values[leaf]
        for axes in reversed(inner):
            factor = factor.transpose(axes)
        factors.append(factor)
    dims = np.broadcast_shapes(*[f.shape for f in factors])
    full = [np.broadcast_to(f, dims) for f in factors]
    for axes in reversed(moves):
        full = [f.transpose(axes) for f in full]
    return _sum_of_products(full, [a % len(dims) for a in u.arg.axes], absolute)


def _sum_of_products(factors: list[Array], summed: list[int], absolute: bool) -> Array:
    """Factors of one shape, repeated along axes of stride 0, multiplied and summed over axes."""
    dims = factors[0].shape
    used = [[i for i, d in enumerate(dims) if d > 1 and f.strides[i]] for f in factors]
    parts: list[Array] = []
    for f, axes in zip(factors, used):
        small = f[tuple([slice(None) if i in axes else 0 for i in range(len(dims))])]
        parts.append(np.abs(small.astype(np.float64)) if absolute else small.astype(np.float64))
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
