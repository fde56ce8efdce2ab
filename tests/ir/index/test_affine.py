"""Index arithmetic in normal form, against evaluation at many points."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import grows_less
from uopc.ir.builder.operands import variable
from uopc.ir.core import bounds, dtypes
from uopc.ir.core.args import RangeArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare, values
from uopc.ir.text.printer import render


def loop(axis: int, end: UOp | int) -> UOp:
    stop = affine.const(end) if isinstance(end, int) else end
    return intern(Ops.RANGE, dtypes.index, (stop,), RangeArg((axis,)))


def node(op: Op, *src: UOp) -> UOp:
    return intern(op, dtypes.index, src)


def value(root: UOp, at: dict[UOp, int]) -> int:
    """The value of an index expression, by the meaning of each op over integers."""
    done: dict[UOp, int] = {}
    for u in root.toposort():
        if u.op is Ops.CONST:
            done[u] = u.arg
        elif u in at:
            done[u] = at[u]
        else:
            assert u.op.fold is not None
            done[u] = u.op.fold(*[done[s] for s in u.src])
    return done[root]


def places(leaves: list[UOp], rng: random.Random, count: int) -> list[dict[UOp, int]]:
    """Values for variables and the loops over them: corners and others."""
    out = []
    for _ in range(count):
        at: dict[UOp, int] = {}
        for leaf in sorted(leaves, key=lambda u: u.op is Ops.RANGE):
            low, high = bounds.bounds(leaf)
            if leaf.op is Ops.RANGE:
                high = value(leaf.src[0], at) - 1
            at[leaf] = rng.choice([low, high, rng.randint(low, high)])
        out.append(at)
    return out


A, B, C = variable("a", 0, 11), variable("b", -4, 7), variable("c", 1, 5)
N, M = variable("n", 1, 6), variable("m", 2, 9)
R, J, K = loop(0, 12), loop(1, N), loop(2, node(Ops.MUL, N, M))
LEAVES = [A, B, C, N, M, R, J, K]

# The op as it is, and the canonical way to the same value.
MAKERS: dict[Op, Callable[[UOp, UOp], UOp]] = {
    Ops.ADD: affine.add,
    Ops.SUB: affine.sub,
    Ops.MUL: affine.mul,
    Ops.FLOORDIV: affine.floordiv,
    Ops.FLOORMOD: affine.floormod,
}


def normal(u: UOp) -> UOp:
    """The same value in the normal form."""
    return affine.add(u, affine.const(0))


Pair = tuple[UOp, UOp]  # the expression as written, and its canonical form


def _both(made: tuple[Op, Pair, Pair]) -> Pair:
    op, (a, x), (b, y) = made
    return node(op, a, b), MAKERS[op](x, y)


def _pair(u: UOp) -> Pair:
    return u, u


leaves = st.sampled_from(LEAVES).map(_pair)
constants = st.integers(-13, 13).map(affine.const).map(_pair)
divisors = st.one_of(
    st.sampled_from([2, 3, 4, 6, 8, 12, -2, -3, 1, 0]).map(affine.const),
    st.sampled_from([N, M, C, node(Ops.MUL, N, M), B]),
).map(_pair)
sums = st.sampled_from([Ops.ADD, Ops.SUB, Ops.ADD])
divisions = st.sampled_from([Ops.FLOORDIV, Ops.FLOORMOD])
expressions = st.recursive(
    st.one_of(leaves, leaves, constants),
    lambda below: st.one_of(
        st.tuples(sums, below, below).map(_both),
        st.tuples(st.just(Ops.MUL), below, st.one_of(constants, leaves)).map(_both),
        st.tuples(divisions, below, divisors).map(_both),
        st.tuples(divisions, below, below).map(_both),
    ),
    max_leaves=10,
)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(expressions, st.integers(0, 999))
def test_the_canonical_form_has_the_value(pair: Pair, seed: int) -> None:
    written, canonical = pair
    low, high = bounds.bounds(canonical)
    for at in places(LEAVES, random.Random(seed), 12):
        expected = value(written, at)
        assert value(canonical, at) == expected, f"{render(written)} → {render(canonical)}"
        assert low <= expected <= high
    assert normal(canonical) is canonical


@settings(max_examples=400, deadline=None, derandomize=True)
@given(expressions, expressions, st.integers(0, 999))
def test_comparisons(first: Pair, second: Pair, seed: int) -> None:
    less = compare.less(first[1], second[1])
    equal = compare.equal(first[1], second[1])
    unequal = compare.unequal(first[1], second[1])
    proved = affine.at_most(first[1], second[1])
    for at in places(LEAVES, random.Random(seed), 12):
        a, b = value(first[0], at), value(second[0], at)
        assert value(less, at) == (a < b), f"{render(first[1])} < {render(second[1])}"
        assert value(equal, at) == (a == b)
        assert value(unequal, at) == (a != b)
        assert a <= b or not proved


@settings(max_examples=300, deadline=None, derandomize=True)
@given(expressions, expressions)
def test_equal_sums_are_one_object(first: Pair, second: Pair) -> None:
    a, b = first[1], second[1]
    assert affine.add(a, b) is affine.add(b, a)
    assert affine.sub(affine.add(a, b), b) is normal(a)
    assert affine.mul(a, b) is affine.mul(b, a)
    assert affine.form(affine.sub(a, a)) == (0, {})
    three = affine.const(3)
    assert affine.mul(affine.add(a, b), three) is affine.add(
        affine.mul(three, a), affine.mul(three, b)
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(expressions, st.integers(1, 24))
def test_quotient_and_remainder_go_back_together(pair: Pair, n: int) -> None:
    a, divisor = pair[1], affine.const(n)
    q, r = affine.divmod_(a, divisor)
    low, high = bounds.bounds(r)
    assert low >= 0 and high < n
    written = node(Ops.ADD, node(Ops.MUL, q, divisor), r)
    for at in places(LEAVES, random.Random(n), 6):
        assert value(written, at) == value(a, at)


def test_remainders_by_negative_numbers_go_back_together() -> None:
    """A written e % -n, as in short forms, with -n·((e // -n) % d) is e % (-n·d)."""
    for f, g, n, d in itertools.product((1, 2, 3, 4), (0, 1, 3), (2, 3, 4, 6), (2, 3)):
        e, divisor = affine.plus(affine.scaled(A, f), g), affine.const(-n)
        of_quotient = affine.floormod(affine.floordiv(e, divisor), affine.const(d))
        both = affine.add(node(Ops.FLOORMOD, e, divisor), affine.scaled(of_quotient, -n))
        for at in places([A], random.Random(f), 6):
            assert value(both, at) == value(e, at) % (-n * d), render(both)


# ---------------------------------------------------------------- each split of divmod
def _parse(text: str) -> UOp:
    class Wrapped:
        def __init__(self, u: UOp) -> None:
            self.u = u

        def _with(self, make: Callable[[UOp, UOp], UOp], other: object, swap: bool) -> Wrapped:
            v = other.u if isinstance(other, Wrapped) else affine.const(int(other))  # type: ignore[call-overload]
            return Wrapped(make(v, self.u) if swap else make(self.u, v))

        def __add__(self, o: object) -> Wrapped:
            return self._with(affine.add, o, False)

        def __radd__(self, o: object) -> Wrapped:
            return self._with(affine.add, o, True)

        def __sub__(self, o: object) -> Wrapped:
            return self._with(affine.sub, o, False)

        def __rsub__(self, o: object) -> Wrapped:
            return self._with(affine.sub, o, True)

        def __mul__(self, o: object) -> Wrapped:
            return self._with(affine.mul, o, False)

        def __rmul__(self, o: object) -> Wrapped:
            return self._with(affine.mul, o, True)

        def __floordiv__(self, o: object) -> Wrapped:
            return self._with(affine.floordiv, o, False)

        def __mod__(self, o: object) -> Wrapped:
            return self._with(affine.floormod, o, False)

    names = {
        "x": variable("x", 0, 99), "y": variable("y", 0, 3), "z": variable("z", 0, 1),
        "s": variable("s", -50, 50), "n": N, "m": M, "i": loop(0, 12), "j": J, "k": K,
    }  # fmt: skip
    made = eval(text, {k: Wrapped(v) for k, v in names.items()})
    return made.u if isinstance(made, Wrapped) else affine.const(made)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # multiples of the divisor leave
        ("(x*12 + y)//4", "x*3"),
        ("(x*13 + 5)//12", "x + (x + 5)//12"),
        ("(x*13 + 5) % 12", "(x + 5) % 12"),
        ("(s - 50)//10", "s//10 - 5"),
        # bounds decide
        ("(y + z + 9)//8", "1"),
        ("(y + 4) % 8", "y + 4"),
        # other residues of the coefficients
        ("(3 + y*3) % 4", "3 - y"),
        ("(17 + y*13) % 18", "17 - y*5"),
        ("(3 + z*6) % 4", "3 - z*2"),
        # a common factor, and what is smaller than it
        ("(x*4 + y)//12", "x//3"),
        ("(x*4 + y) % 12", "(x % 3)*4 + y"),
        ("(x*2 + 7)//8", "(x + 3)//4"),
        # nested
        ("(x//3)//4", "x//12"),
        ("(x//3 + 2)//4", "(x + 6)//12"),
        ("(x//3 + s)//4", "(x + s*3)//12"),
        ("(x % 12)//4", "(x//4) % 3"),
        ("(x % 12) % 4", "x % 4"),
        ("(x % 12 + s) % 4", "(x + s) % 4"),
        # negative divisors
        ("s//(0 - 4)", "(0 - s)//4"),
        ("s % (0 - 4)", "0 - (0 - s) % 4"),
        ("x//0 + x % 0", "0"),
        # back together
        ("(x//7)*7 + x % 7", "x"),
        ("(x % 4) + (x//4 % 2)*4", "x % 8"),
        ("(x//8)*4 + (x//2) % 4", "x//2"),
        ("(s % 4)*3 + (s//4)*12", "s*3"),
        ("((x*15 + y)//10)*2 + ((x*15 + y)//5) % 2", "x*3 + y//5"),
        # quotients of one value at even distances
        ("(x + 4)//8 + x//8", "x//4"),
        ("s//2 + (s + 1)//2", "s"),
        ("s//4 + (s + 1)//4 + (s + 2)//4 + (s + 3)//4", "s"),
        ("(s + 1)//6 + (s + 3)//6 + (s + 5)//6", "(s + 1)//2"),
        ("x//8 + (x + 4)//8 + (x + 2)//4", "x//2"),
        ("((s + 9)//6)*5 + (s//6)*5 + y", "(s//3)*5 + y + 5"),
        ("(n*x + 3)//6 + (n*x)//6", "(n*x)//3"),
        ("(s + 2)//6 + s//6", "(s + 2)//6 + s//6"),
        ("(s + 3)//6 + (s//6)*2", "s//3 + s//6"),
        ("(s + 3)//6 - s//6", "(s + 3)//6 - s//6"),
        # by an expression
        ("(n*x + j)//n", "x"),
        ("(n*x + j) % n", "j"),
        ("k//(n*m)", "0"),
        ("k % (n*m)", "k"),
        ("(k//n)*n + k % n", "k"),
        ("(3*s + 9*x)//(3*n)", "(s + 3*x)//n"),
        ("((n + 1)*x + j)//(n + 1)", "x"),
        ("((n + 1)*x + j) % (n + 1)", "j"),
        ("(n*n*x + n*j + j)//n", "n*x + j"),
    ],
)
def test_divmod_splits(before: str, after: str) -> None:
    made, wanted = _parse(before), _parse(after)
    assert made is wanted, f"{render(made)}, not {render(wanted)}"


