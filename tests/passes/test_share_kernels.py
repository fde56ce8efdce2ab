"""Kernels that differ in constants are compiled once, and called with the constants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc import PatternMatcher, UPat, dtypes
from uopc.backends import detect
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter
from uopc.passes.pass_manager import Lowering
from uopc.program.request import make_context, prepare

NUMBERS = [t for t in dtypes.ALL if t.kind in ("int", "uint", "float")]


def constants(t):
    """Values that every type of the kind holds exactly, and none is special."""
    return [1.25, 1.5, 2.5, 3.0, 5.0, 6.0] if t.is_float else [3, 5, 6, 11, 13, 21]


@pytest.mark.parametrize("t", NUMBERS, ids=lambda t: t.name)
@pytest.mark.few(4)
def test_every_dtype(t):
    """One kernel for all constants, the same bits as with a kernel each."""
    x = uopc.param("x", (19,), t)
    values = constants(t)
    f = uopc.compile([x * c + (c + c) for c in values], verify=True)
    assert len(f.kernels) == 1 and f.stats["launches"] == 6
    given_x = (np.arange(19) % 7).astype(t.numpy)
    for c, got in zip(values, f(given_x)):
        (want,) = interpreter.evaluate((x * c + (c + c)).sink(), {"x": given_x})
        alone = uopc.compile(x * c + (c + c))(given_x)
        assert got.dtype == want.dtype and got.tobytes() == alone.tobytes()
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=0.2)


def test_extreme_numbers():
    """The whole range of each type goes through a word."""
    for t, values in [
        (dtypes.uint64, [2**64 - 1, 2**63 + 5]), (dtypes.int64, [-(2**63), 2**63 - 1]),
        (dtypes.int8, [-128, 127, -3]), (dtypes.float64, [-1.7e308, 5e-324, 0.1]),
        (dtypes.float32, [1.1754942106924411e-38, -3.4028234663852886e38]),
    ]:  # fmt: skip
        x = uopc.param("x", (5,), t)
        f = uopc.compile([x.maximum(c) for c in values])
        assert len(f.kernels) == 1
        data = np.array([0, 1, 2, 3, 100], t.numpy)
        for c, got in zip(values, f(data)):
            np.testing.assert_array_equal(got, np.maximum(data, np.array(c, t.numpy)))


def test_numbers_come_before_variables():
    n = uopc.variable("n", 1, 64)
    k = uopc.variable("a", 0, 9)
    x = uopc.param("x", (n,))
    f = uopc.compile([x * c + k.cast(dtypes.float32) for c in (2.5, 3.5, 4.5)], verify=True)
    assert len(f.kernels) == 1
    data = np.arange(7, dtype=np.float32)
    for c, got in zip((2.5, 3.5, 4.5), f(data, a=4)):
        np.testing.assert_array_equal(got, data * np.float32(c) + 4)


def test_alone_keeps_its_constant():
    x = uopc.param("x", (8,))
    f = uopc.compile([x * 2.5, x + 3.5])
    assert len(f.kernels) == 2
    assert not any(u.op is Ops.NUMBER for k in f.kernels for u in k.uops.src)


def test_rules_of_the_user_see_constants():
    x = UPat.var("x")
    rules = PatternMatcher([(x * 2.5, lambda x: x + x)])
    p = uopc.param("p", (8,))
    f = uopc.compile([p * 2.5, p * 3.5], rules=rules)
    data = np.ones(8, np.float32)
    first, second = f(data)
    assert len(f.kernels) == 2 and first[0] == 2.0 and second[0] == 3.5


def test_thousands_of_constants_are_one_kernel():
    x = uopc.param("x", (16,))
    f = uopc.compile(tuple([x * (2.5 + 0.37 * i) for i in range(2000)]))
    assert len(f.kernels) == 1
    data = np.arange(16, dtype=np.float32)
    outs = f(data)
    np.testing.assert_array_equal(outs[1999], data * np.float32(2.5 + 0.37 * 1999))


def test_a_learning_rate_a_layer():
    """Updates in place that differ in their rate are one kernel."""
    layers = [uopc.param(f"w{i}", (32,)) for i in range(5)]
    grads = [uopc.param(f"g{i}", (32,)) for i in range(5)]
    new = [w.assign(w - g * (0.1 + 0.03 * i)) for i, (w, g) in enumerate(zip(layers, grads))]
    f = uopc.compile(new, inputs=[*layers, *grads])
    assert len(f.kernels) == 1
    rng = np.random.default_rng(0)
    w = [rng.standard_normal(32).astype(np.float32) for _ in range(5)]
    g = [rng.standard_normal(32).astype(np.float32) for _ in range(5)]
    want = [a.astype(np.float64) - b * (0.1 + 0.03 * i) for i, (a, b) in enumerate(zip(w, g))]
    for a, b in zip(f(*w, *g), want):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_stage_file_of_split_kernels_goes_on():
    """The pass also runs when lowering starts from the text of the stage before it."""
    x = uopc.param("x", (8,))
    f = uopc.compile([x * 2.5, x * 3.5])
    program = uopc.parse(f.stages["split-kernels"])
    request = prepare(x, None, True, 1, None, uopc.config.current())
    lowered = Lowering(make_context(request, detect.host())).lower(program, "split-kernels")
    assert len(lowered.kernels) == 1 and len(lowered.calls) == 2


_op = st.sampled_from(["add", "mul", "max", "sub", "div", "less", "where"])


@settings(deadline=None, max_examples=40)
@given(
    ops=st.lists(_op, min_size=1, max_size=4),
    t=st.sampled_from([dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8]),
    seed=st.integers(0, 999),
)
def test_random_kernels(ops, t, seed):
    """Outputs of one form with random constants (special ones too) equal the interpreter's."""
    rng = np.random.default_rng(seed)
    pool = [0, 1, 2, 3, 5, 7, 64] if t.is_int else [0.0, 1.0, -1.0, 0.5, 2.5, 3.25, -7.125, 4.0]
    x = uopc.param("x", (9,), t)

    def build():
        y = x
        for op in ops:
            c = pool[int(rng.integers(len(pool)))]
            if op in ("add", "mul", "sub"):
                y = {"add": y + c, "mul": y * c, "sub": c - y}[op]
            elif op == "max":
                y = y.maximum(c)
            elif op == "div":
                y = y // c if t.is_int else y / (c or 3.0)
            else:
                y = (y < c).where(y, c) if op == "less" else (y < 3).where(c, y)
        return y

    graphs = [build() for _ in range(4)]
    data = rng.integers(0, 9, 9).astype(t.numpy)
    program = uopc.compile(graphs, verify=True)
    got = program(*[data][: len(program.inputs)])  # x · 0 does not read x
    for g, a in zip(graphs, got):
        (want,) = interpreter.evaluate(g.sink(), {"x": data})
        np.testing.assert_allclose(a, want, rtol=1e-6)
