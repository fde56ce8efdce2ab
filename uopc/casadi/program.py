"""A Function of CasADi as a program: `compile`."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import numpy.typing as npt

from uopc import driver
from uopc.casadi.lowered import AnyFunction, LoweredFunction, lower
from uopc.errors import UserError, UserTypeError
from uopc.program.program import Program

Numbers = npt.NDArray[np.float64]


class CompiledFunction:
    """A compiled Function: called like the Function, with matrices in order or by name.

    A matrix is a number, a DM, an array, or a matrix of SciPy; a number fills a matrix, and an
    input that is left out is 0. The results are DMs with the structures of the Function: one, a
    tuple of several, or, of a call by names, a dict. `program` is the uopc Program: it takes and
    gives the nonzeros of each matrix as vectors in the order of CSC, without conversions.
    """

    def __init__(self, lowered: LoweredFunction, program: Program, nonzeros: bool) -> None:
        f = lowered.function
        self.lowered, self.program, self._nonzeros = lowered, program, nonzeros
        self._structures = [f.sparsity_out(i) for i in range(f.n_out())]
        given = [ca.MX.sym(name, f.sparsity_in(name)) for name in f.name_in()]
        # CasADi's own call of a Function that returns its arguments reads them as CasADi does.
        self._read = ca.Function("arguments", given, given, f.name_in(), _returned(f.name_in()))

    def __call__(self, *args: Any, **named: Any) -> Any:
        f = self.lowered.function
        if args and named:
            raise UserTypeError(f"{f.name()}: pass all inputs in order, or all by name")
        results = list(self.program(*self._arguments(args, named)).values())
        if not self._nonzeros:
            results = [ca.DM(s, values) for s, values in zip(self._structures, results)]
        if named:
            return dict(zip(f.name_out(), results))
        return results[0] if len(results) == 1 else tuple(results)

    def _arguments(self, args: tuple[Any, ...], named: dict[str, Any]) -> list[Numbers]:
        """The nonzeros of each input."""
        f = self.lowered.function
        try:
            if named:
                read = [self._read(**named)[name] for name in _returned(f.name_in())]
            else:
                read = self._read.call([ca.DM(a) for a in args])
        except (NotImplementedError, RuntimeError) as error:
            raise UserTypeError(f"{f.name()}: {_last_line(error)}; expected {f}") from None
        found = [np.array(m.nz[:]).reshape(-1) for m in read]
        for name, values in zip(f.name_in(), found):
            if values.size != f.nnz_in(name):
                raise UserError(f"{f.name()}: {name} has several arguments side by side: use map")
        return found


def _returned(names: list[str]) -> list[str]:
    return [f"returned_{name}" for name in names]


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


def compile(f: AnyFunction, *, nonzeros: bool = False, **options: Any) -> CompiledFunction:
    """A program of a CasADi Function, or of one in a file: called like the Function.

    With `nonzeros` a call gives vectors of the nonzeros in the order of CSC instead of DMs.
    `options` are those of `uopc.compile`, such as `threads`. Errors are those of `lower`.

        >>> import casadi
        >>> x = casadi.SX.sym("x", 2)
        >>> f = uopc.casadi.compile(casadi.Function("f", [x], [casadi.diag(x * x)]))
        >>> f([1.0, 3.0])
        DM(
        [[1, 00],
         [00, 9]])
    """
    lowered = lower(f)
    program = driver.compile(lowered.results, inputs=list(lowered.inputs), **options)
    return CompiledFunction(lowered, program, nonzeros)