def test_quotients_of_two_values_are_known() -> None:
    """constant + k·condition: the length of a thread's chunk."""
    i = loop(0, 5)
    condition = intern(Ops.CAST, dtypes.index, (compare.less(affine.const(3), i),))
    for a, b, n in itertools.product((0, 1, 7, 16, 264), (0, 3, 5, 9, 253), (1, 2, 4, 7, 64)):
        length = affine.plus(affine.scaled(condition, b - a), a)
        assert values.cases(length) == (None if a == b else (a, b))
        for made, without, where in zip(affine.divmod_(length, affine.const(n)), divmod(a, n),
                                        divmod(b, n)):  # fmt: skip
            assert made is affine.plus(affine.scaled(condition, where - without), without)


def test_division_by_what_may_be_zero_stays() -> None:
    zero = variable("zero", 0, 5)
    for make, op in ((affine.floordiv, Ops.FLOORDIV), (affine.floormod, Ops.FLOORMOD)):
        made = make(node(Ops.MUL, A, zero), zero)
        assert made.op is op
        assert value(made, {A: 3, zero: 0}) == 0
        assert value(make(affine.const(7), affine.const(0)), {}) == 0


@pytest.mark.parametrize(
    ("a", "b", "after"),
    [
        ("x*4 + y", "16", "x < 4"),
        ("x*4 + 2", "17", "x < 4"),
        ("x*12 + y", "268", "x < 23"),
        ("x//4", "5", "x < 20"),
        ("5", "x//4", "23 < x"),
        ("x", "s", "x < s"),
        ("s - x", "y - 3", "s < x + y - 3"),
        ("x", "100", "True"),
        ("j", "n", "True"),
        ("k", "n*m", "True"),
        ("n*m", "k", "False"),
    ],
)
def test_comparison_forms(a: str, b: str, after: str) -> None:
    made = compare.less(_parse(a), _parse(b))
    if after in ("True", "False"):
        assert made.op is Ops.CONST and made.arg is (after == "True")
        return
    left, _, right = after.partition(" < ")
    assert made.op is Ops.CMPLT and made.src == (_parse(left), _parse(right)), render(made)


