"""Recorded nodes to uopc nodes, one to one. Nothing is computed or simplified here.

`NODES` is the tensor vocabulary; `KERNEL_NODES` that of hand-written kernels. A BUFFER becomes a
PARAM named in{slot}, so that what the graph stores to is seen in the array that was passed. A
FUNCTION becomes CALL(FUNCTION), a KERNEL becomes CALL(SINK), with PARAMs by slot inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from uopc.ir.builder import alu, leaves, operands
from uopc.ir.core import dtypes, uop
from uopc.ir.core.args import (
    AxisKind,
    BufferArg,
    FunctionArg,
    KernelArg,
    ParamArg,
    RangeArg,
    ReduceArg,
    VariableArg,
)  # fmt: skip
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp

Record = dict[str, Any]
Sources = tuple[UOp, ...]


@dataclass
class Graph:
    """A loaded case: what was asked for, its storage, and the variables with their values."""

    outputs: list[UOp] = field(default_factory=list)
    params: list[UOp] = field(default_factory=list)
    variables: dict[UOp, int | None] = field(default_factory=dict)
    device: str = "cpu"


def load(case: Record, device: str = "cpu") -> Graph:
    """The graph of a case on a device. NotImplementedError where the table has no row."""
    graph = Graph(device=device)
    made = _Body(graph, NODES).load(case["nodes"])
    graph.outputs = [made[i] for i in case["outs"]]
    return graph


class _Body:
    """The nodes of one body as they are made: a record's id is its place."""

    def __init__(self, graph: Graph, rows: Mapping[str, Row]) -> None:
        self.graph, self.rows = graph, rows
        self.made: list[UOp] = []

    def load(self, records: Sequence[Record]) -> list[UOp]:
        for record in records:
            row = self.rows.get(record["op"])
            if row is None:
                raise NotImplementedError(f"the loader has no row for {record['op']}")
            src = tuple([self.made[s] for s in record["src"]])
            self.made.append(row(self, record, dtypes.by_name(record["dtype"]), src))
        return self.made

    def dims(self, *shapes: Sequence[Any]) -> tuple[tuple[int | None, ...], Sources]:
        """Dimensions as an arg with holes, and the symbolic ones as sources."""
        given = [self.made[d["n"]] if isinstance(d, dict) else d for s in shapes for d in s]
        return leaves.split_dims(tuple([operands.as_dim(d) for d in given]))


Row = Callable[[_Body, Record, DType, Sources], UOp]


def _node(op: Op, dtype: DType, src: Sources = (), arg: Any = None) -> UOp:
    """UOp(op, dtype, src, arg), typed."""
    return uop.checked(op, dtype, src, arg, None)


