"""The hash-consed node: fields, interning, nothing else.

Every node is a value and exists once: `intern` (used by the builders) and the metaclass call
`UOp(...)` (the public constructor) look in one table. Outside of a compile the table holds nodes
weakly; inside `arena()` it holds them strongly, which is cheaper, and lets go at the end.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, get_args

import numpy as np

from uopc.errors import Immutable, InvalidIR
from uopc.ir.core import arena
from uopc.ir.core.arena import Key, Ref, enter, table
from uopc.ir.core.args import ExchangeArg, ReduceOp
from uopc.ir.core.constants import const_key, const_value
from uopc.ir.core.dtype_rules import derived
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops


class UCache(type):
    """Calls of the class intern: the same fields return the same object."""

    def __call__(
        cls,
        op: Op,
        dtype: DType | None = None,
        src: tuple[UOp, ...] = (),
        arg: Any = None,
        tag: Any = None,
    ) -> UOp:
        """The node with these fields, without folding. A missing dtype follows from the op's rule.
        """
        if not isinstance(op, Op):
            raise InvalidIR(f"UOp: op must be one of Ops, got {op!r}")
        if not isinstance(src, tuple):
            src = tuple(src)
        for s in src:
            if not isinstance(s, UOp):
                raise InvalidIR(f"UOp({op!r}): a source must be a UOp, got {s!r}")
        made = checked(op, dtype, src, arg, tag)
        return note_made(made) if op is Ops.PARAM else made


class Fields:
    """The fields of a node under construction, which becomes a UOp when complete."""

    __slots__ = (
        "__weakref__", "_bounds", "_content", "_form", "_ranges", "_shape", "_simple", "arg",
        "dtype", "op", "origin", "src", "tag",
    )  # fmt: skip
    op: Op
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    # Where the user made it: (code object, line), for the nodes of public builders; else None.
    origin: Any
    # Caches of `shapes`, `bounds`, `ranges` and `affine`; None until asked for.
    _shape: Any
    _bounds: Any
    _ranges: Any
    _form: Any
    # A number made of all that it computes (`serialize.content`).
    _content: Any
    # The node that `simplify` makes of this one, True for itself.
    _simple: Any


class UOp(Fields, Immutable, metaclass=UCache):
    """`op`, `dtype`, `src`, `arg`, `tag`. Nodes with equal fields are one object, and never change.
    """

    __slots__ = ()
    _copied_by = "replace"

    def __bool__(self) -> bool:
        raise TypeError(
            "a UOp has no truth value: use .where(), & and |, or int(u) on a constant graph"
        )

    def replace(self, **fields: Any) -> UOp:
        """A copy with some of op, dtype, src, arg and tag replaced.

        Nothing is folded. TypeError for another name.

        Examples:
            >>> n = uopc.variable("n", 0, 9)
            >>> (n + 1).replace(op=uopc.Ops.MUL).render(simplify=False)
            '(n*1)'
        """
        known = {k: getattr(self, k) for k in ("op", "dtype", "src", "arg", "tag")}
        unknown = fields.keys() - known.keys()
        if unknown:
            raise TypeError(f"replace: no field {sorted(unknown)[0]!r}")
        return UOp(**(known | fields))

    def rtag(self, tag: Any = True) -> UOp:
        """This node with another tag; None removes the tag.

        Examples:
            >>> x = uopc.param("x", (2,))
            >>> x.rtag("seen").tag, x.rtag("seen").rtag(None) is x
            ('seen', True)
        """
        return intern(self.op, self.dtype, self.src, self.arg, tag)


# What the compiler finds out about a node, and where a user made it, is put past `__setattr__`.
set_shape: Callable[[UOp, Any], None] = vars(Fields)["_shape"].__set__
set_ranges: Callable[[UOp, Any], None] = vars(Fields)["_ranges"].__set__
set_form: Callable[[UOp, Any], None] = vars(Fields)["_form"].__set__
set_simple: Callable[[UOp, Any], None] = vars(Fields)["_simple"].__set__
set_origin: Callable[[UOp, Any], None] = vars(Fields)["origin"].__set__

_made: weakref.WeakKeyDictionary[UOp, int] = weakref.WeakKeyDictionary()
_makings = itertools.count()


def note_made(param: UOp) -> UOp:
    """Record that the user makes a param now, also if the param existed before."""
    _made[param] = next(_makings)
    return param


def as_made(params: Iterable[UOp]) -> list[UOp]:
    """Params in the order in which the user made them, then params that no constructor made."""
    return sorted(params, key=lambda u: _made.get(u, float("inf")))


def intern(
    op: Op, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None, tag: Any = None
) -> UOp:
    """The node with these fields. The arg must be canonical: see `canonical_arg`."""
    key = (op, dtype, src, arg, tag)
    if op is Ops.CONST:
        key = (op, dtype, src, const_key(arg), tag)
    found = table.get(key)
    if found is not None:
        if type(found) is not Ref:
            return found  # type: ignore[no-any-return]
        found = found()
        if found is not None:
            return found  # type: ignore[no-any-return]
    return _make(key, arg)


def _make_node(key: Key, arg: Any) -> UOp:
    node: Any = object.__new__(Fields)
    node.op, node.dtype, node.src, _, node.tag = key
    node.arg = arg
    node.origin = node._shape = node._bounds = node._ranges = node._form = None
    node._simple = node._content = None
    node.__class__ = UOp  # from here on nobody sets a field
    if arena.open_arenas:  # as `enter` does it, without a call
        arena.held_keys.append(key)
        if table.setdefault(key, node) is node:
            return node  # type: ignore[no-any-return]
    made: UOp = enter(key, node)
    return made


# `intern` makes a node with it; `check_construction` puts a checking one in its place.
_make: Callable[[Key, Any], UOp] = _make_node


def check_construction(check: Callable[[UOp], None] | None) -> None:
    """From now on, call `check` on every new node of the process; None ends the checks.

    If `check` raises, the node does not stay in the table.
    """
    global _make
    if check is None:
        _make = _make_node
        return

    def make(key: Key, arg: Any) -> UOp:
        node = _make_node(key, arg)
        try:
            check(node)
        except BaseException:
            table.pop(key, None)
            raise
        return node

    _make = make


def checked(op: Op, dtype: DType | None, src: tuple[UOp, ...], arg: Any, tag: Any) -> UOp:
    """Intern after checking operand count, arg type and dtype. InvalidIR on a misfit."""
    if not op.takes(len(src)):
        raise InvalidIR(f"{op!r} takes {op.arity_text} operands, got {len(src)}")
    if op is Ops.ALLREDUCE and isinstance(arg, (Op, str, tuple)):  # among all of its devices
        arg = ExchangeArg(op=_combining(arg))
    if dtype is None:
        try:
            dtype = derived(op, None, src, arg)
        except InvalidIR as error:
            raise InvalidIR(f"{op!r}: {error}") from None
    arg = canonical_arg(op, dtype, arg)
    try:
        return intern(op, dtype, src, arg, tag)
    except TypeError as error:
        raise InvalidIR(f"{op!r}: the dtype, arg and tag must be hashable: {error}") from None


def canonical_arg(op: Op, dtype: DType, arg: Any) -> Any:
    """The arg in its canonical form for interning; InvalidIR if its type is not the op's."""
    if op is Ops.CONST:
        return const_value(dtype, arg)
    if type(arg) is list:
        arg = tuple(arg)
    if not isinstance(arg, op.arg):
        names = " or ".join(t.__name__ for t in op.arg)
        raise InvalidIR(f"{op!r}: arg must be {names}, got {type(arg).__name__} {arg!r}")
    if type(arg) is tuple:
        return tuple([_canonical_item(a) for a in arg])
    if type(arg) is bool:
        raise InvalidIR(f"{op!r}: arg must not be a bool")
    return arg


def _combining(op: Op | str | tuple[Any, ...]) -> ReduceOp:
    """The name of an op that combines the values of devices. InvalidIR for anything else."""
    if isinstance(op, tuple):
        raise InvalidIR(
            "allreduce: the arg is an op, such as Ops.ADD; the result is on all devices of the "
            "operand, and .copy(device) of it is on another one"
        )
    name = op.name if isinstance(op, Op) else op
    known = get_args(ReduceOp)
    if name not in known:
        raise InvalidIR(f"allreduce: {op!r} does not combine values: {', '.join(known)}")
    return name  # type: ignore[return-value]


def _canonical_item(item: Any) -> Any:
    if isinstance(item, (bool, np.bool_, np.integer)):
        return int(item)
    if isinstance(item, tuple):
        return tuple([_canonical_item(i) for i in item])
    return item
