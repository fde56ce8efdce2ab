"""`uopc.jit`: programs by kinds of arguments, containers, static and donated arguments, errors."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import pickle
import re
import threading
import warnings
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import UOp, dtypes

X, Y = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class State:
    position: Any
    speed: Any
    count: Any = dataclasses.field(default=0, init=False)


@dataclasses.dataclass(frozen=True)
class Pair:
    first: Any
    second: Any


class Matrix:
    """A class of its own, with more than arrays."""

    def __init__(self, data: Any, label: str) -> None:
        self.data, self.label = data, label


uopc.register_pytree(
    Matrix, lambda m: ((m.data,), m.label), lambda label, parts: Matrix(parts[0], label)
)


# ---------------------------------------------------------------- NumPy code
@uopc.jit
def mixed(x: Any, y: Any) -> Any:
    z = np.where(x == y, 9.0, np.maximum(x, y)) - np.sin(y) ** 2
    return np.stack([z, np.cumsum(z)]).T @ np.ones((2, 2)) + np.mean(x, axis=0, keepdims=True)


def test_numpy_code_gives_numpys_numbers() -> None:
    np.testing.assert_allclose(mixed(X, Y), inspect.unwrap(mixed)(X, Y), rtol=1e-14)
    assert mixed(X, Y).dtype == np.float64
    assert mixed(X.astype("f4"), Y.astype("f4")).dtype == np.float64  # np.ones is float64


def test_arguments_come_in_the_order_of_the_signature() -> None:
    f = uopc.jit(lambda x, y: y - 2 * x)
    np.testing.assert_array_equal(f(X, Y), Y - 2 * X)
    np.testing.assert_array_equal(f(y=Y, x=X), Y - 2 * X)
    assert [v.name for v in f.program(X, Y).inputs] == ["x", "y"]
    assert str(inspect.signature(f)) == "(x, y)"


def test_programs_by_dtype_and_shape() -> None:
    f = uopc.jit(lambda x: x * 2)
    for x in (X, X.astype("f4"), X[:2], X.astype("i4"), X, X.reshape(1, 3)):
        got = f(x)
        np.testing.assert_array_equal(got, x * 2)
        assert got.dtype == x.dtype
    assert f.cache_info() == (1, 5, 5)
    f.clear_cache()
    assert f.cache_info() == (0, 0, 0)


def test_defaults_and_variadic_arguments() -> None:
    f = uopc.jit(lambda x, scale=2.0, *more, power=2, **rest: (x * scale + sum(more)) ** power
                 + sum(rest.values()))  # fmt: skip
    np.testing.assert_array_equal(f(X), (X * 2) ** 2)
    np.testing.assert_array_equal(f(X, 3.0, Y, Y, b=Y, a=X), (X * 3 + 2 * Y) ** 2 + X + Y)


def test_numbers_are_arguments_and_take_the_dtype_of_arrays() -> None:
    f = uopc.jit(lambda x, s: x * s)
    for s in (2, 3, 4):
        assert f(X.astype("f4"), s).dtype == np.float32
    assert f.cache_info().programs == 1
    assert f(X.astype("f4"), 2.5).dtype == np.float32
    assert f(X.astype("f4"), np.float64(2.5)).dtype == np.float64
    assert f(np.arange(3, dtype="i2"), 2).dtype == np.int16
    assert f(np.arange(3, dtype="i2"), 2.5).dtype == np.float64
    assert f(2, 3) == 6 and f(True, False).dtype == np.bool_
    with pytest.raises(uopc.UserError, match=r"s = 9223372036854775808 does not fit in int64"):
        f(X, 1 << 63)


# ---------------------------------------------------------------- symbolic sizes
def test_one_program_for_all_sizes() -> None:
    f = uopc.jit(lambda x, w: (x @ w).sum(1), dims={"x": ("n", 3)})
    w = np.arange(6.0).reshape(3, 2)
    for n in (0, 1, 2, 7, 64):
        x = np.arange(3.0 * n).reshape(n, 3)
        np.testing.assert_allclose(f(x, w), (x @ w).sum(1))
    assert f.cache_info().programs == 1
    with pytest.raises(uopc.UserError, match=r"x must have dims .* got shape \(2, 4\)"):
        f(np.ones((2, 4)), w)
    with pytest.raises(uopc.UserError, match=r"x must have dims"):
        f(np.ones(3), w)


def test_bounds_and_parts_of_containers() -> None:
    n = uopc.variable("n", 2, 5)
    f = uopc.jit(lambda s: s["x"] * s["y"], dims={"s.x": (n,), "s.y": (n,)})
    np.testing.assert_array_equal(f({"x": X, "y": Y}), X * Y)
    with pytest.raises(uopc.UserError, match=r"expected 2\.\.5"):
        f({"x": np.ones(6), "y": np.ones(6)})
    with pytest.raises(uopc.UserError):
        f({"x": np.ones(3), "y": np.ones(4)})


# ---------------------------------------------------------------- jit in jit, graphs
def test_a_function_in_another_is_part_of_it() -> None:
    inner = uopc.jit(lambda x, k: x * k, static_argnames="k")
    outer = uopc.jit(lambda x: inner(x, 2) + inner(x, k=3))
    np.testing.assert_array_equal(outer(X), X * 5)
    assert inner.cache_info().programs == 0


def test_recursion_that_ends_and_one_that_does_not() -> None:
    @uopc.jit(static_argnames="n")
    def power(x: Any, n: int) -> Any:
        return x * power(x, n - 1) if n else unp.ones_like(x)

    np.testing.assert_array_equal(power(X, 3), X**3)

    @uopc.jit
    def endless(x: Any) -> Any:
        return endless(x + 1)

    with pytest.raises(uopc.UserError, match=r"endless calls itself without end"):
        endless(X)
    with pytest.raises(uopc.UserError, match="calls itself"):  # and it is not stuck
        endless(X)


def test_uops_make_a_graph() -> None:
    f = uopc.jit(lambda x, y: x * y + 1)
    a, b = uopc.param("a", (3,), dtypes.float64), uopc.param("b", (3,), dtypes.float64)
    made = f(a, b)
    assert isinstance(made, UOp)
    np.testing.assert_array_equal(uopc.compile(made)(X, Y), X * Y + 1)


def test_insight() -> None:
    f = uopc.jit(lambda x: {"y": x + 1})
    assert "linearize" in f.stages(X) and f.program(X).kernels
    assert f.lower(X)["y"].shape == (3,)
    assert f.lower(uopc.compile(uopc.param("x", (5,))).inputs[0])["y"].shape == (5,)
    assert repr(f).startswith("<uopc.jit of <lambda>(x)")


def test_options_of_compile_and_of_a_block() -> None:
    rule = (uopc.UPat(uopc.Ops.ADD, src=(uopc.UPat.var("a"), uopc.UPat.cvar("c"))),
            lambda a, c: a - c)  # fmt: skip
    f = uopc.jit(lambda x: x + 1, rules=rule, name="named", threads=1, optimize=False)
    np.testing.assert_array_equal(f(X), X - 1)
    g = uopc.jit(lambda x: x + 1)
    g(X)
    with uopc.options(threads=1):
        g(X)
    assert g.cache_info() == (0, 2, 2)


def test_methods() -> None:
    class Model:
        def __init__(self, k: float) -> None:
            self.k = k

        @uopc.jit(static_argnames="self")
        def scaled(self, x: Any) -> Any:
            return x * self.k

    two, three = Model(2.0), Model(3.0)
    np.testing.assert_array_equal(two.scaled(X), 2 * X)
    np.testing.assert_array_equal(three.scaled(X), 3 * X)


def test_arguments_of_other_libraries() -> None:
    f = uopc.jit(lambda x: x * 2)
    assert f(memoryview(X)).tolist() == (X * 2).tolist()
    assert f(unp.asarray(X)).tolist() == (X * 2).tolist()
    assert f(X[::-1]).tolist() == (X[::-1] * 2).tolist()
    assert f(np.float32(2)).dtype == np.float32


def test_several_threads_call_one_function() -> None:
    f = uopc.jit(lambda x: (x * 2).sum())
    failed: list[Any] = []

    def work(n: int) -> None:
        for _ in range(20):
            if f(np.full(n, 1.0)) != 2 * n:
                failed.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed and f.cache_info().programs == 6


# ---------------------------------------------------------------- errors
def line_of(caught: Any, function: Any) -> bool:
    """The traceback passes through the user's function."""
    return any(f.f_code is function.__code__ for f, _ in _frames(caught.tb))


