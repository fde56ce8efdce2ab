"""Names for what a program calls its own things in C, and lines that a screen shows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from uopc.backends.c import header_names

# Keywords of C and C++, and macros of compilers and of headers that are words.
_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
char8_t class co_await co_return co_yield compl complex concept const const_cast consteval
constexpr constinit continue contract_assert decltype default delete do double dynamic_cast else
enum errno explicit export extern false float for fortran friend goto i386 if imaginary import
inline int linux long module mutable namespace new noexcept not not_eq nullptr nullptr_t operator
or or_eq private protected public register reinterpret_cast requires restrict return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename typeof typeof_unqual union unix unsigned using virtual void volatile
wchar_t while xor xor_eq NULL
"""
# Functions that generated code calls, for float64 and (with an f) float32; names in generated code.
_FUNCTIONS = "ceil cos erf exp exp2 fabs floor fma log log2 pow rint sin sqrt tan tanh trunc"
_CALLED = frozenset((
    *[name + end for name in _FUNCTIONS.split(" ") for end in ("", "f")], "main", "memcpy",
    "memmove", "memset", "offsetof", "work", "vget_lane_f64", "vget_lane_f32", "vsqrt_f64",
    "vsqrt_f32", "vdup_n_f64", "vdup_n_f32",
))  # fmt: skip
WORDS = frozenset(_WORDS.split())
# Functions, macros, vectors of generated code, and vectors of the compiler's headers.
_GENERATED = re.compile(r"(?i:uopc)_.*|[fiu]\d+x\d+(_at)?|[a-z]+\d+x\d+(x\d)?_t")
LONGEST = 200
_WIDTH, _CODE_WIDTH = 96, 100
# These need no parentheses inside of another expression: names, numbers, elements, calls.
_ATOM = re.compile(r"[\w.]+(e[+-]\d+f?)?|\w+\[[^\[\]]*\]|\w*\([^()]*\)|\(\w+\)\{[^{}]*\}")


def reserved(name: str) -> str:
    """Return why no function can have a name; empty if one can."""
    if name in WORDS:
        return "is a word of C or C++"
    if _GENERATED.fullmatch(name) is not None or name in ("main", "work"):
        return "is a name in generated code"
    taken = header_names.is_function(name) or header_names.is_object(name) or name in _CALLED
    return "is a name of the C library or of POSIX" if taken else ""


def _is_spoken_for(name: str) -> bool:
    """True if a parameter cannot have the name: a parameter may hide a function of a library."""
    if name in WORDS or name in _CALLED or _GENERATED.fullmatch(name) is not None:
        return True
    return header_names.is_object(name)


def identifier(text: str, taken: set[str], of_function: bool = False) -> str:
    """An unused identifier like `text`; add it to `taken`. A character that C or C++ forbids
    becomes `_`, a reserved word gets a `_` at its end, and a taken name gets a number."""
    wanted = re.sub(r"[^A-Za-z0-9_]", "_", text)[:LONGEST].lstrip("_")
    if not wanted or wanted[0].isdigit():
        wanted = f"a{wanted}"
    if _is_spoken_for(wanted) or (of_function and reserved(wanted)):
        wanted += "_"
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def inside(text: str) -> str:
    """An expression as an operand of another one."""
    return text if _ATOM.fullmatch(text) else f"({text})"


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
