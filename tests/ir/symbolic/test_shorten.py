"""`simplify` writes the normal form with few nodes, equal everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance import expression
from tests.effort import calls
from uopc.ir.builder.operands import variable
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.index import affine
from uopc.ir.symbolic import shorten, simplify

A, B, C = variable("a", 0, 30), variable("b", -5, 12), variable("c", 0, 7)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (A * 16 + C * 16, "((a+c)*16)"),
        (A * -3 + B + 5, "((b-(a*3))+5)"),
        (-A - C, "(-(a+c))"),
        (7 - A, "(7-a)"),
        (-((-A) % 15), "(a%-15)"),
        ((-A) // 3, "(a//-3)"),
        ((-A) // 3 + A * 2, "((a*5)//3)"),
        ((A + 2) // 9 * 4 + 8, "(((a+20)//9)*4)"),
        (A * A * 4 - A, "(((a*a)*4)-a)"),
        (A * 160 + B * 160 - A, "(((a+b)*160)-a)"),
        (B < C + 1, "(b<=c)"),
        (C * 3 - B > 0, "(b<(c*3))"),
        (A * B * 7 - A * 3, "(((b*7)+-3)*a)"),
        (A * B * 4 - A, "(((a*b)*4)-a)"),
        ((1 - A) // 2 < B - A, "((a+2)<=(b*2))"),
        ((A > 7).where(B, 0) + (A > 7).where(0, C), "(b if (7<a) else c)"),
        ((A > 7).where(B, C) + 8, "((b if (8<=a) else c)+8)"),
        ((A + B) // 4 + (A + B) * 3, "(((a+b)*13)//4)"),
    ],
)
def test_written_short(value, shown):
    made = value.simplify()
    assert expression.difference(value, made) is None
    assert shorten.size(made) <= shorten.size(simplify.simplify(value))
    assert made.render(simplify=False) == shown


@pytest.mark.parametrize("t", [dtypes.int32, dtypes.uint8, dtypes.int64])
def test_complementary_selections_are_one(t):
    a, b, p = A.cast(t), B.cast(t), A > 7
    made = (p.where(a, 0) + p.where(0, b)).simplify()
    assert made is p.where(a, b).simplify()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_an_index_taken_apart_is_put_together_in_any_order(order):
    e = 117 - A * 3
    quotient, inner = affine.divmod_(e, affine.const(5))
    outer, middle = affine.divmod_(quotient, affine.const(8))
    parts = (outer * 40, middle * 5, inner)
    a, b, c = (parts[i] for i in order)
    assert a + b + c is e


# ---------------------------------------------------------------- random expressions
_LEAVES = st.sampled_from([A, B, C]) | st.integers(-16, 16).map(affine.const)


def _binary(below):
    ops = st.sampled_from([Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.ADD, Ops.ADD])
    plain = st.builds(lambda op, x, y: intern(op, dtypes.index, (x, y)), ops, below, below)
    divisor = st.sampled_from([-4, -3, -2, 2, 3, 4, 6, 16]).map(affine.const)
    divided = st.builds(
        lambda op, x, y: intern(op, dtypes.index, (x, y)),
        st.sampled_from([Ops.FLOORDIV, Ops.FLOORMOD]),
        below,
        divisor,
    )
    compares = st.builds(
        lambda op, x, y: intern(op, dtypes.bool_, (x, y)),
        st.sampled_from([Ops.CMPLT, Ops.CMPLE, Ops.CMPNE, Ops.CMPEQ]),
        below,
        below,
    )
    chosen = st.builds(
        lambda p, x, y: intern(Ops.WHERE, dtypes.index, (p, x, y)), compares, below, below
    )
    return plain | plain | divided | divided | chosen


@settings(max_examples=100, deadline=None)
@given(st.recursive(_LEAVES, _binary, max_leaves=12))
def test_random_expressions_keep_their_values(u):
    made = u.simplify()
    assert expression.difference(u, made) is None
    assert shorten.size(made) <= shorten.size(simplify.simplify(u))
    assert made.simplify() is made
    assert simplify.simplify(made) is simplify.simplify(u)


@pytest.mark.parametrize(
    "value",
    [
        (6 - A).eq(B + B),
        (A % 5 * 2 + C * 2 + C) < A + 1,  # two forms of one size took turns
        (A < C).where(B, -8) * C * 3 + A.eq(B).where(1, 4) < -2,
    ],
)
def test_simplified_once_is_simplified(value):
    made = value.simplify()
    assert made.simplify() is made
    assert expression.difference(value, made) is None


def test_a_long_sum_is_written_in_time():
    def comparison(n):
        terms = [variable(f"t{i}", 0, 9) * (i % 7 + 2) // (i % 3 + 2) for i in range(n)]
        return sum(terms[1:], terms[0]) < variable("n", 0, 99) * 3

    comparison(3).simplify()  # compiles the rules
    total = comparison(9)
    assert calls(total.simplify) < 200_000  # 17,000 by today's search: 10 ms
    assert shorten.size(total.simplify()) <= shorten.size(total)


def test_large_graphs_stay_in_normal_form():
    total = affine.const(0)
    for i in range(200):
        total = total + variable(f"v{i}", 0, 9) * 3
    assert total.simplify() is total
