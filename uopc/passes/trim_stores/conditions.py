"""Comparisons of indices that must hold where a bool does, as guards of stores and of sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from uopc.ir.core import bounds
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, compare
from uopc.ir.symbolic.conditions import join
from uopc.passes.analysis import counted

# Sums Σ as terms, each with a constant: Σ + constant < 0 for all of them.
Conditions = dict[frozenset[tuple[UOp, int]], int]

SAMPLES = 16  # per loop, to estimate how many elements a condition leaves out
LEAST_SHARE = 1 / 8  # of the elements, left out: else a guard costs more than it saves


def required(c: UOp, holds: bool, others: list[UOp] | None = None) -> Conditions:
    """The comparisons of indices that must hold if a bool holds (or does not); `others` gets all
    other conditions."""
    found: Conditions = {}
    others = [] if others is None else others
    memo: dict[UOp, UOp | None] = {}
    stack = [(c, holds)]
    while stack:
        u, wanted = stack.pop()
        if u.op is (Ops.AND if wanted else Ops.OR):
            stack += [(s, wanted) for s in u.src]
        elif u.op is Ops.NEG:
            stack.append((u.src[0], not wanted))
        elif u.op is Ops.CMPNE and u.src[0].dtype.kind == "bool" and u.src[1].op is Ops.CONST:
            stack.append((u.src[0], wanted != bool(u.src[1].arg)))
        else:
            less = counted.comparison(u, u.src, memo) if counted.is_comparison(u) else None
            if less is None or less.op is not Ops.CMPLT:
                others.append(u)
                continue
            constant, terms = affine.form(affine.sub(*less.src))
            if not wanted:
                constant, terms = -constant - 1, {m: -k for m, k in terms.items()}
            key = frozenset(terms.items())
            found[key] = max(constant, found.get(key, constant))
    return found


def both(a: Conditions, b: Conditions) -> Conditions:
    """The conditions of both."""
    if not a or not b:
        return a or b
    return {key: max(x.get(key, y[key]) for x, y in ((a, b), (b, a)) if key in y) for key in a | b}


def either(a: Conditions, b: Conditions) -> Conditions:
    """The conditions that hold if either of two values is true."""
    return {key: min(constant, b[key]) for key, constant in a.items() if key in b}


def guard_of(conditions: Conditions, blocks: Mapping[UOp, int]) -> UOp | None:
    """The conditions as a guard, if it leaves out enough: see `share_outside`."""
    if not conditions or share_outside(conditions, blocks) < LEAST_SHARE:
        return None
    return join(Ops.AND, [
        compare.less(affine.build(constant, dict(terms)), affine.const(0))
        for terms, constant in conditions.items()
    ])  # fmt: skip


def share_outside(conditions: Conditions, blocks: Mapping[UOp, int]) -> float:
    """The share of elements in blocks without an element inside, estimated from sample blocks.
    `blocks`: the iterations of each loop per block. 1 if a variable decides."""
    atoms = list({m: None for terms in conditions for m, _ in terms})
    if any(m.op is not Ops.RANGE for m in atoms) or len(atoms) > 3:
        return 1.0
    places = []
    for r in atoms:
        length, size = max(1, int(bounds.bounds(r.src[0])[1])), blocks.get(r, 1)
        whole = -(-length // size)
        count = min(whole, SAMPLES)
        starts = [(2 * i + 1) * whole // (2 * count) * size for i in range(count)]
        places.append([(at, min(at + size, length) - 1) for at in starts])
    outside = total = 0
    for block in itertools.product(*places):
        at, elements = dict(zip(atoms, block)), math.prod([b - a + 1 for a, b in block])
        least = [c + sum(k * at[m][k < 0] for m, k in terms) for terms, c in conditions.items()]
        total += elements
        outside += elements * any([n >= 0 for n in least])
    return outside / total
