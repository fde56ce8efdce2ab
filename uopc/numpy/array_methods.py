"""The base of Array that names, in its stub, the methods which `protocols.py` installs.

These work by functions of modules that import Array, so no class body can hold them.
"""

from __future__ import annotations


class ArrayMethods:
    """Empty until `protocols.py` has run, from whose table `array_methods.pyi` is generated."""

    __slots__ = ()
