"""A drawn graph every way there is: compiled, not optimised, stage by stage, interpreted."""

from __future__ import annotations

import random
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import uopc
from tests.conformance import perturb
from tests.conformance.compare import difference, narrowest
from tests.conformance.loader import Graph
from tests.fuzz.generate import Array, Case, draw
from tests.fuzz.kinds import Seen, Verdict
from tests.machines import runnable
from uopc import UOp
from uopc.driver import lower_only
from uopc.errors import UserError
from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter
from uopc.passes.pass_manager import Lowered

Values = dict[str, Array]


def run(seed: int, number: int) -> Verdict:
    """Draw a case and check it; the report has the smallest graph in it that is wrong."""
    case = draw(seed, number)
    verdict = check(case)
    if verdict.failures:
        small = smallest(case)
        sink = UOp(Ops.SINK, dtypes.void, small.outputs)
        arrays = [f"  {name} = {array!r}"[:2000] for name, array in small.inputs.items()]
        verdict.report = "\n".join([uopc.print_graph(sink), *arrays, f"  {small.variables}"])
    return verdict


def wanted(case: Case) -> tuple[Values, Values]:
    """The interpreter's values, out0, out1, … and final0, …; and how far each may move."""
    graph = Graph(outputs=list(case.outputs))
    values = perturb.interpret(graph, _copies(case), case.variables)
    inexact = [i for i, exact in enumerate(case.exact) if not exact]
    if not inexact:
        return values, {}
    spread = perturb.spreads(graph, _copies(case), case.variables, values)
    for i, output in enumerate(case.outputs):
        if any(_may_overflow(case, u) for u in output.toposort()):
            spread[f"out{i}"] = np.full(values[f"out{i}"].shape, np.inf)
    return values, spread


def _may_overflow(case: Case, u: UOp) -> bool:
    """True for a product of floats that overflows in one order of its factors, perhaps the one
    that is taken."""
    if u.op is not Ops.REDUCE or u.arg.op != "mul" or not u.dtype.is_float:
        return False
    factors = perturb.interpret(Graph(outputs=[u.src[0]]), _copies(case), case.variables)["out0"]
    with np.errstate(all="ignore"):
        large = np.log2(np.maximum(np.abs(factors.astype(np.float64)), 1.0))
    greatest = np.nan_to_num(large).sum(axis=u.arg.axes)
    return bool((greatest >= np.log2(float(np.finfo(np.float32).max))).any())


def _copies(case: Case) -> Values:
    return {name: a.copy() for name, a in case.inputs.items()}


def call(case: Case, **options: Any) -> Values:
    """The compiled program's results, and what it left in the arguments."""
    arrays = _copies(case)
    threads = options.pop("threads", None)
    switches = {k: options.pop(k) for k in ("target_cpu", "plain_call") if k in options}
    with uopc.options(**switches):
        program = uopc.compile(case.outputs, verify=True, threads=threads, **options)
        got = program(**arrays, **_scalars(case))
    return {f"out{i}": np.asarray(a) for i, a in enumerate(got)} | {
        "final" + name.removeprefix("in"): a for name, a in arrays.items()
    }


def _scalars(case: Case) -> Mapping[str, int]:
    """The variables that no array's shape tells."""
    nodes = {u for v in case.outputs for u in v.toposort()}
    told = {d for u in nodes if u.op is Ops.PARAM for d in u.src if d.op is Ops.VARIABLE}
    asked = {u for u in nodes if u.op is Ops.VARIABLE} - told
    return {u.arg.name: case.variables[u.arg.name] for u in asked}


def compare(case: Case, got: Values, want: Values, spread: Values) -> list[str]:
    names = {u.dtype.name for v in case.outputs for u in v.toposort() if u.dtype.is_float}
    found = []
    for key, value in want.items():
        if key.startswith("valid"):
            continue
        mask = want.get(key.replace("out", "valid")) if key.startswith("out") else None
        exact = key.startswith("out") and case.exact[int(key[3:])]
        if key in spread and np.isinf(spread[key]).any():  # these may be anything, NaN too
            mask = np.isfinite(spread[key]) & (True if mask is None else mask)
        if exact or not spread:
            what = _unequal(got[key], value, mask)
        else:
            what = difference(got[key], value, mask, spread.get(key), narrowest(names))
        if what:
            found.append(f"{key}: {what}")
    return found


