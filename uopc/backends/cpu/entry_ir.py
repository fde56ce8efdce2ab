"""The `entry` function of the runtime, which CPython calls for a program, as LLVM IR.

`entry` acquires the program's memory, lets `attempt` do the call, and frees the copies that it
made. `attempt` checks the arguments, finds the sizes, makes the outputs, runs the launches and
returns the results; or it returns AGAIN, and `entry` passes the call, unchanged, to the Python
function `slow`, the first of the objects that the program owns. `on_request_ir.py` has what only
some calls need.

A program with variables has `inputs`: the value of each, the least integer where none is known.
`evaluate` computes the sizes of a call from them (see `size_code.py`), unless they are those of the
call before. It writes them into the launch table and the records of the arrays; so a call owns
these from `acquire` to `release`, and a call that meets another goes to `slow`.
"""

from __future__ import annotations

from typing import NamedTuple

from uopc.backends.cpu import on_request_ir as on_request
from uopc.backends.cpu.launch_ir import acquire, run
from uopc.backends.cpu.memory_ir import new_result
from uopc.backends.cpu.structs import OBJECT, OBJECTS, STATE, WORDS, WRITEABLE, global_table
from uopc.backends.llvm.builder import (
    I32,
    I64,
    BasicBlock,
    Builder,
    Index,
    Operand,
    PointerTo,
    Words,
    function,
)  # fmt: skip

AGAIN = "inttoptr (i64 1 to ptr)"
_STATE = PointerTo(STATE)
_NATIVE_FIELDS = Words(function=I64, owned=OBJECT, state=_STATE)


class _Call(NamedTuple):
    """The words of a call by their kind, each a row with one place for each array."""

    bases: Operand
    arrays: Operand
    copies: Operand
    copied: Operand  # the number of copies
    numbers: Operand
    begins: Operand
    ends: Operand
    ndarray: Operand
    nothing: Operand  # the address of an array without elements


@function(OBJECT, OBJECT, OBJECTS, I64, OBJECT)
def entry(
    b: Builder, self: Operand, args: Operand, nargs_and_flag: Operand, names: Operand
) -> None:
    """Call a program."""
    g, again = global_table(b), Operand(b, OBJECT, AGAIN)
    nargs = nargs_and_flag & (1 << 63) - 1
    fields = (self + g.instance).to(PointerTo(_NATIVE_FIELDS))
    owned, state = fields.owned, fields.state
    with b.when(owned.eq(None)):  # the garbage collector has cleared the program
        g.bad_call()
        b.ret(None)
    stale = g.stale
    copied = b.alloca(I64)
    copied[0] = 0
    # Words of a call: the bases, then of each array its object, its copy, its extent, its number.
    room = b.alloca(I64, state.room, align=16)
    arrays_count, bases_count = state.arrays, state.bases
    arrays = room.at(bases_count)
    copies = arrays.at(arrays_count)
    slow = b.block()
    b.check(stale.eq(0), slow)
    flag = state.flag
    unshared = flag.ne(None)
    with b.when(unshared):
        acquire(b, flag, slow)
    answer = attempt(state, args, nargs, names, room, arrays, copies, copied)
    with b.when(unshared):
        flag.set(0, "release")
    with b.count_to(copied[0]) as c:
        g.decref(copies.to(OBJECTS)[c])
    b.leave(answer.eq(again), slow)
    b.ret(answer)
    b.begin(slow)  # the call may give the program other objects
    g.incref(owned)
    slow_answer = g.vectorcall(owned.address("tuple_items")[0], args, nargs, names)
    g.decref(owned)
    b.ret(slow_answer)


@function(OBJECT, _STATE, OBJECTS, I64, OBJECT, WORDS, OBJECTS, OBJECTS, WORDS)
def attempt(
    b: Builder, state: Operand, args: Operand, nargs: Operand, names: Operand,
    bases: Operand, arrays: Operand, copies: Operand, copied: Operand,
) -> None:  # fmt: skip
    """Do a call, where nothing is unusual; AGAIN where something is."""
    g, slow, failed = global_table(b), b.block(), b.block(I64)
    n, arrays_count, variables = state.arguments, state.arrays, state.variables
    inputs, defaults = state.inputs, state.defaults
    with b.count_to(variables) as i:
        inputs[i] = defaults[i]
    prepare = b.block(OBJECTS, I64)
    with b.when(names.eq(None)):
        b.fork(nargs.eq(n), prepare, slow, args, 0)
    outs = on_request.by_name(state, args, nargs, names, arrays)
    b.leave(outs.eq(-1), slow)
    given_arrays, extra = b.begin(prepare, arrays, outs)
    given, bases_count = n + extra, state.bases
    numbers = copies.at(arrays_count).to(WORDS)
    begins = numbers.at(arrays_count)
    ends = begins.at(arrays_count)
    records, ndarray, nothing = state.records, g.ndarray, g.nothing
    call = _Call(bases, arrays, copies, copied, numbers, begins, ends, ndarray, nothing)
    with b.unless(variables.eq(0)):
        b.check(on_request.sized(state, given_arrays), slow)
    b.check(state.arena_bytes <= state.arena.nbytes, slow)
    with b.count_to(given) as i:
        _take(b, call, given_arrays[i], records, i, slow)
    _check_apart(b, call, state, given, extra, slow)
    incref, fixed = g.incref, b.block()
    with b.unless(extra.eq(0)):
        with b.count_to(given, n) as i:
            incref(arrays[i])
        b.go(fixed)
    with b.count_to(arrays_count, n) as i:
        _make_result(b, call, state, records.at(i), i, n, failed)
    b.begin(fixed)
    template = state.base_template
    with b.count_to(bases_count, arrays_count) as i:
        bases[i] = template[i]
    bases[arrays_count] = state.arena.begin
    _run(b, state, bases)

    sources, structure, hand_many = state.sources, state.structure, b.block()
    b.check(structure.eq(0), hand_many)
    source = sources[0]
    one = arrays[source]
    with b.when(source < n):
        incref(one)
    b.ret(one)
    b.begin(hand_many)
    b.ret(on_request.handed(state, arrays))
    (made,) = b.begin(failed)
    on_request.drop(arrays, n, made)
    b.ret(None)
    b.begin(slow)
    b.ret(Operand(b, OBJECT, AGAIN))


