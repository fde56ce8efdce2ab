"""`u.render(style="c")`: a C compiler, told to trap what C leaves undefined, agrees with uopc."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import uopc
from tests.conformance import expression
from tests.fuzz import algebra
from uopc import Ops, UOp, dtypes
from uopc.ir.core import bounds, walk
from uopc.ir.core.dtypes import DType

N, M = uopc.variable("n", 0, 99), uopc.variable("m", -50, 99)
BIG, ANY = uopc.variable("big", 0, 1 << 40), uopc.variable("any", -3, 3)
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_a_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
POINTS = 40
B, C = uopc.variable("b", -5, 12), uopc.variable("c", 0, 7)
LARGE = {B: B * 100_000_000, C: C * 300_000_000}


@pytest.mark.parametrize(
    ("u", "text"),
    [
        (N // 12, "(n / 12)"),
        (N % 12 + N, "((n % 12) + n)"),
        (N // M, "(m ? n / m - (n % m != 0 && (n < 0) != (m < 0)) : 0)"),
        (M // 12, "(m / 12 - (m % 12 < 0))"),
        (M % 12, "(m % 12 + (m % 12 < 0 ? 12 : 0))"),
        (UOp(Ops.CDIV, None, (M, N + 1)), "(m / (n + 1))"),
        (UOp(Ops.CMOD, None, (M, N)), "(n ? m % n : 0)"),
        ((N < 3).where(N // 12, M), "((n < 3) ? (n / 12) : m)"),
        ((N < 3) & (M < 4), "((n < 3) && (m < 4))"),
        (~((N < 3) | M.eq(4)), "(!((n < 3) || (m == 4)))"),
        ((N < 3).ne(M < 4), "((n < 3) != (m < 4))"),
        (M.maximum(N), "(m > n ? m : n)"),
        (M + (-5), "(m + (-5))"),
        (N * 100_000_000, "(((int64_t)n) * 100000000)"),
        (BIG * 2, "(big * 2)"),
        (M >> 1, "(m >> 1)"),
        (N << 2, "(n * (INT64_C(1) << 2))"),
        (M.cast(dtypes.int) * 2, "((int32_t)((uint32_t)((int32_t)m) * (uint32_t)2))"),
        (M.cast(dtypes.char) * 2, "((int8_t)((uint32_t)((int8_t)m) * (uint32_t)2))"),
        (UOp.range(8, 3) + UOp.range(4, (1, 2)), "(r1_2 + r3)"),
    ],
    ids=lambda given: "" if isinstance(given, UOp) else given,
)
def test_the_text(u: UOp, text: str) -> None:
    assert u.render(simplify=False, style="c") == text


def test_it_is_simplified_unless_told_otherwise() -> None:
    u = UOp(Ops.ADD, None, (UOp.const(dtypes.index, 3), UOp.const(dtypes.index, 4)))
    assert (u.render(style="c"), u.render(simplify=False, style="c")) == ("7", "(3 + 4)")


def repeated(u: UOp, times: int) -> UOp:
    for _ in range(times):
        u = UOp(Ops.MAX, None, (u, UOp(Ops.NEG, None, (u,))))
    return u


X = uopc.param("x", (4,))


@pytest.mark.parametrize(
    ("u", "problem"),
    [
        (X, "PARAM"),
        (N.cast(dtypes.float), "float32"),
        (UOp(Ops.CAST, dtypes.int, (UOp.const(dtypes.float, 1.5),)), "float32"),
        (N << M, "count"),
        (uopc.variable("while", 0, 9) + N, "'while' is not an identifier of C"),
        (uopc.variable("größe", 0, 9) + N, "'größe' is not an identifier of C"),
        (repeated(N, 40), "a million characters"),
        (UOp.invalid(dtypes.index), "INVALID"),
    ],
    ids=lambda given: "" if isinstance(given, UOp) else given,
)
def test_what_has_no_expression(u: UOp, problem: str) -> None:
    with pytest.raises(uopc.Unsupported, match=problem):
        u.render(simplify=False, style="c")


def test_other_styles_are_errors() -> None:
    with pytest.raises(uopc.UserError, match="style must be python or c, got 'rust'"):
        N.render(style="rust")
    with pytest.raises(uopc.UserError, match=r"style must be python or c, got \['c'\]"):
        N.render(style=["c"])


def fits(u: UOp) -> bool:
    """True if every index value below fits in 64 bits with certainty."""
    least, most = dtypes.index.bounds
    known = [bounds.bounds(v) for v in walk.toposort(u) if v.dtype is dtypes.index]
    return all(least < low and high < most for low, high in known)


def graphs(t: DType, count: int) -> list[tuple[UOp, str]]:
    """Random graphs and their text, half of them simplified before."""
    drawn = random.Random(f"render {t.name}")
    found: list[tuple[UOp, str]] = []
    while len(found) < count:
        make = drawn.choice((algebra.integer, algebra.integer, algebra.truth))
        u = make(drawn, t, drawn.randint(1, 4))
        if t is dtypes.index and drawn.random() < 0.3:
            u = u.substitute(LARGE, walk=True)  # sums of ints that are no ints
        if drawn.random() < 0.5:
            u = u.simplify()
        if not fits(u):
            continue
        try:
            text = u.render(simplify=False, style="c")
        except uopc.Unsupported:
            continue
        if len(text) < 3000:
            found.append((u, text))
    return found


def results(texts: Sequence[str], points: expression.Points, kind: str, folder: Path) -> list[int]:
    """The values of each expression at each point, from C with variables of the type `kind`."""
    names = sorted(points)
    parameters = ", ".join(f"{kind} {name}" for name in names)
    rows = ["{" + ",".join(str(points[name][i]) for name in names) + "}" for i in range(POINTS)]
    call = ", ".join(f"at[i][{k}]" for k in range(len(names)))
    lines = ["#include <inttypes.h>", "#include <stdio.h>"]
    lines += [f"static int64_t f{k}({parameters}) {{ return {t}; }}" for k, t in enumerate(texts)]
    lines += [f"static const int at[][{len(names)}] = {{{','.join(rows)}}};", "int main(void) {"]
    lines += [
        f'for (int i = 0; i < {POINTS}; i++) printf("%" PRId64 "\\n", f{k}({call}));'
        " fflush(stdout);" for k in range(len(texts))
    ]  # fmt: skip
    source, program = folder / f"{kind}.c", folder / kind
    source.write_text("\n".join([*lines, "return 0; }"]), "utf-8")
    traps = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    command = (str(COMPILER), "-std=c99", "-O0", "-w", *traps, str(source), "-o", str(program))
    subprocess.run(command, check=True)
    run = subprocess.run([str(program)], capture_output=True, text=True)
    made = list(map(int, run.stdout.split()))
    done = len(made) // POINTS
    assert run.returncode == 0, f"undefined in C: {texts[min(done, len(texts) - 1)]}"
    return made


@needs_a_compiler
@pytest.mark.parametrize(
    ("t", "count"),
    [(dtypes.index, 200), (dtypes.int8, 60), (dtypes.uint8, 60), (dtypes.int32, 80),
     (dtypes.uint32, 80), (dtypes.int64, 80), (dtypes.uint64, 80)],
    ids=lambda given: getattr(given, "name", ""),
)  # fmt: skip
@pytest.mark.few(2)
def test_random_graphs_in_c(t: DType, count: int, tmp_path: Path) -> None:
    drawn = np.random.default_rng(count)
    bounds_of = {"a": (0, 30), "b": (-5, 12), "c": (0, 7), "d": (1, 4)}
    points = {
        name: np.concatenate([[low, high], drawn.integers(low, high + 1, POINTS - 2)])
        for name, (low, high) in bounds_of.items()
    }
    made = graphs(t, count)
    wanted = []
    for value, _ in expression.evaluate([u for u, _ in made], points):
        column = np.broadcast_to(value, (POINTS, 1))[:, 0]
        wanted.append(column.astype(np.int64))
    for kind in ("int64_t", "int"):
        found = results([text for _, text in made], points, kind, tmp_path)
        for (_, text), row, k in zip(made, wanted, range(0, len(found), POINTS), strict=True):
            assert found[k : k + POINTS] == row.tolist(), f"{kind}: {text}"
