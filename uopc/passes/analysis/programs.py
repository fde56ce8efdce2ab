"""Programs in programs: the calls of one, with the storage of its caller."""

from __future__ import annotations

from collections.abc import Mapping

from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import arguments, outer_ranges
from uopc.ir.core.uop import UOp, intern


def loops_of(program: UOp) -> list[UOp]:
    """The loops around the calls of a program."""
    return list(dict.fromkeys([r for c in program.src for r in outer_ranges(c)]))


def calls_with(
    program: UOp, storage: Mapping[UOp, UOp], first: int, around: tuple[UOp, ...] = ()
) -> list[UOp]:
    """The calls of a program with other storage, inside of more loops. `first` is added to the axes
    of the program's own loops, so that they are not taken for others."""
    moved = rebuild.renamed_ranges({r: (r.arg.axis[0] + first,) for r in loops_of(program)})
    made = []
    for c in program.src:
        given = [rebuild.rebuild(a, storage) for a in arguments(c)]
        loops = [moved[r] for r in outer_ranges(c)]
        made.append(intern(Ops.CALL, dtypes.void, (c.src[0], *given, *around, *loops)))
        made[-1].origin = c.origin
    return made
