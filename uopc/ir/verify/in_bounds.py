"""Check that every access to storage of known size stays inside of it, under its guards.

The bounds of an index under its guards may prove that the access is inside. Else the check tries
values of loops and variables: all values if they are few, which also proves, else mostly the least
and greatest. Each access is *inside* (proved), *outside* (with values at which it happens) or *not
proved*, such as an index that is loaded from memory.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from uopc.errors import InvalidIR
from uopc.ir.builder import index_maps
from uopc.ir.builder.rebuild import remake
from uopc.ir.core import bounds, dtypes, ranges, shapes, walk
from uopc.ir.core.arena import arena, compile_scoped, memo
from uopc.ir.core.calls import graph_order, operands
from uopc.ir.core.evaluate import Array, evaluate
from uopc.ir.core.intervals import EVERYTHING, Interval, intersect
from uopc.ir.core.levels import SCALAR, Level
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, monomials
from uopc.ir.index.affine import Constraints
from uopc.ir.index.dims import dim_uop
from uopc.ir.nest.accesses import Access
from uopc.ir.records import dataclass
from uopc.ir.symbolic import assume, conditions, simplify
from uopc.ir.verify import verifier
from uopc.ir.verify.nodes import describe

_MOST_POINTS = 4096  # up to here all points are tried
_SAMPLES = 512  # points that are tried else
_MOST_CONDITIONS = 3  # that are numbers, of which each value is tried


class Verdict(enum.Enum):
    """The result for one access."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    NOT_PROVED = "not proved"


@dataclass(frozen=True, slots=True)
class CheckedAccess:
    """An index of an access: `index` into `size` elements of `address`'s storage by `user`.

    `low` and `high` are the proved bounds of the index; `at`: values at which the index is outside.
    """

    user: UOp
    address: UOp
    index: UOp
    size: Dim
    low: Any
    high: Any
    verdict: Verdict
    at: dict[str, int]

    def __str__(self) -> str:
        size = shapes.show((self.size,))[1:-1]
        text = (
            f"{self.user.op.name} of {self.address.src[0].op.name}[{size}] at"
            f" {self.index.render()}, which is {self.low} to {self.high}: {self.verdict.value}"
        )
        where = ", ".join(f"{k} = {v}" for k, v in self.at.items())
        return f"{text} where {where}" if where else text


def verify_with_bounds(
    graph: UOp, level: Level, stage: str = "", assuming: Sequence[UOp] = ()
) -> None:
    """`verify`; then, for a kernel, `verify_bounds`."""
    verifier.verify(graph, level, stage)
    if level & SCALAR:
        verify_bounds(graph, stage, assuming)


def verify_bounds(graph: UOp, stage: str = "", assuming: Sequence[UOp] = ()) -> list[CheckedAccess]:
    """The unproved accesses of a kernel (level indexed to linear).

    `assuming`: true conditions on variables. InvalidIR if an access is outside, with its index, the
    bounds of the index and the storage's size.
    """
    left = []
    for access in accesses(graph, assuming):
        if access.verdict is Verdict.OUTSIDE:
            where = f"{stage}: " if stage else ""
            line = describe(access.user, graph)
            raise InvalidIR(f"{where}invariant in-bounds: {access}\n  {line}{made_at(access.user)}")
        if access.verdict is Verdict.NOT_PROVED:
            left.append(access)
    return left


def accesses(graph: UOp, assuming: Sequence[UOp] = ()) -> list[CheckedAccess]:
    """Every index of every access to a PARAM, BUFFER or DATA, with its verdict."""
    known: dict[tuple[object, ...], list[CheckedAccess]] = {}
    # A list may have a statement twice, in other branches.
    nodes = graph.src if graph.op is Ops.LINEAR else graph_order([graph])
    with arena():
        for a, gates, loops in _uses(nodes):
            key = a.node, gates, loops
            if key not in known:
                condition = conditions.join(Ops.AND, [*assuming, *gates])
                known[key] = list(_checked(a, condition, loops))
    return [access for of_one in known.values() for access in of_one]


