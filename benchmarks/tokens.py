"""Tokens a second of a model of GPT-2's size, beside what memory gives, PyTorch and ONNX Runtime.

    python benchmarks/tokens.py [--threads 1,2] [--rounds 20] [--position 255] [--small]

Random weights in a safetensors file, one token at a time, greedy. Each side is a process of its
own; they take turns, step by step, so that a busy machine slows all. `memory` is the time to sum up
the bytes that a step must read: all weights but the table of places, and the keys and values of the
tokens before. With one thread the time of the processor is given, too: it does not count what other
programs take. `difference` is that of the first step's logits to uopc's, in units of the greatest,
but for a constant that is added to all.

PyTorch runs the same model on the same file, with keys and values in place; ONNX Runtime runs
`gpt2_step_256` of `model_workloads.py`, whose weights are other numbers, as many. llama.cpp
(`pip install xllamacpp gguf`, both optional; a request for a token at a time) and ctransformers (an
earlier ggml, of which llama.cpp is made) run the same weights in files of theirs.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import generate

import uopc

GPT2 = generate.Config(layers=12, heads=12, width=768, context=1024, words=50257)
TOKEN = 11  # at each place
SMALL = generate.Config(layers=2, heads=4, width=64, context=512, words=1000)


def write(path: Path, config: generate.Config) -> None:
    """Weights of the usual size, so that numbers stay numbers."""
    random = np.random.default_rng(0)
    uopc.save_safetensors(path, {
        name: random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
        for name, shape in config.shapes().items()
    })  # fmt: skip


def needed(config: generate.Config, position: int) -> int:
    """The bytes that a step reads."""
    sizes = {name: np.prod(shape) for name, shape in config.shapes().items()}
    kept = 2 * config.layers * config.width * position
    return 4 * int(sum(sizes.values()) - sizes["wpe.weight"] + kept)


# ---------------------------------------------------------------- a step of each side
def step_of_uopc(path: Path, config: generate.Config, position: int, threads: int) -> Callable:
    decoder = generate.Decoder(config, generate.read_weights(path, config), threads)
    token = np.array([TOKEN])
    for _ in range(position):
        decoder(token)

    def step() -> np.ndarray:
        decoder.position = position
        return decoder(token)

    return step


def step_of_memory(path: Path, config: generate.Config, position: int, threads: int) -> Callable:
    size = needed(config, position) // 4
    whole = uopc.file(path, np.uint8)
    memory = np.resize(whole[whole.size % 4 :].view("f4"), size)
    total = uopc.compile(uopc.param("x", (size,)).sum(), threads=threads)
    return lambda: total(memory)


def step_of_torch(path: Path, config: generate.Config, position: int, threads: int) -> Callable:
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    arrays = generate.read_weights(path, config)
    w = {name: torch.from_numpy(np.array(a)) for name, a in arrays.items()}
    width, heads = config.width, config.heads
    shape = 1, heads, config.context, width // heads
    memory = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(config.layers)]
    token = torch.tensor([TOKEN])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"])

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.addmm(w[f"{name}.bias"], x, w[f"{name}.weight"])

    def step(position: int = position) -> np.ndarray:
        x = w["wte.weight"][token] + w["wpe.weight"][position : position + 1]
        for n, (keys, values) in enumerate(memory):
            mixed = linear(norm(x, f"h.{n}.ln_1"), f"h.{n}.attn.c_attn")
            q, k, v = (p.view(1, heads, 1, -1) for p in mixed.split(width, 1))
            keys[:, :, position : position + 1] = k
            values[:, :, position : position + 1] = v
            seen = keys[:, :, : position + 1], values[:, :, : position + 1]
            mean = functional.scaled_dot_product_attention(q, *seen).view(1, width)
            x = x + linear(mean, f"h.{n}.attn.c_proj")
            inner = linear(norm(x, f"h.{n}.ln_2"), f"h.{n}.mlp.c_fc")
            x = x + linear(functional.gelu(inner, approximate="tanh"), f"h.{n}.mlp.c_proj")
        found: np.ndarray = (norm(x, "ln_f") @ w["wte.weight"].T)[0].numpy()
        return found

    for i in range(position):
        step(i)
    return step


def step_of_onnxruntime(
    path: Path, config: generate.Config, position: int, threads: int
) -> Callable:
    from model_workloads import transformer
    from peers import OnnxRuntime

    workload = transformer(
        config.layers, 1, config.width, config.heads, True, position, config.words
    )
    return OnnxRuntime(threads).prepare(workload)


def write_ggml(path: Path, config: generate.Config, weights: generate.Weights) -> None:
    """The weights in the file that ggml's GPT-2 reads: matrices transposed, words of no meaning."""

    def put(file: BinaryIO, name: str, array: np.ndarray) -> None:
        head = array.ndim, len(name), 0, *array.shape[::-1]
        file.write(struct.pack(f"{len(head)}i", *head) + name.encode())
        file.write(np.ascontiguousarray(array).data)

    with path.open("wb") as file:
        sizes = config.words, config.context, config.width, config.heads, config.layers
        file.write(struct.pack("8i", 0x67676D6C, *sizes, 0, config.words))
        for n in range(config.words):
            word = f" {n}".encode()
            file.write(struct.pack("i", len(word)) + word)
        for name, array in weights.items():
            layer, _, rest = name.removeprefix("h.").rpartition(".")[0].partition(".")
            matrix, norm = array.ndim == 2, "ln_" in name
            if not layer.isdigit():
                made = layer if matrix else f"{layer}/{'g' if name.endswith('weight') else 'b'}"
                put(file, f"model/{made}", array)
            else:
                kind = "b" if name.endswith("bias") else "g" if norm else "w"
                made = f"model/h{layer}/{rest.replace('.', '/')}/{kind}"
                put(file, made, array.T if matrix else array)


