"""On a real NVIDIA device: programs against the CPU, other libraries, what a launch costs."""

from __future__ import annotations

import time

import numpy as np
import pytest

import uopc
from tests.backends.cuda.test_cuda_programs import PROGRAMS, arrays, arrays_of, close
from tests.conformance import report, workers
from tests.conformance.runner import FAILED
from tests.kinds.test_recorded import EVERY, recorded_sample
from uopc.errors import DeviceError

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    """The device, or why these tests are skipped."""
    from uopc.backends.cuda.device import device as find

    try:
        return find(0)
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(device, name):
    graph = PROGRAMS[name]()
    on_cpu, on_gpu = uopc.compile(graph), uopc.compile(graph, device="cuda")
    given = arrays(on_cpu)
    for got, want in zip(arrays_of(on_gpu(*given)), arrays_of(on_cpu(*given)), strict=True):
        assert got.dtype == want.dtype and close(got, want)


@pytest.mark.parametrize("place", recorded_sample(EVERY), ids=lambda p: f"{p.group}-{p.id[:12]}")
def test_recorded_graphs(device, place):
    """One of 40; `python -m tests.conformance DIR --device cuda` runs all of a corpus."""
    out = workers.run_one(place, "cuda")
    assert out.verdict != FAILED, report.failure_line(out)


def test_arrays_of_pytorch(device):
    torch = pytest.importorskip("torch")
    x = uopc.param("x", (1000,))
    program = uopc.compile(x * 2 + 1, device="cuda")
    given = torch.arange(1000, dtype=torch.float32, device="cuda")
    back = torch.from_dlpack(program(given))
    assert torch.equal(back, given * 2 + 1)


def test_a_launch_takes_ten_microseconds(device, capsys):
    from tests.backends.cuda.test_cuda_runtime import on_device

    x = uopc.param("x", (1000,))
    program = uopc.compile(x * 2, device="cuda")
    a = on_device(np.ones(1000, np.float32), device)
    program(a)
    rounds = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(100):
            program(a)
        rounds.append((time.perf_counter() - begin) / 100)
        with device:
            device.synchronize()
    with capsys.disabled():
        print(f"\nlaunch of a cached program: {min(rounds) * 1e6:.1f} us")
    assert min(rounds) < 10e-6
