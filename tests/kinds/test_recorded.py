"""A sample of the recorded graphs that this repository carries: verdicts and kernels.

`python -m tests.conformance tests/conformance/selection` runs all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.conformance import corpus, report, tally, workers
from tests.conformance.runner import FAILED, Outcome

SELECTION = ROOT / "tests" / "conformance" / "selection"
PLACES = tuple(corpus.find(SELECTION))
EVERY = 40  # one case of so many is compiled and run, and at least one of each group
EVERY_COUNTED = 8  # one of so many is counted, which needs no machine code


def recorded_sample(every: int) -> list[corpus.Place]:
    places = [p for p in PLACES if p.kind == "graph" and p.nodes <= 400]
    first = {p.group: p for p in sorted(places, key=lambda p: -p.nodes)}  # the smallest of each
    return list(dict.fromkeys([*first.values(), *places[::every]]))


@pytest.mark.parametrize("place", recorded_sample(EVERY), ids=lambda p: f"{p.group}-{p.id[:12]}")
@pytest.mark.few(6)
def test_recorded_graph(place: corpus.Place) -> None:
    out = workers.run_one(place, None)
    assert out.verdict != FAILED, report.failure_line(out)


@pytest.mark.slow
def test_kernels_are_no_more_than_recorded() -> None:
    """But where the list of exceptions says why; and fewer in all."""
    outcomes = [_counted(p) for p in recorded_sample(EVERY_COUNTED)]
    known = report.exceptions()
    more = [o for o in report.more(outcomes) if o.id.partition(".")[0] not in known]
    assert not more, [f"{o.kernels} > {o.expected_kernels} {o.group}/{o.id}" for o in more]
    pairs = [(o.kernels, o.expected_kernels) for o in outcomes if o.expected_kernels is not None]
    assert sum(ours for ours, _ in pairs) < sum(theirs for _, theirs in pairs)


def _counted(place: corpus.Place) -> Outcome:
    case, _ = corpus.read_graph(place)
    counted = tally.count_graph(case)
    out = Outcome(place.id, place.test, place.group, expected_kernels=case["kernels"])
    out.kernels, out.default_flags = counted.kernels, not case.get("flags")
    return out


def test_each_group_is_there() -> None:
    groups = {p.group for p in PLACES}
    assert {"quirks", "excess_precision", "graphs_only", "fuzz", "oob", "wide"} <= groups
    size = sum(path.stat().st_size for path in SELECTION.rglob("*") if path.is_file())
    assert size < 30 << 20


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    """Failures, the tally and the last line; damaged files fail and end nothing."""
    group = tmp_path / "group"
    group.mkdir()
    case = {
        "id": "a.b", "test": "t", "kernels": 1, "outs": [1],
        "nodes": [
            {"id": 0, "op": "BUFFER", "dtype": "float32", "shape": [3], "src": [],
             "arg": {"slot": 0, "size": 3, "device": "0", "init": "data"}},
            {"id": 1, "op": "NEG", "dtype": "float32", "shape": [3], "src": [0]},
        ],
    }  # fmt: skip
    (group / "cases.jsonl").write_text(json.dumps(case) + '\n{"id": 3\n', "utf-8")
    (tmp_path / "short.zip").write_bytes(b"PK\3\4")
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "tests.conformance", str(tmp_path), "--json", str(results)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    assert run.returncode == 1, run.stderr
    failed = [line.split(" ")[1] for line in lines[:2]]
    assert failed == ["group/cases.jsonl:2", "short/short.zip:1"]
    assert lines[-1] == "1 passed, 2 failed, 0 by rule"
    assert lines[-3].startswith("kernels (default flags): 1, recorded 1, over 1 cases")
    outcome = json.loads(results.read_text("utf-8"))[0]
    assert (outcome["id"], outcome["verdict"], outcome["kernels"]) == ("a.b", "passed", 1)
    assert set(outcome["seconds"]) >= {"build", "compile", "run"}


def test_missing_directory_fails(tmp_path: Path) -> None:
    (place,) = corpus.find(tmp_path / "nowhere")
    assert workers.run_one(place, None).verdict == FAILED
