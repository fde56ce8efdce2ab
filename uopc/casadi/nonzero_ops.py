"""Operations that read or write nonzeros at places that are known, or that are computed."""

from __future__ import annotations

import math

import casadi as ca
import numpy as np

from uopc.casadi.instruction import Instruction
from uopc.casadi.matrix_ops import Rule, summed
from uopc.casadi.structures import Indices, joined, length, numbers, taken
from uopc.ir.builder.operands import constant
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp

_MOVES = {  # the names of the operations with computed places in files
    ca.OP_GETNONZEROS_PARAM: "GetNonzeros",
    ca.OP_SETNONZEROS_PARAM: "SetNonzeros",
    ca.OP_ADDNONZEROS_PARAM: "SetNonzeros",
}


def _line(slice_: dict[str, int]) -> Indices:
    return np.arange(slice_["start"], slice_["stop"], slice_["step"], dtype=np.int64)


def _known(node: Instruction) -> Indices:
    """The places: a list, a slice, or the sums of two slices, the inner one first."""
    info = node.info
    if "nz" in info:
        return np.asarray(info["nz"], np.int64)
    if "slice" in info:
        return _line(info["slice"])
    return (_line(info["outer"])[:, None] + _line(info["inner"])).reshape(-1)


def _computed(node: Instruction, index: tuple[UOp, ...], n: int) -> UOp:
    """The places as integers, n for those outside of 0..n - 1: a vector, or the sums of an inner
    and an outer one, of which one may be a known slice."""
    given = [i.cast(dtypes.int64) for i in index]
    for name, at in (("inner", 0), ("outer", 1)):
        kind = "SliceParam" if name == "inner" else "ParamSlice"
        if len(index) == 1 and (field := f"{_MOVES[node.op]}{kind}::{name}") in node.fields:
            given.insert(at, constant(_line(node.fields.slice(field)), dtypes.int64))
    place = given[0]
    if len(given) > 1:
        place = (given[1].reshape(-1, 1) + place.reshape(1, -1)).reshape(-1)
    return ((place >= 0) & (place < n)).where(place, n)


def _get_computed(node: Instruction, x: UOp, *index: UOp) -> UOp:
    """NaN outside."""
    return joined([x, numbers([math.nan])])[_computed(node, index, length(x))]


def _set(node: Instruction, y: UOp, x: UOp) -> UOp:
    at, order = _known(node), np.arange(length(y))
    source = np.flatnonzero(at >= 0)
    order[at[source]] = length(y) + source
    return taken(joined([y, x]), order)


def _add(node: Instruction, y: UOp, x: UOp) -> UOp:
    at = _known(node)
    source = np.flatnonzero(at >= 0)
    return y + summed(at[source], length(y), lambda k: taken(x, source[k]))


def _set_computed(node: Instruction, y: UOp, x: UOp, *index: UOp) -> UOp:
    """The last one at a place counts; those outside are dropped."""
    place = _computed(node, index, length(y))
    return joined([y, taken(y, [-1])]).at[place].set(x)[: length(y)]


def _add_computed(node: Instruction, y: UOp, x: UOp, *index: UOp) -> UOp:
    place = _computed(node, index, length(y))
    return joined([y, taken(y, [-1])]).at[place].add(x)[: length(y)]


NONZERO_OPS: dict[int, Rule] = {
    ca.OP_GETNONZEROS: lambda node, x: taken(x, _known(node)),
    ca.OP_GETNONZEROS_PARAM: _get_computed,
    ca.OP_SETNONZEROS: _set,
    ca.OP_SETNONZEROS_PARAM: _set_computed,
    ca.OP_ADDNONZEROS: _add,
    ca.OP_ADDNONZEROS_PARAM: _add_computed,
}
