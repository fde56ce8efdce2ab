"""What is worth doing on a machine, in numbers: every threshold of the heuristic, measured.

Facts about a machine itself (vector width, registers, caches) are in `backends/target.py`.
"""

# Work (element operations) below which sharing among threads costs more than it gains: a hot
# worker pays off from about 0.5 µs, a parked one from 100 µs; this is about 20 µs of vector code.
THREAD_WORK = 1 << 18
# Accumulators of a register tile: 16 hide the latency of an FMA (4 cycles, 2 a cycle) and spill
# nowhere; more only lengthen the code.
TILE_ROWS, TILE_VECTORS = 4, 4
# A reduce over this many iterations or fewer is unrolled whole: its guards fold, its loop goes.
WHOLE_UNROLL = 16
# Independent accumulators of a vectorised reduce: latency 4 cycles, up to 2 adds a cycle.
ACCUMULATORS = 4
# Straight-line copies of a body beyond this many nodes cost more compile time than they save.
MOST_COPIES = 2048
# A loop is cut at guards only where the middle part, free of them, has this many iterations.
LEAST_MIDDLE = 16
