"""The command line: `uopc dump|passes|ops|rules|check|bench|cache|doctor`.

Exit code 0; 1 where the input is bad (the message is on stderr); 2 for a wrong usage. Output is
coloured on a terminal unless NO_COLOR is set, and plain otherwise.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

_DUMP = """\
SOURCE is file.py, file.py:name or a stage file.uop. A Python file offers what it calls `graph`, or
its only module-level UOp that is not a part of another, or what its only function without arguments
returns. A stage file goes on with the pass after its own stage.

Without options: a table of the stages. `unchanged` is a stage that changed nothing."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "uopc", description="A tensor compiler whose every stage can be read."
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    raw = argparse.RawDescriptionHelpFormatter
    text = "the stages of a graph on its way to machine code"
    dump = commands.add_parser("dump", help=text, description=_DUMP, formatter_class=raw)
    dump.add_argument("source", metavar="SOURCE")
    dump.add_argument("--at", metavar="STAGE", help="print that stage (also: llvm, asm)")
    dump.add_argument("--diff", metavar="STAGE", help="print what that stage changed")
    dump.add_argument("--kernel", metavar="N|NAME", help="one kernel: by number, from 0, or name")
    dump.add_argument("--device", help="cpu (the default), or cuda:sm_90 and so on: PTX")
    dump.add_argument("--out", metavar="DIR", help="write numbered stage files to this folder")
    dump.add_argument("--html", metavar="FILE", help="write a page: code, stages, every rewrite")
    dump.add_argument("--trace", metavar="FILE", help="write the times in Chrome's trace format")
    dump.add_argument("--json", action="store_true", help="print JSON")
    commands.add_parser("passes", help="the passes in order, and the reasons for the order")
    ops = commands.add_parser("ops", help="the op table, or one op in full")
    ops.add_argument("name", nargs="?", metavar="NAME")
    rules = commands.add_parser("rules", help="the rules of simplify, in the order of trying")
    check = commands.add_parser("check", help="try every rule of simplify on numbers")
    for command in (rules, check):
        command.add_argument("name", nargs="?", metavar="SET", help="only this rule set")
    check.add_argument("--seed", type=int, default=0, help="of the graphs (default 0)")
    bench = commands.add_parser("bench", help="run a benchmark of a source checkout")
    bench.add_argument("name", metavar="NAME", help="a script: kernels, compile, ...")
    bench.add_argument("arguments", nargs=argparse.REMAINDER, help="handed to the script")
    text = "compiled programs on disk: list them, explain a hit or miss, remove them"
    cached = commands.add_parser("cache", help=text).add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    cached.add_parser("ls", help="what is there, last used first")
    why = cached.add_parser("why", help="for each kernel of SOURCE: is it there, what differs")
    why.add_argument("source", metavar="SOURCE")
    cached.add_parser("clear", help="remove everything")
    text = "what works on this machine, and for what does not, why"
    doctor = commands.add_parser("doctor", help=text)
    doctor.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="fail (exit code 1) unless programs for it run")  # fmt: skip
    doctor.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _version() -> str:
    from importlib import metadata

    try:
        return f"uopc {metadata.version('uopc')}"
    except metadata.PackageNotFoundError:  # run from a source folder that was not installed
        return "uopc (not installed)"


class Output:
    """Lines to stdout, in colour where that can be seen."""

    def __init__(self) -> None:
        self._console: Any = None
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an arrow is no reason to fail
        from uopc import config

        if sys.stdout.isatty() and not config.current().no_color:
            from rich.console import Console

            self._console = Console(highlight=False, soft_wrap=True)

    def line(self, text: str, style: str = "") -> None:
        """One line (or a text of several), in a style of rich."""
        if self._console is None:
            print(text)
        else:
            from rich.text import Text

            self._console.print(Text(text, style))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    parser = _parser()
    args = parser.parse_args(arguments)
    from uopc.cli import commands
    from uopc.errors import Error

    try:
        code = commands.COMMANDS[args.command](args, Output(), parser.error)
        sys.stdout.flush()
    except Error as error:
        print(f"uopc: {error}", *getattr(error, "__notes__", ()), sep="\n  ", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
