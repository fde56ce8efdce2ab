"""Graphs that no builder made: texts and nodes of random graphs, of any stage, with random changes.

A changed graph is refused with one of uopc's errors, or it runs on arrays that end at an unreadable
page and gives the interpreter's numbers.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import re
import sys
import traceback
from typing import Any

import numpy as np

import uopc
from tests.fuzz import check
from tests.fuzz.generate import Array, Case, draw
from tests.fuzz.guards import guard_programs, guarded
from tests.fuzz.kinds import Verdict
from uopc import UOp
from uopc.driver import lower_only
from uopc.errors import Error
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.arena import arena
from uopc.ir.core.level_of import level_of
from uopc.ir.core.levels import LINEAR, PROGRAM, TENSOR
from uopc.ir.core.ops import Op, Ops
from uopc.ir.interpret import interpreter
from uopc.ir.verify.verifier import verify
from uopc.passes.contract import Context
from uopc.passes.pass_manager import Lowering
from uopc.program.backend import backend_of
from uopc.target import Target

PER_GRAPH = 200  # changes of one graph
MOST_BYTES = 1 << 24  # of the arrays of a case
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 100, -1, -2, 1000, 1 << 31, 1 << 62, 1 << 63, 10**30)
_TOKEN = re.compile(r"%\w+|-?\d[\d.]*|\w+|\"[^\"]*\"")
_TYPES = {t.short for t in dtypes.ALL}
_NAMES = {op.name for op in Op.all()}
_GIVEN = re.compile(r"(param|buffer|data|iota|const|cast|bitcast|invalid|variable|range)\b")


@functools.lru_cache(2)
def bases(seed: int, number: int) -> list[UOp]:
    """A random graph at level tensor, and its kernels after each pass."""
    case = draw(seed, number)
    sink = UOp(Ops.SINK, dtypes.void, case.outputs[:3])
    found = {sink: None}
    lowered = lower_only(sink, optimize=bool(number % 3), verify=False)
    for run in lowered.runs:
        if run.number >= 50:
            found.update(dict.fromkeys(run.after))
    return list(found)


def run(seed: int, number: int) -> Verdict:
    """One changed text or graph."""
    rng = random.Random(f"{seed}:{number}")
    try:
        known = bases(seed, number // PER_GRAPH)
    except Error as error:
        return Verdict(refused=f"not drawn: {type(error).__name__}")
    base = known[0] if rng.random() < 0.5 else rng.choice(known)
    change = changed_text if rng.random() < 0.5 else changed_graph
    made: Any = None
    try:
        made = change(base, rng)
        graph = uopc.parse(made) if isinstance(made, str) else made
        failures = attempt(graph, rng)
    except Error as error:
        return Verdict(refused=re.sub(r"[\d%].*", "", str(error).splitlines()[0])[:60])
    except Exception:
        failures = [traceback.format_exc(limit=-6)]
    if not failures:
        return Verdict()
    return Verdict(failures, report=uopc.print_graph(made) if isinstance(made, UOp) else str(made))


# ---------------------------------------------------------------- changes
def changed_text(graph: UOp, rng: random.Random) -> str:
    """The text with one or two tokens changed; mostly without the types that follow from others."""
    lines = uopc.print_graph(graph).splitlines()
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(lines))
        tokens = list(_TOKEN.finditer(lines[at]))
        if not tokens:
            continue
        m = rng.choice(tokens)
        new = _token(m[0], lines[:at], rng)
        lines[at] = lines[at][: m.start()] + new + lines[at][m.end() :]
        if rng.random() < 0.05:
            del lines[at]
            lines = lines or [""]
    if rng.random() < 0.8:
        lines = [_untyped(line) for line in lines]
    return "\n".join(lines)


def _untyped(line: str) -> str:
    body, colon, _ = line.rpartition(" : ")
    _, _, statement = body.rpartition("= ")
    return body if colon and not _GIVEN.match(statement) else line


def _token(old: str, before: list[str], rng: random.Random) -> str:
    if old.startswith("%"):
        names = re.findall(r"^%\w+", "\n".join(before), re.M) or [old]
        return rng.choice(names)
    if old.lstrip("-")[:1].isdigit():
        near = [int(old) + d for d in (-1, 1)] if old.lstrip("-").isdigit() else [1]
        return str(rng.choice((*near, *NUMBERS)))
    if old in _TYPES:
        return rng.choice(sorted(_TYPES))
    if old in _NAMES:
        return rng.choice(sorted(_NAMES))
    return rng.choice((old + "x", "add", "max", "local", "reg", "global", "none", "reduce", "lane",
                       "unroll", "upcast", "thread", "true", '""', '"a b\\n"', "0"))  # fmt: skip


def changed_graph(graph: UOp, rng: random.Random) -> UOp:
    """The graph made again with the raw constructor, one or two nodes changed."""
    nodes = list(walk.toposort(graph))
    chosen = {rng.randrange(len(nodes)) for _ in range(rng.choice((1, 1, 2)))}
    made: dict[UOp, UOp] = {}
    for i, u in enumerate(nodes):
        src = tuple([made[s] for s in u.src])
        fields = {"op": u.op, "dtype": u.dtype, "src": src, "arg": u.arg}
        if i in chosen and i < len(nodes) - 1:
            _change(fields, list(made.values()), rng)
        made[u] = _remade(u, fields)
    return made[graph]


def _remade(u: UOp, fields: dict[str, Any]) -> UOp:
    alike = fields["op"] is u.op and fields["src"] == u.src
    if not alike and fields["op"].dtype not in ("given", "cast", "bitcast", "any"):
        try:
            return UOp(**{**fields, "dtype": None})
        except Error:
            pass
    return UOp(**fields)


def _change(fields: dict[str, Any], others: list[UOp], rng: random.Random) -> None:
    what = rng.choice(("op", "dtype", "src", "src", "arg", "arg"))
    src = fields["src"]
    if what == "op":
        fields["op"] = rng.choice([op for op in Op.all() if op.takes(len(src))])
    elif what == "dtype":
        t = rng.choice(dtypes.ALL)
        fields["dtype"] = t.vec(rng.choice((2, 4, 8))) if rng.random() < 0.2 else t
    elif what == "src" and src and others:
        at = rng.randrange(len(src))
        fields["src"] = (*src[:at], rng.choice(others), *src[at + 1 :])
    else:
        fields["arg"] = _changed_arg(fields["arg"], rng)


def _changed_arg(arg: Any, rng: random.Random) -> Any:
    if dataclasses.is_dataclass(arg) and not isinstance(arg, type):
        names = [f.name for f in dataclasses.fields(arg) if f.name not in ("array", "key")]
        name = rng.choice(names)
        return dataclasses.replace(arg, **{name: _changed_arg(getattr(arg, name), rng)})
    if type(arg) is tuple and arg:
        at = rng.randrange(len(arg))
        item = () if rng.random() < 0.15 else (_changed_arg(arg[at], rng),)
        return (*arg[:at], *item, *arg[at + 1 :])
    if type(arg) is int:
        return rng.choice((arg + 1, arg - 1, *NUMBERS))
    if type(arg) is float:
        return rng.choice((0.0, -1.0, 1e30, 3))
    if type(arg) is str:
        return rng.choice(("", "add", "max", "x y", "local", "global", "reg", "lane", "unroll",
                           "thread", "reduce", "gidx0", "lidx0", "\ud800"))  # fmt: skip
    return rng.choice((None, 0, 1, 4, (1,), ()))


# ---------------------------------------------------------------- running
def attempt(graph: UOp, rng: random.Random) -> list[str]:
    """Compile and call it; failures are differences from the interpreter."""
    level = level_of(graph)
    if level is TENSOR and Ops.INDEX in walk.ops(graph):
        return []  # indices of a gather are as the caller promises
    if level is LINEAR or level is PROGRAM:
        _assembled(graph)
        return []
    guard_programs()
    program = uopc.compile(
        graph, optimize=rng.random() < 0.7, threads=rng.choice((1, 2)),
        verify=True if rng.random() < 0.1 else None,
    )  # fmt: skip
    variables = {v.arg.name: rng.randint(v.arg.low, min(v.arg.high, v.arg.low + 9))
                 for v in graph.toposort() if v.op is Ops.VARIABLE}  # fmt: skip
    inputs = _arrays(program, variables, rng)
    if inputs is None or (level is TENSOR and _most_bytes(graph, variables) > MOST_BYTES):
        return []
    sizes = [d for p in program.inputs for d in p.shape if isinstance(d, UOp)]
    told = {d.arg.name for d in sizes if d.op is Ops.VARIABLE}
    asked = {v.name for v in program._artifact.plan.variables} - told
    print(uopc.print_graph(graph), file=sys.stderr)  # shown if the call is the end
    copies = {name: guarded(a) for name, a in inputs.items()}
    got = program(**copies, **{k: v for k, v in variables.items() if k in asked})
    if level is not TENSOR:
        return _kernel_differs(graph, inputs, copies, variables)
    if graph.op is not Ops.SINK:
        graph, got = UOp(Ops.SINK, dtypes.void, (graph,)), (got,)
    outputs = tuple(v for v in graph.src if v.dtype is not dtypes.void)
    case = Case("", outputs, (False,) * len(outputs), inputs, variables)
    want, spread = check.wanted(case)
    values = {f"out{i}": np.asarray(a) for i, a in enumerate(got)}
    values |= {"final" + name.removeprefix("in"): a for name, a in copies.items()}
    return check.compare(case, values, want, spread)


def _arrays(program: Any, variables: dict[str, int], rng: random.Random) -> dict[str, Array] | None:
    random_numbers = np.random.default_rng(rng.getrandbits(32))
    made: dict[str, Array] = {}
    for spec in program.inputs:
        dims = [_size(d, variables) for d in spec.shape]
        if np.prod([float(d) for d in dims]) * 8 > MOST_BYTES or min(dims, default=0) < 0:
            return None
        made[spec.name] = random_numbers.integers(-3, 5, dims).astype(spec.dtype.numpy)
    return made


def _most_bytes(graph: UOp, variables: dict[str, int]) -> int:
    """The bytes of the largest value of a tensor graph."""
    found = 0
    for u in walk.nodes(graph):
        dims = [_size(d, variables) for d in shapes.shape(u)]
        found = max(found, math.prod(dims) * u.dtype.itemsize)
    return found


def _size(dim: Any, variables: dict[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    values = {v: UOp.const(dtypes.index, variables[v.arg.name]) for v in dim.variables()}
    return int(dim.substitute(values))


def _kernel_differs(kernel: UOp, inputs: dict[str, Array], got: dict[str, Array],
                    variables: dict[str, int]) -> list[str]:  # fmt: skip
    """The differences between the arguments after the kernel and after the interpreter."""
    want = {name: a.copy() for name, a in inputs.items()}
    params = [u for u in kernel.toposort() if u.op is Ops.PARAM]
    named = {u: u.arg.name or f"arg{u.arg.slot}" for u in params}
    if not want.keys() >= set(named.values()):
        return []  # no program reads an argument whose value folds away
    given = {u: want[name] for u, name in named.items()}
    try:
        interpreter.run_indexed(kernel, given, variables)
    except Error:
        return []  # the interpreter refuses what no program needs to define, such as an order
    found = []
    for name, a in want.items():
        with np.errstate(all="ignore"):
            g, w = got[name].astype(np.float64), a.astype(np.float64)
            bad = ~(np.isclose(g, w, 1e-2, 1e-2) | (np.isnan(g) & np.isnan(w)))
        if bad.any():
            found.append(f"{name}: {g[bad][0]} want {w[bad][0]}")
    return found


def _assembled(graph: UOp) -> None:
    """The machine code of a LINEAR, or of a program of them, which a stage file may hold."""
    backend = backend_of("cpu")
    machine: Target = backend.target("cpu", "")
    lowering = Lowering(Context(machine), verify)
    with arena():
        lowered = lowering.lower(graph, "linearize")
        backend.assemble(backend.render(lowered, lowered.kernels), machine, "")
