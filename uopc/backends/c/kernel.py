"""A linear kernel as one function in C11, which reads as one would write it.

    for (int64_t i = 0; i < n; ++i) {
        y[i] = UOPC_FMA(a[i], b[i], c[i]);
    }

A value that is read once, nearby, stands where it is read; others have names. Loads stay before the
stores that follow them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from uopc.backends.c import lanes
from uopc.backends.c.expressions import TWICE, arithmetic, bitcast, cast, with_itself
from uopc.backends.c.names import code, inside
from uopc.backends.c.prelude import Prelude
from uopc.backends.c.types import c_type, computed, mask_of, memory_type
from uopc.backends.inline import inlined
from uopc.backends.kernel_text import CONTROL, KernelText, Rule
from uopc.backends.llvm import index_width, scratch
from uopc.ir.core import dtypes, storage
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import COMPARISONS, Op, Ops
from uopc.ir.core.uop import UOp

_LONGEST = 60  # characters of an expression inside of another one
_PURE = frozenset((
    Ops.LOAD, Ops.CAST, Ops.BITCAST, Ops.STACK, Ops.SHUFFLE, Ops.LOOKUP, Ops.LANE, Ops.HREDUCE,
    Ops.LANES, Ops.INDEX,
))  # fmt: skip
_OPENS, _CLOSES = (Ops.RANGE, Ops.IF), (Ops.END, Ops.ENDIF)
_COUNTERS = "ijklmn"
_NO_BREAK = "\0"  # a space at which no line ends


class Waiting(NamedTuple):
    """An expression that stands where it is read, and whether it reads memory."""

    text: str
    reads: bool


class CKernel(KernelText[None, None]):
    """The text of a kernel. `names`: of its arguments, which no other name in it may be."""

    language, chunk = "c", "chunk"

    def __init__(
        self, name: str, kernel: UOp, prelude: Prelude, names: Mapping[UOp, str],
        distinct: bool,
    ) -> None:  # fmt: skip
        super().__init__(name, inlined(kernel))
        self.prelude, self.distinct = prelude, distinct
        self.names.update(names)
        self.counters = [c for c in _COUNTERS if c not in names.values()]
        self.taken = {*names.values(), *self.counters, "scratch", "chunk"}
        self.lanes = lanes.Lanes(self)
        self.depth = 1
        self.waiting: dict[UOp, Waiting] = {}
        self.reads = False  # whether the expression that is being built reads memory
        statements = self.kernel.src
        self.uses, self.once = _readers(statements)
        self.buffers, self.scratch_bytes = scratch.offsets(self.kernel)
        self.is_threaded = any([u.op is Ops.RANGE and u.arg.kind == "thread" for u in statements])

    def run(self, linkage: str = "static ") -> str:
        """The definition of the function."""
        for u in self.names:
            if not self.uses.get(u):
                self.line(f"(void){self.names[u]};")
        self.emit(self.kernel.src)
        parts = [p.replace(" ", _NO_BREAK) for p in self.parameters() or ["void"]]
        head = f"{linkage}void {self.name}({', '.join(parts)})"
        return "\n".join([code(head).replace(_NO_BREAK, " "), "{", *self.lines, "}"])

    def parameters(self) -> list[str]:
        """The declarations of the function's parameters; the number of the part is the last."""
        written = storage.written_slots(self.kernel)
        star = "*restrict " if self.distinct else "*"
        made = []
        for u, name in self.names.items():
            if u.op is Ops.PARAM:
                constant = "" if u.arg.slot in written else "const "
                made.append(f"{constant}{memory_type(u.dtype)} {star}{name}")
            elif u.op in (Ops.NUMBER, Ops.VARIABLE):
                made.append(f"{c_type(self.dtype(u))} {name}")
        if self.scratch_bytes:
            made.append("unsigned char *scratch")
        return [*made, "int64_t chunk"] if self.is_threaded else made

    # -------------------------------------------------------- lines and names
    def line(self, text: str) -> None:
        """Append a line, or several where it is long."""
        self.lines.append(code("    " * self.depth + text))

    def fresh(self) -> str:
        """A name that nothing else has."""
        self.count += 1
        name = f"v{self.count}"
        return self.fresh() if name in self.taken else name

    def value(self, u: UOp, text: str) -> None:
        """Give a node its text, which is kept until it is read, or its name."""
        reads, self.reads = self.reads or u.op is Ops.LOAD, False
        if u in self.once and len(text) <= _LONGEST:
            self.waiting[u] = Waiting(text, reads)
        else:
            self._declare(u, text)

    def _declare(self, u: UOp, text: str) -> str:
        name = self.names[u] = self.kept(self.shape(u), text)
        return name

    def kept(self, shape: str, text: str) -> str:
        """A new name of some type in C for the value of an expression; a name stays."""
        if text.isidentifier():
            return text
        name = self.fresh()
        self.line(f"const {shape} {name} = {text};")
        return name

    def variable(self, u: UOp) -> None:
        """Declare the variable that a loop or a branch changes, with its first value, if any code
        reads it."""
        if not self.uses.get(u):
            return
        self.lanes.give_mask(u, u.src[:1])
        first = self.like(u.src[0], u)
        name = self.names[u] = self.fresh()
        self.line(f"{self.shape(u)} {name} = {first};")

    def shape(self, u: UOp) -> str:
        """The type in C of a value."""
        return c_type(self.dtype(u)) if u.dtype.lanes == 1 else self.lanes.shape(u)

    def dtype(self, u: UOp) -> DType:
        """The type in which C computes a value. An index uses int32 if that is requested and the
        bounds of the index and its operands fit."""
        if u.dtype is not dtypes.index or self.kernel.arg.index_bits == 64:
            return u.dtype
        if u.op in (Ops.RANGE, Ops.CONST, Ops.VARIABLE, Ops.NUMBER):
            return index_width.index_type(u.src[0] if u.op is Ops.RANGE else u)
        return dtypes.int32 if index_width.is_narrow(u) else u.dtype

    def operand(self, u: UOp, wanted: DType, text: str) -> str:
        """The text of an index in one of the two types of indices."""
        if u.dtype is not dtypes.index or self.dtype(u) is wanted:
            return text
        return f"({c_type(wanted)}){inside(text)}"

    def like(self, u: UOp, model: UOp) -> str:
        """An operand in the type of another value."""
        return self.text(u) if model.dtype.lanes == 1 else self.lanes.like(u, model)

    def text(self, u: UOp) -> str:
        """The text of an operand, for a place where no parentheses are needed."""
        if u.op is Ops.CONST:
            return self.prelude.constant(u.dtype, u.arg)
        found = self.waiting.pop(u, None)
        if found is None:
            return self.names[u]
        self.reads = self.reads or found.reads
        return found.text

    def named(self, u: UOp) -> str:
        """An operand as a name or a constant, for text that has it several times."""
        before = self.reads
        text = self.text(u)
        if u.op is Ops.CONST or u in self.names:
            return text
        self.reads = before
        return self._declare(u, text)

    def settle(self) -> None:
        """Give names to the loads that wait: what comes next may write what they read."""
        for u in [u for u, w in self.waiting.items() if w.reads]:
            self._declare(u, self.waiting.pop(u).text)

    # -------------------------------------------------------- statements
    def rule(self, u: UOp) -> Rule | None:
        if not self.uses.get(u) and (u.op.is_alu or u.op in _PURE):
            return _unused
        wide = lanes.is_wide(u)
        rule = (lanes.RULES.get(u.op) if wide else None) or _RULES.get(u.op)
        if rule is None and u.op.is_alu:
            return lanes.alu if wide else _arithmetic
        return rule

    def begin_loop(self, r: UOp, carries: Sequence[UOp]) -> None:
        end, depth = self.named(r.src[0]), len(self.loops)
        i = self.names[r] = self.counters[depth] if depth < len(self.counters) else self.fresh()
        for u in carries:
            self.variable(u)
        self.opened(f"for ({self.shape(r)} {i} = 0; {i} < {end}; ++{i})")

    def end_loop(self, loop: None, pairs: Sequence[tuple[UOp, UOp]]) -> None:
        self.assign(pairs)
        self.closed()

    def begin_branch(self, condition: UOp, joined: Sequence[UOp]) -> None:
        test = self.text(condition)
        for u in joined:
            self.variable(u)
        self.reads = False
        self.opened(f"if ({test})")

    def end_branch(self, branch: None, joined: Sequence[UOp]) -> None:
        self.assign([(u, u.src[2]) for u in joined])
        self.closed()

    def opened(self, head: str) -> None:
        """A line that begins a block."""
        self.line(f"{head} {{")
        self.depth += 1

    def closed(self) -> None:
        """The end of a block."""
        self.depth -= 1
        self.line("}")

    def assign(self, pairs: Sequence[tuple[UOp, UOp]]) -> None:
        """Give the variables that are read their next values, all at the same time."""
        pairs = [pair for pair in pairs if pair[0] in self.names]
        texts = [self.like(after, u) for u, after in pairs]
        targets = [self.names[u] for u, _ in pairs]
        self.reads = False
        for i, (u, _) in enumerate(pairs):
            if any([re.search(rf"\b{t}\b", texts[i]) for t in targets[:i]]):
                name = self.fresh()
                self.line(f"const {self.shape(u)} {name} = {texts[i]};")
                texts[i] = name
        for target, text in zip(targets, texts):
            if target != text:
                self.line(f"{target} = {text};")


