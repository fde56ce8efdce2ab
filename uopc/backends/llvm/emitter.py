"""Linear UOps to LLVM IR: one function a kernel, `void name(ptr words, i64 chunk)`.

`words` holds the kernel's storage pointers and numbers by slot (a number in the low bits of its
word), then its variables by name, then the address of scratch memory if it needs any; `chunk` is
the value of a range of kind thread. Values are in SSA form from the start (loop-carried registers
are phis) and vectors are explicit, so no LLVM pass is needed. Each op is one function in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uopc.backends.llvm import scratch
from uopc.backends.llvm.instructions import ALU, constant, float_to_int, lane, two_vectors
from uopc.backends.llvm.stack_alignment import stack_alignment
from uopc.backends.llvm.types import literal, llvm_type, memory_type, suffix
from uopc.errors import Unsupported
from uopc.ir.core import bounds, dtypes
from uopc.ir.core import storage as kernel_params
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp


class Emitter:
    """The text of one kernel, built line by line."""

    saturates = False  # whether vectors of floats become integers in one instruction

    def __init__(self, name: str, kernel: UOp) -> None:
        self.name, self.kernel = name, kernel
        self.lines: list[str] = []
        self.entry: list[str] = []  # what must stand at the beginning of the function
        self.names: dict[UOp, str] = {}
        self.constants: dict[tuple[UOp, int], str] = {}  # by lanes
        self.count = 0
        self.block = "entry"
        self.declared: dict[str, None] = {}
        self.loops: dict[UOp, _Loop] = {}
        # IF -> the block before it and the one after; once it has ended, the one that it ends in
        self.branches: dict[UOp, tuple[str, str]] = {}
        self.carries: dict[UOp, tuple[int, str]] = {}
        self.opened: UOp | None = None  # a loop whose phis are being written
        self.local: dict[str, str] = {}  # instruction -> its value, in this block
        self.scratch: dict[UOp, int] = {}
        self.scratch_base = ""

    # -------------------------------------------------------- text
    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def value(self, text: str) -> str:
        """A new name for the value of an instruction."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def effect(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name
        self.local = {}

    def intrinsic(self, result: str, name: str, operands: Iterable[tuple[str, str]]) -> str:
        """A call of an LLVM intrinsic, declared on first use; void results give ''."""
        pairs = list(operands)
        types = ", ".join(t for t, _ in pairs)
        self.declared[f"declare {result} @{name}({types})"] = None
        call = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in pairs)})"
        if result == "void":
            self.effect(call)
            return ""
        return self.value(call)

    def branch(self, condition: str) -> tuple[str, str]:
        """Open a block that runs where the condition holds: the block before it, the one after."""
        self.count += 1
        inside, done, before = f"inside{self.count}", f"done{self.count}", self.block
        self.effect(f"br i1 {condition}, label %{inside}, label %{done}")
        self.label(inside)
        return before, done

    def join(self, done: str) -> str:
        """Close it; the name of the block that ran."""
        last = self.block
        self.effect(f"br label %{done}")
        self.label(done)
        return last

    # -------------------------------------------------------- operands
    def of(self, u: UOp, lanes: int = 0) -> str:
        """The name of an operand; a scalar one is repeated when `lanes` are wanted."""
        if u.op is Ops.CONST:
            text = self.constants.get((u, lanes))
            if text is None:
                text = self.constants[(u, lanes)] = self.constant(u, lanes)
            return text
        name = self.names[u]
        return name if u.dtype.lanes == max(lanes, 1) or not lanes else self.splat(u, name, lanes)

    def constant(self, u: UOp, lanes: int) -> str:
        t = u.dtype.scalar
        if type(u.arg) is tuple:
            items = [f"{llvm_type(t)} {literal(t, v)}" for v in u.arg]
            same = all([i == items[0] for i in items])
            return f"splat ({items[0]})" if same else "<" + ", ".join(items) + ">"
        return constant(t.vec(max(lanes, 1)), u.arg)

    def once(self, instruction: str) -> str:
        """The value of an instruction, which stands in a block once."""
        found = self.local.get(instruction)
        if found is None:
            found = self.local[instruction] = self.value(instruction)
        return found

    def splat(self, u: UOp, name: str, lanes: int) -> str:
        wide, narrow = llvm_type(u.dtype.vec(lanes)), llvm_type(u.dtype.scalar)
        first = f"insertelement {wide} poison, {narrow} {name}, i64 0"
        found = self.local.get(first)
        if found is None:
            one = self.value(first)
            found = self.local[first] = self.value(
                f"shufflevector {wide} {one}, {wide} poison, <{lanes} x i32> zeroinitializer"
            )
        return found

    def element(self, storage: str, t: str, index: UOp) -> str:
        """The address of an element. Elements a constant apart share a base: their addresses are
        one addition, which an access does for nothing and LLVM need not find out."""
        base, step = storage, self.of(index)
        if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
            base, step = self.element(storage, t, index.src[0]), self.of(index.src[1])
        address = f"getelementptr {t}, ptr {base}, i64 {step}"
        return self.once(address)

    # -------------------------------------------------------- the function
    def run(self) -> str:
        """The definition of the kernel."""
        self.load_words()
        self.emit(self.kernel.src)
        return self.definition()

    def emit(self, statements: Iterable[UOp]) -> None:
        """The code of some nodes, in order."""
        for u in statements:
            if self.opened is not None and u.op not in (Ops.CARRY, Ops.CONST):
                self._open_body(self.loops[self.opened])
                self.opened = None
            rule = self.rule(u)
            if rule is None:
                raise Unsupported(f"llvm: no code for {u.op!r} ({u.dtype.name})")
            made = rule(self, u)
            if made is not None:
                self.names[u] = made

    def definition(self) -> str:
        """The text of the function."""
        body = "\n".join(self.entry + self.lines)
        return f"{self.head()} {{\nentry:\n{body}\n  ret void\n}}"

    def rule(self, u: UOp) -> Rule | None:
        """What emits a node."""
        return _EMIT.get(u.op)

    def head(self) -> str:
        """The first line of the definition."""
        return f"define void @{self.name}(ptr %words, i64 %chunk){stack_alignment(self.kernel.src)}"

    def _open_body(self, loop: _Loop) -> None:
        """Between the phis of a loop and its body: the test, where it may run zero times."""
        if not loop.at_least_once:
            test = self.value(f"icmp slt i64 {loop.counter}, {loop.end}")
            self.effect(f"br i1 {test}, label %{loop.body}, label %{loop.exit}")
            self.label(loop.body)

    def load_words(self) -> None:
        """Name what the kernel is called with."""
        places = kernel_params.word_places(self.kernel)
        for u, i in places.items():
            self.names[u] = self.word("ptr" if u.op is Ops.PARAM else llvm_type(u.dtype), i)
        self.scratch, nbytes = scratch.offsets(self.kernel)
        if nbytes:
            base = self.word("ptr", scratch.word(self.kernel))
            own = self.value(f"mul i64 %chunk, {nbytes}")
            self.scratch_base = self.value(f"getelementptr i8, ptr {base}, i64 {own}")

    def word(self, t: str, i: int) -> str:
        place = self.value(f"getelementptr i8, ptr %words, i64 {8 * i}")
        return self.value(f"load {t}, ptr {place}, align 8")


