"""The device of a value, copies between devices, rows that no pass lowers."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc import Ops, UOp, dtypes
from uopc.ir.core.args import ExchangeArg, ParamArg
from uopc.ir.devices import device as devices


def on(device, name="p"):
    return UOp(Ops.PARAM, dtypes.float32, (), ParamArg(name, (8,), device=device))


x = uopc.param("x", (8,))


def test_the_device_follows_from_the_operands():
    assert (x + 1).device is None
    assert ((x.copy("CPU:0") + 1) * x).sum().device == "cpu"
    assert (on("cuda").reshape(2, 4) + 1).device == "cuda:0"
    stacked = UOp(Ops.MSTACK, x.dtype, (on("cuda:0"), on("cuda:1"), x))
    assert (stacked + 1).device == ("cuda:0", "cuda:1", None)
    assert UOp(Ops.MSELECT, x.dtype, (stacked,), 1).device == "cuda:1"
    assert on("cuda:1").copy("cuda:0").device == "cuda:0"
    moved = x.copy("cpu:1")  # storage stays where it is when another device's value comes to it
    assert x.copy("cpu").after(UOp(Ops.STORE, dtypes.void, (moved, moved))).device == "cpu"


def test_operands_on_two_devices_are_an_error_that_names_both_lines():
    a = x.copy("cpu")
    b = x.copy("cpu:1")
    with pytest.raises(uopc.UserError) as caught:
        uopc.compile(a * b)
    text = str(caught.value)
    first = test_operands_on_two_devices_are_an_error_that_names_both_lines.__code__.co_firstlineno
    assert f"test_device.py:{first + 1}" in text and f"test_device.py:{first + 2}" in text
    assert "MUL: a copy is on cpu" in text and "a copy is on cpu:1" in text


def test_parts_of_values_on_several_devices_are_checked():
    stacked = UOp(Ops.MSTACK, x.dtype, (x, x))
    with pytest.raises(uopc.UserError, match="mselect: part must be below 2"):
        _ = UOp(Ops.MSELECT, x.dtype, (stacked,), 2).device
    with pytest.raises(uopc.UserError, match="each part must be on one device"):
        _ = UOp(Ops.MSTACK, x.dtype, (stacked, x)).device


def test_a_copy_moves_or_is_refused():
    """A copy to another device is computed where its operand is, and stored where it goes to."""
    a = np.arange(8, dtype="f4")
    np.testing.assert_array_equal(uopc.compile(x.copy("cpu:0") * 3)(a), a * 3)
    there_and_back = ((x.copy("cpu") * 2).copy("cpu:3") + 1).copy("cpu")
    f = uopc.compile(there_and_back * 3, verify=True, threads=2)
    np.testing.assert_array_equal(f(a), (a * 2 + 1) * 3)
    plan = f._runner.plan
    assert plan.devices == (0, 3) and len(f.launches) == 3
    assert plan.rows == ((-1, 2), (0, 1, -1))
    with pytest.raises(uopc.Unsupported, match="a program for cpu cannot copy to cuda:0") as caught:
        uopc.compile((x * 2).copy("cuda:0") * 3)
    assert "test_device.py" in str(caught.value)
    with pytest.raises(uopc.Unsupported, match="a program for cuda:sm_90 cannot copy to cpu"):
        uopc.compile(x.copy("cpu") * 3, device="cuda:sm_90")


def test_an_argument_is_on_the_device_of_its_program():
    with pytest.raises(uopc.UserError, match="w is on cuda:0, but the program is for cpu"):
        uopc.compile(on("cuda", "w") * 2)
    assert uopc.compile(on("cpu:0") * 2)(np.ones(8, "f4")).tolist() == [2.0] * 8
    assert uopc.compile(on("cpu:5") * 2)(np.ones(8, "f4")).tolist() == [2.0] * 8


def test_a_device_has_workers_of_its_own():
    from uopc.backends.cpu import pool

    n = 1 << 16
    y = uopc.param("y", (n,))
    a = np.ones(n, "f4")
    for device, number in (("cpu:0", 0), ("cpu:1", 1), ("CPU:63", 63)):
        f = uopc.compile(y.exp().sin() * 2, device=device, threads=2)
        assert f._runner.plan.devices == (number,)
        if f._runner._pools:  # the kernel is spread on this machine
            assert f._runner._pools == [pool.shared_pool(0, number)]
        np.testing.assert_allclose(f(a), np.sin(np.exp(a)) * 2, 1e-5)
    assert pool.shared_pool(0, 1) is not pool.shared_pool(0, 0)


@pytest.mark.parametrize(
    "device", ["cpu:99", "cpu:64", "cpu:01", "cpu:-1", "cpux", "gpu", "", "cpu:"]
)
def test_unknown_devices_are_refused(device):
    with pytest.raises(uopc.UserError, match="unknown device"):
        uopc.compile(x * 2, device=device)
    with pytest.raises(uopc.UserError, match="unknown device"):
        uopc.compile(x.copy(device) * 2)


@pytest.mark.parametrize("made", [
    UOp(Ops.MSTACK, x.dtype, (x, x.copy("cuda:1"))), UOp(Ops.MSELECT, x.dtype, (x,), 0),
    UOp(Ops.ALLREDUCE, x.dtype, (x,), ExchangeArg(("m",), 2, "add")),
    UOp(Ops.SLICE, x.dtype, (x,), (0, 4)),
], ids=lambda u: u.op.name)  # fmt: skip
def test_rows_that_no_pass_lowers_are_unsupported(made):
    device = "cpu" if made.op is Ops.SLICE else "cuda:sm_90"
    with pytest.raises((uopc.Unsupported, uopc.UserError)) as caught:
        uopc.compile(made * 3, device=device)
    if made.op is not Ops.MSTACK:
        assert f"no pass lowers {made.op.name.upper()}" in str(caught.value)


def test_every_row_names_a_rule():
    assert {op.device for op in type(Ops.ADD).all()} == set(devices.RULES)
