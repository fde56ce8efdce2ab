"""Habits of NumPy that would give wrong numbers: an error, or the right number."""

import copy
import mmap
import operator
import pickle

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import dtypes
from uopc.ir.core.data import files

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


def graphs_of_comparisons():
    """Functions of the raw UOp `x` that use `x == 0` or `x != 0`, False and True, as values."""
    return {
        "np.where": lambda x: np.where(x == 0, 9, x),
        "where of the namespace": lambda x: unp.where(x != 0, 9, x),
        "a value of where": lambda x: uopc.where(x > 1, x == 0, x),
        "logical_and": lambda x: np.logical_and(x == 0, x > 0),
        "bitwise_or": lambda x: np.bitwise_or(x > 0, x != 0),
        "maximum": lambda x: np.maximum(x == 0, x),
        "np.stack": lambda x: np.stack([x[0] == 0, x[1]]),
        "stack": lambda x: uopc.stack(x[0] == 0, x[1]),
        "stack of comparisons": lambda x: uopc.stack(x[0] == 0, x[1] == 0),
        "np.add": lambda x: np.add(x == 0, x),
        "alu": lambda x: x.alu(uopc.Ops.ADD, x == 0),
        "assign": lambda x: x.assign(x == 0),
        "at.set": lambda x: x.at[0].set(x[0] == 0),
        "at.add": lambda x: x.at[0].add(x[0] != 0),
        "clip": lambda x: x.clip(x == 0, 1),
        "matmul": lambda x: x @ (x == 0),
        "if": lambda x: x if x.eq(0) else -x,
        "and": lambda x: x and x,
        "chain": lambda x: 0 < x < 1,
        "in": lambda x: x * 2 if 1 in x else x,
        "not in": lambda x: x * 2 if 1 not in x else x,
        "sorted": lambda x: uopc.stack(*sorted(x)),
        "max": lambda x: max(x[0], x[1]),
        "float": lambda x: x * float(x[0]),
        "int": lambda x: x[int(x[0])],
        "np.array": lambda x: uopc.constant(np.array(x)) + 1,
        "np.array of elements": lambda x: x + np.array([x[0], x[1], 1]),
        "np.float32": lambda x: np.float32(x) + x,
        "len": lambda x: x * len(x),
        "an index of an array": lambda x: x + X[x.cast(dtypes.int32)],
        "a write to an array": lambda x: operator.setitem(X.copy(), slice(None), x),
        "a sum in an array": lambda x: operator.iadd(X.copy(), x),
        "np.testing": lambda x: np.testing.assert_array_equal(x, x * 2),
    }


@pytest.mark.parametrize("name", graphs_of_comparisons())
def test_a_habit_is_an_error(name):
    with pytest.raises(TypeError if name not in ("float", "int") else uopc.UserError):
        graphs_of_comparisons()[name](param())


def test_a_bool_beside_arrays_is_a_number():
    f = uopc.jit(lambda x: (unp.where(True, x + True, x), x.at[0].set(True)))
    first, second = f(X)
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(second, [1, 1, 2])


def test_dots_and_elements_are_numpys():
    x = param()
    dot, total = uopc.compile((np.dot(x, x), sum(x)))(X)
    assert dot == X @ X and total == X.sum()


def test_an_attribute_of_arrays_names_the_way_out():
    x = param()
    with pytest.raises(uopc.UserError, match=r"no view: write x\.reshape.* x\.bitcast") as caught:
        x.view("f4")
    assert (caught.value.name, caught.value.obj) == ("view", None)  # Python suggests nothing else
    for name in ("dot", "item", "tolist", "view", "ravel", "mT", "real"):
        assert not hasattr(x, name)
    with pytest.raises(AttributeError, match="nowhere"):
        x.nowhere  # noqa: B018 - reading it raises


def test_an_array_names_what_to_write_for_attributes_of_numpys():
    x = unp.asarray([[1.5, 2.0]])
    with pytest.raises(uopc.UserError, match=r"no view: write x\.astype\(dtype\)"):
        uopc.jit(lambda a: a.view("i4"))(X)
    for name in ("view", "resize", "nbytes", "itemsize"):
        assert hasattr(np.ndarray, name) and not hasattr(x, name)
        with pytest.raises(uopc.UserError, match=f"an Array has no {name}: write "):
            getattr(x, name)
    with pytest.raises(AttributeError) as caught:
        x.resize(0)
    assert (caught.value.name, caught.value.obj) == ("resize", None)
    with pytest.raises(AttributeError, match="nowhere"):
        x.nowhere  # noqa: B018 - reading it raises


