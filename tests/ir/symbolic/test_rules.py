"""The rules of simplify: two-column examples, what must stay, and every rule tried on numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uopc.errors import InvalidIR
from uopc.ir.builder.fold import combine, convert
from uopc.ir.builder.operands import variable
from uopc.ir.core import dtypes
from uopc.ir.core.args import ParamArg, VariableArg
from uopc.ir.core.constants import const_value
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.trace import Fired, tracing
from uopc.ir.core.uop import UOp, intern
from uopc.ir.rewrite import check_rules
from uopc.ir.rewrite.rules import (
    BOOL,
    FLOAT,
    INDEX,
    WRAPPING,
    Entry,
    RuleSet,
    c,
    d,
    divides,
    matcher,
    positive,
    rule,
    rule_fn,
    show,
    within,
    x,
    y,
)
from uopc.ir.symbolic import simplify
from uopc.ir.text.printer import render


# ---------------------------------------------------------------- expressions as text
def _number(value: Any, t: DType) -> UOp:
    return intern(Ops.CONST, t, (), const_value(t, value))


def _binary(op: Op) -> Callable[..., Expr]:
    return lambda a, b: a.op(op, b)


def _reversed(op: Op) -> Callable[..., Expr]:
    return lambda a, b: a.wrap(_number(b, a.node.dtype)).op(op, a)


def _flipped(op: Op) -> Callable[..., Expr]:
    return lambda a, b: a.wrap(b).op(op, a)


class Expr:
    """Python operators that make nodes: just those, or (`folds`) what the builders make of them."""

    def __init__(self, node: UOp, folds: bool) -> None:
        self.node, self.folds = node, folds

    def wrap(self, value: Any) -> Expr:
        if isinstance(value, Expr):
            return value
        node = value if isinstance(value, UOp) else _number(value, self.node.dtype)
        return Expr(node, self.folds)

    def op(self, op: Op, *others: Any) -> Expr:
        src = (self.node, *[self.wrap(o).node for o in others])
        if self.folds:
            return Expr(combine(op, src), True)
        return Expr(intern(op, dtypes.bool_ if op.dtype == "bool" else src[0].dtype, src), False)

    __add__, __radd__ = _binary(Ops.ADD), _reversed(Ops.ADD)
    __sub__, __rsub__ = _binary(Ops.SUB), _reversed(Ops.SUB)
    __mul__, __rmul__ = _binary(Ops.MUL), _reversed(Ops.MUL)
    __truediv__ = _binary(Ops.FDIV)
    __floordiv__, __rfloordiv__ = _binary(Ops.FLOORDIV), _reversed(Ops.FLOORDIV)
    __mod__ = _binary(Ops.FLOORMOD)
    __and__, __or__, __xor__ = _binary(Ops.AND), _binary(Ops.OR), _binary(Ops.XOR)
    __lshift__, __rshift__ = _binary(Ops.SHL), _binary(Ops.SHR)
    __lt__, __le__ = _binary(Ops.CMPLT), _binary(Ops.CMPLE)
    __gt__, __ge__ = _flipped(Ops.CMPLT), _flipped(Ops.CMPLE)
    eq, ne = _binary(Ops.CMPEQ), _binary(Ops.CMPNE)
    cdiv, cmod = _binary(Ops.CDIV), _binary(Ops.CMOD)

    def __neg__(self) -> Expr:
        return self.op(Ops.NEG)


INVALID = object()


def _where(p: Expr, a: Any, b: Any) -> Expr:
    typed = next(v for v in (a, b) if isinstance(v, Expr))
    nodes = [
        intern(Ops.INVALID, typed.node.dtype) if v is INVALID else typed.wrap(v).node
        for v in (a, b)
    ]
    src = (p.node, *nodes)
    made = combine(Ops.WHERE, src) if p.folds else intern(Ops.WHERE, nodes[0].dtype, src)
    return Expr(made, p.folds)


def _cast(t: DType) -> Callable[[Expr], Expr]:
    def cast(a: Expr) -> Expr:
        return Expr(convert(a.node, t) if a.folds else intern(Ops.CAST, t, (a.node,)), a.folds)

    return cast


def _names(folds: bool) -> dict[str, Any]:
    """x y z: int32; u v: uint8; f g h: float32; p q r: bool; i j k: index 0…9; n 1…9; s -9…9;
    t: an int32 in 0…9, w one in 1…9."""
    leaves = {v: intern(Ops.PARAM, dtypes.int32, (), ParamArg(v, ())) for v in "xyz"}
    leaves |= {v: intern(Ops.PARAM, dtypes.uint8, (), ParamArg(v, ())) for v in "uv"}
    leaves |= {v: intern(Ops.PARAM, dtypes.float32, (), ParamArg(v, ())) for v in "fgh"}
    leaves |= {v: intern(Ops.PARAM, dtypes.bool_, (), ParamArg(v, ())) for v in "pqr"}
    leaves |= {v: variable(v, 0, 9) for v in "ijk"}
    leaves |= {"n": variable("n", 1, 9), "s": variable("s", -9, 9)}
    leaves["t"] = intern(Ops.CAST, dtypes.int32, (leaves["i"],))
    leaves["w"] = intern(Ops.CAST, dtypes.int32, (leaves["n"],))
    names: dict[str, Any] = {k: Expr(v, folds) for k, v in leaves.items()}
    return names | {
        "max": _binary(Ops.MAX), "min": _binary(Ops.MIN), "where": _where, "invalid": INVALID,
        "abs": lambda a: a.op(Ops.ABS), "trunc": lambda a: a.op(Ops.TRUNC),
        "floor": lambda a: a.op(Ops.FLOOR), "no": lambda a: a.op(Ops.NEG),
        "f32": _cast(dtypes.float32), "f64": _cast(dtypes.float64), "i64": _cast(dtypes.int64),
        "i32": _cast(dtypes.int32), "i8": _cast(dtypes.int8), "bool": _cast(dtypes.bool_),
        "index": _cast(dtypes.index),
    }  # fmt: skip


def raw(text: str) -> UOp:
    """The expression, nothing folded."""
    return eval(text, _names(False)).node  # type: ignore[no-any-return]


def folded(text: str, t: DType = dtypes.bool_) -> UOp:
    """The expression as the folding builders make it, without rules; a plain number has dtype t."""
    made = eval(text, _names(True))
    return made.node if isinstance(made, Expr) else _number(made, t)


# ---------------------------------------------------------------- before, after
BECOMES = [
    # sums and products that wrap
    ("(x*3) + (x*5)", "x*8"),
    ("x + x", "x*2"),
    ("y + x*2 + x*3", "y + x*5"),
    ("(x + 3) + (y + 4)", "(y + x) + 7"),
    ("(x*3)*(y*5)", "(y*x)*15"),
    ("2 + x", "x + 2"),
    ("x - x", "0"),
    ("x - 5", "x + -5"),
    ("x - (-y)", "x + y"),
    ("-(-x)", "x"),
    ("(x - y) + y", "x"),
    ("(u*200) + (u*100)", "u*44"),
    ("(x + 2147483647) + 1", "x + -2147483648"),
    ("(x + 1)*2 + 3", "x*2 + 5"),
    # quotients and remainders of one shifted sum
    ("((t + 1)//3)*3 + (t + 7)%3", "t + 1"),
    ("((t + 7)//6)*12 + ((t + 13)%6)*2", "(t + 7)*2"),
    ("((t + 3)//3)*6 + (t%3)*2", "t*2 + 6"),
    ("(x//3 + 1)*3 + x%3", "x + 3"),
    ("(t*8 + 3)%4", "3"),
    ("(t + 13)%6", "(t + 1)%6"),
    # nested quotients with a constant between them
    ("(t//3 + 3)//4", "(t + 9)//12"),
    ("((t + 4)//5 + 2)//3", "(t + 14)//15"),
    ("(t*6)//8", "(t*3)//4"),
    ("((t//4)*3 + 11)//3", "t//4 + 3"),
    # a common factor that is no constant
    ("(t*w)//w", "t"),
    ("(x*w)%w", "(x*w)%w"),
    ("(t*w + t)%w", "t%w"),
    ("(t*w*4)//w", "t*4"),
    ("(t*w)//(w*6)", "t//6"),
    ("(t*w)%(w*3)", "(t%3)*w"),
    ("(t*w + w)//(w*4)", "(t + 1)//4"),
    ("(t*t)//t", "(t*t)//t"),  # t may be 0, and then it is 0
    # bits
    ("(x & 12) & 10", "x & 8"),
    ("(x ^ y) ^ y", "x"),
    ("(x & -4) >> 2", "x >> 2"),
    ("(x << 3) << 4", "x << 7"),
    ("(u >> 4) & 15", "u >> 4"),
    ("t & 31", "t"),
    # comparisons
    ("x < x", "False"),
    ("x <= 5", "x < 6"),
    ("no(x < y)", "y <= x"),
    ("no(x < 5)", "x >= 5"),
    ("t + 3 < 5", "t < 2"),
    ("t < 10", "True"),
    ("i*4 + 3 < 16", "i < 4"),
    ("i//4 < 2", "i < 8"),
    ("no(i < 4)", "i > 3"),
    ("(i*2).eq(7)", "False"),
    ("(i*2).ne(j*2 + 4)", "i.ne(j + 2)"),
    # logic
    ("p & p", "p"),
    ("p & no(p)", "False"),
    ("p | no(p)", "True"),
    ("no(no(p))", "p"),
    ("no(p) & no(q)", "no(p | q)"),
    ("p.ne(True)", "no(p)"),
    ("p & (no(p) | q)", "p & q"),
    ("(p & q) & p", "q & p"),
    ("(x < 5) & (x < 7)", "x < 5"),
    ("(i < 5) & (i > 6)", "False"),
    ("(i < 5) | (i > 3)", "True"),
    ("(x < 5) | (x < 7)", "x < 7"),
    ("(i < 5) & (i*4 + j < 26)", "i < 5"),
    ("(i < 5) & (i.ne(7))", "i < 5"),
    ("(i < 3) & ((i + 7) % 10 < 10)", "i < 3"),
    # greater and lesser
    ("max(max(x, 3), 5)", "max(x, 5)"),
    ("max(t, 12)", "12"),
    ("min(i, 9)", "i"),
    ("where(x < y, x, y)", "min(x, y)"),
    ("where(i < j, j, i)", "max(i, j)"),
    ("where(s < 0, 0, s)", "max(s, 0)"),
    ("where(s > 0, s, 0)", "max(s, 0)"),
    # quotients and remainders
    ("(t//3)//5", "0"),
    ("(x//3)//5", "x//15"),
    ("(x % 12) % 4", "x % 4"),
    ("(x//7)*7 + x % 7", "x"),
    ("t % 10", "t"),
    ("(t*6)//3", "t*2"),
    ("(t*6) % 3", "0"),
    ("t.cdiv(4)", "t//4"),
    ("(i//2)*2 + i % 2", "i"),
    ("(i % 6)//3", "(i//3) % 2"),
    ("(i*12 + j)//12", "i"),
    ("(i*12 + j) % 12", "j"),
    ("(i*4 + j % 4)//12", "i//3"),
    ("(n*i + j % n)//n", "i"),
    ("(i*15 + j % 5)//5 % 3", "0"),
    # selection
    ("where(no(p), x, y)", "where(p, y, x)"),
    ("where(p, where(p, x, y), z)", "where(p, x, z)"),
    ("where(p, where(q, x, y), y)", "where(p & q, x, y)"),
    ("where(p, where(i < j, y, x), y)", "where(p & (j <= i), x, y)"),
    ("where(i < j, where(q, y, x), y)", "where((j <= i) | q, y, x)"),
    ("where(p, x, where(f.eq(g), y, x))", "where(p | f.ne(g), x, y)"),
    ("where(i < j, x, where(f < g, y, x))", "where((j <= i) & (f < g), y, x)"),
    ("where(p, x, x)", "x"),
    ("where(p, q, False)", "p & q"),
    ("where(p, True, q)", "p | q"),
    ("where(p, 1, x*0)*5 + 0*x", "where(p, 5, x*0)"),
    ("where(p, x, 0) + where(p, y, 1)", "where(p, x + y, 1)"),
    ("k + where(p, i, 0) + where(p, j, 1)", "k + where(p, i + j, 1)"),
    ("where(i < 5, i % 5, j)", "where(i < 5, i, j)"),
    ("where(p, where(q, x, y) + 1, where(p, y, z))", "where(p, where(q, x, y) + 1, z)"),
    ("where(i < 5, x, where(i < 7, y, where(i < 3, z, x)))", "where(i < 5, x, where(i < 7, y, x))"),
    # no value
    ("where(p, i, invalid) + j", "where(p, i + j, invalid)"),
    ("where(q, where(p, i, invalid), invalid)", "where(q & p, i, invalid)"),
    ("where(p, where(p, x, invalid), y)", "where(p, x, y)"),
    # casts
    ("i64(u) < 5", "u < 5"),
    ("i64(u) < i64(v)", "u < v"),
    ("i32(index(x))", "x"),
    ("i32(p).ne(0)", "p"),
    ("i32(p).eq(0)", "no(p)"),
    ("i32(p).ne(2)", "True"),
    ("bool(x)", "x.ne(0)"),
    ("f64(f32(u))", "f64(u)"),
    # floats: exact for NaN, infinities and both zeros
    ("-(-f)", "f"),
    ("f - (-g)", "f + g"),
    ("f / 4.0", "f * 0.25"),
    ("f * -1.0", "-f"),
    ("abs(-f)", "abs(f)"),
    ("max(f, f)", "f"),
    ("f < f", "False"),
    ("floor(trunc(f))", "trunc(f)"),
    ("trunc(f32(x))", "f32(x)"),
]

STAYS = [
    "(u >> 4) & 7",
    "(x >> 28) & 15",
    "f + 0.0",             # -0.0 + 0.0 is 0.0
    "f * 0.0",             # NaN, infinities, the sign of zero
    "f - f",               # NaN, infinities
    "f / f",
    "f / 3.0",             # 1/3 is not exact
    "(f + 1.0) + 2.0",     # rounding
    "f.eq(f)",             # False for NaN
    "no(f < g)",           # True with NaN, where g <= f is False
    "where(f < g, g, f)",  # not max: NaN and -0.0
    "f64(f32(x))",         # float32 does not hold every int32
    "(x*6)//3",            # x*6 wraps
    "(x + 4)//4",
    "x.cdiv(4)",           # truncates, x may be negative
    "(x//y)*y + x % y",    # y may be 0
    "(i*j + k)//j",        # j may be 0
    "(x + 1) < 5",         # x + 1 wraps
    "i8(x).ne(300 - 256)",
    "i8(f32(u))",          # saturates, where i8(u) wraps
    "u - 3",               # as u + 253 its bounds are gone
    "x % 12",
    "where(p, i, invalid)",
    "where(p, x, y)",
    "where(p, x, where(q, y, x))",      # no(q), and no(p), would be an operation more
    "where(f < g, where(p, y, x), y)",
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), BECOMES)
def test_simplifies(before: str, after: str) -> None:
    made, wanted = raw(before).simplify(), folded(after, raw(before).dtype)
    # The right column is in normal form itself, but for the form of comparisons with constants.
    assert made is wanted or made is wanted.simplify(), f"{render(made)}, not {render(wanted)}"
    assert made.simplify() is made


def operations(u: UOp) -> int:
    return len([v for v in u.toposort() if v.src])


def _division(draw: random.Random) -> str:
    """An expression of divisions by a constant or by w, over t and w."""

    def number() -> int:
        return draw.choice([1, 2, 3, 4, 5, 6, 7, 8, 11, 12, -1, -2, -5])

    def divisor() -> str:
        return draw.choice(["2", "3", "4", "6", "8", "w", f"(w*{draw.choice([2, 3, 6])})"])

    a = draw.choice(["t", f"t*{number()}", "t*w", f"t*w*{number()}", "t*w + w", "(t - w)"])
    inner = f"(({a} + {number()}){draw.choice(['//', '%'])}{divisor()})"
    other = f"((t + {number()}){draw.choice(['//', '%'])}{divisor()})*{number()}"
    outer = f"({inner}*{number()} + {draw.choice([other, str(number())])})"
    return draw.choice([inner, outer, f"{outer}{draw.choice(['//', '%'])}{divisor()}"])


def test_drawn_divisions_keep_their_values_and_never_grow() -> None:
    draw = random.Random(0)
    t, n = np.meshgrid(np.arange(10), np.arange(1, 10))
    for _ in range(60):
        text = _division(draw)
        before = raw(text)
        after = before.simplify()
        leaves = {v: {"i": t, "n": n}[v.arg.name].ravel() for v in before.variables()}
        old, new = [check_rules.evaluate(u, leaves)[0] for u in (before, after)]
        assert np.array_equal(np.broadcast_to(new, np.shape(old)), old), text
        assert operations(after) <= operations(before), text


@pytest.mark.parametrize("text", STAYS)
def test_stays(text: str) -> None:
    made = raw(text).simplify()
    assert made is folded(text), render(made)


def test_raw_constants_fold_and_wrap() -> None:
    fifteen, two = _number(15, dtypes.int32), _number(2, dtypes.int32)
    assert UOp(Ops.ADD, dtypes.int32, (fifteen, two)).simplify() is _number(17, dtypes.int32)
    top = _number(127, dtypes.int8)
    assert UOp(Ops.ADD, dtypes.int8, (top, top)).simplify() is _number(-2, dtypes.int8)
    assert int((UOp.const(dtypes.int32, 3) * 5 + 2).simplify()) == 17


# ---------------------------------------------------------------- every rule, tried
def refuted(rules: RuleSet) -> list[check_rules.Refutation]:
    """One counterexample for each rule that is wrong."""
    found = (check_rules.check_rule(rules, e).refutation for e in rules.entries)
    return [r for r in found if r is not None]


def fired(rules: RuleSet, entry: Entry) -> Iterator[UOp]:
    """Instances of a rule's pattern on which the rule fires."""
    for _, before, _ in check_rules.fired(rules, entry, random.Random(f"0{entry.name}")):
        yield before


