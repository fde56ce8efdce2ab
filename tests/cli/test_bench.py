"""`uopc bench`: workloads and models beside the installed peers."""

from __future__ import annotations

import argparse
import json
import os

import pytest

from tests.cli.test_cli import command
from uopc.cli import sizes


# ---------------------------------------------------------------- bench
@pytest.mark.slow
def test_bench_runs_a_workload_on_every_installed_peer(tmp_path):
    result = command(
        "bench", "kernels", "--threads", "1", "--rounds", "2", "--peers", "uopc,numpy",
        "--workloads", "tiny_8,gemm_small_17", "--out", str(tmp_path),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    rows = json.loads((tmp_path / "kernels.json").read_text("utf-8"))["runs"]["1"]
    assert list(rows) == ["tiny_8", "gemm_small_17"]
    for row in rows.values():
        assert row["limit"] > 0
        for peer in ("uopc", "numpy"):
            assert row["peers"][peer]["seconds"] > 0 and row["peers"][peer]["difference"] < 1e-6
    page = (tmp_path / "kernels.md").read_text("utf-8")
    assert "| tiny_8 |" in page and "numba" in page  # the recorded envelope is marked by its peer
    asked = [line for line in page.splitlines() if line.startswith("| times as fast as tinygrad ")]
    assert asked and asked[0].endswith("| none |")  # a recorded time of an anchor


STAND_IN = """
import onnx.reference
class SessionOptions: pass
class InferenceSession:
    def __init__(self, path, options, providers):
        assert options.intra_op_num_threads == 2
        self.made = onnx.reference.ReferenceEvaluator(path)
        self.names = [type("Input", (), {"name": n}) for n in self.made.input_names]
    def get_inputs(self): return self.names
    def run(self, names, inputs): return self.made.run(names, inputs)
"""


@pytest.mark.slow
def test_bench_of_a_model(tmp_path):
    """Beside another engine: here one of the same interface stands in for ONNX Runtime."""
    from onnx import parser

    text = """<ir_version: 8, opset_import: ["": 18]>
        g (float[n, 3] x, float[3] b) => (float[n, 3] y) { h = Sin(x)  y = Add(h, b) }"""
    file = tmp_path / "net.onnx"
    file.write_bytes(parser.parse_model(text).SerializeToString())
    result = command("bench", str(file), "--rounds", "1", "--json")
    assert result.returncode == 0, result.stderr
    if "onnxruntime" not in json.loads(result.stdout)["engines"]:
        (tmp_path / "onnxruntime.py").write_text(STAND_IN, "utf-8")
    search = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    asked = ("bench", str(file), "--threads", "2", "--set", "n=5", "--rounds", "2")
    result = command(*asked, "--json", PYTHONPATH=search)
    found = json.loads(result.stdout)["engines"]
    assert set(found) == {"uopc", "onnxruntime"}
    for row in found.values():
        assert 0 < row["best_ms"] <= row["median_ms"] and row["load_s"] > 0 <= row["memory"]
    assert found["onnxruntime"]["difference"] < 1e-6
    assert found["uopc"]["again_s"] > 0
    table = command(*asked, PYTHONPATH=search).stdout
    assert "uopc takes " in table and "of the time of onnxruntime" in table


def test_bench_of_a_model_that_is_none(tmp_path):
    (tmp_path / "net.onnx").write_text("no model", "utf-8")
    for options, code, message in (
        (("net.onnx",), 1, "uopc: not an ONNX model"), (("no.onnx",), 1, "no such file"),
        (("net.onnx", "--set", "n"), 2, "expected NAME=VALUE"),
        (("net.onnx", "--threads", "0"), 2, "at least 1"),
    ):  # fmt: skip
        result = command("bench", str(tmp_path / options[0]), *options[1:])
        assert result.returncode == code and message in result.stderr
        assert "uopc: uopc:" not in result.stderr


def test_sizes_are_names_and_integers(capsys):
    parser = argparse.ArgumentParser()
    sizes.argument(parser, "a size")
    assert dict(parser.parse_args(["--set", "n=3", "--set", "a=b=-4"]).set) == {"n": 3, "a=b": -4}
    for text in ("n", "n=", "=3", "n=1.5", "n=--1"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--set", text])
        assert f"expected NAME=VALUE with an integer, got {text!r}" in capsys.readouterr().err


def test_bench_refuses_a_script_that_is_not_there():
    result = command("bench", "kernel")
    assert result.returncode == 2 and "unknown benchmark 'kernel'; choose " in result.stderr
    result = command("bench", "kernels", "--workloads", "gem")
    assert result.returncode == 2 and "no gem; there are chain_4m" in result.stderr
