"""Calls of programs with variables: sizes, numbers as arguments, threads."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import uopc
from tests.backends.cpu.plans import (
    F4,
    KERNELS,
    floats,
    outcome,
    program,
    times,
)
from uopc import dtypes
from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.cpu.elf_loader import load
from uopc.backends.llvm.jit import compile_object
from uopc.backends.plan import (
    Argument,
    DimValue,
    Plan,
    PlannedLaunch,
    Pointer,
    ResultArray,
    Scalar,
    Variable,
)  # fmt: skip
from uopc.errors import UserError, UserTypeError


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
        results=(ResultArray(F4, (n, 4)),),
        launches=(
            # The row of y that k names is added to the arena's copy of x's first row.
            PlannedLaunch("copy", (Pointer(0), Pointer(4), Scalar(4))),
            PlannedLaunch("add", (Pointer(0), Pointer(2), Pointer(3), Scalar(4)), chunks=n),
            PlannedLaunch(
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


def test_calls_of_sizes_without_bounds_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their conditions say that 64 bits hold all indices, and so do the instructions for sizes."""
    n, m, k = (uopc.variable(name, 1, 1 << 47) for name in "nmk")
    x = uopc.param("x", (n, m, k))
    f = uopc.compile(x.flip(1).reshape(n * m * k), threads=1)
    counted = Counted(f, monkeypatch)
    given = floats(3, 4, 5)
    np.testing.assert_array_equal(f(given), given[:, ::-1].reshape(-1))
    assert counted.calls == 0


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

    with ThreadPoolExecutor(4) as workers:  # raises what a worker raises
        list(workers.map(work, range(4)))
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
