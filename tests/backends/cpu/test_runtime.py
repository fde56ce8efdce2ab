"""The CPU runtime: loading, calls, errors, memory, threads. Kernels here are written by hand."""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import math
import os
import pickle
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import uopc
from tests import ROOT
from uopc import config, dtypes, forks
from uopc.backends import detect, memory_plan
from uopc.backends.cpu import callables, layout, native, pool
from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.cpu.elf_loader import Image, _load_with_orc, load
from uopc.backends.llvm.jit import assembly, compile_object, parsed
from uopc.backends.plan import (
    Argument,
    DimValue,
    Launch,
    Plan,
    Pointer,
    Result,
    Scalar,
    Structure,
    Variable,
)  # fmt: skip
from uopc.errors import InvalidIR, Unsupported, UserError, UserTypeError
from uopc.passes.analysis import thresholds

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
    except Exception as error:
        return type(error), str(error)
    return type(result), result is named.get("out"), np.asarray(result).tobytes()


def program(plan: Plan, plain: bool = False, cls: type[ProgramBase] = ProgramBase) -> ProgramBase:
    return make_callable(plan, image(), cls, plain)


def words(*bases: int, count: Any = 8) -> tuple[Any, ...]:
    return (*(Pointer(base) for base in bases), Scalar(count))


def muladd_plan(size: int = 8, **changes: Any) -> Plan:
    plan = Plan(
        arguments=tuple(Argument(name, F4, (size,)) for name in "abc"),
        results=(Result(F4, (size,)),),
        launches=(Launch("muladd", words(0, 1, 2, 3, count=size)),),
        name="muladd",
    )
    return replace(plan, **changes)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape).astype("f4")


def times(name: str, factor: int) -> DimValue:
    """The size `name*factor`."""
    return DimValue((("variable", name, ()), ("const", factor, ()), ("mul", None, (0, 1))))


# --- compiling and loading ------------------------------------------------------------------------


def test_bad_ir_is_invalid() -> None:
    with pytest.raises(InvalidIR, match="expected"):
        compile_object("define void @f() { nonsense }")
    with pytest.raises(InvalidIR, match="dominate"):
        compile_object("define i64 @f() {\n %a = add i64 %b, 1\n %b = add i64 1, 1\n ret i64 %a\n}")


def test_assembly_is_text() -> None:
    assert "muladd" in assembly(KERNELS)


