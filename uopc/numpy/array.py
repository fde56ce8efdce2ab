"""Array: a value of a traced function, or a lazy value. It wraps a UOp and compares by value.

An Array of a traced function (`uopc.jit`) knows its Trace: two traces never meet in one graph, and
a trace ends when its function returns. An Array without a Trace is computed when Python asks for
its value (`float(x)`, `np.asarray(x)`, `if x`).
"""

from __future__ import annotations

import contextvars
import itertools
import math
import opcode
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from uopc.errors import UserAttributeError, UserError, UserTypeError
from uopc.ir.builder import fold, leaves, operands, rebuild
from uopc.ir.core import calls, dtypes, shapes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.numpy.array_methods import ArrayMethods
from uopc.tensor import updates
from uopc.tensor.creation import param
from uopc.tensor.numpy_protocols import OF_ARRAYS

Scalar = bool | int | float
_KINDS = {"bool": 0, "int": 1, "uint": 1, "index": 1, "float": 2}
_DEFAULTS = (dtypes.bool_, dtypes.int64, dtypes.float64)  # of Python's bool, int, float
_WAY_OUT = "Use where() for a choice by value"
# The message where NumPy asks a traced array for its values, to keep them in its own array.
_KEPT = (
    "NumPy's arrays hold no traced values: leave np.asarray(x) out, join several by stack, make"
    " arrays to write to by uopc.numpy"
)
_WRITTEN = (  # r[i] = x of an array that NumPy made
    "r[i] = v writes into an array of NumPy, which holds no traced values: write r ="
    " uopc.numpy.zeros(shape), or stack a list"
)
_ELSEWHERE = (
    "{} asked for its values. Of other libraries than NumPy only functions that take"
    " x.__array_namespace__() are traced: call others outside, or write them of NumPy's functions"
)
_WAYS_OUT = {
    "np.asarray()": _KEPT,
    "float()": f"{_WAY_OUT}, and write np.sin(x) for math.sin(x). {_KEPT}",
    "the integer": f"{_WAY_OUT}, uopc.fori_loop for a number of steps",
    "format()": "Format results outside of the function, or print the array itself",
}  # fmt: skip
# Attributes of NumPy's arrays that an Array lacks, and what to write instead.
_INSTEAD = {
    "view": "x.astype(dtype), or x.uop.bitcast(dtype) for the same bits",
    "resize": "x.reshape(shape)",
    "partition": "x.sort(), or uopc.numpy.top_k(x, k)", "argpartition": "uopc.numpy.top_k(x, k)",
    "searchsorted": "uopc.numpy.searchsorted(x, v)", "choose": "uopc.numpy.select",
    "flat": "x.ravel()", "compress": "uopc.numpy.compress(condition, x)",
    "tobytes": "np.asarray(x).tobytes()",
} | {name: OF_ARRAYS[name] for name in ("nbytes", "itemsize")}  # fmt: skip


class Trace:
    """A run of a function on Arrays: its name, and `open`, False once the function has returned.

    `meets`: the dtypes of the arrays that Python integers met, by the integers' params. `lists`: by
    params that are elements of a list, the message where NumPy takes the list.
    """

    __slots__ = ("lists", "meets", "name", "open")

    def __init__(self, name: str) -> None:
        self.name, self.open = name, True
        self.lists: dict[UOp, str] = {}
        self.meets: dict[UOp, set[DType]] = {}


births = itertools.count()
# Arrays that were born before the body that runs now, and who runs it: the body may not write them.
captured: contextvars.ContextVar[tuple[int, str]] = contextvars.ContextVar(
    "captured", default=(0, "")
)
# The run that is under way in this thread.
current_trace: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("trace", default=None)


