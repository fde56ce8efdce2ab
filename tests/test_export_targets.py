"""Code for other processors: run by qemu where it is installed, bits equal to this machine's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import uopc
from tests.export_corpus import GOOD
from tests.test_export import CASES, network, run, streamed
from tests.test_export_c import named
from uopc.errors import Unsupported
from uopc.exporting import elf

KINDS = {
    "static": ("f_test.c", "f.a", "-static"),
    "shared": ("f_test.c", "f.so", "-Wl,-rpath,$ORIGIN"),
    "c": ("f_test.c", "f.c", "-static"),
}
MACHINES = {"aarch64": 183, "riscv64": 243}  # numbers of ELF
each_target = pytest.mark.parametrize("target", MACHINES)


def tools(target: str) -> tuple[str, str]:
    """The compiler and the emulator. The test is skipped where one is missing."""
    compiler, emulator = f"{target}-linux-gnu-gcc", f"qemu-{target}"
    if shutil.which(compiler) is None or shutil.which(emulator) is None:
        pytest.skip(f"{compiler} or {emulator} is not installed")
    return compiler, emulator


@each_target
@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
def test_the_bits_of_this_machine(make: Any, target: str, tmp_path: Path) -> None:
    compiler, emulator = tools(target)
    case = make()
    for kind, files in KINDS.items():
        if kind == "shared" and target == "riscv64":
            continue
        uopc.export(case.graph, tmp_path / "f", kind=kind, target=target, examples=named(case))
        run(compiler, "-std=c11", "-O1", *files, "-o", "test", folder=tmp_path)
        made = run(emulator, "-L", f"/usr/{target}-linux-gnu", "./test", folder=tmp_path)
        assert GOOD in made


@each_target
@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
def test_objects_need_no_other_file(make: Any, target: str, tmp_path: Path) -> None:
    made = uopc.export(make().graph, tmp_path / "f", target=target)
    found = elf.read(made.files[-1].read_bytes())
    assert (found.machine, found.undefined) == (MACHINES[target], [])
    assert made.manifest["target"]["triple"] == f"{target}-unknown-linux-gnu"


@each_target
def test_stores_past_the_caches_have_no_fence_of_another_processor(
    target: str, tmp_path: Path
) -> None:
    """LLVM would end the process."""
    made = uopc.export(streamed().graph, tmp_path / "f", target=target)
    assert elf.read(made.files[-1].read_bytes()).undefined == []


def test_a_shared_library_for_risc_v_needs_a_linker(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="x86-64 and AArch64: link the object file"):
        uopc.export(network().graph, tmp_path / "f", kind="shared", target="riscv64")


def test_a_library_of_another_machine_is_not_loaded(tmp_path: Path) -> None:
    uopc.export(network().graph, tmp_path / "f", kind="shared", target="aarch64")
    with pytest.raises(uopc.errors.UserError):
        uopc.load_exported(tmp_path / "f.so")
