"""compile(): a graph of UOps goes in, a Program (a fast callable) comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from uopc import config
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.builder import checks as arguments
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, dtypes, tensor_graph
from uopc.ir.core.args import Opt
from uopc.ir.core.level_of import level_of
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.node import Node, arena, intern
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.program.program import CPU, Program, program_for
from uopc.tensor.elementwise import unbind

if TYPE_CHECKING:
    from uopc.passes.contract import Context
    from uopc.passes.pass_manager import Lowered, Verify


@dataclass(frozen=True)
class Request:
    """What `compile` was asked for, checked: enough to do it again."""

    graph: UOp  # SINK of the outputs, or a kernel
    structure: str
    keys: tuple[Any, ...]
    params: tuple[UOp, ...]
    optimize: bool
    threads: int
    name: str
    options: config.Options
    rules: Any = None  # the user's PatternMatcher
    bound: Mapping[str, int] = field(default_factory=dict)  # values that `bind` gave variables
    device: str = "cpu"


def compile(
    graph: Any,
    *,
    device: str | None = None,
    inputs: Sequence[UOp | str] | None = None,
    optimize: bool = True,
    beam: int = 0,
    threads: int | None = None,
    verify: bool | None = None,
    name: str | None = None,
    rules: Any = None,
) -> Program:
    """Machine code for a graph, ready to be called.

    graph: a UOp, or a tuple, list or dict of them (the result has the same structure), or a SINK
    that is a kernel written by hand. inputs: the order of positional arguments. rules: a
    PatternMatcher run right before each kernel is final. verify: check every stage and access.
    Raises UserError (graph or arguments are wrong), InvalidIR, Unsupported.
    """
    options = config.current()
    _check_kinds(device, inputs, name, rules)
    where = device if device is not None else options.device
    check_device(where)
    if options.target_cpu and not where.startswith("cuda"):
        from uopc.backends import detect

        detect.check_runs(options.target_cpu)
    if beam or options.beam:
        raise Unsupported("beam search is not built yet: compile with beam=0")
    optimize = arguments.flag("compile", "optimize", optimize) and not options.noopt
    if verify is not None:
        verify = arguments.flag("compile", "verify", verify)
    with arena():
        request = prepare(graph, inputs, optimize, threads, name, options, rules)
        request = replace(request, device=where)
        check = options.spec > 0 if verify is None else verify
        if request.structure == "kernel" and not check:  # broken more easily than by the builders
            _verify_input(request.graph)
        accesses = options.spec > 1 if verify is None else verify
        program = build(request, _verifier(check, accesses))
    if options.debug:
        from uopc.program import debug

        return debug.compiled(program, options.debug)
    return program


def build(request: Request, verifier: Verify | None) -> Program:
    """The program that was asked for, on its device."""
    if request.device.startswith("cuda"):
        from uopc.program import cuda as cuda_program

        return program_for(request, verifier, cuda_program.CUDA)
    return program_for(request, verifier, CPU)


def _check_kinds(device: Any, inputs: Any, name: Any, rules: Any) -> None:
    """Each argument of `compile` is of the right kind."""
    from uopc.ir.rewrite.pattern import PatternMatcher

    kinds: dict[str, tuple[Any, Any, str]] = {
        "device": (device, str, "a string"), "name": (name, str, "a string"),
        "inputs": (inputs, (list, tuple), "a list of params or names"),
        "rules": (rules, PatternMatcher, "a PatternMatcher"),
    }  # fmt: skip
    for argument, (value, kind, words) in kinds.items():
        if value is not None and not isinstance(value, kind):
            raise UserTypeError(f"compile: {argument} must be {words}, got {value!r}")


def _verify_input(kernel: UOp) -> None:
    from uopc.ir.verify import verifier as verify

    verify.verify(kernel, level_of(kernel), "input")


def check_device(device: str) -> None:
    """UserError for a device there is not."""
    kind, _, part = device.partition(":")
    if kind == "cuda" and part.startswith("sm_"):
        from uopc import target

        target.part(part)
        return
    if kind not in ("cpu", "cuda") or (part and not part.isdigit()):
        raise UserError(
            f"unknown device {device!r}; there are cpu, cpu:N, cuda, cuda:N, and for PTX cuda:sm_XX"
        )


def _verifier(on: bool, accesses: bool = False) -> Verify | None:
    """What checks each stage: its invariants, and also that no access leaves its storage."""
    if not on:
        return None
    from uopc.ir.verify import in_bounds as verify_bounds
    from uopc.ir.verify import verifier as verify

    return verify_bounds.verify_with_bounds if accesses else verify.verify


def make_context(request: Request) -> Context:
    """What the passes may know of the request."""
    from uopc.backends import detect
    from uopc.passes.contract import Context
    from uopc.passes.pass_manager import function_schedule

    context = Context(
        detect.for_device(request.device, request.options.target_cpu),
        request.optimize,
        request.threads,
        request.options.tf32,
        user_rules=request.rules,
    )
    context.schedule = function_schedule(context)
    return context


def prepare(
    graph: Any, inputs: Sequence[UOp | str] | None, optimize: bool, threads: int | None,
    name: str | None, options: config.Options, rules: Any = None,
) -> Request:  # fmt: skip
    """Check what the user gave, and put it in one form."""
    from uopc.backends.cpu.pool import default_threads

    wanted = threads if threads is not None else options.threads
    if not isinstance(wanted, int) or not 0 <= wanted <= config.MOST_THREADS:
        raise UserError(f"threads must be 0 to {config.MOST_THREADS}, got {wanted!r}")
    outputs, structure, keys = _structure(graph)
    single = outputs[0] if len(outputs) == 1 else None
    if single is not None and single.op is Ops.SINK:
        sink, structure = single, "kernel" if level_of(single) is not TENSOR else "tuple"
    else:
        if structure == "single" and outputs[0].dtype is dtypes.void:
            name_of = outputs[0].op.name
            raise UserTypeError(f"compile: a {name_of} has no value: give the values, or a SINK")
        sink = intern(Ops.SINK, dtypes.void, outputs)
    sink, bound = _unbound(sink)
    params = _ordered_params(sink, inputs)
    return Request(
        sink, structure, keys, params, optimize, wanted or default_threads(), name or "", options,
        rules, bound,
    )  # fmt: skip


def _unbound(sink: UOp) -> tuple[UOp, dict[str, int]]:
    """The graph with its variables free, and the values that they were bound to.

    Graphs that differ in these values only are one graph, compiled once.
    """
    bound: dict[str, int] = {}
    for u in analysis.order(sink):
        if u.op is Ops.BIND:
            variable, value = unbind(u)
            arg = variable.arg
            if not arg.low <= value <= arg.high:
                raise UserError(f"variable {arg.name} is bound to {value}: {arg.low}..{arg.high}")
            if bound.setdefault(arg.name, value) != value:
                raise UserError(f"variable {arg.name} is bound to {bound[arg.name]} and {value}")
    if bound:
        sink = remake.rewritten(sink, lambda u, src: src[0] if u.op is Ops.BIND else None)
    return sink, bound


def _structure(graph: Any) -> tuple[tuple[UOp, ...], str, tuple[Any, ...]]:
    """The outputs, the kind of container they came in, and a dict's keys."""
    if isinstance(graph, Node):
        return (graph,), "single", ()  # type: ignore[return-value]
    if isinstance(graph, Mapping):
        values, kind, keys = tuple(graph.values()), "dict", tuple(graph)
    elif isinstance(graph, (tuple, list)):
        values, kind, keys = tuple(graph), "list" if isinstance(graph, list) else "tuple", ()
    else:
        raise UserTypeError(f"compile: expected a UOp or a container of UOps, got {graph!r}")
    for v in values:
        if not isinstance(v, Node):
            raise UserTypeError(f"compile: expected UOps in the {kind}, got {v!r}")
    return values, kind, keys


