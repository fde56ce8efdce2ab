"""Layers of decoders: pairs that are turned by angles, and attention."""

from __future__ import annotations

from typing import Any

from uopc.numpy.array import promoted, same_kind, uop_of
from uopc.tensor import nn, table

__all__ = ["attention", "rotary"]


@table.routine
def rotary(x: Any, /, cos: Any, sin: Any, *, interleaved: bool = False) -> Any:
    (a, c, s), _ = promoted("rotary", x, cos, sin)
    return same_kind(nn.rotary(a, c, s, interleaved), (x, cos, sin))


@table.routine
def attention(
    x: Any, /, keys: Any, values: Any, *, mask: Any = None, scale: float | None = None,
    cap: float | None = None,
) -> Any:  # fmt: skip
    (q, k, v), _ = promoted("attention", x, keys, values)
    seen = None if mask is None else uop_of(mask, "attention")
    made = nn.attention(q, k, v, seen, scale, cap)
    return same_kind(made, (x, keys, values, mask))
