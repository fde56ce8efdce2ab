"""Arrays beyond 2^31 elements and bytes. They take little memory: zeros that nobody writes are one
page, and what is written from end to end is many windows on the same 2 MiB."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys

import numpy as np
import pytest

import uopc
from tests.ptx import machine, parse
from tests.ptx.memory import Memory
from uopc import dtypes

N = (1 << 31) + 77
ROWS = N // 7
WINDOW = 1 << 21


@pytest.fixture(scope="module")
def sparse():
    a = np.zeros(N, np.int8)
    a[7], a[-3] = 3, 5
    return a


@pytest.mark.parametrize(
    "graph, expected",
    [
        pytest.param(lambda x: x.cast(dtypes.int32).sum(), 8, id="sum"),
        pytest.param(lambda x: x.max(), 5, id="max"),
        pytest.param(lambda x: x.argmax(), N - 3, id="argmax"),
        pytest.param(lambda x: x[N - 5 :], [0, 0, 5, 0, 0], id="tail"),
        pytest.param(lambda x: x.flip(0)[1:5] * 2, [0, 10, 0, 0], id="flip"),
        pytest.param(lambda x: x[7 :: (1 << 31) + 67], [3, 5], id="steps"),
        pytest.param(lambda x: x[: ROWS * 7].reshape(ROWS, 7).cast(dtypes.int32).sum(0),
                     [3, 0, 0, 0, 0, 0, 5], id="columns"),
    ],
)  # fmt: skip
@pytest.mark.few(3)
def test_more_than_2_31_elements_are_read(sparse, graph, expected):
    f = uopc.compile(graph(uopc.param("x", (N,), dtypes.int8)))
    assert np.array_equal(f(sparse), expected)


def test_indices_beyond_2_31_are_gathered(sparse):
    x, i = uopc.param("x", (N,), dtypes.int8), uopc.param("i", (4,), dtypes.int64)
    f = uopc.compile(x[i])
    assert f(x=sparse, i=np.array([N - 3, 7, N - 1, -N + 7])).tolist() == [5, 3, 0, 3]


def test_more_than_2_31_bytes_of_fewer_elements_are_read():
    a = np.zeros((1 << 29) + 1003, np.float32)
    a[-1] = 2.5
    x = uopc.param("x", a.shape)
    total, tail = uopc.compile((x.sum(), x[-2:] * 2))(a)
    assert total == 2.5 and tail.tolist() == [0, 5]


def test_a_part_beyond_2_31_is_written():
    a = np.zeros(N, np.int8)
    x = uopc.param("x", (N,), dtypes.int8)
    uopc.compile(x[N - 5 : N - 1].assign(x[:4] + 9))(a)
    assert a[-6:].tolist() == [0, 9, 9, 9, 9, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="memory without a file is Linux's")
def test_more_than_2_31_elements_are_written():
    shape = (1 << 11, 1 << 10, (1 << 10) + 1)
    rows = np.random.default_rng(0).integers(0, 100, shape[:2], np.int8)
    out = uopc.param("target", shape, dtypes.int8)
    value = uopc.param("rows", shape[:2], dtypes.int8).reshape(*shape[:2], 1).expand(*shape)
    target = _windows(shape)
    # One thread, so that the last window is what is left to see.
    uopc.compile(out.assign(value), threads=1)(target=target, rows=rows)
    last = np.broadcast_to(rows[-1, :, None], shape[1:])
    assert np.array_equal(target[-1, -2000:], last[-2000:])


def _windows(shape):
    """An array of int8 whose pages are the same WINDOW bytes again and again."""
    count = -(-int(np.prod(shape)) // WINDOW)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    memory = os.memfd_create("window")
    os.ftruncate(memory, WINDOW)
    anywhere = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = libc.mmap(None, count * WINDOW, 0, anywhere, -1, 0)
    fixed, access = mmap.MAP_SHARED | 0x10, mmap.PROT_READ | mmap.PROT_WRITE  # 0x10: MAP_FIXED
    for k in range(count):
        place = base + k * WINDOW
        assert libc.mmap(place, WINDOW, access, fixed, memory, 0) == place
    os.close(memory)
    whole = (ctypes.c_int8 * int(np.prod(shape))).from_address(base)
    return np.frombuffer(whole, np.int8).reshape(shape)


# ---------------------------------------------------------------- on a GPU
FAR = {
    "tail": (lambda x: x[N - 5 :], [0, 0, 5, 0, 0]),
    "flip": (lambda x: x.flip(0)[1:5] * 2, [0, 10, 0, 0]),
    "steps": (lambda x: x[7 :: (1 << 31) + 67], [3, 5]),
    "rows": (lambda x: x[N - 64 :].reshape(2, 32).cast(dtypes.int32).sum(1), [0, 5]),
}


def execute(program, arrays, first=0, blocks=None):
    """The launches of a program on the PTX machine, on these arguments and results: all blocks, or
    so many from number `first` on."""
    memory, plan = Memory(), program.plan
    places = [memory.place(a) for a in arrays]
    places.append(memory.place(np.zeros(max(1, plan.arena_bytes), np.uint8)))
    places += [memory.place(np.ascontiguousarray(c)) for c in plan.constants]
    texts = {k.name: k.asm for k in program.kernels}
    for launch in plan.launches:
        kernel = parse.parse(texts[launch.kernel])[launch.kernel]
        words = [places[w.base] + w.offset if hasattr(w, "base") else w.value for w in launch.words]
        args, count = machine.pack(kernel, words), blocks or math.prod(launch.grid)
        machine.run(kernel, launch.grid, launch.block, args, memory, blocks=count, first=first)


@pytest.mark.parametrize("part", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", FAR)
def test_places_beyond_2_31_are_read_on_a_gpu(sparse, name, part):
    graph, expected = FAR[name]
    program = uopc.compile(graph(uopc.param("x", (N,), dtypes.int8)), device=f"cuda:{part}")
    (result,) = program.plan.fresh
    out = np.zeros(result.shape, result.dtype)
    execute(program, [sparse, out])
    assert out.tolist() == expected


@pytest.mark.parametrize("part", ["sm_80", "sm_90a"])
def test_indices_beyond_2_31_are_gathered_on_a_gpu(sparse, part):
    x, i = uopc.param("x", (N,), dtypes.int8), uopc.param("i", (4,), dtypes.int64)
    program = uopc.compile(x[i], device=f"cuda:{part}", inputs=["x", "i"])
    out = np.zeros(4, np.int8)
    execute(program, [sparse, np.array([N - 3, 7, N - 1, -N + 7]), out])
    assert out.tolist() == [5, 3, 0, 3]


def test_the_last_blocks_of_a_large_launch_write_where_they_should():
    """A grid over 5 Gi elements: its last block alone, which is beyond 2^32."""
    n = 5 << 30
    program = uopc.compile(uopc.param("x", (n,), dtypes.int8) + 1, device="cuda:sm_90a")
    (launch,) = program.plan.launches
    each = n // launch.grid[0]
    x, out = np.zeros(n, np.int8), np.zeros(n, np.int8)
    x[-each:] = np.arange(each) % 100
    execute(program, [x, out], launch.grid[0] - 1, 1)
    assert np.array_equal(out[-each:], x[-each:] + 1) and not out[: 1 << 20].any()
