"""The memory of results: where it begins, who owns it, and that it is given back."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import uopc
from tests.backends.cpu.plans import F4, floats, muladd_plan, program
from uopc.backends import memory_plan
from uopc.backends.cpu import array_memory, layout
from uopc.backends.cpu.array_memory import new_array
from uopc.backends.plan import Argument, Plan, ResultArray
from uopc.ir.core.data import blocks

LINE = blocks.LINE
DTYPES = (
    np.bool_, np.int8, np.uint16, np.int32, np.uint64, np.float16, np.float32, np.float64,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
)  # fmt: skip
SHAPES = ((), (0,), (1,), (3, 0, 2), (7,), (33, 3), (4097,), (1 << 16,), (3, 1 << 14), (1 << 20,))


def at_a_line(array: np.ndarray[Any, Any]) -> bool:
    return array.ctypes.data % LINE == 0


def handler_of(array: np.ndarray[Any, Any]) -> str:
    core = np._core if hasattr(np, "_core") else np.core
    name: str = core.multiarray.get_handler_name(array)
    return name


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_of_any_type_and_size_begin_at_a_line(dtype: Any, plain: bool) -> None:
    kind = np.dtype(dtype)
    plan = Plan((), tuple(ResultArray(kind, shape) for shape in SHAPES), (), structure="tuple")
    f = program(plan, plain)
    kept = [f() for _ in range(4)]
    for results in kept:
        for result, shape in zip(results, SHAPES, strict=True):
            assert at_a_line(result) and result.shape == shape and result.dtype == kind
            usual = np.empty(shape, kind)
            assert result.flags.num == usual.flags.num
            assert not result.size or result.strides == usual.strides
            assert result.base is None and handler_of(result) == "uopc"


@pytest.mark.parametrize("plain", [False, True])
def test_a_result_beyond_32_bits(plain: bool) -> None:
    """Its memory is not touched."""
    size = (1 << 31) + 5
    result = program(Plan((), (ResultArray(np.dtype("u1"), (size,)),), ()), plain)()
    assert at_a_line(result) and result.nbytes == size
    result[-1] = 7
    assert result[-1] == 7


def test_results_of_programs_and_traced_functions_begin_at_a_line() -> None:
    n = uopc.variable("n", 1, 4096)
    x, y = uopc.param("x", (5, 3)), uopc.param("y", (n,))
    two, sized = uopc.compile([x.T * 2.0, x.sum()]), uopc.compile(y + 1.0)
    traced = uopc.jit(lambda a: {"whole": a + 1, "part": (a * 2)[1:], "turned": (a - 1).T})
    given = floats(15).reshape(5, 3)
    found = [*two(given), *[sized(np.ones(k, "f4")) for k in (1, 17, 4096)]]
    found += traced(given).values()
    found += traced(given[:, ::-1]).values()
    for result in map(np.asarray, found):
        assert at_a_line(result)


def test_the_owner_changes_the_size_of_its_memory() -> None:
    f = program(muladd_plan())
    a, b, c = (floats(8, seed=s) for s in range(3))
    for size in (1, 8, 100, 1 << 20):
        result = f(a, b, c)
        result.resize(size, refcheck=False)
        assert at_a_line(result) and result.size == size
        wanted = np.zeros(max(8, size), "f4")
        wanted[:8] = a * b + c
        np.testing.assert_array_equal(result, wanted[:size])
    copied = pickle.loads(pickle.dumps(f(a, b, c)))
    np.testing.assert_array_equal(copied, a * b + c)


def test_memory_is_given_back() -> None:
    """As `tracemalloc` counts it, and by the counts of what each result refers to."""
    n = memory_plan.LARGE // 4
    f = program(muladd_plan(n, arguments=tuple(Argument(k, F4, (n,)) for k in "abc")))
    a = floats(n)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = f(a, a, a)
        held = tracemalloc.get_traced_memory()[0] - before
        assert held >= result.nbytes
        del result
        assert tracemalloc.get_traced_memory()[0] - before < n
    finally:
        tracemalloc.stop()
    gc.collect()
    counts = sys.getrefcount(F4), sys.getrefcount(np.ndarray)
    for _ in range(1000):
        f(a, a, a)
        new_array((3, 5), F4)
    gc.collect()
    # Arrays that other tests left refer to them, too.
    after = sys.getrefcount(F4), sys.getrefcount(np.ndarray)
    assert max([abs(n - before) for n, before in zip(after, counts)]) < 300


def test_arrays_from_python() -> None:
    for shape in SHAPES:
        array = new_array(shape, F4)
        assert at_a_line(array) and array.shape == shape and array.flags.owndata
    for shape in ((-1,), (-3, -1), (1 << 62, 1 << 62)):
        with pytest.raises(ValueError):
            new_array(shape, F4)
    with pytest.raises(MemoryError):
        new_array((1 << 58,), F4)
    read = np.empty(1 << 20, np.uint8)
    places = [layout.data_address(read) + k for k in range(0, 1 << 16, 64)]
    large = new_array((1 << 16,), F4, places[:1])
    assert not memory_plan.is_ahead(layout.data_address(large), places[:1])
    assert at_a_line(new_array((1 << 16,), F4, places))


def test_arrays_where_structs_are_laid_out_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_memory, "known_interpreter", lambda: None)
    for shape in SHAPES:
        array = new_array(shape, np.dtype("f8"))
        assert at_a_line(array) and array.shape == shape and array.flags.carray


def test_results_that_outlive_every_module() -> None:
    code = """if True:
        import sys, numpy as np, uopc
        f = uopc.compile(uopc.param('x', (9,)) * 2.0)
        kept = [f(np.ones(9, 'f4')) for _ in range(9)]
        kept.append(kept)  # a cycle: the last collection frees it
        sys.kept = kept
    """
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert ended.returncode == 0
