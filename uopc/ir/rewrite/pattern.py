"""Patterns over nodes, and matchers: lists of (pattern, function), tried in order by root op.

`UPat.match` interprets a pattern and lists every fit: slow, easy to read, and the oracle of the
tests. `PatternMatcher` compiles its rules, a function per root op (see `compile.py`), at the first
node of the op.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from uopc.errors import Immutable, UserTypeError
from uopc.ir.core.constants import const_key
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp

RuleFunction = Callable[..., Any]
_ANY_TAG: Final = ...  # stays itself when a pattern is pickled


def _several(value: Any, kind: type, what: str) -> frozenset[Any] | None:
    """A set from None, an object of class `kind`, or a collection of such objects."""
    if value is None:
        return None
    several = isinstance(value, Iterable) and not isinstance(value, kind)
    found = frozenset(value if several else (value,))
    for v in found:
        if not isinstance(v, kind):
            raise UserTypeError(f"UPat: {what} must be {kind.__name__}s, got {v!r}")
    return found


def caller() -> tuple[str, int]:
    """File and line of the first frame outside of the pattern modules."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _OWN_MODULES:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


_OWN_MODULES = (__name__, "uopc.ir.rewrite.rules")


def _operator(op: Op, name: str = "") -> Any:
    """A method that makes the pattern of an op on this pattern and another pattern or a number."""

    def method(a: UPat, b: Any) -> UPat:
        return a.alu(op, b)

    if name:
        _describe(method, name, op, "2")
    return method


def _describe(method: Any, name: str, op: Op, other: str = "") -> None:
    method.__name__, method.__qualname__ = name, f"UPat.{name}"
    first = " on this pattern and another" if op.commutes else ", with this one as its first source"
    shown = "UPat(a), UPat(const, arg=2)" if other else "UPat(a)"
    method.__doc__ = f"""The pattern of a node of {op!r}{first}.

    Examples:
        >>> uopc.UPat.var("a").{name}({other})
        UPat({op.name}, {shown})
    """


def _operators(op: Op) -> tuple[Any, Any]:
    """The method of an operator, and the method with swapped operands."""
    return _operator(op), lambda a, b: as_upat(b).alu(op, a)


def _user(op: Op) -> Any:
    """A method that makes the pattern of an op with this pattern as its first source."""

    def method(self: UPat, *others: Any, **fields: Any) -> UPat:
        return UPat(op, src=(self, *[as_upat(o) for o in others]), **fields)

    _describe(method, op.name, op)
    return method


