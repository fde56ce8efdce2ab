"""The tables of the schedules: every step and every threshold is in one, used, and documented."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from uopc.passes.optimize.schedule import cpu, gpu, gpu_thresholds, thresholds

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {p: p.read_text() for p in (ROOT / "uopc").rglob("*.py")}
MODULES = (thresholds, gpu_thresholds)
ROWS = [(m, name) for m in MODULES for name in m.TABLE]


@pytest.mark.parametrize("schedule", [cpu, gpu], ids=lambda m: m.__name__.rpartition(".")[2])
def test_every_function_of_a_plan_is_a_step_with_a_reason(schedule):
    of_plans = {
        f for _, f in inspect.getmembers(schedule, inspect.isfunction)
        if list(inspect.signature(f).parameters) == ["plan"]
    }  # fmt: skip
    assert {s.run for s in schedule.STEPS} <= of_plans
    called = "".join(inspect.getsource(f) for f in of_plans)
    outside = {f for f in of_plans - {s.run for s in schedule.STEPS} if f.__name__ not in called}
    assert not outside, "neither a step nor called by one"
    names = [s.name for s in schedule.STEPS]
    assert len(set(names)) == len(names) and all(s.why for s in schedule.STEPS)


@pytest.mark.parametrize("module, name", ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_threshold_is_used_and_measured(module, name):
    row = module.TABLE[name]
    assert row.value == getattr(module, name) and row.unit and row.meaning
    own = module.__name__.rpartition(".")[2]
    uses = sum(len(re.findall(rf"(?<!\w){name}\b", text)) for text in SOURCES.values())
    assert uses > 1, f"nothing reads {own}.{name}"
    measured = (ROOT / "docs/lab/schedule.md").read_text()
    assert f"| {row.workload} |" in measured, f"docs/lab/schedule.md has no row {row.workload!r}"
