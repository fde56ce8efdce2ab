"""Random graphs, values and damaged text: what is printed reads back, and the rest is refused."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ir.text.test_text import F32, INDEX, VOID, round_trip, row_sums, row_sums_list
from uopc.errors import InvalidIR
from uopc.ir.core import args, dtypes
from uopc.ir.core.args import BufferArg, DataArg, Opt, ParamArg, RangeArg
from uopc.ir.core.data import arrays
from uopc.ir.core.dtype_rules import derived
from uopc.ir.core.dtypes import DType
from uopc.ir.core.levels import Level
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.text.literals import TokenReader, write_value
from uopc.ir.text.printer import Namer, parse, print_graph, render, tree
from uopc.tensor import creation


# ---------------------------------------------------------------- random graphs
def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values_of(h) for h in inner])
    if origin is tuple:
        return st.lists(values_of(inner[0]), max_size=3).map(tuple)
    if hint is Opt:
        return record_of(Opt)
    return {
        int: st.integers(-(2**40), 2**40), bool: st.booleans(), str: strings, type(None): st.none(),
    }[hint]  # fmt: skip


def record_of(cls: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{f.name: values_of(hints[f.name]) for f in dataclasses.fields(cls)})


strings = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["none", "true", "nan", "over", "tag", " : ", " // ", '"', "\\", "a\nb", "x"]),
)
tags = st.recursive(
    st.one_of(st.integers(), strings, st.booleans(), st.none(), st.floats(allow_nan=False)),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)
element_types = st.sampled_from([t for t in dtypes.ALL if t is not VOID])
scalars = st.one_of(st.integers(-(2**70), 2**70), st.booleans(), st.floats())
_ARRAYS = [arrays.register(np.arange(n, dtype=t)) for n, t in ((0, "i4"), (3, "f4"), (5, "f8"))]


@st.composite
def arg_of(draw: Any, op: Op, operands: int) -> Any:
    """An arg of a type that the op's row allows."""
    cls = draw(st.sampled_from(op.arg))
    if cls is type(None):
        return None
    if op.shape in ("arg", "expand", "pad", "shrink") or cls is tuple:
        fixed = draw(st.lists(st.integers(0, 5), max_size=4))
        holes = [None] * draw(st.sampled_from([max(0, operands - 1), operands, 0]))
        dims = draw(st.permutations(fixed + holes))
        return tuple(dims)
    if cls is DataArg:
        return draw(st.sampled_from(_ARRAYS))
    if cls is ParamArg or cls is BufferArg:
        dims = (*([None] * operands), *draw(st.lists(st.integers(0, 5), max_size=2)))
        return dataclasses.replace(draw(record_of(cls)), dims=draw(st.sampled_from([dims, (2,)])))
    if cls is RangeArg:
        axis = st.lists(st.integers(0, 99), min_size=1, max_size=3).map(tuple)
        return RangeArg(draw(axis | st.just((-1, 2)) | st.just(())), draw(values_of(args.AxisKind)))
    return draw(record_of(cls) if dataclasses.is_dataclass(cls) else values_of(cls))


def fits(op: Op, src: tuple[UOp, ...], arg: Any) -> bool:
    """True if the op's rule gives a dtype for these operands."""
    try:
        derived(op, None, src, arg)
    except InvalidIR:
        return False
    return True


@st.composite
def node_on(draw: Any, pool: list[UOp], op: Op) -> UOp:
    """A node of the op on operands from the pool: well-formed, though seldom meaningful."""
    low, high = op.arity
    count = draw(st.integers(low, low + 3 if high is None else high))
    count = count if pool else 0
    src = (
        tuple(draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count))) if pool else ()
    )
    tag = draw(st.one_of(st.none(), st.none(), st.none(), tags))
    lanes = draw(st.sampled_from([1, 1, 1, 2, 4]))
    dtype = draw(element_types)
    if op is Ops.CONST:
        many = st.lists(scalars, min_size=1, max_size=3).map(tuple)
        return UOp.const(dtype, draw(finite(dtype, scalars) | finite(dtype, many))).rtag(tag)
    arg = draw(arg_of(op, len(src)))
    if op is Ops.DATA:
        dtype = dtypes.from_numpy(arg.array.dtype)
    elif fits(op, src, arg) and draw(st.booleans()):
        return UOp(op, None, src, arg, tag)
    return UOp(op, dtype if op is Ops.DATA else dtype.vec(lanes), src, arg, tag)


