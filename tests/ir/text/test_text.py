"""The text form: what is printed reads back as the same node, and what is wrong is pointed at."""

from __future__ import annotations

import gc
import math
from typing import Any

import numpy as np
import pytest

from tests.effort import grows_less
from uopc.errors import InvalidIR
from uopc.ir.builder import kernel, operands
from uopc.ir.core import args, dtypes
from uopc.ir.core.args import BufferArg, KernelArg, Opt, ParamArg, ReduceArg
from uopc.ir.core.data import arrays
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.text.printer import Namer, parse, parse_header, print_graph, render, tree
from uopc.tensor import creation

F32, INDEX, VOID = dtypes.float32, dtypes.index, dtypes.void


def round_trip(u: UOp) -> str:
    text = print_graph(u)
    assert parse(text) is u, text
    return text


def lines(text: str) -> str:
    """A block of lines without its indentation and outer newlines."""
    rows = text.strip("\n").split("\n")
    margin = min(len(r) - len(r.lstrip()) for r in rows if r.strip())
    return "\n".join(r[margin:] for r in rows).rstrip()


# ---------------------------------------------------------------- examples
def row_sums() -> UOp:
    """A kernel by hand: the sums of the rows of a 4 × 8 array."""
    a, o = (creation.kernel_param(s, n, F32, x) for s, n, x in ((0, 32, "a"), (1, 4, "o")))
    i, k = kernel.range(4, 0), kernel.range(8, (1, 1), "reduce")
    total = intern(Ops.REDUCE, F32, (a.index(i * 8 + k), k), ReduceArg("add"))
    effect = o.index(i).store(total).end(i)
    return effect.sink(name="r_4_8", opts=(Opt("UNROLL", 0, 4),))


def row_sums_list() -> UOp:
    """The same as an ordered program."""
    a, o = (creation.kernel_param(s, n, F32, x) for s, n, x in ((0, 32, "a"), (1, 4, "o")))
    i, k = kernel.range(4, 0), kernel.range(8, 1)
    row = i * 8
    carry = intern(Ops.CARRY, F32, (UOp.const(F32, 0.0), k), 0)
    place = row + k
    value = a.index(place).load()
    total = carry + value
    inner = intern(Ops.END, VOID, (k, carry, total))
    store = o.index(i).store(carry.after(inner))
    outer = intern(Ops.END, VOID, (i, store))
    body = (i, row, k, carry, place, value, total, inner, store.src[1], store, outer)
    return intern(Ops.LINEAR, VOID, (a, o, *body), KernelArg("r_4_8"))


def test_tensor_level_reads_like_this() -> None:
    n = UOp.variable("n", 1, 64)
    x = creation.param("x", (n, 4))
    y = (x * 2.0).pad(((0, 1), (n, 0))).permute(1, 0).reduce("max", 1)
    assert round_trip(y) == lines("""
        %1 = variable n low=1 high=64 : index
        %2 = param x : f32[%1, 4]
        %3 = mul %2, 2.0:f32 : f32[%1, 4]
        %4 = add %1, 1 : index
        %5 = add %1, 4 : index
        %6 = pad %3 begin=(0, %1) size=(%4, %5) : f32[%4, %5]
        %7 = permute %6 (1, 0) : f32[%5, %4]
        %8 = reduce.max %7 axes=(1,) : f32[%5]
    """)


def test_kernel_level_reads_like_this() -> None:
    assert round_trip(row_sums()) == lines("""
        %1 = param o slot=1 : f32[4]
        %2 = range 4 axis=0 kind=loop : index
        %3 = param a slot=0 : f32[32]
        %4 = mul %2, 8 : index
        %5 = range 8 axis=1.1 kind=reduce : index
        %6 = add %4, %5 : index
        %7 = reduce.add %3[%6] over %5 : f32
        %8 = store %1[%2], %7
        %9 = end %8, %2
        sink %9 name=r_4_8 opts=(UNROLL(0, 4),)
    """)


def test_linear_level_is_in_order_and_indented() -> None:
    assert round_trip(row_sums_list()) == lines("""
        linear name=r_4_8 {
          %1 = param a slot=0 : f32[32]
          %2 = param o slot=1 : f32[4]
          %3 = range 4 axis=0 kind=loop : index
            %4 = mul %3, 8 : index
            %5 = range 8 axis=1 kind=loop : index
              %6 = carry 0.0:f32, %5 id=0 : f32
              %7 = add %4, %5 : index
              %8 = load %1[%7] : f32
              %9 = add %6, %8 : f32
            %10 = end %5, %6, %9
            %11 = after %6, %10 : f32
            %12 = store %2[%3], %11
          end %3, %12
        }
    """)


