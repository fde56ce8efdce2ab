"""Instructions of a warp together: shuffles, votes, ldmatrix, stmatrix and mma.

Every lane that takes part must be there: one that is elsewhere is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.ptx import rounding
from tests.ptx.build import Action, Build, Builder, Unknown
from tests.ptx.machine import Lanes
from tests.ptx.memory import Array, Fault
from tests.ptx.parse import Reg

WARP = 32


def present(lanes: Lanes, mask: Array) -> tuple[Array, Array]:
    """Warp (over all blocks) and lane of each active lane; all that `mask` names must be active."""
    per_block = -(-lanes.threads // WARP)
    who = lanes.lanes
    warp = lanes.block_of[who] * per_block + lanes.thread_of[who] // WARP
    lane = lanes.thread_of[who] % WARP
    seen = np.zeros(lanes.blocks * per_block, np.uint32)
    np.bitwise_or.at(seen, warp, np.uint32(1) << lane.astype(np.uint32))
    last = (lanes.thread_of[who] // WARP + 1) * WARP > lanes.threads
    exist = np.where(last, (1 << ((lanes.threads - 1) % WARP + 1)) - 1, 0xFFFFFFFF)
    named = np.broadcast_to(mask, who.shape).astype(np.int64) & exist
    missing = (named & ~seen[warp].astype(np.int64)) != 0
    if missing.any():
        raise Fault("a lane that the mask names is elsewhere", int(np.argmax(missing)))
    outside = (named >> lane.astype(np.int64)) & 1 == 0
    if outside.any():
        raise Fault("is not in its own mask", int(np.argmax(outside)))
    return warp, lane


def _table(lanes: Lanes, warp: Array, lane: Array, value: Array) -> Array:
    """(warps, 32): the values of the active lanes."""
    table = np.zeros((lanes.blocks * -(-lanes.threads // WARP), WARP), value.dtype)
    table[warp, lane] = value
    return table


def shuffle(build: Build) -> Action:
    """shfl.sync: a value of another lane; out of the segment, one's own and a false predicate."""
    m = build.modifiers
    m.type(("b32",))
    if not m.take("sync"):
        raise Unknown(f"{build.instruction.text}: without .sync")
    how = m.choose(("up", "down", "bfly", "idx"))
    m.done()
    value, amount, clamp, mask = (build.get(k, "u32") for k in range(1, 5))
    target = build.operands[0]
    assert isinstance(target, Reg)
    put = build.set(Reg(target.name))
    inside = build.set(target.second) if target.second is not None else None

    def act(lanes: Lanes) -> None:
        warp, lane = present(lanes, mask(lanes))
        a = np.broadcast_to(value(lanes), (lanes.width,))
        b, c = amount(lanes).astype(np.int64) & 31, clamp(lanes).astype(np.int64)
        limit, segment = c & 31, (c >> 8) & 31
        most = (lane & segment) | (limit & ~segment)
        least = lane & segment
        if how == "up":
            source = lane - b
            fine = source >= most
        else:
            source = {"down": lane + b, "bfly": lane ^ b, "idx": least | (b & ~segment)}[how]
            fine = source <= most
        source = np.where(fine, source, lane)
        table = _table(lanes, warp, lane, a)
        there = _table(lanes, warp, lane, np.ones(lanes.width, np.bool_))
        if not there[warp, source].all():
            raise Fault("reads a lane that is elsewhere", int(np.argmin(there[warp, source])))
        put(lanes, table[warp, source])
        if inside is not None:
            inside(lanes, np.broadcast_to(fine, (lanes.width,)))

    return act


