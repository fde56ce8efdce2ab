"""A function to export as one file in C11: its kernels, and the entry that calls them in order."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.backends.c import infix
from uopc.backends.c.kernel import CKernel
from uopc.backends.c.names import code, comment, identifier, table
from uopc.backends.c.prelude import Prelude
from uopc.backends.c.texts import HEAD
from uopc.backends.c.types import c_type, literal, memory_type
from uopc.backends.llvm import scratch
from uopc.backends.plan import Dim, PlannedLaunch, Pointer, Scalar, Word
from uopc.exporting import casadi, manifest, places
from uopc.exporting.entry import EntryWriter, is_shared
from uopc.exporting.exported import RUN, Exported, ExportedKernel, ExportedLength, Size
from uopc.exporting.header import prototype, work_prototype
from uopc.exporting.sizes import expression, work
from uopc.ir.core import dtypes, storage, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index.affine import is_const

_ALIGNED = "_Alignas(64) "


class _CFunction:
    """A kernel in C, and the arguments of its function, in order."""

    def __init__(self, f: Exported, name: str, prelude: Prelude) -> None:
        kernel = f.kernels[name]
        self.name, linear, self.prelude = kernel.name, kernel.linear, prelude
        self.places = storage.word_places(linear)
        calls = [call for call in f.plan.launches if call.kernel == name]
        order = sorted(self.places, key=self.places.__getitem__)
        taken = {kernel.name, "work", "chunk", "scratch"}
        names = {u: identifier(self._like(f, u, calls), taken) for u in order}
        text = CKernel(kernel.name, linear, prelude, names, _are_distinct(calls))
        self.arguments = {u: text.dtype(u) for u in order}  # and the types that they have
        self.scratch = scratch.word(linear) if text.scratch_bytes else None
        self.is_threaded = text.is_threaded
        parts = [f"{_origin(kernel)}\n{text.run()}"]
        if any([is_shared(f, call) for call in calls]):
            parts.append(_part(kernel.name, text.parameters()[:-1]))
        self.text = "\n\n".join(parts)

    def _like(self, f: Exported, u: UOp, calls: Sequence[PlannedLaunch]) -> str:
        """The user's name for an argument, if all calls agree on it."""
        if u.op is Ops.VARIABLE:
            return f.names.get(u.arg.name, str(u.arg.name))
        if u.op is Ops.NUMBER:
            return f"c{u.arg.slot}"
        found = {w.base for c in calls if isinstance(w := c.words[self.places[u]], Pointer)}
        base = found.pop() if len(found) == 1 else -1
        return f.arrays[base].name if 0 <= base < len(f.arrays) else f"p{u.arg.slot}"


def _part(name: str, parameters: Sequence[str]) -> str:
    """A function that runs one part of a kernel with its arguments read from memory."""
    fields = [p.replace("*restrict ", "*") for p in parameters]
    given = ["w->" + p.rpartition(" ")[2].lstrip("*") for p in fields]
    call = f"    {name}({', '.join([*given, 'number'])});"
    return "\n".join([
        f"struct uopc_words_{name} {{", *[f"    {p};" for p in fields], "};", "",
        f"static void uopc_part_{name}(void *words, int64_t number)", "{",
        f"    const struct uopc_words_{name} *const w = words;", code(call), "}",
    ])  # fmt: skip


def _are_distinct(calls: Sequence[PlannedLaunch]) -> bool:
    """True if no call passes the same address twice."""
    for call in calls:
        given = [(w.base, str(w.offset)) for w in call.words if isinstance(w, Pointer)]
        if len(set(given)) < len(given):
            return False
    return True


def _origin(kernel: ExportedKernel) -> str:
    lines = ", ".join(kernel.lines) or "no line of the user's"
    return comment(f"{kernel.name}: {lines}")


