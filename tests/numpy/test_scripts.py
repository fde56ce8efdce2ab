"""Functions of NumPy that scripts use, traced: NumPy's numbers, shapes, dtypes and errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage, special

import uopc
import uopc.numpy as unp
from uopc.ir.interpret import interpreter

DTYPES = ("?", "i1", "i4", "i8", "u1", "f4", "f8")


def drawn(shape: Any, dtype: str, seed: int = 0, special: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 7, shape)
    if dtype[0] == "f":
        a = a * rng.choice([-1.0, 1.0, 0.5], shape)
        if special and a.size:
            flat = a.reshape(-1)
            flat[::3] = rng.choice([np.nan, np.inf, -np.inf, -0.0], flat[::3].shape)
    elif dtype[0] == "i":
        a = a * rng.choice([-1, 1], shape)
    return np.asarray(a, dtype) if dtype != "?" else np.asarray(a % 2, bool)


def listed(v: Any) -> list[Any]:
    return [*v] if isinstance(v, (tuple, list)) else [v]


def outcome(f: Callable[..., Any], *arrays: Any) -> tuple[Any, str]:
    """The value of NumPy, or its error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return f(*arrays), ""
        except (ValueError, TypeError, IndexError, ZeroDivisionError) as error:
            return None, f"{type(error).__name__}: {error}"


def close(got: Any, want: Any, rtol: float | None = None, dtype: bool = True) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    if dtype:
        assert got.dtype == want.dtype
    if rtol is None:
        rtol = {2: 2e-3, 4: 3e-6, 8: 1e-12}[want.dtype.itemsize] if want.dtype.kind == "f" else 0
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def same(f: Callable[..., Any], *arrays: Any, dtype: bool = True) -> None:
    """The traced function gives what NumPy gives; an error where NumPy has one."""
    want, error = outcome(f, *arrays)
    if error:
        with pytest.raises(uopc.UserError):
            uopc.jit(f)(*arrays)
        return
    got = uopc.jit(f)(*arrays)
    assert len(listed(got)) == len(listed(want))
    for g, w in zip(listed(got), listed(want)):
        close(g, w, dtype=dtype)


# ---------------------------------------------------------------- joining and parting
JOINS = {
    "hstack": lambda a, b: np.hstack([a, b]), "vstack": lambda a, b: np.vstack((a, b)),
    "dstack": lambda a, b: np.dstack([a, b]), "column_stack": lambda a, b: np.column_stack([a, b]),
    "append": lambda a, b: np.append(a, b), "append 0": lambda a, b: np.append(a, b, axis=0),
    "append -1": lambda a, b: np.append(a, b, axis=-1), "block": lambda a, b: np.block([a, b]),
    "block 2": lambda a, b: np.block([[a, b], [b, a]]),
    "block 3": lambda a, b: np.block([[[a], [a]], [[a], [a]]]),
    "atleast_1d": lambda a, b: np.atleast_1d(a, b), "atleast_2d": lambda a, b: np.atleast_2d(a),
    "atleast_3d": lambda a, b: np.atleast_3d(a, b),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_joins(name: str, data: Any) -> None:
    rank = data.draw(st.integers(0, 3))
    shape = data.draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))
    other = data.draw(st.sampled_from([shape, shape[:1], [*shape[:-1], 2], []]))
    dtypes = [data.draw(st.sampled_from(DTYPES)) for _ in range(2)]
    same(JOINS[name], drawn(shape, dtypes[0]), drawn(other, dtypes[1], 1))


@pytest.mark.parametrize("name", ("concatenate", "stack", "hstack", "vstack"))
def test_joins_in_a_dtype(name: str) -> None:
    f = getattr(np, name)
    for own, asked in (("i4", "f8"), ("f8", "f4"), ("f8", "i4"), ("i8", "i1"), ("f4", None)):
        same(lambda a, t=asked: f([a, a], dtype=t), drawn((2, 3), own))


