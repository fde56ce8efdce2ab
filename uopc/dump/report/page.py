"""Write the report of a run as a page that needs no server and loads nothing.

The page holds its data compressed and only draws the parts that the reader opens, so that graphs of
50,000 nodes take a few megabytes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, field
from html import escape
from pathlib import Path
from typing import Any, Final

from uopc.backends.memory_plan import Lifetime
from uopc.dump.files import write_text
from uopc.dump.report import rewrites, values
from uopc.dump.report.kernels import KernelSection
from uopc.dump.stages import ASM, LLVM, Dump
from uopc.dump.table import StageRow
from uopc.ir.core import walk
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.passes import PIPELINE
from uopc.passes.contract import Pass

_FOLDER: Final = Path(__file__).parent
_SCRIPTS: Final = (
    "base.js", "diff.js", "lists.js", "kernels.js", "stages.js", "rewrites.js", "views.js",
    "main.js",
)  # fmt: skip


@dataclass(frozen=True)
class LaunchWork:
    """The work of a launch; an upper limit unless `exact`, because sizes may be symbolic."""

    operations: int
    nbytes: int  # of the storage that it touches
    floats: bool
    exact: bool


@dataclass(frozen=True)
class CallTimes:
    """The seconds of a call and of its launches, the machine's lower limits, and their reasons. A
    launch in a loop counts all its rounds."""

    total: float
    launches: list[float]
    least: list[float]
    bounds: list[str]
    values: dict[str, int]  # of variables
    events: list[dict[str, float]] | str  # hardware events of each launch, or why there are none
    rounds: list[int]  # how often a call runs each launch


@dataclass
class Facts:
    """Facts from outside of the passes: the work of kernels, the memory plan, measured times."""

    work: dict[str, LaunchWork] = field(default_factory=dict)  # by kernel
    # By intermediate, or None for the tiles of a launch's kernel: its lifetime and arena offset.
    blocks: list[tuple[UOp | None, Lifetime, int]] = field(default_factory=list)
    arena_bytes: int = 0
    times: CallTimes | None = None


def write(file: Path, source: str, dump: Dump, facts: Facts) -> None:
    """Write the page. UserError if the file cannot be written."""
    write_text(file, render(source, dump, facts))


def render(source: str, dump: Dump, facts: Facts) -> str:
    """The text of the page."""
    packed = zlib.compress(json.dumps(data(source, dump, facts), ensure_ascii=False).encode(), 6)
    page = (_FOLDER / "page.html").read_text("utf-8")
    parts = {
        "source": escape(source, quote=False),
        "style": (_FOLDER / "page.css").read_text("utf-8"),
        "script": "\n".join([(_FOLDER / name).read_text("utf-8") for name in _SCRIPTS]),
        "data": base64.b64encode(packed).decode(),
    }
    for name, text in parts.items():
        page = page.replace("{{" + name + "}}", text, 1)
    return page


def data(source: str, dump: Dump, facts: Facts) -> dict[str, Any]:
    """The page's data, as JSON."""
    machine = dump.context.target
    lines, texts = values.Interned(), values.Interned()
    around = rewrites.Surroundings(texts)
    bodies = values.lines_of(dump, lines)
    sources = values.Sources(walk.toposort(dump.stages[0].whole))
    kernels = KernelSection(dump, sources, lines)
    shown = kernels.as_json()
    for kernel in shown:
        work = facts.work.get(kernel["name"])
        kernel["work"] = None if work is None else asdict(work)
    return {
        "source": source,
        "facts": {
            "device": machine.device, "cpu": machine.cpu, "threads": dump.context.threads,
            "optimize": dump.context.optimize,
        },
        "stages": _stages(dump, bodies, texts, around),
        "graph": around.as_json(),
        "kernels": shown,
        "launches": kernels.launches(),
        "placement": _placement(dump, texts),
        "sources": sources.as_json(),
        "values": values.facts(dump, sources, kernels.final),
        "memory": {"bytes": facts.arena_bytes, "blocks": _blocks(facts, kernels.names.of)},
        "times": None if facts.times is None else asdict(facts.times),
        "lines": lines.as_json(),
        "texts": texts.as_json(),
    }  # fmt: skip


def _blocks(facts: Facts, names: Mapping[UOp, str]) -> list[list[Any]]:
    """The blocks of the arena: name, bytes, offset, first and last launch."""
    return [
        [
            f"tiles {alive.first}" if u is None else names[u],
            alive.nbytes, offset, alive.first, alive.last,
        ]
        for u, alive, offset in facts.blocks
    ]  # fmt: skip


def _stages(
    dump: Dump, bodies: list[list[int] | None], texts: values.Interned,
    around: rewrites.Surroundings,
) -> list[dict[str, Any]]:
    """The stages: each as a row of the stage table, with its lines, its rewrites and its ops."""
    rows = {r.stage: r for r in dump.rows()}
    why: dict[str, Pass] = {p.name: p for _, p in PIPELINE}
    first = min([s.run.begin for s in dump.stages if s.run.begin], default=0.0)
    out = []
    for at, stage in enumerate(dump.stages):
        run, row = stage.run, rows[stage.run.name]
        gone, made = rewrites.new_nodes(dump, at)
        out.append(_stage_record(row) | {
            "begin": max(0.0, run.begin - first) * 1e3,
            "text": bodies[at],
            "total": len(run.rewrites),
            "rules": rewrites.by_rule(run.rewrites, texts),
            "all": rewrites.in_order(run.rewrites, texts, around),
            "ops": rewrites.by_op(dump, at), "gone": gone, "made": made,
            "reports": bool(run.rewrites) or run.name not in why,
        })  # fmt: skip
    codes = [rows[name] for name in (LLVM, ASM) if name in rows]
    return out + [_stage_record(row) | {"code": True} for row in codes]


def _stage_record(row: StageRow) -> dict[str, Any]:
    found = row.as_json()
    return {"name": found.pop("stage"), **found}


def _placement(dump: Dump, texts: values.Interned) -> list[list[Any]]:
    """The decisions of place-stages: value, op, readers, shape, reads, stored, reason."""
    return [
        [
            values.number(d.name), texts.add(d.op), d.readers, texts.add(d.shape),
            [texts.add(r) for r in d.reads], int(d.stored), texts.add(d.explanation),
        ]
        for d in dump.decisions
    ]  # fmt: skip
