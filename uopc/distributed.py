"""Several processes, each with one device of a mesh.

    mpirun -n 4 python train.py

Call `initialize` once per process. From then on, programs for a mesh with a device per process run
on all processes. This needs an extra: `uopc[mpi]`, and an MPI library, or `uopc[gloo]`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc import config
from uopc.backends.exchange import mesh_runner
from uopc.backends.exchange.cost import Cache, Link, Machine
from uopc.backends.exchange.device_call import ExchangeStep
from uopc.backends.exchange.sharded_array import NamedSharding, ShardedArray, from_callback
from uopc.backends.plan import Exchange
from uopc.driver import compile
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.devices.mesh import Mesh, PartitionSpec
from uopc.program.graph.sharding import Sharding
from uopc.program.program import BoundProgram, Program
from uopc.program.request import thread_count
from uopc.tensor.creation import param

if TYPE_CHECKING:  # mpi4py starts MPI when it is imported
    from uopc.backends.exchange.ranks import Ranks

Run = Callable[[], object]

__all__ = [
    "Cache", "Link", "Machine", "initialize", "is_initialized", "make_array_from_callback",
    "measure", "on_dask", "process_count", "process_index",
]  # fmt: skip


def initialize(
    coordinator_address: str | None = None, num_processes: int | None = None,
    process_id: int | None = None, *, timeout: float = 300.0,
) -> None:  # fmt: skip
    """Join the job of this process: without arguments, of MPI (`mpirun`). With arguments, processes
    meet at an address of the first process, `"host:port"`, and exchange by Gloo.

    If an exchange takes longer than `timeout` seconds, the job ends with a message that names the
    exchange and its line; an uncaught exception also ends the job. MPI needs the extra `uopc[mpi]`
    and an MPI library, Gloo the extra `uopc[gloo]`. UserError for a timeout that is not positive,
    an address without a port, a process_id that is not below num_processes, or a second call;
    Unsupported if the library is missing.

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
        raise UserError("initialize: this process has already joined its job: call it once")
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
            "initialize: expected num_processes > 0 and a process_id from 0 to num_processes - 1,"
            f" got {num_processes!r} and {process_id!r}"
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
    """An array of which each process reads only the parts of its own devices.

    data_callback: given the slices of a part, one per dimension, it returns that part, which is
    used without a copy if possible (a part of a memory map, say). UserError for a part of another
    shape, an axis that the mesh does not have, or a mesh without a device per rank; UserTypeError
    for parts of several dtypes, no shape, or no function.

    Examples:
        >>> mesh = uopc.make_mesh((2,), ("m",))
        >>> file = np.arange(6.0)  # np.memmap(...), say
        >>> x = uopc.make_array_from_callback(
        ...     (6,), uopc.NamedSharding(mesh, uopc.P("m")), lambda index: file[index])
        >>> total = uopc.param("x", (6,), dtypes.float64).sum()
        >>> uopc.compile(total, sharding=uopc.Sharding(mesh, in_shardings=uopc.P("m")))(x)
        array(15.)
    """
    job = mesh_runner.ranks
    if job is None:
        own = range(sharding.mesh.size) if isinstance(sharding, NamedSharding) else ()
        return from_callback(shape, sharding, data_callback, own, None)
    if isinstance(sharding, NamedSharding):
        job.check_size(sharding.mesh)
    return from_callback(shape, sharding, data_callback, [job.rank], job.gathered)


