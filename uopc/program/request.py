"""The request to compile a graph, checked and in one form: the start of every compile."""

from __future__ import annotations

import reprlib
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from uopc import config
from uopc.backends import detect
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.builder import lengths, primitives, pytrees, rebuild
from uopc.ir.builder.pytrees import LaidOut, Pairs, Structure
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.arena import arena
from uopc.ir.core.args import KernelArg, Opt
from uopc.ir.core.calls import is_length
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, as_made, intern
from uopc.ir.devices.device import is_cpu, named
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass
from uopc.program.graph.facts import GraphFacts, facts_of
from uopc.target import Target
from uopc.tensor.elementwise import unbind

if TYPE_CHECKING:  # a program from a cache needs no pass, and that of one device no mesh
    from uopc.passes.contract import Context
    from uopc.passes.pass_manager import Done, Lowered, Verify
    from uopc.program.graph.sharding import MeshRequest

    Searched = Callable[[UOp, Context], UOp]


@dataclass(frozen=True)
class Request:
    """A graph and the arguments of `compile`: enough to compile again in another process."""

    graph: UOp  # SINK of the outputs, or a kernel
    structure: str  # of the results: single, tuple, list or dict; or kernel
    keys: tuple[Any, ...]  # of a dict of results, or the paths of nested ones, which are a tuple
    params: tuple[UOp, ...]  # in the order of the positional arguments
    optimize: bool
    threads: int
    name: str
    options: config.Options
    rules: Mapping[str, Any] = field(default_factory=dict)  # the user's PatternMatchers by stage
    bound: Mapping[str, int] = field(default_factory=dict)  # values that `bind` gave variables
    device: str = "cpu"
    opts: tuple[KernelArg, ...] | None = None  # of each kernel, in order, instead of chosen ones
    mesh: MeshRequest | None = None
    layouts: tuple[Any, ...] = ()  # of results that are sparse matrices, else None; (): none is
    nesting: Structure | None = None  # of results in containers of containers
    complex_params: frozenset[str] = frozenset()  # the names of those whose pairs are `Pairs`
    complex_results: frozenset[int] = frozenset()  # the numbers of such results

    @cached_property
    def facts(self) -> GraphFacts:
        """The facts about the graph that a compile needs."""
        return facts_of(self.graph)


def thread_count(threads: int | None, options: config.Options) -> int:
    """The threads of a program: the given number, else the options'; 0 means all. UserError for an
    invalid number."""
    wanted = threads if threads is not None else options.threads
    if not isinstance(wanted, int) or not 0 <= wanted <= config.MOST_THREADS:
        raise UserError(f"threads must be 0 (all) to {config.MOST_THREADS}, got {wanted!r}")
    return wanted or detect.cores()


def prepare(
    graph: Any, inputs: Sequence[UOp | Pairs | str] | None, optimize: bool, threads: int | None,
    name: str | None, options: config.Options, rules: Any = None, device: str = "cpu",
    mesh: MeshRequest | None = None,
) -> Request:  # fmt: skip
    """Make the request for a graph, or a container of graphs. UserError if it is not well
    formed."""
    count = thread_count(threads, options)
    sink = _sink_of(graph)
    paired = [u.data for u in inputs or () if isinstance(u, Pairs)]
    given = [u.data if isinstance(u, Pairs) else u for u in inputs or ()]
    complex_results = [sink.graph.src[i] for i in sink.complex_results]
    _check_pairs(sink.graph, [*complex_results, *paired], mesh)
    facts = facts_of(sink.graph)
    if facts.of(Ops.PRIMITIVE):
        facts = facts_of(primitives.without_primitives(facts.graph))
    if facts.of(Ops.BIND):
        facts = facts_of(lengths.with_variables(facts.graph))
        _check_lengths(facts, device, mesh)
    made = list(dict.fromkeys([u.arg.name for u in as_made(facts.params)]))
    bound = _bound_values(facts) if facts.of(Ops.BIND, Ops.CALL) else {}
    if bound or (mesh is None and facts.of(Ops.SHARD)):
        facts = _of_operands(facts, (Ops.BIND,) if mesh is not None else (Ops.BIND, Ops.SHARD))
    if sink.structure == "kernel":
        facts = facts_of(_named_params(facts.graph))
    else:
        _check_no_slots(facts)
    params = _ordered_params(facts, made if inputs is None else given)
    if mesh is not None:
        mesh = mesh.for_graph(facts, params, device, options.beam)
    if options.fast_zeros:
        facts = facts_of(rebuild.marked_fast_zeros(facts.graph))
    return Request(
        facts.graph, sink.structure, sink.keys, params, optimize, count, name or "", options,
        {} if rules is None else _by_stage(rules, "compile"), bound, device, None, mesh,
        sink.layouts, sink.nesting, frozenset([u.arg.name for u in paired]), sink.complex_results,
    )  # fmt: skip