def _kept(statements: Sequence[UOp]) -> set[UOp]:
    """The statements that a store, a loop or a branch depends on. A register of a loop keeps its
    update."""
    following: dict[UOp, UOp] = {}
    for u in statements:
        if u.op is Ops.END:
            following.update(zip(u.src[1::2], u.src[2::2]))
    found: set[UOp] = set()
    todo = [u for u in statements if u.op in (Ops.STORE, Ops.RANGE, Ops.IF, *_CLOSES)]
    while todo:
        u = todo.pop()
        if u in found:
            continue
        found.add(u)
        if u.op is Ops.END:
            todo.append(u.src[0])
        elif u.op is not Ops.BUFFER and u.op is not Ops.PARAM:  # their dimensions
            todo += u.src[:1] if u.op is Ops.FETCH else u.src
        if u in following:
            todo.append(following[u])
    return found


def _readers(statements: Sequence[UOp]) -> tuple[dict[UOp, int], set[UOp]]:
    """The number of reads of each value by kept statements, and the values to inline: read once, in
    the block that computes them."""
    kept = _kept(statements)
    uses: dict[UOp, int] = {}
    reader: dict[UOp, UOp] = {}
    block: dict[UOp, int] = {}
    number = 0
    for u in statements:
        block[u] = number
        number += u.op in _OPENS or u.op in _CLOSES
        if u not in kept or u.op in (Ops.PARAM, Ops.BUFFER):
            continue
        src = u.src
        if with_itself(u) is not None:
            src = ()
        elif u.op is Ops.FETCH:  # nothing is fetched
            src = src[:1]
        elif u.op is Ops.END:
            src = tuple([after for c, after in zip(u.src[1::2], u.src[2::2]) if c in kept])
        for s in src:
            uses[s] = uses.get(s, 0) + 1
            reader[s] = u
    once = [u for u, n in uses.items() if n == 1 and block.get(u) == block[reader[u]]]
    return uses, {u for u in once if reader[u].op not in (Ops.AFTER, Ops.FETCH, Ops.BRANCH)}


