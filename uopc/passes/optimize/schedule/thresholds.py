"""What is worth doing on a machine, in numbers: every threshold of the heuristic, measured.

Facts about a machine itself (vector width, registers, caches) are in `backends/target.py`.
"""

import math

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
# A body of this many nodes, functions spelled out, is long: loops are ordered by what they compute
# again (`choose_nesting`).
LONG_BODY = 256
# From this many on, a rest of a vector is a whole one that overlaps the last.
OVERLAPPING_BODY = 64
# What is computed from the sums of a register tile is a loop over them where copies would have
# more nodes: gelu of 16 vectors takes 82 ms to compile in copies, 9 in a loop (and 5% more to run).
MOST_AFTER_SUMS = 512
# Iterations side by side where one waits for its results: 110 operations of a Jacobian, 100 cycles
# one after the other, take 48 cycles in a loop, 37 two at a time, and 50 four at a time (spilled).
INTERLEAVED = 2
# A loop is cut only where each node of the parts runs so often: at guards, 96 movement ops on 1,400
# elements take 0.43 s to compile and 20.9 µs to run with cuts, 0.26 and 18.3 without.
RUNS_OF_A_NODE = 8
# A loop is cut where a comparison with loops around it turns only if it has so many blocks.
LEAST_BLOCKS = 4
# A part of a thread's chunk is cut further only if it may be this share of it: prefix sums of
# 100,000 by doubling take 1.6 s to compile so, 3.0 with all turns cut, and 0.77 ms to run in both.
CHUNK_PARTS = 8
# Or where the parts together have so many nodes at most, for each node of the whole: 12 steps of a
# wavelet on 4,096 elements, put together, take 1.8 µs so, and 224 in one loop.
CUT_GROWTH = 1.25
# A loop is cut at guards only where the middle part, free of them, has this many iterations.
LEAST_MIDDLE = 16