def _uses(nodes: Iterable[UOp]) -> Iterator[tuple[Access, tuple[UOp, ...], frozenset[UOp]]]:
    """Every access to storage, with the conditions on its user and the loops around the user."""
    around: list[UOp] = []  # conditions of the IFs around a statement of a list
    ended: set[UOp] = set()  # loops of a list; their CARRYs are read after them too
    for u in nodes:
        if u.op is Ops.IF:
            around.append(u.src[0])
        elif u.op is Ops.ENDIF:
            around.pop()
        elif u.op is Ops.END and u.src[0].op is Ops.RANGE:
            ended.add(u.src[0])
        for i, s in enumerate(operands(u)):
            if s.op is not Ops.INDEX or shapes.shape(s) != ():
                continue
            access = u.op.is_access and i == 0
            a = Access(s, u if access else None)
            if a.storage.op.is_storage and access:
                yield a, (*around, *_gates(u)), ranges.ranges(u) - ended
            elif a.storage.op.is_storage and u.op not in (Ops.LINEAR, Ops.AFTER):  # read nothing
                yield a, (), a.loops


def _gates(access: UOp) -> list[UOp]:
    """The conditions of a LOAD or STORE, including that a stored value is not INVALID."""
    first = {Ops.LOAD: 1, Ops.STORE: 2}.get(access.op, len(access.src))
    valid = index_maps.ungated(access.src[1])[1] if access.op is Ops.STORE else None
    return [*access.src[first:], *([] if valid is None else [valid])]


def _checked(a: Access, given: UOp | None, around: frozenset[UOp]) -> Iterator[CheckedAccess]:
    """The results for each index of an access under a condition."""
    dims = shapes.shape(a.storage)
    if len(a.index) == 1 and len(dims) > 1:  # flat
        dims = (shapes.size(dims),)
    condition = conditions.join(Ops.AND, [g for g in (given, a.gate) if g is not None])
    if condition is not None:
        condition = simplify.simplify(_as_arithmetic(condition))
    loops = tuple(sorted(around, key=monomials.term_order))
    lanes = a.node.dtype.lanes
    for x, size in zip(a.index, dims):
        if len(a.index) == 1 and lanes > a.node.src[1].dtype.lanes:  # neighbours from x on
            lane = intern(Ops.LANES, dtypes.index.vec(lanes), (), lanes)
            x = affine.add(simplify.simplify(x), lane)
        yield CheckedAccess(a.user, a.node, x, size, *_check(x, size, condition, loops))


@memo  # most accesses are the same after the next pass
def _check(
    x: UOp, size: Dim, condition: UOp | None, loops: tuple[UOp, ...]
) -> tuple[Any, Any, Verdict, dict[str, int]]:
    """The bounds of an index, the verdict, and values at which the index is outside."""
    x = simplify.simplify(_as_arithmetic(x))
    if condition is not None and condition.op is Ops.CONST and not np.any(condition.arg):
        return 0, -1, Verdict.INSIDE, {}
    constraints = _constraints_of(condition)
    for r in loops:
        constraints = _in_loop(r, constraints)
    if any([u.dtype.kind != "index" for u in constraints]):
        for u in graph_order([x]):
            if u.op is Ops.CAST and u.dtype.kind == "index" and u.src[0] in constraints:
                constraints[u] = constraints[u.src[0]]  # no integer is too large for dtype index
    cases = _cases(x, loops, constraints)
    found = [_bounds_under(x, known) for known in cases]
    low, high = min([a for a, _ in found], default=0), max([b for _, b in found], default=-1)
    if low >= 0 and all([_is_below(x, b, size, c) for (_, b), c in zip(found, cases)]):
        return low, high, Verdict.INSIDE, {}
    return low, high, *_search_counterexample(x, size, condition, loops)


def _is_below(x: UOp, high: int, size: Dim, constraints: Constraints) -> bool:
    """x < size, where x ≤ high."""
    if isinstance(size, int):
        return high < size
    last = affine.plus(dim_uop(size), -1)
    if high <= bounds.bounds(last)[0] or x.dtype.kind != "index":
        return bool(high <= bounds.bounds(last)[0])
    return affine.at_most(x, last) or _bounds_under(affine.sub(x, last), constraints)[1] <= 0


