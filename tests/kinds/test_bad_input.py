"""Mistakes of users, and unusual input: each error is uopc's and names the thing.

The sections follow the list of bad input that the project promises to handle; errors of single
tensor methods, of text and of the verifier have more cases in test_tensor, test_text, test_verify.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import uopc
import uopc.numpy as uopc_numpy
from uopc import Ops, PatternMatcher, UOp, UPat, dtypes, graph_rewrite
from uopc.tensor.creation import kernel_param

F4 = np.float32
x = uopc.param("x", (4, 3))
y = uopc.param("y", (3,))
other_x = uopc.param("x", (3,))
ints = uopc.param("ints", (3,), dtypes.int8)


def array(*shape, dtype=F4):
    return np.ones(shape, dtype)


# Arguments that fit; nothing writes to them.
A, B, WIDE = array(4, 3), array(3), array(3, dtype=float)


@pytest.fixture(scope="module")
def program():
    return uopc.compile(x + y, inputs=[x, y])  # another module may make these params again


def refused(kind, words, call):
    """`call` raises a uopc.UserError that is also of the kind, and has the words in its message."""
    with pytest.raises(uopc.UserError) as caught:
        call()
    assert isinstance(caught.value, kind)
    for word in words:
        assert word in str(caught.value)


# ---------------------------------------------------------------- shapes, dtypes, names, counts
# fmt: off
CALLS = {
    "nothing": (TypeError, ["missing 2 arguments", "'x'", "'y'"], lambda f: f()),
    "too few": (TypeError, ["missing", "'y'", "float32[3]"], lambda f: f(A)),
    "too many": (TypeError, ["takes 2", "3 were given"], lambda f: f(A, B, B)),
    "unknown name": (TypeError, ["no argument 'z'", "x, y"], lambda f: f(A, z=B)),
    "given twice": (TypeError, ["'x'", "by name"], lambda f: f(A, B, x=A)),
    "shape": (ValueError, ["'x'", "float32[4, 3]", "float32[3, 4]"], lambda f: f(array(3, 4), B)),
    "rank": (ValueError, ["'y'", "float32[1, 3]"], lambda f: f(A, array(1, 3))),
    "dtype": (TypeError, ["'y'", "float64"], lambda f: f(A, WIDE)),
    "byte order": (TypeError, ["'y'", "byte order"], lambda f: f(A, array(3, dtype=">f4"))),
    "objects": (TypeError, ["'y'", "object"], lambda f: f(A, array(3, dtype=object))),
    "a list": (TypeError, ["'y'", "list"], lambda f: f(A, [1, 2, 3])),
    "None": (TypeError, ["'y'", "NoneType"], lambda f: f(A, None)),
    "out shape": (ValueError, ["out", "float32[4, 3]"], lambda f: f(A, B, out=array(3, 4))),
    "out dtype": (TypeError, ["out", "float64"], lambda f: f(A, B, out=WIDE)),
    "out kind": (TypeError, ["out", "str"], lambda f: f(A, B, out="no")),
}

GRAPHS = {
    "broadcast": (ValueError, ["add", "(4, 3)", "(4)"], lambda: x + uopc.param("z", (4,))),
    "matmul": (ValueError, ["matmul", "3 columns", "4 rows"], lambda: x @ x),
    "reshape": (ValueError, ["reshape", "12", "10"], lambda: x.reshape(5, 2)),
    "axis": (ValueError, ["axis 2", "2 dimensions"], lambda: x.sum(axis=2)),
    "not elementwise": (TypeError, ["alu", "elementwise"], lambda: x.alu(uopc.Ops.REDUCE, x)),
    "axis twice": (ValueError, ["axis", "twice"], lambda: x.sum(axis=(0, 0))),
    "permute": (ValueError, ["permute", "(0, 0)"], lambda: x.permute(0, 0)),
    "expand": (ValueError, ["expand", "(4, 4)"], lambda: x.expand(4, 4)),
    "shrink": (ValueError, ["shrink", "(0, 9)"], lambda: x.shrink(((0, 9), (0, 1)))),
    "pad": (ValueError, ["pad", "2 dimensions"], lambda: x.pad(((1, 1),))),
    "index": (IndexError, ["index 5", "size 4"], lambda: x[5]),
    "indices": (ValueError, ["too many indices", "(4, 3)"], lambda: x[0, 0, 0]),
    "cat": (ValueError, ["cat", "(4, 3)", "(3)"], lambda: x.cat(y)),
    "stack": (ValueError, ["stack", "(4, 3)", "(3)"], lambda: x.stack(y)),
    "empty argmax": (ValueError, ["argmax", "empty"], lambda: uopc.param("e", (0,)).argmax()),
    "two unknown dimensions": (ValueError, ["only one", "-1"], lambda: x.reshape(-1, -1)),
    "negative size of eye": (ValueError, ["a dimension must not be"], lambda: uopc.eye(-1)),
    "negative dimension": (ValueError, ["negative", "-3"], lambda: uopc.param("a", (-3,))),
    "float dimension": (TypeError, ["dimension", "1.5"], lambda: uopc.param("a", (1.5,))),
    "dtype by name": (TypeError, ["uopc.dtypes", "'c8'"], lambda: uopc.param("a", 3, "c8")),
    "cast by name": (TypeError, ["cast", "'c8'"], lambda: x.cast("c8")),
    "shift of floats": (TypeError, ["<<", "float32"], lambda: x << 1),
    "condition": (TypeError, ["where", "bool", "float32"], lambda: uopc.where(x, x, x)),
    "float index": (TypeError, ["integers", "float32"], lambda: x.take(y, 0)),
    "scalar that does not fit": (ValueError, ["300", "int8"], lambda: ints + 300),
    "text as operand": (TypeError, ["NumPy array", "str"], lambda: x + "a"),
    "complex": (TypeError, ["complex"], lambda: x + 1j),
    "objects": (TypeError, ["constant", "object"], lambda: uopc.constant(np.array([None]))),
    "name": (ValueError, ["a printable string", "'a\\nb'"], lambda: uopc.param("a\nb", (3,))),
    "reserved name": (ValueError, ["'out'"], lambda: uopc.param("out", (3,))),
    "bounds": (ValueError, ["variable n", "5, 1"], lambda: uopc.variable("n", 5, 1)),
    "assign to an expression": (ValueError, ["assign", "add"], lambda: (x + 1).assign(x)),
    "assign dtype": (TypeError, ["assign", "int8"], lambda: y.assign(ints)),
    "no number": (ValueError, ["x is not a constant"], lambda: int(x)),
}

COMPILES = {
    "not a graph": (TypeError, ["expected a UOp", "3"], lambda: uopc.compile(3)),
    "not all graphs": (TypeError, ["in the list", "3"], lambda: uopc.compile([x, 3])),
    "device": (ValueError, ["'tpu'", "cpu"], lambda: uopc.compile(x, device="tpu")),
    "device number": (ValueError, ["'cpu:first'"], lambda: uopc.compile(x, device="cpu:first")),
    "device kind": (TypeError, ["device", "3"], lambda: uopc.compile(x, device=3)),
    "inputs forget one": (ValueError, ["inputs", "y"], lambda: uopc.compile(x + y, inputs=[x])),
    "inputs unknown": (ValueError, ["inputs", "'q'"], lambda: uopc.compile(x, inputs=["q", "x"])),
    "inputs twice": (ValueError, ["'x'", "twice"], lambda: uopc.compile(x, inputs=["x", "x"])),
    "inputs kind": (TypeError, ["inputs", "3"], lambda: uopc.compile(x, inputs=3)),
    "threads": (ValueError, ["threads", "-1"], lambda: uopc.compile(x, threads=-1)),
    "all threads": (ValueError, ["threads", "4096"], lambda: uopc.compile(x, threads=10**9)),
    "optimize": (TypeError, ["optimize", "'no'"], lambda: uopc.compile(x, optimize="no")),
    "verify": (TypeError, ["verify", "3"], lambda: uopc.compile(x, verify=3)),
    "rules": (TypeError, ["rules", "PatternMatcher"], lambda: uopc.compile(x, rules=3)),
    "name": (TypeError, ["name", "7"], lambda: uopc.compile(x, name=7)),
    "one name for two": (ValueError, ["'x'", "different"], lambda: uopc.compile(x + other_x)),
    "option": (ValueError, ["unknown option 'debugg'"], lambda: uopc.options(debugg=1).__enter__()),
    "option value": (ValueError, ["debug", "9"], lambda: uopc.options(debug=9).__enter__()),
}
# fmt: on


@pytest.mark.parametrize("case", CALLS)
def test_wrong_arguments_of_a_call(program, case):
    kind, words, call = CALLS[case]
    refused(kind, words, lambda: call(program))


@pytest.mark.parametrize("case", GRAPHS)
def test_wrong_graphs(case):
    refused(*GRAPHS[case])


@pytest.mark.parametrize("case", COMPILES)
def test_wrong_arguments_of_compile(case):
    refused(*COMPILES[case])


def test_what_is_not_built_says_so():
    with pytest.raises(uopc.Unsupported, match="beam"):
        uopc.compile(x * 2, device="cuda:sm_80", beam=2)


def test_a_program_still_works_after_errors(program):
    for _, _, call in CALLS.values():
        with pytest.raises(uopc.UserError):
            call(program)
    assert (program(array(4, 3), array(3)) == 2).all()


def test_a_graph_has_no_truth_value():
    with pytest.raises(TypeError, match="truth value"):
        bool(x < 1)
    with pytest.raises(TypeError, match="truth value"):
        _ = 0 < x < 1


def test_symbolic_sizes_and_scalars():
    n = uopc.variable("n", 2, 8)
    f = uopc.compile(uopc.param("s", (n,)) + uopc.param("t", (n,)))
    assert f(array(5), array(5)).shape == (5,)
    for size in (0, 1, 9):
        words = ["variable 'n'", str(size), "2..8", "'s'"]
        refused(ValueError, words, lambda size=size: f(array(size), array(size)))
    refused(ValueError, ["'t'", "n = 3"], lambda: f(array(3), array(4)))
    scaled = uopc.compile(x * uopc.variable("m", 0, 9).cast(dtypes.float32))
    assert (scaled(array(4, 3), m=np.int32(3)) == 3).all()
    refused(TypeError, ["'m'", "by name"], lambda: scaled(array(4, 3)))
    refused(TypeError, ["takes 1"], lambda: scaled(array(4, 3), 3))
    refused(ValueError, ["'m'", "30", "0..9"], lambda: scaled(array(4, 3), m=30))
    refused(TypeError, ["'m'", "float"], lambda: scaled(array(4, 3), m=3.5))


# ---------------------------------------------------------------- NaN and infinities
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 5e-45, 3e38, -2.5]

BINARY = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "div": (lambda a, b: a / b, np.divide),
    "pow": (lambda a, b: a**b, np.power),
    "max": (UOp.maximum, np.maximum),
    "min": (UOp.minimum, np.minimum),
    "lt": (lambda a, b: a < b, np.less),
    "ge": (lambda a, b: a >= b, np.greater_equal),
    "eq": (UOp.eq, np.equal),
    "ne": (UOp.ne, np.not_equal),
}

UNARY = {
    "neg": (lambda a: -a, np.negative),
    "abs": (abs, np.abs),
    "sqrt": (UOp.sqrt, np.sqrt),
    "reciprocal": (UOp.reciprocal, np.reciprocal),
    "relu": (UOp.relu, lambda a: np.maximum(a, 0)),
    "round": (UOp.round, np.round),
    "floor": (UOp.floor, np.floor),
    "trunc": (UOp.trunc, np.trunc),
    "sign": (UOp.sign, np.sign),
    "times 0": (lambda a: a * 0, lambda a: a * 0),
    "minus itself": (lambda a: a - a, lambda a: a - a),
    "by itself": (lambda a: a / a, lambda a: a / a),
    "plus 0": (lambda a: a + 0, lambda a: a + 0),
    "clip": (lambda a: a.clip(-1, 1), lambda a: np.clip(a, -1, 1)),
}


def same_bits(found, expected):
    """Equal with the sign of zero; one NaN is as good as another."""
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind == "f":
        ordered = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[ordered]), np.signbit(expected[ordered]))


@pytest.mark.parametrize("t", ["f4", "f8"])
@pytest.mark.parametrize("optimize", [True, False])
def test_special_values_are_ieee(t, optimize):
    u, v = np.meshgrid(np.array(SPECIAL, t), np.array(SPECIAL, t))
    dtype = dtypes.float32 if t == "f4" else dtypes.float64
    a, b = uopc.param("a", u.shape, dtype), uopc.param("b", u.shape, dtype)
    graphs = {k: f(a, b) for k, (f, _) in BINARY.items()} | {k: f(a) for k, (f, _) in UNARY.items()}
    found = uopc.compile(graphs, inputs=[a, b], optimize=optimize)(u, v)
    with np.errstate(all="ignore"):
        for name, (_, reference) in BINARY.items():
            if name != "pow":  # pow is within its bound, not to the bit
                same_bits(found[name], reference(u, v))
        for name, (_, reference) in UNARY.items():
            same_bits(found[name], reference(u))
        np.testing.assert_allclose(found["pow"], np.power(u, v), rtol=1e-6)


def test_special_values_in_functions_and_reductions():
    values = np.array(SPECIAL, F4)
    a = uopc.param("a", values.shape)
    names = ("exp", "log", "sin", "cos", "tanh", "exp2")
    found = uopc.compile({n: getattr(a, n)() for n in names})(values)
    with np.errstate(all="ignore"):
        for name in names:
            np.testing.assert_allclose(found[name], getattr(np, name)(values), rtol=1e-6)
    rows = np.ones((4, 33), F4)
    rows[1, 7], rows[2, 3], rows[3, 4], rows[3, 9] = np.nan, np.inf, np.inf, -np.inf
    r = uopc.param("r", rows.shape)
    names = ("sum", "prod", "max", "min", "mean", "argmax")
    found = uopc.compile({n: getattr(r, n)(axis=-1) for n in names} | {"s": r.softmax(-1)})(rows)
    with np.errstate(all="ignore"):
        for name in names:
            np.testing.assert_array_equal(found[name], getattr(np, name)(rows, axis=-1), name)
    assert np.isfinite(found["s"][0]).all() and np.isnan(found["s"][1:]).all()


def test_casts_of_special_values():
    values = np.array(SPECIAL, F4)
    a = uopc.param("a", values.shape)
    as_int, as_byte, as_bool = uopc.compile(
        (a.cast(dtypes.int32), a.cast(dtypes.uint8), a.cast(dtypes.bool))
    )(values)
    assert as_int.tolist() == [0, 2**31 - 1, -(2**31), 0, 0, 1, -1, 0, 2**31 - 1, -2]
    assert as_byte.tolist() == [0, 255, 0, 0, 0, 1, 0, 0, 255, 0]
    assert (as_bool == (values != 0)).all()


@pytest.mark.parametrize("t", ["f4", "f8"])
def test_floor_division_of_special_values(t):
    u, v = np.meshgrid(np.array(SPECIAL, t), np.array(SPECIAL, t))
    dtype = dtypes.float32 if t == "f4" else dtypes.float64
    a, b = uopc.param("a", u.shape, dtype), uopc.param("b", u.shape, dtype)
    quotient, rest = uopc.compile((a // b, a % b))(u, v)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(rest, np.mod(u, v))
        np.testing.assert_array_equal(quotient, np.floor_divide(u, v))


# ---------------------------------------------------------------- zero-sized and scalar arrays
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (2, 0, 3), (1,)])
@pytest.mark.parametrize("optimize", [True, False])
def test_empty_and_scalar_arrays(shape, optimize):
    value = np.full(shape, 2, F4)
    a = uopc.param("a", shape)
    border = tuple((1, 1) for _ in shape)
    graphs = {"map": a * 2 + 1, "sum": a.sum(), "prod": a.prod(), "pad": a.pad(border)}
    found = uopc.compile(graphs | {"max": a.max()}, optimize=optimize)(value)
    expected = {"map": value * 2 + 1, "sum": value.sum(), "prod": value.prod()}
    expected |= {"pad": np.pad(value, border) if shape else value}
    expected |= {"max": value.max(initial=-np.inf)}
    for name, wanted in expected.items():
        assert found[name].shape == np.shape(wanted)
        np.testing.assert_array_equal(found[name], wanted)


def test_a_product_over_nothing_is_zero():
    product = uopc.param("a", (3, 0)) @ uopc.param("b", (0, 2))
    assert uopc.compile(product)(array(3, 0), array(0, 2)).tolist() == [[0.0, 0.0]] * 3
    nothing = uopc.param("a", (0, 3)) @ uopc.param("b", (3, 2))
    assert uopc.compile(nothing)(array(0, 3), array(3, 2)).shape == (0, 2)


def test_a_symbolic_size_may_be_zero():
    f = uopc.compile((uopc.param("a", (uopc.variable("n", 0, 9),)) * 2).sum())
    assert [float(f(array(n))) for n in (0, 1, 9)] == [0.0, 2.0, 18.0]


# ---------------------------------------------------------------- memory
def test_inputs_that_are_not_contiguous(program):
    base = np.random.default_rng(0).random((8, 6)).astype(F4)
    row = base[3, ::2]
    for view in (base[::2, ::2], base[:4, 3:], base[7:3:-1, 2::-1], base.T[:4, :3]):
        np.testing.assert_array_equal(program(view, row), view + row)
    repeated = np.broadcast_to(F4(3), (4, 3))
    np.testing.assert_array_equal(program(repeated, row), repeated + row)


def test_read_only_arrays(program):
    frozen = array(4, 3)
    frozen.flags.writeable = False
    assert (program(frozen, array(3)) == 2).all()
    refused(ValueError, ["out", "read-only"], lambda: program(array(4, 3), array(3), out=frozen))
    assign = uopc.compile(x.assign(x + 1))
    refused(ValueError, ["'x'", "read-only"], lambda: assign(frozen))
    assert (frozen == 1).all()


def test_what_is_written_must_be_contiguous(program):
    wide = array(4, 6)
    words = ["out", "not contiguous"]
    refused(ValueError, words, lambda: program(array(4, 3), array(3), out=wide[:, ::2]))
    assign = uopc.compile(x.assign(x + 1))
    refused(ValueError, ["'x'", "not contiguous"], lambda: assign(wide[:, ::2]))
    assert (wide == 1).all()


def test_overlapping_arrays(program):
    memory = array(20)
    first, second = memory[:12].reshape(4, 3), memory[4:16].reshape(4, 3)
    words = ["out", "'x'", "overlaps"]
    refused(ValueError, words, lambda: program(first, memory[:3].copy(), out=second))
    refused(ValueError, words, lambda: program(first, memory[:3].copy(), out=first))
    assert (memory == 1).all()
    # Inputs may share memory as long as none of it is written.
    np.testing.assert_array_equal(program(first, memory[2:5]), np.full((4, 3), 2, F4))
    assign = uopc.compile(x.assign(x + y), inputs=[x, y])
    refused(ValueError, ["'x'", "'y'", "overlaps"], lambda: assign(first, memory[2:5]))
    assert (memory == 1).all()


# ---------------------------------------------------------------- kernels written by hand
def kernel(value=None, close=True, slot=1):
    p, q = kernel_param(0, (8,), dtypes.float32, "p"), kernel_param(slot, (8,), dtypes.float32, "q")
    i = UOp.range(8, 71)  # an axis of this test alone: the line of the first equal node is kept
    store = q.index(i).store(p.index(i).load() * 2 if value is None else value(p, i))
    return UOp.sink(store.end(i) if close else store, name="double")


def test_a_kernel_written_by_hand():
    out = array(8)
    uopc.compile(kernel())(array(8) * 3, out)
    assert (out == 6).all()


@pytest.mark.parametrize("verify", [None, True])
def test_a_range_without_end(verify):
    with pytest.raises(uopc.InvalidIR, match="range 71 is opened and never closed") as caught:
        uopc.compile(kernel(close=False), verify=verify)
    assert "test_bad_input.py" in str(caught.value)  # the line that made it


def test_an_op_at_a_level_where_it_is_not_legal():
    copied = kernel(lambda p, i: UOp(Ops.COPY, p.dtype, (p,), "cpu").index(i))
    with pytest.raises(uopc.InvalidIR, match=r"level handwritten, invariant legal-op: copy"):
        uopc.compile(copied)
    lanes = UOp(Ops.LANES, dtypes.int32, (), 4) + 1
    with pytest.raises(uopc.InvalidIR, match=r"level tensor, invariant legal-op: lanes"):
        uopc.compile(lanes, verify=True)
    with pytest.raises(uopc.InvalidIR, match="level tensor, invariant legal-op: lanes"):
        uopc.compile(lanes)


def test_slots_and_dtypes_of_a_kernel():
    refused(ValueError, ["slots 0 to 1", "[0, 2]"], lambda: uopc.compile(kernel(slot=2)))
    whole = kernel_param(0, (8,), dtypes.int32).index(0)
    refused(ValueError, ["store", "float32", "int32", "cast"], lambda: whole.store(y.index(0)))
    refused(ValueError, ["end", "ranges"], lambda: whole.store(1).end(x))


# ---------------------------------------------------------------- text
TEXTS = {
    "": ("line 1", "no nodes"),
    "garbage": ("line 1, column 1", "garbage"),
    "%1 = fnord 3 : f32": ("line 1, column 6", "fnord"),
    "%1 = param x : f32[": ("line 1, column 16", "type"),
    "%1 = param x : f99[3]": ("line 1", "f99"),
    "%1 = add %2, %3 : f32": ("line 1, column 10", "%2"),
    "%1 = param x : f32[4]\n%2 = add %1 : f32[4]": ("line 2", "2 operands"),
    "%1 = param x : f32[4]\n%2 = add %1, %1 : f32[5]": ("line 2", "f32[5]"),
    "%1 = const 3 : f32\n%1 = const 4 : f32": ("line 2, column 1", "%1"),
    "%1 = range 4 axis=0 kind=zzz : index": ("line 1", "zzz"),
    "\x00": ("line 1", "statement"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_does_not_parse(text):
    with pytest.raises(uopc.InvalidIR) as caught:
        uopc.parse(text)
    for word in TEXTS[text]:
        assert word in str(caught.value)


# ---------------------------------------------------------------- 100,000 nodes deep
@pytest.mark.slow
def test_a_deep_graph():
    """Built, compiled, run, and pickled, without recursion: each is linear in the depth."""
    depth = 100_000
    a = uopc.param("a", (16,))
    deep = a
    for i in range(depth):
        deep = deep - a if i & 1 else a.maximum(deep)
    with uopc.options(origins=False):
        program = uopc.compile(deep)
    value = np.linspace(-1, 1, 16, dtype=F4)
    expected = value
    for i in range(depth):
        expected = expected - value if i & 1 else np.maximum(value, expected)
    np.testing.assert_array_equal(program(value), expected)
    assert pickle.loads(pickle.dumps(deep)) is deep


# ---------------------------------------------------------------- rules that never end
def ping(u):
    return u.src[0] - u.src[1]


def pong(u):
    return u.src[0] + u.src[1]


def grow(u):
    return u + 1


ENDLESS = {
    "circle": ([(UPat(Ops.ADD, name="u"), ping), (UPat(Ops.SUB, name="u"), pong)], "ping", "pong"),
    "growth": ([(UPat(Ops.ADD, name="u"), grow)], "grow"),
}


@pytest.mark.parametrize("bottom_up", [False, True])
@pytest.mark.parametrize("case", ENDLESS)
def test_rules_that_never_end(case, bottom_up):
    rules, *names = ENDLESS[case]
    with pytest.raises(uopc.Error, match="never ends") as caught:
        graph_rewrite(x + y, PatternMatcher(rules), bottom_up=bottom_up)
    for name in names:
        assert name in str(caught.value)


@pytest.mark.parametrize("case", ENDLESS)
def test_rules_of_the_user_that_never_end(case):
    rules, *names = ENDLESS[case]
    with pytest.raises(uopc.Error, match="never ends") as caught:
        uopc.compile(x + y, rules=PatternMatcher(rules))
    for name in names:
        assert name in str(caught.value)


RAGGED = [[1], [0, 1]]


@pytest.mark.parametrize(("name", "make"), [
    ("index", lambda x: x[RAGGED]), ("index", lambda x: x.take(RAGGED)),
    ("gather", lambda x: x.gather(0, RAGGED)), ("constant", lambda x: uopc.constant(RAGGED)),
    ("asarray", lambda x: uopc_numpy.asarray(RAGGED)),
    ("repeat", lambda x: uopc_numpy.repeat(x, RAGGED)),
    ("histogram", lambda x: x.histogram(RAGGED)), ("quantile", lambda x: x.quantile(RAGGED)),
    ("choice", lambda x: uopc.random.choice(uopc.random.key(0), RAGGED)),
    ("choice", lambda x: uopc.random.choice(uopc.random.key(0), 2, p=RAGGED)),
    ("categorical", lambda x: uopc.random.categorical(uopc.random.key(0), RAGGED)),
    ("permutation", lambda x: uopc.random.permutation(uopc.random.key(0), RAGGED)),
])  # fmt: skip
def test_rows_of_unlike_lengths(name, make):
    with pytest.raises(uopc.UserError, match=f"^{name}: .*inhomogeneous"):
        make(uopc.param("x", (3, 4)))
