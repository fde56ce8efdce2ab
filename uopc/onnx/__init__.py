"""ONNX models as graphs (`graph`) and programs (`load`). See `docs/models.md`.

It needs the package `onnx` (`pip install uopc[onnx]`). Importing `uopc` does not import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

try:
    import onnx as _onnx  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "uopc.onnx needs the package onnx: pip install uopc[onnx]", name="onnx"
    ) from None

import uopc
from uopc import UOp
from uopc.errors import Unsupported, UserError
from uopc.onnx import results
from uopc.onnx.importer import Importer
from uopc.onnx.model import Model
from uopc.onnx.narrow import NARROW, Narrow, holder
from uopc.onnx.values import STRING, dtype_of, given

if TYPE_CHECKING:
    from uopc.program.program import Program

# The bounds of a symbolic dimension that `dims` does not name.
LEAST_SIZE, MOST_SIZE = 1, 4096
Sizes = Mapping[str, Any]


@dataclass(frozen=True)
class Graph:
    """A model as a graph: `inputs` and `outputs` by the model's names, params and nodes.

    An output that is no tensor is a list of nodes or another value of `uopc.onnx.results`. `nodes`
    are those of all outputs by name. `operators` says how each operator was made: native, or from
    the body of a function.
    """

    inputs: dict[str, UOp]
    outputs: dict[str, Any]
    operators: dict[tuple[str, str], str]

    @property
    def nodes(self) -> dict[str, UOp]:
        """The nodes of the outputs by name; those of a sequence are `name[0]`, `name[1]`, ..."""
        return results.all_nodes(self.outputs)


@dataclass(frozen=True)
class Loaded:
    """A compiled model. Arrays are passed in the order of `inputs`, or by the model's names; the
    result is that of the output, or a dict by the model's names if there are several.

    A result is an array; a list for a sequence; an array of strings; a list of dicts for `ZipMap`.
    """

    graph: Graph
    program: Program | None  # None if no output is computed

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        return list(self.graph.inputs)

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return list(self.graph.outputs)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run the model. UserError for arrays of other dtypes or shapes, or names it has not."""
        unknown = [name for name in named if name not in self.graph.inputs]
        if unknown:
            raise UserError(f"no input {unknown[0]!r}; there are {', '.join(self.inputs)}")
        by_name = {self.graph.inputs[name].arg.name: v for name, v in named.items()}
        outputs = self.graph.outputs
        made = {} if self.program is None else self.program(*arrays, **by_name)
        if results.are_tensors(outputs):
            return made
        left = iter(made.values())
        got = {name: results.filled(v, left) for name, v in outputs.items()}
        return got if len(got) > 1 else next(iter(got.values()))


def graph(
    model: Any, dims: Sizes | None = None, constants: Mapping[str, Any] | None = None
) -> Graph:
    """The graph of a model: a path, bytes, or a ModelProto.

    dims: sizes of symbolic dimensions by their names in the model: a number, or the bounds (least,
    greatest) of a variable; 1 to 4096 for others. A dimension without a name is `INPUT_AXIS`.
    constants: arrays for inputs whose values must be known, such as shapes.

    Raises UserError for a file that is no model, for values that do not fit together, and for a
    shape that hangs on an input; Unsupported for operators and types that there are not. The
    message begins with the node.

    >>> from onnx import parser
    >>> head = '<ir_version: 8, opset_import: ["": 18]>'
    >>> text = head + 'g (float[n, 2] x) => (float[n, 2] y) {y = Relu(x)}'
    >>> uopc.onnx.graph(parser.parse_model(text)).outputs["y"].shape[1]
    2
    """
    found = Model(model)
    chosen, known = dict(dims or {}), dict(constants or {})
    weights = {t.name for t in found.proto.graph.initializer}
    sizes: dict[str, Any] = {}
    inputs: dict[str, UOp] = {}
    values: dict[str, Any] = {}
    taken = {"out"}  # the argument of a call that has the results
    for i in found.proto.graph.input:
        if i.name in known:
            values[i.name] = given(known[i.name])
        elif i.name not in weights:
            values[i.name] = inputs[i.name] = _param(i, chosen, sizes, taken)
            number = i.type.tensor_type.elem_type
            if number in NARROW:
                values[i.name] = Narrow(inputs[i.name], number)
    unknown = [n for n in known if n not in values] + [n for n in chosen if n not in sizes]
    if unknown:
        raise UserError(f"the model has no input and no dimension {unknown[0]!r}")
    importer = Importer(found)
    made = map(results.output, importer.run(values))
    names = [o.name for o in found.proto.graph.output]
    if len(set(names)) < len(names):
        raise UserError(f"two outputs of the model have one name: {', '.join(names)}")
    return Graph(inputs, dict(zip(names, made)), importer.used)