# ---------------------------------------------------------------- guards
def _constraints_of(condition: UOp | None) -> Constraints:
    """The constraints of a condition, also with = and ≠, on its integers."""
    conjuncts = [] if condition is None else walk.flatten(condition)
    constraints = conditions.constraints_of(conjuncts)
    for v in conjuncts:
        if v.op not in (Ops.CMPEQ, Ops.CMPNE) or not affine.is_const(v.src[1]):
            continue
        u, c = v.src[0], v.src[1].arg
        if not u.dtype.is_integral:
            continue
        low, high = intersect(bounds.bounds(u), constraints.get(u, EVERYTHING))
        if v.op is Ops.CMPEQ:
            constraints[u] = c, c
        elif c in (low, high):
            constraints[u] = low + (c == low), high - (c != low)
    return constraints


def _in_loop(r: UOp, constraints: Constraints) -> Constraints:
    """Add the constraint r < end, for each operand if the end is a minimum. Skip constants, whose
    bounds are already known."""
    facts = []
    for end in walk.flatten(simplify.simplify(r.src[0]), Ops.MIN):
        if affine.is_const(end):
            continue
        facts.append((r, end))
        constant, terms = affine.form(end)
        (m, k), *more = terms.items()
        n = m.src[1] if m.op is Ops.FLOORDIV else end
        if not more and k == 1 and affine.is_const(n) and n.arg > 0:
            most = affine.scaled(affine.plus(r, 1 - constant), n.arg)
            facts.append((most, affine.plus(m.src[0], 1)))  # r < e//n + c ⇔ n·(r − c + 1) ≤ e
    conjuncts = [intern(Ops.CMPLT, dtypes.bool_, pair) for pair in facts]
    return conditions.constraints_of(conjuncts, constraints)


def _cases(x: UOp, loops: Sequence[UOp], constraints: Constraints) -> list[Constraints]:
    """The constraints, once for each value of the conditions that an index, a guard or a loop
    length uses as numbers; only values with which all loops run. The last thread's chunk differs in
    length from the others."""
    ends = [simplify.simplify(r.src[0]) for r in loops]
    sums = [u for u in (x, *ends, *constraints) if u.dtype is dtypes.index]
    numbers = {m for u in sums for m in affine.form(u)[1] if monomials.is_condition(m)}
    found = [constraints]
    for m in sorted(numbers, key=monomials.term_order)[:_MOST_CONDITIONS]:
        conditions_of = (conditions.negation(m.src[0]), m.src[0])
        found = [
            {**conditions.constraints_of([condition], known), m: (value, value)}
            for known in found for value, condition in enumerate(conditions_of)
        ]  # fmt: skip
    return [known for known in found
            if all([affine.interval(*affine.form(end), known)[1] > 0 for end in ends])]  # fmt: skip


def _bounds_under(x: UOp, constraints: Constraints) -> tuple[int, int]:
    """Bounds of an integer under constraints.

    Variables with these bounds replace constrained atoms, and one constrained sum at a time or all.
    """
    low, high = intersect(bounds.bounds(x), constraints.get(x, EVERYTHING))
    if x.dtype.kind != "index":
        return low, high
    named = {u: _variable(u, c) for u, c in constraints.items() if u.dtype.kind == "index"}
    atoms = {u: v for u, v in named.items() if u.op is not Ops.ADD}
    sums = [assume.solved(u, v) for u, v in named.items() if u.op is Ops.ADD]
    for total in ({}, *[dict([solved]) for solved in sums], dict(sums)):
        found = simplify.replaced(simplify.replaced(x, total, assume.AS_IS), atoms, assume.AS_IS)
        for own in (affine.interval(*affine.form(found)), bounds.bounds(found)):
            low, high = intersect((low, high), own)
    return low, high


def _variable(u: UOp, constraint: Interval) -> UOp:
    low, high = intersect(affine.interval(*affine.form(u)), constraint)
    return assume.variable(u, low, max(low, high))  # low > high where the guard never holds


_arithmetic_of: dict[UOp, UOp] = compile_scoped({})  # indices have parts in common


def _as_arithmetic(root: UOp) -> UOp:
    """Rewrite shifts and masks of indices as products, quotients and remainders. Call in an arena.
    """
    done = _arithmetic_of
    if root not in done:
        for u in walk.toposort(root, lambda u: u not in done):
            if u not in done:
                src = tuple([done[s] for s in u.src])
                made = _arithmetic(u, src)
                done[u] = remake(u, src) if made is None else made
    return done[root]


