"""Complex arrays in and out of programs: memory, dtypes, promotion, parts, updates, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc.errors import UserError, UserTypeError
from uopc.ir.core import dtypes
from uopc.numpy.complexes.arrays import ComplexArray

_A = np.array([1 + 2j, -3.5 + 0.5j, 4j])
_B = np.array([0.5 - 1j, 2 + 0j, -1 - 1j])


def test_programs_take_and_give_complex_arrays() -> None:
    f = uopc.jit(lambda a, b: {"sum": a + b, "size": abs(a)})
    found = f(_A, _B)
    assert np.array_equal(found["sum"], _A + _B) and np.allclose(found["size"], abs(_A))
    program = f.program(_A, _B)
    assert [(s.shape, s.dtype) for s in program.inputs] == [((3,), dtypes.complex128)] * 2
    assert [s.dtype for s in program.outputs] == [dtypes.complex128, dtypes.float64]
    out = np.zeros(3, complex), np.zeros(3)
    g = uopc.jit(lambda a, b: (a + b, abs(a))).program(_A, _B)
    assert g(_A, _B, out=out)[0] is out[0] and np.array_equal(out[0], _A + _B)


def test_arguments_of_any_layout() -> None:
    f = uopc.jit(lambda a: a * 2)
    wide = np.arange(24.0).reshape(4, 6) + 1j * np.arange(24.0)[::-1].reshape(4, 6)
    for a in (wide, wide[::2, ::3], wide.T, wide[:0], wide[:1], np.asfortranarray(wide)):
        assert np.array_equal(f(a), a * 2)
    assert np.array_equal(f(wide.astype(np.complex64)), wide.astype(np.complex64) * 2)
    assert f(1 + 2j) == 2 + 4j and f(np.complex64(1j)).dtype == np.complex64
    with pytest.raises(UserTypeError, match="expected complex128"):
        f.program(wide)(wide.real)


def test_sizes_may_be_free() -> None:
    f = uopc.jit(lambda a, b: (a * b, a.conj().sum()), dims={"a": ("n",), "b": ("n",)})
    for n in (0, 1, 3):
        product, total = f(_A[:n], _B[:n])
        assert np.allclose(product, _A[:n] * _B[:n]) and np.allclose(total, _A[:n].conj().sum())
    assert len(f.programs()) == 1


def test_compile_takes_pairs() -> None:
    x = uopc.param("x", (3, 2), dtypes.float64)
    z = unp.asarray([1j, 2.0, 3.0])
    given = ComplexArray.of_pairs(x)
    product = given * z
    program = uopc.compile(product.leaf, inputs=[given.leaf])
    assert np.allclose(program(_A), _A * np.array([1j, 2, 3]))
    with pytest.raises(UserError, match="pairs"):
        uopc.compile(ComplexArray.of_pairs(uopc.param("y", (3, 4))).leaf)


def test_results_are_kept_by_pickles_and_caches() -> None:
    import pickle

    program = uopc.jit(lambda a: a * 1j).program(_A)
    assert np.array_equal(pickle.loads(pickle.dumps(program))(_A), _A * 1j)


@pytest.mark.parametrize(("left", "right"), [
    (np.complex64, np.float32), (np.complex64, np.float64), (np.complex64, np.int8),
    (np.complex64, np.int64), (np.complex64, np.bool_), (np.complex128, np.float32),
    (np.complex64, np.complex128), (np.float32, np.complex64), (np.int64, np.complex64),
])  # fmt: skip
def test_arrays_promote_as_in_numpy(left: type, right: type) -> None:
    a, b = np.ones(2, left), np.ones(2, right)
    for f in (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: np.concatenate([a, b])):
        assert uopc.jit(f)(a, b).dtype == f(a, b).dtype
    assert unp.result_type(left, right) == np.result_type(left, right)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "c8", "c16"])
def test_numbers_of_python_are_weak(dtype: str) -> None:
    a = np.ones(2, dtype)
    for f in (lambda a: a * 2j, lambda a: 1j + a, lambda a: a - (1 + 1j), lambda a: 1j / a):
        got = uopc.jit(f)(a)
        assert got.dtype == f(a).dtype and np.allclose(got, f(a))


def test_a_real_operand_has_no_second_part() -> None:
    """As in C99's annex G and in Python 3.14; NumPy makes it complex first."""
    z = np.array([complex(np.inf, 1.0), complex(-0.0, -0.0)])
    with np.errstate(invalid="ignore"):
        assert uopc.jit(lambda z: z * 2.0)(z)[0] == complex(np.inf, 2.0)
        assert np.isnan((z * 2.0)[0].imag)
    assert np.signbit(uopc.jit(lambda z: z + 1.0)(z)[1].imag)


