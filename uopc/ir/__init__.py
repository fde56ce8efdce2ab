"""Graphs: dtypes, the op table, nodes, their builders, patterns and rewriting."""

from __future__ import annotations

import importlib
from typing import Any

from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp

__all__ = [
    "DType", "Op", "Ops", "PatternMatcher", "UOp", "UPat", "dtypes", "graph_rewrite",
]  # fmt: skip

_LAZY = {
    "PatternMatcher": "rewrite.matcher",
    "UPat": "rewrite.pattern",
    "graph_rewrite": "rewrite.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'uopc.ir' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"uopc.ir.{_LAZY[name]}"), name)
    globals()[name] = found
    return found
