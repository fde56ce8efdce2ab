"""Load object files: their machine code becomes callable in this process.

This module lays out and relocates x86-64 ELF objects itself, which takes microseconds and needs no
llvmlite. LLVM's ORC loads any other object.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from uopc import config
from uopc.backends import elf
from uopc.backends.cpu import perf_map
from uopc.errors import InvalidIR, Unsupported
from uopc.ir import forks

# External functions that generated code may call: LLVM's code generator inserts memory moves. Calls
# of anything else, above all of libm, are defects of the emitter.
ALLOWED_IMPORTS = ("memcpy", "memmove", "memset")

# The formats of relocated words by relocation type: R_X86_64_64, PC32, PLT32, GOTPCREL, PC64,
# GOTPCRELX, REX_GOTPCRELX. Those of _ABSOLUTE hold an address, others a distance.
_FORMATS = {1: "<Q", 2: "<i", 4: "<i", 9: "<i", 24: "<q", 41: "<i", 42: "<i"}
_ABSOLUTE, _THROUGH_SLOT = (1,), (9, 41, 42)
_JUMP_THROUGH_SLOT = b"\xff\x25\0\0\0\0\xcc\xcc"
_WORD = 8  # bytes of a slot and of a stub


@dataclass(frozen=True, slots=True)
class Image:
    """Loaded code: addresses by symbol name, valid while `memory` is referenced.

    `functions`, internal ones included: name, address, size; none where ORC loaded the code.
    `memory` has no finalizer: the garbage collector would call it before other finalizers of a
    cycle, which may still call the code.
    """

    symbols: Mapping[str, int]
    memory: object
    functions: tuple[perf_map.Function, ...] = ()


def map_private(size: int) -> mmap.mmap:
    """Zeroed memory that forked children do not share, freed with its last reference."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return mmap.mmap(-1, max(size, 1), flags, mmap.PROT_READ | mmap.PROT_WRITE)


def address_of(memory: mmap.mmap) -> int:
    """The address at which mapped memory begins."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def function_address(library: ctypes.CDLL, name: str) -> int:
    """The address of a function of a library."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


