"""The conditions on sizes that a tensor graph relies on, read from its nodes.

A reshape of (n) to (5) relies on n = 5, a pad by m on m ≥ 0. A relation that bounds prove is no
condition. A relation that no value of the variables fulfils is a UserError. Any other relation is
checked when the variables have values, before any read or write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from uopc.errors import UserError
from uopc.ir.core import bounds, calls, dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape, show
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, closed, compare
from uopc.ir.index.dims import dim_uop

Relation = Literal["equal", "at most", "below"]


class SizeCondition(NamedTuple):
    """`left` is equal to, at most, or below `right`: index expressions over variables. `node`: the
    node that relies on the condition; `what`: its operation."""

    node: UOp
    what: str
    relation: Relation
    left: UOp
    right: UOp

    @property
    def as_bool(self) -> UOp:
        """The condition as a bool UOp."""
        if self.relation == "equal":
            return compare.equal(self.left, self.right)
        return compare.less(self.left, affine.plus(self.right, self.relation == "at most"))

    @property
    def is_proved(self) -> bool:
        """True if the condition holds for all values of the variables."""
        if self.relation == "equal":
            gap = affine.sub(self.left, self.right)
            return affine.is_const(gap) and gap.arg == 0
        return affine.at_most(affine.plus(self.left, self.relation == "below"), self.right)

    @property
    def is_impossible(self) -> bool:
        """True if bounds or divisors prove that the condition never holds."""
        constant, terms = affine.form(affine.sub(self.left, self.right))
        low, high = affine.interval(constant, terms)
        if self.relation != "equal":
            return low + (self.relation == "below") > 0
        common = math.gcd(*terms.values())
        return low > 0 or high < 0 or (constant % common if common else constant) != 0


def message(what: str, relation: Relation, sides: tuple[str, str], values: tuple[int, int]) -> str:
    """The error text for a condition that does not hold: `reshape (n) to (5): n is 3, expected 5`.
    """
    (given, wanted), (found, limit) = sides, values
    word = "" if relation == "equal" else f"{relation} "
    if given == str(found) and relation != "equal":  # 0 ≤ n: n is what was given
        given, wanted, found, limit = wanted, given, limit, found
        word = "at least " if relation == "at most" else "above "
    given = f"{given} is {found}" if given != str(found) else given
    return f"{what}: {given}, expected {word}{wanted}" + (f" = {limit}" * (wanted != str(limit)))


def text(u: UOp) -> str:
    return str(u.arg) if affine.is_const(u) else u.render()


# ---------------------------------------------------------------- of a graph
def of_graph(root: UOp) -> list[SizeCondition]:
    """The unproved conditions of a graph, of its FUNCTIONs and of its kernels.

    UserError for a condition that cannot hold.
    """
    return of_nodes(relying(root)) if _MAY_RELY & walk.ops(root) else []


def relying(root: UOp) -> list[UOp]:
    """The nodes of a graph that may rely on a condition, sources first."""
    return list(walk.order(root)) if Ops.CALL in walk.ops(root) else walk.nodes(root)


def of_nodes(nodes: Iterable[UOp], calls: bool = True) -> list[SizeCondition]:
    """The conditions of these nodes, each once. If `calls` is False, skip conditions on arguments
    of CALLs."""
    found: dict[tuple[Relation, UOp, UOp], SizeCondition] = {}
    for u in nodes:
        if u.op is Ops.CALL and not calls:
            continue
        for c in unproved(u):
            found.setdefault((c.relation, c.left, c.right), c)
    return list(found.values())


def unproved(u: UOp) -> list[SizeCondition]:
    """The unproved conditions of a node. UserError for a condition that cannot hold."""
    rule = _RULES.get(u.op)
    if rule is None:
        return list(_fits_int64(u)) if u.dtype is dtypes.index else []
    left = []
    for c in rule(u):
        if c.is_proved:
            continue
        for side in (c.left, c.right):
            if not closed.is_closed(side):
                raise UserError(
                    f"{c.what}: {text(side)} is not a size, because it is not made of"
                    f" variables{made_at(u)}"
                )
        if c.is_impossible:
            word = "" if c.relation == "equal" else f"{c.relation} "
            expected = f"{text(c.left)} must be {word}{text(c.right)}"
            raise UserError(f"{c.what}: {expected}, but never is{made_at(u)}")
        left.append(c)
    return left


def names(condition: SizeCondition) -> set[str]:
    """The names of the variables in a condition."""
    sides = condition.left, condition.right
    return {str(v.arg.name) for side in sides for v in walk.variables(side)}


def check(conditions: Iterable[SizeCondition], values: Mapping[str, int]) -> None:
    """UserError for the first condition that does not hold for these values of variables."""
    for c in conditions:
        left, right = (closed.value(closed.instructions(s), values) for s in (c.left, c.right))
        if not holds(c.relation, left, right):
            sides = text(c.left), text(c.right)
            raise UserError(message(c.what, c.relation, sides, (left, right)) + made_at(c.node))


def holds(relation: Relation, left: int, right: int) -> bool:
    """True if the relation holds between two sizes."""
    if relation == "equal":
        return left == right
    return left <= right if relation == "at most" else left < right


# ---------------------------------------------------------------- of a node
Conditions = Iterator[SizeCondition]


def _equal(u: UOp, what: str, left: Dim, right: Dim) -> SizeCondition:
    return SizeCondition(u, what, "equal", dim_uop(left), dim_uop(right))


def _at_most(u: UOp, what: str, left: Dim, right: Dim) -> SizeCondition:
    return SizeCondition(u, what, "at most", dim_uop(left), dim_uop(right))


def _is_fixed(dims: Shape) -> bool:
    return all([isinstance(d, int) for d in dims])


def _least(d: Dim) -> int:
    return d if isinstance(d, int) else bounds.bounds(d)[0]


def _counted(u: UOp) -> Conditions:
    """Require that a new dimension is not negative."""
    for d in shapes.shape(u):
        if not isinstance(d, int) or d < 0:
            yield _at_most(u, f"{u.op.name} to {show(shapes.shape(u))}", 0, d)


def _reshape(u: UOp) -> Conditions:
    old, new = shapes.shape(u.src[0]), shapes.shape(u)
    if _is_fixed(old) and _is_fixed(new):
        return
    axis = shapes.renamed_axis(old, new)
    both = shapes.size(old), shapes.size(new)
    if axis is not None and all([_least(d) > 0 for i, d in enumerate(new) if i != axis]):
        both = old[axis], new[axis]  # the shorter text; arrays of no elements have one size
    yield _equal(u, f"reshape {show(old)} to {show(new)}", *both)
    yield from _counted(u)


def _pad(u: UOp) -> Conditions:
    """Require that the source lies in the result. (A SHRINK reads zeros outside of its source.)"""
    inner, (begins, sizes) = shapes.shape(u.src[0]), shapes.window(u)
    for b, d, size in zip(begins, inner, sizes):
        if _is_fixed((b, d, size)) and 0 <= b <= b + d <= size:
            continue
        what = f"pad {show(inner)} to {show(sizes)}"
        yield _at_most(u, what, 0, b)
        yield _at_most(u, what, b + d, size)


def _bitcast(u: UOp) -> Conditions:
    dims = shapes.shape(u.src[0])
    before, after = u.src[0].dtype.itemsize, u.dtype.itemsize
    if dims and not isinstance(dims[-1], int) and before % after:
        what = f"bitcast {u.src[0].dtype.name}{show(dims)} to {u.dtype.name}"
        yield _equal(u, what, dims[-1] * before % after, 0)


def _index(u: UOp) -> Conditions:
    """Require that an index that follows from variables is in its dimension."""
    dims = shapes.shape(u.src[0])
    for axis, (i, d) in enumerate(zip(u.src[1:], dims)):
        if i.op is not Ops.INVALID and closed.is_closed(i):
            what = f"index {text(i)} of axis {axis} of {show(dims)}"
            yield _at_most(u, what, 0, i)
            yield SizeCondition(u, what, "below", i, dim_uop(d))


def _slice(u: UOp) -> Conditions:
    (begin, size), whole = u.arg, shapes.shape(u.src[0])
    what = f"slice {begin}:{begin + size} of {show(whole)}"
    yield _at_most(u, what, begin + size, shapes.size(whole))


def _call(u: UOp) -> Conditions:
    """Require that a function's argument has the PARAM's shape, and a kernel's as many elements."""
    function, args = u.src[0], u.src[1:]
    if function.op is not Ops.FUNCTION:
        yield from _launch(u)
        return
    for p in calls.params(function):
        if not p.src or not 0 <= p.arg.slot < len(args):
            continue
        wanted, given = shapes.shape(p), shapes.shape(args[p.arg.slot])
        what = f"function {function.arg.name!r}: argument {p.arg.slot} has shape {show(given)}"
        if len(wanted) != len(given):
            raise UserError(f"{what}, expected {show(wanted)}{made_at(u)}")
        for d, e in zip(wanted, given):
            yield _equal(u, what, e, d)


