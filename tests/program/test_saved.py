"""save_schedule and load_schedule: the same kernels, Opts, launches and results, from a text."""

from __future__ import annotations

import re

import numpy as np
import pytest

import uopc
from tests.program.test_launches import PROGRAMS, arguments
from tests.reference import flat
from uopc import dtypes
from uopc.cli import main as cli
from uopc.errors import InvalidIR, Unsupported, UserError


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_saved_schedule_replays(name, optimize, tmp_path):
    file = tmp_path / "saved.uop"
    program = uopc.compile(PROGRAMS[name](), optimize=optimize, threads=2, name="saved")
    uopc.save_schedule(program, file)
    uopc.cache.clear()
    again = uopc.load_schedule(file)
    assert [(k.name, k.opts, k.source) for k in again.kernels] == [
        (k.name, k.opts, k.source) for k in program.kernels
    ]
    assert str(again.launches) == str(program.launches) and again.inputs == program.inputs
    arrays, _ = arguments(program)
    own = {k: a.copy() for k, a in arrays.items()}
    got, want = again(**arrays), program(**own)
    assert type(got) is type(want) and getattr(got, "keys", list)() == getattr(want, "keys", list)()
    for a, b in zip(flat(got), flat(want), strict=True):
        np.testing.assert_array_equal(a, b)
    for k, a in arrays.items():
        np.testing.assert_array_equal(own[k], a)
    uopc.save_schedule(again, tmp_path / "twice.uop")
    assert (tmp_path / "twice.uop").read_text("utf-8") == file.read_text("utf-8")


def saved(tmp_path, graph=None):
    x = uopc.param("x", (64, 128))
    program = uopc.compile((x * 2).sum(axis=1) if graph is None else graph, threads=1)
    file = tmp_path / "saved.uop"
    uopc.save_schedule(program, file)
    return program, file


def edited(file, pattern, to):
    text, count = re.subn(pattern, to, file.read_text("utf-8"), count=1, flags=re.M)
    assert count
    file.write_text(text, "utf-8")


def test_the_opts_can_be_edited(tmp_path):
    program, file = saved(tmp_path)
    (kernel,) = program.kernels
    edited(file, r"^// kernel-0: r_64_128 .*$", "// kernel-0: r_64_128 UPCAST(0, 4)")
    again = uopc.load_schedule(file)
    assert [str(o) for o in again.kernels[0].opts] == ["UPCAST(0, 4)"]
    assert again.kernels[0].source != kernel.source
    a = np.random.default_rng(0).random((64, 128), np.float32)
    np.testing.assert_allclose(again(a), program(a), rtol=1e-5)
    compiled = uopc.compile((uopc.param("x", (64, 128)) * 2).sum(axis=1), threads=1)
    assert compiled.kernels[0].opts == kernel.opts  # no cache takes one for the other


@pytest.mark.parametrize(
    ("pattern", "to", "error", "says"),
    [
        (r"^// kernel-0: .*$", "// kernel-0: r_64_128 UNROLL(0, 7)", UserError, "kernel r_64_128"),
        (r"^// kernel-0: .*$", "// kernel-0: r_64_128 MELT(0, 7)", UserError, "MELT"),
        (r"^// kernel-0: .*$", "// kernel-0: r_64_128 oops", InvalidIR, "expected a name and Opts"),
        (r"^// kernel-0: r_64_128", "// kernel-0: r_64_129", UserError, "has kernel r_64_129 here"),
        (r"^// kernel-0: .*\n", "", UserError, "has too few kernels"),
        (r"^// launch-0: .*$", "// launch-0: r_64_128 out y", UserError, "launch 0 is 'r_64"),
        (r"^// launch-0: .*\n", "", UserError, "1 launches for 0"),
        (r"^// schedule: .*$", "// schedule: {}", InvalidIR, "line schedule is damaged"),
        (r"^// schedule: .*$", "// schedule: [", InvalidIR, "line schedule is damaged"),
        (r"^// schedule: .*$", "// schedule: " + "[" * 100_000, InvalidIR, "schedule is damaged"),
        (r"^// kernel-0: .*$", f"// kernel-0: r A({'9' * 5000}, 1)", InvalidIR, "name and Opts"),
        (r'"structure": "single"', '"structure": "dict"', InvalidIR, "1 keys, one per result"),
        (r'"inputs": \["x"\]', '"inputs": ["z"]', UserError, "'z' is not a param"),
        (r"^// schedule: .*\n", "", UserError, "not a saved schedule"),
    ],
)
def test_damaged_schedules_are_refused(tmp_path, pattern, to, error, says):
    _, file = saved(tmp_path)
    edited(file, pattern, to)
    with pytest.raises(error, match=says):
        uopc.load_schedule(file)


