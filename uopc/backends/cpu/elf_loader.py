"""Object file bytes → callable machine code in this process.

x86-64 ELF objects are laid out and relocated here, which takes microseconds and needs no llvmlite;
any other object goes to LLVM's ORC.
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
from typing import Any, NamedTuple

from uopc.errors import InvalidIR, Unsupported

# External functions that generated code may call: LLVM's code generator inserts memory moves. Calls
# of anything else, above all of libm, are defects of the emitter.
ALLOWED_IMPORTS = ("memcpy", "memmove", "memset")

_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_WRITE, _ALLOC = 1, 2
_UNDEFINED, _GLOBAL = 0, 1
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_PC64, _R_GOTPCRELX, _R_REX_GOTPCRELX = (
    1, 2, 4, 9, 24, 41, 42,
)  # fmt: skip
_RELATIVE_32 = (_R_PC32, _R_PLT32)
_THROUGH_SLOT = (_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX)
_JUMP_THROUGH_SLOT = b"\xff\x25\0\0\0\0\xcc\xcc"
_SLOT, _STUB = 8, 8


@dataclass(frozen=True, slots=True)
class Image:
    """Loaded code: addresses by symbol name, valid while `memory` is referenced.

    `memory` has no finalizer, so it is freed with its last reference and not before. When the
    garbage collector takes a cycle, an owner with `__del__` would be finalized first, while other
    finalizers of the cycle could still call the code.
    """

    symbols: Mapping[str, int]
    memory: object


def map_private(size: int) -> mmap.mmap:
    """Zeroed memory of this process alone, page by page backed when touched, freed with its last
    reference. (Python's default is memory shared with forked children.)"""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return mmap.mmap(-1, max(size, 1), flags, mmap.PROT_READ | mmap.PROT_WRITE)


def address_of(memory: mmap.mmap) -> int:
    """The address at which mapped memory begins."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def function_address(library: ctypes.CDLL, name: str) -> int:
    """Where a function of a library begins."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int
    is_global: bool


class _Relocation(NamedTuple):
    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class _Elf:
    """The tables of a relocatable x86-64 ELF object that the layout needs."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        (start,) = struct.unpack_from("<Q", data, 40)
        (count,) = struct.unpack_from("<H", data, 60)
        self.sections = [
            _Section._make(struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * i))
            for i in range(count)
        ]
        # Unwind tables have their own section type and are left out: nothing unwinds through here.
        self.loaded = [
            i
            for i, section in enumerate(self.sections)
            if section.flags & _ALLOC and section.kind in (_PROGBITS, _NOBITS)
        ]
        self.symbols = self._read_symbols()
        self.relocations = self._read_relocations()

    def _read_symbols(self) -> list[_Symbol]:
        table = next(section for section in self.sections if section.kind == _SYMTAB)
        names = self.sections[table.link].offset
        symbols = []
        for at in range(table.offset, table.offset + table.size, 24):
            name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", self.data, at)
            end = self.data.index(b"\0", names + name)
            text = self.data[names + name : end].decode()
            symbols.append(_Symbol(text, section, value, info >> 4 == _GLOBAL))
        return symbols

    def _read_relocations(self) -> list[_Relocation]:
        found = []
        for table in self.sections:
            if table.kind != _RELA or table.info not in self.loaded:
                continue
            for at in range(table.offset, table.offset + table.size, 24):
                offset, info, addend = struct.unpack_from("<QQq", self.data, at)
                found.append(_Relocation(table.info, offset, info & 0xFFFFFFFF, info >> 32, addend))
        return found


class _Layout:
    """Code and read-only data first, then (from the next page) what may be written.

    The writable part begins with one address slot per import and per symbol reached through the
    global offset table; imports are called through stubs in the code part, so that calls stay
    within 32 bits of displacement wherever the imported function is.
    """

    def __init__(self, elf: _Elf) -> None:
        self.elf = elf
        self.place: dict[int, int] = {}
        self.code = bytearray()
        for index in elf.loaded:
            if not elf.sections[index].flags & _WRITE:
                self.place[index] = self._append(self.code, index, 0)
        self.imports = self._find_imports()
        self.code += bytes(-len(self.code) % _STUB)
        self.stub = {name: len(self.code) + _STUB * i for i, name in enumerate(self.imports)}
        self.code += _JUMP_THROUGH_SLOT * len(self.imports)
        self.code += bytes(-len(self.code) % mmap.PAGESIZE)
        self.slot: dict[int | str, int] = {}
        for name in self.imports:
            self._add_slot(name)
        for relocation in elf.relocations:
            symbol = elf.symbols[relocation.symbol]
            if relocation.kind in _THROUGH_SLOT and symbol.section != _UNDEFINED:
                self._add_slot(relocation.symbol)
        self.data = bytearray(_SLOT * len(self.slot))
        for index in elf.loaded:
            if elf.sections[index].flags & _WRITE:
                self.place[index] = self._append(self.data, index, len(self.code))

    def _append(self, part: bytearray, index: int, base: int) -> int:
        section = self.elf.sections[index]
        part += bytes(-len(part) % max(1, section.align))
        at = base + len(part)
        if section.kind == _NOBITS:
            part += bytes(section.size)
        else:
            part += self.elf.data[section.offset : section.offset + section.size]
        return at

    def _add_slot(self, key: int | str) -> None:
        self.slot.setdefault(key, len(self.code) + _SLOT * len(self.slot))

    def _find_imports(self) -> list[str]:
        used = (self.elf.symbols[relocation.symbol] for relocation in self.elf.relocations)
        names = sorted({symbol.name for symbol in used if symbol.section == _UNDEFINED})
        if unknown := [name for name in names if name not in ALLOWED_IMPORTS]:
            raise Unsupported(f"generated code calls {', '.join(unknown)}, which it must not")
        return names

    def symbol_address(self, index: int) -> int:
        """The offset of a symbol from the start of the image; for an import, of its stub."""
        symbol = self.elf.symbols[index]
        if symbol.section == _UNDEFINED:
            return self.stub[symbol.name]
        if symbol.section not in self.place:
            raise Unsupported(f"symbol {symbol.name!r} lies in section {symbol.section}")
        return self.place[symbol.section] + symbol.value

    def relocated(self, base: int) -> bytes:
        """The bytes to put at address `base`."""
        image = self.code + self.data
        for name in self.imports:
            stub, slot = self.stub[name], self.slot[name]
            struct.pack_into("<i", image, stub + 2, slot - (stub + 6))
            struct.pack_into("<Q", image, slot, function_address(_process(), name))
        for key, slot in self.slot.items():
            if isinstance(key, int):
                struct.pack_into("<Q", image, slot, base + self.symbol_address(key))
        for section, offset, kind, symbol, addend in self.elf.relocations:
            at = self.place[section] + offset
            if kind == _R_64:
                struct.pack_into("<Q", image, at, base + self.symbol_address(symbol) + addend)
            elif kind in _RELATIVE_32:
                struct.pack_into("<i", image, at, self.symbol_address(symbol) + addend - at)
            elif kind == _R_PC64:
                struct.pack_into("<q", image, at, self.symbol_address(symbol) + addend - at)
            elif kind in _THROUGH_SLOT:
                name = self.elf.symbols[symbol].name
                slot = self.slot[name] if name in self.slot else self.slot[symbol]
                struct.pack_into("<i", image, at, slot + addend - at)
            else:
                raise Unsupported(f"ELF relocation type {kind}")
        return bytes(image)

    def exports(self, base: int) -> dict[str, int]:
        """Addresses of the global symbols."""
        return {
            symbol.name: base + self.place[symbol.section] + symbol.value
            for symbol in self.elf.symbols
            if symbol.is_global and symbol.section in self.place
        }


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _is_own_format(data: bytes) -> bool:
    return data[:6] == b"\x7fELF\x02\x01" and data[18:20] == b"\x3e\x00"


def _can_map_code() -> bool:
    return sys.platform.startswith("linux") and platform.machine() == "x86_64"


def _load_own(data: bytes) -> Image:
    layout = _Layout(_Elf(data))
    size = len(layout.code) + len(layout.data)
    memory = map_private(size)
    base = address_of(memory)
    memory[:size] = layout.relocated(base)
    read_and_execute = mmap.PROT_READ | mmap.PROT_EXEC
    protect = _process().mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if layout.code and protect(base, len(layout.code), read_and_execute):
        raise OSError(ctypes.get_errno(), "cannot make memory executable")
    return Image(layout.exports(base), memory)


# ORC's handles free the code in `__del__` (see Image); code loaded through it stays for ever.
_kept_by_orc: list[Any] = []


def _load_with_orc(data: bytes, names: tuple[str, ...]) -> Image:
    import llvmlite.binding as llvm

    if not _kept_by_orc:
        _kept_by_orc.append(llvm.create_lljit_compiler())
    builder = llvm.JITLibraryBuilder().add_object_img(data)
    for name in names:
        builder = builder.export_symbol(name)
    library = builder.link(_kept_by_orc[0], f"image{len(_kept_by_orc)}")
    _kept_by_orc.append(library)
    return Image({name: library[name] for name in names}, library)


def load(data: bytes, names: tuple[str, ...] = ()) -> Image:
    """Put the code of an object file into memory, ready to call.

    `names` are the symbols wanted; the loader for x86-64 ELF finds them all on its own.
    """
    if _is_own_format(data) and _can_map_code():
        try:
            return _load_own(data)
        except (struct.error, LookupError, StopIteration, ValueError) as error:
            raise InvalidIR(f"damaged object file: {error!r}") from None
        except OSError:
            pass  # executable mappings may be forbidden here; ORC knows more ways
    return _load_with_orc(data, names)
