"""Ensembles of decision trees: each example walks down all trees at once, by gathers from tables.

    place = root of each tree                                      (examples, trees)
    depth times: place = next[2 * place + (x[feature[place]] <= threshold[place])]
    scores = sum over trees of weight[place]

Every comparison becomes `<=` (`tree_tables.py`). A leaf leads to itself. The tables are constants,
which are computed while the model is read. The code of a few levels is written out; deeper trees
repeat it, with the places in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.onnx.node import Node, dims
from uopc.onnx.ops.labels import ML, count_of_labels, labelled
from uopc.onnx.ops.linear import features
from uopc.onnx.ops.scores import both, transformed
from uopc.onnx.ops.tree_tables import MODES, Branch, Tables, tables
from uopc.onnx.registry import op
from uopc.onnx.values import Array
from uopc.tensor.loops.launches import iterated

_LEVELS = 8  # whose code is written out
_TOGETHER = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
# Leaf -> what it adds to which target.
Votes = Mapping[Any, list[tuple[int, float]]]


# ---------------------------------------------------------------- the walk
def _leaves(x: UOp, t: Tables, roots: Array) -> UOp:
    """(examples, trees): the number of the leaf that an example comes to in each tree."""
    rows, count = dims(x)[0], len(roots)
    if t.features.size and not 0 <= t.features.min() <= t.features.max() < dims(x)[1]:
        raise UserError(f"trees ask for feature {t.features.max()} of {dims(x)[1]}")
    thresholds, asked = uopc.constant(t.thresholds), uopc.constant(t.features)
    after, missing = uopc.constant(t.after), uopc.constant(t.missing)

    def level(place: UOp) -> UOp:
        value = x.gather(1, asked.take(place))
        holds = value <= thresholds.take(place)
        if t.missing.any():
            holds = holds | (value.ne(value) & missing.take(place))
        return after.take(place * 2 + holds.cast(place.dtype))

    def step(place: UOp) -> UOp:
        for _ in range(levels):
            place = level(place)
        return place

    steps = max(1, math.ceil(t.depth / _LEVELS))
    levels = math.ceil(t.depth / steps)  # a few more in all than the deepest tree has
    place = uopc.constant(roots).reshape(1, count).expand(rows, count)
    place = step(place) if steps == 1 else iterated(step, place, steps)
    return place - t.first_leaf


def _scores(x: UOp, t: Tables, votes: Votes, targets: int, together: str = "SUM") -> UOp:
    """(examples, targets): the votes of all trees together."""
    bad = [k for own in votes.values() for k, _ in own if not 0 <= k < targets]
    if bad:
        raise UserError(f"a leaf votes for target {bad[0]} of {targets}")
    kind = t.thresholds.dtype
    least = {"MIN": np.inf, "MAX": -np.inf}.get(together, 0.0)
    weights = np.full((len(t.leaf_keys), targets), least, kind)
    for row, key in enumerate(t.leaf_keys):
        for k, w in votes.get(key, ()):
            weights[row, k] = w + (weights[row, k] if np.isfinite(weights[row, k]) else 0)
    order = _by_target(t.targets, targets)
    if order is None or together in ("MIN", "MAX"):
        parts, axis = uopc.constant(weights).take(_leaves(x, t, t.roots), 0), 1
    else:  # each tree votes for one target: the trees of a target side by side, some of no votes
        alone = np.append(weights.sum(1), kind.type(0))
        leaf = _leaves(x, t, t.roots[np.maximum(order, 0)])
        leaf = uopc.where(uopc.constant(order < 0), len(t.leaf_keys), leaf)
        own = dims(x)[0], targets, len(order) // targets
        parts, axis = uopc.constant(alone).take(leaf).reshape(own), 2
    if together == "MIN":
        made = parts.min(axis)
    elif together == "MAX":
        made = parts.max(axis)
    else:
        made = parts.sum(axis)
        made = made / len(t.roots) if together == "AVERAGE" else made
    return uopc.where(made.isinf(), 0.0, made) if together in ("MIN", "MAX") else made


def _by_target(own: list[frozenset[int]], targets: int) -> Array | None:
    """The trees in the order of their targets, as many for each, filled up with -1; None if a tree
    has several targets, or if that would be many more trees."""
    if any([len(o) > 1 for o in own]):
        return None
    groups: list[list[int]] = [[] for _ in range(targets)]
    for number, o in enumerate(own):
        groups[min(o, default=0)].append(number)
    most = max(map(len, groups))
    if most * targets > 2 * len(own):
        return None
    return np.asarray([k for g in groups for k in [*g, *[-1] * (most - len(g))]], np.int32)


# ---------------------------------------------------------------- TreeEnsemble
@op("TreeEnsemble", domain=ML)
def tree_ensemble(n: Node) -> UOp:
    """Since version 5: branches and leaves are numbered apart; the result has the input's dtype."""
    x, splits = n.x(0), n.attr("nodes_splits", np.zeros(0, np.float32))
    modes = n.attr("nodes_modes", np.zeros(0, np.uint8))
    sets = _sets(n.attr("membership_values", np.zeros(0, np.float32)))
    columns = [
        _column(n, name, len(splits)) for name in
        ("nodes_featureids", "nodes_falsenodeids", "nodes_falseleafs", "nodes_truenodeids",
         "nodes_trueleafs")
    ]  # fmt: skip
    missing = n.attr("nodes_missing_value_tracks_true", None) or [0] * len(splits)
    branches = {}
    for i, (feature, no, no_leaf, yes, yes_leaf) in enumerate(zip(*columns, strict=True)):
        mode = _named(int(modes[i]), MODES)
        members = sets.pop(0) if mode == "BRANCH_MEMBER" and sets else np.zeros(0, splits.dtype)
        ends = ("leaf" if no_leaf else "node", no), ("leaf" if yes_leaf else "node", yes)
        branches["node", i] = Branch(mode, feature, splits[i], *ends, bool(missing[i]), members)
    weights, ids = n.attr("leaf_weights", np.zeros(0)), n.attr("leaf_targetids", [])
    votes = {("leaf", i): [(k, w)] for i, (k, w) in enumerate(zip(ids, weights, strict=True))}
    leaves = {key: frozenset({k for k, _ in own}) for key, own in votes.items()}
    t = tables(branches, leaves, [("node", r) for r in n.attr("tree_roots", [])], x.dtype)
    together = _named(n.attr("aggregate_function", 1), _TOGETHER)
    scores = _scores(x.cast(t.dtype), t, votes, n.attr("n_targets", 1), together)
    how = _named(n.attr("post_transform", 0), _TRANSFORMS)
    return transformed(scores, how).cast(x.dtype)


