"""uopc cost: a row per kernel whose parts are those of the cost, beside measured times, and plain
words for wrong usage."""

from __future__ import annotations

import json

import pytest

import uopc
from tests.cli.conftest import good
from uopc import config
from uopc.cli import bench
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.ir.core.arena import arena
from uopc.ir.nest.describe import outline_of
from uopc.passes.optimize.schedule import cpu
from uopc.program.backend import backend_of
from uopc.program.request import lower, prepare
from uopc.program.tuned import kernel_opts

TEXT = """
import uopc
n = uopc.variable("n", 1, 4096)
x, y = uopc.param("x", (n, 64)), uopc.param("y", (300, 200))
sized = x.exp().sum(axis=1)
graph = ((y @ uopc.param("w", (200, 100))).softmax(), y * 2.5, uopc.param("z", (300, 200)) * 1.5)
program = uopc.compile(uopc.param("v", (64, 64)).exp(), threads=2)
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.py").write_text(TEXT, "utf-8")
    return "model.py"


def rows(run, *arguments):
    return json.loads(good(run("cost", *arguments, "--json")))["kernels"]


def test_the_cycles_are_those_of_the_kernels_with_the_opts_of_the_schedule(run, model):
    found = rows(run, f"{model}:graph", "--cpu", "x86-64-v3")
    assert [(r["name"], r["launches"]) for r in found][2:] == [("E_60000", 2)]
    y = uopc.param("y", (300, 200))
    graph = ((y @ uopc.param("w", (200, 100))).softmax(), y * 2.5)
    target = backend_of("cpu").target("cpu", "x86-64-v3")
    low = lower(prepare(graph, None, True, 1, None, config.current()), target)
    with arena():
        for call, row in zip(low.program.src, found):
            kernel = kernel_opts.before_opts(call.src[0], low.context)
            outline = outline_of(cpu.choose_opts(kernel, low.context)[1])
            assert row["cycles"] == pytest.approx(cycles(outline, machine_of(target)))
    for r in found:
        parts = r["arithmetic"] + sum([m["cycles"] for m in r["traffic"]]) + r["pages"]
        parts += r["stores"] + r["launch"]
        assert 0 < max(r["arithmetic"], r["launch"]) <= r["cycles"] <= parts * 1.001


def test_a_table_with_the_measured_times(run, model):
    lines = good(run("cost", f"{model}:program", "--measure")).splitlines()
    assert "1 thread: 1 kernel in 1 launch" in lines[0]
    assert lines[1].split()[:8] == [
        "kernel", "launches", "cycles", "us", "arithmetic", "L2", "L3", "memory"
    ]  # fmt: skip
    name, *_, measured, ratio = lines[2].split()
    us = float(lines[2].split()[3])
    assert name == "E_4096" and float(ratio) == pytest.approx(us / float(measured), abs=0.02)


def test_sizes_and_processors_change_the_prediction(run, model):
    few, many = [rows(run, f"{model}:sized", "--set", f"n={n}")[0]["cycles"] for n in (64, 4000)]
    assert 20 < many / few < 100
    old, new = [rows(run, f"{model}:graph", "--cpu", f"x86-64-v{v}")[0] for v in (2, 3)]
    assert old["arithmetic"] > 1.5 * new["arithmetic"]


@pytest.mark.parametrize("arguments, words", [
    ((), "expected SOURCE, or --random N"),
    (("model.py", "--random", "3"), "expected SOURCE, or --random N"),
    (("model.py:graph", "--cpu", "z80"), "unknown processor 'z80'"),
    (("model.py:graph", "--cpu", "x86-64", "--measure"), "leave out --cpu"),
    (("model.py:graph", "--threads", "0"), "--threads: at least 1"),
    (("--random", "0"), "--random: at least 1"),
    (("--random", "3", "--json"), "--random takes no option but --seed"),
])  # fmt: skip
def test_wrong_usage_is_told_in_words(run, model, arguments, words):
    found = run("cost", *arguments)
    assert found.code == 2 and words in found.err


def test_bad_input_is_told_in_words(run, model):
    for arguments, words in (
        (("none.py",), "none.py: no such file"),
        ((f"{model}:sized", "--set", "m=3"), "--set: unknown size 'm'"),
    ):
        found = run("cost", *arguments)
        assert found.code == 1 and words in found.err


def test_random_runs_the_benchmark_with_its_numbers(run, monkeypatch):
    asked = []
    monkeypatch.setattr(bench, "script", lambda *given: asked.append(given[:2]) or 0)
    assert run("cost", "--random", "3", "--seed", "5").code == 0
    assert asked == [("cost", ["5:8"])]
