"""Values that few elements need: under a branch, and only what is needed inside of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import uopc
from uopc.driver import lower_only
from uopc.errors import InvalidIR
from uopc.ir.core import dtypes
from uopc.ir.core.calls import function_body
from uopc.ir.core.levels import LINEAR
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter
from uopc.ir.verify import verifier

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
        depth -= u.op is Ops.ENDIF
        found[depth] += function_body(u.src[0]) if u.op is Ops.APPLY else [u]
        depth += u.op is Ops.IF
    return found


@pytest.mark.machine("desktop")
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
    assert len(back) == len([u for u in lower_only(x.sin()).kernels[0].src if u.op is Ops.RANGE])


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("every", [1, 7, 64, 10**9])
@pytest.mark.few(3)
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
                interpreter.run_kernel(kernel, [out, a])
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


LIST_WITH_AN_IF = """linear name=k opts=() {
  %1 = param "" slot=0 : f32[12]
  %2 = param "" slot=1 : f32[12]
  %3 = const 12 : index
  %4 = const 1.0 : f32
  %5 = const 10.0 : f32
  %6 = const 0.0 : f32
  %7 = range 12 axis=0 kind=loop : index
    %8 = index %1, %7 : f32
    %9 = index %2, %7 : f32
    %10 = load %9 : f32
    %11 = cmplt 1.0:f32, %10 : bool
    %12 = if %11 id=1 : bool
      %13 = mul %10, 10.0:f32 : f32
      store %8, %13
    endif %12
    %14 = branch %10, %12, %13 : f32
    %15 = cmplt 0.0:f32, %14 : bool
    store %9, %14, %15
  end %7
}"""


def test_a_list_with_an_if():
    """In the branch out[i] = 10 a[i]; behind it, what was chosen goes back to a."""
    kernel = uopc.parse(LIST_WITH_AN_IF)
    assert str(kernel) == LIST_WITH_AN_IF
    verifier.verify(kernel, LINEAR)
    a = np.linspace(-2, 4, 12, dtype="f4")
    out, changed = np.full(12, -1.0, "f4"), a.copy()
    interpreter.run_kernel(kernel, [out, changed])
    np.testing.assert_array_equal(out, np.where(a > 1, a * 10, np.float32(-1)))
    np.testing.assert_array_equal(changed, np.where(a > 1, a * 10, a))


@pytest.mark.parametrize("changes, message", [
    ({"    endif %12\n": ""}, "END of a block that is not the innermost"),
    ({"    endif %12\n": "    end %12\n"}, "END of a block that is not the innermost"),
    ({"  end %7\n": ""}, "is never ended, expected its END"),
    ({"%14 = branch %10, %12, %13": "%14 = add %10, %13"}, "operand 1, mul, is in an ended block"),
    ({"%11 = cmplt 1.0:f32, %10 : bool": "%11 = cast %10 : i32", "id=1 : bool": "id=1 : i32!",
      "%13 : f32\n    %15": "%13 : f32!\n    %15"},
     "the condition is int32, expected one bool"),
])  # fmt: skip
def test_lists_that_are_refused(changes, message):
    text = LIST_WITH_AN_IF
    for line, other in changes.items():
        assert line in text
        text = text.replace(line, other)
    with pytest.raises(InvalidIR, match=message):
        verifier.verify(uopc.parse(text), LINEAR)


@pytest.mark.machine("desktop")
def test_what_is_needed_elsewhere_is_outside():
    """Of a value under a branch, the parts that others need stand before it."""
    x = uopc.param("x", (64,), dtypes.float64)
    (kernel,) = lower_only(uopc.stack(x.sin(), abs(x))).kernels
    outside, inside = [[u.op for u in part] for part in blocks(kernel).values()]
    assert Ops.ABS in outside and Ops.ABS not in inside
