"""Program objects that CPython calls at the speed of a builtin.

`make_callable` makes an instance of `ProgramBase` or of the caller's subclass of it. If the structs
of this interpreter and of NumPy have the expected layout, the instance belongs to a native subtype
whose calls go to machine code. Otherwise the class's own `__call__` does the same work through
ctypes. Both raise the same errors, because both leave them to the runner.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import struct
import sys
import sysconfig
import weakref
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast

import numpy as np

from uopc.backends.cpu.arguments import shape_of
from uopc.backends.cpu.elf_loader import Image, function_address
from uopc.backends.cpu.layout import data_address, is_layout_known
from uopc.backends.cpu.native import FUNCTIONS, RECORD, STATE, STRUCTURES, install
from uopc.backends.cpu.runner import Runner
from uopc.backends.plan import Argument, Plan, Result

# The entry keeps its bases on the machine stack; programs beyond this use the plain call.
BASES_LIMIT = 4096
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400


class ProgramBase:
    """A compiled program: call it with arrays, get arrays.

    Subclasses add properties and attributes, but no slots: the native fields follow these.
    """

    __slots__ = ("__dict__", "__weakref__", "_runner")
    _runner: Runner

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Run the program: arrays by position or by name, `out=` for the results' memory."""
        return self._runner.call(arrays, named)


AnyProgram = TypeVar("AnyProgram", bound=ProgramBase)


# Numbers of CPython's stable ABI.
_TP_CALL, _TP_MEMBERS = 50, 72
_MEMBER_OBJECT, _MEMBER_SIZE, _MEMBER_READONLY = 16, 19, 1
_HAVE_VECTORCALL = 1 << 11
# The structs of a type's description: PyType_Spec, PyType_Slot, PyMemberDef.
_SPEC, _SLOT, _MEMBER = "@PiiIP", "@iP", "@PiniP"
# Interpreters before 3.12 keep pointers into the type's description.
_descriptions: list[object] = []
# The bytes of the fields that a native subtype adds: function, owned objects, address of the state.
_NATIVE_FIELDS = 24


def _describe(content: bytes) -> int:
    """The address of a part of a type's description."""
    buffer = ctypes.create_string_buffer(content)
    _descriptions.append(buffer)
    return ctypes.addressof(buffer)


@cache
def _native_subtype(base: Any) -> Any:
    """The subtype of `base` whose instances CPython calls through a function pointer they hold."""
    offset = base.__basicsize__
    if offset != ProgramBase.__basicsize__:
        raise TypeError(f"{base.__name__} must not add __slots__ to ProgramBase")
    # An object member is visited, cleared and dropped by the generic code for subtypes, but only if
    # it is not read-only; so it loses its name below instead.
    members = (
        (_describe(b"__vectorcalloffset__"), _MEMBER_SIZE, offset, _MEMBER_READONLY, 0),
        (_describe(b"_owned"), _MEMBER_OBJECT, offset + 8, 0, 0),
        (0, 0, 0, 0, 0),
    )
    slots = (
        (_TP_MEMBERS, _describe(b"".join([struct.pack(_MEMBER, *member) for member in members]))),
        (_TP_CALL, function_address(ctypes.pythonapi, "PyVectorcall_Call")),
        (0, 0),
    )
    name = _describe(f"{base.__module__}.{base.__name__}".encode())
    slots_at = _describe(b"".join([struct.pack(_SLOT, *slot) for slot in slots]))
    spec = struct.pack(_SPEC, name, offset + _NATIVE_FIELDS, 0, _HAVE_VECTORCALL, slots_at)
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.argtypes, make.restype = (ctypes.c_void_p, ctypes.py_object), ctypes.py_object
    subtype = make(_describe(spec), (base,))
    del subtype._owned
    subtype.__doc__ = base.__doc__
    subtype.__module__, subtype.__qualname__ = base.__module__, base.__qualname__
    return subtype


