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

Each closed store is a kernel: its storage becomes PARAMs by slot (what it writes first), its
indices one flat index each. What the indices of one storage share as a constant offset moves into
the call as a SLICE, so kernels that differ only in place are one object. A kernel runs after those
that write what it reads, and before those that overwrite the part that it reads; a circular wait is
an error.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from uopc.errors import UserError
from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import leaves
from uopc.ir.builder import rebuild as remake
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds, dtypes, shapes, walk
from uopc.ir.core.args import BufferArg, KernelArg, ParamArg
from uopc.ir.core.levels import INDEXED, PROGRAM
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, read_slots, written_slots
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.versions import NEW, Version, Versions, Writers
from uopc.passes.analysis.views import stores_in
from uopc.passes.contract import Context, Pass


class _Part(NamedTuple):
    """The elements of some storage from `begin` up to `end`, in the version `seen`."""

    root: UOp
    begin: float
    end: float
    seen: Version = NEW


class _Seen(NamedTuple):
    """Storage as a kernel is called with it: from an offset on, so many elements."""

    slot: int
    offset: int
    length: shapes.Dim


class _Place(NamedTuple):
    """An INDEX into storage as one flat index, and its guard; `gathered` if it is read itself."""

    root: UOp
    flat: UOp
    guard: UOp
    gathered: bool


@dataclass
class _Piece:
    """One closed store or call: what it reads and writes, and the versions it must follow."""

    effect: UOp
    reads: list[_Part]
    writes: list[_Part]
    after: list[Version]
    nodes: list[UOp] = field(default_factory=list)
    places: dict[UOp, _Place] = field(default_factory=dict)


def body(effect: UOp) -> list[UOp]:
    """The nodes of a kernel, sources first; its storage operands are leaves, local tiles not."""
    return list(walk.toposort(effect, gate=lambda u: u.op is not Ops.AFTER or is_local(u)))


def is_local(storage: UOp) -> bool:
    """Whether storage is a tile of the kernel that reads it; one AFTER says that it is filled."""
    tile = storage.src[0] if storage.op is Ops.AFTER else storage
    return tile.op is Ops.BUFFER and tile.arg.space != "global"


class _Pieces:
    """Every closed store and call, those it reads from before it."""

    def __init__(self, graph: UOp) -> None:
        self.versions = Versions()
        self._seen: dict[UOp, Version] = {}  # of an effect or AFTER
        self._roots: dict[UOp, UOp] = {}
        # Of the shape of some storage and an index: kernels that are alike differ in the storage.
        self._flats: dict[tuple[shapes.Shape, Index], tuple[UOp, UOp]] = {}
        effects: dict[UOp, None] = {}
        for u in walk.nodes(graph):
            after = u.op is Ops.AFTER and not is_local(u)
            roots = u.src[1:] if after else u.src if u is graph else ()
            effects.update({e: None for e in roots if e.op in _CLOSED})
        self.found: dict[UOp, _Piece] = {}
        for effect in effects:
            made = self._called(effect) if effect.op is Ops.CALL else self._stored(effect)
            seen = self.versions.joined(effect, [w.seen for w in made.writes])
            self._seen[effect] = self.versions.after(effect, seen)
            self.found[effect] = made

    def root(self, storage: UOp) -> UOp:
        """The PARAM, BUFFER or DATA under AFTERs."""
        return before_effects(storage, self._roots) if storage.op is Ops.AFTER else storage

    def _called(self, effect: UOp) -> _Piece:
        """A call of a hand-written kernel may read all of some storage, and write all of some."""
        written, read = written_slots(effect.src[0]), read_slots(effect.src[0])
        parts = [
            _Part(self.root(a), 0, float("inf"), self.seen(a))
            for a in effect.src[1:]
            if a.op is not Ops.VARIABLE
        ]
        reads = [p for i, p in enumerate(parts) if i in read]
        writes = [p for i, p in enumerate(parts) if i in written]
        return _Piece(effect, reads, writes, [p.seen for p in parts])

    def _stored(self, effect: UOp) -> _Piece:
        stores, nodes = stores_in(effect), body(effect)
        targets = dict.fromkeys([store.src[0] for store in stores])
        closed = set(stores)
        places: dict[UOp, _Place] = {}
        parts: dict[UOp, _Part] = {}
        read: set[UOp] = set()  # used for more than a place to store to
        loaded: set[UOp] = set()  # depends on what is read
        for u in nodes:
            if u.op is Ops.INDEX:
                storage, index = u.src[0], u.src[1:]
                root = self.root(storage)
                flat, guard = self._flat(root, index)
                places[u] = _Place(root, flat, guard, not loaded.isdisjoint(index))
                if not is_local(storage):
                    low, high = bounds.bounds(flat)
                    parts[u] = _Part(root, low, high + 1, self.seen(storage))
                loaded.add(u)
            elif not loaded.isdisjoint(u.src):
                loaded.add(u)
            read.update(u.src[1:] if u in closed else u.src)
        reads = [p for u, p in parts.items() if u not in targets or u in read]
        after = [p.seen for p in parts.values()]
        return _Piece(effect, reads, [parts[t] for t in targets], after, nodes, places)

    def seen(self, storage: UOp) -> Version:
        """What storage has been through."""
        chain: list[UOp] = []
        while storage.op is Ops.AFTER and storage not in self._seen:
            chain.append(storage)
            storage = storage.src[0]
        out = self._seen.get(storage, NEW)
        for after in reversed(chain):
            found = [out, *[self._seen[e] for e in after.src[1:]]]
            self._seen[after] = out = self.versions.joined(after, found)
        return out

    def _flat(self, root: UOp, index: Index) -> tuple[UOp, UOp]:
        """The flat form of an index into some storage, and its guard."""
        key = shapes.shape(root), index
        found = self._flats.get(key)
        if found is None:
            plain, guard = indexing.plain_index(index, indexing.true())
            found = self._flats[key] = indexing.flat_index(key[0], plain), guard
        return found