SPLITS = ("split", "array_split", "hsplit", "vsplit", "dsplit")
WHERE = (1, 2, 3, 5, 0, -1, [1], [], [2, 1], [1, 1, 9], [-1], (0, 2), np.array([1, 2]))


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("places", WHERE, ids=repr)
@pytest.mark.few(20)
def test_parts(name: str, places: Any) -> None:
    axes = (0, -1, 1) if name in ("split", "array_split") else (None,)
    for shape in ((), (0,), (6,), (6, 4), (2, 3, 6)):
        for axis in axes:
            more = {} if axis is None else {"axis": axis}

            def f(a: Any, more: Any = more) -> Any:
                return getattr(np, name)(a, places, **more)

            a = drawn(shape, "i4")
            want, error = outcome(f, a)
            if error or not any(p.size for p in want):  # jit gives no empty list
                with pytest.raises(uopc.UserError) if error else warnings.catch_warnings():
                    getattr(unp, name)(unp.asarray(a), places, **more)
                continue
            got = getattr(unp, name)(unp.asarray(a), places, **more)
            assert type(got) is list and len(got) == len(want)
            for g, w in zip(got, want):
                close(g, w)


@pytest.mark.parametrize("places", (0, 2, -1, 9, [0, 2], [], slice(1, 3), slice(None, None, 2),
                                    np.array([True, False, False, True])), ids=repr)  # fmt: skip
@pytest.mark.parametrize("axis", (None, 0, 1, -1, 2))
@pytest.mark.few(12)
def test_elements_left_out_and_put_in(places: Any, axis: Any) -> None:
    for shape in ((4,), (4, 3), (4, 4)):
        same(lambda a: np.delete(a, places, axis=axis), drawn(shape, "f4"))
        if isinstance(places, np.ndarray):
            continue
        same(lambda a: np.insert(a, places, 7.5, axis=axis), drawn(shape, "i4"))
    same(lambda a, b: np.insert(a, 1, b, axis=1), drawn((4, 3), "f4"), drawn((4,), "f8", 1))
    same(lambda a, b: np.insert(a, 1, b, axis=0), drawn((4, 3), "f4"), drawn((2, 3), "f8", 1))
    same(lambda a, b: np.insert(a, [1, 1], b), drawn((4,), "f4"), drawn((2,), "i4", 1))


# ---------------------------------------------------------------- places and moves
MOVES = {
    "fliplr": lambda a: np.fliplr(a), "flipud": lambda a: np.flipud(a),
    "ravel": lambda a: np.ravel(a), "diag": lambda a: np.diag(a), "diag 1": lambda a: np.diag(a, 1),
    "diag -2": lambda a: np.diag(a, k=-2), "diag 9": lambda a: np.diag(a, 9),
    "diagflat": lambda a: np.diagflat(a, -1), "vander": lambda a: np.vander(a),
    "vander 3": lambda a: np.vander(a, 3, increasing=True), "vander 0": lambda a: np.vander(a, 0),
    **{f"rot90 {k}": lambda a, k=k: np.rot90(a, k) for k in (-1, 0, 1, 2, 3, 5)},
    "rot90 axes": lambda a: np.rot90(a, 3, axes=(-1, 0)),
    "rollaxis": lambda a: np.rollaxis(a, 1), "rollaxis -1": lambda a: np.rollaxis(a, -1, 1),
    "rollaxis 3": lambda a: np.rollaxis(a, 0, 3), "rollaxis -": lambda a: np.rollaxis(a, 0, -1),
    "unravel_index": lambda a: np.unravel_index(np.abs(a.astype("i4")), (3, 4, 5)),
    "ravel_multi_index": lambda a: np.ravel_multi_index((abs(a.astype("i4")) % 3, 1), (3, 4)),
    "ediff1d": lambda a: np.ediff1d(a), "ediff1d ends": lambda a: np.ediff1d(a, 3, [1, 2]),
    "ediff1d of a float": lambda a: np.ediff1d(a, to_end=1.5),
    "tril_indices_from": lambda a: a[np.tril_indices_from(a, -1)],
    "diag_indices_from": lambda a: a[np.diag_indices_from(a)],
}  # fmt: skip
SHAPES = ((), (0,), (1,), (4,), (0, 3), (3, 3), (2, 4), (2, 3, 4))


@pytest.mark.few(10)
@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    for i, shape in enumerate(SHAPES):
        same(MOVES[name], drawn(shape, DTYPES[i % len(DTYPES)]))
    same(MOVES[name], drawn((3, 3), "f4"))
    same(MOVES[name], drawn((4,), "i1"))


@pytest.mark.parametrize("mode", ("constant", "edge", "reflect", "symmetric", "wrap"))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_padding(mode: str, data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    widths = [(data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))) for _ in shape]
    same(lambda a: np.pad(a, widths, mode), drawn(shape, data.draw(st.sampled_from(DTYPES))))


