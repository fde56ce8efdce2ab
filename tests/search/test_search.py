"""The search for Opts: its rules on a bench without a clock, real processes, and who uses it."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import uopc
from tests.by_hand import plain_kernel
from tests.search.bench import OWN, Bench
from uopc.backends import detect
from uopc.cache import tuned
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.driver import lower_only
from uopc.errors import UserError
from uopc.ir.core.args import Opt
from uopc.ir.interpret import interpreter
from uopc.ir.nest.describe import outline_of
from uopc.passes.contract import Context
from uopc.passes.optimize.opts import table
from uopc.program.tuned import kernel_opts, schedules
from uopc.search import beam, edits, searcher
from uopc.search.beam import Match, Priced
from uopc.search.workers import Workers

pytestmark = pytest.mark.usefixtures("no_rows")
RNG = np.random.default_rng(21)


def widths(*amounts):
    return [(Opt("VECTOR", 0, n),) for n in amounts]


class Near:
    """Each list has the neighbours that a function gives, and costs so much; a search begins with
    nothing."""

    def __init__(self, near, cycles=lambda opts: 1.0):
        self.near, self.cycles = near, cycles

    def starts(self):
        return []

    def neighbours(self, opts):
        return [Priced(self.cycles(near), near) for near in self.near(opts)]


def priced(lists, cycles=lambda opts: 1.0):
    """The same neighbours for each list."""
    return Near(lambda opts: lists, cycles)


def found(bench, neighbours, width=2, expired=lambda: False):
    return beam.search(bench, neighbours, width, expired)


# ---------------------------------------------------------------- the rules of the search
def test_the_fastest_list_wins():
    bench = Bench(lambda o: 1.0 / (1 + sum(x.arg for x in o)))
    result = found(bench, priced([(), *widths(16, 32, 4)]))
    assert result.opts == (Opt("VECTOR", 0, 32),)
    assert result.after < result.before == 1 / 9
    assert set(bench.matches) == {(), *widths(16, 32, 4)}


def test_a_tie_goes_to_the_schedule():
    bench = Bench(lambda o: 1.0 if o == OWN else 1.0 - beam.MARGIN / 2)
    result = found(bench, priced(widths(16)))
    assert bench.finals and result.opts is None and result.before == result.after


def test_a_list_that_won_by_noise_loses_the_final_match():
    class Noisy(Bench):
        def match(self, candidate, samples):
            made = super().match(candidate, samples)
            if samples == beam.FINAL_SAMPLES:
                return Match([2 * s for s in made.schedule], made.schedule)
            return Match([0.1 * s for s in made.schedule], made.schedule)

    assert found(Noisy(lambda o: 1.0), priced(widths(16, 4))).opts is None


def test_one_lucky_turn_does_not_win():
    """The least time is lower, most turns are not."""
    assert not Match([0.5, 1.0, 1.0], [1.0, 1.0, 1.0]).won
    assert Match([0.5, 0.6, 0.5], [1.0, 1.0, 1.0]).won


def test_moves_lead_to_the_best_list():
    """Rounds go on while they gain: from 8 to 64 by doubling, and not beyond where it is slower."""
    def double(opts):
        return [(Opt("VECTOR", 0, 2 * o.arg),) for o in opts]

    bench = Bench(lambda o: abs(64 - sum(x.arg for x in o)) + 1.0)
    assert found(bench, Near(double)).opts == (Opt("VECTOR", 0, 64),)
    assert (Opt("VECTOR", 0, 128),) in bench.matches or len(bench.matches) > 3


def test_two_rounds_that_gain_nothing_end_the_search():
    """The second one takes the lists that were not among the cheapest of the first one."""
    lists = widths(*range(100, 100 + 10 * beam.PER_ROUND))
    bench = Bench(lambda o: 1.0)
    found(bench, priced(lists), width=1)
    assert len(bench.made) == 3 * beam.PER_ROUND  # the first round, and two more


def test_of_lists_as_fast_the_shorter_one_wins():
    long = (Opt("VECTOR", 0, 16), Opt("BLOCK", 0, 64))
    bench = Bench(lambda o: 1.0 if o == OWN else 0.5)
    assert found(bench, priced([long, *widths(16)]), width=3).opts == widths(16)[0]


def test_what_fails_is_lost_alone():
    """Without code, without an answer in time, or with other numbers."""
    fast, faster, wrong = widths(16, 32, 64)
    bench = Bench(
        lambda o: 1.0 / (1 + sum(x.arg for x in o)), failing=[faster], wrong=[wrong], slow=[()]
    )
    assert found(bench, priced([(), fast, faster, wrong]), width=3).opts == fast
    assert wrong in bench.finals


def test_what_costs_too_much_is_not_compiled():
    """Neither are lists after the cheapest ones of a round."""
    lists = widths(*range(100, 100 + 2 * beam.PER_ROUND))
    slow = (Opt("VECTOR", 0, 2),)
    bench = Bench(lambda o: 1.0)
    cost = dict(zip(lists, range(1000, 2000)))
    found(bench, priced([slow, *lists], lambda o: cost.get(o, 1e5)), width=1)
    assert slow not in bench.made and bench.made[: beam.PER_ROUND] == lists[: beam.PER_ROUND]


def test_equal_code_is_measured_once():
    class Same(Bench):
        def compiled(self, lists):
            return [str(OWN) for _ in lists]

    bench = Same(lambda o: 1.0)
    assert found(bench, priced(widths(16, 32))).opts is None and not bench.matches


def test_nothing_is_begun_when_time_is_up():
    bench = Bench(lambda o: 1.0)
    assert found(bench, priced(widths(16)), expired=lambda: True).opts is None
    assert not bench.made


# ---------------------------------------------------------------- moves
def kernel_of(graph, threads=2):
    context = Context(detect.host(), threads=threads)
    return plain_kernel(graph), context


GRAPHS = {
    "elementwise": lambda: uopc.param("a", (3, 16)).permute(1, 0).exp() * 2.0,
    "row-sums": lambda: uopc.param("a", (6, 16)).sum(axis=1),
    "matmul": lambda: uopc.param("a", (4, 6)) @ uopc.param("b", (6, 8)),
    "softmax": lambda: uopc.param("a", (5, 8)).softmax(),
    "padded": lambda: uopc.param("a", (5, 6)).pad(((1, 2), (2, 0))),
    "triangle": lambda: uopc.param("a", (9, 9)).tril(),
    "convolution": lambda: (
        uopc.param("a", (2, 3, 6, 5)).conv2d(uopc.param("b", (4, 3, 3, 3)), padding=1)
    ),
    "gather": lambda: uopc.param("a", (9, 5)).take(uopc.param("i", (6, 3), "int32"), 0).sum(1),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_neighbours_are_legal_and_others(name):
    kernel, context = kernel_of(GRAPHS[name]())
    moves = edits.Moves(kernel, context)
    own = lower_only(GRAPHS[name](), threads=2).kernels[0].arg.opts
    for opts in ((), own):
        near = [found.opts for found in moves.neighbours(opts)]
        assert len(near) >= 3 and opts not in near
        for other in near:
            assert kernel_opts.replayed(moves.base, other) is not None
            assert abs(len(other) - len(opts)) <= 1
    ops = {o.op for opts in ((), own) for n in moves.neighbours(opts) for o in n.opts}
    assert ops <= set(table.OPTS)


def test_a_search_begins_with_what_the_schedule_offers():
    """Sums that are no plain products may have a register tile: with and without it."""
    a, b = uopc.param("a", (60, 24)), uopc.param("b", (48, 24))
    kernel, context = kernel_of((a.reshape(60, 1, 24) - b).abs().sum(2), threads=1)
    starts = [start.opts for start in edits.Moves(kernel, context).starts()]
    assert starts[0] == () and len(set(starts)) == len(starts) == 3


def walked(moves, seed, steps=4):
    """A list after random moves, from the empty one."""
    rng = np.random.default_rng(seed)
    opts = ()
    for _ in range(steps):
        near = list(moves.neighbours(opts))
        if near:
            opts = near[rng.integers(len(near))].opts
    return opts


def numbers(*dims):
    return RNG.integers(-3, 4, dims).astype("float32")


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("name", GRAPHS)
def test_random_lists_keep_the_numbers(name, seed):
    """Machine code with random legal lists equals the interpreter on the tensor graph."""
    graph = GRAPHS[name]()
    kernel, context = kernel_of(graph)
    opts = walked(edits.Moves(kernel, context), seed)
    program = uopc.compile(graph.contiguous(opts), verify=True, threads=2)
    assert program.kernels[0].opts == opts
    arrays = {p.name: numbers(*p.shape).astype(p.dtype.name) for p in program.inputs}
    got, want = program(**arrays), interpreter.evaluate(graph, arrays)
    np.testing.assert_allclose(got, want, 2e-6, 2e-6, err_msg=str(opts))


def test_a_damaged_list_is_refused():
    kernel, context = kernel_of(GRAPHS["matmul"]())
    base = edits.Moves(kernel, context).base
    assert kernel_opts.replayed(base, (Opt("VECTOR", 0, 3),)) is None
    assert kernel_opts.replayed(base, (Opt("FOLD", 0, 2),)) is None


# ---------------------------------------------------------------- the cost
@pytest.mark.machine("laptop")
def test_the_cost_orders_what_differs_by_a_factor():
    """From the naive product to the schedule's, each step of docs/lab/gemm.md is cheaper."""
    a, b = uopc.param("a", (256, 256)), uopc.param("b", (256, 256))
    machine = detect.host()
    lanes = machine.lanes(32)
    steps = [
        (), (Opt("SWAP", 0, 1), Opt("VECTOR", 0, lanes)),
        (Opt("SWAP", 0, 1), Opt("VECTOR", 0, lanes), Opt("UPCAST", 0, 2)), None,
    ]  # fmt: skip
    costs = []
    for opts in steps:
        runs = lower_only(a @ b, threads=1, opts=opts).runs
        (kernel,) = next(r for r in runs if r.name == "optimize").after
        costs.append(cycles(outline_of(kernel), machine_of(machine)))
    assert costs == sorted(costs, reverse=True) and costs[0] > 20 * costs[-1]