def _named(k: int, names: tuple[str, ...]) -> str:
    if not 0 <= k < len(names):
        raise UserError(f"the number {k} of one of {', '.join(names)}")
    return names[k]


def _sets(values: Array) -> list[Array]:
    """Sets of members, each of which ends with NaN."""
    ends = np.flatnonzero(np.isnan(values))
    return np.split(values, ends + 1) if len(ends) else [values]


def _column(n: Node, name: str, size: int) -> list[int]:
    found = list(n.attr(name, []))
    if len(found) != size:
        raise UserError(f"{name} has {len(found)} numbers for {size} nodes")
    return found


# ---------------------------------------------------------------- older versions
def _floats(n: Node, name: str) -> Array:
    """A list of floats, or the tensor that versions from 3 on have instead."""
    found: Array | None = n.attributes.get(f"{name}_as_tensor")
    if found is not None and found.size:
        return found.reshape(-1)
    return n.floats(name)


def _old(n: Node, kind: str, x: UOp) -> tuple[Tables, Votes]:
    """The trees and votes of a regressor (`kind`: target) or a classifier (class)."""
    values = _floats(n, "nodes_values")
    size = len(values)
    trees, ids, asked, yes, no = (
        _column(n, f"nodes_{name}", size)
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    modes: list[Any] = n.attr("nodes_modes", [])
    missing = n.attr("nodes_missing_value_tracks_true", None) or [0] * size
    keys = list(zip(trees, ids))
    if not len(modes) == len(missing) == size or len(set(keys)) < size:
        raise UserError(f"nodes_* do not belong together: {size} values, {len(set(keys))} nodes")
    branches, leaves = {}, []
    for i, (tree, key) in enumerate(zip(trees, keys)):
        if modes[i] == "LEAF":
            leaves.append(key)
        elif modes[i] not in MODES:
            raise UserError(f"the mode {modes[i]!r} of a node")
        else:
            ways = (tree, no[i]), (tree, yes[i])
            none = np.zeros(0, values.dtype)
            branches[key] = Branch(modes[i], asked[i], values[i], *ways, bool(missing[i]), none)
    reached = {k for b in branches.values() for k in (b.no, b.yes)}
    roots = {tree: key for tree, key in zip(trees, keys) if key not in reached}
    if reached <= set(keys) and not len(roots) == len(set(trees)) == len(set(keys) - reached):
        raise UserError("each tree must have one node that no other leads to")
    votes: dict[Any, list[tuple[int, float]]] = {}
    weights = _floats(n, f"{kind}_weights")
    columns = [_column(n, f"{kind}_{name}", len(weights)) for name in ("treeids", "nodeids", "ids")]
    for tree, node, k, w in zip(*columns, weights, strict=True):
        votes.setdefault((tree, node), []).append((k, w))
    targets = {key: frozenset({k for k, _ in votes.get(key, ())}) for key in leaves}
    t = tables(branches, targets, list(roots.values()), x.dtype)
    if t.made_of < size:
        raise UserError(f"{size - t.made_of} nodes of trees that no root leads to")
    return t, votes


@op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(n: Node) -> UOp:
    """(examples, targets): what the leaves of all trees add up to."""
    x, count = features(n), n.attr("n_targets", 1)
    t, votes = _old(n, "target", x)
    scores = _scores(x.cast(t.dtype), t, votes, count, n.attr("aggregate_function", "SUM"))
    base = _floats(n, "base_values")
    scores = scores + uopc.constant(base) if len(base) else scores
    return transformed(scores, n.attr("post_transform", "NONE")).cast(dtypes.float32)


@op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(n: Node) -> Any:
    """The label of the best class, and all scores.

    If all votes of two classes are for one, they are the second's: from 0 to 1 if none is negative,
    else on both sides of 0.
    """
    x, how, count = features(n), n.attr("post_transform", "NONE"), count_of_labels(n)
    t, votes = _old(n, "class", x)
    x, base = x.cast(t.dtype), _floats(n, "base_values")
    named = {k for own in votes.values() for k, _ in own}
    if count > 2 or len(named) > 1:
        scores = _scores(x, t, votes, count, "SUM")
        scores = scores + uopc.constant(base) if len(base) else scores
        best = labelled(scores.argmax(1), n)
        return best, transformed(scores, how).cast(dtypes.float32)
    alone = {key: [(0, w) for _, w in own] for key, own in votes.items()}
    score = _scores(x, t, alone, 1, "SUM")
    score = score + float(base[-1]) if len(base) else score
    share = all([w >= 0 for own in votes.values() for _, w in own])
    is_second = (score[:, 0] > (0.5 if share else 0)).cast(dtypes.int32)
    if share and how in ("NONE", "PROBIT"):
        scores = uopc.cat(1 - score, score, axis=1)
    else:
        scores = both(score)
    return labelled(is_second, n), transformed(scores, how).cast(dtypes.float32)
