"""Random scalar graphs of index values, integers that wrap, and bools: `u.simplify()` keeps every
value, has no more operations, and simplified again stays as it is."""

from __future__ import annotations

import random

import uopc
from tests.conformance import expression
from tests.fuzz.kinds import Verdict
from uopc import UOp
from uopc.ir.builder import leaves
from uopc.ir.core import dtypes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.rewrite.engine import EndlessRewriteError

_GRAPHS = 20  # of one case
_DTYPES = (
    dtypes.index, dtypes.index, dtypes.index, dtypes.int8, dtypes.uint8, dtypes.int32,
    dtypes.uint32, dtypes.int64, dtypes.uint64,
)  # fmt: skip
_SUMS = (Ops.ADD, Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.MIN)
_BITS = (Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR)
_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD)
_COMPARISONS = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
_DIVISORS = (2, 3, 4, 5, 6, 8, 12, 16, 60)


def run(seed: int, number: int) -> Verdict:
    """Twenty graphs; the report has the first wrong one."""
    drawn = random.Random(f"algebra {seed} {number}")
    verdict = Verdict()
    for _ in range(_GRAPHS):
        t = drawn.choice(_DTYPES)
        depth = drawn.randint(1, 5)
        u = truth(drawn, t, depth) if drawn.random() < 0.4 else integer(drawn, t, depth)
        for v in walk.toposort(u):
            verdict.seen["simplify", v.op.name, v.dtype.name] += 1
        failure = _wrong(u)
        if failure:
            verdict.failures.append(failure)
            verdict.report = verdict.report or uopc.print_graph(u)
    return verdict


def _wrong(u: UOp) -> str:
    try:
        made = u.simplify()
        again = made.simplify()
    except EndlessRewriteError as error:
        return str(error)
    text = f"{u.render(simplify=False)} became {made.render(simplify=False)}"
    if again is not made:
        return f"{text}, and then {again.render(simplify=False)}"
    if _operations(made) > _operations(u):
        return f"{text}, which has more operations"
    change = expression.difference(u, made)
    return f"{text}: {change}" if change else ""


def _operations(u: UOp) -> int:
    return sum(v.op is not Ops.CONST for v in walk.toposort(u))


def _leaf(drawn: random.Random, t: DType) -> UOp:
    pick = drawn.random()
    if pick < 0.3:
        small = drawn.random() < 0.8 or t is dtypes.index
        low, high = (-9, 16) if small else t.bounds
        return leaves.const(t, drawn.randint(max(low, t.bounds[0]), high))
    name, low, high = drawn.choice([("a", 0, 30), ("b", -5, 12), ("c", 0, 7), ("d", 1, 4)])
    v: UOp = uopc.variable(name, low, high)
    return v if t is dtypes.index else v.cast(t)


def integer(drawn: random.Random, t: DType, depth: int) -> UOp:
    if depth <= 0 or drawn.random() < 0.12:
        return _leaf(drawn, t)
    x, y = integer(drawn, t, depth - 1), integer(drawn, t, depth - 1)
    pick = drawn.random()
    if pick < 0.5 or (pick < 0.6 and t is dtypes.index):
        return x.alu(drawn.choice(_SUMS), y)
    if pick < 0.6:
        return x.alu(drawn.choice(_BITS), y)
    if pick < 0.85:
        divisor = leaves.const(t, drawn.choice(_DIVISORS))
        return x.alu(drawn.choice(_DIVISIONS), divisor if drawn.random() < 0.8 else y)
    if pick < 0.9:
        return -x
    return truth(drawn, t, depth - 1).where(x, y)


def truth(drawn: random.Random, t: DType, depth: int) -> UOp:
    if depth > 0 and drawn.random() < 0.35:
        p, q = truth(drawn, t, depth - 1), truth(drawn, t, depth - 1)
        return drawn.choice((p & q, p | q, p ^ q, p.where(q, ~p)))
    x, y = integer(drawn, t, depth - 1), integer(drawn, t, depth - 1)
    return x.alu(drawn.choice(_COMPARISONS), y)
