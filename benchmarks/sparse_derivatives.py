"""Time of sparse derivatives beside CasADi's C and JAX, in turns in one run.

    python benchmarks/sparse_derivatives.py [--out docs/lab/sparse.md] [--stages 50 500]

The problem: a bicycle of four states and two controls, RK4 steps of a free length, and a first
state. z is [states (4, N + 1), controls (2, N), time]; the constraints are 4 (N + 1). One thread.
CasADi's C is that of scalar code for up to 50 stages, else that of a map over one stage: gcc needs
minutes for the other. JAX compresses by our colours. Sides that are not installed are left out.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import uopc

MOST_SCALAR = 50  # stages whose scalar code gcc compiles in seconds
Calls = dict[str, Callable[[], Any]]


# ---------------------------------------------------------------- the problem
def dynamics(lib: Any, x: Any, u: Any) -> list[Any]:
    """The derivatives of place, heading and speed."""
    tan = lib.sin(u[0]) / lib.cos(u[0])
    return [x[3] * lib.cos(x[2]), x[3] * lib.sin(x[2]), x[3] * tan * (1 / 2.7), u[1]]


def step(lib: Any, stack: Callable[[list[Any]], Any], x: Any, u: Any, h: Any) -> Any:
    """The state after a step of RK4."""
    k1 = stack(dynamics(lib, x, u))
    k2 = stack(dynamics(lib, x + h * 0.5 * k1, u))
    k3 = stack(dynamics(lib, x + h * 0.5 * k2, u))
    k4 = stack(dynamics(lib, x + h * k3, u))
    return x + h * (1 / 6) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def constraints(lib: Any, stack: Any, join: Any, z: Any, n: int) -> Any:
    """The first state, and what each state differs by from the step before; over arrays."""
    states, controls = z[: 4 * n + 4].reshape(4, n + 1), z[4 * n + 4 : -1].reshape(2, n)
    gaps = states[:, 1:] - step(lib, stack, states[:, :-1], controls, z[-1] * (1 / n))
    return join([states[:, 0], gaps.reshape(4 * n)])


def point(n: int) -> Any:
    """A z in the middle of things."""
    z = np.random.default_rng(0).uniform(-0.5, 0.5, 6 * n + 5)
    z[-1] = 3.0
    return z


class OfNodes:
    """sin and cos of nodes."""

    sin, cos = uopc.UOp.sin, uopc.UOp.cos


def ours(n: int) -> tuple[Calls, dict[str, float]]:
    """The calls of uopc, and the seconds to build and compile each."""
    made: Calls = {}
    took: dict[str, float] = {}
    at, lam = point(n), np.ones(4 * n + 4)
    for name in ("warm up", "constraints", "csc", "triplet", "c and csc", "Hessian"):
        begin = time.perf_counter()
        z = uopc.param("z", at.shape, uopc.dtypes.float64)
        m = uopc.param("lam", lam.shape, uopc.dtypes.float64)
        c = constraints(OfNodes, lambda rows: uopc.stack(*rows), lambda p: uopc.cat(*p), z, n)
        graph: Any = c
        if name in ("csc", "triplet", "c and csc"):
            order: Any = name.split()[-1]
            graph = uopc.jacobian(c, z, format=order)
            graph = (c, graph) if name == "c and csc" else graph
        elif name == "Hessian":
            graph = uopc.hessian((c * m).sum(), z, format="csc", part="lower")
        with uopc.options(cache_dir="", programs=0):
            program = uopc.compile(graph, threads=1)
        took[name] = time.perf_counter() - begin
        given = [at, lam][: len(program.inputs)]
        made[name] = lambda program=program, given=given: program(*given)
    del made["warm up"]
    return made, took


def casadi_calls(n: int) -> tuple[Calls, dict[str, float]]:
    """The functions that gcc -O3 makes of CasADi's C, called through ctypes."""
    import casadi as ca

    sym = ca.SX.sym if n <= MOST_SCALAR else ca.MX.sym
    z, lam = sym("z", 6 * n + 5), sym("lam", 4 * n + 4)
    x, u, h, new = ca.SX.sym("x", 4), ca.SX.sym("u", 2), ca.SX.sym("h"), ca.SX.sym("new", 4)
    gap = new - step(ca, lambda rows: ca.vertcat(*rows), x, u, h)
    stage = ca.Function("stage", [x, u, h, new], [gap])
    states, controls = ca.reshape(z[: 4 * n + 4], n + 1, 4).T, ca.reshape(z[4 * n + 4 : -1], n, 2).T
    length = z[6 * n + 4] * (1 / n)
    if n <= MOST_SCALAR:
        parts = [stage(states[:, k], controls[:, k], length, states[:, k + 1]) for k in range(n)]
        gaps = ca.horzcat(*parts)
    else:
        gaps = stage.map(n)(states[:, :n], controls, ca.repmat(length, 1, n), states[:, 1:])
    c = ca.vertcat(states[:, 0], ca.reshape(gaps.T, 4 * n, 1))
    asked = {"csc": ca.Function("f", [z], [ca.jacobian(c, z)])}
    if n <= MOST_SCALAR:
        lower = ca.tril(ca.hessian(ca.dot(lam, c), z)[0])
        asked["Hessian"] = ca.Function("f", [z, lam], [lower])
    made, took = {}, {}
    for name, function in asked.items():
        begin = time.perf_counter()
        given = [point(n), np.ones(4 * n + 4)][: function.n_in()]
        made[f"CasADi {name}"] = _compiled(function, given)
        took[f"CasADi {name}"] = time.perf_counter() - begin
    return made, took


