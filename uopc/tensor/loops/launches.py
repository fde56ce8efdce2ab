"""Loops that launch kernels in each step: the body has kernels, or is large enough for its own.

    final = first;  done = 0                         storage, and the number of steps done
    repeat length times:                             a CALL of a FUNCTION that repeats
        final, y = body(final, xs[done], constants)
        ys[done] = y;  done = done + 1               if there are any xs or ys
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from uopc.ir.builder import alu, kernel, leaves, movement
from uopc.ir.core import dtypes, shapes, storage
from uopc.ir.core.args import FunctionArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop
from uopc.tensor import creation, functions
from uopc.tensor.loops import bodies


def iterated(step: Callable[[UOp], UOp], first: UOp, times: int) -> UOp:
    """Apply `step` to `first` `times` times. A step keeps the shape and the dtype, and has no
    derivative: use `scan` for derivatives."""
    carried = leaves.located(functions.param(0, first))
    body, constants = bodies.closed([step(carried)], [carried])
    return repeated(body, [first], [], constants, times, reverse=False)[0]


def repeated(
    body: UOp, first: Sequence[UOp], xs: Sequence[UOp], constants: Sequence[UOp], length: Dim,
    reverse: bool,
) -> list[UOp]:  # fmt: skip
    """The results of `scan.scan`; each step launches the kernels of the body."""
    outputs = body.src[len(first) :]
    if length == 0:
        empty = [leaves.full(leaves.const(u.dtype, 0), (0, *shapes.shape(u))) for u in outputs]
        return [*first, *empty]
    stacks = [creation.buffer((length, *shapes.shape(u)), u.dtype) for u in outputs]
    given = [*first, *stacks, *xs, *constants]
    if xs or stacks:
        given.insert(0, leaves.const(dtypes.int64, 0))
    others = len(given) - len(constants)
    params = iter([
        a if i >= others and _is_array(a) else functions.param(i, a) for i, a in enumerate(given)
    ])
    made = _step(body, params, len(first), len(xs), length, reverse)
    function = intern(Ops.FUNCTION, dtypes.void, made, FunctionArg("loop", True, True))
    given += [dim_uop(length)]
    call = leaves.located(intern(Ops.CALL, dtypes.void, (leaves.located(function), *given)))
    return [functions.gettuple(call, i) for i in range(len(body.src))]


def _step(
    body: UOp, params: Iterator[UOp], carried: int, inputs: int, length: Dim, reverse: bool
) -> tuple[UOp, ...]:
    """The params of a step after its writes: the carried values, the stacks, the counter."""
    results = len(body.src) - carried
    counter = list(itertools.islice(params, 1 if inputs or results else 0))
    finals = list(itertools.islice(params, carried))
    stacks = list(itertools.islice(params, results))
    xs, constants = list(itertools.islice(params, inputs)), list(params)
    last = dim_uop(length) - 1
    at = [alu.alu(last.cast(dtypes.int64), Ops.SUB, done) if reverse else done for done in counter]
    made = bodies.results(body, [*finals, *[movement.index(x, *at) for x in xs], *constants])
    now = [kernel.after(f, kernel.store(f, v)) for f, v in zip(finals, made)]
    rows = [
        _with_row(s, done, v, reverse) for done in counter for s, v in zip(stacks, made[carried:])
    ]
    return (*now, *rows, *[kernel.after(done, kernel.store(done, done + 1)) for done in counter])


def _with_row(stack: UOp, done: UOp, value: UOp, reverse: bool) -> UOp:
    """The stack after writing this step's row."""
    dims = shapes.shape(stack)
    ours = creation.kernel_param(0, dims, stack.dtype)
    steps = movement.index(creation.kernel_param(1, (), dtypes.int64)).cast(dtypes.index)
    row = creation.kernel_param(2, dims[1:], value.dtype)
    at = dim_uop(dims[0]) - 1 - steps if reverse else steps
    ranges = [kernel.range(d, i) for i, d in enumerate(dims[1:])]
    effect = kernel.store(movement.index(ours, at, *ranges), movement.index(row, *ranges))
    sink = kernel.sink(kernel.end(effect, *ranges) if ranges else effect)
    call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, stack, done, value)))
    return kernel.after(stack, call)


def _is_array(value: UOp) -> bool:
    """True for a view of a constant array. A step has it, so that what products read of it (words
    of bytes) is made before the program runs."""
    return storage.base(value).op is Ops.DATA