class _Loop:
    """An open loop: its labels, and whether it runs at least once."""

    def __init__(self, number: int, end: str, counts: bounds.Bounds) -> None:
        self.head, self.body, self.exit = f"head{number}", f"body{number}", f"exit{number}"
        self.end, self.at_least_once = end, counts[0] >= 1
        self.counter = ""
        self.phi_line = 0
        self.before = ""


Rule = Callable[[Emitter, "UOp"], str | None]


# ------------------------------------------------------------ control
def _range(e: Emitter, u: UOp) -> str | None:
    if u.arg.kind == "thread":
        return "%chunk"
    loop = _Loop(len(e.loops), e.of(u.src[0]), bounds.bounds(u.src[0]))
    e.loops[u], e.opened = loop, u
    loop.before = e.block
    e.effect(f"br label %{loop.head}")
    e.label(loop.head)
    loop.counter = e.fresh()
    loop.phi_line = len(e.lines)
    e.lines.append("")
    return loop.counter


def _carry(e: Emitter, u: UOp) -> str | None:
    name = e.fresh()
    e.carries[u] = (len(e.lines), name)
    e.lines.append("")
    return name


def _end(e: Emitter, u: UOp) -> str | None:
    r, pairs = u.src[0], u.src[1:]
    if r.arg.kind == "thread":
        return None
    loop = e.loops[r]
    following = e.value(f"add nuw nsw i64 {loop.counter}, 1")
    latch = e.block
    e.lines[loop.phi_line] = (
        f"  {loop.counter} = phi i64 [ 0, %{loop.before} ], [ {following}, %{latch} ]"
    )
    for carry, after in zip(pairs[::2], pairs[1::2]):
        line, name = e.carries[carry]
        t, lanes = llvm_type(carry.dtype), carry.dtype.lanes
        first, last = e.of(carry.src[0]), e.of(after, lanes)
        e.lines[line] = f"  {name} = phi {t} [ {first}, %{loop.before} ], [ {last}, %{latch} ]"
        if loop.at_least_once:
            e.names[carry] = last
    if loop.at_least_once:
        test = e.value(f"icmp slt i64 {following}, {loop.end}")
        e.effect(f"br i1 {test}, label %{loop.head}, label %{loop.exit}")
    else:
        e.effect(f"br label %{loop.head}")
    e.label(loop.exit)
    return None


