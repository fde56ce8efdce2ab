"""The place of a launch in a program for several devices: its device and its round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import arguments, read_slots, storage_root, written_slots
from uopc.ir.core.uop import UOp
from uopc.ir.devices import device


class LaunchPlace(NamedTuple):
    """The device of a launch, by its number in the program, and its round."""

    device: int
    round: int


def own_device(call: UOp) -> str:
    """The device that runs a launch: the device of all storage it reads, else of the storage it
    writes. Empty if all storage is the caller's, which any device reaches, or is on several
    devices."""
    kernel = call.src[0]
    return device_of(arguments(call), read_slots(kernel), written_slots(kernel))


def device_of(args: Sequence[UOp], read: Iterable[int], written: Iterable[int]) -> str:
    """`own_device` of a launch with these arguments; `read`, `written`: the slots read and written.
    """
    reads = {name for slot in read for name in _named_device(args[slot])}
    if len(reads) == 1:
        return reads.pop()
    writes = {name for slot in written for name in _named_device(args[slot])}
    return writes.pop() if len(writes) == 1 else ""


def _named_device(argument: UOp) -> list[str]:
    """The device that the storage of an argument names: a list of one or none."""
    root = storage_root(argument)
    named = root.op in (Ops.PARAM, Ops.BUFFER) and root.arg.device
    return [device.named(root.arg.device)] if named else []
