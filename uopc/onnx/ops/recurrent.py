"""LSTM, GRU and RNN: steps over time as a loop in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported
from uopc.onnx.node import Node, dims
from uopc.onnx.ops.elementwise import ACTIVATIONS
from uopc.onnx.ops.quantize import dynamic_product
from uopc.onnx.registry import MICROSOFT, op
from uopc.tensor import table

Activation = Callable[[UOp], UOp]
Step = Callable[..., tuple[UOp, ...]]
Product = Callable[[UOp], UOp]  # with the weights of a direction


# Activations by their names, which are the same in all kinds of letters.
_PLAIN: dict[str, Activation] = {
    name.lower(): table.operator(name)
    for name in ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")
}
_SCALED = {name.lower(): row for name, row in ACTIVATIONS.items()} | {
    "affine": (lambda x, a, b: x * a + b, 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: (x * b).tanh() * a, 1.0, 1.0),
}


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    if name.lower() in _PLAIN:
        return _PLAIN[name.lower()]
    if name.lower() not in _SCALED:
        raise Unsupported(f"the activation {name} is not supported")
    f, a, b = _SCALED[name.lower()]
    return lambda x: f(x, a if alpha is None else alpha, b if beta is None else beta)


def _functions(n: Node, defaults: list[str], directions: int) -> list[list[Activation]]:
    names = n.attr("activations", defaults * directions)
    alphas, betas = list(n.attr("activation_alpha", [])), list(n.attr("activation_beta", []))
    alphas += [None] * (len(names) - len(alphas))
    betas += [None] * (len(names) - len(betas))
    made = [_activation(*given) for given in zip(names, alphas, betas)]
    each = len(defaults)
    return [made[i * each : (i + 1) * each] for i in range(directions)]


def _clipped(n: Node, x: UOp) -> UOp:
    most = n.attr("clip", None)
    return x if most is None else x.clip(-most, most)


def _plain(n: Node) -> tuple[Callable[[int], Product], Callable[[int], Product]]:
    """The products with the weights of an input and of a state, for each direction."""

    def product(weights: UOp) -> Callable[[int], Product]:
        return lambda d: lambda x: x.matmul(weights[d].transpose())

    return product(n.x(1)), product(n.x(2))


def _recurrent(
    n: Node, gates: int, defaults: list[str], make: Callable[..., Step], states: int,
    of_input: Callable[[int], Product], of_state: Callable[[int], Any],
) -> Any:  # fmt: skip
    """Run all directions; `make(functions, of_state(direction), bias, peephole, size)` makes each
    step."""
    x = n.x(0)
    batch_first = n.attr("layout", 0)
    if batch_first:
        x = x.permute(1, 0, 2)
    time, batch, _ = dims(x)
    size = n.attr("hidden_size", dims(n.x(2))[2])
    direction = n.attr("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    bias, lengths, peep = n.maybe(3), n.maybe(4), n.maybe(7)
    functions = _functions(n, defaults, directions)

    def first(k: int, d: int) -> UOp:
        start = n.maybe(5 + k)
        if start is None:
            return uopc.full((batch, size), 0.0, x.dtype)
        return start[:, d] if batch_first else start[d]

    outputs, finals = [], []
    for d in range(directions):
        back = direction == "reverse" or d == 1
        before = of_input(d)(_turned(x, lengths) if back else x)
        parts = None  # what is added to a row of x, and to a row of h
        if bias is not None:
            parts = bias[d, : gates * size], bias[d, gates * size :]
            before = before + parts[0]
        step = make(functions[d], of_state(d), parts, None if peep is None else peep[d], size)
        start = tuple([first(k, d) for k in range(states)])
        last, rows = _run(before, start, step, lengths, time)
        outputs.append(_turned(rows, lengths) if back else rows)
        finals.append(last)
    y = uopc.stack(*outputs, axis=1)
    ends = [uopc.stack(*[f[k] for f in finals], axis=0) for k in range(states)]
    if batch_first:
        y, ends = y.permute(2, 0, 1, 3), [e.permute(1, 0, 2) for e in ends]
    return y, *ends


def _turned(x: UOp, lengths: UOp | None) -> UOp:
    """Reverse each batch in time, up to its length if there are lengths."""
    if lengths is None:
        return x.flip(0)
    steps = uopc.arange(dims(x)[0], dtype=dtypes.int64).unsqueeze(1)
    until = lengths.cast(dtypes.int64).unsqueeze(0)
    at = uopc.where(steps < until, until - 1 - steps, steps)
    return x.gather(0, at.unsqueeze(2).expand(dims(x)))


def _run(
    before: UOp, first: tuple[UOp, ...], step: Step, lengths: UOp | None, time: Any
) -> tuple[tuple[UOp, ...], UOp]:
    steps = uopc.arange(time, dtype=dtypes.int64)

    def body(carry: Any, given: Any) -> Any:
        row, t = given
        new = step(row, *carry)
        if lengths is None:
            return new, new[0]
        inside = (t < lengths.cast(dtypes.int64)).unsqueeze(1)
        kept = tuple([uopc.where(inside, a, b) for a, b in zip(new, carry)])
        return kept, uopc.where(inside, new[0], 0.0)

    last, all_ = uopc.scan(body, first, (before, steps))
    return last, all_


op("LSTM")(lambda n: _lstm(n, *_plain(n)))
op("DynamicQuantizeLSTM", domain=MICROSOFT)(lambda n: _lstm(n, _codes(n, 1, 8), _codes(n, 2, 10)))


def _codes(n: Node, weights: int, scale: int) -> Callable[[int], Product]:
    """The products of vectors that are quantised when the program runs, for each direction."""
    w, scales, zeros = n.x(weights), n.x(scale), n.maybe(scale + 1)
    return lambda d: lambda x: dynamic_product(
        x, w[d], scales[d], None if zeros is None else zeros[d]
    )


def _lstm(
    n: Node, of_input: Callable[[int], Product], of_state: Callable[[int], Product]
) -> Any:  # fmt: skip
    """Gates i, o, f, c; peepholes, clipping and coupled input and forget gates if asked."""

    def make(f: list[Activation], r: Product, bias: Any, peep: UOp | None, size: int) -> Step:
        def step(row: UOp, h: UOp, c: UOp) -> tuple[UOp, ...]:
            z = row + r(h)
            z = z if bias is None else z + bias[1]
            i, o, forget, cell = (z[:, k * size : (k + 1) * size] for k in range(4))
            if peep is not None:
                i, forget = i + peep[:size] * c, forget + peep[2 * size :] * c
            forget = f[0](_clipped(n, forget))
            i = 1 - forget if n.attr("input_forget", 0) else f[0](_clipped(n, i))
            c = forget * c + i * f[1](_clipped(n, cell))
            o = o if peep is None else o + peep[size : 2 * size] * c
            return f[0](_clipped(n, o)) * f[2](c), c

        return step

    return _recurrent(n, 4, ["Sigmoid", "Tanh", "Tanh"], make, 2, of_input, of_state)


@op("GRU")
def gru(n: Node) -> Any:
    """Gates z, r, h; `linear_before_reset` says where the reset gate acts."""
    after = n.attr("linear_before_reset", 0)

    def make(f: list[Activation], r: UOp, bias: Any, peep: UOp | None, size: int) -> Step:
        def step(row: UOp, h: UOp) -> tuple[UOp, ...]:
            own = [r[k * size : (k + 1) * size].transpose() for k in range(3)]
            extra = [0.0 if bias is None else bias[1][k * size : (k + 1) * size] for k in range(3)]
            z = f[0](_clipped(n, row[:, :size] + h.matmul(own[0]) + extra[0]))
            s = f[0](_clipped(n, row[:, size : 2 * size] + h.matmul(own[1]) + extra[1]))
            if after:
                inner = s * (h.matmul(own[2]) + extra[2])
            else:
                inner = (s * h).matmul(own[2]) + extra[2]
            new = f[1](_clipped(n, row[:, 2 * size :] + inner))
            return ((1 - z) * new + z * h,)

        return step

    return _recurrent(n, 3, ["Sigmoid", "Tanh"], make, 1, _plain(n)[0], lambda d: n.x(2)[d])


@op("RNN")
def rnn(n: Node) -> Any:
    """Apply one activation to the input and the previous state."""

    def make(f: list[Activation], r: Product, bias: Any, peep: UOp | None, size: int) -> Step:
        def step(row: UOp, h: UOp) -> tuple[UOp, ...]:
            z = row + r(h)
            z = z if bias is None else z + bias[1]
            return (f[0](_clipped(n, z)),)

        return step

    return _recurrent(n, 1, ["Tanh"], make, 1, *_plain(n))