def test_threads_may_be_odd(tmp_path):
    _, file = saved(tmp_path)
    edited(file, r"^// threads: .*$", "// threads: " + "9" * 5000)
    a = np.ones((64, 128), np.float32)
    np.testing.assert_allclose(uopc.load_schedule(file)(a), np.full(64, 256))


@pytest.mark.parametrize(
    "old, new",
    [
        (b"}", b"("), (b"(3,)", b"(" * 4), (b"(3,)", b"9" * 30), (b"(3,)", b"(1<<60,)"),
        (b"(3,)", b"(%d,)" % 2**59), (b"'shape'", b"[]"), (b"NUMPY", b"NUMPI"), (b"'<f4'", b"None"),
    ],
)  # fmt: skip
def test_damaged_arrays_are_refused(tmp_path, old, new):
    x = uopc.param("x", (3,))
    program = uopc.compile(x + uopc.constant(np.array([1, 2, 4], "f4")))
    uopc.save_schedule(program, tmp_path / "a.uop")
    (file,) = tmp_path.glob("*.npy")
    file.write_bytes(file.read_bytes().replace(old, new))
    with pytest.raises(UserError, match=file.name):
        uopc.load_schedule(tmp_path / "a.uop")


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        uopc.load_schedule(tmp_path / "missing.uop")
    x = uopc.param("x", (4,))
    with pytest.raises(Unsupported, match="results must be strings"):
        uopc.save_schedule(uopc.compile({(1, 2): x + 1}), tmp_path / "a.uop")
    with pytest.raises(Unsupported, match="rules are functions"):
        rules = uopc.PatternMatcher([(uopc.UPat(uopc.Ops.ADD, name="u"), lambda u: None)])
        uopc.save_schedule(uopc.compile(x + 1, rules=rules), tmp_path / "a.uop")
    with pytest.raises(UserError, match="No such file"):
        uopc.save_schedule(uopc.compile(x + 1), tmp_path / "no" / "folder.uop")


def test_names_may_be_odd(tmp_path):
    names = ["ü", "_x", "schedule"]
    _, file = saved(tmp_path, sum(uopc.param(n, (4,)) for n in names))
    again = uopc.load_schedule(file)
    assert [v.name for v in again.inputs] == names
    np.testing.assert_array_equal(again(*[np.ones(4, np.float32)] * 3), 3)


def test_constants_and_bound_values_are_kept(tmp_path):
    n = uopc.variable("n", 1, 8)
    data = uopc.constant(np.arange(8, dtype=np.float32)).cast(dtypes.bfloat16)
    small = uopc.constant(np.arange(8).astype(dtypes.fp8e4m3.numpy))
    graph = (uopc.param("x", (8,)) * data * small)[: n.bind(3)].sum()
    program, file = saved(tmp_path, graph)
    again = uopc.load_schedule(file)
    x = np.ones(8, np.float32)
    assert again(x) == program(x) == 5 and again(x, n=2) == 1


def test_the_command_line_takes_it(tmp_path, capsys):
    _, file = saved(tmp_path)
    edited(file, r"^// kernel-0: r_64_128 .*$", "// kernel-0: r_64_128 UPCAST(0, 4)")
    for command in (["dump", str(file)], ["run", str(file), "--repeat", "1", "--json"]):
        assert cli.main(command) == 0
        assert "UPCAST(0, 4)" in capsys.readouterr().out
