"""The figures of a machine: what probes say, what thresholds follow, and where they are kept."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

import uopc
from tests import machines
from uopc.backends import detect
from uopc.cache.tuned import Database, MachineFigures
from uopc.cli.main import main
from uopc.cost.machine import LINE, machine_of
from uopc.driver import lower_only
from uopc.errors import UserError
from uopc.passes.analysis import register_tiles
from uopc.passes.optimize.schedule.cpu import thread_work
from uopc.program.backend import backend_of
from uopc.program.tuned import figures
from uopc.search import measure, probes
from uopc.search.measure import conclude
from uopc.target import CORES, CPUS, Figures, Target

FAST = Figures(clock=3.0, multiply_bytes=128.0, load_bytes=128.0, parked=100_000.0)
KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A database of its own."""
    monkeypatch.setenv("UOPC_CACHE_DIR", str(tmp_path / "cache"))
    figures.forget()
    uopc.cache.clear()
    yield tmp_path / "cache"
    figures.forget()
    uopc.cache.clear()


def keep(folder, fast=FAST, caches=(32 * KIB, 1 * MIB, 32 * MIB)):
    Database(folder).put_machines([figures.measured(detect.host(), fast, caches)])


def target():
    return backend_of("cpu").target("cpu", "")


# ---------------------------------------------------------------- thresholds
@pytest.mark.parametrize("machine", ["laptop", "desktop", "workstation", "server", "old"])
def test_the_facts_of_a_machine_that_is_not_measured(machine):
    m = machine_of(machines.MACHINES[machine].target)
    width = m.vector_bytes
    assert m.multiply_adds(width) == m.vector_loads(width) == (1 if width >= LINE else 2)
    assert m.accumulators == 4 and m.pages.line == m.caches[0].period == 4096
    assert thread_work(m) == 1 << 18
    assert m.caches[0].is_crowded(m.caches[0].ways + 1, 8192)
    assert not m.caches[0].is_crowded(m.caches[0].ways, 8192)
    assert not m.caches[0].is_crowded(32 * m.caches[0].ways, 128)


def test_facts_follow_the_figures():
    server = replace(machines.MACHINES["server"].target, figures=FAST)
    m = machine_of(server)
    assert m.multiply_adds(64) == 2 and m.multiply_adds(32) == 2
    assert m.accumulators == 8
    assert thread_work(m) == pytest.approx((1 << 18) * 2 * 2 * 3 / 4)
    slow = machine_of(replace(server, figures=replace(FAST, parked=1e12)))
    assert thread_work(slow) == pytest.approx((1 << 18) * 8 * 2 * 3 / 4)


def test_two_units_make_a_tile_cheaper():
    server = machines.MACHINES["server"].target
    one, two = [
        register_tiles.register_tile(
            512, 512, 16, 32, 2048, machine_of(replace(server, figures=f))
        )[2]
        for f in (Figures(), FAST)
    ]
    assert two < 0.7 * one


@pytest.mark.machine("workstation")
def test_kernels_and_keys_follow_the_figures(folder):
    """The same graph: eight accumulators where two vectors are loaded per cycle, and work is
    shared among threads from three times as many operations; another key."""
    x = uopc.param("x", (64, 4096))
    rows = x.sum(1)
    usual = lower_only(rows, threads=2).kernels[0].arg.opts
    before = target()
    keep(folder)
    after = target()
    assert (before.figures, after.figures) == (Figures(), FAST)
    opts = lower_only(rows, threads=2).kernels[0].arg.opts
    assert {o.op for o in usual} - {o.op for o in opts} == {"THREAD"}
    assert max(o.arg for o in opts if o.op == "UNROLL") == 8
    array = np.arange(64 * 4096, dtype="f4").reshape(64, 4096) % 7
    program = uopc.compile(rows, threads=1)
    np.testing.assert_array_equal(program(x=array), array.sum(1))


def test_a_named_cpu_is_not_this_machine(folder):
    keep(folder)
    assert backend_of("cpu").target("cpu", "x86-64-v3").figures == Figures()


def test_cores_are_of_known_processors():
    own = machines._OWN()
    assert own.figures == (CORES[own.cpu].figures if own.cpu in CORES else Figures())
    assert not CORES.keys() & CPUS.keys()  # described machines have the rows as they are


