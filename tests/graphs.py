"""Random tensor graphs for property tests, whose numbers every order of evaluation gives exactly.

Inputs are small integers in any dtype, and what could grow is clipped, so sums and products are
exact in float32 whatever the order: results are compared for equality, not within a tolerance.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

import uopc
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops

SIZES = (0, 1, 2, 3, 5, 7, 8, 16, 17)
MOST_ELEMENTS = 700
LIMIT = 64
DTYPES = ("float32", "float32", "int32", "float64", "int16")


class Builder:
    """A pool of values that grows by one op at a time."""

    def __init__(self, draw):
        self.draw = draw
        self.inputs = {}
        dims = draw(shapes())
        self.values = [self.param(dims, draw(st.sampled_from(DTYPES)))]

    def param(self, dims, dtype="float32", low=-3, high=4):
        """A new input of small integers."""
        name = f"p{len(self.inputs)}"
        seed = self.draw(st.integers(0, 99))
        array = np.random.default_rng(seed).integers(low, high, dims).astype(dtype)
        self.inputs[name] = array
        return uopc.param(name, dims, dtypes.from_numpy(array.dtype))

    def pick(self):
        """A value made so far, the latest more often."""
        return self.values[self.draw(st.integers(0, len(self.values) - 1)) - 1]

    def grow(self):
        """One more value; steps that do not fit the picked value change nothing."""
        step = self.draw(st.sampled_from(STEPS))
        made = step(self, self.pick())
        if made is not None and math.prod(made.shape) <= MOST_ELEMENTS and len(made.shape) <= 4:
            self.values.append(made)


def clip(u):
    return u.maximum(-LIMIT).minimum(LIMIT)


@st.composite
def shapes(draw):
    dims = draw(st.lists(st.sampled_from(SIZES), max_size=3))
    while math.prod(d for d in dims if d) > MOST_ELEMENTS:
        dims = dims[1:]
    return tuple(dims)


# ---------------------------------------------------------------- steps
def unary(b, u):
    if u.dtype is dtypes.bool_:
        return ~u
    names = ["__neg__", "__abs__", "sign", "relu"]
    return getattr(u, b.draw(st.sampled_from(names)))()


def binary(b, u):
    others = [v for v in b.values if v.dtype is u.dtype and fits(u.shape, v.shape)]
    v = (
        b.draw(st.sampled_from(others))
        if b.draw(st.booleans())
        else b.param(u.shape, u.dtype.numpy)
    )
    if u.dtype is dtypes.bool_:
        return b.draw(st.sampled_from([u & v, u | v, u ^ v, u.ne(v)]))
    makers = [
        lambda: clip(u + v), lambda: clip(u - v), lambda: clip(u * v),
        lambda: u.maximum(v), lambda: u.minimum(v), lambda: u < v, lambda: u.eq(v), lambda: u <= 1,
        lambda: clip(u + 2) , lambda: u * -1,
    ]  # fmt: skip
    if u.dtype.is_int:
        makers += [lambda: u // v, lambda: u % v, lambda: u // 3, lambda: u & v, lambda: u % 4]
    return b.draw(st.sampled_from(makers))()


def fits(a, b):
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def where(b, u):
    v = b.param(u.shape, u.dtype.numpy)
    condition = b.draw(st.sampled_from([b.param(u.shape, "bool", 0, 2), u < v, v.ne(u)]))
    return uopc.where(condition, u, v)


def reshape(b, u):
    left = math.prod(u.shape)
    if left == 0:
        return u.reshape(*reversed(u.shape))
    dims = []
    while left > 1 and len(dims) < 3:
        d = b.draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        dims.append(d)
        left //= d
    return u.reshape(*dims, left)


def permute(b, u):
    return u.permute(*b.draw(st.permutations(range(len(u.shape)))))


def flip(b, u):
    axes = [i for i in range(len(u.shape)) if b.draw(st.booleans())]
    return u.flip(*axes) if axes else None


def expand(b, u):
    dims = tuple([b.draw(st.sampled_from((2, 3, 8))) if d == 1 else d for d in u.shape])
    return u.reshape(1, *u.shape).expand(b.draw(st.sampled_from((1, 2, 5))), *u.shape) if (
        dims == u.shape
    ) else u.expand(*dims)  # fmt: skip


def pad(b, u):
    if not u.shape:
        return None
    widths = tuple([(b.draw(st.integers(0, 3)), b.draw(st.integers(0, 3))) for _ in u.shape])
    return u.pad(widths)


def part(b, u):
    if not u.shape:
        return None
    keys = []
    for d in u.shape:
        step = b.draw(st.sampled_from((1, 1, 2, -1, -3)))
        first, last = sorted((b.draw(st.integers(0, d)), b.draw(st.integers(0, d))))
        keys.append(slice(first, last, step) if step > 0 else slice(None, None, step))
    return u[tuple(keys)]


def reduce(b, u):
    if not u.shape or u.dtype is dtypes.bool_:
        return None
    axes = b.draw(st.sets(st.sampled_from(range(len(u.shape))), min_size=1))
    op = b.draw(st.sampled_from(("sum", "max", "min")))
    if op != "sum" and math.prod(u.shape) == 0:
        return None
    made = getattr(u, op)(axis=tuple(sorted(axes)), keepdims=b.draw(st.booleans()))
    return clip(made) if op == "sum" else made


def matmul(b, u):
    if len(u.shape) != 2 or u.dtype is dtypes.bool_:
        return None
    return clip(u @ b.param((u.shape[1], b.draw(st.sampled_from(SIZES))), u.dtype.numpy))


def cat(b, u):
    if not u.shape:
        return None
    axis = b.draw(st.integers(0, len(u.shape) - 1))
    dims = (*u.shape[:axis], b.draw(st.sampled_from(SIZES)), *u.shape[axis + 1 :])
    other = b.draw(
        st.sampled_from([u, b.param(dims, u.dtype.numpy), u * 2 if u.dtype.is_float else u])
    )
    return u.cat(other, axis=axis)


def stack(b, u):
    return u.stack(b.param(u.shape, u.dtype.numpy), axis=b.draw(st.integers(0, len(u.shape))))


def take(b, u):
    if not u.shape:
        return None
    axis = b.draw(st.integers(0, len(u.shape) - 1))
    if u.shape[axis] == 0:
        return None
    index = b.param((b.draw(st.sampled_from(SIZES)),), "int32", -u.shape[axis], u.shape[axis])
    return u.take(index, axis)


def cast(b, u):
    return u.cast(
        b.draw(st.sampled_from((dtypes.float32, dtypes.int32, dtypes.float64, dtypes.int8)))
    )


def contiguous(b, u):
    return u.contiguous()


STEPS = [
    unary, binary, binary, binary, where, reshape, permute, flip, expand, pad, part, reduce, reduce,
    matmul, cat, stack, take, cast, contiguous,
]  # fmt: skip


@st.composite
def graphs(draw, least_steps=1, most_steps=7):
    """(outputs, arrays by name): one to three of the values made, the last one among them."""
    b = Builder(draw)
    for _ in range(draw(st.integers(least_steps, most_steps))):
        b.grow()
    extra = draw(st.lists(st.sampled_from(b.values), max_size=2))
    outputs = tuple(dict.fromkeys([b.values[-1], *extra]))
    used = {u.arg.name for v in outputs for u in v.toposort() if u.op is Ops.PARAM}
    return outputs, {name: a for name, a in b.inputs.items() if name in used}
