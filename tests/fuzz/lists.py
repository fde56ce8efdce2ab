"""Random lists of Opts that begin with the schedule's own: refused with a reason, or right.

An Opt is dropped, added, doubled or moved, or its axis or its amount becomes another one. What the
kernel then computes is compared with the interpreter's values of the graph. A list that fails is
made shorter while it still fails.
"""

from __future__ import annotations

import functools
import random
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import uopc
from tests import machines
from tests.by_hand import plain_kernel
from tests.fuzz.kinds import Verdict
from uopc import UOp
from uopc.driver import lower_only
from uopc.errors import UserError
from uopc.ir.core.args import Opt
from uopc.ir.interpret import interpreter
from uopc.ir.nest.nest import nest_of
from uopc.passes.contract import Context
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.passes.optimize.opts.table import OPTS, apply
from uopc.program.tuned.kernel_opts import Opts
from uopc.program.tuned.schedules import opts_text
from uopc.search.edits import Moves

SIZES = (1, 2, 3, 5, 8, 16, 17, 24, 32, 40, 64)
AMOUNTS = (0, 1, 2, 3, 4, 5, 8, 16, 32, 64, -1)
GPU_ONLY = ("GRID", "GROUP", "GROUPTOP", "TC", "PIPELINE", "LOCAL")
MOST_CHANGES = 5
MOST_TRIES = 12  # until a changed list is legal
MOST_CODE = 1 << 12  # nodes with their copies


def _array(name: str, *dims: Any, dtype: str = "float32") -> UOp:
    return uopc.param(name, dims, getattr(uopc.dtypes, dtype))