def finite(dtype: DType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Without what index and float16 constants cannot be made of."""

    def fits(v: Any) -> bool:
        parts = v if isinstance(v, tuple) else (v,)
        return not (
            dtype is INDEX and any(isinstance(p, float) and not math.isfinite(p) for p in parts)
        )

    return values.filter(fits)


@st.composite
def graphs(draw: Any, level: Level) -> UOp:
    """A graph of up to 20 nodes of the ops of a level."""
    ops = [op for op in Op.all() if op.levels & level]
    leaves = [op for op in ops if op.arity[0] == 0]
    pool: list[UOp] = []
    for _ in range(draw(st.integers(1, 20))):
        pool.append(draw(node_on(pool, draw(st.sampled_from(ops if pool else leaves)))))
    ends = pool[-draw(st.integers(1, 3)) :]
    if len(ends) == 1:
        return ends[0]
    joined = Ops.LINEAR if level & (Level.LINEAR | Level.PROGRAM) else Ops.SINK
    return intern(joined, VOID, tuple(draw(st.permutations(pool)) if draw(st.booleans()) else ends))


@pytest.mark.parametrize("level", list(Level), ids=lambda level: level.text)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.few(2)
def test_random_graphs_round_trip(level: Level, data: Any) -> None:
    u = data.draw(graphs(level))
    names = Namer()
    text = print_graph(u, names)
    assert parse(text) is u, text
    assert print_graph(u, names) == text
    assert tree(u) and render(u)
    assert re.fullmatch(r"<UOp [^\n]{1,2000}>", repr(u))


@pytest.mark.parametrize("op", Op.all(), ids=lambda op: op.name)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.few(10)
def test_every_op_round_trips(op: Op, data: Any) -> None:
    x, n = creation.param("x", (4, 6)), UOp.variable("n", 1, 6)
    assert round_trip(data.draw(node_on([x, n, UOp.const(INDEX, 2), x.rtag("t")], op)))


@settings(max_examples=200, deadline=None)
@given(tags)
def test_values_round_trip(value: Any) -> None:
    text = write_value(value)
    read = TokenReader(text, 1, 0, len(text)).value()
    assert read == value and repr(read) == repr(value)


def tensor_graph() -> UOp:
    """Movement with symbolic dimensions, a reduction, a vector constant, tags."""
    n = UOp.variable("n", 1, 64)
    x = creation.param("x", (n, 4))
    y = (x * 2.0).pad(((0, 1), (n, 0))).permute(1, 0).reduce("max", 1).rtag((1, "a b"))
    return intern(Ops.SINK, VOID, (y, x.cat(x, axis=0), UOp.const(F32, (1.0, -0.0))))


CALL = intern(Ops.CALL, VOID, (row_sums(), creation.buffer((4,), F32), creation.param("x", (32,))))
PROGRAM = intern(Ops.LINEAR, VOID, (CALL,))
SOURCES = [print_graph(u) for u in (row_sums(), row_sums_list(), tensor_graph(), PROGRAM)]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(SOURCES),
    st.integers(0, 10_000),
    st.integers(0, 6),
    st.text(max_size=3)
    | st.sampled_from(
        [
            "%1",
            "[",
            "]",
            "(",
            ")",
            ",",
            " : ",
            "=",
            "{",
            "}",
            "9" * 5000,
            "let ",
            "nan",
            "arg=",
            "f32",
            "!",
            "@",
            ".",
            "over",
            "invalid",
            "1.5",
            "opaque(",
        ]
    ),
)
def test_damaged_text_is_refused_or_read(text: str, at: int, cut: int, put: str) -> None:
    at %= len(text)
    damaged = text[:at] + put + text[at + cut :]
    try:
        u = parse(damaged)
    except InvalidIR as error:
        assert str(error).startswith("line "), error
    else:
        assert parse(print_graph(u)) is u


def test_a_shape_behind_invalid() -> None:
    nothing = intern(Ops.INVALID, dtypes.index)
    for op, source in ((Ops.RESHAPE, nothing), (Ops.EXPAND, nothing)):
        for dims in ((), (1,), (1, 1)):
            graph = intern(op, dtypes.index, (source,), dims)
            assert parse(print_graph(graph)) is graph