def _frames(tb: Any) -> Any:
    while tb is not None:
        yield tb.tb_frame, tb.tb_lineno
        tb = tb.tb_next


VALUES = {
    "if": lambda x: x if x.sum() > 0 else -x,
    "while": lambda x: [x for _ in iter(lambda: bool(x[0] > 0), False)],
    "float": lambda x: float(x[0]) + x,
    "int": lambda x: x[int(x[0])],
    "index": lambda x: [1, 2, 3][x.astype(int)[0]] * x,
    "item": lambda x: x[0].item() * x,
    "tolist": lambda x: x.tolist(),
    "and": lambda x: (x > 0).all() and x,
    "chain": lambda x: (0 < x[0] < 1) * x,
    "in": lambda x: 1.0 in x,
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_is_not_known(name: str) -> None:
    f = VALUES[name]
    words = r"depends on an argument\. (Use where\(\)|NumPy's arrays)"
    with pytest.raises(uopc.UserError, match=words) as caught:
        uopc.jit(f)(X)
    assert line_of(caught, f)


def test_values_that_leave_their_function() -> None:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x * 2)
        return x

    uopc.jit(keep)(X)
    for use in (lambda: kept[0] + 1, lambda: unp.sin(kept[0]), lambda: kept[0][0]):
        with pytest.raises(uopc.UserError, match=r"an array of keep is used after keep"):
            use()
    with pytest.raises(uopc.UserError, match=r"arrays of .* meet|is used after"):
        uopc.jit(lambda x: x + kept[0])(X)
    for leave in (lambda x: kept[0], lambda x: kept[0].uop, lambda x: [x, {"a": kept[0]}]):
        with pytest.raises(uopc.UserError, match=r"an array of keep is used after keep"):
            uopc.jit(leave)(X)
    with pytest.raises(uopc.UserError, match=r"an array of keep is used after keep"):
        np.asarray(kept[0])
    assert repr(kept[0]) == "Array(float64(3), traced by keep)"