# ---------------------------------------------------------------- compile
@pytest.fixture
def given():
    """Searches in this block use benches that the test makes: `given(make)`."""
    tokens, made = [], []

    def use(make):
        def begin(request, sizes):
            made.append((request, sizes))
            return make(request)

        tokens.append(schedules.searching.set(searcher.Session(begin, 2, 60.0)))
        return made

    yield use
    for token in reversed(tokens):
        schedules.searching.reset(token)


def prefers(*opts):
    """A bench on which one list is twice as fast as any other."""
    return lambda request: Bench(lambda o: 0.5 if o == opts else 1.0, start=())


X = numbers(24, 40)


def graph():
    return uopc.param("x", X.shape).permute(1, 0) * 2.0


class Favours(Bench):
    """A bench on which the first list that is timed is twice as fast as any other: the cost, which
    depends on the machine, decides which lists are. The schedule's list is not the first one."""

    def __init__(self):
        self.schedules = lower_only(graph(), threads=1).kernels[0].arg.opts
        self.winner = None
        super().__init__(lambda o: 0.5 if o == self.winner else 1.0, start=())

    def match(self, opts, samples):
        if self.winner is None and opts != self.schedules:
            self.winner = opts
        return super().match(opts, samples)


def test_the_winner_is_in_the_program(given):
    bench = Favours()
    begun = given(lambda request: bench)
    program = uopc.compile(graph(), threads=1, verify=False)
    assert program.kernels[0].opts == bench.winner not in ((), bench.schedules)
    np.testing.assert_array_equal(program(x=X), X.T * 2)
    assert len(begun) == 1 and begun[0][0].structure == "kernel"
    # The list replays to the same code.
    again = uopc.compile(graph().contiguous([*bench.winner]), threads=1).kernels[0]
    assert [u.op for u in again.uops.src] == [u.op for u in program.kernels[0].uops.src]


