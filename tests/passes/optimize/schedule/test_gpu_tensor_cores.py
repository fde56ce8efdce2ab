"""Products on tensor cores as programs have them: sizes that do not fit, with what is computed of
operands and results in the same kernel; against NumPy, on the PTX machine; assembled."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import uopc
from tests.backends.nvptx.test_tensor_cores import assembled, bf16, exact, numbers, run
from tests.ptx.corpus import join
from tests.standin import module
from uopc import dtypes
from uopc.backends.nvptx import ptxas
from uopc.ir.core.args import Opt
from uopc.ir.devices.tensor_cores import tiles_for
from uopc.passes.optimize.schedule.gpu_tensor_cores import BLOCKINGS

BF16, F32 = ml_dtypes.bfloat16, dtypes.float32
RNG = np.random.default_rng(51)
# Rows, depth, columns: none, each, and all of them multiples of a tile.
SIZES = [(96, 64, 128), (100, 64, 128), (96, 72, 128), (96, 64, 100), (101, 75, 97), (40, 200, 24)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("part", ["sm_80", "sm_90a"])
@pytest.mark.few(3)
def test_sizes(size, part):
    m, k, n = size
    given = [numbers((m, k), dtypes.bfloat16), numbers((k, n), dtypes.bfloat16)]
    program, text, got = run(bf16("a", m, k) @ bf16("b", k, n), given, part)
    assert "mma.sync" in text and len(program.kernels) == 1
    assert np.array_equal(got, exact(*given).astype(BF16).astype(np.float64))
    assembled(text, part)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64, dtypes.int8])
def test_sizes_of_other_types(dtype):
    given = [numbers((50, 70), dtype), numbers((70, 60), dtype)]
    wide = dtypes.int32 if dtype is dtypes.int8 else dtype
    a, b = [uopc.param(n, x.shape, dtype).cast(wide) for n, x in zip("ab", given)]
    _, text, got = run(a @ b, given)
    assert "mma.sync" in text and np.array_equal(got, exact(*given))
    assembled(text, "sm_90a")


def test_what_is_beyond_the_depth_is_zero():
    """Not a product of zero and what happens to be there, which an infinity makes NaN."""
    a = np.full((64, 72), np.inf, np.float32).astype(BF16)
    b = np.abs(numbers((72, 64), dtypes.bfloat16).astype(np.float32)).astype(BF16) + BF16(1)
    _, text, got = run(bf16("a", 64, 72) @ bf16("b", 72, 64), [a, b])
    assert "mma.sync" in text and (got == np.inf).all()


def test_rows_of_any_number():
    rows = uopc.variable("rows", 1, 500)
    graph = uopc.param("a", (rows, 64), dtypes.bfloat16) @ bf16("b", 64, 128)
    for m in (1, 100, 256):
        given = [numbers((m, 64), dtypes.bfloat16), numbers((64, 128), dtypes.bfloat16)]
        _, text, got = run(graph, given)
        assert "mma.sync" in text
        assert np.array_equal(got, exact(*given).astype(BF16).astype(np.float64))


def narrow(u):
    return u.cast(dtypes.bfloat16)


# A graph of a, b and c, and what NumPy has for it, in float64; all values are small integers.
FUSED = {
    "bias and relu": (
        lambda a, b, c: (narrow(a) @ narrow(b) + narrow(c[:1])).relu(),
        lambda a, b, c: np.maximum(a @ b + c[:1], 0),
    ),
    "residual": (
        lambda a, b, c: c + (narrow(a) @ narrow(b)).cast(dtypes.float32),
        lambda a, b, c: c + a @ b,
    ),
    "scaled": (
        lambda a, b, c: (narrow(a) * 0.5) @ narrow(b) * 2.0,
        lambda a, b, c: a @ b,
    ),
    "a scale of each row": (
        lambda a, b, c: narrow(a * c[:, :1]) @ narrow(b),
        lambda a, b, c: (a * c[:, :1]) @ b,
    ),
    "an activation before": (
        lambda a, b, c: narrow(a.relu()) @ narrow(b),
        lambda a, b, c: np.maximum(a, 0) @ b,
    ),
    "bytes that are scaled": (
        lambda a, b, c: narrow(a) @ (narrow(b.cast(dtypes.int8)) * 0.5),
        lambda a, b, c: a @ b * 0.5,
    ),
}


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("size", [(64, 64, 128), (70, 50, 60)])
@pytest.mark.few(3)
def test_fused(name, size):
    m, k, n = size
    make, expected = FUSED[name]
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    given = {x: RNG.integers(-2, 3, s).astype(np.float32) for x, s in shapes.items()}
    graph = make(*[uopc.param(x, s) for x, s in shapes.items()])
    with module.installed("sm_90a") as driver:
        program = uopc.compile(graph, device="cuda", verify=True)
        got = np.asarray(program(**{p.name: given[p.name] for p in program.inputs}), np.float64)
    wanted = expected(*[a.astype(np.float64) for a in given.values()])
    text = join(driver.texts)
    assert "mma.sync" in text and len(program.kernels) == 1
    assert np.array_equal(got, wanted.astype(graph.dtype.numpy).astype(np.float64))
    assembled(text, "sm_90a")


def test_tf32_where_it_is_asked_for():
    """float32 is rounded to tf32 by an Opt of the user's, and never without."""
    given = [RNG.standard_normal((32, 64)).astype("f4"), RNG.standard_normal((64, 32)).astype("f4")]
    plain = uopc.param("a", (32, 64)) @ uopc.param("b", (64, 32))
    _, text, _ = run(plain, given)
    assert "mma.sync" not in text
    asked = plain.contiguous([Opt("TC", 2, 1), Opt("GRID", 0, 0), Opt("GRID", 2, 0)])
    _, text, got = run(asked, given)
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in text
    cut = [(a.view(np.uint32) & 0xFFFFE000).view("f4").astype(np.float64) for a in given]
    np.testing.assert_allclose(got, cut[0] @ cut[1], rtol=1e-5, atol=1e-5)
    assembled(text, "sm_90a")