@pytest.mark.parametrize("mode", ("edge", "reflect", "symmetric", "wrap"))
def test_padding_of_no_elements(mode: str) -> None:
    for widths in (1, 0, ((0, 0), (2, 1))):
        same(lambda a, w=widths: np.pad(a, w, mode), np.zeros((0, 3)))


def test_padding_with_several_constants() -> None:
    a = drawn((2, 3), "i4")
    for constants in ((1, 2), ((1, 2), (3, 4)), [7], 5, ((1,), (2,))):
        same(lambda a, c=constants: np.pad(a, ((1, 2), (2, 1)), constant_values=c), a)
    same(lambda a, c: np.pad(a, 1, constant_values=c), a, np.int32(7))
    with pytest.raises(uopc.UserError, match=r"must be one number, got the shape \(2, 3\)"):
        unp.pad(unp.asarray(a), 1, constant_values=unp.asarray(a))
    with pytest.raises(uopc.UserError, match="pad: expected a constant, or two for each of 2 axes"):
        unp.pad(unp.asarray(a), 1, constant_values=(1, 2, 3))
    with pytest.raises(uopc.UserError, match=r"mode must be one of constant, edge, reflect, symm"):
        unp.pad(unp.asarray(a), 1, "mean")


# ---------------------------------------------------------------- elements
ONE = ("cbrt", "deg2rad", "rad2deg", "degrees", "radians", "fabs", "sinc", "angle", "nan_to_num",
       "modf", "isposinf", "isneginf", "fix", "conjugate")  # fmt: skip
TWO = ("fmax", "fmin", "fmod", "float_power", "heaviside", "logaddexp2", "divmod")


@pytest.mark.parametrize("name", (*ONE, *TWO))
@pytest.mark.parametrize("dtype", ("f4", "f8", "i4", "i8", "u1"))
@pytest.mark.few(40)
def test_functions_of_elements(name: str, dtype: str) -> None:
    arrays = [drawn((5, 7), dtype, i, special=True) for i in range(1 + (name in TWO))]
    f = getattr(np, name)
    if name == "logaddexp2":
        arrays = [a * a.dtype.type(9) for a in arrays]
    if dtype == "f4" or dtype == "f8":
        same(lambda *a: f(*a), *arrays)
        return
    want, _ = outcome(f, *arrays)
    exact = name in ("fmax", "fmin", "fmod", "divmod", "nan_to_num", "conjugate", "fix")
    got = uopc.jit(lambda *a: f(*a))(*arrays)
    for g, w in zip(listed(got), listed(want)):
        close(g, w, rtol=None if exact else 2e-2, dtype=exact)


def test_nan_to_num_has_its_numbers() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1.5], "f4")
    same(lambda a: np.nan_to_num(a, nan=2, posinf=3.0), a)
    same(lambda a: np.nan_to_num(a, nan=a[3], neginf=-9.0), a)
    want = np.nan_to_num(a)
    assert uopc.jit(lambda a: np.nan_to_num(a, copy=False))(a) is a
    np.testing.assert_array_equal(a, want)


def test_the_greatest_of_numbers_leaves_nans_out() -> None:
    a = drawn((4, 5), "f8", special=True)
    same(lambda a: np.fmax.reduce(a, axis=1), a)
    same(lambda a: np.fmin.reduce(a), a)


# ---------------------------------------------------------------- comparisons
CLOSE = {
    "isclose": lambda a, b: np.isclose(a, b),
    "equal_nan": lambda a, b: np.isclose(a, b, equal_nan=True),
    "tolerances": lambda a, b: np.isclose(a, b, 0.5, atol=0.25),
    "rtol": lambda a, b: np.isclose(a, b, rtol=b),
    "allclose": lambda a, b: np.allclose(a, b, 1.0, 2.0),
    "of one": lambda a, b: np.isclose(a, 1),
    "array_equal": lambda a, b: np.array_equal(a, b),
    "array_equiv": lambda a, b: np.array_equiv(a, b),
    "of itself": lambda a, b: np.array_equal(a, a),
    "with NaN": lambda a, b: np.array_equal(b, b, equal_nan=True),
}


@pytest.mark.parametrize("name", CLOSE)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_comparisons(name: str, data: Any) -> None:
    shape = data.draw(st.lists(st.integers(0, 3), min_size=0, max_size=2))
    other = data.draw(st.sampled_from([shape, [1] * len(shape), shape[1:]]))
    dtypes = [data.draw(st.sampled_from(DTYPES)) for _ in range(2)]
    a, b = (drawn(s, t, 3, special=True) for s, t in zip((shape, other), dtypes))
    if name == "equal_nan" and "f" not in dtypes[0] + dtypes[1]:
        a = a.astype("f8")
    same(CLOSE[name], a, b)


