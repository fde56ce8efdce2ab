"""Accesses inside and outside of storage: verdicts, the error, and z3 as the judge."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.graphs import graphs
from uopc.driver import lower_only
from uopc.errors import InvalidIR
from uopc.ir.builder import index_maps, kernel, leaves
from uopc.ir.builder.operands import variable
from uopc.ir.core import dtypes
from uopc.ir.core.args import RangeArg
from uopc.ir.core.levels import KERNEL, LINEAR, SCALAR
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.ir.verify.in_bounds import Verdict, accesses, verify_bounds
from uopc.ir.verify.verifier import verify
from uopc.tensor import creation

INSIDE, OUTSIDE, NOT_PROVED = Verdict.INSIDE, Verdict.OUTSIDE, Verdict.NOT_PROVED


def loop(n, axis=0):
    return intern(Ops.RANGE, dtypes.index, (dim_uop(n),), RangeArg((axis,)))


def op(op_, *src):
    """The node as it is."""
    return intern(op_, dtypes.bool_ if op_.dtype == "bool" else src[0].dtype, src)


def number(n):
    return affine.const(n)


def read(index, size=16, guard=None, dtype=dtypes.int32):
    """An INDEX of a param, under a guard."""
    storage = creation.kernel_param(1, (size,), dtype)
    at = (index,) if guard is None else index_maps.gated((index,), guard)
    return intern(Ops.INDEX, dtype, (storage, *at))


def verdict(address):
    (found,) = [a for a in accesses(address.sink()) if a.address is address]
    return found.verdict


R, J, V = loop(100), loop(8, 1), variable("v", -5, 80)
LOADED = read(loop(16), guard=None)


@pytest.mark.parametrize(
    ("index", "guard", "want"),
    [
        (J * 2, None, INSIDE),
        (J * 2 + 2, None, OUTSIDE),
        (R % 16, None, INSIDE),
        (R % 20, None, OUTSIDE),
        (op(Ops.AND, R, number(15)), None, INSIDE),
        (op(Ops.AND, R, number(31)), None, OUTSIDE),
        (op(Ops.AND, R, number(-4)), R < 16, INSIDE),
        (op(Ops.SHL, J, number(1)), None, INSIDE),
        (op(Ops.SHL, J, number(2)), None, OUTSIDE),
        (op(Ops.SHR, R, number(3)), None, INSIDE),
        (V, (V >= 0) & (V < 16), INSIDE),
        (V, V < 16, OUTSIDE),
        (V, V < 20, OUTSIDE),
        (V + J, (V + J < 16) & (V > -1), INSIDE),
        ((V + J) * 3 - 10, (V + J < 8) & (V + J > 3), INSIDE),
        ((V + J) * 3 - 10, (V + J < 10) & (V + J > 3), OUTSIDE),
        ((R + 3) // 4, (R < 50) & (R % 5).ne(0), INSIDE),
        (R - 644, (R > 643) & (R < 653), INSIDE),
        (R, R.eq(7), INSIDE),
        (R, -(R.ne(0)), INSIDE),
        (LOADED.cast(dtypes.index), None, NOT_PROVED),
        (LOADED.cast(dtypes.index), (LOADED >= 0) & (LOADED < 16), INSIDE),
        (J * 2, LOADED.ne(0), INSIDE),
        (R, LOADED.ne(0), NOT_PROVED),
    ],
)
def test_verdicts(index, guard, want):
    assert verdict(read(index, guard=guard)) is want


def test_sizes_may_be_symbolic():
    n = variable("n", 1, 50)
    i = loop(n, 3)
    assert verdict(read(i, n)) is INSIDE
    assert verdict(read(n - i - 1, n)) is INSIDE
    assert verdict(read(i + 1, n)) is OUTSIDE
    assert verdict(read(i + 1, n, i + 1 < n)) is INSIDE
    assert verdict(read(i * 2 + 1, n * 2)) is INSIDE


def test_a_loop_whose_length_depends_on_another():
    chunk = loop(8, 4)
    row = loop((number(9) - chunk * 2).minimum(2), 5)
    assert verdict(read(chunk * 2 + row, 9)) is INSIDE
    assert verdict(read(chunk * 2 + row, 8)) is OUTSIDE


def test_a_loop_of_one_turn_says_that_it_runs():
    n = variable("n", 0, 9)
    assert verdict(read(loop(n // 8, 8) * 8 + 7, n)) is INSIDE
    assert verdict(read(loop(n // 8, 8) * 8 + 8, n)) is OUTSIDE


def test_a_loop_that_never_runs_reads_nothing():
    assert verdict(read(loop(0, 6), 0)) is INSIDE


def test_a_wide_access_reads_its_last_lane():
    storage = creation.kernel_param(1, (16,), dtypes.float32)
    for first, want in (J + J, INSIDE), (J + J + 1, OUTSIDE):
        wide = intern(Ops.INDEX, dtypes.float32.vec(2), (storage, first))
        assert verdict(wide) is want


def test_a_gate_counts_and_a_store_needs_one_too():
    out = creation.kernel_param(0, (16,), dtypes.int32)
    address = intern(Ops.INDEX, dtypes.int32, (out, R))
    value = leaves.const(dtypes.int32, 1)
    for gates, want in ((R < 16,), INSIDE), ((), OUTSIDE):
        store = intern(Ops.STORE, dtypes.void, (address, value, *gates))
        (found,) = accesses(kernel.sink(kernel.end(store, R)))
        assert found.verdict is want


def test_a_loop_is_around_its_own_accesses_alone():
    """Two stores to one place, of which the first is in a loop that may have no turn."""
    n, row = variable("n", 0, 9), loop(4, 9)
    target = creation.kernel_param(0, (16,), dtypes.int32)
    never, some = loop(0, 10), loop((n + 3) // 4, 10)
    for empty, at in (never, row + 99), (some, (n - 1) * (row + 1) // 4):
        address = intern(Ops.INDEX, dtypes.int32, (target, at))
        inner = intern(Ops.STORE, dtypes.void, (address, read(empty)))
        outer = intern(Ops.STORE, dtypes.void, (address, leaves.const(dtypes.int32, 1)))
        stores = kernel.end(inner, empty, row), kernel.end(outer, row)
        assert {a.verdict for a in accesses(kernel.sink(stores[0]))} == {INSIDE}
        for order in stores, stores[::-1]:
            both = kernel.sink(*order)
            assert {a.user: a.verdict for a in accesses(both)}[outer] is OUTSIDE
            with pytest.raises(InvalidIR, match="in-bounds"):
                uopc.compile(both)


def test_a_statement_of_a_list_is_looked_at_where_it_stands():
    """A register is read after its loop; the same store stands in a branch, and after it."""
    listed = uopc.parse("""
        linear name=total opts=() {
          %1 = param "" slot=0 : f32[16]
          %2 = const 16 : index
          %3 = index %1, %2 : f32
          %4 = const 0 : index
          %5 = range %4 axis=1 kind=reduce : index
            %6 = const 0.0 : f32
            %7 = carry %6, %5 id=1 : f32
            store %3, %7
          end %5, %7, %7
          store %3, %7
        }""")
    branch = uopc.parse("""
        linear name=branch opts=() {
          %1 = param "" slot=0 : f32[16]
          %2 = variable n low=0 high=99 : index
          %3 = index %1, %2 : f32
          %4 = const 16 : index
          %5 = cmplt %2, %4 : bool
          %6 = const 0.0 : f32
          %7 = if %5 id=1
            store %3, %6
          endif %7
          store %3, %6
        }""")
    for graph in listed, branch:
        verify(graph, LINEAR)
        assert [a.verdict for a in accesses(graph)] == [INSIDE, OUTSIDE]


def test_the_error_names_the_access():
    storage = creation.kernel_param(0, (8,), dtypes.int32)
    address = intern(Ops.INDEX, dtypes.int32, (storage, J + 1))
    store = intern(Ops.STORE, dtypes.void, (address, leaves.const(dtypes.int32, 1)))
    bad = kernel.sink(kernel.end(store, J))
    message = r"store of param\[8\] at \(r1\+1\), which is 1 to 8: outside where r1 = 7"
    with pytest.raises(InvalidIR, match=message):
        verify_bounds(bad, "input")
    with pytest.raises(InvalidIR, match="in-bounds"):
        uopc.compile(bad, verify=True)


# ---------------------------------------------------------------- what uopc makes
@settings(max_examples=100, deadline=None)
@given(graphs())
def test_no_kernel_of_ours_is_outside(case):
    outputs, _ = case
    for optimize in (True, False):
        for run in lower_only(outputs, optimize=optimize, verify=False).runs:
            for k in run.after if run.level & SCALAR else ():
                left = verify_bounds(k, run.name)
                proved = run.level & KERNEL  # later, divisions are taken apart
                assert not proved or all(_reads_memory(a.index) for a in left), str(left[0])


def _reads_memory(index):
    return any(u.op in (Ops.INDEX, Ops.LOAD) for u in index.toposort())


# ---------------------------------------------------------------- z3
_A, _B = loop(12, 7), variable("b", -6, 9)
_LEAVES = st.sampled_from([_A, _B]) | st.integers(-9, 20).map(number)


def _grown(below):
    divisor = st.sampled_from([2, 3, 4, 8]).map(number)
    plain = st.tuples(st.sampled_from([Ops.ADD, Ops.SUB, Ops.ADD]), below, below)
    scaled = st.tuples(st.just(Ops.MUL), below, st.integers(-3, 4).map(number))
    divided = st.tuples(st.sampled_from([Ops.FLOORDIV, Ops.FLOORMOD]), below, divisor)
    return (plain | scaled | divided).map(lambda t: op(*t))


_VALUES = st.recursive(_LEAVES, _grown, max_leaves=5)
_CLAUSE = st.tuples(st.sampled_from([Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE]), _VALUES, _VALUES)


def _z3(z3, u, known):
    if u not in known:
        s = [_z3(z3, v, known) for v in u.src] if u.op is not Ops.RANGE else []
        known[u] = {
            Ops.CONST: lambda: z3.IntVal(u.arg) if u.dtype is dtypes.index else z3.BoolVal(u.arg),
            Ops.RANGE: lambda: z3.Int("a"), Ops.VARIABLE: lambda: z3.Int("b"),
            Ops.ADD: lambda: s[0] + s[1], Ops.SUB: lambda: s[0] - s[1],
            Ops.MUL: lambda: s[0] * s[1], Ops.FLOORDIV: lambda: s[0] / s[1],
            Ops.FLOORMOD: lambda: s[0] % s[1], Ops.CMPLT: lambda: s[0] < s[1],
            Ops.CMPLE: lambda: s[0] <= s[1], Ops.CMPEQ: lambda: s[0] == s[1],
            Ops.CMPNE: lambda: s[0] != s[1], Ops.AND: lambda: z3.And(s[0], s[1]),
        }[u.op]()  # fmt: skip
    return known[u]


@settings(max_examples=100, deadline=None)
@given(_VALUES, st.lists(_CLAUSE, max_size=3), st.integers(1, 40))
def test_z3_agrees(index, parts, size):
    z3 = pytest.importorskip("z3", reason="no z3: see the extra `test-full`")
    guard = None
    for part in parts:
        clause = op(*part)
        guard = clause if guard is None else op(Ops.AND, guard, clause)
    found = verdict(read(index, size, guard))
    known = {}
    solver = z3.Solver()
    a, b, x = z3.Int("a"), z3.Int("b"), _z3(z3, index, known)
    solver.add(0 <= a, a < 12, -6 <= b, b <= 9, z3.Or(x < 0, x >= size))  # noqa: SIM300
    if guard is not None:
        solver.add(_z3(z3, guard, known))
    outside = solver.check() == z3.sat
    assert not (found is INSIDE and outside)
    assert not (found is OUTSIDE and not outside)
