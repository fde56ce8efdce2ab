"""uopc export: write a graph as object code, a library or a header that need no Python.

SOURCE is as for `uopc dump`: file.py, file.py:name, a .uop, an .onnx or a .casadi file. Beside the
code stand NAME.h, for C from C89 on and C++, and NAME.json, which `uopc.load_exported` reads. The
same source gives the same bytes. `--test` takes the arguments of one call from a .npz file, by the
names of the inputs, and writes NAME_test.c: a program in C that compares bits.

examples:
  uopc export model.py -o out/model                          out/model.o for this machine
  uopc export model.py:jac -o out/jac --kind static --target x86-64-v3
  uopc export model.onnx -o out/net --kind shared --test example.npz
  uopc export model.onnx -o out/net --set batch=8 --set seq=1:128   numbers or bounds of sizes
  uopc export model.py -o out/model --target x86-64,x86-64-v3 --kind shared
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import numpy as np

from uopc.cli import load, sizes
from uopc.cli.output import Output, Refuse
from uopc.errors import UserError
from uopc.exporting import machines
from uopc.exporting.data_files import WEIGHTS
from uopc.exporting.export import ABIS, KINDS, MATH, export
from uopc.passes.pass_manager import INPUT


def arguments(parser: ArgumentParser) -> None:
    """The graph, the files, and the form of the code."""
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument(
        "-o", dest="path", metavar="DIR/NAME", required=True, help="write the files to this path"
    )
    parser.add_argument(
        "--kind", choices=list(KINDS), default="object", help="form of the code (default: object)"
    )
    names = f"{', '.join(machines.NAMES)}; several levels of x86-64, with commas"
    parser.add_argument("--target", help=f"{names} (default: host; c11 for C)")
    parser.add_argument("--name", help="name of the function (default: that of the files)")
    for option, choices, text in (
        ("--abi", ABIS, "interface of the function; casadi: for CasADi's external()"),
        ("--math", MATH, "exp, sin and others: uopc's own, or libm's"),
        ("--weights", WEIGHTS, "constant arrays in C: inline as text, or in a file"),
    ):
        shown = f"{text} (default: {choices[0]})"
        parser.add_argument(option, choices=choices, default=choices[0], help=shown)
    threads = "parts that the caller may run on threads (default: 1)"
    parser.add_argument("--threads", type=int, metavar="N", default=1, help=threads)
    parser.add_argument("--no-vectors", action="store_true", help="write code without vectors")
    stack = "most bytes of a kernel's arrays on the stack"
    parser.add_argument("--stack-bytes", type=int, metavar="N", help=stack)
    bits = "bits of loop counters (default: 32 on Cortex-M, else 64)"
    parser.add_argument("--index-bits", type=int, choices=(32, 64), help=bits)
    sizes.bounds_argument(parser, "set a size of the graph or the model, or its bounds")
    parser.add_argument("--test", metavar="FILE.npz", help="write a self-test of these arrays")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Export, and list the files with their sizes."""
    given = dict(args.set)
    found = load.load(args.source, given)
    if found.start != INPUT:
        raise UserError(f"{found.name}: expected a graph before the first pass, got a later stage")
    examples = None if args.test is None else _arrays(Path(args.test))
    vectors = False if args.no_vectors else None
    target = args.target
    if target is not None and "," in target:
        target = target.split(",")
    made = export(
        _graph(found, given), args.path, kind=args.kind,
        target=target, name=args.name, vectors=vectors, examples=examples,
        inputs=_inputs(found, args.abi), abi=args.abi,
        math=args.math, threads=args.threads, weights=args.weights,
        stack_bytes=args.stack_bytes, index_bits=args.index_bits,
    )  # fmt: skip
    out.table(("file", "bytes"), [(str(f), f"{f.stat().st_size}") for f in made.files])
    return 0


def _inputs(found: load.LoadedSource, abi: str) -> list[Any] | None:
    """The inputs of a Function of CasADi in order: matrices for CasADi, else their entries."""
    if found.inputs is None:
        return None
    return [matrix if abi == "casadi" else matrix.data for matrix in found.inputs]


def _graph(found: load.LoadedSource, given: dict[str, sizes.Size]) -> Any:
    """The graph or request to export. A model's graph has the sizes already."""
    graph = found.graph if found.request is None else found.request
    if not given or found.name.endswith(".onnx"):
        return graph
    return sizes.given(load.request_of(found, None), given)


def _arrays(file: Path) -> dict[str, Any]:
    """The arrays of a file by name."""
    try:
        with np.load(file, allow_pickle=False) as found:
            return dict(found)
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"--test: {file}: {error}") from None
