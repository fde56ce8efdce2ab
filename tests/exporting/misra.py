"""Findings of cppcheck's addon for MISRA C:2012 in exported scalar C, with reasons.

    python -m tests.exporting.misra [--out docs/lab/misra.md]

Nine graphs of `test_export.py` as C for `c11`. The exit status is 1 if a rule is broken that has no
reason in the table below.
"""

from __future__ import annotations

import argparse
import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import uopc
from tests.exporting import test_export as graphs

MADE = (
    graphs.elementwise, graphs.network, graphs.convolution, graphs.integers, graphs.symbolic,
    graphs.loops, graphs.launches_in_loops, graphs.sparse, graphs.narrow_floats,
)  # fmt: skip
COMMAND = ("cppcheck", "--addon=misra", "--std=c11", "--platform=unix64", "--enable=style")
REASONS = {
    "7.2": "unsigned constants of functions are in decimal without a suffix where they fit int;"
           " values are right in both types",
    "8.14": "`restrict` is what lets a compiler keep values in registers; the plan proves it, and"
            " the header asks it of the caller",
    "2.5": "macros of the header (`NAME_ABI`, `NAME_WORK_BYTES`, …) are for callers, who may not"
           " use them",
    "12.1": "`a < b ? a : b`, `a * b - c` and comparisons beside an or have no parentheses"
            " inside",
    "10.8": "an integer is computed in the unsigned type in which it wraps, then cast to a wider or"
            " signed one",
    "11.5": "`work` is `void *`: one block for intermediate values of several types; the plan"
            " aligns each",
    "19.2": "a union is how C11 takes the bits of a float; both members have one size",
    "5.9": "each file has functions of its own for the bits of a float, of the same name and text:"
           " no file needs another one",
    "8.11": "`NAME_id` is declared without a length, so that the header does not depend on it",
    "20.9": "`FLT_EVAL_METHOD` is a macro of `float.h`, which the addon does not read",
    "2.2": "`(void)x;` for parameters that are part of the interface and that a graph does not"
           " read",
    "15.5": "the entry returns the number of the size that is wrong; conversions return at their"
            " limits",
    "20.1": "`#include <math.h>`, on compilers without builtins alone, stands where its function is"
            " needed",
    "1.4": "`_Alignas` of constant arrays: C11",
    "10.4": "a sum or a comparison of a bool that is an int here",
}  # fmt: skip
# Other remarks, by cppcheck's names for them.
OTHERS = {
    "redundantCondition": "a guard that a graph's constants decide",
    "knownConditionTrueFalse": "a guard that a graph's constants decide",
    "overlappingWriteUnion": "a union whose `bits` are computed from `bits`: C11 6.5.16.1 concerns"
                             " overlapping objects of an assignment, and reading `number` ends"
                             " before",
}  # fmt: skip


def found(folder: Path) -> tuple[str, dict[str, int]]:
    """The version of cppcheck, and how often each rule or remark was found, the most first."""
    for make in MADE:
        uopc.export(make().graph, folder / make.__name__, kind="c", target="c11")
    files = sorted(map(str, folder.glob("*.c")))
    said = subprocess.run([*COMMAND, "--quiet", *files], capture_output=True, text=True, check=True)
    version = subprocess.run(["cppcheck", "--version"], capture_output=True, text=True, check=True)
    names = re.findall(r"\[([\w.-]+)\]$", said.stderr, re.MULTILINE)
    counts = collections.Counter([n.removeprefix("misra-c2012-") for n in names])
    return version.stdout.strip().lower(), dict(counts.most_common())


def page(version: str, counts: dict[str, int]) -> str:
    """The counts with their reasons, as a page."""
    rows = [f"| {n} | {counts[n]} | {REASONS[n]} |" for n in counts if n in REASONS]
    others = [f"`{n}` ({counts[n]}): {OTHERS[n]}." for n in counts if n in OTHERS]
    return "\n".join([
        "# MISRA C:2012 and exported C", "",
        "Made by `python -m tests.exporting.misra --out docs/lab/misra.md`.", "",
        f"{version}, `{' '.join(COMMAND)}`, on scalar C",
        f"(`target=\"c11\"`) of {len(MADE)} graphs of `tests/exporting/test_export.py`:",
        f"{', '.join([m.__name__.replace('_', ' ') for m in MADE])}. Counts are of all files.",
        "There is no recursion, `goto`, dynamic memory, function pointer (without `threads=`),",
        "variable-length array, and no call of a library. A number of the list is a rule of the",
        "standard; what is deviated is required or advisory as the standard says.", "",
        "| rule | found | deviated because |", "|---|---|---|", *rows, "",
        *(["cppcheck's other remarks:", *others, ""] if others else []),
    ])  # fmt: skip


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="MISRA rules in exported C")
    parser.add_argument("--out", type=Path, help="write the page there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        version, counts = found(Path(name))
    text = page(version, counts)
    print(text)
    if given.out:
        given.out.write_text(text, "utf-8")
    unknown = [n for n in counts if n not in REASONS and n not in OTHERS]
    if unknown:
        print(f"no reason is given for {', '.join(unknown)}", file=sys.stderr)
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
