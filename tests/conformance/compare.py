"""One rule for every case, the corpus' own, decides if a value equals a recorded one.

Integers and bools are equal or not. Floats may differ by 4 units in the last place (1 for types
narrower than float32), a few subnormal steps, and a multiple of the spread: how far the element
moves when every float operation of the graph is off by about one rounding unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.conformance.corpus import Array
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType


@dataclass(frozen=True)
class Precision:
    """Of a float type: distance of 1 to the next number, a few subnormals, times the spread."""

    epsilon: float
    tiny: float
    factor: float


PRECISION: Final[dict[str, Precision]] = {
    "float64": Precision(2.0**-52, 5e-322, 16),
    "float32": Precision(2.0**-23, 1e-43, 16),
    "float16": Precision(2.0**-10, 2.4e-7, 4),
    "bfloat16": Precision(2.0**-7, 4e-40, 4),
    "fp8e4m3": Precision(2.0**-3, 2.0**-9, 1.5),
    "fp8e4m3fnuz": Precision(2.0**-3, 2.0**-10, 1.5),
    "fp8e5m2": Precision(2.0**-2, 2.0**-16, 1.5),
    "fp8e5m2fnuz": Precision(2.0**-2, 2.0**-17, 1.5),
}
WIDE_ULPS: Final = 4
NARROW_ULPS: Final = 1
MOST_AT_ONCE: Final = 1 << 24


def narrowest(names: set[str]) -> str | None:
    """The least precise of some float types."""
    return max(sorted(names), key=lambda n: PRECISION[n].epsilon, default=None)


def difference(
    got: Array, want: Array, mask: Array | None = None, spread: Array | None = None,
    narrow: str | None = None,
) -> str | None:  # fmt: skip
    """None when equal within the tolerance, else what differs.

    mask: the elements that are defined; narrow: the least precise float type of the graph.
    """
    if got.shape != want.shape:
        return f"shape {got.shape}, want {want.shape}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, want {want.dtype}"
    found = _Found()
    for rows in _pieces(got.shape):
        arrays = [None if a is None else np.asarray(a[rows]) for a in (got, want, mask, spread)]
        found.compare(*arrays, narrow)  # type: ignore[arg-type]
    return found.text()


def _pieces(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The places of the parts of a large array, so that comparing it takes little memory."""
    size = math.prod(shape)
    if size <= MOST_AT_ONCE:
        yield ()
        return
    step = max(1, MOST_AT_ONCE * shape[0] // size)
    for begin in range(0, shape[0], step):
        yield (slice(begin, begin + step),)


@dataclass
class _Found:
    """The numbers of elements that were compared and that differ, the most, and the first one."""

    count: int = 0
    bad: int = 0
    most: float | None = None
    first: str = ""

    def compare(
        self, got: Array, want: Array, mask: Array | None, spread: Array | None, narrow: str | None
    ) -> None:
        off = np.zeros(got.shape) if spread is None else spread
        if mask is not None:
            got, want, off = got[mask], want[mask], off[mask]
        dtype = dtypes.from_numpy(want.dtype)
        if not dtype.is_float:
            self._add(got, want, got != want)
            return
        with np.errstate(all="ignore"):
            g, w = got.astype(np.float64), want.astype(np.float64)
            allowed = _allowed(w, dtype, narrow, off)
            fine = (g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= allowed)
        self._add(g, w, ~fine)

    def _add(self, got: Array, want: Array, bad: Array) -> None:
        self.count += bad.size
        if not bad.any():
            return
        self.first = self.first or f"first {got[bad].flat[0]!s} want {want[bad].flat[0]!s}"
        self.bad += int(bad.sum())
        if got.dtype.kind == "f":
            with np.errstate(all="ignore"):
                most = float(np.max(np.abs(got - want)[bad]))
            self.most = most if self.most is None else float(np.maximum(self.most, most))

    def text(self) -> str | None:
        if not self.bad:
            return None
        amount = "" if self.most is None else f" by up to {self.most:.3g},"
        return f"{self.bad}/{self.count} differ,{amount} {self.first}"


def _allowed(want: Array, dtype: DType, narrow: str | None, spread: Array) -> Array:
    p = PRECISION[dtype.name]
    ulps = WIDE_ULPS if dtype.bits >= 32 else NARROW_ULPS
    factor = PRECISION[narrow or dtype.name].factor
    limit: Array = ulps * p.epsilon * np.abs(want) + p.tiny + factor * spread
    return limit
