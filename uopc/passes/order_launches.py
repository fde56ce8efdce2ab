"""Order the launches of several devices by rounds, between which devices wait for each other.

Before (program), devices=cpu+cpu:1            After (program)
  // kernel double                               // kernel double
    %1 = param "" slot=0 : f32[4]                  %1 = param "" slot=0 : f32[4]
    %2 = range 4 axis=0 kind=loop : index          %2 = range 4 axis=0 kind=loop : index
    %3 = param "" slot=1 : f32[4]                  %3 = param "" slot=1 : f32[4]
    %4 = mul %3[%2], 2.0:f32 : f32                 %4 = mul %3[%2], 2.0:f32 : f32
    %5 = store %1[%2], %4                          %5 = store %1[%2], %4
    %6 = end %5, %2                                %6 = end %5, %2
    %7 = sink %6 name=double                       %7 = sink %6 name=double
  // program                                     // program
  %8 = buffer slot=0 device=cpu : f32[4]         %8 = buffer slot=0 device=cpu : f32[4]
  %9 = param x : f32[4]                          %9 = param x : f32[4]
  %10 = buffer slot=1 device="cpu:1" : f32[4]    %10 = buffer slot=1 device="cpu:1" : f32[4]
  %11 = buffer slot=2 device=cpu : f32[4]        %11 = buffer slot=2 device=cpu : f32[4]
  linear {                                       linear {
    call %7, %8, %9  // double                     call %7, %8, %9  // double
    call %7, %10, %8  // double                    call %7, %10, %8  // double
    call %7, %11, %9  // double                    call %7, %11, %9  // double
  }                                              }

A launch is in a later round than launches of other devices whose storage it needs. What devices do
in one round stands together, so that as few rounds as possible are waited for. Where exchanges run
beside launches, each stands as early as it can, and what waits for it late. Any other program for
one device stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import launches, overlap
from uopc.passes.contract import Context

# A launch that any device may run may change its device, and round, when the order changes.
MOST_CHANGES = 4


def order_launches(program: UOp, context: Context) -> UOp:
    """The program with its launches by round, or around exchanges."""
    if context.sharding is not None and context.sharding.bucket:
        return _ordered(program, overlap.apart(program))
    for _ in range(MOST_CHANGES):
        places = launches.placed(program, context.devices)
        if launches.in_order(places):
            break
        program = _ordered(program, sorted(range(len(places)), key=lambda i: places[i].round))
    return program


def _ordered(program: UOp, order: Sequence[int]) -> UOp:
    """The program with its calls in an order of their numbers."""
    calls = tuple([program.src[i] for i in order])
    return intern(program.op, program.dtype, calls, program.arg, program.tag)
