"""uopc bench: run a benchmark of a source checkout, in a process of its own.

examples:
  uopc bench kernels --threads 1 --workloads tiny_8
  uopc bench compile          compile_time.py: the part before a _ is enough
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from uopc.cli.output import Output, Refuse
from uopc.errors import UserError


def arguments(parser: ArgumentParser) -> None:
    """A script, and its own options."""
    parser.add_argument("name", metavar="NAME", help="a script: kernels, compile, …")
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="options of the script")
    rest.required = False  # argparse would report it as missing together with NAME


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Run the script; its exit code."""
    folder = Path(__file__).resolve().parents[2] / "benchmarks"
    if not folder.is_dir():
        raise UserError("the benchmarks are in the source checkout, not in the installed package")
    scripts = {p.stem: p for p in folder.glob("*.py") if "__main__" in p.read_text("utf-8")}
    found = [s for s in scripts if s == args.name or s.startswith(f"{args.name}_")]
    if len(found) != 1:
        refuse(f"unknown benchmark {args.name!r}; choose {', '.join(sorted(scripts))}")
    return subprocess.run([sys.executable, str(scripts[found[0]]), *args.arguments]).returncode