# ---------------------------------------------------------------- size
def test_a_long_sum_costs_its_length() -> None:
    def chain(axis: int, n: int) -> UOp:
        out = loop(axis, 5)
        for i in range(1, n):
            out = node(Ops.ADD, out, loop(axis + i, 5))
        return out

    short, long = chain(1000, 1000), chain(10_000, 4000)
    assert grows_less(normal, short, long, 10)  # were it the square, 16
    assert len(affine.form(long)[1]) == 4000


@pytest.mark.slow
def test_sharing_does_not_multiply_work() -> None:
    u = A
    for _ in range(300):
        u = node(Ops.ADD, u, u)
    assert affine.form(u) == (0, {A: 2**300})
    deep = A
    for i in range(100_000):
        deep = node(Ops.SUB if i % 2 else Ops.ADD, deep, affine.const(i % 7))
    assert affine.form(deep)[1] == {A: 1}


def test_products_of_sums_do_not_explode() -> None:
    out = affine.const(1)
    factors = [affine.add(variable(f"f{i}", 0, 3), affine.const(1)) for i in range(30)]
    for f in factors:
        out = affine.mul(out, f)
    assert len(out.toposort()) < 5000
    at = {f.src[0]: i % 4 for i, f in enumerate(factors)}
    expected = 1
    for v in at.values():
        expected *= v + 1
    assert value(out, at) == expected


