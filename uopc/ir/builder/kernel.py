"""Builders of hand-written kernels: ranges, loads, stores, and the ends of loops."""

from __future__ import annotations

import itertools
from typing import Any, Final, get_args

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks, leaves, operands
from uopc.ir.builder.leaves import located
from uopc.ir.core import dtypes
from uopc.ir.core.args import AxisKind, KernelArg, Opt, RangeArg, ReduceArg, Space, StageArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop

_axes = itertools.count()
_KINDS: Final = get_args(AxisKind)


def range(end: Any, axis: int | tuple[int, ...] | None = None, kind: AxisKind = "loop") -> UOp:
    """A loop variable 0 ≤ i < end. Ranges nest in the order of `axis` (default: creation).

    UserTypeError for an axis that is not made of ints, UserError for an unknown kind.

    Examples:
        >>> o, x = uopc.kernel_param(0, (3,)), uopc.kernel_param(1, (3,))
        >>> i = uopc.UOp.range(3)
        >>> reverse = uopc.compile(o[i].store(x[2 - i]).end(i).sink(name="reverse"))
        >>> memory = np.zeros(3, "f4")
        >>> _ = reverse(memory, np.array([1, 2, 3], "f4"))
        >>> memory
        array([3., 2., 1.], dtype=float32)
    """
    nest = (next(_axes),) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if not all([type(n) is int for n in nest]):
        raise UserTypeError(f"range: axis must be an int or a tuple of ints, got {axis!r}")
    if kind not in _KINDS:
        raise UserError(f"range: kind must be one of {', '.join(_KINDS)}, got {kind!r}")
    stop = dim_uop(operands.as_dim(end))
    return located(intern(Ops.RANGE, dtypes.index, (stop,), RangeArg(nest, kind)))


def load(address: UOp, gate: UOp | None = None) -> UOp:
    """The element at an INDEX; 0 where the gate is false.

    The compiler makes the loads of `x[i]` in a kernel written by hand.

    Examples:
        >>> x, i = uopc.kernel_param(0, (3,)), uopc.UOp.range(3)
        >>> x[i].load().op
        Ops.LOAD
    """
    src = (address,) if gate is None else (address, gate)
    checks.nodes("load", src)
    return located(intern(Ops.LOAD, address.dtype, src))


def store(target: UOp, value: Any, gate: UOp | None = None) -> UOp:
    """Write the value through the target: an INDEX, or a view of storage.

    UserError for a value of another dtype. With a gate, write only where the gate is true.

    Examples:
        >>> o, i = uopc.kernel_param(0, (4,)), uopc.UOp.range(4)
        >>> squares = o[i].store((i * i).cast(dtypes.float32)).end(i)
        >>> memory = np.zeros(4, "f4")
        >>> _ = uopc.compile(squares.sink(name="squares"))(memory)
        >>> memory
        array([0., 1., 4., 9.], dtype=float32)
    """
    checks.nodes("store", (target,) if gate is None else (target, gate))
    given = operands.as_uop(value, target.dtype)
    if given.op is not Ops.INVALID and given.dtype is not target.dtype:
        raise UserError(
            f"store: the value is {given.dtype.name}, the storage {target.dtype.name}; cast it"
        )
    src = (target, given) if gate is None else (target, given, gate)
    return leaves.fitting(intern(Ops.STORE, dtypes.void, src))


def stage(value: UOp, *ranges: UOp, space: Space = "local") -> UOp:
    """The value in new storage, filled in each iteration of the loops that the value depends on.
    `local` is shared by the threads of a GPU's block; `reg` belongs to one thread.

    The ranges are the loops that fill the storage, and its first dimensions: `x[i, j].stage(j)[7 -
    j]` is an element of row i of x. UserError for anything else.

    Examples:
        >>> o, x = uopc.kernel_param(0, (2, 3)), uopc.kernel_param(1, (2, 3))
        >>> i, j, k = (uopc.UOp.range(n) for n in (2, 3, 3))
        >>> row = (x[i, j] * 10).stage(j)
        >>> turned = uopc.compile(o[i, k].store(row[2 - k]).end(i, k).sink(name="turned"))
        >>> memory = np.zeros((2, 3), "f4")
        >>> _ = turned(memory, np.arange(6, dtype="f4").reshape(2, 3))
        >>> memory
        array([[20., 10.,  0.],
               [50., 40., 30.]], dtype=float32)
    """
    if space not in ("local", "reg"):
        raise UserError(f"stage: the space must be local or reg, got {space!r}")
    _check_ranges("stage", ranges)
    arg = StageArg("user", space=space)
    return located(intern(Ops.STAGE, value.dtype, (value, *ranges), arg))


