"""LLVM IR text → object file bytes, for this machine or a named CPU of its architecture.

No pass pipeline runs: the emitter writes explicit vectors in SSA form, where LLVM's passes cost
several times the code generation and gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from uopc.backends import detect
from uopc.errors import InvalidIR
from uopc.ir import forks

# LLVM's level of optimisation: what it costs and gains is in docs/lab/llvm_effort.md.
EFFORT = 2


def _target_machine(cpu: str | None, features: str | None = None, effort: int = EFFORT) -> Any:
    own = detect.this_machine()
    if cpu is None or cpu == own.cpu:  # a machine may lack features that its name implies
        cpu, features = own.cpu, own.features if features is None else features
    # The small position-independent model is what elf_loader.py can lay out on its own.
    return target_machine(
        cpu, features or "", effort=effort, jit=True, reloc="pic", codemodel="small"
    )


@cache
def target_machine(
    cpu: str, features: str, triple: str = "", effort: int = EFFORT, **form: Any
) -> Any:
    """LLVM's machine, which writes code for a processor of this architecture, or of that of a
    triple. `form`: how the code calls and finds symbols, as LLVM names it."""
    import llvmlite.binding as llvm

    if triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(triple or llvm.get_default_triple())
    return target.create_target_machine(cpu=cpu, features=features, opt=effort, **form)


@contextmanager
def parsed(ir_text: str) -> Iterator[Any]:
    """A parsed and verified module, closed at the end.

    LLVM aborts the process on an invalid module. Its global context would keep every type and
    constant forever, so the module has a context of its own, which outlives it.
    """
    import llvmlite.binding as llvm

    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(ir_text, context)
    except RuntimeError as error:
        raise InvalidIR(f"LLVM cannot parse the IR: {error}") from None
    with module:
        try:
            module.verify()
        except RuntimeError as error:
            raise InvalidIR(f"LLVM rejects the IR: {error}") from None
        yield module


def compile_object(ir_text: str, cpu: str | None = None, effort: int = EFFORT) -> bytes:
    """Machine code for textual LLVM IR, as the bytes of a relocatable object file.

    Without `cpu` the code is for this machine. A name LLVM does not know ends the process inside
    LLVM, so callers pass names from a table, never from a user.
    """
    return bytes(_emitted("emit_object", ir_text, cpu, None, effort))


def assembly(ir_text: str, cpu: str | None = None, features: str | None = None) -> str:
    """The same machine code as assembly text."""
    return str(_emitted("emit_assembly", ir_text, cpu, features, EFFORT))


def _emitted(
    form: str, ir_text: str, cpu: str | None, features: str | None, effort: int
) -> Any:
    """The code. A fork waits until all objects of LLVM are freed, too: freeing one calls LLVM."""

    def emitted() -> Any:
        machine = _target_machine(cpu, features, effort)
        with parsed(ir_text) as module:
            return getattr(machine, form)(module)

    with forks.llvm:
        return emitted()
