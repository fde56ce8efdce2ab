"""Windows that variables move: what reaches out of the source reads zeros and is not written."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.ir.core import dtypes, uop
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.interpret.interpreter import evaluate


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("n", [1, 3, 5, 10])
def test_read_beyond_the_end(n: int, optimize: bool) -> None:
    x, size = uopc.param("x", (3,)), uopc.variable("n", 1, 10)
    total = x.shrink(((0, size),)).sum()
    a = np.array([1, 2, 4], np.float32)
    f = uopc.compile(total, verify=True, optimize=optimize)
    assert f(a, n=n) == a[:n].sum()


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("at", [0, 4, 6, 7])
def test_write_beyond_the_end(at: int, optimize: bool) -> None:
    x, begin = uopc.param("x", (8,)), uopc.variable("at", 0, 7)
    part = x.shrink(((begin, begin + 4),))
    f = uopc.compile(part.assign(part + 1), verify=True, optimize=optimize)
    a = np.zeros(12, np.float32)  # what lies behind the array must not change
    f(a[:8], at=at)
    want = np.zeros(12, np.float32)
    want[at : min(at + 4, 8)] = 1
    assert np.array_equal(a, want)


def test_window_inside_has_no_guard() -> None:
    """Where the bounds of the variables prove that a window is inside, nothing is compared."""
    x, at = uopc.param("x", (8,)), uopc.variable("at", 0, 4)
    f = uopc.compile(x.shrink(((at, at + 4),)) * 2, verify=True)
    assert "cmplt" not in f.stages["flatten-indices"]


def test_interpreter_agrees() -> None:
    x, size = uopc.param("x", (3,)), uopc.variable("n", 1, 10)
    a = np.array([1, 2, 4], np.float32)
    got = evaluate(x.shrink(((0, size),)), {"x": a}, {"n": 5})
    assert np.array_equal(got, [1, 2, 4, 0, 0])


def test_what_invalid_was_stored_to_has_no_value() -> None:
    """A read of it is INVALID, so that a store of it is skipped."""
    x, y = uopc.param("x", (4,)), uopc.param("y", (4,))
    nothing = uop.checked(Ops.INVALID, dtypes.float32, (), None, None).expand(4)
    wiped = UOp(Ops.AFTER, dtypes.float32, (y, UOp(Ops.STORE, dtypes.void, (y, nothing))))
    f = uopc.compile(x.assign(wiped), verify=True)
    a = np.arange(4, dtype=np.float32)
    f(x=a, y=np.full(4, 9, np.float32))
    assert a.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int32, dtypes.float64])
def test_the_bits_of_what_is_invalid_are_invalid(dtype: dtypes.DType) -> None:
    nothing = uop.checked(Ops.INVALID, dtypes.float32, (), None, None).expand(4)
    f = uopc.compile(nothing.bitcast(dtype).contiguous(), verify=True)
    assert not f.kernels


@pytest.mark.parametrize("dtype", [dtypes.fp8e4m3, dtypes.fp8e5m2])
def test_rounding_gives_one_nan(dtype: dtypes.DType) -> None:
    x = uopc.param("x", (1,), dtype)
    f = uopc.compile((x * -1).bitcast(dtypes.uint8), verify=True)
    for bits in (0x7F, 0xFF):
        nan = np.array([bits], np.uint8).view(dtype.numpy)
        assert np.isnan(nan.astype(np.float32)).all()
        assert f(nan)[0] == np.array([np.nan], np.float32).astype(dtype.numpy).view(np.uint8)[0]
