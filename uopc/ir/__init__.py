"""What a graph is: dtypes, the op table, nodes, their builders, patterns and rewriting."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from uopc.ir import dtypes
from uopc.ir.dtypes import DType
from uopc.ir.ops import Op, Ops
from uopc.ir.uop import UOp

if TYPE_CHECKING:
    from uopc.ir.pattern import PatternMatcher, UPat
    from uopc.ir.rewrite import graph_rewrite

__all__ = [
    "DType", "Op", "Ops", "PatternMatcher", "UOp", "UPat", "dtypes", "graph_rewrite",
]  # fmt: skip

_LAZY = {"PatternMatcher": "pattern", "UPat": "pattern", "graph_rewrite": "rewrite"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'uopc.ir' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"uopc.ir.{_LAZY[name]}"), name)
    globals()[name] = found
    return found
