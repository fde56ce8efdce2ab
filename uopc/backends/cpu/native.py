"""The machine code of the runtime: written as LLVM IR, compiled once per process.

    entry         the function of a program that CPython calls (vectorcall)
    run           walks the launch table of one program
    spread        one parallel launch: the caller and the pool's workers claim chunks
    worker        the loop of one worker thread
    try_acquire   set a flag if it is clear
    relax         spin a number of times, to measure how long that takes
    meet          a launch of each device that waits for those of the others
    read_addresses  where the data of a list of arrays is
    new_result    a new array for a result, whose memory begins at a cache line

`entry` and `run`, which each call of a program runs, are one object file. The rest is another,
compiled at LLVM's level 0 in an eighth of the time; calls take no longer.

The code holds no address of this process. Objects and functions of the interpreter come from
`@globals`, filled at load; `structs.py` has the offsets, which differ between versions of the
interpreter, and so the text does.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import struct
import threading
from pathlib import Path
from typing import Any, Generic, TypeVar

from uopc.backends.cpu.elf_loader import Image, load
from uopc.backends.cpu.layout import OFFSETS
from uopc.backends.cpu.structs import GLOBALS
from uopc.backends.llvm.builder import Function, module
from uopc.backends.llvm.jit import compile_object
from uopc.ir.records import dataclass

Part = TypeVar("Part")


def identity() -> str:
    """A text that differs between runtimes of one version of this package."""
    text = repr((platform.machine(), sorted(OFFSETS.items())))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Parts(Generic[Part]):
    """Of the runtime: what only some calls need, and what every call runs."""

    on_request: Part
    always: Part


def source() -> Parts[str]:
    """The runtime's LLVM IR, which depends only on the architecture and the struct layout."""
    from uopc.backends.cpu import entry_ir, launch_ir, memory_ir, on_request_ir, size_code

    files = on_request_ir, size_code, launch_ir, memory_ir, entry_ir
    rooms = [vars(room) for room in files]
    every = {f.name: f for room in rooms for f in room.values() if isinstance(f, Function)}
    always = [every.pop(f"@{name}") for name in ("attempt", *EXPORTS.always)]
    own, other = f"global {GLOBALS.text} zeroinitializer", f"external global {GLOBALS.text}"
    return Parts(
        module(list(every.values()), EXPORTS.on_request, [f"@globals = {own}"]),
        module(always, EXPORTS.always, [f"@globals = {other}"]),
    )


def compiled(text: Parts[str], cpu: str | None = None) -> Parts[bytes]:
    """The object files of the runtime; without `cpu`, for this machine."""
    first = compile_object(text.on_request, cpu, effort=0)
    return Parts(first, compile_object(text.always, cpu))


# ---------------------------------------------------------------- in a wheel
# LLVM's names of the processors that have only what all processors of an architecture have.
BASELINES = {"x86_64": "x86-64", "aarch64": "generic"}
_HEAD = struct.Struct("<32sQ")  # the digest of what follows, and the size of the first object
FOLDER = Path(__file__).parent


def _file(folder: Path | None) -> Path:
    return (folder or FOLDER) / f"runtime-{identity()}.o"


def ship(folder: Path | None = None) -> Path | None:
    """Write the code that this Python and architecture need into a file, for any processor. None
    for an architecture without a baseline. A build of a wheel calls this."""
    cpu = BASELINES.get(platform.machine())
    if cpu is None:
        return None
    made = compiled(source(), cpu)
    both = made.on_request + made.always
    _file(folder).write_bytes(_HEAD.pack(_checksum(both), len(made.on_request)) + both)
    return _file(folder)


def shipped(folder: Path | None = None) -> Parts[bytes] | None:
    """The code in the file; None if no file is for this Python and architecture, or it is damaged.
    """
    try:
        content = _file(folder).read_bytes()
    except OSError:
        return None
    if len(content) < _HEAD.size:
        return None
    (checksum, size), both = _HEAD.unpack_from(content), content[_HEAD.size :]
    return Parts(both[:size], both[size:]) if checksum == _checksum(both) else None


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32).digest()


EXPORTS = Parts(
    (
        "globals", "by_name", "sized", "number", "duplicate", "handed", "drop", "apart",
        "read_addresses", "together", "meet", "spread", "worker", "try_acquire", "relax",
        "new_result", "allocate", "allocate_zeros", "reallocate", "free",
    ),
    ("entry", "run"),
)  # fmt: skip


def loaded(code: Parts[bytes]) -> Image:
    """The runtime's code in this process. InvalidIR if it is damaged."""
    first = load(code.on_request, EXPORTS.on_request)
    then = load(code.always, EXPORTS.always, first.symbols)
    return Image({**first.symbols, **then.symbols}, (first.memory, then.memory))


class Runtime:
    """The loaded code and its functions as Python calls them; it stays for the process's life."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.run = self._function("run", 2)
        self.run_holding = self._function("run", 2, ctypes.PYFUNCTYPE)
        self.spread = self._function("spread", 5)
        self.worker = self._function("worker", 3)
        self.try_acquire = self._function("try_acquire", 1, ctypes.PYFUNCTYPE, ctypes.c_int64)
        self.relax = self._function("relax", 1)
        self.read_addresses = self._function("read_addresses", 2, ctypes.PYFUNCTYPE)
        self.new_result = self._function("new_result", 4, ctypes.PYFUNCTYPE, ctypes.py_object)

    def _function(
        self, name: str, words: int, make: Any = ctypes.CFUNCTYPE, result: Any = None
    ) -> Any:
        """The function that Python calls with words. A PYFUNCTYPE holds the interpreter lock."""
        return make(result, *[ctypes.c_int64] * words)(self.image.symbols[name])

    def set_global(self, name: str, value: int) -> None:
        """Fill one slot of the code's table of addresses."""
        address = self.image.symbols["globals"] + GLOBALS.offset(name)
        ctypes.c_int64.from_address(address).value = value


_installed: list[Runtime] = []
_installing = threading.Lock()


def _after_fork_in_child() -> None:
    global _installing
    _installing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def is_installed() -> bool:
    """True if the process has loaded its runtime."""
    return bool(_installed)


def install(code: Parts[bytes] | None = None) -> Runtime:
    """The process's runtime. The first call loads it from `code`, which a cache has, or from the
    file of a wheel, or compiles it."""
    if not _installed:
        with _installing:
            if not _installed:
                code = code or shipped() or compiled(source())
                _installed.append(Runtime(loaded(code)))
    return _installed[0]
