"""Decisions with alternatives: the cheapest kernel stays, if it is clearly cheaper and pays."""

from __future__ import annotations

import pytest

import uopc
from tests.machines import lowered_for
from uopc.ir.core.arena import arena
from uopc.passes.optimize.schedule import alternatives
from uopc.passes.optimize.schedule.cpu import CpuScheduler
from uopc.passes.optimize.schedule.scheduler import Step
from uopc.program.tuned import kernel_opts

ASKED: list[tuple[str, int]] = []


def pick_lanes(s):
    lanes = s.pick("lanes", 1, 2, 8)
    ASKED.append(("lanes", lanes))
    s.vectorise(s.axes[0], lanes)


def pick_copies(s):
    copies = s.pick("copies", 1, 4)
    ASKED.append(("copies", copies))
    s.copy(s.axes[0], copies)


STEPS = (Step("lanes", pick_lanes, "first"), Step("copies", pick_copies, "after"))


def chosen(size, steps=STEPS):
    low = lowered_for("laptop", uopc.param("x", (size,)) * 2, 1)
    with arena():
        kernel = kernel_opts.before_opts(low.program.src[0].src[0], low.context)
        s = alternatives.choose(steps, CpuScheduler(kernel, low.context))
        ASKED.clear()
        alternatives.choose(steps, CpuScheduler(kernel, low.context))
        return [str(o) for o in s.opts]


def test_the_cheapest_option_of_each_decision_stays():
    assert chosen(1 << 16)[0] == "VECTOR(0, 8)"


def test_steps_run_again_from_the_one_that_asks():
    chosen(1 << 16)
    assert ASKED[:5] == [("lanes", 1), ("copies", 1), ("lanes", 2), ("copies", 1), ("lanes", 8)]
    assert ASKED.count(("copies", 4)) == 1 and len(ASKED) == 7


def test_a_kernel_of_nanoseconds_is_not_searched():
    assert chosen(64) == []
    assert ASKED == [("lanes", 1), ("copies", 1)]


def test_the_first_option_stays_unless_another_is_clearly_cheaper(monkeypatch):
    monkeypatch.setattr(alternatives, "CLEARLY", 0.01)
    assert chosen(1 << 16) == []


@pytest.mark.parametrize("runs, asked", [(1e9, 7), (0.0, 2)])
def test_alternatives_cost_less_than_they_save(monkeypatch, runs, asked):
    monkeypatch.setattr(alternatives, "RUNS", runs)
    chosen(1 << 16)
    assert len(ASKED) == asked
