"""Graphs of several heavy values, drawn by number, each written once for uopc and for NumPy.

A heavy value has a sum in it, or a function that takes long: a compiler may store it, or compute it
where it is read. `drawn(number)` is a graph of one of `KINDS`, which take turns.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

Mark = Callable[[int, Any], Any]  # the number of a heavy value and the value: what takes its place
MOST_HEAVY = 6

CHANNELS = (8, 12, 13, 16, 24, 31, 32, 48)
SIZES = (7, 10, 13, 16, 17, 20, 24, 28, 31, 32, 37)  # rows or columns of an image
DIMS = (17, 31, 48, 61, 64, 96, 100, 127, 128, 160, 200, 251)  # rows or columns of a matrix


# ------------------------------------------------------------------ operators
def _numpy_conv2d(
    x: Any, w: Any, stride: int | tuple[int, int] = 1, padding: int | tuple[int, int] = 0,
    dilation: int = 1, groups: int = 1,
) -> Any:  # fmt: skip
    (down, right), (tall, wide) = [(v, v) if isinstance(v, int) else v for v in (stride, padding)]
    x = np.pad(x, ((0, 0), (0, 0), (tall, tall), (wide, wide)))
    reach = tuple(dilation * (size - 1) + 1 for size in w.shape[2:])
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    windows = windows[:, :, ::down, ::right, ::dilation, ::dilation]
    parts = zip(np.split(windows, groups, 1), np.split(w, groups, 0))
    return np.concatenate(
        [np.einsum("ncijhw,ochw->noij", a, b, optimize=True) for a, b in parts], 1
    )


def _numpy_pool(x: Any, window: int, stride: int, padding: int) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), *[(padding, padding)] * 2), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (window, window), (2, 3))
    return windows[:, :, ::stride, ::stride].max((4, 5))


def _numpy_softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


NUMPY = SimpleNamespace(
    exp=np.exp, tanh=np.tanh, sqrt=np.sqrt, abs=np.abs, relu=lambda x: np.maximum(x, 0),
    sigmoid=lambda x: 1 / (1 + np.exp(-x)), silu=lambda x: x / (1 + np.exp(-x)),
    softplus=lambda x: np.log1p(np.exp(x)), sin=np.sin, conv2d=_numpy_conv2d,
    max_pool=_numpy_pool, softmax=_numpy_softmax, permute=np.transpose, flip=np.flip, pad=np.pad,
    cat=lambda parts, axis: np.concatenate(parts, axis), full=np.full, expand=np.broadcast_to,
    take=np.take,
)  # fmt: skip


def uopc_operators() -> SimpleNamespace:
    """uopc's functions by the names of `NUMPY`."""
    import uopc
    from uopc import UOp

    return SimpleNamespace(
        exp=UOp.exp, tanh=UOp.tanh, sqrt=UOp.sqrt, abs=UOp.abs, relu=UOp.relu,
        sigmoid=UOp.sigmoid, silu=UOp.silu, softplus=lambda x: x.exp().log1p(), sin=UOp.sin,
        conv2d=lambda x, w, stride=1, padding=0, dilation=1, groups=1: x.conv2d(
            w, None, stride, padding, dilation, groups),
        max_pool=UOp.max_pool2d, softmax=lambda x, axis: x.softmax(axis=axis),
        permute=UOp.permute, flip=UOp.flip, pad=UOp.pad,
        cat=lambda parts, axis: uopc.cat(*parts, axis=axis), full=uopc.full, expand=UOp.expand,
        take=UOp.take,
    )  # fmt: skip


