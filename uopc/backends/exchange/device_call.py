"""A call of one device, in order: actions, and the exchanges between them.

    launches 0-2 │ ALLREDUCE │ launch 3 │ ALLGATHER │ launches 4-7        one DeviceCall
    └─ Phase 1 ─────────────┘└─ Phase 2 ────────────┘└─ Phase 3 ──┘       what its `phases` give

A phase runs up to an exchange and leaves the exchange to the caller, who has the same step of the
other devices, too. Loops around exchanges stay loops; an `Await` marks where an exchange that
started early must be over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from uopc.backends.plan import Exchange
from uopc.ir.records import dataclass

Action = Callable[[], object]
Started = Callable[[], Action]  # starts an exchange, and gives what waits for it


class ExchangeStep(NamedTuple):
    """An exchange with this device's memory: arrays of NumPy or of a GPU; `got` may be `sent`
    itself. `after`: the actions that follow the exchange."""

    exchange: Exchange
    sent: Any
    got: Any
    after: Sequence[Action] = ()


class Await(NamedTuple):
    """The point of a call where an exchange, by its number in the program, must be over."""

    number: int


class CallLoop(NamedTuple):
    """Parts of a call that repeat, with exchanges among them."""

    times: int
    parts: list[Any]


class Phase(NamedTuple):
    """The actions of a device between two exchanges, and the second exchange; None at the end of
    the program."""

    actions: list[Action]
    step: ExchangeStep | None

    def run(self) -> ExchangeStep | None:
        """Run the actions, and return the exchange for the caller to do."""
        for act in self.actions:
            act()
        return self.step


@dataclass(eq=False)
class DeviceCall:
    """A call of one device's program in given memory."""

    parts: list[Action | ExchangeStep | Await | CallLoop]  # in order
    memory: tuple[object, ...]  # of addresses, and of the tables of launches

    def phases(self) -> Iterator[Phase]:
        """The phases of the call. Each exchange is over before the next launch."""
        actions = list[Action]()
        for part in _in_turn(self.parts):
            if isinstance(part, ExchangeStep):
                yield Phase(actions, part)
                actions = [*part.after]
            elif not isinstance(part, Await):
                actions.append(part)
        yield Phase(actions, None)


def _in_turn(parts: Iterable[Any]) -> Iterator[Any]:
    """Parts in the order of execution, with loops repeated."""
    for part in parts:
        if isinstance(part, CallLoop):
            for _ in range(part.times):
                yield from _in_turn(part.parts)
        else:
            yield part
