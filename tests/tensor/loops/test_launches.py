"""Loops whose steps are launches: values, all forms of code, derivatives, batches, text, memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import driver, dtypes
from uopc.backends.plan import DimValue, Repeat, nested
from uopc.errors import InvalidIR, Unsupported
from uopc.ir.core.args import RangeArg
from uopc.ir.core.levels import PROGRAM
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import outer_ranges
from uopc.ir.core.uop import UOp, intern
from uopc.ir.interpret import interpreter
from uopc.ir.verify.verifier import verify
from uopc.numpy.array import Array, uop_of
from uopc.program import planner
from uopc.tensor import creation
from uopc.tensor.loops import scan as loops

RNG = np.random.default_rng(12)
N = 100  # a row of as many is sorted by a kernel of its own
X, ROWS = RNG.normal(size=N), RNG.normal(size=(7, N))
W = RNG.normal(size=(N, N)) / 10


def sort(xp: Any, a: Any) -> Any:
    return a.sort() if isinstance(a, UOp) else xp.sort(a)


def sorted_sum(xp: Any, c: Any, v: Any) -> Any:
    s = sort(xp, c * 0.5 + v)
    return s - s.mean(), s[::-1] * v


def running_total(xp: Any, c: Any, v: Any) -> Any:
    return xp.cumsum(c + v) * 0.1, (c * v).sum()


def two_carried(xp: Any, c: Any, v: Any) -> Any:
    """The old values of both are needed after one of the new ones is known."""
    a, b = c
    return (b, xp.sort(a + v)), a - b


BODIES: dict[str, tuple[Callable[..., Any], Any]] = {
    "sort": (sorted_sum, X), "cumsum": (running_total, X), "two carried": (two_carried, (X, -X)),
}  # fmt: skip
bodies = pytest.mark.parametrize("name", BODIES)


def numpy_scan(body: Any, first: Any, xs: Any, reverse: bool = False) -> Any:
    """The loop in Python; a result of no step has the shape of one."""
    shape = np.shape(body(first, np.zeros(xs.shape[1:]))[1])
    ys = []
    for v in xs[::-1] if reverse else xs:
        first, y = body(first, v)
        ys.append(y)
    ys = ys[::-1] if reverse else ys
    return first, np.array(ys).reshape(len(ys), *shape)


def flat(results: Any) -> list[Any]:
    parts = results if isinstance(results, (tuple, list)) else [results]
    return [a for r in parts for a in (flat(r) if isinstance(r, (tuple, list)) else [r])]


def assert_close(got: Any, wanted: Any, **how: Any) -> None:
    for a, b in zip(flat(got), flat(wanted), strict=True):
        np.testing.assert_allclose(a, b, **(how or {"rtol": 1e-10, "atol": 1e-12}))


def repeats(program: Any) -> tuple[Repeat, ...]:
    return program._runner.plan.repeats


def looped(name: str, **how: Any) -> Callable[..., Any]:
    body, _ = BODIES[name]
    return lambda c, xs: uopc.scan(lambda c, v: body(unp, c, v), c, xs, **how)


# ---------------------------------------------------------------- values
@bodies
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.few(3)
def test_values(name: str, reverse: bool, optimize: bool) -> None:
    body, first = BODIES[name]
    f = uopc.jit(looped(name, reverse=reverse), optimize=optimize)
    for steps in (0, 1, 2, 7):
        wanted = numpy_scan(lambda c, v: body(np, c, v), first, ROWS[:steps], reverse)
        assert_close(f(first, ROWS[:steps]), wanted)
    (loop,) = repeats(f.program(first, ROWS))
    assert loop.times == 7


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "i8", "u1"])
def test_dtypes(dtype: str) -> None:
    first, rows = (RNG.integers(0, 9, s).astype(dtype) for s in (N, (5, N)))
    step = lambda xp, c, v: (xp.sort(c + v), (c + v).max())  # noqa: E731
    f = uopc.jit(lambda c, xs: uopc.scan(lambda c, v: step(unp, c, v), c, xs))
    got, wanted = f(first, rows), numpy_scan(lambda c, v: step(np, c, v), first, rows)
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == first.dtype
        np.testing.assert_array_equal(a, b)


@bodies
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.few(2)
def test_a_symbolic_number_of_steps(name: str, reverse: bool) -> None:
    body, first = BODIES[name]
    n = uopc.variable("n", 0, 9)
    c = [uopc.param(f"c{i}", (N,), dtypes.float64) for i, _ in enumerate(flat(first))]
    xs = uopc.param("xs", (n, N), dtypes.float64)
    carried = c[0] if len(c) == 1 else tuple(c)
    graph = flat(looped(name, reverse=reverse)(carried, xs))
    program = uopc.compile(graph, inputs=[*c, xs])
    (loop,) = repeats(program)
    assert isinstance(loop.times, DimValue) and loop.times.variable == "n"
    for steps in (0, 1, 2, 7):
        rows = ROWS[:steps]
        wanted = numpy_scan(lambda c, v: body(np, c, v), first, rows, reverse)
        assert_close(program(*flat(first), rows), wanted)
        arrays = {"xs": rows} | {f"c{i}": a for i, a in enumerate(flat(first))}
        if steps <= 2:  # the interpreter takes long
            assert_close(interpreter.evaluate(graph, arrays), wanted)


@pytest.mark.parametrize("less", [-1, 0, 3])
def test_a_size_of_the_caller_is_the_number_of_steps(less: int) -> None:
    """No step where it is negative."""
    n = uopc.variable("n", 0, 5)
    x = uopc.param("x", (N,), dtypes.float64)
    last = uopc.fori_loop(0, n - less, lambda i, c: unp.sort(c) * 0.5 + i, x)
    program = uopc.compile(last)
    for steps in (0, 3, 5):
        wanted = X
        for i in range(steps - less):
            wanted = np.sort(wanted) * 0.5 + i
        assert_close(program(X, n=steps), wanted)


def test_loops_in_loops_and_one_after_another() -> None:
    blocks = RNG.normal(size=(3, 4, N))

    def outer(xp: Any, scan: Any, c: Any, block: Any) -> Any:
        c, ys = scan(lambda c, v: sorted_sum(xp, c, v), c, block)
        c, zs = scan(lambda c, v: sorted_sum(xp, c, v), c, block)
        return c, ys + zs

    f = uopc.jit(lambda c, b: uopc.scan(lambda c, v: outer(unp, uopc.scan, c, v), c, b))
    assert_close(f(X, blocks), numpy_scan(lambda c, v: outer(np, numpy_scan, c, v), X, blocks))
    around, first, second = repeats(f.program(X, blocks))
    assert around.first < first.first < first.end <= second.first < second.end < around.end
    assert (around.times, first.times, second.times) == (3, 4, 4)


def test_in_functions_that_are_scheduled_on_their_own() -> None:
    c, xs = (uopc.param(n, a.shape, dtypes.float64) for n, a in (("c", X), ("xs", ROWS)))
    layer = uopc.function(lambda c, xs: looped("sort")(c, xs)[0], precompile=True)
    wanted = X
    for _ in range(2):
        wanted = numpy_scan(lambda c, v: sorted_sum(np, c, v), wanted, ROWS)[0]
    assert_close(uopc.compile(layer(layer(c, xs), xs))(X, ROWS), wanted)


@pytest.mark.parametrize("precompile", [True, False])
def test_the_gradient_of_a_function_that_is_called_twice(precompile: bool) -> None:
    """Each call has storage of its own, also for what its loop begins with."""
    n = 70
    rng = np.random.default_rng(4)
    x, w, way = rng.normal(size=(3, n))
    v = uopc.param("v", (n,), dtypes.float64)
    f = uopc.function(
        lambda a, b: uopc.fori_loop(0, 2, lambda i, c: c.sort() * b + i, a), precompile=precompile
    )
    weights = uopc.constant(w)

    def wanted(a: Any) -> Any:
        for b in (a * 0.5, w):
            for i in range(2):
                a = np.sort(a) * b + i
        return (a * a).sum()

    slope = uopc.compile(uopc.grad((f(f(v, v * 0.5), weights) ** 2).sum(), v))(x)
    h = 1e-6 * way
    found = (wanted(x + h) - wanted(x - h)) / 2e-6
    np.testing.assert_allclose((slope * way).sum(), found, rtol=1e-6)


def test_products_have_their_tiles_and_code_does_not_grow() -> None:
    def f(steps: int) -> Any:
        return uopc.jit(lambda w, x: uopc.fori_loop(0, steps, lambda i, c: unp.tanh(w @ c), x))

    w, x = RNG.normal(size=(2, 128, 128)) / 12
    wanted = x
    for _ in range(5):
        wanted = np.tanh(w @ wanted)
    assert_close(f(5)(w, x), wanted)
    short, long = (f(steps).program(w, x).stats for steps in (5, 5_000_000))
    assert short["launches"] == long["launches"] < 8


@pytest.mark.parametrize(
    "size, large", [(3, 0), (200, 1 << 40), (200, 0)], ids=["registers", "memory", "launches"]
)
def test_marks_in_a_body(size: int, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that store a value, or stop derivatives."""

    def step(c: UOp, v: UOp) -> tuple[UOp, UOp]:
        total = (v * 1.5).contiguous().sum().detach()
        return (c * 0.5 + total).contiguous(), c

    monkeypatch.setattr(loops, "LARGE_STEP", large)
    x, rows = RNG.normal(size=size), RNG.normal(size=(4, size))
    c, xs = (uopc.param(n, a.shape, dtypes.float64) for n, a in (("c", x), ("xs", rows)))
    program = uopc.compile(list(uopc.scan(step, c, xs)))
    assert bool(repeats(program)) is (size > 3 and not large)
    wanted = numpy_scan(lambda c, v: (c * 0.5 + (v * 1.5).sum(), c), x, rows)
    assert_close(program(x, rows), wanted)


