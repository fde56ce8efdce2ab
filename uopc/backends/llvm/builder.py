"""Functions in LLVM IR that are written by hand: values know their types, and blocks have
parameters in place of phis.

    @function(I64, PointerTo(I64), I64)
    def first(b, counts, least):            define i64 @first(ptr %counts, i64 %least) {
        found = b.block(I64)                a block with a parameter, for later
        with b.count_to(9) as i:            a loop; `i.again` goes on with the next turn
            b.leave(counts[i] >= least, found, i)
        b.ret(-1)
        (place,) = b.begin(found)           found: %place = phi i64 [%i, …]
        b.ret(place)

`p[i]` is element i of what a pointer points to, `p.name` a field of a struct, `p + n` the address n
bytes behind; `f(x)` is a call. Comparisons by operators are unsigned. An int, a bool and None
(null) stand for constants of the type that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias


class Type:
    """A type of a value in a register."""

    def __init__(self, text: str) -> None:
        self.text = text


class PointerTo(Type):
    """A pointer to elements of a type, or to a struct."""

    def __init__(self, to: Type) -> None:
        super().__init__("ptr")
        self.to = to


class Struct(Type):
    """A record in memory: the offset and the type of each field."""

    def __init__(self, size: int, fields: Mapping[str, tuple[int, Type]]) -> None:
        super().__init__(f"[{size} x i8]")
        self.size, self.fields = size, fields

    def offset(self, field: str) -> int:
        return self.fields[field][0]


class Words(Struct):
    """A struct of words of 64 bits: the type of each, in order."""

    def __init__(self, **types: Type) -> None:
        places = {name: (8 * i, t) for i, (name, t) in enumerate(types.items())}
        super().__init__(8 * len(places), places)
        self.text = f"[{len(places)} x i64]"


class Signature(Type):
    """The address of a function: the types of its result and of what it takes."""

    def __init__(self, result: Type, *given: Type) -> None:
        super().__init__("ptr")
        self.result, self.given = result, given


VOID, I1, I8, I32, I64 = map(Type, ("void", "i1", "i8", "i32", "i64"))
FLOAT, DOUBLE = Type("float"), Type("double")


def _operator(op: str) -> Callable[[Operand, AnyOperand], Operand]:
    return lambda value, other: value.operation(op, other)


def _relation(name: str) -> Callable[[Operand, AnyOperand], Operand]:
    return lambda value, other: value.compare(name, other)


class Operand:
    """An operand: its type and its name. Operators append instructions."""

    __slots__ = ("builder", "name", "t")

    def __init__(self, builder: Builder, t: Type, name: str) -> None:
        self.builder, self.t, self.name = builder, t, name

    def __add__(self, other: AnyOperand) -> Operand:
        if isinstance(self.t, PointerTo):
            n = self.builder.name(other)
            return self.builder.value(self.t, f"getelementptr i8, ptr {self.name}, i64 {n}")
        return self.operation("add", other)

    __sub__, __mul__, __floordiv__ = _operator("sub"), _operator("mul"), _operator("udiv")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__, __rshift__ = _operator("shl"), _operator("lshr")
    eq, ne = _relation("eq"), _relation("ne")
    __lt__, __le__ = _relation("ult"), _relation("ule")
    __gt__, __ge__ = _relation("ugt"), _relation("uge")

    def operation(self, op: str, other: AnyOperand) -> Operand:
        """An instruction on two operands of this type, by its name in LLVM."""
        text = f"{op} {self.t.text} {self.name}, {self.builder.name(other)}"
        return self.builder.value(self.t, text)

    def compare(self, relation: str, other: AnyOperand) -> Operand:
        """A comparison by its name in LLVM."""
        kind = "fcmp" if self.t in (FLOAT, DOUBLE) else "icmp"
        text = f"{kind} {relation} {self.t.text} {self.name}, {self.builder.name(other)}"
        return self.builder.value(I1, text)

    def __bool__(self) -> bool:
        raise TypeError("a value of LLVM IR is known when the code runs")

    def select(self, a: AnyOperand, b: AnyOperand) -> Operand:
        """One of two values, by a bool."""
        t = next((v.t for v in (a, b) if isinstance(v, Operand)), I64)
        both = f"{self.builder.typed(t, a)}, {self.builder.typed(t, b)}"
        return self.builder.value(t, f"select i1 {self.name}, {both}")

    def to(self, t: Type, op: str = "") -> Operand:
        """A conversion by its name in LLVM; of a pointer without one, to something else."""
        if not op:
            return Operand(self.builder, t, self.name)
        return self.builder.value(t, f"{op} {self.t.text} {self.name} to {t.text}")

    # ------------------------------------------------------------ memory
    def at(self, i: AnyOperand) -> Operand:
        """The address of element i."""
        assert isinstance(self.t, PointerTo)
        place = f"ptr {self.name}, i64 {self.builder.name(i)}"
        return self.builder.value(self.t, f"getelementptr {self.t.to.text}, {place}")

    def address(self, field: str) -> Operand:
        """The address of a field of a struct."""
        struct = self.t.to if isinstance(self.t, PointerTo) else None
        if not isinstance(struct, Struct) or field not in struct.fields:
            raise AttributeError(f"{self.t.text} {self.name} has no field {field!r}")
        offset, t = struct.fields[field]
        at = f"getelementptr i8, ptr {self.name}, i64 {offset}"
        return self.builder.value(PointerTo(t), at)

    def load(self, t: Type | None = None, how: str = "", after: str = "") -> Operand:
        """The value that a pointer points to, also as another type."""
        if t is None:
            assert isinstance(self.t, PointerTo)
            t = self.t.to
        return self.builder.value(t, f"load {how}{t.text}, ptr {self.name}{after}")

    def store(self, value: AnyOperand, how: str = "", after: str = "") -> None:
        assert isinstance(self.t, PointerTo)
        given = self.builder.typed(self.t.to, value)
        self.builder.effect(f"store {how}{given}, ptr {self.name}{after}")

    def atomic(self, order: str) -> Operand:
        """An atomic load, with its memory order."""
        return self.load(None, "atomic ", f" {order}, align 8")

    def set(self, value: AnyOperand, order: str) -> None:
        """An atomic store."""
        self.store(value, "atomic ", f" {order}, align 8")

    def update(self, op: str, value: AnyOperand, order: str) -> Operand:
        """Change a word as one step; gives its value before."""
        text = f"atomicrmw {op} ptr {self.name}, i64 {self.builder.name(value)} {order}"
        return self.builder.value(I64, text)

    def exchange(self, old: AnyOperand, new: AnyOperand, orders: str) -> Operand:
        """Put a word in place of another one, as one step: whether that was there."""
        both = f"{self.builder.typed(I64, old)}, {self.builder.typed(I64, new)}"
        pair = self.builder.value(I1, f"cmpxchg ptr {self.name}, {both} {orders}")
        return self.builder.value(I1, f"extractvalue {{i64, i1}} {pair.name}, 1")

    def field(self, name: str, t: Type | None = None) -> Operand:
        """A field of a struct, also as another type."""
        return self.address(name).load(t)

    def __getattr__(self, name: str) -> Operand:
        return self.field(name)

    def __getitem__(self, i: AnyOperand) -> Operand:
        return (self if i == 0 else self.at(i)).load()

    def __setitem__(self, i: AnyOperand, value: AnyOperand) -> None:
        (self if i == 0 else self.at(i)).store(value)

    def __call__(self, *given: AnyOperand) -> Operand:
        assert isinstance(self.t, Signature)
        return self.builder.call(self.name, self.t, given)


class BasicBlock:
    """A block: its label, its parameters, and the arguments that each jump passes for them."""

    def __init__(self, label: str, parameters: tuple[Operand, ...]) -> None:
        self.label, self.parameters = label, parameters
        self.given: list[list[str]] = [[] for _ in parameters]
        self.usual: tuple[AnyOperand, ...] = ()  # what a jump gives that says nothing
        self.lines: list[str] = []

    def text(self) -> Iterator[str]:
        """The lines of the block."""
        yield f"{self.label}:"
        for p, given in zip(self.parameters, self.given):
            yield f"  {p.name} = phi {p.t.text} {', '.join(given)}"
        yield from self.lines


class Index(Operand):
    """The number of a turn of a loop, the block that goes on with the next, and that behind all."""

    __slots__ = ("again", "done")
    again: BasicBlock
    done: BasicBlock


class Function:
    """A function of a module: `body` builds it from its parameters, which have these types."""

    def __init__(self, result: Type, types: Sequence[Type], body: Callable[..., None]) -> None:
        self.name, self.body = f"@{body.__name__}", body
        self.parameters = body.__code__.co_varnames[1 : 1 + len(types)]
        self.t = Signature(result, *types)

    def __call__(self, *given: AnyOperand) -> Operand:
        builder = next(v.builder for v in given if isinstance(v, Operand))
        builder.called[self] = None
        return builder.call(self.name, self.t, given)

    def declaration(self) -> str:
        types = ", ".join([t.text for t in self.t.given])
        return f"declare {self.t.result.text} {self.name}({types})"

    def text(self, called: dict[Function, None], linkage: str = "") -> str:
        """The definition. Adds the functions that it calls."""
        b = Builder(self.t.result, called)
        given = [Operand(b, t, f"%{name}") for name, t in zip(self.parameters, self.t.given)]
        self.body(b, *given)
        taken = ", ".join([f"{v.t.text} {v.name}" for v in given])
        return b.definition(f"define {linkage}{self.t.result.text} {self.name}({taken})")


AnyOperand: TypeAlias = Operand | Function | float | None


def function(result: Type, *types: Type) -> Callable[[Callable[..., None]], Function]:
    """Decorates what builds a function, and gives the function its names."""
    return lambda body: Function(result, types, body)


def module(defined: Sequence[Function], exported: Iterable[str], heads: Iterable[str] = ()) -> str:
    """The text of a module. Functions that `exported` does not name are internal."""
    called: dict[Function, None] = {}
    shown = {f"@{name}" for name in exported}
    texts = [f.text(called, "" if f.name in shown else "internal ") for f in defined]
    declared = [f.declaration() for f in called if f not in defined]
    return "\n\n".join(["\n".join([*heads, *declared]), *texts]) + "\n"


class Builder:
    """Builds one function, instruction by instruction, in the block that is open."""

    def __init__(self, result: Type = VOID, called: dict[Function, None] | None = None) -> None:
        self.result = result
        self.called = {} if called is None else called
        self.count = 0
        self.blocks = [BasicBlock(".0", ())]
        self.open: BasicBlock | None = self.blocks[0]

    def definition(self, head: str) -> str:
        """The text of the function. A block that is open at its end returns."""
        if self.open is not None:
            self.ret()
        return "\n".join([f"{head} {{", *[line for b in self.blocks for line in b.text()], "}"])

    # ------------------------------------------------------------ instructions
    def effect(self, text: str) -> None:
        """Append an instruction without a value."""
        assert self.open is not None, f"no block is open for {text}"
        self.open.lines.append(f"  {text}")

    def value(self, t: Type, text: str) -> Operand:
        """Append an instruction; its value has the type `t`."""
        self.count += 1
        assert self.open is not None, f"no block is open for {text}"
        name = f"%.{self.count}"
        self.open.lines.append(f"  {name} = {text}")
        return Operand(self, t, name)

    def name(self, operand: AnyOperand) -> str:
        """An operand without its type."""
        if isinstance(operand, (Operand, Function)):
            return operand.name
        return "null" if operand is None else str(operand).lower()  # of a bool: true

    def typed(self, t: Type, operand: AnyOperand) -> str:
        """An operand with its type, which is `t` if it is a constant."""
        if isinstance(operand, (Operand, Function)):
            own = operand.t.text
            assert own == t.text, f"{operand.name} is a {own}, not a {t.text}"
            return f"{own} {operand.name}"
        return f"{t.text} {self.name(operand)}"

    def call(self, name: str, t: Signature, given: Sequence[AnyOperand]) -> Operand:
        """Call a function by its name, or by its address."""
        operands = ", ".join([self.typed(own, v) for own, v in zip(t.given, given, strict=True)])
        text = f"call {t.result.text} {name}({operands})"
        if t.result is not VOID:
            return self.value(t.result, text)
        self.effect(text)
        return Operand(self, VOID, "")

    def intrinsic(self, name: str, t: Type, *given: AnyOperand) -> Operand:
        """Call an intrinsic of LLVM on operands of one type, which is also that of its result."""
        return self.call(f"@llvm.{name}", Signature(t, *[t] * len(given)), given)

    def alloca(self, t: Type, count: AnyOperand = 1, align: int = 8) -> Operand:
        """The address of `count` elements on the stack."""
        text = f"alloca {t.text}, {self.typed(I64, count)}, align {align}"
        return self.value(PointerTo(t), text)

    # ------------------------------------------------------------ blocks
    def block(self, *types: Type) -> BasicBlock:
        """A block with parameters of these types, to be begun later."""
        self.count += 1
        label = f".{self.count}"
        own = [Operand(self, t, f"%{label}.{i}") for i, t in enumerate(types)]
        return BasicBlock(label, tuple(own))

    def begin(self, block: BasicBlock, *given: AnyOperand) -> tuple[Operand, ...]:
        """Go on in a block, behind the open one if there is one; gives its parameters."""
        if self.open is not None:
            self.go(block, *given)
        self.blocks.append(block)
        self.open = block
        return block.parameters

    def _to(self, block: BasicBlock, given: Sequence[AnyOperand]) -> str:
        assert self.open is not None
        values = given or block.usual
        for texts, v in zip(block.given, values, strict=True):
            texts.append(f"[{self.name(v)}, %{self.open.label}]")
        return f"label %{block.label}"

    def go(self, block: BasicBlock, *given: AnyOperand) -> None:
        """Jump."""
        self.effect(f"br {self._to(block, given)}")
        self.open = None

    def fork(
        self, condition: Operand, then: BasicBlock, other: BasicBlock, *given: AnyOperand
    ) -> None:
        """Jump to one of two blocks. The block with parameters gets `given`."""
        labels = ", ".join([self._to(t, given if t.parameters else ()) for t in (then, other)])
        self.effect(f"br i1 {condition.name}, {labels}")
        self.open = None

    def leave(self, condition: Operand, target: BasicBlock, *given: AnyOperand) -> None:
        """Jump where a condition holds; go on where it does not."""
        rest = self.block()
        self.fork(condition, target, rest, *given)
        self.begin(rest)

    def check(self, condition: Operand, other: BasicBlock, *given: AnyOperand) -> None:
        """Go on where a condition holds; jump where it does not."""
        rest = self.block()
        self.fork(condition, rest, other, *given)
        self.begin(rest)

    def switch(
        self, value: Operand, targets: Mapping[int, Sequence[Any]], other: BasicBlock
    ) -> None:
        """Jump to the block of a number, with its arguments, or to `other`."""
        label = self._to(other, ())
        cases = [f"i64 {n}, {self._to(block, given)}" for n, (block, *given) in targets.items()]
        self.effect(f"switch i64 {value.name}, {label} [ {' '.join(cases)} ]")
        self.open = None

    def ret(self, value: AnyOperand = None) -> None:
        """Return."""
        self.effect("ret void" if self.result is VOID else f"ret {self.typed(self.result, value)}")
        self.open = None

    @contextmanager
    def when(self, condition: Operand, holds: bool = True) -> Iterator[None]:
        """The instructions in between run where a condition holds."""
        inside, behind = self.block(), self.block()
        self.fork(condition, *((inside, behind) if holds else (behind, inside)))
        self.begin(inside)
        yield
        self.begin(behind)

    def unless(self, condition: Operand) -> AbstractContextManager[None]:
        """The instructions in between run where a condition does not hold."""
        return self.when(condition, holds=False)

    @contextmanager
    def count_to(self, end: AnyOperand, first: AnyOperand = 0) -> Iterator[Index]:
        """The instructions in between run for each number from `first` to before `end`."""
        head = self.block(I64)
        (number,) = self.begin(head, first)
        head.usual = (number + 1,)
        i = Index(self, I64, number.name)
        i.again, i.done, body = head, self.block(), self.block()
        self.fork(number < end, body, i.done)
        self.begin(body)
        yield i
        if self.open is not None:
            self.go(head)
        self.begin(i.done)
