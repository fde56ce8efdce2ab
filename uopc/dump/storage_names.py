"""Names for the storage of a run, for the report and for kernels in C."""

from __future__ import annotations

from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.text.infix import infix
from uopc.passes.pass_manager import Lowered


class StorageNames:
    """`of`: a name for each storage: the user's, `out0` for results, `t0` for intermediates."""

    def __init__(self, run: Lowered) -> None:
        self._calls: dict[UOp, list[tuple[UOp, ...]]] = {}  # storage by slot, by kernel
        results = [storage_root(v) for v in run.outputs if v.src]
        fresh = [u for u in dict.fromkeys(results) if u.op is Ops.BUFFER]
        self.of = {u: f"out{i}" if len(fresh) > 1 else "out" for i, u in enumerate(fresh)}
        taken = 0
        for kernel, args in run.calls:
            roots = tuple(map(storage_root, args))
            self._calls.setdefault(kernel, []).append(roots)
            for u in roots:
                if u in self.of:
                    continue
                if u.op is Ops.BUFFER:
                    self.of[u] = f"t{taken}"
                    taken += 1
                else:
                    known = getattr(u.arg, "name", "") if u.op is not Ops.DATA else "data"
                    self.of[u] = known or infix(u) or u.op.name

    def slots(self, kernel: UOp) -> dict[int, str]:
        """The name of each PARAM's storage; no name if launches give different storage."""
        names: dict[int, set[str]] = {}
        for roots in self._calls.get(kernel, ()):
            for slot, u in enumerate(roots):
                names.setdefault(slot, set()).add(self.of.get(u, ""))
        return {slot: next(iter(found)) for slot, found in names.items() if len(found) == 1}

    def are_apart(self, kernel: UOp) -> bool:
        """True if no launch of a kernel gives the same storage twice."""
        calls = [[u for u in roots if u.op.is_storage] for roots in self._calls.get(kernel, ())]
        return all([len(set(given)) == len(given) for given in calls])
