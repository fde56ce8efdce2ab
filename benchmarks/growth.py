"""Graphs that grow, for `benchmarks/compile_time.py`: each written once, for every library.

A workload is a function of a namespace `e` (a library's operators) and a size; it gives what is
computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

Build = Callable[[Any, int], Any]


def uopc_operators() -> Any:
    """uopc's names for what the workloads here use."""
    import uopc

    return SimpleNamespace(
        param=uopc.param, exp=lambda x: x.exp(), relu=lambda x: x.relu(), tanh=lambda x: x.tanh(),
        rsqrt=lambda x: x.rsqrt(), mean=lambda x: x.mean(-1, keepdims=True),
        sum=lambda x: x.sum(-1, keepdims=True), reshape=lambda x, dims: x.reshape(dims),
        permute=lambda x, axes: x.permute(axes), stack=lambda xs: uopc.stack(*xs),
        update=lambda x, at, v: x.after(x[at : at + v.shape[0]].store(v)),
    )  # fmt: skip


def chain(e: Any, n: int) -> Any:
    """n elementwise operations, one after the other."""
    x, y = e.param("x", (1024,)), e.param("y", (1024,))
    z = x
    for i in range(n // 2):
        z = (z * 0.5 if i % 2 else z * y) + x
    return z


def equal_kernels(e: Any, n: int) -> Any:
    """n outputs by one kernel."""
    return [e.exp(e.param(f"x{i}", (256,)) * 2.0 + 1.0) for i in range(n)]


def different_kernels(e: Any, n: int) -> Any:
    """n outputs, each of a shape of its own."""
    return [e.exp(e.param(f"x{i}", (64 + i,)) * 2.0 + 1.0) for i in range(n)]


def layers(e: Any, n: int) -> Any:
    """n dense layers of one size."""
    x = e.param("x", (8, 64))
    for i in range(n):
        x = e.relu(x @ e.param(f"w{i}", (64, 64)) + e.param(f"b{i}", (64,)))
    return x


def _normed(e: Any, x: Any) -> Any:
    centred = x - e.mean(x)
    return centred * e.rsqrt(e.mean(centred * centred) + 1e-5)


def transformer(e: Any, n: int) -> Any:
    """n blocks: attention of 4 heads and a feed-forward layer, at width 64, for 16 tokens."""
    x = e.param("x", (16, 64))
    for i in range(n):
        h = _normed(e, x)
        q, k, v = [
            e.permute(e.reshape(h @ e.param(f"{name}{i}", (64, 64)), (16, 4, 16)), (1, 0, 2))
            for name in "qkv"
        ]
        scores = e.exp(q @ e.permute(k, (0, 2, 1)) * 0.25)
        mixed = e.permute((scores / e.sum(scores)) @ v, (1, 0, 2))
        x = x + e.reshape(mixed, (16, 64)) @ e.param(f"o{i}", (64, 64))
        h = e.relu(_normed(e, x) @ e.param(f"u{i}", (64, 128)))
        x = x + h @ e.param(f"d{i}", (128, 64))
    return x


def recurrence(e: Any, n: int) -> Any:
    """n steps of an unrolled recurrent network over one input array."""
    xs, h = e.param("xs", (n, 1, 32)), e.param("h", (1, 32))
    w, u = e.param("w", (32, 32)), e.param("u", (32, 32))
    for t in range(n):
        h = e.tanh(xs[t] @ w + h @ u)
    return h


def movement(e: Any, n: int) -> Any:
    """n movement operations: transposes, splits and merges of dimensions."""
    x = e.param("x", (24, 40))
    for i in range(n // 4):
        x = e.permute(e.reshape(x, (4, 6, 40) if i % 2 else (24, 8, 5)), (2, 0, 1))
        x = e.reshape(e.permute(e.reshape(x, (960,)).reshape((30, 32)), (1, 0)), (24, 40))
    return x + 1.0


def stack(e: Any, n: int) -> Any:
    """n arrays, each computed alike, put together."""
    x = e.param("x", (n + 8,))
    return e.stack([x[i : i + 4] * float(1 + i * 37 % 11) for i in range(n)])


def scalars(e: Any, n: int) -> Any:
    """One kernel of n statements that all depend on each other: no loop to find."""
    x = e.param("x", (64,))
    values = [x[i : i + 1] for i in range(16)]
    for i in range(n - 16):
        a, b = values[-1 - i * i % 13], values[-1 - i * 7 % 16]
        values.append(a * b + float(i % 5))
    total = values[-1]
    for v in values[-16:-1]:
        total = total + v
    return total


def updates(e: Any, n: int) -> Any:
    """n updates of one array in place, each a part of it and a read of the part before."""
    x, y = e.param("x", (8 * n + 8,)), e.param("y", (8,))
    for i in range(0, 8 * n, 8):
        x = e.update(x, i + 8, x[i : i + 8] * 0.5 + y)
    return x


def reduces(e: Any, n: int) -> Any:
    """n reduces of the rows of one array: their loops are one."""
    x = e.param("x", (64, 16))
    total = e.sum(x)
    for i in range(n - 1):
        total = total * 0.5 + e.sum(x * (i + 1.5))
    return total


def stencil(e: Any, n: int) -> Any:
    """n steps of a stencil of two places: each step reads the one before in two places."""
    x = e.param("x", (n + 16_384,))
    for _ in range(n):
        x = x[1:] * 0.5 + x[:-1]
    return x


# name -> what builds it, and three sizes, each four times the one before.
GROWTH: dict[str, tuple[Build, tuple[int, int, int]]] = {
    "chain": (chain, (6_250, 25_000, 100_000)),
    "equal_kernels": (equal_kernels, (500, 2_000, 8_000)),
    "different_kernels": (different_kernels, (32, 128, 512)),
    "layers": (layers, (250, 1_000, 4_000)),
    "transformer": (transformer, (32, 128, 512)),
    "recurrence": (recurrence, (256, 1_024, 4_096)),
    "movement": (movement, (1_500, 6_000, 24_000)),
    "stack": (stack, (1_500, 6_000, 24_000)),
    "scalars": (scalars, (1_600, 6_400, 25_600)),
    "updates": (updates, (500, 2_000, 8_000)),
    "reduces": (reduces, (256, 1_024, 4_096)),
    "stencil": (stencil, (320, 1_280, 5_120)),
}


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """The slope of log time over log size."""
    xs, ys = [math.log(s) for s in sizes], [math.log(max(t, 1e-4)) for t in seconds]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mx) ** 2 for x in xs)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / spread if spread else math.nan
