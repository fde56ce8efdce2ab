"""The loop nest of drawn kernels against all their addresses, one by one."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from uopc.ir.builder import alu, fold, index_maps
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.args import KernelArg, RangeArg, ReduceArg
from uopc.ir.core.evaluate import evaluate
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.contractions import find_contraction
from uopc.ir.nest.loops import trips
from uopc.ir.nest.nest import Nest, nest_of
from uopc.tensor import creation

SIZE = 4096  # elements of each array


def loops_of(rng: random.Random, count: int, first: int, kind: str) -> list[UOp]:
    lengths = [rng.randint(1, 5) for _ in range(count)]
    return [
        intern(Ops.RANGE, dtypes.index, (dim_uop(n),), RangeArg((first + i,), kind))
        for i, n in enumerate(lengths)
    ]


def element(rng: random.Random, slot: int, loops: list[UOp]) -> UOp:
    """An element at a sum of loops, or of quotients and remainders of them, perhaps guarded."""
    index = affine.const(rng.randint(0, 9))
    for r in loops:
        form = rng.choice(("plain", "plain", "plain", "quotient", "rest", "left"))
        part = {"plain": r, "quotient": r // 2, "rest": r % 3}.get(form, affine.const(0))
        index = index + part * rng.choice((1, 1, 2, 5, 20))
    at = (index,)
    if loops and rng.random() < 0.3:
        at = index_maps.gated(at, rng.choice(loops) < rng.randint(1, 4))
    dtype = rng.choice((dtypes.float32, dtypes.float64))
    storage = creation.kernel_param(slot, (SIZE,), dtype)
    return fold.cast(intern(Ops.INDEX, dtype, (storage, *at)), dtypes.float32)


def drawn(seed: int) -> UOp:
    """A kernel that stores a value of some loops: of a sum of products, and of other elements."""
    rng = random.Random(seed)
    outputs = loops_of(rng, rng.randint(1, 3), 0, "loop")
    summed = loops_of(rng, rng.randint(0, 2), 8, "reduce")

    def some() -> list[UOp]:
        return [r for r in (*outputs, *summed) if rng.random() < 0.6]

    value = alu.alu(element(rng, 1, some()), Ops.MUL, element(rng, 2, some()))
    if summed:
        arg = ReduceArg("add", ())
        value = intern(Ops.REDUCE, value.dtype, (value, *summed), arg)
    value = alu.alu(value, Ops.ADD, element(rng, 3, [r for r in outputs if rng.random() < 0.6]))
    index = affine.const(0)
    for r in rng.sample(outputs, len(outputs)):
        index = index * r.src[0].arg + r
    target = intern(
        Ops.INDEX, dtypes.float32, (creation.kernel_param(0, (SIZE,), dtypes.float32), index)
    )
    effect = intern(Ops.STORE, dtypes.void, (target, value))
    effect = intern(Ops.END, dtypes.void, (effect, *outputs))
    return intern(Ops.SINK, dtypes.void, (effect,), KernelArg())


def addresses(a: Access, loops: list[UOp]) -> np.ndarray:
    """The element of each iteration of these loops, an axis each."""
    grid = np.meshgrid(*[np.arange(r.src[0].arg) for r in loops], indexing="ij")
    points = dict(zip(loops, [g.ravel() for g in grid]))
    shape = [r.src[0].arg for r in loops]
    return np.broadcast_to(evaluate(a.flat, points)[0], math.prod(shape)).reshape(shape)


@pytest.fixture(params=range(60))
def nest(request: pytest.FixtureRequest) -> Nest:
    return nest_of(drawn(request.param))


def test_strides(nest: Nest) -> None:
    """A stride is the growth of the address everywhere; an address that grows evenly has one."""
    for a in nest.accesses:
        found = addresses(a, nest.axes)
        for axis, r in enumerate(nest.axes):
            steps = set(np.diff(found, axis=axis).ravel().tolist())
            known = a.stride(r)
            assert known is None or steps <= {known}
            linear = all([m.op is Ops.RANGE for m in affine.form(a.flat)[1]])
            assert known is not None or not linear
            assert (r in a.loops) or steps <= {0}


def test_footprints(nest: Nest) -> None:
    """The bytes of all addresses are at most the footprint, which counts each iteration."""
    for a in nest.accesses:
        for count in range(len(nest.axes) + 1):
            inner = nest.axes[count:]
            found = addresses(a, nest.axes).reshape(*[r.src[0].arg for r in nest.axes[:count]], -1)
            most = max([len(np.unique(row)) for row in found.reshape(-1, found.shape[-1])])
            runs = trips([r for r in inner if r in a.loops])
            assert most * a.itemsize <= a.footprint(inner) == runs * a.itemsize


def test_rows(nest: Nest) -> None:
    """The elements of accesses of one row are a constant apart, which their forms tell."""
    for a, b in itertools.product(nest.accesses, nest.accesses):
        near = a.node.src[0] is b.node.src[0] and a.gate is b.gate and a.node.dtype is b.node.dtype
        apart = affine.sub(b.flat, a.flat)
        assert (a.row == b.row) == (near and affine.is_const(apart))
        assert a.row != b.row or apart.arg == b.form[0] - a.form[0]


def test_what_is_used(nest: Nest) -> None:
    """An element that is written is used only where it is read as well."""
    (written,) = nest.written
    assert set(nest.used) == set(nest.read)
    store = nest.stores[0]
    value = alu.alu(store.src[1], Ops.ADD, store.src[0])
    again = Nest(walk.toposort(store.replace(src=(store.src[0], value))))
    assert {a.node for a in again.used} == {a.node for a in nest.read} | {written.node}


def test_what_is_read_and_written(nest: Nest) -> None:
    assert [a.node.src[0].arg.slot for a in nest.written] == [0]
    assert {a.node.src[0].arg.slot for a in nest.read} <= {1, 2, 3}
    assert len(nest.read) + len(nest.written) == len(nest.accesses)
    for a in nest.accesses:
        assert a.node in nest.order and a.loops == ranges.ranges(a.node)
        gated = a.node.src[1].op is Ops.WHERE
        assert (a.gate is not None) == gated


def test_loops(nest: Nest) -> None:
    closed = [r for u in (*nest.ends, *nest.reduces) for r in u.src[1:]]
    assert sorted(nest.axes, key=id) == sorted(set(closed), key=id)
    assert nest.outputs == [r for r in nest.axes if r.arg.kind == "loop"]
    for r in nest.axes:
        assert nest.closers(r) == [u for u in (*nest.reduces, *nest.ends) if r in u.src[1:]]
        assert nest.inside(r) == [a for a in nest.accesses if r in a.loops]
    along = [r for r in nest.outputs if nest.written[0].stride(r) == 1]
    assert nest.written_along() == along[::-1]


def test_contractions(nest: Nest) -> None:
    """Rows and columns are the loops with which one factor moves and the other does not."""
    for reduce in nest.reduces:
        c = find_contraction(reduce)
        assert c is not None and c.depth == reduce.src[1:]
        moves = [
            {r for a in nest.read for r in a.loops if a.node in (f, *f.src)} for f in (c.a, c.b)
        ]
        for r in nest.outputs:
            assert (r in c.rows) == (r in moves[0] and r not in moves[1])
            assert (r in c.columns) == (r in moves[1] and r not in moves[0])
            turned = c.with_column(r)
            assert (turned is None) == (r not in (*c.rows, *c.columns))
            assert turned is None or (r in turned.columns and {turned.a, turned.b} == {c.a, c.b})


def test_the_sizes_of_all_loops_are_the_size_of_the_kernel(nest: Nest) -> None:
    assert nest.expanded_size() == sum(nest.sizes.values())
    for r in nest.axes:
        assert 0 < nest.expanded_size(r) <= nest.expanded_size(r, [r])


def test_an_other_reduction_is_no_contraction() -> None:
    (r,) = loops_of(random.Random(0), 1, 0, "reduce")
    value = element(random.Random(1), 1, [r])
    for op, term in itertools.product(("add", "max"), (value, value * value)):
        reduce = intern(Ops.REDUCE, dtypes.float32, (term, r), ReduceArg(op, ()))
        assert (find_contraction(reduce) is not None) == (op == "add" and term is not value)
