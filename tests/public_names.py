"""Every name that a user reaches, and the object that documents it.

They are what `uopc`, `uopc.numpy` and its namespaces export, the classes of what these give with
their attributes, and what `docs/api.md` lists.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import uopc
import uopc.numpy as unp
from tests import ROOT
from uopc.config import Options
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op
from uopc.ir.forks import cached_property
from uopc.ir.rewrite.engine import EndlessRewriteError
from uopc.numpy import namespace
from uopc.numpy.array import Array
from uopc.numpy.dtype_functions import FloatInfo, IntegerInfo
from uopc.program.launches import Buffer, Kernel, Launch, Launches, Timing
from uopc.program.profile import Measured, Profile, Row
from uopc.program.program import ArraySpec
from uopc.program.speed.work import Work
from uopc.tensor.updates import At, Indexed
from uopc.tracing.jit import CacheInfo, Jitted

CLASSES = {
    "uopc.UOp": uopc.UOp, "uopc.UPat": uopc.UPat, "uopc.PatternMatcher": uopc.PatternMatcher,
    "uopc.Program": uopc.Program, "uopc.Opt": uopc.Opt, "uopc.KernelInfo": uopc.KernelInfo,
    "unp.Array": Array, "Jitted": Jitted, "Launch": Launch, "Buffer": Buffer, "Kernel": Kernel,
    "Timing": Timing, "dtypes.DType": DType, "x.at": Indexed, "x.at[key]": At, "Op": Op,
    "Launches": Launches, "Profile": Profile, "Row": Row, "Measured": Measured, "Work": Work,
    "ArraySpec": ArraySpec, "CacheInfo": CacheInfo, "Options": Options, "FloatInfo": FloatInfo,
    "IntegerInfo": IntegerInfo, "QRResult": unp.linalg.QRResult,
    "SlogdetResult": unp.linalg.SlogdetResult, "EndlessRewriteError": EndlessRewriteError,
    "__array_namespace_info__()": type(unp.__array_namespace_info__()),
}  # fmt: skip
MODULES = {
    "uopc": (uopc, uopc.__all__), "unp": (unp, namespace.__all__),
    "unp.linalg": (unp.linalg, unp.linalg.__all__),
    "uopc.random": (uopc.random, uopc.random.__all__),
    "uopc.cache": (uopc.cache, uopc.cache.__all__),
    "uopc.dtypes": (uopc.dtypes, ["accumulator", "by_name", "from_numpy", "promote"]),
    "uopc.errors": (uopc.errors, [n for n in dir(uopc.errors) if n.endswith("Error")]),
}  # fmt: skip
# These need no example of their own: constants, and modules, whose names have theirs.
CONSTANTS = (str, int, float, type(None), DType, ModuleType, SimpleNamespace)


def public() -> Iterator[tuple[str, Any]]:
    """Each name, and its function, class, method or property."""
    for area, (module, names) in MODULES.items():
        for name in names:
            found = getattr(module, name)
            if not isinstance(found, CONSTANTS):
                yield f"{area}.{name}", found
    for area, kind in CLASSES.items():
        yield area, kind
        own = {n for c in kind.__mro__ if c.__module__.startswith("uopc") for n in vars(c)}
        for name in sorted(own):
            found = inspect.getattr_static(kind, name)
            if name[0] != "_" and not is_field(kind, name, found):
                yield f"{area}.{name}", found
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    for path in re.findall(r"(?m)^::: ([\w.]+)$", page):
        module, name = path.rsplit(".", 1)
        found = getattr(import_module(module), name)
        if not isinstance(found, CONSTANTS):
            yield path, found


def is_field(kind: type, name: str, found: Any) -> bool:
    """A value that each object has: the docstring of the class says what it is."""
    fields = (*getattr(kind, "__dataclass_fields__", ()), *getattr(kind, "_fields", ()))
    return inspect.ismemberdescriptor(found) or name in fields


def documented(found: Any) -> Any:
    """The function or class whose docstring is shown."""
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, cached_property):
        found = found.func
    return found