def vote(build: Build) -> Action:
    """vote.sync: all, any, uni, and the ballot."""
    m = build.modifiers
    ballot = m.type(("pred", "b32")) == "b32"
    if not m.take("sync"):
        raise Unknown(f"{build.instruction.text}: without .sync")
    how = m.choose(("ballot",) if ballot else ("all", "any", "uni"))
    m.done()
    truth, mask, put = build.get(1, "pred"), build.get(2, "u32"), build.set(build.operands[0])

    def act(lanes: Lanes) -> None:
        warp, lane = present(lanes, mask(lanes))
        p = np.broadcast_to(truth(lanes), (lanes.width,))
        yes = _table(lanes, warp, lane, p).sum(axis=1)[warp]
        who = _table(lanes, warp, lane, np.ones(lanes.width, np.bool_)).sum(axis=1)[warp]
        if ballot:
            weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
            put(lanes, (_table(lanes, warp, lane, p) * weights).sum(axis=1)[warp].astype(np.uint32))
        else:
            put(lanes, {"all": yes == who, "any": yes > 0, "uni": (yes == who) | (yes == 0)}[how])

    return act


_REDUCE: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def reduce(build: Build) -> Action:
    """redux.sync: an integer over the lanes of the mask."""
    m = build.modifiers
    t = m.type(("u32", "s32", "b32"))
    if not m.take("sync"):
        raise Unknown(f"{build.instruction.text}: without .sync")
    ufunc = _REDUCE[m.choose(tuple(_REDUCE))]
    m.done()
    value, mask, put = build.get(1, t), build.get(2, "u32"), build.set(build.operands[0])

    def act(lanes: Lanes) -> None:
        given = np.broadcast_to(mask(lanes), (lanes.width,))
        warp, _ = present(lanes, given)
        _, group = np.unique(warp * (1 << 32) + given, return_inverse=True)
        group = group.reshape(-1)
        v = np.broadcast_to(value(lanes), (lanes.width,))
        first = np.unique(group, return_index=True)[1]
        out = v[first].copy()
        rest = np.setdiff1d(np.arange(lanes.width), first)
        ufunc.at(out, group[rest], v[rest])
        put(lanes, out[group])

    return act


def elect(build: Build) -> Action:
    """elect.sync: the lowest lane of the mask."""
    build.modifiers.take("sync")
    build.modifiers.done()
    mask, target = build.get(1, "u32"), build.operands[0]
    assert isinstance(target, Reg) and target.second is not None
    leader = build.set(Reg(target.name)) if target.name != "_" else build.set(None)
    chosen = build.set(target.second)

    def act(lanes: Lanes) -> None:
        given = np.broadcast_to(mask(lanes), (lanes.width,))
        _, lane = present(lanes, given)
        lowest = np.log2(given & (~given + np.uint32(1))).astype(np.uint32)
        leader(lanes, lowest)
        chosen(lanes, lane == lowest)

    return act


def warp_barrier(build: Build) -> Action:
    """bar.warp.sync: memory written before is seen by the lanes of the mask."""
    m = build.modifiers
    if not (m.take("warp") and m.take("sync")):
        raise Unknown(f"{build.instruction.text}: a barrier that is not known")
    m.done()
    mask = build.get(0, "u32")

    def act(lanes: Lanes) -> None:
        warp, _ = present(lanes, mask(lanes))
        lanes.shared.meet(np.unique(warp))

    return act


