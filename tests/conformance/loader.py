"""Recorded nodes to uopc nodes, one to one. Nothing is computed or simplified here.

`NODES` is the tensor vocabulary, `KERNEL_NODES` what bodies of hand-written kernels add to it.
Every BUFFER becomes a PARAM named in{slot}, so what the graph stores to is seen in the array that
was passed. A FUNCTION becomes CALL(FUNCTION), a KERNEL CALL(SINK), with PARAMs by slot inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from uopc.ir import build, dtypes
from uopc.ir.args import (
    BufferArg, FunctionArg, KernelArg, ParamArg, RangeArg, ReduceArg, VariableArg,
)  # fmt: skip
from uopc.ir.dtypes import DType
from uopc.ir.node import intern
from uopc.ir.ops import Op, Ops
from uopc.ir.uop import UOp

Record = dict[str, Any]
Sources = tuple[UOp, ...]


@dataclass
class Graph:
    """A loaded case: what was asked for, the storage by slot, and the values of variables."""

    outputs: list[UOp]
    params: dict[int, UOp] = field(default_factory=dict)
    variables: dict[str, int | None] = field(default_factory=dict)
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    effects: int = 0  # COPYs, for the kernel tally

    def __post_init__(self) -> None:
        self.copies = 0


class _Table:
    """The nodes of one body as they are made: ids in order."""

    def __init__(self, graph: Graph, rows: Mapping_, in_function: bool = False) -> None:
        self.graph, self.rows, self.in_function = graph, rows, in_function
        self.made: list[UOp] = []

    def load(self, records: Sequence[Record]) -> list[UOp]:
        for record in records:
            src = tuple([self.made[s] for s in record["src"]])
            row = self.rows.get(record["op"])
            if row is None:
                raise NotImplementedError(f"the loader has no row for {record['op']}")
            self.made.append(row(self, record, dtypes.by_name(record["dtype"]), src))
        return self.made

    def dims(self, *shapes: Sequence[Any]) -> tuple[tuple[int | None, ...], Sources]:
        """Dimensions as an arg with holes, and the symbolic ones as sources."""
        given = [self.made[d["n"]] if isinstance(d, dict) else d for s in shapes for d in s]
        return build.split_dims(tuple([build.as_dim(d) for d in given]))
