"""The predicted costs of the kernels of a run: see `uopc/cost`."""

from __future__ import annotations

from uopc.cost.cycles import cost_of
from uopc.cost.machine import machine_of
from uopc.cost.parts import Cost
from uopc.dump.stages import Stage
from uopc.ir.core.arena import arena
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.describe import outline_of
from uopc.passes.pass_manager import Lowered

_SCHEDULED = "optimize"


def kernel_costs(run: Lowered, stages: list[Stage]) -> dict[UOp, Cost]:
    """The cost of each linear kernel of a CPU, for one run on one thread; none for kernels that the
    schedule did not see."""
    target = run.context.target
    stage = next((s for s in stages if s.run.name == _SCHEDULED), None)
    if stage is None or target.gpu is not None:
        return {}
    found: dict[UOp, Cost] = {}
    with arena():
        for call, (final, _) in zip(run.program.src, run.calls):
            scheduled = stage.kernels.get(call.src[0])
            if final not in found and scheduled is not None and scheduled.op is Ops.SINK:
                found[final] = cost_of(outline_of(scheduled), machine_of(target))
    return found
