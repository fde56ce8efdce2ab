"""The report of a program, for `uopc dump --html` and UOPC_VIZ."""

from __future__ import annotations

import re
import sys
from itertools import count
from pathlib import Path

from uopc import config
from uopc.backends import in_place
from uopc.backends.device_rows import ONE_DEVICE, DeviceRows
from uopc.backends.llvm import scratch
from uopc.dump.report import page
from uopc.dump.report.page import Facts
from uopc.errors import UserError
from uopc.ir.core import walk
from uopc.ir.core.arena import arena
from uopc.ir.core.calls import exchanges_of
from uopc.ir.core.storage import storage_root
from uopc.ir.index.dims import typical
from uopc.passes.pass_manager import Lowered
from uopc.program import planner, profile
from uopc.program.compiled_kernel import chunks
from uopc.program.program import Program
from uopc.program.request import lower
from uopc.program.speed import random_inputs
from uopc.program.speed.work import measure


def facts(lowered: Lowered) -> Facts:
    """The work of each kernel for the largest values of variables, and the memory plan for typical
    ones."""
    found = Facts()
    for call, (final, _) in zip(lowered.program.src, lowered.calls):
        split = call.src[0]
        if final.arg.name not in found.work and not exchanges_of(split):
            work = measure(split, lowered.located(final))
            largest = {v.arg.name: v.arg.high for v in walk.variables(split)}
            operations, nbytes = work.counts(largest)
            found.work[final.arg.name] = page.LaunchWork(
                operations, nbytes, work.floats, not largest
            )
    tiles = {k: scratch.offsets(k)[1] * chunks(k) for k in lowered.kernels}
    fresh = {storage_root(v) for v in lowered.outputs if v.src}
    calls = [(tiles.get(kernel, 0), args) for kernel, args in lowered.calls]  # 0: an exchange
    repeats, buckets = planner.repeats(lowered.program), planner.buckets(lowered.program)
    rows, over = ONE_DEVICE, {}
    if lowered.context.target.gpu is None:  # as the plan of a program does
        rows = DeviceRows.of(lowered.context.devices, lowered.places)
        over = {
            i: in_place.overwriting(args, in_place.pairs(call.src[0], final))
            for i, (call, (final, args)) in enumerate(zip(lowered.program.src, lowered.calls))
            if not exchanges_of(call.src[0])
        }
    places = rows.places
    blocks, total = planner.arena(calls, fresh, repeats, buckets, places, over=over)
    found.arena_bytes = typical(total)
    found.blocks = [(b.storage, b.alive, typical(b.offset)) for b in blocks]
    return found


def measured(program: Program, found: Facts) -> Facts:
    """Add the times of each launch on random arrays, and its work for their sizes."""
    plan = program._runner.plan
    values = random_inputs.sizes(plan, {})
    result = profile.profile(program, tuple(random_inputs.random_arrays(plan, values)), values)
    found.times = page.CallTimes(
        result.call.best, [m.seconds for m in result.launches],
        [m.least * m.rounds for m in result.launches], [m.bound for m in result.launches],
        dict(values),
        result.events if isinstance(result.events, str) else [dict(e) for e in result.events],
        [m.rounds for m in result.launches],
    )  # fmt: skip
    for m in result.launches:
        work = page.LaunchWork(m.operations, m.nbytes, m.launch.work.floats, exact=True)
        found.work.setdefault(m.launch.kernel.name, work)
        if not found.work[m.launch.kernel.name].exact:
            found.work[m.launch.kernel.name] = work
    return found


def write_file(program: Program, file: Path, run: bool = False) -> None:
    """Write the report of a program, with the times of a `run` on random arrays.

    UserError if the file cannot be written.
    """
    request, stages = program._source.request, program._source
    traced = config.page_folder(request.options) is not None
    with arena():
        lowered = stages.lowered
        if not traced:
            lowered = lower(request, stages.machine, trace=True, searched=stages.searched)
        shown = program._backend.dump(lowered, request.options.target_cpu)
        found = measured(program, facts(lowered)) if run else facts(lowered)
        page.write(file, request.name or "program", shown, found)


def write(program: Program) -> Path:
    """Write the report of a program into the folder of `options.viz`, and print its path.

    The file has the program's name, with a number if such a file exists. UserError if the file
    cannot be written.
    """
    request = program._source.request
    folder, name = config.page_folder(request.options), request.name or "program"
    assert folder is not None
    stem = re.sub(r"\W+", "_", name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = (folder / f"{stem}{f'_{n}' if n else ''}.html" for n in count())
        file = next(f for f in files if not f.exists())
        write_file(program, file)
    except OSError as error:
        raise UserError(f"option viz: {folder}: {error.strerror or error}") from None
    print(f"uopc: the report of {name} is in {file}", file=sys.stderr)
    return file
