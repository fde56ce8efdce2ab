"""Time of `examples/llama.py` beside memory, transformers and llama.cpp: a token and a prompt.

    python benchmarks/decoder.py [--rounds 5] [--prompt 256]

A model of 168 million random weights in bfloat16 (12 layers of 1,024, 16 heads that share 4 of
keys, 32,000 words), one thread, time of the processor, in turns in one process, the least and the
median. A token is the one behind the prompt. `memory` is the time to sum up as many bytes as the
weights have. transformers computes in float32, and llama.cpp (`pip install xllamacpp gguf`) has the
weights in float16; both are left out where they are missing. `4 bits`: the weights as `--quantise`
makes them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import llama

import uopc

SIZES = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 4,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
    "tie_word_embeddings": True,
}  # fmt: skip
Calls = tuple[Callable[[], object], Callable[[], object]]  # read the prompt; take a token behind it


def write(folder: Path) -> None:
    """A folder of random weights in bfloat16."""
    llama.make_folder(folder, SIZES)
    path = folder / "model.safetensors"
    weights = {n: a.astype(ml_dtypes.bfloat16) for n, a in uopc.load_safetensors(path).items()}
    uopc.save_safetensors(path, weights, {"format": "pt"})


def of_uopc(folder: Path, prompt: np.ndarray) -> Calls:
    decoder = llama.Decoder(llama.read_config(folder), llama.read_weights(folder), threads=1)

    def read() -> None:
        decoder.lengths[:] = 0
        decoder([prompt])

    def step() -> None:
        decoder.lengths[:] = len(prompt) - 1
        decoder([prompt[-1:]])

    read()
    return read, step


def of_transformers(folder: Path, prompt: np.ndarray) -> Calls:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = torch.tensor(prompt)[None]

    def read() -> object:
        with torch.no_grad():
            return model(input_ids=tokens, use_cache=True, logits_to_keep=1).past_key_values

    past = read()

    def step() -> None:
        past.crop(-1)
        with torch.no_grad():
            model(input_ids=tokens[:, -1:], past_key_values=past, use_cache=True)

    return read, step


def write_gguf(folder: Path, path: Path) -> None:
    """The weights in llama.cpp's file, words of no meaning."""
    from gguf import GGUFWriter

    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    file, config = GGUFWriter(path, "llama"), llama.read_config(folder)
    file.add_context_length(config.context)
    file.add_embedding_length(config.width)
    file.add_feed_forward_length(SIZES["intermediate_size"])
    file.add_block_count(len(config.layers))
    file.add_head_count(config.heads)
    file.add_head_count_kv(config.groups)
    file.add_layer_norm_rms_eps(config.epsilon)
    file.add_rope_dimension_count(config.head)
    file.add_tokenizer_model("gpt2")
    words = [chr(161 + n) for n in range(config.words)]
    file.add_token_list(words)
    file.add_token_merges([f"{words[0]} {words[1]}"])
    for name, array in llama.read_weights(folder).items():
        layer, _, part = name.removesuffix(".weight").removeprefix("layers.").partition(".")
        outside = {"embed_tokens": "token_embd", "norm": "output_norm"}
        made = f"blk.{layer}.{names[part]}" if part else outside[layer]
        kind = np.float32 if array.ndim == 1 else np.float16
        file.add_tensor(f"{made}.weight", np.asarray(array).astype(kind))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def of_llama_cpp(folder: Path, prompt: np.ndarray) -> Calls:
    from xllamacpp import CommonParams, Server

    path, how = folder / "model.gguf", CommonParams()
    write_gguf(folder, path)
    how.model.path, how.n_ctx, how.n_parallel, how.verbosity = str(path), 512, 1, 0
    how.cpuparams.n_threads = how.cpuparams_batch.n_threads = 1
    server, turn = Server(how), 0

    def answer(tokens: np.ndarray) -> None:
        asked = {"prompt": tokens.tolist(), "max_tokens": 1, "temperature": 0.0}
        server.handle_completions(asked)

    def read() -> None:  # another prompt each time, as it remembers the last one
        nonlocal turn
        turn += 1
        answer((prompt + turn) % SIZES["vocab_size"])

    def step() -> None:  # it takes the last token of the prompt again
        answer((prompt + turn) % SIZES["vocab_size"])

    read()
    return read, step


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns; default: %(default)s")
    parser.add_argument("--prompt", type=int, default=256, help="tokens; default: %(default)s")
    asked = parser.parse_args()
    prompt = np.random.default_rng(0).integers(0, SIZES["vocab_size"], asked.prompt)
    with tempfile.TemporaryDirectory() as made:
        folder, narrow = Path(made, "model"), Path(made, "narrow")
        folder.mkdir()
        write(folder)
        llama.quantise(folder, narrow)
        ones = np.ones(sum(a.nbytes for a in llama.read_weights(folder).values()) // 4, "f4")
        total = uopc.compile(uopc.param("x", ones.shape).sum(), threads=1)
        sides = {"uopc": of_uopc(folder, prompt), "uopc, 4 bits": of_uopc(narrow, prompt)}
        if find_spec("transformers") and find_spec("torch"):
            sides["transformers"] = of_transformers(folder, prompt)
        if find_spec("xllamacpp") and find_spec("gguf"):
            sides["llama.cpp"] = of_llama_cpp(folder, prompt)
        calls = {"memory, a token": (lambda: total(ones), 5)}
        for name, (read, step) in sides.items():
            calls |= {f"{name}, the prompt": (read, 1), f"{name}, a token": (step, 5)}
        found: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(asked.rounds):
            for name, (call, times) in calls.items():
                for _ in range(times):
                    begin = time.process_time()
                    call()
                    found[name].append((time.process_time() - begin) * 1e3)
    print("| | least ms | median ms |\n|---|---|---|")
    for name, times in found.items():
        print(f"| {name} | {min(times):.1f} | {statistics.median(times):.1f} |")


if __name__ == "__main__":
    main()
