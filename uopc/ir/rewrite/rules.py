"""Our own rules as data: named, two columns, with conditions, over declared numbers.

    RuleSet("divmod", over=WRAPPING, rules=[
        rule("mod-inside", x % c,         x,            when=[within(x, 0, c)]),
        rule("div-nested", (x // c) // d, x // (c * d), when=[positive(c), positive(d)]),
    ])

`x y z` match anything, `c d e` constants, and both orders of commuting operands are tried. The
right side is built through the folding builders, in the dtype of what it replaces. A rule that
needs code is a named function: `@rule_fn("split-range", pattern)`, with a docstring "before →
after"; the function returns the new node, or None.

Laws for writers of rules:
  * never to worse code; where a rule trades, say what it costs;
  * no general commutation or association: the matcher tries both orders, normal forms do the rest;
  * match shapes in the pattern, not in the function;
  * a rule is a pure function of what it matched: no context, no counters, no side effects;
  * say over which numbers it holds. `INDEX` never wraps, `WRAPPING` is arithmetic modulo 2^bits,
    `FLOAT` is IEEE with NaN, infinities and both zeros, `BOOL` is or/and/not. Every integer and
    bool rule is checked by trying it (`check_rules.py`).
"""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final

from uopc.errors import InvalidIR
from uopc.ir.builder.fold import like, make, same_kind
from uopc.ir.core import bounds, dtypes, intervals
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass
from uopc.ir.rewrite.matcher import PatternMatcher
from uopc.ir.rewrite.pattern import Rule, UPat, as_upat, caller, root_ops, variables_of