@pytest.mark.parametrize("rows, launches", [(1, False), (40, True)])
def test_steps_of_free_sizes_count_by_their_bounds(rows: int, launches: bool) -> None:
    n = uopc.variable("n", 1, rows)
    x = uopc.param("x", (n, 4), dtypes.float64)
    last, sums = uopc.scan(lambda c, _: ((c * 0.5).sin() + 1, c.sum()), x, length=3)
    program, a = uopc.compile([last, sums]), RNG.normal(size=(rows, 4))
    assert bool(repeats(program)) is launches
    wanted = numpy_scan(lambda c, _: (np.sin(c * 0.5) + 1, c.sum()), a, np.arange(3.0))
    assert_close(program(a), wanted)


# ---------------------------------------------------------------- bodies in bodies
def chosen_sort(xp: Any, c: Any, v: Any) -> Any:
    """The branches and the values that are chosen from fill the same storage."""
    if xp is np:
        return np.sort(c) if c.sum() > 0 else c + v
    return uopc.cond(c.sum() > 0, lambda c: unp.sort(c), lambda c: c + v, c)


def shared_constant(xp: Any, c: Any, v: Any) -> Any:
    """The body and a function that it calls read the same array."""
    if xp is np:
        return np.sort(c * W[0]) + W[0] * v
    weights = unp.asarray(W[0])
    layer = uopc.function(lambda a: uop_of(unp.sort(Array(a) * weights), "a"), precompile=True)
    return Array(layer(uop_of(c, "c"))) + weights * v


