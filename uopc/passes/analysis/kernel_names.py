"""Names of kernels: by their loops unless the user gave a name, and different within a program."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from uopc.ir.core import bounds
from uopc.ir.core.args import KernelArg
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.nest import nest_of

_NO_WORD = re.compile(r"\W", re.ASCII)
_MOST = 120  # characters of a name: file systems allow 255


def shape_name(kernel: UOp) -> str:
    """`E_25_4` for elementwise, `r_64_128` with a reduce: the lengths of its loops, outer first."""
    axes = nest_of(kernel).axes
    kind = "r" if nest_of(kernel).reduces else "E"
    lengths = [str(bounds.bounds(r.src[0])[1]) for r in axes]
    return "_".join([kind, *(lengths or ["1"])])


def identifier(kernel: UOp) -> str:
    """The name of a kernel in its code and in file names: an ASCII identifier."""
    given = kernel.arg.name if isinstance(kernel.arg, KernelArg) else ""
    name = _NO_WORD.sub("_", given)[:_MOST]
    return f"_{name}" if name[:1].isdigit() else name or "kernel"


def numbered_kernels(kernels: list[UOp]) -> list[UOp]:
    """The kernels, those of the same name numbered."""
    out = []
    for k, name in zip(kernels, numbered(map(identifier, kernels))):
        arg = k.arg if isinstance(k.arg, KernelArg) else KernelArg()
        out.append(intern(k.op, k.dtype, k.src, replace(arg, name=name)))
    return out


def numbered(names: Iterable[str]) -> list[str]:
    """Number equal names: r_8_4, r_8_4n1, …"""
    taken: set[str] = set()
    seen: dict[str, int] = {}
    out = []
    for first in names:
        name, n = first, seen.get(first, 0)
        while name in taken:
            n += 1
            name = f"{first}n{n}"
        taken.add(name)
        seen[first] = n
        out.append(name)
    return out
