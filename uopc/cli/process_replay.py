"""Process replay: the kernels of a corpus from two versions of the compiler.

A recording is a folder of

    replay.json         the version of the format, the machine, the name of each program
    0000.uop            the first program: its graph and the arguments of compile, its arrays beside
    0000.kernels.json   of each kernel the name, the Opts, the UOps in order, the LLVM IR
    0000.code           the plan and the machine code, behind a digest, as the disk cache has them

A later version compiles the graphs again. Kernels are compared as text. If this machine is the
machine of the recording, the code of both versions runs in turns on the same arrays.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from uopc.cache import disk
from uopc.dump import files
from uopc.errors import InvalidIR, UserError
from uopc.ir.core.arena import arena
from uopc.ir.core.serialize import fingerprint
from uopc.ir.records import dataclass
from uopc.ir.text.printer import print_graph
from uopc.program import saved
from uopc.program.artifact import Artifact
from uopc.program.backend import Backend, backend_of
from uopc.program.cached import key, record
from uopc.program.cached.kernel_cache import KernelCache
from uopc.program.make_artifact import make_artifact
from uopc.program.request import Request
from uopc.program.speed import random_inputs

FORMAT = 2
INDEX = "replay.json"
ROUNDS, SAMPLES = 5, 4  # old and new code take turns; a turn takes several samples of each launch


@dataclass(frozen=True)
class ReplayedKernel:
    """A kernel as text."""

    name: str
    opts: str
    uops: str
    source: str  # LLVM IR


@dataclass(frozen=True)
class ReplayedProgram:
    """A program from one version of the compiler. `code`: its artifact's record, sealed."""

    name: str
    request: Request
    kernels: tuple[ReplayedKernel, ...]
    code: bytes


@dataclass(frozen=True)
class Change:
    """A kernel that differs between two versions of a program. `ratio`: its time in the later
    version over its time in the earlier version, or None."""

    kernel: str
    kind: Literal["changed", "new", "gone"]
    before: ReplayedKernel | None
    after: ReplayedKernel | None
    ratio: float | None = None


# ---------------------------------------------------------------- recordings
def compiled(name: str, request: Request) -> ReplayedProgram:
    """Compile a program anew by this version, with newly chosen Opts."""
    return _compiled(name, request)[0]


def _compiled(name: str, request: Request) -> tuple[ReplayedProgram, Any]:
    """The program of this version, and its lowered graph."""
    request = dataclasses.replace(request, opts=None)
    backend = backend_of(request.device)
    machine = backend.target(request.device, request.options.target_cpu)
    with arena():
        known = KernelCache(request, machine, None, backend.artifact, fresh=True)
        printed = fingerprint(request.graph)
        made, lowered = make_artifact(request, known, printed, backend.compiler, keep=True)
        uops = {k.arg.name: k for k in lowered.kernels}
        texts = tuple([
            ReplayedKernel(n, " ".join(map(str, uops[n].arg.opts or ())), print_graph(uops[n]), s)
            for n, s in zip(made.names, made.sources(), strict=True)
        ])  # fmt: skip
    heads = [(k.name, k.source, "") for k in texts]
    own = record.Key((("format", str(key.FORMAT)), key.machine_component(machine)))
    return ReplayedProgram(
        name, request, texts, disk.sealed(record.encode(own, heads, made))
    ), lowered


