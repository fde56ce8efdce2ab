"""The cycles of a kernel on one core: the longest of its units, its chains, and its traffic.

A loop takes the longest of its units (instructions, vector arithmetic, shuffles, loads, stores,
divisions), or of its chains if the processor sees too few iterations at once. Values without a
register come on top. Of the arithmetic and the traffic of a loop the longer counts, and a share of
the shorter. A cost that differs by less than a tenth says nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict

from uopc.cost import vectors
from uopc.cost.machine import MachineFacts
from uopc.cost.parts import Cost, Moved
from uopc.cost.traffic import crossings, store_cycles, traffic_cycles
from uopc.ir.nest.arithmetic import is_shared
from uopc.ir.nest.outline import OUTSIDE, Accumulator, Body, Outline, Reference

_GUARD, _QUOTIENT = 14.0, 5.0  # instructions of a guard that is no mask, of an integer division
_MOST_PER_CYCLE, _LEAST_PER_CYCLE = 4.0, 2.0  # instructions of vector arithmetic


def cycles(outline: Outline, m: MachineFacts, resident: float = 0.0) -> float:
    """The cycles of one run of a kernel, with its launch, after others like it. `resident`: bytes
    that other kernels touch between two runs."""
    return cost_of(outline, m, resident).cycles


def cost_of(outline: Outline, m: MachineFacts, resident: float = 0.0) -> Cost:
    """The cycles of one run of a kernel, and what they are made of."""
    found = crossings(outline, m, resident)
    stores = store_cycles(outline, m)
    memory, computed = traffic_cycles(found, m), loop_cycles(outline, m)
    total = m.launch
    for number, own in computed.items():
        total += m.together(own, memory.get(number, 0.0) + stores.get(number, 0.0))
    moves = [(c, sum([t.lines for t in by.values()]), sum([t.cycles for t in by.values()]))
             for c, by in found]  # fmt: skip
    return Cost(
        total, m.launch, sum(computed.values()),
        tuple([Moved(c.name, c.line * n, taken) for c, n, taken in moves if not c.is_of_pages]),
        sum([taken for c, _, taken in moves if c.is_of_pages]), sum(stores.values()),
    )  # fmt: skip


def loop_cycles(outline: Outline, m: MachineFacts) -> dict[int, float]:
    """By loop: the cycles of its own statements over all its iterations, without traffic."""
    references: dict[int, list[Reference]] = defaultdict(list)
    for r in outline.references:
        references[r.body].append(r)
    outer = {number for body in outline.bodies for number in body.around}
    found = {OUTSIDE: _Units(outline.outside, references[OUTSIDE], m).cycles()}
    for number, body in enumerate(outline.bodies):
        units = _Units(body, references[number], m)
        units.instructions += 2.0  # the loop's own: a comparison, and a branch with the sum
        is_inner = number not in outer
        one = max(units.cycles(), _chain_cycles(body, units, is_inner, m))
        begin = 0.0
        if body.length > 1:
            long = is_inner and body.length > m.predicted
            begin = m.enter + (m.mispredict if long else 0.0)
        entries = math.prod([outline.bodies[q].length for q in body.around])
        found[number] = entries * (body.length * one + begin)
    return found


class _Units:
    """The cycles of each unit of a core that one iteration of a body takes."""

    def __init__(self, body: Body, references: list[Reference], m: MachineFacts) -> None:
        self.m = m
        self.instructions = self.vector = self.shuffle = self.load = self.store = self.divide = 0.0
        self._arithmetic(body)
        loaded = 0.0  # registers of values that stay until all copies have used them
        for r in references:
            registers = self._access(r)
            shared = not r.copies or any(d.stride == 0 for d in r.copies)
            loaded += registers if shared else min(registers, 2.0)
        self.spilled = max(0.0, _live(body, references, loaded, m) - m.registers)

    def cycles(self) -> float:
        """The cycles of an iteration that waits for no result."""
        rate = self.m.issue if self.instructions <= self.m.decoded else self.m.decode
        units = self.vector, self.shuffle, self.load, self.store, self.divide
        return max(self.instructions / rate, *units) + self.m.spill * self.spilled

    # ------------------------------------------------------------ operations
    def _arithmetic(self, body: Body) -> None:
        m, per_cycle = self.m, self.m.multiply_bytes * 8  # bits
        most = min(_MOST_PER_CYCLE, max(_LEAST_PER_CYCLE, per_cycle / m.vector_bits))
        for (kind, lanes, bits), count in body.units.items():
            registers = m.registers_of(lanes, bits) * count
            width = min(lanes * bits, m.vector_bits)
            each = 0.5 if lanes == 1 else 1.0 / min(most, max(1.0, per_cycle / width))
            if kind == "fmul" and m.has_fma:  # a multiply-add takes the product in
                continue
            if kind == "div":
                self.divide += registers * m.division(width / 8, bits)
                self.instructions += registers
            elif kind == "quotient":
                self.instructions += _QUOTIENT * registers
                self.vector += 8 * registers * each * (lanes > 1)
            elif kind == "index":
                self.instructions += registers * (1 + (lanes > 1))
                self.vector += registers * each * (lanes > 1)
            else:
                times = {"dot4": m.dot4, "dot2": m.dot2}.get(kind, 1.0)
                self.instructions += registers
                self.vector += registers * each * times
                if lanes > 1 and kind in ("shuffle", "compare"):
                    whole = kind == "shuffle" or m.has_masks
                    self._shuffles(registers * (1.0 if whole else 0.5))

    def _shuffles(self, count: float) -> None:
        self.shuffle += count * self.m.vector_bytes / self.m.shuffle_bytes

    # ------------------------------------------------------------ accesses
    def _access(self, r: Reference) -> float:
        """Add the instructions of a reference; return the registers that its values take."""
        count = vectors.distinct(r)
        if r.skipped:
            self.instructions += _GUARD * count
        if not r.written:
            return self._loaded(r, count)
        self._stored(r, count)
        return 0.0

    def _crossing(self, r: Reference, nbytes: float) -> float:
        """The cycles of an access that may cross a line, over those of another: the arrays of a
        caller begin anywhere."""
        if r.local or nbytes < 16:
            return 1.0
        return 1.0 + 0.9 * nbytes / self.m.caches[0].line

    def _load(self, r: Reference, nbytes: float, count: float) -> None:
        m = self.m
        self.load += count * max(nbytes / m.load_bytes, 1 / m.loads) * self._crossing(r, nbytes)

    def _store(self, r: Reference, nbytes: float, count: float) -> None:
        m = self.m
        self.store += count * max(nbytes / m.store_bytes, 1 / m.stores) * self._crossing(r, nbytes)

    def _stored(self, r: Reference, count: int) -> None:
        moving = vectors.moving(r.lanes)
        lanes = vectors.product(moving)
        if vectors.is_dense(moving):
            pieces = vectors.pieces(lanes, r.item * 8, self.m)
            nbytes = min(self.m.vector_bytes, lanes * r.item / max(1, pieces))
            self.instructions += count * pieces * (1 + r.masked)
            self._store(r, nbytes, count * pieces)
        else:  # element by element
            self.instructions += 2 * count * lanes
            self._store(r, r.item, count * lanes)
            self.shuffle += 0.75 * count * lanes

    def _loaded(self, r: Reference, count: int) -> float:
        moving = vectors.moving(r.lanes)
        lanes = vectors.product(moving)
        if lanes == 1:  # one number, for all lanes
            self.instructions += count
            self._load(r, r.item, count)
            return 0.0 if self.m.has_masks else 1.0
        registers = count * self.m.registers_of(lanes, r.item * 8)
        if vectors.is_dense(moving):
            pieces = vectors.pieces(lanes, r.item * 8, self.m) * count
            parts, masks = pieces - registers, pieces * r.masked
            nbytes = min(self.m.vector_bytes, lanes * r.item * count / max(1, pieces))
            self.instructions += pieces + parts + 2 * masks
            self._load(r, nbytes, pieces)
            self.shuffle += parts + masks
        else:
            self._gathered(r, count, registers)
        return registers

    def _gathered(self, r: Reference, count: int, registers: int) -> None:
        """Add loads of lanes that are no neighbours."""
        found = vectors.gather(r, count, registers, self.m)
        if found is not None:
            self._load(r, found.nbytes, found.loads)
            self.shuffle += found.shuffles
            self.instructions += found.loads + found.shuffles
            return
        lanes = vectors.product(vectors.moving(r.lanes))
        computed = all(d.stride is None for d in vectors.moving(r.lanes))
        self._load(r, r.item, count * lanes)  # element by element
        self.shuffle += count * lanes * self.m.insert
        self.instructions += count * lanes * (3.5 if computed else 2.0)


# ---------------------------------------------------------------- registers and chains
def _live(body: Body, references: list[Reference], loaded: float, m: MachineFacts) -> float:
    """The values of a body that need registers at once."""
    if not body.accumulators:
        blocks = [r for r in references if not r.written and vectors.is_transposed(r)]
        return sum(
            [vectors.distinct(r) * m.registers_of(vectors.moving(r.lanes)[0].length, r.item * 8)
             for r in blocks if _is_strided(r)]
        )  # fmt: skip
    sums = [
        m.registers_of(a.lanes, a.bits) * a.sums * (1 if _is_shared(a, m) else a.copies)
        for a in body.accumulators
    ]
    held = [m.registers_of(h.lanes, h.bits) * h.copies for h in body.held]
    return sum(sums) + sum(held) + loaded + 1


def _is_strided(r: Reference) -> bool:
    """True for lanes along one dimension that are no neighbours."""
    moving = vectors.moving(r.lanes)
    return len(moving) == 1 and abs(moving[0].stride or 0) > 1


def _is_shared(a: Accumulator, m: MachineFacts) -> bool:
    """True if the copies of a sum add to one accumulator: the registers would not do for all."""
    return a.fused and is_shared(a.sums, a.copies, m.registers)


def _chain_cycles(body: Body, units: _Units, is_inner: bool, m: MachineFacts) -> float:
    """The cycles of an iteration that waits for results: of the iteration before, or of its own."""
    scale = m.latency / 4.0
    count = units.instructions
    if body.carried:
        shared = [a.copies for a in body.accumulators if _is_shared(a, m)]
        waits = body.carried * max(shared, default=1)
        # Other runs of the loop overlap if the processor sees all of one at once.
        under_way = max(1.0, m.window / max(1.0, count * body.length))
        return scale * (waits + body.chain / max(1.0, body.length)) / under_way
    if body.chain and is_inner:  # of the operations that wait the processor sees a window
        return scale * body.chain * count / (m.window + count)
    return 0.0
