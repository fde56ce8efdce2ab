"""Programs that update parts of arrays in place, in any order, against NumPy doing it in turn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.effort import calls
from uopc import dtypes
from uopc.backends import detect
from uopc.driver import lower_only
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter
from uopc.passes.analysis.versions import NEW, Spans, Versions, Writers
from uopc.passes.canonicalize.canonicalize import canonicalize
from uopc.passes.contract import Context

N = 8
PART = st.integers(0, N - 2)
# Which array, where the part begins, and of what is read: array, how many versions ago, where.
UPDATE = st.tuples(st.booleans(), PART, st.booleans(), st.integers(0, 2), PART)


def run(updates, apart):
    """The program's arrays and NumPy's after some updates. `apart`: stores to the params
    themselves, which only what reads a version puts in order."""
    params = [uopc.param(name, (N,), dtypes.int32) for name in "ab"]
    versions = [[(p, np.arange(N, dtype="i4") * (10 + 90 * i))] for i, p in enumerate(params)]
    for i, (target, begin, source, ago, place) in enumerate(updates):
        value, data = versions[source][max(-1 - ago, -len(versions[source]))]
        value, data = value[place : place + 2] * 3 + i, data[place : place + 2] * 3 + i
        u, now = versions[target][-1]
        written = now.copy()
        written[begin : begin + 2] = data
        base = params[target] if apart else u
        versions[target].append((u.after(base[begin : begin + 2].store(value)), written))
    got = [v[0][1].copy() for v in versions]
    uopc.compile(tuple(v[-1][0] for v in versions), verify=True)(a=got[0], b=got[1])
    return got, [v[-1][1] for v in versions]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(UPDATE, min_size=1, max_size=6))
def test_updates_in_turn_are_what_numpy_makes_of_them(updates):
    got, wanted = run(updates, apart=False)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_parts_updated_apart_keep_the_order_they_were_found_in():
    parts = [(False, 0, True, 0, 0), (False, 1, True, 0, 2), (False, 1, True, 0, 4)]
    got, wanted = run(parts, apart=True)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_version_does_not_name_what_an_earlier_one_has():
    x = uopc.param("x", (64,))
    for i in range(30):
        x = x.after(x[2 * i : 2 * i + 2].store(x[2 * i + 2 : 2 * i + 4] + 1.0))
    runs = {r.name: r for r in lower_only(x).runs}
    versions = [u for u in runs["rangeify"].after[0].toposort() if u.op is Ops.AFTER]
    assert len(versions) == 30 and all(len(u.src) == 2 for u in versions)


def test_a_reader_waits_for_the_first_of_a_chain_of_updates():
    x = uopc.param("x", (4,))
    versions, seen = Versions(), NEW
    stores = [x.store(x + float(i)) for i in range(5)]
    for s in stores:
        seen = versions.after(s, seen)
    assert all(versions.sees(seen, s) for s in stores)
    beside = x.store(x * 2.0)
    apart = versions.after(beside, NEW)
    both = versions.joined(x.after(*stores), [seen, apart])
    assert versions.sees(both, beside) and not versions.sees(apart, stores[0])
    writers = Writers(versions, [(s, (0.0, 4.0)) for s in (*stores, beside)])
    assert list(writers.following(0, 4, NEW.effects)) == [stores[0], beside]
    assert list(writers.following(0, 4, apart.effects)) == [stores[0]]
    assert list(writers.following(0, 4, seen.effects)) == [beside]
    assert not list(writers.following(0, 4, both.effects))


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=20),
    st.integers(0, 20), st.integers(0, 25), st.integers(1, 9),
)  # fmt: skip
def test_the_first_span_that_meets_another(pairs, place, begin, length):
    spans = [(float(a), float(a + n)) for a, n in pairs]
    met = [i for i, (a, b) in enumerate(spans) if i >= place and a < begin + length and begin < b]
    assert Spans(spans).first(place, begin, begin + length) == (met[0] if met else None)


# ---------------------------------------------------------------- nested and needless stores
def kernels(graph, **arrays):
    """Compiled, it does what the interpreter does; the number of kernels."""
    outputs = graph if isinstance(graph, tuple) else (graph,)
    want = {name: a.copy() for name, a in arrays.items()}
    expected = interpreter.evaluate(list(outputs), want)
    for optimize in (True, False):
        got = {name: a.copy() for name, a in arrays.items()}
        out = uopc.compile(outputs, verify=True, optimize=optimize)(**got)
        for a, b in zip(out, expected, strict=True):
            np.testing.assert_array_equal(a, b)
        for name, a in got.items():
            np.testing.assert_array_equal(a, want[name])
    return len(lower_only(outputs).calls)


X, B = uopc.param("x", (4,)), uopc.param("b", (4,))
HELD = np.arange(4, dtype="f4"), np.arange(4, dtype="f4") * 10 + 5


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        (X.assign(X.assign(B + 1)), 1),
        (X.assign(X.assign(B) * 2), 2),
        (X.assign(X.assign((B + 1).contiguous()) * 2), 3),
        (X.assign(X.assign((B + 1).contiguous()).contiguous()), 3),
        (X.assign(X.assign(X.assign(B + 1))), 1),
        (X.assign(B).assign(B), 1),
        (X.assign(B + 1).assign(B + 1).assign(B + 1), 1),
        ((X.assign(B), X.assign(B)), 2),  # the second output is a copy
        (X.assign(B).assign(X), 3),
        (X[1:3].assign(B[1:3]).assign(B[1:3]), 2),
    ],
)
def test_nested_and_repeated_stores(graph, count):
    assert kernels(graph, x=HELD[0], b=HELD[1]) <= count


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[1:3], lambda a: a.flip(0)[2:]])
def test_a_store_of_what_is_there_is_no_kernel(view):
    part = view(X)
    assert kernels(X.after(part.store(part)), x=HELD[0]) == 0
    assert kernels(X.assign(X), x=HELD[0]) == 0
    assert kernels((X.assign(X), B.assign(X * 2)), x=HELD[0], b=HELD[1]) == 1


def test_a_store_of_an_old_value_is_a_kernel():
    assert kernels(X.assign(B).assign(X * 1), x=HELD[0], b=HELD[1]) >= 2


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint8, dtypes.uint16, dtypes.float64])
@pytest.mark.parametrize(
    "view", [lambda a: a, lambda a: a[1:], lambda a: a.flip(0), lambda a: a[::2], lambda a: a[1:1]]
)
def test_a_store_to_a_bitcast_view(dtype, view):
    target = view(X.bitcast(dtype))
    count = int(np.prod(target.shape))
    new = np.arange(100, 100 + count).astype(dtype.numpy)
    assert kernels(target.assign(new), x=HELD[0]) <= 2
    assert kernels(X.after(target.store(uopc.constant(new))), x=HELD[0]) <= 1


def test_a_store_to_a_bitcast_of_a_part():
    rows = uopc.param("x", (3, 4), dtypes.int32)
    held = np.arange(12, dtype="i4").reshape(3, 4)
    target = rows[1:, 2:].bitcast(dtypes.int16).transpose()[1:3]
    assert kernels(target.assign(target * 3 + 1), x=held) <= 3
    assert kernels(rows.bitcast(dtypes.float32)[2].assign(np.ones(4, "f4")), x=held) <= 2


def test_a_chain_of_stores_to_bitcast_views_is_walked_once():
    def calls_for(n):
        x = uopc.param("x", (4 * n + 4,), dtypes.int32).bitcast(dtypes.float32)
        for i in range(0, 4 * n, 4):
            x = x.after(x[i + 4 : i + 8].store(x[i : i + 4] * 0.5))
        graph, context = uopc.UOp.sink(x), Context(detect.host(), True, 1)
        return calls(lambda: canonicalize(graph, context))

    assert calls_for(200) < 4.4 * calls_for(50)