_CLOSED = (Ops.END, Ops.STORE, Ops.CALL)


def launch_order(pieces: _Pieces) -> list[_Piece]:
    """Readers of a version come before the store that overwrites it; otherwise as found."""
    versions = pieces.versions
    by_root: dict[UOp, list[tuple[UOp, tuple[float, float]]]] = {}
    for e, piece in pieces.found.items():
        for p in piece.writes:
            by_root.setdefault(p.root, []).append((e, (p.begin, p.end)))
    writers = {root: Writers(versions, written) for root, written in by_root.items()}
    before: dict[UOp, set[UOp]] = {}
    for e, piece in pieces.found.items():
        before[e] = {u for v in piece.after for u in v.last}
    joins = {u: set(last) for u, last in versions.waits.items() if u not in before}
    place = {e: i for i, e in enumerate(pieces.found)}
    for e, piece in pieces.found.items():
        for p in piece.reads:
            if p.root in writers:
                for w in writers[p.root].following(p.seen, p.begin, p.end):
                    if w is not e:
                        before[w].add(e)
        for p in piece.writes:  # nothing says which comes first: as found
            for w in writers[p.root].following(p.seen, p.begin, p.end, found_after=e):
                before[w].add(e)
    return [pieces.found[e] for e in _stable_order(before | joins, place)]


def _stable_order(before: dict[UOp, set[UOp]], place: dict[UOp, int]) -> list[UOp]:
    """Effects, each as soon as it can be; what joins versions takes no time."""
    names = list(place)
    users: dict[UOp, list[UOp]] = {e: [] for e in before}
    waiting = {e: len(b) for e, b in before.items()}
    for e, b in before.items():
        for w in b:
            users[w].append(e)
    ready = [place[e] for e in place if not waiting[e]]
    heapq.heapify(ready)
    joined = [e for e, n in waiting.items() if not n and e not in place]
    out: list[UOp] = []
    while ready or joined:
        e = joined.pop() if joined else names[heapq.heappop(ready)]
        if e in place:
            out.append(e)
        for u in users[e]:
            waiting[u] -= 1
            if waiting[u] == 0:
                if u in place:
                    heapq.heappush(ready, place[u])
                else:
                    joined.append(u)
    if len(out) < len(place):
        raise UserError(_circle([e for e in place if waiting[e] > 0]))
    return out


def _circle(stuck: list[UOp]) -> str:
    """What to say of effects that wait for each other."""
    nodes = [u for e in stuck for u in walk.toposort(e)]
    names = dict.fromkeys([u.arg.name for u in nodes if u.op is Ops.PARAM])
    return (
        f"circular wait between {len(stuck)} stores, of {', '.join(names)}: each overwrites what "
        "another still reads; read a copy, made with .contiguous() before the assignment"
    )


