"""How many kernels a program launches, counted as the corpus counts them."""

from __future__ import annotations

import uopc
from tests.conformance.loader import USER_KERNEL
from uopc.ir import analysis
from uopc.ir.ops import Ops
from uopc.ir.uop import UOp


def count(program: uopc.Program, copies: int) -> int:
    """Outer loop nests over all launches; plain copies are none, as many as the graph has COPYs."""
    kernels = _launched(program)
    plain = sum(_is_plain_copy(k) for k in kernels)
    return sum(_nests(k) for k in kernels) - min(plain, copies)


def _launched(program: uopc.Program) -> list[UOp]:
    """The kernel of each launch, as it was before its ranges were cut."""
    run = next(r for r in program._lowered.runs if r.name == "split-kernels")
    return [call.src[0] for call in run.after[0].src]


def _nests(kernel: UOp) -> int:
    """Stores under the same loops are one nest; a hand-written kernel is one as it is."""
    if kernel.arg is not None and kernel.arg.name.startswith(USER_KERNEL):
        return 1
    return len({frozenset(_loops(root)) for root in _effects(kernel)})


def _effects(kernel: UOp) -> list[UOp]:
    """What the kernel writes to memory of the program, what it reads back from it too."""
    found = dict.fromkeys(kernel.src)
    for u in analysis.toposort(kernel):
        if u.op is Ops.AFTER and u.src[0].arg.space == "global":
            found.update(dict.fromkeys(s for s in u.src[1:] if s.op in (Ops.END, Ops.STORE)))
    return list(found)


def _loops(effect: UOp) -> tuple[UOp, ...]:
    return effect.src[1:] if effect.op is Ops.END else ()


def _is_plain_copy(kernel: UOp) -> bool:
    """One store of a value as it was read."""
    if len(kernel.src) != 1:
        return False
    root = kernel.src[0]
    store = root.src[0] if root.op is Ops.END else root
    return store.op is Ops.STORE and store.src[1].op is Ops.INDEX
