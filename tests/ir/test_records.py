"""Dataclasses that are written later behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from dataclasses import field
from typing import Any, ClassVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from uopc.ir import records
from uopc.ir.core.args import DataArg, ParamArg

OPTIONS = st.fixed_dictionaries(
    {}, optional={"frozen": st.booleans(), "slots": st.booleans(), "eq": st.booleans()}
)


@st.composite
def bodies(draw: Any, of: str = "abcd", defaults: bool = False) -> dict[str, Any]:
    """The fields of a class: names, and what the class says about each."""
    made: dict[str, Any] = {}
    for name in draw(st.permutations(of))[: draw(st.integers(0, len(of)))]:
        defaults = defaults or draw(st.booleans())
        flags = draw(
            st.fixed_dictionaries({}, optional=dict.fromkeys(("repr", "compare"), st.booleans()))
        )
        if not defaults:
            made[name] = field(**flags) if flags else dataclasses.MISSING
        elif draw(st.booleans()):
            made[name] = field(default_factory=list, init=draw(st.booleans()), **flags)
        else:
            made[name] = field(default=draw(st.integers(0, 2)), **flags)
    return made


def made(
    make: Any, options: dict[str, Any], body: dict[str, Any], bases: tuple[type, ...] = ()
) -> Any:
    """A class with these fields by one of the two decorators."""
    values = {n: copy.copy(v) for n, v in body.items() if v is not dataclasses.MISSING}
    hints = {"__annotations__": dict.fromkeys(body, "Any") | {"shared": "ClassVar[int]"}}
    return make(**options)(
        type("Made", bases, values | hints | {"shared": 3, "__module__": __name__})
    )


def outcome(ask: Any) -> Any:
    """What a call gives: a value, or the class of its error and the words of it."""
    try:
        return ask()
    except Exception as error:  # any error is an outcome, and must be the same for both
        return type(error), str(error).replace("<locals>.", "")


def by_fields(one: Any) -> Any:
    """The hash if it follows from the fields: else it differs between any two objects."""
    return type(one).__hash__ is not object.__hash__ and hash(one)


def facts(cls: Any, values: list[int], other: list[int]) -> list[Any]:
    """All that a program can ask two instances and their class."""
    parameters = inspect.signature(cls).parameters.values()
    found = [
        [(p.name, p.kind, p.annotation, repr(p.default)) for p in parameters],
        [(f.name, f.type, repr(f.default), f.init, f.repr) for f in dataclasses.fields(cls)],
        dataclasses.is_dataclass(cls), cls.__match_args__, cls.shared,
        cls.__dataclass_params__.frozen, outcome(lambda: cls(*range(9))),
    ]  # fmt: skip
    one = outcome(lambda: cls(*values))
    if not isinstance(one, cls):
        return [*found, one]
    two = outcome(lambda: cls(*other))
    found += [
        repr(one),
        one == two,
        copy.copy(one) == one,
        one == 3,
        outcome(lambda: by_fields(one)),
    ]
    found.append(outcome(lambda: dataclasses.asdict(one)))
    for f in dataclasses.fields(cls):
        found.append(outcome(lambda f=f: repr(dataclasses.replace(one, **{f.name: 7}))))
        found.append(outcome(lambda f=f: setattr(one, f.name, 5)))
        found += [outcome(lambda f=f: delattr(one, f.name)), outcome(lambda: repr(one))]
    return [*found, outcome(lambda: setattr(one, "strange", 1)) is None]


@given(OPTIONS, bodies(), bodies("cdef", defaults=True), st.data())
def test_as_the_standard_library(
    options: dict[str, Any], body: dict[str, Any], below: dict[str, Any], data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.integers(0, 2), max_size=5))
    other = data.draw(st.permutations(values))
    own, stored = made(records.dataclass, options, body), made(dataclasses.dataclass, options, body)
    assert facts(own, values, other) == facts(stored, values, other)
    extended = outcome(lambda: made(dataclasses.dataclass, options, below, (stored,)))
    assume(isinstance(extended, type))  # a field without a default may not follow one with
    own = made(records.dataclass, options, below, (own,))
    assert facts(own, values, other) == facts(extended, values, other)


@records.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    known: ClassVar[int] = 7

    def __repr__(self) -> str:
        return f"({self.x}, {self.y})"


@records.dataclass
class Counted:
    total: int = field(init=False)
    parts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


def test_own_methods_stay() -> None:
    assert repr(Point(1)) == "(1, 2)" and Point.known == 7 and Point.__slots__ == ("x", "y")
    assert Counted((1, 2)) == Counted(parts=(1, 2)) and Counted((1, 2)).total == 3


def test_copies_and_pickles() -> None:
    for one in (Point(1, 5), ParamArg("x", (2, None))):
        assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)


def test_a_dataclass_may_extend_a_record() -> None:
    @dataclasses.dataclass(frozen=True)
    class Named(Point):
        name: str = ""

    assert [f.name for f in dataclasses.fields(Named)] == ["x", "y", "name"]
    assert Named(1, name="a") == Named(1, 2, "a")
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Open", (Point,), {}))


def test_weakref_slot() -> None:
    assert "__weakref__" in DataArg.__slots__ and "__weakref__" not in ParamArg.__slots__


def test_importing_writes_no_methods() -> None:
    """A class without instances has no `__init__` of its own."""
    text = (
        "from uopc.ir.core import args\n"
        "first = args.BufferArg.__init__\n"
        "args.BufferArg(0, ())\n"
        "print(first is args.BufferArg.__init__, first.__code__.co_varnames[:3])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False ('self', 'values', 'named')\n"
