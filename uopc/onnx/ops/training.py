"""Optimiser steps: new parameters and new states for each tensor of a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import uopc
from uopc import UOp
from uopc.onnx.node import Node
from uopc.onnx.registry import op

DOMAIN = "ai.onnx.preview.training"


def _each(n: Node, states: int, step: Callable[..., tuple[UOp, ...]]) -> Any:
    """Step each tensor. Inputs: rate, time, then all tensors, all gradients, and all states."""
    values = [n.x(k) for k in range(2, len(n.inputs))]
    count = len(values) // (states + 2)
    made = [step(n.x(0), n.x(1), *values[i::count]) for i in range(count)]
    return tuple([made[i][k] for k in range(states + 1) for i in range(count)])


@op("Momentum", domain=DOMAIN)
def momentum(n: Node) -> Any:
    """Step along an average of gradients; `mode` chooses standard or Nesterov momentum."""
    decay, norm = n.number("alpha", 0.0), n.number("norm_coefficient", 0.0)
    look = n.attr("mode", "standard") == "nesterov"

    def step(rate: UOp, time: UOp, x: UOp, slope: UOp, v: UOp) -> tuple[UOp, ...]:
        slope = slope + x * norm
        beta = uopc.where(time > 0, n.number("beta", 0.0), 1.0)
        new = v * decay + slope * beta
        return x - (slope + new * decay if look else new) * rate, new

    return _each(n, 1, step)


@op("Adagrad", domain=DOMAIN)
def adagrad(n: Node) -> Any:
    """Divide the step by the root of the sum of squared gradients."""
    norm, eps = n.number("norm_coefficient", 0.0), n.number("epsilon", 0.0)

    def step(rate: UOp, time: UOp, x: UOp, slope: UOp, h: UOp) -> tuple[UOp, ...]:
        slope = slope + x * norm
        new = h + slope * slope
        falling = rate / (time.cast(rate.dtype) * n.number("decay_factor", 0.0) + 1)
        return x - slope * falling / (new.sqrt() + eps), new

    return _each(n, 1, step)


@op("Adam", domain=DOMAIN)
def adam(n: Node) -> Any:
    """Step by means of gradients and of their squares, corrected for their start at 0."""
    a, b = n.number("alpha", 0.9), n.number("beta", 0.999)
    norm, after = n.number("norm_coefficient", 0.0), n.number("norm_coefficient_post", 0.0)

    def step(rate: UOp, time: UOp, x: UOp, slope: UOp, v: UOp, h: UOp) -> tuple[UOp, ...]:
        slope = slope + x * norm
        v, h = v * a + slope * (1 - a), h * b + slope * slope * (1 - b)
        t = time.cast(x.dtype)
        corrected = (1 - b**t).sqrt() / (1 - a**t)
        rate = uopc.where(time > 0, rate * corrected, rate)
        new = x - v * rate / (h.sqrt() + n.number("epsilon", 0.0))
        return new * (1 - after), v, h

    return _each(n, 2, step)
