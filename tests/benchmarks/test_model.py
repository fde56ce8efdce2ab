"""The models of `benchmarks/model_workloads.py`: NumPy and the peers agree, and ONNX Runtime takes
the products of int8 ones as integers, so that the comparison is one of integers."""

from __future__ import annotations

import platform
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import uopc.onnx
from tests import ROOT
from uopc import dtypes
from uopc.backends import detect

sys.path.append(str(ROOT / "benchmarks"))
import model_files
import model_workloads as models
import onnx_graph
from kernels import error_of, reference
from peers import PEERS
from workloads import Workload, normal


def few_layers() -> Workload:
    """A layer of each kind on images of 9 x 11."""
    net = models.ByteImages()

    def body(o: Any, x: Any) -> Any:
        x = net.conv(o, net.kept(o, x, "input"), "stem", 3, 12, 3, 2, act="relu6")
        y = net.conv(o, x, "wide", 12, 20, 1, act="relu6")
        y = net.conv(o, y, "each", 20, 20, 3, groups=20, act="relu6")
        x = net.kept(o, net.conv(o, y, "back", 20, 12, 1, act="") + x, "sum")
        return net.product(o, o.sum(o.reshape(x, (1, 12, 30)), 2) * (1 / 30), "head", 12, 7)

    return net.made(Workload([normal(0, 1, 3, 9, 11)], body))


def few_words() -> Workload:
    return models.transformer(1, 8, 48, 4, int8=True)


def peer_tolerance(w: Workload) -> float:
    """The tolerance of ONNX Runtime's bytes: on x86 without VNNI it adds their products in 16 bits,
    which saturate."""
    machine = detect.host()
    exact = machine.has("avx512vnni") or machine.has("avxvnni")
    return w.tolerance if exact or platform.machine() not in ("x86_64", "AMD64") else 0.5


def test_bytes_are_the_nearest_of_each_channel() -> None:
    w = np.random.default_rng(0).standard_normal((5, 4, 3, 3), np.float32)
    made = models.as_bytes(w, 0)
    assert made.values.dtype == np.int8 and made.scale.shape == (5,)
    assert (np.abs(made.values).max((1, 2, 3)) == 127).all()
    assert (np.abs(made.values * made.spread - w) <= made.spread * 0.5001).all()


@pytest.mark.parametrize("make", [few_layers, few_words])
def test_uopc_and_onnxruntime_agree(make: Any) -> None:
    w = make()
    expected = reference(w)
    operators = PEERS["uopc"](1).operators
    inputs = [uopc.param(f"x{i}", a.shape, dtypes.float32) for i, a in enumerate(w.inputs)]
    made = uopc.compile(w.body(operators, *inputs), threads=1)
    assert error_of(w, expected, made(*w.inputs)) <= w.tolerance
    model = onnx_graph.model(w)
    loaded = uopc.onnx.load(model, threads=1)
    assert error_of(w, expected, loaded(*w.inputs)) <= w.tolerance
    pytest.importorskip("onnxruntime")
    assert error_of(w, expected, PEERS["onnxruntime"](1).prepare(w)()) <= peer_tolerance(w)


@pytest.mark.parametrize(
    ("make", "products"),
    [
        (few_words, {"DynamicQuantizeMatMul": 4}),
        (lambda: models.mobilenet_v2(32, models.ByteImages), {
            "QLinearConv": 52, "QLinearAdd": 10, "QLinearMatMul": 1}),
    ],
)  # fmt: skip
def test_onnxruntime_multiplies_integers(
    make: Any, products: dict[str, int], tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "made.onnx")
    model = onnx_graph.model(make())
    runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    ops = Counter(n.op_type for n in onnx.load(tmp_path / "made.onnx").graph.node)
    assert {op: ops[op] for op in products} == products
    assert not {"Conv", "FusedConv", "Gemm", "MatMulInteger"} & ops.keys()


SMALL_MODELS = {
    "resnet50": lambda: models.resnet50(32), "mobilenet_v2": lambda: models.mobilenet_v2(32),
    "unet": lambda: models.unet(16, 4, 2), "yolo": lambda: models.yolo(32),
    "encoder": lambda: models.transformer(1, 8, 48, 4),
    "prompt": lambda: models.transformer(2, 8, 48, 4, True, 0, 50),
    "step": lambda: models.transformer(2, 1, 48, 4, True, 7, 50),
    "lstm": lambda: models.lstm(3, 8, 12),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_pytorch_runs_the_models(name: str) -> None:
    pytest.importorskip("torch")
    w = SMALL_MODELS[name]()
    peer = PEERS["torch"](1)
    assert error_of(w, reference(w), peer.array(peer.prepare(w)())) <= 1e-5


def test_arrays_of_a_body_are_weights_of_the_module() -> None:
    torch = pytest.importorskip("torch")
    import torch_graph

    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    x = normal(0, 2, 4)
    both = Workload([x], lambda o, x: o.cat([o.matmul(x, w), o.matmul(x, w) + w[0]], 1))
    module = torch_graph.module(both, PEERS["torch"](1).operators)
    assert [tuple(p.shape) for p in module.parameters()] == [(4, 3), (3,)]  # w is held once
    expected = np.concatenate([x @ w, x @ w + w[0]], 1)
    np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_inductor_runs_a_model() -> None:
    pytest.importorskip("torch")
    if not shutil.which("g++"):
        pytest.skip("Inductor asks for a C++ compiler")
    w = SMALL_MODELS["encoder"]()
    peer = PEERS["torch compiled"](1)
    assert error_of(w, reference(w), peer.array(peer.prepare(w)())) <= 1e-5


@pytest.mark.slow
def test_files_in_fresh_processes() -> None:
    pytest.importorskip("onnxruntime")
    w = few_words()
    expected = reference(w)
    model = onnx_graph.model(w)
    found = model_files.measure(model, w.inputs, 1, 3, 0.0, lambda got: error_of(w, expected, got))
    assert found.keys() == model_files.COLUMNS.keys()
    for name, row in found.items():
        most = peer_tolerance(w) if name == "onnxruntime" else w.tolerance
        assert row["difference"] <= most
        assert row["peak"] >= row["own"] > 0 and row["load"] > 0
    assert model_files.line("few", found).count("|") == model_files.HEAD.splitlines()[1].count("|")
