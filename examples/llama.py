"""Generate text with a decoder of the kinds Llama, Mistral, Qwen or Gemma, from its folder.

    python examples/llama.py FOLDER "Once upon a time" "Another text" [--tokens 40] [--top-k 40]
                             [--temperature 0.8] [--top-p 0.95] [--seed 0] [--threads 2]
    python examples/llama.py FOLDER --quantise NEW      # write a folder with weights of 4 bits

The folder is one as models are published: `config.json`, `model.safetensors` or an index of several
such files, `tokenizer.json`. Weights are views of the files and constants of two programs: one
reads a piece of the prompts, one takes a token of each text. Texts are rows of a batch; each has a
position of its own. Both programs write keys and values of attention into the same arrays.

Without a folder it makes a small model, generates from it, and compares with the model in NumPy.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes

Weights = Mapping[str, np.ndarray]
PIECE = 256  # the most tokens of a prompt that are read at once


@dataclass(frozen=True)
class Attention:
    """The facts that differ from layer to layer: how many tokens a token sees, itself included, and
    by which angles places turn queries and keys (`rope_parameters` of a `config.json`)."""

    window: int
    places: Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """The sizes of a model, and what its kind adds: see `read_config`."""

    layers: tuple[Attention, ...]
    heads: int
    groups: int  # of heads that share keys and values
    head: int
    width: int
    words: int
    context: int
    epsilon: float
    gelu: bool  # instead of silu
    scale: float  # of scores
    shift: float = 0.0  # of the weights of norms
    growth: float = 1.0  # of embeddings
    score_cap: float | None = None
    logit_cap: float | None = None
    ends: frozenset[int] = frozenset()  # tokens that end a text


# ---------------------------------------------------------------- the model
class Model:
    """The graph of a decoder for a batch of texts that are `rows` tokens longer after a call."""

    def __init__(self, config: Config, weights: Weights, batch: int, rows: int | UOp) -> None:
        self.config, self.weights, self.batch, self.rows = config, weights, batch, rows
        self.begins = [uopc.variable(f"position{b}", 0, config.context - 1) for b in range(batch)]
        begins = uopc.stack(*[b.cast(dtypes.int32) for b in self.begins])
        self.places = begins.reshape(batch, 1) + uopc.arange(rows)  # of each new token in its text
        self.end = uopc.variable("end", 1, config.context)  # behind the last place of all texts
        self._angles: dict[str, tuple[UOp, UOp]] = {}

    def logits(self) -> UOp:
        """The logits behind one of the new tokens of each text. Arguments are `tokens` and `last`,
        the number of that token; of each layer `keys` and `values`, which are written."""
        c, batch, rows = self.config, self.batch, self.rows
        tokens = uopc.param("tokens", (batch, rows), dtypes.int32)
        words = self.weight("embed_tokens.weight", c.words, c.width)
        x = words[tokens.reshape(batch * rows)] * c.growth
        for n, attention in enumerate(c.layers):
            name = f"layers.{n}"
            y = self.attended(self.norm(x, f"{name}.input_layernorm"), n, attention)
            if f"{name}.pre_feedforward_layernorm.weight" in self.weights:  # four norms
                x = x + self.norm(y, f"{name}.post_attention_layernorm")
                y = self.mixed(self.norm(x, f"{name}.pre_feedforward_layernorm"), f"{name}.mlp")
                x = x + self.norm(y, f"{name}.post_feedforward_layernorm")
            else:
                x = x + y
                x = x + self.mixed(self.norm(x, f"{name}.post_attention_layernorm"), f"{name}.mlp")
        last = uopc.param("last", (batch,), dtypes.int32)
        x = x.take(last + uopc.arange(batch) * rows, 0) if type(rows) is not int or rows > 1 else x
        x = self.norm(x, "norm")
        tied = not any(n.startswith("lm_head.") for n in self.weights)
        scores = self.product(x, "embed_tokens" if tied else "lm_head", c.words)
        return scores if c.logit_cap is None else (scores / c.logit_cap).tanh() * c.logit_cap

    def attended(self, x: UOp, n: int, attention: Attention) -> UOp:
        """The numbers that attention adds to each token."""
        c, name = self.config, f"layers.{n}.self_attn"

        def heads(letter: str, count: int) -> UOp:
            made = self.product(x, f"{name}.{letter}_proj", count * c.head)
            made = made.reshape(self.batch, self.rows, count, c.head)
            if f"{name}.{letter}_norm.weight" in self.weights:
                made = self.norm(made, f"{name}.{letter}_norm")
            return made.permute(0, 2, 1, 3)

        cos, sin = self.angles(attention)
        queries = heads("q", c.heads).rotary(cos, sin)
        keys = self.remembered(f"keys{n}", heads("k", c.groups).rotary(cos, sin), attention)
        values = self.remembered(f"values{n}", heads("v", c.groups), attention)
        sees = self.sees(attention)
        made = queries.attention(keys, values, sees, c.scale, c.score_cap).permute(0, 2, 1, 3)
        return self.product(made.reshape(self.batch * self.rows, c.heads * c.head),
                            f"{name}.o_proj", c.width)  # fmt: skip

    def mixed(self, x: UOp, name: str) -> UOp:
        """The numbers that the two layers behind attention add to each token."""
        gate, up = self.product(x, f"{name}.gate_proj"), self.product(x, f"{name}.up_proj")
        gate = gate.gelu("tanh") if self.config.gelu else gate.silu()
        return self.product(gate * up, f"{name}.down_proj", self.config.width)

    def remembered(self, name: str, new: UOp, attention: Attention) -> UOp:
        """Keys or values of all tokens that matter; those of the new ones are written first.

        Token p of a text lies at p % room: the memory of a window is a ring. Nothing is there to
        clamp, as slices would: `Decoder` ends a piece where a ring ends.
        """
        c, room = self.config, room_of(self.config, attention)
        memory = written = uopc.param(name, (self.batch, c.groups, room, c.head))
        heads, numbers = (0, c.groups), (0, c.head)
        for b, begin in enumerate(self.begins):
            at = begin if room == c.context else begin % room
            part = written.shrink([(b, b + 1), heads, (at, at + self.rows), numbers])
            written = memory.after(part.store(new[b : b + 1]))
        return written.shrink([(0, self.batch), heads, (0, self.seen(room)), numbers])

    def seen(self, room: int) -> UOp:
        """The number of places of a memory that hold a token of a text."""
        return self.end if room == self.config.context else uopc.variable(f"seen{room}", 1, room)

    def sees(self, attention: Attention) -> UOp:
        """True for each new token and place of the memory that the token sees, itself included."""
        c, room = self.config, room_of(self.config, attention)
        query = self.places.reshape(self.batch, 1, self.rows, 1)
        held = uopc.arange(self.seen(room))  # the token at each place; in a ring, below 0 for none
        if room < c.context:
            newest = query[:, :, self.rows - 1 :]
            held = newest - (newest - held) % room
        sees = held <= query
        sees = sees & (held > query - attention.window) if attention.window < c.context else sees
        return sees & (held >= 0) if room < c.context else sees

    def angles(self, attention: Attention) -> tuple[UOp, UOp]:
        """Cosines and sines of the angles by which places turn queries and keys; stored, as all
        layers read them."""
        key = repr(sorted(attention.places.items()))
        if key not in self._angles:
            turns, factor = frequencies(attention.places, self.config, self.end)
            at = self.places.cast(dtypes.float32).reshape(self.batch, 1, self.rows, 1) * turns
            cos, sin = at.cos() * factor, at.sin() * factor
            self._angles[key] = cos.contiguous(), sin.contiguous()
        return self._angles[key]

    # ------------------------------------------------ weights
    def weight(self, name: str, *shape: int) -> UOp:
        """A weight, widened. UserError where it is missing or has another shape."""
        found = self.weights.get(name)
        if found is None or found.shape != shape:
            got = "nothing" if found is None else found.shape
            raise uopc.UserError(f"expected a weight {name} of shape {shape}, got {got}")
        return uopc.constant(found).cast(dtypes.float32)

    def norm(self, x: UOp, name: str) -> UOp:
        weight = self.weight(f"{name}.weight", x.shape[-1])
        return x.rms_norm(weight + self.config.shift, self.config.epsilon)

    def product(self, x: UOp, name: str, columns: int | None = None) -> UOp:
        """The rows of x times a matrix of weights, of floats or of 4 bits, plus its bias."""
        size = int(x.shape[-1])
        if (codes := self.weights.get(f"{name}.codes")) is not None:
            columns = columns or len(codes)
            made = self.of_codes(x, name, columns, size)
        else:
            found = self.weights.get(f"{name}.weight")
            columns = columns or (0 if found is None else len(found))
            made = x @ self.weight(f"{name}.weight", columns, size).permute(1, 0)
        bias = f"{name}.bias"
        return made + self.weight(bias, columns) if bias in self.weights else made

    def of_codes(self, x: UOp, name: str, columns: int, size: int) -> UOp:
        """The rows of x times weights of 4 bits, see `quantised`."""
        groups, codes = size // GROUP, self.weights[f"{name}.codes"]
        scales = self.weight(f"{name}.scales", columns, groups).reshape(columns, groups, 1)
        if codes.dtype != np.uint8 or codes.shape != (columns, groups, GROUP // 2):
            raise uopc.UserError(f"expected bytes {name}.codes for {size} columns")
        p, x = uopc.constant(codes), x.reshape(-1, 1, groups, 2, GROUP // 2)
        low, high = [
            (q.cast(dtypes.int8) - 8).cast(dtypes.float32) * scales for q in (p & 15, p >> 4)
        ]
        if self.rows == 1:  # one pass over the bytes as they lie
            return (low * x[:, :, :, 0] + high * x[:, :, :, 1]).sum((2, 3))
        w = uopc.stack(low, high, axis=2).reshape(columns, size).contiguous()
        return x.reshape(-1, size) @ w.permute(1, 0)


def room_of(config: Config, attention: Attention) -> int:
    """The number of tokens that the memory of a layer holds: those that the first token of a piece
    sees, and the piece."""
    return min(config.context, attention.window + PIECE)


def frequencies(places: Mapping[str, Any], config: Config, end: UOp) -> tuple[UOp, float]:
    """The angle by which each pair of a head turns from one place to the next, and the factor of
    all cosines and sines. (Peng and others, 2023, for `yarn`.)"""
    kind, base = places.get("rope_type", "default"), float(places["rope_theta"])
    powers = np.arange(0, config.head, 2, dtype=np.float32) / config.head
    plain = 1 / np.float32(base) ** powers
    factor, turns, longer = 1.0, plain, float(places.get("factor", 1.0))
    trained = float(places.get("original_max_position_embeddings", config.context))
    if kind == "linear":
        turns = plain / longer
    elif kind == "dynamic":  # grows with the longest text
        length = end.cast(dtypes.float64).maximum(trained)
        power = config.head / (config.head - 2)
        grown = (length * (longer / trained) - (longer - 1)).pow(power) * base
        return (grown.log() * -powers.astype("f8")).exp().cast(dtypes.float32), factor
    elif kind == "llama3":
        low, high = float(places["low_freq_factor"]), float(places["high_freq_factor"])
        share = np.clip((trained * plain / (2 * math.pi) - low) / (high - low), 0, 1)
        turns = plain * (share + (1 - share) / longer)
    elif kind == "yarn":

        def pair(turns: float) -> float:  # the pair that turns so often along the trained length
            return config.head * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

        ends = pair(places.get("beta_fast") or 32), pair(places.get("beta_slow") or 1)
        if places.get("truncate", True):
            ends = math.floor(ends[0]), math.ceil(ends[1])
        low, high = max(ends[0], 0), min(ends[1], config.head - 1)
        share = np.clip((np.arange(config.head // 2) - low) / max(high - low, 0.001), 0, 1)
        turns = plain * (1 - share + share / longer)
        factor = yarn_factor(places, longer)
    elif kind != "default":
        raise uopc.UserError(f"places of the kind {kind!r} are not supported")
    return uopc.constant(turns.astype(np.float32)), factor


def yarn_factor(places: Mapping[str, Any], longer: float) -> float:
    """The factor of cosines and sines of `yarn`, which sharpens attention in long texts."""
    if places.get("attention_factor") is not None:
        return float(places["attention_factor"])
    above, below = places.get("mscale"), places.get("mscale_all_dim")
    sizes = [
        0.1 * m * math.log(longer) + 1 if longer > 1 else 1.0 for m in (above or 1, below or 0)
    ]
    return sizes[0] / sizes[1] if above and below else 0.1 * math.log(max(longer, 1)) + 1


# ---------------------------------------------------------------- the folder
KINDS = "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file. UserError where there is none."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise uopc.UserError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise uopc.UserError(f"{path}: expected an object")
    return found


def read_config(folder: Path, context: int | None = None) -> Config:
    """The sizes in a `config.json`; texts of up to `context` tokens, by default as many as the
    model was made for, or 4,096. UserError for another kind of model, and for missing or wrong
    sizes."""
    path = folder / "config.json"
    found = read_json(path)
    kind = found.get("model_type")
    if kind not in KINDS:
        raise uopc.UserError(f"{path}: expected model_type of {', '.join(KINDS)}, got {kind!r}")

    def size(name: str, default: Any = None) -> int:
        value = default if found.get(name) is None else found[name]
        if type(value) is not int or value < 1:
            raise uopc.UserError(f"{path}: expected a positive int {name}, got {value!r}")
        return value

    gemma = kind.startswith("gemma")
    heads, width = size("num_attention_heads"), size("hidden_size")
    head = size("head_dim", 256 if gemma else width // heads)
    limit = size("max_position_embeddings", 8192 if gemma else 2048)
    context = context or min(limit, 4096)
    if heads % size("num_key_value_heads", heads) or head % 2:
        raise uopc.UserError(f"{path}: {heads} heads of {head} numbers do not share keys evenly")
    act = found.get("hidden_activation") or found.get("hidden_act") or "silu"
    if act not in ("silu", "gelu", "gelu_pytorch_tanh") or (act == "gelu" and not gemma):
        raise uopc.UserError(f"{path}: the activation {act!r} is not supported")
    more = folder / "generation_config.json"
    ends = (read_json(more) if more.exists() else found).get(
        "eos_token_id", found.get("eos_token_id")
    )
    return Config(
        layers=layers_of(found, path, size("num_hidden_layers"), context),
        heads=heads, groups=size("num_key_value_heads", heads), head=head, width=width,
        words=size("vocab_size"), context=context,
        epsilon=float(found.get("rms_norm_eps", 1e-6)), gelu=act != "silu",
        scale=(size("query_pre_attn_scalar", 256) if kind in KINDS[-2:] else head) ** -0.5,
        shift=float(gemma), growth=width**0.5 if gemma else 1.0,
        score_cap=found.get("attn_logit_softcapping"),
        logit_cap=found.get("final_logit_softcapping"),
        ends=frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends]),
    )  # fmt: skip


def layers_of(
    found: Mapping[str, Any], path: Path, count: int, context: int
) -> tuple[Attention, ...]:
    """The attention of each layer, from a config of transformers 4 or 5."""
    kind, window = found["model_type"], found.get("sliding_window")
    if kind.startswith("qwen") and not found.get("use_sliding_window"):
        window = None
    full = {"mistral": 0, "gemma2": 2, "gemma3_text": found.get("sliding_window_pattern", 6)}
    names = found.get("layer_types") or [
        "full_attention" if window is None or kind in ("llama", "gemma")
        or (kind.startswith("qwen") and n < found.get("max_window_layers", 28))
        or (full.get(kind) and not (n + 1) % full[kind]) else "sliding_attention"
        for n in range(count)
    ]  # fmt: skip
    given = found.get("rope_parameters") or found.get("rope_scaling") or {}
    limit = found.get("max_position_embeddings", 2048)
    made: dict[str, Attention] = {}
    for name in dict.fromkeys(names):
        local = kind == "gemma3_text" and name == "sliding_attention"
        places = given.get(name, {} if local else given) if isinstance(given, dict) else {}
        base = found.get("rope_local_base_freq", 1e4) if local else found.get("rope_theta")
        base = base or (1e6 if kind == "gemma3_text" else 1e4)
        places = {"rope_theta": base, "original_max_position_embeddings": limit} | {
            "rope_type" if k == "type" else k: v for k, v in places.items() if v is not None
        }
        seen = window if name == "sliding_attention" and window else context
        made[name] = Attention(min(int(seen), context), places)
    if len(names) != count:
        raise uopc.UserError(f"{path}: {len(names)} layer_types for {count} layers")
    return tuple(made[name] for name in names)


def read_weights(folder: Path) -> Weights:
    """The weights as views of the files. UserError where a file is missing or leaves the folder."""
    names = ["model.safetensors"]
    index = folder / "model.safetensors.index.json"
    if index.exists():
        listed = read_json(index).get("weight_map")
        names = sorted(set(listed.values())) if isinstance(listed, dict) else []
        if not names or any(not isinstance(n, str) or Path(n).name != n for n in names):
            raise uopc.UserError(f"{index}: expected names of files in this folder by weight")
    found: dict[str, np.ndarray] = {}
    for name in names:
        tensors = uopc.load_safetensors(folder / name)
        found |= {key.removeprefix("model."): a for key, a in tensors.items()}
    return found


class Texts:
    """Tokens of texts, and texts of tokens: by `tokenizer.json` and the package `tokenizers`, or,
    if one is missing, numbers between spaces."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer: Any = None
        path = folder / "tokenizer.json"
        try:
            from tokenizers import Tokenizer
        except ImportError:
            return
        if path.exists():
            try:
                self._tokenizer = Tokenizer.from_file(str(path))
            except Exception as error:  # the library raises nothing more precise
                raise uopc.UserError(f"{path}: {error}") from None

    def tokens(self, text: str) -> np.ndarray:
        if self._tokenizer is not None:
            return np.array(self._tokenizer.encode(text).ids, np.int32)
        try:
            return np.array([int(word) for word in text.split()], np.int32)
        except (ValueError, OverflowError):
            raise uopc.UserError(
                f"no tokenizer: expected numbers of tokens between spaces, got {text!r}"
            ) from None

    def text(self, tokens: Sequence[int]) -> str:
        if self._tokenizer is not None:
            return str(self._tokenizer.decode(list(tokens)))
        return " ".join(map(str, tokens))


