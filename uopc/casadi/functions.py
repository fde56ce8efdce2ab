"""The outputs of a Function, by its kind: lists of instructions, maps, choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import casadi as ca

from uopc.casadi.code import MatrixCode, batch
from uopc.casadi.errors import not_a_graph
from uopc.casadi.scalars import ScalarCode
from uopc.casadi.splines import linear_function, linear_jacobian, spline_function
from uopc.casadi.structures import length, projected
from uopc.ir.builder import leaves
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.tracing.branches import switch


def outputs_of(f: ca.Function, args: Sequence[UOp]) -> list[UOp]:
    """The nonzeros of each output as nodes, from the nonzeros of each input. Unsupported for a kind
    of Function that has no graph."""
    kind = f.class_name()
    if kind not in KINDS:
        raise not_a_graph(f, _REASONS.get(kind, "CasADi gives no list of its operations"))
    return KINDS[kind](f, args)


def _map(f: ca.Function, args: Sequence[UOp]) -> list[UOp]:
    """A call for each of n blocks of columns."""
    one, n = f.info()["f"], f.info()["n"]
    blocks = [a.reshape(n, length(a) // n) for a in args]
    return [y.reshape(-1) for y in batch(outputs_of, one, n, blocks, [0] * len(blocks))]


def _switch(f: ca.Function, args: Sequence[UOp]) -> list[UOp]:
    """The Function with the number of the first argument, rounded towards 0, or the last one."""
    cases = [*f.info()["f"], f.info()["f_def"]]
    if f.nnz_in(0):
        number = args[0][0].cast(dtypes.int64)
    else:
        number = leaves.const(dtypes.int64, 0)
    last = len(cases) - 1
    chosen = ((number >= 0) & (number < last)).where(number, last)
    return list(switch(chosen, [_case(f, case) for case in cases], *args[1:]))


def _case(f: ca.Function, case: ca.Function) -> Callable[..., tuple[UOp, ...]]:
    """A case with the structures of its Switch."""

    def call(*args: UOp) -> tuple[UOp, ...]:
        given = [
            projected(a, f.sparsity_in(i + 1), case.sparsity_in(i)) for i, a in enumerate(args)
        ]
        made = outputs_of(case, given)
        return tuple([
            projected(y, case.sparsity_out(i), f.sparsity_out(i)) for i, y in enumerate(made)
        ])  # fmt: skip

    return call


KINDS: dict[str, Callable[[ca.Function, Sequence[UOp]], list[UOp]]] = {
    "SXFunction": lambda f, args: ScalarCode(f).outputs(args),
    "MXFunction": lambda f, args: MatrixCode(f, outputs_of).computed(args),
    "Map": _map,
    "OmpMap": _map,
    "ThreadMap": _map,
    "Switch": _switch,
    "BSplineInterpolant": spline_function,
    "LinearInterpolant": linear_function,
    "LinearInterpolantJac": linear_jacobian,
}
_REASONS = {
    "CallbackInternal": "it runs Python",
    "External": "it is compiled already",
}
