"""What a launch on a GPU says beside its words: plain data, as in `cpu/plan.py`."""

from __future__ import annotations

from dataclasses import dataclass

from uopc.backends.plan import Dim, Launch

Dims3 = tuple[Dim, Dim, Dim]


@dataclass(frozen=True, slots=True)
class GpuLaunch(Launch):
    """Run `kernel` on a grid of blocks: parameter i is word i, 8 bytes; x is the first of three.

    Nothing runs where a size of the grid is 0. `dynamic_shared` is what the launch must ask for of
    shared memory, in bytes: 0 where the kernel declares what it needs. Pointers are
    multiples of the kernel's alignment: `Calls` of `nvptx.py`.
    """

    grid: Dims3 = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared: int = 0
