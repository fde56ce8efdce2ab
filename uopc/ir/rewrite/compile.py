"""Patterns compiled to Python: one function per root op tries all rules for that op.

A pattern with alternatives or unordered sources stands for several plain ones. Each plain pattern
is a list of steps (look at the sources, test something); rules in a row that begin with the same
steps share them, so that a matcher is a decision tree which keeps the order of the rules:

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
from dataclasses import dataclass, replace
from typing import Any

from uopc.ir.core.ops import Op
from uopc.ir.rewrite.pattern import MatchFunction, Rule, UPat

# A rule with more plain patterns than this is matched by the interpreter instead.
_MOST_PLAIN = 64


@dataclass(frozen=True, slots=True)
class _Plain:
    """A pattern without choices: what to check at a node, and its sources."""

    checks: tuple[UPat, ...]
    sources: tuple[_Plain, ...] | None = None
    longer: bool = False
    every: UPat | None = None


class _TooManyError(Exception):
    """The pattern is better interpreted."""


def _plain(p: UPat) -> Iterator[_Plain]:
    """The plain patterns `p` stands for, in the order in which they are tried."""
    if p.alternatives:
        for a in p.alternatives:
            for below in _plain(a):
                yield replace(below, checks=(p, *below.checks))
        return
    if p.every is not None:
        if _binds(p.every):
            raise _TooManyError
        yield _Plain((p,), every=p.every)
        return
    if p.sources is None:
        yield _Plain((p,))
        return
    for patterns in p.orders(len(p.sources)):
        for sources in itertools.product(*[list(_plain(s)) for s in patterns]):
            yield _Plain((p,), sources, p.longer)


def _binds(p: UPat) -> bool:
    below = (*p.alternatives, *(p.sources or ()), *(() if p.every is None else (p.every,)))
    return p.name is not None or any(_binds(b) for b in below)


class _Constants:
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


class _Impossible(Exception):
    """No node of this op fits the pattern."""


class _Steps:
    """The steps of one plain pattern, and what its names are bound to."""

    def __init__(self, constants: _Constants, root: Op) -> None:
        self.constants = constants
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self._root = root

    def collect(self, plain: _Plain) -> None:
        """Breadth first, so that cheap tests near the root come before deep ones."""
        names = self._open(plain, "u")
        self._check(plain, "u")
        queue = [(plain, "u", names)]
        for node, _, names in queue:
            for source, name in zip(node.sources or (), names):
                self._check_op(source, name)
            for source, name in zip(node.sources or (), names):
                self._check(source, name)
                queue.append((source, name, self._open(source, name)))

    def _test(self, condition: str) -> None:
        self.lines.append(f"if {condition}:")

    def _check(self, node: _Plain, var: str) -> None:
        for p in node.checks:
            if p.ops is not None and var == "u" and self._root not in p.ops:
                raise _Impossible
            if p.name is not None and self.names.setdefault(p.name, var) != var:
                self._test(f"{var} is {self.names[p.name]}")
            if p.dtypes is not None:
                self._dtype(p, var)
            if p.arg is not None:
                self._arg(p.arg, var)
            if p.checks_tag:
                self._test(f"{var}.tag == {self.constants.name(p.tag)}")
        if node.every is not None:
            self._every(node.every, var)

    def _dtype(self, p: UPat, var: str) -> None:
        assert p.dtypes is not None
        known = self.constants.name(p.dtypes)
        if any(t.lanes > 1 for t in p.dtypes):
            self._test(f"{var}.dtype in {known} or {var}.dtype.scalar in {known}")
        elif len(p.dtypes) == 1:
            self._test(f"{var}.dtype.scalar is {self.constants.name(next(iter(p.dtypes)))}")
        else:
            self._test(f"{var}.dtype.scalar in {known}")

    def _arg(self, arg: Any, var: str) -> None:
        if arg != arg:
            self._test(f"{var}.arg != {var}.arg")
        else:
            self._test(f"{var}.arg == {self.constants.name(arg)}")

    def _ops_of(self, node: _Plain, var: str) -> frozenset[Op] | None:
        if var == "u":
            return frozenset((self._root,))
        known = [p.ops for p in node.checks if p.ops is not None]
        return frozenset.intersection(*known) if known else None

    def _open(self, node: _Plain, var: str) -> list[str]:
        """Check the number of sources and name them."""
        if node.sources is None:
            return []
        count = len(node.sources)
        arities = {o.arity for o in self._ops_of(node, var) or ()}
        fixed = [low for low, high in arities if low == high]
        if fixed and len(fixed) == len(arities) and not _fitting(fixed, count, node.longer):
            raise _Impossible
        if arities != {(count, count)}:
            self._test(f"len({var}.src) {'>=' if node.longer else '=='} {count}")
        names = [f"{var}_{i}" for i in range(count)]
        if names:
            exact = not node.longer or arities == {(count, count)}
            taken = f"{var}.src" if exact else f"{var}.src[:{count}]"
            lets = [f"{', '.join(names)}{',' if count == 1 else ''} = {taken}"]
            self.lines.append("; ".join(lets + [f"{n}o = {n}.op" for n in names]))
        return names

    def _check_op(self, node: _Plain, var: str) -> None:
        ops = self._ops_of(node, var)
        if ops is not None and len(ops) == 1:
            self._test(f"{var}o is {self.constants.name(next(iter(ops)))}")
        elif ops is not None:
            self._test(f"{var}o in {self.constants.name(ops)}")

    def _every(self, p: UPat, var: str) -> None:
        plain_op = p.ops is not None and p.sources is None and p.every is None
        if plain_op and not (p.alternatives or p.dtypes or p.arg is not None or p.checks_tag):
            self._test(f"all([s.op in {self.constants.name(p.ops)} for s in {var}.src])")
        else:
            self._test(f"all([{self.constants.name(p.match)}(s) for s in {var}.src])")


def _fitting(arities: list[int], count: int, longer: bool) -> bool:
    return any(a == count or (longer and a > count) for a in arities)


# A decision tree: (step, what follows it); a leaf is the call of a rule.
_Tree = list[tuple[str, "_Tree"]]


def _insert(tree: _Tree, steps: Sequence[str], leaf: str) -> None:
    """Add a path behind all others, sharing what it has in common with the last one."""
    for step in steps:
        if not tree or tree[-1][0] != step:
            tree.append((step, []))
        tree = tree[-1][1]
    tree.append((leaf, []))


def _write(tree: _Tree, indent: str, out: list[str]) -> None:
    for step, below in tree:
        out.extend(indent + line for line in step.split("\n"))
        _write(below, indent + "  " if step.endswith(":") else indent, out)


def _call(rule: Rule, names: dict[str, str], constants: _Constants) -> str:
    function, known = constants.name(rule.function), constants.name(rule)
    bound = names | ({"ctx": "ctx"} if rule.wants_ctx else {})
    order = rule.parameters
    if order is not None and not rule.by_keyword and all(n in bound for n in order):
        given = ", ".join([bound[n] for n in order])
    else:
        given = ", ".join([f"{n}={v}" for n, v in bound.items()])
    return f"r = {function}({given})\nif r is not None and r is not u: return r, {known}"


def _interpreted(rule: Rule, constants: _Constants) -> str:
    known = constants.name(rule)
    return f"r = {known}.apply(u, ctx)\nif r is not None: return r, {known}"


def _add_rule(tree: _Tree, rule: Rule, op: Op, constants: _Constants) -> None:
    try:
        plains = list(itertools.islice(_plain(rule.pattern), _MOST_PLAIN + 1))
        if len(plains) > _MOST_PLAIN:
            raise _TooManyError
    except _TooManyError:
        _insert(tree, (), _interpreted(rule, constants))
        return
    for plain in plains:
        steps = _Steps(constants, op)
        try:
            steps.collect(plain)
        except _Impossible:
            continue
        rule.check_names(steps.names)
        _insert(tree, steps.lines, _call(rule, steps.names, constants))


def source_of(rules: Sequence[Rule], op: Op) -> tuple[str, dict[str, Any]]:
    """The text of the function for `op`, and the values it refers to."""
    constants, tree = _Constants(), list[tuple[str, Any]]()
    for rule in rules:
        _add_rule(tree, rule, op, constants)
    lines = ["def match(u, ctx):"]
    _write(tree, "  ", lines)
    lines.append("  return None")
    return "\n".join(lines), constants.values


def compile_rules(rules: Sequence[Rule], op: Op) -> MatchFunction:
    """`match(u, ctx)`: (replacement, rule) by the first rule that gives one, or None."""
    text, values = source_of(rules, op)
    scope = dict(values)
    exec(compile(text, f"<rules for {op.name}>", "exec"), scope)
    return scope["match"]  # type: ignore[no-any-return]