def test_loaded_data_and_relocations() -> None:
    text = """
@table = constant [4 x i64] [i64 3, i64 1, i64 4, i64 1]
@state = global i64 5
@pointers = global [2 x ptr] [ptr @table, ptr @twice]
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
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
  %r = add i64 %w, %s
  ret i64 %r
}
define void @clear(ptr %p, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)
  ret void
}
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
        ({"launches": (Launch("absent", ()),)}, "no kernel 'absent'"),
        ({"launches": (Launch("muladd", words(0, 9)),)}, "names base 9 of 5"),
        ({"constants": (floats(8)[::2],)}, "constant 0 is not contiguous"),
        ({"results": ()}, "a single result"),
        ({"structure": "dict"}, "1 results for 0 keys"),
    ):
        with pytest.raises(InvalidIR, match=pattern):
            program(muladd_plan(**change))


# --- calls ----------------------------------------------------------------------------------------


@pytest.fixture(params=["native", "released", "plain"])
def muladd(request: pytest.FixtureRequest) -> ProgramBase:
    plan = muladd_plan(nogil=request.param == "released")
    return program(plan, request.param == "plain")


def test_native_calls_are_in_use() -> None:
    assert callables.native_calls_work()
    assert type(program(muladd_plan())) is not ProgramBase
    assert isinstance(program(muladd_plan()), ProgramBase)
    assert type(program(muladd_plan(), plain=True)) is ProgramBase


def test_plain_call_by_environment() -> None:
    asked = config.from_environment({"UOPC_PLAIN_CALL": "1"})
    assert type(make_callable(muladd_plan(), image(), ProgramBase, asked.plain_call)) is ProgramBase


def test_usual_call(muladd: ProgramBase) -> None:
    a, b, c = (floats(8, seed=s) for s in range(3))
    out = np.empty(8, "f4")
    for result in (
        muladd(a, b, c),
        muladd(a, b, c=c),
        muladd(c=c, b=b, a=a),
        muladd(a, b, c, out=out),
        muladd(*(a, b), **{"c": c, "".join(["o", "ut"]): out}),
        muladd(a, b, memoryview(c)),
        muladd(a, b, np.repeat(c, 2)[::2]),
        muladd(a[::-1][::-1], b, c.view(type("Sub", (np.ndarray,), {}))),
    ):
        np.testing.assert_array_equal(result, a * b + c)
        assert type(result) is np.ndarray and result.dtype is F4
    assert muladd(a, b, c, out=out) is out


def test_subclass_with_properties() -> None:
    class Program(ProgramBase):
        @property
        def answer(self) -> int:
            return 42

    f = program(muladd_plan(), cls=Program)
    f.note = "kept"  # type: ignore[attr-defined]
    assert isinstance(f, Program) and f.answer == 42 and f.__dict__ == {"note": "kept"}
    assert type(f).__name__ == Program.__name__ and type(f).__module__ == __name__
    assert weakref.ref(f)() is f
    a = floats(8)
    np.testing.assert_array_equal(f.__call__(a, a, a), a * a + a)

    class Slotted(ProgramBase):
        __slots__ = ("more",)

    with pytest.raises(TypeError, match="slots"):
        program(muladd_plan(), cls=Slotted)
    with pytest.raises(TypeError):
        type(f).__new__(type(f))(a, a, a)
    f._owned = None  # type: ignore[attr-defined]
    np.testing.assert_array_equal(f(a, a, a), a * a + a)


def test_a_program_that_the_collector_has_cleared() -> None:
    f, a = program(muladd_plan()), floats(8)
    field = ctypes.c_int64.from_address(id(f) + ProgramBase.__basicsize__ + 8)
    owned, field.value = field.value, 0
    with pytest.raises(SystemError):
        f(a, a, a)
    field.value = owned
    np.testing.assert_array_equal(f(a, a, a), a * a + a)


class Dlpack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Interface:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


def test_protocols(muladd: ProgramBase) -> None:
    a = floats(8)
    result = muladd(Dlpack(a), Interface(a), array.array("f", a))
    np.testing.assert_array_equal(result, a * a + a)
    out = bytearray(32)
    view = memoryview(out).cast("f")
    assert muladd(a, a, a, out=view) is view
    np.testing.assert_array_equal(np.frombuffer(out, "f4"), a * a + a)


def test_equal_dtype_object(muladd: ProgramBase) -> None:
    a = pickle.loads(pickle.dumps(floats(8)))
    other = np.frombuffer(floats(8).tobytes(), np.dtype("<f4").newbyteorder("="))
    np.testing.assert_array_equal(muladd(a, other, a), a * other + a)
    swapped = floats(8).astype(">f4")
    with pytest.raises(UserTypeError, match="byte order"):
        muladd(swapped, a, a)


def bad_calls(a: np.ndarray) -> list[tuple[tuple[Any, ...], dict[str, Any], type, str]]:
    frozen = floats(8)
    frozen.flags.writeable = False
    big = floats(32)
    odd = np.frombuffer(bytearray(33), np.uint8)[1:].view("f4")
    return [
        ((a, a), {}, UserTypeError, r"missing 1 argument: 'c' \(float32\[8\]\)"),
        ((), {}, UserTypeError, "missing 3 arguments"),
        ((a, a, a, a), {}, UserTypeError, r"takes 3 arrays \(a, b, c\), 4 were given"),
        ((a,) * 1000, {}, UserTypeError, "1000 were given"),
        ((a, a, a), {"c": a}, UserTypeError, "'c' by position and by name"),
        ((a, a), {"d": a}, UserTypeError, "no argument 'd'; it has a, b, c"),
        ((a, a, a), {"d": a, "out": a}, UserTypeError, "no argument 'd'"),
        ((a, a, None), {}, UserTypeError, "'c': expected an array, got NoneType"),
        ((a, [1.0] * 8, a), {}, UserTypeError, "'b': expected an array, got list"),
        ((a, "text", a), {}, UserTypeError, "'b': expected an array, got str"),
        ((a, a, a.astype("f8")), {}, UserTypeError, r"float32\[8\], got float64\[8\]"),
        ((a, a[:4], a), {}, UserError, r"'b': expected float32\[8\], got float32\[4\]"),
        ((a.reshape(2, 4), a, a), {}, UserError, r"'a'.*got float32\[2, 4\]"),
        ((np.ma.array(a), a, a), {}, UserTypeError, "masked"),
        ((a, a, a), {"out": frozen}, UserError, "out is written.*read-only"),
        ((a, a, a), {"out": big[::4]}, UserError, "out is written.*not contiguous"),
        ((a, a, a), {"out": odd}, UserError, "out is written.*not aligned"),
        ((a, a, a), {"out": big[:7]}, UserError, r"out: expected float32\[8\], got float32\[7\]"),
        ((a, a, a), {"out": np.empty(8)}, UserTypeError, "out: expected float32"),
        ((a, a, a), {"out": 3}, UserTypeError, "out: expected an array, got int"),
        ((a, a, a), {"out": a}, UserError, "out overlaps argument 'a' in memory"),
        ((a, big[:8], a), {"out": big[7:15]}, UserError, "out overlaps argument 'b'"),
        ((a, a, big[::4]), {"out": big[4:12]}, UserError, "out overlaps argument 'c'"),
    ]


def test_errors(muladd: ProgramBase) -> None:
    for args, named, kind, pattern in bad_calls(floats(8)):
        with pytest.raises(kind, match=pattern):
            muladd(*args, **named)
    big = floats(32)
    near = big[8:16]
    assert muladd(big[:8], big[16:24], big[24:], out=near) is near
    apart = floats(8, 8)  # interleaved, not overlapping
    row = np.empty((2, 64), "f4")
    inside = row[0, 1:9]
    assert muladd(apart[0], row[:, 0].repeat(4), apart[1], out=inside) is inside


def test_fuzz_against_plain_call() -> None:
    native_call, plain_call = program(muladd_plan()), program(muladd_plan(), plain=True)
    random_ = random.Random(1)
    big = floats(64)
    frozen = floats(8)
    frozen.flags.writeable = False
    odd = np.frombuffer(bytearray(33), np.uint8)[1:].view("f4")
    choices = [
        *(floats(8, seed=s) for s in range(8)),
        *(big[i : i + 8] for i in (0, 4, 8, 40)),
        *(big[::8], big[:16:2], frozen, odd, floats(8).astype("f8"), floats(9), floats(1, 8)),
        *(None, 1.0, "x", [1.0], floats(8).astype(">f4"), np.float32(1), floats()),
        *(np.zeros(8, "i4"), np.zeros(0, "f4"), np.zeros(8, ml_dtypes.bfloat16), Dlpack(floats(8))),
    ]

    seen = set()
    for _ in range(6000):
        usual = random_.random() < 0.4
        pool_ = choices[:8] if usual else choices
        args = [random_.choice(pool_) for _ in range(random_.choice((3, 3, 3, 3, 2, 4)))]
        named = {}
        if random_.random() < 0.5:
            named["out"] = random_.choice(choices)
        if random_.random() < 0.2:
            named[random_.choice("abcd")] = random_.choice(choices)
        first = outcome(native_call, args, named)
        assert first == outcome(plain_call, args, named)
        seen.add(first[0])
    assert seen >= {np.ndarray, UserError, UserTypeError}


def pair_plan(structure: Structure) -> Plan:
    """a + b, and a + a as two rows."""
    return Plan(
        arguments=muladd_plan().arguments[:2],
        results=(Result(F4, (8,)), Result(F4, (2, 4))),
        launches=(Launch("add", words(0, 1, 2)), Launch("double", words(0, 3))),
        structure=structure,
        keys=("x", "y") if structure == "dict" else (),
    )


@pytest.mark.parametrize("structure", ["tuple", "list", "dict"])
def test_fuzz_names_and_outs_against_plain_call(structure: Structure) -> None:
    """Arguments by name in any order, outputs in all kinds of containers."""
    plan = pair_plan(structure)
    native_call, plain_call = program(plan), program(plan, plain=True)
    random_ = random.Random(2)
    big = floats(64)
    arrays = [floats(8), floats(8, seed=1), big[8:16], big[::8], floats(8).astype("f8"), None]
    outs = [np.empty(8, "f4"), big[12:20], None, floats(9), 1.0]
    rows = [np.empty((2, 4), "f4"), big[16:24].reshape(2, 4), None, np.empty((2, 4), "f8")]

    def container() -> Any:
        made = [random_.choice(outs[:1] * 9 + outs), random_.choice(rows[:1] * 9 + rows)]
        kinds: list[Any] = [
            tuple(made), made, dict(zip("xy", made)), made[0], tuple(made[:1]), {"x": made[0]},
        ]  # fmt: skip
        return random_.choice([*kinds, kinds[2], tuple(made), made])

    def outcome(f: ProgramBase, args: list[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        outs[0][...] = rows[0][...] = 0  # type: ignore[index]
        try:
            answer = f(*args, **named)
        except Exception as error:
            return type(error), str(error)
        got = list(answer.values()) if isinstance(answer, dict) else list(answer)
        same = [any(g is o for o in (*outs, *rows)) for g in got]
        return type(answer), same, [np.asarray(g).tobytes() for g in got]

    seen = set()
    for _ in range(3000):
        args = [random_.choice(arrays[:2] * 4 + arrays) for _ in range(2)]
        by_name = random_.randrange(3)
        names = ["ab"[i] for i in range(2 - by_name, 2)]
        random_.shuffle(names)
        named = {n: args["ab".index(n)] for n in names}
        if random_.random() < 0.1:
            named[random_.choice("abc")] = arrays[0]
        if random_.random() < 0.6:
            named["out"] = container()
        first = outcome(native_call, args[: 2 - by_name], named)
        assert first == outcome(plain_call, args[: 2 - by_name], named)
        seen.add(first[0])
    assert seen >= {{"tuple": tuple, "list": list, "dict": dict}[structure], UserTypeError}


def test_names_that_are_not_interned() -> None:
    plan = pair_plan("tuple")
    arguments = tuple(replace(a, name=f"the_{a.name}") for a in plan.arguments)
    f = program(replace(plan, arguments=arguments))
    values = {"".join(["the_", name]): floats(8, seed=i) for i, name in enumerate("ba")}
    np.testing.assert_array_equal(f(**values)[0], values["the_a"] + values["the_b"])
    with pytest.raises(UserTypeError, match="has no argument 'the_c'"):
        f(floats(8), **{"".join(["the_", "c"]): floats(8)})


def test_counts_and_memory_stay_flat() -> None:
    f, released = program(muladd_plan()), program(muladd_plan(nogil=True))
    plain = program(muladd_plan(), plain=True)
    structures: list[Structure] = ["tuple", "list", "dict"]
    pairs = [program(pair_plan(structure)) for structure in structures]
    a, b, c, out = (floats(8, seed=s) for s in range(4))
    rows, outs = np.empty((2, 4), "f4"), [out, np.empty((2, 4), "f4")]
    watched = (a, b, c, out, rows, outs, outs[1], F4, f, released)

    def rounds(count: int) -> None:
        for _ in range(count):
            f(a, b, c)
            f(a, b, c, out=out)
            f(a, out=out, c=c, b=b)
            released(a, b, c, out=out)
            for pair in pairs:
                pair(a, b=b)
            pairs[0](a, b, out=(out, rows))
            pairs[1](b=b, a=a, out=outs)

    def slow_rounds(count: int) -> None:
        for _ in range(count):
            f(a, b[::-1], c)
            pairs[2](a, b, out={"x": out, "y": rows})
            plain(a, b, c)
            with pytest.raises(UserError):
                f(a, b, c, out=a)

    def resident() -> int:
        with open("/proc/self/statm", encoding="utf-8") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    rounds(1000)
    slow_rounds(1000)
    counts = [sys.getrefcount(thing) for thing in watched]
    before = resident()
    rounds(100_000)
    slow_rounds(3000)
    assert counts == [sys.getrefcount(thing) for thing in watched]
    assert resident() - before < 2 << 20


def test_programs_are_freed() -> None:
    constant = floats(8)
    plan = muladd_plan(
        arguments=muladd_plan().arguments[:2],
        launches=(Launch("muladd", words(0, 1, 4, 2)),),
        constants=(constant,),
        arena_bytes=1 << 16,
    )
    code = load(compile_object(KERNELS))
    gone = weakref.ref(code.memory)
    count = sys.getrefcount(constant)
    programs = [make_callable(plan, code, ProgramBase) for _ in range(50)]
    programs[0].me = programs[0]  # type: ignore[attr-defined]
    a = floats(8)
    np.testing.assert_array_equal(programs[0](a, a), a * a + constant)
    del code
    assert gone() is not None
    del programs
    gc.collect()
    assert gone() is None
    del plan
    assert sys.getrefcount(constant) == count - 1


# --- shapes of results ----------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
def test_structures(plain: bool) -> None:
    a, b = floats(8), floats(8, seed=1)
    sequences: list[tuple[Any, type]] = [("tuple", tuple), ("list", list)]
    for structure, kind in sequences:
        f = program(pair_plan(structure), plain)
        for _ in range(1000):
            answer = f(a, b)
        assert type(answer) is kind and len(answer) == 2
        np.testing.assert_array_equal(answer[0], a + b)
        np.testing.assert_array_equal(answer[1], (a + a).reshape(2, 4))
        counts = [sys.getrefcount(answer[i]) for i in range(2)]
        assert counts == [2, 2]
        outs = (np.empty(8, "f4"), None)
        answer = f(a, b, out=outs)
        assert answer[0] is outs[0] and answer[1].shape == (2, 4)
        with pytest.raises(UserTypeError, match=r"out: expected a \w+ of 2 arrays"):
            f(a, b, out=outs[0])
        with pytest.raises(UserError, match=r"out\[1\] overlaps out\[0\]"):
            f(a, b, out=(outs[0], outs[0].reshape(2, 4)))
    f = program(pair_plan("dict"), plain)
    named = f(a, b)
    assert list(named) == ["x", "y"]
    np.testing.assert_array_equal(named["x"], a + b)
    assert f(a, b, out={"x": outs[0], "y": None})["x"] is outs[0]
    with pytest.raises(UserTypeError, match="keys"):
        f(a, b, out={"x": outs[0]})


@pytest.mark.parametrize("plain", [False, True])
def test_assign_hands_the_argument_back(plain: bool) -> None:
    arguments = (Argument("state", F4, (8,), writable=True), Argument("step", F4, (8,)))
    launch = Launch("add", words(0, 1, 0))
    f = program(Plan(arguments, (Result(F4, (8,), source=0),), (launch,)), plain)
    state, step = floats(8), floats(8, seed=1)
    expected, count = state + step, sys.getrefcount(state)
    for _ in range(3):
        assert f(state, step) is state
        np.testing.assert_array_equal(state, expected)
        expected = state + step
    assert sys.getrefcount(state) == count
    view = memoryview(state)
    assert f(view, step) is view
    state = floats(16)
    with pytest.raises(UserError, match=r"'step' overlaps argument 'state'.*'state' is written"):
        f(state[:8], state[4:12])
    with pytest.raises(UserError, match=r"'state' is written.*not contiguous"):
        f(state[::2], step)
    state.flags.writeable = False
    with pytest.raises(UserError, match=r"'state' is written.*read-only"):
        f(state[:8], step)
    with pytest.raises(UserTypeError, match="itself"):
        f(floats(8), step, out=np.empty(8, "f4"))
    mixed = Plan(
        arguments,
        (Result(F4, (8,)), Result(F4, (8,), source=0), Result(F4, (8,))),
        (launch, Launch("double", words(0, 2)), Launch("copy", words(1, 3))),
        structure="tuple",
    )
    mine = floats(8)
    doubled, same, copied = program(mixed, plain)(mine, step)
    assert same is mine
    np.testing.assert_array_equal(doubled, mine + mine)
    np.testing.assert_array_equal(copied, step)


@pytest.mark.parametrize("plain", [False, True])
def test_empty_and_scalar_arrays(plain: bool) -> None:
    f = program(muladd_plan(0), plain)
    empty = np.empty(0, "f4")
    assert f(empty, empty, empty).shape == (0,)
    assert f(empty, empty, empty, out=empty) is empty
    scalar = Plan(
        (Argument("x", F4, ()),), (Result(F4, ()),), (Launch("double", words(0, 1, count=1)),)
    )
    f = program(scalar, plain)
    for value in (np.array(3, "f4"), np.float32(3)):
        result = f(value)
        assert type(result) is np.ndarray and result.shape == () and result == 6
    with pytest.raises(UserTypeError, match=r"expected an array, got float; .* np.float64\("):
        program(muladd_plan(), plain)(3.0, 3.0, 3.0)
    with pytest.raises(UserError, match=r"expected float32\[\], got float32\[1\]"):
        f(np.zeros(1, "f4"))
    nothing = program(Plan((), (), (), structure="tuple"), plain)
    assert nothing() == ()
    constant = floats(8)
    alone = Plan((), (Result(F4, (8,)),), (Launch("copy", words(2, 0)),), constants=(constant,))
    np.testing.assert_array_equal(program(alone, plain)(), constant)
    no_chunks = muladd_plan(launches=(Launch("muladd", words(0, 1, 2, 3), chunks=0),))
    a = floats(8)
    assert program(no_chunks, plain)(a, a, a).shape == (8,)


@pytest.mark.parametrize("plain", [False, True])
def test_no_memory_for_a_result(plain: bool) -> None:
    results = (Result(F4, (8,)), Result(F4, (1 << 58,)))
    plan = Plan((Argument("x", F4, (8,)),), results, (), structure="tuple", arena_bytes=64)
    f = program(plan, plain)
    x = floats(8)
    count = sys.getrefcount(x), sys.getrefcount(F4)
    for _ in range(100):
        with pytest.raises(MemoryError):
            f(x)
    assert count == (sys.getrefcount(x), sys.getrefcount(F4))
    assert f._runner.arena.acquire(64)[1] is f._runner.arena


@pytest.mark.parametrize("plain", [False, True])
def test_a_large_result_does_not_lie_a_little_ahead_of_what_is_read(plain: bool) -> None:
    """Wherever an argument begins in its page, NumPy's memory for the result would at some."""
    n = memory_plan.LARGE // 4
    f = program(muladd_plan(n, arguments=tuple(Argument(k, F4, (n,)) for k in "abc")), plain)
    memory, c = np.ones(n + 1024, "f4"), floats(n)
    byte = np.dtype(np.uint8)
    counts, chosen = (sys.getrefcount(F4), sys.getrefcount(byte)), 0
    for begin in range(0, 1024, 16):
        a = memory[begin : begin + n]
        result = f(a, memory[:n], c)
        starts = [layout.data_address(x) for x in (a, memory, c)]
        assert not memory_plan.is_ahead(layout.data_address(result), starts)
        assert result.flags.carray and result.dtype is F4 and result.shape == (n,)
        np.testing.assert_array_equal(result, c + 1)
        chosen += result.base is not None
        del result, a
    assert chosen
    assert counts == (sys.getrefcount(F4), sys.getrefcount(byte))


