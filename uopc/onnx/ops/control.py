"""Branches, loops and sequences."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import Error, Unsupported, UserError
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, SizesDiffer
from uopc.ir.index import affine, monomials
from uopc.ir.index.dims import maximum, minimum, plus, uop_dim
from uopc.onnx.node import MOST_PARTS, Decides, Node, dims, few, fixed
from uopc.onnx.registry import op
from uopc.onnx.values import (
    as_size,
    has_symbols,
    is_known,
    is_text,
    lifted,
    objects,
    params_of,
    settled,
    sizes_of,
)

# More steps than this are refused where each is a part of the graph.
MOST_STEPS = 4000


@op("If")
def branch(n: Node) -> Any:
    """Take the branch of a known condition; if it is computed, choose between both results."""
    yes, no = n.attr("then_branch", None), n.attr("else_branch", None)
    given = n.raw(0)
    if is_known(given) and not has_symbols(given):
        return tuple(n.run(yes if n.first(0) else no))
    condition = lifted(given.reshape(()))
    try:
        pairs = list(zip(n.run(yes), n.run(no)))
    except Error as error:  # of the branch that is not taken, which need not fit
        names = params_of(condition)
        if not names or (isinstance(error, SizesDiffer) and error.pairs):
            raise
        raise Decides(names) from error
    for a, b in pairs:
        if not (_is_tensor(a) and _is_tensor(b)) or lifted(a).shape != lifted(b).shape:
            raise _depends(condition)
    return tuple([uopc.where(condition, lifted(a), lifted(b)) for a, b in pairs])


def _depends(condition: UOp) -> UserError:
    """The error for branches of different shapes. If a computed size must have a value for the
    first branch, as where an exporter squeezes an axis of size 1, the program may require it."""
    error = Decides(params_of(condition))
    if condition.op is not Ops.CMPEQ or Ops.VARIABLE in [s.op for s in condition.src]:
        return error
    return SizesDiffer(str(error), [(condition.src[0], condition.src[1])])


def _is_true(v: Any) -> bool:
    return is_known(v) and not has_symbols(v) and bool(np.asarray(v).reshape(-1)[0])


def _is_tensor(v: Any) -> bool:
    return isinstance(v, (UOp, np.ndarray)) and not is_text(v)


@op("Loop")
def loop(n: Node) -> Any:
    """Make a loop in the graph if the body is the same for all steps. Otherwise unroll the steps:
    then each step has its own known values, and shapes may change."""
    if n.has(0) and not is_known(n.raw(0)):
        raise Decides(params_of(n.raw(0)))
    carried = n.inputs[2:]
    if all(map(_is_tensor, carried)):
        made = n.run(n.attr("body", None), [np.asarray(0, np.int64), n.raw(1), *carried])
        if not is_known(made):
            try:
                return _for_all_steps(n, made)
            except (Decides, Unsupported):  # a step needs to know a value, or changes a shape
                return _step_after_step(n)
    return _step_after_step(n)


def _for_all_steps(n: Node, made: list[Any]) -> Any:
    """Make a scan, or a while_loop if a value ends the loop. `made`: the results of one step."""
    body, count, going = n.attr("body", None), n.ints(0), n.raw(1)
    first = tuple([lifted(v) for v in n.inputs[2:]])
    steps = None if count is None else count[0]
    holds, goes_on = [v is None or _is_true(v) for v in (going, made[0])]
    if holds and has_symbols(made[0]) and (counted := _counted_steps(n, made)) is not None:
        steps = counted if steps is None else minimum(counted, steps)
        goes_on = True

    def after(number: UOp, carried: Sequence[UOp]) -> list[UOp]:
        found = [lifted(v) for v in n.run(body, [number, np.asarray(True), *carried])]
        for new, old in zip(found[1:], carried):
            if dims(new) != dims(old) or new.dtype is not old.dtype:
                raise Unsupported("a Loop whose steps change a shape or dtype is not supported")
        return found

    if holds and goes_on and steps is not None:
        numbers = uopc.arange(steps, dtype=dtypes.int64)
        split = len(first)

        def step(carried: Any, number: UOp) -> Any:
            values = after(number, carried)[1:]
            return tuple(values[:split]), tuple(values[split:])

        last, rows = uopc.scan(step, first, numbers)
        return *last, *rows
    if len(made) > 1 + len(first):
        raise Unsupported("a Loop with a condition must not give a result per step")
    begin = uopc.constant(True) if holds else lifted(going).reshape(())
    zero = uopc.constant(0, dtypes.int64)

    def goes(state: Any) -> Any:
        number, more, _ = state
        return more if steps is None else more & (number < steps)

    def next_state(state: Any) -> Any:
        number, _, carried = state
        more, *values = after(number, carried)
        return number + 1, more.reshape(()), tuple(values)

    _, _, last = uopc.while_loop(goes, next_state, (zero, begin, first))
    return last


def _counted_steps(n: Node, made: list[Any]) -> Dim | None:
    """The steps of a loop that ends where a counter reaches a size; None for other loops. `made`:
    the results of one step.

    By induction: at step k a counter is its begin + k * its stride, if the step adds this stride to
    any such number, and the loop goes on exactly while k is below the numbers found.
    """
    k = uopc.variable("step of a loop", 0, (1 << 24) - 2)  # floats count on as far as that
    given, counters = [], {}
    for i, (v, w) in enumerate(zip(n.inputs[2:], made[1:])):
        if _is_counter(v) and _is_counter(w):
            begin, stride = as_size(v.reshape(-1)[0]), as_size(w.reshape(-1)[0])
            counters[i] = begin + (k + 1) * (stride - begin)
            v = sizes_of([begin + k * (stride - begin)], v.shape, dtypes.from_numpy(v.dtype))
        elif w is not v:
            v = uopc.param(f"carried {i}", lifted(v).shape, lifted(v).dtype)
        given.append(v)
    number = objects([k]).reshape(())
    going, *after = n.trial(n.attr("body", None), [number, np.asarray(True), *given])
    for i, expected in counters.items():
        if not is_known(after[i]) or as_size(after[i].reshape(-1)[0]) is not expected:
            return None
    if not has_symbols(going):
        return None
    conditions = monomials.factors(as_size(going.reshape(-1)[0]))
    limits = [end for c in conditions if (end := _first_false(c, k)) is not None]
    return plus(functools.reduce(minimum, limits), 1) if len(limits) == len(conditions) else None


def _is_counter(v: Any) -> bool:
    known = isinstance(v, np.ndarray) and v.dtype.kind in "iuf" and v.size == 1
    return known and bool((v == np.trunc(v)).all())


def _first_false(condition: UOp, k: UOp) -> Dim | None:
    """The least k from 0 on for which a condition is False, if it is True below: for E - s*k > 0
    that is E / s, rounded up. None for other conditions."""
    if not monomials.is_condition(condition) or condition.src[0].op is not Ops.CMPLT:
        return None
    a, b = condition.src[0].src
    gap = affine.sub(b, a)
    stride = -affine.form(gap)[1].get(k, 0)
    end = affine.add(gap, affine.scaled(k, stride))
    if stride <= 0 or k in end.toposort():
        return None
    return maximum(-(-uop_dim(end) // stride), 0)


def _step_after_step(n: Node) -> Any:
    """Unroll the steps. Decides if the condition that ends the loop is computed."""
    body, count = n.attr("body", None), n.first(0)
    steps = MOST_STEPS + 1 if count is None else int(count)
    going: Any = n.raw(1)
    carried = list(n.inputs[2:])
    scanned: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    step = 0
    while step < steps:
        if going is not None:
            if not is_known(going) or has_symbols(going):
                raise Decides(params_of(going))
            if not bool(np.asarray(going).reshape(-1)[0]):
                break
        if step >= MOST_STEPS:
            raise Unsupported(f"a Loop that is written out must have at most {MOST_STEPS} steps")
        made = n.run(body, [np.asarray(step, np.int64), going, *carried])
        going, carried = settled(made[0]), made[1 : 1 + len(carried)]
        for row, v in zip(scanned, made[1 + len(carried) :]):
            row.append(v)
        step += 1
    return *carried, *[_stacked(rows) for rows in scanned]


def _stacked(rows: list[Any]) -> Any:
    if not rows:
        return np.zeros((0,), np.float32)
    if all([isinstance(r, np.ndarray) for r in rows]):
        return np.stack(rows)
    first, *rest = [lifted(r) for r in rows]
    return uopc.stack(first, *rest)


@op("Scan", since=9)
def scan(n: Node) -> Any:
    """Loop over slices of the inputs by `uopc.scan`."""
    body, count = n.attr("body", None), n.attr("num_scan_inputs", 0)
    states = [lifted(v) for v in n.inputs[: len(n.inputs) - count]]
    given = [lifted(v) for v in n.inputs[len(states) :]]
    axes = n.attr("scan_input_axes", [0] * count)
    backwards = n.attr("scan_input_directions", [0] * count)
    outs = len(body.output) - len(states)
    moved = []
    for x, axis, back in zip(given, axes, backwards):
        rank = len(x.shape)
        axis %= rank
        x = x.permute(axis, *[i for i in range(rank) if i != axis])
        moved.append(x.flip(0) if back else x)

    def step(carry: Any, rows: Any) -> Any:
        made = [lifted(v) for v in n.run(body, [*carry, *rows])]
        return tuple(made[: len(states)]), tuple(made[len(states) :])

    last, all_ = uopc.scan(step, tuple(states), tuple(moved))
    results = []
    for x, axis, back in zip(
        all_, n.attr("scan_output_axes", [0] * outs), n.attr("scan_output_directions", [0] * outs)
    ):
        x = x.flip(0) if back else x
        order = list(range(1, len(x.shape)))
        order.insert(axis % len(x.shape), 0)
        results.append(x.permute(tuple(order)))
    return *last, *results


@op("Scan")
def scan_8(n: Node) -> Any:
    """Version 8: run a scan for each element of the batch, for as many steps as `sequence_lens`
    says. After these steps the states stay, and the results are 0."""
    values = [lifted(v) for v in n.inputs[1:]]
    count, lengths = n.attr("num_scan_inputs", 0), n.maybe(0)
    backwards = list(n.attr("directions", [0] * count))
    if lengths is not None and any(backwards):
        raise Unsupported("a Scan of version 8 with sequence_lens must not go backwards")
    states = len(values) - count
    attributes = {
        "body": n.attr("body", None), "num_scan_inputs": count + (lengths is not None),
        "scan_input_directions": [*backwards, 0],
    }  # fmt: skip
    batch, steps = fixed(dims(values[0])[0], "Scan: the batch"), dims(values[-1])[1]
    made = []
    for b in range(batch):
        own, run = [v[b] for v in values], n.run
        if lengths is not None:
            own.append(uopc.arange(steps, dtype=dtypes.int64))
            run = functools.partial(_until, n.run, lengths[b], states)
        made.append(scan(Node(own, attributes, n.outputs, n.version, run)))
    return tuple([uopc.stack(*parts) for parts in zip(*made)])


def _until(run: Any, length: UOp, states: int, body: Any, values: list[Any]) -> list[UOp]:
    """Run a step, numbered by the last value; after `length` steps keep the states and give 0s."""
    *own, number = values
    going, made = number < length, [lifted(v) for v in run(body, own)]
    kept = [*own[:states], *[0] * (len(made) - states)]
    return [uopc.where(going, new, old).cast(new.dtype) for new, old in zip(made, kept)]


# ---------------------------------------------------------------- sequences
def _sequence(n: Node) -> list[Any]:
    found = n.raw(0)
    if not isinstance(found, list):
        raise UserError("expected a sequence, got a tensor")
    return found


def _place(n: Node, k: int, size: int, default: int) -> int:
    known = n.first(k)
    at = default if known is None else int(known)
    if not -size <= at <= size:
        raise UserError(f"position {at} is out of range for a sequence of {size}")
    return at + size if at < 0 else at


op("SequenceConstruct SequenceEmpty")(lambda n: (list(n.inputs),))
op("SequenceLength")(lambda n: np.asarray(len(_sequence(n)), np.int64))
op("OptionalHasElement")(lambda n: np.asarray(n.has(0)))


@op("SequenceAt")
def sequence_at(n: Node) -> Any:
    found = _sequence(n)
    return found[_place(n, 1, len(found), 0)]


@op("SequenceInsert")
def sequence_insert(n: Node) -> Any:
    """Insert a tensor at a position; by default at the end."""
    found = list(_sequence(n))
    found.insert(_place(n, 2, len(found), len(found)), n.raw(1))
    return (found,)


@op("SequenceErase")
def sequence_erase(n: Node) -> Any:
    """Remove the tensor at a position; by default the last."""
    found = list(_sequence(n))
    del found[_place(n, 1, len(found), len(found) - 1)]
    return (found,)


@op("ConcatFromSequence")
def concat_from_sequence(n: Node) -> UOp:
    """Join the tensors of a sequence along an axis, or along a new axis."""
    first, *rest = [lifted(v) for v in _sequence(n)]
    if n.attr("new_axis", 0):
        return uopc.stack(first, *rest, axis=n.attr("axis", 0))
    return uopc.cat(first, *rest, axis=n.axis(0, len(first.shape)))


@op("SplitToSequence")
def split_to_sequence(n: Node) -> Any:
    """Split into parts of one size or of given sizes, or into slices."""
    x = n.x(0)
    axis, whole = n.axis(0, len(x.shape)), dims(x)[n.axis(0, len(x.shape))]
    given = n.known(1)
    if given is None or given.ndim == 0:
        each = 1 if given is None else int(given)
        whole = fixed(whole, "SplitToSequence: the size of the axis")
        few(whole / each, "SplitToSequence", MOST_PARTS)
        sizes = [min(each, whole - at) for at in range(0, whole, each)]
    else:
        sizes = [int(s) for s in given]
    parts, at = [], 0
    for s in sizes:
        part = x[(*[slice(None)] * axis, slice(at, at + s))]
        gone = given is None and not n.attr("keepdims", 1)
        parts.append(part.squeeze(axis) if gone else part)
        at += s
    return (parts,)
