"""The conditions of the Opts. An Opt that would change a kernel's numbers raises `Refused`.

Only the order in which a reduce combines its values may change.
"""

from __future__ import annotations

from collections.abc import Iterable

from uopc.errors import Error
from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.iterations import is_ordered
from uopc.passes.analysis.loops import is_overwritten
from uopc.passes.optimize.opts.substitution import Tiled


class Refused(Error):
    """An Opt that is not legal here, and the reason.

    Expressions are rendered only when the message is read: a schedule tries many Opts.
    """

    def __init__(self, why: str, *expressions: UOp) -> None:
        super().__init__(why, *expressions)
        self.why, self.expressions = why, expressions

    def __str__(self) -> str:
        texts = [e.render(simplify=False) for e in self.expressions]
        return self.why.format(*texts) if texts else self.why


def check_amount(n: int, least: int = 1) -> None:
    """Refused if the amount is below the least one."""
    if n < least:
        raise Refused(f"the amount {n} is too small")


def check_no_amount(n: int) -> None:
    """Refused if an amount is given to an Opt that takes none."""
    if n:
        raise Refused(f"the amount is {n}, expected 0")


def check_free(kernel: UOp, r: UOp) -> None:
    """Refused if the length of another loop depends on the range."""
    if any([u is not r and r in ranges.ranges(u) for u in nest_of(kernel).ranges]):
        raise Refused("the length of another loop depends on this range")


def check_no_lanes(kernel: UOp, r: UOp) -> None:
    """Refused if values inside of the range have lanes."""
    if r in nest_of(kernel).around_vectors:
        raise Refused("values inside this range are vectors")
    if Tiled(kernel).has_lanes(r):
        raise Refused("values inside this range already have lanes")


def check_output(kernel: UOp, r: UOp, why: str) -> None:
    """Refused with the reason `why` if a REDUCE closes the range."""
    if nest_of(kernel).reduces_over(r):
        raise Refused(why)


def check_reduced(kernel: UOp, r: UOp) -> None:
    """Refused if no REDUCE closes the range."""
    if not nest_of(kernel).reduces_over(r):
        raise Refused("UNROLL is for reduce loops; use UPCAST")


def check_around_all(kernel: UOp, r: UOp) -> None:
    """Refused unless threads of a CPU can share the range: it must be around the whole kernel."""
    if r.arg.kind != "loop" or ranges.ranges(r.src[0]):
        raise Refused("only an output loop can be shared among threads")
    if any(q.arg.kind == "thread" for q in nest_of(kernel).axes):
        raise Refused("the kernel is shared among threads already")
    if any(u.op is not Ops.END or r not in u.src[1:] for u in kernel.src):
        raise Refused("the range must be around the whole kernel")
    check_parallel(kernel, loops_to(kernel, r), own_storage=True)


def check_unordered(kernel: UOp, r: UOp) -> None:
    """Refused if the iterations of the range must keep their order."""
    if any([is_overwritten(u, r) for u in nest_of(kernel).stores]):
        raise Refused("the iterations of the range write to one element, in order")
    check_parallel(kernel, [r])


def check_parallel(kernel: UOp, loops: Iterable[UOp], own_storage: bool = False) -> None:
    """Refused if the iterations of one of these loops must keep their order; see `is_ordered`."""
    if any(is_ordered(kernel, q, own_storage) for q in loops):
        raise Refused(
            "the iterations of the range must keep their order: an iteration may read or write an"
            " element that another writes"
        )


def loops_to(kernel: UOp, r: UOp) -> list[UOp]:
    """The range, and the output loops around it."""
    axis = r.arg.axis
    loops = [q for q in nest_of(kernel).ranges if q.arg.kind == r.arg.kind == "loop"]
    return [r, *[q for q in loops if q.arg.axis < axis]]


def check_not_read(kernel: UOp, stores: Iterable[UOp]) -> None:
    """Refused if the kernel reads storage that one of the stores writes."""
    if reads_written(kernel, stores):
        raise Refused("the kernel reads the storage that it writes")


def reads_written(kernel: UOp, stores: Iterable[UOp]) -> bool:
    """True if the kernel reads storage that one of the stores writes."""
    written = {storage_root(u.src[0]) for u in stores}
    return any(a.storage in written for a in nest_of(kernel).used)


def check_ahead(kernel: UOp, value: UOp) -> None:
    """Refused if a value depends on a store of the kernel, and so cannot be computed earlier."""
    written = {storage_root(u.src[0]) for u in nest_of(kernel).stores}
    for u in walk.toposort(value):
        if u.op is Ops.AFTER:
            raise Refused("the operand waits for a store")
        if u.op is Ops.INDEX and storage_root(u) in written:
            raise Refused("the kernel writes the storage that the operand reads")


def known_length(r: UOp) -> int:
    """The length of the range; Refused if it is not a constant."""
    if r.src[0].op is not Ops.CONST:
        raise Refused("the length of the range is not known")
    return ranges.length(r)


def only_reduce(kernel: UOp, r: UOp) -> UOp:
    """The REDUCE that closes the range; Refused unless there is exactly one."""
    found = nest_of(kernel).reduces_over(r)
    if len(found) != 1:
        raise Refused("exactly one reduce must close the range")
    return found[0]
