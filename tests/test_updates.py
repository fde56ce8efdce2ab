"""Programs that update parts of arrays in place, in any order, against NumPy doing it in turn."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import uopc
from uopc import dtypes
from uopc.driver import lower_only
from uopc.ir.core.ops import Ops
from uopc.passes.analysis.versions import NEW, Spans, Versions

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


@settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much],
)  # fmt: skip
@given(st.lists(UPDATE, min_size=1, max_size=6))
def test_updates_in_turn_are_what_numpy_makes_of_them(updates):
    try:
        got, wanted = run(updates, apart=False)
    except uopc.UserError as error:  # what no copy of a whole value opens
        assert "circular wait" in str(error)
        assume(False)
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


def test_a_chain_of_updates_is_one_chain():
    x = uopc.param("x", (4,))
    versions, seen = Versions(), NEW
    stores = [x.store(x + float(i)) for i in range(5)]
    for s in stores:
        seen = versions.after(s, seen)
    assert [versions.positions[s].chain for s in stores] == [0] * 5
    assert all(versions.sees(seen, s) for s in stores) and len(seen.chains()) == 1
    beside = versions.after(x.store(x * 2.0), NEW)
    both = versions.joined(x.after(*stores), [seen, beside])
    assert len(both.chains()) == 2 and not versions.sees(beside, stores[0])


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=20),
    st.integers(0, 20), st.integers(0, 25), st.integers(1, 9),
)  # fmt: skip
def test_the_first_span_that_meets_another(pairs, place, begin, length):
    spans = [(float(a), float(a + n)) for a, n in pairs]
    met = [i for i, (a, b) in enumerate(spans) if i >= place and a < begin + length and begin < b]
    assert Spans(spans).first(place, begin, begin + length) == (met[0] if met else None)
