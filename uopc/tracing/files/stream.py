"""A program over an array that need not fit into memory, some rows at a time."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.core.data import files
from uopc.ir.core.data.files import Array
from uopc.program.program import Program


def stream(program: Program, *arrays: Any, rows: int, **others: Any) -> Iterator[Any]:
    """The results of a program for `rows` rows of some arrays at a time, in order.

    The arrays, all of the same length, are the program's first arguments; each call also gets
    `others` by name, unchanged. The last piece may have fewer rows: the program should take the
    number of rows as a variable, else `rows` must divide the length. For arrays of `uopc.file`, the
    system reads the next piece ahead, and earlier pieces leave the memory, so that at most two
    pieces are in memory. Add the results up, or store them in a file.

    UserError if an array in a file was changed since it was opened, before the piece is read.

    Examples:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "numbers")
        >>> np.arange(10, dtype="f8").tofile(path)
        >>> x = uopc.param("x", (uopc.variable("n", 1, 4),), np.float64)
        >>> total = uopc.compile(x.sum())
        >>> float(sum(uopc.stream(total, uopc.file(path, np.float64), rows=4)))
        45.0
        >>> folder.cleanup()
    """
    length = _length(program, arrays)
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise UserError(f"stream: rows must be an int of 1 or more, got {rows!r}")
    fixed = [n for n in (v.shape[0] for v in program.inputs[: len(arrays)]) if isinstance(n, int)]
    if any([n != rows for n in fixed]) or (fixed and length % rows):
        raise UserError(
            f"stream: the program takes {fixed[0]} rows, but gets {length} rows in pieces of {rows}"
        )
    return _pieces(program, arrays, rows, length, others)


def _length(program: Program, arrays: tuple[Any, ...]) -> int:
    """The number of rows, which all arrays must have."""
    if not hasattr(program, "inputs"):
        raise UserTypeError(f"stream: expected a Program, got {program!r}")
    if not arrays or len(arrays) > len(program.inputs):
        count = len(program.inputs)
        raise UserTypeError(f"stream: the program takes {count} arrays, {len(arrays)} were given")
    for spec, array in zip(program.inputs, arrays):
        if not hasattr(array, "shape") or not hasattr(array, "__getitem__"):
            raise UserTypeError(f"stream: argument {spec.name!r}: expected an array, got {array!r}")
        if not array.shape or not spec.shape:
            raise UserError(f"stream: argument {spec.name!r} has no rows")
    lengths = {int(a.shape[0]) for a in arrays}
    if len(lengths) > 1:
        raise UserError(
            f"stream: all arrays must have the same number of rows, got {sorted(lengths)}"
        )
    return lengths.pop()


def _pieces(
    program: Program, arrays: tuple[Any, ...], rows: int, length: int, others: dict[str, Any]
) -> Iterator[Any]:
    mapped = [(a, m) for a in arrays if (m := files.mapping_of(a)) is not None]

    def advise(begin: int, advice: int) -> None:
        for array, mapping in mapped:
            part: Array = array[begin : begin + rows]
            if part.flags.c_contiguous and part.size:
                mapping.advise(part, advice)

    for begin in range(0, length, rows):
        files.check_unchanged(arrays)
        advise(begin + rows, mmap.MADV_WILLNEED)
        yield program(*[a[begin : begin + rows] for a in arrays], **others)
        advise(begin, mmap.MADV_DONTNEED)
