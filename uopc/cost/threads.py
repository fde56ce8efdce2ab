"""The cycles of a kernel that several threads share, on the cores and sockets of a machine.

    16 threads, 8 cores     two rounds of eight chunks; eight threads divide the speed of memory

A chunk is costed as a kernel of its own. Threads that run at once divide what memory gives to all
threads of a socket; the last cache holds the arrays of the kernel for all of them. Not modelled:
hardware threads of one core, clocks that fall when all cores are busy, the speed of a last cache
that all read, lines that two threads write in turns, and memory of the other socket (pages are
taken to lie where they are read).
"""

from __future__ import annotations

from dataclasses import replace

from uopc.cost.cycles import cycles
from uopc.cost.machine import LINE, MachineFacts
from uopc.ir.nest.outline import Outline


def cycles_of_threads(outline: Outline, m: MachineFacts, resident: float = 0.0) -> float:
    """The cycles from the first to the last chunk of a kernel whose outline is that of the longest
    chunk. Threads beyond the cores wait for their turn."""
    if outline.threads == 1:
        return cycles(outline, m, resident)
    at_once = min(outline.threads, m.cores)
    rounds = -(-outline.threads // m.cores)
    chunk = cycles(outline, beside(m, at_once), resident) - m.launch
    return m.launch + m.wake + rounds * chunk


def beside(m: MachineFacts, threads: int) -> MachineFacts:
    """The machine as one of so many busy threads finds it, spread over the sockets."""
    neighbours = -(-threads // m.sockets)
    if neighbours == 1:
        return m
    *near, last = [c for c in m.caches if not c.is_of_pages]
    line = max(last.stream, LINE * neighbours / m.shared_bytes)
    shared = last._replace(stream=line, far=max(last.far, line))
    pages = [c for c in m.caches if c.is_of_pages]
    return replace(m, caches=(*near, shared, *pages))
