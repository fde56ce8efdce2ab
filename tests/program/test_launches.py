"""program.launches: the schedule as data; a launch by hand, timed, and against the roofline."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.standin import module
from uopc import UOp, dtypes
from uopc.backends.cpu.arguments import out_labels, shape_of, value_of
from uopc.program import profile
from uopc.program.planner import dim
from uopc.program.speed import random_inputs


def x(*shape, dtype=dtypes.float32, name="x"):
    return uopc.param(name, shape or (6, 8), dtype)


def several() -> tuple[UOp, ...]:
    n = uopc.variable("n", 1, 64)
    rows, w = uopc.param("x", (n, 8)), uopc.param("w", (8, 10))
    data = np.linspace(0, 1, 80, dtype=np.float32).reshape(8, 10)
    return (
        (rows @ w).softmax(), (rows + 1.5).sum(axis=1), (rows + 2.5).sum(axis=1),
        uopc.constant(data) @ w.transpose(),
    )  # fmt: skip


def layers() -> UOp:
    """Blocks whose storage is shared by intermediate values, at several offsets."""
    value = x(16, 16)
    for i in range(4):
        value = ((value @ x(16, 16, name=f"w{i}")).softmax() + value).contiguous()
    return value


def updated() -> UOp:
    cache = x(8, 4, name="cache")
    return cache[2:4].assign(x(2, 4) * 2) + 1


PROGRAMS = {
    "several": several,
    "layers": layers,
    "updated": updated,
    "one": lambda: x() * 2,
    "long sum": lambda: x(1 << 17).sum(),
    "product": lambda: x(70, 90, name="a") @ x(90, 50, name="b"),
    "dict": lambda: {"s": x().sum(axis=0), "m": x().max(axis=1)},
    "taken": lambda: x(9).take(x(5, dtype=dtypes.int32, name="i"), 0),
    "empty": lambda: x(0, 4) + 1,
}


def by_hand(program, inputs, values):
    """Run a program launch by launch, with all storage of our own. Gives the outputs by name."""
    plan = program._runner.plan
    shapes = {
        b.name: b for launch in program.launches for b in launch.buffers if b.kind == "output"
    }
    outputs = {
        name: np.full(shape_of([dim(d) for d in b.shape], values), 77).astype(b.dtype.numpy)
        for name, b in shapes.items()
    }
    memory = {k: a.reshape(-1).view(np.uint8) for k, a in {**inputs, **outputs}.items()}
    memory |= {f"constant{i}": c.reshape(-1).view(np.uint8) for i, c in enumerate(plan.constants)}
    memory["arena"] = np.full(value_of(plan.arena_bytes, values), 77, np.uint8)
    for launch in program.launches:
        views = []
        for b in launch.buffers:
            shape = shape_of([dim(d) for d in b.shape], values)
            nbytes = int(np.prod(shape)) * b.dtype.itemsize
            assert value_of(dim(b.nbytes), values) == nbytes
            at = value_of(dim(b.offset), values)
            part = memory[b.name][at : at + nbytes]
            views.append(part.view(b.dtype.numpy).reshape(shape))
        launch.run(*views)
    return outputs


def arguments(program, n=5):
    plan = program._runner.plan
    values = random_inputs.sizes(plan, {"n": n} if plan.variables else {})
    drawn = random_inputs.random_arrays(plan, values)
    return {a.name: v for a, v in zip(plan.arguments, drawn)}, values


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.few(11)
def test_launches_by_hand_are_the_program(name, optimize, threads):
    program = uopc.compile(PROGRAMS[name](), optimize=optimize, threads=threads)
    arrays, values = arguments(program)
    own = {k: a.copy() for k, a in arrays.items()}
    outputs = by_hand(program, own, values)
    plan = program._runner.plan
    want = program(**arrays)
    listed = (
        [want]
        if plan.structure == "single"
        else list(want.values())
        if type(want) is dict
        else want
    )
    for label, result, spec in zip(out_labels(plan), listed, plan.results, strict=True):
        if spec.source is None and result.size:
            np.testing.assert_array_equal(outputs[label].reshape(result.shape), result)
    for k, a in arrays.items():
        np.testing.assert_array_equal(own[k], a)


def test_a_launch_says_what_it_runs():
    program = uopc.compile(several(), name="several")
    product, softmax, *sums, last = program.launches
    assert [launch.number for launch in program.launches] == [0, 1, 2, 3, 4]
    assert [str(b) for b in product.buffers] == ["arena+0", "x", "w"]
    assert [(b.reads, b.writes) for b in product.buffers] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    assert product.variables == {"n": None} and last.variables == {}
    assert product.buffers[2].shape == (8, 10) and product.buffers[2].nbytes == 320
    assert product.buffers[1].nbytes.render() == "(n*32)"
    assert [b.kind for b in softmax.buffers] == ["output", "arena"]
    assert sums[0].kernel is sums[1].kernel and [s.numbers for s in sums] == [(1.5,), (2.5,)]
    assert sums[0].kernel.launches == tuple(sums)
    assert [b.name for b in last.buffers] == ["out[3]", "constant0", "w"]
    assert [k.name for k in program.kernels] == list(
        dict.fromkeys([s.kernel.name for s in program.launches])
    )


def test_the_work_of_kernels_written_by_hand():
    """Values with shapes get loops first; a tile is no memory of the caller."""
    o, a = (uopc.kernel_param(i, (64, 32), name=n) for i, n in enumerate("oa"))
    i, j = UOp.range(64, 0), UOp.range(32, 1)
    both = 2 * 64 * 32 * 4
    for store, operations, nbytes in (
        (o.store(a * 2.0), 64 * 32, both),
        (o[i].store(a[i].flip(0).stage() * 2.0).end(i), 64 * 32, both),
        (o[i, j].store(a[i, 31 - j]).end(i, j), 0, both),
    ):
        (launch,) = uopc.compile(store.sink(name="k")).launches
        assert launch.work.counts({}) == (operations, nbytes)


def test_kernels_and_arrays_print_in_a_line():
    n = uopc.variable("n", 1, 9)
    program = uopc.compile(uopc.param("x", (n + 1, 4)) * 2)
    assert repr(program.kernels) == f"[Kernel(name='{program.kernels[0].name}')]"
    assert repr(program.inputs[0]) == "ArraySpec(name='x', shape=((n+1), 4), dtype=dtypes.float32)"


def test_launches_print_as_a_table():
    lines = str(uopc.compile(several()).launches).splitlines()
    assert lines[0].split() == ["kernel", "buffer", "dtype", "shape", "bytes", "how"]
    assert lines[1].split() == [
        "0",
        "r_64_10_8",
        "writes",
        "arena+0",
        "f32",
        "(n,",
        "10)",
        "(n*40)",
        "n",
    ]
    assert lines[2].split() == ["reads", "x", "f32", "(n,", "8)", "(n*32)"]
    assert "(n*4)  n 2.5" in lines[8] and len(lines) == 13


def test_a_bound_variable_has_its_value():
    position = uopc.variable("position", 0, 7)
    program = uopc.compile(x(8)[: position.bind(3) + 1].sum())
    (launch,) = program.launches
    assert launch.variables == {"position": 3}
    a, out = np.arange(8, dtype=np.float32), np.empty((), np.float32)
    buffers = {"x": a[:4] if launch.buffers[1].shape != (8,) else a, "out": out}
    launch.run(*[buffers[b.name] for b in launch.buffers])
    assert out == 6
    launch.run(*[buffers[b.name] for b in launch.buffers], position=1)
    assert out == 1


def test_conditions_on_sizes_hold_for_one_launch_too():
    n, m = uopc.variable("n", 1, 64), uopc.variable("m", 1, 64)
    value = uopc.param("x", (n, 2)).reshape(m, 2) * 2
    (launch,) = uopc.compile(value).launches
    arrays = {"out": (4, 2), "x": (3, 2)}
    buffers = [np.ones(arrays[b.name], np.float32) for b in launch.buffers]
    with pytest.raises(uopc.UserError, match=r"reshape \(n, 2\) to \(m, 2\)"):
        launch.run(*buffers)


def test_a_kernel_is_called_and_timed():
    (kernel,) = uopc.compile(x() * 2).kernels
    a, out = np.ones((6, 8), np.float32), np.zeros((6, 8), np.float32)
    assert kernel(out, a) is None
    np.testing.assert_array_equal(out, 2)
    timing = kernel.time(out, a, samples=7)
    assert len(timing.runs) == 7 and 0 < timing.best <= timing.median < 0.1
    assert repr(timing).startswith("<Timing of 7 samples: best 0.")


A = np.ones((6, 8), np.float32)


@pytest.mark.parametrize(
    ("buffers", "named", "says"),
    [
        ((A,), {}, r"E_48\(\) is missing 1 argument: 'x' \(float32\[6, 8\]\)"),
        ((A, A, A), {}, "takes 2 arrays"),
        ((A.copy(), A.astype("f8")), {}, "'x': expected float32\\[6, 8\\], got float64"),
        ((A.copy(), A[:5]), {}, "'x': expected float32\\[6, 8\\], got float32\\[5, 8\\]"),
        ((np.ones((6, 16), "f4")[:, ::2], A), {}, "'out' is written, but the array is not contig"),
        ((np.frombuffer(bytes(192), "f4").reshape(6, 8), A), {}, "read-only"),
        ((A, A), {}, "overlaps argument 'out' in memory"),
        ((A.copy(), A), {"n": 3}, "no argument 'n'"),
        (("no", A), {}, "expected an array, got str"),
        ((A,), {"out": A.copy()}, "pass arrays by position: out, x"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(buffers, named, says):
    (launch,) = uopc.compile(x() * 2).launches
    with pytest.raises(uopc.UserError, match=says):
        launch.run(*buffers, **named)
    with pytest.raises(uopc.UserError, match=says):
        launch.time(*buffers, **named)


def test_an_unaligned_input_is_copied():
    (launch,) = uopc.compile(x() * 2).launches
    raw = np.zeros(193, np.uint8)
    odd = raw[1:].view(np.float32).reshape(6, 8)
    odd[:] = 3
    out = np.zeros((6, 8), np.float32)
    launch.run(out, odd)
    np.testing.assert_array_equal(out, 6)
    with pytest.raises(uopc.UserError, match="not aligned"):
        launch.run(odd, out)


def test_addresses_that_the_program_computes_are_not_taken_from_others():
    indices = (x(8, dtype=dtypes.int32) % 10).contiguous()
    program = uopc.compile(x(10, name="t").take(indices, 0))
    first, second = program.launches
    made = np.empty(8, np.int32)
    first.run(made, np.arange(8, dtype=np.int32))
    with pytest.raises(
        uopc.Unsupported, match=f"kernel {second.kernel.name} accesses .* whole prog"
    ):
        second.run(np.empty(8, np.float32), made, np.arange(10, dtype=np.float32))
    result = program(x=np.arange(8, dtype=np.int32), t=np.arange(10, dtype=np.float32))
    np.testing.assert_array_equal(result, np.arange(8))


def test_a_cached_program_has_launches():
    uopc.cache.clear()
    made, found = uopc.compile(several()), uopc.compile(several())
    assert found.stats["cache"] == "memory" and str(found.launches) == str(made.launches)
    uopc.cache.clear()


# ---------------------------------------------------------------- measured
def test_a_profile_compares_with_what_the_machine_can_do():
    program = uopc.compile(several())
    arrays, values = arguments(program, n=32)
    found = profile.profile(program, (), {**arrays, **values}, samples=3)
    rows = found.rows()
    assert [r.kernel.name for r in rows] == [k.name for k in program.kernels]
    assert [r.launches for r in rows] == [1, 1, 2, 1]
    assert sum(r.share for r in rows) == pytest.approx(1)
    assert rows[0].operations == 2 * 32 * 8 * 10 and rows[0].nbytes == (32 * 18 + 80) * 4
    assert rows[0].speed == pytest.approx(rows[0].operations / rows[0].seconds * 1e-9)
    for m in found.launches:
        assert m.timing.best > 0 and m.least > 0 and m.bound in ("memory", "arithmetic")
    assert set(found.roofline.peaks) == {dtypes.float32}
    assert set(found.roofline.bandwidths) <= {4096, 8192} and found.values == {"n": 32}


def test_the_rooflines_are_those_of_the_dtype_and_the_size():
    program = uopc.compile(x(1 << 20) + 1, threads=1)
    roofline = profile.Roofline(program)
    assert roofline.peak(dtypes.float32) > roofline.peak(dtypes.float64) > 1e8
    assert roofline.peak(dtypes.bool_) == roofline.peak(dtypes.uint8)
    (launch,) = program.launches
    seconds, bound = roofline.least(launch, {})
    assert bound == "memory" and seconds == (8 << 20) / roofline.bandwidths[8 << 20]


def test_sizes_are_checked():
    plan = uopc.compile(several())._runner.plan
    assert random_inputs.sizes(plan, {}) == {"n": 64}
    assert random_inputs.sizes(plan, {"n": 3}) == {"n": 3}
    with pytest.raises(uopc.UserError, match="has no variable 'm'; it has n"):
        random_inputs.sizes(plan, {"m": 3})
    with pytest.raises(uopc.UserError, match=r"variable 'n' is 65, expected 1\.\.64"):
        random_inputs.sizes(plan, {"n": 65})


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "fp8e4m3", "int8", "uint64"])
def test_random_arrays_have_logarithms_and_are_indices(dtype):
    dtype = getattr(dtypes, dtype)
    program = uopc.compile(x(1000, dtype=dtype) + x(1000, dtype=dtype, name="y"))
    (a, b), again = (random_inputs.random_arrays(program._runner.plan, {}) for _ in range(2))
    np.testing.assert_array_equal(a, again[0])
    assert a.dtype == dtype.numpy and not np.array_equal(a, b)
    wide = a.astype(np.float64)
    assert wide.min() >= (0.5 if dtype.is_float else 0) and wide.max() <= (
        1.5 if dtype.is_float else 3
    )


# ---------------------------------------------------------------- a GPU
@pytest.mark.slow
def test_launches_of_a_gpu():
    """On the stand-in: the same interface, with grids."""
    with module.installed("sm_80"):
        program = uopc.compile((x(33, 5).sum(axis=1), x(33, 5) * 2), device="cuda")
        total, double = program.launches
        assert all(launch.block and len(launch.grid) == 3 for launch in program.launches)
        assert "grid (" in str(program.launches)
        a = np.arange(165, dtype=np.float32).reshape(33, 5)
        want = program(a)
        for launch, result in zip((total, double), want):
            out = np.zeros_like(result)
            launch.run(out, a)
            np.testing.assert_array_equal(out, result)
        with pytest.raises(uopc.UserError, match="expected float32"):
            double.run(np.zeros((33, 5), np.float32), a[:4])
        assert double.time(np.zeros((33, 5), np.float32), a, samples=2).best >= 0
        found = profile.profile(program, (a,), samples=1)
        assert [m.launch for m in found.launches] == [total, double]


def test_launches_of_an_architecture_are_data_only():
    program = uopc.compile(x() * 2, device="cuda:sm_90")
    (launch,) = program.launches
    assert [str(b) for b in launch.buffers] == ["out", "x"]
    with pytest.raises(uopc.Unsupported, match="PTX text"):
        launch.run(A.copy(), A)
    with pytest.raises(uopc.Unsupported, match="PTX text"):
        launch.time(A.copy(), A)
