"""A job without MPI: `python gloo_job.py HOST:PORT SIZE FOLDER CASE[,CASE]`.

Torch takes seconds to import: this process does it once, and the ranks are forked from it. Each
writes to FOLDER/RANK; the exit codes are the last line of output.
"""

from __future__ import annotations

import atexit
import os
import sys

import numpy as np
import torch.distributed  # here for the ranks, which are forked

import uopc
from tests.backends.exchange import mpi_job
from uopc import P, distributed


def dtypes():
    """Sums, maxima and minima of each dtype, as one device gives them."""
    n = distributed.process_count()
    mesh = uopc.make_mesh((n,), ("m",))
    rng = np.random.default_rng(0)
    for kind in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"):
        t = np.dtype(kind)
        whole = np.frombuffer(rng.bytes(2 * n * 3 * t.itemsize), t).reshape(2 * n, 3).copy()
        if t.kind in "fb":
            whole = rng.integers(0, 2, whole.shape).astype(t)
        x = uopc.param("x", whole.shape, t)
        outs = [x.max(axis=0), x.min(axis=0), x.sum(axis=0), x[::-1].cat(x, axis=0)]
        f = uopc.compile(outs, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
        for got, wanted in zip(f(whole), uopc.compile(outs)(whole), strict=True):
            np.testing.assert_array_equal(np.asarray(got), wanted)
    return "dtypes"


def run(case):
    """The text that a case gives."""
    named = {"dtypes": dtypes, "right": mpi_job.right, "by_hand": mpi_job.by_hand}
    named |= {"by_part": mpi_job.by_part, "overlap": mpi_job.overlap}
    return named[case]() if case in named else mpi_job.failing(case)


def forked(size, folder):
    """The rank, in each of the processes of a job; their exit codes, in the one that waits."""
    ranks = []
    for rank in range(size):
        ranks.append(os.fork())
        if not ranks[-1]:
            file = os.open(os.path.join(folder, str(rank)), os.O_CREAT | os.O_WRONLY)
            os.dup2(file, 1)
            os.dup2(file, 2)
            return rank, []
    return None, [os.waitstatus_to_exitcode(os.waitpid(r, 0)[1]) for r in ranks]


if __name__ == "__main__":
    address, size, folder, cases = sys.argv[1:]
    rank, codes = forked(int(size), folder)
    if rank is None:
        print(*codes)
    else:
        atexit.register(lambda: print("left:", not torch.distributed.is_initialized()))  # runs last
        timeout = float(os.environ.get("JOB_TIMEOUT", "60"))
        distributed.initialize(address, int(size), rank, timeout=timeout)
        for case in cases.split(","):
            print(f"rank {rank} done: {run(case)}", flush=True)
