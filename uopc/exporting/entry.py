"""The exported function, which checks its sizes and runs its launches: one walk for all languages.

    refuse sizes out of their bounds, then conditions that do not hold, by number
    for each launch, in order, repeated launches in a loop:
        give the caller the lengths that are known now; refuse those out of their bounds, and
        conditions on them that do not hold
        run the parts of the kernel one after another, or hand them to the caller's `run`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from uopc.backends.plan import Dim, PlannedLaunch, Row, nested
from uopc.exporting.exported import Exported, ExportedLength, Size
from uopc.exporting.sizes import expression
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern

_RELATIONS = {"equal": Ops.CMPEQ, "at most": Ops.CMPLE, "below": Ops.CMPLT}


class EntryWriter(ABC):
    """Writes the function in a language, by the statements that a subclass prints."""

    def __init__(self, f: Exported) -> None:
        self.f = f
        self.known: set[str] = set()  # lengths, by the user's names

    def write(self) -> None:
        """Write the statements of the function, in order."""
        f = self.f
        for number, size in enumerate(f.sizes, 1):
            self.refuse_size(size, number)
        self._refuse_conditions(frozenset())
        self.know_sizes()
        for part in nested(len(f.plan.launches), f.plan.repeats):
            self._know_lengths(part if isinstance(part, int) else part[0].first)
            self._row([part])
        self._know_lengths(len(f.plan.launches))

    def _know_lengths(self, launch: int) -> None:
        """Take the lengths that are known before a launch."""
        known = [x for x in self.f.lengths if x.launch == launch]
        for x in known:
            self.take_length(x, 1 + len(self.f.sizes) + len(self.f.plan.conditions)
                             + self.f.lengths.index(x))  # fmt: skip
            self.known.add(x.given)
        if known:
            self._refuse_conditions(frozenset([x.given for x in known]))
            self.know_sizes()

    def _refuse_conditions(self, new: frozenset[str]) -> None:
        """Refuse the conditions that depend on new lengths, and on no unknown ones."""
        f, lengths = self.f, self.f.room.keys()
        for number, c in enumerate(f.plan.conditions, 1 + len(f.sizes)):
            of = [d.variables for d in (c.left, c.right) if not isinstance(d, int)]
            needed = lengths & frozenset[str]().union(*of)
            if needed <= self.known and (needed & new if new else not needed):
                sides = expression(c.left, f), expression(c.right, f)
                self.refuse_unless(intern(_RELATIONS[c.relation], dtypes.bool_, sides), number)

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
    def take_length(self, length: ExportedLength, number: int) -> None:
        """Read a length, give it to the caller, and return the number if it is out of its
        bounds."""

    @abstractmethod
    def know_sizes(self) -> None:
        """Compute what launches use of the sizes and lengths that are known."""

    @abstractmethod
    def repeated(self, times: Dim) -> AbstractContextManager[object]:
        """Repeat the statements inside."""

    @abstractmethod
    def launch(self, launch: PlannedLaunch) -> None:
        """Run a launch."""


def is_shared(f: Exported, launch: PlannedLaunch) -> bool:
    """True if the caller runs the parts of a launch."""
    return f.threads > 1 and launch.parallel
