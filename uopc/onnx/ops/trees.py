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
from typing import Any, NamedTuple

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.onnx.node import Node, dims
from uopc.onnx.ops.labels import ML, count_of_labels, labelled
from uopc.onnx.ops.linear import features
from uopc.onnx.ops.scores import both, transformed
from uopc.onnx.ops.tree_tables import LEAF, MODES, Nodes, Tables, tables
from uopc.onnx.registry import op
from uopc.onnx.values import Array
from uopc.tensor.loops.launches import iterated

_LEVELS = 8  # whose code is written out
_TOGETHER = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


class Votes(NamedTuple):
    """The weights that leaves add to scores, and the target of each weight."""

    node: Array
    target: Array
    weight: Array


# ---------------------------------------------------------------- the walk
def _leaves(x: UOp, t: Tables, roots: Array) -> UOp:
    """(examples, trees): the number of the leaf that each example reaches in each tree."""
    rows, count = dims(x)[0], len(roots)
    if t.features.size and not 0 <= t.features.min() <= t.features.max() < dims(x)[1]:
        raise UserError(
            f"the trees read feature {t.features.max()}, but x has {dims(x)[1]} features"
        )
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
    """(examples, targets): the votes of all trees, combined."""
    if targets < 1:
        raise UserError(f"an ensemble must have at least one target, got {targets}")
    bad = votes.target[(votes.target < 0) | (votes.target >= targets)]
    if len(bad):
        raise UserError(f"a leaf votes for target {bad[0]}, but there are {targets} targets")
    kind = t.thresholds.dtype
    weights = np.zeros((t.leaves, targets), kind)
    at = t.leaf[votes.node], votes.target
    np.add.at(weights, at, votes.weight.astype(kind))
    order = _by_target(t, votes, targets)
    if order is None or together in ("MIN", "MAX"):
        if together in ("MIN", "MAX"):
            silent = np.ones(weights.shape, np.bool_)
            silent[at] = False
            weights[silent] = np.inf if together == "MIN" else -np.inf
        parts, axis = uopc.constant(weights).take(_leaves(x, t, t.roots), 0), 1
    else:  # each tree votes for one target: the trees of a target side by side, some of no votes
        alone = np.append(weights.sum(1), kind.type(0))
        leaf = _leaves(x, t, t.roots[np.maximum(order, 0)])
        leaf = uopc.where(uopc.constant(order < 0), t.leaves, leaf)
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


def _by_target(t: Tables, votes: Votes, targets: int) -> Array | None:
    """Order the trees by their targets, padded with -1 to the same count per target. None if a tree
    has several targets, or if the padding would more than double the count."""
    if t.tree is None:
        return None
    heard = t.reached[votes.node]
    tree, wanted, count = t.tree[votes.node][heard], votes.target[heard], len(t.roots)
    own = np.zeros(count, np.int64)
    own[tree] = wanted
    if (own[tree] != wanted).any():
        return None
    each = np.bincount(own, minlength=targets)
    most = int(each.max())
    if most * targets > 2 * count:
        return None
    trees = np.argsort(own, kind="stable")
    row = own[trees]
    order = np.full((targets, most), -1, np.int32)
    order[row, np.arange(count) - (np.cumsum(each) - each)[row]] = trees
    return order.reshape(-1)


