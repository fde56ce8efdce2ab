"""One case: build its graph, compile it, run it, compare what came out."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

import uopc
from tests.conformance import compare, corpus, loader, perturb, tally
from tests.conformance.corpus import Array, Case, Place
from uopc.backends.plan import DimValue
from uopc.ir.core import bounds, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

PASSED: Final = "passed"
FAILED: Final = "failed"
BY_RULE: Final = "by rule"
# Marks of cases that record the other compiler's own rules (the groups quirks and
# excess_precision): uopc's documented ones may be met instead.
RULED: Final = ("replay_note", "excess_precision")
_RESULTS: Final = ("out", "final")
MOST_TRIES: Final = 1000
GIB: Final = 1 << 30
LAYER: Final = 1024  # elements of what is taken for weights


@dataclass
class Outcome:
    """The result of a case."""

    id: str
    test: str
    group: str
    verdict: str = PASSED
    reason: str = ""
    nodes: int = 0
    kernels: int | None = None
    expected_kernels: int | None = None
    copied_outputs: int = 0
    default_flags: bool = True
    seconds: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def fail(self, reason: str) -> Outcome:
        self.verdict, self.reason = FAILED, " ".join(reason.split())[:400]
        return self


@dataclass
class _Run:
    """A case on the way: the graph, what it is called with, and what it gave."""

    case: Case
    graph: loader.Graph
    inputs: dict[str, Array]
    variables: dict[str, int]
    got: dict[str, Array] = field(default_factory=dict)


def run(
    place: Place, out: Outcome, device: str | None, checking: Callable[[Outcome], None]
) -> None:
    """Run a graph case and fill in its outcome. Raises what uopc raises.

    `checking` is called once the program has run, before its results are judged.
    """
    case, arrays = corpus.read_graph(place)
    out.expected_kernels, out.default_flags = case.get("kernels"), not case.get("flags")
    start = time.perf_counter()
    graph = loader.load(case, device or "cpu")
    out.seconds["build"] = time.perf_counter() - start
    has_data = any(k.startswith(_RESULTS) for k in arrays)
    inputs = _inputs(graph, arrays, has_data, place.id)
    work = _Run(case, graph, inputs, _variables(graph, has_data, place.id))
    with uopc.options(cache_dir="", programs=0):  # each case is compiled, and takes its time
        program = uopc.compile(tuple(graph.outputs), device=device)
    out.seconds["llvm"] = program.stats["llvm"]
    out.seconds["compile"] = program.stats["total"] - program.stats["llvm"]
    counted = tally.count(program._source.lowered.runs, loader.copies(case))
    out.kernels, out.copied_outputs = counted.kernels, counted.copied_outputs
    _call(work, program, out)
    checking(out)
    _judge(work, arrays, out)


def _call(work: _Run, program: uopc.Program, out: Outcome) -> None:
    """Run the program on copies of the inputs: stores change them in place."""
    passed = {k: v.copy() for k, v in work.inputs.items()}
    wanted = {v.name for v in program.inputs}
    named: dict[str, Any] = {k: v for k, v in passed.items() if k in wanted}
    used = {v.arg.name for u in work.graph.outputs for v in u.variables()}
    named |= {k: v for k, v in work.variables.items() if k in used}
    start = time.perf_counter()
    try:
        results = program(**named)
    except MemoryError as error:
        raise MemoryError(_memory_needed(program, work.inputs)) from error
    out.seconds["run"] = time.perf_counter() - start
    work.got = {f"out{k}": np.asarray(r) for k, r in enumerate(results)}
    work.got |= {"final" + k.removeprefix("in"): v for k, v in passed.items()}


def _memory_needed(program: uopc.Program, inputs: dict[str, Array]) -> str:
    """The memory that a case takes, and the limit of the process, as text."""
    results = sum(
        math.prod([bounds.max_dim(d) for d in v.shape]) * v.dtype.itemsize
        for v in program.outputs
    )
    given = sum(a.nbytes for a in inputs.values())
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    allowed = "" if limit == resource.RLIM_INFINITY else f"; a process may take {limit / GIB:.1f}"
    return f"results of {results / GIB:.1f} GiB, arguments of {given / GIB:.1f} GiB{allowed}"


# ---------------------------------------------------------------- inputs
def _inputs(
    graph: loader.Graph, arrays: dict[str, Array], has_data: bool, seed: str
) -> dict[str, Array]:
    """The recorded contents of storage; zeros where it had none; random ones in a bare graph."""
    random = np.random.default_rng([*seed.encode()])
    out: dict[str, Array] = {}
    for p in graph.params:
        name = p.arg.name
        if name in arrays:
            out[name] = arrays[name].reshape(p.arg.dims)
        elif has_data:
            out[name] = np.zeros(p.arg.dims, p.dtype.numpy)
        else:
            out[name] = _random(p, random)
    return out


def _random(param: UOp, random: np.random.Generator) -> Array:
    """Floats around 0, small integers: what indices and counts look like.

    Large arrays are as small as the weights of a square layer are made, or what stands on many of
    them is chaos, of which nobody can say what is right.
    """
    count = math.prod(param.arg.dims)
    if param.dtype.is_float:
        scale = count**-0.25 if count >= LAYER else 1.0
        values: Array = random.standard_normal(count, np.float32) * np.float32(scale)
    else:
        values = random.integers(0, 2 if param.dtype.kind == "bool" else 8, count)
    return values.astype(param.dtype.numpy).reshape(param.arg.dims)


def _variables(graph: loader.Graph, has_data: bool, seed: str) -> dict[str, int]:
    """The recorded values of variables; in a bare graph that they do not fit, random ones."""
    recorded = {v.arg.name: value for v, value in graph.variables.items() if value is not None}
    if has_data:
        return recorded
    random = np.random.default_rng([*seed.encode()])
    windows = _windows(graph)
    for kept in (recorded, *[{}] * MOST_TRIES):
        drawn = {
            v.arg.name: int(random.integers(v.arg.low, v.arg.high + 1)) for v in graph.variables
        }
        if all(_is_inside(w, drawn | kept) for w in windows):
            return drawn | kept
    raise ValueError("found no values of the variables for which every SHRINK is inside")


# Of a SHRINK: begin, size and source dimension of an axis.
_Window = tuple[shapes.Dim, shapes.Dim, shapes.Dim]


def _windows(graph: loader.Graph) -> list[_Window]:
    found: dict[UOp, None] = {}
    for root in graph.outputs:
        walk.toposort(root, done=found)
    return [
        window
        for u in found
        if u.op is Ops.SHRINK
        for window in zip(*shapes.window(u), shapes.shape(u.src[0]))
    ]


def _is_inside(window: _Window, values: dict[str, int]) -> bool:
    numbers = [d if isinstance(d, int) else DimValue.of(d).evaluate(values) for d in window]
    begin, size, whole = numbers
    return begin >= 0 and size >= 0 and begin + size <= whole


# ---------------------------------------------------------------- verdict
def _judge(work: _Run, arrays: dict[str, Array], out: Outcome) -> None:
    want = {k: v for k, v in arrays.items() if k.startswith(_RESULTS)}
    if want:
        bad = _mismatches(work, want, arrays)
    else:
        try:
            want = exact = perturb.interpret(work.graph, work.inputs, work.variables)
        except MemoryError as error:
            out.fail(f"not checked: the interpreter ran out of memory: {error}")
            return
        bad = _mismatches(work, want, exact, exact)
    if not bad:
        return
    out.fail("; ".join(bad.values()))
    if any(work.case.get(mark) for mark in RULED):
        exact = perturb.interpret(work.graph, work.inputs, work.variables)
        masked = exact | {k: v for k, v in arrays.items() if k.startswith("valid")}
        if not _mismatches(work, {k: exact[k] for k in want}, masked, exact):
            out.verdict = BY_RULE


def _mismatches(
    work: _Run, want: dict[str, Array], masks: dict[str, Array],
    exact: dict[str, Array] | None = None,
) -> dict[str, str]:  # fmt: skip
    """The differences, by name; the spread is measured only where the plain comparison fails.

    exact: the results of the interpreter, where they are known.
    """
    want = {k: v for k, v in want.items() if k.startswith(_RESULTS)}
    plain = {k: _difference(work, k, v, masks) for k, v in want.items()}
    bad = {k: f"{k} {want[k].dtype}: {text}" for k, text in plain.items() if text is not None}
    if not any(want[k].dtype.kind not in "biu" for k in bad):
        return bad
    exact = exact or perturb.interpret(work.graph, work.inputs, work.variables)
    left = bad
    for spread in perturb.widening(work.graph, work.inputs, work.variables, exact):
        found = {k: _difference(work, k, want[k], masks, spread.get(k)) for k in left}
        left = {k: f"{k} {want[k].dtype}: {t}" for k, t in found.items() if t is not None}
        if not left:
            break
    return left


def _difference(
    work: _Run, name: str, want: Array, masks: dict[str, Array], spread: Array | None = None
) -> str | None:
    mask = masks.get("valid" + name.removeprefix("out"))
    narrow = compare.narrowest(loader.recorded_floats(work.case))
    got = work.got[name].reshape(want.shape) if name.startswith("final") else work.got[name]
    if spread is not None:
        spread = spread.reshape(want.shape)
    return compare.difference(got, want, mask, spread, None if spread is None else narrow)
