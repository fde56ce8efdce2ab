"""Several processes: each has one device of a mesh.

    mpirun -n 4 python train.py

`initialize` once per process; from then on programs for a mesh of as many devices as there are
processes run on all of them. It needs the extra `uopc[mpi]`, and an MPI library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from uopc.backends.exchange import mesh_runner
from uopc.backends.exchange.sharded_array import NamedSharding, ShardedArray, from_callback
from uopc.errors import Unsupported, UserError

__all__ = [
    "initialize", "is_initialized", "make_array_from_callback", "process_count", "process_index",
]  # fmt: skip


def initialize(timeout: float = 300.0) -> None:
    """Join the MPI job of this process. An exchange that takes longer than `timeout` seconds ends
    the job with a message that names it and the line it is for, as does an uncaught exception.

    UserError for a timeout that is not positive, or a second call; Unsupported without mpi4py.

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
    try:
        from uopc.backends.exchange.mpi import Ranks
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no MPI library
        raise Unsupported(f"initialize: install uopc[mpi] and an MPI library: {error}") from error
    mesh_runner.ranks = Ranks(float(timeout))


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
