"""The key of a compiled program: all components that shape the code, so equal keys mean equal
code."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from uopc import config
from uopc.backends import detect
from uopc.cache.disk import DiskCache
from uopc.ir import forks
from uopc.ir.core.data.files import Stamp
from uopc.ir.core.serialize import Fingerprint
from uopc.ir.devices.device import named
from uopc.ir.records import dataclass
from uopc.program.cached import record
from uopc.program.cached.record import Components, Key
from uopc.program.request import Request, rules_of
from uopc.target import Target

PACKAGE = Path(__file__).parents[2]
# The version of the files on disk: part of the key, so an old entry is never read as a new one.
FORMAT = 2


def request_components(
    request: Request, machine: Target, printed: Fingerprint, rules: str = ""
) -> Components:
    """The components of a request whose graph has no more bound values. `rules`: the identity of
    its rules."""
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
    """A digest of the rules of a request, "" without rules. None if rules read an object that may
    change unseen: such a program is not cached."""
    rules = rules_of(request, machine)
    if not rules:
        return ""
    from uopc.program.rules import identity

    return identity(rules)


@cache
def machine_component(machine: Target) -> tuple[str, str]:
    """The machine that the code is for."""
    return "machine", f"{sys.platform} {platform.machine()} {machine!r}"


def machine_digest(machine: Target) -> str:
    """A short name of a machine, for the database's rows about the machine."""
    return record.digest(machine_component(machine)[1])


@cache
def process_components() -> Components:
    """The components that all requests of one process share."""
    found = installation()
    return ("format", str(FORMAT)), ("uopc", found.source), ("llvm", found.llvm)


def with_process(components: Components) -> Key:
    """The key on disk for these components and the components of this process."""
    return Key((*process_components(), *components))


@cache
def source_digest() -> str:
    """A digest of this package's source files, since any change may change the generated code."""
    made = hashlib.blake2b(digest_size=16)
    for path in _files(PACKAGE, True):
        with open(path, "rb") as file:
            content = file.read()
        made.update(f"{path[len(str(PACKAGE)) :]} {len(content)}\n".encode() + content)
    return made.hexdigest()


# ---------------------------------------------------------------- the installation
@dataclass(frozen=True)
class Installation:
    """Facts that take time to find: the digest of uopc's sources, the version of LLVM, and LLVM's
    names of the processor and its features.

    The disk keeps these facts by the stamps of all files, which a listing gives (3 ms; reading the
    sources takes 20, loading LLVM 30), and by the system's description of the processor.
    """

    source: str
    llvm: str
    processor: str
    features: str


@cache
def installation() -> Installation:
    """The installation of this process; `detect` gets its processor, too."""
    disk, begin = DiskCache.of(config.current()), time.time_ns()
    if disk is None:
        return _found()
    stamps, processor = _stamps(), detect.processor_stamp()
    if stamps is None or processor is None:
        return _found()
    listed = record.digest(repr(stamps))
    whole = Key((("format", str(FORMAT)), ("installation", listed), ("processor", processor)))
    found = disk.load(
        whole.digest, lambda data: record.decode(data, whole, Installation), counted=False
    )
    if found is None:
        found = _found()
        if all([s.is_settled(begin) for s in stamps]):
            disk.save(whole.digest, record.encode(whole, [], found))
    detect.note_processor(detect.Processor(found.processor, found.features))
    return found


def _found() -> Installation:
    import llvmlite
    import llvmlite.binding as llvm

    with forks.llvm:
        version = ".".join(map(str, llvm.llvm_version_info))
    of_llvm = f"LLVM {version}, llvmlite {llvmlite.__version__}"
    return Installation(source_digest(), of_llvm, *detect.processor())


def _stamps() -> list[Stamp] | None:
    """The stamps of uopc's sources and of llvmlite's files; None if a package is not a folder."""
    spec = importlib.util.find_spec("llvmlite")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    if folder is None or not PACKAGE.is_dir():
        return None
    try:
        of_llvm = [*_files(folder, False), *_files(folder / "binding", False)]
        return list(map(Stamp.of, [*_files(PACKAGE, True), *of_llvm]))
    except OSError:
        return None


def _files(folder: str | Path, sources: bool) -> Iterator[str]:
    """The files in a folder in order; of sources, those in the folders below as well."""
    with os.scandir(folder) as items:
        for item in sorted(items, key=lambda i: i.name):
            if item.is_dir():
                if sources and item.name != "__pycache__":
                    yield from _files(item.path, True)
            elif item.name.endswith(".py") or not sources:
                yield item.path
