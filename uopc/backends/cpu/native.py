"""The machine code of the runtime: written as LLVM IR, compiled once per process.

    entry         the function of a program that CPython calls (vectorcall)
    run           walks the launch table of one program
    spread        one parallel launch: the caller and the pool's workers claim chunks
    worker        the loop of one worker thread
    try_acquire   set a flag if it is clear
    relax         spin a number of times, to measure how long that takes
    meet          a launch of each device that waits for those of the others
    read_addresses  where the data of a list of arrays is

`entry` and `run`, which each call of a program runs, are one object file. The rest is another,
compiled at LLVM's level 0 in an eighth of the time; calls take no longer.

The code holds no address of this process. Objects and functions of the interpreter come from
`@globals`, filled at load; struct offsets are in the text, so the text tells versions apart.
The text has abbreviations over LLVM IR:

    %x = field TYPE %p OFFSET               the value at an offset in bytes
    %x = item TYPE %p %i                    element i of an array
    put TYPE %x %p %i                       make %x element i of an array
    %x = atomic TYPE %p OFFSET ORDER        an atomic load, with its memory order
    set TYPE %x %p OFFSET ORDER             an atomic store
    %x = api TYPE name(…)                   call a function that `@globals` has
    acquire %flag then %a else %b           set a flag: go to b if another thread has set it
    if COMPARISON then %a else %b           a branch; also: if COMPARISON and COMPARISON then …
    loop %i = A to B from %p, %q do %a else %b
        count up in a loop that begins after block p and goes on after q; %i_next is i plus 1
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import platform
import re
import threading
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from uopc.backends import memory_plan
from uopc.backends.cpu.elf_loader import Image, load
from uopc.backends.cpu.entry_ir import ENTRY
from uopc.backends.cpu.launch_ir import RUN, SPREAD
from uopc.backends.cpu.layout import OFFSETS
from uopc.backends.cpu.on_request_ir import ON_REQUEST
from uopc.backends.cpu.size_code import CODE, UNKNOWN
from uopc.backends.llvm.jit import compile_object

# Functions of the interpreter that the code calls.
FUNCTIONS = {
    "vectorcall": "PyObject_Vectorcall", "bad_call": "PyErr_BadInternalCall",
    "incref": "Py_IncRef", "decref": "Py_DecRef", "compare_text": "PyUnicode_Compare",
    "save_thread": "PyEval_SaveThread", "restore_thread": "PyEval_RestoreThread",
    "new_tuple": "PyTuple_New", "new_list": "PyList_New", "new_dict": "PyDict_New",
    "set_dict": "PyDict_SetItem", "as_integer": "PyLong_AsLongLongAndOverflow",
}  # fmt: skip
# Slots of @globals. `stale`: the worker threads are gone (after a fork), so the next call takes the
# slow path. `instance`: the offset of a program object's native fields. `nothing`: the memory of
# arrays without elements, where a kernel may read in vain.
GLOBALS = (
    "stale", "instance", "nothing", "ndarray", "tuple", "list", "int", "float", "numpy_int", "out",
    "byte", "new_array", "new_copy", "set_base", *FUNCTIONS,
)  # fmt: skip

# Words of a program's state, as the entry reads it. `records` has one record per argument, then one
# per fresh result. `flag` is 0 where calls share nothing. Words from `variables` on are of sizes
# (see `size_code.py`); `dim_inputs`: argument, axis and variable of each that a shape gives.
STATE = (
    "arguments", "takes_out", "arrays", "room", "results", "structure", "nogil", "bases", "table",
    "records", "base_template", "sources", "written", "written_count", "flag", "arena",
    "arena_bytes", "argument_names", "keys",
    "variables", "variable_names", "inputs", "defaults", "dim_inputs", "dim_inputs_count",
    "evaluated", "registers", "instructions", "instructions_count", "required", "required_count",
    "patches", "patches_count",
)  # fmt: skip
# Of a 0-d argument: `scalar`, NumPy's class of numbers of its dtype; `number`, one of NUMBERS if it
# takes Python's.
RECORD = (
    "dtype", "type_number", "ndim", "flags", "nbytes", "itemsize", "dims", "scalar", "number",
)  # fmt: skip
NUMBERS = {"wide_float": 1, "narrow_float": 2, "wide_int": 3, "narrow_int": 4}
WRITEABLE = 0x400
_PLAIN = 0x1 | 0x100 | WRITEABLE  # in C order, aligned
STRUCTURES = {"single": 0, "tuple": 1, "list": 2, "dict": 3}

# Offsets in a pool's memory. Fields that are written often have cache lines of their own; each
# worker has a line from `workers` on: asleep flag, lock.
POOL = {
    "word": 0, "done": 64, "function": 128, "context": 136, "chunks": 144, "helpers": 152,
    "busy": 192, "spin": 256, "acquire": 264, "release": 272, "yield": 280, "most": 288,
    "met": 320, "workers": 384,
}  # fmt: skip
POOL_LINE = 64
# `next chunk` of a closed job, above every chunk number: a late worker cannot claim.
CLOSED = 0x7FFFFFFF

JUMP_WORDS = 4  # of a record that jumps, in a table of launches
TOGETHER = -1  # the counter of a record that jumps, if it is one of tables that run together

# The instruction that tells the processor this is a waiting loop.
_X86_PAUSE, _ARM_PAUSE = "call void @llvm.x86.sse2.pause()", "call void @llvm.aarch64.hint(i32 1)"
_PAUSES = {
    "x86_64": _X86_PAUSE, "AMD64": _X86_PAUSE, "aarch64": _ARM_PAUSE, "arm64": _ARM_PAUSE,
}  # fmt: skip


def _names() -> dict[str, object]:
    """The values of `{name}` in the text."""
    names: dict[str, object] = {"pause": _PAUSES.get(platform.machine(), ""), **OFFSETS}
    names |= {"jump_bytes": 8 * JUMP_WORDS, "together": TOGETHER}
    names |= {"together_offsets": 8 * (JUMP_WORDS + 1)}
    large, page, ahead = memory_plan.LARGE, memory_plan.PAGE, memory_plan.AHEAD
    names |= {"large": large, "least_large": large - 1, "page": page, "page_mask": page - 1}
    names |= {"ahead": ahead - 1, "plain_flags": _PLAIN}
    names |= {"line": POOL_LINE, "closed": CLOSED, "record_words": len(RECORD)}
    names |= {name: STRUCTURES[name] for name in ("list", "dict")} | NUMBERS
    names |= {"unknown": UNKNOWN, "writeable": WRITEABLE, "again": "inttoptr (i64 1 to ptr)"}
    for prefix, table in (("g", GLOBALS), ("s", STATE), ("r", RECORD)):
        names |= {f"{prefix}.{name}": 8 * index for index, name in enumerate(table)}
    return names | {f"p.{name}": offset for name, offset in POOL.items()}


# Abbreviations and their lines; `%#` is a name that occurs in no other place.
_ABBREVIATIONS = {
    r"if (.+) and (.+) then (%\w+) else (%\w+)": r"""
  %#.a = icmp \1
  %#.b = icmp \2
  %# = and i1 %#.a, %#.b
  br i1 %#, label \3, label \4""",
    r"if (.+) then (%\w+) else (%\w+)": r"""
  %# = icmp \1
  br i1 %#, label \2, label \3""",
    r"acquire (%\w+) then (%\w+) else (%\w+)": r"""
  %#.a = cmpxchg ptr \1, i64 0, i64 1 acquire monotonic
  %# = extractvalue {i64, i1} %#.a, 1
  br i1 %#, label \2, label \3""",
    r"(%\w+ = |)api (\S+) (\w+)\(([^)]*)\)": r"""
  %# = field ptr @globals {g.\3}
  \1call \2 %#(\4)""",
    r"(%\S+) = field (\S+) (\S+) (\S+)": r"""
  %# = getelementptr i8, ptr \3, i64 \4
  \1 = load \2, ptr %#""",
    r"(%\S+) = atomic (\S+) (\S+) (\S+) (\S+)": r"""
  %# = getelementptr i8, ptr \3, i64 \4
  \1 = load atomic \2, ptr %# \5, align 8""",
    r"set (\S+) (\S+) (\S+) (\S+) (\S+)": r"""
  %# = getelementptr i8, ptr \3, i64 \4
  store atomic \1 \2, ptr %# \5, align 8""",
    r"(%\S+) = item (\S+) (\S+) (\S+)": r"""
  %# = getelementptr \2, ptr \3, i64 \4
  \1 = load \2, ptr %#""",
    r"put (\S+) (\S+) (\S+) (\S+)": r"""
  %# = getelementptr \1, ptr \3, i64 \4
  store \1 \2, ptr %#""",
}
Part = TypeVar("Part")
_DEFINED = re.compile(r"^define (\w+) @(\w+)\(([^)]*)\)", re.MULTILINE)
_GROUP = re.compile(r"\\(\d)")
_LOOP = re.compile(r"^  loop (%\w+) = (\S+) to (\S+) from (%\w+), (.+) do (.+)$", re.MULTILINE)


