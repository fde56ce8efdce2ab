"""Checks that a graph is what its level says (being written)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


def describe(u: UOp) -> str:
    """The node as one line of text."""
    from uopc.ir import text

    return text.print_graph(u).splitlines()[-1]
