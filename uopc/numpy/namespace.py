"""The names of `uopc.numpy`: functions, dtypes and constants of the Array API and of NumPy."""

from __future__ import annotations

import math as _math
from types import FunctionType as _FunctionType

from uopc.numpy import linalg
from uopc.numpy.array import Array
from uopc.numpy.comparisons import *
from uopc.numpy.creation import *
from uopc.numpy.diagonals import *
from uopc.numpy.dtype_functions import *
from uopc.numpy.dtype_functions import BY_NAME as _BY_NAME
from uopc.numpy.dtype_functions import __array_namespace_info__
from uopc.numpy.dtype_functions import routed as _routed
from uopc.numpy.elementwise import *
from uopc.numpy.elementwise import FUNCTIONS as _FUNCTIONS
from uopc.numpy.joining import *
from uopc.numpy.manipulation import *
from uopc.numpy.products import *
from uopc.numpy.reductions import *
from uopc.numpy.reductions import FUNCTIONS as _REDUCTIONS
from uopc.numpy.samples.curves import *
from uopc.numpy.samples.statistics import *
from uopc.numpy.samples.statistics import FUNCTIONS as _STATISTICS
from uopc.numpy.sorting import *

__array_api_version__ = "2024.12"
e, inf, nan, pi, newaxis = _math.e, _math.inf, _math.nan, _math.pi, None
concatenate = concat
globals().update(_FUNCTIONS | _REDUCTIONS | _STATISTICS | _BY_NAME)
del globals()["bfloat16"]  # no dtype of the standard
# Arguments may be complex: see `dtype_functions.routed`.
globals().update({
    _n: _routed(_f) for _n, _f in list(globals().items())
    if _n[0] != "_" and isinstance(_f, _FunctionType)
})  # fmt: skip
for _n in linalg.__all__:
    _own = (f"linalg.{_n}",) if _n in ("diagonal", "trace") else ()
    setattr(linalg, _n, _routed(getattr(linalg, _n), *_own))
__all__ = [n for n in globals() if n[0] != "_" or n.startswith("__array")]
__all__.remove("annotations")
