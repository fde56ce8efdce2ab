"""Random graphs with `.contiguous()` at random places, and what place-stages thinks they cost.

The cost of a placement is the sum of all that its kernels compute, load and store, by the numbers
of `fusion_cost`. The compiler's own placement should cost little more than any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

import uopc
from uopc import UOp
from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.bounds import most_elements
from uopc.ir.core.ops import Ops
from uopc.passes.analysis.contraction import repeats_factors
from uopc.passes.analysis.op_costs import LOAD, STORE
from uopc.passes.canonicalize.canonicalize import canonicalize
from uopc.passes.contract import Context
from uopc.passes.place_stages import fusion_cost
from uopc.passes.place_stages.demand import Demand, evaluations_apart
from uopc.passes.place_stages.place_stages import place_stages
from uopc.target import cpu_target


# ---------------------------------------------------------------- graphs
def _steps(n: int) -> list[Callable[[UOp, UOp], UOp]]:
    """Ways to make a value (n, n) of two."""
    rows, kernel = np.arange(n)[::-1] // 2, uopc.param("w", (4, 4, 3, 3))

    def conv(a: UOp, b: UOp) -> UOp:
        return a.reshape(1, 4, n // 2, n // 2).conv2d(kernel, padding=1).reshape(n, n)

    return [
        lambda a, b: a @ b, lambda a, b: b @ a, lambda a, b: a + b, lambda a, b: a * b.relu(),
        lambda a, b: a.exp2() * 0.5, lambda a, b: a.sigmoid(), lambda a, b: a.transpose(),
        lambda a, b: a - a.mean(axis=1, keepdims=True), lambda a, b: a / (1 + (b * b).sum(axis=0)),
        lambda a, b: a.softmax(), conv, conv, lambda a, b: a.take(rows, 0), lambda a, b: a.flip(0),
        lambda a, b: uopc.cat(a[: n // 2], b[n // 2 :], axis=0),
        lambda a, b: uopc.cat(a[:, ::2], b[:, ::2], axis=1),
        lambda a, b: a.pad(((1, 0), (0, 0)))[:-1], lambda a, b: a + b[:1],
        lambda a, b: a[1:].pad(((0, 1), (0, 0))) - a, lambda a, b: a @ b[:, :1] * b,
    ]  # fmt: skip


def drawn(number: int) -> list[UOp]:
    """A graph of products, convolutions, reduces, joins and movements: its one or two outputs."""
    rng = random.Random(number)
    n = rng.choice((32, 64, 96))
    pool, steps = [uopc.param(f"x{i}", (n, n)) for i in range(3)], _steps(n)
    for _ in range(rng.randint(2, 8)):
        pool.append(rng.choice(steps)(rng.choice(pool[-3:]), rng.choice(pool)))
    return pool[-1:] if rng.random() < 0.7 else [pool[-1], rng.choice(pool[3:])]


def recurrent(number: int, stored: bool = False) -> tuple[UOp, list[UOp]]:
    """The last state of h = max(0, (x w)[step] + h v), whose steps take some rows of a product, and
    the inputs x, w, v and h. `stored`: with that product stored."""
    rng = random.Random(number)
    steps, rows, n = rng.randint(2, 40), rng.choice((1, 1, 2, 4, 16)), rng.choice((16, 40, 64))
    x, w = uopc.param("x", (steps * rows, d := rng.choice((1, 4, 8)) * n)), uopc.param("w", (d, n))
    v, h = uopc.param("v", (n, n)), uopc.param("h", (rows, n))
    inputs, given = [x, w, v, h], x @ w
    given = given.contiguous() if stored else given
    for i in range(steps):
        h = (given[rows * i : rows * (i + 1)] + h @ v).relu()
    return h, inputs


def stored_elsewhere(outputs: list[UOp], number: int, times: int) -> Iterator[list[UOp]]:
    """The graph with some of its values stored, again and again."""
    rng = random.Random(number)
    graph = outputs[0].sink(*outputs[1:])
    values = [
        u for u in walk.nodes(graph)
        if u.dtype.is_float and not u.op.is_storage and u.op is not Ops.CONST and u.src
    ]  # fmt: skip
    for _ in range(times if values else 0):
        chosen = set(rng.sample(values, min(len(values), rng.randint(1, 3))))

        def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
            return rebuild.remake(u, src).contiguous() if u in chosen else None  # noqa: B023

        yield list(rebuild.rewritten(graph, change).src)


# ---------------------------------------------------------------- costs
def predicted(outputs: list[UOp]) -> float:
    """The cost of all that the kernels of a graph do, where place-stages puts storage."""
    context = Context(cpu_target("x86-64-v3"))
    root = canonicalize(outputs[0].sink(*outputs[1:]), context)
    place_stages(root, context)
    found = context.notes["placement"]()
    demands, stored = found["demands"], found["stored"]
    total = fusion_cost.KERNEL * len(stored)
    for u in {**demands, **stored}:
        if u.dtype is dtypes.void or u.op is Ops.CONST:
            continue
        asked: list[Demand] = list(demands.get(u, {}).values())
        elements = most_elements(shapes.shape(u))
        if u in stored or u.op.is_storage:
            each: dict[UOp, float] = {}
            for d in asked:
                each[d.reader] = each.get(d.reader, 0.0) + d.evaluations
            total += LOAD * sum([_reads(reads, elements) for reads in each.values()])
        if u in stored:
            total += elements * (STORE + _own(u, True))
        elif u.op is Ops.REDUCE:
            for d in asked:
                total += d.evaluations * _own(u, d.keeps_loops and not d.in_reduce)
        elif not u.op.is_storage and not u.op.movement and asked:
            total += _own(u, True) * evaluations_apart(asked, elements, cheap=True)
    return total


def _reads(reads: float, elements: float) -> float:
    """The loads of a kernel: each element once, and again where no tile holds it."""
    return min(reads, elements) + max(0.0, reads - elements) / fusion_cost.REUSE


def _own(u: UOp, tiled: bool) -> float:
    """The cost of one element without its operands."""
    if u.op is not Ops.REDUCE:
        return u.op.cost
    dims = shapes.shape(u.src[0])
    terms = most_elements(tuple([dims[axis] for axis in u.arg.axes]))
    share = 1.0 - fusion_cost.TILED if tiled and repeats_factors(u) else 1.0
    return terms * Ops.ADD.cost * share
