"""Attention and turned pairs: as NumPy computes them in float64, with masks, shared heads, caps;
their derivatives; what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import UserError, dtypes

RANDOM = np.random.default_rng(0)


def turned(x, cos, sin, interleaved):
    """Each pair as a complex number, times one of the same angle."""
    n = cos.shape[-1]
    part = x[..., : 2 * n]
    pairs = (
        part.reshape(*x.shape[:-1], n, 2)
        if interleaved
        else part.reshape(*x.shape[:-1], 2, n).swapaxes(-1, -2)
    )
    made = (pairs[..., 0] + 1j * pairs[..., 1]) * (cos + 1j * sin)
    made = np.stack([made.real, made.imag], -1)
    made = made if interleaved else made.swapaxes(-1, -2)
    return np.concatenate([made.reshape(part.shape), x[..., 2 * n :]], -1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("angles", [1, 3, 4])
def test_rotary(angles, interleaved):
    x, at = RANDOM.standard_normal((2, 3, 5, 8)), RANDOM.standard_normal((2, 1, 5, angles))
    want = turned(x, np.cos(at), np.sin(at), interleaved)
    given = [uopc.constant(v) for v in (x, np.cos(at), np.sin(at))]
    got = uopc.compile(given[0].rotary(*given[1:], interleaved=interleaved))()
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-14)
    again = unp.rotary(unp.asarray(x), np.cos(at), np.sin(at), interleaved=interleaved)
    np.testing.assert_allclose(np.asarray(again), want, rtol=1e-14, atol=1e-14)


def test_rotary_of_narrow_floats_is_rounded_once():
    x, at = RANDOM.standard_normal(64).astype("f2"), RANDOM.standard_normal(32).astype("f4")
    got = uopc.compile(uopc.constant(x).rotary(np.cos(at), np.sin(at)))()
    want = turned(x.astype("f8"), np.cos(at).astype("f8"), np.sin(at), False)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, want, rtol=2**-11, atol=1e-6)


def attended(q, k, v, mask=None, scale=None, cap=None):
    """The definition, a head of its own for each query head."""
    shared = q.shape[-3] // k.shape[-3]
    k, v = np.repeat(k, shared, -3), np.repeat(v, shared, -3)
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if cap is None else np.tanh(scores / cap) * cap
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


CASES = {
    "plain": ((2, 4, 5, 8), (2, 4, 7, 8), None, {}),
    "shared": ((2, 6, 5, 8), (2, 2, 7, 8), None, {}),
    "one query": ((6, 1, 8), (2, 7, 8), (1, 7), {}),
    "causal": ((4, 7, 8), (1, 7, 8), "causal", {}),
    "rows": ((2, 4, 5, 8), (2, 2, 7, 8), (2, 1, 5, 7), {"scale": 0.3}),
    "capped": ((2, 4, 5, 8), (2, 2, 7, 8), (5, 7), {"cap": 1.5, "scale": 2.0}),
}


@pytest.mark.parametrize("case", CASES)
def test_attention(case):
    queries, keys, mask, more = CASES[case]
    q, k = RANDOM.standard_normal(queries), RANDOM.standard_normal(keys)
    v = RANDOM.standard_normal((*keys[:-1], 3))
    if mask == "causal":
        mask = np.tri(7, dtype=bool)
    elif mask is not None:
        mask = RANDOM.random(mask) < 0.6
        mask[..., 0] = True
    want = attended(q, k, v, mask, **more)
    given = [uopc.param(n, a.shape, dtypes.float64) for n, a in zip("qkv", (q, k, v))]
    program = uopc.compile(given[0].attention(*given[1:], mask, **more))
    np.testing.assert_allclose(program(q, k, v), want, rtol=1e-13, atol=1e-13)
    lazy = unp.attention(*map(unp.asarray, (q, k, v)), mask=mask, **more)
    np.testing.assert_allclose(np.asarray(lazy), want, rtol=1e-13, atol=1e-13)
    if mask is not None:
        added = np.where(mask, 0.0, -1e30)
        again = uopc.compile(given[0].attention(*given[1:], added, **more))(q, k, v)
        np.testing.assert_allclose(again, want, rtol=1e-13, atol=1e-13)


def test_attention_of_any_length():
    n = uopc.variable("n", 1, 40)
    q = uopc.param("q", (4, n, 8), dtypes.float64)
    k = uopc.param("k", (2, n, 8), dtypes.float64)
    at = uopc.iota(n)
    program = uopc.compile(q.attention(k, k, at <= at.reshape(n, 1)))
    for length in (1, 17, 40):
        a, b = RANDOM.standard_normal((4, length, 8)), RANDOM.standard_normal((2, length, 8))
        want = attended(a, b, b, np.tri(length, dtype=bool))
        np.testing.assert_allclose(program(a, b), want, rtol=1e-13, atol=1e-13)


def test_derivatives_of_attention():
    q, k, v = (RANDOM.standard_normal(s) for s in ((4, 3, 4), (2, 5, 4), (2, 5, 2)))
    mask, weight = np.tri(3, 5, 2, dtype=bool), RANDOM.standard_normal((4, 3, 2))
    at = RANDOM.standard_normal((3, 2))

    def loss(q, k, v):
        q = q.rotary(np.cos(at), np.sin(at))
        return (q.attention(k, v, mask, cap=2.0) * uopc.constant(weight)).sum()

    given = [uopc.param(n, a.shape, dtypes.float64) for n, a in zip("qkv", (q, k, v))]
    slopes = uopc.compile(list(uopc.grad(loss(*given), given)))(q, k, v)

    def number(q, k, v):
        return (attended(turned(q, np.cos(at), np.sin(at), False), k, v, mask, cap=2.0)
                * weight).sum()  # fmt: skip

    for n, slope in enumerate(slopes):
        way = RANDOM.standard_normal(slope.shape) * 1e-6
        pair = [number(*[a + s * way if i == n else a for i, a in enumerate((q, k, v))])
                for s in (1, -1)]  # fmt: skip
        np.testing.assert_allclose((slope * way).sum(), (pair[0] - pair[1]) / 2, rtol=1e-6)


def test_what_does_not_fit():
    x = uopc.param("x", (4, 5, 8))
    cases = {
        "cosines (5) turn pairs": lambda: x.rotary(np.ones(5), np.ones(5)),
        "do not fit (4, 5, 4) pairs": lambda: x.rotary(np.ones((2, 4, 5, 4)), np.ones(4)),
        "the keys need axes": lambda: x.attention(np.ones((5, 8)), np.ones((5, 8))),
        "must be a multiple": lambda: x.attention(np.ones((3, 5, 8)), np.ones((3, 5, 8))),
        "a mask (2, 4, 5, 5) for scores": lambda: x.attention(x, x, np.ones((2, 4, 5, 5), bool)),
        "interleaved must be": lambda: x.rotary(np.ones(4), np.ones(4), 1),
    }  # fmt: skip
    for message, attempt in cases.items():
        with pytest.raises((UserError, uopc.errors.UserTypeError)) as found:
            attempt()
        assert message in str(found.value)
