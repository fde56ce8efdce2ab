"""Graphs as flat rows, so that pickling never recurses: `load(rows(u)) is u`."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy.typing as npt

from uopc.ir.core import walk
from uopc.ir.core.args import DataArg
from uopc.ir.core.constants import arg_text
from uopc.ir.core.data import arrays, files
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern

Row = tuple[str, DType, tuple[int, ...], Any, Any]


def rows(root: UOp) -> list[Row]:
    """A row per node, sources first, with operands as row numbers. For an array in a file: its
    place."""
    place: dict[UOp, int] = {}
    out: list[Row] = []
    for u in root.toposort():
        place[u] = len(out)
        arg = u.arg
        if isinstance(arg, DataArg):
            found = files.placed(arg.array)
            arg = arg if found is None else found[0]
        out.append((u.op.name, u.dtype, tuple([place[s] for s in u.src]), arg, u.tag))
    return out


def load(table: list[Row]) -> UOp:
    """The root of the graph that `rows` wrote. UserError for a file that was replaced since."""
    nodes: list[UOp] = []
    for name, dtype, src, arg, tag in table:
        if isinstance(arg, DataArg):
            arg = arrays.register(arg.array)
        elif isinstance(arg, files.FilePlace):
            arg = arrays.register(arg.open())
        nodes.append(intern(Op.by_name(name), dtype, tuple([nodes[i] for i in src]), arg, tag))
    return nodes[-1]


def content(u: UOp) -> int:
    """A number that depends only on the computation below a node: different for different
    computations, and the same in every process."""
    found: int | None = u._content
    return walk.sweep(u, "_content", _content) if found is None else found


def _content(u: UOp) -> int:
    made = _kind(u.op, u.dtype)
    if u.arg is not None:
        arg = u.arg.key if isinstance(u.arg, DataArg) else u.arg
        made ^= arg if type(arg) is int else zlib.crc32(arg_text(arg).encode())
    for s in u.src:
        made = made * 0x9E3779B97F4A7C15 + s._content & 0x7FFFFFFFFFFFFFFF
    return made


@functools.cache
def _kind(op: Op, dtype: DType) -> int:
    return zlib.crc32(f"{op.name} {dtype.name} {dtype.lanes}".encode())


class Fingerprint(NamedTuple):
    """The digest of a graph, its number of nodes, and its constant arrays by content hash."""

    digest: str
    nodes: int
    arrays: dict[str, npt.NDArray[Any]]


def fingerprint(root: UOp, of_files: bool = True) -> Fingerprint:
    """The digest of a text with a line for each node, operands as line numbers.

    Arrays count by content, and arrays in files by their place; by shape if `of_files` is False,
    because each machine may have a copy. The origin of nodes does not count.
    """
    import hashlib  # with OpenSSL: a compile needs it, the import of uopc does not

    place: dict[UOp, int] = {}
    arrays: dict[str, npt.NDArray[Any]] = {}
    lines: list[str] = []
    for u in walk.order(root):
        place[u] = len(place)
        arg = u.arg
        if u.op is Ops.DATA and type(arg) is DataArg:
            arrays[arg.key] = arg.array
            known = of_files or files.placed(arg.array) is None
            arg = arg.key if known else arg.dims
        tag = "" if u.tag is None else f" {u.tag!r}"
        src = [place[s] for s in u.src]
        lines.append(f"{u.op.name} {u.dtype.name} {src} {arg_text(arg)}{tag}\n")
    made = hashlib.blake2b("".join(lines).encode(), digest_size=20)
    return Fingerprint(made.hexdigest(), len(place), arrays)


def reduce(root: UOp) -> tuple[Callable[[list[Row]], UOp], tuple[list[Row]]]:
    """The pickle of a node: rows, and the function that reads them."""
    return load, (rows(root),)
