"""UOPC_DEBUG 1 to 7 and UOPC_SPEC: what each level prints and checks."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import uopc
from uopc import Ops, UOp, driver, dtypes
from uopc.ir.builder.movement import reduce
from uopc.ir.core import uop
from uopc.passes import PIPELINE
from uopc.program.speed.work import measure


def product() -> UOp:
    return uopc.param("a", (16, 24)) @ uopc.param("b", (24, 32))


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((16, 24), "f4"), rng.random((24, 32), "f4")


def printed(capsys, level: int, graph: UOp | None = None) -> str:
    """The text that a compile at a level prints; nothing of it goes to stdout."""
    with uopc.options(debug=level):
        uopc.compile(product() if graph is None else graph, threads=1, name="product")
    out, err = capsys.readouterr()
    assert out == ""
    return err


# A piece of what each level adds.
MARKS = {
    1: r"^uopc: product for cpu .*, 1 thread: 1 kernel in 1 launch; [\d.]+ ms: passes [\d.]+, ",
    3: r"^kernel r_16_32_24: opts (\w+\(\d+, \d+\) ?)+$",
    4: r"^define void @r_16_32_24\(ptr %words, i64 %chunk\)",
    5: r"^stage rangeify:\n%\d+ = ",
    6: r"^linear name=r_16_32_24 ",
    7: r"^r_16_32_24:$",
}


@pytest.mark.parametrize("level", range(8))
def test_levels_add_up(capsys, level):
    uopc.cache.clear()
    err = printed(capsys, level) if level else printed(capsys, 0)
    for least, mark in MARKS.items():
        assert bool(re.search(mark, err, re.M)) == (level >= least), (least, err[:2000])


@pytest.mark.parametrize("level", range(1, 8))
def test_cached_programs_print_what_compiled_ones_do(capsys, level):
    """All but the line of level 1, which says where the program was found."""
    uopc.cache.clear()
    compiled = printed(capsys, level).splitlines()
    before = uopc.cache.counters()
    cached = printed(capsys, level).splitlines()
    after = uopc.cache.counters()
    assert re.fullmatch(r"(uopc: product for .* 1 launch); cached in memory; [\d.]+ ms", cached[0])
    again = ["uopc: the program or a kernel of it is cached; lowered again to be shown"]
    assert cached[1 : 1 + (level > 2)] == again * (level > 2)
    assert cached[1 + (level > 2) :] == compiled[1:]
    assert after == before | {"memory_hits": before["memory_hits"] + 1}


@pytest.mark.parametrize("level", range(8))
@pytest.mark.few(3)
def test_debugging_does_not_change_caching(capsys, tmp_path, level):
    """The counters of a row of compiles are the same at each level."""

    def counted(debug):
        uopc.cache.clear()
        with uopc.options(debug=debug, cache_dir=str(tmp_path / f"cache{debug}")):
            for graph in (product(), product(), (product() + 1).sum(axis=1), product().transpose()):
                uopc.compile(graph)
            uopc.cache.clear()
            uopc.compile(product())
        return uopc.cache.counters()

    plain, debugged = counted(0), counted(level)
    assert debugged == plain and plain["disk_hits"] == 1
    errors = capsys.readouterr().err
    assert bool(level) == ("cached in memory" in errors) == ("cached on disk" in errors)


def test_level_one_tells_of_cached_kernels(capsys):
    uopc.cache.clear()
    x = uopc.param("x", (8, 16))
    uopc.compile(x.sum(axis=1), threads=1)
    err = printed(capsys, 1, (x.sum(axis=1), x.max(axis=0)))
    assert re.search(
        r"2 kernels in 2 launches; [\d.]+ ms: passes [\d.]+, LLVM [\d.]+; 1 kernel cached$", err
    )


def test_nothing_is_printed_by_default(capsys):
    f = uopc.compile(product())
    f(*arrays())
    assert capsys.readouterr() == ("", "")


def test_level_one_tells_of_launches_that_share_a_kernel(capsys):
    x, y = uopc.param("x", (8,)), uopc.param("y", (8,))
    err = printed(capsys, 1, (x + 1, y + 1))
    assert "1 kernel in 2 launches;" in err


def test_level_one_does_not_time_calls(capsys):
    with uopc.options(debug=1):
        f = uopc.compile(product())
    capsys.readouterr()
    f(*arrays())
    assert capsys.readouterr().err == ""


def test_level_two_times_each_kernel_of_a_call(capsys):
    a, b = arrays()
    with uopc.options(debug=2):
        f = uopc.compile((uopc.param("a", (16, 24)) @ uopc.param("b", (24, 32))).softmax())
    capsys.readouterr()
    result = f(a, b)
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"program: [\d.]+ us in 2 launches", lines[0])
    number = r" +([\d.]+)"
    row = rf"  (\w+){number} us{number} GFLOP/s{number} GB/s  (.*?)  (\S*)"
    found = [re.fullmatch(row, s) for s in lines[1:]]
    assert all(found), lines
    assert [m[1] for m in found] == [k.name for k in f.kernels]
    assert found[0][5] == "mul reduce.add"
    assert "exp" in found[1][5].split()
    assert [m[6] for m in found if not re.fullmatch(r"test_debug.py:\d+", m[6])] == [], lines
    e = np.exp(a @ b - (a @ b).max(-1, keepdims=True))
    np.testing.assert_allclose(result, e / e.sum(-1, keepdims=True), rtol=1e-5)
    out = np.empty((16, 32), "f4")
    assert f(a=a, b=b, out=out) is out
    np.testing.assert_array_equal(out, result)


def test_a_timed_program_is_a_program(capsys):
    with uopc.options(debug=2):
        f = uopc.compile(product())
    assert isinstance(f, uopc.Program) and f.inputs[0].name == "a"
    again = pickle.loads(pickle.dumps(f))
    np.testing.assert_array_equal(again(*arrays()), f(*arrays()))
    with pytest.raises(uopc.UserError, match="missing"):
        f()


@pytest.mark.parametrize(
    ("build", "values", "operations", "touched"),
    [
        (lambda x, n: x + 1, {}, 96, 2 * 96 * 4),
        (lambda x, n: (x * 2).exp(), {}, 2 * 96, 2 * 96 * 4),
        (lambda x, n: x.sum(), {}, 96, 97 * 4),
        (lambda x, n: x @ x.transpose(), {}, 2 * 8 * 12 * 8, (96 + 64) * 4),
        (lambda x, n: x[2:4] * 2, {}, 24, 2 * 24 * 4),
        (lambda x, n: uopc.param("s", (n, 12)) * 1.5, {"n": 10}, 120, 2 * 120 * 4),
        (lambda x, n: x.expand(n, 8, 12) * 1.5, {"n": 10}, 96, (96 + 960) * 4),  # once a row
        (lambda x, n: x.permute(1, 0) + 0.5, {}, 96, 2 * 96 * 4),
        (lambda x, n: reduce(x, "max", (1,)), {}, 96, 104 * 4),
    ],
)
def test_work_of_a_kernel(build, values, operations, touched):
    """Operations and bytes against figures worked out by hand."""
    x, n = uopc.param("x", (8, 12)), uopc.variable("n", 1, 64)
    lowered = driver.lower_only(build(x, n))
    (call,) = lowered.program.src
    assert measure(call.src[0], []).counts(values) == (operations, touched)


def test_work_of_integers_is_no_float_work(capsys):
    with uopc.options(debug=2):
        f = uopc.compile(uopc.param("x", (64,), dtypes.int32) * 3 + 1)
    f(np.arange(64, dtype="i4"))
    assert " Gop/s " in capsys.readouterr().err


def test_level_two_with_a_symbolic_size(capsys):
    n = uopc.variable("n", 1, 4096)
    with uopc.options(debug=2):
        f = uopc.compile(uopc.param("x", (n,)) * 2)
    capsys.readouterr()
    for size in (10, 1000):
        x = np.ones(size, "f4")
        np.testing.assert_array_equal(f(x), x * 2)
    err = capsys.readouterr().err
    assert err.count("program: ") == 2 and err.count("GFLOP/s") == 2


def test_level_five_names_unchanged_stages(capsys):
    err = printed(capsys, 5)
    assert re.search("^stage apply-rules: unchanged$", err, re.M)
    stages = re.findall(r"^stage ([a-z-]+):", err, re.M)
    assert stages == ["input", *[p.name for _, p in PIPELINE]]


def test_a_hand_written_kernel(capsys):
    from uopc.tensor.creation import kernel_param

    a, b = (kernel_param(i, (64,), dtypes.float32) for i in range(2))
    i = UOp.range(64)
    kernel = a.index(i).store(b.index(i) * 2).end(i).sink(name="twice")
    with uopc.options(debug=2):
        f = uopc.compile(kernel)
    out, x = np.zeros(64, "f4"), np.arange(64, dtype="f4")
    f(out, x)
    np.testing.assert_array_equal(out, x * 2)
    assert re.search(r"^  twice +[\d.]+ us", capsys.readouterr().err, re.M)


# ---------------------------------------------------------------- the environment
def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, env=os.environ | environment,
    )  # fmt: skip


COMPILE = """
import numpy as np, uopc
f = uopc.compile(uopc.param("x", (8,)) + 1)
print(f(np.ones(8, "f4"))[0])
"""


def test_environment_sets_the_level():
    result = python(COMPILE, UOPC_DEBUG="2")
    assert result.stdout == "2.0\n"
    assert "uopc: program for cpu" in result.stderr and "GB/s" in result.stderr
    assert python(COMPILE, UOPC_DEBUG="0").stderr == ""


def test_levels_outside_are_refused(monkeypatch):
    for name, value in (("debug", 8), ("debug", -1), ("spec", 3), ("debug", "2")):
        with (
            pytest.raises(uopc.UserError, match=rf"option {name} \(\w+\) must be"),
            uopc.options(**{name: value}),
        ):
            pass
    monkeypatch.setenv("UOPC_DEBUG", "9")
    with pytest.raises(uopc.UserError, match=r"UOPC_DEBUG.*from 0 to 7, got 9"):
        uopc.compile(product())


# ---------------------------------------------------------------- UOPC_SPEC
@pytest.fixture
def stages_checked(monkeypatch) -> list[str]:
    """The stages that a verifier was called for."""
    from uopc.ir.verify import verifier

    seen: list[str] = []
    checked = verifier.verify

    def noted(graph, level, stage="", **options):
        seen.append(stage)
        checked(graph, level, stage, **options)

    monkeypatch.setattr(verifier, "verify", noted)
    return seen


def test_spec_zero_verifies_no_stage(stages_checked):
    """But the graph of the caller."""
    with uopc.options(spec=0, programs=0):
        uopc.compile(product())
    assert stages_checked == ["input"]


@pytest.mark.parametrize("spec", [1, 2])
def test_spec_one_verifies_every_stage(stages_checked, spec):
    """But no graph again that a pass leaves as it is: `test_verifier.py` counts."""
    with uopc.options(spec=spec):
        uopc.compile(product())
    from uopc.dump.stages import STAGES
    from uopc.passes import PIPELINE

    found = list(dict.fromkeys(stages_checked))
    assert found == [s for s in STAGES if s in found]
    assert {"input", *[p.name for _, p in PIPELINE if p.accepts != p.promises]} <= {*found}


def test_verify_argument_wins_over_the_option(stages_checked):
    with uopc.options(spec=1, programs=0):
        uopc.compile(product(), verify=False)
    assert stages_checked == ["input"]
    uopc.compile(product(), verify=True)
    assert "rangeify" in stages_checked


def test_a_broken_stage_is_found_and_named(monkeypatch):
    from uopc.passes.rangeify import rangeify

    right = rangeify.rangeify

    def open_range(graph, context):  # gives a range that nothing closes
        i, graph = UOp.range(4), right(graph, context)
        return graph.replace(src=(*graph.src, uopc.param("q", (4,)).index(i)))

    monkeypatch.setattr(rangeify, "rangeify", open_range)
    with (
        uopc.options(spec=1),
        pytest.raises(uopc.InvalidIR, match="rangeify: level indexed, invariant range-closed-once"),
    ):
        uopc.compile(product())


def wrong() -> UOp:
    """A node whose dtype does not follow from its operands."""
    a, b = uopc.param("a", (3,)), uopc.param("b", (3,))
    return UOp(Ops.ADD, dtypes.int32, (a, b))


def test_spec_two_verifies_each_node_as_it_is_made():
    with uopc.options(spec=1):
        made = wrong()
    assert made.dtype is dtypes.int32
    del made
    for _ in range(2):  # what was refused is not in the table either
        with uopc.options(spec=2), pytest.raises(uopc.InvalidIR, match="invariant result-dtype"):
            wrong()
    wrong()


def test_spec_two_ends_with_the_last_block():
    """Another thread's block does not end the checks of this one."""

    def other() -> None:
        with uopc.options(spec=2):
            pass

    with uopc.options(spec=2):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        with pytest.raises(uopc.InvalidIR):
            wrong()
    assert uop._make is uop._make_node


