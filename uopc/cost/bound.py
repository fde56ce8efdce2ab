"""Bounds of the cycles of kernels that compute the same: what no order of loops can save.

The arithmetic in full vectors, and each element of the arrays moved once, put together as `cycles`
does. In the bound of an outline, repeated arithmetic counts: a schedule that computes a value less
often may be below. In the bound of a nest, whose arrays may get other orders, too, only the terms
of sums count.
"""

from __future__ import annotations

import math

from uopc.cost.machine import MachineFacts
from uopc.ir.core import ranges
from uopc.ir.core.uop import UOp
from uopc.ir.nest.loops import trips
from uopc.ir.nest.nest import Nest
from uopc.ir.nest.outline import OUTSIDE, Outline


def least_cycles(outline: Outline, m: MachineFacts) -> float:
    """The cycles of the same arithmetic and the same data in the best schedule, with the launch."""
    return _least(_arithmetic(outline, m), *_bytes_moved(outline), m)


def least_of_nest(nest: Nest, m: MachineFacts) -> float:
    """The cycles of a nest, with the launch, in the best schedule and the best orders of its
    arrays. Sums of narrow numbers do not count: several of them may be one term."""
    narrowest = min([a.itemsize for a in nest.read], default=0)
    terms = sum([
        trips(ranges.ranges(u.src[0])) * u.dtype.itemsize
        for u in nest.reduces if u.dtype.itemsize <= narrowest
    ])  # fmt: skip
    sizes: dict[tuple[UOp, bool], int] = {}
    for a in nest.accesses:
        key, whole = (a.storage, a.written), math.prod(a.dims) * a.itemsize
        sizes[key] = min(whole, sizes.get(key, 0) + trips(a.loops) * a.itemsize)
    stored = sum([n for (_, written), n in sizes.items() if written])
    return _least(terms / m.multiply_bytes, sum(sizes.values()) - stored, stored, m)


def _least(arithmetic: float, loaded: float, stored: float, m: MachineFacts) -> float:
    computed = max(arithmetic, loaded / m.load_bytes, stored / m.store_bytes)
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