class _Kernels:
    """The kernels so far, by form: those that differ in their storage only are made once."""

    def __init__(self) -> None:
        self.made: dict[int, UOp] = {}
        self.numbers: dict[Hashable, int] = {}

    def of(self, piece: _Piece) -> tuple[UOp, list[UOp]]:
        """The kernel SINK of a closed store, and the storage it is called with, by slot."""
        by_root: dict[UOp, list[UOp]] = {piece.places[stores_in(piece.effect)[0].src[0]].root: []}
        for place in piece.places.values():
            by_root.setdefault(place.root, []).append(place.flat)
        args: list[UOp] = []
        parts: dict[UOp, _Seen] = {}
        for root, flats in by_root.items():
            if not is_local(root):
                size = shapes.size(shapes.shape(root))
                part = _extent(size, flats)
                parts[root] = _Seen(len(args), *part)
                whole = size is part[1] or size == part[1]
                args.append(root if whole else intern(Ops.SLICE, root.dtype, (root,), part))
        form = self._form(piece, parts)
        if form not in self.made:
            self.made[form] = make_kernel(piece, parts)
        return self.made[form], args

    def _form(self, piece: _Piece, parts: Mapping[UOp, _Seen]) -> int:
        """A number for all that a kernel is but the names of its storage. What no access is below
        is the same node; local tiles are compared as they are, and so are places that are read."""
        numbers = self.numbers
        form: dict[UOp, int] = {}
        key: Hashable
        for u in piece.nodes:
            place = piece.places.get(u)
            if place is None:
                if form.keys().isdisjoint(u.src):
                    continue
                key = u.op, u.dtype, u.arg, u.tag, tuple([form.get(s, s) for s in u.src])
            elif place.root in parts:
                part, types = parts[place.root], (place.root.dtype, u.dtype)
                below = [form.get(s, s) for s in u.src[1:]] if place.gathered else ()
                flat = affine.plus(place.flat, -part.offset)
                key = part.slot, part.length, types, flat, place.guard, tuple(below)
            else:
                key = u, tuple([form.get(s, s) for s in u.src])
            form[u] = numbers.setdefault(key, len(numbers))
        return form[piece.effect]


def make_kernel(piece: _Piece, parts: Mapping[UOp, _Seen]) -> UOp:
    """The kernel SINK of a closed store, given what it sees of the storage that is not its own."""
    effect = piece.effect
    named: dict[UOp, UOp] = {}  # storage -> what the kernel calls it
    for root, part in parts.items():
        dims, symbolic = leaves.split_dims((part.length,))
        named[root] = intern(Ops.PARAM, root.dtype, symbolic, ParamArg("", dims, part.slot))
    tiles = dict.fromkeys([p.root for p in piece.places.values() if p.root not in parts])
    mapping = {root: _tile(root, slot) for slot, root in enumerate(tiles)}
    for u, (root, flat, guard, gathered) in piece.places.items():
        # A tile stands there with the stores that fill it.
        storage = named[root] if root in parts else remake.rebuild_more(u.src[0], mapping)
        if gathered:
            guard, flat = [remake.rebuild_more(v, mapping) for v in (guard, flat)]
        offset = parts[root].offset if root in parts else 0
        index = indexing.gated((affine.plus(flat, -offset),), guard)
        mapping[u] = intern(Ops.INDEX, u.dtype, (storage, *index))
    closed, opts = remake.rebuild(effect, mapping, piece.nodes), effect.arg
    if opts is not None:  # the SINK has them from here on
        closed = _without_opts(closed)
    return intern(Ops.SINK, dtypes.void, (closed,), KernelArg(opts=opts))


def _without_opts(end: UOp) -> UOp:
    """The END without its Opts; around no ranges it is the effect."""
    return intern(Ops.END, dtypes.void, end.src) if len(end.src) > 1 else end.src[0]


def _tile(buffer: UOp, slot: int) -> UOp:
    """Local storage under a number of the kernel's own, so that equal kernels are one."""
    size = shapes.size(shapes.shape(buffer))
    dims, symbolic = leaves.split_dims((size,))
    arg = BufferArg(slot, dims, buffer.arg.device, buffer.arg.space)
    return intern(Ops.BUFFER, buffer.dtype, symbolic, arg)


def _extent(size: shapes.Dim, flats: list[UOp]) -> tuple[int, shapes.Dim]:
    """The part of some storage that a kernel sees: its offset, and how many elements.

    No index may fall before it: a flipped axis counts down from its constant.
    """
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
    pieces, kernels = _Pieces(graph), _Kernels()
    for piece in launch_order(pieces):
        effect = piece.effect
        if effect.op is Ops.CALL:
            kernel = effect.src[0]
            args = [pieces.root(a) for a in effect.src[1:] if a.op is not Ops.VARIABLE]
        else:
            kernel, args = kernels.of(piece)
        if kernel not in variables:
            kernel.origin = effect.origin
            variables[kernel] = walk.variables(kernel)
        calls.append(intern(Ops.CALL, dtypes.void, (kernel, *args, *variables[kernel])))
    return intern(Ops.LINEAR, dtypes.void, tuple(calls), None)


PASS = Pass("split-kernels", INDEXED, PROGRAM, split_kernels, "graph")
