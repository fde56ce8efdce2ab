"""Invariants of kernels that run on blocks of threads: barriers and spaces of storage."""

from __future__ import annotations

from collections.abc import Iterator

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.verify.nodes import Problem

Found = Iterator[tuple["UOp", Problem]]


def spaces(nodes: list[UOp]) -> Found:
    """storage-spaces"""
    for u in nodes:
        if u.op is Ops.PARAM and u.arg.space != "global":
            problem = f"an argument is in the space {u.arg.space}, expected global"
            yield u, ("storage-spaces", problem)
        if u.op is Ops.BUFFER and u.arg.space != "global" and None in u.arg.dims:
            problem = f"the size of storage in the space {u.arg.space} is not a number"
            yield u, ("storage-spaces", problem)


def meetings(root: UOp) -> Found:
    """threads-meet: no loop or branch around a BARRIER or EXCHANGE differs between threads."""
    differs: set[UOp] = set()
    opened: list[UOp] = []
    for u in root.src:
        if (u.op is Ops.SPECIAL and u.arg.startswith("lidx")) or any(s in differs for s in u.src):
            differs.add(u)
        if u.op.opens:
            opened.append(u)
            if u.src[0] not in differs:  # the threads count together
                differs.discard(u)
        elif u.op.closes and opened:
            opened.pop()
        elif u.op in (Ops.BARRIER, Ops.EXCHANGE):
            for r in opened:
                if r in differs:
                    yield (
                        u,
                        (
                            "threads-meet",
                            f"{u.op.name} in a loop that is not as long in all threads of a block",
                        ),
                    )
