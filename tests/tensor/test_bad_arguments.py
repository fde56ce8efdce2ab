"""Every method of the contract, given arguments of every wrong kind: it takes them or says why."""

from __future__ import annotations

import inspect
import random

import numpy as np
import pytest

import uopc
from tests.test_public_api import METHODS
from uopc.ir.builder import kernel, movement
from uopc.tensor import creation

VALUES = [
    None, "x", "float32", b"x", object(), True, int, 1j, 1.5, -1, 0, 3, 10**20, float("nan"),
    float("inf"), [], [1, "a"], [[1]], (0,), (-1,), (1, 2, 3), ((0, 1),), {}, slice(1, 2), ...,
    range(3), np.arange(3), np.array("q"), np.float32(2), np.int64(1), uopc.param("q", (2,)),
    uopc.variable("n", 1, 4), uopc.dtypes.int32,
]  # fmt: skip
SOURCES = [
    uopc.param("a", (4, 3)), uopc.param("a", (2, 3, 8, 8)), uopc.param("b", (0, 3)),
    uopc.param("s", (), uopc.dtypes.int32), uopc.param("m", (4,), uopc.dtypes.bool),
]  # fmt: skip
FUNCTIONS = [
    "param", "variable", "constant", "arange", "full", "zeros", "ones", "eye", "where", "cat",
    "stack", "parse",
]  # fmt: skip
OPERATORS = [
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__truediv__", "__floordiv__",
    "__mod__", "__pow__", "__matmul__", "__lt__", "__le__", "__eq__", "__ne__", "__and__",
    "__or__", "__xor__", "__lshift__", "__rshift__", "__getitem__",
]  # fmt: skip
# Python's and NumPy's own messages for a value that is no condition are clear.
CONDITION = ("truth value", "unsupported operand", "positional argument", "unexpected keyword")
TRIES = 120


def arguments(function, rng):
    """Up to three arguments in a row, and perhaps one by its name."""
    names = [p.name for p in inspect.signature(function).parameters.values() if p.name != "self"]
    count = rng.randint(0, 3)
    given = [rng.choice(VALUES) for _ in range(count)]
    named = names[count:]
    keyword = {rng.choice(named): rng.choice(VALUES)} if named and rng.random() < 0.4 else {}
    return given, keyword


@pytest.mark.parametrize("name", [*METHODS, *OPERATORS, *FUNCTIONS])
def test_wrong_arguments_are_refused_by_name(name):
    rng = random.Random(name)
    raised = 0
    for _ in range(TRIES):
        owner = uopc if name in FUNCTIONS else rng.choice(SOURCES)
        function = getattr(owner, name)
        given, keyword = arguments(function, rng)
        try:
            function(*given, **keyword)
        except uopc.Error:
            raised += 1
        except (TypeError, ValueError) as error:
            raised += 1
            inside = error.__traceback__.tb_next is not None
            assert not inside or any(c in str(error) for c in CONDITION), (given, keyword, error)
    assert raised or name in ("contiguous", "detach", "eq", "ne", "__eq__", "__ne__")


def test_a_kernel_writes_an_argument_that_no_iteration_stores_to():
    out, a = [creation.kernel_param(slot, (6,), uopc.dtypes.float32) for slot in range(2)]
    i = kernel.range(6, 0)
    store = kernel.store(movement.index(out, i), movement.index(a, i), i < 0)
    f = uopc.compile(kernel.sink(kernel.end(store, i)))
    array = np.zeros(6, np.float32)
    with pytest.raises(uopc.UserError, match="overlaps"):
        f(array, array)
    array.flags.writeable = False
    with pytest.raises(uopc.UserError, match="read-only"):
        f(array, np.zeros(6, np.float32))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: uopc.dtypes.from_numpy(np.dtype("complex64")), "no dtype for NumPy's complex64"),
        (lambda: uopc.dtypes.by_name("float31"), "no dtype is named 'float31'; choose void, bool"),
        (lambda: uopc.dtypes.by_name("f31x4"), "no dtype is named 'f31x4'"),
        (lambda: uopc.constant(np.zeros(2, "c8")), "no dtype for NumPy's complex64"),
        (lambda: uopc.UOp.const(3, uopc.dtypes.int32), "const: expected a dtype, then a value"),
        (lambda: uopc.cat([SOURCES[0], SOURCES[0]]), r"cat: .*one by one: cat\(a, b\)"),
        (lambda: uopc.stack([SOURCES[0]]), "stack: pass the values one by one"),
        (lambda: uopc.compile(np.zeros((9, 9))), r"container of UOps, got array\(\[\[0.{,30}$"),
    ],
)
def test_a_message_names_what_was_expected(call, says):
    with pytest.raises(uopc.UserError, match=says):
        call()