def _if(e: Emitter, u: UOp) -> str | None:
    e.branches[u] = e.branch(e.of(u.src[0]))
    return None


def _endif(e: Emitter, u: UOp) -> str | None:
    before, done = e.branches[u.src[0]]
    e.branches[u.src[0]] = before, e.join(done)
    return None


def _branch(e: Emitter, u: UOp) -> str | None:
    a, opened, b = u.src
    before, last = e.branches[opened]
    return e.value(f"phi {llvm_type(u.dtype)} [ {e.of(a)}, %{before} ], [ {e.of(b)}, %{last} ]")


# ------------------------------------------------------------ memory
def _buffer(e: Emitter, u: UOp) -> str | None:
    """Storage of the kernel's own: on the stack of the function, or in scratch memory."""
    if u in e.scratch:
        return e.value(f"getelementptr i8, ptr {e.scratch_base}, i64 {e.scratch[u]}")
    size = scratch.nbytes(u) // u.dtype.itemsize
    name = e.fresh()
    e.entry.append(f"  {name} = alloca [{size} x {memory_type(u.dtype)}], align 64")
    return name


def _index(e: Emitter, u: UOp) -> str | None:
    return None


def address_of(e: Emitter, u: UOp) -> str:
    """The address that an INDEX is."""
    return e.element(e.names[u.src[0]], memory_type(u.dtype.scalar), u.src[1])


def _load(e: Emitter, u: UOp) -> str | None:
    t, align = memory_type(u.dtype), u.dtype.itemsize
    place = address_of(e, u.src[0])
    if len(u.src) == 1:
        return from_memory(e, u, e.value(f"load {t}, ptr {place}, align {align}"))
    gate, lanes = u.src[1], u.dtype.lanes
    if lanes == 1:
        # Reading element 0 instead keeps the code free of branches.
        safe = e.value(f"select i1 {e.of(gate)}, ptr {place}, ptr {e.names[u.src[0].src[0]]}")
        got = e.value(f"load {t}, ptr {safe}, align {align}")
        return from_memory(
            e, u, e.value(f"select i1 {e.of(gate)}, {t} {got}, {t} zeroinitializer")
        )
    mask = f"<{lanes} x i1>"
    name = f"llvm.masked.load.{_memory_suffix(u.dtype)}.p0"
    e.declared[f"declare {t} @{name}(ptr, {mask}, {t})"] = None
    where = f"ptr align {align} {place}, {mask} {e.of(gate, lanes)}"
    got = e.value(f"call {t} @{name}({where}, {t} zeroinitializer)")
    return from_memory(e, u, got)


def _memory_suffix(t: DType) -> str:
    return suffix(t if t.kind != "bool" else dtypes.uint8.vec(t.lanes))


