"""Macros, types and small functions before the text of a kernel, each where the kernel uses it.

    typedef double f64x4 __attribute__((vector_size(32)));

Vectors are those of gcc and clang, on which operators of C work. What has none is a function in the
text: an instruction of the machine where the compiler's flags allow it, else the same on each lane.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from uopc.backends.c.names import inside
from uopc.backends.c.texts import NEON_SQRT, SQRT, TABLE
from uopc.backends.c.types import c_type, computed, held, literal, mask_of, memory_type
from uopc.ir.core import dtypes, intervals
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops

_WIDTH = 100
_HEAD = """\
#if !defined(__GNUC__) || !defined(__has_builtin)
#error "this file has vectors, for gcc (12 or later) and clang: export with vectors=False"
#endif
#if defined(__FMA__) || defined(__aarch64__)
#define UOPC_FUSES
#endif
#pragma GCC diagnostic ignored "-Wpsabi"
#define UOPC_LOAD(type, place) ((type)*(const type##_at *)&(place))
#define UOPC_PLACE(type, place) (*(type##_at *)&(place))
#define UOPC_INLINE static inline __attribute__((always_inline, unused))"""
# By bits of a vector and of a lane: what x86 calls instructions on such vectors in their names.
_WIDE = {128: "", 256: "256", 512: "512"}
_LETTER = {32: "s", 64: "d"}
# Needed by an instruction on so many bits.
_FMA = {128: "__FMA__", 256: "__FMA__", 512: "__AVX512F__"}
_AVX = {128: "__SSE4_1__", 256: "__AVX__", 512: "__AVX512F__"}
# Those whose mask of eight lanes has a sign in gcc.
_SIGNED = ("__builtin_ia32_sqrtpd512_mask", "__builtin_ia32_rndscalepd_mask")
_NEAREST, _DOWN, _UP, _ZERO = 8, 9, 10, 11  # roundings, without exceptions
_ROUNDINGS = {"rint": _NEAREST, "floor": _DOWN, "ceil": _UP, "trunc": _ZERO}
_SCALE = """\
static __attribute__((unused)) {t} uopc_scale_{s}({t} x, {t} n)
{{
    double y = (double)x;
    double left = (double)n;
    if (!(left <= 4200.0 && left >= -4200.0)) {{
        left = left > 0.0 ? 4200.0 : -4200.0;
    }}
    while (left > 1023.0) {{
        y *= 8.98846567431158e+307;
        left -= 1023.0;
    }}
    while (left < -1022.0) {{
        y *= 2.004168360008973e-292;
        left += 969.0;
    }}
    union {{ uint64_t bits; double number; }} power;
    power.bits = (uint64_t)((int64_t)left + 1023) << 52;
    return n == n ? ({t})(y * power.number) : n;
}}"""