class Domain(enum.Flag):
    """The numbers that a rule set holds for: the dtypes of the values that it computes with."""

    INDEX = enum.auto()
    WRAPPING = enum.auto()
    FLOAT = enum.auto()
    BOOL = enum.auto()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the dtypes that hold such numbers."""
        return frozenset([k for n in self for k in _KINDS[n]])

    @cached_property
    def dtypes(self) -> frozenset[DType]:
        """The scalar dtypes that hold such numbers."""
        return frozenset([t for t in dtypes.ALL if t.kind in self.kinds])


INDEX, WRAPPING = Domain.INDEX, Domain.WRAPPING
FLOAT, BOOL = Domain.FLOAT, Domain.BOOL
INTEGERS: Final = INDEX | WRAPPING
ANY: Final = INTEGERS | FLOAT | BOOL
_KINDS: Final = {INDEX: ("index",), WRAPPING: ("int", "uint"), FLOAT: ("float",), BOOL: ("bool",)}


# The variables of patterns.
x, y, z = UPat.var("x"), UPat.var("y"), UPat.var("z")
c, d, e = UPat.cvar("c"), UPat.cvar("d"), UPat.cvar("e")
b, k = UPat.cvar("b"), UPat.cvar("k")
p, q = UPat.var("p", dtypes.bool_), UPat.var("q", dtypes.bool_)


def no(a: UPat) -> UPat:
    """not a"""
    return -a


# ---------------------------------------------------------------- conditions
@dataclass(frozen=True, slots=True)
class Condition:
    """A named test of matched nodes; `holds` takes the nodes that `of` names (or numbers)."""

    name: str
    of: tuple[UPat | int, ...]
    holds: Callable[..., bool]

    def __str__(self) -> str:
        shown = [o.name if isinstance(o, UPat) else str(o) for o in self.of]
        return f"{self.name}({', '.join(map(str, shown))})"


def _integer(u: UOp | int) -> int | None:
    """The value of an integer constant, None for anything else."""
    value = u if isinstance(u, int) else u.arg
    return value if type(value) is int else None


def _fits(u: UOp, value: float) -> bool:
    """True if the dtype of u represents the value."""
    low, high = intervals.of_type(u.dtype.scalar)
    return bool(low <= value <= high)


def positive(a: UPat) -> Condition:
    """a > 0, an integer constant."""
    return Condition("positive", (a,), lambda u: (_integer(u) or 0) > 0)


def nonzero(a: UPat) -> Condition:
    """a ≠ 0, an integer constant."""
    return Condition("nonzero", (a,), lambda u: bool(_integer(u)))


def divides(a: UPat, b: UPat) -> Condition:
    """b ≠ 0 is a multiple of a > 0, integer constants."""

    def holds(u: UOp, v: UOp) -> bool:
        m, n = _integer(u) or 0, _integer(v) or 0
        return m > 0 and n != 0 and n % m == 0

    return Condition("divides", (a, b), holds)


def fits_product(a: UPat, b: UPat) -> Condition:
    """a·b does not leave the dtype, integer constants."""

    def holds(u: UOp, v: UOp) -> bool:
        m, n = _integer(u), _integer(v)
        return m is not None and n is not None and _fits(u, m * n)

    return Condition("fits_product", (a, b), holds)


def congruent(a: UPat, b: UPat, n: UPat) -> Condition:
    """a − b is a multiple of n > 0, integer constants."""

    def holds(u: UOp, v: UOp, w: UOp) -> bool:
        m, o, divisor = _integer(u), _integer(v), _integer(w) or 0
        return m is not None and o is not None and divisor > 0 and (m - o) % divisor == 0

    return Condition("congruent", (a, b, n), holds)


def is_product(a: UPat, b: UPat, n: UPat) -> Condition:
    """a = b·n, integer constants."""

    def holds(u: UOp, v: UOp, w: UOp) -> bool:
        m, o, p = _integer(u), _integer(v), _integer(w)
        return m is not None and o is not None and p is not None and m == o * p

    return Condition("is_product", (a, b, n), holds)


def within(a: UPat, low: int | UPat, end: UPat) -> Condition:
    """low ≤ a < end by the bounds of the integer a."""

    def holds(u: UOp, first: UOp | int, last: UOp | int) -> bool:
        m, n = _integer(first), _integer(last)
        if m is None or n is None:
            return False
        least, most = bounds.bounds(u)
        return bool(m <= least and most < n)

    return Condition("within", (a, low, end), holds)


def at_least(a: UPat, b: UPat | int) -> Condition:
    """a ≥ b by their bounds; integers."""

    def holds(u: UOp, v: UOp | int) -> bool:
        bound = v if isinstance(v, int) else bounds.bounds(v)[1]
        return bool(bounds.bounds(u)[0] >= bound)

    return Condition("at_least", (a, b), holds)


def negatable(a: UPat) -> Condition:
    """−a does not leave the dtype, an integer constant."""

    def holds(u: UOp) -> bool:
        value = _integer(u)
        return value is not None and _fits(u, -value)

    return Condition("negatable", (a,), holds)


def has_value(a: UPat) -> Condition:
    """a is not INVALID."""
    return Condition("has_value", (a,), lambda u: u.op is not Ops.INVALID)


def exact(op: Op, u: UOp, v: UOp) -> bool:
    """True if u op v cannot leave the dtype of u (op: add, sub or mul)."""
    assert op.fold is not None
    corners = [op.fold(m, n) for m in bounds.bounds(u) for n in bounds.bounds(v)]
    return u.dtype.scalar is dtypes.index or all([_fits(u, n) for n in corners])


def exact_sum(a: UPat, b: UPat) -> Condition:
    """a + b does not leave the dtype, by their bounds."""
    return Condition("exact_sum", (a, b), functools.partial(exact, Ops.ADD))


def exact_product(a: UPat, b: UPat) -> Condition:
    """a·b does not leave the dtype, by their bounds."""
    return Condition("exact_product", (a, b), functools.partial(exact, Ops.MUL))


def exact_terms(*products: tuple[UPat | int, ...]) -> Condition:
    """Σ a·b… and each part of the sum do not leave the dtype, by the bounds of the factors."""
    lengths = [len(p) for p in products]

    def holds(*factors: UOp | int) -> bool:
        of, rest = next(f for f in factors if isinstance(f, UOp)), iter(factors)
        low, high = 0.0, 0.0
        for n in lengths:
            least, most = 1.0, 1.0
            for f in itertools.islice(rest, n):
                ends = (f, f) if isinstance(f, int) else bounds.bounds(f)
                corners = [s * t for s in (least, most) for t in ends]
                least, most = min(corners), max(corners)
                if not (_fits(of, least) and _fits(of, most)):
                    return False
            low, high = low + least, high + most
            if not (_fits(of, low) and _fits(of, high)):
                return False
        return True

    return Condition("exact_terms", tuple([f for p in products for f in p]), holds)


# ---------------------------------------------------------------- rules
@dataclass(frozen=True)
class Entry:
    """A rule as written: left side, right side or function, conditions, and source line.

    `shapes`: patterns of graphs for trials of a function, if its own pattern is too general.
    """

    name: str
    left: UPat
    right: UPat | None
    when: tuple[Condition, ...]
    function: Callable[..., UOp | None] | None
    location: tuple[str, int]
    shapes: tuple[UPat, ...] = ()

    @property
    def certain(self) -> bool:
        """True if the rule fires whenever its pattern fits."""
        return self.right is not None and not self.when


def rule(name: str, left: UPat, right: Any, when: Iterable[Condition] = ()) -> Entry:
    """left → right, where all conditions hold."""
    return Entry(name, left, as_upat(right), tuple(when), None, caller())


def rule_fn(
    name: str, left: UPat, tried_on: Iterable[UPat] = ()
) -> Callable[[Callable[..., UOp | None]], Entry]:
    """Make a rule with a function of the pattern's names as its right side."""
    location = caller()

    def entry(function: Callable[..., UOp | None]) -> Entry:
        return Entry(name, left, None, (), function, location, tuple(tried_on))

    return entry


