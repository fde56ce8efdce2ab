"""Graphs that no builder made, from a text or the raw constructor, are checked before they become
code; and names, sizes and numbers of users that no machine can have are refused in plain words."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc import Ops, UOp, dtypes
from uopc.ir.core.args import DataArg, KernelArg, NumberArg, ParamArg, RangeArg

f32 = dtypes.float32
x = uopc.param("x", (8,))


def raw(op, arg, src=(x,), dtype=f32):
    return UOp(op, dtype, src, arg)


WRONG = {
    "reshape that grows": lambda: raw(Ops.RESHAPE, (16,)) + 1,
    "expand of 8 to 9": lambda: raw(Ops.EXPAND, (9,)) + 1,
    "shrink outside": lambda: raw(Ops.SHRINK, (4, 16)) + 1,
    "shrink before": lambda: raw(Ops.SHRINK, (-1, 4)) + 1,
    "pad that shrinks": lambda: raw(Ops.PAD, (2, 4)) + 1,
    "permute of an axis that is not there": lambda: raw(Ops.PERMUTE, (1,)) + 1,
    "another dtype": lambda: raw(Ops.ADD, None, (x, x), dtypes.int64),
    "a wider dtype": lambda: raw(Ops.ADD, None, (x, x), dtypes.float64),
    "a root of integers": lambda: raw(Ops.SQRT, None, (x.cast(dtypes.int32),), dtypes.int32),
    "bits of floats": lambda: raw(Ops.XOR, None, (x, x)),
    "a store of too much": lambda: uopc.UOp(
        Ops.AFTER, f32, (x, UOp(Ops.STORE, dtypes.void, (x, uopc.zeros((9,)))))
    ),
    "a value of nothing": lambda: raw(Ops.NOOP, None, ()) + 1,
    "a value as an effect": lambda: raw(Ops.AFTER, None, (x * 2, x)),
    "a vector argument": lambda: uopc.parse("%1 = param v : f32x4[8]\n%2 = neg %1"),
    "too many elements": lambda: uopc.parse(f"%1 = param v : f32[{2**62}]\n%2 = neg %1"),
    "too many dimensions": lambda: x.reshape((1,) * 64 + (8,)),
    "a range of 2**63": lambda: kernel().sink(name="k").substitute(
        {UOp.range(8, 0): UOp.range(2**63, 0)}
    ),
    "an iota of two axes": lambda: uopc.parse("%1 = iota : index[2, 2]\n%2 = cast %1 : i32"),
    "bounds in the wrong order": lambda: uopc.parse(
        "%1 = variable n low=17 high=9 : index\n%2 = param p : i8[%1]\n%3 = neg %2"
    ),
    "storage of a kernel that no machine has": lambda: uopc.parse(
        f'%1 = param o slot=0 : f32[{10**30}]\n%2 = store %1[0], 1.0:f32\nsink %2 name=k'
    ),
    "a sink in a sink": lambda: uopc.parse(
        "%1 = param p : f16[1]\n%2 = store %1, 1.0:f16\n%3 = sink %1, %2\nsink %3, %1"
    ),
    "a vector in a hand-written kernel": lambda: uopc.parse(
        "%1 = param o slot=0 : f32[8]\n%2 = stack %1[0], %1[1] : f32x2\n%3 = permute %1 (0)"
        "\n%4 = store %3[0]:f32x2, %2\nsink %4 name=k"
    ),
    "a range over an array": lambda: uopc.parse(
        "%1 = param o slot=0 : i32[1]\n%2 = range %1 axis=0 kind=loop : i32"
        "\n%3 = store %1[0], 1:i32\n%4 = end %3, %2\nsink %4 name=k"
    ),
    "dimensions that are no numbers": lambda: UOp(
        Ops.PARAM, f32, (uopc.variable("n", 0, 9),), ParamArg("p", ((1,),))
    ) + 1,
    "a store of more lanes than its address has": lambda: uopc.parse(vectors("", ":f32x8")),
    "a load of more lanes than its address has": lambda: uopc.parse(
        vectors(":f32x8", "").replace("load %4[%3]", "load %4[%3] : f32x8")
    ),
    "a slice of three numbers": lambda: raw(Ops.SLICE, (0, 4, 1)),
    "a slice outside": lambda: raw(Ops.SLICE, (6, 4)),
    "copies of unknown number": lambda: uopc.parse(
        "%1 = variable n low=1 high=9 : index\n%2 = param o slot=0 : f32[9]"
        "\n%3 = range %1 axis=0 kind=unroll : index\n%4 = store %2[%3], 1.0:f32"
        "\n%5 = end %4, %3\nsink %5 name=k"
    ),
    "a function of an argument without dimensions": lambda: uopc.parse(
        "%1 = param arg=ParamArg(name=arg0, dims=none, slot=0) : u8[?]\n%2 = neg %1"
        "\n%3 = function %2 name=f\n%4 = param x : u8\n%5 = call %3, %4"
        "\n%6 = gettuple %5 item=0 : u8\n%7 = add %6, %6"
    ),
    "a number after a store": lambda: uopc.parse(
        "%1 = variable n low=0 high=9 : index\n%2 = cast %1 : f32\n%3 = param x : f32[4]"
        "\n%4 = store %3, 1.0:f32\n%5 = after %2, %4\nsink %5"
    ),
    "vectors of vectors": lambda: uopc.parse(vectors(":f32x8", "", " opts=(VECTOR(0, 8),)")),
    "a value after effects": lambda: UOp(Ops.AFTER, f32, (x * 2,)),
    "a value after a store to another": lambda: UOp(
        Ops.AFTER, f32, (x * 2, UOp(Ops.STORE, dtypes.void, (x, x * 3)))
    ),
    "a store to nothing": lambda: UOp(
        Ops.SINK, dtypes.void, (UOp(Ops.STORE, dtypes.void, (UOp(Ops.INVALID, f32), x)),)
    ),
    "a store to a load": lambda: stored(lambda o, i: o.index(i).load()),
    "a store to a square root": lambda: stored(lambda o, i: o.index(i).sqrt()),
    "a store to an exchange": lambda: stored(
        lambda o, i: UOp(Ops.EXCHANGE, None, (o.index(i),), 1)
    ),
    "a store to an index after nothing": lambda: stored(
        lambda o, i: UOp(Ops.AFTER, f32, (o.index(i),))
    ),
    "a number that no call gives": lambda: stored(
        lambda o, i: o.index(i), UOp(Ops.NUMBER, f32, (), NumberArg(1 << 31))
    ),
    "an index that is a float": lambda: UOp(Ops.INDEX, f32, (x, x)) + 1,
    "a part that a tuple lacks": lambda: UOp(
        Ops.GETTUPLE, f32, (UOp(Ops.TUPLE, dtypes.void, (x, x)),), 5
    ) + 1,
    "data that is no array": lambda: UOp(Ops.DATA, f32, (), DataArg("a", (8,), None)) + 1,
    "a name that is a number": lambda: UOp(Ops.PARAM, f32, (), ParamArg(3, (8,))) + 1,
    "a kernel whose name is a number": lambda: stored(lambda o, i: o.index(i)).replace(
        arg=KernelArg(3)
    ),
    "an axis that is a word": lambda: stored(
        lambda o, i: o.index(UOp(Ops.RANGE, None, i.src, RangeArg(("a",), "loop")))
    ),
    "a tag that is a list": lambda: UOp(Ops.ADD, f32, (x, x), None, [1]),
    "nothing": lambda: UOp(Ops.NOOP, dtypes.index, (x.sum(),)),
    "nothing among values": lambda: (UOp(Ops.NOOP, dtypes.void), x + 1),
    "a substituted shape": lambda: (x.reshape(2, 4) * 2).substitute({x: uopc.param("x", (3,))}),
}


def stored(target, value=1.0):
    """A kernel that stores to what `target` makes of its argument and its loop."""
    i, o = UOp.range(8, 0), uopc.kernel_param(0, (8,), f32, "o")
    to = target(o, i)
    value = value if isinstance(value, UOp) else UOp.const(to.dtype, value)
    effect = UOp(Ops.STORE, dtypes.void, (to, value)).end(i)
    return UOp(Ops.SINK, dtypes.void, (effect,), KernelArg("k"))


def vectors(to, of, opts=""):
    """A kernel that stores to vectors (or elements) of `o` what it loads of `x`."""
    return f"""\