def test_program_level_has_a_section_a_kernel() -> None:
    sink, x = row_sums(), creation.param("x", (32,))
    b = intern(Ops.BUFFER, F32, (), BufferArg(7, (4,)))
    calls = [intern(Ops.CALL, VOID, (s, b, x)) for s in (sink, row_sums_list(), sink)]
    text = round_trip(intern(Ops.LINEAR, VOID, tuple(calls)))
    assert text.count("// kernel r_4_8\n") == 2
    assert "\n  %2 = range 4 axis=0" in text and "\n    %2 = range 4 axis=0" in text
    assert text.endswith(
        lines("""
        // program
        %20 = buffer slot=7 : f32[4]
        %21 = param x : f32[32]
        linear {
          call %10, %20, %21  // r_4_8
          call %11, %20, %21  // r_4_8
          call %10, %20, %21  // r_4_8
        }
    """)
    )


def test_list_out_of_order_and_with_repeats() -> None:
    whole = row_sums_list()
    shuffled = whole.src[::-1] + whole.src[2:5] + (UOp.const(F32, -0.0),)
    assert "let %" in round_trip(intern(Ops.LINEAR, VOID, shuffled))
    barrier = intern(Ops.BARRIER, VOID)
    text = round_trip(intern(Ops.LINEAR, VOID, (barrier, barrier)))
    assert text == "linear {\n  barrier\n  barrier\n}"
    round_trip(intern(Ops.LINEAR, VOID, ()))
    round_trip(intern(Ops.LINEAR, VOID, (whole, whole)))


def test_what_a_list_needs_but_does_not_hold() -> None:
    i = kernel.range(4, 0)
    double = i * 2
    text = round_trip(intern(Ops.LINEAR, VOID, (i, double + 1)))
    assert text == lines("""
        linear {
          %1 = range 4 axis=0 kind=loop : index
            let %2 = mul %1, 2 : index
            %3 = add %2, 1 : index
        }
    """)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-0.0, F32, "%1 = const -0.0 : f32"),
        (math.nan, dtypes.float64, "%1 = const nan : f64"),
        (-math.inf, dtypes.bfloat16, "%1 = const -inf : bf16"),
        (0.1, F32, "%1 = const 0.10000000149011612 : f32"),
        (1e-45, F32, "%1 = const 1.401298464324817e-45 : f32"),
        (2**63, dtypes.uint64, "%1 = const 9223372036854775808 : u64"),
        (-(2**100), INDEX, f"%1 = const -{2**100} : index"),
        (True, dtypes.bool_, "%1 = const true : bool"),
        ((1.0, math.nan, -0.0), F32, "%1 = const (1.0, nan, -0.0) : f32x3"),
        ((True, False), dtypes.bool_, "%1 = const (true, false) : boolx2"),
        ((7,), INDEX, "%1 = const (7,) : index"),
    ],
)
def test_constants(value: Any, dtype: DType, text: str) -> None:
    u = UOp.const(dtype, value)
    assert round_trip(u) == text
    wrapped = intern(Ops.SINK, VOID, (u, u.rtag(0), u.rtag("x")))
    assert round_trip(wrapped).count("\n") == 2


def test_constants_inside_a_line() -> None:
    values = (UOp.const(INDEX, 3), UOp.const(dtypes.bool_, False), UOp.const(F32, math.inf))
    u = intern(Ops.SINK, VOID, (*values, UOp.invalid(F32), UOp.const(INDEX, (1, 2))))
    assert round_trip(u) == "sink 3, false, inf:f32, invalid:f32, (1, 2):indexx2"


