"""The sizes that a model leaves free: their names, what the caller gives for them, and what reading
the model shows.

A model says which sizes are equal only where an operator needs it: two inputs have a batch each, a
table ends at 512 places.

| an operator needs | what follows |
| --- | --- |
| n = m | the model is read again with one variable |
| n = 5 | the model is read again with the size 5 |
| n = min(n, 512) | the model is read again with n at most 512 |
| another equality | from then on, values of the more complex size are reshaped to the simpler one |

The program checks each of these when a call gives the sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import uopc
from uopc import UOp
from uopc.errors import UserError
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.index import affine, dims
from uopc.onnx.signature import size_name

# The bounds of a size that the caller does not name.
LEAST_SIZE, MOST_SIZE = 1, 4096
Sizes = Mapping[str, Any]


class FreeSizes:
    """The free sizes of one model. `made` has each by its name: a number or a variable."""

    def __init__(self, given: Sizes) -> None:
        self.given = given
        self.made: dict[str, Dim] = {}
        self.renamed: dict[UOp, Dim] = {}  # sizes of values, and the sizes that they equal
        self._same: dict[str, str] = {}  # a name, and an earlier one of the same size
        self._bounds: dict[str, tuple[int, int]] = {}  # of what was learnt
        self._taken: set[str] = set()
        self._renamed_before = 0

    def begin(self) -> None:
        """Begin to read the model."""
        self.made.clear()
        self._renamed_before = len(self.renamed)
        self._taken = {"out"}  # the argument of a call that has the results

    def own_name(self, name: str) -> str:
        """Return an unused printable name, the model's if possible."""
        is_text = isinstance(name, str)  # else bytes of no UTF-8
        stem = name if is_text and name and name.isprintable() else repr(name)
        made, k = stem, 1
        while made in self._taken:
            made, k = f"{stem}_{k}", k + 1
        self._taken.add(made)
        return made

    def size(self, i: Any, axis: int, d: Any) -> Dim:
        """The size of an axis of an input."""
        name = _name(i, axis, d)
        return d.dim_value if name is None else self._named(name)

    def _named(self, name: str) -> Dim:
        if name not in self.made:
            same = self._same.get(name)
            self.made[name] = self._new(name) if same is None else self._named(same)
        return self.made[name]

    def _new(self, name: str) -> Dim:
        given = _given_size(name, self.given.get(name, (LEAST_SIZE, MOST_SIZE)))
        if isinstance(given, int):
            return given
        least, most = self._bounds.get(name, given)
        return least if least == most else uopc.variable(self.own_name(name), least, most)

    def check_names(self) -> None:
        """UserError if the caller gives a size that the model does not have."""
        for name in self.given:
            if name not in self.made:
                there = ", ".join(map(repr, self.made)) or "none"
                raise UserError(f"dims: the model has no dimension {name!r}; free ones: {there}")

    # ------------------------------------------------------------ what an operator needs
    def learn(self, pairs: Sequence[tuple[Dim, Dim]]) -> bool:
        """Learn what a size must be for the sizes of these pairs to be equal; False if that is
        nothing, or no value."""
        facts = [f for d, e in pairs if (f := self._fact(d, e)) is not None]
        if not facts:
            return self.rename(pairs) and len(self.renamed) > self._renamed_before
        for name, same, least, most in facts:
            if same is not None:
                self._same[name] = same
            low, high = _bounds(self.made[same or name])
            least, most = max(low, least), min(high, most)
            self._bounds[same or name] = least, most
            if least > most:
                return False
        return True

    def _fact(self, d: Dim, e: Dim) -> tuple[str, str | None, int, int] | None:
        """For d to be equal to e: a name, the name of an equal size, and bounds of both."""
        names = {u: name for name, u in reversed(self.made.items()) if isinstance(u, UOp)}
        both = [names[s] for s in (d, e) if s in names]
        if len(both) == 2:
            kept, gone = sorted(both, key=list(self.made).index)
            return gone, kept, *_bounds(self.made[gone])
        for name in both:
            other = e if d is self.made[name] else d
            if isinstance(other, int):
                return name, None, other, other
            if other.op is Ops.MIN and other.src[0] in (d, e) and other.src[1].op is Ops.CONST:
                return name, None, LEAST_SIZE, int(other.src[1].arg)
        return None

    def rename(self, pairs: Sequence[tuple[Dim, Dim]]) -> bool:
        """Rename the more complex size of each pair to the other one; False if there is none, or
        more to learn."""
        if not pairs or any([self._fact(d, e) is not None for d, e in pairs]):
            return False
        for d, e in pairs:
            new, old = sorted((d, e), key=_complexity)
            constant, terms = affine.form(old)
            self.renamed[affine.build(0, terms)] = dims.plus(new, -constant)
        return True

    def _simpler(self, d: Dim) -> Dim:
        """The simplest name of a size."""
        while isinstance(d, UOp):
            constant, terms = affine.form(d)
            found = self.renamed.get(affine.build(0, terms))
            if found is None:
                break
            d = dims.plus(found, constant)
        return d

    def named(self, v: Any) -> Any:
        """A value with other names of its sizes, by a reshape along one axis for each."""
        own = list(shapes.shape(v)) if self.renamed and isinstance(v, UOp) else []
        for axis, d in enumerate(own):
            own[axis] = self._simpler(d)
            v = v if own[axis] is d else v.reshape(*own)
        return v


def _name(i: Any, axis: int, d: Any) -> str | None:
    """The name of a size of an input; None for a number."""
    is_number = d.HasField("dim_value") and d.dim_value >= 0
    return None if is_number else size_name(i.name, axis, d.dim_param)


def _given_size(name: str, given: Any) -> int | tuple[int, int]:
    wanted = f"dims: {name!r} must be a number or (least, greatest)"
    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise UserError(f"{wanted}, got {given!r}")
        uopc.variable("n", *given)  # UserError for what no bounds are
        return given[0], given[1]
    try:
        return operator.index(given)
    except TypeError:
        raise UserError(f"{wanted}, got {given!r}") from None


def _bounds(d: Dim) -> tuple[int, int]:
    return d.arg.low, d.arg.high


def _complexity(d: Dim) -> tuple[int, str]:
    return (0, "") if isinstance(d, int) else (len(d.toposort()), d.render())
