"""Every layout of a graph gives what one device gives, on all devices in lockstep."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests.meshes import check, kinds, partitioned, r, rng, run
from uopc import Ops, P, dtypes, make_mesh
from uopc.ir.core import walk
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import GroupOp
from uopc.ir.verify.verifier import verify


@pytest.mark.parametrize("p", [2, 3, 8])
@pytest.mark.parametrize("spec", [P("m"), P(None, "m"), P()])
def test_elementwise_and_reduces(p, spec):
    mesh = make_mesh((p,), ("m",))
    x, y = uopc.param("x", (12, 10)), uopc.param("y", (12, 10))
    a = {"x": r(12, 10), "y": r(12, 10)}
    z = (x * 2 + y).relu()
    outs = [z, z.sum(), z.sum(axis=0), z.max(axis=1), z.mean(axis=1), (-z).min(), z.argmax(axis=0)]
    check(outs, a, mesh, {"x": spec, "y": P(None, "m")})
    check([z.softmax(axis=0), z.softmax(axis=1), z.var(axis=0)], a, mesh, {"x": spec})


@pytest.mark.parametrize("p", [2, 4])
def test_products(p):
    mesh = make_mesh((p,), ("m",))
    x, w = uopc.param("x", (8, 12)), uopc.param("w", (12, 16))
    a = {"x": r(8, 12), "w": r(12, 16)}
    specs = (P(), P("m"), P(None, "m"))
    for sx, sw, out in itertools.product(specs, specs, (None, *specs)):
        check(x @ w, a, mesh, {"x": sx, "w": sw}, [out])


def test_a_transformer_block_has_the_exchanges_of_megatron():
    mesh = make_mesh((4,), ("m",))
    x, w, v = uopc.param("x", (8, 16)), uopc.param("w", (16, 12)), uopc.param("v", (12, 16))
    a = {"x": r(8, 16), "w": r(16, 12), "v": r(12, 16)}
    y = x + (x @ w.shard(P(None, "m"))).gelu() @ v.shard(P("m"))
    assert kinds(check(y, a, mesh, explicit=True)) == ["allreduce"]
    assert kinds(check(y.shard(P("m")), a, mesh)) in (["allreduce"], ["reduce_scatter"])


@pytest.mark.parametrize("p", [2, 3, 5])
@pytest.mark.parametrize("n", [12, 13])
@pytest.mark.parametrize("spec", [P("m"), P(None, "m")])
def test_windows(p, n, spec):
    mesh = make_mesh((p,), ("m",))
    x = uopc.param("x", (n, 6))
    a = {"x": r(n, 6)}
    outs = [x[1:], x[:-1], x[2:5], x.pad(((1, 2), (0, 1))), x[1:-1, 1:-1], x[:, 2:4]]
    check(outs, a, mesh, {"x": spec})
    q = x.pad(((1, 1), (1, 1)))
    five = q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:] - 4 * q[1:-1, 1:-1]
    found = check(five, a, mesh, {"x": spec})
    if n % p == 0 and spec == P("m"):
        assert kinds(found) == ["permute_ranks", "permute_ranks"]
        assert [u.shape for u in found] == [(1, 6), (1, 6)]
    check(x[1:].pad(((1, 0), (0, 0))), a, mesh, {"x": spec})  # the first row is hidden
    check(x[2:].cat(x[:2], axis=0), a, mesh, {"x": spec})
    check([x[::-1], x[::2], x[:, ::-1]], a, mesh, {"x": spec})


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_rows_that_go_around_the_end(p):
    """A periodic stencil asks each neighbour for a row; longer turns move parts at once."""
    mesh, a = make_mesh((p,), ("m",)), r(12, 3)
    x = uopc.param("x", (12, 3))
    for turn in (1, 4, 5, 11, -1):
        y = unp.roll(x, turn, 0)
        found = check(y, {"x": a}, mesh, {"x": P("m")})
        np.testing.assert_array_equal(uopc.compile(
            y, sharding=uopc.Sharding(mesh)
        )(a), np.roll(a, turn, 0))
        assert set(kinds(found)) <= {"permute_ranks"}
        assert sum([u.shape[0] for u in found]) <= 12 // p
    both = unp.roll(x, 1, 0) + unp.roll(x, -1, 0) - 2 * x
    found = check(both, {"x": a}, mesh, {"x": P("m")})
    assert [u.shape for u in found] == ([(1, 3)] * 2 if p > 1 else [])
    # Not a turn: a gap, an overlap, another order, uneven parts, a value that is still a sum.
    parts = (x[2:].cat(x[:1], axis=0), x[1:].cat(x[:2], axis=0), x[:5].cat(x[5:], axis=0))
    check([q * 2 for q in parts], {"x": a}, mesh, {"x": P("m")})
    check(unp.roll(x[1:], 3, 0), {"x": a}, mesh, {"x": P("m")})
    summed = uopc.param("w", (12, 12)) @ x
    check(unp.roll(summed, 3, 0), {"x": a, "w": r(12, 12)}, mesh, {"x": P("m")})


@pytest.mark.parametrize("spec", [P("m"), P(None, "m"), P(None, None, "m")])
@pytest.mark.parametrize("p", [2, 3])
def test_reshapes(p, spec):
    mesh = make_mesh((p,), ("m",))
    x = uopc.param("x", (8, 4, 6))
    outs = [
        x.reshape(32, 6), x.reshape(8, 24), x.reshape(2, 4, 4, 6), x.reshape(192),
        x.reshape(8, 2, 2, 6), x.permute(2, 0, 1).reshape(6, 32), x.reshape(16, 2, 6).sum(axis=1),
        x.reshape(1, 8, 1, 24, 1),
    ]  # fmt: skip
    check([o * 1.5 for o in outs], {"x": r(8, 4, 6)}, mesh, {"x": spec})


def test_gathers():
    mesh = make_mesh((4,), ("m",))
    t, i = uopc.param("t", (10, 6)), uopc.param("i", (7,), dtypes.int32)
    a = {"t": r(10, 6), "i": rng.integers(-10, 10, 7).astype("i4")}
    for st, si in itertools.product((P("m"), P(None, "m"), P()), (P(), P("m"))):
        check([t.take(i, axis=0), t[i] * 2], a, mesh, {"t": st, "i": si})


def test_whole_operands_whose_reader_is_cut_are_multiplied_in_parts():
    mesh = make_mesh((4,), ("m",))
    x, w, v, t = [uopc.param(n, d) for n, d in (
        ("x", (8, 6)), ("w", (6, 10)), ("v", (10, 12)), ("t", (8, 12)),
    )]  # fmt: skip
    a = {"x": r(8, 6), "w": r(6, 10), "v": r(10, 12), "t": r(8, 12)}
    y = ((x @ w).relu() @ v).reshape(8, 1, 12).permute(2, 1, 0)
    for value, spec, sizes in (
        (y, P(None, None, "m"), [2 * 10 * 6, 2 * 12 * 10]),
        (y, P("m"), [8 * 10 * 6, 8 * 3 * 10]),
        (y.permute(2, 1, 0).reshape(8, 12) + t.shard(P("m")), None, [2 * 10 * 6, 2 * 12 * 10]),
    ):
        assert not check(value, a, mesh, None, [spec])
        graph, _ = partitioned([value], mesh, None, [spec])
        sums = [u for u in graph.toposort() if u.op is Ops.REDUCE]
        assert [u.src[0].size for u in sums] == sizes
    both = check([y, (x @ w).sum()], a, mesh, None, [P("m"), P()])
    assert not both


def test_uneven_parts_of_whole_operands():
    mesh = make_mesh((3,), ("m",))
    x, w = uopc.param("x", (8, 6)), uopc.param("w", (6, 7))
    a = {"x": r(8, 6), "w": r(6, 7)}
    for spec in (P("m"), P(None, "m")):
        assert not check([x @ w, x.max(axis=1)], a, mesh, None, [spec, P("m")])


def test_convolution_by_batch_moves_nothing():
    mesh = make_mesh((2,), ("data",))
    x, w = uopc.param("x", (4, 3, 8, 8)), uopc.param("w", (5, 3, 3, 3))
    a = {"x": r(4, 3, 8, 8), "w": r(5, 3, 3, 3)}
    y = x.conv2d(w, padding=1).relu()
    assert not check(y, a, mesh, {"x": P("data")})
    for spec in (P(None, "data"), P(None, None, "data"), P(None, None, None, "data")):
        check(y, a, mesh, {"x": spec})


def test_two_axes():
    mesh = make_mesh((2, 2), ("data", "model"))
    x, w, v = uopc.param("x", (8, 16)), uopc.param("w", (16, 12)), uopc.param("v", (12, 16))
    a = {"x": r(8, 16), "w": r(16, 12), "v": r(12, 16)}
    y = (x @ w).relu() @ v
    both = [y, (y * y).sum()]
    found = check(both, a, mesh, {"x": P("data"), "w": P(None, "model"), "v": P("model")})
    assert kinds(found) == ["allreduce", "allreduce"]
    check(both, a, mesh, {"x": P("data"), "w": P("data", "model"), "v": P("model", "data")})
    check([y, y.sum(axis=0)], a, mesh, {"x": P(("data", "model")), "w": P(("model", "data"))})
    check([y], a, mesh, {"x": P(("data", "model"))}, [P("data", "model")])


_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


@pytest.mark.parametrize("t", _FLOATS, ids=str)
def test_nan_through_a_maximum(t):
    mesh = make_mesh((4,), ("m",))
    x = uopc.param("x", (8,), t)
    for at in range(8):
        v = rng.standard_normal(8).astype(t.numpy)
        v[at] = np.nan
        check([x.max(), x.min(), x.argmax()], {"x": v}, mesh, {"x": P("m")})
    v = np.array([-0.0, 0, -np.inf, -1, -2, -3, -4, -5]).astype(t.numpy)
    check([x.max(), x.min(), x.argmax()], {"x": v}, mesh, {"x": P("m")})


@pytest.mark.parametrize("t", [t for t in dtypes.ALL if t.kind in ("int", "uint", "bool")], ids=str)
def test_integers_and_bools(t):
    mesh = make_mesh((3,), ("m",))
    x = uopc.param("x", (10,), t)
    a = {"x": rng.integers(0, 2, 10).astype(bool)}
    if t.kind != "bool":
        low, high = t.bounds
        a = {"x": rng.integers(low, high, 10, dtype=t.numpy, endpoint=True)}
    outs = [x.sum(), x.max(), x.min(), x.eq(1).any(), x.eq(1).all(), x.prod()]
    check(outs, a, mesh, {"x": P("m")})


def test_more_devices_than_elements():
    mesh = make_mesh((16,), ("m",))
    x = uopc.param("x", (5, 3))
    a = {"x": r(5, 3)}
    check([x.sum(), x.max(axis=0), x * 2, x[1:4], x[::-1]], a, mesh, {"x": P("m")})


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 5), (1, 1)])
def test_empty_and_single_elements(shape):
    mesh = make_mesh((2,), ("m",))
    x = uopc.param("x", shape)
    check([x * 2, x.sum(), x + 1], {"x": r(*shape)}, mesh, {"x": P("m")})


def test_stores_to_cut_arrays():
    mesh = make_mesh((4,), ("m",))
    x, y = uopc.param("x", (10, 6)), uopc.param("y", (10, 6))
    a = {"x": r(10, 6), "y": r(10, 6)}
    for sx, sy in itertools.product((P("m"), P(None, "m"), P()), repeat=2):
        check([x.assign(y * 2), x.sum()], a, mesh, {"x": sx, "y": sy})
    check([x[:, 1:3].assign(y[:, :2])], a, mesh, {"x": P("m")})
    with pytest.raises(uopc.UserError, match="a store must not write a part"):
        check([x[1:3].assign(y[:2])], a, mesh, {"x": P("m")})


def test_functions_are_inlined():
    mesh = make_mesh((2,), ("m",))
    x = uopc.param("x", (6, 4))
    f = uopc.function(lambda v: (v * 2, v.sum(axis=0)))
    twice, total = f(x)
    check([twice, total], {"x": r(6, 4)}, mesh, {"x": P("m")})
    check(x.cumsum(axis=0), {"x": r(6, 4)}, mesh, {"x": P("m")})


def test_symbolic_sizes_that_are_whole():
    n = uopc.variable("n", 1, 16)
    x = uopc.param("x", (n, 8))
    outs, mesh = [(x * 2).sum(axis=0), x.sum(axis=1)], make_mesh((2,), ("m",))
    graph, sharding = partitioned(outs, mesh, {"x": P(None, "m")})
    a = {"x": r(5, 8)}
    first, second = run(graph, sharding, a, [(8,), (5,)], {"n": 5})
    np.testing.assert_allclose(first, (a["x"] * 2).sum(0), 1e-5)
    np.testing.assert_allclose(second, a["x"].sum(1), 1e-4, 1e-5)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 12, 13, 16])
def test_symbolic_sizes_that_are_cut(size):
    n = uopc.variable("n", 0, 16)
    x, y = uopc.param("x", (n, 8)), uopc.param("y", (2 * n,))
    mesh = make_mesh((2, 2), ("m", "k"))
    outs = [x.sum(axis=0), x * 2 + n.cast("f4"), x.transpose(0, 1) @ x, y.sum()]
    outs.append(x[::-1].shard(P()))
    graph, sharding = partitioned(outs, mesh, {"x": P("m"), "y": P(("m", "k"))})
    names = {v.arg.name for v in walk.variables(graph)}
    assert {"n", "n_over_2", "n_on_m"} <= names
    verify(graph, TENSOR, "partition")
    a, b = r(size, 8), r(2 * size)
    wanted = [a.sum(0), a * 2 + size, a.T @ a, b.sum(), a[::-1]]
    got = run(graph, sharding, {"x": a, "y": b}, [w.shape for w in wanted], {"n": size})
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, 1e-4, 1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize("p", [2, 3, 5])
@pytest.mark.parametrize("spec", [P("m"), P(None, "m")])
def test_running_totals(p, spec):
    mesh, a = make_mesh((p,), ("m",)), r(13, 40)
    x = uopc.param("x", (13, 40))
    outs = [x.cumsum(axis=0), x.cumsum(axis=1), x.cumprod(axis=1), x.cummax(axis=0) + 1, x.cumsum()]
    found = check(outs[:4], {"x": a}, mesh, {"x": spec})
    assert {u.op.name for u in found} == {"allgather"}
    assert max(u.size for u in found) <= p * 40  # totals of parts, no elements
    check(outs, {"x": a}, mesh, {"x": spec})
    narrow, bits = uopc.param("x", (37,), "f2"), np.arange(37).astype("f2")
    check([narrow.cumsum(), narrow[::-1].cummin()], {"x": bits}, mesh, {"x": P("m")})
    whole = uopc.param("x", (9,), "i2")
    check([whole.cumsum(), whole.cumprod()], {"x": np.arange(9, dtype="i2")}, mesh, {"x": P("m")})


@pytest.mark.parametrize("size", [1, 2, 3, 9, 16])
def test_sums_and_multiples_of_symbols_that_are_cut(size):
    n, few = uopc.variable("n", 1, 16), uopc.variable("few", 1, 3)
    x, y, z = uopc.param("x", (n + 1, 8)), uopc.param("y", (few, 8)), uopc.param("z", (4 * n, 2))
    mesh = make_mesh((4,), ("m",))
    outs = [x * 2, y.sum(axis=0), z.reshape(8 * n) + 1, z.sum(axis=1)]
    graph, sharding = partitioned(outs, mesh, {"x": P("m"), "y": P("m"), "z": P("m")})
    verify(graph, TENSOR, "partition")
    rows = min(size, 3)
    a, b, c = r(size + 1, 8), r(rows, 8), r(4 * size, 2)
    wanted = [a * 2, b.sum(0), c.ravel() + 1, c.sum(1)]
    given = {"x": a, "y": b, "z": c}
    got = run(graph, sharding, given, [w.shape for w in wanted], {"n": size, "few": rows})
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, 1e-5)
    assert "n_over_4" not in {v.arg.name for v in walk.variables(graph)}  # 4 * n is even


def padded(a, before, after):
    return np.pad(a, ((before, after), (0, 0)))


# By name: a window of x, and NumPy's.
WINDOWS = {
    "three rows": (lambda x: sum(x.pad(((1, 1), (0, 0)))[i : x.shape[0] + i] for i in range(3)),
                   lambda a: sum(padded(a, 1, 1)[i : len(a) + i] for i in range(3))),
    "five rows": (lambda x: sum(x.pad(((2, 2), (0, 0)))[i : x.shape[0] + i] for i in range(5)),
                  lambda a: sum(padded(a, 2, 2)[i : len(a) + i] for i in range(5))),
    "before": (lambda x: x.pad(((3, 0), (0, 0)))[: x.shape[0]],
               lambda a: padded(a, 3, 0)[: len(a)]),
    "after": (lambda x: x.pad(((0, 3), (0, 0)))[3:], lambda a: padded(a, 0, 3)[3:]),
    "longer": (lambda x: x.pad(((1, 2), (0, 0))) * 2, lambda a: padded(a, 1, 2) * 2),
    "shorter": (lambda x: x[1:] * 2, lambda a: a[1:] * 2),
    "inner": (lambda x: x[1:].pad(((1, 0), (0, 0))) * 2,
              lambda a: padded(a[1:], 1, 0) * 2),
    "differences": (lambda x: x[1:] - x[:-1], lambda a: a[1:] - a[:-1]),
    "one row": (lambda x: x[0] + x[:1].sum(axis=0), lambda a: a[0] * 2),
    "far": (lambda x: x.pad(((40, 0), (0, 0)))[: x.shape[0]],
            lambda a: padded(a, 40, 0)[: len(a)]),
    "two dimensions": (lambda x: x.pad(((1, 0), (0, 1)))[: x.shape[0], 1:],
                       lambda a: np.pad(a, ((1, 0), (0, 1)))[: len(a), 1:]),
    "summed": (lambda x: (x.pad(((1, 1), (0, 0)))[2:] * x).sum(axis=0),
               lambda a: (padded(a, 1, 1)[2:] * a).sum(0)),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("p", [2, 5])
def test_windows_along_a_symbolic_size(name, p):
    made, wanted = WINDOWS[name]
    n = uopc.variable("n", 1, 40)
    x = uopc.param("x", (n, 3), "f8")
    graph, sharding = partitioned([made(x)], make_mesh((p,), ("m",)), {"x": P("m")})
    verify(graph, TENSOR, "partition")
    for size in (1, 2, 3, 4, 6, 7, 8, 23, 40):
        a = np.random.default_rng(size).standard_normal((size, 3))
        w = wanted(a)
        (g,) = run(graph, sharding, {"x": a}, [w.shape], {"n": size})
        np.testing.assert_allclose(g, w, 1e-12, 1e-12, err_msg=str(size))


def test_rows_that_a_symbolic_window_moves():
    n, long = uopc.variable("n", 1, 4096), uopc.variable("long", 16, 4096)
    mesh = make_mesh((4,), ("m",))

    def moved(size, width):
        x = uopc.param("x", (size, 3))
        rows = x.pad(((width, width), (0, 0)))
        out = rows[: size] + rows[2 * width :]
        graph, _ = partitioned([out], mesh, {"x": P("m")})
        found = [u for u in graph.toposort() if u.op in GroupOp.Exchange]
        return [(u.op.name, u.shape[0]) for u in found]

    assert moved(n, 1) == moved(long, 1) == moved(4 * n, 1) == [("permute_ranks", 1)] * 2
    assert moved(long, 4) == [("permute_ranks", 4)] * 2  # each part has as many
    assert moved(n, 2) == [("permute_ranks", 2)] * 4  # a part may have one row alone
    assert [kind for kind, _ in moved(long, 40)] == ["permute_ranks"] * 6


def test_explicit_refuses_what_moves_much():
    mesh = make_mesh((4,), ("m",))
    x, y = uopc.param("x", (8, 8)), uopc.param("y", (8, 8))
    with pytest.raises(uopc.UserError, match="explicit: operand of mul: all") as caught:
        partitioned([x * y], mesh, {"x": P("m"), "y": P(None, "m")}, explicit=True)
    assert "test_partition.py" in str(caught.value)
    partitioned([x.shard(P()) * y], mesh, {"x": P("m"), "y": P()}, explicit=True)


def test_wrong_specs():
    mesh = make_mesh((2, 2), ("a", "b"))
    x = uopc.param("x", (8, 8))
    for wrong, words in (
        (P("c"), "unknown mesh axis 'c'"), (P("a", "a"), "may cut one dimension only"),
        (P(None, None, "a"), "3 entries for 2 dimensions"), ("a", "expected a uopc.P"),
    ):  # fmt: skip
        with pytest.raises(uopc.UserError, match=words):
            partitioned([x], mesh, {"x": wrong})
    with pytest.raises(uopc.UserError, match="an entry must be None, a mesh axis"):
        P(3)
    with pytest.raises(uopc.UserError, match="may cut one dimension only"):
        x.shard(P("a", "a"))
    for sizes, names in (((2,), ("a", "b")), ((0,), ("a",)), ((2, 2), ("a", "a")), ((2,), ("1",))):
        with pytest.raises(uopc.UserError, match="make_mesh"):
            make_mesh(sizes, names)


def test_without_a_mesh_a_mark_vanishes():
    x = uopc.param("x", (8, 8))
    marked, plain = uopc.compile(x.shard(P("m")).sum()), uopc.compile(x.sum())
    assert marked.stages["input"] == plain.stages["input"]


def test_derivatives_keep_marks():
    x = uopc.param("x", (8, 4))
    w = uopc.param("w", (4,))
    loss = ((x.shard(P("m")) * w) ** 2).sum()
    g = uopc.grad(loss, w)
    found = check(g, {"x": r(8, 4), "w": r(4)}, make_mesh((4,), ("m",)), {"x": P("m")})
    assert kinds(found) == ["allreduce"]
    batched = uopc.vmap(lambda v: v.shard(P("m")) * 2)(x)
    shards = [u for u in batched.toposort() if u.op is Ops.SHARD]
    assert [u.arg.spec for u in shards] == [((), ("m",))]
