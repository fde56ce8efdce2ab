"""Loads, stores, atomics and cp.async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ptx.build import NUMPY, Action, Build, Builder, Unknown
from tests.ptx.machine import Lanes
from tests.ptx.memory import LOCAL_WINDOW, SHARED_WINDOW, Array, Fault
from tests.ptx.parse import Address, Immediate, Symbol

_SPACES = ("global", "shared", "shared__cta", "local", "param", "const")
_TYPES = tuple([t for t in NUMPY if t != "pred"])
_HINTS = ("L1__evict_last", "L1__evict_first", "L1__no_allocate", "L1__evict_normal",
          "L1__evict_unchanged", "L2__64B", "L2__128B", "L2__256B", "ca", "cg", "cs", "lu", "cv",
          "wb", "wt")  # fmt: skip
_ORDERS = ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc")
_SCOPES = ("cta", "cluster", "gpu", "sys")


def _shape(build: Build) -> tuple[str, str, int, bool]:
    """Space, type, count of values, and whether the read-only cache is asked for."""
    m = build.modifiers
    t = m.type(_TYPES)
    for words in (_ORDERS, _SCOPES, _HINTS, _HINTS):
        m.take(*words)
    space = next((s for s in _SPACES if m.take(s)), "generic")
    cached = m.take("nc")
    count = 2 if m.take("v2") else 4 if m.take("v4") else 8 if m.take("v8") else 1
    m.done()
    return space.removesuffix("__cta"), t, count, cached


def load(build: Build) -> Action:
    """ld: one value or a vector of them."""
    space, t, count, cached = _shape(build)
    puts = [build.set(o) for o in build.items(0)]
    if len(puts) != count:
        raise Unknown(f"{build.instruction.text}: {len(puts)} results of {count}")
    dtype = np.dtype(NUMPY[t])
    if space == "param":
        values = _param(build, dtype, count)
        return lambda lanes: _spread(lanes, puts, values(lanes))
    address = build.address(1)

    def act(lanes: Lanes) -> None:
        _spread(lanes, puts, read(lanes, space, address(lanes), dtype, count, cached))

    return act


def _spread(lanes: Lanes, puts: list[Callable[[Lanes, Array], None]], values: Array) -> None:
    for k, put in enumerate(puts):
        put(lanes, values[:, k])


def _param(build: Build, dtype: Any, count: int) -> Callable[[Lanes], Array]:
    """Values of a parameter: the same for every lane, but where its address is computed."""
    o = build.operands[1]
    size = count * dtype.itemsize
    if isinstance(o, Address) and isinstance(o.base, Symbol):
        at = build.launch.address_of(o.base.name) + o.offset
        raw = build.launch.args[at : at + size]
        if len(raw) < size:
            raise Unknown(f"{build.instruction.text}: beyond the arguments")
        values = np.frombuffer(raw, dtype).reshape(1, count)
        return lambda lanes: values
    address = build.address(1)
    given = np.frombuffer(build.launch.args, np.uint8)

    def act(lanes: Lanes) -> Array:
        first = np.broadcast_to(address(lanes), (lanes.width,)).astype(np.int64)
        bad = (first < 0) | (first + size > len(given))
        if bad.any():
            raise Fault("reads beyond the arguments", int(np.argmax(bad)))
        return given[first[:, None] + np.arange(size)].view(dtype)

    return act


def _space_of(lanes: Lanes, space: str, addresses: Array) -> list[tuple[str, Array | None, Array]]:
    """Generic addresses by window: (space, which of the active lanes, addresses there)."""
    if space != "generic":
        return [("global" if space == "const" else space, None, addresses)]
    parts: list[tuple[str, Array | None, Array]] = []
    signed = addresses.astype(np.int64)
    windows = (("local", LOCAL_WINDOW, SHARED_WINDOW), ("shared", SHARED_WINDOW, 2 * SHARED_WINDOW))
    left = np.ones(len(addresses), np.bool_)
    for name, low, high in windows:
        inside = (signed >= low) & (signed < high)
        if inside.any():
            left &= ~inside
            chosen = None if inside.all() else np.flatnonzero(inside)
            own = addresses if chosen is None else addresses[chosen]
            parts.append((name, chosen, own - np.uint64(low)))
    if left.any():
        chosen = None if left.all() else np.flatnonzero(left)
        parts.append(("global", chosen, addresses if chosen is None else addresses[chosen]))
    return parts


def read(lanes: Lanes, space: str, addresses: Array, dtype: Any, count: int,
         cached: bool = False, atomic: bool = False) -> Array:  # fmt: skip
    """(lanes, count) values at the addresses of the active lanes."""
    out = np.empty((lanes.width, count), dtype)
    for name, chosen, own in _space_of(lanes, space, addresses):
        who = lanes.lanes if chosen is None else lanes.lanes[chosen]
        if name == "global":
            lanes.report.sectors += _sectors(lanes, who, own, np.dtype(dtype).itemsize * count)
            # Nobody writes elements that .nc reads: this is checked for all threads together.
            by = None if atomic or cached else lanes.by(who)
            got = lanes.memory.load(own, dtype, count, cached, by)
        elif name == "shared":
            got = lanes.shared.load(own, lanes.block_of[who], lanes.thread_of[who], dtype, count)
        else:
            got = _local(lanes, who, own, dtype, count)[2]
        if chosen is None:
            return got
        out[chosen] = got
    return out


def _sectors(lanes: Lanes, who: Array, addresses: Array, size: int) -> int:
    """The number of pieces of 32 bytes that the warps touch, for which they ask the caches."""
    if not lanes.launch.counting:
        return 0
    warp = lanes.who[who].astype(np.int64) // 32 << 40
    first, last = (a.astype(np.int64) >> 5 for a in (addresses, addresses + np.uint64(size - 1)))
    return len(np.unique(np.concatenate([warp ^ first, warp ^ last])))


def write(lanes: Lanes, space: str, addresses: Array, values: Array,
          atomic: bool = False) -> None:  # fmt: skip
    """Store (lanes, count) values at the addresses of the active lanes."""
    for name, chosen, own in _space_of(lanes, space, addresses):
        who = lanes.lanes if chosen is None else lanes.lanes[chosen]
        given = values if chosen is None else values[chosen]
        if name == "global":
            lanes.report.sectors += _sectors(lanes, who, own, given.dtype.itemsize * given.shape[1])
            lanes.memory.store(own, given, None if atomic else lanes.by(who))
        elif name == "shared":
            lanes.shared.store(own, lanes.block_of[who], lanes.thread_of[who], given)
        else:
            flat, where, _ = _local(lanes, who, own, given.dtype, given.shape[1])
            flat[who[:, None], where] = given


def _local(lanes: Lanes, who: Array, addresses: Array, dtype: Any, count: int) -> Any:
    size = np.dtype(dtype).itemsize
    signed = addresses.astype(np.int64)
    whole = lanes.local.shape[1]
    bad = (signed < 0) | (signed + size * count > whole) | (signed % size != 0)
    if bad.any():
        at = int(np.argmax(bad))
        where = f"{int(signed[at])} of {whole} bytes of local memory"
        raise Fault(f"{size * count} bytes at {where}", at)
    flat = lanes.local[:, : whole // size * size].view(dtype)
    where = (signed // size)[:, None] + np.arange(count)
    return flat, where, flat[who[:, None], where]


def store(build: Build) -> Action:
    """st: one value or a vector of them."""
    space, t, count, _ = _shape(build)
    address = build.address(0)
    gets = [build.value(o, t) for o in build.items(1)]
    if len(gets) != count:
        raise Unknown(f"{build.instruction.text}: {len(gets)} values of {count}")

    def act(lanes: Lanes) -> None:
        values = [np.broadcast_to(g(lanes), (lanes.width,)) for g in gets]
        write(lanes, space, address(lanes), np.stack(values, axis=1))

    return act


# ---------------------------------------------------------------- atomics
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "min": np.minimum, "max": np.maximum, "exch": lambda a, b: b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}  # fmt: skip


def atomic(build: Build) -> Action:
    """atom and red: one lane after the other, in their order."""
    m = build.modifiers
    t = m.type((*_TYPES, "f16x2", "bf16x2"))
    if t.endswith("x2"):
        raise Unknown(f"{build.instruction.text}: an atomic of a pair")
    m.take("noftz")
    name = m.type((*_COMBINE, "cas"))
    for words in (_ORDERS, _SCOPES):
        m.take(*words)
    if not m.take("global"):
        raise Unknown(f"{build.instruction.text}: an atomic that is not of global memory")
    m.done()
    space = "global"
    returns = build.instruction.root == "atom"
    first = 1 if returns else 0
    address = build.address(first)
    sources = [build.get(k, t) for k in range(first + 1, len(build.operands))]
    put = build.set(build.operands[0] if returns else None)
    dtype = np.dtype(NUMPY[t])

    def act(lanes: Lanes) -> None:
        where, whole = address(lanes), lanes.lanes
        values = [np.broadcast_to(s(lanes), (lanes.width,)) for s in sources]
        old = np.empty(lanes.width, dtype)
        before = lanes.active
        for who in _turns(where):
            lanes.active = whole[who]
            got = read(lanes, space, where[who], dtype, 1, atomic=True)[:, 0]
            new = _combined(name, got, values, who)[:, None]
            write(lanes, space, where[who], new, atomic=True)
            old[who] = got
        lanes.active = before
        put(lanes, old)

    return act


def _combined(name: str, old: Array, values: list[Array], who: Array) -> Array:
    if name == "cas":
        return np.where(old == values[0][who], values[1][who], old)
    result: Array = _COMBINE[name](old, values[0][who]).astype(old.dtype)
    return result


def _turns(addresses: Array) -> list[Array]:
    """Positions in groups without two of one address."""
    order = np.argsort(addresses, kind="stable")
    ranked = addresses[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    return [np.flatnonzero(turn == k) for k in range(int(turn.max()) + 1)]


# ---------------------------------------------------------------- cp.async
def copy_async(build: Build) -> Action:
    """cp.async to shared memory, its groups, and the waits for them."""
    m = build.modifiers
    if not m.take("async"):
        raise Unknown(f"{build.instruction.text}: a copy that is not known")
    if m.take("commit_group"):
        m.done()
        return lambda lanes: lanes.copies.commit(lanes.lanes)
    if m.take("wait_all"):
        m.done()
        return lambda lanes: lanes.copies.wait(lanes.shared, lanes.lanes, None)
    if m.take("wait_group"):
        m.done()
        groups = build.operands[0]
        assert isinstance(groups, Immediate)
        return lambda lanes: lanes.copies.wait(lanes.shared, lanes.lanes, groups.value)
    return _start_copy(build)


def _start_copy(build: Build) -> Action:
    m = build.modifiers
    through_l1 = m.choose(("ca", "cg")) == "ca"
    if not (m.take("shared", "shared__cta") and m.take("global")):
        raise Unknown(f"{build.instruction.text}: only from global to shared memory")
    m.take("L2__64B", "L2__128B", "L2__256B")
    m.done()
    size = build.operands[2]
    if not isinstance(size, Immediate) or size.value not in ((4, 8, 16) if through_l1 else (16,)):
        raise Unknown(f"{build.instruction.text}: this size is not known")
    count = size.value
    target, source = build.address(0), build.address(1)
    given = build.get(3, "u32") if len(build.operands) > 3 else None

    def act(lanes: Lanes) -> None:
        who = lanes.lanes
        data = np.zeros((len(who), count), np.uint8)
        sizes = np.full(len(who), count) if given is None else (
            np.broadcast_to(given(lanes), (len(who),)).astype(np.int64))  # fmt: skip
        addresses = source(lanes)
        whole = np.flatnonzero(sizes == count)
        if len(whole):
            word = np.dtype(np.uint32)
            read_from = addresses[whole]
            if (read_from.astype(np.int64) % count).any():
                raise Fault(f"a source that is not a multiple of {count}")
            touched = _sectors(lanes, who[whole], read_from, count)
            lanes.report.sectors += touched
            lanes.report.copied += touched
            got = lanes.memory.load(read_from, word, count // 4)
            data[whole] = np.ascontiguousarray(got).view(np.uint8)
        for k in np.flatnonzero((sizes != count) & (sizes != 0)):
            part = lanes.memory.bytes_at(int(addresses[k]), int(sizes[k]))
            data[k, : len(part)] = part
        lanes.copies.issue(
            lanes.shared, who, lanes.block_of[who], lanes.thread_of[who], target(lanes), data
        )

    return act


def nothing(build: Build) -> Action:
    """Fences and prefetches: one machine, in which every write is seen at once."""
    return lambda lanes: None


def trap(build: Build) -> Action:
    def act(lanes: Lanes) -> None:
        raise Fault("reached a trap")

    return act


TABLE: dict[str, Builder] = {
    "ld": load,
    "st": store,
    "atom": atomic,
    "red": atomic,
    "cp": copy_async,
    "fence": nothing,
    "membar": nothing,
    "prefetch": nothing,
    "griddepcontrol": nothing,
    "trap": trap,
}

