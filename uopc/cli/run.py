"""uopc run: compile a graph, run it on random arrays, and time each kernel.

SOURCE is as for `uopc dump`: file.py, file.py:name, a .uop, .onnx or .casadi file. A Program keeps
its own arguments of `compile`.

The arrays are the same in each run: floats in 0.5..1.5, integers in 0..3. A variable gets the value
that --set gives, that the shape of an --input gives, that the graph binds it to, or about 256. A
launch runs many times in a row in the memory of a call; the best sample counts, caches are warm.

The columns: launches in a call (one in a loop counts as often as it runs), time, its share of all
kernels, operations and bytes per second. An operation is one of the graph on one element; bytes
count each element of the storage once. `roofline` is the least time over the time. The least time
is the longest of three, measured in the same run on the same device and threads: the bytes at the
speed of a copy of as many bytes, the steps of the processor at the speed of multiply-adds in a row
(6 or 16, the faster) of that dtype, and divisions and square roots at the speed of divisions. A
function such as exp has the steps that the op table says. The last column names the longest one.

Where Linux lets a process count, a second table has each kernel's cycles, instructions, cache
misses and branch misses in a call, of all threads, in user mode; elsewhere a line says why not.

examples:
  uopc run model.py                               the table
  uopc run model.py:attention --set n=100         with a value for a variable
  uopc run model.py --kernel r_64_128             one kernel, launch by launch
  uopc run model.onnx --input x=x.npy --output out  arrays from files, and results to 0.npy, ...
  uopc run model.py --trace run.json              what each thread did, for Perfetto
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import numpy as np

from uopc.cli import load, sizes
from uopc.cli.output import Output, Refuse
from uopc.dump import chrome_trace
from uopc.errors import UserError
from uopc.ir.builder import pytrees
from uopc.ir.text.columns import plural
from uopc.passes.pass_manager import INPUT
from uopc.program import profile
from uopc.program.backend import backend_of
from uopc.program.program import Program, make_program
from uopc.program.request import Request, prepare
from uopc.program.speed import random_inputs

_TRACED_CALLS = 3


def arguments(parser: ArgumentParser) -> None:
    """The graph, the sizes, and what to show."""
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("--kernel", metavar="N|NAME", help="time one kernel: its number or name")
    parser.add_argument("--device", help="run on cpu, cuda or cuda:1 (default: cpu)")
    repeat = "take N samples of a launch (default: 20)"
    parser.add_argument("--repeat", metavar="N", type=int, default=20, help=repeat)
    sizes.argument(parser, "set the value of a variable")
    parser.add_argument(
        "--input", metavar="NAME=FILE", action="append", default=[], help="read an array (.npy)"
    )
    parser.add_argument("--output", metavar="DIR", help="write the results as .npy files")
    parser.add_argument("--trace", metavar="FILE", help="write a run in Chrome's trace format")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Compile, run, and print a row for each kernel."""
    if args.repeat < 1:
        refuse("--repeat: at least 1")
    found = load.load(args.source)
    program = compiled(found, args.device)
    plan = program._runner.plan
    if program._source.request.mesh is not None:
        refuse("a program for several devices: `uopc dump` lists its exchanges")
    given = _given(args.input, [u.arg.name for u in program._source.request.params], refuse)
    values = random_inputs.sizes(plan, random_inputs.sizes_of(plan, given) | dict(args.set))
    arrays = list(random_inputs.random_arrays(plan, values))
    for number, array in given.items():
        arrays[number] = array
    results = _outputs(program(*[a.copy() for a in arrays], **values))
    if args.output:
        _write(Path(args.output), results)
    measured = profile.profile(program, tuple(arrays), values, args.repeat)
    shown = _chosen_rows(measured, args.kernel)
    if args.trace:
        _trace(Path(args.trace), found.name, program, tuple(arrays), values)
    nan = [str(i) for i, r in enumerate(results) if _has_nan(r)]
    if args.json:
        out.line(json.dumps(_as_json(found.name, program, measured, shown, nan), indent=2))
    else:
        _print(out, found.name, program, measured, shown, nan)
    return 0


