"""The machines that code is exported for, by name: a Target, and LLVM's names for it.

Object files have the ELF format on each of them, so the machine that exports need not be the one
that runs the code.
"""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass, replace
from typing import Any

from uopc import target as targets
from uopc.backends import detect
from uopc.errors import Unsupported, UserError
from uopc.target import CPUS, Target

_LINUX = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
_ALIASES = {"AMD64": "x86_64", "arm64": "aarch64"}
HOST = "host"
NAMES = (HOST, *CPUS)
ONE_LANE = 8  # bits of a vector of one element, whatever its type is


@dataclass(frozen=True)
class Machine:
    """A machine by the name that a user gives it: what passes read, and what LLVM is told."""

    name: str
    target: Target
    triple: str

    @property
    def is_x86(self) -> bool:
        """True for x86-64."""
        return self.triple.startswith("x86_64")

    def without_vectors(self) -> Machine:
        """The same machine for code that computes one element at a time."""
        return replace(self, target=replace(self.target, vector_bits=ONE_LANE))

    def llvm(self) -> Any:
        """LLVM's machine, which makes position-independent object files."""
        return _llvm_machine(self.triple, self.target.cpu, self.target.features)


@functools.cache
def _llvm_machine(triple: str, cpu: str, features: str) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )


def machine(name: str) -> Machine:
    """The machine of a name: `host`, or a level of x86-64. UserError for another name."""
    if name in CPUS:
        return Machine(name, targets.cpu_target(name), _LINUX["x86_64"])
    if name != HOST:
        raise UserError(f"export: unknown target {name!r}; choose {', '.join(NAMES)}")
    own = _ALIASES.get(platform.machine(), platform.machine())
    if own not in _LINUX:
        raise Unsupported(f"export: no object files for {own}; choose target={next(iter(CPUS))!r}")
    return Machine(HOST, detect.host(), _LINUX[own])
