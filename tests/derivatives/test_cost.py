"""The cheap gradient principle: a gradient takes few times the operations of its function."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

import uopc
from uopc import UOp, dtypes
from uopc.ir.builder import primitives
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern

F8 = dtypes.float64
V, M, W = uopc.param("v", (32,), F8), uopc.param("m", (16, 16), F8), uopc.param("w", (16, 16), F8)
IMAGE, FILTER = uopc.param("image", (1, 2, 8, 8), F8), uopc.param("filter", (3, 2, 3, 3), F8)
REVERSED = uopc.constant(np.arange(32)[::-1].copy())

PROGRAMS: dict[str, tuple[UOp, UOp]] = {
    "polynomial": ((((V * V + 1) * V - 2) * V).sum(), V),
    "rosenbrock": (((V[1:] - V[:-1] ** 2) ** 2).sum(), V),
    "softmax": ((V.softmax(0) * V).sum(), V),
    "logsumexp": (V.logsumexp(0), V),
    "network": (((M @ W).tanh() @ W).relu().sum(), W),
    "product of matrices": ((M @ W).sum(), W),
    "norm": ((V * V).sum().sqrt(), V),
    "normed layer": ((M.layer_norm() ** 2).sum(), M),
    "attention": (((M @ W @ M.transpose()).softmax(-1) @ M).sum(), M),
    "running sums": ((V.cumsum(0) ** 2).sum(), V),
    "product": (V.prod(), V),
    "maximum": (M.max(1).sum(), M),
    "gather": ((V[REVERSED] * V).sum(), V),
    "gelu": (V.gelu().sum(), V),
    "sigmoid": (V.sigmoid().sum(), V),
    "waves": ((V.sin() * V.cos() + V.tan()).sum(), V),
    "quotient": ((V / (V * V + 1)).sum(), V),
    "power": (((V + 2) ** 3.5).sum(), V),
    "choice": ((V > 0).where(V.exp(), V * V).sum(), V),
    "convolution": (IMAGE.conv2d(FILTER).sum(), FILTER),
    "erf": (V.erf().sum(), V),
    "variance": (M.var(1).sum(), M),
    "parts side by side": (uopc.cat(V[1:], V[:1]).sin().sum(), V),
    "logarithm": ((V * V + 1).log().sum(), V),
}


def operations(roots: Sequence[UOp]) -> int:
    """The elements that a graph computes by arithmetic, and those that it adds up."""
    whole = primitives.without_primitives(intern(Ops.SINK, dtypes.void, tuple(roots)))
    found = 0
    for u in whole.toposort():
        if u.op is Ops.REDUCE:
            found += math.prod(u.src[0].shape)
        elif u.op.is_alu and u.op is not Ops.WHERE and u.dtype.is_float:
            found += math.prod(u.shape)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_is_cheap(name: str) -> None:
    loss, x = PROGRAMS[name]
    both = operations([loss, uopc.grad(loss, x)])
    assert both <= 4 * operations([loss])


def test_a_product_with_the_hessian_costs_a_few_gradients() -> None:
    loss, x = PROGRAMS["network"]
    gradient = operations([uopc.grad(loss, x)])
    assert operations([uopc.hvp(loss, x, uopc.constant(np.ones((16, 16))))]) <= 4 * gradient
