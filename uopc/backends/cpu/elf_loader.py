"""Load object files: their machine code becomes callable in this process.

This module lays out and relocates ELF objects of x86-64 and AArch64 itself, which takes
microseconds and needs no llvmlite. LLVM's ORC loads any other object.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import platform
import struct
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from uopc import config
from uopc.backends import elf
from uopc.backends.arm_features import is_arm64
from uopc.backends.cpu import perf_map
from uopc.backends.relocations import ARCHITECTURES
from uopc.errors import InvalidIR, Unsupported
from uopc.ir import forks
from uopc.ir.records import dataclass

# External functions that generated code may call: LLVM's code generator inserts memory moves. Calls
# of anything else, above all of libm, are defects of the emitter.
ALLOWED_IMPORTS = ("memcpy", "memmove", "memset")

_WORD = 8  # bytes of a slot


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


def keep_for_ever(*objects: object) -> None:
    """Never free these, not even when the interpreter ends and modules are gone: other threads, or
    arrays, still use them."""
    for kept in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def address_of(memory: mmap.mmap) -> int:
    """The address at which mapped memory begins."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def function_address(library: ctypes.CDLL, name: str) -> int:
    """The address of a function of a library."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


class ElfImage:
    """An ELF object and the image that its loaded sections make, from address 0. `known`: addresses
    of symbols that it may import, besides ALLOWED_IMPORTS.

    The image begins with code and read-only data. A stub per import follows, which jumps to the
    imported function: a call reaches 2 GiB or less, and the function may be farther away. The next
    page begins what the code may write: a slot for the address of each import and of each
    symbol that code reaches through the global offset table, then the data.
    """

    def __init__(self, data: bytes, known: Mapping[str, int]) -> None:
        self._known, content = known, elf.read(data)
        self._sections, self._symbols = content.sections, content.symbols
        self._architecture = ARCHITECTURES[content.machine]
        assert self._architecture.stub is not None
        self._stub = self._architecture.stub
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
        _check_imports(imports.values(), self._known)
        kind, stub = self._architecture.kind, self._stub
        through = [r.symbol for r in self._relocations if kind(r.kind).through_slot]
        self._image += bytes(-len(self._image) % stub.nbytes)
        self._stubs = {i: len(self._image) + stub.nbytes * n for n, i in enumerate(imports)}
        self._image += bytes(stub.nbytes * len(imports))
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

    def relocated(self, base: int) -> bytearray:
        """The image for an address, a multiple of a page."""
        image = self._image
        for i, at in self._stubs.items():
            self._stub.put(image, at, self._slots[i])
        for i, at in self._slots.items():
            name = self._symbols[i].name
            imported = i in self._stubs
            address = base + self._offset(i)
            if imported:
                address = self._known.get(name) or function_address(_process(), name)
            struct.pack_into("<Q", image, at, address)
        for section, offset, number, symbol, addend in self._relocations:
            kind, at = self._architecture.kind(number), self._offsets[section] + offset
            target = self._slots[symbol] if kind.through_slot else self._offset(symbol)
            kind.patch(image, at, target + addend + kind.is_absolute * base)
        return image

    def load(self) -> Image:
        """Map the image into memory. Raises OSError where the system forbids executable memory."""
        memory = map_private(len(self._image))
        base = address_of(memory)
        memory[: len(self._image)] = bytes(self.relocated(base))
        _forget_instructions(base, self.code_size)
        protect = _process().mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(base, self.code_size, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "cannot make memory executable")
        defined = [(s, base + at) for s, at in self.defined()]
        exported = {s.name: at for s, at in defined if s.is_global}
        functions = [(s.name, at, s.size) for s, at in defined if s.is_function]
        return Image(exported, memory, tuple(functions))

    def defined(self) -> list[tuple[elf.ElfSymbol, int]]:
        """The symbols of the image, and their offsets in it."""
        return [
            (s, self._offsets[s.section] + s.value)
            for s in self._symbols
            if s.section in self._offsets
        ]


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check_imports(names: Iterable[str], known: Mapping[str, int]) -> None:
    """Raise Unsupported for an import that is not allowed."""
    if unknown := sorted(set(names).difference(ALLOWED_IMPORTS, known)):
        raise Unsupported(
            f"the code calls {', '.join(unknown)}: the processor lacks an instruction that pass"
            " decompose replaces, and no rule of a later pass may make it"
        )


def _forget_instructions(address: int, size: int) -> None:
    """Make the cores of ARM read new instructions from memory. x86-64 does so by itself."""
    if is_arm64():
        _clear_cache()(ctypes.c_void_p(address), ctypes.c_void_p(address + size))


@cache
def _clear_cache() -> Any:
    return ctypes.CDLL("libgcc_s.so.1").__clear_cache  # the C library has none


_NOTHING_KNOWN: Mapping[str, int] = {}
# ORC's handles free the code in `__del__` (see Image), so each stays for ever.
_orc_handles: list[Any] = []
_orc_names = itertools.count()  # ORC keeps a name, even where it could not link


@cache
def _orc() -> Any:
    import llvmlite.binding as llvm

    # LLVM's older linker places sections apart, farther than instructions of AArch64 reach.
    return llvm.create_lljit_compiler(use_jit_link=is_arm64())


def _load_with_orc(data: bytes, names: tuple[str, ...], known: Mapping[str, int]) -> Image:
    import llvmlite.binding as llvm

    if data.startswith(elf.MAGIC):  # of other formats the caller gives the names
        content = elf.read(data)
        _check_imports(content.undefined, known)
        names = names or tuple([s.name for s in content.symbols if s.is_global])
    builder = llvm.JITLibraryBuilder().add_object_img(data)
    for name in names:
        builder = builder.export_symbol(name)
    for name, address in known.items():
        builder = builder.import_symbol(name, address)
    try:
        library = builder.link(_orc(), f"image{next(_orc_names)}")
    except RuntimeError as error:
        raise InvalidIR(f"LLVM cannot link the object file: {error}") from None
    _orc_handles.append(library)
    return Image({name: library[name] for name in names}, library)


def _is_own_format(data: bytes) -> bool:
    """True for an ELF object of this machine, under Linux."""
    known = ARCHITECTURES.get(int.from_bytes(data[18:20], "little"))
    if known is None or known.stub is None or platform.machine() != known.name:
        return False
    return data.startswith(elf.MAGIC) and sys.platform.startswith("linux")


def load(
    data: bytes, names: tuple[str, ...] = (), known: Mapping[str, int] = _NOTHING_KNOWN
) -> Image:
    """Put the code of an object file into memory, ready to call.

    `names` are the symbols that ORC must export; of an ELF object all global symbols are found.
    `known`: addresses of symbols that the code may import.
    """
    if _is_own_format(data):
        try:
            image = ElfImage(data, known).load()
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
