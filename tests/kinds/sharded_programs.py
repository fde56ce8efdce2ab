"""Programs over arrays that are cut over devices: once for methods that UOps and tinygrad's Tensors
share, once in NumPy.

    python tests/kinds/sharded_programs.py     # serves tinygrad's results, see `serve`
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

erf = np.vectorize(__import__("math").erf)


@dataclass(frozen=True)
class Sharded:
    """A program: the shape of each argument and the axis along which it is cut (None: whole)."""

    name: str
    arguments: tuple[tuple[tuple[int, ...], int | None], ...]
    run: Callable[..., Any]
    numpy: Callable[..., Any]
    uneven: bool = False  # tinygrad refuses it

    def arrays(self):
        rng = np.random.default_rng(sum(map(ord, self.name)))
        return [rng.standard_normal(dims).astype("f4") for dims, _ in self.arguments]


PROGRAMS: list[Sharded] = []


def program(name, arguments, run, numpy=None, uneven=False):
    PROGRAMS.append(Sharded(name, tuple(arguments), run, numpy or run, uneven))


def conv(x, w, stride=1, padding=0):
    """conv2d of NCHW images by OIHW kernels."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows[:, :, ::stride, ::stride], w)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


X = ((8, 12), 0)  # cut along the rows
Y = ((8, 12), 1)  # along the columns
W = ((8, 12), None)  # whole
IMAGES, KERNELS = ((4, 3, 8, 8), 0), ((4, 3, 3, 3), None)

# ---------------------------------------------------------------- elementwise
program("add", [X, X], lambda x, y: x + y)
program("add columns", [Y, Y], lambda x, y: x + y)
program("add whole", [X, W], lambda x, y: x * 2 + y)
program("add all layouts", [Y, W, Y], lambda x, y, z: x * y - z)
program("scalars", [X], lambda x: 3 - x / 2 + 1)
program("exp", [X], lambda x: x.exp(), np.exp)
program("log", [X], lambda x: (x * x + 1).log(), lambda x: np.log(x * x + 1))
program("sin", [Y], lambda x: (x * 3).sin(), lambda x: np.sin(x * 3))
program("sqrt", [X], lambda x: x.abs().sqrt(), lambda x: np.sqrt(np.abs(x)))
program("tanh", [Y], lambda x: x.tanh(), np.tanh)
program("sigmoid", [X], lambda x: x.sigmoid(), sigmoid)
program("relu", [X], lambda x: x.relu(), lambda x: np.maximum(x, 0))
program("maximum", [X, W], lambda x, y: x.maximum(y), np.maximum)
program("less", [X, X], lambda x, y: (x < y).where(x, y * 2),
        lambda x, y: np.where(x < y, x, y * 2))
program("clip", [Y], lambda x: x.clip(-0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5))
program("row", [X, ((12,), None)], lambda x, b: x + b)
program("cut row", [Y, ((12,), 0)], lambda x, b: x + b)
program("column", [X, ((8, 1), 0)], lambda x, b: x * b)
program("square of a difference", [X, X], lambda x, y: (x - y) * (x - y))
program("reciprocal", [X], lambda x: 1 / (x * x + 1))
# ---------------------------------------------------------------- reduces
program("sum rows", [X], lambda x: x.sum(axis=0))
program("sum columns", [X], lambda x: x.sum(axis=1))
program("sum", [X], lambda x: x.sum())
program("sum of cut columns", [Y], lambda x: x.sum(axis=1))
program("max rows", [X], lambda x: x.max(axis=0))
program("max", [Y], lambda x: x.max())
program("min", [X], lambda x: x.min(axis=0))
program("mean", [X], lambda x: x.mean(axis=0))
program("mean of all", [Y], lambda x: x.mean())
program("variance", [X], lambda x: ((x - x.mean(axis=0)) * (x - x.mean(axis=0))).mean(axis=0))
program("softmax rows", [X], lambda x: x.softmax(axis=1), lambda x: softmax(x, 1))
program("softmax cut axis", [X], lambda x: x.softmax(axis=0), lambda x: softmax(x, 0))
program("log of a sum", [Y], lambda x: x.exp().sum(axis=1).log(),
        lambda x: np.log(np.exp(x).sum(1)))
program("sum of sums", [X, X], lambda x, y: x.sum(axis=0) + y.sum(axis=0))
program("normed", [X], lambda x: x / (x * x).sum(axis=1, keepdim=True).sqrt()
        if hasattr(x, "realize") else x / (x * x).sum(axis=1, keepdims=True).sqrt(),
        lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)))
program("sum of three axes", [((4, 6, 8), 0)], lambda x: x.sum(axis=(0, 2)))
program("sum of the middle", [((4, 8, 6), 1)], lambda x: x.sum(axis=(0, 1)))
# ---------------------------------------------------------------- products
A, AC, AW = ((8, 16), 0), ((8, 16), 1), ((8, 16), None)
B, BC, BW = ((16, 12), 0), ((16, 12), 1), ((16, 12), None)
program("product by rows", [A, BW], lambda a, b: a @ b)
program("product by columns", [AW, BC], lambda a, b: a @ b)
program("product of partial sums", [AC, B], lambda a, b: a @ b)
program("product and relu", [AC, B], lambda a, b: (a @ b).relu(), lambda a, b: np.maximum(a @ b, 0))
program("product and bias", [A, BW, ((12,), None)], lambda a, b, c: a @ b + c)
program("two products", [AW, BC, ((12, 8), 0)], lambda a, b, c: (a @ b) @ c)
program("two products and relu", [AW, BC, ((12, 8), 0)], lambda a, b, c: (a @ b).relu() @ c,
        lambda a, b, c: np.maximum(a @ b, 0) @ c)
