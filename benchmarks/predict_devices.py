"""The predicted time of programs on up to 1,024 devices, none of which is at hand.

    python benchmarks/predict_devices.py [--out docs/lab/devices.md] [--most 1024]

Nothing runs: each workload is compiled for a mesh, and `program.predict` adds up the launches and
exchanges of one device at the rates that this file assumes.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path

import device_workloads
from device_workloads import Work

import uopc
from uopc import P
from uopc.distributed import Link, Machine

LINK = Link(2e-6, 12.5e9)
NODE = Machine(operations=2e12, bandwidth=200e9, link=LINK, launch=2e-6, exchange=3e-6)
GROUP = 8  # devices along `model`, in one node
FAST = dataclasses.replace(NODE, links={"model": Link(1e-6, 50e9)})
DEVICES = (1, 8, 64, 1024)
MEASURED = "\n# Measured on two cores\n"
PAGE = """# Several devices

Two MPI ranks on two cores run four workloads 1.7 to 2.4 times as fast as one core, and in 0.1 to
0.7 of the time of JAX on two processes: [Measured on two cores](#measured-on-two-cores). For up to
1,024 devices this page has predictions alone, which come first. GPUs: [below](#gpus).

# Predictions for many devices

`program.predict` made these figures for the programs that `benchmarks/predict_devices.py` compiles;
no such devices were at hand. The same programs run correctly in lockstep on as many devices, at
small sizes (`tests/backends/exchange/test_mesh_programs.py`).

The model assumes nodes of 2 TFLOP/s and 200 GB/s, with 2 µs and 100 Gb/s between them; in the block
8 devices along `model` with 1 µs and 50 GB/s. A launch costs 2 µs, an exchange 3 µs. A kernel takes
the longer of the times of its operations and of its bytes, an exchange the time of the best known
algorithm on the slowest link of its axes. Nothing runs beside an exchange, all devices are equally
fast, and no link is shared.

Efficiency of weak scaling (as much work for each device) is the time of one device over the time
of p devices; of strong scaling (one problem) that, divided by p. The base of the block is 8
devices.

{tables}

The gradients of the MLP are one exchange of {megabytes} MB, which takes 0.4 to 0.5 of the time of
the kernels: more rows a device, or gradients in 16 bits, would help there. A stencil exchanges two
rows a step, so it scales until the rows of a device are few.
"""


def mlp(p: int) -> Work:
    return device_workloads.mlp(batch=512 * p, sizes=(4096, 4096, 4096, 4096))


def block(p: int) -> Work:
    made = device_workloads.block(
        batch=max(1, p // GROUP), tokens=2048, dim=4096, heads=32, hidden=16384
    )
    return made._replace(in_specs={**made.in_specs, "x": P("data")}, out_spec=P("data"))


def rows(p: int) -> Work:
    return device_workloads.stencil(n=4096 * p, m=8192)


def grid(p: int) -> Work:
    return device_workloads.stencil(n=65536, m=8192)


def total(p: int) -> Work:
    return device_workloads.total(n=1 << 34)


# Title, workload, machine, whether one problem is shared by all.
TABLES: tuple[tuple[str, Callable[[int], Work], Machine, bool], ...] = (
    ("Gradients of an MLP of three 4096 x 4096 layers, 512 rows a device (weak)", mlp, NODE, False),
    ("A transformer block 4,096 wide, 2,048 tokens for 8 devices (weak)", block, FAST, False),
    ("Four steps of a stencil, 4096 x 8192 a device (weak)", rows, NODE, False),
    ("Four steps of a stencil of 65536 x 8192 (strong)", grid, NODE, True),
    ("A sum of 2^34 squares (strong)", total, NODE, True),
)


def table(
    title: str, make: Callable[[int], Work], machine: Machine, strong: bool, most: int
) -> str:
    """The rows of a workload."""
    lines = [
        f"## {title}", "",
        "| devices | kernels, ms | exchanges, ms | MB sent by a device | exchanges | efficiency |",
        "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    base = 0.0
    for p in [n for n in DEVICES if n <= most]:
        work = make(p)
        group = work.axis == "model"
        if group and p < GROUP:
            continue
        mesh = uopc.make_mesh((p,), (work.axis,))
        if group:
            mesh = uopc.make_mesh((p // GROUP, GROUP), ("data", "model"))
        f = uopc.compile(
            work.outputs, threads=1,
            sharding=uopc.Sharding(mesh, in_shardings=work.in_specs, out_shardings=work.out_spec),
        )  # fmt: skip
        found = f.predict(machine)
        base = base or found.seconds
        gain = base / found.seconds / (p if strong else 1)
        sent = sum([e.bytes for e in f.exchanges]) / 1e6
        lines.append(
            f"| {p:,} | {found.kernels * 1e3:.4g} | {found.exchanges * 1e3:.4g} | {sent:.4g} |"
            f" {len(f.exchanges)} | {gain:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", help="a file for the page")
    options.add_argument("--most", type=int, default=DEVICES[-1], help="most devices")
    chosen = options.parse_args()
    tables = [table(*row, most=chosen.most) for row in TABLES]
    megabytes = round(mlp(1).moved / 1e6)
    text = PAGE.format(tables="\n\n".join(tables), megabytes=megabytes)
    print(text)
    if chosen.out:
        page = Path(chosen.out)
        old = page.read_text("utf-8") if page.exists() else ""
        _, title, measured = old.partition(MEASURED)  # results of devices.py are written by hand
        page.write_text(text + title + measured, "utf-8")


if __name__ == "__main__":
    main()
