"""`benchmarks/devices.py`: in small it runs, and its two sides compute the same."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import uopc
from tests import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import device_workloads
import devices
import predict_devices


@pytest.mark.few(2)
@pytest.mark.parametrize("name", device_workloads.ALL)
def test_jax_computes_the_same(name):
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    small = device_workloads.SMALL[name]
    work = device_workloads.ALL[name](**small)
    arrays = work.arrays()
    other = device_workloads.JAX[name](jax, **small)(**arrays)
    leaves = jax.tree.leaves(other)
    if name == "mlp":
        value, grads = other
        leaves = [value, *[grads[n] for n in work.shapes if n[0] in "wb"]]
    for got, wanted in zip(uopc.compile(work.outputs)(**arrays), leaves, strict=True):
        np.testing.assert_allclose(got, wanted, 2e-4, 2e-4)


def test_partition_of_1024_devices_is_timed():
    assert 0 < devices.partition_ms() < 1e4


def test_predictions_for_many_devices():
    text = predict_devices.table(
        "a stencil", lambda p: device_workloads.stencil(n=256, m=32, steps=2),
        predict_devices.NODE, True, 64,
    )  # fmt: skip
    assert [row.split(" | ")[0] for row in text.splitlines()[4:]] == ["| 1", "| 8", "| 64"]
    assert [row.split(" | ")[4] for row in text.splitlines()[4:]] == ["0", "4", "4"]


@pytest.mark.slow
def test_all_of_it_in_small(capsys):
    try:
        devices.mpiexec()
    except RuntimeError as error:
        pytest.skip(str(error))
    devices.main(["--small", "--rounds", "1"])
    text = capsys.readouterr().out
    assert all(f"| {name} |" in text for name in device_workloads.ALL)
    assert "A step of one number to MPI_Allreduce" in text
