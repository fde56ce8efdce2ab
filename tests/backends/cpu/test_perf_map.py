"""UOPC_PERF_MAP: the file that gives `perf` the names of compiled functions."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import uopc
from tests import ROOT
from uopc.backends.cpu import perf_map
from uopc.errors import UserError

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.uname().machine != "x86_64",
    reason="only the loader for x86-64 ELF knows the sizes of functions",
)


@pytest.fixture(autouse=True)
def file(monkeypatch, tmp_path):
    found = tmp_path / "perf.map"
    monkeypatch.setattr(perf_map, "path", lambda: found)
    monkeypatch.setattr(perf_map, "_lines", [])
    return found


def listed(file) -> dict[str, tuple[int, int]]:
    """Address and size by name."""
    line = re.compile(r"([0-9a-f]+) ([0-9a-f]+) uopc:(\S+)")
    lines = [line.fullmatch(s) for s in file.read_text("utf-8").splitlines()]
    assert all(lines)
    return {m[3]: (int(m[1], 16), int(m[2], 16)) for m in lines}


def compiled():
    uopc.cache.clear()
    x = uopc.param("x", (64, 128))
    return uopc.compile((x.softmax() @ uopc.param("w", (128, 3)), x * 2))


def test_every_kernel_is_listed_where_it_is(file):
    with uopc.options(perf_map=True):
        program = compiled()
    image = program._artifact.image
    found = listed(file)
    for kernel in program._artifact.kernels:
        address, size = found[kernel.symbol]
        assert address in image.symbols.values() and size > 16
        listing = program.kernels[program._artifact.kernels.index(kernel)]
        assert kernel.symbol.startswith(listing.name)
    spans = sorted(found.values())
    assert all(a + size <= b for (a, size), (b, _) in zip(spans, spans[1:]))
    assert program(np.ones((64, 128), "f4"), np.ones((128, 3), "f4"))[1][0, 0] == 2


def test_parts_of_a_kernel_are_listed(file):
    """A kernel with non-temporal stores has two versions, which are internal functions."""
    with uopc.options(perf_map=True):
        uopc.cache.clear()
        program = uopc.compile(uopc.param("x", (1 << 22,)) * 2)
    (kernel,) = program._artifact.kernels
    inner = re.findall(r"^define internal void @\"?([^\"(]+)", kernel.source, re.M)
    assert {kernel.symbol, *inner} == set(listed(file))


def test_nothing_is_written_when_off(file):
    compiled()
    assert not file.exists()


def test_the_variable_lists_the_runtime_too():
    code = (
        "import numpy as np, os, uopc\n"
        "f = uopc.compile(uopc.param('x', (8,)) * 2); f(np.ones(8, 'f4'))\n"
        "name = f'/tmp/perf-{os.getpid()}.map'\n"
        "print(open(name).read()); os.remove(name)\n"
        "pid = os.fork()\n"
        "name = f'/tmp/perf-{os.getpid()}.map'\n"
        "if not pid: print('child', len(open(name).readlines()), flush=True); os.remove(name)\n"
        "else: os.waitpid(pid, 0)\n"
    )
    environment = os.environ | {"UOPC_PERF_MAP": "1", "UOPC_CACHE_DIR": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    names = re.findall(r"uopc:(\S+)", done.stdout)
    assert {"entry", "run", "spread", "worker"} < set(names)
    assert any(n.startswith("E_8$") for n in names)
    assert f"child {len(names)}" in done.stdout


def test_a_link_is_not_followed(file, tmp_path):
    (tmp_path / "precious").write_text("kept", "utf-8")
    file.symlink_to(tmp_path / "precious")
    with uopc.options(perf_map=True), pytest.raises(UserError, match="option perf_map"):
        compiled()
    assert (tmp_path / "precious").read_text("utf-8") == "kept"
    uopc.cache.clear()
