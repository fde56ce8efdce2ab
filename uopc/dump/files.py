"""`uopc dump --out`: every stage of a run as a file to read, compare, and continue from.

00_input.uop  10_canonicalize.uop  …     one per stage, numbered as in the table
130_llvm_<kernel>.ll                     one per kernel
140_asm_<kernel>.s                       one per kernel; for a GPU 140_asm_<kernel>.ptx
150_c_<kernel>.c                         one per kernel of a CPU
<hash>.npy                               the arrays that the texts name
<hash>.json                              the place of an array that lies in a file
"""

from __future__ import annotations

import re
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from uopc.dump.stages import ASM, LLVM, C, Dump
from uopc.errors import InvalidIR, UserError
from uopc.ir.core import walk
from uopc.ir.core.args import DataArg
from uopc.ir.core.data import files as placed
from uopc.ir.text.literals import read_dtype

_SUFFIXES = {LLVM: ".ll", ASM: ".s", C: ".c"}
# NumPy raises these for files that are damaged or missing: it parses their first line as Python.
_UNREADABLE = (
    OSError, ValueError, TypeError, EOFError, OverflowError, MemoryError, RecursionError,
    SyntaxError, tokenize.TokenError,
)  # fmt: skip
_DATA = re.compile(r"\bdata @(\w+)[^\n]*? : (\w+)")


def file_name(number: int, stage: str, kernel: str = "", gpu: bool = False) -> str:
    """The name of the file of a stage."""
    if stage in _SUFFIXES:
        suffix = ".ptx" if gpu and stage == ASM else _SUFFIXES[stage]
        return f"{number}_{stage}_{kernel}{suffix}"
    return f"{number:02d}_{stage}.uop"


def write(dump: Dump, folder: Path) -> list[Path]:
    """Write all stages, and the code of each kernel. UserError if the files cannot be written."""
    gpu = dump.context.target.gpu is not None
    contents: dict[str, str] = {}
    numbered = [(row.number, row.stage) for row in dump.rows()]
    if C in dump.kernel_texts:
        numbered.append((numbered[-1][0] + 10, C))
    for number, stage in numbered:
        texts = dump.code(stage) if stage in _SUFFIXES else {"": dump.text(stage)}
        for kernel, text in texts.items():
            contents[file_name(number, stage, kernel, gpu)] = text
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name).write_text(text, encoding="utf-8")
            written.append(folder / name)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}") from None
    return [*written, *write_arrays(folder, _arrays(dump))]


def write_arrays(folder: Path, arrays: Mapping[str, Any]) -> list[Path]:
    """Write constant arrays by hash, in dtypes of `.npy` files: small floats as unsigned integers.
    For an array in a file, write its place. UserError if the files cannot be written."""
    written = []
    try:
        for key, a in arrays.items():
            found = placed.placed(a)
            written.append(folder / f"{key}.{'npy' if found is None else 'json'}")
            if found is not None:
                written[-1].write_text(found[0].as_text(), encoding="utf-8")
                continue
            known = a if a.dtype.isbuiltin == 1 else a.view(f"u{a.dtype.itemsize}")
            np.save(written[-1], known, allow_pickle=False)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}") from None
    return written


def write_text(file: Path, text: str) -> None:
    """Write a file. UserError if it cannot be written."""
    write_bytes(file, text.encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file. UserError if it cannot be written."""
    try:
        file.write_bytes(content)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None


def read_bytes(file: Path) -> bytes:
    """The content of a file. UserError if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None


def _arrays(dump: Dump) -> dict[str, Any]:
    """The constant arrays of all stages by hash."""
    graphs = [dump.shown(stage) for stage in dump.stages]
    nodes = dict.fromkeys([u for graph in graphs for u in walk.toposort(graph)])
    return {u.arg.key: u.arg.array for u in nodes if isinstance(u.arg, DataArg)}


def read_arrays(file: Path, text: str) -> dict[str, Any]:
    """The arrays that the text of a stage file names and that lie beside it, by hash."""
    found = {}
    for key, kind in _DATA.findall(text):
        stored, place = (file.parent / f"{key}.{suffix}" for suffix in ("npy", "json"))
        if key not in found and place.is_file():
            found[key] = placed.FilePlace.of_text(place.name, read_bytes(place)).open()
        elif key not in found and stored.is_file():
            try:
                with stored.open("rb") as opened:
                    array: Any = np.lib.format.read_array(opened, allow_pickle=False)
            except _UNREADABLE as error:
                raise UserError(f"{stored}: {error or type(error).__name__}") from None
            wanted = read_dtype(kind).numpy
            if array.dtype != wanted and array.dtype == np.dtype(f"u{wanted.itemsize}"):
                array = array.view(wanted)
            if array.dtype != wanted:
                raise InvalidIR(f"{stored}: holds {array.dtype.name}, expected {wanted.name}")
            found[key] = array
    return found
