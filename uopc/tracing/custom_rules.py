"""Derivatives that users give, `custom_jvp` and `custom_vjp`; and `checkpoint`.

A call is traced, and each result becomes a PRIMITIVE of the arguments. Its rule calls the user's
function when a derivative is requested.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from uopc.derivatives import batch, primitives
from uopc.derivatives import functions as calls
from uopc.derivatives.rule import DerivativeRule, Pushed
from uopc.derivatives.values import Value, filled
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.builder import leaves, movement, rebuild
from uopc.ir.builder.pytrees import LEAF, flatten, leaf_count, split, unflatten
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.args import PrimitiveArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, show_value
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.numpy.array import Array, births, current_trace, trace_of, uop_of
from uopc.tensor.functions import function
from uopc.tensor.loops import bodies
from uopc.tracing import memory

Function = Callable[..., Any]
_numbers = itertools.count(1)
_PROCESS = uuid.uuid4().hex[:12]  # part of a rule's name: the process that registered it


def _name_rule(rule: DerivativeRule, name: str) -> str:
    """Register a rule under a unique name, by which derivatives find the rule."""
    made = f"{name}.{next(_numbers)}.{_PROCESS}"
    primitives.RULES[made] = rule
    return made


# ---------------------------------------------------------------- a call
class _CallContainers:
    """The containers of a call, and whether its values are UOps or Arrays."""

    def __init__(self, structure: Any, of_uops: bool) -> None:
        self.structure, self.of_uops = structure, of_uops

    def tree(self, values: Iterable[UOp], structure: Any = None) -> Any:
        trace = current_trace.get()
        made = [u if self.of_uops else Array(u, trace) for u in values]
        return unflatten(self.structure if structure is None else structure, made)


def _nodes(who: str, tree: Any, like: Sequence[UOp], structure: Any) -> list[UOp]:
    """The nodes that a user's rule gives, checked against the values in `like`."""
    found, given = flatten(tree)
    if given != structure:
        raise UserError(f"{who}: the rule must give the containers of the values")
    made = []
    for (path, leaf), u in zip(found, like):
        v = uop_of(leaf, who, u.dtype)
        if v.dtype is not u.dtype or shapes.shape(v) != shapes.shape(u):
            where = f" at {path}" if path else ""
            raise UserError(
                f"{who}: the rule must give {show_value(u)}, got {show_value(v)}{where}"
            )
        made.append(v)
    return made


def _cotangents(who: str, tree: Any, like: Sequence[UOp], structure: Any) -> list[Value]:
    """Like `_nodes`, for a container in which None means zeros."""
    if tree is None:
        return [None] * len(like)
    found = None if structure == LEAF else split(tree)
    if found is None or (type(tree), found[0], tuple(found[1])) != structure[:3]:
        return list(_nodes(who, tree, like, structure))
    left = iter(like)
    made: list[Value] = []
    for part, inner in zip(found[2], structure.parts):
        made += _cotangents(who, part, list(itertools.islice(left, leaf_count(inner))), inner)
    return made


