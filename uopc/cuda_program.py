"""Program for a GPU: PTX for each kernel, and the plan that a runtime launches them by."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc.backends import nvptx
from uopc.backends.cuda import ptx
from uopc.backends.cuda.plan import GpuLaunch
from uopc.errors import Unsupported
from uopc.ir import kernel_params, node
from uopc.ir.ops import Ops
from uopc.planning import Planner, dim, root_of
from uopc.program import Kernel, Program, Stages, describe, lower

if TYPE_CHECKING:
    from uopc.backends.cpu.plan import Plan
    from uopc.backends.target import Target
    from uopc.driver import Request
    from uopc.ir.uop import UOp
    from uopc.lowering import Lowered, Verify


@dataclass
class GpuKernel(Kernel):
    """A kernel for a GPU: `source` is its LLVM IR, `asm` its PTX.

    `grid`: UOps of dtype index, x first; `block`: threads, x first; `shared_bytes`: per block.
    `alignment`: what the pointers of its launches are multiples of, by slot, where not 16.
    """

    grid: tuple[Any, ...] = ()
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    alignment: dict[int, int] = field(default_factory=dict)


class _NotLaunched:
    """Stands where a runner would: a program for a named part is text."""

    def __init__(self, device: str) -> None:
        self.device = device

    def call(self, positional: tuple[object, ...], named: dict[str, object]) -> object:
        part = self.device.partition(":")[2]
        raise Unsupported(
            f"device {self.device} gives PTX text (program.kernels[i].asm) for a part {part};"
            " nothing is launched: compile with device='cuda' on a machine that has one"
        )

    trace = call


class GpuProgram(Program):
    """A graph compiled for a GPU. `plan` says what is launched, in which order, on which words."""

    plan: Plan

    @property
    def kernels(self) -> list[Kernel]:
        """The distinct kernels, in order of first use."""
        found: list[Kernel] = self.__dict__["_kernels"]
        return found


def _runner(device: str, program: GpuProgram) -> Any:
    """What runs the program: on a device by number, nothing for the name of a part."""
    part = device.partition(":")[2]
    if part.startswith("sm_"):
        return _NotLaunched(device)
    from uopc.backends.cuda import device as devices
    from uopc.backends.cuda.runner import CudaRunner

    ptx_of = {k.name: k.asm for k in program.kernels}
    return CudaRunner(program.plan, ptx_of, devices.device(int(part or 0)))


class GpuPlanner(Planner):
    """Launches with their grids."""

    def launches(self) -> tuple[GpuLaunch, ...]:
        made = []
        assert self.lowered.context is not None
        gpu = self.lowered.context.target.gpu
        assert gpu is not None
        for kernel, args in self.lowered.calls:
            words = tuple([self.word(a) for a in args])
            x, y, z = [dim(d) for d in nvptx.dimensions(kernel, "gidx")]
            block, shared = nvptx.block_of(kernel), nvptx.dynamic_shared(kernel, gpu)
            made.append(
                GpuLaunch(kernel.arg.name, words, 1, False, (x, y, z), block, shared)
            )
        return tuple(made)


def facts(lowered: Lowered) -> dict[UOp, nvptx.Calls]:
    """What all calls of a kernel have in common."""
    offsets: dict[UOp, dict[int, int]] = {k: {} for k in lowered.kernels}
    constant = {k: _slots(kernel_params.read_params(k)) for k in lowered.kernels}
    for kernel, args in lowered.calls:
        written = {root_of(args[s]) for s in _slots(kernel_params.written_params(kernel))}
        for slot, a in enumerate(args):
            if root_of(a) in written:
                constant[kernel].discard(slot)
            if a.op is Ops.SLICE:
                step = math.gcd(a.arg[0] * a.dtype.itemsize, nvptx.ALIGNMENT)
                known = offsets[kernel].get(slot, nvptx.ALIGNMENT)
                offsets[kernel][slot] = math.gcd(step, known)
    return {k: nvptx.Calls(offsets[k], frozenset(constant[k])) for k in lowered.kernels}


def _slots(params: Iterable[UOp]) -> set[int]:
    return {int(p.arg.slot) for p in params if p.op is Ops.PARAM}


def kernel_of(k: UOp, target: Target, calls: nvptx.Calls, stages: Stages) -> GpuKernel:
    """The kernel as LLVM IR and PTX."""
    source = nvptx.module(nvptx.render(k.arg.name, k, target, calls))
    return GpuKernel(
        k.arg.name, source, stages, ptx.assemble(source, target), nvptx.dimensions(k, "gidx"),
        nvptx.block_of(k), nvptx.shared_layout(k)[1], dict(calls.alignment),
    )  # fmt: skip


def _plan(request: Request, planner: GpuPlanner) -> Plan:
    """The plan with what is of this request: its arrays, its container, its bound values."""
    plan = planner.plan()  # finds the constants
    structure: Any = "tuple" if request.structure == "kernel" else request.structure
    return replace(
        plan,
        structure=structure,
        keys=request.keys,
        constants=tuple([np.ascontiguousarray(u.arg.array) for u in planner.constants]),
        variables=tuple([replace(v, default=request.bound.get(v.name)) for v in plan.variables]),
    )


def program_for(request: Request, verify: Verify | None = None) -> GpuProgram:
    """PTX for the kernels, and a program that says what it is when it is called."""
    start = time.perf_counter()
    with node.arena():
        lowered = lower(request, verify)
        context = lowered.context
        assert context is not None
        lowered_at = time.perf_counter()
        program: Any = object.__new__(GpuProgram)
        planner = GpuPlanner(request, lowered)
        program.plan = _plan(request, planner)
        program._request, program._stages = request, Stages(request, lowered)
        common = facts(lowered)
        program.__dict__["_kernels"] = [
            kernel_of(k, context.target, common[k], program._stages) for k in lowered.kernels
        ]
    program._runner = _runner(request.device, program)
    describe(program)
    program.stats = {
        "passes": {r.name: r.seconds for r in lowered.runs},
        "render": 0.0, "llvm": time.perf_counter() - lowered_at,
        "total": time.perf_counter() - start,
        "nodes": len(request.graph.toposort()),
        "launches": len(lowered.calls), "cache": "", "scheduled": 1,
        "compiled": len(lowered.kernels),
    }  # fmt: skip
    return program  # type: ignore[no-any-return]
