"""Graphs for CasADi: matrices in column-major order, sparse matrices by their entries.

A matrix in column-major order is its transpose in row-major order, so the graph computes
transposes: nothing is copied, the loops read in the other order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from uopc.backends.plan import Shape
from uopc.errors import Unsupported, UserError
from uopc.exporting.casadi import Interface, Port
from uopc.exporting.exported import ArrayArgument, Exported
from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.args import ParamArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.program.request import Request
from uopc.sparse.sparsity import Sparse, Sparsity

_NAME = re.compile(r"[A-Za-z](?!.*__)[A-Za-z0-9_]*")
_REFUSED = ("null", "jac", "hess")
_DOUBLE = 8


def checked_name(name: str) -> str:
    """The name of a CasADi function. UserError for a name that CasADi refuses."""
    if not _NAME.fullmatch(name) or name in _REFUSED:
        raise UserError(
            f"export: CasADi refuses a function called {name!r}: choose another name=, without __"
        )
    return name


def transposed(request: Request) -> Request:
    """Change a request to matrices in column-major order."""
    if request.structure == "kernel":
        raise Unsupported(
            "export: CasADi cannot call a kernel that is written by hand: pass values"
        )
    for u in request.facts.lengths:
        raise Unsupported(
            f"export: CasADi takes no results of computed length: {u.src[0].arg.name}{made_at(u)}"
        )
    for layout, v in zip(request.layouts, request.graph.src):
        if layout is not None and (layout.constants is not None or len(shapes.shape(v)) > 1):
            raise Unsupported(
                "export: a sparse result for CasADi must be one matrix without constants: leave"
                " constants= out"
            )
    became: dict[UOp, UOp] = {}
    for p in request.params:
        dims = _dims(p, p.arg.name)
        if len(dims) == 2:
            arg = replace(p.arg, dims=dims[::-1])
            assert isinstance(arg, ParamArg)
            became[p] = intern(Ops.PARAM, p.dtype, (), arg)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return became[u].permute((1, 0)) if u in became else None

    graph = rebuild.rewritten(request.graph, change)
    results = [v.permute((1, 0)) if len(_dims(v, "a result")) == 2 else v for v in graph.src]
    graph = intern(Ops.SINK, graph.dtype, tuple(results), graph.arg)
    params = tuple([became.get(p, p) for p in request.params])
    return replace(request, graph=graph, params=params)


def _dims(u: UOp, what: str) -> tuple[int, ...]:
    """The shape of an array for CasADi."""
    dims = shapes.shape(u)
    if len(dims) > 2 or not all([isinstance(d, int) for d in dims]):
        raise Unsupported(
            f"export: {what} must be a matrix of known sizes for CasADi, got {shapes.show(dims)}"
        )
    if u.dtype is not dtypes.float64:
        raise Unsupported(f"export: {what} must be float64 for CasADi, got {u.dtype.name}: cast it")
    return tuple([int(d) for d in dims])


def params_of(
    inputs: Sequence[UOp | str | Sparse] | None,
) -> tuple[Sequence[UOp | str] | None, dict[str, Sparsity]]:
    """The params of the inputs, and the structures of those that are sparse, by name. UserError for
    a Sparse whose data is no param of its entries."""
    structures = {}
    for given in inputs or ():
        if not isinstance(given, Sparse):
            continue
        data = given.data
        if not (isinstance(data, UOp) and data.op is Ops.PARAM and data.shape == (given.nnz,)):
            raise UserError(
                f"export: the data of a sparse input must be a param of shape ({given.nnz},), its"
                f" entries, got {data!r}"
            )
        structures[str(data.arg.name)] = given.sparsity
    if inputs is None:
        return None, structures
    return [u.data if isinstance(u, Sparse) else u for u in inputs], structures


def with_interface(f: Exported, name: str, structures: Mapping[str, Sparsity]) -> Exported:
    """Add CasADi's interface to the function, with the name `name`. structures: of sparse inputs,
    by name."""
    if any([a.written and a.is_input for a in f.arrays]):
        raise Unsupported("export: a function for CasADi must not write an input: return the value")
    inputs = [
        _sparse(a, structures[a.given]) if a.given in structures else _dense(a)
        for a in f.arrays if a.is_input
    ]
    if list(f.results) != list(range(len(inputs), len(f.arrays))):
        raise Unsupported("export: a result for CasADi must not be an argument itself: add 0 to it")
    if f.sizes:
        raise Unsupported(f"export: CasADi passes no sizes: bind {f.sizes[0].given}")
    sparse = {f.results[m.result]: m.layout.sparsity for m in f.matrices}
    outputs = [
        _sparse(a, sparse[i]) if i in sparse else _dense(a)
        for i, a in enumerate(f.arrays) if not a.is_input
    ]
    work = -(-f.work_bytes({}) // _DOUBLE)
    made = Interface(name, f.name, work, tuple(inputs), tuple(outputs))
    return replace(f, casadi=made)


def _dense(a: ArrayArgument) -> Port:
    rows, columns = _column_major(a.shape)
    return Port(_port(a), (rows, columns, 1), rows * columns)


def _column_major(shape: Shape) -> tuple[int, int]:
    """Rows and columns of an array that is transposed in memory; a vector is a column."""
    sizes = [d for d in shape if isinstance(d, int)]
    return (sizes[1], sizes[0]) if len(sizes) == 2 else (sizes[0] if sizes else 1, 1)


def _sparse(a: ArrayArgument, s: Sparsity) -> Port:
    if s.format != "csc":
        raise UserError(f"export: {a.given} must be csc for CasADi, got {s.format}: use csc()")
    whole = s.nnz == s.shape[0] * s.shape[1]
    places = (1,) if whole else (*s.indptr.tolist(), *s.row.tolist())
    return Port(_port(a), (*s.shape, *places), s.nnz)


def _port(a: ArrayArgument) -> str:
    return re.sub("__+", "_", a.name)
