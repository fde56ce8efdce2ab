"""Random programs of assignments, against an evaluation by values.

A value never changes: a read of an array before an assignment stays what it was. The contents of an
array follow from the assignments that a graph comes after; where two of them write one byte and no
order is given, the byte may be either, so nothing reads it and it is not compared.
"""

from __future__ import annotations

import random
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import uopc
from tests.fuzz.kinds import Verdict
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

Array = npt.NDArray[Any]
GUARD, GUARDED = 64, 0x5A  # bytes around each array, and what they hold
MOST_N = 7


@dataclass(eq=False)
class Write:
    """An assignment: to a part of an array, as offsets into its bytes, of these bytes; and the
    assignments that its graph comes after."""

    name: str
    where: Array
    data: Array
    after: frozenset[Write]


@dataclass
class Place:
    """A view of a param: the graph, and the offsets of its bytes, (…, item size)."""

    node: UOp
    name: str
    where: Array


@dataclass
class Value:
    """A computed value: the graph, and what it means."""

    node: UOp
    array: Array


class Ambiguous(Exception):
    """A graph reads bytes that two assignments write, with no order between them."""


class Program:
    """A program that grows step by step."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"assigns {seed} {number}")
        self.rng = np.random.default_rng(self.random.getrandbits(32))
        self.n = self.random.randint(2, MOST_N)  # of symbolic sizes
        self.writes: dict[UOp, Write] = {}  # of each STORE
        self.inputs: dict[str, Array] = {}
        self.dtype = self.one((dtypes.int32, dtypes.int32, dtypes.int64, dtypes.uint8))
        self.symbolic = self.random.random() < 0.25
        dims = self.one(((8,), (6,), (4, 4), (3, 5), (1,), (70,)))
        self.dims: tuple[Any, ...] = dims
        shape = dims
        if self.symbolic:
            self.dims, shape = (uopc.variable("n", 2, MOST_N), *dims[1:]), (self.n, *dims[1:])
        self.shape = shape
        self.places: list[Place] = []
        self.values: list[Value] = []
        size = self.dtype.itemsize
        for name in "abc"[: self.random.randint(1, 3)]:
            self.inputs[name] = self.rng.integers(0, 100, shape).astype(self.dtype.numpy)
            where = np.arange(self.inputs[name].nbytes).reshape(*shape, size)
            self.places.append(Place(uopc.param(name, self.dims, self.dtype), name, where))

    def one(self, some: Any) -> Any:
        return self.random.choice(some)

    # ------------------------------------------------------------ what a graph means
    def below(self, *nodes: UOp) -> list[Write]:
        """The assignments in a graph, in the order they were made."""
        found = {u for v in nodes for u in v.toposort() if u.op is Ops.STORE}
        return [w for store, w in self.writes.items() if store in found]

    def contents(self, name: str, writes: list[Write]) -> tuple[Array, Array]:
        """The bytes of an array after some writes, and which of them no order decides."""
        data: Array = self.inputs[name].reshape(-1).view(np.uint8).copy()
        done: list[tuple[Write, Array]] = []
        unknown = np.zeros(data.size, np.bool_)
        for w in writes:
            if w.name == name:
                here = np.zeros(data.size, np.bool_)
                here[w.where] = True
                data[w.where] = w.data
                unknown &= ~here
                for other, there in done:
                    if other not in w.after:
                        unknown |= here & there
                done.append((w, here))
        return data, unknown

    def seen(self, place: Place) -> Array:
        """The elements that a place shows; Ambiguous if they are not decided."""
        data, unknown = self.contents(place.name, self.below(place.node))
        if unknown[place.where].any():
            raise Ambiguous
        found: Array = np.ascontiguousarray(data[place.where]).view(place.node.dtype.numpy)
        return found[..., 0]

    # ------------------------------------------------------------ steps
    def view(self, place: Place) -> Place:
        """Perhaps a part of a place, or its elements in another order."""
        node, where = place.node, place.where
        for _ in range(self.one((0, 0, 1, 1, 2))):
            kind = self.random.random()
            rank = where.ndim - 1
            if rank == 0:
                break
            axis = self.random.randrange(rank)
            length = where.shape[axis]
            known = isinstance(node.shape[axis], int)
            if kind < 0.4 and length:
                low = 0 if known else 2
                begin = self.random.randrange(length if known else min(length, low) or 1)
                end = self.random.randint(begin, length if known else max(begin, low))
                if end == begin:
                    continue
                at = (*[slice(None)] * axis, slice(begin, end))
                node, where = node[at], where[at]
            elif kind < 0.6:
                node, where = node.flip(axis), np.flip(where, axis)
            elif kind < 0.75 and rank == 2:
                node, where = node.transpose(), np.swapaxes(where, 0, 1)
            elif kind < 0.85 and rank == 2 and all(isinstance(d, int) for d in node.shape):
                node = node.reshape(where.shape[0] * where.shape[1])
                where = where.reshape(-1, where.shape[-1])
            elif kind < 0.95 and node.dtype is dtypes.int32:
                node = node.bitcast(dtypes.uint32)
        return Place(node, place.name, where)

    def operand(self, shape: tuple[int, ...], dims: Any) -> Value:
        """A value of a shape: a place seen now, an earlier value, or an element of one."""
        fits = [v for v in self.values if v.array.shape == shape and list(v.node.shape) == dims]
        kind = self.random.random()
        if fits and kind < 0.3:
            return self.one(fits)
        for _ in range(8):
            place = self.view(self.one(self.places))
            if place.where.shape[:-1] == shape and list(place.node.shape) == dims:
                return self.shown(place)
        if kind < 0.9:
            place = self.one(self.places)
            shown = self.shown(place)
            kind = self.random.random()
            if kind < 0.5:
                with np.errstate(all="ignore"):
                    array = np.asarray(shown.array.astype(np.int64).sum()).astype(self.dtype.numpy)
                return Value(shown.node.sum().cast(self.dtype), array)
            if place.where.size:
                at = tuple([0 for _ in shown.array.shape])
                return Value(shown.node[at], shown.array[at])
        array = np.asarray(self.random.randrange(50), self.dtype.numpy)
        return Value(uopc.full((), int(array), self.dtype), array)

    def shown(self, place: Place) -> Value:
        node, array = place.node, self.seen(place)
        if node.dtype is not self.dtype:
            node, array = node.bitcast(self.dtype), array.view(self.dtype.numpy)
        return Value(node, array)

    def computed(self, shape: tuple[int, ...], dims: Any) -> Value:
        value = self.operand(shape, dims)
        for _ in range(self.one((0, 1, 1, 2))):
            other = self.operand(shape, dims)
            kind = self.random.random()
            a, b = value, other
            with np.errstate(all="ignore"):
                if kind < 0.5:
                    value = Value(a.node + b.node, a.array + b.array)
                elif kind < 0.8:
                    value = Value(a.node * 3 - b.node, a.array * self.dtype.numpy.type(3)
                                  - b.array)  # fmt: skip
                elif a.array.ndim:
                    value = Value(a.node.flip(0) ^ b.node, np.flip(a.array, 0) ^ b.array)
            if value.array.dtype != self.dtype.numpy:
                value = Value(value.node.cast(self.dtype), value.array.astype(self.dtype.numpy))
        if self.random.random() < 0.1:
            value = Value(value.node.contiguous(), value.array)
        return value

    def assign(self) -> None:
        """Assign to a view of a param, mostly in its latest state; sometimes it to itself."""
        recent = self.places[-3:] if self.random.random() < 0.7 else self.places
        target = self.view(self.one(recent))
        shape, dims = target.where.shape[:-1], list(target.node.shape)
        kind = self.random.random()
        if kind < 0.05:
            value = self.shown(target)
        else:
            value = self.computed(shape, dims)
        node, array = value.node, np.broadcast_to(value.array, shape)
        t = target.node.dtype
        if t is not self.dtype:
            node = node.expand(tuple(dims)) if tuple(node.shape) != tuple(dims) else node
            node, array = node.bitcast(t), np.ascontiguousarray(array).view(t.numpy)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        made = target.node.assign(node)
        self.places.append(Place(made, target.name, target.where))
        for effect in made.src[1:] if made.op is Ops.AFTER else ():
            if effect not in self.writes:
                below = frozenset(self.below(*effect.src))
                self.writes[effect] = Write(target.name, target.where.reshape(-1), data, below)
            if self.random.random() < 0.6:  # the whole array after it
                base = next(p for p in self.places if p.name == target.name)
                self.places.append(Place(base.node.after(effect), target.name, base.where))

    def outputs(self) -> list[Value]:
        found = []
        for _ in range(self.random.randint(0, 2)):
            place = self.view(self.one(self.places))
            shown = self.shown(place)
            other = self.computed(shown.array.shape, list(shown.node.shape))
            found.append(self.one((shown, other)))
        last = [p for p in self.places if p.node.op is Ops.AFTER]
        return found + [self.shown(p) for p in last[-self.random.randint(1, 2) :]]


def drawn(seed: int, number: int) -> tuple[Program, list[Value]]:
    """The program of a number, and its outputs."""
    p = Program(seed, number)
    for _ in range(p.random.randint(1, 6)):
        attempt(p.assign)
    for _ in range(20):
        if found := attempt(p.outputs):
            return p, found
    return p, [p.shown(p.places[0])]


def attempt(step: Any) -> Any:
    """A step of a program, unless what it reads is not decided."""
    try:
        return step()
    except Ambiguous:
        return None


def guarded(array: Array) -> tuple[Array, Array]:
    """A copy of an array between guard bytes: the bytes, and the copy in them."""
    whole = np.full(array.nbytes + 2 * GUARD, GUARDED, np.uint8)
    inside = whole[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
    inside[...] = array
    return whole, inside


def differences(p: Program, found: list[Value], run: Any) -> list[str]:
    """The differences between the results of one way of running a program and its meaning."""
    memory = {name: guarded(a) for name, a in p.inputs.items()}
    got = run({name: inside for name, (_, inside) in memory.items()})
    wrong = []
    for i, (value, array) in enumerate(zip(found, got, strict=True)):
        want = np.asarray(value.array)
        array = np.asarray(array)
        if array.shape != want.shape or array.dtype != want.dtype or (array != want).any():
            wrong.append(f"output {i}: {array!r}, want {want!r}")
    writes = p.below(*[v.node for v in found])
    for name, (whole, inside) in memory.items():
        want, unknown = p.contents(name, writes)
        here = inside.reshape(-1).view(np.uint8)
        if ((here != want) & ~unknown).any():
            left = want.view(inside.dtype).reshape(inside.shape)
            wrong.append(f"{name}: {inside!r}, want {left!r}")
        if (whole[:GUARD] != GUARDED).any() or (whole[-GUARD:] != GUARDED).any():
            wrong.append(f"{name}: written outside")
    return wrong


def run(seed: int, number: int) -> Verdict:
    """Run a program every way there is."""
    p, found = drawn(seed, number)
    nodes = tuple([v.node for v in found])
    sizes = {"n": p.n} if any(u.op is Ops.VARIABLE for v in nodes for u in v.toposort()) else {}
    asked = {} if any(u.op is Ops.PARAM and u.src for v in nodes for u in v.toposort()) else sizes
    verdict = Verdict()
    ways: dict[str, Any] = {
        "interpreted": lambda arrays: interpreter.evaluate(list(nodes), arrays, sizes),
    }
    for optimize, threads in ((True, p.one((1, 2))), (False, 1)):
        def call(arrays: Any, optimize: bool = optimize, threads: int = threads) -> Any:
            made = uopc.compile(nodes, verify=True, optimize=optimize, threads=threads)
            used = {a.name for a in made.inputs}
            return made(**{k: a for k, a in arrays.items() if k in used}, **asked)

        ways[f"optimize={optimize}, threads={threads}"] = call
    for name, way in ways.items():
        try:
            verdict.failures += [f"{name}: {w}" for w in differences(p, found, way)]
        except UserError as error:
            verdict.refused = str(error).splitlines()[0]
        except Exception:  # any other error is a finding
            verdict.failures.append(f"{name}: {traceback.format_exc(limit=-4)}")
    if verdict.failures:
        given = "\n".join(f"{k} = {a!r}" for k, a in p.inputs.items())
        graph = uopc.print_graph(UOp(Ops.SINK, dtypes.void, nodes))
        verdict.report = f"{graph}\n{given}\nn = {p.n}"
    return verdict