def gathered_inside(xp: Any, c: Any, v: Any) -> Any:
    """The loop inside reads at places that the body around it computes."""
    at = (abs(v) * 7).astype("int64") % N
    if xp is np:
        return np.tanh(np.tanh(c)[at])[at]
    return uopc.fori_loop(0, 2, lambda i, c: unp.tanh(c)[at], c)


@pytest.mark.parametrize("body", [chosen_sort, shared_constant, gathered_inside])
@pytest.mark.parametrize("sorts", [False, True], ids=["one kernel", "launches"])
@pytest.mark.few(3)
def test_bodies_in_bodies(body: Callable[..., Any], sorts: bool) -> None:
    def step(xp: Any, c: Any, v: Any) -> Any:
        made = body(xp, c, v)
        return (sort(xp, made) if sorts else made) * 0.5, c

    with uopc.options(spec=1):
        f = uopc.jit(lambda c, xs: uopc.scan(lambda c, v: step(unp, c, v), c, xs))
        assert_close(f(X, ROWS), numpy_scan(lambda c, v: step(np, c, v), X, ROWS))


# ---------------------------------------------------------------- derivatives, batches
@bodies
def test_derivatives(name: str) -> None:
    body, first = BODIES[name]
    first = np.array(first)  # one array, so that all of it is one argument

    def loss(xp: Any, scan: Any, c: Any, xs: Any) -> Any:
        carried = c if c.ndim == 1 else (c[0], c[1])
        last, ys = scan(lambda c, v: body(xp, c, v), carried, xs)
        return sum([(a * a).sum() for a in flat(last)]) + (ys**3).sum()

    rows = ROWS[:4]
    ours = lambda c, xs: loss(unp, uopc.scan, c, xs)  # noqa: E731
    got = uopc.jit(uopc.grad(ours, argnums=(0, 1)))(first, rows)
    for at, given in enumerate((first, rows)):
        way = RNG.normal(size=given.shape)

        def moved(h: float, at: int = at, way: Any = way) -> float:
            args = [a + h * way if i == at else a for i, a in enumerate((first, rows))]
            return float(loss(np, numpy_scan, *args))

        slope = (8 * (moved(1e-6) - moved(-1e-6)) - (moved(2e-6) - moved(-2e-6))) / 12e-6
        np.testing.assert_allclose((got[at] * way).sum(), slope, rtol=1e-6)
        pushed = uopc.jit(lambda c, xs, v, at=at: uopc.jvp(
            lambda a: ours(*[a if i == at else b for i, b in enumerate((c, xs))]),
            ((c, xs)[at],), (v,),
        )[1])(first, rows, way)  # fmt: skip
        np.testing.assert_allclose(pushed, slope, rtol=1e-6)


