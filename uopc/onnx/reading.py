"""The graph of a model: its inputs as params and its outputs as nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import uopc
from uopc import UOp
from uopc.errors import Unsupported, UserError
from uopc.ir.builder import leaves
from uopc.ir.core.shapes import SizesDiffer
from uopc.ir.records import dataclass
from uopc.onnx import relying, results
from uopc.onnx.free_sizes import FreeSizes, Sizes
from uopc.onnx.importer import Importer
from uopc.onnx.model import Model
from uopc.onnx.narrow import NARROW, Narrow, holder
from uopc.onnx.values import STRING, dtype_of, given


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
    sizes = FreeSizes(dims or {})
    while True:
        try:
            return _graph_of(found, sizes, constants or {})
        except SizesDiffer as error:
            if not sizes.learn(error.pairs):
                raise


def _graph_of(found: Model, sizes: FreeSizes, known: Mapping[str, Any]) -> Graph:
    """Build the graph with what is known of its sizes."""
    weights = {t.name for t in found.proto.graph.initializer}
    sizes.begin()
    inputs: dict[str, UOp] = {}
    values: dict[str, Any] = {}
    for i in found.proto.graph.input:
        if i.name in known:
            values[i.name] = given(known[i.name])
        elif i.name not in weights:
            values[i.name] = inputs[i.name] = _param(i, sizes)
            number = i.type.tensor_type.elem_type
            if number in NARROW:
                values[i.name] = Narrow(inputs[i.name], number)
    unknown = [n for n in known if n not in values]
    if unknown:
        raise UserError(f"the model has no input {unknown[0]!r}")
    sizes.check_names()
    importer = Importer(found, sizes)
    made = [results.output(v) for v in importer.run(values)]
    if any([isinstance(d, UOp) for d in sizes.made.values()]):
        made = relying.on_sizes(made, importer.measured)
    names = [o.name for o in found.proto.graph.output]
    if len(set(names)) < len(names):
        raise UserError(
            f"the outputs of the model must have different names, got {', '.join(names)}"
        )
    return Graph(inputs, dict(zip(names, made)), importer.used)


def _param(i: Any, sizes: FreeSizes) -> UOp:
    """Make the param of an input."""
    kind = i.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if not kind.HasField("tensor_type"):
        raise UserError(f"input {i.name!r} is not a tensor: pass it by constants=")
    kind = kind.tensor_type
    if not kind.HasField("shape"):
        raise UserError(f"input {i.name!r} has no shape in the model")
    found = [sizes.size(i, axis, d) for axis, d in enumerate(kind.shape.dim)]
    number = kind.elem_type
    if number == STRING:
        raise Unsupported(f"input {i.name!r} has strings: pass it by constants=")
    dtype = holder(number) if number in NARROW else dtype_of(number)
    return uopc.param(sizes.own_name(i.name), tuple(found), dtype)
