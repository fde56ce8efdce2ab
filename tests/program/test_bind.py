"""`Program.bind`: some arguments and variables fixed, and the same results."""

from __future__ import annotations

import inspect
import pickle
import threading

import numpy as np
import pytest

import uopc
from uopc import P, dtypes

rng = np.random.default_rng(0)


def r(*shape):
    return rng.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("fixed", ["x", "w", "b", "xw", "wb", "xb", "xwb", "k", "xk", "xwbk", ""])
@pytest.mark.parametrize("optimize", [True, False])
def test_any_arguments_may_be_fixed(fixed, optimize):
    """Of a program with an arena, constants, a variable, and two results."""
    x, w, b = uopc.param("x", (5, 7)), uopc.param("w", (7, 3)), uopc.param("b", (3,))
    k, table = uopc.variable("k", 0, 9), uopc.constant(r(5, 3))
    y = (x @ w).softmax(axis=1) + b * k.cast("f4") + table
    f = uopc.compile({"y": y, "sum": y.sum()}, optimize=optimize)
    values = {"x": r(5, 7), "w": r(7, 3), "b": r(3), "k": 4}
    bound = f.bind(**{n: v for n, v in values.items() if n in fixed})
    left = {n: v for n, v in values.items() if n not in fixed}
    wanted = f(**values)
    for _ in range(2):
        got = bound(**left)
        assert all(got[n].tobytes() == wanted[n].tobytes() for n in wanted)
    assert list(bound.values) == [n for n in values if n in fixed]
    again = pickle.loads(pickle.dumps(bound))
    assert again(**left)["y"].tobytes() == wanted["y"].tobytes()
    outs = {n: np.zeros_like(v) for n, v in wanted.items()}
    assert bound(**left, out=outs)["y"] is outs["y"]
    assert outs["y"].tobytes() == wanted["y"].tobytes()


def test_sizes_follow_from_arrays_that_are_fixed():
    n = uopc.variable("n", 1, 64)
    x, y = uopc.param("x", (n, 3)), uopc.param("y", (n,))
    f = uopc.compile((x * y.reshape(n, 1)).sum(axis=0))
    a, b = r(10, 3), r(10)
    bound = f.bind(y=b)
    np.testing.assert_array_equal(bound(a), f(a, b))
    with pytest.raises(uopc.UserError, match=r"expected float32\[10, 3\]"):
        bound(r(9, 3))
    assert f.bind(n=10)(a, b).tobytes() == f(a, b).tobytes()


def test_a_variable_among_others_keeps_its_value():
    i, j = uopc.variable("i", 0, 9), uopc.variable("j", 0, 9)
    x = uopc.param("x", (4,), dtypes.int64)
    f = uopc.compile(x * i.cast("i8") + j.cast("i8"))
    bound = f.bind(i=3)
    a = np.arange(4)
    np.testing.assert_array_equal(bound(a, j=2), 3 * a + 2)
    np.testing.assert_array_equal(f.bind(i=3, j=2)(a), 3 * a + 2)
    with pytest.raises(uopc.UserError, match="'i' is 4"):
        bound(a, i=4, j=2)
    with pytest.raises(uopc.UserError, match="no argument 'i'"):
        f.bind(i=3, j=2)(a, i=3)


def test_what_is_fixed_does_not_change():
    x, w = uopc.param("x", (3,)), uopc.param("w", (3,))
    f = uopc.compile(x * w)
    a, b = np.ones(3, "f4"), np.full(3, 2, "f4")
    bound = f.bind(w=b)
    b[:] = 7
    assert bound(a).tolist() == [2, 2, 2]
    bound(a, out=b)
    assert b.tolist() == [2, 2, 2] and bound(a).tolist() == [2, 2, 2]
    fixed = np.full(3, 5, "f4")
    fixed.flags.writeable = False
    assert any(c is fixed for c in f.bind(w=fixed)._runner.plan.constants)
    strided = np.arange(6, dtype="f4")[::2]
    assert f.bind(w=strided)(a).tolist() == [0, 2, 4]
    scalar = uopc.compile(x * uopc.param("s", ()))
    assert scalar.bind(s=2.5)(a).tolist() == [2.5] * 3


def test_a_written_argument_stays_one():
    x, w = uopc.param("x", (3,)), uopc.param("w", (3,))
    f = uopc.compile(x.assign(x + w))
    bound, a = f.bind(w=np.ones(3, "f4")), np.zeros(3, "f4")
    assert bound(a) is a and bound(x=a) is a and a.tolist() == [2, 2, 2]
    with pytest.raises(uopc.UserError, match="'x' is written: pass it in each call"):
        f.bind(x=a)