def on_dask(program: Program | BoundProgram, /, *arrays: Any, **named: Any) -> Any:
    """The results of a call of a program for a mesh, as lazy Dask arrays. A task is the work of a
    device between exchanges, or an exchange.

    Arguments are arrays of NumPy or of Dask; a task reads only the part of its device. A result has
    a chunk for each part. No array is changed: an argument that the program writes becomes a new
    array. Needs the extra `uopc[dask]`; any scheduler works.

    UserError for a program without a mesh, or with a mesh that names its devices, and for arrays
    that do not fit; Unsupported for a program that writes an argument and does not return it.

    `docs/distributed.md` has an example with Dask arrays.

    Examples:
        >>> uopc.distributed.on_dask(uopc.compile(uopc.param("x", (3,)) * 2), np.ones(3, "f4"))
        Traceback (most recent call last):
        uopc.errors.UserError: on_dask: expected a program for a mesh that names no devices; ...
    """
    if not isinstance(getattr(program, "_runner", None), mesh_runner.MeshRunner):
        raise UserError(
            "on_dask: expected a program for a mesh that names no devices; pass any"
            " other program to dask.array.map_blocks, and its arrays in the call, not to bind"
        )
    try:
        from uopc.backends.exchange import dask_tasks
    except ImportError as error:
        raise Unsupported(f"on_dask: install uopc[dask]: {error}") from error
    return dask_tasks.call(program, arrays, named)


