"""PTX text to kernels: parameters, variables, and instructions with typed operands."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import lru_cache

SIZES = {"pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
         "b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8,
         "f16x2": 4, "bf16x2": 4, "b128": 16}  # fmt: skip


class PtxError(Exception):
    """The text is not PTX that this parser and machine know, or its execution went wrong."""


@dataclass(frozen=True)
class Reg:
    """A register; `negated` is a predicate's `!`, `second` the q of a destination `p|q`."""

    name: str
    negated: bool = False
    second: Reg | None = None


@dataclass(frozen=True)
class Immediate:
    """A literal: an integer, or the bits of a float whose width is known."""

    value: int
    float_bytes: int = 0


@dataclass(frozen=True)
class Symbol:
    """A variable, parameter, label or special register."""

    name: str


@dataclass(frozen=True)
class Vector:
    """{a, b, …}; None is the sink `_`."""

    items: tuple[Operand | None, ...]


@dataclass(frozen=True)
class Address:
    """[base + offset]"""

    base: Reg | Symbol | Immediate
    offset: int = 0


Operand = Reg | Immediate | Symbol | Vector | Address


@dataclass(frozen=True)
class Instruction:
    """`@guard root.modifiers operands;` at a place in its kernel."""

    root: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Reg | None
    text: str
    number: int


@dataclass(frozen=True)
class Variable:
    """A parameter, or a shared, local or global variable; `offset` in its space."""

    name: str
    space: str
    size: int
    align: int
    offset: int
    data: bytes | None = None


@dataclass
class Kernel:
    """An entry: what it takes, what it declares and what it does."""

    name: str
    params: list[Variable] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)  # prefix → bytes; predicates 1
    variables: dict[str, Variable] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)  # of brx.idx
    block: tuple[int, int, int] | None = None  # .reqntid
    target: str = ""

    @property
    def shared_bytes(self) -> int:
        ends = [v.offset + v.size for v in self.variables.values() if v.space == "shared"]
        return max(ends, default=0)

    @property
    def is_dynamic(self) -> bool:
        """True if it has shared memory whose size the launch says."""
        return any(v.space == "shared" and not v.size for v in self.variables.values())

    @property
    def local_bytes(self) -> int:
        ends = [v.offset + v.size for v in self.variables.values() if v.space == "local"]
        return max(ends, default=0)

    @property
    def param_bytes(self) -> int:
        return max([p.offset + p.size for p in self.params], default=0)


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_NAME = r"[A-Za-z_$%][\w$%]*"
_ENTRY = re.compile(rf"\.visible\s+\.entry\s+({_NAME})\s*\((.*?)\)([^{{]*)\{{", re.S)
_VARIABLE = re.compile(
    rf"\.(shared|local|global|const)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+({_NAME})"
    r"(?:\[(\d*)\])?(?:\s*=\s*(.*))?$",
    re.S,
)
_PARAM = re.compile(
    rf"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)((?:\s+\.\w+(?:\s+\d+)?)*)\s+({_NAME})(?:\[(\d+)\])?"
)
_REGISTER = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.S)


def parse(text: str) -> dict[str, Kernel]:
    """The kernels of a module by name. PtxError for what is not understood."""
    target = re.search(r"\.target\s+(\w+)", text)
    plain = _COMMENT.sub("", text)
    kernels: dict[str, Kernel] = {}
    first = plain.find(".visible")
    outside = plain[: first if first >= 0 else len(plain)]
    if ".func" in plain:
        raise PtxError("a .func: the module calls what it does not define or inline")
    shared_variables = _module_variables(outside)
    at = first
    while at >= 0:
        head = _ENTRY.match(plain, at)
        if head is None:
            raise PtxError(f"not an entry: {plain[at:at + 80]!r}")
        end = _closing(plain, head.end())
        kernel = Kernel(head[1], target=target[1] if target else "")
        kernel.variables = dict(shared_variables)
        _parse_params(kernel, head[2])
        _parse_directives(kernel, head[3])
        _parse_body(kernel, plain[head.end() : end])
        kernels[kernel.name] = kernel
        at = plain.find(".visible", end)
    return kernels


def _closing(text: str, at: int) -> int:
    depth = 1
    for m in re.finditer(r"[{}]", text[at:]):
        depth += 1 if m[0] == "{" else -1
        if depth == 0:
            return at + m.start()
    raise PtxError("a body that does not end")


def _module_variables(text: str) -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    for statement in text.split(";"):
        words = statement.strip()
        at = re.search(r"\.(shared|global|const)\b", words)
        if at:
            _declare(found, words[at.start() :], "extern" in words[: at.start()])
    return found


