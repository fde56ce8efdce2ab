"""The operators of ai.onnx.ml against ONNX's evaluator, and pipelines of scikit-learn."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import uopc.onnx
from uopc.errors import Unsupported, UserError

ML = "ai.onnx.ml"
KINDS = {
    "f": TensorProto.FLOAT, "d": TensorProto.DOUBLE, "i": TensorProto.INT64,
    "s": TensorProto.STRING, "?": TensorProto.UNDEFINED,
}  # fmt: skip


def model(
    op: str, inputs: str = "f", outputs: int = 1, features: int | None = 3, version: int = 3,
    **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """One operator of inputs (n, features)."""
    given = [
        helper.make_tensor_value_info(f"x{i}", KINDS[k], ["n", features])
        for i, k in enumerate(inputs)
    ]  # fmt: skip
    out = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, [g.name for g in given], out, domain=ML, **attributes)
    made = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in out]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, version)]
    return helper.make_model(helper.make_graph([node], "g", given, made), opset_imports=opsets)


def results(m: onnx.ModelProto, *arrays: Any) -> list[Any]:
    got = uopc.onnx.load(m)(*arrays)
    return list(got.values()) if isinstance(got, dict) else [got]


def check(m: onnx.ModelProto, *arrays: Any, rtol: float = 1e-5) -> None:
    """As ONNX's evaluator has it."""
    named = dict(zip([i.name for i in m.graph.input], arrays))
    for got, wanted in zip(
        results(m, *arrays), ReferenceEvaluator(m).run(None, named), strict=True
    ):
        if wanted.dtype.kind in "OU":
            assert got.tolist() == wanted.tolist()
        else:
            np.testing.assert_allclose(got, wanted, rtol, 1e-6)


