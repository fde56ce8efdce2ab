"""The memories: global storage with gaps between allocations, shared with its checker, local.

Every access names the lanes it comes from, so that a fault can name the first thread at fault.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.ptx.parse import PtxError

Array = npt.NDArray[Any]

# Generic addresses: where the windows begin.
LOCAL_WINDOW = 0x0100_0000_0000
SHARED_WINDOW = 0x0200_0000_0000
GLOBAL_START = 0x0700_0000_0000
_GAP = 1 << 12
_ALIGN = 256
# Cells that were never written read as this byte: NaN as a float, nonsense as an index.
POISON = 0xFF


class Fault(PtxError):
    """An access that must not happen; `lane` is the position of the first one at fault."""

    def __init__(self, message: str, lane: int = 0) -> None:
        super().__init__(message)
        self.lane = lane


SEVERAL = -(1 << 31) + 1  # threads of several groups


class Watch:
    """The readers and writers of each cell of a memory since they last met.

    Threads are in groups (warps, or blocks) that meet at barriers of their own: two threads of one
    group may touch a cell, one of them writing, when the group has met in between; threads of
    different groups may not.
    """

    def __init__(self, cells: int, group: int) -> None:
        self.group = group
        self.writer = np.full(cells, -1, np.int32)  # a thread; -1: nobody
        self.reader = np.full(cells, -1, np.int32)  # also several of a group: -2 - group
        self.written_at = np.zeros(cells, np.int32)  # how often the group had met
        self.read_at = np.zeros(cells, np.int32)

    def forget(self, cells: slice) -> None:
        """All that touched these cells have met."""
        self.writer[cells] = -1
        self.reader[cells] = -1

    def read(self, cells: Array, threads: Array, met: Array) -> Array:
        """Note reads of (lanes, cells); where another thread has written, with no meeting since."""
        mine, now = threads[:, None], met[:, None]
        by = self.writer[cells]
        raced = (by >= 0) & (by != mine) & ~self._in_step(by, mine, self.written_at[cells], now)
        self._add_readers(cells, mine)
        self.read_at[cells] = now
        return raced

    def write(self, cells: Array, threads: Array, met: Array) -> tuple[Array, Array]:
        """Note writes; where another thread has written, and where another has read."""
        mine, now = threads[:, None], met[:, None]
        by = self.writer[cells]
        written = (by >= 0) & (by != mine) & ~self._in_step(by, mine, self.written_at[cells], now)
        by = self.reader[cells]
        read = (by != -1) & (by != mine) & ~self._in_step(by, mine, self.read_at[cells], now)
        self.note_writer(cells, threads, met)
        return written, read

    def note_writer(self, cells: Array, threads: Array, met: Array) -> None:
        self.writer[cells] = threads[:, None]
        self.written_at[cells] = met[:, None]

    def _add_readers(self, cells: Array, mine: Array) -> None:
        """Note who read: one thread, several of one group (-2 - group), or of several groups."""
        mine = np.broadcast_to(mine, cells.shape)
        group = mine // self.group
        old = self.reader[cells]
        joined = np.where(self._group_of(old) == group, -2 - group, SEVERAL)
        new = np.where((old == -1) | (old == mine), mine, joined)
        self.reader[cells] = new
        # Several lanes of this instruction may read one cell, of which the last was noted.
        got = self.reader[cells]
        clash = got != new
        if clash.any():
            joined = np.where(self._group_of(got) == group, -2 - group, SEVERAL)
            self.reader[cells[clash]] = joined[clash]
            self.reader[cells[clash & (joined == SEVERAL)]] = SEVERAL

    def _group_of(self, noted: Array) -> Array:
        """The group of a noted thread, or of several of one group; else a number that is none."""
        several = np.where(noted > SEVERAL, -2 - noted, SEVERAL)
        return np.where(noted >= 0, noted // self.group, several)

    def _in_step(self, other: Array, mine: Array, then: Array, now: Array) -> Array:
        """True where their common group has met in between."""
        result: Array = (self._group_of(other) == mine // self.group) & (then < now)
        return result


Who = tuple[Array, Array]  # of each lane: its thread, and how often its block has met


def _part(by: Who, chosen: Array | None) -> Who:
    return by if chosen is None else (by[0][chosen], by[1][chosen])


class Memory:
    """Global memory: allocations at addresses of their own, far apart."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.blocks: list[Array] = []
        self.roles: list[Array | None] = []  # of the words read by ld.global.nc, and written
        self.watches: list[Watch | None] = []
        self._granule, self._group = 4, 32
        self._next = GLOBAL_START

    def allocate(self, nbytes: int) -> int:
        """The address of fresh memory, full of poison."""
        return self._place(np.full(nbytes, POISON, np.uint8))

    def place(self, array: Array) -> int:
        """The address at which a contiguous array is seen, without a copy."""
        if not array.flags.c_contiguous:
            raise ValueError("only a contiguous array can be placed")
        return self._place(array.reshape(-1).view(np.uint8))

    def _place(self, block: Array) -> int:
        base = self._next
        self.bases.append(base)
        self.blocks.append(block)
        self.roles.append(None)
        self.watches.append(None)
        self._next += -(-(block.size + _GAP) // _ALIGN) * _ALIGN
        return base

    def free(self, address: int) -> None:
        at = bisect.bisect_left(self.bases, address)
        if at >= len(self.bases) or self.bases[at] != address:
            raise PtxError(f"free of {address:#x}, which is no allocation")
        del self.bases[at], self.blocks[at], self.roles[at], self.watches[at]

    def bytes_at(self, address: int, count: int) -> Array:
        """A view of `count` bytes."""
        at, offset = self.locate(address)
        if offset < 0 or offset + count > self.blocks[at].size:
            raise Fault(f"{count} bytes at {address:#x} are not inside an allocation")
        return self.blocks[at][offset : offset + count]

    def locate(self, address: int) -> tuple[int, int]:
        at = bisect.bisect_right(self.bases, address) - 1
        if at < 0:
            raise Fault(f"{address:#x} is below every allocation")
        return at, address - self.bases[at]

    def groups(self, addresses: Array, size: int) -> list[tuple[int, Array | None, Array]]:
        """By allocation: which lanes (None: all), and their byte offsets. Checked."""
        signed = addresses.view(np.int64)
        wrong = signed % size != 0
        if wrong.any():
            at = int(np.argmax(wrong))
            raise Fault(f"{int(addresses[at]):#x} is not a multiple of {size}", at)
        first, _ = self.locate(int(addresses[0]))
        offsets = signed - self.bases[first]
        if bool(((offsets >= 0) & (offsets + size <= self.blocks[first].size)).all()):
            return [(first, None, offsets)]
        owners = np.searchsorted(np.array(self.bases), signed, "right") - 1
        offsets = signed - np.array(self.bases)[owners]
        ends = np.array([b.size for b in self.blocks])[owners]
        bad = (owners < 0) | (offsets + size > ends)
        if bad.any():
            at = int(np.argmax(bad))
            near = f"{int(offsets[at])} bytes into an allocation of {int(ends[at])}"
            raise Fault(f"{size} bytes at {int(addresses[at]):#x} are out of bounds: {near}", at)
        return [
            (int(k), chosen, offsets[chosen])
            for k in np.unique(owners)
            for chosen in [np.flatnonzero(owners == k)]
        ]

    def load(self, addresses: Array, dtype: Any, count: int = 1, cached: bool = False,
             by: Who | None = None) -> Array:  # fmt: skip
        """(lanes, count) values; `cached` marks reads that must see no write of this launch.

        `by`: the thread of each lane and how often its block has met, where races are looked for.
        """
        size = np.dtype(dtype).itemsize
        out = np.empty((len(addresses), count), dtype)
        for k, chosen, offsets in self.groups(addresses, size * count):
            self._note(k, offsets, 1 if cached else 0)
            if by is not None:
                self._watch_read(k, offsets, size * count, _part(by, chosen), chosen)
            values = _view(self.blocks[k], dtype)[
                (offsets // size)[:, None] + np.arange(count)[None, :]
            ]
            if chosen is None:
                return values
            out[chosen] = values
        return out

    def store(self, addresses: Array, values: Array, by: Who | None = None) -> None:
        """Write (lanes, count) values."""
        size, count = values.dtype.itemsize, values.shape[1]
        for k, chosen, offsets in self.groups(addresses, size * count):
            self._note(k, offsets, 2)
            where = (offsets // size)[:, None] + np.arange(count)[None, :]
            given = np.ascontiguousarray(values if chosen is None else values[chosen])
            flat = _view(self.blocks[k], values.dtype)
            if by is not None:
                old = flat[where]
                same = (old.view(f"u{size}") == given.view(f"u{size}")).all(axis=1)
                self._watch_write(k, offsets, size * count, _part(by, chosen), chosen, same)
            flat[where] = given
            if by is not None:
                lost = (flat[where].view(f"u{size}") != given.view(f"u{size}")).any(axis=1)
                self._complain(lost, "several threads write different values at once", chosen)

    def begin_launch(self, granule: int = 4, group: int = 32) -> None:
        """Forget what the last launch did. No access is narrower than `granule` bytes; blocks are
        `group` threads."""
        self.roles = [None] * len(self.blocks)
        self.watches = [None] * len(self.blocks)
        self._granule, self._group = granule, group

    def _cells(self, k: int, offsets: Array, size: int) -> tuple[Watch, Array]:
        watch = self.watches[k]
        if watch is None:
            cells = -(-self.blocks[k].size // self._granule)
            watch = self.watches[k] = Watch(cells, self._group)
        first = (offsets // self._granule)[:, None]
        return watch, first + np.arange(max(1, size // self._granule))

    def _watch_read(self, k: int, offsets: Array, size: int, by: Who, chosen: Any) -> None:
        watch, cells = self._cells(k, offsets, size)
        raced = watch.read(cells, *by).any(axis=1)
        self._complain(raced, "reads what another thread of this launch wrote", chosen)

    def _watch_write(
        self, k: int, offsets: Array, size: int, by: Who, chosen: Any, same: Array
    ) -> None:
        """Writing what is there already changes nothing, whoever does it."""
        watch, cells = self._cells(k, offsets, size)
        written, read = (m.any(axis=1) & ~same for m in watch.write(cells, *by))
        self._complain(written, "writes what another thread of this launch wrote", chosen)
        self._complain(read, "writes what another thread of this launch reads", chosen)

    def _complain(self, bad: Array, words: str, chosen: Any) -> None:
        if bad.any():
            at = int(np.argmax(bad))
            raise Fault(words, at if chosen is None else int(chosen[at]))

    def _note(self, k: int, offsets: Array, role: int) -> None:
        if role == 0:
            return
        marks = self.roles[k]
        if marks is None:
            marks = self.roles[k] = np.zeros(-(-self.blocks[k].size // 4), np.uint8)
        words = offsets // 4
        clash = (marks[words] & (3 - role)) != 0
        if clash.any():
            raise Fault(
                "memory read by ld.global.nc is written in the same launch", int(np.argmax(clash))
            )
        marks[words] |= np.uint8(role)


def _view(block: Array, dtype: Any) -> Array:
    size = np.dtype(dtype).itemsize
    return block[: block.size // size * size].view(dtype)


class Shared:
    """The shared memory of several blocks, and who touched each byte since the last barrier.

    Two threads that touch a byte, one of them writing, must have a barrier between (or one of the
    warp, where both are in one warp). What cp.async writes is there after a wait of the thread
    that asked for it, and for the others after a barrier behind that.
    """

    def __init__(self, blocks: int, nbytes: int, threads: int, granule: int) -> None:
        self.stride = -(-nbytes // 16) * 16
        self.nbytes, self.threads, self.granule = nbytes, threads, granule
        self.data = np.full(max(16, blocks * self.stride), POISON, np.uint8)
        cells = self.data.size // granule
        self.watch = Watch(cells, 32)
        self.pending = np.zeros(cells, np.bool_)
        self.meetings = np.zeros(blocks * -(-threads // 32), np.int32)
        # Is told of accesses: byte offsets, numbers of lanes over all warps, bytes of each.
        self.counted: Callable[[Array, Array, int], None] | None = None

    def _offsets(self, addresses: Array, blocks: Array, threads: Array, size: int) -> Array:
        signed = addresses.astype(np.int64)
        bad = (signed < 0) | (signed + size > self.nbytes)
        if bad.any():
            at = int(np.argmax(bad))
            where = f"{size} bytes at {int(signed[at]):#x} are outside of the {self.nbytes}"
            raise Fault(f"{where} bytes of shared memory", at)
        wrong = signed % size != 0
        if wrong.any():
            at = int(np.argmax(wrong))
            raise Fault(f"shared address {int(signed[at]):#x} is not a multiple of {size}", at)
        if self.counted is not None:
            self.counted(signed, blocks * -(-self.threads // 32) * 32 + threads, size)
        return signed + blocks * self.stride

    def _cells(self, offsets: Array, size: int) -> Array:
        return (offsets // self.granule)[:, None] + np.arange(max(1, size // self.granule))

    def load(self, addresses: Array, blocks: Array, threads: Array, dtype: Any,
             count: int) -> Array:  # fmt: skip
        """(lanes, count) values."""
        size = np.dtype(dtype).itemsize
        offsets = self._offsets(addresses, blocks, threads, size * count)
        self.note_read(self._cells(offsets, size * count), blocks, threads)
        return self.data.view(dtype)[(offsets // size)[:, None] + np.arange(count)]

    def store(self, addresses: Array, blocks: Array, threads: Array, values: Array) -> None:
        """Write (lanes, count) values."""
        size, count = values.dtype.itemsize, values.shape[1]
        offsets = self._offsets(addresses, blocks, threads, size * count)
        self.note_write(self._cells(offsets, size * count), blocks, threads)
        where = (offsets // size)[:, None] + np.arange(count)
        flat = self.data.view(values.dtype)
        flat[where] = values
        bits = f"u{size}"
        lost = (flat[where].view(bits) != np.ascontiguousarray(values).view(bits)).any(axis=1)
        if lost.any():
            raise Fault("several threads write different values at once", int(np.argmax(lost)))

    def note_read(self, cells: Array, blocks: Array, threads: Array) -> None:
        if self.pending[cells].any():
            self._fault(self.pending[cells], "reads what cp.async has not been waited for", cells)
        raced = self.watch.read(cells, threads, self._met(blocks, threads))
        if raced.any():
            self._fault(raced, "reads what another thread wrote, with no barrier between", cells)

    def note_write(self, cells: Array, blocks: Array, threads: Array) -> None:
        if self.pending[cells].any():
            self._fault(self.pending[cells], "writes what cp.async is still writing", cells)
        written, read = self.watch.write(cells, threads, self._met(blocks, threads))
        if written.any():
            self._fault(written, "writes what another thread wrote, with no barrier between", cells)
        if read.any():
            self._fault(read, "writes what another thread read, with no barrier between", cells)

    def _met(self, blocks: Array, threads: Array) -> Array:
        return self.meetings[blocks * -(-self.threads // 32) + threads // 32]

    def _fault(self, bad: Array, words: str, cells: Array) -> None:
        lane, cell = np.unravel_index(int(np.argmax(bad)), bad.shape)
        at = int(cells[lane, cell]) * self.granule
        if self.stride:
            at %= self.stride
        raise Fault(f"{words} (shared byte {at})", int(lane))

    def barrier(self, blocks: Array) -> None:
        """All threads of these blocks have met."""
        per = self.stride // self.granule
        for block in blocks if per else ():
            self.watch.forget(slice(block * per, (block + 1) * per))

    def meet(self, warps: Array) -> None:
        """These warps (by number over all blocks) have met."""
        self.meetings[warps] += 1


class AsyncCopies:
    """cp.async of all lanes: data that lands when its thread waits for it."""

    def __init__(self, lanes: int) -> None:
        self.committed = np.zeros(lanes, np.int64)
        self.waiting: list[_Copy] = []

    def issue(self, shared: Shared, lanes: Array, blocks: Array, threads: Array,
              addresses: Array, data: Array) -> None:  # fmt: skip
        """Start copies of data (lanes, bytes) to shared addresses."""
        offsets = shared._offsets(addresses, blocks, threads, data.shape[1])
        cells = shared._cells(offsets, data.shape[1])
        shared.note_write(cells, blocks, threads)
        shared.pending[cells] = True
        self.waiting.append(
            _Copy(lanes, self.committed[lanes].copy(), blocks, threads, offsets, cells, data)
        )

    def commit(self, lanes: Array) -> None:
        self.committed[lanes] += 1

    def wait(self, shared: Shared, lanes: Array, open_groups: int | None) -> None:
        """Let all but the newest `open_groups` groups land; None: everything, committed or not."""
        limit = np.full(len(self.committed), -1, np.int64)
        limit[lanes] = (
            np.iinfo(np.int64).max if open_groups is None else self.committed[lanes] - open_groups
        )
        left = []
        for copy in self.waiting:
            ready = copy.group < limit[copy.lanes]
            if ready.any():
                copy.take(ready).land(shared)
            if not ready.all():
                left.append(copy.take(~ready))
        self.waiting = left


class _Copy:
    def __init__(self, lanes: Array, group: Array, blocks: Array, threads: Array, offsets: Array,
                 cells: Array, data: Array) -> None:  # fmt: skip
        self.lanes, self.group, self.blocks, self.threads = lanes, group, blocks, threads
        self.offsets, self.cells, self.data = offsets, cells, data

    def take(self, chosen: Array) -> _Copy:
        parts: Sequence[Array] = (self.lanes, self.group, self.blocks, self.threads, self.offsets,
                                  self.cells, self.data)  # fmt: skip
        return _Copy(*[p[chosen] for p in parts])

    def land(self, shared: Shared) -> None:
        shared.pending[self.cells] = False
        met = shared._met(self.blocks, self.threads)
        shared.watch.note_writer(self.cells, self.threads, met)
        shared.data[self.offsets[:, None] + np.arange(self.data.shape[1])] = self.data
