"""Programs for a GPU in the caches: by part, in memory and on disk, equal to what was compiled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import uopc
from tests.standin import module
from uopc import cache
from uopc.cache import disk

DATA = np.linspace(-1, 1, 4096, dtype=np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    """A cache of this test's own; nothing in memory."""
    cache.clear()
    with uopc.options(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"
    cache.clear()


def graph():
    """Two kernels with a constant between; the first shares its sums."""
    x = uopc.param("x", (4096,))
    table = uopc.constant(np.arange(4096, dtype=np.float32))
    return x.sum().contiguous().reshape(1).expand(4096) * table + x


def wanted():
    return DATA.sum() * np.arange(4096, dtype=np.float32) + DATA


def facts(program):
    """Everything that a runtime is told."""
    kernels = [
        (k.name, k.source, k.asm, k.block, k.grid, k.shared_bytes, k.alignment, k.opts)
        for k in program.kernels
    ]
    return kernels, program.plan.launches, program.plan.arena_bytes


def test_a_program_is_found_in_memory_and_on_disk():
    made = uopc.compile(graph(), device="cuda:sm_90a")
    again = uopc.compile(graph(), device="cuda:sm_90a")
    cache.clear()
    stored = uopc.compile(graph(), device="cuda:sm_90a")
    assert [p.stats["cache"] for p in (made, again, stored)] == ["", "memory", "disk"]
    assert stored.stats["scheduled"] == stored.stats["compiled"] == 0
    assert facts(made) == facts(again) == facts(stored)
    assert len(made.kernels) > 1


def test_a_part_is_no_other_part():
    for part in ("sm_80", "sm_90", "sm_90a"):
        program = uopc.compile(graph(), device=f"cuda:{part}")
        assert program.stats["cache"] == ""
        assert all(f".target {part}\n" in k.asm for k in program.kernels)
    assert uopc.compile(graph()).stats["cache"] == ""


@pytest.mark.parametrize("part", ["sm_80", "sm_90a"])
def test_a_device_runs_what_was_made_for_its_part(part):
    """Without a device at first; then no kernel is compiled on the one that is there."""
    uopc.compile(graph(), device=f"cuda:{part}")
    cache.clear()
    with module.installed(part):
        for where in ("disk", "memory"):
            program = uopc.compile(graph(), device="cuda")
            assert program.stats["cache"] == where
            np.testing.assert_allclose(program(DATA), wanted(), rtol=1e-4, atol=1e-2)


def test_a_program_without_kernels():
    x = uopc.param("x", (8,))
    with module.installed("sm_90a"):
        for where in ("", "memory"):
            program = uopc.compile(x[:0], device="cuda")
            assert program.stats["cache"] == where and program.kernels == []
            assert np.array_equal(program(DATA[:8]), DATA[:0])


def test_a_symbolic_grid_is_kept():
    n = uopc.variable("n", 1, 1 << 20)
    x = uopc.param("x", (n,))
    plans = []
    for _ in range(2):
        cache.clear()
        program = uopc.compile(x * 2, device="cuda:sm_80")
        plans.append([launch.grid[0].evaluate({"n": 5000}) for launch in program.plan.launches])
    assert program.stats["cache"] == "disk" and plans[0] == plans[1]


def test_a_damaged_entry_is_compiled_again(folder):
    uopc.compile(graph(), device="cuda:sm_80")
    (entry,) = (folder / disk.FOLDER).glob("*.entry")
    content = bytearray(entry.read_bytes())
    content[-1] ^= 1
    entry.write_bytes(content)
    cache.clear()
    assert uopc.compile(graph(), device="cuda:sm_80").stats["cache"] == ""
    assert "is damaged" in cache.problems()[0]


def test_texts_that_are_not_those_of_the_kernels_are_refused():
    program = uopc.compile(graph(), device="cuda:sm_80")
    found = program._artifact
    whole = found.kernels
    for code in (b"no text", whole[0].code[:-3]):
        found.kernels = tuple([replace(k, code=code) for k in whole])
        with pytest.raises(uopc.InvalidIR, match="not the PTX of"):
            found.check()


def test_verify_makes_it_anew():
    uopc.compile(graph(), device="cuda:sm_80")
    assert uopc.compile(graph(), device="cuda:sm_80", verify=True).stats["cache"] == ""
