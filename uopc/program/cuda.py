"""Programs for a GPU: PTX for each kernel, and the plan by which the runtime launches them."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uopc.backends.nvptx import kernel as nvptx
from uopc.backends.nvptx import llvm_to_ptx
from uopc.backends.nvptx.calls import calls_of
from uopc.backends.plan import Plan
from uopc.errors import InvalidIR, Unsupported
from uopc.ir.core.uop import UOp
from uopc.program.artifact import Artifact
from uopc.program.backend import Backend
from uopc.program.compiled_kernel import Afterwards, Code, pack
from uopc.program.launches import Kernel
from uopc.program.planner import dim
from uopc.program.program import BoundProgram, Program
from uopc.program.request import Request
from uopc.target import Target, gpu_name, gpu_target

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.passes.pass_manager import Lowered


class PtxCode(Artifact):
    """The code of a kernel is its PTX, packed."""

    def assembly(self) -> dict[str, str]:
        """The PTX by kernel name. InvalidIR if the PTX is damaged."""
        try:
            return self.packed_code()
        except (ValueError, zlib.error) as error:
            raise InvalidIR(f"not the PTX of {len(self.names)} kernels: {error}") from error

    def check(self) -> None:
        self.assembly()


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
        """The bytes of which a launch's pointers are multiples, by slot; only slots with other than
        16."""
        return dict(calls_of(self._source.lowered.calls)[self.uops].alignment)


class _NotLaunched:
    """The runner of a program for `cuda:sm_90`. It refuses calls: there is only PTX text."""

    def __init__(self, device: str, plan: Plan) -> None:
        self.device, self.plan = device, plan

    def call(self, *arguments: object) -> object:
        raise Unsupported(
            f"a program for {self.device} is PTX text (program.kernels[i].asm) and cannot run:"
            " compile with device='cuda' on a machine with a GPU"
        )

    trace = time = slices = call


class GpuProgram(Program):
    """A graph compiled for a GPU. `plan` lists its launches in order, with their words."""

    plan: Plan
    _kernel = GpuKernel


def _render(lowered: Lowered, kernels: Sequence[UOp]) -> dict[str, str]:
    machine, calls = lowered.context.target, calls_of(lowered.calls)
    return {
        k.arg.name: nvptx.module(nvptx.render(k.arg.name, k, machine, calls[k])) for k in kernels
    }


def _assemble(modules: Mapping[str, str], machine: Target, cpu: str = "") -> dict[str, str]:
    return {name: llvm_to_ptx.assemble(text, machine) for name, text in modules.items()}


def _code(lowered: Lowered, symbols: Mapping[UOp, str]) -> Code:
    machine, calls = lowered.context.target, calls_of(lowered.calls)
    assert machine.gpu is not None
    begin = time.perf_counter()
    sources, grids = {}, {}
    for k in lowered.kernels:
        sources[k] = nvptx.module(nvptx.render(symbols[k], k, machine, calls[k]))
        x, y, z = [dim(d) for d in nvptx.dimensions(k, "gidx")]
        grids[k] = (x, y, z), nvptx.block_of(k), nvptx.dynamic_shared(k, machine.gpu)
    rendered = time.perf_counter()
    code = {k: pack(llvm_to_ptx.assemble(text, machine)) for k, text in sources.items()}
    seconds = {"render": rendered - begin, "llvm": time.perf_counter() - rendered}
    return Code(sources, code, seconds, grids)


def _load(request: Request, found: PtxCode, plan: Plan) -> GpuProgram:
    program: GpuProgram = object.__new__(GpuProgram)
    program.plan = plan
    program._runner = _runner(request, found, plan)
    return program


def _runner(request: Request, found: PtxCode, plan: Plan) -> Any:
    """The runner of a plan: for a numbered device a real one, for `cuda:sm_90` one that refuses."""
    name = request.device.partition(":")[2]
    if name.startswith("sm_"):
        return _NotLaunched(request.device, plan)
    from uopc.backends.cuda import device as devices
    from uopc.backends.cuda.runner import CudaRunner

    if plan.mesh is not None:
        from uopc.backends.exchange.cuda_mesh import CudaMeshRunner

        return CudaMeshRunner(plan, found.assembly(), name)
    return CudaRunner(plan, found.assembly(), devices.device(int(name or 0)))


def _bind(program: Program, values: Mapping[str, object]) -> BoundProgram:
    raise Unsupported("bind is not supported for a GPU: keep the arrays on the device")


def _target(device: str, cpu: str) -> Target:
    """The GPU that a name describes (`cuda:sm_90`), or this machine's GPU of a number."""
    name = device.partition(":")[2]
    if not name.startswith("sm_"):
        from uopc.backends.cuda import device as devices

        name = gpu_name(devices.device(int(name or 0)).capability)
    return gpu_target(name)


BACKEND = Backend(
    _target, _render, _assemble, PtxCode, lambda request: Afterwards(_code), _load, _runner, _bind
)
