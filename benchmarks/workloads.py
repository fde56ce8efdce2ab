"""The workloads of `benchmarks/kernels.py`: each is written once, against operators `o`.

`ANCHORS` are those of which other peers' times are recorded; `ODD` are the same at sizes that fit
nothing; `more_workloads.py` has networks and shapes that are in neither, `place_workloads.py`
sorts, counts and updates, `matrix_workloads.py` factors of matrices.

A workload has inputs from a fixed seed, a body, and what any program must spend on it at least:
bytes read and written, floating-point operations, and elements that need a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

F32, F64 = np.float32, np.float64
MASKED = F32(-1e30)  # added to a score that must not count


@dataclass
class Workload:
    """`body(o, *inputs)` is the output. `functions` counts elements by function and dtype;
    `read` is in bytes (default: every input once); `share` says that the error is the share of
    elements that differ, which must be at most `tolerance`."""

    inputs: list[np.ndarray]
    body: Callable[..., Any]
    flops: float = 0.0
    functions: dict[str, float] = field(default_factory=dict)
    read: float | None = None
    tolerance: float = 2e-5
    share: bool = False

    @property
    def double(self) -> bool:
        return any(a.dtype == F64 for a in self.inputs)


WORKLOADS: dict[str, Callable[[], Workload]] = {}


def add(name: str, make: Callable[..., Workload], *given: Any, **named: Any) -> None:
    WORKLOADS[name] = lambda: make(*given, **named)


def normal(seed: int, *shape: int, dtype: Any = F32, scale: float = 1.0) -> np.ndarray:
    numbers = np.random.default_rng(seed).standard_normal(shape, dtype=dtype)
    return numbers * dtype(scale)


def uniform(seed: int, low: float, high: float, *shape: int, dtype: Any = F32) -> np.ndarray:
    numbers = np.random.default_rng(seed).random(shape, dtype=dtype)
    return numbers * dtype(high - low) + dtype(low)


def causal(n: int) -> np.ndarray:
    return np.where(np.tri(n, dtype=bool), F32(0), MASKED)


# ------------------------------------------------------------------ elementwise
def chain(n: int) -> Workload:
    return Workload(
        [normal(i, n) for i in range(3)],
        lambda o, x, y, z: o.tanh(x * 1.5 + y) * o.sigmoid(z),
        functions={"exp_f32": 2 * n},
    )


def function(name: str, dtype: Any, n: int = 1 << 20) -> Workload:
    low, high = 0.01, 20.0
    if name == "exp":
        low, high = -10.0, 10.0
    bits = np.dtype(dtype).itemsize * 8
    return Workload(
        [uniform(0, low, high, n, dtype=dtype)],
        lambda o, x: getattr(o, name)(x),
        functions={f"{name}_f{bits}": n},
        tolerance=1e-6 if bits == 32 else 1e-14,
    )


def scaled_sum(n: int) -> Workload:
    return Workload([normal(i, n) for i in range(2)], lambda o, x, y: x * 2.0 + y, flops=2 * n)


def image(n: int) -> Workload:
    """Unsharp mask with a 3x3 blur; the picture brings its border along."""

    def body(o: Any, p: Any) -> Any:
        f = o.cast(p, "float32")
        rows = f[:, :-2] + f[:, 1:-1] * 2.0 + f[:, 2:]
        blurred = (rows[:-2] + rows[1:-1] * 2.0 + rows[2:]) * (1 / 16)
        inner = f[1:-1, 1:-1]
        sharp = inner + (inner - blurred) * 1.5
        return o.cast(o.floor(o.clip(sharp + 0.5, 0.0, 255.0)), "uint8")

    picture = np.random.default_rng(0).integers(0, 256, (n + 2, n + 2, 3), dtype=np.uint8)
    return Workload([picture], body, flops=36.0 * n * n, tolerance=0.0)


def mandelbrot(n: int, steps: int) -> Workload:
    def body(o: Any, cr: Any, ci: Any) -> Any:
        zr, zi, count = cr * 0.0, ci * 0.0, cr * 0.0
        for _ in range(steps):
            rr, ii = zr * zr, zi * zi
            live = rr + ii <= 4.0
            count = count + o.cast(live, "float32")
            zi, zr = o.where(live, 2.0 * zr * zi + ci, zi), o.where(live, rr - ii + cr, zr)
        return count

    ci, cr = np.meshgrid(np.linspace(-1.25, 1.25, n), np.linspace(-2.0, 0.5, n), indexing="ij")
    inputs = [np.ascontiguousarray(a, dtype=F32) for a in (cr, ci)]
    return Workload(inputs, body, flops=16.0 * n * n * steps, tolerance=0.02, share=True)


# ------------------------------------------------------------------ movement
def transpose_add(rows: int, columns: int, dtype: Any) -> Workload:
    inputs = [normal(0, rows, columns, dtype=dtype), normal(1, columns, rows, dtype=dtype)]
    return Workload(inputs, lambda o, a, b: o.transpose(a, 1, 0) + b)


def heads(n: int, t: int, h: int, d: int) -> Workload:
    """Batch, time, head, channel to batch, head, channel, time, and added."""
    inputs = [normal(0, n, t, h, d), normal(1, n, h, d, t)]
    return Workload(inputs, lambda o, x, y: o.transpose(x, 0, 2, 3, 1) + y)


def gather_sum(rows: int, width: int, bags: int, each: int) -> Workload:
    index = np.random.default_rng(1).integers(0, rows, (bags, each), dtype=np.int32)
    return Workload(
        [normal(0, rows, width), index],
        lambda o, table, i: o.gather_sum(table, i),
        read=bags * each * (width * 4 + 4),
        flops=bags * each * width,
    )


# ------------------------------------------------------------------ reductions
def total(n: int) -> Workload:
    x = uniform(0, 0, 1, n)
    return Workload([x], lambda o, x: o.sum(x), flops=n, tolerance=1e-5)


def sum_axis(rows: int, columns: int, axis: int) -> Workload:
    x = uniform(0, 0, 1, rows, columns)
    return Workload([x], lambda o, x: o.sum(x, axis), flops=rows * columns, tolerance=1e-5)


def max_axis(rows: int, columns: int, axis: int) -> Workload:
    x = normal(0, rows, columns)
    return Workload([x], lambda o, x: o.max(x, axis), flops=rows * columns, tolerance=0.0)


def softmax(rows: int, columns: int) -> Workload:
    n = rows * columns
    return Workload(
        [normal(0, rows, columns)],
        lambda o, x: o.softmax(x),
        flops=4 * n,
        functions={"exp_f32": n},
    )


def masked_softmax(h: int, n: int) -> Workload:
    def body(o: Any, x: Any, mask: Any) -> Any:
        return o.softmax(x * 0.125 + mask)

    inputs = [normal(0, h, n, n), causal(n)]
    return Workload(inputs, body, flops=6 * h * n * n, functions={"exp_f32": h * n * n})


def layer_norm(rows: int, columns: int) -> Workload:
    inputs = [normal(0, rows, columns), normal(1, columns), normal(2, columns)]
    flops = 8 * rows * columns
    return Workload(inputs, lambda o, x, w, b: o.layer_norm(x, w, b), flops=flops)


# ------------------------------------------------------------------ products
def product(a: tuple[int, ...], b: tuple[int, ...], dtype: Any = F32) -> Workload:
    flops = 2.0 * math.prod(a) * (b[-1] if len(b) > 1 else 1)
    return Workload(
        [normal(0, *a, dtype=dtype), normal(1, *b, dtype=dtype)],
        lambda o, a, b: o.matmul(a, b),
        flops=flops,
        tolerance=1e-13 if dtype is F64 else 2e-5,
    )


def convolution(
    n: int, c: int, size: int, k: int, window: int, stride: int, pad: int
) -> Workload:
    out = (size + 2 * pad - window) // stride + 1
    inputs = [normal(0, n, c, size, size), normal(1, k, c, window, window, scale=0.1)]
    flops = 2.0 * n * k * c * window**2 * out**2
    return Workload(inputs, lambda o, x, w: o.conv2d(x, w, stride, pad), flops=flops)


def max_pool(n: int, c: int, size: int) -> Workload:
    x = normal(0, n, c, size, size)
    return Workload([x], lambda o, x: o.max_pool2(x), flops=float(x.size), tolerance=0.0)


# ------------------------------------------------------------------ networks
def attention(h: int, t: int, d: int) -> Workload:
    def body(o: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = o.matmul(q, o.transpose(k, 0, 2, 1)) * d**-0.5 + mask
        return o.matmul(o.softmax(scores), v)

    inputs = [*(normal(i, h, t, d) for i in range(3)), causal(t)]
    return Workload(inputs, body, 4.0 * h * t * t * d, {"exp_f32": h * t * t})


def mlp(batch: int) -> Workload:
    sizes = [784, 512, 512, 10]
    inputs = [normal(0, batch, sizes[0])]
    for i, (m, n) in enumerate(zip(sizes, sizes[1:])):
        inputs += [normal(2 * i + 1, m, n, scale=m**-0.5), normal(2 * i + 2, n, scale=0.1)]

    def body(o: Any, x: Any, w0: Any, b0: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        x = o.relu(o.matmul(x, w0) + b0)
        x = o.relu(o.matmul(x, w1) + b1)
        return o.softmax(o.matmul(x, w2) + b2)

    return Workload(inputs, body, 2.0 * batch * sum(m * n for m, n in zip(sizes, sizes[1:])))


def transformer_block(t: int, d: int, h: int, f: int) -> Workload:
    def body(o: Any, x: Any, wqkv: Any, wo: Any, w1: Any, b1: Any, w2: Any, b2: Any,
             g1: Any, c1: Any, g2: Any, c2: Any, mask: Any) -> Any:  # fmt: skip
        qkv = o.reshape(o.matmul(o.layer_norm(x, g1, c1), wqkv), (t, 3, h, d // h))
        qkv = o.transpose(qkv, 1, 2, 0, 3)
        scores = o.matmul(qkv[0], o.transpose(qkv[1], 0, 2, 1)) * (d // h) ** -0.5 + mask
        mixed = o.transpose(o.matmul(o.softmax(scores), qkv[2]), 1, 0, 2)
        x = x + o.matmul(o.reshape(mixed, (t, d)), wo)
        return x + o.matmul(o.gelu(o.matmul(o.layer_norm(x, g2, c2), w1) + b1), w2) + b2

    matrices = [(d, 3 * d), (d, d), (d, f), (f,), (f, d), (d,)]
    inputs = [normal(0, t, d)]
    for i, shape in enumerate(matrices):
        scale = 0.1 if len(shape) == 1 else shape[0] ** -0.5
        inputs.append(normal(i + 1, *shape, scale=scale))
    inputs += [normal(i, d) for i in range(7, 11)]
    flops = 2.0 * t * (4 * d * d + 2 * d * f) + 4.0 * t * t * d
    return Workload([*inputs, causal(t)], body, flops, {"exp_f32": h * t * t + t * f})


def digits_cnn() -> Workload:
    def body(o: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any, wf: Any, bf: Any) -> Any:
        x = o.max_pool2(o.relu(o.conv2d(x, w1, 1, 1) + b1))
        x = o.max_pool2(o.relu(o.conv2d(x, w2, 1, 1) + b2))
        return o.softmax(o.matmul(o.reshape(x, (1, 1568)), wf) + bf)

    inputs = [
        normal(0, 1, 1, 28, 28), normal(1, 16, 1, 3, 3, scale=0.3), normal(2, 16, 1, 1, scale=0.1),
        normal(3, 32, 16, 3, 3, scale=0.1), normal(4, 32, 1, 1, scale=0.1),
        normal(5, 1568, 10, scale=0.03), normal(6, 10),
    ]  # fmt: skip
    return Workload(inputs, body, 2.0 * (28 * 28 * 16 * 9 + 14 * 14 * 32 * 16 * 9 + 1568 * 10))


# ------------------------------------------------------------------ the list
add("chain_4m", chain, 4 << 20)
for _bits, _dtype in (("f32", F32), ("f64", F64)):
    for _name in ("exp", "log", "sin"):
        add(f"map1_{_name}_1m_{_bits}", function, _name, _dtype)
add("sum_all_16m", total, 16 << 20)
add("sum_axis0_4096", sum_axis, 4096, 4096, 0)
add("sum_axis1_4096", sum_axis, 4096, 4096, 1)
add("softmax_4096x1024", softmax, 4096, 1024)
add("layer_norm_4096x1024", layer_norm, 4096, 1024)
for _n in (256, 512, 1024, 2048):
    add(f"gemm_{_n}", product, (_n, _n), (_n, _n))
add("gemm_1024_f64", product, (1024, 1024), (1024, 1024), F64)
add("gemv_4096", product, (4096, 4096), (4096,))
add("bgemm_256x32", product, (256, 32, 32), (256, 32, 32))
add("conv2d_3x3_64", convolution, 1, 64, 56, 64, 3, 1, 1)
add("conv2d_7x7_s2", convolution, 8, 3, 224, 64, 7, 2, 3)
add("attention", attention, 8, 512, 64)
add("mlp_64", mlp, 64)
add("image_2048", image, 2048)
add("transpose_add_4096", transpose_add, 4096, 4096, F32)
add("gather_sum", gather_sum, 50_000, 128, 256, 64)
add("mandelbrot_1024", mandelbrot, 1024, 50)
add("tiny_8", lambda: Workload([normal(i, 8) for i in range(3)], lambda o, a, b, c: a * b + c))
add("transformer_block", transformer_block, 128, 256, 4, 1024)
add("digits_cnn", digits_cnn)
ANCHORS = list(WORKLOADS)
add("chain_1000003", chain, 1_000_003)
add("axpy_31", scaled_sum, 31)
add("axpy_16m", scaled_sum, 16 << 20)
add("sum_axis0_thin", sum_axis, 100_003, 37, 0)
add("max_axis1_odd", max_axis, 3001, 1009, 1)
add("softmax_odd", softmax, 1000, 1003)
add("masked_softmax", masked_softmax, 8, 512)
add("layer_norm_odd", layer_norm, 777, 771)
add("gemm_odd", product, (333, 777), (777, 555))
add("gemm_thin", product, (65536, 16), (16, 16))
add("gemm_small_17", product, (17, 17), (17, 17))
add("conv2d_1x1", convolution, 1, 256, 28, 128, 1, 1, 0)
add("max_pool_112", max_pool, 4, 64, 112)
add("image_509", image, 509)
add("transpose_add_odd", transpose_add, 1021, 2043, F32)
add("transpose_add_f64", transpose_add, 2048, 2048, F64)
add("split_heads", heads, 4, 256, 8, 64)
add("mandelbrot_301", mandelbrot, 301, 80)
ODD = list(WORKLOADS)[len(ANCHORS) :]
