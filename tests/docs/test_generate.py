"""The example that generates text: every logit as NumPy and PyTorch have it, at all positions, from
weights that stay in their file; tokens drawn as asked; folders that are not what they should be."""

from __future__ import annotations

import json
import shutil
import sys

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

import uopc
from tests import ROOT
from uopc import UserError, cache
from uopc.ir.core.data import files

pytest.importorskip("tokenizers", reason="no tokenizers: see the extra `examples`")
sys.path.insert(0, str(ROOT / "examples"))
import generate

CONFIG = generate.Config(layers=2, heads=3, width=24, context=20, words=290, end=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    generate.make_folder(made, CONFIG, seed=3)
    return made


@pytest.fixture(scope="module")
def weights(folder):
    return generate.read_weights(folder / "model.safetensors", CONFIG)


@pytest.fixture
def decoder(weights):
    return generate.Decoder(CONFIG, weights, threads=2)


def random_tokens(seed, count):
    return np.random.default_rng(seed).integers(0, CONFIG.words, count)


def by_torch(config, weights, tokens):
    """The logits behind the last token, by PyTorch's own layers in float64."""
    torch = pytest.importorskip("torch", reason="no torch")
    functional = torch.nn.functional
    w = {n: torch.from_numpy(np.array(a, np.float64)) for n, a in weights.items()}
    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]
    for n in range(config.layers):
        attention = torch.nn.MultiheadAttention(
            config.width, config.heads, batch_first=True, dtype=torch.float64
        )
        name = f"h.{n}.attn"
        attention.load_state_dict({
            "in_proj_weight": w[f"{name}.c_attn.weight"].T,
            "in_proj_bias": w[f"{name}.c_attn.bias"],
            "out_proj.weight": w[f"{name}.c_proj.weight"].T,
            "out_proj.bias": w[f"{name}.c_proj.bias"],
        })  # fmt: skip

        def norm(x, name):
            scale = w[f"{name}.weight"], w[f"{name}.bias"]
            return functional.layer_norm(x, (config.width,), *scale, config.epsilon)

        mask = torch.triu(torch.ones(len(tokens), len(tokens), dtype=torch.bool), 1)
        y = norm(x, f"h.{n}.ln_1")[None]
        x = x + attention(y, y, y, attn_mask=mask, need_weights=False)[0][0]
        name = f"h.{n}.mlp"
        y = norm(x, f"h.{n}.ln_2") @ w[f"{name}.c_fc.weight"] + w[f"{name}.c_fc.bias"]
        y = functional.gelu(y, approximate="tanh")
        x = x + y @ w[f"{name}.c_proj.weight"] + w[f"{name}.c_proj.bias"]
    last = functional.layer_norm(
        x[-1], (config.width,), w["ln_f.weight"], w["ln_f.bias"], config.epsilon
    )
    return (last @ w["wte.weight"].T).detach().numpy()


# PyTorch takes some seconds to import.
by_both = pytest.mark.parametrize(
    "reference", [generate.reference, pytest.param(by_torch, marks=pytest.mark.slow)]
)


@by_both
@pytest.mark.parametrize("parts", [(1,) * 20, (20,), (7, 1, 1, 5, 1, 2, 3), (1, 19), (19, 1)])
def test_logits_at_all_positions_whatever_was_read_at_once(decoder, weights, reference, parts):
    tokens = random_tokens(0, sum(parts))
    end = 0
    for count in parts:
        got = decoder(tokens[end : end + count])
        end += count
        want = reference(CONFIG, weights, tokens[:end])
        assert got.dtype == np.float32 and got.shape == (CONFIG.words,)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)
    assert decoder.position == CONFIG.context


@pytest.mark.parametrize(
    "t",
    [ml_dtypes.bfloat16] + [pytest.param(t, marks=pytest.mark.slow) for t in ("f2", "f8")],
)
def test_weights_of_other_dtypes(tmp_path, weights, t):
    path = tmp_path / "model.safetensors"
    uopc.save_safetensors(path, {f"transformer.{n}": a.astype(t) for n, a in weights.items()})
    read = generate.read_weights(path, CONFIG)
    assert {a.dtype for a in read.values()} == {np.dtype(t)}
    decoder, tokens = generate.Decoder(CONFIG, read, 2), random_tokens(1, 9)
    decoder(tokens[:8])
    np.testing.assert_allclose(
        decoder(tokens[8:]), generate.reference(CONFIG, read, tokens), rtol=1e-4, atol=2e-5
    )


def test_a_step_is_compiled_once_and_weights_are_never_copied(decoder, weights):
    before = cache.counters()
    for _ in range(CONFIG.context):
        decoder(random_tokens(2, 1))
    after = cache.counters()
    assert after["compiled"] == before["compiled"] and after["scheduled"] == before["scheduled"]
    for program in (decoder._step, decoder._read):
        constants = program._runner.plan.constants
        in_file = [c for c in constants if files.mapping_of(c) is not None]
        assert len(in_file) == len(weights)
        assert sum(c.nbytes for c in constants if files.mapping_of(c) is None) < 1000


# ---------------------------------------------------------------- tokens
def test_the_likeliest_tokens(weights):
    prompt = random_tokens(4, 5)
    want = prompt
    for _ in range(8):
        want = np.append(want, generate.reference(CONFIG, weights, want).argmax())
    for more in ({"temperature": 0}, {"temperature": 2.0, "top_k": 1, "seed": 9}):
        got = list(generate.generated(generate.Decoder(CONFIG, weights, 2), prompt, 8, **more))
        assert got == want[5:].tolist()


