"""Static libraries: archives of object files with an index of symbols, like those of `ar rcs`."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from uopc.backends import elf
from uopc.exporting import wasm

_MAGIC = b"!<arch>\n"
_HEAD = 60  # bytes before the content of a member


def archive(members: Mapping[str, bytes]) -> bytes:
    """A static library of object files by name, without times and owners."""
    names, places = b"", {}
    for name in members:
        places[name] = len(names)
        names += name.encode() + b"/\n"
    index = [
        (s.name, i)
        for i, data in enumerate(members.values())
        for s in (wasm if data.startswith(wasm.MAGIC) else elf).read(data).symbols
        if s.is_global
    ]
    text = b"".join([name.encode() + b"\0" for name, _ in index])
    at = len(_MAGIC) + _HEAD + _even(4 + 4 * len(index) + len(text)) + _HEAD + _even(len(names))
    offsets = []
    for data in members.values():
        offsets.append(at)
        at += _HEAD + _even(len(data))
    numbers = [len(index), *[offsets[i] for _, i in index]]
    symbols = struct.pack(f">{len(numbers)}I", *numbers) + text
    parts = [_member("/", symbols), _member("//", names)]
    parts += [_member(f"/{places[name]}", data) for name, data in members.items()]
    return _MAGIC + b"".join(parts)


def _even(n: int) -> int:
    return n + n % 2


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)
