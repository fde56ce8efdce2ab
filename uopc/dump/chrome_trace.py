"""`uopc dump --trace FILE`: a compile in Chrome's trace format, for Perfetto or about:tracing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uopc.dump.files import write_text
from uopc.dump.stages import Row
from uopc.passes.pass_manager import StageRun


def write(file: Path, runs: Sequence[StageRun], rows: Sequence[Row], source: str) -> None:
    """Write a slice for each pass, then one for each stage of text. Times are microseconds.

    rows: the stage table, with the same stages and then those that are text. UserError if the file
    cannot be written.
    """
    first = runs[0].begin if runs[0].begin else min([r.begin for r in runs[1:]], default=0.0)
    name = {"name": f"uopc {source}"}
    events = [{"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": name}]
    end = 0.0
    by_name = {row.stage: row for row in rows}
    for run in runs[1:]:  # the first is the input
        start = max(end, (run.begin - first) * 1e6)
        end = start + run.seconds * 1e6
        events.append(_slice(by_name[run.name], start))
    for row in rows[len(runs) :]:
        events.append(_slice(row, end))
        end += row.seconds * 1e6
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, indent=1)
    write_text(file, text)


def _slice(row: Row, start: float) -> dict[str, Any]:
    return {
        "name": row.stage, "cat": "pass" if row.unit == "nodes" else "backend", "ph": "X", "pid": 1,
        "tid": 1, "ts": round(start, 3), "dur": round(row.seconds * 1e6, 3), "args": row.as_json(),
    }  # fmt: skip
