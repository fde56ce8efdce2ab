"""A sample of the recorded graphs, rendered for two parts, assembled, and run on the PTX machine.

`python -m tests.ptx DIR` runs as many as there is time for.
"""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.conformance import workers
from tests.conformance.runner import FAILED, Outcome
from tests.ptx.__main__ import is_too_large, judged, sample

SELECTION = ROOT / "tests" / "conformance" / "selection"
GPUS = ("sm_80", "sm_90a")
COUNT = 48


@pytest.mark.slow
@pytest.mark.parametrize("part", GPUS)
def test_recorded_graphs(part):
    places = sample(SELECTION, None)[GPUS.index(part) :: len(GPUS)][: COUNT // len(GPUS)]
    assert len({p.group for p in places}) >= 8
    outcomes = [judged(workers.run_one(p, f"cuda:{part}")) for p in places]
    bad = [f"{o.group}/{o.id}: {o.reason}" for o in outcomes
           if o.verdict == FAILED and not is_too_large(o)]  # fmt: skip
    assert not bad, "\n".join(bad)
    assert sum(bool(o.notes["kernels"]) for o in outcomes) >= len(outcomes) // 2


def test_spills_that_are_not_expected_fail():
    """Of all registers, or many: not the word that ptxas stores to keep an SM full."""
    for spills, registers, fails in ((0, 255, 0), (8, 32, 0), (8, 255, 1), (64, 128, 1)):
        figures = {"figures": [{"name": "k", "spills": spills, "registers": registers}]}
        out = judged(Outcome("0123", "test", "group", notes=figures))
        assert (out.verdict == FAILED) == bool(fails)


def test_what_cannot_be_read_fails(tmp_path):
    """A corpus that is not there must not look like one that passed."""
    (place,) = sample(tmp_path / "missing", None)
    outcome = workers.run_one(place, "cuda:sm_80")
    assert outcome.verdict == FAILED and not is_too_large(outcome)
    assert "no such file" in outcome.reason
