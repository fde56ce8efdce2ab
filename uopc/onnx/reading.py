"""The graph of a model: its inputs as params and its outputs as nodes."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import uopc
from uopc import UOp
from uopc.errors import Unsupported, UserError
from uopc.ir.builder import leaves
from uopc.onnx import relying, results
from uopc.onnx.importer import Importer
from uopc.onnx.model import Model
from uopc.onnx.narrow import NARROW, Narrow, holder
from uopc.onnx.values import STRING, dtype_of, given

# The bounds of a symbolic dimension that `dims` does not name.
LEAST_SIZE, MOST_SIZE = 1, 4096
Sizes = Mapping[str, Any]


@dataclass(frozen=True)
class Graph:
    """A model as a graph. `inputs` and `outputs` map the model's names to params and nodes.

    An output that is not a tensor is a list of nodes or another value of `uopc.onnx.results`.
    `nodes` maps names to the nodes of all outputs. `operators` says how each operator was made:
    native, or from a function body.
    """

    inputs: dict[str, UOp]
    outputs: dict[str, Any]
    operators: dict[tuple[str, str], str]

    @property
    def nodes(self) -> dict[str, UOp]:
        """The nodes of the outputs by name; nodes of a sequence are `name[0]`, `name[1]`, ..."""
        return results.all_nodes(self.outputs)


def graph(
    model: Any, dims: Sizes | None = None, constants: Mapping[str, Any] | None = None
) -> Graph:
    """Build the graph of a model: a path, bytes, or a ModelProto.

    dims: sizes of symbolic dimensions by their names in the model: a number, or the bounds (least,
    greatest) of a variable; 1 to 4096 for others. A dimension without a name is `INPUT_AXIS`.
    constants: arrays for inputs whose values must be known, such as shapes.

    Raises UserError for a file that is no model, for values that do not fit together, and if a
    shape depends on an input; Unsupported for unsupported operators and types. The message begins
    with the node.

    >>> from onnx import parser
    >>> head = '<ir_version: 8, opset_import: ["": 18]>'
    >>> text = head + 'g (float[n, 2] x) => (float[n, 2] y) {y = Relu(x)}'
    >>> uopc.onnx.graph(parser.parse_model(text)).outputs["y"].shape[1]
    2
    """
    return graph_of(Model(model), dims, constants)


@leaves.made_for(None)
def graph_of(found: Model, dims: Sizes | None, constants: Mapping[str, Any] | None) -> Graph:
    """Build the graph of a parsed model. Errors are those of `graph`. Nodes that no node of the
    model made, such as inputs and their sizes, have no origin."""
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
    made = [results.output(v) for v in importer.run(values)]
    if any([isinstance(d, UOp) for d in sizes.values()]):
        made = relying.on_sizes(made, importer.measured)
    names = [o.name for o in found.proto.graph.output]
    if len(set(names)) < len(names):
        raise UserError(
            f"the outputs of the model must have different names, got {', '.join(names)}"
        )
    return Graph(inputs, dict(zip(names, made)), importer.used)


def _param(i: Any, given: Sizes, sizes: dict[str, Any], taken: set[str]) -> UOp:
    """Make the param of an input, and add its symbolic dimensions to `sizes`."""
    kind = i.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if not kind.HasField("tensor_type"):
        raise UserError(f"input {i.name!r} is not a tensor: pass it by constants=")
    kind = kind.tensor_type
    if not kind.HasField("shape"):
        raise UserError(f"input {i.name!r} has no shape in the model")
    found: list[Any] = []
    for axis, d in enumerate(kind.shape.dim):
        if d.HasField("dim_value"):
            if d.dim_value < 0:
                raise UserError(f"input {i.name!r} has the negative size {d.dim_value}")
            found.append(d.dim_value)
            continue
        name = _size_name(i, axis, d)
        if name not in sizes:
            sizes[name] = _given_size(name, given.get(name, (LEAST_SIZE, MOST_SIZE)), taken)
        found.append(sizes[name])
    number = kind.elem_type
    if number == STRING:
        raise Unsupported(f"input {i.name!r} has strings: pass it by constants=")
    dtype = holder(number) if number in NARROW else dtype_of(number)
    return uopc.param(_own(i.name, taken), tuple(found), dtype)


def size_names(model: Any) -> list[str]:
    """The names of the symbolic dimensions of the inputs of a model."""
    made: dict[str, None] = {}
    for i in Model(model).proto.graph.input:
        kind = i.type.optional_type.elem_type if i.type.HasField("optional_type") else i.type
        for axis, d in enumerate(kind.tensor_type.shape.dim):
            if not d.HasField("dim_value"):
                made[_size_name(i, axis, d)] = None
    return list(made)


def _size_name(i: Any, axis: int, d: Any) -> str:
    """The name of a symbolic dimension of an input."""
    return d.dim_param or f"{i.name}_{axis}"


def _given_size(name: str, given: Any, taken: set[str]) -> Any:
    wanted = f"dims: {name!r} must be a number or (least, greatest)"
    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise UserError(f"{wanted}, got {given!r}")
        return uopc.variable(_own(name, taken), *given)
    try:
        return operator.index(given)
    except TypeError:
        raise UserError(f"{wanted}, got {given!r}") from None


def _own(name: str, taken: set[str]) -> str:
    """Return an unused printable name, the model's if possible; add it to `taken`."""
    is_text = isinstance(name, str)  # else bytes of no UTF-8
    stem = name if is_text and name and name.isprintable() else repr(name)
    made, k = stem, 1
    while made in taken:
        made, k = f"{stem}_{k}", k + 1
    taken.add(made)
    return made
