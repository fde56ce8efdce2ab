"""The thresholds of the GPU schedule, one row each: value, unit, meaning, justification.

Those of contractions were measured on an H200 (docs/lab/gpu.md). The others follow from occupancy
and from the counts of instructions and sectors that `benchmarks/predict_gpu.py` makes. The last
column names a row of docs/lab/schedule.md.
"""

from __future__ import annotations

from uopc.passes.analysis.thresholds import row
from uopc.target import Gpu

# Blocks of threads
BLOCK           = row(256,    "threads",            "a block of independent threads: eight warps hide latency",                     "GPU blocks")
LEAST_BLOCKS    = row(4,      "blocks per SM",      "fewest blocks for which rows go together in a block",                          "GPU blocks")
LANE_NODES      = row(512,    "nodes",              "most nodes of all lanes of an output: more is limited by arithmetic",          "GPU copies")
WHOLE_UNROLL    = row(16,     "iterations",         "most iterations, of all reduces together, that become straight code",          "GPU windows")
TILE_UNROLL     = row(4,      "iterations",         "the same beside a register tile",                                              "GPU windows")
CROSSED_COLUMNS = row(8,      "threads",            "across a block of a transposed read: they write lines of 128 bytes",           "GPU transposes")
CROSSED_ROWS    = row(32,     "threads",            "down such a block: groups of 4 read lines of 64 bytes",                        "GPU transposes")

# Reduces that threads share
LEAST_SHARED    = row(128,    "iterations",         "shortest reduce that threads share",                                           "GPU reduces")
LEAST_BESIDE    = row(32,     "iterations",         "the same where the threads of a row need its value: a warp",                   "GPU reduces")
EACH            = row(4,      "values",             "of a shared reduce in each thread before threads meet",                        "GPU reduces")
EACH_AGAIN      = row(1,      "values",             "the same where every block does the reduce for itself",                        "GPU reduces")
ROW_REGISTERS   = row(32,     "values",             "most values of a row in a thread's registers",                                 "GPU rows")
IN_FLIGHT       = row(64,     "bytes",              "a thread asks for before it waits: 512 threads then have 32 KiB on their way", "GPU copies")
MOST_AGAIN      = row(0.25,   "factor",             "most of their work that blocks do again for themselves",                       "GPU rows")
LITTLE          = row(4,      "factor",             "a loop this much longer than its reduce is cut into blocks",                   "GPU rows")
EACH_ROWS       = row(8,      "rows",               "of a sum over rows in each of the threads that share it",                      "GPU column sums")
MOST_APART      = row(32,     "threads",            "most threads that share a sum over rows",                                      "GPU column sums")

# Contractions
TILE            = row(8,      "rows",               "accumulators of a thread down its tile: 64 leave registers for operands",      "GPU matmul")
SLICE           = row(32,     "terms",              "most of a sum of products in a slice of shared memory",                        "GPU matmul")
SLICE_PRODUCTS  = row(1024,   "products",           "most of a thread in the straight code of a slice: twice as many gain 5 %",     "GPU matmul")
SLICES          = row(2,      "slices",             "of each factor in shared memory: one is read, the next is on its way",         "GPU matmul")
BUSY            = row(128,    "threads",            "fewest on a multiprocessor that hide the latency of sums and shared memory",   "GPU matmul")
FACTOR          = row(2.0,    "sums",               "that take as long as a factor from shared memory",                             "GPU matmul")
MOST_PADDING    = row(4.0,    "factor",             "most growth of a product's loops to fill the tiles of a block",                "GPU matmul")
OTHER_REGISTERS = row(48,     "registers",          "of a thread beside sums and factors: addresses, counters, loads",              "GPU matmul")
ACCESS_BYTES    = row(16,     "bytes",              "an access of a thread that fills a tile",                                      "GPU matmul")


def capacity(gpu: Gpu) -> int:
    """The threads that a GPU runs at a time."""
    return gpu.multiprocessors * gpu.threads_per_multiprocessor


def shared_room(gpu: Gpu, threads: int) -> int:
    """The most shared memory per block while registers still limit the blocks per SM."""
    own = threads * (gpu.registers_per_thread + 1)
    blocks = max(1, gpu.registers_per_multiprocessor // own)
    return min(gpu.shared_per_block, gpu.shared_per_multiprocessor // blocks - gpu.reserved_shared)
