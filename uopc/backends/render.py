"""The LLVM IR and the assembly of linear kernels, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp
    from uopc.target import Target

Launch = tuple["UOp", tuple["UOp", ...]]  # a linear kernel, its storage and variables


def llvm_texts(
    kernels: Sequence[UOp], launches: Sequence[Launch], target: Target
) -> dict[str, str]:
    """The LLVM IR of each kernel, a module each, by the kernel's name.

    `launches` are those of the whole program: what all launches of a kernel have in common shows
    in its code for a GPU.
    """
    if target.gpu is None:
        from uopc.backends.llvm import emitter, split_function

        return {k.arg.name: emitter.module([split_function.render(k.arg.name, k)]) for k in kernels}
    from uopc.backends.nvptx import kernel as nvptx
    from uopc.backends.nvptx.calls import calls_of

    calls = calls_of(launches)
    return {
        k.arg.name: nvptx.module(nvptx.render(k.arg.name, k, target, calls[k])) for k in kernels
    }


def asm_texts(modules: Mapping[str, str], target: Target, cpu: str = "") -> dict[str, str]:
    """The assembly (for a GPU: the PTX) of LLVM modules, by name; `cpu`: not this machine's."""
    if target.gpu is None:
        from uopc.backends.llvm import jit

        return {name: jit.assembly(text, cpu or None) for name, text in modules.items()}
    from uopc.backends.nvptx import ptx

    return {name: ptx.assemble(text, target) for name, text in modules.items()}
