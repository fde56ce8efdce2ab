"""The table of nodes. The table and memos hold nodes strongly during a compile, else weakly.

The table knows only keys and entries; `uop.py` makes the nodes.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from uopc.ir import forks

Key = tuple[Any, ...]
# key -> node (strong, made inside an arena) or Ref (weak). `uop.intern` looks here.
table: dict[Key, Any] = {}
held_keys: list[Key] = []
open_arenas = 0


class Ref(weakref.ref[Any]):
    __slots__ = ("key",)
    key: Key


# Between a look at an entry and its removal, another thread must not put a new one in its place. A
# collection may forget nodes while this thread holds it.
_forgetting = threading.RLock()
forks.wait_for(_forgetting)
_arena_lock = threading.Lock()
forks.wait_for(_arena_lock)


def _forget(ref: Ref, table: dict[Key, Any] = table, lock: Any = _forgetting) -> None:
    # The defaults outlive the module's own names, which go first when Python exits.
    with lock:
        if table.get(ref.key) is ref:
            del table[ref.key]


def enter(key: Key, node: Any) -> Any:
    """Put a new node into the table. Return the node, or an equal node that another thread put
    first."""
    if open_arenas:
        entry = node
        held_keys.append(key)
    else:
        entry = Ref(node, _forget)
        entry.key = key
    while True:
        # setdefault is atomic: of two threads that make the same node, one wins.
        found = table.setdefault(key, entry)
        if found is entry:
            return node
        if type(found) is not Ref:
            return found
        alive = found()
        if alive is not None:
            return alive
        _forget(found)


Node = TypeVar("Node")
Answer = TypeVar("Answer")
Container = TypeVar("Container", bound="list[Any] | dict[Any, Any]")
_held: list[list[Any] | dict[Any, Any]] = []
_memos: list[_Memo] = []


class _Memo:
    """The answers of a memo, and a function that makes the memo keep answers in another dict."""

    def __init__(
        self, name: str, known: dict[Any, Any], keep_in: Callable[[dict[Any, Any]], None]
    ) -> None:
        self.name, self.known, self.keep_in = name, known, keep_in

    def use(self, known: dict[Any, Any]) -> None:
        self.known = known
        self.keep_in(known)


class Asked(dict[Any, Any]):
    """Answers of a memo that count hits and misses."""

    def __init__(self, name: str) -> None:
        self.name, self.hits, self.misses = name, 0, 0

    def __getitem__(self, key: Any) -> Any:
        try:
            found = super().__getitem__(key)
        except KeyError:
            self.misses += 1
            raise
        self.hits += 1
        return found


_counted: list[Asked] | None = None  # while somebody counts


def _count_question(memo: _Memo) -> None:
    if _counted is not None:
        _counted.append(Asked(memo.name))
        memo.use(_counted[-1])


@contextlib.contextmanager
def counted_memos() -> Iterator[list[Asked]]:
    """Count the hits of every memo in the block. Without this block, nothing counts, at no cost."""
    global _counted
    counted: list[Asked] = []
    _counted = counted
    for memo in _memos:
        _count_question(memo)
    try:
        yield counted
    finally:
        _counted = None
        for memo in _memos:
            memo.use({})


def compile_scoped(container: Container) -> Container:
    """Register a list or dict to be emptied when the last arena ends, so that it may hold nodes."""
    _held.append(container)
    return container


def memo(read: Callable[..., Answer], most: int = 1 << 16) -> Callable[..., Answer]:
    """A decorator: during a compile, the function keeps its last answers, `most` at most. Callers
    must not change the answers."""
    known: dict[tuple[Any, ...], Answer] = {}

    def keep_in(place: dict[tuple[Any, ...], Answer]) -> None:
        nonlocal known
        known = place

    name = f"{read.__module__.removeprefix('uopc.')}.{read.__name__}"
    _memos.append(_Memo(name, known, keep_in))
    _count_question(_memos[-1])

    @functools.wraps(read)
    def ask(*of: Any) -> Answer:
        try:
            return known[of]
        except KeyError:
            answer = read(*of)
        if open_arenas:
            if len(known) >= most:
                known.clear()
            known[of] = answer
        return answer

    return ask


def memo_last(read: Callable[[Node], Answer]) -> Callable[[Node], Answer]:
    """`memo` for a walk of a whole graph: keep one answer, for the last graph."""
    return memo(read, most=1)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Pause the cycle collector, which would scan long-lived nodes again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def arena() -> Iterator[None]:
    """Hold every node made in the block until its end; pause the cycle collector meanwhile.

    Arenas nest, and several threads may enter: the last thread out releases the nodes.
    """
    global open_arenas
    with uncollected():
        with _arena_lock:
            open_arenas += 1
        try:
            yield
        finally:
            with _arena_lock:
                open_arenas -= 1
                if open_arenas == 0:
                    for container in (*_held, *[m.known for m in _memos]):
                        container.clear()
                    _release()


@contextlib.contextmanager
def passing() -> Iterator[None]:
    """Keep, at the end of this block, only new nodes that objects outside refer to. Memos are
    emptied at the end."""
    mark = len(held_keys)
    yield
    with _arena_lock:
        for memo in _memos:
            memo.known.clear()
        _release(mark)


def _let_go(entries: dict[Any, Any], keys: list[Any], unused: int, first: int = 0) -> int:
    """Weaken the nodes of an arena from number `first` on, users before sources. Drop nodes with at
    most `unused` references at once. Return the number of references to the last node."""
    references = 0
    while len(keys) > first:
        key = keys.pop()
        node = entries.get(key)
        if node is None or type(node) is Ref:
            continue
        references = sys.getrefcount(node)
        if references <= unused:
            del entries[key]
        else:
            ref = Ref(node, _forget)
            ref.key = key
            entries[key] = ref
    return references


# The number of references to an object that only the table holds, as `_let_go` counts them. From
# Python 3.14 on, a local variable may lend its reference to a call instead of counting one more.
_UNUSED = _let_go({0: type("_OnlyInTable", (), {})()}, [0], 0)


class NativeThread(threading.Thread):
    """A thread that runs machine code only, and so never takes a node from the table."""


def _release(first: int = 0) -> None:
    """Weaken the arena's nodes, users before sources, so that dead graphs go at once.

    Another thread may take a node from the table at any time: then only the weak reference, which
    knows the users of a node, removes it.
    """
    others = [t for t in threading.enumerate() if not isinstance(t, NativeThread)]
    _let_go(table, held_keys, _UNUSED if len(others) == 1 else 0, first)


def in_arena() -> bool:
    """True while a compile runs somewhere in the process."""
    return open_arenas > 0