%1 = param o slot=0 : f32[256]
%2 = range 32 axis=0 kind=loop : index
%3 = mul %2, 8 : index
%4 = param x slot=1 : f32[256]
%5 = load %4[%3]{of}
%6 = mul %5, 2.0:f32
%7 = store %1[%3]{to}, %6
%8 = end %7, %2
sink %8 name=k{opts}"""


def kernel(**options):
    i = UOp.range(8, 0)
    return uopc.kernel_param(0, (8,), f32, "o").index(i).store(1.0).end(i)


@pytest.mark.parametrize("verify", [None, True])
@pytest.mark.parametrize("what", WRONG)
def test_a_graph_that_does_not_fit_is_refused(what, verify):
    with pytest.raises(uopc.Error):
        uopc.compile(WRONG[what](), verify=verify)


NAMES = [
    "a b", "π", 'x"', "a\nb", "\ud800", "", "k" * 10_000, "define", "memcpy", "llvm.sqrt",
    "../../up",
    "x(ptr %w, i64 %c) {\n store i64 7, ptr %w\n ret void\n}\ndefine void @unused",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_may_have_any_name(name):
    program = uopc.compile(kernel().sink(name=name))
    out = np.zeros(8, np.float32)
    program(out)
    assert out.tolist() == [1.0] * 8
    assert program.kernels[0].name.isidentifier() and len(program.kernels[0].name) < 200


def test_kernels_whose_names_become_one_are_numbered():
    o = [uopc.kernel_param(0, (8,), f32, "o"), uopc.kernel_param(1, (8,), f32, "p")]
    i = UOp.range(8, 0)
    made = [p.index(i).store(float(k)).end(i).sink(name=n) for k, (p, n) in enumerate(zip(o, "é!"))]
    names = [uopc.compile(k).kernels[0].name for k in made[:1]]
    assert names == ["_"]


GATHER = """\
%1 = param "" slot=0 : f32[4]
%2 = range 4 axis=0 kind=loop : index
%3 = param "" slot=1 : i32[4]
%4 = param "" slot=2 : f32[5]
%5 = cast %3[%2] : index
%6 = store {}
%7 = end %6, %2
sink %7 name=gather
"""


def test_an_index_from_memory_is_guarded():
    at = np.array([0, 4, 5, -1], np.int32)
    values = np.arange(1, 6, dtype=np.float32)
    out = np.full(4, 9, np.float32)
    uopc.compile(uopc.parse(GATHER.format("%1[%2], %4[%5]")))(out, at, values)
    assert out.tolist() == [1, 5, 0, 0]
    out = np.full(4, 9, np.float32)
    uopc.compile(uopc.parse(GATHER.format("%1[%5], %4[%2]")))(out, at, values)
    assert out.tolist() == [1, 9, 9, 9]


def test_constants_that_no_dtype_has():
    for make in (
        lambda: x + 10**400,
        lambda: UOp(Ops.CONST, dtypes.int32, (), "a"),
        lambda: UOp.const(f32, None),
    ):
        with pytest.raises(uopc.UserError, match="must be a number that fits"):
            make()


@pytest.mark.parametrize("t", [t for t in dtypes.ALL if t.is_float and t.bits == 8], ids=str)
def test_a_constant_of_8_bits_saturates_as_a_cast_does(t):
    for v in (np.inf, -np.inf, 1e9):
        assert UOp.const(t, v).arg == UOp.const(f32, v).cast(t).arg


def on(device):
    return UOp(Ops.PARAM, f32, (), ParamArg(f"p{device[-1]}", (8,), device=device))


n, m = uopc.variable("n", 1, 9), uopc.variable("m", 1, 9)
MESSAGES = {
    "copy: unknown device 'foo:7'": lambda: uopc.compile(UOp(Ops.COPY, f32, (x,), "foo:7")),
    "ADD: p0 is on cpu": lambda: uopc.compile(on("cpu:0") + on("cpu:1")),
    "sum: keepdims must be True or False, got 1": lambda: x.sum(0, 1),
    "std: axis 2 is out of range": lambda: x.std(2),
    "max: axis 2 is out of range": lambda: x.max(2),
    "softmax: axis 2 is out of range": lambda: x.softmax(2),
    "transpose: axis 3 is out of range": lambda: x.transpose((3,)),
    "the left has n columns, the right m rows": lambda: (
        uopc.param("s", (n,)) @ uopc.param("t", (m,))
    ),
    "the step of a slice must be a fixed integer other than 0, got n": lambda: x[::n],
    "such as uopc.dtypes.float32": lambda: uopc.param("q", (3,), np.complex64),
    "or np.float32, got 'int33'": lambda: x.cast("int33"),
    "+: expected a UOp, a number or a NumPy array, got str": lambda: x + "a",
    "//: expected a UOp, a number or a NumPy array, got list: write np.array": lambda: x // [1],
    "got complex: there are no complex numbers": lambda: x + 1j,
    "got 3: a shape of several sizes is a tuple": lambda: uopc.zeros(2, 3),
    "a masked array is not accepted": lambda: uopc.constant(np.ma.array([1, 2], mask=[0, 1])),
    "expected at most 2**60 elements": lambda: uopc.compile(uopc.param("h", (2**40, 2**40)).sum()),
    "expected at most 64": lambda: uopc.compile(x.reshape((1,) * 64 + (8,))),
    "no array has the shape": lambda: uopc.compile(
        uopc.full((uopc.variable("k", 1, 2**62),), 1.0)
    )(k=2**61),
}  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_names_the_operation_and_the_values(message):
    with pytest.raises(uopc.Error) as caught:
        MESSAGES[message]()
    assert message in str(caught.value)


def test_what_numpy_users_write():
    a = np.linspace(-2.5, 2.5, 8, dtype=np.float32)
    m = uopc.param("m", (2, 3))
    assert m.T.shape == (3, 2)
    q, r = uopc.compile(divmod(x, 2))(a)
    np.testing.assert_array_equal(q, a // 2)
    np.testing.assert_array_equal(r, a % 2)
    assert [int(v) for v in divmod(17, uopc.UOp.const(dtypes.int32, 5))] == [3, 2]
    np.testing.assert_array_equal(uopc.compile(round(x))(a), np.round(a))
    np.testing.assert_allclose(uopc.compile(round(x, 1))(a), np.round(a, 1), rtol=1e-6)
    assert +x is x


def test_an_unaligned_constant_is_copied():
    odd = np.frombuffer(bytes(range(17)), np.uint8)[1:].view(np.float64)
    assert not odd.flags.aligned
    np.testing.assert_array_equal(uopc.compile(uopc.constant(odd) * 1)(), odd)


def test_the_gate_of_a_load_stays_where_a_branch_repeats_it():
    text = """\
