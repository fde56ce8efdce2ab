"""Reads whose order with a store to their element a kernel written by hand does not say: errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import uopc
from uopc import UOp, dtypes, kernel_param
from uopc.ir.core.args import BufferArg
from uopc.ir.core.level_of import level_of
from uopc.ir.interpret.interpreter import evaluate, run_kernel
from uopc.ir.verify.verifier import verify

N = 8
OUT, IN = (kernel_param(slot, (N,), dtypes.float32) for slot in range(2))
I = UOp.range(N, 0)  # noqa: E741
J = UOp.range(N, 1)


def closed(target: UOp, value: UOp, *loops: UOp) -> UOp:
    return UOp.sink(target.store(value).end(*(loops or (I,))), name="k")


def both(before: UOp, store: UOp, index: UOp) -> UOp:
    """A kernel that adds what is there before a store and what is there after it."""
    seen = OUT.after(store)
    return closed(IN.index(I), before + seen.index(index))


def summed() -> UOp:
    """A register that a loop adds to, read inside and behind the loop."""
    register = UOp(uopc.Ops.BUFFER, dtypes.float32, (), BufferArg(0, (1,), "", "reg"))
    start = register.after(register.index(0).store(0.0))
    loop = start.index(0).store(start.after(J).index(0) + OUT.index(J)).end(J)
    return closed(IN.index(I), start.after(loop).index(0) * IN.index(I))


ILLEGAL: dict[str, Callable[[], UOp]] = {
    "values": lambda: both(OUT.index(I), OUT.index(I).store(1.0), I),
    "loads": lambda: closed(
        IN.index(I), OUT.index(I).load() + OUT.after(OUT.index(I).store(1.0)).index(I).load()
    ),
    "places that may be one": lambda: both(OUT.index(I // 2), OUT.index(I).store(1.0), I),
    "the store reads another": lambda: both(OUT.index(I), OUT.index(I).store(IN.index(I)), I),
    "guards that meet": lambda: both(
        OUT.index((I < 5).where(I, UOp.invalid())),
        OUT.index((I > 3).where(I, UOp.invalid())).store(1.0), I,
    ),
    "an earlier version": lambda: both(
        OUT.after(OUT.index(I).store(2.0)).index(I),
        OUT.after(OUT.index(I).store(2.0)).index(I).store(1.0), I,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_element_read_before_and_after_a_store_is_an_error(name: str) -> None:
    kernel = ILLEGAL[name]()
    arrays = {name: np.full(N, 5.0, "f4") for name in "ab"}
    a, b = (uopc.param(name, (N,)) for name in "ab")
    called = b.after(UOp(uopc.Ops.CALL, dtypes.void, (kernel, a, b)))
    for run in (*entries(kernel), lambda: evaluate([called], arrays), lambda: uopc.compile(called)):
        with pytest.raises(uopc.InvalidIR, match=r"reads arg0\[.*before.* after a store to"):
            run()


def entries(kernel: UOp) -> list[Callable[[], object]]:
    """Each way in which a kernel is used."""
    return [
        lambda: uopc.compile(kernel),
        lambda: uopc.compile(kernel, verify=True),
        lambda: verify(kernel, level_of(kernel)),
        lambda: run_kernel(kernel, [np.zeros(N, "f4"), np.zeros(N, "f4")]),
    ]


def beside(one: UOp, other: UOp) -> UOp:
    return UOp.sink(UOp.group(one, other).end(I), name="k")


NO_ORDER: dict[str, Callable[[], UOp]] = {
    "in one loop": lambda: beside(OUT[I].store(1.0), IN[I].store(OUT[I])),
    "in two loops": lambda: UOp.sink(
        OUT[I].store(1.0).end(I), IN[J].store(OUT[J]).end(J), name="k"
    ),
    "a swap": lambda: beside(IN[I].store(OUT[I]), OUT[I].store(IN[I])),
    "values with shapes": lambda: UOp.sink(OUT.store(IN), IN.store(OUT), name="k"),
    "a read by a reduce": lambda: UOp.sink(OUT.store(1.0), IN.store(OUT.sum()), name="k"),
    "a gate of the read": lambda: beside(OUT[I].store(1.0), IN[I].store(OUT[I].load(I < 4))),
}


@pytest.mark.parametrize("name", NO_ORDER)
def test_a_read_and_a_store_without_order_are_an_error(name: str) -> None:
    """A store that does not need the read, and a read that is not after the store."""
    kernel = NO_ORDER[name]()
    for run in entries(kernel):
        with pytest.raises(uopc.InvalidIR, match="nothing says whether arg") as caught:
            run()
        assert str(caught.value).count(__file__) == 2


def ordered_by_the_kernel() -> UOp:
    """The store comes after what uses the read."""
    copied = IN[I].store(OUT[I])
    return UOp.sink(OUT.after(copied)[I].store(1.0).end(I), name="k")


def gates_that_exclude() -> UOp:
    low, high = I < 4, I >= 4
    kept = IN[I].store(OUT[I].load(low))
    return beside(kept, OUT[I].store(1.0, high))


def in_place() -> UOp:
    return closed(OUT.index(I), OUT.index(I) * 2.0 + IN.index(I))


def read_first() -> UOp:
    """The store needs the first read, so that comes first."""
    old = OUT.index(I).load()
    seen = OUT.after(OUT.index(I).store(old + 1.0))
    return closed(IN.index(I), seen.index(I).load() * 3.0 + old)


def elsewhere() -> UOp:
    half = UOp.range(N // 2, 0)
    seen = OUT.after(OUT.index(half).store(1.0))
    return closed(IN.index(half), OUT.index(half + 4) + seen.index(half), half)


def guarded() -> UOp:
    low = OUT.index((I < 4).where(I, UOp.invalid()))
    seen = OUT.after(OUT.index((I > 3).where(I, UOp.invalid())).store(1.0))
    return closed(IN.index(I), low + seen.index((I > 3).where(I, UOp.invalid())))


@pytest.mark.parametrize("make", [
    in_place, read_first, elsewhere, guarded, summed, ordered_by_the_kernel, gates_that_exclude,
])  # fmt: skip
def test_other_reads_are_legal(make: Callable[[], UOp]) -> None:
    kernel = make()
    given = [np.arange(1, N + 1, dtype="f4"), np.arange(N, dtype="f4") * 3]
    compiled, interpreted = ([a.copy() for a in given] for _ in range(2))
    uopc.compile(kernel, verify=True)(*compiled)
    run_kernel(kernel, interpreted)
    for a, b in zip(compiled, interpreted):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(compiled, given))


@pytest.mark.parametrize("rows", [0, 3])
def test_parts_of_a_loop_of_symbolic_length_read_other_elements_than_they_store(rows: int) -> None:
    n = uopc.variable("n", 3, 40)
    x = uopc.param("x", (rows, n) if rows else (n,), dtypes.float64)
    f = uopc.compile(x.assign(x + 1), verify=True)
    a = np.zeros((rows, 13) if rows else 13)
    f(a)
    assert (a == 1).all()
