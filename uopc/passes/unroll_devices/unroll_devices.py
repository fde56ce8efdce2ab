"""Values on several devices of this process become a value for each device.

Before (tensor)                         After (tensor)
  %1 = param a : f32[4]                   %1 = param b : f32[4]
  %2 = copy %1 device=cpu : f32[4]        %2 = copy %1 device="cpu:1" : f32[4]
  %3 = param b : f32[4]                   %3 = neg %2 : f32[4]
  %4 = copy %3 device="cpu:1" : f32[4]    sink %3
  %5 = mstack %2, %4 : f32[4]
  %6 = neg %5 : f32[4]
  %7 = mselect %6 part=1 : f32[4]
  sink %7

An MSTACK is its parts, and what reads it is done once for each; an MSELECT is one part; a COPY of
such a value to one device takes the first part. An exchange is copies between devices, and sums.

On a mesh that names its devices the graph of one device is such a value. Each device has its parts
of the arguments, and a coordinate where the graph has a variable; what it writes to is copied to
storage of its own, and back at the end. The parts of a result are stored into one array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from uopc.ir.builder import rebuild
from uopc.ir.builder.unrolled import Unrolled, unrolled
from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.contract import Context
from uopc.passes.unroll_devices.copied_parts import in_group
from uopc.passes.unroll_devices.whole_arrays import WholeArrays


def _on_mesh(graph: UOp, context: Context) -> UOp:
    """The graph of one device of a mesh with named devices, for all of them."""
    sharding = context.sharding
    assert sharding is not None
    mesh, sizes = sharding.mesh, sharding.sizes
    sharding.sums = sizes.whole()
    graph = rebuild.rebuild_more(graph, dict(sharding.sums))
    order = walk.nodes(graph)
    variables = [sizes.variables(rank) for rank in range(mesh.size)]
    sharding.copied = tuple([u for u in order if u.op in GroupOp.Exchange])
    whole = WholeArrays(graph, order, sharding)
    found = Unrolled(in_group, mesh)
    for u in order:
        if u is graph:
            continue
        if u.op is Ops.PARAM and u.arg.name in whole.arguments:
            found.several[u] = [whole.part(u, rank) for rank in range(mesh.size)]
        elif u.op is Ops.VARIABLE and u.arg.name in variables[0]:
            found.several[u] = [of_rank[u.arg.name] for of_rank in variables]
        elif u.op in walk.CALLED:
            found.several[u] = [_on_device(u, of_rank) for of_rank in variables]
        elif u.op is Ops.BUFFER:
            found.several[u] = [
                _own(u, whole.slots(), name, tuple([found.part(d, rank) for d in u.src]))
                for rank, name in enumerate(mesh.devices)
            ]
        elif u.op is Ops.COPY:  # the devices are those of the mesh
            found.give(u, u.src[0])
        else:
            found.add(u)
    roots: list[UOp] = []
    for u in graph.src:
        if u.dtype is dtypes.void:
            roots += found.parts(u)
        else:
            roots.append(whole.result(found, u))
    roots += whole.written_back(found)
    return intern(Ops.SINK, dtypes.void, tuple(roots), graph.arg, graph.tag)


def _on_device(kernel: UOp, variables: Mapping[str, UOp]) -> UOp:
    """Replace a kernel's variables by their values on one device."""
    known = {v: variables[v.arg.name] for v in walk.variables(kernel) if v.arg.name in variables}
    return rebuild.rebuild_more(kernel, known) if known else kernel


def _own(buffer: UOp, slot: int, device: str, dims: tuple[UOp, ...]) -> UOp:
    """A device's own storage, with these symbolic dimensions, in the place of one device's."""
    arg = replace(buffer.arg, slot=slot, device=device)
    return intern(Ops.BUFFER, buffer.dtype, dims, arg)


def unroll_devices(graph: UOp, context: Context) -> UOp:
    """The graph with each value on one device."""
    on_mesh = context.sharding is not None
    return _on_mesh(graph, context) if on_mesh else unrolled(graph, in_group)
