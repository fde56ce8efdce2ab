"""Kernels that differ only in constants become one kernel, called with the constants.

Before (program)                           After (program)
  // kernel ""                               // kernel ""
    %1 = param "" slot=0 : f32[4]              %1 = param "" slot=0 : f32[4]
    %2 = range 4 axis=0 kind=loop : index      %2 = range 4 axis=0 kind=loop : index
    %3 = param "" slot=1 : f32[4]              %3 = param "" slot=1 : f32[4]
    %4 = mul %3[%2], 2.5:f32 : f32             %4 = number slot=2 : f32
    %5 = store %1[%2], %4                      %5 = mul %3[%2], %4 : f32
    %6 = end %5, %2                            %6 = store %1[%2], %5
    %7 = sink %6 name=""                       %7 = end %6, %2
  // kernel ""                                 %8 = sink %7 name=""
    %1 = param "" slot=0 : f32[4]            // program
    %2 = range 4 axis=0 kind=loop : index    %9 = buffer slot=0 : f32[4]
    %3 = param "" slot=1 : f32[4]            %10 = param x : f32[4]
    %8 = mul %3[%2], 3.5:f32 : f32           %11 = buffer slot=1 : f32[4]
    %9 = store %1[%2], %8                    linear {
    %10 = end %9, %2                           call %8, %9, %10, 2.5:f32  // ""
    %11 = sink %10 name=""                     call %8, %11, %10, 3.5:f32  // ""
  // program                                 }
  %12 = buffer slot=0 : f32[4]
  %13 = param x : f32[4]
  %14 = buffer slot=1 : f32[4]
  linear {
    call %7, %12, %13  // ""
    call %11, %14, %13  // ""
  }

A constant becomes an argument only if kernels differ in it: a single kernel keeps its constants and
folds them. A constant that the code depends on stays: 0, 1 and -1; powers of two that make a shift
or an exact product; constants in indices, guards and loop lengths; constants that are not combined
with a loaded value (a loop over them may have a closed form); exponents and integer divisors, which
choose a decomposition.
"""

from __future__ import annotations

import math

from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes, walk
from uopc.ir.core.args import KernelArg, NumberArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import VARIABLES, arguments
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.passes.contract import Context

# The operands that may be an argument without making the code worse.
_BOTH = (0, 1)
_FREE: dict[Op, tuple[int, ...]] = {
    Ops.ADD: _BOTH, Ops.SUB: _BOTH, Ops.MUL: _BOTH, Ops.FDIV: _BOTH, Ops.MAX: _BOTH, Ops.MIN: _BOTH,
    Ops.CMPLT: _BOTH, Ops.CMPLE: _BOTH, Ops.CMPEQ: _BOTH, Ops.CMPNE: _BOTH, Ops.XOR: _BOTH,
    Ops.WHERE: (1, 2), Ops.MULACC: (0, 1, 2), Ops.THREEFRY: (1,), Ops.STORE: (1,),
}  # fmt: skip
# These take an argument whatever they are combined with.
_ANYWHERE = frozenset((Ops.THREEFRY, Ops.STORE))
# A kernel with more arguments than this would spill them from registers.
MOST_NUMBERS = 64

Constants = tuple["UOp", ...]
# Kernel -> the kernel that replaces it, and the numbers to call that one with.
Replacements = dict["UOp", tuple["UOp", Constants]]


def _is_free(user: UOp, operand: int) -> bool:
    """True if the code does not depend on a constant operand, given by its number."""
    c = user.src[operand]
    if c.op is not Ops.CONST or c.dtype.kind not in ("int", "uint", "float"):
        return False
    if type(c.arg) is tuple or not math.isfinite(c.arg) or c.arg in (0, 1, -1):
        return False
    shift = (user.op is Ops.MUL and c.dtype.is_int) or (user.op is Ops.FDIV and operand == 1)
    return not (shift and abs(math.frexp(c.arg)[0]) == 0.5)  # a power of two


