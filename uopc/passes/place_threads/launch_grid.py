"""Loop or thread extents laid out over the few dimensions of a launch.

A device takes a few dimensions (three on a GPU), each up to a maximum. `grid` finds sizes that fit,
and the index of each extent in terms of the indices of the launch. Every combination of indices
occurs exactly once.

    extents (4, 4, 4, 4), maxima (16, 16)   →   sizes (16, 16)
    index  gidx0 // 4,  gidx0 % 4,  gidx1 // 4,  gidx1 % 4
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uopc.errors import Unsupported
from uopc.ir.builder import index_maps, leaves, operands
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine


@dataclass(frozen=True, slots=True)
class Grid:
    """The names and sizes of the dimensions of a launch; and the index of each extent, of dtype
    index, in terms of SPECIALs with these names."""

    names: tuple[str, ...]
    sizes: Shape
    index: tuple[UOp, ...]


def grid(
    prefix: str,
    extents: Sequence[Dim],
    maxima: Sequence[int] | None = None,
    *,
    innermost_first: bool = False,
) -> Grid:
    """The extents (ints, or UOps of dtype index) over SPECIALs `prefix0`, `prefix1`, …

    The launch has at most one dimension per maximum, none longer than its maximum; without maxima,
    one dimension per extent. `innermost_first` puts the last extents on dimension 0, where
    neighbours run together. Unsupported if no sizes fit.
    """
    extents = [operands.as_dim(d) for d in extents]
    live = tuple([d for d in extents if not index_maps.is_one(d)])
    order = -1 if innermost_first else 1
    sizes = _sizes(live[::order], None if maxima is None else tuple(maxima))
    names = tuple([f"{prefix}{i}" for i in range(len(sizes))])
    outer = tuple([_special(n, d) for n, d in zip(names, sizes)])[::order]
    parts = iter(index_maps.reshape_index(sizes[::order], live, outer))
    index = [affine.const(0) if index_maps.is_one(d) else next(parts) for d in extents]
    return Grid(names, sizes, tuple(index))


def _special(name: str, size: Dim) -> UOp:
    return intern(Ops.SPECIAL, dtypes.index, (leaves.dim_uop(size),), name)


def _sizes(extents: Shape, maxima: tuple[int, ...] | None) -> Shape:
    """The sizes of the dimensions of the launch; their product is that of the extents."""
    if maxima is None or not extents:
        return extents
    found = _grouped(extents, maxima) or _factored(extents, maxima)
    if found is None:
        shown = shapes.show(extents)
        raise Unsupported(f"extents {shown} do not fit a launch of at most {maxima}")
    return found


def _grouped(extents: Shape, maxima: tuple[int, ...]) -> Shape | None:
    """Products of neighbouring extents, with as many factors as fit; dimension 0 is the longest."""
    for count in range(min(len(extents), len(maxima)), 0, -1):
        fitting = [
            sizes
            for sizes in _partitions(extents, count)
            if all([bounds.max_dim(d) <= most for d, most in zip(sizes, maxima)])
        ]
        if fitting:
            return max(fitting, key=lambda sizes: [bounds.max_dim(d) for d in sizes])
    return None


def _partitions(extents: Shape, count: int) -> Iterator[Shape]:
    """The products of neighbours, for every way to split the extents in `count` groups."""
    for cuts in itertools.combinations(range(1, len(extents)), count - 1):
        ends = (0, *cuts, len(extents))
        yield tuple([shapes.size(extents[i:j]) for i, j in itertools.pairwise(ends)])


def _factored(extents: Shape, maxima: tuple[int, ...]) -> Shape | None:
    """Any sizes with the product of the extents, for an extent longer than every maximum. The index
    of an extent is then computed from several dimensions. None if an extent is not a number."""
    numbers = [d for d in extents if isinstance(d, int)]
    if len(numbers) != len(extents):
        return None
    return _divided(math.prod(numbers), _divisors(numbers), maxima)


def _divided(total: int, divisors: list[int], maxima: tuple[int, ...]) -> Shape | None:
    """Divisors with the product `total`, each within its maximum, the first as large as can be."""
    if total == 1 or not maxima:
        return () if total == 1 else None
    for d in divisors:
        if total // d > math.prod(maxima[1:]):
            break
        rest = _divided(total // d, divisors, maxima[1:]) if total % d == 0 else None
        if d <= maxima[0] and rest is not None:
            return (d, *rest)
    return None


def _divisors(numbers: list[int]) -> list[int]:
    """The divisors of the product of some numbers, largest first."""
    found = {1}
    for n in numbers:
        divisor = 2
        while n > 1:
            divisor = divisor if divisor * divisor <= n else n
            while n % divisor == 0:
                found |= {f * divisor for f in found}
                n //= divisor
            divisor += 1
    return sorted(found, reverse=True)
