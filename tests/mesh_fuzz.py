"""Random graphs on random meshes in random layouts, against one device.

    python tests/mesh_fuzz.py SEED COUNT           # a campaign; it prints the seed of each finding
    python tests/mesh_fuzz.py SEED COUNT symbolic  # sizes are variables, each with several values
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

import uopc
from tests import meshes
from uopc import P, dtypes, make_mesh
from uopc.ir.core import bounds, shapes
from uopc.ir.index import closed

_SIZES = (1, 2, 3, 4, 5, 6, 8, 12)
_UNARY = (
    lambda v: v * 2 - 1, lambda v: v.relu(), lambda v: -v, lambda v: v.abs() + 1,
    lambda v: v.contiguous(), lambda v: v.gelu(), lambda v: v.cast(dtypes.float64).cast(v.dtype),
)  # fmt: skip
_BINARY = (
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a.maximum(b),
    lambda a, b: (a < b).where(a, b * 2), lambda a, b: a.minimum(b),
)  # fmt: skip
_REDUCES = ("sum", "max", "min", "mean")


class Case:
    """A graph, its arguments, a mesh and layouts."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 3))
        names = ("a", "b")[:count]
        self.mesh = make_mesh([int(rng.integers(1, 5)) for _ in names], names)
        self.arrays, self.values, self.in_specs = {}, [], {}
        for name in ("x", "y"):
            dims = tuple(self.size() for _ in range(rng.integers(1, 4)))
            self.arrays[name] = self.array(-3, 4, dims)
            self.values.append(uopc.param(name, dims))
            if rng.random() < 0.8:
                self.in_specs[name] = self.spec(len(dims))
        for _ in range(rng.integers(2, 9)):
            made = self.step(self.values[int(rng.integers(len(self.values)))])
            if made is not None and 0 < most(made) <= 4096:
                self.values.append(made)
        last = self.values[-1]
        self.outputs = [last, self.values[int(rng.integers(len(self.values)))]]
        self.out_specs = None
        if rng.random() < 0.5:
            self.out_specs = [self.spec(o.ndim) for o in self.outputs]

    def size(self):
        return int(self.rng.choice(_SIZES))

    def array(self, low, high, dims):
        return self.rng.integers(low, high, dims).astype("f4")

    def spec(self, rank):
        entries = [None] * rank
        for name in self.mesh.axis_names:
            if rank and self.rng.random() < 0.7:
                at = int(self.rng.integers(rank))
                entries[at] = name if entries[at] is None else (entries[at], name)
        return P(*[e if not isinstance(e, tuple) or len(e) < 3 else None for e in entries])

    def axis(self, v):
        return int(self.rng.integers(v.ndim))

    def step(self, v):
        rng, kind = self.rng, int(self.rng.integers(14))
        if kind == 0:
            return _UNARY[int(rng.integers(len(_UNARY)))](v)
        if kind in (1, 2):
            other = self.values[int(rng.integers(len(self.values)))]
            try:
                shapes.broadcast((v.shape, other.shape))
            except uopc.UserError:
                return None
            return _BINARY[int(rng.integers(len(_BINARY)))](v, other)
        if kind == 3:
            return v.shard(self.spec(v.ndim))
        if not v.ndim:
            return None
        axis = self.axis(v)
        if kind == 4:
            return getattr(v, str(rng.choice(_REDUCES)))(axis=axis, keepdims=bool(rng.integers(2)))
        if kind == 5:
            return v.permute(tuple(int(i) for i in rng.permutation(v.ndim)))
        if kind == 6:
            return v.flip(axis)
        if kind == 7:
            return v.pad([(int(rng.integers(3)), int(rng.integers(3))) for _ in range(v.ndim)])
        if kind == 8 and not is_fixed(v.shape):
            return self.window(v)
        if kind == 8:
            bounds = []
            for n in v.shape:
                begin = int(rng.integers(n))
                bounds.append((begin, int(rng.integers(begin + 1, n + 1))))
            return v.shrink(bounds)
        if kind == 9:
            return self.reshaped(v)
        if kind == 10:
            return v.reshape(*v.shape, 1).expand(*v.shape, int(rng.choice((2, 3, 4))))
        if kind == 11:
            other = v * 3 if rng.integers(2) else v[::-1]
            return v.cat(other, axis=axis) if rng.integers(2) else v.stack(other)
        if kind == 12 and not is_fixed((v.shape[axis],)):
            return None
        if kind == 12:
            index = uopc.constant(rng.integers(-v.shape[axis], v.shape[axis], 5).astype("i4"))
            return v.take(index.shard(self.spec(1)), axis=axis)
        return self.product(v)

    def window(self, v):
        """A part of a larger array: of a symbolic size, which may be 0, no part is known."""
        widths = [(int(self.rng.integers(4)), int(self.rng.integers(4))) for _ in v.shape]
        begins = [int(self.rng.integers(a + b + 1)) for a, b in widths]
        sizes = [n + int(self.rng.integers(a + b - at + 1))
                 for n, (a, b), at in zip(v.shape, widths, begins)]  # fmt: skip
        return v.pad(widths).shrink([(at, at + n) for at, n in zip(begins, sizes)])

    def in_specs_used(self):
        return self._used(self.in_specs)

    def arrays_used(self):
        return self._used(self.arrays)

    def _used(self, given):
        """Those of the arguments that the outputs read."""
        nodes = [u for o in self.outputs for u in o.toposort()]
        names = {u.arg.name for u in nodes if u.op is uopc.Ops.PARAM}
        return {n: v for n, v in given.items() if n in names}

    def reshaped(self, v):
        dims = list(v.shape)
        at = self.axis(v)
        if self.rng.integers(2) and at + 1 < v.ndim:
            return v.reshape(*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :])
        for f in (2, 3, 4):
            if is_fixed((dims[at],)) and dims[at] % f == 0:
                return v.reshape(*dims[:at], dims[at] // f, f, *dims[at + 1 :])
        return v.reshape(-1)

    def product(self, v):
        if v.ndim != 2:
            return None
        name = f"w{len(self.arrays)}"
        dims = (v.shape[1], self.size())
        self.arrays[name] = self.array(-2, 3, dims)
        self.in_specs[name] = self.spec(2)
        return v @ uopc.param(name, dims)


class SymbolicCase(Case):
    """The same, where sizes are variables, their multiples and sums; `variables`: values of these,
    one set after the other. What an argument is given depends on them."""

    def __init__(self, seed):
        own = np.random.default_rng((seed, 1))
        n = uopc.variable("n", int(own.choice((0, 0, 1, 5))), 9)
        m = uopc.variable("m", int(own.choice((0, 0, 1, 5))), 9)
        self.pool = (n, n, n, m, m, 2 * n, n + 1, 4 * m, 1, 3, 8)
        drawn = [tuple(int(own.integers(v.arg.low, 10)) for v in (n, m)) for _ in range(3)]
        drawn.append((n.arg.low, m.arg.low))
        self.variables = [{"n": a, "m": b} for a, b in drawn]
        super().__init__(seed)

    def size(self):
        return self.pool[int(self.rng.integers(len(self.pool)))]

    def array(self, low, high, dims):
        seed = int(self.rng.integers(1 << 30))

        def made(variables):
            numbers = [n if isinstance(n, int) else closed.value(closed.instructions(n), variables)
                       for n in dims]  # fmt: skip
            return np.random.default_rng(seed).integers(low, high, numbers).astype("f4")

        return made


def most(v):
    """The elements that a value may have."""
    return int(np.prod([bounds.max_dim(n) for n in v.shape], dtype=object))


def is_fixed(dims):
    return all(isinstance(n, int) for n in dims)


def run(seed):
    """Check a case; returns its exchanges."""
    case = Case(seed)
    given = case.in_specs_used()
    return meshes.check(case.outputs, case.arrays, case.mesh, given, case.out_specs, 1e-4)


def run_symbolic(seed):
    """Check a case with each set of sizes; returns its exchanges."""
    case = SymbolicCase(seed)
    given, found = case.in_specs_used(), []
    for variables in case.variables:
        arrays = {n: made(variables) for n, made in case.arrays_used().items()}
        found = meshes.check(
            case.outputs, arrays, case.mesh, given, case.out_specs, 1e-4, variables=variables
        )
    return found


def main(first, count, checked=run):
    found, wrong = Counter(), []
    for seed in range(first, first + count):
        try:
            found.update(u.op.name for u in checked(seed))
        except Exception as error:
            wrong.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    total = sum(found.values())
    print(f"{count} graphs, {total} exchanges {dict(found)}, {len(wrong)} wrong: {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    kind = run_symbolic if sys.argv[3:] == ["symbolic"] else run
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), kind))
