"""Every stage of the pipeline is valid at its level and means what the graph meant at first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
from uopc import driver
from uopc.ir.core import dtypes
from uopc.ir.core.bounds import bounds
from uopc.ir.core.levels import INDEXED, PROGRAM, TENSOR
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.interpret.interpreter import evaluate, run_indexed, run_program
from uopc.ir.interpret.step_order import storage
from uopc.passes.pass_manager import Lowered

Arrays = dict[str, Any]
X, W = uopc.param("x", (6, 8)), uopc.param("w", (8, 5))
N = uopc.variable("n", 1, 9)
ROWS = uopc.param("rows", (N, 4))
KEYS = uopc.param("i", (7,), dtypes.int32)
LONG = uopc.param("long", (uopc.variable("steps", 1, 2), 70))  # each takes the interpreter long
LEFT, RIGHT = uopc.param("left", (9, 40)), uopc.param("right", (40,))
IMAGE, FILTER = uopc.param("image", (1, 2, 6, 6)), uopc.param("filter", (3, 2, 3, 3))


def row_of_products() -> UOp:
    """A second derivative, whose reads one iteration in two makes, at a row that a constant names:
    tables of the others once took the place of the reads' guards.
    """
    x = uopc.param("square", (2, 3), dtypes.float64)
    y = x.cumprod(1)[uopc.constant(np.array([1]))].silu() * 0.9
    w = uopc.constant(np.array([[0.3, -1.2, 0.7]]))
    v = uopc.constant(np.array([[1.0, 0.5, -0.2], [0.1, -0.9, 0.6]]))
    return uopc.vjp(uopc.vjp(y, x, w), x, v)


def part_of_a_row() -> UOp:
    """A product of which some iterations need a part alone: the guard of a read that they do not
    make once became the number 0."""
    x = uopc.param("a", (), dtypes.float64)
    powers = (x * x + 0.5).expand((3,)) ** uopc.constant(np.array([1.3, 0.4, 2.0]))
    part = powers[:2].reshape(1, 2)
    y = (part * part + 1.1).sqrt().reciprocal()
    back = uopc.vjp(y, x, uopc.constant(np.array([[-0.7, -0.4]])))
    return uopc.jvp(back, x, uopc.constant(-0.5, dtypes.float64))


def sorted_step(carried: UOp, row: UOp) -> tuple[UOp, UOp]:
    """Each step sorts in a kernel of its own."""
    new = (carried * 0.5 + row).sort()
    return new, new.sum() + row


GRAPHS: dict[str, Callable[[], list[UOp]]] = {
    "elementwise": lambda: [(X * 2 + 1).exp() / (X + 9)],
    "matmul": lambda: [X @ W],
    "two matmuls": lambda: [((X @ W).relu() @ uopc.param("v", (5, 3))).tanh()],
    "functions of sums": lambda: [(LEFT @ RIGHT).tanh()],
    "softmax": lambda: [X.softmax(axis=-1)],
    "normalised": lambda: [X.layer_norm(), X.var(axis=1)],
    "padded": lambda: [(X.pad(((1, 0), (0, 3)), value=2) * 2).sum(axis=0)],
    "joined": lambda: [X.cat(X * 2, axis=1) + 1, X.stack(X + 1, axis=1).sum(axis=0)],
    "flipped": lambda: [X.flip((0,)).transpose().cumsum(axis=0)],
    "argmax": lambda: [X.argmax(axis=1)],
    "gathered": lambda: [KEYS.clip(0, 4).one_hot(5), X.take(KEYS.clip(0, 5), axis=0)],
    "symbolic": lambda: [ROWS.sum(axis=0), (ROWS * 2).max(axis=1)],
    "convolution": lambda: [IMAGE.conv2d(FILTER, padding=1).max_pool2d(2)],
    "integers": lambda: [KEYS // 3, KEYS % 3, KEYS << 2, KEYS.eq(2)],
    "narrow": lambda: [(X.cast(dtypes.bfloat16) * 2).sum(axis=1)],
    "tables of guards": lambda: [row_of_products()],
    "guards in part": lambda: [part_of_a_row()],
    "loop of launches": lambda: list(uopc.scan(sorted_step, uopc.param("c", (70,)), LONG)),
    "assigned": lambda: [uopc.param("cache", (4, 8))[1:3].assign(X[0:2]) + 1],
}


def inputs_of(roots: list[UOp]) -> Arrays:
    rng = np.random.default_rng(1)
    out: Arrays = {}
    for p in [u for r in roots for u in r.toposort() if u.op is Ops.PARAM]:
        dims = [d if isinstance(d, int) else min(5, bounds(d)[1]) for d in p.shape]
        a = rng.standard_normal(dims) if p.dtype.is_float else rng.integers(-9, 9, dims)
        out[p.arg.name] = a.astype(p.dtype.numpy)
    return out


def copies(arrays: Arrays) -> Arrays:
    return {name: a.copy() for name, a in arrays.items()}


def by_node(roots: tuple[UOp, ...], arrays: Arrays) -> dict[UOp, Any]:
    params = [u for r in roots for u in r.toposort() if u.op is Ops.PARAM]
    return {p: arrays[p.arg.name] for p in params if p.arg.name in arrays}


def stages(lowered: Lowered, inputs: Arrays) -> list[tuple[str, list[Any]]]:
    """The outputs, computed by the interpreter from the graph that each pass gives."""
    out, program = [], lowered.runs[0].after[0]
    kernels: dict[UOp, UOp] = {}  # as the program calls it → as it is now
    known: dict[UOp, dict[UOp, Any]] = {}  # many passes leave all kernels as they are
    for run in lowered.runs:
        arrays, graph = copies(inputs), run.after[0]
        if run.level is TENSOR:
            out.append((run.name, evaluate(list(graph.src), arrays)))
            continue
        if run.level is INDEXED:
            found = run_indexed(graph, by_node((graph,), arrays))
        else:
            if run.level is PROGRAM:
                program, kernels = graph, {c.src[0]: c.src[0] for c in graph.src}
            else:
                changed = dict(zip(run.before, run.after))
                kernels = {k: changed[now] for k, now in kernels.items()}
            calls = with_kernels(program, kernels)
            if calls not in known:
                known[calls] = run_program(calls, by_node((calls, *lowered.outputs), arrays))
            found = known[calls]
        out.append((run.name, [found[storage(o)] for o in lowered.outputs]))
    return out


def with_kernels(program: UOp, kernels: dict[UOp, UOp]) -> UOp:
    calls = [intern(Ops.CALL, c.dtype, (kernels[c.src[0]], *c.src[1:])) for c in program.src]
    return intern(Ops.LINEAR, program.dtype, tuple(calls))


@pytest.mark.others(38)
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.few(8)
def test_no_node_is_refused_as_it_is_made(name: str, optimize: bool) -> None:
    """Also those that stand in a pass for a moment."""
    with uopc.options(spec=2):
        assert uopc.compile(GRAPHS[name](), optimize=optimize).kernels


@pytest.mark.others(36)
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("name", [
    pytest.param(n, marks=pytest.mark.slow if n == "loop of launches" else ()) for n in GRAPHS
])  # fmt: skip
def test_every_stage_means_the_same(name: str, optimize: bool) -> None:
    graph = GRAPHS[name]()
    inputs = inputs_of(graph)
    want = evaluate(graph, copies(inputs))
    lowered = driver.lower_only(graph, optimize=optimize, verify=True)
    results = stages(lowered, inputs)
    assert len(results) == len(lowered.runs) > 10
    for stage, got in results:
        for a, b in zip(want, got, strict=True):
            same = np.reshape(b, np.shape(a)).astype("f8")
            np.testing.assert_allclose(
                same, np.asarray(a).astype("f8"), rtol=1e-4, atol=1e-4, err_msg=stage
            )
