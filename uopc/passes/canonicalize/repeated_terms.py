"""A reduce whose terms repeat along an axis is computed once there, and its result repeated.

Before (tensor)                          After (tensor)
  %1 = param x : f32[1, 50]                %1 = param x : f32[1, 50]
  %2 = param y : f32[50]                   %2 = param y : f32[50]
  %3 = expand %2 (8, 50) : f32[8, 50]      %3 = expand %2 (1, 50) : f32[1, 50]
  %4 = mul %1, %3 : f32[8, 50]             %4 = mul %1, %3 : f32[1, 50]
  %5 = reduce.add %4 axes=(1,) : f32[8]    %5 = reduce.add %4 axes=(1,) : f32[1]
                                           %6 = expand %5 (8,) : f32[8]

A convolution whose weights are one number, say, computes one output channel for all.
"""

from __future__ import annotations

from uopc.ir.builder import movement, rebuild
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

Axis = tuple[UOp, int]  # of a value, by number


def without_repeats(value: UOp, reduced: tuple[int, ...]) -> UOp:
    """A value with length 1 along each axis, other than those `reduced`, along which it repeats."""
    for axis, dim in enumerate(shapes.shape(value)):
        if dim != 1 and axis not in reduced and _repeats((value, axis)):
            value = _narrowed((value, axis))
    return value


def _repeats(whole: Axis) -> bool:
    """True if all elements of a value along an axis are the same."""
    stack, seen = [whole], {whole}
    while stack:
        below = _below(stack.pop())
        if below is None:
            return False
        stack += [at for at in below if at not in seen]
        seen.update(below)
    return True


def _below(at: Axis) -> list[Axis] | None:
    """The axes of operands with which an axis varies, longer than 1; None if it may vary itself."""
    u, axis = at
    if u.op is Ops.PERMUTE:
        return [(u.src[0], u.arg[axis])]
    if u.op is Ops.RESHAPE:
        axis_before = _before_reshape(at)
        return None if axis_before is None else [(u.src[0], axis_before)]
    if not (u.op is Ops.EXPAND or u.op is Ops.CAST or u.op.is_alu):
        return None
    found = []
    for s in u.src[:1] if u.op is Ops.EXPAND else u.src:
        before = axis - shapes.rank(u) + shapes.rank(s)
        if before >= 0 and shapes.shape(s)[before] != 1:
            found.append((s, before))
    return found


def _before_reshape(at: Axis) -> int | None:
    """The axis of a reshape's source; None where axes longer than 1 change."""
    u, axis = at
    before, after = [[a for a, d in enumerate(shapes.shape(v)) if d != 1] for v in (u.src[0], u)]
    dims = [[shapes.shape(v)[a] for a in axes] for v, axes in ((u.src[0], before), (u, after))]
    return before[after.index(axis)] if dims[0] == dims[1] else None


def _narrowed(whole: Axis) -> UOp:
    """The first of a value's equal elements along an axis; the axis keeps a length of 1."""
    stack, done = [whole], dict[Axis, UOp]()
    while stack:
        below = _below(stack[-1]) or []
        missing = [at for at in below if at not in done]
        if not missing:
            u, axis = at = stack.pop()
            narrow = {s: done[s, a] for s, a in below}
            done[at] = _remade(u, axis, tuple([narrow.get(s, s) for s in u.src]))
        stack += missing
    return done[whole]


def _remade(u: UOp, axis: int, src: tuple[UOp, ...]) -> UOp:
    dims = [1 if a == axis else d for a, d in enumerate(shapes.shape(u))]
    if u.op is Ops.EXPAND:
        return movement.expand(src[0], dims)
    if u.op is Ops.RESHAPE:
        return movement.reshape(src[0], dims)
    return rebuild.remake(u, src)
