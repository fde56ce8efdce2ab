"""The one cost function of fusion: store a value, or let each reader compute it again.

All costs are in the unit of `Op.cost`: one vectorised float addition per element, about 0.05 ns on
a 512-bit core. They were measured: exp takes 0.17 ns, a float 0.15 ns to write to cache and 0.1 ns
to read back, and starting a kernel about 0.3 µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.op_costs import LOAD, LONG_VALUE, STORE

KERNEL = 4000.0  # the cost of starting one
# A tile computes a value up to this cost, about ten functions, as fast as it would load it.
CHEAP_VALUE = 64.0
# A window computes a value up to this cost, a few operations on what it loads, at each place.
WINDOW_VALUE = 8.0
# A value that reads stored reduces is computed again if it reads at most this many stored values,
# through at most this many operations in a row.
MOST_READ, LIGHT_DEPTH = 5, 64
# The cost of a sum that reads no storage: most have a closed form.
CLOSED_FORM = 4.0
# The number of times that a register tile, of 16 to 32 accumulators, uses an operand that it
# computes once. Only repeated evaluations of the same element count.
REUSE = 16.0
# A contraction in a kernel of its own, with a tile over its outputs, saves this share of its time,
# compared with one inside the loop of another reduce.
TILED = 0.75
# An element of a factor that is read again, in vectors, if the first-level cache does not hold all
# that is read: 0.03 ns.
REREAD = 0.6
# Values deeper than this start a new kernel: beyond about a thousand operations in a row the code
# generator's time grows faster than the code (0.12 ms each at 1,000 operations, 0.3 ms at 10,000).
MOST_DEPTH = 1024
# The most bytes of a value that lives in a tile of the kernel that reads it back: half of a
# first-level cache, and far less than a thread's stack.
TILE_BYTES = 1 << 14
ENOUGH = 1e15  # costs saturate: beyond this nothing changes


class ValueCost:
    """The facts about a value before the decision. The defaults describe a value in memory."""

    elements = 1.0
    depth = 0  # operations in a row since storage
    cost = LOAD  # of one element, everything below it included that is not stored
    # The part of the cost that is its own; operands that have other readers too, and their part.
    own = LOAD
    common: frozenset[ValueCost] = frozenset()
    common_cost = 0.0
    read = 1  # the number of stored values it reads if every reduce below is stored
    reads = True  # storage is read for it
    partial = False  # INVALID somewhere: those elements of its storage would keep what they held
    has_reduce = False  # a loop over storage is inside
    contracts = False  # a matrix product or convolution is inside
    over_reduce = False  # a loop over storage is somewhere in its code
    shared = False  # it is computed from a reduce that has other readers too
    sole_reader = False  # it is computed from a reduce that nothing else reads
    loaded = False  # its readers count a load: two that read all of it would have it stored

    @property
    def loops_inside(self) -> bool:
        """True if computing the value in a reader's code puts a loop over storage there."""
        return self.has_reduce and not self.loaded

    @property
    def is_light(self) -> bool:
        """True if a value over shared reduces is recomputed once these are stored: a sum of a few
        values, not the end of a deep graph."""
        return self.shared and self.read <= MOST_READ and self.depth <= LIGHT_DEPTH

    def load_if_stored_for_two(self) -> None:
        """Let readers count a load if the value would be stored for two readers of all elements."""
        if self.partial or self.is_light:
            return
        if choose_storage(self, 2 * self.elements, self.elements, 2).stored:
            self.loaded, self.shared = True, False
            self.depth, self.read, self.own = 0, 1, LOAD
            self.common, self.common_cost = frozenset(), 0.0

    def share(self, operand: ValueCost, itself: bool) -> None:
        """Count once the values that operands share; with `itself`, the operand, too."""
        if not self.common:
            self.common, self.common_cost = operand.common, operand.common_cost
        new = set() if operand.common is self.common else operand.common - self.common
        if itself and operand not in self.common:
            new |= {operand}
        for v in new:
            self.common_cost += v.own
        self.common |= new


def fits_tile(u: UOp) -> bool:
    """True if a value of known size is small enough for local storage."""
    size = shapes.size(shapes.shape(u))
    return isinstance(size, int) and size * u.dtype.itemsize <= TILE_BYTES


def keeps_order(u: UOp) -> bool:
    """True if a value computed from a contraction keeps the contraction's loops. A view in another
    order does not, and a stored value should keep them."""
    return u.op.is_alu or u.op in (Ops.CAST, Ops.WHERE, Ops.RESHAPE, Ops.SHRINK, Ops.FLIP)


class StorageChoice(NamedTuple):
    """The decision to store a value or not, with the reason in words for the dump. `recomputed`:
    the cost of computing the value for each reader; `once`: the cost of storing it and reading it
    back.
    """

    stored: bool
    words: str
    numbers: tuple[float, ...] = ()  # that fill the words
    recomputed: float = 0.0
    once: float = 0.0

    @property
    def reason(self) -> str:
        return self.words.format(*self.numbers)


