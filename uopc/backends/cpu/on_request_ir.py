"""The parts of the native entry that only some calls run, as LLVM IR: arguments by name, `out`,
sizes that shapes give, numbers, arrays that are not dense, several results.

`native.py` compiles these functions with less effort than `entry` and `run`, which every call runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uopc.backends.cpu.size_code import evaluate
from uopc.backends.cpu.structs import (
    NUMBERS,
    OBJECT,
    OBJECTS,
    RECORD,
    STATE,
    STRUCTURES,
    UNKNOWN,
    WORDS,
    global_table,
)
from uopc.backends.llvm.builder import (
    DOUBLE,
    FLOAT,
    I1,
    I32,
    I64,
    VOID,
    BasicBlock,
    Builder,
    Operand,
    PointerTo,
    function,
)

_STATE, _RECORD = PointerTo(STATE), PointerTo(RECORD)


# ------------------------------------------------------------ what a call gives
@function(I64, _STATE, OBJECTS, I64, OBJECT, OBJECTS)
def by_name(
    b: Builder, state: Operand, args: Operand, nargs: Operand, names: Operand, arrays: Operand
) -> None:
    """Put the arguments of a call with names in the program's order, followed by the arrays for
    results. Return the number of those arrays, or -1 if Python has to look."""
    g, slow = global_table(b), b.block()
    n, variables, inputs = state.arguments, state.variables, state.inputs
    overflow = b.alloca(I32)
    names_count, argument_names = names.head, state.argument_names
    b.leave(nargs > n, slow)
    with b.count_to(nargs) as i:
        arrays[i] = args[i]
    keyword, matched = b.block(I64, OBJECT, I64), b.block()
    number, out, integers = b.begin(keyword, 0, None, 0)
    following = number + 1
    b.check(number < names_count, matched)
    name, value = names.address("tuple_items")[number], args[nargs + number]
    b.leave(name.eq(g.out), keyword, following, value, integers)
    found = b.block(I64)
    # Names in the text of a program are interned: one object for each.
    with b.count_to(n, nargs) as i:
        b.leave(argument_names[i].eq(name), found, i)
    # Others, the keys of a dict that was read from somewhere, say, are compared as text.
    with b.count_to(n, nargs) as i:
        b.leave(g.compare_text(argument_names[i], name).eq(0), found, i)
    variable, known_names = b.block(I64), state.variable_names
    with b.count_to(variables) as i:
        b.leave(g.compare_text(known_names[i], name).eq(0), variable, i)
    b.go(slow)
    (place,) = b.begin(found)
    arrays[place] = value
    b.go(keyword, following, out, integers)

    (place,) = b.begin(variable)
    integer, other = b.block(I64), b.block()
    value_type = value.type
    b.check(value_type.eq(g.int), other)
    from_python = g.as_integer(value, overflow)
    b.check(overflow[0].eq(0), slow)
    b.go(integer, from_python)
    b.begin(other)
    b.check(value_type.eq(g.numpy_int), slow)
    (given,) = b.begin(integer, value.head)
    inputs[place] = given
    b.go(keyword, following, out, integers + 1)

    b.begin(matched)  # names differ, so each filled a slot of its own, or is a variable
    no_out = out.eq(None)
    others = no_out.select(0, 1) + integers
    b.check((nargs + (names_count - others)).eq(n), slow)
    with b.when(no_out):
        b.ret(0)
    b.ret(_take_out(b, state, out, arrays.at(n), slow))
    b.begin(slow)
    b.ret(-1)


def _take_out(
    b: Builder, state: Operand, out: Operand, outputs: Operand, slow: BasicBlock
) -> Operand:
    """Take the arrays that `out` names for the results; gives their number."""
    g, fresh_count = global_table(b), state.arrays - state.arguments
    b.check(state.takes_out.ne(0), slow)
    kind, sequence, several = out.type, b.block(), b.block()
    b.check(state.structure.eq(0), several)
    outputs[0] = out
    b.ret(1)
    b.begin(several)
    is_list = kind.eq(g.list)
    b.leave(is_list, sequence)
    b.check(kind.eq(g.tuple), slow)
    b.begin(sequence)
    given = items(out, is_list)
    b.check(out.head.eq(fresh_count), slow)
    with b.count_to(fresh_count) as i:
        outputs[i] = given[i]
    return fresh_count


@function(I1, _STATE, OBJECTS)
def sized(b: Builder, state: Operand, given_arrays: Operand) -> None:
    """True if the sizes of a call with these arrays are known."""
    g, slow = global_table(b), b.block()
    variables, inputs, records, ndarray = state.variables, state.inputs, state.records, g.ndarray
    dim_inputs = state.dim_inputs
    with b.count_to(state.dim_inputs_count) as i:
        place = dim_inputs.at(i)
        argument, variable = place.argument, place.variable
        array = given_arrays[argument]
        b.check(array.type.eq(ndarray), slow)
        b.check(array.ndim.eq(records.at(argument).field("ndim", I32)), slow)
        size, by_call = array.dims[place.axis], inputs[variable]
        b.check(by_call.eq(UNKNOWN) | by_call.eq(size), slow)
        inputs[variable] = size
    evaluated, changed, known = state.evaluated, b.block(), b.block()
    with b.count_to(variables) as i:
        value = inputs[i]
        b.check(value.eq(evaluated[i]), changed)
        # Before the first evaluation, what no call gave equals what none has evaluated.
        b.leave(value.eq(UNKNOWN), slow)
    b.go(known)
    b.begin(changed)
    b.check(evaluate(state, inputs, variables), slow)
    b.begin(known)
    b.ret(True)
    b.begin(slow)
    b.ret(False)


@function(I64, OBJECT, _RECORD, WORDS)
def number(b: Builder, array: Operand, record: Operand, at: Operand) -> None:
    """The address of a number: in its object, if that is one of NumPy's; else `at`, converted.
    0 where Python has to look."""
    g, slow, overflow = global_table(b), b.block(), b.alloca(I32)
    # A NumPy number has its value where an array has its address; a Python number is converted.
    kind = array.type
    with b.when(kind.eq(record.scalar)):
        b.ret(array.address("head").to(I64, "ptrtoint"))
    wanted, address = record.number, at.to(I64, "ptrtoint")
    b.leave(wanted.eq(0), slow)
    as_double, as_float, as_wide, as_narrow = (b.block(*t) for t in ([DOUBLE], [DOUBLE], [], []))
    python_whole = b.block()
    b.check(kind.eq(g.float), python_whole)
    value = array.field("head", DOUBLE)
    floats = {NUMBERS["wide_float"]: as_double, NUMBERS["narrow_float"]: as_float}
    b.switch(wanted, {n: (block, value) for n, block in floats.items()}, slow)
    b.begin(python_whole)
    b.check(kind.eq(g.int), slow)
    whole = g.as_integer(array, overflow)
    b.check(overflow[0].eq(0), slow)
    value = whole.to(DOUBLE, "sitofp")
    targets: dict[int, Sequence[Any]] = {n: (block, value) for n, block in floats.items()}
    targets |= {NUMBERS["wide_int"]: [as_wide], NUMBERS["narrow_int"]: [as_narrow]}
    b.switch(wanted, targets, slow)
    (value,) = b.begin(as_double)
    at.to(PointerTo(DOUBLE))[0] = value
    b.ret(address)
    (value,) = b.begin(as_float)
    at.to(PointerTo(FLOAT))[0] = value.to(FLOAT, "fptrunc")
    b.ret(address)
    b.begin(as_narrow)
    b.check(whole.to(I32, "trunc").to(I64, "sext").eq(whole), slow)
    b.begin(as_wide)
    at[0] = whole
    b.ret(address)
    b.begin(slow)
    b.ret(0)


# ------------------------------------------------------------ memory
@function(I64, OBJECT, _RECORD, OBJECTS, WORDS, WORDS, WORDS)
def duplicate(
    b: Builder, array: Operand, record: Operand, copies: Operand, copied: Operand,
    begin: Operand, end: Operand,
) -> None:  # fmt: skip
    """The address of the elements of a dense copy, which the call owns; 0 if there is no memory.
    The array has the bytes from `begin` to `end`: from its least element to the end of the
    greatest."""
    g, dims = global_table(b), array.dims
    copy = g.new_copy(array, 0)
    with b.when(copy.eq(None)):
        b.ret(0)
    count = copied[0]
    copies[count] = copy
    copied[0] = count + 1
    strides, first = array.strides, array.data
    axis = b.block(I64, I64, I64)
    number, least, most = b.begin(axis, 0, first, first + record.itemsize)
    with b.when(number < record.ndim):
        reach = strides[number] * (dims[number] - 1)
        down, up = (b.intrinsic(f"{which}.i64", I64, reach, 0) for which in ("smin", "smax"))
        b.go(axis, number + 1, least + down, most + up)
    is_empty = record.nbytes.eq(0)
    begin[0] = least
    end[0] = is_empty.select(least, most)
    b.ret(is_empty.select(g.nothing, copy.data))


# ------------------------------------------------------------ results
@function(OBJECT, _STATE, OBJECTS)
def handed(b: Builder, state: Operand, arrays: Operand) -> None:
    """A dict, list or tuple of the results; null if there is no memory, with the results freed."""
    g, failed, sequence = global_table(b), b.block(OBJECT), b.block()
    n, sources, structure, count = state.arguments, state.sources, state.structure, state.results
    b.check(structure.eq(STRUCTURES["dict"]), sequence)
    keys, made, unset = state.keys, g.new_dict(), b.block()
    b.leave(made.eq(None), failed, None)
    with b.count_to(count) as i:
        b.leave(g.set_dict(made, keys[i], arrays[sources[i]]).ne(0), unset)
    b.go(failed, made)  # a dict has references of its own to the arrays
    b.begin(unset)
    g.decref(made)
    b.go(failed, None)

    b.begin(sequence)
    is_list = structure.eq(STRUCTURES["list"])
    made = is_list.select(g.new_list, g.new_tuple)(count)
    b.leave(made.eq(None), failed, None)
    places = items(made, is_list)
    with b.count_to(count) as i:
        source = sources[i]
        value = arrays[source]
        places[i] = value
        b.check(source < n, i.again)
        g.incref(value)
    b.ret(made)
    (answer,) = b.begin(failed)
    drop(arrays, n, state.arrays)
    b.ret(answer)


@function(VOID, OBJECTS, I64, I64)
def drop(b: Builder, arrays: Operand, first: Operand, end: Operand) -> None:
    """Free arrays."""
    with b.count_to(end, first) as i:
        global_table(b).decref(arrays[i])


@function(VOID, OBJECT, WORDS)
def read_addresses(b: Builder, arrays: Operand, to: Operand) -> None:
    """The addresses of the data of a list of arrays."""
    count, given = arrays.head, arrays.list_items
    with b.count_to(count) as i:
        to[i] = given[i].data


@function(OBJECTS, OBJECT, I1)
def items(b: Builder, sequence: Operand, is_list: Operand) -> None:
    """The items of a list or a tuple."""
    b.ret(is_list.select(sequence.list_items, sequence.address("tuple_items")))
