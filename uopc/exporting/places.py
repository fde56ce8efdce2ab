"""Sparse results: the positions of their entries, as constant arrays beside an exported function.

    #define F_JAC_NNZ 58
    extern const int32_t f_jac_row[F_JAC_NNZ];

The header declares the arrays, the code has each array once, and the manifest lists them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.backends.c.names import comment, identifier
from uopc.backends.c.types import memory_type
from uopc.errors import UserError
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.records import dataclass
from uopc.program.request import Request
from uopc.sparse.sparsity import Layout

_ORDERS = {
    "csc": "by column, then by row", "csr": "by row, then by column",
    "coo": "by row, then by column", "triplet": "in the order in which they are computed",
}  # fmt: skip


class ConstantTable(NamedTuple):
    """A constant array of `length`, a C expression. An empty array has one element, 0."""

    name: str
    dtype: DType
    length: str
    content: npt.NDArray[Any]


@dataclass(frozen=True)
class Matrix:
    """A result that is a sparse matrix, or a batch of such matrices, with entries in the last
    dimension.

    result: its number. name, macro: the prefixes of its arrays, and of its macros. dtype: of
    values.
    """

    result: int
    given: str
    name: str
    macro: str
    dtype: DType
    layout: Layout

    @property
    def numbers(self) -> dict[str, int]:
        """The macros with numbers, by name."""
        (rows, columns), nnz = self.layout.sparsity.shape, self.layout.sparsity.nnz
        found = {"ROWS": rows, "COLS": columns, "NNZ": nnz}
        if self.layout.constants is not None:
            found["COMPUTED"] = self.computed.size
        return {f"{self.macro}_{name}": number for name, number in found.items()}

    @property
    def computed(self) -> npt.NDArray[np.int64]:
        """The indices of the entries that the function computes, in order."""
        left = np.ones(self.layout.sparsity.nnz, np.bool_)
        if self.layout.constants is not None:
            left[self.layout.constants[0]] = False
        return np.flatnonzero(left)

    @property
    def tables(self) -> list[ConstantTable]:
        """The constant arrays."""
        s, count = self.layout.sparsity, f"{self.macro}_NNZ"
        t = dtypes.int32 if max(*s.shape, s.nnz) < 1 << 31 else dtypes.int64
        made = [ConstantTable("row", t, count, s.row), ConstantTable("col", t, count, s.col)]
        if s.format in ("csc", "csr"):
            length = f"{self.macro}_{'COLS' if s.format == 'csc' else 'ROWS'} + 1"
            made.append(ConstantTable("indptr", t, length, s.indptr))
        if self.layout.constants is not None:
            at, values = self.layout.constants
            whole, computed = np.zeros(s.nnz, self.dtype.numpy), self.computed
            whole[at] = values
            made.append(ConstantTable("computed", t, f"{self.macro}_COMPUTED", computed))
            made.append(ConstantTable("constants", self.dtype, count, whole))
        return [_filled(t._replace(name=f"{self.name}_{t.name}")) for t in made]


def _filled(t: ConstantTable) -> ConstantTable:
    """Convert the table to its type; give an empty table one element."""
    if not t.content.size:
        return t._replace(content=np.zeros(1, t.dtype.numpy), length="1")
    return t._replace(content=t.content.astype(t.dtype.numpy))


def matrices(request: Request, function: str) -> tuple[Matrix, ...]:
    """The sparse results of a function, with names for their arrays and macros.

    UserError if the last dimension of a result has not the length of its structure.
    """
    taken, macros = {function}, {function.upper()}
    made = []
    pairs = zip(request.layouts, request.graph.src)
    found = [(layout, v) for layout, v in pairs if v.dtype is not dtypes.void]
    for i, (label, (layout, data)) in enumerate(zip(labels(request, len(found)), found)):
        if layout is None:
            continue
        name = identifier(f"{function}_{label}", taken)
        m = Matrix(i, label, name, identifier(name.upper(), macros), data.dtype, layout)
        shape, wanted = shapes.shape(data), m.computed.size
        if not shape or shape[-1] != wanted:
            raise UserError(
                f"export: the last dimension of {label} {shapes.show(shape)} must have the"
                f" {wanted} values of {layout.sparsity!r}"
            )
        made.append(m)
    return tuple(made)


def labels(request: Request, count: int) -> list[str]:
    """A name for each result: the key in a dict, the path in nested containers, else `out` (`out0`,
    `out1`, ... for several)."""
    if request.keys:
        return [str(key) for key in request.keys]
    return ["out"] if count == 1 else [f"out{i}" for i in range(count)]


def declarations(m: Matrix, parameter: str, is_batch: bool) -> list[str]:
    """The part of a header about a matrix with values in this parameter of the function."""
    lines = [comment(_said(m, parameter, is_batch))]
    lines += [f"#define {name} {number}" for name, number in m.numbers.items()]
    return [*lines, *[f"extern {head(t)};" for t in m.tables]]


def head(t: ConstantTable) -> str:
    """The declaration of an array, without `extern` and a semicolon."""
    return f"const {memory_type(t.dtype)} {t.name}[{t.length}]"


def _said(m: Matrix, parameter: str, is_batch: bool) -> str:
    """The text of a header about a matrix."""
    s, name = m.layout.sparsity, m.name
    kind = "rows of values, each" if is_batch else "the values"
    parts = [f"{parameter}: {kind} of a sparse matrix with {s.nnz} entries, {_ORDERS[s.format]}."]
    if not s.nnz:
        return f"{parts[0]} Arrays of length 0, which C lacks, have one element that is not used."
    is_split = m.layout.constants is not None
    what = "Entry k" if is_split or is_batch else f"{parameter}[k]"
    parts.append(f"{what} stands at row {name}_row[k] and column {name}_col[k].")
    if len(np.unique(s.row * s.shape[1] + s.col)) < s.nnz:
        parts.append("Those at one place are added.")
    if s.format in ("csc", "csr"):
        line = "column" if s.format == "csc" else "row"
        parts.append(f"Those of {line} j are {name}_indptr[j] to {name}_indptr[j + 1] - 1.")
    if is_split and m.computed.size:
        parts.append(
            f"Value i is entry {name}_computed[i]; {name}_constants has the entries that are"
            " numbers, and 0 for the others."
        )
    elif is_split:
        parts.append(
            f"All are numbers, those of {name}_constants; {name}_computed has one element that is"
            " not used."
        )
    return " ".join(parts)


def described(m: Matrix) -> dict[str, Any]:
    """A matrix in a manifest, as JSON values."""
    s, fixed = m.layout.sparsity, m.layout.constants
    return {
        "name": m.given, "c_name": m.name, "result": m.result, "shape": list(s.shape),
        "format": s.format, "row": s.row.tolist(), "col": s.col.tolist(),
        "constants": None if fixed is None else {
            "entries": fixed[0].tolist(), "values": fixed[1].astype(np.float64).tolist()
        },
    }  # fmt: skip
