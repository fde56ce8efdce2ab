"""The database of searches, and `uopc tune`: who may read it, what damage costs, what applies."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import uopc
from tests.search.test_search import Favours
from uopc.backends import detect
from uopc.cache import tuned
from uopc.cache.disk import Unusable
from uopc.cache.tuned import Database, SearchRow, Store
from uopc.cli import tune
from uopc.cli.main import main
from uopc.program.tuned import schedules
from uopc.search import searcher

ROW = SearchRow("k", "m", "v", "E_8", "VECTOR(0, 8)", 2e-6, 1e-6, "faster", 1.5)
X = np.arange(960, dtype="f4").reshape(24, 40)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder of its own, and no rows of other tests."""
    monkeypatch.setenv("UOPC_CACHE_DIR", str(tmp_path / "cache"))
    uopc.cache.clear()
    tuned.forget()
    yield tmp_path / "cache"
    uopc.cache.clear()
    tuned.forget()


def noting(begun):
    """Begins searches that prefer a list which is not the schedule's, without processes and clocks;
    notes their requests."""

    def begin(request, sizes):
        begun.append(request)
        return Favours()

    return begin


@pytest.fixture
def given(monkeypatch):
    """The searches of `uopc tune` in this test."""
    begun = []

    class Processes:
        bench = staticmethod(noting(begun))
        __enter__ = __exit__ = lambda *_: Processes

    monkeypatch.setattr(tune, "Workers", Processes)
    return begun


def graph():
    return uopc.param("x", X.shape).permute(1, 0) * 2.0


def searched(begun):
    """Compile, and search with the bench of the test."""
    token = schedules.searching.set(searcher.Session(noting(begun), 1, 60.0))
    try:
        return uopc.compile(graph(), threads=1)
    finally:
        schedules.searching.reset(token)


# ---------------------------------------------------------------- rows
def test_a_row_is_kept_for_its_machine_and_version(folder):
    Store("m", "v", Database(folder)).put(ROW)
    assert Store("m", "v", Database(folder)).find("k") == ROW
    for machine, version in (("other", "v"), ("m", "other")):
        assert Store(machine, version, Database(folder)).find("k") is None
    better = replace(ROW, after=5e-7)
    Store("m", "v", Database(folder)).put(better)
    assert Database(folder).rows() == [better]


def test_without_a_database_rows_are_those_of_the_process():
    Store("m", "v").put(ROW)
    assert Store("m", "v").find("k") == ROW and Store("m", "w").find("k") is None


def test_files_are_private(folder):
    database = Database(folder)
    database.put([ROW])
    assert database.file.stat().st_mode & 0o777 == 0o600
    assert database.file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("path, mode", [("searches", 0o755), ("searches/searches.db", 0o622)])
def test_what_others_may_change_is_not_used(folder, path, mode):
    database = Database(folder)
    database.put([ROW])
    (folder / path).chmod(mode)
    with pytest.raises(Unusable, match="open to others"):
        database.rows()
    store = Store("m", "v", Database(folder))
    tuned._read.clear()
    assert store.find("k") is None
    store.put(replace(ROW, key="new"))  # kept in the process
    assert store.find("new") and any("open to others" in p for p in uopc.cache.problems())


def test_a_link_is_not_followed(folder, tmp_path):
    Database(folder).put([ROW])
    other = tmp_path / "other.db"
    Database(folder).file.rename(other)
    Database(folder).file.symlink_to(other)
    with pytest.raises(Unusable):
        Database(folder).rows()


@pytest.mark.parametrize("content", [b"", b"no database" * 200, None])
def test_damage_costs_the_rows_alone(folder, content):
    database = Database(folder)
    database.put([ROW])
    whole = database.file.read_bytes()
    cut = whole[:5000] + bytes(3000) + whole[8000:] if content is None else content
    database.file.write_bytes(cut)
    program = uopc.compile(graph(), threads=1)
    np.testing.assert_array_equal(program(x=X), X.T * 2)
    new = replace(ROW, key="new")
    Store("m", "v", Database(folder)).put(new)
    assert new in Database(folder).rows() or Store("m", "v").find("new") == new


