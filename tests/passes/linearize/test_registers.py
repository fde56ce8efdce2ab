"""A thread's own storage in hand-written kernels: registers, where all places are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import uopc
from uopc import Opt, UOp, dtypes, kernel_param
from uopc.driver import lower_only
from uopc.ir.builder import kernel
from uopc.ir.interpret.interpreter import run_kernel
from uopc.tensor import creation

ROWS, COLUMNS = 6, 40
SHAPE = (ROWS, COLUMNS)
o, x = kernel_param(0, SHAPE, name="o"), kernel_param(1, SHAPE, name="x")
i, j = UOp.range(ROWS, 0), UOp.range(COLUMNS, 1)
Array = np.ndarray


def register(size: int = 1) -> UOp:
    return creation.buffer((size,), dtypes.float32, "reg")


def running_sums() -> UOp:
    t = register()
    empty = kernel.after(t, i)[0].store(0.0)
    added = t[0].store(kernel.after(t, empty, j)[0] + x[i, j])
    return o[i, j].store(kernel.after(t, added)[0])


def fibonacci() -> UOp:
    """Two values, each added to the other."""
    t = register(2)
    first, second = kernel.after(t, i)[0].store(0.0), kernel.after(t, i)[1].store(1.0)
    now = kernel.after(t, first, second, j)
    added = t[0].store((now[0] + now[1]) * x[i, j])
    then = kernel.after(t, first, second, j, added)
    again = t[1].store(then[0] + then[1])
    return o[i, j].store(kernel.after(t, added, again)[1])


def over_all_rows() -> UOp:
    """The sum of all rows so far: the loop over rows carries it, too."""
    t = register()
    added = t[0].store(kernel.after(t, t[0].store(0.0), i, j)[0] + x[i, j])
    return o[i, j].store(kernel.after(t, added)[0])


def in_a_branch() -> UOp:
    t = register()
    empty = kernel.after(t, i)[0].store(0.0)
    earlier = kernel.after(t, empty, j)
    added = kernel.store(earlier[0], earlier[0] + x[i, j], gate=j % 2 < 1)
    return o[i, j].store(kernel.after(t, added)[0])


def at_computed_places() -> UOp:
    t = register(2)
    r = UOp.range(2, (1, 5))
    empty = kernel.end(kernel.after(t, i)[r].store(0.0), r)
    added = t[j % 2].store(kernel.after(t, empty, j)[j % 2] + x[i, j])
    return o[i, j].store(kernel.after(t, added)[j % 2])


def fibonacci_of(a: Array) -> Array:
    out = np.zeros_like(a)
    for row in range(ROWS):
        p, q = np.float32(0), np.float32(1)
        for column in range(COLUMNS):
            p = (p + q) * a[row, column]
            q = p + q
            out[row, column] = q
    return out


def by_turns(a: Array) -> Array:
    out = np.zeros_like(a)
    for first in range(2):
        out[:, first::2] = np.cumsum(a[:, first::2], 1, dtype="f4")
    return out


def evens(a: Array) -> Array:
    return np.cumsum(np.where(np.arange(COLUMNS) % 2 == 0, a, 0), 1, dtype="f4")


KERNELS: dict[str, tuple[Callable[[], UOp], Callable[[Array], Array], bool]] = {
    "running sums": (running_sums, lambda a: np.cumsum(a, 1, dtype="f4"), True),
    "fibonacci": (fibonacci, fibonacci_of, True),
    "all rows": (over_all_rows, lambda a: np.cumsum(a, dtype="f4").reshape(SHAPE), True),
    "a branch": (in_a_branch, evens, False),
    "computed places": (at_computed_places, by_turns, False),
}
CASES = pytest.mark.parametrize("build, expected, promoted", KERNELS.values(), ids=KERNELS)


@CASES
@pytest.mark.parametrize("optimize", (True, False))
def test_values(build, expected, promoted, optimize) -> None:
    sink = kernel.end(build(), i, j).sink(name="k")
    a = np.random.default_rng(0).uniform(0.5, 1, SHAPE).astype("f4")
    program = uopc.compile(sink, optimize=optimize, verify=True, threads=2)
    out = np.zeros(SHAPE, "f4")
    program(out, a)
    np.testing.assert_allclose(out, expected(a), rtol=1e-6)
    again = np.zeros(SHAPE, "f4")
    run_kernel(sink, [again, a])
    np.testing.assert_allclose(again, expected(a), rtol=1e-6)
    assert ("alloca" in program.kernels[0].source) is not promoted


def test_linear_text() -> None:
    lowered = lower_only(kernel.end(running_sums(), i, j).sink(name="k"), optimize=False)
    text = uopc.print_graph(lowered.kernels[0])
    assert "buffer" not in text
    assert text.count("carry") == 2  # of each loop


def test_loops_that_carry_a_register_are_not_shared() -> None:
    rows = kernel.end(running_sums(), i, j)
    both = kernel.end(over_all_rows(), i, j)
    for sink, opt in (
        (rows, Opt("SWAP", 0, 1)), (rows, Opt("VECTOR", 0, 2)), (rows, Opt("UPCAST", 0, 2)),
        (rows, Opt("VECTOR", 1, 8)), (rows, Opt("COALESCE", 0, 1)),
        (both, Opt("THREAD", 0, 2)), (both, Opt("SWAP", 0, 1)),
    ):  # fmt: skip
        with pytest.raises(uopc.UserError, match="order"):
            uopc.compile(sink.sink(name="k", opts=(opt,)))
    threads = uopc.compile(rows.sink(name="k", opts=(Opt("THREAD", 0, 2),)), threads=2)
    a, out = np.random.default_rng(0).random(SHAPE, "f4"), np.zeros(SHAPE, "f4")
    threads(out, a)
    np.testing.assert_array_equal(out, np.cumsum(a, 1, dtype="f4"))


def test_one_register_over_a_long_loop_on_two_threads() -> None:
    n = 1 << 20
    out, y, r = kernel_param(0, (n,), name="o"), kernel_param(1, (n,), name="y"), UOp.range(n, 0)
    t = register()
    added = t[0].store(kernel.after(t, t[0].store(0.0), r)[0] + y[r])
    sink = kernel.end(out[r].store(kernel.after(t, added)[0]), r).sink(name="k")
    a, got = np.ones(n, "f4"), np.zeros(n, "f4")
    uopc.compile(sink, threads=2)(got, a)
    np.testing.assert_array_equal(got, np.arange(1, n + 1, dtype="f4"))


@pytest.mark.parametrize("optimize", (True, False))
def test_values_that_swap(optimize) -> None:
    """Each iteration takes the values from before it, also those that only move."""
    t, other = register(2), register(2)
    begun = [kernel.after(t, i)[0].store(1.0), kernel.after(t, i)[1].store(2.0)]
    now = kernel.after(t, *begun, j)
    kept = [other[0].store(now[1]), other[1].store(now[0])]
    then = kernel.after(other, *kept)
    moved = [t[0].store(then[0]), t[1].store(then[1])]
    sink = kernel.end(o[i, j].store(kernel.after(t, *moved)[0]), i, j).sink(name="k")
    program = uopc.compile(sink, optimize=optimize)
    out = np.zeros(SHAPE, "f4")
    program(out)
    np.testing.assert_array_equal(out, np.tile([2.0, 1.0], (ROWS, COLUMNS // 2)))
