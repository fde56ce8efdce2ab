"""Softmax, normalisation and attention, built of movement ops, elementwise ops and reduces."""

from __future__ import annotations

import itertools
import math
from typing import Any

from uopc.errors import UserError
from uopc.ir.builder import alu, checks, leaves, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, show
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp
from uopc.tensor import elementwise
from uopc.tensor.elementwise import rounded_once
from uopc.tensor.float_functions import isfinite
from uopc.tensor.matrices import products
from uopc.tensor.reductions import average


def _shifted(a: UOp, axis: Any) -> UOp:
    """Subtract the maximum, so that the exponential cannot overflow."""
    most = elementwise.detach(movement.reduce(a, "max", axis, keepdims=True))
    return alu.binary(Ops.SUB, a, most)


@rounded_once
def softmax(a: UOp, axis: Any = -1) -> UOp:
    """e^a over its sum along the axis (or axes).

    The result has the shape of `a`; integers are made floats first.

    Examples:
        >>> x = uopc.constant([[0.0, 0.0], [0.0, np.log(3.0)]])
        >>> uopc.compile(x.softmax())()
        array([[0.5 , 0.5 ],
               [0.25, 0.75]])
    """
    axis = movement.normal_axes(axis, len(shapes.shape(a)), "softmax")
    weight = alu.alu(_shifted(a, axis), Ops.EXP)
    total = movement.reduce(weight, "add", axis, keepdims=True)
    return alu.alu(weight, Ops.MUL, alu.alu(total, Ops.RECIPROCAL))


@rounded_once
def log_softmax(a: UOp, axis: Any = -1) -> UOp:
    """The logarithm of softmax, accurate where softmax is near 0.

    The result has the shape of `a`; integers are made floats first.

    Examples:
        >>> x = uopc.constant([0.0, 1000.0])
        >>> uopc.compile(x.log_softmax())()
        array([-1000.,     0.])
    """
    axis = movement.normal_axes(axis, len(shapes.shape(a)), "log_softmax")
    x = _shifted(a, axis)
    total = movement.reduce(alu.alu(x, Ops.EXP), "add", axis, keepdims=True)
    return alu.binary(Ops.SUB, x, alu.alu(total, Ops.LOG))


def logsumexp(a: UOp, axis: Any = None, keepdims: bool = False) -> UOp:
    """log of the sum of e^a over the axes, without overflow in between."""
    axes = movement.normal_axes(axis, len(shapes.shape(a)), "logsumexp")
    return _logsumexp(a, axes, checks.flag("logsumexp", "keepdims", keepdims))


@rounded_once
def _logsumexp(a: UOp, axes: tuple[int, ...], keepdims: bool) -> UOp:
    most = elementwise.detach(movement.reduce(a, "max", axes, keepdims=True))
    base = alu.where(isfinite(most), most, leaves.const(a.dtype, 0))
    weight = alu.alu(alu.binary(Ops.SUB, a, base), Ops.EXP)
    total = alu.alu(movement.reduce(weight, "add", axes, keepdims=True), Ops.LOG)
    whole = alu.binary(Ops.ADD, total, base)
    if keepdims:
        return whole
    kept = [d for i, d in enumerate(shapes.shape(a)) if i not in axes]
    return movement.reshape(whole, tuple(kept))


def layer_norm(a: UOp, weight: Operand = None, bias: Operand = None, eps: float = 1e-5) -> UOp:
    """(a - mean) / sqrt(variance + eps) over the last axis, times weight, plus bias.

    weight and bias broadcast to the shape of `a`; UserError where they do not, or for a scalar. (J.
    L. Ba, J. R. Kiros and G. E. Hinton, 2016.)

    Examples:
        >>> x = uopc.constant([[1.0, 3.0], [5.0, 5.0]])
        >>> uopc.compile(x.layer_norm(bias=np.array([10.0, 20.0])))().round(3)
        array([[ 9., 21.],
               [10., 20.]])
    """
    x, given, last = _wide_with("layer_norm", a, weight, bias)
    away = alu.binary(Ops.SUB, x, average(x, last, keepdims=True))
    return cast(_scaled(away, last, weight, bias, eps), given)


def rms_norm(a: UOp, weight: Operand = None, eps: float = 1e-6) -> UOp:
    """a / sqrt(mean of a² + eps) over the last axis, times weight.

    weight broadcasts to the shape of `a`; UserError where it does not, or for a scalar. (B. Zhang
    and R. Sennrich, 2019.)

    Examples:
        >>> x = uopc.constant([3.0, 4.0])
        >>> uopc.compile(x.rms_norm())().round(4)
        array([0.8485, 1.1314])
    """
    x, given, last = _wide_with("rms_norm", a, weight)
    return cast(_scaled(x, last, weight, None, eps), given)


def _wide_with(who: str, a: UOp, *others: Operand) -> tuple[UOp, DType, tuple[int, ...]]:
    """Return `a` in the dtype to compute in, the dtype of the result, and the last axis."""
    rank = len(shapes.shape(a))
    if not rank:
        raise UserError(f"{who}: a scalar has no last axis")
    given = elementwise.as_float(a).dtype
    for o in others:
        if o is not None:
            given = dtypes.promote(given, operands.as_uop(o, given).dtype)
    return cast(a, dtypes.accumulator(given)), given, (rank - 1,)


