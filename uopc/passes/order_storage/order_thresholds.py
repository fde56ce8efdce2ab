"""The numbers that orders of stored arrays are compared with, one row each: value, unit, meaning.

The last column names a row of docs/lab/schedule.md, as in the thresholds of the schedules.
"""

from __future__ import annotations

from uopc.passes.analysis.thresholds import row

ACCESS       = row(0.5,  "cycles",   "of an access, or of an operation that costs 1: two begin in a cycle",             "orders by layer")
FAR_ACCESS   = row(2.0,  "accesses", "that one takes whose neighbours are elsewhere: it may leave the nearest cache",   "orders by layer")
FAR_FILL     = row(2.0,  "cycles",   "more of an element, the first time, whose neighbours in the lanes are elsewhere", "orders by layer")
CROWDED_FILL = row(16.0, "cycles",   "the same where they share the sets of the nearest cache",                         "orders by layer")
TURNED_FILL  = row(1.0,  "cycles",   "of an element that is turned over in blocks",                                     "orders by layer")
FAR_STEP     = row(3.0,  "cycles",   "more of a step of a tile that reads its rows on another page than before",        "rows on pages")
CROWDED_STEP = row(9.0,  "cycles",   "the same where the steps share the sets of L2",                                   "rows on pages")
PAGE         = row(4096, "bytes",    "of a page",                                                                       "rows on pages")
NEAR_PAGES   = row(192,  "pages",    "that their nearest table holds beside others; fewer cost nothing",                "rows on pages")
L2_WAYS      = row(16,   "ways",     "of L2, in each of which a row of a set has a place",                              "rows on pages")
