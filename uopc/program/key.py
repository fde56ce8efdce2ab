"""Everything that a compiled program depends on, by component: equal keys mean equal code."""

from __future__ import annotations

import hashlib
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from uopc.ir.core.serialize import Fingerprint
from uopc.ir.devices.device import named
from uopc.program.request import Request, rules_of
from uopc.target import Target

# The version of the files on disk: part of the key, so an old entry is never read as a new one.
FORMAT = 2


def digest(text: str) -> str:
    """A short name of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# Each by its name.
Components: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Key:
    """The components by name. `digest` names the entry; the components are compared in full."""

    components: Components

    @property
    def digest(self) -> str:
        return digest("".join([f"{name}={value}\n" for name, value in self.components]))

    def differs(self, other: dict[str, str]) -> list[str]:
        """The components in which another key differs."""
        mine = dict(self.components)
        return [name for name in {**mine, **other} if mine.get(name) != other.get(name)]


def request_components(
    request: Request, machine: Target, printed: Fingerprint, rules: str = ""
) -> Components:
    """The components of a request, whose graph has no bound values any more; `rules`: the
    identity of its rules."""
    # The graph need not read them all, so their types are not always in its digest.
    params = [f"{p.arg!r} {p.dtype.name} {', '.join(map(str, p.src))}" for p in request.params]
    return (
        ("graph", printed.digest),
        ("inputs", repr(params)),
        ("name", repr(request.name)),
        *([("place", named(request.device))] if machine.gpu is None else []),
        *code_components(request, machine, rules),
    )


def code_components(request: Request, machine: Target, rules: str = "") -> Components:
    """The components of a request that the code of each kernel depends on."""
    return (
        ("device", machine.device),
        ("optimize", str(request.optimize)),
        ("threads", str(request.threads)),
        *[(name, repr(value)) for name, value in request.options.for_code.items()],
        ("rules", rules),
        *([] if request.mesh is None else [("mesh", repr(request.mesh))]),
        *([] if request.opts is None else [("opts", repr(request.opts))]),
        machine_component(machine),
    )


def rules_identity(request: Request, machine: Target) -> str | None:
    """A digest of the rules of a request, "" if it has none; None if they read an object that may
    change unseen: such a program is in no cache."""
    rules = rules_of(request, machine)
    if not rules:
        return ""
    from uopc.program.rules import identity

    return identity(rules)


@cache
def machine_component(machine: Target) -> tuple[str, str]:
    """The machine that code is for."""
    return "machine", f"{sys.platform} {platform.machine()} {machine!r}"


def machine_digest(machine: Target) -> str:
    """A short name of a machine, for what a database has of it."""
    return digest(machine_component(machine)[1])


@cache
def process_components() -> Components:
    """The components that all requests of this process share, but not all processes."""
    import llvmlite
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    return (
        ("format", str(FORMAT)),
        ("uopc", source_digest()),
        ("llvm", f"LLVM {version}, llvmlite {llvmlite.__version__}"),
    )


@cache
def source_digest() -> str:
    """A digest of this package's source files: any change may change the code they make."""
    folder = Path(__file__).parent.parent
    made = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        made.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return made.hexdigest()
