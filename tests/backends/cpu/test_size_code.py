"""Sizes that machine code computes from a call's variables, against Python's exact integers."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.cpu.elf_loader import Image, load
from uopc.backends.cpu.size_code import _OPERATION_NUMBERS
from uopc.backends.llvm.jit import compile_object
from uopc.backends.plan import DimValue, Plan, PlannedLaunch, Pointer, ResultArray, Scalar, Variable
from uopc.ir.core.ops import Op
from uopc.ir.index import closed

WORD = """
define void @word(ptr %words, i64 %chunk) {
  %to = load ptr, ptr %words
  %from = getelementptr i64, ptr %words, i64 1
  %value = load i64, ptr %from
  store i64 %value, ptr %to
  ret void
}
"""
MOST = (1 << 63) - 1
NAMES = "abc"
NUMBERS = st.one_of(
    st.integers(-9, 9),
    st.sampled_from([MOST, -MOST, 1 << 31, -(1 << 62)]),
    st.integers(-MOST, MOST),
)
IMAGE: list[Image] = []


def program(d: DimValue) -> ProgramBase:
    """A program that returns a size."""
    if not IMAGE:
        IMAGE.append(load(compile_object(WORD), ("word",)))
    plan = Plan(
        (), (ResultArray(np.dtype(np.int64), ()),),
        (PlannedLaunch("word", (Pointer(0), Scalar(d))),),
        tuple([Variable(name, -MOST, MOST) for name in NAMES]),
    )  # fmt: skip
    return make_callable(plan, IMAGE[0], ProgramBase)


@st.composite
def sizes(draw: Any) -> DimValue:
    made: list[closed.Instruction] = [("variable", name, ()) for name in NAMES]
    made += [("const", draw(NUMBERS), ()) for _ in range(draw(st.integers(0, 2)))]
    for _ in range(draw(st.integers(1, 6))):
        op = Op.by_name(draw(st.sampled_from(sorted(_OPERATION_NUMBERS))))
        operands = [draw(st.integers(0, len(made) - 1)) for _ in range(op.arity[0])]
        made.append((op.name, None, tuple(operands)))
    return DimValue(tuple(made))


def steps(d: DimValue, values: dict[str, int]) -> list[int]:
    """The values of all instructions."""
    return [closed.value(d.instructions[: i + 1], values) for i in range(len(d.instructions))]


@given(sizes(), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_machine_code_agrees_with_python(d: DimValue, calls: list[tuple[int, ...]]) -> None:
    f = program(d)
    by_python = []
    bind = f._runner.bind
    f._runner.bind = lambda *a: by_python.append(a) or bind(*a)  # type: ignore[method-assign]
    for numbers in calls:
        values = dict(zip(NAMES, numbers))
        exact = steps(d, values)
        if abs(exact[-1]) > MOST:
            continue
        by_python.clear()
        assert f(**values) == exact[-1]
        if all([abs(v) <= MOST for v in exact]):
            assert not by_python


def test_every_operation_of_sizes_has_code() -> None:
    for op in Op.all():
        if op.fold is not None or op.name == "where":
            assert op.name in _OPERATION_NUMBERS


@pytest.mark.parametrize("value", [MOST + 1, -MOST - 1, 1 << 100])
def test_a_variable_that_64_bits_do_not_hold(value: int) -> None:
    f = program(DimValue((("variable", "a", ()),)))
    with pytest.raises(ValueError, match=r"variable 'a' is -?[0-9]+ "):
        f(a=value, b=0, c=0)
