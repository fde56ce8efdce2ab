"""A launch on its own: the plan of a program that runs one kernel on the caller's arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from uopc.backends.plan import (
    Argument,
    Dim,
    Plan,
    PlannedLaunch,
    Pointer,
    Scalar,
    SizeRelation,
    Word,
)
from uopc.errors import Unsupported
from uopc.ir.core import shapes, storage, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Shape
from uopc.ir.core.uop import UOp
from uopc.program.planner import dim


class BufferFacts(Protocol):
    """The facts of a buffer that the plan needs."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def writes(self) -> bool: ...


def alone(
    plan: Plan, launch: PlannedLaunch, linear: UOp, args: Sequence[UOp],
    buffers: Mapping[int, BufferFacts],
) -> Plan:  # fmt: skip
    """The plan of one launch. Its arguments are the launch's buffers, by slot, and it has no
    results.

    linear, args: the kernel and the arguments of its call.
    """
    labels = {slot: str(b) for slot, b in buffers.items()}
    often = Counter(labels.values())
    over = _written_over(list(labels.values()), [b.writes for b in buffers.values()])
    arguments = tuple([
        Argument(
            labels[slot] if often[labels[slot]] == 1 else f"{labels[slot]}#{slot}",
            b.dtype.numpy, tuple([dim(d) for d in b.shape]), b.writes, over.get(i),
        )
        for i, (slot, b) in enumerate(buffers.items())
    ])  # fmt: skip
    base_of = {slot: base for base, slot in enumerate(buffers)}
    arena = len(arguments)
    words: list[Word] = []
    for slot, word in enumerate(launch.words):
        if slot in base_of:
            words.append(Pointer(base_of[slot]))
        elif isinstance(word, Pointer):
            # The scratch memory of the kernel, behind its arguments; else a slot that it ignores.
            words.append(Pointer(arena) if slot >= len(args) else Scalar(0))
        else:
            words.append(word)
    used = {v.arg.name for a in args for v in walk.variables(a)}
    used |= {v.arg.name for v in linear.src if v.op is Ops.VARIABLE}
    conditions = _related(plan.conditions, used)
    scratch = any(word == Pointer(arena) for word in words)
    return replace(
        plan, name=launch.kernel, arguments=arguments, results=(), structure="tuple", keys=(),
        launches=(replace(launch, words=tuple(words)),), constants=(),
        variables=tuple([v for v in plan.sizes if v.name in used]), conditions=conditions,
        lengths=(),
        arena_bytes=plan.arena_bytes if scratch else 0,
    )  # fmt: skip


def _written_over(labels: Sequence[str], writes: Sequence[bool]) -> dict[int, int]:
    """The results that share memory with a value that their launch reads: the two have one
    label."""
    read = {label: i for i, label in enumerate(labels) if not writes[i]}
    return {i: read[label] for i, label in enumerate(labels) if writes[i] and label in read}


def _related(conditions: Sequence[SizeRelation], used: set[str]) -> tuple[SizeRelation, ...]:
    """The conditions on variables in `used`. `used` grows by the conditions' other variables."""
    names = [_variables(c.left) | _variables(c.right) for c in conditions]
    found: set[int] = set()
    while more := {i for i, n in enumerate(names) if i not in found and n & used}:
        found |= more
        used.update(*[names[i] for i in more])
    return tuple([conditions[i] for i in sorted(found)])


def _variables(d: Dim) -> set[str]:
    return set() if isinstance(d, int) else d.variables


def check_addresses(name: str, kernel: UOp, args: Sequence[UOp], written: set[str]) -> None:
    """Unsupported if memory safety depends on values that the program computes before.

    kernel: as it was split, called with `args`. written: the program arguments that the program
    writes. Other arguments are safe with any value, because the caller gives them anyway.
    """
    computed = {
        slot
        for slot, a in enumerate(args)
        if (root := storage.storage_root(a)).op is not Ops.PARAM or root.arg.name in written
    }
    if not _loaded_in_addresses(kernel) & computed:
        return
    from uopc.ir.verify.in_bounds import Verdict, accesses

    for access in accesses(kernel):
        if access.verdict is not Verdict.INSIDE and _slots_read(access.index) & computed:
            raise Unsupported(
                f"kernel {name} accesses element {access.index.render()} of"
                f" {shapes.show((access.size,))[1:-1]} elements, which depends on values that the"
                " program computes before: run the whole program"
            )


def _slots_read(index: UOp) -> set[int]:
    """The slots of the arguments whose elements an index depends on."""
    reads = [u for u in walk.toposort(index) if u.op in (Ops.INDEX, Ops.LOAD)]
    roots = [storage.storage_root(u.src[0]) for u in reads]
    return {int(r.arg.slot) for r in roots if r.op is Ops.PARAM}


def _loaded_in_addresses(kernel: UOp) -> set[int]:
    """The slots of the arguments whose elements the address of another access depends on."""
    found: set[int] = set()
    seen: set[UOp] = set()
    for u in walk.toposort(kernel):
        if u.op is Ops.INDEX:
            for index in u.src[1:]:
                if index not in seen:
                    seen.add(index)
                    found |= _slots_read(index)
    return found