def _compiled(function: Any, given: list[Any]) -> Callable[[], Any]:
    """A function of CasADi as machine code, on these arguments."""
    folder = tempfile.mkdtemp()
    source, library = Path(folder) / "f.c", Path(folder) / "f.so"
    code = function.generate("f.c")
    Path(code).replace(source)
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    sizes = [ctypes.c_longlong() for _ in range(4)]
    loaded.f_work(*[ctypes.byref(s) for s in sizes])
    result = np.empty(function.sparsity_out(0).nnz())
    arguments = (ctypes.c_void_p * max(sizes[0].value, 1))(*[a.ctypes.data for a in given])
    results = (ctypes.c_void_p * max(sizes[1].value, 1))(result.ctypes.data)
    integers = (ctypes.c_longlong * max(sizes[2].value, 1))()
    numbers = (ctypes.c_double * max(sizes[3].value, 1))()
    loaded.f.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int]
    places = [ctypes.addressof(a) for a in (arguments, results, integers, numbers)]
    kept = (given, result, arguments, results, integers, numbers)
    return lambda: (loaded.f(*places, 0), kept)[1]


def jax_calls(n: int) -> tuple[Calls, dict[str, float]]:
    """The Jacobian by JAX: a product for each of our colours, all in one batch."""
    import jax
    import jax.numpy as jnp

    from uopc.sparse import colouring

    jax.config.update("jax_enable_x64", True)
    z = uopc.param("z", (6 * n + 5,), uopc.dtypes.float64)
    c = constraints(OfNodes, lambda rows: uopc.stack(*rows), lambda p: uopc.cat(*p), z, n)
    found = uopc.sparsity(c, z)
    colours = colouring.columns(found.row, found.col, z.size)
    seeds = jnp.asarray(np.eye(colours.max() + 1)[colours].T)
    place = jnp.asarray(colours[found.col] * (4 * n + 4) + found.row)

    def f(v: Any) -> Any:
        return constraints(jnp, jnp.stack, jnp.concatenate, v, n)

    def jacobian(v: Any) -> Any:
        return jax.vmap(lambda t: jax.jvp(f, (v,), (t,))[1])(seeds).reshape(-1)[place]

    at = jnp.asarray(point(n))
    begin = time.perf_counter()
    call = jax.jit(jacobian).lower(at).compile()
    took = time.perf_counter() - begin
    return {"JAX csc": lambda: call(at).block_until_ready()}, {"JAX csc": took}


# ---------------------------------------------------------------- others
def brusselator(lib: Any, roll: Any, stack: Any, w: Any, n: int) -> Any:
    """The right side of the Brusselator on n x n points around a torus, (2, n, n)."""
    u, v, a = w[0], w[1], 10.0 * (n - 1) ** 2 / 1e4

    def near(q: Any) -> Any:
        return roll(q, 1, 0) + roll(q, -1, 0) + roll(q, 1, 1) + roll(q, -1, 1) - 4.0 * q

    cubic = u * u * v
    return stack([1.0 + cubic - 4.4 * u + a * near(u), 3.4 * u - cubic + a * near(v)])


def rolled(q: Any, by: int, axis: int) -> Any:
    """`numpy.roll` of a node."""
    n = q.shape[axis]
    cut = n - by % n
    parts = [(slice(cut, n), slice(None)), (slice(0, cut), slice(None))]
    return uopc.cat(*[q[p if axis == 0 else p[::-1]] for p in parts], axis=axis)