def idle(rules: RuleSet) -> list[str]:
    """Rules that fire on none of their own instances."""
    return [e.name for e in rules.entries if next(fired(rules, e), None) is None]


@pytest.mark.parametrize("rules", simplify.SETS, ids=lambda s: s.name)
@pytest.mark.few(2)
def test_every_rule_keeps_the_value(rules: RuleSet) -> None:
    assert [str(r) for r in refuted(rules)] == []


@pytest.mark.parametrize("rules", simplify.SETS, ids=lambda s: s.name)
def test_every_rule_fires_on_some_graph(rules: RuleSet) -> None:
    assert idle(rules) == []


@pytest.mark.parametrize("rules", simplify.SETS, ids=lambda s: s.name)
def test_every_rule_gets_its_turn(rules: RuleSet) -> None:
    """In simplify, where builders and the rules before it come first: what never does can go."""
    never = []
    for entry in rules.entries:
        name = f"{rules.name}/{entry.name}"
        if not any(name in _used_on(graph) for graph in fired(rules, entry)):
            never.append(name)
    assert never == []


def _used_on(graph: UOp) -> set[str]:
    rewrites: list[Fired] = []
    with tracing(rewrites.append):
        simplify.simplify(graph)
    return {f.rule.name for f in rewrites}


def _entry(function: Callable[..., Any]) -> Entry:
    return rule_fn("wrong-function", x + c)(function)


