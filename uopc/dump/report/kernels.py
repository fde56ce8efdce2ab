"""The kernels of a run for the report: loop nests, Opts one by one, launches, storage by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from uopc.dump.name_tracking import carry_names_over
from uopc.dump.report.loop_nest import Line, loop_nest
from uopc.dump.report.values import Interned, Sources
from uopc.dump.stages import ASM, LLVM, Dump
from uopc.dump.storage_names import StorageNames
from uopc.dump.why import Why
from uopc.ir.core import walk
from uopc.ir.core.levels import KERNEL
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root, written_slots
from uopc.ir.core.uop import UOp
from uopc.ir.text.infix import infix
from uopc.ir.text.printer import Namer
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.passes.optimize.opts.table import OPTS, apply
from uopc.passes.pass_manager import Lowered

# The most nodes times Opts to replay for a page; the page says which kernels are left out.
MOST_REPLAYED: Final = 20_000


class KernelSection:
    """The report's section of kernels and launches."""

    def __init__(self, dump: Dump, sources: Sources, lines: Interned) -> None:
        assert isinstance(dump.run, Lowered)
        self.dump, self.run, self.sources, self.lines = dump, dump.run, sources, lines
        calls = list(zip(self.run.program.src, self.run.calls))
        self.final = {call.src[0]: final.arg.name for call, (final, _) in calls}
        self.names, self.why = StorageNames(self.run), Why(dump)
        self.left = MOST_REPLAYED

    def as_json(self) -> list[dict[str, Any]]:
        """A record for each kernel that the dump shows."""
        facts = self.dump.kernel_facts()
        return [
            fact
            | {stage: self.dump.code(stage)[fact["name"]] for stage in self.dump.kernel_texts}
            | {"seconds": {s: self.dump.code_seconds[s][fact["name"]] for s in (LLVM, ASM)
                           if s in self.dump.code_seconds}}
            | self._shown(kernel)
            for kernel, fact in zip(self.dump.kernels, facts)
        ]  # fmt: skip

    def launches(self) -> list[list[Any]]:
        """In order: the kernel's number, and its arguments as [slot or variable, storage, bytes].

        If one kernel is chosen, only its launches.
        """
        numbers = {k: i for i, k in enumerate(self.dump.kernels)}
        return [
            [at, numbers[kernel], [self._argument(a) for a in args]]
            for at, (kernel, args) in enumerate(self.run.calls)
            if kernel in numbers
        ]

    def _argument(self, u: UOp) -> list[Any]:
        """The name of an argument, the element at which it begins, and its type."""
        root = storage_root(u)
        begin = u.arg[0] if u.op is Ops.SLICE else 0
        if u.op in (Ops.VARIABLE, Ops.CONST):
            return [infix(u), 0, u.dtype.short]
        size = "×".join([str(d) if d is not None else "…" for d in root.arg.dims])
        return [self.names.of[root], begin, f"{root.dtype.short} {size}".rstrip()]

    def nest(self, kernel: UOp) -> list[Line]:
        """The loop nest of a linear kernel as it was before copies and lanes were expanded."""
        return self._whole_nest(kernel) or loop_nest(kernel, self.dump.names, {})

    def _whole_nest(self, kernel: UOp) -> list[Line]:
        """The nest with all statements; empty if the kernel is too long or had no such stage."""
        split = self.why.split.get(kernel, kernel)
        stages = [s for s in self.dump.stages if s.run.level is KERNEL and split in s.kernels]
        if not stages:
            return []
        return loop_nest(stages[-1].kernels[split], self.dump.names, self.names.slots(kernel))

    def _shown(self, kernel: UOp) -> dict[str, Any]:
        slots, split = self.names.slots(kernel), self.why.split.get(kernel, kernel)
        nest = self._whole_nest(kernel)
        places = {self.sources.of(u) for u in self.run.located(kernel)} - {0}
        return {
            "nodes": len(kernel.src),
            "nest": self._packed(nest or loop_nest(kernel, self.dump.names, slots)),
            "whole": bool(nest),
            "places": sorted(places),
            "written": written_slots(kernel),
            "steps": self._steps(split, slots),
            "why": self.why.of_kernel(kernel)[1:],
        }

    def _steps(self, split: UOp, slots: Mapping[int, str]) -> dict[str, Any] | None:
        """The loop nest before the first Opt and after each Opt; None if the stage did not run."""
        after = self.why.scheduled.get(split)
        if after is None:
            return None
        before = self.why.before[after]
        opts = after.arg.opts or ()
        nodes = len(walk.order(before))
        if nodes * (len(opts) + 1) > self.left:
            return {"nodes": nodes, "opts": [[str(o), OPTS[o.op].meaning] for o in opts]}
        self.left -= nodes * (len(opts) + 1)
        known = {u: self.dump.names.known(u) for u in walk.order(before)}
        names = Namer({u: name for u, name in known.items() if name is not None})
        states = [Tiled(before)]
        nests = [self._packed(loop_nest(before, names, slots))]
        for opt in opts:
            try:
                states.append(apply(states[-1], opt))
            except Refused:  # the schedule applied it to another form of the kernel
                break
            old, new = [walk.toposort(s.kernel) for s in states[-2:]]
            carry_names_over(old, new, names)
            nests.append(self._packed(loop_nest(states[-1].kernel, names, slots)))
        return {
            "nodes": nodes, "nests": nests,
            "opts": [[str(o), OPTS[o.op].meaning] for o in opts],
        }  # fmt: skip

    def _packed(self, nest: list[Line]) -> list[list[Any]]:
        return [[line.depth, line.kind, self.lines.add(line.text)] for line in nest]


