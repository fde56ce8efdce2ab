"""Machines with matrix units, executed on any other: each intrinsic is a function in LLVM IR.

`executed("matrix")` compiles for a described machine, and runs its code here: whole kernels, with
their packing, addresses and edges. The functions follow the operations in Intel's manual:

    TDPBF16PS    even and odd terms are added up apart, each product fused into its sum; then both
                 sums are added, and that to the tile; numbers below the least normal one are 0
    TDPB[US][US]D, VPDPBUSD    products of four bytes, signed (S) or not (U), added up as int32
    VDPBF16PS    the product of the high numbers, then that of the low ones, fused into the sum

The value of a tile is the address of 1 KiB that belongs to the instruction that made it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.machines import MACHINES
from uopc.backends import detect
from uopc.backends.llvm import jit
from uopc.ir.core import dtypes

UNITS = r"(?:tile|tdp|avx512bf16\.|avx512\.vpdpbusd\.)"
ROW = "<16 x i32>"
SHAPE = "i16 %m, i16 %n"


@contextlib.contextmanager
def executed(name: str, **changes: Any) -> Iterator[list[str]]:
    """`detect` answers as a machine with some changes, whose code runs here with functions in place
    of intrinsics. The list receives the text of each module."""
    target, own = replace(MACHINES[name].target, **changes), detect.this_machine()
    before = detect.this_machine, detect.cores, jit._target_machine, jit.parsed
    seen: list[str] = []

    def parsed(text: str):
        seen.append(text)
        return before[3](spelled_out(text, own.has_fma(dtypes.float32)))

    def machine(cpu: str | None, features: str | None = None, effort: int = jit.EFFORT):
        return before[2](own.cpu, own.features, effort)

    detect.this_machine, detect.cores = (lambda: target), (lambda: MACHINES[name].cores)
    jit._target_machine, jit.parsed = machine, parsed
    try:
        yield seen
    finally:
        detect.this_machine, detect.cores, jit._target_machine, jit.parsed = before


def spelled_out(text: str, has_fma: bool = True) -> str:
    """A module with functions in place of the intrinsics of matrix units, and of products and sums
    that round once where the machine has none."""
    names = sorted(set(re.findall(rf"@llvm\.x86\.({UNITS}[\w.]*)", text)))
    if not has_fma:
        names += sorted(set(re.findall(r"@llvm\.(fma\.v?\d*f32)", text)))
    for name in names:
        whole = f"@llvm.{'' if name.startswith('fma') else 'x86.'}{name}("
        text = re.sub(rf"declare [^\n]*{re.escape(whole)}[^\n]*\n", "", text)
        text = text.replace(whole, f"@spelled.{name}(")
    text = text.replace("bfloat", "i16")
    made = r"(%\w+) = call x86_amx (@[\w.]+)\((.*)\)"
    text = "\n}".join([_in_memory(f, made) for f in text.split("\n}")]).replace("x86_amx", "ptr")
    if any("bf16" in n for n in names):
        helpers = [part for n in (4, 8, 16) for part in (flushed(n), fused(n, has_fma))]
        text = "\n".join([text, *helpers])
    return "\n".join([text, *map(_function, names)])


def _in_memory(function: str, made: str) -> str:
    """A function with memory for each tile that it makes."""
    names = [m[0] for m in re.findall(made, function)]
    places = "".join([f"  {n}.tile = alloca [1024 x i8], align 64\n" for n in names])
    function = re.sub(made, r"\1 = call ptr \2(\3, ptr \1.tile)", function)
    return function.replace("entry:\n", f"entry:\n{places}", 1)


def _function(name: str) -> str:
    """The definition of an intrinsic."""
    if name.startswith("avx512bf16.dpbf16ps."):
        return pairs(name, int(name.rpartition(".")[2]) // 32)
    if name.startswith("avx512.vpdpbusd."):
        return bytes_of_words(name, int(name.rpartition(".")[2]) // 32)
    if name.startswith("fma."):
        return product_and_sum(name, int(re.sub(r"\D", "", name[4:-3]) or 0))
    if name in ACCESSES:
        return rows(f"spelled.{name}", *ACCESSES[name])
    if name == "tdpbf16ps.internal":
        return product("bf16ps", FLOAT_TERMS)
    signs = re.fullmatch(r"tdpb([su])([su])d\.internal", name)
    assert signs is not None, f"no meaning is known of {name}"
    return product(f"b{signs[1]}{signs[2]}d", byte_terms(*signs.groups()))


# TILEZERO, TILELOADD and TILESTORED: rows of 64 bytes, in memory `stride` bytes apart.
AT = "  %far = mul i64 %stride, %row\n  %place = getelementptr i8, ptr %at, i64 %far\n"
ACCESSES = {
    "tilezero.internal": ("ptr", f"{SHAPE}, ptr %tile", f"  store {ROW} zeroinitializer, ptr %own"),
    "tileloadd64.internal": ("ptr", f"{SHAPE}, ptr %at, i64 %stride, ptr %tile",
        f"{AT}  %line = load {ROW}, ptr %place, align 1\n  store {ROW} %line, ptr %own"),
    "tilestored64.internal": ("void", f"{SHAPE}, ptr %at, i64 %stride, ptr %tile",
        f"{AT}  %line = load {ROW}, ptr %own\n  store {ROW} %line, ptr %place, align 1"),
}  # fmt: skip


def rows(name: str, result: str, operands: str, body: str) -> str:
    """A function that does something with each row of a tile: `%row`, at `%own`."""
    return f"""
