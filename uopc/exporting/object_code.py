"""LLVM IR of a function to export → an object file that needs no other."""

from __future__ import annotations

from uopc.backends.llvm import jit
from uopc.backends.memory_plan import ALIGNMENT
from uopc.errors import Unsupported
from uopc.exporting import elf, module_ir
from uopc.exporting.exported import Exported, bits


def object_file(f: Exported) -> bytes:
    """The bytes of the object file. Unsupported if it would need a function of another library."""
    with jit.parsed(module_ir.module(f)) as module:
        code = bytes(f.machine.llvm().emit_object(module))
    arrays = {
        v.constant(i): bits(a) or b"\0" for v in f.versions for i, a in enumerate(v.constants)
    }
    made = elf.with_data(code, arrays, ALIGNMENT)
    if missing := elf.read(made).undefined:
        raise Unsupported(
            f"export: the code calls {', '.join(missing)}: {f.machine.name} lacks an instruction"
            " that pass decompose replaces, and no rule of a later pass may make it"
        )
    return made
