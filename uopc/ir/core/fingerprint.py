"""A graph's content as a digest: equal in every process for graphs that are built alike."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from uopc.ir.core import analysis
from uopc.ir.core.args import DataArg
from uopc.ir.core.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


@dataclass(frozen=True)
class Fingerprint:
    """The digest of a graph, its number of nodes, and its constant arrays by content hash."""

    digest: str
    nodes: int
    arrays: dict[str, npt.NDArray[Any]]


def fingerprint(root: UOp) -> Fingerprint:
    """One walk: a line for each node, with its operands as numbers of lines.

    Arrays count by content. Where a node was made (`origin`) and when (`seq`) does not count.
    """
    place: dict[UOp, int] = {}
    arrays: dict[str, npt.NDArray[Any]] = {}
    lines: list[str] = []
    for u in analysis.order(root):
        place[u] = len(place)
        arg = u.arg
        if u.op is Ops.DATA and type(arg) is DataArg:
            arrays[arg.key] = arg.array
            arg = arg.key
        tag = "" if u.tag is None else f" {u.tag!r}"
        src = [place[s] for s in u.src]
        lines.append(f"{u.op.name} {u.dtype.name} {src} {arg!r}{tag}\n")
    made = hashlib.blake2b("".join(lines).encode(), digest_size=20)
    return Fingerprint(made.hexdigest(), len(place), arrays)