def active_mask(build: Build) -> Action:
    build.modifiers.type(("b32",))

    def compute(lanes: Lanes) -> Array:
        lane = lanes.thread_of[lanes.lanes] % WARP
        warp = lanes.lanes // WARP if lanes.threads % WARP == 0 else None
        if warp is None:
            raise Fault("activemask in a block of broken warps")
        seen = np.zeros(lanes.count // WARP, np.uint32)
        np.bitwise_or.at(seen, warp, np.uint32(1) << lane.astype(np.uint32))
        return seen[warp]

    put = build.set(build.operands[0])
    return lambda lanes: put(lanes, compute(lanes))


# ---------------------------------------------------------------- matrices
def whole_warps(lanes: Lanes) -> int:
    """The number of warps that act, all lanes of each in order."""
    who = lanes.lanes
    if len(who) % WARP or lanes.threads % WARP:
        raise Fault("a warp that is not whole")
    rows = who.reshape(-1, WARP)
    if (rows[:, 0] % WARP != 0).any() or (np.diff(rows, axis=1) != 1).any():
        raise Fault("a warp that is not whole")
    return len(rows)


def _matrix_access(build: Build) -> tuple[int, bool]:
    m = build.modifiers
    m.type(("b16",))
    for word in ("sync", "aligned", "m8n8"):
        if not m.take(word):
            raise Unknown(f"{build.instruction.text}: without .{word}")
    parts = int(m.choose(("x1", "x2", "x4"))[1:])
    turned = m.take("trans")
    if not m.take("shared", "shared__cta"):
        raise Unknown(f"{build.instruction.text}: not of shared memory")
    m.done()
    return parts, turned


def _row_addresses(lanes: Lanes, addresses: Array, parts: int) -> tuple[Array, Array, Array]:
    """Of the lanes that give the rows: addresses, blocks, threads."""
    warps = whole_warps(lanes)
    who = lanes.lanes.reshape(warps, WARP)[:, : 8 * parts].reshape(-1)
    rows = addresses.reshape(warps, WARP)[:, : 8 * parts].reshape(-1)
    return rows, lanes.block_of[who], lanes.thread_of[who]


def load_matrix(build: Build) -> Action:
    """ldmatrix: 8×8 matrices of 16 bits; each lane gets two neighbours of a row (or column)."""
    parts, turned = _matrix_access(build)
    puts = [build.set(o) for o in build.items(0)]
    address = build.address(1)

    def act(lanes: Lanes) -> None:
        rows, blocks, threads = _row_addresses(lanes, address(lanes), parts)
        got = lanes.shared.load(rows, blocks, threads, np.uint16, 8).reshape(-1, parts, 8, 8)
        if turned:
            got = got.swapaxes(2, 3)
        words = np.ascontiguousarray(got).view(np.uint32).reshape(-1, parts, WARP)
        for k, put in enumerate(puts):
            put(lanes, words[:, k].reshape(-1))

    return act


def store_matrix(build: Build) -> Action:
    """stmatrix: the inverse of ldmatrix."""
    parts, turned = _matrix_access(build)
    address = build.address(0)
    gets = [build.value(o, "b32") for o in build.items(1)]

    def act(lanes: Lanes) -> None:
        rows, blocks, threads = _row_addresses(lanes, address(lanes), parts)
        words = np.stack([np.broadcast_to(g(lanes), (lanes.width,)).reshape(-1, WARP)
                          for g in gets], axis=1)  # fmt: skip
        matrices = np.ascontiguousarray(words).view(np.uint16).reshape(-1, parts, 8, 8)
        if turned:
            matrices = matrices.swapaxes(2, 3)
        lanes.shared.store(rows, blocks, threads, np.ascontiguousarray(matrices).reshape(-1, 8))

    return act


# Element types of mma: as NumPy sees them in a register, and how many a register holds.
_ELEMENTS: dict[str, tuple[Any, int]] = {
    "f16": (np.float16, 2), "bf16": (ml_dtypes.bfloat16, 2), "tf32": (np.float32, 1),
    "s8": (np.int8, 4), "u8": (np.uint8, 4), "f64": (np.float64, 1), "f32": (np.float32, 1),
    "s32": (np.int32, 1), "e4m3": (ml_dtypes.float8_e4m3fn, 4), "e5m2": (ml_dtypes.float8_e5m2, 4),
}  # fmt: skip


def _shape_of(text: str) -> tuple[int, int, int]:
    m, rest = text[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


_SHAPES = ("m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m8n8k4", "m8n8k16")


def _fragment(build: Build, at: int, element: str) -> Callable[[Lanes], Array]:
    """(warps, registers, 8, 4, elements): by group of lanes, lane in the group."""
    dtype, packed = _ELEMENTS[element]
    bits = "b64" if element == "f64" else "b32"
    gets = [build.value(o, bits) for o in build.items(at)]

    def make(lanes: Lanes) -> Array:
        words = np.stack([np.broadcast_to(g(lanes), (lanes.width,)) for g in gets], axis=0)
        words = words.reshape(len(gets), -1, 8, 4).swapaxes(0, 1)
        if element == "tf32":
            words = words & np.uint32(0xFFFFE000)
        values = np.ascontiguousarray(words).view(dtype)
        return values.reshape(*words.shape, packed)

    return make


def _matrix_a(f: Array, rows: int, k: int) -> Array:
    """Register r holds rows g + 8 (r mod 2), where there are 16, and a strip of 4 lanes of k."""
    high = rows // 8
    warps, registers, _, _, packed = f.shape
    # (warps, strip, half, g, tig, e) → (warps, half, g, strip, tig, e)
    cut = f.reshape(warps, registers // high, high, 8, 4, packed).transpose(0, 2, 3, 1, 4, 5)
    return cut.reshape(warps, rows, k)


def _matrix_b(f: Array, k: int) -> Array:
    """Column g; register r holds a strip of 4 lanes of k."""
    return f.transpose(0, 1, 3, 4, 2).reshape(f.shape[0], k, 8)


def _from_result(f: Array, rows: int) -> Array:
    """The accumulator: register pairs of a row, rows g and g + 8."""
    warps = f.shape[0]
    halves = f.transpose(0, 1, 4, 2, 3).reshape(warps, rows // 8, 2, 8, 4)
    return halves.transpose(0, 1, 3, 4, 2).reshape(warps, rows, 8)


def _to_result(c: Array, rows: int) -> Array:
    """(warps, values of a lane, 32) of (warps, rows, 8)."""
    cut = c.reshape(-1, rows // 8, 8, 4, 2).transpose(0, 1, 4, 2, 3)
    return cut.reshape(-1, rows // 4, WARP)


def multiply_matrices(build: Build) -> Action:
    """mma.sync: d = a b + c; floats are summed in float64 and rounded once."""
    m = build.modifiers
    for word in ("sync", "aligned"):
        if not m.take(word):
            raise Unknown(f"{build.instruction.text}: without .{word}")
    rows, _, k = _shape_of(m.choose(_SHAPES))
    m.choose(("row",))
    m.choose(("col",))
    if m.take("satfinite"):
        raise Unknown(f"{build.instruction.text}: .satfinite")
    kinds = tuple(_ELEMENTS)
    out, left, right, add = [m.choose(kinds) for _ in range(4)]
    m.done()
    gets = [_fragment(build, i + 1, t) for i, t in enumerate((left, right, add))]
    puts = [build.set(o) for o in build.items(0)]
    whole = left in ("s8", "u8")

    def act(lanes: Lanes) -> None:
        lanes.report.products += whole_warps(lanes) * rows * 8 * k
        wide = np.int64 if whole else np.float64
        fa, fb, fc = (g(lanes) for g in gets)
        a, b = _matrix_a(fa, rows, k).astype(wide), _matrix_b(fb, k).astype(wide)
        d = a @ b + _from_result(fc, rows).astype(wide)
        dtype, packed = _ELEMENTS[out]
        exact = d.astype(dtype) if whole else rounding.narrow(d, np.dtype(dtype))
        _write_result(lanes, puts, _to_result(exact, rows), packed)

    return act


def _write_result(lanes: Lanes, puts: list[Any], values: Array, packed: int) -> None:
    if packed == 2:
        pairs = values.reshape(len(values), -1, 2, WARP).transpose(0, 1, 3, 2)
        values = np.ascontiguousarray(pairs).view(np.uint32)[..., 0]
    for k, put in enumerate(puts):
        put(lanes, np.ascontiguousarray(values[:, k]).reshape(-1))


TABLE: dict[str, Builder] = {
    "shfl": shuffle,
    "vote": vote,
    "redux": reduce,
    "elect": elect,
    "bar": warp_barrier,
    "activemask": active_mask,
    "ldmatrix": load_matrix,
    "stmatrix": store_matrix,
    "mma": multiply_matrices,
}
