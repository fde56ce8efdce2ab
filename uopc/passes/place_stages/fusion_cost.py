"""THE cost function of fusion: is a value stored, or computed again by each of its readers?

All figures are in units of one vectorised float add per element (about 0.05 ns on a 512-bit core).
They come from the measured rates of the kernels page: exp 0.17 ns, a stored float 0.15 ns to write
from cache and 0.1 ns to read back, a kernel of its own about 0.3 µs to start.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, NamedTuple

from uopc.ir.core import analysis
from uopc.ir.core.ops import Op, Ops

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp
    from uopc.passes.place_stages.value_costs import Value

CHEAP, FUNCTION, DIVISION, LOAD, STORE = 1.0, 6.0, 4.0, 2.0, 4.0
KERNEL = 4000.0
# Without a reduce inside, a value up to this cost is always computed again: about ten functions.
CHEAP_VALUE = 64.0
# Over stored reduces a value is computed again if it reads up to so many stored ones.
MOST_READ = 5
# A value that takes more than this to compute alone, all it stands on included, is stored rather
# than computed at each of the places where it is gathered, or again in the loop of a reduce.
LONG_VALUE = 256.0
# A sum that reads no storage counts something: most have a closed form.
CLOSED_FORM = 4.0
# How often a register tile uses an operand it computed once (a tile has 16 to 32 accumulators):
# where several of its places read the same element, and not where each reads another.
REUSE = 16.0
# The share of its time that a contraction saves as a kernel of its own, whose tile spans its
# outputs, against one inside the loop of another reduce, which has no outputs side by side.
TILED = 0.75
# Values deeper than this start a new kernel: beyond about a thousand operations in a row the code
# generator's time grows faster than the code (0.12 ms each at 1,000 operations, 0.3 ms at 10,000).
MOST_DEPTH = 1024
# A STACK or CAT of more parts than this is stored part by part: in one loop each element would
# choose among all of them.
MOST_PARTS = 16
# Parts of a STACK that share their work are stored in one loop, up to so many at a time.
MOST_TOGETHER = 64
# A value that its own kernel reads back may live in a tile of that kernel up to so many bytes: half
# of a first-level cache, and far less than a thread's stack.
TILE_BYTES = 1 << 14
ENOUGH = 1e15  # costs saturate: beyond this nothing changes

_OP_COST: dict[Op, float] = {
    Ops.EXP: FUNCTION, Ops.EXP2: FUNCTION, Ops.LOG: 2 * FUNCTION, Ops.LOG2: 2 * FUNCTION,
    Ops.SIN: 2 * FUNCTION, Ops.COS: 2 * FUNCTION, Ops.TAN: 4 * FUNCTION, Ops.TANH: 3 * FUNCTION,
    Ops.ERF: 3 * FUNCTION, Ops.POW: 6 * FUNCTION, Ops.FDIV: DIVISION, Ops.RECIPROCAL: DIVISION,
    Ops.SQRT: DIVISION, Ops.FLOORDIV: DIVISION, Ops.FLOORMOD: DIVISION, Ops.CDIV: DIVISION,
    Ops.CMOD: DIVISION, Ops.THREEFRY: 60.0, Ops.INDEX: LOAD,
}  # fmt: skip


def op_cost(u: UOp) -> float:
    """The cost of a node without its sources."""
    own = CHEAP if u.op.is_alu or u.op in (Ops.CAST, Ops.BITCAST, Ops.WHERE) else 0.0
    return _OP_COST.get(u.op, own)


def as_many(s: UOp, u: UOp) -> bool:
    """Whether a source has as many elements as its user. One with fewer is repeated: it is decided
    on by itself, and computing `u` again does not compute it again."""
    dims, wanted = analysis.shape(s), analysis.shape(u)
    same = dims == wanted or analysis.size(dims) == analysis.size(wanted)
    return u.op is not Ops.EXPAND and same


def is_stored_by_part(u: UOp) -> bool:
    """Whether a value is put together from so many parts that each gets a loop of its own."""
    return u.op in (Ops.STACK, Ops.CAT) and len(u.src) > MOST_PARTS


def fits_tile(u: UOp) -> bool:
    """Whether a value is small enough for local storage; its size must be known."""
    size = analysis.size(analysis.shape(u))
    return isinstance(size, int) and size * u.dtype.itemsize <= TILE_BYTES


def is_contraction(u: UOp) -> bool:
    """Whether a REDUCE sums products of operands that are used again: a matrix product or
    convolution."""
    product = u.src[0]
    return product.op is Ops.MUL and all(
        [not as_many(s, product) or _is_repeated(s) for s in product.src]
    )


def keeps_order(u: UOp) -> bool:
    """Whether a value over a contraction is computed in the loops of that. A view in another order
    is not: the loops of what is stored are to be those of the contraction."""
    return u.op.is_alu or u.op in (Ops.CAST, Ops.WHERE, Ops.RESHAPE)


def _is_repeated(u: UOp) -> bool:
    """Whether a value is a view that has elements of its source more than once."""
    while u.op.movement or u.op in (Ops.CAST, Ops.AFTER):
        if u.op is Ops.EXPAND:
            return True
        u = u.src[0]
    return False


def cost_of_reduce(u: UOp, term: float) -> float:
    """The cost of an element of a REDUCE, given that of one of its terms."""
    dims = analysis.shape(u.src[0])
    length = 1.0
    for axis in u.arg.axes:
        length *= analysis.max_dim(dims[axis])
    return min(ENOUGH, length * (term + CHEAP))


class Choice(NamedTuple):
    """Whether a value is stored, and why, in words for the dump."""

    stored: bool
    words: str
    numbers: tuple[float, ...] = ()  # what stands in the words

    @property
    def reason(self) -> str:
        return self.words.format(*self.numbers)


_ONCE = Choice(False, "computed once where it is read")


def choose_storage(value: Value, evaluations: float, apart: float, reads: int) -> Choice:
    """`evaluations` of one element in all, if each of the `reads` readers computes its own; those
    `apart` are of different elements, or at places that no register tile has together."""
    elements, cost = value.elements, value.cost
    if evaluations <= elements:
        return _ONCE
    times = evaluations / max(elements, 1.0)
    if not value.has_reduce:
        if cost <= CHEAP_VALUE:
            return Choice(False, "cheap: computed {:.3g} times rather than stored", (times,))
        evaluations = apart + (evaluations - apart) / REUSE
    if elements * (cost + STORE) + evaluations * LOAD + KERNEL < evaluations * cost:
        words = "each element would be computed {:.3g} times, at {} places"
        return Choice(True, words, (times, reads))
    return Choice(False, "cheaper to compute {:.3g} times than to store", (times,))


def whole_cost(
    u: UOp, stored: Container[UOp], loops: Container[UOp], most: float = LONG_VALUE
) -> float:
    """The cost of one element by itself, what is repeated in others included; up to `most`.
    Values with loops of their own, decided on by themselves, cost nothing."""
    total, seen, stack = 0.0, {u}, [u]
    while stack and total <= most:
        v = stack.pop()
        total += op_cost(v)
        new = [s for s in v.src if s not in seen and s not in stored and s not in loops]
        seen.update(new)
        stack += new
    return total


def share_work(parts: Sequence[UOp], stored: Container[UOp]) -> bool:
    """Whether values of one shape, none with a reduce, are at least twice as cheap to compute in
    one loop as each by itself, and long: rows of a Jacobian, say, or states of a rollout, of which
    each stands on all before it. Parts are walked until they cost so much: no more than twice
    what all of them are."""
    together, seen, stack = 0.0, set(parts), list(parts)
    while stack:
        v = stack.pop()
        if v.op is Ops.REDUCE:
            return False
        together += op_cost(v)
        new = [s for s in v.src if s not in seen and s not in stored]
        seen.update(new)
        stack += new
    enough = max(LONG_VALUE, 2 * together)
    alone = 0.0
    for p in parts:
        alone += whole_cost(p, stored, (), enough)
        if alone > enough:
            return True
    return False


def is_loopless(u: UOp, stored: Container[UOp]) -> bool:
    """Whether computing a value takes no reduce."""
    return not any(
        v.op is Ops.REDUCE for v in analysis.toposort(u, gate=lambda v: v not in stored)
    )


def choose_scattered(value: Value, whole: float, evaluations: float, choice: Choice) -> Choice:
    """Whether a value is stored that would be computed at places which share nothing."""
    stored = value.elements * (value.cost + STORE) + evaluations * LOAD + KERNEL
    if whole <= LONG_VALUE or evaluations * whole <= stored:
        return choice
    return Choice(True, "long, and read at places that share nothing")


def is_light(cost: float, read: int) -> bool:
    """Whether a value over reduces is computed each time once they are stored, rather than stored
    itself: a sum of a few values, not of all that came before in a deep graph."""
    return cost <= CHEAP_VALUE and read <= MOST_READ


def choose_tiling(value: Value, choice: Choice) -> Choice:
    """Whether a contraction that is read in the loop of another reduce, or at several places, is
    stored."""
    saved = value.elements * (value.cost * TILED - STORE - LOAD) - KERNEL
    if choice.stored or saved <= 0.0:
        return choice
    return Choice(True, "read in a reduce or in parts, with sums that need a tile of their own")
