"""Why values are stored and kernels are as they are: the ways that were compared, a line each, and
the kernels that are not joined, with the reasons."""

from __future__ import annotations

import re

import pytest

import uopc
from tests.machines import lowered_for
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.dump.stages import Dump
from uopc.dump.why import Why
from uopc.errors import UserError
from uopc.ir.core.arena import arena
from uopc.ir.nest.describe import outline_of
from uopc.passes.optimize.schedule import alternatives, cpu
from uopc.passes.optimize.schedule.scheduler import Step
from uopc.program.tuned import kernel_opts

CYCLES = re.compile(r"([\d,]+) cycles")


def given(name, *dims):
    return uopc.param(name, dims)


def two_convolutions():
    x, y = given("x", 1, 32, 20, 20), given("y", 1, 32, 20, 20)
    return x.conv2d(given("w", 48, 32, 3, 3), padding=1) + y.conv2d(
        given("v", 48, 32, 3, 3), padding=1
    )


def why(graph):
    return Why(Dump(lowered_for("laptop", graph, 1)))


def numbers(lines):
    return [int(m[1].replace(",", "")) for m in map(CYCLES.search, lines) if m]


def test_a_value_has_the_ways_that_were_compared():
    found = why(two_convolutions())
    stored = [d for d in found.dump.decisions if d.stored and d.ways]
    assert len(stored) == 1
    head, *ways = found.lines(stored[0].name)
    assert head.startswith(f"{stored[0].name} reduce (1, 48, 20, 20): stored: ")
    assert len(ways) >= 2 and all(["bytes from L2" in way for way in ways])
    taken = [way for way in ways if ": taken, " in way]
    assert len(taken) == 1 and numbers(taken)[0] <= min(numbers(ways)) / 0.97
    assert stored[0].explanation.count("cycles") == len(ways)


def test_a_value_that_no_cycles_decide_has_its_reason():
    found = why(given("x", 64, 64).softmax())
    sums = [d for d in found.dump.decisions if d.op == "reduce"]
    assert [found.lines(d.name) for d in sums] == [
        [f"{d.name} reduce (64): {d.explanation}"] for d in sums
    ]  # fmt: skip


def test_a_kernel_has_its_cycles_and_the_stored_values_that_it_reads():
    found = why(two_convolutions())
    first, second = found.run.kernels
    facts = machine_of(found.run.context.target)
    with arena():
        for kernel, call in zip(found.run.kernels, found.run.program.src):
            before = kernel_opts.before_opts(call.src[0], found.run.context)
            outline = outline_of(cpu.choose_opts(before, found.run.context)[1])
            assert numbers(found.of_kernel(kernel)[1:2]) == [round(cycles(outline, facts))]
    lines = found.lines("1")
    assert lines[0] == second.arg.name and lines == found.lines(second.arg.name)
    assert re.fullmatch(rf"  apart from {first.arg.name}: %\d+ is stored: .*cycles.*", lines[-1])
    assert not any(["apart" in line for line in found.of_kernel(first)])


def test_a_kernel_has_the_schedules_that_were_compared(monkeypatch):
    def lanes(s):
        s.vectorise(s.axes[0], s.pick("lanes", 1, 2, 8))

    monkeypatch.setattr(cpu, "STEPS", (Step("lanes", lanes, "first"),))
    monkeypatch.setattr(alternatives, "TRYING", 0.01)
    usual, two, eight = why(given("x", 1 << 16) * 2).lines("")[1:]
    assert usual.startswith("  schedule: the usual schedule: ") and "  schedule: lanes: 2: " in two
    assert eight.startswith("  schedule: lanes: 8: ") and eight.endswith("taken, saves 41%")
    assert numbers([eight])[0] < 0.7 * numbers([usual])[0]


def test_kernels_in_the_same_loops_say_why_they_are_not_joined():
    z = given("z", 8192)
    lines = why([(z * float(i + 2)).contiguous() for i in range(6)]).lines("")
    assert "4 stores are the most of one kernel" in "\n".join(lines)


@pytest.mark.parametrize("name, words", [
    ("%999", "no value %999 in the graph of place-stages"), ("r_9", "no kernel 'r_9'"),
])  # fmt: skip
def test_an_unknown_name_is_told(name, words):
    with pytest.raises(UserError, match=words):
        why(given("x", 8) + 1).lines(name)
