"""`uopc dump --html FILE`: one static page per compile. Code first, then every stage and rewrite.

The page holds its data compressed and draws what the reader opens, so that graphs of 50,000 nodes
take a few megabytes. It is self-contained: it needs no server and loads nothing.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections import Counter
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

from uopc.dump.files import write_text
from uopc.dump.stages import Dump
from uopc.dump.table import Row
from uopc.ir.core.uop import UOp

MOST_REWRITES: Final = 4000  # shown per stage; the page always gives the full number
_TEMPLATE: Final = Path(__file__).with_name("report.html")
_HERE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def write(file: Path, source: str, dump: Dump) -> None:
    """Write the page. UserError if the file cannot be written."""
    rows = dump.rows()
    data = {
        "source": source,
        "rows": [r.as_json() for r in rows],
        "kernels": [
            k | {stage: dump.code(stage)[k["name"]] for stage in dump.code_stages}
            for k in dump.kernel_facts()
        ],
        "stages": _stages(dump, {r.stage: r for r in rows}),
    }
    packed = zlib.compress(json.dumps(data, ensure_ascii=False).encode(), 6)
    page = _TEMPLATE.read_text("utf-8")
    page = page.replace("{{source}}", escape(source, quote=False))
    page = page.replace("{{data}}", base64.b64encode(packed).decode())
    write_text(file, page)


def _stages(dump: Dump, rows: Mapping[str, Row]) -> list[dict[str, Any]]:
    """The text of each stage that changed something, and its rewrites."""
    out = []
    for run in [stage.run for stage in dump.stages]:
        counts = Counter([f.rule for f in run.rewrites])
        out.append({
            "name": run.name,
            "text": dump.text(run.name) if rows[run.name].changed else None,
            "total": len(run.rewrites),
            "causes": [[_short(c.label), n] for c, n in counts.most_common()],
            "rewrites": [
                [_short(f.rule.label), _node(f.before), _node(f.after)]
                for f in run.rewrites[:MOST_REWRITES]
            ],
        })  # fmt: skip
    return out


def _short(label: str) -> str:
    """A label with paths below the package's parent."""
    return label.replace(_HERE, "")


def _node(u: UOp) -> str:
    """One node: its op, its operands by their ops, and its type."""
    arg = "" if u.arg is None else f" {_brief(u)}"
    operands = [s.op.name if s.src or s.arg is None else _brief(s) for s in u.src[:8]]
    more = ", …" if len(u.src) > 8 else ""
    return f"{u.op.name}{arg}({', '.join(operands)}{more}) : {u.dtype.name}"


def _brief(u: UOp) -> str:
    text = str(getattr(u.arg, "name", None) or u.arg)
    return text if len(text) <= 40 else text[:39] + "…"
