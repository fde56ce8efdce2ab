"""Relocations of ELF objects: how a distance or an address is written into the code of a processor.

An image is laid out from offset 0 and mapped at a multiple of `PAGE`, so that distances, also those
between pages, are known before it has an address. Sources: the psABI documents of x86-64, "ELF for
the Arm 64-bit Architecture" and the psABI document of RISC-V.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from uopc.backends import elf
from uopc.errors import Unsupported

PAGE = 1 << 12  # bytes of the pages that AArch64's ADRP counts

# Writes into the image at a location, for a target; both are offsets in the image.
Patch = Callable[[bytearray, int, int], None]


class RelocationKind(NamedTuple):
    """`through_slot`: the target is the slot with the symbol's address, not the symbol itself.
    `is_absolute`: the target is an address, not an offset in the image."""

    patch: Patch
    through_slot: bool = False
    is_absolute: bool = False


class Stub(NamedTuple):
    """Code that jumps to the address in a slot. `put`: write it into an image, given its offset and
    that of the slot."""

    put: Callable[[bytearray, int, int], None]
    nbytes: int


class Architecture(NamedTuple):
    """The relocations of a processor, and the stub where code is loaded by this package."""

    name: str
    kinds: Mapping[int, RelocationKind]
    stub: Stub | None = None

    def kind(self, number: int) -> RelocationKind:
        """The kind with a number in the file. Unsupported if it is not known."""
        if number not in self.kinds:
            raise Unsupported(f"ELF relocation type {number} of {self.name}: link the object file")
        return self.kinds[number]


def _address(image: bytearray, at: int, target: int) -> None:
    struct.pack_into("<Q", image, at, target)


def _distance(form: str) -> Patch:
    def patch(image: bytearray, at: int, target: int) -> None:
        try:
            struct.pack_into(form, image, at, target - at)
        except struct.error:
            raise _too_far() from None

    return patch


def _too_far() -> Unsupported:
    return Unsupported("the code and its data are too large: link the object file")


_ABSOLUTE = RelocationKind(_address, is_absolute=True)
_NEAR, _FAR = _distance("<i"), _distance("<q")


# ---------------------------------------------------------------- x86-64
def _put_x86_stub(image: bytearray, at: int, slot: int) -> None:
    # jmp [rip + distance]
    struct.pack_into("<2si2s", image, at, b"\xff\x25", slot - (at + 6), b"\xcc\xcc")


# R_X86_64_64, PC32, PLT32, GOTPCREL, PC64, GOTPCRELX, REX_GOTPCRELX.
_X86_KINDS = {
    1: _ABSOLUTE, 2: RelocationKind(_NEAR), 4: RelocationKind(_NEAR),
    9: RelocationKind(_NEAR, through_slot=True), 24: RelocationKind(_FAR),
    41: RelocationKind(_NEAR, through_slot=True), 42: RelocationKind(_NEAR, through_slot=True),
}  # fmt: skip


# ---------------------------------------------------------------- bits of instructions
def _fill(image: bytearray, at: int, bits: int) -> None:
    """Fill in bits of an instruction that are 0 so far."""
    (word,) = struct.unpack_from("<I", image, at)
    struct.pack_into("<I", image, at, word | bits)


def _check_reach(distance: int, bits: int) -> None:
    if not -(1 << bits - 1) <= distance < 1 << bits - 1:
        raise _too_far()


# ---------------------------------------------------------------- AArch64
def _branch(image: bytearray, at: int, target: int) -> None:
    _check_reach(target - at, 28)
    _fill(image, at, target - at >> 2 & 0x3FFFFFF)


def _page(image: bytearray, at: int, target: int) -> None:
    pages = target // PAGE - at // PAGE
    _check_reach(pages, 21)
    _fill(image, at, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _within_page(scale: int) -> Patch:
    """The place in the page, in units of 2^scale bytes, which an ADD, a load or a store adds."""
    def patch(image: bytearray, at: int, target: int) -> None:
        place = target % PAGE
        if place % (1 << scale):
            raise Unsupported(f"an access of {1 << scale} bytes at an offset of {target}")
        _fill(image, at, place >> scale << 10)

    return patch


def _put_arm_stub(image: bytearray, at: int, slot: int) -> None:
    # adrp x16, page; ldr x16, [x16, place]; br x16
    struct.pack_into("<3I", image, at, 0x90000010, 0xF9400210, 0xD61F0200)
    _page(image, at, slot)
    _within_page(3)(image, at + 4, slot)


# R_AARCH64_ABS64, PREL64, PREL32, ADR_PREL_PG_HI21, ADD_ABS_LO12_NC, LDST8 to LDST128_ABS_LO12_NC,
# JUMP26, CALL26, ADR_GOT_PAGE, LD64_GOT_LO12_NC.
_ARM_KINDS = {
    257: _ABSOLUTE, 260: RelocationKind(_FAR), 261: RelocationKind(_NEAR),
    275: RelocationKind(_page), 277: RelocationKind(_within_page(0)),
    278: RelocationKind(_within_page(0)), 284: RelocationKind(_within_page(1)),
    285: RelocationKind(_within_page(2)), 286: RelocationKind(_within_page(3)),
    299: RelocationKind(_within_page(4)),
    282: RelocationKind(_branch), 283: RelocationKind(_branch),
    311: RelocationKind(_page, through_slot=True),
    312: RelocationKind(_within_page(3), through_slot=True),
}  # fmt: skip


# ---------------------------------------------------------------- RISC-V
# The upper 20 bits of a distance, rounded, and the lower 12 bits, which are signed.
RISCV_UPPER, RISCV_LOWER = 23, (24, 25)  # R_RISCV_PCREL_HI20, PCREL_LO12_I, PCREL_LO12_S


def _parts(at: int, target: int) -> tuple[int, int]:
    rounded = target - at + 0x800
    _check_reach(rounded, 32)
    return rounded & 0xFFFFF000, target - at & 0xFFF


def _riscv_call(image: bytearray, at: int, target: int) -> None:
    upper, lower = _parts(at, target)
    _fill(image, at, upper)
    _fill(image, at + 4, lower << 20)


def _riscv_upper(image: bytearray, at: int, target: int) -> None:
    _fill(image, at, _parts(at, target)[0])


def _riscv_load(image: bytearray, at: int, target: int) -> None:
    _fill(image, at, _parts(at, target)[1] << 20)


def _riscv_store(image: bytearray, at: int, target: int) -> None:
    lower = _parts(at, target)[1]
    _fill(image, at, (lower >> 5) << 25 | (lower & 31) << 7)


_RISCV_KINDS = {
    18: RelocationKind(_riscv_call), 19: RelocationKind(_riscv_call),
    RISCV_UPPER: RelocationKind(_riscv_upper),
    RISCV_LOWER[0]: RelocationKind(_riscv_load), RISCV_LOWER[1]: RelocationKind(_riscv_store),
}  # fmt: skip

# By the number of the machine in ELF; `name`: as the system calls the processor.
ARCHITECTURES: Mapping[int, Architecture] = {
    elf.X86_64: Architecture("x86_64", _X86_KINDS, Stub(_put_x86_stub, 8)),
    elf.AARCH64: Architecture("aarch64", _ARM_KINDS, Stub(_put_arm_stub, 16)),
    elf.RISCV: Architecture("riscv64", _RISCV_KINDS),
}
