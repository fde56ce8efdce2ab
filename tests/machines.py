"""The machines that tests speak of, as data, so that no result depends on the one that runs them.

The package asks `detect` which machine this is, and nothing else. `described` makes `detect`
answer with one of these machines. Code for a processor that this one cannot run is made for this
one's own processor instead, with the caches and the cores of the described machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from uopc import driver
from uopc.backends import detect
from uopc.target import CPUS, Target

KIB, MIB = 1 << 10, 1 << 20
DEFAULT = "laptop"
THIS = "this"  # the machine that runs the tests
OTHERS = "others"  # one of the machines below for each test, by its name


@dataclass(frozen=True)
class Machine:
    """A processor of CPUS, the bytes of its three caches, its cores, and more features."""

    cpu: str
    caches: tuple[int, int, int]
    cores: int
    features: str = ""

    @property
    def target(self) -> Target:
        """The target that `detect.this_machine` gives on such a machine."""
        bits, registers, _ = CPUS[self.cpu]
        return Target("host", "cpu", bits, registers, self.cpu, self.features, *self.caches)


# Markers of tests name the first two, which run on every x86 processor since 2013.
MACHINES = {
    "laptop": Machine("x86-64-v3", (32 * KIB, 256 * KIB, 4 * MIB), 2),
    "desktop": Machine("x86-64-v3", (32 * KIB, 1 * MIB, 32 * MIB), 2),
    "workstation": Machine("x86-64-v4", (32 * KIB, 1 * MIB, 32 * MIB), 16),
    "server": Machine("x86-64-v4", (48 * KIB, 2 * MIB, 480 * MIB), 64, "+avx512fp16"),
    "dots": Machine("x86-64-v4", (48 * KIB, 2 * MIB, 32 * MIB), 2, "+avx512vnni"),
    "client": Machine("x86-64-v3", (48 * KIB, 1 * MIB, 12 * MIB), 2, "+avxvnni"),
    "pairs": Machine(
        "x86-64-v4", (48 * KIB, 2 * MIB, 32 * MIB), 2, "+avx512vnni,+avx512bf16"
    ),
    "matrix": Machine(
        "x86-64-v4", (48 * KIB, 2 * MIB, 105 * MIB), 2,
        "+avx512vnni,+avx512bf16,+amx-tile,+amx-bf16,+amx-int8",
    ),
    "old": Machine("x86-64-v2", (32 * KIB, 512 * KIB, 2 * MIB), 1),
}
_OF_OTHERS = ("desktop", "workstation", "server", "old")
_OWN, _OWN_CORES = detect.this_machine, detect.cores


def executable(machine: Machine) -> Target:
    """The machine without the features that this one lacks, or this one with its caches."""
    wanted, own = machine.target, _OWN()
    if all(map(own.has, CPUS[machine.cpu][2])):
        features = [f for f in wanted.features.split(",") if own.has(f[1:])]
        return dataclasses.replace(wanted, features=",".join(features))
    l1, l2, last = machine.caches
    return dataclasses.replace(
        own, l1_bytes=l1, l2_bytes=l2, last_cache_bytes=last, figures=wanted.figures
    )


def of_test(name: str, test: str = "") -> str:
    """The machine `name`, or for OTHERS the one that falls to a test; no test: the default one."""
    if name != OTHERS:
        return name
    return _OF_OTHERS[zlib.crc32(test.encode()) % len(_OF_OTHERS)] if test else DEFAULT


def runnable(*cpus: str) -> tuple[str, ...]:
    """Those of some CPUs of CPUS whose code the machine of the tests runs; "" is its own."""
    has = detect.this_machine().has
    return tuple(cpu for cpu in cpus if not cpu or all(map(has, CPUS[cpu][2])))


@contextlib.contextmanager
def only_lowered(name: str) -> Iterator[Target]:
    """`detect` answers as the machine called `name`, whether this one runs its code or not."""
    before, target = detect.this_machine, MACHINES[name].target
    detect.this_machine = lambda: target
    try:
        yield target
    finally:
        detect.this_machine = before


def lowered_for(name: str, graph: Any, threads: int = 1) -> Any:
    """The stages of a graph on the machine called `name`, whatever this one is."""
    with only_lowered(name):
        return driver.lower_only(graph, threads=threads)


@contextlib.contextmanager
def described(name: str) -> Iterator[Target]:
    """`detect` answers as the machine called `name`, inside the block."""
    before = detect.this_machine, detect.cores
    if name == THIS:
        detect.this_machine, detect.cores = _OWN, _OWN_CORES
    else:
        machine = MACHINES[name]
        target = executable(machine)
        detect.this_machine, detect.cores = (lambda: target), (lambda: machine.cores)
    try:
        yield detect.this_machine()
    finally:
        detect.this_machine, detect.cores = before
