"""The exceptions uopc raises. Everything else that escapes is a defect."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn


class Error(Exception):
    """Base of all exceptions that uopc raises on purpose.

    Examples:
        >>> try:
        ...     uopc.zeros((2, 3)).reshape(4)
        ... except uopc.Error as error:
        ...     print(error)
        reshape: (2, 3) has 6 elements, (4) has 4
    """


class UserError(Error, ValueError):
    """The caller's program or arguments are wrong: shape, dtype value, name, bounds.

    It is a ValueError of Python's too.

    Examples:
        >>> uopc.zeros((2, 3)).reshape(4)
        Traceback (most recent call last):
        uopc.errors.UserError: reshape: (2, 3) has 6 elements, (4) has 4
    """


class CircularWait(UserError):
    """Launches that overwrite storage which each other still have to read."""


class UserTypeError(UserError, TypeError):
    """The caller passed the wrong kind of thing: a dtype, a class, a number of arguments.

    It is a TypeError of Python's too.

    Examples:
        >>> uopc.jit(3)
        Traceback (most recent call last):
        uopc.errors.UserTypeError: jit: expected a function, got 3
    """


class UserIndexError(UserError, IndexError):
    """An index known when the graph is built is out of range (so unpacking and loops end).

    It is an IndexError of Python's too.

    Examples:
        >>> uopc.zeros((2, 3))[5]
        Traceback (most recent call last):
        uopc.errors.UserIndexError: index 5 is out of range for axis 0 of size 2
    """


class UserAttributeError(UserError, AttributeError):
    """An attribute that other libraries' arrays have, and that UOps have under another name.

    It is an AttributeError of Python's too, so that `hasattr` is False.

    Examples:
        >>> uopc.zeros((2, 3)).item
        Traceback (most recent call last):
        uopc.errors.UserAttributeError: a UOp has no item: write float(program(...))
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.obj = None  # Python would suggest a similar name of the object as well


class Immutable:
    """A base of values that never change: setting or deleting an attribute is an error.

    `_copied_by` names the method that makes a changed copy. A constructor sets attributes by
    `_keep`.

    Examples:
        >>> uopc.param("x", (2,)).arg = 3
        Traceback (most recent call last):
        uopc.errors.UserAttributeError: cannot set 'arg': UOps never change; use .replace(arg=...)
    """

    __slots__ = ()
    _copied_by: ClassVar[str] = ""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise self._refusal(name, "set")

    def __delattr__(self, name: str) -> NoReturn:
        raise self._refusal(name, "delete")

    def _keep(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __setstate__(self, state: Any) -> None:  # of copies and pickles
        in_dict, in_slots = state if isinstance(state, tuple) else (state, None)
        self._keep(**(in_dict or {}), **(in_slots or {}))

    def _refusal(self, name: str, what: str) -> UserAttributeError:
        text = f"cannot {what} {name!r}: {type(self).__name__}s never change"
        if self._copied_by and hasattr(type(self), name):
            text += f"; use .{self._copied_by}({name}=...)"
        return UserAttributeError(text, name)


class InvalidIR(Error):
    """A graph breaks an invariant of its level, or text does not parse.

    Examples:
        >>> uopc.UOp(uopc.Ops.EXP, dtypes.float32, ())
        Traceback (most recent call last):
        uopc.errors.InvalidIR: Ops.EXP takes 1 operands, got 0
    """


class Unsupported(Error):
    """The input is legal, but this target or version cannot do it.

    Examples:
        >>> uopc.compile(uopc.param("x", (3,)) * 2, device="cuda:sm_80", beam=2)
        Traceback (most recent call last):
        uopc.errors.Unsupported: beam (UOPC_BEAM): a search measures, which cuda:sm_80 cannot
    """


class DeviceError(Error, RuntimeError):
    """A device or its driver is missing, or failed while it ran a program.

    It is a RuntimeError of Python's too.

    Examples:
        >>> issubclass(uopc.errors.DeviceError, (uopc.Error, RuntimeError))
        True
    """


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has too little memory for a program.

    It is a MemoryError of Python's too.

    Examples:
        >>> issubclass(uopc.errors.DeviceMemoryError, MemoryError)
        True
    """
