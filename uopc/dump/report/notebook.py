"""A program in a notebook: its loop nests, as HTML of bounded size."""

from __future__ import annotations

from html import escape
from typing import Final

from uopc.dump.report.kernels import KernelSection
from uopc.dump.report.loop_nest import Line
from uopc.dump.report.values import Interned, Sources
from uopc.dump.stages import Dump
from uopc.ir.text.columns import plural

MOST_KERNELS: Final = 8
MOST_LINES: Final = 40  # of a kernel
_KINDS: Final = {"note": "color:gray"}
_LOOP: Final = "color:#0969da"


def nests_html(title: str, dump: Dump) -> str:
    """The title, and each kernel's loop nest under its name, Opts and number of launches."""
    kernels = KernelSection(dump, Sources(()), Interned())
    calls = [kernel for kernel, _ in kernels.run.calls]
    parts = [f"<b>{escape(title)}</b>"]
    for kernel in dump.kernels[:MOST_KERNELS]:
        opts = " ".join(map(str, kernel.arg.opts or ()))
        launches = plural(calls.count(kernel), "launch", "launches")
        head = f"<code>{escape(kernel.arg.name)}</code> {launches} {escape(opts)}"
        parts.append(f"<div>{head}<pre>{_shown(kernels.nest(kernel))}</pre></div>")
    left = len(dump.kernels) - MOST_KERNELS
    if left > 0:
        parts.append(f"<div>and {plural(left, 'more kernel')}</div>")
    return "\n".join(parts)


def _shown(nest: list[Line]) -> str:
    lines = []
    for depth, kind, text in nest[:MOST_LINES]:
        style = _KINDS.get(kind, _LOOP) if kind else ""
        shown = "  " * depth + escape(text) + (f"  # {kind}" if style == _LOOP else "")
        lines.append(f'<span style="{style}">{shown}</span>' if style else shown)
    left = len(nest) - MOST_LINES
    return "\n".join([*lines, f"… {plural(left, 'more line')}"] if left > 0 else lines)
