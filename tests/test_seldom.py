"""Arms of a WHERE that few elements need: under a branch, and only what is needed inside of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import uopc
from uopc.driver import lower_only
from uopc.ir.core import analysis, dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter as interpret

HUGE = np.array([1e22, -5e200, 6.339428458990708e204, 1.7e308])


def angles(n, every):
    """Small angles, with a huge one in every so many."""
    rng = np.random.default_rng(n)
    x = rng.uniform(-100, 100, n)
    x[::every] = rng.choice(HUGE, x[::every].size)
    return x


def blocks(kernel):
    """The nodes of a linear kernel by how many branches they stand in."""
    depth, found = 0, {0: [], 1: []}
    for u in kernel.src:
        if u.op is Ops.END and is_branch(u.src[0]):
            depth -= 1
        found[depth].append(u)
        if u.op is Ops.RANGE and is_branch(u):
            depth += 1
    return found


def is_branch(r):
    return r.src[0].op is not Ops.CONST and analysis.bounds(r.src[0]) == (0, 1)


@pytest.mark.parametrize("function", ["sin", "cos", "tan"])
def test_the_long_way_is_inside(function):
    x = uopc.param("x", (64,), dtypes.float64)
    (kernel,) = lower_only(getattr(x, function)()).kernels
    found = blocks(kernel)
    # All integer products are of the long reduction.
    for u in found[0]:
        assert u.op is not Ops.MUL or u.dtype.kind != "uint"
    assert sum(u.op is Ops.MUL and u.dtype.kind == "uint" for u in found[1]) > 8
    outside, inside = [[u for u in found[i] if u.op.is_alu] for i in (0, 1)]
    assert len(inside) > 2 * len(outside)


def test_a_branch_has_no_way_back():
    x = uopc.param("x", (64,), dtypes.float64)
    program = uopc.compile(x.sin(), threads=1)
    (source,) = [k.source for k in program.kernels]
    order = {name: i for i, name in enumerate(re.findall(r"^(\w+):", source, re.M))}
    back, here = [], "entry"
    for line in source.splitlines():
        label = re.match(r"(\w+):", line)
        here = label[1] if label else here
        back += [t for t in re.findall(r"label %(\w+)", line) if order[t] <= order[here]]
    assert len(back) == len([u for u in lower_only(x.sin()).kernels[0].src
                             if u.op is Ops.RANGE and not is_branch(u)])  # fmt: skip


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("every", [1, 7, 64, 10**9])
def test_mixed_vectors(every, optimize):
    for n in (1, 7, 8, 61, 256):
        a = angles(n, every)
        x = uopc.param("x", (n,), dtypes.float64)
        got = uopc.compile((x.sin(), x.cos(), x.tan()), optimize=optimize, verify=True)(a)
        for out, wanted in zip(got, (np.sin(a), np.cos(a), np.tan(a)), strict=True):
            np.testing.assert_array_max_ulp(out, wanted, 4)


def test_in_a_reduce_and_beside_other_branches():
    """Several branches in one loop, on the same operand and on each other's results."""
    a = angles(15 * 33, 7).reshape(15, 33)
    b = 10 ** np.random.default_rng(1).uniform(-200, 1, a.shape)
    x, y = uopc.param("x", a.shape, dtypes.float64), uopc.param("y", a.shape, dtypes.float64)
    for optimize in (True, False):
        f = uopc.compile(
            ((x.sin() + x % y + (x % 3.0).tan()).sum(axis=1), (x.sin() * 1e30).cos()),
            optimize=optimize, verify=True,
        )  # fmt: skip
        total, nested = f(a, b)
        wanted = (np.sin(a) + np.mod(a, b) + np.tan(np.mod(a, 3.0))).sum(axis=1)
        np.testing.assert_allclose(total, wanted, rtol=1e-11)
        # The argument is huge: only what was computed of it is compared.
        np.testing.assert_allclose(nested, np.cos(uopc.compile(x.sin() * 1e30)(a)), rtol=1e-14)


@pytest.mark.parametrize("optimize", [True, False])
def test_every_level_means_the_same(optimize):
    a = angles(45, 7)
    a[3:5] = np.inf, np.nan
    x = uopc.param("x", (45,), dtypes.float64)
    wanted = uopc.compile(x.sin(), optimize=optimize)(a)
    lowered = lower_only(x.sin(), optimize=optimize)
    for run in lowered.runs:
        if run.name in ("decompose", "linearize"):
            for kernel in run.after:
                assert uopc.parse(str(kernel)) is kernel
                out = np.zeros(45)
                interpret.run_kernel(kernel, [out, a])
                np.testing.assert_array_equal(out, wanted)


def test_a_hand_written_branch():
    """A range with an end that is 0 or 1: the register keeps its first value, or gets the other."""
    from uopc.ir.core.args import ParamArg, RangeArg, ReduceArg
    from uopc.ir.core.uop import UOp

    n = 12
    out = UOp(Ops.PARAM, dtypes.float32, (), ParamArg("out", (n,), 0))
    source = UOp(Ops.PARAM, dtypes.float32, (), ParamArg("source", (n,), 1))
    index = dtypes.index
    i = UOp(Ops.RANGE, index, (UOp.const(index, n),), RangeArg((0,), "loop"))
    value = UOp(Ops.INDEX, dtypes.float32, (source, i))
    turn = UOp(Ops.RANGE, index, ((value > 1.0).cast(index),), RangeArg((1,), "reduce"))
    inside = UOp(Ops.AFTER, dtypes.float32, (value, turn))
    most = UOp(Ops.REDUCE, dtypes.float32, (inside * 10.0, turn), ReduceArg("max"))
    store = UOp(Ops.STORE, dtypes.void, (UOp(Ops.INDEX, dtypes.float32, (out, i)), most))
    kernel = UOp(Ops.SINK, dtypes.void, (UOp(Ops.END, dtypes.void, (store, i)),))
    a, got = np.linspace(-2, 4, n, dtype="f4"), np.zeros(n, "f4")
    uopc.compile(kernel, verify=True)(got, a)
    np.testing.assert_array_equal(got, np.where(a > 1, a * np.float32(10), -np.inf))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithms_of_unusual_numbers_among_usual_ones(dtype):
    """Subnormals, zeros, negative and infinite numbers and NaN, each in a vector of others."""
    tiny = np.finfo(dtype).smallest_subnormal
    unusual = [0.0, -0.0, -1.0, np.inf, -np.inf, np.nan, tiny, 7 * tiny, np.finfo(dtype).tiny]
    a = np.random.default_rng(5).uniform(0.5, 9.0, (len(unusual), 37)).astype(dtype)
    for i, value in enumerate(unusual):
        a[i, (5 * i) % 37] = value
    x = uopc.param("x", a.shape, getattr(uopc.dtypes, dtype))
    got = uopc.compile((x.log(), x.log2()), verify=True)(a)
    with np.errstate(all="ignore"):
        for made, wanted in zip(got, (np.log(a), np.log2(a)), strict=True):
            np.testing.assert_allclose(made, wanted, rtol=4 * np.finfo(dtype).eps)
