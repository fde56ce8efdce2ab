"""Levels indexed to linear, run on NumPy: many iterations of a loop at once.

While a loop runs, each of its ranges is an axis of every array that depends on it (or, where
iterations depend on each other, one number at a time). Arrays have the shape (…, second range,
first range, lanes): the axis of a loop opened later stands further left, so NumPy's broadcasting
lines them up. REDUCE folds axes, a read is an array of places, a store writes at an array of
places in the order of the loops.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from uopc.errors import InvalidIR, UserError
from uopc.ir.core import analysis
from uopc.ir.core.analysis import filled
from uopc.ir.core.evaluate import (
    STORAGE,
    Array,
    Variables,
    apply,
    check_array,
    fold,
    identity,
    misplaced,
    name_of,
    present,
    undefined,
)
from uopc.ir.core.ops import Op, Ops
from uopc.ir.interpret.step_order import (
    NUMBERS,
    Block,
    Loop,
    Planner,
    address,
    indices,
    linear,
    storage,
)
from uopc.ir.interpret.steps import STEPS
from uopc.ir.interpret.threads import THREADS, Launch, is_private
from uopc.ir.interpret.views import without_views
from uopc.ir.verify.nodes import describe

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

# Elements that the arrays of one block may hold together while it runs.
_BUDGET = 1 << 22
_FEW_STEPS = 64
_MOST_AXES = 30  # NumPy has 64, and a reduction of lanes takes one more

# How a PARAM finds its array.
Find = Callable[["UOp"], Array]


class Machine:
    """Runs a plan. `find` gives the arrays of PARAMs; BUFFERs are made when first needed."""

    def __init__(self, find: Find, variables: Variables, storages: dict[UOp, Array]) -> None:
        self.find = find
        self.variables = variables
        self.storages = storages  # as the caller sees them
        self.memory: dict[UOp, Array] = {}  # the same, flat
        self.as_values: set[UOp] = set()
        self.values: dict[UOp, Array] = {}
        self.masks: dict[UOp, Array] = {}  # elements that exist, where some do not (INVALID)
        self.extents: list[int] = []  # of the axes of the loops that run, outer first
        self.guards: list[Array] = []  # iterations that happen, where ends differ
        self.axes: dict[UOp, tuple[int, int]] = {}  # of running loops: their axis, how long it is
        self.launch: Launch | None = None  # the places that run, where there are threads

    def run(self, root: UOp) -> None:
        """Run a SINK of any level, or a LINEAR of steps."""
        if root.op is Ops.LINEAR:
            plan = linear(root)
        else:
            root = without_views(root)
            planner = Planner(root)
            plan, self.as_values = planner.program(root), planner.as_values
        specials = [u for u in analysis.toposort(root) if u.op is Ops.SPECIAL]
        with np.errstate(all="ignore"):
            if specials:
                self._launched(plan, specials)
            else:
                self.block(plan)

    def _launched(self, plan: Block, specials: list[UOp]) -> None:
        """Run a plan at every place of a launch."""
        self.launch = launch = Launch(self, specials)
        for _ in launch.pieces(_BUDGET // max(_FEW_STEPS, len(plan.steps))):
            self.extents = [launch.count, launch.width]
            for u in [b for b in self.memory if is_private(b)]:
                del self.memory[u], self.storages[u]
            self.block(plan)
        self.extents, self.launch = [], None

    def block(self, block: Block) -> None:
        if block.hidden:
            self._block_with_copies(block)
            return
        for step in block.steps:
            if isinstance(step, Loop):
                self.loop(step)
            else:
                self.step(step)

    def _block_with_copies(self, block: Block) -> None:
        """A block where some steps must not see what others stored before them."""
        copies: dict[tuple[UOp, UOp], Array] = {}
        wanted = [pair for bases in block.hidden.values() for pair in bases.items()]
        for step in block.steps:
            u = step.node if isinstance(step, Loop) else step
            for base, writer in wanted:
                if writer is u and (base, u) not in copies:
                    copies[base, u] = self.array(base).copy()
            hidden = block.hidden.get(u, {})
            before = {base: copies[base, writer] for base, writer in hidden.items()}
            real = {base: self.memory[base] for base in before}
            self.memory.update({base: copy.copy() for base, copy in before.items()})
            self.block(Block([step]))
            for base, array in real.items():  # what this step changed goes to the real array
                changed = _bytes(self.memory[base]) != _bytes(before[base])
                _bytes(array)[changed] = _bytes(self.memory[base])[changed]
                self.memory[base] = array

    def step(self, u: UOp) -> None:
        if u.op.is_alu or u.op is Ops.CAST or u.op is Ops.BITCAST:
            sources = [self.value(s) for s in u.src]
            ok = None
            if self.masks:
                ok = present(u, [self.masks.get(s) for s in u.src], sources[0])
            self.set(u, apply(u, sources), ok)
        elif u in self.as_values:
            self.set(u, *self.read(u, u, None))
        elif u.op in STEPS:
            STEPS[u.op](self, u)
        else:
            raise misplaced(u, "scalar")

    def value(self, u: UOp) -> Array:
        """The value of an operand; InvalidIR when it has none (yet)."""
        found = self.values.get(u)
        if found is None:
            raise InvalidIR(f"{describe(u)}: used as a value, but it was not computed before")
        return found

    def set(self, u: UOp, value: Array, ok: Array | None = None) -> None:
        self.values[u] = value
        if ok is not None and not ok.all():
            self.masks[u] = ok
        elif self.masks:
            self.masks.pop(u, None)

    # ------------------------------------------------------------ loops
    def loop(self, loop: Loop) -> None:
        """Run the body for all iterations, in pieces that keep the arrays small."""
        counts = [self.count(r) for r in loop.ranges]
        in_order = loop.in_order or not self._apart(loop, counts)
        widths = self._widths(loop, counts, in_order)
        for carry, _ in loop.carries:
            self.set(carry, self.value(carry.src[0]), self.masks.get(carry.src[0]))
        total: tuple[Array, Array | None] | None = None
        for starts in self._pieces(counts, widths):
            depth, guards = len(self.extents), len(self.guards)
            self._bind(loop, starts, widths, counts)
            self.block(loop.body)
            if loop.fold is not None:
                total = self._folded(loop, depth, guards, total)
            following = [(c, self.value(n), self.masks.get(n)) for c, n in loop.carries]
            for carry, value, ok in following:
                for guard in self.guards[guards:]:  # a thread whose loop has ended keeps it
                    value = np.where(guard, value, self.value(carry))
                self.set(carry, value, ok)
            del self.extents[depth:], self.guards[guards:]
        self._forget(loop)
        if loop.fold is not None:
            empty = identity(loop.node.arg.op, loop.node.dtype).reshape(1)
            self.set(loop.node, *(total or (empty, None)))

    def _pieces(self, counts: list[int], widths: list[int]) -> itertools.product[tuple[int, ...]]:
        return itertools.product(*[range(0, n, w) for n, w in zip(counts, widths)])

    def count(self, r: UOp) -> int:
        """How often a range runs: where its end differs between iterations, the greatest."""
        end = self.value(r.src[0])
        return max(0, int(end.max())) if end.size else 0

    def _widths(self, loop: Loop, counts: list[int], in_order: bool) -> list[int]:
        """How many iterations of each range are run at once."""
        if in_order or len(self.extents) + len(counts) > _MOST_AXES:
            return [n if r.arg.kind == "warp" else 1 for r, n in zip(loop.ranges, counts)]
        room = _BUDGET // max(_FEW_STEPS, len(loop.body.steps)) // max(1, math.prod(self.extents))
        widths: list[int] = []
        for r, n in zip(reversed(loop.ranges), reversed(counts)):
            widths.append(n if r.arg.kind == "warp" else max(1, min(n, room)))
            room //= widths[-1]
        return widths[::-1]

    def _bind(
        self, loop: Loop, starts: Sequence[int], widths: Sequence[int], counts: Sequence[int]
    ) -> None:
        """Give the ranges of a loop their numbers, for one piece of it."""
        for r, start, width, count in zip(loop.ranges, starts, widths, counts):
            numbers = np.arange(start, min(start + width, count), dtype=np.int64)
            if width > 1:
                numbers = numbers.reshape(-1, *[1] * (len(self.extents) + 1))
                self.extents.append(numbers.shape[0])
                self.axes[r] = -1 - len(self.extents), numbers.shape[0]
            end = self.value(r.src[0])
            ok = numbers < end if end.size > 1 else None
            if ok is not None:
                self.guards.append(ok)
            self.set(r, numbers, ok)

    def _folded(
        self, loop: Loop, depth: int, guards: int, total: tuple[Array, Array | None] | None
    ) -> tuple[Array, Array | None]:
        """The value of a piece of a REDUCE, combined over its axes and with the pieces before."""
        u = loop.node
        assert loop.fold is not None
        value, ok = self.value(loop.fold), self.masks.get(loop.fold)
        new = self.extents[depth:]
        dims = (*new[::-1], *[1] * (depth + 1))
        shape = np.broadcast_shapes(value.shape, dims if new else ())
        for guard in self.guards[guards:]:  # iterations that do not happen add nothing
            shape = np.broadcast_shapes(shape, guard.shape)
            value = np.where(guard, value, identity(u.arg.op, u.dtype))
            ok = None if ok is None else ok | ~guard
        axes = range(len(new))
        value = fold(u.arg.op, np.broadcast_to(value, shape), axes, u.dtype)
        ok = None if ok is None else np.asarray(np.broadcast_to(ok, shape).all(axis=tuple(axes)))
        if total is None:
            return value, ok
        combine = Op.by_name(u.arg.op).evaluate
        assert combine is not None
        both = [m for m in (ok, total[1]) if m is not None]
        value = np.asarray(combine(total[0], value)).astype(u.dtype.numpy, copy=False)
        return value, both[0] & both[-1] if both else None

    def _forget(self, loop: Loop) -> None:
        for step in loop.body.steps:
            u = step.node if isinstance(step, Loop) else step
            if u.op is not Ops.CARRY and u is not loop.node:
                self.values.pop(u, None)
                self.masks.pop(u, None)

    def _apart(self, loop: Loop, counts: list[int]) -> bool:
        """Whether the stores that the loop also reads from go to different places each."""
        for block, store in loop.probes:
            target, gates = store.src[0], store.src[2:]
            lanes = max(target.dtype.lanes, store.src[1].dtype.lanes)
            places: list[Array] = []
            widths = self._widths(loop, counts, False)
            for starts in self._pieces(counts, widths):
                depth, guards = len(self.extents), len(self.guards)
                self._bind(loop, starts, widths, counts)
                self.block(block)
                gate = self.gate(gates[0] if gates else None)
                found, ok = self.places(store, target, lanes, gate)
                full = np.broadcast_to(found, (*self.extents[::-1], found.shape[-1]))
                places.append(full[np.broadcast_to(ok, full.shape)])
                del self.extents[depth:], self.guards[guards:]
            flat = np.concatenate(places) if places else np.zeros(0, np.int64)
            if len(np.unique(flat)) != len(flat):
                return False
        return True

    def lane_axis(self, lane: UOp) -> tuple[int, int]:
        """The axis of the threads of warps, and how many there are: `lane` is the loop over them,
        or, where there are threads, one's number in its warp."""
        if self.launch is not None:
            return THREADS, self.launch.width
        if lane not in self.axes:
            raise InvalidIR(f"{describe(lane)}: expected the lanes of a warp")
        return self.axes[lane]

    # ------------------------------------------------------------ memory
    def array(self, base: UOp) -> Array:
        """The flat array of a PARAM, BUFFER or DATA."""
        found = self.memory.get(base)
        if found is None:
            whole = self._whole(base)
            if not whole.flags.c_contiguous:
                raise UserError(f"{name_of(base)}: the array must be contiguous")
            if whole.size < math.prod(self.dims(base)):
                raise UserError(
                    f"{name_of(base)}: expected {math.prod(self.dims(base))} elements,"
                    f" got {whole.size}"
                )
            self.storages[base] = whole
            found = self.memory[base] = whole.reshape(-1)
        return found

    def _whole(self, base: UOp) -> Array:
        if base.op is Ops.DATA:
            return base.arg.array  # type: ignore[no-any-return]
        if base in self.storages:
            return self.storages[base]
        if base.op is Ops.BUFFER:
            copies = 1 if self.launch is None else self.launch.copies(base)
            dims = self.dims(base) if copies == 1 else [copies, *self.dims(base)]
            return undefined(base.dtype, dims)
        array = self.find(base)
        check_array(base, array)
        return array

    def dims(self, base: UOp) -> list[int]:
        symbolic = [int(self.value(s).max()) for s in base.src]
        return list(filled(base.arg.dims, symbolic))  # type: ignore[arg-type]

    def gate(self, gate: UOp | None) -> Array:
        """Which iterations access memory: those that happen, and where the gate holds."""
        ok = np.ones(1, np.bool_) if gate is None else self.value(gate)
        for guard in self.guards:
            ok = ok & guard
        return ok

    def places(self, u: UOp, target: UOp, lanes: int, ok: Array) -> tuple[Array, Array]:
        """Flat places of an address, `lanes` from each when it is one place; and where they exist.

        InvalidIR, naming `u`, when an existing place is outside of the storage.
        """
        base = storage(target)
        dims, found = self.dims(base), list(indices(target))
        if not dims and len(found) == 1:
            dims = [1]
        if len(found) != len(dims):
            raise InvalidIR(f"{describe(u)}: {len(found)} indices for {len(dims)} dimensions")
        flat = np.zeros(1, np.int64)
        for i, (index, size) in enumerate(zip(found, dims)):
            place = self.value(index)
            if i == len(dims) - 1 and lanes > 1 and place.shape[-1] == 1:
                place = place + np.arange(lanes)
            ok = ok & self.masks.get(index, np.True_)
            bad = ok & ((place < 0) | (place >= size))
            if bad.any():
                value = np.broadcast_to(place, bad.shape)[bad].flat[0]
                raise InvalidIR(
                    f"{describe(u)}: index {value} is outside of {name_of(base)},"
                    f" dimension {i} of size {size}"
                )
            flat = flat * size + place
        if self.launch is not None:
            flat = flat + self.launch.offset(base, math.prod(dims))
        return np.where(ok, flat, 0), ok

    def read(self, u: UOp, target: UOp, gate: UOp | None) -> tuple[Array, Array | None]:
        ok = self.gate(gate)
        if gate is not None:
            ok = ok & self.masks.get(gate, np.True_)
        flat, ok = self.places(u, target, u.dtype.lanes, ok)
        array = self.array(storage(target))
        if self.launch is not None:
            self.launch.touch(u, storage(target), flat, ok, writes=False)
        if not ok.any():
            return np.zeros(flat.shape, array.dtype), None
        value = array[flat]
        return (value if ok.all() else np.where(ok, value, np.zeros((), array.dtype))), None

    def read_row(self, u: UOp, target: UOp, count: int) -> Array:
        """As many neighbours from each place of an address, which all exist."""
        flat, _ = self.places(u, target, count, self.gate(None))
        if self.launch is not None:
            self.launch.touch(u, storage(target), flat, np.ones(1, np.bool_), writes=False)
        return np.asarray(self.array(storage(target))[flat])

    def write(self, u: UOp) -> None:
        target, value = u.src[:2]
        ok = self.gate(u.src[2] if len(u.src) > 2 else None)
        ok = ok & self.masks.get(value, np.True_)
        data = self.value(value)
        lanes = max(data.shape[-1], address(target).dtype.lanes)
        flat, ok = self.places(u, target, lanes, ok)
        full = np.broadcast_shapes(flat.shape, data.shape, ok.shape, (*self.extents[::-1], 1))
        # Later iterations overwrite earlier ones, so the outer loop must be the first axis.
        axes = (*reversed(range(len(full) - 1)), len(full) - 1)
        flat, data, ok = [np.broadcast_to(a, full).transpose(axes) for a in (flat, data, ok)]
        array = self.array(storage(target))
        if not array.flags.writeable:
            raise UserError(f"{name_of(storage(target))} is stored to, but its array is read-only")
        if self.launch is not None:
            back = np.argsort(axes)
            places, active = flat.transpose(back), ok.transpose(back)
            self.launch.touch(u, storage(target), places, active, writes=True)
        array[flat[ok]] = data[ok]

    # ------------------------------------------------------------ calls
    def call(self, u: UOp) -> None:
        """Run a kernel on storage, slices of storage, numbers and variables."""
        arrays = [self.value(a) if a.op in NUMBERS else self._viewed(a) for a in u.src[1:]]
        run_kernel(u.src[0], arrays, self.variables.copy())

    def _viewed(self, view: UOp) -> Array:
        """The flat array of storage, or of a SLICE of it."""
        slices: list[UOp] = []
        while view.op not in STORAGE:
            if view.op is Ops.SLICE:
                slices.append(view)
            elif view.op is not Ops.AFTER:
                raise InvalidIR(f"{describe(view)}: an argument of a call must be storage")
            view = view.src[0]
        array = self.array(view)
        for s in reversed(slices):
            offset, size = s.arg
            array = np.asarray(array[offset : offset + size])
        return array


def _bytes(a: Array) -> Array:
    return a.view(np.uint8)


# ---------------------------------------------------------------- kernels and programs
def run_kernel(kernel: UOp, buffers: Sequence[Array], variables: Variables) -> None:
    """Run a kernel's SINK, or LINEAR of steps, on arrays by slot, in place."""

    def argument(param: UOp) -> Array:
        slot: int = param.arg.slot
        if not 0 <= slot < len(buffers):
            raise UserError(f"kernel: slot {slot}, but {len(buffers)} arrays were given")
        return buffers[slot]

    Machine(argument, variables, {}).run(kernel)