define internal {result} @{name}({operands}) noinline {{
entry:
  br label %rows
rows:
  %row = phi i64 [ 0, %entry ], [ %next, %rows ]
  %begin = mul i64 %row, 64
  %own = getelementptr i8, ptr %tile, i64 %begin
{body}
  %next = add i64 %row, 1
  %more = icmp slt i64 %next, 16
  br i1 %more, label %rows, label %end
end:
  ret {"void" if result == "void" else "ptr %tile"}
}}"""


def product(name: str, terms: str) -> str:
    """TDP…: the rows of c plus the words of a times the rows of b. `terms` makes, of a word `%x` in
    all lanes, a row `%y` and two sums so far, the next `%even` and `%odd`."""
    head = f"ptr @spelled.tdp{name}.internal({SHAPE}, i16 %k, ptr %c, ptr %a, ptr %b, ptr %tile)"
    return f"""
define internal {head} noinline {{
entry:
  br label %rows
rows:
  %row = phi i64 [ 0, %entry ], [ %row.next, %done ]
  %line = mul i64 %row, 16
  br label %words
words:
  %word = phi i64 [ 0, %rows ], [ %word.next, %words ]
  %e = phi {ROW} [ zeroinitializer, %rows ], [ %even, %words ]
  %o = phi {ROW} [ zeroinitializer, %rows ], [ %odd, %words ]
  %at = add i64 %line, %word
  %pw = getelementptr i32, ptr %a, i64 %at
  %w = load i32, ptr %pw
  %w.one = insertelement {ROW} poison, i32 %w, i64 0
  %x = shufflevector {ROW} %w.one, {ROW} poison, {ROW} zeroinitializer
  %from = mul i64 %word, 16
  %py = getelementptr i32, ptr %b, i64 %from
  %y = load {ROW}, ptr %py
{terms}
  %word.next = add i64 %word, 1
  %more = icmp slt i64 %word.next, 16
  br i1 %more, label %words, label %done
done:
  %pt = getelementptr i32, ptr %c, i64 %line
  %t = load {ROW}, ptr %pt
  {_total(name)}
  %pm = getelementptr i32, ptr %tile, i64 %line
  store {ROW} %total, ptr %pm
  %row.next = add i64 %row, 1
  %again = icmp slt i64 %row.next, 16
  br i1 %again, label %rows, label %end
end:
  ret ptr %tile
}}"""


def _total(name: str) -> str:
    if name != "bf16ps":
        return f"%both = add {ROW} %even, %odd\n  %total = add {ROW} %both, %t"
    v = "<16 x float>"
    return "\n  ".join([
        f"%e.f = bitcast {ROW} %even to {v}", f"%o.f = bitcast {ROW} %odd to {v}",
        f"%s.f = fadd {v} %e.f, %o.f", f"%s = call {v} @flushed16({v} %s.f)",
        f"%t.f = bitcast {ROW} %t to {v}", f"%t.z = call {v} @flushed16({v} %t.f)",
        f"%u.f = fadd {v} %s, %t.z", f"%u = call {v} @flushed16({v} %u.f)",
        f"%total = bitcast {v} %u to {ROW}",
    ])  # fmt: skip


def flushed(n: int) -> str:
    """Numbers below the least normal one are zeros."""
    v, w = f"<{n} x float>", f"<{n} x i32>"
    return f"""
