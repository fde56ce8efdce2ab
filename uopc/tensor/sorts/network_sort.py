"""A sort of many short rows by a network of comparators: lane r of every vector is row r of a
group, so that a comparator is a minimum and a maximum of two vectors.

    for group: for blocks of 16 columns:  w[column, lane] = sorted in registers
               for size in 32, 64, …:     neighbours of size / 2 merge, three levels in registers

The network is bitonic (Batcher, Sorting networks and their applications, 1968), with the upper half
of each merge mirrored, so that every comparator puts the least element first; columns behind the
last one hold the greatest key and stay there. Threads share the groups.

A network is not stable: where equal keys can be told apart, the place is a part of the key, and the
values are read at the places at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from uopc.ir.builder import alu, kernel, leaves
from uopc.ir.builder.fold import cast
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.tensor.matrices.matrix_kernels import MatrixKernel, below

_BLOCK = 16  # columns that are sorted in registers
_LEVELS = 3  # of a merge in registers: 8 vectors
_MOST_LANES = 32  # a transposition has a load for each
_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}

Element = tuple[UOp, ...]  # a key; or a key and a place, where one integer cannot hold both
Pairs = list[tuple[int, int]]


class SortKeys(NamedTuple):
    """The order of values, given by unsigned integers of `bits` bits. `exact`: each key stands for
    one value, which `value` restores."""

    bits: int
    exact: bool
    key: Callable[[UOp], UOp]
    value: Callable[[UOp], UOp]


def network_sort(x: UOp, keys: SortKeys, values: bool, places: bool) -> list[UOp]:
    """Sort the rows of an array (rows, n) with a fixed n; return the values, places, or both."""
    return _Network(x, keys, values, places).sorted()


def network_time(rows: int, n: int, keys: SortKeys, places: bool) -> float:
    """The estimated ns on one thread: a level takes 0.33 ns per column."""
    containers = _containers(n, keys, places)
    levels = (n - 1).bit_length() * ((n - 1).bit_length() + 1) // 2
    groups = -(-rows // _lanes(containers))
    return 0.33 * groups * len(containers) * (1 << (n - 1).bit_length()) * levels


def _lanes(containers: list[DType]) -> int:
    """The rows of a group: the lanes of the widest vector, within the limit for unrolling."""
    return min(_MOST_LANES, 64 // containers[0].itemsize)


def _containers(n: int, keys: SortKeys, places: bool) -> list[DType]:
    """The dtypes of an element."""
    if keys.exact and not places:
        return [_UNSIGNED[max(8, 1 << (keys.bits - 1).bit_length())]]
    bits = keys.bits + (n - 1).bit_length()
    if bits <= 64:
        return [next(t for size, t in _UNSIGNED.items() if bits <= size)]
    return [_UNSIGNED[64], dtypes.uint32]


class _Network:
    """Builds the kernel."""

    def __init__(self, x: UOp, keys: SortKeys, values: bool, places: bool) -> None:
        self.keys, self.values, self.places = keys, values, places
        self.rows, self.n = shapes.shape(x)
        self.containers = _containers(self.n, keys, places)
        self.alone = keys.exact and not places
        self.lanes = _lanes(self.containers)
        groups = as_dim((dim_uop(self.rows) + (self.lanes - 1)) // self.lanes)
        self.s = MatrixKernel(groups, self.containers[0])
        self.x = self.s.given(x)
        self.out = [self.s.result(self.rows, self.n, dtype=t) for t in self._result_types(x)]
        self.height = max(_BLOCK, 1 << (self.n - 1).bit_length())
        tall = self.n > _BLOCK
        self.w = [self.s.new(self.height, self.lanes, dtype=t) for t in self.containers * tall]

    def _result_types(self, x: UOp) -> list[DType]:
        return [x.dtype] * self.values + [place_dtype(self.n)] * self.places

    def sorted(self) -> list[UOp]:
        """Run the kernel, and return the storage of the results."""
        if self.n <= _BLOCK:
            with self.s.vector(self.lanes) as lane:
                self._write(0, self._block(dim_uop(0), self.n, lane), lane)
        else:
            self._blocks()
            size = 2 * _BLOCK
            while size <= self.height:
                self._merge(size)
                size *= 2
        return list(self.s.called("network", *self.out))

    # ------------------------------------------------------------ elements
    def _row(self, lane: UOp) -> UOp:
        return self.s.b * self.lanes + lane

    def _first(self, column: UOp, lane: UOp) -> Element:
        """Make the element of a column from the input."""
        row = self._row(lane).minimum(dim_uop(self.rows) - 1)
        key = self.keys.key(self.s.anywhere(self.x, row, column))
        if self.alone:
            return (key,)
        key = cast(key, self.containers[0])
        if len(self.containers) == 1:
            bits = (self.n - 1).bit_length()
            return ((key << bits) | cast(column, self.containers[0]),)
        return (key, cast(column, self.containers[1]))

    def _greatest(self) -> Element:
        return tuple([leaves.const(t, t.bounds[1]) for t in self.containers])

    def _block(self, first: UOp, count: int, lane: UOp) -> list[Element]:
        """Sort `count` columns from `first` on."""
        return _applied(_network(count), [self._first(first + i, lane) for i in range(count)])

    def _write(self, first: UOp | int, elements: list[Element], lane: UOp) -> None:
        """Write the results of columns that are in final order."""
        row = below(self._row(lane), self.rows)
        stores = []
        for i, e in enumerate(elements):
            column = first + i
            for out, v in zip(self.out, self._results(e, lane)):
                stores.append((self.s.anywhere(out, row, column), v))
        self.s.store(stores)

    def _results(self, e: Element, lane: UOp) -> list[UOp]:
        if self.alone:
            return [self.keys.value(e[0])]
        place = e[-1]
        if len(e) == 1:
            place = place & ((1 << (self.n - 1).bit_length()) - 1)
        place = cast(place, place_dtype(self.n))
        found = []
        if self.values:
            row = self._row(lane).minimum(dim_uop(self.rows) - 1)
            at = cast(place, dtypes.index).maximum(0).minimum(self.n - 1)
            found.append(self.s.anywhere(self.x, row, at))
        return found + [place] * self.places

    # ------------------------------------------------------------ loops
    def _blocks(self) -> None:
        """Sort every block of columns, from the input to w."""
        full, left = divmod(self.n, _BLOCK)
        with self.s.each(full) as block, self.s.vector(self.lanes) as lane:
            first = block * _BLOCK
            self._keep(first, self._block(first, _BLOCK, lane), lane)
        if left:
            with self.s.vector(self.lanes) as lane:
                first = dim_uop(full * _BLOCK)
                rest = self._block(first, left, lane)
                self._keep(first, rest + [self._greatest()] * (_BLOCK - left), lane)
        kept = (full + bool(left)) * _BLOCK
        if kept < self.height:
            with self.s.each(self.height - kept) as i, self.s.vector(self.lanes) as lane:
                self._keep(i + kept, [self._greatest()], lane)

    def _keep(self, first: UOp, elements: list[Element], lane: UOp) -> None:
        self._store([first + i for i in range(len(elements))], elements, lane)

    def _store(self, columns: list[UOp], elements: list[Element], lane: UOp) -> None:
        self.s.store([
            (self.s.at(w, column, lane), v)
            for column, e in zip(columns, elements) for w, v in zip(self.w, e)
        ])  # fmt: skip

    def _merge(self, size: int) -> None:
        """Merge the halves of every `size` columns: levels with strides size / 2, …, 1."""
        step = size >> _LEVELS
        half = 1 << (_LEVELS - 1)
        with (
            self.s.each(-(-self.n // size)) as block,
            self.s.each(step) as j,
            self.s.vector(self.lanes) as lane,
        ):
            low = [block * size + j + a * step for a in range(half)]
            high = [block * size + (size - 1 - a * step) - j for a in reversed(range(half))]
            self._levels(low + high, _mirrored(), lane)
        stride = step // 2
        while stride:
            count = min(_LEVELS, stride.bit_length())
            step = stride >> (count - 1)
            last = size == self.height and step == 1
            self._pass(stride, step, count, last)
            stride = step // 2

    def _pass(self, stride: int, step: int, count: int, last: bool) -> None:
        """Run the levels of a merge with strides from `stride` down to `step`."""
        width = 1 << count
        blocks, left = divmod(self.n, 2 * stride) if last else (-(-self.n // (2 * stride)), 0)
        with (
            self.s.each(blocks) as block,
            self.s.each(step) as j,
            self.s.vector(self.lanes) as lane,
        ):
            first = block * (2 * stride) + j
            columns = [first + a * step for a in range(width)]
            self._levels(columns, _halves(width), lane, last, width)
        if left:
            with self.s.vector(self.lanes) as lane:
                columns = [dim_uop(blocks * width + a) for a in range(width)]
                self._levels(columns, _halves(width), lane, last, left)

    def _levels(
        self, columns: list[UOp], pairs: Pairs, lane: UOp, last: bool = False, kept: int = 0
    ) -> None:
        elements = [  # loaded once, before any of the stores
            tuple([kernel.load(self.s.at(w, c, lane)) for w in self.w]) for c in columns
        ]
        ordered = _applied(pairs, elements)
        if last:
            self._write(columns[0], ordered[:kept], lane)
        else:
            self._store(columns, ordered, lane)


# ---------------------------------------------------------------- comparators
def _applied(pairs: Pairs, elements: list[Element]) -> list[Element]:
    """Apply comparators to the elements; each puts the lesser element at its first index."""
    out = list(elements)
    for i, j in pairs:
        out[i], out[j] = _ordered(out[i], out[j])
    return out


def _ordered(a: Element, b: Element) -> tuple[Element, Element]:
    if len(a) == 1:
        return (a[0].minimum(b[0]),), (a[0].maximum(b[0]),)
    swap = (b[0] < a[0]) | (b[0].eq(a[0]) & (b[1] < a[1]))
    low = tuple([alu.where(swap, v, u) for u, v in zip(a, b)])
    return low, tuple([alu.where(swap, u, v) for u, v in zip(a, b)])


def _network(n: int) -> Pairs:
    """A network that sorts n elements: odd-even merges (Batcher)."""
    pairs = []
    p = 1
    while p < n:
        k = p
        while k:
            for j in range(k % p, n - k, 2 * k):
                for i in range(min(k, n - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        pairs.append((i + j, i + j + k))
            k //= 2
        p *= 2
    return pairs


def _halves(width: int) -> Pairs:
    """The levels that sort a bitonic sequence of `width` elements."""
    pairs, stride = [], width // 2
    while stride:
        pairs += [(i, i + stride) for i in range(width) if not i & stride]
        stride //= 2
    return pairs


def _mirrored() -> Pairs:
    """The first levels of a merge of two sorted halves; the second half is read backwards."""
    width = 1 << _LEVELS
    pairs = [(i, width - 1 - i) for i in range(width // 2)]
    return pairs + [p for p in _halves(width) if p[1] - p[0] < width // 2]