class Recorder:
    """Writer of a recording, program by program. UserError if the folder is not empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise UserError(f"{folder} is not empty: record in a new folder")
        except OSError as error:
            raise UserError(f"{folder}: {error.strerror or error}") from None

    def add(self, name: str, request: Request) -> ReplayedProgram:
        """Compile a program and write it down."""
        version, lowered = _compiled(name, request)
        stem = self.folder / f"{len(self.names):04d}"
        saved.write(stem.with_suffix(".uop"), version.request, lowered)
        texts = [dataclasses.asdict(k) for k in version.kernels]
        files.write_text(stem.with_suffix(".kernels.json"), json.dumps(texts, indent=1))
        files.write_bytes(stem.with_suffix(".code"), version.code)
        self.names.append(name)
        return version

    def close(self) -> None:
        """Write the index, without which a folder is no recording."""
        index = {"replay": FORMAT, "programs": self.names}
        files.write_text(self.folder / INDEX, json.dumps(index, indent=1) + "\n")


def read(folder: Path) -> Iterator[ReplayedProgram]:
    """The programs of a recording. UserError for a missing or damaged recording."""
    index = _json(folder / INDEX)
    if not isinstance(index, dict) or index.get("replay") != FORMAT:
        raise UserError(f"{folder / INDEX}: expected a recording of format {FORMAT}")
    names = index.get("programs")
    if not isinstance(names, list):
        raise UserError(f"{folder / INDEX} is damaged")
    for number, name in enumerate(names):
        yield _read_version(folder / f"{number:04d}", str(name))


def _read_version(stem: Path, name: str) -> ReplayedProgram:
    file = stem.with_suffix(".kernels.json")
    found = _json(file)
    fields = {f.name for f in dataclasses.fields(ReplayedKernel)}
    if not isinstance(found, list) or not all(
        isinstance(k, dict) and k.keys() == fields and all(type(v) is str for v in k.values())
        for k in found
    ):
        raise UserError(f"{file} is damaged")
    with arena():
        try:
            request, _ = saved.read(stem.with_suffix(".uop"))
        except InvalidIR as error:
            raise UserError(f"{stem.with_suffix('.uop')}: {error}") from None
    code = files.read_bytes(stem.with_suffix(".code"))
    kernels = tuple([ReplayedKernel(**k) for k in found])
    return ReplayedProgram(name, dataclasses.replace(request, opts=None), kernels, code)


def _json(file: Path) -> Any:
    try:
        return json.loads(files.read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: {error}") from None


# ---------------------------------------------------------------- comparison
def changes(before: ReplayedProgram, after: ReplayedProgram) -> list[Change]:
    """The kernels that differ: in their UOps or in their code."""
    old, new = ({k.name: k for k in v.kernels} for v in (before, after))
    found: list[Change] = []
    for name in {**old, **new}:
        a, b = old.get(name), new.get(name)
        if a is None or b is None:
            found.append(Change(name, "new" if a is None else "gone", a, b))
        elif (a.uops, a.source) != (b.uops, b.source):
            found.append(Change(name, "changed", a, b))
    return found


class NotTimed(Exception):
    """Raised if two versions cannot be timed against each other, with the reason."""


@dataclass(frozen=True)
class KernelTimes:
    """For each kernel by name, the fastest total seconds of its launches."""

    before: dict[str, float]
    after: dict[str, float]

    def ratio(self, kernel: str | None = None) -> float:
        """The time after over the time before, for a kernel or the whole program."""
        if kernel is not None:
            return _ratio(self.before[kernel], self.after[kernel])
        return _ratio(sum(self.before.values()), sum(self.after.values()))


def _ratio(before: float, after: float) -> float:
    return after / before if before else 1.0


def times(before: ReplayedProgram, after: ReplayedProgram) -> KernelTimes:
    """Time two versions in turns, launch by launch, on the same random arrays."""
    backend = backend_of(after.request.device)
    runners = [_runner(v, after.request, backend) for v in (before, after)]
    best: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for turn, runner in enumerate(runners):
            values = random_inputs.sizes(runner.plan, {})
            arrays = tuple(random_inputs.random_arrays(runner.plan, values))
            least = [min(t) for t in runner.time(arrays, values, SAMPLES)]
            best[turn] = [min(pair) for pair in zip(least, best[turn] or least)]
    summed: list[dict[str, float]] = [{}, {}]
    for runner, found, total in zip(runners, best, summed):
        for launch, seconds in zip(runner.plan.launches, found, strict=True):
            total[launch.kernel] = total.get(launch.kernel, 0.0) + seconds
    return KernelTimes(*summed)


def _runner(version: ReplayedProgram, request: Request, backend: Backend) -> Any:
    """The recorded code, ready to run. NotTimed if this machine or version cannot run it."""
    machine = backend.target(request.device, request.options.target_cpu)
    try:
        code = disk.checked(version.code, "the recorded code")
        head = record.read_head(code)
        own = record.Key((("format", str(key.FORMAT)), key.machine_component(machine)))
        if differing := own.differs(head.key):
            raise NotTimed(f"recorded with another {' and '.join(differing)}")
        artifact: Artifact = record.decode(code, None, backend.artifact)
    except disk.Unusable as error:
        raise NotTimed(f"its code cannot be used: {error}") from None
    try:
        artifact.check()
        plan = artifact.plan_for(request, fingerprint(request.graph).arrays)
        return backend.runner(request, artifact, plan)
    except InvalidIR as error:
        raise NotTimed(f"damaged code: {error}") from None


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return statistics.geometric_mean(ratios) if ratios else 1.0
