"""A test in C for an exported function: arrays, and the expected bits of results.

It calls the function twice, with different garbage in its memory: results must have the bits that
uopc computed, inputs must not change, and nothing around the arrays may be written. A size out of
its bounds must be refused before anything is written. If the caller runs parts, they are run from
first to last, then from last to first. Read-only arrays may be the same array: a third call passes
one array for all arguments of one dtype and shape. `main` returns 0 if all is well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.backends.c.names import comment
from uopc.backends.c.types import memory_type
from uopc.errors import UserError
from uopc.exporting.exported import ArrayArgument, Exported, bits
from uopc.ir.core.dtypes import DType

_GUARD = 64  # bytes before and after each array
_MOST_BYTES = 8 << 20  # of all arrays as text
_IN_A_ROW = 16

_CHECKS = """\
#define GUARD 64

/* The elements that have other bits than they must have; a NaN is as good as any other. */
static size_t wrong(const unsigned char *got, const unsigned char *want, size_t count, size_t size,
                    uint64_t magnitude, uint64_t infinite)
{
    size_t found = 0;
    for (size_t i = 0; i < count; ++i) {
        uint64_t a = 0;
        uint64_t b = 0;
        memcpy(&a, got + GUARD + i * size, size);
        memcpy(&b, want + i * size, size);
        const int both = (a & magnitude) > infinite && (b & magnitude) > infinite;
        found += (a != b && !both) ? 1u : 0u;
    }
    return found;
}

/* The bytes around an array that do not have the value that they had. */
static size_t outside(const unsigned char *array, size_t bytes, unsigned char rubbish)
{
    size_t found = 0;
    for (size_t i = 0; i < GUARD; ++i) {
        found += (array[i] != rubbish) ? 1u : 0u;
        found += (array[GUARD + bytes + i] != rubbish) ? 1u : 0u;
    }
    return found;
}

