"""compile(): a graph of UOps goes in, a Program (a fast callable) comes out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from uopc import config
from uopc.errors import UserTypeError
from uopc.ir.builder import checks
from uopc.ir.builder.pytrees import Pairs
from uopc.ir.core.arena import arena, uncollected
from uopc.ir.core.args import Opt
from uopc.ir.core.levels import LINEAR, PROGRAM, Level
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.program.backend import backend_of
from uopc.program.graph.facts import GraphFacts
from uopc.program.program import Program, make_program
from uopc.program.request import Request, got, lower, prepare
from uopc.program.tuned import schedules

if TYPE_CHECKING:  # a cached program needs no pass, a program for one device no mesh
    from uopc.passes.pass_manager import Lowered, Verify
    from uopc.program.described import Description, Found, Made
    from uopc.program.graph.sharding import Earlier, Sharding
    from uopc.program.source import ProgramSource


def compile(
    graph: Any, *, device: str | None = None, inputs: Sequence[UOp | Pairs | str] | None = None,
    optimize: bool = True, beam: int = 0, threads: int | None = None, verify: bool | None = None,
    name: str | None = None, rules: Any = None, sharding: Sharding | None = None,
    **earlier: Unpack[Earlier],
) -> Program:  # fmt: skip
    """Compile a graph to machine code, ready to be called.

    graph: a UOp, or a tuple, list or dict of them, also nested, and other containers of `jit` (the
    result has the same structure), or a SINK that is a kernel written by hand. device: such as
    `cpu` or `cuda:0`; by default the device of the options. inputs: the order of positional
    arguments, as params or names; by default the order in which the params were made. optimize:
    False leaves the loops as they are. threads: of a CPU; by default the threads of the options.
    verify: check every stage and access. name: of the function, in profiles and dumps.

    beam: search for the Opts of each kernel by measured time, keeping this number of lists in each
    round; by default the number in the options: see docs/tuning.md. rules: a PatternMatcher (or a
    rule, or a list) that runs right before each kernel is final, or a dict of these by pass, each
    of which rewrites the result of its pass, which is then verified.

    sharding: a `uopc.Sharding`: the devices of a mesh run the program, each on its part of the
    arrays. `earlier`: the parts of a Sharding as arguments, removed in the next version.

    Raises UserError (graph or arguments are wrong), InvalidIR (the graph breaks a rule of its
    level), Unsupported.

    Examples:
        >>> x, y = uopc.param("x", (3,)), uopc.param("y", (3,))
        >>> program = uopc.compile({"sum": x + y, "product": x * y})
        >>> program(np.array([1, 2, 3], "f4"), y=np.full(3, 2, "f4"))
        {'sum': array([3., 4., 5.], dtype=float32), 'product': array([2., 4., 6.], dtype=float32)}
    """
    options = _options(beam)
    _check_kinds(device, inputs, name)
    device = options.device if device is None else device.lower()
    backend_of(device)
    optimize = checks.flag("compile", "optimize", optimize) and not options.noopt
    if verify is not None:
        verify = checks.flag("compile", "verify", verify)
    with arena():
        mesh = None
        if sharding is not None or earlier:
            from uopc.program.graph.sharding import mesh_request, of_arguments

            mesh = mesh_request(of_arguments(sharding, earlier))
        request = prepare(graph, inputs, optimize, threads, name, options, rules, device, mesh)
        _check_copies(request.facts)
        stages = options.spec > 0 if verify is None else verify
        accesses = options.spec > 1 if verify is None else verify
        verify_with = _verifier(request, stages, accesses)
        with _watched(request):
            program = make_program(request, verify_with)
    return _reported(program, options)


def _check_copies(facts: GraphFacts) -> None:
    """UserError for a COPY to a device that does not exist."""
    for u in facts.of(Ops.COPY):
        backend_of(u.arg.lower(), "copy")


def _reported(program: Program, options: config.Options) -> Program:
    """Report the compile to page folder, log and stderr, as requested; return the program."""
    if config.page_folder(options):
        from uopc.program.reports import page

        page.write(program)
    if _is_logged():
        from uopc.program.reports import debug

        debug.log_compile(program)
    if options.debug:
        from uopc.program.reports import debug

        return debug.report_compile(program, options.debug)
    return program


def _watched(request: Request) -> contextlib.AbstractContextManager[None]:
    """Show the progress of a long compile if a person is watching."""
    if not (request.options.progress and config.is_interactive()):
        return contextlib.nullcontext()
    from uopc.dump import progress

    return progress.shown(request.name or "program")


def _is_logged() -> bool:
    """True if a handler gets records of compiles; False if `logging` was never imported."""
    logging = sys.modules.get("logging")
    return logging is not None and logging.getLogger("uopc").isEnabledFor(logging.INFO)


@uncollected()
def compile_described(
    description: Description, *, device: str | None = None, optimize: bool = True,
    threads: int | None = None, name: str | None = None, **others: Any,
) -> Found | None:  # fmt: skip
    """Compile the graph that files describe. The graph is made only if no earlier process stored
    the graph and its program. None for a graph without outputs. Raises the errors of `compile` and
    of `description.make`."""
    from uopc.program.described import Described, Found

    options = config.current()
    arguments = {"device": device, "optimize": optimize, "threads": threads, "name": name} | others

    def compiled(made: Made) -> Program:
        with config.options(**vars(options)):
            return compile(made.outputs, inputs=made.inputs, **arguments)

    def source() -> ProgramSource:
        return compiled(description.make())._source

    described = None if _is_logged() else Described.of(description, options, arguments, source)
    with schedules.session(options.beam):
        found = None if described is None else described.find()
    if found is not None:
        return found
    made = description.make()  # nodes that an arena makes have no lines
    if made.outputs is None:
        return None
    if described is None:
        return Found(compiled(made), made.notes)
    blank = described.request
    with arena():
        request = prepare(
            made.outputs, made.inputs, blank.optimize, threads, name, options, device=blank.device
        )
        with _watched(request):
            program = make_program(request, None, functools.partial(described.detach, made))
    return Found(program, made.notes, described.kept)


def save_schedule(program: Program, file: str | os.PathLike[str]) -> None:
    """Write a program's graph with the Opts of each kernel, as text, and constant arrays beside it.

    UserError if a file cannot be written, UserTypeError if it is no program, Unsupported for a
    program with rules, or with results in nested containers.

    Examples:
        >>> import os, tempfile
        >>> program = uopc.compile(uopc.param("x", (3,)) * 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     uopc.save_schedule(program, f"{folder}/double.uop")
        ...     os.listdir(folder)
        ['double.uop']
    """
    from uopc.program import saved

    if not isinstance(program, Program):
        raise UserTypeError(f"save_schedule: expected a Program, got {got(program)}")
    saved.save(program, Path(checks.path("save_schedule", file)))


def load_schedule(file: str | os.PathLike[str]) -> Program:
    """The program of a saved schedule, with the same launches and the Opts in the file.

    Each Opt is checked as in a compile. UserError if this version makes other kernels of the graph
    or refuses an Opt, InvalidIR if the file is damaged.

    Examples:
        >>> import tempfile
        >>> program = uopc.compile(uopc.param("x", (3,)) * 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     uopc.save_schedule(program, f"{folder}/double.uop")
        ...     same = uopc.load_schedule(f"{folder}/double.uop")
        >>> same(np.array([1, 2, 3], "f4"))
        array([2., 4., 6.], dtype=float32)
    """
    from uopc.program import saved

    path = Path(checks.path("load_schedule", file))
    with arena():
        request, launches = saved.read(path)
        program = make_program(request)
        saved.check_launches(path, program, launches)
    return program


def lower_only(
    graph: Any, *, optimize: bool = True, threads: int | None = None, verify: bool = True,
    rules: Any = None, opts: tuple[Opt, ...] | None = None, device: str = "cpu",
) -> Lowered:  # fmt: skip
    """The stages of a graph without machine code. `opts` replace the chosen Opts."""
    options, device = config.current(), device.lower()
    request = prepare(graph, None, optimize, threads, None, options, rules, device)
    machine = backend_of(device).target(device, options.target_cpu)
    searched = schedules.current_schedules(request, machine).apply
    return lower(request, machine, _verifier(request, verify), opts, searched=searched)


def _options(beam: int) -> config.Options:
    """The options of a compile; UserError for a beam that is not a number."""
    options = config.current()
    return dataclasses.replace(options, beam=beam) if beam else options


def _check_kinds(device: Any, inputs: Any, name: Any) -> None:
    """UserTypeError for an argument of `compile` of the wrong kind."""
    kinds = (
        ("device", device, str, "a string"), ("name", name, str, "a string"),
        ("inputs", inputs, (list, tuple), "a list of params or names"),
    )  # fmt: skip
    for argument, value, kind, words in kinds:
        if value is not None and not isinstance(value, kind):
            raise UserTypeError(f"compile: {argument} must be {words}, got {value!r}")


def _verifier(request: Request, stages: bool, accesses: bool = False) -> Verify | None:
    """The function that checks each stage; with `accesses`, also that none leaves its storage."""
    if not stages:
        return None
    from uopc.ir.index import size_conditions
    from uopc.ir.verify import in_bounds, verifier

    if not accesses:
        return verifier.verify
    @functools.cache
    def assumed() -> list[UOp]:  # called after the graph has been checked
        listed = request.facts.level in (PROGRAM, LINEAR)
        return [] if listed else [c.as_bool for c in size_conditions.of_graph(request.graph)]

    def verify(stage: UOp, level: Level, name: str = "") -> None:
        in_bounds.verify_with_bounds(stage, level, name, assuming=assumed())

    return verify
