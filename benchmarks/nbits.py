"""A step of a layer with weights of few bits, `MatMulNBits`, beside ONNX Runtime.

    python benchmarks/nbits.py [--bits 4] [--blocks 32,128] [--size 4096] [--rounds 30]

One thread, least processor time of calls in turns. Each call takes the next of several layers,
which together are larger than the last cache. ONNX Runtime has two rows: with float32 activations
(accuracy level 1), and with activations that it rounds to 8 bits (level 4).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

import uopc.onnx

LAYERS = 48 << 20  # bytes of weights
FLOAT = TensorProto.FLOAT


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
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def session(model: ModelProto) -> Callable[[np.ndarray], np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    return lambda x: made.run(None, {"x": x})[0]


def measured(size: int, bits: int, block: int, zeros: bool, rounds: int) -> None:
    count = -(-LAYERS // (size * size * bits // 8))
    x = np.random.default_rng(0).standard_normal((1, size)).astype(np.float32)

    def layers(level: int) -> list[ModelProto]:
        return [layer(size, bits, block, level, seed, zeros) for seed in range(count)]

    calls = {
        "uopc": [uopc.onnx.load(m, threads=1) for m in layers(1)],
        "ONNX Runtime, level 1": [session(m) for m in layers(1)],
        "ONNX Runtime, level 4": [session(m) for m in layers(4)],
    }
    expected = calls["ONNX Runtime, level 1"][0](x)
    for name, made in calls.items():
        difference = np.abs(made[0](x) - expected).max() / np.abs(expected).max()
        assert difference < (0.02 if "4" in name else 1e-4), (name, difference)
    turns = {name: itertools.cycle(made) for name, made in calls.items()}
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, turn in turns.items():
            call = next(turn)
            begin = time.process_time()
            call(x)
            least[name] = min(least[name], time.process_time() - begin)
    speed = size * size * bits / 8 / least["uopc"] / 1e9
    head = f"| {bits} | {block} | {'packed' if zeros else 'none'} |"
    print(head, *[f"{1e3 * t:.2f} |" for t in least.values()], f"{speed:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", default="4")
    parser.add_argument("--blocks", default="32,128")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    print("| bits | block | zero points | uopc ms | ONNX Runtime ms | level 4, ms | uopc GB/s |")
    print("|---|---|---|---|---|---|---|")
    for bits in map(int, options.bits.split(",")):
        for block in map(int, options.blocks.split(",")):
            for zeros in (False, True):
                measured(options.size, bits, block, zeros, options.rounds)


if __name__ == "__main__":
    main()
