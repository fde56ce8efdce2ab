"""The result of a compile without its graph: the plan, the machine code, the sources."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from uopc.backends.plan import Plan
from uopc.ir.core.serialize import Fingerprint
from uopc.program.planner import Planner
from uopc.program.request import Request

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Constant:
    """An array that kernels read, by content hash. `array` is None when the graph holds it."""

    key: str
    array: Array | None = None


@dataclass
class Artifact:
    """A compiled request, without nodes of its graph. Each backend has a subclass for its code.

    `source_text`: the LLVM IR of each kernel, packed. `seconds`: of rendering, and of LLVM.
    """

    plan: Plan
    constants: tuple[Constant, ...]
    names: tuple[str, ...]
    code: bytes
    source_text: bytes
    nodes: int
    seconds: dict[str, float] = field(init=False, default_factory=dict)

    @classmethod
    def of(
        cls, planner: Planner, printed: Fingerprint, sources: Mapping[str, str], code: bytes,
        times: tuple[float, float, float],
    ) -> Self:  # fmt: skip
        """The artifact of a planned program, with the LLVM IR of its kernels by name.

        printed: the graph's content. times: when rendering began and ended, and when LLVM ended.
        """
        plan, known = planner.plan(), printed.arrays
        args = [u.arg for u in planner.constants]
        constants = tuple([Constant(a.key, None if a.key in known else a.array) for a in args])
        begin, rendered, done = times
        text = pack_texts(sources.values())
        made = cls(plan, constants, tuple(sources), code, text, printed.nodes)
        made.seconds = {"render": rendered - begin, "llvm": done - rendered}
        return made

    def check(self) -> None:
        """Raise InvalidIR when the code is damaged."""
        raise NotImplementedError

    def assembly(self) -> dict[str, str]:
        """Assembly by kernel name, of the kernels whose assembly is known already."""
        return {}

    def sources(self) -> list[str]:
        """The LLVM IR of each kernel, a module each."""
        return unpack_texts(self.source_text)

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
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


_BETWEEN = "\n;----\n"  # a line that neither LLVM IR nor PTX has


def pack_texts(texts: Iterable[str]) -> bytes:
    """Texts in one compressed piece."""
    return zlib.compress(_BETWEEN.join(texts).encode(), 1)


def unpack_texts(data: bytes) -> list[str]:
    """The texts that `pack_texts` packed."""
    text = zlib.decompress(data).decode()
    return text.split(_BETWEEN) if text else []
