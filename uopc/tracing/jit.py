"""`jit`: a Python function of arrays as programs, one for each kind of arguments.

The function runs once on Arrays, which record a graph; the graph is compiled. A call whose
arguments have the same dtypes, shapes, containers and static values runs the same program.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import reprlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple, TypedDict, Unpack, overload

import numpy as np

from uopc import config, driver
from uopc.errors import CircularWait, UserError, UserTypeError
from uopc.ir.builder import checks, operands, tree_code
from uopc.ir.builder.pytrees import LEAF, Pairs, details, exactly, flatten, unflatten
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.ir.devices.mesh import Mesh
from uopc.ir.records import dataclass
from uopc.ir.text.columns import plural
from uopc.numpy.array import Array, Trace, births, captured, current_trace
from uopc.numpy.complexes.arrays import ComplexArray, array_dtype, constant, is_complex
from uopc.program.graph.sharding import Sharding
from uopc.program.program import Program
from uopc.sparse.sparsity import Sparse
from uopc.tensor.creation import param
from uopc.tracing import arguments, draws, memory, twin

_chosen = config.chosen
_MOST_PROGRAMS = 1024
_DEEP_CALLS = 16  # with so many runs inside each other, a function itself has filled the stack
_MOST_SIZE = 1 << 28  # of a dimension that has a name and no bounds
_OF_NUMBERS = {
    bool: np.dtype(bool), int: np.dtype(np.int64), float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}  # fmt: skip
# The functions that are being traced in this thread, with the kinds of their arguments.
_NO_CALL: tuple[Any, Any] = (object(), None)
_tracing: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("jit", default=())


class CacheInfo(NamedTuple):
    """The number of calls that found a program, of calls that compiled a program, and of programs.

    Examples:
        >>> uopc.jit(lambda x: x + 1).cache_info()
        CacheInfo(hits=0, misses=0, programs=0)
    """

    hits: int
    misses: int
    programs: int


@dataclass(frozen=True)
class _CallKind:
    """The properties of a call's arguments that select a program, and the arrays to pass."""

    key: Any
    structure: Any
    static: dict[str, Any]
    paths: list[str]
    specs: list[tuple[Any, ...]]  # (dtype, dims, weak) of each leaf
    arrays: list[Any]
    inline: bool  # an argument is a value of a graph: the function becomes part of it
    numbers: tuple[int, ...]  # the leaves that are NumPy's scalars


@dataclass(frozen=True)
class _Compiled:
    """A program and the structure of its results."""

    program: Program | None
    run: Callable[..., Any]  # the program, and what it does to its arguments
    structure: Any
    # Runs a call by position; TypeError or ValueError for arguments of another kind.
    positional: Callable[..., Any]
    write: Callable[[Any], Any] | None  # converts the program's results
    meets: list[tuple[int, dtypes.DType]]  # arguments that are Python integers: see `Trace`

    def call(self, kind: _CallKind, who: str) -> Any:
        arrays = kind.arrays
        for i, t in self.meets:
            least, greatest = t.bounds
            if not least <= int(arrays[i]) <= greatest:
                raise UserError(
                    f"{who}(): {kind.paths[i]} = {arrays[i]} does not fit {t.name}, the dtype of an"
                    " array that it meets: pass it as an array of a wider dtype"
                )
        if self.program is None:
            return unflatten(self.structure, ())
        found = self.run(*arrays)
        return found if self.write is None else self.write(found)


@dataclass(frozen=True)
class _Traced:
    """A run of the function: the params, the results as UOps, their structure, and the effects."""

    params: list[UOp]
    inputs: list[UOp | Pairs]
    results: list[UOp | Pairs]
    structure: Any
    trace: Trace
    effects: memory.Effects


