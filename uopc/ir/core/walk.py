"""The nodes of a graph in order, and values computed along them without Python's stack."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from types import GeneratorType
from typing import Any, TypeVar, cast

from uopc.ir.core.arena import memo_last
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp


def toposort(
    root: UOp, gate: Callable[[UOp], bool] | None = None, done: dict[UOp, None] | None = None
) -> dict[UOp, None]:
    """Every node below `root`, sources first, as an ordered set; `gate(u)`: True to descend below
    u."""
    order: dict[UOp, None] = {} if done is None else done
    if root in order:
        return order
    around: list[tuple[UOp, Iterator[UOp]]] = []  # the nodes on the way, with their other sources
    u, sources = root, iter(root.src if gate is None or gate(root) else ())
    while True:
        for s in sources:
            if s not in order:
                if s.src and (gate is None or gate(s)):
                    around.append((u, sources))
                    u, sources = s, iter(s.src)
                    break
                order[s] = None
        else:
            order[u] = None
            if not around:
                return order
            u, sources = around.pop()


def backward_slice(u: UOp) -> dict[UOp, None]:
    """Every node below this node, sources first, without the node itself.

    Examples:
        >>> a, b = uopc.variable("a", 0, 9), uopc.variable("b", 0, 9)
        >>> a in (a + b).backward_slice, a + b in (a + b).backward_slice
        (True, False)
    """
    found = toposort(u)
    del found[u]
    return found


def consumers(root: UOp) -> dict[UOp, dict[UOp, None]]:
    """By node of the graph, sources first: the nodes that use it as a source.

    Examples:
        >>> a, b = uopc.param("a", (2,)), uopc.param("b", (2,))
        >>> list((a + b).get_consumer_map()[a]) == [a + b]
        True
    """
    found: dict[UOp, dict[UOp, None]] = {}
    for u in toposort(root):
        found[u] = {}
        for s in u.src:
            found[s][u] = None
    return found


@memo_last
def order(root: UOp) -> Mapping[UOp, None]:
    """`toposort(root)`; the last result is kept."""
    return toposort(root)


# A CALL in a tensor graph calls these, or FUNCTIONs: a kernel, or a program, a list of CALLs.
CALLED = frozenset((Ops.SINK, Ops.LINEAR))


def outside_kernels(root: UOp) -> Callable[[UOp], bool]:
    """A gate for walks of a tensor graph that does not enter called kernels and programs."""
    return lambda u: u.op not in CALLED or u is root


def sweep(
    root: UOp, slot: str, compute: Callable[[UOp], Any], alone: Callable[[UOp], bool] | None = None
) -> Any:
    """Set `slot` of `root` and the nodes below it. Nodes with `alone(u)` need no sources."""
    put = getattr(UOp, slot).__set__
    stack = [root]
    while stack:
        u = stack[-1]
        if getattr(u, slot) is not None:
            stack.pop()
            continue
        missing = [s for s in u.src if getattr(s, slot) is None]
        if missing and (alone is None or not alone(u)):
            stack.extend(missing)
        else:
            put(u, compute(u))
            stack.pop()
    return getattr(root, slot)


def marks_below(
    nodes: Iterable[UOp], marks: Mapping[UOp, int], sources: Callable[[UOp], Iterable[UOp]]
) -> dict[UOp, int]:
    """The marks of each node and of all nodes below, as bits. `nodes`: sources first."""
    found: dict[UOp, int] = {}
    for u in nodes:
        bits = marks.get(u, 0)
        for s in sources(u):
            bits |= found.get(s, 0)
        found[u] = bits
    return found


def variables(u: UOp) -> list[UOp]:
    """The VARIABLEs below a node, by name.

    Examples:
        >>> n, m = uopc.variable("n", 1, 8), uopc.variable("m", 1, 8)
        >>> [v.arg.name for v in (n * m + n).variables()]
        ['m', 'n']
    """
    return sorted((v for v in toposort(u) if v.op is Ops.VARIABLE), key=lambda v: str(v.arg.name))


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def computed(
    root: K, step: Callable[[K], V | Generator[list[K], list[V], V]], memo: dict[K, V]
) -> V:
    """The value of `root`. `memo` keeps the values of all keys on the way, also between calls."""
    stack: list[tuple[K, Generator[list[K], list[V], V], list[K]]] = []

    def enter(key: K) -> None:
        begun = step(key)
        if not isinstance(begun, GeneratorType):
            memo[key] = cast("V", begun)
            return
        try:
            stack.append((key, begun, next(begun)))
        except StopIteration as done:
            memo[key] = done.value

    if root not in memo:
        enter(root)
    while stack:
        key, begun, wanted = stack[-1]
        depth = len(stack)
        for k in wanted:
            if k not in memo:
                enter(k)
                if len(stack) > depth:  # k waits for other keys
                    break
        else:
            try:
                stack[-1] = (key, begun, begun.send([memo[k] for k in wanted]))
            except StopIteration as done:
                memo[key] = done.value
                stack.pop()
    return memo[root]


@memo_last
def nodes(root: UOp) -> list[UOp]:
    """The nodes outside of hand-written kernels, sources first."""
    every = order(root)
    if all([u.op not in CALLED or u is root for u in every]):
        return list(every)
    return list(toposort(root, outside_kernels(root)))


def inputs(root: UOp) -> list[UOp]:
    """The params that a call of a tensor graph passes. A param with a slot is excluded: an argument
    of a FUNCTION's or kernel's body."""
    return [u for u in nodes(root) if u.op is Ops.PARAM and u.arg.slot < 0]


@memo_last
def ops(root: UOp) -> frozenset[Op]:
    """The ops of the graph, by which a pass sees that it has nothing to do."""
    return frozenset([u.op for u in nodes(root)])


def flatten(u: UOp, op: Op = Ops.AND) -> list[UOp]:
    """The operands of a tree of one op, left to right: the conjuncts of an AND."""
    out: list[UOp] = []
    stack = [u]
    while stack:
        v = stack.pop()
        if v.op is op:
            stack += [v.src[1], v.src[0]]
        else:
            out.append(v)
    return out
