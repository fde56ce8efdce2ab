"""The runtime for NVIDIA devices, driven end to end on a device that is not there."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import time
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests import ROOT
from tests.effort import calls
from tests.standin import library, module
from tests.standin.driver import ILLEGAL_ADDRESS, NO_DEVICE, NOT_SUPPORTED, OUT_OF_MEMORY, Driver
from uopc.backends.cuda import binding
from uopc.backends.cuda import device as devices
from uopc.backends.cuda.arrays import DeviceArray
from uopc.backends.cuda.pool import size_class
from uopc.backends.cuda.runner import CudaRunner
from uopc.backends.plan import Argument, GpuLaunch, Plan, Pointer, ResultArray, Scalar, Variable
from uopc.errors import DeviceError, DeviceMemoryError, InvalidIR, UserError

F32 = np.dtype(np.float32)
# o[i] = a[i] * b[i] for i < n, from blocks of 64.
MULTIPLY = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry mul(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)
.reqntid 64, 1, 1
{
  .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.s32 %r3, %r2, 64, %r1;
  cvt.u64.u32 %rd1, %r3; ld.param.u64 %rd2, [p3];
  setp.ge.u64 %p1, %rd1, %rd2;
  @%p1 bra $end;
  shl.b64 %rd3, %rd1, 2;
  ld.param.u64 %rd4, [p0]; ld.param.u64 %rd5, [p1]; ld.param.u64 %rd6, [p2];
  add.s64 %rd4, %rd4, %rd3; add.s64 %rd5, %rd5, %rd3; add.s64 %rd6, %rd6, %rd3;
  ld.global.b32 %r4, [%rd5]; ld.global.b32 %r5, [%rd6];
  mul.rn.f32 %r6, %r4, %r5;
  st.global.b32 [%rd4], %r6;
$end:
  ret;
}
"""


