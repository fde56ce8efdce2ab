"""A schedule as a file: a graph with the Opts of each of its kernels, to be replayed.

The file has the form of the stage `input` (see `uopc dump --out`). Its first lines also name each
kernel with its Opts, each launch with its buffers, and the arguments of `compile`. Constant arrays
are files next to it. Users may edit the Opts.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from uopc import config, target
from uopc.dump import files
from uopc.dump.stages import Dump
from uopc.errors import InvalidIR, Unsupported, UserError
from uopc.ir.core.args import KernelArg, Opt
from uopc.ir.core.serialize import fingerprint
from uopc.ir.text.parser import parse, parse_header
from uopc.passes.pass_manager import INPUT, Lowered
from uopc.program.program import Program
from uopc.program.request import Request, prepare
from uopc.program.tuned.schedules import OPT

_PLAIN = (str, int, float, bool)


def save(program: Program, file: Path) -> None:
    """Write the schedule of a program to a file. Errors are those of `write`."""
    write(file, program._source.request, program._source.lowered, launched(program))


def write(file: Path, request: Request, lowered: Lowered, launches: Sequence[str] = ()) -> None:
    """Write a request and the Opts of its kernels. UserError if the file cannot be written;
    Unsupported for rules, which are functions, and for results by keys that JSON lacks."""
    if request.rules:
        raise Unsupported("a schedule with rules cannot be saved: rules are functions")
    if request.nesting is not None:
        raise Unsupported(
            "a schedule cannot save nested containers of results: compile a dict of"
            f" {', '.join(map(repr, request.keys))}"
        )
    if not all(type(k) in _PLAIN for k in request.keys):
        raise Unsupported(
            f"the keys of results must be strings or numbers in a schedule, got {request.keys}"
        )
    optimized = [run for run in lowered.runs if run.name == "optimize"]
    kernels = [k.arg for run in optimized for k in run.after]
    if odd := [k.name for k in kernels if len(k.name.split()) != 1]:
        raise Unsupported(f"the name of a kernel must have no spaces in a schedule, got {odd[0]!r}")
    settings = {
        "structure": request.structure, "keys": request.keys, "name": request.name,
        "inputs": [p.arg.name for p in request.params], "bound": dict(request.bound),
    }  # fmt: skip
    lines = [f"// schedule: {json.dumps(settings)}\n"]
    for i, k in enumerate(kernels):
        lines.append(f"// kernel-{i}: {' '.join([k.name, *map(str, k.opts or ())])}\n")
    for i, text in enumerate(launches):
        lines.append(f"// launch-{i}: {text}\n")
    text = Dump(lowered).text(INPUT)
    files.write_text(file, "".join(lines) + text)
    files.write_arrays(file.parent, fingerprint(lowered.runs[0].before[0]).arrays)


def launched(program: Program) -> list[str]:
    """A line for each launch: the kernel and its buffers."""
    lines = [" ".join([la.kernel.name, *map(str, la.buffers)]) for la in program.launches]
    return [line.encode("unicode_escape").decode() for line in lines]


def saved_opts(noted: Mapping[str, str]) -> tuple[KernelArg, ...] | None:
    """The kernels and Opts in the first lines of a file; None if there is no schedule."""
    if "schedule" not in noted:
        return None
    return tuple([_kernel(text) for text in _numbered(noted, "kernel")])


def _numbered(noted: Mapping[str, str], what: str) -> list[str]:
    found = {k: v for k, v in noted.items() if re.fullmatch(rf"{what}-\d+", k)}
    return [found.get(f"{what}-{i}", "") for i in range(len(found))]


def _kernel(text: str) -> KernelArg:
    name, _, opts = text.partition(" ")
    if not name or OPT.sub("", opts).strip():
        raise InvalidIR(
            f"saved kernel: expected a name and Opts such as UNROLL(1, 4), got {text!r}"
        )
    return KernelArg(name, tuple([Opt(op, int(a), int(b)) for op, a, b in OPT.findall(opts)]))


def read(file: Path) -> tuple[Request, Sequence[str]]:
    """The request of a saved schedule, and a line for each launch. UserError for another file."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: {error}") from None
    noted = parse_header(text)
    opts = saved_opts(noted)
    if opts is None:
        raise UserError(
            f"{file}: not a saved schedule; uopc.save_schedule(program, file) writes a schedule"
        )
    graph = parse(text, files.read_arrays(file, text))
    settings = _settings(file, noted["schedule"])
    cpu = noted.get("cpu", "")
    options = dataclasses.replace(
        config.current(), tf32=noted.get("tf32") == "yes",
        target_cpu=cpu if cpu in target.CPUS else config.current().target_cpu,
    )  # fmt: skip
    threads = noted.get("threads", "")
    request = prepare(
        graph, settings["inputs"], noted.get("optimize") != "no",
        int(threads) if re.fullmatch(r"\d{1,9}", threads) else None, settings["name"], options,
        device=noted.get("device", "cpu"),
    )  # fmt: skip
    if settings["structure"] != "kernel":
        count = len(request.facts.results)
        if settings["structure"] == "single" and count != 1:
            raise InvalidIR(f"{file}: expected a single result, got {count}")
        if settings["structure"] == "dict" and count != len(settings["keys"]):
            raise InvalidIR(
                f"{file}: expected {count} keys, one per result, got {len(settings['keys'])}"
            )
    request = dataclasses.replace(
        request, structure=settings["structure"], keys=tuple(settings["keys"]),
        bound=settings["bound"], opts=opts,
    )  # fmt: skip
    return request, _numbered(noted, "launch")


def _settings(file: Path, text: str) -> dict[str, Any]:
    """The arguments of `compile` in a file. InvalidIR if `save` cannot have written them."""
    kinds = {"structure": str, "keys": list, "name": str, "inputs": list, "bound": dict}
    try:
        found = json.loads(text)
        good = isinstance(found, dict) and all(type(found.get(k)) is t for k, t in kinds.items())
    except (ValueError, RecursionError):
        good = False
    if good:
        structures = ("single", "tuple", "list", "dict", "kernel")
        good = found["structure"] in structures and all(type(k) in _PLAIN for k in found["keys"])
        good = good and all(type(n) is str for n in found["inputs"])
        good = good and all(type(v) is int for v in found["bound"].values())
    if not good:
        raise InvalidIR(f"{file}: the line schedule is damaged: {text[:200]}")
    return found  # type: ignore[no-any-return]


def check_launches(file: Path, program: Program, saved: Sequence[str]) -> None:
    """UserError if a replayed program has other launches than the file."""
    made = launched(program)
    if made != list(saved):
        at = next((i for i, (a, b) in enumerate(zip(made, saved)) if a != b), None)
        where = f"{len(made)} launches for {len(saved)}"
        if at is not None:
            where = f"launch {at} is {made[at]!r}, saved {saved[at]!r}"
        raise UserError(f"{file}: the schedule cannot be replayed by this version: {where}")
