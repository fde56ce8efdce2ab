"""The source of a model's graph, and the graph's dependencies, known without reading the model."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import stat
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc.ir.core.data.files import Stamp
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass
from uopc.program.described import Description, Made

if TYPE_CHECKING:  # a model that an earlier process loaded is not read
    from uopc.onnx.reading import Graph

# Operators of these domains have the bodies of the package onnx; others may have a user's.
_DOMAINS = frozenset(("", "ai.onnx.ml", "ai.onnx.preview.training"))


class Source:
    """A model with its sizes; the first access makes `graph`. If the program came from a cache,
    `stamps` are the stamps of the files that the graph must be made of."""

    def __init__(
        self, model: Any, dims: Mapping[str, Any] | None, constants: Mapping[str, Any] | None
    ) -> None:
        self._given = model, dims, constants
        self._files: tuple[str, ...] = ()
        self.stamps: tuple[Stamp, ...] = ()

    @cached_property
    def graph(self) -> Graph:
        """The graph. UserError if the files do not have these `stamps`."""
        from uopc.onnx.model import Model
        from uopc.onnx.reading import graph_of

        model, dims, constants = self._given
        found = Model(model)
        made = graph_of(found, dims, constants)
        self._files = found.files
        for s in self.stamps:
            s.check()
        return made

    def forget(self, stamps: tuple[Stamp, ...]) -> None:
        """Drop the graph. The next access makes it from the files with these stamps, the model's
        own first, even if a relative path or a link leads elsewhere by then."""
        self.stamps = stamps
        self._given = (stamps[0].identity.path, *self._given[1:])
        self.__dict__.pop("graph", None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_graph, (self.graph,)

    @property
    def description(self) -> Description:
        """All dependencies of the graph besides the content of files."""
        return Description(self._components(), self.made)

    def _components(self) -> tuple[tuple[str, str], ...]:
        """The parts of the description; empty for objects and for arguments of unusual kinds."""
        model, dims, constants = self._given
        path = real_path(model)
        sizes, known = _sizes(dims or {}), _digest(constants or {})
        if path is None or sizes is None or known is None or _has_own_operators():
            return ()
        return (
            ("model", path), ("as given", os.fspath(model)), ("dims", sizes), ("constants", known),
            ("numpy", np.__version__), ("onnx", repr(_package_stamp())),
        )  # fmt: skip

    def made(self) -> Made:
        """The graph for `compile`, with the names of inputs and outputs as notes."""
        from uopc.onnx import results

        graph = self.graph
        outputs: Any = graph.nodes or None
        plain = results.are_tensors(graph.outputs)
        if outputs and len(graph.outputs) == 1 and plain:
            (outputs,) = outputs.values()
        own = [d for (d, _), how in graph.operators.items() if how == "function of ONNX"]
        notes = ModelNames.of(graph).as_text() if plain and _DOMAINS.issuperset(own) else None
        inputs: list[UOp] = list(graph.inputs.values())
        return Made(outputs, inputs, self._files, notes)


@dataclass(frozen=True)
class ModelNames:
    """The names of a model: a map from its inputs to the program's params, and its outputs. A name
    that is not text is bytes."""

    params: dict[str, str]
    outputs: list[str]

    @staticmethod
    def of(graph: Graph) -> ModelNames:
        """Take the names from a graph."""
        params = {name: u.arg.name for name, u in graph.inputs.items()}
        return ModelNames(params, list(graph.outputs))

    def as_text(self) -> str | None:
        """The names as JSON; None if a name is bytes."""
        text = all([isinstance(name, str) for name in (*self.params, *self.outputs)])
        return json.dumps([self.params, self.outputs]) if text else None

    @staticmethod
    def of_text(text: str) -> ModelNames:
        """Read the names from JSON."""
        return ModelNames(*json.loads(text))


def _of_graph(graph: Graph) -> Source:
    """Restore a pickled source from its graph."""
    made = Source(None, None, None)
    made.__dict__["graph"] = graph
    return made


def real_path(model: Any) -> str | None:
    """The real path of a model's file; None if the model names no file, or the path is not text."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    try:
        given = os.fspath(model)
        path = os.path.realpath(given)
        f"{given}{path}".encode()
        return path if stat.S_ISREG(os.stat(path).st_mode) else None
    except (OSError, ValueError, TypeError):  # `Model` says what is wrong
        return None


def _sizes(dims: Mapping[str, Any]) -> str | None:
    """Sizes as text; None if a size is neither an int nor a pair of ints."""
    found = []
    for name, size in dims.items():
        size = tuple(size) if type(size) is list else size
        numbers = size if type(size) is tuple else (size,)
        if type(name) is not str or not all([type(n) is int for n in numbers]):
            return None
        found.append((name, size))
    return repr(sorted(found))


def _digest(constants: Mapping[str, Any]) -> str | None:
    """The content of arrays as text; None if one is no array of numbers."""
    made = hashlib.blake2b(digest_size=16)
    for name, value in constants.items():
        known = isinstance(name, str) and isinstance(value, (int, float, np.ndarray, np.generic))
        array = np.asarray(value) if known else None
        if array is None or array.dtype.kind not in "biuf":
            return None
        made.update(f"{name!r} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return made.hexdigest()


def _has_own_operators() -> bool:
    """True if the registry has functions of operators from outside of this package."""
    registry = sys.modules.get("uopc.onnx.registry")
    rows = [] if registry is None else registry.TABLE.values()
    return not all([f.__module__.startswith("uopc.") for row in rows for _, f in row])


def _package_stamp() -> Stamp | None:
    """A text that differs between versions of the package onnx."""
    spec = importlib.util.find_spec("onnx")
    return None if spec is None or spec.origin is None else Stamp.of(spec.origin)
