"""The effects of ops on the state: a function per op, except arithmetic, loops and calls.

Arrays have the axes of the running loops first and lanes last (see `state.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uopc.errors import InvalidIR
from uopc.ir.core.calls import function_body
from uopc.ir.core.evaluate import Array, elementwise, fold, present
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices import tensor_cores
from uopc.ir.interpret.state import State
from uopc.ir.interpret.threads import THREADS, RunningThreads
from uopc.ir.verify.nodes import describe


def _grid(m: State, u: UOp) -> RunningThreads:
    if m.grid is None:
        raise InvalidIR(f"{describe(u)}: this kernel has no threads")
    return m.grid


def _barrier(m: State, u: UOp) -> None:
    if m.grid is not None:
        m.grid.barrier(u, m.gate(None))


def _tile(u: UOp) -> tensor_cores.Tile:
    tile = tensor_cores.tile_of(u)
    if tile is None:
        raise InvalidIR(f"{describe(u)}: no tensor core has such a tile")
    return tile


def _shaped_wmma(m: State, u: UOp) -> None:
    """The product of two elements, each first rounded as a tensor core rounds."""
    tile = _tile(u)
    a, b = [m.value(s) for s in u.src[:2]]
    ok = present(u, [m.masks.get(s) for s in u.src[:2]], [a, b])
    m.set(u, tensor_cores.terms(tile, a, b), ok)


def _wmma(m: State, u: UOp) -> None:
    """The product of two tiles of a warp. The lanes are a loop, or threads of a block."""
    tile = _tile(u)
    if any(s in m.masks for s in u.src[:2]):
        raise InvalidIR(f"{describe(u)}: an operand must have a value in all lanes")
    if tile.is_of_words:  # one thread holds all of it
        a, b = [np.moveaxis(m.value(s), -1, 0)[None] for s in u.src[:2]]
        got = np.moveaxis(tensor_cores.multiplied(tile, *_of_one_rank(a, b))[0], 0, -1)
        m.set(u, got if len(u.src) == 3 else got + m.value(u.src[3]))
        return
    warps = _warps(m, u, u.src[2])
    depth = max(-warps[0], *[m.value(s).ndim for s in u.src[:2]])
    a, b = [_by_lane(m.value(s), n, warps, depth) for s, n in zip(u.src[:2], tile.counts)]
    got = _by_thread(tensor_cores.multiplied(tile, a, b), warps)
    m.set(u, got if len(u.src) == 3 else got + m.value(u.src[3]))


def _of_one_rank(a: Array, b: Array) -> list[Array]:
    """Pad two arrays (lanes, elements, …) to equally many axes, outer loops first."""
    rank = max(a.ndim, b.ndim)
    return [x.reshape(*x.shape[:2], *[1] * (rank - x.ndim), *x.shape[2:]) for x in (a, b)]


def _tile_load(m: State, u: UOp) -> None:
    """Each lane reads the row at its address, and receives pairs of several rows."""
    count, exchanged = u.arg
    warps = _warps(m, u, u.src[1])
    rows = m.read(u, u.src[0], None, 8)
    whole = _by_lane(rows, 8, warps, max(-warps[0], rows.ndim))
    lane, element = np.arange(tensor_cores.WARP)[:, None], np.arange(2 * count)[None, :]
    row, column = lane // 4, 2 * (lane % 4) + element % 2
    if exchanged:
        row, column = column, row
    m.set(u, _by_thread(whole[8 * (element // 2) + row, column], warps))


def _warps(m: State, u: UOp, lane: UOp) -> tuple[int, int]:
    """The axis of the threads of warps, and their number. `lane`: the loop over the lanes, or, if
    there are threads, the number of a thread in its warp."""
    if m.grid is None and lane not in m.axes:
        raise InvalidIR(f"{describe(lane)}: expected the lanes of a warp")
    axis, count = m.axes[lane] if m.grid is None else (THREADS, m.grid.width)
    if count % tensor_cores.WARP:
        raise InvalidIR(f"{describe(u)}: {count} threads, expected whole warps")
    return axis, count


def _by_lane(value: Array, elements: int, warps: tuple[int, int], depth: int) -> Array:
    """A value of `depth` axes as (lane of its warp, element, the other axes …, warp)."""
    axis, count = warps
    value = value.reshape(*[1] * (depth - value.ndim), *value.shape)
    shape = list(value.shape)
    shape[axis], shape[-1] = count, elements
    value = np.moveaxis(np.broadcast_to(value, shape), (axis, -1), (0, 1))
    by_warp = value.reshape(-1, tensor_cores.WARP, *value.shape[1:])
    return np.moveaxis(by_warp, 0, -1)


def _by_thread(value: Array, warps: tuple[int, int]) -> Array:
    """The inverse of `_by_lane`."""
    value = np.moveaxis(value, -1, 0)
    value = value.reshape(warps[1], *value.shape[2:])
    return np.moveaxis(value, (0, 1), (warps[0], -1))


def _after(m: State, u: UOp) -> None:
    base = u.src[0]
    if base in m.values:
        m.set(u, m.values[base], m.masks.get(base))


def _load(m: State, u: UOp) -> None:
    m.set(u, m.read(u, u.src[0], u.src[1] if len(u.src) > 1 else None, u.dtype.lanes))


def _pick(m: State, u: UOp, lanes: slice | list[int]) -> None:
    """Select lanes from the concatenated operands."""
    values = [m.value(s) for s in u.src]
    grid = np.broadcast_shapes(*[v.shape[:-1] for v in values])
    wide = [(*grid, v.shape[-1]) for v in values]

    def picked(arrays: list[Array]) -> Array:
        whole = np.concatenate([np.broadcast_to(a, w) for a, w in zip(arrays, wide)], axis=-1)
        return np.asarray(whole[..., lanes])

    masked = any(s in m.masks for s in u.src)
    ok = picked([m.masks.get(s, np.ones(1, np.bool_)) for s in u.src]) if masked else None
    m.set(u, picked(values), ok)


def _lookup(m: State, u: UOp) -> None:
    table, index = [m.value(s) for s in u.src]
    grid = np.broadcast_shapes(table.shape[:-1], index.shape[:-1])
    order = np.broadcast_to(index & (table.shape[-1] - 1), (*grid, index.shape[-1]))

    def looked_up(array: Array) -> Array:
        return np.take_along_axis(np.broadcast_to(array, (*grid, table.shape[-1])), order, -1)

    ok = None
    if any(s in m.masks for s in u.src):
        masks = [m.masks.get(s, np.ones(1, np.bool_)) for s in u.src]
        ok = np.asarray(looked_up(masks[0]) & masks[1])
    m.set(u, looked_up(table), ok)


def _hreduce(m: State, u: UOp) -> None:
    value = m.value(u.src[0])
    width = value.shape[-1] // u.dtype.lanes  # lanes i, i + n, i + 2n … combine to lane i of n
    ok = m.masks.get(u.src[0])
    rows = value.reshape(*value.shape[:-1], width, u.dtype.lanes)
    every = None if ok is None else np.asarray(ok.all(-1, keepdims=True))
    m.set(u, fold(u.arg, rows, [-2], u.dtype), every)


def _branch(m: State, u: UOp) -> None:
    sources = a, condition, b = [m.value(s) for s in u.src]
    ok = present(u, [m.masks.get(s) for s in u.src], sources)
    m.set(u, np.where(condition, b, a), ok)


def arithmetic(m: State, u: UOp) -> None:
    """An elementwise node, a CAST or a BITCAST."""
    sources = [m.value(s) for s in u.src]
    ok = present(u, [m.masks.get(s) for s in u.src], sources) if m.masks else None
    m.set(u, elementwise(u, sources), ok)


def _apply(m: State, u: UOp) -> None:
    """Evaluate the function of an APPLY; its nodes have new values in each APPLY."""
    function, *operands = u.src
    given = [(m.value(s), m.masks.get(s)) for s in operands]
    outside = m.values, m.masks
    m.values, m.masks = {}, {}
    for s in function_body(function):
        if s.op is Ops.NUMBER:
            m.set(s, *given[s.arg.slot])
        else:
            STEPS.get(s.op, arithmetic)(m, s)
    made = m.value(function.src[0]), m.masks.get(function.src[0])
    m.values, m.masks = outside
    m.set(u, *made)


def _if(m: State, u: UOp) -> None:
    """Access memory only where the condition holds, until the ENDIF; other steps are harmless."""
    m.set(u, m.value(u.src[0]))
    m.guards.append(m.value(u))


# fmt: off
STEPS: dict[Op, Callable[[State, UOp], object]] = {
    Ops.CONST:    lambda m, u: m.set(u, np.asarray(u.arg, u.dtype.numpy).reshape(-1)),
    Ops.INVALID:  lambda m, u: m.set(u, np.zeros(u.dtype.lanes, u.dtype.numpy), np.array([False])),
    Ops.VARIABLE: lambda m, u: m.set(u, np.asarray([m.variables[u]], np.int64)),
    Ops.NUMBER:   lambda m, u: m.set(u, m.argument(u).reshape(-1)),
    Ops.LANES:    lambda m, u: m.set(u, np.arange(u.arg, dtype=u.dtype.numpy)),
    Ops.SPECIAL:  lambda m, u: m.set(u, _grid(m, u).index(u)),
    Ops.PARAM:    State.array,
    Ops.BUFFER:   State.array,
    Ops.DATA:     State.array,
    Ops.LOAD:     _load,
    Ops.STORE:    State.write,
    Ops.AFTER:    _after,
    Ops.STACK:    lambda m, u: _pick(m, u, slice(None)),
    Ops.LANE:     lambda m, u: _pick(m, u, slice(u.arg, u.arg + 1)),
    Ops.SHUFFLE:  lambda m, u: _pick(m, u, list(u.arg)),
    Ops.LOOKUP:   _lookup,
    Ops.HREDUCE:  _hreduce,
    Ops.REDUCE:   lambda m, u: m.set(u, m.value(u.src[0]), m.masks.get(u.src[0])),  # over no ranges
    Ops.FETCH:    lambda m, u: m.set(u, m.value(u.src[0]), m.masks.get(u.src[0])),
    Ops.BRANCH:   _branch,
    Ops.APPLY:    _apply,
    Ops.IF:       _if,
    Ops.ENDIF:    lambda m, u: m.guards.pop(),
    Ops.BARRIER:  _barrier,
    Ops.EXCHANGE: lambda m, u: m.set(u, _grid(m, u).exchange(u, m.value(u.src[0]), m.gate(None))),
    Ops.SHAPED_WMMA: _shaped_wmma,
    Ops.TILE_LOAD: _tile_load,
    Ops.WMMA:     _wmma,
    **dict.fromkeys((
        Ops.INDEX, Ops.CARRY, Ops.SLICE, Ops.COMMIT, Ops.GROUP, Ops.SINK, Ops.NOOP, Ops.FUNCTION,
    ), lambda m, u: None),  # effects, addresses, and registers that their loop sets
}
# fmt: on
