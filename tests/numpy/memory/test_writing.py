"""Writes through views: results and the caller's arrays are what NumPy leaves."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests.numpy.memory.idioms import IDIOMS, X

OUTSIDE = np.zeros(6)
each = pytest.mark.parametrize("name", IDIOMS)
# Sizes that only a call knows: no split into equal parts, no shape written as numbers.
OF_ANY_SIZE = sorted(IDIOMS.keys() - {
    "reshaped", "reshaped_copy", "raveled", "transposed", "rows", "diagonals", "loop", "split",
    "diagonal_of_a_row", "squeezed", "flipped", "a_broadcast_view_reads_anew", "negative_steps",
    "broadcast_write", "swapped_aliases", "swapped_views",
})  # fmt: skip
# What NumPy makes in a function holds traced values where the function's own names reach it.
BY_NAME = {"creators", "cast_on_write"}
SMOOTH = sorted(IDIOMS.keys() - {"same_kind", "masked_copy"} - BY_NAME)
OF_ELEMENTS = sorted(IDIOMS.keys() - {"masked_copy"} - BY_NAME)  # no lengths that values decide


def leaves(tree):
    if isinstance(tree, (tuple, list)):
        return [v for part in tree for v in leaves(part)]
    return [np.asarray(tree)]


def check(got, want):
    assert len(leaves(got)) == len(leaves(want))
    for g, w in zip(leaves(got), leaves(want)):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-12 if w.itemsize == 8 else 1e-5)


def of_numpy(f, *arrays):
    """The results and the arguments as NumPy leaves them."""
    given = [a.copy() for a in arrays]
    return copy.deepcopy(f(*given)), given


@each
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_jit_writes_as_numpy(name, dtype):
    x = X.astype(dtype)
    want, after = of_numpy(IDIOMS[name], x)
    f = uopc.jit(IDIOMS[name])
    for _ in range(2):  # the second call takes the fast way
        given = x.copy()
        got = f(given)
        check(got, want)
        check(given, after[0])


@pytest.mark.parametrize("name", sorted(IDIOMS.keys() - BY_NAME))
def test_eager_arrays_are_written_as_numpys(name):
    want, after = of_numpy(IDIOMS[name], X)
    x = unp.asarray(X)
    check(IDIOMS[name](x), want)
    check(x, after[0])


@each
def test_a_copy_that_is_not_contiguous_is_written(name):
    want, after = of_numpy(IDIOMS[name], X)
    wide = np.zeros((6, 2))
    wide[:, 1] = X
    check(uopc.jit(IDIOMS[name])(wide[:, 1]), want)
    check(wide[:, 1], after[0])
    assert not wide[:, 0].any()


@pytest.mark.parametrize("name", sorted(IDIOMS.keys() - BY_NAME))
def test_in_a_container_and_by_a_helper(name):
    def f(d):
        return IDIOMS[name](d["x"])

    want, after = of_numpy(IDIOMS[name], X)
    given = {"x": X.copy()}
    check(uopc.jit(f)(given), want)
    check(given["x"], after[0])


@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_symbolic_sizes(name):
    f = uopc.jit(IDIOMS[name], dims={"x": (uopc.variable("n", 6, 100),)})
    for x in (X, X * 2):
        want, after = of_numpy(IDIOMS[name], x)
        given = x.copy()
        check(f(given), want)
        check(given, after[0])


def total(name):
    def f(x):
        y = x * 1.0
        made = IDIOMS[name](y)
        parts = made if isinstance(made, tuple) else (made,)
        return sum([(v * v).sum() for v in (*parts, y)])

    return f


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_by_differences(name):
    f = total(name)
    x, step = X * 1.01 + 0.013, 1e-6
    got = uopc.grad(f)(x)
    for i in range(6):
        e = np.zeros(6)
        e[i] = step
        want = (f(x + e) - f(x - e)) / (2 * step)
        np.testing.assert_allclose(got[i], want, rtol=1e-5, atol=1e-5)
    _, tangent = uopc.jvp(f, (x,), (np.ones(6),))
    np.testing.assert_allclose(tangent, got.sum(), rtol=1e-9)


@pytest.mark.parametrize("name", OF_ELEMENTS)
def test_vmap(name):
    def f(x):
        y = x * 1.0
        return IDIOMS[name](y), y

    batch = np.stack([X, X[::-1], X + 1])
    rows = [f(x) for x in batch]
    got = uopc.vmap(f)(batch)
    want = [np.stack(c) for c in zip(*[leaves(r) for r in rows])]
    check(got, want)


@pytest.mark.parametrize("name", OF_ELEMENTS)
def test_scan(name):
    def f(carry, x):
        y = x + 0.0
        made = IDIOMS[name](y)
        carry += leaves_of(made)[0].sum() + y[0]
        carry[0] += 1
        return carry, y

    def leaves_of(tree):
        return tree if isinstance(tree, tuple) else (tree,)

    batch, carry, ys = np.stack([X, X[::-1]]), np.zeros(2), []
    for x in batch:
        carry, y = f(carry, x)
        ys.append(y.copy())
    check(uopc.scan(f, np.zeros(2), batch), (carry, np.stack(ys)))


@pytest.mark.parametrize("name", sorted(IDIOMS.keys() - BY_NAME))
def test_cond(name):
    def f(x):
        def written(x):
            IDIOMS[name](x)
            return x

        return uopc.cond(x[0] > 2, written, lambda x: x + 1, x)

    want = X.copy()
    IDIOMS[name](want)
    given = X.copy()
    check(uopc.jit(f)(given), want)
    check(given, X)  # a body writes its own argument
    check(uopc.jit(f)(X * 0), X * 0 + 1)


def test_while_loop_writes_its_carry():
    def body(c):
        i, x = c
        x[1:] += x[:-1]
        return i + 1, x

    want = X.copy()
    for _ in range(4):
        want[1:] += want[:-1]
    got = uopc.while_loop(lambda c: c[0] < 4, body, (0, X))[1]
    np.testing.assert_allclose(got, want)


# ---------------------------------------------------------------- arguments and results
def test_a_returned_argument_is_the_callers_object():
    f = uopc.jit(lambda x, y: (x, x[::2], y.T, x + 1))
    x, y = X.copy(), np.ones((2, 3))
    for _ in range(2):
        a, b, c, d = f(x, y)
        assert a is x and np.shares_memory(b, x) and c.base is y and not np.shares_memory(d, x)
        b[0] = 9
        assert x[0] == 9


def test_errors_of_arguments_that_are_written():
    def f(x, y):
        x += y
        return x

    f = uopc.jit(f)
    frozen = X.copy()
    frozen.flags.writeable = False
    with pytest.raises(uopc.UserError, match="'x' is written, but the array is read-only"):
        f(frozen, X)
    both = X.copy()
    with pytest.raises(uopc.UserError, match="overlaps"):
        f(both, both)
    wide = np.zeros(12)
    with pytest.raises(uopc.UserError, match="overlaps"):
        f(wide[::2], wide[:6])
    with pytest.raises(uopc.UserError, match="read-only"):
        narrow = np.zeros(12)
        narrow.flags.writeable = False
        f(narrow[::2], X)
    np.testing.assert_array_equal(f(X.copy(), X), X * 2)


def test_a_number_as_an_argument_is_not_written():
    def f(s, x):
        s += 1
        return s, x * s

    f = uopc.jit(f)
    whole = np.array(2.0)
    assert f(np.float64(2.0), X)[0] == 3 and f(2.0, X)[0] == 3
    assert f(whole, X)[0] is whole and whole == 3
    assert f(np.float64(2.0), X)[0] == 3  # NumPy's scalars stay numbers


def test_writes_that_are_errors():
    captured = unp.zeros(3)

    def writes_a_captured_array(x):
        captured[0] = x[0]
        return x

    with pytest.raises(uopc.UserError, match="writes to an array from outside") as error:
        uopc.jit(writes_a_captured_array)(X)
    assert "pass the array as an argument" in str(error.value)
    with pytest.raises(uopc.UserError, match="scan runs writes to an array from outside"):

        def f(x):
            def body(c, v):
                x[0] = v
                return c, v

            return uopc.scan(body, 0.0, x)

        uopc.jit(f)(X.copy())
    for wrong, words in (
        (lambda x: x.__setitem__(slice(None), x[:3]), "do not broadcast"),
        (lambda x: x.__setitem__(7, 1.0), "index 7 is out of range"),
        (lambda x: np.broadcast_to(x, (2, 6)).__setitem__(0, 1.0), "read-only"),
        (lambda x: np.diagonal(np.outer(x, x)).__setitem__(0, 1.0), "read-only"),
        (lambda x: np.argsort(x).__iadd__(x), "does not cast to int64 in place"),
        (lambda x: x.__iadd__(np.ones((2, 6))), "shape"),
        (lambda x: np.add(x, 1, out=OUTSIDE), "from outside of it"),
        (lambda x: x.__setitem__(0, 1j), "complex"),
        (lambda x: np.argsort(x).__setitem__(0, float("nan")), "does not fit int64"),
        (lambda x: x.__setitem__((x > 1)[:3], 1.0), "first dimensions"),
    ):
        with pytest.raises((uopc.UserError, IndexError), match=words):
            uopc.jit(wrong)(X)


def test_a_reshape_that_only_a_call_knows_is_not_written_in_silence():
    def f(x):
        y = x[1:].reshape(-1)
        y[0] = 3
        return x

    def g(x):
        y = x[1:].reshape(-1)
        x[1] = 3
        return y

    dims = {"x": (uopc.variable("n", 2, 9),)}
    for wrong in (f, g):
        with pytest.raises(uopc.UserError, match="whether reshape gives a view"):
            uopc.jit(wrong, dims=dims)(X)


def test_threads_write_their_own_arrays():
    def f(x):
        for i in range(1, 6):
            x[i] += x[i - 1]
        return x * 2

    f, wrong = uopc.jit(f), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for n in range(30):
            x = rng.random(6)
            want = np.cumsum(x)
            g = f if n % 3 else uopc.jit(f.__wrapped__)
            got = g(x)
            if not (np.allclose(x, want) and np.allclose(got, 2 * want)):
                wrong.append(seed)

    with ThreadPoolExecutor(2) as workers:  # raises what a worker raises
        list(workers.map(work, range(2)))
    assert not wrong


def test_asarray_copies_as_it_is_told():
    x = unp.asarray([1.0, 2.0])
    assert unp.asarray(x) is x and unp.asarray(x, copy=False) is x
    y = unp.asarray(x, copy=True)
    x[0] = 7
    assert (x.tolist(), y.tolist()) == ([7.0, 2.0], [1.0, 2.0])
    with pytest.raises(uopc.UserError, match="is a copy"):
        unp.asarray(x, dtype="f4", copy=False)


def test_kernels_that_are_asked_about_know_no_lengths():
    """The elements that a mask holds move twice, and the program asks for the cost of its parts."""

    def step(f, walls):
        for _ in range(2):
            for i in range(9):
                f[:, :, i] = np.roll(f[:, :, i], (i % 3 - 1, i // 3 - 1), axis=(1, 0))
            turned = f[walls, :][:, [0, 5, 6, 7, 8, 1, 2, 3, 4]]
            rho = f.sum(2)
            speed = (f * np.arange(9)).sum(2) / rho
            f[walls, :] = turned
            speed[walls] = 0
            rest = np.zeros(f.shape)
            for i in range(9):
                rest[:, :, i] = rho * (1 + i * speed)
            f += 0.1 * (f - rest)
        return f

    f = np.random.default_rng(0).random((60, 160, 9))
    walls = np.random.default_rng(1).random((60, 160)) < 0.1
    np.testing.assert_allclose(uopc.jit(step)(f.copy(), walls), step(f.copy(), walls), rtol=1e-9)
