"""Exports whose results have lengths that the function computes and returns by address."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
import uopc.numpy as unp
from tests.exporting import corpus
from uopc import dtypes
from uopc.errors import Unsupported, UserError

CC = shutil.which("gcc") or shutil.which("clang")
N = uopc.variable("n", 0, 50)
X, Z = uopc.param("x", (N,)), uopc.param("z", (N, 3))
Array = npt.NDArray[Any]


def positive(x: Any) -> list[Any]:
    """Values, places, what follows from them, and a second length that depends on the first."""
    found = x[x > 0]
    above = found - found.mean()
    return [found, (x > 0).nonzero()[0], above, above[above > 0].sum(), found.sort()]


def numpy_positive(x: Array) -> list[Array]:
    found = x[x > 0]
    above = found - found.mean() if found.size else found
    return [found, np.flatnonzero(x > 0), above, above[above > 0].sum(), np.sort(found)]


def rows(z: Any) -> list[Any]:
    return [z[z.sum(1) > 0], z[z[:, 0] > 0].sum(0)]


def loaded(graph: Any, folder: Path, **options: Any) -> Any:
    uopc.export(graph, folder / "f", kind="shared", **options)
    return uopc.load_exported(folder / "f.so")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-4, 4), max_size=50), st.booleans())
def test_results_are_those_of_numpy(tmp_path_factory: Any, values: list[int], all_: bool) -> None:
    f = library(tmp_path_factory)
    x = np.asarray(values, "f4") + (8 if all_ else 0)
    for got, wanted in zip(f(x), numpy_positive(x), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


_libraries: dict[str, Any] = {}


def library(factory: Any) -> Any:
    if "f" not in _libraries:
        _libraries["f"] = loaded(positive(X), factory.mktemp("lengths"))
    return _libraries["f"]


@pytest.mark.skipif(CC is None, reason="there is no C compiler")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_the_self_test_of_c_passes(tmp_path: Path, count: int, threads: int) -> None:
    """It checks bits, lengths, and that nothing around the memory of the greatest length is
    written."""
    rng = np.random.default_rng(count)
    x = rng.standard_normal(count).astype("f4")
    z = rng.standard_normal((count, 3)).astype("f4")
    uopc.export(
        [*positive(X), *rows(Z)], tmp_path / "f", kind="c", threads=threads,
        examples={"x": x, "z": z},
    )  # fmt: skip
    assert CC is not None
    assert corpus.compiled_and_run(tmp_path, CC, *corpus.sanitized(CC)) == ""


def test_the_interface(tmp_path: Path) -> None:
    x = uopc.param("x", (8,), dtypes.float64)
    made = uopc.export({"y": x[x > 0]}, tmp_path / "f", kind="c")
    header = (tmp_path / "f.h").read_text("utf-8")
    assert "int f(const double *x, double *y, int64_t *count, void *work);" in header
    assert "y (out): float64[count] in memory for [8]" in header
    assert "count (out): a number, 0 to 8" in header
    known = {"name": "count", "c_name": "count", "low": 0, "high": 8}
    assert made.manifest["lengths"] == [known] and made.manifest["format"] == 2
    plain = uopc.export({"y": x * 2}, tmp_path / "g", kind="c").manifest
    assert plain["format"] == 1 and "lengths" not in plain


def test_names_that_meet(tmp_path: Path) -> None:
    """A length, an argument and a result of one name."""
    x = uopc.param("count", (6,), dtypes.float64)
    f = loaded({"count_1": x[x > 0]}, tmp_path)
    header = (tmp_path / "f.h").read_text("utf-8")
    assert "count_2 (out): the length count, 0 to 6" in header
    assert f(np.array([1.0, -1, 2, 0, 3, -4]))["count_1"].tolist() == [1, 2, 3]


def test_lengths_and_conditions_are_checked(tmp_path: Path) -> None:
    """A value bound to a variable may be outside of its bounds; two lengths may differ."""
    x, y = (uopc.param(name, (6,), dtypes.int64) for name in "xy")
    k = uopc.variable("k", 1, 4).bind(x.sum())
    f = loaded(y[:k] * 2, tmp_path)
    some = np.arange(6)
    assert f(np.array([1, 0, 0, 2, 0, 0]), some).tolist() == [0, 2, 4]
    for total in (0, 5):
        with pytest.raises(UserError, match=rf"'k' is {total} \(from the function\), expected 1"):
            f(np.array([total, 0, 0, 0, 0, 0]), some)
    both = loaded(x[x > 0] + y[y > 0], tmp_path)
    assert both(some, some).tolist() == [2, 4, 6, 8, 10]
    with pytest.raises(UserError, match="it must hold that count"):
        both(some, some[::-1].copy() * np.array([1, 0, 0, 1, 1, 1]))


def test_lengths_around_a_loop_of_launches(tmp_path: Path) -> None:
    """Sizes in a loop are known before it; the loop runs behind a length, and before another."""
    x = uopc.param("x", (300,))

    def step(c: Any, _: Any) -> tuple[Any, None]:
        return unp.cumsum(c * 0.5) + c, None

    chosen = x[x > 0].sum()
    last = uopc.scan(step, x + chosen, length=3)[0]
    graph = [x[x > 0], last[last > last.mean()]]
    given_x = np.random.default_rng(0).standard_normal(300).astype("f4")
    wanted = uopc.compile(graph)(given_x)
    for got, want in zip(loaded(graph, tmp_path)(given_x), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_all_levels_return_lengths(tmp_path: Path) -> None:
    f = loaded(rows(Z), tmp_path, target=["x86-64", "x86-64-v3"])
    z = np.random.default_rng(1).standard_normal((20, 3)).astype("f4")
    got = f(z)
    np.testing.assert_array_equal(got[0], z[z.sum(1) > 0])
    np.testing.assert_allclose(got[1], z[z[:, 0] > 0].sum(0), rtol=1e-5)


def test_what_is_refused(tmp_path: Path) -> None:
    x = uopc.param("x", (6,), dtypes.float64)
    with pytest.raises(Unsupported, match="CasADi takes no results of computed length: count"):
        uopc.export({"y": x[x > 0]}, tmp_path / "f", abi="casadi")
    f = loaded(x[x > 0], tmp_path)
    with pytest.raises(UserError, match="computes the length of this result: omit it"):
        f(np.ones(6), out=np.ones(6))
