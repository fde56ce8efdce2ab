"""Habits of NumPy that would give wrong numbers: an error, or the right number."""

import mmap
import operator

import numpy as np
import pytest

import uopc
from uopc import dtypes

X = np.float32([0, 1, 2])


def param():
    return uopc.param("x", (3,))


# ---------------------------------------------------------------- identity where a value belongs
def test_a_condition_by_identity_is_refused():
    x = param()
    for condition in (x == 0, x != 0, x == x):
        with pytest.raises(uopc.UserError, match=r"`==` and `!=` compare UOps as objects"):
            uopc.where(condition, 9, x)
    np.testing.assert_array_equal(uopc.compile(uopc.where(x.eq(0), 9, x))(X), [9, 1, 2])


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_a_mask_by_identity_is_refused(name):
    x, join = param(), getattr(operator, name)
    for pair in ((x > 0, x == 2), (x != 2, x > 0)):
        with pytest.raises(uopc.UserError, match=r"a Python bool beside a UOp is refused"):
            join(*pair)


@pytest.mark.parametrize("name", ["mul", "add", "sub", "truediv", "floordiv", "mod", "pow", "lt"])
def test_a_number_by_identity_is_refused(name):
    x, combine = param(), getattr(operator, name)
    for pair in ((x, x == 2), (x == 2, x)):
        with pytest.raises(uopc.UserError, match=r"a Python bool beside a UOp is refused"):
            combine(*pair)


def test_bools_are_values_where_no_comparison_can_be_meant():
    x = param()
    flag = uopc.compile(uopc.where(x > 0, True, False).eq(True))
    np.testing.assert_array_equal(flag(X), X > 0)
    np.testing.assert_array_equal(uopc.compile((x > 0) & uopc.constant(True))(X), X > 0)


# ---------------------------------------------------------------- arrays that change
def test_an_array_is_copied_when_it_is_captured():
    a = np.arange(100, dtype=np.float32)
    graph = uopc.constant(a) * 2
    a[:] = -1
    f = uopc.compile(graph + param()[0])
    a[:] = -2
    np.testing.assert_array_equal(f(X), np.arange(100, dtype=np.float32) * 2)
    assert uopc.constant(np.arange(100, dtype=np.float32)) * 2 is graph


def test_an_operand_is_copied_too():
    a, x = np.ones(3, np.float32), param()
    f = uopc.compile(x + a)
    a[:] = 7
    np.testing.assert_array_equal(f(X), X + 1)


@pytest.mark.parametrize("view", [np.s_[:], np.s_[::2], np.s_[3:50]])
def test_views_that_cannot_be_written_are_copied_if_their_base_can(view):
    base = np.arange(64, dtype=np.float64)
    seen = base[view]
    seen.flags.writeable = False
    graph, expected = uopc.constant(seen), seen.copy()
    base[:] = 0
    np.testing.assert_array_equal(uopc.compile(graph)(), expected)


def test_arrays_that_nobody_can_write_are_not_copied(tmp_path):
    kept = np.arange(65, dtype=np.float64)
    kept.flags.writeable = False
    assert np.shares_memory(uopc.constant(kept).arg.array, kept)
    data = np.frombuffer(kept.tobytes() * 2)  # bytes
    assert np.shares_memory(uopc.constant(data).arg.array, data)
    np.save(tmp_path / "a.npy", np.arange(99))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert np.shares_memory(uopc.constant(mapped).arg.array, mapped)


def test_memory_that_others_may_write_is_copied():
    with mmap.mmap(-1, 4096) as memory:
        a = np.frombuffer(memory, np.uint8)
        a.flags.writeable = False
        graph = uopc.constant(a)
        memory[0] = 5
        assert uopc.compile(graph)()[0] == 0
        del a


def test_no_constant_is_writable():
    graph = uopc.constant(np.arange(4), dtypes.float64)
    with pytest.raises(ValueError, match="read-only"):
        graph.arg.array[0] = 1