_ONCE = StorageChoice(False, "computed once where it is read")


def _stored(value: ValueCost, cost: float, reads: float) -> float:
    """The cost of computing a value in its own kernel, `cost` per element, and reading it back."""
    return value.elements * (cost + STORE) + reads * LOAD + KERNEL


def choose_storage(
    value: ValueCost, evaluations: float, unshared: float, reads: int
) -> StorageChoice:
    """Decide whether a value is stored. `evaluations`: the elements computed if each of the `reads`
    readers computes its own; `unshared`: those among them that no register tile can share."""
    elements, cost = value.elements, value.cost
    if evaluations <= elements:
        return _ONCE
    times = evaluations / max(elements, 1.0)
    once = _stored(value, cost, evaluations)
    if not value.has_reduce:
        if cost <= WINDOW_VALUE:
            words = "cheap: computed {:.3g} times rather than stored"
            return StorageChoice(False, words, (times,), evaluations * cost, once)
        tiled = (evaluations - unshared) / REUSE if cost > CHEAP_VALUE else 0.0
        evaluations = unshared + tiled
        once = _stored(value, cost, evaluations)
    recomputed = evaluations * cost
    if once < recomputed:
        words = "each element would be computed {:.3g} times, in {} place" + "s" * (reads != 1)
        return StorageChoice(True, words, (times, reads), recomputed, once)
    return StorageChoice(
        False, "cheaper to compute {:.3g} times than to store", (times,), recomputed, once
    )


def choose_scattered(
    value: ValueCost, full_cost: float, evaluations: float, choice: StorageChoice
) -> StorageChoice:
    """Decide for a value whose evaluations share no work: `full_cost` is the cost of one."""
    recomputed, once = evaluations * full_cost, _stored(value, value.cost, evaluations)
    if full_cost <= LONG_VALUE or recomputed <= once:
        return choice
    return StorageChoice(True, "long, and read at places that share nothing", (), recomputed, once)


def choose_tiling(value: ValueCost, evaluations: float, choice: StorageChoice) -> StorageChoice:
    """Decide for a contraction that is read inside of another reduce, at several indices, or in
    other loops than its own."""
    reads = min(evaluations, value.elements)
    recomputed = reads * value.cost
    once = _stored(value, value.cost * (1.0 - TILED), reads)
    if choice.stored or recomputed <= once:
        return choice
    words = "read in a reduce or in parts, with sums that need a tile of their own"
    return StorageChoice(True, words, (), recomputed, once)


def reread(read: float, uses: float) -> float:
    """The cost of reading a factor again for one product. `uses`: the number of adjacent results
    that share the read, of `read` bytes in all. A tile of few rows gains little: it reads a narrow
    strip."""
    if read <= TILE_BYTES:
        return 0.0
    return REREAD * (1.0 - min(max(uses, 1.0), REUSE) / REUSE)


def choose_product(
    value: ValueCost, evaluations: float, parts: int, separate: float, together: float,
    choice: StorageChoice,
) -> StorageChoice:  # fmt: skip
    """Decide for a contraction that is read in parts and not stored so far. Reading its factors
    costs `separate` for all parts separately, and `together` in one kernel."""
    tiled = value.cost * (1.0 - TILED)
    recomputed, once = evaluations * tiled + separate, _stored(value, tiled, evaluations) + together
    if recomputed <= once:
        return choice
    return StorageChoice(
        True, "each of {} readers would read a factor of it", (parts,), recomputed, once
    )


def tile_saves(cost: float, evaluations: float) -> float:
    """The time that a tile of its own saves for these evaluations of a sum of this cost."""
    return evaluations * cost * TILED


def tiles_pay(parts: Sequence[ValueCost]) -> bool:
    """True if tiles for parts that are contractions save more than a kernel for each part costs."""
    saved = sum([tile_saves(v.cost, v.elements) for v in parts if v.contracts])
    return saved > KERNEL * (len(parts) - 1)


def choose_operand(
    value: ValueCost, saved: float, evaluations: float, choice: StorageChoice
) -> StorageChoice:
    """Decide for an operand of a sum that has a reduce in its code and is the same in all loops of
    its reader. If the operand is stored, the sum can have a tile, which saves `saved`."""
    recomputed = saved + evaluations * value.cost / REUSE
    once = _stored(value, value.cost, evaluations)
    if choice.stored or recomputed <= once:
        return choice
    return StorageChoice(True, "a reduce inside of sums that need a tile", (), recomputed, once)


def choose_parts(
    value: ValueCost, parts: int, together: float, evaluations: float, choice: StorageChoice
) -> StorageChoice:
    """Decide for a STACK whose parts share work that its readers cannot share. Read in separate
    loops, the parts cost at least twice `together`, the cost of one element of each part in one
    loop."""
    recomputed = 2 * together * evaluations / parts
    once = _stored(value, together / parts, evaluations)
    if choice.stored or recomputed <= once:
        return choice
    words = "its {} parts share work, and are read one after the other"
    return StorageChoice(True, words, (parts,), recomputed, once)