class UPat(Immutable):
    """The description of a node.

    `op`: an Op or several; `dtype`: a dtype or several (a scalar dtype also fits its vectors);
    `arg`: equal to the node's; `name`: the parameter of the rule's function for the node (the same
    name twice means the same node); `tag`: the node's tag, None for untagged. `src`: a tuple (these
    sources, in this order), a list (in any order), one UPat (for every source), or None (not
    checked). With `allow_any_len` further sources may follow.

    Operators build patterns too: `UPat.var("a") * 2`.

    Examples:
        >>> pattern = uopc.UPat(uopc.Ops.EXP, src=(uopc.UPat.var("a"),))
        >>> x = uopc.param("x", (2,))
        >>> pattern.match(x.exp())[0]["a"] is x, pattern.match(x.sin())
        (True, [])
    """

    __slots__ = (
        "alternatives", "arg", "dtypes", "every", "location", "longer", "name", "ops", "sources",
        "tag", "unordered",
    )  # fmt: skip
    _copied_by = "changed"
    ops: frozenset[Op] | None
    dtypes: frozenset[DType] | None
    arg: Any
    name: str | None
    tag: Any
    longer: bool
    every: UPat | None
    unordered: bool
    sources: tuple[UPat, ...] | None
    alternatives: tuple[UPat, ...]
    location: tuple[str, int]

    def __init__(
        self,
        op: Op | Iterable[Op] | None = None,
        dtype: DType | Iterable[DType] | None = None,
        src: UPat | tuple[UPat, ...] | list[UPat] | None = None,
        arg: Any = None,
        name: str | None = None,
        allow_any_len: bool = False,
        tag: Any = _ANY_TAG,
    ) -> None:
        self._keep(
            ops=_several(op, Op, "op"), dtypes=_several(dtype, DType, "dtype"), arg=arg, name=name,
            tag=tag, longer=allow_any_len, unordered=isinstance(src, list), alternatives=(),
            location=caller(), every=src if isinstance(src, UPat) else None,
            sources=None if src is None or isinstance(src, UPat) else tuple(src),
        )  # fmt: skip

    # ------------------------------------------------------------ making patterns
    @staticmethod
    def var(name: str | None = None, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Any node.

        With `dtype`, only a node of these dtypes.

        Examples:
            >>> uopc.UPat.var("a")
            UPat(a)
        """
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def cvar(
        name: str | None = None, dtype: DType | Iterable[DType] | None = None, arg: Any = None
    ) -> UPat:
        """A constant.

        With `dtype` or `arg`, only a constant of these dtypes or this value.

        Examples:
            >>> n = uopc.variable("n", 1, 8)
            >>> (uopc.UPat.var("a") * uopc.UPat.cvar("c")).match(n * 3)[0]["c"].arg
            3
        """
        return UPat(Ops.CONST, dtype, arg=arg, name=name)

    @staticmethod
    def const(dtype: DType | Iterable[DType] | None, value: Any) -> UPat:
        """The constant `value`, of any dtype if `dtype` is None.

        Examples:
            >>> zero = uopc.UPat.const(None, 0)
            >>> len(zero.match(uopc.constant(0))), len(zero.match(uopc.constant(1)))
            (1, 0)
        """
        return UPat(Ops.CONST, dtype, arg=value)

    @staticmethod
    def any(*alternatives: UPat) -> UPat:
        """One of several patterns, tried in order.

        Examples:
            >>> uopc.UPat.any(uopc.UPat(uopc.Ops.EXP), uopc.UPat(uopc.Ops.LOG))
            UPat.any(UPat(exp), UPat(log))
        """
        return UPat().changed(alternatives=alternatives)

    def changed(self, **changes: Any) -> UPat:
        """This pattern with some attributes replaced.

        Examples:
            >>> uopc.UPat.var("a").changed(name="b")
            UPat(b)
        """
        out = copy.copy(self)
        out._keep(**changes)
        return out

    def named(self, name: str) -> UPat:
        """This pattern with the name `name`.

        Examples:
            >>> (uopc.UPat.var("a") * 2).named("product")
            UPat(product, mul, UPat(a), UPat(const, arg=2))
        """
        return self.changed(name=name)

    def restricted(self, dtypes: frozenset[DType]) -> UPat:
        """This pattern, for nodes of these dtypes only.

        Examples:
            >>> floats = uopc.UPat.var("a").restricted(frozenset([dtypes.float32]))
            >>> floats.fits(uopc.constant(1.5)), floats.fits(uopc.constant(1))
            (True, False)
        """
        return self.changed(dtypes=dtypes if self.dtypes is None else self.dtypes & dtypes)

    def allow_any_len(self) -> UPat:
        """This pattern, also for nodes with further sources.

        Examples:
            >>> first = uopc.UPat(uopc.Ops.SINK, src=(uopc.UPat.var("a"),)).allow_any_len()
            >>> x, y = uopc.param("x", (2,)), uopc.param("y", (2,))
            >>> first.match(x.sink(y))[0]["a"] is x
            True
        """
        return self.changed(longer=True)

    def f(self, op: Op | Iterable[Op], **fields: Any) -> UPat:
        """The pattern of an op with this pattern as its only source.

        Examples:
            >>> uopc.UPat.var("a").f(uopc.Ops.EXP)
            UPat(exp, UPat(a))
        """
        return UPat(op, src=(self,), **fields)

    index = _user(Ops.INDEX)
    load = _user(Ops.LOAD)
    store = _user(Ops.STORE)
    after = _user(Ops.AFTER)
    end = _user(Ops.END)
    sink = _user(Ops.SINK)
    group = _user(Ops.GROUP)
    reduce = _user(Ops.REDUCE)

    def cast(self, dtype: DType | Iterable[DType] | None = None, **fields: Any) -> UPat:
        """The pattern of a CAST of this pattern, to one or several dtypes.

        Examples:
            >>> uopc.UPat.var("a").cast(dtypes.int32)
            UPat(cast, UPat(a))
        """
        return UPat(Ops.CAST, dtype, src=(self,), **fields)

    def bitcast(self, dtype: DType | Iterable[DType] | None = None, **fields: Any) -> UPat:
        """The pattern of a BITCAST of this pattern, to one or several dtypes.

        Examples:
            >>> uopc.UPat.var("a").bitcast(dtypes.int32)
            UPat(bitcast, UPat(a))
        """
        return UPat(Ops.BITCAST, dtype, src=(self,), **fields)

    def where(self, a: Any, b: Any) -> UPat:
        """WHERE with this pattern as its condition.

        Examples:
            >>> uopc.UPat.var("c").where(uopc.UPat.var("a"), 0)
            UPat(where, UPat(c), UPat(a), UPat(const, arg=0))
        """
        return self.alu(Ops.WHERE, a, b)

    def alu(self, op: Op, *others: Any) -> UPat:
        """The pattern of an elementwise op on this pattern and others; in either order if the op
        commutes.

        Examples:
            >>> uopc.UPat.var("a").alu(uopc.Ops.MAX, uopc.UPat.var("b"))
            UPat(max, UPat(a), UPat(b))
        """
        src = (self, *[as_upat(o) for o in others])
        return UPat(op, src=list(src) if op.commutes else src)

    __add__, __radd__ = _operators(Ops.ADD)
    __sub__, __rsub__ = _operators(Ops.SUB)
    __mul__, __rmul__ = _operators(Ops.MUL)
    __truediv__, __rtruediv__ = _operators(Ops.FDIV)
    __floordiv__, __rfloordiv__ = _operators(Ops.FLOORDIV)
    __mod__, __rmod__ = _operators(Ops.FLOORMOD)
    __pow__, __rpow__ = _operators(Ops.POW)
    __and__, __rand__ = _operators(Ops.AND)
    __or__, __ror__ = _operators(Ops.OR)
    __xor__, __rxor__ = _operators(Ops.XOR)
    __lshift__, __rlshift__ = _operators(Ops.SHL)
    __rshift__, __rrshift__ = _operators(Ops.SHR)
    __lt__, __gt__ = _operators(Ops.CMPLT)
    __le__, __ge__ = _operators(Ops.CMPLE)
    eq, ne = _operator(Ops.CMPEQ, "eq"), _operator(Ops.CMPNE, "ne")
    maximum, minimum = _operator(Ops.MAX, "maximum"), _operator(Ops.MIN, "minimum")

    def __neg__(self) -> UPat:
        return self.alu(Ops.NEG)

    def __bool__(self) -> bool:
        raise TypeError("a UPat has no truth value: use when=[...] or the rule's function")

    # ------------------------------------------------------------ matching, interpreted
    def match(self, u: UOp, bound: Mapping[str, UOp] | None = None) -> list[dict[str, UOp]]:
        """Every fit of the pattern to `u`, as {name: node}, in the order of trial.

        An empty list if the pattern does not fit. `bound`: nodes already bound to names.

        Examples:
            >>> a, b = uopc.UPat.var("a"), uopc.UPat.var("b")
            >>> x, y = uopc.param("x", (2,)), uopc.param("y", (2,))
            >>> len((a + b).match(x + y)), len((a + a).match(x + y))
            (2, 0)
        """
        known = dict(bound or {})
        if not self.fits(u):
            return []
        if self.name is not None and known.setdefault(self.name, u) is not u:
            return []
        if self.alternatives:
            return [m for p in self.alternatives for m in p.match(u, known)]
        found: list[dict[str, UOp]] = []
        for patterns in self.orders(len(u.src)):
            partial = [known]
            for p, s in zip(patterns, u.src):
                partial = [m for known in partial for m in p.match(s, known)]
            found += partial
        return found

    def fits(self, u: UOp) -> bool:
        """True if op, dtype, arg and tag fit; `match` looks at the sources.

        Examples:
            >>> x = uopc.param("x", (2,))
            >>> uopc.UPat(uopc.Ops.EXP).fits(x.exp()), uopc.UPat(uopc.Ops.EXP).fits(x)
            (True, False)
        """
        if self.ops is not None and u.op not in self.ops:
            return False
        t = u.dtype
        if self.dtypes is not None and t not in self.dtypes and t.scalar not in self.dtypes:
            return False
        if self.arg is not None and u.arg != self.arg:
            both_nan = u.arg != u.arg and self.arg != self.arg
            if not both_nan:
                return False
        return self.tag is _ANY_TAG or u.tag == self.tag

    def orders(self, count: int) -> Iterator[tuple[UPat, ...]]:
        """The ways to assign the source patterns to `count` sources.

        Examples:
            >>> either = uopc.UPat.var("a") + 1
            >>> len(list(either.orders(2)))
            2
        """
        if self.every is not None:
            yield (self.every,) * count
        elif self.sources is None:
            yield ()
        elif len(self.sources) == count or (self.longer and len(self.sources) < count):
            alike = all(shape_of(p) == shape_of(self.sources[0]) for p in self.sources)
            if not self.unordered or alike:
                yield self.sources
            else:
                yield from itertools.permutations(self.sources)

    @property
    def checks_tag(self) -> bool:
        """True if the pattern restricts the node's tag.

        Examples:
            >>> uopc.UPat().checks_tag, uopc.UPat(tag="seen").checks_tag
            (False, True)
        """
        return self.tag is not _ANY_TAG

    def __repr__(self) -> str:
        if self.alternatives:
            return "UPat.any(" + ", ".join(map(repr, self.alternatives)) + ")"
        parts = [] if self.ops is None else [" | ".join(sorted(o.name for o in self.ops))]
        if self.name is not None:
            parts.insert(0, self.name)
        if self.arg is not None:
            parts.append(f"arg={self.arg!r}")
        below = (self.every,) if self.every is not None else self.sources or ()
        parts += [repr(p) for p in below]
        return "UPat(" + ", ".join(parts) + ")"


def as_upat(value: Any) -> UPat:
    """A pattern, or a number as the pattern of that constant."""
    if isinstance(value, UPat):
        return value
    if isinstance(value, (bool, int, float)):
        return UPat(Ops.CONST, arg=value)
    raise UserTypeError(f"expected a UPat or a number, got {value!r}")


def variables_of(p: UPat) -> dict[str, UPat]:
    """The named patterns in a pattern, by name."""
    own = {} if p.name is None else {p.name: p}
    for below in _patterns_below(p):
        own |= variables_of(below)
    return own


def shape_of(p: UPat) -> tuple[Any, ...]:
    """A key that is equal for equal patterns."""
    below = None if p.sources is None else tuple([shape_of(s) for s in p.sources])
    every = None if p.every is None else shape_of(p.every)
    fields = (p.ops, p.dtypes, const_key(p.arg), type(p.arg), p.name, p.longer, p.unordered)
    tag = None if p.tag is _ANY_TAG else (p.tag,)
    return (*fields, tag, below, every, tuple([shape_of(a) for a in p.alternatives]))


class Rule:
    """A pattern, and the function that returns the replacement of a match, or None.

    `name` identifies the rule in traces, statistics and errors; `location` is its file and line.
    """

    __slots__ = (
        "by_keyword", "function", "location", "name", "optional", "parameters", "pattern",
        "roots", "wants_ctx",
    )  # fmt: skip

    def __init__(
        self,
        pattern: UPat,
        function: RuleFunction,
        name: str = "",
        location: tuple[str, int] | None = None,
    ) -> None:
        self.pattern = pattern
        self.function = function
        self.location = location or pattern.location
        self.name = name or _function_name(function, self.location)
        # The parameters of the function in order, with `ctx`; None if it takes any name.
        self.parameters: tuple[str, ...] | None = None
        self.by_keyword = False
        self.optional: frozenset[str] = frozenset()
        self.wants_ctx = False
        self.roots: frozenset[Op] | None = root_ops(pattern)
        self._read_signature()
        if not _has_choice(pattern):
            self.check_names(variables_of(pattern))

    def _read_signature(self) -> None:
        try:
            signature = inspect.signature(self.function)
        except ValueError:  # a builtin without one: it takes what it gets
            return
        given = list(signature.parameters.values())
        self.wants_ctx = "ctx" in signature.parameters
        self.by_keyword = any(p.kind is p.KEYWORD_ONLY for p in given)
        if not any(p.kind is p.VAR_KEYWORD for p in given):
            self.parameters = tuple(signature.parameters)
            self.optional = frozenset([p.name for p in given if p.default is not p.empty])

    def calling(self, function: RuleFunction) -> Rule:
        """This rule with its function wrapped in another of the same signature."""
        out = copy.copy(self)
        out.function = function
        return out

    def check_names(self, bound: Iterable[str]) -> None:
        """UserTypeError unless the function's parameters are exactly the names that a match binds.
        """
        names = set(bound)
        if self.parameters is None:
            return
        wrong = names - set(self.parameters)
        missing = set(self.parameters) - names - self.optional - {"ctx"}
        if wrong or missing:
            file, line = self.location
            raise UserTypeError(
                f"rule {self.name} ({file}:{line}): the pattern binds {sorted(names)}, "
                f"the function takes {list(self.parameters)}"
            )

    @property
    def source_line(self) -> str:
        """file:line"""
        return f"{self.location[0]}:{self.location[1]}"

    @property
    def label(self) -> str:
        """Name and source line; a rule without a name of its own has only a source line."""
        unnamed = self.source_line.endswith(self.name)
        return self.source_line if unnamed else f"{self.name} ({self.source_line})"

    def apply(self, u: UOp, ctx: Any = None) -> Any:
        """The replacement of `u` by the interpreting matcher, or None."""
        for match in self.pattern.match(u):
            self.check_names(match)
            given = self.function(**match, ctx=ctx) if self.wants_ctx else self.function(**match)
            if given is not None and given is not u:
                return given
        return None

    def __repr__(self) -> str:
        return f"Rule({self.name})"


def _function_name(function: RuleFunction, location: tuple[str, int]) -> str:
    name = getattr(function, "__name__", "")
    if name and name != "<lambda>":
        return str(name)
    return f"{location[0].replace(chr(92), '/').rpartition('/')[2]}:{location[1]}"


# The result of a compiled matcher, if it is not None: (replacement, rule that gave it).
Hit = tuple[Any, Rule]
MatchFunction = Callable[[UOp, Any], Hit | None]


class MatcherTable(dict[Op, MatchFunction | None]):
    """Matching functions by root op, each made at first use; None if no rule fits the op."""

    def __init__(self, make: Callable[[Op], MatchFunction | None]) -> None:
        self._make = make

    def __missing__(self, op: Op) -> MatchFunction | None:
        self[op] = made = self._make(op)
        return made


def _patterns_below(p: UPat) -> tuple[UPat, ...]:
    return (*p.alternatives, *(p.sources or ()), *(() if p.every is None else (p.every,)))


def _has_choice(p: UPat) -> bool:
    return bool(p.alternatives) or any(_has_choice(b) for b in _patterns_below(p))


def root_ops(p: UPat) -> frozenset[Op] | None:
    """The ops of nodes that may match; None for any op."""
    choices = [root_ops(a) for a in p.alternatives]
    if not choices or None in choices:
        return p.ops
    ops = frozenset[Op]().union(*[c for c in choices if c is not None])
    return ops if p.ops is None else ops & p.ops
