"""uopc replay: kernels recorded by one version, compared with those of another."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import uopc
from tests.standin import module
from uopc.cli import main as cli
from uopc.cost.machine import MachineFacts
from uopc.program.backend import backend_of
from uopc.program.cached import key

TEXT = """
import numpy as np
import uopc
n = uopc.variable("n", 1, 64)
x = uopc.param("x", (n, 128))
total = x.sum(1)
table = uopc.param("i", (8,), uopc.dtypes.int32) + uopc.constant(np.arange(8, dtype="i4"))
program = uopc.compile({"a": uopc.param("z", (40,)).exp(), "b": uopc.param("z", (40,)).max()})
rules = uopc.compile(x + 1, rules=lambda u: None)
"""


@pytest.fixture
def source(tmp_path):
    (tmp_path / "model.py").write_text(TEXT, "utf-8")
    return str(tmp_path / "model.py")


@pytest.fixture
def replay(capsys):
    """Runs `uopc replay`; what it prints."""

    def call(*arguments, code=0):
        assert cli.main(["replay", *map(str, arguments)]) == code
        captured = capsys.readouterr()
        return captured.out + captured.err

    return call


def recorded(replay, source, folder, *names):
    return replay("record", folder, *[f"{source}:{n}" for n in names])


def test_the_same_version_makes_equal_kernels(replay, source, tmp_path):
    folder = tmp_path / "before"
    said = recorded(replay, source, folder, "total", "table", "program")
    assert said == f"{folder}: 3 programs, 4 kernels\n"
    assert replay("compare", folder, "--time") == "3 programs: 4 kernels equal\n"
    again = tmp_path / "again"  # a recording is a folder of graphs too
    assert replay("record", again, folder).endswith("3 programs, 4 kernels\n")


def test_a_changed_schedule_is_seen_and_timed(replay, source, tmp_path, monkeypatch):
    folder = tmp_path / "before"
    recorded(replay, source, folder, "total", "table", "program")
    monkeypatch.setattr(MachineFacts, "accumulators", 1)
    text = replay("compare", folder, "--time", code=1)
    assert "model.py:total, time x " in text and "  changed r_64_128, time x " in text
    assert " -> " in text and ":table" not in text
    last = r"3 programs: [23] kernels equal, [12] changed, time x [\d.]+ over [12] programs?"
    assert re.fullmatch(last, text.splitlines()[-1])
    found = json.loads(replay("compare", folder, "--time", "--json", code=1))
    total, table, _ = found
    assert total["ratio"] > 0 and total["kernels"][0]["ratio"] > 0
    assert table["equal"] == 1 and table["ratio"] is None and not table["kernels"]
    assert "+++ after" in total["kernels"][0]["diff"]


def test_a_difference_is_shown(replay, source, tmp_path, monkeypatch):
    folder = tmp_path / "before"
    recorded(replay, source, folder, "total")
    monkeypatch.setattr(MachineFacts, "accumulators", 1)
    lines = replay("compare", folder, "--diff", code=1).splitlines()
    assert "    --- before" in lines and "    +++ after" in lines
    assert any(line.startswith("    -") for line in lines[4:])


def test_two_recordings(replay, source, tmp_path, monkeypatch):
    before, after = tmp_path / "before", tmp_path / "after"
    recorded(replay, source, before, "total", "table")
    monkeypatch.setattr(MachineFacts, "accumulators", 1)
    recorded(replay, source, after, "total")
    monkeypatch.undo()
    text = replay("compare", before, after, "--time", code=1)
    assert "changed r_64_128, time x " in text
    assert "model.py:table: not in the other recording" in text
    assert text.splitlines()[-1].startswith("2 programs: 0 kernels equal, 1 changed, 1 program ref")


def test_kernels_that_are_gone_or_new(replay, source, tmp_path, monkeypatch):
    folder = tmp_path / "before"
    recorded(replay, source, folder, "total")
    x = uopc.param("x", (5,))
    file = folder / "0000.uop"
    file.write_text(uopc.print_graph(x.exp()) + "\n", "utf-8")
    assert "not a saved schedule" in replay("compare", folder, code=1)
    uopc.save_schedule(uopc.compile(x.exp()), file)  # as if this version made other kernels
    text = replay("compare", folder, code=1)
    assert "  gone r_64_128" in text and "  new E_5" in text


def test_what_is_refused_is_said_and_the_rest_recorded(replay, source, tmp_path):
    folder = tmp_path / "before"
    given = f"{source}:rules", f"{source}:total", tmp_path / "no.uop"
    text = replay("record", folder, *given, code=1)
    assert "rules are functions" in text and "no.uop: no such file" in text
    assert text.endswith("1 program, 1 kernel, 2 refused\n")
    assert replay("compare", folder) == "1 program: 1 kernel equal\n"


def test_a_graph_that_this_version_refuses(replay, source, tmp_path):
    folder = tmp_path / "before"
    recorded(replay, source, folder, "total", "table")
    file = folder / "0000.uop"
    file.write_text(file.read_text("utf-8").replace("device: cpu", "device: tpu"), "utf-8")
    text = file.read_text("utf-8")
    file.write_text(text.replace("// schedule", "// device: tpu\n// schedule"), "utf-8")
    text = replay("compare", folder, code=1)
    assert "model.py:total: " in text and "1 program refused" in text


@pytest.mark.parametrize("name", ["replay.json", "0000.uop", "0000.kernels.json", "0000.code"])
@pytest.mark.parametrize("how", ["missing", "empty", "cut"])
def test_damage(replay, source, tmp_path, monkeypatch, name, how):
    folder = tmp_path / "before"
    recorded(replay, source, folder, "total")
    file = folder / name
    content = file.read_bytes()
    file.unlink()
    if how != "missing":
        file.write_bytes(b"" if how == "empty" else content[: len(content) * 2 // 3])
    monkeypatch.setattr(MachineFacts, "accumulators", 1)  # so that the code is asked for
    text = replay("compare", folder, "--time", code=1)
    if name == "0000.code" and how != "missing":
        assert "model.py:total: not timed: " in text and "  changed r_64_128" in text
    else:
        assert text.startswith(f"uopc: {file}: ")


@pytest.mark.parametrize("byte", [0, 60, 1000, -1])
def test_changed_code_is_not_run(replay, source, tmp_path, monkeypatch, byte):
    folder = tmp_path / "before"
    recorded(replay, source, folder, "total")
    file = folder / "0000.code"
    content = bytearray(file.read_bytes())
    content[byte] ^= 64
    file.write_bytes(content)
    monkeypatch.setattr(MachineFacts, "accumulators", 1)
    text = replay("compare", folder, "--time", code=1)
    assert "not timed: its code cannot be used: the recorded code is damaged" in text


@pytest.mark.parametrize("name", ["replay.json", "0000.kernels.json"])
def test_json_without_an_end(replay, source, tmp_path, name):
    recorded(replay, source, tmp_path / "before", "total")
    (tmp_path / "before" / name).write_text("[" * 100_000, "utf-8")
    text = replay("compare", tmp_path / "before", code=1)
    assert text.startswith(f"uopc: {tmp_path / 'before' / name}: ")


def test_other_versions_and_machines_are_compared_but_not_timed(
    replay, source, tmp_path, monkeypatch
):
    folder = tmp_path / "before"
    recorded(replay, source, folder, "total")
    monkeypatch.setattr(MachineFacts, "accumulators", 1)
    monkeypatch.setattr(key, "FORMAT", key.FORMAT + 1)
    text = replay("compare", folder, "--time", code=1)
    assert "model.py:total: not timed: recorded with another format" in text
    assert "  changed r_64_128," in text


def test_a_folder_is_not_written_over(replay, source, tmp_path):
    recorded(replay, source, tmp_path / "before", "total")
    text = replay("record", tmp_path / "before", source + ":total", code=1)
    assert "is not empty" in text
    assert "no such file" in replay("compare", tmp_path / "none", code=1).lower()


def test_arrays_and_results_stay_out_of_the_way(replay, tmp_path):
    """Programs that write their arguments, without outputs, and constants of a small float."""
    file = tmp_path / "model.py"
    file.write_text(
        "import uopc, numpy as np\n"
        "x = uopc.param('x', (64,))\n"
        "stored = x[8:16].assign(x[0:8] * 2)\n"
        "h = uopc.param('h', (8,), uopc.dtypes.bfloat16)\n"
        "half = h + uopc.constant(1.5, uopc.dtypes.bfloat16)\n",
        "utf-8",
    )
    assert "2 programs" in recorded(replay, str(file), tmp_path / "a", "stored", "half")
    assert replay("compare", tmp_path / "a", "--time").startswith("2 programs: 3 kernels equal")


def test_kernels_of_a_gpu(replay, source, tmp_path, monkeypatch):
    with module.installed("sm_80"):
        said = replay("record", tmp_path / "a", f"{source}:total", "--device", "cuda")
        assert said.endswith("1 program, 1 kernel\n")
        assert replay("compare", tmp_path / "a") == "1 program: 1 kernel equal\n"


def test_recorded_code_computes_what_it_did(replay, source, tmp_path):
    """The code that runs beside the new one is the recorded one."""
    from uopc.cli import process_replay as recordings

    recorded(replay, source, tmp_path / "a", "program")
    (version,) = recordings.read(tmp_path / "a")
    runner = recordings._runner(version, version.request, backend_of("cpu"))
    z = np.linspace(-2, 2, 40, dtype="f4")
    found = runner.call((z,), {})
    np.testing.assert_allclose(found["a"], np.exp(z), rtol=1e-6)
    assert found["b"] == 2
