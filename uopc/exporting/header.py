"""The header of an exported function, for compilers of C (from C89 on) and C++."""

from __future__ import annotations

from uopc.backends.c.names import comment, wrapped
from uopc.backends.c.types import memory_type
from uopc.backends.plan import Shape
from uopc.exporting import levels, places
from uopc.exporting.casadi import declarations
from uopc.exporting.exported import ArrayArgument, Exported, ExportedLength
from uopc.exporting.manifest import ABI, WORK_ALIGNMENT
from uopc.exporting.sizes import with_room, work
from uopc.ir.core import bounds
from uopc.ir.index.affine import is_const

_RULES = """
Arrays are in row-major order and aligned as their elements are. What the function writes shares no
memory with another argument; arrays that it only reads may. A bool is a byte, 0 or 1; floats of 8
and 16 bits are their bits. The function has no state and allocates nothing: calls may run at the
same time, each with memory of its own for work.
"""
# The caller runs the parts of a kernel by these types, the same in all headers.
_RUN_TYPES = """
#ifndef UOPC_RUN
#define UOPC_RUN
typedef void (*uopc_part)(void *words, int64_t number);
typedef void (*uopc_run)(void *context, uopc_part part, void *words, int64_t count);
#endif
"""
_RUN = """
run: calls part(words, i) once for each i from 0 to count - 1, in any order and on any threads, and
returns when all of them have returned; it is called again and again. A null pointer: the parts run
one after another. context: passed to run, and not looked at.
"""
_BEST = """
The version for the highest level that this processor has, or a null pointer. The function itself
asks the processor at each call, which takes less than a microsecond, but some 20 in a virtual
machine: ask once where that matters.
"""


def shape_text(shape: Shape) -> str:
    """A shape as a comment shows it."""
    return f"[{', '.join(map(str, shape))}]"


def parameters(f: Exported) -> list[str]:
    """The declarations of the function's parameters, in order."""
    arrays = [f"{'' if a.written else 'const '}{memory_type(a.dtype)} *{a.name}" for a in f.arrays]
    run = ["uopc_run run", "void *context"] if f.threads > 1 else []
    lengths = [f"int64_t *{x.name}" for x in f.lengths]
    return [*arrays, *lengths, *_sizes(f), "void *work", *run]


def _sizes(f: Exported) -> list[str]:
    return [f"int{f.machine.size_bits}_t {s.name}" for s in f.sizes]


def work_prototype(f: Exported) -> str:
    """The declaration of the function that gives the bytes of work, without a semicolon."""
    return wrapped(f"size_t {f.name}_work_bytes({', '.join(_sizes(f)) or 'void'})", 4)


def prototype(f: Exported) -> str:
    """The declaration of the function, without a semicolon."""
    return _declared(f, f"int {f.name}")


def _declared(f: Exported, head: str) -> str:
    return wrapped(f"{head}({', '.join(parameters(f))})", 4)


def header(f: Exported) -> str:
    """The text of the header."""
    more = [] if f.casadi is None else [declarations(f.casadi)]
    name, upper = f.name, f.name.upper()
    lines = [
        comment(f"{name}: made by uopc for {f.machine.name}. {_RULES.strip()}"),
        f"#ifndef UOPC_{name}_H", f"#define UOPC_{name}_H", "#include <stddef.h>",
        "#include <stdint.h>", "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        *([_RUN_TYPES.strip(), ""] if f.threads > 1 else []), f"#define {upper}_ABI {ABI}",
        *_most_work(f),
        f"#define {upper}_WORK_ALIGNMENT {WORK_ALIGNMENT}", "",
        *[comment(_described(a, f)) for a in f.arrays],
        *[comment(_length(x)) for x in f.lengths],
        *[comment(f"{s.name}: {s.low} to {s.high}") for s in f.sizes],
        comment(_work(f)), *([comment(_RUN.strip())] if f.threads > 1 else []),
        *[comment(text) for text in _results(f)],
        f"{prototype(f)};", "",
        comment(_work_text(f)), f"{work_prototype(f)};",
        comment("A digest of this interface and of the graph."),
        f"extern const char {name}_id[];", *_best(f), *_matrices(f), *more, "",
        "#ifdef __cplusplus", "}", "#endif", "#endif", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _best(f: Exported) -> list[str]:
    """The declaration of the function that chooses among levels."""
    if not f.levels:
        return []
    pointer = f"{f.name}_function"
    return [comment(_BEST.strip()), _declared(f, f"typedef int (*{pointer})") + ";",
            f"{pointer} {f.name}_best(void);"]  # fmt: skip


def _matrices(f: Exported) -> list[str]:
    """The declarations of the positions of sparse results."""
    made = []
    for m in f.matrices:
        a = f.arrays[f.results[m.result]]
        made += ["", *places.declarations(m, a.name, len(a.shape) > 1)]
    return made


def _described(a: ArrayArgument, f: Exported) -> str:
    how = "in" if not a.written else "in and out" if a.is_input else "out"
    most = with_room(a.shape, f)
    room = "" if most == a.shape else f" in memory for {shape_text(most)}"
    return f"{a.name} ({how}): {a.dtype.name}{shape_text(a.shape)}{room}"


def _length(x: ExportedLength) -> str:
    own = "a number" if x.name == x.given else f"the length {x.given}"
    return f"{x.name} (out): {own}, {x.low} to {x.high}"


def _work(f: Exported) -> str:
    size = work(f)
    if is_const(size) and not size.arg:
        return "work: not read or written; may be a null pointer"
    sizes = ", ".join([s.name for s in f.sizes])
    nbytes = f"{size.arg}" if is_const(size) else f"{f.name}_work_bytes({sizes})"
    return f"work: {nbytes} bytes, aligned to {WORK_ALIGNMENT}; 64 is fastest"


def _most_work(f: Exported) -> list[str]:
    """The macro of the bytes of work at the greatest sizes, if a size_t holds them."""
    most = bounds.max_dim(work(f))
    is_held = most < 1 << f.machine.size_bits - 1
    return [f"#define {f.name.upper()}_WORK_BYTES {most}"] if is_held else []


def _work_text(f: Exported) -> str:
    macro = f"{f.name.upper()}_WORK_BYTES"
    if is_const(work(f)):
        return f"The bytes of work: {macro}."
    most = f" {macro} is the most of all." if _most_work(f) else ""
    return f"The bytes of work for these sizes, which must be within their bounds.{most}"


def _results(f: Exported) -> list[str]:
    """The comment about return values."""
    if not f.sizes and not f.plan.conditions and not f.levels and not f.lengths:
        return ["Returns 0."]
    until = "; where it depends on a length, results may be written" if f.lengths else ""
    made = [f"Returns 0; or, before anything is written, the number of what is wrong{until}:"]
    if f.levels:
        made.append(f"{levels.LACKING}: the processor has none of the levels")
    made += [f"{i}: {s.name} is out of its bounds" for i, s in enumerate(f.sizes, 1)]
    for i, c in enumerate(f.plan.conditions, 1 + len(f.sizes)):
        made.append(f"{i}: it must hold that {c.sides[0]} is {_relation(c.relation)} {c.sides[1]}")
    first = 1 + len(f.sizes) + len(f.plan.conditions)
    made += [f"{i}: {x.name} is out of its bounds" for i, x in enumerate(f.lengths, first)]
    return made


def _relation(relation: str) -> str:
    return "equal to" if relation == "equal" else relation
