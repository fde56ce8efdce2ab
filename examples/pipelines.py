"""Pipelines of scikit-learn as programs: converted by skl2onnx, read by uopc.onnx, and compared.

    python examples/pipelines.py

Each is trained on the digits. One program takes any number of examples; labels are the same, and
probabilities are those of scikit-learn to float32.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

import uopc

EXAMPLES = 300


def digits() -> tuple[Any, Any]:
    """Images f32[rows, 64] and their digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images.astype(np.float32), labels


def pipelines() -> dict[str, Any]:
    """Pipelines by name, not yet trained."""
    from sklearn.decomposition import PCA
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "scaler, PCA, logistic": make_pipeline(
            StandardScaler(), PCA(20, random_state=0), LogisticRegression(max_iter=200)
        ),
        "boosted trees": GradientBoostingClassifier(n_estimators=5, random_state=0),
    }


def converted(model: Any, images: Any) -> Any:
    """The model of ONNX; probabilities as an array, not as maps."""
    from skl2onnx import to_onnx

    return to_onnx(model, images[:1], target_opset={"": 21, "ai.onnx.ml": 3},
                   options={"zipmap": False})  # fmt: skip


def graph() -> uopc.UOp:
    """The probabilities of the first pipeline, for `uopc dump examples/pipelines.py`."""
    import uopc.onnx

    images, labels = digits()
    model = pipelines()["scaler, PCA, logistic"].fit(images, labels)
    made: uopc.UOp = uopc.onnx.graph(converted(model, images)).outputs["probabilities"]
    return made


def reference(model: Any, images: Any) -> tuple[Any, Any]:
    """Labels and probabilities of scikit-learn."""
    return model.predict(images), model.predict_proba(images)


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when all agree."""
    from timing import line, side_by_side, verdict

    import uopc.onnx

    images, labels = digits()
    passed = True
    for name, model in pipelines().items():
        model.fit(images[EXAMPLES:], labels[EXAMPLES:])
        f = uopc.onnx.load(converted(model, images))
        unseen = images[:EXAMPLES]
        found, expected = list(f(unseen).values()), reference(model, unseen)
        error = float(np.abs(found[1] - expected[1]).max())
        same = bool((found[0] == expected[0]).all())
        right = np.mean(found[0] == labels[:EXAMPLES])
        print(
            f"{name}: {right:.1%} right, probabilities differ by {error:.1e}, same labels: {same}"
        )
        ours, theirs = side_by_side(partial(f, unseen), partial(model.predict_proba, unseen))
        print(line(ours, "scikit-learn predict_proba", theirs))
        passed = passed and same and error <= 1e-5
    return verdict("pipelines", passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
