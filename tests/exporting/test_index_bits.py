"""`index_bits=32`: loops and indices of 32 bits, with the bits of results that 64 give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests.exporting.test_c import checked, named
from tests.exporting.test_export import (
    CASES,
    Case,
    assert_same,
    called,
    convolution,
    floats,
    in_place,
    launches_in_loops,
    needs_c,
    program,
    symbolic,
)  # fmt: skip
from uopc import dtypes
from uopc.cli import main as cli
from uopc.errors import Unsupported, UserError

LIMIT = (1 << 31) - 1


def indices() -> Case:
    """Indices that are read, negative, shifted, converted, chosen and not provably short."""
    n = uopc.variable("n", 2, 90)
    x, wide = uopc.param("x", (n, 7)), uopc.param("wide", (5,), dtypes.int64)
    short = uopc.param("short", (6,), dtypes.int8)
    counted = uopc.arange(n)
    results = [
        x[wide], x[short.cast(dtypes.int64)], x.flip(0).cumsum(axis=0),
        counted.cast(dtypes.float64) * 0.5, counted.cast(dtypes.uint8), x[::3].sum(),
        x.reshape(n * 7).argmax(), (counted - 40) // 7, (counted - 40) % 6, counted >> 1,
        uopc.arange(12).cast(dtypes.int64) * (1 << 40), x.pad(((2, 1), (0, 3))) + 1,
    ]  # fmt: skip
    arrays = [floats(11, 7), np.array([0, 10, -11, 3, -1]), np.arange(6).astype("i1") - 3]
    return Case(results, arrays)


MAKERS = (*[c for c in CASES if c.__name__ != "long_kernel"], indices)


@pytest.mark.parametrize("make", MAKERS, ids=lambda c: c.__name__)
@pytest.mark.few(5)
def test_object_code_has_the_bits_of_64(make: Any, tmp_path: Path) -> None:
    case = make()
    made = uopc.export(case.graph, tmp_path / "f", kind="shared", index_bits=32)
    f = uopc.load_exported(made.files[-1])
    assert_same(called(f, case), called(program(case), case))


@needs_c
@pytest.mark.parametrize("make", [indices, symbolic, convolution, in_place, launches_in_loops],
                         ids=lambda c: c.__name__)
def test_c_has_the_bits_of_64(make: Any, tmp_path: Path) -> None:
    """The self-test, of 64 bits, runs with the source that has 32: no warning, the same bits."""
    case = make()
    uopc.export(case.graph, tmp_path / "f", kind="c", examples=named(case))
    test = (tmp_path / "f_test.c").read_text("utf-8")
    uopc.export(case.graph, tmp_path / "f", kind="c", index_bits=32)
    (tmp_path / "f_test.c").write_text(test, "utf-8")
    checked(tmp_path, "-O1")
    code = (tmp_path / "f.c").read_text("utf-8")
    loops = re.findall(r"for \((\w+) [i-n] ", code)
    assert set(loops) <= {"int32_t"} and (loops or "for (" not in code)


def test_no_index_of_64_bits_is_left(tmp_path: Path) -> None:
    """But where memory has integers of 64 bits."""
    x = uopc.param("x", (uopc.variable("n", 1, 1000), 12))
    y = x.flip(0).pad(((1, 1), (0, 0))).sum(axis=1)
    uopc.export(y, tmp_path / "f", kind="c", index_bits=32)
    text = (tmp_path / "f.c").read_text("utf-8")
    kernel = text.partition("static void")[2].partition("const char f_id")[0]
    assert "int32_t n)" in kernel and "int64_t" not in kernel


def long_loop() -> Any:
    return uopc.arange((1 << 32) + 15).sum()  # a prime number


def long_array() -> Any:
    n, m = uopc.variable("n", 1, 1 << 16), uopc.variable("m", 1, 1 << 16)
    return uopc.param("x", (n, m)).sum(axis=0)


@pytest.mark.parametrize("kind", ["c", "object"])
@pytest.mark.parametrize(("make", "text"), [
    (long_loop, "a loop may have 4294967311"), (long_array, "an array may have 4294967296"),
])  # fmt: skip
def test_what_does_not_fit(make: Any, text: str, kind: str, tmp_path: Path) -> None:
    """The message names the user's line."""
    with pytest.raises(Unsupported, match=rf"{Path(__file__).name}:\d+.*{text} elements"):
        uopc.export(make(), tmp_path / "f", kind=kind, index_bits=32, optimize=False)
    uopc.export(make(), tmp_path / "f", kind=kind, optimize=False)


def test_the_longest_that_fits(tmp_path: Path) -> None:
    n = uopc.variable("n", 1, LIMIT)
    uopc.export(uopc.param("x", (n,)) + 1, tmp_path / "f", index_bits=32)
    with pytest.raises(Unsupported, match="index_bits=32 counts to 2147483647"):
        n = uopc.variable("n", 1, LIMIT + 1)
        uopc.export(uopc.param("x", (n,)) + 1, tmp_path / "f", index_bits=32)


@pytest.mark.parametrize("bits", [16, 0, -32, True, "32", 32.0])
def test_wrong_bits(bits: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="index_bits must be 32 or 64, got "):
        uopc.export(uopc.param("x", (3,)) * 2, tmp_path / "f", index_bits=bits)


def test_the_command(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("import uopc\ngraph = uopc.param('x', (99,)) * 2\n", "utf-8")
    assert cli.main(["export", "model.py", "-o", "f", "--kind", "c", "--index-bits", "32"]) == 0
    assert "for (int32_t i = 0; i < 99; ++i)" in Path("f.c").read_text("utf-8")