@pytest.mark.parametrize("count", (0, 1, 5, 64, 65, 300))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.few(4)
def test_isin(count: int, dtype: str) -> None:
    a, b = drawn((7, 5), dtype, special=True), drawn((count,), dtype, 1, special=True)
    same(lambda a, b: np.isin(a, b), a, b)
    same(lambda a, b: np.isin(a, b, invert=True, assume_unique=False), a, b)
    same(lambda a: np.isin(a, [1, 2, 2.0]), a)
    with pytest.raises(uopc.UserError, match="kind must be"):
        unp.isin(unp.asarray(a), [1], kind="hash")


# ---------------------------------------------------------------- norms and products
@pytest.mark.parametrize("dtype", ("?", "i4", "u1", "f4", "f8"))
@pytest.mark.parametrize(
    "order", (None, 0, 1, -1, 2, -2, 3, 0.5, np.inf, -np.inf, "fro", "f", "nuc")
)
@pytest.mark.few(6)
def test_norms(order: Any, dtype: str) -> None:
    for shape in ((), (5,), (1,), (3, 4), (2, 3, 4)):
        for axis in (None, 0, -1, (0, 1), (1, 0), (-1, 0), (0, 0), 7):
            a = drawn(shape, dtype)
            if dtype[0] != "f":
                a = a.astype("f8") if dtype == "u1" else a

            def f(a: Any, keep: bool, axis: Any = axis) -> Any:
                return np.linalg.norm(a, order, axis, keepdims=keep)

            want, error = outcome(f, a, axis in (0, (0, 1)))
            rank = len(shape) if axis is None else 2 if isinstance(axis, tuple) else 1
            if not error and rank == 2 and order in (2, -2, "nuc"):
                error = "singular values"
            if error:
                with pytest.raises(uopc.UserError):
                    np.asarray(unp.linalg.norm(unp.asarray(a), order, axis))
                continue
            got = unp.linalg.norm(unp.asarray(a), order, axis, axis in (0, (0, 1)))
            close(got, want, dtype=dtype[0] == "f")


def test_norms_are_those_of_numpy_in_traced_code() -> None:
    a = drawn((3, 4), "f4")
    same(lambda a: np.linalg.norm(a), a)
    same(lambda a: a / np.linalg.norm(a, axis=-1, keepdims=True), np.abs(a) + 1)
    with pytest.raises(uopc.UserError, match="ord 2 needs singular values"):
        uopc.jit(lambda a: np.linalg.norm(a, 2))(a)


