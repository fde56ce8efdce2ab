"""Several processes: each has one device of a mesh.

    mpirun -n 4 python train.py

`initialize` once per process; from then on programs for a mesh of as many devices as there are
processes run on all of them. It needs an extra: `uopc[mpi]`, and an MPI library, or `uopc[gloo]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from uopc.backends.exchange import mesh_runner
from uopc.backends.exchange.sharded_array import NamedSharding, ShardedArray, from_callback
from uopc.errors import Unsupported, UserError

if TYPE_CHECKING:
    from uopc.backends.exchange.ranks import Ranks

__all__ = [
    "initialize", "is_initialized", "make_array_from_callback", "process_count", "process_index",
]  # fmt: skip


def initialize(
    coordinator_address: str | None = None, num_processes: int | None = None,
    process_id: int | None = None, *, timeout: float = 300.0,
) -> None:  # fmt: skip
    """Join the job of this process: without arguments that of MPI (`mpirun`), with them one of
    processes that meet at an address, `"host:port"`, of the first of them, and exchange by Gloo.

    An exchange that takes longer than `timeout` seconds ends the job with a message that names it
    and the line it is for, as does an uncaught exception. MPI needs the extra `uopc[mpi]` and an
    MPI library, Gloo the extra `uopc[gloo]`. UserError for a timeout that is not positive, an
    address without a port, a process_id that is not below num_processes, or a second call;
    Unsupported where the library is missing.

    Examples:
        >>> from uopc import distributed
        >>> distributed.initialize(timeout=0)
        Traceback (most recent call last):
        uopc.errors.UserError: initialize: timeout must be a positive number of seconds, got 0
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise UserError(
            f"initialize: timeout must be a positive number of seconds, got {timeout!r}"
        )
    if is_initialized():
        raise UserError("initialize: this process has joined its job already")
    given = coordinator_address, num_processes, process_id
    if given == (None, None, None):
        mesh_runner.ranks = _of_mpi(float(timeout))
        return
    if not isinstance(coordinator_address, str) or not _PORT.search(coordinator_address):
        raise UserError(
            f"initialize: expected an address as 'host:port', got {coordinator_address!r}"
        )
    numbers = [n for n in (num_processes, process_id) if type(n) is int]
    if len(numbers) != 2 or not 0 <= numbers[1] < numbers[0]:
        raise UserError(
            "initialize: expected num_processes, and a process_id below it, got"
            f" {num_processes!r} and {process_id!r}"
        )
    mesh_runner.ranks = _of_gloo(coordinator_address, numbers[0], numbers[1], float(timeout))


_PORT = re.compile(r".:\d+$")


def _of_mpi(timeout: float) -> Ranks:
    try:
        from uopc.backends.exchange.mpi import MpiRanks
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no MPI library
        raise Unsupported(f"initialize: install uopc[mpi] and an MPI library: {error}") from error
    return MpiRanks(timeout)


def _of_gloo(address: str, size: int, rank: int, timeout: float) -> Ranks:
    try:
        from uopc.backends.exchange.gloo import GlooRanks
    except ImportError as error:
        raise Unsupported(f"initialize: install uopc[gloo]: {error}") from error
    return GlooRanks(address, size, rank, timeout)


def is_initialized() -> bool:
    """True once `initialize` has been called.

    Examples:
        >>> from uopc import distributed
        >>> distributed.is_initialized()
        False
    """
    return mesh_runner.ranks is not None


def process_index() -> int:
    """The rank of this process; 0 without `initialize`.

    Examples:
        >>> from uopc import distributed
        >>> distributed.process_index()
        0
    """
    return 0 if mesh_runner.ranks is None else mesh_runner.ranks.rank


def process_count() -> int:
    """The number of processes; 1 without `initialize`.

    Examples:
        >>> from uopc import distributed
        >>> distributed.process_count()
        1
    """
    return 1 if mesh_runner.ranks is None else mesh_runner.ranks.size


def make_array_from_callback(
    shape: Sequence[int], sharding: NamedSharding, data_callback: Callable[..., Any]
) -> ShardedArray:
    """The array of which each process reads the parts of its devices alone.

    data_callback: given the slices of a part, one per dimension, it returns that part, which is
    used where it lies if it can be (a part of a memory map, say). UserError for a part of another
    shape, an axis that the mesh does not have, or a mesh without a device per rank; UserTypeError
    for parts of several dtypes.

    Examples:
        >>> mesh = uopc.make_mesh((2,), ("m",))
        >>> file = np.arange(6.0)  # np.memmap(...), say
        >>> x = uopc.make_array_from_callback(
        ...     (6,), uopc.NamedSharding(mesh, uopc.P("m")), lambda index: file[index])
        >>> total = uopc.param("x", (6,), dtypes.float64).sum()
        >>> uopc.compile(total, mesh=mesh, in_shardings=uopc.P("m"))(x)
        array(15.)
    """
    job = mesh_runner.ranks
    if job is None:
        own = range(sharding.mesh.size) if isinstance(sharding, NamedSharding) else ()
        return from_callback(shape, sharding, data_callback, own, None)
    if isinstance(sharding, NamedSharding):
        job.check_size(sharding.mesh)
    return from_callback(shape, sharding, data_callback, [job.rank], job.gathered)