def measure(mesh: Mesh | None = None) -> Machine:
    """The speed of this process, and of its connections to the other processes of its job along
    each axis of a mesh. The measurement takes two seconds, and all ranks must call it.

    `operations` is measured by products of 512 x 512 matrices. Bandwidths are measured by summing
    and by doubling arrays while all ranks do the same, because ranks on one machine share caches
    and memory: 128 MiB for memory, 1 to 64 MiB for `caches`. A link's `beside` is the fraction of a
    large sum's time in which such products run beside it. In one process, memory connects the
    devices; devices that a mesh names work at the same time, as ranks do, and a link's latency is
    the time that they wait for each other.

    UserError unless the mesh has a device per rank, UserTypeError unless it is a mesh.

    Examples:
        >>> machine = uopc.distributed.measure()
        >>> machine.operations > 1e8 and machine.bandwidth > 1e8
        True
    """
    if mesh is not None and not isinstance(mesh, Mesh):
        raise UserTypeError(f"measure: expected a uopc.Mesh, got {mesh!r}")
    count = 1 if mesh is None else max(1, len(mesh.devices))
    threads = max(1, thread_count(None, config.current()) // count)
    multiply = compile(param("a", (512, 512)) @ param("b", (512, 512)), threads=threads)

    def product() -> Run:
        a, out = np.ones((512, 512), "f4"), np.empty((512, 512), "f4")
        return lambda: multiply(a, a, out=out)

    each = _slowest(product, devices=count)
    *caches, memory = [_memory(nbytes, threads, count) for nbytes in (*_CACHES, _MEMORY)]
    tiny, one, result = compile(param("x", (1,)) * 2), np.ones(1, "f4"), np.empty(1, "f4")
    launch = _slowest(lambda: lambda: tiny(one, out=result))
    if mesh is not None and mesh.devices:
        links = dict.fromkeys(mesh.axis_names, _wait(mesh, launch))
    else:
        names = () if mesh is None else mesh.axis_names
        links = {m: _link(mesh, m, product(), each) for m in names if mesh is not None}
    found = Machine(
        2 * 512**3 / each, memory.bandwidth, Link(1e-6, memory.bandwidth), links, launch,
        writing=memory.writing, caches=tuple(caches),
    )  # fmt: skip
    return replace(found, link=found.between(tuple(links))) if links else found


_CACHES = tuple([1 << n for n in (20, 22, 24, 25, 26)])
_MEMORY = 1 << 27


def _memory(nbytes: int, threads: int, devices: int) -> Cache:
    """The bandwidths of memory for arrays of `nbytes` that are used repeatedly."""
    size = nbytes // 4
    total = compile(param("x", (size,)).sum(), threads=threads)
    double = compile(param("x", (size // 2,)) * 2, threads=threads)

    def reading() -> Run:
        x = np.ones(size, "f4")
        return lambda: total(x)

    def writing() -> Run:
        x, twice = np.ones(size // 2, "f4"), np.empty(size // 2, "f4")
        return lambda: double(x, out=twice)

    reads = _slowest(reading, devices=devices) / 2  # of half
    both = _slowest(writing, devices=devices)
    writes = max(both - reads, both / 8)  # in case `reads` is too large by chance
    return Cache(nbytes, nbytes / 2 / reads, nbytes / 2 / writes)


def _slowest(make: Callable[[], Run], count: int = 0, devices: int = 1) -> float:
    """The seconds of a call that all ranks, or devices of this process, make at the same time: the
    slowest counts, so all ranks get the same number. `make` gives a call with its own memory.
    `count`: as for `_best`."""
    ranks = mesh_runner.ranks
    if devices > 1:
        return _at_once([make() for _ in range(devices)], count)
    run = make()
    if ranks is None:
        return _best(run, count)
    ranks.gathered(np.zeros(1))  # they begin together
    return float(np.max(ranks.gathered(np.array([_best(run, count)]))))


def _at_once(runs: Sequence[Run], count: int) -> float:
    """The seconds of the slowest of calls that threads of this process make at the same time."""
    start = threading.Barrier(len(runs))

    def one(run: Run) -> float:
        start.wait()
        return _best(run, count)

    with ThreadPoolExecutor(len(runs)) as workers:
        return max(workers.map(one, runs))


def _wait(mesh: Mesh, launch: float) -> Link:
    """The link between devices of this process: memory, and the time of mutual waiting."""
    x, spec = param("x", (mesh.size,)), PartitionSpec(mesh.axis_names)
    total = compile(x.sum(), sharding=Sharding(mesh, in_shardings=spec))
    given, out = np.ones(mesh.size, "f4"), np.empty((), "f4")
    took = _best(lambda: total(given, out=out))
    counted = total.predict(Machine(1e18, 1e18, Link(1.0, 1e18), launch=launch))
    waits = max(1.0, counted.exchanges)  # of a second each
    return Link(max((took - counted.kernels) / waits, took / 8), 1e12)


def _link(mesh: Mesh, axis: str, product: Callable[[], object], each: float) -> Link:
    """The link between the ranks along a mesh axis, from the times of sums of few and of many
    numbers, and of sums beside products that take `each` seconds."""
    ranks, p = mesh_runner.ranks, mesh.shape[axis]
    if ranks is None or p == 1:
        return Link(1e-6, 1e12)
    ranks.check_size(mesh)
    exchange = Exchange("allreduce", (), axes=(axis,), parts=p, op="add", dtype=np.dtype("f4"))
    one, large = np.zeros(1, "f4"), np.zeros(1 << 20, "f4")
    few, many = [
        _slowest(partial(ranks.exchanged, mesh, ExchangeStep(exchange, a, a)), count)
        for a, count in ((one, 200), (large, 4))
    ]  # fmt: skip
    start, repeats = (
        ranks.started(mesh, ExchangeStep(exchange, large, large)),
        round(many / each) + 1,
    )

    def products() -> None:
        for _ in range(repeats):
            product()

    def beside() -> None:
        wait = start()
        products()
        wait()

    alone, both = _slowest(lambda: products, 2), _slowest(lambda: beside, 2)
    share = float(np.clip((many + alone - both) / min(many, alone), 0, 1))
    rounds = (p - 1).bit_length()
    rate = 2 * large.nbytes * (p - 1) / p / max(many - 2 * few, many / 2)
    return Link(few / rounds, rate, share)


def _best(run: Callable[[], object], count: int = 0) -> float:
    """The seconds of a call: the best average of `count` calls, or of 2 ms of calls."""
    run()
    if not count:
        begin = time.perf_counter()
        run()
        count = max(1, min(1000, int(2e-3 / (time.perf_counter() - begin))))
    found = []
    for _ in range(12):
        begin = time.perf_counter()
        for _ in range(count):
            run()
        found.append((time.perf_counter() - begin) / count)
    return min(found)