@pytest.mark.parametrize("part", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("size", [(128, 96, 128), (50, 70, 60)])
def test_tf32_where_an_option_allows_it(size, part):
    """The same blocks as for other types, copied ahead; operands lose what tf32 has not."""
    m, k, n = size
    given = [RNG.standard_normal(shape).astype("f4") for shape in ((m, k), (k, n))]
    plain = uopc.param("a", (m, k)) @ uopc.param("b", (k, n))
    with uopc.options(tf32=True):
        _, text, got = run(plain, given, part)
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in text and "cp.async" in text
    cut = [(a.view(np.uint32) & 0xFFFFE000).view("f4").astype(np.float64) for a in given]
    np.testing.assert_allclose(got, cut[0] @ cut[1], rtol=1e-5, atol=1e-5)
    assembled(text, part)
    _, text, _ = run(plain, given, part)  # and not out of a cache, where it is not allowed
    assert "mma.sync" not in text


@pytest.mark.skipif(ptxas.find_ptxas() is None, reason="no ptxas: see the extra `test-full`")
@pytest.mark.parametrize("dtype", [F32, dtypes.bfloat16, dtypes.float64, dtypes.int8])
@pytest.mark.parametrize("part", ["sm_80", "sm_90a"])
@pytest.mark.few(3)
def test_registers_are_estimated(part, dtype):
    """Of the largest blocks, where it matters: neither spills nor half of the registers unused."""
    wide = dtypes.int32 if dtype is dtypes.int8 else dtype
    a, b = [uopc.param(n, (2048, 2048), dtype).cast(wide) for n in "ab"]
    with uopc.options(tf32=True):
        (made,) = uopc.compile(a @ b, device=f"cuda:{part}").kernels
    (used,) = ptxas.assemble(made.asm, part).kernels.values()
    tiles = tiles_for(dtype, dtype, F32 if dtype is dtypes.bfloat16 else wide)
    tile = tiles[-1 if part == "sm_90a" else 0]
    assert made.block == (128, 1, 1) and not used.spill_stores
    wanted = max(n for b in BLOCKINGS if (n := b.registers(tile)) <= 255)
    assert 0.75 * wanted <= used.registers <= 1.25 * wanted and wanted <= 255


# Images, filters, and how they are convolved.
CONVOLUTIONS = {
    "inside": ((2, 16, 14, 14), (20, 16, 3, 3), {}),
    "with a border": ((1, 32, 24, 24), (32, 32, 3, 3), {"padding": 1}),
    "each second pixel": ((2, 32, 17, 16), (32, 32, 3, 3), {"padding": 1, "stride": 2}),
    "of one pixel": ((2, 48, 8, 12), (40, 48, 1, 1), {}),
    "wide filters": ((1, 16, 20, 20), (32, 16, 7, 7), {"padding": 3}),
    "lines of 7 tiles": ((2, 32, 12, 56), (64, 32, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.few(2)
def test_convolutions(name):
    """A convolution is a product as well: of filters by what they see of an image."""
    image, filters, how = CONVOLUTIONS[name]
    given = [numbers(image, dtypes.float16), numbers(filters, dtypes.float16)]
    params = [uopc.param(n, a.shape, dtypes.float16) for n, a in zip("xk", given)]
    program, text, got = run(params[0].conv2d(params[1], **how), given)
    assert "mma.sync" in text and len(program.kernels) == 1
    border, step = how.get("padding", 0), how.get("stride", 1)
    x, k = [a.astype(np.float64) for a in given]
    x = np.pad(x, ((0, 0), (0, 0), (border, border), (border, border)))
    seen = np.lib.stride_tricks.sliding_window_view(x, k.shape[2:], axis=(2, 3))
    wanted = np.einsum("ncyxij,ocij->noyx", seen[:, :, ::step, ::step], k)
    assert np.array_equal(got, wanted.astype(np.float16).astype(np.float64))
    assembled(text, "sm_90a")
