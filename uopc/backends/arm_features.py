"""Features of ARM processors that LLVM does not report: from Linux, macOS and Windows, in LLVM's
names.

Sources: Linux, "ARM64 ELF hwcaps"; Apple, "Determining instruction set characteristics"; the Arm
architecture's registers ID_AA64ISAR0, ID_AA64ISAR1 and ID_AA64PFR0, which Windows keeps in its
registry.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Callable, Mapping

# By LLVM's name: the word in the line `Features` of /proc/cpuinfo, and macOS's name.
_NAMES = {
    "dotprod": ("asimddp", "FEAT_DotProd"), "i8mm": ("i8mm", "FEAT_I8MM"),
    "bf16": ("bf16", "FEAT_BF16"), "fullfp16": ("asimdhp", "FEAT_FP16"),
    "fp16fml": ("asimdfhm", "FEAT_FHM"),
}  # fmt: skip
_KEY = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
# By LLVM's name: the register, and the lowest of the four bits that are 1 or more where it exists.
_REGISTERS = {
    "dotprod": ("CP 4030", 44), "fp16fml": ("CP 4030", 48), "i8mm": ("CP 4031", 52),
    "bf16": ("CP 4031", 44), "fullfp16": ("CP 4020", 20),
}  # fmt: skip
_ABSENT = 15  # of the four bits in ID_AA64PFR0

AskNumber = Callable[[str], "int | None"]


def is_arm64() -> bool:
    """True if this machine has an ARM processor of 64 bits."""
    return platform.machine().lower() in ("aarch64", "arm64")


def arm_features(facts: Mapping[str, str]) -> list[str]:
    """The features of this processor, whose lines in /proc/cpuinfo are `facts`; each processor of
    64 bits has NEON."""
    if sys.platform == "darwin":
        found = of_macos(sysctl)
    elif sys.platform == "win32":
        found = of_registers(_registry)
    else:
        found = of_linux(facts.get("Features", ""))
    return ["neon", *found]


def of_linux(words: str) -> list[str]:
    """The features that the words of a line `Features` stand for."""
    known = set(words.split())
    return [name for name, (word, _) in _NAMES.items() if word in known]


def of_macos(ask: AskNumber) -> list[str]:
    """The features for which macOS answers 1."""
    return [name for name, (_, own) in _NAMES.items() if ask(f"hw.optional.arm.{own}") == 1]


def of_registers(ask: AskNumber) -> list[str]:
    """The features by the processor's registers, which have the names of Windows's registry."""
    found = []
    for name, (register, low) in _REGISTERS.items():
        value = ask(register)
        if value is not None and 1 <= value >> low & 15 < _ABSENT:
            found.append(name)
    return found


@functools.cache
def sysctl(name: str) -> int | None:
    """The answer of macOS to a question; None if it has none."""
    value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
    ask = ctypes.CDLL(None).sysctlbyname
    if ask(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)):
        return None
    return value.value


def _registry(name: str) -> int | None:
    if sys.platform != "win32":
        return None
    import winreg  # only under Windows

    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _KEY) as key:
            value, _ = winreg.QueryValueEx(key, name)
    except OSError:
        return None
    return int(value)