def test_drawn_tokens_are_as_likely_as_asked():
    words, k, temperature, count = 12, 5, 0.7, 4000
    scores = np.random.default_rng(5).standard_normal(words).astype("f4")
    choose = uopc.compile(generate.choice(words, k))
    drawn = np.array([
        int(choose(logits=scores, seed=1, number=n, temperature=temperature)) for n in range(count)
    ])  # fmt: skip
    top = np.argsort(-scores)[:k]
    assert set(drawn) <= set(top)
    share = np.exp(scores[top] / temperature, dtype=np.float64)
    expected = count * share / share.sum()
    observed = [(drawn == t).sum() for t in top]
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    again = [
        int(choose(logits=scores, seed=1, number=n, temperature=temperature)) for n in range(50)
    ]
    other = [
        int(choose(logits=scores, seed=2, number=n, temperature=temperature)) for n in range(50)
    ]
    assert again == drawn[:50].tolist() != other


def test_texts_end_at_their_end_at_the_count_and_with_the_context(weights):
    def count(config, prompt, asked):
        decoder = generate.Decoder(config, weights, 2)
        return len(list(generate.generated(decoder, random_tokens(6, prompt), asked, 0)))

    assert count(CONFIG, 3, 4) == 4 and count(CONFIG, 3, 0) == 0
    assert count(CONFIG, 20, 9) == 1 and count(CONFIG, 15, 99) == 6
    first = generate.reference(CONFIG, weights, random_tokens(6, 3)).argmax()
    ended = generate.Config(**{**vars(CONFIG), "end": int(first)})
    assert count(ended, 3, 4) == 0


# ---------------------------------------------------------------- the command line
def test_text_from_a_folder(folder, weights, capsys):
    arguments = [str(folder), "the cat sat", "--tokens", "6", "--seed", "4", "--threads", "2"]
    assert generate.main(arguments) == 0
    printed = capsys.readouterr().out
    tokenizer = generate.read_tokenizer(folder / "tokenizer.json")
    read = generate.Config.read(folder / "config.json")
    assert read == CONFIG
    decoder = generate.Decoder(CONFIG, weights, 2)
    tokens = tokenizer.encode("the cat sat").ids
    drawn = list(generate.generated(decoder, np.array(tokens), 6, seed=4))
    whole = tokenizer.decode([*tokens, *drawn])
    assert printed.startswith("the cat sat") and whole.startswith(printed.rstrip("\n"))
    assert generate.main(arguments) == 0 and capsys.readouterr().out == printed
    with pytest.raises(SystemExit):
        generate.main([str(folder), "--tokens", "many"])


def changed(folder, tmp_path, **more):
    made = tmp_path / "changed"
    shutil.copytree(folder, made, dirs_exist_ok=True)
    config = json.loads((made / "config.json").read_text("utf-8"))
    (made / "config.json").write_text(json.dumps(config | more), "utf-8")
    return made


def test_bad_folders(folder, tmp_path, weights):
    def config(**more):
        return lambda: generate.Config.read(changed(folder, tmp_path, **more) / "config.json")

    (tmp_path / "no.json").write_text("{", "utf-8")
    (tmp_path / "list.json").write_text("[]", "utf-8")
    path = tmp_path / "m.safetensors"
    uopc.save_safetensors(path, {n: a for n, a in weights.items() if n != "h.1.mlp.c_fc.bias"})
    wide = generate.Config(**{**vars(CONFIG), "width": 48})
    cases = {
        "No such file": lambda: generate.Config.read(tmp_path / "none"),
        "Expecting property": lambda: generate.Config.read(tmp_path / "no.json"),
        "expected positive ints": lambda: generate.Config.read(tmp_path / "list.json"),
        "expected positive ints n_layer": config(n_layer=-1),
        r"got \[2, 3, 24, 20, '290'\]": config(vocab_size="290"),
        "not a model of GPT-2's shape": config(n_head=5),
        "not a model of GPT-2": config(activation_function="relu"),
        "expected h.1.mlp.c_fc.bias of shape": lambda: generate.read_weights(path, CONFIG),
        r"wte.weight of shape \(290, 48\), got \(290, 24\)": lambda: generate.read_weights(
            folder / "model.safetensors", wide
        ),
        "tokenizer.json": lambda: generate.read_tokenizer(tmp_path / "tokenizer.json"),
        "list.json: ": lambda: generate.read_tokenizer(tmp_path / "list.json"),
    }
    for message, attempt in cases.items():
        with pytest.raises(UserError, match=message):
            attempt()


def test_bad_tokens(decoder):
    for tokens in ([CONFIG.words], [-1], []):
        with pytest.raises(UserError, match="tokens from 0 to 289 expected"):
            decoder(np.array(tokens))
    decoder(random_tokens(7, 18))
    with pytest.raises(UserError, match="a text has at most 20 tokens"):
        decoder(random_tokens(7, 3))
    assert decoder.position == 18
    for temperature in (-1.0, float("nan")):
        with pytest.raises(UserError, match="temperature must be 0 or more"):
            next(generate.generated(decoder, random_tokens(7, 1), 1, temperature))
