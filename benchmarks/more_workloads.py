"""Workloads of the kinds of `workloads.py` that nothing was tuned on: other sizes, other networks.

`python benchmarks/kernels.py --workloads more` runs them.
"""

from __future__ import annotations

import math
from typing import Any

from workloads import F64, WORKLOADS, Workload, add, normal, product


# ------------------------------------------------------------------ products
def transposed_product(m: int, n: int, k: int) -> Workload:
    """a · bᵀ: both operands' rows are summed."""
    inputs = [normal(0, m, k), normal(1, n, k)]
    return Workload(inputs, lambda o, a, b: o.matmul(a, o.transpose(b, 1, 0)), 2.0 * m * n * k)


def gram(rows: int, columns: int) -> Workload:
    """xᵀ · x, a long sum for each of few results."""
    x = normal(0, rows, columns, dtype=F64)

    def body(o: Any, x: Any) -> Any:
        return o.matmul(o.transpose(x, 1, 0), x)

    return Workload([x], body, 2.0 * rows * columns**2, tolerance=1e-12)


# ------------------------------------------------------------------ convolutions
def convolution(
    shape: tuple[int, int, int], k: int, window: int, *, n: int = 1, stride: int = 1,
    pad: int = 0, dilation: int = 1, groups: int = 1,
) -> Workload:  # fmt: skip
    """`shape` is channels, rows and columns; `k` is output channels."""
    c, *sizes = shape
    out = [(s + 2 * pad - dilation * (window - 1) - 1) // stride + 1 for s in sizes]
    inputs = [normal(0, n, *shape), normal(1, k, c // groups, window, window, scale=0.1)]

    def body(o: Any, x: Any, w: Any) -> Any:
        return o.conv2d(x, w, stride, pad, dilation, groups)

    return Workload(inputs, body, 2.0 * n * k * (c // groups) * window**2 * math.prod(out))


# ------------------------------------------------------------------ networks
def attention(heads: int, queries: int, keys: int, d: int) -> Workload:
    def body(o: Any, q: Any, k: Any, v: Any) -> Any:
        scores = o.matmul(q, o.transpose(k, 0, 2, 1)) * d**-0.5
        return o.matmul(o.softmax(scores), v)

    inputs = [normal(0, heads, queries, d), normal(1, heads, keys, d), normal(2, heads, keys, d)]
    pairs = heads * queries * keys
    return Workload(inputs, body, 4.0 * pairs * d, {"exp_f32": pairs})


def perceptron(batch: int, *sizes: int) -> Workload:
    """Layers with tanh between them, in float64: a model of a dynamic system."""
    inputs = [normal(0, batch, sizes[0], dtype=F64)]
    for i, (m, n) in enumerate(zip(sizes, sizes[1:])):
        inputs += [normal(2 * i + 1, m, n, dtype=F64, scale=m**-0.5),
                   normal(2 * i + 2, n, dtype=F64)]  # fmt: skip

    def body(o: Any, x: Any, *layers: Any) -> Any:
        for w, b in zip(layers[:-2:2], layers[1:-2:2]):
            x = o.tanh(o.matmul(x, w) + b)
        return o.matmul(x, layers[-2]) + layers[-1]

    flops = 2.0 * batch * sum(m * n for m, n in zip(sizes, sizes[1:]))
    hidden = batch * sum(sizes[1:-1])
    return Workload(inputs, body, flops, {"exp_f64": hidden}, tolerance=1e-12)


def gated_unit(batch: int, d: int, steps: int) -> Workload:
    """A GRU that reads a sequence, step by step."""
    inputs = [normal(0, steps, batch, d), normal(1, batch, d)]
    inputs += [normal(2, d, 3 * d, scale=d**-0.5), normal(3, d, 3 * d, scale=d**-0.5)]

    def body(o: Any, x: Any, h: Any, w: Any, u: Any) -> Any:
        for t in range(steps):
            a, b = o.matmul(x[t], w), o.matmul(h, u)
            z = o.sigmoid(a[:, :d] + b[:, :d])
            r = o.sigmoid(a[:, d : 2 * d] + b[:, d : 2 * d])
            h = z * h + (1.0 - z) * o.tanh(a[:, 2 * d :] + r * b[:, 2 * d :])
        return h

    return Workload(inputs, body, 12.0 * steps * batch * d * d, {"exp_f32": 3 * steps * batch * d})


def residual_block(c: int, size: int) -> Workload:
    """Two 3 x 3 convolutions, each with a scale and a shift for its channels, and a way around."""

    def body(o: Any, x: Any, w1: Any, s1: Any, b1: Any, w2: Any, s2: Any, b2: Any) -> Any:
        y = o.relu(o.conv2d(x, w1, 1, 1) * s1 + b1)
        return o.relu(o.conv2d(y, w2, 1, 1) * s2 + b2 + x)

    inputs = [normal(0, 1, c, size, size)]
    for i in (1, 4):
        inputs += [normal(i, c, c, 3, 3, scale=0.05)]
        inputs += [normal(i + j, c, 1, 1, scale=0.5) for j in (1, 2)]
    return Workload(inputs, body, 2 * 2.0 * c * c * 9 * size**2)


def inverted_bottleneck(c: int, wide: int, size: int) -> Workload:
    """1 x 1 to more channels, 3 x 3 on each alone, 1 x 1 back, and a way around."""

    def body(o: Any, x: Any, w1: Any, w2: Any, w3: Any) -> Any:
        y = o.clip(o.conv2d(x, w1, 1, 0), 0.0, 6.0)
        y = o.clip(o.conv2d(y, w2, 1, 1, 1, wide), 0.0, 6.0)
        return x + o.conv2d(y, w3, 1, 0)

    shapes = [(wide, c, 1, 1), (wide, 1, 3, 3), (c, wide, 1, 1)]
    inputs = [normal(0, 1, c, size, size)]
    inputs += [normal(i + 1, *s, scale=math.prod(s[1:]) ** -0.5) for i, s in enumerate(shapes)]
    return Workload(inputs, body, 2.0 * size**2 * (2 * c * wide + 9 * wide))


def small_images(batch: int) -> Workload:
    """Three convolutions that halve 32 x 32 pictures by their stride, and a layer of ten."""
    channels = [3, 32, 64, 128]

    def body(o: Any, x: Any, w1: Any, w2: Any, w3: Any, w: Any, b: Any) -> Any:
        for window in (w1, w2, w3):
            x = o.relu(o.conv2d(x, window, 2, 1))
        return o.softmax(o.matmul(o.reshape(x, (batch, 128 * 16)), w) + b)

    inputs, flops, size = [normal(0, batch, 3, 32, 32)], 2.0 * batch * 20480, 16
    for i, (c, k) in enumerate(zip(channels, channels[1:])):
        inputs.append(normal(i + 1, k, c, 3, 3, scale=(9 * c) ** -0.5))
        flops += 2.0 * batch * 9 * c * k * size**2
        size //= 2
    inputs += [normal(4, 2048, 10, scale=0.02), normal(5, 10)]
    return Workload(inputs, body, flops)


# ------------------------------------------------------------------ the list
BEFORE = len(WORKLOADS)
add("gemm_wide", product, (96, 768), (768, 3072))
add("gemm_777_f64", product, (777, 777), (777, 777), F64)
add("gemm_transposed", transposed_product, 640, 640, 640)
add("gram_f64", gram, 20_000, 48)
add("bgemm_197", product, (12, 197, 64), (12, 64, 197))
add("row_by_matrix", product, (3000,), (3000, 5000))
add("row_by_matrix_f64", product, (2048,), (2048, 2048), F64)
add("gemv_odd_f64", product, (3001, 2003), (2003,), F64)
add("conv_first", convolution, (3, 224, 224), 32, 3, stride=2, pad=1)
add("conv_deep", convolution, (256, 14, 14), 256, 3, pad=1)
add("conv_depthwise", convolution, (128, 56, 56), 128, 3, pad=1, groups=128)
add("conv_dilated", convolution, (48, 40, 40), 64, 3, pad=2, dilation=2)
add("conv_grouped", convolution, (128, 28, 28), 128, 3, pad=1, groups=8)
add("conv_5x5_s2", convolution, (24, 65, 65), 40, 5, n=2, stride=2, pad=2)
add("conv_1x1_s2", convolution, (128, 56, 56), 256, 1, stride=2)
add("attention_197", attention, 12, 197, 197, 64)
add("attention_long", attention, 4, 1024, 1024, 32)
add("attention_one", attention, 16, 1, 2048, 64)
add("perceptron_f64", perceptron, 200, 12, 64, 64, 6)
add("gru_16", gated_unit, 16, 96, 4)
add("residual_block", residual_block, 64, 28)
add("inverted_bottleneck", inverted_bottleneck, 32, 192, 28)
add("small_images", small_images, 8)
MORE = list(WORKLOADS)[BEFORE:]
