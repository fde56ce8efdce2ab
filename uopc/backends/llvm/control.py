"""Loops and branches in SSA form: a register is a phi at the head of a loop, or behind a branch.

A loop that runs at least once tests its counter at its end, any other one at its head.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.backends.llvm import index_width
from uopc.backends.llvm.emitter import Emitter, OpenLoop
from uopc.backends.llvm.types import TILE, llvm_type
from uopc.ir.core import bounds
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


def _weights(end: str) -> str:
    """The turns of a loop of known length for each end, for LLVM, which presumes 31: it would keep
    the constants of a short inner loop in registers in place of the sums of a long loop."""
    if not end.isdigit():
        return ""
    return f", !prof !{{!\"branch_weights\", i32 {min(int(end), 1 << 30) - 1}, i32 1}}"


class ControlEmitter(Emitter):
    """The text of one kernel: its loops and branches. A subclass says what emits each op."""

    def begin_loop(self, r: UOp, carries: Sequence[UOp]) -> OpenLoop:
        at_least_once = bounds.bounds(r.src[0])[0] >= 1
        loop = OpenLoop(self.loop_count, self.block, *self.counted(r.src[0]), at_least_once)
        self.loop_count += 1
        loop.enter = len(self.lines)
        self.effect(f"br label %{loop.head}")
        self.label(loop.head)
        loop.phis = len(self.lines)
        self.lines.append("")
        loop.counter = self.fresh()
        if not loop.at_least_once:
            test = self.value(f"icmp slt {loop.counts} {loop.counter}, {loop.end}")
            self.effect(f"br i1 {test}, label %{loop.body}, label %{loop.exit}")
            self.label(loop.body)
        is_wide = loop.counts == "i64"
        self.names[r] = loop.counter if is_wide else index_width.widened(self, r, loop.counter)
        for carry in carries:
            self.names[carry] = self.fresh()
        return loop

    def end_loop(self, loop: OpenLoop, pairs: Sequence[tuple[UOp, UOp]]) -> None:
        latch, counts = self.block, loop.counts
        following = self.value(f"add nuw nsw {counts} {loop.counter}, 1")
        incoming = f"[ 0, %{loop.before} ], [ {following}, %{latch} ]"
        phis = [f"  {loop.counter} = phi {counts} {incoming}"]
        lasts = [self.of(after, carry.dtype.lanes) for carry, after in pairs]
        for (carry, _), last in zip(pairs, lasts):
            incoming = f"[ {self._initial(loop, carry)}, %{loop.before} ], [ {last}, %{latch} ]"
            t = self._register_type(carry.dtype)
            phis.append(f"  {self.names[carry]} = phi {t} {incoming}")
        self.lines[loop.phis] = "\n".join(phis)
        if loop.at_least_once:
            # After the loop; no value that one carries from another changes here.
            self.names.update((carry, last) for (carry, _), last in zip(pairs, lasts))
            test = self.value(f"icmp slt {counts} {following}, {loop.end}")
            again = f"br i1 {test}, label %{loop.head}, label %{loop.exit}"
            self.effect(again + _weights(loop.end))
        else:
            self.effect(f"br label %{loop.head}")
        self.label(loop.exit)

    def _initial(self, loop: OpenLoop, carry: UOp) -> str:
        """The value of a register before its loop."""
        initial = carry.src[0]
        if initial.op is Ops.CONST and self._is_tile(carry.dtype):
            from uopc.backends.llvm import tiles

            return tiles.zero_before(self, loop)
        return self.of(initial)

    def _register_type(self, t: DType) -> str:
        """The LLVM type of a value in a register."""
        return TILE if self._is_tile(t) else llvm_type(t)

    def _is_tile(self, t: DType) -> bool:
        """True for a value in a register of a matrix unit."""
        if not self.multiplies_tiles:
            return False
        from uopc.ir.devices import tensor_cores  # few kernels have any

        return tensor_cores.is_tile(t)

    def begin_branch(self, condition: UOp, joined: Sequence[UOp]) -> tuple[str, str]:
        return self.branch(self.of(condition))

    def end_branch(self, branch: tuple[str, str], joined: Sequence[UOp]) -> None:
        before, done = branch
        last = self.join(done)
        for u in joined:
            (a, _, b), t = u.src, self._register_type(u.dtype)
            incoming = f"[ {self.of(a)}, %{before} ], [ {self.of(b)}, %{last} ]"
            self.names[u] = self.value(f"phi {t} {incoming}")
