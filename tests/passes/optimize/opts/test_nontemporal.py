"""Stores past the caches: the same numbers at every length and alignment, where they are chosen."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.by_hand import apply_opt, plain_kernel, with_opts
from tests.machines import MACHINES, runnable
from uopc.driver import lower_only
from uopc.ir.core.args import Opt
from uopc.ir.core.data.blocks import new_array
from uopc.passes.optimize.opts.legality import Refused

CPUS = runnable("", "x86-64-v3")
MACHINE = "desktop"
HOLDS = MACHINES[MACHINE].target.last_cache_bytes
RNG = np.random.default_rng(23)
pytestmark = pytest.mark.machine(MACHINE)


def program(graph, opts, cpu=""):
    """A one-kernel graph with exactly these Opts; its storage is called s0 (written), s1, …"""
    asked = with_opts(plain_kernel(graph), opts)
    with pytest.MonkeyPatch.context() as patch:
        if cpu:
            patch.setenv("UOPC_TARGET_CPU", cpu)
        return uopc.compile(asked, verify=True)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(CPUS), st.sampled_from(("float32", "float64", "int16", "uint8", "bool")),
    st.integers(1, 9), st.sampled_from((2, 4, 8, 16, 32)), st.integers(0, 16),
)  # fmt: skip
def test_any_vectors_to_any_place(cpu, dtype, blocks, width, offset):
    """Arrays of the caller begin anywhere: nothing is written beside them."""
    n = blocks * width
    a = RNG.integers(0, 2, n).astype(dtype)
    t = getattr(uopc.dtypes, dtype)
    graph = uopc.param("a", (n,), t).cast(uopc.dtypes.float32).exp().cast(t)
    room = new_array((n + 64,), dtype)
    room[...] = 1
    out = room[offset : offset + n]
    opts = [Opt("VECTOR", 0, width)]
    wanted, again = np.zeros_like(a), [*opts, Opt("NONTEMPORAL", 0, 0)] if blocks > 1 else opts
    program(graph, opts, cpu)(s0=wanted, s1=a)
    program(graph, again, cpu)(s0=out, s1=a)
    np.testing.assert_array_equal(out, wanted)
    assert (room[:offset] == 1).all() and (room[offset + n :] == 1).all()


@pytest.mark.parametrize(
    ("lanes", "alignments"), [(4, [16]), (8, [32, 16]), (16, [64, 16]), (32, [64, 16])]
)
def test_a_version_for_results_one_for_numpy_and_one_for_parts_of_arrays(lanes, alignments):
    graph = uopc.param("a", (1 << 12,)) * 2.0
    made = program(graph, [Opt("VECTOR", 0, lanes), Opt("NONTEMPORAL", 0, 0)]).kernels[0].source
    assert re.findall(r"align (\d+), !nontemporal !0", made) == [str(n) for n in alignments]
    assert made.count("define internal") == len(alignments) + 1
    plain = program(graph, [Opt("VECTOR", 0, 8)]).kernels[0].source
    assert "nontemporal" not in plain and "define internal" not in plain


def test_rows_at_multiples_of_16_bytes_are_stored_in_pieces():
    graph = uopc.param("x", (8, 16)).pad(((0, 0), (4, 4))) * 2.0  # 24 elements a row
    opts = [Opt("PEEL", 1, 4), Opt("PEEL", 2, 16), Opt("VECTOR", 2, 16), Opt("NONTEMPORAL", 0, 0)]
    source = program(graph, opts).kernels[0].source
    assert set(re.findall(r"align (\d+), !nontemporal", source)) == {"16"}


@pytest.mark.parametrize("offset", [0, 16, 32, 48, 4])
def test_the_version_that_runs_needs_no_more_than_the_storage_has(offset):
    """A processor refuses such a store elsewhere."""
    n = 1 << 12
    made = program(
        uopc.param("a", (n,)) * 2.0, [Opt("VECTOR", 0, 16), Opt("NONTEMPORAL", 0, 0)]
    )  # fmt: skip
    out = new_array((n + 16,), "f4")[offset // 4 :][:n]
    a = RNG.random(n, "f4")
    made(s0=out, s1=a)
    np.testing.assert_array_equal(out, a * 2)


def test_rows_that_are_not_aligned_are_stored_through_the_caches():
    graph = uopc.param("a", (8, 18)).pad(((0, 0), (0, 1)))[:, :16] * 2.0
    opts = [Opt("VECTOR", 1, 8), Opt("NONTEMPORAL", 0, 0)]
    assert "nontemporal" in program(graph, opts).kernels[0].source
    x = uopc.param("x", (8, 16))
    rows = x.pad(((0, 0), (1, 1))) * 2.0  # 18 elements a row
    opts = [Opt("PEEL", 1, 1), Opt("PEEL", 2, 16), Opt("VECTOR", 2, 16), Opt("NONTEMPORAL", 0, 0)]
    assert "nontemporal" not in program(rows, opts).kernels[0].source


@pytest.mark.parametrize(
    ("make", "opt", "why"),
    [
        (lambda x: x * 2.0, Opt("NONTEMPORAL", 0, 4), "the amount is 4"),
        (lambda x: x.assign(x * 2.0), Opt("NONTEMPORAL", 0, 0), "reads the storage that it writes"),
        (lambda x: x.reshape(8, 8).sum(axis=1), Opt("NONTEMPORAL", 1, 0), "stores no output"),
    ],
)
def test_refused(make, opt, why):
    with pytest.raises(Refused, match=why):
        apply_opt(plain_kernel(make(uopc.param("x", (64,)))), opt)


def test_refused_twice():
    once = apply_opt(plain_kernel(uopc.param("x", (64,)) * 2.0), Opt("NONTEMPORAL", 0, 0))
    with pytest.raises(Refused, match="have a mode already"):
        apply_opt(once, Opt("NONTEMPORAL", 0, 0))


def streams(graph, threads=1):
    (kernel,) = lower_only(graph, threads=threads).kernels
    return [str(o) for o in kernel.arg.opts if o.op == "NONTEMPORAL"]


@pytest.mark.parametrize("threads", [1, 2])
def test_chosen_for_outputs_that_no_cache_holds(threads):
    n = HOLDS // 4 // 1024 * 1024  # floats that fill the cache
    x, y = uopc.param("x", (n,)), uopc.param("y", (n,))
    assert streams(x * 2.0 + y, threads)
    half = x[: n // 2] + y[: n // 2] + uopc.param("z", (n // 2,))
    assert streams(half, threads), "half of a cache, and two more to read"
    rows = uopc.param("r", (n // 1024, 1024))
    assert streams(rows.softmax(axis=-1), threads)
    square = uopc.param("s", (4096, max(4096, n // 2048)))
    assert streams(square.permute(1, 0).contiguous(), threads), "rows of a tile"


def test_not_chosen():
    n = HOLDS // 4 // 1024 * 1024
    x, y = uopc.param("x", (n,)), uopc.param("y", (n,))
    assert not streams(x[: n // 4] + y[: n // 4]), "all of it stays in the cache"
    assert not streams(x[: n // 2] * 2.0), "just about"
    assert not streams(x.reshape(-1, 64).sum(axis=1)), "a small output"
    assert not streams(x.assign(x * 2.0)), "read before it is written"
    assert not streams(x.reshape(-1, 64).pad(((0, 0), (1, 0)))), "rows of 65 elements"


def test_a_large_sum_past_the_caches():
    n = HOLDS // 4 + 4096
    a = np.arange(n, dtype="f4") % 1024
    x = uopc.param("x", (n,))
    for threads in (1, 2):
        with uopc.options(threads=threads):
            compiled = uopc.compile(x * 2.0 + 1.0)
        assert any(o.op == "NONTEMPORAL" for o in compiled.kernels[0].opts)
        np.testing.assert_array_equal(compiled(a), a * 2 + 1)
