"""The elements that a closed store writes, spelled out: a value for each, without loops.

    for i < 2: a[i] = where(i < 1, x[1], sin(x[0]))  →  a[0] = x[1]; a[1] = sin(x[0])

Storage is what the program knows it by, and each index is one number, so that equal reads of
several kernels are one node. Short reduces become the operations that combine their terms.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Generator
from typing import NamedTuple, TypeAlias

from uopc.ir.builder import alu, index_maps, leaves, movement, rebuild
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import dtypes, ranges, shapes, walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.passes.analysis.loops import identity
from uopc.passes.analysis.op_costs import MOST_CHOICES
from uopc.passes.effects.views import stores_in
from uopc.passes.split_kernels.kernel_calls import KernelCall, StorageUse

# Loops that do the same in all iterations are spelled out if they are no longer: vectors of more
# elements are worth a kernel of their own.
MOST_ALIKE = 4

Place: TypeAlias = "tuple[UOp, UOp]"  # an element of a storage: the root, and a flat index
_Env: TypeAlias = "tuple[tuple[UOp, int], ...]"  # the iteration: a number for each range around
_Key: TypeAlias = "tuple[UOp, _Env]"
_KNOWN = frozenset((
    Ops.CAST, Ops.BITCAST, Ops.INDEX, Ops.AFTER, Ops.CONST, Ops.VARIABLE, Ops.INVALID, Ops.STORE,
    Ops.GROUP,
))  # fmt: skip


class StoredElement(NamedTuple):
    """The element that a closed store writes, and its reads: INDEX nodes on storage itself."""

    written: dict[Place, UOp]
    reads: dict[UOp, StorageUse]


def elements_of(launch: KernelCall) -> StoredElement | None:
    """The elements of a closed store of few; None if they are many, or it is not of that kind."""
    effect = launch.effect
    if not _is_short(launch):
        return None
    loops = effect.src[1:] if effect.op is Ops.END else ()
    spelled = _Spelled(launch)
    written: dict[Place, UOp] = {}
    for numbers in itertools.product(*[range(r.src[0].arg) for r in loops]):
        env = tuple(zip(loops, numbers))
        for store in stores_in(effect):
            use = launch.accesses[store.src[0]]
            flat, guard = spelled.at(use.flat, env), spelled.at(use.guard, env)
            if guard.op is Ops.CONST and not guard.arg:
                continue
            place = use.root, flat
            if flat.op is not Ops.CONST or guard.op is not Ops.CONST or place in written:
                return None
            written[place] = spelled.at(store.src[1], env)
    roots = {root for root, _ in written}
    nodes: dict[UOp, None] = {}
    for value in written.values():
        walk.toposort(value, done=nodes)
    reads = {u: use for u, use in spelled.reads.items() if u in nodes}
    return (
        None
        if any([use.root in roots for use in reads.values()])
        else StoredElement(written, reads)
    )


def _is_short(launch: KernelCall) -> bool:
    """True for plain stores to new storage, in loops of a few iterations."""
    effect = launch.effect
    if effect.op not in (Ops.STORE, Ops.END) or effect.arg is not None or launch.lengths:
        return False
    stores = stores_in(effect)
    if any([s.op is not Ops.STORE or len(s.src) != 2 or s.arg is not None for s in stores]):
        return False
    if any([launch.accesses[s.src[0]].root.op is not Ops.BUFFER for s in stores]):
        return False
    iterations, chooses = 1, False
    for u in launch.nodes:
        if u.op is Ops.RANGE:
            if u.src[0].op is not Ops.CONST or len(u.src) > 1:
                return False
            iterations *= int(u.src[0].arg)
        elif u.op is Ops.REDUCE or (u.op in compare.OPS and u.src[0].dtype is dtypes.index):
            chooses = True
        elif not _is_known(u, effect):
            return False
    return iterations <= (MOST_CHOICES if chooses else MOST_ALIKE)


def _is_known(u: UOp, effect: UOp) -> bool:
    """True for nodes of values and addresses, and of the stores themselves."""
    return u.op.is_alu or u.op.is_storage or u.op in _KNOWN or u is effect


class _Spelled:
    """The values of a closed store by iteration. `reads` gets the storage that they read."""

    def __init__(self, launch: KernelCall) -> None:
        self.accesses = launch.accesses
        self.reads: dict[UOp, StorageUse] = {}
        self.known: dict[_Key, UOp] = {}

    def at(self, u: UOp, env: _Env) -> UOp:
        """A value in one iteration of the loops around it."""
        return walk.computed(_key(u, env), self._step, self.known)

    def _step(self, key: _Key) -> UOp | Generator[list[_Key], list[UOp], UOp]:
        u, env = key
        if u.op is Ops.RANGE:
            return affine.const(env[0][1])
        if u.op is Ops.INDEX:
            return self._read(u, env)
        if u.op is Ops.REDUCE:
            return self._combined(u, env)
        if u.op is Ops.WHERE:
            return self._chosen(u, env)
        return self._remade(u, env) if u.src else u

    def _remade(self, u: UOp, env: _Env) -> Generator[list[_Key], list[UOp], UOp]:
        src = yield [_key(s, env) for s in u.src]
        return rebuild.remake(u, tuple(src))

    def _chosen(self, u: UOp, env: _Env) -> Generator[list[_Key], list[UOp], UOp]:
        """One arm of a WHERE if the condition is known, so that the other arm is not spelled
        out."""
        (condition,) = yield [_key(u.src[0], env)]
        if condition.op is Ops.CONST:
            (value,) = yield [_key(u.src[1 if condition.arg else 2], env)]
            return value
        values = yield [_key(s, env) for s in u.src[1:]]
        return rebuild.remake(u, (condition, *values))

    def _read(self, u: UOp, env: _Env) -> Generator[list[_Key], list[UOp], UOp]:
        use = self.accesses[u]
        flat, guard = yield [_key(use.flat, env), _key(use.guard, env)]
        if guard.op is Ops.CONST and not guard.arg:
            return leaves.const(u.dtype, 0)
        made = element(use.root, index_maps.gated((flat,), guard))
        self.reads[made] = StorageUse(use.root, flat, guard, use.gathered)
        return made

    def _combined(self, u: UOp, env: _Env) -> Generator[list[_Key], list[UOp], UOp]:
        loops = ranges.closed_ranges(u)
        each = itertools.product(*[range(r.src[0].arg) for r in loops])
        terms = yield [_key(u.src[0], (*env, *zip(loops, numbers))) for numbers in each]
        op = Op.by_name(u.arg.op)
        return functools.reduce(lambda a, b: alu.alu(a, op, b), terms, identity(u))  # in order


def element(root: UOp, index: Index) -> UOp:
    """An element of a storage, at an index into its elements in order."""
    dims = shapes.shape(root)
    line = root if len(dims) == 1 else movement.reshape(root, (shapes.size(dims),))
    return intern(Ops.INDEX, root.dtype, (line, *index))


def _key(u: UOp, env: _Env) -> _Key:
    """A value with the loops around it."""
    around = ranges.ranges(u)
    return u, tuple([e for e in env if e[0] in around])
