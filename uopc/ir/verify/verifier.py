"""Check that a graph obeys its level: the rows of the op table and the named invariants.

One walk over the graph, with each check once per node. Not checked here: indices in bounds
(`in_bounds.py`), and tags.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

from uopc.errors import InvalidIR
from uopc.ir.core import ranges, walk
from uopc.ir.core.calls import function_body, graph_order, outside_bodies
from uopc.ir.core.level_of import is_shaped, level_of
from uopc.ir.core.levels import (
    HANDWRITTEN,
    INVARIANTS,
    KERNEL,
    LINEAR,
    PROGRAM,
    TENSOR,
    VECTOR,
    Level,
)
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import content
from uopc.ir.core.storage import arguments, before_effects, is_program, outer_ranges, storage_root
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.ir.verify.nodes import CHECKS, OF_ROW, describe, misfit, verify_node
from uopc.ir.verify.read_order import unordered_reads

__all__ = ["describe", "verify", "verify_node"]

Problems = Iterator[tuple["UOp", str]]  # a node, and the fault with what was expected


def verify(graph: UOp, level: Level, stage: str = "", outside: bool = False) -> None:
    """InvalidIR if the graph, or a kernel that it calls, breaks an invariant of the level.

    `outside`: True if no pass has recorded a shape in the graph, so that shapes surely follow the
    rules.
    """
    work: list[tuple[UOp, Level]] = [(graph, level)]
    done: set[tuple[UOp, Level]] = set()
    while work:
        root, at = work.pop()
        if (root, at) in done:
            continue
        done.add((root, at))
        nodes = graph_order([root]) if Ops.CALL in walk.ops(root) else list(walk.order(root))
        for u, invariant, problem in _problems(root, nodes, at, outside, stage in ("", "input")):
            where = f"{stage}: " if stage else ""
            broken = f"{where}level {at.text}, invariant {invariant}: {problem}"
            raise InvalidIR(f"{broken}\n  {describe(u, root)}{made_at(u)}")
        work += [(u.src[0], _body_level(u.src[0], at)) for u in nodes if u.op is Ops.CALL]


def _body_level(body: UOp, caller: Level) -> Level:
    """The levels of the body of a CALL. A program calls kernels before and after `expand`."""
    if body.op is Ops.LINEAR:
        return PROGRAM if is_program(body) else LINEAR
    if body.op is Ops.FUNCTION:
        return caller
    if is_shaped(body):
        return HANDWRITTEN
    return KERNEL | VECTOR if caller & PROGRAM else KERNEL


def _problems(
    root: UOp, nodes: list[UOp], level: Level, outside: bool, given: bool
) -> Iterator[tuple[UOp, str, str]]:
    """Yield each node that breaks an invariant, the invariant's name, and the fault with the
    expectation."""
    wanted = Ops.LINEAR if level & (LINEAR | PROGRAM) else Ops.SINK
    if level is not TENSOR and root.op is not wanted:
        yield root, "legal-op", f"the root is {root.op.name}, expected {wanted.name}"
    yield from _problems_of_nodes(root, nodes, level, outside)
    for name, check_graph in _GRAPH_CHECKS:
        if _holds(name, level) and (given or name not in _OF_GIVEN_GRAPHS):
            for u, problem in check_graph(root, nodes):
                yield u, name, problem
    for u in root.src if level is PROGRAM else ():
        if u.op is not Ops.CALL:
            yield u, "legal-op", f"{u.op.name} in the list of a program, expected a CALL"


def _problems_of_nodes(
    root: UOp, nodes: list[UOp], level: Level, outside: bool
) -> Iterator[tuple[UOp, str, str]]:
    """Yield the problems that a node and its operands show."""
    checks = [(name, check) for name, check in CHECKS.items() if _holds(name, level)]
    ops = {u.op for u in nodes}
    misplaced = {op for op in ops if not op.levels & level}
    equal = outside and level is TENSOR and ops.isdisjoint(_SEEN_THROUGH)
    known = _ChecksLeft() if equal else None
    of_level = [c for c in checks if c[0] not in OF_ROW]
    for u in nodes:
        if u.op in misplaced:
            yield u, "legal-op", f"{u.op.name} is not an op of this level"
        if u.op is Ops.SINK and u is not root:
            yield u, "legal-op", "a SINK is the root of a graph, or the body of a CALL"
        broken = misfit(u) if known is None else None
        if broken is not None:
            yield u, *broken
        for name, check in of_level if known is None else known.left(u, checks):
            problem = check(u)
            if problem is not None:
                yield u, name, problem


# Checks look for these below the operands of a node; and an INDEX has as many indices as it may.
_SEEN_THROUGH = frozenset((Ops.INVALID, Ops.TUPLE, Ops.FUNCTION, Ops.GETTUPLE, Ops.INDEX))
_Checks = Sequence[tuple[str, Callable[[UOp], str | None]]]
_OF_ARG: _Checks = [("arg-type", CHECKS["arg-type"])]
_OF_ARG_AND_SHAPE: _Checks = [*_OF_ARG, ("shape-rule", CHECKS["shape-rule"])]


class _ChecksLeft:
    """The remaining checks of a node in a tensor graph from outside.

    All other checks depend only on the ops and dtypes of the node and its operands, and run once
    for equal ones. A known shape follows the rule, and sizes are checked once.
    """

    def __init__(self) -> None:
        self.forms: set[object] = set()
        self.sizes: set[object] = set()

    def left(self, u: UOp, checks: _Checks) -> _Checks:
        form = (u.op, u.dtype, *[(s.op, s.dtype) for s in u.src])
        if form not in self.forms:
            self.forms.add(form)
            return checks
        dims = u._shape
        if dims is None or dims not in self.sizes:
            self.sizes.add(dims)
            return _OF_ARG_AND_SHAPE
        return _OF_ARG


@functools.cache
def _holds(name: str, level: Level) -> bool:
    """True if an invariant applies at a level (at all levels, if there are several)."""
    return INVARIANTS[name][0] & level == level


# ---------------------------------------------------------------- loops
def _axis(r: UOp) -> str:
    return ".".join(map(str, r.arg.axis))


def _closed_once(root: UOp, nodes: list[UOp]) -> Problems:
    for u in nodes:
        closed = u.src[1:] if u.op in (Ops.END, Ops.REDUCE, Ops.STAGE) else ()
        for i, r in enumerate(closed):
            if r.op is not Ops.RANGE:
                yield u, f"operand {i + 1} is {r.op.name}, expected a range"
            elif r in closed[:i]:
                yield u, f"range {_axis(r)} is closed twice"
    for e in root.src if root.op is Ops.SINK else (root,):
        for r in sorted(ranges.ranges(e), key=lambda r: (r.arg.axis, content(r))):
            wanted = f"an END or REDUCE of it between here and the {root.op.name}"
            yield r, f"range {_axis(r)} is opened and never closed, expected {wanted}"


def _nested(root: UOp, nodes: list[UOp]) -> Problems:
    """Check that all nodes that close a range agree on the ranges around it."""
    around: dict[UOp, set[UOp]] = {}
    for u in nodes:
        closed = ranges.closed_ranges(u)
        if not closed or u.op is Ops.STAGE:  # it has loops of its own
            continue
        outer = ranges.ranges(u)
        for r in closed:
            around.setdefault(r, set()).update(outer)
        by_axis = {r.arg.axis: r for r in (*outer, *closed)}
        for r in (*outer, *closed):
            if by_axis[r.arg.axis] is not r:
                yield u, f"two ranges of one nest have the axis {_axis(r)}"
    for r, others in around.items():
        for o in others:
            if r in around.get(o, ()):
                problem = f"range {_axis(r)} is inside of {_axis(o)} and around it"
                yield r, f"{problem}, expected one of them"


# ---------------------------------------------------------------- lists
_CLOSERS = {Ops.RANGE: Ops.END, Ops.IF: Ops.ENDIF}


def _balanced(root: UOp, nodes: list[UOp]) -> Problems:
    opened: list[UOp] = []
    for u in root.src:
        if u.op.opens:
            opened.append(u)
        elif u.op.closes:
            inner = opened.pop() if opened else None
            if inner is None or u.src[0] is not inner or u.op is not _CLOSERS[inner.op]:
                yield u, f"{u.op.name.upper()} of a block that is not the innermost open one"
            if u.op is Ops.END:
                yield from _carries(u)
    for r in opened:
        closer = _CLOSERS[r.op].name.upper()
        yield r, f"{describe(r)} is never ended, expected its {closer}"


def _carries(end: UOp) -> Problems:
    pairs = end.src[1:]
    if len(pairs) % 2:
        yield end, "a carried register without what it holds next"
    for carry, value in zip(pairs[::2], pairs[1::2]):
        if carry.op is not Ops.CARRY or carry.src[1] is not end.src[0]:
            yield end, f"expected a CARRY of this loop, got {carry.op.name}"
        elif carry.dtype is not value.dtype:
            yield end, f"the register is {carry.dtype.name}, its next value {value.dtype.name}"


def _defined_before_use(root: UOp, nodes: list[UOp]) -> Problems:
    """Check that each value stands once, with its operands before it and in no ended block."""
    home: dict[UOp, UOp | None] = {}  # node → the block that knows it; None is all of the list
    outer: dict[UOp, UOp | None] = {}  # block → the one around it
    running: list[UOp | None] = [None]
    for u in root.src:
        if u in home and u.dtype.kind != "void":  # stores and barriers may be done again
            yield u, "it stands twice in the list"
        # A BRANCH joins values from inside of its IF.
        inside = u.src[1] if u.op is Ops.BRANCH and u.src[1].op is Ops.IF else None
        for i, s in enumerate(u.src if u.op is not Ops.FUNCTION else ()):
            if s not in home:
                yield u, f"operand {i}, {s.op.name}, does not stand before"
            elif s.src and home[s] not in running and not (i > 0 and home[s] is inside):
                yield u, f"operand {i}, {s.op.name}, is in an ended block"
        if u.op.opens:
            outer[u] = running[-1]
            running.append(u)
        # After its loop, a CARRY is the last value.
        home[u] = outer.get(u.src[1]) if u.op is Ops.CARRY else running[-1]
        if u.op.closes and len(running) > 1:
            running.pop()


def _threads_meet(root: UOp, nodes: list[UOp]) -> Problems:
    """Check that no loop or branch around a BARRIER or EXCHANGE differs between threads."""
    differs: set[UOp] = set()
    opened: list[UOp] = []
    for u in root.src:
        if (u.op is Ops.SPECIAL and u.arg.startswith("lidx")) or any(s in differs for s in u.src):
            differs.add(u)
        if u.op.opens:
            opened.append(u)
            if u.src[0] not in differs:  # the threads count together
                differs.discard(u)
        elif u.op.closes and opened:
            opened.pop()
        elif u.op in (Ops.BARRIER, Ops.EXCHANGE) and not differs.isdisjoint(opened):
            yield u, f"{u.op.name} in a loop that is not as long in all threads of a block"


# ---------------------------------------------------------------- calls
def _arguments_fit(root: UOp, nodes: list[UOp]) -> Problems:
    """Check that the arguments of calls fit the parameters of their bodies."""
    params: dict[UOp, list[UOp]] = {}
    for u in nodes:
        if u.op is not Ops.CALL:
            continue
        body = u.src[0]
        if body not in params:
            inside = graph_order(body.src, outside_bodies)
            params[body] = [p for p in inside if p.op in (Ops.PARAM, Ops.NUMBER)]
        for p in params[body]:
            problem = _argument(p, arguments(u), root.op is Ops.LINEAR)
            if problem and not (p.arg.slot < 0 and body.op is Ops.FUNCTION):
                yield u, problem


def _operands_fit(root: UOp, nodes: list[UOp]) -> Problems:
    """Check that the FUNCTION of an APPLY is arithmetic on NUMBERs that the operands fit."""
    bodies: dict[UOp, list[UOp]] = {}
    for u in nodes:
        if u.op is not Ops.APPLY or u.src[0].op is not Ops.FUNCTION:
            continue
        function, *given = u.src
        if function not in bodies:
            bodies[function] = function_body(function)
            for s in bodies[function]:
                if not (s.op.pure or s.op is Ops.CONST or s.op is Ops.NUMBER):
                    yield s, f"{s.op.name} in a function, expected arithmetic on NUMBERs"
        for s in bodies[function]:
            if s.op is not Ops.NUMBER:
                continue
            if not 0 <= s.arg.slot < len(given):
                yield u, f"the function has a number in slot {s.arg.slot}, of {len(given)} operands"
            elif given[s.arg.slot].dtype is not s.dtype:
                found = given[s.arg.slot].dtype.name
                yield u, f"operand {1 + s.arg.slot} is {found}, the function's {s.dtype.name}"


def _argument(param: UOp, args: tuple[UOp, ...], stored: bool) -> str | None:
    """The reason why an argument does not fit, or None; `stored`: only storage fits a PARAM."""
    slot = param.arg.slot
    if not 0 <= slot < len(args):
        return f"the kernel has a parameter in slot {slot}, but gets {len(args)} arguments"
    if param.op is Ops.NUMBER and args[slot].op is not Ops.CONST:
        return f"argument {slot} is {args[slot].op.name}, the kernel takes a constant"
    if stored and param.op is Ops.PARAM and not storage_root(args[slot]).op.is_storage:
        return f"argument {slot} is {args[slot].op.name}, expected storage"
    if args[slot].dtype is not param.dtype:
        return f"argument {slot} is {args[slot].dtype.name}, the kernel's {param.dtype.name}"
    return None


def _loops_enclose(root: UOp, nodes: list[UOp]) -> Problems:
    """Check that loops around calls are of kind outer, and that each encloses consecutive calls."""
    ended: set[UOp] = set()
    around: tuple[UOp, ...] = ()
    for u in root.src:
        loops = outer_ranges(u)
        if u.src[len(u.src) - len(loops) :] != loops:
            yield u, "a loop before an argument, expected the loops last"
        if any([r.arg.kind != "outer" for r in loops]):
            yield u, "a loop around a call that is not of kind outer"
        same = [a is b for a, b in zip(around, loops)]
        begun = loops[same.index(False) if False in same else len(same) :]
        ended.update(set(around).difference(loops))
        if len(set(loops)) < len(loops) or not ended.isdisjoint(loops):
            yield u, "a loop around a call that has ended before, or encloses it twice"
        if set(begun) & set(around):
            yield u, "the loops around a call are in another order than those of the call before"
        around = loops


def _written_storage(root: UOp, nodes: list[UOp]) -> Problems:
    """Check that a STORE writes to storage. A tensor graph may store to a value: an AFTER of the
    value then shows a copy with the store. An AFTER of another value has nothing to wait for."""
    found = [u for u in nodes if u.op is Ops.STORE or u.op is Ops.AFTER]
    if not found:
        return
    whole = level_of(root) is TENSOR
    stems, known = _stems(nodes), dict[UOp, UOp]()
    written = {stems[u.src[0]] for u in found if whole and u.op is Ops.STORE}
    for u in found:
        if u.op is Ops.AFTER and not whole:
            continue
        stem = stems[u.src[0]]
        is_storage = stem.op.is_storage or stem.op in _MADE_STORAGE or stem in written
        if not is_storage or stem.op is Ops.INVALID:
            yield u, f"the target is {stem.op.name}, expected storage or a view of it"
        elif u.src[0].op is Ops.AFTER and before_effects(u.src[0], known).op is Ops.INDEX:
            yield u, "the target is AFTER of an INDEX, expected an INDEX of the AFTER"


def _stems(nodes: list[UOp]) -> dict[UOp, UOp]:
    """By node: the node that it views, perhaps after effects; the node itself if it is no view."""
    found: dict[UOp, UOp] = {}
    for u in nodes:
        through = u.op.movement or u.op in _VIEWS
        found[u] = found[u.src[0]] if through else u
    return found


_VIEWS = (Ops.AFTER, Ops.INDEX, Ops.SLICE, Ops.BITCAST, Ops.DETACH, Ops.SHARD)
_MADE_STORAGE = (Ops.CONTIGUOUS, Ops.STAGE, Ops.COPY, Ops.CALL, Ops.GETTUPLE)


def _reads_ordered(root: UOp, nodes: list[UOp]) -> Problems:
    yield from unordered_reads(root)


def _one_integer(root: UOp, nodes: list[UOp]) -> Problems:
    """Check that a VARIABLE is a scalar. Only the simplifier uses VARIABLEs with lanes."""
    for u in nodes:
        if u.op is Ops.VARIABLE and u.dtype.lanes > 1:
            yield u, f"the dtype is {u.dtype.name}, expected index"


# Bounds may prove these of a graph as it is given, and no longer of loops that a pass has cut.
_OF_GIVEN_GRAPHS = ("reads-ordered", "written-storage")
_GRAPH_CHECKS: tuple[tuple[str, Callable[[UOp, list[UOp]], Problems]], ...] = (
    ("range-closed-once", _closed_once),
    ("ranges-nest", _nested),
    ("reads-ordered", _reads_ordered),
    ("written-storage", _written_storage),
    ("balanced-loops", _balanced),
    ("defined-before-use", _defined_before_use),
    ("threads-meet", _threads_meet),
    ("operand-count", _arguments_fit),
    ("operand-count", _operands_fit),
    ("outer-loops", _loops_enclose),
    ("result-dtype", _one_integer),
)