class _Sink(NamedTuple):
    """One SINK of all outputs, the kind of their container, the keys or paths in it, the layouts of
    sparse matrices (() without any), the structure of nested containers, and which outputs are
    complex."""

    graph: UOp
    structure: str
    keys: tuple[Any, ...]
    layouts: tuple[Any, ...] = ()
    nesting: Structure | None = None
    complex_results: frozenset[int] = frozenset()


def _check_pairs(sink: UOp, paired: Sequence[UOp], mesh: MeshRequest | None) -> None:
    """UserError for `Pairs` that are none; Unsupported on a mesh."""
    for u in paired:
        if not u.dtype.is_float or u.dtype.bits < 32 or shapes.shape(u)[-1:] != (2,):
            raise UserError(f"compile: needs pairs of float32 or float64 in the last axis, got {u}")
    if paired and mesh is not None:
        raise Unsupported(
            "compile: complex arrays on a mesh of devices: pass the real and the imaginary part"
        )


def _sink_of(graph: Any) -> _Sink:
    """The outputs of a request: a graph or a container of graphs."""
    given, structure, keys, nesting = _structure(graph)
    outputs = tuple([v.data if isinstance(v, LaidOut) else v for v in given])
    outputs = tuple([v.src[1] if is_length(v) else v for v in outputs])
    if len(outputs) == 1 and outputs[0].op is Ops.SINK:
        kind = "kernel" if facts_of(outputs[0]).level is not TENSOR else "tuple"
        return _Sink(outputs[0], kind, keys)
    nothing = [u for u in outputs if u.op is Ops.NOOP]
    if nothing or (structure == "single" and outputs[0].dtype is dtypes.void):
        name_of = [*nothing, *outputs][0].op.name
        raise UserTypeError(f"compile: {name_of} has no value: pass values, or a SINK of it")
    layouts = tuple([v.layout if isinstance(v, LaidOut) else None for v in given])
    sink = intern(Ops.SINK, dtypes.void, outputs)
    complex_results = frozenset([i for i, v in enumerate(given) if isinstance(v, Pairs)])
    layouts = layouts if any(layouts) else ()
    return _Sink(sink, structure, keys, layouts, nesting, complex_results)


def _by_stage(rules: Any, who: str) -> Mapping[str, Any]:
    from uopc.program.rules import by_stage

    return by_stage(rules, who)


def rules_of(request: Request, machine: Target) -> Mapping[str, Any]:
    """The PatternMatchers by stage. At each node the user's rules are tried before the
    machine's."""
    if machine.rules is None:
        return request.rules
    from uopc.program.rules import merged

    return merged(request.rules, _by_stage(machine.rules, f"target {machine.name}"))


