"""A random tensor graph for a number: the same graph and inputs whenever it is asked for.

Each value knows whether it is exact: the same bits in whatever order and contraction it is
computed. Only exact values are compared, rounded to integers or reinterpreted.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import uopc
from tests.fuzz import vocabulary
from uopc import UOp
from uopc.errors import UserError
from uopc.ir.core import dtypes
from uopc.ir.core.args import FunctionArg, ParamArg
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import checked
from uopc.ir.interpret import interpreter

Array = npt.NDArray[Any]
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33)
MOST_ELEMENTS = 1500
LONG = 9000  # one graph in so many is long: parts, threads, partial sums
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 1e-40, 3e4)
_VARIABLE = ("n", 0, 9)


@dataclass(frozen=True)
class Value:
    """A node, whether it is exact, and whether its bits are those of an argument."""

    node: UOp
    exact: bool = True
    raw: bool = False


@dataclass
class Case:
    """A drawn graph: what is asked for, the arguments, and which results are exact."""

    number: str
    outputs: tuple[UOp, ...] = ()
    exact: tuple[bool, ...] = ()
    inputs: dict[str, Array] = field(default_factory=dict)
    variables: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)  # what the builders did not take


class Builder:
    """A pool of values that grows step by step."""

    def __init__(self, number: str) -> None:
        self.case = Case(number)
        self.random = random.Random(number)
        self.rng = np.random.default_rng(self.random.getrandbits(32))
        self.values: list[Value] = []
        self.written: set[str] = set()
        self.most = LONG if self.chance(0.04) else MOST_ELEMENTS
        self.symbolic = self.chance(0.12)

    # ------------------------------------------------------------ drawing
    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def one(self, some: Any) -> Any:
        return self.random.choice(some)

    def dims(self) -> tuple[Any, ...]:
        if self.most == LONG:
            return (self.one((LONG, 4097, 8192)),)
        dims = [self.one(SIZES) for _ in range(self.one((0, 1, 1, 2, 2, 3)))]
        while math.prod([d for d in dims if d]) > self.most:
            dims.pop()
        if self.symbolic and dims:
            return (self.variable(), *dims[1:])
        return tuple(dims)

    def variable(self) -> UOp:
        self.case.variables.setdefault("n", self.random.randint(*_VARIABLE[1:]))
        return uopc.variable(*_VARIABLE)

    def shape_of(self, dims: tuple[Any, ...]) -> tuple[int, ...]:
        """The dimensions with the variable's value."""
        values = self.case.variables
        return tuple([
            d if isinstance(d, int) else int(interpreter.evaluate(d.cast(dtypes.int64), {}, values))
            for d in dims
        ])  # fmt: skip

    def array(self, dims: tuple[int, ...], t: DType) -> Array:
        """Small numbers, any numbers, or those where something special happens."""
        kind = self.random.random()
        if t.kind == "bool":
            return self.rng.integers(0, 2, dims).astype(np.bool_)
        if t.is_float:
            if kind < 0.4:
                found = self.rng.integers(-4, 5, dims) / self.one((1, 1, 2, 8))
            elif kind < 0.8:
                found = self.rng.standard_normal(dims) * self.one((1.0, 1.0, 30.0, 1e-3))
            else:
                found = self.rng.choice(SPECIAL, dims)
            with np.errstate(all="ignore"):
                made: Array = np.asarray(found).astype(t.numpy)
            return made
        low, high = t.bounds
        if kind < 0.6:
            return self.rng.integers(max(low, -5), 9, dims).astype(t.numpy)
        edges = (low, low + 1, -1, 0, 1, 2, t.bits - 1, t.bits, high - 1, high)
        fitting = np.array([v for v in edges if v >= low], t.numpy)
        return np.asarray(self.rng.choice(fitting, dims))

    # ------------------------------------------------------------ values
    def param(self, dims: tuple[Any, ...], t: DType) -> Value:
        name = f"in{len(self.case.inputs)}"
        self.case.inputs[name] = np.asarray(self.array(self.shape_of(dims), t))
        return Value(uopc.param(name, dims, t), raw=True)

    def like(self, v: Value, t: DType | None = None) -> Value:
        """Another operand for v: of its shape, of a part of it that broadcasts, a constant."""
        t = t or v.node.dtype
        dims = v.node.shape
        fitting = [w for w in self.values if w.node.dtype is t and w.node.shape == dims]
        if fitting and self.chance(0.4):
            found: Value = self.one(fitting)
            return found
        if self.chance(0.2):
            return Value(uopc.constant(self.array((), t).item(), t))
        if self.chance(0.15) and all(isinstance(d, int) for d in dims):
            return Value(uopc.constant(self.array(dims, t)))
        if dims and self.chance(0.2):
            dims = dims[self.one(range(len(dims))) :]
        return self.param(dims, t)

    def pick(self) -> Value:
        made: Value = self.one(self.values[-3:] if self.chance(0.6) else self.values)
        return made

    def keep(self, v: Value | None) -> None:
        if v is None:
            return
        sizes = [d if isinstance(d, int) else _VARIABLE[2] for d in v.node.shape]
        if math.prod(sizes) <= 2 * self.most and len(sizes) <= 5:
            self.values.append(v)

    def step(self, make: Callable[[Builder], Value | None]) -> None:
        """One more value; what the builders refuse is noted, with the reason."""
        try:
            self.keep(make(self))
        except UserError as error:
            self.case.refused.append(str(error).splitlines()[0])


