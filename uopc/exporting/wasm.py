"""WebAssembly: object files, more read-only data in them, and modules without a linker.

An object has the sections of a module, a section of symbols (`linking`), and lists of the locations
that depend on symbols (`reloc.CODE`): numbers of five bytes, to be filled in. A module here has its
stack at the bottom of its memory, then its data, then the caller's memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from uopc.backends.elf import Relocation
from uopc.errors import InvalidIR, Unsupported
from uopc.ir.records import dataclass

MAGIC = b"\0asm"
_HEAD = MAGIC + struct.pack("<I", 1)
_CUSTOM, _TYPE, _IMPORT, _FUNCTION, _MEMORY, _GLOBAL, _EXPORT = 0, 1, 2, 3, 5, 6, 7
_CODE, _DATA, _DATA_COUNT = 10, 11, 12
_FUNCTIONS, _TABLES, _MEMORIES, _GLOBALS = 0, 1, 2, 3  # kinds of imports and exports
_OF_FUNCTION, _OF_DATA, _OF_GLOBAL, _OF_SECTION = 0, 1, 2, 3  # kinds of symbols
_LOCAL, _HIDDEN, _UNDEFINED, _OWN_NAME = 2, 4, 16, 64  # flags of a symbol
_SEGMENTS, _SYMBOLS = 5, 8  # parts of the section `linking`
_I32, _I32_CONST, _END = 0x7F, 0x41, 0x0B
_PAGE, _STACK, _ALIGNED = 1 << 16, 1 << 20, 64
_TYPE_INDEX = 6
_INDICES, _ADDRESSES, _ADDRESS_WORD = (0, _TYPE_INDEX, 7), (3, 4), 5  # relocations: 5 bytes, 4
_WITH_ADDEND = frozenset((3, 4, 5, 8, 9, 11))


class WasmSection(NamedTuple):
    """A section by its number; a custom section (0) has a name."""

    number: int
    name: str
    data: bytes

    def packed(self) -> bytes:
        """The section's bytes in a file."""
        body = (_text(self.name) if self.number == _CUSTOM else b"") + self.data
        return bytes((self.number,)) + _unsigned(len(body)) + body


class WasmSymbol(NamedTuple):
    """A symbol. `place`: the number of a function, of a global, or of the segment of data that
    holds the symbol at `offset`."""

    kind: int
    flags: int
    name: str
    place: int
    offset: int = 0
    size: int = 0

    @property
    def is_defined(self) -> bool:
        """True if this file defines the symbol."""
        return not self.flags & _UNDEFINED

    @property
    def is_global(self) -> bool:
        """True if other files may refer to the symbol."""
        return self.is_defined and not self.flags & (_LOCAL | _HIDDEN)

    def packed(self) -> bytes:
        """The symbol's bytes in the table of symbols."""
        out = bytes((self.kind,)) + _unsigned(self.flags)
        if self.kind == _OF_DATA:
            out += _text(self.name)
            if self.is_defined:
                out += b"".join(map(_unsigned, (self.place, self.offset, self.size)))
            return out
        out += _unsigned(self.place)
        has_name = self.is_defined or self.flags & _OWN_NAME
        return out + _text(self.name) if has_name and self.kind != _OF_SECTION else out


class Segment(NamedTuple):
    """Data, with a name and an alignment for linkers."""

    data: bytes
    name: str
    align: int
    flags: int = 0


class Imported(NamedTuple):
    """A definition that another file must supply: its kind and its name."""

    kind: int
    name: str


@dataclass(frozen=True)
class WasmObject:
    """The content of an object file."""

    sections: tuple[WasmSection, ...]
    imports: tuple[Imported, ...]
    symbols: tuple[WasmSymbol, ...]
    segments: tuple[Segment, ...]
    relocations: tuple[Relocation, ...]

    @property
    def undefined(self) -> list[str]:
        """The names of the functions and the data that another file must define."""
        functions = [i.name for i in self.imports if i.kind == _FUNCTIONS]
        return functions + [s.name for s in self.symbols if s.kind == _OF_DATA and not s.is_defined]