# ------------------------------------------------------------------ a graph in the making
@dataclass
class Maker:
    """Draws one graph: inputs and heavy values are numbered in the order of their making."""

    r: random.Random
    o: SimpleNamespace  # operators
    lift: Callable[[str, np.ndarray], Any]  # an input by its name and array
    mark: Mark
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    heavies: int = 0

    def given(self, *shape: int, scale: float = 1.0) -> Any:
        """A new input of normal numbers."""
        name = f"p{len(self.inputs)}"
        drawn = np.random.default_rng(len(self.inputs)).standard_normal(shape, np.float32)
        self.inputs[name] = drawn * np.float32(scale)
        return self.lift(name, self.inputs[name])

    def heavy(self, value: Any) -> Any:
        """The value, or what the caller puts in its place."""
        if self.heavies >= MOST_HEAVY:
            return value
        self.heavies += 1
        return self.mark(self.heavies - 1, value)

    def act(self, x: Any) -> Any:
        """A drawn function of elements."""
        o = self.o
        kinds: list[Callable[[Any], Any]] = [
            o.relu, o.sigmoid, o.silu, o.tanh, o.sin, lambda x: x, lambda x: x * 0.5 + 1.0,
            lambda x: x * x, lambda x: o.sqrt(o.abs(x) + 0.1), o.softplus,
        ]  # fmt: skip
        return self.r.choice(kinds)(x)

    # -------------------------------------------------------------- images
    def image(self) -> Any:
        r = self.r
        return self.given(r.choice((1, 1, 1, 2)), r.choice(CHANNELS), r.choice(SIZES),
                          r.choice(SIZES))  # fmt: skip

    def weights(self, *shape: int) -> Any:
        return self.given(*shape, scale=float(np.prod(shape[1:])) ** -0.5)

    def conv(self, x: Any, out: int = 0, kind: str = "") -> Any:
        """A convolution that keeps the size of the image."""
        r, c = self.r, x.shape[1]
        out = out or r.choice(CHANNELS)
        kind = kind or r.choice(("3", "3", "3", "1", "1", "5", "wide", "tall", "dilated", "each",
                                 "groups", "one"))  # fmt: skip
        conv = self.o.conv2d
        if kind == "each" and out == c:
            return conv(x, self.weights(c, 1, 3, 3), padding=1, groups=c)
        if kind == "groups" and c % 4 == out % 4 == 0:
            return conv(x, self.weights(out, c // 4, 3, 3), padding=1, groups=4)
        if kind == "dilated":
            n = r.choice((2, 3))
            return conv(x, self.weights(out, c, 3, 3), padding=n, dilation=n)
        if kind == "one":
            return conv(x, self.o.full((out, c, 3, 3), 1 / (9 * c)), padding=1)
        size = {"1": (1, 1), "5": (5, 5), "wide": (1, 7), "tall": (5, 1)}.get(kind, (3, 3))
        padding = (size[0] // 2, size[1] // 2)
        return conv(x, self.weights(out, c, *size), padding=padding)

    def smaller(self, x: Any) -> Any:
        """Half of the rows and columns, by a stride, or by pools."""
        o, r, (n, c, h, w) = self.o, self.r, x.shape
        kind = r.choice(("stride", "max", "wide", "mean"))
        if kind == "stride":
            return o.conv2d(x, self.weights(r.choice(CHANNELS), c, 3, 3), stride=2, padding=1)
        if kind == "mean":
            cut = x[:, :, : h // 2 * 2, : w // 2 * 2]
            return cut.reshape(n, c, h // 2, 2, w // 2, 2).mean(axis=(3, 5))
        return o.max_pool(x, 2, 2, 0) if kind == "max" else o.max_pool(x, 3, 2, 1)

    def larger(self, x: Any, times: int = 2) -> Any:
        """Each element as a square of `times` x `times`."""
        n, c, h, w = x.shape
        x = self.o.expand(x.reshape(n, c, h, 1, w, 1), (n, c, h, times, w, times))
        return x.reshape(n, c, h * times, w * times)

    def moved(self, x: Any) -> Any:
        """The image at other places."""
        o, r, (_, _, h, w) = self.o, self.r, x.shape
        kind = r.choice(("pad", "flip", "cut", "roll", "rows", "turn"))
        if kind == "pad":
            return o.pad(x, ((0, 0), (0, 0), (1, 2), (0, 3)))
        if kind == "flip":
            return o.flip(x, r.choice((2, 3)))
        if kind == "cut":
            return x[:, :, 1 : h - 1, : w - 2]
        if kind == "roll":
            return o.cat([x[:, :, h // 3 :], x[:, :, : h // 3]], 2)
        if kind == "rows":
            return o.take(x, np.arange(2 * h) * 5 % h, 2)
        return o.permute(x, (0, 1, 3, 2))

    # -------------------------------------------------------------- matrices
    def matrix(self) -> Any:
        return self.given(self.r.choice(DIMS), self.r.choice(DIMS))

    def product(self, x: Any, n: int = 0) -> Any:
        n, k = n or self.r.choice(DIMS), x.shape[-1]
        return x @ self.given(k, n, scale=k**-0.5)

    def normed(self, x: Any) -> Any:
        """Layer norm of the last axis."""
        d = x - x.mean(axis=-1, keepdims=True)
        d = d / self.o.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-3)
        return d * self.given(x.shape[-1]) + self.given(x.shape[-1])


# ------------------------------------------------------------------ kinds: images
def _some(m: Maker, out: int, least: int = 2, most: int = 3) -> list[Any]:
    """Heavy convolutions of one size, of the same image or of several."""
    x = m.image()
    found = []
    for _ in range(m.r.randint(least, most)):
        found.append(m.heavy(m.conv(x, out)))
        if m.r.random() < 0.5:
            x = m.given(*x.shape)
    return found


def sums(m: Maker) -> Any:
    first, *others = _some(m, m.r.choice(CHANNELS))
    for other in others:
        first = first + m.act(other)
    y = m.heavy(m.act(first))
    return m.conv(y) if m.r.random() < 0.5 else y


def products(m: Maker) -> Any:
    a, b = _some(m, m.r.choice(CHANNELS), most=2)
    y = m.act(a) * m.o.sigmoid(b)
    return m.conv(m.heavy(y)) if m.r.random() < 0.4 else y


def squares(m: Maker) -> Any:
    a, b, *_ = _some(m, m.r.choice(CHANNELS))
    y = a * a + b * b
    return m.o.sqrt(y + 0.1) if m.r.random() < 0.5 else y


def joins(m: Maker) -> Any:
    x, r = m.image(), m.r
    parts = [m.heavy(m.act(m.conv(x))) for _ in range(r.randint(2, 4))]
    y = m.o.cat(parts, 1)
    return m.conv(y, 0, r.choice(("1", "3"))) if r.random() < 0.8 else y


def chains(m: Maker) -> Any:
    y = m.image()
    for _ in range(m.r.randint(2, 4)):
        y = m.heavy(m.act(m.conv(y)))
    return m.conv(y)


def resized(m: Maker) -> Any:
    x = m.image()
    y = m.heavy(m.act(x if m.r.random() < 0.5 else m.conv(x)))
    return m.conv(m.heavy(m.larger(y)), m.r.choice((8, 16)))


def pools(m: Maker) -> Any:
    y = m.heavy(m.act(m.conv(m.image())))
    y = m.heavy(m.smaller(y))
    y = m.act(m.conv(y))
    return m.smaller(m.heavy(y)) if m.r.random() < 0.4 else y


def gates(m: Maker) -> Any:
    y = m.heavy(m.act(m.conv(m.image())))
    n, c = y.shape[:2]
    s = m.heavy(m.o.relu(m.product(y.mean(axis=(2, 3)), 16)))
    s = m.heavy(m.o.sigmoid(m.product(s, c)))
    return m.conv(m.heavy(y * s.reshape(n, c, 1, 1)), 0, m.r.choice(("1", "3")))


def norms(m: Maker) -> Any:
    y = m.heavy(m.conv(m.image()))
    d = y - y.mean(axis=(2, 3), keepdims=True)
    d = d / m.o.sqrt((d * d).mean(axis=(2, 3), keepdims=True) + 1e-3)
    return m.conv(m.heavy(m.act(d)))


def residuals(m: Maker) -> Any:
    x = m.image()
    y = m.heavy(m.act(m.conv(x)))
    y = m.heavy(m.conv(y, x.shape[1]) + x)
    if m.r.random() < 0.5:
        y = m.heavy(m.act(y) + m.conv(m.heavy(m.act(m.conv(y))), x.shape[1]))
    return m.act(y)


def shifts(m: Maker) -> Any:
    y = m.heavy(m.moved(m.heavy(m.act(m.conv(m.image())))))
    return m.conv(y)


def heads(m: Maker) -> Any:
    x = m.image()
    n, c = x.shape[:2]
    a, b = [m.heavy(m.o.silu(m.conv(x, c, "3"))) for _ in "ab"]
    parts = [m.conv(a, 4, "1"), m.o.sigmoid(m.conv(b, 1, "1")), m.o.sigmoid(m.conv(b, 2, "1"))]
    y = m.o.cat(parts, 1).reshape(n, 7, -1)
    return m.o.permute(y, (0, 2, 1)) if m.r.random() < 0.7 else y


def scales(m: Maker) -> Any:
    found, c, size = [], m.r.choice((16, 24, 48)), m.r.choice((16, 20, 26))
    for _ in range(2):
        x = m.given(1, c, size, size)
        a, b = [m.heavy(m.act(m.conv(x, c, "3"))) for _ in "ab"]
        parts = [m.conv(a, 4, "1"), m.o.sigmoid(m.conv(b, 1, "1")), m.o.sigmoid(m.conv(a, 1, "1"))]
        found.append(m.o.cat(parts, 1).reshape(1, 6, -1))
        size //= 2
    return m.o.permute(m.o.cat(found, 2), (0, 2, 1))


def dilations(m: Maker) -> Any:
    x, out = m.image(), m.r.choice((16, 32, 64))
    parts = [
        m.heavy(m.act(m.o.conv2d(x, m.weights(out, x.shape[1], 3, 3), padding=n, dilation=n)))
        for n in (1, 2, 4)[: m.r.randint(2, 3)]
    ]
    y = m.o.cat(parts, 1) if m.r.random() < 0.6 else sum(parts[1:], parts[0])
    return m.conv(y, 0, "1")


def weights_of_one_number(m: Maker) -> Any:
    y = m.image()
    kinds = ["one", m.r.choice(("3", "1", "one", "each"))]
    m.r.shuffle(kinds)
    for kind in kinds:
        y = m.heavy(m.act(m.conv(y, 0, kind)))
    return y + m.conv(y, y.shape[1], "one") if m.r.random() < 0.5 else m.smaller(y)


def spectra(m: Maker) -> Any:
    r = m.r
    window, hop = r.choice((64, 100, 128, 500)), r.choice((16, 25, 40))
    bins = r.choice((33, 65, 129))
    x = m.given(1, 1, 1, window + hop * r.choice((40, 61, 77)))
    a, b = [m.heavy(m.o.conv2d(x, m.weights(bins, 1, 1, window), stride=(1, hop))) for _ in "ab"]
    y = m.heavy((a * a + b * b).reshape(bins, -1))
    return m.o.sqrt(m.o.abs(m.given(20, bins, scale=0.2) @ y) + 0.1) if r.random() < 0.6 else y


def pyramids(m: Maker) -> Any:
    c, h, w, out = m.r.choice(CHANNELS), *m.r.sample((5, 7, 8, 10, 13), 2), m.r.choice((16, 24))
    low = m.heavy(m.conv(m.given(1, c, h, w), out, "1"))
    high = m.heavy(m.conv(m.given(1, c, 2 * h, 2 * w), out, "1"))
    both = m.heavy(high + m.larger(low))
    return m.o.cat([m.smaller(m.conv(both, out, "3")).reshape(-1), m.conv(low).reshape(-1)], 0)


def bottlenecks(m: Maker) -> Any:
    x = m.image()
    wide = x.shape[1] * m.r.choice((2, 4))
    y = m.heavy(m.act(m.conv(x, wide, "1")))
    y = m.heavy(m.act(m.conv(y, wide, "each")))
    if m.r.random() < 0.5:
        n, c = y.shape[:2]
        y = m.heavy(y * m.o.sigmoid(m.heavy(m.product(y.mean(axis=(2, 3)), c))).reshape(n, c, 1, 1))
    return m.conv(y, x.shape[1], "1") + x


def differences(m: Maker) -> Any:
    x = m.given(m.r.choice((1, 2, 3)), 1, m.r.choice((61, 96, 128)), m.r.choice((64, 100, 127)))

    def blurred(size: int) -> Any:
        y = m.heavy(m.o.conv2d(x, m.weights(1, 1, 1, size), padding=(0, size // 2)))
        return m.heavy(m.o.conv2d(y, m.weights(1, 1, size, 1), padding=(size // 2, 0)))

    a, b = blurred(5), blurred(m.r.choice((9, 13)))
    y = m.heavy(a - b)
    return y * y if m.r.random() < 0.5 else m.o.max_pool(y, 3, 1, 1) - y


def correlations(m: Maker) -> Any:
    x = m.image()
    n, c, h, w = x.shape
    a, b, v = [m.heavy(m.conv(x, k, "1")).reshape(n, k, h * w) for k in (8, 8, c)]
    s = m.heavy(m.o.softmax(m.o.permute(a, (0, 2, 1)) @ b, -1))
    return (v @ m.o.permute(s, (0, 2, 1))).reshape(n, c, h, w) + x


# ------------------------------------------------------------------ kinds: matrices
def mixtures(m: Maker) -> Any:
    x, n = m.matrix(), m.r.choice(DIMS)
    y = m.heavy(m.product(x, n))
    for _ in range(m.r.randint(1, 2)):
        y = y + m.heavy(m.product(m.given(x.shape[0], m.r.choice(DIMS)), n))
    return m.act(y)


def linear_units(m: Maker) -> Any:
    x, n = m.matrix(), m.r.choice(DIMS)
    y = m.act(m.heavy(m.product(x, n))) * m.heavy(m.product(x, n))
    return m.product(m.heavy(y)) if m.r.random() < 0.6 else y


def choices(m: Maker) -> Any:
    y = m.heavy(m.product(m.matrix()))
    y = m.heavy(m.o.softmax(y * 3.0, m.r.choice((0, 1))))
    return m.product(y) if m.r.random() < 0.6 else y * (1.0 - y)


def layers(m: Maker) -> Any:
    x = m.matrix()
    y = m.heavy(m.normed(x + m.heavy(m.product(m.heavy(m.act(m.product(x))), x.shape[1]))))
    return m.product(y)


def perceptrons(m: Maker) -> Any:
    y = m.matrix()
    for _ in range(m.r.randint(2, 4)):
        y = m.heavy(m.act(m.product(y) + 0.1))
    return m.o.softmax(m.product(y, 10), -1)


def gathers(m: Maker) -> Any:
    y = m.heavy(m.act(m.product(m.matrix())))
    rows = y.shape[0]
    y = m.heavy(m.o.take(y, np.arange(m.r.choice((1, 3)) * rows) * 7 % rows, 0))
    return m.product(y) if m.r.random() < 0.5 else y * 2.0 + m.given(1, y.shape[1])


def distances(m: Maker) -> Any:
    rows, columns = m.r.choice((61, 100, 128)), m.r.choice((64, 97))
    k = m.r.choice((3, 8, 13))
    a = m.heavy(m.act(m.product(m.given(rows, 40), k)))
    b = m.heavy(m.act(m.product(m.given(columns, 31), k)))
    d = a.reshape(rows, 1, k) - b.reshape(1, columns, k)
    d = m.heavy((d * d if m.r.random() < 0.5 else m.o.abs(d)).sum(axis=2))
    return m.o.exp(-d) @ m.given(columns, 5) if m.r.random() < 0.5 else d


def scans(m: Maker) -> Any:
    r, y = m.r, m.heavy(m.product(m.matrix()))
    y = m.heavy(m.act(y).cumsum(r.choice((0, 1))) * 0.1)
    if r.random() < 0.5:
        y = m.heavy(y - y.mean(axis=1, keepdims=True))
    return m.product(y) if r.random() < 0.6 else m.act(y)


def shares(m: Maker) -> Any:
    y = m.heavy(m.act(m.product(m.matrix())))
    axis = m.r.choice((0, 1))
    s = m.heavy(m.o.abs(y).sum(axis=axis, keepdims=True))
    return m.product(m.heavy(y / (s + 1.0))) if m.r.random() < 0.5 else y / (s + 1.0)


def joined_products(m: Maker) -> Any:
    x = m.matrix()
    parts = [m.heavy(m.act(m.product(x))) for _ in range(m.r.randint(2, 3))]
    y = m.o.cat(parts, 1)
    return m.product(y) if m.r.random() < 0.6 else m.o.flip(y, 1) * 0.5


def low_ranks(m: Maker) -> Any:
    x, n = m.matrix(), m.r.choice(DIMS)
    thin = m.heavy(m.product(x, m.r.choice((2, 4, 8))))
    return m.act(m.heavy(m.product(x, n)) + m.heavy(m.product(thin, n)))


def transposed(m: Maker) -> Any:
    y = m.heavy(m.act(m.product(m.matrix())))
    return m.act(m.product(m.heavy(m.o.permute(y, (1, 0)) * 0.2), 0 if m.r.random() < 0.5 else 7))


def attentions(m: Maker) -> Any:
    r, n, d = m.r, m.r.choice((31, 64, 97, 128)), m.r.choice((16, 24, 32))
    heads = r.choice((2, 3, 4))
    x = m.given(n, heads * d)
    q, k, v = [
        m.o.permute(m.heavy(m.product(x, heads * d)).reshape(n, heads, d), (1, 0, 2)) for _ in "qkv"
    ]
    s = m.heavy(q @ m.o.permute(k, (0, 2, 1)) * d**-0.5)
    y = m.heavy(m.o.softmax(s, -1)) @ v
    return m.product(m.heavy(m.o.permute(y, (1, 0, 2)).reshape(n, heads * d)))


def magnitudes(m: Maker) -> Any:
    x, n = m.matrix(), m.r.choice(DIMS)
    a, b = [m.heavy(m.product(x, n)) for _ in "ab"]
    y = m.heavy(a * a + b * b)
    return y.sum(axis=m.r.choice((0, 1))) if m.r.random() < 0.4 else m.o.sqrt(y + 0.1)


def functions(m: Maker) -> Any:
    x = m.matrix()
    x = m.o.exp(x * 0.3) if m.r.random() < 0.5 else m.o.tanh(x * m.given(x.shape[0], 1))
    y = m.heavy(m.product(m.heavy(x)))
    return m.product(m.heavy(m.o.sin(y)), m.r.choice((8, 48, 100)))


def steps(m: Maker) -> Any:
    r = m.r
    count, rows, n = r.choice((4, 9, 16)), r.choice((1, 2, 5)), r.choice((16, 37, 64))
    given = m.heavy(m.product(m.given(count * rows, r.choice((24, 64, 150))), n))
    h, v = m.given(rows, n), m.given(n, n, scale=n**-0.5)
    for i in range(count):
        h = m.o.tanh(given[rows * i : rows * (i + 1)] + h @ v)
        h = m.heavy(h) if i % 3 == 2 else h
    return h


def experts(m: Maker) -> Any:
    x, n, count = m.matrix(), m.r.choice(DIMS), m.r.choice((2, 3, 4))
    g = m.heavy(m.o.softmax(m.product(x, count), -1))
    parts = [m.heavy(m.act(m.product(x, n))) * g[:, i : i + 1] for i in range(count)]
    return sum(parts[1:], parts[0])


def bilinear(m: Maker) -> Any:
    rows, n = m.r.choice(DIMS), m.r.choice(DIMS)
    a, b = [m.heavy(m.product(m.given(rows, m.r.choice(DIMS)), n)) for _ in "ab"]
    s = m.heavy((a * b).sum(axis=1, keepdims=True))
    return m.product(m.heavy(a * m.o.sigmoid(s) + b)) if m.r.random() < 0.5 else a * s


def covariances(m: Maker) -> Any:
    y = m.heavy(m.act(m.product(m.matrix(), m.r.choice((17, 32, 61)))))
    d = m.heavy(y - y.mean(axis=0, keepdims=True))
    found = m.heavy((m.o.permute(d, (1, 0)) @ d) * (1 / y.shape[0]))
    return y @ found if m.r.random() < 0.5 else found


def walks(m: Maker) -> Any:
    """Square matrices, each made of two before it in a drawn way."""
    o, r, n = m.o, m.r, m.r.choice((32, 61, 64, 96))
    pool = [m.given(n, n) for _ in range(3)]
    cheap: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a + b, lambda a, b: a * o.relu(b), lambda a, b: o.permute(a, (1, 0)),
        lambda a, b: a - a.mean(axis=1, keepdims=True), lambda a, b: o.flip(a, 0) + b[:1],
        lambda a, b: a / (1.0 + (b * b).sum(axis=0)), lambda a, b: o.sigmoid(a),
        lambda a, b: o.cat([a[: n // 2], b[n // 2 :]], 0), lambda a, b: a.cumsum(0) * 0.1,
        lambda a, b: o.pad(a, ((1, 0), (0, 0)))[:-1] - b, lambda a, b: o.softmax(a, -1),
        lambda a, b: o.take(a, np.arange(n)[::-1] // 2, 0), lambda a, b: o.exp(o.tanh(a)),
    ]  # fmt: skip
    dear: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a @ b * n**-0.5, lambda a, b: o.tanh(b @ a),
        lambda a, b: m.conv(a.reshape(1, 1, n, n), 1, r.choice(("3", "5"))).reshape(n, n),
    ]  # fmt: skip
    pool.append(m.heavy(r.choice(dear)(pool[0], pool[1])))
    for _ in range(r.randint(2, 5)):
        a, b = r.choice(pool[-3:]), r.choice(pool)
        pool.append(m.heavy(r.choice(dear)(a, b)) if r.random() < 0.5 else r.choice(cheap)(a, b))
    return pool[-1] + m.heavy(r.choice(dear)(pool[-1], pool[-2]))


KINDS: tuple[Callable[[Maker], Any], ...] = (
    sums, mixtures, products, linear_units, squares, choices, joins, layers, chains, perceptrons,
    resized, gathers, pools, distances, gates, scans, norms, shares, residuals, joined_products,
    shifts, low_ranks, heads, transposed, scales, attentions, dilations, magnitudes,
    weights_of_one_number, functions, spectra, steps, pyramids, experts, bottlenecks, bilinear,
    differences, covariances, correlations, walks,
)  # fmt: skip


# ------------------------------------------------------------------ a drawn graph
@dataclass(frozen=True)
class Composite:
    """A graph by its number, which decides all that was drawn."""

    number: int

    @property
    def kind(self) -> str:
        return KINDS[self.number % len(KINDS)].__name__

    def _maker(self, o: Any, lift: Callable[[str, np.ndarray], Any], mark: Mark) -> Maker:
        return Maker(random.Random(self.number), o, lift, mark)

    def _made(self, m: Maker) -> Any:
        return KINDS[self.number % len(KINDS)](m)

    def graph(self, mark: Mark) -> tuple[Any, dict[str, np.ndarray], int]:
        """The output for uopc, the arrays of the inputs, and the number of heavy values."""
        import uopc

        m = self._maker(uopc_operators(), lambda name, a: uopc.param(name, a.shape), mark)
        return self._made(m), m.inputs, m.heavies

    def expected(self) -> np.ndarray:
        """The output by NumPy, in float64."""
        m = self._maker(NUMPY, lambda name, a: a.astype(np.float64), lambda i, value: value)
        return np.asarray(self._made(m))


def placements(heavies: int) -> list[tuple[int, ...]]:
    """Which heavy values a caller stores: none, each alone, all, and all but one."""
    every = tuple(range(heavies))
    alone = [(i,) for i in every]
    but_one = [tuple([k for k in every if k != i]) for i in every]
    return list(dict.fromkeys([(), *alone, every, *but_one]))
