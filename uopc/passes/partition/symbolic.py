"""Sizes that are symbols, of dimensions that are cut: parts of them are even.

Before
    %1 = variable n 1..64 : index
    %2 = param x : f32[%1, 3]          cut 4 ways along its rows
After
    %1 = variable n_over_4 1..16 : index
    %2 = mul %1, 4 : index
    %3 = param x : f32[%2, 3]          each device has n_over_4 rows

All parts have one size, and no place is past the end of one. Each call checks that n is a multiple
of 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from uopc.errors import Unsupported
from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.args import VariableArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.mesh import Divided, Spec
from uopc.ir.index import affine
from uopc.passes.contract import Sharding

Cut = tuple[str, shapes.Shape, Spec, UOp]  # what is cut, its shape, the axes, and the user's node


def with_even_parts(
    graph: UOp, order: Sequence[UOp], given: Mapping[str, Spec], sharding: Sharding
) -> UOp:
    """The graph in which variables are multiples of others, as many as there are parts. It notes
    them in the sharding. `given`: the layouts of PARAMs. Unsupported where this makes no even parts
    of a dimension."""
    mesh, axes, what = sharding.mesh, dict[UOp, set[str]](), dict[UOp, tuple[str, str]]()
    cuts = [c for c in _cuts(graph, order, given, sharding) if not _is_fixed(c)]
    for name, dims, spec, u in cuts:
        for d, own in zip(dims, spec):
            if not own or isinstance(d, int):
                continue
            for v in walk.variables(d):
                axes.setdefault(v, set()).update(own)
                what.setdefault(v, (name, made_at(u)))
    taken = {v.arg.name for v in walk.variables(graph)}
    sizes: dict[UOp, UOp] = {}
    divided: list[Divided] = []
    for v, names in axes.items():
        count = mesh.parts(tuple(names))
        name = _free(f"{v.arg.name}_over_{count}", taken)
        low, high = -(-v.arg.low // count), v.arg.high // count
        if low > high:
            raise Unsupported(
                f"compile: {what[v][0]} is cut {count} ways along {v.arg.name}, and no multiple of"
                f" {count} is in {v.arg.low}..{v.arg.high}{what[v][1]}"
            )
        part = intern(Ops.VARIABLE, dtypes.index, (), VariableArg(name, low, high))
        sizes[v] = affine.scaled(part, count)
        divided.append(Divided(v.arg.name, name, count, *what[v]))
    sharding.sizes, sharding.divided = sizes, tuple(divided)
    for name, dims, spec, u in cuts:
        _check_even(name, [sharding.in_parts(d) for d in dims], spec, u, sharding)
    return rebuild.rebuild_more(graph, dict(sizes)) if sizes else graph


def _is_fixed(cut: Cut) -> bool:
    _, dims, spec, _ = cut
    return all([isinstance(d, int) for d, axes in zip(dims, spec) if axes])


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _cuts(
    graph: UOp, order: Iterable[UOp], given: Mapping[str, Spec], sharding: Sharding
) -> Iterator[Cut]:
    """What the user says is cut."""
    mesh = sharding.mesh
    for u in order:
        if u.op is Ops.PARAM and u.arg.name in given:
            yield u.arg.name, shapes.shape(u), given[u.arg.name], u
        elif u.op is Ops.SHARD:
            yield "a value", shapes.shape(u), mesh.spec(u.arg.spec, shapes.shape(u), "shard"), u
    outputs = [u for u in graph.src if u.dtype is not dtypes.void]
    for u, spec in zip(outputs, sharding.out_specs or ()):
        if spec is not None:
            dims = shapes.shape(u)
            yield "a result", dims, mesh.spec(spec, dims, "out_shardings"), u


def _check_even(
    name: str, dims: Sequence[shapes.Dim], spec: Spec, u: UOp, sharding: Sharding
) -> None:
    for d, axes in zip(dims, spec):
        if axes and not isinstance(d, int) and not sharding.mesh.divides(d, axes):
            raise Unsupported(
                f"compile: {name} is cut along a symbolic dimension whose parts may not be even"
                f"{made_at(u)}"
            )
