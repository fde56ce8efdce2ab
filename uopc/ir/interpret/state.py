"""The state of a run: values of nodes, contents of storage, masks of iterations.

An array of a value has the shape (…, second range, first range, lanes): each range that runs at
once is an axis, the axes of inner loops are further left, and NumPy's broadcasting aligns them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from uopc.errors import InvalidIR, UserError
from uopc.ir.core.data import blocks
from uopc.ir.core.evaluate import Array
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import with_dims
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp
from uopc.ir.interpret.arguments import Variables, check_array, name_of, undefined
from uopc.ir.interpret.step_order import indices, storage
from uopc.ir.interpret.threads import RunningThreads
from uopc.ir.verify.nodes import describe

# From a PARAM to its array.
Arrays = Callable[[UOp], Array]


class State:
    """The values, storage and masks of a run. `argument` returns the array of a PARAM; a BUFFER is
    made at its first use."""

    def __init__(self, argument: Arrays, variables: Variables, storages: dict[UOp, Array]) -> None:
        self.argument = argument
        self.variables = variables
        self.storages = storages  # in the shape that the caller sees
        self.memory: dict[UOp, Array] = {}  # the same arrays, flat
        self.mirrors: dict[UOp, list[Array]] = {}  # more arrays that receive the running stores
        self.values: dict[UOp, Array] = {}
        self.masks: dict[UOp, Array] = {}  # elements that exist, where some do not (INVALID)
        self.extents: list[int] = []  # of the axes of the loops that run, outer first
        self.guards: list[Array] = []  # iterations that happen, where the ends of ranges differ
        self.axes: dict[UOp, tuple[int, int]] = {}  # range → its axis and length
        self.grid: RunningThreads | None = None  # the threads that run, if any

    def value(self, u: UOp) -> Array:
        """The value of an operand; InvalidIR if the operand has no value (yet)."""
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

    def array(self, base: UOp) -> Array:
        """The flat array of a PARAM, BUFFER or DATA."""
        found = self.memory.get(base)
        if found is None:
            whole = self._whole(base)
            wanted = math.prod(self.dims(base))
            if not whole.flags.c_contiguous:
                raise UserError(f"{name_of(base)}: the array must be contiguous")
            if whole.size < wanted:
                raise UserError(f"{name_of(base)}: expected {wanted} elements, got {whole.size}")
            self.storages[base] = whole
            found = self.memory[base] = whole.reshape(-1)
        return found

    def _whole(self, base: UOp) -> Array:
        if base.op is Ops.DATA:
            return base.arg.array  # type: ignore[no-any-return]
        if base in self.storages:
            return self.storages[base]
        if base.op is Ops.BUFFER:
            copies = 1 if self.grid is None else self.grid.copies(base)
            dims = self.dims(base) if copies == 1 else [copies, *self.dims(base)]
            return undefined(base.dtype, dims)
        array = self.argument(base)
        check_array(base, array)
        return blocks.blocked(array, base.arg.order) if base.arg.order else array

    def dims(self, base: UOp) -> list[int]:
        symbolic = [int(self.value(s).max()) for s in base.src]
        return list(with_dims(base.arg.dims, symbolic))  # type: ignore[arg-type]

    def gate(self, gate: UOp | None) -> Array:
        """A mask of the iterations that access memory: iterations that run and whose gate holds."""
        ok = np.ones(1, np.bool_) if gate is None else self.value(gate)
        for guard in self.guards:
            ok = ok & guard
        return ok

    def offsets(self, u: UOp, target: UOp, lanes: int, ok: Array) -> tuple[Array, Array]:
        """The flat offsets of an address (`lanes` neighbours from a scalar address) and their mask.

        InvalidIR, naming `u`, if an unmasked offset is outside of the storage.
        """
        base = storage(target)
        dims, found = self.dims(base), list(indices(target))
        if not dims and len(found) == 1:
            dims = [1]
        if len(found) != len(dims):
            raise InvalidIR(f"{describe(u)}: {len(found)} indices for {len(dims)} dimensions")
        flat = np.zeros(1, np.int64)
        for i, (index, size) in enumerate(zip(found, dims)):
            at = self.value(index)
            if i == len(dims) - 1 and lanes > 1 and at.shape[-1] == 1:
                at = at + np.arange(lanes)
            ok = ok & self.masks.get(index, np.True_)
            bad = ok & ((at < 0) | (at >= size))
            if bad.any():
                value = np.broadcast_to(at, bad.shape)[bad].flat[0]
                raise InvalidIR(
                    f"{describe(u)}: index {value} is outside of {name_of(base)},"
                    f" dimension {i} of size {size}"
                )
            flat = flat * size + at
        if self.grid is not None:
            flat = flat + self.grid.offset(base, math.prod(dims))
        return np.where(ok, flat, 0), ok

    def read(self, u: UOp, target: UOp, gate: UOp | None, lanes: int) -> Array:
        """The elements at an address, `lanes` from each offset; 0 where there is no access."""
        ok = self.gate(gate)
        if gate is not None:
            ok = ok & self.masks.get(gate, np.True_)
        flat, ok = self.offsets(u, target, lanes, ok)
        base = storage(target)
        array = self.array(base)
        if self.grid is not None:
            self.grid.touch(u, base, array.size, flat, ok, writes=False)
        if not ok.any():
            return np.zeros(flat.shape, array.dtype)
        value = array[flat]
        return value if ok.all() else np.where(ok, value, np.zeros((), array.dtype))

    def write(self, u: UOp) -> None:
        """Run a STORE; if several iterations store to one element, the last one wins."""
        target, value = u.src[:2]
        base = storage(target)
        ok = self.gate(u.src[2] if len(u.src) > 2 else None)
        ok = ok & self.masks.get(value, np.True_)
        data = self.value(value)
        lanes = max(data.shape[-1], before_effects(target).dtype.lanes)
        flat, ok = self.offsets(u, target, lanes, ok)
        full = np.broadcast_shapes(flat.shape, data.shape, ok.shape, (*self.extents[::-1], 1))
        flat, data, ok = [np.broadcast_to(a, full) for a in (flat, data, ok)]
        array = self.array(base)
        if not array.flags.writeable:
            raise UserError(f"{name_of(base)} is stored to, but its array is read-only")
        if self.grid is not None:
            self.grid.touch(u, base, array.size, flat, ok, writes=True)
        # Later iterations overwrite earlier ones, so the outer loop must be the first axis.
        axes = (*reversed(range(len(full) - 1)), len(full) - 1)
        flat, data, ok = [a.transpose(axes) for a in (flat, data, ok)]
        for to in (array, *self.mirrors.get(base, ())):
            to[flat[ok]] = data[ok]
