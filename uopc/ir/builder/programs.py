"""Put programs into programs: calls on a caller's storage, loops around the calls, and slots of new
storage."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping

from uopc.errors import InvalidIR
from uopc.ir.builder import leaves, rebuild
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.args import RangeArg
from uopc.ir.core.calls import written_slot
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import arguments, outer_ranges, storage_root
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass


@dataclass(frozen=True)
class Scheduled:
    """A function's body as a program, a LINEAR of CALLs, and the storage of its outputs."""

    program: UOp
    outputs: tuple[UOp, ...]


Schedule = Callable[[UOp], Scheduled]


class Slots:
    """Numbers after those of the graph's own BUFFERs; each call returns the next number."""

    def __init__(self, graph: UOp) -> None:
        self._graph = graph
        self._made = itertools.count()

    def __call__(self) -> int:
        return self.first + next(self._made)

    @cached_property
    def first(self) -> int:
        order = walk.toposort(self._graph, walk.outside_kernels(self._graph))
        return 1 + max([u.arg.slot for u in order if u.op is Ops.BUFFER], default=-1)

    @cached_property
    def outside(self) -> frozenset[UOp]:
        """The BUFFERs that the graph has outside of the bodies of functions."""
        bodies = (Ops.FUNCTION, *walk.CALLED)
        order = walk.toposort(self._graph, lambda u: u is self._graph or u.op not in bodies)
        return frozenset([u for u in order if u.op is Ops.BUFFER])


def with_kernels(program: UOp, new: Mapping[UOp, UOp]) -> UOp:
    """Replace some kernels that a program calls."""
    calls = []
    for c in program.src:
        calls.append(intern(c.op, c.dtype, (new.get(c.src[0], c.src[0]), *c.src[1:]), c.arg, c.tag))
        set_origin(calls[-1], calls[-1].origin or c.origin)
    return intern(program.op, program.dtype, tuple(calls), program.arg, program.tag)


def loops_of(program: UOp) -> list[UOp]:
    """The loops around the calls of a program."""
    return list(dict.fromkeys([r for c in program.src for r in outer_ranges(c)]))


def calls_with(
    program: UOp, storage: Mapping[UOp, UOp], first: int, around: tuple[UOp, ...] = ()
) -> list[UOp]:
    """Copy a program's calls onto other storage inside of more loops. `first` offsets the axes of
    the program's own loops to keep them unique."""
    moved = rebuild.renamed_ranges({r: (r.arg.axis[0] + first,) for r in loops_of(program)})
    made = []
    for c in program.src:
        given = [rebuild.rebuild(a, storage) for a in arguments(c)]
        loops = [moved[r] for r in outer_ranges(c)]
        made.append(intern(Ops.CALL, dtypes.void, (c.src[0], *given, *around, *loops)))
        set_origin(made[-1], c.origin)
    return made


def repeated(call: UOp, schedule: Schedule | None, slots: Slots) -> tuple[UOp, ...]:
    """The outputs of a call that repeats its function, after one call of a program: the function's
    kernels in a loop.

    call (function …), storage…, n  →  call (linear (call kernel, params…, range n)…), storage…
    """
    function, *args, times = call.src
    if schedule is None:
        raise InvalidIR("a function that repeats needs a schedule of functions")
    made = schedule(function)
    written = [written_slot(value) for value in function.src]
    own = {slot: _holding(args[slot], slots) for slot in written if slot is not None}
    if len(own) < len(written):
        raise InvalidIR("a function that repeats must give params after writes")
    params: dict[UOp, UOp] = {}  # storage of the function -> its PARAM in the program
    given: list[UOp] = []
    for root in [storage_root(a) for c in made.program.src for a in arguments(c)]:
        if root.op is Ops.VARIABLE or root in params:
            continue
        params[root] = leaves.param(len(params), root.dtype, shapes.shape(root))
        if root.op is Ops.PARAM and root.arg.slot >= 0:
            given.append(own.get(root.arg.slot, args[root.arg.slot]))
        else:
            given.append(new_buffer(root, slots) if root.op is Ops.BUFFER else root)
    around = intern(Ops.RANGE, times.dtype, (times,), RangeArg((0,), "outer"))
    calls = calls_with(made.program, params, 1, (around,))
    program = intern(Ops.LINEAR, dtypes.void, tuple(calls))
    effect = intern(Ops.CALL, dtypes.void, (program, *given))
    set_origin(effect, call.origin)
    return tuple([intern(Ops.AFTER, r.dtype, (r, effect)) for r in own.values()])


def _holding(value: UOp, slots: Slots) -> UOp:
    """New storage with a copy of a value; storage without content needs no copy."""
    if value.op is Ops.BUFFER:
        return new_buffer(value, slots)
    storage = leaves.buffer(slots(), value.dtype, shapes.shape(value))
    effect = intern(Ops.STORE, dtypes.void, (storage, value))
    return intern(Ops.AFTER, value.dtype, (storage, effect))


def new_buffer(buffer: UOp, slots: Slots) -> UOp:
    """New storage of the same kind."""
    arg = dataclasses.replace(buffer.arg, slot=slots())
    return intern(Ops.BUFFER, buffer.dtype, buffer.src, arg)
