"""Make nodes again on other sources: constants fold, index arithmetic keeps its normal form."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from uopc.ir.builder import fold
from uopc.ir.core import trace, walk
from uopc.ir.core.args import RangeArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern, set_origin, set_shape
from uopc.ir.index import compare

# From a node and its new sources to the node that replaces it; None keeps it.
Change = Callable[[UOp, tuple[UOp, ...]], UOp | None]


def remake(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """`u` on other sources, folded as the builders fold."""
    op = u.op
    if op.is_alu:
        folded = fold.folded(op, src)
        if folded is None and u.arg == fold.FAST:
            folded = fold.fast_folded(op, src)
        if folded is not None:
            return folded
        lanes = 1
        for s in src:
            if s.dtype.lanes > lanes:
                lanes = s.dtype.lanes
        dtype = u.dtype if u.dtype.lanes == lanes else u.dtype.vec(lanes)
        return intern(op, dtype, src, u.arg, u.tag)
    if op is Ops.CAST:
        return fold.convert(src[0], u.dtype)
    if op.movement and src is not u.src and src[0].op is Ops.EXPAND:
        folded = fold.of_constant(intern(op, u.dtype, src, u.arg, u.tag))
        if folded is not None:
            return folded
    return u if src is u.src else intern(op, u.dtype, src, u.arg, u.tag)


def as_written(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """`u` on other sources, without normalising index arithmetic: users of a spelled-out quotient
    share it, where the normal form would add up its parts for each user."""
    if u.op in compare.OPS and all([s.dtype.kind == "index" for s in src]):
        return intern(u.op, u.dtype, src, u.arg, u.tag)
    return remake(u, src)


def rebuild(root: UOp, mapping: Mapping[UOp, UOp], order: Iterable[UOp] | None = None) -> UOp:
    """`root` with every key of the mapping replaced. Nodes below a key are not visited, unless
    `order` lists the nodes below `root`, sources first."""
    nodes = walk.toposort(root, done=dict.fromkeys(mapping)) if order is None else order
    return _renewed(root, [u for u in nodes if u not in mapping], dict(mapping))


def renamed_ranges(axes: Mapping[UOp, tuple[int, ...]]) -> dict[UOp, UOp]:
    """Replace the axis of each range. If a length depends on another range, the new length depends
    on the new range."""
    order: dict[UOp, None] = {}
    for r in axes:
        walk.toposort(r, done=order)
    made: dict[UOp, UOp] = {}
    for r in order:
        if r in axes:
            end = rebuild(r.src[0], made)
            made[r] = intern(Ops.RANGE, r.dtype, (end, *r.src[1:]), RangeArg(axes[r], r.arg.kind))
    return made


def rebuild_more(root: UOp, done: dict[UOp, UOp]) -> UOp:
    """`rebuild` by the replacements in `done`, and add all new nodes to `done`. Call it for nodes
    below a root before the root: then each node is made once."""
    nodes = walk.toposort(root, gate=lambda u: u not in done)
    return _renewed(root, [u for u in nodes if u not in done], done)


def rewritten(
    root: UOp,
    change: Change,
    outside_kernels: bool = False,
    renew: Callable[[UOp, tuple[UOp, ...]], UOp] = remake,
    only: Container[UOp] | None = None,
) -> UOp:
    """Rewrite in one walk, sources first: `change(u, new sources)` returns the new node, or None to
    keep u. If `only` is given, `change` is called for nodes in `only`.

    `renew` makes a kept node on its new sources. With `outside_kernels`, the bodies of hand-written
    kernels do not change. A listener is called for each change.
    """
    listener, cause = trace.current_listener(), trace.PassFunction(change)

    def reported(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        made = change(u, src)
        if listener is not None and made is not None and made is not u:
            listener(trace.Fired("walk", cause, u, made))
        return made

    nodes = walk.nodes(root) if outside_kernels else walk.order(root)
    asked = change if listener is None else reported
    return _renewed(root, nodes, {}, asked, only, renew, outside_kernels)


def _renewed(
    root: UOp,
    nodes: Iterable[UOp],
    done: dict[UOp, UOp],
    change: Change = lambda u, src: None,
    only: Container[UOp] | None = (),
    renew: Callable[[UOp, tuple[UOp, ...]], UOp] = remake,
    outside_kernels: bool = False,
) -> UOp:
    """Walk these nodes as `rewritten` does; `done` gets the replacement of each replaced node."""
    unchanged, get = done.keys().isdisjoint, done.get
    for u in nodes:
        src = u.src
        if not unchanged(src) and not (outside_kernels and u.op in walk.CALLED and u is not root):
            src = tuple([get(s, s) for s in src])
        made = change(u, src) if only is None or u in only else None
        if made is None and src is not u.src:
            made = renew(u, src)
        if made is None or made is u:
            continue
        if made.origin is None:
            set_origin(made, u.origin)
        known = outside_kernels and made._shape is None and u._shape is not None
        if known and all([type(d) is int for d in u._shape]):
            set_shape(made, u._shape)  # its readers rely on the shape
        done[u] = made
    return get(root, root)


def without_shards(root: UOp) -> UOp:
    """Replace each SHARD by its operand: the graph for one device."""
    if Ops.SHARD not in walk.ops(root):
        return root
    return rewritten(root, lambda u, src: src[0] if u.op is Ops.SHARD else None)


def marked_fast_zeros(root: UOp) -> UOp:
    """Mark exact zeros in all float sums, differences and products of a graph, also in kernels that
    it calls (such as loops)."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return fold.with_fast_zeros(u.op, src) if fold.takes_fast_zeros(u) else None

    return rewritten(root, change)
