"""Programs for a device, rendered for two parts, assembled, and run on a stand-in against the CPU.

What the PTX machine executes is what the driver would get: launches, grids, arguments and memory
come from the runtime. Races and accesses out of bounds are errors there.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.ptx.corpus import join
from tests.standin import module
from uopc import UOp, dtypes
from uopc.backends.nvptx import ptxas
from uopc.ir.builder import kernel, movement
from uopc.ir.core.args import BufferArg, Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.index.dims import dim_uop
from uopc.tensor import creation

GPUS = ("sm_80", "sm_90a")


def param(name, *shape, dtype=dtypes.float32):
    return uopc.param(name, shape, dtype)


def attention():
    q, k, v = (param(n, 2, 2, 17, 8) for n in "qkv")
    return ((q @ k.transpose(-1, -2)) * 8**-0.5).softmax(axis=-1) @ v


def integers():
    x = param("x", 500, dtype=dtypes.int32)
    return x // 7 + x % -3


def shifts():
    x = param("x", 200, dtype=dtypes.uint64)
    return (x >> 3) ^ x


def several():
    x = param("x", 33, 5)
    return x.sum(axis=1), x.max(axis=0), (x * 2).cast(dtypes.float16)


def sized():
    n = uopc.variable("n", 1, 64)
    return uopc.param("x", (n, 8)).sum(axis=1)


def rows_inside():
    """Sums whose rows are inside of a loop beside them."""
    x, y = param("x", 256, 1, 16, 64), param("y", 256, 1, 16, 64)
    return (x * y).sum(axis=-1) * param("z", 256, 16, 16)


PROGRAMS = {
    "elementwise": lambda: (param("x", 1000) * 2 + param("y", 1000)).relu(),
    "broadcast": lambda: param("x", 7, 1) + param("y", 1, 300),
    "exp": lambda: param("x", 257).exp(),
    "sin": lambda: param("x", 300).sin() + param("x", 300).log(),
    "double": lambda: param("x", 100, dtype=dtypes.float64).sin(),
    "half": lambda: param("x", 64, 33, dtype=dtypes.float16).sum(axis=1),
    "bfloat": lambda: param("x", 130, dtype=dtypes.bfloat16) * 1.5,
    "fp8": lambda: param("x", 130).cast(dtypes.fp8e4m3).cast(dtypes.float32),
    "angles": lambda: param("x", 300).asin() + param("x", 300).atan2(param("y", 300)),
    "hyperbolic": lambda: param("x", 300).sinh().asinh() + param("y", 300).tanh().atanh(),
    "logarithms": lambda: param("x", 300).expm1().log1p() + abs(param("y", 300)).log10(),
    "doubles": lambda: param("x", 90, dtype=dtypes.float64).hypot(1).acosh().nextafter(0),
    "integers": integers,
    "int8": lambda: param("x", 64, 48, dtype=dtypes.int8).sum(axis=0),
    "shifts": shifts,
    "bool": lambda: (param("x", 40, 40) > 0).any(axis=1),
    "sum": lambda: param("x", 3000).sum(),
    "rows": lambda: param("x", 65, 129).sum(axis=1),
    "columns": lambda: param("x", 65, 129).max(axis=0),
    "mean": lambda: param("x", 16, 100).var(axis=1),
    "softmax": lambda: param("x", 33, 70).softmax(axis=-1),
    "short_rows": lambda: param("x", 1056, 40).softmax(axis=-1),
    "short_rows_max": lambda: param("x", 3, 704, 64).argmax(axis=-1),
    "rows_inside": rows_inside,
    "rows_ahead": lambda: param("x", 4096, 20).sum(axis=0),
    "layer_norm": lambda: param("x", 20, 96).layer_norm(),
    "matmul": lambda: param("a", 37, 50) @ param("b", 50, 41),
    "conv": lambda: param("x", 2, 3, 12, 12).conv2d(param("w", 4, 3, 3, 3), padding=1),
    "attention": attention,
    "transpose": lambda: param("x", 40, 70).transpose(),
    "shifted": lambda: param("x", 1025)[1:] * 2 + param("y", 1030)[6:],
    "shifted_half": lambda: param("x", 1026, dtype=dtypes.float16)[2:].contiguous() * 2,
    "shifted_rows": lambda: param("x", 8, 514)[:, :512].sum(axis=1),
    "pad": lambda: param("x", 10, 11).pad(((1, 2), (3, 4))),
    "flip": lambda: param("x", 10, 33).flip(1),
    "cat": lambda: uopc.cat(param("x", 10, 3), param("y", 7, 3), axis=0),
    "cumsum": lambda: param("x", 5, 40).cumsum(axis=1),
    "cummax": lambda: param("x", 5, 140).cummax(axis=1),
    "logsumexp": lambda: param("x", 12, 45).logsumexp(axis=1),
    "convolve": lambda: param("x", 70).convolve(param("y", 9)),
    "argmax": lambda: param("x", 12, 45).argmax(axis=1),
    "take": lambda: param("x", 30, 8).take(param("i", 25, dtype=dtypes.int32), axis=0),
    "constant": lambda: param("x", 20) * uopc.constant(np.arange(20, dtype=np.float32)),
    "crossed": lambda: param("x", 64, 96).transpose() + param("y", 96, 64),
    "crossed_half": lambda: param("x", 64, 64, dtype=dtypes.float16).transpose().contiguous(),
    "crossed_odd": lambda: param("x", 3, 33, 65).permute(2, 0, 1).contiguous(),
    "long_argmax": lambda: param("x", 1 << 16).argmax(),
    "long_var": lambda: param("x", 2, 1 << 16).var(axis=1),
    "long_softmax": lambda: param("x", 1 << 16).softmax(axis=-1),
    "long_columns": lambda: param("x", 1 << 15, 8).sum(axis=0),
    "columns_few": lambda: param("x", 512, 64).sum(axis=0),
    "columns_odd": lambda: param("x", 300, 65).max(axis=0),
    "windows": lambda: param("x", 2, 6, 20, 24).max_pool2d(2),
    "conv_tiled": lambda: param("x", 2, 4, 18, 20).conv2d(param("w", 32, 4, 3, 3), padding=1),
    "several": several,
    "symbolic": sized,
}  # fmt: skip


def arrays(program, seed=0):
    random = np.random.default_rng(seed)
    out = []
    for v in program.inputs:
        shape = tuple(d if isinstance(d, int) else 13 for d in v.shape)
        if v.name == "i":
            made = random.integers(0, 30, shape)
        elif v.dtype.is_float:
            made = random.standard_normal(shape)
        else:
            made = random.integers(0 if v.dtype.kind == "uint" else -100, 100, shape)
        out.append(made.astype(v.dtype.numpy))
    return out


def close(got, want):
    """As far from the CPU as another order of sums and other fused products may lead."""
    if want.dtype.kind in "biu":
        return np.array_equal(got, want)
    eps = {2: 2.0**-8, 4: 2.0**-20, 8: 2.0**-48}[want.dtype.itemsize]
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return np.allclose(a, b, rtol=eps, atol=eps * max(1, np.nanmax(np.abs(b))), equal_nan=True)


def arrays_of(value):
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("part", GPUS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.few(4)
def test_programs(name, part):
    graph = PROGRAMS[name]()
    on_cpu = uopc.compile(graph)
    given = arrays(on_cpu)
    with module.installed(part) as driver:
        program = uopc.compile(graph, device="cuda")
        got = program(*[a.copy() for a in given])
    for g, w in zip(arrays_of(got), arrays_of(on_cpu(*given)), strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape and close(g, w), np.abs(g - w).max()
    assert driver.approximate <= {"div", "rcp", "sqrt"}  # nothing of lower accuracy
    if ptxas.find_ptxas() is None:
        return
    for arch in {part, "sm_90a"}:
        used = ptxas.assemble(join(driver.texts), arch).kernels
        assert len(used) == len(program.kernels)
        assert not any(u.spill_stores or u.spill_loads for u in used.values()), used


def test_programs_share_a_device_array():
    """The result of one program goes into another without a copy to the host."""
    x = param("x", 100)
    with module.installed("sm_90a") as driver:
        double, halve = (uopc.compile(x * f, device="cuda") for f in (2.0, 0.5))
        from tests.backends.cuda.test_cuda_runtime import on_device

        a = on_device(np.arange(100, dtype=np.float32))
        before = {k: n for k, n in driver.calls.items() if "Memcpy" in k}
        got = halve(double(a))
        assert {k: n for k, n in driver.calls.items() if "Memcpy" in k} == before
        assert np.array_equal(got.numpy(), np.arange(100))


def test_an_assignment_changes_the_array_on_the_device():
    x = param("x", 50)
    with module.installed("sm_80"):
        program = uopc.compile(x.assign(x + 1), device="cuda")
        from tests.backends.cuda.test_cuda_runtime import on_device

        a, b = on_device(np.zeros(50, np.float32)), np.zeros(50, np.float32)
        assert program(a) is a and program(a) is a and a.numpy().tolist() == [2.0] * 50
        assert program(b) is b and b.tolist() == [1.0] * 50


def test_what_a_device_cannot_do():
    with module.installed("sm_90a") as driver:
        with pytest.raises(uopc.Error, match="no device cuda:5"):
            uopc.compile(param("x", 4) + 1, device="cuda:5")
        driver.capability = (7, 5)
        with pytest.raises(uopc.Error, match=r"7\.5"):
            uopc.compile(param("x", 4) + 2, device="cuda")


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_random_shapes(data):
    """Sums, views and broadcasts of any small shape."""
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    x, y = param("x", *shape), param("y", *shape)
    axis = data.draw(st.integers(0, len(shape) - 1))
    graph: UOp = data.draw(st.sampled_from([
        (x * y).sum(axis=axis), (x - x.max(axis=axis, keepdims=True)).exp(),
        uopc.cat(x, y, axis=axis).flip(axis), x.cumsum(axis=axis) + y,
        x.pad(tuple([(1, 0)] * len(shape))).sum(axis=axis),
    ]))  # fmt: skip
    on_cpu = uopc.compile(graph)
    given_arrays = arrays(on_cpu)
    with module.installed(data.draw(st.sampled_from(GPUS))):
        got = uopc.compile(graph, device="cuda")(*given_arrays)
    assert close(got, on_cpu(*given_arrays))


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("form", ["rows", "columns", "product"])
@pytest.mark.few(2)
def test_rows_beside_a_total(size, form):
    """The loops beside a reduce that a block shares have as many threads as the block may have."""
    x = param("x", size, size)
    graph = {"rows": x - x.max(axis=1, keepdims=True), "columns": x * x.sum(axis=0),
             "product": x @ x}[form] + x.sum()  # fmt: skip
    (given_array,) = arrays(on_cpu := uopc.compile(graph))
    for part in GPUS:
        compiled = uopc.compile(graph, device=f"cuda:{part}", verify=True)
        assert all(np.prod(v.block) <= 1024 for v in compiled.plan.launches)
    if size < 64:
        with module.installed("sm_90a"):
            got = uopc.compile(graph, device="cuda")(given_array)
        assert close(got, on_cpu(given_array))


def test_parts_of_one_element():
    """LLVM chooses between the places of two arguments, and reads the chosen one."""
    x, y = param("x", 1), param("y", 1)
    for part in GPUS:
        with module.installed(part):
            f = uopc.compile(uopc.cat(x, y).flip(0), device="cuda")
            assert f(np.float32([1]), np.float32([2])).tolist() == [2, 1]


# ---------------------------------------------------------------- shared memory of a size
def through_shared(n, threads=128):
    """x reversed by two buffers of a block's shared memory, of n float32 each."""
    me = intern(Ops.SPECIAL, dtypes.index, (dim_uop(threads),), "lidx0")
    out, x = (creation.kernel_param(slot, (n,), dtypes.float32) for slot in (0, 1))
    value: UOp | None = None
    for axis in range(2):
        source, turns = x if axis == 0 else value, kernel.range(n // threads, axis)
        assert source is not None
        tile = intern(Ops.BUFFER, dtypes.float32, (), BufferArg(axis, (n,), space="local"))
        at = turns * threads + me
        place = at if axis == 0 else n - 1 - at
        filled = kernel.store(movement.index(tile, at), kernel.load(movement.index(source, place)))
        waited = intern(Ops.BARRIER, dtypes.void, (kernel.end(filled, turns),))
        value = kernel.after(tile, waited)
    turns = kernel.range(n // threads, 2)
    at = turns * threads + me
    assert value is not None
    stored = kernel.store(movement.index(out, at), kernel.load(movement.index(value, at)))
    return kernel.sink(kernel.end(stored, turns))


MOST_SHARED = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90a": 227}


@pytest.mark.parametrize("part", MOST_SHARED)
@pytest.mark.parametrize("kilobytes", [48, 49, "most"])
@pytest.mark.few(3)
def test_shared_memory_of_a_size(part, kilobytes):
    """Up to 48 KB the kernel declares it; above, the launch asks for it, to the part's limit."""
    total = (MOST_SHARED[part] if kilobytes == "most" else kilobytes) << 10
    n = total // 8 // 128 * 128
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    with module.installed(part) as driver:
        program = uopc.compile(through_shared(n), device="cuda", verify=True)
        program(out, x)
    assert np.array_equal(out, x[::-1])
    (launch,), (made,) = program.plan.launches, program.kernels
    assert made.shared_bytes == 8 * n and (launch.dynamic_shared > 0) == (8 * n > 48 << 10)
    assert (".extern .shared" in made.asm) == (launch.dynamic_shared > 0)
    assert ("cuFuncSetAttribute" in driver.calls) == (launch.dynamic_shared > 0)
    if ptxas.find_ptxas() is not None:
        (used,) = ptxas.assemble(made.asm, part).kernels.values()
        assert used.shared == (0 if launch.dynamic_shared else 8 * n)


@pytest.mark.parametrize("part", MOST_SHARED)
def test_more_shared_memory_than_a_block_has(part):
    with pytest.raises(uopc.Unsupported, match=rf"but has {MOST_SHARED[part] << 10}"):
        uopc.compile(through_shared(MOST_SHARED[part] * 128 + 128), device=f"cuda:{part}")


# ---------------------------------------------------------------- stores that threads wait for
def test_a_store_waits_until_all_threads_have_read():
    """One thread of a block writes what each of its threads reads, for a store of its own."""
    rows, columns = 6, 128
    total, y, out = (
        creation.kernel_param(slot, (size,), dtypes.float32)
        for slot, size in enumerate((rows, rows * columns, rows * columns))
    )
    r, c = kernel.range(rows, 0), kernel.range(columns, 1)
    here, there = movement.index(total, r), r * columns + c
    product = here * movement.index(y, there)
    first = kernel.end(kernel.store(movement.index(out, there), product), c)
    after = movement.index(total.after(first), r)
    graph = kernel.sink(
        kernel.end(kernel.store(after, here + 1.0), r),
        opts=(Opt("LOCAL", 1, columns), Opt("GRID", 0, 0)),
    )
    old, factors = np.arange(rows, dtype=np.float32), np.ones((rows, columns), np.float32)
    for part in GPUS:
        with module.installed(part):
            program = uopc.compile(graph, device="cuda", verify=True)
            (k,) = program.kernels
            given, got = old.copy(), np.zeros(rows * columns, np.float32)
            program(given, factors.reshape(-1), got)
        assert np.array_equal(given, old + 1)
        assert np.array_equal(got.reshape(rows, columns), old[:, None] * factors)
        steps = list(k.uops.src)
        (barrier,) = [i for i, u in enumerate(steps) if u.op is Ops.BARRIER]
        loads = [i for i, u in enumerate(steps) if u.op is Ops.LOAD]
        (read,) = [i for i in loads if steps[i].src[0].src[0].arg.slot == 0]
        (_, write) = [i for i, u in enumerate(steps) if u.op is Ops.STORE]
        assert read < barrier < write and k.asm.count("bar.sync") == 1