def test_every_point_of_small_movement_chains() -> None:
    """Index expressions as reshape, flip and shrink make them, on all points."""
    rng = random.Random(0)
    for _ in range(60):
        dims = [rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.choice([1, 2, 3]))]
        loops = [loop(10 + i, d) for i, d in enumerate(dims)]
        flat = affine.const(0)
        for r, d in zip(loops, dims):
            flat = affine.add(affine.mul(flat, affine.const(d)), r)
        wanted = flat
        for _ in range(3):
            n, shift = rng.choice([2, 3, 4, 5, 6]), rng.choice([0, 0, 1, 7])
            moved = affine.plus(wanted, shift)
            q, r = affine.divmod_(moved, affine.const(n))
            wanted = affine.sub(affine.add(affine.mul(q, affine.const(n)), r), affine.const(shift))
        for at in itertools.product(*[range(d) for d in dims]):
            env = dict(zip(loops, at))
            assert value(wanted, env) == value(flat, env)
        assert wanted is flat


def test_bounds_of_sums_of_products_with_a_common_factor() -> None:
    """They hold at every point; f·x ± f·y is bounded as f·(x ± y)."""
    a, n, m = variable("a", 1, 10), variable("n", 0, 9), variable("m", 1, 9)
    square = affine.scaled(affine.mul(a, a), 4)
    assert bounds.bounds(affine.sub(square, a)) == (3, 390)
    assert bounds.bounds(node(Ops.SUB, node(Ops.MUL, n, m), n)) == (0, 72)
    assert compare.less(affine.mul(n, m), n) is affine.boolean(False)
    rng = random.Random(3)
    atoms = {variable("x", 1, 3): range(1, 4), variable("y", -2, 2): range(-2, 3)}
    atoms[variable("z", 0, 2)] = range(3)
    points = [dict(zip(atoms, at)) for at in itertools.product(*atoms.values())]
    for _ in range(300):
        sides = []
        for _ in range(2):
            u = affine.const(rng.randrange(-3, 4))
            for _ in range(rng.randrange(1, 4)):
                u = node(Ops.MUL, *rng.sample([u, rng.choice(list(atoms))], 2))
            sides.append(u)
        u = node(rng.choice([Ops.ADD, Ops.SUB]), *sides)
        low, high = bounds.bounds(u)
        assert all([low <= value(u, at) <= high for at in points]), render(u)