def _launch(u: UOp) -> Conditions:
    """Require that an argument of a kernel has all elements that the kernel may access."""
    kernel, args = u.src[0], u.src[1:]
    for p in walk.nodes(kernel):
        if p.op is not Ops.PARAM or not 0 <= p.arg.slot < len(args):
            continue
        wanted, given = shapes.shape(p), shapes.shape(args[p.arg.slot])
        if wanted != given:
            what = f"kernel: argument {p.arg.slot} of shape {show(given)} for {show(wanted)}"
            yield _at_most(u, what, shapes.size(wanted), shapes.size(given))


def _fits_int64(u: UOp) -> Conditions:
    """Require that a sum or product of variables fits 64 bits. (A node's bounds are cut to 64
    bits.)"""
    if u.op not in affine.LINEAR_OPS or u.op.bounds is None or not closed.is_closed(u):
        return
    exact = u.op.bounds(u, *[bounds.bounds(s) for s in u.src])
    least, most = dtypes.index.bounds
    if exact is not None and exact[0] < least:
        yield _at_most(u, "index of 64 bits", least, u)
    if exact is not None and exact[1] > most:
        yield _at_most(u, "index of 64 bits", u, most)


_RULES: dict[object, Callable[[UOp], Conditions]] = {
    Ops.PARAM: _counted,
    Ops.BUFFER: _counted,
    Ops.IOTA: _counted,
    Ops.EXPAND: _counted,
    Ops.RESHAPE: _reshape,
    Ops.PAD: _pad,
    Ops.SHRINK: _counted,
    Ops.BITCAST: _bitcast,
    Ops.INDEX: _index,
    Ops.SLICE: _slice,
    Ops.CALL: _call,
}
# A graph without any of these ops has nothing to check.
_MAY_RELY = frozenset((Ops.VARIABLE, Ops.INDEX, Ops.SLICE, Ops.CALL))
