"""The pipeline: every pass in order, and the reasons for the order. Nothing else.

The module of a pass has its name. It is imported when the pass first runs.
"""

import itertools

from uopc.ir.core.levels import HANDWRITTEN, INDEXED, KERNEL, LINEAR, PROGRAM, TENSOR, VECTOR
from uopc.ir.core.ops import GroupOp, Ops
from uopc.passes.conditions import (
    CHOOSES,
    HAS_ROUNDS,
    IS_CUT,
    IS_UNROLLED,
    NO_RULES,
    ON_CPU,
    ON_GPU,
    OPTIMIZES,
    SEVERAL_KERNELS,
    SPLITS,
    TRIMS,
    has,
)
from uopc.passes.contract import Group, Pass

GROUPS: dict[Group, str] = {
    "needed": "runs with optimize=False, too, where a graph has what it changes",
    "speed": "runs with optimize=True alone: the program is right without it, and slower",
    "devices": "for GPUs, and for several devices",
    "kernels": "keeps account of kernels: which are one, which wait, which arrays are constant",
}

PIPELINE: tuple[tuple[int, Pass], ...] = (
    (10, Pass("canonicalize", "needed", "graph", TENSOR, TENSOR, reassociates=True)),
    (11, Pass("narrow-products", "speed", "graph", TENSOR, TENSOR,
              (OPTIMIZES, ON_CPU, has(Ops.REDUCE)), reassociates=True)),
    (12, Pass("partition", "devices", "graph", TENSOR, TENSOR, (IS_CUT,), reassociates=True)),
    (13, Pass("running-totals", "needed", "graph", TENSOR, TENSOR,
              (has(Ops.ACCUMULATE),), reassociates=True)),
    (14, Pass("unroll-devices", "devices", "graph", TENSOR, TENSOR,
              (IS_UNROLLED,), reassociates=True)),
    (15, Pass("split-reduces", "speed", "graph", TENSOR, TENSOR,
              (OPTIMIZES, SPLITS, has(Ops.REDUCE)), reassociates=True)),
    (16, Pass("place-exchanges", "devices", "graph", TENSOR, TENSOR, (has(*GroupOp.Exchange),))),
    (17, Pass("reroll", "needed", "graph", TENSOR, TENSOR,
              (has(Ops.STACK, Ops.CAT, Ops.PAD, Ops.DATA),))),
    (20, Pass("place-stages", "needed", "graph", TENSOR, TENSOR)),
    (30, Pass("rangeify", "needed", "graph", TENSOR, INDEXED)),
    (31, Pass("trim-stores", "speed", "graph", INDEXED, INDEXED,
              (OPTIMIZES, TRIMS, CHOOSES, ON_CPU, has(Ops.REDUCE)))),
    (32, Pass("order-storage", "speed", "graph", INDEXED, INDEXED,
              (OPTIMIZES, CHOOSES, ON_CPU), reassociates=True)),
    (35, Pass("tabulate", "speed", "graph", INDEXED, INDEXED,
              (OPTIMIZES, has(Ops.DATA, Ops.FLOORDIV, Ops.FLOORMOD)))),
    (40, Pass("split-kernels", "needed", "graph", INDEXED, PROGRAM)),
    (42, Pass("join-kernels", "kernels", "graph", PROGRAM, PROGRAM,
              (OPTIMIZES, ON_CPU, SEVERAL_KERNELS))),
    (45, Pass("share-kernels", "kernels", "graph", PROGRAM, PROGRAM, (SEVERAL_KERNELS, NO_RULES))),
    (47, Pass("order-launches", "kernels", "graph", PROGRAM, PROGRAM, (HAS_ROUNDS,))),
    (48, Pass("mark-constants", "kernels", "graph", PROGRAM, PROGRAM, (OPTIMIZES, ON_CPU))),
    (50, Pass("flatten-indices", "needed", "kernel", HANDWRITTEN, KERNEL)),
    (55, Pass("collapse-reduces", "needed", "kernel", KERNEL, KERNEL,
              (has(Ops.REDUCE),), reassociates=True)),
    (60, Pass("simplify-ranges", "speed", "kernel", KERNEL, KERNEL,
              (OPTIMIZES,), reassociates=True)),
    (70, Pass("optimize", "needed", "kernel", KERNEL, KERNEL, reassociates=True)),
    (75, Pass("simplify-values", "speed", "kernel", KERNEL, KERNEL, (OPTIMIZES,))),
    (80, Pass("expand", "needed", "kernel", KERNEL, VECTOR, reassociates=True)),
    (90, Pass("devectorize", "needed", "kernel", VECTOR, VECTOR)),
    (95, Pass("place-threads", "devices", "kernel", VECTOR, VECTOR, (ON_GPU,), reassociates=True)),
    (97, Pass("fetch-ahead", "speed", "kernel", VECTOR, VECTOR, (OPTIMIZES, ON_CPU))),
    (100, Pass("decompose", "needed", "kernel", VECTOR, VECTOR)),
    (110, Pass("apply-rules", "needed", "kernel", VECTOR, VECTOR)),
    (120, Pass("linearize", "needed", "kernel", VECTOR, LINEAR, reassociates=True)),
    (125, Pass("fuse-products", "needed", "kernel", LINEAR, LINEAR, reassociates=True)),
)  # fmt: skip

ORDER: tuple[tuple[str, str, str], ...] = (
    ("canonicalize", "narrow-products", "a sum has one form, and a function is where it is called"),
    ("narrow-products", "partition", "a cut of a sum of words is between words"),
    ("canonicalize", "partition", "functions are inlined, and every op has a layout"),
    ("partition", "running-totals", "the totals of one device begin with those of others"),
    ("running-totals", "unroll-devices", "totals are kernels and sums, which each device has"),
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
    for _, p in PIPELINE:
        group: Group = "speed" if OPTIMIZES in p.conditions else "needed"
        if p.group in ("needed", "speed") and p.group != group:
            raise ImportError(f"passes: {p.name} is {group}: {GROUPS[group]}")
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
