"""Random graphs exported as C and as a library: no warning, and the bits of compiled programs.

Successive numbers are members of one batch, which is exported as one function, as a compiler takes
many graphs in the time of a few. A batch that is wrong is checked again graph by graph.
"""

from __future__ import annotations

import ctypes
import functools
import random
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import uopc
from tests.fuzz.check import _operand_type
from tests.fuzz.generate import Array, Case, draw
from tests.fuzz.kinds import Verdict
from uopc import UOp
from uopc.errors import Error, UserError
from uopc.exporting.load import ExportedFunction
from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern

BATCH = 32
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-Wno-psabi")
_COMPILERS = (("gcc",), ("gcc", "-std=c11", "-O2"), ("gcc", "-O1"), ("clang", "-O1"),
              ("g++", "-x", "c++"))  # fmt: skip
# Of the C; of the library with the same bits.
_FORMS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"target": "host"}, {"target": "host"}),
    ({"target": "host", "vectors": False}, {"target": "host", "vectors": False}),
    ({"target": "c11"}, {"target": "x86-64-v2", "vectors": False}),
)


def run(seed: int, number: int) -> Verdict:
    """The verdict on one graph of a batch."""
    return _batch(seed, number // BATCH)[number % BATCH]


@functools.lru_cache(maxsize=2)
def _batch(seed: int, number: int) -> Sequence[Verdict]:
    cases = [draw(seed, i) for i in range(number * BATCH, (number + 1) * BATCH)]
    verdicts = [Verdict() for _ in cases]
    for verdict, case in zip(verdicts, cases):
        verdict.seen.update(
            ("tensor", u.op.name, _operand_type(u)) for v in case.outputs for u in v.toposort()
        )
    if not _wrong(cases, seed, number):
        return verdicts
    for verdict, case in zip(verdicts, cases):
        try:
            verdict.failures = _wrong([case], seed, number)
        except UserError as error:
            verdict.refused = str(error).splitlines()[0]
        if verdict.failures:
            outputs = intern(Ops.SINK, dtypes.void, case.outputs)
            arrays = [f"  {name} = {a!r}"[:2000] for name, a in case.inputs.items()]
            verdict.report = "\n".join([uopc.print_graph(outputs), *arrays])
    if not any([verdict.failures or verdict.refused for verdict in verdicts]):
        verdicts[0].failures = [f"together alone: {f}" for f in _wrong(cases, seed, number)]
    return verdicts


def _wrong(cases: Sequence[Case], seed: int, number: int) -> list[str]:
    """What is wrong with an export of these graphs together."""
    drawn = random.Random(f"exports {seed} {number}")
    form, known = drawn.choice(_FORMS)
    command = drawn.choice([c for c in _COMPILERS if shutil.which(c[0])])
    weights = drawn.choice(("auto", "inline"))
    graph, arrays, sizes = joined(cases)
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = uopc.export(graph, f"{folder}/f", kind="c", weights=weights, **form)
            uopc.export(graph, f"{folder}/g", kind="shared", name="f", **known)
            march = ["-march=native"] if form["target"] == "host" else []
            sources = ["f.c", *(["f_data.S"] if Path(folder, "f_data.S").exists() else [])]
            flags = [*command, *march, *STRICT, "-shared", "-fPIC", *sources, "-o", "f.so"]
            done = subprocess.run(flags, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                return [f"{' '.join(flags)}: {done.stderr[:2000]}"]
            library = ctypes.CDLL(f"{folder}/f.so")
            call = ctypes.cast(library.f, ctypes.CFUNCTYPE(ctypes.c_int))
            got = results(ExportedFunction(made.manifest, call, library), arrays, sizes)
            want = results(uopc.load_exported(f"{folder}/g.so"), arrays, sizes)
        where = f"{form}, {' '.join(flags)}"
        wrong = [f"{where}: {line}" for line in differences(got, want)]
        if form == {"target": "host"}:
            jit = results(uopc.compile(graph, threads=1), arrays, sizes)
            wrong += [f"compile(): {line}" for line in differences(want, jit)]
        return wrong
    except UserError as error:
        if len(cases) == 1:
            raise
        return [str(error)]
    except Exception as error:  # whatever else is a finding
        return [str(error)] if isinstance(error, Error) else [traceback.format_exc(limit=-3)]


def joined(
    cases: Sequence[Case],
) -> tuple[dict[str, UOp], dict[str, Array], dict[str, int]]:
    """The graphs as one, with names of their own; its arguments and sizes."""
    graph, arrays, sizes = {}, {}, {}
    for i, case in enumerate(cases):
        became: dict[UOp, UOp] = {}

        def change(u: UOp, src: tuple[UOp, ...], i: int = i, became: Any = became) -> UOp | None:
            if u.op is Ops.VARIABLE:
                return intern(u.op, u.dtype, src, replace(u.arg, name=f"{u.arg.name}{i}"))
            if u.op is Ops.PARAM and u.arg.slot < 0:
                return intern(u.op, u.dtype, src, replace(u.arg, name=f"g{i}_{u.arg.name}"))
            return None

        sink = rebuild.rewritten(intern(Ops.SINK, dtypes.void, case.outputs), change)
        graph |= {f"g{i}_out{k}": u for k, u in enumerate(sink.src)}
        arrays |= {f"g{i}_{name}": a for name, a in case.inputs.items()}
        nodes = {u for v in sink.src for u in v.toposort()}
        told = {d for u in nodes if u.op is Ops.PARAM for d in u.src}
        asked = {u.arg.name for u in nodes if u.op is Ops.VARIABLE and u not in told}
        sizes |= {f"{n}{i}": v for n, v in case.variables.items() if f"{n}{i}" in asked}
    return graph, arrays, sizes


def results(f: Any, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """What a call gives, and what it leaves in its arguments."""
    given = {name: a.copy() for name, a in arrays.items()}
    got = f(**given, **sizes)
    return {name: np.asarray(a) for name, a in got.items()} | given


def differences(got: Mapping[str, Array], want: Mapping[str, Array]) -> list[str]:
    """The arrays whose bits differ; a NaN is as good as any other."""
    found = []
    for name, array in want.items():
        a, b = np.ascontiguousarray(got[name]), np.ascontiguousarray(array)
        if a.shape != b.shape or a.dtype != b.dtype:
            found.append(f"{name}: {a.dtype}{a.shape}, want {b.dtype}{b.shape}")
            continue
        bits = f"u{a.dtype.itemsize}" if a.dtype.itemsize else "u1"
        with np.errstate(all="ignore"):
            both = (a != a) & (b != b) if a.dtype.kind not in "biu" else np.zeros(a.shape, bool)
        bad = (a.view(bits) != b.view(bits)) & ~both if a.ndim else np.array(
            (a.tobytes() != b.tobytes()) and not both)  # fmt: skip
        if bad.any():
            place = tuple(int(n[0]) for n in np.nonzero(np.atleast_1d(bad)))
            one, other = np.atleast_1d(a)[place], np.atleast_1d(b)[place]
            found.append(f"{name}: {int(bad.sum())}/{bad.size} differ, {one!r} want {other!r}")
    return found
