"""ONNX models of 1 to 8 nodes with named sizes, against the evaluator that ONNX has in NumPy.

Half of the values are made of Shape and Size: casts between dtypes, quotients, moves, comparisons
and reduces of sizes, and tensors whose shapes they are. Each model is compiled once for all sizes,
and called with several.
"""

from __future__ import annotations

import math
import random
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import uopc.onnx
from tests.fuzz.kinds import Verdict
from uopc.errors import UserError

Dims = tuple[Any, ...]
NUMBERS = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "uint64")
NAMED = ("n", "m")
MOST = 9  # the greatest size
# How a value may differ from the oracle's: not at all; last bits, behind one rounding; anyhow.
EXACT, ROUNDED, INEXACT = range(3)


@dataclass(frozen=True)
class Value:
    """A value of the model: `dims` are ints and names; elements lie in low … high."""

    name: str
    dtype: str
    dims: Dims
    low: float = -math.inf
    high: float = math.inf
    noise: int = EXACT

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")


class Refused(Exception):
    """A step that does not fit the values that there are."""


class Draw:
    """A model that grows node by node."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = random.Random(f"onnx {seed} {number}")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs = [self._input(i) for i in range(self.rng.choice((1, 1, 2)))]
        self.named = {s for v in self.inputs for s in v.dims if s in NAMED}
        self.values = list(self.inputs)
        self.free = 0
        self.kept: list[Value] = []  # whose conditions on sizes the program must have
        wanted = self.rng.randint(1, 8)
        for _ in range(200):
            if len(self.nodes) >= wanted:
                break
            try:
                self.rng.choice(STEPS)(self)
            except Refused:
                continue
        last = self.values[-1]
        others = [v for v in self.values if v not in self.inputs and v is not last]
        more = self.rng.sample(others, min(len(others), self.rng.randint(0, 2)))
        self.outputs = list(dict.fromkeys([last, *more, *self.kept]))

    def _input(self, i: int) -> Value:
        dims = self.rng.choice((("n", 4), ("n", "m"), ("n",), (1, "n", 3), ("m", "n", 2), (2, "m")))
        t = self.rng.choice(("float32", "float32", "float64", "float16", "int64", "int32", "bool"))
        return Value(f"x{i}", t, dims, -4, 4) if t != "bool" else Value(f"x{i}", t, dims)

    def node(self, op: str, given: list[Value], made: Value, **attributes: Any) -> Value:
        """A node; its result is a value from now on."""
        self.nodes.append(helper.make_node(op, [v.name for v in given], [made.name], **attributes))
        self.values.append(made)
        return made

    def new(self, dtype: str, dims: Dims, **facts: Any) -> Value:
        """A value that a node will make."""
        return Value(f"v{len(self.nodes)}", dtype, dims, **facts)

    def like(self, v: Value, **changed: Any) -> Value:
        """A value with the facts of another, and no noise less."""
        facts = {"low": v.low, "high": v.high, "noise": v.noise, **changed}
        return self.new(facts.pop("dtype", v.dtype), facts.pop("dims", v.dims), **facts)

    def constant(self, array: Any) -> Value:
        """A constant of the model."""
        array = np.asarray(array)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        low, high = (array.min(), array.max()) if array.size and array.dtype != bool else (0, 0)
        return Value(name, str(array.dtype), array.shape, float(low), float(high))

    def pick(self, fits: Callable[[Value], bool]) -> Value:
        """A value that there is, more often a late one."""
        found = [v for v in self.values if fits(v)]
        if not found:
            raise Refused
        return self.rng.choice(found[-3:] if self.rng.random() < 0.6 else found)

    def fresh(self) -> str:
        """A size that is no other one's."""
        self.free += 1
        return f"?{self.free}"

    def model(self) -> onnx.ModelProto:
        """The model."""
        infos = [
            helper.make_tensor_value_info(
                v.name, helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype)), v.dims
            )
            for v in self.inputs
        ]
        outs = [
            helper.make_tensor_value_info(
                v.name, helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype)), None
            )
            for v in self.outputs
        ]
        graph = helper.make_graph(self.nodes, "g", infos, outs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


# ---------------------------------------------------------------- steps
def _shape(d: Draw) -> None:
    v = d.pick(lambda v: bool(v.dims))
    if d.rng.random() < 0.3:
        d.node("Size", [v], d.new("int64", (), low=1, high=MOST**3 * 4))
        return
    begin = d.rng.choice((0, 0, 1, -1))
    count = len(v.dims[begin:])
    d.node("Shape", [v], d.new("int64", (count,), low=1, high=MOST * 4), start=begin)


def _is_vector(v: Value) -> bool:
    return len(v.dims) == 1 and isinstance(v.dims[0], int)


def _gather(d: Draw) -> None:
    v = d.pick(lambda v: _is_vector(v) and v.dims[0] > 0)
    places = d.rng.choice((0, -1, [0], [-1], list(range(v.dims[0])), []))
    index = np.asarray(places, d.rng.choice((np.int64, np.int32)))
    d.node("Gather", [v, d.constant(index)], d.like(v, dims=index.shape), axis=0)


def _slice(d: Draw) -> None:
    v = d.pick(_is_vector)
    begin, end, step = d.rng.choice(((0, 1, 1), (1, 9, 1), (0, -1, 1), (-1, -9, -1), (0, 9, 2)))
    count = len(range(v.dims[0])[begin:end:step])
    ends = [d.constant(np.array([k], np.int64)) for k in (begin, end, 0, step)]
    d.node("Slice", [v, *ends], d.like(v, dims=(count,)))


def _concat(d: Draw) -> None:
    v = d.pick(_is_vector)
    w = d.pick(lambda w: _is_vector(w) and w.dtype == v.dtype)
    if d.rng.random() < 0.3:
        w = d.constant(np.array([2, 3], v.dtype))
    facts = {
        "low": min(v.low, w.low), "high": max(v.high, w.high), "noise": max(v.noise, w.noise)
    }  # fmt: skip
    d.node("Concat", [v, w], d.new(v.dtype, (v.dims[0] + w.dims[0],), **facts), axis=0)


def _unsqueeze(d: Draw) -> None:
    v = d.pick(lambda v: len(v.dims) < 4)
    axis = d.rng.choice((0, -1))
    dims = (1, *v.dims) if axis == 0 else (*v.dims, 1)
    d.node("Unsqueeze", [v, d.constant(np.array([axis], np.int64))], d.like(v, dims=dims))


def _squeeze(d: Draw) -> None:
    """Of an axis of size 1, or of all of them: a free size of 1 is refused when it comes."""
    v = d.pick(lambda v: 1 in v.dims)
    if d.rng.random() < 0.4:
        dims = tuple([s for s in v.dims if s != 1])
        d.kept.append(d.node("Squeeze", [v], d.like(v, dims=dims)))
        return
    axis = v.dims.index(1)
    axes = d.constant(np.array([d.rng.choice((axis, axis - len(v.dims)))], np.int64))
    d.node("Squeeze", [v, axes], d.like(v, dims=(*v.dims[:axis], *v.dims[axis + 1 :])))


def _cast(d: Draw) -> None:
    v = d.pick(lambda v: True)
    to = d.rng.choice((*NUMBERS, "bool"))
    if to not in ("bool", "float32", "float64"):
        info = np.finfo(to) if to.startswith("float") else np.iinfo(to)
        if v.dtype != "bool" and not (info.min <= v.low and v.high <= info.max):
            raise Refused
    if v.noise and (v.is_float == to.startswith("float") or v.noise == INEXACT):
        raise Refused
    noise = v.noise if to.startswith("float") else EXACT
    if to in ("float16", "float32") and v.is_float:
        noise = min(noise + 1, INEXACT)
    facts = {"noise": noise} | ({"low": 0, "high": 1} if "bool" in (v.dtype, to) else {})
    made = d.like(v, dtype=to, **facts)
    if d.rng.random() < 0.2:
        d.node("CastLike", [v, d.constant(np.ones((), to))], made)
    else:
        number = helper.np_dtype_to_tensor_dtype(np.dtype(to))
        d.node("Cast", [v], made, to=number)


def _other(d: Draw, v: Value, nonzero: bool = False) -> Value:
    """An operand that broadcasts with v and has its dtype."""
    def fits(w: Value) -> bool:
        same = w.dtype == v.dtype and (w.dims in ((), (1,), v.dims))
        return same and not (nonzero and w.low <= 0 <= w.high)

    if d.rng.random() < 0.5:
        try:
            return d.pick(fits)
        except Refused:
            pass
    numbers = [1, 2, 3, 5, 7] + ([] if v.dtype.startswith("u") else [-2, -3, -4])
    numbers += [0.5, 0.25, 1.5] if v.is_float else []
    shape = d.rng.choice(((), (1,)))
    return d.constant(np.full(shape, d.rng.choice(numbers), v.dtype))


def _spread(v: Value, w: Value) -> Dims:
    return v.dims if len(v.dims) >= len(w.dims) else w.dims


def _interval(op: str, v: Value, w: Value) -> tuple[float, float]:
    """Bounds of the exact result, wide ones where they are hard to say."""
    if not all(map(math.isfinite, (v.low, v.high, w.low, w.high))):
        return -math.inf, math.inf
    if op == "Add":
        return v.low + w.low, v.high + w.high
    if op == "Sub":
        return v.low - w.high, v.high - w.low
    if op in ("Max", "Min", "Sum"):
        return min(v.low, w.low) * 2, max(v.high, w.high) * 2
    if op == "Mul":
        ends = [a * b for a in (v.low, v.high) for b in (w.low, w.high)]
        return min(ends), max(ends)
    if op == "Div" and (w.low >= 0.25 or w.high <= -0.25):
        size = 4 * max(abs(v.low), abs(v.high))
        return -size, size
    if op == "Mod":
        size = max(abs(w.low), abs(w.high))
        return -size, size
    return -math.inf, math.inf


def _binary(d: Draw) -> None:
    v = d.pick(lambda v: v.dtype != "bool")
    op = d.rng.choice(("Add", "Sub", "Mul", "Div", "Div", "Mod", "Mod", "Max", "Min", "Sum"))
    swapped = op in ("Add", "Sub", "Mul") and d.rng.random() < 0.3
    w = _other(d, v, nonzero=op in ("Div", "Mod"))
    noise = max(v.noise, w.noise)
    attributes = {}
    if op == "Mod":
        attributes = {"fmod": 1 if v.is_float else d.rng.randint(0, 1)}
        if noise > EXACT:
            raise Refused
    if v.is_float:
        rounds = op == "Div" or (v.dtype == "float16" and op not in ("Max", "Min", "Mod"))
        noise = INEXACT if noise and op not in ("Max", "Min") else max(noise, int(rounds))
    low, high = _interval(op, v, w) if not swapped else _interval(op, w, v)
    if not v.is_float and not _fits(v.dtype, low, high):
        low, high = np.iinfo(v.dtype).min, np.iinfo(v.dtype).max
    made = d.new(v.dtype, _spread(v, w), low=low, high=high, noise=noise)
    d.node(op, [w, v] if swapped else [v, w], made, **attributes)


def _fits(t: str, low: float, high: float) -> bool:
    return np.iinfo(t).min <= low and high <= np.iinfo(t).max


def _compare(d: Draw) -> None:
    v = d.pick(lambda v: v.dtype != "bool" and v.noise < INEXACT)
    w = _other(d, v)
    if w.noise == INEXACT:
        raise Refused
    op = d.rng.choice(("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"))
    d.node(op, [v, w], d.new("bool", _spread(v, w), low=0, high=1))


def _logic(d: Draw) -> None:
    v = d.pick(lambda v: v.dtype == "bool")
    if d.rng.random() < 0.5:
        d.node("Not", [v], d.like(v))
        return
    w = d.pick(lambda w: w.dtype == "bool" and w.dims in ((), (1,), v.dims))
    op = d.rng.choice(("And", "Or", "Xor"))
    d.node(op, [v, w], d.new("bool", _spread(v, w), low=0, high=1))


def _where(d: Draw) -> None:
    c = d.pick(lambda v: v.dtype == "bool")
    v = d.pick(lambda v: v.dims in ((), c.dims))
    if v.dtype == "bool":
        raise Refused
    w = _other(d, v)
    facts = {
        "low": min(v.low, w.low), "high": max(v.high, w.high), "noise": max(v.noise, w.noise)
    }  # fmt: skip
    dims = max((c.dims, v.dims, w.dims), key=len)
    d.node("Where", [c, v, w], d.new(v.dtype, dims, **facts))


def _unary(d: Draw) -> None:
    v = d.pick(lambda v: v.dtype != "bool")
    size = max(abs(v.low), abs(v.high))
    signed = not v.dtype.startswith("u")
    ops = [*(["Neg", "Abs"] if signed else []), "Sign", "Identity"]
    if v.is_float:
        ops += ["Floor", "Ceil", "Round", "Sqrt", "Relu", "IsNaN", "Reciprocal"]
    op = d.rng.choice(ops)
    if op in ("Floor", "Ceil", "Round", "Sign", "IsNaN") and v.noise == INEXACT:
        raise Refused
    if op == "IsNaN":
        d.node(op, [v], d.new("bool", v.dims, low=0, high=1))
    elif op in ("Sqrt", "Reciprocal"):
        noise = INEXACT if v.noise else ROUNDED
        d.node(op, [v], d.new(v.dtype, v.dims, noise=noise))
    else:
        d.node(op, [v], d.like(v, low=-size - 1, high=size + 1))


def _reduce(d: Draw) -> None:
    v = d.pick(lambda v: bool(v.dims) and v.dtype not in ("bool", "float16", "int8", "uint8"))
    op = d.rng.choice(("Sum", "Mean", "Max", "Min", "Prod", "L1", "SumSquare"))
    rank = len(v.dims)
    axes = d.rng.choice((None, [0], [-1], list(range(rank))))
    keep = d.rng.randint(0, 1)
    gone = set(range(rank)) if axes is None else {a % rank for a in axes}
    left = [1 if i in gone else s for i, s in enumerate(v.dims) if keep or i not in gone]
    given = [v] if axes is None else [v, d.constant(np.array(axes, np.int64))]
    if any([s == 0 for s in v.dims]):
        raise Refused
    noise = v.noise
    if v.is_float and op not in ("Max", "Min"):
        noise = INEXACT
    same = op in ("Max", "Min", "Mean")
    facts = {"low": v.low, "high": v.high} if same else {}
    if not v.is_float and not same:
        facts = {"low": float(np.iinfo(v.dtype).min), "high": float(np.iinfo(v.dtype).max)}
    d.node(f"Reduce{op}", given, d.new(v.dtype, tuple(left), noise=noise, **facts), keepdims=keep)


def _expand(d: Draw) -> None:
    """A value in the shape of another one, which a node computes."""
    shape = next((n for n in reversed(d.nodes) if n.op_type == "Shape"), None)
    v = d.pick(lambda v: v.dims in ((), (1,)))
    if shape is None or any([a.name == "start" and a.i for a in shape.attribute]):
        raise Refused
    of = next(u for u in d.values if u.name == shape.input[0])
    to = next(u for u in d.values if u.name == shape.output[0])
    d.node("Expand", [v, to], d.like(v, dims=of.dims))


def _made_of_sizes(d: Draw) -> None:
    """A tensor whose sizes are values."""
    v = d.pick(lambda v: v.dtype == "int64" and v.low >= 1 and v.high <= 40 and v.noise == EXACT)
    if v.dims == () and d.rng.random() < 0.7:
        ends = [d.constant(np.asarray(k, np.int64)) for k in (0, 1)]
        made = d.new("int64", (d.fresh(),), low=0, high=40)
        d.node("Range", [ends[0], v, ends[1]], made)
        return
    if not _is_vector(v) or v.dims[0] > 2:
        raise Refused
    fill = np.array([d.rng.choice((0, 2))], d.rng.choice(("float32", "int64")))
    dims = tuple([d.fresh() for _ in range(v.dims[0])])
    made = d.new(str(fill.dtype), dims, low=0, high=2)
    d.node("ConstantOfShape", [v], made, value=numpy_helper.from_array(fill, "value"))


def _move(d: Draw) -> None:
    v = d.pick(lambda v: bool(v.dims))
    kind = d.rng.choice(("transpose", "flatten", "reshape", "tile", "concat", "cumsum"))
    if kind == "transpose":
        d.node("Transpose", [v], d.like(v, dims=v.dims[::-1]))
    elif kind == "flatten":
        known = all([isinstance(s, int) for s in v.dims])
        dims = (1, math.prod(v.dims)) if known else (1, d.fresh())
        d.node("Flatten", [v], d.like(v, dims=dims), axis=0)
    elif kind == "reshape":
        wanted = d.constant(np.array([0, -1], np.int64))
        if len(v.dims) < 2:
            raise Refused
        known = all([isinstance(s, int) for s in v.dims[1:]])
        last = math.prod(v.dims[1:]) if known else d.fresh()
        d.node("Reshape", [v, wanted], d.like(v, dims=(v.dims[0], last)))
    elif kind == "tile":
        times = np.ones(len(v.dims), np.int64)
        times[0] = 2
        dims = (v.dims[0] * 2 if isinstance(v.dims[0], int) else d.fresh(), *v.dims[1:])
        d.node("Tile", [v, d.constant(times)], d.like(v, dims=dims))
    elif kind == "concat":
        dims = (v.dims[0] * 2 if isinstance(v.dims[0], int) else d.fresh(), *v.dims[1:])
        d.node("Concat", [v, v], d.like(v, dims=dims), axis=0)
    else:
        if v.dtype in ("bool", "float16", "int8", "uint8") or v.noise:
            raise Refused
        made = d.new(v.dtype, v.dims, noise=INEXACT if v.is_float else EXACT)
        d.node("CumSum", [v, d.constant(np.asarray(0, np.int64))], made)


STEPS: tuple[Callable[[Draw], None], ...] = (
    _shape, _shape, _gather, _slice, _concat, _unsqueeze, _squeeze, _cast, _cast, _cast, _binary,
    _binary, _binary, _compare, _logic, _where, _unary, _reduce, _expand, _made_of_sizes, _move,
)  # fmt: skip


# ---------------------------------------------------------------- a case
def _arrays(d: Draw, rng: np.random.Generator, sizes: dict[str, int]) -> dict[str, Any]:
    made = {}
    for v in d.inputs:
        shape = [sizes.get(s, s) for s in v.dims]
        numbers: npt.NDArray[Any] = rng.integers(-32, 33, shape)
        wide = numbers / 8 if v.is_float else numbers // 8
        made[v.name] = np.asarray(numbers > 0 if v.dtype == "bool" else wide, v.dtype)
    return made


def _difference(v: Value, got: Any, want: Any) -> str:
    """What is wrong with an output, or nothing."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != np.dtype(v.dtype) or got.shape != want.shape:
        return f"{got.dtype}{got.shape}, want {v.dtype}{want.shape}"
    if v.is_float and v.noise:
        by = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-11}[v.dtype]
        finite = np.abs(np.where(np.isfinite(want), want, 0)).max(initial=0).astype(float)
        with np.errstate(all="ignore"):
            close = np.allclose(got, want, rtol=by, atol=by * max(finite, 1), equal_nan=True)
        return "" if close else f"{got!r}, want {want!r}"
    same = np.array_equal(got, want.astype(got.dtype), equal_nan=v.is_float)
    return "" if same else f"{got!r}, want {want!r}"


def run(seed: int, number: int) -> Verdict:
    """Draw a model, and compare it with ONNX's own evaluator for three pairs of sizes."""
    warnings.simplefilter("ignore")
    d, verdict = Draw(seed, number), Verdict()
    model, rng = d.model(), np.random.default_rng([seed, number])
    try:
        program = uopc.onnx.load(model, dims=dict.fromkeys(d.named, (1, MOST)))
        for _ in range(3):
            sizes = {name: int(rng.choice((1, 2, 3, 5, 7, MOST))) for name in NAMED}
            arrays = _arrays(d, rng, sizes)
            try:
                with np.errstate(all="ignore"):
                    wanted = ReferenceEvaluator(model).run(None, arrays)
            except Exception as error:
                verdict.refused = f"ONNX's evaluator: {type(error).__name__}"
                break
            got = program(**arrays)
            got = list(got.values()) if isinstance(got, dict) else [got]
            for v, a, b in zip(d.outputs, got, wanted, strict=True):
                wrong = _difference(v, a, b)
                verdict.failures += [f"{v.name} for {sizes}: {wrong}"] if wrong else []
    except UserError as error:
        verdict.refused = str(error).splitlines()[0]
    except Exception:
        verdict.failures.append(traceback.format_exc(limit=-4))
    verdict.report = onnx.printer.to_text(model) if verdict.failures else ""
    return verdict
