"""Whole models with fixed random weights: sizes and layers of published ones, nothing downloaded.

`python benchmarks/kernels.py --workloads models` runs them. Weights are constants of the graph, as
in a model that is loaded for inference. Those of `..._int8` are bytes, as ONNX Runtime's quantizers
write them: dynamic products (MiniLM), or bytes between all layers with scales that are found here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from peers import NUMPY
from workloads import WORKLOADS, Workload, normal


class Weights:
    """Random arrays, the same in each run; `flops` adds up the products of their layers."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.flops = 0.0

    def __call__(self, *shape: int, scale: float | None = None) -> np.ndarray:
        inner = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        scale = inner**-0.5 if scale is None else scale
        return self.rng.standard_normal(shape).astype(np.float32) * np.float32(scale)


# The greatest difference of an int8 model: float32 rounds numbers next to a tie to another byte
# than the reference does, and all that follows differs.
BYTES_TOLERANCE = 3e-2


@dataclass(frozen=True)
class Bytes:
    """Integers times a scale, of which each place of an axis has its own."""

    values: np.ndarray
    scale: np.ndarray
    axis: int

    @property
    def spread(self) -> np.ndarray:
        """The scales beside the values."""
        dims = enumerate(self.values.shape)
        return self.scale.reshape([n if i == self.axis else 1 for i, n in dims])


def as_bytes(w: np.ndarray, axis: int) -> Bytes:
    """The nearest int8 of weights, the largest of each place of an axis as 127."""
    others = tuple(i for i in range(w.ndim) if i != axis)
    made = Bytes(w, np.abs(w).max(others) / np.float32(127), axis)
    return Bytes(np.rint(w / made.spread).astype(np.int8), made.scale, axis)


