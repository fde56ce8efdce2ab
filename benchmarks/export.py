"""Exported code beside C by hand and CasADi's C, in turns in one run.

    python benchmarks/export.py [--out docs/lab/export.md] [--rounds 60]

Each side is a library in which a loop in C calls the function, so no time of Python counts. All
code is for x86-64-v3: exported C by -O2, CasADi's and C by hand by -O3. A side whose results differ
is an error. What is not installed is left out. One thread.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sparse_derivatives import OfNodes, constraints, point, step

import uopc
from uopc.exporting.shared_library import shared

TARGET = "x86-64-v3"
STAGES, WIDTHS, COUNT = 50, (16, 64, 64, 8), 8
TURN = 0.002  # seconds of calls in a turn
GCC, CLANG = shutil.which("gcc"), shutil.which("clang")
F8 = uopc.dtypes.float64


@dataclass
class Job:
    """A program: its graph, the arguments, CasADi's function, and plain C if it is short."""

    graph: Callable[[], Any]
    given: list[Any]
    casadi: Callable[[Any], Any]
    plain: str = ""


# ---------------------------------------------------------------- programs
def jacobian() -> Any:
    """The Jacobian of 50 steps of a bicycle, 1,204 values."""
    z = uopc.param("z", point(STAGES).shape, F8)
    c = constraints(OfNodes, lambda rows: uopc.stack(*rows), lambda p: uopc.cat(*p), z, STAGES)
    return uopc.jacobian(c, z, format="csc")


def jacobian_casadi(ca: Any) -> Any:
    """The same, of scalars: CasADi's fastest form of it."""
    n, z = STAGES, ca.SX.sym("z", 6 * STAGES + 5)
    states, controls = ca.reshape(z[: 4 * n + 4], n + 1, 4).T, ca.reshape(z[4 * n + 4 : -1], n, 2).T
    gaps = []
    for k in range(n):
        args = states[:, k], controls[:, k], z[6 * n + 4] * (1 / n)
        gaps.append(states[:, k + 1] - step(ca, lambda rows: ca.vertcat(*rows), *args))
    c = ca.vertcat(states[:, 0], ca.reshape(ca.horzcat(*gaps).T, 4 * n, 1))
    return ca.Function("f", [z], [ca.jacobian(c, z)])


def weights() -> list[tuple[Any, Any]]:
    """The matrices and offsets of the network."""
    rng = np.random.default_rng(3)
    pairs = zip(WIDTHS, WIDTHS[1:])
    return [(rng.standard_normal((b, a)) / 4, rng.standard_normal(b)) for a, b in pairs]


def network() -> Any:
    """Layers of 16-64-64-8 with tanh, on one vector."""
    x = uopc.param("x", (WIDTHS[0],), F8)
    for w, b in weights():
        x = (uopc.constant(w) @ x + uopc.constant(b)).tanh()
    return x


def network_casadi(ca: Any) -> Any:
    """The same, of matrices: of scalars, it compiles for half a minute and is no faster."""
    x = y = ca.MX.sym("x", WIDTHS[0])
    for w, b in weights():
        y = ca.tanh(ca.DM(w) @ y + ca.DM(b))
    return ca.Function("f", [x], [y])


def three() -> tuple[Any, Any, Any]:
    """Three vectors."""
    a, b, c = [uopc.param(name, (COUNT,), F8) for name in "abc"]
    return a, b, c


def sines() -> Any:
    """Eight sines."""
    a, b, c = three()
    return (a * b + c).sin() * a


def entry() -> Any:
    """So little that the call itself counts."""
    a, b, c = three()
    return a * b + c


def of_three(f: Callable[[Any, Any, Any, Any], Any]) -> Callable[[Any], Any]:
    """CasADi's function of three vectors."""

    def made(ca: Any) -> Any:
        names = [ca.SX.sym(name, COUNT) for name in "abc"]
        return ca.Function("f", names, [f(ca, *names)])

    return made


