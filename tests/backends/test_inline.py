"""Long branches are functions: one for all places that have the same, and the same numbers."""

import ctypes
import pickle
import re

import numpy as np
import pytest

import uopc
from uopc.backends import detect
from uopc.backends.cpu import elf_loader
from uopc.backends.inline import SHORTEST, inlined, outlined
from uopc.backends.llvm import emitter as llvm
from uopc.backends.llvm import jit, split_function
from uopc.driver import lower_only
from uopc.errors import InvalidIR
from uopc.ir.builder import leaves
from uopc.ir.core import dtypes
from uopc.ir.core.args import FunctionArg, KernelArg, NumberArg, RangeArg
from uopc.ir.core.calls import function_body, function_statements
from uopc.ir.core.dtype_rules import derived
from uopc.ir.core.levels import LINEAR, VECTOR
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.core.walk import toposort
from uopc.ir.interpret.machine import run_kernel
from uopc.ir.text.printer import parse, print_graph
from uopc.ir.verify.verifier import verify
from uopc.passes.decompose.functions import expansion_cache

ANGLES = np.concatenate([
    np.random.default_rng(0).standard_normal(50) * 10,
    np.random.default_rng(1).standard_normal(50) * 1e15,
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e-300],
])  # fmt: skip


def functions(name, n, dtype, shape=ANGLES.shape):
    """The function of n multiples of an array."""
    x = uopc.param("x", shape, dtype=dtype)
    return [getattr(x * (1.0 + i / 8), name)() for i in range(n)]


def sources(program):
    return "\n".join(k.source for k in program.kernels)


def count(program, what):
    return sources(program).count(what)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", ["sin", "cos", "tan", "log"])
def test_numbers_on_both_sides_of_the_branch(name, dtype):
    n = 5
    program = uopc.compile(uopc.stack(*functions(name, n, dtype)).sum(0))
    t = np.float32 if dtype is dtypes.float32 else np.float64
    with np.errstate(all="ignore"):
        given = ANGLES.astype(t)
        parts = [given * t(1.0 + i / 8) for i in range(n)]
        expected = sum(getattr(np, name)(p.astype(np.longdouble)) for p in parts).astype(t)
        largest = sum(abs(getattr(np, name)(p)) for p in parts)
    got, finite = program(given), np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    error = abs(got - expected)[finite] / np.spacing(largest[finite])
    assert error.max() <= 8


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_many_places_share_a_function_and_few_do_not(dtype):
    few, many = (uopc.compile(sum(functions("cos", n, dtype))) for n in (3, 8))
    assert count(few, "define internal") == 0
    assert count(many, "define internal") == 1 and count(many, " cold") == 8


def test_kernels_of_a_module_share_the_function():
    graphs = [sum(functions("cos", 6, dtypes.float64, (n,))) for n in (64, 80)]
    lists = [uopc.compile(g).kernels[0].uops for g in graphs]
    text = llvm.module([split_function.render(f"k{i}", k) for i, k in enumerate(lists)])
    assert text.count("define internal") == 1 and text.count(" cold") == 12


@pytest.mark.machine("desktop")
def test_functions_stand_in_place_where_they_are_few():
    """The list of a kernel has a function once; code has it for each of few uses."""
    for n, applied in ((3, 0), (8, 8)):
        kernel = uopc.compile(sum(functions("sin", n, dtypes.float64))).kernels[0].uops
        made = outlined(kernel)
        verify(made, LINEAR)
        assert sum(u.op is Ops.FUNCTION for u in kernel.src) == 1
        assert sum(u.op is Ops.APPLY for u in made.src) == applied
        (body,) = {u.src[0] for u in kernel.src if u.op is Ops.APPLY}
        assert len(function_body(body)) > SHORTEST


