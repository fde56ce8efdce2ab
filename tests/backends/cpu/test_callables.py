"""Calls of programs: arguments, results, errors, memory. Kernels here are written by hand."""

from __future__ import annotations

import array
import ctypes
import gc
import os
import pickle
import random
import sys
import weakref
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.backends.cpu.plans import (
    F4,
    KERNELS,
    floats,
    image,
    muladd_plan,
    outcome,
    program,
    words,
)
from uopc import config
from uopc.backends import memory_plan
from uopc.backends.cpu import callables, layout
from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.cpu.elf_loader import load
from uopc.backends.llvm.jit import compile_object
from uopc.backends.plan import (
    Argument,
    Plan,
    PlannedLaunch,
    ResultArray,
    Structure,
)  # fmt: skip
from uopc.errors import UserError, UserTypeError


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
    f.note = "kept"  # type: ignore[attr-defined]  # any name, as of other objects
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
    f._owned = None  # type: ignore[attr-defined]  # a private name of the entry
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
        results=(ResultArray(F4, (8,)), ResultArray(F4, (2, 4))),
        launches=(PlannedLaunch("add", words(0, 1, 2)), PlannedLaunch("double", words(0, 3))),
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
        outs[0][...] = rows[0][...] = 0  # type: ignore[index]  # the first ones are arrays
        try:
            answer = f(*args, **named)
        except Exception as error:  # of whatever kind: both callables must raise it
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
    # Each kind of call runs 3,000 times or more; others may keep a few arrays.
    grown = [sys.getrefcount(thing) - count for thing, count in zip(watched, counts, strict=True)]
    assert max(grown) < 1000 and min(grown) > -1000, grown
    assert resident() - before < 2 << 20


def test_programs_are_freed() -> None:
    constant = floats(8)
    plan = muladd_plan(
        arguments=muladd_plan().arguments[:2],
        launches=(PlannedLaunch("muladd", words(0, 1, 4, 2)),),
        constants=(constant,),
        arena_bytes=1 << 16,
    )
    code = load(compile_object(KERNELS))
    gone = weakref.ref(code.memory)
    count = sys.getrefcount(constant)
    programs = [make_callable(plan, code, ProgramBase) for _ in range(50)]
    programs[0].me = programs[0]  # type: ignore[attr-defined]  # a cycle
    a = floats(8)
    np.testing.assert_array_equal(programs[0](a, a), a * a + constant)
    del code
    assert gone() is not None
    del programs
    gc.collect()
    assert gone() is None
    del plan
    assert sys.getrefcount(constant) == count - 1


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
    launch = PlannedLaunch("add", words(0, 1, 0))
    f = program(Plan(arguments, (ResultArray(F4, (8,), source=0),), (launch,)), plain)
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
        (ResultArray(F4, (8,)), ResultArray(F4, (8,), source=0), ResultArray(F4, (8,))),
        (launch, PlannedLaunch("double", words(0, 2)), PlannedLaunch("copy", words(1, 3))),
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
        (Argument("x", F4, ()),), (ResultArray(F4, ()),),
        (PlannedLaunch("double", words(0, 1, count=1)),),
    )  # fmt: skip
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
    alone = Plan(
        (), (ResultArray(F4, (8,)),), (PlannedLaunch("copy", words(2, 0)),), constants=(constant,)
    )
    np.testing.assert_array_equal(program(alone, plain)(), constant)
    no_chunks = muladd_plan(launches=(PlannedLaunch("muladd", words(0, 1, 2, 3), chunks=0),))
    a = floats(8)
    assert program(no_chunks, plain)(a, a, a).shape == (8,)


@pytest.mark.parametrize("plain", [False, True])
def test_no_memory_for_a_result(plain: bool) -> None:
    results = (ResultArray(F4, (8,)), ResultArray(F4, (1 << 58,)))
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
    count, places = sys.getrefcount(F4), set()
    for begin in range(0, 1024, 16):
        a = memory[begin : begin + n]
        result = f(a, memory[:n], c)
        starts = [layout.data_address(x) for x in (a, memory, c)]
        assert not memory_plan.is_ahead(layout.data_address(result), starts)
        assert result.flags.carray and result.dtype is F4 and result.shape == (n,)
        np.testing.assert_array_equal(result, c + 1)
        places.add(layout.data_address(result) % memory_plan.PAGE)
        del result, a
    assert len(places) > 1
    assert count == sys.getrefcount(F4)


@pytest.mark.parametrize("plain", [False, True])
def test_a_large_result_where_each_place_is_ahead_of_an_argument(plain: bool) -> None:
    n = memory_plan.LARGE // 4
    arguments = tuple(Argument(f"x{i}", F4, (n,)) for i in range(24))
    f = program(muladd_plan(n, arguments=arguments, launches=(
        PlannedLaunch("muladd", words(0, 1, 2, 24, count=n)),)), plain)  # fmt: skip
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
        plan = Plan((Argument("x", kind, (2, 3)),), (ResultArray(kind, (3, 2)),), ())
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
        (ResultArray(F4, (4,)),),
        (
            PlannedLaunch("copy", words(0, count, count=4)),
            *(PlannedLaunch("add", words(i, count, count, count=4)) for i in range(1, count)),
        ),
    )
    arrays = [np.full(4, i, "f4") for i in range(count)]
    f = program(plan, plain)
    assert (f(*arrays) == sum(range(count))).all()
    assert (f(**{f"x{i}": array for i, array in enumerate(arrays)}) == sum(range(count))).all()