def make_context(request: Request, machine: Target) -> Context:
    """The context of the passes for a request."""
    from uopc.passes.contract import Context
    from uopc.passes.pass_manager import function_schedule, kernel_costs

    rules = rules_of(request, machine)
    own = request.mesh.mesh.devices if request.mesh is not None else ()
    devices = own or request.facts.devices or (request.device,)
    threads = request.threads // len(devices) or request.threads
    context = Context(machine, request.optimize, threads, request.options, rules=rules)
    context.devices = devices
    context.schedule = function_schedule(context)
    if request.optimize and machine.gpu is None and len(devices) == 1:
        context.cost = kernel_costs(context)
    if request.mesh is not None:
        context.sharding = request.mesh.layout()
    context.lengths = tuple([u.src[0] for u in request.facts.lengths])
    context.replayed = None if request.opts is None else iter(request.opts)
    return context


def lower(
    request: Request, machine: Target, verify: Verify | None = None,
    opts: tuple[Opt, ...] | None = None, skip: Callable[[UOp], Container[UOp]] | None = None,
    trace: bool = False, searched: Searched | None = None, done: Done | None = None,
) -> Lowered:  # fmt: skip
    """The stages of a request whose graph is checked. `verify` checks each stage; `opts` replace
    the chosen Opts; `skip` names kernels to leave as they are; `trace` keeps every rewrite;
    `searched` gives kernels the Opts that a search found; `done` gets each linear kernel, and the
    graphs of stages are then not kept."""
    from uopc.passes import pass_manager
    from uopc.program.graph.check_input import checked

    with arena():
        graph = checked(request.facts, request.device, request.mesh is not None)
        context = make_context(request, machine)
        context.opts, context.searched = opts, searched if opts is None else None
        traced = trace or config.page_folder(request.options) is not None
        lowering = pass_manager.Lowering(context, verify, traced, skip, done)
        return lowering.lower(graph, given=request.graph)


def _structure(
    graph: Any,
) -> tuple[tuple[UOp | LaidOut, ...], str, tuple[Any, ...], Structure | None]:
    """The outputs, their kind of container, its keys or the paths in nested containers, and the
    structure of nested containers."""
    if isinstance(graph, _LEAVES):
        return (graph,), "single", (), None
    flat = _flat(graph)
    if flat is not None and all([isinstance(v, _LEAVES) for v in flat[0]]):
        return *flat, None
    leaves, nesting = pytrees.flatten(graph, _LEAVES)
    if graph is None or nesting == pytrees.LEAF:
        raise UserTypeError(f"compile: expected a UOp or a container of UOps, got {got(graph)}")
    for path, v in leaves:
        if not isinstance(v, _LEAVES):
            kind = type(graph).__name__
            raise UserTypeError(f"compile: expected UOps in the {kind}, at {path[1:]} got {got(v)}")
    return tuple([v for _, v in leaves]), "tuple", tuple([p[1:] for p, _ in leaves]), nesting


_LEAVES = (UOp, LaidOut)


def _flat(graph: Any) -> tuple[tuple[Any, ...], str, tuple[Any, ...]] | None:
    """The parts of a container, its kind and its keys; None for nested containers and for
    leaves."""
    if isinstance(graph, Mapping) and not isinstance(graph, OrderedDict):
        return tuple(graph.values()), "dict", tuple(graph)
    if isinstance(graph, list):
        return tuple(graph), "list", ()
    if isinstance(graph, tuple) and not hasattr(graph, "_fields"):
        return tuple(graph), "tuple", ()
    return None


def got(value: Any) -> str:
    """Text for an error: what was given in place of a graph, and how to get a graph from a
    function."""
    shown = reprlib.repr(value)
    if isinstance(value, type) or not callable(value):
        return shown
    name = getattr(value, "__name__", "f")
    name = name if name.isidentifier() else "f"
    if hasattr(value, "lower"):
        return f"{shown}: pass {name}.lower(*args), its graph, or call {name}.program(*args)"
    if hasattr(value, "kernels"):
        return f"{shown}, which is compiled"
    return f"{shown}: a function has a graph for arguments: uopc.jit({name}).lower(*args)"


