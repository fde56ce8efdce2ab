"""LLVM IR of a function to export → a self-contained object file."""

from __future__ import annotations

import re
from typing import Any

from uopc.backends import elf
from uopc.backends.llvm import jit
from uopc.backends.memory_plan import ALIGNMENT
from uopc.errors import Unsupported
from uopc.exporting import module_ir, wasm
from uopc.exporting.exported import Exported, bits

# Arithmetic that a processor lacks: every compiler for ARM links a library with these.
_COMPILERS_OWN = re.compile(r"__aeabi_(?!mem)\w+")


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