def source(f: Exported, stem: str) -> str:
    """The text of the file NAME.c."""
    prelude = Prelude()
    kernels = {name: _CFunction(f, name, prelude) for name in f.kernels}
    body = [
        *[_constant(f.constant(i), a, i in f.in_files, prelude) for i, a in enumerate(f.constants)],
        *[_table(places.head(t), t.dtype, t.content, prelude)
          for m in f.matrices for t in m.tables],
        *[k.text for k in kernels.values()],
        f'const char {f.name}_id[] = "{manifest.contract_id(f)}";',
        _work_bytes(f),
        _EntryText(f, kernels, prelude).text(), "" if f.casadi is None else casadi.source(f.casadi),
    ]  # fmt: skip
    head = comment(
        f"{f.name}: made by uopc for {f.machine.name}. It is C11 and needs "
        + ("the C library's functions." if f.machine.target.has_functions else "no library.")
        + (f" Link it with {stem}_data.S, its constant arrays." if f.in_files else "")
    )
    parts = [head, f'#include "{stem}.h"\n{HEAD}', prelude.text(), *body]
    return "\n\n".join([p for p in parts if p]) + "\n"


def _work_bytes(f: Exported) -> str:
    """The function that gives the bytes of work."""
    nbytes = work(f)
    text = f"{nbytes.arg}u" if is_const(nbytes) else f"(size_t){infix.render(nbytes)}"
    read = {v.arg.name for v in walk.variables(nbytes)}
    unread = "".join([f"    (void){s.name};\n" for s in f.sizes if s.name not in read])
    return f"{work_prototype(f)}\n{{\n{unread}{code(f'    return {text};')}\n}}"


def _constant(name: str, array: npt.NDArray[Any], in_file: bool, prelude: Prelude) -> str:
    """The definition of a read-only array."""
    t = dtypes.from_numpy(array.dtype)
    if in_file:
        declared = f"extern const {memory_type(t)} {name}[{array.size}]"
        hidden = '__attribute__((visibility("hidden")))'
        return f"#if defined(__ELF__)\n{hidden}\n#endif\n{declared};"
    head, size = f"static {_ALIGNED}const", max(1, array.size)
    if not _has_payload(t, array):
        return _table(f"{head} {memory_type(t)} {name}[{size}]", t, array, prelude)
    words = dtypes.uint32 if t.bits == 32 else dtypes.uint64
    both = f"union {{ {c_type(words)} bits[{size}]; {c_type(t)} numbers[{size}]; }}"
    bits = np.ascontiguousarray(array).reshape(-1).view(words.numpy)
    table = _table(f"{head} {both} {name}_bits", words, bits, prelude)
    table = table.replace("{\n", "{{\n", 1).replace("\n}", "\n}}")
    return f"{table}\n#define {name} {name}_bits.numbers"


def _has_payload(t: DType, array: npt.NDArray[Any]) -> bool:
    """True for floats of a C type with a NaN whose bits no C constant expresses."""
    if not t.is_float or t.bits < 32:
        return False
    found = array[np.isnan(array)]
    plain = np.copysign(np.asarray(np.nan, t.numpy), found)
    return bool(found.tobytes() != plain.tobytes())


