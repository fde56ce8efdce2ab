"""Linear UOps to LLVM IR for NVIDIA GPUs: one `ptx_kernel` per kernel.

Parameter i of a kernel is word i of its launch, eight bytes: a pointer to global memory, or a
number in the low bits. `gidx0 … gidx2` are the block's position in the grid, `lidx0 … lidx2` the
thread's in the block. A gate is a branch; a vector access is as wide as its known alignment allows.
LLVM ends the process at an intrinsic that the architecture lacks, so a table lists those it has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from uopc.backends.inline import inlined
from uopc.backends.kernel_text import Rule
from uopc.backends.llvm import index_width
from uopc.backends.llvm.control import ControlEmitter
from uopc.backends.llvm.emitter import Emitter
from uopc.backends.llvm.statements import RULES, from_memory, read, store
from uopc.backends.llvm.types import llvm_type, memory_type
from uopc.backends.nvptx import float_conversions, tensor_cores
from uopc.backends.nvptx.calls import ALIGNMENT, Calls
from uopc.errors import Unsupported
from uopc.ir.core import shapes, storage
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, values
from uopc.target import Gpu, Target

TRIPLE = "nvptx64-nvidia-cuda"
LAYOUT = (  # with addresses of 32 bits in all spaces but the global one
    "e-p3:32:32-p4:32:32-p5:32:32-p6:32:32-p7:32:32"
    "-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
)
SHARED_ALIGNMENT = 128  # of a buffer in shared memory: one row of its banks
_AXES = "xyz"
_SPACES = {"global": " addrspace(1)", "local": " addrspace(3)"}  # as LLVM writes them after `ptr`
_REGISTERS = {"gidx": "ctaid", "lidx": "tid"}

# Patterns of intrinsics, each with the lowest architecture and PTX version that have them.
_INTRINSICS: tuple[tuple[str, int, int], ...] = (
    (r"llvm\.(fabs|sqrt|floor|ceil|trunc|roundeven|fma)\.(v\d+)?f(16|32|64)", 80, 70),
    (r"llvm\.(abs|smax|smin|umax|umin)\.(v\d+)?i(8|16|32|64)", 80, 70),
    (r"llvm\.fpto[su]i\.sat\.(v\d+)?i(8|16|32|64)\.(v\d+)?f(16|32|64)", 80, 70),
    (r"llvm\.vector\.reduce\.(or|and)\.v\d+i1", 80, 70),
    (r"llvm\.nvvm\.read\.ptx\.sreg\.(tid|ctaid)\.[xyz]", 80, 70),
    (r"llvm\.nvvm\.barrier\.cta\.sync\.aligned\.all", 80, 70),
    (r"llvm\.nvvm\.(ff\.to\.(e4m3|e5m2)x2|(e4m3|e5m2)x2\.to\.f16x2)\.rn", 89, 81),
    (r"llvm\.nvvm\.shfl\.sync\.bfly\.i32", 80, 70),
    (r"llvm\.nvvm\.mma\.m16n8k16\.row\.col\.(bf16|f32\.f32)", 80, 70),
    (r"llvm\.nvvm\.mma\.(m16n8k8\.row\.col\.tf32|m16n8k32\.row\.col\.s8)", 80, 70),
    (r"llvm\.nvvm\.mma\.m8n8k4\.row\.col\.f64", 80, 70),
    (r"llvm\.nvvm\.mma\.m16n8k4\.row\.col\.f64", 90, 78),
    (r"llvm\.nvvm\.cp\.async\.(commit|wait)\.group", 80, 70),
    (r"llvm\.nvvm\.cp\.async\.(cg\.shared\.global\.16|ca\.shared\.global\.[48])(\.s)?", 80, 70),
    (r"llvm\.nvvm\.ldmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.b16\.p3", 80, 70),
)


class GpuEmitter(ControlEmitter):
    """The text of one kernel for one architecture."""

    saturates = True

    def __init__(self, name: str, kernel: UOp, target: Target, calls: Calls) -> None:
        super().__init__(name, kernel)
        assert target.gpu is not None
        self.gpu, self.calls = target.gpu, calls
        self.shared: list[str] = []  # definitions of shared memory, before the function
        self.offsets = shared_layout(kernel)[0]
        self.dynamic = dynamic_shared(kernel, target.gpu) > 0
        self.words: list[str] = []
        users: dict[UOp, list[UOp]] = {}
        for u in kernel.src:
            for s in u.src:
                users.setdefault(s, []).append(u)
        self.copied = {  # LOADs whose value no register holds
            u for u in users if u.op is Ops.LOAD and all(_is_copy(self, v, u) for v in users[u])
        }

    def rule(self, u: UOp) -> Rule | None:
        return index_width.emit if index_width.is_narrow(u) else _RULES.get(u.op)

    def head(self) -> str:
        block = ",".join(map(str, block_of(self.kernel)))
        definition = f"define ptx_kernel void @{self.name}({', '.join(self.words)})"
        return "\n".join([*self.shared, f'{definition} "nvvm.reqntid"="{block}"'])

    def load_words(self) -> None:
        words = {i: u for u, i in storage.word_places(self.kernel).items()}
        count, most = 1 + max(words, default=-1), self.gpu.parameter_bytes // 8
        if count > most:
            machine = f"sm_{self.gpu.version} with PTX {self.gpu.ptx / 10}"
            name = getattr(self.kernel.arg, "name", self.name)
            raise Unsupported(
                f"kernel {name} has {count} arguments; {machine} takes at most {most}"
            )
        for i in range(count):
            u, word = words.get(i), f"%w{i}"
            is_pointer = u is not None and u.op is Ops.PARAM
            pointer = f"ptr addrspace(1) align {self.calls.alignment.get(i, ALIGNMENT)}"
            self.words.append(f"{pointer if is_pointer else 'i64'} {word}")
            if u is not None:
                self.names[u] = word if is_pointer else self._number(u.dtype, word)

    def _number(self, t: DType, word: str) -> str:
        """A number from the low bits of its word."""
        target, bits = llvm_type(t), f"i{1 if t.kind == 'bool' else t.bits}"
        low = word if bits == "i64" else self.value(f"trunc i64 {word} to {bits}")
        return low if bits == target else self.value(f"bitcast {bits} {low} to {target}")

    def intrinsic(self, result: str, name: str, operands: Iterable[tuple[str, str]]) -> str:
        for pattern, version, ptx in _INTRINSICS:
            if re.fullmatch(pattern, name):
                if self.gpu.version < version or self.gpu.ptx < ptx:
                    raise Unsupported(f"{name} needs sm_{version} and PTX {ptx / 10}")
                return super().intrinsic(result, name, operands)
        raise Unsupported(f"nvptx: no instruction for {name}")

    # ---------------------------------------------------- memory
    def address(self, u: UOp) -> str:
        t, space = memory_type(u.dtype.scalar), space_of(u)
        name = self.names[u.src[0]]
        for summand in index_width.summands(self, u.src[1], short=space == _SPACES["local"]):
            name = self.once(f"getelementptr {t}, ptr{space} {name}, {summand}")
        return f"ptr{space} {name}"

    def alignment(self, u: UOp, t: DType) -> int:
        """The greatest power of two, at most the size of the access, that divides its address."""
        base, step = storage_root(u), values.divisor(u.src[1])
        known = SHARED_ALIGNMENT
        if base.op is Ops.PARAM:
            known = self.calls.alignment.get(base.arg.slot, ALIGNMENT)
        step = math.gcd(step * u.dtype.itemsize, known) or known
        return max(t.itemsize, math.gcd(step, 1 << ((t.itemsize * t.lanes).bit_length() - 1)))


def space_of(address: UOp) -> str:
    """The address space of an INDEX."""
    return _SPACES.get(storage_root(address).arg.space, "")


# ------------------------------------------------------------ places in the launch
def _dimension(u: UOp) -> tuple[str, int]:
    prefix, axis = u.arg[:-1], u.arg[-1:]
    if prefix not in _REGISTERS or axis not in "012":
        raise Unsupported(
            f"nvptx: unknown hardware index {u.arg!r}; choose gidx0 to gidx2 or lidx0 to lidx2"
        )
    return prefix, int(axis)


def _special(e: GpuEmitter, u: UOp) -> str | None:
    prefix, axis = _dimension(u)
    name = f"llvm.nvvm.read.ptx.sreg.{_REGISTERS[prefix]}.{_AXES[axis]}"
    got = e.intrinsic("i32", name, [])
    end = u.src[0]
    if end.op is Ops.CONST:  # a return attribute: it folds index arithmetic
        e.lines[-1] = e.lines[-1].replace("call i32", f"call range(i32 0, {end.arg}) i32")
    return index_width.widened(e, u, got)


def dimensions(kernel: UOp, prefix: str) -> tuple[UOp, ...]:
    """The sizes of the grid (`gidx`) or block (`lidx`) of a linear kernel, x first."""
    one = affine.const(1)
    found = {_dimension(u)[1]: u.src[0] for u in kernel.src
             if u.op is Ops.SPECIAL and _dimension(u)[0] == prefix}  # fmt: skip
    return tuple([found.get(i, one) for i in range(3)])


def block_of(kernel: UOp) -> tuple[int, int, int]:
    """The threads of a block: x, y, z. Raises Unsupported where the size is not a number."""
    sizes = dimensions(kernel, "lidx")
    if any(d.op is not Ops.CONST for d in sizes):
        raise Unsupported("nvptx: the size of a block must be known when it is compiled")
    x, y, z = [int(d.arg) for d in sizes]
    return x, y, z


def shared_layout(kernel: UOp) -> tuple[dict[UOp, int], int]:
    """The offset of each buffer in the shared memory of a block, and the bytes of all."""
    offsets: dict[UOp, int] = {}
    end = 0
    for u in kernel.src:
        if u.op is Ops.BUFFER and u.arg.space == "local":
            offsets[u] = -(-end // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
            end = offsets[u] + _bytes(u)
    return offsets, end


def dynamic_shared(kernel: UOp, gpu: Gpu) -> int:
    """The bytes of shared memory that a launch must request: 0 where the kernel declares them."""
    total = shared_layout(kernel)[1]
    if total > (most := gpu.shared_per_block):
        raise Unsupported(f"nvptx: a block needs {total} bytes of shared memory, but has {most}")
    return total if total > gpu.static_shared else 0


def _bytes(u: UOp) -> int:
    size = shapes.size(shapes.shape(u))
    if not isinstance(size, int):
        raise Unsupported("nvptx: the size of local storage must be known when it is compiled")
    return -(-size * u.dtype.itemsize // 16) * 16


def _barrier(e: Emitter, u: UOp) -> str | None:
    if u.arg is not None:
        e.intrinsic("void", "llvm.nvvm.cp.async.wait.group", [("i32", str(u.arg))])
    e.intrinsic("void", "llvm.nvvm.barrier.cta.sync.aligned.all", [("i32", "0")])
    return None


def _exchange(e: Emitter, u: UOp) -> str | None:
    """A butterfly shuffle, 32 bits at a time."""
    threads = math.prod(block_of(e.kernel))
    if threads % 32 and threads > 32:
        raise Unsupported(f"nvptx: a warp of {threads % 32} threads cannot exchange values")
    mask = "-1" if threads % 32 == 0 else str((1 << threads) - 1)
    t, given = u.dtype, e.of(u.src[0])
    own, bits = llvm_type(t), 1 if t.kind == "bool" else t.bits
    narrow, wide = [f"i{n}" if t.lanes == 1 else f"<{t.lanes} x i{n}>" for n in (bits, 32)]
    count = t.lanes * max(bits, 32) // 32
    if bits < 32:
        given = e.value(f"bitcast {own} {given} to {narrow}")
        given = e.value(f"zext {narrow} {given} to {wide}")
    given = e.value(f"bitcast {wide if bits < 32 else own} {given} to <{count} x i32>")
    words = []
    for word in e.lanes("i32", given, count):
        operands = [("i32", mask), ("i32", word), ("i32", str(u.arg)), ("i32", "31")]
        words.append(e.intrinsic("i32", "llvm.nvvm.shfl.sync.bfly.i32", operands))
    got = f"<{count} x i32> {e.vector('i32', words)}"
    if bits < 32:
        got = f"{wide} {e.value(f'bitcast {got} to {wide}')}"
        got = f"{narrow} {e.value(f'trunc {got} to {narrow}')}"
    return e.value(f"bitcast {got} to {own}")


# ------------------------------------------------------------ memory
def _buffer(e: GpuEmitter, u: UOp) -> str | None:
    shape = f"[{_bytes(u) // u.dtype.itemsize} x {memory_type(u.dtype)}]"
    if u.arg.space != "local":
        name = e.fresh()
        e.entry.append(f"  {name} = alloca {shape}, align 16")
        return name
    if not e.dynamic:
        name = f"@{e.name}_shared{len(e.shared)}"
        made = f"internal addrspace(3) global {shape} undef, align {SHARED_ALIGNMENT}"
        e.shared.append(f"{name} = {made}")
        return name
    whole = f"@{e.name}_shared"  # one buffer, whose size the launch sets
    if not e.shared:
        made = f"external addrspace(3) global [0 x i8], align {SHARED_ALIGNMENT}"
        e.shared.append(f"{whole} = {made}")
    return e.value(f"getelementptr i8, ptr addrspace(3) {whole}, i64 {e.offsets[u]}")


def _load(e: GpuEmitter, u: UOp) -> str | None:
    """A LOAD; its gate is a branch. Storage that nothing writes may be in the read-only cache."""
    if u in e.copied:
        return None
    base = storage_root(u.src[0])
    constant = base.op is Ops.PARAM and base.arg.slot in e.calls.constant
    note = ", !invariant.load !0" if constant else ""
    if len(u.src) == 1:
        return from_memory(e, u, read(e, u, e.address(u.src[0]), note))
    before, done = e.branch(e.of(u.src[1]))
    got = read(e, u, e.address(u.src[0]), note)
    last = e.join(done)
    incoming = f"[ {got}, %{last} ], [ zeroinitializer, %{before} ]"
    return from_memory(e, u, e.value(f"phi {memory_type(u.dtype)} {incoming}"))


def _store(e: GpuEmitter, u: UOp) -> str | None:
    if u.src[1] not in e.copied:
        return store(e, u)
    done = e.branch(e.of(u.src[2]))[1] if len(u.src) > 2 else ""
    _copy(e, u)
    if done:
        e.join(done)
    return None


def _is_copy(e: GpuEmitter, u: UOp, load: UOp) -> bool:
    """True for an async STORE of the value of a LOAD: 4, 8 or 16 aligned bytes."""
    nbytes = load.dtype.itemsize * load.dtype.lanes
    if u.op is not Ops.STORE or u.arg != "async" or nbytes not in (4, 8, 16):
        return False
    addresses = (load.src[0], u.src[0])
    aligned = all(e.alignment(a, load.dtype) == nbytes for a in addresses)
    return aligned and [space_of(a) for a in addresses] == list(_SPACES.values())


def _copy(e: GpuEmitter, u: UOp) -> None:
    """An asynchronous copy to shared memory; of zeros where the gate does not hold."""
    target, load = u.src[:2]
    nbytes = load.dtype.itemsize * load.dtype.lanes
    to, from_ = [e.address(a).rpartition(" ") for a in (target, load.src[0])]
    operands = [(to[0], to[2]), (from_[0], from_[2])]
    name = f"llvm.nvvm.cp.async.{'cg' if nbytes == 16 else 'ca'}.shared.global.{nbytes}"
    if len(load.src) > 1:
        name += ".s"
        operands.append(("i32", e.value(f"select i1 {e.of(load.src[1])}, i32 {nbytes}, i32 0")))
    e.intrinsic("void", name, operands)


_RULES: dict[Op, Rule] = RULES | {
    Ops.SPECIAL: _special,
    Ops.BARRIER: _barrier,
    Ops.COMMIT: lambda e, u: e.intrinsic("void", "llvm.nvvm.cp.async.commit.group", []),
    Ops.EXCHANGE: _exchange,
    Ops.WMMA: tensor_cores.wmma,
    Ops.TILE_LOAD: tensor_cores.matrices,
    Ops.BUFFER: _buffer,
    Ops.CAST: float_conversions.convert,
    Ops.LOAD: _load,
    Ops.FETCH: lambda e, u: e.of(u.src[0]),  # nothing is fetched
    Ops.STORE: _store,
}


def render(name: str, kernel: UOp, target: Target, calls: Calls) -> tuple[str, list[str]]:
    """The function of a linear kernel, and the declarations it needs."""
    emitter = GpuEmitter(name, inlined(kernel), target, calls)
    return emitter.run(), list(emitter.declared)


def module(function: tuple[str, list[str]]) -> str:
    """The LLVM module of one rendered kernel."""
    text, declared = function
    head = f'target triple = "{TRIPLE}"\ntarget datalayout = "{LAYOUT}"\n'
    return "\n\n".join([head, text, *sorted(declared)]) + "\n\n!0 = !{}\n"