def test_a_kernel_is_searched_once(given):
    begun = given(prefers())
    first = uopc.compile(graph(), threads=1)
    assert uopc.compile(graph(), threads=1).stats["cache"] == "memory"
    uopc.compile((graph(), uopc.param("z", (7,)) + 1.0), threads=1)
    assert len(begun) == 2 and first.stats["cache"] == ""


def test_later_compiles_use_what_was_found(given):
    before = uopc.compile(graph(), threads=1)
    bench = Favours()
    begun = given(lambda request: bench)
    uopc.compile(graph(), threads=1)
    schedules.searching.set(None)
    after = uopc.compile(graph(), threads=1)
    assert len(begun) == 1
    assert before.kernels[0].opts != after.kernels[0].opts == bench.winner
    assert lower_only(graph(), threads=1).kernels[0].arg.opts == bench.winner


def test_opts_that_are_given_stay(given):
    begun = given(prefers(Opt("VECTOR", 1, 4)))
    asked = (Opt("VECTOR", 0, 8),)
    assert uopc.compile(graph().contiguous(asked)).kernels[0].opts == asked
    assert uopc.compile(graph(), optimize=False).kernels[0].opts == ()
    assert not begun


def test_a_list_that_this_kernel_refuses_is_not_used(given, monkeypatch):
    given(prefers())
    refused = (Opt("VECTOR", 0, 7),)
    row = beam.SearchResult(refused, 2.0, 1.0, "")
    monkeypatch.setattr(searcher, "search", lambda *_: row)
    program = uopc.compile(graph(), threads=1)
    np.testing.assert_array_equal(program(x=X), X.T * 2)
    assert refused[0] not in program.kernels[0].opts