# ---------------------------------------------------------------- elementwise
def apply(b: Builder, op: Op, a: Value) -> Value | None:
    """op on a, with operands as the table asks for."""
    if op is Ops.CAST:
        return cast(b, a)
    if op is Ops.BITCAST:
        return bitcast(b, a)
    if op is Ops.WHERE:
        return where(b, a)
    others = [b.like(a) for _ in op.operands[1:]]
    all_of = (a, *others)
    exact = all(v.exact for v in all_of)
    if op in vocabulary.JUMPS and not exact:
        return None
    if a.node.dtype.is_float:
        exact = exact and op in vocabulary.EXACT
    return Value(a.node.alu(op, *[v.node for v in others]), exact)


def elementwise(b: Builder) -> Value | None:
    a = b.pick()
    return apply(b, b.one(vocabulary.elementwise(a.node.dtype)), a)


def where(b: Builder, a: Value) -> Value | None:
    condition, other = b.like(a, dtypes.bool_), b.like(a)
    return Value(uopc.where(condition.node, a.node, other.node), a.exact and other.exact)


def cast(b: Builder, a: Value) -> Value | None:
    t = b.one([t for t in dtypes.ARRAY_TYPES if t is not a.node.dtype])
    if not a.exact and not t.is_float:
        return None
    return Value(a.node.cast(t), a.exact)


def bitcast(b: Builder, a: Value) -> Value | None:
    """NaN has many bit patterns, so floats are reinterpreted as they came."""
    if a.node.dtype.is_float and not a.raw:
        a = b.param(a.node.shape, a.node.dtype)
    dims, t = a.node.shape, a.node.dtype
    last = dims[-1] * t.bits if dims and isinstance(dims[-1], int) else 0
    others = [o for o in dtypes.ARRAY_TYPES if o.kind != "bool" and o is not t]
    fitting = [o for o in others if o.bits == t.bits or (last and last % o.bits == 0)]
    return Value(a.node.bitcast(b.one(fitting)), raw=a.raw)


# ---------------------------------------------------------------- movement
def _moved(a: Value, node: UOp) -> Value:
    return Value(node, a.exact, a.raw)


def reshape(b: Builder) -> Value | None:
    a = b.pick()
    dims = a.node.shape
    if not all(isinstance(d, int) for d in dims):
        return _moved(a, a.node.reshape(dims[0], math.prod(dims[1:]), 1))
    left, new = math.prod(dims), []
    if left == 0:
        return _moved(a, a.node.reshape(*reversed(dims)))
    while left > 1 and len(new) < 3:
        d = b.one([d for d in range(1, left + 1) if left % d == 0])
        new.append(d)
        left //= d
    return _moved(a, a.node.reshape(*new, left))


def permute(b: Builder) -> Value | None:
    a = b.pick()
    return _moved(a, a.node.permute(*b.random.sample(range(a.node.ndim), a.node.ndim)))


def flip(b: Builder) -> Value | None:
    a = b.pick()
    axes = [i for i in range(a.node.ndim) if b.chance(0.5)]
    return _moved(a, a.node.flip(*axes)) if axes else None


def expand(b: Builder) -> Value | None:
    a = b.pick()
    dims = tuple([b.one((2, 3, 8)) if d == 1 and b.chance(0.7) else d for d in a.node.shape])
    lead = (b.one((1, 2, 5)),) if b.chance(0.5) else ()
    return _moved(a, a.node.expand(*lead, *dims))


