"""Equal blocks store equal values, wherever they stand in the network.

So equal blocks are equal kernels, compiled once, however deep the network is.
"""

import numpy as np
import pytest

import uopc

WIDTH, ROWS = 32, 8


def normed(x):
    """Of arrays of NumPy and of UOps alike."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / ((centred * centred).mean(-1, keepdims=True) + 1e-5) ** 0.5


def norm_block(x, w, u, relu):
    """A normed sum with two layers beside it."""
    return x + relu(normed(x) @ w) @ u


def sum_block(x, w, u, relu):
    """As in a residual network: a sum behind two layers, and a function of it."""
    return relu(x + relu(x @ w) @ u)


def network(block, n):
    x = uopc.param("x", (ROWS, WIDTH))
    for i in range(n):
        w, u = [uopc.param(f"{name}{i}", (WIDTH, WIDTH)) for name in "wu"]
        x = block(x, w, u, lambda v: v.relu())
    return x


@pytest.mark.parametrize("block", [norm_block, sum_block])
def test_equal_blocks_are_equal_kernels(block):
    kernels = [len(uopc.compile(network(block, n)).kernels) for n in (6, 24, 96)]
    assert len(set(kernels)) == 1
    assert kernels[0] <= 6


@pytest.mark.parametrize("block", [norm_block, sum_block])
def test_a_network_of_equal_blocks(block):
    rng = np.random.default_rng(0)

    def draw(*dims):
        return (rng.standard_normal(dims) * 0.2).astype("f4")

    arrays = {"x": draw(ROWS, WIDTH)}
    arrays |= {f"{name}{i}": draw(WIDTH, WIDTH) for i in range(5) for name in "wu"}
    wanted = arrays["x"].astype("f8")
    for i in range(5):
        wanted = block(wanted, arrays[f"w{i}"], arrays[f"u{i}"], lambda v: np.maximum(v, 0))
    got = uopc.compile(network(block, 5), verify=True)(**arrays)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
