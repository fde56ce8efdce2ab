"""uopc doctor: say what works on this machine, and why the rest does not.

The checks compile and run small programs. A GPU, its driver, pycuda and the assembler matter only
with --device cuda.

examples:
  uopc doctor
  uopc doctor --device cuda && python train.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata, util
from typing import Literal

import numpy as np

import uopc
from uopc import config
from uopc.backends import detect
from uopc.backends.cuda import binding, device
from uopc.backends.nvptx.ptxas import find_ptxas
from uopc.cli.output import Output, Refuse
from uopc.cost.machine import MachineFacts, machine_of
from uopc.errors import Error
from uopc.ir.records import dataclass
from uopc.ir.text.columns import columns
from uopc.program.backend import backend_of
from uopc.target import CORES, Figures, Target

Status = Literal["ok", "missing", "failed"]
LEAST_LLVMLITE = (0, 48)


@dataclass(frozen=True)
class Finding:
    """The result of one check. `required`: programs for a CPU need it."""

    name: str
    status: Status
    detail: str
    required: bool = False


class _Absent(Exception):
    """Raised if the thing that a check looks for is missing."""


def arguments(parser: ArgumentParser) -> None:
    """The device that matters for the exit code, and the form of the output."""
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu",
        help="fail (exit code 1) unless programs for this device run (default: cpu)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Print a line for each check; exit code 1 if the device does not work."""
    findings = examine()
    if args.json:
        out.line(json.dumps([asdict(f) for f in findings], indent=2, ensure_ascii=False))
    else:
        styles = {"ok": "green", "missing": "yellow", "failed": "red"}
        for f, line in zip(findings, columns([(f.status, f.name, f.detail) for f in findings])):
            out.line(line, styles[f.status])
    return exit_code(findings, args.device)


def examine() -> list[Finding]:
    """The results of all checks, in order. No check raises."""
    return [_check(*row) for row in _CHECKS]


def exit_code(findings: list[Finding], device: str) -> int:
    """0 if programs for the device (cpu or cuda) run, else 1."""
    needed = [f for f in findings if f.required or (device == "cuda" and f.name in _FOR_CUDA)]
    return int(any(f.status != "ok" for f in needed))


