"""The launches of a program for several devices: which device runs each, and in which round.

Devices run their launches of a round at the same time, each in order, and wait for each other
before the next round. A launch is in a later round than launches of other devices that write what
it reads or writes, or read what it writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import arguments, outer_ranges, read_slots, storage_root, written_slots
from uopc.ir.core.uop import UOp
from uopc.ir.devices import device
from uopc.ir.index import affine, closed

# Where the elements that a kernel writes begin, and of its loops the strides and lengths.
Form = tuple[UOp, tuple[tuple[int, UOp], ...]]
MOST_TRIED = 64  # combinations of loop counters, before two stores are taken to overlap


class LaunchPlace(NamedTuple):
    """The device of a launch, by its number in the program, and its round."""

    device: int
    round: int


class _KernelSlots(NamedTuple):
    """The slots that a kernel reads, and those that it writes: the elements, where they are known.
    """

    reads: list[int]
    writes: dict[int, Form | None]

    @staticmethod
    def of(kernel: UOp) -> _KernelSlots:
        reads, writes = read_slots(kernel), written_slots(kernel)
        return _KernelSlots(reads, {slot: _stored(kernel, slot, reads) for slot in writes})


class _LaunchAccess(NamedTuple):
    """An access of a launch: the part of some storage, and what the launch does with it."""

    begin: float
    end: float
    writes: bool
    stored: Form | None  # the elements that it writes, where they are known
    place: LaunchPlace


def _named(argument: UOp) -> list[str]:
    """The device of the storage of an argument, if it names one."""
    root = storage_root(argument)
    named = root.op in (Ops.PARAM, Ops.BUFFER) and root.arg.device
    return [device.named(root.arg.device)] if named else []


def own_device(call: UOp) -> str:
    """The device that runs a launch: that of all it reads, else of what it writes. Empty where all
    of its storage is the caller's, which any device reaches, or is on several devices."""
    kernel = call.src[0]
    return _own_device(arguments(call), read_slots(kernel), written_slots(kernel))


def _own_device(args: Sequence[UOp], read: Iterable[int], written: Iterable[int]) -> str:
    reads = {name for slot in read for name in _named(args[slot])}
    if len(reads) == 1:
        return reads.pop()
    writes = {name for slot in written for name in _named(args[slot])}
    return writes.pop() if len(writes) == 1 else ""


def placed(program: UOp, devices: Sequence[str]) -> list[LaunchPlace]:
    """The place of each launch of a program, a LINEAR of CALLs, on devices; none on one device, or
    if it has loops of launches.

    A launch that any device may run is run by the one that gets to it first.
    """
    if len(devices) < 2 or any(map(outer_ranges, program.src)):
        return []
    made: list[LaunchPlace] = []
    load: Counter[int] = Counter()
    accesses: dict[UOp, list[_LaunchAccess]] = {}
    kernels = {kernel: _KernelSlots.of(kernel) for kernel in {call.src[0] for call in program.src}}
    for call in program.src:
        kernel, args = kernels[call.src[0]], arguments(call)
        needed = _accesses(kernel, args)
        own = _own_device(args, kernel.reads, kernel.writes)
        candidates = [devices.index(own)] if own else range(len(devices))
        choices = [(_round(d, needed, accesses), load[d], d) for d in candidates]
        first, _, chosen = min(choices)
        place = LaunchPlace(chosen, first)
        load[chosen] += 1
        for root, access in needed:
            accesses.setdefault(root, []).append(access._replace(place=place))
        made.append(place)
    return made


def _round(
    own: int, needed: Sequence[tuple[UOp, _LaunchAccess]], accesses: dict[UOp, list[_LaunchAccess]]
) -> int:
    """The first round in which a device may do this."""
    first = 0
    for root, access in needed:
        for other in accesses.get(root, ()):
            wait = other.place.round + (other.place.device != own)
            if wait > first and _meet(access, other):
                first = wait
    return first


def _accesses(kernel: _KernelSlots, args: Sequence[UOp]) -> list[tuple[UOp, _LaunchAccess]]:
    """The accesses of a launch, for each storage among its arguments."""
    found = []
    for slot, a in enumerate(args):
        root = storage_root(a)
        if not root.op.is_storage:
            continue
        begin, size = a.arg if a.op is Ops.SLICE else (0, inf)
        stored = kernel.writes.get(slot)
        if not isinstance(size, (int, float)) or not isinstance(begin, int):
            begin, size, stored = 0, inf, None
        if stored is not None:
            stored = affine.plus(stored[0], begin), stored[1]
        place = LaunchPlace(0, 0)
        writes = slot in kernel.writes
        found.append((root, _LaunchAccess(begin, begin + size, writes, stored, place)))
    return found