class Jitted:
    """A function that `jit` made. Call it like the original, with arguments by position or name.

    Examples:
        >>> f = uopc.jit(lambda x, y: x + 2 * y)
        >>> f(np.array([1.0, 2.0]), y=np.array([10.0, 20.0]))
        array([21., 42.])
    """

    def __init__(
        self, function: Callable[..., Any], static: Iterable[str], donated: Iterable[str],
        dims: Mapping[str, Sequence[Any]], how: dict[str, Any],
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function)
        self._function, self._how = function, how
        self._name = getattr(function, "__name__", "function")
        try:
            self._signature = inspect.signature(function)
        except ValueError:
            raise UserTypeError(
                f"jit: Python does not tell the arguments of {self._name}: pass a function that"
                " calls it"
            ) from None
        self._static, self._donated = frozenset(static), frozenset(donated)
        self._dims = {path: tuple(d) for path, d in dims.items()}
        kinds = [p.kind for p in self._signature.parameters.values()]
        variadic = inspect.Parameter.VAR_KEYWORD in kinds
        self._takes_any_number = inspect.Parameter.VAR_POSITIONAL in kinds
        known = self._signature.parameters.keys()
        for name in (*self._static, *self._donated, *[p.split(".")[0] for p in self._dims]):
            if name not in known and not variadic:
                raise UserError(
                    f"jit: {self._name} has no argument {name!r}; it has {', '.join(known)}"
                )
        self._compiled: dict[Any, _Compiled] = {}
        # The options of the last call by position, and a function for more calls like it.
        self._last = _NO_CALL
        self._by_class: dict[Any, Callable[..., Any]] = {}  # for alternating calls of several kinds
        self._hits = self._misses = 0

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        options, positional = self._last
        if options is _chosen() and not named:
            try:
                found = positional(*args)
            except (TypeError, ValueError):  # arguments of another kind, or wrong: see below
                pass
            else:
                self._hits += 1
                return found
        kind = self._kind(args, named)
        if kind.inline:
            return self._inlined(kind, args, named)
        return self._entry(kind, args, named).call(kind, self._name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        count = plural(len(self._compiled), "program")
        return f"<uopc.jit of {self._name}{self._signature}, {count}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not (hasattr(Program, name) or name == "stats"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        own = vars(self).get("_name", "f")
        raise AttributeError(
            f"{own}.{name}: a function of jit has a program for each kind of arguments: write"
            f" {own}.program(*args).{name}"
        )

    def __reduce__(self) -> Any:
        """Pickle as the function's name, without programs."""
        found: Any = sys.modules.get(self._function.__module__)
        for name in self._function.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is self:
            return self._function.__qualname__
        if found is self._function:
            given = self._function, tuple(self._static), tuple(self._donated), self._dims, self._how
            return Jitted, given
        raise UserTypeError(
            f"{self._name} cannot be pickled: no module has a function of this name; pickle"
            f" {self._name}.program(*args)"
        )

    # ------------------------------------------------------------ insight
    def program(self, /, *args: Any, **named: Any) -> Program:
        """The Program that a call with these arguments runs. An array may be replaced by any object
        with a `shape` and a `dtype`. UserError if the function returns no array.

        Examples:
            >>> f = uopc.jit(lambda x: x * 2)
            >>> f.program(np.ones(3))
            <uopc.Program (x: f64(3)), 1 kernel>
        """
        kind = self._kind(args, named)
        found = self._entry(kind, args, named).program
        if found is None:
            raise UserError(f"{self._name} has no program, because it returns no array")
        return found

    def programs(self) -> list[Program]:
        """The programs of the calls so far, one for each kind of arguments.

        Examples:
            >>> f = uopc.jit(lambda x: x * 2)
            >>> a, b = f(np.ones(3)), f(np.ones(4))
            >>> f.programs()
            [<uopc.Program (x: f64(3)), 1 kernel>, <uopc.Program (x: f64(4)), 1 kernel>]
        """
        return [c.program for c in self._compiled.values() if c.program is not None]

    def lower(self, /, *args: Any, **named: Any) -> Any:
        """The graph of a call with these arguments: UOps in the structure of the results.

        Nothing is compiled.

        Examples:
            >>> f = uopc.jit(lambda x: {"total": x.sum()})
            >>> f.lower(np.ones(3))["total"].shape
            ()
        """
        found = self._traced(self._kind(args, named), args, named)
        return unflatten(found.structure, found.results)

    def stages(self, /, *args: Any, **named: Any) -> dict[str, str]:
        """The text of every stage of the program for these arguments, by the stage's name.

        See `Program.stages`.

        Examples:
            >>> f = uopc.jit(lambda x: x * 2)
            >>> "linearize" in f.stages(np.ones(3))
            True
        """
        return self.program(*args, **named).stages

    def cache_info(self) -> CacheInfo:
        """The number of calls that found a program, of calls that made a program, and of programs.

        Examples:
            >>> f = uopc.jit(lambda x: x * 2)
            >>> a, b = f(np.ones(3)), f(np.zeros(3))
            >>> f.cache_info()
            CacheInfo(hits=1, misses=1, programs=1)
        """
        return CacheInfo(self._hits, self._misses, len(self._compiled))

    def clear_cache(self) -> None:
        """Forget all programs of this function.

        Examples:
            >>> f = uopc.jit(lambda x: x * 2)
            >>> a = f(np.ones(3))
            >>> f.clear_cache()
            >>> f.cache_info().programs
            0
        """
        self._compiled.clear()
        self._by_class.clear()
        self._last, self._hits, self._misses = _NO_CALL, 0, 0

    # ------------------------------------------------------------ a call
    def _kind(self, args: tuple[Any, ...], named: dict[str, Any]) -> _CallKind:
        try:
            bound = self._signature.bind(*args, **named)
        except TypeError as error:
            raise UserTypeError(f"{self._name}(): {error}") from None
        static = {n: v for n, v in bound.arguments.items() if n in self._static}
        for name, value in static.items():
            try:
                hash(value)
            except TypeError:
                got = type(value).__name__
                raise UserTypeError(
                    f"{self._name}(): static argument {name!r} must be hashable, got {got}"
                ) from None
        rest = {n: v for n, v in bound.arguments.items() if n not in static}
        leaves, structure = flatten(rest)
        self._check_dims(structure)
        paths = [path[1:] for path, _ in leaves]
        inline = any(_is_graph(leaf) for _, leaf in leaves)
        specs, arrays = [], []
        for path, (_, leaf) in zip(paths, leaves):
            spec, array = self._leaf(path, leaf)
            specs.append(spec)
            arrays.append(array)
        alike = tuple([exactly(v) for v in static.values()])
        numbers = tuple([i for i, (_, v) in enumerate(leaves) if isinstance(v, np.generic)])
        key = structure, details(structure), tuple(specs), numbers, tuple(static), alike, _chosen()
        return _CallKind(key, structure, static, paths, specs, arrays, inline, numbers)

    def _leaf(self, path: str, leaf: Any) -> tuple[tuple[Any, ...], Any]:
        """The dtype, dims and weakness of an argument, and the array to pass to the program."""
        if type(leaf) in _OF_NUMBERS:
            t = _OF_NUMBERS[type(leaf)]
            try:
                return (array_dtype(t), (), True), np.array(leaf, t)
            except OverflowError:
                raise UserError(f"{self._name}(): {path} = {leaf} does not fit in int64") from None
        if isinstance(leaf, Array) and not leaf.is_unknown:
            leaf = leaf.value(f"{self._name}(): {path}")
        if isinstance(leaf, (Array, UOp)):
            return (leaf.dtype, leaf.shape, getattr(leaf, "weak", False)), leaf
        found = arguments.as_array(leaf)
        if found is None:
            kind = type(leaf).__name__
            what = f"the class {leaf.__name__}" if isinstance(leaf, type) else kind
            raise UserTypeError(
                f"{self._name}(): argument {path} must be an array, got {what}: name it in"
                " static_argnames, or register its class with uopc.register_pytree"
            )
        checks.usual_array(f"{self._name}(): argument {path}", found)
        try:
            t = found.dtype
            dtype = t if isinstance(t, dtypes.DType) else array_dtype(np.dtype(t))
        except UserTypeError as error:
            raise UserTypeError(f"{self._name}(): argument {path}: {error}") from None
        return (dtype, self._dims_of(path, tuple(found.shape)), False), found

    def _check_dims(self, structure: Any) -> None:
        """UserError for a path in `dims` that no array of these arguments has."""
        for path in self._dims:
            names, found = path.split("."), structure
            if names[0] not in found.names:  # it has its default, or is static
                continue
            for name in names:
                if found == LEAF or name not in found.names:
                    raise UserError(f"{self._name}(): dims: no argument has the path {path!r}")
                found = found.parts[found.names.index(name)]
            if found != LEAF and found.parts:
                raise UserError(f"{self._name}(): dims: {path} is a container, not an array")

    def _dims_of(self, path: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
        dims = self._dims.get(path, shape)
        if len(dims) != len(shape):
            raise UserError(f"{self._name}(): {path} must have dims {dims}, got shape {shape}")
        known = [n if d is None else d for d, n in zip(dims, shape)]
        for d, n in zip(known, shape):
            if isinstance(d, int) and d != n:
                raise UserError(f"{self._name}(): {path} must have dims {dims}, got shape {shape}")
        return tuple(known)

    def _entry(self, kind: _CallKind, args: tuple[Any, ...], named: dict[str, Any]) -> _Compiled:
        if kind.inline:
            raise UserTypeError(f"{self._name}: pass arrays, not values of a graph")
        found = self._compiled.get(kind.key)
        if found is not None:
            self._hits += 1
        else:
            self._misses += 1
            while len(self._compiled) >= _MOST_PROGRAMS:
                self._compiled.pop(next(iter(self._compiled)), None)
            found = self._compiled[kind.key] = self._made(kind, args, named)
        if found.program is not None and not (kind.static or named or self._takes_any_number):
            self._remember(kind.key[-1], args, found.positional)
        return found

    def _remember(self, options: Any, args: tuple[Any, ...], found: Callable[..., Any]) -> None:
        """Let later calls with such arguments call `found` directly."""
        if self._last[0] is not options:
            self._by_class.clear()
        elif self._last[1] is not found and all([type(a) in _FLAT for a in args]):
            if len(self._by_class) >= _MOST_PROGRAMS:
                self._by_class.clear()
            self._by_class[_classes_of(args)] = found
            found = self._in_turns
        self._last = options, found

    def _in_turns(self, *args: Any) -> Any:
        """Call the program for arguments of these classes. TypeError if there is none."""
        found = self._by_class.get(_classes_of(args))
        if found is None:
            raise TypeError
        return found(*args)

    def _made(self, kind: _CallKind, args: tuple[Any, ...], named: dict[str, Any]) -> _Compiled:
        traced = self._traced(kind, args, named)
        params, leaves, structure = traced.params, traced.results, traced.structure
        found = traced.effects
        meets = [(i, t) for i, p in enumerate(params) for t in traced.trace.meets.get(p, ())]
        if not leaves and not found:
            return _Compiled(None, _no_program, structure, _no_program, None, [])
        plain = structure == LEAF or (
            structure.kind in (tuple, list, dict) and set(structure.parts) == {LEAF}
        )
        if found:
            rows = zip(_results(structure, iter(leaves)), found.parts)
            new = [u for u, part in rows if part is None]
            pairs = {i for i, u in enumerate(traced.inputs) if isinstance(u, Pairs)}
            last = [Pairs(u) if i in pairs else u for i, u in found.written.items()]
            graph: Any = (*new, *last) or tuple(leaves)
        elif plain:
            graph = unflatten(structure, leaves)
        else:
            graph = tuple(_results(structure, iter(leaves)))
        how = self._how | {"name": self._how["name"] or arguments.identifier(self._name)}
        try:
            program = driver.compile(graph, inputs=traced.inputs, **how)
        except CircularWait:
            nodes, form = flatten(graph)
            if any([isinstance(u, Sparse) for _, u in nodes]):
                raise
            graph = unflatten(form, memory.results_by_values([u for _, u in nodes]))
            program = driver.compile(graph, inputs=traced.inputs, **how)
        parts = kind.structure.parts
        classes = {
            i: _classes(t, weak, i in kind.numbers)
            for i, (t, dims, weak) in enumerate(kind.specs)
            if not dims
        }
        write = None if plain and not found else tree_code.writer(structure)
        run: Callable[..., Any] = program
        if found and write is not None:
            run, write = memory.with_effects(program, found, write, self._name), None
        elif write is None and not classes and all(p == LEAF for p in parts):
            return _Compiled(program, program, structure, program, None, meets)
        limits = {
            i: (max([t.bounds[0] for j, t in meets if j == i]),
                min([t.bounds[1] for j, t in meets if j == i]))
            for i, _ in meets
        }  # fmt: skip
        positional = tree_code.caller(parts, classes, run, write, limits)
        return _Compiled(program, run, structure, positional, write, meets)

    # ------------------------------------------------------------ tracing
    def _traced(
        self, kind: _CallKind, args: tuple[Any, ...], named: dict[str, Any]
    ) -> _Traced:
        """Run the function on Arrays of params."""
        names = arguments.names(kind.paths)
        complex_ones = [t.kind == "complex" for t, _, _ in kind.specs]
        params = [
            param(n, (*self._symbols(dims), 2), dtypes.part_of(t))
            if pairs else param(n, self._symbols(dims), t)
            for n, (t, dims, _), pairs in zip(names, kind.specs, complex_ones)
        ]  # fmt: skip
        trace = begun_trace(self._name)
        trace.lists |= {params[i]: text for i, text in arguments.lists_of(kind.structure, "", 0)[1]}
        begun = next(births)
        arrays = [Array(p, trace, weak) for p, (_, _, weak) in zip(params, kind.specs)]
        for i, a in enumerate(arrays):
            if not a.weak:
                a.held, a.storage = i not in kind.numbers, a.uop
        given = [
            ComplexArray.of_array(a) if pairs else a for a, pairs in zip(arrays, complex_ones)
        ]
        token = current_trace.set(trace)
        limit = captured.set((begun, "uopc.jit"))
        try:
            result = self._run(kind, unflatten(kind.structure, given))
            leaves, structure = flatten(result)
            leaves = [
                (p, constant(v) if not isinstance(v, Array) and is_complex(v) else v)
                for p, v in leaves
            ]
            uops = [self._result(path, leaf, trace, params) for path, leaf in leaves]
            found = self._effects(arrays, params, [leaf for _, leaf in leaves], complex_ones)
        finally:
            trace.open = False
            current_trace.reset(token)
            captured.reset(limit)
        numbers = [isinstance(leaf, Array) and leaf.is_complex for _, leaf in leaves]
        uops = self._donate(kind, params, uops, found, numbers)
        results = [Pairs(u) if pairs else u for u, pairs in zip(uops, numbers)]
        inputs = [Pairs(p) if pairs else p for p, pairs in zip(params, complex_ones)]
        return _Traced(params, inputs, results, structure, trace, found)

    def _effects(
        self, arrays: list[Array], params: list[UOp], results: list[Any],
        complex_ones: list[bool],
    ) -> memory.Effects:  # fmt: skip
        """The effects of the function on its arguments. On other devices results are new arrays."""
        own = [i for i, u in enumerate(complex_ones) if not u]
        found = memory.effects_of(arrays, params, results, own)
        device = self._how["device"] or config.current().device
        elsewhere = self._how["sharding"] is not None or not device.startswith("cpu")
        return replace(found, parts=[None] * len(results)) if elsewhere else found

    def _run(self, kind: _CallKind, values: Mapping[str, Any]) -> Any:
        """Run the function on values by name. UserError for recursion with the same kind."""
        running = _tracing.get()
        mine = self, kind.key[:-1]
        if mine in running:
            raise UserError(
                f"{self._name} calls itself without end: only static arguments can end a recursion"
                " while a function is traced"
            )
        token = _tracing.set((*running, mine))
        try:
            known = kind.static | dict(values)
            ordered = {n: known[n] for n in self._signature.parameters if n in known}
            bound = inspect.BoundArguments(self._signature, OrderedDict(ordered))
            states = draws.states(self._function, kind.static)
            function = twin.rebound(self._function)
            found = function(*bound.args, **bound.kwargs)
            twin.settle(function)
            if draws.states(self._function, kind.static) != states:
                raise UserError(
                    f"{self._name} draws random numbers while it is traced, so every call would"
                    " have these: draw them outside and pass them, or use uopc.random with a key"
                    " that is an argument"
                )
            return found
        except RecursionError as error:
            self._check_recursion(sum(f is self for f, _ in running), kind, error)
            raise
        finally:
            _tracing.reset(token)

    def _check_recursion(self, depth: int, kind: _CallKind, error: RecursionError) -> None:
        """UserError if `depth` nested runs of this function filled Python's stack."""
        call = error.__traceback__ and error.__traceback__.tb_next  # in the function
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        if depth < _DEEP_CALLS or call is None or call.tb_frame.f_code is not code:
            return
        static = ", ".join([f"{n}={reprlib.repr(v)}" for n, v in kind.static.items()])
        raise UserError(
            f"{self._name} has called itself {depth} times, the last time with {static}: only"
            " static"
            " arguments can end a recursion while a function is traced; a loop goes deeper"
            f"\n  calls itself at {code.co_filename}:{call.tb_lineno} in {code.co_name}"
        ) from None

    def _inlined(self, kind: _CallKind, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run the function inside the graph of its arguments."""
        return self._run(kind, unflatten(kind.structure, kind.arrays))

    def _symbols(self, dims: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            [operands.variable(d, 0, _MOST_SIZE) if isinstance(d, str) else d for d in dims]
        )

    def _result(self, path: str, leaf: Any, trace: Trace, params: list[UOp]) -> UOp:
        if isinstance(leaf, Array) and leaf.tracing not in (None, trace):
            raise UserError(
                f"{self._name} returns an array of {leaf.tracing.name}, which has its own trace"
                f"{made_at(leaf.uop)}"
            )
        if isinstance(leaf, (Array, UOp)):
            made = leaf.uop if isinstance(leaf, Array) else leaf
        elif isinstance(leaf, (bool, int, float, np.ndarray, np.generic)):
            made = operands.constant(np.asarray(leaf))
        else:
            where = f"its result{path}" if path else "its result"
            raise UserTypeError(
                f"{self._name}: {where} must be an array or a container of arrays, got"
                f" {type(leaf).__name__}"
            )
        for u in walk.inputs(made):
            if u not in params:
                raise UserError(
                    f"{self._name} depends on param {u.arg.name!r}: pass it as an argument"
                    f"{made_at(u)}"
                )
        return made

    def _donate(
        self, kind: _CallKind, params: list[UOp], results: list[UOp], found: memory.Effects,
        complex_results: list[bool],
    ) -> list[UOp]:  # fmt: skip
        """Store each new result in the memory of a donated argument of its dtype and shape."""
        out = list(results)
        free = [i for i, part in enumerate(found.parts) if part is None]
        for n, (path, p) in enumerate(zip(kind.paths, params)):
            if path.split(".")[0] not in self._donated or n in found.written:
                continue
            is_complex_param = kind.specs[n][0].kind == "complex"
            for i in free:
                if complex_results[i] is not is_complex_param:
                    continue
                if out[i].dtype is p.dtype and shapes.shape(out[i]) == shapes.shape(p):
                    out[i] = p.assign(out[i])
                    free.remove(i)
                    break
        return out


class _JitOptions(TypedDict, total=False):
    """The options of `jit`, for type checkers."""

    static_argnames: str | Iterable[str]
    donate_argnames: str | Iterable[str]
    dims: Mapping[str, Sequence[Any]] | None
    device: str | None
    optimize: bool
    threads: int | None
    verify: bool | None
    name: str | None
    rules: Any
    mesh: Mesh | None


@overload
def jit(function: Callable[..., Any], **options: Unpack[_JitOptions]) -> Jitted: ...
@overload
def jit(**options: Unpack[_JitOptions]) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(
    function: Callable[..., Any] | None = None, *, static_argnames: str | Iterable[str] = (),
    donate_argnames: str | Iterable[str] = (), dims: Mapping[str, Sequence[Any]] | None = None,
    device: str | None = None, optimize: bool = True, threads: int | None = None,
    verify: bool | None = None, name: str | None = None, rules: Any = None,
    mesh: Mesh | None = None,
) -> Any:  # fmt: skip
    """Compile a function of arrays at its first call with arguments of each kind.

    Arguments and results are arrays, numbers, and containers of them (see `register_pytree`). The
    function runs on `uopc.numpy.Array`s, which have no values: a choice by value is `where`.
    static_argnames: arguments that are part of the program: any hashable values.
    donate_argnames: arrays whose memory is reused for results of the same shape and dtype.
    dims: symbolic sizes by argument: for each dimension a name or a `uopc.variable` (any size),
    None (the size of the call) or a number; parts of containers by path, `"state.x"`.
    mesh: the mesh of a `shard_map` inside; without it, the `shard_map` runs on one device.
    The other options are those of `compile`. Also a decorator. UserTypeError unless `function` is a
    function.

    Examples:
        >>> import numpy as np, uopc
        >>> @uopc.jit
        ... def step(state, dt):
        ...     return {"x": state["x"] + dt * state["v"], "v": state["v"] * 0.5}
        >>> step({"x": np.zeros(2), "v": np.ones(2)}, 0.25)
        {'x': array([0.25, 0.25]), 'v': array([0.5, 0.5])}
    """
    how = {
        "device": device, "optimize": optimize, "threads": threads, "verify": verify,
        "name": name, "rules": rules, "sharding": None if mesh is None else Sharding(mesh),
    }  # fmt: skip
    named = (("static_argnames", static_argnames), ("donate_argnames", donate_argnames))
    static, donated = (
        (v,) if isinstance(v, str) else checks.sequence("jit", k, v) for k, v in named
    )
    if function is None:
        return lambda f: Jitted(f, static, donated, dims or {}, how)
    if not callable(function):
        raise UserTypeError(f"jit: expected a function, got {function!r}")
    return Jitted(function, static, donated, dims or {}, how)


def begun_trace(name: str) -> Trace:
    """Begin a run of a function. If einops is imported, let it know Arrays."""
    if "einops" in sys.modules:
        import_module("uopc.tracing.einops_backend")
    return Trace(name)


def _classes(t: dtypes.DType, weak: bool, number: bool) -> tuple[type, ...]:
    """The class of an argument without dimensions: Python's number, NumPy's scalar or an array."""
    if weak:
        return tuple([c for c, own in _OF_NUMBERS.items() if own == t.numpy])
    return (t.numpy.type,) if number else (np.ndarray,)


_FLAT = frozenset((np.ndarray, *_OF_NUMBERS))


def _classes_of(args: tuple[Any, ...]) -> Any:
    """A key of arguments (arrays and numbers): equal keys need equal programs."""
    return tuple([(a.dtype, a.shape) if type(a) is np.ndarray else type(a) for a in args])


def _results(structure: Any, leaves: Iterator[UOp | Pairs]) -> Iterator[Any]:
    """The results of a program: leaves, and sparse matrices with their layouts."""
    if structure == LEAF:
        yield next(leaves)
    elif structure.kind is Sparse and structure.parts == (LEAF,):
        yield Sparse(next(leaves), structure.detail)
    else:
        for part in structure.parts:
            yield from _results(part, leaves)


def _no_program(*args: Any) -> Any:
    raise TypeError


def _is_graph(leaf: Any) -> bool:
    """True for a value of a graph that is being built, False for an array."""
    if isinstance(leaf, Array):
        return leaf.is_unknown
    return isinstance(leaf, UOp)