def pad(b: Builder) -> Value | None:
    a = b.pick()
    widths = [(b.one((0, 0, 1, 3)), b.one((0, 0, 1, 2))) for _ in a.node.shape]
    value = b.one((0, 0, 1))
    padded = a.node.pad(widths, value=bool(value) if a.node.dtype is dtypes.bool_ else value)
    return Value(padded, a.exact)


def part(b: Builder) -> Value | None:
    a = b.pick()
    keys = []
    for d in a.node.shape:
        if not isinstance(d, int):
            keys.append(b.one((slice(None), slice(None, None, -1))))
            continue
        first, last = sorted((b.one(range(d + 1)), b.one(range(d + 1))))
        step = b.one((1, 1, 1, 2, -1, -3))
        keys.append(slice(first, last, step) if step > 0 else slice(None, None, step))
    return _moved(a, a.node[tuple(keys)])


def cat(b: Builder) -> Value | None:
    a = b.pick()
    if not a.node.ndim:
        return None
    axis = b.one(range(a.node.ndim))
    dims = (*a.node.shape[:axis], b.one(SIZES), *a.node.shape[axis + 1 :])
    others = [b.one([a, b.param(dims, a.node.dtype)]) for _ in range(b.one((1, 1, 2)))]
    exact, raw = (all(x) for x in zip(*[(v.exact, v.raw) for v in (a, *others)]))
    return Value(a.node.cat(*[v.node for v in others], axis=axis), exact, raw)


def stack(b: Builder) -> Value | None:
    a = b.pick()
    c = b.like(a)
    if c.node.shape != a.node.shape:
        return None
    return Value(a.node.stack(c.node, axis=b.one(range(a.node.ndim + 1))), a.exact and c.exact)


# ---------------------------------------------------------------- reductions and access
def reduce(b: Builder) -> Value | None:
    a = b.pick()
    if not a.node.ndim:
        return None
    axes = tuple(sorted(b.random.sample(range(a.node.ndim), b.one(range(1, a.node.ndim + 1)))))
    op = b.one(("add", "add", "mul", "max", "min"))
    node = a.node.reduce(op, axes, keepdims=b.chance(0.3))
    return Value(node, a.exact and (op in ("max", "min") or not a.node.dtype.is_float))


def method(b: Builder) -> Value | None:
    """A few composed ones, whose parts meet in ways that single steps seldom do."""
    a = b.pick()
    if not a.node.ndim or 0 in a.node.shape or not all(isinstance(d, int) for d in a.node.shape):
        return None
    axis = b.one(range(a.node.ndim))
    name = b.one(("sum", "mean", "softmax", "argmax", "cumsum", "matmul", "max", "var"))
    if name == "matmul":
        if a.node.ndim < 2 or a.node.dtype is dtypes.bool_:
            return None
        other = b.param((a.node.shape[-1], b.one(SIZES)), a.node.dtype)
        return Value(a.node @ other.node, a.exact and not a.node.dtype.is_float)
    if name == "argmax":
        return Value(a.node.argmax(axis)) if a.exact else None
    if name == "softmax":
        return Value(a.node.softmax(axis), False) if a.node.dtype.is_float else None
    node = getattr(a.node, name)(axis)
    return Value(node, a.exact and (name == "max" or not node.dtype.is_float))


def gather(b: Builder) -> Value | None:
    a = b.pick()
    if not a.node.ndim or not isinstance(a.node.shape[0], int) or a.node.shape[0] == 0:
        return None
    n = a.node.shape[0]
    index = b.rng.integers(-n, n, (b.one(SIZES),)).astype(b.one(("int32", "int64")))
    if b.chance(0.3):
        return _moved(a, a.node.take(uopc.constant(index), 0))
    name = f"in{len(b.case.inputs)}"
    b.case.inputs[name] = index
    taken = uopc.param(name, index.shape, dtypes.from_numpy(index.dtype))
    return _moved(a, a.node.take(taken, 0))


def count(b: Builder) -> Value | None:
    n = b.variable() if b.symbolic and b.chance(0.5) else b.one(SIZES)
    counted = uopc.arange(n, dtype=dtypes.int32) if isinstance(n, int) else uopc.arange(n)
    return Value(counted * b.one((1, 3, -2)) + b.one((0, 1, 5)))


def scalar_variable(b: Builder) -> Value | None:
    a = b.pick()
    return Value(a.node + b.variable().cast(a.node.dtype)) if a.node.dtype.is_int else None


