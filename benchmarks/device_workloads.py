"""The graphs that `benchmarks/devices.py` runs on several devices, with arrays and layouts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import uopc
from uopc import P


class Work(NamedTuple):
    """A graph on a mesh with one axis, its arguments, and how these are cut."""

    outputs: list[uopc.UOp]
    shapes: dict[str, tuple[int, ...]]
    axis: str
    in_specs: dict[str, uopc.PartitionSpec]
    out_spec: Any
    moved: int  # bytes that are combined by all, or go to a neighbour
    combined: bool

    def least(self, p: int) -> int:
        """The fewest bytes that a device of p must send."""
        return 2 * self.moved * (p - 1) // p if self.combined else self.moved

    def wired(self, p: int) -> int:
        """The fewest bytes that all devices send together: the outer ones have one neighbour."""
        return p * self.least(p) if self.combined else (p - 1) * self.moved

    def arrays(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Arguments, the weights of the size that keeps values near 1."""
        rng = np.random.default_rng(seed)
        made = {}
        for name, dims in self.shapes.items():
            scale = dims[0] ** -0.5 if name[0] == "w" else 0.1 if name[0] == "b" else 1.0
            made[name] = (rng.standard_normal(dims) * scale).astype("f4")
        return made


def mlp(batch: int = 512, sizes: tuple[int, ...] = (512, 1024, 1024, 256)) -> Work:
    """Loss and gradients of a network with relu and squared error, its rows cut."""
    shapes = {"x": (batch, sizes[0]), "t": (batch, sizes[-1])}
    for i, pair in enumerate(zip(sizes, sizes[1:])):
        shapes |= {f"w{i}": pair, f"b{i}": pair[1:]}
    params = {n: uopc.param(n, d) for n, d in shapes.items()}
    h, count = params["x"], len(sizes) - 1
    for i in range(count):
        h = h @ params[f"w{i}"] + params[f"b{i}"]
        h = h.relu() if i < count - 1 else h
    loss = ((h - params["t"]) ** 2).sum() * (1.0 / batch)
    weights = [params[n] for n in shapes if n[0] in "wb"]
    grads = uopc.grad(loss, weights)
    moved = 4 * (1 + sum([int(np.prod(w.shape)) for w in weights]))
    rows = {"x": P("data"), "t": P("data")}
    return Work([loss, *grads], shapes, "data", rows, P(), moved, True)


def block(
    batch: int = 4, tokens: int = 256, dim: int = 512, heads: int = 8, hidden: int = 2048
) -> Work:
    """A transformer block whose weights are cut as Megatron's."""
    wide, each = (batch, tokens, dim), dim // heads
    shapes = {"x": wide, "g1": (dim,), "g2": (dim,)}
    shapes |= dict.fromkeys(("wq", "wk", "wv", "wo"), (dim, dim))
    shapes |= {"w1": (dim, hidden), "w2": (hidden, dim)}
    p = {n: uopc.param(n, d) for n, d in shapes.items()}
    n = p["x"].rms_norm(p["g1"])
    q, k, v = [
        (n @ p[w]).reshape(batch, tokens, heads, each).permute(0, 2, 1, 3)
        for w in ("wq", "wk", "wv")
    ]  # fmt: skip
    scores = (q @ k.transpose(-2, -1)) * each**-0.5
    causal = uopc.arange(tokens).reshape(tokens, 1) >= uopc.arange(tokens)
    scores = uopc.where(causal, scores, -1e9)
    o = (scores.softmax(axis=-1) @ v).permute(0, 2, 1, 3).reshape(wide)
    h = p["x"] + o @ p["wo"]
    y = h + (h.rms_norm(p["g2"]) @ p["w1"]).gelu(approximate="tanh") @ p["w2"]
    columns, rows = P(None, "model"), P("model")
    specs = dict.fromkeys(("wq", "wk", "wv", "w1"), columns) | dict.fromkeys(("wo", "w2"), rows)
    return Work([y], shapes, "model", specs, P(), 2 * 4 * batch * tokens * dim, True)


def stencil(n: int = 2048, m: int = 2048, steps: int = 4) -> Work:
    """Steps of the heat equation, rows cut: neighbours exchange one row a step."""
    u = uopc.param("u", (n, m))
    for i in range(steps):
        q = u.pad(((1, 1), (1, 1)))
        u = u + 0.1 * (q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:] - 4 * u)
        u = u.contiguous() if i < steps - 1 else u
    return Work([u], {"u": (n, m)}, "m", {"u": P("m")}, P("m"), 2 * 4 * m * steps, False)


def total(n: int = 1 << 25) -> Work:
    """A sum of squares."""
    x = uopc.param("x", (n,))
    return Work([(x * x).sum()], {"x": (n,)}, "m", {"x": P("m")}, P(), 4, True)


ALL = {"mlp": mlp, "block": block, "stencil": stencil, "sum": total}
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"batch": 32, "sizes": (24, 40, 16)},
    "block": {"batch": 1, "tokens": 16, "dim": 32, "heads": 8, "hidden": 64},
    "stencil": {"n": 40, "m": 24, "steps": 3},
    "sum": {"n": 4096},
}


# ---------------------------------------------------------------- the same in JAX
def _jax_mlp(jax: Any, batch: int = 512, sizes: tuple[int, ...] = (512, 1024, 1024, 256)) -> Any:
    jnp, count = jax.numpy, len(sizes) - 1

    def loss(weights: Any, x: Any, t: Any) -> Any:
        for i in range(count):
            x = x @ weights[f"w{i}"] + weights[f"b{i}"]
            x = jnp.maximum(x, 0) if i < count - 1 else x
        return ((x - t) ** 2).sum() / batch

    return lambda x, t, **weights: jax.value_and_grad(loss)(weights, x, t)


def _jax_block(
    jax: Any, batch: int = 4, tokens: int = 256, dim: int = 512, heads: int = 8, hidden: int = 2048
) -> Any:
    jnp = jax.numpy

    def norm(x: Any, g: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g

    def split(x: Any) -> Any:
        return x.reshape(batch, tokens, heads, dim // heads).transpose(0, 2, 1, 3)

    def f(x: Any, g1: Any, g2: Any, wq: Any, wk: Any, wv: Any, wo: Any, w1: Any, w2: Any) -> Any:
        n = norm(x, g1)
        scores = split(n @ wq) @ split(n @ wk).swapaxes(-2, -1) * (dim // heads) ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -1e9)
        o = (jax.nn.softmax(scores, -1) @ split(n @ wv)).transpose(0, 2, 1, 3)
        h = x + o.reshape(batch, tokens, dim) @ wo
        return h + jax.nn.gelu(norm(h, g2) @ w1, approximate=True) @ w2

    return f


def _jax_stencil(jax: Any, n: int = 2048, m: int = 2048, steps: int = 4) -> Any:
    def f(u: Any) -> Any:
        for _ in range(steps):
            q = jax.numpy.pad(u, 1)
            around = q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:]
            u = u + 0.1 * (around - 4 * u)
        return u

    return f


def _jax_total(jax: Any, n: int = 1 << 25) -> Any:
    return lambda x: (x * x).sum()


JAX = {"mlp": _jax_mlp, "block": _jax_block, "stencil": _jax_stencil, "sum": _jax_total}