@pytest.mark.parametrize("plain", [False, True])
def test_a_large_result_where_each_place_is_ahead_of_an_argument(plain: bool) -> None:
    n = memory_plan.LARGE // 4
    arguments = tuple(Argument(f"x{i}", F4, (n,)) for i in range(24))
    f = program(muladd_plan(n, arguments=arguments, launches=(
        Launch("muladd", words(0, 1, 2, 24, count=n)),)), plain)  # fmt: skip
    memory = np.ones(n + 1024, "f4")
    given = [memory[begin : begin + n] for begin in range(0, 24 * 44, 44)]
    np.testing.assert_array_equal(f(*given), np.full(n, 2, "f4"))


def test_layout_check_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(layout.OFFSETS, "flags", layout.OFFSETS["ndim"])
    assert not layout.is_layout_known.__wrapped__()
    monkeypatch.setattr(callables, "native_calls_work", lambda: False)
    a = floats(8)
    f = program(muladd_plan())
    assert type(f) is ProgramBase
    np.testing.assert_array_equal(f(a, a, a), a * a + a)


def test_small_dtypes() -> None:
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16, np.bool_, np.int64):
        kind = np.dtype(dtype)
        plan = Plan((Argument("x", kind, (2, 3)),), (Result(kind, (3, 2)),), ())
        f = program(plan)
        assert type(f) is not ProgramBase
        assert f(np.zeros((2, 3), dtype)).dtype == kind
        with pytest.raises(UserTypeError, match="got float32"):
            f(np.zeros((2, 3), "f4"))