def examples(n: int = 7, features: int = 3, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((n, features)).astype(np.float32)


# ---------------------------------------------------------------- features
@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("width", [1, 3])
def test_scaler(n: int, width: int) -> None:
    offset, scale = [0.5, -1.0, 2.0][:width], [2.0, 0.25, -3.0][:width]
    check(model("Scaler", offset=offset, scale=scale), examples(n))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = examples()
    x[2] = 0
    check(model("Normalizer", norm=norm), x)
    with pytest.raises(UserError, match="norm must be MAX, L1 or L2, got 'L3'"):
        uopc.onnx.load(model("Normalizer", norm="L3"))


def test_imputer() -> None:
    x = examples()
    x[1, 1] = x[3, 0] = np.nan
    check(model("Imputer", imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=np.nan), x)
    x[1, 1] = x[3, 0] = 5
    check(model("Imputer", imputed_value_floats=[9.0], replaced_value_float=5.0), x)
    k = np.array([[0, 1, 2], [2, 0, 0]])
    check(model("Imputer", "i", imputed_value_int64s=[7, 8, 9], replaced_value_int64=0), k)
    with pytest.raises(UserError, match="imputed_value_floats is missing"):
        uopc.onnx.load(model("Imputer"))


def test_binarizer_and_feature_vectorizer() -> None:
    x, y = examples(), examples(seed=1)
    check(model("Binarizer", threshold=0.25), x)
    (got,) = results(model("FeatureVectorizer", "fi"), x, y.astype(np.int64))
    np.testing.assert_array_equal(got, np.concatenate([x, y.astype(np.int64)], 1))


# ---------------------------------------------------------------- labels
ENCODERS = {
    "ints to ints": ("i", {"keys_int64s": [5, -2, 0, 5], "values_int64s": [1, 2, 3, 4]}),
    "ints to floats": ("i", {"keys_int64s": [1, 2], "values_floats": [0.5, 2.5]}),
    "floats to ints": ("f", {"keys_floats": [1.0, np.nan, -0.5], "values_int64s": [10, 11, 12],
                             "default_int64": 99}),
    "ints to strings": ("i", {"keys_int64s": [1, 0], "values_strings": ["one", "none"],
                              "default_string": "many"}),
    "no keys": ("i", {"keys_int64s": [], "values_int64s": []}),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_label_encoder(name: str) -> None:
    """Keys that come twice, and NaN; the last counts, as the text of ONNX says."""
    kind, given = ENCODERS[name]
    x = np.array([[5, 1, 2], [-2, 0, 7], [1, -0.5, np.nan if kind == "f" else 5]])
    x = x.astype(np.float32 if kind == "f" else np.int64)
    (keys,) = [list(v) for k, v in given.items() if k.startswith("keys")]
    (values,) = [list(v) for k, v in given.items() if k.startswith("values")]
    table = {str(float(k)): v for k, v in zip(keys, values)}
    (default,) = [v for k, v in given.items() if k.startswith("default")] or [-1]
    default = -0.0 if "floats" in name.split(" to ")[-1] else default
    filled = {"keys_int64s": [3], "values_int64s": [3]} if not keys else given
    (got,) = results(model("LabelEncoder", kind, **filled), x)
    assert got.tolist() == [[table.get(str(float(v)), default) for v in row] for row in x]


def test_tables_between_strings_and_numbers() -> None:
    m = model("CategoryMapper", "i", cats_int64s=[4, 5], cats_strings=["four", "five"])
    assert results(m, np.array([[5, 4, 3]]))[0].tolist() == [["five", "four", "_Unused"]]
    m = model("LabelEncoder", "i", version=1, classes_strings=["a", "b"])
    assert results(m, np.array([[1, 0, 2]]))[0].tolist() == [["b", "a", "_Unused"]]
    m = model("OneHotEncoder", "i", features=1, cats_int64s=[3, 1, 7])
    check(m, np.array([[1], [7], [2], [3]]))
    with pytest.raises(UserError, match="keys as values, got 2 and 1"):
        uopc.onnx.load(model("LabelEncoder", "i", keys_int64s=[1, 2], values_int64s=[3]))
    with pytest.raises(UserError, match="expected strings"):
        uopc.onnx.load(model("LabelEncoder", "i", keys_strings=["a"], values_int64s=[3]))


def test_maps() -> None:
    x = examples(2)
    (got,) = results(model("ZipMap", classlabels_strings=["a", "b", "c"]), x)
    assert got == [dict(zip("abc", row)) for row in x.tolist()]
    with pytest.raises(UserError, match="2 labels do not fit the shape"):
        uopc.onnx.load(model("ZipMap", classlabels_int64s=[0, 1]))
    m = model("ZipMap", classlabels_int64s=[7, 5, 9])
    m.graph.node.append(helper.make_node(
        "DictVectorizer", ["y0"], ["v"], domain=ML, int64_vocabulary=[9, 4, 7]))  # fmt: skip
    m.graph.output[0].name = "v"
    np.testing.assert_array_equal(results(m, x)[0], np.stack([x[:, 2], x[:, 0] * 0, x[:, 0]], 1))
    with pytest.raises(Unsupported, match="a map made by ZipMap"):
        uopc.onnx.load(model("DictVectorizer", int64_vocabulary=[1]))


# ---------------------------------------------------------------- linear models
POSTS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


@pytest.mark.parametrize("post", POSTS)
def test_linear_classifier(post: str) -> None:
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal(12) * 0.05).tolist()
    given = {"intercepts": [0.4, 0.5, 0.3, 0.45], "post_transform": post}
    m = model("LinearClassifier", outputs=2, coefficients=weights, classlabels_ints=[9, 5, 7, 1],
              **given)  # fmt: skip
    check(m, examples(), rtol=1e-3 if post == "PROBIT" else 1e-5)  # ONNX's cancels near 0
    names = ["a", "b", "c", "d"]
    m = model("LinearClassifier", "d", 2, coefficients=weights, classlabels_strings=names, **given)
    check(m, examples().astype(np.float64), rtol=1e-3 if post == "PROBIT" else 1e-5)


@pytest.mark.parametrize("post", POSTS[:3])
def test_linear_classifier_of_one_score(post: str) -> None:
    m = model("LinearClassifier", outputs=2, coefficients=[0.5, -1.0, 2.0], intercepts=[0.25],
              classlabels_ints=[3, 4], post_transform=post)  # fmt: skip
    check(m, examples())


def test_linear_regressor() -> None:
    weights = examples(2).reshape(-1).tolist()
    check(
        model("LinearRegressor", coefficients=weights, intercepts=[1.0, 2.0], targets=2), examples()
    )
    (got,) = results(model("LinearRegressor", coefficients=weights[:3], targets=1), examples())
    np.testing.assert_allclose(got, examples() @ np.reshape(weights[:3], (3, 1)), rtol=1e-5)
    with pytest.raises(UserError, match="for 3 scores"):
        uopc.onnx.load(model("LinearRegressor", coefficients=weights, targets=3))


# ---------------------------------------------------------------- support vectors
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@pytest.mark.parametrize("kernel", KERNELS)
def test_svm_regressor(kernel: str) -> None:
    rng = np.random.default_rng(1)
    given = {"coefficients": rng.standard_normal(5).tolist(), "kernel_params": [0.3, 0.5, 2.0],
             "kernel_type": kernel, "n_supports": 5, "rho": [0.25],
             "support_vectors": rng.standard_normal(15).tolist()}  # fmt: skip
    check(model("SVMRegressor", **given), examples(), rtol=2e-5)
    check(model("SVMRegressor", one_class=1, **given), examples())


def vectors(per_class: list[int], kernel: str, **more: Any) -> dict[str, Any]:
    rng, classes, total = np.random.default_rng(2), len(per_class), sum(per_class)
    pairs = classes * (classes - 1) // 2
    return {
        "coefficients": rng.standard_normal((classes - 1) * total).tolist(),
        "kernel_params": [0.3, 0.5, 2.0], "kernel_type": kernel, "vectors_per_class": per_class,
        "rho": rng.standard_normal(pairs).tolist(),
        "support_vectors": rng.standard_normal(total * 3).tolist(),
        "classlabels_ints": list(range(10, 10 + classes)), **more,
    }  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
def test_svm_classifier(kernel: str) -> None:
    check(model("SVMClassifier", outputs=2, **vectors([2, 1, 3, 2], kernel)), examples(), rtol=2e-5)


@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_of_pairs(classes: int) -> None:
    pairs = classes * (classes - 1) // 2
    rng = np.random.default_rng(3)
    probs = (-2 - rng.random(pairs)).tolist(), rng.standard_normal(pairs).tolist()
    given = vectors([2, 1, 3, 2][:classes], "RBF", prob_a=probs[0], prob_b=probs[1])
    m = model("SVMClassifier", outputs=2, **given)
    x = examples()
    labels, got = results(m, x)
    assert labels.tolist() == ReferenceEvaluator(m).run(None, {"x0": x})[0].tolist()
    del given["prob_a"], given["prob_b"]
    scores = ReferenceEvaluator(model("SVMClassifier", outputs=2, **given)).run(None, {"x0": x})[1]
    for row, p in zip(scores[:, 1:] if classes == 2 else scores, got, strict=True):
        np.testing.assert_allclose(p, coupled(row, *probs, classes), atol=3e-3)
    np.testing.assert_allclose(got.sum(1), 1, rtol=1e-6)


def coupled(scores: Any, a: Any, b: Any, classes: int) -> Any:
    """The p of sum 1 that minimises sum of (r_ji p_i - r_ij p_j)^2, by its linear equations."""
    r = np.zeros((classes, classes))
    for k, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        r[i, j] = 1 / (1 + np.exp(scores[k] * a[k] + b[k]))
        r[j, i] = 1 - r[i, j]
    q = np.diag((r**2).sum(0)) - r.T * r * (1 - np.eye(classes))
    system = np.block([[q, np.ones((classes, 1))], [np.ones((1, classes)), np.zeros((1, 1))]])
    return np.linalg.solve(system, np.append(np.zeros(classes), 1))[:classes]


# ---------------------------------------------------------------- trees
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def forest(
    modes: tuple[str, ...], trees: int, depth: int, ids: str, seed: int = 0
) -> dict[str, Any]:
    """Random trees, whose thresholds are numbers of the examples; leaves vote for one or two."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    votes: list[tuple[int, int, int, float]] = []

    def grow(tree: int, level: int) -> int:
        at = len([r for r in rows if r[0] == tree])
        rows.append(())
        place = len(rows) - 1
        if level == depth or (level and rng.random() < 0.2):
            rows[place] = (tree, at, "LEAF", 0, 0.0, 0, 0, 0)
            targets = (
                rng.permutation(3)[: 1 + (ids == "several")] if ids != "by tree" else [tree % 3]
            )
            votes.extend([(tree, at, int(k), float(rng.integers(-8, 9)) / 8) for k in targets])
            return at
        rows[place] = (tree,)
        yes, no = grow(tree, level + 1), grow(tree, level + 1)
        value = float(rng.integers(-4, 5)) / 4
        mode, feature = modes[rng.integers(len(modes))], int(rng.integers(3))
        rows[place] = (tree, at, mode, feature, value, yes, no, int(rng.integers(2)))
        return at

    for tree in range(trees):
        grow(tree, 0)
    names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids",
             "missing_value_tracks_true")  # fmt: skip
    found: dict[str, Any] = {f"nodes_{name}": list(c) for name, c in zip(names, zip(*rows))}
    for name, c in zip(("treeids", "nodeids", "ids", "weights"), zip(*votes)):
        found[f"target_{name}"] = list(c)
    return found


def walked(f: dict[str, Any], x: Any, targets: int, together: str = "SUM") -> Any:
    """Example after example, tree after tree."""
    compare = dict(zip(MODES, (
        np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal
    )))  # fmt: skip
    at = {(t, n): i for i, (t, n) in enumerate(zip(f["nodes_treeids"], f["nodes_nodeids"]))}
    trees = sorted(set(f["nodes_treeids"]))
    each: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for t, n, k, w in zip(*[f[f"target_{c}"] for c in ("treeids", "nodeids", "ids", "weights")]):
        each.setdefault((t, n), []).append((k, w))
    out = np.zeros((len(x), targets))
    for row, example in enumerate(x):
        parts: list[list[float]] = [[] for _ in range(targets)]
        for tree in trees:
            i = at[tree, 0]
            while f["nodes_modes"][i] != "LEAF":
                v = example[f["nodes_featureids"][i]]
                holds = compare[f["nodes_modes"][i]](v, x.dtype.type(f["nodes_values"][i]))
                holds = bool(f["nodes_missing_value_tracks_true"][i]) if np.isnan(v) else holds
                i = at[tree, f["nodes_truenodeids" if holds else "nodes_falsenodeids"][i]]
            for k, w in each.get((tree, f["nodes_nodeids"][i]), []):
                parts[k].append(w)
        join = {"SUM": sum, "MIN": min, "MAX": max, "AVERAGE": lambda p: sum(p) / len(trees)}[
            together
        ]
        out[row] = [join(p) if p else 0 for p in parts]
    return out


def grid(dtype: Any) -> Any:
    """Examples on the thresholds, beside them, and missing."""
    rng = np.random.default_rng(5)
    x = (rng.integers(-4, 5, (40, 3)) / 4).astype(dtype)
    x[10:20] = np.nextafter(x[10:20], dtype(9))
    x[20:30] = np.nextafter(x[20:30], dtype(-9))
    x[rng.random(x.shape) < 0.1] = np.nan
    x[0], x[1], x[2] = np.inf, -np.inf, -0.0
    return x


@pytest.mark.parametrize("ids", ["one", "several", "by tree"])
@pytest.mark.parametrize("modes", [*[(m,) for m in MODES], MODES], ids=lambda m: "+".join(m)[:12])
@pytest.mark.few(3)
def test_trees(modes: tuple[str, ...], ids: str) -> None:
    f = forest(modes, 7, 4, ids)
    x = grid(np.float32)
    m = model("TreeEnsembleRegressor", n_targets=3, **f)
    np.testing.assert_allclose(results(m, x)[0], walked(f, x, 3), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("together", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees_together(together: str) -> None:
    f = forest(("BRANCH_LEQ", "BRANCH_GT"), 5, 3, "several", seed=1)
    x = grid(np.float32)[3:]
    m = model("TreeEnsembleRegressor", n_targets=4, aggregate_function=together, **f)
    np.testing.assert_allclose(results(m, x)[0], walked(f, x, 4, together), rtol=1e-6, atol=1e-6)


def test_trees_in_double_precision() -> None:
    """A threshold of float32 is compared with a double as it is."""
    f = forest(MODES, 5, 3, "one", seed=2)
    x = grid(np.float64)
    m = model("TreeEnsembleRegressor", "d", n_targets=3, **f)
    np.testing.assert_allclose(results(m, x)[0], walked(f, x, 3), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_tree_classifier(classes: int, post: str) -> None:
    """Two classes with votes for one of them, and three; of ONNX's evaluator."""
    f = forest(("BRANCH_LEQ",), 6, 3, "one", seed=3)
    f = {k.replace("target_", "class_"): v for k, v in f.items()}
    if classes == 2:
        f["class_ids"] = [0] * len(f["class_ids"])
    f["nodes_missing_value_tracks_true"] = [0] * len(f["nodes_treeids"])
    m = model("TreeEnsembleClassifier", outputs=2, post_transform=post,
              classlabels_int64s=[4, 6, 8][:classes], **f)  # fmt: skip
    x = grid(np.float32)[3:]
    x = x[~np.isnan(x).any(1)]
    labels, scores = results(m, x)
    wanted = ReferenceEvaluator(m).run(None, {"x0": x})
    if classes == 2 and post == "NONE":  # ONNX Runtime's rule: -s and s, if a vote is negative
        np.testing.assert_allclose(scores, np.stack([-wanted[1][:, 1], wanted[1][:, 1]], 1), 1e-5)
        assert labels.tolist() == np.where(scores[:, 1] > 0, 6, 4).tolist()
        return
    np.testing.assert_allclose(scores, wanted[1], 1e-5, 1e-6)
    assert labels.tolist() == wanted[0].tolist()


BROKEN = {
    "a circle": ({"nodes_truenodeids": [0, 0, 0]}, "2 nodes of trees are not reached from a root"),
    "a missing node": ({"nodes_truenodeids": [7, 0, 0]}, r"from the node \(0, 0\) to a node"),
    "a feature that is none": ({"nodes_featureids": [9, 0, 0]}, "feature 9, but x has 3"),
    "a target that is none": ({"target_ids": [0, 5]}, "votes for target 5, but there are 1"),
    "lists of other lengths": ({"nodes_nodeids": [0, 1]}, "nodes_nodeids must have 3 numbers"),
    "one node twice": ({"nodes_nodeids": [0, 1, 1]}, "must describe each node once"),
    "a mode that is none": ({"nodes_modes": ["BRANCH_X", "LEAF", "LEAF"]}, "mode 'BRANCH_X'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_trees_that_are_none(name: str) -> None:
    change, message = BROKEN[name]
    f = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }  # fmt: skip
    with pytest.raises(UserError, match=message):
        uopc.onnx.load(model("TreeEnsembleRegressor", n_targets=1, **(f | change)))


def ensemble(seed: int, dtype: Any) -> onnx.ModelProto:
    """Trees of version 5, with sets of members other than 0, at which ONNX's evaluator ends."""
    rng = np.random.default_rng(seed)
    nodes: list[list[Any]] = []  # feature, split, mode, yes, no: numbers, and whether of leaves
    leaves: list[tuple[float, int]] = []
    sets: dict[int, list[float]] = {}

    def grow(level: int) -> tuple[int, int]:
        if level == 4 or (level and rng.random() < 0.2):
            leaves.append((float(rng.integers(-8, 9)) / 8, int(rng.integers(3))))
            return len(leaves) - 1, 1
        at = len(nodes)
        nodes.append([int(rng.integers(3)), float(rng.integers(-4, 5)) / 4, int(rng.integers(7))])
        if nodes[at][2] == 6:
            sets[at] = [float(v) / 4 for v in rng.choice([-4, -3, -2, -1, 1, 2, 3, 4], 3)]
        nodes[at] += [grow(level + 1), grow(level + 1)]
        return at, 0

    roots = [grow(0)[0] for _ in range(4)]
    values = [v for at in sorted(sets) for v in (*sets[at], np.nan)]
    made = {
        "nodes_featureids": [r[0] for r in nodes],
        "nodes_splits": numpy_helper.from_array(np.array([r[1] for r in nodes], dtype)),
        "nodes_modes": numpy_helper.from_array(np.array([r[2] for r in nodes], np.uint8)),
        "nodes_truenodeids": [yes[0] for *_, yes, _ in nodes],
        "nodes_trueleafs": [yes[1] for *_, yes, _ in nodes],
        "nodes_falsenodeids": [no[0] for *_, no in nodes],
        "nodes_falseleafs": [no[1] for *_, no in nodes],
        "membership_values": numpy_helper.from_array(np.array(values, dtype)),
        "leaf_weights": numpy_helper.from_array(np.array([w for w, _ in leaves], dtype)),
        "leaf_targetids": [k for _, k in leaves], "tree_roots": roots, "n_targets": 3,
    }  # fmt: skip
    kind = "d" if dtype is np.float64 else "f"
    return model("TreeEnsemble", kind, version=5, **made)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.few(3)
def test_ensembles_with_sets(seed: int, dtype: Any) -> None:
    """As ONNX's evaluator has them."""
    m, x = ensemble(seed, dtype), grid(dtype)
    x = x[~np.isnan(x).any(1)]
    check(m, x)


def chain(depth: int) -> dict[str, Any]:
    """A tree whose branches lead to one more branch or to a leaf: it tells x < k / 8 for k < depth,
    and two trees of one and no branches."""
    ids = list(range(2 * depth + 1))
    ways = [*range(1, depth + 1), *[0] * (depth + 1)]
    return {
        "nodes_treeids": [0] * len(ids) + [1, 1, 1, 2], "nodes_nodeids": [*ids, 0, 1, 2, 0],
        "nodes_featureids": [0] * len(ids) + [1, 0, 0, 0],
        "nodes_modes": ["BRANCH_GT"] * depth + ["LEAF"] * (depth + 1)
        + ["BRANCH_LEQ", "LEAF", "LEAF", "LEAF"],
        "nodes_values": [k / 8 for k in ids] + [0.5, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [*ways, 1, 0, 0, 0],
        "nodes_falsenodeids": [*[w + depth for w in ways[:depth]], *[0] * (depth + 1), 2, 0, 0, 0],
        "target_treeids": [0] * (depth + 1) + [1, 1, 2],
        "target_nodeids": [*range(depth, 2 * depth + 1), 1, 2, 0],
        "target_ids": [0] * (depth + 4),
        "target_weights": [float(depth), *map(float, range(depth)), 0.5, 0.25, 1000.0],
    }  # fmt: skip


@pytest.mark.parametrize("depth", [8, 9, 17, 300, 5000])
@pytest.mark.few(2)
def test_deep_trees(depth: int) -> None:
    """Beyond eight levels they are a loop; a shallow tree stays at its leaf meanwhile."""
    m = model("TreeEnsembleRegressor", n_targets=1, **chain(depth))
    x = np.zeros((41, 3), np.float32)
    x[:, 0] = np.append(np.linspace(-1, depth / 8 + 1, 40), np.nan)
    x[::2, 1] = 1
    passed = np.ceil(np.clip(np.nan_to_num(x[:, 0], nan=0), 0, depth) * 8).clip(0, depth)
    wanted = passed + np.where(x[:, 1] <= 0.5, 0.5, 0.25) + 1000
    f = uopc.onnx.load(m, threads=1)
    np.testing.assert_array_equal(f(x)[:, 0], wanted.astype(np.float32))
    assert len(f.program.kernels) <= 3
    np.testing.assert_array_equal(f(x[:1])[:, 0], wanted[:1].astype(np.float32))


def test_a_deep_tree_without_rows_or_derivative() -> None:
    """No examples give no scores; what a forest adds to a loss does not change with x."""
    m = model("TreeEnsembleRegressor", n_targets=1, **chain(20))
    g = uopc.onnx.graph(m, dims={"n": (0, 8)})
    (x,), (y,) = g.inputs.values(), g.outputs.values()
    assert uopc.compile(y, inputs=[x])(np.zeros((0, 3), np.float32)).shape == (0, 1)
    loss, given = (y * x[:, :1]).sum(), np.ones((4, 3), np.float32)
    slope, scores = uopc.compile([uopc.grad(loss, x), y], inputs=[x])(given)
    np.testing.assert_array_equal(slope, scores * [[1, 0, 0]])


# ---------------------------------------------------------------- n-grams
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 2])
def test_ngrams(mode: str, skips: int) -> None:
    pool, columns = [1, 2, 3, 1, 2, 2, 3, 1, 2, 3], [4, 0, 2, 1, 5, 3]
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=1, max_gram_length=3,
        max_skip_count=skips, pool_int64s=pool, ngram_counts=[0, 3, 7], ngram_indexes=columns,
        weights=[0.5, 2.0, 3.0, 1.0, 4.0, 0.25])  # fmt: skip
    given = [helper.make_tensor_value_info("x", TensorProto.INT64, ["n", 9])]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    m = helper.make_model(helper.make_graph([node], "g", given, out),
                          opset_imports=[helper.make_opsetid("", 18)])  # fmt: skip
    x = np.random.default_rng(0).integers(0, 5, (6, 9))
    wanted = np.zeros((6, 6))
    grams = [pool[i : i + 1] for i in range(3)] + [pool[3:5], pool[5:7], pool[7:]]
    for row, line in enumerate(x.tolist()):
        for column, gram in zip(columns, grams):
            for step in range(1, skips + 2 if len(gram) > 1 else 2):
                starts = range(len(line) - (len(gram) - 1) * step)
                wanted[row, column] += sum(
                    [line[i : i + len(gram) * step : step] == gram for i in starts]
                )
    weights = np.empty(6)
    weights[columns] = [0.5, 2.0, 3.0, 1.0, 4.0, 0.25]
    wanted = np.minimum(wanted, 1) if mode == "IDF" else wanted
    wanted = wanted if mode == "TF" else wanted * weights
    np.testing.assert_allclose(results(m, x)[0], wanted, rtol=1e-6)
