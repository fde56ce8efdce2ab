"""The references of a kernel: its accesses, joined where their indices differ by constants."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from uopc.ir.core import bounds, ranges, shapes, storage
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.nest.accesses import Access, Strides, steps_of
from uopc.ir.nest.loops import most_of
from uopc.ir.nest.outline import Dim, Reference, Spread
from uopc.ir.nest.places import Places, is_loop, values_at

COPIES = ("upcast", "unroll")  # kinds of ranges that are copies of a statement
_TURNS = (0, 1, 2, 5)  # iterations in which lanes at computed places are looked at
_MOST_LANES = 128  # at computed places


class References:
    """The references that `add` has met so far, and the bytes of their storages."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._storages: dict[UOp, int] = {}
        self._found: dict[object, Reference] = {}

    @property
    def found(self) -> list[Reference]:
        """The references, in the order in which they were met."""
        return list(self._found.values())

    @property
    def storages(self) -> list[int]:
        """The bytes of each storage."""
        return [_elements(root) * root.dtype.scalar.itemsize for root in self._storages]

    def add(self, access: Access, streamed: bool = False) -> None:
        """Add an access with a flat index; `streamed`: it stores past the caches."""
        around = access.loops
        if access.written:
            around = around | ranges.ranges(access.user.src[1])
        constant, strides = _form(access)
        body = self._places.of_ranges(around)
        numbers = self._places.numbers(body)
        lanes = [r for r in around if r.arg.kind == "lane"]
        gate = frozenset() if access.gate is None else ranges.ranges(access.gate)
        masked = any(r.arg.kind == "lane" for r in gate)
        root = storage.storage_root(access.node)
        new = Reference(
            storage=self._storages.setdefault(root, len(self._storages)),
            size=_elements(root), item=root.dtype.scalar.itemsize,
            local=root.op is Ops.BUFFER and root.arg.space != "global",
            written=access.written, body=body,
            lanes=_dims(lanes, strides),
            copies=_dims([r for r in around if r.arg.kind in COPIES], strides),
            strides={numbers[r]: k for r, k in strides.items() if r in numbers and k != 0},
            offsets=[constant], masked=masked,
            skipped=not masked and any(map(is_loop, gate)),
            streamed=streamed, spread=_spread(access, lanes, strides),
        )  # fmt: skip
        known = self._found.setdefault(_key(new), new)
        if constant not in known.offsets:
            known.offsets.append(constant)


def _key(r: Reference) -> object:
    """A key that is equal for references that differ by their offsets alone."""
    strides = frozenset(r.strides.items())
    flags = r.written, r.masked, r.skipped, r.streamed
    return r.storage, r.body, r.lanes, r.copies, strides, flags, r.spread


def _elements(root: UOp) -> int:
    """The greatest number of elements of a storage, at least 1."""
    return max(1, math.prod([bounds.max_dim(d) for d in shapes.shape(root)]))


def _dims(found: Iterable[UOp], strides: Strides) -> tuple[Dim, ...]:
    """The dimensions of an access along ranges, in an order that does not depend on the ranges."""
    return tuple(sorted([Dim(most_of(r), strides.get(r, 0)) for r in found], key=str))


def _form(access: Access) -> tuple[int, Strides]:
    """The constant of a flat index, and its step by range, as if no vector were moved back.

    A last vector that would end past an array begins earlier, and overlaps the vector before it:
    MIN(16·i, n - 16) moves by 16 a step.
    """
    constant, terms = access.form
    clamps = [m for m in terms if m.op in (Ops.MIN, Ops.MAX)]
    if not clamps:
        return constant, access.steps[0]
    terms = dict(terms)
    for m in clamps:
        moving = [s for s in m.src if s.op is not Ops.CONST]
        if len(moving) != 1:
            continue
        factor = terms.pop(m)
        begin, inner = affine.form(moving[0])
        constant += factor * begin
        for r, k in inner.items():
            terms[r] = terms.get(r, 0) + factor * k
    return constant, steps_of(terms)


def _spread(access: Access, lanes: list[UOp], strides: Strides) -> Spread | None:
    """The elements of lanes at computed places. None for other lanes, and where the places of the
    lanes, from the first on, vary with the iteration or with storage."""
    moving = [r for r in lanes if strides.get(r, 0) != 0]
    computed = any(strides[r] is None for r in moving)
    if not computed or math.prod(map(most_of, lanes)) > _MOST_LANES:
        return None
    others = [r for r in access.loops if r not in moving]
    ends = [list(range(most_of(r))) for r in moving]
    found: set[tuple[int, ...]] = set()
    for turn in _TURNS:
        at = [[min(turn, most_of(r) - 1)] for r in others]
        places = values_at(access.flat, [*others, *moving], [*at, *ends])
        if places is None:
            return None
        found.add(tuple([int(p - places[0]) for p in places]))
    if len(found) > 1:
        return None
    spread = sorted(set(found.pop()))
    runs = 1 + sum(y != x + 1 for x, y in itertools.pairwise(spread))
    return Spread(len(spread), runs, spread[-1] - spread[0] + 1)