static void fill(unsigned char *array, const unsigned char *content, size_t bytes,
                 unsigned char rubbish)
{
    memset(array, rubbish, bytes + 2 * (size_t)GUARD);
    if (content != NULL) {
        memcpy(array + GUARD, content, bytes);
    }
}
"""

_BACKWARDS = """\
/* Runs the parts of a kernel, the last one first. */
static void backwards(void *context, uopc_part part, void *words, int64_t count)
{
    (void)context;
    while (count > 0) {
        --count;
        part(words, count);
    }
}
"""


def twins(f: Exported, given: Sequence[npt.NDArray[Any]]) -> dict[int, int]:
    """For each read-only array, the index of an earlier array of its dtype and shape."""
    first: dict[object, int] = {}
    found = {}
    for i, (a, content) in enumerate(zip(f.arrays, given)):
        if a.is_input and not a.written and content.size:
            same = first.setdefault((a.dtype, content.shape), i)
            if same != i:
                found[i] = same
    return found


def self_test(
    f: Exported, given: Sequence[npt.NDArray[Any]], wanted: Sequence[npt.NDArray[Any]],
    values: Mapping[str, int], stem: str, shared: Mapping[int, int],
    together: Sequence[npt.NDArray[Any]],
) -> str:  # fmt: skip
    """The text of the test. given, wanted: the content of each array before and after a call. stem:
    the header's name, without its ending. shared: `twins`; together: the content of each array
    after a call with shared arrays, empty if there are none."""
    if sum([a.nbytes for a in (*given, *wanted, *together)]) > _MOST_BYTES:
        raise UserError(
            f"export: examples must be at most {_MOST_BYTES >> 20} MiB: choose smaller sizes"
        )
    rows = list(zip(f.arrays, given, wanted))
    tables = [_table(f"in_{a.name}", before) for a, before, _ in rows if a.is_input]
    tables += [_table(f"want_{a.name}", after) for a, _, after in rows if a.written]
    tables += [
        _table(f"both_{a.name}", after) for a, after in zip(f.arrays, together) if a.written
    ]
    memory = [f"static _Alignas(64) unsigned char mem_{a.name}[{before.nbytes + 2 * _GUARD}];"
              for a, before, _ in rows]  # fmt: skip
    memory += [f"static int64_t length_{x.name};" for x in f.lengths]
    nbytes = f.work_bytes(values)
    memory.append(f"static _Alignas(64) unsigned char mem_work[{nbytes + 2 * _GUARD}];")
    parts = [
        comment(f"The self-test of {f.name}, made by uopc: compile it with the function."),
        f'#include "{stem}.h"', "#include <stdio.h>\n#include <string.h>", _CHECKS,
        *([_BACKWARDS] if f.threads > 1 else []), "\n\n".join(tables), "\n".join(memory),
        *_runs(f, rows, values, shared, together), _main(f, values, bool(shared)),
    ]  # fmt: skip
    return "\n\n".join([p.strip("\n") for p in parts]) + "\n"


def _table(name: str, array: npt.NDArray[Any]) -> str:
    content = bits(array)
    lines = [
        ", ".join(map(str, content[i : i + _IN_A_ROW])) for i in range(0, len(content), _IN_A_ROW)
    ]
    body = ",\n    ".join(lines or ["0"])
    size = max(1, len(content))
    return f"static _Alignas(64) const unsigned char {name}[{size}] = {{\n    {body}\n}};"


def _call(
    f: Exported, sizes: Sequence[int], how: str = "NULL", shared: Mapping[int, int] | None = None
) -> str:
    places = [f.arrays[(shared or {}).get(i, i)].name for i in range(len(f.arrays))]
    arrays = [
        f"({'' if a.written else 'const '}{memory_type(a.dtype)} *)(void *)(mem_{place} + GUARD)"
        for a, place in zip(f.arrays, places)
    ]
    numbers = [*[f"&length_{x.name}" for x in f.lengths], *_numbers(f, sizes)]
    run = [how, "NULL"] if f.threads > 1 else []
    return f"{f.name}({', '.join([*arrays, *numbers, 'mem_work + GUARD', *run])})"


def _numbers(f: Exported, sizes: Sequence[int]) -> list[str]:
    return [f"INT{f.machine.size_bits}_C({n})" for n in sizes]


def _fills(rows: Sequence[tuple[ArrayArgument, Any, Any]], work: int) -> list[str]:
    made = []
    for a, before, _ in rows:
        content = f"in_{a.name}" if a.is_input else "NULL"
        made.append(f"    fill(mem_{a.name}, {content}, {before.nbytes}u, rubbish);")
    return [*made, f"    fill(mem_work, NULL, {work}u, rubbish);"]


def _runs(
    f: Exported, rows: Sequence[tuple[ArrayArgument, Any, Any]], values: Mapping[str, int],
    shared: Mapping[int, int], together: Sequence[npt.NDArray[Any]],
) -> list[str]:  # fmt: skip
    """The functions that call: with an array for each argument, and with one array for all
    `twins`."""
    sizes = [values[s.given] for s in f.sizes]
    call = _call(f, sizes, "rubbish == 0x5Au ? NULL : backwards")
    work = f.work_bytes(values)
    lengths = [
        f"    found += (length_{x.name} != INT64_C({values[x.given]})) ? 1u : 0u;"
        for x in f.lengths
    ]
    made = [_run(rows, work, "run", call, "want", lengths)]
    if shared:
        alone = [(a, before, after) for i, ((a, before, _), after) in enumerate(zip(rows, together))
                 if i not in shared]  # fmt: skip
        call = _call(f, sizes, shared=shared)
        made.append(_run(alone, work, "run_shared", call, "both", []))
    return made


def _run(
    rows: Sequence[tuple[ArrayArgument, Any, Any]], work: int, name: str, call: str, wanted: str,
    checks: Sequence[str],
) -> str:  # fmt: skip
    lines = [f"static size_t {name}(unsigned char rubbish)", "{", "    size_t found = 0;"]
    lines += _fills(rows, work)
    lines += [f"    if ({call} != 0) {{", "        return 1;", "    }", *checks]
    for a, before, after in rows:
        want = f"{wanted}_{a.name}" if a.written else f"in_{a.name}"
        numbers = f"{after.size}u, {a.dtype.itemsize}u, {_not_a_number(a.dtype)}"
        lines.append(f"    found += wrong(mem_{a.name}, {want}, {numbers});")
        lines.append(f"    found += outside(mem_{a.name}, {before.nbytes}u, rubbish);")
    lines.append(f"    found += outside(mem_work, {work}u, rubbish);")
    return "\n".join([*lines, "    return found;", "}"])


def _not_a_number(t: DType) -> str:
    """The mask of all bits but the sign, and the bits of infinity: greater bits are no number."""
    if not t.is_float or t.bits < 16:
        return "0u, 0u"
    infinity = int(np.asarray(np.inf, t.numpy).view(f"u{t.itemsize}"))
    return f"UINT64_C({(1 << t.bits - 1) - 1}), UINT64_C({infinity})"


def _main(f: Exported, values: Mapping[str, int], shares: bool) -> str:
    """`main`, with a call for each bound of a size."""
    runs = "run(0x5Au) + run(0xA5u)" + (" + run_shared(0x3Cu)" if shares else "")
    lines = ["int main(void)", "{", f"    const size_t found = {runs};", "    int refused = 1;"]
    for number, s in enumerate(f.sizes, 1):
        for value in (s.low - 1, s.high + 1):
            if abs(value) < 1 << f.machine.size_bits - 2:
                sizes = [value if o is s else values[o.given] for o in f.sizes]
                lines.append(f"    refused = refused && {_call(f, sizes)} == {number};")
    given = ", ".join(_numbers(f, [values[s.given] for s in f.sizes]))
    lines += [
        f"    refused = refused && {f.name}_work_bytes({given}) == {f.work_bytes(values)}u;",
        f'    printf("{f.name}: %lu wrong bytes or elements, sizes %s\\n", (unsigned long)found,',
        '           refused ? "checked" : "not checked");',
        "    return found == 0 && refused ? 0 : 1;", "}",
    ]  # fmt: skip
    return "\n".join(lines)