def jobs() -> dict[str, Job]:
    """The programs by name."""
    rng = np.random.default_rng(1)
    vectors = [rng.standard_normal(COUNT) for _ in "abc"]
    plain = """void f(const double *restrict a, const double *restrict b, const double *restrict c,
                      double *restrict out) { for (int i = 0; i < 8; ++i) out[i] = %s; }"""
    sine = "sin(a[i] * b[i] + c[i]) * a[i]"
    return {
        "Jacobian, 1,204 values": Job(jacobian, [point(STAGES)], jacobian_casadi),
        "MLP 16-64-64-8": Job(network, [rng.standard_normal(WIDTHS[0])], network_casadi),
        "eight sines": Job(sines, vectors, of_three(lambda ca, a, b, c: ca.sin(a * b + c) * a),
                           f"#include <math.h>\n{plain % sine}"),
        "a*b + c, 8 values": Job(entry, vectors, of_three(lambda ca, a, b, c: a * b + c),
                                 plain % "a[i] * b[i] + c[i]"),
    }  # fmt: skip


# ---------------------------------------------------------------- sides
@dataclass
class Side:
    """A loop over calls; the result; seconds that a compiler took, 0 without one."""

    loop: Any
    places: Any
    out: Any
    compiled: float = 0.0

    def run(self, times: int) -> float:
        """The seconds of so many calls."""
        begin = time.perf_counter()
        self.loop(self.places, times)
        return time.perf_counter() - begin


def compiled(folder: Path, cc: str, level: str, source: str) -> float:
    """Seconds of the processor to make folder/f.o of C: they depend little on other work."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [cc, level, f"-march={TARGET}", "-fPIC", "-c", source, "-o", "f.o"]
    subprocess.run(command, cwd=folder, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def looped(folder: Path, before: str, call: str, job: Job, size: int, seconds: float) -> Side:
    """A side of folder/f.o, whose function `call` calls with the pointers a."""
    (folder / "loop.c").write_text(
        f"#include <stddef.h>\n{before}\nvoid loop(void **a, long n)\n{{\n"
        f"    for (long i = 0; i < n; ++i) {{ {call}; }}\n}}\n", "utf-8"
    )  # fmt: skip
    link = [GCC or CLANG or "cc", "-O2", "-shared", "-fPIC", "loop.c", "f.o", "-o", "f.so", "-lm"]
    subprocess.run(link, cwd=folder, check=True)
    loop = ctypes.CDLL(str(folder / "f.so")).loop
    loop.argtypes, loop.restype = [ctypes.c_void_p, ctypes.c_long], None
    arrays = [*job.given, np.zeros(size)]
    places = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
    return Side(loop, places, arrays[-1], seconds)


def exported(folder: Path, job: Job, size: int, cc: str | None) -> Side:
    """Our function: as an object file, or as C by a compiler."""
    kind = "object" if cc is None else "c"
    uopc.export(job.graph(), folder / "f", kind=kind, target=TARGET)
    seconds = 0.0 if cc is None else min([compiled(folder, cc, "-O2", "f.c") for _ in "abc"])
    pointers = ", ".join([f"a[{i}]" for i in range(len(job.given) + 1)])
    work = "static _Alignas(64) unsigned char work[F_WORK_BYTES + 1];"
    return looped(folder, f'#include "f.h"\n{work}', f"f({pointers}, work)", job, size, seconds)


def of_casadi(folder: Path, ca: Any, job: Job, size: int, cc: str) -> Side:
    """CasADi's C by a compiler."""
    f = job.casadi(ca)
    generator = ca.CodeGenerator("f")
    generator.add(f)
    (folder / "f.c").write_text(generator.dump(), "utf-8")
    seconds = compiled(folder, cc, "-O3", "f.c")
    inputs = ", ".join([f"a[{i}]" for i in range(len(job.given))])
    before = (
        "int f(const double **, double **, long long *, double *, int);\n"
        f"static long long iw[{f.sz_iw() + 1}]; static double w[{f.sz_w() + 1}];"
    )
    call = (
        f"const double *arg[{f.sz_arg() + 1}] = {{{inputs}}}; "
        f"double *res[{f.sz_res() + 1}] = {{a[{len(job.given)}]}}; f(arg, res, iw, w, 0)"
    )
    return looped(folder, before, call, job, size, seconds)


