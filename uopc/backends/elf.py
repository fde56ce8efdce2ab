"""ELF object files, little-endian, of 64 or 32 bits: read them, and add read-only data."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from uopc.errors import InvalidIR

PROGBITS, SYMTAB, STRTAB, RELA, HASH, DYNAMIC, NOBITS, DYNSYM = 1, 2, 3, 4, 5, 6, 8, 11
WRITE, ALLOC, EXECUTE = 1, 2, 4
X86_64, AARCH64, ARM, RISCV = 62, 183, 40, 243
_RELOCATION = struct.Struct("<QQq")
_GLOBAL, _OBJECT, _FUNCTION, _HIDDEN = 1, 1, 2, 2
_ATTRIBUTES = 0x70000003  # a section with the calling convention of ARM code


class _ElfClass(NamedTuple):
    """The layouts of table rows in a file of 64 or 32 bits. `order`: the positions of name, info,
    other, section, value and size in a symbol."""

    magic: bytes
    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    order: tuple[int, ...]

    def symbols(self, data: bytes) -> Iterator[tuple[int, ...]]:
        """The fields of symbols."""
        rows = self.symbol.iter_unpack(data)
        return rows if self is _WIDE else map(itemgetter(*self.order), rows)

    def put_symbol(self, out: bytearray, at: int, fields: tuple[int, ...]) -> None:
        """Write the fields of a symbol."""
        self.symbol.pack_into(out, at, *[fields[self.order.index(i)] for i in range(len(fields))])


MAGIC = b"\x7fELF\x02\x01\x01"  # of 64 bits, little-endian
_WIDE = _ElfClass(
    MAGIC, struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"),
    struct.Struct("<IBBHQQ"), (0, 1, 2, 3, 4, 5),
)  # fmt: skip
_NARROW = _ElfClass(
    b"\x7fELF\x01\x01\x01", struct.Struct("<16sHHIIIIIHHHHHH"), struct.Struct("<10I"),
    struct.Struct("<IIIBBH"), (0, 3, 4, 5, 1, 2),
)  # fmt: skip
SECTION, SYMBOL = _WIDE.section, _WIDE.symbol  # of 64 bits


class ElfSection(NamedTuple):
    """A row of the table of sections, with its name and content."""

    name: str
    kind: int
    flags: int
    size: int
    link: int
    info: int
    align: int
    data: bytes


class ElfSymbol(NamedTuple):
    """A row of the table of symbols. `section` 0: the symbol is not defined in this file."""

    name: str
    section: int
    value: int
    size: int
    info: int
    hidden: bool

    @property
    def is_global(self) -> bool:
        """True if other files may refer to the symbol."""
        return self.info >> 4 == _GLOBAL and bool(self.section) and not self.hidden

    @property
    def is_function(self) -> bool:
        """True if the symbol is the address of a function."""
        return self.info & 15 == _FUNCTION


class Relocation(NamedTuple):
    """A location in a section that depends on a symbol. In WebAssembly it may depend on a type:
    then `symbol` is the type's number."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class ElfObject(NamedTuple):
    """The content of an object file. `relocations`: with addends (64 bits). `flags`: a linker
    compares them."""

    machine: int
    flags: int
    sections: tuple[ElfSection, ...]
    symbols: tuple[ElfSymbol, ...]
    relocations: tuple[Relocation, ...]

    @property
    def undefined(self) -> list[str]:
        """The names of the symbols that another file must define."""
        return [s.name for s in self.symbols if s.section == 0 and s.name]


def read(data: bytes) -> ElfObject:
    """The content of an object file. InvalidIR for any other file."""
    try:
        return _read_elf(data)
    except (struct.error, LookupError, StopIteration, ValueError) as error:
        raise InvalidIR(f"not an ELF object file: {error!r}") from None


def _form(data: bytes) -> _ElfClass:
    found = [form for form in (_WIDE, _NARROW) if data.startswith(form.magic)]
    if not found:
        raise ValueError("another format")
    return found[0]


