"""Programs cut over 2 and 4 devices of this process, beside tinygrad 0.14.0 run live, and NumPy."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import uopc
from tests.kinds.sharded_programs import PROGRAMS
from uopc import P, make_mesh

BY_NAME = {p.name: p for p in PROGRAMS}
SERVER = Path(__file__).with_name("sharded_programs.py")
missing = importlib.util.find_spec("tinygrad") is None or shutil.which("clang") is None


@functools.cache
def compiled(name, count):
    """The program on a mesh of devices."""
    program = BY_NAME[name]
    mesh = make_mesh((count,), ("m",), devices=[f"cpu:{i}" for i in range(count)])
    params = [uopc.param(f"p{i}", dims) for i, (dims, _) in enumerate(program.arguments)]
    specs = {
        f"p{i}": P(*[None] * axis, "m") if axis is not None else P()
        for i, (_, axis) in enumerate(program.arguments)
    }
    return uopc.compile(
        program.run(*params), threads=count, sharding=uopc.Sharding(mesh, in_shardings=specs)
    )


def close(got, wanted):
    assert got.shape == wanted.shape and got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, 2e-5, 2e-5)


def test_there_are_enough_programs():
    even = [p for p in PROGRAMS if not p.uneven]
    assert len(even) >= 60 and len(PROGRAMS) > len(even) and len(BY_NAME) == len(PROGRAMS)


@pytest.mark.few(10)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", BY_NAME)
def test_numpy(name, count):
    program = BY_NAME[name]
    got = compiled(name, count)(*program.arrays())
    close(got, np.asarray(program.numpy(*program.arrays())))


@pytest.fixture(scope="module")
def tinygrad(tmp_path_factory):
    """A function to tinygrad's result, or to the text of its exception."""
    environment = {**os.environ, "DEV": "CPU", "CACHELEVEL": "0"}
    server = subprocess.Popen(
        [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    file = tmp_path_factory.mktemp("tinygrad") / "result.npy"

    def result(name, count):
        server.stdin.write(f"{count}\t{file}\t{name}\n")
        server.stdin.flush()
        answer = server.stdout.readline().strip()
        return np.load(file) if answer == "done" else answer

    yield result
    server.stdin.close()
    assert server.wait(60) == 0


@pytest.mark.skipif(missing, reason="no tinygrad (uopc[tinygrad]), or no clang, its compiler")
@pytest.mark.few(8)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", BY_NAME)
def test_tinygrad(tinygrad, name, count):
    program = BY_NAME[name]
    theirs = tinygrad(name, count)
    if program.uneven:
        assert isinstance(theirs, str), "tinygrad refuses what no number of devices divides"
        return
    assert not isinstance(theirs, str), theirs
    close(compiled(name, count)(*program.arrays()), theirs)
