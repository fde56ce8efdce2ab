"""Check every graph before it becomes code: it may come from a text or a raw constructor.

A program from a cache is not checked again, because an equal graph was.
"""

from __future__ import annotations

from uopc.errors import InvalidIR, Unsupported, UserError
from uopc.ir.builder import index_maps, rebuild
from uopc.ir.builder.loops import with_loops
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.level_of import is_shaped, level_of
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import device as devices
from uopc.ir.index import affine, closed, compare, size_conditions
from uopc.ir.index.dims import dim_uop
from uopc.ir.verify import verifier
from uopc.program.graph.facts import GraphFacts
from uopc.tensor.indexing import between, in_range


def checked(facts: GraphFacts, device: str, mesh: bool = False) -> UOp:
    """Check the graph of a program for a device or a mesh. In hand-written kernels, add a guard to
    each index that may leave its storage.

    InvalidIR if the graph breaks an invariant of its level, or an access is outside of its storage;
    UserError for values on several devices; Unsupported for an op that is not lowered.
    """
    graph, level = facts.graph, facts.level
    verifier.verify(graph, level, "input", outside=True)
    _check_devices(facts, device, alone=level is not TENSOR or mesh)
    if level is not TENSOR:
        for u in facts.of(Ops.NUMBER):
            raise InvalidIR(
                "input: a NUMBER in a kernel needs a CALL that gives its value, or a constant"
                f"\n  {verifier.describe(u, graph)}{made_at(u)}"
            )
        return _guarded(graph)
    _check_lowered(facts, devices.is_cpu(devices.named(device)) and not mesh)
    if facts.of(Ops.INDEX):
        graph = rebuild.rewritten(graph, _gathered, outside_kernels=True)
    called = [u.src[0] for u in walk.nodes(graph) if u.op is Ops.CALL] if facts.of(Ops.CALL) else []
    kernels = {}
    for kernel in dict.fromkeys([k for k in called if k.op is Ops.SINK]):
        verifier.verify(kernel, level_of(kernel), "input")
        kernels[kernel] = _guarded(kernel)
    changed = {k: new for k, new in kernels.items() if new is not k}
    return rebuild.rebuild(graph, changed) if changed else graph


def _check_lowered(facts: GraphFacts, cpu: bool) -> None:
    """Unsupported for a tensor op that no pass lowers. Only values on CPUs may be on several
    devices."""
    refused = {Ops.SLICE} if cpu else {Ops.SLICE} | GroupOp.Several
    if not refused.isdisjoint(facts.by_op):
        u = next(u for u in facts.nodes if u.op in refused)
        raise Unsupported(f"compile: no pass lowers {u.op.name.upper()}{made_at(u)}")


def _check_devices(facts: GraphFacts, device: str, alone: bool) -> None:
    """UserError if operands are on several devices, or an argument is on another device than the
    program's; another CPU is allowed to a program for a CPU, unless the program is for its own
    device `alone`. Unsupported for a COPY to a device that is not allowed."""
    several = not GroupOp.Several.isdisjoint(facts.by_op)
    places = devices.devices(facts.graph) if facts.naming or several else {}
    own = devices.named(device)
    for u in facts.naming:
        place = places[u]
        if place == own or (not alone and devices.is_cpu(own) and devices.is_cpu(str(place))):
            continue
        if u.op is Ops.COPY:
            raise Unsupported(
                f"compile: a program for {own} cannot copy to {devices.show(place)}:"
                f" compile a program for each device, and pass the arrays{made_at(u)}"
            )
        name = u.arg.name if u.op is Ops.PARAM else f"buffer {u.arg.slot}"
        raise UserError(
            f"compile: {name} is on {devices.show(place)}, but the program is for {own}{made_at(u)}"
        )


def _guarded(kernel: UOp) -> UOp:
    """Add a guard to each index that is not proved inside: outside it reads 0 or stores nothing.
    Make the kernel's loops read and write again in each iteration. InvalidIR if an access is
    certainly outside."""
    from uopc.ir.verify import in_bounds  # for kernels that are written by hand

    loops = with_loops(kernel)
    assuming = [c.as_bool for c in size_conditions.of_graph(kernel)]
    unproved = {a.address: a for a in in_bounds.verify_bounds(loops, "input", assuming)}
    for address, access in unproved.items():
        if address.dtype.lanes > max([s.dtype.lanes for s in address.src[1:]], default=1):
            raise InvalidIR(f"input: {access}: guard the access{made_at(access.user)}")
    if not unproved:
        return kernel if is_shaped(kernel) else loops

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u not in unproved:
            return None
        dims = shapes.shape(before_effects(u.src[0]))
        return intern(Ops.INDEX, u.dtype, (src[0], *_inside(dims, src[1:])))

    return rebuild.rewritten(loops, change)


_SAME_ELEMENTS = frozenset((Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP, Ops.DETACH))


def _gathered(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """An INDEX of a tensor graph that reads 0, or stores nothing, if an index from data is outside;
    None if all its indices are inside."""
    if u.op is not Ops.INDEX:
        return None
    pairs = list(zip(src[1:], shapes.shape(src[0])))
    index = [i if _stays_inside(i, n) else between(i, n) for i, n in pairs]
    if all([new is old for new, old in zip(index, src[1:])]):
        return None
    return intern(Ops.INDEX, u.dtype, (src[0], *index), u.arg, u.tag)


def _stays_inside(index: UOp, n: shapes.Dim) -> bool:
    """True if an index is proved to be in 0 … n - 1, is a condition of the plan, or has the guard
    of `in_range`."""
    if index.op is Ops.INVALID or closed.is_closed(index):
        return True
    while index.op in _SAME_ELEMENTS:
        index = index.src[0]
    value, guard = index_maps.ungated(index)
    if guard is None:
        if value.op is Ops.CAST and value.src[0].op is Ops.DATA and isinstance(n, int):
            array = value.src[0].arg.array
            return not array.size or bool(array.min() >= 0 and array.max() < n)
        if value.op is Ops.IOTA:
            return affine.at_most(*map(dim_uop, (shapes.shape(value)[0], n)))
        return between(value, n) is value
    plain = [value, *value.src[2:], *value.src[:1]]  # i, or where(i < 0, i + n, i), or i + n
    return any([i.dtype is dtypes.index and in_range(i, n) is index for i in plain])


def _inside(dims: shapes.Shape, index: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """The index; INVALID if it is outside of the dimensions."""
    if len(index) == 1 and len(dims) != 1:  # flat
        dims = (shapes.size(dims),)
    index, guard = index_maps.plain_index(index, index_maps.true())
    for x, size in zip(index, dims):
        guard = index_maps.both(guard, compare.less(affine.const(-1), x))
        guard = index_maps.both(guard, compare.less(x, dim_uop(size)))
    return index_maps.gated(index, guard)