# ---------------------------------------------------------------- register tiles of contractions
# What a machine does in a cycle: multiply-adds on vectors, loads of whole vectors, loads of one
# element into all lanes. Measured on Zen 4: vectors of 64 bytes go through in two halves.
WIDE_BYTES = 64
LATENCY = 4  # cycles until a multiply-add can be added to
# Rows are read in place, an element each: more than 8 that are a multiple of 1 KiB apart do not fit
# the ways of an L1 set (12 rows lose 10%, 16 lose half).
MOST_ROWS, MOST_ALIASED_ROWS, ALIAS_BYTES = 16, 8, 1024
MOST_VECTORS = 4
# Part of a step that does not overlap: the loop, vectors from L2 instead of L1, rows' elements.
STEP_OVERHEAD, VECTOR_OVERHEAD, ROW_OVERHEAD = 0.3, 0.1, 0.1
# Each kind of tile at an edge is code to compile; 2% of the time are not worth 10 ms.
EDGE = 0.02
# What a loop of unknown length counts as.
TYPICAL_LENGTH = 960
# Rows from which on it pays to bring an operand into the order in which lanes read it.
# Beside NumPy, times a transposed 1024 x 1024: with lanes along the sum 2, 4, 6, 8 and 12 rows take
# 0.36, 1.1, 0.94, 0.75 and 1.6 of its time, in order 0.55, 0.83, 0.64, 0.83 and 0.88.
LEAST_ROWS_TO_TRANSPOSE = 4
# From so many rows on, an operand of this share of L2 is packed. 2000 x 256 x 512 floats take 5.8
# ms in place, 5.1 packed; with 32-byte vectors 9.5 and 5.8, and 256 x 256 x 256 takes 0.36, 0.29.
LEAST_ROWS_TO_PACK, PACKED_SHARE = 96, 4
# Elements a multiple of SET_PERIOD bytes apart share an L1 set, of so many lines. A panel of more
# rows than the sets hold is packed even where it is small: 512 x 64 x 1024 floats take 1.52 ms in
# place, 0.77 packed, 512 x 64 x 256 (4 sets) 0.22 and 0.19; with less than 96 rows the latter loses
# 5%, and rows of whole pages gain 9% from 16 rows on, and 30% from 32.
SET_PERIOD, SET_LINES = 4096, 8
LEAST_ROWS_OF_PAGES = 16
# Rows of more than twice this share of the last cache are walked in blocks of that share, and of as
# many bytes of columns. 2040 x 2048 x 2040 doubles take 542 ms in one block, 476, 464 and 445 in
# blocks of 68, 204 and 408 rows (1.1, 3.3 and 6.7 MB; NumPy: 444); 1536 x 1536 x 1536 225 and 183.
BLOCK_SHARE = 8
# For up to so many rows, columns of more than so many times L2 are packed in blocks of half of it,
# several panels at once: 96 x 768 x 3072 floats take 6.5 ms a panel at a time, 6.4, 6.1 and 6.5
# with a third, half and all of L2, and 128 x 1024 x 4096 14.9 and 14.2; but 200 x 256 x 1536, whose
# columns stay near, 1.84 and 1.93, and 384 x 768 x 3072 24.2 and 25.1. Threads share columns then:
# each would pack all of them. Half of the rows of the first take 3.5 ms, half of the columns 3.1.
# From twice L2 on: 12, 16, 24, 32 x 1024 x 1024 took 1.22, 1.21, 1.23 and 1.09 of NumPy's time a
# panel at a time, 1.03, 1.03, 1.05 and 0.98 in blocks.
# Columns whose neighbours lie apart are shared whatever their size: 16 x 512 x 512, transposed, is
# 0.14 ms of one thread, and of two 0.20 as rows and 0.15 as columns.
FEW_ROWS, FAR_COLUMNS = 256, 2
# Cycles in which an element of an operand is brought in the order of a loop that is two loops
# joined, where neighbours are and where they are not. 512 channels of 7 x 7 floats take 3.93 ms
# apart and 3.20 joined, 128 of 28 x 28 4.39 and 2.93, 64 of 56 x 56, which fill their vectors, 2.87
# and 3.30; with a stride of 2 64 to 128 of 8 images of 4 x 4 0.50 and 0.26, but 24 to 40 of 2 of
# 33 x 33 1.68 and 1.99.
JOINED_FILL, JOINED_GATHER = 0.7, 1.7
# Windows that share their weights, each channel on its own, are sums in a tile of registers from so
# many taps on: 7 x 7 of 96 x 56 x 56 take 1.56 ms as copies of the body and 0.63 so, 5 x 5 of 240 x
# 28 x 28 0.38 and 0.27, but 3 x 3 of 128 x 56 x 56, packed for few taps, 0.17 and 0.24. With a
# stride of 2 each element is read by fewer: 5 x 5 of 144 x 56 x 56 (5.6 times) 0.68 and 0.39, of
# 240 x 14 x 14 (4.2 times) 0.055 and 0.079.
LEAST_TAPS, LEAST_READS = 25, 5
# A producer is computed in blocks of at least so many rows: fewer would pack the columns too often.
LEAST_ROW_BLOCK = 16
# Sums of products along the lanes that share an operand, side by side. 4096 x 4096 floats times a
# vector take 2.8, 2.6 and 2.2 ms with 1 row (and 4 accumulators), 4 and 8 rows (NumPy: 2.6).
DOT_ROWS = 8
# A sum over columns fewer than this is better vectorised along the sum.
LEAST_COLUMNS = 2
# Rows of a stencil side by side: an unsharp mask of bytes (3x3, 12 M pixels) takes 5.0, 4.1, 3.8
# and 3.4 ms with 1, 2, 4 and 8; the copies together have at most so many nodes.
SHARED_ROWS = 8
MOST_SHARED = 1024
# Vectors of a row that become copies, so that what depends on the columns alone is computed outside
# of all rows; and rows side by side where there are more. A batch norm of 1.6 M floats (a root of
# each column) takes 0.59 ms a vector at a time, 0.24 with up to 16 vectors, 0.26 with 32; with rows
# of 64 vectors 0.34 and 0.34 with 4 and 8 rows.
HOISTED, HOISTED_ROWS = 32, 4
# Rows are put side by side where each then reads at most that share of what it read alone.
SHARED_READS = 0.75
# Side of the blocks in which a transposed read is walked: 4096 x 4096 floats, transposed and added,
# take 19.7 ms without blocks, 17.4, 17.6, 17.5 and 18.2 with 64, 128, 256 and 512 (one thread).
CROSSED_BLOCK = 128
# Sums down columns: vectors side by side, and rows at a time, in registers. 4096 x 4096 floats take
# 5.1, 4.6 and 4.7 ms with 4, 8 and 16 vectors and a row at a time; 4.6, 4.1 with 4 and 8 and two.
# One vector alone waits for its own additions (see ACCUMULATORS): 4096 x 8 floats take 4.5, 2.5 and
# 1.6 µs with 1, 2 and 4 rows.
COLUMN_VECTORS, COLUMN_ROWS = 8, 2