@pytest.mark.machine("desktop")
def test_a_kernel_of_several_functions_calls_it():
    x = uopc.param("x", (), dtype=dtypes.float64)
    y = x
    for i in range(130):
        y = ((y + float(i)).sin() + float(i)).cos()
    program = uopc.compile(y)
    assert count(program, "define internal void") > 1
    assert count(program, "define internal double @apply_huge_sin_") == 1
    expected = np.float64(0.3)
    for i in range(130):
        expected = np.cos(np.sin(expected + float(i)) + float(i))
    np.testing.assert_allclose(program(np.float64(0.3)), expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", ["sin", "cos", "tan", "log", "log2", "tanh", "erf"])
def test_very_many_functions_are_calls_of_one(name, dtype, monkeypatch):
    """The same bits as in place, on both sides of the branch."""
    graph = sum(functions(name, 5, dtype))
    with np.errstate(over="ignore"):
        given = ANGLES.astype(dtype.numpy)
    got = []
    for most in (100, 10**6):
        monkeypatch.setattr(expansion_cache, "MOST_COPIED", most)
        with uopc.options(cache_dir="", programs=0, threads=1):
            program = uopc.compile(graph)
        defined = re.findall(rf"define internal .*@apply_{name}_", sources(program))
        assert bool(defined) == (most < 10**6)
        got.append(program(given))
    np.testing.assert_array_equal(*got)


def test_a_call_that_is_not_rare_is_not_marked_so():
    program = uopc.compile(sum(functions("sin", 150, dtypes.float64)))
    called = re.findall(r" = call .*@apply_sin_.*", sources(program))
    assert len(called) >= 150 and not any("cold" in line for line in called)


def test_the_passes_have_few_nodes_of_very_many_functions():
    """Three a function: what it is of, the APPLY, and the sum. In place a sine has 36."""
    (kernel,) = lower_only(sum(functions("sin", 240, dtypes.float64, (4,)))).kernels
    assert len(kernel.src) < 240 * 4 + 50
    assert sum(u.op is Ops.APPLY for u in kernel.src) == 240


def test_functions_with_branches_mean_the_same_at_every_level(monkeypatch):
    monkeypatch.setattr(expansion_cache, "MOST_COPIED", 100)
    graph = sum(functions("sin", 5, dtypes.float64, (5,)))
    given = np.array([0.5, 1e300, -3e15, np.inf, np.nan])
    lowered, expected = lower_only(graph), uopc.compile(graph)(given)
    seen = 0
    for run in lowered.runs:
        for kernel in run.after if run.name in ("decompose", "linearize", "fuse-products") else ():
            assert parse(print_graph(kernel)) is kernel
            made = [kernel, inlined(kernel)] if kernel.op is Ops.LINEAR else [kernel]
            for k in made:
                got = np.zeros_like(expected)
                run_kernel(k, [got, given])
                np.testing.assert_array_equal(got, expected)
                seen += 1
    assert seen == 5  # lists twice


def nested_branches():
    """A list whose function has a branch in a branch, applied to four multiples of an element."""
    f32, index = dtypes.float32, dtypes.index
    x = UOp(Ops.NUMBER, f32, (), NumberArg(0))
    twice, ten = x * 2.0, x * 10.0
    inner = UOp(Ops.BRANCH, f32, (ten + twice, ten > 25.0, (ten + twice).sqrt()))
    value = UOp(Ops.BRANCH, f32, (twice, x > 1.0, inner)) + twice
    body = UOp(Ops.FUNCTION, dtypes.void, (value,), FunctionArg("nested"))
    r = UOp(Ops.RANGE, index, (leaves.const(index, 8),), RangeArg((0,), "loop"))
    out, given = [UOp(Ops.INDEX, f32, (uopc.kernel_param(i, (8,)), r)) for i in range(2)]
    load = UOp(Ops.LOAD, f32, (given,))
    parts = [UOp(Ops.APPLY, f32, (body, load * float(i))) for i in range(1, 5)]
    store = UOp(Ops.STORE, dtypes.void, (out, parts[0] + parts[1] + parts[2] + parts[3]))
    order = [u for u in toposort(store, lambda u: u.op is not Ops.FUNCTION) if u is not body]
    end = UOp(Ops.END, dtypes.void, (r,))
    return UOp(Ops.LINEAR, dtypes.void, (body, *order, end), KernelArg("k", ()))


def test_branches_in_a_function():
    """A value that only the last operand of a branch needs is computed under an IF of its own."""
    kernel = nested_branches()
    a = np.array([-1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, np.nan], "f4")
    expected = np.zeros(8, "f4")
    for i in range(1, 5):
        x = a * np.float32(i)
        with np.errstate(invalid="ignore"):
            many = np.where(x * 10 > 25, np.sqrt(x * 10 + x * 2), x * 10 + x * 2)
        expected += np.where(x > 1, many, x * 2) + x * 2
    in_place = inlined(kernel)
    assert sum(u.op is Ops.IF for u in in_place.src) == 8
    statements = function_statements(kernel.src[0])
    assert [u.op.name for u in statements if u.op in (Ops.IF, Ops.ENDIF, Ops.BRANCH, Ops.SQRT)] == [
        "if", "if", "sqrt", "endif", "branch", "endif", "branch",
    ]  # fmt: skip
    for made in (kernel, in_place):
        verify(made, LINEAR)
        got = np.zeros(8, "f4")
        run_kernel(made, [got, a])
        np.testing.assert_array_equal(got, expected)
    for made in (kernel, in_place):
        text = llvm.module([split_function.render("k", made)])
        assert text.count("define internal float @apply_nested_") == (made is kernel)
        got = np.zeros(8, "f4")
        words = (ctypes.c_void_p * 2)(got.ctypes.data, a.ctypes.data)
        image = elf_loader.load(jit.compile_object(text), ("k",))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(image.symbols["k"])(words, 0)
        np.testing.assert_array_equal(got, expected)


def test_vectors_that_registers_do_not_hold_are_aligned():
    """Whatever the caller's stack is aligned to: no vector lies across two cache lines."""
    program = uopc.compile(sum(functions("sin", 9, dtypes.float64)))
    width = detect.host("").vector_bits // 8
    assert count(program, f"alignstack({width})") == (width > llvm.CALLERS_ALIGNMENT)
    x = uopc.param("x", (4096,))
    assert count(uopc.compile(x * 2 + 1), "alignstack") == 0


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["sin", "cos", "tan", "log"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_code_and_interpreter_give_the_same_bits(name, dtype):
    """Of the list of a kernel, with functions and with their nodes in place."""
    graph = uopc.stack(*functions(name, 5, dtype))
    kernel = uopc.compile(graph).kernels[0].uops
    assert parse(print_graph(kernel)) is kernel
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    with np.errstate(over="ignore"):
        given = ANGLES.astype(dtype.numpy)
    expected = uopc.compile(graph)(given)
    for made in (kernel, outlined(kernel), inlined(kernel)):
        verify(made, LINEAR)
        got = np.zeros_like(expected)
        run_kernel(made, [got, given])
        np.testing.assert_array_equal(got, expected)
        signed = ~np.isnan(expected)  # NaN has the sign that the machine gives it
        np.testing.assert_array_equal(np.signbit(got[signed]), np.signbit(expected[signed]))


def test_a_function_has_one_value():
    x = leaves.const(dtypes.float32, 1.0)
    body = UOp(Ops.FUNCTION, dtypes.void, (x, x), FunctionArg("two"))
    for function in (body, x):
        with pytest.raises(InvalidIR, match="expected a FUNCTION of one output"):
            derived(Ops.APPLY, dtypes.float32, (function, x), None)


def test_operands_fit_the_function():
    """The verifier names what does not fit, and what is no arithmetic."""
    number = UOp(Ops.NUMBER, dtypes.float32, (), NumberArg(0))
    one, storage = leaves.const(dtypes.float32, 1.0), uopc.kernel_param(0, (4,))
    address = UOp(Ops.INDEX, dtypes.float32, (storage, leaves.const(dtypes.index, 0)))
    load = UOp(Ops.LOAD, dtypes.float32, (address,))

    def verified(value, *operands):
        body = UOp(Ops.FUNCTION, dtypes.void, (value,), FunctionArg("f"))
        apply = UOp(Ops.APPLY, dtypes.float32, (body, *operands))
        store = UOp(Ops.STORE, dtypes.void, (address, apply))
        verify(UOp(Ops.SINK, dtypes.void, (store,), uopc.KernelInfo("k", opts=())), VECTOR)

    verified(abs(number), one)
    with pytest.raises(InvalidIR, match="a number in slot 0, of 0 operands"):
        verified(abs(number))
    with pytest.raises(InvalidIR, match="operand 1 is float64, the function's float32"):
        verified(abs(number), leaves.const(dtypes.float64, 1.0))
    with pytest.raises(InvalidIR, match="param in a function, expected arithmetic"):
        verified(load, one)
    inner = UOp(Ops.FUNCTION, dtypes.void, (abs(number),), FunctionArg("inner"))
    with pytest.raises(InvalidIR, match="function in a function, expected arithmetic"):
        verified(UOp(Ops.APPLY, dtypes.float32, (inner, number)), one)
