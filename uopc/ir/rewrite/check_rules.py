"""Check rules by trying them: on small numbers, every instance must keep its value.

`check_rule` makes graphs that fit the left side of a rule (constants and bounds of all kinds),
applies the rule, and evaluates both sides over the numbers that its set claims: index -7 … 7, int8
and uint8 at their corners, bool completely, float32 at NaN, infinities, zeros, subnormals and more.
`hidden` lists rules that never fire, because an earlier rule without conditions takes all their
graphs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from uopc.ir.builder import fold
from uopc.ir.core import dtypes
from uopc.ir.core.args import ParamArg, VariableArg
from uopc.ir.core.constants import const_value
from uopc.ir.core.dtypes import DType
from uopc.ir.core.evaluate import Array, evaluate
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.records import dataclass
from uopc.ir.rewrite.pattern import Rule, UPat
from uopc.ir.rewrite.rules import BOOL, FLOAT, INDEX, WRAPPING, CompiledEntry, Entry, RuleSet

_TRIES = 240  # instances per rule and dtype
_POINTS = 1024  # the most points at which the values of one instance are compared

_TYPES = {
    INDEX: (dtypes.index,), WRAPPING: (dtypes.int8, dtypes.uint8),
    BOOL: (dtypes.bool_,), FLOAT: (dtypes.float32,),
}  # fmt: skip
_CONSTANTS: dict[DType, Sequence[Any]] = {
    dtypes.index: (-7, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7),
    dtypes.int8: (-128, -127, -64, -3, -2, -1, 0, 1, 2, 3, 4, 6, 63, 64, 126, 127),
    dtypes.uint8: (0, 1, 2, 3, 4, 6, 100, 127, 128, 254, 255),
    dtypes.bool_: (False, True),
    dtypes.float32: (-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, float("inf"), float("nan")),
}
_SPANS = ((-7, 7), (0, 7), (-7, 0), (0, 2), (3, 6), (-2, 2), (-1, 3), (1, 1))
_FLOATS = (
    float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e-40, -1e-45,
    3.4e38, -3.4e38, 1e-20, 16777216.0, 0.1, 7.7,
)  # fmt: skip


@dataclass(frozen=True)
class Refutation:
    """A graph whose value a rule changes."""

    rule: str
    before: UOp
    after: UOp
    at: dict[str, Any]
    values: tuple[Any, Any]

    def __str__(self) -> str:
        from uopc.ir.text.printer import render

        old, new = self.values
        change = f"{render(self.before)} → {render(self.after)}"
        return f"{self.rule}: {change}: {old}, {new} at {self.at}"


# ---------------------------------------------------------------- instances of patterns
class _NoInstanceError(Exception):
    """Raised if the pattern has an op that does not take the dtype."""


@dataclass
class _Maker:
    """Make graphs that fit a pattern. `base` is the dtype that the rule set computes with."""

    base: DType
    random: random.Random
    leaves: dict[UOp, Array] = field(default_factory=dict)
    named: dict[str, UOp] = field(default_factory=dict)
    # Variables that may be INVALID: it does not get into arithmetic.
    optional: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        # The dtypes that comparisons compare: in a rule set of bools, any.
        choice = [dtypes.bool_, *_CONSTANTS] if self.base is dtypes.bool_ else [self.base]
        self.compared = self.random.choice(choice)

    def make(self, p: UPat, wanted: DType) -> UOp:
        if p.name is not None and p.name in self.named:
            return self.named[p.name]
        if p.alternatives:
            made = self.make(self.random.choice(p.alternatives), wanted)
        else:
            made = self._node(p, self._dtype(p, wanted))
        if p.name is not None:
            self.named[p.name] = made
        return made

    def _dtype(self, p: UPat, wanted: DType) -> DType:
        if p.dtypes is None or wanted in p.dtypes:
            return wanted
        return self.random.choice([t for t in _CONSTANTS if t in p.dtypes] or [wanted])

    def _node(self, p: UPat, t: DType) -> UOp:
        if p.ops is None:
            none = p.name in self.optional and self.random.random() < 0.2
            return intern(Ops.INVALID, t) if none else self.leaf(t)
        ops = [o for o in sorted(p.ops, key=lambda o: o.name) if _computes(o, t)]
        if not ops:
            raise _NoInstanceError
        op = self.random.choice(ops)
        if op is Ops.CONST:
            value = self.random.choice(_CONSTANTS[t]) if p.arg is None else p.arg
            return intern(op, t, (), const_value(t, value))
        if op is Ops.INVALID:
            return intern(op, t)
        below = p.sources or tuple([UPat() for _ in range(op.arity[0])])
        wants = self._operands(op, t)
        made = tuple([self.make(s, w) for s, w in zip(below, wants)])
        if p.unordered and len(made) == 2 and op.commutes and self.random.random() < 0.5:
            made = made[::-1]
        return intern(op, fold.result_of(op, t), made)

    def _operands(self, op: Op, t: DType) -> list[DType]:
        if op is Ops.WHERE:
            return [dtypes.bool_, t, t]
        if op is Ops.CAST:
            return [self.random.choice(list(_CONSTANTS))]
        if op is Ops.BITCAST:
            return [dtypes.uint8 if t is dtypes.int8 else dtypes.int8]
        if op.dtype == "float32":
            return [dtypes.int32] * op.arity[0]
        return [self.compared if op.dtype == "bool" else t] * op.arity[0]

    def leaf(self, t: DType) -> UOp:
        """A leaf of the dtype, with all values, or (integers) with values between bounds."""
        name = f"v{len(self.leaves)}"
        low, high = self.random.choice(_SPANS)
        if t.kind == "uint":
            low, high = max(low, 0), max(high, 1)
        variable = intern(Ops.VARIABLE, dtypes.index, (), VariableArg(name, low, high))
        if t is dtypes.index or (t.is_int and self.random.random() < 0.6):
            self.leaves[variable] = np.arange(low, high + 1)
            return variable if t is dtypes.index else intern(Ops.CAST, t, (variable,))
        param = intern(Ops.PARAM, t, (), ParamArg(name, ()))
        values = _FLOATS if t.is_float else range(t.bounds[0], t.bounds[1] + 1)
        self.leaves[param] = np.array(values, t.numpy)
        return param


_LOGIC = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR, Ops.NEG))
_BITS = frozenset((Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR))


def _computes(op: Op, t: DType) -> bool:
    """True if the op accepts values of the dtype."""
    if not op.is_alu or op is Ops.WHERE or op.dtype == "bool":
        return True
    if t.is_float:
        return op not in _BITS and op is not Ops.THREEFRY
    if t is dtypes.bool_:
        return op in _LOGIC
    return op.fold is not None or (op in _BITS and t is not dtypes.index)


# ---------------------------------------------------------------- points
def points(leaves: dict[UOp, Array], rng: random.Random) -> dict[UOp, Array]:
    """Values for all leaves: every combination if there are at most `_POINTS`, else a sample."""
    sizes = [len(v) for v in leaves.values()]
    total = int(np.prod(sizes)) if sizes else 1
    if total <= _POINTS:
        grid = np.arange(total)
    else:
        grid = np.array([rng.randrange(total) for _ in range(_POINTS)])
    index = np.unravel_index(grid, sizes) if sizes else ()
    return {u: values[i] for (u, values), i in zip(leaves.items(), index)}


# ---------------------------------------------------------------- checking
def fired(rules: RuleSet, entry: Entry, rng: random.Random) -> Iterator[tuple[_Maker, UOp, UOp]]:
    """Yield (maker, graph, rewritten graph) for instances of a rule's pattern on which the rule
    fires."""
    rule = CompiledEntry(rules, entry)
    optional = frozenset(_used(entry.left, True) - _used(entry.left, False))
    types = [t for n in rules.over for t in _TYPES[n]]
    for base, left in itertools.product(types, entry.shapes or (entry.left,)):
        for _ in range(_TRIES // len(entry.shapes or (1,))):
            maker = _Maker(base, rng, optional=optional)
            try:
                before = maker.make(left, base)
            except _NoInstanceError:
                continue
            after = rule.apply(before)
            if after is not None:
                yield maker, before, after


def _used(p: UPat, chosen: bool, here: bool = False) -> set[str]:
    """The variables that are branches of a WHERE if `chosen`, else all others. `here`: True if `p`
    is a branch."""
    own = {p.name} if p.name is not None and p.ops is None and here is chosen else set()
    for i, s in enumerate(p.sources or ()):
        own |= _used(s, chosen, i > 0 and p.ops == frozenset((Ops.WHERE,)))
    return own


@dataclass(frozen=True)
class RuleResult:
    """The result of one check: the number of graphs on which the rule fired, the number of points
    at which values were compared, and a counterexample if there is one."""

    rule: str
    graphs: int
    points: int
    refutation: Refutation | None


def check_rule(rules: RuleSet, entry: Entry, seed: int = 0) -> RuleResult:
    """Try a rule of the set on instances of its pattern, up to the first refutation."""
    rng = random.Random(f"{seed}{entry.name}")
    graphs = compared = 0
    name = f"{rules.name}/{entry.name}"
    for maker, before, after in fired(rules, entry, rng):
        at = points(maker.leaves, rng)
        graphs += 1
        compared += max([len(v) for v in at.values()], default=1)
        (old, has_old), (new, has_new) = evaluate(before, at), evaluate(after, at)
        bad = _differs(old, new, before.dtype) & has_old | (has_old != has_new)
        if after.dtype is not before.dtype or bad.any():
            i = int(np.argmax(np.broadcast_to(bad, np.broadcast_shapes(bad.shape, (1,)))))
            where = {u.arg.name: v.flat[i % v.size].item() for u, v in at.items()}
            values = tuple([v.flat[i % v.size].item() for v in (old, new)])
            refutation = Refutation(name, before, after, where, values)
            return RuleResult(name, graphs, compared, refutation)
    return RuleResult(name, graphs, compared, None)


def _differs(old: Array, new: Array, t: DType) -> Array:
    if not t.is_float:
        return np.asarray(old != new)
    both_nan = np.isnan(old) & np.isnan(new)
    return np.asarray(~both_nan & ((old != new) | (np.signbit(old) != np.signbit(new))))


# ---------------------------------------------------------------- rules that never get a turn
def hidden(rules: Sequence[Rule], certain: Sequence[Rule]) -> list[tuple[Rule, Rule]]:
    """(rule, earlier rule that always takes its graphs) for the rules of one matcher.

    `certain`: the rules that always fire if they fit.
    """
    out = []
    for i, late in enumerate(rules):
        int8, rng = dtypes.int8, random.Random(0)
        examples = [_Opaque(int8, rng).make(p, int8) for p in _plain(late.pattern)]
        for early in rules[:i]:
            if early in certain and examples and all(early.pattern.match(u) for u in examples):
                out.append((late, early))
                break
    return out


def _plain(p: UPat) -> list[UPat]:
    return [q for a in p.alternatives for q in _plain(a)] if p.alternatives else [p]


class _Opaque(_Maker):
    """Make the most general node that fits: different leaves, and constants that no pattern names.
    """

    def _node(self, p: UPat, t: DType) -> UOp:
        if p.ops is not None and Ops.CONST in p.ops and p.arg is None:
            self.leaf(t)
            return intern(Ops.CONST, t, (), 100 + len(self.leaves))
        return super()._node(p, t)

    def leaf(self, t: DType) -> UOp:
        param = intern(Ops.PARAM, t, (), ParamArg(f"v{len(self.leaves)}", ()))
        self.leaves[param] = np.zeros(1)
        return param
