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
still to be combined. It follows from the operands, forward only, by a rule for each shape rule, and
from the places where the user gives one (SHARD, shardings of arguments and results). Where operands
disagree, that layout is taken that moves the fewest bytes. What differs between devices are their
coordinates, variables of the program. Without a mesh the graph stays as it is.
"""

from __future__ import annotations

from collections import Counter

from uopc.errors import Unsupported
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.mesh import Spec
from uopc.passes.contract import Context, Pass
from uopc.passes.partition.exchanges import OUTPUT, Exchanges
from uopc.passes.partition.rules import Rules


def partition(graph: UOp, context: Context) -> UOp:
    """The graph of one device. It notes the layouts of arguments and results in the context."""
    sharding = context.sharding
    if sharding is None:
        return graph
    mesh, order = sharding.mesh, walk.nodes(graph)
    readers = Counter([s for u in order for s in u.src])
    sharding.params = _param_specs(graph, order, readers, context)
    rules = Rules(Exchanges(mesh, sharding.explicit), readers, sharding.params)
    for u in order:
        if u is not graph and u.op not in walk.CALLED:
            rules.add(u)
    outputs, specs = [], []
    given = iter(sharding.out_specs or ())
    for u in graph.src:
        if u.dtype is dtypes.void:
            outputs.append(rules.effects[u])
            continue
        rules.exchanges.now = u
        v = rules.value(u)
        spec = next(given, None)
        target = v.spec if spec is None else mesh.spec(spec, v.dims, "out_shardings")
        outputs.append(rules.exchanges.reshard(v, target, OUTPUT).local)
        specs.append(target)
    sharding.results = tuple(specs)
    return intern(Ops.SINK, dtypes.void, tuple(outputs), graph.arg, graph.tag)


def _param_specs(
    graph: UOp, order: list[UOp], readers: Counter[UOp], context: Context
) -> dict[str, Spec]:
    """How each PARAM is cut: as the user says, or as its only reader, a SHARD, says."""
    sharding = context.sharding
    assert sharding is not None
    found: dict[str, Spec] = {}
    pinned = {u.src[0]: u.arg.spec for u in order if u.op is Ops.SHARD}
    for u in order:
        if u.op is not Ops.PARAM:
            continue
        given = sharding.in_specs.get(u.arg.name)
        if given is None and readers[u] == 1:
            given = pinned.get(u)
        spec = sharding.mesh.spec(given, shapes.shape(u), f"sharding of {u.arg.name}")
        for d, axes in zip(shapes.shape(u), spec):
            if axes and not isinstance(d, int):
                raise Unsupported(
                    f"compile: {u.arg.name} is cut along a symbolic dimension{made_at(u)}"
                )
        found[u.arg.name] = spec
    return found


PASS = Pass("partition", TENSOR, TENSOR, partition, "graph", reassociates=True)
