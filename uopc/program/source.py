"""The source of a program: the requests behind it, for stages and pickles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass
from uopc.program.backend import Backend
from uopc.program.request import Request, lower
from uopc.target import Target

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.passes.pass_manager import Lowered
    from uopc.program.request import Searched


@dataclass
class ProgramSource:
    """The requests of a program. `given`: the user's request, for pickles and exports, which run on
    other machines. `request`: with constant values that were computed for `machine`. `searched`:
    gives each kernel the Opts of the compile, see `lower`.

    The request is lowered again on demand, because graphs take more memory than code.
    """

    given: Request
    request: Request
    backend: Backend
    machine: Target
    searched: Searched | None = None

    @cached_property
    def lowered(self) -> Lowered:
        """The stages and the linear kernels."""
        return lower(self.request, self.machine, searched=self.searched)
