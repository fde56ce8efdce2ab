"""a*b + c of floats, rounded once, in integers: for processors without float instructions.

Mantissas of p bits are multiplied exactly. Product and summand are placed near the top of a word of
twice the float's bits, at the distance of their exponents. The lower one is shifted, and its last
bit is set if bits are lost. The sum or difference is then rounded, once.
"""

from __future__ import annotations

from uopc.backends import detect
from uopc.backends.llvm.types import llvm_type, suffix
from uopc.exporting.machines import TargetMachine
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType

_HEAD = """
define internal {t} @{name}_fma_{suffix}({t} %a, {t} %b, {t} %c) nounwind noinline {{
entry:
  %a.bits = bitcast {t} %a to {i}
  %b.bits = bitcast {t} %b to {i}
  %c.bits = bitcast {t} %c to {i}
  %a.size = and {i} %a.bits, {magnitude}
  %b.size = and {i} %b.bits, {magnitude}
  %c.size = and {i} %c.bits, {magnitude}
  %a.odd = icmp uge {i} %a.size, {infinity}
  %b.odd = icmp uge {i} %b.size, {infinity}
  %c.odd = icmp uge {i} %c.size, {infinity}
  %a.zero = icmp eq {i} %a.size, 0
  %b.zero = icmp eq {i} %b.size, 0
  %c.zero = icmp eq {i} %c.size, 0
  %odd = or i1 %a.odd, %b.odd
  %zero = or i1 %a.zero, %b.zero
  %simple = or i1 %odd, %zero
  br i1 %simple, label %plain, label %product.finite
plain:
  %product.plain = fmul {t} %a, %b
  %sum.plain = fadd {t} %product.plain, %c
  ret {t} %sum.plain
product.finite:
  br i1 %c.odd, label %third, label %all.finite
third:
  %same = fadd {t} %c, %c
  ret {t} %same
all.finite:
  br i1 %c.zero, label %alone, label %exact
alone:
  %rounded = fmul {t} %a, %b
  ret {t} %rounded
exact:"""
# A mantissa with its first bit in place, and the exponent that goes with it.
_PARTS = """
  %{x}.tiny = icmp ult {i} %{x}.size, {one}
  %{x}.lead = call {i} @llvm.ctlz.{i}({i} %{x}.size, i1 true)
  %{x}.up = sub {i} %{x}.lead, {spare}
  %{x}.moved = shl {i} %{x}.size, %{x}.up
  %{x}.low = and {i} %{x}.size, {below}
  %{x}.whole = or {i} %{x}.low, {one}
  %{x}.m = select i1 %{x}.tiny, {i} %{x}.moved, {i} %{x}.whole
  %{x}.power = lshr {i} %{x}.size, {stored}
  %{x}.less = sub {i} 1, %{x}.up
  %{x}.exponent = select i1 %{x}.tiny, {i} %{x}.less, {i} %{x}.power
  %{x}.e.wide = zext {i} %{x}.exponent to {w}
  %{x}.e = trunc {w} %{x}.e.wide to i32
  %{x}.wide = zext {i} %{x}.m to {w}"""
