"""Machines as data, by name: vectors, registers, caches and features of CPUs and GPUs."""

from __future__ import annotations

import functools
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from uopc.errors import Unsupported, UserError
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.records import dataclass

if TYPE_CHECKING:
    from uopc.ir.devices.tensor_cores import Tile

NO_LIMIT = 1 << 30  # of the arguments of a kernel
# LLVM's names of the AMX features that uopc uses; the other AMX features need these.
_AMX = ("amx-bf16", "amx-int8", "amx-tile")
# Narrow floats to which GPUs round float32, by least version; 8-bit floats saturate.
_CONVERTED = ((dtypes.bfloat16, 80), (dtypes.fp8e4m3, 89), (dtypes.fp8e5m2, 89))


@dataclass(frozen=True)
class Gpu:
    """A GPU architecture: the limits of a block and of a multiprocessor (SM), memory in bytes."""

    multiprocessors: int
    shared_per_block: int
    shared_per_multiprocessor: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    version: int  # 80 for sm_80
    ptx: int  # of the PTX text: 70 for 7.0
    tensor_cores: bool = True
    warp: int = 32
    threads_per_block: int = 1024
    static_shared: int = 48 << 10  # a launch must request more
    registers_per_multiprocessor: int = 1 << 16
    registers_per_thread: int = 255
    grid: tuple[int, int, int] = ((1 << 31) - 1, 65535, 65535)
    block: tuple[int, int, int] = (1024, 1024, 64)
    reserved_shared: int = 1024  # of a block, beside its own
    # Of a multiprocessor and a clock, measured on an H200: products of 16-bit numbers of tensor
    # cores, and bytes of L2 where all read.
    tensor_rate: float = 1290.0
    l2_rate: float = 50.0

    @property
    def has_large_tiles(self) -> bool:
        """True if tensor cores multiply 16 rows of float64, twice as fast as 8."""
        return self.version >= 90

    @property
    def parameter_bytes(self) -> int:
        """The bytes of parameters (eight each) that assemblers accept: 4,352 before PTX 8.1."""
        return 4352 if self.ptx < 81 else 32764


@dataclass(frozen=True)
class Figures:
    """The speeds of a CPU. `uopc tune --machine` measures them; the defaults are those of the
    machine on which the schedule's thresholds were measured. See docs/lab/machine.md.

    Bytes are per cycle and per thread, except `shared_bytes`.
    """

    clock: float = 4.0  # cycles per ns
    multiply_bytes: float = 64.0  # of vectors whose multiply-adds begin; at most two vectors
    latency: float = 4.0  # cycles of a multiply-add
    load_bytes: float = 64.0  # from the first-level cache; at most two vectors
    l2_bytes: float = 48.0  # from the second-level cache
    last_bytes: float = 16.0  # from the last cache
    memory_bytes: float = 5.0
    shared_bytes: float = 10.0  # from memory, for all threads together
    launch: float = 10.0  # ns of a kernel that does nothing
    wake: float = 250.0  # ns until threads that wait have begun and ended
    parked: float = 50_000.0  # the same for threads that sleep
    divide_bytes: float = 6.0  # of vectors of float32 that are divided
    divide64_bytes: float = 3.9  # of vectors of float64
    shuffle_bytes: float = 64.0  # of vectors that are shuffled; at most two vectors
    insert: float = 1.0  # cycles of an element that is loaded on its own into a vector
    enter: float = 3.0  # cycles of the begin and the end of an inner loop
    l2_alone: float = 2.7  # cycles of a line from the second-level cache that is in no stream
    last_alone: float = 12.0  # of a line from the last cache
    memory_alone: float = 38.0
    l2_written: float = 1.3  # cycles more of a line that is written, to the second-level cache
    last_written: float = 4.0  # to the last cache
    memory_written: float = 13.0