def _given(texts: list[str], names: list[str], refuse: Refuse) -> dict[int, Any]:
    """The arrays of `--input`, by the argument's number."""
    found = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals:
            refuse(f"--input: expected NAME=FILE, got {text!r}")
        if name not in names:
            refuse(f"--input: no input {name!r}; there are {', '.join(names) or 'none'}")
        found[names.index(name)] = _read_array_file(Path(file))
    return found


def _read_array_file(file: Path) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"--input: {file}: {error}") from None


def _write(folder: Path, results: list[Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for i, result in enumerate(results):
            np.save(folder / f"{i}.npy", result)
    except OSError as error:
        raise UserError(f"--output: {error}") from None


def compiled(found: load.LoadedSource, device: str | None) -> Program:
    """The program of a source."""
    return make_program(checked_request(found, device))


def checked_request(found: load.LoadedSource, device: str | None) -> Request:
    """The request of a source: a Program's own, or the graph with the settings in its file."""
    if found.start != INPUT:
        raise UserError(f"{found.name}: expected a graph before the first pass, got a later stage")
    request = load.request_of(found, device)
    backend_of(request.device)
    if found.request is None and not request.params:  # a kernel written by hand has its own
        request = prepare(
            found.graph, None, request.optimize, request.threads, None, request.options,
            device=request.device,
        )  # fmt: skip
    return request


def _outputs(results: Any) -> list[Any]:
    return [array for _, array in pytrees.flatten(results)[0]]


def _has_nan(result: Any) -> bool:
    array = np.asarray(result)
    return bool(array.dtype.kind not in "biu" and np.isnan(array.astype(np.float64)).any())


def _chosen_rows(measured: profile.Profile, kernel: str | None) -> list[profile.Row]:
    """The rows to show. UserError for an unknown kernel."""
    rows = measured.rows()
    if kernel is None:
        return rows
    names = {str(i): r for i, r in enumerate(rows)} | {r.kernel.name: r for r in rows}
    if kernel not in names:
        listed = ", ".join([f"{i} {r.kernel.name}" for i, r in enumerate(rows)]) or "none"
        raise UserError(f"unknown kernel {kernel!r}; choose {listed}")
    return [names[kernel]]


# ---------------------------------------------------------------- output
def _head(name: str, program: Program, measured: profile.Profile) -> str:
    request, machine = program._source.request, program._source.machine
    sizes = "".join([f", {k} = {v}" for k, v in measured.values.items()])
    kernels = plural(len(program.kernels), "kernel")
    launches = plural(sum([m.rounds for m in measured.launches]), "launch", "launches")
    threads = plural(request.threads, "thread")
    return f"{name} for {machine.device} {machine.cpu}, {threads}{sizes}: {kernels} in {launches}"


def _print(
    out: Output, name: str, program: Program, measured: profile.Profile, shown: list[profile.Row],
    nan: list[str],
) -> None:  # fmt: skip
    out.line(_head(name, program, measured))
    heads = ("kernel", "launches", "us", "share", "Gop/s", "GB/s", "roofline", "bound")
    out.table(heads, [
        (
            r.kernel.name, str(r.launches), f"{r.seconds * 1e6:.3f}", f"{r.share:.1%}",
            f"{r.speed:.2f}", f"{r.bandwidth:.2f}", f"{r.roofline:.1%}", r.bound,
        )
        for r in shown
    ])  # fmt: skip
    if len(shown) < len(measured.rows()):
        picked = [m for m in measured.launches if m.launch.kernel is shown[0].kernel]
        for m in picked:
            often = f", {m.rounds} times in a call" if m.rounds != 1 else ""
            out.line(f"launch {m.launch.number}: {m.timing!r}{often}")
        out.line(str(type(program.launches)([m.launch for m in picked])))
        return
    kernels, call = measured.seconds * 1e6, measured.call.best * 1e6
    out.line(f"all kernels {kernels:.3f} us, a call {call:.3f} us")
    roofline = measured.roofline
    peaks = [f"{t.name} {v * 1e-9:.1f} Gop/s" for t, v in roofline.peaks.items()]
    peaks += [f"divisions of {t.name} {v * 1e-9:.2f} G/s" for t, v in roofline.quotients.items()]
    copies = [
        f"{_power_of_two_text(n)} {v * 1e-9:.1f} GB/s"
        for n, v in sorted(roofline.bandwidths.items())
    ]
    out.line(f"this machine: {', '.join([*peaks, *[f'copies of {c}' for c in copies]])}")
    _print_events(out, measured, shown)
    if nan:
        out.line(f"NaN in output {', '.join(nan)}")


def _print_events(out: Output, measured: profile.Profile, shown: list[profile.Row]) -> None:
    """Print each kernel's hardware events in one call, or why there are none."""
    if isinstance(measured.events, str):
        out.line(f"hardware counters: not available: {measured.events}")
        return
    rows = [(r.kernel.name, measured.events_of(r)) for r in shown]
    names = list(dict.fromkeys([name for _, found in rows for name in found]))
    out.table(("kernel", *[name.replace("_", " ") for name in names], "per cycle"), [
        (kernel, *[f"{found.get(name, 0):,.0f}" for name in names],
         f"{found.get('instructions', 0) / found['cycles']:.2f}" if found.get("cycles") else "-")
        for kernel, found in rows
    ])  # fmt: skip


def _power_of_two_text(nbytes: int) -> str:
    """Bytes as KiB or MiB, for a power of two."""
    return f"{nbytes >> 10} KiB" if nbytes < 1 << 20 else f"{nbytes >> 20} MiB"


def _as_json(
    name: str, program: Program, measured: profile.Profile, shown: list[profile.Row],
    nan: list[str],
) -> dict[str, Any]:  # fmt: skip
    names = {r.kernel.name for r in shown}
    return {
        "source": name,
        "device": program._source.machine.device,
        "threads": program._source.request.threads,
        "variables": dict(measured.values),
        "call_us": measured.call.best * 1e6,
        "nan": nan,
        "kernels": [
            {
                "name": r.kernel.name, "launches": r.launches, "us": r.seconds * 1e6,
                "share": r.share, "operations": r.operations, "bytes": r.nbytes,
                "gops": r.speed, "gbytes": r.bandwidth, "roofline": r.roofline, "bound": r.bound,
                "opts": [str(o) for o in r.kernel.opts],
            }
            for r in shown
        ],
        "launches": [
            {
                "number": m.launch.number, "kernel": m.launch.kernel.name,
                "us": m.timing.best * 1e6, "median_us": m.timing.median * 1e6, "rounds": m.rounds,
                "operations": m.operations, "bytes": m.nbytes, "least_us": m.least * 1e6,
            }
            for m in measured.launches if m.launch.kernel.name in names
        ],
        "events": measured.events if isinstance(measured.events, str) else [
            dict(found) for found, m in zip(measured.events, measured.launches)
            if m.launch.kernel.name in names
        ],
        "peaks": {t.name: v for t, v in measured.roofline.peaks.items()},
        "divisions": {t.name: v for t, v in measured.roofline.quotients.items()},
        "bandwidths": {str(n): v for n, v in measured.roofline.bandwidths.items()},
    }  # fmt: skip


def _trace(
    file: Path, name: str, program: Program, arrays: tuple[Any, ...], values: dict[str, int]
) -> None:
    """Write a trace of the compile and a few calls: each thread's work, chunk by chunk."""
    lowered = program._source.lowered
    ran = []
    launches = program.launches
    for call in range(_TRACED_CALLS):
        _, slices = program._runner.slices(arrays, dict(values))
        for s in slices:
            launch = launches[s.launch]
            noted: dict[str, Any] = {"call": call, "launch": s.launch, "chunk": s.chunk}
            noted["buffers"] = [str(b) for b in launch.buffers]
            kernel = launch.kernel.name
            ran.append(chrome_trace.Ran(s.thread, kernel, s.begin, s.end, "launch", noted))
    dump = program._backend.dump(lowered, program._source.request.options.target_cpu)
    chrome_trace.write(file, name, dump, ran)
