"""The two walks: tangents along a graph, cotangents against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from uopc.derivatives import effects, functions, movement_rules, partials, primitives
from uopc.derivatives.rule import DerivativeRule, OfBody, Pushed, operands
from uopc.derivatives.values import Value, fit, nonzero, total
from uopc.errors import Unsupported, UserError
from uopc.ir.builder import rebuild
from uopc.ir.core import calls, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp

# No derivative flows through these, nor through comparisons, bits and integers.
ZERO = frozenset((
    Ops.DETACH, Ops.BITCAST, Ops.THREEFRY, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND, Ops.FLOORDIV,
    Ops.CDIV, Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR, Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ,
    Ops.CMPNE, Ops.DOT4, Ops.CONST, Ops.INVALID, Ops.VARIABLE, Ops.PARAM, Ops.BUFFER, Ops.DATA,
    Ops.IOTA,
))  # fmt: skip
RULES: dict[Op, DerivativeRule] = {
    **partials.PARTIALS, **movement_rules.RULES, **dict.fromkeys(ZERO, DerivativeRule()),
}  # fmt: skip
_MANY = frozenset((Ops.CALL, Ops.TUPLE))  # of several values


def rule_of(u: UOp) -> DerivativeRule:
    """The rule of a node that a derivative flows through. Unsupported if there is none."""
    if u.op is Ops.PRIMITIVE:
        return primitives.rule_of(u)
    found = RULES.get(u.op)
    if u.op is Ops.AFTER:
        raise Unsupported(f"{functions.NO_RULE}{made_at(u)}")
    if found is None:
        raise Unsupported(f"there is no derivative of {u.op.name}{made_at(u)}")
    return found


def order(outputs: Iterable[UOp], inputs: Mapping[UOp, object]) -> list[UOp]:
    """The nodes between the inputs (or leaves) and the outputs, sources first."""
    return calls.graph_order(outputs, operands, stop=inputs.__contains__)


def _flows(u: UOp) -> bool:
    return u.op in _MANY or (u.dtype.is_float and u.op not in ZERO)


# ---------------------------------------------------------------- forward
def pushed(outputs: Sequence[UOp], tangents: Mapping[UOp, Value]) -> list[Value]:
    """The tangents of outputs from the tangents of inputs, which may be any nodes."""
    outputs, inputs = effects.pure(outputs, list(tangents))
    known: dict[UOp, Value] = dict(zip(inputs, map(nonzero, tangents.values())))
    several: dict[UOp, list[Value]] = {}  # of the results of a CALL, TUPLE or joint PRIMITIVE
    nodes = order(outputs, known)
    needed = needed_of(outputs, nodes)
    first = _first_of_joint(nodes)
    for u in nodes:
        if u in known or u not in needed:
            continue
        known[u] = None
        given = [known.get(s) for s in u.src]
        if u.op is Ops.GETTUPLE:
            parts = several.get(u.src[0])
            known[u] = None if parts is None else parts[u.arg]
        elif not _flows(u) or all([t is None for t in given]):
            continue
        elif u.op is Ops.TUPLE:
            several[u] = given
        elif u.op is Ops.CALL:
            several[u] = functions.pushed(u, given[1:], pushed)
        elif u in first:
            if first[u] not in several:
                several[first[u]] = rule_of(u).push_joint(u, given)
            known[u] = nonzero(several[first[u]][_result_number(u)])
        else:
            made = nonzero(rule_of(u).push(u, given))
            known[u] = None if made is None else fit(made, shapes.shape(u))
    return [known.get(u) for u in outputs]


def needed_of(outputs: Sequence[UOp], nodes: Sequence[UOp]) -> set[UOp]:
    """The nodes whose tangents the outputs need. Nodes that only reach the outputs through
    integers, or through values without derivatives, are left out and need no rule."""
    found = set(outputs)
    for u in reversed(nodes):
        if u in found and _flows(u):
            found.update(operands(u))
    return found


# ---------------------------------------------------------------- backward
def pulled(
    outputs: Sequence[UOp], inputs: Sequence[UOp], cotangents: Sequence[Value]
) -> list[Value]:
    """The cotangents of inputs, which may be any nodes, from the cotangents of outputs."""
    outputs, inputs = effects.pure(outputs, inputs)
    leaves = dict.fromkeys(inputs)
    nodes = order(outputs, leaves)
    active = _active(nodes, leaves)
    first = _first_of_joint([u for u in nodes if u in active and u not in leaves])
    terms: dict[UOp, list[Value]] = {}
    parts: dict[UOp, dict[int, Value]] = {}  # of the results of a CALL, TUPLE or joint PRIMITIVE

    def give(u: UOp, value: Value) -> None:
        value = nonzero(value)
        if value is not None and u in active:
            terms.setdefault(u, []).append(value)

    for u, value in zip(outputs, cotangents):
        give(u, value)
    for u in reversed(nodes):
        if u in leaves or u not in active:
            continue
        value = total(terms.pop(u, ()))
        whole = u.src[0] if u.op is Ops.GETTUPLE else first.get(u)
        if whole is not None:
            if value is not None:  # a loop that is there twice has each result twice
                known = parts.setdefault(whole, {})
                known[_result_number(u)] = total([known.get(_result_number(u)), value])
            if whole is not u:
                continue
        wanted = [s in active for s in u.src]
        if u in parts:
            found = _pulled_parts(u, parts[u], wanted)
        else:
            found = [] if value is None else _pulled(u, value, wanted)
        for s, back in zip(u.src, found):
            give(s, back)
    return [total(terms.get(u, ())) for u in inputs]


def _first_of_joint(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
    """For each result of a joint PRIMITIVE, its first result in the order: a walk backwards knows
    the cotangents of all results there."""
    found: dict[UOp, UOp] = {}
    firsts: dict[Any, UOp] = {}
    for u in nodes:
        if u.op is Ops.PRIMITIVE and primitives.rule_of(u).joint:
            found[u] = firsts.setdefault((u.arg.name, u.arg.details[1:], u.src[1:]), u)
    return found


def _result_number(u: UOp) -> int:
    """The number of a node among several results."""
    return int(u.arg if u.op is Ops.GETTUPLE else u.arg.details[0])


def _active(nodes: Sequence[UOp], inputs: Mapping[UOp, object]) -> set[UOp]:
    """The nodes that depend on the inputs through floats."""
    found = set(inputs)
    for u in nodes:
        if _flows(u) and not found.isdisjoint(operands(u)):
            found.add(u)
    return found


def _transposed(u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
    """The cotangents of the operands, by transposing the tangent, which is linear in theirs."""
    seeds = [functions.seed(s) if w else None for s, w in zip(u.src, wanted)]
    tangent, name = rule_of(u).push(u, seeds), rule_of(u).by_user
    if tangent is None:
        return [None] * len(seeds)
    given = [s for s in seeds if s is not None]
    if name:
        tangent = _without_rules(tangent, given)
    found = pulled([tangent], given, [cotangent])
    if name and not set(_values(found)).isdisjoint(given):
        raise UserError(f"{name}: the rule must give a tangent that is linear in the tangents")
    left = iter(found)
    return [None if s is None else next(left) for s in seeds]


def _values(roots: Iterable[Value]) -> list[UOp]:
    """The nodes that values are computed from."""
    sources = lambda u: u.src[:1] if u.op is Ops.PRIMITIVE else calls.operands(u)  # noqa: E731
    return calls.graph_order([u for u in roots if u is not None], sources)


def _without_rules(tangent: UOp, seeds: Sequence[UOp]) -> UOp:
    """Replace calls and rules of users between the seeds and a tangent by the nodes that compute
    them. The tangent is linear there, so the transpose of these nodes is correct. A rule may apply
    its own function, and a call has arguments that the transpose does not need."""
    inside: set[UOp] = set(seeds)
    for u in calls.graph_order([tangent], calls.outside_bodies):
        if not inside.isdisjoint(calls.outside_bodies(u)):
            inside.add(u)
    inner = {s for u in inside for s in u.src if s.op is Ops.FUNCTION}
    inside.update(calls.graph_order(inner, lambda u: u.src))

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u not in inside:
            return None
        if u.op is Ops.PRIMITIVE and rule_of(u).by_user:
            return src[0]
        value = functions.inlined(src[0], u.arg) if u.op is Ops.GETTUPLE else None
        return None if value is None else _without_rules(value, seeds)

    return rebuild.rewritten(tangent, change)


def _pulled(u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
    rule = rule_of(u)
    back = _transposed if isinstance(rule, Pushed) else rule.pull
    return back(u, cotangent, wanted)


def _pulled_parts(u: UOp, parts: Mapping[int, Value], wanted: Sequence[bool]) -> list[Value]:
    if u.op is Ops.TUPLE:
        return [parts.get(i) for i in range(len(u.src))]
    if u.op is Ops.PRIMITIVE:
        return rule_of(u).pull_joint(u, parts, wanted)
    given = [parts.get(i) for i in range(len(u.src[0].src))]
    return [None, *functions.pulled(u, given, wanted[1:], pulled)]


OfBody.push_all = staticmethod(pushed)
OfBody.pull_all = staticmethod(pulled)
