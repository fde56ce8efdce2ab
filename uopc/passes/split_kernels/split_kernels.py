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

Each closed store is a kernel; stores of few elements that depend on each other are one
(`statements.py`). Its storage becomes PARAMs by slot, the written one first; each index
becomes one flat index. A constant offset that all indices of one storage share moves into the call
as a SLICE, so kernels that differ only in that offset are one node. A kernel runs after those that
write its inputs, and before those that overwrite its inputs; a circular wait is an error. A call of
a program becomes the calls in it; the last operands of each are the loops around it. A size that
the program computes is an input too: a call binds its variable to the storage of its value.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from uopc.errors import CircularWait
from uopc.ir.builder import index_maps, leaves, rebuild
from uopc.ir.builder.programs import calls_with, loops_of
from uopc.ir.core import bounds, dtypes, shapes, walk
from uopc.ir.core.args import KernelArg
from uopc.ir.core.calls import graph_order
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, is_program, storage_root
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.index import affine
from uopc.passes.analysis.stable_order import stable_order
from uopc.passes.contract import Context
from uopc.passes.effects.versions import LaunchGraph
from uopc.passes.effects.views import is_local, stores_in
from uopc.passes.split_kernels.kernel_calls import KernelCall, KernelCalls
from uopc.passes.split_kernels.statements import joined


class _StorageSlice(NamedTuple):
    """The part of a storage that a kernel is called with: `length` elements from `offset` on."""

    slot: int
    offset: int
    length: shapes.Dim


def launch_order(launches: KernelCalls) -> list[KernelCall]:
    """The launches in order: readers of a version before its overwriters, otherwise as found."""
    graph = LaunchGraph(launches.versions, launches.found)
    rank = {e: i for i, e in enumerate(launches.found)}
    order = dict.fromkeys(stable_order(graph.before, lambda e: rank.get(e, -1)))
    if stuck := [e for e in rank if e not in order]:
        raise CircularWait(_circle([launches.found[e] for e in stuck], graph))
    return [launches.found[e] for e in order if e in rank]


def _circle(stuck: list[KernelCall], graph: LaunchGraph) -> str:
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
        f"circular wait: {len(stuck)} launches overwrite {names}, which other launches still have"
        " to "
        "read; pass the kernel a copy, made with .contiguous()" + "".join(lines)
    )


class _KernelsByForm:
    """The kernels so far, by form: kernels that differ in their storage only are made once."""

    def __init__(self) -> None:
        self.made: dict[int, UOp] = {}
        self.numbers: dict[Hashable, int] = {}

    def of(self, launch: KernelCall) -> tuple[UOp, list[UOp]]:
        """The kernel SINK of a closed store, and the storage it is called with, by slot."""
        written = stores_in(launch.effect)[0].src[0]
        by_root: dict[UOp, list[UOp]] = {launch.accesses[written].root: []}
        for access in launch.accesses.values():
            by_root.setdefault(access.root, []).append(access.flat)
        args: list[UOp] = []
        slices: dict[UOp, _StorageSlice] = {}
        for root, flats in by_root.items():
            if not is_local(root):
                size = shapes.size(shapes.shape(root))
                part = _extent(size, flats)
                slices[root] = _StorageSlice(len(args), *part)
                whole = size is part[1] or size == part[1]
                args.append(root if whole else intern(Ops.SLICE, root.dtype, (root,), part))
        form = self._form(launch, slices)
        if form not in self.made:
            self.made[form] = make_kernel(launch, slices)
        return self.made[form], args

    def _form(self, launch: KernelCall, slices: Mapping[UOp, _StorageSlice]) -> int:
        """A number that kernels share if they differ only in storage. A node without an access
        below it is the same node in all equal kernels."""
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


def make_kernel(launch: KernelCall, slices: Mapping[UOp, _StorageSlice]) -> UOp:
    """The kernel SINK of a closed store, given the slice of each storage that it is called with."""
    effect = launch.effect
    named: dict[UOp, UOp] = {}  # storage -> its PARAM in the kernel
    for root, part in slices.items():
        named[root] = leaves.param(part.slot, root.dtype, (part.length,))
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
    size = shapes.size(shapes.shape(buffer))
    return leaves.buffer(slot, buffer.dtype, (size,), buffer.arg.space, buffer.arg.device)


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
    lengths = dict(zip(context.lengths, graph.src))
    launches, kernels, loops = KernelCalls(graph, lengths), _KernelsByForm(), 0
    bound = {v: intern(Ops.BIND, v.dtype, (v, storage_root(s))) for v, s in lengths.items()}
    order = launch_order(launches)
    if context.optimize and len(context.devices) == 1:
        order = joined(order, {storage_root(v) for v in graph.src}, context)
    for launch in order:
        effect = launch.effect
        if effect.op is Ops.CALL:
            kernel = effect.src[0]
            args = [a for a in effect.src[1:] if a.op is not Ops.VARIABLE]
            args = [before_effects(a, launches.known) for a in args]
            if is_program(kernel):
                made = _called_program(kernel, args, loops)
                calls += [with_lengths(c, bound) for c in made] if bound else made
                loops += len(loops_of(kernel))
                continue
        else:
            kernel, args = kernels.of(launch)
        if kernel not in variables:
            set_origin(kernel, effect.origin)
            variables[kernel] = [bound.get(v, v) for v in walk.variables(kernel)]
        calls.append(intern(Ops.CALL, dtypes.void, (kernel, *args, *variables[kernel])))
        set_origin(calls[-1], calls[-1].origin or effect.origin)
    return intern(Ops.LINEAR, dtypes.void, tuple(calls), None)


def with_lengths(call: UOp, bound: Mapping[UOp, UOp]) -> UOp:
    """A call that reads the variables that the program computes from the storage of each."""
    kernel, *args = call.src
    args = [bound.get(a, a) for a in args]
    made = intern(Ops.CALL, call.dtype, (kernel, *args), call.arg, call.tag)
    set_origin(made, made.origin or call.origin)
    return made


def _called_program(program: UOp, args: list[UOp], loops: int) -> list[UOp]:
    """The calls of a program that is called with this storage, after `loops` other loops."""
    params = [u for u in graph_order(program.src) if u.op is Ops.PARAM]
    return calls_with(program, {p: args[p.arg.slot] for p in params}, loops)
