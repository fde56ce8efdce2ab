"""`assuming`: results hold under the condition, and intervals decide all that the rules decide."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from uopc.ir.builder.fold import combine
from uopc.ir.core import dtypes, walk
from uopc.ir.core.arena import arena
from uopc.ir.core.args import RangeArg
from uopc.ir.core.evaluate import evaluate
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.ir.symbolic.assume import ConstraintScope, _nodes_assumptions_change, assuming, put_in
from uopc.ir.symbolic.conditions import constraints_of, negation
from uopc.ir.symbolic.simplify import simplify

SIZES = (7, 12, 30)
RANGES = [
    intern(Ops.RANGE, dtypes.index, (affine.const(n),), RangeArg(axis=(i,), kind="loop"))
    for i, n in enumerate(SIZES)
]
GRID = np.meshgrid(*[np.arange(n) for n in SIZES], indexing="ij")
AT = {r: values.ravel() for r, values in zip(RANGES, GRID)}


def sum_of(factors: tuple[int, ...], constant: int) -> UOp:
    parts = [affine.scaled(r, f) for r, f in zip(RANGES, factors)]
    return reduce(affine.add, parts, affine.const(constant))


def divided(value: UOp, n: int, op: int) -> UOp:
    return (value, *affine.divmod_(value, affine.const(n)))[op]


FACTORS = st.tuples(*[st.sampled_from([0, 0, 1, 1, -1, 2, -3, 12, 27])] * 3)
SUMS = st.builds(sum_of, FACTORS, st.integers(-20, 20))
LONG = st.builds(lambda a, b, k: affine.add(a, affine.scaled(b, k)), SUMS, SUMS, st.integers(-3, 3))
QUOTIENTS = st.builds(divided, LONG, st.sampled_from([2, 3, 5, 7, 12, 28]), st.integers(0, 2))
DEEPER = st.builds(affine.add, QUOTIENTS, LONG)
NESTED = st.builds(divided, DEEPER, st.integers(2, 31), st.integers(0, 2))
COMPARED = st.builds(
    lambda a, b, op: combine(op, (a, b)),
    st.one_of(SUMS, QUOTIENTS), st.one_of(SUMS, st.integers(-9, 40).map(affine.const)),
    st.sampled_from([Ops.CMPLT, Ops.CMPLT, Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE]),
)  # fmt: skip
CONDITIONS = st.recursive(
    COMPARED,
    lambda below: st.builds(
        lambda a, b, op: combine(op, (a, b)), below, below, st.sampled_from([Ops.AND, Ops.OR])
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.one_of(NESTED, QUOTIENTS),
    lambda below: st.one_of(
        st.builds(lambda p, a, b: combine(Ops.WHERE, (p, a, b)), CONDITIONS, below, below),
        st.builds(
            lambda a, b, op: combine(op, (a, b)), below, below,
            st.sampled_from([Ops.ADD, Ops.MAX, Ops.MIN, Ops.MUL]),
        ),
    ),
    max_leaves=3,
)  # fmt: skip


def operations(u: UOp) -> int:
    """Constants may be shared by chance: (3·i + k) % 4 is also (k - i) % 4."""
    return sum(v.op is not Ops.CONST for v in walk.toposort(u))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(VALUES, CONDITIONS, st.booleans())
def test_values_under_conditions(value: UOp, condition: UOp, holds: bool) -> None:
    with arena():
        value, condition = simplify(value), simplify(condition)
        made = assuming(value, condition, holds)
        where = evaluate(condition, AT)[0] == holds
        if made is not None:
            old, new = [evaluate(u, AT)[0] for u in (value, made)]
            assert np.array_equal(*[np.broadcast_to(a, where.shape)[where] for a in (old, new)])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(VALUES, CONDITIONS), CONDITIONS, st.booleans())
def test_what_intervals_leave_open_no_rule_decides(u: UOp, condition: UOp, holds: bool) -> None:
    with arena():
        u, condition = simplify(u), simplify(condition)
        conjuncts = walk.flatten(condition, Ops.AND if holds else Ops.OR)
        below = _nodes_assumptions_change(u)
        if below is None or any(c in below for c in conjuncts):
            return
        context = ConstraintScope(
            constraints_of(conjuncts if holds else map(negation, conjuncts)), below
        )
        if not context.decides(u):
            made = put_in(u, context.facts.values(), {})
            assert made is None or operations(made) >= operations(u)


def test_something_is_decided() -> None:
    """The two above do not pass because nothing ever happens."""
    i, j, k = RANGES
    total = affine.add(i, j)
    five, twelve = affine.const(5), affine.const(12)
    mask = combine(Ops.AND, (compare.less(total, five), compare.less(k, twelve)))
    for value in (
        affine.floormod(affine.add(affine.scaled(i, 3), affine.scaled(j, 3)), affine.const(13)),
        affine.floordiv(k, twelve),
        combine(Ops.MAX, (total, affine.add(five, k))),
        combine(Ops.WHERE, (compare.less(affine.add(total, k), affine.const(16)), k, i)),
    ):
        made = assuming(value, mask)
        assert made is not None, value
    for value in itertools.chain(RANGES, [affine.floormod(k, five), compare.less(j, i)]):
        assert assuming(value, mask) is None
