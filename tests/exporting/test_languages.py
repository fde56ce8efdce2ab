"""The programs of examples/export in other languages: each is built and run where its tools are."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.exporting.test_export import CC, CXX, needs_c, run

EXAMPLES = ROOT / "examples" / "export"
SAID = "5 3 12"
LIBRARY = "libdistances.a"
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-I.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the exported libraries."""
    made = tmp_path_factory.mktemp("languages")
    assert run(sys.executable, EXAMPLES / "make.py", ".", folder=made) == "exported distances\n"
    return made


def tool(name: str) -> str:
    """A program; the test is skipped where it is missing."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


@needs_c
def test_c(folder: Path) -> None:
    run(CC, "-std=c11", *STRICT, EXAMPLES / "main.c", LIBRARY, "-o", "main", folder=folder)
    assert run("./main", folder=folder).strip() == SAID


@pytest.mark.skipif(CXX is None, reason="there is no C++ compiler")
def test_cpp(folder: Path) -> None:
    run(CXX, "-std=c++17", *STRICT, EXAMPLES / "main.cpp", LIBRARY, "-o", "main", folder=folder)
    assert run("./main", folder=folder).strip() == SAID


@needs_c
@pytest.mark.parametrize("link", ["static", "dylib"])
def test_rust(link: str, folder: Path) -> None:
    """rustc links by the C compiler, the archive or the library."""
    libraries = ("-L", ".", "-l", f"{link}=distances", "-C", "link-arg=-Wl,-rpath,.")
    command = (tool("rustc"), "-D", "warnings", EXAMPLES / "main.rs", *libraries, "-o", "main")
    run(*command, folder=folder)
    assert run("./main", folder=folder).strip() == SAID


@pytest.mark.slow
def test_octave(folder: Path) -> None:
    """A gateway that MATLAB's compiler takes too."""
    octave, build = tool("octave"), tool("mkoctfile")
    run(build, "--mex", EXAMPLES / "distances_mex.c", "-I.", LIBRARY, folder=folder)
    options = ("--no-gui", "--no-init-file", "--no-history", "--path", ".")
    assert run(octave, *options, EXAMPLES / "main.m", folder=folder).strip() == SAID


def test_javascript(folder: Path) -> None:
    assert run(tool("node"), EXAMPLES / "main.mjs", ".", folder=folder).strip() == SAID


def test_numpy(folder: Path) -> None:
    assert os.access(folder / "libdistances.so", os.R_OK)
    assert run(sys.executable, EXAMPLES / "main.py", ".", folder=folder).strip() == SAID
