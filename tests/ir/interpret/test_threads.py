"""Kernels on blocks of threads: the interpreter runs them, finds races, and agrees with loops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc import config
from uopc.errors import InvalidIR
from uopc.ir.builder import kernel
from uopc.ir.core import dtypes
from uopc.ir.core.args import BufferArg, Opt, ParamArg
from uopc.ir.core.levels import KERNEL
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.index.dims import dim_uop
from uopc.ir.interpret import interpreter
from uopc.ir.verify.verifier import verify
from uopc.passes.pass_manager import Lowering
from uopc.program.backend import backend_of
from uopc.program.request import make_context, prepare

F32 = dtypes.float32


def special(name, n):
    return intern(Ops.SPECIAL, dtypes.index, (dim_uop(n),), name)


def param(slot, n):
    return intern(Ops.PARAM, F32, (), ParamArg(f"p{slot}", (n,), slot))


def at(storage, i):
    return intern(Ops.INDEX, F32, (storage, i))


def run(graph, *arrays):
    verify(graph, KERNEL, "kernel")
    interpreter.run_kernel(graph, list(arrays), {})


def neighbour(threads, barrier=True, only=None):
    """Each thread stores its number in local storage and reads its neighbour's."""
    me = special("lidx0", threads)
    local = intern(Ops.BUFFER, F32, (), BufferArg(0, (threads,), space="local"))
    stored = kernel.store(at(local, me), me.cast(F32), only(me) if only else None)
    done = intern(Ops.BARRIER, dtypes.void, (stored,)) if barrier else stored
    value = kernel.load(at(kernel.after(local, done), (me + 1) % threads))
    block = special("gidx0", 3)
    return kernel.sink(kernel.store(at(param(0, 3 * threads), block * threads + me), value))


def test_threads_see_what_was_stored_before_a_barrier():
    out = np.zeros(3 * 64, np.float32)
    run(neighbour(64), out)
    assert out.reshape(3, 64).tolist() == [[(i + 1) % 64 for i in range(64)]] * 3


def test_a_missing_barrier_is_found():
    with pytest.raises(InvalidIR, match=r"thread \d+ reads element \d+ .* since the last barrier"):
        run(neighbour(64, barrier=False), np.zeros(192, np.float32))


def test_two_threads_that_write_one_place_are_found():
    me = special("lidx0", 8)
    local = intern(Ops.BUFFER, F32, (), BufferArg(0, (4,), space="local"))
    stored = kernel.store(at(local, me % 4), me.cast(F32))
    with pytest.raises(InvalidIR, match="writes element"):
        run(kernel.sink(stored), np.zeros(1, np.float32))


def test_a_barrier_that_some_threads_do_not_reach_is_found():
    me = special("lidx0", 8)
    r = kernel.range(me % 2, 0)
    local = intern(Ops.BUFFER, F32, (), BufferArg(0, (8,), space="local"))
    stored = kernel.store(at(local, me), (me + r).cast(F32))
    barrier = intern(Ops.BARRIER, dtypes.void, (stored,))
    value = kernel.load(at(kernel.after(local, barrier), me))
    last = kernel.end(kernel.store(at(param(0, 8), me + r), value), r)
    with pytest.raises(InvalidIR, match="not all threads of the block"):
        interpreter.run_kernel(kernel.sink(last), [np.zeros(8, np.float32)], {})


def test_exchange_is_within_a_warp():
    me = special("lidx0", 64)
    swapped = intern(Ops.EXCHANGE, F32, (me.cast(F32),), 3)
    out = np.zeros(64, np.float32)
    run(kernel.sink(kernel.store(at(param(0, 64), me), swapped)), out)
    assert out.tolist() == [i ^ 3 for i in range(64)]
    wide = intern(Ops.EXCHANGE, F32, (me.cast(F32),), 32)
    with pytest.raises(InvalidIR, match="no such thread in the warp"):
        run(kernel.sink(kernel.store(at(param(0, 64), me), wide)), out)


# ---------------------------------------------------------------- Opts
def lowered(graph, opts):
    request = prepare(graph, None, True, 1, None, config.current())
    request = dataclasses.replace(request, device="cuda:sm_80")
    context = make_context(request, backend_of(request.device).target(request.device, ""))
    context.opts = opts
    return Lowering(context, verify).lower(request.graph)


def check(graph, array, opts, want):
    (linear,) = lowered(graph, opts).kernels
    out = np.zeros(want.shape, want.dtype)
    interpreter.run_kernel(linear, [out.reshape(-1), array.reshape(-1)], {})
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    again = lowered(graph, linear.arg.opts).kernels
    assert again == [linear]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 300), st.sampled_from([2, 8, 32, 64, 128]),
    st.sampled_from(["add", "max", "min"]), st.booleans(),
)  # fmt: skip
def test_shared_reduces(rows, columns, threads, op, grid):
    x = uopc.param("x", (rows, columns))
    graph = {"add": x.sum(1), "max": x.max(1), "min": x.min(1)}[op]
    array = np.random.default_rng(columns).standard_normal((rows, columns)).astype(np.float32)
    want = getattr(array, {"add": "sum"}.get(op, op))(1)
    axes = (rows > 1) + (columns > 1)
    opts = ()
    if columns > 1:
        opts += (Opt("GROUP", axes - 1, threads),)
    if rows > 1 and grid:
        opts += (Opt("GRID", 0, 0),)
    check(graph, array, opts, want)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 60), st.integers(1, 5), st.sampled_from([2, 4, 8, 16]))
def test_reduces_by_rows_of_threads(rows, tiles, threads):
    columns = 32 * tiles
    x = uopc.param("x", (rows, columns))
    array = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    last = 2 if tiles > 1 else 1
    check(x.sum(0), array, (Opt("LOCAL", 0, 32), Opt("GROUPTOP", last, threads)), array.sum(0))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(1, 500))
def test_whatever_is_chosen_is_right(rows, columns):
    x = uopc.param("x", (rows, columns))
    array = np.random.default_rng(columns).standard_normal((rows, columns)).astype(np.float32)
    e = np.exp(array - array.max(-1, keepdims=True))
    check(x.softmax(-1), array, None, e / e.sum(-1, keepdims=True))
    check((x * 2).transpose() + 1, array, None, (array * 2).T + 1)


def test_what_a_store_reads_of_its_target_is_read_by_its_thread():
    """Others of its group could read it after that thread has written."""
    total, x = uopc.param("total", (10,)), uopc.param("x", (4096, 10))
    graph = total.assign(total + x.sum(0))
    (k,) = uopc.compile(graph, device="cuda:sm_90a").kernels
    assert any(o.op.startswith("GROUP") for o in k.opts)
    stored = next(u for u in k.uops.src if u.op is Ops.STORE and u.src[0].src[0].op is Ops.PARAM)
    reads = [u for u in k.uops.src if u.op is Ops.LOAD and u.src[0] is stored.src[0]]
    assert [u.src[1:] for u in reads] == [stored.src[2:]]
