"""Derivatives that users give, `custom_jvp` and `custom_vjp`; and `checkpoint`.

A call is traced, and each result becomes a PRIMITIVE of the arguments. Its rule calls the user's
function when a derivative is asked for.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from uopc.derivatives import batch, primitives
from uopc.derivatives import functions as calls
from uopc.derivatives.rule import Pushed, Rule
from uopc.derivatives.values import Value, filled
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.builder import leaves, movement
from uopc.ir.core import shapes
from uopc.ir.core.args import PrimitiveArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, show_value
from uopc.ir.core.uop import UOp, intern
from uopc.numpy.array import Array, current_trace, trace_of, uop_of
from uopc.tensor.functions import function
from uopc.tracing.pytrees import LEAF, flatten, leaf_count, split, unflatten

Function = Callable[..., Any]
_numbers = itertools.count(1)
_PROCESS = uuid.uuid4().hex[:12]  # a name says in which process its rule was given


def _named(rule: Rule, name: str) -> str:
    """A name of its own for a rule, by which derivatives find it."""
    made = f"{name}.{next(_numbers)}.{_PROCESS}"
    primitives.RULES[made] = rule
    return made


# ---------------------------------------------------------------- a call
class _Form:
    """The containers of a call, and whether its values are UOps or Arrays."""

    def __init__(self, structure: Any, of_uops: bool) -> None:
        self.structure, self.of_uops = structure, of_uops

    def tree(self, values: Iterable[UOp], structure: Any = None) -> Any:
        trace = current_trace.get()
        made = [u if self.of_uops else Array(u, trace) for u in values]
        return unflatten(self.structure if structure is None else structure, made)


def _nodes(who: str, tree: Any, like: Sequence[UOp], structure: Any) -> list[UOp]:
    """The nodes of what a user's rule gives, checked against the values that they belong to."""
    found, given = flatten(tree)
    if given != structure:
        raise UserError(f"{who}: the rule gives other containers than those of the values")
    made = []
    for (path, leaf), u in zip(found, like):
        v = uop_of(leaf, who, u.dtype)
        if v.dtype is not u.dtype or shapes.shape(v) != shapes.shape(u):
            where = f" at {path}" if path else ""
            raise UserError(f"{who}: the rule gives {show_value(v)} for {show_value(u)}{where}")
        made.append(v)
    return made


