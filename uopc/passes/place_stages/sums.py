"""The end of a sum's code: after the elementwise operations through which all its readers go.

    y = silu(conv(x)) + z, read by others  →  the sum of conv(x) ends in y, where it may be stored

The code also ends before a value in which sums meet: two sums in one loop nest share a tile badly.
The smallest of them is the host: its kernel computes the value, and the others may be stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from uopc.ir.core import shapes
from uopc.ir.core.bounds import most_elements
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.contraction import repeats_factors
from uopc.passes.place_stages.fusion_cost import ValueCost

# The most operations that the code of a sum is followed for.
MOST_STEPS = 64


class SumEnd(NamedTuple):
    """The end of a sum's code: whether the sum has a factor that other elements share, whether
    another sum is beside it in the code of its reader, the bytes of an element's terms, and whether
    the sum is the host of those that meet there."""

    shares_factors: bool
    beside: bool
    term_bytes: float
    is_host: bool = False


class _Followed:
    """The readers of each value of a graph, to follow sums to their ends."""

    def __init__(
        self, order: list[UOp], of: Mapping[UOp, ValueCost], fixed: Mapping[UOp, str]
    ) -> None:
        """`fixed`: values that are stored in any case."""
        self.fixed = fixed
        self.index = {u: i for i, u in enumerate(order)}
        self.readers: dict[UOp, list[UOp]] = {}
        for u in order:
            for s in dict.fromkeys(u.src):
                self.readers.setdefault(s, []).append(u)
        self.sums: dict[UOp, UOp] = {}  # values with a sum in the code of each element
        self.hosts: dict[UOp, UOp] = {}  # values before others meet them -> their sum
        for u in order:
            if u.op is Ops.REDUCE and of[u].reads:
                self.sums[u] = u
            elif u not in fixed and _is_elementwise(u) and (host := self._host(u)) is not None:
                self.sums[u] = host

    def _is_last(self, u: UOp) -> bool:
        """True if a value has several readers that are not one elementwise value in the end."""
        return len(self.readers[u]) > 1 and self._joined(u) is None

    def _host(self, u: UOp) -> UOp | None:
        """The smallest of the sums that meet in a value, whose kernel computes the value."""
        sums = sorted(self._meeting(u), key=self.index.__getitem__)
        return min(sums, key=_term_bytes, default=None)

    def _meeting(self, u: UOp) -> set[UOp]:
        same = [s for s in u.src if s in self.sums and _size(s) == _size(u)]
        return {self.sums[s] for s in same if not self._is_last(s)}

    def end(self, reduce: UOp) -> tuple[UOp, bool] | None:
        """The end of a sum's code, and whether another sum is beside it; None if that is stored in
        any case."""
        u = reduce
        while (v := self._joined(u)) is not None:
            if (host := self._host(v)) is not None and host is not reduce:
                return _without_views(u), True
            if host is reduce and len(self._meeting(v)) > 1:
                self.hosts[_without_views(u)] = reduce
            if v in self.fixed:
                return None
            u = v
        return (_without_views(u), False) if u in self.readers else None

    def _joined(self, u: UOp) -> UOp | None:
        """The next elementwise value through which all uses of a value go; None if there is none.
        """
        pending = set(self.readers.get(u, ()))
        for _ in range(MOST_STEPS):
            if not pending or not all(map(_is_elementwise, pending)):
                return None
            if len(pending) == 1:
                (v,) = pending
                return v if _size(v) == _size(u) else None
            v = min(pending, key=self.index.__getitem__)
            if v in self.fixed:
                return None
            pending.remove(v)
            pending.update(self.readers.get(v, ()))
        return None


def _without_views(u: UOp) -> UOp:
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u


def _is_elementwise(u: UOp) -> bool:
    return u.op.is_alu or u.op in (Ops.CAST, Ops.RESHAPE)


def _size(u: UOp) -> object:
    return shapes.size(shapes.shape(u))


def ends_of_sums(
    order: list[UOp], of: Mapping[UOp, ValueCost], fixed: Mapping[UOp, str]
) -> dict[UOp, SumEnd]:
    """The values in which the code of a sum ends. `fixed`: values that are stored in any case."""
    reduces = [u for u in order if u.op is Ops.REDUCE and u not in fixed and of[u].reads]
    if not reduces:
        return {}
    followed, found = _Followed(order, of, fixed), dict[UOp, SumEnd]()
    for r in reduces:
        if (end := followed.end(r)) is not None:
            u, beside = end
            shares, other, nbytes, _ = found.get(u, SumEnd(False, False, 0.0))
            shares = shares or repeats_factors(r.src[0])
            found[u] = SumEnd(shares, beside or other, nbytes + _term_bytes(r))
    for u, r in followed.hosts.items():
        found.setdefault(u, SumEnd(repeats_factors(r.src[0]), True, _term_bytes(r), is_host=True))
    return found


def _term_bytes(reduce: UOp) -> float:
    """The bytes of the terms of a sum; those of whole numbers are added up as bytes at best."""
    terms = most_elements(shapes.shape(reduce.src[0])) / max(1, most_elements(shapes.shape(reduce)))
    return terms * (reduce.dtype.itemsize if reduce.dtype.is_float else 1)
