"""Arguments by position come in the order in which params were made, and `signature` shows it."""

import inspect
import itertools
import pickle

import numpy as np
import pytest

import uopc
from uopc import Ops, UOp, dtypes
from uopc.ir.core.args import ParamArg

ONE, TWO = np.float32([1, 2, 3]), np.float32([3, 2, 1])


def names(program):
    return [v.name for v in program.inputs]


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_params_come_as_they_were_made(order):
    made = {n: uopc.param(n, (3,)) for n in order}
    f = uopc.compile((made["c"] - made["a"]) * made["b"])
    assert names(f) == list(order)
    values = {"a": ONE, "b": TWO, "c": TWO * 2}
    np.testing.assert_array_equal(f(*[values[n] for n in order]), (TWO * 2 - ONE) * TWO)


def test_a_comparison_does_not_swap_them():
    x, y = uopc.param("x", (3,)), uopc.param("y", (3,))
    np.testing.assert_array_equal(uopc.compile(x > y)(ONE, TWO), ONE > TWO)


def test_params_that_are_made_again_count_as_made_then():
    kept = [uopc.param("x", (3,)), uopc.param("y", (3,))]
    y, x = uopc.param("y", (3,)), uopc.param("x", (3,))
    assert [x, y] == kept
    np.testing.assert_array_equal(uopc.compile(x - y)(ONE, TWO), TWO - ONE)


def test_inputs_replace_the_order_in_every_container():
    x, y = uopc.param("x", (3,)), uopc.param("y", (3,))
    for graph in (x - y, [y, x], {"d": y - x}, (x.sum(), y)):
        assert names(uopc.compile(graph)) == ["x", "y"]
        assert names(uopc.compile(graph, inputs=["y", x])) == ["y", "x"]


def test_raw_constructors_make_params():
    y, x = [UOp(Ops.PARAM, dtypes.float32, (), ParamArg(n, (3,))) for n in "yx"]
    assert names(uopc.compile(x + y)) == ["y", "x"]


def test_a_text_does_not_change_the_order():
    y, x = uopc.param("y", (3,)), uopc.param("x", (3,))
    graph = x - y
    assert names(uopc.compile(uopc.parse(str(graph)))) == ["y", "x"]


def test_a_pickle_and_a_saved_schedule_keep_the_order(tmp_path):
    y, x = uopc.param("y", (3,)), uopc.param("x", (3,))
    f = uopc.compile(x - y)
    data = pickle.dumps(f)
    uopc.save_schedule(f, tmp_path / "f.uop")
    uopc.param("x", (3,)), uopc.param("y", (3,))
    assert names(pickle.loads(data)) == ["y", "x"]
    assert names(uopc.load_schedule(tmp_path / "f.uop")) == ["y", "x"]


def test_bound_sizes_keep_the_order():
    n = uopc.variable("n", 1, 8)
    y, x = uopc.param("y", (n.bind(3),)), uopc.param("x", (n.bind(3),))
    assert names(uopc.compile(x - y)) == ["y", "x"]


def test_a_graph_in_a_cache_is_compiled_for_each_order():
    a, b = uopc.param("a", (3,)), uopc.param("b", (3,))
    first = uopc.compile(a - b)
    b, a = uopc.param("b", (3,)), uopc.param("a", (3,))
    np.testing.assert_array_equal(uopc.compile(a - b)(ONE, TWO), TWO - ONE)
    np.testing.assert_array_equal(first(ONE, TWO), ONE - TWO)


# ---------------------------------------------------------------- the signature
def signature(graph, **how):
    return str(inspect.signature(uopc.compile(graph, **how)))


def test_the_signature_has_arrays_variables_and_out():
    n, s = uopc.variable("n", 1, 8), uopc.variable("s", 0, 9)
    x, y = uopc.param("x", (3,)), uopc.param("y", (n,))
    assert signature(x) == "(x, *, out=None)"
    assert signature({"a": y + s, "b": [x][0]}) == "(x, y, *, n=None, s, out=None)"
    assert signature(y * s.bind(4)) == "(y, *, n=None, s=4, out=None)"
    assert signature(uopc.arange(3)) == "(*, out=None)"


def test_the_signature_of_a_kernel_is_its_slots():
    o, x = uopc.kernel_param(0, (4,), name="o"), uopc.kernel_param(1, (4,), name="x")
    assert signature(o.store(x * 2).sink(name="double")) == "(o, x)"


def test_the_signature_binds_what_a_call_takes():
    x, y = uopc.param("x", (3,)), uopc.param("y", (3,))
    f = uopc.compile(x - y)
    bound = inspect.signature(f).bind(TWO, y=ONE)
    np.testing.assert_array_equal(f(*bound.args, **bound.kwargs), TWO - ONE)
    with pytest.raises(TypeError):
        inspect.signature(f).bind(TWO)


def test_words_of_the_grammar_come_by_position():
    lam, x = uopc.param("lambda", (3,)), uopc.param("x", (3,))
    f = uopc.compile(lam - x)
    assert str(inspect.signature(f)) == "(lambda, /, x, *, out=None)"
    np.testing.assert_array_equal(f(ONE, x=TWO), ONE - TWO)
    v = uopc.variable("in", 0, 4)
    assert signature(x + v) == "(x, *, out=None, **variables)"
