"""Memory that the runtime reads: where each field is, and what it holds."""

from __future__ import annotations

from uopc.backends.cpu.layout import OFFSETS
from uopc.backends.llvm.builder import (
    I8,
    I32,
    I64,
    VOID,
    Builder,
    Operand,
    PointerTo,
    Signature,
    Struct,
    Type,
    Words,
)

WORDS = PointerTo(I64)
# An object of CPython or NumPy: the fields of any class.
_object = Struct(OFFSETS["head"], {})
OBJECT = PointerTo(_object)
OBJECTS = PointerTo(OBJECT)
_TYPES: dict[str, Type] = {
    "head": I64, "type": OBJECT, "tuple_items": OBJECT, "list_items": OBJECTS, "data": I64,
    "ndim": I32, "dims": WORDS, "strides": WORDS, "dtype": OBJECT, "flags": I32,
    "memory_handler": OBJECT,
    "byte_order": I8, "type_number": I32,
}  # fmt: skip
_object.fields = {name: (OFFSETS[name], t) for name, t in _TYPES.items()}

# Functions of the interpreter that the code calls: their names there, results and arguments.
FUNCTIONS = {
    "vectorcall": ("PyObject_Vectorcall", Signature(OBJECT, OBJECT, OBJECTS, I64, OBJECT)),
    "bad_call": ("PyErr_BadInternalCall", Signature(VOID)),
    "incref": ("Py_IncRef", Signature(VOID, OBJECT)),
    "decref": ("Py_DecRef", Signature(VOID, OBJECT)),
    "compare_text": ("PyUnicode_Compare", Signature(I32, OBJECT, OBJECT)),
    "save_thread": ("PyEval_SaveThread", Signature(OBJECT)),
    "restore_thread": ("PyEval_RestoreThread", Signature(VOID, OBJECT)),
    "new_tuple": ("PyTuple_New", Signature(OBJECT, I64)),
    "new_list": ("PyList_New", Signature(OBJECT, I64)),
    "new_dict": ("PyDict_New", Signature(OBJECT)),
    "set_dict": ("PyDict_SetItem", Signature(I32, OBJECT, OBJECT, OBJECT)),
    "as_integer": ("PyLong_AsLongLongAndOverflow", Signature(I64, OBJECT, PointerTo(I32))),
    "trace": ("PyTraceMalloc_Track", Signature(I32, I32, I64, I64)),
}
# NumPy's: dtype, rank, sizes, strides, address, flags, array that it is made for.
_NEW_ARRAY = Signature(OBJECT, OBJECT, OBJECT, I32, WORDS, WORDS, WORDS, I32, OBJECT)
# Slots of @globals. `stale`: the worker threads are gone (after a fork), so the next call takes the
# slow path. `instance`: the offset of a program object's native fields. `nothing`: the memory of
# arrays without elements, where a kernel may read in vain. `allocator`: what the functions
# `allocate` and `free` of NumPy take first. `memory_handler`: that of results (`memory_ir.py`).
GLOBALS = Words(
    stale=I64, instance=I64, nothing=I64, ndarray=OBJECT, tuple=OBJECT, list=OBJECT, int=OBJECT,
    float=OBJECT, numpy_int=OBJECT, out=OBJECT, new_array=_NEW_ARRAY,
    new_copy=Signature(OBJECT, OBJECT, I32), memory_handler=OBJECT, allocator=I64,
    allocate=Signature(I64, I64, I64), free=Signature(VOID, I64, I64, I64),
    **{name: signature for name, (_, signature) in FUNCTIONS.items()},
)  # fmt: skip

# Of a 0-d argument: `scalar`, NumPy's class of numbers of its dtype; `number`, one of NUMBERS if it
# takes Python's.
RECORD = Words(
    dtype=OBJECT, type_number=I32, ndim=I64, flags=I32, nbytes=I64, itemsize=I64, dims=WORDS,
    scalar=OBJECT, number=I64,
)  # fmt: skip
NUMBERS = {"wide_float": 1, "narrow_float": 2, "wide_int": 3, "narrow_int": 4}
WRITEABLE = 0x400
STRUCTURES = {"single": 0, "tuple": 1, "list": 2, "dict": 3}