# ------------------------------------------------------------------ images
class Images:
    """Layers of convolutional networks, NCHW."""

    def __init__(self) -> None:
        self.w = Weights()
        self.layers: dict[str, tuple[Any, Any]] = {}  # the same weights for each peer

    def conv(
        self, o: Any, x: Any, name: str, c: int, k: int, window: int, stride: int = 1,
        groups: int = 1, act: str = "relu",
    ) -> Any:  # fmt: skip
        if name not in self.layers:
            w, b = self.w(k, c // groups, window, window), self.w(k, scale=0.1)
            self.layers[name] = self._held(x, w, b)
        y = self._convolved(o, x, *self.layers[name], stride, window // 2, 1, groups)
        if act == "relu":
            y = o.relu(y)
        elif act == "relu6":
            y = o.clip(y, 0.0, 6.0)
        elif act == "silu":
            y = y * o.sigmoid(y)
        return self.kept(o, y, name)

    def product(self, o: Any, x: Any, name: str, n: int, k: int) -> Any:
        if name not in self.layers:
            self.layers[name] = self.w(n, k), self.w(k, scale=0.1)
        w, b = self.layers[name]
        return o.matmul(x, w) + b

    def kept(self, o: Any, x: Any, name: str) -> Any:
        """A value as the next layer reads it."""
        return x

    def made(self, w: Workload) -> Workload:
        """The workload, with all that its layers need."""
        return w

    def _held(self, x: Any, w: np.ndarray, b: np.ndarray) -> tuple[Any, Any]:
        """The weights of a convolution of x, and what is added to it."""
        return w, b

    def _convolved(self, o: Any, x: Any, w: Any, b: Any, *given: int) -> Any:
        return o.conv2d(x, w, *given, b)


class ByteImages(Images):
    """The same layers on bytes: int8 weights with a scale for each channel, and uint8 between the
    layers, with the scale and zero point of the range that a first run has there."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: dict[str, tuple[np.float32, np.uint8]] = {}
        self._scales: dict[int, tuple[Any, np.float32]] = {}  # of the first run's values

    def made(self, w: Workload) -> Workload:
        w.body(NUMPY, *w.inputs)
        self._scales.clear()
        w.tolerance = BYTES_TOLERANCE
        return w

    def kept(self, o: Any, x: Any, name: str) -> Any:
        first = name not in self.ranges
        if first:
            low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
            scale = np.float32((high - low) / 255)
            self.ranges[name] = scale, np.uint8(round(-low / scale))
        scale, zero = self.ranges[name]
        x = o.quantised(x, scale, zero)
        if first:
            self._scales[id(x)] = x, scale
        return x

    def product(self, o: Any, x: Any, name: str, n: int, k: int) -> Any:
        """The product is bytes too, which ONNX Runtime asks for."""
        if name not in self.layers:
            self.layers[name] = as_bytes(self.w(n, k), 1), self.w(k, scale=0.1)
        w, b = self.layers[name]
        x = self.kept(o, x, "to " + name)
        return self.kept(o, o.matmul(x, o.numbers(x, w)), name) + b

    def _held(self, x: Any, w: np.ndarray, b: np.ndarray) -> tuple[Any, Any]:
        made = as_bytes(w, 0)
        scale = made.scale * self._scales[id(x)][1]
        return made, Bytes(np.rint(b / scale).astype(np.int32), scale, 0)

    def _convolved(self, o: Any, x: Any, w: Any, b: Any, *given: int) -> Any:
        return o.conv2d(x, o.numbers(x, w), *given, o.numbers(x, b))


def resnet50(size: int = 224, layers: Callable[[], Images] = Images) -> Workload:
    net = layers()

    def body(o: Any, x: Any) -> Any:
        x = net.conv(o, net.kept(o, x, "input"), "stem", 3, 64, 7, 2)
        x, c = net.kept(o, o.max_pool(x, 3, 2, 1), "pool"), 64
        for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for i in range(blocks):
                stride, name = 2 if i == 0 and stage else 1, f"{stage}.{i}"
                y = net.conv(o, x, name + "a", c, width, 1)
                y = net.conv(o, y, name + "b", width, width, 3, stride)
                y = net.conv(o, y, name + "c", width, 4 * width, 1, act="")
                if i == 0:
                    x = net.conv(o, x, name + "d", c, 4 * width, 1, stride, act="")
                x, c = net.kept(o, o.relu(x + y), name + "e"), 4 * width
        x = o.sum(o.reshape(x, (1, c, (size // 32) ** 2)), 2) * (32 / size) ** 2
        return net.product(o, x, "head", c, 1000)

    image = normal(0, 1, 3, size, size)
    return net.made(Workload([image], body, 8.2e9 * (size / 224) ** 2, tolerance=1e-4))


def mobilenet_v2(size: int = 224, layers: Callable[[], Images] = Images) -> Workload:
    net = layers()
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip

    def body(o: Any, x: Any) -> Any:
        x = net.kept(o, x, "input")
        x, c = net.conv(o, x, "stem", 3, 32, 3, 2, act="relu6"), 32
        for row, (wider, k, count, first) in enumerate(rows):
            for i in range(count):
                stride, name = first if i == 0 else 1, f"{row}.{i}"
                y = x
                if wider > 1:
                    y = net.conv(o, y, name + "a", c, c * wider, 1, act="relu6")
                y = net.conv(o, y, name + "b", c * wider, c * wider, 3, stride, c * wider, "relu6")
                y = net.conv(o, y, name + "c", c * wider, k, 1, act="")
                x, c = (net.kept(o, x + y, name) if stride == 1 and c == k else y), k
        x = net.conv(o, x, "last", c, 1280, 1, act="relu6")
        x = o.sum(o.reshape(x, (1, 1280, (size // 32) ** 2)), 2) * (32 / size) ** 2
        return net.product(o, x, "head", 1280, 1000)

    image = normal(0, 1, 3, size, size)
    return net.made(Workload([image], body, 6e8 * (size / 224) ** 2, tolerance=1e-4))


def unet(size: int = 128, width: int = 32, levels: int = 4) -> Workload:
    net = Images()

    def twice(o: Any, x: Any, name: str, c: int, k: int) -> Any:
        return net.conv(o, net.conv(o, x, name + "a", c, k, 3), name + "b", k, k, 3)

    def body(o: Any, x: Any) -> Any:
        kept, c = [], 3
        for i in range(levels):
            x = twice(o, x, f"down{i}", c, width << i)
            c = width << i
            kept.append(x)
            x = o.max_pool2(x)
        x, c = twice(o, x, "middle", c, 2 * c), 2 * c
        for i in reversed(range(levels)):
            k = width << i
            x = o.cat([net.conv(o, o.upsample2(x), f"up{i}", c, k, 3), kept[i]], 1)
            x, c = twice(o, x, f"join{i}", 2 * k, k), k
        return net.conv(o, x, "out", c, 4, 1, act="")

    return Workload([normal(0, 1, 3, size, size)], body, tolerance=1e-4)


def yolo(size: int = 320) -> Workload:
    """A backbone with three scales and heads that are put together."""
    net = Images()

    def block(o: Any, x: Any, name: str, c: int) -> Any:
        y = net.conv(o, x, name + "a", c, c // 2, 1, act="silu")
        return x + net.conv(o, y, name + "b", c // 2, c, 3, act="silu")

    def head(o: Any, x: Any, name: str, c: int, n: int) -> Any:
        y = o.transpose(o.reshape(net.conv(o, x, name, c, 255, 1, act=""), (3, 85, n * n)), 0, 2, 1)
        y = o.sigmoid(y)
        return o.reshape(
            o.cat([y[:, :, 0:2] * (2.0 / n), y[:, :, 2:4] * y[:, :, 2:4], y[:, :, 4:]], 2),
            (3 * n * n, 85),
        )

    def body(o: Any, x: Any) -> Any:
        x, kept = net.conv(o, x, "stem", 3, 16, 3, 2, act="silu"), []
        for i, c in enumerate((32, 64, 128, 256)):
            x = block(o, net.conv(o, x, f"d{i}", c // 2, c, 3, 2, act="silu"), f"b{i}", c)
            kept.append(x)
        p5 = kept[3]
        up = o.upsample2(net.conv(o, p5, "l5", 256, 128, 1, act="silu"))
        p4 = net.conv(o, o.cat([up, kept[2]], 1), "m4", 256, 128, 3, act="silu")
        up = o.upsample2(net.conv(o, p4, "l4", 128, 64, 1, act="silu"))
        p3 = net.conv(o, o.cat([up, kept[1]], 1), "m3", 128, 64, 3, act="silu")
        heads = zip("345", (p3, p4, p5), (64, 128, 256), (8, 16, 32))
        return o.cat([head(o, p, "h" + n, c, size // s) for n, p, c, s in heads], 0)

    return Workload([normal(0, 1, 3, size, size)], body, tolerance=1e-4)


# ------------------------------------------------------------------ sequences
def transformer(
    layers: int, t: int, d: int, h: int, causal: bool = False, cache: int = 0, words: int = 0,
    int8: bool = False,
) -> Workload:  # fmt: skip
    """Pre-norm blocks; with a cache, keys and values of earlier tokens are inputs. `words`: a last
    product that gives a number for each word. `int8`: products of weights are dynamic ones."""
    w = Weights()
    made = [
        [w(d, 3 * d), w(3 * d, scale=0.1), w(d, d), w(d, scale=0.1), w(d, 4 * d),
         w(4 * d, scale=0.1), w(4 * d, d), w(d, scale=0.1), *[w(d, scale=1.0) for _ in range(4)]]
        for _ in range(layers)
    ]  # fmt: skip
    if int8:
        made = [[as_bytes(m, 1) if m.ndim == 2 else m for m in layer] for layer in made]
    last = w(d, words) if words else None
    mask = np.triu(np.full((t, t), -1e9, np.float32), 1)

    def times(o: Any, x: Any, m: Any) -> Any:
        return o.dynamic_product(x, m) if isinstance(m, Bytes) else o.matmul(x, m)

    def body(o: Any, x: Any, *kept: Any) -> Any:
        for i, (wqkv, bqkv, wo, bo, w1, b1, w2, b2, g1, c1, g2, c2) in enumerate(made):
            qkv = times(o, o.layer_norm(x, g1, c1), wqkv) + bqkv
            qkv = o.transpose(o.reshape(qkv, (t, 3, h, d // h)), 1, 2, 0, 3)
            q, k, v = qkv[0], qkv[1], qkv[2]
            if cache:
                k, v = o.cat([kept[2 * i], k], 1), o.cat([kept[2 * i + 1], v], 1)
            scores = o.matmul(q, o.transpose(k, 0, 2, 1)) * (d // h) ** -0.5
            scores = scores + mask if causal and t > 1 else scores
            mixed = o.transpose(o.matmul(o.softmax(scores), v), 1, 0, 2)
            x = x + times(o, o.reshape(mixed, (t, d)), wo) + bo
            x = x + times(o, o.gelu(times(o, o.layer_norm(x, g2, c2), w1) + b1), w2) + b2
        return x if last is None else o.matmul(o.layer_norm(x, made[0][8], made[0][9]), last)

    kept = [normal(i + 1, h, cache, d // h) for i in range(2 * layers if cache else 0)]
    flops = 24.0 * layers * t * d * d + 4.0 * layers * t * (t + cache) * d + 2.0 * t * d * words
    tolerance = BYTES_TOLERANCE if int8 else 1e-4
    return Workload([normal(0, t, d), *kept], body, flops, tolerance=tolerance)


def lstm(t: int, d: int, n: int) -> Workload:
    """The hidden state after t steps."""
    w = Weights()
    wx, wh, b = w(d, 4 * n), w(n, 4 * n), w(4 * n, scale=0.1)

    def body(o: Any, x: Any, h: Any, c: Any) -> Any:
        given = o.matmul(x, wx) + b
        for i in range(t):
            z = given[i : i + 1] + o.matmul(h, wh)
            keep, write, show = (o.sigmoid(z[:, k * n : (k + 1) * n]) for k in range(3))
            c = keep * c + write * o.tanh(z[:, 3 * n :])
            h = show * o.tanh(c)
        return h

    return Workload([normal(0, t, d), normal(1, 1, n), normal(2, 1, n)], body,
                    8.0 * t * n * (d + n))  # fmt: skip


MODELS = {
    "resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "unet_128": unet, "yolo_320": yolo,
    "bert_base_128": lambda: transformer(12, 128, 768, 12),
    "minilm_6_128": lambda: transformer(6, 128, 384, 12),
    "gpt2_prefill_64": lambda: transformer(12, 64, 768, 12, True, 0, 50257),
    "gpt2_step_256": lambda: transformer(12, 1, 768, 12, True, 255, 50257),
    "whisper_tiny_encoder": lambda: transformer(4, 1500, 384, 6),
    "lstm_64": lambda: lstm(64, 128, 256),
    "resnet50_int8": lambda: resnet50(layers=ByteImages),
    "mobilenet_v2_int8": lambda: mobilenet_v2(layers=ByteImages),
    "minilm_6_128_int8": lambda: transformer(6, 128, 384, 12, int8=True),
}  # fmt: skip
WORKLOADS.update(MODELS)
