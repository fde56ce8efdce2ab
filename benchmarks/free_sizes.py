"""Programs of free sizes beside programs of the same sizes as numbers, by kind of kernel.

    python benchmarks/free_sizes.py [NAME...] [--repeats 9]

For each kind a program is compiled once with a variable, and once for each of three sizes. The
table has the time of the former over that of the latter: one thread, in turns in one process, the
least of several. The last column has the seconds to compile, free and fixed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import numpy.typing as npt

import uopc
from uopc import UOp

Dim = int | UOp
MOST = 4096  # the bound of a size that nobody states
RANDOM = np.random.default_rng(0)


class Kind(NamedTuple):
    """The graph of a kind for a size, and the sizes that are measured."""

    graph: Callable[[Dim], UOp]
    sizes: tuple[int, int, int]
    most: int = MOST


KINDS: dict[str, Kind] = {}


def kind(*sizes: int, most: int = MOST) -> Callable[[Callable[[Dim], UOp]], None]:
    """Enter a graph in the table under the name of its function."""

    def enter(graph: Callable[[Dim], UOp]) -> None:
        KINDS[graph.__name__] = Kind(graph, (sizes[0], sizes[1], sizes[2]), most)

    return enter


def weights(*shape: int) -> UOp:
    """A constant, the same for each size of a kind."""
    found = np.random.default_rng(list(shape)).standard_normal(shape)
    return uopc.constant((found * 0.1).astype("f4"))


def x(*shape: Dim) -> UOp:
    return uopc.param("x", shape)


# ---------------------------------------------------------------- elementwise, sums, movement
@kind(64, 333, 1000)
def elementwise(n: Dim) -> UOp:
    return x(n, 256).gelu() * 2


@kind(64, 333, 1001)
def elementwise_last(n: Dim) -> UOp:
    return (x(64, n) * 3 + 1).relu()


@kind(64, 333, 1001)
def sum_rows(n: Dim) -> UOp:
    return x(256, n).sum(1)


@kind(64, 333, 1001)
def sum_columns(n: Dim) -> UOp:
    return x(256, n).sum(0)


@kind(64, 333, 1001)
def sum_free_columns(n: Dim) -> UOp:
    return x(n, 256).sum(0)


@kind(64, 333, 1001)
def softmax(n: Dim) -> UOp:
    return x(128, n).softmax(-1)


@kind(64, 333, 1001)
def softmax_rows(n: Dim) -> UOp:
    return x(n, 128).softmax(-1)


@kind(64, 333, 1001)
def layer_norm(n: Dim) -> UOp:
    return x(n, 384).layer_norm(weights(384), weights(384))


@kind(64, 333, 1001)
def transpose(n: Dim) -> UOp:
    return x(n, 256).permute(1, 0).contiguous()


@kind(64, 333, 1001)
def cat(n: Dim) -> UOp:
    a = x(n, 128)
    return (a * 2).cat(a.relu(), axis=0)


@kind(64, 333, 1001)
def cat_columns(n: Dim) -> UOp:
    a = x(128, n)
    return (a * 2).cat(a.relu(), axis=1)


@kind(64, 333, 1001)
def gather(n: Dim) -> UOp:
    return weights(1000, 128)[uopc.param("index", (n,), "int32")] + 1


# ---------------------------------------------------------------- products
@kind(16, 77, 256)
def matmul_rows(n: Dim) -> UOp:
    return x(n, 256) @ weights(256, 256)


@kind(16, 77, 256)
def matmul_columns(n: Dim) -> UOp:
    return weights(256, 256) @ x(256, n)


@kind(16, 77, 256)
def matmul_depth(n: Dim) -> UOp:
    return x(128, n) @ uopc.param("y", (n, 128))


@kind(1, 3, 16)
def matmul_batch(n: Dim) -> UOp:
    return x(n, 64, 64) @ uopc.param("y", (n, 64, 64))


@kind(1, 7, 64)
def mlp(n: Dim) -> UOp:
    return (x(n, 256) @ weights(256, 512)).gelu() @ weights(512, 256)


@kind(16, 77, 200, most=512)
def attention(n: Dim) -> UOp:
    q, k, v = (uopc.param(name, (4, n, 64)) for name in "qkv")
    return (q @ k.permute(0, 2, 1) * 0.125).softmax(-1) @ v


# ---------------------------------------------------------------- convolutions, pools
@kind(64, 333, 1000)
def conv1d(n: Dim) -> UOp:
    return x(1, 32, n).conv(weights(32, 32, 3), padding=[(1, 1)])


@kind(64, 333, 1000)
def conv1d_wide(n: Dim) -> UOp:
    return x(1, 32, n).relu().conv(weights(32, 32, 5), padding=[(2, 2)]).relu()


@kind(64, 333, 1000)
def conv1d_strided(n: Dim) -> UOp:
    return x(1, 32, n).conv(weights(32, 32, 3), padding=[(1, 1)], stride=2)


@kind(64, 333, 1000)
def conv1d_after_stride(n: Dim) -> UOp:
    y = x(1, 32, n).conv(weights(32, 32, 3), padding=[(1, 1)], stride=2)
    return y.gelu().conv(weights(32, 32, 5), padding=[(2, 2)])


@kind(64, 333, 1000)
def conv1d_after_pool(n: Dim) -> UOp:
    return x(4, 32, n).max_pool((2,), stride=2).relu().conv(weights(32, 32, 5), padding=[(2, 2)])


@kind(1, 3, 8)
def conv2d_batch(n: Dim) -> UOp:
    return x(n, 16, 28, 28).conv(weights(32, 16, 3, 3), padding=1).relu()


@kind(1, 3, 8)
def cnn_batch(n: Dim) -> UOp:
    y = x(n, 8, 28, 28).conv(weights(16, 8, 3, 3), padding=1).relu().max_pool((2, 2))
    y = y.conv(weights(32, 16, 3, 3), padding=1).relu().max_pool((2, 2))
    return y.reshape(n, 32 * 49) @ weights(32 * 49, 10)


@kind(24, 57, 100, most=1024)
def conv2d_width(n: Dim) -> UOp:
    return x(1, 16, 24, n).conv(weights(16, 16, 3, 3), padding=1).relu()


@kind(24, 57, 100, most=1024)
def conv2d_height(n: Dim) -> UOp:
    return x(1, 16, n, 24).conv(weights(16, 16, 3, 3), padding=1).relu()


@kind(24, 57, 100, most=1024)
def conv2d_both(n: Dim) -> UOp:
    return x(1, 16, n, n).conv(weights(16, 16, 3, 3), padding=1).relu()


@kind(24, 57, 100, most=1024)
def conv2d_strided(n: Dim) -> UOp:
    return x(1, 16, 24, n).conv(weights(16, 16, 3, 3), padding=1, stride=2).relu()


@kind(24, 57, 100, most=1024)
def conv2d_after_stride(n: Dim) -> UOp:
    y = x(1, 16, n, n).conv(weights(16, 16, 3, 3), padding=1, stride=2).relu()
    return y.conv(weights(32, 16, 3, 3), padding=1).relu()


@kind(24, 57, 100, most=1024)
def conv2d_pointwise(n: Dim) -> UOp:
    return x(1, 64, n, n).conv(weights(32, 64, 1, 1)).relu()


@kind(24, 57, 100, most=1024)
def conv2d_depthwise(n: Dim) -> UOp:
    return x(1, 32, n, n).conv(weights(32, 1, 3, 3), padding=1, groups=32).relu()


@kind(64, 333, 1000)
def max_pool1d(n: Dim) -> UOp:
    return x(8, 32, n).max_pool((3,), stride=2, padding=1)


@kind(24, 57, 100, most=1024)
def max_pool2d(n: Dim) -> UOp:
    return x(1, 16, n, n).max_pool((2, 2), stride=2)


@kind(24, 57, 100, most=1024)
def avg_pool2d(n: Dim) -> UOp:
    return x(1, 16, n, n).avg_pool((3, 3), stride=1, padding=1)


# ---------------------------------------------------------------- loops of steps, caches
@kind(8, 33, 100, most=512)
def lstm(n: Dim) -> UOp:
    return _lstm(x(n, 4, 32), 32)


@kind(1, 3, 16)
def lstm_batch(n: Dim) -> UOp:
    return _lstm(x(20, n, 32), 32)


def _lstm(steps: UOp, width: int) -> UOp:
    """All outputs of an LSTM of one layer."""
    batch = steps.shape[1]
    w, u = weights(int(steps.shape[2]), 4 * width), weights(width, 4 * width)
    start = uopc.constant(0.0).expand(batch, width)

    def step(carry: tuple[UOp, UOp], given: UOp) -> tuple[tuple[UOp, UOp], UOp]:
        h, c = carry
        gates = given + h @ u
        i, f, g, o = (gates[:, j * width : (j + 1) * width] for j in range(4))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (h, c), h

    return uopc.scan(step, (start, start), steps @ w)[1]


@kind(16, 77, 256, most=511)
def kv_store(n: Dim) -> UOp:
    """A product that is stored into a cache at a variable place; n fixed or free."""
    return _cached(x(n, 256), n)


@kind(16, 77, 256, most=511)
def kv_store_columns(n: Dim) -> UOp:
    return _cached(x(256, n).permute(1, 0), n)


def _cached(given: UOp, n: Dim) -> UOp:
    heads, head, context = 4, 64, 512
    position = uopc.variable("position", 0, context - (1 if isinstance(n, UOp) else n))
    new = (given @ weights(256, heads * head)).reshape(n, heads, head).permute(1, 0, 2)
    memory = uopc.param("memory", (heads, context, head))
    place = [(0, heads), (position, position + n), (0, head)]
    return memory.after(memory.shrink(place).store(new))[0, 0, 0]


# ---------------------------------------------------------------- the measurement
Arrays = dict[str, npt.NDArray[np.float32] | npt.NDArray[np.int32] | int]


def arrays(program: uopc.Program) -> Arrays:
    """Arrays for the params of a program of fixed sizes."""
    found: Arrays = {}
    for given in program.inputs:
        shape = tuple(map(int, given.shape))
        whole = given.dtype.name == "int32"
        made = RANDOM.integers(0, 1000, shape) if whole else RANDOM.standard_normal(shape)
        found[given.name] = made.astype(given.dtype.name)
    return found


def seconds(f: uopc.Program, given: Arrays) -> float:
    """The processor time of a call, one of so many that they take a millisecond or more."""
    begin = time.process_time()
    f(**given)
    count = max(1, int(2e-3 / max(time.process_time() - begin, 1e-6)))
    begin = time.process_time()
    for _ in range(count):
        f(**given)
    return (time.process_time() - begin) / count


def compiled(graph: UOp) -> tuple[uopc.Program, float]:
    """A program and the seconds that compiling took."""
    begin = time.process_time()
    made = uopc.compile(graph, threads=1)
    return made, time.process_time() - begin


def measure(name: str, repeats: int) -> tuple[list[tuple[float, float]], float, float]:
    """For each size, the times with the size free and fixed; the seconds to compile both."""
    row = KINDS[name]
    free, free_compile = compiled(row.graph(uopc.variable("n", 1, row.most)))
    times, fixed_compile = [], 0.0
    for size in row.sizes:
        fixed, took = compiled(row.graph(size))
        fixed_compile += took / len(row.sizes)
        given = arrays(fixed) | ({"position": 3} if name.startswith("kv") else {})
        if not np.allclose(fixed(**given), free(**given), atol=1e-3):
            raise SystemExit(f"{name} of {size}: other numbers than with a fixed size")
        turns = [(seconds(free, given), seconds(fixed, given)) for _ in range(repeats)]
        times.append((min(t for t, _ in turns), min(t for _, t in turns)))
    return times, free_compile, fixed_compile


def main() -> None:
    """Print a row for each kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(KINDS))
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    for name in options.names:
        times, free, fixed = measure(name, options.repeats)
        cells = [
            f"{size}: {a * 1e6:.1f} / {b * 1e6:.1f} us {a / b:.2f}"
            for size, (a, b) in zip(KINDS[name].sizes, times)
        ]
        worst = max(a / b for a, b in times)
        row = f"{name:20} worst {worst:5.2f} | {' | '.join(cells)} | {free:.2f} / {fixed:.2f} s"
        print(row, flush=True)


if __name__ == "__main__":
    main()
