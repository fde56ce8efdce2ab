"""The workloads of the benchmarks of NVIDIA devices: graphs of ours, the same for PyTorch, their
work.

`bytes` are the least that must move (inputs once, outputs once), `flops` those of the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import uopc
from uopc import UOp, dtypes

TORCH = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
F32, F16, BF16 = dtypes.float32, dtypes.float16, dtypes.bfloat16


@dataclass(frozen=True)
class Workload:
    """`torch(modules, *tensors)` does with PyTorch what `graph` does; `tf32` lets both round."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: Any
    graph: Callable[..., UOp]
    torch: Callable[..., Any]
    flops: int = 0
    outputs: int = 0  # elements
    tf32: bool = False

    @property
    def bytes(self) -> int:
        total = self.outputs
        for shape in self.shapes:
            total += _count(shape)
        return total * int(self.dtype.itemsize)

    def compiled(self, device: str) -> Any:
        """The program for a device."""
        with uopc.options(tf32=self.tf32):
            return uopc.compile(self.graph(*self.params()), device=device)

    def params(self) -> list[UOp]:
        return [uopc.param(f"a{i}", s, self.dtype) for i, s in enumerate(self.shapes)]


def _count(shape: Sequence[int]) -> int:
    total = 1
    for d in shape:
        total *= d
    return total


def _attention(q: UOp, k: UOp, v: UOp) -> UOp:
    scale = float(q.shape[-1]) ** -0.5
    return ((q @ k.transpose(-1, -2)) * scale).softmax(axis=-1) @ v


def _block(x: UOp, qkv: UOp, out: UOp, up: UOp, down: UOp) -> UOp:
    """A transformer block: norm, attention, norm, two layers, each added to its input."""
    b, t, d = x.shape
    heads, width = d // 64, 64
    parts = (x.layer_norm() @ qkv).reshape(b, t, 3, heads, width)
    q, k, v = (parts[:, :, i].permute(0, 2, 1, 3) for i in range(3))
    mixed = _attention(q, k, v).permute(0, 2, 1, 3).reshape(b, t, d)
    x = x + mixed @ out
    return x + (x.layer_norm() @ up).gelu(approximate="tanh") @ down


def _torch_block(f: Any, x: Any, qkv: Any, out: Any, up: Any, down: Any) -> Any:
    b, t, d = x.shape
    parts = (f.layer_norm(x, (d,)) @ qkv).reshape(b, t, 3, d // 64, 64)
    q, k, v = (parts[:, :, i].permute(0, 2, 1, 3) for i in range(3))
    mixed = f.scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3).reshape(b, t, d)
    x = x + mixed @ out
    return x + f.gelu(f.layer_norm(x, (d,)) @ up, approximate="tanh") @ down


def _gemm(n: int, dtype: Any, name: str, tf32: bool = False) -> Workload:
    return Workload(f"gemm {name} {n}", ((n, n), (n, n)), dtype, lambda a, b: a @ b,
                    lambda f, a, b: a @ b, 2 * n**3, n * n, tf32)  # fmt: skip


def workloads(small: bool = False) -> list[Workload]:
    """All of them; `small` ones take no time and test the script."""
    n = 1 << (10 if small else 26)
    rows, width = (8, 64) if small else (8192, 4096)
    sizes = (32,) if small else (512, 1024, 2048, 4096, 8192)
    b, h, t, w = (1, 2, 8, 16) if small else (8, 16, 1024, 64)
    d, length = (64, 4) if small else (1024, 1024)
    c, side, batch = (2, 6, 1) if small else (64, 56, 32)
    one, matrix = ((n,),), ((rows, width),)
    found = [
        Workload("copy", one, F32, lambda x: x.contiguous(), lambda f, x: x.clone(), 0, n),
        Workload("elementwise", one * 2, F32, lambda x, y: (x * 2 + y).relu(),
                 lambda f, x, y: f.relu(x * 2 + y), 3 * n, n),
        Workload("reduce", matrix, F32, lambda x: x.sum(axis=1), lambda f, x: x.sum(1),
                 rows * width, rows),
        Workload("reduce all", one, F32, lambda x: x.sum(), lambda f, x: x.sum(), n, 1),
        Workload("reduce columns", matrix, F32, lambda x: x.sum(axis=0), lambda f, x: x.sum(0),
                 rows * width, width),
        Workload("transpose", matrix, F32, lambda x: x.transpose().contiguous(),
                 lambda f, x: x.T.contiguous(), 0, rows * width),
        Workload("softmax", matrix, F32, lambda x: x.softmax(axis=-1),
                 lambda f, x: f.softmax(x, -1), 5 * rows * width, rows * width),
        Workload("layer norm", matrix, F32, lambda x: x.layer_norm(),
                 lambda f, x: f.layer_norm(x, (width,)), 8 * rows * width, rows * width),
    ]  # fmt: skip
    for size in sizes:
        found.append(_gemm(size, F32, "f32"))
        found.append(_gemm(size, F32, "tf32", True))
        found.append(_gemm(size, F16, "f16"))
        found.append(_gemm(size, BF16, "bf16"))
    image, kernel = (batch, c, side, side), (c, c, 3, 3)
    heads = ((b, h, t, w),) * 3
    layers = ((batch if small else 8, length, d), (d, 3 * d), (d, d), (d, 4 * d), (4 * d, d))
    tokens = layers[0][0] * length
    found += [
        Workload("convolution", (image, kernel), F16, lambda x, k: x.conv2d(k, padding=1),
                 lambda f, x, k: f.conv2d(x, k, padding=1),
                 2 * 9 * c * _count(image), _count(image)),
        Workload("attention", heads, F16, _attention,
                 lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v),
                 4 * b * h * t * t * w, b * h * t * w),
        Workload("transformer block", layers, F16, _block, _torch_block,
                 tokens * (24 * d * d + 4 * length * d), tokens * d),
    ]  # fmt: skip
    return found
