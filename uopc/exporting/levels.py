"""One function for several levels of x86-64: it asks the processor, and has no state.

    int f(...)             calls the version for the highest level that the processor has
    f_function f_best()    gives that version, for callers that ask once

A processor without any of the levels gets -1, and a null pointer. CPUID is spelt in bytes, because
LLVM's wheel only reads assembly for the machine that it runs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uopc.exporting.exported import Exported

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
    types = ", ".join([p.split()[0] for p in parameters])
    given = ", ".join(parameters)
    call = f"""
define i32 @{f.name}({given}) nounwind {{
  %.best = call ptr @{f.name}_best()
  %.none = icmp eq ptr %.best, null
  br i1 %.none, label %.lacking, label %.there
.lacking:
  ret i32 {LACKING}
.there:
  %.code = call i32 ({types}) %.best({given})
  ret i32 %.code
}}"""
    return "\n\n".join([_cpuid(f.name), _words(f.name), _best(f), call.strip()])


def _cpuid(name: str) -> str:
    code = bytes.fromhex(_CPUID)
    text = "".join([f"\\{byte:02X}" for byte in code])
    return (
        f"define internal void @{name}_cpuid(i32 %leaf, ptr %words) nounwind naked "
        f'prologue [{len(code)} x i8] c"{text}" {{\n  unreachable\n}}'
    )


def _words(name: str) -> str:
    """LLVM IR that reads the four words of a processor's features; 0 for words that it lacks."""
    ask = f"call void @{name}_cpuid(i32"
    return f"""
define internal {{i32, i32, i32, i32}} @{name}_words() nounwind "target-features"="+xsave" {{
entry:
  %words = alloca [4 x i32], align 4
  %at_ebx = getelementptr i32, ptr %words, i64 {_EBX}
  %at_ecx = getelementptr i32, ptr %words, i64 {_ECX}
  {ask} {_AMD_LEAF}, ptr %words)
  %amd = load i32, ptr %at_ecx, align 4
  {ask} 0, ptr %words)
  %highest = load i32, ptr %words, align 4
  {ask} 1, ptr %words)
  %basic = load i32, ptr %at_ecx, align 4
  %seven = icmp uge i32 %highest, 7
  br i1 %seven, label %extend, label %extended
extend:
  {ask} 7, ptr %words)
  %ebx = load i32, ptr %at_ebx, align 4
  br label %extended
extended:
  %extension = phi i32 [ 0, %entry ], [ %ebx, %extend ]
  %saved = and i32 %basic, {_OSXSAVE}
  %saves = icmp ne i32 %saved, 0
  br i1 %saves, label %save, label %done
save:
  %xcr0 = call i64 @llvm.x86.xgetbv(i32 {_XCR0})
  %low = trunc i64 %xcr0 to i32
  br label %done
done:
  %state = phi i32 [ 0, %extended ], [ %low, %save ]
  %a = insertvalue {{i32, i32, i32, i32}} zeroinitializer, i32 %basic, 0
  %b = insertvalue {{i32, i32, i32, i32}} %a, i32 %extension, 1
  %c = insertvalue {{i32, i32, i32, i32}} %b, i32 %amd, 2
  %d = insertvalue {{i32, i32, i32, i32}} %c, i32 %state, 3
  ret {{i32, i32, i32, i32}} %d
}}

declare i64 @llvm.x86.xgetbv(i32)""".strip()


def _best(f: Exported) -> str:
    """LLVM IR that selects the processor's highest level, which needs all levels below it."""
    lines = [f"  %words = call {{i32, i32, i32, i32}} @{f.name}_words()"]
    lines += [f"  %w{i} = extractvalue {{i32, i32, i32, i32}} %words, {i}" for i in range(4)]
    versions = {v.machine.name: v.name for v in f.levels}
    best, has = "null", "true"
    for level, needed in _NEEDED.items():
        n = suffix(level)
        for i, mask in enumerate(needed):
            if mask:
                lines += [
                    f"  %{n}m{i} = and i32 %w{i}, {mask}",
                    f"  %{n}e{i} = icmp eq i32 %{n}m{i}, {mask}",
                    f"  %{n}h{i} = and i1 {has}, %{n}e{i}",
                ]
                has = f"%{n}h{i}"
        if level in versions:
            lines.append(f"  %{n} = select i1 {has}, ptr @{versions[level]}, ptr {best}")
            best = f"%{n}"
    text = "\n".join([*lines, f"  ret ptr {best}"])
    return f"define ptr @{f.name}_best() nounwind {{\n{text}\n}}"
