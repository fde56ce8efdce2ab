"""Each option of `docs/options.md` does what the page says; the page lists them all."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

import uopc
from tests import ROOT
from tests.dump.report.conftest import page_data
from tests.machines import only_lowered
from uopc import UOp, UserError, cache, config, dtypes
from uopc.cli import main as cli
from uopc.driver import lower_only
from uopc.ir import PatternMatcher, UPat
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.program.backend import backend_of
from uopc.program.program import Program
from uopc.program.tuned import figures
from uopc.search import measure
from uopc.target import Figures

ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| `([^`]*)` \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "options.md").read_text("utf-8"))
NAMES = [f.name for f in dataclasses.fields(config.Options)]


def rows() -> UOp:
    return (uopc.param("x", (16, 32)) * 2 + 1).sum(axis=1)


def test_the_page_lists_every_option_with_its_variable_and_default():
    defaults = config.Options()
    wanted = [(n, config.variable(n), repr(getattr(defaults, n))) for n in NAMES]
    assert [row[:3] for row in ROWS] == wanted


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_a_test_of_its_effect(name):
    assert f"test_{name}" in globals()


VALUES = {"device": "cuda:sm_90", "cache_dir": "/tmp/x", "target_cpu": "x86-64-v2", "viz": "pages"}


@pytest.mark.parametrize("name", NAMES)
def test_the_variable_sets_the_option(name):
    default = getattr(config.Options(), name)
    text = VALUES.get(name, "0" if default is True else "1")
    value = type(default)(text) if type(default) is not bool else text != "0"
    found = config.from_environment({config.variable(name): text})
    assert found == dataclasses.replace(config.Options(), **{name: value})
    assert value != default


def test_an_argument_wins_over_a_block_and_a_block_over_the_environment(monkeypatch):
    monkeypatch.setenv("UOPC_THREADS", "3")
    assert uopc.compile(rows())._source.request.threads == 3
    with uopc.options(threads=2):
        assert uopc.compile(rows())._source.request.threads == 2
        assert uopc.compile(rows(), threads=1)._source.request.threads == 1


# ---------------------------------------------------------------- one effect each
def test_perf_map(monkeypatch, tmp_path):
    from uopc.backends.cpu import perf_map

    monkeypatch.setattr(perf_map, "path", lambda: tmp_path / "perf.map")
    monkeypatch.setattr(perf_map, "_lines", [])
    for on in (False, True):
        uopc.cache.clear()
        with uopc.options(perf_map=on):
            uopc.compile(uopc.param("x", (4,)) + 1)
        assert (tmp_path / "perf.map").exists() == on


def test_debug(capsys):
    with uopc.options(debug=1):
        uopc.compile(rows())
    assert capsys.readouterr().err.startswith("uopc: program for cpu")


def test_spec():
    x = uopc.param("x", (4,))
    with uopc.options(spec=2), pytest.raises(uopc.InvalidIR, match="result-dtype"):
        UOp(Ops.ADD, dtypes.int32, (x, x))


def test_noopt():
    assert uopc.compile(rows()).kernels[0].opts
    with uopc.options(noopt=True):
        assert not uopc.compile(rows()).kernels[0].opts


def test_device():
    with uopc.options(device="cuda:sm_80"):
        assert ".target sm_80" in uopc.compile(rows()).kernels[0].asm


def test_beam():
    with uopc.options(beam=2), pytest.raises(uopc.Unsupported, match="beam"):
        uopc.compile(rows(), device="cuda:sm_80")


def test_measure(tmp_path, monkeypatch):
    """Measured at the first compile that asks for it, and kept."""
    asked, fast = [], Figures(multiply_bytes=128.0)

    def measured(machine, backend, seconds):
        asked.append(machine)
        return measure.Measurement(fast, (1 << 15, 1 << 20, 1 << 25), {})

    monkeypatch.setattr(measure, "measure", measured)

    def found():
        return backend_of("cpu").target("cpu", "").figures

    with uopc.options(cache_dir=str(tmp_path / "cache")):
        figures.forget()
        assert found() == Figures() and not asked
        with uopc.options(measure=True):
            assert found() == found() == fast
        figures.forget()  # another process
        assert found() == fast and len(asked) == 1
    figures.forget()


def test_match_stats(capsys):
    doubled = PatternMatcher([(UPat.var("a") * 2.0, lambda a: a + a)])
    with uopc.options(match_stats=True):
        uopc.graph_rewrite(uopc.param("x", (4,)) * 2.0, doubled)
    assert "test_options.py" in capsys.readouterr().err


def test_threads():
    with uopc.options(threads=2):
        assert uopc.compile(rows())._source.request.threads == 2


@pytest.fixture
def entries(tmp_path):
    """The files of a disk cache; nothing is in memory before the test."""
    cache.clear()
    return lambda: sorted(tmp_path.rglob("*.entry"))


def test_cache_dir(tmp_path, entries):
    with uopc.options(cache_dir=str(tmp_path), programs=0):
        uopc.compile(rows())
        assert entries()
        assert uopc.compile(rows()).stats["cache"] == "disk"
    with uopc.options(cache_dir="", programs=0):
        assert uopc.compile(rows()).stats["cache"] == ""


def test_cache_mib(tmp_path, entries):
    with uopc.options(cache_dir=str(tmp_path), cache_mib=0, programs=0):
        uopc.compile(rows())
        assert not entries()


def test_programs(entries):
    with uopc.options(programs=8):
        uopc.compile(rows())
        assert uopc.compile(rows()).stats["cache"] == "memory"
    with uopc.options(programs=0):  # neither reads what was stored before, nor removes it
        for _ in range(2):
            assert uopc.compile(rows()).stats["cache"] == ""
    with uopc.options(programs=8):
        assert uopc.compile(rows()).stats["cache"] == "memory"


def test_target_cpu():
    with uopc.options(target_cpu="x86-64", device="cpu"):
        narrow = uopc.compile(uopc.param("x", (4096,)) * 2).kernels[0]
    assert "ymm" not in narrow.asm and "<4 x float>" in narrow.source


def test_tf32():
    product = uopc.param("a", (64, 64)) @ uopc.param("b", (64, 64))
    assert "mma" not in uopc.compile(product, device="cuda:sm_90").kernels[0].asm
    with uopc.options(tf32=True):
        assert "mma" in uopc.compile(product, device="cuda:sm_90").kernels[0].asm


def test_trim_stores():
    i = uopc.arange(600)
    x = uopc.param("x", (600, 64)) @ uopc.param("y", (64, 600))
    y = uopc.where(i <= i.reshape(600, 1), x.contiguous(), 0.0).sum(axis=0)
    for asked in (False, True):
        with uopc.options(trim_stores=asked):
            (run,) = [r for r in lower_only(y).runs if r.name == "trim-stores"]
        assert (run.after[0] is not run.before[0]) == asked


def test_dot_products():
    x, y = (uopc.param(n, (16, 16), dtypes.int8).cast(dtypes.int32) for n in "xy")
    for asked in (False, True):
        with uopc.options(dot_products=asked), only_lowered("dots"):
            first = next(r for r in lower_only(x @ y).runs if r.name == "narrow-products")
        assert (Ops.DOT4 in walk.ops(first.after[0])) == asked


def test_fast_zeros():
    x = uopc.param("x", (4,))
    infinite = np.full(4, np.inf, "f4")
    assert np.isnan(uopc.compile(x * 0.0)(infinite)).all()
    with uopc.options(fast_zeros=True):
        assert uopc.compile(x * 0.0)(infinite).tolist() == [0.0] * 4


def test_split_reduces():
    total = uopc.param("x", (1 << 20,)).sum()
    assert len(uopc.compile(total).kernels) == 2
    with uopc.options(split_reduces=False):
        assert len(uopc.compile(total).kernels) == 1


@pytest.mark.parametrize(
    ("dims", "axis"),
    [((65537,), 0), ((32771, 37), 0), ((5, 40009), 1), ((40009, 3), (0, 1)), ((40009, 2, 5), 0)],
)
@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
@pytest.mark.few(4)
def test_a_reduce_whose_length_has_no_divisor_is_cut_too(dims, axis, op):
    """Threads share its rows, whatever their number; what is left is not lost."""
    a = np.random.default_rng(0).integers(-3, 4, dims).astype("f8")
    if op == "prod":  # a factor at each end, so that nothing overflows
        a[...] = 1.0
        a.flat[0], a.flat[-1] = 3.0, 5.0
    x = uopc.param("x", dims, uopc.dtypes.float64)
    program = uopc.compile(getattr(x, op)(axis), threads=2, verify=True)
    assert len(program.kernels) == 2
    np.testing.assert_array_equal(program(a), getattr(np, op)(a, axis=axis))


def test_threads_share_the_rows_of_a_sum_of_any_length():
    program = uopc.compile(uopc.param("x", (100_003, 37)).sum(0), threads=2)
    first = program.kernels[0]
    assert str(first.opts[0]) == "THREAD(0, 2)" and first.name == "r_42_37_2381"  # 42 pieces


@pytest.mark.parametrize(
    ("dtype", "threads"), [("float32", 3), ("float64", 2), ("int32", 2), ("float16", 2)]
)
def test_threads_share_the_rows_of_a_sum_down_few_columns(dtype, threads):
    for dims, axis in [((20003, 29), 0), ((101, 199, 29), (0, 1))]:
        a = np.random.default_rng(0).integers(-2, 3, dims).astype(dtype)
        x = uopc.param("x", dims, getattr(uopc.dtypes, dtype))
        shared, alone = (
            uopc.compile((x.sum(axis), x.max(axis)), inputs=[x], threads=n) for n in (threads, 1)
        )
        for program in (shared, alone):
            total, top = program(a)
            np.testing.assert_array_equal(total, a.sum(axis, dtype=total.dtype))
            np.testing.assert_array_equal(top, a.max(axis))
        assert len(shared.kernels) > len(alone.kernels)
        assert str(shared.kernels[0].opts[0]) == f"THREAD(0, {threads})"


@pytest.mark.parametrize(("dims", "axis"), [
    ((2051, 512), 0), ((64, 16384), 1), ((4099, 64), 0), ((4, 20003, 16), 1),
])  # fmt: skip
def test_threads_share_the_results_of_other_sums(dims, axis):
    """Wide rows, sums along memory, few elements, and results that several loops count."""
    x = uopc.param("x", dims)
    assert len(uopc.compile(x.sum(axis), threads=2).kernels) == 1


def test_split_ratio():
    total = uopc.param("x", (4096,)).sum()
    assert len(uopc.compile(total).kernels) == 1
    with uopc.options(split_ratio=4096):
        assert len(uopc.compile(total).kernels) == 2


def test_split_size():
    totals = uopc.param("x", (32, 1 << 16)).sum(axis=1)
    with uopc.options(split_size=32 * 16):
        first = uopc.compile(totals).stages["place-stages"]
    assert "f32[32, 16]" in first and "f32[32, 256]" not in first
    with uopc.options(split_size=32 * 7):  # 8 pieces are the fewest
        assert len(uopc.compile(totals).kernels) == 1


def test_max_kernel_buffers():
    xs = [uopc.param(f"x{i}", (8,)) for i in range(9)]
    with uopc.options(max_kernel_buffers=4):
        f = uopc.compile(sum(xs[1:], xs[0]))
    assert len(f.launches) == 4


def test_a_cut_reduce_is_told(capsys):
    total = uopc.param("x", (1 << 20,)).sum()
    with uopc.options(debug=3):
        f = uopc.compile(total)
    words = "reduce.add of (1048576) is cut in 256 pieces"
    assert f"uopc: {words}" in capsys.readouterr().err
    assert f"yes: {words}" in f.stages["rangeify"]


@pytest.mark.parametrize("name, value", [("split_ratio", 7), ("max_kernel_buffers", 5)])
def test_an_option_that_changes_code_is_part_of_the_key(name, value):
    total = uopc.param("x", (64, 8)).sum()
    with uopc.options(programs=8):
        uopc.compile(total)
        with uopc.options(**{name: value}):
            assert uopc.compile(total).stats["cache"] == ""
            assert uopc.compile(total).stats["cache"] == "memory"


def test_a_stage_file_keeps_the_options_that_change_code(tmp_path, capsys):
    xs = [uopc.param(f"x{i}", (8,)) for i in range(9)]
    with uopc.options(max_kernel_buffers=4, split_reduces=False):
        f = uopc.compile(sum(xs[1:], xs[0]))
    file = tmp_path / "10_canonicalize.uop"
    file.write_text(f.stages["canonicalize"], "utf-8")
    assert "// split_reduces: 0\n// max_kernel_buffers: 4\n" in file.read_text("utf-8")
    assert cli.main(["dump", str(file), "--at", "split-kernels"]) == 0
    assert capsys.readouterr().out.count("call %") == len(f.launches) == 4


def test_no_color(tmp_path, monkeypatch, capsys):
    (tmp_path / "rows.py").write_text("import uopc\ngraph = uopc.param('x', (4,)) + 1\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    command = ["dump", "rows.py", "--diff", "rangeify"]
    assert cli.main(command) == 0 and "\x1b[" in capsys.readouterr().out
    with uopc.options(no_color=True):
        assert cli.main(command) == 0 and "\x1b[" not in capsys.readouterr().out


def test_plain_call():
    with uopc.options(plain_call=True):
        f = uopc.compile(rows())
    assert type(f) is Program
    assert f(np.ones((16, 32), "f4")).tolist() == [96.0] * 16


def test_origins():
    x = uopc.param("x", (4,))
    with uopc.options(origins=False):
        unmarked = x * 12.5
        assert unmarked.origin is None
    marked = x * 12.75
    assert marked.origin[0].co_filename == __file__
    assert uopc.compile(unmarked).kernels[0].origin == ""


@pytest.mark.parametrize("value, noted", [("0", False), ("1", True)])
def test_origins_of_a_process(value, noted):
    code = "import uopc; print((uopc.param('x', (4,)) * 2).origin is not None)"
    environment = os.environ | {"UOPC_ORIGINS": value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )  # fmt: skip
    assert done.stdout == f"{noted}\n"


def test_viz(tmp_path, capsys):
    folder = tmp_path / "pages"
    with uopc.options(viz=str(folder)):
        f = uopc.compile(rows(), name="rows")
        uopc.compile(rows(), name="rows")
    assert sorted(p.name for p in folder.iterdir()) == ["rows.html", "rows_1.html"]
    data = page_data((folder / "rows.html").read_text("utf-8"))
    assert [k["name"] for k in data["kernels"]] == [k.name for k in f.kernels]
    assert all(k["llvm"] and k["asm"] for k in data["kernels"])
    assert any(s["rules"] for s in data["stages"] if not s.get("code"))
    said = [f"uopc: the report of rows is in {folder / n}" for n in ("rows.html", "rows_1.html")]
    assert capsys.readouterr().err.splitlines() == said
    (tmp_path / "file").write_text("", "utf-8")
    with uopc.options(viz=str(tmp_path / "file")), pytest.raises(UserError, match="viz"):
        uopc.compile(rows())


@pytest.mark.parametrize("value", ["1", "auto"])
def test_viz_without_a_folder(tmp_path, monkeypatch, capsys, value):
    monkeypatch.chdir(tmp_path)
    with uopc.options(viz=value):
        uopc.compile(rows(), name="rows")
    assert (tmp_path / config.REPORTS / "rows.html").is_file()


OTHER_TYPES = {"bool": ["0", 1, None], "int": [True, "1", 1.0, -1, 1 << 31], "str": [3, b"x", None]}


@pytest.mark.parametrize("name", NAMES)
def test_a_value_of_another_type_is_refused(name):
    for value in OTHER_TYPES[type(getattr(config.Options(), name)).__name__]:
        wanted = re.escape(f"option {name} ({config.variable(name)}) must be ")
        with pytest.raises(UserError, match=wanted), uopc.options(**{name: value}):
            pass


def test_a_folder_may_be_a_path_object(tmp_path):
    with uopc.options(cache_dir=tmp_path, viz=tmp_path) as made:
        assert config.cache_folder(made) == config.page_folder(made) == tmp_path


ON_OFF = [n for n in NAMES if type(getattr(config.Options(), n)) is bool]


@pytest.mark.parametrize("name", ON_OFF)
def test_words_for_on_and_off(name):
    for words, wanted in (("1 true YES On", True), ("0 False no OFF", False)):
        for word in words.split():
            options = config.from_environment({config.variable(name): word})
            assert getattr(options, name) is wanted


NUMBERS = [n for n in NAMES if type(getattr(config.Options(), n)) is int]


@pytest.mark.parametrize("name", sorted({*ON_OFF, *NUMBERS} - {"no_color"}))
def test_a_bad_variable_is_named(name):
    for text in ("many", "1.5") + (("-1", f"{1 << 31}") if name in NUMBERS else ()):
        variable = config.variable(name)
        kind = "an integer from 0 to" if name in NUMBERS else "True or False"
        wanted = re.escape(f"option {name} ({variable}) must be {kind}")
        with pytest.raises(UserError, match=wanted):
            config.from_environment({variable: text})


def test_a_device_may_be_named_in_either_case():
    with uopc.options(device="CUDA:sm_80"):
        assert ".target sm_80" in uopc.compile(rows()).kernels[0].asm
    assert uopc.compile(rows(), device="CPU")._source.request.device == "cpu"
    assert len(uopc.driver.lower_only(rows(), device="CPU").kernels) == 1


@pytest.mark.parametrize("name, value", [("device", "tpu"), ("target_cpu", "z80")])
def test_a_bad_variable_that_only_a_compile_can_tell_is_named(name, value, monkeypatch):
    monkeypatch.setenv(config.variable(name), value)
    with pytest.raises(uopc.Error, match=config.variable(name)):
        uopc.compile(rows())


def test_progress(monkeypatch):
    monkeypatch.setattr(config, "is_interactive", lambda: True)
    told = []
    monkeypatch.setattr("uopc.dump.progress.SECONDS", 0.0)
    monkeypatch.setattr("uopc.dump.progress.Bar.__call__", lambda bar, *step: told.append(step))
    for wanted in (False, True):
        with uopc.options(progress=wanted, programs=0, cache_dir=""):
            uopc.compile(rows())
        assert bool(told) is wanted


def test_no_color_may_have_any_value():
    assert config.from_environment({"NO_COLOR": "please"}).no_color


def test_an_unknown_option_is_named():
    with pytest.raises(UserError, match="unknown option 'debg'"), uopc.options(debg=1):
        pass


@pytest.mark.parametrize("text, wanted", (
    ("3", 3), (" 5 ", 5), ("2,4", 2), ("4096", 4096), ("", 0), ("0", 0), ("-2", 0), ("4097", 0),
    ("many", 0), (",2", 0), ("9" * 5000, 0), ("1_0", 0), ("٣", 0), ("2.0", 0), ("+2", 2),
))  # fmt: skip
def test_threads_as_openmp_was_told(text, wanted, monkeypatch):
    config._parsed.cache_clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert config.from_environment({"OMP_NUM_THREADS": text}).threads == wanted
    ignored = [f"OMP_NUM_THREADS={text!r} is ignored: expected a number from 1 to 4096"]
    assert [str(w.message) for w in told] == (ignored if text and not wanted else [])
    for own in ("0", "7"):
        both = {"OMP_NUM_THREADS": text, "UOPC_THREADS": own}
        assert config.from_environment(both).threads == int(own)
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = uopc.compile(rows())
    assert wanted == 0 or program._source.request.threads == wanted


@pytest.mark.parametrize("text", ("1_0", "٣", "2.0", "many", "9" * 5000))
def test_numbers_of_variables_are_plain(text):
    with pytest.raises(UserError, match=r"UOPC_THREADS\) must be an integer from 0 to 4096"):
        config.from_environment({"UOPC_THREADS": text})
    assert uopc.compile(rows(), threads=1)._source.request.threads == 1
