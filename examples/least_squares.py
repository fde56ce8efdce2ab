"""The way of a robot: nonlinear least squares with an exact sparse Jacobian.

    python examples/least_squares.py [POSES]

A robot drives a circle. It measures how far it has gone, how much it has turned, and how far some
posts are; all with errors. The places of the robot and of the posts are found together. Each
measurement depends on a few unknowns, so nearly all of the Jacobian is zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg

import uopc
import uopc.numpy as unp

POSES, POSTS, SEEN, ERROR = 60, 20, 4, 0.02  # a pose sees so many of the posts; size of errors
TOLERANCE, MOST_STEPS = 1e-7, 50


def drive(poses: int) -> dict[str, Any]:
    """The true unknowns, the posts that each pose sees, and the measurements."""
    random = np.random.default_rng(0)
    angle = np.linspace(0, 2 * np.pi, poses)
    path = np.stack([5 * np.cos(angle), 5 * np.sin(angle), angle + np.pi / 2], -1)
    posts = random.uniform(-8, 8, (POSTS, 2))
    seen = np.stack([random.permutation(POSTS)[:SEEN] for _ in range(poses)])
    true = np.concatenate([path.reshape(-1), posts.reshape(-1)])
    clean = np.asarray(measured(true, seen))
    return {
        "true": true,
        "seen": seen,
        "measured": clean + ERROR * random.standard_normal(clean.size),
    }


def measured(unknowns: Any, seen: Any) -> Any:
    """The measurements that a vector of poses (x, y, heading) and posts (x, y) would give."""
    poses = unp.reshape(unknowns[: 3 * len(seen)], (len(seen), 3))
    posts = unp.reshape(unknowns[3 * len(seen) :], (POSTS, 2))
    gone = poses[1:, :2] - poses[:-1, :2]
    heading = poses[:-1, 2]
    ahead = gone[:, 0] * unp.cos(heading) + gone[:, 1] * unp.sin(heading)
    aside = gone[:, 1] * unp.cos(heading) - gone[:, 0] * unp.sin(heading)
    apart = poses[:, None, :2] - posts[seen]
    far = unp.sqrt(unp.sum(apart * apart, axis=-1))
    parts = [poses[0], ahead, aside, poses[1:, 2] - heading, unp.reshape(far, (-1,))]
    return unp.concatenate(parts)


def residual(unknowns: Any, drove: dict[str, Any]) -> Any:
    """The differences from the measurements, in errors."""
    return (measured(unknowns, drove["seen"]) - drove["measured"]) / ERROR


def solve(f: Callable[[Any], Any], jacobian: Callable[[Any], Any], u: Any) -> tuple[Any, int]:
    """The least squares, and the steps, by the method of Levenberg and Marquardt."""
    rest, damping = f(u), 1.0
    for step in range(MOST_STEPS):
        matrix = jacobian(u)
        slope, normal = matrix.T @ rest, (matrix.T @ matrix).tocsc()
        if np.abs(slope).max() < TOLERANCE:
            return u, step
        while True:
            damped = normal + damping * scipy.sparse.diags_array(normal.diagonal())
            new = u - scipy.sparse.linalg.spsolve(damped.tocsc(), slope)
            ahead = f(new)
            if ahead @ ahead <= rest @ rest:
                break
            damping *= 4
        u, rest, damping = new, ahead, damping / 10
    raise ArithmeticError(f"not solved in {MOST_STEPS} steps")


def reference(drove: dict[str, Any], start: Any) -> Any:
    """The unknowns by SciPy, with differences in place of derivatives."""

    def f(u: Any) -> Any:
        return np.asarray(residual(u, drove))

    found = scipy.optimize.least_squares(f, start, xtol=1e-12, ftol=1e-12, gtol=1e-9)
    return found.x


def graph() -> uopc.UOp:
    """The graph that `uopc dump` shows: the entries of the Jacobian."""
    drove = drive(POSES)
    u = uopc.param("u", drove["true"].shape, uopc.dtypes.float64)
    entries: uopc.UOp = uopc.jacobian(lambda v: residual(v, drove), format="csr")(u).data
    return entries


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when SciPy finds the same."""
    from timing import line, side_by_side, verdict

    drove = drive(int(arguments[0]) if arguments else POSES)
    start = drove["true"] + 0.05 * np.random.default_rng(1).standard_normal(drove["true"].size)
    f = uopc.jit(lambda u: residual(u, drove))
    sparse = uopc.jit(uopc.jacobian(lambda u: residual(u, drove), format="csr"))
    dense = uopc.jit(uopc.jacfwd(lambda u: residual(u, drove)))
    found, steps = solve(f, lambda u: sparse(u).scipy(), start)
    error = float(np.abs(found - reference(drove, start)).max())
    print(f"{sparse(start)}: {steps} steps, {error:.1e} from SciPy's")
    ours, theirs = side_by_side(lambda: sparse(start), lambda: dense(start), times=5)
    print(line(ours, "dense Jacobian", theirs))
    return verdict("least_squares", error <= 1e-5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
