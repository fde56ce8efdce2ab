"""Short spellings for graphs that tests write node by node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from uopc.driver import lower_only
from uopc.ir.builder import kernel, movement
from uopc.ir.core import dtypes
from uopc.ir.core.args import KernelArg, Opt, ReduceArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.optimize.opts import table
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.tensor import creation

F32, I32, INDEX, VOID = dtypes.float32, dtypes.int32, dtypes.index, dtypes.void
Array = Any


def floats(*shape: int) -> Array:
    """Random float32 values, the same for one shape."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def param(slot: int, size: int, dtype: dtypes.DType = F32) -> UOp:
    """An argument of a kernel: `size` elements in a row."""
    return creation.kernel_param(slot, (size,), dtype)


def at(storage: UOp, *indices: Any) -> UOp:
    return movement.index(storage, *indices)


def store(target: UOp, value: Any, gate: UOp | None = None) -> UOp:
    return kernel.store(target, value, gate)


def after(u: UOp, *effects: UOp) -> UOp:
    return intern(Ops.AFTER, u.dtype, (u, *effects))


def total(value: UOp, *ranges: UOp, op: str = "add") -> UOp:
    """A REDUCE over ranges."""
    return intern(Ops.REDUCE, value.dtype, (value, *ranges), ReduceArg(op))  # type: ignore[arg-type]


def plain_kernel(graph: UOp) -> UOp:
    """The one kernel of a graph of tensors as the optimiser gets it."""
    (run,) = [r for r in lower_only(graph).runs if r.name == "simplify-ranges"]
    (found,) = run.after
    return found


def apply_opt(kernel: UOp, opt: Opt) -> UOp:
    """The kernel after one Opt."""
    return table.apply(Tiled(kernel), opt).kernel


def named(sink: UOp) -> UOp:
    """A kernel with the names that a user would give its params: s0, s1, … by slot."""
    params = [u for u in sink.toposort() if u.op is Ops.PARAM]
    args = [dataclasses.replace(u.arg, name=f"s{u.arg.slot}") for u in params]
    made = [intern(Ops.PARAM, u.dtype, u.src, arg) for u, arg in zip(params, args)]
    return sink.substitute(dict(zip(params, made)))


def with_opts(sink: UOp, opts: Iterable[Opt]) -> UOp:
    """A kernel to be compiled with exactly these Opts."""
    return named(intern(Ops.SINK, sink.dtype, sink.src, KernelArg("k", tuple(opts))))


def invalid(dtype: dtypes.DType) -> UOp:
    return intern(Ops.INVALID, dtype)
