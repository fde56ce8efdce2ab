"""Convolutions whose weights leave the near caches: a panel of them serves all rows of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import uopc
from tests.passes.fetch_ahead.test_fetch_ahead import compiled, fetches, loops_of
from uopc import UOp
from uopc.driver import lower_only
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine
from uopc.ir.interpret.machine import run_kernel

# Half of the second-level cache of the machine "laptop" are 128 KiB: the weights below have more.
pytestmark = pytest.mark.machine("laptop")
RNG = np.random.default_rng(194)


def numbers(*dims: int) -> np.ndarray:
    """Small integers, whose sums are exact in any order."""
    return RNG.integers(-3, 4, dims).astype(np.float32)


def convolved(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    """Images with channels last, by NumPy."""
    pad = w.shape[2] // 2
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    windows = sliding_window_view(x, w.shape[2:], (1, 2))[:, ::stride, ::stride]
    return np.einsum("nhwcij,ocij->nhwo", windows, w)


def layer(x: UOp, w: np.ndarray, stride: int = 1) -> UOp:
    """The same in a graph."""
    y = x.permute((0, 3, 1, 2)).conv2d(w, None, stride, w.shape[2] // 2)
    return y.permute((0, 2, 3, 1))


def panels_first(program: uopc.Program) -> bool:
    """True if each fetch moves with the outermost loop, and two loops inside read a panel again or
    as many as an image has."""
    found = fetches(program)
    for u in found:
        first, *rest = [r for r in loops_of(u) if r.arg.kind == "loop"]
        if first not in affine.form(u.src[0].src[0].src[1])[1] or not rest:
            return False
    return bool(found)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("c", "k", "n"), [(64, 64, 8), (64, 72, 7), (61, 67, 9)])
@pytest.mark.parametrize("threads", [1, 2])
def test_windows_of_an_image(stride: int, c: int, k: int, n: int, threads: int) -> None:
    w, a = numbers(k, c, 3, 3), numbers(1, n, n, c)
    program = compiled(layer(uopc.param("x", a.shape), w, stride), threads)
    np.testing.assert_array_equal(program(a), convolved(a, w, stride))
    assert threads > 1 or panels_first(program)


def test_threads_share_the_panels() -> None:
    """Each would read all weights, if they shared the rows of the image."""
    w, a = numbers(128, 64, 3, 3), numbers(1, 7, 7, 64)
    program = compiled(layer(uopc.param("x", a.shape), w), threads=2)
    np.testing.assert_array_equal(program(a), convolved(a, w, 1))
    assert panels_first(program)
    moving = [affine.form(u.src[0].src[0].src[1])[1] for u in fetches(program)]
    assert all([any([r.arg.kind == "thread" for r in m if r.op is Ops.RANGE]) for m in moving])


def test_each_image_of_a_batch_is_packed_alone() -> None:
    w, a = numbers(64, 64, 3, 3), numbers(3, 7, 7, 64)
    program = compiled(layer(uopc.param("x", a.shape), w))
    np.testing.assert_array_equal(program(a), convolved(a, w, 1))


def test_a_batch_of_symbolic_length() -> None:
    n, w = uopc.variable("n", 1, 4), numbers(64, 64, 3, 3)
    program = compiled(layer(uopc.param("x", (n, 7, 7, 64)), w))
    for count in (1, 3):
        a = numbers(count, 7, 7, 64)
        np.testing.assert_array_equal(program(a), convolved(a, w, 1))


@pytest.mark.parametrize("threads", [1, 2])
def test_products_that_are_added(threads: int) -> None:
    """Every other element of a larger image, times weights, plus such a product and a value."""
    v, w = numbers(256, 128, 1, 1), numbers(256, 192, 1, 1)
    a, b, c = numbers(1, 8, 8, 128), numbers(1, 15, 15, 192), numbers(1, 8, 8, 256)
    x, y, z = (uopc.param(name, g.shape) for name, g in zip("xyz", (a, b, c)))
    program = compiled(layer(x, v) + layer(y, w, 2) + z, threads)
    assert len(program.kernels) == 1
    want = convolved(a, v, 1) + convolved(b, w, 2) + c
    np.testing.assert_array_equal(program(a, b, c), want)
    assert threads > 1 or panels_first(program)


def test_the_interpreter_has_the_result_of_numpy() -> None:
    w, a = (numbers(*dims).astype("f8") for dims in ((32, 64, 3, 3), (1, 2, 2, 64)))
    program = compiled(layer(uopc.param("x", a.shape, uopc.dtypes.float64), w))
    kernel, want = program.kernels[0].uops, convolved(a, w, 1)
    (packed,) = [u.arg.slot for u in kernel.src if u.op is Ops.PARAM and u.arg.order]
    out = np.zeros(want.shape)
    run_kernel(kernel, [out, *((a, w) if packed == 2 else (w, a))])
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(program(a), want)
    assert panels_first(program)


def opts(graph: Any) -> list[tuple[Opt, ...]]:
    return [k.arg.opts for k in lower_only(graph, threads=1).kernels]


def test_weights_that_the_cache_holds_stay_inside_of_the_rows() -> None:
    """Then the rows of a window stay in the first-level cache."""
    small, large = numbers(32, 32, 3, 3), numbers(64, 64, 3, 3)
    (near,) = opts(layer(uopc.param("x", (1, 8, 8, 32)), small))
    (far,) = opts(layer(uopc.param("x", (1, 8, 8, 64)), large))
    assert Opt("SWAP", 1, 0) not in near and Opt("SWAP", 1, 0) in far


def test_an_image_that_the_cache_does_not_hold_stays_outside() -> None:
    (found,) = opts(layer(uopc.param("x", (1, 40, 40, 64)), numbers(64, 64, 3, 3)))
    assert Opt("SWAP", 1, 0) not in found


def test_a_panel_leaves_room_for_the_next_one() -> None:
    """512 channels of 3 x 3: a panel of 16 columns and the next one have more than the cache. It is
    one vector wide; those of 64 channels are as wide as the tile asks."""
    (narrow,) = opts(layer(uopc.param("x", (1, 4, 4, 512)), numbers(64, 512, 3, 3)))
    (wide,) = opts(layer(uopc.param("x", (1, 7, 7, 64)), numbers(64, 64, 3, 3)))
    assert next(o.arg for o in narrow if o.op == "PREPACK") == 8
    assert next(o.arg for o in wide if o.op == "PREPACK") > 8


def test_constants_are_fetched_before_they_fill_the_cache() -> None:
    """The second-level cache would hold them, if no other array had displaced them."""
    w, a = numbers(96, 16, 3, 3), numbers(1, 40, 40, 16)
    program = compiled(layer(uopc.param("x", a.shape), w))
    assert w.nbytes < 256 << 9
    assert fetches(program)
    np.testing.assert_array_equal(program(a), convolved(a, w, 1))
