"""Program objects that CPython calls at the speed of a builtin.

`make_callable` gives an instance of `ProgramBase` or of the caller's subclass of it. Where this
interpreter's and NumPy's structs are laid out as expected, the instance belongs to a native subtype
whose calls go to machine code; otherwise the class's own `__call__` does the same work through
ctypes. Both raise the same errors, because both leave them to the runner.
"""

from __future__ import annotations

import ctypes
import gc
import math
import sys
import sysconfig
import weakref
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast

import numpy as np

from uopc.backends.cpu.elf_loader import Image, function_address
from uopc.backends.cpu.layout import data_address, is_layout_known
from uopc.backends.cpu.native import RECORD, STATE, STRUCTURES, install
from uopc.backends.cpu.runner import Runner
from uopc.backends.plan import AnyDtype, Argument, Plan, Result

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


def run_traced(
    program: ProgramBase, /, *arrays: object, **named: object
) -> tuple[object, list[tuple[str, float]]]:
    """Call a program launch by launch; also returns each launch's kernel and seconds."""
    return program._runner.trace(arrays, named)


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("function", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    ]


class _Member(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


# Numbers of CPython's stable ABI.
_TP_CALL, _TP_MEMBERS = 50, 72
_MEMBER_OBJECT, _MEMBER_SIZE, _MEMBER_READONLY = 16, 19, 1
_HAVE_VECTORCALL = 1 << 11
# The fields that a native subtype adds: function, referenced objects, address of the state.
_NATIVE_FIELDS = 24
# Interpreters before 3.12 keep pointers into the type's description.
_descriptions: list[object] = []


@cache
def _native_subtype(base: Any) -> Any:
    """The subtype of `base` whose instances CPython calls through a function pointer they hold."""
    offset = base.__basicsize__
    if offset != ProgramBase.__basicsize__:
        raise TypeError(f"{base.__name__} must not add __slots__ to ProgramBase")
    members = (_Member * 3)(
        _Member(b"__vectorcalloffset__", _MEMBER_SIZE, offset, _MEMBER_READONLY, None),
        # An object member is visited, cleared and dropped by the generic code for subtypes, but
        # only if it is not read-only; so it loses its name below instead.
        _Member(b"_kept", _MEMBER_OBJECT, offset + 8, 0, None),
    )
    slots = (_Slot * 3)(
        _Slot(_TP_MEMBERS, ctypes.addressof(members)),
        _Slot(_TP_CALL, function_address(ctypes.pythonapi, "PyVectorcall_Call")),
    )
    name = f"{base.__module__}.{base.__name__}".encode()
    spec = _Spec(name, offset + _NATIVE_FIELDS, 0, _HAVE_VECTORCALL, ctypes.addressof(slots))
    _descriptions.append((members, slots, name, spec))
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.argtypes, make.restype = (ctypes.c_void_p, ctypes.py_object), ctypes.py_object
    subtype = make(ctypes.addressof(spec), (base,))
    del subtype._kept
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
_FUNCTIONS = {
    "vectorcall": "PyObject_Vectorcall",
    "incref": "Py_IncRef",
    "decref": "Py_DecRef",
    "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread",
    "malloc": "PyMem_Malloc",
    "free": "PyMem_Free",
    "no_memory": "PyErr_NoMemory",
    "new_tuple": "PyTuple_New",
    "set_tuple": "PyTuple_SetItem",
    "new_list": "PyList_New",
    "set_list": "PyList_SetItem",
    "new_dict": "PyDict_New",
    "set_dict": "PyDict_SetItem",
    "tuple_size": "PyTuple_Size",
    "list_size": "PyList_Size",
    "tuple_item": "PyTuple_GetItem",
    "list_item": "PyList_GetItem",
    "compare_text": "PyUnicode_Compare",
}


@cache
def native_calls_work() -> bool:
    """Fill the entry's table, if every struct it reads is laid out as it expects."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not is_layout_known():
        return False
    runtime = install()
    for name, function in _FUNCTIONS.items():
        runtime.set_global(name, function_address(ctypes.pythonapi, function))
    runtime.set_global("new_array", _numpy_function(_NEW_FROM_DESCR))
    runtime.set_global("instance", ProgramBase.__basicsize__)
    # The entry leaves all but the usual call to the method of the base.
    slow: object = ProgramBase.__call__
    objects = {"ndarray": np.ndarray, "tuple": tuple, "list": list, "out": _OUT, "slow": slow}
    for name, kept in objects.items():
        runtime.set_global(name, id(kept))
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


def _fits_native_entry(runner: Runner) -> bool:
    plan = runner.plan
    bases = plan.arena_base + 2 + len(plan.constants)
    widest = max((len(launch.words) for launch in plan.launches), default=0)
    whole = all(r.source is None or r.shape == plan.arguments[r.source].shape for r in plan.results)
    small = max(bases, widest, len(plan.results)) <= BASES_LIMIT
    return small and whole and runner.fixed


def _encode_state(runner: Runner) -> tuple[int, tuple[object, ...]]:
    """The address of the words the entry reads, and the objects that own them."""
    plan = runner.plan
    kept: list[object] = []

    def store_words(words: list[int]) -> int:
        array = np.array(words or [0], np.int64)
        kept.append(array)
        return data_address(array)

    records: list[int] = []
    dims_at: dict[tuple[int, ...], int] = {}  # of the words of a shape
    outer: list[Argument | Result] = [*plan.arguments, *plan.fresh]
    for shaped in outer:
        shape = [dim for dim in shaped.shape if isinstance(dim, int)]
        written = isinstance(shaped, Result) or shaped.writable
        dims = tuple(shape)
        if dims not in dims_at:
            dims_at[dims] = store_words(shape)
        records += _encode_record(shaped.dtype, shape, written, dims_at[dims])
    fresh = iter(range(len(plan.fresh)))
    sources = [-1 - next(fresh) if r.source is None else r.source for r in plan.results]
    # Names in calls are interned, so that one object stands for each.
    names = [sys.intern(argument.name) for argument in plan.arguments]
    kept += [names, plan.keys]
    written_arguments = [i for i, arg in enumerate(plan.arguments) if arg.writable]
    bases = [0] * plan.arena_base + runner.base_template(runner.arena.address)
    state = {
        "arguments": len(plan.arguments),
        "takes_out": int(len(plan.fresh) == len(plan.results)),
        "fresh": len(plan.fresh),
        "results": len(plan.results),
        "structure": STRUCTURES[plan.structure],
        "nogil": int(plan.nogil),
        "bases": len(bases),
        "table": runner.sizes({}).table.address,
        "records": store_words(records),
        "base_template": store_words(bases),
        "sources": store_words(sources),
        # With out= the outputs, which follow the arguments, are written as well.
        "written": store_words([*written_arguments, *range(len(plan.arguments), plan.arena_base)]),
        "written_count": len(written_arguments),
        "arena_flag": runner.arena.flag_address if plan.arena_bytes else 0,
        "argument_names": store_words([id(name) for name in names]),
        "keys": store_words([id(key) for key in plan.keys]),
    }
    assert tuple(state) == STATE
    return store_words(list(state.values())), tuple(kept)


def _encode_record(dtype: AnyDtype, shape: list[int], written: bool, dims: int) -> list[int]:
    record = {
        "dtype": id(dtype),
        "type_number": dtype.num,
        "ndim": len(shape),
        "flags": _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if written else 0),
        "nbytes": math.prod(shape) * dtype.itemsize,
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
    if plain or not _fits_native_entry(runner) or not native_calls_work():
        program = object.__new__(cls)
        program._runner = runner
        return program
    native: AnyProgram = object.__new__(_native_subtype(cast(Any, cls)))
    native._runner = runner
    state, owners = _encode_state(runner)
    dtypes = [argument.dtype for argument in plan.arguments], [r.dtype for r in plan.results]
    # All that machine code reads, and nothing that can refer to the program: see Image.
    kept = (owners, runner.sizes({}), runner.arena.keep, plan.constants, dtypes, image.memory)
    _set_native_fields(native, kept, state)
    return native


def _set_native_fields(program: ProgramBase, kept: object, state: int) -> None:
    at = id(program) + ProgramBase.__basicsize__
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    fields = (ctypes.c_int64 * 3).from_address(at)
    fields[1:3] = [id(kept), state]
    fields[0] = install().image.symbols["entry"]
