"""The moves of the search: a list of Opts becomes its neighbours, each of which is legal.

A move adds an Opt at the end, removes an Opt, or changes an amount. The Opts after it stay as they
are, so some lists are refused; these are no neighbours. A neighbour comes with its cost, for which
no code is made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.ir.core.args import Opt
from uopc.ir.core.uop import UOp
from uopc.ir.nest.describe import outline_of
from uopc.ir.nest.loops import length_of
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis import thresholds
from uopc.passes.contract import Context
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.passes.optimize.schedule import cpu
from uopc.program.tuned.kernel_opts import Opts, replayed
from uopc.search.beam import Priced

MOST_OPTS = 32  # in a list that grows
MOST_CODE = 4 * thresholds.MOST_COPIES  # nodes of a kernel with its copies
# Amounts to try by Opt. `lanes`: of a vector of the widest elements; `threads`: those of the
# request; `loops`: the number of another loop.
_OF_CPU: dict[str, tuple[int | str, ...]] = {
    "VECTOR": ("lanes",), "OVERLAP": ("lanes",), "UPCAST": (2, 3, 4, 6, 8), "UNROLL": (0, 2, 4, 8),
    "TILE": (4, 16, 64, 256), "BLOCK": (16, 64, 256), "PADTO": ("lanes",), "SPLIT": ("lanes",),
    "SPLIT_AT": ("lanes",), "SWAP": ("loops",), "COALESCE": ("loops",), "PACK": (0, 1, 2),
    "COMPUTE_AT": (0, 1), "REUSE": (0,), "REDUCE_OUT": ("loops",), "DISTRIBUTE": (1, 4),
    "NONTEMPORAL": (0,), "THREAD": ("threads",),
}  # fmt: skip
_OF_GPU: dict[str, tuple[int | str, ...]] = {
    "UPCAST": (2, 4, 8), "UNROLL": (0, 4, 8), "SWAP": ("loops",), "COALESCE": ("loops",),
    "LOCAL": (8, 16, 32, 128, 256), "GRID": (0,), "GROUP": (32, 128), "GROUPTOP": (8, 16),
    "PACK": (0, 1, 2), "VECTOR": (2, 4), "PIPELINE": (2, 3), "TC": (0,),
}  # fmt: skip


class Moves:
    """The neighbours of lists, for a kernel as `before_opts` gives it."""

    def __init__(self, kernel: UOp, context: Context) -> None:
        self.base, self.context, self.target = Tiled(kernel), context, context.target
        self.amounts = _OF_CPU if self.target.gpu is None else _OF_GPU
        sizes = [u.dtype.scalar.itemsize for u in kernel.toposort() if u.dtype.is_float]
        lanes = self.target.lanes(8 * max(sizes, default=4))
        threads = (context.threads,) if context.threads > 1 else ()
        widths = lanes, lanes // 2, 2 * lanes
        self.given: dict[str, tuple[int, ...]] = {"lanes": widths, "threads": threads}

    def starts(self) -> Iterator[Priced]:
        """The empty list, and the schedule's list with each option of its decisions."""
        found: list[Opts] = [()]
        if self.target.gpu is None:
            found += cpu.offered_opts(self.base.kernel, self.context)
        for opts in dict.fromkeys(found):
            yield from self._priced(opts, replayed(self.base, opts))

    def neighbours(self, opts: Opts) -> Iterator[Priced]:
        """Each legal list that is one move away. The lists are in no order."""
        after = [self.base]
        for opt in opts:
            grown = replayed(after[-1], (opt,))
            if grown is None:
                return
            after.append(grown)
        moves = [
            (i, (*middle, *opts[i + 1 :]))
            for i, opt in enumerate(opts) for middle in ((), *[(o,) for o in _other_amounts(opt)])
        ]  # fmt: skip
        if len(opts) < MOST_OPTS:
            moves += [(len(opts), (opt,)) for opt in self._actions(after[-1])]
        random.Random(0).shuffle(moves)
        for kept, rest in moves:
            yield from self._priced((*opts[:kept], *rest), replayed(after[kept], rest))

    def _priced(self, opts: Opts, made: Tiled | None) -> Iterator[Priced]:
        """A list with the cost of its kernel, unless the list is refused or makes too much code. On
        a GPU, where no cost is known, all kernels cost the same."""
        if made is None or nest_of(made.kernel).expanded_size() > MOST_CODE:
            return
        if self.target.gpu is not None:
            yield Priced(1.0, opts)
        else:
            yield Priced(cycles(outline_of(made.kernel), machine_of(self.target)), opts)

    def _actions(self, kernel: Tiled) -> Iterator[Opt]:
        """The Opts that may be legal next, without those that make too much code."""
        nest, axes = nest_of(kernel.kernel), kernel.axes
        self.given["loops"] = tuple(range(len(axes)))
        for axis, r in enumerate(axes):
            if r.arg.kind not in ("loop", "reduce"):
                continue
            most = MOST_CODE // max(1, nest.expanded_size(r))  # copies
            for op, amounts in self.amounts.items():
                for amount in amounts:
                    for n in (amount,) if isinstance(amount, int) else self.given[amount]:
                        copies = n or length_of(r) or 1
                        if op not in ("UPCAST", "UNROLL") or copies <= most:
                            yield Opt(op, axis, n)


_SIZED = ("VECTOR", "OVERLAP", "UPCAST", "UNROLL", "TILE", "BLOCK", "SPLIT", "DISTRIBUTE")


def _other_amounts(opt: Opt) -> list[Opt]:
    if opt.op not in _SIZED or opt.arg < 1:
        return []
    near = dict.fromkeys((opt.arg // 2, opt.arg * 2, opt.arg - 1, opt.arg + 1))
    if opt.op in ("VECTOR", "OVERLAP"):
        near = dict.fromkeys((opt.arg // 2, opt.arg * 2))
    return [Opt(opt.op, opt.axis, n) for n in near if n > 0]
