"""Random kernels written by hand, against a simulation: one element of one iteration at a time.

A kernel is a row of nests. A nest stores to parts of the arrays, one store after the other, what
earlier stores have left in them; the simulation runs the same steps on NumPy arrays, in order.
"""

from __future__ import annotations

import random
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import uopc
from tests.fuzz import guards
from tests.fuzz.kinds import Verdict
from uopc import Ops, UOp, dtypes, kernel_param
from uopc.errors import Error
from uopc.ir.core.args import BufferArg, ReduceArg
from uopc.ir.interpret.interpreter import run_kernel
from uopc.program.graph.check_input import checked
from uopc.program.graph.facts import facts_of

Array = npt.NDArray[Any]
TYPES = (dtypes.int32, dtypes.int32, dtypes.int64, dtypes.float64, dtypes.uint8)
LARGEST = 2.0**50  # sums of floats below are exact in any order
WAYS: tuple[dict[str, Any], ...] = (
    {"optimize": True, "threads": 1}, {"optimize": True, "threads": 3},
    {"optimize": False, "threads": 1}, {"optimize": False, "threads": 3},
)  # fmt: skip
COMBINE: dict[str, Callable[..., Any]] = {"add": np.add, "mul": np.multiply, "max": np.maximum}


class TooLarge(Exception):
    """A float leaves the integers that are exact."""


