"""Nodes of raw constructors that fit nothing: an Error, or a program that stays in its arrays."""

from __future__ import annotations

import faulthandler
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
from tests import ROOT
from uopc import UOp, dtypes
from uopc.ir.core import args, walk
from uopc.ir.core.ops import Op, Ops

CASES, SECONDS = 800, 60
NUMBERS = (0, 1, 2, 3, 4, 8, -1, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 64)
WORDS = ("", "x", "y", "cpu", "foo", "add", "max", "async", "gidx0", "loop", "reg", "local", 3)
Choice = Callable[[Any], Any]


def tensors() -> list[UOp]:
    x, y = uopc.param("x", (8,)), uopc.param("y", (2, 4))
    i, d = uopc.param("i", (8,), dtypes.int32), uopc.param("d", (3, 5), dtypes.float64)
    n = uopc.variable("n", 0, 9)
    stored = UOp(Ops.STORE, dtypes.void, (x, x * 2))
    return [
        x, y, i, d, n, uopc.param("z", (n,)), uopc.param("e", (0, 3)), x * 2, i + 1, y.sum(0),
        y.permute(1, 0), x[2:5], x.pad(((1, 2),)), uopc.arange(8), uopc.constant(np.arange(8.0)),
        x > 0, stored, UOp(Ops.AFTER, x.dtype, (x, stored)), UOp(Ops.INVALID, dtypes.float32),
        UOp(Ops.TUPLE, None, (x, y)), UOp.const(dtypes.index, 2), UOp(Ops.NOOP, dtypes.void),
    ]  # fmt: skip


def parts_of_kernels() -> list[UOp]:
    k = UOp.range(8, 0)
    o, q = (uopc.kernel_param(s, (8,), dtypes.float32, n) for s, n in enumerate("oq"))
    g = uopc.kernel_param(2, (8,), dtypes.int32, "g")
    effect = o.index(k).store(q.index(k))
    return [
        k, o, q, g, UOp.range(4, 1), o.index(k), q.index(k), g.index(k), q.index(k).load(),
        q.index(k) * 2, effect, effect.end(k), k + 1, UOp.const(dtypes.index, 3),
        UOp(Ops.SPECIAL, None, (UOp.const(dtypes.index, 4),), "gidx0"),
        UOp(Ops.LANES, dtypes.index.vec(4), (), 4), UOp(Ops.BARRIER, None, ()),
        UOp(Ops.BUFFER, dtypes.float32, (), args.BufferArg(0, (8,), "", "reg")),
        UOp(Ops.NUMBER, dtypes.float32, (), args.NumberArg(1)),
    ]  # fmt: skip


def some_arg(op: Op, pick: Choice) -> Any:
    """An arg of a type that the op takes, mostly, with values that may be nonsense."""
    word, number = (lambda: pick(WORDS)), (lambda: pick(NUMBERS))
    dims = pick(((8,), (2, 4), (), (None,), (-1,), (1 << 40, 1 << 30), ("a",), (0,)))
    records: dict[Any, Callable[[], Any]] = {
        int: number, bool: lambda: True, float: lambda: pick((0.0, 1.5, float("nan"))), str: word,
        tuple: lambda: pick(((), (0,), (1, 0), (8,), (2, 4), (0, 8), ("a",), (number(), number()))),
        args.ParamArg: lambda: args.ParamArg(word(), dims, pick((-1, 0, 1, 7)), word(), word()),
        args.BufferArg: lambda: args.BufferArg(number(), dims, "", pick(("global", word()))),
        args.VariableArg: lambda: args.VariableArg(word(), number(), number()),
        args.NumberArg: lambda: args.NumberArg(number()),
        args.RangeArg: lambda: args.RangeArg(pick(((0,), (), ("a",))), pick(("loop", word()))),
        args.ReduceArg: lambda: args.ReduceArg(word(), pick(((), (0,), (5,), (-1,), (0, 0)))),
        args.KernelArg: lambda: args.KernelArg(word(), pick((None, (), (3,)))),
        args.DataArg: lambda: args.DataArg("a", dims, pick((None, np.zeros(8, "f4")))),
    }  # fmt: skip
    kind = op.arg[-1] if pick(range(8)) else pick(list(records))
    return records.get(kind, lambda: None)()


def some_node(op: Op, pool: list[UOp], rng: random.Random) -> UOp:
    low, high = op.arity
    count = rng.randint(low, low + 3 if high is None else high) if rng.random() < 0.9 else 2
    sources = [rng.choice(pool) for _ in range(count)]
    if sources and rng.random() < 0.5:
        alike = [u for u in pool if u.dtype is sources[0].dtype]
        sources = [sources[0], *[rng.choice(alike) for _ in sources[1:]]]
    given = rng.choice(dtypes.ALL)
    first = sources[0].dtype if sources else given
    dtype = rng.choice((None, None, first, first, given, dtypes.void, given.vec(4)))
    tag = rng.choice((None,) * 9 + ([1],))
    return UOp(op, dtype, tuple(sources), some_arg(op, rng.choice), tag)


def closed(u: UOp, rng: random.Random) -> UOp:
    """A kernel of a node; its loops are closed, mostly."""
    k, o = UOp.range(8, 0), uopc.kernel_param(0, (8,), dtypes.float32, "o")
    if u.dtype is not dtypes.void:
        one, value = UOp.const(dtypes.float32, 1), UOp(Ops.CAST, dtypes.float32, (u,))
        targets = [(o.index(k), value), (UOp(Ops.INDEX, None, (o, u)), one), (u, value)]
        u = UOp(Ops.STORE, dtypes.void, rng.choice(targets))
    loops = [v for v in walk.toposort(u) if v.op is Ops.RANGE and v not in u.src]
    for r in loops if rng.random() < 0.9 else loops[1:]:
        u = UOp(Ops.END, dtypes.void, (u, r))
    return u if u.op is Ops.SINK else UOp(Ops.SINK, dtypes.void, (u,), args.KernelArg("k"))


def attempt(no: int) -> None:
    """Make, compile and call the graph of a number. Errors are as expected."""
    rng, ops = random.Random(no), Op.all()
    kernel = rng.random() < 0.4
    pool = parts_of_kernels() if kernel else tensors()
    try:
        u = some_node(ops[no % len(ops)], pool, rng)
        for _ in range(rng.randrange(3)):
            u = some_node(rng.choice(ops), [*pool, *[u] * 20], rng)
        str(u)
        program = uopc.compile(
            closed(u, rng) if kernel else u, verify=rng.choice((None, False, True)), threads=1
        )
        sized = [p for p in program.inputs if all(isinstance(d, int) for d in p.shape)]
        if len(sized) == len(program.inputs) and sum(np.prod(p.shape) for p in sized) < 1e6:
            program(*[np.ones(p.shape, p.dtype.numpy) for p in sized])
    except uopc.Error:
        pass


@pytest.mark.parametrize(
    "first", [0, *[pytest.param(i * CASES, marks=pytest.mark.slow) for i in range(1, 4)]]
)
def test_a_raw_node_is_refused_or_runs(first: int) -> None:
    command = [sys.executable, __file__, str(first), str(first + CASES)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        print(number, file=sys.stderr)
        attempt(number)
