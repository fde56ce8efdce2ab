"""The SOURCE of a command: which graph a file offers.

`file.onnx` is a model. `file.casadi` is a Function that CasADi saved (`f.save`). `file.uop` holds a
graph as text; its first lines name its stage, and the arrays that it names are `.npy` files beside
it. `file.py:name` is the value of `name` in a Python file: a UOp or a Sparse, a tuple, list or dict
of them, also nested, a Program, a function without parameters that returns one of these, or a
function of `jit` that the file calls with arguments of one kind. `uopc dump --help` describes the
choice without a name. The file runs as a module that is not `__main__`, and its output goes to
stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import linecache
import sys
import traceback
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from uopc import config, target
from uopc.backends import detect
from uopc.dump.files import read_arrays
from uopc.dump.stages import STAGES
from uopc.errors import Error, InvalidIR, UserError
from uopc.ir.builder import pytrees
from uopc.ir.core import walk
from uopc.ir.core.level_of import level_of
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.ir.text.parser import parse, parse_header
from uopc.passes.pass_manager import INPUT
from uopc.program import saved
from uopc.program.program import Program
from uopc.program.request import Request, prepare
from uopc.sparse.sparsity import Sparse
from uopc.tracing.jit import Jitted

_LEAVES = (Ops.PARAM, Ops.VARIABLE, Ops.CONST, Ops.DATA, Ops.RANGE, Ops.BUFFER)


@dataclass
class LoadedSource:
    """A graph (or a container of graphs), its stage, the settings in its file, the request of a
    compiled Program, and the inputs of a Function of CasADi in order."""

    name: str
    graph: Any
    start: str = INPUT
    settings: dict[str, str] = field(default_factory=dict)
    request: Request | None = None
    inputs: tuple[Sparse, ...] | None = None


def load(source: str, sizes: Mapping[str, Any] | None = None) -> LoadedSource:
    """The graph that SOURCE names. UserError and InvalidIR give the file and line of a mistake.
    sizes: of a model's dimensions, from `--set`; None if a command has no such option."""
    path, name = Path(source), ""
    head, colon, tail = source.rpartition(":")
    if colon and not path.exists() and tail.isidentifier():
        path, name = Path(head), tail
    if path.suffix not in (".py", ".uop", ".onnx", ".casadi"):
        raise UserError(f"{source}: expected a .py, .uop, .onnx or .casadi file")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if path.suffix == ".uop":
        if name:
            raise UserError(f"{source}: a .uop file holds one graph, which has no name")
        return _load_text(path)
    if path.suffix == ".onnx":
        return LoadedSource(str(path), _model(path, sizes))
    if path.suffix == ".casadi":
        from uopc.casadi import lower

        found = lower(path)
        inputs = tuple(found.arguments.values())
        return LoadedSource(str(path), found.results, inputs=inputs)
    module = _run_file(path)
    chosen = name or _choose(path, module)
    if not hasattr(module, chosen):
        raise UserError(f"{path} defines no {chosen!r}")
    value = _graph_of(path, chosen, _program_of(path, chosen, getattr(module, chosen)))
    if isinstance(value, Program):
        request = value._source.given
        return LoadedSource(f"{path}:{chosen}", request.graph, request=request)
    return LoadedSource(f"{path}:{chosen}", value)


def _model(path: Path, sizes: Mapping[str, Any] | None) -> Any:
    """The graph of a model. If sizes are missing, the error names the option that sets them."""
    from uopc.onnx import graph
    from uopc.onnx.signature import ModelSignature

    try:
        return graph(path, dims=sizes).nodes
    except Error as error:
        left = [] if sizes is None else [n for n in ModelSignature.of(path).sizes if n not in sizes]
        if not left:
            raise
        raise type(error)(
            f"{error}\n  The model leaves sizes open: {', '.join(left)}. Give them by --set, as"
            f" --set {left[0]}=8, or their bounds, as --set {left[0]}=1:64"
        ) from None


def _load_text(path: Path) -> LoadedSource:
    try:
        text = path.read_text(encoding="utf-8")
        graph = parse(text, read_arrays(path, text))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from None
    except InvalidIR as error:
        raise InvalidIR(f"{path}: {error}") from None
    settings = parse_header(text)
    request = saved.read(path)[0] if "schedule" in settings else None
    return LoadedSource(str(path), graph, settings.get("stage", INPUT), settings, request)