def _meet(a: _LaunchAccess, b: _LaunchAccess) -> bool:
    """True if two accesses to one storage may touch an element that one of them writes."""
    if not (a.writes or b.writes) or a.end <= b.begin or b.end <= a.begin:
        return False
    if a.writes and b.writes and a.stored is not None and b.stored is not None:
        return not _are_apart(a.stored, b.stored)
    return True


def _stored(kernel: UOp, slot: int, reads: Sequence[int]) -> Form | None:
    """The elements that a kernel stores to an argument that it does not read, if one sum of loop
    counters gives them all."""
    stores = [u for u in walk.toposort(kernel) if u.op is Ops.STORE and _slot(u.src[0]) == slot]
    if kernel.op is not Ops.SINK or len(stores) != 1 or slot in reads:
        return None
    target = stores[0].src[0]
    if target.op is not Ops.INDEX or len(target.src) != 2:
        return None
    index = target.src[1]
    if index.op is Ops.WHERE and index.src[2].op is Ops.INVALID:  # where it is stored at all
        index = index.src[1]
    constant, terms = affine.form(index)
    begin, loops = affine.const(constant), []
    for r, stride in terms.items():
        if r.op is Ops.RANGE and closed.is_closed(r.src[0]):
            loops.append((stride, r.src[0]))
        elif closed.is_closed(r):
            begin = affine.add(begin, affine.scaled(r, stride))
        else:
            return None
    return begin, tuple(loops)


def _slot(address: UOp) -> int:
    root = storage_root(address)
    return int(root.arg.slot) if root.op is Ops.PARAM else -1


def _are_apart(a: Form, b: Form) -> bool:
    """True if two sets of elements have none in common: one ends before the other begins, or no
    counters give the same element."""
    wanted = affine.sub(a[0], b[0])
    lengths = [n for _, n in (*a[1], *b[1])]
    if not all(map(affine.is_const, (wanted, *lengths))):
        (begin, end), (first, last) = _span(a), _span(b)
        return affine.at_most(end, first) or affine.at_most(last, begin)
    return _are_apart_by(
        int(wanted.arg), *[[(stride, int(n.arg)) for stride, n in loops] for _, loops in (a, b)]
    )


def _span(stored: Form) -> tuple[UOp, UOp]:
    """The begin and end of elements."""
    begin = last = stored[0]
    for stride, n in stored[1]:
        reach = affine.scaled(affine.plus(n, -1), stride)
        if stride > 0:
            last = affine.add(last, reach)
        else:
            begin = affine.add(begin, reach)
    return begin, affine.plus(last, 1)


def _are_apart_by(gap: int, *loops: list[tuple[int, int]]) -> bool:
    """True if no counters of these two nests, of strides and lengths, are a gap apart."""
    span: dict[int, tuple[int, int]] = {}  # by stride: the least and greatest sum of counters
    for sign, own in zip((-1, 1), loops):
        for stride, length in own:
            low, high = span.get(abs(stride), (0, 0))
            both = 0, (length - 1) * (sign if stride > 0 else -sign)
            span[abs(stride)] = low + min(both), high + max(both)
    strides = sorted(span.items(), reverse=True)
    tried = 0
    left = [(0, gap)]  # strides from this one on have to give this sum
    while left:
        at, wanted = left.pop()
        if at == len(strides):
            if not wanted:
                return False
            continue
        stride, (low, high) = strides[at]
        rest = [(s * x, s * y) for s, (x, y) in strides[at + 1 :]]
        least, most = sum([x for x, _ in rest]), sum([y for _, y in rest])
        first = max(low, -((most - wanted) // stride))
        last = min(high, (wanted - least) // stride)
        tried += last - first + 1
        if tried > MOST_TRIED:
            return False
        left += [(at + 1, wanted - stride * k) for k in range(first, last + 1)]
    return True


def in_order(places: Iterable[LaunchPlace]) -> bool:
    """True if no launch comes before one of an earlier round."""
    rounds = [p.round for p in places]
    return rounds == sorted(rounds)
