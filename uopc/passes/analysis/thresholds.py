"""The thresholds of the CPU schedule, one row each: value, unit, meaning, justifying workload.

The workload names a row of docs/lab/schedule.md, which has the measurements. A unit such as "L2 / n"
means that the threshold follows the machine: the target's cache divided by the value.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from uopc.passes.analysis import contraction

Number = TypeVar("Number", int, float)


class Threshold(NamedTuple):
    """A row of the table."""

    value: float
    unit: str
    meaning: str
    workload: str


TABLE: list[Threshold] = []


def row(value: Number, unit: str, meaning: str, workload: str) -> Number:
    """Add a row to the table; its value."""
    TABLE.append(Threshold(value, unit, meaning, workload))
    return value


# Threads, and copies of a body
WAKING_SHARE            = row(0.08192, "factor",         "least work that threads share, over a thread's multiply-adds while others wake",  "threads")
SHARED_GAIN             = row(0.99,    "factor",         "most time of a thread that shares another loop than the outermost one",           "shared loops")
WHOLE_UNROLL            = row(16,      "iterations",     "longest reduce loop that becomes straight code",                                  "short reduces")
HELD_ROWS               = row(4,       "rows",           "rows of a tile beside which registers hold a whole factor",                       "held factors")
LEAST_TILES_HELD        = row(64,      "tiles",          "least tiles that share a factor in registers",                                    "held factors")
MOST_COPIES             = row(2048,    "nodes",          "most nodes of straight-line copies; more cost compile time",                      "code size")
LONG_BODY               = row(256,     "nodes",          "least body whose loops are ordered by their repeated work",                       "Jacobian")
OVERLAPPING_BODY        = row(64,      "nodes",          "least body whose last vector overlaps the one before it",                         "tails")
MOST_AFTER_SUMS         = row(512,     "nodes",          "most nodes after the sums of a register tile in copies; more are a loop",         "gelu of a product")
INTERLEAVED             = row(2,       "iterations",     "iterations side by side of a body that waits for its results",                    "chains")
WAITING                 = row(64,      "operations",     "least that wait for others where functions of vectors stand side by side",        "functions")
VECTORS_OF_A_FUNCTION   = row(4,       "vectors",        "most vectors of a function side by side",                                         "functions")

# Loops cut in parts
RUNS_OF_A_NODE          = row(8,       "runs",           "each node of the parts must run at least this often",                             "96 movement ops")
CHUNK_PARTS             = row(8,       "parts",          "a loop's part that runs less than this fraction of it is neither cut nor copied", "prefix sums")
CUT_GROWTH              = row(1.25,    "factor",         "most growth of the code by cuts of a loop that runs seldom",                      "wavelet")
SPECIALISED             = row(16,      "nodes",          "least gain, per iteration, of cutting a loop of a GPU at guards",                 "GPU guards")

# Register tiles: the cost model of `register_tiles.py`
TILE_ROWS               = row(4,       "rows",           "accumulators down a tile of a reduce that is no contraction",                     "distances")
TILE_VECTORS            = row(4,       "vectors",        "accumulators across such a tile, and vectors of a fill side by side",             "distances")
MOST_ROWS               = row(contraction.MOST_ROWS, "rows", "highest tile",                                                                "matmul")
MOST_ALIASED_ROWS       = row(8,       "rows",           "highest tile whose rows lie a multiple of 1 KiB apart",                           "aliased rows")
MOST_VECTORS            = row(contraction.MOST_VECTORS, "vectors", "widest tile",                                                           "matmul")
EDGE                    = row(0.02,    "factor",         "time worth a kind of tile at an edge, which is code to compile",                  "code size")
TYPICAL_LENGTH          = row(960,     "iterations",     "length assumed of a loop of unknown length",                                      "matmul")

# Contractions: operands packed, blocks that stay in caches
LEAST_ROWS_TO_TRANSPOSE = row(4,       "rows",           "fewest rows for which columns are brought into lane order",                       "transposed columns")
LEAST_ROWS_TO_PACK      = row(96,      "rows",           "fewest rows for which an operand larger than PACKED_SHARE is packed",             "packing")
LEAST_ROWS_OF_LINES     = row(32,      "rows",           "the same where a vector is a whole cache line",                                   "packing")
PACKED_SHARE            = row(4,       "L2 / n",         "least operand that is packed for many rows",                                      "packing")
LEAST_ROWS_OF_PAGES     = row(16,      "rows",           "fewest rows for which columns of whole pages are packed",                         "aliased panels")
BLOCK_SHARE             = row(8,       "last cache / n", "block of rows, and of columns' bytes, if rows exceed twice that",                 "large matmul")
FEW_ROWS                = row(256,     "rows",           "most rows for which several panels are packed at once",                           "few rows")
FAR_COLUMNS             = row(2,       "L2 * n",         "least columns that few rows pack in blocks",                                      "few rows")
NEAR_COLUMNS            = row(4,       "L2 / n",         "columns that stay there while blocks of rows pass",                               "passing rows")
PASSING_ROWS            = row(16,      "L2 / n",         "block of such rows, with what is read and written beside the sums",               "passing rows")
LEAST_ROW_BLOCK         = row(16,      "rows",           "least block of rows that a producer fills, or that caches hold",                  "softmax times v")
TILE_PADDING            = row(2.0,     "factor",         "most padding of a loop for the tiles of a matrix unit; not measured",             "matrix units")
TILE_EDGE               = row(1.25,    "factor",         "most padding that two tiles side by side may add to that of one; not measured",   "matrix units")
DOT_ROWS                = row(8,       "rows",           "sums along lanes side by side that share an operand",                             "matrix times vector")
LEAST_ROWS_OF_WORDS     = row(32,      "rows",           "fewest rows of such sums for which the operand is packed in the order of words",  "matrix times vector")

# Streams: reads that neighbouring iterations share
SHARED_ROWS             = row(8,       "rows",           "rows of a stencil side by side, and rows that share a tile of its producer",      "unsharp mask")
MOST_SHARED             = row(1024,    "nodes",          "most nodes of such copies",                                                       "unsharp mask")
HOISTED                 = row(32,      "vectors",        "longest row that becomes copies, so that its constants are computed once",        "batch norm")
HOISTED_ROWS            = row(4,       "rows",           "rows side by side where the row is longer",                                       "batch norm")
CROSSED_BLOCK           = row(128,     "iterations",     "side of the blocks of a transposed read",                                         "transpose and add")
CROSSED_SHARE           = row(16,      "L2 / n",         "the tile of such a block, of an array that L2 does not hold",                     "transpose and add")
COLUMN_VECTORS          = row(8,       "vectors",        "columns summed side by side, and an alternative for columns without sums",        "column sums")
COLUMN_ROWS             = row(2,       "rows",           "rows at a time of these sums",                                                    "column sums")
STREAMED_TOTAL          = row(1.5,     "last cache * n", "least traffic of a kernel that stores past the caches",                           "nontemporal stores")
STREAMED_SHARE          = row(2,       "last cache / n", "least output that goes past the caches",                                          "nontemporal stores")

# Sums in memory
SUMMED                  = row(8,       "rows",           "rows of the array added at a time",                                               "sums in memory")
MOST_SUMMED_ROWS        = row(8,       "rows",           "most rows of the result",                                                         "sums in memory")
SUMMED_SHARE            = row(16,      "L2 / n",         "block of the operands of a long sum with few results",                            "Gram matrix")
LEAST_SUMS              = row(64,      "steps",          "shortest such block: each loads and stores the sums",                             "Gram matrix")
