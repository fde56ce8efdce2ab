"""LLVM IR text → PTX text, by the LLVM inside llvmlite: no GPU, driver or toolkit is needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from uopc.backends.llvm.jit import parsed, target_machine
from uopc.backends.nvptx.kernel import TRIPLE
from uopc.errors import InvalidIR
from uopc.ir import forks
from uopc.target import Target


@cache
def _machine(cpu: str, features: str) -> Any:
    import llvmlite.binding as llvm

    llvm.set_option("", "-nvptx-short-ptr")  # addresses in shared memory have 32 bits
    return target_machine(cpu, features, TRIPLE)


def assemble(ir_text: str, target: Target) -> str:
    """The PTX of a module. Raises InvalidIR for a call of an unknown function."""
    with forks.llvm:
        machine = _machine(target.cpu, target.features)
        with parsed(ir_text) as module:
            text = str(machine.emit_assembly(module))
    if ".extern .func" in text:  # LLVM makes an external call of an unknown intrinsic
        raise InvalidIR(f"nvptx: {text[text.index('.extern .func') :].splitlines()[0]}")
    return text
