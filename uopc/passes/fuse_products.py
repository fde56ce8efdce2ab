"""Decide which products are fused into which sums: a*b + c becomes a MULACC, which rounds once.

Before (linear)                    After (linear)
  linear name=E opts=() {            linear name=E opts=() {
    %1 = param "" slot=0 : f32[2]      %1 = param "" slot=0 : f32[2]
    %2 = const 0 : index               %2 = const 0 : index
    %3 = index %1, 0 : f32             %3 = index %1, 0 : f32
    %4 = load %3 : f32                 %4 = load %3 : f32
    %5 = const 1 : index               %5 = const 1 : index
    %6 = index %1, 1 : f32             %6 = index %1, 1 : f32
    %7 = load %6 : f32                 %7 = load %6 : f32
    %8 = mul %4, %7 : f32              %8 = mulacc %4, %7, %4 : f32
    %9 = add %8, %4 : f32              store %3, %8
    store %3, %9                     }
  }

Machine code and the interpreter then give the same bits, and so does code in any language whose
compiler fuses nothing. A product is fused if the sum is its only use, and stands in the same turn
of the same loop or branch; of two, the first one is. A product that two values read is rounded:
both read one number. A machine without the instruction rounds each product. A dot product takes the
sum that it is added to in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from uopc.ir.core import dtypes
from uopc.ir.core.calls import applied, function_body
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import DOTS, Op, Ops
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.passes.contract import Context
from uopc.target import Target

_PRODUCTS = (Ops.MUL, Ops.NEG, *DOTS)
_OPENS, _CLOSES = (Ops.RANGE, Ops.IF), (Ops.END, Ops.ENDIF)


class _Fusion:
    """The statements of a kernel, one by one, with products in the sums that take them."""

    def __init__(self, statements: Sequence[UOp], target: Target) -> None:
        self.uses = Counter([s for u in statements for s in u.src if s.op in _PRODUCTS])
        self.block = _blocks(statements)
        self.sums: dict[UOp, int] = {}  # the operand of a sum that is a product
        self.gone: set[UOp] = set()
        products: dict[DType, tuple[Op, ...]] = {}
        for u in statements:
            if u.op is Ops.ADD or u.op is Ops.SUB:
                if u.dtype not in products:
                    products[u.dtype] = _products_of(u.dtype.scalar, target)
                if ops := products[u.dtype]:
                    self._choose(u, ops)
        self.made: dict[UOp, UOp] = {}
        self.out: list[UOp] = []
        self.open: list[int] = [0]
        self.emitted: dict[UOp, int] = {}  # the block of each statement

    def _choose(self, u: UOp, ops: tuple[Op, ...]) -> None:
        """Fuse the first operand of a sum that may be, a product by one of the ops."""
        for i, s in enumerate(u.src):
            product = s.src[0] if s.op is Ops.NEG else s
            if product.op not in ops or len(product.src) > 2:
                continue
            if product.op in DOTS and (product is not s or u.op is Ops.SUB):
                continue
            if self._is_inner(s, u) and self._is_inner(product, u):
                self.sums[u] = i
                self.gone |= {s, product}
                return

    def _is_inner(self, s: UOp, u: UOp) -> bool:
        """True if nothing but `u` reads a value, right where it is computed."""
        return (
            self.uses[s] == 1 and s.dtype is u.dtype and self.block.get(s, -1) == self.block[u]
        )

    def run(self, statements: Sequence[UOp]) -> list[UOp]:
        """The statements with their products fused."""
        for u in statements:
            if u.op in _CLOSES:
                self.open.pop()
            if u in self.made:  # a function
                self._append(self.made[u])
            elif u in self.sums:
                self._emit(u, self._fused(u))
            elif u not in self.gone:
                src = self._new(u.src)
                self._emit(u, u if src == u.src else intern(u.op, u.dtype, src, u.arg, u.tag))
            if u.op in _OPENS:
                self.open.append(len(self.out))
        return self.out

    def _new(self, src: Sequence[UOp]) -> tuple[UOp, ...]:
        return tuple([self.made.get(s, s) for s in src])

    def _fused(self, u: UOp) -> UOp:
        """A sum with its product as a MULACC, or as a dot product of three operands."""
        at = self.sums[u]
        product, other = u.src[at], self._new([u.src[1 - at]])[0]
        if product.op in DOTS:
            return intern(product.op, u.dtype, (*self._new(product.src), other), None, u.tag)
        negative = product.op is Ops.NEG
        a, b = self._new(product.src[0].src if negative else product.src)
        if u.op is Ops.SUB and at == 0:
            other = self._negative(other)
        if negative is not (u.op is Ops.SUB and at == 1):
            a = self._negative(a)
        return intern(Ops.MULACC, u.dtype, (a, b, other), None, u.tag)

    def _negative(self, a: UOp) -> UOp:
        """-a, as a statement of its own where it is none yet."""
        if a.op is Ops.NEG:
            return a.src[0]
        if a.op is Ops.CONST:
            value = tuple([-v for v in a.arg]) if type(a.arg) is tuple else -a.arg
            made = intern(Ops.CONST, a.dtype, (), value)
        else:
            made = intern(Ops.NEG, a.dtype, (a,))
        return self._append(made)

    def _emit(self, u: UOp, made: UOp) -> None:
        made = self._append(made)
        if made is not u:
            set_origin(made, u.origin)
            self.made[u] = made

    def _append(self, made: UOp) -> UOp:
        """Add a statement, or find an equal statement whose value is still known."""
        again = made
        while again in self.emitted:
            known = again.op.is_alu and self.emitted[again] in self.open
            if known or again.op is Ops.CONST:
                return again
            again = intern(made.op, made.dtype, made.src, made.arg, len(self.out))
        self.out.append(again)
        self.emitted[again] = self.open[-1]
        return again


def _products_of(t: DType, target: Target) -> tuple[Op, ...]:
    """The products that sums of a type take."""
    if t is dtypes.int32:
        return (Ops.DOT4,)
    dots = (Ops.DOT2,) if t is dtypes.float32 else ()
    return (Ops.MUL, *dots) if target.fuses(t) else dots


def _blocks(statements: Sequence[UOp]) -> dict[UOp, int]:
    """The code that each statement runs with, as often and in the same turn: a loop has a part
    before each loop inside and one after it; a branch does not cut what is around it."""
    block, number, around = {}, 0, [0]
    for u in statements:
        number += u.op in _OPENS or u.op in _CLOSES
        if u.op is Ops.IF:
            around.append(number)
        elif u.op is Ops.ENDIF:
            around.pop()
        elif u.op is Ops.RANGE or u.op is Ops.END:
            around[-1] = number
        block[u] = around[-1]
    return block


def _fused_function(function: UOp, target: Target) -> UOp:
    """A FUNCTION with the products of its body fused."""
    body = function_body(function)
    fusion = _Fusion(body, target)
    fusion.run(body)
    (value,) = fusion._new(function.src)
    return intern(function.op, function.dtype, (value,), function.arg)


def fuse_products(kernel: UOp, context: Context) -> UOp:
    """The pass, on a LINEAR."""
    fusion = _Fusion(kernel.src, context.target)
    fused = {u: _fused_function(u, context.target) for u in applied(kernel)}
    fusion.made |= {u: made for u, made in fused.items() if made is not u}
    if not fusion.sums and not fusion.made:
        return kernel
    return intern(kernel.op, kernel.dtype, tuple(fusion.run(kernel.src)), kernel.arg)