def from_memory(e: Emitter, u: UOp, got: str) -> str:
    """A loaded value as it is computed with: a bool is one bit."""
    if u.dtype.kind != "bool":
        return got
    return e.value(f"icmp ne {memory_type(u.dtype)} {got}, zeroinitializer" if u.dtype.lanes > 1
                   else f"icmp ne i8 {got}, 0")  # fmt: skip


def _store(e: Emitter, u: UOp) -> str | None:
    address, value = u.src[0], u.src[1]
    lanes, align = max(address.dtype.lanes, value.dtype.lanes), value.dtype.itemsize
    stored = value.dtype.scalar.vec(lanes)
    t, given = memory_type(stored), e.of(value, lanes)
    if stored.kind == "bool":
        given = e.value(f"zext {llvm_type(stored)} {given} to {t}")
    if len(u.src) == 2:
        e.effect(f"store {t} {given}, ptr {address_of(e, address)}, align {align}")
        return None
    gate = u.src[2]
    if lanes > 1:
        place, mask = address_of(e, address), f"<{lanes} x i1>"
        name = f"llvm.masked.store.{_memory_suffix(stored)}.p0"
        e.declared[f"declare void @{name}({t}, ptr, {mask})"] = None
        e.effect(
            f"call void @{name}({t} {given}, ptr align {align} {place}, {mask} {e.of(gate, lanes)})"
        )
        return None
    _, done = e.branch(e.of(gate))
    e.effect(f"store {t} {given}, ptr {address_of(e, address)}, align {align}")
    e.join(done)
    return None


# ------------------------------------------------------------ values
def _arithmetic(e: Emitter, u: UOp) -> str | None:
    lanes = u.dtype.lanes
    names = [e.of(s, lanes) for s in u.src]
    return ALU[u.op](e, u.src[-1].dtype.scalar.vec(lanes), names)


def _where(e: Emitter, u: UOp) -> str | None:
    lanes = u.dtype.lanes
    c, a, b = u.src
    t = llvm_type(u.dtype)
    mask = llvm_type(dtypes.bool_.vec(c.dtype.lanes))
    return e.value(f"select {mask} {e.of(c)}, {t} {e.of(a, lanes)}, {t} {e.of(b, lanes)}")


def convert(e: Emitter, u: UOp) -> str | None:
    """A CAST between types that LLVM computes with."""
    source, target = u.src[0].dtype, u.dtype
    a = e.of(u.src[0])
    s, t = llvm_type(source), llvm_type(target)
    if s == t:
        return a
    if source.is_float and target.is_float:
        return e.value(f"{'fpext' if target.bits > source.bits else 'fptrunc'} {s} {a} to {t}")
    if target.kind == "bool":
        zero = (
            "zeroinitializer"
            if source.lanes > 1
            else literal(source.scalar, 0.0 if source.is_float else 0)
        )
        return e.value(f"{'fcmp une' if source.is_float else 'icmp ne'} {s} {a}, {zero}")
    if source.is_float:
        return float_to_int(e, source, target, a)
    signed = source.kind in ("int", "index")
    if target.is_float:
        return e.value(f"{'sitofp' if signed else 'uitofp'} {s} {a} to {t}")
    wide = 1 if source.kind == "bool" else source.bits
    code = "trunc" if target.bits < wide else "sext" if signed else "zext"
    return e.value(f"{code} {s} {a} to {t}")


def _bitcast(e: Emitter, u: UOp) -> str | None:
    s, t = llvm_type(u.src[0].dtype), llvm_type(u.dtype)
    return e.of(u.src[0]) if s == t else e.value(f"bitcast {s} {e.of(u.src[0])} to {t}")


# ------------------------------------------------------------ lanes
def _lanes(e: Emitter, u: UOp) -> str | None:
    t = llvm_type(u.dtype.scalar)
    return "<" + ", ".join(f"{t} {i}" for i in range(u.arg)) + ">"


def _stack(e: Emitter, u: UOp) -> str | None:
    wide, narrow = llvm_type(u.dtype), llvm_type(u.dtype.scalar)
    if u.src[0].dtype.lanes > 1:
        return _joined(e, u)
    if all(s is u.src[0] for s in u.src):
        return e.of(u.src[0], u.dtype.lanes)
    if (shuffled := _as_shuffle(e, u, wide)) is not None:
        return shuffled
    got = "poison"
    for i, s in enumerate(u.src):
        got = e.value(f"insertelement {wide} {got}, {narrow} {e.of(s)}, i64 {i}")
    return got


