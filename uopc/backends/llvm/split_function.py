"""Split a kernel with very many statements into several functions, cut where few values cross.

LLVM's time per statement grows with the length of a function (DECISIONS.md, 34). Values that a part
computes for later parts go through memory, on the stack of the function that calls the parts. Loops
and branches are not cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from uopc.backends.inline import outlined
from uopc.backends.llvm import nontemporal
from uopc.backends.llvm.emitter import Emitter, stack_alignment
from uopc.backends.llvm.statements import CpuEmitter
from uopc.backends.llvm.types import llvm_type
from uopc.ir.core import storage
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

# A kernel of up to MOST_STATEMENTS is one function; in longer ones each part has PART statements,
# up to a quarter more or less. Sizes of 1,000 to 4,000 make less than 10 % of difference.
MOST_STATEMENTS, PART = 5_000, 2_048
MOST_BYTES = 1 << 16  # of values that cross: the stack of a thread may be small
_WITHOUT_CODE = frozenset((
    Ops.CONST, Ops.PARAM, Ops.VARIABLE, Ops.NUMBER, Ops.BUFFER, Ops.INDEX, Ops.AFTER, Ops.RANGE,
    Ops.FUNCTION,
))  # fmt: skip


def cheapest_cuts(statements: tuple[UOp, ...], size: int = PART) -> list[int]:
    """The indices at which to cut a list into parts of about `size`: outside of blocks, where
    the fewest values are computed before and used behind."""
    crossing, whole = _crossing(statements)
    cuts: list[int] = []
    begin = 0
    while len(statements) - begin > size + size // 4:
        near = range(begin + size - size // 4, min(len(statements), begin + size + size // 4))
        found = [i for i in near if whole[i]]
        if not found:  # inside of a block: behind it
            found = list(itertools.islice((i for i in range(near.stop, len(whole)) if whole[i]), 1))
        if not found:
            break
        begin = min(found, key=crossing.__getitem__)
        cuts.append(begin)
    return cuts


def _crossing(statements: tuple[UOp, ...]) -> tuple[list[int], list[bool]]:
    """For each statement: how many values cross the cut before it, and whether no block does."""
    last: dict[UOp, int] = {}
    for i, u in enumerate(statements):
        for s in u.src:
            last[s] = i
            if s.op is Ops.INDEX:  # an address is computed where it is used
                last.update(dict.fromkeys(s.src, i))
    ending = [0] * (len(statements) + 1)
    for u, i in last.items():
        ending[i] += u.op not in _WITHOUT_CODE
    closing = [0] * len(statements)  # a block ends with the last use of the statement that opens it
    crossing: list[int] = []
    whole: list[bool] = []
    live = depth = 0
    for i, u in enumerate(statements):
        crossing.append(live)
        whole.append(depth == 0)
        live += (u in last and u.op not in _WITHOUT_CODE) - ending[i]
        if u.op.opens and not (u.op is Ops.RANGE and u.arg.kind == "thread"):
            depth += 1
            closing[last[u]] += 1
        depth -= closing[i]
    return crossing, whole


class _PartNames(dict["UOp", str]):
    """Names of values; a value of another function is fetched on first use."""

    def __init__(self, fetch: Callable[[UOp], str]) -> None:
        super().__init__()
        self.fetch = fetch

    def __missing__(self, u: UOp) -> str:
        name = self[u] = self.fetch(u)
        return name


class _FunctionPart(CpuEmitter):
    """One of the functions. It loads the values of other functions at its beginning."""

    def __init__(self, whole: _Whole, number: int) -> None:
        super().__init__(f"{whole.name}.part{number}", whole.kernel)
        self.whole = whole
        self.names = _PartNames(self._fetch)

    def head(self) -> str:
        arguments = "(ptr %words, i64 %chunk, ptr %values)"
        return f"define internal void @{self.name}{arguments}{self.whole.aligned}"

    def _fetch(self, u: UOp) -> str:
        if u.op is Ops.RANGE:  # of kind thread: no other is open around a part
            return "%chunk"
        if u.op is Ops.AFTER:
            return self.of(u.src[0])
        place = self.whole.words.get(u)
        base, offset, align = ("%words", 8 * place, 8) if place is not None else (
            "%values", *self.whole.reserve(u)
        )  # fmt: skip
        address, name = self.fresh(), self.fresh()
        self.entry.append(f"  {address} = getelementptr i8, ptr {base}, i64 {offset}")
        self.entry.append(f"  {name} = load {_type(u)}, ptr {address}, align {align}")
        return name


def _save(part: Emitter, u: UOp, offset: int, align: int) -> None:
    """Store a value at the end of a function, for later ones."""
    address = part.value(f"getelementptr i8, ptr %values, i64 {offset}")
    part.effect(f"store {_type(u)} {part.of(u)}, ptr {address}, align {align}")


def _type(u: UOp) -> str:
    return "ptr" if u.op in (Ops.PARAM, Ops.BUFFER) else llvm_type(u.dtype)


class _Whole:
    """A kernel and the functions that it is split into."""

    def __init__(self, name: str, kernel: UOp) -> None:
        self.name, self.kernel = name, kernel
        self.aligned = stack_alignment(kernel.src)
        self.words = storage.word_places(kernel)
        self.reserved: dict[UOp, tuple[int, int]] = {}  # of values that cross: offset, alignment
        self.nbytes = 0

    def reserve(self, u: UOp) -> tuple[int, int]:
        """The offset and the alignment of a value that crosses."""
        if u not in self.reserved:
            size = 8
            while u.op is not Ops.BUFFER and size < u.dtype.lanes * u.dtype.scalar.itemsize:
                size *= 2
            self.nbytes += -self.nbytes % size
            self.reserved[u] = self.nbytes, min(size, 64)
            self.nbytes += size
        return self.reserved[u]

    def run(self, cuts: list[int]) -> tuple[str, list[str]] | None:
        """The functions and the declarations they need; None where too much would cross."""
        statements = self.kernel.src
        main = CpuEmitter(self.name, self.kernel)
        main.load_words()
        main.emit([u for u in statements if u.op is Ops.BUFFER])
        maker: dict[UOp, Emitter] = dict.fromkeys(main.names, main)
        parts: list[Emitter] = []
        for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(statements)])):
            part = _FunctionPart(self, number)
            part.emit([u for u in statements[begin:end] if u.op is not Ops.BUFFER])
            maker.update(dict.fromkeys(statements[begin:end], part))
            parts.append(part)
        buffers = {u for u in statements if u.op is Ops.BUFFER}
        for u, (offset, align) in self.reserved.items():
            _save(main if u in buffers else maker[u], u, offset, align)
        if self.nbytes > MOST_BYTES:
            return None
        main.entry.append(f"  %values = alloca [{max(1, self.nbytes)} x i8], align 64")
        for p in parts:
            main.effect(f"call void @{p.name}(ptr %words, i64 %chunk, ptr %values)")
        declared = dict.fromkeys([d for p in parts for d in p.declared])
        return "\n".join([p.definition() for p in (*parts, main)]), list(declared)


def render(name: str, kernel: UOp, is_x86: bool | None = None) -> tuple[str, list[str]]:
    """The functions of a linear kernel, the kernel's own last, and the declarations they need.
    is_x86: whether the code is for x86; by default, whether this machine is."""
    kernel = outlined(kernel)
    if len(kernel.src) > MOST_STATEMENTS and (cuts := cheapest_cuts(kernel.src)):
        found = _Whole(name, kernel).run(cuts)
        if found is not None:
            return found
    if stores := nontemporal.streamed(kernel):
        return nontemporal.render(name, kernel, stores, is_x86)
    emitter = CpuEmitter(name, kernel)
    return emitter.run(), list(emitter.declared)
