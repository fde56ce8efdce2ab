"""Names for what a program calls its own things in C, and lines that a screen shows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

# Keywords of C and C++, names that the standard headers take, and what compilers define.
_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum errno explicit export
extern false float for fortran friend goto i386 if inline int int16_t int32_t int64_t int8_t linux
long main memcpy memmove memset mutable namespace new noexcept not not_eq nullptr offsetof
operator or or_eq private protected ptrdiff_t public register reinterpret_cast requires restrict
return short signed size_t sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename typeof uint16_t uint32_t uint64_t uint8_t
union unix unsigned using virtual void volatile wchar_t while work xor xor_eq NULL
"""
# Functions that generated code calls, for float64 and (with an f) float32; names in generated code.
_FUNCTIONS = "ceil cos erf exp exp2 fabs floor fma log log2 pow rint sin sqrt tan tanh trunc"
_CALLED = [name + end for name in _FUNCTIONS.split(" ") for end in ("", "f")]
TAKEN = frozenset((*_WORDS.split(), *_CALLED))
# Macros of the headers that exported files include.
_LIMIT = re.compile(r"U?INT(MAX|PTR|(_LEAST|_FAST)?\d+)_(C|MAX|MIN|WIDTH)"
                    r"|(PTRDIFF|SIG_ATOMIC|SIZE|WCHAR|WINT)_(MAX|MIN|WIDTH)")  # fmt: skip
_GENERATED = re.compile(r"(?i:uopc)_.*|[fiu]\d+x\d+(_at)?")  # functions, macros, vectors
LONGEST = 200
_WIDTH, _CODE_WIDTH = 96, 100


def is_taken(name: str) -> bool:
    """True if C, C++ or their headers take the name."""
    return name in TAKEN or _LIMIT.fullmatch(name) is not None


def identifier(text: str, taken: set[str]) -> str:
    """An identifier like `text` that is not taken yet, and is from now on."""
    wanted = re.sub(r"[^A-Za-z0-9_]", "_", text)[:LONGEST].lstrip("_")
    if not wanted or wanted[0].isdigit():
        wanted = f"a{wanted}"
    if is_taken(wanted) or _GENERATED.fullmatch(wanted):
        wanted += "_"
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def wrapped(text: str, indent: int = 0) -> str:
    """A text in lines that a screen shows."""
    return textwrap.fill(text, _WIDTH, subsequent_indent=" " * indent, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def comment(text: str) -> str:
    """A comment of C89. The text may hold anything."""
    return "/* " + wrapped(text.replace("*/", "* /").replace("/*", "/ *"), 3) + " */"


def code(line: str) -> str:
    """A line of code, or several: the further ones are four columns deeper."""
    deeper = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(line, _CODE_WIDTH, subsequent_indent=deeper, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def table(head: str, items: Sequence[str]) -> str:
    """The definition of an array."""
    body = textwrap.fill(", ".join(items), _CODE_WIDTH, initial_indent="    ",
                         subsequent_indent="    ", break_on_hyphens=False)  # fmt: skip
    return f"{head} = {{\n{body}\n}};"
