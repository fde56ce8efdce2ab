"""A Function of CasADi beside CasADi's interpreter: for `uopc bench`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from uopc.cli.output import Output

_SAMPLE = 0.02  # seconds of calls in a row that are one sample


def measured(file: Path, threads: int, rounds: int) -> dict[str, Any]:
    """The seconds to load and to call, of both; and the largest difference, relative to 1 + the
    largest number. The arguments are drawn between 0.5 and 1.5."""
    import casadi

    from uopc.casadi import compile

    begin = time.process_time()
    f = casadi.Function.load(str(file))
    between = time.process_time()
    program = compile(f, threads=threads).program
    compiled = time.process_time() - between
    random = np.random.default_rng(0)
    args = [random.uniform(0.5, 1.5, f.nnz_in(i)) for i in range(f.n_in())]
    results = [np.zeros(f.nnz_out(i)) for i in range(f.n_out())]
    buffer, interpret = f.buffer()  # the call needs the buffer as long as it runs
    _connect(buffer, args, results)
    interpret()
    ours = list(program(*args).values())
    apart = [_difference(a, b) for a, b in zip(ours, results)]
    calls: list[Callable[[], object]] = [lambda: program(*args), interpret]
    times = [[_seconds(call) for call in calls] for _ in range(rounds)]
    least = [min(column) for column in zip(*times)]
    return {
        "engines": {
            "uopc": {"load": compiled, "call": least[0]},
            "CasADi": {"load": between - begin, "call": least[1]},
        },
        "ratio": least[1] / least[0],
        "difference": max(apart, default=0.0),
    }


def _connect(buffer: Any, args: list[Any], results: list[Any]) -> None:
    """Let CasADi's quickest call read and write these arrays of nonzeros."""
    for i, a in enumerate(args):
        buffer.set_arg(i, memoryview(a))
    for i, a in enumerate(results):
        buffer.set_res(i, memoryview(a))


def _difference(a: Any, b: Any) -> float:
    known = np.isfinite(b)
    top = 1 + np.abs(b[known]).max(initial=0)
    return float(np.abs(a[known] - b[known]).max(initial=0) / top)


def _seconds(call: Callable[[], object]) -> float:
    """The seconds of a call, in a sample of many."""
    count, spent = 0, 0.0
    begin = time.perf_counter()
    while spent < _SAMPLE:
        call()
        count, spent = count + 1, time.perf_counter() - begin
    return spent / count


def show(out: Output, found: dict[str, Any], as_json: bool) -> None:
    """A row for each engine, then the ratio and the difference."""
    if as_json:
        out.line(json.dumps(found))
        return
    rows = [
        (name, f"{row['load']:.3f}", f"{row['call'] * 1e6:.2f}")
        for name, row in found["engines"].items()
    ]
    out.table(("engine", "load s", "call us"), rows)
    out.line(f"ratio {found['ratio']:.1f}, largest difference {found['difference']:.1e}")
