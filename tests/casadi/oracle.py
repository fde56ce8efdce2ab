"""CasADi as the oracle of lowered Functions: values, structures and Jacobians."""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
import uopc.casadi

TOLERANCE = 1e-12  # relative to 1 + the largest magnitude of a matrix


def check_values(f: Any, *args: Any, tolerance: float = TOLERANCE) -> None:
    """The program of f gives matrices with the structures and values that f gives."""
    given = arguments(f, args)
    wanted = f.call(given)
    got = uopc.casadi.compile(f, threads=1, verify=True)(*given)
    for k, (a, b) in enumerate(zip(got if isinstance(got, tuple) else (got,), wanted)):
        assert a.sparsity() == f.sparsity_out(k), f"{f.name()}: structure of output {k}"
        expect_close(nonzeros(a), nonzeros(b), tolerance, f"{f.name()}: output {k}")


def check_jacobians(f: Any, *args: Any, tolerance: float = TOLERANCE) -> None:
    """The derivatives of each output by each input, against CasADi's."""
    given = arguments(f, args)
    lowered = uopc.casadi.lower(f)
    blocks = f.jacobian().call([*given, *f.call(given)])
    vectors = [nonzeros(a) for a in given]
    for k, (block, (o, i)) in enumerate(zip(blocks, np.ndindex(f.n_out(), f.n_in()))):
        if not (f.nnz_out(o) and f.nnz_in(i)):
            continue
        made = uopc.jacobian(lowered.outputs[o], lowered.inputs[i], format="csc")
        inputs = list(lowered.inputs)
        data = uopc.compile(made.data, inputs=inputs, threads=1, verify=True)(*vectors)
        rows, columns = dense_places(f.sparsity_out(o)), dense_places(f.sparsity_in(i))
        wanted = np.array(block.full())[np.ix_(rows, columns)]
        expect_close(made.todense(data), wanted, tolerance, f"{f.name()}: Jacobian {k}")


def expect_close(got: Any, wanted: Any, tolerance: float, what: str) -> None:
    """Equal up to the tolerance; infinities and NaNs are the same."""
    a, b = np.asarray(got, float), np.asarray(wanted, float)
    assert a.shape == b.shape, f"{what}: {a.shape} for {b.shape}"
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite], what)
    scale = 1 + np.abs(b[finite]).max(initial=0)
    worst = np.abs(a[finite] - b[finite]).max(initial=0)
    assert worst <= tolerance * scale, f"{what}: off by {worst:.2e} of {scale:.2e}"


def arguments(f: Any, args: Any) -> list[Any]:
    """DMs with the structures of the inputs; by default numbers between -2 and 2."""
    import casadi as ca

    random = np.random.default_rng(7)
    if args:
        return [ca.project(ca.DM(a), f.sparsity_in(i)) for i, a in enumerate(args)]
    sizes = [f.nnz_in(i) for i in range(f.n_in())]
    return [ca.DM(f.sparsity_in(i), random.uniform(-2, 2, n)) for i, n in enumerate(sizes)]


def nonzeros(m: Any) -> Any:
    """The nonzeros of a DM as an array."""
    return np.array(m.nonzeros(), float)


def dense_places(s: Any) -> Any:
    """The place of each nonzero in the dense matrix, by columns."""
    rows, columns = s.get_triplet()
    return np.array(rows, int) + np.array(columns, int) * s.size1()