def _ordered_params(sink: UOp, inputs: Sequence[UOp | str] | None) -> tuple[UOp, ...]:
    """The program's params in the order of its positional arguments."""
    found: dict[str, UOp] = {}
    whole = level_of(sink) is not TENSOR
    for u in tensor_graph.nodes(sink):
        # At tensor level a param with a slot belongs to a function, not to the program.
        if u.op is not Ops.PARAM or (u.arg.slot >= 0 and not whole):
            continue
        if found.setdefault(u.arg.name, u) is not u:
            raise UserError(f"two params are named {u.arg.name!r}, with different shapes or dtypes")
    if whole:
        return tuple(sorted(found.values(), key=lambda u: int(u.arg.slot)))
    if inputs is None:
        return tuple(found.values())
    ordered: dict[str, UOp] = {}
    for given in inputs:
        param = found.get(given) if isinstance(given, str) else given
        if not isinstance(param, Node) or param.op not in (Ops.PARAM, Ops.VARIABLE):
            raise UserError(f"inputs: {given!r} is not a param of the graph")
        if param.op is Ops.PARAM:
            if param.arg.name in ordered:
                raise UserError(f"inputs: {param.arg.name!r} is given twice")
            ordered[param.arg.name] = param
    missing = [n for n, u in found.items() if ordered.get(n) is not u]
    if missing:
        raise UserError(f"inputs: the graph also reads {', '.join(missing)}")
    return tuple(ordered.values())


def lower_only(
    graph: Any, *, optimize: bool = True, threads: int | None = None, verify: bool = True,
    rules: Any = None, opts: tuple[Opt, ...] | None = None, device: str = "cpu",
) -> Lowered:  # fmt: skip
    """The stages of a graph without machine code: what `uopc dump` shows."""
    from uopc.passes.pass_manager import lower

    request = prepare(graph, None, optimize, threads, None, config.current(), rules)
    context = make_context(replace(request, device=device))
    context.opts = opts
    return lower(request.graph, context, _verifier(verify))