# ---------------------------------------------------------------- conclusions
def seconds(machine=None, noise=1.0, **other):
    """Times of probes on a machine of 2 GHz with caches of 32 KiB, 1 MiB and 8 MiB: two vectors of
    multiply-adds and loads per cycle, 32, 8 and 2 bytes per cycle from the other caches."""
    width = (machine or machines.MACHINES["server"].target).vector_bits // 8
    cycle = 0.5e-9
    times = {"clock": cycle, "chain": 4 * cycle, "many": cycle / 2, "shared": cycle / 3,
             "launch": 2e-8, "threads": 3e-7, "awake": 1e-6, "parked": 4.1e-5,
             "divide": 10 * cycle, "divide64": 16 * cycle, "shuffle": cycle, "insert": 2 * cycle,
             "short": 11 * cycle, "long": 131 * cycle, "alone l1": cycle}  # fmt: skip
    # Of the lines that are read alone the nearer caches have 48 of 256 KiB, and an eighth twice.
    times |= {"alone l2": 3 * cycle, "alone last": 20 * cycle, "alone memory": 60 * cycle,
              "write l2": 3 / 64 * cycle, "write last": 16 / 64 * cycle,
              "write memory": cycle}  # fmt: skip
    size = measure.SMALLEST
    while size <= measure.LARGEST:
        rates = (32 * KIB, 2 * width), (MIB, 32), (8 * MIB, 8), (1 << 40, 2)
        times[str(size)] = cycle / next(rate for most, rate in rates if size <= most)
        size *= 2
    times |= other
    return {name: [3 * s, s * noise, s] for name, s in times.items()}


def test_figures_of_times():
    described = replace(
        machines.MACHINES["server"].target, l1_bytes=48 * KIB, l2_bytes=MIB,
        last_cache_bytes=256 * MIB,
    )  # fmt: skip
    found = conclude(described, seconds())
    assert found.figures == Figures(
        clock=2.0, multiply_bytes=128.0, latency=4.0, load_bytes=128.0, l2_bytes=32.0,
        last_bytes=8.0, memory_bytes=2.0, shared_bytes=3.0, launch=20.0, wake=280.0,
        parked=40_000.0, divide_bytes=6.4, divide64_bytes=4.0, shuffle_bytes=64.0, insert=2.0,
        enter=3.0, l2_alone=3.5, last_alone=22.0, memory_alone=65.0, l2_written=1.0,
        last_written=8.0, memory_written=32.0,
    )  # fmt: skip
    # The system's 48 KiB are close to the measured 32; a 32nd of its last cache is ours.
    assert found.caches == (48 * KIB, MIB, 8 * MIB)
    assert not found.noisy
    assert [name for name, _ in measure.rows(found)] == ["caches", *[
        f.name for f in fields(Figures)
    ]]  # fmt: skip


def test_a_cache_that_is_larger_than_what_is_read_stays():
    described = replace(machines.MACHINES["server"].target, l2_bytes=MIB)
    flat = {str(1 << n): 0.5e-9 / 8 for n in range(21, 27)}
    assert conclude(described, seconds(**flat)).caches[2] == described.last_cache_bytes


def test_runs_that_no_other_confirms_are_refused():
    described = machines.MACHINES["server"].target
    with pytest.raises(UserError, match="too busy to be measured: no two runs of clock, chain"):
        conclude(described, seconds(noise=1.5))
    noisy = seconds()
    noisy["shared"] = [3e-9, 2e-9, 1e-9]
    assert conclude(described, noisy).noisy == ["shared"]


# ---------------------------------------------------------------- this machine
@pytest.mark.machine("this")
def test_probes_agree_with_each_other():
    """No figure of this machine is known; its multiply-adds cannot begin faster side by side than
    two per cycle and unit, nor wait less than a cycle."""
    machine = detect.host()
    made = probes.Probes(machine)
    chain = min(made.of_core("chain").seconds(2000) for _ in range(5))
    many = min(made.of_core("many").seconds(1000) for _ in range(5))
    assert many < chain
    text = probes.source(machine)
    assert text.count("define i64") == len(probes.NAMES) and "fmuladd" in text


