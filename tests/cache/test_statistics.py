"""Hit rates: each cache is asked in a scenario that runs twice, and must have what it is for."""

from __future__ import annotations

import pytest

import uopc
from uopc.cache import statistics
from uopc.cli import main as cli
from uopc.ir.core import arena


@pytest.fixture(autouse=True)
def empty():
    uopc.cache.clear()


def graphs(n):
    """A part of a model, a convolution, a sum cut at a constant, and slices put together."""
    x, w = uopc.param("x", (n, 32)), uopc.param("w", (32, 32))
    image, k = uopc.param("image", (1, 2, 8, 8)), uopc.param("k", (2, 2, 3, 3))
    i, y = uopc.arange(200), uopc.param("y", (200,))
    return [
        (x @ w).softmax(axis=-1).layer_norm(), image.conv2d(k, padding=1).relu(),
        (i < 30).where(y.sin(), y * 2).sum(), uopc.cat(y[:100], y[150:], axis=0) * n,
    ]  # fmt: skip


# Memos that hold answers for other reasons, or for graphs that this scenario does not have.
ONCE_EACH = {
    "memo ir.verify.nodes.misfit",  # equal nodes of several passes, where every pass is verified
    "memo passes.kernels.kernel_calls._flat",  # calls of one kernel; here each has its own
}


def test_every_cache_has_what_a_scenario_asks_twice():
    found = {r.cache: r for r in statistics.rates(lambda: [uopc.compile(graphs(8)) for _ in "ab"])}
    assert (found["programs in memory"].asked, found["programs in memory"].hits) == (2, 1)
    memos = [r for r in found.values() if r.cache.startswith("memo ")]
    assert len(memos) > 15 and sum([r.asked for r in memos]) > 300
    poor = [r for r in memos if r.asked >= 30 and r.rate < 0.4 and r.cache not in ONCE_EACH]
    assert poor == []
    total = sum([r.hits for r in memos]) / sum([r.asked for r in memos])
    assert total > 0.5, total


def test_a_program_with_one_other_kernel_takes_the_rest_from_those_before():
    uopc.compile(graphs(8))
    known = {r.cache: r for r in statistics.rates(lambda: uopc.compile(graphs(8)[:3]))}
    kernels = known["kernels of other programs"]
    assert kernels.asked > 2 and kernels.rate == 1.0
    assert known["programs in memory"].hits == 0


def test_programs_on_disk_are_found_by_the_next_process(tmp_path):
    with uopc.options(cache_dir=str(tmp_path), programs=0):
        first = {r.cache: r for r in statistics.rates(lambda: uopc.compile(graphs(8)[2]))}
        again = {r.cache: r for r in statistics.rates(lambda: uopc.compile(graphs(8)[2]))}
    assert first["programs on disk"].hits == 0
    assert again["programs on disk"].asked > 0 and again["programs on disk"].rate == 1.0


def test_counting_ends_and_keeps_nothing():
    with arena.counted_memos() as memos:
        uopc.compile(graphs(8)[2])
    asked = [m.hits + m.misses for m in memos]
    uopc.compile(graphs(9)[2])
    assert asked == [m.hits + m.misses for m in memos] and not any(memos)


def test_equal_nodes_are_made_once():
    def nodes():
        return [u for g in graphs(8) for u in g.toposort()]

    assert list(map(id, nodes())) != [] and all(a is b for a, b in zip(nodes(), nodes()))


def test_the_command_prints_the_rates(tmp_path, capsys):
    text = "import uopc\ny = uopc.param('y', (77,)).exp() * 3\n"
    (tmp_path / "model.py").write_text(text, "utf-8")
    assert cli.main(["cache", "rates", str(tmp_path / "model.py")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["cache", "asked", "hits", "rate"]
    assert ["programs", "in", "memory", "2", "1", "50%"] in lines
    assert any(line[0] == "memo" and line[-1].endswith("%") for line in lines[1:])
