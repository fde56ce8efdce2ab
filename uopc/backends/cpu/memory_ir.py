"""New arrays of NumPy whose elements begin at a cache line, as LLVM IR.

NumPy's allocator gives multiples of 16 bytes, so that vectors of a kernel lie across two lines. A
result's memory is a block of that allocator, with room to begin later:

    block … | address and bytes of the block | elements, from a line on …

The array owns its memory like each array that NumPy makes: its memory handler (NEP 49) has the
functions below, which find the block of the elements and give it back.
"""

from __future__ import annotations

from uopc.backends import memory_plan
from uopc.backends.cpu.structs import BLOCK, OBJECT, RECORD, WORDS, WRITEABLE, global_table
from uopc.backends.llvm.builder import I1, I32, I64, VOID, Builder, Operand, PointerTo, function

_RECORD, _BLOCK = PointerTo(RECORD), PointerTo(BLOCK)
_OWNED = 0x4
_PLAIN = 0x1 | 0x100 | WRITEABLE  # in C order, aligned
# A block has this many bytes more than its elements.
ROOM = BLOCK.size + memory_plan.ALIGNMENT


@function(OBJECT, _RECORD, WORDS, WORDS, I64)
def new_result(
    b: Builder, record: Operand, begins: Operand, ends: Operand, n: Operand
) -> None:
    """A new array for a result. A large one begins where stores to it do not delay loads from the
    `n` others that are large (see `memory_plan.py`). Null, with an error, if there is no memory."""
    g, none, placed = global_table(b), b.block(), b.block(I64)
    dtype, ndim, dims = record.dtype, record.field("ndim", I32), record.dims
    large = record.nbytes >= memory_plan.LARGE
    room = record.nbytes + large.select(ROOM + memory_plan.PAGE, ROOM)
    block = g.allocate(g.allocator, room)
    g.incref(dtype)
    b.leave(block.eq(0), none)
    first = _first_line(block)
    b.check(large, placed, first)
    (data,) = b.begin(placed, apart(first, begins, ends, n))
    _note_block(data, block, room)
    at = data.to(WORDS, "inttoptr")
    made = g.new_array(g.ndarray, dtype, ndim, dims, None, at, _PLAIN, None)
    with b.when(made.eq(None)):
        g.free(g.allocator, block, room)
        b.ret(None)
    made.address("flags").store(made.flags | _OWNED)
    handler = g.memory_handler
    g.incref(handler)
    made.address("memory_handler").store(handler)
    g.trace(_TRACED, data, record.nbytes)
    b.ret(made)
    b.begin(none)  # NumPy, which finds no memory either, says so
    b.ret(g.new_array(g.ndarray, dtype, ndim, dims, None, None, 0, None))


_TRACED = 389047  # NumPy's number among those that report to `tracemalloc`


def _first_line(block: Operand) -> Operand:
    line = memory_plan.ALIGNMENT
    return (block + (BLOCK.size + line - 1)) & -line


def _note_block(data: Operand, block: Operand, nbytes: Operand) -> None:
    head = _block_of(data)
    head.address("begin").store(block)
    head.address("nbytes").store(nbytes)


def _block_of(data: Operand) -> Operand:
    return (data - BLOCK.size).to(_BLOCK, "inttoptr")


@function(I64, I64, WORDS, WORDS, I64)
def apart(b: Builder, first: Operand, begins: Operand, ends: Operand, n: Operand) -> None:
    """The first line from an address on, within a page, where stores do not delay loads from `n`
    arrays that are large."""
    found = b.block(I64)
    with b.count_to(memory_plan.PAGE // memory_plan.ALIGNMENT) as k:
        here = first + k * memory_plan.ALIGNMENT
        b.check(is_ahead(here, begins, ends, n), found, here)
    # Where there are so many arguments that each place is ahead of one, any place is as good.
    (address,) = b.begin(found, first)
    b.ret(address)


@function(I1, I64, WORDS, WORDS, I64)
def is_ahead(b: Builder, address: Operand, begins: Operand, ends: Operand, n: Operand) -> None:
    """True if an address lies a little ahead of one of `n` large arrays, in their pages."""
    yes = b.block()
    with b.count_to(n) as i:
        begin = begins[i]
        is_large = (ends[i] - begin) > memory_plan.LARGE - 1
        in_page = (address - begin) & memory_plan.PAGE - 1
        b.leave(is_large & ((in_page - 1) < memory_plan.AHEAD - 1), yes)
    b.ret(False)
    b.begin(yes)
    b.ret(True)


# ------------------------------------------------------------ the functions of the handler
@function(I64, I64, I64)
def allocate(b: Builder, context: Operand, nbytes: Operand) -> None:
    """Memory from a line on; 0 if there is none."""
    g, room = global_table(b), nbytes + ROOM
    block = g.allocate(g.allocator, room)
    with b.when(block.eq(0)):
        b.ret(0)
    data = _first_line(block)
    _note_block(data, block, room)
    b.ret(data)


@function(I64, I64, I64, I64)
def allocate_zeros(b: Builder, context: Operand, count: Operand, size: Operand) -> None:
    """Memory of zeros from a line on; 0 if there is none."""
    nbytes = count * size
    data = allocate(context, nbytes)
    with b.unless(data.eq(0)):
        to = data.to(WORDS, "inttoptr")
        b.effect(f"call void @llvm.memset.p0.i64(ptr {to.name}, i8 0, i64 {nbytes.name}, i1 0)")
    b.ret(data)


@function(I64, I64, I64, I64)
def reallocate(b: Builder, context: Operand, data: Operand, nbytes: Operand) -> None:
    """Other memory with the same content, as far as it has room; 0, with the old memory as it was,
    if there is none."""
    new = allocate(context, nbytes)
    with b.unless(new.eq(0) | data.eq(0)):
        head = _block_of(data)
        held = (head.begin + head.nbytes) - data
        kept = b.intrinsic("umin.i64", I64, held, nbytes)
        to, source = (v.to(WORDS, "inttoptr").name for v in (new, data))
        b.effect(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {kept.name}, i1 0)")
        free(context, data, held)
    b.ret(new)


@function(VOID, I64, I64, I64)
def free(b: Builder, context: Operand, data: Operand, nbytes: Operand) -> None:
    """Give the block of the elements back."""
    g, head = global_table(b), _block_of(data)
    with b.unless(data.eq(0)):
        g.free(g.allocator, head.begin, head.nbytes)
