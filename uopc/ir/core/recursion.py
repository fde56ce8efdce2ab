"""Values computed from each other by memo, without recursion: generators on a stack.

A step gives its value, or a generator that yields the keys it needs, is sent their values, and
returns its own. It is written as a recursive function would be, and a graph may be as deep as
memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from types import GeneratorType
from typing import TypeVar, cast

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def computed(
    root: K, step: Callable[[K], V | Generator[list[K], list[V], V]], memo: dict[K, V]
) -> V:
    """The value of `root`; `memo` keeps those of all keys met on the way, also between calls."""
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
                if len(stack) > depth:  # it waits for others
                    break
        else:
            try:
                stack[-1] = (key, begun, begun.send([memo[k] for k in wanted]))
            except StopIteration as done:
                memo[key] = done.value
                stack.pop()
    return memo[root]
