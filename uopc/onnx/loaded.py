"""A compiled model, which takes and returns arrays by the model's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from uopc import driver
from uopc.errors import UserError
from uopc.ir.records import dataclass
from uopc.onnx.source import ModelNames, Source
from uopc.program.program import Program

if TYPE_CHECKING:  # reading a model imports onnx
    from uopc.onnx.reading import Graph


@dataclass(frozen=True)
class Loaded:
    """A compiled model. Pass arrays in the order of `inputs`, or by the model's names. The result
    is the value of the output; if the model has several outputs, a dict by the model's names.

    A value is an array; for a sequence a list; for strings an array of strings; for `ZipMap` a list
    of dicts.
    """

    program: Program | None  # None if no output is computed
    _source: Source = field(repr=False)
    _names: ModelNames = field(repr=False)

    @property
    def graph(self) -> Graph:
        """The graph. If the program came from a cache, the first access makes the graph. UserError
        if the model's files have changed since."""
        return self._source.graph

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        return list(self._names.params)

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return list(self._names.outputs)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run the model. UserError for arrays of other dtypes or shapes, and for unknown names."""
        params = self._names.params
        unknown = [name for name in named if name not in params]
        if unknown:
            raise UserError(f"no input {unknown[0]!r}; there are {', '.join(self.inputs)}")
        by_name = {params[name]: v for name, v in named.items()}
        made = {} if self.program is None else self.program(*arrays, **by_name)
        if self._source.stamps:  # of tensors alone
            return made
        from uopc.onnx import results

        outputs = self.graph.outputs
        if results.are_tensors(outputs):
            return made
        left = iter(made.values())
        got = {name: results.filled(v, left) for name, v in outputs.items()}
        return got if len(got) > 1 else next(iter(got.values()))


def load(
    model: Any, dims: Mapping[str, Any] | None = None, constants: Mapping[str, Any] | None = None,
    **options: Any,
) -> Loaded:  # fmt: skip
    """Compile a model; `options` are those of `uopc.compile`. See `graph` for the other arguments.

    If an earlier process loaded a model file, the file is not read again: see docs/caches.md.

    >>> from onnx import parser
    >>> head = '<ir_version: 8, opset_import: ["": 18]>'
    >>> text = head + 'g (float[n, 2] x) => (float[n, 2] y) {y = Relu(x)}'
    >>> f = uopc.onnx.load(parser.parse_model(text), dims={"n": (1, 8)})
    >>> f(np.array([[-1, 2]], "f4"))
    array([[0., 2.]], dtype=float32)
    """
    source = Source(model, dims, constants)
    found = driver.compile_described(source.description, **options)
    if found is not None and found.files:
        source.forget(found.files)
        return Loaded(found.program, source, ModelNames.of_text(found.notes or ""))
    return Loaded(None if found is None else found.program, source, ModelNames.of(source.graph))