def test_batches() -> None:
    firsts, rows = RNG.normal(size=(3, N)), RNG.normal(size=(3, 5, N))
    f = uopc.jit(uopc.vmap(looped("sort")))
    got = f(firsts, rows)
    for i, (c, xs) in enumerate(zip(firsts, rows)):
        assert_close([a[i] for a in got], numpy_scan(lambda c, v: sorted_sum(np, c, v), c, xs))


# ---------------------------------------------------------------- the forms of a program
def graph_of(name: str = "sort", steps: int = 3) -> list[UOp]:
    c, xs = uopc.param("c", (N,), dtypes.float64), uopc.param("xs", (steps, N), dtypes.float64)
    return flat(looped(name)(c, xs))


def program_of(graph: list[UOp]) -> UOp:
    lowered = driver.lower_only(graph, verify=True)
    return next(r.after[0] for r in lowered.runs if r.level is PROGRAM)


def test_the_text_of_a_program_with_loops_is_read_again() -> None:
    program = program_of(graph_of())
    loops = {r for c in program.src for r in outer_ranges(c)}
    assert len(loops) == 1 and next(iter(loops)).arg.kind == "outer"
    assert uopc.parse(uopc.print_graph(program)) is program
    graph = uopc.UOp.sink(*graph_of())
    assert uopc.parse(uopc.print_graph(graph)) is graph