%1 = param "" slot=0 : f32[8]
%2 = range 8 axis=0 kind=loop : index
%3 = cmplt 3, %2 : bool
%4 = param "" slot=1 : f32[4]
%5 = add %2, -4 : index
%6 = load %4[%5], %3 : f32
%7 = where %3, %6, 9.0:f32 : f32
%8 = store %1[%2], %7
%9 = end %8, %2
sink %9 name=gated
"""
    out, given = np.zeros(8, np.float32), np.arange(4, dtype=np.float32)
    program = uopc.compile(uopc.parse(text), verify=True)
    program(out, given)
    assert out.tolist() == [9, 9, 9, 9, 0, 1, 2, 3]


_A, _B, _C = uopc.param("a", (4,)), uopc.param("b", (4,)), uopc.param("c", (5,))
_F = dtypes.float32


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: UOp(Ops.ADD, _F, (_A, _C)), "do not broadcast"),
        (lambda: UOp(Ops.ADD, _F, (UOp(Ops.MUL, _F, (_A, _B)), UOp(Ops.MUL, _F, (_C, _C)))), "5"),
        (lambda: UOp(Ops.ADD, dtypes.int32, (_A, _B)), "the dtype is int32"),
        (lambda: UOp(Ops.RESHAPE, _F, (_A + _B,), (5,)), "expected 4"),
        (lambda: UOp(Ops.SHRINK, _F, (_A + _B,), (3, 2)), "not inside"),
        (lambda: UOp(Ops.EXPAND, _F, (_A.reshape(1, 4),), (1 << 61, 4)), "2**60"),
    ],
)
def test_nodes_that_look_alike_are_all_checked(wrong, words, first):
    right = [_A + _B, (_A * _B) + (_B * _A), (_A + _B).reshape(2, 2), (_A + _B)[1:3]]
    graphs = [wrong(), *right] if first else [*right, wrong()]
    with pytest.raises(uopc.InvalidIR) as caught:
        uopc.compile(graphs)
    assert words in str(caught.value)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(("to", "of"), [("", ""), (":f32x8", ""), (":f32x8", ":f32x8")])
def test_an_address_of_several_lanes_means_neighbours(to, of, optimize):
    out, given = np.zeros(256, np.float32), np.arange(256, dtype=np.float32)
    uopc.compile(uopc.parse(vectors(to, of)), optimize=optimize)(out, given)
    want = np.zeros((32, 8), np.float32)
    rows = 2 * given.reshape(32, 8)
    want[:, : 8 if to else 1] = rows if of else rows[:, :1]
    np.testing.assert_array_equal(out, want.ravel())
