"""Linear UOps to LLVM IR for CPUs: one function per op, and the table of them."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping

from uopc.backends.kernel_text import CONTROL, Rule
from uopc.backends.llvm import index_width, scratch
from uopc.backends.llvm.control import ControlEmitter
from uopc.backends.llvm.emitter import Emitter
from uopc.backends.llvm.instructions import ALU, conversion, lane, two_vectors
from uopc.backends.llvm.types import constant, llvm_type, memory_type, suffix
from uopc.ir.core import dtypes, walk
from uopc.ir.core.arena import memo_last
from uopc.ir.core.calls import function_statements
from uopc.ir.core.data.blocks import LINE
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.index import affine


class CpuEmitter(ControlEmitter):
    """The text of one kernel for a CPU. `is_narrow`: indices have 32 bits where they fit."""

    def __init__(self, name: str, kernel: UOp) -> None:
        super().__init__(name, kernel)
        self.is_narrow = kernel.arg.index_bits == 32
        self.unread = unread_sums(kernel)

    def rule(self, u: UOp) -> Rule | None:
        if u in self.unread:
            return _nothing
        narrow = self.is_narrow and index_width.is_narrow(u)
        return index_width.emit if narrow else self.rules.get(u.op)

    @cached_property
    def rules(self) -> Mapping[Op, Rule]:
        """The code of each op."""
        if not self.multiplies_tiles:
            return RULES
        from uopc.backends.llvm import tiles  # few kernels have any

        return tiles.with_tiles(RULES)

    def counted(self, u: UOp) -> tuple[str, str]:
        if self.is_narrow and index_width.fits(u):
            return "i32", index_width.low_half(self, u)
        return super().counted(u)

    def argument(self, u: UOp, i: int) -> str:
        if self.is_narrow and u.dtype is dtypes.index and index_width.fits(u):
            return index_width.widened(self, u, self.word("i32", i))
        return super().argument(u, i)


@memo_last
def unread_sums(kernel: UOp) -> set[UOp]:
    """The sums of an index and a constant that only addresses read. `Emitter.element` adds the
    constant to an address, so the sum has no code."""
    found: set[UOp] = set()
    read: set[UOp] = set()
    for u in reversed(kernel.src):
        if u.op is Ops.INDEX and len(u.src) == 2:
            read.update([u.src[0], _base(u.src[1])])
        elif _is_moved(u) and u not in read:
            found.add(u)
        else:
            read.update(u.src)
    return found


def _base(index: UOp) -> UOp:
    """An index without the constants that are added to it last."""
    while _is_moved(index):
        index = index.src[0]
    return index


def _is_moved(u: UOp) -> bool:
    return u.op is Ops.ADD and u.dtype is dtypes.index and u.src[1].op is Ops.CONST


def _nothing(e: Emitter, u: UOp) -> None:
    """A node without code."""


# ------------------------------------------------------------ memory
def _buffer(e: Emitter, u: UOp) -> str | None:
    """Storage of the kernel: on the stack of the function, or in scratch memory."""
    if u in e.scratch:
        return e.value(f"getelementptr i8, ptr {e.scratch_base}, i64 {e.scratch[u]}")
    size = scratch.nbytes(u) // u.dtype.itemsize
    name = e.fresh()
    e.entry.append(f"  {name} = alloca [{size} x {memory_type(u.dtype)}], align 64")
    return name


def read(e: Emitter, u: UOp, address: str, note: str = "") -> str:
    """The value in memory of a LOAD."""
    align = e.alignment(u.src[0], u.dtype)
    return e.value(f"load {memory_type(u.dtype)}, {address}, align {align}{note}")


def _apply(e: Emitter, u: UOp) -> str | None:
    """A call of a function, which the module has once; under a branch it is rare."""
    function, *operands = u.src
    if function not in e.functions:
        e.functions[function] = _define(e, function)
    given = ", ".join([f"{llvm_type(s.dtype)} {e.of(s)}" for s in operands])
    rare = " cold" if e.branches else ""
    return e.value(f"call {llvm_type(u.dtype)} @{e.functions[function]}({given}){rare}")


def _define(e: Emitter, function: UOp) -> str:
    """Define a FUNCTION, as a declaration that the kernel needs; returns its name."""
    inner = CpuEmitter("", e.kernel)
    body = function_statements(function)
    numbers = sorted([u for u in body if u.op is Ops.NUMBER], key=lambda u: u.arg.slot)
    inner.names = {u: f"%a{u.arg.slot}" for u in numbers}
    inner.emit(body)
    value = body[-1]
    result = llvm_type(value.dtype)
    given = ", ".join([f"{llvm_type(u.dtype)} {inner.names[u]}" for u in numbers])
    lines = ["entry:", *inner.entry, *inner.lines, f"  ret {result} {inner.of(value)}"]
    text = "\n".join([f"({given}) {{", *lines, "}"])
    name = f"apply_{function.arg.name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    e.declared.update(inner.declared)
    e.declared[f"define internal {result} @{name}{text}"] = None
    return name


def _load(e: Emitter, u: UOp) -> str | None:
    """A LOAD. With a gate that does not hold, a scalar is element 0: that needs no branch."""
    address = e.address(u.src[0])
    if len(u.src) == 1:
        return from_memory(e, u, read(e, u, address))
    t, gate, lanes = memory_type(u.dtype), e.of(u.src[1], u.dtype.lanes), u.dtype.lanes
    if lanes == 1:
        first = e.names[u.src[0].src[0]]
        got = read(e, u, f"ptr {e.value(f'select i1 {gate}, {address}, ptr {first}')}")
        return from_memory(e, u, e.value(f"select i1 {gate}, {t} {got}, {t} zeroinitializer"))
    mask = f"<{lanes} x i1>"
    if e.selects:
        gate = _hidden(e, gate, lanes)
    name = f"llvm.masked.load.{_memory_suffix(u.dtype)}.p0"
    e.declared[f"declare {t} @{name}(ptr, {mask}, {t})"] = None
    place = f"ptr align {u.dtype.itemsize} {address.removeprefix('ptr ')}"
    got = e.value(f"call {t} @{name}({place}, {mask} {gate}, {t} zeroinitializer)")
    return from_memory(e, u, got)


def _fetch(e: Emitter, u: UOp) -> str | None:
    """Prefetch lines that are read soon into the second-level cache; into the first-level cache if
    their place is read from memory, because such lines are read a few iterations later. An address
    outside of the array does no harm."""
    e.declared["declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"] = None
    load, ahead = u.src
    t = memory_type(u.dtype.scalar)
    written = ahead.op is Ops.INDEX
    if written:
        there = e.address(ahead).removeprefix("ptr ")
    else:
        there = e.element(e.address(load.src[0]).removeprefix("ptr "), t, ahead)
    near = 3 if written or any([v.op is Ops.LOAD for v in walk.toposort(ahead)]) else 2
    for line in range(0, u.arg, max(1, LINE // u.dtype.scalar.itemsize)):
        place = e.element(there, t, affine.const(line)) if line else there
        e.effect(f"call void @llvm.prefetch.p0(ptr {place}, i32 {int(written)}, i32 {near}, i32 1)")
    return e.of(load)


def _hidden(e: Emitter, gate: str, lanes: int) -> str:
    """A mask, of which LLVM does not know that other values have the same, nor which lanes it has.

    Two faults of LLVM 22 on AVX-512 need it. LLVM puts a masked load into an instruction that has
    the same mask. If that instruction overwrites an operand that is still needed, LLVM takes the
    load out again, without its mask, and the kernel reads outside of its storage. LLVM stores the
    one lane of a known mask as a scalar; if the vector was narrowed for the store, the scalar is
    the wide one, and the kernel writes outside of its storage. Where masks are vectors no
    instruction but the load or the store takes one.
    """
    if "vmaskmov" in e.kernel.arg.units:
        return gate
    t = f"<{lanes} x i1>"
    if lanes not in e.opaque:
        word, bit, first, mask = (e.fresh() for _ in range(4))
        e.entry += [
            f'  {word} = call i64 asm "", "=r,0"(i64 -1)',
            f"  {bit} = trunc i64 {word} to i1",
            f"  {first} = insertelement {t} poison, i1 {bit}, i64 0",
            f"  {mask} = shufflevector {t} {first}, {t} poison, <{lanes} x i32> zeroinitializer",
        ]
        e.opaque[lanes] = mask
    return e.once(f"and {t} {gate}, {e.opaque[lanes]}")


def _is_known(gate: UOp) -> bool:
    """LLVM can compute the mask: no lane depends on an argument or on a loop."""
    nodes = walk.toposort(gate)
    return all([v.op in (Ops.CONST, Ops.LANES) for v in nodes if not v.src or v.op is Ops.RANGE])


def _memory_suffix(t: DType) -> str:
    return suffix(t if t.kind != "bool" else dtypes.uint8.vec(t.lanes))


def from_memory(e: Emitter, u: UOp, got: str) -> str:
    """A loaded value in the type of registers: a bool is one bit."""
    if u.dtype.kind != "bool":
        return got
    zero = "0" if u.dtype.lanes == 1 else "zeroinitializer"
    return e.value(f"icmp ne {memory_type(u.dtype)} {got}, {zero}")


def _to_memory(e: Emitter, u: UOp) -> tuple[DType, str]:
    """The type and the value that a STORE writes."""
    address, value = u.src[:2]
    t = value.dtype.scalar.vec(max(address.dtype.lanes, value.dtype.lanes))
    given = e.of(value, t.lanes)
    if t.kind == "bool":
        given = e.value(f"zext {llvm_type(t)} {given} to {memory_type(t)}")
    return t, given


def store(e: Emitter, u: UOp) -> str | None:
    """A STORE; its gate is a branch."""
    t, given = _to_memory(e, u)
    done = e.branch(e.of(u.src[2]))[1] if len(u.src) > 2 else ""
    address, align = e.address(u.src[0]), e.alignment(u.src[0], t)
    e.effect(f"store {memory_type(t)} {given}, {address}, align {align}")
    if done:
        e.join(done)
    return None


def _store(e: Emitter, u: UOp) -> str | None:
    """A STORE; the gate of a vector is a mask."""
    if len(u.src) == 2 or max(u.src[0].dtype.lanes, u.src[1].dtype.lanes) == 1:
        return store(e, u)
    stored, given = _to_memory(e, u)
    t, mask = memory_type(stored), f"<{stored.lanes} x i1>"
    name = f"llvm.masked.store.{_memory_suffix(stored)}.p0"
    e.declared[f"declare void @{name}({t}, ptr, {mask})"] = None
    place = f"ptr align {stored.itemsize} {e.address(u.src[0]).removeprefix('ptr ')}"
    gate = e.of(u.src[2], stored.lanes)
    if _is_known(u.src[2]):
        gate = _hidden(e, gate, stored.lanes)
    e.effect(f"call void @{name}({t} {given}, {place}, {mask} {gate})")
    return None


# ------------------------------------------------------------ values
def _arithmetic(e: Emitter, u: UOp) -> str | None:
    lanes = u.dtype.lanes
    names = [e.of(s, lanes) for s in u.src]
    t = u.dtype if u.op is Ops.DOT2 else u.src[-1].dtype
    return ALU[u.op](e, t.scalar.vec(lanes), names)


def _where(e: Emitter, u: UOp) -> str | None:
    lanes = u.dtype.lanes
    c, a, b = u.src
    t = llvm_type(u.dtype)
    mask = llvm_type(dtypes.bool_.vec(c.dtype.lanes))
    return e.value(f"select {mask} {e.of(c)}, {t} {e.of(a, lanes)}, {t} {e.of(b, lanes)}")


def convert(e: Emitter, u: UOp) -> str | None:
    """A CAST between types that LLVM computes with."""
    return conversion(e, u.src[0].dtype, u.dtype, e.of(u.src[0]))


def _bitcast(e: Emitter, u: UOp) -> str | None:
    s, t = llvm_type(u.src[0].dtype), llvm_type(u.dtype)
    return e.of(u.src[0]) if s == t else e.value(f"bitcast {s} {e.of(u.src[0])} to {t}")


# ------------------------------------------------------------ lanes
def _stack(e: Emitter, u: UOp) -> str | None:
    if u.src[0].dtype.lanes > 1:
        return _joined(e, u)
    if all(s is u.src[0] for s in u.src):
        return e.of(u.src[0], u.dtype.lanes)
    vector = u.src[0].src[0] if u.src[0].op is Ops.LANE else u
    if vector.dtype is u.dtype and all(s.op is Ops.LANE and s.src[0] is vector for s in u.src):
        return two_vectors(e, u.dtype, e.names[vector], "poison", [s.arg for s in u.src])
    return e.vector(llvm_type(u.dtype.scalar), [e.of(s) for s in u.src])


def _joined(e: Emitter, u: UOp) -> str:
    """Concatenated vectors, joined pair by pair."""
    vectors, t = [e.of(s) for s in u.src], u.src[0].dtype
    while len(vectors) > 1:
        pairs = itertools.zip_longest(vectors[::2], vectors[1::2], fillvalue="poison")
        vectors = [two_vectors(e, t, a, b, range(2 * t.lanes)) for a, b in pairs]
        t = t.scalar.vec(2 * t.lanes)
    (got,) = vectors
    return got if t is u.dtype else two_vectors(e, t, got, "poison", range(u.dtype.lanes))


def _lookup(e: Emitter, u: UOp) -> str:
    """`vpermps`, which reads four bits of each lane of the index; lane by lane other than that."""
    (t, i), operands = [s.dtype for s in u.src], [(llvm_type(s.dtype), e.of(s)) for s in u.src]
    if t is dtypes.float32.vec(16) and i.bits == 32 and i.lanes == 16:
        return e.intrinsic(llvm_type(t), "llvm.x86.avx512.permvar.sf.512", operands)
    (of_table, table), (of_index, index) = operands
    index = e.value(f"and {of_index} {index}, {constant(i, t.lanes - 1)}")
    one = llvm_type(i.scalar)
    places = e.lanes(one, index, i.lanes) if i.lanes > 1 else [index]
    found = [e.value(f"extractelement {of_table} {table}, {one} {at}") for at in places]
    return e.vector(llvm_type(t.scalar), found) if i.lanes > 1 else found[0]


def _hreduce(e: Emitter, u: UOp) -> str | None:
    """Combine the two halves while the number of lanes is even, then the lanes one by one."""
    lanes, t, got = u.src[0].dtype.lanes, u.src[0].dtype.scalar, e.of(u.src[0])
    if t.kind == "bool":
        logic = "or" if u.arg in ("add", "max") else "and"
        wide = f"<{lanes} x i1>"
        return e.intrinsic("i1", f"llvm.vector.reduce.{logic}.v{lanes}i1", [(wide, got)])
    combine = ALU[Op.by_name(u.arg)]
    while lanes > 2 and lanes % 2 == 0:
        whole, half = t.vec(lanes), lanes // 2
        halves = [two_vectors(e, whole, got, "poison", range(i, i + half)) for i in (0, half)]
        got, lanes = combine(e, t.vec(half), halves), half
    rest = e.lanes(llvm_type(t), got, lanes)
    return functools.reduce(lambda a, b: combine(e, t, [a, b]), rest)


RULES: dict[Op, Rule] = {
    **CONTROL,
    Ops.BUFFER: _buffer,
    Ops.APPLY: _apply,
    Ops.LOAD: _load,
    Ops.FETCH: _fetch,
    Ops.STORE: _store,
    Ops.LANES: lambda e, u: constant(u.dtype, tuple(range(u.arg))),
    Ops.STACK: _stack,
    Ops.LANE: lambda e, u: lane(e, u.src[0].dtype, e.of(u.src[0]), u.arg),
    Ops.SHUFFLE: lambda e, u: two_vectors(e, u.src[0].dtype, e.of(u.src[0]), e.of(u.src[1]), u.arg),
    Ops.LOOKUP: _lookup,
    Ops.HREDUCE: _hreduce,
    Ops.AFTER: lambda e, u: e.of(u.src[0]),
    Ops.WHERE: _where,
    Ops.CAST: convert,
    Ops.BITCAST: _bitcast,
    **dict.fromkeys(ALU, _arithmetic),
    **dict.fromkeys((Ops.INDEX, Ops.FUNCTION), _nothing),
}
