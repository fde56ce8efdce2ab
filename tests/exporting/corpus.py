"""The recorded cases as C, under AddressSanitizer and UBSan, with the bits of machine code.

    python -m tests.exporting.corpus [DIR] [--every 1] [--target x86-64-v3] [--no-vectors]
        [--cc gcc]

DIR holds recorded graphs; by default those of this repository. Each is exported with its recorded
arguments and a self-test, compiled with all warnings as errors, and run. Prints a line per failure
and a summary; the exit status is 1 after a failure.
"""

from __future__ import annotations

import argparse
import collections
import functools
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import uopc
from tests import ROOT
from tests.conformance import corpus, loader
from tests.conformance.runner import _inputs, _variables
from uopc.errors import Unsupported, UserError
from uopc.ir.core.uop import UOp

SELECTION = ROOT / "tests" / "conformance" / "selection"
WARNINGS = ("-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wconversion",
            "-Wsign-conversion", "-Wshadow", "-Wcast-qual", "-Wdouble-promotion",
            "-Wstrict-prototypes")  # fmt: skip
GOOD = "f: 0 wrong bytes or elements, sizes checked"
MOST_BYTES = 1 << 18  # of arguments: the self-test has its arrays as text


@functools.cache
def sanitized(cc: str, kinds: str = "address,undefined") -> tuple[str, ...]:
    """Flags of a program that checks itself; () where the libraries of cc for it are missing.

    Debian, for one, has clang's in a package of their own.
    """
    flags = ("-O1", f"-fsanitize={kinds}", "-fno-sanitize-recover=all")
    with tempfile.TemporaryDirectory() as folder:
        command = [cc, *flags, "-x", "c", "-", "-o", f"{folder}/test"]
        done = subprocess.run(command, input=b"int main(void) { return 0; }", capture_output=True)
    return () if done.returncode else flags


def recorded(
    place: corpus.Place,
) -> tuple[tuple[UOp, ...], dict[str, Any], dict[str, int], dict[str, Any]]:
    """A recorded case: its results, their inputs and sizes by name, and all arrays with it."""
    case, arrays = corpus.read_graph(place)
    graph = loader.load(case)
    outputs = tuple(graph.outputs)
    has_data = any(k.startswith(("out", "final")) for k in arrays)
    inputs = _inputs(graph, arrays, has_data, place.id)
    used = {v.arg.name for u in outputs for v in u.variables()}
    sizes = {k: v for k, v in _variables(graph, has_data, place.id).items() if k in used}
    return outputs, inputs, sizes, arrays


def exported(place: corpus.Place, folder: Path, **options: Any) -> str:
    """Export a recorded case to folder/f.c with a self-test. Returns why it is left out, if so."""
    outputs, inputs, sizes, arrays = recorded(place)
    if not all([known.all() for name, known in arrays.items() if name.startswith("valid")]):
        return "elements that may be anything"  # what one code leaves in memory is not for others
    read = [p.name for p in uopc.compile(outputs, threads=1).inputs]
    if sum([inputs[name].nbytes for name in read]) > MOST_BYTES:
        return f"more than {MOST_BYTES} bytes of arguments"
    given = {name: inputs[name].copy() for name in read} | sizes
    uopc.export(outputs, folder / "f", kind="c", examples=given, **options)
    return ""


def compiled_and_run(folder: Path, cc: str, *flags: str) -> str:
    """Compile f.c with all warnings and its test, and run that. Returns what went wrong, if so."""
    for command in ([cc, *WARNINGS, *flags, "-c", "f.c", "-o", "f.o"],
                    [cc, "-std=c11", *flags, "f_test.c", "f.o", "-o", "test"],
                    ["./test"]):  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{command[0]}: {(done.stderr or done.stdout).strip()}"
    return "" if GOOD in done.stdout else done.stdout.strip()


def checked(places: Iterable[corpus.Place], options: dict[str, Any], cc: str) -> dict[str, int]:
    """Check cases; the number of those that were good, bad and left out, by reason."""
    counts: dict[str, int] = collections.Counter()
    target = options.get("target", "c11")
    march = [] if target == "c11" else [f"-march={'native' if target == 'host' else target}"]
    for place in places:
        with tempfile.TemporaryDirectory() as name:
            folder, label = Path(name), f"{place.group}/{place.id[:12]}"
            try:
                wrong = why = exported(place, folder, **options)
            except (Unsupported, UserError) as error:
                wrong = why = str(error).partition(": choose")[0]
                if isinstance(error, UserError) and "examples must be at most" not in why:
                    why = "bad"
            if not wrong:
                wrong = compiled_and_run(folder, cc, *sanitized(cc), *march)
                why = "bad" if wrong else "good"
            counts[why] += 1
            if why == "bad":
                print(f"{label}: {wrong[:2000]}", flush=True)
    return counts


def main(given: list[str] | None = None) -> int:
    """Check the cases of a folder."""
    parser = argparse.ArgumentParser("tests.exporting.corpus", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=SELECTION)
    parser.add_argument("--every", type=int, default=1, help="one case of so many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--target", default="x86-64-v3")
    parser.add_argument("--no-vectors", action="store_true", help="scalar C11")
    parser.add_argument("--cc", default="gcc")
    args = parser.parse_args(given)
    places = [p for p in corpus.find(args.folder) if p.kind == "graph"][args.first :: args.every]
    options = {"target": args.target, "vectors": False if args.no_vectors else None}
    counts = checked(places, options, args.cc)
    print(", ".join([f"{number} {why}" for why, number in sorted(counts.items())]))
    return 1 if counts["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
