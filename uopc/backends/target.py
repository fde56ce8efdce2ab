"""What a machine can do, as data: read by the heuristic, the decompositions and the emitter."""

from __future__ import annotations

import functools
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A CPU: `vector_bits` of a register, how many of them, and LLVM's name and features for it."""

    name: str
    device: str
    vector_bits: int
    registers: int
    cpu: str
    features: str
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20

    def lanes(self, bits: int) -> int:
        """How many values of this many bits a register holds."""
        return max(1, self.vector_bits // max(8, bits))


# Named CPUs of LLVM with the widest vectors they have; anything else is asked for its features.
KNOWN = {
    "x86-64": (128, 16), "x86-64-v2": (128, 16), "x86-64-v3": (256, 16), "x86-64-v4": (512, 32),
}  # fmt: skip


@functools.cache
def host(cpu: str = "") -> Target:
    """This machine, or the CPU that `cpu` names."""
    import llvmlite.binding as llvm

    if cpu in KNOWN:
        bits, registers = KNOWN[cpu]
        return Target(cpu, "cpu", bits, registers, cpu, "")
    found = llvm.get_host_cpu_features()
    features = found.flatten()
    bits, registers = 128, 16
    if found.get("avx512f") and found.get("avx512vl"):
        bits, registers = 512, 32
    elif found.get("avx2"):
        bits, registers = 256, 16
    elif found.get("neon"):
        bits, registers = 128, 32
    return Target("host", "cpu", bits, registers, cpu or llvm.get_host_cpu_name(), features)