def test_bad_loops_around_calls() -> None:
    calls = list(program_of(graph_of()).src)
    at = next(i for i, c in enumerate(calls) if outer_ranges(c))

    def broken(*given: UOp) -> UOp:
        changed = intern(Ops.CALL, dtypes.void, given)
        return intern(Ops.LINEAR, dtypes.void, (*calls[: at + 1], changed, *calls[at + 2 :]))

    *first, loop = calls[at + 1].src
    other = intern(Ops.RANGE, dtypes.index, loop.src, RangeArg((9,), "loop"))
    cases = {"outer": (*first, other), "last": (first[0], loop, *first[1:]),
             "ended": tuple(first), "twice": (*first, loop, loop)}  # fmt: skip
    for word, given in cases.items():
        with pytest.raises(InvalidIR, match=f"outer-loops.*{word}|operand-count"):
            verify(broken(*given), PROGRAM)


def test_launches_traces_and_slices() -> None:
    program = uopc.compile(graph_of(steps=3), threads=2)
    (loop,) = repeats(program)
    outside = len(program.launches) - (loop.end - loop.first)
    runs = outside + 3 * (loop.end - loop.first)
    arrays = X, ROWS[:3]
    result, times = program._runner.trace(arrays, {})
    wanted = numpy_scan(lambda c, v: sorted_sum(np, c, v), X, ROWS[:3])
    assert_close(result, wanted)
    assert len(times) == runs
    result, found = program._runner.slices(arrays, {})
    assert_close(result, wanted)
    assert len(found) >= runs
    assert len(program._runner.time(arrays, {}, 2)) == len(program.launches)
    with uopc.options(plain_call=True):
        assert_close(uopc.compile(graph_of(steps=3))(*arrays), wanted)


def test_many_steps_on_threads() -> None:
    f = uopc.jit(
        lambda w, x: uopc.fori_loop(0, 2000, lambda i, c: unp.tanh(w @ c) + 0.1, x), threads=2
    )
    w, x = RNG.normal(size=(2, 128, 128)) / 20
    wanted = x
    for _ in range(2000):
        wanted = np.tanh(w @ wanted) + 0.1
    assert_close(f(w, x), wanted, rtol=1e-8)


# ---------------------------------------------------------------- memory and tables
def test_memory_that_steps_share_lasts_as_long_as_the_loop() -> None:
    a, b, c, d = [creation.buffer((100,), dtypes.float32) for _ in range(4)]
    calls = [(0, [a]), (0, [b, a]), (0, [c]), (0, [c, b]), (0, [d, b])]
    blocks, _ = planner.arena(calls, (), (Repeat(1, 4, 5),))
    alive = {block.storage: (block.alive.first, block.alive.last) for block in blocks}
    assert alive == {a: (0, 3), b: (1, 4), c: (2, 3), d: (4, 4)}


@pytest.mark.parametrize("seed", range(20))
def test_random_nests_run_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def made(first: int, end: int, depth: int) -> tuple[list[Repeat], list[int]]:
        """Repeats between two launches, and the order in which those run."""
        found, order, at = [], [], first
        while at < end:
            length = int(rng.integers(1, end - at + 1))
            if depth and rng.random() < 0.6:
                times = int(rng.integers(0, 4))
                inner, row = made(at, at + length, depth - 1)
                found += [Repeat(at, at + length, times), *inner]
                order += row * times
            else:
                order += range(at, at + length)
            at += length
        return found, order

    repeated, wanted = made(0, 8, 3)

    def run(row: Any) -> list[int]:
        return list(itertools.chain.from_iterable(
            [p] if isinstance(p, int) else run(p[1]) * p[0].times for p in row
        ))  # fmt: skip

    assert run(nested(8, repeated)) == wanted


def test_a_while_loop_around_kernels_is_refused() -> None:
    x = uopc.param("x", (N,), dtypes.float64)
    with pytest.raises(Unsupported, match="while_loop: a sort, a kernel"):
        uopc.while_loop(lambda c: c.sum() > 1, lambda c: unp.sort(c) * 0.5, x)