def _in_addresses(order: list[UOp]) -> set[UOp]:
    """The nodes that decide where memory is read and written, and how often."""
    found: set[UOp] = set()
    for u in reversed(order):
        if u in found or u.op is Ops.RANGE:
            found.update(u.src)
        elif u.op is Ops.INDEX or (u.op is Ops.WHERE and u.src[2].op is Ops.INVALID):
            found.update(u.src[u.op is Ops.INDEX :])
        elif u.op is Ops.STORE:
            found.update(u.src[2:])
    return found


def skeleton(order: list[UOp], slot: int = 0) -> tuple[UOp, Constants]:
    """The kernel, whose nodes are given sources first, with a NUMBER, counted from `slot`, for each
    free use of a constant; the constants."""
    addresses = _in_addresses(order)
    loaded: set[UOp] = set()
    made: dict[UOp, UOp] = {}
    taken: list[UOp] = []
    for u in order:
        if u.op is Ops.INDEX or any(s in loaded for s in u.src):
            loaded.add(u)
        src = [made[s] for s in u.src]
        if u not in addresses and (u in loaded or u.op in _ANYWHERE):
            for i in _FREE.get(u.op, ()):
                if _is_free(u, i):
                    c = u.src[i]
                    src[i] = intern(Ops.NUMBER, c.dtype, (), NumberArg(slot + len(taken)))
                    taken.append(c)
        made[u] = u
        if any(a is not b for a, b in zip(src, u.src)):
            made[u] = intern(u.op, u.dtype, tuple(src), u.arg, u.tag)
            set_origin(made[u], made[u].origin or u.origin)
    return made[order[-1]], tuple(taken)


def _merged(form: UOp, slot: int, members: dict[UOp, Constants]) -> Replacements:
    """A use with the same constant in every kernel keeps it; uses that agree share an argument."""
    arguments: dict[Constants, int] = {}
    mapping: dict[UOp, UOp] = {}
    for i, column in enumerate(zip(*members.values())):
        number = intern(Ops.NUMBER, column[0].dtype, (), NumberArg(slot + i))
        if all(c is column[0] for c in column):
            mapping[number] = column[0]
        else:
            at = slot + arguments.setdefault(column, len(arguments))
            mapping[number] = intern(Ops.NUMBER, number.dtype, (), NumberArg(at))
    if not arguments or len(arguments) > MOST_NUMBERS:
        return {}
    shared = rebuild.rebuild(form, mapping)
    return {k: (shared, numbers) for k, numbers in zip(members, zip(*arguments))}


def _shared(calls: dict[UOp, int]) -> Replacements:
    """The replacements of kernels, given each kernel with its first free slot."""
    sizes: dict[tuple[int, int], list[list[UOp]]] = {}  # tells most kernels apart at little cost
    for kernel, slot in calls.items():
        order = list(walk.toposort(kernel))
        size = sum(u.op is not Ops.CONST for u in order)
        sizes.setdefault((size, slot), []).append(order)
    found: Replacements = {}
    for (_, slot), orders in sizes.items():
        alike: dict[UOp, dict[UOp, Constants]] = {}
        for order in orders if len(orders) > 1 else ():
            form, constants = skeleton(order, slot)
            alike.setdefault(form, {})[order[-1]] = constants
        for form, members in alike.items():
            if len(members) > 1:
                found |= _merged(form, slot, members)
    return found


def share_kernels(program: UOp, context: Context) -> UOp:
    """The user's rules may look for a constant, so with rules every kernel keeps its own; so do
    kernels that the user wrote, which have a name."""
    calls: dict[UOp, int] = {}
    for call in program.src:
        kernel, args = call.src[0], arguments(call)
        unnamed = type(kernel.arg) is KernelArg and not kernel.arg.name
        has_room = len(args) + MOST_NUMBERS <= context.target.most_arguments
        if kernel.op is Ops.SINK and unnamed and has_room:
            calls[kernel] = sum(a.op not in VARIABLES for a in args)
    became = _shared(calls) if len(calls) > 1 else {}
    if not became:
        return program
    made = []
    for call in program.src:
        kernel, *operands = call.src
        if kernel in became:
            shared, numbers = became[kernel]
            operands[calls[kernel] : calls[kernel]] = numbers
            call = intern(Ops.CALL, dtypes.void, (shared, *operands), call.arg, call.tag)
        made.append(call)
    return intern(Ops.LINEAR, program.dtype, tuple(made), program.arg)
