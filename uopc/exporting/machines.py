"""The machines for which code is exported, by name: a Target, and LLVM's names for it.

Object files have the format of the machine that runs the code (ELF or WebAssembly), whatever
machine exports them.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import Any

from uopc import target as targets
from uopc.backends import detect
from uopc.backends.llvm import jit
from uopc.errors import Unsupported, UserError
from uopc.ir.core import dtypes
from uopc.ir.records import dataclass
from uopc.target import CPUS, Target

_LINUX = {
    "x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu",
    "riscv64": "riscv64-unknown-linux-gnu",
}  # fmt: skip
# No system: code at a fixed address. Functions for others take no floats, see `object_code`.
_BARE = {"cortex-m3": "thumbv7m-unknown-none-eabi", "cortex-m4f": "thumbv7em-unknown-none-eabi",
         "cortex-m7": "thumbv7em-unknown-none-eabi"}  # fmt: skip
_WASM = {"wasm32": "wasm32-unknown-unknown"}
_ALIASES = {"AMD64": "x86_64", "arm64": "aarch64"}
HOST, ANY_C = "host", "c11"
# Other processors. RISC-V has no vectors, floats of 16 bits and rounding to integers without
# extensions; Cortex-M has no vectors; of its floats, M3 computes none, M4F those of 32 bits.
# WebAssembly has vectors, without products and sums that round once.
_ALONE = "-f16c,-sse4.1"
_CORTEX = {"cortex-m3": f"{_ALONE},-fma,-float32,-float64",
           "cortex-m4f": f"{_ALONE},-fma64,-float64", "cortex-m7": _ALONE}  # fmt: skip
_SMALL_STACK = 1 << 10  # of a kernel's buffers: microcontrollers have 2 to 8 KiB of stack in all
_OTHERS = {
    "aarch64": Target("aarch64", "cpu", 128, 32, "generic", "+neon"),
    "aarch64-dotprod": Target("aarch64-dotprod", "cpu", 128, 32, "generic", "+neon,+dotprod"),
    "aarch64-i8mm": Target("aarch64-i8mm", "cpu", 128, 32, "generic", "+neon,+dotprod,+i8mm"),
    "riscv64": Target("riscv64", "cpu", 8, 32, "generic-rv64", f"+m,+a,+f,+d,+c,{_ALONE}"),
    "wasm32": Target("wasm32", "cpu", 128, 16, "generic", "+simd128,-f16c,-fma,-fma64"),
    **{
        name: Target(name, "cpu", 8, 16, name.removesuffix("f"), lacks,
                     stack_bytes=_SMALL_STACK, index_bits=32)
        for name, lacks in _CORTEX.items()
    },
}
_FOR_PASSES = frozenset(("-f16c", "-sse4.1", "-fma", "-fma64", "-float32", "-float64"))
_CALLS = {"riscv64": "lp64d"}  # calling conventions that LLVM must be told
NAMES = (HOST, *CPUS, *_OTHERS, ANY_C)
ONE_LANE = 8  # bits of a vector of one element, whatever its type is


@dataclass(frozen=True)
class TargetMachine:
    """A machine by the name that users give: its description for passes, and its names for LLVM."""

    name: str
    target: Target
    triple: str  # for source code, the exporting machine's
    cpu: str = ""  # LLVM's names, if they differ from the target's
    features: str = ""
    is_source: bool = False

    @property
    def has_vectors(self) -> bool:
        """True if code may compute several elements at a time."""
        return self.target.vector_bits > ONE_LANE

    @property
    def is_arm(self) -> bool:
        """True for ARM of 32 bits."""
        return self.triple.startswith("thumb")

    @property
    def is_wasm(self) -> bool:
        """True for WebAssembly."""
        return self.triple.startswith("wasm")

    @property
    def size_bits(self) -> int:
        """The bits of a size argument: those of a pointer; 64 in source code."""
        return 32 if (self.is_arm or self.is_wasm) and not self.is_source else 64

    @property
    def is_x86(self) -> bool:
        """True for x86-64."""
        return self.triple.startswith("x86_64")

    def without_vectors(self) -> TargetMachine:
        """The same machine for code that computes one element at a time."""
        return replace(self, target=replace(self.target, vector_bits=ONE_LANE))

    def llvm(self) -> Any:
        """LLVM's machine, which writes object files."""
        cpu, features = self.cpu, self.features
        if not cpu:
            cpu, known = self.target.cpu, self.target.features.split(",")
            if not self.is_x86:  # features that it lacks have x86's names, only for the passes
                known = [feature for feature in known if feature not in _FOR_PASSES]
            features = ",".join(known)
        return jit.target_machine(
            cpu, features, self.triple, codemodel="small",
            reloc="pic" if self.triple in _LINUX.values() else "static",
            abiname=_CALLS.get(self.triple.partition("-")[0], ""),
        )  # fmt: skip

    def with_stack(self, nbytes: int | None) -> TargetMachine:
        """The same machine with `nbytes` of stack for the buffers of a kernel."""
        return replace(self, target=replace(self.target, stack_bytes=nbytes))

    def with_indices(self, bits: int) -> TargetMachine:
        """The same machine, with loops and indices of `bits` bits if bounds allow."""
        return replace(self, target=replace(self.target, index_bits=bits))

    def with_functions(self) -> TargetMachine:
        """The same machine for code that calls the functions of the C library."""
        return replace(self, target=replace(self.target, has_functions=True))

    def here(self) -> TargetMachine:
        """A machine for the same kernels, with code that runs in this process."""
        own = machine(HOST)
        if self.triple == own.triple:
            return self
        return replace(own, target=self.target, cpu=own.target.cpu, features=own.target.features)

    def for_source(self) -> TargetMachine:
        """The machine for code in C. Its `target` lists missing features in place of a
        processor."""
        whole = self.target
        known = (
            ("fma", whole.has_fma(dtypes.float32)), ("fma64", whole.has_fma(dtypes.float64)),
            ("sse4.1", whole.has_rounding), ("f16c", dtypes.float16 in whole.native_floats),
            *[(t.name, not whole.is_software(t)) for t in (dtypes.float32, dtypes.float64)],
        )  # fmt: skip
        features = ",".join([f"-{name}" for name, has in known if not has])
        plain = replace(whole, name=self.name, cpu="c", features=features)
        return replace(
            self, target=plain, cpu=whole.cpu, features=whole.features, is_source=True
        )


