"""A product with weights of few bits, and a step of a decoder of them, beside ONNX Runtime.

    python benchmarks/nbits.py [--bits 4] [--blocks 32,128] [--size 4096] [--rounds 30] [--decoder]

One thread, least processor time of calls in turns. Each call takes the next of several layers,
which together are larger than the last cache. ONNX Runtime has two columns: with float32
activations (accuracy level 1), and with activations that it rounds to 8 bits (level 4).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import uopc.onnx

LAYERS = 48 << 20  # bytes of weights
FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
MICROSOFT = "com.microsoft"


def layer(size: int, bits: int, block: int, level: int, seed: int, zeros: bool) -> ModelProto:
    rng = np.random.default_rng(seed)
    blocks = size // block
    arrays = {
        "w": rng.integers(0, 256, (size, blocks, block * bits // 8), np.uint8),
        "s": rng.random((size, blocks), np.float32),
    }
    if zeros:
        arrays["z"] = rng.integers(0, 256, (size, -(-blocks * bits // 8)), np.uint8)
    node = helper.make_node(
        "MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", K=size, N=size, bits=bits,
        block_size=block, accuracy_level=level,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "layer", [helper.make_tensor_value_info("x", FLOAT, [1, size])],
        [helper.make_tensor_value_info("y", FLOAT, [1, size])],
        [numpy_helper.from_array(v, name) for name, v in arrays.items()],
    )  # fmt: skip
    return _model(graph)


def _model(graph: Any) -> ModelProto:
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


@dataclass
class Decoder:
    """A decoder of the shape of Llama with weights of 4 bits, and a buffer of so many tokens."""

    layers: int = 4
    width: int = 1024
    heads: int = 16
    shared: int = 4  # heads of keys
    hidden: int = 2816
    words: int = 32000
    tokens: int = 512
    block: int = 32
    level: int = 1
    nodes: list[Any] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size, self.rng = self.width // self.heads, np.random.default_rng(0)
        self.cache = [1, self.shared, self.tokens, self.size]

    def add(self, op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))

    def packed(self, name: str, rows: int, columns: int) -> list[str]:
        """Codes and scales of a matrix, whose products have about the size of the vector."""
        blocks = columns // self.block
        scale = self.rng.random((rows, blocks), np.float32) / (4 * columns**0.5)
        self.arrays[f"{name}.s"] = scale
        self.arrays[f"{name}.w"] = self.rng.integers(
            0, 256, (rows, blocks, self.block // 2), np.uint8
        )
        return [f"{name}.w", f"{name}.s"]

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        self.add(
            "MatMulNBits", [x, *self.packed(name, rows, columns)], [name], domain=MICROSOFT,
            K=columns, N=rows, bits=4, block_size=self.block, accuracy_level=self.level,
        )  # fmt: skip
        return name

    def normal(self, x: str, more: str, name: str) -> tuple[str, str]:
        """A sum that is normalised, and the sum."""
        self.arrays[f"{name}.g"] = self.rng.random(self.width, np.float32) + 0.5
        self.add(
            "SkipSimplifiedLayerNormalization", [x, more, f"{name}.g"],
            [name, "", "", f"{name}.sum"], domain=MICROSOFT, epsilon=1e-6,
        )  # fmt: skip
        return name, f"{name}.sum"

    def _layer(self, i: int, x: str, more: str) -> tuple[str, str]:
        width, size = self.width, self.size
        n, total = self.normal(x, more, f"{i}.in")
        q = self.product(n, f"{i}.qkv", width + 2 * self.shared * size, width)
        caches, filled = [f"{i}.pk", f"{i}.pv"], [f"{i}.k", f"{i}.v"]
        self.add(
            "GroupQueryAttention", [q, "", "", *caches, "last", "total", "cos", "sin"],
            [f"{i}.seen", *filled], domain=MICROSOFT, num_heads=self.heads,
            kv_num_heads=self.shared, do_rotary=1,
        )  # fmt: skip
        n, total = self.normal(total, self.product(f"{i}.seen", f"{i}.o", width, width), f"{i}.mid")
        gate, up = (self.product(n, f"{i}.{name}", self.hidden, width) for name in ("gate", "up"))
        self.add("Sigmoid", [gate], [f"{i}.sigmoid"])
        self.add("Mul", [gate, f"{i}.sigmoid"], [f"{i}.silu"])
        self.add("Mul", [f"{i}.silu", up], [f"{i}.hidden"])
        return total, self.product(f"{i}.hidden", f"{i}.down", width, self.hidden)

    def model(self) -> ModelProto:
        """A step: the logits of one token, and the caches with it."""
        half = self.size // 2
        angles = np.outer(np.arange(self.tokens), 1e4 ** (-np.arange(half) / half))
        self.arrays |= {"cos": np.cos(angles).astype("f4"), "sin": np.sin(angles).astype("f4")}
        self.arrays["total"] = np.array(self.tokens, np.int32)
        codes, scales = self.packed("words", self.words, self.width)
        self.arrays[codes] = self.arrays[codes].reshape(self.words, -1)
        self.arrays["zero"] = np.zeros((1, 1, self.width), np.float32)
        self.add(
            "GatherBlockQuantized", [codes, "id", scales], ["word"], domain=MICROSOFT, bits=4,
            block_size=self.block, gather_axis=0, quantize_axis=1,
        )  # fmt: skip
        x, more = "word", "zero"
        for i in range(self.layers):
            x, more = self._layer(i, x, more)
        self.product(self.normal(x, more, "out")[0], "logits", self.words, self.width)
        given = {"id": (INT64, [1, 1]), "last": (INT32, [1])}
        made: dict[str, tuple[int, Any]] = {"logits": (FLOAT, None)}
        for i, c in itertools.product(range(self.layers), "kv"):
            given[f"{i}.p{c}"], made[f"{i}.{c}"] = (FLOAT, self.cache), (FLOAT, None)
        inputs, outputs = (
            [helper.make_tensor_value_info(name, *of) for name, of in values.items()]
            for values in (given, made)
        )
        kept = [numpy_helper.from_array(v, name) for name, v in self.arrays.items()]
        return _model(helper.make_graph(self.nodes, "decoder", inputs, outputs, kept))

    def inputs(self, last: int) -> dict[str, np.ndarray]:
        """A token after `last` others."""
        given = {"id": np.array([[self.words // 2]]), "last": np.array([last], np.int32)}
        for i, c in itertools.product(range(self.layers), "kv"):
            given[f"{i}.p{c}"] = self.rng.standard_normal(self.cache).astype(np.float32)
        return given


def session(model: ModelProto) -> Callable[..., list[np.ndarray]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    return lambda **named: made.run(None, named)


def measured(
    calls: Mapping[str, list[Callable[..., Any]]], given: dict[str, np.ndarray], rounds: int
) -> dict[str, float]:
    """The least processor time of calls in turns, each the next of its list."""
    turns = {name: itertools.cycle(made) for name, made in calls.items()}
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, turn in turns.items():
            call = next(turn)
            begin = time.process_time()
            call(**given)
            least[name] = min(least[name], time.process_time() - begin)
    return least


def compared(
    models: Callable[[int], list[ModelProto]], given: dict[str, np.ndarray], rounds: int
) -> dict[str, float]:
    """Times of uopc and of ONNX Runtime, whose first results are compared. `models`: at a level."""
    calls: dict[str, list[Callable[..., Any]]] = {
        "uopc": [uopc.onnx.load(m, threads=1) for m in models(1)],
        "level 1": [session(m) for m in models(1)],
        "level 4": [session(m) for m in models(4)],
    }
    expected = calls["level 1"][0](**given)[0]
    for name, made in calls.items():
        got = made[0](**given)
        got = got["logits"] if isinstance(got, dict) else got[0]
        difference = np.abs(got - expected).max() / np.abs(expected).max()
        assert difference < (0.1 if name == "level 4" else 1e-4), (name, difference)
    return measured(calls, given, rounds)


def layers(size: int, bits: int, block: int, zeros: bool, rounds: int) -> None:
    count = -(-LAYERS // (size * size * bits // 8))
    x = np.random.default_rng(0).standard_normal((1, size)).astype(np.float32)
    least = compared(
        lambda level: [layer(size, bits, block, level, seed, zeros) for seed in range(count)],
        {"x": x}, rounds,
    )  # fmt: skip
    speed = size * size * bits / 8 / least["uopc"] / 1e9
    head = f"| {bits} | {block} | {'packed' if zeros else 'none'} |"
    print(head, *[f"{1e3 * t:.2f} |" for t in least.values()], f"{speed:.1f} |")


def decoders(block: int, rounds: int) -> None:
    given = Decoder(block=block).inputs(last=300)
    least = compared(lambda level: [Decoder(block=block, level=level).model()], given, rounds)
    print(f"| decoder | {block} | none |", *[f"{1e3 * t:.2f} |" for t in least.values()], "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--bits", default="4", help="time weights of these numbers of bits; default: %(default)s"
    )
    parser.add_argument(
        "--blocks", default="32,128", help="time blocks of these sizes; default: %(default)s"
    )
    parser.add_argument(
        "--size", type=int, default=4096, help="time matrices of this size; default: %(default)s"
    )
    parser.add_argument(
        "--rounds", type=int, default=30,
        help="take this many turns of each program; default: %(default)s",
    )
    parser.add_argument("--decoder", action="store_true", help="time a step of a decoder too")
    options = parser.parse_args()
    print("| bits | block | zero points | uopc ms | ONNX Runtime ms | level 4, ms | uopc GB/s |")
    print("|---|---|---|---|---|---|---|")
    for block in map(int, options.blocks.split(",")):
        if options.decoder:
            decoders(block, options.rounds)
            continue
        for bits, zeros in itertools.product(map(int, options.bits.split(",")), (False, True)):
            layers(options.size, bits, block, zeros, options.rounds)


if __name__ == "__main__":
    main()
