"""Generate text with a model of GPT-2's shape, from a folder with its weights and its tokenizer.

    python examples/generate.py FOLDER "Once upon a time" [--tokens 40] [--temperature 0.8]
                                [--top-k 40] [--seed 0] [--threads 2]

The folder has `config.json`, `model.safetensors` and `tokenizer.json`, as it is published. Weights
are views of the file and constants of two programs: one reads the prompt, of any length, and one
takes a single token at any position. Both write keys and values of attention into the same arrays,
so a token costs one pass over the weights.

Without a folder it makes a small one, generates from it, and compares with the model in NumPy.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes

Weights = Mapping[str, np.ndarray]


# ---------------------------------------------------------------- the folder
@dataclass(frozen=True)
class Config:
    """The sizes of a model; `end` is the token that ends a text, if there is one."""

    layers: int
    heads: int
    width: int
    context: int
    words: int
    epsilon: float = 1e-5
    end: int | None = None

    @staticmethod
    def read(path: Path) -> Config:
        """The sizes in a `config.json`. UserError where it is none, or of another architecture."""
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise uopc.UserError(f"{path}: {error}") from None
        names = ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size")
        sizes = [found.get(n) if isinstance(found, dict) else None for n in names]
        if not all([type(n) is int and n > 0 for n in sizes]):
            raise uopc.UserError(f"{path}: expected positive ints {', '.join(names)}, got {sizes}")
        if found.get("activation_function", "gelu_new") != "gelu_new" or sizes[2] % sizes[1]:
            raise uopc.UserError(f"{path}: not a model of GPT-2's shape")
        return Config(*sizes, found.get("layer_norm_epsilon", 1e-5), found.get("eos_token_id"))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights by name."""
        w = self.width
        found: dict[str, tuple[int, ...]] = {
            "wte.weight": (self.words, w), "wpe.weight": (self.context, w),
            "ln_f.weight": (w,), "ln_f.bias": (w,),
        }  # fmt: skip
        layer = {"attn.c_attn": (w, 3 * w), "attn.c_proj": (w, w), "mlp.c_fc": (w, 4 * w),
                 "mlp.c_proj": (4 * w, w), "ln_1": (w,), "ln_2": (w,)}  # fmt: skip
        for n in range(self.layers):
            for name, shape in layer.items():
                found |= {f"h.{n}.{name}.weight": shape, f"h.{n}.{name}.bias": shape[-1:]}
        return found


def read_weights(path: Path, config: Config) -> Weights:
    """The weights as views of the file. UserError where one is missing or has another shape."""
    tensors = uopc.load_safetensors(path)
    found = {name.removeprefix("transformer."): a for name, a in tensors.items()}
    for name, shape in config.shapes().items():
        if name not in found or found[name].shape != shape:
            got = found[name].shape if name in found else "nothing"
            raise uopc.UserError(f"{path}: expected {name} of shape {shape}, got {got}")
    return {name: found[name] for name in config.shapes()}