def machine(name: str) -> TargetMachine:
    """The machine with a name in NAMES. UserError for another name."""
    if name == ANY_C:
        return _any_c()
    if name in CPUS:
        return TargetMachine(name, targets.cpu_target(name), _LINUX["x86_64"])
    if name in _OTHERS:
        triple = (_LINUX | _BARE | _WASM)[name.removesuffix("-i8mm").removesuffix("-dotprod")]
        return TargetMachine(name, _OTHERS[name], triple)
    if name != HOST:
        raise UserError(f"export: unknown target {name!r}; choose {', '.join(NAMES)}")
    own = _ALIASES.get(platform.machine(), platform.machine())
    if own not in _LINUX:
        raise Unsupported(f"export: no object files for {own}; choose target={next(iter(CPUS))!r}")
    return TargetMachine(HOST, detect.host().without_tiles(), _LINUX[own])


def _any_c() -> TargetMachine:
    """Any C11 compiler with IEEE 754 floats. Products and sums that round once are only used in
    functions, because not every machine has an instruction for them."""
    own = machine(HOST)
    none = Target(ANY_C, "cpu", ONE_LANE, 16, "c", _ALONE, fuses_sums=False)
    found = replace(own, name=ANY_C, target=none).for_source()
    return replace(found, cpu=own.target.cpu, features=own.target.features)
