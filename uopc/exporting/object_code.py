"""LLVM IR of a function to export → a self-contained object file; object files → a static library.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

from uopc.backends import elf
from uopc.backends.llvm import jit
from uopc.backends.memory_plan import ALIGNMENT
from uopc.errors import Unsupported
from uopc.exporting import module_ir, wasm
from uopc.exporting.exported import Exported, bits

# Arithmetic that a processor lacks: every compiler for ARM links a library with these.
_COMPILERS_OWN = re.compile(r"__aeabi_(?!mem)\w+")
_ARCHIVE = b"!<arch>\n"
_HEAD = 60  # bytes before the content of a member of an archive


def object_file(f: Exported) -> bytes:
    """The bytes of the object file. Unsupported if it needs a function of another library, except
    the compiler's own library, which computes floats of 64 bits on a Cortex-M4F."""
    machine = f.machine.llvm()
    with jit.parsed(module_ir.module(f)) as module:
        if f.machine.size_bits == 32:  # pointers and names are not those that LLVM expects
            module.triple = f.machine.triple
            module.data_layout = str(machine.target_data)
        if module_ir.is_small(f):
            _join(module, machine)
        code = bytes(machine.emit_object(module))
    arrays = {
        v.constant(i): bits(a) or b"\0" for v in f.versions for i, a in enumerate(v.constants)
    }
    form = wasm if f.machine.is_wasm else elf
    made: bytes = form.with_data(code, arrays, ALIGNMENT)
    missing: list[str] = form.read(made).undefined
    if f.machine.is_arm:
        made = elf.for_both_conventions(made)
        missing = [name for name in missing if not _COMPILERS_OWN.fullmatch(name)]
    if missing:
        raise Unsupported(
            f"export: the code calls {', '.join(missing)}: {f.machine.name} lacks an instruction"
            " that pass decompose replaces, and no rule of a later pass may make it"
        )
    return made


def _join(module: Any, machine: Any) -> None:
    """Inline kernels into the function that calls them, and unroll short loops. Operations on
    numbers stay unchanged."""
    import llvmlite.binding as llvm

    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    with llvm.create_new_module_pass_manager() as passes:
        passes.add_always_inliner_pass()
        passes.add_loop_simplify_pass()
        passes.add_loop_unroll_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, builder)


# ---------------------------------------------------------------- static libraries
def archive(members: Mapping[str, bytes]) -> bytes:
    """A static library of object files by name, with an index of symbols, like those of `ar rcs`;
    without times and owners."""
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
    at = len(_ARCHIVE) + _HEAD + _even(4 + 4 * len(index) + len(text)) + _HEAD + _even(len(names))
    offsets = []
    for data in members.values():
        offsets.append(at)
        at += _HEAD + _even(len(data))
    numbers = [len(index), *[offsets[i] for _, i in index]]
    symbols = struct.pack(f">{len(numbers)}I", *numbers) + text
    parts = [_member("/", symbols), _member("//", names)]
    parts += [_member(f"/{places[name]}", data) for name, data in members.items()]
    return _ARCHIVE + b"".join(parts)


def _even(n: int) -> int:
    return n + n % 2


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)
