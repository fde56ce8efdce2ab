"""Errors for Functions that have no graph: they name the Function, its operation and the way
out."""

from __future__ import annotations

import casadi as ca

from uopc.errors import Unsupported

OP_NAMES = {getattr(ca, name): name[3:].lower() for name in dir(ca) if name.startswith("OP_")}
_WAY_OUT = "leave it outside: lower the Functions around it, and call those from CasADi"


def unsupported(
    f: ca.Function, op: int, reason: str = "it has no graph", way: str = _WAY_OUT
) -> Unsupported:
    """The error for an operation of a Function."""
    name = OP_NAMES.get(op, f"operation {op}")
    return Unsupported(f"casadi: {f.name()} uses {name}: {reason}; {way}")


def not_a_graph(f: ca.Function, reason: str, way: str = _WAY_OUT) -> Unsupported:
    """The error for a Function of a kind that is no list of operations."""
    return Unsupported(f"casadi: {f.name()} is a {f.class_name()}: {reason}; {way}")
