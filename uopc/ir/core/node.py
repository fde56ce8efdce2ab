"""The hash-consed node: fields, interning, nothing else.

Every node is a value and exists once: `intern` (used by the builders) and the metaclass call
`UOp(...)` (the public constructor) look in one table. Outside of a compile the table holds nodes
weakly; inside `arena()` it holds them strongly, which is cheaper, and lets go at the end.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from uopc.errors import InvalidIR
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

Key = tuple[Any, ...]

# key -> node (strong, made inside an arena) or _Ref (weak).
_table: dict[Key, Any] = {}
_births = itertools.count()
_arena_lock = threading.Lock()
_arena_keys: list[Key] = []
_arena_depth = 0


class _Ref(weakref.ref[Any]):
    __slots__ = ("key",)
    key: Key


# Between a look at an entry and its removal, another thread must not put a new one in its place. A
# collection may forget nodes while this thread holds it.
_forgetting = threading.RLock()


def _forget(ref: _Ref) -> None:
    with _forgetting:
        if _table.get(ref.key) is ref:
            del _table[ref.key]


class UCache(type):
    """Calling the class interns: the same fields give the same object."""

    def __call__(
        cls,
        op: Op,
        dtype: DType | None = None,
        src: tuple[UOp, ...] = (),
        arg: Any = None,
        tag: Any = None,
    ) -> UOp:
        """The node with these fields, folding nothing. Without a dtype the op's rule gives it."""
        if not isinstance(op, Op):
            raise InvalidIR(f"UOp: op must be one of Ops, got {op!r}")
        if not isinstance(src, tuple):
            src = tuple(src)
        for s in src:
            if not isinstance(s, Node):
                raise InvalidIR(f"UOp({op!r}): a source must be a UOp, got {s!r}")
        from uopc.ir.core import construct

        return construct.checked(op, dtype, src, arg, tag)


class Node(metaclass=UCache):
    """`op`, `dtype`, `src`, `arg`, `tag`; `seq` grows with creation, sources before users."""

    __slots__ = (
        "__weakref__", "_bounds", "_form", "_ranges", "_shape", "_simple", "arg", "dtype", "op",
        "origin", "seq", "src", "tag",
    )  # fmt: skip
    op: Op
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    seq: int
    # Where the user made it: (code object, line), for the nodes of public builders; else None.
    origin: Any
    # Caches of analysis.py and affine.py; None until asked for.
    _shape: Any
    _bounds: Any
    _ranges: Any
    _form: Any
    # What symbolic.py simplifies it to, True for itself.
    _simple: Any

    def __bool__(self) -> bool:
        raise TypeError(
            "a UOp has no truth value: use .where(), & and |, or int(u) on a constant graph"
        )

    def __reduce__(self) -> tuple[object, tuple[object]]:
        from uopc.ir.core import serialize as pickling

        return pickling.load, (pickling.rows(self),)  # type: ignore[arg-type]


_node_class: type = Node


def set_node_class(cls: type) -> None:
    """Called once, by uop.py: the class of every node."""
    global _node_class
    _node_class = cls


def intern(
    op: Op, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None, tag: Any = None
) -> UOp:
    """The node with these fields. The arg must be canonical: see `construct.canonical_arg`."""
    key = (op, dtype, src, arg, tag)
    if op is Ops.CONST:
        key = (op, dtype, src, const_key(arg), tag)
    found = _table.get(key)
    if found is not None:
        if type(found) is not _Ref:
            return found  # type: ignore[no-any-return]
        found = found()
        if found is not None:
            return found  # type: ignore[no-any-return]
    return _make(key, arg)


def const_key(arg: Any) -> Any:
    """What tells constants of one dtype apart: 0.0 from -0.0, and one NaN for all."""
    if type(arg) is float and (arg == 0.0 or arg != arg):
        return repr(arg)
    if type(arg) is tuple:
        return tuple([const_key(a) for a in arg])
    return arg


def _make_node(key: Key, arg: Any) -> UOp:
    node: UOp = object.__new__(_node_class)
    node.op, node.dtype, node.src, _, node.tag = key
    node.arg = arg
    node.seq = next(_births)
    node.origin = node._shape = node._bounds = node._ranges = node._form = None
    node._simple = None
    if _arena_depth:
        entry: Any = node
        _arena_keys.append(key)
    else:
        entry = _Ref(node, _forget)
        entry.key = key
    while True:
        # setdefault is atomic: of two threads that make the same node, one wins.
        found = _table.setdefault(key, entry)
        if found is entry:
            return node
        if type(found) is not _Ref:
            return found  # type: ignore[no-any-return]
        alive = found()
        if alive is not None:
            return alive  # type: ignore[no-any-return]
        _forget(found)


