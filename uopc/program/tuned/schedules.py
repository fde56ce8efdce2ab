"""The Opts that searches found, given to the kernels of a program before their passes run.

A compile takes the Opts that the database has. Unknown kernels are searched only while a search
runs (`searching`), as in `compile(beam=N)` and `uopc tune`: see `uopc/search/`.

The key of a search is the structure of the kernel, the options that shape code, the machine, and
the version of this package with its LLVM. If one of these changes, the result no longer applies.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from uopc import config
from uopc.cache import tuned
from uopc.cache.tuned import SearchRow
from uopc.errors import Unsupported
from uopc.ir.builder.programs import with_kernels
from uopc.ir.core.args import KernelArg, Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import fingerprint
from uopc.ir.core.uop import UOp
from uopc.program.cached import key, record
from uopc.program.request import Request
from uopc.target import Target

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.passes.contract import Context
    from uopc.program.request import Searched
    from uopc.program.tuned.kernel_opts import Opts

# Makes a row for a kernel that has none, called as a CALL calls it; None if it cannot.
Find = Callable[["UOp", "UOp", str, "Context"], "SearchRow | None"]


class RunningSearch(Protocol):
    """A running search, which makes the rows that the store of a request lacks."""

    def finder(self, request: Request, store: tuned.Store) -> Find: ...


searching: ContextVar[RunningSearch | None] = ContextVar("searching", default=None)
OPT = re.compile(r"(\w+)\((-?\d{1,18}), (-?\d{1,18})\)")


def opts_text(opts: Opts) -> str:
    """Opts as text: `VECTOR(0, 8) UPCAST(0, 2)`."""
    return " ".join(map(str, opts))


def opts_of(text: str) -> Opts | None:
    """The Opts of a text; None if the text is damaged."""
    found = tuple([Opt(op, int(a), int(b)) for op, a, b in OPT.findall(text)])
    return found if opts_text(found) == text else None


def kernel_key(kernel: UOp, request: Request, machine: Target) -> str:
    """The key of a search, apart from machine and version: the structure of a kernel before its
    passes, and the options that shape its code."""
    plain = kernel.replace(arg=KernelArg())
    parts = [(n, v) for n, v in key.code_components(request, machine) if n != "machine"]
    return record.digest(f"{fingerprint(plain).digest} {parts}")


class Schedules:
    """The Opts of the kernels of one request. `chosen`: by kernel key, the Opts that the kernel
    got, as text; "-" if the schedule's own list is the best, and an empty text if there was no
    search.

    `find` searches if the database has nothing. `known` replaces the database: a program that is
    lowered again gets the Opts of its first compile.
    """

    def __init__(
        self, request: Request, machine: Target, store: tuned.Store, find: Find | None = None,
        known: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.request, self.machine, self.store = request, machine, store
        self.find, self.known = find, known
        self.chosen: dict[str, str] = {}

    @property
    def used(self) -> bool:
        """False for requests that name their Opts, have rules, or are not optimised."""
        r = self.request
        return r.optimize and r.opts is None and not r.rules and self.machine.rules is None

    def apply(self, program: UOp, context: Context) -> UOp:
        """Make the kernels of a program, a LINEAR of CALLs, ask for the Opts that were found."""
        if not self.used:
            return program
        from uopc.program.tuned import kernel_opts

        new: dict[UOp, UOp] = {}
        for call in program.src:
            kernel = call.src[0]
            if kernel in new or kernel.op is not Ops.SINK:
                continue
            arg = kernel.arg
            new[kernel] = kernel
            if not isinstance(arg, KernelArg) or arg.opts is None:
                opts = self._opts(call, context)
                new[kernel] = kernel if opts is None else kernel_opts.with_opts(kernel, opts)
        return with_kernels(program, new)

    def _opts(self, call: UOp, context: Context) -> Opts | None:
        """The Opts of a kernel; None if the schedule's own list stays."""
        kernel = call.src[0]
        own = kernel_key(kernel, self.request, self.machine)
        if self.known is not None:
            text = self.known.get(own, "-")
        else:
            row = self.store.find(own)
            if row is None and self.find is not None:
                row = self.find(kernel, call, own, context)
            text = self.chosen[own] = _text(row)
        opts = None if text in ("", "-") else opts_of(text)
        if opts is None:
            return None
        from uopc.passes.optimize.opts.substitution import Tiled
        from uopc.program.tuned import kernel_opts

        base = Tiled(kernel_opts.before_opts(kernel, context))
        return opts if kernel_opts.replayed(base, opts) is not None else None

    def agrees(self, chosen: Mapping[str, str], searches: bool) -> bool:
        """True if the kernels of a program would get these Opts again now. `searches`: kernels that
        the database does not know would be searched, so the answer for these is no."""
        return not self.used or all(
            (text == "" and not searches) if row is None else text == _text(row)
            for own, text in chosen.items() for row in [self.store.find(own)]
        )  # fmt: skip


def _text(row: SearchRow | None) -> str:
    if row is None:
        return ""
    return "-" if row.opts is None else row.opts


def names(machine: Target) -> tuple[str, str]:
    """The digests that rows belong to: of a machine, and of this version with its LLVM."""
    return key.machine_digest(machine), record.digest(repr(key.process_components()))


def store(request: Request, machine: Target) -> tuned.Store:
    """The rows for a machine and this version; without a cache on disk, the rows of this
    process."""
    folder = config.cache_folder(request.options)
    if folder is None:
        return tuned.Store(key.machine_digest(machine), "")
    return tuned.Store(*names(machine), tuned.Database(folder))


def check_device(request: Request) -> None:
    """Unsupported if nothing can be measured: on a GPU that is only described."""
    if request.device.startswith("cuda:sm_"):
        raise Unsupported(
            f"beam (UOPC_BEAM): a search measures, which {request.device} cannot"
        )


def current_schedules(request: Request, machine: Target) -> Schedules:
    """The schedules that the database has for a request."""
    return Schedules(request, machine, store(request, machine))


def session(beam: int) -> contextlib.AbstractContextManager[None]:
    """Search the kernels that are compiled in this block, if `beam` asks for a search."""
    if not beam:
        return contextlib.nullcontext()
    searcher = import_module("uopc.search.searcher")  # above this package, and seldom needed
    session: contextlib.AbstractContextManager[None] = searcher.session(beam)
    return session


def of_compile(request: Request, machine: Target) -> Schedules:
    """The schedules of a compile: from the database, and from the running search, if any."""
    made, search = current_schedules(request, machine), searching.get()
    if made.used and search is not None:
        check_device(request)
        made.find = search.finder(request, made.store)
    return made


def holds(request: Request, machine: Target, chosen: Sequence[tuple[str, str]]) -> bool:
    """True if the kernels of a program would get the same Opts now."""
    made = current_schedules(request, machine)
    return made.agrees(dict(chosen), searching.get() is not None)


def replay_schedules(
    request: Request, machine: Target, chosen: Sequence[tuple[str, str]]
) -> Searched | None:
    """The function that gives each kernel of a program its old Opts; None if none was found."""
    known = {own: text for own, text in chosen if text not in ("", "-")}
    if not known:
        return None
    return Schedules(request, machine, store(request, machine), known=known).apply
