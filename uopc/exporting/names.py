"""Names that functions in exported files may have."""

from __future__ import annotations

import re
from typing import Any

from uopc.backends.c.names import LONGEST, is_taken
from uopc.errors import UserError, UserTypeError

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def checked_function(name: Any) -> str:
    """The name of a function of C, C++ and a linker. UserError for any other."""
    if not isinstance(name, str):
        raise UserTypeError(f"export: name must be a string, got {name!r}")
    if not _IDENTIFIER.fullmatch(name) or is_taken(name) or len(name) > LONGEST:
        raise UserError(
            f"export: a function of C cannot be called {name!r}: choose a name of letters, digits "
            "and _ that begins with a letter and is no keyword, as name= or as the name of the file"
        )
    return name
