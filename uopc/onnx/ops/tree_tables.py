"""Tables of decision trees, in which every comparison is `<=`.

| a branch | becomes |
| --- | --- |
| x < t | x <= the number before t |
| x >= t, x > t | the opposite, its ways exchanged |
| x == t | x <= t, and not x <= the number before t |
| x in a set | one `==` after the other |

NaN goes where a branch sends what is missing: `missing` says that it is the way of `<=`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from uopc.errors import UserError
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.records import dataclass
from uopc.onnx.values import Array

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
         "BRANCH_MEMBER")  # fmt: skip
LEAF = -1  # the mode of a leaf
_LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(1, 7)


@dataclass(frozen=True)
class Nodes:
    """The nodes of all trees, in columns: the number of the mode, the feature and the value to
    compare, the next nodes if the comparison fails (`no`) or holds (`yes`; -1: none), and whether
    NaN counts as `yes`. `name`: a node's name in messages."""

    mode: Array
    feature: Array
    value: Array
    no: Array
    yes: Array
    missing: Array
    roots: Array
    members: Mapping[int, Array]  # of the branches that ask for one
    name: Callable[[int], object] = int


@dataclass(frozen=True)
class Tables:
    """The tables of all trees. `after` has two entries per node. Leaves are the last nodes, from
    `first_leaf` on. `leaf`: the original number of each leaf. `tree`: the number of the root that
    leads to each node, -1 if none does; None if several roots lead to one node."""

    thresholds: Array
    features: Array
    after: Array
    missing: Array
    roots: Array
    first_leaf: int
    leaves: int
    leaf: Array
    tree: Array | None
    depth: int
    reached: Array
    dtype: DType


def tables(nodes: Nodes, dtype: DType) -> Tables:
    """Build the tables of all trees for examples of a dtype; UserError for anything but trees."""
    if not len(nodes.roots):
        raise UserError("an ensemble must have at least one tree")
    kind = nodes.value.dtype if (nodes.mode != LEAF).any() else np.dtype(np.float32)
    wide = dtypes.promote(dtype, dtypes.from_numpy(kind))
    grown = _only_leq(nodes, wide)
    found, tree = _reached(grown)
    is_leaf = grown.mode == LEAF
    first = int((~is_leaf).sum())
    place = np.where(is_leaf, first + np.cumsum(is_leaf), np.cumsum(~is_leaf)).astype(np.int32) - 1
    order = np.argsort(place)
    ways = np.stack([grown.no, grown.yes], 1)[order]
    ways[first:] = order[first:, None]
    ways[ways < 0] = 0  # of branches that no root leads to
    size, feature = len(nodes.mode), np.where(found, grown.feature, 0).astype(np.int32)
    return Tables(
        grown.value[order], feature[order], place[ways].reshape(-1),
        grown.missing[order], place[grown.roots], first, len(order) - first,
        place[:size] - first, None if tree is None else tree[:size], _depth(grown, found),
        found[:size], wide,
    )  # fmt: skip


# ---------------------------------------------------------------- comparisons
def _only_leq(nodes: Nodes, wide: DType) -> Nodes:
    """Rewrite all branches to compare by `<=`; additional nodes follow the old ones."""
    mode = nodes.mode
    value = np.where(mode == LEAF, 0, nodes.value).astype(wide.numpy)
    feature = np.where(mode == LEAF, 0, nodes.feature)
    turned = (mode == _GTE) | (mode == _GT) | (mode == _NEQ)  # the opposite of another
    no, yes = np.where(turned, nodes.yes, nodes.no), np.where(turned, nodes.no, nodes.yes)
    missing = (nodes.missing != turned) & (mode != LEAF)
    below = (mode == _LT) | (mode == _GTE)
    value[below] = _before(value[below])
    rows = [(np.where(mode == LEAF, LEAF, 0), feature, value, no, yes, missing)]
    equal = np.flatnonzero((mode == _EQ) | (mode == _NEQ))
    first = len(mode)
    rows.append(_less(feature[equal], value[equal], no[equal], yes[equal]))
    yes[equal] = first + np.arange(len(equal))
    first += len(equal)
    for i in np.flatnonzero(mode == _MEMBER):
        members = nodes.members.get(int(i), value[:0])
        members = members[~np.isnan(members)].astype(wide.numpy)
        rows += _one_of(rows[0], int(i), members, first)
        first += max(0, 2 * len(members) - 1)
    mode, feature, value, no, yes, missing = map(np.concatenate, zip(*rows))
    return Nodes(mode, feature, value, no, yes, missing, nodes.roots, {}, nodes.name)