# ---------------------------------------------------------------- TreeEnsemble
@op("TreeEnsemble", domain=ML)
def tree_ensemble(n: Node) -> UOp:
    """Version 5: branches and leaves have separate numbers; the result has the input's dtype."""
    x, splits = n.x(0), n.attr("nodes_splits", np.zeros(0, np.float32))
    modes = n.attr("nodes_modes", np.zeros(0, np.uint8))
    sets = _sets(n.attr("membership_values", np.zeros(0, np.float32)))
    columns = [
        _column(n, name, len(splits)) for name in
        ("nodes_featureids", "nodes_falsenodeids", "nodes_falseleafs", "nodes_truenodeids",
         "nodes_trueleafs")
    ]  # fmt: skip
    feature, no, no_leaf, yes, yes_leaf = columns
    weights, ids = np.asarray(n.attr("leaf_weights", [])), n.attr("leaf_targetids", [])
    size, leaves = len(splits), len(ids)
    if len(modes) != size or len(weights) != leaves:
        raise UserError(
            f"{len(modes)} modes and {len(weights)} weights for {size} nodes and {leaves} leaves"
        )
    mode = np.asarray(modes, np.int64)
    for m in mode[(mode < 0) | (mode >= len(MODES))]:
        raise UserError(f"a node has the unknown mode {m}")
    members = dict(zip(np.flatnonzero(mode == MODES.index("BRANCH_MEMBER")).tolist(), sets))
    none = np.zeros(leaves, np.int64)
    nodes = Nodes(
        np.append(mode, none + LEAF), np.append(feature, none), np.append(splits, none),
        np.append(_numbered(no, no_leaf, size, leaves), none),
        np.append(_numbered(yes, yes_leaf, size, leaves), none),
        np.append(_missing(n, size), none != 0),
        np.asarray(n.attr("tree_roots", []), np.int64), members,
    )  # fmt: skip
    votes = Votes(size + np.arange(leaves), np.asarray(ids, np.int64), weights)
    t = tables(nodes, x.dtype)
    together = _attribute_name(n.attr("aggregate_function", 1), _TOGETHER)
    scores = _scores(x.cast(t.dtype), t, votes, n.attr("n_targets", 1), together)
    how = _attribute_name(n.attr("post_transform", 0), _TRANSFORMS)
    return transformed(scores, how).cast(x.dtype)


def _attribute_name(k: int, names: tuple[str, ...]) -> str:
    if not 0 <= k < len(names):
        raise UserError(
            f"expected a number below {len(names)} for one of {', '.join(names)}, got {k}"
        )
    return names[k]


def _numbered(way: Array, to_leaf: Array, size: int, leaves: int) -> Array:
    """Number leaves after the other nodes; -1 for a node that does not exist."""
    most = np.where(to_leaf != 0, leaves, size)
    return np.where((way >= 0) & (way < most), way + size * (to_leaf != 0), -1)


def _sets(values: Array) -> list[Array]:
    """Split the members into sets; NaN ends each set."""
    ends = np.flatnonzero(np.isnan(values))
    return np.split(values, ends + 1) if len(ends) else [values]


def _column(n: Node, name: str, size: int) -> Array:
    found = np.asarray(n.attr(name, []), np.int64)
    if len(found) != size:
        raise UserError(f"{name} must have {size} numbers, one per node, got {len(found)}")
    return found


def _missing(n: Node, size: int) -> Array:
    """True for each branch that NaN satisfies; False for all without the attribute."""
    name = "nodes_missing_value_tracks_true"
    return _column(n, name, size) != 0 if n.attr(name, None) else np.zeros(size, np.bool_)


# ---------------------------------------------------------------- older versions
def _floats(n: Node, name: str) -> Array:
    """Return a list of floats, which may be a tensor from version 3 on."""
    found: Array | None = n.attributes.get(f"{name}_as_tensor")
    if found is not None and found.size:
        return found.reshape(-1)
    return n.floats(name)


class _TreeNodeKeys:
    """Numbers pairs of a tree and a node."""

    def __init__(self, trees: Array, nodes: Array) -> None:
        self._trees, self._nodes = np.unique(trees), np.unique(nodes)
        keys = self._key(trees, nodes)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        self.different = len(np.unique(keys))

    def numbers(self, trees: Array, nodes: Array) -> Array:
        """The number of each pair; -1 for an unknown pair."""
        keys = self._key(trees, nodes)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where((self._sorted[at] == keys) & (keys >= 0), self._order[at], -1)

    def _key(self, trees: Array, nodes: Array) -> Array:
        key = np.zeros(len(trees), np.int64)
        for known, asked in ((self._trees, trees), (self._nodes, nodes)):
            at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            key = np.where((known[at] == asked) & (key >= 0), key * len(known) + at, -1)
        return key


