"""Graphs of symbolic sizes: each call's sizes must fit, and a call whose sizes do not is refused.

Every value is drawn with its NumPy results for several bindings of the variables: an array, or None
where a size does not fit (a reshape to another number of elements, a negative pad, an index that is
outside). The compiled program, the program that is not optimised, and the interpreter must agree:
the same arrays, or a UserError that leaves all arrays alone. All memory lies between guard pages.
"""

from __future__ import annotations

import functools
import math
import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import uopc
from tests.fuzz import guards
from tests.fuzz.guards import Array, guarded
from tests.fuzz.kinds import Verdict
from uopc import UOp
from uopc.errors import UserError
from uopc.ir.core import dtypes, semantics
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

BOUNDS = ((0, 9), (1, 9), (0, 40), (1, 100), (0, 0), (5, 5), (1, 1), (0, 1), (2, 70), (0, 33))
SIZES = (0, 1, 1, 2, 3, 4, 5, 8, 16, 17)
TYPES = (dtypes.int32, dtypes.int32, dtypes.float64, dtypes.uint8, dtypes.int64, dtypes.float32)
MOST = 6000  # elements of a value, in any binding
BINDINGS = 6
Result = Array | None


class TooLarge(Exception):
    """A value has more than MOST elements in some binding."""


class Refusal(Exception):
    """The sizes do not fit in this binding."""


