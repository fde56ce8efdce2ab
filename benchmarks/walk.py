"""The worth of each Opt of a kernel: the chosen list replayed Opt by Opt, timed after each.

    python benchmarks/walk.py            a matrix product and a padded convolution, one thread
    python benchmarks/walk.py 512        the product at another size
    python benchmarks/walk.py fused      softmax and a product in one kernel (docs/lab/fused.md)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import uopc
from uopc.driver import lower_only
from uopc.ir.core.args import KernelArg, ParamArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.nest.nest import nest_of
from uopc.passes.optimize.opts import table
from uopc.passes.optimize.opts.substitution import Tiled

SECONDS = 0.4  # a measurement: the least time of as many calls as fit, two at least


def unoptimised(graph: uopc.UOp) -> uopc.UOp:
    """The one kernel of a graph before any Opt, its storage as named params."""
    lowered = lower_only(graph, optimize=False, threads=1)
    (kernel,) = next(r for r in lowered.runs if r.name == "simplify-ranges").after
    named = {
        u: intern(Ops.PARAM, u.dtype, u.src, ParamArg(f"s{u.arg.slot}", u.arg.dims, u.arg.slot))
        for u in kernel.toposort()
        if u.op is Ops.PARAM
    }
    return kernel.substitute(named)


def least(call: Callable[[], Any]) -> float:
    """The least CPU time of a call, in seconds: other processes do not count."""
    call()
    best, end = float("inf"), time.process_time() + SECONDS
    done = 0
    while done < 2 or time.process_time() < end:
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
        done += 1
    return best


def walk(title: str, graph: uopc.UOp, flops: float, *arrays: np.ndarray) -> None:
    """Print the time of the graph's kernel with none, one, two, … of its Opts, as Markdown."""
    opts = lower_only(graph, threads=1).kernels[0].arg.opts or ()
    kernel = changed = unoptimised(graph)
    print(f"{title}\n\n| Opt | on a | ms | GFLOP/s | lines of assembly |\n|---|---|---|---|---|")
    for n in range(len(opts) + 1):
        on = ""
        if n:
            axis = nest_of(changed).axes[opts[n - 1].axis]
            on = f"{axis.arg.kind} of {axis.src[0].render(simplify=False)}"
            changed = table.apply(Tiled(changed), opts[n - 1]).kernel
        asked = intern(kernel.op, kernel.dtype, kernel.src, KernelArg("k", opts[:n]))
        program = uopc.compile(asked, threads=1)
        out, *rest = [np.zeros(p.shape, p.dtype.numpy) for p in program.inputs]
        for given, place in zip(arrays, rest, strict=True):
            place.reshape(-1)[:] = given.reshape(-1)
        seconds = least(lambda f=program, o=out, r=rest: f(o, *r))
        lines = len(program.kernels[0].asm.splitlines())
        rate = flops / seconds / 1e9
        name = f"`{opts[n - 1]}`" if n else "none"
        print(f"| {name} | {on} | {seconds * 1e3:.2f} | {rate:.1f} | {lines} |", flush=True)
    print()


def fused() -> None:
    """softmax(s) @ v, one kernel: a product whose left operand is computed."""
    rows, columns, width = 512, 512, 64
    draw = np.random.default_rng(0).standard_normal
    s, v = draw((rows, columns), dtype="f4"), draw((columns, width), dtype="f4")
    graph = uopc.param("s", s.shape).softmax(axis=-1) @ uopc.param("v", v.shape)
    walk("softmax of 512 x 512, times 512 x 64, float32", graph, 2.0 * rows * columns * width, s, v)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="1024", metavar="SIZE|fused")
    what = parser.parse_args().what
    if what == "fused":
        fused()
        return
    if not what.isdecimal():
        parser.error(f"unknown size {what!r}; choose a number or fused")
    n = int(what)
    draw = np.random.default_rng(0).standard_normal
    a, b = draw((n, n), dtype="f4"), draw((n, n), dtype="f4")
    product = uopc.param("a", (n, n)) @ uopc.param("b", (n, n))
    walk(f"{n} x {n} times {n} x {n}, float32", product, 2.0 * n**3, a, b)
    x, w = draw((1, 64, 56, 56), dtype="f4"), draw((64, 64, 3, 3), dtype="f4")
    convolved = uopc.param("x", x.shape).conv2d(uopc.param("w", w.shape), padding=1)
    walk("convolution 3 x 3, 64 to 64 channels of 56 x 56, float32", convolved,
         2.0 * 64 * 64 * 9 * 56 * 56, x, w)  # fmt: skip


if __name__ == "__main__":
    main()