Rows = tuple[Array, Array, Array, Array, Array, Array]  # mode, feature, value, no, yes, missing


def _less(feature: Array, value: Array, no: Array, yes: Array) -> Rows:
    """Branches that, given x <= value, lead to `yes` if x == value, and to `no` if x < value."""
    none = np.zeros(len(value), np.bool_)
    return np.zeros(len(value), int), feature, _before(value), yes, no, none


def _one_of(rows: Rows, i: int, members: Array, first: int) -> list[Rows]:
    """Make branch i compare with the first member of a set. Return the rows, numbered from `first`
    on, that compare with the other members in turn."""
    _, feature, value, no, yes, missing = rows
    away, wanted, so = int(no[i]), int(yes[i]), bool(missing[i])
    if not len(members):  # nothing is one of them
        value[i], yes[i], missing[i] = np.nan, away, False
        return []
    count = len(members)
    asked = np.full(count, feature[i])
    less = first + np.arange(count)  # of each member the branch that takes it from those below
    others = first + count + np.arange(count - 1)  # the branches of all members but the first
    left = np.append(others, away)
    value[i], no[i], yes[i] = members[0], left[0], less[0]
    more = count - 1
    so_all = np.full(more, so)
    return [
        _less(asked, members, left, np.full(count, wanted)),
        (np.zeros(more, int), asked[1:], members[1:], left[1:], less[1:], so_all),
    ]


def _before(value: Array) -> Array:
    """The next lower number of each value; for -inf NaN, because no number is less."""
    low = value.dtype.type(-np.inf)
    below: Array = np.nextafter(value, low)
    below[value == low] = np.nan
    return below


# ---------------------------------------------------------------- levels
def _reached(nodes: Nodes) -> tuple[Array, Array | None]:
    """The nodes that roots lead to, and the number of each node's root; None if several roots lead
    to one node."""
    tree, alone = np.full(len(nodes.mode), -1, np.int32), True
    level, own = nodes.roots, np.arange(len(nodes.roots), dtype=np.int32)
    while len(level):
        bad = (level < 0) | (level >= len(tree))
        if bad.any():
            raise UserError(f"the root {int(level[bad][0])} of a tree is not a node")
        new = tree[level] < 0
        alone = alone and bool((tree[level][~new] == own[~new]).all())
        level, own = level[new], own[new]
        tree[level] = own
        alone = alone and bool((tree[level] == own).all())
        level = np.unique(level)
        level = level[nodes.mode[level] != LEAF]
        own = np.concatenate([tree[level]] * 2)
        below = np.concatenate([nodes.no[level], nodes.yes[level]])
        if (below < 0).any():
            at = int(level[np.flatnonzero(below < 0)[0] % len(level)])
            raise UserError(
                f"a tree leads from the node {nodes.name(at)} to a node that does not exist"
            )
        level = below
    return tree >= 0, tree if alone else None


def _depth(nodes: Nodes, reached: Array) -> int:
    """The greatest number of branches from a root to a leaf; UserError for a cycle."""
    inner = reached & (nodes.mode != LEAF)
    ways = np.concatenate([nodes.no[inner], nodes.yes[inner]])
    before = np.bincount(ways, minlength=len(inner))  # branches that lead to a node and wait
    level = np.flatnonzero(inner & (before == 0))
    depth, left = 0, int(inner.sum())
    while len(level):
        depth, left = depth + 1, left - len(level)
        below, times = np.unique(
            np.concatenate([nodes.no[level], nodes.yes[level]]), return_counts=True
        )
        before[below] -= times
        level = below[(before[below] == 0) & inner[below]]
    if left:
        at = int(np.flatnonzero(inner & (before > 0))[0])
        raise UserError(f"a tree leads back to the node {nodes.name(at)}")
    return depth
