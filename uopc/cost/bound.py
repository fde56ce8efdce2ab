"""A bound of the cycles of kernels that compute the same: what no order of loops can save.

The arithmetic of an outline in full vectors, and each element of its arrays moved once, put
together as `cycles` does. Repeated arithmetic counts: a schedule that computes a value less often
may be below.
"""

from __future__ import annotations

import math

from uopc.cost.machine import MachineFacts
from uopc.ir.nest.outline import OUTSIDE, Outline


def least_cycles(outline: Outline, m: MachineFacts) -> float:
    """The cycles of the same arithmetic and the same data in the best schedule, with the launch."""
    loaded, stored = _bytes_moved(outline)
    computed = max(_arithmetic(outline, m), loaded / m.load_bytes, stored / m.store_bytes)
    nbytes = loaded + stored
    caches = [c for c in m.caches if not c.is_of_pages and nbytes > c.nbytes]
    moved = m.together(*[nbytes / c.line * c.stream for c in caches])
    return m.launch + m.together(computed, moved)


def _arithmetic(outline: Outline, m: MachineFacts) -> float:
    nbytes = divisions = 0.0
    for number in (OUTSIDE, *range(len(outline.bodies))):
        runs = math.prod([outline.bodies[q].length for q in outline.path(number)])
        for (kind, lanes, bits), count in outline.body(number).units.items():
            if kind == "div":
                vectors = lanes * bits / m.vector_bits
                divisions += runs * count * vectors * m.division(m.vector_bytes, bits)
            elif kind == "alu":
                nbytes += runs * count * lanes * bits / 8
    return max(nbytes / m.multiply_bytes, divisions)


def _bytes_moved(outline: Outline) -> tuple[float, float]:
    """The bytes that are loaded and stored if each element moves once."""
    sizes: dict[tuple[int, bool], float] = {}
    for r in outline.references:
        if r.local:
            continue
        dims = [d.length for d in (*r.lanes, *r.copies) if d.stride != 0]
        count = math.prod([*dims, *[outline.bodies[q].length for q in r.strides]])
        key = r.storage, r.written
        touched = sizes.get(key, 0.0) + r.item * count * len(r.offsets)
        sizes[key] = min(outline.storages[r.storage], touched)
    stored = sum([n for (_, written), n in sizes.items() if written])
    return sum(sizes.values()) - stored, stored
