"""Special values of one op on one dtype: NaN, infinities, zeros, subnormals, extremes; every value
of an 8-bit or 16-bit float where the op has one operand.

Arrays and constants on either side, folded constants, code for several CPUs; the wanted values are
NumPy's and ml_dtypes', or of functions the limits of `tests.ulp`. Of two zeros MAX and MIN may give
either.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import uopc
from tests import ulp
from tests.fuzz import vocabulary
from tests.fuzz.generate import Array
from tests.fuzz.kinds import Verdict
from tests.machines import runnable
from uopc import UOp
from uopc.ir.builder import leaves
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops

_CPUS = ("", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
_NUMPY: dict[Op, Callable[..., Any]] = {
    Ops.ADD: np.add, Ops.SUB: np.subtract, Ops.MUL: np.multiply, Ops.FDIV: np.divide,
    Ops.MAX: np.maximum, Ops.MIN: np.minimum, Ops.NEG: np.negative, Ops.ABS: np.absolute,
    Ops.FLOORDIV: np.floor_divide, Ops.FLOORMOD: np.mod, Ops.CMPLT: np.less,
    Ops.CMPLE: np.less_equal, Ops.CMPEQ: np.equal, Ops.CMPNE: np.not_equal,
    Ops.AND: np.bitwise_and, Ops.OR: np.bitwise_or, Ops.XOR: np.bitwise_xor, Ops.SQRT: np.sqrt,
    Ops.RECIPROCAL: np.reciprocal, Ops.TRUNC: np.trunc, Ops.FLOOR: np.floor, Ops.CEIL: np.ceil,
    Ops.ROUND: np.rint,
}  # fmt: skip
_CHOSEN = (Ops.MAX, Ops.MIN, Ops.NEG, Ops.ABS)  # no rounding: infinities of 8-bit floats stay
_FUNCTIONS = {op: op.name for op in vocabulary.FUNCTIONS}
_LOGIC = {Ops.ADD: np.logical_or, Ops.MUL: np.logical_and, Ops.NEG: np.logical_not}
_PAIRS = [
    (op, t, None)
    for op, t in vocabulary.pairs()
    if (op in _FUNCTIONS and t.is_float) or op in _NUMPY
]
_CASTS = [(Ops.CAST, s, t) for s in dtypes.ARRAY_TYPES for t in dtypes.ARRAY_TYPES if s is not t]
_SMALL_FP8 = {"fp8e4m3": 448.0, "fp8e5m2": 57344.0, "fp8e4m3fnuz": 240.0, "fp8e5m2fnuz": 57344.0}
CASES = len(_PAIRS) + len(_CASTS)


def run(seed: int, number: int) -> Verdict:
    """One op on one dtype, or one cast; the number goes through all of them, the seed draws."""
    drawn = random.Random(f"special {seed} {number}")
    op, t, to = [*_PAIRS, *_CASTS][number % CASES]
    arity = op.arity[0]
    values = special_values(t, drawn, every=arity == 1)
    operands: list[Array] = [values]
    if arity == 2:
        short = drawn.sample(list(range(len(values))), min(len(values), 48))
        operands = [g.reshape(-1) for g in np.meshgrid(values, values[short])]
        if op is Ops.POW:
            operands = [o[:4000] for o in operands]
    verdict = Verdict()
    verdict.seen["tensor", op.name, t.name] += 1
    cpus = [cpu for cpu in _CPUS if not cpu or runnable(cpu)]
    settings = {"target_cpu": drawn.choice(cpus)}
    with uopc.options(**settings):
        for form, got, inputs in _results(op, t, to, operands, drawn):
            wrong = _wrong(op, t, to, got, inputs)
            if wrong:
                verdict.failures.append(f"{op.name} {t.name} {to or ''} {form} {settings}: {wrong}")
    verdict.report = f"{op.name} of {t.name}"
    return verdict


def special_values(t: DType, drawn: random.Random, every: bool) -> Array:
    """Values of a dtype; all of them if they are few (`every`: of 16 bits, too)."""
    kind = np.dtype(t.numpy)
    if t.kind == "bool":
        return np.array([False, True])
    if t.bits == 8 or (t.bits == 16 and every):
        return np.arange(1 << t.bits, dtype=f"u{kind.itemsize}").view(kind)
    bits = np.array([drawn.getrandbits(t.bits) for _ in range(40)], f"u{kind.itemsize}").view(kind)
    if t.is_int:
        low, high = t.bounds
        near = [low, low + 1, -2, -1, 0, 1, 2, 3, 7, t.bits - 1, t.bits, 255, 256, high - 1, high]
        return np.concatenate([np.array([n for n in near if low <= n <= high], kind), bits])
    size = {16: 1 << 14, 32: 1 << 30, 64: 1 << 62}[t.bits]
    chosen = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 0.1, 126.5, 127.5, 128.0, 255.5, 32767.5, 65504.0, 1e9]
    chosen += [2.0**31, 2.0**32, 2.0**63, 2.0**64, 1e-6, 3.14159265, 88.7, 104.0, 709.8, 745.2]
    with np.errstate(all="ignore"):
        made = np.array([*chosen, *[-c for c in chosen], np.inf, -np.inf, np.nan]).astype(kind)
    ends = [1, size // (1 << 8), (1 << (t.bits - 1)) - 1]
    ends += [e | 1 << (t.bits - 1) for e in ends]
    return np.concatenate([made, np.array(ends, f"u{kind.itemsize}").view(kind), bits])


Result = tuple[str, Array, Sequence[Array]]


def _results(
    op: Op, t: DType, to: DType | None, operands: list[Array], drawn: random.Random
) -> list[Result]:
    """The values of every form: its name, the values and the operands."""
    n = len(operands[0])
    params = [uopc.param(name, (n,), t) for name, _ in zip("ab", operands)]
    forms: list[tuple[str, list[UOp], Sequence[Array]]] = [("arrays", params, operands)]
    picks = [drawn.randrange(n) for _ in operands]
    consts = [leaves.const(t, o[i].item()) for o, i in zip(operands, picks)]
    # A constant infinity of an 8-bit float saturates, as a cast does.
    alike = [np.full(n, np.array(c.arg).astype(o.dtype)) for c, o in zip(consts, operands)]
    if len(operands) == 2:
        forms.append(("constant right", [params[0], consts[1]], [operands[0], alike[1]]))
        forms.append(("constant left", [consts[0], params[1]], [alike[0], operands[1]]))
    forms.append(("constants", consts, [a[:1] for a in alike]))
    out: list[Result] = []
    for form, nodes, inputs in forms:
        made = nodes[0].cast(to) if to is not None else nodes[0].alu(op, *nodes[1:])
        f = uopc.compile(made, inputs=params, optimize=drawn.random() < 0.7)
        got = np.asarray(f(*operands))
        out.append((form, got.reshape(-1), inputs))
    return out


def _wrong(op: Op, t: DType, to: DType | None, got: Array, inputs: Sequence[Array]) -> str:
    """The first wrong value, as text; empty if there is none."""
    if op in _FUNCTIONS:
        limit = ulp.LIMITS.get(t.name, ulp.LIMITS["float16"])[_FUNCTIONS[op]]
        exact = _exact(op, inputs)
        error = _narrow_error(got, exact) if t.bits < 16 or t is dtypes.bfloat16 else None
        bad = (ulp.ulp_error(got, exact) > limit) if error is None else error
        wanted = exact
    else:
        wanted = cast_to(inputs[0], to) if to is not None else wanted_values(op, t, inputs)
        bad = ~_same(got, wanted, signed=op not in (Ops.MAX, Ops.MIN))
    if not bad.any():
        return ""
    i = int(np.argmax(bad))
    shown = ", ".join(repr(a.reshape(-1)[i].item()) for a in inputs)
    return f"at {shown}: {got[i]!r}, expected {wanted[i]!r}; {int(bad.sum())} of {bad.size}"


def _exact(op: Op, inputs: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        wide = [a if a.dtype.itemsize == 8 else a.astype(np.float32) for a in inputs]
        exact = ulp.reference(_FUNCTIONS[op], *wide)
        if op is Ops.POW:  # of infinities: long doubles give inf for (-inf) ** -2.0**63
            finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
            return np.where(finite, exact, np.power(*[a.astype(np.float64) for a in wide]))
    return exact


def _narrow_error(got: Array, exact: Array) -> Array:
    """The error of a result of 8 bits or bfloat16 that is no neighbour of the exact value."""
    slack = np.abs(exact) * 2.0**-20
    with np.errstate(all="ignore"):
        ends = [cast_to((exact + s).astype(np.float32), _dtype(got)) for s in (-slack, slack)]
    return ~(_same(got, ends[0], signed=False) | _same(got, ends[1], signed=False))


def _dtype(a: Array) -> DType:
    return dtypes.from_numpy(a.dtype)


def _same(got: Array, wanted: Array, signed: bool) -> Array:
    if not _dtype(got).is_float:
        return np.asarray(got == wanted)
    with np.errstate(all="ignore"):
        a, b = (v.astype(np.float64) for v in (got, wanted))
    same = (a == b) & ((np.signbit(a) == np.signbit(b)) | (a != 0) | (not signed))
    return np.asarray(same | (np.isnan(a) & np.isnan(b)))


def wanted_values(op: Op, t: DType, inputs: Sequence[Array]) -> Array:
    """NumPy's values; narrow floats are computed in float32 and rounded once."""
    if t.kind == "bool":
        return np.asarray(_LOGIC.get(op, _NUMPY[op])(*inputs))
    narrow = t.is_float and t.bits <= 16
    with np.errstate(all="ignore"):
        wide = [a.astype(np.float32) if narrow else a for a in inputs]
        if op is Ops.RECIPROCAL:
            made = np.asarray(1 / wide[0])
        else:
            made = np.asarray(_NUMPY[op](*wide))
    if op in _CHOSEN:
        with np.errstate(all="ignore"):
            return np.asarray(made.astype(t.numpy))
    return cast_to(made, t) if narrow and made.dtype != bool else made


def cast_to(a: Array, t: DType) -> Array:
    """The values as another dtype: to integers truncated and saturated, NaN as 0; 8-bit floats
    saturate as well."""
    source = _dtype(a)
    with np.errstate(all="ignore"):
        if t.kind == "bool":
            return np.asarray(a.astype(np.float64) != 0 if source.is_float else a != 0)
        if source.is_float and t.is_int:
            low, high = t.bounds
            whole = [0 if v != v else v for v in a.astype(np.float64).tolist()]
            ints = [low if v <= low else high if v >= high else int(v) for v in whole]
            return np.array(ints, t.numpy)
        if t.name in _SMALL_FP8:
            wide, limit = a.astype(np.float32), _SMALL_FP8[t.name]
            return np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit)).astype(t.numpy)
        if source.is_float and source.bits < 32:
            a = a.astype(np.float32)
        return a.astype(t.numpy)