def test_windows_of_a_rounded_length_stay_inside() -> None:
    """k·i + j < n for i < n // k and j < k; for one more element only a call can tell."""
    n = variable("n", 1, 99)
    for k in (2, 3, 5):
        ends = affine.floordiv(n, affine.const(k)), affine.const(k)
        i, j = [
            intern(Ops.RANGE, dtypes.index, (end,), RangeArg((axis,), "loop"))
            for axis, end in enumerate(ends)
        ]
        at = affine.add(affine.scaled(i, k), j)
        assert compare.less(at, n) is affine.boolean(True)
        assert compare.less(affine.plus(at, 1), n).op is Ops.CMPLT
        assert compare.less(n, at) is affine.boolean(False)


def test_multiples_of_quotients_are_compared_with_their_dividend() -> None:
    """n·(e // n) = e − e % n decides the comparison; an undecided one keeps its value."""
    z = variable("z", -12, 12)
    for k, c, n in itertools.product((1, 2, 3, -1), (0, 1, 5), (2, 3, 4)):
        e = affine.plus(affine.scaled(z, k), c)
        multiple = affine.scaled(affine.floordiv(e, affine.const(n)), n)
        assert compare.less(e, multiple) is affine.boolean(False)
        assert compare.less(multiple, affine.plus(e, 1)) is affine.boolean(True)
        assert compare.less(e, affine.plus(multiple, n)) is affine.boolean(True)
        assert compare.equal(multiple, affine.plus(e, 1)) is affine.boolean(False)
        for d in range(-n, n + 1):
            shifted = affine.plus(e, d)
            less, equal = compare.less(multiple, shifted), compare.equal(multiple, shifted)
            for at in range(-12, 13):
                x = k * at + c
                assert value(less, {z: at}) == (x // n * n < x + d)
                assert value(equal, {z: at}) == (x // n * n == x + d)


def test_quotients_of_products_drop_a_positive_factor() -> None:
    x, y, s, t = [variable(name, low, 3) for name, low in (("x", -3), ("y", 0), ("s", 1), ("t", 1))]
    xs, ys = affine.mul(x, s), affine.mul(y, s)
    for a, n, smaller in (
        (xs, affine.scaled(s, 4), affine.floordiv(x, affine.const(4))),
        (xs, affine.mul(s, t), affine.floordiv(x, t)),
        (affine.add(xs, ys), affine.mul(s, t), affine.floordiv(affine.add(x, y), t)),
        (xs, affine.add(affine.mul(s, t), s), affine.floordiv(x, affine.plus(t, 1))),
    ):
        q, r = affine.divmod_(a, n)
        assert q is smaller
        for at in itertools.product(range(-3, 4), range(4), range(1, 4), range(1, 4)):
            env = dict(zip((x, y, s, t), at))
            assert (value(q, env), value(r, env)) == divmod(value(a, env), value(n, env))


@pytest.mark.parametrize("make", [affine.floordiv, affine.floormod])
def test_terms_have_one_order_whichever_was_made_first(make: Callable[[UOp, UOp], UOp]) -> None:
    """Sums of equal terms are equal texts, as if no other graph had ever had one of them."""
    texts = []
    for first in (0, 1, 2):
        size = 994 + first  # other nodes each time
        loops = [loop(axis, size) for axis in (2, 0, 1)]
        kept = []
        for i in ((0, 1, 2), (1, 2, 0), (2, 0, 1))[first]:
            kept.append(make(loops[i], affine.const(size // 7)))
            kept.append(affine.mul(kept[-1], loops[i - 1]))
        terms = [make(r, affine.const(size // 7)) for r in loops]
        terms += [affine.mul(t, r) for t, r in zip(terms, [loops[-1], *loops])]
        random.Random(first).shuffle(terms)
        total = affine.const(3)
        for t in terms:
            total = affine.add(total, t)
        texts.append(render(total))
    assert len({*texts}) == 1, texts


def test_quotients_at_even_distances_are_one_for_every_value() -> None:
    s = variable("s", -30, 30)
    for n in range(2, 13):
        for k in [k for k in range(2, n + 1) if n % k == 0]:
            for first, factor in itertools.product(range(-1, n // k + 1), (1, -1, -3)):
                a = affine.plus(affine.scaled(s, factor), first)
                shifted = [affine.plus(a, i) for i in range(0, n, n // k)]
                parts = [affine.floordiv(b, affine.const(n)) for b in shifted]
                total = functools.reduce(affine.add, parts)
                if factor != -3:  # multiples of n, and a common factor, have left before
                    assert total is affine.floordiv(a, affine.const(n // k))
                for at in range(-30, 31):
                    wanted = sum([(factor * at + first + i) // n for i in range(0, n, n // k)])
                    assert value(total, {s: at}) == wanted
