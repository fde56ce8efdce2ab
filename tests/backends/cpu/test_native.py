"""The runtime's code in a file of the package: written when a wheel is built, read by processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from uopc.backends.cpu import native

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(
    platform.machine() not in native.BASELINES, reason="no baseline for this architecture"
)
# A first compile in a process that must not compile the runtime.
FIRST_CALL = """
import sys, pathlib, numpy as np, uopc
from uopc.backends.cpu import native
def refuse(*args): raise AssertionError("compiled")
native.compiled = refuse
native.FOLDER = native.FOLDER if sys.argv[1:] == [] else pathlib.Path(sys.argv[1])
x, y = uopc.param("x", (3, 50)), uopc.param("y", (3, 50))
f = uopc.compile(x * 2 + y, threads=2)
a, b = np.arange(150, dtype="f4").reshape(3, 50), np.ones((3, 50), "f4")
print(np.array_equal(f(a, y=b), a * 2 + 1), np.array_equal(f(x=a, y=a), a * 3), uopc.__file__)
"""


Done = subprocess.CompletedProcess[str]


def first_call(*args: str, cwd: Path = ROOT, path: str = str(ROOT)) -> Done:
    env = os.environ | {"UOPC_CACHE_DIR": "", "PYTHONPATH": path}
    command = [sys.executable, "-c", FIRST_CALL, *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runtime")
    assert native.ship(made) is not None
    return made


def test_a_process_runs_the_code_of_the_file(folder: Path) -> None:
    done = first_call(str(folder))
    assert done.stdout.startswith("True True"), done.stdout + done.stderr


def test_without_a_file_the_process_compiles(tmp_path: Path) -> None:
    assert native.shipped(tmp_path) is None
    assert "AssertionError: compiled" in first_call(str(tmp_path)).stderr


@pytest.mark.parametrize("keep", [0, 39, 40, 4000, -1])
def test_a_damaged_file_is_not_used(folder: Path, tmp_path: Path, keep: int) -> None:
    (whole,) = folder.iterdir()
    (tmp_path / whole.name).write_bytes(whole.read_bytes())
    assert native.shipped(tmp_path) == native.shipped(folder) is not None
    (tmp_path / whole.name).write_bytes(whole.read_bytes()[:keep])
    assert native.shipped(tmp_path) is None


def test_a_file_for_another_interpreter_is_not_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(native.OFFSETS, "tuple_items", native.OFFSETS["tuple_items"] + 8)
    assert native.shipped(folder) is None


def test_the_file_is_for_any_processor(folder: Path) -> None:
    """Its code is the code for the least processor of the architecture, not for this one."""
    baseline = native.BASELINES[platform.machine()]
    assert native.shipped(folder) == native.compiled(native.source(), baseline)


@pytest.mark.slow
def test_a_wheel_has_the_runtime(tmp_path: Path) -> None:
    """The wheel of one command, installed elsewhere, compiles no runtime."""
    pytest.importorskip("setuptools")
    build = [sys.executable, ROOT / ".ci" / "build-wheel", tmp_path / "wheels"]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheels").iterdir()
    python = f"cp3{sys.version_info.minor}"
    assert wheel.name.split("-")[2:4] == [python, python]
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", tmp_path / "site", wheel], check=True)
    found = first_call(cwd=tmp_path, path=str(tmp_path / "site"))
    assert found.stdout.startswith("True True") and str(tmp_path) in found.stdout, found.stderr