class _Custom:
    """A function with a rule of the user, called on containers of arrays."""

    def __init__(self, f: Function, fixed: Sequence[int]) -> None:
        if not callable(f):
            raise UserTypeError(f"{self.who}: expected a function, got {f!r}")
        functools.update_wrapper(self, f)
        self.function, self.name = f, str(getattr(f, "__name__", type(f).__name__))
        self._fixed = tuple(fixed)
        self._names: dict[Any, tuple[str, _UserRule]] = {}

    who = "custom_jvp"

    def rule(
        self, form: _CallContainers, fixed: tuple[Any, ...], closed: Sequence[Closed]
    ) -> _UserRule:
        raise NotImplementedError

    def functions(self) -> list[Any]:
        """The function and its rules, all of which may close over values."""
        raise NotImplementedError

    def __call__(self, *args: Any, **named: Any) -> Any:
        args, named = _by_position(self.function, args, named)
        fixed = tuple([args[i] for i in self._fixed])
        rest = tuple([a for i, a in enumerate(args) if i not in self._fixed])
        found, structure = flatten((rest, named))
        values = [leaf for _, leaf in found]
        who = f"{self.who} of {self.name}"
        traced = [_is_traced(v) for v in values]
        trace_of(values)
        operands = [uop_of(v, who) if t else None for v, t in zip(values, traced)]
        seeds = [None if u is None or _is_fixed(u) else calls.seed(u) for u in operands]
        inner = [v if s is None else _like(v, s) for v, s in zip(values, seeds)]
        args, named = self.arguments(unflatten(structure, inner), fixed)
        result = self.function(*args, **named)
        outputs, shape = flatten(result)
        leaves_ = [leaf for _, leaf in outputs]
        if not any(traced) and not any(map(_is_traced, leaves_)):
            return result
        of_uops = any([isinstance(v, UOp) for v in (*values, *leaves_)])
        given = [uop_of(v, who) if u is None else u for v, u in zip(values, operands)]
        slots = [calls.seed(u) if s is None else s for u, s in zip(given, seeds)]
        nodes = [uop_of(leaf, who) for leaf in leaves_]
        body, taken = bodies.closed(nodes, slots)
        closed = _closed_over(taken, given, (*self.functions(), fixed))
        key = structure, of_uops, tuple(map(id, fixed)), tuple([c.key for c in closed])
        if key not in self._names:
            rule = self.rule(_CallContainers(structure, of_uops), fixed, closed)
            self._names[key] = _name_rule(rule, self.name), rule
        name, rule = self._names[key]
        rule.results = shape
        made = _primitives(name, len(given), len(taken), body, [*given, *[c.node for c in closed]])
        return rule.form.tree(made, shape)

    def arguments(self, values: Any, fixed: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        """The positional arguments with the fixed arguments inserted, and the named arguments."""
        rest, named = values
        left = iter(rest)
        taken = dict(zip(self._fixed, fixed))
        count = len(rest) + len(fixed)
        return tuple([taken[i] if i in taken else next(left) for i in range(count)]), named


def _is_traced(v: Any) -> bool:
    """True for a value of a graph that is being built."""
    return isinstance(v, UOp) or (isinstance(v, Array) and v.is_unknown)


def _is_fixed(u: UOp) -> bool:
    """True for a value that the function gets unchanged: a number, a size, or a table."""
    if u.dtype is dtypes.index or leaves.constant_in(u) is not None:
        return True
    return not u.dtype.is_float and not _varies(u)


def _varies(u: UOp) -> bool:
    """True if a value depends on arguments of a function, or on written storage."""
    return not _MOVING.isdisjoint(walk.ops(u))


def _like(v: Any, u: UOp) -> Any:
    """Wrap a node as an Array if `v` is an Array."""
    return Array(u, v.tracing, v.weak) if isinstance(v, Array) else u


def _by_position(
    f: Function, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments by position: named arguments move to their places, because a rule gets all
    arguments by position. Omitted arguments before them get their defaults."""
    if not named:
        return args, named
    try:
        bound = inspect.signature(f).bind(*args, **named)
    except (TypeError, ValueError):  # the call of f says what is wrong
        return args, named
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _primitives(name: str, count: int, taken: int, body: UOp, operands: Sequence[UOp]) -> list[UOp]:
    """The results of a body as PRIMITIVEs. `details`: the result's number, the number of operands
    that are arguments, and the number of operands that are captured values."""
    made = []
    for i, u in enumerate(bodies.results(body, operands)):
        arg = PrimitiveArg(name, (i, count, taken))
        made.append(leaves.located(intern(Ops.PRIMITIVE, u.dtype, (u, body, *operands), arg)))
    return made


# ---------------------------------------------------------------- what is closed over
_MOVING = frozenset((Ops.PARAM, Ops.BUFFER, Ops.VARIABLE, Ops.CALL, Ops.AFTER))
_PLAIN = type, types.ModuleType, np.ndarray, np.generic, str, bytes, int, float, complex
_NO_VALUES = dtypes.void, dtypes.index


class Closed(NamedTuple):
    """A value that a function or its rules close over. `key`: the value, if it may have changed
    when the rule runs; `name`: the variable that holds it."""

    node: UOp
    key: UOp | None
    name: str


def _closed_over(
    taken: Sequence[UOp], arguments: Sequence[UOp], functions: Sequence[Any]
) -> list[Closed]:
    """The values that a function captures, and the values that its rules capture."""
    held: dict[UOp, str] = {}
    seen: dict[int, Any] = {}
    for f in functions:
        _note("", f, held, seen)
    found = [Closed(u, u if _varies(u) else None, held.get(u, "")) for u in taken]
    more = [u for u in held if u not in taken and u not in arguments]
    return found + [Closed(u, u, held[u]) for u in more]


def _note(name: str, value: Any, held: dict[UOp, str], seen: dict[int, Any]) -> None:
    """Add the graph values that a variable holds to `held`, by name: in containers, in closures of
    functions, and in attributes of objects."""
    if isinstance(value, Array):
        if value.tracing is None or not value.tracing.open:
            return
        value = value.uop
    if isinstance(value, UOp):
        if value.dtype not in _NO_VALUES and _varies(value):
            held.setdefault(value, name)
        return
    if id(value) in seen or isinstance(value, _PLAIN):
        return
    seen[id(value)] = value
    for inner, part in _parts_of(name, value):
        _note(inner, part, held, seen)


def _parts_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values inside a value, each with a name."""
    if isinstance(value, (tuple, list)):
        yield from ((f"{name}[{i}]", v) for i, v in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"{name}[{k!r}]", v) for k, v in value.items())
    elif isinstance(value, functools.partial):
        yield from (("", v) for v in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, _Custom):
        yield from (("", f) for f in value.functions())
    elif isinstance(value, types.MethodType):
        yield from (("self", value.__self__), ("", value.__func__))
    elif isinstance(value, types.FunctionType):
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
            with contextlib.suppress(ValueError):  # a variable that has no value yet
                yield variable, cell.cell_contents
        yield from (("", v) for v in value.__defaults__ or ())
    else:
        yield from ((f"{name}.{k}", v) for k, v in getattr(value, "__dict__", {}).items())


class _UserRule(DerivativeRule):
    """The rule for the calls of one kind."""

    kind = "linear"
    results: Any  # their structure

    def __init__(
        self, custom: _Custom, form: _CallContainers, fixed: tuple[Any, ...],
        closed: Sequence[Closed],
    ) -> None:  # fmt: skip
        self.custom, self.form, self.fixed, self._closed = custom, form, fixed, closed
        self.mapped: dict[Any, str] = {}

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        return _again(self, u, operands, batched, n)

    def told(
        self, u: UOp, given: Sequence[UOp], run: Callable[[Sequence[UOp]], Sequence[Value]]
    ) -> list[Value]:
        """Run the user's rule on values. If captured values have been replaced since the call of
        the function, replace them in the results."""
        now = u.src[2 + u.arg.details[1] :]
        moved = {c.key: v for c, v in zip(self._closed, now) if c.key not in (None, v)}
        if not moved:
            return list(run(given))
        seeds = [v if leaves.constant_in(v) is not None else calls.seed(v) for v in given]
        found = list(run(seeds))
        root = intern(Ops.TUPLE, dtypes.void, tuple([v for v in found if v is not None]))
        left = iter(rebuild.rebuild(root, moved | dict(zip(seeds, given))).src)
        return [None if v is None else next(left) for v in found]

    def check(self, u: UOp, active: Sequence[bool]) -> None:
        """UserError if a derivative by a captured value is requested."""
        _, count, taken = u.arg.details
        first = 2 + count
        for c, v, a in zip(self._closed[:taken], u.src[first:], active[first:]):
            if a:
                what = f"{c.name} ({show_value(v)})" if c.name else show_value(v)
                raise UserError(
                    f"{self.custom.who} of {self.custom.name}: its rule gives no derivative by"
                    f" {what}, which {self.custom.name} closes over: pass the value as"
                    " an argument, or close over uopc.stop_gradient of the value"
                    f"{made_at(c.node)}"
                )


def _again(
    rule: _UserRule | _OfBatch, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim
) -> UOp:
    """Batch the function: its batched body, with a rule that maps the user's rule."""
    flags = tuple(batched[1:])
    if flags not in rule.mapped:
        kind = _ForwardBatch if isinstance(rule, Pushed) else _BackwardBatch
        rule.mapped[flags] = _name_rule(kind(rule, flags), rule.custom.name)
    details = u.arg.details
    made = _of_batch(rule.mapped[flags], details[1:], u.src[1:], tuple(operands[1:]), flags, n)
    return made[int(details[0])]


@functools.lru_cache(maxsize=4)  # the results of a call are requested one at a time
def _of_batch(
    name: str, details: tuple[int, ...], own: tuple[UOp, ...], operands: tuple[UOp, ...],
    batched: tuple[bool, ...], n: Any,
) -> list[UOp]:  # fmt: skip
    body, *one = own
    plain = [calls.seed(a) for a in one]
    wide = [
        calls.seed_of(a.dtype, (n, *shapes.shape(a))) if b else p
        for a, p, b in zip(one, plain, batched)
    ]
    taken = {p: w for p, w, b in zip(plain, wide, batched) if b}
    rows = batch.mapped(bodies.results(body, plain), taken)
    made, more = bodies.closed(rows, wide)
    count, besides = details
    return _primitives(name, count, besides, made, [*operands, *more])


def _examples(
    values: Sequence[Value], batched: Sequence[bool]
) -> tuple[list[Value], dict[UOp, UOp]]:
    """Replace batched values by seeds for one example; also return the batch of each seed."""
    found: list[Value] = []
    taken: dict[UOp, UOp] = {}
    for v, b in zip(values, batched):
        if v is not None and b:
            seed = calls.seed_of(v.dtype, shapes.shape(v)[1:])
            taken[seed] = v
            v = seed
        found.append(v)
    return found, taken


class _OfBatch(DerivativeRule):
    """The rule of a batched call: map the user's rule over the examples."""

    kind = "linear"

    def __init__(self, rule: _UserRule | _OfBatch, batched: tuple[bool, ...]) -> None:
        self._rule, self._batched = rule, batched
        self.custom: _Custom = rule.custom
        self.mapped: dict[Any, str] = {}

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        return _again(self, u, operands, batched, n)

    def check(self, u: UOp, active: Sequence[bool]) -> None:
        self._rule.check(u, active)

    def example(self, u: UOp) -> tuple[UOp, dict[UOp, UOp]]:
        """The node for one example, and the batch of each of its seeds."""
        found, taken = _examples(u.src[2:], (*self._batched, *[False] * len(u.src)))
        operands = [v for v in found if v is not None]
        value = calls.seed_of(u.dtype, shapes.shape(u)[1:])
        return intern(Ops.PRIMITIVE, u.dtype, (value, u.src[1], *operands), u.arg), taken


# ---------------------------------------------------------------- custom_jvp
class _Forward(_UserRule, Pushed):
    """The user's rule gives tangents; cotangents use the transpose of the tangents' graph."""

    custom: custom_jvp

    def __init__(self, custom: _Custom, *given: Any) -> None:
        super().__init__(custom, *given)
        self.by_user = f"{custom.who} of {custom.name}"

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        self.check(u, [t is not None for t in tangents])
        count = u.arg.details[1]
        primals, beside = u.src[2 : 2 + count], tangents[2 : 2 + count]
        if all([t is None for t in beside]):
            return None
        both = [*primals, *[filled(t, s) for t, s in zip(beside, primals)]]
        return self.told(u, both, lambda given: [self._of(u, given)])[0]

    def _of(self, u: UOp, given: Sequence[UOp]) -> UOp:
        """The tangent of a result from the arguments and their tangents."""
        who = f"custom_jvp of {self.custom.name}"
        count = len(given) // 2
        trees = [self.form.tree(part) for part in (given[:count], given[count:])]
        both = self.custom.pushed(self.fixed, *trees)
        if not isinstance(both, tuple) or len(both) != 2:
            raise UserTypeError(f"{who}: the rule must give a pair, the value and its tangent")
        outputs, structure = flatten(both[0])
        like = [uop_of(leaf, who) for _, leaf in outputs]
        return _nodes(who, both[1], like, structure)[int(u.arg.details[0])]


class _ForwardBatch(_OfBatch, Pushed):
    def __init__(self, rule: _UserRule | _OfBatch, batched: tuple[bool, ...]) -> None:
        super().__init__(rule, batched)
        self.by_user = rule.by_user

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        self.check(u, [t is not None for t in tangents])
        node, taken = self.example(u)
        given, more = _examples(tangents[2:], (*self._batched, *[False] * len(u.src)))
        found = self._rule.push(node, [None, None, *given])
        return None if found is None else batch.mapped([found], taken | more)[0]


class custom_jvp(_Custom):
    """A function of arrays with your rule for tangents. The rule's transpose gives cotangents.

    `f.defjvp(rule)`: rule(primals, tangents) gives the value and its tangent, from tuples of the
    arguments. `nondiff_argnums`: arguments that are part of the function; the rule gets them first.

        >>> @uopc.custom_jvp
        ... def safe_sqrt(x):
        ...     return x.sqrt()
        >>> @safe_sqrt.defjvp
        ... def rule(primals, tangents):
        ...     (x,), (t,) = primals, tangents
        ...     y = safe_sqrt(x)
        ...     return y, uopc.where(x > 0, t / (2 * y), 0.0)
        >>> x = uopc.param("x", (2,), dtypes.float64)
        >>> uopc.compile(uopc.grad(safe_sqrt(x).sum(), x))(np.array([0.0, 4.0]))
        array([0.  , 0.25])
    """

    who = "custom_jvp"

    def __init__(self, f: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(f, nondiff_argnums)
        self._rule: Function | None = None

    def defjvp(self, rule: Function) -> Function:
        """Set the rule; also a decorator."""
        self._rule = rule
        return rule

    def rule(
        self, form: _CallContainers, fixed: tuple[Any, ...], closed: Sequence[Closed]
    ) -> _UserRule:
        if self._rule is None:
            raise UserError(f"custom_jvp: {self.name} has no rule: call {self.name}.defjvp(rule)")
        return _Forward(self, form, fixed, closed)

    def functions(self) -> list[Any]:
        return [self.function, self._rule]

    def pushed(self, fixed: tuple[Any, ...], primals: Any, tangents: Any) -> Any:
        """The results of the rule for containers of values and tangents."""
        assert self._rule is not None
        (args, named), (given, given_named) = primals, tangents
        if named or given_named:
            raise UserError(f"custom_jvp: pass the arguments of {self.name} by position")
        return self._rule(*fixed, tuple(args), tuple(given))


# ---------------------------------------------------------------- custom_vjp
class _Backward(_UserRule):
    """The user's rule gives the cotangents of all arguments from the cotangents of all results."""

    joint = True
    custom: custom_vjp

    def push_joint(self, u: UOp, tangents: Sequence[Value]) -> list[Value]:
        raise Unsupported(f"forward mode of {self.custom.name}, which has a rule by custom_vjp")

    def pull_joint(
        self, u: UOp, cotangents: Mapping[int, Value], wanted: Sequence[bool]
    ) -> list[Value]:
        self.check(u, wanted)
        args = u.src[2 : 2 + u.arg.details[1]]
        known = {i: c for i, c in cotangents.items() if c is not None}

        def run(given: Sequence[UOp]) -> list[Value]:
            return self._of(given[: len(args)], dict(zip(known, given[len(args) :])))

        found = self.told(u, [*args, *known.values()], run)
        return [None, None, *found, *[None] * (len(u.src) - 2 - len(args))]

    def _of(self, args: Sequence[UOp], cotangents: Mapping[int, UOp]) -> list[Value]:
        """The cotangents of the arguments from the cotangents of the results by number."""
        who = f"custom_vjp of {self.custom.name}"
        values, named = self.form.tree(args)
        if named:
            raise UserError(f"{who}: pass the arguments by position")
        back, results = self.custom.pulled(self.fixed, values)
        outputs, structure = flatten(results)
        like = [uop_of(leaf, who) for _, leaf in outputs]
        given = [filled(cotangents.get(i), v) for i, v in enumerate(like)]
        found = back(self.form.tree(given, structure))
        whole = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        return self._checked(who, whole, args)

    def _checked(self, who: str, found: tuple[Any, ...], given: Sequence[UOp]) -> list[Value]:
        args = self.form.structure.parts[0]
        if len(found) != len(args.parts):
            raise UserError(
                f"{who}: the rule must give {len(args.parts)} cotangents, one per argument, got"
                f" {len(found)}"
            )
        left = iter(given)
        made: list[Value] = []
        for value, structure in zip(found, args.parts):
            like = list(itertools.islice(left, leaf_count(structure)))
            made += _cotangents(who, value, like, structure)
        return made


class _BackwardBatch(_OfBatch):
    joint = True

    def push_joint(self, u: UOp, tangents: Sequence[Value]) -> list[Value]:
        return self._rule.push_joint(u, tangents)

    def pull_joint(
        self, u: UOp, cotangents: Mapping[int, Value], wanted: Sequence[bool]
    ) -> list[Value]:
        self.check(u, wanted)
        node, taken = self.example(u)
        given, more = _examples(list(cotangents.values()), [True] * len(cotangents))
        found = self._rule.pull_joint(node, dict(zip(cotangents, given)), wanted)
        made: list[Value] = [None, None]
        for v, b in zip(found[2:], (*self._batched, *[False] * len(found))):
            if v is not None:
                (v,) = batch.mapped([v], taken | more)
                v = v if b else movement.reduce(v, "add", (0,))
            made.append(v)
        return made


class custom_vjp(_Custom):
    """A function of arrays with user-defined rules for cotangents; it has no forward mode.

    `f.defvjp(forward, backward)`: forward(*args) gives the value and the residual that backward
    needs; backward(residual, cotangent) gives a tuple, the cotangent of each argument, None for
    zero. `nondiff_argnums`: arguments that are part of the function; backward gets them first.

        >>> @uopc.custom_vjp
        ... def clipped(x):
        ...     return x
        >>> clipped.defvjp(lambda x: (x, None), lambda _, ct: (ct.clip(-1, 1),))
        >>> x = uopc.param("x", (2,), dtypes.float64)
        >>> loss = (clipped(x) * np.array([0.5, 7.0])).sum()
        >>> uopc.compile(uopc.grad(loss, x), inputs=[x])(np.zeros(2))
        array([0.5, 1. ])
    """

    who = "custom_vjp"

    def __init__(self, f: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(f, nondiff_argnums)
        self._rules: tuple[Function, Function] | None = None

    def defvjp(self, forward: Function, backward: Function) -> None:
        """Set the rules."""
        self._rules = forward, backward

    def rule(
        self, form: _CallContainers, fixed: tuple[Any, ...], closed: Sequence[Closed]
    ) -> _UserRule:
        if self._rules is None:
            raise UserError(f"custom_vjp: {self.name} has no rules: call {self.name}.defvjp(f, b)")
        return _Backward(self, form, fixed, closed)

    def functions(self) -> list[Any]:
        return [self.function, *(self._rules or ())]

    def pulled(self, fixed: tuple[Any, ...], args: Any) -> tuple[Function, Any]:
        """Return the function of cotangents, and the results."""
        assert self._rules is not None
        forward, backward = self._rules
        whole, _ = self.arguments((args, {}), fixed)
        both = forward(*whole)
        if not isinstance(both, tuple) or len(both) != 2:
            raise UserTypeError(f"custom_vjp of {self.name}: the forward rule must give a pair")
        return functools.partial(backward, *fixed, both[1]), both[0]


# ---------------------------------------------------------------- checkpoint
def checkpoint(f: Function, precompile: bool = True) -> Function:
    """A function of arrays whose derivatives keep only its arguments and compute the rest again. It
    is compiled once for all its calls. With `precompile=False`, it is instead fused with the
    operations around it, which may keep values.

        >>> block = uopc.checkpoint(lambda x, w: (x @ w).tanh())
        >>> x = uopc.param("x", (2, 2), dtypes.float64)
        >>> loss = block(block(x, x), x).sum()
        >>> uopc.compile(uopc.grad(loss, x))(np.zeros((2, 2))).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """
    name = str(getattr(f, "__name__", "checkpoint"))

    @functools.wraps(f)
    def called(*args: Any, **named: Any) -> Any:
        found, structure = flatten((args, named))
        values = [leaf for _, leaf in found]
        trace = trace_of(values)
        graph = [isinstance(v, UOp) or (isinstance(v, Array) and v.is_unknown) for v in values]
        if not any(graph):
            return f(*args, **named)
        of_uops = any([isinstance(v, UOp) for v in values])
        form: list[Any] = []

        def wrap(u: UOp) -> Any:
            return u if of_uops else Array(u, trace)

        def body(*given: UOp) -> tuple[UOp, ...]:
            left, begun = iter(given), next(births)
            args, named = unflatten(
                structure, [wrap(next(left)) if g else v for g, v in zip(graph, values)]
            )
            result = memory.run_body("checkpoint", begun, f, *args, **named)
            leaves_, shape = flatten(result)
            form.append(shape)
            return tuple(memory.as_values([uop_of(leaf, name) for _, leaf in leaves_], given))

        made = function(body, precompile=precompile, name=name)(
            *[uop_of(v) for v, g in zip(values, graph) if g]
        )
        return unflatten(form[-1], map(wrap, made))

    return called
