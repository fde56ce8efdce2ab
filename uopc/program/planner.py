"""The plan of a program: storage by number and a list of launches, without any graph."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from uopc.backends import device_rows, in_place, memory_plan
from uopc.backends.device_rows import ONE_DEVICE, DeviceRows
from uopc.backends.plan import (
    Argument,
    Cut,
    Dim,
    DimValue,
    Exchange,
    GpuLaunch,
    Length,
    Plan,
    PlanMesh,
    PlannedLaunch,
    Pointer,
    Repeat,
    ResultArray,
    Scalar,
    Shape,
    SizeRelation,
    Variable,
    Word,
)  # fmt: skip
from uopc.errors import Unsupported
from uopc.ir.builder import leaves, rebuild
from uopc.ir.core import bounds, shapes, walk
from uopc.ir.core.calls import exchanges_of
from uopc.ir.core.data.blocks import Order
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import fingerprint
from uopc.ir.core.storage import arguments, outer_ranges, storage_root, written_slots
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop, dims_sum, typical, uop_dim
from uopc.ir.index.size_conditions import SizeCondition, text
from uopc.ir.records import dataclass
from uopc.program.compiled_kernel import CompiledKernel
from uopc.program.graph.facts import GraphFacts
from uopc.program.request import Request

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.ir.devices.launches import LaunchPlace
    from uopc.ir.devices.mesh import Spec
    from uopc.passes.sharding import MeshLayout

# Launches that do less than this many element operations keep the GIL: releasing it costs 30 ns.
GIL_WORK = 1 << 16


def dim(d: Any) -> Dim:
    """A dimension of a shape, in the form of the plan."""
    size = uop_dim(d)
    return size if isinstance(size, int) else DimValue.of(size)


class Block(NamedTuple):
    """A piece of the arena: of an intermediate value, or (None) of the tiles of one launch's
    kernel."""

    storage: UOp | None
    alive: memory_plan.Lifetime
    offset: shapes.Dim


def repeats(program: UOp, sharding: MeshLayout | None = None) -> tuple[Repeat, ...]:
    """The rows of calls inside of outer loops, outer loops first."""
    known = _of_whole(sharding)
    spans: dict[UOp, list[int]] = {}
    for i, call in enumerate(program.src):
        for loop in outer_ranges(call):
            spans.setdefault(loop, [i, i])[1] = i
    return tuple([
        Repeat(a, b + 1, dim(rebuild.rebuild_more(loop.src[0], known)))
        for loop, (a, b) in spans.items()
    ])  # fmt: skip


def _of_whole(sharding: MeshLayout | None) -> dict[UOp, UOp]:
    """Map variables of kernels to variables of the program, on a mesh that names devices."""
    return dict(sharding.sizes.values) if sharding is not None and sharding.mesh.devices else {}


def buckets(program: UOp) -> dict[int, tuple[UOp, ...]]:
    """The storage of exchanges that happen at once, by the number of the call."""
    found = {i: arguments(call) for i, call in enumerate(program.src)
             if len(exchanges_of(call.src[0])) > 1}  # fmt: skip
    return {i: tuple(map(storage_root, args)) for i, args in found.items()}


def arena(
    calls: Iterable[tuple[int, Iterable[UOp]]], elsewhere: Container[UOp],
    repeated: Iterable[Repeat] = (), buckets: Mapping[int, tuple[UOp, ...]] | None = None,
    placed: Sequence[LaunchPlace] = (), busy: Mapping[int, int] | None = None,
    over: Mapping[int, Sequence[tuple[UOp, UOp]]] | None = None,
) -> tuple[list[Block], shapes.Dim]:  # fmt: skip
    """The blocks of the arena, and its size. `calls`: in order, each call's bytes of tiles and its
    storage. `elsewhere`: storage with memory of its own. Storage that a repeated row shares with
    outside calls lives as long as the row runs. A bucket's storage is contiguous, with room for its
    parts elsewhere unless these are most of it. `placed`: the calls of several devices. `busy`: by
    exchange number, the last call that runs at the same time. `over`: by call, pairs of written
    storage and the storage whose memory it may take if no later call reads that."""
    users: dict[UOp, list[int]] = {}  # the calls that use a storage
    tiles: list[memory_plan.Lifetime] = []
    for i, (nbytes, args) in enumerate(calls):
        if nbytes:
            tiles.append(memory_plan.Lifetime(nbytes, i, i))
        for root in map(storage_root, args):
            if root.op is Ops.BUFFER and root not in elsewhere:
                users.setdefault(root, []).append(i)
    repeated = tuple(repeated)
    spans = _spans(users, busy or {}, repeated)
    joined = [in_bucket(b, elsewhere) for b in (buckets or {}).values()]
    joined += _written_over(over or {}, users, spans, repeated, placed, joined)
    groups = _groups(spans, joined)
    lives = [_lifetime(places, spans) for places in groups.values()] + tiles
    if placed:
        owners = [device_rows.owner({placed[i].device for i in users[u]}) for u in groups]
        owners += [placed[life.first].device for life in tiles]
        offsets, total = device_rows.offsets(lives, owners, placed)
    else:
        from uopc.backends import memory_expressions  # a program from a cache is planned already

        offsets, total = memory_expressions.plan(lives)
    blocks = [
        Block(u, _alive({u: 0}, *spans[u]), dims_sum(offset, at))
        for places, offset in zip(groups.values(), offsets)
        for u, at in places.items() if u in spans
    ]  # fmt: skip
    blocks += [Block(None, life, at) for life, at in zip(tiles, offsets[len(groups) :])]
    return blocks, total


def _spans(
    users: Mapping[UOp, list[int]], busy: Mapping[int, int], repeated: Iterable[Repeat]
) -> dict[UOp, list[int]]:
    """The first and the last call for which each storage must exist."""
    spans = {u: [own[0], max([busy.get(i, i) for i in own])] for u, own in users.items()}
    for row in sorted(repeated, key=lambda r: r.end - r.first):  # inner ones first
        for span in spans.values():
            begins, ends = span[0] < row.first, span[1] >= row.end
            if (begins or ends) and span[0] < row.end and span[1] >= row.first:
                span[:] = min(span[0], row.first), max(span[1], row.end - 1)
    return spans


def _written_over(
    over: Mapping[int, Sequence[tuple[UOp, UOp]]], users: Mapping[UOp, list[int]],
    spans: Mapping[UOp, list[int]], repeated: Sequence[Repeat], placed: Sequence[LaunchPlace],
    buckets: Sequence[Mapping[UOp, int]],
) -> list[dict[UOp, int]]:  # fmt: skip
    """Buffers that may reuse one memory in sequence: each is written by the last reader of the
    previous one, in the same rows and, with several devices, on the device that uses it."""
    chains: dict[UOp, dict[UOp, int]] = {}  # by the last storage of each
    apart = {u for b in buckets for u in b}
    for i, pairs in sorted(over.items()):
        for result, value in pairs:
            if not {result, value} <= spans.keys() - apart or result in chains:
                continue
            begin, end = spans[value]
            inside = all([r.first <= begin for r in repeated if r.first <= i < r.end])
            devices = {placed[j].device for j in users[value]} if placed else {0}
            if begin < end == i == spans[result][0] and inside and len(devices) == 1:
                chains[result] = {**chains.pop(value, {value: 0}), result: 0}
                apart.add(value)
    return list(chains.values())


def _groups(
    spans: Mapping[UOp, list[int]], joined: Iterable[dict[UOp, int]]
) -> dict[UOp, dict[UOp, int]]:
    """Storage that is placed together, by its first member: the byte offset of each member."""
    by_first = {next(iter(places)): places for places in joined}
    led = {u for first, places in by_first.items() if first in spans for u in places}
    led -= by_first.keys()
    return {u: by_first.get(u, {u: 0}) for u in spans if u not in led}


def _lifetime(places: Mapping[UOp, int], spans: Mapping[UOp, list[int]]) -> memory_plan.Lifetime:
    """The bytes of contiguous storage, and the calls during which some of it is alive."""
    begins, ends = zip(*[spans[u] for u in places if u in spans])
    return _alive(places, min(begins), max(ends))


def _alive(places: Mapping[UOp, int], first: int, last: int) -> memory_plan.Lifetime:
    """The block of some storage at byte offsets in it, of which some may have sizes of the call."""
    sizes = {u: nbytes(u) for u in places}
    most = max([at + typical(sizes[u]) for u, at in places.items()])
    if all([isinstance(n, int) for n in sizes.values()]):
        return memory_plan.Lifetime(most, first, last)
    from uopc.ir.index import polynomials  # programs with known sizes need no polynomials

    ends = [
        polynomials.plus(polynomials.constant(at), polynomials.at_most(sizes[u]))
        for u, at in places.items()
    ]
    is_large = _room(places) >= memory_plan.LARGE
    alignment = memory_plan.PAGE if is_large else memory_plan.ALIGNMENT
    return memory_plan.Lifetime(most, first, last, polynomials.greatest(ends), alignment)


def nbytes(u: UOp) -> shapes.Dim:
    """The bytes of a value."""
    return uop_dim(affine.scaled(dim_uop(shapes.size(shapes.shape(u))), u.dtype.itemsize))


def in_bucket(args: Sequence[UOp], elsewhere: Container[UOp]) -> dict[UOp, int]:
    """The byte offset of each storage in a bucket. Storage in the arena comes first, unless it has
    fewer bytes than storage elsewhere; large storage first."""
    found, at = {}, 0
    size = [0, 0]
    for u in args:
        size[u in elsewhere] += bounds.most_bytes(u)
    later = size[0] >= size[1]
    for u in sorted(args, key=lambda u: ((u in elsewhere) is later, -bounds.most_bytes(u))):
        found[u] = at
        at += memory_plan.aligned(bounds.most_bytes(u))
    return found


def _room(places: Mapping[UOp, int]) -> int:
    """The bytes from the begin of a bucket's first storage to the end of its last."""
    return max([at + bounds.most_bytes(u) for u, at in places.items()])


