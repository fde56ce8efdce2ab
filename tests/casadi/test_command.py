"""`uopc run`, `dump`, `cost`, `bench` and `export` of a Function in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ca = pytest.importorskip("casadi")

from uopc.cli import main as cli


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: Any) -> str:
    """A Function with a sparse input, and one that nothing reads."""
    x, u, w = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("w", ca.Sparsity.lower(2))
    f = ca.Function("f", [x, u, w], [ca.sin(x) * 2, w * 3], ["x", "u", "w"], ["y", "z"])
    monkeypatch.chdir(tmp_path)
    f.save("f.casadi")
    return "f.casadi"


@pytest.mark.parametrize("command", ["run", "dump", "cost"])
def test_a_saved_function_is_a_source(command: str, saved: str, capsys: Any) -> None:
    assert cli.main([command, saved]) == 0
    assert "kernel" in capsys.readouterr().out


def test_a_saved_function_is_exported(saved: str) -> None:
    command = ["export", saved, "-o", "out/f", "--kind", "shared"]
    assert cli.main([*command, "--abi", "casadi"]) == 0
    f, again = ca.Function.load(saved), ca.external("f", "out/f.so")
    assert str(again).replace("External", "SXFunction") == str(f)
    assert again(1, 2, 3)[1].nonzeros() == [9.0] * 3
    assert cli.main(["export", saved, "-o", "out/g", "--kind", "c"]) == 0
    assert "int g(const double *x, const double *u" in Path("out/g.h").read_text("utf-8")


def test_a_saved_function_is_timed_beside_casadi(saved: str, capsys: Any) -> None:
    assert cli.main(["bench", saved, "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["engines"]) == {"uopc", "CasADi"} and found["difference"] < 1e-14
    assert cli.main(["bench", saved, "--rounds", "1"]) == 0
    assert "largest difference" in capsys.readouterr().out


def test_a_file_that_is_no_function(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "f.casadi"
    file.write_text("nothing", "utf-8")
    assert cli.main(["run", str(file)]) != 0
    assert "f.casadi: " in capsys.readouterr().err