def _cotangents(who: str, tree: Any, like: Sequence[UOp], structure: Any) -> list[Value]:
    """`_nodes` of a container in which None stands for zeros."""
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

    def rule(self, form: _Form, fixed: tuple[Any, ...]) -> _UserRule:
        raise NotImplementedError

    def __call__(self, *args: Any, **named: Any) -> Any:
        args, named = _by_position(self.function, args, named)
        fixed = tuple([args[i] for i in self._fixed])
        rest = tuple([a for i, a in enumerate(args) if i not in self._fixed])
        found, structure = flatten((rest, named))
        values = [leaf for _, leaf in found]
        of_uops = any([isinstance(v, UOp) for v in values])
        traced = of_uops or any([isinstance(v, Array) for v in values])
        result = self.function(*args, **named)
        if not traced:
            return result
        trace_of(values)
        operands = [uop_of(v, f"{self.who} of {self.name}") for v in values]
        outputs, shape = flatten(result)
        key = structure, of_uops, tuple(map(id, fixed))
        if key not in self._names:
            rule = self.rule(_Form(structure, of_uops), fixed)
            self._names[key] = _named(rule, self.name), rule
        name, rule = self._names[key]
        rule.results = shape
        nodes = [uop_of(leaf, f"{self.who} of {self.name}") for _, leaf in outputs]
        return rule.form.tree(_primitives(nodes, operands, name), shape)

    def arguments(self, values: Any, fixed: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        """The arguments by position, those that are fixed among them, and those by name."""
        rest, named = values
        left = iter(rest)
        taken = dict(zip(self._fixed, fixed))
        count = len(rest) + len(fixed)
        return tuple([taken[i] if i in taken else next(left) for i in range(count)]), named


def _by_position(
    f: Function, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, those by position that were given by name at their places: a rule gets all by
    position. Arguments that are left out before them have their defaults."""
    if not named:
        return args, named
    try:
        bound = inspect.signature(f).bind(*args, **named)
    except (TypeError, ValueError):  # the call of f says what is wrong
        return args, named
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _primitives(nodes: Sequence[UOp], operands: Sequence[UOp], name: str) -> list[UOp]:
    return [
        leaves.located(intern(Ops.PRIMITIVE, u.dtype, (u, *operands), PrimitiveArg(name, (i,))))
        for i, u in enumerate(nodes)
    ]


class _UserRule(Rule):
    """The rule of one kind of call."""

    results: Any  # their structure

    def __init__(self, custom: _Custom, form: _Form, fixed: tuple[Any, ...]) -> None:
        self.custom, self.form, self.fixed = custom, form, fixed
        self._mapped: dict[Any, str] = {}

    def again(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        key = tuple(batched)
        if key not in self._mapped:
            self._mapped[key] = _named(self.of_batch(key), self.custom.name)
        one = [
            calls.seed_of(a.dtype, shapes.shape(a)[1:]) if b else a
            for a, b in zip(operands, batched)
        ]
        args, named = self.custom.arguments(self.form.tree(one), self.fixed)
        found, _ = flatten(self.custom.function(*args, **named))
        value = uop_of(found[u.arg.details[0]][1])
        taken = {s: a for s, a, b in zip(one, operands, batched) if b}
        (made,) = batch.mapped([value], taken)
        arg = PrimitiveArg(self._mapped[key], u.arg.details)
        return intern(Ops.PRIMITIVE, u.dtype, (made, *operands), arg)

    def of_batch(self, batched: tuple[bool, ...]) -> Rule:
        raise NotImplementedError


def _examples(
    values: Sequence[Value], batched: Sequence[bool]
) -> tuple[list[Value], dict[UOp, UOp]]:
    """Values for one example: seeds for those that have a batch, and the batch of each seed."""
    found: list[Value] = []
    taken: dict[UOp, UOp] = {}
    for v, b in zip(values, batched):
        if v is not None and b:
            seed = calls.seed_of(v.dtype, shapes.shape(v)[1:])
            taken[seed] = v
            v = seed
        found.append(v)
    return found, taken


def _example(u: UOp, batched: Sequence[bool], rule: Rule) -> tuple[UOp, dict[UOp, UOp]]:
    """A node of a batch, for one example."""
    found, taken = _examples(u.src[1:], batched)
    operands = [v for v in found if v is not None]
    dims = shapes.shape(u)[1:]
    (name,) = [n for n, r in primitives.RULES.items() if r is rule]
    value = calls.seed_of(u.dtype, dims)
    arg = PrimitiveArg(name, u.arg.details)
    return intern(Ops.PRIMITIVE, u.dtype, (value, *operands), arg), taken


# ---------------------------------------------------------------- custom_jvp
class _Forward(_UserRule, Pushed):
    """The user's rule gives tangents; cotangents go through its transpose."""

    custom: custom_jvp

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        who = f"custom_jvp of {self.custom.name}"
        primals = self.form.tree(u.src[1:])
        given = [filled(t, s) for t, s in zip(tangents[1:], u.src[1:])]
        both = self.custom.pushed(self.fixed, primals, self.form.tree(given))
        if not isinstance(both, tuple) or len(both) != 2:
            raise UserTypeError(f"{who}: the rule must give a pair, the value and its tangent")
        outputs, structure = flatten(both[0])
        like = [uop_of(leaf, who) for _, leaf in outputs]
        return _nodes(who, both[1], like, structure)[int(u.arg.details[0])]

    def of_batch(self, batched: tuple[bool, ...]) -> Rule:
        return _ForwardBatch(self, batched)


class _ForwardBatch(Pushed):
    def __init__(self, rule: _Forward, batched: tuple[bool, ...]) -> None:
        self._rule, self._batched = rule, batched

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        node, taken = _example(u, self._batched, self._rule)
        given, more = _examples(tangents[1:], self._batched)
        found = self._rule.push(node, [None, *given])
        return None if found is None else batch.mapped([found], taken | more)[0]


class custom_jvp(_Custom):
    """A function of arrays whose tangents a rule of yours gives. Its transpose gives cotangents.

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
        """Give the rule; also a decorator."""
        self._rule = rule
        return rule

    def rule(self, form: _Form, fixed: tuple[Any, ...]) -> _UserRule:
        if self._rule is None:
            raise UserError(f"custom_jvp: {self.name} has no rule: call {self.name}.defjvp(rule)")
        return _Forward(self, form, fixed)

    def pushed(self, fixed: tuple[Any, ...], primals: Any, tangents: Any) -> Any:
        """The results of the rule for containers of values and tangents."""
        assert self._rule is not None
        (args, named), (given, given_named) = primals, tangents
        if named or given_named:
            raise UserError(f"custom_jvp: pass the arguments of {self.name} by position")
        return self._rule(*fixed, tuple(args), tuple(given))


# ---------------------------------------------------------------- custom_vjp
class _Backward(_UserRule):
    """The user's rule gives the cotangents of all arguments from those of all results."""

    joint = True
    custom: custom_vjp

    def push_joint(self, u: UOp, tangents: Sequence[Value]) -> list[Value]:
        raise Unsupported(f"forward mode of {self.custom.name}, which has a rule by custom_vjp")

    def pull_joint(
        self, u: UOp, cotangents: Mapping[int, Value], wanted: Sequence[bool]
    ) -> list[Value]:
        who = f"custom_vjp of {self.custom.name}"
        args, named = self.form.tree(u.src[1:])
        if named:
            raise UserError(f"{who}: pass its arguments by position")
        back, results = self.custom.pulled(self.fixed, args)
        outputs, structure = flatten(results)
        like = [uop_of(leaf, who) for _, leaf in outputs]
        given = [filled(cotangents.get(i), v) for i, v in enumerate(like)]
        found = back(self.form.tree(given, structure))
        whole = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        return [None, *self._checked(who, whole, u)]

    def _checked(self, who: str, found: tuple[Any, ...], u: UOp) -> list[Value]:
        args = self.form.structure.parts[0]
        if len(found) != len(args.parts):
            raise UserError(f"{who}: {len(found)} cotangents for {len(args.parts)} arguments")
        left = iter(u.src[1:])
        made: list[Value] = []
        for value, structure in zip(found, args.parts):
            like = list(itertools.islice(left, leaf_count(structure)))
            made += _cotangents(who, value, like, structure)
        return made

    def of_batch(self, batched: tuple[bool, ...]) -> Rule:
        return _BackwardBatch(self, batched)


class _BackwardBatch(Rule):
    joint = True

    def __init__(self, rule: _Backward, batched: tuple[bool, ...]) -> None:
        self._rule, self._batched = rule, batched

    def push_joint(self, u: UOp, tangents: Sequence[Value]) -> list[Value]:
        return self._rule.push_joint(u, tangents)

    def pull_joint(
        self, u: UOp, cotangents: Mapping[int, Value], wanted: Sequence[bool]
    ) -> list[Value]:
        node, taken = _example(u, self._batched, self._rule)
        given, more = _examples(list(cotangents.values()), [True] * len(cotangents))
        found = self._rule.pull_joint(node, dict(zip(cotangents, given)), wanted)
        made: list[Value] = [None]
        for v, b in zip(found[1:], self._batched):
            if v is not None:
                (v,) = batch.mapped([v], taken | more)
                v = v if b else movement.reduce(v, "add", (0,))
            made.append(v)
        return made


class custom_vjp(_Custom):
    """A function of arrays whose cotangents rules of yours give; it has no forward mode.

    `f.defvjp(forward, backward)`: forward(*args) gives the value and anything that backward needs;
    backward(that, cotangent) gives a tuple, the cotangent of each argument, None for zero.
    `nondiff_argnums`: arguments that are part of the function; backward gets them first.

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
        """Give the rules."""
        self._rules = forward, backward

    def rule(self, form: _Form, fixed: tuple[Any, ...]) -> _UserRule:
        if self._rules is None:
            raise UserError(f"custom_vjp: {self.name} has no rules: call {self.name}.defvjp(f, b)")
        return _Backward(self, form, fixed)

    def pulled(self, fixed: tuple[Any, ...], args: Any) -> tuple[Function, Any]:
        """The function of cotangents, and the results."""
        assert self._rules is not None
        forward, backward = self._rules
        whole, _ = self.arguments((args, {}), fixed)
        both = forward(*whole)
        if not isinstance(both, tuple) or len(both) != 2:
            raise UserTypeError(f"custom_vjp of {self.name}: the forward rule must give a pair")
        return functools.partial(backward, *fixed, both[1]), both[0]


# ---------------------------------------------------------------- checkpoint
def checkpoint(f: Function, precompile: bool = True) -> Function:
    """A function of arrays, of which derivatives keep the arguments alone: they compute the rest
    again. It is compiled once for all its calls, unless `precompile` is False; then it is fused
    with the operations around it, which may keep values.

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
        graph = [isinstance(v, UOp) or (isinstance(v, Array) and v.tracing) for v in values]
        if not any(graph):
            return f(*args, **named)
        of_uops = any([isinstance(v, UOp) for v in values])
        form: list[Any] = []

        def wrap(u: UOp) -> Any:
            return u if of_uops else Array(u, trace)

        def body(*given: UOp) -> tuple[UOp, ...]:
            left = iter(given)
            args, named = unflatten(
                structure, [wrap(next(left)) if g else v for g, v in zip(graph, values)]
            )
            leaves_, shape = flatten(f(*args, **named))
            form.append(shape)
            return tuple([uop_of(leaf, name) for _, leaf in leaves_])

        made = function(body, precompile=precompile, name=name)(
            *[uop_of(v) for v, g in zip(values, graph) if g]
        )
        return unflatten(form[-1], map(wrap, made))

    return called
