"""Pipelines of scikit-learn, converted by skl2onnx, beside scikit-learn itself."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc.onnx

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")

from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)  # fmt: skip
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)  # fmt: skip
from sklearn.svm import SVC, SVR  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])


def logistic(*before: Any) -> Any:
    return make_pipeline(*before, LogisticRegression(max_iter=60))


Maker = Callable[[], Any]
CLASSIFIERS: dict[str, tuple[str, Maker]] = {
    "digits": ("digits", lambda: logistic(StandardScaler())),
    "digits by name": ("names", lambda: logistic(MinMaxScaler())),
    "PCA": ("digits", lambda: logistic(StandardScaler(), PCA(16))),
    "two classes": ("cancer", lambda: logistic(RobustScaler(), MaxAbsScaler())),
    "normalizer": ("digits", lambda: logistic(Normalizer("l1"), Binarizer(threshold=0.01))),
    "one hot": ("few", lambda: logistic(OneHotEncoder(handle_unknown="ignore"))),
    "boosted trees": ("digits", lambda: GradientBoostingClassifier(n_estimators=5)),
    "boosted trees of two": ("cancer", lambda: GradientBoostingClassifier(n_estimators=10)),
    "a forest": ("digits", lambda: RandomForestClassifier(10, max_depth=8)),
    "a forest of two": ("cancer", lambda: RandomForestClassifier(10)),
    "a tree with names": ("names", lambda: DecisionTreeClassifier(max_depth=6)),
    "support vectors": ("digits", lambda: make_pipeline(StandardScaler(), SVC())),
    "polynomial vectors": ("cancer", lambda: make_pipeline(StandardScaler(), SVC(kernel="poly"))),
    "a network": ("digits", lambda: MLPClassifier((20,), max_iter=15)),
    "neighbours": ("digits", lambda: KNeighborsClassifier(3)),
}
REGRESSORS: dict[str, Maker] = {
    "linear": LinearRegression, "vectors": lambda: make_pipeline(StandardScaler(), SVR()),
    "boosted trees": lambda: GradientBoostingRegressor(n_estimators=20),
    "a forest": lambda: RandomForestRegressor(10, max_depth=6),
    "a deep forest": lambda: RandomForestRegressor(10, random_state=0),
}  # fmt: skip


def data(name: str) -> tuple[Any, Any]:
    x, y = (load_breast_cancer if name == "cancer" else load_digits)(return_X_y=True)
    x, y = x[:500].astype(np.float32), y[:500]
    if name == "few":
        return x[:, 10:16].astype(np.int64), y
    return x, NAMES[y] if name == "names" else y


def fitted(name: str) -> tuple[Any, Any, Any]:
    """A model of the table, its examples, and the same by uopc."""
    kind, make = CLASSIFIERS[name]
    x, y = data(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few steps
        model = make()
        model.fit(x, y)
    return model, x, uopc.onnx.load(converted(model, x), threads=1)


def converted(model: Any, x: Any) -> Any:
    return skl2onnx.to_onnx(model, x[:1], target_opset={"": 21, "ai.onnx.ml": 3})


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.few(2)
def test_classifiers(name: str) -> None:
    """Labels are the same; probabilities, as maps, to float32."""
    model, x, f = fitted(name)
    for part in (x[:1], x[1:98]):
        labels, scores = f(part).values()
        assert labels.tolist() == model.predict(part).tolist()
        if hasattr(model, "predict_proba"):
            wanted = model.predict_proba(part)
            assert [list(row) for row in scores] == [model.classes_.tolist()] * len(part)
            got = [list(row.values()) for row in scores]
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.few(2)
def test_regressors(name: str) -> None:
    x, y = load_diabetes(return_X_y=True)
    x = x.astype(np.float32)
    model = REGRESSORS[name]().fit(x, y)
    f = uopc.onnx.load(converted(model, x), threads=1)
    for part in (x[:1], x[1:60]):
        np.testing.assert_allclose(f(part)[:, 0], model.predict(part), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "PCA", "boosted trees", "a forest", "support vectors"])
def test_faster_than_scikit_learn(name: str) -> None:
    """One example, and five hundred, in turns."""
    model, x, f = fitted(name)
    theirs = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    for part in (x[:1], x):
        best = [float("inf")] * 2
        for _ in range(7):
            for i, call in enumerate((f.program, theirs)):
                begin = time.perf_counter()
                call(part)
                best[i] = min(best[i], time.perf_counter() - begin)
        assert best[0] < best[1]
