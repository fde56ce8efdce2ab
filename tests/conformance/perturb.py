"""The condition of a graph: its values when every float operation is a little off.

The reference interpreter runs the graph several times, each operation followed by a random error
of about one rounding unit; the largest change of each element is its spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from tests.conformance.compare import PRECISION
from tests.conformance.corpus import Array
from tests.conformance.large_reduces import LargeRun, magnitude
from tests.conformance.loader import Graph
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.interpret.arguments import Variables
from uopc.ir.interpret.tensor import TensorRun

SEEDS: Final = 8
# Operations whose own result is rounded; what stands on one of them is inexact too.
_ROUNDED: Final = frozenset((
    Ops.REDUCE, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.POW, Ops.RECIPROCAL,
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MULACC,
))  # fmt: skip
_EXACT: Final = frozenset((Ops.NEG, Ops.MAX, Ops.MIN, Ops.WHERE, Ops.TRUNC))
Numbers = Mapping[str, int]  # of variables, by name
Values = dict[str, Array]


class _Perturbed(LargeRun):
    """An interpreter whose float operations are off by random errors."""

    random: np.random.Generator

    def __init__(self, initial: Callable[[UOp], Array], variables: Variables) -> None:
        super().__init__(initial, variables)
        self.inexact: set[UOp] = set()

    def nested(self, initial: Callable[[UOp], Array], variables: Variables) -> TensorRun:
        inner = super().nested(initial, variables)
        assert isinstance(inner, _Perturbed)
        inner.random = self.random
        return inner

    def _evaluate(self, u: UOp) -> None:
        super()._evaluate(u)
        if any([s in self.inexact for s in u.src]) or (u.dtype.is_float and u.op in _ROUNDED):
            self.inexact.add(u)
        if not u.dtype.is_float or u not in self.values:
            return
        if u.op is Ops.REDUCE:
            self._shake_reduce(u)
        elif self._is_rounded(u):
            self._put(u, _shaken(u.op, *self._noise(u)))

    def _is_rounded(self, u: UOp) -> bool:
        if u.op is Ops.CAST:
            source = u.src[0]
            before = PRECISION[source.dtype.name].epsilon if source.dtype.is_float else 0.0
            return source in self.inexact and PRECISION[u.dtype.name].epsilon > before
        return u.op.is_alu and u.op not in _EXACT

    def _noise(self, u: UOp) -> tuple[Array, Array]:
        """The value in float64, and a random error of up to one rounding unit of its type."""
        value = self.values[u].astype(np.float64)
        unit = PRECISION[u.dtype.name].epsilon
        return value, self.random.uniform(-1, 1, value.shape) * unit

    def _shake_reduce(self, u: UOp) -> None:
        """A sum of n terms is off by about sqrt(n)/4 units of the sum of magnitudes."""
        if u.arg.op not in ("add", "mul"):
            return
        value, error = self._noise(u)
        size, count = magnitude(u, self.values)
        root = math.sqrt(count)
        if u.arg.op == "mul":
            self._put(u, value * (1 + root * error))
            return
        # More than errors of the terms would add: where they are many, they are exact.
        self._put(u, value + size * (1 + root / 4) * error)

    def _put(self, u: UOp, moved: Array) -> None:
        exact = self.values[u]
        kept = np.where(np.isfinite(moved), moved, exact.astype(np.float64))
        self.values[u] = kept.astype(exact.dtype)


def _shaken(op: Op, value: Array, error: Array) -> Array:
    moved: Array = value * (1 + error)
    if op is Ops.SIN:
        moved = value + error
    elif op is Ops.POW:
        size = np.abs(np.log2(np.abs(value)))
        moved = value * (1 + error * (1 + np.where(np.isfinite(size), size, 0)))
    return moved


def interpret(
    graph: Graph, inputs: Values, variables: Numbers, random: np.random.Generator | None = None
) -> Values:
    """out{k} and final{slot} of a graph, and valid{k} where elements are undefined."""
    bound = Variables(variables)

    def initial(param: UOp) -> Array:
        return inputs[param.arg.name]

    run = LargeRun(initial, bound)
    if random is not None:
        run = _Perturbed(initial, bound)
        run.random = random
    found: Values = {}
    with np.errstate(all="ignore"):
        run.run(graph.outputs)
        for k, u in enumerate(graph.outputs):
            found[f"out{k}"] = run.values[u]
            if u in run.masks:
                found[f"valid{k}"] = np.broadcast_to(run.masks[u], run.values[u].shape)
        for storage, contents in run.final_contents(graph.outputs).items():
            if storage.op is Ops.PARAM:
                found["final" + storage.arg.name.removeprefix("in")] = contents
    return found


def widening(graph: Graph, inputs: Values, variables: Numbers, exact: Values) -> Iterator[Values]:
    """For each float value, the largest change of each element over one perturbed run, then over
    two, and so on: what is within the tolerance after some runs is so after all of them."""
    base = {k: v.astype(np.float64) for k, v in exact.items() if v.dtype.kind not in "biu"}
    spread = {k: np.zeros(v.shape) for k, v in base.items()}
    for seed in range(SEEDS):
        moved = interpret(graph, inputs, variables, np.random.default_rng(seed))
        for k, v in base.items():
            spread[k] = np.maximum(spread[k], _change(moved[k].astype(np.float64), v))
        yield spread


def spreads(graph: Graph, inputs: Values, variables: Numbers, exact: Values) -> Values:
    """The same over all perturbed runs."""
    *_, spread = widening(graph, inputs, variables, exact)
    return spread


def _change(moved: Array, exact: Array) -> Array:
    """The distance; NaN that stays NaN has not moved, NaN that comes or goes moved infinitely."""
    with np.errstate(all="ignore"):
        change = np.abs(moved - exact)
    both = np.isnan(moved) & np.isnan(exact)
    result: Array = np.where(np.isnan(change), np.where(both, 0.0, np.inf), change)
    return result
