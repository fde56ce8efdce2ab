"""Loops that end at the guards of their stores: free rows of a product, from a free place on."""

from __future__ import annotations

import numpy as np
import pytest

import uopc

CONTEXT, WIDTH = 40, 24
W = np.random.default_rng(0).standard_normal((12, WIDTH)).astype("f4")


def cached(rows, by_columns=False):
    """Rows of a product, in a cache from `position` on, which may not hold all of them."""
    position = uopc.variable("position", 0, CONTEXT - 1)
    x = uopc.param("x", (12, rows)).permute(1, 0) if by_columns else uopc.param("x", (rows, 12))
    memory = uopc.param("memory", (CONTEXT, WIDTH))
    place = [(position, position + rows), (0, WIDTH)]
    return memory.after(memory.shrink(place).store(x @ uopc.constant(W)))


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_product_has_a_tile_and_rows_beyond_the_end_are_dropped(by_columns):
    program = uopc.compile(cached(uopc.variable("n", 0, CONTEXT), by_columns), threads=1)
    (kernel,) = [k for k in program.kernels if k.name.startswith("r_")]
    tile = [o for o in kernel.opts if o.op in ("UPCAST", "VECTOR", "REPEAT")]
    assert len(tile) >= 3, kernel.opts
    for n, position in ((0, 0), (1, 39), (5, 0), (7, 33), (16, 20), (17, 23), (40, 0),
                        (9, 35), (40, 39)):  # fmt: skip
        x = np.random.default_rng(n).standard_normal((n, 12)).astype("f4")
        memory = np.full((CONTEXT, WIDTH), 7, "f4")
        expected = memory.copy()
        expected[position : position + n] = (x @ W)[: CONTEXT - position]
        given = np.ascontiguousarray(x.T) if by_columns else x
        program(x=given, memory=memory, position=position)
        np.testing.assert_allclose(memory, expected, 1e-5, 1e-5)
