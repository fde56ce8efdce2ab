"""A function to export as one LLVM module: its kernels, and the entry that calls them in order.

    int jac(const double *z, double *jac, int64_t n, void *work)

The entry checks the sizes before anything is written, then calls the kernels, which no other file
sees. A kernel takes its arguments in registers; one that is split into parts, or that has two
versions, takes them as words in memory, as in a program of this process.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from uopc.backends.llvm import emitter, nontemporal, split_function
from uopc.backends.llvm.emitter import stack_alignment
from uopc.backends.llvm.outline import outlined
from uopc.backends.llvm.statements import CpuEmitter
from uopc.backends.memory_plan import ALIGNMENT
from uopc.backends.plan import Dim, Plan, PlannedLaunch, Pointer, Row, Scalar, Word, nested
from uopc.exporting import casadi, levels, manifest, mulacc, square_root
from uopc.exporting.exported import RUN, Exported, ExportedKernel, bits
from uopc.exporting.places import ConstantTable
from uopc.exporting.sizes import Evaluator, expression
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern

# Of a kernel, a part of one, or the entry.
_DEFINITION = re.compile(r"(?m)^define (?:internal )?(.*\)) \{$")
_SMALL = 200  # statements of all launches: they take some 50 ns
_RELATIONS = {"equal": Ops.CMPEQ, "at most": Ops.CMPLE, "below": Ops.CMPLT}


class _ParameterKernel(CpuEmitter):
    """A kernel whose words are parameters."""

    def __init__(self, kernel: ExportedKernel) -> None:
        super().__init__(kernel.name, outlined(kernel.linear))
        self.types: dict[int, str] = {}  # by word

    def word(self, t: str, i: int) -> str:
        self.types[i] = t
        return f"%w{i}"

    def head(self) -> str:
        parameters = [f"{self.types[i]} %w{i}" for i in sorted(self.types)]
        aligned = stack_alignment(self.kernel.src)
        return f"define void @{self.name}({', '.join([*parameters, 'i64 %chunk'])}){aligned}"


class _Rendered:
    """The text of a kernel, and the types of the words that its function takes; None: in memory."""

    def __init__(self, kernel: ExportedKernel, is_x86: bool, is_shared: bool) -> None:
        linear = kernel.linear
        self.name = kernel.name
        self.types: dict[int, str] | None = None
        split = len(linear.src) > split_function.MOST_STATEMENTS
        if split or is_shared or nontemporal.streamed(linear):
            self.text, self.declared = split_function.render(kernel.name, linear, is_x86)
        else:
            typed = _ParameterKernel(kernel)
            self.text, self.declared = typed.run(), list(typed.declared)
            self.types = typed.types


class _EntryText:
    """Builds the text of the entry, line by line."""

    def __init__(self, f: Exported, kernels: dict[str, _Rendered]) -> None:
        self.f, self.kernels = f, kernels
        self.lines: list[str] = []
        self.count = 0
        self.most_words = 0
        names = {s.name: f"%{s.name}" for s in f.sizes}
        self.sizes = Evaluator(f, self.value, names)

    def value(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %.v{self.count} = {text}")
        return f"%.v{self.count}"

    def text(self) -> str:
        f = self.f
        if f.machine.size_bits < 64:
            self.lines += [f"  %{s.name} = sext i32 %.{s.name} to i64" for s in f.sizes]
        for number, (low, high, name) in enumerate([(s.low, s.high, s.name) for s in f.sizes], 1):
            below = self.value(f"icmp slt i64 %{name}, {low}")
            above = self.value(f"icmp sgt i64 %{name}, {high}")
            self._refuse(self.value(f"or i1 {below}, {above}"), number)
        for number, holds in enumerate(conditions(f), 1 + len(f.sizes)):
            self._refuse(self.value(f"xor i1 {self.sizes.of(holds)}, true"), number)
        if f.plan.repeats:  # all sizes are values of the entry: those of a loop end with it
            for size in _sizes(f.plan):
                self.sizes.size(size)
        self._row(nested(len(f.plan.launches), f.plan.repeats))
        if self.most_words:
            self.lines.insert(0, f"  %.words = alloca [{self.most_words} x i64], align 8")
        head = f"define i32 @{f.name}({', '.join(parameters(f))})"
        return "\n".join([f"{head} {{", "entry:", *self.lines, "  ret i32 0", "}"])

    def _refuse(self, wrong: str, number: int) -> None:
        """Return a number where a condition holds."""
        self.lines += [
            f"  br i1 {wrong}, label %.refuse{number}, label %.good{number}",
            f".refuse{number}:", f"  ret i32 {number}", f".good{number}:",
        ]  # fmt: skip

    def _row(self, row: Row) -> None:
        """Launches one after another, repeated ones in a loop."""
        for part in row:
            if isinstance(part, int):
                self._launch(self.f.plan.launches[part])
            else:
                repeat, inner = part
                with self._loop("run", repeat.times):
                    self._row(inner)

    @contextlib.contextmanager
    def _loop(self, counter: str, times: Dim) -> Iterator[int]:
        """The lines in between run so many times. Gives the number of the loop's names."""
        self.count += 1
        n, end = self.count, self.sizes.size(times)
        self.lines += [
            f"  br label %.before{n}", f".before{n}:", f"  br label %.head{n}", f".head{n}:",
            f"  %.{counter}{n} = phi i64 [ 0, %.before{n} ], [ %.next{n}, %.again{n} ]",
            f"  %.more{n} = icmp slt i64 %.{counter}{n}, {end}",
            f"  br i1 %.more{n}, label %.body{n}, label %.done{n}", f".body{n}:",
        ]  # fmt: skip
        yield n
        self.lines += [
            f"  br label %.again{n}", f".again{n}:",
            f"  %.next{n} = add i64 %.{counter}{n}, 1", f"  br label %.head{n}", f".done{n}:",
        ]  # fmt: skip

    def _launch(self, launch: PlannedLaunch) -> None:
        kernel = self.kernels[launch.kernel]
        words = [self._word(w) for w in launch.words]
        if kernel.types is None:
            given = self._in_memory(words)
        else:
            typed = [(kernel.types[i], self._narrow(kernel.types[i], *words[i]))
                     for i in sorted(kernel.types)]  # fmt: skip
            given = ", ".join([f"{t} {v}" for t, v in typed])
        given = f"{given}, " if given else ""
        if launch.chunks == 1:
            self.lines.append(f"  call void @{kernel.name}({given}i64 0)")
            return
        if is_shared(self.f, launch):
            self._shared(kernel.name, given, launch.chunks)
        else:
            self._parts(kernel.name, given, launch.chunks)

    def _parts(self, name: str, given: str, chunks: Dim) -> None:
        """The parts of a kernel one after another."""
        with self._loop("chunk", chunks) as n:
            self.lines.append(f"  call void @{name}({given}i64 %.chunk{n})")

    def _shared(self, name: str, given: str, chunks: Dim) -> None:
        """The parts of a kernel, whose words are in memory, run by the caller if it gives `run`."""
        self.count += 1
        n, count = self.count, self.sizes.size(chunks)
        self.lines += [
            f"  %.alone{n} = icmp eq ptr %run, null",
            f"  br i1 %.alone{n}, label %.serial{n}, label %.given{n}", f".given{n}:",
            f"  call void %run(ptr %context, ptr @{name}, {given}i64 {count})",
            f"  br label %.ran{n}", f".serial{n}:",
        ]  # fmt: skip
        self._parts(name, given, chunks)
        self.lines += [f"  br label %.ran{n}", f".ran{n}:"]

    def _in_memory(self, words: list[tuple[str, str]]) -> str:
        self.most_words = max(self.most_words, len(words), 1)
        for i, (t, value) in enumerate(words):
            place = self.value(f"getelementptr i64, ptr %.words, i64 {i}")
            self.lines.append(f"  store {t} {value}, ptr {place}, align 8")
        return "ptr %.words"

    def _word(self, word: Word) -> tuple[str, str]:
        """The type and the operand of a word."""
        if isinstance(word, Scalar):
            return "i64", self.sizes.size(word.value)
        base = f"%{self._base(word)}" if word.base <= len(self.f.arrays) else f"@{self._base(word)}"
        if word.offset == 0:
            return "ptr", base
        offset = self.sizes.size(word.offset)
        return "ptr", self.value(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _base(self, word: Pointer) -> str:
        count = len(self.f.arrays)
        if word.base < count:
            return self.f.arrays[word.base].name
        return "work" if word.base == count else self.f.constant(word.base - count - 1)

    def _narrow(self, wanted: str, t: str, value: str) -> str:
        """A word as a kernel takes it: a number is in the low bits of its word."""
        if wanted == t:
            return value
        bits = {"half": 16, "float": 32, "double": 64}.get(wanted)
        if bits is None:
            return self.value(f"trunc i64 {value} to {wanted}")
        whole = value if bits == 64 else self.value(f"trunc i64 {value} to i{bits}")
        return self.value(f"bitcast i{bits} {whole} to {wanted}")


def _sizes(plan: Plan) -> Iterator[Dim]:
    """The sizes that the launches of a plan take."""
    yield from [r.times for r in plan.repeats]
    for launch in plan.launches:
        yield launch.chunks
        yield from [w.offset if isinstance(w, Pointer) else w.value for w in launch.words]


def is_shared(f: Exported, launch: PlannedLaunch) -> bool:
    """True if the caller runs the parts of a launch."""
    return f.threads > 1 and launch.parallel


def conditions(f: Exported) -> list[UOp]:
    """The conditions on sizes that must hold, beside their bounds."""
    made = []
    for c in f.plan.conditions:
        sides = expression(c.left, f), expression(c.right, f)
        made.append(intern(_RELATIONS[c.relation], dtypes.bool_, sides))
    return made


def parameters(f: Exported) -> list[str]:
    """The parameters of the entry, with their types."""
    made = [f"ptr %{a.name}" for a in f.arrays]
    made += [f"{'i64 %' if f.machine.size_bits == 64 else 'i32 %.'}{s.name}" for s in f.sizes]
    return [*made, "ptr %work", *([f"ptr %{name}" for name in RUN] if f.threads > 1 else [])]


def module(f: Exported) -> str:
    """The text of the module. Constant arrays are declared: their content is no text."""
    own = manifest.contract_id(f)
    data = [f'@{f.name}_id = constant [{len(own) + 1} x i8] c"{own}\\00", align 1']
    data += [
        f"@{v.constant(i)} = external hidden constant [{max(1, a.nbytes)} x i8], align {ALIGNMENT}"
        for v in f.versions for i, a in enumerate(v.constants)
    ]  # fmt: skip
    data += [_table(f, t) for m in f.matrices for t in m.tables]
    functions: list[tuple[str, list[str]]] = []
    entries = []
    for v in f.versions:
        kernels = _rendered(v)
        entries.append(
            _attributed(v, _EntryText(v, kernels).text(), "internal " if f.levels else "")
        )
        inlined = " alwaysinline" if is_small(f) else ""
        for k in kernels.values():
            declared = [_attributed(v, part, "internal ") for part in k.declared]
            functions.append((_attributed(v, k.text, "internal ", inlined), declared))
    text = emitter.module(functions)
    t = f"i{f.machine.size_bits}"
    work = f"define {t} @{f.name}_work_bytes() nounwind {{\n  ret {t} {f.work_bytes}\n}}"
    parts = [f'source_filename = "{f.name}"', "\n".join(data), text, work, *entries]
    if f.levels:
        parts.append(levels.module_text(f, parameters(f)))
    if f.casadi is not None:
        parts.append(casadi.module_text(f.casadi))
    whole = "\n\n".join(parts) + "\n"
    whole = mulacc.without_instruction(whole, f.name, f.machine)
    return square_root.without_instruction(whole, f.name, f.machine) if f.machine.is_arm else whole


def _table(f: Exported, t: ConstantTable) -> str:
    """A constant array for the caller, in a section of its own: linkers leave out what is not
    read. Its bytes are one text, as LLVM reads numbers one by one."""
    content = bits(t.content)
    text = "\\" + content.hex("\\")
    section = "" if f.machine.is_wasm else f', section ".rodata.{t.name}"'
    return (
        f'@{t.name} = constant [{len(content)} x i8] c"{text}"{section}, align {t.dtype.itemsize}'
    )


def _rendered(f: Exported) -> dict[str, _Rendered]:
    shared = {c.kernel for c in f.plan.launches if is_shared(f, c)}
    return {n: _Rendered(k, f.machine.is_x86, n in shared) for n, k in f.kernels.items()}


def is_small(f: Exported) -> bool:
    """True if calls and loops take a good part of the time: kernels are put into the function, and
    loops of a few turns are written out."""
    launched = [len(v.kernels[c.kernel].linear.src) for v in f.versions for c in v.plan.launches]
    return f.threads == 1 and sum(launched) <= _SMALL * len(f.versions)


def _attributed(f: Exported, text: str, linkage: str, attributes: str = "") -> str:
    """Functions that no frame is unwound for. Those for one level of several have an attribute,
    and so names of their own."""
    if f.is_level:
        attributes += f" {levels.attributes(f.machine.name)}"
        text = text.replace("@apply_", f"@{f.name}_apply_")
    return _DEFINITION.sub(rf"define {linkage}\1 nounwind{attributes} {{", text)
