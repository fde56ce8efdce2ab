"""Recorded expressions as graphs, and what they are worth at many points at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tests.conformance.corpus import Array
from uopc.ir.builder import leaves
from uopc.ir.core import bounds, dtypes, shapes, uop, walk
from uopc.ir.core.args import BufferArg, ParamArg, RangeArg, ReduceArg, VariableArg
from uopc.ir.core.dtypes import DType
from uopc.ir.core.evaluate import elementwise, present
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine

Record = dict[str, Any]
Points = dict[str, Array]
Sources = tuple[UOp, ...]

_TYPES: Final = {"weakfloat": dtypes.float64}
_NUMBERS: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_LEAVES: Final = (Ops.VARIABLE, Ops.RANGE, Ops.SPECIAL)
MOST_POINTS: Final = 4096  # all points of a smaller domain are tried
RANDOM_POINTS: Final = 1024


def number(value: Any) -> Any:
    """A recorded number: infinities and NaN are strings, one a lane is a list."""
    if isinstance(value, list):
        return tuple([number(v) for v in value])
    return _NUMBERS[value] if isinstance(value, str) else value


def load(records: Sequence[Record]) -> list[UOp]:
    """The nodes of an expression, the root last."""
    made: list[UOp] = []
    for r in records:
        src = tuple([_strong(made[s], records[s], r) for s in r["src"]])
        made.append(_node(r, _dtype(r["dtype"]), src))
    return made


def _strong(u: UOp, source: Record, user: Record) -> UOp:
    """A weak constant has the dtype of what it is computed with."""
    if (source["op"], source["dtype"]) != ("CONST", "weakfloat") or user["op"] == "CAST":
        return u
    t = _dtype(user["dtype"])
    return leaves.const(t, u.arg) if t.is_float else u


def _dtype(name: str) -> DType:
    return _TYPES.get(name) or dtypes.by_name(name)


def _node(r: Record, dtype: DType, src: Sources) -> UOp:
    name, arg = r["op"], r.get("arg")
    if name == "VAR" and arg.get("multiple_of", 1) > 1:  # uopc: so many times another variable
        k = arg["multiple_of"]
        part = arg | {"min": -(-arg["min"] // k), "max": arg["max"] // k, "multiple_of": 1}
        return affine.scaled(_node(r | {"arg": part}, dtype, src), k)
    if name in _LEAF_ARGS:
        op, value = _LEAF_ARGS[name](arg)
        return uop.checked(op, dtype, src, value, r.get("tag"))
    if name in ("RESHAPE", "EXPAND", "SHRINK"):  # the shape, or begin and size, are sources
        dims, symbolic = leaves.split_dims(tuple([d for s in src[1:] for d in _listed(s)]))
        return uop.checked(_op(name), dtype, (src[0], *symbolic), dims, None)
    if name == "STACK" and not src:  # an empty shape
        return uop.checked(Ops.NOOP, dtypes.void, (), None, None)
    if name == "AFTER" and src[0].op is Ops.VARIABLE:  # a variable with a value for this run
        return uop.checked(Ops.BIND, dtype, (src[0], src[1].src[1]), None, None)
    if name == "LOAD" and src[0].op is Ops.PARAM:
        src = (uop.checked(Ops.INDEX, dtype, src, None, None),)
    return uop.checked(_op(name), dtype, src, None, r.get("tag"))


def _op(name: str) -> Op:
    return Op.by_name(name.lower())


def _listed(shape: UOp) -> list[shapes.Dim]:
    """The dimensions that a source of a movement op lists."""
    many = shape.op in (Ops.STACK, Ops.NOOP)
    return [s.arg if s.op is Ops.CONST else s for s in (shape.src if many else (shape,))]


_Leaf = Callable[[Any], tuple[Op, Any]]
# fmt: off
_LEAF_ARGS: Final[dict[str, _Leaf]] = {
    "CONST":   lambda a: (Ops.CONST, number(a["value"])),
    "VAR":     lambda a: (Ops.VARIABLE, VariableArg(a["name"], number(a["min"]), number(a["max"]))),
    "RANGE":   lambda a: (Ops.RANGE, RangeArg(tuple(a["id"]))),
    "SPECIAL": lambda a: (Ops.SPECIAL, a["name"]),
    "PARAM":   lambda a: (Ops.PARAM, ParamArg(f"arg{a['slot']}", tuple(a["shape"]), a["slot"])),
    "BUFFER":  lambda a: (Ops.BUFFER, BufferArg(a["slot"], tuple(a["shape"]))),
    "REDUCE":  lambda a: (Ops.REDUCE, ReduceArg("add")),
}
# fmt: on


# ---------------------------------------------------------------- points
def points(roots: Sequence[UOp], seed: int = 0) -> Points:
    """Values for the leaves below: every combination where those are few, else random ones."""
    random = np.random.default_rng(seed)
    leaves = [u for u in _order(roots) if u.op in _LEAVES]
    domains = [_domain(u) for u in leaves]
    total = math.prod(0 if d is None else len(d) for d in domains)
    if 0 < total <= MOST_POINTS:
        grid = np.meshgrid(*[np.asarray(d) for d in domains if d is not None], indexing="ij")
        return {_name(u): g.reshape(-1) for u, g in zip(leaves, grid)}
    found: Points = {}
    for u in leaves:
        found.setdefault(_name(u), _sample(u, found, random))
    return found


def _order(roots: Sequence[UOp]) -> list[UOp]:
    done: dict[UOp, None] = {}
    for root in roots:
        walk.toposort(root, done=done)
    return list(done)


def _name(u: UOp) -> str:
    if u.op is Ops.RANGE:
        return "r" + "_".join(map(str, u.arg.axis))
    return str(u.arg.name if u.op is Ops.VARIABLE else u.arg)


def _domain(u: UOp) -> range | None:
    """The values of a leaf; None where they are not few integers."""
    low, high = bounds.bounds(u)
    if u.dtype.is_float or any(s.op is not Ops.CONST for s in u.src) or high - low >= MOST_POINTS:
        return None
    return range(int(low), int(high) + 1)


def _sample(u: UOp, known: Points, random: np.random.Generator) -> Array:
    """Random values of a leaf, often at its ends or near 0."""
    count = RANDOM_POINTS
    if u.op is not Ops.VARIABLE:
        end = np.broadcast_to(np.maximum(evaluate([u.src[0]], known)[0][0], 1), (count, 1))[:, 0]
        inside = np.floor(random.uniform(0, 1, count) * end).astype(np.int64)
        pick = random.integers(0, 4, count)
        return np.where(pick == 0, 0, np.where(pick == 1, end - 1, inside))
    low, high = u.arg.low, u.arg.high
    if u.dtype.is_float:
        values = random.uniform(max(low, -50), min(high, 50), count)
        return np.round(values, random.integers(0, 2) * 3).astype(u.dtype.numpy)
    near = random.integers(max(low, -64), max(max(low, -64), min(high, 64)) + 1, count)
    anywhere = random.integers(low, high, count, dtype=np.int64, endpoint=True)
    pick = random.integers(0, 4, count)
    return np.choose(pick, [near, anywhere, np.full(count, low), np.full(count, high)])


# ---------------------------------------------------------------- values
# Numbers, (points or 1) × (lanes or 1), and a mask of those that exist (None: all).
Value = tuple[Array, Array | None]


def evaluate(roots: Sequence[UOp], at: Points) -> list[Value]:
    """The values of expressions at points, as uopc defines its ops."""
    known: dict[UOp, Value] = {}
    with np.errstate(all="ignore"):
        for u in _order(roots):
            known[u] = _value(u, [known[s] for s in u.src], at)
    return [known[r] for r in roots]


def _value(u: UOp, src: list[Value], at: Points) -> Value:
    if u.op in _LEAVES:
        return np.asarray(at[_name(u)]).astype(u.dtype.numpy).reshape(-1, 1), None
    if u.op is Ops.CONST:
        return np.asarray(u.arg, u.dtype.numpy).reshape(1, -1), None
    if u.op is Ops.INVALID:
        return np.zeros((1, 1), u.dtype.numpy), np.zeros((1, 1), np.bool_)
    if u.op in (Ops.PARAM, Ops.BUFFER):
        return _contents(u, np.zeros((1, 1), np.int64)), None
    if u.op is Ops.INDEX and u.src[0].op in (Ops.PARAM, Ops.BUFFER):
        return _contents(u.src[0], sum(v * 31**i for i, (v, _) in enumerate(src[1:]))), src[1][1]
    if u.op.movement or u.op in (Ops.LOAD, Ops.NOOP):  # of storage: any one element stands for all
        return src[0] if src else (np.zeros((1, 1)), None)
    if u.op is Ops.BIND:
        return src[1]
    values = [v for v, _ in src]
    if u.op in (Ops.STORE, Ops.SINK):
        return _change(u, values), None
    if u.op is Ops.STACK:
        there = [np.ones(np.shape(v), np.bool_) if ok is None else ok for v, ok in src]
        return _side_by_side(values), _side_by_side(there)
    if not (u.op.is_alu or u.op in (Ops.CAST, Ops.BITCAST)):
        raise NotImplementedError(f"expressions with {u.op!r} are not evaluated")
    return elementwise(u, values), present(u, [ok for _, ok in src], values)


def _side_by_side(columns: list[Array]) -> Array:
    return np.concatenate(np.broadcast_arrays(*columns), axis=1)


def _change(u: UOp, values: list[Array]) -> Array:
    """The difference that a STORE makes to the content of its place, which tells effects apart."""
    if u.op is Ops.SINK:
        return _side_by_side(values)
    return np.asarray(values[1] - values[0])


def _contents(storage: UOp, place: Array) -> Array:
    """The content of storage: numbers that look random, the same ones each time."""
    mixed = (np.asarray(place) + 7 * (storage.arg.slot + 1)) * 2654435761 % 251
    signed = storage.dtype.kind in ("int", "float")
    contents: Array = np.asarray(mixed - 125 * signed).astype(storage.dtype.numpy)
    return contents


def difference(before: UOp, after: UOp, at: Points | None = None) -> str | None:
    """A point at which two expressions differ, as text. Where the first has no value, the second
    may have any."""
    at = points([before, after]) if at is None else at
    (a, a_ok), (b, b_ok) = evaluate([before, after], at)
    wanted = np.ones(np.shape(a), np.bool_) if a_ok is None else a_ok
    there = np.True_ if b_ok is None else b_ok
    with np.errstate(all="ignore"):
        same = (a == b) | ((a != a) & (b != b))
        if before.dtype.is_float:
            same |= np.isclose(a.astype(np.float64), b.astype(np.float64), 1e-6, 1e-9)
    bad = wanted & ~(same & there)
    if not np.any(bad):
        return None
    i = int(np.argmax(bad.any(axis=1)))
    where = {k: v[i % v.size].item() for k, v in at.items()}
    return f"differs at {where}"


def size(u: UOp) -> int:
    """The number of nodes of an expression."""
    return len(walk.toposort(u))
