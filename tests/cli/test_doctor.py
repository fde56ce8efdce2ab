"""`uopc doctor`: what it says where all is well, and where something is not."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest

import uopc
from tests import machines
from tests.standin import module
from uopc.backends import detect
from uopc.cli import doctor
from uopc.cli import main as cli
from uopc.target import core_of


def by_name(findings):
    return {f.name: f for f in findings}


def test_this_machine(capsys):
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    for name in ("llvmlite", "llvm targets", "cpu program", "ptx", "nvidia driver"):
        assert name in text
    assert "x86" in text or "aarch64" in text
    assert "nvptx64" in text


def test_json(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["name"] for r in rows] == [row[0] for row in doctor._CHECKS]
    assert {r["status"] for r in rows} <= {"ok", "missing", "failed"}
    assert all(r["detail"] for r in rows)


@pytest.mark.parametrize("cpu, source", [("znver3", "described"), ("unknown", "presumed")])
def test_facts_of_a_machine(cpu, source, monkeypatch, tmp_path):
    """One line for each group, with where the facts come from."""
    monkeypatch.setenv("UOPC_CACHE_DIR", str(tmp_path))
    own = dataclasses.replace(
        machines.MACHINES["laptop"].target, cpu=cpu, figures=core_of(cpu).figures
    )
    monkeypatch.setattr(detect, "this_machine", lambda: own)
    looks = doctor._clock, doctor._vectors, doctor._units, doctor._caches
    clock, vectors, units, caches = [look() for look in looks]
    assert clock.startswith(f"{source}: 4 GHz")
    assert vectors.startswith(f"16 of 32 bytes; {source}: 64 bytes of multiply-adds a cycle")
    assert units.startswith(f"{source}: {6 if cpu == 'znver3' else 4} instructions a cycle")
    assert f"L3 4096 KiB, beyond it 12.8 cycles a line, {own.figures.memory_alone:.1f}" in caches


def test_with_a_device(capsys):
    with module.installed("sm_90a"):
        found = by_name(doctor.examine())
        assert cli.main(["doctor", "--device", "cuda"]) in (0, 1)
    assert found["cuda program"].detail == "compiled and ran; the result is correct"
    assert found["cuda device"].detail == "cuda:0 Stand-in (9.0)"
    assert found["nvidia driver"].detail == "CUDA 13.0"


def test_without_a_device():
    with module.installed("sm_80") as driver:
        driver.devices = 0
        found = by_name(doctor.examine())
        assert found["cuda device"].status == "missing"
        assert "there are none" in found["cuda program"].detail
        assert doctor.exit_code(list(found.values()), "cpu") == 0
        assert doctor.exit_code(list(found.values()), "cuda") == 1


def test_a_defect_is_reported_and_the_rest_goes_on(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no memory for code")

    monkeypatch.setattr(uopc, "compile", broken)
    findings = doctor.examine()
    assert len(findings) == len(doctor._CHECKS)
    assert by_name(findings)["cpu program"].detail == "RuntimeError: no memory for code"
    assert doctor.exit_code(findings, "cpu") == 1


def test_usage():
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor", "--device", "tpu"])
    assert caught.value.code == 2


def test_what_cannot_be_asked_is_missing(monkeypatch):
    """One line says how to install pycuda; those that need it repeat no error."""
    monkeypatch.delitem(sys.modules, "pycuda", raising=False)
    monkeypatch.setattr(doctor.util, "find_spec", lambda name: None)
    found = by_name(doctor.examine())
    assert "pip install" in found["pycuda"].detail
    for name in ("nvidia driver", "cuda device", "cuda program"):
        assert found[name].detail == "not checked, because pycuda is missing"
        assert found[name].status == "missing"
