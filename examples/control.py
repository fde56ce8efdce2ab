"""The functions that a solver of optimal control calls in each iteration, as one program: a car on
a horizon.

    python examples/control.py [STAGES]

Cost, equality and inequality constraints, the values of their sparse Jacobian, and a product of it
with a vector, all in float64. Derivatives are dual numbers over arrays, a few lines below: the
Jacobian is six columns for all stages at once, and entries that are always zero are never computed.
The same functions on NumPy arrays are the comparison, complex steps the check.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import uopc

STAGES, STATES, CONTROLS = 50, 4, 2
STEP, WHEELBASE, WIDTH = 0.1, 2.7, 1.5
NAMES = ("x", "target", "weights", "u", "start", "dx", "du")


@dataclass(frozen=True)
class Dual:
    """A value and its derivative in one direction; None is a derivative that is always zero."""

    value: Any
    slope: Any = None

    def __add__(self, other: Any) -> Dual:
        other = dual(other)
        return Dual(self.value + other.value, plus(self.slope, other.slope))

    def __sub__(self, other: Dual) -> Dual:
        return self + other * -1.0

    def __mul__(self, other: Any) -> Dual:
        other = dual(other)
        slope = plus(times(self.slope, other.value), times(other.slope, self.value))
        return Dual(self.value * other.value, slope)

    __radd__, __rmul__ = __add__, __mul__


def dual(a: Any) -> Dual:
    return a if isinstance(a, Dual) else Dual(a)


def plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def times(a: Any, b: Any) -> Any:
    return None if a is None else a * b


def sine_and_cosine(lib: Any, a: Dual) -> tuple[Dual, Dual]:
    sine, cosine = lib.sin(a.value), lib.cos(a.value)
    return Dual(sine, times(a.slope, cosine)), Dual(cosine, times(a.slope, -sine))


def speeds(lib: Any, x: Sequence[Dual], u: Sequence[Dual]) -> list[Dual]:
    """The derivative in time of place (2), heading and speed, by steering and acceleration."""
    sine, cosine = sine_and_cosine(lib, x[2])
    steer, steer_cosine = sine_and_cosine(lib, u[0])
    inverse = 1.0 / steer_cosine.value
    tangent = steer * Dual(inverse, times(steer_cosine.slope, -inverse * inverse))
    return [x[3] * cosine, x[3] * sine, x[3] * tangent * (1 / WHEELBASE), u[1] + x[3] * -0.05]


def step(lib: Any, x: Sequence[Dual], u: Sequence[Dual]) -> list[Dual]:
    """The state after one stage: Runge and Kutta's fourth order."""

    def moved(k: Sequence[Dual], by: float) -> list[Dual]:
        return [a + b * by for a, b in zip(x, k)]

    k1 = speeds(lib, x, u)
    k2 = speeds(lib, moved(k1, STEP / 2), u)
    k3 = speeds(lib, moved(k2, STEP / 2), u)
    k4 = speeds(lib, moved(k3, STEP), u)
    return [
        a + (p + (q + r) * 2.0 + s) * (STEP / 6) for a, p, q, r, s in zip(x, k1, k2, k3, k4)
    ]  # fmt: skip


def problem(
    lib: Any, x: Any, target: Any, weights: Any, u: Any, start: Any, dx: Any, du: Any
) -> list[Any]:
    """cost (), equalities [4, n+1], inequalities [2, n], entries [m, n] of the Jacobian of one
    stage's end, and the product [4, n] of that Jacobian with (dx, du).

    x, dx: [4, n+1]; u, du: [2, n]; start: [4]; target: [2, n+1]; weights: [4].
    """
    off = x[:2] - target
    cost = (
        (off * off).sum() * weights[0] + (x[3] * x[3]).sum() * weights[1]
        + (u[0] * u[0]).sum() * weights[2] + (u[1] * u[1]).sum() * weights[3]
    )  # fmt: skip
    rows = [x[i, :-1] for i in range(STATES)] + [u[i] for i in range(CONTROLS)]
    ends = step(lib, *parted([Dual(r) for r in rows]))
    equal = [lib.stack([x[i, 0] - start[i] for i in range(STATES)]).reshape(STATES, 1)]
    equal.append(x[:, 1:] - lib.stack([e.value for e in ends]))
    inequal = lib.stack([off[0, 1:] * off[0, 1:] + off[1, 1:] * off[1, 1:], u[0] * u[0]])
    entries = [e.slope for column in columns(lib, rows) for e in column if e.slope is not None]
    ones = rows[0] * 0.0 + 1.0
    directions = [dx[i, :-1] for i in range(STATES)] + [du[i] for i in range(CONTROLS)]
    product = step(lib, *parted([Dual(r, d) for r, d in zip(rows, directions)]))
    return [
        cost, lib.concatenate(equal, 1), inequal - WIDTH,
        lib.stack([e * ones if isinstance(e, float) else e for e in entries]),
        lib.stack([p.slope for p in product]),
    ]  # fmt: skip


