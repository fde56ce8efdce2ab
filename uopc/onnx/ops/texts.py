"""Strings. Programs have no strings: they are known to the importer, or are indices of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uopc.errors import UserError
from uopc.onnx.node import Node
from uopc.onnx.registry import op
from uopc.onnx.values import MOST_CHARACTERS, STRING, Array, dtype_of, is_text, texts


def text(n: Node, k: int) -> Array:
    """Input k, which must be known strings."""
    found = n.known(k)
    if found is None or not is_text(found):
        raise UserError(f"input {k} must be known strings")
    return found


def cast_texts(known: Array, number: int) -> Array:
    """Convert strings to numbers, or numbers to strings."""
    if number == STRING:
        return known if is_text(known) else texts([_shown(x) for x in known.flat], known.shape)
    dtype = dtype_of(number).numpy
    try:
        numbers = [float(s) for s in known.flat]
    except ValueError as error:
        raise UserError(f"Cast: {error}") from None
    return np.asarray(numbers, np.float64).astype(dtype).reshape(known.shape)


def _shown(x: Any) -> str:
    if isinstance(x, (int, np.integer, np.bool_)):
        return str(int(x))
    if not np.isfinite(x):
        return "NaN" if np.isnan(x) else "INF" if x > 0 else "-INF"
    return str(np.format_float_positional(x, trim="0"))


@op("StringConcat")
def string_concat(n: Node) -> Array:
    """Concatenate the strings of two tensors, element by element."""
    a, b = text(n, 0), text(n, 1)
    pairs = np.broadcast(a, b)
    if pairs.size * (a.itemsize + b.itemsize) > MOST_CHARACTERS * a.dtype.alignment:
        raise UserError(f"the {pairs.size} strings have too many characters")
    return np.asarray(np.char.add(a, b))


@op("StringSplit")
def string_split(n: Node) -> Any:
    """Split each string, padded by empty parts; the second output counts the parts."""
    given, most = text(n, 0), n.attr("maxsplit", -1)
    by = n.attr("delimiter", "") or None
    parts = [str(s).split(by, most) for s in given.flat]
    width = max([len(p) for p in parts], default=0)
    if width * len(parts) > MOST_CHARACTERS:
        raise UserError(f"{len(parts)} strings of up to {width} parts are too many")
    wide = [p + [""] * (width - len(p)) for p in parts]
    counts = np.asarray([len(p) for p in parts], np.int64).reshape(given.shape)
    return texts([s for row in wide for s in row], (*given.shape, width)), counts


@op("StringNormalizer")
def string_normalizer(n: Node) -> Array:
    """Remove the stop words, and change the case if asked. No words become an empty string."""
    given, stop = text(n, 0), list(n.attr("stopwords", []))
    if given.ndim not in (1, 2) or (given.ndim == 2 and len(given) != 1):
        raise UserError(f"expected the shape (C,) or (1, C), got {given.shape}")
    change = n.attr("case_change_action", "NONE")
    if change not in _CASES:
        raise UserError(f"case_change_action must be one of {', '.join(_CASES)}, got {change!r}")
    exact = bool(n.attr("is_case_sensitive", 0))
    gone = set(stop if exact else [s.lower() for s in stop])
    kept = [str(s) for s in given.flat if (str(s) if exact else str(s).lower()) not in gone]
    made = [_CASES[change](s) for s in kept] or [""]
    return texts(made, (1,) * (given.ndim - 1) + (len(made),))


_CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
