"""Runs graphs of the levels indexed to linear: many iterations of a loop at once.

While a loop runs, each of its ranges is an axis of the arrays that depend on the range. If
iterations depend on each other, the range is one number at a time. REDUCE folds axes, a read takes
the elements at an array of offsets, a store writes at an array of offsets in the order of the
loops.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from uopc.errors import InvalidIR, Unsupported, UserError
from uopc.ir.builder.loops import with_loops
from uopc.ir.core import walk
from uopc.ir.core.calls import exchanges_of, graph_order
from uopc.ir.core.evaluate import Array, combine, fold, identity
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import arguments, is_program, outer_ranges
from uopc.ir.core.uop import UOp
from uopc.ir.interpret.arguments import Variables
from uopc.ir.interpret.state import Arrays, State
from uopc.ir.interpret.step_order import NUMBERS, BlockBuilder, Loop, StepBlock, linear, targets
from uopc.ir.interpret.steps import STEPS, arithmetic
from uopc.ir.interpret.threads import RunningThreads, is_private
from uopc.ir.verify.nodes import describe
from uopc.ir.verify.read_order import verify_read_order

# The arrays of one block hold at most this many elements together.
_BUDGET = 1 << 22
_FEW_STEPS = 64  # blocks with fewer steps share the budget as if they had this many
_MOST_AXES = 30  # NumPy 1 has 32, and a reduction of lanes takes one more

# At each exchange its node, and the value that is sent; what arrives is given back.
Steps = Generator[tuple[UOp, Array], Array, None]
# A value, and a mask of the elements that exist.
_Masked = tuple[Array, Array]


class StepMachine:
    """Runs the steps of a plan on a state."""

    def __init__(self, argument: Arrays, variables: Variables, storages: dict[UOp, Array]) -> None:
        self.state = State(argument, variables, storages)
        self.as_values: set[UOp] = set()  # addresses that mean the element there

    def run(self, root: UOp) -> None:
        """Run a SINK of any level with ranges, or a LINEAR of steps."""
        if root.op is Ops.LINEAR:
            plan = linear(root)
        else:
            root = with_loops(root)
            builder = BlockBuilder(root)
            plan, self.as_values = builder.program(root), builder.as_values
        specials = [u for u in walk.toposort(root) if u.op is Ops.SPECIAL]
        with np.errstate(all="ignore"):
            if specials:
                self._run_grid(plan, specials)
            else:
                self.block(plan)

    def _run_grid(self, plan: StepBlock, specials: list[UOp]) -> None:
        """Run a plan in every thread of a launch."""
        s = self.state
        for u in {v: None for special in specials for v in walk.toposort(special.src[0])}:
            self.step(u)
        specials.sort(key=lambda u: str(u.arg))
        s.grid = grid = RunningThreads({u: int(s.value(u.src[0]).max()) for u in specials})
        for _ in grid.batches(_BUDGET // max(_FEW_STEPS, len(plan.steps))):
            s.extents = [grid.count, grid.width]
            for u in [b for b in s.memory if is_private(b)]:
                del s.memory[u], s.storages[u]
            self.block(plan)
        s.extents, s.grid = [], None

    # ------------------------------------------------------------ blocks
    def block(self, block: StepBlock) -> None:
        """Run the steps, some of which must not see all stores before them (`StepBlock.hidden`).

        Such a step reads a copy of the storage, made before the first of these stores. The other
        stores go to the copy too; the stores of the step itself go to both.
        """
        s = self.state
        copies: dict[tuple[UOp, UOp], Array] = {}
        for step in block.steps:
            u = step.node if isinstance(step, Loop) else step
            memory: dict[UOp, Array] = {}
            mirrors, s.mirrors = s.mirrors, {base: [*a] for base, a in s.mirrors.items()}
            for (reader, base), unseen in block.hidden.items():
                if u in unseen and (reader, base) not in copies:
                    copies[reader, base] = s.array(base).copy()
                mirror = copies.get((reader, base))
                if mirror is None or u in unseen:
                    continue
                if reader is u:
                    memory[base], s.memory[base], mirror = s.memory[base], mirror, s.memory[base]
                s.mirrors.setdefault(base, []).append(mirror)
            self.step(step)
            s.memory.update(memory)
            s.mirrors = mirrors

    def step(self, u: UOp | Loop) -> None:
        """Run a loop, or one node."""
        s = self.state
        if isinstance(u, Loop):
            self.loop(u)
        elif u.op.is_alu or u.op is Ops.CAST or u.op is Ops.BITCAST:
            arithmetic(s, u)
        elif u in self.as_values:
            s.set(u, s.read(u, u, None, u.dtype.lanes))
        elif u.op is Ops.CALL:
            self.call(u)
        elif u.op in STEPS:
            STEPS[u.op](s, u)
        else:
            raise InvalidIR(f"{u.op!r} has no meaning at level scalar")

    # ------------------------------------------------------------ loops
    def loop(self, loop: Loop) -> None:
        """Run the body for all iterations, as many at once as the budget allows."""
        s = self.state
        counts = [int(s.value(r.src[0]).max(initial=0)) for r in loop.ranges]
        widths = self._widths(loop, counts)
        for carry, _ in loop.carries:
            s.set(carry, s.value(carry.src[0]), s.masks.get(carry.src[0]))
        total: _Masked | None = None
        for starts in itertools.product(*[range(0, n, w) for n, w in zip(counts, widths)]):
            depth, guards = len(s.extents), len(s.guards)
            self._bind(loop, starts, widths, counts)
            self.block(loop.body)
            if loop.fold is not None:
                total = self._folded(loop, depth, guards, total)
            following = [(c, s.value(n), s.masks.get(n)) for c, n in loop.carries]
            for carry, value, ok in following:
                for guard in s.guards[guards:]:  # a thread whose loop has ended keeps its value
                    value = np.where(guard, value, s.value(carry))
                s.set(carry, value, ok)
            del s.extents[depth:], s.guards[guards:]
        for step in loop.body.steps:
            u = step.node if isinstance(step, Loop) else step
            if u.op is not Ops.CARRY and u is not loop.node:
                s.values.pop(u, None)
                s.masks.pop(u, None)
        if loop.fold is not None:
            empty = identity(loop.node.arg.op, loop.node.dtype).reshape(1), np.array(True)
            s.set(loop.node, *(total or empty))

    def _widths(self, loop: Loop, counts: list[int]) -> list[int]:
        """The number of iterations of each range that run at once."""
        extents = self.state.extents
        budget = _BUDGET // max(_FEW_STEPS, len(loop.body.steps)) // max(1, math.prod(extents))
        if loop.in_order or len(extents) + len(counts) > _MOST_AXES:
            budget = 1
        widths: list[int] = []
        for r, n in zip(reversed(loop.ranges), reversed(counts)):
            widths.append(n if r.arg.kind == "warp" else max(1, min(n, budget)))
            budget //= widths[-1]
        return widths[::-1]

    def _bind(
        self, loop: Loop, starts: Sequence[int], widths: Sequence[int], counts: Sequence[int]
    ) -> None:
        """Give the ranges of a loop their numbers in one batch of iterations."""
        s = self.state
        for r, start, width, count in zip(loop.ranges, starts, widths, counts):
            numbers = np.arange(start, min(start + width, count), dtype=np.int64)
            if width > 1:
                numbers = numbers.reshape(-1, *[1] * (len(s.extents) + 1))
                s.extents.append(numbers.shape[0])
                s.axes[r] = -1 - len(s.extents), numbers.shape[0]
            end = s.value(r.src[0])
            ok = numbers < end if end.size > 1 else None
            if ok is not None:
                s.guards.append(ok)
            s.set(r, numbers, ok)

    def _folded(self, loop: Loop, depth: int, guards: int, total: _Masked | None) -> _Masked:
        """The value of one batch of a REDUCE, folded over its axes, and combined with `total`."""
        u, s = loop.node, self.state
        assert loop.fold is not None
        value, ok = s.value(loop.fold), s.masks.get(loop.fold, np.array(True))
        new = s.extents[depth:]
        batch = (*new[::-1], *[1] * (depth + 1)) if new else ()
        shape = np.broadcast_shapes(value.shape, ok.shape, batch)
        for guard in s.guards[guards:]:  # iterations that do not happen add nothing
            shape = np.broadcast_shapes(shape, guard.shape)
            value, ok = np.where(guard, value, identity(u.arg.op, u.dtype)), ok | ~guard
        axes = tuple(range(len(new)))
        value = fold(u.arg.op, np.broadcast_to(value, shape), axes, u.dtype)
        ok = np.asarray(np.broadcast_to(ok, shape).all(axis=axes))
        if total is None:
            return value, ok
        return combine(u.arg.op, total[0], value, u.dtype), ok & total[1]

    # ------------------------------------------------------------ calls
    def program(self, root: UOp) -> None:
        """Run a LINEAR of CALLs in order, each in the loops around it."""
        for u, _ in self.steps(root):
            raise Unsupported(f"{u.op!r} needs all devices: see interpret/lockstep.py")

    def steps(self, root: UOp) -> Steps:
        """`program` as a generator: at each exchange, yield the node and the sent value, and
        receive the result."""
        taken = graph_order(root.src)  # by the calls
        lengths = {u.src[0] for u in taken if u.op is Ops.BIND}
        for u in taken:
            if u.op not in (Ops.CALL, Ops.RANGE, Ops.BIND) and u not in lengths:
                self.step(u)
        yield from self._calls(root.src)

    def _calls(self, calls: Sequence[UOp], depth: int = 0) -> Steps:
        """Run calls that share their `depth` outer loops."""
        for loop, found in itertools.groupby(calls, lambda c: (*outer_ranges(c), None)[depth:][:1]):
            group = list(found)
            if loop[0] is None:
                for u in group:
                    yield from self._exchanges(u) if exchanges_of(u.src[0]) else self._one(u)
            else:
                for _ in range(int(self.state.value(loop[0].src[0]).max())):
                    yield from self._calls(group, depth + 1)

    def _one(self, call: UOp) -> Steps:
        self.step(call)
        yield from ()

    def _exchanges(self, call: UOp) -> Steps:
        for target, u in [s.src for s in exchanges_of(call.src[0])]:
            sent, written = [call.src[1 + s.arg.slot] for s in (u.src[0], target)]
            got = yield u, self.viewed(sent).reshape(u.src[0].arg.dims).copy()
            self.viewed(written).reshape(-1)[...] = got.reshape(-1)

    def call(self, u: UOp) -> None:
        """Run a kernel on storage, slices of storage, numbers and variables."""
        s = self.state
        for a in arguments(u):
            if a.op is Ops.BIND:
                s.variables.bind(a.src[0].arg.name, int(self.viewed(a.src[1]).reshape(-1)[0]))
        storage = [a for a in arguments(u) if a.op is not Ops.BIND]
        arrays = [s.value(a) if a.op in NUMBERS else self.viewed(a) for a in storage]
        before = {b: s.array(b).view(np.uint8).copy() for b in targets(u) if b in s.mirrors}
        run_kernel(u.src[0], arrays, s.variables.values)
        for base, old in before.items():
            new = s.memory[base].view(np.uint8)
            for mirror in s.mirrors[base]:
                mirror.view(np.uint8)[new != old] = new[new != old]

    def viewed(self, view: UOp) -> Array:
        """The flat array of storage, or of a SLICE of it."""
        slices: list[UOp] = []
        while not view.op.is_storage:
            if view.op is Ops.SLICE:
                slices.append(view)
            elif view.op is not Ops.AFTER:
                raise InvalidIR(f"{describe(view)}: an argument of a call must be storage")
            view = view.src[0]
        array = self.state.array(view)
        for s in reversed(slices):
            offset, size = s.arg
            array = np.asarray(array[offset : offset + size])
        return array


# ---------------------------------------------------------------- kernels
def run_kernel(
    kernel: UOp, buffers: Sequence[Array], variables: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Run one kernel (a SINK of level kernel or vector, or a LINEAR of steps), or a program, in
    place.

    `buffers[slot]` is the array of the PARAM with that slot: contiguous, of its dtype, of any shape
    with at least as many elements. The array is row-major even if the PARAM has an `order`: the
    machine makes the blocks. InvalidIR if the kernel accesses an element outside of an array, or
    leaves open whether it reads an element before or after a store.
    """
    verify_read_order(kernel)

    def argument(param: UOp) -> Array:
        slot: int = param.arg.slot
        if not 0 <= slot < len(buffers):
            raise UserError(
                f"kernel: slot {slot} needs an array, but {len(buffers)} arrays were given"
            )
        return buffers[slot]

    machine = StepMachine(argument, Variables(variables), {})
    if is_program(kernel):
        machine.program(kernel)
    else:
        machine.run(kernel)


def program_steps(
    program: UOp, buffers: Sequence[Array], variables: Mapping[str, int] = MappingProxyType({})
) -> Steps:
    """Run a program with exchanges as a generator: see `StepMachine.steps`."""
    return StepMachine(lambda p: buffers[p.arg.slot], Variables(variables), {}).steps(program)
