"""Train a network on scikit-learn's digits: the gradient and Adam are one program.

    python examples/train_digits.py

A step is one call: it reads a batch, and writes the new weights into the arrays that it was given.
The same network is trained by gradients written out in NumPy, from the same weights on the same
batches: the losses must agree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import uopc
import uopc.numpy as unp

PIXELS, HIDDEN, DIGITS, BATCH, STEPS = 64, 64, 10, 100, 300
RATE, FIRST, SECOND, EPSILON = 3e-3, 0.9, 0.999, 1e-8
State = dict[str, Any]


def weights(seed: int) -> State:
    """The first weights, and zeros for Adam's moments; float64."""
    random = np.random.default_rng(seed)
    sizes = {"w1": (PIXELS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, DIGITS), "b2": (DIGITS,)}
    first = {
        n: random.standard_normal(s) / np.sqrt(s[0]) if n[0] == "w" else np.zeros(s)
        for n, s in sizes.items()
    }
    moments = {n: np.zeros(s) for n, s in sizes.items()}
    return {"weights": first, "mean": moments, "square": {n: v.copy() for n, v in moments.items()}}


def loss(w: State, images: Any, labels: Any) -> Any:
    """The cross entropy of the network on images f64[n, 64] with labels one hot, f64[n, 10]."""
    hidden = unp.tanh(images @ w["w1"] + w["b1"])
    scores = hidden @ w["w2"] + w["b2"]
    scores = scores - unp.max(scores, axis=1, keepdims=True)
    return unp.mean(unp.log(unp.sum(unp.exp(scores), axis=1)) - unp.sum(scores * labels, axis=1))


def adam(state: State, gradient: State, step: Any) -> State:
    """The state after a step of Adam (Kingma and Ba, 2015)."""
    made: State = {"weights": {}, "mean": {}, "square": {}}
    for n, g in gradient.items():
        m = FIRST * state["mean"][n] + (1 - FIRST) * g
        v = SECOND * state["square"][n] + (1 - SECOND) * g * g
        scaled = m / (1 - FIRST**step) / ((v / (1 - SECOND**step)) ** 0.5 + EPSILON)
        made["weights"][n] = state["weights"][n] - RATE * scaled
        made["mean"][n], made["square"][n] = m, v
    return made


@uopc.jit(donate_argnames="state")
def trained(state: State, step: Any, images: Any, labels: Any) -> tuple[State, Any]:
    """The state after a step on a batch, in the memory of the state before; and the loss."""
    value, gradient = uopc.value_and_grad(loss)(state["weights"], images, labels)
    return adam(state, gradient, step), value


def graph() -> uopc.UOp:
    """The gradient by the first weights, for `uopc dump examples/train_digits.py`."""
    f8 = uopc.dtypes.float64
    state = {n: uopc.param(n, v.shape, f8) for n, v in weights(0)["weights"].items()}
    images, labels = uopc.param("x", (BATCH, PIXELS), f8), uopc.param("y", (BATCH, DIGITS), f8)
    found: uopc.UOp = uopc.grad(loss)(state, images, labels)["w1"]
    return found


def by_hand(state: State, step: float, images: np.ndarray, labels: np.ndarray) -> Any:
    """The same in NumPy, with the gradient written out."""
    w = state["weights"]
    hidden = np.tanh(images @ w["w1"] + w["b1"])
    scores = hidden @ w["w2"] + w["b2"]
    weight = np.exp(scores - scores.max(axis=1, keepdims=True))
    share = weight / weight.sum(axis=1, keepdims=True)
    value = -np.mean(np.log(np.sum(share * labels, axis=1)))
    back = (share - labels) / len(images)
    inner = (back @ w["w2"].T) * (1 - hidden**2)
    gradient = {
        "w1": images.T @ inner, "b1": inner.sum(0), "w2": hidden.T @ back, "b2": back.sum(0),
    }  # fmt: skip
    return adam(state, gradient, step), value


def losses(train: Callable[..., Any], state: State, images: Any, labels: Any) -> Any:
    """The losses of all steps, and the state after them."""
    found = []
    for step in range(1, STEPS + 1):
        first = (step * BATCH) % (len(images) - BATCH)
        batch = slice(first, first + BATCH)
        state, value = train(state, float(step), images[batch], labels[batch])
        found.append(float(value))
    return np.array(found), state


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when the losses agree and most digits are recognised."""
    from sklearn.datasets import load_digits
    from timing import line, side_by_side, verdict

    seed = int(arguments[0]) if arguments else 0
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images, digits = images[order] / 16, digits[order]
    labels = np.eye(DIGITS)[digits]
    seen = len(images) // 2
    ours, state = losses(trained, weights(seed), images[:seen], labels[:seen])
    theirs, _ = losses(by_hand, weights(seed), images[:seen], labels[:seen])
    error = float(np.abs(ours - theirs).max())
    w = state["weights"]
    scores = np.tanh(images[seen:] @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]
    right = float(np.mean(scores.argmax(axis=1) == digits[seen:]))
    print(f"loss {ours[0]:.3f} to {ours[-1]:.3f}; {right:.1%} of unseen digits recognised")
    print(f"largest difference of a loss: {error:.1e}")
    batch = 1.0, images[:BATCH], labels[:BATCH]
    mine, other = weights(seed), weights(seed)
    timed = side_by_side(lambda: trained(mine, *batch), lambda: by_hand(other, *batch))
    print(line(timed[0], "NumPy, gradient by hand", timed[1]))
    return verdict("train_digits", error <= 1e-9 and right > 0.9)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
