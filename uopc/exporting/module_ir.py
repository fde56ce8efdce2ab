"""A function to export as one LLVM module: its kernels, and the entry that calls them in order.

    int jac(const double *z, double *jac, int64_t n, void *work)

The entry checks the sizes before anything is written, then calls the kernels, which are private to
the file. A kernel takes its arguments in registers. If it is split into parts or has several
versions, it takes them as words in memory, as in a program of this process.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from uopc.backends.inline import outlined
from uopc.backends.llvm import emitter, nontemporal, split_function
from uopc.backends.llvm.builder import (
    I1,
    I8,
    I32,
    I64,
    Builder,
    Operand,
    PointerTo,
    Type,
)
from uopc.backends.llvm.emitter import stack_alignment
from uopc.backends.llvm.sizes import computed
from uopc.backends.llvm.statements import CpuEmitter
from uopc.backends.memory_plan import ALIGNMENT
from uopc.backends.plan import Dim, Plan, PlannedLaunch, Pointer, Scalar, Word
from uopc.exporting import casadi, levels, manifest, mulacc, square_root
from uopc.exporting.entry import EntryWriter, is_shared
from uopc.exporting.exported import RUN, Exported, ExportedKernel, ExportedLength, Size, bits
from uopc.exporting.places import ConstantTable
from uopc.exporting.sizes import expression, work
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

# The definition of a kernel, a part of a kernel, or the entry.
_DEFINITION = re.compile(r"(?m)^define (?:internal )?(.*\)) \{$")
_ADDRESS = PointerTo(I8)
_SMALL = 200  # statements of all launches: they take some 50 ns


class _ParameterKernel(CpuEmitter):
    """A kernel that takes its words as parameters."""

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
    """The text of a kernel, and the types of its parameters; None if its words are in memory."""

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


class _Sizes:
    """The sizes of a function, and the values of expressions over them."""

    def __init__(self, f: Exported, b: Builder) -> None:
        self.b = b
        is_wide = f.machine.size_bits == 64
        self.given = {
            s.name: Operand(b, I64, f"%{s.name}") if is_wide
            else Operand(b, I32, f"%.{s.name}").to(I64, "sext")
            for s in f.sizes
        }  # fmt: skip
        self.known: dict[UOp, Operand] = {}  # expressions that are computed

    def value(self, u: UOp) -> Operand:
        """The value of an expression: an i1 for a bool, else an i64."""
        if u.op is Ops.CONST:
            return Operand(self.b, I1 if u.dtype.kind == "bool" else I64, str(int(u.arg)))
        if u.op is Ops.VARIABLE:
            return self.given[u.arg.name]
        if u not in self.known:
            self.known[u] = computed(u.op, [self.value(s) for s in u.src])
        return self.known[u]


class _EntryCode(EntryWriter):
    """Builder of the entry, which checks the sizes and runs the launches."""

    def __init__(self, f: Exported, kernels: dict[str, _Rendered]) -> None:
        super().__init__(f)
        self.kernels = kernels
        self.b = b = Builder(I32)
        self.sizes = _Sizes(f, b)
        bases = [*[f"%{a.name}" for a in f.arrays], "%work"]
        bases += [f"@{f.constant(i)}" for i in range(len(f.constants))]
        self.bases = [Operand(b, _ADDRESS, base) for base in bases]
        in_memory = [c for c in f.plan.launches if kernels[c.kernel].types is None]
        most = max([max(1, len(c.words)) for c in in_memory], default=0)
        self.words = b.alloca(I64, most) if most else None

    def text(self) -> str:
        self.write()
        self.b.ret(0)
        return self.b.definition(f"define i32 @{self.f.name}({', '.join(parameters(self.f))})")

    def refuse_size(self, size: Size, number: int) -> None:
        value = self.sizes.given[size.name]
        with self.b.when(value.compare("slt", size.low) | value.compare("sgt", size.high)):
            self.b.ret(number)

    def refuse_unless(self, holds: UOp, number: int) -> None:
        with self.b.when(self.sizes.value(holds) ^ True):
            self.b.ret(number)

    def take_length(self, length: ExportedLength, number: int) -> None:
        value = self._word(length.at).to(PointerTo(I64)).load()
        Operand(self.b, PointerTo(I64), f"%{length.name}").store(value)
        with self.b.when(value.compare("slt", length.low) | value.compare("sgt", length.high)):
            self.b.ret(number)
        self.sizes.given[length.value] = value

    def know_sizes(self) -> None:
        if self.f.plan.repeats:  # all sizes are computed first: values in a loop end with it
            unknown = self.f.room.keys() - self.known
            for dim in _sizes(self.f.plan):
                if isinstance(dim, int) or unknown.isdisjoint(dim.variables):
                    self._size(dim)

    def _size(self, size: Dim) -> Operand:
        if isinstance(size, int):
            return Operand(self.b, I64, str(size))
        return self.sizes.value(expression(size, self.f))

    @contextlib.contextmanager
    def repeated(self, times: Dim) -> Iterator[Operand]:
        b, end = self.b, self._size(times)
        head, done = b.block(I64), b.block()
        (number,) = b.begin(head, 0)
        b.check(number.compare("slt", end), done)
        yield number
        b.go(head, number + 1)
        b.begin(done)

    def launch(self, launch: PlannedLaunch) -> None:
        kernel, b = self.kernels[launch.kernel], self.b
        words = [self._word(w) for w in launch.words]
        if kernel.types is None:
            assert self.words is not None
            for i, word in enumerate(words):
                self.words.at(i).to(PointerTo(word.t)).store(word, after=", align 8")
            given = [self.words]
        else:
            given = [self._narrow(kernel.types[i], words[i]) for i in sorted(kernel.types)]
        if not is_shared(self.f, launch):
            self._parts(kernel.name, given, launch.chunks)
            return
        count, run, alone, done = self._size(launch.chunks), RUN[0], b.block(), b.block()
        b.leave(Operand(b, _ADDRESS, f"%{run}").eq(None), alone)
        part = Operand(b, _ADDRESS, f"@{kernel.name}")
        self._call(f"%{run}", [Operand(b, _ADDRESS, f"%{RUN[1]}"), part, *given, count])
        b.go(done)
        b.begin(alone)
        self._parts(kernel.name, given, launch.chunks)
        b.begin(done)

    def _parts(self, name: str, given: list[Operand], chunks: Dim) -> None:
        """Run the parts of a kernel one after another."""
        if chunks == 1:
            self._call(f"@{name}", [*given, Operand(self.b, I64, "0")])
            return
        with self.repeated(chunks) as chunk:
            self._call(f"@{name}", [*given, chunk])

    def _call(self, name: str, given: list[Operand]) -> None:
        operands = ", ".join([f"{v.t.text} {v.name}" for v in given])
        self.b.effect(f"call void {name}({operands})")

    def _word(self, word: Word) -> Operand:
        """The value of a word."""
        if isinstance(word, Scalar):
            return self._size(word.value)
        base = self.bases[word.base]
        return base if word.offset == 0 else base + self._size(word.offset)

    def _narrow(self, wanted: str, value: Operand) -> Operand:
        """Convert a word to a kernel's type: a number is in the low bits of its word."""
        if wanted == value.t.text:
            return value
        bits = {"half": 16, "float": 32, "double": 64}.get(wanted)
        if bits is None:
            return value.to(Type(wanted), "trunc")
        whole = value if bits == 64 else value.to(Type(f"i{bits}"), "trunc")
        return whole.to(Type(wanted), "bitcast")