def test_a_changed_row_is_no_row(folder):
    database = Database(folder)
    database.put([ROW, replace(ROW, key="other")])
    with sqlite3.connect(database.file) as connection:
        connection.execute("UPDATE searches SET opts = 'VECTOR(0, 4)' WHERE key = 'k'")
    connection.close()
    assert [r.key for r in database.rows()] == ["other"]


def test_the_oldest_rows_make_way(folder, monkeypatch):
    monkeypatch.setattr(tuned, "MOST_ROWS", 3)
    for i in range(5):
        Database(folder).put([replace(ROW, key=f"k{i}", made=float(i))])
    assert {r.key for r in Database(folder).rows()} == {"k2", "k3", "k4"}


def test_processes_write_at_once(folder):
    code = (
        "import sys; from pathlib import Path; from dataclasses import replace\n"
        "from uopc.cache.tuned import Database, SearchRow\n"
        "for i in range(15):\n"
        "    Database(Path(sys.argv[1])).put([SearchRow(sys.argv[2] + str(i), 'm', 'v', 'E', None,"
        " 1.0, 1.0, '', 1.0)])\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, str(folder), who]) for who in "ab"]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert len(Database(folder).rows()) == 30


# ---------------------------------------------------------------- compiles
def test_another_process_uses_what_was_found(folder):
    begun = []
    before = uopc.compile(graph(), threads=1).kernels[0].opts
    found = searched(begun).kernels[0].opts
    assert found != before and len(begun) == 1
    uopc.cache.clear()  # as in a new process
    tuned.forget()
    again = uopc.compile(graph(), threads=1)
    assert again.stats["cache"] == "disk" and again.kernels[0].opts == found
    np.testing.assert_array_equal(again(x=X), X.T * 2)


def test_a_program_on_disk_gives_way_to_a_search(folder):
    before = uopc.compile(graph(), threads=1).kernels[0].opts
    found = searched([]).kernels[0].opts
    uopc.cache.clear()
    assert uopc.compile(graph(), threads=1).kernels[0].opts == found != before
    Database(folder).clear()
    uopc.cache.clear()
    tuned.forget()
    assert uopc.compile(graph(), threads=1).kernels[0].opts == before


@pytest.mark.parametrize("name", ["machine", "version"])
def test_a_stale_row_does_not_apply(folder, name):
    found = searched([]).kernels[0].opts
    (row,) = Database(folder).rows()
    Database(folder).clear()
    Database(folder).put([replace(row, **{name: "another"})])
    uopc.cache.clear()
    tuned.forget()
    assert uopc.compile(graph(), threads=1).kernels[0].opts != found


def test_rows_are_of_the_described_machine(folder):
    here = schedules.names(detect.host())
    other = schedules.names(replace(detect.host(), l2_bytes=12345))
    assert here[0] != other[0] and here[1] == other[1]


# ---------------------------------------------------------------- the command
SOURCE = """
import uopc
def graph():
    return uopc.param("x", (24, 40)).permute(1, 0) * 2.0
"""


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(SOURCE, "utf-8")
    return str(file)


def test_tune_report_and_why(folder, source, given, capsys, monkeypatch):
    monkeypatch.setenv("UOPC_THREADS", "1")
    assert main(["tune", source, "--budget", "5s"]) == 0
    (row,) = Database(folder).rows()
    said = capsys.readouterr().out
    assert row.opts and "1 kernel, 1 not searched yet" in said and row.opts in said
    assert main(["tune", source]) == 0
    assert "0 not searched yet" in capsys.readouterr().out and len(given) == 1
    assert main(["tune", source, "--again"]) == 0 and len(given) == 2
    (row,) = Database(folder).rows()
    assert main(["tune", "--report"]) == 0
    said = capsys.readouterr().out
    assert row.opts and "0.50" in said and row.opts in said and "1 kernel of this machine" in said
    assert main(["cache", "why", source]) == 0
    assert f"Opts of a search: {row.opts}" in capsys.readouterr().out


def test_a_graph_with_constants_that_are_computed_once(tmp_path, given, capsys):
    file = tmp_path / "model.py"
    text = "w = uopc.constant(np.ones((256, 256), 'f4'))\n"
    text += "both = uopc.param('z', (2, 256)) @ (w @ w).exp().contiguous()\n"
    file.write_text("import numpy as np\n" + SOURCE + text, "utf-8")
    assert main(["tune", f"{file}:both", "--budget", "0s"]) == 0
    assert "1 kernel left" in capsys.readouterr().out


def test_no_budget_leaves_all_kernels(source, given, capsys):
    assert main(["tune", source, "--budget", "0s"]) == 0
    assert "1 kernel left" in capsys.readouterr().out and not given


def test_an_interrupt_keeps_what_was_found(folder, tmp_path, given, capsys, monkeypatch):
    file = tmp_path / "two.py"
    both = "def both():\n    return (graph(), uopc.param('z', (77,)).exp())\n"
    file.write_text(SOURCE + both, "utf-8")
    whole = tune.Searcher.__call__

    def second_is_interrupted(self, *arguments):
        if given:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    monkeypatch.setattr(tune.Searcher, "__call__", second_is_interrupted)
    assert main(["tune", f"{file}:both"]) == 130
    assert "interrupted: 1 search kept" in capsys.readouterr().out
    assert len(Database(folder).rows()) == 1
    monkeypatch.setattr(tune.Searcher, "__call__", whole)
    assert main(["tune", f"{file}:both"]) == 0
    assert "2 kernels, 1 not searched yet" in capsys.readouterr().out


def test_export_and_import(folder, tmp_path, source, given, capsys):
    main(["tune", source])
    rows = Database(folder).rows()
    file = tmp_path / "found.json"
    assert main(["tune", "--export", str(file)]) == 0
    assert main(["tune", "--clear"]) == 0 and Database(folder).rows() == []
    assert main(["tune", "--import", str(file)]) == 0
    assert Database(folder).rows() == rows
    assert "1 row, 1 of this machine and version" in capsys.readouterr().out


@pytest.mark.parametrize("change", [
    lambda c: {**c, "format": "other"}, lambda c: {**c, "rows": [{}]}, lambda c: [],
    lambda c: {**c, "rows": [c["rows"][0] | {"opts": "VECTOR(0, 2)"}]},
])  # fmt: skip
def test_an_import_that_is_damaged_is_refused(folder, tmp_path, change, capsys):
    Database(folder).put([ROW])
    file = tmp_path / "found.json"
    main(["tune", "--export", str(file)])
    file.write_text(json.dumps(change(json.loads(file.read_text("utf-8")))), "utf-8")
    assert main(["tune", "--import", str(file)]) == 1
    assert "expected a file that `uopc tune --export` writes" in capsys.readouterr().err


def test_an_import_of_unknown_opts_is_refused(folder, tmp_path, capsys):
    Database(folder).put([replace(ROW, opts="FOLD(0, 8)")])
    main(["tune", "--export", str(tmp_path / "found.json")])
    assert main(["tune", "--import", str(tmp_path / "found.json")]) == 1


@pytest.mark.parametrize("arguments", [
    [], ["--budget", "soon", "x.py"], ["--beam", "0", "x.py"], ["x.py", "--report"],
    ["x.py", "--set", "n=many"],
])  # fmt: skip
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tune", *arguments])
    assert ended.value.code == 2 and capsys.readouterr().err


def test_without_a_cache_there_is_nowhere_to_keep(source, monkeypatch, capsys):
    monkeypatch.setenv("UOPC_CACHE_DIR", "")
    assert main(["tune", source]) == 1
    assert "UOPC_CACHE_DIR" in capsys.readouterr().err


def test_what_cannot_be_measured_is_refused(source, capsys):
    assert main(["tune", source, "--device", "cuda:sm_90a"]) == 1
    assert "a search measures, which" in capsys.readouterr().err


def test_sqlite_is_imported_where_there_is_a_database(folder):
    code = (
        "import sys, uopc; uopc.compile(uopc.param('x', (3,)) * 2)\n"
        "assert 'sqlite3' not in sys.modules"
    )
    environment = os.environ | {"UOPC_CACHE_DIR": str(folder)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
