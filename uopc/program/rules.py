"""The rules that users and targets give by stage, in one form, with an identity.

The identity is a digest of patterns, code and captured values, or None if a rule reads an object
that may change unseen. Programs whose rules have equal identities share a cache entry.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op
from uopc.ir.core.serialize import fingerprint
from uopc.ir.core.uop import UOp
from uopc.ir.rewrite.matcher import PatternMatcher, as_rule
from uopc.ir.rewrite.pattern import Rule, UPat

Rules = Mapping[str, PatternMatcher]
FINAL = "apply-rules"  # the stage of rules that are given without one
_EXPECTED = "a PatternMatcher, a rule, a list of them, or a dict of these by stage"


def by_stage(given: Any, who: str = "compile") -> Rules:
    """The rules of each stage. `given` is a PatternMatcher, a rule, a list of these, or a dict of
    these by pass name. UserError for an unknown stage."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return _without_empty({FINAL: _matcher(given, who)})
    from uopc.passes import PIPELINE

    names = [p.name for _, p in PIPELINE]
    for stage in given:
        if stage not in names:
            raise UserError(f"{who}: rules: unknown stage {stage!r}; choose {', '.join(names)}")
    return _without_empty({n: _matcher(given[n], who) for n in names if n in given})


def merged(first: Rules, then: Rules) -> Rules:
    """Merge rules by stage. At each node the rules of `first` are tried first."""
    both = {stage: pm for stage, pm in then.items() if stage not in first}
    return both | {s: pm + then[s] if s in then else pm for s, pm in first.items()}


def _without_empty(found: dict[str, PatternMatcher]) -> Rules:
    return {stage: pm for stage, pm in found.items() if pm.rules}


def _matcher(given: Any, who: str) -> PatternMatcher:
    if isinstance(given, PatternMatcher):
        return given
    rules: list[Rule] = []
    for item in given if isinstance(given, list) else [given]:
        if isinstance(item, PatternMatcher):
            rules += item.rules
        elif isinstance(item, (Rule, tuple)):
            rules.append(as_rule(item))
        elif callable(item):
            rules.append(_of_function(item, who))
        else:
            raise UserTypeError(f"{who}: rules must be {_EXPECTED}, got {item!r}")
    return PatternMatcher(rules)


def _of_function(function: Any, who: str) -> Rule:
    """Make a rule for every node of a function of a node, and perhaps of `ctx`."""
    try:
        names = [n for n in inspect.signature(function).parameters if n != "ctx"]
    except ValueError:
        names = []
    if len(names) != 1:
        raise UserTypeError(
            f"{who}: rules: {function!r} must take one argument, the node, and maybe ctx"
        )
    code = getattr(function, "__code__", None)
    place = None if code is None else (code.co_filename, code.co_firstlineno)
    return Rule(UPat(name=names[0]), function, location=place)


# ---------------------------------------------------------------- identity
class _UnknownError(Exception):
    """A rule reads an object without a digest of its content."""


# Packages whose versions, or sources, are already part of a key.
_KNOWN = frozenset(("uopc", "numpy", "math", "operator", "functools", "itertools", "builtins"))
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))


def identity(rules: Rules) -> str | None:
    """A digest of everything that rules do; None if unknown."""
    import numpy

    try:
        seen: dict[int, str] = {}
        parts = [f"{s} {_of(r, seen)}" for s, pm in rules.items() for r in pm.rules]
    except _UnknownError:
        return None
    text = "\n".join([numpy.__version__, *parts])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _of(value: Any, seen: dict[int, str]) -> str:
    """A text that is equal only for equal values. `seen` numbers the functions being described."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, (Op, DType)):
        return f"{kind.__name__} {value!r}"
    if kind is UOp:
        return f"UOp {fingerprint(value).digest}"
    if kind in (tuple, frozenset):
        inner = [_of(v, seen) for v in value]
        return f"{kind.__name__}({', '.join(inner if kind is tuple else sorted(inner))})"
    if kind is Rule:
        return f"Rule({_of(value.pattern, seen)}, {_of(value.function, seen)})"
    if kind is UPat:
        fields = [f for f in UPat.__slots__ if f not in ("location", "tag")]
        return f"UPat({[_of(getattr(value, f), seen) for f in fields]}, {_tag(value, seen)})"
    if kind is functools.partial:
        keywords = tuple(sorted(value.keywords.items()))
        return f"partial({_of((value.func, value.args, keywords), seen)})"
    if kind is types.ModuleType:
        return f"module {_known(value.__name__)}"
    if kind is types.FunctionType:
        return _of_code(value, seen)
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return f"{_known(value.__module__ or 'builtins')}.{value.__qualname__}"
    raise _UnknownError


def _tag(pattern: UPat, seen: dict[int, str]) -> str:
    return "any tag" if pattern.tag is UPat().tag else _of(pattern.tag, seen)


def _known(module: str) -> str:
    if module.partition(".")[0] not in _KNOWN:
        raise _UnknownError
    return module


def _of_code(function: types.FunctionType, seen: dict[int, str]) -> str:
    """A text for a function: its code, its defaults, and the values that it captures or reads by
    name."""
    if id(function) in seen:
        return seen[id(function)]
    seen[id(function)] = f"function {len(seen)}"
    try:
        captured = tuple([cell.cell_contents for cell in function.__closure__ or ()])
    except ValueError as error:  # an empty cell
        raise _UnknownError from error
    defaults = (function.__defaults__, tuple(sorted((function.__kwdefaults__ or {}).items())))
    read: list[str] = []
    for code in _codes(function.__code__):
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_flags)
        consts = tuple([c for c in code.co_consts if not isinstance(c, types.CodeType)])
        read.append(f"{code.co_code.hex()} {names} {_of(consts, seen)}")
        for step in dis.get_instructions(code):
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "STORE_DEREF"):
                raise _UnknownError
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read.append(f"{step.argval} {_global(function, str(step.argval), seen)}")
    return f"function({' '.join(read)}, {_of(captured, seen)}, {_of(defaults, seen)})"


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _global(function: types.FunctionType, name: str, seen: dict[int, str]) -> str:
    if name in function.__globals__:
        return _of(function.__globals__[name], seen)
    return "builtin"
