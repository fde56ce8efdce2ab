"""Graphs as flat rows, so that pickling never recurses: `load(rows(u)) is u`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uopc.ir.core import arrays as data
from uopc.ir.core.args import DataArg
from uopc.ir.core.dtypes import DType
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Op

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

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
