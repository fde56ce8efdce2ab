"""Patterns compiled to Python: one function per root op tries all rules for that op.

A pattern with alternatives or unordered sources stands for several plain patterns. Each plain
pattern becomes lines of code that read the sources or test something. Consecutive rules share equal
first lines, so a matcher is a decision tree that keeps the order of the rules:

    u_0, u_1 = u.src; u_0o = u_0.op; u_1o = u_1.op
    if u_1o is k0:                     # CONST
        if u_1.arg == k1:              # 0
            r = f0(u_0)                # (x + 0, x)
            if r is not None and r is not u: return r, r0
        if u_0o is k2: ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op
from uopc.ir.records import dataclass
from uopc.ir.rewrite.pattern import MatchFunction, Rule, UPat, variables_of

# A rule with more plain patterns than this is matched by the interpreter instead.
_MOST_PLAIN = 64


@dataclass(frozen=True, slots=True)
class _Plain:
    """A pattern without choices: the checks of a node, and its sources."""

    checks: tuple[UPat, ...]
    sources: tuple[_Plain, ...] | None = None
    longer: bool = False
    every: UPat | None = None


class _TooManyError(Exception):
    """Raised for a pattern with too many plain patterns, which is better interpreted."""


def _plain(p: UPat) -> Iterator[_Plain]:
    """The plain patterns that `p` stands for, in the order of trial."""
    if p.alternatives:
        for a in p.alternatives:
            for below in _plain(a):
                yield replace(below, checks=(p, *below.checks))
    elif p.every is not None:
        if variables_of(p.every):
            raise _TooManyError
        yield _Plain((p,), every=p.every)
    elif p.sources is None:
        yield _Plain((p,))
    else:
        for patterns in p.orders(len(p.sources)):
            for sources in itertools.product(*[list(_plain(s)) for s in patterns]):
                yield _Plain((p,), sources, p.longer)


class _NamedConstants:
    """The values that generated code refers to, by name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._names: dict[Any, str] = {}

    def name(self, value: Any) -> str:
        try:
            key: Any = (type(value), value, repr(value) if type(value) is float else None)
            hash(key)
        except TypeError:
            key = id(value)
        if key not in self._names:
            self._names[key] = f"k{len(self.values)}"
            self.values[self._names[key]] = value
        return self._names[key]


class _ImpossibleError(Exception):
    """Raised if no node of this op fits the pattern."""


class _MatcherCode:
    """The lines that match a plain pattern, and the variables bound to its names."""

    def __init__(self, constants: _NamedConstants, root: Op, plain: _Plain) -> None:
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self._constant, self._root = constants.name, root
        # Breadth first, so that cheap tests near the root come before deep ones.
        queue = [(plain, "u", self._open(plain, "u"))]
        self._check(plain, "u")
        for node, _, variables in queue:
            below = list(zip(node.sources or (), variables))
            for source, var in below:
                ops = self._ops_of(source, var)
                if ops is not None:
                    known = self._constant(next(iter(ops)) if len(ops) == 1 else ops)
                    self._test(f"{var}o {'is' if len(ops) == 1 else 'in'} {known}")
            for source, var in below:
                self._check(source, var)
                queue.append((source, var, self._open(source, var)))

    def _test(self, condition: str) -> None:
        self.lines.append(f"if {condition}:")

    def _check(self, node: _Plain, var: str) -> None:
        for p in node.checks:
            if p.ops is not None and var == "u" and self._root not in p.ops:
                raise _ImpossibleError
            if p.name is not None and self.names.setdefault(p.name, var) != var:
                self._test(f"{var} is {self.names[p.name]}")
            if p.dtypes is not None:
                self._check_dtype(p.dtypes, var)
            if p.arg is not None:
                nan = p.arg != p.arg
                self._test(f"{var}.arg {f'!= {var}.arg' if nan else f'== {self._constant(p.arg)}'}")
            if p.checks_tag:
                self._test(f"{var}.tag == {self._constant(p.tag)}")
        if node.every is not None:
            self._check_every(node.every, var)

    def _check_dtype(self, wanted: frozenset[DType], var: str) -> None:
        known = self._constant(wanted)
        if any(t.lanes > 1 for t in wanted):
            self._test(f"{var}.dtype in {known} or {var}.dtype.scalar in {known}")
        elif len(wanted) == 1:
            self._test(f"{var}.dtype.scalar is {self._constant(next(iter(wanted)))}")
        else:
            self._test(f"{var}.dtype.scalar in {known}")

    def _check_every(self, p: UPat, var: str) -> None:
        plain_op = p.ops is not None and p.sources is None and p.every is None
        if plain_op and not (p.alternatives or p.dtypes or p.arg is not None or p.checks_tag):
            self._test(f"all([s.op in {self._constant(p.ops)} for s in {var}.src])")
        else:
            self._test(f"all([{self._constant(p.match)}(s) for s in {var}.src])")

    def _ops_of(self, node: _Plain, var: str) -> frozenset[Op] | None:
        if var == "u":
            return frozenset((self._root,))
        known = [p.ops for p in node.checks if p.ops is not None]
        return frozenset.intersection(*known) if known else None

    def _open(self, node: _Plain, var: str) -> list[str]:
        """Check the number of sources and assign them to variables."""
        if node.sources is None:
            return []
        count = len(node.sources)
        arities = {o.arity for o in self._ops_of(node, var) or ()}
        fitting = [
            (low, high) for low, high in arities
            if low != high or low == count or (node.longer and low > count)
        ]  # fmt: skip
        if arities and not fitting:
            raise _ImpossibleError
        if arities != {(count, count)}:
            self._test(f"len({var}.src) {'>=' if node.longer else '=='} {count}")
        names = [f"{var}_{i}" for i in range(count)]
        if names:
            exact = not node.longer or arities == {(count, count)}
            sources = f"{var}.src" if exact else f"{var}.src[:{count}]"
            assigned = f"{', '.join(names)}{',' if count == 1 else ''} = {sources}"
            self.lines.append("; ".join([assigned, *[f"{n}o = {n}.op" for n in names]]))
        return names


