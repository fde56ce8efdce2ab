"""The op table: one row per op, with everything known about the op. No logic here.

A row names rules by their names in `dtype_rules.py` and `shapes.py`. The constructor, the verifier,
constant folding, the interpreter, the text form, `uopc ops` and the tests read the rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import inf
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from uopc.errors import Immutable
from uopc.ir.core import args, intervals, levels, semantics
from uopc.ir.core.levels import (
    EVERYWHERE,
    HANDWRITTEN,
    INDEXED,
    KERNEL,
    LINEAR,
    PROGRAM,
    SCALAR,
    SHAPED,
    TENSOR,
    VECTOR,
)
from uopc.ir.records import is_record

DTypeRule = Literal[
    "given", "any", "void", "index", "variable", "first", "common", "bool", "float32", "where", "branch", "if", "range",
    "cast", "bitcast", "stack", "cat", "element", "load", "loaded", "store", "lanes", "lane",
    "shuffle", "looked_up", "hreduce", "part", "applied", "fetched",
]  # fmt: skip
ShapeRule = Literal[
    "scalar", "none", "first", "broadcast", "iota", "storage", "reshape", "expand", "permute",
    "flip", "window", "stack", "cat", "reduce", "accumulate", "index", "store", "bitcast", "slice", "part",
    "stage", "product", "alike", "scattered", "gathered", "exchanged",
]  # fmt: skip
# Where a value is, see `verify/devices.py`.
DeviceRule = Literal["operands", "first", "storage", "given", "each", "part", "none"]
# The kind of arg: how the verifier checks it, and how the text form shows it and the operands.
ArgKind = Literal[
    "none", "value", "const", "storage", "data", "iota", "dims", "window", "integers", "opts",
    "record", "range", "reduce", "hreduce", "lane", "shuffle", "part",
]  # fmt: skip
_NONE = type(None)
_registry: dict[str, Op] = {}


class Chain(NamedTuple):
    """The operations of straight code, without branches that are rarely taken."""

    operations: int
    multiplications: int  # of these; MULACC is one
    divisions: int  # of these, and square roots
    cycles: int  # of the longest chain of operations that wait for each other


class Op(Immutable):
    """A row of the table. Ops compare by identity; `Ops.ADD` and `Op.by_name('add')` find them.

    `name`, `operands`, `arity`, `doc`, `symbol`, `levels` and the like are the columns: see `uopc
    ops`.

    Examples:
        >>> uopc.Ops.ADD.name, uopc.Ops.ADD.operands, uopc.Ops.ADD.symbol, uopc.Ops.ADD.commutes
        ('add', ('a', 'b'), '+', True)
    """

    __setattr__ = object.__setattr__  # type: ignore[assignment]  # while the table is made

    def __init__(self, name: str, operands: str, doc: str, **row: Any) -> None:
        self.name: str = name
        self.operands: tuple[str, ...] = tuple(operands.split())
        self.doc: str = doc
        self.arg: tuple[type, ...] = row.get("arg", (_NONE,))
        kind = "record" if is_record(self.arg[-1]) else "value"
        self.kind: ArgKind = row.get("kind", "none" if self.arg == (_NONE,) else kind)
        # The name of an arg that is one value, in the text form: `lane %v at=3`.
        self.field: str = row.get("field", "arg")
        self.shape: ShapeRule = row.get("shape", "broadcast")
        self.device: DeviceRule = row.get("device", "operands")
        self.levels: levels.Level = row.get("levels", EVERYWHERE)
        if self.levels & KERNEL:
            self.levels |= HANDWRITTEN
        self.commutes: bool = row.get("commutes", False)
        self.effect: bool = row.get("effect", False)
        self.movement: bool = row.get("movement", False)
        # At level linear: a block of statements begins, or ends, here.
        self.opens: bool = row.get("opens", False)
        self.closes: bool = row.get("closes", False)
        self.symbol: str | None = row.get("symbol")
        # An elementwise op on NumPy arrays; `fold` is the same on exact Python integers.
        self.evaluate: Callable[..., Any] | None = row.get("evaluate")
        self.fold: Callable[..., Any] | None = row.get("fold")
        # The interval of a result from the node and the intervals of its operands.
        self.bounds: intervals.Rule | None = row.get("bounds")
        self.is_alu: bool = self.evaluate is not None
        self.dtype: DTypeRule = row.get("dtype", "common" if self.is_alu else "first")
        # Below level kernel: the value depends on the operands alone, so it may stand anywhere.
        self.pure: bool = row.get("pure", self.is_alu)
        self.is_storage: bool = row.get("is_storage", False)
        # From level indexed on: how many of the first operands may be storage itself.
        self.takes_storage: float = row.get("takes_storage", 0)
        # At levels with explicit loads: the first operand is an address.
        self.is_access: bool = row.get("is_access", False)
        # The time of one element, in vectorised float additions (0.05 ns on a 512-bit core).
        self.cost: float = row.get("cost", 1.0 if self.is_alu else 0.0)
        # Cycles until a float result can be used; an integer result takes at most one.
        self.latency: int = row.get("latency", 4)
        # The number of nodes that `decompose` makes of it, in 32 and in 64 bits.
        self.expansion: tuple[int, int] = row.get("expansion", (1, 1))
        # What `decompose` makes of a function in 32 and in 64 bits, where MULACC is an instruction.
        self.chain: tuple[Chain, Chain] | None = row.get("chain")
        # The least and the greatest number of operands; None: any number.
        least, most = len([o for o in self.operands if o[0] != "*"]), len(self.operands)
        self.arity: tuple[int, int | None] = row.get("arity", (least, most if least == most else None))
        _registry[name] = self

    @property
    def arity_text(self) -> str:
        """The number of operands as text, such as `1 to 2`.

        Examples:
            >>> uopc.Ops.ADD.arity_text, uopc.Ops.LOAD.arity_text
            ('2', '1 to 2')
        """
        low, high = self.arity
        return f"{low}" if low == high else f"{low} or more" if high is None else f"{low} to {high}"

    def takes(self, operands: int) -> bool:
        """True if a node may have this number of operands.

        Examples:
            >>> uopc.Ops.ADD.takes(2), uopc.Ops.ADD.takes(3)
            (True, False)
        """
        low, high = self.arity
        return low <= operands and (high is None or operands <= high)

    @staticmethod
    def by_name(name: str) -> Op:
        """The row called `name` (lower case); KeyError if there is no such row.

        Examples:
            >>> type(uopc.Ops.ADD).by_name("mul")
            Ops.MUL
        """
        return _registry[name]

    @staticmethod
    def all() -> tuple[Op, ...]:
        """Every op, in the order of the table.

        Examples:
            >>> uopc.Ops.ADD in type(uopc.Ops.ADD).all()
            True
        """
        return tuple(_registry.values())

    def __repr__(self) -> str:
        return f"Ops.{self.name.upper()}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Op.by_name, (self.name,)


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _cdiv(a: int, b: int) -> int:
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0


_UNARY: Final[dict[str, Any]] = {"levels": TENSOR | SCALAR}
_FLOAT = "Float only. NaN gives NaN. "


# fmt: off
class Ops:
    """Every op, by its upper-case name.

    Examples:
        >>> x = uopc.param("x", (2,))
        >>> x.exp().op is uopc.Ops.EXP, uopc.Ops.EXP.doc
        (True, 'Float only. NaN gives NaN. e to the a.')
    """

    # Leaves
    CONST = Op("const", "", "A value of the dtype; a tuple gives one value per lane. Scalar shape.", arg=(bool, int, float, tuple), dtype="given", shape="scalar", latency=0, kind="const", bounds=intervals.constant)
    INVALID = Op("invalid", "", "No value. Arithmetic on it gives INVALID, STORE skips it, WHERE may choose the other operand. As an index: no access; a read gives 0.", dtype="given", shape="scalar")
    VARIABLE = Op("variable", "", "A named integer, low ≤ v ≤ high, given when the program is called.", arg=(args.VariableArg,), dtype="variable", shape="scalar", bounds=lambda u: (u.arg.low, u.arg.high))
    NUMBER = Op("number", "", "A constant in a slot, given when the kernel is called. Calls of one kernel may differ in it.", arg=(args.NumberArg,), dtype="given", shape="scalar", levels=KERNEL | VECTOR | LINEAR)
    PARAM = Op("param", "*dims", "An argument: storage the caller owns. Sources: its symbolic dimensions.", arg=(args.ParamArg,), dtype="given", shape="storage", device="storage", is_storage=True, kind="storage")
    BUFFER = Op("buffer", "*dims", "Storage that the program makes; its contents are undefined until stored.", arg=(args.BufferArg,), dtype="given", shape="storage", device="storage", is_storage=True, kind="storage")
    DATA = Op("data", "", "Storage that holds a constant array.", arg=(args.DataArg,), dtype="given", shape="storage", is_storage=True, kind="data")
    IOTA = Op("iota", "*dims", "The integers 0 … n-1 as a vector of n elements.", arg=(tuple,), dtype="index", shape="iota", levels=SHAPED, kind="iota", bounds=intervals.iota)
    LANES = Op("lanes", "", "The integers 0 … n-1, one per lane.", arg=(int,), dtype="lanes", shape="scalar", levels=VECTOR | LINEAR, field="count", bounds=lambda u: (0, u.arg - 1))
    SPECIAL = Op("special", "end", "A hardware index, 0 ≤ i < end, named by the arg.", arg=(str,), dtype="index", shape="scalar", levels=SCALAR, field="name", bounds=intervals.hardware_index)

    # Unary
    NEG = Op("neg", "a", "-a. Integers wrap; logical not for bool.", evaluate=semantics.neg, fold=operator.neg, symbol="-", bounds=intervals.neg, **_UNARY)
    ABS = Op("abs", "a", "Magnitude; the least integer wraps to itself; -0.0 gives 0.0.", evaluate=np.abs, fold=abs, bounds=intervals.absolute, **_UNARY)
    EXP = Op("exp", "a", _FLOAT + "e to the a.", evaluate=semantics.computed_wide("exp"), cost=6.0, expansion=(40, 45), chain=(Chain(15, 9, 0, 53), Chain(20, 14, 0, 73)), **_UNARY)
    EXP2 = Op("exp2", "a", _FLOAT + "2 to the a.", evaluate=semantics.computed_wide("exp2"), cost=6.0, expansion=(35, 45), chain=(Chain(14, 6, 0, 49), Chain(19, 11, 0, 69)), **_UNARY)
    LOG = Op("log", "a", _FLOAT + "Natural logarithm; -inf at 0, NaN below.", evaluate=semantics.computed_wide("log"), cost=12.0, expansion=(60, 60), chain=(Chain(24, 12, 0, 52), Chain(28, 13, 1, 77)), **_UNARY)
    LOG2 = Op("log2", "a", _FLOAT + "Base-2 logarithm; -inf at 0, NaN below.", evaluate=semantics.computed_wide("log2"), cost=12.0, expansion=(60, 60), chain=(Chain(23, 11, 0, 56), Chain(32, 17, 1, 73)), **_UNARY)
    SIN = Op("sin", "a", _FLOAT + "Sine of a in radians; NaN at infinity.", evaluate=semantics.computed_wide("sin"), cost=12.0, expansion=(50, 200), chain=(Chain(34, 12, 0, 59), Chain(22, 15, 0, 66)), **_UNARY)
    COS = Op("cos", "a", _FLOAT + "Cosine of a in radians; NaN at infinity.", evaluate=semantics.computed_wide("cos"), cost=12.0, expansion=(50, 200), chain=(Chain(33, 12, 0, 58), Chain(24, 15, 0, 74)), **_UNARY)
    TAN = Op("tan", "a", _FLOAT + "Tangent of a in radians; NaN at infinity.", evaluate=semantics.computed_wide("tan"), cost=24.0, expansion=(60, 210), chain=(Chain(35, 12, 1, 79), Chain(33, 15, 1, 71)), **_UNARY)
    TANH = Op("tanh", "a", _FLOAT + "Hyperbolic tangent.", evaluate=semantics.computed_wide("tanh"), cost=18.0, expansion=(40, 50), chain=(Chain(21, 10, 1, 71), Chain(26, 15, 1, 91)), **_UNARY)
    ERF = Op("erf", "a", _FLOAT + "Error function.", evaluate=semantics.erf, cost=18.0, expansion=(60, 80), chain=(Chain(29, 20, 0, 90), Chain(42, 32, 1, 119)), **_UNARY)
    SQRT = Op("sqrt", "a", _FLOAT + "Square root, correctly rounded; NaN below 0.", evaluate=semantics.computed_wide("sqrt"), cost=4.0, latency=13, **_UNARY)
    RECIPROCAL = Op("reciprocal", "a", _FLOAT + "1/a, correctly rounded; signed infinity at ±0.", evaluate=semantics.computed_wide("reciprocal"), cost=4.0, latency=13, **_UNARY)
    TRUNC = Op("trunc", "a", _FLOAT + "Rounds toward 0, keeping the sign of zero.", evaluate=semantics.computed_wide("trunc"), **_UNARY)
    FLOOR = Op("floor", "a", _FLOAT + "Rounds toward −∞.", evaluate=semantics.computed_wide("floor"), **_UNARY)
    CEIL = Op("ceil", "a", _FLOAT + "Rounds toward +∞.", evaluate=semantics.computed_wide("ceil"), **_UNARY)
    ROUND = Op("round", "a", _FLOAT + "Rounds to nearest, ties to even.", evaluate=semantics.computed_wide("rint"), **_UNARY)
    CAST = Op("cast", "a", "Converts a to the node's dtype. To bool: a ≠ 0. Float to integer: truncates and saturates; NaN gives 0. Integers wrap. To fp8: saturates.", dtype="cast", shape="first", levels=TENSOR | SCALAR, cost=1.0, pure=True, bounds=intervals.cast)
    BITCAST = Op("bitcast", "a", "Reinterprets the bits; a different item size scales the last dimension.", dtype="bitcast", shape="bitcast", levels=TENSOR | SCALAR, cost=1.0, latency=0, pure=True)

    # Binary
    ADD = Op("add", "a b", "Sum. Integers wrap; logical or for bool.", arg=(_NONE, int), field="fast_zeros", evaluate=semantics.add, fold=operator.add, commutes=True, symbol="+", bounds=intervals.add)
    SUB = Op("sub", "a b", "Difference; integers wrap.", arg=(_NONE, int), field="fast_zeros", evaluate=semantics.sub, fold=operator.sub, symbol="-", bounds=intervals.sub)
    MUL = Op("mul", "a b", "Product. Integers wrap; logical and for bool.", arg=(_NONE, int), field="fast_zeros", evaluate=semantics.mul, fold=operator.mul, commutes=True, symbol="*", bounds=intervals.mul)
    FDIV = Op("fdiv", "a b", "Float quotient, correctly rounded.", evaluate=semantics.computed_wide("divide"), symbol="/", cost=4.0, latency=13, **_UNARY)
    FLOORDIV = Op("floordiv", "a b", "Quotient rounded toward −∞; 0 where b = 0.", evaluate=semantics.floor_div, fold=_floordiv, symbol="//", cost=4.0, bounds=intervals.quotient(_floordiv))
    FLOORMOD = Op("floormod", "a b", "a - b*floor(a/b), sign of b; 0 where b = 0 (floats: NaN).", evaluate=semantics.computed_wide("remainder"), fold=lambda a, b: a % b if b else 0, symbol="%", cost=4.0, bounds=intervals.floormod)
    CDIV = Op("cdiv", "a b", "Quotient rounded toward 0; 0 where b = 0.", evaluate=semantics.trunc_div, fold=_cdiv, cost=4.0, bounds=intervals.quotient(_cdiv))
    CMOD = Op("cmod", "a b", "a - b*trunc(a/b), sign of a; 0 where b = 0 (floats: fmod).", evaluate=semantics.computed_wide("fmod"), fold=lambda a, b: a - b * _cdiv(a, b) if b else 0, cost=4.0, bounds=intervals.cmod)
    MAX = Op("max", "a b", "The greater; NaN if either is.", evaluate=semantics.maximum, fold=max, commutes=True, bounds=intervals.maximum)
    MIN = Op("min", "a b", "The lesser; NaN if either is.", evaluate=semantics.minimum, fold=min, commutes=True, bounds=intervals.minimum)
    POW = Op("pow", "a b", "a to the b, with C's special cases; integers wrap, a negative exponent gives the integer part.", evaluate=semantics.power, symbol="**", cost=36.0, expansion=(150, 200), chain=(Chain(66, 21, 0, 142), Chain(114, 47, 1, 182)), **_UNARY)
    SHL = Op("shl", "a b", "Shift left; 0 where b < 0 or b ≥ width.", evaluate=semantics.shl, symbol="<<", bounds=intervals.shift(operator.lshift), **_UNARY)
    SHR = Op("shr", "a b", "Shift right (signed: arithmetic); 0 or the sign where b < 0 or b ≥ width.", evaluate=semantics.shr, symbol=">>", bounds=intervals.shift(operator.rshift), **_UNARY)
    AND = Op("and", "a b", "Bitwise and.", evaluate=operator.and_, fold=operator.and_, commutes=True, symbol="&", bounds=intervals.bit_and)
    OR = Op("or", "a b", "Bitwise or.", evaluate=operator.or_, fold=operator.or_, commutes=True, symbol="|", bounds=intervals.bit_or)
    XOR = Op("xor", "a b", "Bitwise exclusive or.", evaluate=operator.xor, fold=operator.xor, commutes=True, symbol="^", bounds=intervals.bit_xor)
    THREEFRY = Op("threefry", "x key", "threefry-2x32-20 on uint64 = (high << 32) | low.", evaluate=semantics.threefry, cost=60.0, **_UNARY)
    CMPLT = Op("cmplt", "a b", "a < b; False with NaN.", evaluate=operator.lt, fold=operator.lt, dtype="bool", symbol="<", bounds=intervals.less)
    CMPLE = Op("cmple", "a b", "a ≤ b; False with NaN.", evaluate=operator.le, fold=operator.le, dtype="bool", symbol="<=", bounds=intervals.at_most)
    CMPEQ = Op("cmpeq", "a b", "a = b; False with NaN; -0.0 equals 0.0.", evaluate=operator.eq, fold=operator.eq, dtype="bool", commutes=True, symbol="==", bounds=intervals.equal)
    CMPNE = Op("cmpne", "a b", "a ≠ b; True with NaN.", evaluate=operator.ne, fold=operator.ne, dtype="bool", commutes=True, symbol="!=", bounds=intervals.unequal)

    # Ternary
    WHERE = Op("where", "condition a b", "a where the condition holds, else b; the operand not chosen is ignored, even if it is NaN.", evaluate=np.where, dtype="where", bounds=intervals.where)
    APPLY = Op("apply", "function *a", "The value of a FUNCTION whose NUMBERs are the operands. Code has the function once, if it is used often.", levels=VECTOR | LINEAR, latency=1, dtype="applied", shape="scalar", pure=True)
    BRANCH = Op("branch", "a condition b", "b if the condition, one bool for all lanes, holds, else a. Nodes that only b needs are computed only then.", levels=VECTOR | LINEAR, latency=1, dtype="branch", pure=True, bounds=lambda u, x, p, y: intervals.either(x, y))
    MULACC = Op("mulacc", "a b c", "a*b + c; floats round once.", evaluate=semantics.mulacc, **_UNARY)
    DOT4 = Op("dot4", "a b *c", "The sum of the products of the four bytes of a, unsigned, with those of b, signed, and c. int32 only; wraps.", arity=(2, 3), evaluate=semantics.dot4, cost=1.0, **_UNARY)
    DOT2 = Op("dot2", "a b *c", "The sum of the products of the two bfloat16 of a with those of b, and c, added up as float32. a and b are int32, c and the result float32. The order is free, and numbers below the least normal one may be 0.", arity=(2, 3), evaluate=semantics.dot2, dtype="float32", cost=1.0, **_UNARY)
    SCALE = Op("scale", "a n", "a times 2 to the n, rounded once; n is a float with an integral value.", evaluate=semantics.scale, levels=VECTOR | LINEAR)

    # Movement
    RESHAPE = Op("reshape", "a *dims", "The same elements in row-major order under a new shape.", arg=(tuple,), shape="reshape", levels=SHAPED, movement=True, bounds=intervals.same, kind="dims")
    EXPAND = Op("expand", "a *dims", "Broadcast to the shape in the arg: leading dimensions are added, size 1 repeats.", arg=(tuple,), shape="expand", levels=SHAPED, movement=True, bounds=intervals.same, kind="dims")
    PERMUTE = Op("permute", "a", "Dimension i of the result is dimension arg[i] of a.", arg=(tuple,), shape="permute", levels=SHAPED, movement=True, bounds=intervals.same, kind="integers")
    FLIP = Op("flip", "a", "Reverses the axes in the arg.", arg=(tuple,), shape="flip", levels=SHAPED, movement=True, bounds=intervals.same, kind="integers")
    PAD = Op("pad", "a *dims", "arg = begins, then sizes: a result of these sizes with a at begin and zeros elsewhere.", arg=(tuple,), shape="window", levels=SHAPED, movement=True, kind="window")
    SHRINK = Op("shrink", "a *dims", "arg = begins, then sizes: the part of a of these sizes from begin on. Outside of a, where variables may reach, reads give 0 and stores are skipped.", arg=(tuple,), shape="window", levels=SHAPED, movement=True, bounds=intervals.same, kind="window")
    STACK = Op("stack", "*a", "Values of one shape along a new leading dimension (vector: one value per lane).", shape="stack", levels=SHAPED | VECTOR | LINEAR, arity=(1, None), latency=0, dtype="stack", pure=True, bounds=intervals.stack)
    CAT = Op("cat", "*a", "The values, joined along axis arg.", arg=(int,), shape="cat", levels=SHAPED, arity=(1, None), dtype="cat", field="axis")

    # Reduction and access
    REDUCE = Op("reduce", "a *ranges", "Combines the values along tensor axes (dropped), or over the ranges given as sources, in any order. No values: the identity.", arg=(args.ReduceArg,), shape="reduce", levels=TENSOR | INDEXED | KERNEL | VECTOR, kind="reduce", bounds=intervals.reduce)
    ACCUMULATE = Op("accumulate", "a", "At each place of the axis in the arg, the elements up to it combined, in any grouping.", arg=(args.ReduceArg,), shape="accumulate", levels=TENSOR, kind="reduce")
    HREDUCE = Op("hreduce", "a", "Combines the lanes of a vector.", arg=(str,), dtype="hreduce", shape="scalar", levels=VECTOR | LINEAR, kind="hreduce", pure=True)
    LANE = Op("lane", "a", "One lane of a vector.", arg=(int,), dtype="lane", shape="scalar", levels=VECTOR | LINEAR, bounds=intervals.same, kind="lane", field="at", pure=True)
    SHUFFLE = Op("shuffle", "a b", "The lanes in the arg, in its order. The lanes of b are numbered after those of a.", arg=(tuple,), dtype="shuffle", shape="scalar", levels=VECTOR | LINEAR, bounds=intervals.stack, kind="shuffle", field="lanes", pure=True)
    LOOKUP = Op("lookup", "table index", "For each lane of the index, the lane of the table that it numbers, modulo their count: a power of two.", dtype="looked_up", shape="scalar", levels=VECTOR | LINEAR, pure=True, cost=1.0)
    INDEX = Op("index", "a *indices", "The element of a at the indices, which broadcast together (tensor level: gather). Fewer indices than dimensions select a row. On storage: an address, and as an operand the value there. An INVALID index: no access, reads 0.", dtype="element", shape="index", levels=TENSOR | SCALAR, cost=2.0, latency=0, takes_storage=1, bounds=intervals.element)
    EXCHANGE = Op("exchange", "a", "The value of a in the thread of the warp whose number is this thread's number xor arg. All threads of a warp take part.", arg=(int,), shape="scalar", levels=KERNEL | VECTOR | LINEAR)
    LOAD = Op("load", "address *gate", "Reads memory; 0 where the gate is false.", dtype="load", shape="first", arity=(1, 2), levels=SCALAR, latency=5, is_access=True)
    FETCH = Op("fetch", "load ahead", "The value of a LOAD, or of a FETCH. As many elements as the arg says may be fetched: so far ahead of the address of the LOAD, where they are read soon and may lie outside of the storage, or at an INDEX, where they are written soon.", arg=(int,), dtype="fetched", levels=VECTOR | LINEAR, latency=0, field="size", pure=True)
    STORE = Op("store", "target value *gate", "Writes the value where the gate holds; INVALID is not written. arg `async`: done at the latest at a BARRIER that waits for its COMMIT. arg `stream`: bypasses the caches if the machine can.", arg=(_NONE, str), dtype="store", shape="store", effect=True, arity=(2, 3), levels=EVERYWHERE, field="mode", is_access=True)
    AFTER = Op("after", "a *effects", "a, after the effects. A RANGE as an effect: inside that loop.", shape="first", device="first", levels=EVERYWHERE, latency=0, bounds=intervals.same, takes_storage=inf)

    # Storage and scheduling
    CONTIGUOUS = Op("contiguous", "a", "a, in storage of its own; the arg may hold Opts for its kernel.", arg=(_NONE, tuple), shape="first", levels=SHAPED, bounds=intervals.same, kind="opts", field="opts")
    CONTIGUOUS_BACKWARD = Op("contiguous_backward", "a", "The same value.", shape="first", levels=SHAPED)
    DETACH = Op("detach", "a", "The same value.", shape="first", levels=SHAPED, bounds=intervals.same)
    PRIMITIVE = Op("primitive", "a *operands", "The value a. For derivatives it is the function in the arg, of the operands.", arg=(args.PrimitiveArg,), shape="first", levels=SHAPED, arity=(1, None), bounds=intervals.same)
    COPY = Op("copy", "a", "a, on the device in the arg; of a value on several devices, the first part.", arg=(str,), shape="first", device="given", levels=TENSOR, field="device")
    SLICE = Op("slice", "a", "arg = offset, size: a flat view of a buffer.", arg=(tuple,), shape="slice", levels=TENSOR | PROGRAM, takes_storage=1, kind="integers")
    STAGE = Op("stage", "a *ranges", "a is computed once and stored; its readers load it. In a kernel: for each value of the ranges given as sources, which are the first dimensions of the result.", arg=(args.StageArg,), shape="stage", levels=SHAPED, bounds=intervals.same)
    BIND = Op("bind", "variable value", "The variable, with a value for this run. In a program, the value is that in the storage.", shape="scalar", levels=TENSOR | PROGRAM, bounds=intervals.same, takes_storage=2)
    MSTACK = Op("mstack", "*a", "A value on several devices: each has one of the operands.", shape="alike", device="each", levels=TENSOR, arity=(1, None))
    MSELECT = Op("mselect", "a", "The part of a on one of its devices.", arg=(int,), shape="first", device="part", levels=TENSOR, field="part")
    SHARD = Op("shard", "a", "a, laid out over the mesh of the compile as the arg says. Without a mesh, a.", arg=(args.ShardArg,), shape="first", levels=TENSOR, bounds=intervals.same)
    ALLREDUCE = Op("allreduce", "a", "The values of a on all devices of a group, combined by the arg's op.", arg=(args.ExchangeArg,), shape="first", levels=SHAPED)
    REDUCE_SCATTER = Op("reduce_scatter", "a", "The first dimension of a has a part for each device of the group: its own, combined over all.", arg=(args.ExchangeArg,), shape="scattered", levels=SHAPED)
    ALLGATHER = Op("allgather", "a", "The values of a on all devices of a group, along a new first dimension.", arg=(args.ExchangeArg,), shape="gathered", levels=SHAPED)
    ALLTOALL = Op("alltoall", "a", "Row i of the result is this device's row of a on device i of the group.", arg=(args.ExchangeArg,), shape="exchanged", levels=SHAPED)
    PERMUTE_RANKS = Op("permute_ranks", "a", "The a of the device that is arg.shift places before in the group, around its end (wrap), or of the opposite one (mirror); zeros where there is none.", arg=(args.ExchangeArg,), shape="first", levels=SHAPED)
    BROADCAST = Op("broadcast", "a", "The a of device arg.root of the group.", arg=(args.ExchangeArg,), shape="first", levels=SHAPED)
    FUNCTION = Op("function", "*outputs", "A graph of PARAMs by slot, called by CALL. In a kernel: one value of NUMBERs by slot, used by APPLY.", arg=(args.FunctionArg,), dtype="void", shape="none", device="none", levels=TENSOR | VECTOR | LINEAR)
    CALL = Op("call", "body *args", "A FUNCTION, kernel or program applied to arguments in slot order; in a program, the loops around it come last.", dtype="void", shape="none", effect=True, levels=TENSOR | INDEXED | PROGRAM, takes_storage=inf)
    TUPLE = Op("tuple", "*a", "Several values.", dtype="void", shape="none", device="none", levels=TENSOR, arity=(0, None))
    GETTUPLE = Op("gettuple", "a", "One value of a TUPLE or CALL.", arg=(int,), dtype="part", shape="part", levels=TENSOR, kind="part", field="item")
    NOOP = Op("noop", "*a", "Nothing.", dtype="any", shape="none", levels=EVERYWHERE, arity=(0, None))

    # Control
    RANGE = Op("range", "end *after", "Counts 0 ≤ i < end. Nodes that depend on it are inside the loop until END or REDUCE closes it.", arg=(args.RangeArg,), dtype="range", shape="scalar", arity=(1, None), levels=SCALAR | PROGRAM, opens=True, kind="range", bounds=intervals.loop)
    END = Op("end", "effect *ranges", "Closes the ranges around the effect. Indexed: the arg may hold Opts for its kernel. Linear: after the range, each CARRY with its next value.", arg=(_NONE, tuple), dtype="void", shape="none", effect=True, levels=SCALAR, closes=True, kind="opts", field="opts")
    CARRY = Op("carry", "initial range", "A value carried through the loop: initial in the first iteration, then the value that END gives; after the loop, the last one.", arg=(int,), shape="scalar", levels=LINEAR, field="id")
    IF = Op("if", "condition", "The condition. Statements up to its ENDIF run only if it holds. A BRANCH after that joins a value from before the IF and one from inside.", arg=(int,), levels=LINEAR, opens=True, dtype="if", field="id")
    ENDIF = Op("endif", "if", "Ends the statements of an IF.", dtype="void", shape="none", effect=True, levels=LINEAR, closes=True)
    COMMIT = Op("commit", "*effects", "Groups the async STOREs of this thread since its last COMMIT.", dtype="void", shape="none", effect=True, levels=VECTOR | LINEAR, arity=(0, None))
    BARRIER = Op("barrier", "*effects", "Waits until all threads of the block have done the effects. arg = the number of newest groups of async STOREs that may still be open.", arg=(_NONE, int), dtype="void", shape="none", effect=True, levels=KERNEL | VECTOR | LINEAR, arity=(0, None), field="open", takes_storage=inf)
    GROUP = Op("group", "*effects", "All the effects.", dtype="void", shape="none", device="none", effect=True, levels=EVERYWHERE, arity=(0, None), takes_storage=inf)
    SINK = Op("sink", "*a", "The roots of a graph; for a kernel, its name and Opts.", arg=(_NONE, args.KernelArg), dtype="void", shape="none", device="none", effect=True, levels=EVERYWHERE, arity=(0, None), takes_storage=inf)
    TILE_LOAD = Op("tile_load", "address lane", "A lane's part of matrices of 8 by 8 elements of 16 bits, in pairs as WMMA takes them. The address of lane i is that of row i % 8 of matrix i // 8. arg = (number of matrices, whether to transpose them).", arg=(tuple,), dtype="loaded", shape="scalar", levels=VECTOR | LINEAR, field="matrices", is_access=True)
    WMMA = Op("wmma", "a b lane *c", "The lane's part of a·b + c for a tile, arg = (m, n, k). The 32 lanes of a warp together hold a, b and c.", arg=(tuple,), dtype="given", shape="scalar", arity=(3, 4), levels=VECTOR | LINEAR, field="tile")
    SHAPED_WMMA = Op("shaped_wmma", "a b row column depth", "The sum of a·b over depth, in the node's dtype; a depends on row and depth, b on depth and column. A tensor core computes it a tile at a time, arg = (m, n, k).", arg=(tuple,), dtype="given", shape="product", levels=KERNEL, field="tile")
    LINEAR = Op("linear", "*a", "UOps in execution order.", arg=(_NONE, args.KernelArg), dtype="void", shape="none", effect=True, levels=LINEAR | PROGRAM, arity=(0, None), takes_storage=inf)
# fmt: on


DOTS = (Ops.DOT4, Ops.DOT2)  # dot products of words
COMPARISONS = tuple([op for op in Op.all() if op.dtype == "bool"])


class GroupOp:
    """Sets of ops, read from the table; `UPat(GroupOp.Binary)` matches any op of a set.

    Examples:
        >>> uopc.Ops.ADD in uopc.GroupOp.Commutative, uopc.Ops.SUB in uopc.GroupOp.Commutative
        (True, False)
    """

    All = frozenset(Op.all())
    ALU = frozenset([op for op in Op.all() if op.is_alu])
    Unary = frozenset([op for op in ALU if op.arity == (1, 1)])
    Binary = frozenset([op for op in ALU if op.arity == (2, 2)])
    Ternary = frozenset([op for op in ALU if op.arity == (3, 3)])
    Elementwise = ALU | {Ops.CAST, Ops.BITCAST}
    Comparison = frozenset(COMPARISONS)
    Commutative = frozenset([op for op in ALU if op.commutes])
    Associative = Commutative - Comparison  # sums and products of floats round
    Idempotent = frozenset((Ops.AND, Ops.OR, Ops.MAX, Ops.MIN))  # f(a, a) = a
    Movement = frozenset([op for op in Op.all() if op.movement])
    Buffer = frozenset([op for op in Op.all() if op.is_storage])
    Exchange = frozenset([op for op in Op.all() if op.arg[-1] is args.ExchangeArg])
    Several = Exchange | {Ops.MSTACK, Ops.MSELECT}  # of values on several devices
    Irreducible = frozenset((Ops.CONST, Ops.VARIABLE, Ops.SPECIAL, Ops.RANGE))


del Op.__setattr__  # the table is complete: from here on nobody changes a row