def _joined(e: Emitter, u: UOp) -> str:
    """Vectors one after the other: pairs of neighbours until one is left."""
    parts, t = [e.of(s) for s in u.src], u.src[0].dtype
    while len(parts) > 1:
        parts += ["poison"] * (len(parts) % 2)
        pairs = zip(parts[::2], parts[1::2])
        parts = [two_vectors(e, t, a, b, range(2 * t.lanes)) for a, b in pairs]
        t = t.scalar.vec(2 * t.lanes)
    return parts[0] if t is u.dtype else two_vectors(e, t, parts[0], "poison", range(u.dtype.lanes))


def _shuffle(e: Emitter, u: UOp) -> str | None:
    return two_vectors(e, u.src[0].dtype, e.of(u.src[0]), e.of(u.src[1]), u.arg)


def _as_shuffle(e: Emitter, u: UOp, wide: str) -> str | None:
    """A STACK of the lanes of one vector of the same width is one shuffle."""
    whole = u.src[0].src[0] if u.src[0].op is Ops.LANE else None
    if whole is None or whole.dtype is not u.dtype:
        return None
    if any(s.op is not Ops.LANE or s.src[0] is not whole for s in u.src):
        return None
    return two_vectors(e, u.dtype, e.names[whole], "poison", [s.arg for s in u.src])


def _lane(e: Emitter, u: UOp) -> str | None:
    return lane(e, u.src[0].dtype, e.of(u.src[0]), u.arg)


def _hreduce(e: Emitter, u: UOp) -> str | None:
    """Halves are combined while they halve, then lane by lane."""
    lanes, t, got = u.src[0].dtype.lanes, u.src[0].dtype.scalar, e.of(u.src[0])
    if t.kind == "bool":
        logic = "or" if u.arg in ("add", "max") else "and"
        wide = f"<{lanes} x i1>"
        return e.intrinsic("i1", f"llvm.vector.reduce.{logic}.v{lanes}i1", [(wide, got)])
    combine = ALU[Op.by_name(u.arg)]
    while lanes > 2 and lanes % 2 == 0:
        half, parts = lanes // 2, []
        for first in (0, half):
            lower = range(first, first + half)
            parts.append(two_vectors(e, t.vec(lanes), got, "poison", lower))
        got, lanes = combine(e, t.vec(half), parts), half
    wide = llvm_type(t.vec(lanes))
    parts = [e.value(f"extractelement {wide} {got}, i64 {i}") for i in range(lanes)]
    total = parts[0]
    for p in parts[1:]:
        total = combine(e, t, [total, p])
    return total


_EMIT: dict[Op, Rule] = {
    Ops.PARAM: lambda e, u: None,
    Ops.BUFFER: _buffer,
    Ops.VARIABLE: lambda e, u: None,
    Ops.NUMBER: lambda e, u: None,
    Ops.CONST: lambda e, u: None,
    Ops.INDEX: _index,
    Ops.RANGE: _range,
    Ops.CARRY: _carry,
    Ops.END: _end,
    Ops.IF: _if,
    Ops.ENDIF: _endif,
    Ops.BRANCH: _branch,
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.LANES: _lanes,
    Ops.STACK: _stack,
    Ops.LANE: _lane,
    Ops.SHUFFLE: _shuffle,
    Ops.HREDUCE: _hreduce,
    Ops.AFTER: lambda e, u: e.of(u.src[0]),
    Ops.NOOP: lambda e, u: None,
    Ops.WHERE: _where,
    Ops.CAST: convert,
    Ops.BITCAST: _bitcast,
    **dict.fromkeys(ALU, _arithmetic),
}


def module(functions: Iterable[tuple[str, list[str]]]) -> str:
    """One LLVM module of rendered kernels."""
    declared: dict[str, None] = {}
    texts = []
    for text, needed in functions:
        texts.append(text)
        declared.update(dict.fromkeys(needed))
    return "\n\n".join([*texts, *sorted(declared)]) + "\n"
