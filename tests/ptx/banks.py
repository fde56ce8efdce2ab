"""Shared memory as 32 banks of 4 bytes: in how many turns an access of a warp is served.

An access of up to 4 bytes a lane is one phase; of 8 bytes, one for each half of the warp; of 16,
one for each 8 lanes, as each matrix of ldmatrix is. A phase takes a turn for each different word
that its busiest bank is asked for; those beyond one are conflicts.
"""

from __future__ import annotations

import numpy as np

from tests.ptx.memory import Array

BANKS, WORD = 32, 4


def turns(offsets: Array, lanes: Array, size: int) -> tuple[int, int]:
    """Turns of the accesses of `size` bytes at byte offsets by numbered lanes, and the phases."""
    if not len(offsets):
        return 0, 0
    phase = lanes.astype(np.int64) // min(BANKS, BANKS * WORD // max(WORD, size))
    words = (offsets // WORD)[:, None] + np.arange(max(1, size // WORD))
    asked = np.stack([np.broadcast_to(phase[:, None], words.shape), words], axis=-1)
    asked = np.unique(asked.reshape(-1, 2), axis=0)
    cells, busy = np.unique(np.c_[asked[:, 0], asked[:, 1] % BANKS], axis=0, return_counts=True)
    _, first = np.unique(cells[:, 0], return_index=True)
    return int(np.maximum.reduceat(busy, first).sum()), len(first)
