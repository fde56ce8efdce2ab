"""Graphs as flat rows, so that pickling never recurses: `load(rows(u)) is u`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uopc.ir import data
from uopc.ir.args import DataArg
from uopc.ir.dtypes import DType
from uopc.ir.node import intern
from uopc.ir.ops import Op

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

Row = tuple[str, DType, tuple[int, ...], Any, Any]


def rows(root: UOp) -> list[Row]:
    """One row a node, sources first; operands as row numbers."""
    place: dict[UOp, int] = {}
    out: list[Row] = []
    for u in root.toposort():
        place[u] = len(out)
        out.append((u.op.name, u.dtype, tuple([place[s] for s in u.src]), u.arg, u.tag))
    return out


def load(table: list[Row]) -> UOp:
    """The root of the graph that `rows` wrote."""
    nodes: list[UOp] = []
    for name, dtype, src, arg, tag in table:
        if isinstance(arg, DataArg):
            arg = data.register(arg.array)
        nodes.append(intern(Op.by_name(name), dtype, tuple([nodes[i] for i in src]), arg, tag))
    return nodes[-1]
