"""Backends: the functions that make programs for a kind of device, and the table of all devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from uopc.backends.plan import Plan
from uopc.errors import UserError
from uopc.ir.core.uop import UOp
from uopc.ir.devices import device as devices
from uopc.ir.records import dataclass
from uopc.program.artifact import Artifact
from uopc.program.compiled_kernel import Compiler
from uopc.program.request import Request
from uopc.target import Target

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.dump.stages import Dump
    from uopc.passes.pass_manager import Lowered

# Names of a backend's devices, examples, and the module with its BACKEND: imported when needed.
BACKENDS = (
    (devices.is_cpu, f"cpu, cpu:1 to cpu:{devices.CPU_DEVICES - 1}", "uopc.program.cpu"),
    (
        re.compile(r"cuda(:(\d+|sm_\w+))?").fullmatch,
        "cuda, cuda:1, cuda:sm_90 (PTX text only)", "uopc.program.cuda",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Backend:
    """The functions that make programs for one kind of device: all that differs between kinds."""

    # The machine for a device's name and a CPU's name (or "").
    target: Callable[[str, str], Target]
    # The LLVM IR of some kernels of a lowered program: one module per kernel, by name.
    render: Callable[[Lowered, Sequence[UOp]], dict[str, str]]
    # The assembly (or PTX) of LLVM modules by name, given the machine and a CPU's name (or "").
    assemble: Callable[[Mapping[str, str], Target, str], dict[str, str]]
    # The class of the compiled code, and of a record on disk.
    artifact: type[Artifact]
    # Makes the code of the kernels of a request while it is lowered.
    compiler: Callable[[Request], Compiler]
    # The program, ready to run, of an artifact (compiled, or found in a cache) and its plan.
    load: Callable[[Request, Any, Plan], Any]
    # Runs a plan with the code of an artifact.
    runner: Callable[[Request, Any, Plan], Any]
    # A program with arguments and variables fixed: see `Program.bind`.
    bind: Callable[[Any, Mapping[str, Any]], Any]

    def dump(self, lowered: Lowered, cpu: str, kernel: str | None = None) -> Dump:
        """The stages and the code of a run. `kernel` names the only kernel to show."""
        from uopc.dump.stages import Dump

        machine = lowered.context.target
        code = partial(self.render, lowered), lambda modules: self.assemble(modules, machine, cpu)
        return Dump(lowered, code, kernel)


def backend_of(device: str, who: str = "option device (UOPC_DEVICE)") -> Backend:
    """The backend of a device name, which `who` gave. UserError if there is no such device."""
    for has, _, module in BACKENDS:
        if has(device):
            found: Backend = import_module(module).BACKEND
            return found
    shown = ", ".join([examples for _, examples, _ in BACKENDS])
    raise UserError(f"{who}: unknown device {device!r}; choose {shown}")


def machine_of(request: Request) -> Target:
    """The machine that runs the programs of a request."""
    return backend_of(request.device).target(request.device, request.options.target_cpu)
