"""The pipeline: every pass in order, and the reasons for the order. Nothing else."""

import itertools

from uopc.passes import (
    apply_rules,
    collapse_reduces,
    flatten_indices,
    fuse_products,
    join_kernels,
    mark_constants,
    order_launches,
    place_exchanges,
    share_kernels,
    split_reduces,
    tabulate,
)
from uopc.passes.canonicalize import canonicalize
from uopc.passes.contract import Pass
from uopc.passes.decompose import decompose
from uopc.passes.devectorize import devectorize
from uopc.passes.expand import expand
from uopc.passes.fetch_ahead import fetch_ahead
from uopc.passes.linearize import linearize
from uopc.passes.optimize import optimize
from uopc.passes.order_storage import order_storage
from uopc.passes.partition import partition
from uopc.passes.place_stages import place_stages
from uopc.passes.place_threads import place_threads
from uopc.passes.rangeify import rangeify
from uopc.passes.reroll import reroll
from uopc.passes.simplify_ranges import simplify_ranges
from uopc.passes.simplify_values import simplify_values
from uopc.passes.split_kernels import split_kernels
from uopc.passes.trim_stores import trim_stores
from uopc.passes.unroll_devices import unroll_devices

PIPELINE: tuple[tuple[int, Pass], ...] = (
    (10, canonicalize.PASS),
    (11, partition.PASS),
    (12, unroll_devices.PASS),
    (13, split_reduces.PASS),
    (14, place_exchanges.PASS),
    (15, reroll.PASS),
    (20, place_stages.PASS),
    (30, rangeify.PASS),
    (31, trim_stores.PASS),
    (32, order_storage.PASS),
    (35, tabulate.PASS),
    (40, split_kernels.PASS),
    (42, join_kernels.PASS),
    (45, share_kernels.PASS),
    (47, order_launches.PASS),
    (48, mark_constants.PASS),
    (50, flatten_indices.PASS),
    (55, collapse_reduces.PASS),
    (60, simplify_ranges.PASS),
    (70, optimize.PASS),
    (75, simplify_values.PASS),
    (80, expand.PASS),
    (90, devectorize.PASS),
    (95, place_threads.PASS),
    (97, fetch_ahead.PASS),
    (100, decompose.PASS),
    (110, apply_rules.PASS),
    (120, linearize.PASS),
    (125, fuse_products.PASS),
)

ORDER: tuple[tuple[str, str, str], ...] = (
    ("canonicalize", "partition", "functions are inlined, and every op has a layout"),
    ("partition", "unroll-devices", "the graph of one device is unrolled for all of them"),
    ("unroll-devices", "place-exchanges", "exchanges in one process are copies and sums"),
    ("partition", "split-reduces", "a reduce is split by the length that one device has"),
    ("partition", "place-exchanges", "exchanges are values before they have storage"),
    ("canonicalize", "reroll", "expressions are compared in one form"),
    ("reroll", "place-stages", "many single elements are one value before storage is chosen"),
    ("canonicalize", "place-stages", "a value that is removed must not be considered for storage"),
    ("place-stages", "rangeify", "loops are made for stored values only"),
    ("rangeify", "trim-stores", "masks are comparisons of the loops that stores and reads have"),
    ("trim-stores", "order-storage", "a mask moves to a read by the axes that storage has yet"),
    ("rangeify", "order-storage", "loops show which elements are read beside each other"),
    ("order-storage", "split-kernels", "storage has axes until each index is one number"),
    ("rangeify", "tabulate", "tables replace index expressions, which appear with the loops"),
    ("tabulate", "split-kernels", "a table is an argument of the kernel that reads it"),
    ("rangeify", "split-kernels", "a kernel is a closed store, and stores appear with the loops"),
    ("split-kernels", "join-kernels", "the arrays that kernels share are known after the split"),
    ("join-kernels", "share-kernels", "joined kernels are final, so they can be compared"),
    ("split-kernels", "share-kernels", "kernels are compared once they are kernels"),
    ("join-kernels", "order-launches", "a launch waits for what each of its stores reads"),
    ("share-kernels", "mark-constants", "all launches of a kernel say which arrays are constant"),
    ("mark-constants", "optimize", "the schedule chooses the order of constants"),
    ("share-kernels", "flatten-indices", "equal kernels are merged before each is lowered"),
    ("split-kernels", "flatten-indices", "storage is an argument before its index is one number"),
    ("flatten-indices", "collapse-reduces", "ranges are compared directly once indices are flat"),
    ("collapse-reduces", "simplify-ranges", "a loop that vanishes must not hinder a merge"),
    ("simplify-ranges", "optimize", "a long loop vectorises better than two short ones"),
    ("optimize", "simplify-values", "Opts use divisions of merged loops; simplify rewrites them"),
    ("simplify-values", "expand", "one body is simplified, not its copies"),
    ("optimize", "expand", "lanes and copies are chosen before they are spelled out"),
    ("expand", "devectorize", "only vector indices show which accesses are neighbours"),
    ("devectorize", "place-threads", "a store becomes a vector access before it gets a gate"),
    ("devectorize", "fetch-ahead", "what is fetched ahead is a vector of neighbours"),
    ("fetch-ahead", "decompose", "indices are sums of loops before functions are taken apart"),
    ("place-threads", "decompose", "thread positions use // and %, which decompose expands"),
    ("devectorize", "decompose", "index arithmetic folds best before divisions are taken apart"),
    ("decompose", "apply-rules", "the user's rules see the kernel as it will be"),
    ("apply-rules", "linearize", "order is chosen for the final operations"),
    ("linearize", "fuse-products", "sums that collect a reduce appear with its registers"),
)


def _check() -> None:
    names = [p.name for _, p in PIPELINE]
    for (i, a), (k, b) in itertools.pairwise(PIPELINE):
        if i >= k:
            raise ImportError(f"passes: {k} {b.name} stands below {i} {a.name}: numbers rise")
    for first, second, reason in ORDER:
        if unknown := {first, second} - set(names):
            raise ImportError(f"passes: ORDER names {', '.join(unknown)}, which is no pass")
        if names.index(first) > names.index(second):
            raise ImportError(f"passes: {first} must come before {second}: {reason}")
    for (_, a), (_, b) in itertools.pairwise(PIPELINE):
        fits = a.promises is b.accepts or (a.scope == "graph" and b.scope == "kernel")
        if not fits:
            gives, takes = a.promises.text, b.accepts.text
            raise ImportError(f"passes: {a.name} gives {gives}, {b.name} takes {takes}")


_check()
