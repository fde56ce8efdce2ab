"""A search for each kernel of a request that the database does not know: `compile(beam=N)`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from uopc.cache.tuned import SearchRow, Store
from uopc.errors import Error
from uopc.ir.builder import rebuild
from uopc.ir.core import storage, walk
from uopc.ir.core.args import KernelArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import typical_value
from uopc.ir.records import dataclass
from uopc.passes.analysis.kernel_names import shape_name
from uopc.passes.contract import Context
from uopc.program.request import Request, prepare
from uopc.program.tuned import kernel_opts
from uopc.program.tuned.schedules import opts_text, searching
from uopc.search import edits
from uopc.search.beam import Bench, SearchResult, search
from uopc.search.workers import Workers

SECONDS = 5.0  # a kernel's search lasts at most this long, times the width


@dataclass(frozen=True)
class Session:
    """A search of several kernels. `begin` makes the Bench of a kernel, for values of its
    variables; `width`: the lists that stay in each round; `seconds`: the most time for a kernel."""

    begin: Callable[[Request, dict[str, int]], Bench]
    width: int
    seconds: float

    def finder(self, request: Request, store: Store) -> Searcher:
        """The function that searches the kernels of a request."""
        return Searcher(request, store, self)


@contextlib.contextmanager
def session(width: int) -> Iterator[None]:
    """Search each new kernel that is compiled in this block, unless a search runs already."""
    if searching.get() is not None:
        yield
        return
    with Workers() as workers:
        token = searching.set(Session(workers.bench, width, SECONDS * width))
        try:
            yield
        finally:
            searching.reset(token)


@dataclass(frozen=True)
class Searcher:
    """Finds rows, and puts them into a store."""

    request: Request
    store: Store
    session: Session

    def __call__(self, kernel: UOp, call: UOp, own: str, context: Context) -> SearchRow:
        name = shape_name(kernel_opts.before_opts(kernel, context))
        sizes = _sizes(kernel, self.request)
        try:
            alone = standalone(kernel, call, self.request)
            found = self._search(alone, kernel, sizes, context)
        except Error as why:
            found = SearchResult(None, 0.0, 0.0, f"not measured: {why}")
        opts = None if found.opts is None else opts_text(found.opts)
        at = "".join([f"{n}={v} " for n, v in sizes.items()])
        row = SearchRow(
            own, self.store.machine, self.store.version, name, opts, found.before, found.after,
            f"{at}{found.why}", time.time(),
        )  # fmt: skip
        self.store.put(row)
        return row

    def _search(
        self, alone: Request, kernel: UOp, sizes: dict[str, int], context: Context
    ) -> SearchResult:
        moves = edits.Moves(kernel_opts.before_opts(kernel, context), context)
        end = time.monotonic() + self.session.seconds
        bench, width = self.session.begin(alone, sizes), self.session.width
        return search(bench, moves, width, lambda: time.monotonic() > end)


def _sizes(kernel: UOp, request: Request) -> dict[str, int]:
    """The value of each variable for measuring: the value that the graph binds, or about 256."""
    found = {v.arg.name: v.arg for v in walk.variables(kernel)}
    return {n: request.bound.get(n, typical_value(v.low, v.high)) for n, v in found.items()}


def standalone(kernel: UOp, call: UOp, request: Request) -> Request:
    """A request for one kernel, with arguments in the order of their slots and with the call's
    numbers as constants."""
    args = storage.arguments(call)
    params = sorted([u for u in walk.nodes(kernel) if u.op is Ops.PARAM], key=lambda u: u.arg.slot)
    new: dict[UOp, UOp] = {}
    for i, p in enumerate(params):
        new[p] = intern(p.op, p.dtype, p.src, replace(p.arg, slot=i, name=f"s{i}"), p.tag)
    for u in walk.nodes(kernel):
        if u.op is Ops.NUMBER:
            new[u] = args[u.arg.slot]
    alone = rebuild.rebuild(kernel, new)
    alone = intern(alone.op, alone.dtype, alone.src, KernelArg())
    options = replace(request.options, beam=0, cache_dir="", programs=0, debug=0, viz="")
    return prepare(
        alone, None, True, request.threads, request.name, options, device=request.device
    )
