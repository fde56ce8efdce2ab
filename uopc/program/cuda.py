"""Program for a GPU: PTX for each kernel, and the plan that a runtime launches them by."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uopc.backends.nvptx import kernel as nvptx
from uopc.backends.nvptx import ptx
from uopc.backends.nvptx.calls import calls_of
from uopc.backends.plan import GpuLaunch
from uopc.errors import Unsupported
from uopc.program.artifact import Array, Compiled, CompiledPtx, constants_of, pack_sources
from uopc.program.planner import Planner, dim
from uopc.program.program import Backend, Kernel, Program

if TYPE_CHECKING:
    from uopc.backends.plan import Plan
    from uopc.driver import Request
    from uopc.ir.core.fingerprint import Fingerprint
    from uopc.ir.core.uop import UOp
    from uopc.passes.pass_manager import Lowered


class GpuKernel(Kernel):
    """A kernel for a GPU: `source` is its LLVM IR, `asm` its PTX."""

    @property
    def grid(self) -> tuple[UOp, ...]:
        """The blocks of a launch, of dtype index, x first."""
        return nvptx.dimensions(self.uops, "gidx")

    @property
    def block(self) -> tuple[int, int, int]:
        """The threads of a block, x first."""
        return nvptx.block_of(self.uops)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block."""
        return nvptx.shared_layout(self.uops)[1]

    @property
    def alignment(self) -> dict[int, int]:
        """What the pointers of its launches are multiples of, by slot, where not 16."""
        return dict(calls_of(self._stages.lowered.calls)[self.uops].alignment)


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
        found: list[Kernel] | None = self.__dict__.get("_kernels")
        if found is None:
            assert isinstance(self._compiled, CompiledPtx)
            texts = zip(self._compiled.texts().items(), self._compiled.sources())
            found = [GpuKernel(name, source, self._stages, asm) for (name, asm), source in texts]
            self.__dict__["_kernels"] = found
        return found


def _runner(device: str, plan: Plan, ptx_of: dict[str, str]) -> Any:
    """What runs the program: on a device by number, nothing for the name of a part."""
    part = device.partition(":")[2]
    if part.startswith("sm_"):
        return _NotLaunched(device)
    from uopc.backends.cuda import device as devices
    from uopc.backends.cuda.runner import CudaRunner

    return CudaRunner(plan, ptx_of, devices.device(int(part or 0)))


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


def compiled(request: Request, lowered: Lowered, printed: Fingerprint) -> CompiledPtx:
    """PTX and plan of a lowered request, given the content of its graph."""
    assert lowered.context is not None
    target, begin = lowered.context.target, time.perf_counter()
    common = calls_of(lowered.calls)
    names = [k.arg.name for k in lowered.kernels]
    sources = [
        nvptx.module(nvptx.render(k.arg.name, k, target, common[k])) for k in lowered.kernels
    ]
    rendered_at = time.perf_counter()
    texts = [ptx.assemble(source, target) for source in sources]
    done = time.perf_counter()
    planner = GpuPlanner(request, lowered)
    plan = planner.plan()
    return CompiledPtx(
        plan, constants_of(planner, printed.arrays), tuple(names), pack_sources(texts),
        pack_sources(sources), printed.nodes,
        {"render": rendered_at - begin, "llvm": done - rendered_at},
    )  # fmt: skip


def _assembled(request: Request, found: Compiled, arrays: Mapping[str, Array]) -> GpuProgram:
    assert isinstance(found, CompiledPtx)
    program: GpuProgram = object.__new__(GpuProgram)
    program.plan = found.plan_for(request, arrays)
    program._runner = _runner(request.device, program.plan, found.texts())
    return program


CUDA = Backend(compiled, _assembled)
