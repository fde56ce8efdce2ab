"""The exceptions uopc raises. Everything else that escapes is a defect."""

from __future__ import annotations


class Error(Exception):
    """Base of everything uopc raises on purpose."""


class UserError(Error, ValueError):
    """The caller's program or arguments are wrong: shape, dtype value, name, bounds."""


class UserTypeError(UserError, TypeError):
    """The caller passed the wrong kind of thing: a dtype, a class, a number of arguments."""


class UserIndexError(UserError, IndexError):
    """An index known when the graph is built is out of range (so unpacking and loops end)."""


class UserAttributeError(UserError, AttributeError):
    """An attribute that arrays of other libraries have, and UOps under another name."""


class InvalidIR(Error):
    """A graph breaks an invariant of its level, or text does not parse."""


class Unsupported(Error):
    """The input is legal, but this target or version cannot do it."""


class DeviceError(Error, RuntimeError):
    """A device or its driver is missing, or failed while it ran a program."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has too little memory for a program."""
