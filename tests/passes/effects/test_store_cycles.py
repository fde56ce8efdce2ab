"""Stores that overwrite what others still read: one value is copied, and everything comes out."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc import dtypes
from uopc.driver import lower_only
from uopc.ir.builder import kernel, movement
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.interpret import interpreter
from uopc.passes.effects.versions import Versions
from uopc.tensor import creation

N = 6


def params(count):
    return [uopc.param(f"p{i}", (N,), dtypes.int32) for i in range(count)]


def arrays(count):
    random = np.random.default_rng(count)
    return {f"p{i}": random.integers(-50, 50, N, np.int32) for i in range(count)}


def check(stores, count):
    """Compiled, it does what the interpreter does; the number of kernels."""
    got, wanted = arrays(count), arrays(count)
    out = uopc.compile(tuple(stores), verify=True)(**got)
    expected = interpreter.evaluate(list(stores), wanted)
    for a, b in zip(out, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    for name, a in got.items():
        np.testing.assert_array_equal(a, wanted[name])
    return len(lower_only(tuple(stores)).calls)


def test_two_params_swap():
    a, b = params(2)
    assert check((a.assign(b * 1), b.assign(a * 1)), 2) == 3


def test_two_params_change_places_with_arithmetic():
    a, b = params(2)
    assert check((a.assign(a + b), b.assign(a - b)), 2) == 3


@pytest.mark.parametrize("count", [3, 5])
def test_a_ring_needs_one_copy(count):
    p = params(count)
    stores = [a.assign(b * 2 + a) for a, b in zip(p, [*p[1:], p[0]], strict=True)]
    assert check(stores, count) == count + 1


def test_every_pair_in_a_clique_is_opened():
    p = params(4)
    total = p[0] + p[1] + p[2] + p[3]
    assert check([a.assign(total + i) for i, a in enumerate(p)], 4) <= 4 + 3


def test_a_reduce_of_each_other():
    a, b = params(2)
    assert check((a.assign((a - b).sum() * a), b.assign((b * a).sum() - b)), 2) <= 5


def test_parts_that_do_not_meet_need_no_copy():
    a, b = params(2)
    stores = a[0:2].assign(b[2:4] * 2), b[0:2].assign(a[2:4] * 3)
    assert check(stores, 2) == 2 + 2  # what the assigned parts show is copied out
    stores = a[0:2].assign(b[1:3] * 2), b[0:2].assign(a[1:3] * 3)
    assert check(stores, 2) == 2 + 2 + 1


def test_stores_one_after_another_need_no_copy():
    a, b = params(2)
    first = a.assign(a + b)
    assert check((first, b.assign(first * 2)), 2) == 2


def test_the_reason_is_on_the_stage():
    a, b = params(2)
    program = uopc.compile((a.assign(b * 1), b.assign(a * 1)))
    assert "several stores overwrite each other's operands" in program.stages["place-stages"]


# ---------------------------------------------------------------- kernels written by hand
def copying(adds):
    """out[i] = a[i], or out[i] += a[i]."""
    out, a = [creation.kernel_param(slot, (N,), dtypes.int32) for slot in range(2)]
    i = kernel.range(N, 0)
    value = movement.index(a, i)
    value = movement.index(out, i) + value if adds else value
    return kernel.sink(kernel.end(kernel.store(movement.index(out, i), value), i))


def called(adds, *args):
    return intern(Ops.CALL, dtypes.void, (copying(adds), *args))


def test_two_kernels_that_only_write_do_not_wait_for_each_other():
    a, b, c = params(3)
    shown = intern(Ops.AFTER, a.dtype, (a, called(False, a, b), called(False, a, c)))
    check((shown,), 3)


def test_two_kernels_that_change_the_same_version_are_an_error():
    a, b, c = params(3)
    shown = intern(Ops.AFTER, a.dtype, (a, called(True, a, b), called(True, a, c)))
    with pytest.raises(uopc.UserError, match=r"circular wait.*p0.*copy"):
        uopc.compile((shown,))


def test_a_kernel_on_two_changed_arrays_does_not_wait_for_itself():
    a, b, c, d = params(4)
    c, d = c.assign(c + 1), d.assign(d + 2)
    shown = intern(Ops.AFTER, c.dtype, (c, called(True, c, d)))
    assert check((shown, a.assign(b * 1), b.assign(a * 1)), 4) == 6


def test_stored_values_that_calls_read_are_not_counted_in_versions(monkeypatch):
    numbered, after = [], Versions.after

    def watched(self, *args):
        made = after(self, *args)
        numbered.append(len(self.numbers))
        return made

    monkeypatch.setattr(Versions, "after", watched)
    a, b = params(2)
    for i in range(20):
        stored = (b * (i + 2)).contiguous()
        a = intern(Ops.AFTER, a.dtype, (a, called(True, a, stored)))
    check((a,), 2)
    assert len(numbered) >= 40 and max(numbered) == 20


def test_a_kernel_that_accumulates_is_not_given_lanes():
    """Rows are summed in one register: the rows cannot be lanes, and the last read is the sum."""
    out, a = [creation.kernel_param(slot, (n,), dtypes.int32) for slot, n in ((0, 16), (1, 256))]
    i, j = kernel.range(16, 0), kernel.range(16, 1)
    acc = kernel.after(creation.buffer((1,), dtypes.int32, "reg"), i)
    acc = kernel.after(acc, kernel.store(movement.index(acc, 0), 0))
    inside = movement.index(kernel.after(acc, j), 0)
    read = movement.index(a, i * 16 + j)
    loop = kernel.end(kernel.store(movement.index(acc, 0), inside + read), j)
    value = movement.index(kernel.after(acc, loop), 0)
    graph = kernel.sink(kernel.end(kernel.store(movement.index(out, i), value), i))
    rows = np.arange(256, dtype=np.int32)
    for run in (uopc.compile(graph), lambda *x: interpreter.run_kernel(graph, x)):
        result = np.zeros(16, np.int32)
        run(result, rows)
        np.testing.assert_array_equal(result, rows.reshape(16, 16).sum(1))


# ---------------------------------------------------------------- what is still read is copied
def test_the_old_and_the_new_value_in_one_output():
    (a,) = params(1)
    assert check((a.assign(a + 1) + a,), 1) == 3  # a copy of the old value, the store, the sum


def test_only_the_window_that_is_still_read_is_copied():
    (a,) = params(1)
    graph = (a.assign(a + 1)[0:2] + a[4:6],)
    assert check(graph, 1) == 3
    calls = lower_only(graph).calls
    assert min(args[0].arg.dims for _, args in calls if args[0].op is Ops.BUFFER) == (2,)


def test_a_copy_is_shared_by_those_that_still_read():
    a, b, c = params(3)
    new = a.assign(a + 1)
    assert check((new, b.assign(new * a), c.assign(new - a)), 3) == 4


def test_an_assigned_value_that_reads_what_its_own_store_overwrites():
    a, b = params(2)
    assert check((a.assign(a.assign(b) * 2 + a.flip(0)),), 2) <= 4


@pytest.mark.parametrize("part", [slice(0, 6), slice(1, 4)])
def test_two_assignments_to_one_version_are_two_histories(part):
    a, b = params(2)
    one, two = a[part].assign(b[part]), a[part].assign(b[part] * 2)
    assert check((one + two, a), 2) <= 10
    whole = a.after(one.src[1]).flip(0) - a.after(two.src[1])
    assert check((whole,), 2) <= 8


def test_a_version_that_memory_never_shows_is_read_by_several():
    a, b = params(2)
    one, two = a[0:4].assign(b[1:5]), a[2:6].assign(b[0:4] * 3)
    versions = [a.after(v.src[1]) for v in (one, two)]
    outputs = (versions[0] * versions[1], versions[1].sum() + versions[0], versions[0])
    check(outputs, 2)


def test_the_error_names_what_is_overwritten_and_the_line():
    a, b, c = params(3)
    shown = intern(Ops.AFTER, a.dtype, (a, called(True, a, b), called(True, a, c)))
    with pytest.raises(uopc.UserError) as caught:
        uopc.compile((shown,))
    assert "overwrite p0," in str(caught.value) and "p1" not in str(caught.value)


@pytest.mark.parametrize("optimize", [True, False])
def test_two_histories_and_a_third_of_another_part(optimize):
    """Memory shows the stores as found, so a version with only a later one is made apart."""
    b = uopc.param("b", (8,), uopc.dtypes.int32)
    first = b[1:5].assign(b[3:7] + 7)
    other = b[5:7].assign(uopc.full((2,), 37, uopc.dtypes.int32))
    read = b.after(other.src[1])[2:6]
    result = first.assign(first.assign(first + read) + first)
    before = np.array([67, 49, 66, 44, 9, 82, 62, 16], np.int32)
    seen, array = before.copy(), before.copy()
    (want,), _ = interpreter.evaluate_with_effects([result], {"b": seen})
    got = uopc.compile(result, optimize=optimize)(array)
    old = before[3:7] + 7
    np.testing.assert_array_equal(want, old + [66, 44, 9, 37] + old)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(array, seen)


@pytest.mark.parametrize("optimize", [True, False])
def test_writes_of_precompiled_functions_are_histories_too(optimize):
    """A call got copies of what it should write; a history without a STORE was an IndexError."""
    one = uopc.function(lambda a, w: a.assign(w), precompile=True)
    part = uopc.function(lambda a, w: a[1:4].assign(w[1:4]), precompile=True)
    two = uopc.function(lambda a, b, w: (a.assign(w), b.assign(w * 2)), precompile=True)
    a, b = params(2)
    x, y = arrays(2).values()
    cases = [  # outputs, their values, a and b afterwards
        ([a.assign(a + 1), one(a, a + 1)], [x + 1, x + 1], x + 1, y),
        ([one(a, a + 1), a.assign(b)], [x + 1, y], y, y),
        ([a[1:2].assign(b[1:2]), one(a, a + 1)], [y[1:2], x + 1], x + 1, y),
        ([one(a, a.flip(0)), one(a, b)], [x[::-1], y], y, y),
        ([one(a, b) + 1, one(a, a + b) * a], [y + 1, (x + y) * x], x + y, y),
        ([part(a, b), part(a, a.flip(0))], [y[1:4], x[::-1][1:4]], None, y),
        ([*two(a, b, a + b), a.assign(b)], [x + y, 2 * (x + y), y], y, 2 * (x + y)),
        ([*two(a, b, a + b), b.assign(a)], [x + y, 2 * (x + y), x], x + y, x),
        ([*two(a, b, a), *two(b, a, b)], [x, 2 * x, y, 2 * y], 2 * y, y),
    ]
    for outputs, values, last_a, last_b in cases:
        given = arrays(2)
        f = uopc.compile(outputs, optimize=optimize, inputs=(a, b))
        for got, want in zip(f(**given), values, strict=True):
            np.testing.assert_array_equal(got, want)
        if last_a is None:
            last_a = np.concatenate([x[:1], x[::-1][1:4], x[4:]])
        np.testing.assert_array_equal(given["p0"], last_a)
        np.testing.assert_array_equal(given["p1"], last_b)


VERSION_SHOWN_AND_WRITTEN = """
%1 = variable n low=2 high=7 : index
%2 = param a : i32[%1]
%3 = bitcast %2 : u32[%1]
%4 = bitcast %3 : i32[%1]
%5 = flip %2 (0,) : i32[%1]
%6 = xor %5, %5 : i32[%1]
%7 = store %2, %6
%8 = after %2, %7 : i32[%1]
%9 = shrink %8 begin=(0,) size=(1,) : i32[1]
%10 = store %9, %9
%11 = after %9, %10 : i32[1]
%12 = bitcast %11 : u32[1]
%13 = bitcast %12 : i32[1]
%14 = mul %13, 3:i32 : i32[1]
%15 = mul %8, 3:i32 : i32[%1]
%16 = sub %15, %2 : i32[%1]
%17 = store %2, %16
%18 = after %2, %17 : i32[%1]
%19 = flip %8 (0,) : i32[%1]
%20 = flip %19 (0,) : i32[%1]
%21 = add %20, %8 : i32[%1]
%22 = store %18, %21
%23 = after %2, %22 : i32[%1]
%24 = flip %18 (0,) : i32[%1]
%25 = add %18, %24 : i32[%1]
%26 = mul %25, 3:i32 : i32[%1]
%27 = after %18, %22 : i32[%1]
%28 = flip %27 (0,) : i32[%1]
%29 = sub %26, %28 : i32[%1]
%30 = store %23, %29
%31 = after %23, %30 : i32[%1]
%32 = shrink %31 begin=(1,) size=(1,) : i32[1]
%33 = sub %14, %32 : i32[1]
sink %4, %33, %23, %31
"""


def test_a_version_that_is_shown_apart_is_still_written_in_place():
    """The store after it went to the storage of the copy, and the array kept an older version."""
    f = uopc.compile(uopc.parse(VERSION_SHOWN_AND_WRITTEN))
    a = np.array([85, 39, 83], np.int32)
    old, part, zeros, last = f(a)
    np.testing.assert_array_equal(last, [-504, -234, -504])
    np.testing.assert_array_equal(a, last)
    assert zeros.tolist() == [0, 0, 0] and part.tolist() == [234]
    assert old.tolist() == [85, 39, 83]


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("n", [3, 64])
def test_a_store_of_pairs_that_are_read_as_one_element(n: int, optimize: bool) -> None:
    """Element i of the value reads elements 2 i and 2 i + 1 of what is overwritten."""
    x = uopc.param("x", (2 * n,), dtypes.uint16)
    pairs = x.bitcast(dtypes.uint32)
    stored = x[n:].assign((pairs >> 8).cast(dtypes.uint16))
    a = np.arange(2 * n, dtype=np.uint16) * 257
    wanted = (a.view(np.uint32) >> 8).astype(np.uint16)
    got = uopc.compile(stored, optimize=optimize, threads=1)(a)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(a[n:], wanted)
