"""Linear models of ai.onnx.ml, and operators that prepare their features."""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.onnx.node import Node, dims
from uopc.onnx.ops.labels import ML, count_of_labels, labelled
from uopc.onnx.ops.scores import both, transformed
from uopc.onnx.registry import op
from uopc.onnx.values import Labels, is_text


def numbers(n: Node, name: str) -> UOp | None:
    """Return a list of floats, from an attribute, as a node; None if it is missing or empty."""
    given = n.floats(name)
    return uopc.constant(given) if given.size else None


def features(n: Node) -> UOp:
    """Input 0 as floats of shape (n, features); a single example may lack the first axis."""
    x = n.x(0)
    x = x if x.dtype.is_float else x.cast(dtypes.float32)
    return x.unsqueeze(0) if len(x.shape) == 1 else x


def _product(n: Node, x: UOp, count: int) -> UOp:
    """The scores of `count` classes or targets."""
    weights, bias = numbers(n, "coefficients"), numbers(n, "intercepts")
    if weights is None or dims(weights)[0] != count * dims(x)[1]:
        raise UserError(
            f"coefficients must be {count * dims(x)[1]} for {count} scores of {dims(x)[1]} features"
        )
    made = x @ weights.reshape(count, -1).transpose().cast(x.dtype)
    return made if bias is None else made + bias.cast(x.dtype)


@op("LinearRegressor", domain=ML)
def linear_regressor(n: Node) -> UOp:
    made = _product(n, features(n), n.attr("targets", 1)).cast(dtypes.float32)
    return transformed(made, n.attr("post_transform", "NONE"))


@op("LinearClassifier", domain=ML)
def linear_classifier(n: Node) -> Any:
    """The label of the best score, and all scores; a single score is the second class's."""
    x, how = features(n), n.attr("post_transform", "NONE")
    count = len(n.attr("coefficients", [])) // max(dims(x)[1], 1)
    scores = _product(n, x, count).cast(dtypes.float32)
    if count > 1:
        return labelled(scores.argmax(1), n), transformed(scores, how)
    is_second = (scores[:, 0] > 0).cast(dtypes.int32)
    if count_of_labels(n) != 2:
        return is_second.cast(dtypes.int64), transformed(scores, how)
    return labelled(is_second, n), transformed(both(scores), how)


# ---------------------------------------------------------------- features
@op("Scaler", domain=ML)
def scaler(n: Node) -> UOp:
    """(x - offset) * scale; offset and scale are one number, or one per feature."""
    x = n.x(0).cast(dtypes.float32)
    offset, scale = numbers(n, "offset"), numbers(n, "scale")
    x = x if offset is None else x - offset
    return x if scale is None else x * scale


@op("Normalizer", domain=ML)
def normalizer(n: Node) -> UOp:
    """Divide each row by its greatest magnitude, its sum of magnitudes, or its Euclidean norm."""
    x, how = n.x(0).cast(dtypes.float32), n.attr("norm", "MAX")
    if how == "MAX":
        length = x.abs().max(-1, keepdims=True)
    elif how == "L1":
        length = x.abs().sum(-1, keepdims=True)
    elif how == "L2":
        length = (x * x).sum(-1, keepdims=True).sqrt()
    else:
        raise UserError(f"norm must be MAX, L1 or L2, got {how!r}")
    return x / uopc.where(length.eq(0), 1.0, length)


@op("Imputer", domain=ML)
def imputer(n: Node) -> UOp:
    """Replace one number, which may be NaN, by the imputed value of its feature."""
    x = n.x(0)
    kind = "float" if x.dtype.is_float else "int64"
    given = n.attr(f"imputed_value_{kind}s", None)
    if not given:
        raise UserError(f"the attribute imputed_value_{kind}s is missing")
    old = n.attr(f"replaced_value_{kind}", 0)
    new = uopc.constant(np.asarray(given)).cast(x.dtype)
    return uopc.where(x.ne(x) if old != old else x.eq(old), new, x)


@op("Binarizer", domain=ML)
def binarizer(n: Node) -> UOp:
    x = n.x(0)
    return (x > n.number("threshold", 0.0)).cast(x.dtype)


@op("FeatureVectorizer", domain=ML)
def feature_vectorizer(n: Node) -> UOp:
    """Concatenate the features of all inputs."""
    parts = [v.cast(dtypes.float32) for v in n.all()]
    wide = [p.unsqueeze(0) if len(p.shape) == 1 else p for p in parts]
    if not wide:
        raise UserError("FeatureVectorizer needs at least one input")
    first, *rest = wide
    return uopc.cat(first, *rest, axis=1)


@op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(n: Node) -> Any:
    """Select columns, also of strings, by their indices."""
    x, places = n.raw(0), n.x(1).reshape(-1)
    if is_text(x):
        if x.ndim > 1 and x.size != x.shape[-1]:
            raise Unsupported("ArrayFeatureExtractor takes strings in one row only")
        return Labels(places.reshape(1, -1), x.reshape(-1))
    made = n.x(0).take(places, len(dims(n.x(0))) - 1)
    return made.reshape(1, -1) if len(dims(n.x(0))) == 1 else made