def test_an_array_is_formatted_by_its_value():
    assert f"{unp.asarray(1.25):.1f}" == f"{1.25:.1f}" and f"{unp.asarray(3)}".startswith("Array(")
    with pytest.raises(uopc.UserError, match=r"format\(\) needs an array without dimensions"):
        format(unp.asarray([1.0]), ".2f")
    with pytest.raises(uopc.UserError, match=r"Format results outside of the function"):
        uopc.jit(lambda a: f"{a.sum():.2f}")(X)


def test_reshape_takes_the_order_that_arrays_have():
    x = unp.asarray([1.0, 2.0, 3.0, 4.0])
    assert x.reshape((2, 2), order="C").tolist() == x.reshape(2, 2).tolist()
    assert x.reshape((2, 2), order="F").tolist() == [[1.0, 3.0], [2.0, 4.0]]
    with pytest.raises(uopc.UserError, match="is not known in a graph: write order='C'"):
        x.reshape(2, 2).reshape((4,), order="A")


def test_a_refused_habit_of_numpy_code_names_the_way_out():
    for habit, words in (
        (lambda x: float(x[0]), r"where\(\) for a choice by value.*arrays to write to"),
        (lambda x: np.linalg.norm(x[:, None], 2), "ord 2 needs singular values"),
        (lambda x: np.union1d(x, x), "made of unique"),
        (np.linalg.eigvals, "uopc.numpy.linalg has no eigvals"),
        (np.frexp, "uopc.numpy has no frexp; compute it outside, or of other functions$"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            uopc.jit(habit)(X)


@pytest.mark.parametrize("spelled", [np.float64, "f8", float, "float64", np.dtype("f8")])
def test_a_dtype_may_be_spelled_as_numpys(spelled):
    x = param()
    made = (
        x.cast(spelled), x.astype(spelled), x.cast(dtypes.int64).bitcast(spelled),
        uopc.param("y", (3,), spelled), uopc.constant(X, spelled), uopc.constant(1, spelled),
        uopc.arange(3, dtype=spelled), uopc.full((3,), 1, spelled), uopc.zeros(3, dtype=spelled),
        uopc.ones(3, dtype=spelled), uopc.eye(3, dtype=spelled),
    )  # fmt: skip
    assert {u.dtype for u in made} == {dtypes.float64}


@pytest.mark.parametrize("wrong", [None, "c16", object, 3, "nope", ">f8"])
def test_what_is_no_dtype_is_refused(wrong):
    for make in (param().astype, lambda t: uopc.param("y", (3,), t)):
        with pytest.raises(TypeError, match="expected a dtype such as"):
            make(wrong)


def test_a_flip_names_its_axes():
    x = param()
    with pytest.raises(uopc.UserError, match=r"name the axes"):
        x.flip()
    assert x.flip(()) is x and x.flip(0) is x.flip((0,))


def test_nodes_are_keys_copies_and_pickles():
    x = param()
    assert copy.copy(x) is x and copy.deepcopy([x])[0] is x and pickle.loads(pickle.dumps(x)) is x
    assert {x + 1: 2}[x + 1] == 2 and len({x, x * 1, x + 1, x + 1}) == 2


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
    assert files.is_mapped(uopc.constant(mapped).arg.array)  # the same pages of the file


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


# ---------------------------------------------------------------- dtypes
@pytest.mark.parametrize("spelled", (np.float64, np.dtype("f8"), "f8", "float64", float, "d"))
def test_a_dtype_equals_numpys_spellings_of_it(spelled):
    t = dtypes.float64
    assert t == spelled and spelled == t and t in (np.int8, spelled)
    assert dtypes.float32 != spelled and spelled != dtypes.float32
    x = np.ones(2)
    np.testing.assert_array_equal(
        uopc.jit(lambda x: x * 2 if x.dtype == spelled else x)(x), x * 2
    )


def test_a_dtype_equals_nothing_else():
    texts = ("nonsense", "a/b.py::c:", "f4,(", "", ">f8", "f4")
    for other in (*texts, None, 8, np.ndarray, object, float("nan"), [np.float64]):
        assert dtypes.float64 != other and other != dtypes.float64


def test_numpy_takes_a_dtype():
    assert np.zeros(2, dtypes.int16).dtype == np.int16
    assert np.dtype(dtypes.bool_) == bool and np.dtype("f4") == dtypes.float32
    assert np.issubdtype(dtypes.float32, np.floating) and np.finfo(dtypes.float64).bits == 64


# ---------------------------------------------------------------- other operands than arrays
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "ge", "add", "sub", "mul", "truediv", "matmul"])
@pytest.mark.parametrize("listed", ([1, 5, 3], (1, 5, 3)))
def test_a_list_is_an_operand(name, listed):
    x, f = np.array([1.0, 2.0, 3.0]), getattr(operator, name)
    np.testing.assert_array_equal(uopc.jit(lambda x: f(x, listed))(x), f(x, listed))
    np.testing.assert_array_equal(uopc.jit(lambda x: f(listed, x))(x), f(listed, x))
    np.testing.assert_array_equal(
        uopc.jit(lambda x: f(x, [x[0], 5, x[2]]))(x), f(x, [x[0], 5, x[2]])
    )