def test_symbolic_sizes_are_measured_at_a_binding(given):
    begun = given(prefers())
    n = uopc.variable("n", 1, 1000)
    uopc.compile(uopc.param("x", (n,)) * 2.0)
    (row,) = tuned._rows.values()
    assert begun[0][1] == {"n": 256} and row.said.startswith("n=256 ")


def test_numbers_of_a_shared_kernel_are_those_of_a_call(given):
    begun = given(prefers())
    x = uopc.param("x", (30,))
    program = uopc.compile(((x * 2.0).contiguous() + 3.0).contiguous() * 5.0, threads=1)
    array = numbers(30)
    np.testing.assert_array_equal(program(x=array), (array * 2 + 3) * 5)
    ops = {u.op.name for request, _ in begun for u in request.graph.toposort()}
    assert "NUMBER" not in {o.upper() for o in ops} and begun


# ---------------------------------------------------------------- processes
@pytest.mark.machine("this")
def test_processes_compile_time_and_survive_a_crash():
    """A real bench: two processes, one of which is killed by a signal."""
    x = uopc.param("x", (64, 96)) @ uopc.param("y", (96, 48))
    (call,) = lower_only(x, threads=1).program.src
    request = uopc.compile(x, threads=1)._source.request
    alone = searcher.standalone(call.src[0], call, request)
    with Workers(2) as workers:
        bench = workers.bench(alone, {})
        first = bench.start()
        assert first.opts == lower_only(x, threads=1).kernels[0].arg.opts and first.seconds > 0
        vectors = [(Opt("VECTOR", 1, n),) for n in (4, 8)]
        lists = [first.opts, (), vectors[0], (Opt("FOLD", 0, 1),), vectors[1]]
        own, plain, vector, refused, _ = bench.compiled(lists)
        assert refused is None and len({own, plain, vector}) == 3 and own == first.code
        narrow, wide = vectors
        match = bench.match(narrow, 3)
        assert 1 <= len(match.own) == len(match.schedule) <= 3 and min(match.own) > 0
        assert bench.agrees(narrow)
        for process in workers.processes:
            os.kill(process._child.pid, signal.SIGKILL)
            process._child.wait()
        assert bench.match(narrow, 1) is None  # lost with its process
        assert bench.match(narrow, 1) is not None  # another one has taken over
        assert bench.match(wide, 1) is not None  # the new one compiles the list again
        assert not any("KeyError" in problem for problem in workers.problems)
        assert any("crashed" in problem for problem in workers.problems)


def test_a_kernel_that_no_process_takes_is_left_alone(monkeypatch):
    """No process answers: the program has the schedule's list, and the row says why."""
    monkeypatch.setattr("uopc.search.workers._SERVE", "raise SystemExit(3)  # {} {}")
    program = uopc.compile(graph(), threads=1, beam=1)
    np.testing.assert_array_equal(program(x=X), X.T * 2)
    (row,) = tuned._rows.values()
    assert row.opts is None and "crashed" in row.said


@pytest.mark.slow
@pytest.mark.machine("this")
@pytest.mark.parametrize("name", GRAPHS)
def test_a_real_search_keeps_the_numbers(name):
    searched = uopc.compile(GRAPHS[name](), threads=2, beam=1, verify=True)
    arrays = {p.name: numbers(*p.shape).astype(p.dtype.name) for p in searched.inputs}
    want = interpreter.evaluate(GRAPHS[name](), arrays)
    np.testing.assert_allclose(searched(**arrays), want, 2e-6, 2e-6)


def test_a_beam_that_is_no_number():
    for beam_width in (-1, "2", 1.5, True):
        with pytest.raises(UserError, match="beam"):
            uopc.compile(graph(), beam=beam_width)
