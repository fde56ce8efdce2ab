"""Opts given on a CONTIGUOUS: the kernel that stores it has exactly these, like a SINK's."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.by_hand import named
from uopc.driver import lower_only
from uopc.errors import InvalidIR, UserError
from uopc.ir.builder import kernel, leaves
from uopc.ir.core.args import KernelArg, Opt, StageArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.text.printer import parse, print_graph
from uopc.ir.verify.verifier import verify
from uopc.passes import PIPELINE
from uopc.passes.analysis.parts import MOST_PARTS
from uopc.passes.contract import Context

RNG = np.random.default_rng(11)


def numbers(dims):
    """Small integers: their sums and products are exact in any order."""
    return RNG.integers(-3, 4, dims).astype("float32")


X = numbers((24, 40))
x = uopc.param("x", X.shape)

CASES = {
    "elementwise": (lambda: x * 2.0, [Opt("VECTOR", 0, 8), Opt("UPCAST", 0, 3)]),
    "columns": (lambda: x.sum(0), [Opt("UPCAST", 0, 4), Opt("UNROLL", 2, 2)]),
    "rows": (lambda: x.sum(1) + 1.0, [Opt("VECTOR", 1, 8)]),
    "scalar": (lambda: x.max(), [Opt("UNROLL", 0, 4)]),
    "copy": (lambda: x, [Opt("VECTOR", 0, 4)]),
    "part": (lambda: x[2:4], [Opt("UPCAST", 0, 2)]),
    "none": (lambda: x * 3.0, []),
}
each_case = pytest.mark.parametrize("name", CASES)


def compiled(*values, **options):
    return uopc.compile(list(values) if len(values) > 1 else values[0], verify=True, **options)


@each_case
@pytest.mark.parametrize("optimize", [True, False])
def test_kernels_and_numbers(name, optimize):
    make, opts = CASES[name]
    f = compiled(make().contiguous(opts) * 2.0, optimize=optimize)
    assert f.kernels[0].opts == tuple(opts) and len(f.kernels) == 2
    np.testing.assert_array_equal(f(x=X), compiled(make() * 2.0)(x=X))


@each_case
def test_same_kernel_as_of_a_sink_with_opts(name):
    make, opts = CASES[name]
    made = lower_only(make().contiguous(opts), threads=1).kernels
    (run,) = [
        r for r in lower_only(make().contiguous([])).runs if r.name == "simplify-ranges"
    ]  # fmt: skip
    (alone,) = run.after
    now = intern(alone.op, alone.dtype, alone.src, KernelArg("", tuple(opts)))
    names = [p.name for _, p in PIPELINE]
    context = Context(lower_only(x + 1.0).context.target, optimize=True, threads=1)
    for _, p in PIPELINE[names.index("optimize") :]:
        now = p.run(now, context)
    assert made == [now]


def test_lists_that_differ_are_programs_that_differ():
    for opts in ([Opt("VECTOR", 0, 4)], [Opt("VECTOR", 0, 8)], []):
        assert compiled((x + 5.0).contiguous(opts)).kernels[0].opts == tuple(opts)


def test_a_value_stored_anyway_has_the_opts():
    y = x.sum(1)
    opts = (Opt("UNROLL", 1, 4),)
    f = compiled(y, y.contiguous(opts) * 2.0, y.contiguous(opts) * 3.0)
    assert [k.opts for k in f.kernels].count(opts) == 1
    for got, factor in zip(f(x=X), (1, 2, 3)):
        np.testing.assert_array_equal(got, X.sum(1) * factor)


def test_a_second_list_computes_the_value_again():
    y = x.sum(1)
    first, second = (Opt("UNROLL", 1, 4),), (Opt("UNROLL", 1, 8),)
    f = compiled(y * 5.0, y.contiguous(first), y.contiguous(second))
    assert {first, second} <= {k.opts for k in f.kernels}
    for got, factor in zip(f(x=X), (5, 1, 1)):
        np.testing.assert_array_equal(got, X.sum(1) * factor)


def test_contiguous_of_contiguous_has_a_kernel_each():
    first, second = (Opt("UPCAST", 0, 4),), (Opt("UPCAST", 0, 8),)
    f = compiled((x + 1.0).contiguous(first).contiguous(second))
    assert [k.opts for k in f.kernels] == [first, second]
    np.testing.assert_array_equal(f(x=X), X + 1)


def test_a_reduce_with_opts_is_not_cut_in_two():
    big = uopc.param("x", (1 << 17,))
    values = numbers(1 << 17)
    opts = (Opt("VECTOR", 0, 16),)
    assert len(compiled(big.sum() + 1.0).kernels) == 2
    f = compiled((big.sum() + 1.0).contiguous(opts))
    assert [k.opts for k in f.kernels] == [opts]
    assert float(f(x=values)) == values.sum() + 1


def test_a_constant_with_opts_is_stored():
    f = compiled(uopc.param("y", ()) + leaves.const(uopc.dtypes.float32, 2.0).contiguous([]))
    assert f.kernels[0].opts == () and len(f.kernels) == 2
    assert f(y=np.float32(1)) == 3


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(
    ("opt", "why"),
    [
        (Opt("VECTOR", 0, 7), "7 does not divide the range of"),
        (Opt("UNROLL", 0, 2), "UNROLL is for reduce loops"),
        (Opt("UPCAST", 3, 2), "the kernel has [12] ranges"),
        (Opt("SHUFFLE", 0, 2), "unknown Opt 'SHUFFLE'"),
    ],
)
def test_what_is_not_legal_is_the_error_of_a_sink(opt, why, optimize):
    with pytest.raises(UserError, match=why):
        compiled((x * 2.0).contiguous([opt]) + 1.0, optimize=optimize)


def test_opts_in_a_sink_of_values():
    with pytest.raises(UserError, match="a SINK of values is not a kernel"):
        compiled(kernel.sink(x * 2.0, opts=(Opt("UPCAST", 0, 4),)))


def test_opts_that_are_none():
    with pytest.raises(UserError, match="expected Opts"):
        x.contiguous([3])
    wrong = intern(Ops.SINK, uopc.dtypes.void, (intern(Ops.CONTIGUOUS, x.dtype, (x,), (3,)),))
    with pytest.raises(InvalidIR, match="expected Opts"):
        verify(wrong, lower_only(x + 1.0).runs[0].level, "input")


def test_text():
    for opts in (None, (), (Opt("VECTOR", 0, 8), Opt("UPCAST", 1, 4))):
        stage = intern(Ops.STAGE, x.dtype, (x,), StageArg("contiguous", False, opts=opts))
        for u in (x.contiguous(opts), stage):
            assert parse(print_graph(u)) is u
    for run in lower_only((x.sum() * 2.0).contiguous([Opt("UNROLL", 0, 4)])).runs:
        for u in run.after:
            assert parse(print_graph(u)) is u


def test_parts_that_are_stored_one_by_one_have_them_each():
    """So many parts, no two alike, that each has a kernel of its own."""
    params = [uopc.param(f"p{i}", (4 * (i + 1),)) for i in range(MOST_PARTS + 2)]
    arrays = {p.arg.name: numbers(p.shape) for p in params}
    opts = (Opt("UPCAST", 0, 4),)
    f = compiled(params[0].cat(*params[1:]).contiguous(opts) * 2.0)
    assert [k.opts for k in f.kernels].count(opts) == len(params)
    np.testing.assert_array_equal(f(**arrays), 2 * np.concatenate(list(arrays.values())))


def test_a_symbolic_length():
    w = uopc.param("w", (uopc.variable("n", 1, 10), 8))
    f = compiled((w * 2.0).contiguous([Opt("VECTOR", 0, 8)]) + 1.0)
    assert f.kernels[0].opts == (Opt("VECTOR", 0, 8),)
    given = numbers((3, 8))
    np.testing.assert_array_equal(f(w=given), given * 2 + 1)


def test_an_assignment_from_a_copy_with_opts():
    opts = (Opt("UPCAST", 0, 4),)
    f = compiled(x.assign(x.flip(0).contiguous(opts)))
    assert f.kernels[0].opts == opts
    np.testing.assert_array_equal(f(x=X.copy()), X[::-1])


def test_opts_on_an_end_of_a_kernel_by_hand_are_refused():
    """They would be for nobody: such a kernel has its Opts on the SINK."""
    run = next(r for r in lower_only(x * 2.0).runs if r.name == "split-kernels")
    sink = named(run.after[0].src[0].src[0])
    (end,) = sink.src
    given = (Opt("UPCAST", 0, 3),)
    marked = intern(end.op, end.dtype, end.src, given)
    with pytest.raises(UserError, match="to its SINK"):
        uopc.compile(intern(sink.op, sink.dtype, (marked,), KernelArg("by_hand")))
    made = uopc.compile(intern(sink.op, sink.dtype, (end,), KernelArg("by_hand", given)))
    assert made.kernels[0].opts == given