class Array(ArrayMethods):
    """A value of the graph with the operators and methods of the Array API: `==` compares values.

    NumPy's functions take it. Python can ask for its value (`float(x)`, `np.asarray(x)`, `if x`),
    except in a function of `jit`. `weak`: it was a Python number, which takes the dtype of the
    arrays it meets. `tracing`: the Trace of the function it belongs to, or None.

    Examples:
        >>> x = unp.asarray([1.0, 4.0])
        >>> np.asarray(np.sqrt(x) + 1), (x == 4).tolist()
        (array([2., 3.]), [False, True])
    """

    __slots__ = (
        "__weakref__", "_trace", "_uop", "_value", "base", "born", "held", "steps", "storage",
        "version", "weak",
    )  # fmt: skip
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, uop: UOp, trace: Trace | None = None, weak: bool = False) -> None:
        self._uop, self._trace, self.weak = uop, trace, weak
        self._value: npt.NDArray[Any] | None = None
        self.base: Array | None = None  # of a view: the array whose memory it shares
        self.steps: tuple[Any, ...] = ()  # from the base to the view: see `memory/steps.py`
        self.version = 0  # the number of writes to the base that `_uop` has
        self.storage: UOp | None = None  # that holds the newest version, and belongs to this alone
        self.held = False  # an array of no dimensions; other values without dimensions are numbers
        self.born = next(births)

    def _promote(self) -> None:
        """Become a graph before a write. An Array is one; known numbers of a trace become one."""

    # ------------------------------------------------------------ facts
    @property
    def tracing(self) -> Trace | None:
        """The Trace of the function that the array belongs to, or None.

        Examples:
            >>> unp.zeros(2).tracing is None
            True
        """
        return self._trace if self.base is None else self.base._trace

    @property
    def uop(self) -> UOp:
        """The graph. UserError for an array of a traced function that has returned.

        Examples:
            >>> uopc.compile(unp.asarray([1, 2]).uop + 1)()
            array([2, 3])
        """
        if self.tracing is not None and not self.tracing.open:
            raise UserError(
                f"an array of {self.tracing.name} is used after {self.tracing.name} has returned:"
                f" return the array{made_at(self._uop)}"
            )
        if self.base is not None and self.version != self.base.version:
            u = self.base.uop
            for step in self.steps:
                u = step.graph(u)
            self._uop, self.version, self._value = u, self.base.version, None
        return self._uop

    @property
    def is_unknown(self) -> bool:
        """True if only a call knows the value: it depends on an argument or a size.

        Examples:
            >>> unp.asarray([1, 2]).is_unknown
            False
        """
        if self.tracing is not None:
            return True
        now = self.uop
        if self._value is not None:
            return False
        nodes = calls.graph_order([now], calls.outside_bodies)
        return any([u.op is Ops.PARAM or u.op is Ops.VARIABLE for u in nodes])

    @property
    def dtype(self) -> DType:
        """The dtype of the elements.

        Examples:
            >>> unp.asarray([1, 2]).dtype
            dtypes.int64
        """
        return self._uop.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dimensions: ints, or UOps of dtype index for symbolic sizes.

        Examples:
            >>> unp.zeros((2, 3)).shape
            (2, 3)
        """
        return shapes.shape(self._uop)

    @property
    def ndim(self) -> int:
        """The number of dimensions.

        Examples:
            >>> unp.zeros((2, 3)).ndim
            2
        """
        return len(self.shape)

    @property
    def size(self) -> Any:
        """The number of elements: an int, or a UOp if a size is symbolic.

        Examples:
            >>> unp.zeros((2, 3)).size
            6
        """
        return shapes.size(self.shape)

    @property
    def device(self) -> str:
        """"cpu": arrays are values of the CPU; `jit` and `compile` choose other devices.

        Examples:
            >>> unp.zeros((2, 3)).device
            'cpu'
        """
        return "cpu"

    def __repr__(self) -> str:
        kind = f"{self.dtype.name}{shapes.show(self.shape)}"
        if self.tracing is not None:
            return f"Array({kind}, traced by {self.tracing.name})"
        if self._value is None:
            return f"Array({kind}, not computed)"
        return f"Array({np.array2string(self._value, separator=', ', prefix='Array(')}, {kind})"

    @property
    def is_complex(self) -> bool:
        """True if the elements are complex numbers.

        Examples:
            >>> unp.asarray([1, 2j]).is_complex
            True
        """
        return False

    @property
    def leaf(self) -> Any:
        """The array as `compile` takes it: its graph, or of complex numbers their pairs.

        Examples:
            >>> uopc.compile((unp.asarray([1j, 2.0]) * 1j).leaf)()
            array([-1.+0.j,  0.+2.j])
        """
        return self.uop

    # ------------------------------------------------------------ values
    def value(self, who: str = "its value") -> npt.NDArray[Any]:
        """The value as a read-only NumPy array. UserTypeError while the array is traced.

        Examples:
            >>> unp.asarray([1, 2]).value()
            array([1, 2])
        """
        if self.tracing is not None:
            trace_of((self,))
            if who == "np.asarray()" and self._uop in self.tracing.lists:
                raise UserTypeError(f"{self.tracing.name}: {self.tracing.lists[self._uop]}")
            raise UserTypeError(
                f"{who} is not known: {self!r} depends on an argument."
                f" {_way_out(who, sys._getframe(1))}, or name the argument in static_argnames"
            )
        now = self.uop
        if self._value is None:
            self._value = _computed(now, who)
            self._value.flags.writeable = False
            self._uop, self.storage = operands.constant(self._value), None
        return self._value

    def item(self) -> Any:
        """The value of an array of one element as a Python number.

        UserTypeError while the array is traced.

        Examples:
            >>> unp.sum(unp.asarray([1, 2])).item()
            3
        """
        return self.value("item()").item()

    def __bool__(self) -> bool:
        return bool(self._only("the truth of an array"))

    def __int__(self) -> int:
        return int(self._only("int()"))

    def __float__(self) -> float:
        return float(self._only("float()"))

    def __complex__(self) -> complex:
        return complex(self._only("complex()"))

    def __index__(self) -> int:
        if _KINDS[self.dtype.kind] != 1:
            raise UserTypeError(f"an index must be an integer, got {self!r}")
        return int(self._only("the integer"))

    def __format__(self, spec: str) -> str:
        return format(self._only("format()"), spec) if spec else str(self)

    if not TYPE_CHECKING:  # which would allow every name

        def __getattr__(self, name):
            if name in _INSTEAD:
                message = f"an Array has no {name}: write {_INSTEAD[name]}"
                raise UserAttributeError(message, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _only(self, who: str) -> Any:
        if self.ndim:
            instead = ": use np.where, & and |, or x.all()" if who.startswith("the truth") else ""
            raise UserTypeError(f"{who} needs an array without dimensions, got {self!r}{instead}")
        return self.value(who).item()

    def __len__(self) -> int:
        if not self.ndim:
            raise UserTypeError("len() of an array without dimensions")
        if not isinstance(self.shape[0], int):
            raise UserTypeError(f"len() of {self!r} is a symbol: use shape[0]")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        for i in range(len(self)):
            yield self[i]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        value = self.value("np.asarray()")
        if copy is False:
            raise UserError(
                "np.asarray(copy=False): the value of an Array is computed, so it is a copy"
            )
        return np.array(value, dtype=dtype)

    def __copy__(self) -> Array:
        return Array(self.uop, self.tracing, self.weak)

    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        if stream is not None:
            raise UserError(f"__dlpack__: stream must be None on the CPU, got {stream!r}")
        value = self.__array__()
        return value.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """This array. UserError for any device but cpu, and for a given stream.

        Examples:
            >>> x = unp.asarray([1, 2])
            >>> x.to_device("cpu") is x
            True
        """
        if device != "cpu" or stream is not None:
            raise UserError(
                f"to_device: expected device 'cpu' and no stream, got {device!r} and {stream!r}"
            )
        return self

    # ------------------------------------------------------------ indexing
    def __delitem__(self, key: Any) -> NoReturn:
        raise UserTypeError(
            "del x[i]: an array keeps its shape; make a shorter array by slices and concat"
        )

    @property
    def at(self) -> updates.Indexed[Array]:
        """Updates of elements: `x.at[key].set(v)`, `add`, `mul`, `min`, `max` give a new Array.

        See `UOp.at` for the keys.

        Examples:
            >>> np.asarray(unp.zeros(4).at[1:3].add(10))
            array([ 0., 10., 10.,  0.])
        """

        def updated(key: Any, how: str, value: Any) -> Array:
            given = uop_of(value, "at", self.dtype)
            if isinstance(value, Array) and value.weak:
                given = _met(value, given, self.dtype)
            made = updates.updated(self.uop, index_of(key), how, given)
            found: Array = same_kind(made, (self, value, *arrays_in(key)))
            return found

        return updates.Indexed(updated)


def index_of(key: Any) -> Any:
    """Convert the Arrays of an index: known scalars to numbers, masks that depend on no argument to
    NumPy arrays, others to UOps."""
    if isinstance(key, tuple):
        return tuple([index_of(k) for k in key])
    if isinstance(key, slice):
        return slice(index_of(key.start), index_of(key.stop), key.step)
    if isinstance(key, list) and any([isinstance(k, Array) for k in key]):
        first, *rest = [fold.cast(uop_of(k, "index"), dtypes.int64) for k in key]
        return first.stack(*rest) if rest else first.reshape(1)
    if not isinstance(key, Array):
        return key
    if key.is_unknown or (key.ndim and key.dtype is not dtypes.bool_):
        return key.uop
    return key.value("a mask") if key.ndim else key.value("the integer").item()


def arrays_in(key: Any) -> list[Array]:
    """The Arrays of an index, also as bounds of slices."""
    parts = key if isinstance(key, tuple) else (key,)
    ends = [v for k in parts if isinstance(k, slice) for v in (k.start, k.stop)]
    listed = [v for k in parts if isinstance(k, list) for v in k]
    return [k for k in (*parts, *ends, *listed) if isinstance(k, Array)]


def _way_out(who: str, frame: FrameType | None) -> str:
    """The advice for code outside of uopc, found from `frame`, that asks for an unknown value."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("uopc."):
        frame = frame.f_back
    if frame is not None:
        code = frame.f_code
        if opcode.opname[code.co_code[frame.f_lasti]] in ("STORE_SUBSCR", "STORE_SLICE"):
            return _WRITTEN
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if "site-packages" in code.co_filename and package != "numpy":
            return _ELSEWHERE.format(package)
    return _WAYS_OUT.get(who, _WAY_OUT)


