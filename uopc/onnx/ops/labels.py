"""Tables of labels: numbers and strings mapped to each other, categories, and maps by label."""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.onnx.node import Node, dims
from uopc.onnx.registry import op
from uopc.onnx.values import Array, Labels, Maps, is_text, texts

ML = "ai.onnx.ml"
_CLASSES = ("classlabels_int64s", "classlabels_ints", "classlabels_strings")
_KINDS = {"int64s": np.int64, "floats": np.float32}


def column(n: Node, name: str) -> Array | None:
    """Return a list of labels from an attribute of any of its types; None if there is none."""
    if f"{name}_tensor" in n.attributes:
        found: Array = n.attributes[f"{name}_tensor"]
        return found.reshape(-1)
    given = n.attributes.get(f"{name}_strings")
    if given:
        return texts(given, (len(given),))
    for kind, dtype in _KINDS.items():
        if f"{name}_{kind}" in n.attributes:
            return np.asarray(n.attributes[f"{name}_{kind}"], dtype)
    return None


def _needed(n: Node, name: str) -> Array:
    found = column(n, name)
    if found is None:
        raise UserError(f"the attribute {name}_* is missing")
    return found


def _are_strings(v: Any) -> bool:
    return is_text(v) or isinstance(v, Labels)


# ---------------------------------------------------------------- tables
def rows(v: Any, keys: Array) -> Any:
    """Return the position of each element in `keys`, len(keys) if missing; the last of equal keys.

    For known strings the result is an array, else a node.
    """
    if is_text(keys):
        at = {str(k): i for i, k in enumerate(keys)}
        if is_text(v):
            found = [at.get(str(s), len(keys)) for s in v.flat]
            return np.asarray(found, np.int64).reshape(v.shape)
        if isinstance(v, Labels):
            known = np.asarray([at.get(str(s), len(keys)) for s in v.texts], np.int64)
            return uopc.constant(known).take(v.index)
        raise UserError("expected strings, got numbers")
    if _are_strings(v):
        raise UserError("expected numbers, got strings")
    return _row_of_number(v, keys)


def _row_of_number(x: UOp, keys: Array) -> UOp:
    """Find rows by a search in the sorted keys; NaN equals NaN."""
    none, nan = len(keys), np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), bool)
    back = keys[::-1]
    order, first = np.unique(back[~nan[::-1]], return_index=True)
    places = np.flatnonzero(~nan[::-1])[first]
    if len(order):
        ordered = uopc.constant(order)
        x = x.cast(dtypes.from_numpy(keys.dtype))
        at = ordered.searchsorted(x).minimum(len(order) - 1).cast(dtypes.int64)
        row = uopc.constant((none - 1 - places).astype(np.int64)).take(at)
        row = uopc.where(ordered.take(at).eq(x), row, none)
    else:
        row = uopc.full(x.shape, none, dtypes.int64)
    if nan.any():
        row = uopc.where(x.ne(x), int(np.flatnonzero(nan)[-1]), row)
    return row


def chosen(row: Any, values: Array, default: Any) -> Any:
    """Return the value at each row; for row len(values), the default."""
    if is_text(values):
        table = texts([*values.tolist(), str(default)], (len(values) + 1,))
        return table[row] if isinstance(row, np.ndarray) else Labels(row, table)
    table = np.append(values, np.asarray(default).astype(values.dtype))
    return table[row] if isinstance(row, np.ndarray) else uopc.constant(table).take(row)


def labelled(row: UOp, n: Node) -> Any:
    """Return the class labels, from a classifier's attributes, at these positions."""
    for name in _CLASSES:
        given = n.attributes.get(name)
        if not given:
            continue
        if name == "classlabels_strings":
            return Labels(row, texts(given, (len(given),)))
        return uopc.constant(np.asarray(given, np.int64)).take(row)
    return row.cast(dtypes.int64)


def count_of_labels(n: Node) -> int:
    """The number of class labels."""
    return max([len(n.attributes.get(name) or []) for name in _CLASSES])


@op("LabelEncoder", since=2, domain=ML)
def label_encoder(n: Node) -> Any:
    """Map each element by a table of keys and values; other elements give a default."""
    keys, values = _needed(n, "keys"), _needed(n, "values")
    if len(keys) != len(values):
        raise UserError(f"expected as many keys as values, got {len(keys)} and {len(values)}")
    default = n.attr("default_tensor", None)
    if default is not None:
        default = default.reshape(-1)[0]
    elif is_text(values):
        default = n.attr("default_string", "_Unused")
    elif values.dtype.kind == "f":
        default = n.number("default_float", -0.0)
    else:
        default = n.attr("default_int64", -1)
    return chosen(rows(_raw(n), keys), values, default)


@op("LabelEncoder", domain=ML)
def label_encoder_1(n: Node) -> Any:
    """Version 1: map strings to their positions, or positions to strings."""
    return _between(n, n.attr("classes_strings", []), None)


@op("CategoryMapper", domain=ML)
def category_mapper(n: Node) -> Any:
    """Map strings to numbers, or numbers to strings."""
    return _between(n, n.attr("cats_strings", []), n.attr("cats_int64s", []))


def _between(n: Node, strings: list[str], numbers: list[int] | None) -> Any:
    numbers = list(range(len(strings))) if numbers is None else numbers
    if len(strings) != len(numbers):
        raise UserError(
            f"expected as many strings as numbers, got {len(strings)} and {len(numbers)}"
        )
    names, counts = texts(strings, (len(strings),)), np.asarray(numbers, np.int64)
    v = _raw(n)
    if _are_strings(v):
        return chosen(rows(v, names), counts, n.attr("default_int64", -1))
    return chosen(rows(v, counts), names, n.attr("default_string", "_Unused"))


def _raw(n: Node) -> Any:
    """Input 0: strings unchanged, other values as a node."""
    v = n.raw(0)
    return v if _are_strings(v) else n.x(0)


@op("OneHotEncoder", domain=ML)
def one_hot_encoder(n: Node) -> UOp:
    """1 at the category along a new last axis, else 0; unknown values give only 0s."""
    keys = _needed(n, "cats")
    row = rows(_raw(n), keys)
    row = uopc.constant(row) if isinstance(row, np.ndarray) else row
    places = uopc.arange(len(keys), dtype=row.dtype)
    return row.unsqueeze(-1).eq(places).cast(dtypes.float32)


# ---------------------------------------------------------------- maps
@op("ZipMap", domain=ML)
def zip_map(n: Node) -> Maps:
    """Make a map from labels to numbers for each row."""
    keys: list[Any] = n.attr("classlabels_strings", []) or n.attr("classlabels_int64s", [])
    x = n.x(0)
    if len(x.shape) not in (1, 2) or dims(x)[-1] != len(keys):
        raise UserError(f"{len(keys)} labels do not fit the shape {x.shape}")
    return Maps(x, list(keys))


@op("DictVectorizer", domain=ML)
def dict_vectorizer(n: Node) -> UOp:
    """The values of a map in the order of a vocabulary; 0 for missing keys."""
    found = n.raw(0)
    if not isinstance(found, Maps):
        raise Unsupported("DictVectorizer needs a map made by ZipMap")
    names: list[Any] = n.attr("string_vocabulary", []) or n.attr("int64_vocabulary", [])
    at = {k: i for i, k in enumerate(found.keys)}
    wide = found.values.pad([(0, 0)] * (len(found.values.shape) - 1) + [(0, 1)])
    return wide.take(np.asarray([at.get(k, len(at)) for k in names], np.int64), -1)
