"""Plans of a few kernels that are written by hand, as LLVM IR."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.cpu.elf_loader import Image, load
from uopc.backends.llvm.jit import compile_object
from uopc.backends.plan import (
    Argument,
    DimValue,
    Plan,
    PlannedLaunch,
    Pointer,
    ResultArray,
    Scalar,
)  # fmt: skip

F4 = np.dtype("f4")

# Loop over `count` elements from `chunk * count`; BODY stores one float through %o.
LOOP = """
define void @{name}(ptr %words, i64 %chunk) {{
start:
{loads}
  %begin = mul i64 %chunk, %count
  %end = add i64 %begin, %count
  br label %head
head:
  %i = phi i64 [%begin, %start], [%next, %body]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
{body}
  store float %value, ptr %to
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}}
"""


def loop_kernel(name: str, inputs: int, expression: str) -> str:
    """Words: the inputs, the output, the elements per chunk."""
    loads, body = [], []
    for index in range(inputs + 1):
        loads.append(f"  %w{index} = getelementptr i64, ptr %words, i64 {index}")
        loads.append(f"  %p{index} = load ptr, ptr %w{index}")
        body.append(f"  %e{index} = getelementptr float, ptr %p{index}, i64 %i")
        if index < inputs:
            body.append(f"  %x{index} = load float, ptr %e{index}")
    loads.append(f"  %wc = getelementptr i64, ptr %words, i64 {inputs + 1}")
    loads.append("  %count = load i64, ptr %wc")
    body.append(expression)
    body.append(f"  %to = getelementptr float, ptr %p{inputs}, i64 %i")
    return LOOP.format(name=name, loads="\n".join(loads), body="\n".join(body))


KERNELS = "".join(
    (
        loop_kernel("add", 2, "  %value = fadd float %x0, %x1"),
        loop_kernel("double", 1, "  %value = fadd float %x0, %x0"),
        loop_kernel("copy", 1, "  %value = fadd float %x0, -0.0"),
        loop_kernel("muladd", 3, "  %m = fmul float %x0, %x1\n  %value = fadd float %m, %x2"),
        """
define void @mark(ptr %words, i64 %chunk) {
  %counts = load ptr, ptr %words
  %count = getelementptr i64, ptr %counts, i64 %chunk
  %old = atomicrmw add ptr %count, i64 1 monotonic
  ret void
}
""",
    )
)


@cache
def image() -> Image:
    return load(compile_object(KERNELS))


def outcome(f: ProgramBase, args: list[Any], named: dict[str, Any]) -> tuple[Any, ...]:
    """The result of a call, or its error."""
    try:
        result = f(*args, **named)
    except Exception as error:  # of whatever kind: both callables must raise it
        return type(error), str(error)
    return type(result), result is named.get("out"), np.asarray(result).tobytes()


def program(plan: Plan, plain: bool = False, cls: type[ProgramBase] = ProgramBase) -> ProgramBase:
    return make_callable(plan, image(), cls, plain)


def words(*bases: int, count: Any = 8) -> tuple[Any, ...]:
    return (*(Pointer(base) for base in bases), Scalar(count))


def muladd_plan(size: int = 8, **changes: Any) -> Plan:
    plan = Plan(
        arguments=tuple(Argument(name, F4, (size,)) for name in "abc"),
        results=(ResultArray(F4, (size,)),),
        launches=(PlannedLaunch("muladd", words(0, 1, 2, 3, count=size)),),
        name="muladd",
    )
    return replace(plan, **changes)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape).astype("f4")


def times(name: str, factor: int) -> DimValue:
    """The size `name*factor`."""
    return DimValue((("variable", name, ()), ("const", factor, ()), ("mul", None, (0, 1))))
