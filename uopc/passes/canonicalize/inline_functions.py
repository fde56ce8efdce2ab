"""Calls of functions: the value inlined, or the kernels of a function that is scheduled once.

A call of a precompiled function becomes the calls of its kernels, with storage of its own for their
intermediate values: n calls put n times the kernels in order, and not n times the body. A kernel
takes whole storage only: a call with a part of an array, or a constant, is inlined and its value
stored. A call that repeats its function becomes one call of a program, a LINEAR of the calls of its
kernels, each in an outer loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.errors import InvalidIR, UserError
from uopc.ir.builder import index_maps, movement, rebuild
from uopc.ir.builder.programs import Schedule, Scheduled, Slots, loops_of, new_buffer, repeated
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.args import ParamArg
from uopc.ir.core.calls import written_slot
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root, whole_root, written_arguments
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.index import affine

if TYPE_CHECKING:  # programs of one device import no mesh
    from uopc.passes.sharding import MeshLayout

_NO_KERNEL_TAKES = frozenset((Ops.CONST, Ops.INVALID, Ops.VARIABLE, Ops.BIND, Ops.IOTA))


class FunctionCalls:
    """The calls in a graph; `schedule` gives the program of a function, or there is none. On a
    mesh functions are inlined, as values have layouts, and pass `partition` makes loops of those
    that repeat, unless the devices are of this process: there they take whole arrays."""

    def __init__(
        self, schedule: Schedule | None, slots: Slots, sharding: MeshLayout | None
    ) -> None:
        self.schedule, self.slots, self.on_mesh = schedule, slots, sharding is not None
        self.keeps_loops = sharding is not None and not sharding.mesh.devices
        self._params: dict[UOp, list[UOp]] = {}  # of a FUNCTION
        self._buffers: dict[UOp, dict[UOp, None]] = {}  # those in its body, in order
        self._outputs: dict[UOp, tuple[UOp, ...] | None] = {}  # of a CALL
        self._replaced: dict[UOp, dict[UOp, UOp]] = {}  # of an inlined CALL: what stands for what

    def value(self, u: UOp, called: UOp) -> UOp | None:
        """The value that a GETTUPLE of a call, or of a TUPLE, stands for; None for one that stays.

        UserError when an argument is missing or has another dtype or shape than its param.
        """
        number: int = u.arg
        if called.op is Ops.TUPLE:
            return called.src[number]
        if called.op is not Ops.CALL or called.src[0].op is not Ops.FUNCTION:
            raise InvalidIR(f"gettuple: expected a tuple or a function's call, got {called.op!r}")
        if self.keeps_loops and called.src[0].arg.repeats:
            return None
        if called not in self._outputs:
            self._outputs[called] = self._scheduled(called)
        outputs = self._outputs[called]
        return self._inlined(called, number) if outputs is None else outputs[number]

    def _parameters(self, call: UOp) -> list[UOp]:
        """The PARAMs of the function, which the arguments of the call fit."""
        function, args = call.src[0], call.src[1:]
        if function not in self._params:
            order = walk.toposort(function, walk.outside_kernels(function))
            self._params[function] = [p for p in order if p.op is Ops.PARAM and p.arg.slot >= 0]
            self._buffers[function] = {b: None for b in order if b.op is Ops.BUFFER}
        params = self._params[function]
        if any(p.arg.slot >= len(args) for p in params):
            raise UserError(
                f"function {function.arg.name!r}: expected more than {len(args)} arguments"
            )
        for p in params:
            given = args[p.arg.slot]
            same = shapes.shape(given) == shapes.shape(p) or bool(p.src)  # a size condition
            if given.dtype is not p.dtype or not same:
                raise UserError(
                    f"function {function.arg.name!r}: argument {p.arg.slot} must be "
                    f"{p.dtype.name}{shapes.show(shapes.shape(p))}, got "
                    f"{given.dtype.name}{shapes.show(shapes.shape(given))}"
                )
        return params

    # ------------------------------------------------------------ inlined
    def _inlined(self, call: UOp, number: int) -> UOp:
        """gettuple i of (call (function out0, out1, …) args…)  →  out i with args for params"""
        function, args = call.src[0], call.src[1:]
        if call not in self._replaced:
            params = self._parameters(call)
            order = walk.toposort(function, walk.outside_kernels(function))
            mapping = {k: k for k in order if k.op in walk.CALLED}  # with params of their own
            mapping |= {p: movement.reshape(args[p.arg.slot], shapes.shape(p)) for p in params}
            # Storage that the caller does not have: each inlining has its own.
            mapping |= {
                b: self._own_buffer(b, function)
                for b in self._buffers[function]
            }  # fmt: skip
            self._replaced[call] = mapping
        value = rebuild.rebuild(function.src[number], self._replaced[call])
        if not function.arg.precompile or written_slot(function.src[number]) is not None:
            return value
        # Its kernels do not depend on the caller.
        return intern(Ops.CONTIGUOUS, value.dtype, (value,))

    # ------------------------------------------------------------ scheduled once
    def _scheduled(self, call: UOp) -> tuple[UOp, ...] | None:
        """The outputs of a call as storage after the kernels of its function; None to inline it."""
        function, args = call.src[0], call.src[1:]
        params = self._parameters(call)
        if function.arg.repeats:
            return repeated(call, self.schedule, self.slots)
        given = [args[p.arg.slot] for p in params]
        if self.schedule is None or self.on_mesh or not function.arg.precompile:
            return None
        if any(p.src for p in params) or any(s.dtype is dtypes.void for s in function.src):
            return None
        bases = [whole_root(a) for a in given]
        if any(b.op.movement or b.op in _NO_KERNEL_TAKES for b in bases):
            return None
        made = self.schedule(function)
        if loops_of(made.program):
            return None
        written = {r for c in made.program.src for r in _written(c)}
        if len(set(bases)) < len(bases) and any(p in written for p in params):
            return None
        return self._kernels(call, made, dict(zip(params, given)))

    def _kernels(self, call: UOp, made: Scheduled, now: dict[UOp, UOp]) -> tuple[UOp, ...]:
        """The outputs after calls of the kernels. `now`: a PARAM or BUFFER -> its storage."""
        function = call.src[0]
        for c in made.program.src:
            roots = [storage_root(a) for a in c.src[1:] if a.op is not Ops.VARIABLE]
            for r in roots:
                if r not in now:
                    now[r] = self._own_buffer(r, function) if r.op is Ops.BUFFER else r
            whole = _widened(c.src[0], c.src[1 : 1 + len(roots)])
            effect = intern(Ops.CALL, dtypes.void, (whole, *[now[r] for r in roots]))
            set_origin(effect, effect.origin or call.origin)
            for r in _written(c):
                now[r] = intern(Ops.AFTER, r.dtype, (now[r], effect))
        out = []
        for value, storage in zip(function.src, made.outputs):
            root = storage_root(storage)
            shown = movement.reshape(now.get(root, root), shapes.shape(value))
            if root.op is not Ops.BUFFER and written_slot(value) is None:  # not to be written to
                shown = intern(Ops.CONTIGUOUS, shown.dtype, (shown,))
            out.append(shown)
        return tuple(out)

    def _own_buffer(self, buffer: UOp, function: UOp) -> UOp:
        """Storage of this call in place of that of the function, unless it is the caller's."""
        if buffer in self.slots.outside and buffer in self._buffers[function]:
            return buffer
        return new_buffer(buffer, self.slots)


@memo
def _widened(kernel: UOp, args: tuple[UOp, ...]) -> UOp:
    """The kernel on the whole storage that the SLICEs among its arguments are of."""
    if not any(a.op is Ops.SLICE for a in args):
        return kernel
    begins: dict[UOp, int] = {}  # new param -> where the part began

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is Ops.PARAM and args[u.arg.slot].op is Ops.SLICE:
            part = args[u.arg.slot]
            size = shapes.size(shapes.shape(part.src[0]))
            assert isinstance(size, int)
            param = intern(Ops.PARAM, u.dtype, (), ParamArg("", (size,), u.arg.slot))
            begins[param] = part.arg[0]
            return param
        if u.op is Ops.INDEX and src[0] in begins:
            flat, guard = index_maps.plain_index(src[1:], index_maps.true())
            index = index_maps.gated((affine.plus(flat[0], begins[src[0]]),), guard)
            return intern(Ops.INDEX, u.dtype, (src[0], *index), u.arg, u.tag)
        return None

    return rebuild.rewritten(kernel, change)


def _written(call: UOp) -> list[UOp]:
    """The storage that a launch writes."""
    return list(map(storage_root, written_arguments(call)))