WRONG = """
import uopc
from uopc import Ops, UOp, dtypes
x = uopc.param("x", (3,))
try:
    UOp(Ops.ADD, dtypes.int32, (x, x))
    print("made")
except uopc.InvalidIR as error:
    print("result-dtype" in str(error))
"""


def test_environment_sets_spec():
    assert python(WRONG).stdout == "made\n"
    assert python(WRONG, UOPC_SPEC="1").stdout == "made\n"
    assert python(WRONG, UOPC_SPEC="2").stdout == "True\n"


def test_a_whole_compile_passes_the_node_checks():
    x = uopc.param("x", (8, 32))
    with uopc.options(spec=2):
        f = uopc.compile({"a": x.softmax(), "b": x.cumsum(axis=1), "c": x.sin().argmax(axis=1)})
    a = np.random.default_rng(1).random((8, 32), "f4")
    np.testing.assert_array_equal(f(a)["c"], np.sin(a).argmax(1))


def test_gathers_and_attention_pass_the_node_checks():
    """Constant places that repeat, and a product whose rows and columns are loops of a reduce."""
    places = np.array([2, 0, 1, 1, 0, 2, 2, 1])
    x, q, k = (uopc.param(n, d) for n, d in zip("xqk", ((4, 8), (2, 3, 4, 8), (2, 3, 6, 8))))
    with uopc.options(spec=2):
        taken = uopc.compile(x.take(places, 1))
        scores = uopc.compile((q @ k.transpose(2, 3)).softmax())
    rng = np.random.default_rng(2)
    a, b, c = (rng.random(d, "f4") for d in ((4, 8), (2, 3, 4, 8), (2, 3, 6, 8)))
    np.testing.assert_array_equal(taken(a), a[:, places])
    e = np.exp(b.astype("f8") @ c.astype("f8").swapaxes(2, 3))
    np.testing.assert_allclose(scores(b, c), e / e.sum(-1, keepdims=True), rtol=2e-6)


def test_the_logger_gets_compiles(caplog: pytest.LogCaptureFixture) -> None:
    x = uopc.param("x", (17,))
    with caplog.at_level("DEBUG", logger="uopc"), uopc.options(cache_dir=""):
        f = uopc.compile(x * 3.0, name="thrice")
        uopc.compile(x * 3.0, name="thrice")
        f(np.ones(17, "f4"))
    assert [r.levelname for r in caplog.records] == ["INFO", "DEBUG"]
    made, cached = [r.getMessage() for r in caplog.records]
    assert made.startswith("thrice for cpu ")
    assert "1 kernel in 1 launch" in made
    assert "cached in memory" in cached


def test_nothing_is_logged_unasked(caplog: pytest.LogCaptureFixture) -> None:
    uopc.compile(uopc.param("x", (19,)) * 3.0)
    assert not caplog.records
