"""All devices in this thread: each runs to its next exchange, which NumPy does for all."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.backends.exchange.device_run import Step
from uopc.ir.core import dtypes
from uopc.ir.devices.mesh import Mesh
from uopc.ir.interpret import exchanges


def exchanged(mesh: Mesh, steps: Sequence[Step]) -> None:
    """Do one exchange, given the memory of all devices by rank."""
    exchange = steps[0].exchange
    given = [s.sent.copy() for s in steps]
    dtype = dtypes.from_numpy(exchange.dtype)
    got = exchanges.over_mesh(exchange.kernel, exchange, dtype, mesh, given)
    for s, array in zip(steps, got):
        s.got[...] = array
