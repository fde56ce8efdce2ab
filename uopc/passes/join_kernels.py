"""Kernels that walk the same loops over the same array become one: it is read once.

Before (program)                              After (program)
  // kernel ""                                  // kernel ""
    %1 = param "" slot=0 : f32[8192]              %1 = param "" slot=0 : f32[8192]
    %2 = range 8192 axis=0 kind=loop : index      %2 = range 8192 axis=0 kind=loop : index
    %3 = param "" slot=1 : f32[8192]              %3 = param "" slot=1 : f32[8192]
    %4 = mul %3[%2], 2.0:f32 : f32                %4 = mul %3[%2], 2.0:f32 : f32
    %5 = store %1[%2], %4                         %5 = store %1[%2], %4
    %6 = end %5, %2                               %6 = end %5, %2
    %7 = sink %6 name=""                          %7 = param "" slot=2 : f32[8192]
  // kernel ""                                    %8 = exp %3[%2] : f32
    %1 = param "" slot=0 : f32[8192]              %9 = store %7[%2], %8
    %2 = range 8192 axis=0 kind=loop : index      %10 = end %9, %2
    %3 = param "" slot=1 : f32[8192]              %11 = sink %6, %10 name=""
    %8 = exp %3[%2] : f32                       // program
    %9 = store %1[%2], %8                       %12 = buffer slot=0 : f32[8192]
    %10 = end %9, %2                            %13 = param x : f32[8192]
    %11 = sink %10 name=""                      %14 = buffer slot=1 : f32[8192]
  // program                                    linear {
  %12 = buffer slot=0 : f32[8192]                 call %11, %12, %13, %14  // ""
  %13 = param x : f32[8192]                     }
  %14 = buffer slot=1 : f32[8192]
  linear {
    call %7, %12, %13  // ""
    call %11, %14, %13  // ""
  }

Two kernels in the same outer loops are joined if each has one closed store, in loops of the same
lengths, both read one
array at the same index in each iteration, and they read more of it than the nearest cache holds.
Loops of reduces stay separate here; `simplify-ranges` joins them. The second kernel moves up to the
first, so no kernel between them may read or write what it writes, or write what it reads.
"""

from __future__ import annotations

from typing import NamedTuple

from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes, walk
from uopc.ir.core.args import KernelArg, ParamArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import (
    VARIABLES,
    arguments,
    outer_ranges,
    read_slots,
    storage_root,
    written_slots,
)  # fmt: skip
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.devices import launches
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.argument_limits import Limit
from uopc.passes.contract import Context

# More stores than this in a kernel leave too few registers for each.
MOST_STORES = 4
# A kernel of more nodes is long enough for reading not to matter.
MOST_NODES = 200

_INNER = 1 << 20  # an axis that no kernel has, for inner ranges to be the same in every kernel

Address = tuple["UOp", tuple["UOp", ...]]  # storage as a kernel is called with it, and an index
Key = tuple[tuple["UOp", ...], Address]
Walk = tuple[tuple["UOp", ...], int, tuple["UOp", ...]]  # loops, the slot of some storage, an index


class Apart(NamedTuple):
    """Two calls in the same loops over the same array that are not joined, with the reason."""

    one: UOp
    two: UOp
    why: str


class _CallJoiner:
    """The calls so far, and the last call that used each storage."""

    def __init__(self, least: int, limit: Limit, several: bool) -> None:
        self.several = several  # devices, each of which runs its own kernels
        self.least = least  # bytes that both must read
        self.limit = limit
        self.calls: list[UOp] = []
        self.written: dict[UOp, int] = {}  # storage -> the last call that writes it
        self.touched: dict[UOp, int] = {}
        self.walks: dict[Key, int] = {}  # the last call that reads an address in given loops
        self.facts: dict[UOp, tuple[set[int], set[int], list[Walk]]] = {}
        self.refused: list[Apart] = []

    def add(self, call: UOp) -> None:
        """Add a call: joined to an earlier one if possible."""
        kernel, args = call.src[0], arguments(call)
        if kernel not in self.facts:
            written = set(written_slots(kernel))
            only_written = written.difference(read_slots(kernel))
            self.facts[kernel] = written, only_written, _walks(kernel, self.least)
        written, only_written, walks = self.facts[kernel]
        keys = [(loops, (args[slot], index)) for loops, slot, index in walks]
        roots = [storage_root(a.src[1] if a.op is Ops.BIND else a) for a in args]
        reads = {r for slot, r in enumerate(roots) if slot not in only_written}
        writes = {roots[slot] for slot in written}
        at = self._partner(call, keys, reads, writes)
        if at is None:
            at = len(self.calls)
            self.calls.append(call)
        else:
            self.calls[at] = _join_calls(self.calls[at], call)
        for root in reads | writes:
            self.touched[root] = max(at, self.touched.get(root, -1))
        for root in writes:
            self.written[root] = max(at, self.written.get(root, -1))
        self.walks.update(dict.fromkeys(keys, at))

    def _partner(
        self, call: UOp, keys: list[Key], reads: set[UOp], writes: set[UOp]
    ) -> int | None:
        """The first earlier call with one of these walks that this call can join."""
        found = sorted({self.walks[key] for key in keys if key in self.walks})
        if not found:
            return None
        ready = max([self.written.get(root, -1) for root in reads], default=-1)
        ready = max([ready, *[self.touched.get(root, -1) for root in writes]])
        size = len(walk.order(call.src[0]))
        for at in found:
            why = self._refusal(self.calls[at], call, size, ready < at)
            if not why:
                return at
            self.refused.append(Apart(self.calls[at], call, why))
        return None

    def _refusal(self, one: UOp, call: UOp, size: int, is_ready: bool) -> str:
        """The reason why a call is not joined to an earlier one; empty if there is none."""
        earlier = one.src[0]
        if len(earlier.src) >= MOST_STORES:
            return f"{MOST_STORES} stores are the most of one kernel"
        if size + len(walk.order(earlier)) > MOST_NODES:
            return f"together they have more than {MOST_NODES} nodes"
        if not is_ready or outer_ranges(one) != outer_ranges(call):
            return "what runs between them reads or writes their storage"
        if self.limit.buffers < _buffers(one, call):
            return "together they have more arguments than a kernel may have"
        return "" if self._on_one_device(one, call) else "they run on several devices"

    def _on_one_device(self, one: UOp, two: UOp) -> bool:
        if not self.several:
            return True
        first = launches.own_device(one)
        return first != "" and first == launches.own_device(two)