_SUM = """
  %product = mul {w} %a.wide, %b.wide
  %high = shl {w} %product, {product_up}
  %third.high = shl {w} %c.wide, {third_up}
  %e.sum = add i32 %a.e, %b.e
  %e.high = sub i32 %e.sum, {product_off}
  %e.third = sub i32 %c.e, {third_up}
  %apart = sub i32 %e.high, %e.third
  %first = icmp sge i32 %apart, 0
  %negative.apart = sub i32 0, %apart
  %distance = select i1 %first, i32 %apart, i32 %negative.apart
  %near = icmp ult i32 %distance, {last}
  %by = select i1 %near, i32 %distance, i32 {last}
  %by.wide = zext i32 %by to {w}
  %upper = select i1 %first, {w} %high, {w} %third.high
  %lower = select i1 %first, {w} %third.high, {w} %high
  %e = select i1 %first, i32 %e.high, i32 %e.third
  %lower.by = lshr {w} %lower, %by.wide
  %lower.back = shl {w} %lower.by, %by.wide
  %lower.lost = icmp ne {w} %lower.back, %lower
  %lower.last = zext i1 %lower.lost to {w}
  %lower.exact = or {w} %lower.by, %lower.last
  %product.sign = xor {i} %a.bits, %b.bits
  %differ = xor {i} %product.sign, %c.bits
  %subtract = icmp slt {i} %differ, 0
  %upper.sign = select i1 %first, {i} %product.sign, {i} %c.bits
  %added = add {w} %upper, %lower.exact
  %difference = sub {w} %upper, %lower.exact
  %turned = icmp slt {w} %difference, 0
  %opposite = sub {w} 0, %difference
  %size.difference = select i1 %turned, {w} %opposite, {w} %difference
  %sum = select i1 %subtract, {w} %size.difference, {w} %added
  %other.sign = xor {i} %upper.sign, -1
  %turns = and i1 %subtract, %turned
  %sign.long = select i1 %turns, {i} %other.sign, {i} %upper.sign
  %sign = and {i} %sign.long, {sign}
  %nothing = icmp eq {w} %sum, 0
  br i1 %nothing, label %none, label %round
none:
  ret {t} 0.0
round:"""
_ROUND = """
  %lead.wide = call {w} @llvm.ctlz.{w}({w} %sum, i1 true)
  %normal = shl {w} %sum, %lead.wide
  %low = trunc {w} %normal to {i}
  %top.wide = lshr {w} %normal, {bits}
  %top = trunc {w} %top.wide to {i}
  %lead = trunc {w} %lead.wide to i32
  %e.lead = sub i32 %e, %lead
  %biased = add i32 %e.lead, {bias_up}
  %low.lost = icmp ne {i} %low, 0
  %low.last = zext i1 %low.lost to {i}
  %two.lost = and {i} %top, 3
  %two.some = icmp ne {i} %two.lost, 0
  %two.last = zext i1 %two.some to {i}
  %top.by = lshr {i} %top, 2
  %top.one = or {i} %top.by, %low.last
  %value = or {i} %top.one, %two.last
  %under = icmp slt i32 %biased, 1
  %deep.by = sub i32 1, %biased
  %deep = select i1 %under, i32 %deep.by, i32 0
  %drop.all = add i32 %deep, {drop}
  %drop.near = icmp ult i32 %drop.all, {deepest}
  %drop = select i1 %drop.near, i32 %drop.all, i32 {deepest}
  %field.up = sub i32 %biased, 1
  %field = select i1 %under, i32 0, i32 %field.up
  %k.wide = zext i32 %drop to {w}
  %k = trunc {w} %k.wide to {i}
  %kept = lshr {i} %value, %k
  %back = shl {i} %kept, %k
  %rest = sub {i} %value, %back
  %k.less = sub {i} %k, 1
  %half = shl {i} 1, %k.less
  %above = icmp ugt {i} %rest, %half
  %tie = icmp eq {i} %rest, %half
  %odd.kept = trunc {i} %kept to i1
  %tie.up = and i1 %tie, %odd.kept
  %up = or i1 %above, %tie.up
  %up.one = zext i1 %up to {i}
  %mantissa = add {i} %kept, %up.one
  %field.wide = zext i32 %field to {w}
  %field.own = trunc {w} %field.wide to {i}
  %field.place = shl {i} %field.own, {stored}
  %found = add {i} %field.place, %mantissa
  %over = icmp sge i32 %field, {most_field}
  %made = select i1 %over, {i} {infinity}, {i} %found
  %signed = or {i} %made, %sign
  %result = bitcast {i} %signed to {t}
  ret {t} %result
}}
"""


def in_integers(name: str, t: DType) -> str:
    """The definition of the function, and the declarations that it needs."""
    bits, p = t.bits, t.whole_bits
    stored = p - 1
    one, bias = 1 << stored, (1 << bits - p - 1) - 1
    wide = 2 * bits
    product_up, third_up = wide - 2 - 2 * p, wide - 2 - p
    numbers = {
        "name": name, "suffix": suffix(t), "t": llvm_type(t), "i": f"i{bits}", "w": f"i{wide}",
        "bits": bits, "magnitude": (1 << bits - 1) - 1, "sign": -1 << bits - 1, "one": one,
        "infinity": (2 * bias + 1) << stored, "below": one - 1, "stored": stored,
        "spare": bits - p, "product_up": product_up, "third_up": third_up, "last": wide - 1,
        "product_off": product_up + bias + stored, "bias_up": wide - 1 - stored,
        "drop": bits - 2 - p, "deepest": bits - 1, "most_field": 2 * bias,
    }  # fmt: skip
    parts = [_HEAD, *[_PARTS.replace("{x}", x) for x in "abc"], _SUM, _ROUND]
    return "".join([part.format(**numbers) for part in parts])


def without_instruction(text: str, name: str, machine: TargetMachine) -> str:
    """Replace MULACCs of floats that the machine computes in software by functions in the module.
    If code runs here instead, it uses this machine's instruction, if there is one."""
    runs_here = not machine.is_arm
    made: list[str] = []
    needed: dict[str, None] = {}
    for t in (dtypes.float32, dtypes.float64):
        intrinsic, llvm = f"@llvm.fma.{suffix(t)}(", llvm_type(t)
        known = runs_here and detect.host().has_fma(t)
        if intrinsic in text and machine.target.is_software(t) and not known:
            text = text.replace(f"declare {llvm} {intrinsic}{llvm}, {llvm}, {llvm})\n", "")
            text = text.replace(intrinsic, f"@{name}_fma_{suffix(t)}(")
            made.append(in_integers(name, t))
            for n in (t.bits, 2 * t.bits):
                needed[f"declare i{n} @llvm.ctlz.i{n}(i{n}, i1)"] = None
    return "\n".join([text, *made, *needed])
