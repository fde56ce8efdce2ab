"""Turn the nodes of a model into nodes of a graph: one walk, in the order of the file.

Constants, shapes and values that follow from them are computed during the walk. The function of an
operator (`registry.py`) makes the operator; without a function, its body in the model or in ONNX's
schema does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from uopc import UOp, config
from uopc.errors import Error, Unsupported, UserError
from uopc.ir.builder import leaves
from uopc.ir.builder.leaves import MakerPlace
from uopc.ir.core.shapes import SizesDiffer
from uopc.onnx import registry, sizes
from uopc.onnx.free_sizes import FreeSizes
from uopc.onnx.model import Model
from uopc.onnx.narrow import Narrow
from uopc.onnx.node import Node
from uopc.onnx.ops import (  # noqa: F401  their functions are in the registry then
    blocks,
    control,
    decoder,
    elementwise,
    fused,
    labels,
    layers,
    linear,
    movement,
    ngrams,
    quantize,
    recurrent,
    reduce,
    sample,
    select,
    signal,
    svm,
    texts,
    training,
    trees,
    windows,
)
from uopc.onnx.values import DTYPES, Labels, has_symbols, is_known, is_text, lifted, settled

# These move the elements of their first input: strings of a table move by their places in it.
MOVES = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather",
    "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Compress",
})  # fmt: skip
# These read the shape of their first input, and none of its elements.
_MEASURE = frozenset({"Shape", "Size", "EyeLike", "RandomNormalLike", "RandomUniformLike"})
# A function may call others; a model whose functions call each other in a circle has no end.
MOST_DEEP = 64
# The most nodes that are made, with those of functions and of steps of loops.
MOST_NODES = 1 << 18
# Functions of operators raise these for attributes and values that they do not expect.
_UNEXPECTED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError
)  # fmt: skip


class Importer:
    """Holds the values of a model by name while its nodes are read."""

    def __init__(self, model: Model, sizes: FreeSizes) -> None:
        self.model, self.sizes = model, sizes
        self.used: dict[tuple[str, str], str] = {}  # operator -> how it was made
        self.measured: list[UOp] = []  # tensors of which operators read the shape alone
        self._deep = self._count = 0

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the outputs of the model's graph, given its inputs by name."""
        return self.graph(self.model.proto.graph, dict(inputs), self.model.opsets)

    def graph(self, g: Any, values: dict[str, Any], opsets: Mapping[str, int]) -> list[Any]:
        for t in g.initializer:
            values[t.name] = self.model.array(t)
        if g.sparse_initializer:
            raise Unsupported("sparse tensors in a model are not supported")
        self._nodes(g.node, values, opsets, {})
        return [self._value(values, o.name, "the output of the graph") for o in g.output]

    def _nodes(
        self, nodes: Sequence[Any], values: dict[str, Any], opsets: Mapping[str, int],
        outer: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._count += len(nodes)
        if self._count > MOST_NODES:
            raise UserError(f"the model has more than {MOST_NODES} nodes")
        for number, n in enumerate(nodes, 1):
            label = f"{n.op_type} {n.name!r}" if n.name else f"{n.op_type} -> {list(n.output)}"
            given = [self._value(values, x, label) if x else None for x in n.input]
            try:
                with leaves.made_for(MakerPlace(self.model.name, label), number):
                    made = self._agreed(n, given, values, opsets, outer)
            except Error as error:
                if error.args and " of the model: " not in str(error.args[0]):
                    error.args = (f"{label} of the model: {error.args[0]}", *error.args[1:])
                raise
            except _UNEXPECTED as error:
                what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                raise UserError(f"{label} of the model: {what}") from error
            wanted = [name for name in n.output if name]
            if len(made) < len(wanted):
                raise UserError(
                    f"{label} of the model names {len(wanted)} outputs, but the operator gives"
                    f" {len(made)}"
                )
            values |= {name: v for name, v in zip(n.output, made) if name}

    @staticmethod
    def _value(values: Mapping[str, Any], name: str, reader: str) -> Any:
        if name not in values:
            raise UserError(f"{reader} reads {name!r}, which no node before it makes")
        return values[name]

    def _agreed(self, n: Any, given: list[Any], *context: Any) -> list[Any]:
        """The outputs of a node, whose inputs' sizes are renamed where they must be equal."""
        while True:
            try:
                return [self.sizes.named(v) for v in self._made(n, given, *context)]
            except SizesDiffer as error:
                before, learnt = given, self.sizes.rename(error.pairs)
                given = [self.sizes.named(v) for v in before]
                if not learnt or all([v is w for v, w in zip(before, given)]):
                    raise

    def _made(
        self, n: Any, given: list[Any], values: dict[str, Any], opsets: Mapping[str, int],
        outer: Mapping[str, Any],
    ) -> list[Any]:  # fmt: skip
        domain = "" if n.domain == "ai.onnx" else n.domain
        version = opsets.get(domain, 1)
        attributes = self._attributes(n, outer)
        if any([has_symbols(v) or is_text(v) for v in given]) and all(map(is_known, given)):
            found = sizes.computed(n.op_type, given, attributes)
            if found is not None:
                return [found]
        if n.op_type in _MEASURE and isinstance(given[0], (UOp, Narrow)):
            self.measured.append(lifted(given[0]))
        local = self.model.functions.get((domain, n.op_type))
        if local is not None:
            self.used[domain, n.op_type] = "function of the model"
            return self._called(local, n, given, attributes, opsets)
        f = registry.find(domain, n.op_type, version)
        if f is None:
            schema = _schema(n.op_type, domain, version)
            body = None if schema is None else _body(schema, n, given, version)
            if body is None:
                raise Unsupported(registry.missing(domain, n.op_type, version))
            self.used[domain, n.op_type] = "function of ONNX"
            return self._called(body, n, given, self._defaults(schema) | attributes, opsets)
        self.used[domain, n.op_type] = "native"

        def run(g: Any, inner: Sequence[Any] = ()) -> list[Any]:
            names = [i.name for i in g.input]
            return self.graph(g, {**values, **dict(zip(names, inner))}, opsets)

        def trial(g: Any, inner: Sequence[Any] = ()) -> list[Any]:
            kept = len(self.measured)
            try:
                return run(g, inner)
            finally:
                del self.measured[kept:]

        moved = given[0] if given and n.op_type in MOVES and isinstance(given[0], Labels) else None
        given = given if moved is None else [moved.index, *given[1:]]
        made = f(Node(given, attributes, len(n.output), version, run, trial))
        made = list(made) if isinstance(made, tuple) else [made]
        made = made if moved is None else [Labels(lifted(v), moved.texts) for v in made]
        # Dequantised matrices may be factors of products, which are computed in integers.
        stays = n.op_type == "DequantizeLinear" and config.current().dot_products
        stays = stays and getattr(given[0], "ndim", 0) > 1
        return made if stays or not all(map(is_known, given)) else [settled(v) for v in made]

    def _defaults(self, schema: Any) -> dict[str, Any]:
        """The attribute defaults of a schema, by name."""
        given = [(name, a.default_value) for name, a in schema.attributes.items()]
        return {name: _attribute(a, self.model) for name, a in given if a.type}

    def _called(
        self, f: Any, n: Any, given: list[Any], attributes: dict[str, Any],
        opsets: Mapping[str, int],
    ) -> list[Any]:  # fmt: skip
        """Return the outputs of a function; its nodes may use the attributes of the call."""
        self._deep += 1
        if self._deep > MOST_DEEP:
            raise UserError(f"functions must call each other less than {MOST_DEEP} deep")
        versions = {**opsets, **{("" if o.domain == "ai.onnx" else o.domain): o.version
                              for o in f.opset_import}}  # fmt: skip
        defaults = {a.name: _attribute(a, self.model) for a in f.attribute_proto}
        values: dict[str, Any] = dict.fromkeys(f.input)
        values |= dict(zip(f.input, given))
        self._nodes(f.node, values, versions, {**defaults, **attributes})
        self._deep -= 1
        wanted = [*n.output, *[""] * (len(f.output) - len(n.output))]
        label = f"function {f.name}"
        return [
            self._value(values, inner, label) if outer else values.get(inner)
            for inner, outer in zip(f.output, wanted)
        ]  # fmt: skip

    def _attributes(self, n: Any, outer: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for a in n.attribute:
            if not a.ref_attr_name:
                found[a.name] = _attribute(a, self.model)
            elif a.ref_attr_name in outer:
                found[a.name] = outer[a.ref_attr_name]
        return found


def _attribute(a: Any, model: Model) -> Any:
    if a.type == a.GRAPH:
        return a.g
    if a.type == a.TENSOR:
        return model.array(a.t)
    if a.type == a.STRING:
        return a.s.decode(errors="replace")
    if a.type == a.STRINGS:
        return [s.decode(errors="replace") for s in a.strings]
    value = helper.get_attribute_value(a)
    return list(value) if a.type in (a.INTS, a.FLOATS) else value


def _schema(name: str, domain: str, version: int) -> Any:
    """ONNX's schema of an operator, or None."""
    try:
        return onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return None


def _body(schema: Any, n: Any, given: Sequence[Any], version: int) -> Any:
    """The function body in an operator's schema, or None."""
    body = onnx.FunctionProto()
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= version]
        chosen = max(versions or schema.function_opset_versions)
        body.ParseFromString(schema.get_function_with_opset_version(chosen))
        return body
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        chosen = max(versions or schema.context_dependent_function_opset_versions)
        types = [_type(v).SerializeToString() for v in given]
        made = schema.get_context_dependent_function_with_opset_version(
            chosen, n.SerializeToString(), types
        )
        body.ParseFromString(made)
        return body
    return None


def _type(v: Any) -> Any:
    if v is None:
        return onnx.TypeProto()
    if isinstance(v, list):
        return helper.make_sequence_type_proto(_type(v[0]) if v else onnx.TypeProto())
    u = lifted(v)
    number = next(k for k, t in DTYPES.items() if t is u.dtype)
    dims = [d if isinstance(d, int) else None for d in u.shape]
    return helper.make_tensor_type_proto(number, dims)
