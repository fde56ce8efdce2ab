"""Results of JAX's `shard_map` on several CPU devices of one process: see test_shard_map.py.

`python jax_shard_map.py FILE` runs each case and writes the results, by name, to FILE.npz.
"""

from __future__ import annotations

import sys

import numpy as np

RING = [(i, (i + 1) % 4) for i in range(4)]


class Uopc:
    """The names of the cases, as uopc has them."""

    def __init__(self):
        import uopc

        self.P, self.lib = uopc.P, uopc
        self.mesh = {"m": uopc.make_mesh((4,), ("m",)), "ab": uopc.make_mesh((2, 2), ("a", "b"))}

    def shard_map(self, f, mesh, ins, outs):
        return self.lib.shard_map(f, self.mesh[mesh], ins, outs)


class Jax:
    """The same of JAX."""

    def __init__(self):
        import jax
        from jax.sharding import PartitionSpec

        jax.config.update("jax_enable_x64", True)
        devices = np.array(jax.devices("cpu")[:4])
        self.P, self.jax, self.lib = PartitionSpec, jax, jax.lax
        self.mesh = {
            "m": jax.sharding.Mesh(devices, ("m",)),
            "ab": jax.sharding.Mesh(devices.reshape(2, 2), ("a", "b")),
        }

    def shard_map(self, f, mesh, ins, outs):
        return self.jax.shard_map(
            f, mesh=self.mesh[mesh], in_specs=ins, out_specs=outs, check_vma=False
        )


