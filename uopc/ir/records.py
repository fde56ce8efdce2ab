"""Dataclasses of which nothing is written before it is needed: most have no instance in a process.

`dataclasses.dataclass` writes five to seven functions a class as text and compiles them. Here
`__init__`, `__eq__` and `__hash__` alone are text, compiled when one of them is first called; the
other methods are closures. `dataclasses.fields`, `replace`, `asdict` and `is_dataclass` take these
classes too: the standard library describes the fields when somebody asks for them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

_MISSING = dataclasses.MISSING


class _OfFactory:
    """The default of a parameter whose value a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


class _Field(NamedTuple):
    """A field as its class writes it; `value` is its default, or a `dataclasses.field`."""

    name: str
    type: Any
    value: Any

    def setting(self, name: str, usual: Any) -> Any:
        """The setting that `dataclasses.field` gives, or the usual one."""
        given = isinstance(self.value, dataclasses.Field)
        return getattr(self.value, name) if given else usual

    @property
    def default(self) -> Any:
        return self.setting("default", self.value)


def _own_fields(cls: type) -> list[_Field]:
    """The annotated names of the class itself, but for class variables."""
    hints = vars(cls).get("__annotations__", {})
    return [
        _Field(name, hint, vars(cls).get(name, _MISSING)) for name, hint in hints.items()
        if not str(hint).removeprefix("typing.").startswith("ClassVar")
    ]  # fmt: skip


class _Later:
    """An attribute of a class that is computed when it is read."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.compute = compute

    def __get__(self, instance: object, owner: type) -> Any:
        return self.compute()


class _WrittenSignature:
    """The signature of a class with the `__init__` that is written, or an inherited one."""

    def __init__(self, written: Callable[[], dict[str, Any]]) -> None:
        self.written = written

    def __get__(self, instance: object, owner: Any) -> inspect.Signature | None:
        init = self.written()["__init__"]
        if instance is not None or owner.__init__ is not init:
            return None
        signature = inspect.signature(init)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _described(cls: type, known: list[_Field], frozen: bool) -> type:
    """A dataclass of the standard library with these fields and no methods."""
    body: dict[str, Any] = {f.name: f.value for f in known if f.value is not _MISSING}
    hints = {f.name: f.type for f in known}
    body |= {"__module__": cls.__module__, "__doc__": cls.__doc__ or "", "__annotations__": hints}
    make: Any = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen)
    made: type = make(type(cls.__name__, (), body))
    return made


def _init_text(cls: type, known: list[_Field], frozen: bool) -> str:
    """`__init__`, with the fields for parameters."""
    given, lines = ["self"], []
    for f in known:
        make, value = f.setting("default_factory", _MISSING), f.name
        if make is not _MISSING:
            value = f"make_{f.name}()"
        if f.setting("init", True):
            usual = f"=default_{f.name}" if f.default is not _MISSING else ""
            if make is not _MISSING:
                usual, value = "=made", f"{value} if {f.name} is made else {f.name}"
            given.append(f.name + usual)
        elif make is _MISSING:  # `__post_init__` sets it
            continue
        put = f"put(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}"
        lines.append(f"  {put}")
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()")
    return f"def __init__({', '.join(given)}):\n" + "\n".join(lines or ["  pass"])


def _compared_text(known: list[_Field]) -> str:
    """`__eq__` and `__hash__`"""
    names = [f.name for f in known if f.setting("compare", True)]
    own, others = ["".join([f"{of}.{n}, " for n in names]) for of in ("self", "other")]
    return f"""
def __eq__(self, other):
  return ({own}) == ({others}) if other.__class__ is self.__class__ else NotImplemented
def __hash__(self):
  return hash(({own}))
"""


def _written(cls: type, known: list[_Field], frozen: bool) -> dict[str, Any]:
    """The methods that are text, compiled."""
    scope: dict[str, Any] = {"put": object.__setattr__, "made": _OfFactory()}
    scope |= {f"default_{f.name}": f.default for f in known}
    scope |= {f"make_{f.name}": f.setting("default_factory", _MISSING) for f in known}
    text = _init_text(cls, known, frozen) + _compared_text(known)
    exec(compile(text, f"<{cls.__qualname__}>", "exec"), scope)
    methods = {name: scope[name] for name in ("__init__", "__eq__", "__hash__")}
    for name, method in methods.items():
        method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    hints = {f.name: f.type for f in known if f.setting("init", True)}
    methods["__init__"].__annotations__ = hints | {"return": None}
    return methods


def _first_methods(written: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Methods that write those of the class when one of them is first called."""

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        written()["__init__"](self, *values, **named)

    def __eq__(self: Any, other: Any) -> Any:
        return written()["__eq__"](self, other)

    def __hash__(self: Any) -> int:
        found: int = written()["__hash__"](self)
        return found

    return {"__init__": __init__, "__eq__": __eq__, "__hash__": __hash__}


