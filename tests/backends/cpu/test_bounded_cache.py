"""Maps that a runner keeps: bounded, and what they hold is made again when it is gone."""

import numpy as np

import uopc
from uopc.backends.cpu.bounded_cache import MOST_SIZES, BoundedMap


def test_a_kept_map_holds_so_many_and_starts_again():
    kept = BoundedMap(3)
    for key in range(3):
        assert kept.add(key, -key) == -key
    assert kept == {0: 0, 1: -1, 2: -2}
    kept.add(3, -3)
    assert kept == {3: -3}


def test_more_sizes_than_are_kept_and_the_first_again():
    n = uopc.variable("n", 1, 4 * MOST_SIZES)
    program = uopc.compile(uopc.param("x", (n,)) + n.cast(uopc.dtypes.float32))
    for size in (*range(1, 2 * MOST_SIZES + 2), 1, MOST_SIZES):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(program(x), x + size)