def _computed(u: UOp, who: str) -> npt.NDArray[Any]:
    """Compute a graph without params. Constant arrays become arguments of its program."""
    from uopc.driver import compile

    free = next(iter(walk.inputs(u)), None)
    if free is not None:
        raise UserTypeError(
            f"{who} is not known: it depends on the param {free.arg.name!r}; compile the graph,"
            f" and call the program{made_at(free)}"
        )
    data = [d for d in walk.nodes(u) if d.op is Ops.DATA]
    stand_in = {d: param(f"c{i}", shapes.shape(d), d.dtype) for i, d in enumerate(data)}
    graph = rebuild.rewritten(u, lambda v, src: stand_in.get(v))
    result = compile(graph, inputs=list(stand_in.values()))(*[d.arg.array for d in data])
    return np.asarray(result)


# ---------------------------------------------------------------- functions of Arrays
def trace_of(values: Iterable[Any]) -> Trace | None:
    """The only Trace of these values. UserError for two Traces, and for a Trace that has ended."""
    found: Trace | None = None
    for v in values:
        if not isinstance(v, Array) or v.tracing is None:
            continue
        made = v.uop  # checked
        if found is not None and found is not v.tracing:
            raise UserError(
                f"arrays of {found.name} and of {v.tracing.name} meet: pass an argument instead"
                f"{made_at(made)}"
            )
        found = v.tracing
    return found


