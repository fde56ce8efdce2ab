"""Names that functions in exported files may have."""

from __future__ import annotations

import re
from typing import Any

from uopc.backends.c.names import LONGEST, reserved
from uopc.errors import UserError, UserTypeError

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def checked_function(name: Any) -> str:
    """Check the name of a function for C, C++ and linkers. UserError for a name that a caller or
    the linker would take for something else."""
    if not isinstance(name, str):
        raise UserTypeError(f"export: name must be a string, got {name!r}")
    why = reserved(name)
    if not _IDENTIFIER.fullmatch(name):
        why = "is not letters, digits and _ after a letter"
    elif len(name) > LONGEST:
        why = f"has more than {LONGEST} characters"
    if why:
        raise UserError(
            f"export: a function of C cannot be called {name!r}, which {why}: choose another name, "
            f"such as {_like(name)!r}, by name= or by the name of the file. A name is letters, "
            "digits and _, begins with a letter, and is not a word of C or C++ or a name of the C "
            "library or POSIX"
        )
    return name


def _like(name: str) -> str:
    """A valid name similar to a refused name."""
    wanted = re.sub(r"[^A-Za-z0-9_]", "_", name)[: LONGEST - 8].strip("_") or "compute"
    return f"my_{wanted}" if reserved(wanted) or wanted[0].isdigit() else wanted