# ---------------------------------------------------------------- weights of 4 bits
GROUP = 64  # weights that share a scale


def quantised(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix of weights in 4 bits: bytes of the shape (rows, groups, GROUP // 2) and scales of
    the shape (rows, groups).

    A weight is (code - 8) · scale, where code is 0 to 15, and a group is GROUP neighbours of a row.
    The low bits of its bytes hold the first half of the group, the high bits the second half. The
    scale makes the weight of the greatest magnitude code 0.
    """
    groups = matrix.astype(np.float32).reshape(len(matrix), -1, GROUP)
    most = np.take_along_axis(groups, abs(groups).argmax(-1, keepdims=True), -1)
    scales = most / -8
    codes = np.rint(groups / np.where(scales == 0, 1, scales)).clip(-8, 7).astype(np.int8) + 8
    low, high = np.split(codes.astype(np.uint8), 2, -1)
    return low | high << 4, scales[..., 0]


def quantise(folder: Path, made: Path) -> None:
    """Write a folder whose matrices have 4 bits; embeddings and norms stay as they are."""
    made.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.json"):
        if path.name != "model.safetensors.index.json":
            (made / path.name).write_bytes(path.read_bytes())
    weights: dict[str, np.ndarray] = {}
    given = dict(read_weights(folder))
    given.setdefault("lm_head.weight", given["embed_tokens.weight"])
    for name, array in given.items():
        layer, _, what = name.rpartition(".")
        matrix = what == "weight" and array.ndim == 2 and layer != "embed_tokens"
        if matrix and array.shape[1] % GROUP == 0:
            weights[f"{layer}.codes"], weights[f"{layer}.scales"] = quantised(array)
        elif layer != "lm_head" or array is not given["embed_tokens.weight"]:
            weights[name] = array
    uopc.save_safetensors(made / "model.safetensors", weights, {"format": "np"})


# ---------------------------------------------------------------- texts that grow
class Decoder:
    """A model and some texts that it has read: their keys and values, and their lengths."""

    def __init__(
        self, config: Config, weights: Weights, texts: int = 1, threads: int | None = None
    ) -> None:
        self.config = config
        self.lengths = np.zeros(texts, np.int64)
        rows = uopc.variable("rows", 1, PIECE)
        self._read, self._step = [
            uopc.compile(Model(config, weights, texts, r).logits(), threads=threads)
            for r in (rows, 1)
        ]
        self._names = {p: [*inspect.signature(p).parameters] for p in (self._read, self._step)}
        self._rooms = {room_of(config, a) for a in config.layers}
        self._memory = {
            f"{name}{n}": np.zeros((texts, config.groups, room_of(config, a), config.head), "f4")
            for name in ("keys", "values")
            for n, a in enumerate(config.layers)
        }

    def __call__(self, tokens: Sequence[np.ndarray]) -> np.ndarray:
        """The logits behind some more tokens of each text, which may be none. UserError for a token
        that the model does not know, and where a text becomes too long."""
        new, words, context = (
            [np.asarray(t, np.int32) for t in tokens],
            self.config.words,
            self.config.context,
        )
        if len(new) != len(self.lengths) or not any(map(len, new)):
            raise uopc.UserError(f"expected tokens of {len(self.lengths)} texts, got {new}")
        for t, length in zip(new, self.lengths):
            if len(t) and not 0 <= t.min() <= t.max() < words:
                raise uopc.UserError(f"tokens from 0 to {words - 1} expected, got {t}")
            if length + len(t) > context:
                raise uopc.UserError(f"a text has at most {context} tokens")
        logits = np.zeros((len(new), words), np.float32)
        while any(map(len, new)):
            # A text that is full gets nothing new, so that its last place does not matter.
            begins = np.minimum(self.lengths, context - 1)
            left = [room - int((begins % room).max()) for room in self._rooms]
            rows = min(PIECE, max(map(len, new)), *left)
            counts = np.array([min(len(t), rows) for t in new])
            given = np.zeros((len(new), rows), np.int32)
            for b, t in enumerate(new):
                given[b, : counts[b]] = t[:rows]
            found = self._run(given, begins, np.maximum(counts - 1, 0))
            ended = [0 < len(t) <= rows for t in new]
            logits[ended] = found[ended]
            self.lengths += counts
            new = [t[rows:] for t in new]
        return logits

    def _run(self, tokens: np.ndarray, begins: np.ndarray, last: np.ndarray) -> np.ndarray:
        rows = tokens.shape[1]
        program, end = self._step if rows == 1 else self._read, int(begins.max()) + rows
        named = {f"position{b}": int(begin) for b, begin in enumerate(begins)}
        named |= {f"seen{room}": min(end, room) for room in self._rooms} | {"end": end}
        named |= self._memory | {"tokens": tokens, "last": last.astype(np.int32)}
        return program(**{n: v for n, v in named.items() if n in self._names[program]})


def choice(texts: int, words: int, top_k: int) -> UOp:
    """A token for each text, by chance, of the `top_k` likeliest and of the likeliest ones that
    have the share `top_p` of all: arguments are the logits, temperature, top_p, a seed and the
    number of the token, which gives each its own chance."""
    given = uopc.param("logits", (texts, words))
    values, places = given.top_k(top_k)
    values = values / uopc.param("temperature")
    shares = values.softmax()
    kept = (shares.cumsum(1) - shares) < uopc.param("top_p")
    seed, number = uopc.param("seed", (), dtypes.int64), uopc.param("number", (), dtypes.int64)
    key = uopc.random.fold_in(uopc.random.key(seed), number)
    drawn = uopc.random.categorical(key, kept.where(values, -math.inf))
    return places.gather(1, drawn.reshape(texts, 1)).reshape(texts)


def generated(
    decoder: Decoder, prompts: Sequence[np.ndarray], count: int, temperature: float = 0.8,
    top_k: int = 40, top_p: float = 1.0, seed: int = 0,
) -> Iterator[list[int | None]]:  # fmt: skip
    """So many tokens behind each prompt, one of each text at once; None for a text at its end or at
    the end of the context. A temperature of 0 takes the likeliest, a top_k of 0 any word."""
    config, texts = decoder.config, len(prompts)
    if not temperature >= 0 or not 0 < top_p <= 1 or top_k < 0:
        raise uopc.UserError(
            f"expected temperature >= 0, 0 < top_p <= 1 and top_k >= 0, got {temperature}, {top_p}"
            f" and {top_k}"
        )
    k = min(top_k or config.words, config.words)
    choose = uopc.compile(choice(texts, config.words, k)) if temperature else None
    logits, grows = decoder(prompts), np.ones(texts, bool)
    for number in range(count):
        if choose is None:
            tokens = logits.argmax(1)
        else:
            tokens = choose(
                logits=logits, seed=seed, number=number, temperature=temperature, top_p=top_p
            )
        grows &= ~np.isin(tokens, list(config.ends))
        yield [int(t) if g else None for t, g in zip(tokens, grows)]
        grows &= decoder.lengths < config.context
        if not grows.any() or number == count - 1:
            return
        logits = decoder([np.array([t] if g else [], int) for t, g in zip(tokens, grows)])


# ---------------------------------------------------------------- a small model, and NumPy's
SMALL: dict[str, Any] = {
    "model_type": "mistral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 60, "sliding_window": 12,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
}  # fmt: skip


def make_folder(folder: Path, found: Mapping[str, Any] = SMALL, seed: int = 0) -> None:
    """A folder of random weights for a config without norms of heads and biases."""
    (folder / "config.json").write_text(json.dumps(found), "utf-8")
    width, inner = found["hidden_size"], found["intermediate_size"]
    shared = width * found["num_key_value_heads"] // found["num_attention_heads"]
    shapes = {"embed_tokens": (found["vocab_size"], width), "norm": (width,)}
    layer = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (shared, width),
             "self_attn.v_proj": (shared, width), "self_attn.o_proj": (width, width),
             "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
             "mlp.down_proj": (width, inner), "input_layernorm": (width,),
             "post_attention_layernorm": (width,)}  # fmt: skip
    for n in range(found["num_hidden_layers"]):
        shapes |= {f"layers.{n}.{name}": shape for name, shape in layer.items()}
    random = np.random.default_rng(seed)
    uopc.save_safetensors(folder / "model.safetensors", {
        f"model.{name}.weight": (
            random.standard_normal(shape) * shape[-1] ** -0.5 if len(shape) > 1
            else 1 + 0.1 * random.standard_normal(shape)
        ).astype("f4")
        for name, shape in shapes.items()
    })  # fmt: skip


def reference(config: Config, weights: Weights, tokens: np.ndarray) -> np.ndarray:
    """The logits behind the last token of a text by NumPy in float64, without any memory, for the
    small model's kind."""
    w = {name.removesuffix(".weight"): a.astype(np.float64) for name, a in weights.items()}
    rows = np.arange(len(tokens))

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config.epsilon) * w[name]

    def turned(x: np.ndarray, base: float) -> np.ndarray:
        at = rows[:, None] * base ** (-np.arange(0, config.head, 2) / config.head)
        a, b = np.split(x, 2, -1)
        made = (a + 1j * b) * np.exp(1j * at)
        return np.concatenate([made.real, made.imag], -1)

    x = w["embed_tokens"][tokens]
    for n, attention in enumerate(config.layers):
        name, y = f"layers.{n}", norm(x, f"layers.{n}.input_layernorm")
        q, k, v = [
            (y @ w[f"{name}.self_attn.{p}_proj"].T)
            .reshape(len(rows), -1, config.head)
            .swapaxes(0, 1)
            for p in "qkv"
        ]
        base = attention.places["rope_theta"]
        q, k = turned(q, base), np.repeat(turned(k, base), config.heads // config.groups, 0)
        apart = rows[:, None] - rows
        seen = (apart >= 0) & (apart < attention.window)
        scores = np.where(seen, q @ k.swapaxes(1, 2) * config.scale, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mean = shares / shares.sum(-1, keepdims=True) @ np.repeat(v, len(q) // len(v), 0)
        x = x + mean.swapaxes(0, 1).reshape(len(rows), -1) @ w[f"{name}.self_attn.o_proj"].T
        y = norm(x, f"{name}.post_attention_layernorm")
        gate = y @ w[f"{name}.mlp.gate_proj"].T
        y = gate / (1 + np.exp(-gate)) * (y @ w[f"{name}.mlp.up_proj"].T)
        x = x + y @ w[f"{name}.mlp.down_proj"].T
    found: np.ndarray = norm(x[-1], "norm") @ w["embed_tokens"].T
    return found


def graph() -> UOp:
    """A step of the small model, for the dump."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make_folder(folder)
        weights = {name: np.array(a) for name, a in read_weights(folder).items()}
        return Model(read_config(folder), weights, 1, 1).logits()


def check(folder: Path) -> bool:
    """Generates from the small model and compares each step with NumPy."""
    from timing import line, side_by_side

    make_folder(folder)
    config, weights = read_config(folder), read_weights(folder)
    random = np.random.default_rng(1)
    texts = [random.integers(0, config.words, n) for n in (19, 3, 8)]
    decoder, error = Decoder(config, weights, len(texts)), 0.0
    logits = decoder(texts)
    for _ in range(12):
        expected = np.stack([reference(config, weights, t) for t in texts])
        error = max(error, float(abs(logits - expected).max()))
        texts = [np.append(t, scores.argmax()) for t, scores in zip(texts, logits)]
        logits = decoder([t[-1:] for t in texts])
    drawn = list(generated(Decoder(config, weights, len(texts)), texts, 20, top_p=0.9))
    print(f"largest difference of a logit: {error:.1e}; {[tokens[0] for tokens in drawn]}")

    def step() -> None:
        decoder.lengths[:] = [len(t) - 1 for t in texts]
        decoder([t[-1:] for t in texts])

    ours, theirs = side_by_side(
        step, lambda: [reference(config, weights, t) for t in texts], rounds=11
    )
    print(line(ours, "NumPy", theirs))
    return error <= 1e-5 and len(drawn) == 20


def show(texts: Texts, decoder: Decoder, asked: argparse.Namespace) -> None:
    """Print a text while it grows, several ones when they have ended."""
    prompts = [texts.tokens(prompt) for prompt in asked.prompts]
    shown, grown = asked.prompts[0], [list(p) for p in prompts]
    alone = len(prompts) == 1
    print(shown if alone else "", end="", flush=True)
    for tokens in generated(
        decoder, prompts, asked.tokens, asked.temperature, asked.top_k, asked.top_p, asked.seed
    ):
        for text, token in zip(grown, tokens):
            text += [] if token is None else [token]
        text = texts.text(grown[0])
        if alone and not text.endswith("\ufffd"):  # part of a letter
            print(text[len(shown) :], end="", flush=True)
            shown = text
    print("" if alone else "\n---\n".join(texts.text(t) for t in grown))


def main(arguments: list[str]) -> int:
    """Generates text; without a folder, prints PASS and gives 0 when the small model is right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("prompts", nargs="*", default=["\n"])
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--context", type=int, help="the most tokens of a text")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--quantise", type=Path, help="write a folder with weights of 4 bits")
    asked = parser.parse_args(arguments)
    if asked.folder is None:
        from timing import verdict

        with tempfile.TemporaryDirectory() as made:
            passed = check(Path(made))
        return verdict("llama", passed)
    if asked.quantise is not None:
        quantise(asked.folder, asked.quantise)
        return 0
    config = read_config(asked.folder, asked.context)
    decoder = Decoder(config, read_weights(asked.folder), len(asked.prompts), asked.threads)
    show(Texts(asked.folder), decoder, asked)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