def uop_of(value: Any, who: str = "", like: DType | None = None) -> UOp:
    """Convert an Array, UOp, NumPy array or number to a UOp; numbers have NumPy's dtypes."""
    if isinstance(value, Array):
        if value.is_complex:
            raise UserTypeError(f"{who and who + ': '}complex numbers are not supported")
        return value.uop
    if type(value) in (bool, int, float):
        kind = (bool, int, float).index(type(value))
        return _python_number(value, _DEFAULTS[kind] if like is None else like)
    if isinstance(value, complex):
        raise UserTypeError(f"{who and who + ': '}complex numbers are not supported")
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
    return operands.as_uop(value, None, who)


def check_number(value: Any, t: DType, who: str) -> None:
    """UserError for a Python float whose integer part does not fit an integer dtype."""
    if t.is_int and isinstance(value, float):
        least, most = t.bounds
        if not (math.isfinite(value) and least <= int(value) <= most):
            raise UserError(f"{who}: the number {value} does not fit {t.name}")


def float_of(value: Any, who: str) -> UOp:
    """Convert a value by `uop_of`; if it is not a float, cast it to float64."""
    u = uop_of(value, who)
    return u if u.dtype.is_float else fold.cast(u, dtypes.float64)


def _python_number(value: Scalar, like: DType) -> UOp:
    """Convert a Python number that meets Arrays of dtype `like`; with numbers, a bool is 0 or 1."""
    as_int = type(value) is bool and like is not dtypes.bool_
    return operands.as_uop(int(value) if as_int else value, like)