def _numpy_function(index: int) -> int:
    """A function of NumPy's C interface, by its number there, which never changes."""
    package = "numpy._core" if hasattr(np, "_core") else "numpy.core"
    core = import_module(f"{package}._multiarray_umath")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    table = ctypes.cast(get(core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    address = table[index]
    assert address is not None
    return int(address)


_NEW_FROM_DESCR = 94
_OUT = sys.intern("out")


@cache
def native_calls_work() -> bool:
    """Fill the entry's table, if every struct it reads is laid out as it expects."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not is_layout_known():
        return False
    runtime = install()
    for name, function in FUNCTIONS.items():
        runtime.set_global(name, function_address(ctypes.pythonapi, function))
    runtime.set_global("new_array", _numpy_function(_NEW_FROM_DESCR))
    runtime.set_global("instance", ProgramBase.__basicsize__)
    for name, value in {"ndarray": np.ndarray, "tuple": tuple, "list": list, "out": _OUT}.items():
        runtime.set_global(name, id(value))
    return _subtype_is_sound()


def _subtype_is_sound() -> bool:
    """True if an instance is a whole Python object whose native fields start out empty."""
    probe = object.__new__(_native_subtype(ProgramBase))
    size = type(probe).__basicsize__ - ProgramBase.__basicsize__
    at = id(probe) + ProgramBase.__basicsize__
    if size != _NATIVE_FIELDS or any((ctypes.c_int64 * 3).from_address(at)):
        return False
    probe.attribute = probe
    alive = weakref.ref(probe)
    if not gc.is_tracked(probe) or probe not in gc.get_referents(vars(probe)):
        return False
    del probe.attribute, probe
    return alive() is None


def _fits_native_entry(plan: Plan) -> bool:
    bases = plan.arena_base + 2 + len(plan.constants)
    widest = max((len(launch.words) for launch in plan.launches), default=0)
    whole = all(r.source is None or r.shape == plan.arguments[r.source].shape for r in plan.results)
    # `Runner.call` gives arrays without elements memory that a kernel may read in vain.
    arrays: list[Argument | Result] = [*plan.arguments, *plan.results]
    empty = any([0 in array.shape for array in arrays])
    fits = max(bases, widest, len(plan.results)) <= BASES_LIMIT
    return fits and whole and not empty and not plan.variables


def _encode_state(runner: Runner) -> tuple[int, tuple[object, ...]]:
    """The address of the words that the entry reads, and the objects that it needs.

    They are tuples, arrays and methods, which stay whole while the garbage collector takes a cycle
    apart; none refers to the program.
    """
    plan = runner.plan
    owned: list[object] = []

    def store_words(words: Sequence[int]) -> int:
        array = np.array(words or [0], np.int64)
        owned.append(array)
        return data_address(array)

    shapes_at = cache(store_words)
    records: list[int] = []
    outer: list[Argument | Result] = [*plan.arguments, *plan.fresh]
    for shaped in outer:
        records += _encode_record(shaped, shapes_at(shape_of(shaped.shape, {})))
    fresh = itertools.count(len(plan.arguments))
    sources = [next(fresh) if r.source is None else r.source for r in plan.results]
    # Names in calls are interned, so that one object stands for each.
    names = tuple([sys.intern(argument.name) for argument in plan.arguments])
    written_arguments = [i for i, arg in enumerate(plan.arguments) if arg.writable]
    sizes, slow = runner.sizes({}), runner.slow
    bases = [0] * plan.arena_base + runner.base_template(runner.arena.address)
    state = {
        "arguments": len(plan.arguments),
        "takes_out": int(len(plan.fresh) == len(plan.results) and plan.structure != "dict"),
        "fresh": len(plan.fresh),
        "results": len(plan.results),
        "structure": STRUCTURES[plan.structure],
        "nogil": int(plan.nogil),
        "bases": len(bases),
        "table": sizes.table_address,
        "records": store_words(records),
        "base_template": store_words(bases),
        "sources": store_words(sources),
        # With out= the outputs, which follow the arguments, are written as well.
        "written": store_words([*written_arguments, *range(len(plan.arguments), plan.arena_base)]),
        "written_count": len(written_arguments),
        "arena_flag": runner.arena.flag_address if plan.arena_bytes else 0,
        "argument_names": store_words([id(name) for name in names]),
        "keys": store_words([id(key) for key in plan.keys]),
        "slow": id(slow),
    }
    assert tuple(state) == STATE
    address = store_words(list(state.values()))
    owned += [names, plan.keys, sizes, slow, *runner.arena.owned, plan.constants]
    return address, (*owned, *[shaped.dtype for shaped in outer], runner.image.memory)


def _encode_record(shaped: Argument | Result, dims: int) -> list[int]:
    shape = shape_of(shaped.shape, {})
    written = isinstance(shaped, Result) or shaped.writable
    record = {
        "dtype": id(shaped.dtype),
        "type_number": shaped.dtype.num,
        "ndim": len(shape),
        "flags": _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if written else 0),
        "nbytes": math.prod(shape) * shaped.dtype.itemsize,
        "dims": dims,
    }
    assert tuple(record) == RECORD
    return list(record.values())


def make_callable(
    plan: Plan, image: Image, cls: type[AnyProgram], plain: bool = False
) -> AnyProgram:
    """A program object of class `cls` for code that is loaded.

    `plain` asks for the call through ctypes.
    """
    runner = Runner(plan, image)
    native = not plain and _fits_native_entry(plan) and native_calls_work()
    made: Any = _native_subtype(cast(Any, cls)) if native else cls
    program: AnyProgram = object.__new__(made)
    program._runner = runner
    if native:
        state, owned = _encode_state(runner)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owned))
        fields = (ctypes.c_int64 * 3).from_address(id(program) + ProgramBase.__basicsize__)
        fields[1:3] = [id(owned), state]
        fields[0] = install().image.symbols["entry"]
    return program
