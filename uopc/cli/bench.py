"""uopc bench: time a model, or run a benchmark of a source checkout, in processes of their own.

A model is compiled, and run on the random arrays of `uopc run`, beside ONNX Runtime if that is
installed: the seconds to load it, and again in a second process; the time of a call, in turns; what
it added to the peak memory of its process; how much the results differ, by the largest number.

A Function that CasADi saved (`f.save`) is timed beside CasADi's interpreter, in turns.

examples:
  uopc bench model.onnx --threads 1 --set batch=8
  uopc bench f.casadi
  uopc bench kernels --threads 1 --workloads tiny_8
  uopc bench compile          compile_time.py: the part before a _ is enough
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from uopc.cli import bench_function, bench_model, sizes
from uopc.cli.output import Output, Refuse
from uopc.errors import UserError


def arguments(parser: ArgumentParser) -> None:
    """A script, and its own options."""
    named = "time model.onnx or f.casadi, or run a script: kernels, …"
    parser.add_argument("name", metavar="NAME", help=named)
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="options of the script")
    rest.required = False  # argparse would report it as missing together with NAME


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Time the model, or run the script; the exit code."""
    if args.name.endswith(".onnx"):
        return _model(Path(args.name), args.arguments, out)
    if args.name.endswith(".casadi"):
        return _function(Path(args.name), args.arguments, out)
    return script(args.name, args.arguments, refuse)


def script(name: str, options: list[str], refuse: Refuse) -> int:
    """Run a benchmark of the source checkout; its exit code."""
    folder = Path(__file__).resolve().parents[2] / "benchmarks"
    if not folder.is_dir():
        raise UserError("the benchmarks are in the source checkout, not in the installed package")
    scripts = {p.stem: p for p in folder.glob("*.py") if "__main__" in p.read_text("utf-8")}
    found = [s for s in scripts if s == name or s.startswith(f"{name}_")]
    if len(found) != 1:
        refuse(f"unknown benchmark {name!r}; choose {', '.join(sorted(scripts))}")
    return subprocess.run([sys.executable, str(scripts[found[0]]), *options]).returncode


def _function(file: Path, rest: list[str], out: Output) -> int:
    parser = ArgumentParser("uopc bench FUNCTION.casadi")
    _add_counts(parser)
    args = _counts(parser, rest)
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    found = bench_function.measured(file, args.threads, args.rounds)
    bench_function.show(out, found, args.json)
    return 0


def _add_counts(parser: ArgumentParser) -> None:
    for option, default, text in (
        ("--threads", 1, "threads of each engine"), ("--rounds", 5, "turns of each engine"),
    ):  # fmt: skip
        shown = f"{text} (default: {default})"
        parser.add_argument(option, metavar="N", type=int, default=default, help=shown)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _counts(parser: ArgumentParser, rest: list[str]) -> Namespace:
    args = parser.parse_args(rest)
    if min(args.threads, args.rounds) < 1:
        parser.error("--threads and --rounds: at least 1")
    return args


def _model(file: Path, rest: list[str], out: Output) -> int:
    parser = ArgumentParser("uopc bench MODEL.onnx")
    _add_counts(parser)
    sizes.argument(parser, "set the size of a dimension")
    args = _counts(parser, rest)
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    found = bench_model.measured(file, args.threads, args.rounds, dict(args.set))
    bench_model.show(out, file, args.threads, found, args.json)
    return 0
