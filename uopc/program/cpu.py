"""Programs for this processor: one object file for all kernels, called through a native entry."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uopc import config
from uopc.backends import detect
from uopc.backends.cpu import elf_loader, native
from uopc.backends.cpu.callables import AnyProgram, make_callable
from uopc.backends.cpu.runner import Runner
from uopc.backends.llvm import jit
from uopc.backends.plan import Plan
from uopc.cache.disk import DiskCache
from uopc.errors import InvalidIR
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass
from uopc.program.artifact import Artifact
from uopc.program.backend import Backend
from uopc.program.cached import key, record
from uopc.program.compiled_kernel import Code
from uopc.program.program import BoundProgram, Program
from uopc.program.request import Request
from uopc.program.tuned import figures
from uopc.target import CPUS, Target

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.passes.pass_manager import Lowered


class ObjectCode(Artifact):
    """The code of a kernel is in an object file."""

    @cached_property
    def image(self) -> elf_loader.Image:
        """The code, loaded into this process. InvalidIR if the code is damaged."""
        symbols: dict[bytes, list[str]] = {}  # by object file
        for k in self.kernels:
            symbols.setdefault(k.code, []).append(k.symbol)
        images = {code: elf_loader.load(code, tuple(names)) for code, names in symbols.items()}
        try:
            found = [images[k.code].symbols[k.symbol] for k in self.kernels]
        except KeyError as error:
            raise InvalidIR(f"the object file lacks kernel {error}") from None
        return elf_loader.Image(dict(zip(self.names, found)), images)

    def check(self) -> None:
        _ = self.image


@dataclass
class _RuntimeObjects:
    """The object files whose code calls programs; all programs share them."""

    on_request: bytes
    always: bytes

    @property
    def code(self) -> native.Parts[bytes]:
        return native.Parts(self.on_request, self.always)


# A program from a cache needs no emitter.
def _render(lowered: Lowered, kernels: Sequence[UOp]) -> dict[str, str]:
    from uopc.backends.llvm import emitter, split_function

    return {k.arg.name: emitter.module([split_function.render(k.arg.name, k)]) for k in kernels}


def _assemble(modules: Mapping[str, str], machine: Target, cpu: str) -> dict[str, str]:
    return {name: jit.assembly(text, cpu or None) for name, text in modules.items()}


class _LlvmCompiler:
    """Writes each kernel as LLVM IR on arrival, and has LLVM compile kernels while passes still
    run."""

    def __init__(self, request: Request) -> None:
        from uopc.backends.llvm.modules import Modules

        self.modules = Modules(request.options.target_cpu or None)
        self.sources: dict[str, str] = {}
        self.rendering = 0.0

    def add(self, symbol: str, kernel: UOp) -> None:
        from uopc.backends.llvm import emitter, split_function

        begin = time.perf_counter()
        function = split_function.render(symbol, kernel)
        self.modules.add(symbol, function)
        self.sources[symbol] = emitter.module([function])
        self.rendering += time.perf_counter() - begin

    def finish(self, lowered: Lowered, symbols: Mapping[UOp, str]) -> Code:
        code, seconds = self.modules.finish()
        return Code(
            {k: self.sources[symbol] for k, symbol in symbols.items()},
            {k: code[symbol] for k, symbol in symbols.items()},
            {"render": self.rendering, "llvm": seconds},
        )


def _load(request: Request, found: ObjectCode, plan: Plan) -> Program:
    options = request.options
    if options.target_cpu:
        detect.check_runs(options.target_cpu)
    if not native.is_installed():
        _install_runtime(DiskCache.of(options))
    return _callable(request, plan, found.image, Program)


def _callable(
    request: Request, plan: Plan, image: elf_loader.Image, cls: type[AnyProgram]
) -> AnyProgram:
    if plan.mesh is not None:
        from uopc.backends.exchange.mesh_runner import make_program

        made: AnyProgram = make_program(plan, image, cls)
        return made
    return make_callable(plan, image, cls, request.options.plain_call)


def _bind(program: Program, values: Mapping[str, Any]) -> BoundProgram:
    from uopc.backends.cpu.fixed_arguments import without

    runner: Any = program._runner
    if runner.plan.mesh is not None:
        from uopc.backends.exchange.bound_mesh import bound

        made = object.__new__(BoundProgram)
        bound_runner: Any = bound(runner, values)
        made._runner = bound_runner
    else:
        plan = without(runner.plan, values)
        made = _callable(program._source.request, plan, runner.image, BoundProgram)
    made.program, made.values = program, dict(values)
    return made


def _install_runtime(disk: DiskCache | None) -> None:
    """Load the process's runtime from disk. If there is none, compile it and store it there."""
    if disk is None:
        native.install()
        return
    if (code := native.shipped()) is not None:
        native.install(code)
        return
    components = ("runtime", native.identity()), key.machine_component(detect.host())
    whole = key.with_process(components)
    disk.load(
        whole.digest, lambda data: native.install(record.decode(data, whole, _RuntimeObjects).code)
    )
    if not native.is_installed():
        text = native.source()
        made = _RuntimeObjects(**vars(native.compiled(text)))
        native.install(made.code)
        named = ("runtime", text.on_request + text.always, "")
        disk.save(whole.digest, record.encode(whole, [named], made))


def _runner(request: Request, found: ObjectCode, plan: Plan) -> Runner:
    return Runner(plan, found.image)


def _target(device: str, cpu: str) -> Target:
    """This machine with its measured figures, or the machine that a name describes."""
    if DiskCache.of(config.current()) is not None:
        key.installation()  # as an earlier process found it: LLVM need not be asked
    found = detect.host(cpu)
    return found if cpu in CPUS else figures.with_figures(found, BACKEND)


BACKEND = Backend(
    _target, _render, _assemble, ObjectCode, _LlvmCompiler, _load, _runner, _bind
)
