"""A Function of CasADi as a library that takes its place: `export`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from uopc.casadi.lowered import AnyFunction, lower
from uopc.exporting.export import Export
from uopc.exporting.export import export as export_graph
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.sparse.sparsity import Sparse


def export(
    f: AnyFunction, path: str | os.PathLike[str], kind: str = "shared", **options: Any
) -> Export:
    """Write a CasADi Function as a library: `casadi.external(f.name(), "PATH.so")` takes its place.

    Names and structures of inputs and outputs are those of the Function. `kind` and `options` are
    those of `uopc.export`; "shared" needs no C compiler. Errors are those of `lower` and of
    `uopc.export`.

        >>> import casadi, tempfile
        >>> x = casadi.SX.sym("x", 2)
        >>> f = casadi.Function("f", [x], [casadi.diag(x)])
        >>> made = uopc.casadi.export(f, f"{tempfile.mkdtemp()}/f")
        >>> casadi.external("f", str(made.files[-1]))([1.0, 3.0])
        DM(
        [[1, 00],
         [00, 3]])
    """
    found = lower(f)
    options.setdefault("name", found.function.name())
    return write(found.results, found.arguments.values(), path, kind=kind, **options)


def write(
    results: Mapping[str, Sparse], inputs: Iterable[Sparse], path: str | os.PathLike[str],
    **options: Any,
) -> Export:  # fmt: skip
    """Export matrices with CasADi's interface. Each result has memory of its own: an input that is
    a result, and a second result with the same values, is copied."""
    seen: set[UOp] = set()
    copied = {}
    for name, matrix in results.items():
        u = matrix.data
        if u.op is Ops.PARAM or u in seen:
            u = u.contiguous()
        seen.add(matrix.data)
        copied[name] = Sparse(u, matrix.layout)
    return export_graph(copied, path, abi="casadi", inputs=list(inputs), **options)
