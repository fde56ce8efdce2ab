"""MX Functions: calls that are alike become one batch, and calls in a row one loop.

    for k in range(N):                 scan of `step` over u, its carry is x;
        x = step(x, u[k])           →  `cost` of all x and u as one vmap
        J += cost(x, u[k])

`MatrixCode` reads the instructions once, into values. Functions that only pass values on, as those
that `mapaccum` and `fold` make, are read through. A value has a level: the number of calls that it
waits for. Calls of one Function at one level are one vmap. Calls of one Function in a row, where
each reads results of the one before as the same arguments and the other arguments do not wait for
the row, are one scan, which counts as one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

import casadi as ca
import numpy as np

from uopc.casadi.instruction import Instruction
from uopc.casadi.instructions import value_of
from uopc.casadi.structures import joined, zeros
from uopc.ir.builder import movement
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.tracing.loops import scan
from uopc.tracing.transforms import vmap

FEWEST = 3  # calls that become a scan
Lower = Callable[[ca.Function, Sequence[UOp]], list[UOp]]
_WIRES = {
    ca.OP_INPUT, ca.OP_OUTPUT, ca.OP_CALL, ca.OP_HORZSPLIT, ca.OP_VERTSPLIT, ca.OP_HORZCAT,
    ca.OP_VERTCAT,
}  # fmt: skip
_SPLITS = {ca.OP_HORZSPLIT, ca.OP_VERTSPLIT, ca.OP_DIAGSPLIT}
_JOINS = {ca.OP_HORZCAT, ca.OP_VERTCAT, ca.OP_DIAGCAT}
_CASTS = {ca.OP_RESHAPE, ca.OP_SPARSITY_CAST}
READ_THROUGH = _SPLITS | _JOINS | _CASTS  # they compute nothing


@dataclass(eq=False)
class MatrixValue:
    """A vector of nonzeros (or, of a call, of several) that the Function computes."""

    operands: tuple[MatrixValue, ...]
    nnz: int
    level: int = field(default=0, init=False)


class GivenInput(MatrixValue):
    """An input of the Function."""


class NoNonzeros(MatrixValue):
    """A matrix of `nnz` zeros: an argument or a result that was left out."""


@dataclass(eq=False)
class PartOfValue(MatrixValue):
    """Some elements of another value, from `begin` on."""

    begin: int


class JoinedValues(MatrixValue):
    """Values one after another."""


@dataclass(eq=False)
class Operation(MatrixValue):
    """The result of an instruction with a rule."""

    node: Instruction


@dataclass(eq=False)
class FunctionCall(MatrixValue):
    """A call of a Function, and the row of calls to which it belongs."""

    function: ca.Function
    row: CallRow | None = field(default=None, init=False)


@dataclass(eq=False)
class CallResult(MatrixValue):
    """One result of a call."""

    output: int


@dataclass(eq=False)
class CallRow:
    """Calls in a row: argument i of each is output o of the one before it, for (i, o) of links."""

    links: tuple[tuple[int, int], ...]
    calls: list[FunctionCall]


class MatrixCode:
    """The values of an MX Function in order."""

    def __init__(self, f: ca.Function, lower: Lower) -> None:
        self.lower = lower
        self.values: list[MatrixValue] = []
        self.inputs = [self._new(GivenInput((), f.nnz_in(i))) for i in range(f.n_in())]
        self.outputs = self._read(f, self.inputs)
        self.calls = [v for v in self.values if isinstance(v, FunctionCall)]
        self._set_levels()
        while self._find_rows():
            self._set_levels()

    # ------------------------------------------------------------ reading
    def _new(self, v: MatrixValue) -> MatrixValue:
        self.values.append(v)
        return v

    def _part(self, v: MatrixValue, begin: int, n: int) -> MatrixValue:
        """Elements of a value; of a part of it, or of one that it joins, if that has them all."""
        if begin == 0 and n == v.nnz:
            return v
        if isinstance(v, PartOfValue):
            return self._part(v.operands[0], v.begin + begin, n)
        if isinstance(v, JoinedValues):
            at = 0
            for part in v.operands:
                if at <= begin and begin + n <= at + part.nnz:
                    return self._part(part, begin - at, n)
                at += part.nnz
        return self._new(PartOfValue((v,), n, begin))

    def _joined(self, parts: Sequence[MatrixValue]) -> MatrixValue:
        if len(parts) == 1:
            return parts[0]
        return self._new(JoinedValues(tuple(parts), sum([p.nnz for p in parts])))

    def _read(self, f: ca.Function, inputs: Sequence[MatrixValue]) -> list[MatrixValue]:
        """The outputs of a Function of these inputs."""
        work: dict[int, MatrixValue] = {}
        found: list[list[tuple[int, MatrixValue]]] = [[] for _ in range(f.n_out())]
        for k in range(f.n_instructions()):
            node = Instruction(f, k, f.instruction_id(k))
            read, written = f.instruction_input(k), f.instruction_output(k)
            if node.op == ca.OP_OUTPUT:
                found[node.info["ind"]].append((node.info["offset"], work[read[0]]))
                continue
            if node.op == ca.OP_INPUT:
                given = inputs[node.info["ind"]]
                made = [self._part(given, node.info["offset"], node.mx.nnz())]
            elif node.op == ca.OP_CALL:
                g = node.mx.which_function()
                made = self._call(g, [
                    self._new(NoNonzeros((), g.nnz_in(i))) if w < 0 else work[w]
                    for i, w in enumerate(read)
                ])  # fmt: skip
            else:
                made = self._results(node, [work[w] for w in read], len(written))
            work.update({w: v for w, v in zip(written, made) if w >= 0})
        return [self._output(f, i, parts) for i, parts in enumerate(found)]

    def _output(self, f: ca.Function, i: int, parts: list[tuple[int, MatrixValue]]) -> MatrixValue:
        if not parts:
            return self._new(NoNonzeros((), f.nnz_out(i)))
        return self._joined([v for _, v in sorted(parts, key=lambda p: p[0])])

    def _results(
        self, node: Instruction, operands: list[MatrixValue], count: int
    ) -> list[MatrixValue]:
        """The results of an instruction that is neither an input, an output nor a call."""
        if node.op in _SPLITS:
            sizes = [node.mx.get_output(o).nnz() for o in range(count)]
            begins = np.cumsum([0, *sizes]).tolist()
            return [self._part(operands[0], b, n) for b, n in zip(begins, sizes)]
        if node.op in _JOINS:
            return [self._joined(operands)]
        if node.op in _CASTS:
            return operands
        return [self._new(Operation(tuple(operands), node.mx.nnz(), node))]

    def _call(self, g: ca.Function, args: list[MatrixValue]) -> list[MatrixValue]:
        if g.class_name() == "MXFunction":
            ops = {g.instruction_id(k) for k in range(g.n_instructions())}
            if ca.OP_CALL in ops and ops <= _WIRES:
                return self._read(g, args)
        call = self._new(FunctionCall(tuple(args), 0, g))
        return [self._new(CallResult((call,), g.nnz_out(o), o)) for o in range(g.n_out())]

    # ------------------------------------------------------------ rows and levels
    def _set_levels(self) -> None:
        for v in self.values:
            v.level = max([u.level for u in v.operands], default=0)
            if isinstance(v, FunctionCall):
                first = v if v.row is None else v.row.calls[0]
                v.level = v.level + 1 if v is first else first.level

    def _find_rows(self) -> bool:
        """Give calls in a row their CallRow; False if there is no new one."""
        before: dict[FunctionCall, tuple[FunctionCall, tuple[tuple[int, int], ...]]] = {}
        taken: set[FunctionCall] = set()
        for call in self.calls:
            links = _links(call)
            makers = {maker for _, _, maker in links}
            if call.row is None and len(makers) == 1 and not makers & taken:
                taken |= makers
                before[call] = makers.pop(), tuple([(i, o) for i, o, _ in links])
        rows: dict[FunctionCall, CallRow] = {}
        for call, (maker, pairs) in before.items():
            row = rows.pop(maker, None) or CallRow(pairs, [maker])
            linked = {i for i, _ in pairs}
            others = [v.level for i, v in enumerate(call.operands) if i not in linked]
            if row.links == pairs and max(others, default=0) < row.calls[0].level:
                row.calls.append(call)
                rows[call] = row
            else:
                rows[maker] = row
        made = [row for row in rows.values() if len(row.calls) >= FEWEST]
        for row in made:
            for call in row.calls:
                call.row = row
        return bool(made)

    # ------------------------------------------------------------ computing
    def computed(self, args: Sequence[UOp]) -> list[UOp]:
        """The nodes of the outputs for those of the inputs, level by level."""
        nodes: dict[MatrixValue, UOp] = dict(zip(self.inputs, args))
        results: dict[FunctionCall, list[UOp]] = {}
        levels: dict[int, list[MatrixValue]] = {}
        for v in self.values:
            levels.setdefault(v.level, []).append(v)
        for _, values in sorted(levels.items()):
            calls = [v for v in values if isinstance(v, FunctionCall)]
            for group in _groups(calls):
                results.update(zip(group, self._called(group, nodes)))
            for v in values:
                if not isinstance(v, (GivenInput, FunctionCall)):
                    nodes[v] = _node(v, nodes, results)
        return [nodes[v] for v in self.outputs]

    def _called(self, calls: list[FunctionCall], nodes: dict[MatrixValue, UOp]) -> list[list[UOp]]:
        """The results of calls of one Function: of one, of a row, or of several that are apart."""
        f = calls[0].function
        if len(calls) == 1:
            return [self.lower(f, [nodes[v] for v in calls[0].operands])]
        if calls[0].row is not None:
            return self._scanned(calls[0].row, nodes)
        columns = [_column(values, nodes) for values in zip(*[c.operands for c in calls])]
        made = batch(self.lower, f, len(calls), [u for u, _ in columns], [a for _, a in columns])
        return [[u[k] for u in made] for k in range(len(calls))]

    def _scanned(self, row: CallRow, nodes: dict[MatrixValue, UOp]) -> list[list[UOp]]:
        f, links, calls = row.calls[0].function, dict(row.links), row.calls
        columns = {
            i: _column(values, nodes)
            for i, values in enumerate(zip(*[c.operands for c in calls])) if i not in links
        }  # fmt: skip
        moving = [i for i, (_, axis) in columns.items() if axis is not None]
        fixed = {i: u for i, (u, axis) in columns.items() if axis is None}

        def step(carry: tuple[UOp, ...], xs: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], list[UOp]]:
            given = {**fixed, **dict(zip(links, carry)), **dict(zip(moving, xs))}
            made = self.lower(f, [given[i] for i in range(f.n_in())])
            return tuple([made[o] for o in links.values()]), made

        begin = tuple([nodes[calls[0].operands[i]] for i in links])
        _, made = scan(step, begin, tuple([columns[i][0] for i in moving]), length=len(calls))
        return [[u[k] for u in made] for k in range(len(calls))]


def _links(call: FunctionCall) -> list[tuple[int, int, FunctionCall]]:
    """The arguments that are results of calls of the same Function: (argument, output, call)."""
    found = []
    for i, v in enumerate(call.operands):
        if isinstance(v, CallResult):
            (maker,) = v.operands
            assert isinstance(maker, FunctionCall)
            if maker.function.__hash__() == call.function.__hash__() and maker.row is None:
                found.append((i, v.output, maker))
    return found


def _groups(calls: Iterable[FunctionCall]) -> list[list[FunctionCall]]:
    """Calls of one level that are computed together: those of a row, and those of one Function."""
    found: dict[object, list[FunctionCall]] = {}
    for call in calls:
        found.setdefault(call.row or call.function.__hash__(), []).append(call)
    return list(found.values())


def _node(
    v: MatrixValue, nodes: dict[MatrixValue, UOp], results: dict[FunctionCall, list[UOp]]
) -> UOp:
    """The node of a value whose operands have theirs."""
    if isinstance(v, CallResult):
        (call,) = v.operands
        assert isinstance(call, FunctionCall)
        return results[call][v.output]
    operands = [nodes[u] for u in v.operands]
    if isinstance(v, PartOfValue):
        return operands[0][v.begin : v.begin + v.nnz]
    if isinstance(v, JoinedValues):
        return joined(operands)
    if isinstance(v, Operation):
        return value_of(v.node, operands)
    return zeros(v.nnz)


def _column(values: Sequence[MatrixValue], nodes: dict[MatrixValue, UOp]) -> tuple[UOp, int | None]:
    """An argument of several calls: values along a new first dimension, or one that is the same
    for all. Parts of one value, side by side, are a view of it."""
    first, n = values[0], values[0].nnz
    if all(v is first for v in values):
        return nodes[first], None
    if isinstance(first, PartOfValue):
        whole, begin = first.operands[0], first.begin
        wanted = [begin + k * n for k in range(len(values))]
        have = [v.begin for v in values if isinstance(v, PartOfValue) and v.operands[0] is whole]
        if have == wanted:
            return nodes[whole][begin : begin + n * len(values)].reshape(len(values), n), 0
    return movement.stack(*[nodes[v] for v in values]), 0


def batch(
    lower: Lower, f: ca.Function, n: int, args: Sequence[UOp], axes: Sequence[int | None]
) -> list[UOp]:
    """Each output of n calls, along a new first dimension. `axes`: 0 for an argument with such a
    dimension, None for one that is the same for all."""
    if all(axis is None for axis in axes):
        return [u.reshape(1, *u.shape).expand(n, *u.shape) for u in lower(f, args)]
    made = vmap(lambda *one: tuple(lower(f, one)), in_axes=tuple(axes))(*args)
    return list(made)
