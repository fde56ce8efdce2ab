"""Updates at arrays of indices, in order and in time of the updates; bincount."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc import UOp, dtypes
from uopc.ir.interpret.interpreter import evaluate_with_effects

Array = Any


def replace(a: Array, key: Any, v: Array) -> None:
    a[key] = v


UPDATES: dict[str, Callable[[Array, Any, Array], None]] = {
    "set": replace, "add": np.add.at, "mul": np.multiply.at, "min": np.minimum.at,
    "max": np.maximum.at,
}  # fmt: skip
DTYPES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")


def values(shape: tuple[int, ...], dtype: str) -> Array:
    return np.random.default_rng(len(shape)).integers(0, 9, shape).astype(dtype)


def check(made: UOp, wanted: Array, **arrays: Array) -> None:
    """Compiled in three ways, and interpreted; arguments stay as they are."""
    for options in ({"threads": 2}, {"threads": 1}, {"optimize": False}):
        f = uopc.compile(made, verify=True, **options)
        used = {v.name: arrays[v.name] for v in f.inputs}
        before = {k: v.copy() for k, v in used.items()}
        np.testing.assert_array_equal(f(**used), wanted, err_msg=str(options))
        for k, v in before.items():
            np.testing.assert_array_equal(used[k], v)
    got, _ = evaluate_with_effects([made], {k: v.copy() for k, v in used.items()})
    np.testing.assert_array_equal(got[0], wanted)


def param(name: str, array: Array) -> UOp:
    return uopc.param(name, array.shape, dtypes.from_numpy(array.dtype))


@pytest.mark.parametrize("dtype", [
    pytest.param(t, marks=() if t in ("i2", "u4", "f4", "f8") else pytest.mark.slow) for t in DTYPES
])  # fmt: skip
@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.few(3)
def test_duplicates_in_row_major_order(name: str, dtype: str) -> None:
    x, v = values((7, 5), dtype), values((3, 11, 5), dtype)
    i = np.random.default_rng(0).integers(-7, 7, (3, 11)).astype("i4")
    wanted = x.copy()
    with np.errstate(over="ignore"):
        UPDATES[name](wanted, i, v)
    made = getattr(param("x", x).at[param("i", i)], name)(param("v", v))
    check(made, wanted, x=x, i=i, v=v)


I4, J4 = np.array([[2, -1, 0], [2, 2, 1]], "i4"), np.array([1, 1, -2], "i8")
KEYS: dict[str, Any] = {
    "an int": 2, "the last": (-1, ..., -1), "a slice": slice(1, 3),
    "steps": (slice(None, None, 2), slice(None, None, -3)), "a new axis": (None, 1),
    "nothing": slice(2, 2), "all": ..., "rows": (I4,), "columns": (slice(None), J4),
    "both": (I4, J4), "apart": (J4, slice(1, 4), I4), "after an ellipsis": (..., J4),
    "an int and an array": (1, J4), "windows of rows": (slice(1, 3), J4),
    "a new axis and an array": (None, J4), "backwards": (J4, slice(None, None, -1)),
}  # fmt: skip


@pytest.mark.parametrize("name", ["set", "add", "max"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.few(3)
def test_keys(key: str, name: str) -> None:
    x, k = values((3, 4, 5), "f4"), KEYS[key]
    v = values(x[k].shape[-1:], "f4")  # broadcast
    wanted, arrays = x.copy(), {}
    UPDATES[name](wanted, k, v)
    items = []
    for n, item in enumerate(k if isinstance(k, tuple) else (k,)):
        if isinstance(item, np.ndarray):
            arrays[f"i{n}"] = item
            item = param(f"i{n}", item)
        items.append(item)
    made = getattr(param("x", x).at[tuple(items)], name)(param("v", v))
    check(made, wanted, x=x, v=v, **arrays)
    check(getattr(param("x", x).at[k], name)(param("v", v)), wanted, x=x, v=v)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0, 1, 2, 13]), st.sampled_from([0, 1, 3, 17]), st.sampled_from([0, 1, 5]),
       st.sampled_from(list(UPDATES)), st.integers(0, 99))  # fmt: skip
def test_out_of_range_is_dropped(n: int, m: int, width: int, name: str, seed: int) -> None:
    r = np.random.default_rng(seed)
    x, v = (r.integers(0, 9, (k, width)).astype("f4") for k in (n, m))
    i = r.integers(-2 * n - 2, 2 * n + 2, m)
    inside, wanted = (i >= -n) & (i < n), x.copy()
    UPDATES[name](wanted, i[inside], v[inside])
    made = getattr(param("x", x).at[param("i", i)], name)(param("v", v))
    f, arrays = uopc.compile(made, verify=True), {"x": x, "i": i, "v": v}
    np.testing.assert_array_equal(f(**{u.name: arrays[u.name] for u in f.inputs}), wanted)


def test_places_at_the_ends_of_the_integers() -> None:
    for t in ("i8", "u8", "i1"):
        i = np.array([np.iinfo(t).min, np.iinfo(t).max, 1], t)
        wanted = np.zeros(4, "i4")
        wanted[i[(i >= 0) & (i < 4)].astype("i8")] += 1
        check(uopc.zeros(4, dtypes.int32).at[param("i", i)].add(1), wanted, i=i)
        check(param("i", i).bincount(length=4), wanted, i=i)


def test_symbolic_sizes() -> None:
    n, m = uopc.variable("n", 0, 40), uopc.variable("m", 0, 90)
    x, i, v = uopc.param("x", (n, 3)), uopc.param("i", (m,), dtypes.int32), uopc.param("v", (m, 3))
    f = uopc.compile(x.at[i].add(v), verify=True)
    for a, b in ((0, 0), (0, 5), (1, 90), (7, 0), (40, 31)):
        xs, vs = values((a, 3), "f4"), values((b, 3), "f4")
        places = np.random.default_rng(0).integers(-45, 45, b).astype("i4")
        inside, wanted = (places >= -a) & (places < a), xs.copy()
        np.add.at(wanted, places[inside], vs[inside])
        np.testing.assert_array_equal(f(x=xs, i=places, v=vs), wanted)


def test_many_updates_on_several_threads() -> None:
    """Floats of different sizes, whose sum depends on its order."""
    rng = np.random.default_rng(0)
    x, i = np.zeros((5, 64), "f4"), rng.integers(0, 5, 20_000)
    v = rng.standard_normal((20_000, 64)) * 10.0 ** rng.integers(-3, 6, (20_000, 1))
    v = v.astype("f4")
    wanted = x.copy()
    np.add.at(wanted, i, v)
    for threads in (1, 2):
        f = uopc.compile(param("x", x).at[param("i", i)].add(param("v", v)), threads=threads)
        np.testing.assert_array_equal(f(x=x, i=i, v=v), wanted)


def test_updates_compose() -> None:
    x, i = values((6,), "f4"), np.array([1, 1, 5])
    a, k = param("x", x), param("i", i)
    once = a.at[k].add(1.0)
    wanted = x.copy()
    np.add.at(wanted, i, 1)
    wanted = wanted * 2 + x
    wanted[i] = 7
    check((once * 2.0 + a).at[k].set(7.0), wanted, x=x, i=i)


def test_bincount() -> None:
    x = np.random.default_rng(0).integers(0, 17, 1000)
    w = np.random.default_rng(0).standard_normal(1000)
    a, b = param("x", x), param("w", w)
    check(a.bincount(length=20), np.bincount(x, minlength=20), x=x)
    check(a.bincount(b, length=17), np.bincount(x, w), x=x, w=w)
    check(a.bincount(length=5), np.bincount(x)[:5], x=x)
    with pytest.raises(uopc.UserError, match="weights"):
        a.bincount(b[1:], length=3)
    with pytest.raises(TypeError, match="needs integers"):
        b.bincount(length=3)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "u4", "i8", "u8"])
@pytest.mark.few(3)
def test_bincount_of_the_least_and_greatest_integers(dtype: str) -> None:
    facts = np.iinfo(dtype)
    x = np.array([facts.min, facts.max, facts.max // 2 + 1, 0, 1, 4, 5, 5], dtype)
    for n in (1, 5, 200):
        wanted = [(x == k).sum() for k in range(n)]
        check(param("x", x).bincount(length=n), np.array(wanted), x=x)
    n = uopc.variable("n", 0, 200)
    f = uopc.compile(param("x", x).bincount(length=n))
    for size in (0, 1, 6, 200):
        np.testing.assert_array_equal(f(x=x, n=size), [(x == k).sum() for k in range(size)])


def test_on_a_gpu_one_thread_makes_all_updates() -> None:
    x, i = uopc.param("x", (10, 6)), uopc.param("i", (7,), dtypes.int32)
    f = uopc.compile(x.at[i].add(1.0), device="cuda:sm_90")
    assert f.kernels[-1].name == "scatter_add_f32"
    assert not {o.op for o in f.kernels[-1].opts} & {"GLOBAL", "LOCAL", "THREAD"}
    assert "atom" not in f.kernels[-1].asm
    assert "%tid" not in f.kernels[-1].asm and "%ctaid" not in f.kernels[-1].asm


@pytest.mark.parametrize("shape", [(1,), (1, 3), (2,), (3, 2)])
def test_rows_in_a_row_and_places_outside(shape: tuple[int, ...]) -> None:
    """One row is at one place in all iterations; places outside leave -0.0 and NaN as they are."""
    i = np.array([0, -5, 0, 7, 0, 99, -99], "i8")
    x = np.full(shape, -0.0, "f4")
    x[-1] = np.nan if len(x) > 1 else -0.0
    n = len(x)
    for how in ("add", "max", "set"):
        wanted = x.copy()
        for k, place in enumerate(i):
            if -n <= place < n:
                old, new = wanted[place], np.float32(k + 1)
                wanted[place] = {"add": old + new, "max": np.maximum(old, new), "set": new}[how]
        values = np.arange(1, 8, dtype="f4").reshape(7, *(1,) * (len(shape) - 1))
        value = np.broadcast_to(values, (7, *shape[1:])).copy()
        made = getattr(param("x", x).at[param("i", i)], how)(param("v", value))
        for options in ({"threads": 2}, {"optimize": False}):
            got = uopc.compile(made, **options)(x=x, i=i, v=value)
            assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.fp8e5m2])
@pytest.mark.few(1)
def test_sums_and_products_of_narrow_floats_are_rounded_once(dtype: dtypes.DType) -> None:
    """Steps that each round stop growing: at 2048 in float16, at 256 in bfloat16, at 8 in fp8."""
    n, to = 5000, dtype.numpy
    ones, at = np.ones(n, to), np.zeros(n, "i4")
    i, v = uopc.param("i", (n,), dtypes.int32), uopc.param("v", (n,), dtype)
    x = uopc.param("x", (3,), dtype)
    wanted = np.array(n, "f4").astype(to)
    f = uopc.compile((x.at[i].add(v), i.bincount(v, length=3)), inputs=["x", "i", "v"])
    for got in f(np.zeros(3, to), at, ones):
        assert got[0] == wanted and got.dtype == to
    table = (x[i].cast(dtypes.float32) * v.cast(dtypes.float32)).sum()
    slopes = uopc.compile(uopc.grad(table, x), inputs=["i", "v"])(at, ones)
    assert slopes[0] == wanted
    steps = np.full(300, 1 + 2**-9, "f4").astype(dtypes.float16.numpy)
    product = uopc.param("y", (1,), dtypes.float16).at[i[:300]].mul(
        uopc.param("w", (300,), dtypes.float16)
    )
    got = uopc.compile(product, inputs=["y", "i", "w"])(np.ones(1, "f2"), at, steps)
    np.testing.assert_array_equal(got, np.float16(np.prod(steps.astype("f8"))))


def test_integers_wrap_as_in_numpy() -> None:
    at, ones = np.zeros(300, "i4"), np.ones(300, "i1")
    x, i = uopc.param("x", (2,), dtypes.int8), uopc.param("i", (300,), dtypes.int32)
    got = uopc.compile(x.at[i].add(uopc.param("v", (300,), dtypes.int8)))(
        np.zeros(2, "i1"), at, ones
    )
    assert got.tolist() == [300 - 256, 0]
