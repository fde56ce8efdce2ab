"""`load_exported`: an exported library as a function of NumPy arrays, called through ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.dump.files import read_bytes
from uopc.errors import UserError, UserTypeError
from uopc.exporting import manifest
from uopc.ir.builder import checks
from uopc.ir.core import dtypes
from uopc.ir.core.data.blocks import aligned, new_array
from uopc.ir.index import closed

_Array = npt.NDArray[Any]
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
        self._arrays = list(promised["arrays"])
        self._dtypes = [dtypes.by_name(a["dtype"]).numpy for a in self._arrays]
        self._serial = (None, None) if promised["threads"] > 1 else ()  # the parts in order
        self._inputs = [a["name"] for a in self._arrays if a["input"]]
        self._sizes = {d["name"]: d for d in promised["dimensions"]}

    def __repr__(self) -> str:
        return f"<uopc.ExportedFunction {self.manifest['name']}({', '.join(self._inputs)})>"

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The results, in the structure of the graph. Raises the errors of a Program's call."""
        given = self._bound(arrays, named)
        values = self._values(given, named)
        passed = self._prepared(given, values)
        self._run(passed, values)
        found = [passed[i] for i in self.manifest["results"]]
        for number, shape in self.manifest.get("views", {}).items():
            found[int(number)] = found[int(number)].reshape([_value(d, values) for d in shape])
        return self._contained(found)

    def traced(
        self, arrays: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[_Array], list[_Array], dict[str, int]]:
        """Call the function. Return the arrays before and after the call, and the sizes."""
        given = self._bound(arrays, named)
        values = self._values(given, named)
        passed = [a.copy() for a in self._prepared(given, values)]
        before = [a.copy() for a in passed]
        self._run(passed, values)
        return before, passed, values

    def _run(self, passed: Sequence[_Array], values: Mapping[str, int]) -> None:
        """Call the function. UserError if it refuses a size."""
        work = aligned(self.manifest["work"]["bytes"])
        pointers = [a.ctypes.data for a in passed]
        sizes = [values[name] for name in self._sizes]
        code = self._function(
            *map(ctypes.c_void_p, pointers), *map(ctypes.c_int64, sizes),
            ctypes.c_void_p(work.ctypes.data), *self._serial,
        )  # fmt: skip
        if code:
            raise UserError(self._refused(code, values))

    def _error(self, text: str) -> str:
        return f"{self.manifest['name']}: {text}"

    def _bound(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name."""
        names, wanted = self._inputs, ", ".join(self._inputs) or "none"
        if len(arrays) > len(names):
            raise UserTypeError(self._error(f"expected {wanted}, got {len(arrays)} arrays"))
        given = dict(zip(names, arrays))
        for name, value in named.items():
            if name in given:
                raise UserTypeError(self._error(f"{name} is given twice"))
            if name in names:
                given[name] = value
            elif name not in self._sizes:
                raise UserTypeError(self._error(f"unknown input {name!r}; choose {wanted}"))
        if missing := [n for n in names if n not in given]:
            raise UserTypeError(self._error(f"missing {', '.join(missing)}"))
        return given

    def _values(self, given: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, int]:
        """The values of the sizes: from the arrays' shapes, else by name."""
        values = {n: int(v) for n, v in named.items() if n in self._sizes}
        for row in self._arrays:
            for d, n in zip(row["shape"], np.shape(given.get(row["name"], ()))):
                if isinstance(d, dict) and len(d["code"]) == 1:
                    values.setdefault(d["code"][0][1], n)
        if missing := [n for n in self._sizes if n not in values]:
            raise UserTypeError(self._error(f"missing {', '.join(missing)}: pass it by name"))
        return values

    def _prepared(self, given: Mapping[str, Any], values: Mapping[str, int]) -> list[_Array]:
        """The arrays to pass: the caller's arrays, checked, and new arrays for results."""
        passed = []
        for row, dtype in zip(self._arrays, self._dtypes):
            shape = tuple([_value(d, values) for d in row["shape"]])
            if not row["input"]:
                passed.append(new_array([max(0, n) for n in shape], dtype))
                continue
            array = np.asarray(given[row["name"]])
            if array.dtype != dtype or array.shape != shape:
                wanted, got = f"{dtype}{list(shape)}", f"{array.dtype}{list(array.shape)}"
                error = UserTypeError if array.dtype != dtype else UserError
                raise error(self._error(f"{row['name']}: expected {wanted}, got {got}"))
            if not row["written"]:
                array = np.require(array, requirements=("C", "A"))
            elif not (array.flags.c_contiguous and array.flags.writeable and array.flags.aligned):
                wanted = "pass a contiguous, writable array"
                raise UserError(self._error(f"{row['name']} is written: {wanted}"))
            passed.append(array)
        self._check_apart(passed)
        return passed

    def _check_apart(self, passed: Sequence[_Array]) -> None:
        for i, row in enumerate(self._arrays):
            if row["input"] and row["written"]:
                for other, array in zip(self._arrays, passed):
                    if other is not row and np.may_share_memory(passed[i], array):
                        names = f"{row['name']}, which is written, and {other['name']}"
                        raise UserError(self._error(f"{names} share memory"))

    def _refused(self, code: int, values: Mapping[str, int]) -> str:
        """The message for a call that the function refused."""
        sizes = list(self._sizes.values())
        if code <= len(sizes):
            size = sizes[code - 1]
            bounds = f"{size['low']}..{size['high']}"
            value = values[size["name"]]
            return self._error(f"{size['name']} is {value}: {bounds} is allowed")
        condition = self.manifest["conditions"][code - 1 - len(sizes)]
        return self._error(f"it must hold that {condition}, with {dict(values)}")

    def _contained(self, results: list[_Array]) -> Any:
        match self.manifest["structure"]:
            case "single":
                return results[0]
            case "dict":
                return dict(zip(self.manifest["keys"], results))
            case "list":
                return results
        return tuple(results)


def _value(d: Any, values: Mapping[str, int]) -> int:
    if isinstance(d, int):
        return d
    code = tuple([(op, known, tuple(src)) for op, known, src in d["code"]])
    return closed.value(code, values)


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
        uopc.errors.UserError: total: n is 9: 1..8 is allowed
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
    if version != (manifest.FORMAT, manifest.ABI) or not known:
        raise UserError(f"{file}: format and ABI {version}; this version of uopc reads "
                        f"{(manifest.FORMAT, manifest.ABI)}")  # fmt: skip
    return found
