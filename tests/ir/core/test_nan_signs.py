"""A NaN constant has a sign, which every form of it keeps, and no payload; elements of arrays keep
all bits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.backends.c.test_kernel import by_gcc, compiled, needs_gcc, needs_v3
from tests.exporting.test_export import Case, assert_same, called
from uopc import UOp, dtypes
from uopc.ir.core import serialize
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.interpret import interpreter

NAN = math.nan
SIGNED = (
    dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.fp8e4m3, dtypes.fp8e5m2,
)  # fmt: skip
UNSIGNED = (dtypes.fp8e4m3fnuz, dtypes.fp8e5m2fnuz)
TYPES = pytest.mark.parametrize("t", SIGNED, ids=lambda t: t.name)


def bits(a: Any) -> list[int]:
    a = np.asarray(a)
    return list(a.view(f"u{a.itemsize}").reshape(-1).tolist())


def number(t: Any, value: float) -> UOp:
    return uopc.constant(value, t)


def sign(u: UOp) -> float:
    assert u.op is Ops.CONST and u.arg != u.arg
    return math.copysign(1.0, u.arg)


@TYPES
def test_two_nodes(t: Any) -> None:
    assert number(t, NAN) is not number(t, -NAN)
    assert (sign(number(t, NAN)), sign(number(t, -NAN))) == (1, -1)
    assert number(t, -NAN) is number(t, float("-nan")) is uopc.constant(np.asarray(-NAN, t.numpy))


@pytest.mark.parametrize("t", UNSIGNED, ids=lambda t: t.name)
def test_one_node_where_the_type_has_one_nan(t: Any) -> None:
    assert number(t, NAN) is number(t, -NAN)


def test_a_payload_is_dropped() -> None:
    for value in np.array([0x7FF8000000001234, 0xFFF8000000001234], "u8").view("f8"):
        assert bits(uopc.constant(value).arg) == bits(math.copysign(NAN, value))
    lanes = UOp.const(dtypes.float32, (NAN, -NAN))
    assert lanes is not UOp.const(dtypes.float32, (-NAN, NAN))
    assert lanes is UOp.const(dtypes.float32, (NAN, -NAN))


@TYPES
def test_text_reads_back(t: Any) -> None:
    for value in (NAN, -NAN, (NAN, -NAN), (-NAN, 1.0)):
        u = UOp.const(t, value)
        assert uopc.parse(str(u)) is u
    assert number(t, -NAN).render() == "-nan"
    assert uopc.parse(f"%1 = const -nan : {t.short}") is number(t, -NAN)


@TYPES
def test_digests_differ(t: Any) -> None:
    x = uopc.param("x", (3,), t)
    either = [(x < 1).where(x, number(t, v)) for v in (NAN, -NAN)]
    for of in (serialize.content, lambda u: serialize.fingerprint(u).digest):
        assert of(either[0]) != of(either[1])
    for u in either:
        assert serialize.load(serialize.rows(u)) is u


def selected(t: Any) -> UOp:
    """NaNs of both signs, chosen when the program runs."""
    x = uopc.param("x", (4,), t)
    return (x < 1).where(number(t, NAN), number(t, -NAN))


@TYPES
def test_programs_store_both(t: Any) -> None:
    x = np.asarray([0, 2, 0, 2], t.numpy)
    wanted = bits(np.asarray([NAN, -NAN, NAN, -NAN], t.numpy))
    graph = selected(t)
    assert bits(uopc.compile(graph)(x)) == wanted
    assert bits(uopc.compile(graph, optimize=False)(x)) == wanted
    assert bits(interpreter.evaluate([graph], {"x": x})[0]) == wanted
    for value in (NAN, -NAN):
        full = uopc.full((3,), value, t)
        assert bits(uopc.compile(full)()) == bits(np.full(3, value, t.numpy))


@needs_gcc
@needs_v3
@TYPES
def test_c_stores_both(t: Any, tmp_path: Path) -> None:
    case = Case(selected(t), [np.asarray([0, 2, 0, 2], t.numpy)])
    program = compiled(case.graph, "x86-64-v3", threads=1)
    got = called(by_gcc(program, tmp_path, "-march=x86-64-v3"), case)
    assert_same(got, called(program, case))
    assert bits(got) == bits(np.asarray([NAN, -NAN, NAN, -NAN], t.numpy))


def test_ptx_has_both() -> None:
    (kernel,) = uopc.compile(selected(dtypes.float32), device="cuda:sm_80").kernels
    assert "0f7FC00000, 0fFFC00000" in kernel.asm


def test_the_cache_on_disk_keeps_them_apart(tmp_path: Path) -> None:
    x = np.asarray([0.0, 2.0])
    for value in (NAN, -NAN, NAN):
        with uopc.options(cache_dir=str(tmp_path)):
            p = uopc.param("x", (2,), dtypes.float64)
            program = uopc.compile((p < 1).where(number(dtypes.float64, value), p))
        assert bits(program(x)[0]) == bits(value)


def test_static_values_of_functions() -> None:
    f = uopc.jit(lambda x, value: uopc.numpy.where(x < 1, value, x), static_argnames="value")
    for value in (NAN, -NAN, NAN):
        assert bits(f(np.zeros(1), value)) == bits(np.full(1, value))


@TYPES
def test_folding(t: Any) -> None:
    plus, minus, infinity = number(t, NAN), number(t, -NAN), number(t, math.inf)
    assert -plus is minus and -minus is plus
    assert abs(minus) is plus and minus.cast(dtypes.float64) is number(dtypes.float64, -NAN)
    assert minus.maximum(1.0) is minus and plus.minimum(minus) is plus
    if not t.name.startswith("fp8"):  # of these, infinity is the greatest number
        assert (infinity - infinity) is plus is (infinity * 0)
    same = (uopc.param("x", (), t) < 1).where(plus, minus)
    assert same.op is Ops.WHERE


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(SIGNED), st.data())
def test_bits_of_nans(t: Any, data: st.DataObject) -> None:
    """Folded or not, through a constant or an array of equal elements, bits are as they were."""
    u = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}[t.bits]
    nans = bits(np.asarray([NAN, -NAN], t.numpy))
    value = data.draw(st.sampled_from(nans) | st.sampled_from([b ^ 1 for b in nans]))
    folded = intern(Ops.BITCAST, t, (UOp.const(u, value),))
    got = uopc.compile(uopc.stack(folded, folded).bitcast(u))()
    assert got.tolist() == [value] * 2
    array = np.full(8, value, u.numpy).view(t.numpy)
    assert bits(uopc.compile(uopc.constant(array).contiguous())()) == [value] * 8
