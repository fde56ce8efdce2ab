"""einsum against NumPy: products, diagonals, "...", sizes of 0, 1 and symbols; its errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
import uopc.numpy as unp
from uopc import dtypes
from uopc.ir.interpret.interpreter import evaluate
from uopc.tensor.matrices.einsum import einsum


def params(arrays):
    return [
        uopc.param(f"p{i}", a.shape, dtypes.from_numpy(a.dtype)) for i, a in enumerate(arrays)
    ]


def check(subscripts, *arrays, within=1e-11):
    values = params(arrays)
    graph = einsum(subscripts, *values)
    got = uopc.compile(graph, inputs=values, verify=True)(*arrays)
    want = np.einsum(subscripts, *arrays)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=within, atol=within)
    named = {f"p{i}": a for i, a in enumerate(arrays)}
    np.testing.assert_allclose(evaluate(graph, named), want, rtol=within, atol=within)


CASES = {
    "ij,jk->ik": ((3, 4), (4, 5)), "ij,jk": ((3, 4), (4, 5)), "ii->i": ((3, 3),),
    "ii": ((3, 3),), "ba": ((2, 3),), "i,j": ((2,), (3,)), "ij,ij->": ((3, 4), (3, 4)),
    "...ij->...ji": ((2, 3, 4),), "...i,i...": ((2, 3), (3, 2)), "...,...": ((3, 1), (4,)),
    "i...->...": ((3, 4),), "...->...": ((2, 3),), "...": ((2, 3),), "i...j->ji...": ((2, 3, 4),),
    "ij,jk,kl,lm->im": ((2, 7), (7, 4), (4, 5), (5, 6)), "iij,jkk->ik": ((3, 3, 4), (4, 5, 5)),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)), "iii->i": ((4, 4, 4),),
    "iijj->ij": ((2, 2, 3, 3),), "ijij->ji": ((2, 3, 2, 3),), ",ij": ((), (2, 3)), ",": ((), ()),
    "ij,jk->k": ((1, 1), (3, 4)), "ij,kj->": ((3, 4), (5, 4)), "ii,i->i": ((0, 0), (0,)),
    "ij->": ((0, 3),), "ij->j": ((0, 3),), "ij,jk->ik#1": ((1, 1), (1, 1)),
    " i j , j k -> i k ": ((2, 3), (3, 2)), "aB,Bc->ca": ((2, 3), (3, 4)),
    "cB,Ba": ((2, 3), (3, 4)),
    "ij,j,jk,k->i": ((17, 13), (13,), (13, 11), (11,)), "i,i,i->": ((5,), (5,), (5,)),
    "...ij,...jk->...ik": ((5, 1, 2, 3), (4, 3, 2)),
}  # fmt: skip


@pytest.mark.parametrize("subscripts", CASES)
@pytest.mark.few(15)
def test_as_numpy(subscripts):
    rng = np.random.default_rng(0)
    check(subscripts.partition("#")[0], *[rng.normal(size=s) for s in CASES[subscripts]])


@pytest.mark.parametrize("t", ("int8", "uint16", "int32", "int64", "float32", "float64"))
def test_dtypes(t):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 9, s).astype(t) for s in ((3, 4), (4, 2)))
    check("ij,jk->ik", a, b, within=0)
    check("ij->j", a, within=0)


def test_float16_is_rounded_after_a_product():
    a = np.random.default_rng(0).normal(size=(40, 60)).astype("f2")
    got = uopc.compile(einsum("ij,kj->ik", *[uopc.param("a", a.shape, dtypes.float16)] * 2))(a)
    want = (a.astype("f8") @ a.astype("f8").T).astype("f2")
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_operands_promote():
    a, b = np.arange(6, dtype="i2").reshape(2, 3), np.ones(3, "f8")
    check("ij,j", a, b)
    x = uopc.param("x", (3,), dtypes.float32)
    assert einsum(",i", 2, x).dtype is dtypes.float32
    np.testing.assert_array_equal(uopc.compile(einsum(",i", 2, x))(np.ones(3, "f4")), [2, 2, 2])


def test_a_matrix_product_is_the_graph_of_matmul():
    x, y = uopc.param("x", (3, 4)), uopc.param("y", (4, 5))
    assert einsum("ij,jk->ik", x, y) is x @ y


def test_a_chain_takes_the_cheap_order():
    """A vector at the end of a chain meets the last matrix first: no product of matrices."""
    a, v = uopc.param("a", (64, 64)), uopc.param("v", (64,))
    shapes = {u.shape for u in einsum("ij,jk,k->i", a, a.exp(), v).toposort() if u.op.name == "mul"}
    assert max(map(len, shapes)) == 2


@pytest.mark.parametrize("size", (1, 2, 13))
def test_symbolic_sizes(size):
    n = uopc.variable("n", 1, 50)
    x, y = uopc.param("x", (n, n), dtypes.float64), uopc.param("y", (n, 3), dtypes.float64)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(size, size)), rng.normal(size=(size, 3))
    for subscripts in ("ij,jk->ik", "ii,ij->ij", "ii,jk->k"):
        got = uopc.compile(einsum(subscripts, x, y), inputs=[x, y])(a, b)
        np.testing.assert_allclose(got, np.einsum(subscripts, a, b), atol=1e-12)


@st.composite
def products(draw):
    sizes = {c: draw(st.integers(0, 4)) for c in "abcd"}
    texts = draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=3))
    given = sorted(set("".join(texts)))
    output = draw(st.permutations(given))[: draw(st.integers(0, len(given)))] if given else []
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = [rng.integers(-5, 6, [sizes[c] for c in t]).astype("f8") for t in texts]
    return f"{','.join(texts)}->{''.join(output)}", arrays


@given(products())
@settings(deadline=None, max_examples=60)
def test_any_product(case):
    check(case[0], *case[1])


@pytest.mark.parametrize(
    "subscripts, shapes, problem",
    [
        ("ij,jk", ((3, 4),), "names 2 operands, 1 are given"),
        ("ij", ((3, 4, 5),), r"operand 0 has 3 axes \(3, 4, 5\), 'ij' names 2"),
        ("i...jk", ((3, 4),), "names at least 3"),
        ("ij,jk->ik", ((3, 4), (5, 6)), "the axis 'j' has the sizes 4 and 5"),
        ("...,...", ((3,), (4,)), "the axis -1 of '...' has the sizes 3 and 4"),
        ("ii->i", ((3, 4),), "the axes 'i' of one operand differ"),
        ("ij->ijk", ((3, 4),), "no operand has the axis 'k' of the result"),
        ("ij->iji", ((3, 4),), "the result has the axis 'i' twice"),
        ("...i->i", ((3, 4),), r"the result needs '\.\.\.'"),
        ("i1", ((3, 4),), "'1' names no axis"),
        ("i->j->k", ((3,),), "'-' names no axis"),
        ("i......", ((3,),), r"'\.' names no axis"),
        ("i..", ((3,),), r"'\.' names no axis"),
        ("ä", ((3,),), "names no axis"),
    ],
)
def test_errors_name_the_subscripts(subscripts, shapes, problem):
    with pytest.raises(uopc.UserError, match=problem) as caught:
        einsum(subscripts, *[uopc.param(f"p{i}", s) for i, s in enumerate(shapes)])
    assert repr(subscripts) in str(caught.value)


def test_subscripts_that_are_no_string():
    x = uopc.param("x", (3,))
    with pytest.raises(TypeError, match="the subscripts must be a string"):
        einsum(x, [0])


def test_numpy_reaches_it():
    x, y = uopc.param("x", (3, 4)), uopc.param("y", (4, 5))
    assert np.einsum("ij,jk->ik", x, y) is x @ y
    assert np.einsum("ij,jk->ik", x, y, optimize=False) is x @ y
    a = unp.asarray(np.arange(9.0).reshape(3, 3))
    assert float(unp.einsum("ii", a)) == 12
