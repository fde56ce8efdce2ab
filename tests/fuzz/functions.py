"""Nested functions: calls of traced bodies, against the same Python functions on NumPy arrays.

Bodies call earlier bodies and give several results, which may be assigned to an argument; each case
is compiled with calls scheduled on their own and inlined, and interpreted.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import uopc
from tests.fuzz import guards
from tests.fuzz.guards import guarded
from tests.fuzz.kinds import Verdict
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

Array = npt.NDArray[Any]
SHAPES = ((0,), (1,), (7,), (33,), (4, 5), (3, 1, 4))


@dataclass(frozen=True)
class Body:
    """A function of `arity` UOps or arrays that gives a tuple of `count` of them."""

    run: Callable[..., tuple[Any, ...]]
    arity: int
    count: int


def _step(rng: random.Random, bodies: list[Body], width: int) -> Callable[[list[Any]], Any]:
    """A step of a body: from the values so far to new ones. It may call an earlier body."""
    i, j, k = rng.randrange(width), rng.randrange(width), rng.randrange(1, 5)
    kind = rng.choice(("add", "sub", "mul", "flip", "sum", "store", "call", "call", "call"))
    if kind == "call" and bodies:
        called = rng.choice(bodies)
        places = [rng.randrange(width) for _ in range(called.arity)]
        which = rng.randrange(called.count)
        return lambda v: called.run(*[v[p] for p in places])[which]
    plain: dict[str, Callable[[list[Any]], Any]] = {
        "add": lambda v: v[i] + v[j],
        "sub": lambda v: v[i] * k - v[j],
        "mul": lambda v: v[i] * v[j] + k,
        "flip": lambda v: _flip(v[i]) + v[j],
        "sum": lambda v: v[i] + _total(v[j]),
        "store": lambda v: _stored(v[i] + k),
    }
    return plain.get(kind, plain["add"])


def _flip(v: Any) -> Any:
    return v.flip(0) if isinstance(v, UOp) else np.flip(v, 0)


def _total(v: Any) -> Any:
    return v.sum() if isinstance(v, UOp) else v.sum(dtype=np.int64)


def _stored(v: Any) -> Any:
    return v.contiguous() if isinstance(v, UOp) else v


def _body(rng: random.Random, bodies: list[Body], precompile: bool | None) -> Body:
    arity = rng.randint(1, 3)
    steps = []
    for n in range(rng.randint(1, 4)):
        steps.append(_step(rng, bodies, arity + n))
    width = arity + len(steps)
    results = [width - 1, *[rng.randrange(width) for _ in range(rng.choice((0, 0, 1, 2)))]]

    def run(*args: Any) -> tuple[Any, ...]:
        values = list(args)
        for step in steps:
            values.append(step(values))
        return tuple([values[r] for r in results])

    made = run if precompile is None else uopc.function(run, precompile=precompile)
    return Body(made, arity, len(results))


def draw(seed: int, number: int, precompile: bool | None) -> tuple[Body, int, bool]:
    """The outermost body, its shape's number, and whether its first result is assigned to its
    first argument. `precompile` None: plain Python functions."""
    rng = random.Random(f"functions {seed} {number}")
    shape, assigns = rng.randrange(len(SHAPES)), rng.random() < 0.4
    bodies: list[Body] = []
    for _ in range(rng.randint(1, 4)):
        bodies.append(_body(rng, bodies, precompile))
    return bodies[-1], shape, assigns


def run(seed: int, number: int) -> Verdict:
    """Run a case every way there is."""
    guards.guard_programs()
    plain, shape, assigns = draw(seed, number, None)
    rng = np.random.default_rng([seed, number])
    inputs = {
        f"a{i}": rng.integers(-9, 9, SHAPES[shape]).astype(np.int64) for i in range(plain.arity)
    }
    with np.errstate(all="ignore"):
        wanted = [np.asarray(v) for v in plain.run(*inputs.values())]
    final = wanted[0] if assigns else inputs["a0"]
    verdict = Verdict()
    for precompile in (False, True):
        body, _, _ = draw(seed, number, precompile)
        params = [uopc.param(name, SHAPES[shape], dtypes.int64) for name in inputs]
        nodes = list(body.run(*params))
        if assigns:
            nodes[0] = params[0].assign(nodes[0])
        for way in ({}, {"optimize": False}, {"threads": 2}, None):
            where = f"precompile={precompile}, {way}"
            try:
                verdict.failures += [f"{where}: {w}" for w in _differences(
                    nodes, way, inputs, wanted, final)]  # fmt: skip
            except UserError as error:
                verdict.refused = str(error).splitlines()[0]
            except Exception:
                verdict.failures.append(f"{where}: {traceback.format_exc(limit=-4)}")
        if verdict.failures and not verdict.report:
            verdict.report = uopc.print_graph(UOp(Ops.SINK, dtypes.void, tuple(nodes)))
    return verdict


def _differences(
    nodes: list[UOp], way: dict[str, Any] | None, inputs: dict[str, Array], wanted: list[Array],
    final: Array,
) -> list[str]:  # fmt: skip
    """The differences of one way of running from the plain functions; `way` None: interpreted."""
    given = {name: guarded(a) for name, a in inputs.items()}
    if way is None:
        got = interpreter.evaluate(nodes, given, {})
    else:
        f = uopc.compile(tuple(nodes), verify=True, **way)
        given = {a.name: given[a.name] for a in f.inputs}
        got = f(**given)
    wrong = [
        f"output {i}: {np.asarray(a)!r}, want {b!r}"
        for i, (a, b) in enumerate(zip(got, wanted, strict=True)) if not np.array_equal(a, b)
    ]  # fmt: skip
    for name, a in given.items():
        want = final if name == "a0" else inputs[name]
        if not np.array_equal(a, want):
            wrong.append(f"{name} after the call: {a!r}, want {want!r}")
    return wrong
