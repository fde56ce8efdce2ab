"""`simplify` as a whole: random graphs against evaluation, shapes, tags, traces, big graphs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from uopc.ir.builder import leaves
from uopc.ir.builder.fold import select
from uopc.ir.builder.operands import variable
from uopc.ir.core import bounds, dtypes
from uopc.ir.core.args import ParamArg, RangeArg
from uopc.ir.core.constants import const_value
from uopc.ir.core.dtypes import DType
from uopc.ir.core.evaluate import evaluate
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import tracing
from uopc.ir.core.uop import UOp, intern
from uopc.ir.rewrite import check_rules
from uopc.ir.symbolic import fixpoint, simplify
from uopc.ir.text.printer import render

X = intern(Ops.PARAM, dtypes.int32, (), ParamArg("x", ()))


def _number(value: Any, t: DType) -> UOp:
    return intern(Ops.CONST, t, (), const_value(t, value))


def test_tensors_keep_their_shape() -> None:
    a = intern(Ops.PARAM, dtypes.int32, (), ParamArg("a", (4, 1)))
    b = intern(Ops.PARAM, dtypes.int32, (), ParamArg("b", (1, 3)))
    wide = intern(Ops.SUB, dtypes.int32, (intern(Ops.ADD, dtypes.int32, (a, b)), b))
    assert wide.simplify().shape == (4, 3)  # a alone would be (4, 1)
    zero = intern(Ops.SUB, dtypes.int32, (a, a)).simplify()
    assert zero.shape == (4, 1) and zero.op is Ops.EXPAND


def test_a_loop_of_at_most_one_iteration_keeps_its_index() -> None:
    """Its bounds are those of its iterations; folded to 0, a store would happen in any case."""
    for low, folded in ((0, False), (1, True)):
        end = variable("few", low, 1)
        r = intern(Ops.RANGE, dtypes.index, (end,), RangeArg((0,)))
        assert bounds.bounds(r) == bounds.bounds(r % 4) == bounds.bounds(r * 4) == (0, 0)
        assert (simplify.simplify(r * 4).op is Ops.CONST) is folded


def test_tags_are_kept() -> None:
    marked = intern(Ops.ADD, dtypes.int32, (X, _number(0, dtypes.int32))).rtag("mine")
    assert marked.simplify() is marked
    above = intern(Ops.NEG, dtypes.int32, (intern(Ops.NEG, dtypes.int32, (marked,)),))
    assert above.simplify() is marked


def test_a_trace_shows_the_rules_of_simplify() -> None:
    fired: list[Any] = []
    fresh = intern(Ops.PARAM, dtypes.int32, (), ParamArg("fresh", ()))
    with tracing(fired.append):
        intern(Ops.ADD, dtypes.int32, (fresh, fresh)).simplify()
    assert [f.rule.name for f in fired] == ["sums/twice"]
    assert "rules_algebra.py:" in fired[0].rule.source_line


@pytest.mark.slow
def test_deep_and_shared_graphs() -> None:
    u = X
    for k in range(30_000):
        u = intern(Ops.XOR if k % 2 else Ops.ADD, dtypes.int32, (u, _number(k, dtypes.int32)))
    assert len(u.simplify().toposort()) > 30_000
    doubled = variable("i", 0, 9)
    for _ in range(200):
        doubled = intern(Ops.ADD, dtypes.index, (doubled, doubled))
    made = doubled.simplify()
    assert made.op is Ops.MUL and made.src[1].arg == 2**200


# ---------------------------------------------------------------- random graphs
_OPS = {
    dtypes.index: (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.MAX),
    dtypes.int8: (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CMOD, Ops.MIN,
                  Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
    dtypes.bool_: (Ops.AND, Ops.OR, Ops.XOR, Ops.AND, Ops.OR),
    dtypes.float32: (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX),
}  # fmt: skip
_COMPARES = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
_VALUES: dict[DType, list[Any]] = {
    dtypes.index: [-3, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12],
    dtypes.int8: [-128, -2, -1, 0, 1, 2, 3, 4, 127],
    dtypes.bool_: [False, True],
    dtypes.float32: [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0],
}


class _Graphs:
    """Random scalar graphs over all dtypes, with sharing."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.leaves: dict[UOp, Any] = {}
        self.made: dict[DType, list[UOp]] = {t: [] for t in _OPS}

    def make(self, t: DType, depth: int) -> UOp:
        if self.made[t] and self.random.random() < 0.25:
            return self.random.choice(self.made[t])
        leaf = depth == 0 or self.random.random() < 0.1
        node = self._leaf(t) if leaf else self._node(t, depth - 1)
        self.made[t].append(node)
        return node

    def _leaf(self, t: DType) -> UOp:
        if self.random.random() < 0.45 or len(self.leaves) > 5:
            return _number(self.random.choice(_VALUES[t]), t)
        name = f"v{len(self.leaves)}"
        if t is dtypes.index:
            low, high = self.random.choice([(0, 3), (0, 7), (-4, 4), (0, 1), (2, 9), (0, 30)])
            leaf = variable(name, low, high)
            self.leaves[leaf] = np.arange(low, high + 1)
        else:
            leaf = intern(Ops.PARAM, t, (), ParamArg(name, ()))
            extra = [float("nan")] if t.is_float else []
            self.leaves[leaf] = np.array(_VALUES[t] + extra, t.numpy)
        return leaf

    def _node(self, t: DType, depth: int) -> UOp:
        kind = self.random.random()
        if kind < 0.12:
            branches = (self.make(t, depth), self.make(t, depth))
            return intern(Ops.WHERE, t, (self.make(dtypes.bool_, depth), *branches))
        if kind < 0.2 and t is not dtypes.bool_:
            source = self.random.choice([dtypes.bool_, dtypes.int8])
            return intern(Ops.CAST, t, (self.make(source, depth),))
        if kind < 0.3 and t is not dtypes.index:
            return intern(Ops.NEG, t, (self.make(t, depth),))
        if t is dtypes.bool_ and kind < 0.7:
            base = self.random.choice(list(_OPS))
            op = self.random.choice(_COMPARES)
            return intern(op, t, (self.make(base, depth), self.make(base, depth)))
        op = self.random.choice(_OPS[t])
        return intern(op, t, (self.make(t, depth), self.make(t, depth)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.few(2)
def test_random_graphs_keep_their_values(seed: int) -> None:
    rng = random.Random(seed)
    smaller = 0
    for _ in range(700):
        graphs = _Graphs(rng)
        u = graphs.make(rng.choice(list(_OPS)), rng.choice([2, 3, 4]))
        made = u.simplify()
        assert made.dtype is u.dtype and made.simplify() is made
        at = check_rules.points(graphs.leaves, rng)
        (old, _), (new, _) = evaluate(u, at), evaluate(made, at)
        same = np.array_equal(*np.broadcast_arrays(old, new), equal_nan=u.dtype.is_float)
        assert same, f"{render(u)} → {render(made)}"
        smaller += len(made.toposort()) < len(u.toposort())
        for v in u.toposort():
            rules = fixpoint.RULES_FOR[fixpoint.kind_of(v)]
            assert rules.rewrite(v) is simplify.RULES.rewrite(v), render(v)
    assert smaller > 200


def test_a_decided_selection_leaves_a_scalar_that_repeats() -> None:
    vector = leaves.const(dtypes.float32, (1.0, 2.0))
    scalar = leaves.const(dtypes.float32, 0.0)
    no = leaves.const(dtypes.bool_, False)
    assert select(no, vector, scalar) is scalar
    assert select(no, scalar, vector) is vector


@pytest.mark.parametrize("t", [dtypes.index, dtypes.int32, dtypes.uint8], ids=str)
def test_what_has_no_value_has_no_part_in_bounds(t: DType) -> None:
    """Either branch, both branches inside one another, below arithmetic, casts and extrema."""
    n = variable("n", 2, 9)
    a, none, p = n.cast(t), intern(Ops.INVALID, t), n < 5
    left, right = (intern(Ops.WHERE, t, (p, *b)) for b in ((a, none), (none, a)))
    inner = intern(Ops.WHERE, t, (p, none, left))
    for u in (left, right, inner, intern(Ops.WHERE, t, (n < 7, right, none))):
        assert bounds.bounds(u) == (2, 9), render(u)
        assert bounds.bounds(intern(Ops.ADD, t, (u, a))) == (4, 18)
        assert bounds.bounds(intern(Ops.MAX, t, (u, _number(4, t)))) == (4, 9)
        assert bounds.bounds(intern(Ops.CAST, dtypes.int64, (u,))) == (2, 9)