# A kernel that touches so many times what the last cache holds stores past it what is at least that
# share of the cache: less is still there when it is read. 4 M and 16 M floats, of 16 and 64 MB (32
# MB of cache), take 5.0 and 6.5 ms through the caches and 4.7 and 5.2 past them (tanh and sigmoid
# of three arrays, a sum of two; one thread). A layer norm from 16 to 16 MB, which a cache of 32
# just holds, takes 0.36 ms, and 0.6 past it. Blocks of a transposed array take 14 either way.
STREAMED_TOTAL = 1.5
STREAMED_SHARE = 2

# Sums in memory: rows of the array taken at a time, and bytes of sums that stay in a first-level
# cache. 1 x 4096 x 4096 floats take 3.6 ms with sums in registers, 2.17, 1.93, 2.76 and 5.2 with 4,
# 8, 16 and 32 rows (more than 8 that are a multiple of 4 KiB apart do not fit the ways of L1).
SUMMED, SUM_BYTES = 8, 1 << 14
# From so many rows of the array on, and for up to so many of the result: 1024 x 1024 floats with 8
# rows take 0.19 ms instead of 0.26; with 16 it is 0.42 and 0.41.
LEAST_SUMMED, MOST_SUMMED_ROWS = 32, 8
# Long sums of few results are cut in blocks whose operands take this share of L2: 48 x 48 sums of
# 20,000 doubles take 5.2 ms uncut, 2.8, 2.5 and 2.7 in blocks of 40, 80 and 200. Blocks of fewer
# steps load and store sums too often: 256 x 256 sums take 37 ms uncut, 45 in blocks of 32.
SUMMED_SHARE, LEAST_SUMS = 16, 64


def step_cycles(rows: int, vectors: int, vector_bytes: int) -> float:
    """Cycles of one step of a reduce over a tile of `rows` by `vectors` accumulators."""
    rate = 1 if vector_bytes >= WIDE_BYTES else 2
    arithmetic = max(rows * vectors / rate, LATENCY)
    loads = rows / 2 + vectors / rate
    overhead = STEP_OVERHEAD + VECTOR_OVERHEAD * vectors + ROW_OVERHEAD * rows
    return max(arithmetic, loads) + overhead


def register_tile(
    rows: int, columns: int, lanes: int, vector_bytes: int, registers: int, row_step: int,
    masked: bool = False,
) -> tuple[int, int, float]:  # fmt: skip
    """Rows, `row_step` bytes apart, and vectors of accumulators that cover all soonest, and the
    cycles of one step over all. `masked`: vectors that are not full are read under a mask, which
    takes a register.

    333 x 555 in 16 lanes: 6 x 4 takes 56 · 9 tiles (with 3 rows and 43 columns at the edges).
    """
    best = (float("inf"), 1, 1)
    most = MOST_ALIASED_ROWS if row_step % ALIAS_BYTES == 0 else MOST_ROWS
    for vectors in range(1, min(MOST_VECTORS, -(-columns // lanes)) + 1):
        rest = columns % (vectors * lanes)
        ragged = masked and rest % lane_count(rest, lanes) > 0 and -(-rest // lanes) == vectors
        for high in range(1, min(most, rows) + 1):
            if high * vectors + vectors + 1 + ragged > registers:
                break
            edges = (rows % high > 0) + (columns % (vectors * lanes) > 0)
            cost = _cover(rows, columns, high, vectors, lanes, vector_bytes) * (1 + EDGE * edges)
            best = min(best, (cost, high * vectors, high))
    cycles, size, high = best
    return high, size // high, cycles


def is_crowded(count: int, step: int) -> bool:
    """Whether so many elements, `step` bytes apart, need more lines of L1 sets than there are."""
    return count > SET_LINES * (SET_PERIOD // math.gcd(step, SET_PERIOD))


def _cover(rows: int, columns: int, high: int, vectors: int, lanes: int, width: int) -> float:
    """Cycles of one step over all tiles, those at the edges too."""
    rest = columns % (vectors * lanes)
    narrow = lane_count(rest, lanes)
    whole = columns // (vectors * lanes)
    parts = [(whole, vectors, width), (1, -(-rest // narrow), width * narrow // lanes)]
    total = 0.0
    for count, h in ((rows // high, high), (1, rows % high)):
        for many, v, size in parts:
            if h and v:
                total += count * many * step_cycles(h, v, size)
    return total


def lane_count(length: int, lanes: int) -> int:
    """The narrowest vector, a power of two of lanes, that takes a loop at once; at most `lanes`."""
    while lanes > 2 and lanes // 2 >= length:
        lanes //= 2
    return lanes
