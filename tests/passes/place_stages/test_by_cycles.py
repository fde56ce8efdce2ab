"""Storage by the cycles of the kernels that result: no placement by hand is predicted to be much
faster, sums keep their tiles, equal programs are asked once, and results stay."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import uopc
from tests import machines
from uopc import UOp
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.ir.core.arena import arena
from uopc.ir.core.ops import Ops
from uopc.ir.nest.describe import outline_of
from uopc.passes.optimize.schedule import cpu
from uopc.passes.place_stages import by_cycles
from uopc.program.tuned import kernel_opts

MOST_RATIO = 1.1  # times the best placement by hand: storage also fixes the order of axes
Mark = Callable[[UOp], UOp]


def given(name: str, *dims: int) -> UOp:
    return uopc.param(name, dims)


def conv(x: UOp, out: int, name: str, size: int = 3) -> UOp:
    return x.conv2d(given(name, out, x.shape[1], size, size), padding=size // 2)


# ---------------------------------------------------------------- graphs with values to mark
def two_convolutions(mark: Mark) -> UOp:
    x, y = given("x", 1, 32, 20, 20), given("y", 1, 32, 20, 20)
    return mark(conv(x, 48, "w")) + mark(conv(y, 48, "v"))


def squares(mark: Mark) -> UOp:
    x = given("x", 1, 1, 1, 6000)
    a, b = [mark(x.conv2d(given(n, 65, 1, 1, 256), stride=(1, 80))) for n in "ab"]
    return a * a + b * b


def gated(mark: Mark) -> UOp:
    x = given("x", 1, 24, 13, 13)
    return mark(conv(x, 16, "w", 1).gelu()) * mark(conv(x, 16, "v"))


def head(mark: Mark) -> UOp:
    x = given("x", 1, 32, 13, 13)
    a, b = [mark((lambda v: v * v.sigmoid())(conv(x, 32, n))) for n in "ab"]
    parts = conv(b, 4, "c", 1), conv(b, 1, "d", 1).sigmoid(), conv(a, 1, "e", 1).sigmoid()
    return uopc.cat(*parts, axis=1).reshape(1, 6, -1).permute((0, 2, 1))


def resized(mark: Mark) -> UOp:
    x = mark(given("x", 1, 24, 16, 16).sigmoid()).reshape(1, 24, 16, 1, 16, 1)
    return conv(x.expand(1, 24, 16, 2, 16, 2).reshape(1, 24, 32, 32), 24, "w")


def repeated(mark: Mark) -> UOp:
    """A product whose factor is an image with each element four times."""
    x = mark(given("x", 1, 31, 20, 10).sin()).reshape(1, 31, 20, 1, 10, 1)
    return conv(mark(x.expand(1, 31, 20, 2, 10, 2).reshape(1, 31, 40, 20)), 8, "w", 1)


def product_of_functions(mark: Mark) -> UOp:
    y = mark((given("x", 100, 64) @ given("w", 64, 120)).tanh())
    return y.permute((1, 0)) @ given("v", 100, 60)


def softplus(x: UOp) -> UOp:
    return x.exp().log1p()


def distances(mark: Mark) -> UOp:
    """Sums that are no products compute a function of their operand again in each term."""
    a = given("a", 100, 40) @ given("v", 40, 13)
    b = mark(softplus(given("b", 97, 31) @ given("w", 31, 13)))
    return ((a.reshape(100, 1, 13) - b.reshape(1, 97, 13)) ** 2).sum(axis=2)


def joined(mark: Mark) -> UOp:
    """A product packs no parts of a CAT."""
    x = given("x", 61, 31)
    parts = [mark(softplus(x @ given(f"w{n}", 31, n))) for n in (17, 64, 200)]
    return uopc.cat(*parts, axis=1) @ given("v", 281, 127)


def experts(mark: Mark) -> UOp:
    """Functions of a row, which the columns of products read, have no vectors there."""
    x = given("x", 96, 96)
    g = mark((x @ given("g", 96, 2)).softmax(axis=-1))
    parts = [(x @ given(f"w{i}", 96, 48)).tanh() * g[:, i : i + 1] for i in range(2)]
    return parts[0] + parts[1]


GRAPHS = (
    two_convolutions, squares, gated, head, resized, repeated, product_of_functions, distances,
    joined, experts,
)  # fmt: skip


def placements(make: Callable[[Mark], UOp]) -> list[UOp]:
    """A graph with no value stored by hand, with each alone, and with all."""
    count = 0

    def marked(which: set[int] | None) -> UOp:
        nonlocal count
        count = 0

        def mark(u: UOp) -> UOp:
            nonlocal count
            count += 1
            return u.contiguous() if which is None or count in which else u

        return make(mark)

    marked(set())
    return [marked(set()), *[marked({i + 1}) for i in range(count)], marked(None)]


def predicted(graph: UOp, machine: str) -> float:
    """The predicted cycles of the kernels of a graph."""
    low = machines.lowered_for(machine, graph)
    facts, total = machine_of(low.context.target), 0.0
    with arena():
        for call in low.program.src:
            kernel = kernel_opts.before_opts(call.src[0], low.context)
            total += cycles(outline_of(cpu.choose_opts(kernel, low.context)[1]), facts)
    return total


@pytest.mark.parametrize("machine", ["laptop", "server"])
@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
@pytest.mark.few(3)
def test_no_placement_by_hand_is_predicted_to_be_faster(
    make: Callable[[Mark], UOp], machine: str
) -> None:
    own, *others = [predicted(graph, machine) for graph in placements(make)]
    assert own <= MOST_RATIO * min(others)


@pytest.mark.parametrize("make", [two_convolutions, squares, head], ids=lambda f: f.__name__)
def test_each_large_sum_has_a_kernel(make: Callable[[Mark], UOp]) -> None:
    """So each has a tile, and copies of vectors beside each other."""
    low = machines.lowered_for("laptop", make(lambda u: u))
    assert len(low.calls) >= 2
    assert any("UPCAST" in str(k.arg.opts) for k in low.kernels)


def test_functions_of_a_row_are_stored_for_its_columns() -> None:
    low = machines.lowered_for("server", experts(lambda u: u))
    assert any(k.arg.name.startswith("r_96_2_2") for k in low.kernels)


def test_the_ways_that_were_compared_are_kept_with_their_costs() -> None:
    context = machines.lowered_for("laptop", two_convolutions(lambda u: u)).context
    found = [c for u, c in context.compared.items() if u.op is not Ops.SINK]
    assert found
    for c in found:
        taken = c.ways[c.taken].cost.cycles
        assert taken <= min([way.cost.cycles for way in c.ways]) / (1 - by_cycles.GAIN)
        assert len(c.ways) > 1 and c.ways[c.taken].cost.traffic[0].nbytes > 0


def test_equal_blocks_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    ask = by_cycles.Choice.decide
    monkeypatch.setattr(by_cycles.Choice, "decide", lambda c: (asked.append(c), ask(c))[1])
    counts = []
    for n in (2, 6):
        x = given("x", 1, 16, 20, 20)
        for i in range(n):
            x = (conv(x, 16, f"w{i}") + conv(x, 16, f"v{i}", 1)).relu()
        machines.lowered_for("laptop", x)
        counts.append(len(asked))
        asked.clear()
    assert 0 < counts[1] <= counts[0] + 1


def test_kernels_that_were_asked_are_scheduled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduled: list[UOp] = []
    choose = cpu.choose_opts
    monkeypatch.setattr(cpu, "choose_opts", lambda k, c: (scheduled.append(k), choose(k, c))[1])
    machines.lowered_for("laptop", squares(lambda u: u))
    assert len(scheduled) == len(set(scheduled)) > 2


def test_small_graphs_and_single_sums_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_cycles.Choice, "decide", lambda c: pytest.fail("asked"))
    x = given("x", 64, 256)
    single = (x @ given("w", 256, 512)).relu()
    small = given("a", 4, 4) @ given("b", 4, 4) + given("c", 4, 4) @ given("d", 4, 4)
    for graph in (x.softmax(), x.layer_norm(), single, small):
        machines.lowered_for("laptop", graph)


# ---------------------------------------------------------------- the same results
# From two images of as many channels, an image of as many; `i` names its weights.
IMAGES: tuple[Callable[[UOp, UOp, int], UOp], ...] = (
    lambda a, b, i: conv(a, a.shape[1], f"w{i}") + conv(b, a.shape[1], f"v{i}", 1),
    lambda a, b, i: conv(a.sigmoid(), a.shape[1], f"w{i}"),
    lambda a, b, i: conv(a, a.shape[1], f"w{i}").tanh() * conv(b, a.shape[1], f"v{i}"),
    lambda a, b, i: a.max_pool2d(3, 1, 1) + conv(b, a.shape[1], f"w{i}"),
    lambda a, b, i: a * conv(b, a.shape[1], f"w{i}").mean(axis=(2, 3), keepdims=True).sigmoid(),
    lambda a, b, i: beside(conv(a, a.shape[1], f"w{i}"), b),
    lambda a, b, i: conv(a, a.shape[1], f"w{i}").flip(3) - b,
)


def beside(a: UOp, b: UOp) -> UOp:
    """Half of the channels of two images each."""
    c = a.shape[1]
    return uopc.cat(a, b, axis=1)[:, c // 2 : c // 2 + c]


def drawn(seed: int) -> UOp:
    """A graph of convolutions, products, windows and functions whose values are in doubt."""
    r = random.Random(seed)
    c, n = r.choice((8, 12)), r.choice((10, 16, 17))
    values = [given("x0", 1, c, n, n), given("x1", 1, c, n, n)]
    for i in range(r.randint(2, 5)):
        a, b = r.choice(values[-2:]), r.choice(values)
        values.append(r.choice(IMAGES)(a, b, i))
    return values[-1]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.few(6)
def test_results_are_those_without_optimisation(seed: int) -> None:
    graph = drawn(seed)
    program, plain = uopc.compile(graph), uopc.compile(graph, optimize=False)
    rng = np.random.default_rng(seed)
    arrays = {i.name: rng.standard_normal(i.shape).astype("f4") * 0.3 for i in program.inputs}
    np.testing.assert_allclose(program(**arrays), plain(**arrays), rtol=1e-3, atol=1e-4)
