"""A function's copy for other operands is what spelling it out for them gives."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.ir.builder import leaves
from uopc.ir.core import dtypes
from uopc.ir.core.arena import arena
from uopc.ir.core.args import ParamArg, RangeArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.index import affine
from uopc.passes.decompose.functions.expansion_cache import Use, applied
from uopc.passes.decompose.functions.transcendental import DECOMPOSITIONS

ONCE = Use("once", 1)


def operand(t, lanes, i, depth):
    """A value that is read inside of so many loops."""
    ranges = [
        intern(Ops.RANGE, dtypes.index, (affine.const(8),), RangeArg((d,), "loop"))
        for d in range(depth)
    ]
    storage = intern(Ops.PARAM, t, (), ParamArg(slot=i, name="", dims=(64,)))
    place = affine.const(0)
    for r in ranges:
        place = affine.add(place, r)
    return intern(Ops.LOAD, t.vec(lanes), (intern(Ops.INDEX, t.vec(lanes), (storage, place)),))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("t", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("op", DECOMPOSITIONS, ids=lambda op: op.name)
def test_the_same_nodes(op, t, lanes):
    function, several = DECOMPOSITIONS[op], len(op.operands)
    with arena():
        for depth in (0, 1, 3):
            src = tuple([operand(t, lanes, i, depth) for i in range(several)])
            assert applied(function, src, ONCE) is function(*src)
        one = leaves.const(t, 1.0)
        assert applied(function, (one,) * several, ONCE) is function(*(one,) * several)


def test_many_sines_of_different_values():
    def chain(x, sin, cos):
        u = x
        for k in range(12):
            u = sin(u * (1 + k / 8)) + cos(x) * u
        return u

    x, array = uopc.param("x", (64,), dtypes.float64), np.linspace(-3, 3, 64)
    made = chain(x, lambda u: u.sin(), lambda u: u.cos())
    wanted = chain(array, np.sin, np.cos)
    np.testing.assert_allclose(uopc.compile(made, verify=True)(array), wanted, rtol=1e-11)
