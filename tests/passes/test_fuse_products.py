"""Products in sums: rounded once where the pass says so, twice elsewhere, in every way to run."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import uopc
from uopc import dtypes
from uopc.ir.interpret import interpreter

SIZES = (1, 7, 64)
ONE, TWO = "x86-64-v3", "x86-64-v2"  # with an instruction for a product and a sum, and without
RNG = np.random.default_rng(25)
Numbers = Any


def numbers(size: int) -> list[Numbers]:
    """a, b, and a c that nearly cancels a * b, so that the rounding of the product shows."""
    a, b = RNG.standard_normal((2, size))
    return [a, b, -(a * b) * (1 + 2.0**-40)]


def compiled(graph: Any, cpu: str = "") -> Any:
    with uopc.options(target_cpu=cpu) if cpu else uopc.options():
        return uopc.compile(graph, threads=1)


def read(program: Any, arrays: list[Numbers]) -> list[Numbers]:
    """The arrays that a program reads, of a, b and c."""
    return [arrays["abc".index(p.name)] for p in program.inputs]


def given(size: int) -> list[Any]:
    return [uopc.param(name, (size,), dtypes.float64) for name in "abc"]


def exactly(f: Callable[..., Any], arrays: list[Numbers]) -> Numbers:
    """The function in rational numbers, rounded once."""
    rows = zip(*[[Fraction(v) for v in a.tolist()] for a in arrays])
    return np.array([float(f(*row)) for row in rows])


FUSED = {
    "a*b + c": lambda a, b, c: a * b + c,
    "c + a*b": lambda a, b, c: c + a * b,
    "a*b - c": lambda a, b, c: a * b - c,
    "c - a*b": lambda a, b, c: c - a * b,
    "-(a*b) - c": lambda a, b, c: -(a * b) - c,
    "c - a*a": lambda a, b, c: c - a * a,
}
each_sign = pytest.mark.parametrize("f", FUSED.values(), ids=FUSED)
each_size = pytest.mark.parametrize("size", SIZES)


@each_sign
@each_size
def test_one_rounding(f: Any, size: int) -> None:
    arrays = numbers(size)
    program = compiled(f(*given(size)), ONE)
    got = program(*read(program, arrays))
    if size == SIZES[-1]:
        assert got.tobytes() != f(*arrays).tobytes()  # NumPy rounds the product
    assert got.tobytes() == exactly(f, arrays).tobytes()


@each_sign
@each_size
def test_two_roundings_without_the_instruction(f: Any, size: int) -> None:
    arrays = numbers(size)
    program = compiled(f(*given(size)), TWO)
    assert program(*read(program, arrays)).tobytes() == f(*arrays).tobytes()


@each_size
def test_a_product_of_two_readers_is_rounded(size: int) -> None:
    a, b, c = given(size)
    arrays = numbers(size)
    product = arrays[0] * arrays[1]
    got = compiled((a * b + c) / (a * b - c))(*arrays)
    assert got.tobytes() == ((product + arrays[2]) / (product - arrays[2])).tobytes()


def test_of_two_products_the_first_is_fused() -> None:
    a, b, c = given(64)
    x, y, z = numbers(64)
    got = compiled(a * b + b * c, ONE)(x, y, z)
    assert got.tobytes() == exactly(lambda a, b, d: a * b + d, [x, y, y * z]).tobytes()


def dot(a: Any, b: Any, c: Any) -> Any:
    return (a * b).sum()


def blended(a: Any, b: Any, c: Any) -> Any:
    return a * b + (1 - a) * c - b * 0.3


def softmax(a: Any, b: Any, c: Any) -> Any:
    return (a * b + c).softmax(axis=0)


def polynomial(a: Any, b: Any, c: Any) -> Any:
    return (a * a * b + c).sin() + a * b.exp()


def masked(a: Any, b: Any, c: Any) -> Any:
    return (a < b).where(a * b + c, c - b * a)


@pytest.mark.parametrize("cpu", ["", TWO])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("graph", [dot, blended, softmax, polynomial, masked])
@each_size
@pytest.mark.few(12)
def test_machine_code_and_interpreter_agree(graph: Any, size: int, dtype: Any, cpu: str) -> None:
    values = [uopc.param(name, (size,), dtype) for name in "abc"]
    arrays = [a.astype(dtype.numpy) for a in numbers(size)]
    program = compiled(graph(*values), cpu)
    (kernel,) = program.kernels
    wanted = program(*read(program, arrays))
    got = np.empty_like(wanted)
    interpreter.run_kernel(kernel.uops, [got.reshape(-1), *read(program, arrays)])
    assert got.tobytes() == wanted.tobytes()
