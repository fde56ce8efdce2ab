"""Functions of four bits are lookups in a register: a vector with a lane for each of 16 values.

    ((w & 15) - 8) * scale : f32x16   →   lookup ((0, 1, … 15) - 8) * scale, w

Weights of four bits are widened, shifted by a zero point and scaled, by some operations for each
vector; their scale is that of many. A table has the results of the same operations, bit for bit,
and is made once for all lookups in the loops of the weights. An array of 16 numbers that is read at
codes is a table, too.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import bounds, dtypes, ranges, shapes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.lanes import has_few_values


def looked_up(kernel: UOp, lanes: int) -> UOp:
    """Use lookups in tables of `lanes` lanes, if they take fewer operations."""
    codes, arrays = _codes(kernel, lanes)
    if not codes:
        return kernel
    known = {code: _values(code, lanes) for code in codes.values()} | arrays
    # Of the results of each function, at all values of its code.
    tables = {u: rebuild.rebuild(u, known) for u in _results(kernel, codes)}
    chosen = _cheaper(tables, codes)
    done: dict[UOp, UOp] = {}
    for u in walk.order(kernel):
        if u in chosen:
            made = intern(Ops.LOOKUP, u.dtype, (tables[u], _index(codes[u])))
            done[u] = rebuild.rebuild_more(made, done)
    return rebuild.rebuild_more(kernel, done) if done else kernel


def _codes(kernel: UOp, lanes: int) -> tuple[dict[UOp, UOp], dict[UOp, UOp]]:
    """Each vector that depends on one vector of few values and on numbers alone, with the former:
    its code. And each vector of elements of an array at codes, with the array's first elements."""
    codes: dict[UOp, UOp] = {}
    arrays: dict[UOp, UOp] = {}
    for u in walk.order(kernel):
        if u.dtype.lanes != lanes:
            continue
        index = _index_of_lanes(u)
        if index is not None and index in codes and _is_inside(u, index, codes[index]):
            codes[u], arrays[u] = codes[index], _first_elements(u)
        if not (u.op.is_alu or u.op in (Ops.CAST, Ops.BITCAST)):
            continue
        found = [codes.get(s) for s in u.src if not _is_uniform(s)]
        code = found[0] if len(set(found)) == 1 else None
        if code is not None:
            codes[u] = code
        elif has_few_values(u, lanes):
            codes[u] = u
    return codes, arrays


def _index_of_lanes(u: UOp) -> UOp | None:
    """The index of a vector of elements of one argument, each loaded at a lane of it."""
    first = u.src[0] if u.op is Ops.STACK else u
    if first.op is not Ops.LOAD or first.src[0].src[-1].op is not Ops.LANE:
        return None
    address = first.src[0]
    base, index = address.src[0], address.src[-1].src[0]
    if base.op not in (Ops.PARAM, Ops.DATA):  # no storage of the kernel, which may be registers
        return None
    for i, s in enumerate(u.src):
        lane = intern(Ops.LANE, index.dtype.scalar, (index,), i)
        if s.op is not Ops.LOAD or s.src != (intern(Ops.INDEX, address.dtype, (base, lane)),):
            return None
    return index


def _is_inside(u: UOp, index: UOp, code: UOp) -> bool:
    """True if an index is a code, and the array has an element for each lane of a table."""
    while index is not code:
        if index.op is not Ops.CAST or not index.dtype.is_integral:
            return False
        index = index.src[0]
    low, high = bounds.bounds(code)
    size = shapes.size(shapes.shape(u.src[0].src[0].src[0]))
    return isinstance(size, int) and low >= 0 and high < u.dtype.lanes <= size


def _first_elements(u: UOp) -> UOp:
    address = intern(Ops.INDEX, u.dtype, (u.src[0].src[0].src[0], affine.const(0)))
    return intern(Ops.LOAD, u.dtype, (address,))


def _is_uniform(u: UOp) -> bool:
    """True for one number in all lanes."""
    if u.dtype.lanes == 1:
        return True
    if u.op is Ops.CONST:
        return type(u.arg) is not tuple or len(set(map(repr, u.arg))) == 1
    return u.op is Ops.STACK and u.src[0].dtype.lanes == 1 and len(set(u.src)) == 1


def _results(kernel: UOp, codes: dict[UOp, UOp]) -> list[UOp]:
    """The functions of a code that something else reads."""
    found: dict[UOp, None] = {}
    for u in walk.order(kernel):
        for s in u.src:
            known = s in codes and codes[s] is not s and s.dtype.scalar is dtypes.float32
            if known and codes.get(u) is not codes[s]:
                found[s] = None
    return list(found)


def _values(code: UOp, count: int) -> UOp:
    """The value of a code in each lane of its table: all that it can have, by their lowest bits."""
    low, _ = bounds.bounds(code)
    values = tuple([low + (i - low) % count for i in range(count)])
    return intern(Ops.CONST, code.dtype, (), values)


