"""The tables of the schedules: every step and every threshold is in one, used, and documented."""

from __future__ import annotations

import collections
import inspect
import re

import pytest

from tests import ROOT
from uopc.passes.analysis import thresholds
from uopc.passes.optimize.schedule import cpu, gpu, gpu_thresholds

USES = collections.Counter(  # each word of the package
    word for p in (ROOT / "uopc").rglob("*.py") for word in re.findall(r"\w+", p.read_text("utf-8"))
)
ROWS = [  # a module, the name of one of its numbers, and the number's row
    (m, name)
    for m in (thresholds, gpu_thresholds)
    for name, value in vars(m).items()
    if type(value) in (int, float)
]


@pytest.mark.parametrize("schedule", [cpu, gpu], ids=lambda m: m.__name__.rpartition(".")[2])
def test_every_function_of_a_scheduler_alone_is_a_step_with_a_reason(schedule):
    alone = {
        f for _, f in inspect.getmembers(schedule, inspect.isfunction)
        if [p.annotation for p in inspect.signature(f).parameters.values()]
        in (["CpuScheduler"], ["GpuScheduler"])
    }  # fmt: skip
    steps = {s.run for s in schedule.STEPS}
    assert len(alone & steps) > 5
    called = "".join(inspect.getsource(f) for f in alone)
    assert not {f for f in alone - steps if f"{f.__name__}(" not in called}
    names = [s.name for s in schedule.STEPS]
    assert len(set(names)) == len(names) and all(s.why for s in schedule.STEPS)


def test_every_number_has_a_row():
    assert [getattr(m, name) for m, name in ROWS] == [row.value for row in thresholds.TABLE]


@pytest.mark.parametrize(
    "module, name, row", [(*r, row) for r, row in zip(ROWS, thresholds.TABLE)], ids=str
)
def test_a_threshold_is_used_and_measured(module, name, row):
    assert row.unit and row.meaning
    own = module.__name__.rpartition(".")[2]
    assert USES[name] > 1, f"nothing reads {own}.{name}"
    measured = (ROOT / "docs/lab/schedule.md").read_text("utf-8")
    assert f"| {row.workload} |" in measured, f"docs/lab/schedule.md has no row {row.workload!r}"
