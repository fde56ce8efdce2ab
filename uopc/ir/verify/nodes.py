"""The checks of one node, by invariant: what its op's row says about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from uopc.errors import InvalidIR, UserError
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.args import Opt
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp

Problem = tuple[str, str]  # the invariant, and what is wrong with what was expected
_REDUCES: Final = ("add", "mul", "max", "min")
_WIDE: Final = ("upcast", "unroll", "lane")


def verify_node(u: UOp) -> None:
    """InvalidIR when a node alone, at whatever level, does not fit the row of its op."""
    for name in ("operand-count", "arg-type", "result-dtype"):
        problem = CHECKS[name](u)
        if problem is not None:
            raise InvalidIR(f"invariant {name}: {problem[1]}\n  {describe(u)}{origin(u)}")


def describe(u: UOp, root: UOp | None = None) -> str:
    """The node as one line of text, numbered as in the text of `root`."""
    from uopc.ir.text import printer as text

    names = text.Namer()
    if root is not None:
        text.print_graph(root, names)
    lines = text.print_graph(u, names).splitlines()
    return lines[-1].strip() if u.op is not Ops.LINEAR else f"linear of {len(u.src)} nodes"


def origin(u: UOp) -> str:
    """Where the user made a node, as the end of a message; nothing when that is not known."""
    if u.origin is None:
        return ""
    code, line = u.origin
    return f"\n  made at {code.co_filename}:{line} in {code.co_name}"


# ---------------------------------------------------------------- operand-count
def _operand_count(u: UOp) -> Problem | None:
    low, high = u.op.arity if isinstance(u.op.arity, tuple) else (u.op.arity, u.op.arity)
    if low <= len(u.src) and (high is None or len(u.src) <= high):
        return None
    wanted = f"{low}" if low == high else f"{low} or more" if high is None else f"{low} to {high}"
    names = " ".join(u.op.operands)
    return "operand-count", f"{len(u.src)} operands, expected {wanted} ({names})"


# ---------------------------------------------------------------- arg-type
def _arg_type(u: UOp) -> Problem | None:
    if not isinstance(u.arg, u.op.arg) or (type(u.arg) is bool and bool not in u.op.arg):
        wanted = " or ".join([t.__name__ for t in u.op.arg])
        return "arg-type", f"the arg is {type(u.arg).__name__} {u.arg!r}, expected {wanted}"
    rule = _ARGS.get(u.op)
    wrong = rule(u) if rule is not None else None
    return ("arg-type", wrong) if wrong else None


def _const_arg(u: UOp) -> str | None:
    kind = {"bool": bool, "float": float}.get(u.dtype.kind, int)
    values = u.arg if type(u.arg) is tuple else (u.arg,)
    if type(u.arg) is tuple and len(values) != u.dtype.lanes:
        return f"{len(values)} values, expected {u.dtype.lanes}: one a lane"
    bad = [v for v in values if type(v) is not kind]
    return f"the value is {bad[0]!r}, expected {kind.__name__}" if bad else None


def _dims_arg(dims: object, sources: tuple[UOp, ...]) -> str | None:
    """Integers, and None for each source."""
    if not isinstance(dims, tuple) or any(d is not None and type(d) is not int for d in dims):
        return f"the dimensions are {dims!r}, expected integers or None"
    if dims.count(None) != len(sources):
        return f"{len(sources)} symbolic dimensions given, expected {dims.count(None)}"
    bad = [s.dtype.name for s in sources if s.dtype is not dtypes.index]
    return f"a dimension is {bad[0]}, expected index" if bad else None


def _integers_arg(u: UOp) -> str | None:
    if all(type(a) is int for a in u.arg):
        return None
    return f"the arg is {u.arg!r}, expected integers"


def _opts_arg(u: UOp) -> str | None:
    given = u.arg or ()
    return None if all(type(o) is Opt for o in given) else f"the arg is {given!r}, expected Opts"


def _reduce_arg(u: UOp) -> str | None:
    name = u.arg if isinstance(u.arg, str) else u.arg.op
    return None if name in _REDUCES else f"the op is {name!r}, expected one of {_REDUCES}"


def _lane_arg(u: UOp) -> str | None:
    lanes = u.src[0].dtype.lanes
    return None if 0 <= u.arg < lanes else f"lane {u.arg}, expected one of {lanes}"


def _shuffle_arg(u: UOp) -> str | None:
    lanes = u.src[0].dtype.lanes + u.src[1].dtype.lanes
    if all(type(i) is int and 0 <= i < lanes for i in u.arg):
        return None
    return f"lanes {u.arg}, expected numbers below {lanes}"


def _parts(u: UOp) -> tuple[UOp, ...]:
    """The values that a GETTUPLE chooses from."""
    return (u.src[0].src[0] if u.src[0].op is Ops.CALL else u.src[0]).src


def _part_arg(u: UOp) -> str | None:
    count = len(_parts(u)) if u.src[0].op in (Ops.CALL, Ops.TUPLE) else 0
    return None if 0 <= u.arg < count else f"part {u.arg}, expected one of {count}"


_ARGS: dict[Op, Callable[[UOp], str | None]] = {
    Ops.CONST: _const_arg,
    Ops.PARAM: lambda u: _dims_arg(u.arg.dims, u.src),
    Ops.BUFFER: lambda u: _dims_arg(u.arg.dims, u.src),
    Ops.IOTA: lambda u: _dims_arg(u.arg, u.src),
    Ops.RESHAPE: lambda u: _dims_arg(u.arg, u.src[1:]),
    Ops.EXPAND: lambda u: _dims_arg(u.arg, u.src[1:]),
    Ops.PAD: lambda u: _dims_arg(u.arg, u.src[1:]),
    Ops.SHRINK: lambda u: _dims_arg(u.arg, u.src[1:]),
    Ops.PERMUTE: _integers_arg,
    Ops.FLIP: _integers_arg,
    Ops.CONTIGUOUS: _opts_arg,
    Ops.END: _opts_arg,
    Ops.REDUCE: _reduce_arg,
    Ops.HREDUCE: _reduce_arg,
    Ops.LANE: _lane_arg,
    Ops.SHUFFLE: _shuffle_arg,
    Ops.GETTUPLE: _part_arg,
}


# ---------------------------------------------------------------- result-dtype
def _result_dtype(u: UOp) -> Problem | None:
    rule = _DTYPES.get(u.op) or (_alu_dtype if u.op.is_alu else _RULES[u.op.dtype])
    wrong = rule(u)
    return ("result-dtype", wrong) if wrong else None


def _expected(u: UOp, wanted: DType) -> str | None:
    return None if u.dtype is wanted else f"the dtype is {u.dtype.name}, expected {wanted.name}"


def _given_dtype(u: UOp) -> str | None:
    void = u.dtype is dtypes.void and u.op is not Ops.NOOP
    return "the dtype is void, expected a value's" if void else None


_RULES: dict[str, Callable[[UOp], str | None]] = {
    "given": _given_dtype,
    "void": lambda u: _expected(u, dtypes.void),
    "index": lambda u: _expected(u, dtypes.index),
    "first": lambda u: _expected(u, u.src[0].dtype),
    "last": lambda u: _expected(u, u.src[-1].dtype),
    "unchecked": lambda u: None,
}


def _lanes(sources: tuple[UOp, ...]) -> int:
    return max([s.dtype.lanes for s in sources])


def _alu_dtype(u: UOp) -> str | None:
    """One scalar type for all operands; a scalar operand of a vector op repeats."""
    values = u.src[u.op is Ops.WHERE :]
    typed = [s.dtype for s in values if s.op is not Ops.INVALID] or [values[0].dtype]
    bad = [t for t in typed if t.scalar is not typed[0].scalar]
    if bad:
        return f"an operand is {bad[0].name}, expected {typed[0].scalar.name} as the others"
    lanes = _lanes(u.src)
    bad = [s.dtype for s in u.src if s.dtype.lanes not in (1, lanes)]
    if bad:
        return f"an operand has {bad[0].lanes} lanes, expected 1 or {lanes}"
    if u.op is Ops.WHERE and u.src[0].dtype.scalar is not dtypes.bool_:
        return f"the condition is {u.src[0].dtype.name}, expected bool"
    scalar = dtypes.bool_ if u.op.dtype == "bool" else typed[0]
    return _expected(u, scalar.vec(lanes))


def _same_scalar(u: UOp, other: UOp, what: str) -> str | None:
    if u.dtype.scalar is other.dtype.scalar:
        return None
    return f"the dtype is {u.dtype.name}, expected that of the {what}: {other.dtype.scalar.name}"


def _cast_dtype(u: UOp) -> str | None:
    if u.dtype.lanes != u.src[0].dtype.lanes:
        return f"{u.dtype.lanes} lanes, expected those of the operand: {u.src[0].dtype.lanes}"
    return _given_dtype(u)


def _bitcast_dtype(u: UOp) -> str | None:
    before, after = u.src[0].dtype, u.dtype
    if before.lanes == after.lanes == 1 or (
        before.lanes * before.itemsize == after.lanes * after.itemsize
    ):
        return _given_dtype(u)
    return f"{after.name} has not as many bits as {before.name}"


def _stack_dtype(u: UOp) -> str | None:
    for s in u.src:
        wrong = _same_scalar(u, s, "operands")
        if wrong:
            return wrong
    lanes = sum([s.dtype.lanes for s in u.src])
    if u.dtype.lanes not in (1, lanes) or (u.dtype.lanes == 1 and _lanes(u.src) > 1):
        return f"{u.dtype.lanes} lanes, expected {lanes}"
    return None


def _cat_dtype(u: UOp) -> str | None:
    wrong = [_same_scalar(u, s, "operands") for s in u.src]
    return next((w for w in wrong if w), None)


def _index_dtype_of(u: UOp) -> str | None:
    lanes = _lanes(u.src[1:]) if len(u.src) > 1 else 1
    if lanes > 1 and u.dtype.lanes != lanes:
        return f"{u.dtype.lanes} lanes, expected those of the index: {lanes}"
    return _same_scalar(u, u.src[0], "storage")


def _load_dtype(u: UOp) -> str | None:
    return _same_scalar(u, u.src[0], "address") or _gate(u.src[1:])


def _store_dtype(u: UOp) -> str | None:
    target, value = u.src[:2]
    if value.op is not Ops.INVALID and value.dtype.scalar is not target.dtype.scalar:
        return f"the value is {value.dtype.name}, expected {target.dtype.scalar.name}"
    return _gate(u.src[2:]) or _expected(u, dtypes.void)


def _gate(gates: tuple[UOp, ...]) -> str | None:
    bad = [g.dtype.name for g in gates if g.dtype.scalar is not dtypes.bool_]
    return f"the gate is {bad[0]}, expected bool" if bad else None


def _branch_dtype(u: UOp) -> str | None:
    wrong = _expected(u, u.src[0].dtype) or _expected(u, u.src[2].dtype)
    return wrong or _condition(u.src[1])


def _condition(u: UOp) -> str | None:
    one = u.dtype is dtypes.bool_
    return None if one else f"the condition is {u.dtype.name}, expected one bool for all lanes"


def _range_dtype(u: UOp) -> str | None:
    if u.dtype.is_integral and u.dtype.lanes == 1 and u.src[0].dtype is u.dtype:
        return None
    return f"the dtype is {u.dtype.name}, the end {u.src[0].dtype.name}, expected index for both"


def _lanes_dtype(u: UOp) -> str | None:
    if u.dtype.is_integral and u.dtype.lanes == u.arg:
        return None
    return f"the dtype is {u.dtype.name}, expected {u.arg} lanes of an integer"


def _lane_dtype(u: UOp) -> str | None:
    return _expected(u, u.src[0].dtype.scalar)


def _shuffle_dtype(u: UOp) -> str | None:
    wrong = _same_scalar(u, u.src[0], "operand") or _same_scalar(u, u.src[1], "operand")
    if wrong is None and u.dtype.lanes != len(u.arg):
        return f"{u.dtype.lanes} lanes, expected {len(u.arg)}"
    return wrong


def _hreduce_dtype(u: UOp) -> str | None:
    if u.src[0].dtype.lanes % u.dtype.lanes:
        return f"{u.src[0].dtype.lanes} lanes do not combine to {u.dtype.lanes}"
    return _same_scalar(u, u.src[0], "operand")


_DTYPES: dict[Op, Callable[[UOp], str | None]] = {
    Ops.CAST: _cast_dtype,
    Ops.BITCAST: _bitcast_dtype,
    Ops.STACK: _stack_dtype,
    Ops.CAT: _cat_dtype,
    Ops.INDEX: _index_dtype_of,
    Ops.LOAD: _load_dtype,
    Ops.TILE_LOAD: lambda u: _same_scalar(u, u.src[0], "address"),
    Ops.STORE: _store_dtype,
    Ops.BRANCH: _branch_dtype,
    Ops.IF: lambda u: _condition(u.src[0]) or _expected(u, dtypes.bool_),
    Ops.RANGE: _range_dtype,
    Ops.LANES: _lanes_dtype,
    Ops.LANE: _lane_dtype,
    Ops.SHUFFLE: _shuffle_dtype,
    Ops.HREDUCE: _hreduce_dtype,
    Ops.GETTUPLE: lambda u: _expected(u, _parts(u)[u.arg].dtype),
}


# ---------------------------------------------------------------- shape-rule
def _shape_rule(u: UOp) -> Problem | None:
    rank = len(shapes.shape(u.src[0])) if u.op is Ops.INDEX else 0
    if u.op is Ops.INDEX and len(u.src) - 1 > rank:
        return "shape-rule", f"{len(u.src) - 1} indices, expected at most {rank}"
    try:
        if u._shape is None:
            shapes.shape(u)
        else:
            shapes.RULES[u.op.shape](u)  # a pass may have noted a shape that is wrong
    except UserError as error:
        return "shape-rule", str(error)
    return None


# ---------------------------------------------------------------- scalar levels
# Where storage may stand, and nothing but its place is meant: op → operand number.
_ACCESS = {Ops.INDEX: 0, Ops.AFTER: 0, Ops.SLICE: 0}
_EXPLICIT: Final = frozenset((Ops.LOAD, Ops.STORE, Ops.TILE_LOAD))
_HOLDERS: Final = frozenset((Ops.CALL, Ops.SINK, Ops.LINEAR, Ops.GROUP, Ops.BARRIER))


def _scalar_values(u: UOp) -> Problem | None:
    if u.op in _HOLDERS:
        return None
    for i, s in enumerate(u.src):
        access = _ACCESS.get(u.op) == i or (u.op is Ops.AFTER and i > 0)
        storage = s.op.is_storage or (s.op is Ops.AFTER and before_effects(s).op.is_storage)
        if storage and not access:
            return "scalar-values", f"operand {i} is storage, expected an INDEX of it"
    return None


def _index_count(u: UOp) -> Problem | None:
    if u.op is not Ops.INDEX:
        return None
    base = u.src[0]
    if not base.op.is_storage and base.op is not Ops.AFTER and base.op is not Ops.INDEX:
        return "index-count", f"{base.op.name} is indexed, expected storage"
    count, rank = len(u.src) - 1, len(shapes.shape(base))
    if base.op is not Ops.INDEX:
        rank = max(1, rank)  # a scalar is indexed by 0
    many = count > rank
    return ("index-count", f"{count} indices, expected at most {rank}") if many else None


def _index_dtype(u: UOp) -> Problem | None:
    if u.op is not Ops.INDEX:
        return None
    for i, s in enumerate(u.src[1:]):
        if s.dtype.scalar is not dtypes.index and s.op is not Ops.INVALID:
            return "index-dtype", f"index {i} is {s.dtype.name}, expected index"
    return None


def _flat_index(u: UOp) -> Problem | None:
    if u.op is not Ops.INDEX:
        return None
    if len(u.src) != 2:
        return "flat-index", f"{len(u.src) - 1} indices, expected 1"
    if not u.src[0].op.is_storage and u.src[0].op is not Ops.AFTER:
        return "flat-index", f"{u.src[0].op.name} is indexed, expected storage"
    return None


def _explicit_loads(u: UOp) -> Problem | None:
    if u.op in (Ops.LINEAR, Ops.AFTER):
        return None
    for i, s in enumerate(u.src):
        if s.op is Ops.INDEX and (i > 0 or u.op not in _EXPLICIT):
            return "explicit-loads", f"operand {i} is an address, expected a LOAD of it"
    if u.op in _EXPLICIT and u.src[0].op not in (Ops.INDEX, Ops.AFTER):
        return "explicit-loads", f"the address is {u.src[0].op.name}, expected an INDEX"
    return None


def _no_wide_ranges(u: UOp) -> Problem | None:
    if u.op is Ops.RANGE and u.arg.kind in _WIDE:
        return "no-wide-ranges", f"the range is of kind {u.arg.kind}, expected it to be expanded"
    return None


CHECKS: dict[str, Callable[[UOp], Problem | None]] = {
    "operand-count": _operand_count,
    "arg-type": _arg_type,
    "result-dtype": _result_dtype,
    "shape-rule": _shape_rule,
    "scalar-values": _scalar_values,
    "index-count": _index_count,
    "index-dtype": _index_dtype,
    "flat-index": _flat_index,
    "explicit-loads": _explicit_loads,
    "no-wide-ranges": _no_wide_ranges,
}
