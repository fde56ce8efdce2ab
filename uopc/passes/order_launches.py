"""Order the launches of several devices by rounds, between which devices wait for each other.

Before (program), devices=cpu+cpu:1            After (program)
  // kernel double                               // kernel double
    %1 = param "" slot=0 : f32[4]                  %1 = param "" slot=0 : f32[4]
    %2 = range 4 axis=0 kind=loop : index          %2 = range 4 axis=0 kind=loop : index
    %3 = param "" slot=1 : f32[4]                  %3 = param "" slot=1 : f32[4]
    %4 = mul %3[%2], 2.0:f32 : f32                 %4 = mul %3[%2], 2.0:f32 : f32
    %5 = store %1[%2], %4                          %5 = store %1[%2], %4
    %6 = end %5, %2                                %6 = end %5, %2
    %7 = sink %6 name=double                       %7 = sink %6 name=double
  // program                                     // program
  %8 = buffer slot=0 device=cpu : f32[4]         %8 = buffer slot=0 device=cpu : f32[4]
  %9 = param x : f32[4]                          %9 = param x : f32[4]
  %10 = buffer slot=1 device="cpu:1" : f32[4]    %10 = buffer slot=1 device="cpu:1" : f32[4]
  %11 = buffer slot=2 device=cpu : f32[4]        %11 = buffer slot=2 device=cpu : f32[4]
  linear {                                       linear {
    call %7, %8, %9  // double                     call %7, %8, %9  // double
    call %7, %10, %8  // double                    call %7, %10, %8  // double
    call %7, %11, %9  // double                    call %7, %11, %9  // double
  }                                              }

A launch is in a later round than launches of other devices whose storage it needs. What devices do
in one round stands together, so that as few rounds as possible are waited for. Where exchanges run
beside launches, each stands as early as it can, and what waits for it late. Any other program for
one device stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import arguments, outer_ranges, read_slots, storage_root, written_slots
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import launches, overlap
from uopc.ir.devices.launches import LaunchPlace
from uopc.ir.index import affine, closed
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.nest import nest_of
from uopc.passes.contract import Context

# Where the elements that a kernel writes begin, and of its loops the strides and lengths.
_Written = tuple[UOp, tuple[tuple[int, UOp], ...]]
_MOST_TRIED = 64  # combinations of loop counters, before two stores are taken to overlap
# A launch that any device may run may change its device, and round, when the order changes.
MOST_CHANGES = 4


def order_launches(program: UOp, context: Context) -> UOp:
    """The program with its launches by round, or around exchanges."""
    if context.sharding is not None and context.sharding.bucket:
        return _ordered(program, overlap.order_for_overlap(program))
    for _ in range(MOST_CHANGES):
        rounds = [p.round for p in placed(program, context.devices)]
        if rounds == sorted(rounds):
            break
        program = _ordered(program, sorted(range(len(rounds)), key=rounds.__getitem__))
    return program


def _ordered(program: UOp, order: Sequence[int]) -> UOp:
    """The program with its calls in an order of their numbers."""
    calls = tuple([program.src[i] for i in order])
    return intern(program.op, program.dtype, calls, program.arg, program.tag)


# ---------------------------------------------------------------- rounds
class _KernelSlots(NamedTuple):
    """The slots that a kernel reads, and the slots that it writes, with the elements if known."""

    reads: list[int]
    writes: dict[int, _Written | None]

    @staticmethod
    def of(kernel: UOp) -> _KernelSlots:
        reads, writes = read_slots(kernel), written_slots(kernel)
        if kernel.op is not Ops.SINK:
            return _KernelSlots(reads, dict.fromkeys(writes))
        return _KernelSlots(reads, {n: None if n in reads else _written(kernel, n) for n in writes})


class _Touch(NamedTuple):
    """A part of some storage that a launch touches, and what the launch does with it."""

    begin: float
    end: float
    writes: bool
    stored: _Written | None  # the elements that it writes, where they are known
    place: LaunchPlace


def placed(program: UOp, devices: Sequence[str]) -> list[LaunchPlace]:
    """The place of each launch of a program, a LINEAR of CALLs, on devices; none on one device, or
    if it has loops of launches.

    A launch that any device may run is run by the one that gets to it first.
    """
    if len(devices) < 2 or any(map(outer_ranges, program.src)):
        return []
    made: list[LaunchPlace] = []
    load: Counter[int] = Counter()
    touched: dict[UOp, list[_Touch]] = {}
    kernels = {kernel: _KernelSlots.of(kernel) for kernel in {call.src[0] for call in program.src}}
    for call in program.src:
        kernel, args = kernels[call.src[0]], arguments(call)
        needed = _touches(kernel, args)
        own = launches.device_of(args, kernel.reads, kernel.writes)
        candidates = [devices.index(own)] if own else range(len(devices))
        choices = [(_round(d, needed, touched), load[d], d) for d in candidates]
        first, _, chosen = min(choices)
        place = LaunchPlace(chosen, first)
        load[chosen] += 1
        for root, touch in needed:
            touched.setdefault(root, []).append(touch._replace(place=place))
        made.append(place)
    return made


def _round(
    own: int, needed: Sequence[tuple[UOp, _Touch]], touched: dict[UOp, list[_Touch]]
) -> int:  # fmt: skip
    """The first round in which a device may do this."""
    first = 0
    for root, touch in needed:
        for other in touched.get(root, ()):
            wait = other.place.round + (other.place.device != own)
            if wait > first and _meet(touch, other):
                first = wait
    return first


def _touches(kernel: _KernelSlots, args: Sequence[UOp]) -> list[tuple[UOp, _Touch]]:
    """The part of each storage among its arguments that a launch touches."""
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
        found.append((root, _Touch(begin, begin + size, slot in kernel.writes, stored, place)))
    return found


def _meet(a: _Touch, b: _Touch) -> bool:
    """True if two launches may touch an element of one storage that one of them writes."""
    if not (a.writes or b.writes) or a.end <= b.begin or b.end <= a.begin:
        return False
    if a.writes and b.writes and a.stored is not None and b.stored is not None:
        return not _are_apart(a.stored, b.stored)
    return True


def _written(kernel: UOp, slot: int) -> _Written | None:
    """The elements that a kernel stores to an argument, if one sum of loop counters gives all."""
    targets = [u.src[0] for u in nest_of(kernel).stores]
    targets = [u for u in targets if (p := storage_root(u)).op is Ops.PARAM and p.arg.slot == slot]
    if len(targets) != 1 or targets[0].op is not Ops.INDEX or len(targets[0].src) != 2:
        return None
    constant, terms = Access(targets[0]).form
    begin, loops = affine.const(constant), []
    for r, stride in terms.items():
        if r.op is Ops.RANGE and closed.is_closed(r.src[0]):
            loops.append((stride, r.src[0]))
        elif closed.is_closed(r):
            begin = affine.add(begin, affine.scaled(r, stride))
        else:
            return None
    return begin, tuple(loops)


def _are_apart(a: _Written, b: _Written) -> bool:
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


def _span(stored: _Written) -> tuple[UOp, UOp]:
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
        if tried > _MOST_TRIED:
            return False
        left += [(at + 1, wanted - stride * k) for k in range(first, last + 1)]
    return True
