"""All devices in this thread: each runs to its next exchange, then NumPy exchanges for all."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.backends.exchange.device_call import ExchangeStep
from uopc.backends.plan import AnyArray, Exchange
from uopc.ir.core import dtypes
from uopc.ir.devices.mesh import Mesh
from uopc.ir.interpret import exchanges


def exchanged(mesh: Mesh, steps: Sequence[ExchangeStep]) -> None:
    """Run one exchange, given each device's step by rank."""
    for s, array in zip(
        steps, exchange_values(mesh, steps[0].exchange, [s.sent.copy() for s in steps])
    ):
        s.got[...] = array


def exchange_values(mesh: Mesh, exchange: Exchange, given: Sequence[AnyArray]) -> list[AnyArray]:
    """The result of an exchange on each device, given every device's input."""
    dtype = dtypes.from_numpy(exchange.dtype)
    return exchanges.over_mesh(exchange.kernel, exchange, dtype, mesh, given)