def by_hand(folder: Path, job: Job, size: int, cc: str) -> Side:
    """Plain C by a compiler."""
    (folder / "f.c").write_text(job.plain, "utf-8")
    seconds = compiled(folder, cc, "-O3", "f.c")
    before = "void f(const double *, const double *, const double *, double *);"
    return looped(folder, before, "f(a[0], a[1], a[2], a[3])", job, size, seconds)


def sides(name: str, job: Job, root: Path) -> dict[str, Side]:
    """All sides of a program. An error if results differ."""
    wanted = np.asarray(uopc.compile(job.graph(), threads=1)(*job.given)).reshape(-1)

    def folder() -> Path:
        return Path(tempfile.mkdtemp(dir=root))

    found = {"object": exported(folder(), job, wanted.size, None)}
    compilers = {"gcc": GCC, "clang": CLANG}
    for label, cc in compilers.items():
        if cc is not None:
            found[f"C, {label}"] = exported(folder(), job, wanted.size, cc)
            if job.plain:
                found[f"by hand, {label}"] = by_hand(folder(), job, wanted.size, cc)
    try:
        import casadi as ca
    except ImportError as missing:
        print(f"left out: {missing}", file=sys.stderr)
    else:
        for label, cc in compilers.items():
            if cc is not None:
                found[f"CasADi, {label}"] = of_casadi(folder(), ca, job, wanted.size, cc)
    for label, side in found.items():
        side.run(1)
        np.testing.assert_allclose(side.out, wanted, 1e-10, 1e-12, err_msg=f"{name}: {label}")
    return found


# ---------------------------------------------------------------- measuring
@dataclass
class Timed:
    """A program's sides, and the median and the least seconds of a call of each."""

    sides: dict[str, Side]
    taken: dict[str, tuple[float, float]]

    def ratio(self, a: str, b: str) -> float:
        """The time of side a to that of b. A name without a compiler is its better compiler's; NaN
        where a side is left out."""
        return self._least(a) / self._least(b)

    def compiles(self, cc: str) -> float:
        """The time in which CasADi's C compiles to that of ours."""
        theirs, ours = self.sides.get(f"CasADi, {cc}"), self.sides.get(f"C, {cc}")
        return math.nan if theirs is None or ours is None else theirs.compiled / ours.compiled

    def _least(self, name: str) -> float:
        times = [t for label, (_, t) in self.taken.items() if label.startswith(name)]
        return min(times, default=math.nan)


def in_turns(found: dict[str, Side], rounds: int) -> dict[str, tuple[float, float]]:
    """Median and least seconds of a call of each side."""
    times = {label: 1 + int(TURN * 64 / side.run(64)) for label, side in found.items()}
    taken: dict[str, list[float]] = {label: [] for label in found}
    for _ in range(rounds):
        for label, side in found.items():
            taken[label].append(side.run(times[label]) / times[label])
    return {label: (statistics.median(t), min(t)) for label, t in taken.items()}


def compilers() -> str:
    """The versions of the compilers."""
    ask = ["-dumpfullversion", "-dumpversion"]
    found = [
        f"{name} {subprocess.run([cc, *ask], capture_output=True, text=True).stdout.split()[0]}"
        for name, cc in (("gcc", GCC), ("clang", CLANG)) if cc is not None
    ]  # fmt: skip
    return ", ".join(found) + "."


def measured(rounds: int, root: Path) -> dict[str, Timed]:
    """All programs, by name."""
    made = {}
    for name, job in jobs().items():
        found = sides(name, job, root)
        made[name] = Timed(found, in_turns(found, rounds))
    return made


def tables(programs: dict[str, Timed]) -> list[str]:
    """The lines of the tables of all programs."""
    lines: list[str] = []
    for name, timed in programs.items():
        lines += [
            f"## {name}", "",
            "| | ns a call: median (least) | to the object | to CasADi's C | compiler, s |",
            "|---|---|---|---|---|",
        ]  # fmt: skip
        for label, (median, least) in timed.taken.items():
            seconds = timed.sides[label].compiled
            ratios = [shown(timed.ratio(label, to)) for to in ("object", "CasADi")]
            times = f"{median * 1e9:,.1f} ({least * 1e9:,.1f})"
            lines.append(
                f"| {label} | {times} | {' | '.join(ratios)} | {shown(seconds or math.nan)} |"
            )
        lines.append("")
    return lines