def _check(name: str, required: bool, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", look(), required)
    except _Absent as error:
        return Finding(name, "missing", str(error), required)
    except Exception as error:  # the report names every defect and continues
        kind = "" if isinstance(error, Error) else f"{type(error).__name__}: "
        return Finding(name, "failed", " ".join(f"{kind}{error}".split()), required)


# ---------------------------------------------------------------- this machine
def _llvmlite() -> str:
    import llvmlite
    import llvmlite.binding as llvm

    found = tuple(int(part) for part in llvmlite.__version__.split(".")[:2])
    if found < LEAST_LLVMLITE:
        raise _Absent(f"llvmlite {llvmlite.__version__} is too old: 0.48 or later is needed")
    return f"{llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


def _targets() -> str:
    import llvmlite.binding as llvm

    from uopc.backends.nvptx.kernel import TRIPLE

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    names = [llvm.Target.from_triple(t).name for t in (llvm.get_process_triple(), TRIPLE)]
    return ", ".join(names)


def _cpu() -> str:
    found = detect.host(config.current().target_cpu)
    has = [f[1:] for f in found.features.split(",") if f in _WORTH_NAMING]
    return f"{found.cpu}, vectors of {found.vector_bits} bits ({' '.join(has) or 'no extensions'})"


def _machine() -> tuple[MachineFacts, Figures, str]:
    """The facts of this machine, its figures, and where these come from."""
    asked = config.current().target_cpu
    found, said = backend_of("cpu").target("cpu", asked), detect.host(asked)
    source = "measured" if found != said else _manuals(said)
    return machine_of(found), found.figures, source


def _manuals(machine: Target) -> str:
    """Say where the facts come from that `uopc tune --machine` does not measure."""
    return "described" if machine.cpu in CORES else "presumed"


def _clock() -> str:
    m, f, source = _machine()
    return (
        f"{source}: {m.clock:g} GHz; a launch takes {f.launch:g} ns, threads wake in {f.wake:g} to"
        f" {f.parked:g} ns, an inner loop begins and ends in {m.enter:g} cycles"
        + ("" if source == "measured" else "; uopc tune --machine measures")
    )


def _vectors() -> str:
    m, _, source = _machine()
    return (
        f"{m.registers} of {m.vector_bytes} bytes; {source}: {m.multiply_bytes:g} bytes of"
        f" multiply-adds a cycle ({m.latency:g} cycles each), {m.shuffle_bytes:g} of shuffles,"
        f" divisions {m.divide_bytes:g} (float32) and {m.divide64_bytes:g} (float64); an element"
        f" on its own {m.insert:g} cycles"
    )


def _units() -> str:
    m, _, source = _machine()
    core = _manuals(detect.host(config.current().target_cpu))
    return (
        f"{core}: {m.issue:g} instructions a cycle, {m.loads:g} loads, {m.stores:g} stores;"
        f" {source}: {m.load_bytes:g} bytes of loads a cycle"
    )


def _caches() -> str:
    """Of each cache the cycles of a line that it lacks, in a stream and alone."""
    m, _, source = _machine()
    levels = [c for c in m.caches if not c.is_of_pages]
    found = [
        f"{c.name} {c.nbytes >> 10} KiB, beyond it {c.stream:.1f} cycles a line, {c.far:.1f} alone,"
        f" {c.written:.1f} more written" for c in levels
    ]  # fmt: skip
    return f"{source}: {'; '.join(found)}"


_WORTH_NAMING = ("+sse4.2", "+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+amx-tile",
                 "+neon", "+sve")  # fmt: skip


def _threads() -> str:
    asked = config.current().threads
    return f"{detect.cores()}" + (f", UOPC_THREADS asks for {asked}" if asked else "")


def _compiled(name: str) -> uopc.Program:
    """A small program for a device."""
    return uopc.compile((uopc.param("x", (64, 100)) * 2 + 1).sum(axis=1), device=name)


def _program(name: str) -> str:
    x = np.arange(6400, dtype=np.float32).reshape(64, 100) % 7
    if not np.array_equal(_compiled(name)(x), (x * 2 + 1).sum(axis=1)):
        raise _Absent("a program gave a wrong result")
    return "compiled and ran; the result is correct"


def _native_call() -> str:
    from uopc.backends.cpu.callables import native_calls_work

    if not native_calls_work():
        raise _Absent(
            "calls go through ctypes, because the structs of this interpreter are not known"
        )
    return "calls go straight to machine code"


# ---------------------------------------------------------------- NVIDIA
def _ptx() -> str:
    kernels = _compiled("cuda:sm_80").kernels
    return f"{sum(k.asm.count(chr(10)) for k in kernels)} lines of PTX for sm_80"


def _ptxas() -> str:
    path = find_ptxas()
    if path is None:
        raise _Absent("not installed: pip install nvidia-cuda-nvcc-cu12 (only tests need it)")
    run = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    release = [w for w in run.stdout.split() if w.startswith("V")]
    return f"{release[-1] if release else '?'} at {path}"


def _pycuda() -> str:
    if util.find_spec("pycuda") is None:
        raise _Absent("not installed: pip install uopc[cuda], or .ci/build-pycuda-wheel")
    try:
        return metadata.version("pycuda")
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _check_pycuda() -> None:
    """Check facts that need pycuda; the check of pycuda itself says how to install it."""
    if "pycuda" not in sys.modules and util.find_spec("pycuda") is None:
        raise _Absent("not checked, because pycuda is missing")


def _driver() -> str:
    _check_pycuda()
    number = binding.driver().get_driver_version()
    return f"CUDA {number // 1000}.{number % 1000 // 10}"


def _device() -> str:
    _check_pycuda()
    found = [device.device(i) for i in range(binding.driver().Device.count())]
    if not found:
        raise _Absent("the driver finds no device")
    return "; ".join(f"cuda:{d.ordinal} {d.name} ({d.capability[0]}.{d.capability[1]})"
                     for d in found)  # fmt: skip


def _cuda_program() -> str:
    _check_pycuda()
    return _program("cuda")


# the name, True if CPU programs need it, the check
_CHECKS: tuple[tuple[str, bool, Callable[[], str]], ...] = (
    ("python", True, lambda: f"{sys.version.split()[0]}, NumPy {np.__version__}"),
    ("llvmlite", True, _llvmlite),
    ("llvm targets", True, _targets),
    ("cpu", True, _cpu),
    ("threads", True, _threads),
    ("clock", False, _clock),
    ("vectors", False, _vectors),
    ("units", False, _units),
    ("caches", False, _caches),
    ("cpu program", True, lambda: _program("cpu")),
    ("native call", False, _native_call),
    ("ptx", False, _ptx),
    ("ptxas", False, _ptxas),
    ("pycuda", False, _pycuda),
    ("nvidia driver", False, _driver),
    ("cuda device", False, _device),
    ("cuda program", False, _cuda_program),
)
_FOR_CUDA = ("ptx", "pycuda", "nvidia driver", "cuda device", "cuda program")
