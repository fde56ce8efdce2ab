"""The number of values that machine code keeps on the stack, by the order of a kernel's statements.

    python benchmarks/spills.py [--recorded FOLDER] [--cases a,b] [--out FOLDER]

Counted in the assembly, over all kernels of a program: moves to the stack (spills), instructions
that read it (reloads), and all instructions. `ours` is the order of `linearize`, a depth-first
walk; `topological` takes what is ready level by level, in no order that registers matter for.
`--recorded`: the folder of recorded graphs. With --out, `spills.md` goes to the folder.
"""

from __future__ import annotations

import argparse
import functools
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from compile_time import find_recorded, recorded
from growth import GROWTH, uopc_operators

import uopc
from uopc.ir.core.uop import UOp
from uopc.passes.linearize import blocks

RECORDED = (
    "bicycle_jacobian_vmap_N50_f64", "bicycle_jacobian_stack_N50_f64",
    "bicycle_jacobian_legacy_N50", "transformer_1", "resnet_1",
)  # fmt: skip
STACK = re.compile(r"\(%r[sb]p[,)]")
STORED = re.compile(r"v?mov.*\(%r[sb]p(,[^)]*)?\)(\s*\{%k\d\})?$")


def tree(size: int) -> UOp:
    """A sum of products over as many elements, put together in a random order."""
    draw = random.Random(1)
    x = uopc.param("x", (size,))
    values = [x[i : i + 1] * 2.0 for i in range(size)]
    while len(values) > 1:
        a, b = (values.pop(draw.randrange(len(values))) for _ in "ab")
        values.append(a * b + a)
    return values[0]


CASES: dict[str, Callable[[], Any]] = {
    "scalars_50000": lambda: GROWTH["scalars"][0](uopc_operators(), 50_000),
    "tree_1000": lambda: tree(1_000),
    "transformer_block": lambda: GROWTH["transformer"][0](uopc_operators(), 1),
}


def by_level(schedule: Any) -> dict[UOp, int]:
    """In place of the ranks of `linearize`: nodes by their distance from the leaves."""
    level: dict[UOp, int] = {}
    for u in schedule.order:
        level[u] = 1 + max([level[s] for s in u.src], default=-1)
    walk, schedule.order = schedule.order, sorted(schedule.order, key=level.__getitem__)
    try:
        return OURS(schedule)
    finally:
        schedule.order = walk


OURS = blocks.Blocks._ranks
BY_LATENCY = blocks.by_latency  # over the walk, in code that waits for its results
ORDERS = {"ours": (OURS, BY_LATENCY), "topological": (by_level, lambda items, block: items)}


def count(assembly: str) -> tuple[int, int, int]:
    """Spills, reloads and instructions."""
    lines = [line.strip() for line in assembly.splitlines()]
    code = [s for s in lines if s and s[0] not in ".#" and not s.endswith(":")]
    touching = [s for s in code if STACK.search(s) and not s.startswith("lea")]
    spills = sum(bool(STORED.match(s)) for s in touching)
    return spills, len(touching) - spills, len(code)


def measure(build: Callable[[], Any]) -> dict[str, list[int]]:
    """By order, spills, reloads and instructions of all kernels of a program for one thread."""
    found = {}
    for name, (ranks, arranged) in ORDERS.items():
        with (
            mock.patch.object(blocks.Blocks, "_ranks", ranks),
            mock.patch.object(blocks, "by_latency", arranged),
            uopc.options(cache_dir="", programs=0),
        ):
            program = uopc.compile(build(), threads=1)
        found[name] = [sum(column) for column in zip(*[count(k.asm) for k in program.kernels])]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recorded", default="", help="read recorded graphs from this folder")
    parser.add_argument("--cases", default="", help="only these cases, with commas")
    parser.add_argument("--out", default="", help="write the result to this file")
    args = parser.parse_args()
    cases = dict(CASES)
    known = find_recorded(Path(args.recorded)) if args.recorded else {}
    for name in RECORDED:
        if name in known:
            cases[name] = functools.partial(recorded(known[name][0]), None)
    wanted = set(filter(None, args.cases.split(",")))
    lines = [
        "| program | order | spills | reloads | instructions |",
        "|---|---|---|---|---|",
    ]
    print(*lines, sep="\n")
    for name, build in cases.items():
        if wanted and name not in wanted:
            continue
        for order, row in measure(build).items():
            lines.append(f"| {name} | {order} | " + " | ".join([f"{n:,}" for n in row]) + " |")
            print(lines[-1], flush=True)
    if args.out:
        text = "\n".join(lines)
        (Path(args.out) / "spills.md").write_text(f"{HEAD}\n{text}\n\n{machine()}\n", "utf-8")
    return 0


HEAD = """# Spills

Our order of statements, a depth-first walk from the stores, spills fewer values than the
topological order, which goes level by level, in every program. A spill is a value that machine code
keeps on the stack; counts are over all kernels of a program.

Made by `python benchmarks/spills.py --recorded DIR --out docs/lab`.

Tried and dropped: the operand that needs most registers first (Sethi and Ullman's order). The
transformer spills 53 and 49, resnet_1 956 and 1,108, but bicycle_jacobian_stack_N50_f64 576 and
1,071, and legacy_N50 705 and 1,130: values with several readers live longer.
"""


def machine() -> str:
    """The machine that the code was for."""
    from uopc.backends import detect

    host = detect.host()
    return f"One thread, {host.cpu}: {host.registers} registers of {host.vector_bits} bits."


if __name__ == "__main__":
    sys.exit(main())
