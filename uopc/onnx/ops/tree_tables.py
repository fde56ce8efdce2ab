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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.errors import UserError
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.onnx.values import Array

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
         "BRANCH_MEMBER")  # fmt: skip


@dataclass(frozen=True)
class Branch:
    """A node that asks: the keys of the next nodes if not and if so, and whether NaN is so."""

    mode: str
    feature: int
    value: Any
    no: Any
    yes: Any
    missing: bool
    members: Array


@dataclass(frozen=True)
class Tables:
    """`after` has two places for each node. Leaves are the last nodes, from `first_leaf` on."""

    thresholds: Array
    features: Array
    after: Array
    missing: Array
    roots: Array
    first_leaf: int
    leaf_keys: list[Any]
    targets: list[frozenset[int]]  # of each tree: what its leaves vote for
    depth: int
    made_of: int  # nodes of the model
    dtype: DType


def tables(
    branches: Mapping[Any, Branch], leaves: Mapping[Any, frozenset[int]], roots: list[Any],
    dtype: DType,
) -> Tables:  # fmt: skip
    """The tables of all trees. `leaves`: keys, and what each votes for. `dtype`: that of the
    examples. UserError for what is no tree."""
    if not roots:
        raise UserError("an ensemble without trees")
    kinds = {b.value.dtype for b in branches.values()} or {np.dtype(np.float32)}
    wide = dtypes.promote(dtype, dtypes.from_numpy(max(kinds, key=lambda k: k.itemsize)))
    made = _Maker(branches, leaves, wide)
    return made.tables([made.built(root) for root in roots])


# A node while tables are made: whether it is a leaf, its number among such, its targets.
End = tuple[bool, int, frozenset[int]]


class _Maker:
    """Branches get numbers as they are made, leaves numbers of their own until all are there."""

    def __init__(
        self, branches: Mapping[Any, Branch], leaves: Mapping[Any, frozenset[int]], dtype: DType
    ) -> None:
        self.branches, self.leaves, self.dtype = branches, leaves, dtype
        self.rows: list[tuple[int, Any, End, End, bool]] = []  # feature, value, no, yes, missing
        self.depths: list[int] = []
        self.done: dict[Any, End] = {}
        self.leaf_keys: list[Any] = []

    def built(self, root: Any) -> End:
        """The node of a root: children first, without recursion."""
        stack, above = [(root, False)], set()
        while stack:
            key, seen = stack.pop()
            if key in self.done:
                continue
            if key in self.leaves:
                self.done[key] = (True, len(self.leaf_keys), self.leaves[key])
                self.leaf_keys.append(key)
            elif key not in self.branches:
                raise UserError(f"a tree leads to the node {key}, which it has not")
            elif seen:
                above.discard(key)
                self.done[key] = self._branch(self.branches[key])
            elif key in above:
                raise UserError(f"a tree leads back to the node {key}")
            else:
                b = self.branches[key]
                above.add(key)
                stack += [(key, True), (b.no, False), (b.yes, False)]
        return self.done[root]

    def _branch(self, b: Branch) -> End:
        no, yes, nan = self.done[b.no], self.done[b.yes], b.missing
        value = self.dtype.numpy.type(b.value)
        if b.mode == "BRANCH_MEMBER":
            at = no
            for m in b.members[~np.isnan(b.members)]:
                at = self._equal(b.feature, self.dtype.numpy.type(m), at, yes, nan)
            return at
        if b.mode in ("BRANCH_NEQ", "BRANCH_GTE", "BRANCH_GT"):  # the opposite of another
            no, yes, nan = yes, no, not nan
        if b.mode in ("BRANCH_EQ", "BRANCH_NEQ"):
            return self._equal(b.feature, value, no, yes, nan)
        if b.mode in ("BRANCH_LT", "BRANCH_GTE"):
            value = _before(value)
        return self._node(b.feature, value, no, yes, nan)

    def _equal(self, feature: int, value: Any, no: End, yes: End, nan: bool) -> End:
        less = self._node(feature, _before(value), yes, no, False)
        return self._node(feature, value, no, less, nan)

    def _node(self, feature: int, value: Any, no: End, yes: End, nan: bool) -> End:
        depth = 1 + max([self.depths[k] for is_leaf, k, _ in (no, yes) if not is_leaf], default=0)
        self.rows.append((feature, value, no, yes, nan))
        self.depths.append(depth)
        return False, len(self.rows) - 1, no[2] | yes[2]

    def tables(self, ends: list[End]) -> Tables:
        first, count = len(self.rows), len(self.leaf_keys)
        numpy = self.dtype.numpy
        after = np.repeat(np.arange(first + count, dtype=np.int32), 2)
        ways = [way for row in self.rows for way in row[2:4]]
        after[: 2 * first] = [k + first * is_leaf for is_leaf, k, _ in ways]
        deep = [self.depths[k] for is_leaf, k, _ in ends if not is_leaf]
        return Tables(
            np.asarray([row[1] for row in self.rows] + [0] * count, numpy),
            np.asarray([row[0] for row in self.rows] + [0] * count, np.int32), after,
            np.asarray([row[4] for row in self.rows] + [False] * count, np.bool_),
            np.asarray([k + first * is_leaf for is_leaf, k, _ in ends], np.int32), first,
            self.leaf_keys, [own for _, _, own in ends], max(deep, default=0),
            len(self.done), self.dtype,
        )  # fmt: skip


def _before(value: Any) -> Any:
    """The greatest number less than a value; NaN, which nothing is less than, before -inf."""
    low = value.dtype.type(-np.inf)
    return value.dtype.type(np.nan) if value == low else np.nextafter(value, low)