class RuleSet:
    """Named rules that hold for the same numbers, tried in order."""

    def __init__(self, name: str, over: Domain, rules: Iterable[Entry]) -> None:
        self.name, self.over, self.entries = name, over, tuple(rules)
        if len({r.name for r in self.entries}) != len(self.entries):
            raise InvalidIR(f"rule set {name}: two rules have one name")
        self.rules: tuple[Rule, ...] = tuple([CompiledEntry(self, r) for r in self.entries])


def matcher(*sets: RuleSet) -> PatternMatcher:
    """One matcher for some rule sets, in the order given."""
    return PatternMatcher([r for s in sets for r in s.rules])


# ---------------------------------------------------------------- compiling entries
class CompiledEntry(Rule):
    """An entry as a rule for a matcher: the pattern restricted to the set's numbers, the right side
    as code. Both are made when a matcher first tries the rule: a process tries few."""

    __slots__ = ("_entry", "_owner")

    def __init__(self, owner: RuleSet, entry: Entry) -> None:
        self._owner, self._entry = owner, entry
        self.name, self.location = f"{owner.name}/{entry.name}", entry.location
        self.roots = root_ops(entry.left)

    def __getattr__(self, name: str) -> Any:
        if name not in Rule.__slots__:
            raise AttributeError(name)
        entry = self._entry
        pattern = typed(entry.left, self._owner.over)
        function = entry.function
        if function is None:
            pattern = pattern if pattern.name is not None else pattern.named("u")
            function = _function(entry, pattern)
        Rule.__init__(self, pattern, function, self.name, self.location)
        return getattr(self, name)


def typed(left: UPat, over: Domain) -> UPat:
    """The pattern, restricted to nodes that compute with numbers of `over`."""
    if over == ANY:
        return left
    compares = left.ops is not None and all(o.dtype == "bool" for o in left.ops)
    if not compares:
        return left.restricted(over.dtypes)
    assert left.sources is not None
    first, *others = left.sources
    return left.changed(sources=(first.restricted(over.dtypes), *others))


def _function(entry: Entry, root: UPat) -> Callable[..., UOp | None]:
    """`entry` as Python: test the conditions, then build the right side."""
    assert entry.right is not None
    scope: dict[str, Any] = {"make": make, "like": like, "same_kind": same_kind}
    names, right = variables_of(root), variables_of(entry.right)
    lines = [f"def apply({', '.join(names)}):"]
    for i, w in enumerate(entry.when):
        scope[f"holds{i}"] = w.holds
        given = [str(o.name) if isinstance(o, UPat) else str(o) for o in w.of]
        lines.append(f"  if not holds{i}({', '.join(given)}): return None")
    made = _expression(entry.right, str(root.name), scope)
    constant = frozenset((Ops.CONST, Ops.INVALID))
    values = {n for n, v in names.items() if v.ops is None or not v.ops <= constant}
    dropped = values - right.keys() - {root.name}
    lines.append(f"  return same_kind({root.name}, {made})" if dropped else f"  return {made}")
    exec(compile("\n".join(lines), f"<rule {entry.name}>", "exec"), scope)
    function: Callable[..., UOp | None] = scope["apply"]
    return function


def _expression(p: UPat, root: str, scope: dict[str, Any], top: bool = True) -> str:
    """Python that builds the right side of a rule."""
    if p.name is not None:
        return p.name
    assert p.ops is not None and len(p.ops) == 1
    (op,) = p.ops
    if op is Ops.CONST:
        return f"like({root}, {p.arg!r})" if top else repr(p.arg)
    scope[op.name + "_op"] = op
    below = [_expression(s, root, scope, False) for s in p.sources or ()]
    return f"make({op.name}_op, {', '.join(below)})"


# ---------------------------------------------------------------- printing
def show(p: UPat) -> str:
    """A pattern as an infix expression."""
    if p.name is not None and p.sources is None:
        return p.name
    if p.ops is None or len(p.ops) != 1:
        return repr(p)
    (op,) = p.ops
    if op is Ops.CONST:
        return repr(p.arg)
    below = [show(s) for s in p.sources or ()]
    if op.symbol is not None and len(below) == 2:
        return f"({below[0]} {op.symbol} {below[1]})"
    return f"{op.name}({', '.join(below)})"
