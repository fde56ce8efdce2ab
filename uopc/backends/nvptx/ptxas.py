"""NVIDIA's assembler, if installed: registers and memory of kernels on an architecture.

The PyPI package nvidia-cuda-nvcc-cu12 contains `ptxas`. Running programs does not need it, because
the driver assembles PTX itself.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from uopc.errors import InvalidIR, Unsupported
from uopc.ir.records import dataclass

_FOLDERS = ("cuda_nvcc/bin", "cu13/bin", "cu12/bin")


@functools.cache
def find_ptxas() -> Path | None:
    """The path of the assembler, from an installed package or PATH; None where there is none."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        for folder in _FOLDERS:
            path = Path(root) / folder / "ptxas"
            if path.is_file():
                return path
    found = shutil.which("ptxas")
    return Path(found) if found else None


@dataclass(frozen=True)
class Usage:
    """The needs of one kernel: registers per thread; bytes of spills, stack and shared memory."""

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    shared: int = 0


@dataclass(frozen=True)
class Assembled:
    """The machine code of a module, the usage of its kernels, and the assembler's output."""

    cubin: bytes
    kernels: dict[str, Usage]
    log: str


def assemble(ptx: str, arch: str) -> Assembled:
    """Machine code for `arch` (sm_80, sm_90a).

    Raises Unsupported without an assembler, InvalidIR with its message where it refuses.
    """
    ptxas = find_ptxas()
    if ptxas is None:
        raise Unsupported("no ptxas: pip install nvidia-cuda-nvcc-cu12")
    with tempfile.TemporaryDirectory(prefix="uopc-") as folder:
        source, out = Path(folder) / "module.ptx", Path(folder) / "module.cubin"
        source.write_text(ptx, "utf-8")
        run = subprocess.run(
            [ptxas, f"-arch={arch}", "-v", "-o", out, source],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        log = run.stdout + run.stderr
        if run.returncode:
            raise InvalidIR(f"ptxas -arch={arch} refuses the module:\n{log.strip()[:4000]}")
        return Assembled(out.read_bytes(), _parse_log(log), log)


_KERNEL = re.compile(r"Function properties for (\S+)|Compiling entry function '([^']+)'")
_FIELDS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "shared": re.compile(r"(\d+) bytes smem"),
}


def _parse_log(log: str) -> dict[str, Usage]:
    found: dict[str, dict[str, int]] = {}
    kernel = ""
    for line in log.splitlines():
        if named := _KERNEL.search(line):
            kernel = named[1] or named[2]
            found.setdefault(kernel, {})
        for field, pattern in _FIELDS.items():
            if kernel and (number := pattern.search(line)):
                found[kernel][field] = int(number[1])
    return {name: Usage(**fields) for name, fields in found.items()}
