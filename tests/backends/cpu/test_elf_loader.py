"""Object code: compiled, loaded and linked; what is damaged or reaches out of it is refused."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.plans import (
    KERNELS,
    floats,
    muladd_plan,
    program,
    words,
)
from uopc.backends.cpu import native
from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.cpu.elf_loader import _load_with_orc, load
from uopc.backends.llvm.jit import assembly, compile_object, parsed
from uopc.backends.plan import (
    PlannedLaunch,
)  # fmt: skip
from uopc.errors import InvalidIR, Unsupported


def test_bad_ir_is_invalid() -> None:
    with pytest.raises(InvalidIR, match="expected"):
        compile_object("define void @f() { nonsense }")
    with pytest.raises(InvalidIR, match="dominate"):
        compile_object("define i64 @f() {\n %a = add i64 %b, 1\n %b = add i64 1, 1\n ret i64 %a\n}")


def test_assembly_is_text() -> None:
    assert "muladd" in assembly(KERNELS)


# Data, a pointer to it and one to a function; the last function has no end.
POINTERS = """
@table = constant [4 x i64] [i64 3, i64 1, i64 4, i64 1]
@state = global i64 5
@pointers = global [2 x ptr] [ptr @table, ptr @twice]
define i64 @twice(i64 %x) noinline {
  %y = shl i64 %x, 1
  ret i64 %y
}
define i64 @pick(i64 %i) {
  %p = load ptr, ptr @pointers
  %at = getelementptr i64, ptr %p, i64 %i
  %v = load i64, ptr %at
  %fp = getelementptr ptr, ptr @pointers, i64 1
  %f = load ptr, ptr %fp
  %w = call i64 %f(i64 %v)
  %s = load i64, ptr @state
  %s1 = add i64 %s, 1
  store i64 %s1, ptr @state
  %r0 = add i64 %w, %s
"""


def test_loaded_data_and_relocations() -> None:
    text = f"""{POINTERS}
  ret i64 %r0
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @clear(ptr %p, i64 %n) {{
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)
  ret void
}}
"""
    loaded = load(compile_object(text), ("pick", "clear"))
    pick = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.symbols["pick"])
    assert [pick(i) for i in range(4)] == [11, 8, 15, 10]
    clear = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(loaded.symbols["clear"])
    target = np.ones(100, np.int64)
    clear(target.ctypes.data, 8 * 99)
    assert target.sum() == 1


def test_calls_out_of_the_image_are_refused() -> None:
    text = "declare float @expf(float)\ndefine float @f(float %x) {\n"
    text += " %y = call float @expf(float %x)\n ret float %y\n}"
    with pytest.raises(Unsupported, match="expf"):
        load(compile_object(text))


def test_damaged_object() -> None:
    with pytest.raises(InvalidIR):
        load(compile_object(KERNELS)[:200])


def test_orc_loads_the_same_code() -> None:
    code = _load_with_orc(compile_object(KERNELS), ("muladd", "add"), {})
    a = floats(8)
    for plain in (False, True):
        f = make_callable(muladd_plan(), code, ProgramBase, plain)
        np.testing.assert_array_equal(f(a, a, a), a * a + a)


def test_runtime_code_is_free_of_addresses() -> None:
    """The same bytes may be stored and loaded by another process."""
    code = native.compiled(native.source())
    assert code == native.compiled(native.source())
    names = {*native.EXPORTS.on_request, *native.EXPORTS.always}
    assert names <= set(native.loaded(code).symbols)


@pytest.mark.parametrize("loader", [load, _load_with_orc])
def test_one_object_file_calls_another(loader: Any) -> None:
    own = "@count = global i64 40\ndefine i64 @more(i64 %x) {\n %y = add i64 %x, 1\n ret i64 %y\n}"
    user = """
@count = external global i64
declare i64 @more(i64)
define i64 @next() {
  %n = load i64, ptr @count
  %m = call i64 @more(i64 %n)
  store i64 %m, ptr @count
  ret i64 %m
}
"""
    first = load(compile_object(own, effort=0), ("count", "more"))
    then = loader(compile_object(user), ("next",), first.symbols)
    step = ctypes.CFUNCTYPE(ctypes.c_int64)(then.symbols["next"])
    assert [step(), step()] == [41, 42]
    assert ctypes.c_int64.from_address(first.symbols["count"]).value == 42


def test_llvm_optimises_little_of_the_runtime() -> None:
    """The first compile of a process waits for it: LLVM takes eight times as long for code that it
    optimises."""
    always, on_request = [instructions(text) for text in vars(native.source()).values()][::-1]
    assert always < 450 < 700 < on_request


def instructions(text: str) -> int:
    with parsed(text) as module:
        return sum(len(list(b.instructions)) for f in module.functions for b in f.blocks)


def test_plans_that_name_what_is_not_there() -> None:
    for change, pattern in (
        ({"launches": (PlannedLaunch("absent", ()),)}, "no kernel 'absent'"),
        ({"launches": (PlannedLaunch("muladd", words(0, 9)),)}, "names base 9 of 5"),
        ({"constants": (floats(8)[::2],)}, "constant 0 is not contiguous"),
        ({"results": ()}, "a single result"),
        ({"structure": "dict"}, "1 results for 0 keys"),
    ):
        with pytest.raises(InvalidIR, match=pattern):
            program(muladd_plan(**change))