def _scaled(x: UOp, last: tuple[int, ...], weight: Operand, bias: Operand, eps: float) -> UOp:
    """Divide x by its root mean square, multiply by weight, and add bias."""
    square = average(alu.alu(x, Ops.MUL, x), last, keepdims=True)
    root = alu.alu(alu.binary(Ops.ADD, square, eps), Ops.SQRT)
    out = alu.alu(x, Ops.MUL, alu.alu(root, Ops.RECIPROCAL))
    for op, other in ((Ops.MUL, weight), (Ops.ADD, bias)):
        if other is not None:
            out = alu.alu(out, op, cast(operands.as_uop(other, x.dtype), x.dtype))
    if shapes.shape(out) != shapes.shape(x):
        raise UserError(
            f"weight and bias must broadcast to the shape {show(shapes.shape(x))} of x, the result"
            f" has {show(shapes.shape(out))}"
        )
    return out


# ---------------------------------------------------------------- attention
def rotary(a: UOp, cos: Operand, sin: Operand, interleaved: bool = False) -> UOp:
    """Turn pairs of numbers along the last axis by angles."""
    interleaved = checks.flag("rotary", "interleaved", interleaved)
    x = cast(a, dtypes.accumulator(elementwise.as_float(a).dtype))
    c, s = [cast(operands.as_uop(t, x.dtype), x.dtype) for t in (cos, sin)]
    dims, angles = shapes.shape(x), (shapes.shape(c) or (0,))[-1]
    if not dims or type(angles) is not int or not 0 < 2 * angles <= bounds.max_dim(dims[-1]):
        raise UserError(
            f"rotary: cosines {show(shapes.shape(c))} turn pairs along the last axis, which must"
            f" have so many: got {show(dims)}"
        )
    *lead, size = dims
    turned, rest = _parts(x, (0, 2 * angles, size))
    if interleaved:
        pairs = movement.reshape(turned, (*lead, angles, 2))
        p, q = [movement.reshape(v, (*lead, angles)) for v in _parts(pairs, (0, 1, 2))]
    else:
        p, q = _parts(turned, (0, angles, 2 * angles))
    first, second = p * c - q * s, q * c + p * s
    if shapes.shape(first) != shapes.shape(p):
        raise UserError(
            f"rotary: cosines {show(shapes.shape(c))} and sines {show(shapes.shape(s))} do not fit"
            f" {show(shapes.shape(p))} pairs"
        )
    if interleaved:
        turned = movement.reshape(movement.stack(first, second, axis=-1), shapes.shape(turned))
    else:
        turned = movement.cat(first, second, axis=-1)
    made = turned if size == 2 * angles else movement.cat(turned, rest, axis=-1)
    return cast(made, elementwise.as_float(a).dtype)


def _parts(x: UOp, ends: tuple[Dim, ...]) -> list[UOp]:
    """The parts of the last axis between each end and the next one."""
    kept: list[tuple[Dim, Dim]] = [(0, d) for d in shapes.shape(x)[:-1]]
    return [movement.shrink(x, [*kept, pair]) for pair in itertools.pairwise(ends)]


def attention(
    a: UOp, keys: Operand, values: Operand, mask: Operand = None, scale: Operand = None,
    cap: float | None = None,
) -> UOp:  # fmt: skip
    """The mean of the values for each query, weighted by how well its key fits."""
    given = elementwise.as_float(a).dtype
    k, v = operands.as_uop(keys, given), operands.as_uop(values, given)
    given = dtypes.promote(given, dtypes.promote(k.dtype, v.dtype))
    q, k, v = [cast(u, dtypes.accumulator(given)) for u in (a, k, v)]
    *lead, heads, rows, size = _with_axes("the queries", q)
    groups, length, _ = _with_axes("the keys", k)[-3:]
    if type(heads) is not int or type(groups) is not int or heads % groups:
        raise UserError(
            f"attention: the heads of queries {show(shapes.shape(a))} must be a multiple of those"
            f" of keys {show(shapes.shape(k))}"
        )
    # Heads that share keys are rows of one product.
    shared = (*lead, groups, heads // groups * rows)
    q = movement.reshape(q * (size**-0.5 if scale is None else scale), (*shared, size))
    last = len(shapes.shape(k)) - 1
    scores = products.matmul(q, movement.permute(k, (*range(last - 1), last, last - 1)))
    scores = movement.reshape(scores, (*lead, heads, rows, length))
    if cap is not None:
        scores = alu.alu(scores * (1 / cap), Ops.TANH) * cap
    if mask is not None:
        scores = _masked(scores, operands.as_uop(mask))
    weights = movement.reshape(softmax(scores), (*shared, length))
    made = products.matmul(weights, v)
    return cast(movement.reshape(made, (*lead, heads, rows, shapes.shape(v)[-1])), given)


def _with_axes(who: str, u: UOp) -> tuple[Dim, ...]:
    if len(shapes.shape(u)) < 3:
        wanted = "heads, rows and the numbers of a row"
        raise UserError(f"attention: {who} need axes for {wanted}, got {show(shapes.shape(u))}")
    return shapes.shape(u)


def _masked(scores: UOp, mask: UOp) -> UOp:
    """The scores that the mask leaves, or to which a mask of floats is added."""
    wanted = shapes.shape(scores)
    if shapes.broadcast([shapes.shape(mask), wanted], "attention") != wanted:
        raise UserError(f"attention: a mask {show(shapes.shape(mask))} for scores {show(wanted)}")
    if mask.dtype is dtypes.bool_:
        return alu.where(mask, scores, leaves.const(scores.dtype, -math.inf))
    return scores + cast(mask, scores.dtype)