def _sizes(plan: Plan) -> Iterator[Dim]:
    """The sizes that the launches of a plan use."""
    yield from [r.times for r in plan.repeats]
    for launch in plan.launches:
        yield launch.chunks
        yield from [w.offset if isinstance(w, Pointer) else w.value for w in launch.words]


def parameters(f: Exported) -> list[str]:
    """The parameters of the entry, with their types."""
    pointers = [*[a.name for a in f.arrays], *[x.name for x in f.lengths]]
    made = [*[f"ptr %{name}" for name in pointers], *_size_parameters(f)]
    return [*made, "ptr %work", *([f"ptr %{name}" for name in RUN] if f.threads > 1 else [])]


def _size_parameters(f: Exported) -> list[str]:
    return [f"{'i64 %' if f.machine.size_bits == 64 else 'i32 %.'}{s.name}" for s in f.sizes]


def _work_bytes(f: Exported) -> str:
    """The function that gives the bytes of work."""
    t = I64 if f.machine.size_bits == 64 else I32
    b = Builder(t)
    nbytes = _Sizes(f, b).value(work(f))
    b.ret(nbytes if t is I64 else nbytes.to(t, "trunc"))
    given = ", ".join(_size_parameters(f))
    return b.definition(f"define {t.text} @{f.name}_work_bytes({given}) nounwind")


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
            _attributed(v, _EntryCode(v, kernels).text(), "internal " if f.levels else "")
        )
        inlined = " alwaysinline" if is_small(f) else ""
        for k in kernels.values():
            declared = [_attributed(v, part, "internal ") for part in k.declared]
            functions.append((_attributed(v, k.text, "internal ", inlined), declared))
    text = emitter.module(functions)
    parts = [f'source_filename = "{f.name}"', "\n".join(data), text, _work_bytes(f), *entries]
    if f.levels:
        parts.append(levels.module_text(f, parameters(f)))
    if f.casadi is not None:
        parts.append(casadi.module_text(f.casadi))
    whole = "\n\n".join(parts) + "\n"
    whole = mulacc.without_instruction(whole, f.name, f.machine)
    return square_root.without_instruction(whole, f.name, f.machine) if f.machine.is_arm else whole


def _table(f: Exported, t: ConstantTable) -> str:
    """A constant array for the caller, in its own section, so that linkers drop unread arrays. Its
    bytes are one text, because LLVM reads numbers one by one."""
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
    """True if calls and loops take much of the time. Then kernels are inlined into the function,
    and short loops are unrolled."""
    launched = [len(v.kernels[c.kernel].linear.src) for v in f.versions for c in v.plan.launches]
    return f.threads == 1 and sum(launched) <= _SMALL * len(f.versions)


def _attributed(f: Exported, text: str, linkage: str, attributes: str = "") -> str:
    """Mark functions as nounwind. Functions for one of several levels also get the level's
    attribute, and so names of their own."""
    if f.is_level:
        attributes += f" {levels.attributes(f.machine.name)}"
        text = text.replace("@apply_", f"@{f.name}_apply_")
    return _DEFINITION.sub(rf"define {linkage}\1 nounwind{attributes} {{", text)
