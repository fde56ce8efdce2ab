"""The rewrite engine: apply a matcher to every node of a graph, in one of four orders.

    graph_rewrite(root, pm)                    sources first, to a fixed point
    graph_rewrite(root, pm, bottom_up=True)    a node before its sources, to a fixed point
    graph_rewrite(root, pm, walk=True)         sources first, each node once, results are final
    graph_rewrite(root, pm, walk=True, bottom_up=True)   a node before its sources, once

Nothing recurses, and no size of graph is an error. An endless rewrite is an error that names the
rules of its cycle. Nodes that wait for each other are found when no other work is left, and a
growing chain of rewrites is found by its length.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from uopc.errors import Error, InvalidIR, UserTypeError
from uopc.ir.core import dtype_rules, walk
from uopc.ir.core.ops import Op
from uopc.ir.core.trace import Fired, Listener, current_listener, standing_for, tracing
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.rewrite import statistics
from uopc.ir.rewrite.matcher import PatternMatcher
from uopc.ir.rewrite.pattern import Hit, MatcherTable, Rule, UPat

# A chain of rewrites, each made by the one before, is endless when it is longer than this and
# than twice the number of nodes in the graph: folding a sum of n terms takes n steps at its root.
LONGEST_CHAIN = 10_000


class BottomUpGate(Exception):
    """Raised by a rule's function: keep this node and all nodes below it.

    Examples:
        >>> def stop(a):
        ...     raise uopc.BottomUpGate
        >>> a = uopc.UPat.var("a")
        >>> rules = uopc.PatternMatcher([(a.f(uopc.Ops.EXP), stop), (a + a, lambda a: a * 2)])
        >>> x = uopc.param("x", (2,))
        >>> kept = (x + x).exp()
        >>> uopc.graph_rewrite(kept, rules, bottom_up=True) is kept
        True
    """


class EndlessRewriteError(Error):
    """A set of rules that rewrites forever; the message names the cycle.

    Examples:
        >>> a, b = uopc.UPat.var("a"), uopc.UPat.var("b")
        >>> swap = uopc.PatternMatcher([(a - b, lambda a, b: b - a)])
        >>> try:
        ...     uopc.graph_rewrite(uopc.param("x", (2,)) - uopc.param("y", (2,)), swap)
        ... except uopc.Error as error:
        ...     print(type(error).__name__)
        EndlessRewriteError
    """


def graph_rewrite(
    root: UOp,
    pm: PatternMatcher,
    ctx: Any = None,
    bottom_up: bool = False,
    walk: bool = False,
    name: str = "rewrite",
    verify: bool = False,
) -> UOp:
    """`root` with the rules of `pm` applied to every node below it; see the module for orders.

    A rule that raises `BottomUpGate` keeps its node, and with `bottom_up` everything below it.
    EndlessRewriteError if the rules never come to an end.

    `ctx` goes to rule functions with such a parameter. By default the sources of a node are
    rewritten before the node, and replacements are rewritten again, until no rule fits; `bottom_up`
    tries each node before its sources; `walk` tries each node once. A rule may change the dtype,
    and the dtypes of the readers follow; with `verify`, a changed dtype is InvalidIR, which names
    the rule.

    Examples:
        >>> a = uopc.UPat.var("a")
        >>> double = uopc.PatternMatcher([(a + a, lambda a: a * 2)])
        >>> x = uopc.param("x", (2,))
        >>> uopc.graph_rewrite((x + x).exp(), double) is (x * 2).exp()
        True
    """
    table = statistics.table_of(pm)
    if not verify:
        return _run(root, table, ctx, bottom_up, walk, name)
    with tracing(functools.partial(_check_dtype, current_listener())):
        return _run(root, table, ctx, bottom_up, walk, name)


def _check_dtype(listener: Listener | None, fired: Fired) -> None:
    """InvalidIR if a rule changes the dtype; else report the rewrite to the listener."""
    before, after = fired.before.dtype, fired.after.dtype
    if before is not after:
        raise InvalidIR(
            f"{fired.rewrite}: rule {fired.rule.label} gives {after.name} for"
            f" {fired.before.op!r} of {before.name}"
        )
    if listener is not None:
        listener(fired)


def _run(root: UOp, table: MatcherTable, ctx: Any, bottom_up: bool, walk: bool, name: str) -> UOp:
    run = _Rewrite(root, table, ctx, name)
    if walk:
        return run.users_once() if bottom_up else run.sources_once()
    return run.to_fixed_point(bottom_up)


# `_Rewrite.state` of a node that is not done: on the stack for the first time, waiting for its
# sources, or waiting for the node it was rewritten to.
_SCHEDULED: Final = 0
_OPENED: Final = 1
_FORWARDED: Final = 2


class _Rewrite:
    """One call of graph_rewrite."""

    def __init__(self, root: UOp, table: MatcherTable, ctx: Any, name: str) -> None:
        self.root, self.table, self.ctx, self.name = root, table, ctx, name
        self.listener = current_listener()
        self.stack: list[UOp] = [root]
        # node → its final form, or one of the states above
        self.state: dict[UOp, Any] = {root: _SCHEDULED}
        # node → nodes that go on when it is done
        self.waiting: dict[UOp, list[UOp]] = {}
        # node → the node it was rewritten to, and the rule (None: it got new sources)
        self.became: dict[UOp, tuple[UOp, Rule | None]] = {}
        # node → number of rewrites that led to it; nodes of the given graph have no entry
        self.chain: dict[UOp, int] = {}
        self.longest = LONGEST_CHAIN

    # ------------------------------------------------------------ to a fixed point
    # One loop without a call per node: in two functions it takes 1.08 times as long.
    def to_fixed_point(self, users_first: bool) -> UOp:
        state, stack, waiting = self.state, self.stack, self.waiting
        table, ctx = self.table, self.ctx
        while stack:
            u = stack.pop()
            if state[u] is not _SCHEDULED:
                waits = changed = False
                for s in u.src:
                    new = state[s]
                    if new is not s:
                        if new.__class__ is int:
                            waiting.setdefault(s, []).append(u)
                            waits = True
                            break
                        changed = True
                if waits:
                    continue
                if changed:
                    self._on_new_sources(u, _SCHEDULED if users_first else _OPENED)
                    continue
                if users_first:
                    self._finish(u, u)
                    continue
            elif u.src and not users_first:
                self._open(u)
                continue
            match = table[u.op]
            try:
                hit = None if match is None else match(u, ctx)
            except BottomUpGate:
                self._finish(u, u)
                continue
            if hit is not None:
                self._forward(u, *self._fired(u, hit))
            elif users_first and u.src:
                self._open(u)
            elif waiting:
                self._finish(u, u)
            else:
                state[u] = u
        final = state[self.root]
        if final.__class__ is int:
            raise self._circle()
        return final  # type: ignore[no-any-return]

    def _open(self, u: UOp) -> None:
        """Push the sources of `u` on the stack, above `u`; each node is pushed once."""
        state, stack = self.state, self.stack
        state[u] = _OPENED
        stack.append(u)
        length = self.chain.get(u)
        for s in reversed(u.src):
            if s not in state:
                state[s] = _SCHEDULED
                stack.append(s)
                if length is not None:
                    self.chain[s] = length

    def _on_new_sources(self, u: UOp, then: int) -> None:
        """Replace `u` by a node on its new sources, when all sources are done and some differ."""
        state, chain = self.state, self.chain
        made = rebuilt(u, tuple([state[s] for s in u.src]))
        if u in chain and made not in state:
            chain[made] = chain[u]
        self._forward(u, made, None, then)

    def _forward(self, u: UOp, to: UOp, rule: Rule | None, then: int = _SCHEDULED) -> None:
        """Let the result of `to` be the result of `u`. If `to` is new, it starts in the state
        `then`."""
        state = self.state
        self.became[u] = (to, rule)
        found = state.get(to)
        if found is not None and found.__class__ is not int:
            self._finish(u, found)
            return
        state[u] = _FORWARDED
        self.waiting.setdefault(to, []).append(u)
        if found is None:
            state[to] = then
            self.stack.append(to)

    def _finish(self, u: UOp, final: UOp) -> None:
        """Mark `u` as done, and continue the nodes that waited for `u`."""
        state, waiting = self.state, self.waiting
        state[u] = final
        if u not in waiting:
            return
        done = [u]
        for u in done:
            state[u] = final
            for w in waiting.pop(u, ()):
                if state[w] is _FORWARDED:
                    done.append(w)
                else:
                    self.stack.append(w)

    def _fired(self, u: UOp, hit: Hit) -> tuple[UOp, Rule]:
        """Check, count and report a rule's replacement of `u`."""
        made, rule = hit
        self._report(u, made, rule)
        if made not in self.state:
            self.chain[made] = length = self.chain.get(u, 0) + 1
            if length > self.longest:  # the size of the graph may explain it
                self.longest = max(LONGEST_CHAIN, 2 * len(walk.toposort(self.root)))
                if length > self.longest:
                    why = f"after {length} rewrites in a row"
                    raise _endless(self.name, self._cycle(u, rule), u, why)
        return made, rule

    def _report(self, u: UOp, made: UOp, rule: Rule) -> None:
        if not isinstance(made, UOp):
            raise InvalidIR(f"{self.name}: rule {rule.label} gave {made!r}, not a UOp")
        if made.origin is None:
            set_origin(made, u.origin)
        if self.listener is not None:
            self.listener(Fired(self.name, rule, u, made))

    # ------------------------------------------------------------ each node once
    def sources_once(self) -> UOp:
        done: dict[UOp, UOp] = {}
        for u in walk.toposort(self.root):
            src = tuple([done[s] for s in u.src])
            made = u if src == u.src else rebuilt(u, src)
            new = self._once(made)
            done[u] = made if new is None else new
        return done[self.root]

    def users_once(self) -> UOp:
        done: dict[UOp, UOp] = {}
        opened: set[UOp] = set()
        stack = [self.root]
        while stack:
            u = stack.pop()
            if u in done:
                continue
            if u in opened:
                src = tuple([done[s] for s in u.src])
                done[u] = u if src == u.src else rebuilt(u, src)
                continue
            new = self._once(u)
            if new is not None:
                done[u] = new
                continue
            opened.add(u)
            stack.append(u)
            stack.extend([s for s in reversed(u.src) if s not in done])
        return done[self.root]

    def _once(self, u: UOp) -> UOp | None:
        """The result of the first rule that fits; None if no rule fits, u if the rule raises."""
        match = self.table[u.op]
        try:
            hit = None if match is None else match(u, self.ctx)
        except BottomUpGate:
            return u
        if hit is None:
            return None
        self._report(u, *hit)
        return hit[0]  # type: ignore[no-any-return]

    # ------------------------------------------------------------ endless rewrites
    def _circle(self) -> EndlessRewriteError:
        """The error for nodes that wait for each other in a circle: the stack is empty and they
        still wait."""
        seen: dict[UOp, Rule | None] = {}
        u = self.root
        while u not in seen:
            if self.state[u] is _FORWARDED:
                to, seen[u] = self.became[u]
            else:
                to, seen[u] = next(s for s in u.src if self.state[s].__class__ is int), None
            u = to
        nodes = list(seen)
        circle = nodes[nodes.index(u) :]
        rules = [r for r in [seen[n] for n in circle] if r is not None]
        return _endless(self.name, rules, u, "a rewritten node came back")

    def _cycle(self, u: UOp, rule: Rule) -> list[Rule]:
        """The rules that repeat at the end of the chain that led to `u`, then `rule`."""
        before = {to: (u, r) for u, (to, r) in self.became.items()}
        rules = [rule]
        while len(rules) < _LONGEST_CYCLE:
            if u in before:
                u, made_by = before[u]
                if made_by is not None:
                    rules.append(made_by)
                continue
            user = next((w for w in reversed(self.stack) if u in w.src), None)
            if user is None:
                break
            u = user
        rules.reverse()
        for period in range(1, len(rules) // 2 + 1):
            if rules[-period:] == rules[-2 * period : -period]:
                return rules[-period:]
        return list(dict.fromkeys(rules))


_LONGEST_CYCLE = 64


def _endless(name: str, rules: list[Rule], u: UOp, why: str) -> EndlessRewriteError:
    cycle = " → ".join([r.label for r in [*rules, *rules[:1]]])
    return EndlessRewriteError(f"{name} never ends at {u.op!r}: {why}; cycle of rules: {cycle}")


# ---------------------------------------------------------------- rebuilding
def rebuilt(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """`u` on other sources, not folded, because only rules change nodes. The dtype follows the
    sources."""
    dtype = u.dtype
    if [s.dtype for s in src] != [s.dtype for s in u.src]:
        dtype = dtype_rules.derived(u.op, u.dtype, src, u.arg)
    return standing_for(u, intern(u.op, dtype, src, u.arg, u.tag))


# ---------------------------------------------------------------- substitution
_replaced = Rule(UPat(name="u"), lambda u: None, name="substitute")


def substitute(
    root: UOp,
    mapping: Mapping[UOp, UOp],
    extra_pm: PatternMatcher | None = None,
    walk: bool = False,
    bottom_up: bool = True,
    name: str = "substitute",
    as_is: frozenset[Op] = frozenset(),
) -> UOp:
    """`root` with every key of the mapping replaced by its value, and `extra_pm` applied.

    A node is replaced before its sources, and values are replaced again: a → b, b → c gives c (a
    value that contains its own key is an endless rewrite). With `walk`, values are final. Nodes of
    the ops `as_is` that are no keys stay unchanged with all nodes below.
    """
    if not mapping and extra_pm is None:
        return root
    if not isinstance(mapping, Mapping):
        raise UserTypeError(f"{name}: expected a dict of nodes, got {mapping!r}")
    ops = as_is.union([u.op for u in mapping])
    rules = MatcherTable(lambda op: None) if extra_pm is None else statistics.table_of(extra_pm)

    def match(u: UOp, ctx: Any) -> Hit | None:
        made = mapping.get(u)
        if made is not None and made is not u:
            return made, _replaced
        if u.op in as_is:
            raise BottomUpGate
        by_rules = rules[u.op]
        return None if by_rules is None else by_rules(u, ctx)

    table = MatcherTable(lambda op: match if op in ops else rules[op])
    return _run(root, table, mapping, bottom_up, walk, name)
