"""The conformance command itself: that it passes what is right and fails what is not."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance import __main__ as command
from tests.conformance import compare, corpus, expression, report, workers
from tests.conformance.runner import BY_RULE, FAILED, PASSED, Outcome
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


def _record(id: int, name: str, dtype: str, shape: list[Any], src: list[int], **arg: Any) -> Any:
    return {"id": id, "op": name, "dtype": dtype, "shape": shape, "src": src, "arg": arg}


def _buffer(id: int, slot: int, size: int, dtype: str = "float32") -> Any:
    fields = {"slot": slot, "size": size, "device": "0", "init": "data"}
    return _record(id, "BUFFER", dtype, [size], [], **fields)


def _place(path: Path, case: dict[str, Any], arrays: dict[str, Any]) -> corpus.Place:
    """A corpus of one case."""
    blob = b""
    entries = {}
    for name, array in arrays.items():
        entries[name] = {
            "dtype": array.dtype.name, "shape": list(array.shape), "count": array.size,
            "offset": len(blob),
        }  # fmt: skip
        blob += array.tobytes()
    whole = {"id": "x", "test": "t", "group": "g", "kernels": 1} | case | {"arrays": entries}
    with zipfile.ZipFile(path / "g.zip", "w") as archive:
        archive.writestr("cases.jsonl", json.dumps(whole))
        archive.writestr("data.bin", blob)
    (place,) = corpus.find(path)
    return place


_DOUBLE = [_buffer(0, 0, 4), _record(1, "ADD", "float32", [4], [0, 0])]


@pytest.mark.parametrize("off, verdict", [(0.0, PASSED), (1e-4, FAILED)])
def test_recorded_output(tmp_path: Path, off: float, verdict: str) -> None:
    x = np.arange(4, dtype=np.float32)
    place = _place(tmp_path, {"nodes": _DOUBLE, "outs": [1]}, {"in0": x, "out0": 2 * x + off})
    out = workers.run_one(place, None)
    assert (out.verdict, out.kernels) == (verdict, 1), out.reason


def test_own_rule_counts_only_where_marked(tmp_path: Path) -> None:
    arrays = {"in0": np.ones(4, np.float32), "out0": np.zeros(4, np.float32)}
    case = {"nodes": _DOUBLE, "outs": [1], "replay_note": {"explanation": "1 + 1 is 0 there"}}
    assert workers.run_one(_place(tmp_path, case, arrays), None).verdict == BY_RULE


def test_graph_without_data_is_interpreted(tmp_path: Path) -> None:
    out = workers.run_one(_place(tmp_path, {"nodes": _DOUBLE, "outs": [1]}, {}), None)
    assert out.verdict == PASSED, out.reason


def test_store_changes_final_contents(tmp_path: Path) -> None:
    nodes = [
        _buffer(0, 0, 4, "int32"),
        _record(1, "SHRINK", "int32", [2], [0], begin=[1], size=[2]),
        _record(2, "CONST", "int32", [], [], value=7),
        _record(3, "EXPAND", "int32", [2], [2], prefix=[2]),
        _record(4, "STORE", "void", [], [1, 3]),
        _record(5, "AFTER", "int32", [4], [0, 4]),
    ]
    want = np.array([0, 7, 7, 3], np.int32)
    arrays = {"in0": np.arange(4, dtype=np.int32), "out0": want, "final0": want}
    out = workers.run_one(_place(tmp_path, {"nodes": nodes, "outs": [5]}, arrays), None)
    assert out.verdict == PASSED, out.reason


def test_what_a_case_raises_is_its_failure(tmp_path: Path) -> None:
    nodes = [_record(0, "MYSTERY", "int32", [], [])]
    out = workers.run_one(_place(tmp_path, {"nodes": nodes, "outs": [0]}, {}), None)
    assert out.verdict == FAILED and "no row for MYSTERY" in out.reason


def test_symbolic_shape_is_bound(tmp_path: Path) -> None:
    nodes = [
        _buffer(0, 0, 8),
        {"id": 1, "op": "VAR", "dtype": "index", "shape": [], "src": [],
         "arg": {"name": "n", "min": 1, "max": 8, "value": 3}},
        _record(2, "SHRINK", "float32", [{"n": 1}], [0], begin=[0], size=[{"n": 1}]),
        _record(3, "REDUCE", "float32", [], [2], op="ADD", axes=[0]),
    ]  # fmt: skip
    arrays = {"in0": np.ones(8, np.float32), "out0": np.array(3, np.float32)}
    out = workers.run_one(_place(tmp_path, {"nodes": nodes, "outs": [3]}, arrays), None)
    assert out.verdict == PASSED, out.reason


def test_hung_and_crashed_cases_end_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case past its limit fails; the next one gets a new process."""
    monkeypatch.setattr(workers, "LIMIT", 0.0)
    x = np.ones(4, np.float32)
    place = _place(tmp_path, {"nodes": _DOUBLE, "outs": [1]}, {"in0": x, "out0": 2 * x})
    slow = list(workers.run_all([place, place], 1, None))
    assert [o.verdict for o in slow] == [FAILED, FAILED] and "too slow" in slow[0].reason
    monkeypatch.setattr(workers, "LIMIT", 60.0)
    assert [o.verdict for o in workers.run_all([place], 1, None)] == [PASSED]


