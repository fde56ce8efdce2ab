"""Scores of classes: their transforms, and the label of the best score."""

from __future__ import annotations

import uopc
from uopc import UOp
from uopc.errors import UserError


def transformed(scores: UOp, how: str) -> UOp:
    """Apply the attribute `post_transform` to scores of shape (n, classes)."""
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return scores.sigmoid()
    if how == "SOFTMAX":
        return scores.softmax(-1)
    if how == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    if how == "PROBIT":
        return _probit(scores)
    raise UserError(f"unknown post_transform {how!r}")


def _softmax_zero(x: UOp) -> UOp:
    """A softmax that keeps scores of 0 at 0; if all scores are 0, all results are 0.5."""
    top = x.max(-1, keepdims=True)
    near = x.abs() <= 1e-7
    parts = uopc.where(near, x * (-top).exp(), (x - top).exp())
    total = parts.sum(-1, keepdims=True)
    return uopc.where(total.eq(0), 0.5, parts / uopc.where(total.eq(0), 1.0, total))


def _probit(x: UOp) -> UOp:
    """The quantile of the normal distribution, by ONNX Runtime's approximation.

    Method: Winitzki's closed form of the inverse of erf.
    """
    u = x * 2 - 1
    left = (1 - u) * (1 + u)
    log = uopc.where(left.eq(0), 1.0, left).log()
    half, square = log * 0.5 + 2 / (3.14159265358979 * 0.147), log * (-1 / 0.147)
    root = (square / ((half * half + square).sqrt() + half)).sqrt()
    found = uopc.where(u < 0, -root, root) * 1.41421356
    return uopc.where(left.eq(0), 0.0, found)


def both(score: UOp) -> UOp:
    """(n, 1) -> (n, 2): the scores of both classes, given the score of the second class."""
    return uopc.cat(-score, score, axis=1)