def cases(o):
    """By name: the function, the mesh, the specs, and the shapes and dtypes of the arguments."""
    p, lib = o.P, o.lib
    both = ("a", "b")
    return {
        "sum": (lambda x: lib.psum(x, "m"), "m", p("m"), p(), ["8,3 f4"]),
        "sum of ints": (lambda x: lib.psum(x, "m"), "m", p("m"), p(), ["8,3 i1"]),
        "sum of bools": (lambda x: lib.psum(x, "m"), "m", p("m"), p(), ["8,3 ?"]),
        "sum of a number": (lambda x: x * lib.psum(1, "m"), "m", p("m"), p("m"), ["8,3 f8"]),
        "sum of what all have": (lambda x: lib.psum(x, "m"), "m", p(), p(), ["3 f4"]),
        "maximum": (lambda x: lib.pmax(x, "m"), "m", p(None, "m"), p(), ["3,8 f4"]),
        "minimum": (lambda x: lib.pmin(x.min(), both), "ab", p("a", "b"), p(), ["4,8 i4"]),
        "mean": (lambda x: lib.pmean(x, "b"), "ab", p("a", "b"), p("a"), ["4,8 f8"]),
        "sums of a tree": (
            lambda t: lib.psum(t, "m"), "m", ({"u": p("m"), "v": p()},), {"u": p(), "v": p()},
            [{"u": "4 f4", "v": "3 i4"}],
        ),
        "gather": (lambda x: lib.all_gather(x, "m"), "m", p("m"), p(), ["8,3 f4"]),
        "gather at 1": (lambda x: lib.all_gather(x, "m", axis=1), "m", p("m"), p(), ["8,3 f4"]),
        "gather tiled": (
            lambda x: lib.all_gather(x, "m", axis=1, tiled=True), "m", p("m"), p(), ["8,3 f4"],
        ),
        "gather over two": (
            lambda x: lib.all_gather(x, both, tiled=True), "ab", p(both), p(), ["8,3 f4"],
        ),
        "scatter": (
            lambda x: lib.psum_scatter(x, "m"), "m", p(), p("m"), ["4,8 f4"],
        ),
        "scatter tiled": (
            lambda x: lib.psum_scatter(x, "m", scatter_dimension=1, tiled=True), "m", p("m"),
            p(None, "m"), ["8,12 f8"],
        ),
        "scatter over two": (
            lambda x: lib.psum_scatter(x, both, tiled=True), "ab", p(None, "b"), p(both),
            ["8,4 f8"],
        ),
        "around": (
            lambda x: lib.ppermute(x, "m", [(t, s) for s, t in RING]), "m", p("m"), p("m"),
            ["8,3 f4"],
        ),
        "some of a ring": (
            lambda x: lib.ppermute(x, "m", [(3, 0), (1, 2)]), "m", p("m"), p("m"), ["8,3 f4"],
        ),
        "two turns": (
            lambda x: lib.ppermute(x, "m", [(0, 2), (2, 0), (3, 1)]), "m",
            p("m"), p("m"), ["8,3 i4"],
        ),
        "turn": (
            lambda x: lib.all_to_all(x, "m", 1, 0), "m", p("m"), p("m"), ["8,4,3 f4"],
        ),
        "turn tiled": (
            lambda x: lib.all_to_all(x, "m", 1, 0, tiled=True), "m", p("m"), p(None, "m"),
            ["8,12 i4"],
        ),
        "turn over two": (
            lambda x: lib.all_to_all(x, both, 0, 1, tiled=True), "ab", p(None, both), p(both),
            ["8,4 f4"],
        ),
        "ring": (lambda x: lib.ppermute(x, "m", RING), "m", p("m"), p("m"), ["8,3 f4"]),
        "some": (
            lambda x: lib.ppermute(x, "m", [(0, 2), (3, 1), (2, 3)]), "m", p("m"), p("m"),
            ["4,3 f4"],
        ),
        "shift": (
            lambda x: lib.ppermute(x, "a", [(1, 0)]), "ab", p("a", "b"), p("a", "b"), ["4,4 f4"],
        ),
        "place": (
            lambda x: lib.axis_index("b").astype(np.float32) + x, "ab", p(both), p(both), ["8 f4"],
        ),
        "place on two": (
            lambda x: lib.axis_index(both) + x, "ab", p(("b", "a")), p(("b", "a")), ["8 i4"],
        ),
        "product": (
            lambda x, w: lib.psum(x @ w, "m"), "m", (p(None, "m"), p("m")), p(),
            ["6,8 f4", "8,5 f4"],
        ),
        "softmax": (
            lambda x: x / lib.psum(x.sum(), both), "ab", p("a", "b"), p("a", "b"), ["4,8 f8"],
        ),
        "sum of a gather": (
            lambda x: lib.all_gather(x, "m").sum(0) + lib.psum(x, "m"), "m", p("m"), p(),
            ["8,3 f8"],
        ),
        "loop": (
            lambda w, x: lib.fori_loop(
                0, 4, lambda i, w: w - 0.1 * lib.psum(x.T @ (x @ w), "m"), w
            ), "m", (p(), p("m")), p(), ["3 f8", "8,3 f8"],
        ),
        "scan": (
            lambda c, x: lib.scan(
                lambda c, r: (
                    lib.ppermute(c, "m", RING) + lib.psum(r, "m"), lib.psum(c.sum(), "m"),
                ), c, x,
            ), "m", (p("m"), p(None, "m")), (p("m"), p()), ["8 f8", "5,8 f8"],
        ),
        "halo": (
            lambda x: lib.ppermute(x[-1:], "m", RING) + x[:1], "m", p("m"), p("m"), ["8,3 f4"],
        ),
        "mixed": (
            lambda x, y: (x * 2, lib.psum(y, "a") + x.sum()), "ab", (p(), p("a", "b")),
            (p(), p(None, "b")), ["3 f4", "4,4 f4"],
        ),
        "repeated": (lambda x: x + 1, "m", p(), p("m"), ["3 f4"]),
    }  # fmt: skip


def made(spec, rng):
    """An argument by the text of its shape and dtype."""
    if isinstance(spec, dict):
        return {k: made(v, rng) for k, v in spec.items()}
    dims, kind = spec.split()
    shape = [int(d) for d in dims.split(",")]
    return rng.integers(0, 2 if kind == "?" else 6, shape).astype(kind)


def results(o):
    """By name, the arrays that each case gives."""
    found = {}
    for name, (f, mesh, ins, outs, specs) in cases(o).items():
        rng = np.random.default_rng(len(name))
        got = o.shard_map(f, mesh, ins, outs)(*[made(s, rng) for s in specs])
        got = list(got.values()) if isinstance(got, dict) else got
        for i, a in enumerate(got if isinstance(got, (tuple, list)) else [got]):
            found[f"{name} {i}"] = np.asarray(a)
    return found


if __name__ == "__main__":
    np.savez(sys.argv[1], **results(Jax()))