class Prelude:
    """The declarations that some kernels need, in the order of first need. `perhaps`: by item,
    declarations of functions that stay unused under some compiler flags."""

    def __init__(self) -> None:
        self.items: dict[str, str] = {}
        self.perhaps: dict[str, str] = {}

    def text(self) -> str:
        """All of them: clang reads attributes of a function before its definition alone."""
        parts = [part for name, item in self.items.items()
                 for part in (self.perhaps.get(name), item) if part]  # fmt: skip
        return "\n\n".join(parts)

    def known(self, name: str) -> str:
        """The name of a macro of the table."""
        self.items.setdefault(name, TABLE[name])
        return f"UOPC_{name}"

    def vector(self, t: DType) -> str:
        """The name of the type of a value of several lanes: no bools, whose type is `mask_of`."""
        n, size = held(t), t.scalar.itemsize
        element = c_type(t.scalar)
        kind = "f" if element in ("float", "double") else "u" if element[0] == "u" else "i"
        name = f"{kind}{8 * size}x{n}"
        self.items.setdefault("vectors", _HEAD)
        self.items.setdefault(name, (
            f"typedef {element} {name} __attribute__((vector_size({n * size})));\n"
            f"typedef {element} {name}_at\n"
            f"    __attribute__((vector_size({n * size}), aligned({size}), may_alias));"
        ))  # fmt: skip
        return name

    def type(self, t: DType) -> str:
        """The type in C of a value: a number, or several lanes."""
        return c_type(t) if t.lanes == 1 else self.vector(t)

    def constant(self, t: DType, value: object) -> str:
        """A constant, or a constant vector of numbers."""
        if t.lanes == 1:
            text = literal(t, value)
            for name in ("INF", "NAN"):
                if f"UOPC_{name}" in text:
                    self.known(name)
            return text
        shape, n = self.vector(t), held(t)
        if not isinstance(value, tuple) or len(set(map(str, value))) == 1:
            one = self.constant(t.scalar, value[0] if isinstance(value, tuple) else value)
            one = one[1:-1] if one.startswith("(-") else one
            if one in ("0", "0.0", "0.0f", "0u", "UINT64_C(0)"):
                return f"({shape}){{{one}}}"
            return f"{self.repeated(t)}({one})"
        items = [self.constant(t.scalar, v) for v in value]
        return f"({shape}){{{', '.join(items + items[-1:] * (n - len(items)))}}}"

    def truths(self, t: DType, value: object) -> str:
        """A constant mask of a type."""
        values = value if isinstance(value, tuple) else (value,) * t.lanes
        if not any(values):
            return f"({self.vector(t)}){{0}}"
        return f"({self.vector(t)}){{{', '.join(['-1' if v else '0' for v in values])}}}"

    # -------------------------------------------------------- functions
    def _function(self, name: str, result: str, parameters: str, body: Callable[[], str]) -> str:
        """The name of a function, whose text is made when it is first needed."""
        if name not in self.items:
            lines = [f"UOPC_INLINE {result} {name}({parameters})", "{", *body().splitlines(), "}"]
            self.items[name] = "\n".join([_wrapped(line) for line in lines])
        return name

    def repeated(self, t: DType) -> str:
        """The name of a function that gives a vector of one number."""
        shape, n = self.vector(t), held(t)
        return self._function(
            f"uopc_all_{shape}", shape, f"{c_type(t.scalar)} x",
            lambda: f"    return ({shape}){{{', '.join(['x'] * n)}}};",
        )  # fmt: skip

    def wide(self, t: DType, text: str) -> str:
        """A value in the type that C computes its type in."""
        return text if computed(t) is t else f"{self._changed(t, computed(t), 'wide')}({text})"

    def half(self, t: DType, text: str) -> str:
        """A value of a type from one in the type that C computes that in."""
        return text if computed(t) is t else f"{self._changed(computed(t), t, 'half')}({text})"

    def _changed(self, source: DType, target: DType, word: str) -> str:
        """The name of a function that is `uopc_{word}`, from or to float16, or that on each lane.
        More than eight lanes are two halves; x86 has instructions for eight and for four."""
        n, s, t, one = source.lanes, self.type(source), self.type(target), f"uopc_{word}"
        self.known(word.upper())
        if n == 1:
            return one
        types = c_type(target.scalar), c_type(source.scalar)
        self.perhaps[word.upper()] = f"static {types[0]} {one}({types[1]}) __attribute__((unused));"
        ways: list[tuple[str, str]] = []
        if n > 8 and n == held(source):
            half, made = (x.scalar.vec(n // 2) for x in (source, target))
            part = self._changed(half, made, word)
            low, high = [
                f"{part}({shuffled(self, source, half, 'x', 'x', range(i, i + n // 2))})"
                for i in (0, n // 2)
            ]
            plain = shuffled(self, made, target, low, high, range(n))
        else:
            lanes = [f"{one}(x[{i}])" for i in range(n)] + ["0"] * (held(source) - n)
            plain = f"({t}){{{', '.join(lanes)}}}"
        if n in (4, 8):
            size = "256" if n == 8 else ""
            if word == "wide":
                name, eight = f"__builtin_ia32_vcvtph2ps{size}", self.vector(dtypes.int16.vec(8))
                given = "x" if n == 8 else "__builtin_shufflevector(x, x, 0, 1, 2, 3, 0, 1, 2, 3)"
                call = f"{name}(({eight}){given})"
            else:
                name = f"__builtin_ia32_vcvtps2ph{size}"
                call = f"{name}(x, 0)"
                if n == 4:
                    call = f"__builtin_shufflevector({call}, {call}, 0, 1, 2, 3)"
            ways.append((f"defined(__F16C__) && __has_builtin({name})", call))
        return self._function(f"{one}_{t}_{n}", t, f"{s} x", lambda: _chosen(t, ways, plain))

    def compared(self, t: DType, a: str, sign: str, b: str) -> str:
        """The mask, as wide as a type, of where a comparison holds."""
        wide, mask = computed(t), self.vector(mask_of(t))
        if wide is t:
            return f"({mask})({inside(a)} {sign} {inside(b)})"
        test = f"{self.wide(t, a)} {sign} {self.wide(t, b)}"
        return f"__builtin_convertvector(({self.vector(mask_of(wide))})({test}), {mask})"

    def select(self, t: DType) -> str:
        """The name of a function: lanes of `a` where a mask holds, else of `b`."""
        shape, mask = self.vector(t), self.vector(mask_of(t))
        found = _instruction(t, "__builtin_ia32_blendvp{letter}{wide}", _AVX, (128, 256))
        lines = []
        if found is not None and shape[0] == "f":
            test, name = found
            lines = [f"#if !defined(__clang__) && !defined(__AVX512VL__) && {test}",
                     f"    return {name}(b, a, ({shape})mask);", "#else"]  # fmt: skip
        lines.append(f"    return ({shape})((mask & ({mask})a) | (~mask & ({mask})b));")
        lines += ["#endif"] * (len(lines) > 1)
        return self._function(
            f"uopc_select_{shape}", shape, f"{mask} mask, {shape} a, {shape} b",
            lambda: "\n".join(lines),
        )  # fmt: skip

    def fused(self, t: DType) -> str:
        """The name of a function: a*b + c of floats, rounded once."""
        name = "FMA" if t.scalar.bits == 64 else "FMAF"
        if t.lanes == 1:
            return self.known(name)
        shape, one = self.vector(t), self.known(name)
        fused = "__builtin_elementwise_fma"
        ways = [(f"__has_builtin({fused}) && defined(UOPC_FUSES)", f"{fused}(a, b, c)")]
        ways += _ways(t, "__builtin_ia32_vfmaddp{letter}{wide}", _FMA, "(a, b, c)", (128, 256))
        masked = "__builtin_ia32_vfmaddp{letter}{wide}_mask"
        ways += _ways(t, masked, _FMA, "(a, b, c, {all}, 4)", (512,))
        bits = held(t) * t.scalar.bits
        if bits == 128:
            name = f"__builtin_aarch64_fmav{held(t)}{_LETTER[t.scalar.bits]}f"
            ways.append((f"__has_builtin({name})", f"{name}(a, b, c)"))
        return self._lanes(f"uopc_fma_{shape}", t, "abc", one, ways)

    def math(self, name: str, t: DType, count: int = 1) -> str:
        """The name of a function of `count` operands that IEEE 754 defines (floor, sqrt and
        others), or of the function for each lane."""
        if t.lanes == 1:
            return self._macro(name if t is dtypes.float64 else f"{name}f", count)
        shape, one = self.vector(t), self.math(name, t.scalar, count)
        ways: list[tuple[str, str]] = []
        if name in _ROUNDINGS:
            way = f"(x, {_ROUNDINGS[name]})"
            ways += _ways(t, "__builtin_ia32_roundp{letter}{wide}", _AVX, way, (128, 256))
            way = f"(x, {_ROUNDINGS[name]}, x, {{all}}, 4)"
            ways += _ways(t, "__builtin_ia32_rndscalep{letter}_mask", _AVX, way, (512,))
        elif name == "sqrt":
            ways += _ways(t, "__builtin_ia32_sqrtp{letter}{wide}", _AVX, "(x)", (128, 256))
            masked = "__builtin_ia32_sqrtp{letter}{wide}_mask"
            ways += _ways(t, masked, _AVX, "(x, x, {all}, 4)", (512,))
        return self._lanes(f"uopc_{name}_{shape}", t, "xyz"[:count], one, ways)

    def _macro(self, name: str, count: int) -> str:
        """The name of a macro for a function that C has: a machine instruction if the machine has
        one."""
        macro = f"UOPC_{name.upper()}"
        if name in SQRT:
            self.items.setdefault(name, (
                f"#if defined(__SSE2__)\n#include <emmintrin.h>\n#define {macro}(x) {SQRT[name]}\n"
                f"#elif defined(__aarch64__)\n#include <arm_neon.h>\n"
                f"#define {macro}(x) {NEON_SQRT[name]}\n#else\n#include <math.h>\n"
                f"#define {macro}(x) {name}(x)\n#endif"
            ))  # fmt: skip
            return macro
        given = ", ".join("xyz"[:count])
        self.items.setdefault(name, (
            f"#if defined(__GNUC__)\n#define {macro}({given}) __builtin_{name}({given})\n#else\n"
            f"#include <math.h>\n#define {macro}({given}) {name}({given})\n#endif"
        ))  # fmt: skip
        return macro

    def scaled(self, t: DType) -> str:
        """The name of a function: x times 2 to the n, rounded once."""
        shape = self.vector(t)
        short = t.scalar.short
        self.items.setdefault(f"scale_{short}", _SCALE.format(t=c_type(t.scalar), s=short))
        name = "__builtin_ia32_scalefp{letter}{wide}_mask"
        narrow = dict.fromkeys(_WIDE, "__AVX512VL__")
        ways = _ways(t, name, narrow, "(x, n, x, {all})", (128, 256))
        ways += _ways(t, name, _AVX, "(x, n, x, {all}, 4)", (512,))
        return self._lanes(f"uopc_scale_{shape}", t, "xn", f"uopc_scale_{short}", ways)

    def looked_up(self, table: DType, index: DType) -> str:
        """The name of a function: for each lane of an index the lane of a table that it numbers."""
        made = table.scalar.vec(index.lanes)
        shape, of_table, of_index = map(self.vector, (made, table, index))
        ways: list[tuple[str, str]] = []
        if table is made and index.bits == 32:
            given = f"x, ({self.vector(dtypes.int32.vec(index.lanes))})n"
            name = "__builtin_ia32_permvar{letter}f512"
            ways += _ways(table, name, _AVX, f"({given})", (512,))
            ways += _ways(table, f"{name}_mask", _AVX, f"({given}, x, {{all}})", (512,))
        lanes = [f"x[n[{i}] & {table.lanes - 1}]" for i in range(index.lanes)]
        plain = f"({shape}){{{', '.join(lanes + ['0'] * (held(index) - index.lanes))}}}"
        return self._function(
            f"uopc_lookup_{of_table}_{of_index}{_part(index)}", shape,
            f"{of_table} x, {of_index} n",
            lambda: _chosen(shape, ways, plain),
        )  # fmt: skip

    def extreme(self, t: DType, sign: str, checked: bool) -> str:
        """The name of a function: `a > b ? a : b` on each lane, or with `<`. `checked`: NaN where
        the first one is."""
        shape, word = self.vector(t), "max" if sign == ">" else "min"
        chosen = self.select(t)
        if checked:
            plain = self.extreme(t, sign, checked=False)
            test = self.compared(t, "a", "!=", "a")
            body = f"    return {chosen}({test}, a, {plain}(a, b));"
            name = f"uopc_{word}imum_{shape}{_part(t)}"
            return self._function(name, shape, f"{shape} a, {shape} b", lambda: body)
        ways = []
        if t.scalar.is_float and t is computed(t):
            name = f"__builtin_ia32_{word}p{{letter}}{{wide}}"
            ways += _ways(t, name, _AVX, "(a, b)", (128, 256))
            ways += _ways(t, f"{name}_mask", _AVX, "(a, b, a, {all}, 4)", (512,))
        plain = f"{chosen}({self.compared(t, 'a', sign, 'b')}, a, b)"
        return self._function(
            f"uopc_{word}_{shape}{_part(t)}", shape, f"{shape} a, {shape} b",
            lambda: _chosen(shape, [(f"!defined(__clang__) && {t}", c) for t, c in ways], plain),
        )  # fmt: skip

    def masked(self, t: DType, is_store: bool) -> str:
        """The name of a function that reads or writes the lanes of a vector that a mask has. No
        pointer to the first lane is made of the storage, because that lane may be outside of it."""
        shape, mask = self.vector(t), self.vector(mask_of(t))
        element, count = memory_type(t.scalar), t.lanes
        bits, name = t.scalar.bits, f"uopc_{'store' if is_store else 'load'}_{shape}_{t.lanes}"
        lines: list[str] = []
        if bits in _LETTER and count == held(t) and count * bits in (128, 256):
            real = self.vector((dtypes.float32 if bits == 32 else dtypes.float64).vec(count))
            whole = "int" if bits == 32 else "long long"
            word, const = ("store", "") if is_store else ("load", "const ")
            call = f"__builtin_ia32_mask{word}p{_LETTER[bits]}{_WIDE[count * bits]}"
            lanes = f"__attribute__((vector_size({count * bits // 8})))"
            lines = [f"#if defined(__AVX__) && __has_builtin({call})",
                     f"    typedef {whole} lanes {lanes};",
                     f"    {const}{real} *at = ({const}{real} *)((uintptr_t)base"
                     f" + (uintptr_t)first * {bits // 8}u);"]  # fmt: skip
            if is_store:
                lines.append(f"    {call}(at, (lanes)mask, ({real})x);")
            else:
                lines.append(f"    return ({shape}){call}(at, (lanes)mask);")
            lines.append("#else")
        if is_store:
            for i in range(count):
                lines += [f"    if (mask[{i}]) {{", f"        base[first + {i}] = x[{i}];", "    }"]
        else:
            lines.append(f"    {shape} x = {{0}};")
            for i in range(count):
                lines += [f"    if (mask[{i}]) {{", f"        x[{i}] = base[first + {i}];", "    }"]
            lines.append("    return x;")
        lines += ["#endif"] if lines[0].startswith("#if") else []
        given = f"{'' if is_store else 'const '}{element} *base, int64_t first, {mask} mask"
        given += f", {shape} x" if is_store else ""
        return self._function(name, "void" if is_store else shape, given, lambda: "\n".join(lines))

    def part(self, t: DType, is_store: bool) -> str:
        """The name of a function that reads or writes a number of lanes that no vector has."""
        shape, element, n = self.vector(t), memory_type(t.scalar), t.lanes
        if is_store:
            body = "\n".join([f"    at[{i}] = x[{i}];" for i in range(n)])
            given = f"{element} *at, {shape} x"
            return self._function(f"uopc_put_{shape}_{n}", "void", given, lambda: body)
        body = f"    return ({shape}){{{', '.join([f'at[{i}]' for i in range(n)])}}};"
        given = f"const {element} *at"
        return self._function(f"uopc_get_{shape}_{n}", shape, given, lambda: body)

    def holds(self, t: DType, every: bool) -> str:
        """The name of a function: whether a mask, a vector of a signed type, holds in any lane, or
        in every one."""
        mask, n, bits = self.vector(t), t.lanes, t.scalar.bits
        if every:
            any_of = self.holds(t, every=False)
            body = f"    return !{any_of}(({mask})(x == 0));"
            return self._function(f"uopc_every_{mask}_{n}", "bool", f"{mask} x", lambda: body)
        plain, ways = " || ".join([f"x[{i}] != 0" for i in range(n)]), []
        if n == held(t) and n * bits >= 128:
            parts = self.vector(dtypes.uint64.vec(n * bits // 64))
            one = " | ".join([f"(({parts})x)[{i}]" for i in range(n * bits // 64)])
            plain = f"({one}) != 0"
        if bits in _LETTER:
            real = self.vector((dtypes.float32 if bits == 32 else dtypes.float64).vec(n))
            call = f"(({real})x) != 0"
            ways = _ways(t, "__builtin_ia32_movmskp{letter}{wide}", _AVX, call, (128, 256))
        return self._function(
            f"uopc_any_{mask}_{n}", "bool", f"{mask} x", lambda: _chosen("", ways, plain)
        )

    def to_integer(self, source: DType, target: DType) -> str:
        """The name of a function that cuts floats off to integers: it saturates, NaN gives 0."""
        if source.lanes == 1:
            return self._one_to_integer(source, target)
        s, whole = self.vector(source), dtypes.int64 if target.kind == "index" else target.scalar
        t, chosen = self.vector(whole.vec(target.lanes)), self.select(source)
        mask = self.vector(mask_of(source))
        low, high = intervals.of_type(whole)
        lost = max(0, high.bit_length() - source.scalar.whole_bits)
        greatest = high >> lost << lost
        above = float(high + (greatest < high))
        bounds = [self.constant(source.scalar, v) for v in (float(low), above, float(greatest))]

        def body() -> str:
            every = self.repeated(source)
            lines = [
                f"    const {mask} over = ({mask})(x >= {bounds[1]});",
                f"    const {mask} under = ({mask})(x < {bounds[0]});",
                f"    {s} y = {chosen}(under, {every}({bounds[0]}), x);",
                f"    y = {chosen}(over, {every}({bounds[2]}), y);",
                f"    y = {chosen}(({mask})(x == x), y, ({s}){{0}});",
            ]
            if whole.bits < 32:
                wide = self.vector(dtypes.int32.vec(target.lanes))
                made = f"__builtin_convertvector(y, {wide})"
                return "\n".join([*lines, f"    return __builtin_convertvector({made}, {t});"])
            made = f"__builtin_convertvector(y, {t})"
            if greatest == high:
                return "\n".join([*lines, f"    return {made};"])
            result = self.select(whole.vec(target.lanes))
            beyond = f"__builtin_convertvector(over, {self.vector(mask_of(target))})"
            most = f"{self.repeated(whole.vec(target.lanes))}({literal(whole, high)})"
            return "\n".join([*lines, f"    return {result}({beyond}, {most}, {made});"])

        return self._function(f"uopc_{t}_from_{s}", t, f"{s} x", body)

    def _one_to_integer(self, source: DType, target: DType) -> str:
        """The name of a function that cuts a float off to an integer: it saturates, NaN gives 0."""
        name = f"uopc_{target.short}_from_{source.short}"
        if name not in self.items:
            whole = dtypes.int64 if target.kind == "index" else target
            low, high = intervals.of_type(whole)
            limits = [self.constant(source, float(v)) for v in (low, high + 1)]
            results = [self.constant(whole, v) for v in (low, high)]
            s, t = c_type(source), c_type(target)
            zero = literal(whole, 0)
            self.items[name] = "\n".join([
                f"static {t} {name}({s} x)", "{", f"    if (x >= {limits[1]}) {{",
                f"        return {results[1]};", "    }", f"    if (x <= {limits[0]}) {{",
                f"        return {results[0]};", "    }",
                f"    return x == x ? ({t})x : {zero};", "}",
            ])  # fmt: skip
        return name

    def bits(self, source: DType, target: DType) -> str:
        """The name of a function that takes the bits of a value for another type."""
        name = f"uopc_{target.short}_of_{source.short}"
        s, t = c_type(source), c_type(target)
        self.items.setdefault(name, (
            f"static {t} {name}({s} x)\n{{\n    union {{ {s} from; {t} to; }} both;\n"
            "    both.from = x;\n    return both.to;\n}"
        ))  # fmt: skip
        return name

    def combined(self, word: str, t: DType, combine: Callable[[str, str, DType], str]) -> str:
        """The name of a function that adds up the lanes of a vector, or combines them otherwise:
        its halves while they are even, then one lane after the other."""
        shape, n = self.vector(t), t.lanes

        def body() -> str:
            lines, now, name, count = [], t, "x", 0
            while now.lanes > 2 and now.lanes % 2 == 0:
                half = now.scalar.vec(now.lanes // 2)
                count += 1
                parts = []
                for letter, first in (("a", 0), ("b", half.lanes)):
                    parts.append(f"{letter}{count}")
                    given = shuffled(self, now, half, name, name, range(first, first + half.lanes))
                    lines.append(f"    const {self.vector(half)} {parts[-1]} = {given};")
                name, now = f"x{count}", half
                made = combine(parts[0], parts[1], half)
                lines.append(f"    const {self.vector(half)} {name} = {made};")
            total = f"{name}[0]"
            for i in range(1, now.lanes):
                count += 1
                made = combine(total, f"{name}[{i}]", t.scalar)
                lines.append(f"    const {c_type(t.scalar)} s{count} = {made};")
                total = f"s{count}"
            return "\n".join([*lines, f"    return {total};"])

        name = f"uopc_{word}_of_{shape}_{n}"
        return self._function(name, c_type(t.scalar), f"{shape} x", body)

    def divided(self, op: Op, t: DType) -> str:
        """The name of a function: quotients or remainders of the lanes that there are."""
        shape, sign = self.vector(t), "/" if op is Ops.CDIV else "%"
        lanes = ", ".join([f"a[{i}] {sign} b[{i}]" for i in range(t.lanes)])
        if t.scalar.bits < 32:
            element = c_type(t.scalar)
            lanes = ", ".join([f"({element})(a[{i}] {sign} b[{i}])" for i in range(t.lanes)])
        return self._function(
            f"uopc_{op.name}_{shape}_{t.lanes}", shape, f"{shape} a, {shape} b",
            lambda: f"    return ({shape}){{{lanes}}};",
        )  # fmt: skip

    def dot4(self, t: DType) -> str:
        """The name of a function that is DOT4, or DOT4 on each lane."""
        if t.lanes == 1:
            return self.known("DOT4")
        return self._lanes(f"uopc_dot4_{self.vector(t)}", t, "xyz", self.known("DOT4"), ())

    def fused_halves(self, t: DType) -> str:
        """The name of a function: a*b + c of float16, rounded once."""
        for name in ("WIDE", "HALF", "FMAH"):
            self.known(name)
        return "uopc_fmah" if t.lanes == 1 else self._on_each_lane("uopc_fmah", t, 3)

    def library(self, name: str, t: DType, count: int = 1) -> str:
        """The name of a function of the C library, or of the function for each lane, with `count`
        operands."""
        self.items.setdefault("library", "#include <math.h>")
        one = name if t.scalar is dtypes.float64 else f"{name}f"
        return one if t.lanes == 1 else self._on_each_lane(one, t, count)

    def _on_each_lane(self, name: str, t: DType, count: int) -> str:
        """The name of a function that calls one of the C library on each lane."""
        return self._lanes(f"uopc_{name}_{self.vector(t)}", t, "xyz"[:count], name, ())

    def _lanes(
        self, name: str, t: DType, given: str, one: str, ways: Sequence[tuple[str, str]]
    ) -> str:
        """A function that is `one` on each lane."""
        shape = self.vector(t)
        calls = [f"{one}({', '.join([f'{v}[{i}]' for v in given])})" for i in range(t.lanes)]
        calls += ["0"] * (held(t) - t.lanes)
        plain = f"({shape}){{{', '.join(calls)}}}"
        parameters = ", ".join([f"{shape} {v}" for v in given])
        return self._function(
            name + _part(t), shape, parameters, lambda: _chosen(shape, ways, plain)
        )


def shuffled(
    prelude: Prelude, source: DType, made: DType, a: str, b: str, order: Sequence[int]
) -> str:
    """The lanes of two vectors that `order` lists."""
    shape = prelude.vector(made)
    whole = held(source) == source.lanes and held(made) == made.lanes
    if whole:
        return f"__builtin_shufflevector({a}, {b}, {', '.join(map(str, order))})"
    n = source.lanes
    return f"({shape}){{{', '.join([f'{a}[{i}]' if i < n else f'{b}[{i - n}]' for i in order])}}}"


def _part(t: DType) -> str:
    """The end of the name of a function that computes fewer lanes than its vectors have: the same
    vectors may have another number of lanes elsewhere."""
    return "" if t.lanes == held(t) else f"_{t.lanes}"


def _wrapped(line: str) -> str:
    """A line, or several; those of a directive end with a backslash."""
    if len(line) <= _WIDTH:
        return line
    deeper = " " * (len(line) - len(line.lstrip()) + 4)
    lines = textwrap.wrap(line, _WIDTH - 2, subsequent_indent=deeper, break_long_words=False,
                          break_on_hyphens=False)  # fmt: skip
    return (" \\\n" if line.startswith("#") else "\n").join(lines)


def _instruction(
    t: DType, name: str, flags: dict[int, str], sizes: Sequence[int]
) -> tuple[str, str] | None:
    """The test of a compiler, and its name for an instruction of x86 on vectors of a type."""
    size = t.lanes * t.scalar.bits
    if t.lanes != held(t) or size not in sizes or t.scalar.bits not in _LETTER:
        return None
    made = name.format(letter=_LETTER[t.scalar.bits], wide=_WIDE[size])
    return f"defined({flags[size]}) && __has_builtin({made})", made


def _ways(
    t: DType, name: str, flags: dict[int, str], given: str, sizes: Sequence[int]
) -> list[tuple[str, str]]:
    """A way to compute a function by an instruction: the test, and the call."""
    found = _instruction(t, name, flags, sizes)
    if found is None:
        return []
    test, call = found
    every = (1 << max(8, t.lanes)) - 1  # a mask of all lanes
    masks = {test: every}
    if t.lanes == 16 or call in _SIGNED:
        masks = {f"defined(__clang__) && {test}": every, test: -1}
    return [(one, call + given.replace("{all}", str(mask))) for one, mask in masks.items()]


def _chosen(shape: str, ways: Sequence[tuple[str, str]], plain: str) -> str:
    """The body of a function: the first way that the compiler has."""
    lines: list[str] = []
    for test, call in ways:
        lines.append(f"{'#elif' if lines else '#if'} {test}")
        lines.append(f"    return {f'({shape})' if shape else ''}{call};")
    if not lines:
        return f"    return {plain};"
    return "\n".join([*lines, "#else", f"    return {plain};", "#endif"])
