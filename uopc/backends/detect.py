"""Which machine this is: its processor, its caches and its GPUs, as `Target`s."""

from __future__ import annotations

import functools
from pathlib import Path

from uopc import target
from uopc.errors import UserError
from uopc.target import Target

_CACHES = "/sys/devices/system/cpu/cpu0/cache"


def check_runs(cpu: str) -> None:
    """Raise UserError where this machine cannot run code for the CPU named `cpu`."""
    import llvmlite.binding as llvm

    host(cpu)
    has = llvm.get_host_cpu_features()
    lacks = [f for f in target.KNOWN[cpu][2] if not has.get(f)] if cpu in target.KNOWN else []
    if lacks:
        raise UserError(
            f"target_cpu: code for {cpu} does not run on this machine, which has no "
            f"{', '.join(lacks)}; `uopc dump` shows it"
        )


@functools.cache
def host(cpu: str = "") -> Target:
    """This machine, or the CPU named `cpu`: one of KNOWN, or the machine's own.

    Raises UserError for any other name.
    """
    import llvmlite.binding as llvm

    if cpu in target.KNOWN:
        bits, registers, _ = target.KNOWN[cpu]
        return Target(cpu, "cpu", bits, registers, cpu, "")
    own = llvm.get_host_cpu_name()
    if cpu not in ("", own):  # LLVM ends the process over a name that it does not know
        known = ", ".join(target.KNOWN)
        raise UserError(f"target_cpu: no CPU {cpu!r}; there are {known} and {own}, this")
    found = llvm.get_host_cpu_features()
    features = found.flatten()
    bits, registers = 128, 16
    if found.get("avx512f") and found.get("avx512vl"):
        bits, registers = 512, 32
    elif found.get("avx2"):
        bits, registers = 256, 16
    elif found.get("neon"):
        bits, registers = 128, 32
    first, second = cache_bytes(1, Target.l1_bytes), cache_bytes(2, Target.l2_bytes)
    last = cache_bytes(3, Target.last_cache_bytes)
    return Target("host", "cpu", bits, registers, own, features, first, second, last)


def cache_bytes(level: int, otherwise: int, root: str = _CACHES) -> int:
    """The bytes of a core's data cache, from the system; `otherwise` where it does not say."""
    for place in sorted(Path(root).glob("index*")):
        try:
            told = [(place / name).read_text().strip() for name in ("level", "type", "size")]
        except OSError:
            continue
        number, kind, size = told
        digits = size.rstrip("KMG")
        if number == str(level) and kind != "Instruction" and digits.isdecimal():
            return int(digits) << {"": 0, "K": 10, "M": 20, "G": 30}[size[len(digits) :]]
    return otherwise


def for_device(device: str, cpu: str = "") -> Target:
    """The target that a device's name means: the part of `cuda:sm_90` or of `cuda:0`, or the host.

    `cpu` names a CPU other than the host's own, as for `host`.
    """
    kind, _, name = device.partition(":")
    if kind != "cuda":
        return host(cpu)
    if not name.startswith("sm_"):
        from uopc.backends.cuda import device as devices

        name = target.part_of(devices.device(int(name or 0)).capability)
    return target.part(name)
