"""The work of a kernel: the operations that it does, and the bytes of the storage it touches.

An operation is one arithmetic operation of the graph on one element, an add as well as an exp. A
*step* is one of the processor: a function of floats takes those of its chain in the op table, and
divisions and square roots are counted on their own, as a processor has another unit for them. Bytes
count each element of the storage that a kernel touches once, by its buffers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from uopc.backends.plan import DimValue
from uopc.ir.builder import leaves, rebuild
from uopc.ir.builder.loops import with_loops
from uopc.ir.core import dtypes, ranges, shapes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.ir.nest.arithmetic import DIVISIONS, chain, is_function
from uopc.ir.nest.nest import nest_of
from uopc.ir.records import dataclass
from uopc.ir.text.source_lines import source_lines


class Touched(NamedTuple):
    """The bytes of one buffer that a kernel accesses, and whether it writes the buffer.

    `slot`: the number of the buffer among the kernel's parameters; -1 for memory of its own.

    Examples:
        >>> launch = uopc.compile(uopc.param("x", (64,)) * 2).launches[0]
        >>> [(t.slot, str(t.nbytes), t.written) for t in launch.work.touched]
        [(0, '256', True), (1, '256', False)]
    """

    slot: int
    nbytes: DimValue
    written: bool


@dataclass(frozen=True)
class Work:
    """The work of one launch. Sizes may be symbolic.

    `operations` and `nbytes` are ints, or expressions over variables; `dtype` is the dtype of most
    operations; `ops` and `lines` are text for users.

    Examples:
        >>> launch = uopc.compile(uopc.param("x", (64,)) * 2).launches[0]
        >>> launch.work.ops, launch.work.dtype
        ('mul', dtypes.float32)
    """

    operations: DimValue
    nbytes: DimValue  # of the storage that it touches
    dtype: DType | None  # of most operations: of floats, where there are any
    ops: str
    lines: str
    touched: tuple[Touched, ...]  # of which buffers these bytes are
    steps: DimValue  # of the processor
    divisions: DimValue  # of floats, and square roots, that its steps do not contain

    @property
    def floats(self) -> bool:
        """True if the counted operations are on floats.

        Examples:
            >>> uopc.compile(uopc.param("x", (64,)) * 2).launches[0].work.floats
            True
        """
        return self.dtype is not None and self.dtype.is_float

    def counts(self, values: Mapping[str, int]) -> tuple[int, int]:
        """Operations and bytes, for these values of the variables.

        Examples:
            >>> n = uopc.variable("n", 1, 100)
            >>> launch = uopc.compile(uopc.param("x", (n,)) * 2).launches[0]
            >>> launch.work.counts({"n": 10})
            (10, 80)
        """
        return self.operations.evaluate(values), self.nbytes.evaluate(values)


def measure(kernel: UOp, nodes: list[UOp]) -> Work:
    """The work of a kernel as split-kernels made it; `nodes` are those of the user's lines.

    If a hand-written kernel has values with shapes, they get loops first.
    """
    kernel = with_loops(kernel)

    def times(loops: Iterable[UOp]) -> Any:
        return math.prod([_length(r) for r in loops], start=UOp.const(dtypes.index, 1))

    operations = steps = divisions = zero = UOp.const(dtypes.index, 0)
    nest = nest_of(kernel)
    reached: dict[UOp, UOp] = {}  # by storage: accesses to it
    for a in nest.accesses:
        if a.storage.op is not Ops.BUFFER or a.storage.arg.space == "global":  # else a tile
            reached[a.storage] = reached.get(a.storage, zero) + times(a.loops)
    names: dict[str, None] = {}
    often: Counter[DType] = Counter()
    for u in nest.order:
        if u.op is Ops.REDUCE or (u.op.is_alu and u.op is not Ops.WHERE):
            if u.src[0].dtype.scalar is dtypes.index:
                continue
            names[f"reduce.{u.arg.op}" if u.op is Ops.REDUCE else u.op.name] = None
            often[u.src[0].dtype.scalar] += 1
            inside = ranges.ranges(u.src[0]) | set(u.src[1:]) if u.op is Ops.REDUCE else ()
            repeats = times(inside or ranges.ranges(u))
            operations += repeats * (2 if u.op is Ops.MULACC else 1)
            taken = _steps(u)
            steps, divisions = steps + repeats * taken[0], divisions + repeats * taken[1]
    stored = {storage_root(u.src[0]) for u in nest.stores}
    nbytes, touched = zero, []
    for p, accesses in reached.items():
        own = accesses.minimum(dim_uop(shapes.size(shapes.shape(p)))) * p.dtype.itemsize
        nbytes += own
        slot = p.arg.slot if p.op is Ops.PARAM else -1
        touched.append(Touched(slot, DimValue.of(own), p in stored))
    work = DimValue.of(operations), DimValue.of(nbytes)
    floats = {t: n for t, n in often.items() if t.is_float} or often
    most = max(floats, key=lambda t: (floats[t], t.itemsize), default=None)
    texts = " ".join(names), ", ".join(source_lines(nodes))
    taken_by = tuple(sorted(touched, key=lambda t: t.slot))
    return Work(*work, most, *texts, taken_by, DimValue.of(steps), DimValue.of(divisions))


def _length(loop: UOp) -> UOp:
    """The iterations of a loop. If the length follows an outer loop, the length in the middle of
    that loop; if only values decide it, one."""
    known: dict[UOp, UOp] = {}
    for u in walk.toposort(loop.src[0]):
        if u.op is Ops.RANGE:
            known[u] = rebuild.rebuild(u.src[0], known) // 2
        elif u.op not in (Ops.CONST, Ops.VARIABLE, Ops.WHERE) and u.op.fold is None:
            known[u] = UOp.const(u.dtype, 1)
    return rebuild.rebuild(loop.src[0], known)


def _steps(u: UOp) -> tuple[int, int]:
    """The processor steps of an operation on one element, and its divisions."""
    if is_function(u):
        found = chain(u)
        return found.operations + found.multiplications - found.divisions, found.divisions
    if u.dtype.is_float and u.op in DIVISIONS:
        constant = u.op is Ops.FDIV and leaves.constant_in(u.src[1]) is not None
        return (_BY_A_CONSTANT, 0) if constant else (0, 1)
    return (2 if u.op is Ops.MULACC else max(1, int(u.op.cost))), 0


_BY_A_CONSTANT = 4  # a product, and what makes its last bit exact: see float_division.py
