"""Support vector machines."""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.onnx.node import Node, dims
from uopc.onnx.ops.labels import ML, count_of_labels, labelled
from uopc.onnx.ops.linear import features
from uopc.onnx.ops.scores import both, transformed
from uopc.onnx.registry import op
from uopc.onnx.values import Array


def _kernel(n: Node, x: UOp, vectors: Array) -> UOp:
    """(examples, vectors): the kernel of each pair."""
    kind = n.attr("kernel_type", "LINEAR")
    gamma, coef, degree = (list(n.attr("kernel_params", [])) + [0.0] * 3)[:3]
    v = uopc.constant(vectors)
    made: UOp = x @ v.transpose()
    if kind == "POLY":
        made = (made * gamma + coef) ** degree
    elif kind == "SIGMOID":
        made = (made * gamma + coef).tanh()
    elif kind == "RBF":  # |x - v|^2 by the product
        squares = (x * x).sum(1, keepdims=True) + (v * v).sum(1)
        made = ((squares - made * 2).maximum(0.0) * -gamma).exp()
    elif kind != "LINEAR":
        raise UserError(f"kernel_type must be LINEAR, POLY, RBF or SIGMOID, got {kind!r}")
    return made


def _vectors(n: Node, x: UOp, count: int) -> Array:
    given = n.floats("support_vectors")
    if given.size != count * dims(x)[1]:
        raise UserError(f"support_vectors must have {count * dims(x)[1]} numbers, got {given.size}")
    return given.reshape(count, -1)


@op("SVMRegressor", domain=ML)
def svm_regressor(n: Node) -> UOp:
    """Return the decision value; with `one_class`, the side of the boundary, 1 or -1."""
    x, count, rho = features(n).cast(dtypes.float32), n.attr("n_supports", 0), n.floats("rho")
    weights = n.floats("coefficients")
    if rho.size < 1 or weights.size != (count or dims(x)[1]):
        raise UserError(
            f"expected {count or dims(x)[1]} coefficients and a rho, got {weights.size} and"
            f" {rho.size}"
        )
    seen = _kernel(n, x, _vectors(n, x, count)) if count else x
    made = seen @ uopc.constant(weights).reshape(-1, 1) + float(rho[0])
    if n.attr("one_class", 0):
        return uopc.where(made > 0, 1.0, -1.0)
    return transformed(made, n.attr("post_transform", "NONE"))


@op("SVMClassifier", domain=ML)
def svm_classifier(n: Node) -> Any:
    """The label with the most votes of pairs of classes, and their scores, or probabilities."""
    x, count = features(n).cast(dtypes.float32), count_of_labels(n)
    per_class, rho = list(n.attr("vectors_per_class", [])), n.floats("rho")
    how = n.attr("post_transform", "NONE")
    if not per_class:
        return _liblinear(n, x, count, rho, how)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    if len(per_class) != count or min(per_class) < 0 or rho.size != len(pairs) or not pairs:
        raise UserError(
            f"{count} classes do not fit {len(per_class)} vectors_per_class and {rho.size} rho"
        )
    weights = _of_pairs(n.floats("coefficients"), per_class, pairs)
    seen = _kernel(n, x, _vectors(n, x, sum(per_class)))
    scores = seen @ uopc.constant(weights) + uopc.constant(rho)
    is_first = (scores > 0).cast(dtypes.float32)
    for_first, for_second = (np.zeros((len(pairs), count), np.float32) for _ in range(2))
    for k, (i, j) in enumerate(pairs):
        for_first[k, i], for_second[k, j] = 1, 1
    votes = is_first @ uopc.constant(for_first) + (1 - is_first) @ uopc.constant(for_second)
    best = labelled(votes.argmax(1), n)
    a, b = n.floats("prob_a"), n.floats("prob_b")
    if a.size:
        if a.size != len(pairs) or b.size != len(pairs):
            raise UserError(f"expected {len(pairs)} prob_a and prob_b, got {a.size} and {b.size}")
        shares = 1 - (scores * uopc.constant(a) + uopc.constant(b)).sigmoid()
        return best, transformed(_coupled(shares, pairs, count), how)
    return best, transformed(both(scores) if count == 2 else scores, how)


