"""Shared libraries without a linker: an object file, laid out for the dynamic loader.

The code of a single object needs no linker: it only refers to itself, by distances that are known
once its sections have addresses. The file has three parts, each on its own pages: tables and data
(read), code (execute), and the loader's list of tables, which only the loader writes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import field

from uopc.backends import elf, relocations
from uopc.backends.elf import ALLOC, DYNAMIC, DYNSYM, EXECUTE, HASH, PROGBITS, STRTAB, WRITE
from uopc.errors import Unsupported
from uopc.ir.records import dataclass

_PAGES = {elf.X86_64: 4096, elf.AARCH64: 65536, elf.RISCV: 4096}
_SHARED = 3
_HEADER, _SEGMENT, _ROW = 64, 56, elf.SECTION.size
# Segments: what is loaded, the loader's list, the stack.
_LOAD, _LIST, _STACK = 1, 2, 0x6474E551
_READ, _READ_EXECUTE, _READ_WRITE = 4, 5, 6
_SONAME, _AT_HASH, _AT_STRTAB, _AT_SYMTAB, _STRINGS, _ENTRY = 14, 4, 5, 6, 10, 11
_UNWIND = (".eh_frame", ".note")  # sections that nothing here needs


@dataclass
class _FileSection:
    """A section of the library."""

    name: str
    kind: int
    flags: int
    data: bytes
    align: int
    at: int = 0
    link: str = ""
    info: int = 0
    entry: int = 0


@dataclass
class _LibraryLayout:
    """The sections in order of their addresses, which equal their offsets in the file."""

    end: int
    tables: list[_FileSection] = field(default_factory=list)

    def add(self, table: _FileSection) -> _FileSection:
        table.at = self.end = -(-self.end // table.align) * table.align
        self.end += len(table.data)
        self.tables.append(table)
        return table

    def turn_page(self, page: int) -> int:
        self.end = -(-self.end // page) * page
        return self.end


def shared(data: bytes, soname: str) -> bytes:
    """The library of an object file. Programs linked with it look for `soname`.

    Unsupported for an object that needs other libraries, writes its own data, or is for a machine
    without a row here.
    """
    found = elf.read(data)
    page = _PAGES.get(found.machine)
    if page is None:
        raise Unsupported(
            "export: shared libraries are not supported for this machine: choose object or static"
        )
    if found.undefined:
        raise Unsupported(f"the code needs {', '.join(found.undefined)}: link the object file")
    kept = [i for i, s in enumerate(found.sections) if _is_loaded(s)]
    if any(found.sections[i].flags & WRITE for i in kept):
        raise Unsupported("the code has data that it writes: link the object file")
    exports = sorted([s for s in found.symbols if s.is_global], key=lambda s: s.name)
    names, strings = _strings([*[s.name for s in exports], soname])
    layout = _LibraryLayout(_HEADER + 5 * _SEGMENT)
    layout.add(_FileSection(".hash", HASH, ALLOC, _hash_table([s.name for s in exports]), 8,
                      link=".dynsym", entry=4))  # fmt: skip
    symbols = layout.add(_FileSection(".dynsym", DYNSYM, ALLOC, bytes(24 * (1 + len(exports))), 8,
                                link=".dynstr", info=1, entry=24))  # fmt: skip
    layout.add(_FileSection(".dynstr", STRTAB, ALLOC, strings, 1))
    places: dict[int, int] = {}
    _add_sections(layout, found, [i for i in kept if not found.sections[i].flags & EXECUTE], places)
    ends = [layout.end, layout.turn_page(page)]
    _add_sections(layout, found, [i for i in kept if found.sections[i].flags & EXECUTE], places)
    ends += [layout.end, layout.turn_page(page)]
    rows = [elf.SYMBOL.pack(names[s.name], s.info, 0, _section_number(layout, places[s.section]),
                            places[s.section] + s.value, s.size) for s in exports]  # fmt: skip
    symbols.data = bytes(24) + b"".join(rows)
    layout.add(_FileSection(".dynamic", DYNAMIC, ALLOC | WRITE, _dynamic(layout, names[soname]), 16,
                      link=".dynstr", entry=16))  # fmt: skip
    out = _image(layout, found, places)
    segments = [
        (_LOAD, _READ, 0, ends[0], page), (_LOAD, _READ_EXECUTE, ends[1], ends[2] - ends[1], page),
        (_LOAD, _READ_WRITE, ends[3], layout.end - ends[3], page),
        (_LIST, _READ_WRITE, ends[3], layout.end - ends[3], 8), (_STACK, _READ_WRITE, 0, 0, 16),
    ]  # fmt: skip
    return _finish(out, layout, found, segments)


def _is_loaded(s: elf.ElfSection) -> bool:
    known = s.kind == PROGBITS and bool(s.flags & ALLOC) and bool(s.size)
    return known and not s.name.startswith(_UNWIND)


def _add_sections(
    layout: _LibraryLayout, found: elf.ElfObject, numbers: Sequence[int], places: dict[int, int]
) -> None:
    for i in numbers:
        s = found.sections[i]
        table = _FileSection(s.name, PROGBITS, s.flags & (ALLOC | EXECUTE), s.data, max(1, s.align))
        places[i] = layout.add(table).at


def _section_number(layout: _LibraryLayout, at: int) -> int:
    """The number, in the table of sections, of the section at an address."""
    return 1 + next(i for i, t in enumerate(layout.tables) if t.at == at and t.kind == PROGBITS)


def _strings(texts: Sequence[str]) -> tuple[dict[str, int], bytes]:
    """A table of texts that end with 0, and the offset of each text."""
    places, table = {}, b"\0"
    for text in texts:
        places[text] = len(table)
        table += text.encode() + b"\0"
    return places, table


def _hash_table(names: Sequence[str]) -> bytes:
    """The table by which the loader finds a symbol: chains of symbols with equal hashes."""
    count = max(1, len(names))
    first, chain = [0] * count, [0] * (1 + len(names))
    for i, name in enumerate(names, 1):
        bucket = symbol_hash(name) % count
        chain[i], first[bucket] = first[bucket], i
    numbers = [count, len(chain), *first, *chain]
    return struct.pack(f"<{len(numbers)}I", *numbers)


def symbol_hash(name: str) -> int:
    """The hash of a symbol's name, as the ELF standard defines it."""
    h = 0
    for c in name.encode():
        h = (h << 4) + c
        high = h & 0xF0000000
        h = (h ^ high >> 24) & ~high & 0xFFFFFFFF
    return h