def test_index_stands_inside_its_user_once_it_is_plain() -> None:
    a, b = creation.kernel_param(0, 9, F32, "a"), creation.kernel_param(1, 9, dtypes.int64, "b")
    nested = intern(Ops.LOAD, F32, (intern(Ops.INDEX, F32, (a, b.index(1))),))
    assert round_trip(nested).splitlines()[2:] == [
        "%3 = index %1, %2[1] : f32",
        "%4 = load %3 : f32",
    ]
    wide = intern(Ops.INDEX, F32.vec(4), (a, UOp.const(INDEX, 0)))
    assert "load %1[0]:f32x4 : f32x4" in round_trip(intern(Ops.LOAD, F32.vec(4), (wide,)))
    assert "index %1, 0 tag=5" in round_trip(wide.rtag(5).load())


def test_a_size_that_is_computed_first_and_a_node_later():
    """A type was remembered with the expression that stood for the size before it had a name."""
    n = UOp.variable("n", 1, 64)
    a, b = creation.param("a", (n,)), creation.param("b", (1,))
    graph = a.cat(b) + creation.param("c", (n + 1,))
    assert parse(print_graph(graph)) is graph


@pytest.mark.parametrize("flag", [False, True])
def test_flags_of_primitives_are_integers(flag: bool) -> None:
    x = creation.param("x", (3, 3))
    q, r = x.qr("complete" if flag else "reduced")
    for graph in (x.solve_triangular(x, unit_diagonal=flag), q, r):
        assert parse(print_graph(graph)) is graph


def test_a_dimension_that_is_not_in_the_graph_is_an_expression() -> None:
    x = creation.param("x", (UOp.variable("n", 1, 64), 3))
    assert round_trip(x.cat(x, axis=0)).endswith("cat %2, %2 axis=0 : f32[(n*2), 3]")


def test_data_is_found_by_hash_or_given() -> None:
    array = np.array([1.5, 2.5, 1e9], "f4")
    text = round_trip(operands.constant(array))
    key = arrays.register(array).key
    assert text == f"%1 = data @{key} : f32[3]"
    gc.collect()
    with pytest.raises(InvalidIR, match=f"line 1.*array {key} is not loaded"):
        parse(text)
    assert parse(text, {key: array.copy()}) is operands.constant(array)
    gc.collect()
    with pytest.raises(InvalidIR, match="has the content hash"):
        parse(text, {key: array + 1})
    kept = arrays.register(array)
    with pytest.raises(InvalidIR, match="holds float32, not float64"):
        parse(text.replace("f32", "f64"))
    assert kept.key == key


def test_broken_graphs_print_and_read_back() -> None:
    x, y = creation.param("x", (3,)), creation.param("y", (4,))
    bad = intern(Ops.ADD, dtypes.float64, (x, y))
    assert round_trip(intern(Ops.NEG, dtypes.float64, (bad,))).splitlines()[2:] == [
        "%3 = add %1, %2 : f64[?]!",
        "%4 = neg %3 : f64[?]",
    ]
    round_trip(intern(Ops.RESHAPE, F32, (x, y), (1, 2)))
    round_trip(intern(Ops.PERMUTE, F32, (x,), (4,)))
    round_trip(intern(Ops.PARAM, F32, (bad,), ParamArg("p", (None, 3))))
    assert "f32[4:index, 3]" in round_trip(
        intern(Ops.PARAM, F32, (UOp.const(INDEX, 4),), ParamArg("p", (None, 3)))
    )


def test_function_call_and_tuple() -> None:
    p = creation.kernel_param(0, (3,), F32, "p")
    body = intern(Ops.FUNCTION, VOID, (p * 2.0, p + p), args.FunctionArg("twice", True))
    call = intern(Ops.CALL, VOID, (body, creation.param("x", (3,))))
    got = intern(Ops.GETTUPLE, F32, (call,), 1)
    text = round_trip(got)
    assert "function %2, %3 name=twice precompile=true" in text
    assert "gettuple %6 item=1 : f32[3]" in text


# ---------------------------------------------------------------- names, headers, comments
def test_a_node_keeps_its_name_through_stages() -> None:
    x, y = creation.param("x", (3,)), creation.param("y", (3,))
    names = Namer()
    first, later = x * y, (x * y) + x
    print_graph(first, names)
    text = print_graph(later, names)
    assert text.splitlines()[-1] == "%4 = add %3, %1 : f32[3]"
    assert parse(text) is later
    better = x + y
    names.hand_on(later, better)
    assert print_graph(better, names).endswith("%4 = add %1, %2 : f32[3]")
    assert names.name(later) == "%5"
    assert print_graph(first, names) == print_graph(first, names)