def read_tokenizer(path: Path) -> Any:
    """The tokenizer of a folder. UserError where it cannot be read."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more precise
        raise uopc.UserError(f"{path}: {error}") from None


# ---------------------------------------------------------------- the model
def logits(config: Config, weights: Weights, rows: int | UOp) -> UOp:
    """The logits behind the last of `rows` tokens, of which the first is at the variable
    `position`: an argument `tokens`, and of each layer `keys` and `values`, which are written."""
    w = {name: uopc.constant(a).cast(dtypes.float32) for name, a in weights.items()}
    width, heads, head = config.width, config.heads, config.width // config.heads
    position = uopc.variable("position", 0, config.context - 1)
    last = position + rows

    def linear(x: UOp, name: str) -> UOp:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def norm(x: UOp, name: str) -> UOp:
        return x.layer_norm(w[f"{name}.weight"], w[f"{name}.bias"], config.epsilon)

    def seen(name: str, new: UOp) -> UOp:
        """Keys or values of all tokens up to now; those of the new ones are written first."""
        memory = uopc.param(name, (heads, config.context, head))
        written = memory.after(part(memory, position, 1).store(new))
        return part(written, 0, 1)

    def part(a: UOp, begin: int | UOp, axis: int) -> UOp:
        """The elements from `begin` to the last token along an axis. Nothing is there to clamp, as
        slices would: `Decoder` has checked that all tokens fit."""
        pairs = [(0, int(n)) for n in a.shape]
        return a.shrink([(begin, last) if i == axis else p for i, p in enumerate(pairs)])

    later = uopc.iota(last) > (uopc.iota(rows) + position).reshape(rows, 1)
    tokens = uopc.param("tokens", (rows,), dtypes.int32)
    x = w["wte.weight"][tokens] + part(w["wpe.weight"], position, 0)
    for n in range(config.layers):
        # Stored, as each of its three parts is read by itself.
        mixed = linear(norm(x, f"h.{n}.ln_1"), f"h.{n}.attn.c_attn").contiguous()
        q, k, v = [
            mixed[:, i * width : (i + 1) * width].reshape(rows, heads, head).permute(1, 0, 2)
            for i in range(3)
        ]
        scores = q @ seen(f"keys{n}", k).permute(0, 2, 1) * head**-0.5
        shares = later.where(-math.inf, scores).softmax(-1)
        mean = (shares @ seen(f"values{n}", v)).permute(1, 0, 2).reshape(rows, width)
        x = x + linear(mean, f"h.{n}.attn.c_proj")
        inner = linear(norm(x, f"h.{n}.ln_2"), f"h.{n}.mlp.c_fc").gelu("tanh")
        x = x + linear(inner, f"h.{n}.mlp.c_proj")
    return norm(x[rows - 1 : rows], "ln_f").reshape(width) @ w["wte.weight"].permute(1, 0)


def choice(words: int, top_k: int) -> UOp:
    """One of the `top_k` likeliest tokens, by chance: arguments are the logits, a temperature, a
    seed and the number of the token, which gives each its own chance."""
    given = uopc.param("logits", (words,))
    values, places = given.top_k(top_k)
    seed, number = uopc.param("seed", (), dtypes.int64), uopc.param("number", (), dtypes.int64)
    key = uopc.random.fold_in(uopc.random.key(seed), number)
    return places[uopc.random.categorical(key, values / uopc.param("temperature"))]


class Decoder:
    """A model with the tokens that it has read: their keys and values, and how many they are."""

    def __init__(self, config: Config, weights: Weights, threads: int | None = None) -> None:
        self.config, self.position = config, 0
        rows = uopc.variable("rows", 1, config.context)
        self._read = uopc.compile(logits(config, weights, rows), threads=threads)
        self._step = uopc.compile(logits(config, weights, 1), threads=threads)
        shape = config.heads, config.context, config.width // config.heads
        self._memory = {
            f"{name}{n}": np.zeros(shape, "f4")
            for name in ("keys", "values")
            for n in range(config.layers)
        }

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        """The logits behind some more tokens. UserError for a token that the model does not know,
        and where the context is full."""
        tokens = np.asarray(tokens, np.int32)
        if not tokens.size or tokens.min() < 0 or tokens.max() >= self.config.words:
            raise uopc.UserError(f"tokens from 0 to {self.config.words - 1} expected, got {tokens}")
        if self.position + len(tokens) > self.config.context:
            raise uopc.UserError(f"a text has at most {self.config.context} tokens")
        program = self._step if len(tokens) == 1 else self._read
        found: np.ndarray = program(tokens=tokens, position=self.position, **self._memory)
        self.position += len(tokens)
        return found


def generated(
    decoder: Decoder, prompt: np.ndarray, count: int, temperature: float = 0.8, top_k: int = 40,
    seed: int = 0,
) -> Iterator[int]:  # fmt: skip
    """So many tokens behind a prompt, one by one, up to the end of the text or of the context. A
    temperature of 0 takes the likeliest."""
    words = decoder.config.words
    if not temperature >= 0:
        raise uopc.UserError(f"the temperature must be 0 or more, got {temperature}")
    choose = uopc.compile(choice(words, min(top_k, words))) if temperature else None
    scores = decoder(prompt)
    for number in range(count):
        if choose is None:
            token = int(scores.argmax())
        else:
            token = int(choose(logits=scores, seed=seed, number=number, temperature=temperature))
        if token == decoder.config.end:
            return
        yield token
        if decoder.position == decoder.config.context or number == count - 1:
            return
        scores = decoder(np.array([token]))


# ---------------------------------------------------------------- a small model, and NumPy's
LETTERS = "the cat sat on the mat and the dog ate the hat of the rat"


def make_folder(folder: Path, config: Config, seed: int = 0) -> None:
    """A folder of random weights, and a tokenizer that knows the words above."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=config.words, initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator([LETTERS], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = {"n_layer": config.layers, "n_head": config.heads, "n_embd": config.width,
             "n_positions": config.context, "vocab_size": config.words,
             "layer_norm_epsilon": config.epsilon, "eos_token_id": config.end}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(sizes), "utf-8")
    random = np.random.default_rng(seed)
    weights = {
        name: (random.standard_normal(shape) * (shape[0] ** -0.5 if len(shape) > 1 else 0.1)
               + (name.startswith("ln") or ".ln_" in name) * name.endswith("weight")).astype("f4")
        for name, shape in config.shapes().items()
    }  # fmt: skip
    uopc.save_safetensors(folder / "model.safetensors", weights, {"format": "np"})


