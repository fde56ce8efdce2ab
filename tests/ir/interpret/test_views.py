"""The interpreter on indices into views of storage."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from uopc.errors import InvalidIR
from uopc.ir.builder import kernel, movement
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.ir.interpret.interpreter import run_kernel
from uopc.tensor import creation

F32 = dtypes.float32
Array = Any


def param(slot: int, size: int) -> UOp:
    return creation.kernel_param(slot, (size,), F32)


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


def test_a_view_of_a_value_goes_to_its_sources() -> None:
    i = kernel.range(4)
    value = at(movement.flip(param(1, 4) + 1.0, (0,)), i)
    out = run(at(param(0, 4), i), value, i, size=4, source=numbers(4))
    np.testing.assert_array_equal(out, [4, 3, 2, 1])
