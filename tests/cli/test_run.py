"""uopc run: random arrays, a row per kernel, JSON, and a trace of what each thread did."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import uopc
from tests.standin import module
from uopc import Ops
from uopc.backends.cpu.runner import Runner
from uopc.cli import main as cli

TEXT = """
import uopc
n = uopc.variable("n", 1, 64)
x = uopc.param("x", (n, 128))
w = uopc.param("w", (128, 10))
y, z = uopc.param("y", (n, 7)), uopc.param("z", (n, 7))
graph = ((x @ w).softmax(), y * 1.5, z * 2.5)

def roots():
    return uopc.param("y", (8,)).log().sqrt()

program = uopc.compile(uopc.param("z", (1 << 18,)).exp() * 2, threads=2, name="program")
stepped = uopc.param("c", (4, 4))[1:2].assign(uopc.param("v", (1, 4)))
"""


@pytest.fixture
def run(tmp_path, capsys):
    """Runs `uopc run` on a graph of the file; what it prints."""
    file = tmp_path / "model.py"
    file.write_text(TEXT, "utf-8")

    def call(*arguments, name="graph", code=0):
        assert cli.main(["run", f"{file}:{name}", "--repeat", "2", *arguments]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return call


def test_a_row_per_kernel(run):
    lines = run("--set", "n=50").splitlines()
    assert re.search(r"model.py:graph for cpu .*, n = 50: 3 kernels in 4 launches$", lines[0])
    assert lines[1].split() == [
        "kernel", "launches", "us", "share", "Gop/s", "GB/s", "roofline", "bound"
    ]  # fmt: skip
    rows = [line.split() for line in lines[2:5]]
    assert [(r[0], r[1]) for r in rows] == [
        ("r_64_10_128", "1"), ("r_64_10_10_10", "1"), ("E_448", "2")
    ]  # fmt: skip
    assert sum(float(r[3].rstrip("%")) for r in rows) == pytest.approx(100, abs=0.2)
    assert re.fullmatch(r"all kernels [\d.]+ us, a call [\d.]+ us", lines[5])
    speeds = r"float32 [\d.]+ Gop/s, divisions of float32 [\d.]+ G/s, copies of 4 KiB [\d.]+ GB/s"
    assert re.match(f"this machine: {speeds}", lines[6])
    assert lines[7].startswith("hardware counters: not available: ") or "cycles" in lines[7]


def test_hardware_events_of_each_kernel_in_a_call(run, monkeypatch):
    counted = [{"cycles": 100.0, "cache_misses": 1.0, "instructions": 250.0 * k} for k in range(4)]
    monkeypatch.setattr(Runner, "count", lambda *_: counted)
    lines = run("--set", "n=50").splitlines()
    assert re.fullmatch(r"kernel +cycles +cache misses +instructions +per cycle *", lines[7])
    rows = {line.split()[0]: line.split()[1:] for line in lines[8:11]}
    assert rows["E_448"] == ["200", "2", "1,250", "6.25"] and len(lines) == 11
    found = json.loads(run("--json", "--kernel", "E_448"))
    assert found["events"] == counted[2:]


def test_json(run):
    found = json.loads(run("--set", "n=32", "--json"))
    assert found["variables"] == {"n": 32} and found["nan"] == []
    assert [k["launches"] for k in found["kernels"]] == [1, 1, 2]
    product = found["kernels"][0]
    assert product["operations"] == 2 * 32 * 10 * 128 and product["opts"]
    assert product["bytes"] == (32 * 138 + 1280) * 4
    assert product["gops"] == pytest.approx(product["operations"] / product["us"] * 1e-3)
    assert [k["kernel"] for k in found["launches"]][2:] == ["E_448", "E_448"]


def test_one_kernel(run):
    text = run("--kernel", "2")
    assert "launch 2: <Timing of 2" in text and "launch 3: <Timing of 2" in text
    assert "r_64_10_128" not in text and "n 2.5" in text
    assert run("--kernel", "E_448").split()[:20] == text.split()[:20]
    assert "unknown kernel '7'; choose 0 r_64_10_128" in run("--kernel", "7", code=1)


def test_arguments_are_such_that_roots_and_logarithms_exist_or_it_is_said(run):
    assert "NaN in output 0" in run(name="roots")  # the logarithm of 0.5 has no root
    assert "NaN" not in run()


def test_a_program_is_run_as_it_is(run):
    found = json.loads(run("--json", name="program"))
    assert found["threads"] == 2


def test_arrays_that_are_written_are_taken(run):
    assert ": 1 kernel in" in run(name="stepped")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--set", "m=3"), "has no variable 'm'; it has n"),
        (("--set", "n=65"), "variable 'n' is 65, expected 1..64"),
        (("--device", "tpu"), "unknown device 'tpu'"),
        (("--device", "cuda:sm_90"), "PTX text"),
        (("--trace", "/no/such/folder/t.json"), "/no/such/folder/t.json"),
    ],
)
def test_bad_input(run, arguments, says):
    assert says in run(*arguments, code=1)


@pytest.mark.parametrize("arguments", [("--set", "n"), ("--set", "n=x"), ("--repeat", "0")])
def test_wrong_usage(run, arguments):
    with pytest.raises(SystemExit) as left:
        run(*arguments)
    assert left.value.code == 2


# ---------------------------------------------------------------- the trace
def traced(file):
    events = json.loads(file.read_text("utf-8"))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return names, [e for e in events if e["ph"] == "X"]


def test_a_trace_has_a_row_for_the_compile_and_each_thread(run, tmp_path):
    run("--trace", str(tmp_path / "t.json"), name="program")
    names, events = traced(tmp_path / "t.json")
    ran = [e for e in events if e["cat"] == "launch"]
    assert names[1] == "compile" and {e["tid"] for e in events} == set(names)
    assert set(names.values()) <= {"compile", "MainThread", "uopc-worker-0", "uopc-worker-1"}
    assert len({e["name"] for e in ran}) == 1
    chunks = [(e["args"]["call"], e["args"]["chunk"]) for e in ran]
    count = len(chunks) // 3
    assert count > 1 and sorted(chunks) == [(c, i) for c in range(3) for i in range(count)]
    passes = [e["ts"] + e["dur"] for e in events if e["cat"] == "pass"]
    assert passes and max(passes) <= min(e["ts"] for e in ran)
    for tid in names:  # what one thread did does not overlap
        own = sorted((e["ts"], e["dur"]) for e in events if e["tid"] == tid)
        assert all(a + d <= b + 0.002 for (a, d), (b, _) in zip(own, own[1:]))


def test_slices_are_of_the_call_and_change_nothing():
    x = uopc.param("x", (1 << 16,))
    program = uopc.compile(((x + 1).sum(), x * 2), threads=3)
    a = np.arange(1 << 16, dtype=np.float32)
    result, slices = program._runner.slices((a,), {})
    for got, want in zip(result, program(a)):
        np.testing.assert_array_equal(got, want)
    plan = program._runner.plan
    want = [(i, c) for i, launch in enumerate(plan.launches) for c in range(launch.chunks)]
    assert sorted((s.launch, s.chunk) for s in slices) == want
    last = dict.fromkeys(range(len(plan.launches)), 0.0)
    for s in slices:
        assert 0 < s.end - s.begin < 10
        last[s.launch] = max(last[s.launch], s.end)
    for i in range(1, len(plan.launches)):  # a launch begins when the one before is over
        assert min(s.begin for s in slices if s.launch == i) >= last[i - 1]


def test_a_trace_on_a_device():
    with module.installed("sm_80"):
        x = uopc.param("x", (33, 5))
        program = uopc.compile((x.sum(axis=1), x * 2), device="cuda")
        result, slices = program._runner.slices((np.ones((33, 5), np.float32),), {})
    np.testing.assert_array_equal(result[0], 5)
    assert [s.launch for s in slices] == [0, 1] and all(s.end >= s.begin for s in slices)


LOOP = """
import numpy as np, uopc
@uopc.jit
def simulate(x):
    def row(c, v):
        return c * 0.5 + v, np.linalg.det(np.stack([c + 2.0, v - 3.0]))
    def step(c, _):
        return uopc.scan(row, c, x)
    return uopc.scan(step, x[0], length=7)
