"""All devices in this thread: each runs to its next exchange, which NumPy does for all."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.backends.exchange.device_call import ExchangeStep
from uopc.backends.plan import AnyArray, Exchange
from uopc.ir.core import dtypes
from uopc.ir.devices.mesh import Mesh
from uopc.ir.interpret import exchanges


def exchanged(mesh: Mesh, steps: Sequence[ExchangeStep]) -> None:
    """Do one exchange, given the memory of all devices by rank."""
    for s, array in zip(
        steps, exchange_values(mesh, steps[0].exchange, [s.sent.copy() for s in steps])
    ):
        s.got[...] = array


def exchange_values(mesh: Mesh, exchange: Exchange, given: Sequence[AnyArray]) -> list[AnyArray]:
    """The value that each device gets, from the values that they give."""
    dtype = dtypes.from_numpy(exchange.dtype)
    return exchanges.over_mesh(exchange.kernel, exchange, dtype, mesh, given)
