"""`uopc cache`: where programs on disk are, and why a program is not found there."""

from __future__ import annotations

import os
import re

import pytest

import uopc
from tests.cache.conftest import compiled
from uopc import config
from uopc.backends import detect
from uopc.cli import load
from uopc.cli import main as cli
from uopc.program.cached import key

pytestmark = pytest.mark.usefixtures("folder")
SOURCE = """
import uopc
x = uopc.param("x", (3, 4))
graph = (x * 2.0).sum(axis=1)
"""


@pytest.fixture
def command(monkeypatch, folder, capsys):
    """Runs `uopc cache …`; what it prints."""
    monkeypatch.setenv("UOPC_CACHE_DIR", str(folder))

    def run(*arguments, code=0):
        assert cli.main(["cache", *arguments]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return run


CONSTANTS = """
import numpy as np
import uopc
w = uopc.constant(np.ones((256, 256), "f4"))
graph = uopc.param("x", (2, 256)) @ (w @ w).exp().contiguous()
"""


def test_why_of_a_graph_with_constants_that_are_computed_once(command, tmp_path):
    file = tmp_path / "model.py"
    file.write_text(CONSTANTS, "utf-8")
    names = {}
    exec(CONSTANTS, names)
    assert len(uopc.compile(names["graph"]).kernels) == 1
    assert ": hit, entry" in command("why", str(file))


def test_ls_why_clear(command, tmp_path, folder):
    file = tmp_path / "model.py"
    file.write_text(SOURCE, "utf-8")
    assert "0 entries" in command("ls")
    assert "miss: there are no entries" in command("why", str(file))
    assert not folder.exists()  # looking makes nothing
    x = uopc.param("x", (3, 4))
    uopc.compile((x * 2.0).sum(axis=1))
    assert "hit in" in command("why", str(file)) and ": hit, entry" in command("why", str(file))
    assert "1 kernel: r_3_4" in command("ls") and "1 entries" in command("ls")
    file.write_text(SOURCE.replace("2.0", "4.0"), "utf-8")
    said = command("why", str(file))
    assert "r_3_4: miss: nearest is" in said and "(other code): graph differs" in said
    assert "1 files with" in command("clear") and "0 entries" in command("ls")


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ("x.sum()", "x.max()", "graph differs: in its operations or numbers"),
        ("x + 1", "x + 2", "graph differs: in its operations or numbers"),
        ("x + 1", "uopc.param('x', (9,)) + 1", r"input x is float32\[9\] here, float32\[8\] there"),
        ("x + 1", "x + uopc.param('y', (8,))", r"input y is float32\[8\] here, none there"),
        ("x + 1", "(x + 1).cast(uopc.dtypes.int8)", r"output 0 is int8\[8\] here, float32"),
        ("x[:n]", "x[:uopc.variable('n', 1, 7)]", r"variable n is 1\.\.7 here, 1\.\.8 there"),
        ("x + 1", "(x * 3 + 1).exp()", r"its number of nodes is \d+ here, \d+ there"),
    ],
)
def test_why_says_how_the_graph_differs(command, tmp_path, first, second, says):
    head = "import uopc\nx = uopc.param('x', (8,))\nn = uopc.variable('n', 1, 8)\n"
    for name, text in (("a.py", first), ("b.py", second)):
        (tmp_path / name).write_text(f"{head}graph = {text}\n", "utf-8")
    uopc.compile(load.load(str(tmp_path / "a.py")).graph)
    assert re.search(rf": miss: nearest is .*{says}", command("why", str(tmp_path / "b.py")))


def test_why_names_the_component(command, tmp_path, monkeypatch):
    file = tmp_path / "model.py"
    file.write_text(SOURCE, "utf-8")
    x = uopc.param("x", (3, 4))
    uopc.compile((x * 2.0).sum(axis=1), threads=7)
    here = config.current().threads or detect.cores()
    assert f"(the same code): threads {here} here, 7 there" in command("why", str(file))
    monkeypatch.setattr(key, "process_components", lambda: (("uopc", "other"),))
    assert "uopc differs" in command("why", str(file))


def test_ls_shows_what_cannot_be_used(command, stored, folder):
    stored.write_bytes(b"nonsense")
    assert "unusable:" in command("ls") and "is damaged" in command("ls")
    stored.parent.chmod(0o755)
    assert "is open to others" in command("ls", code=1)


def test_looking_is_no_use(command, stored):
    os.utime(stored, (1000, 1000))
    command("ls")
    assert stored.stat().st_mtime == 1000
    compiled()
    assert stored.stat().st_mtime > 1000