def shaped_wmma(a: UOp, b: UOp, row: UOp, column: UOp, depth: UOp, *others: UOp) -> UOp:
    """The sum of a·b over the ranges `depth` and `others`: on a GPU by tensor cores, a tile of
    `row` by `column` at a time, elsewhere by loops. `a` depends on row and depth, `b` on depth and
    column. The lengths are 16, 8 and 16 for float16 and bfloat16, 16, 8 and 8 for float32 (which
    tensor cores round to 10 bits), 16, 8 and 32 for int8, 8, 8 and 4 for float64. UserError for
    other dtypes and lengths.

    Examples:
        >>> o, x = (uopc.kernel_param(i, (8, n), dtypes.float64) for i, n in ((0, 8), (1, 4)))
        >>> y = uopc.kernel_param(2, (4, 8), dtypes.float64)
        >>> i, j, k = (uopc.UOp.range(n) for n in (8, 8, 4))
        >>> product = o[i, j].store(x[i, k].shaped_wmma(y[k, j], i, j, k)).end(i, j)
        >>> memory = np.zeros((8, 8))
        >>> _ = uopc.compile(product.sink(name="product"))(memory, np.ones((8, 4)), np.ones((4, 8)))
        >>> memory[0, 0].tolist()
        4.0
    """
    from uopc.ir.devices.tensor_cores import OF_GPUS

    tile = next((t for t in OF_GPUS if t.operand is a.dtype), None)
    if tile is None:
        raise UserError(f"shaped_wmma: no tensor core multiplies {a.dtype.name}")
    src = (a, b, row, column, depth)
    made = located(intern(Ops.SHAPED_WMMA, tile.result, src, tile.shape))
    arg = ReduceArg("add")
    return located(intern(Ops.REDUCE, tile.result, (made, *others, depth), arg))


def end(effect: UOp, *ranges: UOp) -> UOp:
    """The effect, run once per iteration of the ranges, which it closes.

    An iteration reads the values that earlier iterations wrote, even if an index names no range:
    `o[0]` below is read 3 times. UserError for anything but a range.

    Examples:
        >>> o, i = uopc.kernel_param(0, (1,)), uopc.UOp.range(3)
        >>> memory = np.zeros(1, "f4")
        >>> _ = uopc.compile(o[0].store(o[0] * 2 + 1).end(i).sink(name="steps"))(memory)
        >>> memory
        array([7.], dtype=float32)
    """
    _check_ranges("end", ranges)
    return located(intern(Ops.END, dtypes.void, (effect, *ranges)))


def _check_ranges(who: str, ranges: tuple[object, ...]) -> None:
    for r in ranges:
        if not isinstance(r, UOp) or r.op is not Ops.RANGE:
            got = r.op if isinstance(r, UOp) else r
            raise UserError(f"{who}: expected ranges, got {got!r}")


def after(u: UOp, *effects: UOp) -> UOp:
    """`u` after the effects.

    Reads of the result see the writes of the effects. For a param, the result is the whole array
    after a write to a part.

    Examples:
        >>> x = uopc.param("x", (4,))
        >>> written = uopc.compile(x.after(x[1:3].assign(7.0)))
        >>> written(np.zeros(4, "f4"))
        array([0., 7., 7., 0.], dtype=float32)
    """
    checks.nodes("after", (u, *effects))
    return located(intern(Ops.AFTER, u.dtype, (u, *effects))) if effects else u


def barrier(*effects: UOp) -> UOp:
    """The effects, after which the threads of a GPU's block wait for each other.

    Examples:
        >>> o, i = uopc.kernel_param(0, (3,)), uopc.UOp.range(3)
        >>> o[i].store(1.0).barrier().op
        Ops.BARRIER
    """
    checks.nodes("barrier", effects)
    return located(intern(Ops.BARRIER, dtypes.void, effects))


def sink(
    *roots: UOp, name: str = "", opts: tuple[Opt, ...] | None = None, arg: KernelArg | None = None
) -> UOp:
    """The roots as one graph. A hand-written kernel has a name, and may fix its Opts; `arg`: both
    as a KernelInfo; UserTypeError for anything else.

    Examples:
        >>> o = uopc.kernel_param(0, (2,))
        >>> kernel = uopc.compile(o.store(5.0).sink(name="five"))
        >>> memory = np.zeros(2, "f4")
        >>> _ = kernel(memory)
        >>> memory
        array([5., 5.], dtype=float32)
    """
    if arg is not None and (name or opts is not None or not isinstance(arg, KernelArg)):
        raise UserTypeError(f"sink: arg must be a KernelInfo, without name and opts, got {arg!r}")
    checks.nodes("sink", roots)
    if name or opts is not None:
        arg = KernelArg(name, opts)
    return located(intern(Ops.SINK, dtypes.void, roots, arg))


def group(*effects: UOp) -> UOp:
    """All the effects as one, in no order.

    Examples:
        >>> a, b = uopc.kernel_param(0, (2,)), uopc.kernel_param(1, (2,))
        >>> kernel = uopc.compile(a.store(1.0).group(b.store(2.0)).sink(name="both"))
        >>> x, y = np.zeros(2, "f4"), np.zeros(2, "f4")
        >>> _ = kernel(x, y)
        >>> x, y
        (array([1., 1.], dtype=float32), array([2., 2.], dtype=float32))
    """
    checks.nodes("group", effects)
    return effects[0] if len(effects) == 1 else intern(Ops.GROUP, dtypes.void, effects)
