"""The device of a value, by the rule that its op's row names: a fact about a graph, like a shape.
"""

from __future__ import annotations

from collections.abc import Callable

from uopc.errors import UserError
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp

CPU_DEVICES = 64  # of a process: each has workers, an order of calls and storage of its own
# A name; a tuple of names for one value on several devices; None: the device of the compile.
Device = str | tuple[str | None, ...] | None
_Known = dict[UOp, Device]


def named(name: str) -> str:
    """The canonical name of a device: the first devices of each kind are `cpu` and `cuda:0`.

    Examples:
        >>> from uopc.ir.devices import device
        >>> device.named("CPU:0"), device.named("cuda"), device.named("cuda:1")
        ('cpu', 'cuda:0', 'cuda:1')
    """
    name = name.lower()
    return {"cpu:0": "cpu", "cuda": "cuda:0"}.get(name, name)


def is_cpu(name: str) -> bool:
    """True for a CPU device: `cpu`, `cpu:1`, … up to the last.

    Examples:
        >>> from uopc.ir.devices import device
        >>> device.is_cpu("cpu:3"), device.is_cpu("cpu:99")
        (True, False)
    """
    kind, colon, number = name.partition(":")
    if kind != "cpu" or not colon:
        return name == "cpu"
    plain = number.isascii() and number.isdigit() and str(int(number)) == number
    return plain and int(number) < CPU_DEVICES


def number(name: str) -> int:
    """The number of a CPU device.

    Examples:
        >>> from uopc.ir.devices import device
        >>> device.number("cpu"), device.number("cpu:3")
        (0, 3)
    """
    return int(name.partition(":")[2] or 0)


def device(u: UOp) -> Device:
    """The device of a value, named by a COPY or by the storage that the value reads. None if no
    node names a device: then `compile` decides.

    UserError if the operands of a node are on several devices.

    Examples:
        >>> x = uopc.param("x", (2,))
        >>> x.device, (x.copy("cpu") + 1).device
        (None, 'cpu')
    """
    known: _Known = {}
    for s in walk.toposort(u):
        known[s] = RULES[s.op.device](s, known)
    return known[u]


def devices(root: UOp) -> _Known:
    """The device of each node outside of hand-written kernels; UserError as for `device`."""
    known: _Known = {}
    for s in walk.nodes(root):
        known[s] = RULES[s.op.device](s, known)
    return known


NAMING = (Ops.COPY, Ops.PARAM, Ops.BUFFER)  # the ops whose arg has a device


def names_one(u: UOp) -> bool:
    """True for a node that names the device of its value."""
    return u.op is Ops.COPY or (u.op in NAMING and u.arg.device != "")


def on_several(root: UOp) -> _Known:
    """The device of each node of a graph on several devices; empty for a graph on one device."""
    if not any(map(names_one, walk.nodes(root))):
        return {}
    known = devices(root)
    return known if len({v for v in known.values() if isinstance(v, str)}) > 1 else {}


def _common(u: UOp, known: _Known) -> Device:
    """The device that the operands share."""
    first: UOp | None = None
    for s in u.src:
        if known.get(s) is None:
            continue
        if first is None:
            first = s
        elif known[s] != known[first]:
            one, other = (f"{_words(v)} is on {show(known[v])}{made_at(v)}" for v in (first, s))
            hint = "use .copy(device) on one of the two"
            raise UserError(f"{u.op.name.upper()}: {one}\n{other}\n{hint}")
    return None if first is None else known[first]


def _words(u: UOp) -> str:
    """The name of a value in messages."""
    return str(u.arg.name) if u.op is Ops.PARAM else f"a {u.op.name}"


def show(place: Device) -> str:
    """A device as text."""
    return ", ".join(map(str, place)) if isinstance(place, tuple) else str(place)


def _selected(u: UOp, known: _Known) -> Device:
    """The device of one part of a value on several devices."""
    whole = known[u.src[0]]
    if not isinstance(whole, tuple):
        return whole
    if not 0 <= u.arg < len(whole):
        raise UserError(
            f"mselect: part must be below {len(whole)}, the number of devices, got"
            f" {u.arg}{made_at(u)}"
        )
    chosen: str | None = whole[u.arg]
    return chosen


def _each(u: UOp, known: _Known) -> Device:
    parts: list[str | None] = []
    for s in u.src:
        part = known[s]
        if isinstance(part, tuple):
            raise UserError(
                f"mstack: each part must be on one device, got {show(part)}{made_at(s)}"
            )
        parts.append(part)
    return tuple(parts)


RULES: dict[str, Callable[[UOp, _Known], Device]] = {
    "operands": _common,
    "first": lambda u, known: known.get(u.src[0]),
    "storage": lambda u, known: named(u.arg.device) if u.arg.device else None,
    "given": lambda u, known: named(u.arg),
    "each": _each,
    "part": _selected,
    "none": lambda u, known: None,
}
