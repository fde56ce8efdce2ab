"""Sizes that a call decides: as UOps with known bounds, and as instructions of LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from uopc.backends.plan import Dim
from uopc.errors import Unsupported
from uopc.exporting.exported import Exported
from uopc.ir.builder.operands import variable
from uopc.ir.core import bounds, dtypes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern

_COMPARISONS = {
    Ops.CMPLT: "slt", Ops.CMPLE: "sle", Ops.CMPEQ: "eq", Ops.CMPNE: "ne",
}  # fmt: skip
_PLAIN = {
    Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul", Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor",
}  # fmt: skip
_LEAST, _MOST = dtypes.index.bounds


def expression(size: Dim, f: Exported) -> UOp:
    """A size as an index expression over the names in C. Unsupported if 64 bits may not hold it."""
    if isinstance(size, int):
        return intern(Ops.CONST, dtypes.index, (), size)
    by_name = {s.given: variable(s.name, s.low, s.high) for s in f.sizes}
    made: list[UOp] = []
    for name, known, operands in size.instructions:
        op, src = Op.by_name(name), tuple([made[i] for i in operands])
        if op is Ops.VARIABLE:
            made.append(by_name[str(known)])
            continue
        if op is Ops.CONST:
            made.append(intern(op, dtypes.index, (), int(known or 0)))
            continue
        boolean = op in _COMPARISONS or (bool(src) and all(s.dtype.kind == "bool" for s in src))
        made.append(intern(op, dtypes.bool_ if boolean else dtypes.index, src))
        _check(made[-1], size)
    return made[-1]


def _check(u: UOp, size: object) -> None:
    found = u.op.bounds(u, *[bounds.bounds(s) for s in u.src]) if u.op.bounds else None
    if found is None or found[0] < _LEAST or found[1] > _MOST:
        raise Unsupported(
            f"export: the size {size} may not fit 64 bits: give its variables closer bounds"
        )


class Evaluator:
    """Appends instructions that compute sizes; each expression is computed once.

    `value` appends an instruction and gives the name of its result; `names` are the values of the
    sizes that are arguments.
    """

    def __init__(
        self, f: Exported, value: Callable[[str], str], names: Mapping[str, str]
    ) -> None:
        self.f, self.value, self.names = f, value, names
        self.known: dict[UOp, str] = {}

    def size(self, size: Dim) -> str:
        """The operand of type i64 with a size."""
        return str(size) if isinstance(size, int) else self.of(expression(size, self.f))

    def of(self, u: UOp) -> str:
        """The operand with the value of an expression: of type i1 for a bool, else i64."""
        if u.op is Ops.CONST:
            return str(int(u.arg))
        if u.op is Ops.VARIABLE:
            return self.names[u.arg.name]
        if u not in self.known:
            self.known[u] = self._computed(u, [self.of(s) for s in u.src])
        return self.known[u]

    def _computed(self, u: UOp, src: list[str]) -> str:
        kind = "i1" if u.src[0].dtype.kind == "bool" else "i64"
        if u.op in _PLAIN:
            return self.value(f"{_PLAIN[u.op]} {kind} {src[0]}, {src[1]}")
        if u.op in _COMPARISONS:
            return self.value(f"icmp {_COMPARISONS[u.op]} {kind} {src[0]}, {src[1]}")
        match u.op:
            case Ops.NEG:
                return self.value(f"sub i64 0, {src[0]}")
            case Ops.ABS:
                negative = self.value(f"sub i64 0, {src[0]}")
                return self._chosen(f"slt i64 {src[0]}, 0", negative, src[0])
            case Ops.MAX:
                return self._chosen(f"sgt i64 {src[0]}, {src[1]}", *src)
            case Ops.MIN:
                return self._chosen(f"slt i64 {src[0]}, {src[1]}", *src)
            case Ops.WHERE:
                return self._select(self._truth(u.src[0], src[0]), *src[1:])
            case Ops.CDIV | Ops.CMOD | Ops.FLOORDIV | Ops.FLOORMOD:
                return self._divided(u.op, *src)
        raise Unsupported(f"export: a size has the op {u.op.name}")

    def _truth(self, u: UOp, name: str) -> str:
        return name if u.dtype.kind == "bool" else self.value(f"icmp ne i64 {name}, 0")

    def _chosen(self, test: str, a: str, b: str) -> str:
        return self._select(self.value(f"icmp {test}"), a, b)

    def _select(self, condition: str, a: str, b: str) -> str:
        return self.value(f"select i1 {condition}, i64 {a}, i64 {b}")

    def _divided(self, op: Op, a: str, b: str) -> str:
        """A quotient or remainder; 0 where the divisor is 0. Bounds exclude the one overflow."""
        safe = self._chosen(f"eq i64 {b}, 0", "1", b)
        quotient = self.value(f"sdiv i64 {a}, {safe}")
        rest = self.value(f"srem i64 {a}, {safe}")
        if op in (Ops.FLOORDIV, Ops.FLOORMOD):
            mixed = self.value(f"xor i64 {rest}, {safe}")
            opposite = self.value(f"icmp slt i64 {mixed}, 0")
            inexact = self.value(f"icmp ne i64 {rest}, 0")
            beyond = self.value(f"and i1 {opposite}, {inexact}")
            less, more = self.value(f"sub i64 {quotient}, 1"), self.value(f"add i64 {rest}, {safe}")
            quotient, rest = self._select(beyond, less, quotient), self._select(beyond, more, rest)
        result = quotient if op in (Ops.CDIV, Ops.FLOORDIV) else rest
        return self._chosen(f"eq i64 {b}, 0", "0", result)