def _loop(found: re.Match[str]) -> str:
    i, first, end, before, latches, targets = found.groups()
    again = ", ".join(f"[{i}_next, {block}]" for block in latches.split(", "))
    return f"""\
  {i} = phi i64 [{first}, {before}], {again}
  {i}_next = add i64 {i}, 1
  if ult i64 {i}, {end} then {targets}"""


def identity() -> str:
    """A text that differs between runtimes of one version of this package."""
    return hashlib.blake2b(repr(sorted(_names().items())).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Parts(Generic[Part]):
    """Of the runtime: what only some calls need, and what every call runs."""

    on_request: Part
    always: Part


def source() -> Parts[str]:
    """The runtime's LLVM IR, which depends only on the architecture and the struct layout."""
    words = f"global [{len(GLOBALS)} x i64]"
    on_request = f"{ON_REQUEST}{CODE}{SPREAD}"
    heads = _DEFINED.findall(on_request)
    declared = "".join([f"declare {result} @{name}({taken})\n" for result, name, taken in heads])
    return Parts(
        _expanded(f"@globals = {words} zeroinitializer{on_request}"),
        _expanded(f"@globals = external {words}\n{declared}{ENTRY}{RUN}"),
    )


def compiled(text: Parts[str]) -> Parts[bytes]:
    """The object files of the runtime."""
    return Parts(compile_object(text.on_request, effort=0), compile_object(text.always))


def _expanded(text: str) -> str:
    """LLVM IR without abbreviations."""
    text = _LOOP.sub(_loop, text)
    numbers = itertools.count()
    for pattern, lines in _ABBREVIATIONS.items():

        def expanded(match: re.Match[str], lines: str = lines) -> str:
            # Match.expand reads its template anew each time.
            made = _GROUP.sub(lambda group: match[int(group[1])], lines[1:])
            return made.replace("%#", f"%at.{next(numbers)}")

        text = re.sub(f"^  {pattern}$", expanded, text, flags=re.MULTILINE)
    names = _names()
    return re.sub(r"\{([a-z_.]+)\}", lambda match: str(names[match[1]]), text)


EXPORTS = Parts(
    (
        "globals", "by_name", "sized", "number", "duplicate", "handed", "drop", "apart",
        "read_addresses", "together", "meet", "spread", "worker", "try_acquire", "relax",
    ),
    ("entry", "run"),
)  # fmt: skip


def loaded(code: Parts[bytes]) -> Image:
    """The runtime's code in this process. InvalidIR if it is damaged."""
    first = load(code.on_request, EXPORTS.on_request)
    then = load(code.always, EXPORTS.always, first.symbols)
    return Image({**first.symbols, **then.symbols}, (first.memory, then.memory))


class Runtime:
    """The loaded code and its functions as Python calls them; it stays for the process's life."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.run = self._function("run", 2)
        self.run_holding = self._function("run", 2, ctypes.PYFUNCTYPE)
        self.spread = self._function("spread", 5)
        self.worker = self._function("worker", 3)
        self.try_acquire = self._function("try_acquire", 1, ctypes.PYFUNCTYPE, ctypes.c_int64)
        self.relax = self._function("relax", 1)
        self.read_addresses = self._function("read_addresses", 2, ctypes.PYFUNCTYPE)

    def _function(
        self, name: str, words: int, make: Any = ctypes.CFUNCTYPE, result: Any = None
    ) -> Any:
        """The function that Python calls with words. A PYFUNCTYPE holds the interpreter lock."""
        return make(result, *[ctypes.c_int64] * words)(self.image.symbols[name])

    def set_global(self, name: str, value: int) -> None:
        """Fill one slot of the code's table of addresses."""
        address = self.image.symbols["globals"] + 8 * GLOBALS.index(name)
        ctypes.c_int64.from_address(address).value = value


_installed: list[Runtime] = []
_installing = threading.Lock()


def _after_fork_in_child() -> None:
    global _installing
    _installing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def is_installed() -> bool:
    """True if the process has loaded its runtime."""
    return bool(_installed)


def install(code: Parts[bytes] | None = None) -> Runtime:
    """The process's runtime. The first call loads it from `code`, which a cache has, or compiles
    it."""
    if not _installed:
        with _installing:
            if not _installed:
                _installed.append(Runtime(loaded(code or compiled(source()))))
    return _installed[0]