def test_header_and_comments() -> None:
    header = "// level: kernel\n// A line that: teaches.\n\n// pass: simplify\n"
    text = header + "%a = param x : f32 // n: 1\n"
    assert parse_header(text) == {"level": "kernel", "pass": "simplify"}
    assert parse(text) is creation.param("x", ())
    assert parse_header("%a = param x : f32\n// level: kernel") == {}


def test_text_by_hand_may_leave_types_out_and_choose_names() -> None:
    n = UOp.variable("n", 1, 9)
    x = creation.param("x", (n, 2))
    text = """
    %n = variable n low=1 high=9
    %m = variable n low=1 high=9
    %x=param x : float32[%m,2]
    %y = add %x, 1.0:f32
    %z = reshape %y (2, %n) : f32[2,%n]
    """
    assert parse(text) is intern(Ops.RESHAPE, F32, (x + 1.0, n), (2, None))


# ---------------------------------------------------------------- errors
ERRORS = [
    ("", 1, "", "the text has no nodes"),
    ("%1 = foo : f32", 1, "foo", "expected an op, got foo"),
    ("%1 = param x : f31", 1, "f31", "expected a dtype, got f31"),
    ("%1 = param x", 1, "param", "expected a type with dimensions"),
    ("%1 = param x : f32[%2]", 1, "f32[", "a dimension defined above, got %2"),
    ("%1 = param x lot=3 : f32", 1, "param", "ParamArg has no field 'lot'"),
    ("%1 = param x slot=a : f32", 1, "param", "slot must be int, got a"),
    ("%1 = param x %1 : f32", 1, "%1 :", "an operand defined above, got %1"),
    ("%1 = param x : f32[3]\n%2 = param y %1 : f32", 2, "param", "param takes no operands"),
    ("%1 = range 8 axis=0 kind=lop", 1, "range", "kind must be one of loop, reduce"),
    ("%1 = range 8 kind=loop", 1, "range", "expected axis="),
    ("%1 = range 8 axis=0.x kind=loop", 1, "0.", "expected an axis such as 0 or 0.1"),
    ("%1 = param x : f32[3]\n%2 = add %1, %3 : f32[3]", 2, "%3", "defined above, got %3"),
    ("%1 = param x : f32[3]\n%2 = add %1 : f32[3]", 2, "add", "takes 2 operands, got 1"),
    ("%1 = param x : f32[3]\n%2 = add %1, 2.0 : f32[3]", 2, "2.0", "a float needs a dtype"),
    ("%1 = param x : f32[3]\n%2 = add %1, 2.5:i32 : f32[3]", 2, "2.5", "2.5 is not a value of i32"),
    ("%1 = const 256 : u8", 1, "const", "256 is not a value of u8"),
    ("%1 = param x : f32[3]\n%2 = neg %1 : f32[4]", 2, "f32[4]", "the operands give f32[3]"),
    ("%1 = param x : f32[3]\n%2 = neg %1 : f64[3]", 2, "f64", "but the operands give f32[3]"),
    ("%1 = param x : f32[3]\n%2 = mul %1, 1 : f32[3]", 2, "f32", "but an operand is index"),
    ("%1 = param x : f32[3]\n%2 = neg %1 : f32[3]!", 2, "f32[3]!", "the operands give f32[3]"),
    ("%1 = param x : f32[3]\n%1 = param y : f32[3]", 2, "%1", "%1 is defined above as another"),
    ("%1 = param x : f32[3]\n%2 = neg %1 axis=1 : f32[3]", 2, "neg", "neg takes no field 'axis'"),
    ("%1 = param x : f32[3]\n%2 = neg %1 (1, 2) : f32[3]", 2, "neg", "no tuple of dimensions"),
    ("%1 = param x : f32[3]\n%2 = neg %1 over %1 : f32[3]", 2, "neg", "neg takes no 'over'"),
    ("%1 = param x : f32[3]\n%2 = neg.add %1 : f32[3]", 2, "neg", "neg takes no suffix .add"),
    ("%1 = param x : f32[3]\n%2 = reduce %1 axes=(0,) : f32", 2, "reduce", "such as .add"),
    ("%1 = param x : f32[3]\n%2 = reduce.sub %1 axes=(0,)", 2, "reduce", "op must be one of add"),
    ("%1 = param x : f32[3]\n%2 = reshape %1 (3, : f32[3]", 2, " : f32[3]", "expected a value"),
    ("%1 = param x : f32[3]\n%2 = reshape %1 : f32[3]", 2, "reshape", "expected a tuple such as"),
    ("%1 = param x : f32[3]\n%2 = pad %1 begin=(1,) size=(4, 5)", 2, "pad", "1 begins but 2 sizes"),
    ("%1 = param x : f32[3]\n%2 = lane %1 : f32", 2, "lane", "lane: expected at=..."),
    ("%1 = param x : f32x0[3]", 1, "f32x0", "a vector has at least one lane, got f32x0"),
    ("%1 = param x : f32[3]\n%2 = neg %1 tag=1 tag=2 : f32[3]", 2, "tag=2", "tag is given twice"),
    ("%1 = param x : f32[3]\n%2 = neg %1 & %1 : f32[3]", 2, "&", "unexpected '&'"),
    ("%1 = param x : f32[3]\n%2 = neg %1 %1 : f32[3]", 2, "%1 :", "expected a field or the end"),
    ("%1 = param x : f32[3]\n%2 = store %1[0, 1.0:f32", 2, "", "expected ']', got the end"),
    ("%1 = noop tag=opaque(x) : f32", 1, "(x)", "an opaque value cannot be parsed"),
    ("sink tag=" + "(" * 60, 1, "", "values nest deeper than 50"),
    ("barrier\nsink", 1, "", "only the last statement needs none"),
    ("let %1 = barrier", 1, "let", "inside a block"),
    ("linear {\n  barrier", 1, "", "expected '}' that closes this block"),
    ("linear {\n  linear {\n", 2, "{", "blocks do not nest"),
    ("}", 1, "}", "'}' closes nothing"),
    ("linear {\n  %7\n}", 2, "%7", "in a block, a node; got %7"),
    ("%1 = data x : f32", 1, "x :", "operands, fields or the end, got x"),
    ("%1 = data : f32", 1, "data", "expected the content hash of an array"),
    ("hello world", 1, "hello", "expected an op"),
    ("-> 3", 1, "->", "expected a statement"),
]