def shown(value: float) -> str:
    """A number of a table."""
    return "–" if math.isnan(value) else f"{value:.2f}"


def goals(programs: dict[str, Timed], libraries: list[tuple[str, float, float]]) -> list[str]:
    """The lines of the table of what is asked of exports and what they do."""
    path, layers, eight, small = programs.values()
    ofs = [("Jacobian", path, 3), ("MLP", layers, 6), ("eight sines", eight, 4)]
    rows: list[tuple[str, float, float]] = []  # a goal below 0: at least so much
    for cc in ("gcc", "clang"):
        found = [t.ratio(f"C, {cc}", "object") for t in programs.values()]
        rows.append((f"C by {cc} / object, median of four", statistics.median(found), 1.1))
    rows += [(f"CasADi / object: {n}", t.ratio("CasADi", "object"), -k) for n, t, k in ofs]
    for cc in ("gcc", "clang"):
        rows += [(f"C / CasADi, both by {cc}: {n}", t.ratio(f"C, {cc}", f"CasADi, {cc}"), 1.0)
                 for n, t, _ in ofs]  # fmt: skip
        rows.append((f"CasADi / C, compile time by {cc}: Jacobian", path.compiles(cc), -15))
    rows.append(("object / C by hand: 8 values", small.ratio("object", "by hand"), 1.5))
    rows.append((".so without a linker, ms more", max([ms for _, ms, _ in libraries]), 5))
    lines = ["## Goals", "", "| | goal | measured | |", "|---|---|---|---|"]
    for name, value, goal in rows:
        met = value >= -goal if goal < 0 else value <= goal
        verdict = "" if math.isnan(value) else "met" if met else "missed"
        sign = "≥" if goal < 0 else "≤"
        lines.append(f"| {name} | {sign} {abs(goal):g} | {shown(value)} | {verdict} |")
    return [*lines, ""]


def linked(root: Path) -> list[tuple[str, float, float]]:
    """Each program; the ms that a shared library takes beyond an object file, by us and by gcc."""
    rows, folder = [], root / "lib"
    for name, job in jobs().items():
        code = uopc.export(job.graph(), folder / "f", target=TARGET).files[-1].read_bytes()
        ours, linker = [], [math.nan]
        for _ in range(10):
            begin = time.perf_counter()
            shared(code, "f.so")
            ours.append(time.perf_counter() - begin)
            if GCC is not None:
                begin = time.perf_counter()
                subprocess.run([GCC, "-shared", "f.o", "-o", "g.so"], cwd=folder, check=True)
                linker.append(time.perf_counter() - begin)
        rows.append((name, min(ours) * 1e3, min(linker[1:] or linker) * 1e3))
    return rows


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description="time exported code beside C and CasADi's C")
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument(
        "--rounds", type=int, default=60,
        help="take this many turns of each program; default: %(default)s",
    )
    given = parser.parse_args()
    if GCC is None and CLANG is None:
        sys.exit("neither gcc nor clang is installed")
    load = f"{os.getloadavg()[0]:.1f}"
    with uopc.options(cache_dir="", programs=0), tempfile.TemporaryDirectory() as folder:
        programs, libraries = measured(given.rounds, Path(folder)), linked(Path(folder))
    command = f"`python benchmarks/export.py --rounds {given.rounds} --out docs/lab/export.md`"
    lines = [
        "# Exported code beside C and CasADi's C", "",
        f"Made by {command}; its head says how.",
        f"Ratios are of least times; CasADi's time is that by its better compiler. {compilers()}",
        f"{os.cpu_count()} CPUs, load {load} before the run.", "",
        *goals(programs, libraries), *tables(programs),
        "## A shared library of an object file", "",
        "| | by uopc, ms | by gcc, ms |", "|---|---|---|",
        *[f"| {name} | {ours:.2f} | {linker:.1f} |" for name, ours, linker in libraries],
    ]  # fmt: skip
    text = "\n".join(lines) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