def _of_pairs(given: Array, per_class: list[int], pairs: list[tuple[int, int]]) -> Array:
    """(vectors, pairs): the coefficient of each support vector in the decision of each pair."""
    total, classes = sum(per_class), len(per_class)
    if given.size != (classes - 1) * total:
        raise UserError(f"expected {(classes - 1) * total} coefficients, got {given.size}")
    rows = given.reshape(classes - 1, total)
    ends = np.cumsum([0, *per_class])
    made = np.zeros((total, len(pairs)), np.float32)
    for k, (i, j) in enumerate(pairs):
        mine, other = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        made[mine, k], made[other, k] = rows[j - 1, mine], rows[i, other]
    return made


def _liblinear(n: Node, x: UOp, count: int, rho: Array, how: str) -> Any:
    """Score each class by a linear function: the model has no support vectors."""
    weights = n.floats("coefficients")
    if count < 1 or rho.size < 1 or weights.size != count * dims(x)[1]:
        raise UserError(
            f"{weights.size} coefficients and {rho.size} rho do not fit {count} classes"
        )
    scores = x @ uopc.constant(weights.reshape(count, -1).T.copy()) + float(rho[0])
    return labelled(scores.argmax(1), n), transformed(scores, how)


# ---------------------------------------------------------------- probabilities
def _coupled(shares: UOp, pairs: list[tuple[int, int]], count: int) -> UOp:
    """(n, pairs) -> (n, classes): the class probabilities that fit the pairs' probabilities best.

    Method: Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise
    coupling" (2004), algorithm 2. Each example stops by itself.
    """
    near = shares.clip(1e-7, 1 - 1e-7)
    first = np.full((count, count), len(pairs), np.int64)
    for k, (i, j) in enumerate(pairs):
        first[i, j] = k
    wide = near.pad([(0, 0), (0, 1)])
    upper = wide.take(first.reshape(-1), 1).reshape(-1, count, count)
    above = np.triu(np.ones((count, count), np.float32), 1)
    r = upper + (1 - upper.transpose(1, 2)) * uopc.constant(above.T.copy())
    back = r.transpose(1, 2)  # back[t, j] = r[j, t]
    own = (back * back).sum(2, keepdims=True) * uopc.eye(count)
    q = (own - back * r).contiguous()
    start = uopc.full((dims(shares)[0], count), 1 / count, dtypes.float32)
    limit, most = 0.005 / count, max(100, count)

    def error(p: UOp) -> UOp:
        qp = (q * p.unsqueeze(1)).sum(2)
        apart: UOp = (qp - (p * qp).sum(1, keepdims=True)).abs().max(1)
        return apart

    def goes(state: Any) -> Any:
        step, p = state
        return (step < most) & (error(p) >= limit).any()

    def after(state: Any) -> Any:
        step, p = state
        return step + 1, uopc.where((error(p) >= limit).unsqueeze(1), _round(p, q, count), p)

    _, made = uopc.while_loop(goes, after, (uopc.constant(0, dtypes.int32), start))
    found: UOp = made
    return found


def _round(p: UOp, q: UOp, count: int) -> UOp:
    """Update the probability of each class in turn, from the updates of the classes before."""
    qp = (q * p.unsqueeze(1)).sum(2)
    total = (p * qp).sum(1)
    for t in range(count):
        diag = q[:, t, t]
        diff = (total - qp[:, t]) / diag
        scale = (1 + diff).reciprocal()
        total = (total + diff * (diff * diag + 2 * qp[:, t])) * scale * scale
        here = uopc.eye(count)[t]
        p = (p + diff.unsqueeze(1) * here) * scale.unsqueeze(1)
        qp = (qp + diff.unsqueeze(1) * q[:, t]) * scale.unsqueeze(1)
    return p