def test_an_inner_function_may_not_return_an_outer_value() -> None:
    with pytest.raises(uopc.UserError, match=r"inner returns an array of outer"):

        def outer(x: Any) -> Any:
            def inner(y: Any) -> Any:
                return x

            return uopc.jit(inner)(np.ones(3))

        uopc.jit(outer)(X)


def test_a_param_that_is_no_argument() -> None:
    foreign = uopc.param("foreign", (3,), dtypes.float64)
    with pytest.raises(uopc.UserError, match=r"depends on param 'foreign': pass it"):
        uopc.jit(lambda x: x + foreign)(X)


def test_an_array_that_is_captured_and_changed() -> None:
    captured = np.ones(3)
    f = uopc.jit(lambda x: x + captured)
    np.testing.assert_array_equal(f(X), X + 1)
    captured[:] = 7
    np.testing.assert_array_equal(f(X), X + 1)


@pytest.mark.parametrize("made", [
    lambda: uopc.jit(3), lambda: uopc.jit(lambda x: x, static_argnames="y"),
    lambda: uopc.jit(lambda x: x, donate_argnames=["y"]),
    lambda: uopc.jit(lambda x: x, dims={"y": (3,)}),
    lambda: uopc.jit(lambda x: "text")(X), lambda: uopc.jit(lambda x: {"a": object()})(X),
    lambda: uopc.jit(lambda x: x)("text"), lambda: uopc.jit(lambda x: x)({"a": object()}),
    lambda: uopc.jit(lambda x: x)(), lambda: uopc.jit(lambda x: x)(X, X),
    lambda: uopc.jit(lambda x: x)(y=X), lambda: uopc.jit(lambda x: x)(np.array(["a"])),
    lambda: uopc.jit(lambda x: x)(np.ones(2, "clongdouble")),
    lambda: uopc.jit(lambda x: None).program(X), lambda: uopc.register_pytree(3, len, len),
    lambda: uopc.register_pytree(int, 3, len),
])  # fmt: skip
def test_bad_arguments(made: Any) -> None:
    with pytest.raises(uopc.UserError):
        made()


