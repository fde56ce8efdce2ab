"""The exceptions uopc raises. Everything else that escapes is a defect."""

from __future__ import annotations


class Error(Exception):
    """Base of everything uopc raises on purpose.

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
    """An attribute that arrays of other libraries have, and UOps under another name.

    It is an AttributeError of Python's too, so that `hasattr` is False.

    Examples:
        >>> uopc.zeros((2, 3)).item
        Traceback (most recent call last):
        uopc.errors.UserAttributeError: a UOp has no item: write float(program(...))
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.obj = None  # Python would search it for a similar name, and suggest that as well


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
        uopc.errors.Unsupported: beam (UOPC_BEAM): a search measures, and cuda:sm_80 has PTX alone
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
