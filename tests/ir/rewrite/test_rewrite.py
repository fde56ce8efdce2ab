"""The rewrite engine: patterns, orders, gates, endless rewrites, statistics, big graphs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import uopc
from uopc.errors import InvalidIR, UserError, UserTypeError
from uopc.ir.core import dtypes
from uopc.ir.core.args import ParamArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.trace import tracing
from uopc.ir.core.uop import UOp, intern
from uopc.ir.rewrite import compile, statistics
from uopc.ir.rewrite.engine import BottomUpGate, EndlessRewriteError, graph_rewrite, substitute
from uopc.ir.rewrite.matcher import PatternMatcher
from uopc.ir.rewrite.pattern import Rule, UPat

I32 = dtypes.int32
x, y, c, d = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("d")


def leaf(name: str) -> UOp:
    return intern(Ops.PARAM, I32, (), ParamArg(name, ()))


def num(value: int) -> UOp:
    return intern(Ops.CONST, I32, (), value)


def raw(op: Op, *src: UOp) -> UOp:
    return intern(op, dtypes.bool_ if op.dtype == "bool" else I32, src)


def add(*src: UOp) -> UOp:
    return raw(Ops.ADD, *src)


def sink(*src: UOp) -> UOp:
    return intern(Ops.SINK, dtypes.void, src)


A, B, C = leaf("a"), leaf("b"), leaf("c")


# ---------------------------------------------------------------- patterns
def test_every_way_a_pattern_fits() -> None:
    u = add(A, B)
    assert UPat(Ops.ADD, src=(x, y)).match(u) == [{"x": A, "y": B}]
    assert (x + y).match(u) == [{"x": A, "y": B}, {"x": B, "y": A}]
    assert (x + x).match(u) == []
    assert (x + x).match(add(A, A)) == [{"x": A}]
    alternatives = UPat(Ops.ADD, src=(UPat.any(x, y), UPat(Ops.PARAM, name="c")))
    assert alternatives.match(u) == [{"x": A, "c": B}, {"y": A, "c": B}]
    assert UPat(Ops.ADD, src=UPat(Ops.PARAM)).match(u) == [{}]
    assert UPat(Ops.ADD, src=UPat(Ops.PARAM)).match(add(A, num(1))) == []


def test_length_dtype_arg_and_tag() -> None:
    three = raw(Ops.MULACC, A, B, C)
    assert UPat(Ops.MULACC, src=(x,)).match(three) == []
    assert UPat(Ops.MULACC, src=(x,), allow_any_len=True).match(three) == [{"x": A}]
    assert UPat(Ops.MULACC, src=(x,)).allow_any_len().match(three) == [{"x": A}]
    assert UPat.var("x", dtypes.float32).match(A) == []
    assert UPat.var("x", (dtypes.int32, dtypes.int64)).match(A) == [{"x": A}]
    vector = intern(Ops.LANES, I32.vec(4), (), 4)
    assert UPat.var("x", I32).match(vector) == [{"x": vector}]
    assert UPat.var("x", I32.vec(2)).match(vector) == []
    assert (x + 2).match(add(A, num(2))) == [{"x": A}]
    assert (x + 2).match(add(A, num(3))) == []
    nan = intern(Ops.CONST, dtypes.float32, (), float("nan"))
    assert UPat.const(None, float("nan")).match(nan) == [{}]
    tagged = add(A, B).rtag("seen")
    assert UPat(Ops.ADD, tag="seen").match(tagged) == [{}]
    assert UPat(Ops.ADD, tag=None).match(tagged) == []
    assert UPat(Ops.ADD).match(tagged) == [{}]


def test_builders_of_patterns() -> None:
    buffer = intern(Ops.PARAM, I32, (), ParamArg("p", (8,)))
    at = intern(Ops.INDEX, I32, (buffer, intern(Ops.CONST, dtypes.index, (), 3)))
    load = intern(Ops.LOAD, I32, (at,))
    assert x.index(c).load().match(load) == [{"x": buffer, "c": at.src[1]}]
    assert x.f(Ops.LOAD, name="l").match(load) == [{"l": load, "x": at}]
    store = intern(Ops.STORE, dtypes.void, (at, A))
    assert x.store(y).named("s").match(store) == [{"s": store, "x": at, "y": A}]
    chosen = intern(Ops.WHERE, I32, (raw(Ops.CMPLT, A, B), A, B))
    assert (x < y).where(x, y).match(chosen) == [{"x": A, "y": B}]
    assert (x < y).where(y, x).match(chosen) == []


def _random_pattern(rng: random.Random, depth: int) -> UPat:
    name = rng.choice([None, "x", "y", "z"])
    if depth == 0 or rng.random() < 0.3:
        return rng.choice([
            UPat(name=name), UPat.cvar(name), UPat(Ops.CONST, arg=rng.choice([0, 1])),
            UPat(Ops.PARAM, name=name), UPat(dtype=dtypes.bool_, name=name),
        ])  # fmt: skip
    if rng.random() < 0.15:
        return UPat.any(*[_random_pattern(rng, depth - 1) for _ in range(2)])
    ops = rng.choice([(Ops.ADD,), (Ops.MUL,), (Ops.ADD, Ops.MUL), (Ops.NEG, Ops.ADD), None])
    if rng.random() < 0.1:
        return UPat(ops, src=rng.choice([UPat(), UPat(Ops.PARAM), UPat(Ops.CONST, name="z")]))
    count = 1 if ops is not None and Ops.NEG in ops and rng.random() < 0.5 else 2
    src = [_random_pattern(rng, depth - 1) for _ in range(count)]
    kind = rng.choice([tuple, list])
    return UPat(ops, src=kind(src), name=name, allow_any_len=rng.random() < 0.1)


def _random_graph(rng: random.Random) -> list[UOp]:
    nodes = [A, B, num(0), num(1)]
    for _ in range(12):
        op = rng.choice([Ops.ADD, Ops.ADD, Ops.MUL, Ops.NEG])
        nodes.append(raw(op, *[rng.choice(nodes) for _ in range(1 if op is Ops.NEG else 2)]))
    return nodes


def _appending(to: list[dict[str, Any]]) -> Callable[..., None]:
    return lambda **names: to.append(names)


def _giving(value: int | None) -> Callable[..., int | None]:
    return lambda **names: value


@pytest.mark.slow
def test_compiled_patterns_find_what_the_interpreter_finds() -> None:
    rng = random.Random(0)
    found = 0
    for _ in range(1500):
        pattern = _random_pattern(rng, 3)
        seen: list[dict[str, Any]] = []
        pm = PatternMatcher([(pattern, _appending(seen))])
        for u in _random_graph(rng):
            seen.clear()
            assert pm.rewrite(u) is None
            assert seen == pattern.match(u)
            found += len(seen)
    assert found > 500


def test_the_first_rule_that_gives_a_value_wins() -> None:
    rng = random.Random(1)
    for _ in range(150):
        values = [k if rng.random() < 0.6 else None for k in range(6)]
        pm = PatternMatcher([(_random_pattern(rng, 2), _giving(v)) for v in values])
        for u in _random_graph(rng):
            given = [r.apply(u) for r in pm.rules]
            assert pm.rewrite(u) == next((made for made in given if made is not None), None)


def test_rules_that_begin_alike_share_their_tests() -> None:
    rules = PatternMatcher([(x + 0, lambda x: x), (x + c, lambda x, c: None)]).rules
    text, _ = compile.source_of(rules, Ops.ADD)
    assert text.count("u_0, u_1 = u.src") == 1


def test_matchers_concatenate() -> None:
    first = PatternMatcher([(x + 0, lambda x: x)])
    second = PatternMatcher([(x * 1, lambda x: x), (x + 0, lambda x: num(5))])
    both = first + second
    assert len(both.rules) == 3
    assert both.rewrite(add(A, num(0))) is A
    assert both.rewrite(raw(Ops.MUL, A, num(1))) is A
    assert both.rewrite(raw(Ops.NEG, A)) is None


def test_wrong_rules_are_refused_when_they_are_made() -> None:
    with pytest.raises(UserTypeError, match=r"binds \['x'\], the function takes \['y'\]"):
        PatternMatcher([(x + 0, lambda y: y)])
    with pytest.raises(UserTypeError, match="not a function"):
        PatternMatcher([(x + 0, 5)])  # type: ignore[list-item]
    with pytest.raises(UserError, match="pair"):
        PatternMatcher([x + 0])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="no truth value"):
        bool(x + 0)


# ---------------------------------------------------------------- orders
def _visits(root: UOp, **mode: bool) -> list[UOp]:
    pm = PatternMatcher([(UPat(name="x"), lambda ctx, x: ctx.append(x))])
    seen: list[UOp] = []
    assert graph_rewrite(root, pm, ctx=seen, **mode) is root
    return seen


def test_orders_of_the_four_modes() -> None:
    less = raw(Ops.CMPLT, num(0), B)
    more = add(num(1), B)
    chosen = intern(Ops.WHERE, I32, (less, more, num(0)))
    root = sink(chosen, add(chosen, chosen))
    zero, one, double = num(0), num(1), root.src[1]
    # `less` waits for 0, which stands below it on the stack as the last source of `chosen`.
    assert _visits(root) == [B, one, more, zero, less, chosen, double, root]
    walked = [zero, B, less, one, more, chosen, double, root]
    assert _visits(root, walk=True) == walked
    assert _visits(root, bottom_up=True) == [root, chosen, less, B, more, one, zero, double]
    expected = [root, chosen, less, zero, B, more, one, double]
    assert _visits(root, bottom_up=True, walk=True) == expected


def test_each_node_once_however_often_it_is_used() -> None:
    u = A
    for _ in range(200):
        u = add(u, u)
    for mode in ({}, {"walk": True}, {"bottom_up": True}, {"bottom_up": True, "walk": True}):
        assert len(_visits(u, **mode)) == 201


def test_fixed_point_and_walk() -> None:
    down = PatternMatcher(
        [(UPat(Ops.CONST, name="c"), lambda c: num(c.arg - 1) if c.arg > 0 else None)]
    )
    root = sink(add(A, num(3)), num(5))
    assert graph_rewrite(root, down) is sink(add(A, num(0)), num(0))
    assert graph_rewrite(root, down, bottom_up=True) is sink(add(A, num(0)), num(0))
    assert graph_rewrite(root, down, walk=True) is sink(add(A, num(2)), num(4))
    assert graph_rewrite(root, down, walk=True, bottom_up=True) is sink(add(A, num(2)), num(4))


def test_new_sources_are_seen_before_their_user() -> None:
    fold = PatternMatcher([(c + d, lambda c, d: num(c.arg + d.arg))])
    u = add(add(num(1), num(2)), add(num(3), num(4)))
    assert graph_rewrite(u, fold) is num(10)
    # A node before its sources: it is looked at again when they have changed.
    assert graph_rewrite(u, fold, bottom_up=True) is num(10)
    assert graph_rewrite(u, fold, walk=True) is num(10)
    assert graph_rewrite(u, fold, walk=True, bottom_up=True) is add(num(3), num(7))


def test_a_gate_stops_the_descent() -> None:
    def stop(x: UOp) -> None:
        raise BottomUpGate

    rules = [(UPat(Ops.NEG, name="x"), stop), (UPat(Ops.PARAM, name="x"), lambda x: num(7))]
    hidden = raw(Ops.NEG, add(A, B))
    root = sink(hidden, add(A, num(1)))
    for walk in (False, True):
        made = graph_rewrite(root, PatternMatcher(rules), bottom_up=True, walk=walk)
        assert made is sink(hidden, add(num(7), num(1)))
        made = graph_rewrite(root, PatternMatcher(rules), walk=walk)
        assert made is sink(raw(Ops.NEG, add(num(7), num(7))), add(num(7), num(1)))


def test_ctx_reaches_the_functions_that_ask_for_it() -> None:
    counts = {"params": 0}

    def count(ctx: dict[str, int], x: UOp) -> None:
        ctx["params"] += 1

    pm = PatternMatcher([(UPat(Ops.PARAM, name="x"), count), (x + 0, lambda x: x)])
    assert graph_rewrite(add(add(A, B), num(0)), pm, ctx=counts) is add(A, B)
    assert counts == {"params": 2}


def test_a_rule_must_give_a_node() -> None:
    pm = PatternMatcher([Rule(x + 0, lambda x: 5, name="five")])
    with pytest.raises(InvalidIR, match=r"five .*test_rewrite.py:\d+.* gave 5, not a UOp"):
        graph_rewrite(add(A, num(0)), pm)


def test_dtypes_follow_new_sources() -> None:
    half = intern(Ops.PARAM, dtypes.float16, (), ParamArg("h", ()))
    lanes = intern(Ops.LANES, I32.vec(4), (), 4)
    assert substitute(add(A, B), {A: half, B: half}).dtype is dtypes.float16
    compared = substitute(raw(Ops.CMPLT, A, B), {A: lanes})
    assert compared.dtype is dtypes.bool_.vec(4)
    cast = intern(Ops.CAST, dtypes.float32, (A,))
    assert substitute(cast, {A: lanes}).dtype is dtypes.float32.vec(4)


# ---------------------------------------------------------------- endless rewrites
def _swap(to: Op) -> Callable[..., UOp]:
    return lambda x: raw(to, *x.src)


def test_two_rules_that_undo_each_other_are_named() -> None:
    pm = PatternMatcher([
        Rule(UPat(Ops.ADD, name="x"), _swap(Ops.MUL), name="to-product"),
        Rule(UPat(Ops.MUL, name="x"), _swap(Ops.ADD), name="to-sum"),
    ])  # fmt: skip
    for bottom_up in (False, True):
        with pytest.raises(EndlessRewriteError) as error:
            graph_rewrite(sink(add(A, B)), pm, bottom_up=bottom_up, name="swapping")
        message = str(error.value)
        assert "swapping never ends" in message
        assert "to-product" in message and "to-sum" in message and "test_rewrite.py:" in message


@pytest.mark.parametrize("bottom_up", [False, True])
def test_growth_without_end_is_named(bottom_up: bool) -> None:
    grow = Rule(UPat(Ops.CONST, name="c"), lambda c: num(c.arg + 1), name="count-up")
    other = Rule(x * 1, lambda x: x, name="innocent")
    with pytest.raises(EndlessRewriteError, match="count-up") as error:
        graph_rewrite(add(A, num(0)), PatternMatcher([grow, other]), bottom_up=bottom_up)
    assert "innocent" not in str(error.value)


def test_a_rule_that_wraps_what_it_matches() -> None:
    wrap = Rule(UPat(Ops.PARAM, name="x"), lambda x: raw(Ops.NEG, x), name="wrap")
    for bottom_up in (False, True):
        with pytest.raises(EndlessRewriteError, match="wrap"):
            graph_rewrite(add(A, B), PatternMatcher([wrap]), bottom_up=bottom_up)
    made = graph_rewrite(add(A, B), PatternMatcher([wrap]), walk=True)
    assert made is add(raw(Ops.NEG, A), raw(Ops.NEG, B))


def test_growth_in_the_sources_of_what_is_made() -> None:
    deeper = Rule(
        UPat(Ops.MUL, src=(x, c)), lambda x, c: raw(Ops.NEG, raw(Ops.MUL, x, num(c.arg + 1))),
        name="deeper",
    )  # fmt: skip
    for bottom_up in (False, True):
        with pytest.raises(EndlessRewriteError, match="deeper"):
            graph_rewrite(raw(Ops.MUL, A, num(0)), PatternMatcher([deeper]), bottom_up=bottom_up)


# ---------------------------------------------------------------- big graphs are no error
DEEP = 100_000
MODES = [{}, {"walk": True}, {"bottom_up": True}, {"bottom_up": True, "walk": True}]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_deep_graph_in_every_mode(mode: dict[str, bool]) -> None:
    u = A
    for _ in range(DEEP):
        u = raw(Ops.NEG, u)
    seven = PatternMatcher([(UPat(Ops.PARAM), lambda: num(7))])
    made = graph_rewrite(u, seven, **mode)
    assert len(made.toposort()) == DEEP + 1
    assert num(7) in made.toposort()


@pytest.mark.slow
@pytest.mark.parametrize("bottom_up", [False, True])
def test_a_long_chain_of_rewrites_at_one_node(bottom_up: bool) -> None:
    fold = PatternMatcher([((x + c) + d, lambda x, c, d: add(x, num((c.arg + d.arg) % 1000)))])
    u = A
    for _ in range(DEEP // 2):
        u = add(u, num(1))
    assert graph_rewrite(u, fold, bottom_up=bottom_up) is add(A, num(DEEP // 2 % 1000))


@pytest.mark.slow
def test_a_wide_graph() -> None:
    root = sink(*[add(A, num(k)) for k in range(DEEP)])
    made = graph_rewrite(root, PatternMatcher([(x + c, lambda x, c: c)]))
    assert made is sink(*[num(k) for k in range(DEEP)])


def test_what_a_long_legal_countdown_takes() -> None:
    down = PatternMatcher([(c + 0, lambda c: None), (x + c, lambda x, c: add(x, num(c.arg - 1))
                            if c.arg > 0 else None)])  # fmt: skip
    assert graph_rewrite(add(A, num(5000)), down) is add(A, num(0))


# ---------------------------------------------------------------- substitution
def test_substitute() -> None:
    u = add(add(A, B), A)
    assert substitute(u, {A: C}) is add(add(C, B), C)
    assert u.substitute({A: C}) is add(add(C, B), C)
    assert substitute(u, {add(A, B): C, A: B}) is add(C, B)
    assert substitute(u, {}) is u
    assert substitute(u, {C: A}) is u


def test_values_are_substituted_again_unless_walking() -> None:
    assert substitute(add(A, B), {A: B, B: C}) is add(C, C)
    assert substitute(add(A, B), {A: B, B: C}, walk=True) is add(B, C)
    assert substitute(add(A, B), {A: add(A, C)}, walk=True) is add(add(A, C), B)
    with pytest.raises(EndlessRewriteError, match="substitute"):
        substitute(add(A, B), {A: add(A, C)})


def test_what_appears_through_new_sources() -> None:
    # sin(sin(a)) with sin(a) → a', sin(a') → …: keys are found in rebuilt nodes too
    inner, outer = raw(Ops.NEG, A), raw(Ops.NEG, raw(Ops.NEG, A))
    assert substitute(outer, {inner: B, raw(Ops.NEG, B): C}) is C
    assert substitute(outer, {inner: B, raw(Ops.NEG, B): C}, walk=True) is raw(Ops.NEG, B)
    up = substitute(outer, {inner: B, raw(Ops.NEG, B): C}, walk=True, bottom_up=False)
    assert up is C


def test_substitute_with_rules() -> None:
    simpler = PatternMatcher([(x + 0, lambda x: x), (x * 1, lambda x: x)])
    u = raw(Ops.MUL, add(A, B), C)
    assert substitute(u, {B: num(0), C: num(1)}, extra_pm=simpler) is A


# ---------------------------------------------------------------- seeing what happened
def test_a_trace_says_which_rule_did_what() -> None:
    pm = PatternMatcher([Rule(x + 0, lambda x: x, name="plus-zero"), (x * 1, lambda x: x)])
    u = raw(Ops.MUL, add(A, num(0)), num(1))
    fired: list[Any] = []
    with tracing(fired.append):
        graph_rewrite(u, pm, name="tidy")
    graph_rewrite(u, pm)
    assert [f.rule.name for f in fired] == ["plus-zero", pm.rules[1].name]
    assert fired[0].before is add(A, num(0)) and fired[0].after is A
    assert fired[0].rewrite == "tidy"
    file, _, line = fired[0].rule.source_line.rpartition(":")
    assert file == __file__ and int(line) > 0
    assert "plus-zero" in str(fired[0]) and "test_rewrite.py" in str(fired[1])


def test_match_statistics() -> None:
    pm = PatternMatcher([
        Rule(x + 0, lambda x: x, name="hit"),
        Rule(x + c, lambda x, c: None, name="miss"),
        Rule(x * 1, lambda x: x, name="never-tried"),
    ])  # fmt: skip
    u = sink(add(A, num(0)), add(A, num(1)), add(B, num(0)))
    statistics.clear()
    statistics.collect(True)
    try:
        made = graph_rewrite(u, pm)
    finally:
        statistics.collect(False)
    assert made is sink(A, add(A, num(1)), B)
    graph_rewrite(u, pm)  # not counted
    rows = {r.rule.name: r for r in statistics.statistics()}
    # three sums, one of them again in front of "miss"; SINK and PARAM have no rules
    assert (rows["hit"].attempts, rows["hit"].matches) == (3, 2)
    assert (rows["miss"].attempts, rows["miss"].matches) == (1, 0)
    assert "never-tried" not in rows
    assert 0 < rows["hit"].matching <= rows["hit"].total
    assert rows["hit"].rate == pytest.approx(2 / 3)
    totals = [r.total for r in statistics.statistics()]
    assert totals == sorted(totals, reverse=True)
    assert "hit" in statistics.report() and "test_rewrite.py:" in statistics.report()
    statistics.clear()
    assert statistics.statistics() == []


@pytest.mark.parametrize("walk", [False, True])
def test_verify_names_a_rule_that_gives_another_dtype(walk: bool) -> None:
    a = UPat.var("a")
    rules = PatternMatcher([(a * 2.0, lambda a: a.cast("int32"))])
    value = uopc.param("x", (2,))
    assert graph_rewrite(-(value * 2.0), rules, walk=walk).dtype is dtypes.int32
    with pytest.raises(InvalidIR, match=r"test_rewrite.py:\d+.* gives int32 for .* of float32"):
        graph_rewrite(-(value * 2.0), rules, walk=walk, verify=True)
    same = PatternMatcher([(a * 2.0, lambda a: a + a)])
    fired: list[Any] = []
    with tracing(fired.append):
        assert graph_rewrite(-(value * 2.0), same, walk=walk, verify=True) is -(value + value)
    assert len(fired) == 1
