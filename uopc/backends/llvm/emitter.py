"""The text of a kernel in LLVM IR: one function per kernel, `void name(ptr words, i64 chunk)`.

`words` holds the kernel's storage pointers and numbers by slot (a number in the low bits of its
word), then its variables by name, then the address of scratch memory if the kernel needs any.
`chunk` is the value of a range of kind thread. The text is in SSA form with explicit vectors, so
no LLVM pass is needed. `statements.py` has the code of each op.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uopc.backends.kernel_text import KernelText
from uopc.backends.llvm import scratch
from uopc.backends.llvm.types import constant, llvm_type, memory_type
from uopc.ir.core import storage
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property


class OpenLoop:
    """An open loop: its labels, the block before it, the type of its counter, its end, and whether
    it runs at least once."""

    def __init__(
        self, number: int, before: str, counts: str, end: str, at_least_once: bool
    ) -> None:
        self.counts = counts
        self.head, self.body, self.exit = f"head{number}", f"body{number}", f"exit{number}"
        self.before, self.end, self.at_least_once = before, end, at_least_once
        self.counter = ""
        self.enter = self.phis = 0  # the lines of the branch into it, and of its phis


class Emitter(KernelText[OpenLoop, tuple[str, str]]):
    """Builds the text of one kernel, line by line. A subclass says what emits each op."""

    language, chunk = "llvm", "%chunk"
    saturates = False  # True where one instruction converts vectors of floats to integers

    def __init__(self, name: str, kernel: UOp) -> None:
        super().__init__(name, kernel)
        self.entry: list[str] = []  # for the beginning of the function
        self.narrow: dict[UOp, str] = {}  # of indices of 64 bits: their names as 32
        self.constants: dict[tuple[UOp, int], str] = {}  # by lanes
        self.block = "entry"
        self.declared: dict[str, None] = {}
        self.functions: dict[UOp, str] = {}  # the names of those that are called
        self.loop_count = 0
        self.local: dict[str, str] = {}  # instruction -> its value, in this block
        self.scratch: dict[UOp, int] = {}
        self.scratch_base = ""
        self.opaque: dict[int, str] = {}  # by lanes: masks of which LLVM knows nothing

    @cached_property
    def selects(self) -> bool:
        """True if the kernel chooses between vectors by masks."""
        return any([u.op is Ops.WHERE and u.src[0].dtype.lanes > 1 for u in self.kernel.src])

    @cached_property
    def multiplies_tiles(self) -> bool:
        """True if vectors as long as a tile are tiles, in registers of a matrix unit."""
        return any([u.op is Ops.WMMA for u in self.kernel.src])

    # -------------------------------------------------------- text
    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def value(self, text: str) -> str:
        """Append an instruction; returns the new name of its value."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def value_before(self, loop: OpenLoop, text: str) -> str:
        """Put an instruction in front of a loop, whose body is there already; the new name."""
        name = self.fresh()
        self.lines[loop.enter] = f"  {name} = {text}\n{self.lines[loop.enter]}"
        return name

    def effect(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name
        self.local = {}

    def intrinsic(self, result: str, name: str, operands: Iterable[tuple[str, str]]) -> str:
        """Call an LLVM intrinsic, which is declared on first use; '' where the result is void."""
        pairs = list(operands)
        types = ", ".join(t for t, _ in pairs)
        self.declared[f"declare {result} @{name}({types})"] = None
        call = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in pairs)})"
        if result == "void":
            self.effect(call)
            return ""
        return self.value(call)

    def lanes(self, element: str, vector: str, count: int) -> list[str]:
        """All lanes of a vector with elements of some type."""
        t = f"<{count} x {element}>"
        return [self.value(f"extractelement {t} {vector}, i64 {i}") for i in range(count)]

    def vector(self, element: str, lanes: Sequence[str]) -> str:
        """A vector of these lanes."""
        t, whole = f"<{len(lanes)} x {element}>", "poison"
        for i, lane in enumerate(lanes):
            whole = self.value(f"insertelement {t} {whole}, {element} {lane}, i64 {i}")
        return whole

    def branch(self, condition: str) -> tuple[str, str]:
        """Open a block that runs where the condition holds.

        Returns the names of the block before it and of the one behind it.
        """
        self.count += 1
        inside, done, before = f"inside{self.count}", f"done{self.count}", self.block
        self.effect(f"br i1 {condition}, label %{inside}, label %{done}")
        self.label(inside)
        return before, done

    def join(self, done: str) -> str:
        """Close that block and go on in `done`; returns the name of the block that ended."""
        last = self.block
        self.effect(f"br label %{done}")
        self.label(done)
        return last

    # -------------------------------------------------------- operands
    def of(self, u: UOp, lanes: int = 0) -> str:
        """The name of an operand. A scalar is repeated to fill `lanes`, if given."""
        if u.op is Ops.CONST:
            text = self.constants.get((u, lanes))
            if text is None:
                t = u.dtype if type(u.arg) is tuple else u.dtype.scalar.vec(max(lanes, 1))
                text = self.constants[(u, lanes)] = constant(t, u.arg)
            return text
        name = self.names[u]
        return name if u.dtype.lanes == max(lanes, 1) or not lanes else self.splat(u, name, lanes)

    def once(self, instruction: str) -> str:
        """The value of an instruction that is emitted once per block."""
        found = self.local.get(instruction)
        if found is None:
            found = self.local[instruction] = self.value(instruction)
        return found

    def splat(self, u: UOp, name: str, lanes: int) -> str:
        wide, narrow = llvm_type(u.dtype.vec(lanes)), llvm_type(u.dtype.scalar)
        one = self.once(f"insertelement {wide} poison, {narrow} {name}, i64 0")
        mask = f"<{lanes} x i32> zeroinitializer"
        return self.once(f"shufflevector {wide} {one}, {wide} poison, {mask}")

    def counted(self, u: UOp) -> tuple[str, str]:
        """The type of an index, and its name in this type."""
        return "i64", self.of(u)

    def element(self, storage: str, t: str, index: UOp) -> str:
        """The address of an element. Elements at constant distances share a base, so that an
        access adds the constant for free."""
        base, last = storage, index
        if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
            base, last = self.element(storage, t, index.src[0]), index.src[1]
        return self.once(f"getelementptr {t}, ptr {base}, {' '.join(self.counted(last))}")

    def address(self, u: UOp) -> str:
        """The address of an INDEX: `ptr %name`."""
        t = memory_type(u.dtype.scalar)
        return f"ptr {self.element(self.names[u.src[0]], t, u.src[1])}"

    def alignment(self, u: UOp, t: DType) -> int:
        """The bytes that the address of an access of type `t` is a multiple of."""
        return t.itemsize

    # -------------------------------------------------------- the function
    def run(self) -> str:
        """The definition of the kernel."""
        self.load_words()
        self.emit(self.kernel.src)
        return self.definition()

    def definition(self) -> str:
        """The text of the function."""
        body = "\n".join(self.entry + self.lines)
        return f"{self.head()} {{\nentry:\n{body}\n  ret void\n}}"

    def head(self) -> str:
        """The first line of the definition."""
        return f"define void @{self.name}(ptr %words, i64 %chunk){stack_alignment(self.kernel.src)}"

    def load_words(self) -> None:
        """Name the kernel's arguments."""
        for u, i in storage.word_places(self.kernel).items():
            self.names[u] = self.argument(u, i)
        self.scratch, nbytes = scratch.offsets(self.kernel)
        if nbytes:
            base = self.word("ptr", scratch.word(self.kernel))
            own = self.value(f"mul i64 %chunk, {nbytes}")
            self.scratch_base = self.value(f"getelementptr i8, ptr {base}, i64 {own}")

    def argument(self, u: UOp, i: int) -> str:
        """The name of an argument, which is a word of the kernel."""
        return self.word("ptr" if u.op is Ops.PARAM else llvm_type(u.dtype), i)

    def word(self, t: str, i: int) -> str:
        address = self.value(f"getelementptr i8, ptr %words, i64 {8 * i}")
        return self.value(f"load {t}, ptr {address}, align 8")


# The caller's stack is aligned to 16 bytes, and LLVM keeps that alignment for spilled vectors: half
# of those of 32 bytes would lie across two cache lines.
CALLERS_ALIGNMENT = 16
REGISTERS = 16  # up to this many vectors need no memory


def stack_alignment(statements: Iterable[UOp]) -> str:
    """The attribute of a function with these statements: none where it has few vectors."""
    vectors = [u.dtype.itemsize * u.dtype.lanes for u in statements if u.op is not Ops.INDEX]
    widest = max(vectors, default=0)
    wide = sum([n > CALLERS_ALIGNMENT for n in vectors])
    if widest <= CALLERS_ALIGNMENT or wide <= REGISTERS:
        return ""
    return f" alignstack({min(64, 1 << (widest - 1).bit_length())})"


def module(functions: Iterable[tuple[str, list[str]]]) -> str:
    """One LLVM module from rendered kernels: pairs of a text and the declarations it needs."""
    declared: dict[str, None] = {}
    texts = []
    for text, needed in functions:
        texts.append(text)
        declared.update(dict.fromkeys(needed))
    return "\n\n".join([*texts, *sorted(declared)]) + "\n"