def test_threads_share_a_bound_program():
    x, w = uopc.param("x", (50, 50)), uopc.param("w", (50, 50))
    bound = uopc.compile((x @ w).softmax(axis=1) @ w).bind(w=r(50, 50))
    arrays = [r(50, 50) for _ in range(4)]
    wanted, found = [bound(a) for a in arrays], {}

    def work(i):
        found[i] = [bound(arrays[i]).tobytes() for _ in range(50)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(set(found[i]) == {wanted[i].tobytes()} for i in range(4))


def test_on_a_mesh():
    k, x = uopc.variable("k", 0, 9), uopc.param("x", (8, 3))
    mesh = uopc.make_mesh((4,), ("m",))
    f = uopc.compile((x * k.cast("f4")).sum(), sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    a = r(8, 3)
    assert f.bind(k=3)(a) == f(a, k=3)
    cut = uopc.make_array_from_callback((8, 3), uopc.NamedSharding(mesh, P("m")), a.__getitem__)
    assert f.bind(k=3)(cut) == f(a, k=3)
    wanted = f(a, k=3)
    bound = [f.bind(x=a), f.bind(x=cut)]
    for b in bound:
        assert b(k=3) == wanted and str(inspect.signature(b)) == "(*, k, out=None)"
    assert f.bind(x=a, k=3)() == pickle.loads(pickle.dumps(f.bind(x=a, k=3)))() == wanted
    cut.parts[1][:] = 7
    a[:] = 9
    assert all(b(k=3) == wanted for b in bound)  # what changes later is not seen


@pytest.mark.parametrize("spec", [P(), P("m"), P(None, "m")])
@pytest.mark.parametrize("rows", [7, 8])
def test_arrays_on_a_mesh_are_cut_once(spec, rows):
    x, w = uopc.param("x", (rows, 5), "f8"), uopc.param("w", (rows, 5), "f8")
    mesh = uopc.make_mesh((4,), ("m",))
    f = uopc.compile(
        {"y": x.assign(x + w), "sum": (x * w).sum(axis=0)},
        sharding=uopc.Sharding(mesh, in_shardings={"w": spec}),
    )
    a, b, out = rng.random((rows, 5)), rng.random((rows, 5)), rng.random((rows, 5))
    bound = f.bind(w=b)
    for given in (a.copy(), out):
        before = given.copy()
        got = bound(given) if given is out else bound(x=given)
        assert got["y"] is given
        np.testing.assert_allclose(given, before + b)
        np.testing.assert_allclose(got["sum"], (before * b).sum(0))
    with pytest.raises(uopc.UserError, match="bind: argument 'x' is written"):
        f.bind(x=a)
    with pytest.raises(uopc.UserError, match=r"'w': expected float64\[., 5\], got float64\[3, 5\]"):
        f.bind(w=a[:3])
    with pytest.raises(uopc.UserError, match="missing 1 argument: 'x'"):
        bound()
    with pytest.raises(uopc.UserError, match=r"takes 1 array .x., 2 were given"):
        bound(a, b)
    with pytest.raises(uopc.UserError, match="has no argument 'w'; it has x"):
        bound(a, w=b)
    other = uopc.NamedSharding(mesh, P("m") if spec != P("m") else P())
    cut = uopc.make_array_from_callback((rows, 5), other, b.__getitem__)
    with pytest.raises(uopc.UserError, match=r"is cut as .* the program takes P"):
        f.bind(w=cut)


def test_sizes_of_arrays_on_a_mesh():
    n = uopc.variable("n", 1, 64)
    x, w = uopc.param("x", (n, 3)), uopc.param("w", (n,))
    f = uopc.compile(
        [x.T @ w, x * 2], sharding=uopc.Sharding(uopc.make_mesh((4,), ("m",)), in_shardings=P("m"))
    )
    a, b = r(8, 3), r(8)
    bound, out = f.bind(w=b), [np.zeros(3, "f4"), np.zeros((8, 3), "f4")]
    for got, wanted, memory in zip(bound(a, out=out), f(a, b), out):
        assert got is memory
        np.testing.assert_array_equal(got, wanted)
    uneven = f.bind(w=b[:6])
    for got, wanted in zip(uneven(a[:6]), (a[:6].T @ b[:6], a[:6] * 2)):
        np.testing.assert_allclose(got, wanted, 1e-5)
    with pytest.raises(uopc.UserError, match=r"'x': expected float32\[8, 3\], got float32\[4, 3\]"):
        bound(a[:4])


def test_the_signature_is_that_of_what_is_left():
    n, k = uopc.variable("n", 1, 64), uopc.variable("k", 0, 9)
    x, w = uopc.param("x", (n,)), uopc.param("w", (n,))
    f = uopc.compile(x * w * k.cast("f4"))
    assert str(inspect.signature(f)) == "(x, w, *, k, n=None, out=None)"
    assert str(inspect.signature(f.bind(k=3))) == "(x, w, *, k=3, n=None, out=None)"
    assert str(inspect.signature(f.bind(w=r(5), k=3))) == "(x, *, out=None)"
    on_mesh = uopc.compile(
        uopc.param("x", (8,)) * k.cast("f4"), sharding=uopc.Sharding(uopc.make_mesh((2,), ("m",)))
    ).bind(k=1)
    assert str(inspect.signature(on_mesh)) == "(x, *, out=None)"


def test_what_is_refused():
    n, m = uopc.variable("n", 1, 8), uopc.variable("m", 1, 8)
    x, y = uopc.param("x", (n,)), uopc.param("y", (n + m,))
    f = uopc.compile(x.sum() + y.sum() + m.cast("f4"))
    for values, words in (
        ({"z": 3}, "bind: .* has no argument 'z'; it has m, n, x, y"),
        ({"m": 9}, "variable 'm' is 9 .from bind., expected 1..8"),
        ({"m": 1.5}, "variable 'm': expected an integer"),
        ({"x": np.ones(3)}, "argument 'x': expected float32"),
        ({"x": np.ones(9, "f4")}, "'n' is 9 .from dimension 0 of argument 'x'., expected 1..8"),
        ({"x": np.ones(3, "f4"), "n": 4}, "dimension 0 must be 4"),
        ({"y": np.ones(3, "f4")}, "the shape of argument 'y' needs variable m, n"),
        ({"y": np.ones(3, "f4"), "n": 1, "m": 1}, "dimension 0 must be 2"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            f.bind(**values)
    with pytest.raises(uopc.UserError, match="by name, got 1 by position"):
        f.bind(1)
    g = uopc.compile(uopc.param("u", (4,)), device="cuda:sm_90")
    with pytest.raises(uopc.Unsupported, match="bind is not supported for a GPU"):
        g.bind(u=np.ones(4, "f4"))
