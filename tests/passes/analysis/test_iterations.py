"""Loops of hand-written kernels whose iterations touch what others write: they keep their order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import uopc
from uopc import Opt, UOp, dtypes, kernel_param
from uopc.ir.builder import index_maps, rebuild
from uopc.ir.interpret.interpreter import run_kernel
from uopc.passes.analysis.iterations import is_ordered

N = 64
o, x = kernel_param(0, (N + 8,), name="o"), kernel_param(1, (N,), name="x")
k = kernel_param(2, (N,), dtypes.int32, "k")
i, a, b = UOp.range(N, 0), UOp.range(8, 0), UOp.range(8, 1)
KEYS = (np.arange(N) // 4 % 8).astype("i4")

# For each kernel: the store, its loops, the elements that it writes and its value.
Step = Callable[[np.ndarray, np.ndarray, int], tuple[int, float]]
ORDERED: dict[str, tuple[UOp, tuple[UOp, ...], Step]] = {
    "histogram": (o[k[i]].store(o[k[i]] + x[i]), (i,),
                  lambda v, w, n: (KEYS[n], v[KEYS[n]] + w[n])),
    "prefix sums": (o[i + 1].store(o[i] + x[i]), (i,), lambda v, w, n: (n + 1, v[n] + w[n])),
    "a reversal": (o[i].store(o[N - 1 - i]), (i,), lambda v, _, n: (n, v[N - 1 - n])),
    "groups": (o[i // 4].store(o[i // 4] * 0.5 + x[i]), (i,),
               lambda v, w, n: (n // 4, v[n // 4] * 0.5 + w[n])),
    "the last of a group": (o[i // 4].store(x[i]), (i,), lambda v, w, n: (n // 4, w[n])),
    "one place": (o[0].store(o.after(i)[0] * 0.5 + x[i]), (i,),
                  lambda v, w, n: (0, v[0] * 0.5 + w[n])),
    "diagonals": (o[a + b].store(o[a + b] * 0.5 + x[a * 8 + b]), (a, b),
                  lambda v, w, n: (n // 8 + n % 8, v[n // 8 + n % 8] * 0.5 + w[n])),
    "rows from rows": (o[a * 8 + b + 8].store(o[a * 8 + b] + 1), (a, b),
                       lambda v, _, n: (n + 8, v[n] + 1)),
    "the next row, one further": (o[a * 8 + b + 7].store(o[a * 8 + b] + 1), (a, b),
                                  lambda v, _, n: (n + 7, v[n] + 1)),
}  # fmt: skip


def expected(step: Step, source: np.ndarray) -> np.ndarray:
    """One iteration after another, in plain Python."""
    out = np.arange(N + 8, dtype="f4")
    for n in range(N):
        at, value = step(out, source, n)
        out[at] = np.float32(value)
    return out


@pytest.mark.parametrize("name", ORDERED)
def test_iterations_keep_their_order(name: str) -> None:
    store, loops, step = ORDERED[name]
    sink = store.end(*loops).sink(name="k")
    source = np.linspace(0, 4, N, dtype="f4")
    arrays = {"o": np.arange(N + 8, dtype="f4"), "x": source, "k": KEYS}
    wanted = expected(step, source)
    for options in ({"threads": 2}, {"threads": 1}, {"optimize": False}):
        f = uopc.compile(sink, verify=True, **options)
        given = {v.name: arrays[v.name].copy() for v in f.inputs}
        f(**given)
        np.testing.assert_allclose(given["o"], wanted, rtol=1e-6, err_msg=str(options))
    given = [arrays[v.name].copy() for v in f.inputs]
    run_kernel(sink, given)
    np.testing.assert_allclose(given[0], wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("n", [2, 5, pytest.param(7, marks=pytest.mark.slow), 0])
@pytest.mark.few(5)
def test_iterations_follow_each_other_in_one_body(name: str, n: int) -> None:
    """UNROLL of the outer loop, whose length n may not divide; 0 writes all of it out."""
    store, loops, step = ORDERED[name]
    sink = store.end(*loops).sink(name="k", opts=(Opt("UNROLL", 0, n),))
    source = np.linspace(0, 4, N, dtype="f4")
    arrays = {"o": np.arange(N + 8, dtype="f4"), "x": source, "k": KEYS}
    f = uopc.compile(sink, verify=True)
    given = {v.name: arrays[v.name].copy() for v in f.inputs}
    f(**given)
    np.testing.assert_allclose(given["o"], expected(step, source), rtol=1e-6)
    assert f.kernels[0].opts == (Opt("UNROLL", 0, n),)
    again = uopc.parse(uopc.print_graph(sink))
    assert again is sink


ACCUMULATED: dict[str, tuple[UOp, Step]] = {
    "sums of rows": (o[a].store(o[a] + x[a * 8 + b]), lambda v, w, n: (n // 8, v[n // 8] + w[n])),
    "polynomials": (o[a].store(o[a] * 0.5 + x[a * 8 + b]),
                    lambda v, w, n: (n // 8, v[n // 8] * 0.5 + w[n])),
    "a total": (o[0].store(o[0] + x[a * 8 + b]), lambda v, w, n: (0, v[0] + w[n])),
    "a count": (o[0].store(o[0] + 1), lambda v, w, n: (0, v[0] + 1)),
    "places": (o[k[a]].store(o[k[a]] + x[a * 8 + b]),
               lambda v, w, n: (KEYS[n // 8], v[KEYS[n // 8]] + w[n])),
    "a gate": (o[a].store(o[a] + x[a * 8 + b], o[a] < 9),
               lambda v, w, n: (n // 8, v[n // 8] + w[n] if v[n // 8] < 9 else v[n // 8])),
    "a stage": (o[a].store(o[a] + (o[0] * 0.5).stage(space="reg") + x[b]),
                lambda v, w, n: (n // 8, v[n // 8] + v[0] * 0.5 + w[n % 8])),
    "sums of what is written": (o[a].store(o[:8].sum() * 0.25 + x[b]),
                                lambda v, w, n: (n // 8, v[:8].sum() * 0.25 + w[n % 8])),
    "the last one": (o[a].store(x[a]), lambda v, w, n: (n // 8, w[n // 8])),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCUMULATED)
@pytest.mark.few(3)
def test_each_turn_reads_again_what_the_loop_writes(name: str) -> None:
    """However the loops end, in which order they run, and what kind the inner one has."""
    store, step = ACCUMULATED[name]
    source = np.linspace(0, 0.5, N, dtype="f4")
    wanted = expected(step, source)
    copies = UOp.range(8, 1, "unroll")
    other = rebuild.rebuild(store, {b: copies})
    given = {"o": np.arange(N + 8, dtype="f4"), "x": source, "k": KEYS}
    for effect in (store.end(a, b), store.end(b).end(a), other.end(a, copies)):
        sink = effect.sink(name="k")
        assert uopc.parse(uopc.print_graph(sink)) is sink
        for optimize in (True, False):
            f = uopc.compile(sink, optimize=optimize, threads=2, verify=True)
            now = {v.name: given[v.name].copy() for v in f.inputs}
            f(**now)
            np.testing.assert_allclose(now["o"], wanted, rtol=1e-5, err_msg=str(optimize))
        arrays = [given[v.name].copy() for v in f.inputs]
        run_kernel(sink, arrays)
        np.testing.assert_allclose(arrays[0], wanted, rtol=1e-5)


def test_two_stores_read_what_the_other_wrote_in_the_turn_before() -> None:
    p, q = kernel_param(0, (1,), name="p"), kernel_param(1, (1,), name="q")
    first = p[0].store(q[0] + 1)
    then = q.after(first)[0].store(p.after(first)[0] * 2)
    sink = UOp.group(first, then).end(a).sink(name="k")
    for optimize in (True, False):
        given = np.zeros(1, "f4"), np.zeros(1, "f4")
        uopc.compile(sink, optimize=optimize, verify=True)(*given)
        assert [v[0] for v in given] == [255, 510]


@pytest.mark.parametrize("both", [False, True])
def test_the_length_of_a_loop_is_read_again_in_each_turn_around_it(both: bool) -> None:
    """What a loop around it writes counts; `both`: one END closes both loops."""
    n, o = kernel_param(0, (1,), dtypes.int32, name="n"), kernel_param(1, (16,), name="o")
    i, j = UOp.range(3, 0), UOp.range(n.index(0).cast(dtypes.index), 1)
    added, more = o[j].store(o[j] + 1), n[0].store(n[0] + 1)
    inner = UOp.group(added.end(j), n.after(added.end(j))[0].store(n[0] + 1)).end(i)
    sink = (UOp.group(added, more).end(i, j) if both else inner).sink(name="k")
    count, wanted = 1, np.zeros(16, "f4")
    for _ in range(3):
        wanted[:count] += 1
        count = 2 * count if both else count + 1
    for optimize in (True, False):
        given = np.ones(1, "i4"), np.zeros(16, "f4")
        uopc.compile(sink, optimize=optimize)(*given)
        assert given[0][0] == count
        np.testing.assert_array_equal(given[1], wanted)


def test_a_value_that_is_stored_before_the_loop_is_read_once() -> None:
    t = kernel_param(1, (1,), name="t")
    kept = t[0].store(o[3])
    later = o.after(kept)
    sink = later[a].store(later[a] / t.after(kept)[0]).end(a).sink(name="k")
    out = np.arange(N + 8, dtype="f4")
    uopc.compile(sink, verify=True)(out, np.zeros(1, "f4"))
    np.testing.assert_allclose(out[:8], np.arange(8) / 3, rtol=1e-6)


def test_threads_of_a_gpu_do_not_add_up_into_one_element() -> None:
    block, thread = UOp.range(8, 0, "global"), UOp.range(8, 1, "local")
    sink = o[block].store(o[block] + x[block * 8 + thread]).end(block, thread).sink(name="k")
    with pytest.raises(uopc.UserError, match="all threads of the local range 1 store to one"):
        uopc.compile(sink, device="cuda:sm_80")
    same = o[block].store(x[block * 8]).end(block, thread).sink(name="k")
    assert uopc.compile(same, device="cuda:sm_80").kernels


def test_two_stores_of_one_loop_keep_their_order() -> None:
    stores = UOp.group(o[i].store(x[i]), o[i + 1].store(x[i] * 2)).end(i).sink(name="k")
    source, wanted = np.linspace(0, 4, N, dtype="f4"), np.zeros(N + 8, "f4")
    for n in range(N):
        wanted[n], wanted[n + 1] = source[n], source[n] * 2
    for optimize in (True, False):
        out = np.zeros(N + 8, "f4")
        uopc.compile(stores, optimize=optimize, verify=True)(out, source)
        np.testing.assert_array_equal(out, wanted)


def test_threads_do_not_share_such_a_loop() -> None:
    many = 1 << 20
    r, y = UOp.range(many, 0), kernel_param(1, (many,), name="y")
    group = r // (1 << 18)
    sink = o[group].store(o[group] + y[r]).end(r).sink(name="k")
    out, ones = np.zeros(N + 8, "f4"), np.ones(many, "f4")
    uopc.compile(sink, threads=2)(out, ones)
    assert out[:5].tolist() == [1 << 18] * 4 + [0]


INDEPENDENT = {
    "in place": (o[i].store(o[i] * 2), (i,)),
    "parts": (o[a].store(o[a + 8] * 2), (a,)),
    "columns of rows": (o[a * 8 + b].store(o[a * 8 + b] * 2), (a, b)),
    "rows of columns": (o[b * 8 + a].store(o[b * 8 + a] * 2), (a, b)),
}


def test_values_that_stay_in_the_block_of_an_iteration_are_independent() -> None:
    """The greatest index that a value may give decides, and lengths that depend on outer loops."""
    places = kernel_param(1, (N,), dtypes.int32, "places")
    for most, shared in ((7, True), (8, False)):
        place = places.index(a).cast(dtypes.index).maximum(0).minimum(most)
        store = o[a * 8 + place].store(o[a * 8] + 1)
        c = UOp.range(8, 1)
        rest = UOp.range(8 - c, 2)
        other = o[a * 8 + c + rest + (most - 7)].store(o[a * 8] + 1)
        for effect in (store.end(a), other.end(a, c, rest)):
            sink = effect.sink(name="k", opts=(Opt("THREAD", 0, 2),))
            if shared:
                assert [str(v) for v in uopc.compile(sink).kernels[0].opts] == ["THREAD(0, 2)"]
            else:
                with pytest.raises(uopc.UserError, match="must keep their order"):
                    uopc.compile(sink)


def test_guards_keep_rows_apart() -> None:
    """Columns outside of rows 6 apart meet unless a guard, of any scale, leaves 6 of them."""
    for guard, apart in ((a < 6, True), (a * 2 < 11, True), (a < 7, False), (a * 2 < 13, False)):
        (place,) = index_maps.gated((a + b * 6,), guard)
        target = o.index(place)
        sink = target.store(target * 0.5 + x[a * 8 + b]).end(a, b).sink(name="k")
        assert is_ordered(sink, a) is not apart
        free = o.index(a + b * 6)  # what is read has no guard
        sink = target.store(free * 0.5 + x[a * 8 + b]).end(a, b).sink(name="k")
        assert is_ordered(sink, a)


def test_threads_of_a_gpu_do_not_run_code_beside_their_loop() -> None:
    """All of them would add 1 to each element, and read it before the others have stored it."""
    c, d = UOp.range(8, 1), UOp.range(8, 2)
    first = o[a * 8 + c].store(x[a * 8 + c]).end(c)
    then = o.after(first, d)
    effect = then[a * 8 + d].store(then[a * 8 + d] + 1).end(d).end(a)
    f = uopc.compile(effect.sink(name="k"), device="cuda:sm_90")
    assert not any("LOCAL" in str(v) and v.axis != 0 for v in f.kernels[0].opts)
    with pytest.raises(uopc.UserError, match="code outside the range shares storage"):
        uopc.compile(effect.sink(name="k", opts=(Opt("LOCAL", 1, 8),)), device="cuda:sm_90")


@pytest.mark.parametrize("name", INDEPENDENT)
def test_iterations_that_never_meet_have_lanes(name: str) -> None:
    store, loops = INDEPENDENT[name]
    f = uopc.compile(store.end(*loops).sink(name="k"), verify=True)
    assert "VECTOR" in str(f.kernels[0].opts)


def test_opts_that_change_the_order_are_refused() -> None:
    b7 = UOp.range(7, 1)
    further = o[a * 8 + b7 + 8].store(o[a * 8 + b7 + 1] + 1).end(a, b7)
    prefix = o[i + 1].store(o[i] + x[i]).end(i)
    cases = [
        (further, Opt("SWAP", 0, 1)), (further, Opt("THREAD", 1, 2)),
        (prefix, Opt("VECTOR", 0, 8)), (prefix, Opt("UPCAST", 0, 4)),
    ]  # fmt: skip
    for effect, opt in cases:
        with pytest.raises(uopc.UserError, match="must keep their order"):
            uopc.compile(effect.sink(name="k", opts=(opt,)))
    kept = uopc.compile(prefix.sink(name="k", opts=(Opt("TILE", 0, 8),)))
    assert [str(v) for v in kept.kernels[0].opts] == ["TILE(0, 8)"]
    with pytest.raises(uopc.UserError, match="must keep their order"):
        uopc.compile(prefix.sink(name="k", opts=(Opt("LOCAL", 0, 8),)), device="cuda:sm_90")


@pytest.mark.parametrize("optimize", [True, False])
def test_two_stores_that_meet_in_different_iterations(optimize: bool) -> None:
    """The first store of iteration i + 3 overwrites the result of the second one of iteration i."""
    first = o[i].store(x[i])
    kernel = o.after(first)[i + 3].store(x[i] * 2).end(i).sink(name="k")
    source = np.arange(N, dtype="f4")
    out, interpreted = np.zeros((2, N + 8), "f4")
    expected = out.copy()
    for n in range(N):
        expected[n], expected[n + 3] = source[n], source[n] * 2
    uopc.compile(kernel, optimize=optimize, verify=True)(out, source)
    run_kernel(kernel, [interpreted, source])
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(interpreted, expected)


@pytest.mark.parametrize("optimize", [True, False])
def test_equal_stores_at_different_times_are_all_made(optimize: bool) -> None:
    """The second store of 0 was the first one, a node that stands in the list once."""
    a = uopc.kernel_param(0, (3,), dtypes.int32, "a")
    first = a[0].store(0)
    second = a.after(first)[0].store(a.after(first)[0] + a[1])
    kept = a.after(second)[2].store(a.after(second)[0])
    third = a.after(kept)[0].store(0)
    f = uopc.compile(third.sink(name="k"), optimize=optimize)
    values, seen = np.int32([7, 8, 9]), np.int32([7, 8, 9])
    f(values)
    run_kernel(third.sink(name="k"), [seen])
    assert values.tolist() == seen.tolist() == [0, 8, 8]


@pytest.mark.parametrize("optimize", [True, False])
def test_a_store_to_no_place_keeps_what_came_before(optimize: bool) -> None:
    """The SINK holds the last store alone, and that one is never made."""
    first = o[i].store(x[i] * 2)
    nowhere = (i >= N).where(i, UOp.invalid(dtypes.index))
    last = o.after(first)[nowhere].store(x[i])
    kernel = last.end(i).sink(name="k")
    source = np.arange(N, dtype="f4")
    out, interpreted = np.zeros((2, N + 8), "f4")
    uopc.compile(kernel, optimize=optimize, verify=True)(out, source)
    run_kernel(kernel, [interpreted, source])
    np.testing.assert_array_equal(out[:N], source * 2)
    np.testing.assert_array_equal(interpreted, out)
