"""The number of kernels that a program launches, counted as the corpus counts them.

Two kinds of launches are copies, which the corpus counts as no kernels: those that move storage in
order where the recorded graph has COPYs, and those that fill an output whose value is a view of
storage. The latter do not exist where outputs are views of buffers; here every output is an array
of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.conformance import loader
from tests.conformance.corpus import Case
from tests.conformance.loader import USER_KERNEL
from uopc import config
from uopc.backends import detect
from uopc.ir.core import arena, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp
from uopc.passes import PIPELINE
from uopc.passes.pass_manager import StageRun
from uopc.program.request import make_context, prepare


@dataclass(frozen=True)
class Count:
    """Outer loop nests over all launches; launches that only fill outputs with views."""

    kernels: int
    copied_outputs: int


def count(runs: Sequence[StageRun], copies: int) -> Count:
    """From the stages of a program whose recorded graph has some COPYs."""
    stages = {r.name: r for r in runs}
    views = _copied_views(stages["place-stages"].after[0], stages["split-kernels"].before[0])
    # The kernel of each launch, as it was before its ranges were cut.
    calls = stages["split-kernels"].after[0].src
    kernels = [c.src[0] for c in calls if c.src[1] not in views]
    moved = sum(_is_copy(k) for k in kernels)
    nests = sum(_nests(k) for k in kernels)
    return Count(nests - min(moved, copies), len(calls) - len(kernels))


def count_graph(case: Case) -> Count:
    """The same without machine code: a case's graph as far as its kernels."""
    outputs = tuple(loader.load(case).outputs)
    with arena.arena():
        request = prepare(outputs, None, True, 1, None, config.current())
        context, graph, runs = make_context(request, detect.host()), request.graph, []
        for number, p in PIPELINE:
            if p.scope == "graph":
                made = p.run(graph, context)
                runs.append(StageRun(number, p.name, p.promises, [graph], [made]))
                graph = made
        return count(runs, loader.copies(case))


def _copied_views(placed: UOp, indexed: UOp) -> set[UOp]:
    """The buffers of outputs that are stored though nothing is computed, and nobody asked to."""
    return {
        before_effects(storage)
        for stage, storage in zip(placed.src, indexed.src)
        if stage.op is Ops.STAGE and stage.arg.reason != "contiguous" and _is_shown(stage.src[0])
    }


def _is_shown(value: UOp) -> bool:
    """True if a value, seen through views, is storage or a constant."""
    while value.op.movement or value.op in (Ops.BITCAST, Ops.AFTER):
        value = value.src[0]
    if value.op is Ops.CAST and value.src[0].op is Ops.VARIABLE:  # recorded as an integer already
        value = value.src[0]
    return value.op in _SHOWN


_SHOWN = (Ops.PARAM, Ops.BUFFER, Ops.DATA, Ops.STAGE, Ops.CONST, Ops.VARIABLE, Ops.INVALID)


def _nests(kernel: UOp) -> int:
    """Stores under the same loops are one nest; a hand-written kernel is one as it is."""
    if kernel.arg is not None and kernel.arg.name.startswith(USER_KERNEL):
        return 1
    return len({frozenset(_loops(root)) for root in _effects(kernel)})


def _effects(kernel: UOp) -> list[UOp]:
    """The writes of the kernel to memory of the program, those that it reads back too."""
    found = dict.fromkeys(kernel.src)
    for u in walk.toposort(kernel):
        if u.op is Ops.AFTER and u.src[0].arg.space == "global":
            found.update(dict.fromkeys(s for s in u.src[1:] if s.op in (Ops.END, Ops.STORE)))
    return list(found)


def _loops(effect: UOp) -> tuple[UOp, ...]:
    return effect.src[1:] if effect.op is Ops.END else ()


def _is_copy(kernel: UOp) -> bool:
    """One store, of elements as they were read and in that order."""
    if len(kernel.src) != 1:
        return False
    root = kernel.src[0]
    store = root.src[0] if root.op is Ops.END else root
    if store.op is not Ops.STORE or store.src[1].op is not Ops.INDEX:
        return False
    if store.src[1].src[0].op is not Ops.PARAM:  # of a tile that the kernel computes
        return False
    return store.src[0].src[1:] == store.src[1].src[1:]
