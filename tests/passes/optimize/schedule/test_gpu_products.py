"""Products without tensor cores on a GPU: slices in shared memory, tiles of sums in registers, each
sum a chain. Executed by the PTX machine, against NumPy; assembled."""

from __future__ import annotations

import re

import numpy as np
import pytest

import uopc
from tests.backends.nvptx.test_tensor_cores import assembled, numbers, run
from uopc import config, dtypes
from uopc.driver import lower_only
from uopc.errors import Unsupported
from uopc.ir.core.ops import Ops
from uopc.passes.optimize.schedule import gpu_products
from uopc.program.request import prepare
from uopc.program.tuned import schedules

F32, I32 = dtypes.float32, dtypes.int32

# Rows, depth and columns.
SIZES = {
    "whole": (64, 64, 64), "odd": (33, 37, 65), "prime": (67, 131, 71), "shallow": (64, 3, 64),
    "of one step": (32, 1, 32), "narrow": (200, 40, 9), "two slices": (32, 33, 32),
}  # fmt: skip


def product(m, k, n, dtype=F32):
    given = [numbers((m, k), dtype), numbers((k, n), dtype)]
    return uopc.param("a", (m, k), dtype) @ uopc.param("b", (k, n), dtype), given


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    graph, given = product(*SIZES[name])
    _, text, got = run(graph, given)
    assert np.array_equal(got, given[0].astype(float) @ given[1].astype(float))
    assembled(text, "sm_90a")


@pytest.mark.parametrize("dtype", [I32, dtypes.uint8, dtypes.int64, dtypes.float16], ids=str)
def test_dtypes(dtype):
    """float16 that is rounded, then widened, has no tile of tensor cores."""
    wide = F32 if dtype is dtypes.float16 else dtype
    given = [np.abs(numbers((40, 33), dtype)), np.abs(numbers((33, 48), dtype))]
    a, b = [uopc.param(n, x.shape, dtype) for n, x in zip("ab", given)]
    _, text, got = run((a * 1).cast(wide) @ (b + 0).cast(wide), given, "sm_80")
    wanted = given[0].astype(wide.numpy) @ given[1].astype(wide.numpy)  # bytes wrap around
    assert np.array_equal(got, wanted.astype(float))
    if dtype is not dtypes.int64:  # whose products take four registers each
        assembled(text, "sm_80")


def test_layouts():
    """Transposed operands, a batch, a computed factor, something done with the result."""
    a, b = numbers((3, 40, 36), F32), numbers((3, 50, 40), F32)
    x, y = uopc.param("a", a.shape), uopc.param("b", b.shape)
    graph = (x.transpose(-1, -2) * 2) @ y.transpose(-1, -2) + 1
    _, _, got = run(graph, [a, b])
    wanted = 2.0 * a.transpose(0, 2, 1).astype(float) @ b.transpose(0, 2, 1) + 1
    assert np.array_equal(got, wanted)


def test_a_symbolic_batch():
    """Blocks along a size that is not known are inside of the arrays: `verify` looks at that."""
    n = uopc.variable("n", 1, 4)
    a, b = numbers((2, 40, 33), F32), numbers((2, 33, 36), F32)
    graph = uopc.param("a", (n, 40, 33)) @ uopc.param("b", (n, 33, 36))
    assert np.array_equal(run(graph, [a, b], "sm_80")[2], a.astype(float) @ b)


def test_slices_are_copied_ahead():
    graph, given = product(64, 96, 64)
    _, text, _ = run(graph, given)
    assert text.count("cp.async.wait_group") == 1 and "cp.async.cg.shared.global" in text
    used = {opt.op for opt in lower_only(graph, device="cuda:sm_90").kernels[0].arg.opts}
    assert {"PACK", "PIPELINE", "UNROLL", "LOCAL"} <= used and "TC" not in used


def test_a_sum_is_one_chain():
    """A thread has as many multiply-adds as products, and no other sum of floats."""
    graph, given = product(128, 64, 128)
    _, text, _ = run(graph, given)
    fused = len(re.findall(r"\bfma\.rn\.f32", text))
    assert fused and not re.search(r"\b(add|mul)(\.rn)?\.f32", text)
    assert fused % 16 == 0


@pytest.mark.parametrize("rows, sizes", [(2048, (128, 128)), (64, (32, 32))])
def test_blocks_fill_the_device(rows, sizes):
    """Large products have large blocks; of a small one, small blocks."""
    graph, _ = product(rows, 256, rows)
    (kernel,) = lower_only(graph, device="cuda:sm_90").kernels
    grid = [u.src[0].arg for u in kernel.src if u.op is Ops.SPECIAL and "gidx" in str(u.arg)]
    assert all(n == rows // size for n, size in zip(grid, sizes))
    assert {b.sizes(4) for b in gpu_products.BLOCKINGS} >= {sizes}


def test_a_search_needs_a_device():
    """A device of this machine can be measured; one that is described cannot."""
    graph, _ = product(8, 8, 8)

    def request(device):
        return prepare(graph, None, True, 1, "f", config.current(), device=device)

    for name in ("cuda", "cuda:1", "cpu"):
        schedules.check_device(request(name))
    with pytest.raises(Unsupported, match="a search measures"):
        schedules.check_device(request("cuda:sm_90"))
