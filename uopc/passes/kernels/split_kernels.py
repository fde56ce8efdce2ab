"""Cut the program into kernels and put them in order.

Before (indexed)                           After (program)
  %1 = buffer slot=0 : f32[8]                // kernel ""
  %2 = range 8 axis=0.0 kind=loop : index      %1 = param "" slot=0 : f32[8]
  %3 = param x : f32[8]                        %2 = range 8 axis=0.0 kind=loop : index
  %4 = add %3[%2], 1.0:f32 : f32               %3 = param "" slot=1 : f32[8]
  %5 = store %1[%2], %4                        %4 = add %3[%2], 1.0:f32 : f32
  %6 = end %5, %2                              %5 = store %1[%2], %4
  %7 = after %1, %6 : f32[8]                   %6 = end %5, %2
  sink %7                                      %7 = sink %6 name=""
                                             // program
                                             %8 = buffer slot=0 : f32[8]
                                             %9 = param x : f32[8]
                                             linear {
                                               call %7, %8, %9  // ""
                                             }

Each closed store is a kernel. Its storage becomes PARAMs by slot, the written one first; each index
becomes one flat index. A constant offset that all indices of one storage share moves into the call
as a SLICE, so kernels that differ only in that offset are one node. A kernel runs after those that
write its inputs, and before those that overwrite its inputs; a circular wait is an error. A call of
a program becomes the calls in it; the last operands of each are the loops around it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from uopc.errors import UserError
from uopc.ir.builder import index_maps, leaves, rebuild
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds, dtypes, shapes, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.args import KernelArg, ParamArg
from uopc.ir.core.calls import graph_order
from uopc.ir.core.levels import INDEXED, PROGRAM
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, is_program, read_slots, written_slots
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.programs import calls_with, loops_of
from uopc.passes.analysis.stable_order import stable_order
from uopc.passes.analysis.versions import NEW, Footprint, LaunchGraph, Span, Version, Versions
from uopc.passes.analysis.views import stores_in
from uopc.passes.contract import Context, Pass


class _Slice(NamedTuple):
    """The part of a storage that a kernel is called with: `length` elements from `offset` on."""

    slot: int
    offset: int
    length: shapes.Dim


class _StorageUse(NamedTuple):
    """An INDEX into storage as a flat index with a guard. `gathered`: the index itself is read."""

    root: UOp
    flat: UOp
    guard: UOp
    gathered: bool


@dataclass
class _KernelCall(Footprint):
    """One closed store or call."""

    effect: UOp
    nodes: list[UOp] = field(default_factory=list)
    accesses: dict[UOp, _StorageUse] = field(default_factory=dict)


def is_local(storage: UOp) -> bool:
    """True if storage is a tile of the kernel that reads it. An AFTER says that it is filled."""
    tile = storage.src[0] if storage.op is Ops.AFTER else storage
    return tile.op is Ops.BUFFER and tile.arg.space != "global"


class _KernelCalls:
    """Every closed store and call, each after those whose results it reads."""

    def __init__(self, graph: UOp) -> None:
        self.versions = Versions()
        self._seen: dict[UOp, Version] = {}  # of an effect or AFTER
        self.known: dict[UOp, UOp] = {}  # as for `before_effects`
        effects: dict[UOp, None] = {}
        for u in walk.nodes(graph):
            after = u.op is Ops.AFTER and not is_local(u)
            roots = u.src[1:] if after else u.src if u is graph else ()
            effects |= {e: None for e in roots if e.op in (Ops.END, Ops.STORE, Ops.CALL)}
        self.found: dict[UOp, _KernelCall] = {}
        writers = Counter([r for e in effects for r in self._written(e)])
        for effect in effects:
            made = self._called(effect) if effect.op is Ops.CALL else self._stored(effect)
            seen = self.versions.joined(effect, made.after)
            alone = all([p.root.op is Ops.BUFFER and writers[p.root] == 1 for p in made.writes])
            self._seen[effect] = self.versions.after(effect, seen, not alone)
            self.found[effect] = made

    def _written(self, effect: UOp) -> Iterable[UOp]:
        """The storage that a closed store or call writes."""
        if effect.op is Ops.CALL:
            targets = [effect.src[1 + slot] for slot in written_slots(effect.src[0])]
        else:
            targets = [store.src[0].src[0] for store in stores_in(effect)]
        return dict.fromkeys([before_effects(t, self.known) for t in targets])

    def _called(self, effect: UOp) -> _KernelCall:
        """A call of a hand-written kernel, which may read and write all of its arguments."""
        written, read = written_slots(effect.src[0]), read_slots(effect.src[0])
        args = [a for a in effect.src[1:] if a.op is not Ops.VARIABLE]
        roots = [before_effects(a, self.known) for a in args]
        spans = [Span(root, 0, float("inf"), self.seen(a)) for root, a in zip(roots, args)]
        reads = [s for i, s in enumerate(spans) if i in read]
        writes = [s for i, s in enumerate(spans) if i in written]
        return _KernelCall(reads, writes, [s.seen for s in spans], effect)

    def _stored(self, effect: UOp) -> _KernelCall:
        # The storage that a kernel is called with is a leaf.
        nodes = list(walk.toposort(effect, gate=lambda u: u.op is not Ops.AFTER or is_local(u)))
        stores = stores_in(effect)
        targets = dict.fromkeys([store.src[0] for store in stores])
        closed = set(stores)
        accesses: dict[UOp, _StorageUse] = {}
        spans: dict[UOp, Span] = {}
        read: set[UOp] = set()  # used other than as the target of a store
        loaded: set[UOp] = set()  # depends on a value that is read
        for u in nodes:
            if u.op is Ops.INDEX:
                storage, index = u.src[0], u.src[1:]
                root = before_effects(storage, self.known)
                flat, guard = _flat(shapes.shape(root), index)
                accesses[u] = _StorageUse(root, flat, guard, not loaded.isdisjoint(index))
                if not is_local(storage):
                    low, high = bounds.bounds(flat)
                    spans[u] = Span(root, low, high + 1, self.seen(storage))
                loaded.add(u)
            elif not loaded.isdisjoint(u.src):
                loaded.add(u)
            read.update(u.src[1:] if u in closed else u.src)
        reads = [s for u, s in spans.items() if u not in targets or u in read]
        after = [s.seen for s in spans.values()]
        return _KernelCall(reads, [spans[t] for t in targets], after, effect, nodes, accesses)

    def seen(self, storage: UOp) -> Version:
        """The version of a storage."""
        chain: list[UOp] = []
        while storage.op is Ops.AFTER and storage not in self._seen:
            chain.append(storage)
            storage = storage.src[0]
        out = self._seen.get(storage, NEW)
        for after in reversed(chain):
            found = [out, *[self._seen[e] for e in after.src[1:]]]
            self._seen[after] = out = self.versions.joined(after, found)
        return out


@memo
def _flat(dims: shapes.Shape, index: Index) -> tuple[UOp, UOp]:
    """The flat form of an index into storage of these dimensions, and its guard."""
    plain, guard = index_maps.plain_index(index, index_maps.true())
    return index_maps.flat_index(dims, plain), guard


def launch_order(launches: _KernelCalls) -> list[_KernelCall]:
    """The launches in order: readers of a version before its overwriters, otherwise as found."""
    graph = LaunchGraph(launches.versions, launches.found)
    rank = {e: i for i, e in enumerate(launches.found)}
    order = dict.fromkeys(stable_order(graph.before, lambda e: rank.get(e, -1)))
    if stuck := [e for e in rank if e not in order]:
        raise UserError(_circle([launches.found[e] for e in stuck], graph))
    return [launches.found[e] for e in order if e in rank]


def _circle(stuck: list[_KernelCall], graph: LaunchGraph) -> str:
    """The message for launches that wait for each other."""
    left = {c.effect for c in stuck}
    pairs = [(c, w) for c in stuck for w in graph.overwriting[c.effect] if w in left]
    roots = [
        p.root for c, w in pairs for p in c.reads
        if w in graph.overwriters((p,)) and p.root.op is Ops.PARAM
    ]  # fmt: skip
    names = ", ".join(dict.fromkeys([str(r.arg.name) for r in roots])) or "intermediate storage"
    lines = dict.fromkeys([line for _, w in pairs if (line := made_at(w))])
    return (
        f"circular wait: {len(stuck)} launches overwrite {names}, which others of them still read "
        "before; pass the kernel a copy, made with .contiguous()" + "".join(lines)
    )


class _Kernels:
    """The kernels so far, by form: kernels that differ in their storage only are made once."""

    def __init__(self) -> None:
        self.made: dict[int, UOp] = {}
        self.numbers: dict[Hashable, int] = {}

    def of(self, launch: _KernelCall) -> tuple[UOp, list[UOp]]:
        """The kernel SINK of a closed store, and the storage it is called with, by slot."""
        written = stores_in(launch.effect)[0].src[0]
        by_root: dict[UOp, list[UOp]] = {launch.accesses[written].root: []}
        for access in launch.accesses.values():
            by_root.setdefault(access.root, []).append(access.flat)
        args: list[UOp] = []
        slices: dict[UOp, _Slice] = {}
        for root, flats in by_root.items():
            if not is_local(root):
                size = shapes.size(shapes.shape(root))
                part = _extent(size, flats)
                slices[root] = _Slice(len(args), *part)
                whole = size is part[1] or size == part[1]
                args.append(root if whole else intern(Ops.SLICE, root.dtype, (root,), part))
        form = self._form(launch, slices)
        if form not in self.made:
            self.made[form] = make_kernel(launch, slices)
        return self.made[form], args

    def _form(self, launch: _KernelCall, slices: Mapping[UOp, _Slice]) -> int:
        """A number for a kernel; kernels that differ in their storage only have the same. A node
        without an access below it is one node in all equal kernels."""
        numbers = self.numbers
        form: dict[UOp, int] = {}
        key: Hashable
        for u in launch.nodes:
            access = launch.accesses.get(u)
            if access is None:
                if form.keys().isdisjoint(u.src):
                    continue
                key = u.op, u.dtype, u.arg, u.tag, tuple([form.get(s, s) for s in u.src])
            elif access.root in slices:
                part, types = slices[access.root], (access.root.dtype, u.dtype)
                below = [form.get(s, s) for s in u.src[1:]] if access.gathered else ()
                flat = affine.plus(access.flat, -part.offset)
                key = part.slot, part.length, types, flat, access.guard, tuple(below)
            else:
                key = u, tuple([form.get(s, s) for s in u.src])
            form[u] = numbers.setdefault(key, len(numbers))
        return form[launch.effect]


def make_kernel(launch: _KernelCall, slices: Mapping[UOp, _Slice]) -> UOp:
    """The kernel SINK of a closed store, given the slice of each storage that it is called with."""
    effect = launch.effect
    named: dict[UOp, UOp] = {}  # storage -> its PARAM in the kernel
    for root, part in slices.items():
        dims, symbolic = leaves.split_dims((part.length,))
        named[root] = intern(Ops.PARAM, root.dtype, symbolic, ParamArg("", dims, part.slot))
    tiles = dict.fromkeys([p.root for p in launch.accesses.values() if p.root not in slices])
    mapping = {root: _tile(root, slot) for slot, root in enumerate(tiles)}
    for u, (root, flat, guard, gathered) in launch.accesses.items():
        # A tile comes with the stores that fill it.
        storage = named[root] if root in slices else rebuild.rebuild_more(u.src[0], mapping)
        if gathered:
            guard, flat = [rebuild.rebuild_more(v, mapping) for v in (guard, flat)]
        offset = slices[root].offset if root in slices else 0
        index = index_maps.gated((affine.plus(flat, -offset),), guard)
        mapping[u] = intern(Ops.INDEX, u.dtype, (storage, *index))
    closed, opts = rebuild.rebuild(effect, mapping, launch.nodes), effect.arg
    if opts is not None:  # the SINK has them from here on
        closed = intern(Ops.END, dtypes.void, closed.src) if len(closed.src) > 1 else closed.src[0]
    return intern(Ops.SINK, dtypes.void, (closed,), KernelArg(opts=opts))


def _tile(buffer: UOp, slot: int) -> UOp:
    """Local storage under a number of the kernel's own, so that equal kernels are one."""
    dims, symbolic = leaves.split_dims((shapes.size(shapes.shape(buffer)),))
    arg = dataclasses.replace(buffer.arg, slot=slot, dims=dims)
    return intern(Ops.BUFFER, buffer.dtype, symbolic, arg)