@pytest.mark.parametrize("plain", [False, True])
def test_many_arguments(plain: bool) -> None:
    count = 300
    plan = Plan(
        tuple(Argument(f"x{i}", F4, (4,)) for i in range(count)),
        (Result(F4, (4,)),),
        (
            Launch("copy", words(0, count, count=4)),
            *(Launch("add", words(i, count, count, count=4)) for i in range(1, count)),
        ),
    )
    arrays = [np.full(4, i, "f4") for i in range(count)]
    f = program(plan, plain)
    assert (f(*arrays) == sum(range(count))).all()
    assert (f(**{f"x{i}": array for i, array in enumerate(arrays)}) == sum(range(count))).all()


# --- symbolic sizes -------------------------------------------------------------------------------


def symbolic_plan() -> Plan:
    n = DimValue((("variable", "n", ()),))
    twice = times("n", 2)
    return Plan(
        arguments=(
            Argument("x", F4, (n, 4)),
            Argument("y", F4, (twice, 4)),
            Argument("z", F4, (n, 4)),
        ),
        variables=(Variable("n", 1, 10), Variable("k", 0, 3)),
        results=(Result(F4, (n, 4)),),
        launches=(
            # The row of y that k names is added to the arena's copy of x's first row.
            Launch("copy", (Pointer(0), Pointer(4), Scalar(4))),
            Launch("add", (Pointer(0), Pointer(2), Pointer(3), Scalar(4)), chunks=n),
            Launch(
                "add",
                (
                    Pointer(1, times("k", 16)),
                    Pointer(4),
                    Pointer(3),
                    Scalar(4),
                ),
            ),
        ),
        arena_bytes=times("n", 64),
        name="rows",
    )