@pytest.mark.parametrize(
    "values",
    [(1, 1.0, True), ((1,), (1.0,), (True,)), (0.0, -0.0), (((0.0, 2),), ((-0.0, 2),)),
     (frozenset([1]), frozenset([True])), (Point(1, 2), (1, 2)), (np.float64(1), 1.0)],
)  # fmt: skip
def test_static_values_that_are_equal_and_not_the_same(values: tuple[Any, ...]) -> None:
    seen: list[Any] = []
    f = uopc.jit(lambda x, s: (seen.append(s), x)[1], static_argnames="s")
    for v in (*values, *values):
        f(X, v)
    assert list(map(repr, seen)) == list(map(repr, values))


def test_a_static_nan_is_found_again() -> None:
    f = uopc.jit(lambda x, s: x * s, static_argnames="s")
    assert np.isnan([f(X, float("nan")), f(X, float("nan"))]).all()
    assert f.cache_info().programs == 1


@pytest.mark.parametrize(
    "use", [np.asarray, lambda a: float(a[0]), lambda a: a.tolist(), lambda a: a + 1, np.sin,
            lambda a: uopc.jit(lambda x: x + a)(X), unp.sum, lambda a: bool((a > 0).all())],
)  # fmt: skip
def test_an_array_that_left_its_function_says_so(use: Any) -> None:
    left: list[Any] = []
    uopc.jit(lambda x: (left.append(x * 2), x)[1])(X)
    with pytest.raises(uopc.UserError, match=r"is used after .* has returned"):
        use(left[0])


def test_elements_cannot_be_deleted() -> None:
    def f(x: Any) -> Any:
        del x[0]
        return x

    with pytest.raises(uopc.UserError, match=r"del x\[i\]"):
        uopc.jit(f)(X)


def test_a_builtin_without_a_signature_is_refused() -> None:
    with pytest.raises(uopc.UserError, match="does not tell the arguments of max"):
        uopc.jit(max)


def test_errors_of_the_function_pass_through() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    g = uopc.jit(f)
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            g(X)
    assert g.cache_info().programs == 0


def test_a_call_that_fails_does_not_change_the_function() -> None:
    f = uopc.jit(lambda x, y: x + y)
    f(X, Y)
    with pytest.raises(uopc.UserError):
        f(X, Y[:2])
    np.testing.assert_array_equal(f(X, Y), X + Y)


@pytest.mark.parametrize("name", ("stats", "report", "kernels"))
def test_what_a_program_has_is_named_there(name: str) -> None:
    f = uopc.jit(lambda x: x + 42)
    assert hasattr(f.program(X), name)
    with pytest.raises(AttributeError, match=rf"write <lambda>\.program\(\*args\)\.{name}"):
        getattr(f, name)


