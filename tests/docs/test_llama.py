"""The decoder of the examples: every kind as transformers computes it, over a padded prompt and 40
steps; rings, texts of their own lengths, weights of 4 bits, drawn tokens, wrong folders."""

from __future__ import annotations

import json
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

import uopc
from tests import ROOT
from uopc import UserError
from uopc.ir.core.data import files

sys.path.insert(0, str(ROOT / "examples"))
import llama

SIZES = {
    "vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0,
    "max_position_embeddings": 128, "eos_token_id": None, "bos_token_id": None,
}  # fmt: skip
TURNED = {"original_max_position_embeddings": 32, "rope_theta": 1e4}
GEMMA = {"sliding_window": 10, "query_pre_attn_scalar": 24}
# Of each kind of model: the class of its config, and what differs from the sizes above.
KINDS = {
    "llama": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "linear": ("LlamaConfig", {"rope_parameters": TURNED | {"rope_type": "linear", "factor": 4.0}}),
    "llama3": ("LlamaConfig", {"rope_parameters": TURNED | {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}}),
    "dynamic": ("LlamaConfig", {"max_position_embeddings": 32, "rope_parameters": {
        "rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}),
    "yarn": ("LlamaConfig", {"rope_parameters": TURNED | {"rope_type": "yarn", "factor": 4.0}}),
    "mistral": ("MistralConfig", {"sliding_window": 16}),
    "qwen2": ("Qwen2Config", {
        "use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", {"tie_word_embeddings": True}),
    "gemma": ("GemmaConfig", {}),
    "gemma2": ("Gemma2Config", GEMMA | {
        "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0}),
    "gemma3": ("Gemma3TextConfig", GEMMA | {
        "layer_types": ["sliding_attention", "full_attention"]}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    """Prompts are read in several pieces, and rings end in the middle of them."""
    monkeypatch.setattr(llama, "PIECE", 8)


def model_of(kind, folder):
    """A model of transformers with random weights, and its folder."""
    transformers = pytest.importorskip("transformers", reason="no transformers: see `test-full`")
    torch = pytest.importorskip("torch", reason="no torch: see `test-full`")
    name, more = KINDS[kind]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        getattr(transformers, name)(**(SIZES | more)), attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            scale = 0.3 if p.ndim == 1 else 1.5 / p.shape[1] ** 0.5
            p.copy_(torch.randn_like(p) * scale + float("norm" in key and "gemma" not in kind))
    model.save_pretrained(folder, max_shard_size="60KB" if kind == "mistral" else "5GB")
    return model


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_as_transformers_has_them(kind, tmp_path):
    """Texts of three lengths, which it pads on the left; then 40 tokens of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model_of(kind, tmp_path)
    import torch

    decoder = llama.Decoder(llama.read_config(tmp_path, 96), llama.read_weights(tmp_path), 3)
    random = np.random.default_rng(1)
    texts = [random.integers(1, 96, n) for n in (21, 5, 13)]
    longest = max(map(len, texts))
    new = torch.tensor([[0] * (longest - len(t)) + t.tolist() for t in texts])
    mask = torch.tensor([[0] * (longest - len(t)) + [1] * len(t) for t in texts])
    past = None
    for _ in range(41):
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, -new.shape[1] :]
        with torch.no_grad():
            found = model(
                input_ids=new, attention_mask=mask, position_ids=places, past_key_values=past,
                use_cache=True,
            )  # fmt: skip
        past, want = found.past_key_values, found.logits[:, -1].numpy()
        got = decoder(texts)
        assert abs(got - want).max() <= 1e-5 * abs(want).max()
        texts = want.argmax(1)[:, None]
        new = torch.tensor(texts)
        mask = torch.cat([mask, torch.ones(3, 1, dtype=mask.dtype)], 1)


# ---------------------------------------------------------------- the small model, as NumPy has it
@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    llama.make_folder(made)
    return made


@pytest.fixture
def config(folder):
    return llama.read_config(folder, 64)


@pytest.fixture(scope="module")
def weights(folder):
    return llama.read_weights(folder)


@pytest.fixture
def decoder(config, weights):
    return llama.Decoder(config, weights, 3, threads=1)


def random_tokens(seed, count):
    return np.random.default_rng(seed).integers(0, llama.SMALL["vocab_size"], count)


def test_texts_grow_by_themselves_up_to_the_context(decoder, config, weights):
    """By pieces of other lengths, by none, beside a text that is full; never a NaN."""
    texts = [np.zeros(0, int)] * 3
    parts = [(30, 1, 0), (1, 0, 9), (33, 1, 1), (0, 20, 1), (0, 1, 0), (0, 0, 40)]
    for seed, counts in enumerate(parts):
        new = [random_tokens(10 * seed + b, n) for b, n in enumerate(counts)]
        texts = [np.append(t, n) for t, n in zip(texts, new)]
        got = decoder(new)
        assert np.isfinite(got).all()
        for b, n in enumerate(counts):
            want = llama.reference(config, weights, texts[b]) if n else np.zeros(config.words)
            np.testing.assert_allclose(got[b], want, rtol=1e-4, atol=1e-5)
    assert decoder.lengths.tolist() == [64, 23, 51]
    with pytest.raises(UserError, match="a text has at most 64 tokens"):
        decoder([[1], [], []])


def test_rings_hold_the_window_and_a_piece(decoder, config):
    rooms = {a.shape for a in decoder._memory.values()}
    assert rooms == {(3, config.groups, 12 + 8, config.head)}


def test_weights_stay_in_their_files(decoder, weights):
    for program in (decoder._read, decoder._step):
        constants = program._runner.plan.constants
        assert sum(files.mapping_of(c) is not None for c in constants) >= len(weights)
        assert sum(c.nbytes for c in constants if files.mapping_of(c) is None) < 4000


@pytest.mark.slow
def test_weights_of_bfloat16(tmp_path, config, weights):
    path = tmp_path / "model.safetensors"
    uopc.save_safetensors(path, {n: a.astype(ml_dtypes.bfloat16) for n, a in weights.items()})
    read, tokens = llama.read_weights(tmp_path), random_tokens(1, 9)
    got = llama.Decoder(config, read, 1, threads=1)([tokens])[0]
    want = llama.reference(config, read, tokens)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_weights_of_4_bits(tmp_path, folder):
    """A weight is at most half a step beside its code, and products are of these weights."""
    sizes = llama.SMALL | {"hidden_size": 128, "intermediate_size": 192}
    wide, narrow = tmp_path / "wide", tmp_path / "narrow"
    wide.mkdir()
    llama.make_folder(wide, sizes)
    llama.quantise(wide, narrow)
    read, tokens = llama.read_weights(narrow), random_tokens(2, 11)
    plain = {n: a for n, a in read.items() if n.endswith(".weight")}
    given = llama.read_weights(wide)
    for name in (n.removesuffix(".codes") for n in read if n.endswith(".codes")):
        codes, scales = read[f"{name}.codes"], read[f"{name}.scales"][..., None]
        numbers = np.concatenate([codes & 15, codes >> 4], -1).astype("i4") - 8
        old = given.get(f"{name}.weight", given["embed_tokens.weight"])
        plain[f"{name}.weight"] = (numbers * scales).reshape(old.shape)
        far = abs(plain[f"{name}.weight"] - old).reshape(*scales.shape[:2], -1)
        assert (far <= abs(scales) * np.where(numbers == 7, 1.001, 0.501)).all()
    assert "layers.1.mlp.up_proj.weight" not in read and "lm_head.codes" in read
    config = llama.read_config(narrow, 64)
    got, want = (llama.Decoder(config, w, 1, threads=1) for w in (read, plain))
    for part in (tokens[:9], tokens[9:10], tokens[10:]):
        np.testing.assert_allclose(got([part]), want([part]), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- tokens
@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (12, 0.7)])
def test_drawn_tokens_are_as_likely_as_asked(top_k, top_p):
    words, temperature, count = 12, 0.7, 1000
    scores = np.random.default_rng(5).standard_normal((4, words)).astype("f4")
    choose = uopc.compile(llama.choice(4, words, top_k))
    given = {"logits": scores, "temperature": temperature, "top_p": top_p}
    drawn = np.stack([choose(**given, seed=1, number=n) for n in range(count)])
    for row, tokens in zip(scores, drawn.T):
        top = np.argsort(-row)[:top_k]
        share = np.exp(row[top] / temperature, dtype=np.float64)
        share /= share.sum()
        top, share = top[share.cumsum() - share < top_p], share[share.cumsum() - share < top_p]
        assert set(tokens) <= set(top)
        observed = [(tokens == t).sum() for t in top]
        assert stats.chisquare(observed, count * share / share.sum()).pvalue > 1e-4
    np.testing.assert_array_equal(choose(**given, seed=1, number=3), drawn[3])
    assert len({tuple(choose(**given, seed=s, number=0)) for s in range(9)}) > 1


@pytest.mark.slow
def test_texts_end_at_their_end_and_with_the_context(config, weights):
    prompts = [random_tokens(6, n) for n in (60, 4, 7)]
    plain = list(llama.generated(llama.Decoder(config, weights, 3), prompts, 8, 0))
    want = [list(p) for p in prompts]
    for tokens in plain:
        for text, token in zip(want, tokens):
            full = len(text) > 64  # the last token behind a full context is drawn, but not read
            assert token == (None if full else llama.reference(config, weights, text).argmax())
            text += [] if token is None else [token]
    ending = plain[2][1]
    config = llama.Config(**{**vars(config), "ends": frozenset([ending])})
    ended = [row[1] for row in llama.generated(llama.Decoder(config, weights, 3), prompts, 8, 0)]
    first = [row[1] for row in plain].index(ending)
    assert ended == [row[1] for row in plain][:first] + [None] * (8 - first)


# ---------------------------------------------------------------- folders
@pytest.mark.slow
def test_text_from_a_folder(folder, config, weights, capsys, tmp_path):
    """Without a tokenizer texts are numbers."""
    arguments = [str(folder), "5 9 11", "--tokens", "6", "--temperature", "0", "--context", "64"]
    assert llama.main(arguments) == 0
    printed = capsys.readouterr().out
    text = [5, 9, 11]
    for _ in range(6):
        text.append(int(llama.reference(config, weights, np.array(text)).argmax()))
    assert printed == " ".join(map(str, text)) + "\n"
    with pytest.raises(UserError, match="expected numbers of tokens between spaces, got 'a b'"):
        llama.main([str(folder), "a b"])


def test_a_tokenizer_of_the_folder(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: see `examples`")
    words = tokenizers.models.WordLevel({"the": 0, "cat": 1, "?": 2}, unk_token="?")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    texts = llama.Texts(tmp_path)
    assert texts.tokens("the cat sat").tolist() == [0, 1, 2] and texts.text([1, 0]) == "cat the"
    (tmp_path / "tokenizer.json").write_text("{", "utf-8")
    with pytest.raises(UserError, match=r"tokenizer\.json: "):
        llama.Texts(tmp_path)


def test_bad_folders(tmp_path, weights):
    def config(**more):
        (tmp_path / "config.json").write_text(json.dumps(llama.SMALL | more), "utf-8")
        return llama.read_config(tmp_path)

    def index(text):
        (tmp_path / "model.safetensors.index.json").write_text(text, "utf-8")
        return llama.read_weights(tmp_path)

    def graph(**more):
        return llama.Model(config(**more), weights, 1, 1).logits()

    cases = {
        "No such file": lambda: llama.read_config(tmp_path / "none"),
        "expected model_type of llama": lambda: config(model_type="bert"),
        "expected a positive int hidden_size, got -1": lambda: config(hidden_size=-1),
        "got '4'": lambda: config(num_attention_heads="4"),
        "do not share keys evenly": lambda: config(num_key_value_heads=3),
        "the activation 'relu'": lambda: config(hidden_act="relu"),
        "1 layer_types for 2 layers": lambda: config(layer_types=["full_attention"]),
        "places of the kind 'longrope'": lambda: graph(rope_scaling={"type": "longrope"}),
        r"embed_tokens.weight of shape \(61, 64\), got \(60, 64\)": lambda: graph(vocab_size=61),
        r"layers.2.input_layernorm.weight .* got nothing": lambda: graph(num_hidden_layers=3),
        "expected names of files": lambda: index('{"weight_map": {"a": "../a.safetensors"}}'),
        "expected an object": lambda: index("[]"),
        "Expecting value": lambda: index("?"),
    }
    for message, attempt in cases.items():
        with pytest.raises(UserError, match=message):
            attempt()


def test_bad_tokens(decoder):
    for tokens in ([[60], [], []], [[-1], [1], []]):
        with pytest.raises(UserError, match="tokens from 0 to 59 expected"):
            decoder(tokens)
    for tokens in ([[], [], []], [[1], [2]]):
        with pytest.raises(UserError, match="expected tokens of 3 texts"):
            decoder(tokens)
    for more in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}):
        with pytest.raises(UserError, match="expected temperature >= 0"):
            next(llama.generated(decoder, [[1]] * 3, 1, **more))