# ---------------------------------------------------------------- the ops
def _unused(e: CKernel, u: UOp) -> None:
    """A value that nobody reads."""


def _arithmetic(e: CKernel, u: UOp) -> None:
    if (known := with_itself(u)) is not None:
        e.value(u, "true" if known else "false")
        return
    read = e.named if u.op in TWICE else e.text
    texts = [read(s) for s in u.src]
    t = u.src[-1].dtype
    if t is dtypes.index and u.op not in COMPARISONS:  # C compares integers of any two widths
        whole = e.dtype(u)
        texts = [e.operand(s, whole, text) for s, text in zip(u.src, texts)]
        t = whole if u.op is Ops.SHL else t
    e.value(u, arithmetic(u.op, t, texts, e.prelude, u.src))


def _buffer(e: CKernel, u: UOp) -> None:
    name, t = e.fresh(), memory_type(u.dtype)
    e.names[u] = name
    if u not in e.buffers:
        declared = f"    {t} {name}[{max(1, scratch.nbytes(u) // u.dtype.itemsize)}];"
    else:
        own = f" + {e.scratch_bytes} * chunk" if e.is_threaded else ""
        place = f"scratch + {e.buffers[u]}{own}"
        declared = f"    {t} *const {name} = ({t} *)(void *)({place});"
    e.lines.insert(0, declared)


