"""Executes a kernel: threads as lanes of NumPy arrays, the lowest program counter first.

All lanes at the lowest place run on together until they branch, meet a barrier or reach a place
where others wait; so lanes that parted come together again where their ways meet (`flow.py`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.ptx import banks
from tests.ptx.build import Build, Unknown
from tests.ptx.flow import Step, in_order
from tests.ptx.memory import POISON, Array, AsyncCopies, Fault, Memory, Shared
from tests.ptx.parse import (
    Immediate,
    Instruction,
    Kernel,
    Operand,
    PtxError,
    Reg,
    Symbol,
    Variable,
)  # fmt: skip

Dim3 = tuple[int, int, int]
MOST_LANES = 1 << 16  # of a batch of blocks
MOST_STEPS = 50_000_000
MOST_WORK = 1 << 62  # instructions of single threads, over a launch
_FAR = np.iinfo(np.int64).max

class TooLarge(PtxError):
    """A launch that would take longer than was allowed."""


@dataclass
class Report:
    """The counts of a launch."""

    instructions: int = 0  # steps of the machine, each over many lanes
    work: int = 0  # instructions of single threads
    sectors: int = 0  # of 32 bytes, that the warps' accesses to global memory touched
    copied: int = 0  # of these pieces, by cp.async
    products: int = 0  # multiplications of tensor cores
    turns: int = 0  # of shared memory's banks, for the warps' accesses
    conflicts: int = 0  # turns more than accesses without conflicts would take
    approximate: set[str] = field(default_factory=set)  # opcodes the hardware only approximates
    opcodes: set[str] = field(default_factory=set)


class Lanes:
    """The state of a batch of blocks. `active` holds the lanes that act now; None is all."""

    def __init__(self, launch: Launch, first: int, blocks: int) -> None:
        self.kernel, self.memory, self.report = launch.kernel, launch.memory, launch.report
        self.launch, self.first, self.blocks = launch, first, blocks
        self.threads = math.prod(launch.block)
        self.count = blocks * self.threads
        self.registers: dict[str, Array] = {}
        self.active: Array | None = None
        self.all = np.arange(self.count)
        self.block_of = self.all // self.threads
        self.thread_of = (self.all % self.threads).astype(np.int32)
        self.shared = Shared(blocks, launch.shared_bytes, self.threads, launch.granule)
        if launch.counting:
            self.shared.counted = self._count_turns
        self.who = ((first + self.block_of) * self.threads + self.thread_of).astype(np.int32)
        self.met = np.zeros(blocks, np.int32)  # how often each block has met
        self.local = np.full((self.count, launch.kernel.local_bytes), POISON, np.uint8)
        self.copies = AsyncCopies(self.count)
        self.carry: Array = np.zeros(self.count, np.uint64)
        self._special: dict[str, Array] = {}

    # -------------------------------------------------------- lanes
    @property
    def lanes(self) -> Array:
        """The numbers of the active lanes."""
        return self.all if self.active is None else self.active

    @property
    def width(self) -> int:
        return self.count if self.active is None else len(self.active)

    def here(self, whole: Array) -> Array:
        """The active part of an array over all lanes."""
        return whole if self.active is None else whole[self.active]

    def name_of(self, lane: int) -> str:
        thread, block = lane % self.threads, self.first + lane // self.threads
        return f"thread {_unflatten(thread, self.launch.block)} of block " + str(
            _unflatten(block, self.launch.grid)
        )

    def by(self, lanes: Array) -> tuple[Array, Array] | None:
        """The threads that access global memory, if races there are looked for."""
        if not self.launch.watched:
            return None
        return self.who[lanes], self.met[self.block_of[lanes]]

    def _count_turns(self, offsets: Array, lanes: Array, size: int) -> None:
        turns, phases = banks.turns(offsets, lanes, size)
        self.report.turns += turns
        self.report.conflicts += turns - phases

    # -------------------------------------------------------- registers
    def register(self, name: str) -> Array:
        found = self.registers.get(name)
        if found is None:
            size = self.launch.size_of(name)
            kind = np.dtype(np.bool_) if name in self.launch.predicates else np.dtype(f"u{size}")
            fill = False if kind == np.bool_ else (1 << 8 * size) - 1
            found = self.registers[name] = np.full(self.count, fill, kind)
        return found

    def put(self, name: str, value: Array) -> None:
        """Write a register of the active lanes: wider ones are extended by the value's sign."""
        kind = self.launch.kind_of(name)
        if value.dtype != kind:
            value = _as_bits(value, kind)
        if self.active is None:
            whole = np.empty(self.count, kind)
            whole[:] = value
            self.registers[name] = whole
        else:
            self.register(name)[self.active] = value

    def special(self, name: str) -> Array:
        """A special register, over all lanes."""
        found = self._special.get(name)
        if found is None:
            found = self._special[name] = self._make_special(name)
        return found

    def _make_special(self, name: str) -> Array:
        root, _, axis = name[1:].partition(".")
        block, grid = self.launch.block, self.launch.grid
        whole = {"ntid": block, "nctaid": grid}
        parts: dict[str, tuple[Array, Dim3]] = {
            "tid": (self.thread_of.astype(np.int64), block),
            "ctaid": (self.block_of + self.first, grid),
        }
        if root in whole and axis:
            return np.full(self.count, whole[root]["xyz".index(axis)], np.uint32)
        if root in parts and axis:
            flat, (x, y, _z) = parts[root]
            value = {"x": flat % x, "y": flat // x % y, "z": flat // (x * y)}[axis]
            return value.astype(np.uint32)
        lane = (self.thread_of % 32).astype(np.uint32)
        plain = {"laneid": lane, "warpid": (self.thread_of // 32).astype(np.uint32)}
        masks = {"eq": 1 << lane.astype(np.uint64), "lt": (1 << lane.astype(np.uint64)) - 1}
        if root in plain:
            return plain[root]
        if root.startswith("lanemask_") and root[9:] in masks:
            return masks[root[9:]].astype(np.uint32)
        raise Unknown(f"the special register {name} is not known")


def _unflatten(n: int, dims: Dim3) -> Dim3:
    return n % dims[0], n // dims[0] % dims[1], n // (dims[0] * dims[1])


def _as_bits(value: Array, kind: Any) -> Array:
    """Values as the bits of a register at least as wide: signed ones keep their sign."""
    if kind == np.bool_:
        if value.dtype != np.bool_:
            raise PtxError("a number written to a predicate")
        return value
    size = value.dtype.itemsize
    if value.dtype.kind not in "iu":
        value = np.ascontiguousarray(value).view(f"u{size}")
    if size > kind.itemsize:
        raise PtxError(f"{size} bytes written to a register of {kind.itemsize}")
    return value.astype(kind)


class Launch:
    """A kernel bound to its grid, its arguments and memory."""

    def __init__(self, kernel: Kernel, grid: Dim3, block: Dim3, args: bytes,
                 memory: Memory, dynamic_shared: int) -> None:  # fmt: skip
        if kernel.block is not None and kernel.block != block:
            raise PtxError(f"{kernel.name} wants blocks of {kernel.block}, launched with {block}")
        if not 1 <= math.prod(block) <= 1024 or min(*grid, *block) < 1:
            raise PtxError(f"{kernel.name}: grid {grid} of blocks {block} cannot be launched")
        if len(args) < kernel.param_bytes:
            raise PtxError(f"{kernel.name} takes {kernel.param_bytes} bytes, {len(args)} given")
        self.kernel, self.grid, self.block, self.args = kernel, grid, block, args
        self.memory, self.report = memory, Report()
        if dynamic_shared and not kernel.is_dynamic:
            raise PtxError(f"{kernel.name} declares its shared memory; the launch asks for more")
        self.shared_bytes = kernel.shared_bytes + dynamic_shared
        self.params = {p.name: p for p in kernel.params}
        self.predicates = {p for p, size in kernel.registers.items() if size == 1}
        self._kinds: dict[str, Any] = {}
        self._globals: dict[str, int] = {}
        self.granule = _narrowest(kernel, "shared")
        self.counting = False
        # Blocks that wait for each other by atomics and fences know what they do.
        waits = ("atom", "red", "fence", "membar")
        self.watched = not any(i.root in waits for i in kernel.instructions)

    def size_of(self, name: str) -> int:
        declared = self.kernel.registers
        size = declared.get(name.rstrip("0123456789")) or declared.get(name)
        if size is None:
            raise PtxError(f"{name} is not declared")
        return size

    def kind_of(self, name: str) -> Any:
        kind = self._kinds.get(name)
        if kind is None:
            size = self.size_of(name)
            if size == 1:
                self.predicates.add(name)
            kind = np.dtype(np.bool_) if size == 1 else np.dtype(f"u{size}")
            self._kinds[name] = kind
        return kind

    def resolve(self, o: Any) -> Any:
        """A name that a scope declared as a register is one."""
        if isinstance(o, Symbol) and o.name in self.kernel.registers:
            return Reg(o.name)
        return o

    def variable(self, name: str) -> Variable:
        found = self.params.get(name) or self.kernel.variables.get(name)
        if found is None:
            raise PtxError(f"{name} is not declared")
        return found

    def address_of(self, name: str) -> int:
        """The address of a variable in its own space."""
        v = self.variable(name)
        if v.space in ("global", "const"):
            if name not in self._globals:
                data = np.frombuffer(v.data or bytes(v.size), np.uint8).copy()
                self._globals[name] = self.memory.place(data)
            return self._globals[name]
        return v.offset


def _narrowest(kernel: Kernel, space: str) -> int:
    """The bytes of the checker's cells: no access to a space (or a generic one) is narrower."""
    sizes = [16]
    others = {"shared", "shared__cta", "global", "local", "param", "const"} - {space}
    if space == "shared":
        others.discard("shared__cta")
    for i in kernel.instructions:
        if i.root in ("ld", "st", "atom", "red") and not others & set(i.modifiers):
            last = i.modifiers[-1]
            sizes.append({"b8": 1, "u8": 1, "s8": 1}.get(last, 2 if "16" in last else 4))
        elif i.root in ("cp", "ldmatrix", "stmatrix", "mbarrier"):
            sizes.append(4)
    return min(sizes)


def run(kernel: Kernel, grid: Dim3, block: Dim3, args: bytes, memory: Memory,
        dynamic_shared: int = 0, blocks: int | None = None, first: int = 0) -> Report:  # fmt: skip
    """Execute a launch. PtxError (Fault among them) names the instruction and the thread.

    blocks: only so many, from number `first` on, and no look for races: for what a large launch
    does.
    """
    launch = Launch(kernel, grid, block, args, memory, dynamic_shared)
    program = in_order([_build(launch, i) for i in kernel.instructions])
    threads, total = math.prod(block), math.prod(grid)
    memory.begin_launch(_narrowest(kernel, "global"), threads)
    if blocks is not None:
        total, launch.watched, launch.counting = min(total, first + blocks), False, True
    at_once = max(1, min(total - first, MOST_LANES // threads))
    with np.errstate(all="ignore"):
        for begin in range(first, total, at_once):
            lanes = Lanes(launch, begin, min(at_once, total - begin))
            _Walk(lanes, program).run()
    return launch.report


def _build(launch: Launch, i: Instruction) -> Step:
    from tests.ptx.opcodes import OPCODES

    build = Build(launch, i)
    launch.report.opcodes.add(i.root)
    guard = build.value(i.guard, "pred") if i.guard is not None else None
    if i.root in ("ret", "exit"):
        return Step(None, guard, "exit", (), i.text)
    if i.root == "bra":
        build.modifiers.take("uni")
        build.modifiers.done()
        return Step(None, guard, "branch", (_label(launch, i.operands[0]),), i.text)
    if i.root == "brx":
        table = launch.kernel.tables[i.operands[1].name]
        targets = tuple([launch.kernel.labels[t] for t in table])
        return Step(None, build.get(0, "u32"), "table", targets, i.text)
    if i.root in ("bar", "barrier") and "warp" not in i.modifiers:
        _check_barrier(build)
        return Step(None, guard, "barrier", (), i.text)
    if i.root not in OPCODES:
        raise Unknown(f"{i.text}: the opcode {i.root} is not known")
    return Step(OPCODES[i.root](build), guard, "", (), i.text)


def _check_barrier(build: Build) -> None:
    m = build.modifiers
    m.take("cta")
    m.take("sync")
    m.take("aligned")
    m.done()
    if len(build.operands) != 1 or not isinstance(build.operands[0], Immediate):
        raise Unknown(f"{build.instruction.text}: a barrier of a part of the block")


def _label(launch: Launch, o: Operand) -> int:
    assert isinstance(o, Symbol)
    return launch.kernel.labels[o.name]


class _Walk:
    """Runs the lanes of a batch to their ends."""

    def __init__(self, lanes: Lanes, program: list[Step]) -> None:
        self.lanes, self.program = lanes, program
        self.place = np.zeros(lanes.count, np.int64)  # _FAR: at its end
        self.held = np.zeros(lanes.count, np.bool_)  # at a barrier
        self.holding = False

    def run(self) -> None:
        while True:
            place = np.where(self.held, _FAR, self.place) if self.holding else self.place
            lowest = int(place.min())
            if lowest == _FAR:
                if not self.holding:
                    return
                self._release()
                continue
            here = place == lowest
            if here.all():
                self.lanes.active, stop = None, _FAR
            else:
                self.lanes.active = np.flatnonzero(here)
                stop = int(place[~here].min())
            self._advance(lowest, stop)

    def _advance(self, at: int, stop: int) -> None:
        """Run the active lanes from `at` until they part, end, meet a barrier or reach `stop`."""
        lanes, program = self.lanes, self.program
        while at < stop:
            if at >= len(program):
                raise PtxError(f"{lanes.kernel.name}: ran past its end")
            step = program[at]
            lanes.report.instructions += 1
            lanes.report.work += lanes.width
            if step.kind:
                self._control(step, at)
                return
            try:
                self._act(step)
            except PtxError as error:
                lane = int(lanes.lanes[error.lane]) if isinstance(error, Fault) else 0
                raise type(error)(
                    f"{lanes.kernel.name}: {step.text}: {lanes.name_of(lane)}: {error}"
                ) from None
            at += 1
        if lanes.report.instructions > MOST_STEPS:
            raise PtxError(f"{lanes.kernel.name}: does not end")
        self.place[lanes.lanes] = at

    def _act(self, step: Step) -> None:
        lanes = self.lanes
        assert step.action is not None
        if step.guard is None:
            step.action(lanes)
            return
        whole = lanes.active
        chosen = lanes.lanes[step.guard(lanes)]
        if len(chosen):
            lanes.active = chosen
            step.action(lanes)
            lanes.active = whole

    def _control(self, step: Step, at: int) -> None:
        lanes = self.lanes
        if lanes.report.work > MOST_WORK:
            raise TooLarge(f"{lanes.kernel.name}: too large to execute")
        if lanes.report.instructions > MOST_STEPS:
            raise PtxError(f"{lanes.kernel.name}: does not end")
        who = lanes.lanes
        if step.kind == "table":
            assert step.guard is not None
            self.place[who] = np.array(step.targets)[step.guard(lanes).astype(np.int64)]
            return
        taken = np.broadcast_to(step.guard(lanes), who.shape) if step.guard is not None else None
        chosen = who if taken is None else who[taken]
        self.place[who] = at + 1
        if step.kind == "branch":
            self.place[chosen] = step.targets[0]
        elif step.kind == "exit":
            self.place[chosen] = _FAR
        else:
            self.place[chosen] = at
            self.held[chosen] = True
            self.holding = True

    def _release(self) -> None:
        """Every lane waits or has ended: the blocks whose threads all wait at one barrier go on."""
        lanes = self.lanes
        held = self.held.reshape(lanes.blocks, lanes.threads)
        place = self.place.reshape(lanes.blocks, lanes.threads)
        waits = held.any(axis=1)
        torn = waits & ~(held.all(axis=1) & (place == place[:, :1]).all(axis=1))
        if torn.any():
            block = int(np.argmax(torn))
            missing = np.flatnonzero(~held[block])
            odd = missing if len(missing) else np.flatnonzero(place[block] != place[block, 0])
            lane = block * lanes.threads + int(odd[0])
            waiting = block * lanes.threads + int(np.argmax(held[block]))
            text = self.program[int(self.place[waiting])].text
            ended = "has ended" if len(missing) else "is at another barrier"
            raise PtxError(
                f"{lanes.kernel.name}: {text}: {lanes.name_of(waiting)} waits at a barrier, "
                f"{lanes.name_of(lane)} {ended}"
            )
        lanes.shared.barrier(np.flatnonzero(waits))
        lanes.met[waits] += 1
        self.place[self.held] += 1
        self.held[:] = False
        self.holding = False


def pack(kernel: Kernel, values: Sequence[Any]) -> bytes:
    """Arguments laid out as the kernel's parameters: integers, or NumPy scalars of their size."""
    if len(values) != len(kernel.params):
        raise PtxError(f"{kernel.name} takes {len(kernel.params)} arguments, {len(values)} given")
    out = bytearray(kernel.param_bytes)
    formats = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
    for p, v in zip(kernel.params, values):
        if isinstance(v, np.generic):
            raw = v.tobytes()
        elif isinstance(v, bytes):
            raw = v
        else:
            raw = struct.pack(formats[p.size], int(v) & ((1 << 8 * p.size) - 1))
        out[p.offset : p.offset + p.size] = raw
    return bytes(out)