def _run_file(path: Path) -> ModuleType:
    """Run a Python file as a module. If it fails, UserError shows the failing line of the file."""
    module = ModuleType(f"source_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent.resolve()))
    with _reported(path):
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module


@contextlib.contextmanager
def _reported(path: Path) -> Any:
    """Run the user's code: send its output to stderr, and turn a failure into a UserError that
    shows the last line of the user's file that led to it."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, Error) else f"{type(error).__name__}: "
        file, text = str(path), f"{kind}{error}"
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f.lineno for f in frames if f.filename == file and f.lineno]
        if isinstance(error, SyntaxError) and error.filename == file:
            column = " " * max(0, (error.offset or 1) - 1)
            lines, text = [error.lineno or 1], f"{kind}{error.msg}"
            shown = f"\n    {(error.text or '').rstrip()}\n    {column}^"
        elif lines:
            shown = f"\n    {linecache.getline(file, lines[-1]).strip()}"
        place = f"{path}:{lines[-1]}" if lines else file
        raise UserError(f"{place}: {text}{shown if lines else ''}") from error


def _outputs(value: Any) -> tuple[Any, ...]:
    """The UOps of a graph or of a container of graphs, with the values of sparse matrices; empty
    for other objects."""
    outputs = tuple([v.data if isinstance(v, Sparse) else v for _, v in _leaves(value)])
    return outputs if all(isinstance(v, UOp) for v in outputs) else ()


def _leaves(value: Any) -> list[tuple[str, Any]]:
    """The values of a container, with the path of each; another object is its own value."""
    is_container = isinstance(value, (dict, tuple, list))
    return pytrees.flatten(value, (UOp, Sparse))[0] if is_container else [("", value)]


def _takes_nothing(value: Any) -> bool:
    """True for a function that can be called without arguments."""
    return isinstance(value, FunctionType) and all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        for p in inspect.signature(value).parameters.values()
    )


def _choose(path: Path, module: ModuleType) -> str:
    """The name of the only graph that a module offers."""
    public = {k: v for k, v in vars(module).items() if not k.startswith("_")}
    if "graph" in public:
        return "graph"
    functions = [
        k for k, v in public.items() if _takes_nothing(v) and v.__module__ == module.__name__
    ]
    names = (
        _roots({k: _outputs(v) for k, v in public.items() if _outputs(v)})
        or [k for k, v in public.items() if isinstance(v, Program)]
        or [k for k in functions if k != "main"]
        or functions
    )
    if not names:
        raise UserError(
            f"{path}: expected a UOp at module level, or a function without parameters that returns"
            " a UOp"
        )
    if len(names) > 1:
        raise UserError(
            f"{path} offers {', '.join(names)}: choose one, such as {path}:{names[0]},"
            " or rename the one to load to graph"
        )
    return names[0]


def _roots(graphs: dict[str, tuple[UOp, ...]]) -> list[str]:
    """The names of the graphs that are neither leaves nor parts of others."""
    whole = {u for outputs in graphs.values() for u in outputs}
    below = {s for u in whole for n in walk.toposort(u) for s in n.src}
    roots: dict[Any, str] = {}
    for name, outputs in graphs.items():
        if not all(u in below or u.op in _LEAVES for u in outputs):
            roots.setdefault(outputs, name)
    return list(roots.values())


def _program_of(path: Path, name: str, value: Any) -> Any:
    """If the value is a function of `jit`, its only program, which the file's calls made."""
    if not isinstance(value, Jitted):
        return value
    programs = value.programs()
    if len(programs) != 1:
        count = "no program" if not programs else f"{len(programs)} programs"
        raise UserError(
            f"{path}: {name} is a function of jit with {count}: call it in the file with arguments"
            f" of one kind, or give a program a name, such as program = {name}.program(*args)"
        )
    return programs[0]


def _graph_of(path: Path, name: str, value: Any) -> Any:
    """The graph or the Program: the value, or the result of the function."""
    shown = f"{path}: {name}"
    if callable(value) and not isinstance(value, Program) and not _outputs(value):
        if not _takes_nothing(value):
            raise UserError(f"{shown} must be a graph or a function without parameters")
        with _reported(path):
            value = value()
        shown += "()"
    if not isinstance(value, Program) and not _outputs(value):
        for part, v in _leaves(value):
            if not isinstance(v, (UOp, Sparse)):
                kind = type(v).__name__
                raise UserError(f"{shown}{part}: expected a graph of UOps, got {kind}")
        raise UserError(f"{shown}: expected a graph of UOps, got nothing")
    return value


def request_of(found: LoadedSource, device: str | None) -> Request:
    """The request to compile: a Program's request, or the graph with the settings of the
    environment and of a stage file. `device` is the option of the command line."""
    if found.request is not None:
        return dataclasses.replace(found.request, device=device or found.request.device)
    options, noted, graph = config.current(), found.settings, found.graph
    optimize = noted.get("optimize", "yes") != "no" and not options.noopt
    threads = options.threads
    if not threads and noted.get("threads", "").isdecimal():
        threads = min(config.MOST_THREADS, int(noted["threads"]))
    cpu = options.target_cpu or (noted["cpu"] if noted.get("cpu") in target.CPUS else "")
    options = dataclasses.replace(config.with_texts(options, noted), target_cpu=cpu)
    device = device or noted.get("device") or options.device
    _note_rules(found)
    if found.start == INPUT and not (isinstance(graph, UOp) and level_of(graph) is not TENSOR):
        inputs = None if found.inputs is None else [matrix.data for matrix in found.inputs]
        return prepare(graph, inputs, optimize, threads, None, options, device=device)
    return Request(
        graph, "kernel", (), (), optimize, threads or detect.cores(), "", options, device=device
    )


def _note_rules(found: LoadedSource) -> None:
    """Name the rules of later stages that the run had: a stage file cannot hold rules."""
    at = STAGES.index(found.start) if found.start in STAGES else 0
    later = [s for s in found.settings.get("rules", "").split(", ") if s in STAGES[at + 1 :]]
    if later:
        print(f"{found.name}: without the rules after {', '.join(later)}", file=sys.stderr)
