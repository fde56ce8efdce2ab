"""Programs in the processes of other engines: Gloo without MPI, Ray's actors, Dask's workers.

Each is skipped where its library is not installed: `pip install 'uopc[gloo,ray,dask]'`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import uopc
from tests import ROOT
from uopc import P, distributed

HERE = Path(__file__).parent


def needs(library):
    missing = importlib.util.find_spec(library) is None
    return pytest.mark.skipif(missing, reason=f"{library} is not installed")


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


def gloo(ranks, cases, folder, timeout=60.0, limit=200):
    """The exit codes and outputs of the processes of a job."""
    settings = {
        "JOB_TIMEOUT": str(timeout), "UOPC_THREADS": "1", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [str(HERE / "gloo_job.py"), free_address(), str(ranks), str(folder), cases]
    job = subprocess.Popen(
        [sys.executable, *command], env={**os.environ, **settings}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        text = job.communicate(timeout=limit)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)  # ranks that are left
    assert job.returncode == 0, text
    outputs = [(folder / str(r)).read_text("utf-8") for r in range(ranks)]
    return [int(code) for code in text.split()[-ranks:]], outputs


@needs("torch")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "ranks"), [("dtypes,right,overlap,by_part", 2), ("by_hand", 3)]
)
def test_gloo_gives_what_one_device_gives(cases, ranks, tmp_path):
    codes, texts = gloo(ranks, cases, tmp_path)
    count = len(cases.split(","))
    assert codes == [0] * ranks, "\n".join(texts)
    assert all(t.count("done: ") == count for t in texts), "\n".join(texts)
    assert all("left: True" in t for t in texts), "\n".join(texts)  # Gloo's threads are gone


@needs("torch")
@pytest.mark.slow
@pytest.mark.parametrize(("how", "words"), [
    ("kill", "another rank is gone"), ("sleep", "waited 3 s in: allreduce add over m"),
    ("kill_between", "another rank is gone"),
    ("sleep_between", "waited 3 s in: allreduce add over m"),
])  # fmt: skip
def test_a_process_that_fails_ends_all_others(how, words, tmp_path):
    codes, texts = gloo(2, how, tmp_path, timeout=3.0)
    assert codes[0] != 0 and words in "".join(texts) and "never" not in "".join(texts), texts
    assert "mpi_job.py:" in texts[0], texts


def test_addresses_are_checked():
    for given, words in (
        (("host", 2, 0), "an address as 'host:port'"),
        ((None, 2, 0), "an address as 'host:port'"),
        (("host:1", 2, 2), "a process_id from 0 to num_processes - 1"),
        (("host:1", None, 0), "expected num_processes"),
        (("host:1", 2, True), "expected num_processes"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            distributed.initialize(*given)
    assert not distributed.is_initialized()


# ---------------------------------------------------------------- Dask
def blockwise():
    """A program of one block of any number of rows, and what it computes."""
    n = uopc.variable("n", 0, 1 << 20)
    x = uopc.param("x", (n, 8), uopc.dtypes.float64)
    return uopc.compile(x.tanh() * 2 + 1), lambda a: np.tanh(a) * 2 + 1


@needs("dask")
def test_dask_maps_a_program_over_blocks():
    import dask.array

    program, wanted = blockwise()
    a = np.random.default_rng(0).standard_normal((1000, 8))
    blocks = dask.array.from_array(a, chunks=(300, 8))  # of 300, 300, 300 and 100 rows
    for scheduler in ("synchronous", "threads"):
        got = blocks.map_blocks(program, dtype=a.dtype).compute(scheduler=scheduler)
        np.testing.assert_allclose(got, wanted(a), 1e-12, 1e-14)
    total = blocks.map_blocks(program, dtype=a.dtype).sum()
    np.testing.assert_allclose(total.compute(scheduler="threads"), wanted(a).sum())
    bound = uopc.compile(uopc.param("x", (250, 8), "f8") * uopc.param("w", (8,), "f8"))
    weights = np.arange(8.0)
    got = dask.array.from_array(a, chunks=(250, 8)).map_blocks(
        bound.bind(w=weights), dtype=a.dtype
    )
    np.testing.assert_array_equal(got.compute(scheduler="threads"), a * weights)


@needs("distributed")
@pytest.mark.slow
def test_dask_workers_load_a_program():
    import dask.array
    from dask.distributed import Client

    program, wanted = blockwise()
    a = np.random.default_rng(1).standard_normal((1000, 8))
    with Client(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    ) as client:
        blocks = dask.array.from_array(a, chunks=(300, 8)).map_blocks(program, dtype=a.dtype)
        got = client.compute(blocks).result(timeout=120)
        np.testing.assert_allclose(got, wanted(a), 1e-12, 1e-14)


# ---------------------------------------------------------------- Ray
@needs("ray")
@needs("torch")
@pytest.mark.slow
def test_rays_actors_are_the_devices_of_a_mesh():
    import ray

    path = str(ROOT)
    settings = {"env_vars": {"PYTHONPATH": path, "UOPC_THREADS": "1"}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=settings)
    try:
        address, n = free_address(), 2

        @ray.remote(num_cpus=1)
        class Device:
            def __init__(self, rank):
                distributed.initialize(address, n, rank, timeout=30)
                mesh = uopc.make_mesh((n,), ("m",))
                x, w = uopc.param("x", (8, 6)), uopc.param("w", (6, 4))
                y = (x.shard(P(None, "m")) @ w.shard(P("m"))).relu()
                self.program = uopc.compile(y, sharding=uopc.Sharding(mesh, out_shardings=P()))

            def step(self, x, w):
                return self.program(x, w)

            def fail(self, x, w):
                if distributed.process_index():
                    raise ValueError("on purpose")
                return self.program(x, w)

        devices = [Device.remote(r) for r in range(n)]
        rng = np.random.default_rng(0)
        x, w = rng.standard_normal((8, 6)).astype("f4"), rng.standard_normal((6, 4)).astype("f4")
        for got in ray.get([d.step.remote(x, w) for d in devices], timeout=180):
            np.testing.assert_allclose(got, np.maximum(x @ w, 0), 1e-4, 1e-5)
        first = devices[0].step.remote(x, w)  # which waits for the other one
        ray.kill(devices[1])
        with pytest.raises(ray.exceptions.RayError):
            ray.get(first, timeout=60)
    finally:
        ray.shutdown()