def _buffers(*calls: UOp) -> int:
    """The number of buffers of a kernel for several calls."""
    return len({a for call in calls for a in arguments(call) if a.op not in VARIABLES})


def _walks(kernel: UOp, least: int) -> list[Walk]:
    """The addresses that a kernel reads in each iteration of its output loops, with these loops;
    only addresses with at least `least` bytes in all."""
    if kernel.op is not Ops.SINK or kernel.arg != KernelArg() or len(kernel.src) != 1:
        return []
    end = kernel.src[0]
    store, loops = (end.src[0], end.src[1:]) if end.op is Ops.END else (end, ())
    if store.op is not Ops.STORE:
        return []
    found = []
    for a in nest_of(kernel).read:
        read = a.loops.issuperset(loops) and a.footprint(a.loops) >= least
        if a.node.src[0].op is Ops.PARAM and read:
            inner = sorted(a.loops.difference(loops), key=lambda r: r.arg.axis)
            names = rebuild.renamed_ranges({r: (_INNER, i) for i, r in enumerate(inner)})
            index = tuple([rebuild.rebuild(s, names) for s in a.node.src[1:]])
            found.append((loops, a.node.src[0].arg.slot, index))
    return found


def _join_calls(one: UOp, two: UOp) -> UOp:
    """One call for two: both stores, and the second's storage after the first's."""
    kernel, other = one.src[0], two.src[0]
    args = [a for a in arguments(one) if a.op not in VARIABLES]
    bound = {a.src[0]: a for call in (one, two) for a in arguments(call) if a.op is Ops.BIND}
    mapping: dict[UOp, UOp] = {}
    for u in walk.order(other):
        if u.op is Ops.PARAM:
            argument = two.src[1 + u.arg.slot]
            if argument not in args:
                args.append(argument)
            arg = ParamArg("", u.arg.dims, args.index(argument))
            mapping[u] = intern(Ops.PARAM, u.dtype, u.src, arg)
    first = 1 + max([r.arg.axis[0] for r in _ranges(kernel)], default=0)
    loops = other.src[0].src[1:] if other.src[0].op is Ops.END else ()
    inner = [r for r in _ranges(other) if r not in loops]
    mapping |= rebuild.renamed_ranges({r: (r.arg.axis[0] + first, *r.arg.axis[1:]) for r in inner})
    moved = rebuild.rebuild(other.src[0], mapping)
    both = intern(Ops.SINK, dtypes.void, (*kernel.src, moved), KernelArg())
    set_origin(both, kernel.origin)
    loops = outer_ranges(one)
    variables = [bound.get(v, v) for v in walk.variables(both)]
    return intern(Ops.CALL, dtypes.void, (both, *args, *variables, *loops))


def _ranges(kernel: UOp) -> list[UOp]:
    return [u for u in walk.order(kernel) if u.op is Ops.RANGE]


def _joined(program: UOp, context: Context) -> _CallJoiner:
    several = len(context.devices) > 1
    joiner = _CallJoiner(context.target.l1_bytes // 2, Limit.of(context), several)
    for call in program.src:
        joiner.add(call)
    return joiner


def refused(program: UOp, context: Context) -> list[Apart]:
    """The calls that `join_kernels` leaves apart though they walk the same loops over an array."""
    return _joined(program, context).refused


def join_kernels(program: UOp, context: Context) -> UOp:
    """The program with kernels that read the same array in the same loops joined."""
    calls = _joined(program, context).calls
    return intern(Ops.LINEAR, program.dtype, tuple(calls), program.arg)