class _ByteReader:
    """Reader of numbers and names, one after another."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def bytes(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.data):
            raise ValueError("it ends too early")
        return self.data[self.at - count : self.at]

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self) -> int:
        begin = self.at
        value = self.unsigned()
        bits = 7 * (self.at - begin)
        return value - (1 << bits) if value >> bits - 1 else value

    def text(self) -> str:
        return self.bytes(self.unsigned()).decode()


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes((value,))


def _signed(value: int) -> bytes:
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes((value & 127,))


def _text(text: str) -> bytes:
    return _unsigned(len(text.encode())) + text.encode()


def _listed(items: Sequence[bytes]) -> bytes:
    return _unsigned(len(items)) + b"".join(items)


def read(data: bytes) -> WasmObject:
    """The content of an object file. InvalidIR for any other file."""
    try:
        return _read_wasm(data)
    except (LookupError, ValueError) as error:
        raise InvalidIR(f"not a WebAssembly object file: {error!r}") from None


def _read_wasm(data: bytes) -> WasmObject:
    if not data.startswith(_HEAD):
        raise ValueError("another format")
    file, sections = _ByteReader(data, len(_HEAD)), []
    while file.at < len(data):
        number = file.byte()
        body = _ByteReader(file.bytes(file.unsigned()))
        name = body.text() if number == _CUSTOM else ""
        sections.append(WasmSection(number, name, body.data[body.at :]))
    imports = [i for s in sections if s.number == _IMPORT for i in _imports(_ByteReader(s.data))]
    contents = [d for s in sections if s.number == _DATA for d in _contents(_ByteReader(s.data))]
    parts = _linking({s.name: s.data for s in sections}["linking"])
    kept = _ByteReader(parts[_SEGMENTS]) if _SEGMENTS in parts else _ByteReader(b"\0")
    if kept.unsigned() != len(contents):
        raise ValueError("segments without names")
    segments = [
        Segment(d, kept.text(), 1 << min(31, kept.unsigned()), kept.unsigned()) for d in contents
    ]
    functions = [i.name for i in imports if i.kind == _FUNCTIONS]
    symbols = _symbols(_ByteReader(parts.get(_SYMBOLS, b"\0")), functions)
    places = [r for s in sections if s.name.startswith("reloc.")
              for r in _relocations(_ByteReader(s.data))]  # fmt: skip
    return WasmObject(
        tuple(sections), tuple(imports), tuple(symbols), tuple(segments), tuple(places)
    )


def _imports(r: _ByteReader) -> Iterator[Imported]:
    for _ in range(r.unsigned()):
        r.text()
        name, kind = r.text(), r.byte()
        if kind == _FUNCTIONS:
            r.unsigned()
        elif kind == _GLOBALS:
            r.bytes(2)
        else:  # a table has a type, then both have limits
            if kind == _TABLES:
                r.byte()
            if r.byte() & 1:
                r.unsigned()
            r.unsigned()
        yield Imported(kind, name)


def _contents(r: _ByteReader) -> Iterator[bytes]:
    for _ in range(r.unsigned()):
        if r.unsigned() != 0 or r.byte() != _I32_CONST:
            raise ValueError("data of another kind")
        r.signed()
        r.byte()
        yield r.bytes(r.unsigned())


def _linking(data: bytes) -> dict[int, bytes]:
    r, parts = _ByteReader(data), {}
    if r.unsigned() != 2:
        raise ValueError("another version")
    while r.at < len(data):
        number = r.byte()
        parts[number] = r.bytes(r.unsigned())
    return parts


def _symbols(r: _ByteReader, functions: Sequence[str]) -> Iterator[WasmSymbol]:
    for _ in range(r.unsigned()):
        kind, flags = r.byte(), r.unsigned()
        is_defined = not flags & _UNDEFINED
        if kind == _OF_DATA:
            name = r.text()
            rest = [r.unsigned() for _ in range(3)] if is_defined else [0, 0, 0]
            yield WasmSymbol(kind, flags, name, *rest)
            continue
        index, name = r.unsigned(), ""
        if kind != _OF_SECTION and (is_defined or flags & _OWN_NAME):
            name = r.text()
        elif kind == _OF_FUNCTION:
            name = functions[index]
        yield WasmSymbol(kind, flags, name, index)


def _relocations(r: _ByteReader) -> Iterator[Relocation]:
    section = r.unsigned()
    for _ in range(r.unsigned()):
        kind, offset, symbol = r.byte(), r.unsigned(), r.unsigned()
        yield Relocation(section, offset, kind, symbol, r.signed() if kind in _WITH_ADDEND else 0)


def with_data(data: bytes, arrays: Mapping[str, bytes], align: int) -> bytes:
    """Add a segment for each distinct array to the object file, and define the arrays' symbols.

    LLVM would read the arrays as text, which takes a thousand times as long.
    """
    if not arrays:
        return data
    found = read(data)
    segments = list(found.segments)
    places: dict[bytes, int] = {}
    symbols = []
    for s in found.symbols:
        if s.kind == _OF_DATA and not s.is_defined and s.name in arrays:
            content = arrays[s.name]
            if content not in places:
                places[content] = len(segments)
                segments.append(Segment(content, f".rodata.{s.name}", align))
            flags = s.flags & ~_UNDEFINED
            s = WasmSymbol(_OF_DATA, flags, s.name, places[content], 0, len(content))
        symbols.append(s)
    return _written(found, segments, symbols)


def _written(
    found: WasmObject, segments: Sequence[Segment], symbols: Sequence[WasmSymbol]
) -> bytes:
    """The object file with other data and symbols. Sections keep their numbers."""
    info = [_text(s.name) + _unsigned(s.align.bit_length() - 1) + _unsigned(s.flags)
            for s in segments]  # fmt: skip
    changed = {_SEGMENTS: _listed(info), _SYMBOLS: _listed([s.packed() for s in symbols])}
    out, at = [_HEAD], 0
    rows = []
    for s in segments:
        rows.append(_active(at, s.data))
        at += len(s.data)
    if not any([s.number == _DATA for s in found.sections]):
        raise InvalidIR("not a WebAssembly object file with data")
    for section in found.sections:
        if section.number == _DATA:
            section = section._replace(data=_listed(rows))
        elif section.number == _DATA_COUNT:
            section = section._replace(data=_unsigned(len(rows)))
        elif section.name == "linking":
            parts = _linking(section.data) | changed
            body = b"".join([bytes((n,)) + _unsigned(len(p)) + p for n, p in parts.items()])
            section = section._replace(data=_unsigned(2) + body)
        out.append(section.packed())
    return b"".join(out)


def _active(at: int, data: bytes) -> bytes:
    """A segment of data at an address."""
    return bytes((0, _I32_CONST)) + _signed(at) + bytes((_END,)) + _unsigned(len(data)) + data


def module(data: bytes) -> bytes:
    """The module of an object file. It imports nothing, and exports its functions, `memory`, and
    `__heap_base`, where the caller's memory begins. Exported data are globals with their addresses.

    Unsupported for an object that needs other files, or passes functions.
    """
    found = read(data)
    _check_alone(found)
    places, end = [], _STACK
    for s in found.segments:
        end = -(-end // s.align) * s.align
        places.append(end)
        end += len(s.data)
    heap = -(-end // _ALIGNED) * _ALIGNED
    made = {s.number: s.data for s in found.sections if s.number in (_TYPE, _FUNCTION)}
    made[_CODE] = _relocated_code(found, places)
    made[_DATA] = _listed([_active(at, s.data) for at, s in zip(places, found.segments)])
    made[_MEMORY] = _listed([b"\0" + _unsigned(-(-heap // _PAGE))])
    exports = [("memory", _MEMORIES, 0)]
    numbers = [(_STACK, True)]  # what the object imports as its stack pointer
    named = [("__heap_base", heap)]
    for symbol in sorted([s for s in found.symbols if s.is_global], key=lambda s: s.name):
        if symbol.kind == _OF_FUNCTION:
            exports.append((symbol.name, _FUNCTIONS, symbol.place))
        elif symbol.kind == _OF_DATA:
            named.append((symbol.name, places[symbol.place] + symbol.offset))
    for name, value in named:
        exports.append((name, _GLOBALS, len(numbers)))
        numbers.append((value, False))
    made[_GLOBAL] = _listed([
        bytes((_I32, changes, _I32_CONST)) + _signed(value) + bytes((_END,))
        for value, changes in numbers
    ])  # fmt: skip
    made[_EXPORT] = _listed([_text(n) + bytes((k,)) + _unsigned(i) for n, k, i in exports])
    return _HEAD + b"".join([WasmSection(n, "", made[n]).packed() for n in sorted(made)])


def _check_alone(found: WasmObject) -> None:
    """Unsupported for an object that only a linker can make a module of."""
    if found.undefined:
        raise Unsupported(f"the code needs {', '.join(found.undefined)}: link the object file")
    kinds = [i.kind for i in found.imports]
    if not {_MEMORIES, _GLOBALS}.issuperset(kinds):
        raise Unsupported("export: a module cannot pass functions (threads=): link an object file")
    if kinds.count(_GLOBALS) > 1:
        raise Unsupported("the code needs globals of another file: link the object file")
    if any([found.sections[r.section].number == _DATA for r in found.relocations]):
        raise Unsupported("the data has addresses: link the object file")


def _relocated_code(found: WasmObject, places: Sequence[int]) -> bytes:
    """The code section with its relocations filled in."""
    number = next(i for i, s in enumerate(found.sections) if s.number == _CODE)
    out = bytearray(found.sections[number].data)
    for r in found.relocations:
        if r.section != number:
            continue
        if r.kind in _INDICES:
            value = r.symbol if r.kind == _TYPE_INDEX else found.symbols[r.symbol].place
        elif r.kind in _ADDRESSES or r.kind == _ADDRESS_WORD:
            s = found.symbols[r.symbol]
            value = places[s.place] + s.offset + r.addend
        else:
            raise Unsupported(f"WebAssembly relocation type {r.kind}: link the object file")
        if r.kind == _ADDRESS_WORD:
            struct.pack_into("<I", out, r.offset, value)
        else:  # five bytes, also for a signed number below 2^31
            digits = [value >> 7 * i & 127 | 128 for i in range(4)] + [value >> 28 & 15]
            out[r.offset : r.offset + 5] = bytes(digits)
    return bytes(out)
