"""uopc cache: list the compiled programs on disk, explain a hit or miss, or remove them.

examples:
  uopc cache ls              every entry, last used first
  uopc cache why model.py    for each kernel: is it cached and, if not, why
  uopc cache clear           remove everything
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import Any

from uopc import config, driver
from uopc.cache.disk import Store, Unusable
from uopc.cli import load
from uopc.cli.output import Output, Refuse, count
from uopc.errors import UserError
from uopc.ir.core.fingerprint import fingerprint
from uopc.passes.pass_manager import INPUT
from uopc.program import key, record, reuse
from uopc.program.request import lower, prepare

_SHOWN = 12  # characters of a digest
_LONGEST = 60  # characters of a component that is shown; a longer one only "differs"


def arguments(parser: ArgumentParser) -> None:
    """An action, and the graph that `why` is asked about."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("ls", help="list the entries, last used first")
    why = actions.add_parser("why", help="say why each kernel is or is not cached")
    why.add_argument("source", metavar="SOURCE", help="file.py, file.py:name or file.uop")
    actions.add_parser("clear", help="remove everything")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Run the action."""
    place = reuse.store(config.current())
    if place is None:
        out.line("the cache on disk is off: UOPC_CACHE_DIR is empty or 0")
        return 0
    try:
        {"ls": _list, "why": _why, "clear": _clear}[args.action](place, args, out)
    except Unusable as problem:
        raise UserError(f"the cache on disk is not used: {problem}") from None
    return 0


def _clear(place: Store, args: Namespace, out: Output) -> None:
    files, nbytes = place.clear()
    out.line(f"{place.root}: {files} files with {_size(nbytes)} removed")


def _size(nbytes: int) -> str:
    return f"{nbytes / 1024:.1f} KiB" if nbytes < 1 << 20 else f"{nbytes / (1 << 20):.1f} MiB"


# ---------------------------------------------------------------- ls
@dataclass
class Known:
    """An entry with what it says of itself, or why it says nothing."""

    name: str
    nbytes: int
    used: float
    head: record.Entry | None
    problem: str = ""


def _known(place: Store) -> list[Known]:
    """Every entry, last used first. Looking does not count as use."""
    found = []
    for e in place.entries():
        try:
            content = place.read(e.name, touch=False)
            if content is not None:
                found.append(Known(e.name, e.nbytes, e.used, record.read(content)))
        except Unusable as problem:
            found.append(Known(e.name, e.nbytes, e.used, None, str(problem)))
    return found


def _list(place: Store, args: Namespace, out: Output) -> None:
    entries = _known(place)
    total = sum(e.nbytes for e in entries)
    most = _size(place.limit)
    out.line(f"{place.root}: {len(entries)} entries, {_size(total)} of {most}", "bold")
    for e in entries:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(e.used))
        what = f"unusable: {e.problem}" if e.head is None else _kernels(e.head)
        out.line(f" {e.name[:_SHOWN]}  {_size(e.nbytes):>10}  {when}  {what}")


def _kernels(head: record.Entry) -> str:
    names = [name for name, _ in head.kernels]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{count(len(names), 'kernel')}: {', '.join(names[:4])}{more}"


# ---------------------------------------------------------------- why
def _why(place: Store, args: Namespace, out: Output) -> None:
    found = load.load(args.source)
    if found.start != INPUT:
        raise UserError(f"{args.source}: only whole graphs are cached, and this is a later stage")
    options = config.current()
    request = prepare(
        found.graph, None, not options.noopt, None, None, options, device=options.device
    )
    backend = driver.backend_of(request.device)
    machine = backend.target(request.device, options.target_cpu)
    parts = key.request_parts(request, machine, fingerprint(request.graph))
    whole = key.Key((*key.process_parts(), *parts))
    entries = _known(place)
    exact = next((e for e in entries if e.name == whole.digest), None)
    hit = exact is not None and exact.head is not None and not whole.differs(exact.head.key)
    out.line(f"{found.name}: {'hit' if hit else 'miss'}, entry {whole.digest[:_SHOWN]}", "bold")
    if exact is not None and not hit:
        out.line(f"  that entry cannot be used: {exact.problem or 'it is of another key'}")
    lowered = lower(request, machine)
    others = [e for e in entries if e.head is not None and "graph" in e.head.key]
    for name, text in backend.render(lowered, lowered.kernels).items():
        out.line(f"  {name}: {_verdict(whole, name, record.digest_of(text), others, hit)}")


def _verdict(whole: key.Key, name: str, digest: str, entries: list[Known], hit: bool) -> str:
    """Whether a kernel is there; if not, what tells its key from the nearest entry's."""
    if hit:
        return f"hit in {whole.digest[:_SHOWN]}"
    if not entries:
        return "miss: there are no entries"
    near, same, differing = min([_distance(whole, name, digest, e) for e in entries], key=_order)
    what = "the same code" if same == 0 else "other code" if same == 1 else "no such kernel"
    said = "; ".join(differing) or "nothing differs"
    return f"miss: nearest is {near.name[:_SHOWN]} ({what}): {said}"


def _order(found: tuple[Known, int, list[str]]) -> tuple[int, int, float]:
    return found[1], len(found[2]), -found[0].used


def _distance(
    whole: key.Key, name: str, digest: str, entry: Known
) -> tuple[Known, int, list[str]]:
    """An entry; 0 when it has this code, 1 a kernel of this name, 2 neither; what differs."""
    assert entry.head is not None
    kernels = entry.head.kernels
    same = 0 if digest in [d for _, d in kernels] else 1 if name in [n for n, _ in kernels] else 2
    mine: dict[str, Any] = dict(whole.parts)
    theirs = entry.head.key
    said = []
    for part in whole.differs(theirs):
        here, there = mine.get(part, "nothing"), theirs.get(part, "nothing")
        short = max(len(here), len(there)) <= _LONGEST and part not in ("graph", "uopc")
        said.append(f"{part} {here} here, {there} there" if short else f"{part} differs")
    return entry, same, said