simulate(np.ones((3, 2)))
"""


def test_a_launch_in_a_loop_counts_as_often_as_it_runs(tmp_path, capsys):
    (tmp_path / "loop.py").write_text(LOOP, "utf-8")
    assert cli.main(["run", f"{tmp_path}/loop.py:simulate", "--repeat", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rounds = [launch["rounds"] for launch in found["launches"]]
    assert {21, 7} <= set(rounds) <= {1, 7, 21}
    for k in found["kernels"]:
        own = [la for la in found["launches"] if la["kernel"] == k["name"]]
        assert k["launches"] == sum(la["rounds"] for la in own)
        assert k["us"] == pytest.approx(sum(la["us"] * la["rounds"] for la in own))
        assert k["operations"] == sum(la["operations"] * la["rounds"] for la in own)
    assert sum(k["share"] for k in found["kernels"]) == pytest.approx(1)


def test_rounds_are_the_launches_of_a_call():
    """Also where a variable gives the length of a loop."""
    n = uopc.variable("n", 1, 100)
    x = uopc.param("x", (n, 2), "f8")
    two = uopc.eye(2, dtype="f8")
    made = uopc.scan(lambda c, v: ((two * 2 + c).solve(v), c.sum()), x[0], x)
    plan = uopc.compile(made)._runner.plan
    for length in (1, 2, 50):
        runs = list(plan.runs({"n": length}))
        assert plan.rounds({"n": length}) == [runs.count(i) for i in range(len(plan.launches))]
    assert max(plan.rounds({"n": 50})) == 50


X, Y = uopc.param("x", (8,)), uopc.param("y", (8,))
EXP, TANH = Ops.EXP.chain[0], Ops.TANH.chain[0]
STEPS = {
    "add": (X + Y, 8, 0),
    "quotients": (X / Y + 1.0 / X, 8 * 1, 8 * 2),
    "a quotient by a number": (X / 3.0, 8 * 4, 0),
    "roots": ((X.sqrt() + Y).sqrt(), 8, 16),
    "exp": (X.exp(), 8 * (EXP.operations + EXP.multiplications), 0),
    "tanh": (X.tanh(), 8 * (TANH.operations + TANH.multiplications - 1), 8 * TANH.divisions),
    "integers": (X.cast("int32") // Y.cast("int32"), 8 * 4, 0),
    "a product": (X.reshape(2, 4) @ Y.reshape(4, 2), 2 * 2 * 2 * 4, 0),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_and_divisions(name):
    """The roofline of a kernel has the steps of the op table's chains, and its divisions."""
    graph, steps, divisions = STEPS[name]
    work = [launch.work for launch in uopc.compile(graph).launches]
    assert sum(w.steps.evaluate({}) for w in work) == steps
    assert sum(w.divisions.evaluate({}) for w in work) == divisions