def test_symbolic_sizes() -> None:
    f = program(symbolic_plan())
    assert k_default_missing(f)
    for n in (1, 5, 10, 2):
        x, y, z = floats(n, 4), floats(2 * n, 4, seed=1), floats(n, 4, seed=2)
        for k in range(2):
            expected = x + z
            expected[0] = y[k] + x[0]
            np.testing.assert_array_equal(f(x, y, z, k=k), expected)
            np.testing.assert_array_equal(f(x, y, z, k=np.int64(k), n=n), expected)
            out = np.empty_like(x)
            assert f(x, y, z, k=k, out=out) is out
            np.testing.assert_array_equal(out, expected)
    x, y, z = floats(3, 4), floats(6, 4), floats(3, 4)
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"z": z[:2]},
            r"'z': expected float32\[n, 4\], got .*\[2, 4\].*must be 3 \(n = 3 from dim",
        ),
        ({"y": y[:5]}, r"'y': expected float32\[n\*2, 4\].*dimension 0 must be 6"),
        ({"x": x[:, :3]}, r"'x': expected float32\[n, 4\], got float32\[3, 3\]"),
        ({"k": 4}, r"variable 'k' is 4 \(from the call\), expected 0..3"),
        ({"k": 1.0}, "variable 'k': expected an integer, got float"),
        ({"n": 4}, "'n' is 4 by name, but 3 from dimension 0 of argument 'x'"),
        ({"m": 4}, "no argument 'm'; it has k, n, x, y, z"),
        ({"out": np.empty((2, 4), "f4")}, "out: expected"),
    ]
    for change, pattern in cases:
        with pytest.raises(UserError, match=pattern):
            f(**{"x": x, "y": y, "z": z, "k": 0, **change})
    with pytest.raises(UserError, match=r"'n' is 11 \(from dimension 0 of argument 'x'\).*1\.\.10"):
        f(floats(11, 4), floats(22, 4), floats(11, 4), k=0)