define internal {v} @flushed{n}({v} %a) {{
  %w = bitcast {v} %a to {w}
  %e = and {w} %w, splat (i32 2139095040)
  %z = icmp eq {w} %e, zeroinitializer
  %s = and {w} %w, splat (i32 -2147483648)
  %r = select <{n} x i1> %z, {w} %s, {w} %w
  %f = bitcast {w} %r to {v}
  ret {v} %f
}}"""


def fused(n: int, has_fma: bool) -> str:
    """A product and a sum of n floats that rounds once; by doubles, almost always once."""
    v, d = f"<{n} x float>", f"<{n} x double>"
    head = f"define internal {v} @fused{n}({v} %a, {v} %b, {v} %c) {{"
    if not has_fma:
        return f"{head}\n{_by_doubles(v, d)}\n}}"
    name = f"@llvm.fma.v{n}f32"
    call = f"  %r = call {v} {name}({v} %a, {v} %b, {v} %c)\n  ret {v} %r"
    return f"{head}\n{call}\n}}"


def _half(name: str, word: str, high: bool, n: int = 16) -> str:
    v, w = f"<{n} x float>", f"<{n} x i32>"
    bits = f"and {w} {word}, splat (i32 -65536)" if high else f"shl {w} {word}, splat (i32 16)"
    return f"""  %{name}.b = {bits}
  %{name}.f = bitcast {w} %{name}.b to {v}
  %{name} = call {v} @flushed{n}({v} %{name}.f)"""


def _added(made: str, total: str, a: str, b: str, n: int = 16) -> str:
    v = f"<{n} x float>"
    return f"""  %{made}.s = call {v} @fused{n}({v} %{a}, {v} %{b}, {v} {total})
  %{made} = call {v} @flushed{n}({v} %{made}.s)"""


FLOAT_TERMS = "\n".join([
    _half("xl", "%x", False), _half("yl", "%y", False),
    _half("xh", "%x", True), _half("yh", "%y", True),
    f"  %e.in = bitcast {ROW} %e to <16 x float>", f"  %o.in = bitcast {ROW} %o to <16 x float>",
    _added("e.out", "%e.in", "xl", "yl"), _added("o.out", "%o.in", "xh", "yh"),
    f"  %even = bitcast <16 x float> %e.out to {ROW}",
    f"  %odd = bitcast <16 x float> %o.out to {ROW}",
])  # fmt: skip


def byte_terms(first: str, second: str, n: int = 16, total: str = "%e", made: str = "even") -> str:
    """The sum so far and the products of the four bytes of `%x` and `%y`."""
    w, lines = f"<{n} x i32>", []
    for i in range(4):
        for name, sign in (("x", first), ("y", second)):
            shift = "ashr" if sign == "s" else "lshr"
            lines += [
                f"  %{name}{i}.up = shl {w} %{name}, splat (i32 {24 - 8 * i})",
                f"  %{name}{i} = {shift} {w} %{name}{i}.up, splat (i32 24)",
            ]
        out = made if i == 3 else f"sum{i}"
        lines += [f"  %p{i} = mul {w} %x{i}, %y{i}", f"  %{out} = add {w} {total}, %p{i}"]
        total = f"%sum{i}"
    rest = [f"  %odd = or {w} %o, zeroinitializer"] if made == "even" else []
    return "\n".join([*lines, *rest])


def pairs(name: str, n: int) -> str:
    """VDPBF16PS on n words."""
    v, w, p = f"<{n} x float>", f"<{n} x i32>", f"<{2 * n} x i16>"
    lines = [
        f"  %x = bitcast {p} %a to {w}", f"  %y = bitcast {p} %b to {w}",
        *[_half(f"{s}{'h' if high else 'l'}", f"%{s}", high, n) for s in "xy" for high in (0, 1)],
        f"  %c.z = call {v} @flushed{n}({v} %c)",
        _added("one", "%c.z", "xh", "yh", n), _added("two", "%one", "xl", "yl", n),
    ]  # fmt: skip
    body = "\n".join(lines)
    head = f"define internal {v} @spelled.{name}({v} %c, {p} %a, {p} %b)"
    return f"{head} {{\n{body}\n  ret {v} %two\n}}"


def product_and_sum(name: str, n: int) -> str:
    """A product and a sum of n floats, by doubles."""
    v, d = (f"<{n} x float>", f"<{n} x double>") if n else ("float", "double")
    return f"""
define internal {v} @spelled.{name}({v} %a, {v} %b, {v} %c) {{
{_by_doubles(v, d)}
}}"""


def _by_doubles(v: str, d: str) -> str:
    wide = "\n".join([f"  %{s}.d = fpext {v} %{s} to {d}" for s in "abc"])
    return f"""{wide}
  %p = fmul {d} %a.d, %b.d
  %s = fadd {d} %p, %c.d
  %r = fptrunc {d} %s to {v}
  ret {v} %r"""


def bytes_of_words(name: str, n: int) -> str:
    """VPDPBUSD on n words."""
    w, body = f"<{n} x i32>", byte_terms("u", "s", n, "%c", "made")
    head = f"define internal {w} @spelled.{name}({w} %c, {w} %x, {w} %y)"
    return f"{head} {{\n{body}\n  ret {w} %made\n}}"
