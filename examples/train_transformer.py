"""Train a small transformer to repeat what it read: the gradient and Adam are one program.

    python examples/train_transformer.py [STEPS]

A text is random letters, twice. The model, of two causal layers, reads it letter by letter and
learns to foresee the second half. Where PyTorch is installed, the same model is trained by it from
the same weights on the same texts: the losses must agree. Otherwise gradients are compared with
differences of the loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import uopc
import uopc.numpy as unp

LETTERS, HALF, WIDTH, HEADS, LAYERS, BATCH, STEPS = 16, 12, 64, 4, 2, 32, 60
LENGTH = 2 * HALF - 1
RATE, FIRST, SECOND, EPSILON = 3e-3, 0.9, 0.999, 1e-8
HIDDEN = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)  # the letters that come later
State = dict[str, Any]


# ---------------------------------------------------------------- the model
class Ours:
    """The functions that the model needs, of uopc."""

    exp, log, sqrt, reshape, maximum = unp.exp, unp.log, unp.sqrt, unp.reshape, unp.maximum

    @staticmethod
    def sum(x: Any) -> Any:
        return unp.sum(x, axis=-1, keepdims=True)

    @staticmethod
    def top(x: Any) -> Any:
        return unp.max(x, axis=-1, keepdims=True)

    @staticmethod
    def order(x: Any, axes: tuple[int, ...]) -> Any:
        return unp.permute_dims(x, axes)

    @staticmethod
    def constant(a: Any) -> Any:
        return a


def normed(lib: Any, x: Any, scale: Any) -> Any:
    """Rows of mean square 1, times a scale."""
    return x / lib.sqrt(lib.sum(x * x) / WIDTH + 1e-5) * scale


def softmax(lib: Any, x: Any) -> Any:
    """Shares of the last axis."""
    weight = lib.exp(x - lib.top(x))
    return weight / lib.sum(weight)


def attention(lib: Any, w: State, n: int, x: Any) -> Any:
    """Causal attention of shape (batch, length, width)."""
    heads = x.shape[0], LENGTH, HEADS, WIDTH // HEADS
    parts = [lib.reshape(x @ w[f"{k}{n}"], heads) for k in "qkv"]
    q, k, v = [lib.order(p, (0, 2, 1, 3)) for p in parts]
    scores = q @ lib.order(k, (0, 1, 3, 2)) * (WIDTH // HEADS) ** -0.5 + lib.constant(HIDDEN)
    seen = lib.order(softmax(lib, scores) @ v, (0, 2, 1, 3))
    return lib.reshape(seen, (x.shape[0], LENGTH, WIDTH)) @ w[f"o{n}"]


def loss(lib: Any, w: State, texts: Any, following: Any) -> Any:
    """The mean cross entropy of the letters of the second half; `following` is one hot."""
    x = w["letters"][texts] + w["places"]
    for n in range(LAYERS):
        x = x + attention(lib, w, n, normed(lib, x, w[f"before{n}"]))
        inner = lib.maximum(normed(lib, x, w[f"between{n}"]) @ w[f"up{n}"], lib.constant(ZERO))
        x = x + inner @ w[f"down{n}"]
    scores = normed(lib, x, w["last"])[:, HALF - 1 :] @ w["out"]
    scores = scores - lib.top(scores)
    logs = scores - lib.log(lib.sum(lib.exp(scores)))
    return -(logs * following).sum() / (texts.shape[0] * HALF)


ZERO = np.float32(0)


def weights(seed: int) -> State:
    """The first weights; float32."""
    random = np.random.default_rng(seed)
    sizes: dict[str, tuple[int, ...]] = {"letters": (LETTERS, WIDTH), "places": (LENGTH, WIDTH)}
    for n in range(LAYERS):
        sizes |= {f"{k}{n}": (WIDTH, WIDTH) for k in "qkvo"}
        sizes |= {f"up{n}": (WIDTH, 4 * WIDTH), f"down{n}": (4 * WIDTH, WIDTH)}
        sizes |= {f"before{n}": (WIDTH,), f"between{n}": (WIDTH,)}
    sizes |= {"out": (WIDTH, LETTERS), "last": (WIDTH,)}
    return {
        n: np.ones(s, "f4")
        if len(s) == 1
        else (random.standard_normal(s) * s[0] ** -0.5).astype("f4")
        for n, s in sizes.items()
    }


def texts(step: int) -> tuple[Any, Any]:
    """The letters that a batch reads, (batch, length), and one hot those after each of the second
    half."""
    half = np.random.default_rng([7, step]).integers(0, LETTERS, (BATCH, HALF))
    whole = np.concatenate([half, half], 1)
    return whole[:, :-1], np.eye(LETTERS, dtype="f4")[whole[:, HALF:]]


# ---------------------------------------------------------------- training
@uopc.jit(donate_argnames="state")
def trained(state: State, step: Any, read: Any, following: Any) -> tuple[State, Any]:
    """The state after a step of Adam on a batch, in the memory of the state before; the loss."""
    w, m, v = state["weights"], state["mean"], state["square"]
    value, slopes = uopc.value_and_grad(lambda w: loss(Ours, w, read, following))(w)
    m = {n: FIRST * m[n] + (1 - FIRST) * g for n, g in slopes.items()}
    v = {n: SECOND * v[n] + (1 - SECOND) * g * g for n, g in slopes.items()}
    rate = RATE * unp.sqrt(1 - SECOND**step) / (1 - FIRST**step)
    w = {n: w[n] - rate * m[n] / (unp.sqrt(v[n]) + EPSILON) for n in w}
    return {"weights": w, "mean": m, "square": v}, value


def first_state(seed: int) -> State:
    """The first weights, and zeros for Adam's moments."""
    w = weights(seed)
    return {
        "weights": w,
        **{k: {n: np.zeros_like(a) for n, a in w.items()} for k in ("mean", "square")},
    }


