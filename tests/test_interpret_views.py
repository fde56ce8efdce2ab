"""The interpreter on indices into views of storage, and on sums too long to be written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uopc.errors import InvalidIR
from uopc.ir.builder import alu as build
from uopc.ir.builder import kernel, movement
from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.interpret import large_reduces as interpret_blocks
from uopc.ir.interpret.constant_sums import path_to_constant, sum_of_constant
from uopc.ir.interpret.interpreter import evaluate, run_kernel
from uopc.tensor import creation as sources

F32, U32 = dtypes.float32, dtypes.uint32
Array = Any


def param(slot: int, size: int) -> UOp:
    return sources.kernel_param(slot, (size,), F32)


def at(storage: UOp, *indices: Any) -> UOp:
    return movement.index(storage, *indices)


def numbers(*shape: int) -> Array:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


# ---------------------------------------------------------------- views
def run(target: UOp, value: UOp, *ranges: UOp, size: int, source: Array) -> Array:
    out = np.full(size, -1, np.float32)
    run_kernel(kernel.sink(kernel.end(kernel.store(target, value), *ranges)), [out, source])
    return out


def test_reads_and_writes_through_movement() -> None:
    i, j = kernel.range(4), kernel.range(6)
    source = movement.flip(movement.permute(movement.reshape(param(1, 24), (6, 4)), (1, 0)), (0,))
    target = movement.reshape(param(0, 24), (4, 6))
    out = run(at(target, i, j), at(source, i, j), i, j, size=24, source=numbers(24))
    np.testing.assert_array_equal(out.reshape(4, 6), numbers(6, 4).T[::-1])


def test_a_row_of_a_view_is_indexed_further() -> None:
    i, j = kernel.range(4), kernel.range(6)
    row = at(movement.reshape(param(1, 24), (4, 6)), i)
    value = at(movement.reshape(row, (2, 3)), j // 3, j % 3)
    out = run(at(param(0, 24), i * 6 + j), value, i, j, size=24, source=numbers(24))
    np.testing.assert_array_equal(out, numbers(24))


def test_a_pad_reads_zero_and_is_not_written() -> None:
    i = kernel.range(6)
    padded = movement.pad(movement.shrink(param(1, 8), ((2, 5),)), ((1, 2),))
    out = run(at(param(0, 6), i), at(padded, i), i, size=6, source=numbers(8))
    np.testing.assert_array_equal(out, [0, 2, 3, 4, 0, 0])
    target = movement.pad(movement.shrink(param(0, 6), ((2, 4),)), ((1, 3),))
    out = run(at(target, i), at(param(1, 8), i), i, size=6, source=numbers(8))
    np.testing.assert_array_equal(out, [-1, -1, 1, 2, -1, -1])


def test_effects_on_the_way_are_kept() -> None:
    i, j = kernel.range(4), kernel.range(4)
    out, a = param(0, 4), param(1, 4)
    first = kernel.end(kernel.store(at(a, i), at(a, i) + 1.0), i)
    seen = movement.reshape(kernel.after(movement.reshape(a, (2, 2)), first), (4,))
    second = kernel.end(kernel.store(at(out, j), at(seen, j)), j)
    arrays = [np.zeros(4, np.float32), numbers(4)]
    run_kernel(kernel.sink(second), arrays)
    np.testing.assert_array_equal(arrays[0], [1, 2, 3, 4])


def test_a_place_outside_of_a_view_is_found() -> None:
    i = kernel.range(8)
    value = at(movement.reshape(param(1, 6), (6, 1)), i, 0)
    with pytest.raises(InvalidIR, match="outside of"):
        run(at(param(0, 8), i), value, i, size=8, source=numbers(6))


def test_a_view_of_a_value_is_not_storage() -> None:
    i = kernel.range(4)
    value = intern(Ops.INDEX, F32, (movement.reshape(at(param(1, 4), i) + 1.0, (1,)), i))
    with pytest.raises(InvalidIR, match="not storage"):
        run(at(param(0, 4), i), value, i, size=4, source=numbers(4))


# ---------------------------------------------------------------- long sums
def raw(op: Any, u: UOp, arg: tuple[int, ...]) -> UOp:
    """A node as it is written, which the builders would fold."""
    return intern(op, u.dtype, (u,), arg)


def triangle(n: int, value: int = 1, dtype: dtypes.DType = U32) -> UOp:
    """1 … n times a value, as the sum of a triangle."""
    u = raw(Ops.EXPAND, build.const(dtype, value), (n,))
    u = raw(Ops.PAD, u, (n - 1, 2 * n - 1))
    u = raw(Ops.EXPAND, raw(Ops.RESHAPE, u, (1, 2 * n - 1)), (n + 1, 2 * n - 1))
    u = raw(Ops.SHRINK, raw(Ops.RESHAPE, u, ((n + 1) * (2 * n - 1),)), (0, 2 * n * n))
    u = raw(Ops.SHRINK, raw(Ops.RESHAPE, u, (n, 2 * n)), (0, 0, n, n))
    u = raw(Ops.PERMUTE, u, (1, 0))
    return intern(Ops.REDUCE, dtype, (u,), ReduceArg("add", (1,)))


@pytest.mark.parametrize("n", [1, 2, 7, 100, 300_000])
def test_an_arange_of_any_length(n: int) -> None:
    np.testing.assert_array_equal(evaluate(triangle(n), {}), np.arange(1, n + 1, dtype=np.uint32))


def test_a_long_sum_wraps() -> None:
    n = 6000
    got = evaluate(triangle(n, 100, dtypes.uint8), {})
    np.testing.assert_array_equal(got, (np.arange(1, n + 1) * 100).astype(np.uint8))


def test_a_long_sum_counts_what_is_there() -> None:
    rows = raw(Ops.EXPAND, build.const(U32, 1), (6000, 6000))
    total = intern(
        Ops.REDUCE, U32, (raw(Ops.SHRINK, rows, (1, 0, 6000, 6000)),), ReduceArg("add", (0,))
    )
    np.testing.assert_array_equal(evaluate(total, {}), np.full(6000, 5999, np.uint32))


def factors(n: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of n elements."""
    divisors = [d for d in range(1, n + 1) if n % d == 0] if n else [0]
    return st.sampled_from(divisors).map(lambda d: (d, n // d if d else 3))


@st.composite
def sums(draw: st.DrawFn) -> UOp:
    """A constant that is moved some times, then summed."""
    u = build.const(dtypes.int32, draw(st.integers(-3, 3)))
    dims: tuple[int, ...] = ()
    for _ in range(draw(st.integers(1, 7))):
        op = draw(st.sampled_from((Ops.RESHAPE, Ops.EXPAND, Ops.PAD, Ops.SHRINK)))
        if op is Ops.RESHAPE:
            dims = arg = draw(factors(math.prod(dims)))
        elif op is Ops.EXPAND:
            wider = [draw(st.integers(0, 4)) if d == 1 else d for d in dims]
            leading = draw(st.lists(st.integers(1, 3), max_size=max(0, 3 - len(dims))))
            dims = arg = (*leading, *wider)
        elif op is Ops.PAD:
            begins = [draw(st.integers(0, 2)) for _ in dims]
            dims = tuple([b + d + draw(st.integers(0, 2)) for b, d in zip(begins, dims)])
            arg = (*begins, *dims)
        else:
            begins = [draw(st.integers(0, d)) for d in dims]
            dims = tuple([draw(st.integers(0, d - b)) for b, d in zip(begins, dims)])
            arg = (*begins, *dims)
        if math.prod(dims) > 5000:
            break
        u = raw(op, u, arg)
    dims = analysis.shape(u)
    for _ in range(draw(st.integers(0, 2))):
        u = raw(Ops.PERMUTE, u, tuple(draw(st.permutations(range(len(dims))))))
    axes = tuple(i for i in range(len(dims)) if draw(st.booleans()))
    return intern(Ops.REDUCE, u.dtype, (u,), ReduceArg("add", axes))


@settings(max_examples=300, deadline=None)
@given(sums())
def test_counting_gives_what_adding_gives(u: UOp) -> None:
    assert path_to_constant(u) is not None
    got = sum_of_constant(u, lambda nodes: [])
    wanted = evaluate(u, {})
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


# ---------------------------------------------------------------- operands that are not made
@pytest.mark.parametrize("most", [1, 7, 50, 1 << 24])
@pytest.mark.parametrize("op", ["add", "max"])
def test_blocks_give_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch, most: int, op: str
) -> None:
    a, b = sources.param("a", (5, 6)), sources.param("b", (6, 7))
    product = movement.reshape(a, (5, 6, 1)) * movement.reshape(b, (1, 6, 7))
    moved = movement.permute(build.where(product < 0.0, product, -product), (2, 1, 0))
    arrays = {"a": numbers(5, 6) - 9.5, "b": numbers(6, 7) - 20.5}
    terms = -np.abs(arrays["a"][:, :, None] * arrays["b"]).transpose(2, 1, 0)
    monkeypatch.setattr(interpret_blocks, "MOST_ELEMENTS", most)
    for axes in ((1,), (0, 2), (0, 1, 2), (2,)):
        u = intern(Ops.REDUCE, F32, (moved,), ReduceArg(op, axes))  # type: ignore[arg-type]
        wanted = terms.sum(axes) if op == "add" else terms.max(axes)
        np.testing.assert_allclose(evaluate(u, arrays), wanted, rtol=1e-5)
        sums, count = interpret_blocks.magnitude(u, {v: arrays_of(v, arrays) for v in below(u)})
        np.testing.assert_allclose(sums, np.abs(terms).sum(axes), rtol=1e-6)
        assert count == math.prod([terms.shape[axis] for axis in axes])


def below(u: UOp) -> list[UOp]:
    return [*interpret_blocks.leaves(u), u.src[0]]


def arrays_of(u: UOp, arrays: dict[str, Array]) -> Array:
    return evaluate(u, {k: a for k, a in arrays.items() if k in names(u)})


def names(u: UOp) -> set[str]:
    return {v.arg.name for v in analysis.toposort(u) if v.op is Ops.PARAM}


def test_a_large_operand_with_missing_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A REDUCE over an element that does not exist does not exist: it reads as 0."""
    a = sources.param("a", (4, 5))
    hole = build.where(a < 3.0, intern(Ops.INVALID, F32), a)
    monkeypatch.setattr(interpret_blocks, "MOST_ELEMENTS", 6)
    u = intern(Ops.REDUCE, F32, (hole,), ReduceArg("add", (1,)))
    rows = numbers(4, 5)
    np.testing.assert_array_equal(evaluate(u, {"a": rows}), [0, *rows.sum(1)[1:]])