def load(
    model: Any, dims: Sizes | None = None, constants: Mapping[str, Any] | None = None,
    **options: Any,
) -> Loaded:  # fmt: skip
    """A model, compiled; `options` are those of `uopc.compile`. See `graph` for the rest.

    >>> from onnx import parser
    >>> head = '<ir_version: 8, opset_import: ["": 18]>'
    >>> text = head + 'g (float[n, 2] x) => (float[n, 2] y) {y = Relu(x)}'
    >>> f = uopc.onnx.load(parser.parse_model(text), dims={"n": (1, 8)})
    >>> f(np.array([[-1, 2]], "f4"))
    array([[0., 2.]], dtype=float32)
    """
    made = graph(model, dims, constants)
    inputs = list(made.inputs.values())
    nodes: Any = made.nodes
    if not nodes:
        return Loaded(made, None)
    if len(made.outputs) == 1 and results.are_tensors(made.outputs):
        (nodes,) = nodes.values()
    return Loaded(made, uopc.compile(nodes, inputs=inputs, **options))


def _param(i: Any, given: Sizes, sizes: dict[str, Any], taken: set[str]) -> UOp:
    """The param of an input; its symbolic dimensions are added to `sizes`."""
    kind = i.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if not kind.HasField("tensor_type"):
        raise UserError(f"input {i.name!r} is no tensor: pass it as a constant")
    kind = kind.tensor_type
    if not kind.HasField("shape"):
        raise UserError(f"input {i.name!r} has no shape in the model")
    found: list[Any] = []
    for axis, d in enumerate(kind.shape.dim):
        if d.HasField("dim_value"):
            if d.dim_value < 0:
                raise UserError(f"input {i.name!r} has the size {d.dim_value}")
            found.append(d.dim_value)
            continue
        name = d.dim_param or f"{i.name}_{axis}"
        if name not in sizes:
            sizes[name] = _size(name, given.get(name, (LEAST_SIZE, MOST_SIZE)), taken)
        found.append(sizes[name])
    number = kind.elem_type
    if number == STRING:
        raise Unsupported(f"the ONNX type string: pass {i.name!r} as a constant")
    dtype = holder(number) if number in NARROW else dtype_of(number)
    return uopc.param(_own(i.name, taken), tuple(found), dtype)


def _size(name: str, given: Any, taken: set[str]) -> Any:
    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise UserError(f"dims: {name!r} must be a number or (least, greatest), got {given!r}")
        return uopc.variable(_own(name, taken), *given)
    return int(given)


def _own(name: str, taken: set[str]) -> str:
    """The model's name, if it can be printed and is no other's; else one like it."""
    is_text = isinstance(name, str)  # else bytes of no UTF-8
    stem = name if is_text and name and name.isprintable() else repr(name)
    made, k = stem, 1
    while made in taken:
        made, k = f"{stem}_{k}", k + 1
    taken.add(made)
    return made


__all__ = ["Graph", "Loaded", "graph", "load"]