# ---------------------------------------------------------------- cost
def test_programs_are_forgotten_with_their_function() -> None:
    f = uopc.jit(lambda x: x + 41)
    program = f.program(X)
    seen = weakref.ref(program)
    del f, program
    gc.collect()
    assert seen() is None


def test_pickles_of_programs() -> None:
    p = pickle.loads(pickle.dumps(uopc.jit(lambda x: x + 1).program(X)))
    np.testing.assert_array_equal(p(X), X + 1)


def test_a_call_that_finds_its_program_goes_straight_to_it() -> None:
    f = uopc.jit(lambda x, y: x + y)
    f(X, Y)
    assert f._last is not None and f._last[1] is f.program(X, Y)
    calls: list[Any] = []
    f._kind = lambda *given: calls.append(given)  # type: ignore[method-assign]
    np.testing.assert_array_equal(f(X, Y), X + Y)
    assert not calls


def test_kinds_that_take_turns_go_straight_to_their_programs() -> None:
    f = uopc.jit(lambda x, y: x + y)
    short, single = np.ones(2), X.astype("f4")
    kinds = [(X, Y), (short, short), (short, 2.0), (short, 2), (single, single), (2, 3), (True, 3)]
    for _ in range(2):
        expected = [f(*args) for args in kinds]
    calls: list[Any] = []
    f._kind = lambda *given: calls.append(given)  # type: ignore[method-assign]
    for args, wanted in [*zip(kinds, expected)] * 2:
        found = f(*args)
        np.testing.assert_array_equal(found, wanted)
        assert np.asarray(found).dtype == np.asarray(wanted).dtype
    assert not calls
    assert f.cache_info().programs == len(kinds)


def test_random_numbers_in_a_traced_function() -> None:
    @uopc.jit
    def noisy(key: Any, x: Any) -> Any:
        first, _ = uopc.random.split(key)
        own = uopc.random.uniform(uopc.random.key(7), (3,), dtypes.float64)
        return uopc.random.split(key), x + uopc.random.normal(first, (3,), dtypes.float64) + own

    key = np.uint32([0, 42])
    keys, y = noisy(key, X)
    assert keys.shape == (2, 2) and keys.dtype == np.uint32
    np.testing.assert_array_equal(noisy(key, X)[1], y)
    assert (noisy(keys[1], X)[1] != y).all()


# ---------------------------------------------------------------- errors that name the way out
def test_recursion_without_end_through_static_arguments() -> None:
    @uopc.jit(static_argnames="n")
    def forever(x: Any, n: int) -> Any:
        return x + forever(x, n + 1)

    line = forever._function.__code__.co_firstlineno + 2
    for _ in range(2):  # and it is not stuck
        with pytest.raises(uopc.UserError, match=r"forever has called itself \d+ times") as caught:
            forever(X, 0)
        assert f"{__file__}:{line} in forever" in str(caught.value)
        assert re.search(r"the last time with n=\d+: .* static arguments", str(caught.value))
    with pytest.raises(RecursionError):  # of the user's own
        uopc.jit(lambda x: (lambda f: f(f))(lambda f: f(f)))(X)


def test_deep_containers_and_recursion_that_ends() -> None:
    deep: Any = X
    for _ in range(150):
        deep = [deep]
    found = uopc.jit(lambda v: v)(deep)
    for _ in range(150):
        (found,) = found
    np.testing.assert_array_equal(found, X)

    @uopc.jit(static_argnames="n")
    def total(x: Any, n: int) -> Any:
        return x + total(x, n - 1) if n else x

    np.testing.assert_array_equal(total(X, 60), X * 61)