PRODUCTS = {
    "inner": lambda a, b: np.inner(a, b),
    "vdot": lambda a, b: np.vdot(a, b),
    "kron": lambda a, b: np.kron(a, b),
    "matvec": lambda a, b: np.matvec(a, b),
    "vecmat": lambda a, b: np.vecmat(a, b),
    "multi_dot": lambda a, b: np.linalg.multi_dot([a, b]),
    "multi_dot 3": lambda a, b: np.linalg.multi_dot([a, b, b]),
    **{
        f"correlate {m}": lambda a, b, m=m: np.correlate(a, b, m) for m in ("full", "same", "valid")
    },
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtypes", (("i4", "i4"), ("f4", "i1"), ("f8", "f4"), ("?", "u1")))
@pytest.mark.few(14)
def test_products(name: str, dtypes: Any) -> None:
    for left, right in (
        ((), (3,)), ((3,), (3,)), ((4,), (2,)), ((2,), (5,)), ((3, 3), (3,)), ((3,), (3, 3)),
        ((3, 3), (3, 3)), ((2, 3), (3, 2)), ((2, 1, 3, 3), (2, 3, 3)), ((2, 3), (4,)),
    ):  # fmt: skip
        same(PRODUCTS[name], drawn(left, dtypes[0]), drawn(right, dtypes[1], 1))


# ---------------------------------------------------------------- orders
def test_partitions_have_their_elements_in_place() -> None:
    a = drawn((5, 7), "f8")
    for kth in (0, 3, -1, (1, 4)):
        got = uopc.jit(lambda a, k=kth: (np.partition(a, k), np.argpartition(a, k, axis=0)))(a)
        for k in listed(kth):
            np.testing.assert_array_equal(got[0][:, k], np.partition(a, k)[:, k])
            chosen = np.take_along_axis(a, got[1], 0)[k % 5]
            np.testing.assert_array_equal(chosen, np.partition(a, k % 5, axis=0)[k % 5])
    same(lambda a: np.partition(a, 30, axis=None)[30], a)
    same(lambda a: np.partition(a, 7), a)
    same(lambda a: np.argpartition(a, -8), a)


def test_lexsort() -> None:
    keys = [drawn((3, 20), t, i) for i, t in enumerate(("i4", "f4", "i1"))]
    same(lambda *k: np.lexsort(k), *keys)
    same(lambda *k: np.lexsort(k, axis=0), *keys)
    same(lambda *k: np.lexsort((k[0],)), *keys)
    same(lambda *k: np.lexsort((k[0], k[1][:2])), *keys)


# ---------------------------------------------------------------- making arrays
ENDS = {
    "linspace": lambda a, b: np.linspace(a, b, 5),
    "no end": lambda a, b: np.linspace(a, b, 4, False),
    "one": lambda a, b: np.linspace(a, b, num=1),
    "none": lambda a, b: np.linspace(a, b, 0),
    "retstep": lambda a, b: np.linspace(a, b, 6, retstep=True),
    "axis": lambda a, b: np.linspace(a, b, 3, axis=-1),
    "from 0": lambda a, b: np.linspace(0, b, 5),
    "dtype": lambda a, b: np.linspace(a, b, 7, dtype="i4"),
    "to 1": lambda a, b: np.linspace(a, 1.5, 5),
    "logspace": lambda a, b: np.logspace(a / 4, b / 4, 5),
    "base": lambda a, b: np.logspace(a, b, 5, base=2.0),
    "logspace no end": lambda a, b: np.logspace(a / 4, b / 4, 5, False),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("dtype", ("f8", "f4", "i4"))
def test_numbers_between_traced_ends(name: str, dtype: str) -> None:
    if name == "dtype" and dtype == "f4":
        return  # a product and a sum are rounded once: one that is rounded down may be less by one
    same(ENDS[name], drawn((), dtype, 1), drawn((), dtype, 2))
    same(ENDS[name], drawn((3,), dtype, 1), drawn((2, 1), dtype, 2))


def test_arrays_like_others() -> None:
    a = drawn((2, 3), "f4")
    for f in (
        lambda a: np.zeros_like(a, "i4"), lambda a: np.ones_like(a, shape=(4,)),
        lambda a: np.full_like(a, 7, np.int8, shape=2), lambda a: np.empty_like(a) * 0,
        lambda a: np.meshgrid(a[0], a[1], a[0], sparse=True), lambda a: np.meshgrid(a[0], a[:, 1]),
        lambda a: np.meshgrid(a[0], a[:, 1], copy=False, indexing="ij", sparse=True),
    ):  # fmt: skip
        same(f, a)


def test_numbers_between_known_ends() -> None:
    for args, named in (((-3, 0, 5), {"dtype": int}), ((2, 3, 4), {"retstep": True}),
                        (([0, 1], [2.0, 5.0], 3), {}), ((0, 1, np.int64(3)), {})):  # fmt: skip
        for g, w in zip(listed(unp.linspace(*args, **named)), listed(np.linspace(*args, **named))):
            close(g, w)
    close(unp.tri(3, 4, 1), np.tri(3, 4, 1))
    close(unp.identity(3, "i4"), np.identity(3, "i4"))
    for dims in ((), (2,), (2, 3), (0, 2)):
        close(unp.indices(dims), np.indices(dims))
        for g, w in zip(unp.indices(dims, sparse=True), np.indices(dims, sparse=True)):
            close(g, w)


# ---------------------------------------------------------------- symbolic sizes
SYMBOLIC: dict[str, Callable[..., Any]] = {
    "diag": lambda m, a: m.diag(a[:, 0], 1),
    "diag of a matrix": lambda m, a: m.diag(a),
    "column_stack": lambda m, a: m.column_stack([a[:, 0], a]),
    "hstack": lambda m, a: m.hstack([a, a]),
    "vstack": lambda m, a: m.vstack([a, a[:1]]),
    "append": lambda m, a: m.append(a, a),
    "split": lambda m, a: m.split(a, [1])[1],
    "hsplit": lambda m, a: m.hsplit(a, 3)[2],
    "isclose": lambda m, a: m.isclose(a, a[::-1]),
    "isin": lambda m, a: m.isin(a[:, 0], a[:, 1]),
    "average": lambda m, a: m.average(a, axis=0, weights=a[:, 0] ** 2 + 1),
    "cov": lambda m, a: m.cov(a, rowvar=False, ddof=0),
    "corrcoef": lambda m, a: m.corrcoef(a.T),
    "norm": lambda m, a: m.linalg.norm(a),
    "norm 1": lambda m, a: m.linalg.norm(a, 1),
    "fmax": lambda m, a: m.fmax(a, a[::-1]),
    "trapezoid": lambda m, a: m.trapezoid(a, axis=0),
    "pad": lambda m, a: m.pad(a, ((9, 1), (0, 2)), mode="symmetric"),
    "gradient": lambda m, a: m.gradient(a, 0.5, axis=0),
    "gradient at": lambda m, a: m.gradient(a, m.cumsum(a[:, 0] ** 2 + 0.5), axis=0),
    "unwrap": lambda m, a: m.unwrap(a * 9, axis=0),
    "rot90": lambda m, a: m.rot90(a),
    "interp": lambda m, a: m.interp(a, m.cumsum(a[:, 0] ** 2 + 0.5), a[:, 1]),
    "digitize": lambda m, a: m.digitize(a, m.sort(a[:, 0])),
    "kron": lambda m, a: m.kron(a, a[:, :2]),
    "inner": lambda m, a: m.inner(a, a),
    "vdot": lambda m, a: m.vdot(a, a),
    "ediff1d": lambda m, a: m.ediff1d(a, to_begin=1.0),
    "lexsort": lambda m, a: m.lexsort((a[:, 0], a[:, 1])),
    "block": lambda m, a: m.block([[a, a], [a, a]]),
    "multi_dot": lambda m, a: m.linalg.multi_dot([a.T, a, a.T]),
    "array_equal": lambda m, a: m.array_equal(a, a),
    "unravel_index": lambda m, a: m.unravel_index(m.argmax(a), a.shape)[0],
    "vander": lambda m, a: m.vander(a[:, 0], 3),
    "partition": lambda m, a: m.partition(a, 1, axis=0)[1],
}


@pytest.mark.few(10)
@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str) -> None:
    x = uopc.param("x", (uopc.variable("n", 2, 40), 3), uopc.dtypes.float64)
    made = SYMBOLIC[name](unp, x)
    program = uopc.compile(made)
    for n in (2, 3, 7, 40):
        a = np.random.default_rng(n).normal(size=(n, 3))
        want = SYMBOLIC[name](np, a)
        close(program(a), want, rtol=1e-10)
        if n == 3:
            close(interpreter.evaluate(made, {"x": a}), want, rtol=1e-10)


REFUSED = {
    "split: axis 0 of .* must have a known size": lambda x: np.split(x, 2),
    "array_split: axis 0 of": lambda x: np.array_split(x, 2),
    "delete: axis 0 of": lambda x: np.delete(x, 1, axis=0),
    "correlate: needs two vectors of known length": lambda x: np.correlate(x[:, 0], x[:, 1]),
    "vander: N must be a number": lambda x: np.vander(x[:, 0]),
    "array_equal: the sizes of .* must be known": lambda x: np.array_equal(x, np.ones((5, 3))),
    "polyval: p must have a known length": lambda x: np.polyval(x[:, 0], 1.0),
    "tril_indices_from .* needs known sizes": lambda x: np.tril_indices_from(x),
    "gradient: axis 0 of .* needs 3 elements": lambda x: np.gradient(x, axis=0, edge_order=2),
}


@pytest.mark.parametrize("words", REFUSED)
def test_sizes_that_must_be_known(words: str) -> None:
    x = uopc.param("x", (uopc.variable("n", 2, 40), 3), uopc.dtypes.float64)
    with pytest.raises(uopc.UserError, match=words):
        REFUSED[words](x)


# ---------------------------------------------------------------- refused, with a reason
WITHOUT: dict[str, Callable[..., Any]] = {
    "setdiff1d .* made of unique": lambda x: np.setdiff1d(x, x),
    "piecewise .* use select": lambda x: np.piecewise(x, [x < 0], [lambda v: -v]),
    "apply_along_axis .* use uopc.vmap": lambda x: np.apply_along_axis(np.sum, 0, x),
    "frexp .* uopc.numpy has no frexp": lambda x: np.frexp(x),
    "the indices must be known": lambda x: np.split(x, [x[0].astype("i4")]),
    "delete: the indices must be known": lambda x: np.delete(x, x.astype("i4")),
    "mean .* takes no out=": lambda x: np.mean(x, 0, None, np.zeros(())),
    "add .* takes no dtype=": lambda x: np.add(x, x, dtype="f4"),
    r"leave np.asarray\(x\) out": lambda x: np.asfortranarray(x),
    r"copy .* leave it out": lambda x: x.copy(order="F"),
    "resize .* use concatenate and reshape": lambda x: np.resize(x, 5),
    "without dimensions.*use np.where, & and |": lambda x: (x > 0) and (x < 1),
    r"uopc.numpy has no erf, .* use x.uop.erf\(\)": lambda x: special.erf(x),
    "scipy asked for its values.*__array_namespace__": lambda x: ndimage.gaussian_filter(x, 1),
}


@pytest.mark.parametrize("words", WITHOUT)
def test_an_error_says_what_to_write(words: str) -> None:
    with pytest.raises((uopc.UserError, TypeError), match=words):
        uopc.jit(WITHOUT[words])(np.ones(3))


@pytest.mark.parametrize("dtype", ["f8", "i4", "?"])
@pytest.mark.parametrize("part", [0, slice(None)], ids=["element", "slice"])
def test_a_write_into_an_array_that_numpy_makes(dtype: Any, part: Any) -> None:
    outside = np.zeros(3, dtype)

    def write(x: Any) -> Any:
        r = np.zeros(3, dtype)
        r[part] = x[part]
        return r

    def write_outside(x: Any) -> None:
        outside[part] = x[part]

    x = np.array([2.5, 0.0, -1.0])
    got, want = uopc.jit(write)(x), write(x)
    assert got.dtype == want.dtype and got.tolist() == want.tolist()
    with pytest.raises(uopc.UserError, match="writes to an array from outside of it"):
        uopc.jit(write_outside)(x)
    assert not outside.any()


def test_places_that_are_known_are_checked() -> None:
    for f in (lambda: unp.unravel_index(6, (2, 3)), lambda: unp.unravel_index([-1], (2, 3)),
              lambda: unp.ravel_multi_index((1, np.array([0, 3])), (2, 3))):  # fmt: skip
        with pytest.raises(uopc.UserError, match="an index is out of range for"):
            f()
    with pytest.raises(uopc.UserError, match="2 arrays of indices for 3 axes"):
        unp.ravel_multi_index((1, 2), (2, 3, 4))
    with pytest.raises(uopc.UserError, match="indices must be integers, got float64"):
        unp.unravel_index(1.5, (2, 3))


# ---------------------------------------------------------------- derivatives
SLOPES: dict[str, Callable[..., Any]] = {
    "diag": lambda m, x: m.diag(x, 1) ** 2,
    "norm": lambda m, x: m.linalg.norm(x),
    "average": lambda m, x: m.average(x**2, weights=m.abs(x) + 1),
    "cov": lambda m, x: m.cov(x, x**2),
    "corrcoef": lambda m, x: m.corrcoef(x, x**2),
    "trapezoid": lambda m, x: m.trapezoid(x**2, m.cumsum(x**2)),
    "gradient": lambda m, x: m.gradient(x**2, m.cumsum(x**2), edge_order=2),
    "interp at": lambda m, x: m.interp(x, [-9.0, 0.0, 1.0, 9.0], [1.0, 3.0, -1.0, 0.0]),
    "interp of": lambda m, x: m.interp([0.1, 2.0], m.cumsum(x**2), x),
    "unwrap": lambda m, x: m.unwrap(x * 9) ** 2,
    "fmax": lambda m, x: m.fmax(x, x[::-1] * 0.3) ** 2,
    "pad": lambda m, x: m.pad(x, 3, "symmetric") ** 2,
    "split": lambda m, x: m.split(x, [2])[1] ** 2 + m.delete(x, 1)[1:4] ** 3,
    "cbrt": lambda m, x: m.cbrt(x),
    "sinc": lambda m, x: m.sinc(x),
    "fmod": lambda m, x: m.fmod(x, 0.55) ** 2,
    "polyval": lambda m, x: m.polyval(x, 1.5) + m.polyval([1.0, 2.0, 3.0], x),
    "kron": lambda m, x: m.kron(x, x**2),
    "insert": lambda m, x: m.insert(x, [1, 3], x[:2] ** 2) ** 2,
    "partition": lambda m, x: m.partition(x, 2)[2] ** 2,
}


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_are_those_of_differences(name: str) -> None:
    f, x = SLOPES[name], np.array([0.7, -1.3, 2.1, 0.4, -0.6])
    weights = np.cos(np.arange(f(np, x).size, dtype="f8")).reshape(f(np, x).shape)
    got = np.asarray(uopc.grad(lambda v: unp.sum(f(unp, v) * weights))(x))
    step = 1e-6
    want = [
        (np.sum(f(np, x + d) * weights) - np.sum(f(np, x - d) * weights)) / (2 * step)
        for d in step * np.eye(5)
    ]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


# ---------------------------------------------------------------- as NumPy's users spell it
SPELLINGS: dict[str, Callable[..., Any]] = {
    "pad by a dict": lambda x: np.pad(x, {0: (1, 2)}),
    "pad by a dict, one number": lambda x: np.pad(x, {-1: 2}, mode="reflect"),
    "pad by an array": lambda x: np.pad(x, np.array([[2, 1]]), mode="wrap"),
    "pad by one in brackets": lambda x: np.pad(x, ((2,),), mode="edge"),
    "pad with fractions": lambda x: np.pad(x.astype("i4"), 1, constant_values=2.7),
    "pad by a number that wraps": lambda x: np.pad(abs(x).astype("u1"), 1, constant_values=-1),
    "insert by a mask": lambda x: np.insert(x, np.array([True, False, True, False]), 7.0),
    "kron": lambda x: np.kron(a=x, b=x[:2]),
    "pad": lambda x: np.pad(array=x, pad_width=1, mode="edge"),
    "take": lambda x: np.take(a=x, indices=[0, 2], axis=0),
    "tile": lambda x: np.tile(A=x, reps=2),
    "searchsorted": lambda x: np.searchsorted(np.sort(x), v=0.5, side="right"),
    "moveaxis": lambda x: np.moveaxis(x.reshape(2, 2), source=0, destination=1),
    "det": lambda x: np.linalg.det(a=x.reshape(2, 2)),
    "sum": lambda x: np.sum(a=x, axis=0),
    "gradient at even places": lambda x: np.gradient(np.where(x > 0, np.nan, x), np.arange(4)),
    "interp where a slope is infinite": lambda x: np.interp(
        [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], x[:3] * [3e307, 1e308, 0.7e308]),
    "interp at infinite samples": lambda x: np.interp([1.0, 2.0, 3.0, 1.5], [1.0, 2.0, 3.0],
                                                      np.array([np.inf, 2.0, -np.inf])) + x,
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_numpy(name: str) -> None:
    same(SPELLINGS[name], np.array([0.5, -1.5, 2.0, -0.25]))


UNFIT: dict[str, Callable[..., Any]] = {
    "pad: the number nan does not fit int8": lambda x: np.pad(x, 1, constant_values=np.nan),
    "pad: the number -1.5 does not fit uint8":
        lambda x: np.pad(x.astype("u1"), 1, constant_values=[1, -1.5]),
    "pad: mode 'edge' takes no constant_values": lambda x: np.pad(x, 1, "edge", constant_values=1),
    "pad: expected .before, after. for each of 1 axes": lambda x: np.pad(x, {1: 2}),
    "pad: expected .before, after. for each": lambda x: np.pad(x, 1.5),
    "full_like: the number -inf does not fit int8": lambda x: np.max(x, initial=-np.inf),
    "full_like: the number nan does not fit int8": lambda x: np.full_like(x, np.nan),
    "rollaxis: start must be -1 to 1, got -2": lambda x: np.rollaxis(x, 0, -2),
}  # fmt: skip


@pytest.mark.parametrize("words", UNFIT)
def test_numbers_and_places_that_do_not_fit(words: str) -> None:
    """NumPy raises an error too, or gives a number that depends on the machine."""
    with pytest.raises(uopc.UserError, match=words):
        uopc.jit(UNFIT[words])(np.array([3, 1, 2], "i1"))


def test_slopes_between_samples() -> None:
    """On a sample a line has its slope; of places behind the samples, slopes are 0 and no NaN."""
    slope = uopc.grad(lambda at, y: unp.sum(unp.interp(at, [0.0, 1.0, 2.0], y)), argnums=(0, 1))
    at = np.array([-1.0, 0.0, 1.0, 2.0, 5.0])
    by_place, by_sample = map(np.asarray, slope(at, np.array([0.0, 3.0, 6.0])))
    np.testing.assert_array_equal(by_place, [0, 3, 3, 3, 0])
    np.testing.assert_array_equal(by_sample, [2, 1, 2])
