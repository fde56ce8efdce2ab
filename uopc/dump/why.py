"""Why values are stored and kernels are as they are, in lines: `uopc dump --why`, and the report.

A value has the decision of place-stages, with the ways that were compared by the cycles and the
traffic of the kernels that result. A kernel has the schedules that were compared, and the kernels
to which it is not joined: those whose stored values it reads, and those in the same loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from uopc.dump.comparisons import texts_of
from uopc.dump.fusion_report import Decision
from uopc.dump.kernel_costs import kernel_costs
from uopc.dump.stages import Dump
from uopc.errors import UserError
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import read_slots, storage_root, written_slots
from uopc.ir.core.uop import UOp
from uopc.passes.join_kernels import refused
from uopc.passes.pass_manager import Lowered

_PLACED: Final = "rangeify"  # the stage in which stored values have buffers
_OPTIMIZE: Final = "optimize"
_JOINING: Final = "join-kernels"


class Why:
    """The reasons of one run."""

    def __init__(self, dump: Dump) -> None:
        assert isinstance(dump.run, Lowered)
        self.dump, self.run = dump, dump.run
        self.costs = kernel_costs(self.run, dump.stages)
        self.values = self._values()
        calls = list(zip(self.run.program.src, self.run.calls))
        self.split = {final: call.src[0] for call, (final, _) in reversed(calls)}
        self.writers: dict[int, UOp] = {}  # by slot of a buffer, the linear kernel
        for final, args in self.run.calls:
            for slot in self._slots(args, written_slots(final)):
                self.writers[slot] = final
        named = [s for s in dump.stages if s.run.name == _OPTIMIZE]
        self.before = {a: b for s in named for a, b in zip(s.run.after, s.run.before)}
        self.scheduled = named[0].kernels if named else {}
        self.apart = list(self._apart())

    def lines(self, name: str) -> list[str]:
        """The lines of a value (%n) or of a kernel, by number or name; of all that were compared if
        the name is empty. UserError for an unknown name."""
        if name.startswith("%"):
            found = [d for d in self.dump.decisions if d.name == name]
            if not found:
                raise UserError(f"--why: no value {name} in the graph of place-stages")
            return self.of_value(found[0])
        if name:
            return self.of_kernel(self._kernel(name))
        values = [self.of_value(d) for d in self.dump.decisions if d.ways]
        kernels = [self.of_kernel(k) for k in self.run.kernels]
        return [line for lines in (*kernels, *values) for line in lines]

    def _kernel(self, name: str) -> UOp:
        known = {str(i): k for i, k in enumerate(self.run.kernels)}
        known |= {k.arg.name: k for k in reversed(self.run.kernels)}
        if name not in known:
            listed = ", ".join([k.arg.name for k in self.run.kernels]) or "none"
            raise UserError(f"--why: no kernel {name!r}; choose a value, as %3, or {listed}")
        return known[name]

    def of_value(self, d: Decision) -> list[str]:
        """The decision on a value, and the ways that were compared."""
        head = f"{d.name} {d.op} {d.shape}: {'stored: ' if d.stored else ''}"
        return [head + (d.reason if d.ways else d.explanation), *[f"  {w.whole}" for w in d.ways]]

    def of_kernel(self, kernel: UOp) -> list[str]:
        """The schedules of a kernel that were compared, and the kernels that it is apart from."""
        before = self.before.get(self.scheduled.get(self.split[kernel], kernel), kernel)
        ways = texts_of(self.run.context.compared.get(before), self.dump.names)
        lines = [f"schedule: {w.whole}" for w in ways]
        if not lines and kernel in self.costs:
            lines = [f"schedule: {self.costs[kernel]}: no other was compared"]
        for final, args in self.run.calls:
            if final is kernel:
                lines += [f"apart from {text}" for text in self._sources(kernel, args)]
        apart = [(other, why) for k, other, why in self.apart if k is kernel]
        lines += [f"apart from {other.arg.name}: {why}" for other, why in apart]
        return [kernel.arg.name, *[f"  {line}" for line in dict.fromkeys(lines)]]

    def _sources(self, kernel: UOp, args: tuple[UOp, ...]) -> Iterator[str]:
        """For each value of another kernel that a launch reads: why the value is stored."""
        for slot in self._slots(args, read_slots(kernel)):
            writer = self.writers.get(slot)
            if writer is None or writer is kernel:
                continue
            d = self.values.get(slot)
            why = "" if d is None else f": {d.name} is stored: {d.explanation}"
            yield f"{writer.arg.name}{why}"

    def _slots(self, args: tuple[UOp, ...], slots: list[int]) -> list[int]:
        """The slots of the program's buffers among those of a kernel."""
        roots = [storage_root(args[slot]) for slot in slots if slot < len(args)]
        return [u.arg.slot for u in roots if u.op is Ops.BUFFER]

    def _values(self) -> dict[int, Decision]:
        """The decision on the value of each buffer, by slot."""
        names = [s.run.name for s in self.dump.stages]
        if _PLACED not in names:
            return {}
        at = names.index(_PLACED)
        self.dump.body(at)
        decisions = {d.name: d for d in self.dump.decisions}
        found: dict[int, Decision] = {}
        for u in self.dump.orders[at]:
            if u.op is Ops.AFTER and storage_root(u).op is Ops.BUFFER:
                name = self.dump.kin.get(self.dump.names.known(u) or "", "")
                if name in decisions:
                    found[storage_root(u).arg.slot] = decisions[name]
        return found

    def _apart(self) -> Iterator[tuple[UOp, UOp, str]]:
        """Kernels in the same loops over the same array that are not joined, and why."""
        stage = next((s for s in self.dump.stages if s.run.name == _JOINING), None)
        if stage is None:
            return
        for one, two, why in refused(stage.run.before[0], self.run.context):
            both = [self._of_call(one), self._of_call(two)]
            if both[0] is not None and both[1] is not None and both[0] is not both[1]:
                yield both[1], both[0], f"both read an array in the same loops, but {why}"
                yield both[0], both[1], f"both read an array in the same loops, but {why}"

    def _of_call(self, call: UOp) -> UOp | None:
        """The linear kernel that writes what a call writes."""
        written = [storage_root(call.src[1 + slot]) for slot in written_slots(call.src[0])]
        for final, args in self.run.calls:
            if any([storage_root(args[s]) in written for s in written_slots(final)]):
                return final
        return None