def test_parts() -> None:
    f = uopc.jit(lambda z: (z.real, z.imag, np.real(z), np.imag(z), z.conj(), np.angle(z)))
    for got, want in zip(f(_A), (_A.real, _A.imag, _A.real, _A.imag, _A.conj(), np.angle(_A))):
        assert np.allclose(got, want)
    g = uopc.jit(lambda x: (x.real, x.imag, x.conj(), np.iscomplexobj(x)))
    assert [np.asarray(v).tolist() for v in g(_A.real)] == [[1, -3.5, 0], [0] * 3, [1, -3.5, 0], 0]


def test_dtypes() -> None:
    assert unp.complex64 == np.complex64 and unp.complex128 == "complex128"
    assert unp.isdtype(unp.complex64, "complex floating") and unp.isdtype(unp.complex64, "numeric")
    assert not unp.isdtype(unp.int8, unp.complex64)
    assert not unp.isdtype(unp.complex64, "real floating")
    assert unp.finfo(unp.complex64).dtype == unp.float32
    assert unp.can_cast(unp.float32, unp.complex64)
    assert not unp.can_cast(unp.complex64, unp.float64)
    z = unp.asarray([1 + 2j])
    assert unp.astype(z, unp.float64).tolist() == [1.0] and unp.astype(z, bool).tolist() == [True]
    assert unp.asarray([1, 2], dtype="complex64").dtype == unp.complex64


def test_lazy_arrays_have_values() -> None:
    z = unp.asarray([3 + 4j, 0])
    assert abs(z).tolist() == [5.0, 0.0] and complex(z[0] * 1j) == -4 + 3j
    assert np.array_equal(np.asarray(z), [3 + 4j, 0]) and bool((z == z).all())
    assert (z + np.array([1j, 1j])).tolist() == [3 + 5j, 1j]


def test_updates() -> None:
    f = uopc.jit(lambda z, w: (z.at[1:].set(w[1:]), z.at[0].add(2j), z.at[0].set(1.0)))
    got = f(_A, _B)
    assert np.array_equal(got[0], [_A[0], *_B[1:]]) and got[1][0] == _A[0] + 2j and got[2][0] == 1
    with pytest.raises(UserTypeError, match="set or add"):
        uopc.jit(lambda z: z.at[0].mul(2))(_A)
    with pytest.raises(UserTypeError, match="complex"):
        uopc.jit(lambda x: x.at[0].set(1j))(_A.real)


@pytest.mark.parametrize("name", ["floor", "arctan2", "cbrt", "mod", "median", "unique"])
def test_functions_of_real_numbers_refuse_complex_ones(name: str) -> None:
    function = getattr(np, name)
    args = (_A, _A) if name in ("arctan2", "mod") else (_A,)
    with pytest.raises(UserTypeError, match="complex"):
        uopc.jit(lambda *a: function(*a))(*args)


def _reversed(z: Any) -> Any:
    z[:] = z[::-1]
    return z


def _part_of_a_view(z: Any) -> Any:
    part = z[::2]
    part += 1j
    z[0] = part[1]
    return z.copy()


def _parts(z: Any) -> Any:
    z.imag[1:] += z.real[1:]
    z.real[...] = 7
    return z * 1


def _masked(z: Any) -> Any:
    z[abs(z) > 3] = 1j
    return z.sum()


def _shifted(z: Any) -> Any:
    y = np.zeros_like(z)
    y[1:] = z[:-1]
    y[0] = 1
    return y


def _into(z: Any) -> Any:
    np.multiply(z, 2j, out=z)
    z -= 1
    return z[1] * 2


@pytest.mark.parametrize("f", [_reversed, _part_of_a_view, _parts, _masked, _shifted, _into])
@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
def test_writes_are_seen_as_in_numpy(f: Any, dtype: type) -> None:
    for given in (_A.astype(dtype), np.concatenate([_A, _B]).astype(dtype)[::2]):
        ours, theirs = np.array(given), np.array(given)
        if not given.flags.c_contiguous:
            ours = np.repeat(given, 2)[::2]
        assert np.allclose(uopc.jit(f)(ours), f(theirs)) and np.allclose(ours, theirs)