def step_of_ctransformers(
    path: Path, config: generate.Config, position: int, threads: int
) -> Callable:
    from ctransformers import AutoModelForCausalLM

    made = path.with_suffix(".ggml")
    if not made.exists():
        write_ggml(made, config, generate.read_weights(path, config))
    model = AutoModelForCausalLM.from_pretrained(
        str(made), model_type="gpt2", context_length=config.context
    )
    model.eval([TOKEN] * position, threads=threads)

    def step() -> np.ndarray:  # a token further each time
        model.eval([TOKEN], threads=threads)
        return np.array(model.logits)

    return step


def write_gguf(path: Path, config: generate.Config, weights: generate.Weights) -> None:
    """The weights in llama.cpp's file: matrices transposed, words of no meaning."""
    from gguf import GGUFWriter

    file = GGUFWriter(path, "gpt2")
    file.add_context_length(config.context)
    file.add_embedding_length(config.width)
    file.add_feed_forward_length(4 * config.width)
    file.add_block_count(config.layers)
    file.add_head_count(config.heads)
    file.add_layer_norm_eps(config.epsilon)
    file.add_tokenizer_model("gpt2")
    words = [chr(161 + n) for n in range(config.words)]
    file.add_token_list(words)
    file.add_token_merges([f"{words[0]} {words[1]}"])
    names = {
        "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm",
        "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
        "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    }  # fmt: skip
    for name, array in weights.items():
        *layer, rest = name.removeprefix("h.").split(".", 1) if name.startswith("h.") else [name]
        part, _, kind = rest.rpartition(".")
        made = ".".join([*[f"blk.{n}" for n in layer], names[part], kind])
        file.add_tensor(made, np.ascontiguousarray(array.T if layer and array.ndim > 1 else array))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def step_of_llama_cpp(path: Path, config: generate.Config, position: int, threads: int) -> Callable:
    from xllamacpp import CommonParams, Server

    made = path.with_suffix(".gguf")
    if not made.exists():
        write_gguf(made, config, generate.read_weights(path, config))
    how = CommonParams()
    how.model.path, how.n_ctx, how.n_parallel = str(made), config.context, 1
    how.verbosity = 0
    how.cpuparams.n_threads = how.cpuparams_batch.n_threads = threads
    server = Server(how)
    prompt = [TOKEN] * (position + 1)

    def answer(shown: int) -> dict[str, Any]:
        """It remembers the prompt, and takes the last token again."""
        asked = {"prompt": prompt, "max_tokens": 1, "temperature": 0.0, "n_probs": shown}
        found: dict[str, Any] = server.handle_completions(asked)["choices"][0]
        return found

    logits = np.full(config.words, np.nan)  # but for a constant
    for word in answer(config.words)["logprobs"]["content"][0]["top_logprobs"]:
        logits[word["id"]] = word["logprob"]

    def step() -> np.ndarray:
        answer(0)
        return logits

    return step


Step = Callable[[Path, generate.Config, int, int], Callable]
# The function that makes a step, and the packages that it needs.
SIDES: dict[str, tuple[Step, tuple[str, ...]]] = {
    "memory": (step_of_memory, ()), "uopc": (step_of_uopc, ()),
    "torch": (step_of_torch, ("torch",)),
    "onnxruntime": (step_of_onnxruntime, ("onnxruntime", "onnx")),
    "llama.cpp": (step_of_llama_cpp, ("xllamacpp", "gguf")),
    "ctransformers": (step_of_ctransformers, ("ctransformers",)),
}  # fmt: skip
OTHER_WEIGHTS = "memory", "onnxruntime"


def installed() -> list[str]:
    """The sides that can run here."""
    return [s for s, (_, packages) in SIDES.items() if all(map(find_spec, packages))]


# ---------------------------------------------------------------- processes that take turns
def serve(side: str, path: Path, config: generate.Config, position: int, threads: int) -> None:
    """A step for each line of the input; prints its seconds by the clock, and of the processor."""
    step = SIDES[side][0](path, config, position, threads)
    np.save(path.with_name(f"{side}.npy"), step())
    print("ready", flush=True)
    for _ in sys.stdin:
        begin, worked = time.perf_counter(), time.process_time()
        step()
        print(time.perf_counter() - begin, time.process_time() - worked, flush=True)


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """The greatest, in units of the greatest value, of logits without their mean."""
    got, expected = got - got.mean(), expected - expected.mean()
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def measure(arguments: argparse.Namespace, path: Path, threads: int) -> None:
    """A table of all sides with so many threads."""
    command = [sys.executable, __file__, "--file", str(path), "--threads", str(threads),
               "--position", str(arguments.position), *["--small"] * arguments.small]  # fmt: skip
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    sides = {s: subprocess.Popen([*command, "--serve", s], **pipes) for s in installed()}
    found: dict[str, list[tuple[float, float]]] = {s: [] for s in sides}
    try:
        for side in sides.values():
            if side.stdout.readline() != "ready\n":
                raise RuntimeError(f"{side.args[-1]} ended")
        for _ in range(arguments.rounds):
            for name, side in sides.items():
                side.stdin.write("\n")
                side.stdin.flush()
                clock, worked = map(float, side.stdout.readline().split())
                found[name].append((clock, worked))
    finally:
        for side in sides.values():
            side.kill()
            side.wait()
    columns = (f"threads: {threads}", "least ms", "median ms", "tokens/s", "to memory, median",
               "processor", "difference")  # fmt: skip
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    least_work = min(w for _, w in found["memory"])
    logits = {s: np.load(path.with_name(f"{s}.npy")) for s in sides if s not in OTHER_WEIGHTS}
    for name, times in found.items():
        clocks = [c for c, _ in times]
        ratios = [c / m for (c, _), (m, _) in zip(times, found["memory"])]
        work = f"{min(w for _, w in times) / least_work:.2f}" if threads == 1 else ""
        far = f"{difference(logits[name], logits['uopc']):.0e}" if name in logits else ""
        row = (name, f"{min(clocks) * 1e3:.1f}", f"{statistics.median(clocks) * 1e3:.1f}",
               f"{1 / min(clocks):.1f}", f"{statistics.median(ratios):.2f}", work, far)  # fmt: skip
        print(f"| {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--threads", default="1,2", help="time with these numbers of threads; default: %(default)s"
    )
    parser.add_argument(
        "--rounds", type=int, default=20,
        help="take this many turns of each program; default: %(default)s",
    )
    parser.add_argument(
        "--position", type=int, default=255, help="begin at this token; default: %(default)s"
    )
    parser.add_argument("--small", action="store_true", help="a small model, to try this file")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    config = SMALL if arguments.small else GPT2
    if arguments.serve:
        threads = int(arguments.threads)
        serve(arguments.serve, arguments.file, config, arguments.position, threads)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        write(path, config)
        print(f"{needed(config, arguments.position) / 1e6:.0f} MB a step")
        for threads in map(int, arguments.threads.split(",")):
            measure(arguments, path, threads)


if __name__ == "__main__":
    main()
