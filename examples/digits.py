"""Train scikit-learn's MLPClassifier on its digits, compile the network, classify with both.

    python examples/digits.py

The network is rebuilt from the weights in float64, as scikit-learn computes. Its number of rows is
a variable: one program takes any batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import uopc

PIXELS, HIDDEN, DIGITS = 64, (64, 32), 10


def network(weights: Sequence[Any], biases: Sequence[Any]) -> uopc.UOp:
    """Probabilities f64[rows, 10] of images x: f64[rows, 64]: relu layers, softmax at the end."""
    rows = uopc.variable("rows", 1, 4096)
    value = uopc.param("x", (rows, PIXELS), uopc.dtypes.float64)
    last = len(weights) - 1
    for i, (w, b) in enumerate(zip(weights, biases)):
        value = value @ uopc.constant(w) + uopc.constant(b)
        value = value.softmax(axis=-1) if i == last else value.relu()
    return value


def graph() -> uopc.UOp:
    """The network with random weights, for `uopc dump examples/digits.py`."""
    random = np.random.default_rng(0)
    sizes = (PIXELS, *HIDDEN, DIGITS)
    weights = [random.standard_normal(pair) for pair in zip(sizes, sizes[1:])]
    return network(weights, [random.standard_normal(n) for n in sizes[1:]])


def train(seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """A trained classifier, and images and labels it has not seen."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    seen, unseen, seen_labels, unseen_labels = train_test_split(
        images / 16, labels, test_size=0.5, random_state=seed
    )
    model = MLPClassifier(HIDDEN, max_iter=400, random_state=seed).fit(seen, seen_labels)
    return model, unseen, unseen_labels


def job(seed: int) -> tuple[uopc.UOp, tuple[np.ndarray, ...], Callable[[], np.ndarray]]:
    """The graph, its arguments, and the same by scikit-learn."""
    model, images, _ = train(seed)
    return network(model.coefs_, model.intercepts_), (images,), lambda: model.predict_proba(images)


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when both agree."""
    from timing import line, side_by_side, verdict

    model, images, labels = train(seed=int(arguments[0]) if arguments else 0)
    program = uopc.compile(network(model.coefs_, model.intercepts_), name="digits")
    found, expected = program(images), model.predict_proba(images)
    chosen = model.classes_[found.argmax(axis=1)]
    error = float(np.abs(found - expected).max())
    same = bool((chosen == model.predict(images)).all())
    print(f"{len(images)} test images, {np.mean(chosen == labels):.1%} of them classified rightly")
    print(f"largest difference of a probability: {error:.1e}; same labels: {same}")
    ours, theirs = side_by_side(lambda: program(images), lambda: model.predict_proba(images))
    print(line(ours, "scikit-learn predict_proba", theirs))
    return verdict("digits", same and error <= 1e-5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
