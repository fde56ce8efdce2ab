"""An estimate of a linear kernel's cycles, from its statements: it decides which lists are timed.

A loop takes the longest of: its arithmetic and its loads (two vectors per cycle each), its stores
(one), all its statements (four), and the longest chain of additions to one register. Values beyond
the registers cost a store and a load. The traffic between caches is a second limit: the data of
each loop that fits a cache comes from the next cache.

The figures belong to no particular processor. The model only separates lists whose times differ by
a large factor: see `WORTH`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp
from uopc.ir.devices.tensor_cores import is_tile, multiplies_tiles
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.arithmetic import latency
from uopc.ir.nest.loops import most_of, trips
from uopc.target import Target

# A list of Opts is measured if its estimate is at most this many times the least one. The model
# may be wrong by a factor of two either way.
WORTH = 4.0

_PER_CYCLE = {"arithmetic": 2.0, "loads": 2.0, "stores": 1.0, "statements": 4.0}
_SPILL = 2.0  # statements for a value that has no register: a store, and a load
_FREE = frozenset((
    Ops.PARAM, Ops.BUFFER, Ops.CONST, Ops.VARIABLE, Ops.NUMBER, Ops.CARRY, Ops.DATA, Ops.FUNCTION,
))  # fmt: skip


Vectors = Callable[[UOp], float]  # the registers that a value takes
_Around = tuple[tuple[UOp, ...], Access]  # the loops around an access, outer first


@dataclass
class _LoopCycles:
    """An open loop, or the code outside of all loops: the resources that one iteration takes."""

    range: UOp | None
    trips: float
    units: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PER_CYCLE, 0.0))
    body: list[UOp] = field(default_factory=list)
    inner: float = 0.0  # cycles of the loops inside

    def cycles(self, carried: Iterable[UOp], registers: int, vectors: Vectors) -> float:
        """The cycles of all iterations. `carried`: the updates of the loop's registers."""
        spilled = max(0.0, _live(self.body, vectors) - registers)
        self.units["statements"] += _SPILL * spilled
        self.units["loads"] += spilled
        self.units["stores"] += spilled
        least = max(self.units[k] / rate for k, rate in _PER_CYCLE.items())
        chain = max([_chain(u) for u in carried], default=0.0)
        return self.trips * (max(least, chain) + self.inner)


def cycles(kernel: UOp, target: Target) -> float:
    """The estimated cycles of one run of a linear kernel, on one thread."""
    vectors = functools.partial(_vectors, multiplies_tiles(kernel), target.vector_bits)
    stack = [_LoopCycles(None, 1.0)]
    accesses: list[_Around] = []
    for u in kernel.src:
        if u.op is Ops.RANGE:
            turns = 1.0 if u.arg.kind == "thread" else float(most_of(u))
            stack.append(_LoopCycles(u, turns))
        elif u.op is Ops.END and stack[-1].range is u.src[0]:
            loop = stack.pop()
            stack[-1].inner += loop.cycles(u.src[1:], target.registers, vectors)
        elif u.op not in _FREE:
            _count(stack[-1], u, vectors)
            if u.op in (Ops.LOAD, Ops.STORE):
                loops = tuple([s.range for s in stack[1:] if s.range is not None])
                accesses.append((loops, Access(before_effects(u.src[0]), u)))
    computed = stack[0].cycles((), target.registers, vectors)
    return max(computed, _traffic(accesses, target))


def _vectors(has_tiles: bool, bits: int, u: UOp) -> float:
    if has_tiles and is_tile(u.dtype):  # in a register of its own
        return 1.0
    return max(1.0, u.dtype.lanes * u.dtype.scalar.itemsize * 8 / bits)


def _count(loop: _LoopCycles, u: UOp, vectors: Vectors) -> None:
    count = vectors(u.src[1] if u.op is Ops.STORE else u)
    loop.units["statements"] += count
    loop.body.append(u)
    if u.op is Ops.LOAD:
        loop.units["loads"] += count
    elif u.op is Ops.STORE:
        loop.units["stores"] += count
    elif u.op.is_alu and u.dtype.scalar is not dtypes.index:
        loop.units["arithmetic"] += count * max(1.0, u.op.cost)


def _live(body: Sequence[UOp], vectors: Vectors) -> float:
    """The most values of a loop that are in registers at once."""
    last = {s: i for i, u in enumerate(body) for s in u.src}
    known = set(body)
    ends: dict[int, float] = {}
    # Values from outside of the loop are there all the time.
    held = {s for s in last if s not in known and s.dtype.is_float and s.op is not Ops.CONST}
    now = most = sum([vectors(s) for s in held], start=0.0)
    for i, u in enumerate(body):
        if u.dtype.kind != "void" and u.dtype.scalar is not dtypes.index and u in last:
            now += (size := vectors(u))
            ends[last[u]] = ends.get(last[u], 0.0) + size
        most = max(most, now)
        now -= ends.get(i, 0.0)
    return most


def _chain(update: UOp) -> float:
    """The cycles from a register's value to its next value, along the longest path."""
    order = list(walk.toposort(update, gate=lambda u: u.op not in _FREE and u.op is not Ops.LOAD))
    since: dict[UOp, float] = {}
    for u in order:
        before = [since[s] for s in u.src if s in since]
        if u.op is Ops.CARRY:
            since[u] = 0.0
        elif before:
            since[u] = max(before) + latency(u)
    return since.get(update, 0.0)


# ---------------------------------------------------------------- traffic between caches
def _traffic(accesses: Sequence[_Around], target: Target) -> float:
    """The cycles of data transfer between caches, for the slowest pair of neighbouring caches."""
    sizes = (target.l1_bytes, target.l2_bytes, target.last_cache_bytes)
    f = target.figures
    rates = (f.l2_bytes, f.last_bytes, f.memory_bytes)
    return max([_crossing(accesses, size) / rate for size, rate in zip(sizes, rates)])


def _crossing(accesses: Sequence[_Around], size: int) -> float:
    """The bytes that a cache of this size exchanges with the next cache."""
    total = 0.0
    nests: dict[tuple[UOp, ...], list[_Around]] = {}
    for loops, a in accesses:
        nests.setdefault(loops[:1], []).append((loops, a))
    for nest in nests.values():
        deepest = max(len(loops) for loops, _ in nest)
        for depth in range(deepest + 1):
            touched = [a.footprint(_of_thread(loops[depth:])) for loops, a in nest]
            if sum(touched) <= size or depth == deepest:
                runs = [trips(_of_thread(loops[:depth])) for loops, _ in nest]
                total += sum(map(operator.mul, touched, runs))
                break
    return total


def _of_thread(loops: Sequence[UOp]) -> list[UOp]:
    """The loops that one thread runs."""
    return [r for r in loops if r.arg.kind != "thread"]


