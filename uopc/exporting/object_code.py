"""LLVM IR of a function to export → an object file that needs no other."""

from __future__ import annotations

from typing import Any

from uopc.backends.llvm import jit
from uopc.backends.memory_plan import ALIGNMENT
from uopc.errors import Unsupported
from uopc.exporting import elf, module_ir
from uopc.exporting.exported import Exported, bits


def object_file(f: Exported) -> bytes:
    """The bytes of the object file. Unsupported if it would need a function of another library."""
    machine = f.machine.llvm()
    with jit.parsed(module_ir.module(f)) as module:
        if module_ir.is_small(f):
            _join(module, machine)
        code = bytes(machine.emit_object(module))
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


def _join(module: Any, machine: Any) -> None:
    """Put kernels into the function that calls them, and write short loops out. No operation on
    numbers is changed."""
    import llvmlite.binding as llvm

    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    with llvm.create_new_module_pass_manager() as passes:
        passes.add_always_inliner_pass()
        passes.add_loop_simplify_pass()
        passes.add_loop_unroll_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, builder)