@dataclass(frozen=True)
class Size:
    """A number or an index expression, and its value in each binding."""

    node: Any
    values: tuple[int, ...]

    def __add__(self, other: int | Size) -> Size:
        b = other if isinstance(other, Size) else fixed(other)
        pairs = zip(self.values, b.values)
        return Size(self.node + b.node, tuple([x + y for x, y in pairs]))

    def __sub__(self, other: int | Size) -> Size:
        b = other if isinstance(other, Size) else fixed(other)
        pairs = zip(self.values, b.values)
        return Size(self.node - b.node, tuple([x - y for x, y in pairs]))

    def __mul__(self, other: int | Size) -> Size:
        b = other if isinstance(other, Size) else fixed(other)
        pairs = zip(self.values, b.values)
        return Size(self.node * b.node, tuple([x * y for x, y in pairs]))

    def __floordiv__(self, k: int) -> Size:
        return Size(self.node // k, tuple([v // k for v in self.values]))


def fixed(n: int) -> Size:
    return Size(n, (n,) * BINDINGS)


@dataclass(frozen=True)
class Value:
    """A node, its sizes, and its result in each binding."""

    node: UOp
    dims: tuple[Size, ...]
    results: tuple[Result, ...]


@dataclass
class Case:
    """Outputs, and for each binding the variables and the arrays."""

    bindings: list[dict[str, int]]
    outputs: list[Value] = field(default_factory=list)
    inputs: list[dict[str, Array]] = field(default_factory=list)
    finals: dict[str, tuple[Result, ...]] = field(default_factory=dict)  # of written params
    wrong: list[str] = field(default_factory=list)


class Builder:
    """A pool of values that grows step by step."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"symbolic {seed}:{number}")
        self.rng = np.random.default_rng(self.random.getrandbits(32))
        names = "nmk"[: self.one((1, 2, 2, 3))]
        bounds = {name: self.one(BOUNDS) for name in names}
        self.case = Case(self._bindings(bounds))
        self.case.inputs = [{} for _ in self.case.bindings]
        self.sizes = [
            Size(uopc.variable(v, *bounds[v]), tuple([b[v] for b in self.case.bindings]))
            for v in names
        ]
        self.values: list[Value] = []

    def one(self, some: Any) -> Any:
        return self.random.choice(some)

    def _bindings(self, bounds: dict[str, tuple[int, int]]) -> list[dict[str, int]]:
        """One with equal values where the bounds allow it, the least, the greatest, others."""

        def inside(v: int, low: int, high: int) -> int:
            return min(max(v, low), high)

        common = self.one((1, 2, 3, 4, 5, 6, 8, 16))
        found = [{v: inside(common, *b) for v, b in bounds.items()}]
        found.append({v: b[0] for v, b in bounds.items()})
        found.append({v: b[1] for v, b in bounds.items()})
        while len(found) < BINDINGS:
            kind = self.one((0, 1, 7, 8, 15, 16, 17, 32, None))
            found.append({
                v: self.random.randint(*b) if kind is None else inside(kind, *b)
                for v, b in bounds.items()
            })  # fmt: skip
        return found

    # ------------------------------------------------------------ sizes
    def size(self) -> Size:
        """A number, a variable, or a little more."""
        kind = self.random.random()
        if kind < 0.3:
            return fixed(self.one(SIZES))
        n: Size = self.one(self.sizes)
        if kind < 0.75:
            return n
        makers: tuple[Callable[[], Size], ...] = (
            lambda: n + self.one((1, 2, 3)), lambda: n * self.one((2, 3, 4)),
            lambda: n // self.one((2, 3, 4)), lambda: n + self.one(self.sizes),
            lambda: n - self.one((1, 2)), lambda: n - self.one(self.sizes),
        )  # fmt: skip
        return self.one(makers)()

    def alike(self, wanted: int) -> Size:
        """A size that is `wanted` in the first binding."""
        found = [s for s in self.sizes if s.values[0] == wanted]
        found += [s * 2 for s in self.sizes if s.values[0] * 2 == wanted]
        found += [s + 1 for s in self.sizes if s.values[0] + 1 == wanted]
        return self.one([*found, fixed(wanted)])

    # ------------------------------------------------------------ values
    def made(
        self, build: Callable[[], UOp], dims: Sequence[Size],
        compute: Callable[..., Array], *operands: Value,
    ) -> Value:  # fmt: skip
        """The value that `build` makes; compute(binding, operands' arrays) is NumPy's."""
        results: list[Result] = []
        for i in range(BINDINGS):
            arrays = [v.results[i] for v in operands]
            try:
                found = None if any(a is None for a in arrays) else compute(i, *arrays)
            except Refusal:
                found = None
            if found is not None and found.size > MOST:
                raise TooLarge
            results.append(found)
        try:
            node = build()
        except UserError as error:
            if "never is" in str(error) and any(r is not None for r in results):
                self.case.wrong.append(f"refused, though it is possible: {error}")
            raise
        return Value(node, tuple(dims), tuple(results))

    def param(self, dims: Sequence[Size], t: DType, values: Any = None) -> Value:
        """A new argument."""
        if any(min(d.values) < 0 for d in dims):
            raise TooLarge
        name = f"in{len(self.case.inputs[0])}"
        node = uopc.param(name, tuple([d.node for d in dims]), t)

        def array(i: int) -> Array:
            shape = [d.values[i] for d in dims]
            if math.prod(shape) > MOST:
                raise TooLarge
            if values is not None:
                return np.asarray(values(shape)).astype(t.numpy)
            low = 0 if t.kind in ("uint", "bool") else -3
            return self.rng.integers(low, 5, shape).astype(t.numpy)

        arrays = [array(i) for i in range(BINDINGS)]
        for given, a in zip(self.case.inputs, arrays):
            given[name] = a
        return Value(node, tuple(dims), tuple(arrays))

    def pick(self) -> Value:
        found: Value = self.one(self.values[-3:] if self.one((0, 1)) else self.values)
        return found

    def like(self, v: Value) -> Value:
        """An operand for v: of its sizes, or of the last of them."""
        t = v.node.dtype
        dims = tuple([d.node for d in v.dims])
        found = [w for w in self.values if w.node.dtype is t and w.node.shape == dims]
        if found and self.one((0, 1)):
            same: Value = self.one(found)
            return same
        return self.param(v.dims[self.one(range(len(v.dims) + 1)) :], t)


# ---------------------------------------------------------------- steps
def elementwise(b: Builder) -> Value:
    a = b.pick()
    t = a.node.dtype
    if t.kind == "bool":
        c = b.like(a)
        op = b.one((Ops.AND, Ops.OR))
        f = np.logical_and if op is Ops.AND else np.logical_or
        return b.made(lambda: a.node.alu(op, c.node), a.dims, lambda i, x, y: f(x, y), a, c)
    kind = b.one(("add", "mul", "max", "sub", "where", "less", "scalar", "variable"))
    if kind == "scalar":
        return b.made(lambda: abs(a.node) * 3 + 1, a.dims, lambda i, x: abs(x) * 3 + 1, a)
    if kind == "variable":
        n = b.one(b.sizes)
        low = t.bounds[1] if t.is_int else 1 << 20
        if max(n.values) > low:
            raise TooLarge
        return b.made(
            lambda: a.node + n.node.cast(t), a.dims,
            lambda i, x: x + np.asarray(n.values[i], t.numpy), a,
        )  # fmt: skip
    c = b.like(a)
    functions: dict[str, tuple[Any, Any]] = {
        "add": (lambda: a.node + c.node, lambda i, x, y: x + y),
        "sub": (lambda: a.node - c.node, lambda i, x, y: x - y),
        "mul": (lambda: a.node * c.node, lambda i, x, y: x * y),
        "max": (lambda: a.node.maximum(c.node), lambda i, x, y: np.maximum(x, y)),
        "less": (lambda: a.node < c.node, lambda i, x, y: x < y),
        "where": (
            lambda: uopc.where(a.node < 2, a.node, c.node), lambda i, x, y: np.where(x < 2, x, y),
        ),
    }  # fmt: skip
    build, compute = functions[kind]
    return b.made(build, a.dims, compute, a, c)


def reshape(b: Builder) -> Value:
    a = b.pick()
    dims = list(a.dims)
    total = math.prod([d.values[0] for d in dims])
    if total < 0:  # no binding fits; and -1 in a reshape means another thing
        raise TooLarge
    whole = fixed(1)
    for d in dims:
        whole = whole * d
    kind = b.one(("flat", "number", "factors", "rest", "swap", "merge", "sized"))
    if kind == "flat":
        new = [whole]
    elif kind == "number":
        new = [b.alike(total)]
    elif kind == "factors":
        f = b.one([f for f in (1, 2, 3, 4, 8) if not total % f])
        new = [b.alike(total // f), fixed(f)]
        b.random.shuffle(new)
    elif kind == "rest":
        k = b.one((b.one((1, 2, 3, 4, 8)), b.one(b.sizes)))
        return _rest(b, a, whole, k if isinstance(k, Size) else fixed(k))
    elif kind == "swap":
        new = dims[::-1]
    elif kind == "merge" and len(dims) > 1:
        at = b.one(range(len(dims) - 1))
        new = [*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :]]
    else:
        new = [*dims, fixed(1)]
        b.random.shuffle(new)
        if b.one((0, 1)):
            new[b.one(range(len(new)))] = b.size()
    return _reshaped(b, a, new)


def _reshaped(b: Builder, a: Value, new: Sequence[Size]) -> Value:
    def compute(i: int, x: Array) -> Array:
        shape = [d.values[i] for d in new]
        if min(shape, default=0) < 0 or math.prod(shape) != x.size:
            raise Refusal
        return x.reshape(shape)

    return b.made(lambda: a.node.reshape(*[d.node for d in new]), new, compute, a)


def _rest(b: Builder, a: Value, whole: Size, k: Size) -> Value:
    """A size of -1: it follows from the others."""
    pairs = zip(whole.values, k.values)
    found = Size(None, tuple([w // n if n > 0 else 0 for w, n in pairs]))
    place = b.one((0, 1))
    new = [k, found] if place else [found, k]

    def compute(i: int, x: Array) -> Array:
        if k.values[i] < 0 or found.values[i] * k.values[i] != x.size:
            raise Refusal
        return x.reshape([d.values[i] for d in new])

    node = a.node.reshape(*[-1 if d is found else d.node for d in new])
    new = [Size(node.shape[j], d.values) if d is found else d for j, d in enumerate(new)]
    return b.made(lambda: node, new, compute, a)


def expand(b: Builder) -> Value:
    a = b.pick()
    new = [b.size() if d.node == 1 and type(d.node) is int else d for d in a.dims]
    new = [*[b.size() for _ in range(b.one((0, 1)))], *new]

    def compute(i: int, x: Array) -> Array:
        shape = [d.values[i] for d in new]
        if min(shape, default=0) < 0:
            raise Refusal
        if math.prod(shape) > MOST:
            raise TooLarge
        return np.broadcast_to(x, shape)

    return b.made(lambda: a.node.expand(*[d.node for d in new]), new, compute, a)


def pad(b: Builder) -> Value:
    a = b.pick()
    pairs = [(b.one((fixed(0), b.size())), b.one((fixed(0), b.size()))) for _ in a.dims]
    value = bool(b.one((0, 1))) if a.node.dtype.kind == "bool" else b.one((0, 0, 1))

    def compute(i: int, x: Array) -> Array:
        widths = [(low.values[i], high.values[i]) for low, high in pairs]
        if any(min(w) < 0 for w in widths):
            raise Refusal
        if math.prod([sum(w) + d for w, d in zip(widths, x.shape)]) > MOST:
            raise TooLarge
        return np.pad(x, widths, constant_values=value) if x.ndim else x

    return b.made(
        lambda: a.node.pad([(low.node, high.node) for low, high in pairs], value=value),
        [low + d + high for (low, high), d in zip(pairs, a.dims)], compute, a,
    )  # fmt: skip


def shrink(b: Builder) -> Value:
    """Where a window leaves its source it reads zeros."""
    a = b.pick()
    pairs = []
    for d in a.dims:
        begin = b.one((fixed(0), fixed(0), b.size()))
        pairs.append((begin, b.one((d, begin + b.one((1, 2, 4)), b.size()))))

    def compute(i: int, x: Array) -> Array:
        ends = [(low.values[i], high.values[i]) for low, high in pairs]
        if any(high < low for low, high in ends):
            raise Refusal
        if math.prod([high - low for low, high in ends]) > MOST:
            raise TooLarge
        out = np.zeros([high - low for low, high in ends], x.dtype)
        if not out.size or not x.size:
            return out
        spots = np.ix_(*[np.arange(low, high) for low, high in ends]) if ends else ()
        inside = np.ones(out.shape, np.bool_)
        for p, d in zip(spots, x.shape):
            inside = inside & (p >= 0) & (p < d)
        clipped = tuple([np.clip(p, 0, d - 1) for p, d in zip(spots, x.shape)])
        return np.where(inside, x[clipped], out)

    dims = [high - low for low, high in pairs]
    return b.made(lambda: a.node.shrink([(p.node, q.node) for p, q in pairs]), dims, compute, a)


def part(b: Builder) -> Value:
    """Slices are clipped, as in NumPy."""
    a = b.pick()
    keys = []
    for d in a.dims:
        limits = [b.one((None, None, b.size(), fixed(b.one((-3, -1, 0, 2))), d)) for _ in range(2)]
        keys.append((*limits, b.one((1, 1, 1, 2, -1, -2, 3))))

    def compute(i: int, x: Array) -> Array:
        at = [[s if s is None else s.values[i] for s in key[:2]] for key in keys]
        return x[tuple([slice(p, q, step) for (p, q), (_, _, step) in zip(at, keys)])]

    def build() -> UOp:
        at = [[s if s is None else s.node for s in key[:2]] for key in keys]
        return a.node[tuple([slice(p, q, step) for (p, q), (_, _, step) in zip(at, keys)])]

    return _shaped(b, b.made(build, (), compute, a))


def _shaped(b: Builder, v: Value) -> Value:
    """The value with the sizes that its node says, which must be those of the results."""
    dims = [sized(b, d) for d in v.node.shape]
    for i, r in enumerate(v.results):
        if r is not None and r.shape != tuple([d.values[i] for d in dims]):
            b.case.wrong.append(f"{v.node.op.name}: shape {v.node.shape} for {r.shape}")
    return Value(v.node, tuple(dims), v.results)


def sized(b: Builder, d: Any) -> Size:
    if type(d) is int:
        return fixed(d)
    u = d.cast(dtypes.int64)
    return Size(d, tuple([int(interpreter.evaluate(u, {}, v)) for v in b.case.bindings]))


def element(b: Builder) -> Value:
    a = b.pick()
    if not a.dims:
        raise TooLarge
    k = b.one((b.size(), b.size(), b.size() * -1, fixed(b.one((-2, -1, 0, 1)))))

    def compute(i: int, x: Array) -> Array:
        if not -len(x) <= k.values[i] < len(x):
            raise Refusal
        return np.asarray(x[k.values[i]])

    return b.made(lambda: a.node[k.node], a.dims[1:], compute, a)


def moved(b: Builder) -> Value:
    a = b.pick()
    if b.one((0, 1)):
        axes = [i for i in range(len(a.dims)) if b.one((0, 1))]
        return b.made(
            lambda: a.node.flip(*axes) if axes else a.node, a.dims,
            lambda i, x: np.flip(x, axes) if axes else x, a,
        )  # fmt: skip
    order = b.random.sample(range(len(a.dims)), len(a.dims))
    dims = [a.dims[i] for i in order]
    return b.made(lambda: a.node.permute(*order), dims, lambda i, x: x.transpose(order), a)


def join(b: Builder) -> Value:
    a = b.pick()
    if not a.dims:
        raise TooLarge
    if b.one((0, 0, 1)):
        c = b.param(a.dims, a.node.dtype)
        axis = b.one(range(len(a.dims) + 1))
        dims = [*a.dims[:axis], fixed(2), *a.dims[axis:]]
        return b.made(
            lambda: a.node.stack(c.node, axis=axis), dims, lambda i, x, y: np.stack([x, y], axis),
            a, c,
        )  # fmt: skip
    axis = b.one(range(len(a.dims)))
    c = b.param([*a.dims[:axis], b.size(), *a.dims[axis + 1 :]], a.node.dtype)
    dims = [*a.dims[:axis], a.dims[axis] + c.dims[axis], *a.dims[axis + 1 :]]
    return b.made(
        lambda: a.node.cat(c.node, axis=axis), dims,
        lambda i, x, y: np.concatenate([x, y], axis), a, c,
    )  # fmt: skip


def reduce(b: Builder) -> Value:
    a = b.pick()
    if not a.dims:
        raise TooLarge
    axes = tuple(sorted(b.random.sample(range(len(a.dims)), b.one(range(1, len(a.dims) + 1)))))
    op = b.one(("add", "max", "min", "max", "min", "mul"))
    if op == "mul" and a.node.dtype.is_float:
        op = "add"
    f = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}[op]
    if a.node.dtype.kind == "bool":
        f = {"add": np.logical_or, "mul": np.logical_and}.get(op, f)
    first = semantics.reduce_identity(op, a.node.dtype)

    def compute(i: int, x: Array) -> Array:
        return np.asarray(f.reduce(x, axes, dtype=x.dtype, initial=np.asarray(first, x.dtype)))

    dims = [d for i, d in enumerate(a.dims) if i not in axes]
    return b.made(lambda: a.node.reduce(op, axes), dims, compute, a)


def method(b: Builder) -> Value:
    a = b.pick()
    t = a.node.dtype
    if not a.dims or t not in (dtypes.int32, dtypes.int64, dtypes.float64):
        raise TooLarge
    axis = b.one(range(len(a.dims)))
    if b.one((0, 1)):
        return b.made(
            lambda: a.node.cumsum(axis), a.dims, lambda i, x: np.cumsum(x, axis, x.dtype), a
        )
    c = b.param([a.dims[-1], b.size()], t)
    return b.made(
        lambda: a.node @ c.node, [*a.dims[:-1], c.dims[1]], lambda i, x, y: np.matmul(x, y), a, c
    )


def gather(b: Builder) -> Value:
    """An index from data that is outside of its axis reads 0."""
    a = b.pick()
    if not a.dims:
        raise TooLarge
    at = b.param([b.size()], dtypes.int32, lambda shape: b.rng.integers(-6, 12, shape))

    def compute(i: int, x: Array, y: Array) -> Array:
        n = len(x)
        inside = (-n <= y) & (y < n)
        if not inside.any():
            return np.zeros((len(y), *x.shape[1:]), x.dtype)
        taken = x[np.where(inside, y, 0)]
        return np.where(inside.reshape(-1, *[1] * (x.ndim - 1)), taken, np.zeros((), x.dtype))

    return b.made(lambda: a.node.take(at.node, 0), [at.dims[0], *a.dims[1:]], compute, a, at)


def count(b: Builder) -> Value:
    n = b.size()
    if min(n.values) < 0:
        raise TooLarge
    if b.one((0, 1)):
        return b.made(
            lambda: uopc.arange(n.node, dtype=dtypes.int32), [n],
            lambda i: np.arange(n.values[i], dtype=np.int32),
        )  # fmt: skip
    dims, v, t = [n, b.size()][: b.one((1, 2))], b.one((0, 1, 5)), b.one(TYPES)

    def compute(i: int) -> Array:
        shape = [d.values[i] for d in dims]
        if min(shape) < 0:
            raise Refusal
        return np.full(shape, v, t.numpy)

    return b.made(lambda: uopc.full(tuple([d.node for d in dims]), v, t), dims, compute)


def bits(b: Builder) -> Value:
    a = b.pick()
    t = b.one((dtypes.uint8, dtypes.int32))
    if not a.dims or a.node.dtype not in (dtypes.uint8, dtypes.int32) or t is a.node.dtype:
        raise TooLarge
    last = a.dims[-1]
    dims = [*a.dims[:-1], last * 4 if t is dtypes.uint8 else last // 4]

    def compute(i: int, x: Array) -> Array:
        if x.shape[-1] * x.itemsize % t.itemsize:
            raise Refusal
        shape = [d.values[i] for d in dims]
        return np.ascontiguousarray(x).view(t.numpy).reshape(shape) if x.size else np.zeros(
            shape, t.numpy
        )  # fmt: skip

    return b.made(lambda: a.node.bitcast(t), dims, compute, a)


def converted(b: Builder) -> Value:
    a = b.pick()
    if b.one((0, 1)):
        return b.made(lambda: a.node.contiguous(), a.dims, lambda i, x: x, a)
    if a.node.dtype.is_float:
        raise TooLarge
    t = b.one((dtypes.int32, dtypes.int64, dtypes.uint8))
    return b.made(lambda: a.node.cast(t), a.dims, lambda i, x: x.astype(t.numpy), a)


def assign(b: Builder) -> Value:
    """A store to a view of an argument that nothing else reads."""
    value = b.pick()
    extra = [b.size() for _ in range(b.one((0, 0, 1)))]
    begin = b.one((fixed(0), b.size()))
    if min(begin.values) < 0 or any(min(d.values) < 0 for d in (*extra, *value.dims)):
        raise TooLarge
    after = b.one((fixed(0), fixed(2)))
    lead = value.dims[0] if value.dims else fixed(1)
    target = b.param([*extra, begin + lead + after, *value.dims[1:]], value.node.dtype)
    name = target.node.arg.name
    flips = [i for i in range(len(value.dims)) if b.one((0, 0, 1))]

    def view(i: int, x: Array, y: Array) -> Array:
        part = x[
            (*[slice(None)] * len(extra), slice(begin.values[i], begin.values[i] + lead.values[i]))
        ]
        part = np.flip(part, [f + len(extra) for f in flips]) if flips else part
        part[...] = y
        return part.copy()

    def final(i: int, x: Array, y: Array) -> Array:
        view(i, x := x.copy(), y)
        return x

    def build() -> UOp:
        window = [(0, d.node) for d in extra]
        window.append((begin.node, (begin + lead).node))
        window += [(0, d.node) for d in value.dims[1:]]
        u = target.node.shrink(window)
        if flips:
            u = u.flip(tuple([f + len(extra) for f in flips]))
        return u.assign(value.node)

    v = value if value.dims else Value(value.node, (), value.results)
    done = b.made(
        build, [*extra, lead, *value.dims[1:]], lambda i, x, y: view(i, x.copy(), y), target, v
    )
    finals = b.made(lambda: done.node, (), final, target, v)
    b.case.finals[name] = finals.results
    b.case.outputs.append(done)
    raise TooLarge  # an output, and no operand of later steps


STEPS: tuple[Callable[[Builder], Value], ...] = (
    elementwise, elementwise, reshape, reshape, reshape, expand, pad, shrink, part, part, element,
    moved, join, reduce, reduce, method, gather, count, bits, converted, assign,
)  # fmt: skip


def draw(seed: int, number: int) -> Case:
    """Case `number` of a seed."""
    b = Builder(seed, number)
    while not b.values:
        dims = [b.one((b.one(b.sizes), b.size())) for _ in range(b.one((1, 1, 2, 3)))]
        _try(b, lambda b, dims=dims: b.param(dims, b.one(TYPES)))  # type: ignore[misc]
    for _ in range(b.one((2, 4, 6, 9))):
        _try(b, b.one(STEPS))
    made = [v for v in b.values if v.node.op is not Ops.PARAM] or b.values[-1:]
    b.case.outputs += [made[-1], *[b.one(made) for _ in range(b.one((0, 1)))]]
    return b.case


def _try(b: Builder, step: Callable[[Builder], Value]) -> None:
    try:
        b.values.append(step(b))
    except (UserError, TooLarge):
        return


# ---------------------------------------------------------------- running
def run(seed: int, number: int) -> Verdict:
    """Draw a case, and run it in every binding."""
    guards.guard_programs()
    with np.errstate(all="ignore"):
        case = draw(seed, number)
        verdict = Verdict(list(case.wrong))
        rng = random.Random(number)
        ways: list[dict[str, Any]] = [{"threads": rng.choice((1, 2))}, {"optimize": False}]
        for way in ways:
            failures, refused = _compiled(case, way, rng)
            verdict.failures += [f"{way}: {f}" for f in failures]
            verdict.refused = verdict.refused or refused
        if not verdict.refused:
            for i in (0, rng.randrange(BINDINGS)):
                verdict.failures += [f"interpreter: {f}" for f in _interpreted(case, i)]
    if verdict.failures:
        sink = UOp(Ops.SINK, dtypes.void, tuple([v.node for v in case.outputs]))
        verdict.report = uopc.print_graph(sink)
    return verdict


def _compiled(case: Case, way: dict[str, Any], rng: random.Random) -> tuple[list[str], str]:
    """The failures, and the reason if the graph is refused."""
    nodes = tuple([v.node for v in case.outputs])
    try:
        f = uopc.compile(nodes, **way)
    except UserError as error:
        impossible = "never is" in str(error)
        possible = any(_fits(case, i) for i in range(BINDINGS))
        if impossible and possible:
            return [f"refused, though it is possible: {error}"], ""
        return [], str(error).splitlines()[0][:60]
    except Exception:
        return [traceback.format_exc(limit=-4)], ""
    names = {v.name for v in f._runner.plan.variables}
    failures = []
    for i, binding in enumerate(case.bindings):
        used = [a.name for a in f.inputs]
        given = {
            name: guarded(case.inputs[i][name], rng.random() < 0.7, name not in case.finals)
            for name in used
        }
        sizes = {name: v for name, v in binding.items() if name in names}
        outs: Any = None
        if rng.random() < 0.5:
            outs = tuple([
                None if s.source is not None or v.results[i] is None
                else guarded(np.empty_like(v.results[i]), rng.random() < 0.7)
                for v, s in zip(case.outputs, f._runner.plan.results)
            ])  # fmt: skip
        call = functools.partial(f, **given, **sizes, **({"out": outs} if outs else {}))
        failures += _call(case, i, call, given)
    return failures, ""


def _fits(case: Case, i: int) -> bool:
    return all(v.results[i] is not None for v in case.outputs)


def _call(case: Case, i: int, call: Callable[[], Any], given: dict[str, Array]) -> list[str]:
    """One call: its results, or its refusal, against NumPy's."""
    fits, where = _fits(case, i), f"{case.bindings[i]}"
    wanted = {name: case.finals[name][i] for name in given if name in case.finals and fits}
    found = []
    try:
        got = call()
    except UserError as error:
        if fits:
            return [f"{where}: refused: {error}"]
        got = None
    except Exception:
        return [f"{where}: {traceback.format_exc(limit=-4)}"]
    else:
        if not fits:
            return [f"{where}: sizes that do not fit were accepted"]
        found += [
            f"{where}: output {j}: {d}" for j, v in enumerate(case.outputs)
            if (d := difference(np.asarray(got[j]), v.results[i]))
        ]  # fmt: skip
    for name, a in given.items():
        want = wanted.get(name)
        d = difference(a, case.inputs[i][name] if want is None else want)
        found += [f"{where}: {name} after the call: {d}"] if d else []
    return found


def _interpreted(case: Case, i: int) -> list[str]:
    graph = UOp(Ops.SINK, dtypes.void, tuple([v.node for v in case.outputs]))
    given = {name: a.copy() for name, a in case.inputs[i].items()}
    return _call(case, i, lambda: interpreter.evaluate(graph, given, case.bindings[i]), given)


def difference(got: Array, want: Array | None) -> str:
    """The difference as text; NaN is NaN."""
    if want is None:
        return "a value where there is none"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    bad = (got != want) & ~((got != got) & (want != want))
    return (
        f"{int(bad.sum())} of {bad.size} differ, first {got[bad][0]}, want {want[bad][0]}"
        if bad.any()
        else ""
    )