def _extent(size: shapes.Dim, flats: list[UOp]) -> tuple[int, shapes.Dim]:
    """The offset and length of the part of a storage that holds all of a kernel's accesses. No
    index may fall before it: a flipped axis counts down from its constant."""
    if not isinstance(size, int):
        return 0, size
    offset, last = size, 0
    for f in flats:
        low, high = bounds.bounds(f)
        offset, last = min(offset, low, affine.form(f)[0]), max(last, high)
    offset = offset if 0 < offset < size else 0
    return offset, max(1, min(size, 1 + last) - offset)


def split_kernels(graph: UOp, context: Context) -> UOp:
    """The program: a LINEAR of CALLs of kernels, in launch order."""
    calls = []
    variables: dict[UOp, list[UOp]] = {}
    launches, kernels, loops = _KernelCalls(graph), _Kernels(), 0
    for launch in launch_order(launches):
        effect = launch.effect
        if effect.op is Ops.CALL:
            kernel = effect.src[0]
            args = [a for a in effect.src[1:] if a.op is not Ops.VARIABLE]
            args = [before_effects(a, launches.known) for a in args]
            if is_program(kernel):
                calls += _called_program(kernel, args, loops)
                loops += len(loops_of(kernel))
                continue
        else:
            kernel, args = kernels.of(launch)
        if kernel not in variables:
            kernel.origin = effect.origin
            variables[kernel] = walk.variables(kernel)
        calls.append(intern(Ops.CALL, dtypes.void, (kernel, *args, *variables[kernel])))
        calls[-1].origin = calls[-1].origin or effect.origin
    return intern(Ops.LINEAR, dtypes.void, tuple(calls), None)


def _called_program(program: UOp, args: list[UOp], loops: int) -> list[UOp]:
    """The calls of a program that is called with this storage, after so many other loops."""
    params = [u for u in graph_order(program.src) if u.op is Ops.PARAM]
    return calls_with(program, {p: args[p.arg.slot] for p in params}, loops)


PASS = Pass("split-kernels", INDEXED, PROGRAM, split_kernels, "graph")