program("matrix and vector", [A, ((16,), None)], lambda a, v: a @ v)
program("dot", [((16,), 0), ((16,), 0)], lambda a, b: (a * b).sum())
program("batched product", [((4, 6, 5), 0), ((4, 5, 7), 0)], lambda a, b: a @ b)
program("gram", [A], lambda a: a.transpose(0, 1) @ a
        if hasattr(a, "realize") else a.permute(1, 0) @ a, lambda a: a.T @ a)
program("layer and loss", [A, BW, ((8, 12), 0)], lambda a, b, t: ((a @ b - t) * (a @ b - t)).mean())
# ---------------------------------------------------------------- convolutions
program("convolution by images", [IMAGES, KERNELS], lambda x, w: x.conv2d(w), conv)
program("padded convolution", [IMAGES, KERNELS], lambda x, w: x.conv2d(w, padding=1),
        lambda x, w: conv(x, w, padding=1))
program("strided convolution", [IMAGES, KERNELS], lambda x, w: x.conv2d(w, stride=2),
        lambda x, w: conv(x, w, stride=2))
program("convolution by outputs", [((4, 3, 8, 8), None), ((4, 3, 3, 3), 0)],
        lambda x, w: x.conv2d(w), conv)
program("two convolutions", [IMAGES, KERNELS, ((2, 4, 3, 3), None)],
        lambda x, w, v: x.conv2d(w, padding=1).relu().conv2d(v),
        lambda x, w, v: conv(np.maximum(conv(x, w, padding=1), 0), v))
# ---------------------------------------------------------------- shapes
program("reshape after", [X], lambda x: x.reshape(8, 3, 4))
program("reshape both", [((8, 2, 6), 0)], lambda x: x.reshape(16, 6) * 2)
program("permute", [X], lambda x: x.permute(1, 0) + 1, lambda x: x.T + 1)
program("permute three", [((4, 6, 8), 2)], lambda x: x.permute(2, 0, 1).exp(),
        lambda x: np.exp(x.transpose(2, 0, 1)))
program("expand", [((8, 1), 0)], lambda x: x.expand(8, 5) * 2,
        lambda x: np.broadcast_to(x, (8, 5)) * 2)
program("pad another axis", [X], lambda x: x.pad(((0, 0), (1, 2))),
        lambda x: np.pad(x, ((0, 0), (1, 2))))
program("shrink another axis", [X], lambda x: x.shrink(((0, 8), (2, 9))), lambda x: x[:, 2:9])
program("flip another axis", [X], lambda x: x.flip(1), lambda x: x[:, ::-1])
program("slice another axis", [Y], lambda x: x[2:6] + 1)
program("concatenate", [X, X], lambda x, y: x.cat(y, dim=1)
        if hasattr(x, "realize") else x.cat(y, axis=1), lambda x, y: np.concatenate([x, y], 1))
# ---------------------------------------------------------------- assignment
program("assign", [X, X], lambda x, y: x.assign(x + y), lambda x, y: x + y)
program("assign a product", [((8, 8), 0), ((8, 8), None)],
        lambda x, w: x.assign((x @ w).contiguous()),
        lambda x, w: x @ w)
program("gradient step", [((12,), None), X], lambda w, x: w.assign(w - x.sum(axis=0) * 0.1),
        lambda w, x: w - x.sum(0) * np.float32(0.1))
# ---------------------------------------------------------------- what no number of devices divides
U, V = ((7, 5), 0), ((5, 7), 1)
program("uneven add", [U, U], lambda x, y: x + y, uneven=True)
program("uneven sum", [U], lambda x: x.sum(axis=0), uneven=True)
program("uneven maximum", [V], lambda x: x.max(axis=1), uneven=True)
program("uneven product", [U, ((5, 3), None)], lambda x, w: x @ w, uneven=True)
program("uneven partial sums", [V, ((7, 4), 0)], lambda x, w: x @ w, uneven=True)
program("uneven softmax", [U], lambda x: x.softmax(axis=0), lambda x: softmax(x, 0), uneven=True)
program("uneven images", [((3, 3, 8, 8), 0), KERNELS], lambda x, w: x.conv2d(w), conv, uneven=True)
program("uneven assignment", [U], lambda x: x.assign(x * 2), lambda x: x * 2, uneven=True)
program("fewer rows than devices", [((1, 5), 0)], lambda x: x.exp().sum(),
        lambda x: np.exp(x).sum(),
        uneven=True)


def on_tinygrad(chosen: Sharded, count: int):
    """tinygrad's result on so many CPU devices."""
    from tinygrad import Tensor

    devices = tuple([f"CPU:{i}" for i in range(count)])
    pairs = zip(chosen.arrays(), chosen.arguments)
    tensors = [Tensor(a).shard(devices, axis).realize() for a, (_, axis) in pairs]
    return chosen.run(*tensors).numpy()


def serve():
    """Each line on stdin is a number of devices, a file and a program: its result is saved to the
    file. Answers `done`, or the exception."""
    programs = {p.name: p for p in PROGRAMS}
    for line in sys.stdin:
        count, file, name = line.rstrip("\n").split("\t")
        try:
            np.save(file, on_tinygrad(programs[name], int(count)))
            answer = "done"
        except Exception as error:  # what a program raises is its answer
            answer = f"{type(error).__name__}: {error}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    serve()
