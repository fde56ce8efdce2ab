"""CasADi's Functions as graphs, programs and libraries. See `docs/casadi.md`.

It needs the package `casadi` (`pip install uopc[casadi]`). Importing `uopc` does not import it.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("casadi") is None:
    raise ModuleNotFoundError(
        "uopc.casadi needs the package casadi: pip install uopc[casadi]", name="casadi"
    )

from uopc.casadi.libraries import export
from uopc.casadi.lowered import LoweredFunction, lower
from uopc.casadi.program import CompiledFunction, compile
from uopc.casadi.solver import nlpsol

__all__ = ["CompiledFunction", "LoweredFunction", "compile", "export", "lower", "nlpsol"]