@dataclass(frozen=True)
class ExchangeCall:
    """An exchange among the calls of a program. It has no code."""

    launch: Exchange
    sent: int  # the slot of what is sent
    written: tuple[int, ...]
    chunks: int = 1
    scratch: int = 0
    work: int = 0
    key: str = ""

    @staticmethod
    def of(stores: Sequence[UOp], call: UOp, facts: GraphFacts) -> ExchangeCall:
        """The call of a kernel of these exchanges; `facts`: of the user's graph."""
        every = [s.src[1] for s in stores]
        written = tuple(range(len(every)))
        return ExchangeCall(exchange(every, call, facts), every[0].src[0].arg.slot, written)


def exchange(every: Sequence[UOp], made: UOp, facts: GraphFacts) -> Exchange:
    """Exchanges that are one, without words; `made` has the user's line of a node of the graph with
    these facts."""
    from uopc.ir.devices import traffic

    u = every[0]
    a = u.arg
    nodes = facts.relying
    node = next((i for i, n in enumerate(nodes) if n.origin and n.origin == made.origin), -1)
    shape, got = [tuple(map(dim, shapes.shape(v))) for v in (u.src[0], u)]
    return Exchange(
        u.op.name, (), 1, False, a.axes, a.parts, a.op, a.shift, a.mirror, a.wrap, a.root,
        u.dtype.numpy, shape, got, traffic.moved(*every), traffic.reason(every), node,
    )  # fmt: skip


