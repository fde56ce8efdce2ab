"""What each Opt of a kernel is worth: the chosen list replayed Opt by Opt, timed after each.

    python benchmarks/walk.py            a matrix product and a padded convolution, one thread
    python benchmarks/walk.py 512        the product at another size
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import uopc
from uopc.driver import lower_only
from uopc.ir.args import KernelArg, Opt, ParamArg
from uopc.ir.node import intern
from uopc.ir.ops import Ops

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
    """Print the time of the graph's kernel with none, one, two, … of its Opts."""
    opts = lower_only(graph, threads=1).kernels[0].arg.opts or ()
    kernel = unoptimised(graph)
    print(f"{title}\n{'':24} {'ms':>9} {'GFLOP/s':>8} {'lines of assembly':>18}")
    for n in range(len(opts) + 1):
        asked = intern(kernel.op, kernel.dtype, kernel.src, KernelArg("k", opts[:n]))
        program = uopc.compile(asked, threads=1)
        out, *rest = [np.zeros(p.shape, p.dtype.numpy) for p in program.inputs]
        for given, flat in zip(arrays, rest, strict=True):
            flat[:] = given.reshape(-1)[: flat.size]
        seconds = least(lambda f=program, o=out, r=rest: f(o, *r))
        lines = len(program.kernels[0].asm.splitlines())
        print(f"{name(opts[:n]):24} {seconds * 1e3:9.2f} {flops / seconds / 1e9:8.1f} {lines:18}")


def name(opts: tuple[Opt, ...]) -> str:
    return f"+ {opts[-1]}" if opts else "no Opts"


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
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
