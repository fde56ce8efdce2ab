"""Graphs on the devices of a mesh, all in one thread, against one device.

Padding of uneven parts holds NaN, or the greatest integer: it must not be seen.
"""

from __future__ import annotations

import numpy as np

import uopc
from uopc import Ops, P, UOp, dtypes
from uopc.backends import detect
from uopc.ir.builder.primitives import without_primitives
from uopc.ir.core.calls import graph_order
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import GroupOp
from uopc.ir.devices import parts
from uopc.ir.index import closed
from uopc.ir.interpret import interpreter, lockstep
from uopc.ir.interpret.lockstep import variables_of
from uopc.ir.verify.verifier import verify
from uopc.passes import PIPELINE
from uopc.passes.contract import Context
from uopc.passes.pass_manager import function_schedule
from uopc.passes.sharding import MeshLayout

rng = np.random.default_rng(0)


def r(*shape):
    """Normal numbers in float32."""
    return rng.standard_normal(shape).astype("f4")


def block():
    """Two products, and a residue: the graph and its arguments."""
    x, w, v = uopc.param("x", (8, 12)), uopc.param("w", (12, 16)), uopc.param("v", (16, 12))
    y = x + (x @ w.shard(P(None, "m"))).gelu() @ v.shard(P("m"))
    return y, (r(8, 12), r(12, 16), r(16, 12))


def layouts(graph, sharding, variables):
    """By argument the spec and the shape of the first part, by device its own shape."""
    mesh, sizes = sharding.mesh, sharding.sizes
    values = [variables_of(mesh, rank, variables, sizes.values) for rank in range(mesh.size)]

    def number(d, of_rank):
        return d if isinstance(d, int) else closed.value(closed.instructions(d), of_rank)

    def laid(dims, spec):
        first = [number(sizes.most(d, axes), values[0]) for d, axes in zip(dims, spec)]
        own = [[number(d, of_rank) for d in sizes.dims(dims, spec)] for of_rank in values]
        return spec, first, own

    arguments = {n: laid(u.shape, sharding.params[n]) for n, u in sharding.arguments.items()}
    return arguments, [laid(d, s) for d, s in zip(sharding.dims, sharding.results)]


def padded_part(array, mesh, layout, rank):
    spec, first, own = layout
    made = parts.window(mesh, spec, array.shape, rank, first, own[rank]).of(array).copy()
    inside = parts.slices(mesh, spec, array.shape, rank, first)
    seen = np.zeros(made.shape, bool)
    seen[tuple(slice(0, s.stop - s.start) for s in inside)] = True
    garbage = {"f": np.nan, "b": True}.get(made.dtype.kind)
    if garbage is None:
        garbage = np.iinfo(made.dtype).max if made.dtype.kind in "iu" else np.nan
    made[~seen] = garbage
    return made


def partitioned(outputs, mesh, in_specs=None, out_specs=None, explicit=False, last="partition"):
    """The graph of one device, and the layouts."""
    context = Context(detect.host("x86-64-v3"), optimize=True)
    context.sharding = MeshLayout(mesh, in_specs or {}, out_specs, explicit)
    context.schedule = function_schedule(context)
    graph = without_primitives(UOp(Ops.SINK, dtypes.void, tuple(outputs)))
    for _, p in PIPELINE:
        graph = p.run(graph, context)
        if p.name == last:
            return graph, context.sharding
    raise ValueError(last)


def run(graph, sharding, arrays, dims, variables=None):
    """The whole results of the devices; stores to arguments change `arrays`."""
    mesh, variables = sharding.mesh, dict(variables or {})
    arguments, results = layouts(graph, sharding, variables)
    inputs = [
        {n: padded_part(arrays[n], mesh, layout, rank) for n, layout in arguments.items()}
        for rank in range(mesh.size)
    ]
    found = lockstep.evaluate(graph, mesh, inputs, variables, sharding.sizes.values)
    for name, (spec, first, _) in arguments.items():
        parts.put(arrays[name], [given[name] for given in inputs], mesh, spec, first)
    for i, (_, _, own) in enumerate(results):
        assert [f[i].shape for f in found] == [tuple(shape) for shape in own]
    return [
        parts.join_parts([f[i] for f in found], mesh, spec, d, first)
        for i, ((spec, first, _), d) in enumerate(zip(results, dims))
    ]


def check(
    outputs, arrays, mesh, in_specs=None, out_specs=None, tolerance=2e-5, explicit=False,
    variables=None,
):  # fmt: skip
    """The graph on a mesh gives what it gives on one device. Returns the exchanges."""
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    used = graph_order(UOp(Ops.SINK, dtypes.void, tuple(outputs)).src)
    names = {u.arg.name for u in used if u.op is Ops.PARAM and u.arg.name}
    arrays = {n: arrays[n] for n in names}
    plain = {n: a.copy() for n, a in arrays.items()}
    wanted = interpreter.evaluate(outputs, plain, variables or {})
    graph, sharding = partitioned(outputs, mesh, in_specs, out_specs, explicit)
    verify(graph, TENSOR, "partition")
    got = run(graph, sharding, arrays, [w.shape for w in wanted], variables)
    got += [arrays[n] for n in sorted(names)]  # which the graph may have changed
    for g, w in zip(got, [*wanted, *[plain[n] for n in sorted(names)]], strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        if w.dtype.kind in "iub":
            np.testing.assert_array_equal(g, w)
        else:
            wide = np.float64
            np.testing.assert_allclose(g.astype(wide), w.astype(wide), tolerance, tolerance)
    return [u for u in graph.toposort() if u.op in GroupOp.Exchange]


def kinds(exchanges):
    return sorted(u.op.name for u in exchanges)