def losses(steps: int) -> Any:
    """The loss of each step."""
    state, found = first_state(0), []
    for step in range(1, steps + 1):
        state, value = trained(state, np.float32(step), *texts(step))
        found.append(float(value))
    return np.array(found)


def torch_step() -> Callable[..., float] | None:
    """A step of PyTorch on its own copy of the weights; None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None

    class Theirs:
        exp, log, sqrt, reshape = torch.exp, torch.log, torch.sqrt, torch.reshape
        maximum, order, constant = torch.maximum, torch.permute, torch.as_tensor

        @staticmethod
        def sum(x: Any) -> Any:
            return x.sum(-1, keepdim=True)

        @staticmethod
        def top(x: Any) -> Any:
            return x.amax(-1, keepdim=True)

    w = {n: torch.tensor(a, requires_grad=True) for n, a in weights(0).items()}
    method = torch.optim.Adam(w.values(), RATE, (FIRST, SECOND), EPSILON)

    def step(read: Any, following: Any) -> float:
        method.zero_grad()
        value = loss(Theirs, w, torch.tensor(read), torch.tensor(following))
        value.backward()
        method.step()
        return float(value.detach())

    return step


def differences() -> float:
    """The distance of a slope from a difference of losses, along a random direction; float64."""
    random, (read, following) = np.random.default_rng(3), texts(0)
    w = {n: a.astype("f8") for n, a in weights(0).items()}
    to = {n: random.standard_normal(a.shape) for n, a in w.items()}
    at = uopc.jit(lambda w: loss(Ours, w, read, following.astype("f8")))
    slopes = uopc.jit(uopc.grad(lambda w: loss(Ours, w, read, following.astype("f8"))))(w)
    slope = sum([float((np.asarray(slopes[n]) * to[n]).sum()) for n in w])
    ahead, back = [float(at({n: w[n] + h * to[n] for n in w})) for h in (1e-8, -1e-8)]
    return abs((ahead - back) / 2e-8 - slope) / abs(slope)


def graph() -> uopc.UOp:
    """A part of the gradient, for `uopc dump examples/train_transformer.py`."""
    w = {n: uopc.param(f"w_{n}", a.shape) for n, a in weights(0).items()}
    read, following = texts(0)
    found: uopc.UOp = uopc.grad(lambda w: loss(Ours, w, read, following))(w)["out"]
    return found


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when the losses agree and the model has learnt."""
    from timing import line, seconds, side_by_side, verdict

    steps = int(arguments[0]) if arguments else STEPS
    ours = losses(steps)
    print(f"loss {ours[0]:.3f} to {ours[-1]:.3f} in {steps} steps")
    error = differences()
    print(f"difference of a slope: {error:.1e}")
    state, batch, peer = first_state(0), texts(1), torch_step()
    apart = 0.0

    def mine() -> Any:
        return trained(state, np.float32(1), *batch)

    if peer is None:
        least = min([seconds(mine) for _ in range(20)])
        print(f"a step takes {least * 1e3:.2f} ms; no ratio: PyTorch is not installed")
    else:
        theirs = np.array([peer(*texts(step)) for step in range(1, steps + 1)])
        apart = float(np.abs(ours - theirs).max())
        print(f"largest difference of a loss from PyTorch's: {apart:.1e}")
        times = side_by_side(mine, lambda: peer(*batch))
        print(line(times[0], "PyTorch", times[1]))
    # Rounding of float32 grows while the loss falls fast.
    passed = error <= 1e-6 and apart <= 1e-2 and ours[-1] < 0.8 * ours[0]
    return verdict("train_transformer", passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
