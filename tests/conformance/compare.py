"""What counts as equal to a recorded value: one rule for every case (the corpus' own).

Integers and bools are equal or not. Floats may differ by 4 units in the last place (1 for types
narrower than float32), a few subnormal steps, and a multiple of the spread: how far the element
moves when every float operation of the graph is off by about one rounding unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.conformance.corpus import Array
from uopc.ir import dtypes
from uopc.ir.dtypes import DType


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
    off = np.zeros(got.shape) if spread is None else spread
    if mask is not None:
        got, want, off = got[mask], want[mask], off[mask]
    dtype = dtypes.from_numpy(want.dtype)
    if not dtype.is_float:
        return _listed(got, want, got != want)
    with np.errstate(all="ignore"):
        g, w = got.astype(np.float64), want.astype(np.float64)
        allowed = _allowed(w, dtype, narrow, off)
        fine = (g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= allowed)
    return _listed(g, w, ~fine)


def _allowed(want: Array, dtype: DType, narrow: str | None, spread: Array) -> Array:
    p = PRECISION[dtype.name]
    ulps = WIDE_ULPS if dtype.bits >= 32 else NARROW_ULPS
    factor = PRECISION[narrow or dtype.name].factor
    limit: Array = ulps * p.epsilon * np.abs(want) + p.tiny + factor * spread
    return limit


def _listed(got: Array, want: Array, bad: Array) -> str | None:
    if not bad.any():
        return None
    count = int(bad.sum())
    first = f"first {got[bad].flat[0]!s} want {want[bad].flat[0]!s}"
    if got.dtype.kind != "f":
        return f"{count}/{bad.size} differ, {first}"
    with np.errstate(all="ignore"):
        most = np.max(np.abs(got - want)[bad])
    return f"{count}/{bad.size} differ, by up to {most:.3g}, {first}"
