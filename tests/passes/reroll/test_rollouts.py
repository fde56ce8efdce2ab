"""Elements that stand on each other, put together: statements of one kernel, each computed once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops


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
@pytest.mark.few(3)
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


def stages_of_states(controls, steps, sin, stack):
    """Two coupled pendulums, by the midpoint rule: (steps, 4)."""

    def rates(a, b, v, w, u):
        pull = (a - b) * 0.5
        return v, w, u - sin(a) - pull, pull - sin(b)

    x, found = [controls[0] * 0.25] * 4, []
    for i in range(steps):
        half = [p + r * 0.05 for p, r in zip(x, rates(*x, controls[i]))]
        x = [p + r * 0.1 for p, r in zip(x, rates(*half, controls[i]))]
        found.append(stack(x))
    return stack(found)


@pytest.mark.machine("desktop")
@pytest.mark.parametrize("steps", [1, 2, 7, 13])
def test_states_of_several_elements(steps):
    """A stack of stacks: no stage is computed for each element of the others again."""
    controls = uopc.param("u", (steps,), dtype=dtypes.float64)
    graph = stages_of_states(controls, steps, lambda x: x.sin(), lambda x: uopc.stack(*x))
    program = uopc.compile(graph, verify=True)
    given_u = np.random.default_rng(0).standard_normal(steps)
    expected = stages_of_states(given_u, steps, np.sin, np.stack)
    np.testing.assert_allclose(program(given_u), expected, rtol=1e-13, atol=1e-14)
    (kernel,) = program.kernels
    assert len(kernel.uops.src) <= 700 * steps + 100


def solved(a, b, sqrt, stack):
    """a·x = b by Cholesky's factors, element by element; any axes before those of a and b."""
    n = a.shape[-1]
    factor, y, x = {}, [], [None] * n
    for j in range(n):
        factor[j, j] = sqrt(a[..., j, j] - sum(factor[j, k] * factor[j, k] for k in range(j)))
        for i in range(j + 1, n):
            rest = a[..., i, j] - sum(factor[i, k] * factor[j, k] for k in range(j))
            factor[i, j] = rest / factor[j, j]
    for i in range(n):
        y.append((b[..., i] - sum(factor[i, k] * y[k] for k in range(i))) / factor[i, i])
    for i in reversed(range(n)):
        x[i] = (y[i] - sum(factor[k, i] * x[k] for k in range(i + 1, n))) / factor[i, i]
    return stack(x)


@pytest.mark.parametrize("batch", [(), (1,), (50,)])
@pytest.mark.parametrize("n", [1, 3, 7])
def test_a_small_solver_computes_each_value_once(n, batch):
    a = uopc.param("a", (*batch, n, n), dtypes.float64)
    b = uopc.param("b", (*batch, n), dtypes.float64)
    program = uopc.compile(solved(a, b, lambda v: v.sqrt(), lambda x: uopc.stack(*x, axis=-1)))
    root = np.random.default_rng(0).standard_normal((*batch, n, n))
    given_a = root @ np.swapaxes(root, -1, -2) + n * np.eye(n)
    given_b = np.random.default_rng(1).standard_normal((*batch, n))
    expected = np.linalg.solve(given_a, given_b[..., None])[..., 0]
    np.testing.assert_allclose(program(a=given_a, b=given_b), expected, rtol=1e-10, atol=1e-12)
    (kernel,) = program.kernels
    roots = [u for u in kernel.uops.src if u.op is Ops.SQRT]
    assert len(roots) <= 2 * n  # in vectors, and in what is left over


@pytest.mark.parametrize("steps, how", [
    *[(7, how) for how in ("rows", "columns", "cat")],
    *[pytest.param(steps, how, marks=pytest.mark.slow)
      for steps in (16, 17) for how in ("rows", "columns", "cat")],
    pytest.param(40, "rows", marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.few(2)
def test_rows_that_stand_on_each_other(steps, how):
    """States are rows, and each is computed once however many there are."""

    def states(controls, sin, stack):
        rows, state = [], [controls[i] for i in range(4)]
        for i in range(steps):
            a, b, c, d = state
            for _ in range(4):
                a, b = a + b * 0.125, b + (controls[i] - sin(a)) * 0.125
                c, d = c + d * 0.125, d - sin(a + c) * 0.25
            state = [a, b, c, d]
            rows.append(stack(state))
        return rows

    controls = uopc.param("u", (40,), dtypes.float64)
    parts = states(controls, lambda x: x.sin(), lambda s: uopc.stack(*s))
    if how == "cat":
        made = uopc.cat(*[p.reshape(1, 4) for p in parts], axis=0)
    else:
        made = uopc.stack(*parts, axis=0 if how == "rows" else 1)
    program = uopc.compile(made, verify=True)
    assert len(program.kernels) <= 2, [k.name for k in program.kernels]
    given_u = np.random.default_rng(1).standard_normal(40)
    wanted = np.array(states(given_u, np.sin, np.array))
    wanted = wanted.T if how == "columns" else wanted
    np.testing.assert_allclose(program(given_u), wanted, rtol=1e-10, atol=1e-10)


def slopes(x, sin):
    """Four slopes of unlike forms, whose common work is most of theirs."""
    common = x[0]
    for i in range(20):
        common = sin(common * x[1 + i % 3]) + 0.1
    return common + x[0], common * x[1], common - x[2] * x[2], x[3] / (common * common + 2.0)


@pytest.mark.parametrize("steps", [1, 3])
def test_unlike_parts_compute_once_what_they_share(steps):
    """A loop over the four states would compute it in each turn."""
    states = uopc.param("x", (4, 30), dtype=dtypes.float64)
    given_x = np.random.default_rng(1).random((4, 30))
    x, want = [states[i] for i in range(4)], list(given_x)
    for _ in range(steps):
        x = [a + 0.1 * b for a, b in zip(x, slopes(x, lambda a: a.sin()))]
        want = [a + 0.1 * b for a, b in zip(want, slopes(want, np.sin))]
    program = uopc.compile(uopc.stack(*x), threads=1)
    (kernel,) = program.kernels
    assert kernel.name == "E_30"
    np.testing.assert_allclose(program(given_x), want, rtol=1e-12)
