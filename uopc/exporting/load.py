"""`load_exported`: an exported library as a function of NumPy arrays, called through ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uopc.backends.cpu.arguments import BoundArguments, bind, check_bounds, shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.plan import (
    AnyArray,
    Argument,
    DimValue,
    Length,
    Plan,
    Pointer,
    ResultArray,
    Shape,
    Variable,
    value_of,
)  # fmt: skip
from uopc.dump.files import read_bytes
from uopc.errors import UserError
from uopc.exporting import manifest
from uopc.ir.builder import checks
from uopc.ir.core import dtypes
from uopc.ir.core.data.blocks import aligned, new_array
from uopc.ir.index.closed import Instruction

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int)
_ASKS = ctypes.CFUNCTYPE(ctypes.c_void_p)  # returns the version for this processor


class ExportedFunction:
    """A function of a library, with the arrays that its manifest names.

    Call it like the Program that was exported: arrays by position or name, sizes that no shape
    gives by name.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> made = uopc.export(uopc.param("x", (3,)) * 2, f"{folder}/twice", kind="shared")
        >>> twice = uopc.load_exported(made.files[-1])
        >>> twice(np.array([1, 2, 3], "f4"))
        array([2., 4., 6.], dtype=float32)
    """

    def __init__(self, promised: Mapping[str, Any], function: Any, memory: object = None) -> None:
        self.manifest = promised
        self._function, self._memory = function, memory
        self._plan = _plan(promised)
        self._serial = (None, None) if promised["threads"] > 1 else ()  # the parts in order
        self._room = {x.name: x.hi for x in self._plan.lengths}
        self._known: BoundedMap[Any, dict[str, int]] = BoundedMap()

    def __repr__(self) -> str:
        inputs = ", ".join([a.name for a in self._plan.arguments])
        return f"<uopc.ExportedFunction {self._plan.name}({inputs})>"

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The results, in the structure of the graph. `out=` and errors are those of a Program."""
        plan, bound = self._plan, bind(self._plan, arrays, named, self._known)
        fresh = self._fresh(bound)
        values = self._run([*bound.arrays, *fresh], bound.values)
        fresh = self._trimmed(fresh, values)
        shapes = [shape_of(r.shape, values) for r in plan.results]
        return bound.results(plan, shapes, fresh, bound.arrays.__getitem__)

    def traced(
        self, arrays: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[AnyArray], list[AnyArray], dict[str, int]]:
        """Call the function. Return the arrays before and after the call, and the sizes."""
        bound = bind(self._plan, arrays, dict(named), self._known)
        passed = [a.copy() for a in [*bound.arrays, *self._fresh(bound)]]
        before = [a.copy() for a in passed]
        values = self._run(passed, bound.values)
        given = len(bound.arrays)
        return before, [*passed[:given], *self._trimmed(passed[given:], values)], values

    def _fresh(self, bound: BoundArguments) -> list[AnyArray]:
        """The arrays of results that need memory: from `out=` where given. A length below 0 is a
        condition that the function refuses."""
        made = []
        for r, out in zip(self._plan.results, bound.outs, strict=True):
            if r.source is None:
                shape = [max(0, n) for n in shape_of(r.shape, bound.values | self._room)]
                made.append(new_array(shape, r.dtype) if out is None else out)
        return made

    def _trimmed(self, made: Sequence[AnyArray], values: Mapping[str, int]) -> list[AnyArray]:
        """The results that need memory, of which those of computed lengths own exactly theirs."""
        found = []
        for array, r in zip(made, self._plan.fresh, strict=True):
            shape = shape_of(r.shape, values)
            is_whole = array.shape == shape
            found.append(
                array if is_whole else array.reshape(-1)[: math.prod(shape)].reshape(shape).copy()
            )
        return found

    def _run(self, passed: Sequence[AnyArray], values: Mapping[str, int]) -> dict[str, int]:
        """Call the function, and return all sizes. UserError if it refuses them."""
        work = aligned(value_of(self._plan.arena_bytes, values))
        lengths = np.zeros(len(self._room), np.int64)
        pointers = [a.ctypes.data for a in (*passed, *[lengths[i:] for i in range(len(lengths))])]
        sizes = [values[v.name] for v in self._plan.variables]
        code = self._function(
            *map(ctypes.c_void_p, pointers), *map(ctypes.c_int64, sizes),
            ctypes.c_void_p(work.ctypes.data), *self._serial,
        )  # fmt: skip
        found = {**values, **dict(zip(self._room, lengths.tolist()))}
        if code:  # the number of the size, condition or length, of which the sizes hold
            self._refuse(code - 1 - len(sizes), found)
        return found

    def _refuse(self, number: int, values: Mapping[str, int]) -> None:
        """UserError for a condition, or for a length out of its bounds."""
        conditions = self.manifest["conditions"]
        if number >= len(conditions):
            x = self._plan.lengths[number - len(conditions)]
            check_bounds(Variable(x.name, x.lo, x.hi), values[x.name], "the function")
        raise UserError(
            f"{self._plan.name}: it must hold that {conditions[number]}, with {dict(values)}"
        )


