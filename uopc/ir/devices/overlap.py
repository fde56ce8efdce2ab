"""Exchanges that overlap with launches: the order of calls, and the end of an exchange's use of
memory.

An exchange starts at its place among the calls, and is awaited before the first later call that
reads or writes the received memory, or writes the sent memory.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from uopc.ir.core.calls import exchanges_of
from uopc.ir.core.storage import arguments, outer_ranges, read_slots, storage_root, written_slots
from uopc.ir.core.uop import UOp


class _CallStorages:
    """The storages that each call of a program reads and writes."""

    def __init__(self, program: UOp) -> None:
        slots = {c.src[0]: (read_slots(c.src[0]), written_slots(c.src[0])) for c in program.src}
        self.reads: list[set[UOp]] = []
        self.writes: list[set[UOp]] = []
        for call in program.src:
            args = arguments(call)
            for found, own in zip((self.reads, self.writes), slots[call.src[0]]):
                found.append({storage_root(args[slot]) for slot in own})

    def meet(self, a: int, b: int) -> bool:
        """True if two calls access a common storage that either writes."""
        mine, other = self.writes[a], self.writes[b]
        return not (
            mine.isdisjoint(other) and mine.isdisjoint(self.reads[b])
            and other.isdisjoint(self.reads[a])
        )  # fmt: skip

    def needed(self) -> list[set[int]]:
        """The earlier calls that each call must follow; indirect predecessors may be missing."""
        writer: dict[UOp, int] = {}
        readers: dict[UOp, set[int]] = {}
        found: list[set[int]] = []
        for number, (reads, writes) in enumerate(zip(self.reads, self.writes)):
            before = {writer[s] for s in reads | writes if s in writer}
            for s in writes:
                before |= readers.pop(s, set())
                writer[s] = number
            for s in reads - writes:
                readers.setdefault(s, set()).add(number)
            found.append(before - {number})
        return found


def awaited(program: UOp) -> dict[int, int]:
    """By the call number of an exchange, the number of the call before which the exchange is
    awaited: the number of calls, if no call needs its memory. If that call is in a loop, the wait
    comes before the loop; an exchange in a loop runs alone."""
    calls, touched = program.src, _CallStorages(program)
    found = {}
    for number in [i for i, c in enumerate(calls) if exchanges_of(c.src[0])]:
        later = range(number + 1, len(calls))
        first = next((j for j in later if touched.meet(number, j)), len(calls))
        while first < len(calls) and first > number + 1 and _in_one_loop(calls, first):
            first -= 1
        found[number] = number + 1 if outer_ranges(calls[number]) else first
    return found


def _in_one_loop(calls: tuple[UOp, ...], number: int) -> bool:
    """True if a loop runs around call `number` and the call before."""
    return not set(outer_ranges(calls[number])).isdisjoint(outer_ranges(calls[number - 1]))


def order_for_overlap(program: UOp) -> list[int]:
    """An order of the calls in which exchanges start early, and calls that wait for them come late.

    Among the exchanges that wait for no running exchange, take the one with the fewest further
    calls. If all wait, first place all calls that wait for none. The order of a program with loops
    of calls does not change.
    """
    calls = program.src
    if any(map(outer_ranges, calls)):
        return list(range(len(calls)))
    needed = _CallStorages(program).needed()
    exchanges = [i for i, c in enumerate(calls) if exchanges_of(c.src[0])]
    below = {i: _all_below(i, needed) for i in exchanges}
    order: dict[int, None] = {}
    running: list[int] = []
    while exchanges or running:
        late = _late(needed, running, order)
        free = [e for e in exchanges if e not in late]
        if free:
            chosen = min(free, key=lambda e: (len(below[e] - order.keys()), e))
            order.update(dict.fromkeys([*sorted(below[chosen] - order.keys()), chosen]))
            exchanges.remove(chosen)
            running.append(chosen)
        else:
            order.update(dict.fromkeys([i for i in range(len(calls)) if i not in late]))
            running.pop(0)
    order.update(dict.fromkeys(range(len(calls))))
    return list(order)


def _late(
    needed: Sequence[set[int]], running: Sequence[int], done: Container[int]
) -> set[int]:  # fmt: skip
    """The remaining calls that wait for a running exchange."""
    found = set(running)
    for number, before in enumerate(needed):
        if number not in done and not found.isdisjoint(before):
            found.add(number)
    return found - set(running)


def _all_below(number: int, needed: Sequence[set[int]]) -> set[int]:
    """All calls that a call must follow."""
    found: set[int] = set()
    left: Iterable[int] = needed[number]
    while left:
        found |= set(left)
        left = {n for i in left for n in needed[i]} - found
    return found