def row_arguments(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return floats(n, 4, seed=seed), floats(2 * n, 4, seed=seed + 1), floats(n, 4, seed=seed + 2)


def rows_of(x: np.ndarray, y: np.ndarray, z: np.ndarray, k: int) -> np.ndarray:
    expected = x + z
    expected[0] = y[k] + x[0]
    return expected


class Counted:
    """Counts the calls of a program that Python does."""

    def __init__(self, f: ProgramBase, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, bind = 0, f._runner.bind

        def counted(*args: Any) -> Any:
            self.calls += 1
            return bind(*args)

        monkeypatch.setattr(f._runner, "bind", counted)


def test_calls_of_any_sizes_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    f = program(symbolic_plan())
    counted = Counted(f, monkeypatch)

    def python_calls(*args: Any, **named: Any) -> int:
        counted.calls = 0
        np.testing.assert_array_equal(f(*args, **named), rows_of(*args[:3], named["k"]))
        return counted.calls

    one, other = row_arguments(3), row_arguments(7, seed=3)
    # The first call, and one that needs more scratch memory than all before it, go to Python.
    assert [python_calls(*one, k=1), python_calls(*other, k=0)] == [1, 1]
    assert [python_calls(*row_arguments(n), k=n % 4) for n in (1, 7, 2, 6, 3)] == [0] * 5
    assert python_calls(*one, k=0, n=3) == 0
    assert python_calls(*one, k=np.int64(1)) == 0
    assert python_calls(*one, k=1, out=np.empty_like(one[0])) == 0
    x, y, z = row_arguments(6)
    assert python_calls(x[::2], y[::-2][:6], np.asfortranarray(z)[1:4], k=1) == 0
    with pytest.raises(UserTypeError, match="needs variable 'k' by name"):
        f(*one)
    with pytest.raises(UserTypeError, match="takes 3 arrays"):
        f(*one, 1)
    assert python_calls(*one, k=1) == 0


NUMBERS = [
    True, False, 0, 1, -1, 127, 128, 255, 256, -129, 65504, 65520, 1 << 24, (1 << 24) + 1,
    (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 53) + 1, (1 << 62) + 3, (1 << 63) - 1, 1 << 63,
    -(1 << 63), (1 << 64) - 1, 1 << 64, 1 << 200, 1 << 2000, 0.0, -0.0, 0.1, 1e300, -1e39,
    3.4028236e38, 5e-324, 1e-46, float("inf"), float("nan"), 1j, np.float32(0.1), np.float64(0.1),
    np.int64(-3), np.int32(5), np.uint8(200), np.bool_(True), np.float16(2.5), None, "1",
]  # fmt: skip
NUMBER_TYPES = [
    "bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "bfloat16",
]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBER_TYPES)
def test_numbers_as_arguments(dtype: str) -> None:
    """A number is taken where the dtype holds it, as NumPy rounds it; both calls agree."""
    t = uopc.param("x", (), dtypes.by_name(dtype))
    f = uopc.compile(t.reshape(1).expand(3))
    for value in NUMBERS:
        outcomes = []
        for call in (f, lambda v: f._runner.call((v,), {})):
            try:
                outcomes.append(call(value)[1:2].tobytes())
            except UserError as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1], value
        kind, own = np.dtype(dtypes.by_name(dtype).numpy), type(value)
        held = {bool: dtype == "bool", int: dtype != "bool", float: "float" in dtype}.get(own)
        if own is int and held and "float" not in dtype:
            held = np.iinfo(kind).min <= value <= np.iinfo(kind).max
        if held is None:
            held = isinstance(value, np.generic) and value.dtype == kind
        if own is int and value == 1 << 2000:
            held = False
        assert held == isinstance(outcomes[0], bytes), value
        if held:
            with np.errstate(over="ignore"):
                exact = float(value) if own is int and "float" in dtype else value
                assert outcomes[0] == np.array(exact, kind).tobytes(), value


