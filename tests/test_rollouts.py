"""Elements that stand on each other, put together: statements of one kernel, each computed once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc.ir import dtypes


def rollout(controls, steps, sin):
    """Positions and speeds of a pendulum, step by step."""
    position, speed = controls[0], controls[0] * 0.0
    states = []
    for i in range(steps):
        position, speed = position + speed * 0.125, speed + (controls[i] - sin(position)) * 0.125
        states += [position, speed]
    return states


def put_together(parts, how):
    if how == "stack":
        return uopc.stack(*parts)
    return uopc.cat(*[p.reshape(1) for p in parts], axis=0)


@pytest.mark.parametrize("how", ["stack", "cat"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_states_of_a_rollout(how, dtype):
    steps = 30
    controls = uopc.param("u", (steps,), dtype=dtype)
    states = rollout(controls, steps, lambda x: x.sin())
    program = uopc.compile(put_together(states, how), verify=True)
    assert len(program.kernels) == program.stats["launches"] == 1
    given_u = np.random.default_rng(0).standard_normal(steps)
    got = program(given_u.astype("f4" if dtype is dtypes.float32 else "f8"))
    tolerance = 1e-5 if dtype is dtypes.float32 else 1e-13
    np.testing.assert_allclose(got, rollout(given_u, steps, np.sin), rtol=tolerance, atol=tolerance)


def test_code_grows_with_the_steps():
    sizes = []
    for n in (20, 80):
        parts = [uopc.param("x", (n,))[0]]
        for _ in range(1, n):
            parts.append(parts[-1] * 0.5 + parts[0])
        (kernel,) = uopc.compile(uopc.stack(*parts)).kernels
        sizes.append(len(kernel.uops.src))
    assert sizes[1] <= 4.5 * sizes[0]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_elements(data):
    """Elements of arrays, constants, sums, and functions of those before."""
    x = uopc.param("x", (8,))
    given_x = np.random.default_rng(1).random(8).astype("f4")
    parts, expected = [x[0]], [given_x[0]]
    for _ in range(data.draw(st.integers(1, 30))):
        i = data.draw(st.integers(0, len(parts) - 1))
        j = data.draw(st.integers(0, 7))
        kind = data.draw(st.sampled_from(["add", "max", "cos", "constant", "sum", "element"]))
        if kind == "add":
            made, value = parts[i] * 0.5 + x[j], expected[i] * np.float32(0.5) + given_x[j]
        elif kind == "max":
            made, value = parts[i].maximum(x[j]), max(expected[i], given_x[j])
        elif kind == "cos":
            made, value = parts[i].cos(), np.cos(expected[i])
        elif kind == "constant":
            made, value = parts[i] * 0.0 + float(j), np.float32(j)
        elif kind == "sum":
            made, value = (x * parts[i]).sum(), (given_x * expected[i]).sum()
        else:
            made, value = x[j], given_x[j]
        parts.append(made)
        expected.append(value)
    how = data.draw(st.sampled_from(["stack", "cat"]))
    got = uopc.compile(put_together(parts, how), verify=True)(given_x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
