"""One function for several levels of x86-64: it asks the processor, and has no state.

    int f(...)             calls the version for the highest level that the processor has
    f_function f_best()    gives that version, for callers that ask once

A processor without any of the levels gets -1, and a null pointer. CPUID is spelt in bytes, because
LLVM's wheel only reads assembly for the machine that it runs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uopc.backends.llvm.builder import (
    I1,
    I8,
    I32,
    I64,
    VOID,
    Builder,
    Operand,
    PointerTo,
    Signature,
    Type,
)
from uopc.exporting.exported import Exported

_ADDRESS = PointerTo(I8)
_FOUR = Type("{i32, i32, i32, i32}")
LACKING = -1  # the function's result on a processor without any of its levels


class _Bits(NamedTuple):
    """The bits of CPUID and XCR0 that a level needs beyond the level below."""

    basic: int  # leaf 1, ECX
    extended: int  # leaf 7, EBX
    amd: int  # leaf 0x80000001, ECX
    state: int  # XCR0: registers that the system saves


def _mask(*bits: int) -> int:
    return sum([1 << bit for bit in bits])


# The levels as the System V ABI defines them.
_NEEDED = {
    "x86-64": _Bits(0, 0, 0, 0),
    # SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT; LAHF
    "x86-64-v2": _Bits(_mask(0, 9, 13, 19, 20, 23), 0, _mask(0), 0),
    # FMA, MOVBE, OSXSAVE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT; XMM and YMM
    "x86-64-v3": _Bits(_mask(12, 22, 27, 28, 29), _mask(3, 5, 8), _mask(5), _mask(1, 2)),
    # AVX512F, DQ, CD, BW, VL; masks and ZMM
    "x86-64-v4": _Bits(0, _mask(16, 17, 28, 30, 31), 0, _mask(5, 6, 7)),
}
# void cpuid(int32_t leaf, int32_t *words), in machine code: EAX, EBX, ECX and EDX of sub-leaf 0.
_CPUID = (
    "53"  # push rbx
    "89 F8 31 C9 0F A2"  # mov eax, edi; xor ecx, ecx; cpuid
    "89 06 89 5E 04 89 4E 08 89 56 0C"  # mov [rsi], eax; …[rsi + 4], ebx; …ecx; …edx
    "5B C3"  # pop rbx; ret
)
_AMD_LEAF = 0x80000001 - (1 << 32)
_HIGHEST, _EBX, _ECX = 0, 1, 2  # of the words
_OSXSAVE, _XCR0 = 1 << 27, 0


def ordered(names: Sequence[str]) -> list[str]:
    """Levels of x86-64, the lowest first."""
    return sorted(names, key=list(_NEEDED).index)


def suffix(level: str) -> str:
    """The end of a version's name: v1 to v4."""
    return level.removeprefix("x86-64").removeprefix("-") or "v1"


def attributes(level: str) -> str:
    """The attributes of a function in LLVM IR with code for a level."""
    return f'"target-cpu"="{level}"'


def module_text(f: Exported, parameters: Sequence[str]) -> str:
    """The function, `NAME_best` and the code that asks the processor, in LLVM IR."""
    b = Builder(I32)
    given = [Operand(b, Type(t), name) for t, name in map(str.split, parameters)]
    best = b.call(f"@{f.name}_best", Signature(Signature(I32, *[v.t for v in given])), [])
    with b.when(best.eq(None)):
        b.ret(LACKING)
    b.ret(best(*given))
    called = b.definition(f"define i32 @{f.name}({', '.join(parameters)}) nounwind")
    return "\n\n".join([_cpuid(f.name), _words(f.name), _best(f), called])


def _cpuid(name: str) -> str:
    code = bytes.fromhex(_CPUID)
    text = "".join([f"\\{byte:02X}" for byte in code])
    return (
        f"define internal void @{name}_cpuid(i32 %leaf, ptr %words) nounwind naked "
        f'prologue [{len(code)} x i8] c"{text}" {{\n  unreachable\n}}'
    )


def _words(name: str) -> str:
    """LLVM IR that reads the four words of a processor's features; 0 for words that it lacks."""
    b = Builder(_FOUR)
    words, ask = b.alloca(I32, 4, align=4), Signature(VOID, I32, PointerTo(I32))

    def cpuid(leaf: int) -> None:
        b.call(f"@{name}_cpuid", ask, [leaf, words])

    at_ebx, at_ecx = words.at(_EBX), words.at(_ECX)
    cpuid(_AMD_LEAF)
    amd = at_ecx.load()
    cpuid(0)
    highest = words.load()
    cpuid(1)
    basic = at_ecx.load()
    extend, extended = b.block(), b.block(I32)
    b.fork(highest >= 7, extend, extended, 0)
    b.begin(extend)
    cpuid(7)
    (extension,) = b.begin(extended, at_ebx.load())
    save, done = b.block(), b.block(I32)
    b.fork((basic & _OSXSAVE).ne(0), save, done, 0)
    b.begin(save)
    saved = b.call("@llvm.x86.xgetbv", Signature(I64, I32), [_XCR0])
    (state,) = b.begin(done, saved.to(I32, "trunc"))
    made = Operand(b, _FOUR, "zeroinitializer")
    for i, word in enumerate((basic, extension, amd, state)):
        made = b.value(_FOUR, f"insertvalue {_FOUR.text} {made.name}, i32 {word.name}, {i}")
    b.ret(made)
    head = f'define internal {_FOUR.text} @{name}_words() nounwind "target-features"="+xsave"'
    return f"{b.definition(head)}\n\ndeclare i64 @llvm.x86.xgetbv(i32)"


def _best(f: Exported) -> str:
    """LLVM IR that selects the processor's highest level, which needs all levels below it."""
    b = Builder(_ADDRESS)
    all_words = b.call(f"@{f.name}_words", Signature(_FOUR), [])
    words = [b.value(I32, f"extractvalue {_FOUR.text} {all_words.name}, {i}") for i in range(4)]
    versions = {v.machine.name: Operand(b, _ADDRESS, f"@{v.name}") for v in f.levels}
    best, has = Operand(b, _ADDRESS, "null"), Operand(b, I1, "true")
    for level, needed in _NEEDED.items():
        for word, mask in zip(words, needed):
            if mask:
                has = has & (word & mask).eq(mask)
        if level in versions:
            best = has.select(versions[level], best)
    b.ret(best)
    return b.definition(f"define ptr @{f.name}_best() nounwind")
