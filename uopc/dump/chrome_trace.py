"""`uopc dump --trace FILE`: a compile in Chrome's trace format, for Perfetto or about:tracing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from uopc.dump.files import write_text
from uopc.dump.stages import Dump


def write(file: Path, source: str, dump: Dump) -> None:
    """Write a slice for each pass, then one for each stage of code. Times are microseconds.

    UserError if the file cannot be written.
    """
    runs, rows = dump.run.runs, dump.rows()
    first = runs[0].begin if runs[0].begin else min([r.begin for r in runs[1:]], default=0.0)
    name = {"name": f"uopc {source}"}
    events: list[Any] = [{"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": name}]
    end = 0.0
    begins = [(run.begin - first) * 1e6 for run in runs] + [0.0] * (len(rows) - len(runs))
    for row, begin in list(zip(rows, begins))[1:]:  # the first row is the input
        start, duration = max(end, begin), row.seconds * 1e6
        end = start + duration
        category = "pass" if row.unit == "nodes" else "backend"
        events.append({
            "name": row.stage, "cat": category, "ph": "X", "pid": 1, "tid": 1,
            "ts": round(start, 3), "dur": round(duration, 3), "args": row.as_json(),
        })  # fmt: skip
    write_text(file, json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, indent=1))
