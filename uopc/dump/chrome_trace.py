"""`--trace FILE`: a compile, and for `uopc run` the work of its threads, in Chrome's trace format.

Perfetto and about:tracing read the file: a row for the compile, then a row for each thread.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from uopc.dump.files import write_text
from uopc.dump.stages import Dump
from uopc.ir.records import dataclass

_COMPILE = 1  # the row of the compile; threads follow


@dataclass(frozen=True)
class Ran:
    """The work of a thread in a run between two readings of time.perf_counter."""

    thread: str
    name: str
    begin: float
    end: float
    category: str
    args: dict[str, Any] = field(default_factory=dict)


def write(file: Path, source: str, dump: Dump, ran: Sequence[Ran] = ()) -> None:
    """Write a slice for each pass and each stage of code, then the work of threads. Times are
    microseconds.

    UserError if the file cannot be written.
    """
    runs, rows = dump.run.runs, dump.rows()
    first = min([r.begin for r in runs if r.begin] or [r.begin for r in ran], default=0.0)
    names = {_COMPILE: "compile"} if ran else {}
    rows_of = {t: _COMPILE + 1 + i for i, t in enumerate(dict.fromkeys([r.thread for r in ran]))}
    names |= {row: thread for thread, row in rows_of.items()}
    events: list[Any] = [_name_event("process_name", _COMPILE, f"uopc {source}")]
    events += [_name_event("thread_name", row, name) for row, name in names.items()]
    end = 0.0
    begins = [(run.begin - first) * 1e6 for run in runs] + [0.0] * (len(rows) - len(runs))
    for row, begin in list(zip(rows, begins))[1:]:  # the first row is the input
        start, duration = max(end, begin), row.seconds * 1e6
        end = start + duration
        category = "pass" if row.unit == "nodes" else "backend"
        events.append({
            "name": row.stage, "cat": category, "ph": "X", "pid": 1, "tid": _COMPILE,
            "ts": round(start, 3), "dur": round(duration, 3), "args": row.as_json(),
        })  # fmt: skip
    events += [
        {
            "name": r.name, "cat": r.category, "ph": "X", "pid": 1, "tid": rows_of[r.thread],
            "ts": round((r.begin - first) * 1e6, 3), "dur": round((r.end - r.begin) * 1e6, 3),
            "args": r.args,
        }
        for r in ran
    ]  # fmt: skip
    write_text(file, json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, indent=1))


def _name_event(kind: str, row: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": row, "args": {"name": name}}
