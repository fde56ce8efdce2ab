"""The Opts by name. An Opt is a row here: a Split, or a function in this folder.

An Opt takes a kernel, one of its loops, and an amount. It returns the changed kernel, or raises
`Refused`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from uopc.errors import UserError
from uopc.ir.core.args import Opt
from uopc.ir.core.uop import UOp
from uopc.passes.optimize.opts import split as rest
from uopc.passes.optimize.opts.coalesce import coalesce
from uopc.passes.optimize.opts.compute_at import compute_at
from uopc.passes.optimize.opts.distribute import distribute
from uopc.passes.optimize.opts.interchange import swap
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.nontemporal import nontemporal
from uopc.passes.optimize.opts.packing import pack
from uopc.passes.optimize.opts.pipeline import pipeline
from uopc.passes.optimize.opts.prepack import prepack
from uopc.passes.optimize.opts.reduce_outward import reduce_out
from uopc.passes.optimize.opts.reuse import reuse
from uopc.passes.optimize.opts.split import Split
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.passes.optimize.opts.tensor_cores import tensor


class OptRow(NamedTuple):
    """One Opt: the change of a kernel, a sentence and an example."""

    change: Split | Callable[[UOp, UOp, int], UOp]
    meaning: str
    example: str


OPTS = {
    "VECTOR": OptRow(Split("lane", rest.exact),
        "the inner n iterations become the lanes of vectors",
        "for i < 64: f(i) → for o < 8: f(8·o + lane), lane < 8"),
    "OVERLAP": OptRow(Split("lane", rest.overlapping),
        "as VECTOR, for any length: the last vector begins n before the end",
        "for i < 30: f(i) → for o < 4: f(min(8·o, 22) + lane), lane < 8"),
    "UPCAST": OptRow(Split("upcast", rest.exact),
        "the inner n iterations of an output loop become copies of its body",
        "for i < 8: f(i) → for o < 4: f(2·o), f(2·o + 1)"),
    "REPEAT": OptRow(Split("upcast", rest.repeated),
        "as UPCAST, for any length: copies beyond the end run the last iteration again",
        "for i < 6: f(i) → for o < 2: f(4·o), …, f(min(4·o + 3, 5))"),
    "UNROLL": OptRow(Split("unroll", rest.exact),
        "the inner n iterations of a reduce (0: all) get an accumulator each; those of a loop that "
        "keeps its order follow each other in one body",
        "s += f(k), k < 8 → s += f(2·o), t += f(2·o + 1), o < 4; s + t"),
    "TILE": OptRow(Split(None, rest.exact),
        "the loop becomes two: an outer one, and an inner one of n iterations",
        "for i < 64: f(i) → for o < 8: for i < 8: f(8·o + i)"),
    "BLOCK": OptRow(Split(None, rest.shorter),
        "as TILE, of an output loop and for any n: the last block may be shorter",
        "for i < 10: f(i) → for o < 3: for i < min(4, 10 - 4·o): f(4·o + i)"),
    "PADTO": OptRow(Split(None, rest.padded),
        "the loop grows to a multiple of n, its accesses guarded",
        "for i < 10: f(i) → for i < 12: f(i) where i < 10"),
    "SPLIT": OptRow(Split(None, rest.after),
        "the loop is split at the last multiple of n into a main loop and a rest",
        "for i < 10: f(i) → for i < 8: f(i); for i < 2: f(8 + i)"),
    "PEEL": OptRow(Split(None, rest.first),
        "the loop is split after its first n iterations, so that guards fold",
        "for i < 10: f(i) → for i < 2: f(i); for i < 8: f(2 + i)"),
    "SPLIT_AT": OptRow(Split(None, rest.at_bound),
        "the loop is split, in blocks of n, where a comparison turns",
        "for j < 8: j < i ? a : b → for j < i: a; for j < 8 - i: b"),
    "SWAP": OptRow(swap, "the loop changes places with output loop number n",
        "for i: for j: f(i, j) → for j: for i: f(i, j)"),
    "COALESCE": OptRow(coalesce,
        "the loop and output loop number n, the next one inside, become one",
        "for i < 4: for j < 4: f(i, j) → for m < 16: f(m // 4, m % 4)"),
    "PACK": OptRow(pack, "operand n of the reduces in the loop is computed into a tile before it",
        "for i: s += x[j, k] → for k: t[k] = x[j, k]; for i: s += t[k]"),
    "PREPACK": OptRow(prepack,
        "constant arrays that the loop reads are stored in blocks of n of it",
        "for i: for k: s += w[i, k] → for i: for k: s += w[i // n, k, i % n]"),
    "COMPUTE_AT": OptRow(compute_at, "value n, which the loops inside compute at several places, "
        "or read across memory, is computed into a tile before them",
        "for i < 4: f(e(i), e(i + 1)) → for i < 5: t[i] = e(i); for i < 4: f(t[i], t[i + 1])"),
    "REUSE": OptRow(reuse, "the terms of the reduce are computed once, into a tile for other loops",
        "s += f(k); for j: f(j) / s → t[k] = f(k), s += t[k]; for j: t[j] / s"),
    "REDUCE_OUT": OptRow(reduce_out,
        "the reduce moves outside of output loop n, its sums into a tile",
        "for j: y[j] = Σ f(k, j) → for k: for j: t[j] += f(k, j); for j: y[j] = t[j]"),
    "DISTRIBUTE": OptRow(distribute,
        "copies of the reduce go to a tile; the rest loops, n at a time",
        "y[0] = f(s); y[1] = f(t) → u[0] = s; u[1] = t; for i < 2: y[i] = f(u[i])"),
    "NONTEMPORAL": OptRow(nontemporal, "stores in the loop bypass the caches",
        "store y[i], v → store y[i], v with the mode stream"),
    "THREAD": OptRow(Split("thread", rest.in_chunks),
        "an output loop around the kernel is cut in n chunks, run in parallel",
        "for i < 64: f(i) → thread c < 4: for i < 16: f(16·c + i)"),
    "GRID": OptRow(Split("global", rest.each_alone),
        "an output loop around the kernel becomes blocks of a grid",
        "for i < 64: f(i) → block i < 64: f(i)"),
    "GROUP": OptRow(Split("group", rest.strided),
        "a reduce is shared among n threads that are neighbours",
        "s += f(k), k < 64 → thread g < 4: s += f(4·o + g), o < 16; Σ s over g"),
    "GROUPTOP": OptRow(Split("grouptop", rest.strided),
        "a reduce is shared among n threads that are far apart",
        "as GROUP; neighbouring threads belong to another loop"),
    "TC": OptRow(tensor, "a sum of products on tensor cores; 1: float32 may be "
        "rounded to tf32; 2: the largest tile",
        "s += a[i, k] * b[k, j] → s += shaped_wmma(a, b, 16 rows, 8 columns, 16 deep)"),
    "PIPELINE": OptRow(pipeline, "tiles filled in a loop of a reduce are filled n - 1 ahead",
        "for k: fill t; use t → fill t[0]; for k: fill t[(k + 1) % 2]; use t[k % 2]"),
    "LOCAL": OptRow(Split("local", rest.skipped),
        "the inner n iterations of an output loop become threads",
        "for i < 64: f(i) → for o < 8: thread i < 8: f(8·o + i)"),
}  # fmt: skip


def apply(kernel: Tiled, opt: Opt) -> Tiled:
    """Apply one of several Opts to the kernel and its noted Parts. Refused (with the reason) if the
    Opt is not legal."""
    if opt.op not in OPTS:
        raise UserError(f"unknown Opt {opt.op!r}; choose {', '.join(OPTS)}")
    axes = kernel.axes
    if not 0 <= opt.axis < len(axes):
        raise Refused(f"{opt}: the kernel has {len(axes)} ranges")
    r = axes[opt.axis]
    if r.arg.kind not in ("loop", "reduce"):
        raise Refused(f"{opt}: range {opt.axis} is already {r.arg.kind}")
    change = OPTS[opt.op].change
    try:
        if isinstance(change, Split):
            return change.apply(kernel, r, opt.arg)
        return Tiled(change(kernel.kernel, r, opt.arg))
    except Refused as refused:
        raise Refused(f"{opt}: {refused.why}", *refused.expressions) from None
