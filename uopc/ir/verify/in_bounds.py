"""Check that every access to storage of known size stays inside of it, under its guards.

The bounds of an index under its guards may prove that the access is inside. Else the check tries
values of loops and variables: all of them if they are few, which is a proof too, else mostly the
least and greatest. Each access is *inside* (proved), *outside* (with values at which it happens) or
*not proved*, such as an index that is loaded from memory.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.errors import InvalidIR
from uopc.ir.builder import index_maps, leaves
from uopc.ir.builder.rebuild import remake
from uopc.ir.core import bounds, dtypes, ranges, shapes, walk
from uopc.ir.core.calls import operands, order
from uopc.ir.core.evaluate import Array, evaluate
from uopc.ir.core.levels import SCALAR, Level
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.symbolic import assume, conditions, simplify
from uopc.ir.symbolic.conditions import Limits
from uopc.ir.verify import verifier
from uopc.ir.verify.nodes import describe, origin

_POINTS = 512  # points that are tried
_EVERY = 4096  # up to so many points all are tried


class Verdict(enum.Enum):
    """The result for one access."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    NOT_PROVED = "not proved"


@dataclass(frozen=True, slots=True)
class Access:
    """One index of one access: `index` into `size` elements of `address`'s storage by `user`.

    `low` and `high` are the proved bounds of the index; at the values `at` it is outside.
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


def verify_with_bounds(graph: UOp, level: Level, stage: str = "") -> None:
    """`verify`; then, for a kernel, `verify_bounds`."""
    verifier.verify(graph, level, stage)
    if level & SCALAR:
        verify_bounds(graph, stage)


def verify_bounds(graph: UOp, stage: str = "") -> list[Access]:
    """The accesses of a kernel (level indexed to linear) that are not proved.

    InvalidIR if one is outside, with its index, the bounds of the index and the storage's size.
    """
    left = []
    for access in accesses(graph):
        if access.verdict is Verdict.OUTSIDE:
            where = f"{stage}: " if stage else ""
            line = describe(access.user, graph)
            raise InvalidIR(f"{where}invariant in-bounds: {access}\n  {line}{origin(access.user)}")
        if access.verdict is Verdict.NOT_PROVED:
            left.append(access)
    return left


def accesses(graph: UOp) -> Iterator[Access]:
    """Every index of every access to a PARAM, BUFFER or DATA, with its verdict."""
    nodes = order([graph])
    known: dict[tuple[UOp, UOp | None], list[Access]] = {}
    for user, address, gate in _uses(nodes):
        key = address, gate
        if key not in known:
            known[key] = list(_checked(user, address, gate))
            yield from known[key]


def _uses(nodes: list[UOp]) -> Iterator[tuple[UOp, UOp, UOp | None]]:
    """(user, INDEX of storage, gate) for every access."""
    conditions: list[UOp] = []  # of the IFs around a statement of a list
    for u in nodes:
        if u.op is Ops.IF:
            conditions.append(u.src[0])
        elif u.op is Ops.ENDIF:
            conditions.pop()
        for i, s in enumerate(operands(u)):
            if s.op is not Ops.INDEX or shapes.shape(s) != ():
                continue
            if not before_effects(s.src[0]).op.is_storage:
                continue
            if u.op.is_access and i == 0:
                first = {Ops.LOAD: 1, Ops.STORE: 2}.get(u.op, len(u.src))
                gates = [*conditions, *u.src[first:]]
                if u.op is Ops.STORE:  # a value that is INVALID is not written
                    valid = index_maps.ungated(u.src[1])[1]
                    gates += [] if valid is None else [valid]
                yield u, s, _all(gates)
            elif u.op not in _LISTS:
                yield s, s, None


# Ops that name an address and read nothing.
_LISTS = frozenset((Ops.LINEAR, Ops.AFTER))


def _all(guards: list[UOp]) -> UOp | None:
    return conditions.junction(Ops.AND, guards) if guards else None


def _checked(user: UOp, address: UOp, gate: UOp | None) -> Iterator[Access]:
    dims = shapes.shape(before_effects(address.src[0]))
    index = list(address.src[1:])
    if len(index) == 1 and len(dims) > 1:  # flat
        dims = (shapes.size(dims),)
    guards = [] if gate is None else [gate]
    for i, x in enumerate(index):
        index[i], guard = index_maps.ungated(x)
        guards += [] if guard is None else [guard]
    if any([x.op is Ops.INVALID for x in index]):
        return
    lanes = address.dtype.lanes
    if len(index) == 1 and lanes > address.src[1].dtype.lanes:  # neighbours from the first on
        lane = intern(Ops.LANES, dtypes.index.vec(lanes), (), lanes)
        index[0] = affine.add(simplify.simplify(index[0]), lane)
    guard = _all(guards)
    for x, size in zip(index, dims):
        yield _judged(user, address, x, size, guard)


def _judged(user: UOp, address: UOp, x: UOp, size: Dim, guard: UOp | None) -> Access:
    plain = simplify.simplify(_as_arithmetic(x))
    condition = None if guard is None else simplify.simplify(_as_arithmetic(guard))
    if condition is not None and _is_never(condition):
        return Access(user, address, x, size, 0, -1, Verdict.INSIDE, {})
    limits = limits_under(condition)
    loops = sorted(ranges.ranges(user), key=affine.order)
    for r in loops:
        _add_loop(limits, r)
    for u in order([plain]):
        if u.op is Ops.CAST and u.dtype.kind == "index" and u.src[0] in limits:
            limits[u] = limits[u.src[0]]  # no integer is too large for dtype index
    low, high = bounds_under(plain, limits)
    if any([bounds.bounds(r.src[0])[1] <= 0 for r in loops]):
        return Access(user, address, x, size, low, high, Verdict.INSIDE, {})  # in no iteration
    if low >= 0 and _below(plain, high, size, limits):
        return Access(user, address, x, size, low, high, Verdict.INSIDE, {})
    verdict, at = _tried(plain, size, condition, loops)
    return Access(user, address, x, size, low, high, verdict, at)


def _is_never(condition: UOp) -> bool:
    """True for a constant guard that holds in no lane."""
    lanes = condition.arg if type(condition.arg) is tuple else (condition.arg,)
    return condition.op is Ops.CONST and not any(lanes)


def _below(x: UOp, high: int, size: Dim, limits: Limits) -> bool:
    """x < size, where x ≤ high."""
    if isinstance(size, int):
        return high < size
    last = affine.plus(leaves.dim_uop(size), -1)
    if high <= bounds.bounds(last)[0] or x.dtype.kind != "index":
        return bool(high <= bounds.bounds(last)[0])
    return affine.at_most(x, last) or bounds_under(affine.sub(x, last), limits)[1] <= 0


# ---------------------------------------------------------------- guards
def limits_under(condition: UOp | None) -> Limits:
    """The limits that a condition sets for the integers in it."""
    parts = [] if condition is None else conditions.clauses_of(condition)
    limits = conditions.limits_of(parts)
    for part in parts:
        if part.op not in (Ops.CMPEQ, Ops.CMPNE) or not affine.is_const(part.src[1]):
            continue
        (u, c), (low, high) = part.src, bounds.bounds(part.src[0])
        if not u.dtype.is_integral:
            continue
        first, last = limits.get(u, (None, None))
        if part.op is Ops.CMPEQ:
            limits[u] = c.arg, c.arg
        elif c.arg == (low if first is None else max(low, first)):
            limits[u] = c.arg + 1, last
        elif c.arg == (high if last is None else min(high, last)):
            limits[u] = first, c.arg - 1
    return limits


def _add_loop(limits: Limits, r: UOp) -> None:
    """Add r < end, for each operand of the end that is a minimum. Numbers are known already."""
    for end in conditions.clauses_of(simplify.simplify(r.src[0]), Ops.MIN):
        if affine.is_const(end):
            continue
        facts = [(r, end)]
        constant, terms = affine.form(end)
        (m, k), *more = terms.items()
        n = m.src[1] if m.op is Ops.FLOORDIV else end
        if not more and k == 1 and affine.is_const(n) and n.arg > 0:
            most = affine.scaled(affine.plus(r, 1 - constant), n.arg)
            facts.append((most, affine.plus(m.src[0], 1)))  # r < e//n + c ⇔ n·(r − c + 1) ≤ e
        for pair in facts:
            bound = conditions.bound_of(intern(Ops.CMPLT, dtypes.bool_, pair))
            if bound is not None:
                limits[bound[0]] = conditions.meet(limits.get(bound[0], (None, None)), bound[1])


def bounds_under(x: UOp, limits: Limits) -> tuple[int, int]:
    """Bounds of an integer whose parts are within limits.

    The limited parts are replaced by variables with these bounds: the atoms and one sum at a time.
    """
    low, high = conditions.within(bounds.bounds(x), limits.get(x, (None, None)))
    if x.dtype.kind != "index":
        return low, high
    named = {u: _variable(u, limit) for u, limit in limits.items() if u.dtype.kind == "index"}
    atoms = {u: v for u, v in named.items() if u.op is not Ops.ADD}
    sums = [dict([assume.solved(u, v)]) for u, v in named.items() if u.op is Ops.ADD]
    for total in ({}, *sums):
        found = simplify.replaced(simplify.replaced(x, total, assume.AS_IS), atoms, assume.AS_IS)
        for a, b in (affine.interval(*affine.form(found)), bounds.bounds(found)):
            low, high = max(low, a), min(high, b)
    return low, high


def _variable(u: UOp, limit: conditions.Interval) -> UOp:
    low, high = conditions.within(affine.interval(*affine.form(u)), limit)
    return assume.variable(u, low, max(low, high))  # low > high where the guard never holds


def _as_arithmetic(root: UOp) -> UOp:
    """Shifts and masks of indices as products, quotients and remainders."""
    done: dict[UOp, UOp] = {}
    for u in walk.toposort(root):
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


# ---------------------------------------------------------------- places outside
_LEAVES = frozenset((Ops.RANGE, Ops.VARIABLE, Ops.SPECIAL, Ops.LANES))


def _tried(
    x: UOp, size: Dim, condition: UOp | None, loops: list[UOp]
) -> tuple[Verdict, dict[str, int]]:
    """The verdict from values of loops and variables, and values at which the access is outside."""
    end = leaves.dim_uop(size)
    roots = [x, end, *([] if condition is None else [condition]), *loops]
    below = order(roots)
    if not all([_is_known(u) for u in below]):
        return Verdict.NOT_PROVED, {}
    # A loop whose end was simplified in one place is still one loop.
    same: dict[object, UOp] = {}
    free = [u for u in below if u.op in _LEAVES and same.setdefault((u.op, u.arg), u) is u]
    every = _all_places(free)
    values, happens = every or _some_places(free)
    values |= {u: values[same[u.op, u.arg]] for u in below if u.op in _LEAVES}
    value, last = (evaluate(u, values)[0] for u in (x, end))
    if condition is not None:
        happens = happens & evaluate(condition, values)[0]
    found = np.flatnonzero(happens & ((value < 0) | (value >= last)))
    if not len(found):
        return (Verdict.NOT_PROVED if every is None else Verdict.INSIDE), {}
    from uopc.ir.text.infix import infix

    at = {infix(u) or u.op.name: int(values[u][found[0]]) for u in free}
    return Verdict.OUTSIDE, at


Places = tuple[dict["UOp", Array], Array]  # values, and where all loops run


def _all_places(free: list[UOp]) -> Places | None:
    """All combinations; None if they are too many, or a loop's length depends on others."""
    known = all([u.op is not Ops.RANGE or affine.is_const(u.src[0]) for u in free])
    spans = [range(low, high + 1) for low, high in map(bounds.bounds, free)]
    count = math.prod([len(s) for s in spans])
    if not free or not known or count > _EVERY:
        return None
    grids = np.meshgrid(*spans, indexing="ij")
    return {u: g.ravel() for u, g in zip(free, grids)}, np.ones(count, np.bool_)


