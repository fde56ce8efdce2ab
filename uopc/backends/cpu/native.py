"""The machine code of the runtime: written as LLVM IR, compiled once per process.

    entry         what CPython calls when a program is called (vectorcall)
    run           walks the launch table of one program
    spread        one parallel launch: the caller and the pool's workers claim chunks
    worker        the loop of one worker thread
    try_acquire   set a flag if it is clear
    relax         spin a number of times, to measure how long that takes

The code holds no address of this process. Objects and functions of the interpreter come from
`@globals`, filled at load; struct offsets are in the text, so the text tells versions apart.
The text has abbreviations over LLVM IR:

    %x = field TYPE %p OFFSET               the value at an offset in bytes
    %x = item TYPE %p %i                    element i of an array
    put TYPE %x %p %i                       make %x element i of an array
    %x = api TYPE name(…)                   call a function that `@globals` has
    if COMPARISON then %a else %b           a branch
    loop %i = A to B from %p, %q do %a else %b
        count up in a loop that begins after block p and goes on after q; %i_next is i plus 1
"""

from __future__ import annotations

import ctypes
import itertools
import platform
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from uopc.backends.cpu.elf_loader import Image, load
from uopc.backends.cpu.entry_ir import ENTRY
from uopc.backends.cpu.launch_ir import CLAIM, RUN, SPREAD, WORKER
from uopc.backends.cpu.layout import OFFSETS
from uopc.backends.llvm.jit import compile_object

# Slots of @globals. `stale`: the worker threads are gone (after a fork), so the next call takes the
# slow path. `instance`: the offset of a program object's native fields.
GLOBALS = (
    "stale", "instance", "ndarray", "out", "slow", "vectorcall", "new_array", "incref", "decref",
    "save_thread", "restore_thread", "malloc", "free", "no_memory", "new_tuple", "set_tuple",
    "new_list", "set_list", "new_dict", "set_dict", "tuple", "list", "tuple_size", "list_size",
    "tuple_item", "list_item", "compare_text",
)  # fmt: skip

# Words of a program's state, as the entry reads it. `records` has one record per argument, then one
# per fresh result.
STATE = (
    "arguments", "takes_out", "fresh", "results", "structure", "nogil", "bases", "table",
    "records", "base_template", "sources", "written", "written_count", "arena_flag",
    "argument_names", "keys",
)  # fmt: skip
RECORD = ("dtype", "type_number", "ndim", "flags", "nbytes", "dims")
STRUCTURES = {"single": 0, "tuple": 1, "list": 2, "dict": 3}

# Offsets in a pool's memory. Fields that are written often have cache lines of their own; each
# worker has a line from `workers` on: asleep flag, lock.
POOL = {
    "word": 0, "done": 64, "function": 128, "context": 136, "chunks": 144, "helpers": 152,
    "busy": 192, "stop": 256, "spin": 264, "acquire": 272, "release": 280, "yield": 288,
    "workers": 320,
}  # fmt: skip
POOL_LINE = 64
# `next chunk` of a closed job: above every chunk number, so that no late worker can claim.
CLOSED = 0x7FFFFFFF

GLOBALS_TABLE = """
@globals = global [{globals_count} x i64] zeroinitializer
{declare_pause}
"""

# The instruction that tells the processor this is a waiting loop.
_PAUSE = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}
_MACHINES = {"AMD64": "x86_64", "arm64": "aarch64"}


def _names() -> dict[str, object]:
    """The values of `{name}` in the text."""
    machine = platform.machine()
    pause, declaration = _PAUSE.get(_MACHINES.get(machine, machine), ("", ""))
    names: dict[str, object] = {"pause": pause, "declare_pause": declaration, **OFFSETS}
    names |= {"line": POOL_LINE, "closed": CLOSED, "record_words": len(RECORD)}
    names |= {name: STRUCTURES[name] for name in ("list", "dict")}
    names |= {"globals_count": len(GLOBALS)}
    for prefix, table in (("g", GLOBALS), ("s", STATE), ("r", RECORD)):
        names |= {f"{prefix}.{name}": 8 * index for index, name in enumerate(table)}
    return names | {f"p.{name}": offset for name, offset in POOL.items()}


