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
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from uopc.backends.cpu.arguments import Bound, shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap
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
    known = {"ndarray": np.ndarray, "tuple": tuple, "list": list, "int": int, "out": _OUT}
    for name, value in known.items():
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
    return fits and whole and not empty


class _State(NamedTuple):
    """The address of the words that the entry reads, and the objects that it needs.

    They are tuples, arrays and methods, which stay whole while the garbage collector takes a cycle
    apart; none refers to the program.
    """

    address: int
    owned: tuple[object, ...]


# The words of a program whose variables have no values yet.
_UNBOUND_WORDS = np.array([-1 if name == "integers" else 0 for name in STATE], np.int64)
_UNBOUND = _State(data_address(_UNBOUND_WORDS), (_UNBOUND_WORDS,))


def _encode_state(
    runner: Runner, values: Mapping[str, int], integers: Mapping[str, int]
) -> _State | None:
    """The state of a program for the values of its variables, and for calls that name `integers`.

    None for sizes that the entry does not handle: `Runner.run` gives arrays without elements memory
    that a kernel may read in vain.
    """
    plan, sizes = runner.plan, runner.sizes(values)
    outer: list[Argument | Result] = [*plan.arguments, *plan.fresh]
    shapes = [shape_of(shaped.shape, values) for shaped in outer]
    memory = runner.arena.memory(sizes.arena_bytes)
    if memory is None or any([0 in shape for shape in shapes]):
        return None
    arena, arena_owned = memory
    owned: list[object] = []

    def store_words(words: Sequence[int]) -> int:
        array = np.array(words or [0], np.int64)
        owned.append(array)
        return data_address(array)

    shapes_at = cache(store_words)
    records: list[int] = []
    for shaped, shape in zip(outer, shapes):
        records += _encode_record(shaped, shape, shapes_at(shape))
    fresh = itertools.count(len(plan.arguments))
    sources = [next(fresh) if r.source is None else r.source for r in plan.results]
    # Names in calls are interned, so that one object stands for each.
    names = tuple([sys.intern(argument.name) for argument in plan.arguments])
    written_arguments = [i for i, arg in enumerate(plan.arguments) if arg.writable]
    integer_names, known = tuple(integers), tuple(map(int, integers.values()))
    bases = [0] * plan.arena_base + runner.base_template(arena)
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
        "arena_flag": runner.arena.flag_address if sizes.arena_bytes else 0,
        "argument_names": store_words([id(name) for name in names]),
        "keys": store_words([id(key) for key in plan.keys]),
        "integers": len(integers),
        "integer_names": store_words([id(name) for name in integer_names]),
        "integer_values": store_words([id(value) for value in known]),
    }
    assert tuple(state) == STATE
    address = store_words(list(state.values()))
    owned += [names, plan.keys, sizes, *arena_owned, plan.constants, integer_names, known]
    return _State(address, (*owned, *[shaped.dtype for shaped in outer], runner.image.memory))


def _encode_record(shaped: Argument | Result, shape: tuple[int, ...], dims: int) -> list[int]:
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
    if native and plan.variables:
        calls = _SizedCalls(weakref.ref(program), runner)
        _set_native_fields(program, "entry_sized", calls.slow, _UNBOUND)
    elif native:
        state = _encode_state(runner, {}, {})
        assert state is not None
        _set_native_fields(program, "entry", runner.slow, state)
    return program


def _set_native_fields(
    program: ProgramBase, entry: str, slow: Callable[..., object], state: _State
) -> None:
    """Let a program's calls go to a function of the runtime, with a state, or to `slow`."""
    fields = (ctypes.c_int64 * 3).from_address(id(program) + ProgramBase.__basicsize__)
    owned, before = (slow, *state.owned), fields[1]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owned))
    fields[0:3] = [install().image.symbols[entry], id(owned), state.address]
    if before:
        ctypes.pythonapi.Py_DecRef(ctypes.cast(before, ctypes.py_object))


class _SizedCalls:
    """The calls of a program with variables that Python does.

    Sizes that come twice in a row get a state, with which machine code does the calls that follow.
    """

    def __init__(self, program: weakref.ref[ProgramBase], runner: Runner) -> None:
        self._program, self._runner = program, runner
        self._states: BoundedMap[Hashable, _State | None] = BoundedMap()
        self._arena = runner.arena.address
        self._last: Hashable = None

    def slow(self, /, *positional: object, **named: object) -> object:
        """A call that machine code does not handle."""
        bound = self._runner.bind(positional, named)
        answer = self._runner.run(bound)
        self._remember(bound)
        return answer

    def _remember(self, bound: Bound) -> None:
        arena = self._runner.arena.address
        if arena != self._arena:  # no state keeps smaller memory alive
            self._arena = arena
            self._states.clear()
        if bound.sizes != self._last:
            self._last = bound.sizes
            return
        state = self._states.obtain(
            bound.sizes, lambda: _encode_state(self._runner, bound.values, bound.integers)
        )
        program = self._program()
        if state is not None and program is not None:
            _set_native_fields(program, "entry_sized", self.slow, state)