def _bound_values(facts: GraphFacts) -> dict[str, int]:
    """The values that variables are bound to, also in the kernels that the graph calls."""
    bound: dict[str, int] = {}
    for u in facts.relying:
        if u.op is Ops.BIND and not is_length(u):
            variable, value = unbind(u)
            arg = variable.arg
            if not arg.low <= value <= arg.high:
                raise UserError(
                    f"variable {arg.name} is bound to {value}, expected {arg.low}..{arg.high}"
                )
            if bound.setdefault(arg.name, value) != value:
                raise UserError(
                    f"variable {arg.name} is bound to {bound[arg.name]} and {value}: bind it once"
                )
    return bound


def _of_operands(facts: GraphFacts, dropped: tuple[Op, ...]) -> GraphFacts:
    """The facts of the graph with operands in place of these nodes: the variables of BINDs, because
    graphs that differ in the values alone are one graph, compiled once, and the values of SHARDs,
    which one device has whole."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return src[0] if u.op in dropped and not is_length(u) else None

    return facts_of(rebuild.rewritten(facts.graph, change))


def _check_lengths(facts: GraphFacts, device: str, mesh: object) -> None:
    """Unsupported for sizes that the graph computes, except on one CPU."""
    if facts.lengths and (mesh is not None or not is_cpu(named(device))):
        name = facts.lengths[0].src[0].arg.name
        where = "a mesh of devices" if mesh is not None else device
        raise Unsupported(
            f"compile: the length {name} is computed by the graph, which {where} does not support:"
            f" compile for the CPU, or keep a mask in its place{made_at(facts.lengths[0])}"
        )


def _named_params(kernel: UOp) -> UOp:
    """The kernel with a name for each param: a param without a name is named by its slot. No param
    is a constant."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.PARAM or (u.arg.name and u.arg.order is None):
            return None
        arg = replace(u.arg, name=u.arg.name or f"arg{u.arg.slot}", order=None)
        return intern(u.op, u.dtype, src, arg, u.tag)

    return rebuild.rewritten(kernel, change)


def _check_no_slots(facts: GraphFacts) -> None:
    """Refuse params of a kernel in a tensor graph, except in the body of a FUNCTION or kernel."""
    if facts.level is not TENSOR:
        raise UserError("compile: a kernel is one SINK of stores: pass store.sink(name=...)")
    slotted = [u for u in facts.of(Ops.PARAM) if u.arg.slot >= 0]
    if not slotted:
        return
    bodies, sink = (Ops.SINK, Ops.FUNCTION), facts.graph
    outside = walk.toposort(sink, gate=lambda v: v is sink or v.op not in bodies)
    for u in slotted:
        if u in outside:
            raise UserError(
                f"compile: {u.arg.name} is the argument of a kernel, whose outputs are stored;"
                f" the argument of a graph is uopc.param({u.arg.name!r}, ...){made_at(u)}"
            )


def _ordered_params(facts: GraphFacts, inputs: Sequence[UOp | str]) -> tuple[UOp, ...]:
    """The program's params in the order of its positional arguments."""
    found: dict[str, UOp] = {}
    for u in facts.params:
        if (first := found.setdefault(u.arg.name, u)) is not u:
            lines = made_at(first) + made_at(u)
            raise UserError(f"two different params are named {u.arg.name!r}: rename one{lines}")
    if facts.level is not TENSOR:
        return tuple(sorted(found.values(), key=lambda u: int(u.arg.slot)))
    ordered: dict[str, UOp] = {}
    for given in inputs:
        param = found.get(given) if isinstance(given, str) else given
        if not isinstance(param, UOp) or param.op not in (Ops.PARAM, Ops.VARIABLE):
            names = ", ".join(map(str, found))
            raise UserError(f"inputs: {given!r} is not a param; choose {names}")
        if param.op is Ops.PARAM:
            if param.arg.name in ordered:
                raise UserError(f"inputs: {param.arg.name!r} appears twice")
            ordered[param.arg.name] = param
    missing = [n for n, u in found.items() if ordered.get(n) is not u]
    if missing:
        raise UserError(f"inputs: list every param of the graph; missing {', '.join(missing)}")
    return tuple(ordered.values())