@dataclass(frozen=True)
class Target:
    """A machine: bits of a vector register (or of one memory access), the number of registers, and
    LLVM's name and features for it. `gpu` is set for a GPU."""

    name: str
    device: str
    vector_bits: int
    registers: int
    cpu: str
    features: str
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    last_cache_bytes: int = 32 << 20  # the last level, all cores'
    stream_bytes: int = 16  # least alignment of stores past the caches: that of NumPy's arrays
    gpu: Gpu | None = None
    fuses_sums: bool = True  # if MULACC is an instruction, products move into their sums
    stack_bytes: int | None = None  # for a kernel's buffers; None: see `KernelArg`
    index_bits: int = 64  # of loops and indices, if their bounds fit
    has_functions: bool = False  # EXP, SIN, …: of a library
    figures: Figures = Figures()
    # Rules that a backend ships, as `compile(rules=...)` takes them.
    rules: Any = field(default=None, compare=False, repr=False)

    @property
    def most_arguments(self) -> int:
        """The most arguments of a kernel, buffers and numbers; unlimited on a CPU."""
        return self.gpu.parameter_bytes // 8 if self.gpu is not None else NO_LIMIT

    def has_fma(self, t: DType) -> bool:
        """True if MULACC of float32 or float64 is an instruction."""
        return not (self._lacks("fma") or (t is dtypes.float64 and self._lacks("fma64")))

    def is_software(self, t: DType) -> bool:
        """True if floats of a type are computed by functions. Exported code has a function for
        MULACC, which takes the time of a few other operations."""
        return f"-{t.name}" in self.features.split(",")

    def fuses(self, t: DType) -> bool:
        """True if pass fuse-products makes MULACCs of a type."""
        if not self.fuses_sums:
            return False
        if t is dtypes.float16:
            return self.gpu is not None or self.has("avx512fp16")
        return t in (dtypes.float32, dtypes.float64) and self.has_fma(t)

    @property
    def has_rounding(self) -> bool:
        """True if FLOOR, CEIL, TRUNC and ROUND are instructions (SSE4.1)."""
        return not self._lacks("sse4.1")

    @property
    def has_scale(self) -> bool:
        """True if SCALE is an instruction (AVX-512)."""
        return self.gpu is None and self.vector_bits == 512

    @property
    def lookup_lanes(self) -> int:
        """The lanes of float32 tables for which LOOKUP is an instruction (AVX-512), or 0."""
        return 16 if self.gpu is None and self.vector_bits == 512 else 0

    @property
    def dot4(self) -> str:
        """The instruction for DOT4: of AVX512-VNNI, AVX-VNNI, ARM's I8MM, or ARM's DotProd (which
        takes two instructions); empty if there is none."""
        if self.gpu is not None:
            return ""
        wide = self.has("avx512vnni") and self.has("avx512vl")
        if wide or self.has("avxvnni"):
            return "vpdpbusd"
        return "usdot" if self.has("i8mm") else "sdot" if self.has("dotprod") else ""

    @property
    def dot2(self) -> str:
        """The instruction for DOT2: of AVX512-BF16; empty if there is none."""
        return "vpdpbf16ps" if self.has("avx512bf16") and self.has("avx512vl") else ""

    @property
    def masked_moves(self) -> str:
        """The instruction for loads and stores of some lanes where masks are vectors: of AVX
        without AVX-512; empty elsewhere."""
        avx = self.gpu is None and self.vector_bits == 256 and not self.has("avx512f")
        return "vmaskmov" if avx else ""

    @property
    def is_arm(self) -> bool:
        """True for ARM processors of 64 bits."""
        return self.gpu is None and self.has("neon")

    @property
    def vector_conversion(self) -> str:
        """The instruction that converts vectors of floats to integers, saturated and NaN to 0: of
        ARM; empty if there is none."""
        return "fcvtz" if self.is_arm else ""

    @property
    def units(self) -> tuple[str, ...]:
        """The instructions for the emitter: LLVM ends the process if the machine lacks one."""
        found = (self.dot4, self.dot2, self.masked_moves, self.vector_conversion)
        return tuple([name for name in found if name])

    @property
    def has_tiles(self) -> bool:
        """True if the processor has tile registers: AMX."""
        return self.has("amx-tile")

    def without_tiles(self) -> Target:
        """The same machine without AMX, for code that does not ask the kernel for AMX."""
        if not self.has_tiles:
            return self
        kept = [f for f in self.features.split(",") if not f[1:].startswith("amx-")]
        return replace(self, features=",".join([*kept, *[f"-{name}" for name in _AMX]]))

    def has_tile(self, tile: Tile) -> bool:
        """True if the machine multiplies tiles of these words: AMX."""
        kind = "amx-bf16" if tile.result.is_float else "amx-int8"
        return tile.is_of_words and self.has_tiles and self.has(kind)

    @property
    def has_mask_registers(self) -> bool:
        """True if masks of lanes have their own registers (AVX-512)."""
        return self.gpu is None and self.vector_bits == 512

    def masks(self, bits: int) -> bool:
        """True if a vector load or store can skip lanes of this width; AVX: 32 and 64 bits."""
        wide = self.gpu is None and self.vector_bits == 256
        return self.has_mask_registers or (wide and bits >= 32)

    @property
    def native_floats(self) -> frozenset[DType]:
        """The narrow floats with instructions for conversion from and to float32."""
        version = self.gpu.version if self.gpu is not None else 0
        found = {t for t, least in _CONVERTED if version >= least}
        return frozenset(found if self._lacks("f16c") else found | {dtypes.float16})

    def has(self, feature: str) -> bool:
        """True if the processor has a feature, by LLVM's name."""
        listed = self.cpu in CPUS and feature in CPUS[self.cpu][2]
        return listed or f"+{feature}" in self.features.split(",")

    def _lacks(self, feature: str) -> bool:
        """True for an x86 processor without a feature. Other machines list the features that they
        lack, by x86's names, and `fma64` if only float32 has the instruction."""
        if self.cpu in CPUS:
            return feature != "fma64" and not self.has(feature)
        return f"-{feature}" in self.features.split(",")

    def lanes(self, bits: int) -> int:
        """The number of values of this width that a register holds."""
        return max(1, self.vector_bits // max(8, bits))


# LLVM's CPU names: vector bits, registers, and the features that code for them may use.
_V2 = ("sse2", "sse4.1", "sse4.2", "popcnt")
_V3 = (*_V2, "avx2", "fma", "f16c", "bmi2", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
CPUS = {
    "x86-64": (128, 16, ("sse2",)), "x86-64-v2": (128, 16, _V2), "x86-64-v3": (256, 16, _V3),
    "x86-64-v4": (512, 32, _V4),
}  # fmt: skip


class Pages(NamedTuple):
    """A table of a processor that knows the places of pages: entries, ways, the cycles of a page
    that the table lacks, and the bytes of a page."""

    name: str
    entries: int
    ways: int
    cycles: float
    nbytes: int = 4096
    serves_loads: bool = True


class Core(NamedTuple):
    """A kind of core, from manuals: what holds for all machines with such cores. `figures` hold
    until a machine is measured. The defaults are what is usual."""

    figures: Figures = Figures()
    issue: float = 4.0  # instructions that begin in a cycle
    loads: float = 2.0  # instructions in a cycle, of any width
    stores: float = 1.0
    window: float = 100.0  # instructions among which a processor looks for those that can begin
    decode: float = 2.0  # instructions of a cycle in a loop too long to be kept decoded
    mispredict: float = 20.0  # cycles
    ways: tuple[int, int, int] = (8, 8, 16)  # of the three caches
    pages: tuple[Pages, ...] = (Pages("pages", 64, 4, 7.0), Pages("more pages", 1536, 12, 25.0))


@functools.cache
def core_of(cpu: str) -> Core:
    """The kind of core of a processor, by LLVM's name."""
    return CORES.get(cpu, _USUAL)


_USUAL = Core()
# Two units of 64 bytes for multiply-adds and for loads, one for shuffles. Kernels were timed:
# docs/lab/machine.md.
_GOLDEN_COVE = Core(
    Figures(
        clock=3.0, multiply_bytes=128.0, load_bytes=128.0, l2_alone=2.9, last_alone=13.0,
        memory_alone=27.0, last_written=3.9, memory_written=7.0,
    ),
    issue=6.0, loads=3.0, window=100.0, decode=1.3, ways=(12, 16, 16),
    pages=(
        Pages("pages of stores", 16, 16, 7.0, serves_loads=False),
        Pages("pages", 96, 6, 1.0), Pages("more pages", 2048, 16, 25.0),
    ),
)  # fmt: skip
# Intel's optimisation manual: four and five instructions are allocated; 64 bytes are divided in 10
# (float32) and 16 cycles. Multiply-adds: the processors with two units of 64 bytes.
_SKYLAKE_SERVER = Core(
    Figures(
        clock=3.0, multiply_bytes=128.0, load_bytes=128.0, divide_bytes=6.4, divide64_bytes=4.0
    ),
    mispredict=16.0, ways=(8, 16, 11),
)  # fmt: skip
_SUNNY_COVE_SERVER = _SKYLAKE_SERVER._replace(
    issue=5.0, stores=2.0, mispredict=17.0, ways=(12, 20, 12),
    pages=(
        Pages("pages of stores", 16, 16, 7.0, serves_loads=False),
        Pages("pages", 64, 4, 7.0), Pages("more pages", 2048, 16, 25.0),
    ),
)  # fmt: skip
# AMD's optimisation guides of family 19h: six instructions are dispatched; three loads, of which
# two are as wide as registers of 32 bytes; two stores; two units shuffle. Divisions were timed: 3.5
# and 4.6 cycles, of a vector as of one number.
_ZEN3 = Core(
    Figures(divide_bytes=9.1, divide64_bytes=7.0),
    issue=6.0, loads=3.0, stores=2.0, mispredict=13.0,
    pages=(Pages("pages", 64, 64, 7.0), Pages("more pages", 2048, 16, 25.0)),
)  # fmt: skip
_ZEN4 = _ZEN3._replace(
    pages=(Pages("pages", 72, 72, 7.0), Pages("more pages", 3072, 24, 25.0))
)  # fmt: skip
# Arm's guides: N1 multiplies, loads and shuffles 16 bytes in two units; V1 multiplies in four, and
# loads in three.
_NEOVERSE_N1 = Core(
    Figures(clock=3.0, multiply_bytes=32.0, shuffle_bytes=32.0),
    mispredict=11.0, ways=(4, 8, 16),
    pages=(Pages("pages", 48, 48, 5.0), Pages("more pages", 1280, 5, 25.0)),
)  # fmt: skip
_NEOVERSE_V1 = Core(
    Figures(clock=3.0), issue=8.0, loads=3.0, stores=2.0, mispredict=11.0,
    ways=(4, 8, 16), pages=(Pages("pages", 40, 40, 5.0), Pages("more pages", 2048, 8, 25.0)),
)  # fmt: skip
# Apple's optimisation guide: eight instructions, four units of 16 bytes, three loads, two stores.
_FIRESTORM = Core(
    Figures(clock=3.2), issue=8.0, loads=3.0, stores=2.0, mispredict=13.0,
    ways=(8, 12, 16),
    pages=(Pages("pages", 160, 5, 7.0, 1 << 14), Pages("more pages", 3072, 12, 25.0, 1 << 14)),
)  # fmt: skip
CORES = {
    "sapphirerapids": _GOLDEN_COVE, "emeraldrapids": _GOLDEN_COVE,
    "skylake-avx512": _SKYLAKE_SERVER, "cascadelake": _SKYLAKE_SERVER,
    "icelake-server": _SUNNY_COVE_SERVER, "znver3": _ZEN3, "znver4": _ZEN4,
    "neoverse-n1": _NEOVERSE_N1, "neoverse-v1": _NEOVERSE_V1, "apple-m1": _FIRESTORM,
}  # fmt: skip


@functools.cache
def cpu_target(cpu: str) -> Target:
    """A machine in CPUS, with caches of the usual sizes."""
    bits, registers, _ = CPUS[cpu]
    return Target(cpu, "cpu", bits, registers, cpu, "")


# NVIDIA architectures: SMs of the usual card, shared memory, threads and blocks of an SM, versions.
GPUS: dict[str, Gpu] = {
    "sm_80": Gpu(108, 163 << 10, 164 << 10, 2048, 32, 80, 70),
    "sm_86": Gpu(84, 99 << 10, 100 << 10, 1536, 16, 86, 71),
    "sm_89": Gpu(128, 99 << 10, 100 << 10, 1536, 24, 89, 81),
    "sm_90": Gpu(132, 227 << 10, 228 << 10, 2048, 32, 90, 81),
    "sm_90a": Gpu(132, 227 << 10, 228 << 10, 2048, 32, 90, 81),
}


@functools.cache
def gpu_target(name: str) -> Target:
    """A machine in GPUS; UserError for another name."""
    gpu = GPUS.get(name)
    if gpu is None:
        raise UserError(f"unknown GPU {name!r}; choose {', '.join(GPUS)}")
    registers, features = gpu.registers_per_thread, f"+ptx{gpu.ptx}"
    return Target(name, f"cuda:{name}", 128, registers, name, features, l2_bytes=40 << 20, gpu=gpu)


def gpu_name(capability: tuple[int, int]) -> str:
    """The best name in GPUS for a device of this compute capability: sm_90a for (9, 0)."""
    version = 10 * capability[0] + capability[1]
    exact = [name for name, gpu in GPUS.items() if gpu.version == version]
    older = [name for name, gpu in GPUS.items() if gpu.version <= version and name[-1].isdigit()]
    if not older:
        raise Unsupported(f"compute capability must be 8.0 or higher, the GPU has {version / 10}")
    return exact[-1] if exact else older[-1]