def _declare(found: dict[str, Variable], text: str, extern: bool = False) -> None:
    m = _VARIABLE.match(text.strip())
    if m is None or m[3] not in SIZES:
        raise PtxError(f"not a variable: {text!r}")
    space, align, size = m[1], int(m[2] or SIZES[m[3]]), SIZES[m[3]]
    count = int(m[5]) if m[5] else 0 if m[5] == "" else 1
    end = max([v.offset + v.size for v in found.values() if v.space == space], default=0)
    offset = -(-end // align) * align
    data = _initial(m[6], size, size * count) if m[6] else None
    if count == 0 and not extern and data is not None:
        raise PtxError(f"an array without a length: {text!r}")
    found[m[4]] = Variable(m[4], space, size * count, align, offset, data)


def _initial(text: str, size: int, total: int) -> bytes:
    values = [_immediate(t.strip()) for t in text.strip(" {}\n\t").split(",")]
    out = b""
    for v in values:
        if v is None:
            raise PtxError(f"an initial value that is no number: {text[:60]!r}")
        out += (v.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return out.ljust(total, b"\0")


def _parse_params(kernel: Kernel, text: str) -> None:
    offset = 0
    for part in filter(None, (p.strip() for p in text.split(","))):
        m = _PARAM.fullmatch(part)
        if m is None or m[2] not in SIZES:
            raise PtxError(f"{kernel.name}: not a parameter: {part!r}")
        size = SIZES[m[2]] * int(m[5] or 1)
        align = int(m[1] or SIZES[m[2]])
        offset = -(-offset // align) * align
        kernel.params.append(Variable(m[4], "param", size, align, offset))
        offset += size


def _parse_directives(kernel: Kernel, text: str) -> None:
    m = re.search(r"\.(?:reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", text)
    if m:
        kernel.block = (int(m[1]), int(m[2] or 1), int(m[3] or 1))


def _parse_body(kernel: Kernel, text: str) -> None:
    """Statements end in `;` or `:`; scopes in braces only make names, which LLVM keeps unique."""
    for statement in _statements(text):
        s = statement.strip()
        while m := re.match(rf"({_NAME}):\s*", s):
            label, s = m[1], s[m.end() :].strip()
            if s.startswith(".branchtargets"):
                kernel.tables[label] = [t.strip() for t in s[len(".branchtargets") :].split(",")]
                s = ""
            else:
                kernel.labels[label] = len(kernel.instructions)
        if not s or s.startswith((".pragma ", ".loc ", ".file ")):
            continue
        if s.startswith(".reg"):
            _declare_registers(kernel, s)
        elif s.startswith("."):
            _declare(kernel.variables, s[s.index(".shared") if ".shared" in s else 0 :])
        else:
            kernel.instructions.append(_instruction(s, len(kernel.instructions)))


def _statements(text: str) -> list[str]:
    out, start = [], 0
    for m in re.finditer(r"[;{}]", text):
        c, at = m[0], m.start()
        if c == ";":
            out.append(text[start:at])
            start = at + 1
        elif c == "{" and not text[start:at].strip():
            start = at + 1  # a scope
        elif c == "}" and not text[start:at].strip():
            start = at + 1
    out.append(text[start:])
    return out


def _declare_registers(kernel: Kernel, text: str) -> None:
    m = _REGISTER.match(text)
    if m is None or m[1] not in SIZES:
        raise PtxError(f"not registers: {text!r}")
    for name in m[2].split(","):
        prefix = name.strip().split("<")[0]
        kernel.registers[prefix] = SIZES[m[1]] if m[1] != "pred" else 1


_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")


def _instruction(text: str, number: int) -> Instruction:
    whole = " ".join(text.split())
    rest, guard = whole, None
    if rest.startswith("@"):
        word, rest = rest[1:].split(None, 1)
        guard = Reg(word.lstrip("!"), word.startswith("!"))
    opcode, _, operands = rest.partition(" ")
    root, *modifiers = opcode.replace("::", "__").split(".")
    parsed = tuple([_operand(m.strip()) for m in _OPERAND.findall(operands)])
    return Instruction(root, tuple(modifiers), parsed, guard, whole, number)


@lru_cache(4096)
def _operand(text: str) -> Operand:
    if text.startswith("{"):
        items = [t.strip() for t in text[1:-1].split(",")]
        return Vector(tuple([None if t == "_" else _operand(t) for t in items]))
    if text.startswith("["):
        return _address(text[1:-1].strip())
    literal = _immediate(text)
    if literal is not None:
        return literal
    if "|" in text:
        first, second = (t.strip() for t in text.split("|"))
        return Reg(first, second=Reg(second))
    if text.startswith("!"):
        return Reg(text[1:].strip(), True)
    if text.startswith("%") and not _SPECIAL.match(text):
        return Reg(text)
    if re.fullmatch(_NAME + r"(\.\w+)?", text):
        return Symbol(text)
    raise PtxError(f"not an operand: {text!r}")


_SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid|laneid|warpid|nwarpid|smid|clock|clock64|globaltimer|cluster_\w+|"
    r"lanemask_\w+|dynamic_smem_size|total_smem_size)(\.[xyz])?$"
)


def _address(text: str) -> Address:
    m = re.fullmatch(r"([^+]+?)\s*(?:\+\s*(-?\w+))?", text)
    if m is None:
        raise PtxError(f"not an address: [{text}]")
    base = _operand(m[1])
    if isinstance(base, (Vector, Address)):
        raise PtxError(f"not an address: [{text}]")
    return Address(base, int(m[2] or "0", 0))


def _immediate(text: str) -> Immediate | None:
    if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}", text):
        return Immediate(int(text[2:], 16), 4)
    if re.fullmatch(r"0[dD][0-9A-Fa-f]{16}", text):
        return Immediate(int(text[2:], 16), 8)
    if re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|\d+)U?", text):
        return Immediate(int(text.rstrip("U"), 0))
    if re.fullmatch(r"-?\d+\.\d*([eE][-+]?\d+)?", text):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 8)
    return None
