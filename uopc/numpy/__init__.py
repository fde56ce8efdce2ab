"""The Array API standard (2024.12) on graphs, also under NumPy's names.

`import uopc.numpy as unp`: functions take Arrays, UOps, NumPy arrays and numbers. Of UOps alone
they give UOps, else Arrays. NumPy's functions and operators on Arrays and UOps call them.

Examples:
    >>> import uopc.numpy as unp
    >>> unp.sum(unp.arange(4))
    Array(int64(), not computed)
    >>> int(unp.sum(unp.arange(4)))
    6
"""

from typing import TYPE_CHECKING

from uopc.numpy import protocols  # noqa: F401  (installs the methods of Array)
from uopc.numpy.complexes import fft as fft
from uopc.numpy.namespace import *  # noqa: F403

if not TYPE_CHECKING:  # which would allow every name

    def __getattr__(name):
        raise AttributeError(f"module 'uopc.numpy' has no attribute {name!r}")
