"""uopc cache: list the compiled programs on disk, explain a hit or miss, or remove them.

examples:
  uopc cache ls              every entry, last used first
  uopc cache why model.py    for each kernel: is it cached and, if not, why
  uopc cache rates model.py  the hit rate of each cache when the file is compiled twice
  uopc cache clear           remove everything
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from uopc import config
from uopc.backends.cpu.arguments import describe
from uopc.cache import statistics
from uopc.cache.disk import CachedFile, DiskCache, Unusable
from uopc.cli import load
from uopc.cli.output import Output, Refuse
from uopc.errors import UserError
from uopc.ir.core import shapes, walk
from uopc.ir.core.serialize import fingerprint
from uopc.ir.text.columns import plural
from uopc.passes.pass_manager import INPUT
from uopc.program import planner
from uopc.program.artifact import Artifact
from uopc.program.backend import backend_of, machine_of
from uopc.program.cached import key, record
from uopc.program.cached.kernel_cache import KernelCache
from uopc.program.program import make_program, with_constants_computed
from uopc.program.request import Request, lower, prepare
from uopc.program.tuned import schedules
from uopc.program.tuned.schedules import kernel_key

_SHOWN = 12  # characters of a digest
_MOST_SAID = 4  # differences of graphs
_LONGEST = 60  # characters of a component that is shown; a longer one only "differs"


def arguments(parser: ArgumentParser) -> None:
    """An action, and the graph that `why` explains."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("ls", help="list the entries, last used first")
    why = actions.add_parser("why", help="say why each kernel is or is not cached")
    why.add_argument("source", metavar="SOURCE", help="file.py, file.py:name or file.uop")
    rates = actions.add_parser("rates", help="compile a file twice, show the hits of each cache")
    rates.add_argument("source", metavar="SOURCE", help="file.py, file.py:name or file.uop")
    actions.add_parser("clear", help="remove everything")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Run the action."""
    if args.action == "rates":
        _rates(args.source, out)
        return 0
    disk = DiskCache.of(config.current())
    if disk is None:
        out.line("the cache on disk is off: UOPC_CACHE_DIR is empty or 0")
        return 0
    try:
        if args.action == "ls":
            _list(disk, out)
        elif args.action == "why":
            _why(disk, args.source, out)
        else:
            files, nbytes = disk.clear()
            out.line(f"{disk.root}: {files} files with {_size_text(nbytes)} removed")
    except Unusable as problem:
        raise UserError(f"the cache on disk is not used: {problem}") from None
    return 0


def _size_text(nbytes: int) -> str:
    return f"{nbytes / 1024:.1f} KiB" if nbytes < 1 << 20 else f"{nbytes / (1 << 20):.1f} MiB"


Known = tuple[CachedFile, record.Head | str]  # its head, or the reason why it cannot be used


def _known(disk: DiskCache) -> list[Known]:
    """Every entry, last used first. This does not count as a use."""
    found: list[Known] = []
    for entry in disk.entries():
        try:
            content = disk.read(entry.name, touch=False)
            if content is not None:
                found.append((entry, record.read_head(content)))
        except Unusable as problem:
            found.append((entry, str(problem)))
    return found


def _list(disk: DiskCache, out: Output) -> None:
    entries = _known(disk)
    rows = [*entries, *[(a, None) for a in disk.array_files()]]
    total, most = sum(e.nbytes for e, _ in rows), _size_text(disk.limit)
    out.line(f"{disk.root}: {len(entries)} entries, {_size_text(total)} of {most}", "bold")
    for e, head in sorted(rows, key=lambda row: -row[0].used):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(e.used))
        if head is None:
            what = "arrays of models"
        elif isinstance(head, str):
            what = f"unusable: {head}"
        elif "installation" in head.key:
            what = "this installation"
        elif "model" in head.key:
            what = f"model: {head.key['model']}"
        else:
            names = [name for name, _, _ in head.kernels]
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            what = f"{plural(len(names), 'kernel')}: {', '.join(names[:4])}{more}"
        out.line(f" {e.name[:_SHOWN]}  {_size_text(e.nbytes):>10}  {when}  {what}")


def _why(disk: DiskCache, source: str, out: Output) -> None:
    found = load.load(source)
    request = _request(found, source)
    backend, machine = backend_of(request.device), machine_of(request)
    request = with_constants_computed(request, machine)
    rules = key.rules_identity(request, machine)
    if rules is None:
        raise UserError(
            f"{found.name} is not cached, because its rules read objects that may change"
        )
    components = key.request_components(request, machine, fingerprint(request.graph), rules)
    whole = key.with_process(components)
    entries = _known(disk)
    exact = {e.name: head for e, head in entries}.get(whole.digest)
    hit = isinstance(exact, record.Head) and not whole.differs(exact.key)
    out.line(f"{found.name}: {'hit' if hit else 'miss'}, entry {whole.digest[:_SHOWN]}", "bold")
    if exact is not None and not hit:
        reason = exact if isinstance(exact, str) else "it has another key"
        out.line(f"  that entry cannot be used: {reason}")
    others = [(e, h) for e, h in entries if isinstance(h, record.Head) and "graph" in h.key]

    def graph_of(entry: CachedFile) -> str:
        try:
            found = record.decode(disk.read(entry.name, touch=False) or b"", None, backend.artifact)
        except Unusable:  # of another backend, or gone
            return "graph differs"
        return _graph_differs(request, found)

    known_opts = schedules.current_schedules(request, machine)
    lowered = lower(request, machine, searched=known_opts.apply)
    cached = KernelCache(request, machine, disk, backend.artifact).find(lowered.program)
    of = {k: call.src[0] for call, (k, _) in zip(lowered.program.src, lowered.calls)}
    for k in lowered.kernels:
        if hit:
            said = f"hit in {whole.digest[:_SHOWN]}"
        elif (known := cached.get(of[k])) is not None:
            said = f"hit in {disk.where([known.key])[known.key][:_SHOWN]}, of another program"
        else:
            (source,) = backend.render(lowered, [k]).values()
            said = _miss(whole, k.arg.name, source, others, graph_of)
        if known_opts.chosen.get(kernel_key(of[k], request, machine), "-") not in ("", "-"):
            said += f"; Opts of a search: {' '.join(map(str, k.arg.opts))}"
        out.line(f"  {k.arg.name}: {said}")


def _rates(source: str, out: Output) -> None:
    """The hit rates of the caches over two compiles of a file."""
    found = load.load(source)

    def compile_twice() -> None:
        for _ in range(2):
            make_program(_request(found, source))

    out.table(("cache", "asked", "hits", "rate"), [
        (r.cache, str(r.asked), str(r.hits), f"{r.rate:.0%}")
        for r in statistics.rates(compile_twice) if r.asked
    ])  # fmt: skip


def _request(found: load.LoadedSource, source: str) -> Request:
    """The request that a compile of a file makes."""
    if found.start != INPUT:
        raise UserError(f"{source}: expected a graph before the first pass, got a later stage")
    options = config.current()
    return found.request or prepare(
        found.graph, None, not options.noopt, None, None, options, device=options.device
    )


def _miss(
    whole: record.Key, name: str, source: str, others: list[tuple[CachedFile, record.Head]],
    graph_of: Callable[[CachedFile], str],
) -> str:  # fmt: skip
    """The reason why a kernel is not cached: how its key differs from the nearest entry's."""
    digest = record.digest_of(source)

    def distance(known: tuple[CachedFile, record.Head]) -> tuple[int, int, float]:
        entry, head = known
        names, digests, _ = zip(*head.kernels) if head.kernels else ((), (), ())
        same = 0 if digest in digests else 1 if name in names else 2
        return same, len(whole.differs(head.key)), -entry.used

    if not others:
        return "miss: there are no entries"
    entry, head = near = min(others, key=distance)
    what = ("the same code", "other code", "no such kernel")[distance(near)[0]]
    mine, said = dict(whole.components), []
    for component in whole.differs(head.key):
        here, there = mine.get(component, "nothing"), head.key.get(component, "nothing")
        if component == "graph":
            said.append(graph_of(entry))
            continue
        short = max(len(here), len(there)) <= _LONGEST and component != "uopc"
        said.append(f"{component} {here} here, {there} there" if short else f"{component} differs")
    differing = "; ".join(said) or "nothing differs"
    return f"miss: nearest is {entry.name[:_SHOWN]} ({what}): {differing}"


