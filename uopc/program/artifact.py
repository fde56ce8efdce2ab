"""What a compile leaves when its graphs are gone: the plan, the machine code, the sources."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from uopc.backends.cpu import elf_loader as image
from uopc.backends.plan import Plan
from uopc.errors import InvalidIR
from uopc.program.planner import Planner

if TYPE_CHECKING:
    from uopc.driver import Request
    from uopc.ir.core.fingerprint import Fingerprint
    from uopc.passes.pass_manager import Lowered

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Constant:
    """An array that kernels read, by content hash: of the graph, or (with `array`) a pass's own."""

    key: str
    array: Array | None = None


@dataclass
class Compiled:
    """Holds no node of a graph. `source_text`: the LLVM IR of each kernel, compressed."""

    plan: Plan
    constants: tuple[Constant, ...]
    names: tuple[str, ...]
    code: bytes
    source_text: bytes
    nodes: int
    seconds: dict[str, float] = field(default_factory=dict)  # of rendering, and of LLVM
    _image: image.Image | None = None

    def load(self) -> image.Image:
        """The code, ready to run. InvalidIR when it is damaged."""
        if self._image is None:
            self._image = image.load(self.code, self.names)
        return self._image

    def check(self) -> None:
        """InvalidIR where the code is damaged."""
        self.load()

    def sources(self) -> list[str]:
        """The LLVM IR of each kernel, a module each."""
        return unpack_sources(self.source_text)

    @property
    def nbytes(self) -> int:
        """About how much memory this takes."""
        words = sum(len(launch.words) + 4 for launch in self.plan.launches)
        own = sum(c.array.nbytes for c in self.constants if c.array is not None)
        return 2 * len(self.code) + len(self.source_text) + own + 64 * words

    def plan_for(self, request: Request, arrays: Mapping[str, Array]) -> Plan:
        """The plan of one request: its arrays by content hash, its container, its bound values."""
        constants = [c.array if c.array is not None else arrays[c.key] for c in self.constants]
        variables = [replace(v, default=request.bound.get(v.name)) for v in self.plan.variables]
        structure: Any = "tuple" if request.structure == "kernel" else request.structure
        return replace(
            self.plan,
            structure=structure,
            constants=tuple([np.ascontiguousarray(a) for a in constants]),
            keys=request.keys,
            variables=tuple(variables),
        )


class CompiledPtx(Compiled):
    """The same for a GPU: the code is the PTX of each kernel, compressed."""

    def texts(self) -> dict[str, str]:
        """The PTX by kernel. InvalidIR when it is damaged."""
        try:
            return dict(zip(self.names, unpack_sources(self.code), strict=True))
        except (ValueError, zlib.error) as error:
            raise InvalidIR(f"not the PTX of {len(self.names)} kernels: {error}") from error

    def check(self) -> None:
        self.texts()


_BETWEEN = "\n;----\n"  # no line of LLVM IR is this comment


def pack_sources(sources: list[str]) -> bytes:
    """Texts in one piece, compressed."""
    return zlib.compress(_BETWEEN.join(sources).encode(), 1)


def unpack_sources(data: bytes) -> list[str]:
    """What `pack_sources` took."""
    text = zlib.decompress(data).decode()
    return text.split(_BETWEEN) if text else []


def constants_of(planner: Planner, arrays: Mapping[str, Array]) -> tuple[Constant, ...]:
    """What a plan reads, of which the graph has these arrays."""
    return tuple([
        Constant(u.arg.key, None if u.arg.key in arrays else u.arg.array) for u in planner.constants
    ])  # fmt: skip


def compiled(request: Request, lowered: Lowered, printed: Fingerprint) -> Compiled:
    """Machine code and plan of a lowered request, given the content of its graph."""
    from uopc.backends.llvm import emitter as llvm
    from uopc.backends.llvm import jit
    from uopc.backends.llvm import split_function as function_parts

    begin = time.perf_counter()
    rendered = [function_parts.render(k.arg.name, k) for k in lowered.kernels]
    text = llvm.module(rendered)
    rendered_at = time.perf_counter()
    code = jit.compile_object(text, request.options.target_cpu or None)
    done = time.perf_counter()
    planner = Planner(request, lowered)
    plan = planner.plan()
    return Compiled(
        plan,
        constants_of(planner, printed.arrays),
        tuple([k.arg.name for k in lowered.kernels]),
        code,
        pack_sources([llvm.module([r]) for r in rendered]),
        printed.nodes,
        {"render": rendered_at - begin, "llvm": done - rendered_at},
    )