def _old(n: Node, kind: str, x: UOp) -> tuple[Tables, Votes]:
    """The trees and votes of a regressor (`kind`: target) or a classifier (class)."""
    values = _floats(n, "nodes_values")
    size = len(values)
    trees, ids, asked, yes, no = (
        _column(n, f"nodes_{name}", size)
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    modes, missing = n.attr("nodes_modes", []), _missing(n, size)
    if not size:
        raise UserError("an ensemble must have at least one tree")
    keys = _TreeNodeKeys(trees, ids)
    if len(modes) != size or keys.different < size:
        raise UserError(
            f"nodes_* must describe each node once: {size} values, {keys.different} nodes"
        )
    known = {"LEAF": LEAF} | {m: k for k, m in enumerate(MODES)}
    for name in dict.fromkeys(modes):
        if name not in known:
            raise UserError(f"a node has the unknown mode {name!r}")
    mode = np.asarray([known[m] for m in modes], np.int64)
    branch = mode != LEAF
    no, yes = (np.where(branch, keys.numbers(trees, way), -1) for way in (no, yes))
    led_to = np.zeros(size, np.bool_)
    ways = np.concatenate([no[branch], yes[branch]])
    led_to[ways[ways >= 0]] = True
    roots = np.flatnonzero(~led_to)
    if (ways >= 0).all() and not np.array_equal(np.sort(trees[roots]), np.unique(trees)):
        raise UserError("each tree must have one root, a node that no other node leads to")
    nodes = Nodes(
        mode, asked, values, no, yes, missing, roots, {},
        lambda i: (int(trees[i]), int(ids[i])),
    )  # fmt: skip
    t = tables(nodes, x.dtype)
    if not t.reached.all():
        raise UserError(f"{int((~t.reached).sum())} nodes of trees are not reached from a root")
    weights = _floats(n, f"{kind}_weights")
    columns = [_column(n, f"{kind}_{name}", len(weights)) for name in ("treeids", "nodeids", "ids")]
    node = keys.numbers(*columns[:2])
    heard = (node >= 0) & ~branch[node]  # others are of no leaf
    return t, Votes(node[heard], columns[2][heard], weights[heard])


@op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(n: Node) -> UOp:
    """(examples, targets): the combined votes of the leaves of all trees."""
    x, count = features(n), n.attr("n_targets", 1)
    t, votes = _old(n, "target", x)
    scores = _scores(x.cast(t.dtype), t, votes, count, n.attr("aggregate_function", "SUM"))
    base = _floats(n, "base_values")
    scores = scores + uopc.constant(base) if len(base) else scores
    return transformed(scores, n.attr("post_transform", "NONE")).cast(dtypes.float32)


@op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(n: Node) -> Any:
    """The label of the best class, and all scores.

    If all votes of a model with two classes name one class, the sum is the second class's score: a
    probability if no vote is negative, otherwise a number with a threshold of 0.
    """
    x, how, count = features(n), n.attr("post_transform", "NONE"), count_of_labels(n)
    t, votes = _old(n, "class", x)
    x, base = x.cast(t.dtype), _floats(n, "base_values")
    named = np.unique(votes.target)
    if count > 2 or len(named) > 1:
        scores = _scores(x, t, votes, count, "SUM")
        scores = scores + uopc.constant(base) if len(base) else scores
        best = labelled(scores.argmax(1), n)
        return best, transformed(scores, how).cast(dtypes.float32)
    alone = votes._replace(target=np.zeros_like(votes.target))
    score = _scores(x, t, alone, 1, "SUM")
    score = score + float(base[-1]) if len(base) else score
    share = bool((votes.weight >= 0).all())
    is_second = (score[:, 0] > (0.5 if share else 0)).cast(dtypes.int32)
    if share and how in ("NONE", "PROBIT"):
        scores = uopc.cat(1 - score, score, axis=1)
    else:
        scores = both(score)
    return labelled(is_second, n), transformed(scores, how).cast(dtypes.float32)