def _table(head: str, t: DType, array: npt.NDArray[Any], prelude: Prelude) -> str:
    """The definition of an array."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if t.is_float and t.bits < 32:
        items = [str(n) for n in flat.view(f"u{t.itemsize}").tolist()]
    elif t.kind == "bool":
        items = [str(int(n)) for n in flat.tolist()]
    else:
        items = [prelude.constant(t, v) for v in flat.tolist()]
    return table(head, items or ["0"])


class _EntryText(EntryWriter):
    """The exported function itself."""

    def __init__(self, f: Exported, kernels: dict[str, _CFunction], prelude: Prelude) -> None:
        super().__init__(f)
        self.kernels, self.prelude, self.depth = kernels, prelude, 0
        self.lines: list[str] = []

    def text(self) -> str:
        self.write()
        f, body = self.f, "\n".join(self.lines)
        given = [*[a.name for a in f.arrays], "work", *(RUN if f.threads > 1 else ())]
        read = set(re.findall(r"\w+", body))
        unread = [f"    (void){name};" for name in given if name not in read]
        parts = [prototype(f), "{", *unread, body, "    return 0;", "}"]
        return "\n".join(parts).replace("\n\n", "\n")

    def refuse_size(self, size: Size, number: int) -> None:
        self._refuse_outside(size.name, size.low, size.high, number)

    def _refuse_outside(self, name: str, low: int, high: int, number: int) -> None:
        least, most = literal(dtypes.int64, low), literal(dtypes.int64, high)
        self._refuse(f"{name} < {least} || {name} > {most}", number)

    def refuse_unless(self, holds: UOp, number: int) -> None:
        self._refuse(f"!{infix.render(holds)}", number)

    def _refuse(self, wrong: str, number: int) -> None:
        self.lines += [f"    if ({wrong}) {{", f"        return {number};", "    }"]

    def take_length(self, length: ExportedLength, number: int) -> None:
        at = _word(self.f, length.at, dtypes.int64, self.prelude)
        self.lines.append(code(f"    const int64_t {length.value} = *({at});"))
        self.lines.append(f"    *{length.name} = {length.value};")
        self._refuse_outside(length.value, length.low, length.high, number)

    def know_sizes(self) -> None:
        """All sizes are expressions where they are used."""

    @contextlib.contextmanager
    def repeated(self, times: Dim) -> Iterator[None]:
        self.depth += 1
        count, end, first = f"_run{self.depth}", _size_in_c(self.f, times), len(self.lines)
        yield
        self.depth -= 1
        inner = "\n".join(self.lines[first:]).splitlines()
        head = f"    for (int64_t {count} = 0; {count} < {end}; ++{count}) {{"
        self.lines[first:] = [head, *[f"    {line}" for line in inner], "    }"]

    def launch(self, launch: PlannedLaunch) -> None:
        self.lines += _call(self.f, self.kernels[launch.kernel], launch)


def _call(f: Exported, kernel: _CFunction, launch: PlannedLaunch) -> list[str]:
    """The lines that run a launch."""
    words, prelude = launch.words, kernel.prelude
    given = [_word(f, words[kernel.places[u]], t, prelude) for u, t in kernel.arguments.items()]
    if kernel.scratch is not None:
        given.append(_word(f, words[kernel.scratch], None, prelude))
    if not kernel.is_threaded:
        return [code(f"    {kernel.name}({', '.join(given)});")]
    call = f"        {kernel.name}({', '.join([*given, '_chunk'])});"
    count = _size_in_c(f, launch.chunks)
    head = f"    for (int64_t _chunk = 0; _chunk < {count}; ++_chunk) {{"
    serial = [head, code(call), "    }"]
    if not is_shared(f, launch):
        return serial
    name = kernel.name
    return [
        "    if (run != NULL) {",
        code(f"        struct uopc_words_{name} _words = {{{', '.join(given)}}};"),
        f"        run(context, uopc_part_{name}, &_words, {count});", "    } else {",
        *[f"    {line}" for line in "\n".join(serial).splitlines()], "    }",
    ]  # fmt: skip


def _size_in_c(f: Exported, size: Dim) -> str:
    return str(size) if isinstance(size, int) else infix.render(expression(size, f))


def _word(f: Exported, word: Word, t: DType | None, prelude: Prelude) -> str:
    """An argument of a kernel, as type t; None: scratch memory."""
    if isinstance(word, Scalar):
        return _scalar(f, word, dtypes.index if t is None else t, prelude)
    count, offset = len(f.arrays), _size_in_c(f, word.offset)
    wanted = "unsigned char" if t is None else memory_type(t)
    if word.base == count:
        if t is None:
            return f"(unsigned char *)work + {offset}"
        return f"({wanted} *)(void *)((unsigned char *)work + {offset})"
    if word.base < count:
        name, own = f.arrays[word.base].name, f.arrays[word.base].dtype
        constant = "" if f.arrays[word.base].written else "const "
    else:
        number = word.base - count - 1
        name, own = f.constant(number), dtypes.from_numpy(f.constants[number].dtype)
        constant = "const "
    if memory_type(own) != wanted or (word.offset != 0 and not isinstance(word.offset, int)):
        place = f"(({constant}unsigned char *){name} + {offset})" if word.offset != 0 else name
        return f"({constant}{wanted} *)({constant}void *){place}"
    assert isinstance(word.offset, int)
    return f"{name} + {word.offset // own.itemsize}" if word.offset else name


def _scalar(f: Exported, word: Scalar, t: DType, prelude: Prelude) -> str:
    """A number for a kernel: its bits are the low bits of a word."""
    if isinstance(word.value, int) and t.kind != "index":
        whole = (word.value & (1 << 64) - 1).to_bytes(8, "little")
        got = np.frombuffer(whole[: t.itemsize], t.numpy)[0]
        return prelude.constant(t, got.item() if t.kind in ("bool", "int", "uint") else got)
    text = _size_in_c(f, word.value)
    return text if t.kind == "index" else f"({c_type(t)})({text})"
