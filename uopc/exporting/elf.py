"""ELF object files of 64 bits, little-endian: what is in them, and more read-only data."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from uopc.errors import InvalidIR

PROGBITS, SYMTAB, STRTAB, RELA, HASH, DYNAMIC, NOBITS, DYNSYM = 1, 2, 3, 4, 5, 6, 8, 11
WRITE, ALLOC, EXECUTE = 1, 2, 4
X86_64, AARCH64 = 62, 183
_MAGIC = b"\x7fELF\x02\x01\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_GLOBAL, _OBJECT, _HIDDEN = 1, 1, 2


class Section(NamedTuple):
    """A row of the table of sections, with its name and content."""

    name: str
    kind: int
    flags: int
    size: int
    link: int
    info: int
    align: int
    data: bytes


class Symbol(NamedTuple):
    """A row of the table of symbols. `section` 0: it is not defined here."""

    name: str
    section: int
    value: int
    size: int
    info: int
    hidden: bool

    @property
    def is_global(self) -> bool:
        """True if other files may name it."""
        return self.info >> 4 == _GLOBAL and bool(self.section) and not self.hidden


class Relocation(NamedTuple):
    """A place in a section that depends on the address of a symbol."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class ObjectFile:
    """The content of an object file."""

    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]

    @property
    def undefined(self) -> list[str]:
        """The names of the symbols that another file must define."""
        return [s.name for s in self.symbols if s.section == 0 and s.name]


def read(data: bytes) -> ObjectFile:
    """The content of an object file. InvalidIR for any other file."""
    try:
        return _read(data)
    except (struct.error, LookupError, ValueError) as error:
        raise InvalidIR(f"no ELF object file of 64 bits: {error!r}") from None


def _read(data: bytes) -> ObjectFile:
    if not data.startswith(_MAGIC):
        raise ValueError("another format")
    header = _HEADER.unpack_from(data)
    machine, start, count, names = header[2], header[6], header[12], header[13]
    rows = [SECTION.unpack_from(data, start + SECTION.size * i) for i in range(count)]
    sections = []
    for name, kind, flags, _, offset, size, link, info, align, _ in rows:
        content = b"" if kind == NOBITS else data[offset : offset + size]
        text = _text(data, rows[names][4] + name)
        sections.append(Section(text, kind, flags, size, link, info, align, content))
    table = next(s for s in sections if s.kind == SYMTAB)
    strings = sections[table.link].data
    symbols = [
        Symbol(_text(strings, name), section, value, size, info, other & 3 != 0)
        for name, info, other, section, value, size in SYMBOL.iter_unpack(table.data)
    ]
    return ObjectFile(machine, tuple(sections), tuple(symbols), tuple(_relocations(sections)))


def _relocations(sections: list[Section]) -> Iterator[Relocation]:
    for s in sections:
        if s.kind == RELA and sections[s.info].flags & ALLOC:
            for offset, info, addend in _RELOCATION.iter_unpack(s.data):
                yield Relocation(s.info, offset, info & 0xFFFFFFFF, info >> 32, addend)


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def with_data(data: bytes, arrays: Mapping[str, bytes], align: int) -> bytes:
    """The object file with a section more, which defines symbols that it lacks.

    LLVM would read the arrays as text, which takes a thousand times as long.
    """
    if not arrays:
        return data
    out, found = bytearray(data), read(data)
    header = list(_HEADER.unpack_from(data))
    start, count = header[6], header[12]
    headers = data[start : start + SECTION.size * count]
    begin, places = _append(out, arrays, align)
    table = next(i for i, s in enumerate(found.sections) if s.kind == SYMTAB)
    symbols_at = SECTION.unpack_from(headers, SECTION.size * table)[4]
    for i, s in enumerate(found.symbols):
        if s.section == 0 and s.name in places:
            (name,) = struct.unpack_from("<I", data, symbols_at + SYMBOL.size * i)
            kind, size = _GLOBAL << 4 | _OBJECT, len(arrays[s.name])
            row = (name, kind, _HIDDEN, count, places[s.name], size)
            SYMBOL.pack_into(out, symbols_at + SYMBOL.size * i, *row)
    size = len(out) - begin
    named = next((i for i, s in enumerate(found.sections) if s.name == ".rodata"), 0)
    (name,) = struct.unpack_from("<I", headers, SECTION.size * named)
    out += bytes(-len(out) % 8)
    header[6], header[12] = len(out), count + 1
    out += headers + SECTION.pack(name, PROGBITS, ALLOC, 0, begin, size, 0, 0, align, 0)
    _HEADER.pack_into(out, 0, *header)
    return bytes(out)


def _append(out: bytearray, arrays: Mapping[str, bytes], align: int) -> tuple[int, dict[str, int]]:
    """Append arrays: where they begin, and the offset of each from there. Equal ones are one."""
    out += bytes(-len(out) % align)
    begin, places = len(out), {}
    known: dict[bytes, int] = {}
    for name, content in arrays.items():
        if content not in known:
            out += bytes(-len(out) % align)
            known[content] = len(out) - begin
            out += content
        places[name] = known[content]
    return begin, places


def header(kind: int, machine: int, rest: tuple[Any, ...]) -> bytes:
    """The header of a file: `rest` are its fields from the begin of the program headers on."""
    return _HEADER.pack(_MAGIC + bytes(9), kind, machine, 1, 0, *rest)