def test_fuzz_sizes_against_plain_call() -> None:
    native_call, plain_call = program(symbolic_plan()), program(symbolic_plan(), plain=True)
    random_ = random.Random(2)
    arrays = [row_arguments(n, seed) for n in (0, 1, 2, 9, 10, 11) for seed in (0, 3)]
    flat = floats(8)
    odd = [flat, flat.reshape(4, 2), flat.reshape(2, 4), floats(2, 4).astype("f8"), None]
    integers = [0, 1, 2, 3, 4, -1, True, np.int64(1), 1.0, 1 << 70, "1", None]

    seen = set()
    for _ in range(3000):
        args: list[Any] = list(random_.choice(arrays))
        named: dict[str, Any] = {"k": random_.choice((0, 1))}
        if random_.random() < 0.4:
            named["k"] = random_.choice(integers)
        if random_.random() < 0.1:
            del named["k"]
        if random_.random() < 0.1:
            named["n"] = random_.choice([len(args[0]), *integers])
        if random_.random() < 0.1:
            args[random_.randrange(3)] = random_.choice([*odd, random_.choice(arrays)[0]])
        if random_.random() < 0.1:
            args += [random_.choice((0, 1, flat))]
        if random_.random() < 0.1:
            named["z"] = args.pop()
        if random_.random() < 0.2:
            named["out"] = random_.choice([np.empty_like(args[0]), flat, args[0]])
        if random_.random() < 0.05:
            named["other"] = 1
        for _ in range(random_.choice((1, 1, 3))):  # equal sizes come again
            first = outcome(native_call, args, named)
            assert first == outcome(plain_call, args, named), (args, named)
            seen.add(first[0])
    assert seen >= {np.ndarray, UserError, UserTypeError}


@pytest.mark.parametrize("nogil", [False, True])
def test_concurrent_calls_of_different_sizes(nogil: bool) -> None:
    f = program(replace(symbolic_plan(), nogil=nogil))
    wrong = []

    def work(seed: int) -> None:
        random_ = random.Random(seed)
        for _ in range(150):
            args, k = row_arguments(random_.randrange(1, 11), seed), random_.randrange(2)
            expected = rows_of(*args, k)
            for _ in range(random_.randrange(1, 6)):
                if not np.array_equal(f(*args, k=k), expected):
                    wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_program_with_variables_is_freed() -> None:
    code = load(compile_object(KERNELS))
    gone = weakref.ref(code.memory)
    f = make_callable(symbolic_plan(), code, ProgramBase)
    del code
    args, out = row_arguments(4), np.empty((4, 4), "f4")
    counts = [sys.getrefcount(thing) for thing in (*args, out)]
    for n in (4, 5):
        for _ in range(50):
            f(*args, k=1, out=out)
            f(*row_arguments(n), k=0)
    assert counts == [sys.getrefcount(thing) for thing in (*args, out)]
    gc.disable()
    del f
    gc.enable()
    assert gone() is None


def k_default_missing(f: ProgramBase) -> bool:
    with pytest.raises(UserTypeError, match="needs variable 'k' by name"):
        f(floats(1, 4), floats(2, 4), floats(1, 4))
    return True


# --- arena, nesting, garbage, threads -------------------------------------------------------------


def arena_plan(**changes: Any) -> Plan:
    """out = (x + x) + x, through the arena, 64 bytes in."""
    plan = Plan(
        (Argument("x", F4, (1024,)),),
        (Result(F4, (1024,)),),
        (
            Launch("double", (Pointer(0), Pointer(2, 64), Scalar(256)), 4, parallel=True),
            Launch("add", (Pointer(0), Pointer(2, 64), Pointer(1), Scalar(64)), 16, parallel=True),
        ),
        arena_bytes=64 + 4096,
    )
    return replace(plan, **changes)


@pytest.mark.parametrize("plain", [False, True])
def test_nested_call_has_its_own_arena(plain: bool) -> None:
    nested: dict[int, np.ndarray] = {}
    depth: list[int] = []
    f: ProgramBase

    def inside(_: int, chunk: int) -> None:
        if len(depth) < 3:
            seed = len(depth) + 1
            depth.append(seed)
            nested[seed] = f(floats(1024, seed=seed))

    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(inside)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    code = Image({**image().symbols, "inside": address}, (image().memory, callback))
    first, second = arena_plan().launches
    f = make_callable(
        arena_plan(launches=(first, Launch("inside", ()), second)), code, ProgramBase, plain
    )
    x = floats(1024)
    np.testing.assert_array_equal(f(x), (x + x) + x)
    assert len(nested) == 3
    for seed, result in nested.items():
        x = floats(1024, seed=seed)
        np.testing.assert_array_equal(result, (x + x) + x)
    np.testing.assert_array_equal(f(x), (x + x) + x)