class Planner:
    """Numbers the storage of a program and lists its launches.

    outputs: storage after its effects. calls: each kernel with its storage, numbers and variables.
    names: of the kernels in this program. conditions: on sizes. repeated: the rows of calls that
    loops repeat. beside: by exchange number, the number of launches that run at the same time.
    After `plan`, `constants` holds the DATA that launches read and the order of the elements
    (`ir/core/data/blocks.py`), by their bases.
    """

    def __init__(
        self, request: Request, outputs: Sequence[UOp],
        calls: Sequence[tuple[CompiledKernel | ExchangeCall, tuple[UOp, ...]]],
        names: Mapping[str, str],
        conditions: Sequence[SizeCondition] = (), for_gpu: bool = False,
        repeated: tuple[Repeat, ...] = (), buckets: Mapping[int, tuple[UOp, ...]] | None = None,
        sharding: MeshLayout | None = None,
        rows: DeviceRows = ONE_DEVICE, beside: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        self.rows = rows
        self.request, self.calls, self.names, self.for_gpu = request, calls, names, for_gpu
        self.stored, self.conditions, self.repeats = outputs, conditions, repeated
        self.sharding, self.buckets = sharding, buckets or {}
        self.of_whole = _of_whole(sharding)
        self.params = {self._of_device(p): i for i, p in enumerate(request.params)}
        self.fresh: dict[UOp, int] = {}
        self.results: list[ResultArray] = []
        self.written = {storage_root(args[s]) for k, args in calls for s in k.written}
        if request.structure == "kernel":  # stores that no iteration does are gone from the calls
            own = written_slots(request.graph)
            self.written = {p for p in request.params if p.arg.slot in own}
        self._list_results()
        self.arena_base = len(self.params) + len(self.fresh)
        self.beside = beside or {}
        self.constants: dict[tuple[UOp, Order], int] = {}
        self.offsets: dict[UOp, shapes.Dim] = {}
        self.scratch: dict[int, Dim] = {}  # by launch: the offset of its kernel's tiles
        self.arena_bytes = self._plan_arena()

    def _of_device(self, p: UOp) -> UOp:
        """The PARAM that kernels read: on a mesh the PARAM of a device's part, or the entire PARAM
        if all devices are in this process."""
        sharding = self.sharding
        spec = None if sharding is None else sharding.params.get(p.arg.name)
        if spec is None or sharding is None:
            return p
        dims = shapes.shape(p)
        if sharding.mesh.devices:
            return leaves.with_dims(p, sharding.in_sums(dims))
        return leaves.with_dims(p, sharding.sizes.dims(dims, spec))

    def _mesh(self) -> PlanMesh | None:
        """The mesh, and the cuts of arguments and results, of a program that runs on parts."""
        s = self.sharding
        if s is None or s.mesh.devices:
            return None
        params = self.request.params
        specs = [s.params.get(p.arg.name) or s.given(p) for p in params]
        arguments = [self._cut(shapes.shape(p), spec) for p, spec in zip(params, specs)]
        results = [self._cut(dims, spec) for dims, spec in zip(s.dims, s.results, strict=True)]
        made = tuple([(v.arg.name, DimValue.of(value)) for v, value in s.sizes.values.items()])
        digest = fingerprint(self.request.graph, of_files=False).digest
        return PlanMesh(s.mesh, tuple(arguments), tuple(results), s.hosts, made, digest)

    def _cut(self, dims: shapes.Shape, spec: Spec) -> Cut:
        assert self.sharding is not None
        sizes = self.sharding.sizes
        first = [dim(sizes.most(d, axes)) for d, axes in zip(dims, spec)]
        return Cut(spec, tuple(first), tuple(map(dim, sizes.dims(dims, spec))))

    def _list_results(self) -> None:
        asked = self.request.facts.results
        given = self.stored[len(self.request.facts.lengths) :]
        stored = [storage_root(v) for v in given if v.dtype.kind != "void"]
        for v, root in zip(asked, stored):
            shape: Shape = tuple([dim(d) for d in shapes.shape(v)])
            source = self.params[root] if root.op is Ops.PARAM else None
            if source is None:
                self.fresh.setdefault(root, len(self.params) + len(self.fresh))
            self.results.append(ResultArray(v.dtype.numpy, shape, source))

    def _plan_arena(self) -> Dim:
        """Give intermediates their offsets in the arena. Returns its size."""
        busy = {number: number + count for number, count in self.beside.items()}
        over = {
            i: in_place.overwriting(args, k.over) for i, (k, args) in enumerate(self.calls)
            if isinstance(k, CompiledKernel) and not self.for_gpu
        }  # fmt: skip
        blocks, total = arena(
            [(k.scratch * k.chunks, args) for k, args in self.calls], self.fresh, self.repeats,
            self.buckets, self.rows.places, busy, over,
        )  # fmt: skip
        self.offsets = {b.storage: b.offset for b in blocks if b.storage is not None}
        self.scratch = {b.alive.first: dim(b.offset) for b in blocks if b.storage is None}
        return self._dim(total)

    def _dim(self, d: shapes.Dim) -> Dim:
        """A size of kernels in the form of the plan."""
        return d if isinstance(d, int) else dim(rebuild.rebuild_more(d, self.of_whole))

    def word(self, u: UOp, order: Order = ()) -> Word:
        if u.op is Ops.VARIABLE:
            return Scalar(DimValue.of(self.of_whole.get(u, u)))
        if u.op is Ops.CONST:
            return Scalar(_bits(u))
        offset = u.arg[0] * u.dtype.itemsize if u.op is Ops.SLICE else 0
        root = storage_root(u)
        if root in self.offsets:
            return Pointer(self.arena_base, self._dim(dims_sum(self.offsets[root], offset)))
        base = self.params.get(root, self.fresh.get(root))
        if base is None:
            new = self.arena_base + 1 + len(self.constants)
            base = self.constants.setdefault((root, order), new)
        return Pointer(base, offset)

    def launches(self) -> tuple[PlannedLaunch, ...]:
        made: list[PlannedLaunch] = []
        for i, (kernel, args) in enumerate(self.calls):
            if isinstance(kernel, ExchangeCall):
                launch = replace(kernel.launch, beside=self.beside.get(i, 0))
                if i in self.buckets:
                    made.append(self._bucket(launch, in_bucket(self.buckets[i], self.fresh)))
                else:
                    sent = self.word(args[0]), self.word(args[kernel.sent])
                    made.append(replace(launch, words=sent))
                continue
            orders = itertools.chain(kernel.orders, itertools.repeat(()))
            words = list(map(self.word, args, orders))
            name, chunks = self.names[kernel.key], kernel.chunks
            if self.for_gpu:
                grid = kernel.grid, kernel.block, kernel.dynamic_shared
                made.append(GpuLaunch(name, tuple(words), 1, False, *grid))
                continue
            if i in self.scratch:
                words.append(Pointer(self.arena_base, self.scratch[i]))
            made.append(PlannedLaunch(name, tuple(words), chunks, chunks > 1))
        return tuple(made)

    def _bucket(self, launch: Exchange, places: Mapping[UOp, int]) -> Exchange:
        """One launch for the exchanges of a bucket: it covers all bytes between their storage."""
        count = (-(-_room(places) // launch.dtype.itemsize),)
        words, offsets = tuple(map(self.word, places)), tuple(places.values())
        sizes = tuple(map(bounds.most_bytes, places))
        return replace(
            launch, words=words, sent=count, got=count, offsets=offsets, nbytes=sizes
        )  # fmt: skip

    def plan(self) -> Plan:
        """The plan, without one request's constant arrays and container of results."""
        request = self.request
        arguments = tuple(
            Argument(
                p.arg.name, p.dtype.numpy, tuple([dim(d) for d in shapes.shape(p)]),
                self._of_device(p) in self.written,
            )
            for p in request.params
        )  # fmt: skip
        sizes = [v for p in request.params if p.src for v in walk.variables(p)]
        variables = dict.fromkeys([*request.facts.variables, *sizes])
        lengths = self._lengths()
        computed = {length.name for length in lengths}
        return Plan(
            arguments,
            tuple(self.results),
            self.launches(),
            tuple([
                Variable(v.arg.name, v.arg.low, v.arg.high) for v in variables
                if v.arg.name not in computed
            ]),
            arena_bytes=self.arena_bytes,
            nogil=sum({k.key: k.work for k, _ in self.calls}.values()) >= GIL_WORK,
            threads=request.threads,
            name=request.name or "program",
            conditions=self._conditions(),
            repeats=self.repeats,
            mesh=self._mesh(),
            devices=self.rows.devices,
            rows=self.rows.rows,
            copied=self.rows.copied,
            lengths=lengths,
        )  # fmt: skip

    def _lengths(self) -> tuple[Length, ...]:
        """The sizes that the program computes. Unsupported for one that is known inside of a loop
        around launches."""
        found: list[Length] = []
        for u, stored in zip(self.request.facts.lengths, self.stored):
            root, arg = storage_root(stored), u.src[0].arg
            at, known = self.word(root), 0
            for i, (kernel, args) in enumerate(self.calls):
                if root in [storage_root(args[s]) for s in kernel.written]:
                    known = i + 1
            if not isinstance(at, Pointer) or any([r.first < known < r.end for r in self.repeats]):
                raise Unsupported(
                    f"compile: the length {arg.name} is computed in a loop of the program, where"
                    f" sizes must be known{made_at(u)}"
                )
            found.append(Length(arg.name, arg.low, arg.high, at, known))
        return tuple(sorted(found, key=lambda length: length.launch))

    def _conditions(self) -> tuple[SizeRelation, ...]:
        """The conditions on sizes, each with the number of the graph node that relies on it."""
        nodes = self.request.facts.relying if self.conditions else []
        number_of = {u: i for i, u in enumerate(nodes)}
        return tuple([_condition(c, number_of[c.node]) for c in self.conditions])


def _condition(c: SizeCondition, node: int) -> SizeRelation:
    sides = text(c.left), text(c.right)
    return SizeRelation(c.what, c.relation, dim(c.left), dim(c.right), sides, node)


def _bits(number: UOp) -> int:
    """A word with the bits of a constant in its low bits."""
    bits = np.asarray(number.arg, number.dtype.numpy).tobytes()
    return int.from_bytes(bits.ljust(8, b"\0"), sys.byteorder, signed=True)