def columns(lib: Any, rows: Sequence[Any]) -> list[list[Dual]]:
    """A stage's end by each of its inputs."""
    seeds = [[1.0 if i == j else None for i in range(len(rows))] for j in range(len(rows))]
    return [step(lib, *parted([Dual(r, s) for r, s in zip(rows, seed)])) for seed in seeds]


def parted(duals: list[Dual]) -> tuple[list[Dual], list[Dual]]:
    return duals[:STATES], duals[STATES:]


class Graphs:
    """The functions of NumPy that `problem` uses, on UOps."""

    @staticmethod
    def sin(a: uopc.UOp) -> uopc.UOp:
        return a.sin()

    @staticmethod
    def cos(a: uopc.UOp) -> uopc.UOp:
        return a.cos()

    @staticmethod
    def stack(parts: Sequence[uopc.UOp]) -> uopc.UOp:
        return uopc.stack(*parts)

    @staticmethod
    def concatenate(parts: Sequence[uopc.UOp], axis: int) -> uopc.UOp:
        return uopc.cat(*parts, axis=axis)


def shapes(stages: int) -> list[tuple[int, ...]]:
    states, controls = (STATES, stages + 1), (CONTROLS, stages)
    return [states, (2, stages + 1), (4,), controls, (STATES,), states, controls]


def outputs(stages: int) -> tuple[uopc.UOp, ...]:
    """The values that the solver asks for, of params in the order of NAMES."""
    params = [uopc.param(n, s, uopc.dtypes.float64) for n, s in zip(NAMES, shapes(stages))]
    return tuple(problem(Graphs, *params))


def graph() -> uopc.UOp:
    """The entries of the Jacobian alone, for `uopc dump examples/control.py`."""
    return outputs(STAGES)[3]


def arrays(stages: int, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.uniform(-0.5, 0.5, s) for s in shapes(stages)]


def job(seed: int) -> tuple[Any, tuple[np.ndarray, ...], Callable[[], Any]]:
    """The graphs, their arguments, and the same by NumPy."""
    given = tuple(arrays(STAGES, seed))
    return outputs(STAGES), given, lambda: problem(np, *given)


def jacobian_by_complex_steps(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """A stage's end by its inputs: [inputs, 4, n], with no dual numbers."""
    rows = [*x[:, :-1], *u]
    found = []
    for j in range(len(rows)):
        moved = [Dual(r + 1e-30j * (i == j)) for i, r in enumerate(rows)]
        found.append(np.stack([e.value.imag / 1e-30 for e in step(np, *parted(moved))]))
    return np.stack(found)


def differences(found: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> list[float]:
    """The distance of each result from NumPy's, and of the Jacobian from complex steps."""
    errors = [float(np.abs(a - b).max()) for a, b in zip(found, problem(np, *given), strict=True)]
    x, _, _, u, *_ = given
    exact = jacobian_by_complex_steps(x, u)
    made = columns(np, [*x[:, :-1], *u])
    present = np.array([[end.slope is not None for end in column] for column in made])
    left_out = float(np.abs(exact[~present]).max())
    return [*errors, float(np.abs(found[3] - exact[present]).max()), left_out]


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when both agree."""
    from timing import line, seconds, side_by_side, verdict

    stages = int(arguments[0]) if arguments else STAGES
    asked, given = outputs(stages), arrays(stages, seed=0)
    made: list[uopc.Program] = []
    with uopc.options(cache_dir="", programs=0):
        took = seconds(lambda: made.append(uopc.compile(asked, name="control")))
    (program,) = made
    errors = differences(program(*given), given)
    print(f"{stages} stages: {asked[3].shape[0]} entries each; compiled in {took:.2f} s")
    print(f"largest differences: {', '.join(f'{e:.1e}' for e in errors)}")
    ours, theirs = side_by_side(lambda: program(*given), lambda: problem(np, *given), times=20)
    print(line(ours, "NumPy", theirs))
    return verdict("control", max(errors) <= 1e-12)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
