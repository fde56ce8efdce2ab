"""A workload's body recorded as an ONNX model: values that note each operation done to them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from onnx import helper, numpy_helper
from workloads import Workload

OPSET, IR_VERSION = 20, 10
TO_THE_END = np.iinfo(np.int64).max


class Recorder:
    """The nodes and constants of one model."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, op: str, dtype: Any, *inputs: Any, **attributes: Any) -> Value:
        """A new value. Inputs that are numbers have its dtype; lists are of integers."""
        return self.nodes_of(op, (dtype,), *inputs, **attributes)[0]

    def nodes_of(
        self, op: str, dtypes: tuple[Any, ...], *inputs: Any, **attributes: Any
    ) -> list[Value]:
        """The values of a node that makes several. Numbers have the dtype of the first."""
        names = []
        for given in inputs:
            if isinstance(given, Value):
                names.append(given.name)
            elif isinstance(given, str):
                names.append(given)  # an input that is left out
            elif isinstance(given, np.ndarray):
                names.append(self.constant(given, given.dtype))
            else:
                kind = np.int64 if isinstance(given, list) else dtypes[0]
                names.append(self.constant(given, kind))
        made = [Value(self, f"v{len(self.nodes)}_{i}", t) for i, t in enumerate(dtypes)]
        self.nodes.append(helper.make_node(op, names, [v.name for v in made], **attributes))
        return made


class Value:
    """One value of the model."""

    def __init__(self, recorder: Recorder, name: str, dtype: Any) -> None:
        self.recorder, self.name, self.dtype = recorder, name, np.dtype(dtype)

    def then(self, op: str, *others: Any, **attributes: Any) -> Value:
        return self.recorder.node(op, self.dtype, self, *others, **attributes)

    def after(self, op: str, other: Any) -> Value:
        return self.recorder.node(op, self.dtype, other, self)

    def __add__(self, other: Any) -> Value:
        return self.then("Add", other)

    def __sub__(self, other: Any) -> Value:
        return self.then("Sub", other)

    def __mul__(self, other: Any) -> Value:
        return self.then("Mul", other)

    def __rsub__(self, other: Any) -> Value:
        return self.after("Sub", other)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Value:
        return self.then("Div", other)

    def __le__(self, other: Any) -> Value:
        found = self.then("LessOrEqual", other)
        found.dtype = np.dtype(bool)
        return found

    def __getitem__(self, key: Any) -> Value:
        """One index of the first axis, or slices of step 1."""
        if isinstance(key, int):
            return self.recorder.node("Gather", self.dtype, self,
                                      Value(self.recorder, self.recorder.constant(key, np.int64),
                                            np.int64), axis=0)  # fmt: skip
        keys = key if isinstance(key, tuple) else (key,)
        cut = [(i, s) for i, s in enumerate(keys) if s != slice(None)]
        begin = [s.start or 0 for _, s in cut]
        end = [TO_THE_END if s.stop is None else s.stop for _, s in cut]
        return self.then("Slice", begin, end, [i for i, _ in cut])


def _conv2d(
    x: Value, w: Any, stride: int, pad: int, dilation: int = 1, groups: int = 1, bias: Any = None
) -> Value:
    operands = (w,) if bias is None else (w, bias)
    return x.then("Conv", *operands, strides=[stride] * 2, pads=[pad] * 4,
                  dilations=[dilation] * 2, group=groups)  # fmt: skip


def _quantised(x: Value, scale: np.float32, zero: np.uint8) -> Value:
    """Bytes and the numbers that they are, by one scale."""
    how = [np.asarray(scale), np.asarray(zero)]
    made = x.recorder.node("QuantizeLinear", np.uint8, x, *how)
    return x.recorder.node("DequantizeLinear", x.dtype, made, *how)


def _numbers(x: Value, w: Any) -> Value:
    return x.recorder.node("DequantizeLinear", x.dtype, w.values, w.scale, axis=w.axis)


def _dynamic_product(x: Value, w: Any) -> Value:
    given, scale, zero = x.recorder.nodes_of("DynamicQuantizeLinear", (np.uint8, x.dtype, np.uint8),
                                             x)  # fmt: skip
    zeros = np.zeros(w.scale.shape, w.values.dtype)
    product = x.recorder.node("MatMulInteger", np.int32, given, w.values, zero, zeros)
    return _cast(product, str(x.dtype)) * (scale * w.scale)


def _cast(x: Value, dtype: str) -> Value:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return x.recorder.node("Cast", np.dtype(dtype), x, to=to)


def _where(condition: Value, a: Any, b: Any) -> Value:
    dtype = next(v.dtype for v in (a, b) if isinstance(v, Value))
    return condition.recorder.node("Where", dtype, condition, a, b)


def _sum(x: Value, axis: int | None = None) -> Value:
    return x.then("ReduceSum", *([] if axis is None else [[axis]]), keepdims=0)


OPERATORS = SimpleNamespace(
    **{op.lower(): lambda x, op=op: x.then(op)
       for op in ("Exp", "Log", "Sin", "Tanh", "Floor", "Sigmoid", "Relu")},
    gelu=lambda x: x.then("Gelu", approximate="tanh"),
    softmax=lambda x: x.then("Softmax", axis=-1),
    max_pool2=lambda x: x.then("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
    max_pool=lambda x, window, stride, pad: x.then(
        "MaxPool", kernel_shape=[window] * 2, strides=[stride] * 2, pads=[pad] * 4),
    upsample2=lambda x: x.recorder.node(
        "Resize", x.dtype, x, "", np.asarray([1, 1, 2, 2], np.float32), mode="nearest"),
    cat=lambda parts, axis: parts[0].then("Concat", *parts[1:], axis=axis),
    matmul=lambda a, b: a.then("MatMul", b),
    layer_norm=lambda x, w, b: x.then("LayerNormalization", w, b, axis=-1, epsilon=1e-5),
    transpose=lambda x, *order: x.then("Transpose", perm=list(order)),
    reshape=lambda x, shape: x.then("Reshape", list(shape)),
    clip=lambda x, low, high: x.then("Clip", low, high),
    max=lambda x, axis: x.then("ReduceMax", [axis], keepdims=0),
    gather_sum=lambda table, index: _sum(table.then("Gather", index, axis=0), 1),
    sum=_sum, cast=_cast, where=_where, conv2d=_conv2d,
    quantised=_quantised, numbers=_numbers, dynamic_product=_dynamic_product,
)  # fmt: skip


def model(w: Workload) -> bytes:
    """The model of a workload: its inputs are x0, x1, …, its output is `out`."""
    recorder = Recorder()
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in w.inputs]
    values = [Value(recorder, f"x{i}", a.dtype) for i, a in enumerate(w.inputs)]
    out = w.body(OPERATORS, *values)
    recorder.nodes.append(helper.make_node("Identity", [out.name], ["out"]))
    inputs = [
        helper.make_tensor_value_info(v.name, kind, a.shape)
        for v, kind, a in zip(values, kinds, w.inputs)
    ]
    kind = helper.np_dtype_to_tensor_dtype(out.dtype)
    outputs = [helper.make_tensor_value_info("out", kind, None)]
    graph = helper.make_graph(recorder.nodes, "workload", inputs, outputs, recorder.constants)
    opset = [helper.make_opsetid("", OPSET)]
    made = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
    found: bytes = made.SerializeToString()
    return found