def _graph_differs(request: Request, found: Artifact) -> str:
    """The differences between the graph of a request and the graph of an entry."""
    plan = found.plan
    inputs = {p.arg.name: _shown(p.dtype.numpy, shapes.shape(p)) for p in request.params}
    outputs = {
        str(i): _shown(v.dtype.numpy, shapes.shape(v))
        for i, v in enumerate(request.facts.results)
    }
    bounds = {v.arg.name: f"{v.arg.low}..{v.arg.high}" for v in walk.variables(request.graph)}
    printed = fingerprint(request.graph)
    parts = (
        ("input", inputs, {a.name: describe(a.dtype, a.shape) for a in plan.arguments}),
        ("output", outputs,
         {str(i): describe(r.dtype, r.shape) for i, r in enumerate(plan.results)}),
        ("variable", bounds, {v.name: f"{v.lo}..{v.hi}" for v in plan.variables}),
        ("its number of", {"nodes": str(printed.nodes)}, {"nodes": str(found.nodes)}),
    )  # fmt: skip
    said = [
        f"{part} {name} is {here.get(name, 'none')} here, {there.get(name, 'none')} there"
        for part, here, there in parts
        for name in {**here, **there}
        if here.get(name) != there.get(name)
    ]
    more = f" and {len(said) - _MOST_SAID} more" if len(said) > _MOST_SAID else ""
    return f"graph differs: {', '.join(said[:_MOST_SAID]) or 'in its operations or numbers'}{more}"


def _shown(dtype: Any, shape: tuple[Any, ...]) -> str:
    return describe(dtype, [planner.dim(d) for d in shape])
