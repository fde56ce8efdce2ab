"""Masks are hidden from LLVM where its faults need that, and nowhere else: stores under a mask that
constants decide write its lanes, and nothing beside them."""

from __future__ import annotations

import re

import pytest

import uopc
from tests.by_hand import plain_kernel, with_opts
from tests.machines import lowered_for
from uopc.backends.llvm import jit
from uopc.driver import backend_of
from uopc.ir.core import dtypes
from uopc.ir.core.args import Opt

NARROW = ("int8", "uint8", "int16", "uint16", "fp8e4m3", "fp8e5m2", "bool")
# Stores of one scalar by the bytes that each writes.
SCALARS = {
    "movb": 1, "vpextrb": 1, "movw": 2, "vpextrw": 2, "movl": 4, "vmovd": 4, "vmovss": 4,
    "vpextrd": 4, "vextractps": 4, "movq": 8, "vmovq": 8, "vpextrq": 8, "vmovlps": 8,
}  # fmt: skip


def stores_of_scalars(assembly: str) -> list[str]:
    """The mnemonics of the scalar stores to memory that is not the stack."""
    stores = re.findall(r"^\s(\w+)\s.*\s-?\d*\(%(?!rsp)\w+\)$", assembly, re.MULTILINE)
    return [name for name in stores if name in SCALARS]


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("rest", [1, 2, 15])
def test_the_last_vector_of_narrowed_numbers(name: str, rest: int) -> None:
    """16 lanes of 4 bytes become narrow ones; `rest` lanes of the second vector are stored."""
    dtype = dtypes.by_name(name)
    x = uopc.param("x", (16 + rest,), "int32")
    value = (x & 1).eq(0) if name == "bool" else (x * 3).cast(dtype)
    opts = [Opt("PADTO", 0, 16), Opt("VECTOR", 0, 16), Opt("UPCAST", 0, 2)]
    lowered = lowered_for("workstation", with_opts(plain_kernel(value), opts))
    (text,) = backend_of("cpu").render(lowered, lowered.kernels).values()
    assert "llvm.masked.store" in text
    assembly = jit.assembly(text, "x86-64-v4", "")
    wide = [s for s in stores_of_scalars(assembly) if SCALARS[s] > rest * dtype.itemsize]
    assert not wide, assembly


@pytest.mark.parametrize(("machine", "hidden"), [("laptop", False), ("workstation", True)])
def test_masks_are_hidden_only_from_mask_registers(machine: str, hidden: bool) -> None:
    """A load of 8 of 16 lanes beside a choice of lanes; with AVX a mask takes no instruction."""
    x = uopc.param("x", (3, 11))
    value = uopc.where(x > 0, x, 1.0 - x).sum(0)
    opts = [Opt("PADTO", 0, 8), Opt("VECTOR", 0, 8)]
    lowered = lowered_for(machine, with_opts(plain_kernel(value), opts))
    (text,) = backend_of("cpu").render(lowered, lowered.kernels).values()
    assert "llvm.masked.load" in text
    assert ("asm" in text) is hidden
