"""Indexing, selections and assignment against NumPy, through the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import uopc
from tests.reference import SEED, as_param, run, same, values
from uopc.errors import Unsupported, UserTypeError
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=6)


def ops(graph):
    return {u.op for u in graph.toposort()}


# ---------------------------------------------------------------- a[key]
@settings(max_examples=300, deadline=None)
@given(shape=shapes, data=st.data())
def test_basic_keys(shape, data):
    a = np.arange(np.prod(shape)).reshape(shape).astype("i4")
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    same(run(lambda x: x[key], a), np.asarray(a[key]))


def draw_item(draw, n, block):
    """A part of a key, for an axis of size n; arrays of one key broadcast."""
    kind = draw(st.sampled_from(["int", "slice", "array", "column"]))
    if kind == "int":
        return draw(st.integers(-n, n - 1))
    if kind == "slice":
        return draw(st.slices(n))
    dims = block if kind == "array" else (*block[:-1], 1)
    return SEED.integers(-n, n, dims).astype(draw(st.sampled_from("bil")))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_keys_with_index_arrays(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5))
    a = np.arange(np.prod(shape)).reshape(shape).astype("i4")
    block = data.draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=3))
    first = data.draw(st.integers(0, len(shape)))
    last = data.draw(st.integers(first, len(shape)))
    key = [draw_item(data.draw, n, block) for n in shape[:first]]
    rest = [draw_item(data.draw, n, block) for n in shape[last:]]
    if last < len(shape) or data.draw(st.booleans()):
        key.append(...)
    key += rest
    for _ in range(data.draw(st.integers(0, 2))):
        key.insert(data.draw(st.integers(0, len(key))), None)
    key = tuple(key)
    expected = np.asarray(a[key])
    same(run(lambda x: x[key], a), expected)
    arrays = [k for k in key if isinstance(k, np.ndarray)]  # the same key with arrays from outside

    def from_params(x, *indices):
        rest = iter(indices)
        return x[tuple([next(rest) if isinstance(k, np.ndarray) else k for k in key])]

    same(run(from_params, a, *arrays), expected)


def test_keys_that_are_not_tuples():
    a = np.arange(24).reshape(2, 3, 4)
    for key in (1, -1, np.int64(1), slice(None), None, ..., [0, 1, 0], [[0], [1]], np.array(1), []):
        same(run(lambda x, key=key: x[key], a), np.asarray(a[key]))


def test_slices_are_movement_only():
    x = uopc.param("x", (6, 7, 8))
    assert Ops.INDEX not in ops(x[1:3, ::-1, 5, None])
    assert Ops.INDEX not in ops(x[::2, ::-3, 1:7:5])
    assert Ops.PAD not in ops(x[::2])
    assert Ops.PAD not in ops(x[:, 5::-3])
    assert Ops.PAD in ops(x[:, ::2])
    assert x[:] is x
    assert x[...] is x
    assert x[0:6, 0:100] is x


def test_scalars_from_data():
    a, i = np.arange(10, dtype="f4"), np.array(-3, "i4")
    same(run(lambda x, y: x[y], a, i), np.asarray(a[-3]))
    same(run(lambda x, y: x[y], a, np.array(12, "i4")), np.float32(0))
    b = np.arange(20, dtype="i4").reshape(4, 5)
    same(run(lambda x, y: x[1:, y], b, np.array(2)), b[1:, 2])


def test_data_out_of_range_reads_zero():
    a = np.arange(1, 6, dtype="f4")
    i = np.array([0, 4, 5, -5, -6, 127, -128], "i1")
    expected = np.array([1, 5, 0, 1, 0, 0, 0], "f4")
    same(run(lambda x, y: x[y], a, i), expected)
    same(run(lambda x, y: x.take(y, 0), a, i), expected)
    same(run(lambda x, y: x.gather(0, y), a, i), expected)
    same(run(lambda x, y: x[y], np.zeros((0,), "f4"), i), np.zeros(7, "f4"))


def test_indices_known_to_be_in_range_are_not_checked():
    i = uopc.param("i", (5,), dtypes.uint8)
    assert Ops.INVALID not in ops(uopc.param("x", (256,))[i])
    assert Ops.INVALID in ops(uopc.param("x", (255,))[i])
    assert Ops.INVALID not in ops(uopc.param("x", (10,))[[1, -1]])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((0, 0, 0), "too many indices: 3 for shape"),
        ((..., ...), "one ellipsis"),
        (4, "index 4 is out of range for axis 0 of size 4"),
        ((0, -6), "index -6 is out of range for axis 1 of size 5"),
        ([0, 9], "index 9 is out of range for axis 0"),
        ("a", "an index must be an int"),
        (1.0, "an index must be an int"),
        ([1.5], "of integers, got float64"),
        (slice(None, None, 0), "the step of a slice"),
        (slice(1.5), "a bound of a slice must be an int"),
    ],
)
def test_wrong_keys(key, message):
    with pytest.raises(uopc.UserError, match=message):
        uopc.param("x", (4, 5))[key]


def test_wrong_keys_from_uops():
    x = uopc.param("x", (4, 5))
    with pytest.raises(UserTypeError, match="of integers, got float32"):
        x[uopc.param("i", (2,))]
    for mask in (uopc.param("m", (), dtypes.bool), True, np.True_):
        with pytest.raises(Unsupported, match="a boolean mask as an index"):
            x[mask]


def test_iteration_ends():
    a = np.arange(6, dtype="f4").reshape(3, 2)
    rows = list(as_param(a))
    assert [r.shape for r in rows] == [(2,)] * 3
    first, second, third = as_param(a)
    assert (first, second, third) == tuple(rows)


# ---------------------------------------------------------------- variables in keys
def with_variables(graph, a, **values_of):
    return interpreter.evaluate(graph, {"x": a}, values_of)


def test_variables_as_bounds():
    x, pos = uopc.param("x", (3, 16)), uopc.variable("pos", 0, 15)
    a = values((3, 16))
    graph = x[:, pos : pos + 1]
    assert graph.shape == (3, 1)
    assert ops(graph) <= {Ops.PARAM, Ops.VARIABLE, Ops.SHRINK}
    upto, after, one = x[:, : pos + 1], x[:, pos:], x[:, pos]
    assert Ops.INDEX not in ops(one)
    last = x[:, -(pos + 1)]
    for p in (0, 7, 15):
        same(with_variables(graph, a, pos=p), a[:, p : p + 1])
        same(with_variables(upto, a, pos=p), a[:, : p + 1])
        same(with_variables(after, a, pos=p), a[:, p:])
        same(with_variables(one, a, pos=p), a[:, p])
        same(with_variables(last, a, pos=p), a[:, -(p + 1)])


@pytest.mark.slow
def test_variables_as_bounds_with_steps():
    x, i, j = uopc.param("x", (16,)), uopc.variable("i", -20, 20), uopc.variable("j", -20, 20)
    a = np.arange(16, dtype="f4")
    for step in (1, 2, -1, -3):
        both, begin, end = x[i:j:step], x[i::step], x[:j:step]
        for p in range(-18, 19, 4):
            same(with_variables(begin, a, i=p), a[p::step])
            for q in range(-18, 19, 3):
                same(with_variables(both, a, i=p, j=q), a[p:q:step])
        for q in range(-18, 19, 3):
            same(with_variables(end, a, j=q), a[:q:step])


def test_slices_of_a_symbolic_axis():
    n = uopc.variable("n", 1, 40)
    x = uopc.param("x", (n, 2))
    bounds = [(None, None, -1), (-3, None), (2, 5), (None, -1), (None, None, 3), (1, None, -2),
              (10, 3, -2), (-4, 2)]  # fmt: skip
    keys = [*(slice(*b) for b in bounds), -1, 0, 3, -2]
    for key in keys:
        graph = x[key]
        for size in (1, 2, 3, 11, 40):
            a = values((size, 2))
            if isinstance(key, int) and not -size <= key < size:
                with pytest.raises(uopc.UserError, match=r"index .* of axis 0"):
                    interpreter.evaluate(graph, {"x": a})
            else:
                same(interpreter.evaluate(graph, {"x": a}), a[key])


def test_variables_out_of_range():
    x = uopc.param("x", (16,))
    pos = uopc.variable("pos", 0, 16)
    with pytest.raises(uopc.UserError, match=r"slice pos:\(pos\+1\) may leave the axis of size 16"):
        x[pos : pos + 1]
    with pytest.raises(uopc.UserError, match="pos is 16, expected below 16"):
        with_variables(x[pos], np.ones(16, "f4"), pos=16)
    mixed = uopc.variable("mixed", -16, 15)
    a = values((16,))
    for p in (-16, -1, 0, 15):
        same(with_variables(x[mixed], a, mixed=p), np.asarray(a[p]))
    assert x[uopc.variable("step", 0, 20) :].shape[0].vmin == 0


# ---------------------------------------------------------------- take, gather, one_hot, triangles
@settings(max_examples=200, deadline=None)
@given(shape=shapes, block=hnp.array_shapes(min_dims=0, max_dims=2, min_side=0), data=st.data())
def test_take(shape, block, data):
    a = values(shape)
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    n = a.size if axis is None else shape[axis]
    assume(n)
    i = np.asarray(SEED.integers(-n, n, block)).astype("i4")
    expected = np.asarray(np.take(a, i, axis))
    same(run(lambda x, y: x.take(y, axis), a, i), expected)
    same(run(lambda x: x.take(i.tolist() if i.size else i, axis), a), expected)


def test_an_index_of_64_bits_without_sign_is_outside_from_the_end_on():
    """2^64 - 1 is no -1: optimised or not, nothing is there."""
    x, i = uopc.param("x", (8,)), uopc.param("i", (6,), dtypes.uint64)
    a = np.arange(1, 9, dtype=np.float32)
    places = np.array([0, 7, 8, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    for graph in (x.take(i), x.gather(0, i)):
        for optimize in (True, False):
            got = uopc.compile(graph, optimize=optimize)(x=a, i=places)
            assert got.tolist() == [1, 8, 0, 0, 0, 0]


@pytest.mark.parametrize("optimize", [True, False])
def test_an_index_that_is_outside_is_not_stored(optimize):
    """Sums are worth storing, but of an INVALID element storage would have what was there before:
    any place of memory was read."""
    x, i = uopc.param("x", (16, 3, 4)), uopc.param("i", (11, 5), dtypes.int32)
    a = np.arange(1, 193, dtype=np.float32).reshape(16, 3, 4)
    steps = SEED.integers(-9, 10, (11, 5)).astype("i4")
    places = 2 * steps.cumsum(1)
    inside = (places >= -3) & (places < 3)
    assert not inside.all()
    expected = np.where(inside[..., None], a[:, np.where(inside, places, 0)], 0)
    sums = i.cumsum(1)
    program = uopc.compile(x.take(sums + sums, 1), optimize=optimize)
    np.testing.assert_array_equal(program(x=a, i=steps), expected)


def test_take_errors():
    x = uopc.param("x", (3, 4))
    with pytest.raises(uopc.UserError, match="index 3 is out of range"):
        x.take([0, 3], 0)
    with pytest.raises(uopc.UserError, match="take: axis 2 is out of range"):
        x.take([0], 2)


@settings(max_examples=200, deadline=None)
@given(shape=hnp.array_shapes(min_dims=1, max_dims=4, max_side=5), data=st.data())
def test_gather(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    place = axis % len(shape)
    wanted = [data.draw(st.integers(0 if d != place else 1, n)) for d, n in enumerate(shape)]
    wanted[place] = data.draw(st.integers(0, 7))
    a = values(shape)
    i = SEED.integers(-shape[place], shape[place], wanted)
    inside = tuple(slice(None) if d == place else slice(w) for d, w in enumerate(wanted))
    same(run(lambda x, y: x.gather(axis, y), a, i), np.take_along_axis(a[inside], i, axis))


def test_gather_errors():
    x = uopc.param("x", (3, 4))
    with pytest.raises(uopc.UserError, match="as many dimensions"):
        x.gather(0, uopc.param("i", (3,), dtypes.int32))
    with pytest.raises(uopc.UserError, match="longer"):
        x.gather(0, uopc.param("i", (3, 5), dtypes.int32))
    with pytest.raises(UserTypeError, match="of integers"):
        x.gather(0, x)


@pytest.mark.parametrize("t", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("n", [1, 5, 300])
def test_one_hot(t, n):
    a = (SEED.integers(0, n, (3, 4)) % 128).astype(t)
    same(run(lambda x: x.one_hot(n), a), np.eye(n, dtype="f4")[a])
    same(run(lambda x: x.one_hot(n, dtypes.bool), a), np.eye(n, dtype=bool)[a])
    outside = np.array([n if n < 128 else 127, 100], t)
    assert run(lambda x: x.one_hot(n), outside).sum() <= 2


def test_one_hot_of_what_is_outside():
    assert not run(lambda x: x.one_hot(3), np.array([-1, 3, 100], "i4")).any()
    with pytest.raises(UserTypeError, match="needs integers, got float32"):
        uopc.param("x", (2,)).one_hot(3)


@settings(max_examples=100, deadline=None)
@given(shape=hnp.array_shapes(min_dims=2, max_dims=3, min_side=0), k=st.integers(-7, 7))
def test_triangles(shape, k):
    a = values(shape)
    a[a < -2] = np.nan
    same(run(lambda x: x.tril(k), a), np.tril(a, k))
    same(run(lambda x: x.triu(k), a), np.triu(a, k))


def test_triangles_of_a_vector():
    with pytest.raises(uopc.UserError, match="tril: needs two dimensions"):
        uopc.param("x", (3,)).tril()


# ---------------------------------------------------------------- axes
def test_transpose():
    a = values((2, 3, 4))
    same(run(lambda x: x.transpose(), a), a.transpose())
    same(run(lambda x: x.transpose(0, -1), a), a.swapaxes(0, -1))
    same(run(lambda x: x.transpose(1, 2, 0), a), a.transpose(1, 2, 0))
    same(run(lambda x: x.transpose((2, 0, 1)), a), a.transpose(2, 0, 1))
    x = uopc.param("x", (2, 3))
    assert x.transpose((0, 1)) is x
    assert x.transpose(0, 1).shape == (3, 2)
    assert x.transpose().transpose() is x
    with pytest.raises(uopc.UserError, match="not a permutation"):
        x.transpose((0, 0))


def test_flatten_squeeze_unsqueeze():
    x = uopc.param("x", (2, 1, 3, 1))
    assert x.flatten().shape == (6,)
    assert x.flatten(1).shape == (2, 3)
    assert x.flatten(0, 2).shape == (6, 1)
    assert uopc.param("s").flatten().shape == (1,)
    assert x.squeeze().shape == (2, 3)
    assert x.squeeze(1).shape == (2, 3, 1)
    assert x.squeeze((1, -1)).shape == (2, 3)
    assert x.unsqueeze(0).shape == (1, 2, 1, 3, 1)
    assert x.unsqueeze(-1).shape == (2, 1, 3, 1, 1)
    with pytest.raises(uopc.UserError, match="not of size 1"):
        x.squeeze(0)
    with pytest.raises(uopc.UserError, match="unsqueeze: axis 5 is out of range"):
        x.unsqueeze(5)
    with pytest.raises(uopc.UserError, match="axis 2 comes after axis 1"):
        x.flatten(2, 1)


# ---------------------------------------------------------------- assign
def written(a, view, value):
    """The value of the assignment, and the array after it."""
    target = a.copy()
    out = interpreter.evaluate(view(as_param(a)).assign(value), {"x": target})
    return out, target


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x[1:3],
        lambda x: x[:, 2],
        lambda x: x[::-1, 1:4],
        lambda x: x[::2],
        lambda x: x[3::-2, ::3],
        lambda x: x.transpose()[1:],
        lambda x: x.reshape((20,))[3:11],
    ],
)
def test_assign(view):
    a = values((4, 5))
    expected = a.copy()
    part = view(expected)
    value = values(part.shape)
    part[...] = value
    out, target = written(a, view, uopc.constant(value))
    same(out, value)
    same(target, expected)


def test_assign_broadcasts():
    a = np.zeros((4, 5), "f4")
    out, target = written(a, lambda x: x[1:3], uopc.constant(np.arange(5, dtype="f4")))
    same(out, np.broadcast_to(np.arange(5, dtype="f4"), (2, 5)))
    same(target[1:3], out)
    _, target = written(a, lambda x: x[1:3], 7)
    assert target.sum() == 70


def test_assign_reads_before_it_writes():
    a = np.arange(6, dtype="i4")
    target = a.copy()
    x = as_param(a)
    same(interpreter.evaluate(x.assign(x[::-1] * 2), {"x": target}), a[::-1] * 2)
    same(target, a[::-1] * 2)


def test_assign_twice():
    x = uopc.param("x", (4,))
    once = x[:2].assign(1)
    target = np.zeros(4, "f4")
    graph = x.after(once.src[1]).assign(x.after(once.src[1]) + 1)
    interpreter.evaluate(graph, {"x": target})
    same(target, np.array([2, 2, 1, 1], "f4"))


def test_assign_at_a_variable():
    x, pos = uopc.param("x", (2, 8)), uopc.variable("pos", 0, 7)
    target = np.zeros((2, 8), "f4")
    graph = x[:, pos : pos + 1].assign(uopc.param("k", (2, 1)))
    interpreter.evaluate(graph, {"x": target, "k": np.ones((2, 1), "f4")}, {"pos": 5})
    assert target[:, 5].tolist() == [1, 1]
    assert target.sum() == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: (x + 1).assign(x), "not the result of add"),
        (lambda x: x.reshape((4, 5, 1)).expand((4, 5, 2)).assign(0.0), "not the result of expand"),
        (lambda x: x[[0, 1]].assign(0.0), "not the result of index"),
        (lambda x: x.assign(x.cast(dtypes.float64)), "target is float32, the value float64"),
        (lambda x: x[0].assign(x), r"\(4, 5\) does not fit \(5\)"),
        (lambda x: x[0].assign(x[0, :3]), "do not broadcast"),
        (lambda x: uopc.zeros((3,)).assign(1), "the target must be a param"),
    ],
)
def test_wrong_assignments(make, message):
    with pytest.raises(uopc.UserError, match=message):
        make(uopc.param("x", (4, 5)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("index", ["int32", "int64", "uint32"])
@pytest.mark.parametrize("n", [4, 8, 37])
@pytest.mark.few(5)
def test_places_that_are_read_moved_or_masked(n, index, dtype):
    """Each lane's place is read as it is, comes out of a vector in a pair, or is under a mask."""
    rng = np.random.default_rng(n)
    a = (rng.random(50) * 100).astype(dtype)
    i = rng.integers(0, 50, n).astype(index)
    i[::3] += 50
    x = uopc.param("x", a.shape, getattr(uopc.dtypes, dtype))
    places = uopc.param("i", i.shape, getattr(uopc.dtypes, index))
    inside = (places < 50).where(places, 49)
    graphs = [x.take(inside, axis=0), (places < 50).where(x.take(inside, axis=0), 0)]
    plain = i % 50
    graphs.append(x.take(uopc.param("p", i.shape, getattr(uopc.dtypes, index)), axis=0))
    got = uopc.compile(graphs, verify=True)(x=a, i=i, p=plain)
    want = [a[np.minimum(i, 49)], np.where(i < 50, a[np.minimum(i, 49)], 0), a[plain]]
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
