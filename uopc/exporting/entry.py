"""The exported function, which checks its sizes and runs its launches: one walk for all languages.

    refuse sizes out of their bounds, then conditions that do not hold, by number
    for each launch, in order, repeated launches in a loop:
        run the parts of the kernel one after another, or hand them to the caller's `run`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from uopc.backends.plan import Dim, PlannedLaunch, Row, nested
from uopc.exporting.exported import Exported, Size
from uopc.exporting.sizes import expression
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern

_RELATIONS = {"equal": Ops.CMPEQ, "at most": Ops.CMPLE, "below": Ops.CMPLT}


class EntryWriter(ABC):
    """Writes the function in a language, by the statements that a subclass prints."""

    def __init__(self, f: Exported) -> None:
        self.f = f

    def write(self) -> None:
        """Write the statements of the function, in order."""
        f = self.f
        for number, size in enumerate(f.sizes, 1):
            self.refuse_size(size, number)
        for number, holds in enumerate(_conditions(f), 1 + len(f.sizes)):
            self.refuse_unless(holds, number)
        self.before_launches()
        self._row(nested(len(f.plan.launches), f.plan.repeats))

    def _row(self, row: Row) -> None:
        for part in row:
            if isinstance(part, int):
                self.launch(self.f.plan.launches[part])
            else:
                repeat, inner = part
                with self.repeated(repeat.times):
                    self._row(inner)

    @abstractmethod
    def refuse_size(self, size: Size, number: int) -> None:
        """Return the number if a size is out of its bounds."""

    @abstractmethod
    def refuse_unless(self, holds: UOp, number: int) -> None:
        """Return the number unless a condition holds."""

    @abstractmethod
    def before_launches(self) -> None:
        """Compute what all launches use."""

    @abstractmethod
    def repeated(self, times: Dim) -> AbstractContextManager[object]:
        """Repeat the statements inside."""

    @abstractmethod
    def launch(self, launch: PlannedLaunch) -> None:
        """Run a launch."""


def is_shared(f: Exported, launch: PlannedLaunch) -> bool:
    """True if the caller runs the parts of a launch."""
    return f.threads > 1 and launch.parallel


def _conditions(f: Exported) -> list[UOp]:
    """The conditions that sizes must meet besides their bounds."""
    made = []
    for c in f.plan.conditions:
        sides = expression(c.left, f), expression(c.right, f)
        made.append(intern(_RELATIONS[c.relation], dtypes.bool_, sides))
    return made
