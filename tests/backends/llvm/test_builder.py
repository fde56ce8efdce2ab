"""Functions in LLVM IR that are written by hand: blocks, loops, memory and types."""

from __future__ import annotations

import ctypes
import inspect

import pytest

from uopc.backends.cpu import structs
from uopc.backends.cpu.elf_loader import Image, load
from uopc.backends.llvm.builder import (
    I1,
    I32,
    I64,
    VOID,
    Builder,
    Operand,
    PointerTo,
    Struct,
    Words,
    function,
    module,
)
from uopc.backends.llvm.jit import compile_object

PAIR = Words(left=I64, right=PointerTo(I64))


@function(I64, PointerTo(I64), I64, I64)
def first(b: Builder, counts: Operand, n: Operand, least: Operand) -> None:
    found = b.block(I64)
    with b.count_to(n) as i:
        b.leave(counts[i].eq(0), i.again)
        b.leave(counts[i].compare("sge", least), found, i)
    b.ret(-1)
    (place,) = b.begin(found)
    b.ret(place)


@function(I64, PointerTo(PAIR), I1)
def chosen(b: Builder, pair: Operand, is_left: Operand) -> None:
    with b.unless(is_left):
        pair.right[2] = pair.left * 2
    b.ret(first(pair.right, 3, is_left.select(pair.left, 5)))


@pytest.fixture(scope="module")
def code() -> Image:
    return load(compile_object(module([first, chosen], ["first", "chosen"])))


def call(code: Image, name: str, *given: int) -> int:
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(given))
    return int(kind(code.symbols[name])(*given))


def test_loops_leave_and_go_on(code: Image) -> None:
    counts = (ctypes.c_int64 * 3)(0, -5, 7)
    at = ctypes.addressof(counts)
    assert [call(code, "first", at, 3, n) for n in (-9, -5, 0, 8)] == [1, 1, 2, -1]
    assert call(code, "first", at, 0, -9) == -1


def test_fields_and_calls(code: Image) -> None:
    counts = (ctypes.c_int64 * 3)()
    pair = (ctypes.c_int64 * 2)(4, ctypes.addressof(counts))
    assert call(code, "chosen", ctypes.addressof(pair), 1) == -1
    assert call(code, "chosen", ctypes.addressof(pair), 0) == 2 and list(counts) == [0, 0, 8]


def test_what_is_seen_and_what_is_declared() -> None:
    assert "define internal i64 @first(ptr %counts" in module([first, chosen], ["chosen"])
    assert "declare i64 @first(ptr, i64, i64)" in module([chosen], ["chosen"])


def test_types_that_differ_are_refused() -> None:
    b = Builder(VOID)
    narrow = Operand(b, I32, "%n")
    with pytest.raises(AssertionError, match="%n is a i32, not a i64"):
        first(Operand(b, PointerTo(I64), "%p"), narrow, 0)
    with pytest.raises(AttributeError, match="has no field 'middle'"):
        Operand(b, PointerTo(PAIR), "%p").middle.load()
    with pytest.raises(TypeError):
        assert narrow < 3
    b.ret()
    with pytest.raises(AssertionError, match="no block is open"):
        narrow + 1


def test_no_field_of_the_runtime_hides_behind_a_method() -> None:
    known = {*dir(Operand), *inspect.signature(Operand).parameters}
    for struct in [v for v in vars(structs).values() if isinstance(v, Struct)]:
        assert not known & struct.fields.keys()
