"""x[mask] and nonzero of values that the call brings, against NumPy; and what follows in the graph.

The length of such a result is a size that the program computes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
from uopc import UOp, dtypes
from uopc.ir.interpret.interpreter import evaluate

Array = Any
SIZES = [0, 1, 2, 7, 64, 333]
SHARES = [0.0, 0.3, 1.0]  # no hit, some, all


def numbers(n: int, share: float, seed: int = 0) -> Array:
    """Numbers of which this share is positive."""
    rng = np.random.default_rng(seed + n)
    found = rng.random(n) + 0.5
    return np.where(rng.random(n) < share, found, -found).astype("f4")


def same(made: Any, expected: Any) -> None:
    assert isinstance(made, np.ndarray) and made.shape == expected.shape
    assert made.dtype == expected.dtype
    assert made.flags.c_contiguous and made.base is None  # exactly its memory
    np.testing.assert_allclose(made, expected, rtol=2e-6)


def softmax(v: Any) -> Any:
    e = np.exp(v - v.max()) if isinstance(v, np.ndarray) else (v - v.max()).exp()
    return e / e.sum()


FOLLOWING: dict[str, Callable[[Any], Any]] = {
    "alone": lambda v: v,
    "elements": lambda v: v * 2 + 1,
    "sum": lambda v: v.sum(),
    "twice": lambda v: v / (v.sum() + 1),
    "outer": lambda v: v[:, None] * v[None, :],
    "reversed": lambda v: v[::-1],
    "first": lambda v: v[:3],
    "mask of a mask": lambda v: v[v > 1],
    "sorted": lambda v: np.sort(v),
    "running totals": lambda v: np.cumsum(v).astype(np.float32),
    "matrix": lambda v: (v[:, None] * v[None, :]) @ v,
}


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_follows_works_on_the_length(name: str, symbolic: bool) -> None:
    function = FOLLOWING[name]
    n = uopc.variable("n", 0, 333)
    for size in SIZES if symbolic else [0, 7]:
        x = uopc.param("x", (n if symbolic else size,))
        program = uopc.compile(function(x[x > 0]))
        for share in SHARES:
            a = numbers(size, share)
            same(program(a), np.asarray(function(a[a > 0])))


def test_the_interpreter_finds_lengths() -> None:
    x = uopc.param("x", (uopc.variable("n", 0, 99),))
    for name in ("alone", "twice", "outer", "mask of a mask"):
        function = FOLLOWING[name]
        for share in SHARES:
            a = numbers(5, share)
            made = evaluate(function(x[x > 0]), {"x": a})
            np.testing.assert_allclose(made, function(a[a > 0]), rtol=2e-6)


def test_a_softmax_of_what_a_mask_holds() -> None:
    x = uopc.param("x", (50,))
    a = numbers(50, 0.5)
    same(uopc.compile(softmax(x[x > 0]))(a), softmax(a[a > 0]))


KEYS: dict[str, Callable[[Any, Any], Any]] = {
    "all axes": lambda x, m: x[m],
    "rows": lambda x, m: x[m[:, 0]],
    "columns": lambda x, m: x[:, m[0]],
    "behind an ellipsis": lambda x, m: x[..., m[0]],
    "with a new axis": lambda x, m: x[None, m],
    "with a number": lambda x, m: x[m[:, 0], 2],
    "with a slice": lambda x, m: x[m[:, 0], 1:3],
}


@pytest.mark.parametrize("name", KEYS)
def test_masks_in_keys(name: str) -> None:
    x = uopc.param("x", (5, 4))
    program = uopc.compile(KEYS[name](x, x > 0))
    for share in SHARES:
        a = numbers(20, share).reshape(5, 4)
        same(program(a), KEYS[name](a, a > 0))


@pytest.mark.parametrize("shape", [(0,), (9,), (3, 5), (0, 4), (2, 3, 4)])
def test_nonzero(shape: tuple[int, ...]) -> None:
    x = uopc.param("x", shape)
    program = uopc.compile(list(x.nonzero()), inputs=[x] if 0 not in shape else None)
    for share in SHARES:
        a = np.maximum(numbers(int(np.prod(shape)), share), 0).reshape(shape)
        given = [a] if 0 not in shape else []  # no element of it is read
        for made, expected in zip(program(*given), np.nonzero(a), strict=True):
            same(made, expected)


def test_nan_is_not_zero_and_a_scalar_has_no_places() -> None:
    x = uopc.param("x", (3,))
    (made,) = uopc.compile(list(x.nonzero()))(np.array([np.nan, -0.0, 1], "f4"))
    assert made.tolist() == [0, 2]
    with pytest.raises(uopc.UserError, match="at least one dimension"):
        uopc.param("x", ()).nonzero()


def test_indices_read_and_write() -> None:
    x, y = uopc.param("x", (40,)), uopc.param("y", (40,))
    (i,) = (x > 0).nonzero()
    program = uopc.compile([y[i], y.at[i].set(x[i] * 2), i.shape[0] * 1])
    a, b = numbers(40, 0.4), numbers(40, 0.5, 1)
    read, written, count = program(a, b)
    same(read, b[a > 0])
    same(written, np.where(a > 0, a * 2, b))
    assert count == (a > 0).sum()


def test_two_masks_have_two_lengths_that_must_agree_to_meet() -> None:
    x, y = uopc.param("x", (30,)), uopc.param("y", (30,))
    a, b = numbers(30, 0.5), numbers(30, 0.5, 7)
    both = uopc.compile([x[x > 0], y[y > 0]])(a, b)
    for made, expected in zip(both, (a[a > 0], b[b > 0])):
        same(made, expected)
    program = uopc.compile(x[x > 0] + y[y > 0])
    same(program(a, a[::-1].copy()), a[a > 0] + a[::-1][a[::-1] > 0])
    with pytest.raises(uopc.UserError, match=r"count_1 is 0, expected count = .* from the program"):
        program(a, -np.abs(b))
    with pytest.raises(uopc.UserError, match="count"):
        evaluate(x[x > 0] + y[y > 0], {"x": a, "y": -np.abs(b)})


def test_a_mask_must_have_the_shape_of_its_axes() -> None:
    x = uopc.param("x", (5, 4))
    with pytest.raises(IndexError, match=r"a mask of shape \(4\) for axes of shape \(5\)"):
        x[x[0] > 0]


def test_two_threads_call_one_program() -> None:
    x = uopc.param("x", (2000,))
    program = uopc.compile([x[x > 0], (x[x > 0] * 2).sum()], threads=2)
    wrong: list[Any] = []

    def calls(seed: int) -> None:
        for i in range(60):
            a = numbers(2000, 0.1 + 0.01 * i, seed + i)
            made, total = program(a)
            if not np.array_equal(made, a[a > 0]) or not np.isclose(total, 2 * made.sum()):
                wrong.append((seed, i))

    both = [threading.Thread(target=calls, args=(1000 * t,)) for t in range(2)]
    for t in both:
        t.start()
    for t in both:
        t.join()
    assert not wrong


def test_a_batch_has_no_common_length() -> None:
    def positive(v: Array) -> Array:
        return v[v > 0]

    x = np.array([[1, -1, 2], [3, 4, -5]], "f4")
    with pytest.raises(uopc.Unsupported, match="length count depends on values of the batch"):
        uopc.jit(uopc.vmap(positive))(x)

    def chosen(v: Array, m: Array) -> Array:
        return v[m > 0]

    made = uopc.jit(uopc.vmap(chosen, in_axes=(0, None)))(x, x[0])
    np.testing.assert_array_equal(made, x[:, [0, 2]])


def test_derivatives_go_through_what_a_mask_holds() -> None:
    def loss(v: Array) -> Array:
        found = v[v > 0]
        return (found * found).sum()

    a = numbers(20, 0.5)
    np.testing.assert_allclose(uopc.jit(uopc.grad(loss))(a), np.where(a > 0, 2 * a, 0), rtol=1e-6)


def test_places_are_one_for_all_uses_of_a_mask() -> None:
    x = uopc.param("x", (8,), dtypes.float64)
    first, second = x[x > 0], x[x > 0]
    assert isinstance(first, UOp) and first is second
    names = [k.name for k in uopc.compile([first, (x + 1)[x > 0]]).kernels]
    assert names.count("compact") == 1


def test_where_lengths_are_refused() -> None:
    x = uopc.param("x", (8,))
    found = x[x > 0]
    with pytest.raises(uopc.Unsupported, match="count is computed by the graph, which cuda"):
        uopc.compile(found, device="cuda")
    with pytest.raises(uopc.UserError, match="out: the program computes the length"):
        uopc.compile(found)(numbers(8, 0.5), out=np.zeros(8, "f4"))


def test_a_length_is_computed_outside_of_loops() -> None:
    def step(total: Array, v: Array) -> Any:
        return total + v[v > 0].sum(), total

    def looped(rows: Array) -> Any:
        return uopc.scan(step, np.float32(0), rows)

    with pytest.raises(uopc.Unsupported, match="computed in the body of a loop"):
        uopc.jit(looped)(np.ones((3, 4), "f4"))


def test_a_mask_without_dimensions_or_elements() -> None:
    import uopc.numpy as unp

    x = unp.asarray([[1, 2], [3, 4]])
    assert x[x[0, 0] > 0].tolist() == [x.tolist()] and x[x[0, 0] > 1].tolist() == []
    assert x[unp.zeros((0,), dtype=unp.bool)].shape == (0, 2)
    nothing = uopc.param("m", (0,), dtypes.bool)
    assert uopc.param("x", (3, 2))[nothing].shape == (0, 2)
    chosen = uopc.jit(lambda x: x[x.sum() > 0])
    assert chosen(np.ones(2)).tolist() == [[1, 1]] and chosen(-np.ones(2)).shape == (0, 2)


SLICES: dict[str, Callable[[Any, Any], Any]] = {
    "stop": lambda x, k: x[:k],
    "start": lambda x, k: x[k:] * 2,
    "both": lambda x, k: x[k : k + 1],
    "step": lambda x, k: x[:k:2],
    "another axis": lambda x, k: x[..., :k],
    "two axes": lambda x, k: x[:k, k:],
    "sum": lambda x, k: x[:k].sum(0),
    "meets itself": lambda x, k: x[:k] + np.sin(x[:k]),
    "of a value": lambda x, k: x[:, : x[0].argmax()],
}


@pytest.mark.parametrize("name", SLICES)
def test_slices_up_to_a_traced_number(name: str) -> None:
    function, a = SLICES[name], np.arange(12.0).reshape(3, 4)
    traced = uopc.jit(function)
    for k in (0, 1, 3, 9, -1, -9):
        made, expected = traced(a, k), function(a, k)
        assert made.shape == expected.shape
        np.testing.assert_allclose(made, expected)


def test_writes_up_to_a_traced_number() -> None:
    traced = uopc.jit(lambda x, k: x.at[:k].set(x[:k] * 2).at[k:].add(1.0))
    for k in (0, 2, 5, -1):
        a = np.arange(5.0)
        expected = a.copy()
        expected[:k] *= 2
        expected[k:] += 1
        np.testing.assert_array_equal(traced(a, k), expected)


def test_several_sorts_of_one_length() -> None:
    x = uopc.param("x", (9,))
    found = x[x > 0]
    order = found.argsort().cast(dtypes.float32)
    program = uopc.compile(found + found.sort(descending=True) + order)
    a = numbers(9, 0.6)
    b = a[a > 0]
    same(program(a), b + np.sort(b)[::-1] + np.argsort(b).astype("f4"))
