"""The benchmark for NVIDIA devices does what it says, on a stand-in and at tiny sizes."""

from __future__ import annotations

import json
import sys

import pytest

from tests import ROOT
from tests.standin import module
from uopc import target
from uopc.backends.nvptx.ptxas import Usage

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_the_benchmark_runs(scripts, tmp_path, capsys):
    import gpu

    out = tmp_path / "gpu.json"
    with module.installed("sm_90a"):
        chosen = ["--workloads", "reduce,soft,gemm"]
        assert gpu.main(["--small", "--rounds", "1", "--out", str(out), *chosen]) == 0
    found = json.loads(out.read_text("utf-8"))
    rows = {r["name"]: r for r in found["rows"]}
    assert {"copy", "reduce", "softmax", "gemm f32 32", "gemm bf16 32"} <= rows.keys()
    assert found["launches"].keys() == {"1", "2", "3", "4", "8"}
    assert all(r["uopc"] >= 0 and r["limit"] > 0 for r in rows.values())
    printed = capsys.readouterr().out
    assert "| gemm f32 32 |" in printed and "Stand-in, copy" in printed


def test_workloads_count_what_they_say(scripts):
    import gpu_workloads

    found = {w.name: w for w in gpu_workloads.workloads()}
    assert found["copy"].bytes == 2 * 4 * (1 << 26)
    assert found["gemm bf16 4096"].flops == 2 * 4096**3
    assert found["gemm bf16 4096"].bytes == 3 * 2 * 4096**2
    assert found["attention"].flops == 4 * 8 * 16 * 1024 * 1024 * 64


def test_small_results_are_right(scripts):
    """Each graph of the benchmark against the CPU."""
    import gpu
    import gpu_workloads
    import numpy as np

    import uopc

    for w in gpu_workloads.workloads(small=True):
        given = gpu.inputs(w)
        graph = w.graph(*w.params())
        with module.installed("sm_80"):
            got = uopc.compile(graph, device="cuda")(*given)
        want = uopc.compile(graph)(*given)
        error = np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64)).max()
        assert error <= 0.02 * max(1.0, float(np.abs(want).max())), w.name


@pytest.mark.parametrize("name, least", [("copy", 2), ("elementwise", 3)])
def test_what_a_launch_asks_for_is_counted(scripts, name, least):
    """Every byte of the arrays once, from the first block alone."""
    import gpu_workloads
    import predict_gpu

    import uopc

    (w,) = [w for w in gpu_workloads.workloads(small=True) if w.name == name]
    program = uopc.compile(w.graph(*w.params()), device="cuda:sm_90a")
    (launch,) = program.plan.launches
    made = predict_gpu.count(program, launch)
    assert made.asked * made.blocks == least * 4 * 1024
    assert made.instructions * made.blocks >= 1024 * 3 / 32 / 4
    assert not made.copied and not made.turns and not made.products


def test_what_is_on_its_way_is_counted(scripts):
    """Loads up to a branch: those of a loop's body, not of all its turns."""
    import predict_gpu

    import uopc
    from tests.ptx import parse

    x = uopc.param("x", (1 << 22,))
    for graph, want in ((x * 2, 16), (x * 2 + uopc.param("y", (1 << 22,)), 32), (x.sum(), 64)):
        kernel = uopc.compile(graph, device="cuda:sm_90a").kernels[0]
        assert predict_gpu.in_flight(parse.parse(kernel.asm)[kernel.name]) == want


@pytest.mark.parametrize(
    "used, threads, want",
    [(Usage(32), 256, 1.0), (Usage(64), 256, 0.5), (Usage(255), 256, 0.125),
     (Usage(32, shared=100 << 10), 256, 0.25), (Usage(32), 32, 0.5)],
)  # fmt: skip
def test_occupancy(scripts, used, threads, want):
    import predict_gpu

    gpu = target.gpu_target("sm_90a").gpu
    assert gpu is not None
    assert predict_gpu.occupancy(gpu, threads, used.registers, used.shared) == pytest.approx(want)


def test_the_script_for_a_machine_with_a_device_is_sound():
    """It names files and commands that exist."""
    import subprocess

    script = BENCHMARKS / "gpu_check.sh"
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    text = script.read_text("utf-8")
    for name in ("benchmarks/gpu.py", ".ci/build-pycuda-wheel"):
        assert name in text and (BENCHMARKS.parent / name).exists()
    assert sys.version_info >= (3, 11)
