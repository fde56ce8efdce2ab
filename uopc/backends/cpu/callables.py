"""Program objects that CPython calls at the speed of a builtin.

`make_callable` makes an instance of `ProgramBase` or of the caller's subclass of it. If the structs
of this interpreter and of NumPy have the expected layout, the instance belongs to a native subtype
whose calls go to machine code. Otherwise the class's own `__call__` does the same work through
ctypes. Both raise the same errors, because both leave them to the runner.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import weakref
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from uopc.backends.cpu.array_memory import NOTHING, known_interpreter
from uopc.backends.cpu.elf_loader import Image, function_address
from uopc.backends.cpu.entry_state import EntryState
from uopc.backends.cpu.layout import scalar_class
from uopc.backends.cpu.native import install
from uopc.backends.cpu.runner import Runner
from uopc.backends.plan import Plan

# The entry keeps its bases on the machine stack; programs beyond this use the plain call.
BASES_LIMIT = 4096


class ProgramBase:
    """A compiled program: call it with arrays, get arrays.

    Subclasses add properties and attributes, but no slots: the native fields follow these.
    """

    __slots__ = ("__dict__", "__weakref__", "_runner")
    _runner: Runner

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Run the program: arrays by position or by name, `out=` for the results' memory."""
        return self._runner.call(arrays, named)

    def trim(self) -> int:
        """Give the memory of intermediate values back to the system. Returns its bytes.

        A program keeps what its largest call needed, for the calls that follow. After `trim` the
        next call takes what it needs itself. Other threads may call at the same time: memory that a
        call uses stays, and 0 is returned. On a GPU, the unused memory of all programs goes back.

        Examples:
            >>> x = uopc.param("x", (uopc.variable("n", 1, 1 << 20),))
            >>> program = uopc.compile(x.cumsum(0).flip(0).cumsum(0), threads=1)
            >>> large, small = program(np.ones(1 << 18, "f4")), program(np.ones(4, "f4"))
            >>> program.trim() >= large.nbytes, program.trim()
            (True, 0)
            >>> program(np.ones(3, "f4"))
            array([3., 5., 6.], dtype=float32)
        """
        return self._runner.trim()


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


_OUT = sys.intern("out")


@cache
def native_calls_work() -> bool:
    """Fill the entry's table, if every struct it reads is laid out as it expects."""
    without_gil = "t" in sys.abiflags
    runtime = known_interpreter()
    if without_gil or runtime is None:
        return False
    runtime.set_global("nothing", NOTHING)
    runtime.set_global("instance", ProgramBase.__basicsize__)
    known = {
        "tuple": tuple, "list": list, "int": int, "float": float, "out": _OUT,
        "numpy_int": scalar_class(np.dtype(np.int64)),
    }  # fmt: skip
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
    return whole and not plan.lengths and max(bases, widest, len(plan.results)) <= BASES_LIMIT


def make_callable(
    plan: Plan, image: Image, cls: type[AnyProgram], plain: bool = False
) -> AnyProgram:
    """A program object of class `cls` for code that is loaded.

    `plain` asks for the call through ctypes.
    """
    runner = Runner(plan, image)
    native = not plain and _fits_native_entry(plan) and native_calls_work()
    try:
        state = EntryState(runner) if native else None
    except OverflowError:  # a number needs more than 64 bits
        state = None
    made: Any = _native_subtype(cast(Any, cls)) if state else cls
    program: AnyProgram = object.__new__(made)
    program._runner = runner
    if state:
        _SlowCalls(program, runner, state)
    return program


class _SlowCalls:
    """The calls of a program that Python does."""

    def __init__(self, program: ProgramBase, runner: Runner, state: EntryState) -> None:
        self._program, self._runner, self._state = weakref.ref(program), runner, state
        self._set_native_fields(program)

    def slow(self, /, *positional: object, **named: object) -> object:
        """A call that machine code does not handle."""
        runner = self._runner
        answer = runner.call(positional, named)
        program = self._program()
        if runner.arena.memory is not self._memory and program is not None:
            self._set_native_fields(program)
        return answer

    def _set_native_fields(self, program: ProgramBase) -> None:
        """Let a program's calls go to machine code, which goes to `slow` for some of them. The
        program owns the memory that they use, so that it is as long there as they are."""
        self._memory = self._runner.arena.memory
        fields = (ctypes.c_int64 * 3).from_address(id(program) + ProgramBase.__basicsize__)
        owned, before = (self.slow, *self._state.owned, self._memory), fields[1]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owned))
        fields[0:3] = [install().image.symbols["entry"], id(owned), self._state.address]
        if before:
            ctypes.pythonapi.Py_DecRef(ctypes.cast(before, ctypes.py_object))