def _some_places(free: list[UOp]) -> Places:
    values: dict[UOp, Array] = {}
    happens = np.ones(_POINTS, np.bool_)
    rng = random.Random(0)
    for u in free:
        values[u], runs = _drawn(u, values, rng)
        happens &= runs
    return values, happens


def _is_known(u: UOp) -> bool:
    """True if the value follows from loops and variables alone."""
    if u.op is Ops.CONST:
        return type(u.arg) is not tuple  # a lane of it follows from the lane
    return u.op in _LEAVES or u.op is Ops.CAST or u.op.is_alu


def _drawn(u: UOp, values: dict[UOp, Array], rng: random.Random) -> tuple[Array, Array]:
    """Values of a loop or variable, mostly least and greatest; and where the loop runs at all."""
    if u.op is Ops.VARIABLE or u.op is Ops.LANES:
        low, high = bounds.bounds(u)
        first, last = np.full(_POINTS, low), np.full(_POINTS, high)
    else:
        end = np.broadcast_to(evaluate(u.src[0], values)[0], (_POINTS,))
        first, last = np.zeros(_POINTS, np.int64), end - 1
    part = np.array([rng.choice((0.0, 1.0, rng.random())) for _ in range(_POINTS)])
    drawn = first + np.floor(part * np.maximum(last - first, 0) + 0.5).astype(np.int64)
    return drawn, last >= first