def _plan(promised: Mapping[str, Any]) -> Plan:
    """The plan of a function by its manifest, without launches. The code checks its conditions."""
    rows = [
        (a, dtypes.by_name(a["dtype"]).numpy, _shape(a["shape"])) for a in promised["arrays"]
    ]
    views = promised.get("views", {})
    results = []
    for number, i in enumerate(promised["results"]):
        row, dtype, shape = rows[i]
        shape = _shape(views[str(number)]) if str(number) in views else shape
        results.append(ResultArray(dtype, shape, i if row["input"] else None))
    inputs = [Argument(a["name"], t, s, a["written"]) for a, t, s in rows if a["input"]]
    return Plan(
        arguments=tuple(inputs),
        results=tuple(results),
        launches=(),
        variables=tuple([Variable(d["name"], d["low"], d["high"]) for d in promised["dimensions"]]),
        structure=promised["structure"],
        keys=tuple(promised["keys"]),
        arena_bytes=_shape([promised["work"]["bytes"]])[0],
        threads=promised["threads"],
        name=promised["name"],
        lengths=tuple([
            Length(x["name"], x["low"], x["high"], Pointer(0, 0), 0)
            for x in promised.get("lengths", ())
        ]),
    )


def _shape(dims: Sequence[Any]) -> Shape:
    return tuple([d if isinstance(d, int) else DimValue(_instructions(d["code"])) for d in dims])


def _instructions(code: Sequence[Any]) -> tuple[Instruction, ...]:
    return tuple([(op, known, tuple(src)) for op, known, src in code])


def load_exported(path: str | os.PathLike[str]) -> ExportedFunction:
    """The function of a library that `uopc.export(..., kind="shared")` wrote, or of its manifest.

    UserError if a file is missing, was changed, does not belong to the other file, or has a newer
    format, or if this machine cannot load the library. Nothing is compiled.

    Examples:
        >>> import tempfile
        >>> x = uopc.param("x", (uopc.variable("n", 1, 8),), dtypes.float64)
        >>> folder = tempfile.mkdtemp()
        >>> made = uopc.export({"total": x.sum()}, f"{folder}/total", kind="shared")
        >>> total = uopc.load_exported(f"{folder}/total.so")
        >>> total(np.arange(4.0))
        {'total': array(6.)}
        >>> total(np.arange(9.0))
        Traceback (most recent call last):
        uopc.errors.UserError: variable 'n' is 9 (from dimension 0 of argument 'x'), expected 1..8
    """
    library = Path(checks.path("load_exported", path)).with_suffix(".so")
    promised = _read_manifest(library.with_suffix(".json"))
    name, machine = promised["name"], promised["target"]["triple"].partition("-")[0]
    if machine != platform.machine():
        raise UserError(
            f"{path}: the code is for {machine}, but this machine is {platform.machine()}"
        )
    if hashlib.sha256(read_bytes(library)).hexdigest() != promised["files"].get(library.name):
        raise UserError(f"{library} is not the library that {library.stem}.json describes")
    try:
        loaded = ctypes.CDLL(_new_spelling(library.resolve()))
        own = ctypes.string_at(getattr(loaded, f"{name}_id"))
        function = getattr(loaded, name)
    except (OSError, AttributeError, ValueError) as error:
        raise UserError(f"{library}: {error}") from None
    if own.decode("ascii", "replace") != manifest.digest(promised):
        raise UserError(f"{library.with_suffix('.json')} was changed: the library has {own!r}")
    if levels := promised["target"]["levels"]:
        address = ctypes.cast(getattr(loaded, f"{name}_best"), _ASKS)()
        if address is None:
            raise UserError(f"{library}: this processor has none of {', '.join(levels)}")
        function = _FUNCTION(address)
    return ExportedFunction(promised, function, loaded)


_loads: Counter[Path] = Counter()  # of each file, by this process


def _new_spelling(library: Path) -> str:
    """A new spelling of the path on each call, because the loader does not read a known path again,
    even if another library has replaced the file."""
    _loads[library] += 1
    return f"{library.parent}{'/.' * (_loads[library] - 1)}/{library.name}"


def _read_manifest(file: Path) -> dict[str, Any]:
    """Read a manifest. UserError if it is of another version."""
    content = read_bytes(file)
    try:
        found = manifest.parsed(content.decode())
        version = found["format"], found["abi"]
        known = isinstance(found["name"], str) and isinstance(found["files"], dict)
        known = known and isinstance(found["target"]["triple"], str)
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file}: not a manifest of an exported function: {error!r}") from None
    readable = [(number, manifest.ABI) for number in manifest.FORMATS]
    if version not in readable or not known:
        raise UserError(f"{file}: format and ABI {version}; this version of uopc reads "
                        f"{' and '.join(map(str, readable))}")  # fmt: skip
    return found