def _read_elf(data: bytes) -> ElfObject:
    form = _form(data)
    header = form.header.unpack_from(data)
    machine, start, own, count, names = (header[i] for i in (2, 6, 7, 12, 13))
    rows = [form.section.unpack_from(data, start + form.section.size * i) for i in range(count)]
    sections = []
    for name, kind, flags, _, offset, size, link, info, align, _ in rows:
        content = b"" if kind == NOBITS else data[offset : offset + size]
        text = _text(data, rows[names][4] + name)
        sections.append(ElfSection(text, kind, flags, size, link, info, align, content))
    table = next(s for s in sections if s.kind == SYMTAB)
    strings = sections[table.link].data
    symbols = [
        ElfSymbol(_text(strings, name), section, value, size, info, other & 3 != 0)
        for name, info, other, section, value, size in form.symbols(table.data)
    ]
    return ElfObject(machine, own, tuple(sections), tuple(symbols), tuple(_relocations(sections)))


def _relocations(sections: list[ElfSection]) -> Iterator[Relocation]:
    for s in sections:
        if s.kind == RELA and sections[s.info].flags & ALLOC:
            for offset, info, addend in _RELOCATION.iter_unpack(s.data):
                yield Relocation(s.info, offset, info & 0xFFFFFFFF, info >> 32, addend)


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def with_data(data: bytes, arrays: Mapping[str, bytes], align: int) -> bytes:
    """Add a section to the object file that defines symbols that it lacks.

    LLVM would read the arrays as text, which takes a thousand times as long.
    """
    if not arrays:
        return data
    out, found, form = bytearray(data), read(data), _form(data)
    header = list(form.header.unpack_from(data))
    start, count, row = header[6], header[12], form.section.size
    headers = data[start : start + row * count]
    begin, places = _append(out, arrays, align)
    table = next(i for i, s in enumerate(found.sections) if s.kind == SYMTAB)
    symbols_at = form.section.unpack_from(headers, row * table)[4]
    for i, s in enumerate(found.symbols):
        if s.section == 0 and s.name in places:
            at = symbols_at + form.symbol.size * i
            (name,) = struct.unpack_from("<I", data, at)
            kind, size = _GLOBAL << 4 | _OBJECT, len(arrays[s.name])
            form.put_symbol(out, at, (name, kind, _HIDDEN, count, places[s.name], size))
    size = len(out) - begin
    named = next((i for i, s in enumerate(found.sections) if s.name == ".rodata"), 0)
    (name,) = struct.unpack_from("<I", headers, row * named)
    out += bytes(-len(out) % 8)
    header[6], header[12] = len(out), count + 1
    out += headers + form.section.pack(name, PROGBITS, ALLOC, 0, begin, size, 0, 0, align, 0)
    form.header.pack_into(out, 0, *header)
    return bytes(out)


def for_both_conventions(data: bytes) -> bytes:
    """Mark an ARM object file as compatible with both conventions of passing floats (in registers
    for floats, or not): its exported functions take no floats.

    LLVM's wheel has no option for this mark, and linkers refuse to mix the conventions.
    """
    form, found = _form(data), read(data)
    i = next(i for i, s in enumerate(found.sections) if s.kind == _ATTRIBUTES)
    content = bytearray(found.sections[i].data)
    # 'A', the length of what follows, "aeabi", 1 for the whole file, the length from there on.
    length, scope = 1, 1 + 4 + len(b"aeabi\0")
    for at in (length, scope + 1):
        (size,) = struct.unpack_from("<I", content, at)
        struct.pack_into("<I", content, at, size + 2)
    content += bytes((28, 3))  # Tag_ABI_VFP_args: compatible with both
    out, start = bytearray(data), form.header.unpack_from(data)[6]
    row = list(form.section.unpack_from(data, start + form.section.size * i))
    row[4], row[5] = len(out), len(content)
    form.section.pack_into(out, start + form.section.size * i, *row)
    out += content + bytes(-len(content) % 8)
    return bytes(out)


def _append(out: bytearray, arrays: Mapping[str, bytes], align: int) -> tuple[int, dict[str, int]]:
    """Append arrays, equal arrays once. Return where they begin, and each array's offset from
    there."""
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
    """The header of a file of 64 bits. `rest`: its fields from the offset of program headers on."""
    return _WIDE.header.pack(_WIDE.magic + bytes(9), kind, machine, 1, 0, *rest)