def _take(
    b: Builder, call: _Call, array: Operand, records: Operand, i: Index, slow: BasicBlock
) -> None:
    """Check argument `i`; note the address and extent of it, or of its copy in the usual layout."""
    call.arrays[i] = array
    record = records.at(i)
    accepted = b.block(I64, I64, I64)
    with b.unless(array.type.eq(call.ndarray)):
        address = on_request.number(array, record, call.numbers.at(i))
        b.leave(address.eq(0), slow)
        b.go(accepted, address, 0, 0)
    flags, has_flags = _check_array(b, array, record, slow)
    with b.unless(has_flags):
        # An input is copied. An array that is written is not: `slow` says so.
        b.check((flags & WRITEABLE).eq(0), slow)
        extent = call.begins.at(i), call.ends.at(i)
        address = on_request.duplicate(array, record, call.copies, call.copied, *extent)
        call.bases[i] = address
        b.check(address.eq(0), i.again)
        b.ret(None)
    data, nbytes = array.data, record.nbytes
    end = data + nbytes
    b.begin(accepted, nbytes.eq(0).select(call.nothing, data), data, end)
    for places, value in zip((call.bases, call.begins, call.ends), accepted.parameters):
        places[i] = value


def _check_apart(
    b: Builder, call: _Call, state: Operand, given: Operand, extra: Operand, slow: BasicBlock
) -> None:
    """Leave for `slow` where an array that is written shares memory with another argument."""
    written_count, written = state.written_count + extra, state.written
    with b.count_to(written_count) as w:
        own = written[w]
        begin, end = call.begins[own], call.ends[own]
        with b.count_to(given) as j:
            b.leave(j.eq(own), j.again)
            other_begin, other_end = call.begins[j], call.ends[j]
            b.fork((other_begin < end) & (begin < other_end), slow, j.again)


def _make_result(
    b: Builder, call: _Call, state: Operand, record: Operand, i: Index, n: Operand,
    failed: BasicBlock,
) -> None:  # fmt: skip
    """Make the array of a result, the `i`-th array of a call with `n` arguments."""
    # A kernel that writes the result may read the arena. No array is given for a result, so the
    # extent of the first has room for the arena's.
    begin, room = state.arena.begin, state.arena.nbytes
    call.begins[n], call.ends[n] = begin, begin + room
    made = new_result(record, call.begins, call.ends, n + 1)
    b.leave(made.eq(None), failed, i)
    call.arrays[i] = made
    call.bases[i] = record.nbytes.eq(0).select(call.nothing, made.data)


def _check_array(
    b: Builder, array: Operand, record: Operand, slow: BasicBlock
) -> tuple[Operand, Operand]:
    """Check dtype and sizes of an array; gives the flags that it needs, and if it has them."""
    dtype, wanted = array.dtype, record.dtype
    with b.unless(dtype.eq(wanted)):
        # An unpickled array has a dtype object of its own that means the same.
        number, wanted_number = dtype.type_number, record.type_number
        order = dtype.byte_order
        b.check(number.eq(wanted_number) & order.eq(ord("=")), slow)
    own_flags, flags = array.flags, record.flags
    common, ndim, wanted_ndim = own_flags & flags, array.ndim, record.field("ndim", I32)
    rank, dims, wanted_dims = record.ndim, array.dims, record.dims
    b.check(ndim.eq(wanted_ndim), slow)
    with b.count_to(rank) as d:
        b.fork(dims[d].eq(wanted_dims[d]), d.again, slow)
    return flags, common.eq(flags)


def _run(b: Builder, state: Operand, bases: Operand) -> None:
    """Run the launches, without the interpreter's lock where the program says so."""
    g, table = global_table(b), state.table
    released, done = b.block(), b.block()
    b.check(state.nogil.eq(0), released)
    run(table, bases)
    b.go(done)
    b.begin(released)
    thread = g.save_thread()
    run(table, bases)
    g.restore_thread(thread)
    b.begin(done)
