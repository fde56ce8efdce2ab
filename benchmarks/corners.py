"""Graphs whose values read each other on many paths: how the work of a compile grows with them.

    python benchmarks/corners.py [name …]

A row has the nodes of the graph at growing sizes, the nodes that its passes make, the nodes that
their walks visit, and the exponents of both over the nodes of the graph: 1 is linear. Counts do not
depend on the machine or its load, so `tests/benchmarks/test_corners.py` has limits for them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from growth import exponent

import uopc
from uopc import UOp
from uopc.driver import lower_only
from uopc.ir.core import uop, walk


class Corner(NamedTuple):
    """A graph by its size, growing sizes, and the greatest exponents of the nodes that are made and
    of those that walks visit."""

    build: Callable[[int], UOp]
    sizes: tuple[int, ...]
    made: float = 1.3
    walked: float = 1.5


class Counts(NamedTuple):
    """The nodes of a graph, those that its passes make, and those that their walks visit."""

    nodes: int
    made: int
    walked: int


# ------------------------------------------------------------------ steps
def selections(n: int) -> UOp:
    """Selections by position, nested n times."""
    x, places = uopc.param("x", (24,)), uopc.arange(24)
    for k in range(n):
        x = uopc.where(places < (5 * k + 3) % 24, x * 2.0 + k, x)
    return x


def halves(n: int) -> UOp:
    """Two parts that read overlapping parts of the step before."""
    x = uopc.param("x", (24,))
    for _ in range(n):
        x = uopc.cat(x[:10] + x[10:20], x[10:] * 0.5)
    return x


def running(n: int) -> UOp:
    """n stacked values, each of the one before."""
    x = uopc.param("x", (n,))
    values = [x[0]]
    for k in range(1, n):
        values.append(values[-1] * 2.0 + x[k])
    return uopc.stack(*values)


def updates(n: int) -> UOp:
    """n elements set one after the other, each from its neighbour."""
    x = uopc.param("x", (64,))
    for k in range(1, n):
        x = x.at[k].set(x[k] * 2.0 + x[k - 1])
    return x


def totals(n: int) -> UOp:
    """n sums in one kernel, each of what the one before gives."""
    x = uopc.param("x", (64,))
    for _ in range(n):
        x = x - x.sum() * 0.01
    return x


# ------------------------------------------------------------------ linear algebra
def thomas(n: int) -> UOp:
    """Thomas' algorithm for n unknowns, with updates of arrays."""
    a, b, c, d = [uopc.param(name, (n,)) for name in "abcd"]
    for i in range(1, n):
        w = a[i] / b[i - 1]
        b, d = b.at[i].add(-w * c[i - 1]), d.at[i].add(-w * d[i - 1])
    x = d / b
    for i in reversed(range(n - 1)):
        x = x.at[i].set((d[i] - c[i] * x[i + 1]) / b[i])
    return x


def gauss_seidel(n: int) -> UOp:
    """A sweep over n unknowns, each from a sum over all others."""
    a, b, x = uopc.param("a", (n, n)), uopc.param("b", (n,)), uopc.param("x", (n,))
    for i in range(n):
        x = x.at[i].set((b[i] - (a[i] * x).sum() + a[i, i] * x[i]) / a[i, i])
    return x


def factors(n: int) -> UOp:
    """The factors of an n x n matrix, with updates of its columns."""
    a = uopc.param("a", (n, n))
    for k in range(n - 1):
        column = a[k + 1 :, k] / a[k, k]
        a = a.at[k + 1 :, k].set(column)
        products = column.reshape(n - k - 1, 1) * a[k, k + 1 :].reshape(1, n - k - 1)
        a = a.at[k + 1 :, k + 1 :].add(-products)
    return a


def hessian(n: int) -> UOp:
    """All second derivatives of the exponential of a product of n numbers."""
    x = uopc.param("x", (n,))
    product = x[0]
    for i in range(1, n):
        product = product * x[i]
    gradient = uopc.grad(product.exp(), x)
    return uopc.stack(*[uopc.grad(gradient[i], x) for i in range(n)])


# The last three grow faster than the graph: docs/lab/todo.md has the reason and the figures.
CORNERS: dict[str, Corner] = {
    "selections": Corner(selections, (8, 16, 32)),
    "halves": Corner(halves, (8, 16, 32)),
    "running": Corner(running, (12, 16, 32, 64)),
    "updates": Corner(updates, (8, 16, 32)),
    "thomas": Corner(thomas, (6, 12, 24)),
    "hessian": Corner(hessian, (3, 6, 9)),
    "totals": Corner(totals, (8, 16, 32), made=2.1, walked=2.4),
    "gauss_seidel": Corner(gauss_seidel, (4, 8, 16), made=2.1, walked=2.5),
    "factors": Corner(factors, (4, 6, 8), made=2.4, walked=3.0),
}


def counted(graph: UOp) -> Counts:
    """The work of the passes on a graph."""
    made = walked = 0
    toposort = walk.toposort

    def count(u: UOp) -> None:
        nonlocal made
        made += 1

    def visited(root: UOp, *gate: Any, **named: Any) -> dict[UOp, None]:
        nonlocal walked
        found = toposort(root, *gate, **named)
        walked += len(found)
        return found

    nodes = len(toposort(graph))
    gc.collect()  # nodes of other graphs in circles, which would not be made again
    uop.check_construction(count)
    try:
        with mock.patch.object(walk, "toposort", visited):
            lower_only(graph, threads=1)
    finally:
        uop.check_construction(None)
    return Counts(nodes, made, walked)


def measured(corner: Corner) -> tuple[list[Counts], float, float]:
    """The counts at each size, and the exponents of nodes made and of nodes visited."""
    found = [counted(corner.build(n)) for n in corner.sizes]
    nodes = [float(c.nodes) for c in found]
    made, walked = [c.made for c in found], [c.walked for c in found]
    return found, exponent(nodes, list(map(float, made))), exponent(nodes, list(map(float, walked)))


def main(names: Sequence[str]) -> None:
    print(f"{'corner':14} {'nodes':>22} {'made':>26} {'visited':>30}   exponents")
    for name in names or CORNERS:
        found, made, walked = measured(CORNERS[name])
        columns = [" ".join(map(str, column)) for column in zip(*found)]
        nodes, all_made, visited = columns
        print(f"{name:14} {nodes:>22} {all_made:>26} {visited:>30}   {made:.2f} {walked:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
