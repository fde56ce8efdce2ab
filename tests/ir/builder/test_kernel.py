"""Kernels written by hand with shapes: stores of whole values, rows, expressions, local stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
from uopc import UOp, dtypes, kernel_param
from uopc.backends.nvptx.ptxas import assemble, find_ptxas
from uopc.ir.core.args import ParamArg, ReduceArg, StageArg
from uopc.ir.core.ops import Ops
from uopc.ir.interpret.interpreter import run_kernel

F64 = dtypes.float64
Array = Any
X = np.random.default_rng(0).standard_normal((4, 8))
o, x = kernel_param(0, (4, 8), F64, "o"), kernel_param(1, (4, 8), F64, "x")
i, j = UOp.range(4, 0), UOp.range(8, 1)
k = UOp.range(i + 1, 2)
LOCAL = StageArg("user", space="local")


def windowed() -> Array:
    out = np.zeros((4, 8))
    out[1:3, ::2] = X[:2, :4]
    return out


def summed(value: UOp, r: UOp) -> UOp:
    return UOp(Ops.REDUCE, value.dtype, (value, r), ReduceArg("add"))


KERNELS: dict[str, tuple[Callable[[], UOp], Callable[[], Array]]] = {
    "a whole value": (lambda: o.store(x * 2.0), lambda: X * 2),
    "elements": (lambda: o[i, j].store(x[i, j]).end(i, j), lambda: X),
    "loads": (lambda: o[i, j].store(x[i, j].load() * 2.0).end(i, j), lambda: X * 2),
    "loads of a row": (lambda: o[i].store(x[i].load() * 2.0).end(i), lambda: X * 2),
    "rows": (lambda: o[i].store(x[i] * 2.0).end(i), lambda: X * 2),
    "a row of an expression": (lambda: o[i].store((x * 2.0 + 1)[i]).end(i), lambda: X * 2 + 1),
    "an element of one": (
        lambda: o.index(i, j).store((x * 2.0 + 1).index(i, j)).end(i, j),
        lambda: X * 2 + 1,
    ),
    "an element of a view": (
        lambda: o.index(i, j).store(x.permute(1, 0).flip(0).index(j, i)).end(i, j),
        lambda: X[:, ::-1],
    ),
    "neighbours": (lambda: o[i, j].store(x[i, (j + 1) % 8]).end(i, j), lambda: np.roll(X, -1, 1)),
    "a reduce by axis": (
        lambda: o.store(x.sum(1, keepdims=True) + x),
        lambda: X.sum(1, keepdims=True) + X,
    ),
    "a softmax": (
        lambda: o[i].store(x[i].softmax()).end(i),
        lambda: np.exp(X) / np.exp(X).sum(1, keepdims=True),
    ),
    "a reduce by range": (
        lambda: o.store(summed(x[i] * x[i], i)),
        lambda: np.broadcast_to((X * X).sum(0), (4, 8)),
    ),
    "a pad": (
        lambda: o.store(x.shrink(((1, 3), (2, 5))).pad(((2, 0), (0, 5)))),
        lambda: np.pad(X[1:3, 2:5], ((2, 0), (0, 5))),
    ),
    "a window": (lambda: o[1:3, ::2].store(x[:2, :4]), windowed),
    "a gather": (lambda: o.store(x.index(uopc.arange(4).flip(0))), lambda: X[::-1]),
    "a cat": (lambda: o.store(x[:2].cat(x[:2] * 2)), lambda: np.concatenate((X[:2], X[:2] * 2))),
    "an assign": (lambda: o.assign(x * 3.0), lambda: X * 3),
    "in place": (lambda: o.store(o * 2.0 + x), lambda: X),
    "after a store": (
        lambda: o[2:].store(o.after(o[:2].store(x[:2]))[:2] * 2),
        lambda: np.r_[X[:2], X[:2] * 2],
    ),
    "a local stage": (
        lambda: o[i].store(x[i].sin().stage().flip(0)).end(i),
        lambda: np.sin(X)[:, ::-1],
    ),
    "a raw stage": (
        lambda: (
            o[i]
            .store(UOp(Ops.STAGE, F64, (x[i].sin(),), LOCAL).flip(0))
            .end(i)
        ),
        lambda: np.sin(X)[:, ::-1],
    ),
    "a stage in registers": (
        lambda: o[i].store(x[i].exp().stage(space="reg").flip(0)).end(i),
        lambda: np.exp(X)[:, ::-1],
    ),
    "a stage outside of loops": (
        lambda: o.store(x.sin().stage().flip((0, 1))),
        lambda: np.sin(X)[::-1, ::-1],
    ),
    "a stage of a stage": (
        lambda: o[i].store((x[i] + 1).stage().flip(0).exp().stage().flip(0)).end(i),
        lambda: np.exp(X + 1),
    ),
    "a stage of named loops": (
        lambda: o[i, j].store(x[i, j].sin().stage(j)[7 - j]).end(i, j),
        lambda: np.sin(X)[:, ::-1],
    ),
    "a raw stage of named loops": (
        lambda: (
            o[i, j]
            .store(UOp(Ops.STAGE, F64, (x[i, j].sin(), i, j), LOCAL)[3 - i, j])
            .end(i, j)
        ),
        lambda: np.sin(X)[::-1],
    ),
    "named loops and axes": (
        lambda: o.store((x[i] * 2).stage(i, space="reg").flip(1)),
        lambda: X[:, ::-1] * 2,
    ),
    "a stage of loops inside of one": (
        lambda: (
            o[i, j]
            .store((x[i, j].stage(j)[7 - j] + x[i, j].stage(j, i)[j, i]).stage(j)[j])
            .end(i, j)
        ),
        lambda: X + X[:, ::-1],
    ),
    "stages over either loop": (
        lambda: o[i, j].store(x[i, j].stage(i)[3 - i] + x[i, j].stage(j)[7 - j]).end(i, j),
        lambda: X[::-1] + X[:, ::-1],
    ),
    "rows of growing length": (
        lambda: o[i].store(x[i, k].stage(k, space="reg")[0]).end(i),
        lambda: np.broadcast_to(X[:, :1], (4, 8)),
    ),
    "a stage of sums": (
        lambda: o.store(x.sum(1, keepdims=True).stage() + x),
        lambda: X.sum(1, keepdims=True) + X,
    ),
}


def outputs(kernel: UOp, arrays: list[Array], **variables: int) -> list[Array]:
    """The first array after the kernel: compiled in four ways, and interpreted."""
    results = []
    for optimize in (True, False):
        for threads in (1, 7):
            program = uopc.compile(kernel, optimize=optimize, threads=threads, verify=True)
            copies = [a.copy() for a in arrays]
            program(*copies)
            results.append(copies[0])
    copies = [a.copy() for a in arrays]
    run_kernel(kernel, copies, variables)
    return [*results, copies[0]]


@pytest.mark.others(16)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.few(4)
def test_values_with_shapes(name: str) -> None:
    effect, expected = KERNELS[name]
    kernel = UOp.sink(effect(), name="k")
    for result in outputs(kernel, [np.zeros((4, 8)), X]):
        np.testing.assert_allclose(result, expected(), rtol=1e-12)
    assert uopc.parse(str(kernel)) is kernel


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.few(9)
def test_ptx_assembles(name: str) -> None:
    kernel = UOp.sink(KERNELS[name][0](), name="k")
    ptx = uopc.compile(kernel, device="cuda:sm_80", verify=True).kernels[0].asm
    if find_ptxas() is not None:
        assemble(ptx, "sm_80")
    if "local" in name or "raw" in name:
        assert ".shared" in ptx


@pytest.mark.parametrize("t", ["bool_", "int8", "uint64", "float16", "bfloat16", "fp8e4m3"])
def test_every_class_of_dtypes(t: str) -> None:
    dtype = getattr(dtypes, t)
    a, b = kernel_param(0, (3, 5), dtype, "a"), kernel_param(1, (3, 5), dtype, "b")
    source = (np.arange(15) % 3).reshape(3, 5).astype(dtype.numpy)
    k = UOp.range(3, 0)
    for effect in (a.store(b + b), a[k].store((b + b)[k].stage()).end(k)):
        first, *others = outputs(effect.sink(name="k"), [np.zeros_like(source), source])
        assert first.astype(float).tolist() == (source + source).astype(float).tolist()
        assert all([r.tobytes() == first.tobytes() for r in others])


@pytest.mark.parametrize("size", [0, 1, 5, 9])
@pytest.mark.few(2)
def test_symbolic_sizes(size: int) -> None:
    n = uopc.variable("n", 0, 9)
    a, b = kernel_param(0, (n, 3), F64, "a"), kernel_param(1, (n, 3), F64, "b")
    k = UOp.range(n, 0)
    source = X.ravel()[: size * 3].reshape(size, 3)
    expected = source + source.sum(1, keepdims=True)
    effects = a.store(b + b.sum(1, keepdims=True)), a[k].store(b[k].sum() + b[k]).end(k)
    for effect in (*effects, a.store((b + b.sum(1, keepdims=True)).stage())):
        for result in outputs(effect.sink(name="k"), [np.zeros((size, 3)), source], n=size):
            np.testing.assert_allclose(result, expected)


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (1, 1), (13,)])
def test_every_shape(shape: tuple[int, ...]) -> None:
    a, b = kernel_param(0, shape, F64, "a"), kernel_param(1, shape, F64, "b")
    source = np.arange(np.prod(shape), dtype=float).reshape(shape)
    for result in outputs(a.store(b + 1).sink(name="k"), [np.zeros(shape), source]):
        np.testing.assert_array_equal(result, source + 1)


def test_an_index_from_an_array_with_several_dimensions() -> None:
    """The read in the index gets a flat index too."""
    index = kernel_param(2, (4, 8), dtypes.int64, "index")
    at = index.index(i, j).cast(dtypes.index)
    kernel = o.index(i, j).store(x.index(i, at)).end(i, j).sink(name="k")
    chosen = np.random.default_rng(0).integers(-2, 10, (4, 8))
    inside = (chosen >= 0) & (chosen < 8)
    expected = np.where(inside, np.take_along_axis(X, chosen.clip(0, 7), 1), 0)
    for optimize in (True, False):
        out = np.zeros((4, 8))
        uopc.compile(kernel, optimize=optimize, verify=True)(out, X, chosen)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("opts", [None, ()])
@pytest.mark.parametrize(("rows", "count", "wide"), [(1, 2, 5), (3, 4, 7), (2, 19, 64)])
def test_a_store_at_places_of_an_array(
    opts: Any, rows: int, count: int, wide: int
) -> None:
    """Places of two dimensions, some of them twice and some outside: the last of equal ones stays,
    in the order of the loops, with Opts that the compiler chooses and without any."""
    out = kernel_param(0, (rows, wide), dtypes.float32, "out")
    places = kernel_param(1, (rows, count), dtypes.int64, "places")
    values = kernel_param(2, (rows, count), dtypes.float32, "values")
    a, r = UOp.range(rows), UOp.range(count)
    at = places.index(a, r).load().cast(dtypes.index)
    with uopc.options(spec=2):
        store = out.index(a, at).store(values.index(a, r).load())
        program = uopc.compile(store.end(a, r).sink(name="k", opts=opts))
    rng = np.random.default_rng(count)
    chosen = rng.integers(-2, wide + 2, (rows, count))
    given = rng.standard_normal((rows, count)).astype("f4")
    expected = np.zeros((rows, wide), "f4")
    for i, row in enumerate(chosen):
        for k, place in enumerate(row):
            if 0 <= place < wide:
                expected[i, place] = given[i, k]
    made = np.zeros_like(expected)
    program(made, chosen, given)
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("dims", [(0,), (1, 0), (0, 3), (2, 0), (0, 0), (2, 0, 3)])
def test_loops_without_iterations(dims: tuple[int, ...]) -> None:
    """The body does not run, also where two of the loops would be one."""
    out = kernel_param(0, (3,), dtypes.float32, "out")
    places = kernel_param(1, dims, dtypes.int64, "places")
    loops = [UOp.range(d) for d in dims]
    store = out.index(places.index(*loops).load().cast(dtypes.index)).store(1.0)
    kernel = store.end(*loops).sink(name="k")
    for optimize in (True, False):
        program = uopc.compile(kernel, optimize=optimize, verify=True)
        made = np.zeros(3, "f4")
        program(made, np.zeros(dims, np.int64))
        np.testing.assert_array_equal(made, 0)


def test_several_outputs() -> None:
    low = kernel_param(2, (4,), F64, "low")
    kernel = UOp.sink(o.store(x * 2), low.store(x.min(1)), name="k")
    arrays = [np.zeros((4, 8)), X, np.zeros(4)]
    uopc.compile(kernel, verify=True)(*arrays)
    np.testing.assert_array_equal(arrays[0], X * 2)
    np.testing.assert_array_equal(arrays[2], X.min(1))


def test_a_kernel_in_a_graph_of_tensors() -> None:
    """CALL of a kernel with shapes: the same as of one with loops."""
    kernel = o.store(x * 2.0).sink(name="twice")
    a = uopc.param("a", (4, 8), F64)
    out = UOp(Ops.BUFFER, F64, (), uopc.ir.core.args.BufferArg(0, (4, 8)))
    made = out.after(UOp(Ops.CALL, dtypes.void, (kernel, out, a.contiguous())))
    np.testing.assert_array_equal(uopc.compile(made + 1, verify=True)(X), X * 2 + 1)


@pytest.mark.parametrize("view", [
    lambda a: a, lambda a: a + 1, lambda a: a.flip(0), lambda a: a[:1].expand(4, 8),
    lambda a: a.reshape(8, 4).transpose().contiguous(), lambda a: uopc.constant(X),
])  # fmt: skip
def test_calls_of_a_kernel(view: Any) -> None:
    """A kernel may read any value; the arrays that it writes come back."""
    kernel = o.store(x * 2.0).sink(name="twice")
    a = uopc.param("a", (4, 8), F64)
    (made,) = kernel.call(uopc.buffer((4, 8), F64), view(a))
    (again,) = kernel.call(uopc.buffer((32,), F64), made - 1)
    wanted = uopc.compile(view(a), inputs=[a])(X) * 2
    got = uopc.compile((made, again), inputs=[a], verify=True)(X)
    np.testing.assert_array_equal(got[0], wanted)
    np.testing.assert_array_equal(got[1], (wanted - 1).ravel() * 2)


def test_a_call_writes_the_callers_array() -> None:
    kernel = o.store(x * 2.0).sink(name="twice")
    a, b = uopc.param("a", (4, 8), F64), uopc.param("b", (4, 8), F64)
    (made,) = kernel.call(b, a)
    out = np.zeros((4, 8))
    got = uopc.compile(made.sum(), inputs=[a, b])(X, out)
    np.testing.assert_allclose(got, X.sum() * 2, 1e-12)
    np.testing.assert_array_equal(out, X * 2)


def test_calls_that_do_not_fit() -> None:
    kernel = o.store(x * 2.0).sink(name="twice")
    a, out = uopc.param("a", (4, 8), F64), uopc.buffer((4, 8), F64)
    for args, message in (
        ((out,), "kernel 'twice': argument 1 is missing: 1 are given"),
        ((out, a.cast(dtypes.int8)), r"argument 1 must be float64, got int8\(4, 8\)"),
        ((a + 1, a), "argument 0 is written, and add is not storage: pass a uopc.buffer"),
        ((a.flip(0), a), "argument 0 is written, and flip is not storage"),
        ((uopc.constant(X), a), "argument 0 is written, and data is not storage"),
        ((uopc.buffer((4, 7), F64), a), r"argument 0 of shape \(4, 7\) for \(4, 8\): 32 must be"),
        ((out, a[:3]), r"argument 1 of shape \(3, 8\) for \(4, 8\): 32 must be at most 24"),
    ):
        with pytest.raises(uopc.UserError, match=message):
            kernel.call(*args)
    with pytest.raises(uopc.UserError, match="call: expected a FUNCTION or a kernel"):
        a.call()


def test_a_kernel_whose_argument_is_too_small() -> None:
    """Not by the builder: a graph of raw constructors wrote beyond its storage."""
    kernel = o.store(x * 2.0).sink(name="twice")
    out, a = uopc.buffer((2,), F64), uopc.param("a", (4, 8), F64)
    call = UOp(Ops.CALL, dtypes.void, (kernel, out, a))
    with pytest.raises(uopc.UserError, match=r"argument 0 of shape \(2\) for \(4, 8\)"):
        uopc.compile(out.after(call) + 1)


def test_sizes_of_arguments_are_checked_in_each_call() -> None:
    n, m = uopc.variable("n", 1, 9), uopc.variable("m", 1, 9)
    target, source = kernel_param(0, (n,)), kernel_param(1, (n,))
    kernel = target.store(source * 2).sink(name="k")
    a, b = uopc.param("a", (n,)), uopc.param("b", (m,))
    (made,) = kernel.call(uopc.buffer((n,)), b)
    f = uopc.compile(made + a, inputs=[a, b], verify=True)
    three, four = np.ones(3, "f4"), np.ones(4, "f4")
    assert f(three, three).tolist() == [3, 3, 3]
    assert f(three, four).tolist() == [3, 3, 3]
    with pytest.raises(uopc.UserError, match=r"argument 1 of shape \(m\) for \(n\): n is 4"):
        f(four, three)


def test_a_kernel_info_names_a_kernel() -> None:
    kernel = o.store(x).sink(arg=uopc.KernelInfo(name="copied"))
    assert kernel is o.store(x).sink(name="copied")
    assert uopc.compile(kernel).kernels[0].name == "copied"
    with pytest.raises(uopc.UserError, match="KernelInfo, without name"):
        o.store(x).sink(name="a", arg=uopc.KernelInfo(name="b"))


WRONG = {
    # The first who builds a node gives it its line, so this range is one that no other test has.
    "never closed": lambda: o[(r := UOp.range(4, 3_000_001))].store(x[r]).sink(name="k"),
    "elements of o that the store overwrites": lambda: o.store(o.flip(0)).sink(name="k"),
    "expected a view of storage": lambda: (o * 2).store(x).sink(name="k"),
    "invariant in-bounds": lambda: o.index(i + 1, j).store(x.index(i, j)).end(i, j).sink(name="k"),
    "is the argument of a kernel": lambda: x * 2.0,
    "one SINK of stores": lambda: (o.store(x), x.store(o)),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_use_is_an_error(message: str) -> None:
    with pytest.raises(uopc.Error, match=message) as caught:
        uopc.compile(WRONG[message]())
    if message != "one SINK of stores":
        assert __file__ in str(caught.value)


def test_wrong_builders_are_errors() -> None:
    with pytest.raises(uopc.UserError, match=r"store: .*\(4, 7\) does not broadcast to \(4, 8\)"):
        o.store(kernel_param(1, (4, 7), F64))
    with pytest.raises(uopc.UserError, match="slot must be an int of 0 or more, got -1"):
        kernel_param(-1, (4,))
    with pytest.raises(uopc.UserError, match="must be an identifier, got '4x'"):
        kernel_param(0, (4,), F64, "4x")
    with pytest.raises(uopc.UserError, match="must be local or reg, got 'global'"):
        x.stage(space="global")
    with pytest.raises(uopc.UserError, match="stage: expected ranges, got 'reg'"):
        x.stage("reg")
    with pytest.raises(uopc.UserError, match="stage: expected ranges, got"):
        x.stage(i + 1)


def test_a_kernel_called_by_a_graph_is_checked_too() -> None:
    p = UOp(Ops.PARAM, F64, (), ParamArg("p", (4,), 0))
    r = UOp.range(8, 0)
    out = UOp(Ops.BUFFER, F64, (), uopc.ir.core.args.BufferArg(0, (4,)))
    call = UOp(Ops.CALL, dtypes.void, (p.index(r).store(1.0).end(r).sink(name="k"), out))
    with pytest.raises(uopc.InvalidIR, match="in-bounds"):
        uopc.compile(out.after(call) + 1)


def test_sizes_that_a_kernel_relies_on_are_checked_when_it_is_called() -> None:
    n = uopc.variable("n", 1, 9)
    five, some = kernel_param(0, (5,)), kernel_param(1, (n,))
    f = uopc.compile(five.store(some.reshape(5) * 2).sink(name="k"), verify=True)
    out = np.zeros(5, np.float32)
    f(out, np.arange(5, dtype="f4"))
    assert out.tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(uopc.UserError, match=r"reshape \(n\) to \(5\): n is 3, expected 5"):
        f(out, np.arange(3, dtype="f4"))


def test_a_method_reduces_over_ranges() -> None:
    c, a, b = (kernel_param(slot, (4, 4), F64, name) for slot, name in enumerate("cab"))
    r, k, q = UOp.range(4, 0), UOp.range(4, 1), UOp.range(4, 2)
    product = c[r, k].store((a[r, q] * b[q, k]).reduce(Ops.ADD, q)).end(r, k).sink(name="product")
    left, right = X[:, :4].copy(), X[:, 4:].copy()
    out = np.empty((4, 4))
    uopc.compile(product, verify=True)(out, left, right)
    np.testing.assert_allclose(out, left @ right)
    greatest = c[0, 0].store(a[q, k].reduce("max", (q, k))).sink(name="greatest")
    uopc.compile(greatest, verify=True)(out, left)
    assert out[0, 0] == left.max()
    with pytest.raises(uopc.UserError, match="a reduce over ranges takes ranges only"):
        a[q].reduce(Ops.ADD, (q, 0))


def test_rows_whose_length_depends_on_a_loop() -> None:
    a, b = kernel_param(0, (4, 4), F64), kernel_param(1, (4, 4), F64)
    kernel = a[i, : i + 1].store(b[i, : i + 1] * 2).end(i).sink(name="lower")
    for result in outputs(kernel, [np.zeros((4, 4)), X[:, :4].copy()]):
        np.testing.assert_array_equal(result, np.tril(X[:, :4] * 2))


def test_the_end_of_an_after_closes_the_stores_that_it_names() -> None:
    a, b = kernel_param(0, (8,)).reshape(2, 4), kernel_param(1, (8,)).reshape(2, 4)
    r, k = UOp.range(2, 0), UOp.range(4, 1)
    first = a.after(a.index(r, k).store(0.0))
    then = first.after(first.index(r, k).store(first.index(r, k) + b.index(r, k)))
    kernel = then.end(r, k).sink(name="k")
    source = np.arange(8, dtype="f4")
    for result in outputs(kernel, [np.ones(8, "f4"), source]):
        np.testing.assert_array_equal(result, source)


def test_a_range_may_count_in_other_integers() -> None:
    a, b = kernel_param(0, (4,)), kernel_param(1, (4,))
    r = UOp(Ops.RANGE, dtypes.int32, (UOp.const(dtypes.int32, 4),), UOp.range(4, 0).arg)
    kernel = UOp(Ops.INDEX, dtypes.float32, (a, r)).store(
        UOp(Ops.INDEX, dtypes.float32, (b, r)) + r.cast(dtypes.float32)
    )
    source = np.arange(4, dtype="f4")
    for result in outputs(kernel.end(r).sink(name="k"), [np.ones(4, "f4"), source]):
        np.testing.assert_array_equal(result, source * 2)


@pytest.mark.parametrize("kind", ["reduce", "unroll"])
def test_each_term_of_a_sum_has_a_stage_of_its_own(kind: Any) -> None:
    term, inner = UOp.range(8, 2, kind), UOp.range(3, 3)
    row = (x[i, term] + inner.cast(F64)).stage(inner, space="reg")
    kernel = o[i, 0].store(summed(row[2] * row[1], term)).end(i).sink(name="k")
    expected = np.zeros((4, 8))
    expected[:, 0] = ((X + 2) * (X + 1)).sum(1)
    for result in outputs(kernel, [np.zeros((4, 8)), X]):
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_threads_fill_a_stage_of_their_range_together() -> None:
    block, thread = UOp.range(4, 0, "global"), UOp.range(32, 1, "local")
    a, b = kernel_param(0, (4, 32), F64, "a"), kernel_param(1, (4, 32), F64, "b")
    row = (b[block, thread] * 2).stage(thread)
    kernel = a[block, thread].store(row[31 - thread]).end(block, thread).sink(name="k")
    source = np.arange(128.0).reshape(4, 32)
    for result in outputs(kernel, [np.zeros((4, 32)), source]):
        np.testing.assert_array_equal(result, source[:, ::-1] * 2)
    for optimize in (True, False):
        f = uopc.compile(kernel, device="cuda:sm_80", optimize=optimize, verify=True)
        asm = f.kernels[0].asm
        assert ".reqntid 32, 1, 1" in asm and asm.count("bar.sync") == asm.count("st.shared") == 1
        if find_ptxas() is not None:
            assemble(asm, "sm_80")


# ---------------------------------------------------------------- tensor cores
TILES = [("float16", 16), ("bfloat16", 16), ("float32", 8), ("int8", 32)]


def tiled(t: str, deep: int, kind: Any = "loop") -> UOp:
    """A product of (32, 2·deep) and (2·deep, 16), a tile at a time."""
    operand = getattr(dtypes, t)
    result = dtypes.int32 if t == "int8" else dtypes.float32
    c = kernel_param(0, (32, 16), result, "c")
    a, b = kernel_param(1, (32, 2 * deep), operand), kernel_param(2, (2 * deep, 16), operand)
    r0, c0, d0 = UOp.range(2, 0), UOp.range(2, 1), UOp.range(2, 4, "reduce")
    row, column = UOp.range(16, 2, kind), UOp.range(8, 3, kind)
    depth = UOp.range(deep, 5, "reduce")
    m, n, k = r0 * 16 + row, c0 * 8 + column, d0 * deep + depth
    total = a[m, k].shaped_wmma(b[k, n], row, column, depth, d0)
    return c[m, n].store(total).end(r0, c0, row, column).sink(name="tiled")


@pytest.mark.parametrize("kind", ["loop", "warp"])
@pytest.mark.parametrize(("t", "deep"), TILES)
@pytest.mark.few(3)
def test_shaped_wmma_is_right_on_a_cpu(t: str, deep: int, kind: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(-8, 8, s).astype(getattr(dtypes, t).numpy)
        for s in ((32, 2 * deep), (2 * deep, 16))
    )
    expected = a.astype(float) @ b.astype(float)
    out = np.zeros((32, 16), "i4" if t == "int8" else "f4")
    for result in outputs(tiled(t, deep, kind), [out, a, b]):
        np.testing.assert_array_equal(result, expected)


def test_shaped_wmma_of_operands_with_a_shape() -> None:
    """A product for each element of the shape: of views, and of operands that broadcast."""
    half = dtypes.float16
    c, a = kernel_param(0, (3, 16, 8)).permute(1, 2, 0), kernel_param(1, (16, 16, 3), half)
    b = kernel_param(2, (1, 8, 16), half).permute(2, 1, 0)
    row, column, depth = UOp.range(16, 0), UOp.range(8, 1), UOp.range(16, 2, "reduce")
    total = a[row, depth].shaped_wmma(b[depth, column], row, column, depth)
    assert total.shape == (3,)
    kernel = c[row, column].store(total).end(row, column).sink(name="k")
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-8, 8, s).astype("f2") for s in ((16, 16, 3), (1, 8, 16)))
    expected = np.einsum("rdz,cd->zrc", x.astype("f4"), y[0].astype("f4"))
    for result in outputs(kernel, [np.zeros((3, 16, 8), "f4"), x, y]):
        np.testing.assert_array_equal(result, expected)
    for optimize in (True, False):
        f = uopc.compile(kernel, device="cuda:sm_80", optimize=optimize, verify=True)
        assert "mma.sync" in f.kernels[0].asm
        if find_ptxas() is not None:
            assemble(f.kernels[0].asm, "sm_80")


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("kind", ["loop", "warp"])
@pytest.mark.parametrize(("t", "deep"), TILES)
@pytest.mark.few(5)
def test_shaped_wmma_is_an_instruction_of_a_gpu(
    t: str, deep: int, kind: str, optimize: bool
) -> None:
    f = uopc.compile(tiled(t, deep, kind), device="cuda:sm_80", optimize=optimize, verify=True)
    assert "mma.sync" in f.kernels[0].asm
    if find_ptxas() is not None:
        assemble(f.kernels[0].asm, "sm_80")


def test_wrong_uses_of_shaped_wmma_are_errors() -> None:
    a, b = kernel_param(1, (16, 16), dtypes.float16), kernel_param(2, (16, 16), dtypes.float16)
    c = kernel_param(0, (16, 8))
    row, column, depth = UOp.range(16, 0), UOp.range(8, 1), UOp.range(16, 2, "reduce")
    short = UOp.range(8, 2, "reduce")

    def wrong(total: UOp) -> UOp:
        return c[row, column].store(total).end(row, column).sink(name="k")

    good = a[row, depth].shaped_wmma(b[depth, column], row, column, depth)
    uopc.compile(wrong(good))
    cases = {
        "row, column and depth must be ranges of": a[row, short].shaped_wmma(
            b[short, column], row, column, short
        ),
        "there is no tile of float16 and float32": a[row, depth].shaped_wmma(
            b[depth, column].cast(dtypes.float32), row, column, depth
        ),
        "a depends on row and depth": a[column, depth].shaped_wmma(
            b[depth, row], row, column, depth
        ),
        "must add it up over its depth": summed(good.src[0] * 2.0, depth),
    }
    for message, total in cases.items():
        with pytest.raises(uopc.UserError, match=message) as caught:
            uopc.compile(wrong(total))
        assert __file__ in str(caught.value)
    with pytest.raises(uopc.UserError, match="no tensor core multiplies uint8"):
        a.cast(dtypes.uint8).shaped_wmma(b, row, column, depth)


def test_lanes_of_a_row_of_vectors_are_stored_backwards():
    """`x[i % 2]` is a STACK of vectors of two lanes: lane 2 is in its second vector."""
    o, p, x = (kernel_param(slot, (16,), dtypes.uint8) for slot in range(3))
    i = UOp.range(16, axis=0)
    gated = p.index(i).store(i.cast(dtypes.uint8), i < 5)
    stores = o.index(15 - i).store(x.index(i % 2)).end(i), gated.end(i)
    f = uopc.compile(UOp.sink(*stores, name="k"), threads=1, verify=True)
    backwards, counted = np.zeros(16, "u1"), np.zeros(16, "u1")
    f(backwards, counted, np.arange(7, 23, dtype="u1"))
    assert backwards.tolist() == [8, 7] * 8
    assert counted.tolist() == [0, 1, 2, 3, 4] + [0] * 11


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("kind", ["upcast", "unroll", "lane", "loop"])
@pytest.mark.parametrize("space", ["reg", "local"])
def test_copies_of_a_body_have_a_stage_each(space, kind, optimize):
    """Iterations side by side fill storage of their own, whatever reads it after their loops."""
    text = f"""\
%1 = param b slot=0 : i32[4, 4]
%2 = range 4 axis=1 kind=loop : index
%3 = range 4 axis=2 kind={kind} : index
%4 = cast %2 : i32
%5 = cast %3 : i32
%6 = add %4, %5 : i32
%7 = range 4 axis=3 kind=loop : index
%8 = cast %7 : i32
%9 = mul %6, %8 : i32
%10 = stage %9, %7 reason=user space={space} : i32[4]
%11 = store %1[%2, %3], %10[3]
%12 = end %11, %2, %3
sink %12 name=k
"""
    out = np.zeros((4, 4), np.int32)
    uopc.compile(uopc.parse(text), optimize=optimize, verify=True)(out)
    assert (out == 3 * np.add.outer(np.arange(4), np.arange(4))).all()