def test_tolerance() -> None:
    one = np.ones(3, np.float32)
    ulp = np.float32(2.0**-23)
    assert compare.difference(one + 4 * ulp, one) is None
    assert compare.difference(one + 6 * ulp, one) is not None
    assert compare.difference(one + 6 * ulp, one, spread=np.full(3, 2.0**-23)) is None
    assert compare.difference(one + 6 * ulp, one, mask=np.zeros(3, np.bool_)) is None
    assert compare.difference(one * np.nan, one) is not None
    assert compare.difference(np.arange(3), np.arange(1, 4)) is not None
    assert compare.difference(one, one[:2]) is not None


def test_large_arrays_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    want = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    got = want.copy()
    got[1, 0, 0] += 0.25
    got[4, 3, 2] -= 2
    mask = np.ones(want.shape, np.bool_)
    mask[2] = False
    whole = compare.difference(got, want, mask), compare.difference(got, want)
    assert whole[1] == "2/60 differ, by up to 2, first 12.25 want 12.0"
    monkeypatch.setattr(compare, "MOST_AT_ONCE", 7)
    assert (compare.difference(got, want, mask), compare.difference(got, want)) == whole
    assert compare.difference(want, want, spread=np.zeros(want.shape)) is None


def test_too_little_memory_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of 4 TiB: what it takes is in the failure."""
    nodes = [
        {"id": 0, "op": "CONST", "dtype": "float32", "shape": [], "src": [], "arg": {"value": 1}},
        {"id": 1, "op": "EXPAND", "dtype": "float32", "shape": [1 << 40], "src": [0],
         "arg": {"prefix": [1 << 40]}},
        {"id": 2, "op": "CONTIGUOUS", "dtype": "float32", "shape": [1 << 40], "src": [1]},
    ]  # fmt: skip
    outcome = workers.run_one(_place(tmp_path, {"nodes": nodes, "outs": [2]}, {}), None)
    assert outcome.verdict == FAILED and "results of 4096.0 GiB" in outcome.reason


def test_expressions_are_compared_where_they_have_a_value() -> None:
    x = UOp.variable("x", 0, 9)
    invalid = UOp.invalid()
    assert expression.difference((x * 2) // 2, x) is None
    assert expression.difference(x + 1, x) is not None
    gated = UOp(Ops.WHERE, x.dtype, (x < 5, x, invalid))
    assert expression.difference(gated, x) is None
    assert expression.difference(x, gated) is not None


def test_report() -> None:
    outcomes = [Outcome("a", "t", "g"), Outcome("b", "t", "g").fail("out0 int32: 3/4 differ")]
    assert report.last_line(outcomes) == "1 passed, 1 failed, 0 by rule"
    assert len(report.summary_lines(outcomes)) == 1


def test_damaged_cases_fail_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a line holds, the command ends, and what stands beside it counts."""
    good = {"id": "a.b", "nodes": _DOUBLE, "outs": [1]}
    node = dict(_DOUBLE[0])
    lines = [
        good, [], "text", 7, None, good | {"id": 5}, good | {"nodes": {}}, good | {"outs": None},
        good | {"kernels": "3"}, good | {"arrays": []}, good | {"flags": 1},
        {k: v for k, v in good.items() if k != "nodes"}, good | {"outs": [9]},
        good | {"nodes": [{k: v for k, v in node.items() if k != "dtype"}], "outs": [0]},
        good | {"nodes": [node | {"dtype": "float7"}], "outs": [0]},
        good | {"nodes": [node | {"op": "NOTHING"}], "outs": [0]},
        good | {"nodes": [_DOUBLE[1]], "outs": [0]},
        good | {"arrays": {"in0": {"dtype": "float32", "shape": [4], "count": 4, "offset": 99}}},
        good | {"arrays": {"out0": {"shape": [4]}}},
    ]  # fmt: skip
    text = "\n".join([*map(json.dumps, lines), "[" * 100_000, "{"])
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / corpus.CASES).write_text(text, "utf-8")
    (tmp_path / "ir").mkdir()
    damaged = '[]\n{"kind": "nothing"}\n{"kind": 3, "test": []}\n'
    (tmp_path / "ir" / "x.jsonl").write_text(damaged, "utf-8")
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path), "--json", str(tmp_path / "found.json")])
    assert command.main() == 1
    found = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert [o["verdict"] for o in found] == [PASSED] + [FAILED] * (len(found) - 1)
    assert len(found) == len(lines) + 2 + 3 and all(o["reason"] for o in found[1:])


def test_an_empty_directory_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path)])
    assert command.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed, 0 by rule"