@pytest.mark.parametrize(("text", "number", "at", "message"), ERRORS)
def test_errors_show_the_line_and_point_at_the_column(
    text: str, number: int, at: str, message: str
) -> None:
    with pytest.raises(InvalidIR) as caught:
        parse(text)
    said = str(caught.value)
    place, shown, caret = said.split("\n")
    assert message in place
    assert place.startswith(f"line {number}, column ")
    line = (text.split("\n") or [""])[number - 1]
    assert shown == "  " + line
    column = int(place.split("column ")[1].split(":")[0]) - 1
    assert caret == "  " + " " * column + "^"
    if at:
        assert line[column:].startswith(at), said


# ---------------------------------------------------------------- deep and large
def deep_chain(length: int) -> UOp:
    x = creation.param("x", (3,))
    u = x
    for i in range(length):
        u = intern(Ops.MUL if i % 2 else Ops.ADD, F32, (u, x))
    return u


@pytest.mark.slow
def test_deep_chain_is_linear() -> None:
    u = deep_chain(100_000)
    assert grows_less(round_trip, deep_chain(25_000), u, 10)  # were it the square, 16
    text = print_graph(u)
    assert text.count("\n") == 100_000
    assert len(tree(u).split("\n")) < 100
    assert len(render(u)) == 1 + 4 * 100_000


def test_wide_sink_and_many_loops() -> None:
    a = creation.kernel_param(0, 30_000, F32)
    ends = [a.index(r).store(0.0).end(r) for r in (kernel.range(9, i) for i in range(10_000))]
    narrow, wide = [intern(Ops.SINK, VOID, tuple(ends[:n])) for n in (2_500, 10_000)]
    assert grows_less(round_trip, narrow, wide, 10)  # were it the square, 16


def test_shared_expression_does_not_explode() -> None:
    u = UOp.variable("n", 1, 9) * 1
    for _ in range(100):
        u = intern(Ops.ADD, INDEX, (u, u))
    assert render(u) == print_graph(u)
    round_trip(intern(Ops.EXPAND, F32, (UOp.const(F32, 1.0), u), (None,)))


