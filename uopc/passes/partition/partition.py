"""One graph and a mesh become the graph of one device, which all devices run.

Before (tensor), mesh=data:4
    %1 = param x : f32[8, 3]
    %2 = shard %1 spec=((data,), ()) : f32[8, 3]
    %3 = reduce.add %2 axes=(0,) : f32[3]
    sink %3
After (tensor)
    %1 = param x : f32[2, 3]
    %2 = reduce.add %1 axes=(0,) : f32[3]
    %3 = allreduce %2 axes=(data,) parts=4 op=add reason=output : f32[3]
    sink %3

A layout says of each dimension along which mesh axes it is cut, and over which axes a value is
still to be combined. It follows from the operands by a rule for each shape rule, and from the
places where the user gives one (SHARD, shardings of arguments and results). Where operands
disagree, that layout is taken that moves the fewest bytes. Reduces that are whole so far, though
their readers take parts, are then computed in these, unless that moves more. What differs between
devices are their coordinates, variables of the program. Without a mesh the graph stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from uopc.ir.builder.programs import Slots
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.calls import graph_order
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import traffic
from uopc.ir.devices.mesh import Axes, Spec
from uopc.passes.contract import Context
from uopc.passes.partition.exchanges import COSTLY, OUTPUT, Exchanges
from uopc.passes.partition.loops import LoopMaker
from uopc.passes.partition.readers import taken_in_parts
from uopc.passes.partition.rules import Rules
from uopc.passes.sharding import MeshLayout

_EXCHANGES = GroupOp.Exchange


def partition(graph: UOp, context: Context) -> UOp:
    """The graph of one device. It notes the layouts of arguments and results in the context."""
    sharding = context.sharding
    assert sharding is not None
    slots, order = Slots(graph), _order(graph)
    loops = LoopMaker(context.schedule, slots)
    readers = Counter([s for u in order for s in u.src])
    sharding.params = _param_specs(order, readers, sharding)
    sharding.sizes.reserve(graph, _cuts(graph, order, sharding))
    made, rules, results = _partitioned(graph, order, readers, sharding, {}, loops)
    outputs = [u for u in graph.src if u.dtype is not dtypes.void]
    last = dict(zip(outputs, results))  # the layout of a value that is a result more than once
    taken = taken_in_parts(order, readers, rules.values, last, sharding.sizes)
    if taken:
        other, _, layouts = _partitioned(graph, order, readers, sharding, taken, loops)
        if _moved(other) <= _moved(made):
            made, results = other, layouts
    sharding.results = results
    sharding.arguments = {u.arg.name: u for u in order if u.op is Ops.PARAM}
    sharding.dims = tuple([shapes.shape(u) for u in outputs])
    return made


def _order(graph: UOp) -> list[UOp]:
    """The nodes outside of kernels and of the bodies of loops, sources first."""
    if Ops.FUNCTION not in walk.ops(graph):
        return walk.nodes(graph)
    return [*graph_order(graph.src), graph]


def _partitioned(
    graph: UOp, order: list[UOp], readers: Counter[UOp], sharding: MeshLayout,
    taken: Mapping[UOp, Spec], loops: LoopMaker,
) -> tuple[UOp, Rules, tuple[Spec, ...]]:  # fmt: skip
    """The graph of one device, and the layout of each result. `taken`: as for `Rules`."""
    mesh = sharding.mesh
    exchanges = Exchanges(sharding.sizes, sharding.explicit and not taken)
    rules = Rules(exchanges, readers, sharding.params, taken, loops)
    for u in order:
        if u is not graph and u.op not in walk.CALLED:
            rules.add(u)
    outputs: list[UOp] = []
    layouts: list[Spec] = []
    given = iter(sharding.out_specs or ())
    for u in graph.src:
        if u.dtype is dtypes.void:
            outputs.append(rules.effects[u])
            continue
        rules.exchanges.now = u
        v = rules.value(u)
        spec = next(given, None)
        target = v.spec if spec is None else mesh.spec(spec, v.dims, "out_shardings")
        layouts.append(target)
        outputs.append(rules.exchanges.reshard(v, target, OUTPUT).local)
    made = intern(Ops.SINK, dtypes.void, tuple(outputs), graph.arg, graph.tag)
    return made, rules, tuple(layouts)


def _cuts(
    graph: UOp, order: Iterable[UOp], sharding: MeshLayout
) -> Iterator[tuple[shapes.Dim, Axes]]:
    """The dimensions that the user cuts."""
    mesh = sharding.mesh
    for u in order:
        if u.op is Ops.PARAM and u.arg.name in sharding.params:
            yield from zip(shapes.shape(u), sharding.params[u.arg.name])
        elif u.op is Ops.SHARD:
            dims = shapes.shape(u)
            yield from zip(dims, mesh.spec(u.arg.spec, dims, "shard"))
    outputs = [u for u in graph.src if u.dtype is not dtypes.void]
    for u, spec in zip(outputs, sharding.out_specs or ()):
        dims = shapes.shape(u)
        yield from zip(dims, mesh.spec(spec, dims, "out_shardings"))


def _moved(made: UOp) -> tuple[int, int]:
    """The bytes that a graph exchanges, those of costly kinds first."""
    found = [(u.op in COSTLY, traffic.moved(u)) for u in walk.nodes(made) if u.op in _EXCHANGES]
    return sum([n for costly, n in found if costly]), sum([n for _, n in found])


def _param_specs(
    order: list[UOp], readers: Counter[UOp], sharding: MeshLayout
) -> dict[str, Spec]:  # fmt: skip
    """The cut of each PARAM: as the user says, or as its only reader, a SHARD, says."""
    found: dict[str, Spec] = {}
    pinned = {u.src[0]: u.arg.spec for u in order if u.op is Ops.SHARD}
    for u in order:
        if u.op is not Ops.PARAM:
            continue
        given = sharding.in_specs.get(u.arg.name)
        if given is None and readers[u] == 1:
            given = pinned.get(u)
        spec = sharding.mesh.spec(given, shapes.shape(u), f"sharding of {u.arg.name}")
        found[u.arg.name] = spec
    return found