@dataclass
class Env:
    """A moment of the simulation: the arrays, and the numbers of the open ranges."""

    memory: dict[UOp, Array]
    at: dict[UOp, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Value:
    """A graph, and what it means at a moment: an array of its shape."""

    node: UOp
    meaning: Callable[[Env], Array]


@dataclass(frozen=True)
class Scope:
    """The open ranges; `parallel`: iterations run in any order, so that none reads what others
    write."""

    loops: tuple[UOp, ...] = ()
    parallel: bool = False


class Program:
    """A kernel that grows nest by nest."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"kernels {seed} {number}")
        rng = np.random.default_rng(self.random.getrandbits(32))
        self.n = self.random.randint(1, 6)
        rows: Any = self.one((1, 2, 4, 5, 8, 17))
        if self.random.random() < 0.3:
            rows = uopc.variable("n", 1, 6)
        self.dims: tuple[Any, int] = (rows, self.one((1, 3, 4, 8, 33)))
        self.params: list[UOp] = []
        self.start: dict[UOp, Array] = {}
        shape = tuple([self.length(d) for d in self.dims])
        for slot in range(self.random.randint(2, 4)):
            p = kernel_param(slot, self.dims, self.one(TYPES), "abcd"[slot])
            low = 0 if p.dtype is dtypes.uint8 else -9
            self.params.append(p)
            self.start[p] = rng.integers(low, 10, shape).astype(p.dtype.numpy)
        self.outs = self.params[: self.random.randint(1, len(self.params))]
        self.steps: list[Callable[[Env], None]] = []
        self.effects: list[UOp] = []  # of the nests so far
        self.seen: defaultdict[UOp, list[UOp]] = defaultdict(list)  # what a param comes after
        self.axes = 0
        self.buffers = 0

    def one(self, some: Any) -> Any:
        return self.random.choice(some)

    def length(self, d: Any) -> int:
        return self.n if isinstance(d, UOp) else int(d)

    # ------------------------------------------------------------ values of elements
    def loop(self, d: Any, kind: Any = "loop") -> UOp:
        self.axes += 1
        return UOp.range(d, self.axes, kind)

    def end(self, r: UOp, env: Env) -> int:
        """The length of a range at a moment."""
        stop = r.src[0]
        if stop.op is Ops.CONST:
            return int(stop.arg)
        if stop.op is Ops.VARIABLE:
            return self.n
        return env.at[stop.src[0]] + int(stop.src[1].arg)  # i + c

    def version(self, p: UOp) -> UOp:
        """A param after the effects that it must come after."""
        return p.after(*self.seen[p])

    def place(self, d: Any, scope: Scope, data: bool = True) -> Value:
        """An index into a dimension; from data, it may be outside."""
        size = self.length(d)
        kind = self.one(("loop", "loop", "loop", "shift", "times", "back", "const", "data"))
        same = [r for r in scope.loops if r.src[0] is UOp.range(d, 0).src[0]]
        if kind == "loop" and same:
            r = self.one(same)
            return Value(r, lambda e: np.asarray(e.at[r]))
        if kind == "back" and same:
            r = self.one(same)
            return Value(d - 1 - r, lambda e: np.asarray(size - 1 - e.at[r]))
        if kind == "data" and data and not scope.parallel:
            inner = self.cast(self.read(scope), dtypes.int64)
            return Value(inner.node.cast(dtypes.index), inner.meaning)
        c = self.random.randrange(1, 4)
        if scope.loops and kind in ("shift", "times"):
            r = self.one(scope.loops)
            if kind == "shift":
                return Value((r + c) % d, lambda e: np.asarray((e.at[r] + c) % size))
            return Value((r * c) % d, lambda e: np.asarray((e.at[r] * c) % size))
        c = c % (1 if isinstance(d, UOp) else d)
        return Value(UOp.const(dtypes.index, c), lambda e: np.asarray(c))

    def read(self, scope: Scope) -> Value:
        """An element of a param, 0 where the index is outside."""
        known = [p for p in self.params if not scope.parallel or p not in self.outs]
        if not known:
            return self.number(dtypes.int32)
        p = self.one(known)
        index = [self.place(d, scope) for d in self.dims]
        shape = self.start[p].shape

        def meaning(e: Env) -> Array:
            at = tuple([int(i.meaning(e)) for i in index])
            inside = all([0 <= x < size for x, size in zip(at, shape)])
            return np.asarray(e.memory[p][at] if inside else 0, p.dtype.numpy)

        return Value(self.version(p).index(*[i.node for i in index]), meaning)

    def number(self, t: Any) -> Value:
        c = self.random.randrange(4)
        return Value(UOp.const(t, c), lambda e: np.asarray(c, t.numpy))

    def cast(self, v: Value, t: Any) -> Value:
        if v.node.dtype is t:
            return v
        node = v.node.cast(dtypes.int64).cast(t) if v.node.dtype.is_float else v.node.cast(t)
        return Value(node, lambda e: _checked(v.meaning(e)).astype(np.int64).astype(t.numpy))

    def element(self, t: Any, scope: Scope, depth: int) -> Value:
        """A scalar of a dtype."""
        kinds = ["read", "read", "range", "number"]
        if depth:
            kinds += ["add", "sub", "mul", "max", "where", "reduce", "row", "stage", "named"] * 2
        kind = self.one(kinds)
        if kind == "range" and scope.loops:
            r = self.one(scope.loops)
            return self.cast(Value(r.cast(dtypes.int64), lambda e: np.asarray(e.at[r], "i8")), t)
        if kind in ("read", "range"):
            return self.cast(self.read(scope), t)
        if kind == "number":
            return self.number(t)
        if kind == "reduce":
            return self.reduced(t, scope, depth)
        if kind == "row":
            return self.of_row(t, scope, depth)
        if kind in ("stage", "named"):
            return self.staged(t, scope, depth, kind == "named")
        a, b = self.element(t, scope, depth - 1), self.element(t, scope, depth - 1)
        return self.combined(kind, a, b)

    def combined(self, kind: str, a: Value, b: Value) -> Value:
        """An elementwise op of two values of one dtype."""
        x, y = a.node, b.node
        if kind == "where":
            return Value(
                (x < y).where(y, x + 1),
                lambda e: np.where(a.meaning(e) < b.meaning(e), b.meaning(e),
                                   a.meaning(e) + _one(x)),
            )  # fmt: skip
        node = {"add": x + y, "sub": x - y, "mul": x * y, "max": x.maximum(y)}[kind]
        op = {**COMBINE, "sub": np.subtract}[kind]
        return Value(node, lambda e: np.asarray(op(a.meaning(e), b.meaning(e)), x.dtype.numpy))

    def reduced(self, t: Any, scope: Scope, depth: int) -> Value:
        """A REDUCE over a range of its own."""
        d = self.one((*self.dims, 3))
        unrolled = d is not self.dims[0] and d <= 8 and self.random.random() < 0.2
        r = self.loop(d, "unroll") if unrolled else self.loop(self.bounded(d, scope), "reduce")
        op = self.one(("add", "add", "max"))
        inner = self.element(t, Scope((*scope.loops, r), scope.parallel), depth - 1)

        def meaning(e: Env) -> Array:
            total = _identity(op, t)
            for i in range(self.end(r, e)):
                e.at[r] = i
                total = np.asarray(COMBINE[op](total, inner.meaning(e)), t.numpy)
            return total

        return Value(UOp(Ops.REDUCE, t, (inner.node, r), ReduceArg(op)), meaning)

    def bounded(self, d: Any, scope: Scope) -> Any:
        """A length, at times one that depends on a loop outside."""
        loops = [r for r in scope.loops if r.src[0].op is Ops.CONST]
        if loops and self.random.random() < 0.15:
            return self.one(loops) + self.random.randrange(1, 3)
        return d

    # ------------------------------------------------------------ values with shapes
    def row(self, t: Any, scope: Scope, depth: int) -> Value:
        """A value of the shape of a row."""
        kind = self.one(("read", "read", "scalar", "add", "mul", "flip", "where", "stage"))
        if depth and kind in ("add", "mul", "where"):
            return self.combined(kind, self.row(t, scope, depth - 1), self.row(t, scope, depth - 1))
        if depth and kind == "flip":
            inner = self.row(t, scope, depth - 1)
            return Value(inner.node.flip(0), lambda e: inner.meaning(e)[::-1])
        if depth and kind == "stage":
            inner = self.row(t, scope, depth - 1)
            return Value(inner.node.stage(space=self.one(("local", "reg"))), inner.meaning)
        known = [p for p in self.params if not scope.parallel or p not in self.outs]
        if kind == "scalar" or not known:
            one, width = self.element(t, scope, 0), self.dims[1]
            node = one.node.reshape(1).expand(width) if not one.node.shape else one.node
            return Value(node, lambda e: np.broadcast_to(one.meaning(e), (width,)))
        p, at = self.one(known), self.place(self.dims[0], scope, data=False)
        read = Value(self.version(p)[at.node], lambda e: e.memory[p][int(at.meaning(e))].copy())
        return self.cast(read, t)

    def of_row(self, t: Any, scope: Scope, depth: int) -> Value:
        """The sum or an element of a row."""
        row = self.row(t, scope, depth - 1)
        if self.random.random() < 0.5:
            summed = row.node.cast(t).sum() if row.node.dtype is not t else row.node.sum()
            return self.cast(
                Value(summed, lambda e: np.asarray(row.meaning(e).sum(dtype=summed.dtype.numpy))), t
            )
        at = self.place(self.dims[1], scope, data=False)
        return Value(row.node.index(at.node), lambda e: row.meaning(e)[int(at.meaning(e))])

    def staged(self, t: Any, scope: Scope, depth: int, named: bool) -> Value:
        """An element of what a loop stores in a buffer of its own."""
        space = self.one(("local", "reg"))
        if not named:
            inner = self.element(t, scope, depth - 1)
            return Value(inner.node.stage(space=space), inner.meaning)
        d = self.one((self.dims[1], 4))
        same = [r for r in scope.loops if r.src[0].op is Ops.CONST and r.src[0].arg == d]
        again = same and self.random.random() < 0.5
        r = self.one(same) if again else self.loop(d)
        loops = tuple(dict.fromkeys((*scope.loops, r)))
        inner = self.element(t, Scope(loops, scope.parallel), depth - 1)
        at = self.place(d, scope, data=False)

        def meaning(e: Env) -> Array:
            i = int(at.meaning(e))
            return inner.meaning(Env(e.memory, {**e.at, r: i}))

        return Value(inner.node.stage(r, space=space).index(at.node), meaning)

    # ------------------------------------------------------------ stores
    def nest(self) -> None:
        """Loops around some stores, or a store of a whole value."""
        kind = self.one(("loops", "loops", "loops", "whole", "register"))
        if kind == "whole":
            self.whole()
            return
        parallel = self.random.random() < 0.3
        kinds = ("loop", "global", "local", "upcast") if parallel else ("loop",)
        over = self.dims if parallel else self.one((self.dims, self.dims[:1], self.dims[1:]))
        loops: list[UOp] = []
        for d in over:
            fixed = not isinstance(d, UOp)
            k = self.one(kinds) if fixed and d <= 8 else "loop"
            bound = d if parallel else self.bounded(d, Scope(tuple(loops)))
            loops.append(self.loop(bound, k))
        scope = Scope(tuple(loops), parallel)
        if kind == "register" and not parallel:
            self.register(scope)
            return
        made = [self.store(scope) for _ in range(1 if parallel else self.random.randint(1, 3))]
        self.close([effect for effect, _ in made], [step for _, step in made], scope.loops)

    def close(
        self, effects: list[UOp], steps: list[Callable[[Env], None]], loops: tuple[UOp, ...]
    ) -> None:
        """The END of the stores of a nest, and its iterations."""
        effect = UOp.group(*effects).end(*loops) if loops else UOp.group(*effects)
        self.effects.append(effect)
        for p in self.params:
            self.seen[p] = [effect]

        def run(e: Env, left: tuple[UOp, ...] = loops) -> None:
            if not left:
                for step in steps:
                    step(e)
                return
            for i in range(self.end(left[0], e)):
                e.at[left[0]] = i
                run(e, left[1:])

        self.steps.append(run)

    def store(self, scope: Scope) -> tuple[UOp, Callable[[Env], None]]:
        """A store to an element or a row. Later ones come after it."""
        p = self.one(self.outs)
        if scope.parallel:
            places = [Value(r, lambda e, r=r: np.asarray(e.at[r])) for r in scope.loops]  # type: ignore[misc]
        else:
            places = [self.place(d, scope) for d in self.dims]
        value = self.element(p.dtype, scope, self.random.randint(1, 3))
        gate = self.element(dtypes.int32, scope, 0) if self.random.random() < 0.2 else None
        target = self.version(p).index(*[i.node for i in places])
        effect = target.store(value.node, None if gate is None else gate.node < 3)
        shape = self.start[p].shape

        def step(e: Env) -> None:
            at = tuple([int(i.meaning(e)) for i in places])
            if all([0 <= x < size for x, size in zip(at, shape)]) and (
                gate is None or gate.meaning(e) < 3
            ):
                e.memory[p][at] = _checked(value.meaning(e))

        for q in self.params:
            self.seen[q] = [effect]
        return effect, step

    def touch(self, p: UOp) -> None:
        """Add 1 to the first element."""

        def step(e: Env) -> None:
            e.memory[p][0, 0] = _checked(e.memory[p][0, 0] + _one(p))

        now = self.version(p)
        self.close([now.index(0, 0).store(now.index(0, 0) + 1)], [step], ())

    def whole(self) -> None:
        """A store of rows, or to a window, of values with shapes; the loops are not written."""
        p = self.one(self.outs)
        others = Scope((), True)
        value = self.row(p.dtype, others, 2)
        flipped = self.random.random() < 0.5
        view = self.version(p).flip(1) if flipped else self.version(p)
        effect = view.store(value.node)
        self.effects.append(effect)
        for q in self.params:
            self.seen[q] = [effect]

        def step(e: Env) -> None:
            e.memory[p][:, :: -1 if flipped else 1] = _checked(value.meaning(e))

        self.steps.append(step)

    def register(self, scope: Scope) -> None:
        """A register that an inner loop adds to, and a store of its last value."""
        p = self.one(self.outs)
        self.buffers += 1
        buffer = UOp(Ops.BUFFER, p.dtype, (), BufferArg(self.buffers, (1,), "", "reg"))
        first = self.element(p.dtype, scope, 1)
        start = buffer.after(buffer.after(*scope.loops)[0].store(first.node))
        r = self.loop(self.one((*self.dims, 3)))
        added = self.element(p.dtype, Scope((*scope.loops, r)), 1)
        op = self.one(("add", "max"))
        old = start.after(r).index(0)
        new = old + added.node if op == "add" else old.maximum(added.node)
        done = start.after(start.index(0).store(new).end(r))
        index = [self.place(d, scope) for d in self.dims]
        effect = self.version(p).index(*[i.node for i in index]).store(done.index(0))

        def step(e: Env) -> None:
            total = first.meaning(e)
            for i in range(self.end(r, e)):
                e.at[r] = i
                total = np.asarray(COMBINE[op](total, added.meaning(e)), p.dtype.numpy)
            at = tuple([int(i.meaning(e)) for i in index])
            if all([0 <= x < size for x, size in zip(at, self.start[p].shape)]):
                e.memory[p][at] = _checked(total)

        self.close([effect], [step], scope.loops)

    def simulated(self) -> list[Array]:
        """The arrays after the kernel."""
        env = Env({p: a.copy() for p, a in self.start.items()})
        with np.errstate(all="ignore"):
            for step in self.steps:
                step(env)
        return [_checked(a) for a in env.memory.values()]


def _checked(a: Array) -> Array:
    if a.dtype.kind == "f" and not (np.abs(a) < LARGEST).all():
        raise TooLarge
    return a


def _one(u: UOp) -> Array:
    return np.ones((), u.dtype.numpy)


def _identity(op: str, t: Any) -> Array:
    if op == "add":
        return np.zeros((), t.numpy)
    return np.asarray(-np.inf if t.is_float else np.iinfo(t.numpy).min, t.numpy)


def draw(seed: int, number: int) -> Program:
    program = Program(seed, number)
    for _ in range(program.random.randint(1, 3)):
        program.nest()
    for p in program.params:  # the slots of a kernel have no gaps
        if not any([p in effect.toposort() for effect in program.effects]):
            program.touch(p)
    return program


REFUSED = (
    "the value reads elements of", "nothing says whether", "before and", "more than", "leaves 64",
)  # fmt: skip


def run(seed: int, number: int) -> Verdict:
    """Run a case every way there is."""
    guards.guard_programs()
    verdict = Verdict()
    program = draw(seed, number)
    try:
        wanted = program.simulated()
    except TooLarge:
        return Verdict(refused="numbers too large")
    kernel = UOp.sink(*program.effects, name="k")
    for way in (*WAYS, None):
        arrays = [guards.guarded(a) for a in program.start.values()]
        try:
            if way is None:
                run_kernel(checked(facts_of(kernel), "cpu"), arrays, {"n": program.n})
            else:
                f = uopc.compile(kernel, verify=True, **way)
                f(*arrays)
        except Error as error:
            text = str(error).splitlines()[0]
            if any(word in text for word in REFUSED):
                return Verdict(refused=text[:60])
            verdict.failures.append(f"{way}: {error}")
            continue
        except Exception:
            verdict.failures.append(f"{way}: {traceback.format_exc(limit=-4)}")
            continue
        for p, got, want in zip(program.params, arrays, wanted):
            if not np.array_equal(got, want):
                verdict.failures.append(f"{way}: {p.arg.name} is {got!r}, want {want!r}")
    if verdict.failures:
        verdict.report = uopc.print_graph(kernel)
    return verdict
