"""Kernels that threads share, on described machines of 8 and 64 cores, and of two sockets."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

import uopc
from tests import machines
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.cost.threads import beside, cycles_of_threads
from uopc.driver import lower_only
from uopc.ir.nest.describe import outline_of
from uopc.ir.nest.outline import Body, Dim, Outline, Reference, Unit

KIB, MIB = 1 << 10, 1 << 20
DESKTOP = machines.Machine("x86-64-v3", (32 * KIB, 512 * KIB, 16 * MIB), 8).target
SERVER = machines.Machine("x86-64-v4", (48 * KIB, 2 * MIB, 105 * MIB), 64).target
EIGHT = machine_of(DESKTOP, 8)
# Eight channels of memory for each socket.
_FAST = dataclasses.replace(SERVER, figures=dataclasses.replace(SERVER.figures, shared_bytes=60.0))
MANY, TWO = machine_of(_FAST, 64), machine_of(_FAST, 64, 2)


def arithmetic(threads: int, vectors: int = 1 << 22) -> Outline:
    """Additions of registers, in chunks."""
    body = Body(float(vectors // threads), (), Counter([Unit("alu", 8, 32)] * 8))
    return Outline([body], Body(), [], [], threads)


def stream(threads: int, nbytes: int = 1 << 30) -> Outline:
    """A read of an array, in chunks."""
    length = nbytes // 32 // threads
    r = Reference(
        0, nbytes // 4, 4, False, False, 0, (Dim(8, 1),), (), {0: 8}, [0]
    )  # fmt: skip
    return Outline([Body(float(length))], Body(), [r], [nbytes], threads)


def speed_up(make, m, threads):
    return cycles(make(1), m) / cycles_of_threads(make(threads), m)


def test_one_thread_is_the_kernel_itself():
    for make in (arithmetic, stream):
        assert cycles_of_threads(make(1), MANY) == cycles(make(1), MANY)
    assert beside(EIGHT, 1) is EIGHT and beside(TWO, 2) is TWO


@pytest.mark.parametrize("m", [EIGHT, MANY, TWO])
def test_arithmetic_is_as_many_times_as_fast_as_there_are_cores(m):
    for threads in (2, m.cores // 2, m.cores):
        assert speed_up(arithmetic, m, threads) == pytest.approx(threads, rel=0.02)


@pytest.mark.parametrize("m", [EIGHT, MANY, TWO])
def test_threads_beyond_the_cores_take_turns(m):
    """One chunk more than cores takes two rounds; twice as many chunks, which are half as long, are
    as fast as one for each core, and no number of threads beats the cores."""
    one, more = [speed_up(arithmetic, m, n) for n in (m.cores, m.cores + 1)]
    assert more == pytest.approx((m.cores + 1) / 2, rel=0.02) and more < 0.6 * one
    for rounds in (2, 3, 4):
        assert speed_up(arithmetic, m, rounds * m.cores) == pytest.approx(one, rel=0.02)
    assert max([speed_up(arithmetic, m, n) for n in range(1, 4 * m.cores)]) <= m.cores


def test_memory_is_as_fast_as_all_threads_of_a_socket_get_it():
    """Two threads of the desktop read as fast as memory gives; a second socket doubles that."""
    most = EIGHT.shared_bytes * EIGHT.caches[2].stream / 64
    assert most == 2 and speed_up(stream, EIGHT, 2) == pytest.approx(2, rel=0.05)
    for threads in (4, 8, 16):
        assert speed_up(stream, EIGHT, threads) < 1.15 * most
    one, two = speed_up(stream, MANY, 64), speed_up(stream, TWO, 64)
    assert one == pytest.approx(12, rel=0.15) and two == pytest.approx(2 * one, rel=0.05)


def test_an_array_that_the_last_cache_holds_is_read_as_fast_as_there_are_cores():
    for m in (EIGHT, MANY):
        assert speed_up(lambda n: stream(n, 8 * MIB), m, 8) == pytest.approx(8, rel=0.05)
    assert beside(EIGHT, 8).caches[:2] == EIGHT.caches[:2]


def test_little_work_is_faster_on_one_thread():
    assert speed_up(lambda n: arithmetic(n, 256), EIGHT, 8) < 1


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_outline_of_a_chunk_says_how_many_threads_there_are(threads):
    with machines.only_lowered("workstation"):
        product = uopc.param("x", (512, 512)) @ uopc.param("y", (512, 512))
        stages = lower_only(product, threads=threads)
    (run,) = [r for r in stages.runs if r.name == "optimize"]
    outline = outline_of(run.after[0])
    assert outline.threads == threads
    m = machine_of(stages.context.target, 16)
    whole = 512**3 / 16
    assert whole / threads < cycles_of_threads(outline, m) - m.launch < 1.5 * whole / threads
