"""Constant arrays of exported C in separate files, which the assembler includes.

A compiler takes minutes for an array of 16 MiB as text, and no time for a file.
"""

from __future__ import annotations

from dataclasses import replace

from uopc.backends.memory_plan import ALIGNMENT
from uopc.errors import UserError
from uopc.exporting.exported import Exported, bits

WEIGHTS = ("auto", "inline", "file")
LEAST = 64 << 10  # bytes of an array that "auto" puts into a file
_ASSEMBLY = """\
/* {name}: the constant arrays of {stem}.c. From another folder, assemble with -I and this one. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the files have the least significant byte first: export with weights='inline'"
#endif
#define UOPC_JOIN(a, b) a##b
#define UOPC_JOINED(a, b) UOPC_JOIN(a, b)
#define UOPC_SYMBOL(name) UOPC_JOINED(__USER_LABEL_PREFIX__, name)
#if defined(__APPLE__)
    .const
#elif defined(_WIN32)
    .section .rdata,"dr"
#else
    .section .rodata,"a",%progbits
#endif
"""
_ARRAY = """
    .balign {alignment}
    .globl UOPC_SYMBOL({symbol})
#if defined(__APPLE__)
    .private_extern UOPC_SYMBOL({symbol})
#elif !defined(_WIN32)
    .hidden UOPC_SYMBOL({symbol})
    .type UOPC_SYMBOL({symbol}), %object
    .size UOPC_SYMBOL({symbol}), {size}
#endif
UOPC_SYMBOL({symbol}):
    .incbin "{file}"
"""
_END = """
#if defined(__ELF__)
    .section .note.GNU-stack,"",%progbits
#endif
"""


def separated(f: Exported, weights: str) -> Exported:
    """Move the function's large arrays to files. UserError for an unknown choice."""
    if weights not in WEIGHTS:
        raise UserError(f"export: unknown weights {weights!r}; choose {', '.join(WEIGHTS)}")
    least = {"auto": LEAST, "inline": None, "file": 1}[weights]
    sizes = enumerate([a.nbytes for a in f.constants])
    return replace(f, in_files=frozenset([i for i, n in sizes if least and n >= least]))


def files(f: Exported, stem: str) -> dict[str, bytes]:
    """The files by name: the arrays, and the assembler's text."""
    if not f.in_files:
        return {}
    made, text = {}, _ASSEMBLY.format(name=f.name, stem=stem)
    for i in sorted(f.in_files):
        data, file = bits(f.constants[i]), f"{stem}_c{i}.bin"
        made[file] = data
        symbol = f.constant(i)
        text += _ARRAY.format(symbol=symbol, file=file, size=len(data), alignment=ALIGNMENT)
    return {**made, f"{stem}_data.S": (text + _END).encode()}
