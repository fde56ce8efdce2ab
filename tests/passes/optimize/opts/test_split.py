"""The Opts that split a loop: drawn lists keep a kernel's numbers, recorded lists give its text.

`split.txt` has kernels, and lists of Opts for each of them with a digest of the kernel that they
give or the reason of a refusal. A schedule that was saved with such a list replays.
"""

from __future__ import annotations

import hashlib
import random
import re
from pathlib import Path

import numpy as np
import pytest

from tests.by_hand import apply_opt
from uopc.ir.core import bounds, walk
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.ir.interpret import interpreter
from uopc.ir.nest.nest import nest_of
from uopc.ir.text.parser import parse
from uopc.ir.text.printer import print_graph
from uopc.passes.optimize.opts import table
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.substitution import Tiled

FILE = Path(__file__).with_name("split.txt")
SPLITS = (
    "VECTOR", "OVERLAP", "UPCAST", "UNROLL", "TILE", "BLOCK", "LOCAL", "THREAD", "GRID", "GROUP",
    "GROUPTOP", "SPLIT", "PEEL", "SPLIT_AT", "PADTO",
)  # fmt: skip
AMOUNTS = (0, 1, 2, 2, 3, 4, 4, 5, 8, 16)
LONGEST = 5
LINE = re.compile(r"(?P<opts>(?:\w+\(\d+, -?\d+\) ?)+): (?P<result>.*)")


def read() -> dict[str, tuple[str, list[tuple[list[Opt], str]]]]:
    """The text of each kernel of the file, and its lists of Opts with what they give."""
    found = {}
    for block in FILE.read_text("utf-8").split("--- ")[1:]:
        name, rest = block.split("\n", 1)
        text, lists = rest.split("\n\n", 1)
        rows = [LINE.fullmatch(line) for line in lists.strip().split("\n")]
        found[name] = text, [(opts_of(m["opts"]), m["result"]) for m in rows if m is not None]
        assert all(rows)
    return found


def opts_of(text: str) -> list[Opt]:
    found = re.findall(r"(\w+)\((\d+), (-?\d+)\)", text)
    return [Opt(op, int(axis), int(n)) for op, axis, n in found]


def drawn(kernel: UOp, name: str, seed: int) -> list[Opt]:
    """A list of up to LONGEST Opts that are legal one after another; mostly of splits."""
    rng = random.Random(f"{name} {seed}")
    # Loops one after another do not say in which order they access what the loop writes.
    splits = [op for op in SPLITS if name != "kept-order" or op not in ("SPLIT", "PEEL")]
    opts: list[Opt] = []
    for _ in range(12 * LONGEST):
        op = "SWAP" if rng.random() < 0.1 else rng.choice(splits)
        opt = Opt(op, rng.randrange(max(1, len(nest_of(kernel).axes))), rng.choice(AMOUNTS))
        try:
            kernel = apply_opt(kernel, opt)
        except Refused:
            continue
        opts.append(opt)
        if len(opts) == LONGEST:
            break
    return opts


def result(kernel: UOp, opts: list[Opt]) -> str:
    """A digest of the kernel's text after Opts; the reason if one of them is refused."""
    tiled = Tiled(kernel)
    try:
        for opt in opts:
            tiled = table.apply(tiled, opt)
    except Refused as why:
        return f"refused: {str(why).split(': ', 1)[1]}"
    return hashlib.sha256(print_graph(tiled.kernel).encode()).hexdigest()[:16]


KERNELS = read()


def test_each_name_is_in_a_recorded_list():
    recorded = [(o.op, r) for _, lists in KERNELS.values() for opts, r in lists for o in opts]
    assert {op for op, r in recorded if not r.startswith("refused")} >= set(SPLITS)
    assert {op for op, r in recorded if r.startswith("refused")} >= set(SPLITS)


@pytest.mark.parametrize("name", KERNELS)
def test_recorded_lists_give_the_same_kernels(name, blessed):
    text, lists = KERNELS[name]
    kernel = parse(text)
    made = [f"{' '.join(map(str, opts))}: {result(kernel, opts)}" for opts, _ in lists]
    stored = [f"{' '.join(map(str, opts))}: {was}" for opts, was in lists]
    blessed.check(FILE, "\n".join(stored), "\n".join(made))


def buffers(kernel: UOp, rng: np.random.Generator) -> list[np.ndarray]:
    """An argument for each PARAM: small integers, whose sums are exact in any order."""
    params = {u.arg.slot: u for u in walk.order(kernel) if u.op is Ops.PARAM}
    sizes = [bounds.bounds(dim_uop(params[slot].shape[0]))[1] for slot in sorted(params)]
    dtypes = [params[slot].dtype.numpy for slot in sorted(params)]
    return [rng.integers(0, 4, n).astype(dtype) for n, dtype in zip(sizes, dtypes)]


def numbers_of(kernel: UOp, given: list[np.ndarray]) -> list[np.ndarray]:
    """The arguments after the interpreter has run the kernel."""
    arrays = [a.copy() for a in given]
    values = {u.arg.name: 11 for u in walk.order(kernel) if u.op is Ops.VARIABLE}
    interpreter.run_kernel(kernel, arrays, values)
    return arrays


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.few(4)
def test_drawn_lists_keep_the_numbers(name, seed):
    kernel = parse(KERNELS[name][0])
    opts = drawn(kernel, name, seed)
    made = kernel
    for opt in opts:
        made = apply_opt(made, opt)
    given = buffers(kernel, np.random.default_rng(seed))
    for got, want in zip(numbers_of(made, given), numbers_of(kernel, given), strict=True):
        np.testing.assert_array_equal(got, want, " ".join(map(str, opts)))
