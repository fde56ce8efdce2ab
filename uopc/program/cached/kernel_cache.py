"""Compiled kernels by key: a program compiles only the kernels that no earlier program had.

A key is made of a kernel before the kernel passes, and of all else that shapes its code. In memory
kernels are kept one by one. On disk they are part of the entries of programs, and an index finds
the entry of a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from uopc.cache import statistics
from uopc.cache.disk import DiskCache
from uopc.cache.memory import MemoryCache
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import fingerprint
from uopc.ir.core.storage import arguments, storage_root
from uopc.ir.core.uop import UOp
from uopc.program.artifact import Artifact
from uopc.program.cached import key, record
from uopc.program.compiled_kernel import CompiledKernel
from uopc.program.request import Request
from uopc.target import Target

# Kernels in memory, per program that may be there.
_PER_PROGRAM = 16

kernels: MemoryCache[CompiledKernel] = MemoryCache()


class KernelCache:
    """The kernels that one request finds. `keys`: of each kernel of the program, before the kernel
    passes. `found`: the kernels that are already compiled; empty with `fresh`, or if the rules of
    the request have no identity."""

    def __init__(
        self, request: Request, machine: Target, disk: DiskCache | None, kind: type[Artifact],
        fresh: bool = False,
    ) -> None:  # fmt: skip
        self.machine, self.disk, self.kind = machine, disk, kind
        self.most = _PER_PROGRAM * request.options.programs
        rules = key.rules_identity(request, machine)
        self.fresh = fresh or rules is None or request.opts is not None
        own = key.code_components(request, machine, rules or "")
        # In this process all kernels are of one version, whose digest takes longer than a kernel.
        shared = () if disk is None else key.process_components()
        self._components = repr((*shared, *own))
        self.keys: dict[UOp, str] = {}
        self.found: dict[UOp, CompiledKernel] = {}

    def find(self, program: UOp) -> Mapping[UOp, CompiledKernel]:
        """The compiled kernels of a program, a LINEAR of CALLs."""
        facts = _launch_facts(program) if self.machine.gpu else {}
        for kernel in dict.fromkeys([c.src[0] for c in program.src]):
            text = f"{self._components} {facts.get(kernel)} {fingerprint(kernel).digest}"
            self.keys[kernel] = record.digest(text)
        if not self.fresh:
            self._find_in_memory()
            self._find_on_disk()
            statistics.count(kernel_hits=len(self.found))
        return self.found

    def _find_in_memory(self) -> None:
        for kernel, own in self.keys.items():
            known = kernels.find(own) if self.most else None
            if known is not None:
                self.found[kernel] = known

    def _find_on_disk(self) -> None:
        missing = {own: k for k, own in self.keys.items() if k not in self.found}
        if self.disk is None or not missing:
            return
        for name in dict.fromkeys(self.disk.where(missing).values()):
            artifact = self.disk.load(name, self._decoded, counted=False)
            for k in artifact.kernels if artifact is not None else ():
                if k.key in missing:
                    self.found[missing[k.key]] = k
                    self.keep(k)

    def _decoded(self, content: bytes) -> Artifact:
        artifact = record.decode(content, None, self.kind)
        artifact.check()
        return artifact

    def keep(self, kernel: CompiledKernel) -> None:
        """Keep a kernel in memory."""
        if self.most and not self.fresh:
            kernels.put(kernel.key, kernel, self.most)


def _launch_facts(program: UOp) -> dict[UOp, set[object]]:
    """For each kernel, all facts of its launches that shape GPU code: for each argument the start
    of its part, and the first argument with the same storage."""
    found: dict[UOp, set[object]] = {}
    for call in program.src:
        kernel, args = call.src[0], arguments(call)
        roots = [storage_root(a) for a in args]
        begins = tuple([a.arg[0] * a.dtype.itemsize % 16 if a.op is Ops.SLICE else 0 for a in args])
        found.setdefault(kernel, set()).add((begins, tuple([roots.index(r) for r in roots])))
    return found
