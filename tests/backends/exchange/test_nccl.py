"""Programs for the GPUs of a mesh: numbers of NCCL, what is refused, and jobs on stand-ins.

Jobs need mpi4py and `mpiexec`, as those of test_mpi.py.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import uopc
from tests.backends.exchange.test_mpi import MPIEXEC, job
from tests.standin import module
from uopc import P, make_mesh

needs_ranks = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="mpi4py or mpiexec is not installed",
)


def run(ranks, case, **more):
    return job(ranks, case, script="nccl_job.py", **more)


@needs_ranks
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_each_exchange_buckets_and_parts_that_stay_on_gpus(ranks):
    code, text, _ = run(ranks, "kinds,buckets")
    assert code == 0, text
    kinds = "allgather allreduce alltoall broadcast permute_ranks reduce_scatter"
    for wanted in (kinds, "buckets"):
        assert text.count(f"done: {wanted}") == ranks, text


@needs_ranks
@pytest.mark.slow
@pytest.mark.parametrize(("how", "words"), [
    ("sleep", "rank 0 waited 3 s in: allreduce add over m"),
    ("fault", "rank 0 failed in: allreduce add over m"),
])  # fmt: skip
def test_a_failure_names_the_exchange(how, words):
    code, text, _ = run(2, how, timeout=3.0)
    assert code != 0 and words in text and "never" not in text, text
    assert "nccl_job.py:" in text, text


@needs_ranks
def test_numbers_are_those_of_nccl():
    """The numbers that the stand-in has of nccl.h are the runtime's, and nccl4py's."""
    from tests.standin import nccl as standin
    from uopc.backends.exchange import nccl

    numbers = {str(t): n for t, n in nccl.TYPES.items()}
    for name, number in standin.DATA_TYPES.items():
        same = str(standin.DTYPES[number])
        assert numbers.pop(same) == number, name
    assert numbers == {"bool": standin.DATA_TYPES["ncclUint8"]}
    names = {"add": "ncclSum", "mul": "ncclProd", "max": "ncclMax", "min": "ncclMin"}
    assert {names[k]: n for k, n in nccl.OPS.items()} == standin.OPS
    assert (standin.RESULTS["ncclSuccess"], standin.RESULTS["ncclInProgress"]) == nccl.FINE


@needs_ranks
def test_numbers_of_the_installed_bindings():
    found = importlib.util.find_spec("nccl")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("nccl4py is not installed: pip install --no-deps nccl4py")
    from tests.standin import nccl as standin

    text = Path(found.submodule_search_locations[0], "bindings", "cynccl.pxd").read_text("utf-8")
    listed = {a: int(n) for a, n in re.findall(r'(nccl\w+) "nccl\w+" = (\d+)\n', text)}
    for name, number in (standin.DATA_TYPES | standin.OPS | standin.RESULTS).items():
        assert listed[name] == number


def test_a_mesh_on_gpus_without_a_job_says_what_is_missing():
    x, mesh = uopc.param("x", (8,)), make_mesh((2,), ("m",))
    with module.installed("sm_80"):
        f = uopc.compile(x.sum(), device="cuda", sharding=uopc.Sharding(mesh, in_shardings=P("m")))
        assert [e.kernel for e in f.exchanges] == ["allreduce"]
        with pytest.raises(uopc.Unsupported, match=r"distributed.initialize\(\) first"):
            f(np.ones(8, "f4"))
        one = uopc.compile(x * 2, device="cuda", sharding=uopc.Sharding(make_mesh((1,), ("m",))))
        np.testing.assert_array_equal(one(np.ones(8, "f4")), np.full(8, 2, "f4"))
    text = uopc.compile(
        x.sum(), device="cuda:sm_80", sharding=uopc.Sharding(mesh, in_shardings=P("m"))
    )
    assert [e.kernel for e in text.exchanges] == ["allreduce"] and ".version" in text.kernels[0].asm
    with pytest.raises(uopc.Unsupported, match="is PTX text"):
        text(np.ones(8, "f4"))


def test_what_is_refused():
    x, mesh = uopc.param("x", (8,)), make_mesh((2,), ("m",))
    named = make_mesh((2,), ("m",), devices=("cpu:0", "cpu:1"))
    for given in ({"mesh": named}, {"mesh": mesh, "deterministic": True}):
        with pytest.raises(uopc.Unsupported, match="needs device cpu"):
            uopc.compile(x.sum(), device="cuda:sm_80", in_shardings=P("m"), **given)