def _dynamic(layout: _LibraryLayout, soname: int) -> bytes:
    at = {t.name: t for t in layout.tables}
    entries = [
        (_SONAME, soname), (_AT_HASH, at[".hash"].at), (_AT_STRTAB, at[".dynstr"].at),
        (_AT_SYMTAB, at[".dynsym"].at), (_STRINGS, len(at[".dynstr"].data)), (_ENTRY, 24), (0, 0),
    ]  # fmt: skip
    return b"".join([struct.pack("<QQ", *entry) for entry in entries])


def _image(layout: _LibraryLayout, found: elf.ElfObject, places: dict[int, int]) -> bytearray:
    """The bytes of all sections at their addresses, with distances filled in."""
    out = bytearray(layout.end)
    for t in layout.tables:
        out[t.at : t.at + len(t.data)] = t.data
    architecture = relocations.ARCHITECTURES[found.machine]
    for at, number, target in _relocations(found, places):
        kind = architecture.kind(number)
        if kind.through_slot or kind.is_absolute:
            raise Unsupported(f"ELF relocation type {number}: link the object file")
        kind.patch(out, at, target)
    return out


def _relocations(found: elf.ElfObject, places: dict[int, int]) -> list[tuple[int, int, int]]:
    """The locations that depend on an address: each location, its kind, and the address."""
    made = []
    for r in found.relocations:
        if r.section in places:
            s = found.symbols[r.symbol]
            if s.section not in places:
                raise Unsupported(f"the code refers to {s.name!r}, which is not loaded")
            target = places[s.section] + s.value + r.addend
            made.append((places[r.section] + r.offset, r.kind, target))
    if found.machine != elf.RISCV:
        return made
    # The relocation of a lower part refers to the instruction with the upper part.
    distances = {at: target - at for at, kind, target in made if kind == relocations.RISCV_UPPER}
    return [(at, kind, at + distances[target] if kind in relocations.RISCV_LOWER else target)
            for at, kind, target in made]  # fmt: skip


def _finish(
    out: bytearray, layout: _LibraryLayout, found: elf.ElfObject,
    segments: Sequence[tuple[int, ...]],
) -> bytes:  # fmt: skip
    """The complete file: header, segments, and a table of sections for linkers."""
    names, strings = _strings([*dict.fromkeys([t.name for t in layout.tables]), ".shstrtab"])
    at = len(out)
    out += strings + bytes(-len(strings) - at & 7)
    numbers = {t.name: i for i, t in enumerate(layout.tables, 1)}
    start, rows = len(out), [bytes(_ROW)]
    for t in layout.tables:
        link = numbers.get(t.link, 0)
        rows.append(elf.SECTION.pack(names[t.name], t.kind, t.flags, t.at, t.at, len(t.data), link,
                                     t.info, t.align, t.entry))  # fmt: skip
    rows.append(elf.SECTION.pack(names[".shstrtab"], STRTAB, 0, 0, at, len(strings), 0, 0, 1, 0))
    out += b"".join(rows)
    fields = (_HEADER, start, found.flags, _HEADER, _SEGMENT, len(segments), _ROW, len(rows),
              len(rows) - 1)  # fmt: skip
    out[:_HEADER] = elf.header(_SHARED, found.machine, fields)
    for i, (kind, flags, offset, size, align) in enumerate(segments):
        struct.pack_into("<IIQQQQQQ", out, _HEADER + _SEGMENT * i, kind, flags, offset, offset,
                         offset, size, size, align)  # fmt: skip
    return bytes(out)
