"""`uopc dump --trace FILE`: a compile in Chrome's trace format, for Perfetto or about:tracing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from uopc.dump.stages import Row
from uopc.errors import UserError
from uopc.passes.pass_manager import StageRun


def write(file: Path, runs: Sequence[StageRun], rows: Sequence[Row], source: str) -> None:
    """A slice for each pass and for what comes after the passes; times are microseconds.

    rows: the stage table, with the same stages and then those that are text. UserError where the
    file cannot be written.
    """
    first = runs[0].begin if runs[0].begin else min([r.begin for r in runs[1:]], default=0.0)
    events = [_name("process_name", {"name": f"uopc {source}"})]
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
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None


def _name(kind: str, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": 1, "args": args}


def _slice(row: Row, start: float) -> dict[str, Any]:
    shown = {
        "level": row.level, "before": row.before, "after": row.after, "unit": row.unit,
        "kernels": row.kernels, "rewrites": row.rewrites, "changed": row.changed,
    }  # fmt: skip
    return {
        "name": row.stage, "cat": "pass" if row.unit == "nodes" else "backend", "ph": "X", "pid": 1,
        "tid": 1, "ts": round(start, 3), "dur": round(row.seconds * 1e6, 3), "args": shown,
    }  # fmt: skip
