"""The results of a run, as lines and as JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.conformance.runner import BY_RULE, FAILED, PASSED, Outcome

EXCEPTIONS: Final = Path(__file__).with_name("more_kernels.txt")


def failure_line(o: Outcome) -> str:
    return f"FAILED {o.group}/{o.id} {o.test}: {o.reason}"


def last_line(outcomes: Sequence[Outcome]) -> str:
    count = {v: sum(o.verdict == v for o in outcomes) for v in (PASSED, FAILED, BY_RULE)}
    return f"{count[PASSED]} passed, {count[FAILED]} failed, {count[BY_RULE]} by rule"


def tally_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Kernels against the recorded counts; other than default flags apart."""
    lines = []
    known = exceptions()
    listed = sum(o.id.partition(".")[0] in known for o in more(outcomes))
    for default, name in ((True, "default flags"), (False, "other flags")):
        counted = [
            o for o in outcomes
            if o.default_flags is default and None not in (o.kernels, o.expected_kernels)
        ]  # fmt: skip
        pairs = [(o.kernels or 0, o.expected_kernels or 0) for o in counted]
        above, fewer = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
        ours, theirs = sum(a for a, _ in pairs), sum(b for _, b in pairs)
        copied = sum(o.copied_outputs for o in counted)
        lines.append(
            f"kernels ({name}): {ours}, recorded {theirs}, over {len(pairs)} cases: "
            f"more in {above}{f' ({listed} listed)' if default else ''}, "
            f"equal in {len(pairs) - above - fewer}, fewer in {fewer}; "
            f"beside them {copied} outputs that are views, copied"
        )
    excepted = [o for o in outcomes if "exception" in o.notes]
    if excepted:
        lines.append(f"exceptions, which need only be right: {len(excepted)}, see *_exceptions")
    return lines


def more(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The cases that launch more kernels than recorded, at default flags."""
    return [
        o for o in outcomes
        if o.default_flags and None not in (o.kernels, o.expected_kernels)
        and (o.kernels or 0) > (o.expected_kernels or 0)
    ]  # fmt: skip


def exceptions() -> dict[str, str]:
    """Graphs for which more kernels than recorded are right, and why."""
    lines = EXCEPTIONS.read_text("utf-8").splitlines()
    rows = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {row[0]: row[1] for row in rows}


def more_kernels(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each case with more kernels than recorded, with the reason if one is listed."""
    known = exceptions()
    return [
        f"{o.kernels} > {o.expected_kernels} {o.group}/{o.id} {o.test}: "
        + known.get(o.id.partition(".")[0], "NOT LISTED")
        for o in more(outcomes)
    ]


def _failure_class(reason: str) -> str:
    """A reason without its numbers and node texts."""
    text = re.sub(r"\b(out|final)\d+", r"\1", reason.split(";")[0])
    text = re.sub(r"%\w+|'[^']*'", "…", text)
    return re.sub(r"-?\d[\d.e+-]*|\bnan\b|\binf\b", "#", text)[:160]


def summary_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Failures by class, the largest first, each with its smallest case."""
    classes: dict[str, list[Outcome]] = {}
    for o in outcomes:
        if o.verdict == FAILED:
            classes.setdefault(_failure_class(o.reason), []).append(o)
    lines = []
    for members in sorted(classes.values(), key=len, reverse=True):
        o = min(members, key=lambda m: m.nodes or 1 << 30)
        lines.append(f"{len(members):5} × {o.group}/{o.id} {o.test}: {o.reason[:300]}")
    return lines


def write_json(path: Path, outcomes: Sequence[Outcome]) -> None:
    path.write_text(json.dumps([dataclasses.asdict(o) for o in outcomes], indent=1) + "\n", "utf-8")