# ---------------------------------------------------------------- leaves
def _buffer(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    param = _node(Ops.PARAM, dtype, (), ParamArg(f"in{r['arg']['slot']}", (r["arg"]["size"],)))
    body.graph.params.append(param)
    return param


def _const(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    value = r["arg"]["value"]
    return _node(Ops.CONST, dtype, (), float(value) if dtype.is_float else value)


def _variable(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    a = r["arg"]
    made = _node(Ops.VARIABLE, dtype, (), VariableArg(a["name"], a["min"], a["max"]))
    body.graph.variables[made] = a["value"]
    return made


def _slot(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    slot = r["arg"]["slot"]
    arg, symbolic = body.dims(r["shape"])
    return _node(Ops.PARAM, dtype, symbolic, ParamArg(f"arg{slot}", arg, slot))


# ---------------------------------------------------------------- values
def _same(op: Op) -> Row:
    """Operands and dtype say it all."""
    return lambda body, r, dtype, src: _node(op, dtype, src)


def _elementwise(op: Op) -> Row:
    """Dimensions are kept in the normal form of index arithmetic, as every uopc dimension is."""

    def row(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
        if dtype is dtypes.index:
            return alu.alu(src[0], op, *src[1:])
        return _node(op, dtype, src)

    return row


def _shaped(op: Op, *keys: str) -> Row:
    """Movement whose arg is a list of dimensions."""

    def row(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
        arg, symbolic = body.dims(*[r["arg"][k] for k in keys])
        return _node(op, dtype, (*src, *symbolic), arg)

    return row


def _expand(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    arg, symbolic = body.dims(r["shape"])
    return _node(Ops.EXPAND, dtype, (*src, *symbolic), arg)


def _axes(op: Op) -> Row:
    return lambda body, r, dtype, src: _node(op, dtype, src, tuple(r["arg"]["axes"]))


def _reduce(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    arg = ReduceArg(r["arg"]["op"].lower(), tuple(r["arg"]["axes"]))
    return _node(Ops.REDUCE, dtype, src, arg)


def _copy(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    """Devices are recorded by number; here all of a case is on one."""
    return _node(Ops.COPY, dtype, src, body.graph.device)


# ---------------------------------------------------------------- calls
def _function(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    made = _Body(body.graph, NODES).load(r["arg"]["body"])
    outs = tuple([made[i] for i in r["arg"]["outs"]])
    function = _node(Ops.FUNCTION, dtypes.void, outs, FunctionArg("", bool(r["arg"]["precompile"])))
    return _node(Ops.CALL, dtypes.void, (function, *src))


def _part(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    return _node(Ops.GETTUPLE, dtype, src, r["arg"]["index"])


def _kernel(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    made = _Body(body.graph, KERNEL_NODES).load(r["arg"]["body"])
    roots = tuple([made[i] for i in r["arg"]["sink"]])
    sink = _node(Ops.SINK, dtypes.void, roots, KernelArg(USER_KERNEL))
    return _node(Ops.CALL, dtypes.void, (sink, *src))


def _local(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    arg = BufferArg(r["arg"]["slot"], tuple(r["shape"]), "", r["arg"]["space"].lower())
    return _node(Ops.BUFFER, dtype, (), arg)


def _range(body: _Body, r: Record, dtype: DType, src: Sources) -> UOp:
    kind: AxisKind = "reduce" if r["arg"]["axis"] == "REDUCE" else "loop"
    end = _node(Ops.CONST, dtype, (), r["arg"]["end"])
    return _node(Ops.RANGE, dtype, (end,), RangeArg(tuple(r["arg"]["id"]), kind))


USER_KERNEL: Final = "user_kernel"

_ELEMENTWISE: Final = (
    Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL, Ops.NEG, Ops.TRUNC,
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.POW, Ops.CDIV, Ops.CMOD, Ops.FLOORDIV,
    Ops.FLOORMOD, Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR, Ops.THREEFRY,
    Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.WHERE, Ops.MULACC,
)  # fmt: skip

# fmt: off
_VALUES: Final[dict[str, Row]] = {
    "CONST":               _const,
    "INVALID":             _same(Ops.INVALID),
    "VAR":                 _variable,
    **{op.name.upper():    _elementwise(op) for op in _ELEMENTWISE},
    "CAST":                _same(Ops.CAST),
    "BITCAST":             _same(Ops.BITCAST),
    "RESHAPE":             _shaped(Ops.RESHAPE, "shape"),
    "EXPAND":              _expand,
    "PERMUTE":             _axes(Ops.PERMUTE),
    "FLIP":                _axes(Ops.FLIP),
    "PAD":                 _shaped(Ops.PAD, "begin", "size"),
    "SHRINK":              _shaped(Ops.SHRINK, "begin", "size"),
    "STACK":               _same(Ops.STACK),
    "REDUCE":              _reduce,
    "STORE":               _same(Ops.STORE),
    "AFTER":               _same(Ops.AFTER),
    "PARAM":               _slot,
}
NODES: Final[dict[str, Row]] = _VALUES | {
    "BUFFER":              _buffer,
    "CONTIGUOUS":          _same(Ops.CONTIGUOUS),
    "CONTIGUOUS_BACKWARD": _same(Ops.CONTIGUOUS_BACKWARD),
    "DETACH":              _same(Ops.DETACH),
    "COPY":                _copy,
    "FUNCTION":            _function,
    "GETTUPLE":            _part,
    "KERNEL":              _kernel,
}
KERNEL_NODES: Final[dict[str, Row]] = _VALUES | {
    "BUFFER":              _local,
    "RANGE":               _range,
    "INDEX":               _same(Ops.INDEX),
    "LOAD":                _same(Ops.LOAD),
    "END":                 _same(Ops.END),
    "GROUP":               _same(Ops.GROUP),
}
# fmt: on


def copies(case: Record) -> int:
    """The number of COPYs that a case records, those in functions too."""
    count, waiting = 0, [case["nodes"]]
    while waiting:
        for r in waiting.pop():
            count += r["op"] == "COPY"
            if r["op"] == "FUNCTION":
                waiting.append(r["arg"]["body"])
    return count


def recorded_floats(case: Record) -> set[str]:
    """The float dtypes of a case's nodes, those of function bodies too."""
    found: set[str] = set()
    waiting = [case["nodes"]]
    while waiting:
        for r in waiting.pop():
            if dtypes.by_name(r["dtype"]).is_float:
                found.add(r["dtype"])
            if r["op"] == "FUNCTION":
                waiting.append(r["arg"]["body"])
    return found