@pytest.mark.parametrize("other", (None, "a", b"a"))
def test_an_array_is_not_compared_with_what_is_no_number(other):
    for f in (lambda x: np.where(x == other, 9, x), lambda x: x != other, lambda x: other == x):
        with pytest.raises(uopc.UserError, match=r"numbers; write `x is None` to ask"):
            uopc.jit(f)(X)


@pytest.mark.parametrize("low,high", ((None, 1.5), (0.5, None), (-0.5, np.float32(1.5)), (0, 2)))
def test_clip_by_floats_gives_floats(low, high):
    x = np.array([0, 1, 2, 3], "i2")
    got, want = uopc.jit(lambda x: np.clip(x, low, high))(x), np.clip(x, low, high)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype


# ---------------------------------------------------------------- numbers as arguments
@pytest.mark.parametrize("name", ["add", "mul", "eq", "lt", "and_", "floordiv"])
@pytest.mark.parametrize("t,number", [
    ("i1", 300), ("i1", -129), ("u1", 256), ("u1", -1), ("u8", -1), ("i4", 2**40), ("u4", -2),
])  # fmt: skip
def test_a_number_that_the_dtype_cannot_hold_is_an_error(name, t, number):
    f, x = uopc.jit(lambda a, b: getattr(operator, name)(a, b)), np.array([0, 1, 2], t)
    for _ in range(2):  # the second time the program is there
        np.testing.assert_array_equal(f(x, 1), getattr(operator, name)(x, 1))
        for call in (lambda: f(x, number), lambda: f(x, b=number)):
            with pytest.raises(uopc.UserError, match=rf"{number} does not fit u?int"):
                call()


def test_a_number_that_is_written_fits():
    f, x = uopc.jit(lambda x, n: x.at[1].set(n)), np.zeros(2, "i1")
    assert f(x, 127).tolist() == [0, 127]
    with pytest.raises(uopc.UserError, match=r"n = 128 does not fit int8"):
        f(x, 128)


def test_a_number_fits_every_dtype_that_it_meets():
    f = uopc.jit(lambda x, y, n: (x + n, y * n))
    x, y = np.ones(2, "i1"), np.ones(2, "u1")
    for n in (0, 127):
        np.testing.assert_array_equal(f(x, y, n), (x + np.int8(n), y * np.uint8(n)))
    for n in (-1, 128):
        with pytest.raises(uopc.UserError, match=r"does not fit"):
            f(x, y, n)


@pytest.mark.parametrize("number", (-129, 300, 2**40))
@pytest.mark.parametrize("t", ("u8", "u1", "i1"))
def test_a_quotient_of_integers_takes_any_number(t, number):
    x = np.array([1, 2, 100], t)
    np.testing.assert_allclose(uopc.jit(lambda x, n: np.divide(x, n))(x, number), x / float(number))
    np.testing.assert_allclose(uopc.jit(lambda x: x / number)(x), x / float(number))
