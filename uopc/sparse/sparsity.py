"""The structure of a sparse matrix, and a matrix with values from a graph or an array."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder.pytrees import LaidOut, register_pytree
from uopc.ir.records import dataclass

Places = npt.NDArray[np.int64]
Format = Literal["csc", "csr", "coo", "triplet"]
FORMATS = ("csc", "csr", "coo", "triplet")


class Sparsity:
    """The positions where a matrix may be nonzero: entry k stands at (row[k], col[k]).

    `row` and `col` are arrays of int64; `shape` is (rows, columns), `nnz` the number of entries.
    `format` says the order: "csc" by column and then by row, "csr" and "coo" by row and then by
    column, "triplet" any. Equal structures are equal, and hashable.

        >>> s = uopc.sparsity(lambda x: x[1:] * x[:-1])(np.ones(3))
        >>> s.row, s.col, s.shape
        (array([0, 0, 1, 1]), array([0, 1, 1, 2]), (2, 3))
    """

    __slots__ = ("_key", "col", "format", "row", "shape")

    def __init__(
        self, row: Any, col: Any, shape: tuple[int, int], format: Format = "triplet"
    ) -> None:
        self.row, self.col = _places("row", row, shape[0]), _places("col", col, shape[1])
        if self.row.shape != self.col.shape:
            raise UserError(f"Sparsity: {self.row.size} rows for {self.col.size} columns")
        self.shape, self.format = (int(shape[0]), int(shape[1])), format
        digest = hashlib.blake2b(self.row.tobytes() + self.col.tobytes(), digest_size=16)
        self._key = (*self.shape, format, digest.digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sparsity) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<Sparsity {self.shape[0]}x{self.shape[1]}, {self.nnz} entries, {self.format}>"

    @classmethod
    def of(cls, matrix: Any, format: Format = "csc") -> Sparsity:
        """The entries of a matrix of SciPy, including explicit zeros, or of an array.

        >>> uopc.Sparsity.of(np.eye(3)[:, :2])
        <Sparsity 3x2, 2 entries, csc>
        """
        if hasattr(matrix, "tocoo"):
            found = matrix.tocoo()
            return cls(found.row, found.col, matrix.shape).to(format)
        dense = np.asarray(matrix)
        if dense.ndim != 2:
            raise UserError(f"Sparsity: a matrix has 2 dimensions, got {dense.ndim}")
        row, col = np.nonzero(dense)
        return cls(row, col, (dense.shape[0], dense.shape[1])).to(format)

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return int(self.row.size)

    @property
    def T(self) -> Sparsity:
        """The structure of the transposed matrix; its entries are in the same order."""
        turned: dict[Format, Format] = {"csc": "csr", "csr": "csc", "coo": "csc"}
        return Sparsity(self.col, self.row, self.shape[::-1], turned.get(self.format, "triplet"))

    @property
    def indices(self) -> Places:
        """As in SciPy: the rows of the entries of a csc, the columns for other formats."""
        return self.row if self.format == "csc" else self.col

    @property
    def indptr(self) -> Places:
        """As in SciPy: the begin of each column of a csc, or row of other formats; and the end."""
        if self.format == "triplet":
            raise UserError("Sparsity: the format triplet has no indptr: take csc() or csr()")
        major, n = (self.col, self.shape[1]) if self.format == "csc" else (self.row, self.shape[0])
        counts = np.bincount(major, minlength=n)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def order(self, format: Format) -> Places:
        """The indices of the entries, sorted for a format."""
        if format not in FORMATS:
            raise UserError(f"Sparsity: format must be one of {', '.join(FORMATS)}, got {format!r}")
        if format == "triplet":
            return np.arange(self.nnz)
        keys = (self.row, self.col) if format == "csc" else (self.col, self.row)
        return np.lexsort(keys)

    def to(self, format: Format) -> Sparsity:
        """The same entries, sorted for a format."""
        at = self.order(format)
        return Sparsity(self.row[at], self.col[at], self.shape, format)

    def placed(self, rows: Any, cols: Any, shape: tuple[int, int]) -> Sparsity:
        """The structure of a matrix that consists of blocks of this structure, one after another.

        `rows` (count, rows of a block) and `cols` (count, columns of a block) are integers: row i
        of block k is row rows[k, i] of the matrix. So values of shape (count, nnz), such as `vmap`
        gives, are the data of the matrix. Blocks may share rows and columns; entries at the same
        position are added, as SciPy does. UserError if `rows` or `cols` has another shape.

        >>> block = uopc.Sparsity([0, 0], [0, 1], (1, 2))
        >>> stages = np.arange(3)[:, None]
        >>> print(block.placed(stages, stages + [0, 1], (3, 4)).spy())
        ██··
        ·██·
        ··██
        """
        at = [np.asarray(rows), np.asarray(cols)]
        for name, given, n in zip(("rows", "cols"), at, self.shape):
            if given.ndim != 2 or given.shape[1] != n or len(given) != len(at[0]):
                wanted = f"({len(at[0]) if at[0].ndim else 'count'}, {n})"
                raise UserError(
                    f"Sparsity: placed: {name} must have the shape {wanted}, got {given.shape}"
                )
        row, col = at[0][:, self.row], at[1][:, self.col]
        return Sparsity(row, col, shape)

    def csc(self) -> Sparsity:
        """By column, then by row."""
        return self.to("csc")

    def csr(self) -> Sparsity:
        """By row, then by column."""
        return self.to("csr")

    def coo(self) -> Sparsity:
        """By row, then by column; for SciPy's coo_array."""
        return self.to("coo")

    def todense(self) -> npt.NDArray[np.bool_]:
        """True where there is an entry."""
        dense = np.zeros(self.shape, np.bool_)
        dense[self.row, self.col] = True
        return dense

    def spy(self, width: int = 60) -> str:
        """The structure as text; a dot is a cell without entries.

        >>> print(uopc.sparsity(lambda x: x[1:] * x[:-1])(np.ones(4)).spy())
        ██··
        ·██·
        ··██
        """
        rows, columns = self.shape
        scale = max(1, -(-columns // width))
        cells = np.zeros((-(-rows // scale), -(-columns // scale)), np.bool_)
        cells[self.row // scale, self.col // scale] = True
        return "\n".join(["".join(["█" if c else "·" for c in line]) for line in cells])


def _places(name: str, values: Any, n: int) -> Places:
    found = np.array(values, np.int64).reshape(-1)
    if found.size and not (found.min() >= 0 and found.max() < n):
        raise UserError(f"Sparsity: a {name} is outside of 0..{n - 1}")
    found.flags.writeable = False
    return found


@dataclass(frozen=True, eq=False)
class Layout:
    """A sparse matrix without its values."""

    sparsity: Sparsity
    constants: tuple[Places, npt.NDArray[Any]] | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)

    def _key(self) -> tuple[Any, ...]:
        fixed = self.constants or ()
        return (self.sparsity, *[a.tobytes() for a in fixed])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, eq=False)
class Sparse(LaidOut):
    """A sparse matrix: `data[k]` is the value at (row[k], col[k]) of its `sparsity`.

    `data` is a node of a graph, or an array if a program or a function of `jit` gave the matrix. If
    `constants="split"` took entries that are numbers out of `data`, `constants` has them as a pair
    (which entries, their values). `statistics` says how the values are computed. You can make one
    from values and a Sparsity: `uopc.Sparse(data, sparsity)`.

        >>> J = uopc.jacobian(lambda x: x * x, format="csc")(np.array([1.0, 3.0]))
        >>> J.data, J.indices, J.indptr
        (array([2., 6.]), array([0, 1]), array([0, 1, 2]))
        >>> J.scipy().toarray()
        array([[2., 0.],
               [0., 6.]])
    """

    data: Any
    layout: Layout

    def __init__(self, data: Any, layout: Layout | Sparsity) -> None:
        made = Layout(layout) if isinstance(layout, Sparsity) else layout
        if not isinstance(made, Layout):
            raise UserTypeError(f"Sparse: expected values and a Sparsity, got {layout!r}")
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "layout", made)

    def __repr__(self) -> str:
        return f"<Sparse of {self.sparsity!r}>"

    @property
    def sparsity(self) -> Sparsity:
        """The positions of the entries."""
        return self.layout.sparsity

    @property
    def constants(self) -> tuple[Places, npt.NDArray[Any]] | None:
        """The indices and values of entries that are constants, if these are not in `data`."""
        return self.layout.constants

    @property
    def statistics(self) -> Mapping[str, Any]:
        """The way of computing values: the mode, the operations of each mode, boxes or colours."""
        return self.layout.statistics

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)"""
        return self.sparsity.shape

    @property
    def nnz(self) -> int:
        """The number of entries, including `constants`."""
        return self.sparsity.nnz

    @property
    def format(self) -> Format:
        """The order of the entries: "csc", "csr", "coo" or "triplet"."""
        return self.sparsity.format

    @property
    def row(self) -> Places:
        """The row of each entry."""
        return self.sparsity.row

    @property
    def col(self) -> Places:
        """The column of each entry."""
        return self.sparsity.col

    @property
    def indices(self) -> Places:
        """As in SciPy: see `Sparsity.indices`."""
        return self.sparsity.indices

    @property
    def indptr(self) -> Places:
        """As in SciPy: see `Sparsity.indptr`."""
        return self.sparsity.indptr

    @property
    def T(self) -> Sparse:
        """The transposed matrix, with the same values."""
        turned = Layout(self.sparsity.T, self.constants, self.statistics)
        return Sparse(self.data, turned)

    def values(self, data: Any = None) -> npt.NDArray[Any]:
        """All entries as an array. If `data` is a node, pass the values that a program gave for it,
        or the values of all entries. UserError for an array of another size."""
        found = np.asarray(self.data if data is None else data)
        if found.dtype == object:
            raise UserError("Sparse: data is a node: pass the array that a program computed for it")
        if found.shape == (self.nnz,):
            return found
        places, numbers = self.constants or (np.empty(0, np.intp), np.empty(0))
        computed = self.nnz - len(places)
        if found.shape != (computed,):
            raise UserError(f"Sparse: data must have the shape ({computed},), got {found.shape}")
        whole = np.empty(self.nnz, found.dtype)
        whole[places] = numbers
        left = np.ones(self.nnz, np.bool_)
        left[places] = False
        whole[left] = found
        return whole

    def scipy(self, data: Any = None) -> Any:
        """SciPy's array in the matrix's format: csc_array, csr_array or coo_array. Needs SciPy."""
        import scipy.sparse

        values, made = self.values(data), self.sparsity
        if made.format in ("csc", "csr"):
            kind = getattr(scipy.sparse, f"{made.format}_array")
            return kind((values, made.indices, made.indptr), made.shape)
        return scipy.sparse.coo_array((values, (made.row, made.col)), made.shape)

    def todense(self, data: Any = None) -> npt.NDArray[Any]:
        """The matrix as a dense array."""
        values = self.values(data)
        dense = np.zeros(self.shape, values.dtype)
        np.add.at(dense, (self.row, self.col), values)
        return dense


register_pytree(
    Sparse, lambda s: ((s.data,), s.layout), lambda layout, parts: Sparse(parts[0], layout)
)