def same_kind(made: Any, values: Iterable[Any], weak: bool = False) -> Any:
    """Return results as UOps if all arrays of the values are UOps, else as Arrays."""
    given = list(values)
    of_uops = any(isinstance(v, UOp) for v in given)
    if of_uops and not any(isinstance(v, Array) for v in given):
        return made
    trace = trace_of(given)
    if isinstance(made, UOp):
        return Array(made, trace, weak)
    return type(made)([Array(m, trace) for m in made])


def applied(function: Callable[..., Any], *values: Any) -> Any:
    """Call a function of UOps with values of any kind."""
    return same_kind(function(*[uop_of(v) for v in values]), values)


def is_weak(v: Any) -> bool:
    """True for a Python number, and for an Array that was a Python number."""
    return v.weak if isinstance(v, Array) else type(v) in (bool, int, float)


def common_dtype(values: Iterable[Any]) -> DType:
    """The dtype that values promote to. Python numbers, and Arrays that were numbers, do not widen
    an array's dtype; with a Python float, integers give float64."""
    given = list(values)
    strong = [uop_of(v).dtype.scalar for v in given if not is_weak(v)]
    strong.sort(key=lambda t: -_KINDS[t.kind])  # int8, uint16 and float32 are float32, as in NumPy
    weak = [_KINDS[uop_of(v).dtype.kind] for v in given if is_weak(v)]
    if not strong:
        return _DEFAULTS[max(weak)]
    found = reduce(dtypes.promote, strong)
    return _DEFAULTS[max(weak)] if weak and max(weak) > _KINDS[found.kind] else found


def promoted(who: str, *values: Any, floats: bool = False) -> tuple[list[UOp], bool]:
    """Cast values to their common dtype (with `floats`, integers to float64); also return whether
    the result is a weak number."""
    for v in values:
        if isinstance(v, complex) or (isinstance(v, Array) and v.is_complex):
            raise UserTypeError(f"{who}: complex numbers are not supported")
    operands.check_truth(who, *values)
    common = common_dtype(values)
    if floats and not common.is_float:
        common = dtypes.float64
    made = []
    for v in values:
        if type(v) in (bool, int, float):
            made.append(leaves.const(common, _python_number(v, common).arg))
        else:
            made.append(_met(v, uop_of(v, who), common))
    arrays = [v for v in values if type(v) not in (bool, int, float)]
    return made, bool(arrays) and all(map(is_weak, arrays)) and len(arrays) > 0


def _met(value: Any, u: UOp, t: DType) -> UOp:
    """Convert a value to a UOp in the dtype of the arrays that it meets."""
    if t.is_int and u.op is Ops.PARAM and is_weak(value) and value.tracing is not None:
        value.tracing.meets.setdefault(u, set()).add(t)
    return fold.cast(u, t)


def is_operand(value: Any) -> bool:
    """True if the operators of Array accept the value."""
    return isinstance(value, (Array, UOp, np.ndarray, np.generic, bool, int, float, complex))