class _Object:
    """An x86-64 ELF object and the image that its loaded sections make, from address 0. `known`:
    addresses of symbols that it may import, besides ALLOWED_IMPORTS.

    The image begins with code and read-only data. A stub per import follows, which jumps to the
    imported function: a call has 32 bits of displacement, and the function may be farther away. The
    next page begins what the code may write: a slot for the address of each import and of each
    symbol that code reaches through the global offset table, then the data.
    """

    def __init__(self, data: bytes, known: Mapping[str, int]) -> None:
        self._known, content = known, elf.read(data)
        self._sections, self._symbols = content.sections, content.symbols
        # Unwind tables have their own section type and are left out: nothing unwinds through here.
        loaded = [
            i
            for i, section in enumerate(self._sections)
            if section.flags & elf.ALLOC and section.kind in (elf.PROGBITS, elf.NOBITS)
        ]
        self._relocations = [r for r in content.relocations if r.section in loaded]
        self._image = bytearray()
        self._offsets: dict[int, int] = {}  # in the image, by section
        self._append([i for i in loaded if not self._sections[i].flags & elf.WRITE])
        self._append_slots()
        self._append([i for i in loaded if self._sections[i].flags & elf.WRITE])

    def _append(self, sections: list[int]) -> None:
        for index in sections:
            section = self._sections[index]
            self._image += bytes(-len(self._image) % max(1, section.align))
            self._offsets[index] = len(self._image)
            self._image += bytes(section.size) if section.kind == elf.NOBITS else section.data

    def _append_slots(self) -> None:
        """Append the stubs and the slots. Raises Unsupported for an import that is not allowed."""
        used = {r.symbol: self._symbols[r.symbol] for r in self._relocations}
        imports = {i: s.name for i, s in used.items() if not s.section}
        if unknown := sorted(set(imports.values()).difference(ALLOWED_IMPORTS, self._known)):
            raise Unsupported(
                f"the code calls {', '.join(unknown)}: the processor lacks an instruction that pass"
                " decompose replaces, and no rule of a later pass may make it"
            )
        through = [r.symbol for r in self._relocations if r.kind in _THROUGH_SLOT]
        self._image += bytes(-len(self._image) % _WORD)
        self._stubs = {i: len(self._image) + _WORD * n for n, i in enumerate(imports)}
        self._image += _JUMP_THROUGH_SLOT * len(imports)
        self._image += bytes(-len(self._image) % mmap.PAGESIZE)
        self.code_size = len(self._image)
        slots = dict.fromkeys([*imports, *through])
        self._slots = {i: self.code_size + _WORD * n for n, i in enumerate(slots)}
        self._image += bytes(_WORD * len(slots))

    def _offset(self, index: int) -> int:
        """The offset of a symbol in the image, or that of its stub for an import."""
        symbol = self._symbols[index]
        if index in self._stubs:
            return self._stubs[index]
        if symbol.section not in self._offsets:
            raise Unsupported(f"symbol {symbol.name!r} is in section {symbol.section}")
        return self._offsets[symbol.section] + symbol.value

    def load(self) -> Image:
        """Map the image into memory. Raises OSError where the system forbids executable memory."""
        memory = map_private(len(self._image))
        base, image = address_of(memory), self._image
        for i, at in self._stubs.items():
            struct.pack_into("<i", image, at + 2, self._slots[i] - (at + 6))
        for i, at in self._slots.items():
            name = self._symbols[i].name
            imported = i in self._stubs
            address = base + self._offset(i)
            if imported:
                address = self._known.get(name) or function_address(_process(), name)
            struct.pack_into("<Q", image, at, address)
        for section, offset, kind, symbol, addend in self._relocations:
            if kind not in _FORMATS:
                raise Unsupported(f"ELF relocation type {kind}")
            at = self._offsets[section] + offset
            target = self._slots[symbol] if kind in _THROUGH_SLOT else self._offset(symbol)
            origin = -base if kind in _ABSOLUTE else at
            struct.pack_into(_FORMATS[kind], image, at, target + addend - origin)
        memory[: len(image)] = bytes(image)
        protect = _process().mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(base, self.code_size, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "cannot make memory executable")
        defined = [
            (s, base + self._offsets[s.section] + s.value)
            for s in self._symbols
            if s.section in self._offsets
        ]
        exported = {s.name: at for s, at in defined if s.is_global}
        functions = [(s.name, at, s.size) for s, at in defined if s.is_function]
        return Image(exported, memory, tuple(functions))


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


_NOTHING_KNOWN: Mapping[str, int] = {}
# ORC's handles free the code in `__del__` (see Image), so each stays for ever.
_orc_handles: list[Any] = []


def _load_with_orc(data: bytes, names: tuple[str, ...], known: Mapping[str, int]) -> Image:
    import llvmlite.binding as llvm

    if not _orc_handles:
        _orc_handles.append(llvm.create_lljit_compiler())
    builder = llvm.JITLibraryBuilder().add_object_img(data)
    for name in names:
        builder = builder.export_symbol(name)
    for name, address in known.items():
        builder = builder.import_symbol(name, address)
    library = builder.link(_orc_handles[0], f"image{len(_orc_handles)}")
    _orc_handles.append(library)
    return Image({name: library[name] for name in names}, library)


def load(
    data: bytes, names: tuple[str, ...] = (), known: Mapping[str, int] = _NOTHING_KNOWN
) -> Image:
    """Put the code of an object file into memory, ready to call.

    `names` are the symbols that ORC must export; for x86-64 ELF all global symbols are found.
    `known`: addresses of symbols that the code may import.
    """
    own_format = data[:6] == b"\x7fELF\x02\x01" and data[18:20] == b"\x3e\x00"
    if own_format and sys.platform.startswith("linux") and platform.machine() == "x86_64":
        try:
            image = _Object(data, known).load()
        except (struct.error, LookupError) as error:
            raise InvalidIR(f"damaged object file: {error!r}") from None
        except OSError:
            pass  # executable mappings may be forbidden here; ORC knows more ways
        else:
            if config.current().perf_map:
                perf_map.add(image.functions)
            return image
    with forks.llvm:
        return _load_with_orc(data, names, known)