class N:
    """The variable n, or what it makes of the number of blocks."""

    def __init__(self, blocks=False):
        self.blocks, self.variable = blocks, None if blocks else "n"

    def evaluate(self, values):
        return -(-values["n"] // 64) if self.blocks else values["n"]


def product(n=100, **fields):
    """x * y, then that times a constant, through the arena."""
    first = GpuLaunch("mul", (Pointer(3), Pointer(0), Pointer(1), Scalar(n)), 1, False,
                      (-(-n // 64), 1, 1), (64, 1, 1))  # fmt: skip
    second = GpuLaunch("mul", (Pointer(2), Pointer(3), Pointer(4), Scalar(n)), 1, False,
                       (-(-n // 64), 1, 1), (64, 1, 1))  # fmt: skip
    arguments = (Argument("x", F32, (n,)), Argument("y", F32, (n,)))
    constants = (np.full(n, 3, np.float32),)
    return Plan(arguments, (ResultArray(F32, (n,)),), (first, second), arena_bytes=4 * n,
                constants=constants, **fields)  # fmt: skip


def in_place():
    """x *= y on the first n elements, and the same array handed back."""
    n = N()
    launch = GpuLaunch("mul", (Pointer(0), Pointer(0), Pointer(1), Scalar(n)), 1, False,
                       (N(True), 1, 1), (64, 1, 1))  # fmt: skip
    arguments = (Argument("x", F32, (n,), True), Argument("y", F32, (n,)))
    return Plan(arguments, (ResultArray(F32, (n,), 0),), (launch,), (Variable("n", 0, 1000),))


@pytest.fixture
def driver(monkeypatch):
    """A stand-in for pycuda.driver (or for libcuda below it), and a runtime that is new to it."""
    if library.built is not None:
        made = library.built.driver
        made.reset()
    else:
        made = Driver()
        module.install(made, monkeypatch)
    monkeypatch.setattr(binding, "_driver", None)
    monkeypatch.setattr(devices, "_devices", {})
    yield made
    made.reset()
    gc.collect()
    devices.close_all()


def runner(plan=None, ptx=MULTIPLY):
    return CudaRunner(plan or product(), {"mul": ptx}, devices.device(0))


def inputs(n=100):
    random = np.random.default_rng(0)
    return random.standard_normal(n).astype(F32), random.standard_normal(n).astype(F32)


def on_device(array, place=None):
    """A copy on the device."""
    device = place or devices.device(0)
    with device:
        block = device.constant(np.ascontiguousarray(array))
    return DeviceArray(block.address, array.shape, array.dtype, device, block)


# ---------------------------------------------------------------- calls
def test_arrays_of_the_host(driver):
    run, (x, y) = runner(), inputs()
    for _ in range(3):
        got = run.call((x, y), {})
        assert type(got) is np.ndarray and np.array_equal(got, x * y * np.float32(3))
    assert run.call((), {"y": y, "x": x}).tolist() == got.tolist()
    out = np.zeros(100, F32)
    assert run.call((x, y), {"out": out}) is out and np.array_equal(out, got)
    assert [name for name, _, _ in driver.launches] == ["mul"] * 10
    assert driver.launches[0][1:] == ((2, 1, 1), (64, 1, 1))


def test_arrays_of_the_device_are_not_copied(driver):
    run, (x, y) = runner(), inputs()
    a, b = on_device(x), on_device(y)
    before = dict(driver.calls)
    got = run.call((a, b), {})
    assert isinstance(got, DeviceArray)
    copies = [k for k in driver.calls if k.startswith("cuMemcpy")]
    assert all(driver.calls[k] == before.get(k, 0) for k in copies)
    assert driver.calls.get("cuCtxSynchronize", 0) == before.get("cuCtxSynchronize", 0)
    assert np.array_equal(got.numpy(), x * y * np.float32(3))
    assert np.array_equal(np.asarray(got), got.numpy()) and "float32[100] on cuda:0" in repr(got)
    out = on_device(np.zeros(100, F32))
    assert run.call((a, b), {"out": out}) is out
    assert np.array_equal(out.numpy(), got.numpy())


def test_the_context_is_the_primary_one_and_only_lent(driver):
    """Another library's context is current again after a call, and after one that failed."""
    before, theirs = list(driver.contexts), object()
    driver.contexts.append(theirs)
    run, (x, y) = runner(), inputs()
    made = [k for k in driver.calls if k.startswith(("cuCtxCreate", "cuDevicePrimaryCtx"))]
    assert made == ["cuDevicePrimaryCtxRetain"]
    a, b = on_device(x), on_device(y)
    for given in ((x, y), (a, b), (a, y)):
        run.call(given, {})
        assert driver.contexts == [*before, theirs]
    with pytest.raises(UserError):
        run.call((x, y[:5]), {})
    driver.failing["cuMemcpyHtoDAsync_v2"] = driver.failing["cuMemcpyHtoD_v2"] = OUT_OF_MEMORY
    with pytest.raises(DeviceError):
        run.call((x, y), {})
    assert driver.contexts.pop() is theirs and driver.contexts == before


def test_a_text_is_loaded_once(driver):
    first, other = runner(), runner(in_place())
    loaded = driver.calls["cuModuleLoadDataEx"]
    assert loaded == 1 and first.device is other.device
    runner(ptx=MULTIPLY.replace("mul.rn", "add.rn"))
    assert driver.calls["cuModuleLoadDataEx"] == 2


def test_host_and_device_mixed(driver):
    run, (x, y) = runner(), inputs()
    got = run.call((x, on_device(y)), {})
    assert isinstance(got, DeviceArray)
    assert np.array_equal(got.numpy(), x * y * np.float32(3))
    out = np.zeros(100, F32)
    assert run.call((x, on_device(y)), {"out": out}) is out
    assert np.array_equal(out, x * y * np.float32(3))


@pytest.mark.parametrize("n", [0, 1, 64, 65, 1000])
def test_writing_in_place_with_a_symbolic_size(driver, n):
    run, (x, y) = runner(in_place()), inputs(n)
    want, kept = x * y, x.copy()
    assert run.call((x, y), {}) is x and np.array_equal(x, want)
    a = on_device(kept)
    assert run.call((a, on_device(y)), {}) is a
    assert np.array_equal(a.numpy(), want)
    assert len(driver.launches) == (2 if n else 0)


@pytest.mark.parametrize("structure, keys", [("tuple", ()), ("list", ()), ("dict", ("p",))])
def test_structures(driver, structure, keys):
    x, y = inputs()
    got = runner(product(structure=structure, keys=keys)).call((x, y), {})
    assert isinstance(got, {"tuple": tuple, "list": list, "dict": dict}[structure])
    (value,) = got.values() if structure == "dict" else got
    assert np.array_equal(value, x * y * np.float32(3))


@pytest.mark.slow
def test_the_arguments_of_a_launch_are_packed_once(driver):
    run, (x, y) = runner(), inputs()
    a, b = on_device(x), on_device(y)
    for _ in range(20):
        run.call((a, b), {})
        gc.collect()
    assert len(run._ready) == 1  # the pool hands out the same memory again
    assert driver.calls["cuMemAlloc_v2"] == 5  # x, y, the constant, the arena and the result


def times_three(count, n=100):
    """x * y, and that times three, `count` launches in all: the last writes the result."""
    places = [3, *[3] * (count - 2), 2]
    words = [(Pointer(3), Pointer(0), Pointer(1), Scalar(n))]
    words += [(Pointer(p), Pointer(3), Pointer(4), Scalar(n)) for p in places[1:]]
    launches = tuple([GpuLaunch("mul", w, 1, False, (2, 1, 1), (64, 1, 1)) for w in words])
    return replace(product(n), launches=launches)


def test_launches_in_a_row_are_one_graph(driver):
    """From the second call with the same addresses on, and with the numbers of each array."""
    run, (x, y) = runner(times_three(4)), inputs()
    a, b = on_device(x), on_device(y)
    for _ in range(4):
        assert np.array_equal(run.call((a, b), {}).numpy(), x * y * 3 * 3 * 3)
    assert driver.calls["cuGraphLaunch"] == 3 and driver.calls["cuGraphInstantiateWithFlags"] == 1
    assert driver.calls["cuLaunchKernel"] == 8 and len(driver.launches) == 16
    kept = [run.call((b, b), {}) for _ in range(3)]
    assert driver.calls["cuGraphLaunch"] == 3  # each result has an address of its own
    assert all(np.array_equal(k.numpy(), y * y * 3 * 3 * 3) for k in kept)


def test_one_launch_is_no_graph(driver):
    words = (Pointer(2), Pointer(0), Pointer(1), Scalar(100))
    alone = (GpuLaunch("mul", words, 1, False, (2, 1, 1), (64, 1, 1)),)
    run, (x, y) = runner(replace(product(), launches=alone)), inputs()
    a, b = on_device(x), on_device(y)
    for _ in range(3):
        run.call((a, b), {})
    assert "cuGraphLaunch" not in driver.calls and driver.calls["cuLaunchKernel"] == 3


@pytest.mark.parametrize("how", ["missing", "not supported"])
def test_a_driver_without_graphs(driver, monkeypatch, how):
    if how == "missing":
        monkeypatch.setattr(binding, "library", lambda: None)
    else:
        driver.failing["cuStreamBeginCapture_v2"] = NOT_SUPPORTED
    run, (x, y) = runner(times_three(3)), inputs()
    a, b = on_device(x), on_device(y)
    for _ in range(4):
        assert np.array_equal(run.call((a, b), {}).numpy(), x * y * 3 * 3)
    assert driver.calls["cuLaunchKernel"] == 12 and "cuGraphLaunch" not in driver.calls


@pytest.mark.parametrize("entry", ["cuStreamEndCapture", "cuGraphInstantiateWithFlags",
                                   "cuGraphLaunch"])  # fmt: skip
def test_a_graph_that_fails(driver, entry):
    run, (x, y) = runner(times_three(3)), inputs()
    a, b = on_device(x), on_device(y)
    run.call((a, b), {})
    driver.failing[entry] = ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match="a kernel failed on the device"):
        run.call((a, b), {})


def test_a_trace_has_every_launch(driver):
    x, y = inputs()
    got, times = runner().trace((x, y), {})
    assert np.array_equal(got, x * y * np.float32(3))
    assert [name for name, _ in times] == ["mul", "mul"] and all(t >= 0 for _, t in times)


# ---------------------------------------------------------------- other libraries
class Foreign:
    """An array of another library, by one protocol."""

    def __init__(self, array, **facts):
        self.array, self.facts = array, facts

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, **self.facts}


class Capsuled:
    def __init__(self, array):
        self.array, self.streams = array, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream):
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream)


def test_array_interface(driver):
    run, (x, y) = runner(), inputs()
    a, b = on_device(x), on_device(y)
    facts = a.__cuda_array_interface__
    assert facts["data"] == (a.address, False) and facts["typestr"] == "<f4"
    assert facts["shape"] == (100,) and facts["version"] == 3 and facts["stream"] == 1
    got = run.call((Foreign(a, strides=(4,)), Foreign(b, stream=7)), {})
    assert np.array_equal(got.numpy(), x * y * np.float32(3))
    with pytest.raises(UserError, match="contiguous"):
        run.call((Foreign(a, strides=(8,)), b), {})
    with pytest.raises(UserError, match=r"expected float32\[100\], got float32\[99\]"):
        run.call((Foreign(a, shape=(99,)), b), {})
    with pytest.raises(TypeError, match="int32"):
        run.call((Foreign(a, typestr="<i4"), b), {})


def test_dlpack_both_ways(driver):
    run, (x, y) = runner(), inputs()
    a, b = Capsuled(on_device(x)), Capsuled(on_device(y))
    got = run.call((a, b), {})
    assert a.streams == [1] and np.array_equal(got.numpy(), x * y * np.float32(3))
    assert got.__dlpack_device__() == (2, 0)
    from uopc.backends.cuda import arrays

    kept = len(arrays._exported)
    capsule = got.__dlpack__()
    assert len(arrays._exported) == kept + 1
    del capsule
    gc.collect()
    assert len(arrays._exported) == kept


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint64, np.float16, ml_dtypes.bfloat16])
def test_dlpack_keeps_dtypes(driver, dtype):
    from uopc.backends.cuda import arrays

    a = on_device(np.arange(6).reshape(2, 3).astype(dtype))
    back = arrays.from_device("x", Capsuled(a), devices.device(0), a.dtype)
    assert (back.address, back.shape, back.dtype) == (a.address, (2, 3), np.dtype(dtype))
    assert np.array_equal(back.numpy(), a.numpy())


def test_an_address_that_vectors_cannot_use_is_copied(driver):
    run, (x, y) = runner(in_place()), inputs(99)
    whole = on_device(np.concatenate([x[:1], x]))
    view = DeviceArray(whole.address + 4, (99,), F32, whole.device, whole)
    assert run.call((view, on_device(y)), {}) is view
    assert np.array_equal(view.numpy(), x * y) and whole.numpy()[0] == x[0]


# ---------------------------------------------------------------- memory
def test_memory_is_used_again(driver):
    run, (x, y) = runner(), inputs()
    for _ in range(5):
        run.call((x, y), {})
    device = devices.device(0)
    held = device.pool.held
    for _ in range(5):
        run.call((x, y), {})
    assert device.pool.held == held
    with device:
        device.pool.trim()
    assert device.pool.held == sum(size_class(400) for _ in range(1))  # the constant stays


def test_a_full_device_gives_up_what_it_does_not_use(driver):
    device = devices.device(0)
    driver.total = sum(driver.sizes.values()) + 10_000
    with device:
        first = device.pool.acquire(8000)
        del first
        second = device.pool.acquire(5000)
        assert second.nbytes == size_class(5000) and driver.calls["cuMemFree_v2"] == 1
        with pytest.raises(DeviceMemoryError, match="out of memory"):
            device.pool.acquire(8000)
    driver.total = Driver.total


@pytest.mark.parametrize("n", [0, 1, 511, 4096, 4097, 100_000, 1 << 20, (1 << 30) + 1])
def test_size_classes(n):
    size = size_class(n)
    assert size >= n and size % 512 == 0 and size <= max(512 + n, n + n // 8 + 1)
    assert size_class(size) == size


def asking(nbytes):
    """The product by launches that ask for shared memory."""
    plan = product()
    launches = tuple([replace(launch, dynamic_shared=nbytes) for launch in plan.launches])
    extern = ".extern .shared .align 128 .b8 whole[];\n.visible"
    return replace(plan, launches=launches), MULTIPLY.replace(".visible", extern)


def test_shared_memory_is_asked_for(driver):
    run, (x, y) = runner(*asking(100 << 10)), inputs()
    assert np.array_equal(run.call((x, y), {}), x * y * 3)
    assert driver.calls["cuFuncSetAttribute"] == 2
    with pytest.raises(DeviceError, match="loading"):
        runner(*asking(300 << 10))


# ---------------------------------------------------------------- failures
def test_no_pycuda(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setattr(binding, "_driver", None)
    with pytest.raises(DeviceError, match="pip install"):
        binding.driver()


def test_no_device(driver):
    driver.failing["cuInit"] = NO_DEVICE
    with pytest.raises(DeviceError, match="no CUDA-capable device"):
        devices.device(0)
    driver.failing.clear()
    with pytest.raises(DeviceError, match="no device cuda:3: there are 1"):
        devices.device(3)


def test_out_of_memory(driver):
    run, (x, y) = runner(), inputs()
    driver.failing["cuMemAlloc_v2"] = OUT_OF_MEMORY
    with pytest.raises(MemoryError, match="out of memory") as caught:
        run.call((x, y), {})
    assert isinstance(caught.value, DeviceError)
    driver.failing.clear()
    assert np.array_equal(run.call((x, y), {}), x * y * np.float32(3))


def test_a_kernel_that_fails(driver):
    x, y = inputs()
    run = runner(ptx=MULTIPLY.replace("shl.b64 %rd3, %rd1, 2", "shl.b64 %rd3, %rd1, 20"))
    with pytest.raises(DeviceError, match="a kernel failed on the device"):
        run.call((x, y), {})
    assert driver.fault is not None and "out of bounds" in str(driver.fault)


def test_ptx_that_is_refused(driver):
    with pytest.raises(InvalidIR, match="refuses the PTX"):
        runner(ptx=MULTIPLY.replace("mov.u32 %r1, %tid.x", "mov.u32 %r1, (3)"))
    with pytest.raises(DeviceError, match="not found"):
        runner(ptx=MULTIPLY.replace("entry mul(", "entry other("))


def test_bad_arguments(driver):
    run, (x, y) = runner(), inputs()
    with pytest.raises(TypeError, match="missing 1 argument"):
        run.call((x,), {})
    with pytest.raises(TypeError, match="float64"):
        run.call((x.astype(np.float64), y), {})
    with pytest.raises(UserError, match="overlaps"):
        a = on_device(x)
        run.call((a, y), {"out": DeviceArray(a.address, a.shape, a.dtype, a.device, a)})


# ---------------------------------------------------------------- speed
def test_a_launch_is_cheap(driver, monkeypatch, capsys):
    """Calls in a program of two launches, which it also times; on the real pycuda, all above
    libcuda. A limit in seconds would depend on the machine."""
    run, (x, y) = runner(), inputs()
    a, b = on_device(x), on_device(y)
    monkeypatch.setattr(Driver, "launch", lambda *_: None)
    for _ in range(2):  # the second call makes the graph
        run.call((a, b), {})
    rounds, silent = [], ("cuLaunchKernel", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
    real = library.built
    with contextlib.nullcontext() if real is None else real.silent(*silent):
        count = calls(lambda: run.call((a, b), {}))
        for _ in range(7):
            begin = time.process_time()
            for _ in range(200):
                run.call((a, b), {})
            rounds.append((time.process_time() - begin) / 200 * 1e6)
    with capsys.disabled():
        above = "pycuda.driver stood in for" if real is None else "libcuda stood in for"
        print(f"\ntwo launches, {above}: {min(rounds):.1f} us, {count} calls of functions")
    assert count < (75 if real is None else 200)  # pycuda has Python code of its own


# ---------------------------------------------------------------- the real pycuda
def test_pycuda_on_a_stand_in_library():
    """The same tests, in a process whose libcuda is ours."""
    reason = library.reason_not()
    if reason:
        pytest.skip(reason)
    run = subprocess.run(
        [sys.executable, "-m", "tests.standin"], cwd=ROOT, capture_output=True, text=True,
        timeout=120, env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert "passed" in run.stdout
