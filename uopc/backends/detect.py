"""Detect this machine: its processor, caches, cores and GPUs, as `Target`s."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from uopc import target
from uopc.backends import arm_features, tile_permission
from uopc.errors import UserError
from uopc.ir import forks
from uopc.target import Target

MOST_CORES = 256  # the most threads that share a launch
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_PROCESSORS = "/proc/cpuinfo"


class Processor(NamedTuple):
    """LLVM's name of a processor, and its features: `+avx2,-avx512f,…`."""

    name: str
    features: str


# The findings of an earlier process, so that this one need not load LLVM.
_known: list[Processor] = []


def note_processor(known: Processor) -> None:
    """Take what an earlier process found on this processor as the answer of `processor`."""
    _known[:] = [known]


def processor() -> Processor:
    """The processor that runs this process."""
    if not _known:
        import llvmlite.binding as llvm

        with forks.llvm:
            features = llvm.get_host_cpu_features().flatten()
            name = llvm.get_host_cpu_name()
        if arm_features.is_arm64():
            features = with_arm_features(features, first_processor())
        note_processor(Processor(name, features))
    return _known[0]


def with_arm_features(of_llvm: str, facts: Mapping[str, str]) -> str:
    """LLVM's features of an ARM processor, and those that only the system reports."""
    found = [f"+{name}" for name in arm_features.arm_features(facts)]
    known = [f for f in of_llvm.split(",") if f and f"+{f[1:]}" not in found]
    return ",".join([*known, *found])


def first_processor() -> dict[str, str]:
    """The lines about the first processor, as Linux reports them; empty if it does not."""
    found: dict[str, str] = {}
    with (
        contextlib.suppress(OSError),
        open(_PROCESSORS, encoding="utf-8", errors="replace") as lines,
    ):
        for line in lines:
            if line == "\n":  # the end of the first one, of many
                break
            name, _, value = line.partition(":")
            found[name.strip()] = value.strip()
    return found


_STAMP = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags",
          "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
          "Features")  # fmt: skip


def processor_stamp() -> str | None:
    """The facts that tell processors apart, as the system reports them without LLVM: vendor, model,
    features; None if it reports no features."""
    found = first_processor()
    if not found.keys() & {"flags", "Features"}:
        return None
    return repr([found[name] for name in _STAMP if name in found])


@functools.cache
def this_machine() -> Target:
    """The processor of this process, with its vectors and caches, as far as the operating system
    lets this process use them."""
    name, features = processor()
    found = set(features.split(","))
    bits, registers = 128, 16
    if {"+avx512f", "+avx512vl"} <= found:
        bits, registers = 512, 32
    elif "+avx2" in found:
        bits, registers = 256, 16
    elif "+neon" in found:
        bits, registers = 128, 32
    own = Target(
        "host", "cpu", bits, registers, name, features,
        cache_bytes(1, Target.l1_bytes), cache_bytes(2, Target.l2_bytes),
        cache_bytes(None, Target.last_cache_bytes),
        figures=target.core_of(name).figures,
    )  # fmt: skip
    return own if not own.has_tiles or tile_permission.is_granted() else own.without_tiles()


def cache_bytes(level: int | None, otherwise: int, root: str = _CACHES) -> int:
    """The bytes of a core's data cache, from the system, of the last level if `level` is None;
    `otherwise` if the system does not report it."""
    found = _caches_of_macos() if sys.platform == "darwin" else _caches_of_linux(root)
    return found.get(max(found, default=0) if level is None else level, otherwise)


def _caches_of_linux(root: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for folder in sorted(Path(root).glob("index*")):
        names = ("level", "type", "size")
        try:
            number, kind, size = [(folder / n).read_text("utf-8").strip() for n in names]
        except OSError:
            continue
        digits = size.rstrip("KMG")
        if number.isdecimal() and kind != "Instruction" and digits.isdecimal():
            nbytes = int(digits) << {"": 0, "K": 10, "M": 20, "G": 30}[size[len(digits) :]]
            found.setdefault(int(number), nbytes)
    return found


def _caches_of_macos() -> dict[int, int]:
    """Those of the fast cores, where there are two kinds."""
    names = {1: "l1dcachesize", 2: "l2cachesize", 3: "l3cachesize"}
    asked = {
        level: arm_features.sysctl(f"hw.perflevel0.{name}") or arm_features.sysctl(f"hw.{name}")
        for level, name in names.items()
    }
    return {level: nbytes for level, nbytes in asked.items() if nbytes}


def cores() -> int:
    """The number of processors for this process: its affinity, limited by its group's quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, math.ceil(min(_processor_quota(), count)), MOST_CORES))


def _quota_of(folder: Path) -> float:
    """The number of processors that a control group may use (interface version 2 or 1)."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            texts = [(folder / name).read_text("utf-8") for name in names]
            quota, period = map(int, " ".join(texts).split())
            return quota / period if quota > 0 else math.inf
        except (OSError, ValueError):  # no such file, or a quota of "max"
            continue
    return math.inf


def _processor_quota() -> float:
    root = Path("/sys/fs/cgroup")
    quota = min(_quota_of(root), _quota_of(root / "cpu"))
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return quota
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "cpu", "cpu,cpuacct"):
            continue
        folder = (root / controllers if controllers else root) / path.lstrip("/")
        while folder != root and root in folder.parents:
            quota = min(quota, _quota_of(folder))
            folder = folder.parent
    return quota


def host(cpu: str = "") -> Target:
    """This machine, or the CPU named `cpu`: one of CPUS, or the machine's own.

    Raises UserError for any other name.
    """
    if cpu in target.CPUS:
        return target.cpu_target(cpu)
    own = this_machine()
    if cpu not in ("", own.cpu):  # LLVM ends the process over a name that it does not know
        known = ", ".join(target.CPUS)
        raise UserError(
            f"option target_cpu (UOPC_TARGET_CPU): unknown CPU {cpu!r}; choose {known}"
            f" or {own.cpu} (this machine)"
        )
    return own


def check_runs(cpu: str) -> None:
    """Raise UserError where this machine cannot run code for the CPU named `cpu`."""
    host(cpu)
    known = target.CPUS
    lacks = [f for f in known[cpu][2] if not this_machine().has(f)] if cpu in known else []
    if lacks:
        raise UserError(
            f"option target_cpu (UOPC_TARGET_CPU): code for {cpu} does not run on this machine, "
            f"which has no {', '.join(lacks)}; `uopc dump` shows it"
        )
