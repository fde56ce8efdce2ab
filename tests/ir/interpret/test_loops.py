"""The reference interpreter on graphs with loops: kernels, vectors, lists and whole programs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests import effort
from tests.by_hand import F32, I32, INDEX, VOID, at, floats, invalid, param, store, total
from uopc.errors import InvalidIR, UserError, UserTypeError
from uopc.ir.builder import alu, kernel, leaves, operands
from uopc.ir.core import dtypes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop
from uopc.ir.interpret.interpreter import evaluate, run_indexed, run_kernel, run_program
from uopc.ir.interpret.step_order import BlockBuilder, Loop
from uopc.tensor import creation


# ---------------------------------------------------------------- kernels
def matmul_kernel(m: int, n: int, k: int) -> UOp:
    i, j, r = kernel.range(m), kernel.range(n), kernel.range(k)
    product = at(param(1, m * k), i * k + r) * at(param(2, k * n), r * n + j)
    return kernel.sink(kernel.end(store(at(param(0, m * n), i * n + j), total(product, r)), i, j))


@pytest.mark.parametrize("size", [(8, 4, 6), (1, 1, 1), (3, 300, 500), (200, 400, 3)])
def test_a_matrix_product(size: tuple[int, int, int]) -> None:
    """The larger ones are run in pieces."""
    m, n, k = size
    a, b, out = floats(m, k), floats(k, n), np.full((m, n), np.nan, "f4")
    run_kernel(matmul_kernel(m, n, k), [out, a, b])
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


def test_the_end_of_a_range_may_depend_on_another_range() -> None:
    i = kernel.range(8)
    r = kernel.range(i + 1)
    s = kernel.sink(kernel.end(store(at(param(0, 8), i), total(at(param(1, 8), r), r)), i))
    a, out = floats(8), np.zeros(8, "f4")
    run_kernel(s, [out, a])
    np.testing.assert_allclose(out, np.cumsum(a), rtol=1e-5)


def test_a_sum_inside_a_loop_whose_end_depends_on_another() -> None:
    i = kernel.range(8)
    r, q = kernel.range(i + 1), kernel.range(3)
    thrice = total(r.cast(I32), q)
    s = kernel.sink(kernel.end(store(at(param(0, 8, I32), i), total(thrice, r)), i))
    out = np.zeros(8, "i4")
    run_kernel(s, [out])
    assert out.tolist() == [3 * n * (n + 1) // 2 for n in range(8)]


def test_triangular_loops_closed_together() -> None:
    i = kernel.range(6, 0)
    j = kernel.range(i, 1)
    s = kernel.sink(kernel.end(store(at(param(0, 36), i * 6 + j), 1.0), i, j))
    out = np.zeros((6, 6), "f4")
    run_kernel(s, [out])
    np.testing.assert_array_equal(out, np.tril(np.ones((6, 6)), -1))
    count = total(leaves.const(I32, 1), i, j)
    number = np.zeros(1, "i4")
    run_kernel(kernel.sink(store(at(param(0, 1, I32), 0), count)), [number])
    assert number[0] == 15


def test_a_reduce_of_what_does_not_depend_on_its_range() -> None:
    r = kernel.range(5)
    s = kernel.sink(store(at(param(0, 1), 0), total(at(param(1, 1), 0), r)))
    out = np.zeros(1, "f4")
    run_kernel(s, [out, np.array([3.0], "f4")])
    assert out[0] == 15


def test_empty_loops_do_nothing_and_empty_reduces_give_the_identity() -> None:
    n = operands.variable("n", 0, 4)
    i, r = kernel.range(n), kernel.range(n)
    first = kernel.end(store(at(param(0, 1), 0), 7.0), i)
    second = store(at(param(1, 1), 0), total(at(param(2, 4), r), r, op="max"))
    for size, want in ((0, [1.0, -np.inf]), (2, [7.0, 5.0])):
        a, b = np.ones(1, "f4"), np.ones(1, "f4")
        data = [a, b, np.array([5, 4, 3, 9], "f4")]
        run_kernel(kernel.sink(first, second), data, {"n": size})
        assert [a[0], b[0]] == want


def test_one_iteration_sees_what_an_earlier_one_stored() -> None:
    i = kernel.range(7)
    p = param(0, 8)
    s = kernel.sink(kernel.end(store(at(p, i + 1), at(p, i) * 2.0), i))
    a = np.ones(8, "f4")
    run_kernel(s, [a])
    assert a.tolist() == [1, 2, 4, 8, 16, 32, 64, 128]


def test_several_iterations_that_store_to_one_place_add_up() -> None:
    """A histogram: the same place is read and written again and again."""
    i = kernel.range(100)
    bins, data = param(0, 4, I32), param(1, 100, dtypes.int64)
    place = at(bins, at(data, i).cast(INDEX))
    s = kernel.sink(kernel.end(store(place, place + 1), i))
    keys = np.random.default_rng(0).integers(0, 4, 100)
    out = np.zeros(4, "i4")
    run_kernel(s, [out, keys])
    assert out.tolist() == np.bincount(keys, minlength=4).tolist()


def test_the_last_iteration_wins() -> None:
    i, j = kernel.range(4, 0), kernel.range(5, 1)
    s = kernel.sink(kernel.end(store(at(param(0, 5), j), (i * 10 + j).cast(F32)), i, j))
    out = np.zeros(5, "f4")
    run_kernel(s, [out])
    assert out.tolist() == [30, 31, 32, 33, 34]


def test_stores_of_one_loop_that_meet_in_different_iterations() -> None:
    """The second store of iteration i is to the element of the first one of iteration i + 2."""
    i, p = kernel.range(4), param(0, 6)
    first = store(at(p, i), i.cast(F32))
    second = store(at(kernel.after(p, first), i + 2), i.cast(F32) + 10.0)
    out = np.zeros(6, "f4")
    run_kernel(kernel.sink(kernel.end(second, i)), [out])
    assert out.tolist() == [0, 1, 2, 3, 12, 13]
    for space, in_order in ((2, False), (1, True)):
        both = kernel.group(store(at(p, i * space), 1.0), store(at(p, i * space + 1), 2.0))
        sink = kernel.sink(kernel.end(both, i))
        steps = BlockBuilder(sink).program(sink).steps
        assert [step.in_order for step in steps if isinstance(step, Loop)] == [in_order]


def test_updates_in_place_and_swaps() -> None:
    i = kernel.range(5000)
    p, q = param(0, 5000), param(1, 5000)
    a, b = floats(5000), floats(5001)[:5000].copy()
    x, y = a.copy(), b.copy()
    run_kernel(kernel.sink(kernel.end(store(at(p, i), at(p, i) * 2.0), i)), [x])
    np.testing.assert_array_equal(x, a * 2)
    k = kernel.range(8)
    swap = kernel.group(store(at(p, k), at(q, k)), store(at(q, k), at(p, k)))
    x = a.copy()
    run_indexed(kernel.sink(kernel.end(swap, k)), {p: x, q: y})
    np.testing.assert_array_equal(x[:8], b[:8])
    np.testing.assert_array_equal(y[:8], a[:8])


def test_a_register_accumulates_over_a_loop() -> None:
    """out[j] = Σᵢ a[j, i], with the sum kept in a register that each j resets."""
    j, i = kernel.range(3, 0), kernel.range(8, 1)
    acc = creation.buffer((1,), F32, "reg")
    start = store(at(kernel.after(acc, j), 0), 0.0)
    inside = kernel.after(acc, start, i)
    step = kernel.end(store(at(inside, 0), at(inside, 0) + at(param(1, 24), j * 8 + i)), i)
    done = store(at(param(0, 3), j), at(kernel.after(acc, step), 0))
    a, out = floats(3, 8), np.zeros(3, "f4")
    run_kernel(kernel.sink(kernel.end(done, j)), [out, a])
    np.testing.assert_allclose(out, a.sum(1), rtol=1e-5)


def test_a_tile_filled_inside_a_reduce() -> None:
    """A local stage at a loop: each r fills a tile from which its terms are read."""
    i, r, t = kernel.range(4, 0), kernel.range(3, 1), kernel.range(2, 2)
    tile = creation.buffer((2,), F32, "local")
    a, b = param(1, 6), param(2, 8)
    fill = kernel.end(store(at(tile, t), at(a, r * 2 + t) * 10.0), t)
    read = at(kernel.after(tile, fill), i % 2) * at(b, i)
    s = kernel.sink(kernel.end(store(at(param(0, 4), i), total(read, r)), i))
    x, y, out = floats(6), floats(8), np.zeros(4, "f4")
    run_kernel(s, [out, x, y])
    want = [sum(x[k * 2 + n % 2] * 10 * y[n] for k in range(3)) for n in range(4)]
    np.testing.assert_allclose(out, want, rtol=1e-5)


def test_reads_come_before_the_stores_that_they_must_not_see() -> None:
    i, j = kernel.range(4), kernel.range(4)
    p, q = param(0, 4), param(1, 4)
    overwrite = kernel.end(store(at(q, i), 9.0), i)
    copy = kernel.end(store(at(p, j), at(q, j)), j)
    a, b = np.zeros(4, "f4"), np.arange(4, dtype="f4")
    run_indexed(kernel.sink(overwrite, copy), {p: a, q: b})
    assert a.tolist() == [0, 1, 2, 3] and b.tolist() == [9] * 4


def test_each_of_two_loops_may_read_what_the_other_overwrites() -> None:
    i, j = kernel.range(4), kernel.range(4)
    p, q = param(0, 4), param(1, 4)
    first = kernel.end(store(at(p, i), at(q, i)), i)
    second = kernel.end(store(at(q, j), at(p, j)), j)
    a, b = np.array([1, 2, 3, 4], "f4"), np.array([5, 6, 7, 8], "f4")
    run_indexed(kernel.sink(first, second), {p: a, q: b})
    assert a.tolist() == [5, 6, 7, 8] and b.tolist() == [1, 2, 3, 4]


def test_loops_that_update_parts_of_one_storage() -> None:
    """Neither sees the other, each sees its own earlier iterations."""
    i, j = kernel.range(3), kernel.range(3)
    p = param(0, 8)
    low = kernel.end(store(at(p, i + 1), at(p, i) + 1.0), i)
    high = kernel.end(store(at(p, j + 5), at(p, j + 4) * 2.0), j)
    a = np.ones(8, "f4")
    run_kernel(kernel.sink(low, high), [a])
    assert a.tolist() == [1, 2, 3, 4, 1, 2, 4, 8]


def test_one_loop_cannot_read_storage_both_before_and_after_a_store() -> None:
    p, q, i = param(0, 4), param(1, 4), kernel.range(4)
    done = store(at(p, 0), 1.0)
    both = at(kernel.after(p, done), i) + at(p, i)
    sink = kernel.sink(kernel.end(store(at(q, i), both), i))
    with pytest.raises(InvalidIR, match="both before and after a store"):
        run_indexed(sink, {p: floats(4), q: floats(4)})


def test_guarded_accesses_do_not_happen() -> None:
    i = kernel.range(6)
    inside = i < 4
    index = alu.where(inside, i, invalid(INDEX))
    p, q = param(0, 4), param(1, 4)
    read = kernel.sink(kernel.end(store(at(param(0, 6), i), at(q, index)), i))
    out, a = np.ones(6, "f4"), floats(4)
    run_kernel(read, [out, a])
    np.testing.assert_array_equal(out, [*a, 0, 0])
    gated = intern(Ops.LOAD, F32, (at(q, i), inside))
    for target, gate in ((at(p, index), None), (at(p, i), inside)):
        out = np.ones(4, "f4")
        run_kernel(kernel.sink(kernel.end(store(target, gated, gate), i)), [out, a])
        np.testing.assert_array_equal(out, a)


def test_accesses_outside_of_storage_name_the_node() -> None:
    i = kernel.range(5)
    bad_store = kernel.sink(kernel.end(store(at(param(0, 4), i), 1.0), i))
    with pytest.raises(InvalidIR, match=r"store .*: index 4 is outside of arg0, dimension 0 of si"):
        run_kernel(bad_store, [np.zeros(4, "f4")])
    bad_read = kernel.sink(kernel.end(store(at(param(0, 5), i), at(param(1, 4), i - 1)), i))
    with pytest.raises(InvalidIR, match=r"index -1 is outside of arg1"):
        run_kernel(bad_read, [np.zeros(5, "f4"), np.zeros(4, "f4")])


def test_ranges_that_are_not_closed_are_errors() -> None:
    i = kernel.range(5)
    with pytest.raises(InvalidIR, match=r"range .* is never closed"):
        run_kernel(kernel.sink(store(at(param(0, 5), i), 1.0)), [np.zeros(5, "f4")])


def test_buffers_are_checked() -> None:
    i = kernel.range(4)
    s = kernel.sink(kernel.end(store(at(param(0, 4), i), 1.0), i))
    with pytest.raises(UserError, match="expected 4 elements, got 3"):
        run_kernel(s, [np.zeros(3, "f4")])
    with pytest.raises(UserTypeError, match="expected dtype float32"):
        run_kernel(s, [np.zeros(4, "f8")])
    with pytest.raises(UserError, match="contiguous"):
        run_kernel(s, [np.zeros(8, "f4")[::2]])
    with pytest.raises(UserError, match="slot 0 needs an array, but 0 arrays"):
        run_kernel(s, [])
    out = np.zeros((2, 3), "f4")  # any shape with enough elements
    run_kernel(s, [out])
    assert out.ravel().tolist() == [1, 1, 1, 1, 0, 0]


def test_every_place_of_a_launch_runs() -> None:
    lane = intern(Ops.SPECIAL, INDEX, (dim_uop(4),), "lidx0")
    out = np.zeros(4, "f4")
    run_kernel(kernel.sink(store(at(param(0, 4), lane), 1.0)), [out])
    assert out.tolist() == [1, 1, 1, 1]
    one = intern(Ops.SPECIAL, INDEX, (dim_uop(1),), "gidx0")
    out = np.zeros(4, "f4")
    run_kernel(kernel.sink(store(at(param(0, 4), one), 1.0)), [out])
    assert out.tolist() == [1, 0, 0, 0]


# ---------------------------------------------------------------- vectors
F32X4 = F32.vec(4)


def vector_index(storage: UOp, index: UOp) -> UOp:
    return intern(Ops.INDEX, storage.dtype.vec(index.dtype.lanes), (storage, index))


def test_vector_loads_stores_and_lanes() -> None:
    """out[4i:4i+4] = in[4i:4i+4] reversed, times 2; out2[i] = their sum."""
    i = kernel.range(3)
    place = at(param(1, 12), i * 4)
    value = intern(Ops.LOAD, F32X4, (place,))
    lanes = [intern(Ops.LANE, F32, (value,), k) for k in (3, 2, 1, 0)]
    turned = intern(Ops.STACK, F32X4, tuple(lanes))
    doubled = intern(Ops.MUL, F32X4, (turned, leaves.const(F32, 2.0)))
    first = intern(Ops.STORE, VOID, (at(param(0, 12), i * 4), doubled))
    sums = intern(Ops.HREDUCE, F32, (value,), "add")
    second = store(at(param(2, 3), i), sums)
    a, out, out2 = floats(3, 4), np.zeros((3, 4), "f4"), np.zeros(3, "f4")
    run_kernel(kernel.sink(kernel.end(kernel.group(first, second), i)), [out, a, out2])
    np.testing.assert_array_equal(out, a[:, ::-1] * 2)
    np.testing.assert_allclose(out2, a.sum(1), rtol=1e-6)


def test_gathers_masks_and_vector_accumulators() -> None:
    i = kernel.range(3)
    lanes = intern(Ops.LANES, INDEX.vec(4), (), 4)
    strided = intern(Ops.ADD, INDEX.vec(4), (intern(Ops.MUL, INDEX.vec(4), (lanes, i + 1)), i))
    gathered = vector_index(param(1, 12), strided)
    summed = intern(Ops.REDUCE, F32X4, (gathered, i), ReduceArg("add"))
    mask = intern(Ops.CONST, dtypes.bool_.vec(4), (), (True, False, True, True))
    effect = intern(Ops.STORE, VOID, (at(param(0, 4), 0), summed, mask))
    a, out = floats(12), np.zeros(4, "f4")
    run_kernel(kernel.sink(effect), [out, a])
    want = np.array([sum(a[k * (n + 1) + n] for n in range(3)) for k in range(4)], "f4")
    np.testing.assert_allclose(out, np.where([1, 0, 1, 1], want, 0), rtol=1e-5)


# ---------------------------------------------------------------- lists
def sum_list(size: int) -> UOp:
    """out[t] = Σ over r of in[t, r] with a carried register; t is a thread."""
    out, given_, width = param(0, 3), param(1, 24), dim_uop(8)
    zero, one = leaves.const(F32, 0.0), dim_uop(3)
    stop = dim_uop(size)
    t = kernel.range(3, 0, "thread")
    row = t * 8
    r = kernel.range(size, 1)
    carry = intern(Ops.CARRY, F32, (zero, r), 1)
    index = row + r
    place = at(given_, index)
    value = intern(Ops.LOAD, F32, (place,))
    following = intern(Ops.ADD, F32, (carry, value))
    close = intern(Ops.END, VOID, (r, carry, following))
    target = at(out, t)
    effect = intern(Ops.STORE, VOID, (target, carry))
    done = intern(Ops.END, VOID, (t,))
    order = (out, given_, width, zero, one, stop, t, row, r, carry, index, place, value, following)
    return intern(Ops.LINEAR, VOID, (*order, close, target, effect, done))


def test_a_list_with_loops_and_a_register() -> None:
    a, out = floats(3, 8), np.full(3, np.nan, "f4")
    run_kernel(sum_list(8), [out, a])
    np.testing.assert_allclose(out, a.sum(1), rtol=1e-5)
    run_kernel(sum_list(0), [out, a])  # no iteration: the register keeps its first value
    assert out.tolist() == [0, 0, 0]


def test_registers_are_assigned_together() -> None:
    """Fibonacci: (a, b) → (b, a + b); the new b is made of the old a."""
    out, zero, one, count = param(0, 1, I32), leaves.const(I32, 0), leaves.const(I32, 1), 10
    start, end = dim_uop(0), dim_uop(count)
    r = kernel.range(count)
    a = intern(Ops.CARRY, I32, (zero, r), 1)
    b = intern(Ops.CARRY, I32, (one, r), 2)
    c = intern(Ops.ADD, I32, (a, b))
    close = intern(Ops.END, VOID, (r, a, b, b, c))
    target = at(out, 0)
    effect = intern(Ops.STORE, VOID, (target, a))
    nodes = (out, zero, one, start, end, r, a, b, c, close, target, effect)
    result = np.zeros(1, "i4")
    run_kernel(intern(Ops.LINEAR, VOID, nodes), [result])
    assert result[0] == 55


def test_lists_that_are_not_in_order_are_errors() -> None:
    nodes = list(sum_list(8).src)
    swapped = [*nodes[:12], nodes[13], nodes[12], *nodes[14:]]
    with pytest.raises(InvalidIR, match="not computed before"):
        run_kernel(intern(Ops.LINEAR, VOID, tuple(swapped)), [floats(3), floats(3, 8)])
    with pytest.raises(InvalidIR, match="never ended"):
        run_kernel(intern(Ops.LINEAR, VOID, tuple(nodes[:-1])), [floats(3), floats(3, 8)])
    with pytest.raises(InvalidIR, match="innermost"):
        run_kernel(intern(Ops.LINEAR, VOID, (*nodes, nodes[-1])), [floats(3), floats(3, 8)])


# ---------------------------------------------------------------- whole programs
def test_an_indexed_program_reads_what_it_stored() -> None:
    """tmp = in + 1; out = transpose(tmp) * 2, with n rows."""
    n = operands.variable("n", 1, 9)
    given_, tmp = creation.param("in", (n, 3)), creation.buffer((n, 3), F32)
    out = creation.param("result", (3, n))
    i, j, k, m = kernel.range(n, 0), kernel.range(3, 1), kernel.range(3, 0), kernel.range(n, 1)
    first = kernel.end(store(at(tmp, i, j), at(given_, i, j) + 1.0), i, j)
    second = kernel.end(store(at(out, k, m), at(kernel.after(tmp, first), m, k) * 2.0), k, m)
    a, result = floats(5, 3), np.zeros((3, 5), "f4")
    arrays = run_indexed(kernel.sink(second), {given_: a, out: result})
    np.testing.assert_array_equal(result, (a + 1).T * 2)
    assert arrays[tmp].shape == (5, 3)
    np.testing.assert_array_equal(arrays[tmp], a + 1)


def test_missing_arrays_are_errors() -> None:
    p = creation.param("p", (4,))
    with pytest.raises(UserError, match="p got no array"):
        run_indexed(kernel.sink(store(at(p, 0), 1.0)), {})


def test_a_program_of_calls_with_slices_and_variables() -> None:
    n = operands.variable("n", 1, 8)
    i = kernel.range(n)
    body = kernel.sink(kernel.end(store(at(param(0, 8), i), at(param(1, 8), i) + 1.0), i))
    source, tmp = creation.param("source", (2, 8)), creation.buffer((8,), F32)
    second_row = intern(Ops.SLICE, F32, (source,), (8, 8))
    calls = (
        intern(Ops.CALL, VOID, (body, tmp, second_row, n)),
        intern(Ops.CALL, VOID, (body, second_row, tmp, n)),
    )
    a = floats(2, 8)
    want = a.copy()
    want[1, :5] += 1
    want[1, :5] += 1
    arrays = run_program(intern(Ops.LINEAR, VOID, calls), {source: a}, {"n": 5})
    np.testing.assert_array_equal(a, want)
    assert np.isnan(arrays[tmp][5:]).all()


def test_a_slice_of_a_slice_stays_inside_it() -> None:
    """Its size counts from its own begin, up to the end of the slice that it is taken of."""
    source = creation.param("source", (16,))
    outer = intern(Ops.SLICE, F32, (source,), (4, 4))
    inner = intern(Ops.SLICE, F32, (outer,), (2, 8))
    body = kernel.sink(store(at(param(0, 8), 2), 1.0))
    with pytest.raises(UserError, match="expected 8 elements, got 2"):
        call = intern(Ops.LINEAR, VOID, (intern(Ops.CALL, VOID, (body, inner)),))
        run_program(call, {source: floats(16)}, {})


@pytest.mark.slow
def test_a_kernel_that_reads_many_arrays() -> None:
    """Reads are grouped by their storage in one walk."""

    def kernel_of(n: int) -> tuple[UOp, list[np.ndarray]]:
        i = kernel.range(1)
        read = [at(param(k, 1), i) for k in range(1, n + 1)]
        stores = [store(at(param(0, n), i + k), r) for k, r in enumerate(read)]
        body = kernel.sink(kernel.end(intern(Ops.GROUP, VOID, tuple(stores)), i))
        return body, [np.zeros(n, "f4"), *[np.full(1, k, "f4") for k in range(n)]]

    def run(case: tuple[UOp, list[np.ndarray]]) -> None:
        run_kernel(*case)
        assert (case[1][0] == np.arange(len(case[1]) - 1)).all()

    assert effort.grows_less(run, kernel_of(1_000), kernel_of(6_000), 12)


def test_constant_arrays_are_storage() -> None:
    table = operands.constant(np.array([3.0, 1.0, 2.0], "f4"))
    i = kernel.range(3)
    out = creation.buffer((3,), F32)
    arrays = run_indexed(kernel.sink(kernel.end(store(at(out, i), at(table, i) * 2.0), i)), {})
    assert arrays[out].tolist() == [6.0, 2.0, 4.0]


# ---------------------------------------------------------------- the op table
UNARY_RANGE: dict[str, tuple[float, float]] = {"log": (0.1, 9), "log2": (0.1, 9), "sqrt": (0, 9)}


@pytest.mark.parametrize("op", [o for o in Op.all() if o.is_alu], ids=lambda o: o.name)
def test_each_level_gives_an_op_the_same_meaning(op: Op) -> None:
    """Elementwise ops on a tensor, and in a kernel, are one definition."""
    operand: Callable[[int], dtypes.DType] = _operand_types(op)
    arity = op.arity[0]
    rng = np.random.default_rng(7)
    low, high = UNARY_RANGE.get(op.name, (-4, 4))
    types = [operand(k) for k in range(arity)]
    arrays = [rng.uniform(low, high, 16) for _ in types]
    data = {f"p{k}": a.astype(t.numpy) for k, (a, t) in enumerate(zip(arrays, types))}
    out = dtypes.bool_ if op.dtype == "bool" else types[-1]
    whole = intern(op, out, tuple(creation.param(f"p{k}", (16,), t) for k, t in enumerate(types)))
    want = np.asarray(evaluate(whole, data))
    i = kernel.range(16)
    each = intern(op, out, tuple(at(param(k + 1, 16, t), i) for k, t in enumerate(types)))
    got = np.zeros(16, out.numpy)
    run_kernel(
        kernel.sink(kernel.end(store(at(param(0, 16, out), i), each), i)), [got, *data.values()]
    )
    np.testing.assert_array_equal(got, want)


def _operand_types(op: Op) -> Callable[[int], dtypes.DType]:
    if op is Ops.WHERE:
        return lambda k: dtypes.bool_ if k == 0 else F32
    if op is Ops.THREEFRY:
        return lambda k: dtypes.uint64
    bits = (Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR)
    integral = (*bits, Ops.FLOORDIV, Ops.CDIV, Ops.CMOD, Ops.DOT4)
    return lambda k: I32 if op in integral else F32
