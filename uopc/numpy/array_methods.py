"""The base of Array; its stub names the methods that `protocols.py` installs.

The methods use functions of modules that import Array, so no class body can hold them.
"""

from __future__ import annotations


class ArrayMethods:
    """Empty until `protocols.py` has run. Its table generates `array_methods.pyi`."""

    __slots__ = ()