def _index(e: CKernel, u: UOp) -> None:
    """An address; where it stands for several accesses, its index has a name."""
    place = storage.storage_root(u.src[0])
    index = e.text(u.src[1]) if u in e.once else e.named(u.src[1])
    if e.reads:  # from a table: the load has a name
        e.reads, own = False, e.fresh()
        e.line(f"const {e.shape(u.src[1])} {own} = {index};")
        index = own
    text = f"{e.names[place]}[{index}]"
    if u in e.once:
        e.waiting[u] = Waiting(text, False)
    else:
        e.names[u] = text


def _load(e: CKernel, u: UOp) -> None:
    text = e.text(u.src[0])
    if u.dtype.kind == "bool":
        text += " != 0"
    if len(u.src) > 1:
        zero = e.prelude.constant(u.dtype, 0)
        got = f"({text})" if u.dtype.kind == "bool" else text
        text = f"{inside(e.text(u.src[1]))} ? {got} : {zero}"
        if u.dtype.kind != "bool" and u.dtype.bits < 32:
            text = f"({c_type(u.dtype)})({text})"
    e.value(u, text)


def _store(e: CKernel, u: UOp) -> None:
    if lanes.is_wide(u):
        text = lanes.stored(e, u)
    else:
        target, value = e.text(u.src[0]), u.src[1]
        given = e.text(value)
        if value.dtype.kind == "bool":
            given = f"(uint8_t)({inside(given)} ? 1 : 0)"
        text = f"{target} = {given};"
    gate = e.text(u.src[2]) if len(u.src) > 2 and u.src[2].dtype.lanes == 1 else ""
    e.reads = False
    e.settle()
    if gate:
        e.opened(f"if ({gate})")
    e.line(text)
    if gate:
        e.closed()


def _cast(e: CKernel, u: UOp) -> None:
    (a,), source, t = u.src, e.dtype(u.src[0]), e.dtype(u)
    if source.kind == "bool" and source.lanes > 1 and t.kind != "bool":
        e.value(u, lanes.numbers(e, a, t))
        return
    if t.kind == "bool" and t.lanes > 1:
        e.lanes.masks[u] = mask_of(computed(source))
    e.value(u, cast(source, t, e.lanes.whole(a, source), e.prelude))


def _bitcast(e: CKernel, u: UOp) -> None:
    t = u.src[0].dtype
    e.value(u, bitcast(t, u.dtype, e.lanes.whole(u.src[0], t), e.prelude))


def _after(e: CKernel, u: UOp) -> None:
    root = storage.storage_root(u)
    if root.op.is_storage:
        e.names[u] = e.names[root]
    elif e.uses.get(u):
        e.names[u] = e.named(u.src[0])
        if u.src[0] in e.lanes.masks:
            e.lanes.masks[u] = e.lanes.masks[u.src[0]]


_RULES: dict[Op, Rule] = {
    **CONTROL,
    Ops.BUFFER: _buffer,
    Ops.INDEX: _index,
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.AFTER: _after,
    Ops.FETCH: _after,
}