def _shown(known: list[_Field]) -> Callable[[Any], str]:
    names = [f.name for f in known if f.setting("repr", True)]

    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        fields = ", ".join([f"{n}={getattr(self, n)!r}" for n in names])
        return f"{type(self).__qualname__}({fields})"

    return __repr__


def _frozen(cls: Any, names: list[str]) -> dict[str, Any]:
    """Methods that refuse to set and delete the fields, and every attribute of the class itself."""

    def refuse(self: Any, name: str, what: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")

    def __setattr__(self: Any, name: str, value: Any) -> None:
        refuse(self, name, "assign to")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        refuse(self, name, "delete")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _stored(names: list[str]) -> dict[str, Any]:
    """Methods for copies and pickles of objects with slots."""

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, n) for n in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state):
            object.__setattr__(self, name, value)

    return {"__getstate__": __getstate__, "__setstate__": __setstate__}


def _with_slots(cls: type, names: list[str], weakref_slot: bool) -> type:
    """The class made again, with slots for its own fields."""
    inherited = {n for base in cls.__mro__[1:] for n in getattr(base, "__slots__", ())}
    body = {n: v for n, v in vars(cls).items() if n not in (*names, "__dict__", "__weakref__")}
    own = (*names, "__weakref__") if weakref_slot else names
    body["__slots__"] = tuple([n for n in own if n not in inherited])
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _replaced(self: Any, **changes: Any) -> Any:
    return dataclasses.replace(self, **changes)


def _record(
    cls: Any, eq: bool = True, frozen: bool = False, slots: bool = False, weakref_slot: bool = False
) -> Any:
    own = _own_fields(cls)
    known = {f.name: f for base in cls.__mro__[:0:-1] for f in vars(base).get("_fields_of", ())}
    fields = list((known | {f.name: f for f in own}).values())
    names, given = [f.name for f in fields], set(vars(cls))
    if "__eq__" in given and vars(cls)["__hash__"] is None:
        given.discard("__hash__")  # Python itself set it
    if slots:
        cls = _with_slots(cls, [f.name for f in own], weakref_slot)
    else:
        _set_defaults(cls, own)

    @functools.cache
    def written() -> dict[str, Any]:
        methods = _written(cls, fields, frozen)
        for name, method in methods.items():
            if vars(cls).get(name) is first[name]:
                setattr(cls, name, method)
        return methods

    @functools.cache
    def described() -> Any:
        return _described(cls, fields, frozen)

    first = _first_methods(written)
    usual: dict[str, Any] = {
        "__init__": first["__init__"], "__repr__": _shown(fields), "__replace__": _replaced,
        "__match_args__": tuple([f.name for f in fields if f.setting("init", True)]),
    }  # fmt: skip
    if eq:
        usual |= {"__eq__": first["__eq__"], "__hash__": first["__hash__"] if frozen else None}
    if frozen and slots:
        usual |= _stored(names)
    always = {
        "_fields_of": tuple(fields), "__signature__": _WrittenSignature(written),
        "__dataclass_fields__": _Later(lambda: described().__dataclass_fields__),
        "__dataclass_params__": _Later(lambda: described().__dataclass_params__),
    }  # fmt: skip
    always |= _frozen(cls, names) if frozen else {}
    for name, value in (always | {n: v for n, v in usual.items() if n not in given}).items():
        setattr(cls, name, value)
    return cls


def _set_defaults(cls: type, own: list[_Field]) -> None:
    for f in own:
        if isinstance(f.value, dataclasses.Field):
            if f.default is _MISSING:
                delattr(cls, f.name)
            else:
                setattr(cls, f.name, f.default)


def is_record(cls: type) -> bool:
    """True for a dataclass made here; `dataclasses.is_dataclass` would describe the fields."""
    return hasattr(cls, "_fields_of")


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """A decorator as `dataclasses.dataclass`, with the options eq, frozen, slots and
        weakref_slot."""
        return _record(cls) if cls is not None else functools.partial(_record, **options)