def _arithmetic(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """x >> 3 → x // 8;  x & 7 → x % 8;  x << 3 → x·8;  truncating division of x ≥ 0 → floor."""
    if u.dtype.kind != "index" or len(src) != 2 or not affine.is_const(src[1]):
        return None
    a, n = src[0], src[1].arg
    if u.op is Ops.SHR and n >= 0:
        return affine.floordiv(a, affine.const(1 << n))
    if u.op is Ops.SHL and n >= 0:
        return affine.scaled(a, 1 << n)
    if u.op is Ops.AND and n >= 0 and n & (n + 1) == 0:
        return affine.floormod(a, affine.const(n + 1))
    if u.op in (Ops.CDIV, Ops.CMOD) and n > 0 and bounds.bounds(a)[0] >= 0:
        return affine.divmod_(a, src[1])[u.op is Ops.CMOD]
    return None


# ---------------------------------------------------------------- counterexamples
_LEAVES = frozenset((Ops.RANGE, Ops.VARIABLE, Ops.SPECIAL, Ops.LANES))
Points = tuple[dict["UOp", Array], Array]  # values of leaves; the points at which all loops run


def _search_counterexample(
    x: UOp, size: Dim, condition: UOp | None, loops: Sequence[UOp]
) -> tuple[Verdict, dict[str, int]]:
    """The verdict from values of loops and variables, and values at which the access is outside."""
    end = dim_uop(size)
    below = graph_order([x, end, *([] if condition is None else [condition]), *loops])
    if not all([_is_known(u) for u in below]):
        return Verdict.NOT_PROVED, {}
    # A loop whose end was simplified in one place is still one loop.
    same: dict[object, UOp] = {}
    free = [u for u in below if u.op in _LEAVES and same.setdefault((u.op, u.arg), u) is u]
    every = _all_points(free)
    values, happens = every or _sampled_points(free, [u for u in below if u.op in _LEAVES])
    values |= {u: values[same[u.op, u.arg]] for u in below if u.op in _LEAVES}
    value, last = (evaluate(u, values)[0] for u in (x, end))
    if condition is not None:
        happens = happens & evaluate(condition, values)[0]
    outside = np.flatnonzero(happens & ((value < 0) | (value >= last)))
    if not len(outside):
        return (Verdict.NOT_PROVED if every is None else Verdict.INSIDE), {}
    from uopc.ir.text.infix import infix

    return Verdict.OUTSIDE, {infix(u) or u.op.name: int(values[u][outside[0]]) for u in free}


def _is_known(u: UOp) -> bool:
    """True if the value follows from loops and variables alone."""
    if u.op is Ops.CONST:
        low, high = dtypes.index.bounds  # a lane of a tuple follows from the lane
        return type(u.arg) is not tuple and low <= u.arg <= high
    return u.op in _LEAVES or u.op is Ops.CAST or u.op.is_alu


def _all_points(free: list[UOp]) -> Points | None:
    """All combinations of values; None if too many, or if a loop's length depends on others."""
    loops = [u for u in free if u.op in (Ops.RANGE, Ops.SPECIAL)]
    known = all([affine.is_const(u.src[0]) for u in loops])
    spans = [range(low, high + 1) for low, high in map(bounds.bounds, free)]
    count = math.prod([len(s) for s in spans])
    if not free or not known or count > _MOST_POINTS:
        return None
    grids = np.meshgrid(*spans, indexing="ij")
    return {u: g.ravel() for u, g in zip(free, grids)}, np.ones(count, np.bool_)


def _sampled_points(free: list[UOp], leaves: list[UOp]) -> Points:
    """Points at which most loops and variables have their least or greatest value. The end of a
    loop may name one of the `leaves` that is the same loop as one of `free`."""
    values: dict[UOp, Array] = {}
    happens = np.ones(_SAMPLES, np.bool_)
    rng = random.Random(0)
    for u in free:
        if u.op is Ops.VARIABLE or u.op is Ops.LANES:
            first, last = (np.full(_SAMPLES, end) for end in bounds.bounds(u))
        else:
            end = np.broadcast_to(evaluate(u.src[0], values)[0], (_SAMPLES,))
            first, last = np.zeros(_SAMPLES, np.int64), end - 1
        share = np.array([rng.choice((0.0, 1.0, rng.random())) for _ in range(_SAMPLES)])
        drawn = first + np.floor(share * np.maximum(last - first, 0) + 0.5).astype(np.int64)
        values |= {v: drawn for v in leaves if (v.op, v.arg) == (u.op, u.arg)}
        happens &= last >= first
    return values, happens
