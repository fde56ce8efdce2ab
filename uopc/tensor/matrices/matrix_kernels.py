"""Kernels that factor matrices of a batch and solve with the factors: ordered loops per matrix.

    for b < batch: for k < n: for i: for block of columns: lanes j: w[b, i, j] -= ...

Every matrix is copied into storage with rows of whole blocks of lanes, so that no vector needs a
mask; the length of the code does not depend on n. The loop over the batch has no order: threads
share it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from uopc.ir.builder import alu, kernel, leaves, movement
from uopc.ir.builder.fold import bitcast
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop
from uopc.tensor import creation, elementwise

_LINE = 64  # bytes of a block of lanes: a line of a cache, and the widest vector
_FEW = 4  # columns that are solved one by one, their sums in lanes

Read = Callable[[UOp, UOp], UOp]


class MatrixKernel:
    """Builds a kernel: statements run in the order in which they are made."""

    def __init__(self, batch: Dim, dtype: DType) -> None:
        self.batch, self.dtype = batch, dtype
        self.width = _LINE // dtype.itemsize
        self.storage: list[UOp] = []  # by slot
        self._params: dict[UOp, UOp] = {}
        self._axes = itertools.count()
        self.b = self._range(self.batch)
        self._now: tuple[UOp, ...] = (self.b,)  # what a statement comes after

    # ------------------------------------------------------------ storage
    def given(self, a: UOp) -> UOp:
        """Store a value, and return its storage."""
        return self._used(elementwise.contiguous(a))

    def new(self, *dims: Dim, dtype: DType | None = None) -> UOp:
        """New storage of this shape for each matrix."""
        return self._used(creation.buffer((self.batch, *dims), dtype or self.dtype))

    def result(self, *dims: Dim, dtype: DType) -> UOp:
        """New storage of this shape, shared by all iterations."""
        return self._used(creation.buffer(dims, dtype))

    def _used(self, storage: UOp) -> UOp:
        slot = len(self.storage)
        self.storage.append(storage)
        self._params[storage] = creation.kernel_param(slot, shapes.shape(storage), storage.dtype)
        return storage

    def padded(self, n: Dim) -> Dim:
        """Round n up to a multiple of the lanes."""
        return as_dim(self._blocks(dim_uop(n)) * self.width)

    def _blocks(self, n: UOp) -> UOp:
        return (n + (self.width - 1)) // self.width

    # ------------------------------------------------------------ loops
    def _range(self, end: Dim, kind: Any = "loop") -> UOp:
        return kernel.range(end, next(self._axes), kind)

    @contextlib.contextmanager
    def each(self, n: Any) -> Iterator[UOp]:
        """Open a loop: its statements run for every i < n, in order."""
        i = self._range(as_dim(n))
        self._now = (*self._now, i)
        yield i
        self._now = (kernel.end(self._now[0], i),)

    @contextlib.contextmanager
    def lanes(self, end: Dim, first: UOp | None = None) -> Iterator[UOp]:
        """Open a loop over blocks of lanes, from the block of `first` to the last before `end`."""
        begin = None if first is None else first // self.width
        count = self._blocks(dim_uop(end))
        block = self._range(as_dim(count if begin is None else count - begin))
        lane = self._range(self.width, "lane")
        self._now = (*self._now, block)
        yield (block if begin is None else block + begin) * self.width + lane
        self._now = (kernel.end(self._now[0], block, lane),)

    @contextlib.contextmanager
    def vector(self, width: int) -> Iterator[UOp]:
        """Open one block of `width` lanes."""
        lane = self._range(width, "lane")
        self._now = (*self._now, lane)
        yield lane
        self._now = (kernel.end(self._now[0], lane),)

    # ------------------------------------------------------------ elements
    def anywhere(self, storage: UOp, *indices: Any) -> UOp:
        """Read the present element of storage that all iterations share."""
        return movement.index(kernel.after(self._params[storage], *self._now), *indices)

    def at(self, storage: UOp, *indices: Any) -> UOp:
        """Read the present element of this matrix."""
        return self.anywhere(storage, self.b, *indices)

    def set(self, storage: UOp, *indices: Any, to: Any) -> None:
        """Store an element of this matrix."""
        self.store([(self.at(storage, *indices), to)])

    def store(self, elements: list[tuple[UOp, Any]]) -> None:
        """Store elements by one statement; all values are read before any store."""
        self._now = (kernel.group(*[kernel.store(at, to) for at, to in elements]),)

    def sum(self, n: Any, term: Callable[[UOp], UOp]) -> UOp:
        """Sum the terms of all i < n."""
        i = self._range(as_dim(n))
        return movement.reduce(term(i), Ops.ADD, i)

    def best(self, n: Any, op: Any, term: Callable[[UOp], UOp]) -> UOp:
        """The maximum or minimum, by `op`, of the terms of all i < n."""
        i = self._range(as_dim(n))
        return movement.reduce(term(i), op, i)

    # ------------------------------------------------------------ the call
    def called(self, name: str, *results: UOp) -> tuple[UOp, ...]:
        """Run the kernel, and return the storage of these results."""
        short = f"{name}_{self.dtype.short}"
        sink = kernel.sink(kernel.end(self._now[0], self.b), name=short)
        call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, *self.storage)))
        return tuple([kernel.after(s, call) for s in results])


def below(i: UOp, n: Dim) -> UOp:
    """Return the index, or INVALID if it is not below n: then nothing is read or stored."""
    return alu.where(alu.binary(Ops.CMPLT, i, dim_uop(n)), i, UOp.invalid(dtypes.index))


# ---------------------------------------------------------------- Cholesky
def cholesky(a: UOp) -> UOp:
    """The lower factors L of a = L·Lᵀ; reads only the lower triangle of a.

    Row k of U = Lᵀ is row k of a, minus the products of the rows above, divided by the root of its
    diagonal (Golub and Van Loan, Matrix Computations, 4.2): sums in lanes along rows.
    """
    n = shapes.shape(a)[-1]
    s = MatrixKernel(shapes.shape(a)[0], a.dtype)
    wide = s.padded(n)
    out, given = s.new(n, n), s.given(a)
    u, row = s.new(n, wide), s.new(wide)
    with s.each(n) as i, s.lanes(n) as j:
        s.set(u, i, j, to=s.at(given, below(j, n), i))
    with s.each(n) as k:
        with s.lanes(n, k) as j:
            above = s.sum(k, lambda i: s.at(u, i, k) * s.at(u, i, j))
            s.set(row, j, to=s.at(u, k, j) - above)
        diagonal = s.at(row, k).sqrt()
        with s.lanes(n, k) as j:
            s.set(u, k, j, to=s.at(row, j) / diagonal)
    with s.each(n) as i, s.each(n) as j:
        s.set(out, i, j, to=alu.where(j <= i, s.at(u, j, i), 0))
    return s.called("cholesky", out)[0]


# ---------------------------------------------------------------- triangles
def _substitute(
    s: MatrixKernel, out: UOp, a: Read, rhs: Read, divided: bool, backward: bool
) -> None:
    """Solve a triangular system into `out`, row after row from the first (for an upper triangle
    from the last): out[i] = (rhs[i] - Σ a[i, k]·out[k] over the rows before) / a[i, i]."""
    _, n, m = shapes.shape(out)

    def place(i: UOp) -> UOp:
        return dim_uop(n) - 1 - i if backward else i

    def solved(step: UOp, r: UOp) -> None:
        i = place(step)
        known = s.sum(step, lambda k: a(i, place(k)) * s.at(out, place(k), r))
        left = rhs(i, r) - known
        s.set(out, i, r, to=left / a(i, i) if divided else left)

    with s.each(n) as step:
        if isinstance(m, int) and m <= _FEW:
            with s.each(m) as r:
                solved(step, r)
        else:
            with s.lanes(m) as r:
                solved(step, below(r, m))


def forward_substitution(a: UOp, b: UOp, unit: bool) -> UOp:
    """Solve a·x = b for lower triangles a (Golub and Van Loan, 3.1). `unit`: take their diagonals
    as 1, whatever is stored there."""
    s = MatrixKernel(shapes.shape(a)[0], a.dtype)
    out = s.new(*shapes.shape(b)[1:])
    left, right = s.given(a), s.given(b)
    _substitute(
        s, out, lambda i, k: s.at(left, i, k), lambda i, r: s.at(right, i, r), not unit, False
    )
    return s.called("solve_triangular", out)[0]


# ---------------------------------------------------------------- elimination
def _order_type(t: DType) -> DType:
    return dtypes.int32 if t.itemsize == 4 else dtypes.int64


def _order(x: UOp) -> UOp:
    """An integer that grows with the magnitude of a float; the greatest for NaN."""
    t = _order_type(x.dtype)
    return bitcast(x, t) & ((1 << (t.itemsize * 8 - 1)) - 1)


def _eliminated(s: MatrixKernel, a: UOp, b: UOp | None) -> tuple[UOp, UOp]:
    """Storage of [a | b] after Gaussian elimination with partial pivoting (Golub and Van Loan,
    3.4), where a is an upper triangle; and storage of the pivots, negated for each exchange of
    rows.

    A column of zeros has pivot 0 and eliminates nothing; a NaN is preferred as a pivot, so that the
    result shows it. `column` is the next column to eliminate.
    """
    n = shapes.shape(a)[-1]
    m = 0 if b is None else shapes.shape(b)[-1]
    all_columns = as_dim(dim_uop(n) + dim_uop(m))
    w, pivots = s.new(n, s.padded(all_columns)), s.new(n)
    column, factors, row = s.new(s.padded(n)), s.new(s.padded(n)), s.new(s.padded(all_columns))
    given = s.given(a)
    right = None if b is None else s.given(b)
    with s.each(n) as i, s.lanes(n) as j:
        s.set(w, i, j, to=s.at(given, i, below(j, n)))
    if right is not None:
        with s.each(n) as i, s.each(m) as r:
            s.set(w, i, r + n, to=s.at(right, i, r))
    with s.lanes(n) as i:
        s.set(column, i, to=s.at(given, below(i, n), below(dim_uop(0), n)))
    last = dim_uop(n) - 1
    with s.each(n) as k:
        left = last + 1 - k
        most = s.best(left, Ops.MAX, lambda i: _order(s.at(column, i + k)))

        def place(i: UOp, k: UOp = k, most: UOp = most) -> UOp:
            return alu.where(_order(s.at(column, i + k)).eq(most), i + k, last)

        p = s.best(left, Ops.MIN, place).minimum(last)  # a bound that can be seen
        pivot = s.at(column, p)
        s.set(pivots, k, to=alu.where(p.eq(k), pivot, -pivot))
        with s.lanes(n, k) as i:
            value = alu.where(i.eq(p), s.at(column, k), s.at(column, i))
            s.set(factors, i, to=alu.where(pivot.eq(0), 0, value / pivot))
        with s.lanes(all_columns, k) as j:
            s.set(row, j, to=alu.where(j >= k, s.at(w, p, j), 0))
        with s.lanes(all_columns, k) as j:
            s.set(w, p, j, to=s.at(w, k, j))
        with s.lanes(all_columns, k) as j:
            s.set(w, k, j, to=s.at(row, j))
        with s.each(left - 1) as rest:
            i = rest + k + 1
            with s.lanes(all_columns, k) as j:
                s.set(w, i, j, to=s.at(w, i, j) - s.at(factors, i) * s.at(row, j))
            s.set(column, i, to=s.at(w, i, (k + 1).minimum(last)))
    return w, pivots


def solve(a: UOp, b: UOp) -> UOp:
    """Solve a·x = b for x."""
    n = shapes.shape(a)[-1]
    s = MatrixKernel(shapes.shape(a)[0], a.dtype)
    out = s.new(*shapes.shape(b)[1:])
    w, _ = _eliminated(s, a, b)
    _substitute(s, out, lambda i, k: s.at(w, i, k), lambda i, r: s.at(w, i, r + n), True, True)
    return s.called("solve", out)[0]


def signed_pivots(a: UOp) -> UOp:
    """For each matrix, numbers that multiply to its determinant."""
    s = MatrixKernel(shapes.shape(a)[0], a.dtype)
    _, pivots = _eliminated(s, a, None)
    return s.called("pivots", pivots)[0]


# ---------------------------------------------------------------- Householder
def _find_reflection(
    s: MatrixKernel, w: UOp, c: UOp, vectors: UOp, factors: UOp, divisor: UOp
) -> None:
    """Store the vector v of the reflection 1 - t·v·vᵀ that makes column c of w zero below row c, as
    row c of `vectors`; and t, which is 0 if the column is zero there already (Golub and Van Loan,
    5.1; the signs are LAPACK's). The column is scaled, so that its squares neither overflow nor
    vanish."""
    m = shapes.shape(w)[1]
    with s.lanes(m) as i:
        read = s.at(w, i.minimum(dim_uop(m) - 1), c)  # behind m: a number that nothing reads
        s.set(vectors, c, i, to=alu.where(i >= c, read, 0))
    most = s.best(m, Ops.MAX, lambda i: abs(s.at(vectors, c, i)))
    rest = s.best(m, Ops.MAX, lambda i: alu.where(i > c, abs(s.at(vectors, c, i)), 0))
    scale = alu.where(most.eq(0), 1, most)

    def square(i: UOp) -> UOp:
        x = s.at(vectors, c, i) / scale
        return x * x

    norm, first = s.sum(m, square).sqrt(), s.at(vectors, c, c) / scale
    beta = alu.where(first < 0, norm, -norm)
    is_zero = rest.eq(0)
    s.set(factors, c, to=alu.where(is_zero, 0, (beta - first) / beta))
    s.set(divisor, 0, to=alu.where(is_zero, 1, first - beta) * scale)
    with s.lanes(m) as i:
        rounded = s.at(vectors, c, i) / s.at(divisor, 0)
        s.set(vectors, c, i, to=alu.where(i.eq(c), 1, rounded))


def _reflect(
    s: MatrixKernel, w: UOp, columns: Dim, vectors: UOp, row: UOp, factor: UOp, c: UOp
) -> None:
    """w = (1 - t·v·vᵀ)·w for the columns from c on, with v from row c of `vectors`, 0 above c."""
    m = shapes.shape(w)[1]
    with s.lanes(columns, c) as j:
        product = s.sum(dim_uop(m) - c, lambda i: s.at(vectors, c, i + c) * s.at(w, i + c, j))
        s.set(row, j, to=factor * product)
    with s.each(dim_uop(m) - c) as step, s.lanes(columns, c) as j:
        i = step + c
        s.set(w, i, j, to=s.at(w, i, j) - s.at(vectors, c, i) * s.at(row, j))


def qr(a: UOp, complete: bool) -> tuple[UOp, UOp]:
    """Orthonormal columns q and upper triangles r of a = q·r (Golub and Van Loan, 5.2)."""
    _, m, n = shapes.shape(a)
    least = as_dim(dim_uop(m).minimum(dim_uop(n)))
    columns = m if complete else least
    s = MatrixKernel(shapes.shape(a)[0], a.dtype)
    q_out, r_out = s.new(m, columns), s.new(columns, n)
    w, q = s.new(m, s.padded(n)), s.new(m, s.padded(columns))
    vectors, factors, divisor = s.new(least, s.padded(m)), s.new(least), s.new(1)
    row = s.new(as_dim(dim_uop(s.padded(n)).maximum(dim_uop(s.padded(m)))))
    given = s.given(a)
    with s.each(m) as i, s.lanes(n) as j:
        s.set(w, i, j, to=s.at(given, i, below(j, n)))
    with s.each(least) as c:
        _find_reflection(s, w, c, vectors, factors, divisor)
        _reflect(s, w, n, vectors, row, s.at(factors, c), c)
    with s.each(m) as i, s.lanes(columns) as j:
        s.set(q, i, j, to=alu.where(i.eq(j), 1, leaves.const(s.dtype, 0)))
    with s.each(least) as step:
        c = dim_uop(least) - 1 - step
        _reflect(s, q, columns, vectors, row, s.at(factors, c), c)
    with s.each(m) as i, s.each(columns) as j:
        s.set(q_out, i, j, to=s.at(q, i, j))
    with s.each(columns) as i, s.each(n) as j:
        s.set(r_out, i, j, to=alu.where(i <= j, s.at(w, i, j), 0))
    made = s.called("qr", q_out, r_out)
    return made[0], made[1]


# ---------------------------------------------------------------- to a diagonal
def _beside_ones(s: MatrixKernel, given: UOp, w: UOp, i: UOp, n: Dim) -> None:
    """Write row i of [a | 1], and row i of the identity below a."""
    with s.lanes(n) as j:
        s.set(w, i, j, to=s.at(given, i, below(j, n)))
    one = leaves.const(s.dtype, 1)
    with s.each(n) as j:
        s.set(w, i, j + n, to=alu.where(i.eq(j), one, 0))
    with s.lanes(n) as j:
        s.set(w, i + n, j, to=alu.where(i.eq(j), one, 0))


def _first_greatest(s: MatrixKernel, k: UOp, last: UOp, order: Callable[[UOp], UOp]) -> UOp:
    """The first index, from k to `last`, of the greatest number."""
    left = last + 1 - k
    greatest = s.best(left, Ops.MAX, lambda i: order(i + k))
    found = s.best(left, Ops.MIN, lambda i: alu.where(order(i + k).eq(greatest), i + k, last))
    return found.minimum(last)  # a bound that can be seen


def diagonalized(a: UOp) -> tuple[UOp, UOp, UOp]:
    """Numbers d, and matrices e and f with e·a·f = diag(d) and det(e)·det(f) = 1.

    Gaussian elimination with complete pivoting (Golub and Van Loan, 3.4) of rows and of columns, in
    [a | 1] and in the identity below a. No factor exceeds 1, so e and f are as well conditioned as
    triangles of such factors. If a has no inverse, all pivots after its rank are 0.
    """
    batch, n, _ = shapes.shape(a)
    s = MatrixKernel(batch, a.dtype)
    d, e, f = s.new(n), s.new(n, n), s.new(n, n)
    both = as_dim(dim_uop(n) + dim_uop(n))
    w, line = s.new(both, s.padded(both)), s.new(s.padded(both))
    ratios, held = s.new(s.padded(n)), s.new(1)
    most, sign = s.new(n, dtype=_order_type(a.dtype)), s.new(n)  # by row, its greatest element
    given, last = s.given(a), dim_uop(n) - 1
    one = leaves.const(a.dtype, 1)
    with s.each(n) as i:
        _beside_ones(s, given, w, i, n)
        s.set(most, i, to=s.best(n, Ops.MAX, lambda j: _order(s.at(w, i, j))))
    with s.each(n) as k:
        left = last + 1 - k
        first = functools.partial(_first_greatest, s, k, last)
        p = first(lambda i: s.at(most, i))
        with s.lanes(both) as j:
            s.set(line, j, to=s.at(w, p, j))
        q = first(lambda j: _order(s.at(line, j)))
        with s.lanes(both) as j:
            s.set(w, p, j, to=s.at(w, k, j))
        with s.lanes(both) as j:
            s.set(w, k, j, to=s.at(line, j))
        s.set(sign, k, to=alu.where(p.eq(k).eq(q.eq(k)), one, -1))
        s.set(d, k, to=s.at(line, q))
        with s.each(both) as i:
            s.set(held, 0, to=s.at(w, i, q))
            s.set(w, i, q, to=s.at(w, i, k))
            s.set(w, i, k, to=s.at(held, 0))
        pivot = s.at(d, k)
        with s.lanes(both) as j:
            s.set(line, j, to=alu.where(j > k, s.at(w, k, j), 0))
        with s.lanes(n) as j:
            s.set(ratios, j, to=alu.where(pivot.eq(0), 0, s.at(line, j) / pivot))
        with s.each(left - 1) as rest:
            i = rest + k + 1
            s.set(held, 0, to=alu.where(pivot.eq(0), 0, s.at(w, i, k) / pivot))
            with s.lanes(both, k) as j:
                s.set(w, i, j, to=s.at(w, i, j) - s.at(held, 0) * s.at(line, j))
            s.set(most, i, to=s.best(left - 1, Ops.MAX, lambda j: _order(s.at(w, i, j + k + 1))))
        with s.each(n) as rest:
            i = rest + n
            s.set(held, 0, to=s.at(w, i, k))
            with s.lanes(n, k) as j:
                s.set(w, i, j, to=s.at(w, i, j) - s.at(held, 0) * s.at(ratios, j))
    with s.each(n) as i:
        s.set(d, i, to=s.at(d, i) * s.at(sign, i))
        with s.each(n) as j:
            s.set(e, i, j, to=s.at(w, i, j + n) * s.at(sign, i))
        with s.each(n) as j:
            s.set(f, i, j, to=s.at(w, i + n, j))
    made = s.called("diagonalized", d, e, f)
    return made[0], made[1], made[2]
