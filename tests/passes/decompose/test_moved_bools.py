"""Bools that change lanes, in all ways to move elements: as NumPy moves them, on every target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
import uopc.numpy as unp
from tests.backends.c.test_kernel import by_gcc, needs_gcc
from tests.machines import runnable
from uopc import UOp
from uopc.driver import lower_only
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.passes.decompose.moved_bools import moved

SIZES = st.sampled_from([0, 1, 2, 3, 7, 13, 16, 31, 64, 65, 97, 131])
TARGETS = runnable("", "x86-64-v3", "x86-64-v4")
Move = Callable[[Any, Any], Any]
MOVES: dict[str, Move] = {
    "tile": lambda m, x: m.tile(x, (2, 3)),
    "repeat": lambda m, x: m.repeat(x, 3, axis=1),
    "turn": lambda m, x: m.permute_dims(x, (1, 0)),
    "turn in rows": lambda m, x: m.reshape(m.permute_dims(x, (1, 0)), x.shape),
    "flip": lambda m, x: m.flip(x, axis=1),
    "roll": lambda m, x: m.roll(x, 5, axis=1),
    "odd columns": lambda m, x: x[:, 1::2],
    "far columns": lambda m, x: x[:, ::5],
    "join": lambda m, x: m.concat([x, m.flip(x, axis=1), x], axis=1),
    "choose": lambda m, x: m.where(m.flip(x, axis=0), m.flip(x, axis=1), ~x),
    "combine": lambda m, x: m.flip(x, axis=1) & ~m.roll(x, 1, axis=1),
    "as numbers": lambda m, x: m.astype(m.flip(x, axis=1), m.float32),
    "as conditions": lambda m, x: m.where(m.tile(x, (1, 2)), 1.5, -2.0),
    "count": lambda m, x: m.sum(m.astype(m.tile(x, (1, 2)), m.int32), axis=0),
}


def bools(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).random(shape) < 0.5


def graph_of(move: Move, shape: tuple[int, int], t: Any = dtypes.bool_) -> Any:
    return move(unp, uopc.param("x", shape, t))


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(list(MOVES)), SIZES, SIZES, st.sampled_from(TARGETS), st.integers(1, 2))
def test_they_arrive_as_in_numpy(move, rows, columns, target, threads):
    x = bools(rows, columns)
    with uopc.options(target_cpu=target):
        f = uopc.compile(graph_of(MOVES[move], x.shape), threads=threads, verify=True)
    np.testing.assert_array_equal(f(x), MOVES[move](np, x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.few(6)
def test_any_byte_but_zero_is_true(move, target):
    """And what is stored is 0 or 1."""
    given = np.random.default_rng(1).choice(np.array([0, 1, 2, 128, 255], np.uint8), (29, 67))
    with uopc.options(target_cpu=target):
        got = uopc.compile(graph_of(MOVES[move], given.shape), threads=1)(given.view(np.bool_))
    wanted = MOVES[move](np, given != 0)
    np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@needs_gcc
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.few(3)
def test_they_arrive_in_c(move: str, target: str, tmp_path: Path) -> None:
    x = bools(29, 67)
    with uopc.options(target_cpu=target):
        f = uopc.compile(graph_of(MOVES[move], (29, 67)), threads=1)
    flags = [f"-march={target}"] if target else []
    np.testing.assert_array_equal(by_gcc(f, tmp_path, *flags)(x), MOVES[move](np, x))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "x86-64-v2"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.few(6)
def test_no_bit_changes_its_lane(move, target):
    """Of bools in memory, that is: the lanes of a comparison may."""
    with uopc.options(target_cpu=target):
        kernels = lower_only(graph_of(MOVES[move], (91, 131)), threads=1).kernels
    vectors = [u for k in kernels for u in k.src if u.op in (Ops.SHUFFLE, Ops.STACK)]
    assert not [u for u in vectors if u.dtype.kind == "bool" and len(set(u.src)) > 1]


def test_the_result_of_a_comparison_stays_a_mask():
    x = UOp(Ops.LANES, dtypes.index.vec(4), (), 4)
    mask = UOp(Ops.CMPLT, None, (x, UOp.const(dtypes.index, 2)))
    assert mask.dtype is dtypes.bool_.vec(4)
    turned = UOp(Ops.SHUFFLE, None, (mask, mask), (3, 2, 1, 0))
    assert moved(turned, turned.src) is None
