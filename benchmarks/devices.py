"""Programs on two MPI ranks, also with exchanges beside launches, and on two devices of one
process, beside one core, and beside JAX on two processes with Gloo.

    python benchmarks/devices.py [--small] [--rounds 3] [--out FILE]

Each job runs in processes of its own, one core a process, in turns; of each the best of its rounds
counts. It prints ratios, and the load of the machine. It needs `mpiexec` and mpi4py; without JAX or
Dask their rows are left out, and the table says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import device_workloads
import numpy as np

import uopc
from uopc import P, distributed

HERE = Path(__file__).resolve()
RANKS, DEVICES = 2, ("cpu:0", "cpu:1")
# The ways to run a workload on two cores: the engine of its rows, and how its row is named.
WAYS = {"2 ranks": "", "overlap": ", overlap=True", "threads": ", threads"}
Row = dict[str, Any]


# ---------------------------------------------------------------- what a process does
def best(step: Callable[[], object], rounds: int, sync: Callable[[], None], calls: int) -> float:
    """The seconds of a step: the best of some rows of calls. All ranks make as many calls."""
    for _ in range(3):
        step()
    found = []
    for _ in range(rounds):
        sync()
        begin = time.perf_counter()
        for _ in range(calls):
            step()
        found.append((time.perf_counter() - begin) / calls)
    return min(found)


def sizes(name: str, small: bool) -> dict[str, Any]:
    """The arguments of a workload."""
    return device_workloads.SMALL[name] if small else {}


def calls(small: bool) -> int:
    """Calls in a row that is timed."""
    return 20 if small else 3


def say(**row: Any) -> None:
    """Tell the process that waits for rows."""
    print("ROW " + json.dumps(row), flush=True)


def one_core(small: bool) -> None:
    """All workloads on one core."""
    os.sched_setaffinity(0, {0})
    say_rates("one core", distributed.measure())
    for name, make in device_workloads.ALL.items():
        work = make(**sizes(name, small))
        f, arrays = uopc.compile(work.outputs, threads=1), work.arrays()
        given, outs = [arrays[v.name] for v in f.inputs], f(**arrays)
        step = functools.partial(f, *given, out=outs)
        say(engine="one core", work=name, seconds=best(step, 8, lambda: None, calls(small)))


def on_threads(small: bool) -> None:
    """All workloads on two devices of this process, each of which is a thread."""
    say_rates("threads", distributed.measure(uopc.make_mesh((RANKS,), ("m",), devices=DEVICES)))
    for name, make in device_workloads.ALL.items():
        work = make(**sizes(name, small))
        f, arrays = compiled(work, devices=DEVICES), work.arrays()
        given, outs = [arrays[v.name] for v in f.inputs], f(**arrays)
        step = functools.partial(f, *given, out=outs)
        say(engine="threads", work=name, seconds=best(step, 8, lambda: None, calls(small)))


def compiled(work: device_workloads.Work, overlap: bool = False, devices: Any = None) -> Any:
    """The program of a workload on a mesh of as many devices as there are ranks."""
    return uopc.compile(
        work.outputs, threads=RANKS if devices else 1,
        sharding=uopc.Sharding(
            uopc.make_mesh((RANKS,), (work.axis,), devices=devices),
            work.in_specs, work.out_spec, overlap=overlap,
        ),
    )  # fmt: skip


def on_ranks(small: bool) -> None:
    """All workloads on this rank, each of which has its parts; and a sum of one number."""
    from mpi4py import MPI

    from uopc.backends.exchange import mesh_runner

    distributed.initialize()
    ranks, world = mesh_runner.ranks, MPI.COMM_WORLD
    assert ranks is not None
    os.sched_setaffinity(0, {world.rank % (os.cpu_count() or 1)})
    machine = distributed.measure(uopc.make_mesh((world.size,), ("m",)))
    if world.rank == 0:
        say_rates("2 ranks", machine)
    for name, make in device_workloads.ALL.items():
        work = make(**sizes(name, small))
        arrays = work.arrays()
        for engine in ("2 ranks", "overlap"):
            f = compiled(work, overlap=engine == "overlap")
            step = rank_step(f, [arrays[v.name] for v in f.inputs])
            before = loopback_bytes()
            seconds = world.allreduce(best(step, 8, world.Barrier, calls(small)), MPI.MAX)
            sent = (loopback_bytes() - before) / (8 * calls(small) + 3)
            say_once(
                world, engine=engine, work=name, seconds=seconds, sent=sent,
                least=work.wired(world.size), exchanges=len(f.exchanges),
            )  # fmt: skip
    one, many = np.ones(1, "f4"), 50 if small else 500
    raw = best(lambda: world.Allreduce(MPI.IN_PLACE, one), 8, world.Barrier, many)
    x, mesh = uopc.param("x", (world.size,)), uopc.make_mesh((world.size,), ("m",))
    f = uopc.compile(x.sum(), threads=1, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    step = rank_step(f, [np.ones(world.size, "f4")])
    ours = best(step, 8, world.Barrier, many)
    say_once(world, engine="2 ranks", work="scalar", seconds=ours, raw=raw)


def say_once(world: Any, **row: Any) -> None:
    """The same, by the first rank."""
    if world.rank == 0:
        say(**row)


def say_rates(engine: str, machine: distributed.Machine) -> None:
    """Tell what was measured of the machine."""
    say(engine=engine, work="rates", seconds=0.0, machine=dataclasses.asdict(machine))


def rank_step(f: Any, arrays: list[Any]) -> Callable[[], object]:
    """A step of the program of this rank, on its parts of the arrays."""
    runner = f._runner
    (rank,) = runner.devices
    made = runner.sizes({})
    given = [np.ascontiguousarray(w.of(a)) for a, w in zip(arrays, made.windows[rank])]
    outs = made.memory[rank].make()
    return functools.partial(runner.run, {rank: given}, {rank: outs}, {})


def loopback_bytes() -> int:
    """The bytes that this machine has sent to itself."""
    for line in Path("/proc/net/dev").read_text("utf-8").splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[8])
    return 0


def on_jax(rank: int, port: str, small: bool) -> None:
    """All workloads by JAX on two processes."""
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    from jax.experimental import multihost_utils
    from jax.sharding import NamedSharding, PartitionSpec

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", RANKS, rank, initialization_timeout=60)
    devices = np.array(jax.devices())
    for name, make in device_workloads.ALL.items():
        work = make(**sizes(name, small))
        mesh = jax.sharding.Mesh(devices, (work.axis,))

        def spec(given: Any, mesh: Any = mesh) -> Any:
            return NamedSharding(mesh, PartitionSpec(*(given or ())))

        arrays = work.arrays()
        placed = {}
        for n, a in arrays.items():
            where = spec(work.in_specs.get(n))
            placed[n] = jax.make_array_from_callback(a.shape, where, a.__getitem__)
        own = device_workloads.JAX[name](jax, **sizes(name, small))
        f = jax.jit(own, out_shardings=spec(work.out_spec))
        step = _jax_step(jax, f, placed)
        seconds = best(
            step, 8, lambda: multihost_utils.sync_global_devices("turn"), calls(small)
        )  # fmt: skip
        if rank == 0:
            say(engine="jax", work=name, seconds=seconds)


def _jax_step(jax: Any, f: Any, arrays: dict[str, Any]) -> Callable[[], object]:
    return lambda: jax.block_until_ready(f(**arrays))


def blocks_of_dask(small: bool) -> None:
    """A program in the blocks of a Dask array, beside Dask's NumPy."""
    import dask.array as da

    rows, columns = (256, 64) if small else (16384, 2048)
    a = np.random.default_rng(0).standard_normal((rows, columns)).astype("f4")
    x = da.from_array(a, chunks=(rows // 8, columns))
    p = uopc.param("x", (rows // 8, columns))
    f = uopc.compile((p.tanh() * p.sigmoid()).sum(axis=1), threads=1)
    ours = x.map_blocks(f, drop_axis=1, dtype="f4").sum()
    numpy = (da.tanh(x) * (1 / (1 + da.exp(-x)))).sum()
    assert np.isclose(ours.compute(), numpy.compute(), 1e-2, 1e-1)
    for _ in range(3):
        mine = best(ours.compute, 2, lambda: None, 1)
        its = best(numpy.compute, 2, lambda: None, 1)
        say(engine="dask", work="map_blocks", seconds=mine, raw=its)


# ---------------------------------------------------------------- the run
def run(command: list[str], **environment: str) -> list[Row]:
    """The rows that a job tells. RuntimeError if it fails."""
    paths = os.pathsep.join([str(HERE.parent.parent), str(HERE.parent)])
    settings = {
        "PYTHONPATH": paths, "UOPC_THREADS": "1", "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", **environment,
    }  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return [json.loads(t[4:]) for t in done.stdout.splitlines() if t.startswith("ROW ")]


def jax_rows(small: list[str]) -> list[Row]:
    """JAX on two processes: the rows of the first one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    code = (
        "import subprocess, sys; a = sys.argv[1:];"
        "ps = [subprocess.Popen([*a[:2], 'jax', str(i), *a[2:]]) for i in range(2)];"
        "sys.exit(max([abs(p.wait()) for p in ps]))"
    )
    return run([sys.executable, "-c", code, sys.executable, str(HERE), port, *small])


def mpiexec() -> str:
    """The command that starts ranks. RuntimeError where there is none."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which("mpiexec", path=folders)
    if found is None or importlib.util.find_spec("mpi4py") is None:
        raise RuntimeError("devices.py needs mpi4py and mpiexec: pip install mpi4py mpich")
    return found


def measured(rounds: int, small: bool) -> tuple[dict[tuple[str, str], Row], list[str]]:
    """The best row of each engine and workload, and what was left out."""
    me, flags = [sys.executable, str(HERE)], ["--small"] if small else []
    ranks = [mpiexec(), "-n", str(RANKS), *me, "ranks", *flags]
    jobs = [
        lambda: run([*me, "one", *flags]), lambda: run(ranks), lambda: run([*me, "threads", *flags])
    ]  # fmt: skip
    missing = []
    if importlib.util.find_spec("jax"):
        jobs.append(lambda: jax_rows(flags))
    else:
        missing.append("JAX")
    if importlib.util.find_spec("dask"):
        jobs.append(lambda: run([*me, "dask", *flags]))
    else:
        missing.append("Dask")
    found: dict[tuple[str, str], Row] = {}
    for _ in range(rounds):
        for job in jobs:
            for row in job():
                key = row["engine"], row["work"]
                if row["work"] == "rates" and key in found:
                    row["machine"] = best_of(found[key]["machine"], row["machine"])
                    found[key] = row
                elif key not in found or row["seconds"] < found[key]["seconds"]:
                    found[key] = row
    over_tcp = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "OMPI_MCA_btl": "tcp,self"}
    wired = run(ranks, MPIR_CVAR_NOLOCAL="1", **over_tcp)
    found |= {("wire " + row["engine"], row["work"]): row for row in wired}
    return found, missing


def best_of(a: Row, b: Row) -> Row:
    """A machine that was measured twice: of each figure the one in which least was in its way."""
    made = {**a, "links": {}}
    for name, better in (("operations", max), ("launch", min)):
        made[name] = better(a[name], b[name])
    made |= _memory_of(a, b)
    made["caches"] = [
        {**_memory_of(c, d), "nbytes": c["nbytes"]} for c, d in zip(a["caches"], b["caches"])
    ]
    for name, better in (("latency", min), ("bandwidth", max), ("beside", max)):
        made["link"] = {**made["link"], name: better(a["link"][name], b["link"][name])}
    return made


def _memory_of(a: Row, b: Row) -> Row:
    """The rates of memory that was measured twice: reads, and reads with writes, were timed."""
    reads = min(1 / a["bandwidth"], 1 / b["bandwidth"])
    both = min([1 / m["bandwidth"] + 1 / m["writing"] for m in (a, b)])
    return {"bandwidth": 1 / reads, "writing": 1 / max(both - reads, both / 8)}


def machine_of(row: Row) -> distributed.Machine:
    """The machine that a row tells of."""
    given = row["machine"]
    caches = tuple([distributed.Cache(**c) for c in given["caches"]])
    link = distributed.Link(**given["link"])
    return distributed.Machine(**{**given, "link": link, "links": {}, "caches": caches})


def predicted(name: str, small: bool, engine: str, found: dict[tuple[str, str], Row]) -> float:
    """The seconds that the model gives for a workload on two ranks or threads, at the rates that
    these measure while both work, of which it reaches as much as on one core."""
    work = device_workloads.ALL[name](**sizes(name, small))
    measured_on = "threads" if engine == "threads" else "2 ranks"
    one, two = [machine_of(found[e, "rates"]) for e in ("one core", measured_on)]
    alone = uopc.compile(work.outputs, threads=1).predict(one).seconds
    machine = two.faster(alone / found["one core", name]["seconds"])
    devices = DEVICES if engine == "threads" else None
    return float(compiled(work, engine == "overlap", devices).predict(machine).seconds)


def table(found: dict[tuple[str, str], Row], missing: list[str], small: bool) -> str:
    """The rows of the report."""
    lines = [
        "| work | one core, ms | two, ms | one core to two | two to JAX + Gloo |"
        " predicted to measured | bytes on the wire to the least |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, (engine, label) in itertools.product(device_workloads.ALL, WAYS.items()):
        one, two = found["one core", name], found[engine, name]
        jax, wire = found.get(("jax", name)), found.get((f"wire {engine}", name))
        beside = f"{two['seconds'] / jax['seconds']:.2f}" if jax else ""
        sent = ""
        guess = f"{predicted(name, small, engine, found) / two['seconds']:.2f}"
        if wire:
            sent = f"{wire['sent'] / wire['least']:.3f} ({wire['least']})"
        lines.append(
            f"| {name}{label} | {one['seconds'] * 1e3:.3g} | {two['seconds'] * 1e3:.3g} |"
            f" {one['seconds'] / two['seconds']:.2f} | {beside} | {guess} | {sent} |"
        )
    scalar = found["2 ranks", "scalar"]
    lines += ["", f"A step of one number to MPI_Allreduce: {scalar['seconds'] / scalar['raw']:.2f}"]
    lines.append(f"The pass partition for 1,024 devices: {partition_ms():.1f} ms")
    blocks = found.get(("dask", "map_blocks"))
    if blocks:
        lines.append(f"`map_blocks` to Dask's NumPy: {blocks['seconds'] / blocks['raw']:.2f}")
    lines += [f"{name} is not installed: its rows are left out" for name in missing]
    return "\n".join(lines)


def partition_ms() -> float:
    """The time of the pass for a transformer block on 128 x 8 devices."""
    work = device_workloads.block(batch=128, tokens=4, dim=64, heads=8, hidden=128)
    mesh = uopc.make_mesh((128, 8), ("data", "model"))
    specs = {**work.in_specs, "x": P("data")}
    taken = []
    for i in range(5):
        with uopc.options(programs=0, cache_dir=""):
            f = uopc.compile(
                work.outputs, name=f"block{i}", threads=1,
                sharding=uopc.Sharding(mesh, in_shardings=specs),
            )
        taken.append(f.stats["passes"]["partition"])
    return 1e3 * min(taken)


def main(given: list[str]) -> None:
    small = "--small" in given
    jobs = {"one": one_core, "ranks": on_ranks, "threads": on_threads, "dask": blocks_of_dask}
    if given and given[0] in jobs:
        jobs[given[0]](small)
        return
    if given[:1] == ["jax"]:
        on_jax(int(given[1]), given[2], small)
        return
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--small", action="store_true", help="tiny sizes, to test this file")
    options.add_argument(
        "--rounds", type=int, default=3,
        help="take this many turns of each program; default: %(default)s",
    )
    options.add_argument("--out", help="a file for the table")
    chosen = options.parse_args(given)
    loads = [os.getloadavg()[0]]
    found, missing = measured(chosen.rounds, chosen.small)
    loads.append(os.getloadavg()[0])
    text = table(found, missing, chosen.small)
    text += f"\n\nLoad of {os.cpu_count()} CPUs: {loads[0]:.1f} before, {loads[1]:.1f} after."
    print(text)
    if chosen.out:
        Path(chosen.out).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