@pytest.mark.parametrize(("value", "path", "kind"), [
    (np.ones(2, ">c16"), "y", ">c16"), (np.array(["a"]), "y", "<U1"),
    ({"w": [X, np.ones(2, "clongdouble")]}, r"y\.w\.1", "clongdouble|complex256"),
    (np.array([None]), "y", "object"), (np.array(["2020"], "M8[D]"), "y", "datetime64"),
])  # fmt: skip
def test_a_dtype_that_there_is_not_names_the_argument(value: Any, path: str, kind: str) -> None:
    f = uopc.jit(lambda x, y: x, name="f")
    with pytest.raises(uopc.errors.UserTypeError, match=rf"argument {path}: no dtype for.*{kind}"):
        f(X, value)


def matrix() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy advises against them, too
        return np.matrix([[1.0, 2.0], [3.0, 4.0]])


SQUARE = np.ones((2, 2))
P = uopc.param("p", (2, 2), "f8")


@pytest.mark.parametrize("use", [
    lambda m: uopc.jit(lambda x: x * x)(m), lambda m: uopc.jit(lambda x: x)({"a": [m]}),
    lambda m: uopc.jit(lambda x: x * m)(SQUARE), lambda m: uopc.jit(lambda x: m * x)(SQUARE),
    lambda m: uopc.compile(P * 2)(m), lambda m: uopc.compile(P * 2)(p=m), lambda m: P * m,
    lambda m: m * P, lambda m: m @ unp.ones((2, 2)), lambda m: unp.sum(m), uopc.constant,
    lambda m: unp.where(P > 0, m, P),
])  # fmt: skip
def test_matrices_are_refused(use: Any) -> None:
    with pytest.raises(uopc.errors.UserTypeError, match=r"a matrix is not accepted.*np\.asarray"):
        use(matrix())
    with pytest.raises(uopc.errors.UserTypeError, match="a masked array is not accepted"):
        f = uopc.jit(lambda x: x * x)
        f(SQUARE)
        f(np.ma.array(SQUARE))
    np.testing.assert_array_equal(uopc.compile(P * 2)(np.asarray(matrix())), matrix().A * 2)


def test_a_matrix_after_an_array_of_its_kind() -> None:
    f = uopc.jit(lambda x: x * x)
    f(SQUARE)
    with pytest.raises(uopc.errors.UserTypeError, match="a matrix is not accepted"):
        f(matrix())


# ---------------------------------------------------------------- the number of steps of a loop
STEPS: dict[str, tuple[Any, str]] = {
    "an end": (lambda x, n: uopc.fori_loop(0, n, lambda i, c: c * 2, x), "its end is argument n"),
    "a begin": (lambda x, n: uopc.fori_loop(n, 9, lambda i, c: c, x), "its begin is argument n"),
    "computed": (
        lambda x, n: uopc.fori_loop(0, n + 1, lambda i, c: c * 2, x), "its end is a value of a call"
    ),
    "a length": (
        lambda x, n: uopc.scan(lambda c, _: (c, c), x, length=n), "its length is argument n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_number_of_steps_that_a_call_gives(name: str) -> None:
    """The message names the ways out, and not the function that was just called."""
    f, message = STEPS[name]
    with pytest.raises(uopc.UserError, match=message) as error:
        uopc.jit(f)(np.ones(2), 3)
    assert "static_argnames, or use uopc.while_loop" in str(error.value)
    assert "uopc.fori_loop for" not in str(error.value)
    assert uopc.jit(f, static_argnames="n")(np.ones(2), 3) is not None
    with pytest.raises(uopc.UserError, match=message):
        f(uopc.param("x", (2,)), uopc.param("n", (), dtypes.int32))


def test_a_first_carry_of_another_dtype() -> None:
    with pytest.raises(uopc.UserError, match=r"makes it float64\(\): begin with 0\.0 of float64"):
        uopc.jit(lambda x: uopc.scan(lambda c, v: (c + v, c), 0, x))(np.ones(2))
    with pytest.raises(uopc.UserError, match=r"makes it float64\(3\): begin with float64"):
        uopc.jit(lambda x: uopc.fold(lambda c, v: c + v, np.zeros(3, "f4"), x))(np.ones((2, 3)))