# A decision tree: (line, what follows it); a leaf is the call of a rule.
_Tree = list[tuple[str, "_Tree"]]


def _insert(tree: _Tree, lines: Sequence[str], leaf: str) -> None:
    """Add a path after all other paths; share its first lines with the last path if equal."""
    for line in lines:
        if not tree or tree[-1][0] != line:
            tree.append((line, []))
        tree = tree[-1][1]
    tree.append((leaf, []))


def _write(tree: _Tree, indent: str, out: list[str]) -> None:
    for text, below in tree:
        out.extend(indent + line for line in text.split("\n"))
        _write(below, indent + "  " if text.endswith(":") else indent, out)


def _call(rule: Rule, names: dict[str, str], constants: _NamedConstants) -> str:
    function, known = constants.name(rule.function), constants.name(rule)
    bound = names | ({"ctx": "ctx"} if rule.wants_ctx else {})
    order = rule.parameters
    if order is not None and not rule.by_keyword and all(n in bound for n in order):
        given = ", ".join([bound[n] for n in order])
    else:
        given = ", ".join([f"{n}={v}" for n, v in bound.items()])
    return f"r = {function}({given})\nif r is not None and r is not u: return r, {known}"


def _add_rule(tree: _Tree, rule: Rule, op: Op, constants: _NamedConstants) -> None:
    try:
        plains = list(itertools.islice(_plain(rule.pattern), _MOST_PLAIN + 1))
        if len(plains) > _MOST_PLAIN:
            raise _TooManyError
    except _TooManyError:
        known = constants.name(rule)
        _insert(tree, (), f"r = {known}.apply(u, ctx)\nif r is not None: return r, {known}")
        return
    for plain in plains:
        try:
            code = _MatcherCode(constants, op, plain)
        except _ImpossibleError:
            continue
        rule.check_names(code.names)
        _insert(tree, code.lines, _call(rule, code.names, constants))


def source_of(rules: Sequence[Rule], op: Op) -> tuple[str, dict[str, Any]]:
    """The text of the function for `op`, and the values that the text refers to."""
    constants, tree = _NamedConstants(), list[tuple[str, Any]]()
    for rule in rules:
        _add_rule(tree, rule, op, constants)
    lines = ["def match(u, ctx):"]
    _write(tree, "  ", lines)
    lines.append("  return None")
    return "\n".join(lines), constants.values


def compile_rules(rules: Sequence[Rule], op: Op) -> MatchFunction:
    """`match(u, ctx)`: (replacement, rule) by the first rule with a replacement, or None."""
    text, values = source_of(rules, op)
    scope = dict(values)
    exec(compile(text, f"<rules for {op.name}>", "exec"), scope)
    return scope["match"]  # type: ignore[no-any-return]