def _cheaper(tables: dict[UOp, UOp], codes: dict[UOp, UOp]) -> set[UOp]:
    """The results that take fewer operations as lookups. Making a table counts only if it happens
    in the loops in which the table is used. Without lookups, bytes of words are widened first."""
    readers: dict[UOp, list[UOp]] = {}
    for u, table in tables.items():
        readers.setdefault(table, []).append(u)
    chosen: set[UOp] = set()
    for table, of_table in readers.items():
        before = {v for u in of_table for v in _between(u, codes)}
        loads = sum([len(v.src) for v in before if v.op is Ops.STACK])
        again = ranges.ranges(table) == ranges.ranges(of_table[0])
        widened = len({codes[u] for u in of_table if _is_of_words(_source(codes[u])[0])})
        if len(of_table) + again * _work(table) < len(before) + loads + widened:
            chosen.update(of_table)
    return chosen


def _work(table: UOp) -> int:
    """The operations on vectors that make a table, besides those on constants."""
    constant: set[UOp] = set()
    nodes = walk.toposort(table)
    for v in nodes:
        if v.op is Ops.CONST or (v.src and constant.issuperset(v.src)):
            constant.add(v)
    return len([v for v in nodes if v not in constant and not _is_uniform(v)])


def _between(u: UOp, codes: dict[UOp, UOp]) -> list[UOp]:
    """The operations that make a result of its code; a CAST that keeps the bits is none."""
    code = codes[u]
    nodes = walk.toposort(u, lambda v: v is not code and codes.get(v) is code)
    inside = [v for v in nodes if v is not code and codes.get(v) is code]
    return [v for v in inside if not _keeps_bits(v)]


def _keeps_bits(u: UOp) -> bool:
    t = u.src[0].dtype
    return u.op in (Ops.CAST, Ops.BITCAST) and not u.dtype.is_float and t.bits == u.dtype.bits


# ---------------------------------------------------------------- indices
def _index(code: UOp) -> UOp:
    """Words with a code in their lowest four bits, regardless of how the code is widened."""
    code, first = _source(code)
    if _is_of_words(code):
        return _index_of_words(code, first)
    return _shifted(Ops.SHR, _in_words(code), first)


def _index_of_words(part: UOp, first: int) -> UOp:
    """The same of a part of words that lie in memory: from its bit `first` on. If it has no four
    bits from there on, the part behind it is shifted out."""
    bits, t = part.dtype.bits, dtypes.uint32
    behind = 0
    if first + 4 > bits:
        behind = 32 - bits * (part.arg[0] + 1)
        t = dtypes.int32 if part.dtype.is_signed else t
    words = intern(Ops.BITCAST, t.vec(part.dtype.lanes), (part.src[0],))
    return _shifted(Ops.SHR, _shifted(Ops.SHL, words, behind), behind + bits * part.arg[0] + first)


def _shifted(op: Op, u: UOp, count: int) -> UOp:
    return intern(op, u.dtype, (u, _like(u.dtype, count))) if count else u


def _source(code: UOp) -> tuple[UOp, int]:
    """The value that has a code's four bits, and the first of them in it."""
    code = _low_bits(code)
    if code.op is not Ops.SHR or code.src[1].op is not Ops.CONST:
        return code, 0
    first = _integer_of(code.src[1])
    return _low_bits(code.src[0], first), first


def _is_of_words(u: UOp) -> bool:
    """True for the same part of each word of a vector: of bytes in memory 1, 5, 9, …, say."""
    if u.op is not Ops.SHUFFLE or u.src[0] is not u.src[1]:
        return False
    whole = u.src[0].dtype
    parts = whole.lanes // u.dtype.lanes
    if parts < 2 or whole.bits * parts != 32 or u.arg[0] >= parts:
        return False
    return bool(u.arg == tuple(range(u.arg[0], whole.lanes, parts)))


def _low_bits(u: UOp, first: int = 0) -> UOp:
    """A value with the same four bits from `first` on, without masks and conversions."""
    while True:
        if u.op is Ops.AND and u.src[1].op is Ops.CONST and _is_uniform(u.src[1]):
            if _integer_of(u.src[1]) >> first & 15 != 15:
                return u
        elif u.op is Ops.SHR and not first and u.src[0].op is Ops.SHL:
            back, count = u.src[1], u.src[0].src[1]
            same = back.op is count.op is Ops.CONST and _integer_of(back) == _integer_of(count)
            if not same or u.dtype.bits - _integer_of(back) < 4:
                return u
            u = u.src[0]
        elif u.op not in (Ops.CAST, Ops.BITCAST) or not _of_integers(u, first):
            return u
        u = u.src[0]


def _of_integers(u: UOp, first: int) -> bool:
    """True if a conversion keeps the four bits from `first` on."""
    a, b = u.src[0].dtype, u.dtype
    kinds = ("int", "uint")
    fits = first + 4 <= min(a.bits, b.bits)
    return a.kind in kinds and b.kind in kinds and a.lanes == b.lanes and fits


def _integer_of(u: UOp) -> int:
    return int(u.arg[0] if type(u.arg) is tuple else u.arg)


def _in_words(u: UOp) -> UOp:
    t = dtypes.int32 if u.dtype.is_signed else dtypes.uint32
    wide = t.vec(u.dtype.lanes)
    return u if u.dtype is wide else intern(Ops.CAST, wide, (u,))


def _like(t: DType, count: int) -> UOp:
    return intern(Ops.CONST, t.scalar, (), count)