def reference(config: Config, weights: Weights, tokens: np.ndarray) -> np.ndarray:
    """The logits behind the last token by NumPy in float64, without any memory."""
    w = {name: a.astype(np.float64) for name, a in weights.items()}
    rows, head = len(tokens), config.width // config.heads

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        distance = x - x.mean(-1, keepdims=True)
        scale = np.sqrt(distance.var(-1, keepdims=True) + config.epsilon)
        return distance / scale * w[f"{name}.weight"] + w[f"{name}.bias"]

    def split(x: np.ndarray) -> np.ndarray:
        return x.reshape(rows, config.heads, head).transpose(1, 0, 2)

    x = w["wte.weight"][tokens] + w["wpe.weight"][:rows]
    for n in range(config.layers):
        name = f"h.{n}.attn"
        mixed = norm(x, f"h.{n}.ln_1") @ w[f"{name}.c_attn.weight"] + w[f"{name}.c_attn.bias"]
        q, k, v = map(split, np.split(mixed, 3, 1))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(head)
        scores = scores + np.triu(np.full((rows, rows), -1e30), 1)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mean = shares / shares.sum(-1, keepdims=True) @ v
        mean = mean.transpose(1, 0, 2).reshape(rows, config.width)
        x = x + mean @ w[f"{name}.c_proj.weight"] + w[f"{name}.c_proj.bias"]
        name = f"h.{n}.mlp"
        y = norm(x, f"h.{n}.ln_2") @ w[f"{name}.c_fc.weight"] + w[f"{name}.c_fc.bias"]
        y = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + y @ w[f"{name}.c_proj.weight"] + w[f"{name}.c_proj.bias"]
    found: np.ndarray = norm(x[-1], "ln_f") @ w["wte.weight"].T
    return found


SMALL = Config(layers=2, heads=4, width=32, context=64, words=300)


def graph() -> UOp:
    """A step of the small model, for the dump."""
    return logits(SMALL, {name: np.ones(s, "f4") for name, s in SMALL.shapes().items()}, 1)


def check(folder: Path) -> bool:
    """Generates from the small model and compares each step with NumPy."""
    from timing import line, side_by_side

    make_folder(folder, SMALL)
    weights = read_weights(folder / "model.safetensors", SMALL)
    tokenizer = read_tokenizer(folder / "tokenizer.json")
    tokens = np.array(tokenizer.encode("the cat sat on").ids)
    decoder, error = Decoder(SMALL, weights), 0.0
    scores = decoder(tokens)
    for _ in range(12):
        error = max(error, float(np.abs(scores - reference(SMALL, weights, tokens)).max()))
        tokens = np.append(tokens, scores.argmax())
        scores = decoder(tokens[-1:])
    drawn = list(generated(Decoder(SMALL, weights), tokens[:4], 20))
    print(f"largest difference of a logit: {error:.1e}; {tokenizer.decode(drawn)!r}")

    def step() -> None:
        decoder.position = len(tokens) - 1
        decoder(tokens[-1:])

    ours, theirs = side_by_side(step, lambda: reference(SMALL, weights, tokens), rounds=11)
    print(line(ours, "NumPy", theirs))
    return error <= 1e-4 and len(drawn) == 20


def main(arguments: list[str]) -> int:
    """Generates text; without a folder, prints PASS and gives 0 when the small model is right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("prompt", nargs="?", default="\n")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args(arguments)
    if asked.folder is None:
        from timing import verdict

        with tempfile.TemporaryDirectory() as made:
            passed = check(Path(made))
        return verdict("generate", passed)
    config = Config.read(asked.folder / "config.json")
    decoder = Decoder(
        config, read_weights(asked.folder / "model.safetensors", config), asked.threads
    )
    tokenizer = read_tokenizer(asked.folder / "tokenizer.json")
    tokens = list(tokenizer.encode(asked.prompt).ids)
    shown = asked.prompt
    print(shown, end="", flush=True)
    drawn = generated(
        decoder, np.array(tokens), asked.tokens, asked.temperature, asked.top_k, asked.seed
    )
    for token in drawn:
        tokens.append(token)
        text = tokenizer.decode(tokens)
        if not text.endswith("\ufffd"):  # part of a letter
            print(text[len(shown) :], end="", flush=True)
            shown = text
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