def _unequal(got: Array, want: Array, mask: Array | None) -> str | None:
    """Equal numbers; NaN is NaN; which of two zeros a maximum gives is not said."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    if mask is not None:
        got, want = got[mask], want[mask]
    if got.dtype.kind in "biu":
        bad = got != want
    else:
        with np.errstate(all="ignore"):
            g, w = got.astype(np.float64), want.astype(np.float64)
        bad = (g != w) & ~(np.isnan(g) & np.isnan(w))
    if not bad.any():
        return None
    return f"{int(bad.sum())}/{bad.size} differ, first {got[bad][0]!s} want {want[bad][0]!s}"


def _stages(case: Case, want: Values, spread: Values, seen: Seen) -> list[str]:
    """Every stage is text that parses back; the linear program, interpreted, gives the same."""
    lowered = lower_only(case.outputs)
    for stage in lowered.runs:
        level = str(stage.level.name).lower()
        for graph in stage.after:
            if uopc.parse(uopc.print_graph(graph)) is not graph:
                return [f"{stage.name}: the text does not parse back to the graph"]
            for u in walk.toposort(graph, walk.outside_kernels(graph)):
                seen[level, u.op.name, _operand_type(u)] += 1
    return _interpreted(case, lowered, want, spread)


def _operand_type(u: UOp) -> str:
    """The dtype that an elementwise op works on, any other node's own."""
    alike = u.op.is_alu or u.op in (Ops.CAST, Ops.BITCAST)
    return str((u.src[-1] if alike else u).dtype.scalar.name)


def _interpreted(case: Case, lowered: Lowered, want: Values, spread: Values) -> list[str]:
    """The linear kernels in their order, run by the interpreter."""
    arrays = _copies(case)
    calls = [uopc.UOp(Ops.CALL, dtypes.void, (k, *args)) for k, args in lowered.calls]
    program = uopc.UOp(Ops.LINEAR, dtypes.void, tuple(calls))
    params = {u for _, args in lowered.calls for a in args for u in a.toposort()}
    given = {u: arrays[u.arg.name] for u in params if u.op is Ops.PARAM}
    storage = interpreter.run_program(program, given, case.variables)
    got = {"final" + n.removeprefix("in"): a for n, a in arrays.items()}
    for i, u in enumerate(lowered.outputs):
        while u.op is Ops.AFTER:
            u = u.src[0]
        value = want[f"out{i}"]
        if not value.size:  # nothing stores it
            got[f"out{i}"] = value
            continue
        contents = _contents(u, storage, arrays)
        got[f"out{i}"] = contents.reshape(-1)[: value.size].reshape(value.shape)
    return compare(case, got, want, spread)


def _contents(u: UOp, storage: Mapping[UOp, Array], arrays: Values) -> Array:
    if u.op is Ops.DATA:
        return np.asarray(u.arg.array)
    return storage[u] if u in storage else arrays[u.arg.name]


def check(case: Case, stages: bool = True) -> Verdict:
    """Run the case; `stages`: also go through the stages of the lowering."""
    verdict = Verdict()
    rng = random.Random(case.number + "options")
    ways: list[dict[str, Any]] = [{"optimize": True, "threads": rng.choice((1, 2))}]
    ways.append({"optimize": False})
    if rng.random() < 0.25:
        ways.append({"target_cpu": rng.choice(runnable("x86-64", "x86-64-v2", "x86-64-v3"))})
    if rng.random() < 0.1:
        ways.append({"plain_call": True})
    want, spread = wanted(case)
    for way in ways:
        try:
            failures = compare(case, call(case, **way), want, spread)
        except UserError as error:
            verdict.refused = str(error).splitlines()[0]
            return verdict
        except Exception:  # any other error is a finding
            failures = [traceback.format_exc(limit=-3)]
        verdict.failures += [f"{_text(way)}: {f}" for f in failures]
    if stages:
        try:
            failures = _stages(case, want, spread, verdict.seen)
        except Exception:  # a refusal too: what the ways above compiled must not be refused here
            failures = [traceback.format_exc(limit=-3)]
        verdict.failures += [f"stages: {f}" for f in failures]
    return verdict


def _text(way: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in way.items())


def smallest(case: Case) -> Case:
    """The first value of the graph, operands before users, that is wrong on its own."""
    exact = dict(zip(case.outputs, case.exact))
    for u in _values(case.outputs):
        names = {p.arg.name for p in u.toposort() if p.op is Ops.PARAM}
        inputs = {n: a for n, a in case.inputs.items() if n in names}
        # A value inside is compared as what it feeds is: within its spread.
        part = replace(case, outputs=(u,), exact=(exact.get(u, False),), inputs=inputs)
        if check(part, stages=False).failures:
            return part
    return case


def _values(outputs: Sequence[UOp]) -> list[UOp]:
    found: dict[UOp, None] = {}
    for v in outputs:
        found.update(v.toposort())
    kinds = (Ops.PARAM, Ops.CONST, Ops.FUNCTION, Ops.VARIABLE)
    plain = [u for u in found if u.op not in kinds and u.dtype.name not in ("void", "index")]
    inside = {u for f in found if f.op is Ops.FUNCTION for u in f.toposort()}
    return [u for u in plain if u not in inside]
