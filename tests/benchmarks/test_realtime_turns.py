"""Turns of `benchmarks/kernels.py --realtime`: a peer runs before all else, and only then."""

from __future__ import annotations

import os
import sys

import pytest

from tests import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import kernels


def policies(process: int) -> set[int]:
    """The scheduling policies of the threads of a process."""
    return {os.sched_getscheduler(int(t)) for t in os.listdir(f"/proc/{process}/task")}


@pytest.mark.skipif(not kernels.may_run_first(), reason="no right to run before other processes")
def test_a_peer_runs_first_in_its_turn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    answer = kernels.Worker._answer

    def watched(worker: kernels.Worker, *patience: float) -> dict[str, object]:
        if hasattr(worker, "process"):
            seen.append(policies(worker.process.pid))
        return answer(worker, *patience)

    monkeypatch.setattr(kernels.Worker, "_answer", watched)
    worker = kernels.Worker("numpy", 2, cpu=False, realtime=True)
    try:
        file = os.devnull
        assert "error" not in worker.ask(prepare="tiny_8", file=file)
        assert len(worker.ask(burst=0.01)["samples"]) >= 3
        assert policies(worker.process.pid) == {os.SCHED_OTHER}
    finally:
        worker.stop()
    assert seen[1:] == [{os.SCHED_OTHER}, {os.SCHED_FIFO}]


def test_without_the_right_to_run_first_nothing_is_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refused, raising=False)
    with pytest.raises(SystemExit) as ended:
        kernels.main(["--realtime", "--workloads", "tiny_8", "--peers", "numpy"])
    assert ended.value.code == 2
    assert "does not let this process run before others" in capsys.readouterr().err


def test_cpu_time_and_turns_before_others_exclude_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        kernels.main(["--realtime", "--cpu"])
    assert "not allowed with argument" in capsys.readouterr().err
