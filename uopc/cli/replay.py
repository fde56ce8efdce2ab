"""uopc replay: compare all kernels of a corpus before and after a change of the compiler.

  uopc replay record FOLDER SOURCE ...    compile the graphs, write kernels and code to FOLDER
  uopc replay compare FOLDER [AFTER]      compile the same graphs with this version, and compare;
                                          or compare with AFTER, another recording

SOURCE is as for `uopc run`, or a folder: all .uop files in it. `uopc.save_schedule` writes such
files; their Opts are not kept, because a change of the choice is a change.

A kernel is changed if its UOps in order or its LLVM IR differ; kernels have equal names if they
have equal shapes. --time runs the code of both versions in turns, launch by launch, on the same
random arrays. A ratio is the time after over the time before.

The exit code is 0 if all kernels are equal, 1 if some differ or a graph is refused.

examples:
  uopc replay record before graphs/ model.py:attention
  uopc replay compare before --diff
  uopc replay compare before --time --json
"""

from __future__ import annotations

import difflib
import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from uopc.cli import load
from uopc.cli import process_replay as replay
from uopc.cli.output import Output, Refuse
from uopc.cli.process_replay import Change, ReplayedProgram
from uopc.cli.run import checked_request
from uopc.errors import Error
from uopc.ir.records import dataclass
from uopc.ir.text.columns import plural


def arguments(parser: ArgumentParser) -> None:
    """Record, or compare."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="record|compare")
    record = actions.add_parser("record", help="compile graphs and write their kernels")
    record.add_argument("folder", metavar="FOLDER", type=Path)
    record.add_argument("sources", metavar="SOURCE", nargs="+")
    record.add_argument("--device", help="compile for cpu, cuda or cuda:sm_90a (default: cpu)")
    compare = actions.add_parser("compare", help="compare kernels with those of a recording")
    compare.add_argument("folder", metavar="FOLDER", type=Path)
    compare.add_argument("after", metavar="AFTER", type=Path, nargs="?", help="another recording")
    compare.add_argument("--time", action="store_true", help="time changed programs side by side")
    compare.add_argument("--diff", action="store_true", help="show how each kernel differs")
    compare.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Run the chosen action."""
    return _record(args, out) if args.action == "record" else _compare(args, out)


def _record(args: Namespace, out: Output) -> int:
    recorder, refused, kernels = replay.Recorder(args.folder), 0, 0
    for source in _sources(args.sources):
        try:
            found = load.load(source)
            version = recorder.add(found.name, checked_request(found, args.device))
            kernels += len(version.kernels)
        except Error as error:
            out.line(f"{source}: refused: {error}", "red")
            refused += 1
    recorder.close()
    said = f"{plural(len(recorder.names), 'program')}, {plural(kernels, 'kernel')}"
    out.line(f"{args.folder}: {said}" + (f", {refused} refused" if refused else ""))
    return int(bool(refused))


def _sources(given: list[str]) -> Iterator[str]:
    """Each source; for a folder, its .uop files."""
    for source in given:
        if Path(source).is_dir():
            yield from map(str, sorted(Path(source).rglob("*.uop")))
        else:
            yield source


# ---------------------------------------------------------------- compare
@dataclass
class _Compared:
    """One program: its differing kernels, and the number of equal kernels. `problem`: why it is now
    refused or cannot be timed. `ratio`: of the times of all its kernels."""

    name: str
    changes: list[Change] = field(default_factory=list)
    equal: int = 0
    problem: str = ""
    refused: bool = False
    ratio: float | None = None

    @property
    def differs(self) -> bool:
        return self.refused or bool(self.changes)


def _compare(args: Namespace, out: Output) -> int:
    later = None if args.after is None else {v.name: v for v in replay.read(args.after)}
    compared = []
    for before in replay.read(args.folder):
        found = _one(before, later, args.time)
        compared.append(found)
        if not args.json and found.differs:
            _print(found, args.diff, out)
    if args.json:
        out.line(json.dumps(_as_json(compared), indent=2))
    else:
        _summary(compared, out)
    return int(any(c.differs for c in compared))


def _one(
    before: ReplayedProgram, later: dict[str, ReplayedProgram] | None, timed: bool
) -> _Compared:
    """Compare a program with the program of the same name in `later`, or with a new compile."""
    found = _Compared(before.name)
    try:
        if later is None:
            after = replay.compiled(before.name, before.request)
        elif before.name in later:
            after = later[before.name]
        else:
            return replace(found, problem="not in the other recording", refused=True)
    except Error as error:
        return replace(found, problem=str(error), refused=True)
    found.changes = replay.changes(before, after)
    found.equal = len(before.kernels) - sum(c.kind != "new" for c in found.changes)
    if timed and found.changes:
        try:
            times = replay.times(before, after)
        except (Error, replay.NotTimed) as error:
            return replace(found, problem=f"not timed: {error}")
        found.ratio = times.ratio()
        found.changes = [
            replace(c, ratio=times.ratio(c.kernel)) if c.kind == "changed" else c
            for c in found.changes
        ]
    return found


def _print(found: _Compared, diff: bool, out: Output) -> None:
    ratio = "" if found.ratio is None else f", time x {found.ratio:.2f}"
    problem = f": {found.problem}" if found.problem else ""
    out.line(f"{found.name}{ratio}{problem}", "bold")
    for c in found.changes:
        opts = [k.opts for k in (c.before, c.after) if k is not None]
        shown = f", {opts[0]} -> {opts[1]}" if len({*opts}) == 2 else ""
        own = "" if c.ratio is None else f", time x {c.ratio:.2f}"
        out.line(f"  {c.kind} {c.kernel}{own}{shown}")
        if diff:
            for line in _diff(c):
                style = {"+": "green", "-": "red"}.get(line[:1], "")
                out.line(f"    {line}", style)


def _diff(c: Change) -> Iterator[str]:
    """A diff of the UOps; if these are equal, of the LLVM IR."""
    texts = [("", "") if k is None else (k.uops, k.source) for k in (c.before, c.after)]
    which = 0 if texts[0][0] != texts[1][0] else 1
    old, new = (t[which].splitlines() for t in texts)
    return difflib.unified_diff(old, new, "before", "after", lineterm="", n=2)


def _summary(compared: list[_Compared], out: Output) -> None:
    counts = Counter(c.kind for found in compared for c in found.changes)
    refused = sum(c.refused for c in compared)
    parts = [f"{plural(sum(c.equal for c in compared), 'kernel')} equal"]
    parts += [f"{n} {kind}" for kind, n in sorted(counts.items())]
    parts += [f"{plural(refused, 'program')} refused"] if refused else []
    ratios = [c.ratio for c in compared if c.ratio is not None]
    if ratios:
        parts.append(f"time x {replay.mean(ratios):.2f} over {plural(len(ratios), 'program')}")
    out.line(f"{plural(len(compared), 'program')}: {', '.join(parts)}")


def _as_json(compared: list[_Compared]) -> list[dict[str, Any]]:
    return [
        {
            "program": found.name, "equal": found.equal, "refused": found.refused,
            "problem": found.problem, "ratio": found.ratio,
            "kernels": [
                {
                    "name": c.kernel, "change": c.kind, "ratio": c.ratio,
                    "opts": [k.opts if k is not None else None for k in (c.before, c.after)],
                    "diff": "\n".join(_diff(c)),
                }
                for c in found.changes
            ],
        }
        for found in compared
    ]  # fmt: skip
