"""The examples run, agree with what they are compared with, and notice when they do not."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest

import uopc
from tests import ROOT

EXAMPLES = ROOT / "examples"
# Of the extra `test-full`.
NEEDS = {"digits": ["sklearn"], "train_digits": ["sklearn"], "sharpen": ["sklearn", "PIL"],
         "optimal_control": ["scipy"], "least_squares": ["scipy"], "generate": ["tokenizers"],
         "pipelines": ["sklearn", "skl2onnx"], "pendulum": ["casadi"]}
NAMES = ("digits", "train_digits", "sharpen", "attention", "handwritten_kernel", "control",
         "optimal_control", "least_squares", "train_transformer", "out_of_core", "generate",
         "llama", "pipelines", "pendulum")
KERNELS = {
    "digits": 4, "train_digits": 4, "sharpen": 1, "attention": 2, "handwritten_kernel": 1,
    "control": 1, "optimal_control": 2, "least_squares": 6,
    "train_transformer": 15, "out_of_core": 1, "generate": 11, "llama": 18, "pipelines": 3,
    "pendulum": 1,
}  # fmt: skip


def skip_without_tools(name):
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module, reason=f"no {module}: see the extra `test-full`")


@pytest.fixture
def example(monkeypatch):
    """Import an example by name, as it is found when it is run."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


def run(command, folder):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_example_passes(name, tmp_path):
    skip_without_tools(name)
    done = run([EXAMPLES / f"{name}.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    *_, timing, last = done.stdout.splitlines()
    assert last == f"PASS {name}"
    assert "ratio" in timing


@pytest.mark.slow
def test_sharpen_writes_both_pictures(tmp_path):
    skip_without_tools("sharpen")
    from PIL import Image

    done = run([EXAMPLES / "sharpen.py", tmp_path / "made" / "here"], tmp_path)
    assert done.returncode == 0, done.stderr
    before, after = (
        np.asarray(Image.open(tmp_path / "made" / "here" / f"{name}.png")).astype(int)
        for name in ("before", "after")
    )
    assert before.shape == after.shape == (427, 640, 3)
    assert (before[:2] == after[:2]).all()
    steepness = [np.abs(np.diff(picture, axis=1)).mean() for picture in (before, after)]
    assert steepness[1] > 1.5 * steepness[0]


WRONG = {
    "digits": ("network", lambda right: lambda weights, biases: right(weights, biases) * 0.99),
    "train_digits": ("loss", lambda right: lambda w, x, y: right(w, x, y) * (1 + 1e-6)),
    "sharpen": ("reference", lambda right: lambda image: right(image) ^ 1),
    "attention": ("reference", lambda right: lambda *arrays: right(*arrays) + 1e-3),
    "handwritten_kernel": ("reference", lambda right: lambda x: (right(x)[0], right(x)[1] + 1)),
    "optimal_control": (
        "jacobian_by_complex_steps", lambda right: lambda z, n: right(z, n) * (1 + 1e-6)
    ),
    "train_transformer": ("differences", lambda right: lambda: right() + 1e-5),
    "least_squares": ("reference", lambda right: lambda drove, start: right(drove, start) + 1e-4),
    "control": ("jacobian_by_complex_steps", lambda right: lambda x, u: right(x, u) + 1e-9),
    "generate": ("reference", lambda right: lambda *arrays: right(*arrays) + 1e-3),
    "llama": ("reference", lambda right: lambda *arrays: right(*arrays) + 1e-3),
    "pipelines": ("reference", lambda right: lambda m, x: (right(m, x)[0], right(m, x)[1] + 1e-4)),
    "pendulum": ("reference", lambda right: lambda stages: right(stages - 1)),
    "out_of_core": ("moments", lambda right: lambda x: tuple(m * (1 + 1e-9) for m in right(x))),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.few(2)
def test_a_difference_is_noticed(name, example, monkeypatch, tmp_path, capsys):
    skip_without_tools(name)
    module = example(name)
    replaced, change = WRONG[name]
    monkeypatch.setattr(module, replaced, change(getattr(module, replaced)))
    assert module.main([str(tmp_path)] if name == "sharpen" else []) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"FAIL {name}"


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_for_the_dump(name, example):
    if name in ("pipelines", "pendulum"):  # their graphs are a trained model, and one of CasADi
        skip_without_tools(name)
    graph = example(name).graph()
    assert isinstance(graph, uopc.UOp)
    assert uopc.parse(str(graph)) is graph
    for optimize in (True, False):
        program = uopc.compile(graph, verify=True, optimize=optimize)
        # Where v has its last values that are no numbers.
        found = name in ("attention", "llama") and optimize
        assert len(program.kernels) == KERNELS[name] + found


def test_one_network_takes_any_number_of_rows(example):
    digits = example("digits")
    program = uopc.compile(digits.graph())
    images = np.random.default_rng(1).random((70, digits.PIXELS))
    whole = program(images)
    assert whole.shape == (70, digits.DIGITS)
    for rows in (1, 3, 64):
        np.testing.assert_allclose(program(images[:rows]), whole[:rows], rtol=1e-12)


@pytest.mark.parametrize("stages", [1, 2, 10, 17, 24])
@pytest.mark.few(2)
def test_control_on_any_horizon(example, stages):
    control = example("control")
    given = control.arrays(stages, seed=stages)
    program = uopc.compile(control.outputs(stages), verify=True)
    assert tuple(v.name for v in program.inputs) == control.NAMES
    assert max(control.differences(program(*given), given)) <= 1e-13
    outs = [np.empty(v.shape) for v in program.outputs]
    assert program(*given, out=tuple(outs))[3] is outs[3]
    assert max(control.differences(outs, given)) <= 1e-13