# Abbreviations and their lines; `%#` is a name that occurs in no other place.
_ABBREVIATIONS = {
    r"if (.+) then (%\w+) else (%\w+)": r"""
  %# = icmp \1
  br i1 %#, label \2, label \3""",
    r"(%\w+ = |)api (\S+) (\w+)\(([^)]*)\)": r"""
  %# = field ptr @globals {g.\3}
  \1call \2 %#(\4)""",
    r"(%\S+) = field (\S+) (\S+) (\S+)": r"""
  %# = getelementptr i8, ptr \3, i64 \4
  \1 = load \2, ptr %#""",
    r"(%\S+) = item (\S+) (\S+) (\S+)": r"""
  %# = getelementptr \2, ptr \3, i64 \4
  \1 = load \2, ptr %#""",
    r"put (\S+) (\S+) (\S+) (\S+)": r"""
  %# = getelementptr \1, ptr \3, i64 \4
  store \1 \2, ptr %#""",
}
_LOOP = re.compile(r"^  loop (%\w+) = (\S+) to (\S+) from (%\w+), (.+) (do .+)$", re.MULTILINE)


def _loop(found: re.Match[str]) -> str:
    i, first, end, before, latches, targets = found.groups()
    again = ", ".join(f"[{i}_next, {block}]" for block in latches.split(", "))
    return f"""\
  {i} = phi i64 [{first}, {before}], {again}
  {i}_next = add i64 {i}, 1
  if ult i64 {i}, {end} {targets.replace("do", "then", 1)}"""


def _expand(text: str) -> str:
    """Replace all abbreviations."""
    text = _LOOP.sub(_loop, text)
    numbers = itertools.count()
    for pattern, lines in _ABBREVIATIONS.items():

        def spelled(found: re.Match[str], lines: str = lines) -> str:
            return found.expand(lines[1:]).replace("%#", f"%at.{next(numbers)}")

        text = re.sub(f"^  {pattern}$", spelled, text, flags=re.MULTILINE)
    return text


def source() -> str:
    """The runtime's LLVM IR, which depends only on the architecture and the struct layout."""
    names = _names()
    text = "".join((GLOBALS_TABLE, ENTRY, RUN, CLAIM, SPREAD, WORKER))
    return re.sub(r"\{([a-z_.]+)\}", lambda match: str(names[match[1]]), _expand(text))


EXPORTS = ("globals", "entry", "run", "spread", "worker", "try_acquire", "relax")


@dataclass(frozen=True, slots=True)
class Runtime:
    """The loaded code and its functions as Python calls them; it stays for the process's life."""

    image: Image
    run: Callable[[int, int], None]
    run_holding: Callable[[int, int], None]
    spread: Callable[[int, int, int, int, int], None]
    worker: Callable[[int, int, int], None]
    try_acquire: Callable[[int], int]
    relax: Callable[[int], None]

    def set_global(self, name: str, value: int) -> None:
        """Fill one slot of the code's table of addresses."""
        address = self.image.symbols["globals"] + 8 * GLOBALS.index(name)
        ctypes.c_int64.from_address(address).value = value


def _bind(image: Image) -> Runtime:
    word, nothing = ctypes.c_int64, None

    def function(name: str, *arguments: type[ctypes.c_int64]) -> Callable[..., None]:
        return ctypes.CFUNCTYPE(nothing, *arguments)(image.symbols[name])

    return Runtime(
        image=image,
        run=function("run", word, word),
        run_holding=ctypes.PYFUNCTYPE(nothing, word, word)(image.symbols["run"]),
        spread=function("spread", word, word, word, word, word),
        worker=function("worker", word, word, word),
        try_acquire=ctypes.PYFUNCTYPE(word, word)(image.symbols["try_acquire"]),
        relax=function("relax", word),
    )


_installed: list[Runtime] = []
_installing = threading.Lock()


def is_installed() -> bool:
    """True if the process has loaded its runtime."""
    return bool(_installed)


def install(data: bytes | None = None) -> Runtime:
    """The process's runtime. The first call loads it from `data`, the object code of `source` from
    the cache, or compiles it."""
    if not _installed:
        with _installing:
            if not _installed:
                _installed.append(_bind(load(data or compile_object(source()), EXPORTS)))
    return _installed[0]
