"""Make the artifact of a request: lower its graph, compile the new kernels, plan the launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from uopc.backends.device_rows import ONE_DEVICE, DeviceRows
from uopc.ir.core.calls import exchanges_of
from uopc.ir.core.serialize import Fingerprint
from uopc.ir.core.uop import UOp
from uopc.program.artifact import Artifact
from uopc.program.cached.kernel_cache import KernelCache
from uopc.program.compiled_kernel import CompiledKernel, Compiler, symbol_of
from uopc.program.planner import ExchangeCall, Planner, buckets, exchange, repeats
from uopc.program.request import Request, lower

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.passes.contract import Context
    from uopc.passes.pass_manager import Lowered, Verify

class OptsSource(Protocol):
    """Gives Opts to the kernels of a program, and reports them by kernel: `search/schedules.py`."""

    chosen: dict[str, str]

    def apply(self, program: UOp, context: Context) -> UOp: ...


def make_artifact(
    request: Request, known: KernelCache, printed: Fingerprint,
    compiler: Callable[[Request], Compiler], verify: Verify | None = None,
    schedules: OptsSource | None = None, keep: bool = False,
) -> tuple[Artifact, Lowered]:  # fmt: skip
    """Make the artifact; also return the lowered graph, without the kernels that are `known`.
    `schedules` gives kernels the Opts that a search found. With `keep`, the graphs of all stages
    are kept, so no kernel is compiled while others are lowered."""
    from uopc.passes.analysis.kernel_names import numbered

    made_by = compiler(request)

    def done(kernel: UOp, linear: UOp, name: str) -> None:
        made_by.add(symbol_of(name, known.keys[kernel]), linear)

    searched = None if schedules is None else schedules.apply
    lowered = lower(
        request, known.machine, verify, skip=known.find, searched=searched,
        done=None if keep else done,
    )  # fmt: skip
    compiled, seconds = _compiled(lowered, known, made_by, keep)
    shared = _shared(compiled) if known.found else compiled
    calls: list[tuple[CompiledKernel | ExchangeCall, tuple[UOp, ...]]] = []
    for call, (kernel, args) in zip(lowered.program.src, lowered.calls):
        stores = exchanges_of(kernel)
        if stores:
            calls.append((ExchangeCall.of(stores, call, request.facts), args))
            continue
        # Equal code names its variables differently: the names are those of the kernel itself.
        own = args if kernel in lowered.names else compiled[kernel].arguments(args)
        calls.append((shared[kernel], own))
    used = {k.key: k for k, _ in calls if isinstance(k, CompiledKernel)}
    names = dict(zip(used, numbered([k.name for k in used.values()])))
    for_gpu = known.machine.gpu is not None
    sharding, rows = lowered.context.sharding, ONE_DEVICE
    if not for_gpu:
        copied = () if sharding is None else sharding.copied
        moves = tuple([exchange([u], u, request.facts) for u in copied])
        rows = DeviceRows.of(lowered.context.devices, lowered.places, moves)
    beside = {} if sharding is None else sharding.beside(lowered.program)
    planner = Planner(
        request, lowered.outputs, calls, names, lowered.conditions, for_gpu,
        repeats(lowered.program, sharding), buckets(lowered.program), sharding, rows,
        beside,
    )  # fmt: skip
    chosen = {} if schedules is None else schedules.chosen
    made = known.kind.of(planner, printed, {names[own]: k for own, k in used.items()}, chosen)
    made.seconds = seconds
    return made, lowered


def _compiled(
    lowered: Lowered, known: KernelCache, compiler: Compiler, keep: bool
) -> tuple[dict[UOp, CompiledKernel], dict[str, float]]:
    """Each called kernel with its code, and the seconds that new code took."""
    split: dict[UOp, UOp] = {}  # of a linear kernel: the first kernel that became it
    for call, (kernel, _) in zip(lowered.program.src, lowered.calls):
        split.setdefault(kernel, call.src[0])
    key_of = {k: known.keys[split[k]] for k in lowered.kernels}
    symbols = {k: symbol_of(lowered.names[k], key_of[k]) for k in lowered.kernels}
    from uopc.passes.contract import PASSES_SHARE, watch

    told = watch.get()
    if told is not None:
        told("machine code", PASSES_SHARE)
    for k, symbol in symbols.items() if keep else ():
        compiler.add(symbol, k)
    code = compiler.finish(lowered, symbols)
    compiled = dict(known.found)
    for k in lowered.kernels:
        compiled[k] = CompiledKernel.of(k, split[k], key_of[k], lowered.names[k], code)
        known.keep(compiled[k])
    return compiled, code.seconds


def _shared(compiled: Mapping[UOp, CompiledKernel]) -> dict[UOp, CompiledKernel]:
    """The kernels, of which those with equal code are one, as if all had been lowered."""
    first: dict[object, CompiledKernel] = {}
    return {k: first.setdefault(c.identity, c) for k, c in compiled.items()}