WRONG = [
    RuleSet("nested", INDEX, [rule("negative-divisors", (x // c) // d, x // (c * d))]),
    RuleSet("wraps", WRAPPING, [rule("halve", (x * 2) // 2, x)]),
    RuleSet("wraps-mod", WRAPPING, [rule("inside", (x % (c * d)) % c, x % c, when=[positive(c)])]),
    RuleSet("zero", WRAPPING, [rule("by-zero", (x // y) * y + x % y, x)]),
    RuleSet("nan", FLOAT, [rule("cancel", x - x, 0.0)]),
    RuleSet("signs", FLOAT, [rule("plus-zero", x + 0.0, x)]),
    RuleSet("bools", BOOL, [rule("or-is-and", x | y, x & y)]),
    RuleSet("bound", INDEX, [rule("off-by-one", x % c, x, when=[within(x, -1, c)])]),
    RuleSet("code", INDEX, [_entry(lambda x, c: x)]),
]


@pytest.mark.parametrize("rules", WRONG, ids=lambda s: s.name)
def test_a_wrong_rule_is_refuted(rules: RuleSet) -> None:
    (found,) = refuted(rules)
    assert f"{rules.name}/{rules.entries[0].name}: " in str(found)


def test_the_same_rules_with_their_conditions_hold() -> None:
    held = [
        RuleSet("nested", INDEX, [
            rule("div", (x // c) // d, x // (c * d), when=[positive(c), positive(d)]),
            rule("mod", (x % (c * d)) % c, x % c, when=[positive(c), positive(d)]),
            rule("inside", x % c, x, when=[within(x, 0, c)]),
        ]),
        RuleSet("mod", WRAPPING, [rule("nested", (x % c) % d, x % d, when=[divides(d, c)])]),
    ]  # fmt: skip
    assert [r for s in held for r in refuted(s)] == []


def test_a_rule_that_cannot_fire_is_reported() -> None:
    never = RuleSet("never", WRAPPING, [
        rule("works", x + c, c + x),
        rule("contradiction", x % c, x, when=[positive(c), within(x, 0, c), within(x, 200, c)]),
        rule_fn("does-nothing", x + c)(lambda x, c: None),
    ])  # fmt: skip
    assert idle(never) == ["contradiction", "does-nothing"]


def test_a_hidden_rule_is_reported() -> None:
    rules = RuleSet("all", WRAPPING, [
        rule("general", x + c, x - (0 - c)),
        rule("special", (x * y) + 3, x),
        rule("conditional", x * c, x, when=[positive(c)]),
        rule("behind-conditional", x * 2, x + x),
    ])  # fmt: skip
    certain = [r for r, e in zip(rules.rules, rules.entries) if e.certain]
    found = check_rules.hidden(rules.rules, certain)
    assert [(late.name, early.name) for late, early in found] == [("all/special", "all/general")]


def test_no_rule_of_simplify_is_hidden() -> None:
    certain = [r for s in simplify.SETS for r, e in zip(s.rules, s.entries) if e.certain]
    assert check_rules.hidden(simplify.RULES.rules, certain) == []


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidIR, match="two rules have one name"):
        RuleSet("twice", WRAPPING, [rule("a", x + 0, x), rule("a", x * 1, x)])


def test_rules_print_as_they_are_written() -> None:
    entry = rule("mod-inside", x % c, x, when=[within(x, 0, c)])
    assert entry.right is not None
    assert f"{show(entry.left)} → {show(entry.right)}" == "(x % c) → x"
    assert [str(w) for w in entry.when] == ["within(x, 0, c)"]


def test_small_folds() -> None:
    """Bits of constants, rounded integers, stacks of constants, a store of what is there."""
    bits = intern(Ops.BITCAST, dtypes.uint8, (_number(-1, dtypes.int8),))
    assert bits.simplify() is _number(255, dtypes.uint8)
    n = intern(Ops.PARAM, dtypes.int32, (), ParamArg("n", ()))
    assert intern(Ops.TRUNC, dtypes.int32, (n,)).simplify() is n
    none = intern(Ops.INVALID, dtypes.int32)
    one, two = _number(1, dtypes.int32), _number(2, dtypes.int32)
    rows = [intern(Ops.STACK, dtypes.int32, row) for row in ((one, none), (one, two))]
    assert intern(Ops.ADD, dtypes.int32, tuple(rows)).simplify().src == (two, none)
    fixed = intern(Ops.VARIABLE, dtypes.index, (), VariableArg("x", 1, 1))
    bound = intern(Ops.BIND, dtypes.index, (fixed, _number(1, dtypes.index)))
    assert bound.simplify() is _number(1, dtypes.index)
    storage = intern(Ops.PARAM, dtypes.int32, (), ParamArg("p", (4,), 0))
    address = intern(Ops.INDEX, dtypes.int32, (storage, _number(1, dtypes.index)))
    store = intern(Ops.STORE, dtypes.void, (address, intern(Ops.LOAD, dtypes.int32, (address,))))
    assert store.simplify().op is Ops.NOOP


def test_both_orders_of_commuting_operands() -> None:
    pm = matcher(RuleSet("add", WRAPPING, [rule("a", (x * c) + y, y)]))
    assert pm.rewrite(raw("y + x*3")) is raw("y")
    assert pm.rewrite(raw("x*3 + y")) is raw("y")
    assert pm.rewrite(raw("3*x + y")) is raw("y")
    assert pm.rewrite(raw("i*3 + j")) is None  # index is not WRAPPING


def test_conditions_are_never_met_by_vectors() -> None:
    lanes = intern(Ops.CONST, dtypes.int32.vec(2), (), (1, 2))
    u = intern(Ops.FLOORMOD, dtypes.int32.vec(2), (raw("x"), lanes))
    assert simplify.RULES.rewrite(u) is None