# What stands before the elements of a result: the block of memory that they are in.
BLOCK = Words(begin=I64, nbytes=I64)
# Which size of an array gives a variable; an instruction of sizes and a word that one of them fills
# in (see `size_code.py`).
DIM_INPUT = Words(argument=I64, axis=I64, variable=I64)
INSTRUCTION = Words(op=I64, a=I64, b=I64, c=I64, result=I64)
PATCH = Words(register=I64, word=WORDS)
ARENA = Words(flag=I64, begin=I64, nbytes=I64)
# A table of launches (see `launch_ir.py`). A word of a kernel is an offset from a base.
KERNEL = Signature(VOID, WORDS, I64)
PAIR = Words(base=I64, offset=I64)
LAUNCH = Struct(32, {
    "kernel": (0, KERNEL), "chunks": (8, I64), "parallel": (16, I64), "count": (24, I64),
    "pairs": (32, PAIR),
})  # fmt: skip
# Offsets in a pool's memory. Fields that are written often have cache lines of their own; each
# worker has a line from `workers` on.
POOL_LINE = 64
WORKER = Struct(POOL_LINE, {"asleep": (0, I64), "lock": (8, WORDS)})
POOL = Struct(384, {
    "word": (0, I64), "done": (64, I64), "function": (128, KERNEL), "context": (136, WORDS),
    "chunks": (144, I64), "helpers": (152, I64), "busy": (192, I64), "spin": (256, I64),
    "acquire": (264, Signature(I32, WORDS, I32)), "release": (272, Signature(VOID, WORDS)),
    "give_way": (280, Signature(I32)), "most": (288, I64), "met": (320, I64),
    "workers": (384, WORKER),
})  # fmt: skip
# `next chunk` of a closed job, above every chunk number: a late worker cannot claim.
CLOSED = 0x7FFFFFFF
TABLE = Words(
    bytes=I64, widest=I64, counters=I64, pool=PointerTo(POOL), helpers=I64, records=LAUNCH,
)  # fmt: skip
RUN = Signature(VOID, PointerTo(TABLE), WORDS)
JUMP_WORDS = 4  # of a record that jumps, in a table of launches
TOGETHER = -1  # the counter of a record that jumps, if it is one of tables that run together
# What stands in such records, at the offsets of launches.
JUMP = Words(
    kernel=KERNEL, times=I64, counter=I64, distance=I64, pool=PointerTo(POOL), offsets=I64,
)  # fmt: skip

# Words of a program's state, as the entry reads it. `records` has one record per argument, then one
# per fresh result. `flag` is 0 where calls share nothing. Words from `variables` on are of sizes.
STATE = Words(
    arguments=I64, takes_out=I64, arrays=I64, room=I64, results=I64, structure=I64, nogil=I64,
    bases=I64, table=PointerTo(TABLE), records=PointerTo(RECORD), base_template=WORDS,
    sources=WORDS, written=WORDS, written_count=I64, flag=WORDS, arena=PointerTo(ARENA),
    arena_bytes=I64,
    argument_names=OBJECTS, keys=OBJECTS,
    variables=I64, variable_names=OBJECTS, inputs=WORDS, defaults=WORDS,
    dim_inputs=PointerTo(DIM_INPUT), dim_inputs_count=I64, evaluated=WORDS, registers=WORDS,
    instructions=PointerTo(INSTRUCTION), instructions_count=I64, required=WORDS, required_count=I64,
    patches=PointerTo(PATCH), patches_count=I64,
)  # fmt: skip
# The value of a variable that no call has given. No variable's range has it: of a size below it
# nothing could be computed.
UNKNOWN = -(1 << 63)


def global_table(b: Builder) -> Operand:
    """The objects and functions of the interpreter."""
    return Operand(b, PointerTo(GLOBALS), "@globals")