# ---------------------------------------------------------------- storage
def stored(b: Builder) -> Value | None:
    a = b.pick()
    kind = b.one(("contiguous", "contiguous", "detach", "copy", "contiguous_backward"))
    if kind == "contiguous":
        return _moved(a, a.node.contiguous())
    if kind == "detach":
        return _moved(a, a.node.detach())
    op, arg = (Ops.COPY, "cpu") if kind == "copy" else (Ops.CONTIGUOUS_BACKWARD, None)
    return _moved(a, checked(op, a.node.dtype, (a.node,), arg, None))


def assign(b: Builder) -> Value | None:
    """A store to a part of an argument, which may be what is stored, moved."""
    params = [v for v in b.values if v.node.op is Ops.PARAM and v.node.arg.name not in b.written]
    if not params:
        return None
    p = b.one(params)
    target = p.node
    if target.ndim and isinstance(target.shape[0], int) and b.chance(0.5):
        first, last = sorted((b.one(range(target.shape[0] + 1)), b.one(range(target.shape[0] + 1))))
        target = target[first:last]
    fitting = [v for v in b.values if v.node.dtype is target.dtype and v.node.shape == target.shape]
    source = b.one(fitting) if fitting and b.chance(0.6) else b.like(Value(target))
    if target.ndim and b.chance(0.3) and source.node.shape == target.shape:
        source = _moved(source, source.node.flip(0))
    b.written.add(p.node.arg.name)
    return Value(target.assign(source.node), source.exact)


def function(b: Builder) -> Value | None:
    """A graph of two results, called once."""
    a = b.pick()
    c = b.like(a)
    if c.node.shape != a.node.shape or not all(isinstance(d, int) for d in a.node.shape):
        return None
    p, q = [
        checked(Ops.PARAM, a.node.dtype, (), ParamArg(f"arg{i}", a.node.shape, i), None)
        for i in range(2)
    ]
    body = checked(
        Ops.FUNCTION, dtypes.void, (p.maximum(q), uopc.where(p.eq(q), q, p)),
        FunctionArg("f", b.chance(0.5)), None,
    )  # fmt: skip
    if not (a.exact and c.exact):
        return None
    call = checked(Ops.CALL, dtypes.void, (body, a.node, c.node), None, None)
    return Value(checked(Ops.GETTUPLE, a.node.dtype, (call,), b.one((0, 1)), None))


STEPS: tuple[Callable[[Builder], Value | None], ...] = (
    elementwise, elementwise, elementwise, elementwise, reshape, permute, flip, expand, pad, part,
    cat, stack, reduce, reduce, method, gather, count, scalar_variable, stored, assign, function,
)  # fmt: skip
_PAIRS = vocabulary.pairs()
FOCUSES = 3  # pairs of op and dtype that a case is sure to have


def _focus(b: Builder, op: Op) -> Value | None:
    """op on the value made last; again with other operands where it folds away."""
    a = b.values[-1]
    made = [apply(b, op, a) for _ in range(4)]
    return next((v for v in made if v is not None and v.node.op is op), made[0])


def draw(seed: int, i: int) -> Case:
    """Case i of a seed. Successive cases go through every op on every dtype."""
    b = Builder(f"{seed}:{i}")
    for k in range(FOCUSES):
        op, t = _PAIRS[(i * FOCUSES + k) % len(_PAIRS)]
        b.values.append(b.param(b.dims(), t))
        b.step(functools.partial(_focus, op=op))
    for _ in range(b.one((1, 3, 5, 8))):
        b.step(b.one(STEPS))
    chosen = [b.values[-1], *[b.one(b.values) for _ in range(b.one((0, 1, 2)))]]
    made = [v for v in b.values if v.node.op is not Ops.PARAM]
    chosen += made[:FOCUSES] + [v for v in made if v.node.op is Ops.AFTER]
    outputs = {v.node: v.exact for v in chosen}
    case = b.case
    case.outputs, case.exact = tuple(outputs), tuple(outputs.values())
    params = [u for v in case.outputs for u in v.toposort() if u.op is Ops.PARAM]
    used = {u.arg.name for u in params if u.arg.slot < 0}
    case.inputs = {name: a for name, a in case.inputs.items() if name in used}
    return case


def cases(seed: int) -> Any:
    """Case after case, without end."""
    return (draw(seed, i) for i in itertools.count())