# What `intern` makes a node with; `check_construction` puts a checking one in its place.
_make: Callable[[Key, Any], UOp] = _make_node


def check_construction(check: Callable[[UOp], None] | None) -> None:
    """Call `check` on every node made from now on, in the whole process; None: no more.

    A node that it raises on is not kept in the table.
    """
    global _make
    if check is None:
        _make = _make_node
        return

    def make(key: Key, arg: Any) -> UOp:
        node = _make_node(key, arg)
        try:
            check(node)
        except BaseException:
            _table.pop(key, None)
            raise
        return node

    _make = make


Answer = TypeVar("Answer")
Container = TypeVar("Container", bound="list[Any] | dict[Any, Any]")
_held: list[list[Any] | dict[Any, Any]] = []


def while_compiling(container: Container) -> Container:
    """A list or dict that is emptied when the last arena is left, so that it may hold nodes."""
    _held.append(container)
    return container


def kept(read: Callable[[UOp], Answer]) -> Callable[[UOp], Answer]:
    """A decorator for what is read of a whole graph several times in turn: the answer for the last
    graph is kept as long as the compile runs. Nobody may change the answer."""
    last: list[tuple[UOp, Answer]] = while_compiling([])

    @functools.wraps(read)
    def ask(root: UOp) -> Answer:
        for known, answer in last:
            if known is root:
                return answer
        answer = read(root)
        if _arena_depth:
            last[:] = [(root, answer)]
        return answer

    return ask


def remembered(read: Callable[..., Answer]) -> Callable[..., Answer]:
    """A decorator for what is asked of the same few nodes again and again: as long as the compile
    runs, answers are kept. Nobody may change them."""
    known: dict[tuple[Any, ...], Answer] = while_compiling({})

    @functools.wraps(read)
    def ask(*of: Any) -> Answer:
        try:
            return known[of]
        except KeyError:
            answer = read(*of)
        if _arena_depth:
            if len(known) >= _MOST_REMEMBERED:
                known.clear()
            known[of] = answer
        return answer

    return ask


_MOST_REMEMBERED = 1 << 16


@contextlib.contextmanager
def arena() -> Iterator[None]:
    """Hold every node made in here until the end; the cycle collector rests meanwhile.

    Nests, and may be entered by several threads: the last one out releases.
    """
    global _arena_depth
    with _arena_lock:
        _arena_depth += 1
        collecting = gc.isenabled()
        gc.disable()
    try:
        yield
    finally:
        with _arena_lock:
            _arena_depth -= 1
            if _arena_depth == 0:
                for container in _held:
                    container.clear()
                _release()
        if collecting:
            gc.enable()


def _let_go(entries: dict[Any, Any], keys: list[Any], unused: int) -> int:
    """Weaken the nodes of an arena, users before sources; those with at most `unused` references
    go at once. Says how many references the last one had."""
    references = 0
    while keys:
        key = keys.pop()
        node = entries.get(key)
        if node is None or type(node) is _Ref:
            continue
        references = sys.getrefcount(node)
        if references <= unused:
            del entries[key]
        else:
            ref = _Ref(node, _forget)
            ref.key = key
            entries[key] = ref
    return references


class _Unheld:
    """Stands for a node that nothing but the table holds."""


# What `_let_go` says of one. From Python 3.14 on, a local variable may lend its reference to a call
# instead of counting one more.
_UNUSED = _let_go({0: _Unheld()}, [0], 0)


class NativeThread(threading.Thread):
    """A thread that runs machine code only: it never takes a node from the table."""


def _release() -> None:
    """Weaken what the arena made: users before sources, so that dead graphs go at once.

    Another thread may take a node from the table at any time: then a node goes only by its weak
    reference, which knows.
    """
    others = [t for t in threading.enumerate() if not isinstance(t, NativeThread)]
    _let_go(_table, _arena_keys, _UNUSED if len(others) == 1 else 0)


def in_arena() -> bool:
    """Whether a compile is going on somewhere in the process."""
    return _arena_depth > 0


def live_nodes() -> int:
    """How many nodes the table holds."""
    return len(_table)