def test_finalizers_in_a_cycle_may_call() -> None:
    results = []

    class Owner:
        def __init__(self, seed: int) -> None:
            self.me = self
            self.f = make_callable(arena_plan(), load(compile_object(KERNELS)), ProgramBase)
            self.f.owner = self  # type: ignore[attr-defined]
            self.x = floats(1024, seed=seed)

        def __del__(self) -> None:
            results.append(np.array_equal(self.f(self.x), (self.x + self.x) + self.x))

    gone = []
    for seed in range(30):
        owner = Owner(seed)
        gone.append(weakref.ref(owner.f))
        del owner
    gc.collect()
    assert results == [True] * 30 and not any(reference() for reference in gone)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("nogil", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_concurrent_calls(threads: int, nogil: bool, plain: bool) -> None:
    f = program(arena_plan(threads=threads, nogil=nogil), plain)
    wrong = []

    def work(seed: int) -> None:
        x = floats(1024, seed=seed)
        expected, out = (x + x) + x, np.empty_like(x)
        for _ in range(150):
            if not np.array_equal(f(x), expected) or not np.array_equal(f(x, out=out), expected):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


TEAMS: list[pool.Pool] = []  # workers stay in the memory of their pool


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_chunk_runs_once(threads: int) -> None:
    runtime = native.install()
    team = pool.Pool(runtime)
    TEAMS.append(team)
    assert team.grow(threads - 1) == threads - 1
    mark = image().symbols["mark"]
    for repeat in range(100):
        for chunks in range(18):
            counts = np.zeros(20, np.int64)
            context = np.array([counts.ctypes.data])
            runtime.spread(team.address, mark, context.ctypes.data, chunks, threads - 1)
            assert (counts[:chunks] == 1).all() and not counts[chunks:].any()
        if repeat % 10 == 0:
            time.sleep(0.002)  # long enough for the workers to park


def test_fork() -> None:
    f = program(arena_plan(threads=3))
    x = floats(1024)
    expected = (x + x) + x
    assert np.array_equal(f(x), expected)
    for _ in range(5):
        token = f._runner.arena.acquire(64)[1]  # as if another thread were in the program
        child = os.fork()
        if child == 0:
            try:
                arena = f._runner.arena
                free = arena.acquire(64)[1] is arena
                arena.release(arena)
                good = pool.stale and all(np.array_equal(f(x), expected) for _ in range(50))
            finally:  # the child must not go on with other tests, whatever it raised
                os._exit(0 if free and good and not pool.stale else 1)
        f._runner.arena.release(token)
        assert np.array_equal(f(x), expected)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_waits_for_no_lock_that_its_child_would_need() -> None:
    """Another thread holds each lock for a moment, and computes a value that is kept."""
    inside, going_on = threading.Event(), threading.Event()

    class Slow:
        @forks.cached_property
        def value(self) -> int:
            inside.set()
            going_on.wait(10)
            return 1

    other = threading.Thread(target=lambda: Slow().value)
    other.start()
    inside.wait(10)
    lock = threading.Lock()
    forks.wait_for(lock)
    lock.acquire()
    threading.Timer(0.05, lock.release).start()
    inside.clear()
    child = os.fork()
    if child == 0:
        going_on.set()
        os._exit(0 if lock.acquire(timeout=5) and Slow().value == 1 else 1)
    going_on.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    forks._locks.pop(lock)


@pytest.mark.slow
def test_exit_with_workers() -> None:
    here = "from tests.backends.cpu.test_runtime import arena_plan, floats, program"
    script = f"{here}; program(arena_plan(threads=3))(floats(1024))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", script], env=environment, timeout=60)
        assert done.returncode == 0


def test_trace() -> None:
    x = floats(1024)
    for f in (program(arena_plan(threads=2)), program(arena_plan(), plain=True)):
        begin = time.perf_counter()
        result, times = f._runner.trace((x,), {})
        elapsed = time.perf_counter() - begin
        np.testing.assert_array_equal(result, (x + x) + x)
        assert [kernel for kernel, _ in times] == ["double", "add"]
        assert all(0 < seconds < elapsed for _, seconds in times)


@pytest.mark.machine("this")
def test_thread_count() -> None:
    assert 1 <= detect.cores() <= len(os.sched_getaffinity(0))


@pytest.mark.machine("this")
@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 4), (2.5, 3), (0.2, 1), (64.0, 4)])
def test_threads_are_processors_that_may_be_used(
    quota: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5, 7})
    monkeypatch.setattr(detect, "_processor_quota", lambda: quota)
    assert detect.cores() == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, math.inf),
        ({"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, math.inf),
        ({}, math.inf),
    ],
)
def test_the_quota_of_a_group(files: dict[str, str], expected: float, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n", "utf-8")
    assert detect._quota_of(tmp_path) == expected


def awake() -> list[int]:
    """The threads of this process, other than this one, that run or wait for a processor."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end
            state = (task / "stat").read_text("utf-8").rpartition(") ")[2][0]
            if state != "S" and int(task.name) != threading.get_native_id():
                found.append(int(task.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux shows states of threads")
def test_workers_spin_briefly_then_park() -> None:
    """A worker that went on spinning would take a whole processor from its neighbours. On a loaded
    machine it gets its turn to park late, but it does park."""
    f, x = program(arena_plan(threads=3)), floats(1024)
    for pause in (0.0, 0.05, 0.0):  # hot, and parked in between
        np.testing.assert_array_equal(f(x), (x + x) + x)
        time.sleep(pause)
    for _ in range(600):
        if not awake():
            break
        time.sleep(0.1)
    assert not awake()


def test_work_is_shared_from_a_threshold_on() -> None:
    for n, shared in ((thresholds.THREAD_WORK // 4, False), (thresholds.THREAD_WORK, True)):
        (kernel,) = uopc.compile(uopc.param("x", (n,)) + 1.0, threads=2).kernels
        assert any(opt.op == "THREAD" for opt in kernel.opts) == shared


def test_call_is_faster_than_numpy() -> None:
    f = program(muladd_plan())
    a, b, c = (floats(8, seed=s) for s in range(3))

    def best(call: Callable[[], object]) -> float:
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            for _ in range(2000):
                call()
            times.append(time.perf_counter() - begin)
        return min(times)

    assert best(lambda: f(a, b, c)) < best(lambda: a * b + c)
