"""A program imports the passes that it runs, and no others."""

from __future__ import annotations

import os
import subprocess
import sys

from uopc.passes import PIPELINE

CODE = """
import sys, uopc
x = uopc.param("x", (8,))
uopc.compile({value}, optimize={optimize})
print(*[m for m in sys.modules if m.startswith("uopc.passes.")])
"""
EVERY_PROGRAM = {
    "analysis", "apply_rules", "canonicalize", "conditions", "contract", "decompose",
    "devectorize", "effects", "expand", "flatten_indices", "fuse_products", "linearize", "optimize",
    "pass_manager", "place_stages", "rangeify", "split_kernels",
}  # fmt: skip


def imported(value: str, optimize: bool) -> set[str]:
    """The modules below uopc.passes that a compile in a fresh process imports."""
    code = CODE.format(value=value, optimize=optimize)
    env = {**os.environ, "UOPC_CACHE_DIR": ""}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True, env=env
    )
    return {m.removeprefix("uopc.passes.") for m in result.stdout.split()}


def passes_of(*groups: str) -> set[str]:
    """The modules of the passes of some groups."""
    return {p.name.replace("-", "_") for _, p in PIPELINE if p.group in groups}


def test_the_least_program_imports_only_passes_that_it_needs() -> None:
    found = imported("x * 2", optimize=False)
    assert {m.split(".")[0] for m in found} == EVERY_PROGRAM
    assert EVERY_PROGRAM.isdisjoint(passes_of("speed", "devices", "kernels"))
    assert not {m for m in found if m.startswith(("optimize.opts", "optimize.schedule"))}


def test_a_sum_of_one_cpu_imports_no_pass_for_devices() -> None:
    found = {m.split(".")[0] for m in imported("x.sum()", optimize=True)}
    assert {"collapse_reduces", "split_reduces", "simplify_ranges"} < found
    assert not passes_of("devices") & found and "sharding" not in found