def _window(n: int, m: int, k: int) -> UOp:
    """The sums of windows of 3 x 3."""
    x = _array("x", n + 2, m + 2)
    parts = [x[i : i + n, j : j + m] * float(i - j) for i in range(3) for j in range(3)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


# A kernel of each shape that the schedule has a rule for, of three sizes.
GRAPHS: dict[str, Callable[[int, int, int], UOp]] = {
    "softmax": lambda n, m, k: _array("x", n, m).softmax(),
    "softmax_down": lambda n, m, k: _array("x", n, m).softmax(0),
    "normalised": lambda n, m, k: _normalised(_array("x", n, m)),
    "log_sum": lambda n, m, k: _array("x", n, m).exp().sum(1).log(),
    "product": lambda n, m, k: _array("a", n, k) @ _array("b", k, m),
    "turned": lambda n, m, k: _array("a", n, k) @ _array("b", m, k).permute(1, 0),
    "relu": lambda n, m, k: (_array("a", n, k) @ _array("b", k, m) + _array("c", m)).relu(),
    "times_vector": lambda n, m, k: _array("a", n, m) @ _array("v", m),
    "rows": lambda n, m, k: _array("x", n, m).sum(1),
    "columns": lambda n, m, k: _array("x", n, m).sum(0),
    "largest": lambda n, m, k: _array("x", n, m).max(1),
    "whole": lambda n, m, k: _array("x", n, m).sum(),
    "distances": lambda n, m, k: _distances(_array("a", n, k), _array("b", m, k)),
    "transposed": lambda n, m, k: _array("x", n, m).permute(1, 0) + _array("y", m, n),
    "padded": lambda n, m, k: _array("x", n, m).pad(((1, 2), (2, 0))) * 2.0,
    "triangle": lambda n, m, k: _array("x", n, m).tril(),
    "window": _window,
    "doubles": lambda n, m, k: (_array("x", n, m, dtype="float64") * 3.0).sum(1),
    "bytes": lambda n, m, k: _array("x", n, m, dtype="uint8").sum(1),
}


def _normalised(x: UOp) -> UOp:
    mean = x.mean(1, keepdims=True)
    far = x - mean
    return far * ((far * far).mean(1, keepdims=True) + 1e-5).rsqrt()


def _distances(a: UOp, b: UOp) -> UOp:
    n, k = a.shape
    apart = a.reshape(n, 1, k) - b.reshape(1, b.shape[0], k)
    return (apart * apart).sum(2)


def _amounts(op: str) -> tuple[int, ...]:
    """Amounts of an Opt. A loop that PADTO makes this long would run for days, as was asked."""
    return AMOUNTS if op == "PADTO" else (*AMOUNTS, 1 << 40)


class Case:
    """A graph with its arguments, and the kernel that lists of Opts are for."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"lists {seed} {number}")
        self.name = self.random.choice(list(GRAPHS))
        sizes = [self.random.choice(SIZES) for _ in range(3)]
        self.graph = GRAPHS[self.name](*sizes)
        self.shown = f"{self.name}{tuple(sizes)}"
        self.threads = self.random.choice((1, 2))
        rng = np.random.default_rng(self.random.getrandbits(32))
        params = {u.arg.name: u for u in self.graph.toposort() if u.op is uopc.Ops.PARAM}
        self.arrays = {
            name: rng.integers(0, 4, p.shape).astype(p.dtype.numpy) for name, p in params.items()
        }

    def own(self) -> Opts | None:
        """The schedule's list, and what is needed to change it; None if there are more kernels."""
        lowered = lower_only(self.graph.contiguous(), threads=self.threads)
        if len(lowered.kernels) != 1:
            return None
        self.kernel = plain_kernel(self.graph)
        self.moves = Moves(self.kernel, Context(lowered.context.target, threads=self.threads))
        return lowered.kernels[0].arg.opts or ()

    def nodes(self, opts: Opts) -> int | None:
        """The nodes of the kernel, with its copies; None where an Opt is refused."""
        kernel = Tiled(self.kernel)
        try:
            for opt in opts:
                kernel = apply(kernel, opt)
        except (Refused, UserError):
            return None
        return nest_of(kernel.kernel).expanded_size()

    def changed(self, opts: Opts) -> Opts:
        """A list with one change, a legal one if that is soon found."""
        new = opts
        for _ in range(MOST_TRIES):
            new = self._change(opts)
            if (self.nodes(new) or MOST_CODE) < MOST_CODE:
                break
        return new

    def _change(self, opts: Opts) -> Opts:
        one, at = self.random.choice, self.random.randrange(len(opts) + 1)
        kinds = ["drop", "amount", "axis", "double", "move"] if at < len(opts) else []
        kind = one([*kinds, "add", "add", *["next"] * (self.random.random() < 0.2)])
        if kind == "drop":
            return (*opts[:at], *opts[at + 1 :])
        if kind == "double":
            return (*opts[:at], opts[at], *opts[at:])
        if kind == "move":
            rest = [*opts[:at], *opts[at + 1 :]]
            rest.insert(self.random.randrange(len(rest) + 1), opts[at])
            return tuple(rest)
        if kind == "next":  # what the search may add
            near = [found.opts for found in self.moves.neighbours(opts)]
            return one(near) if near else opts
        if kind == "add":
            op = one([o for o in OPTS if o not in GPU_ONLY])
            return (*opts[:at], Opt(op, one(range(5)), one(_amounts(op))), *opts[at:])
        op, axis, amount = opts[at].op, opts[at].axis, opts[at].arg
        near = (amount * 2, amount // 2, amount + 1, amount - 1, *_amounts(op))
        new = (one(range(5)), amount) if kind == "axis" else (axis, one(near))
        return (*opts[:at], Opt(op, *new), *opts[at + 1 :])

    def fails(self, opts: Opts) -> str:
        """The failure of a list; "" if it is right."""
        try:
            if (self.nodes(opts) or 0) > MOST_CODE:
                return ""
            f = uopc.compile(self.graph.contiguous(opts), verify=True, threads=self.threads)
            got = f(**self.arrays)
        except UserError:
            return ""
        except Exception:  # any other error is a finding
            return traceback.format_exc(limit=-4)
        if not np.allclose(got, self.wanted, 4e-6, 4e-6, equal_nan=True):
            return f"got {got!r}, expected {self.wanted!r}"
        return ""

    @functools.cached_property
    def wanted(self) -> Any:
        """The interpreter's values."""
        return interpreter.evaluate(self.graph, self.arrays)

    def shortest(self, opts: Opts) -> Opts:
        """A list that fails, without the Opts that it fails without."""
        i = 0
        while i < len(opts):
            without = (*opts[:i], *opts[i + 1 :])
            if self.fails(without):
                opts, i = without, 0
            else:
                i += 1
        return opts


def run(seed: int, number: int) -> Verdict:
    """Change the schedule's list of a kernel a few times, and check each list on the way."""
    case = Case(seed, number)
    with machines.described(case.random.choice(list(machines.MACHINES))):
        opts = case.own()
        if opts is None:
            return Verdict(refused="more than one kernel")
        for _ in range(case.random.randint(1, MOST_CHANGES)):
            changed = case.changed(opts)
            if case.fails(changed):
                small = case.shortest(changed)
                said = f"{case.shown}, {case.threads} threads: {opts_text(small)}"
                return Verdict([case.fails(small)], report=said)
            if case.nodes(changed) is not None:
                opts = changed
    return Verdict()