@pytest.mark.machine("this")
def test_the_command_measures_keeps_and_shows(folder, monkeypatch, capsys):
    monkeypatch.setattr(measure, "LARGEST", 1 << 20)
    monkeypatch.setattr(measure, "CONFIRMED", 1e9)  # the tests share the machine
    monkeypatch.setattr(measure.measure, "__defaults__", (0.0,))
    assert main(["tune", "--machine"]) == 0
    shown = capsys.readouterr().out
    assert "multiply_bytes" in shown and "searches.db" in shown
    (row,) = Database(folder).machines()
    assert target().figures == Figures(
        **{k: v for k, v in json.loads(row.figures).items() if k != "caches"}
    )
    main(["doctor"])
    shown = capsys.readouterr().out
    assert f"measured: {target().figures.clock:g} GHz" in shown
    assert f"{target().figures.divide_bytes:g} (float32)" in shown


def test_a_row_of_an_earlier_version_is_measured_again(folder, monkeypatch):
    """A row without the figures that came later is no error: the usual figures hold, until
    something asks for a measurement."""
    keep(folder)
    (row,) = Database(folder).machines()
    old = json.loads(row.figures)
    del old["divide_bytes"], old["l2_alone"]
    Database(folder).put_machines([MachineFigures(row.machine, json.dumps(old), row.made)])
    figures.forget()
    assert target().figures == detect.host().figures and not figures.are_known(detect.host())
    caches = (32 * KIB, MIB, 8 * MIB)
    monkeypatch.setattr(
        measure, "measure", lambda *_: measure.Measurement(FAST, caches, {})
    )  # fmt: skip
    with uopc.options(measure=True):
        assert target().figures == FAST
    figures.forget()
    assert target().figures == FAST and target().last_cache_bytes == 8 * MIB


def test_a_machine_too_busy_is_asked_once(folder, monkeypatch):
    asked = []

    def busy(machine, backend, seconds):
        asked.append(machine)
        raise UserError("the machine is too busy")

    monkeypatch.setattr(measure, "measure", busy)
    with uopc.options(measure=True):
        assert target().figures == target().figures == Figures()
    assert len(asked) == 1 and any("too busy" in p for p in uopc.cache.problems())


# ---------------------------------------------------------------- the database
def test_export_and_import(folder, tmp_path, capsys):
    keep(folder)
    file = str(tmp_path / "found.json")
    assert main(["tune", "--export", file]) == 0 and main(["tune", "--clear"]) == 0
    figures.forget()
    assert target().figures == Figures()
    assert main(["tune", "--import", file]) == 0
    assert target().figures == FAST
    content = json.loads((tmp_path / "found.json").read_text("utf-8"))
    content["machines"][0]["made"] = 1.0
    (tmp_path / "found.json").write_text(json.dumps(content), "utf-8")
    assert main(["tune", "--import", file]) != 0
    assert "expected a file that" in capsys.readouterr().err


@pytest.mark.parametrize("text", [
    "", "[]", "{}", '{"caches": [1, 2, 3], "clock": 0}', '{"caches": [1, 2], "clock": 1}',
    '{"caches": [1, 2, 3], "clock": NaN}', '{"caches": [1, 2, 3], "speed": 1}',
])  # fmt: skip
def test_damaged_figures_are_none(text):
    assert figures.parsed(text) is None


@pytest.mark.parametrize("least", [True, False])
def test_the_thresholds_of_any_figures_are_found(least):
    """Figures that no machine has are refused; with the least and the greatest of the others, each
    loop over them ends."""
    figure = figures.LEAST if least else figures.MOST
    names = [f.name for f in fields(Figures)]
    for one in (figure / 2 if least else figure * 2, 10**400, 1e300, 1e-300):
        for name in names:
            content = {"caches": [1, 1, 1], **asdict(Figures()), name: one}
            assert figures.parsed(json.dumps(content)) is None
    content = {"caches": [1, 1, 1], **dict.fromkeys(names, figure)}
    values = figures.parsed(json.dumps(content))
    assert values is not None
    found = replace(machines.MACHINES["server"].target, **values)
    assert machine_of(found).accumulators in (1, 8) and 0 < thread_work(machine_of(found)) < 1e30


def test_a_changed_row_and_another_machine_do_not_apply(folder):
    keep(folder)
    other = MachineFigures("another", json.dumps({"caches": [1, 1, 1], **asdict(FAST)}), 1.0)
    Database(folder).put_machines([other])
    assert len(Database(folder).machines()) == 2
    with sqlite3.connect(Database(folder).file) as connection:
        connection.execute("UPDATE machines SET made = 2.0 WHERE machine != 'another'")
    connection.close()
    figures.forget()
    assert target().figures == Figures() and isinstance(target(), Target)
