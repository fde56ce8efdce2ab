"""The memory of one device: its allocation and addresses, and the memory of its result parts.

Results that one exchange completes form a bucket: they are contiguous, so that the exchange needs
no copy.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from uopc.backends.cpu.arguments import shape_of
from uopc.backends.cpu.array_memory import NOTHING, new_array
from uopc.backends.cpu.layout import data_address
from uopc.backends.plan import AnyArray, AnyDtype, Exchange, Plan, Pointer, value_of


class ArrayMemory(Protocol):
    """Memory of a device, as arrays: NumPy's, or those on a GPU."""

    def new(self, dims: Sequence[int], dtype: AnyDtype) -> Any:
        """New memory."""

    def at(self, address: int, dims: Sequence[int], dtype: AnyDtype) -> Any:
        """The array at an address."""

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        """The addresses of arrays; any address for an array without elements."""

    def within(self, array: Any) -> Any:
        """The array that contains this array, or None."""

    def move(self, to: int, source: int, nbytes: int) -> object:
        """Copy bytes."""


class HostMemory:
    """Memory of this process."""

    def new(self, dims: Sequence[int], dtype: AnyDtype) -> AnyArray:
        return new_array(dims, dtype)

    def at(self, address: int, dims: Sequence[int], dtype: AnyDtype) -> AnyArray:
        nbytes = math.prod(dims) * dtype.itemsize
        if not nbytes:
            return np.empty(dims, dtype)
        memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
        return np.ndarray(dims, dtype, memory)

    def addresses(self, arrays: Iterable[AnyArray]) -> list[int]:
        return [data_address(a) if a.size else NOTHING for a in arrays]

    def within(self, array: AnyArray) -> Any:
        return array.base

    def move(self, to: int, source: int, nbytes: int) -> object:
        return ctypes.memmove(to, source, nbytes)


HOST = HostMemory()


class ResultMemory(NamedTuple):
    """The layout of a device's parts of new results, before allocation: the parts of a bucket are
    contiguous."""

    apart: tuple[tuple[int, tuple[int, ...], AnyDtype], ...]  # number, shape and dtype of each
    # Of each bucket the count and dtype of its elements, and the number, shape, begin and end of
    # each of its results.
    buckets: tuple[tuple[int, AnyDtype, list[tuple[int, tuple[int, ...], int, int]]], ...]

    @staticmethod
    def of(plan: Plan, values: Mapping[str, int], rank: int) -> ResultMemory:
        """The layout of a device's parts, for values of the variables."""
        assert plan.mesh is not None
        values = plan.mesh.on(rank, values)
        made = [(r, cut) for r, cut in zip(plan.results, plan.mesh.results) if r.source is None]
        shapes = [shape_of(cut.own, values) for _, cut in made]
        buckets = []
        for e in plan.exchanges:
            numbers = [result_number(plan, w) for w in e.words]
            if not e.offsets or numbers[0] is None:
                continue
            size, each = e.dtype.itemsize, zip(numbers, e.offsets, e.nbytes)
            own = [
                (i, shapes[i], at // size, (at + n) // size) for i, at, n in each if i is not None
            ]
            buckets.append((bucket_elements(e), e.dtype, own))
        within = {i for _, _, own in buckets for i, *_ in own}
        apart = [(i, shapes[i], r.dtype) for i, r in enumerate(plan.fresh) if i not in within]
        return ResultMemory(tuple(apart), tuple(buckets))

    def make(self, memory: ArrayMemory = HOST) -> list[Any]:
        """Allocate the parts; return them by number of the result."""
        if not self.buckets:
            return [memory.new(shape, dtype) for _, shape, dtype in self.apart]
        found = {i: memory.new(shape, dtype) for i, shape, dtype in self.apart}
        for count, dtype, own in self.buckets:
            room = memory.new((count,), dtype)
            for i, shape, begin, end in own:
                found[i] = room[begin:end].reshape(shape)
        return [found[i] for i in range(len(found))]


def result_number(plan: Plan, word: object) -> int | None:
    """The number of the fresh result that a word points to; None for other memory."""
    assert isinstance(word, Pointer)
    number = word.base - len(plan.arguments)
    return number if 0 <= number < len(plan.fresh) else None


def bucket_elements(bucket: Exchange) -> int:
    """The elements of a bucket."""
    return value_of(bucket.sent[0], {})