def others(rounds: int) -> list[str]:
    """A stencil beside asdex, and stages that are written out beside an array of them."""
    n, stages = 32, 160
    at = np.random.default_rng(0).random((2, n, n)) + 1
    w = uopc.param("w", at.shape, uopc.dtypes.float64)
    f = brusselator(None, rolled, lambda rows: uopc.stack(*rows), w, n)
    stencil = uopc.compile(uopc.jacobian(f, w, format="csc"), threads=1)
    calls: Calls = {f"Brusselator {n} x {n}": lambda: stencil(at)}
    try:
        import asdex
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        flat = jnp.asarray(at.reshape(-1))

        def of(q: Any) -> Any:
            return brusselator(None, jnp.roll, jnp.stack, q.reshape(2, n, n), n).reshape(-1)

        found = asdex.jacobian(of, flat)
        call = jax.jit(lambda q: found(q).data).lower(flat).compile()
        calls["Brusselator, asdex"] = lambda: call(flat).block_until_ready()
    except ImportError as missing:
        print(f"left out: {missing}", file=sys.stderr)
    z = uopc.param("z", (9 * stages + 9,), uopc.dtypes.float64)
    point = np.random.default_rng(1).standard_normal(z.shape) * 0.3
    for name, c in (
        ("array of stages", as_array(z, stages)),
        ("written out", written_out(z, stages)),
    ):
        program = uopc.compile(uopc.jacobian(c, z, format="csc"), threads=1)
        calls[name] = lambda program=program: program(point)
    lines = ["## A stencil, and stages", "", "| | run, µs: median (least) |", "| --- | --- |"]
    times = in_turns(calls, rounds)
    lines += [f"| {k} | {m * 1e6:.2f} ({t * 1e6:.2f}) |" for k, (m, t) in times.items()]
    return [*lines, ""]


A = np.random.default_rng(0).standard_normal((6, 6)) * 0.3
B = np.random.default_rng(1).standard_normal((6, 3))


def as_array(z: Any, stages: int) -> Any:
    """Gaps of stages of six states and three controls, by `vmap` over one stage."""
    rows = z.reshape(stages + 1, 9)
    s, t = uopc.param("s", (9,), z.dtype), uopc.param("t", (6,), z.dtype)
    drift = (uopc.constant(A) @ s[:6]).tanh() + uopc.constant(B) @ s[6:]
    gap = t - (s[:6] + 0.1 * (drift + s[0] * s[1].sin() * uopc.constant(np.eye(6)[2])))
    return uopc.vmap(gap, {s: rows[:-1], t: rows[1:, :6]}).reshape(6 * stages)


def written_out(z: Any, stages: int) -> Any:
    """The same, element by element."""
    elements, out = list(z), []
    for k in range(stages):
        x, u, new = [elements[9 * k + i : 9 * k + j] for i, j in ((0, 6), (6, 9), (9, 15))]
        for i in range(6):
            drift = sum([float(a) * v for a, v in zip(A[i], x)]).tanh()
            drift = drift + sum([float(b) * v for b, v in zip(B[i], u)])
            drift = drift + x[0] * x[1].sin() if i == 2 else drift
            out.append(new[i] - (x[i] + 0.1 * drift))
    return uopc.stack(*out)


# ---------------------------------------------------------------- measuring
def in_turns(calls: Calls, rounds: int) -> dict[str, tuple[float, float]]:
    """Median and least seconds of each call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(10):
                call()
            times[name].append((time.perf_counter() - begin) / 10)
    return {name: (statistics.median(t), min(t)) for name, t in times.items()}


def table(n: int, rounds: int) -> list[str]:
    """The lines of a table for a number of stages."""
    calls, took = ours(n)
    for side in (casadi_calls, jax_calls):
        try:
            more, seconds = side(n)
        except ImportError as missing:
            print(f"left out: {missing}", file=sys.stderr)
            continue
        calls |= more
        took |= seconds
    found = in_turns(calls, rounds)
    lines = [
        f"## {n} stages", "", "| | build and compile, s | run, µs: median (least) | to CasADi |",
        "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for name, (median, least) in found.items():
        peer = found.get("CasADi Hessian" if "Hessian" in name else "CasADi csc")
        ratio = "" if peer is None or name == "constraints" else f"{least / peer[1]:.3f}"
        lines.append(
            f"| {name} | {took[name]:.3f} | {median * 1e6:.2f} ({least * 1e6:.2f}) | {ratio} |"
        )
    both = found["c and csc"][1] / (found["constraints"][1] + found["csc"][1])
    return [*lines, "", f"c and csc in one program: {both:.2f} of the two alone", ""]


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description="time sparse derivatives beside CasADi and JAX")
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument(
        "--rounds", type=int, default=200,
        help="take this many turns of each program; default: %(default)s",
    )
    parser.add_argument(
        "--stages", type=int, nargs="+", default=[50, 500],
        help="time problems of these numbers of stages; default: %(default)s",
    )
    given = parser.parse_args()
    page = [
        "# Sparse derivatives beside CasADi and JAX", "",
        "By `python benchmarks/sparse_derivatives.py --out docs/lab/sparse.md`; its head says how.",
        "The ratio is of least times.", "",
    ]  # fmt: skip
    for n in given.stages:
        page += table(n, given.rounds)
    page += others(given.rounds)
    text = "\n".join(page)
    print(text)
    if given.out:
        given.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
