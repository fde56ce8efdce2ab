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
from collections.abc import Sequence

from uopc.errors import Unsupported
from uopc.ir.builder import index_maps
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop, uop_dim
from uopc.ir.records import dataclass


@dataclass(frozen=True)
class LaunchGrid:
    """The names and sizes of the dimensions of a launch, and the index of each extent."""

    names: tuple[str, ...]
    sizes: Shape
    index: tuple[UOp, ...]


def grid(
    prefix: str,
    extents: Sequence[Dim],
    maxima: Sequence[int] | None = None,
    *,
    innermost_first: bool = False,
) -> LaunchGrid:
    """The extents (ints, or UOps of dtype index) over SPECIALs `prefix0`, `prefix1`, …

    The launch has at most one dimension per maximum, none longer than its maximum; without maxima,
    one dimension per extent. `innermost_first` puts the last extents on dimension 0, where
    neighbours run together. Unsupported if no sizes fit.
    """
    extents = list(map(uop_dim, extents))
    live = tuple([d for d in extents if d != 1])
    order = -1 if innermost_first else 1
    sizes = _sizes(live[::order], maxima)
    names = tuple([f"{prefix}{i}" for i in range(len(sizes))])
    special = [
        intern(Ops.SPECIAL, dtypes.index, (dim_uop(size),), name)
        for name, size in zip(names, sizes)
    ]
    parts = iter(index_maps.reshape_index(sizes[::order], live, tuple(special[::order])))
    index = [affine.const(0) if d == 1 else next(parts) for d in extents]
    return LaunchGrid(names, sizes, tuple(index))


def _sizes(extents: Shape, maxima: Sequence[int] | None) -> Shape:
    """The sizes of the dimensions of the launch: products of neighbouring extents, with as many
    factors as fit, and the longest on dimension 0."""
    if maxima is None or not extents:
        return extents
    for count in range(min(len(extents), len(maxima)), 0, -1):
        fitting: dict[Shape, list[int]] = {}  # sizes -> their greatest values
        for cuts in itertools.combinations(range(1, len(extents)), count - 1):
            ends = itertools.pairwise((0, *cuts, len(extents)))
            sizes = tuple([shapes.size(extents[i:j]) for i, j in ends])
            greatest = [bounds.max_dim(d) for d in sizes]
            if all([n <= most for n, most in zip(greatest, maxima)]):
                fitting[sizes] = greatest
        if fitting:
            return max(fitting, key=fitting.__getitem__)
    total = shapes.size(extents)
    factors = _factors(total, _divisors(extents), maxima) if isinstance(total, int) else None
    if factors is None:
        shown, most = shapes.show(extents), tuple(maxima)
        raise Unsupported(f"extents {shown} do not fit a launch of at most {most}")
    return factors


def _factors(total: int, divisors: list[int], maxima: Sequence[int]) -> Shape | None:
    """Divisors with the product `total`, the first as large as possible: an extent longer than
    every maximum takes several dimensions."""
    if total == 1 or not maxima:
        return () if total == 1 else None
    for d in divisors:
        if total // d > math.prod(maxima[1:]):
            break
        if d <= maxima[0] and total % d == 0:
            rest = _factors(total // d, divisors, maxima[1:])
            if rest is not None:
                return (d, *rest)
    return None


def _divisors(extents: Shape) -> list[int]:
    """The divisors of the product of the extents, largest first. The product itself may have too
    many digits to try them all."""
    found = {1}
    for n in extents:
        divisor = 2
        while n > 1:
            divisor = divisor if divisor * divisor <= n else n
            while n % divisor == 0:
                found |= {f * divisor for f in found}
                n //= divisor
            divisor += 1
    return sorted(found, reverse=True)