# ---------------------------------------------------------------- tree and infix
def test_tree_shows_shared_nodes_once() -> None:
    x = creation.param("x", (3,))
    assert tree((x * x).reduce("add") + x) == lines("""
        add : f32[3]
          reduce.add axes=(0,) : f32
            mul : f32[3]
              %1 = param x : f32[3]
              %1
          %1
    """)
    assert tree(kernel.range(4, (0, 1))) == "range 4 axis=0.1 kind=loop : index"
    n = UOp.variable("n", 1, 9)
    assert tree(creation.param("y", (n, 2))).split("\n")[0] == "param y : f32[n, 2]"


def test_tree_of_a_large_graph_ends_in_a_summary() -> None:
    u = deep_chain(500)
    rows = tree(u).split("\n")
    assert rows[0] == "mul : f32[3]"
    assert rows[-1] == "… 441 more nodes"
    assert deep_chain(20_000).tree().endswith("more nodes")


@pytest.mark.parametrize(("build", "text"), [
    (lambda x, n: x + 1, "<UOp ADD float32 (3, n)>"),
    (lambda x, n: x, "<UOp PARAM float32 (3, n): x>"),
    (lambda x, n: x[0], "<UOp RESHAPE float32 (n)>"),
    (lambda x, n: x.sum(), "<UOp REDUCE float32 ()>"),
    (lambda x, n: n, "<UOp VARIABLE index (): n>"),
    (lambda x, n: n * 2 + 1, "<UOp ADD index (): ((n*2)+1)>"),
    (lambda x, n: UOp.const(F32, 2.0), "<UOp CONST float32 (): 2.0>"),
    (lambda x, n: operands.constant([1, 2]), "<UOp DATA int64 (2)>"),
    (lambda x, n: intern(Ops.STORE, VOID, (x, x)), "<UOp STORE void>"),
    (lambda x, n: intern(Ops.ADD, F32, (x, operands.constant([1, 2]))), "<UOp ADD float32 (?)>"),
    (lambda x, n: deep_chain(20_000), "<UOp MUL float32 (3)>"),
    (lambda x, n: intern(Ops.PARAM, F32, (), ParamArg("a\nb", (2,))),
     '<UOp PARAM float32 (2): "a\\nb">'),
])  # fmt: skip
def test_a_repr_is_one_short_line(build: Any, text: str) -> None:
    n = UOp.variable("n", 1, 9)
    assert repr(build(creation.param("x", (3, n)), n)) == text


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda a, b: intern(Ops.ADD, INDEX, (a, intern(Ops.MUL, INDEX, (b, c(4))))), "(a+(b*4))"),
        (lambda a, b: intern(Ops.ADD, INDEX, (intern(Ops.MUL, INDEX, (c(3), c(5))), c(2))),
         "((3*5)+2)"),
        (lambda a, b: intern(Ops.FLOORMOD, INDEX, (a, c(-3))), "(a%-3)"),
        (lambda a, b: less(a, b).where(a, b), "(a if (a<b) else b)"),
        (lambda a, b: intern(Ops.MAX, INDEX, (a, b)), "max(a, b)"),
        (lambda a, b: intern(Ops.NEG, dtypes.bool_, (less(a, b),)), "(not (a<b))"),
        (lambda a, b: kernel.range(8, (2, 1)), "r2_1"),
        (lambda a, b: intern(Ops.SPECIAL, INDEX, (c(8),), "gidx0"), "gidx0"),
        (lambda a, b: a.cast(F32), "float32(a)"),
        (lambda a, b: creation.kernel_param(0, 8, F32, "p").index(a).load(), "p[a]"),
        (lambda a, b: UOp.const(F32, 2), "2.0"),
        (lambda a, b: UOp.const(dtypes.bool_, True), "True"),
        (lambda a, b: intern(Ops.STACK, INDEX.vec(2), (c(0), a)), "{0,a}"),
    ],
)  # fmt: skip
def test_infix(build: Any, text: str) -> None:
    u = build(UOp.variable("a", 0, 9), UOp.variable("b", 0, 9))
    assert render(u) == text


def less(a: UOp, b: UOp) -> UOp:
    return intern(Ops.CMPLT, dtypes.bool_, (a, b))


def c(value: int) -> UOp:
    return UOp.const(INDEX, value)


def test_what_has_no_infix_form_prints_as_str() -> None:
    u = creation.param("x", (3,)).reduce("add") + 1.0
    assert render(u) == str(u) == print_graph(u)
