"""Every pass on small graphs: the text before and after, both verifiers, and the same numbers.

`python -m pytest tests/kinds/test_golden.py --bless` writes what the passes make now.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import uopc.passes
from tests import golden_case
from tests.golden_case import GOLDEN, interpret_graph, interpret_program
from uopc.ir.core import walk
from uopc.ir.core.levels import Level
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.text.printer import parse, print_graph
from uopc.ir.verify.verifier import verify
from uopc.passes import PIPELINE
from uopc.passes.optimize.opts.table import OPTS
from uopc.passes.pass_manager import run_pass

SOURCES = Path(uopc.passes.__file__).parent
MOST_LINES = 60


def folder(number, p):
    return f"{number:03d}_{p.name.replace('-', '_')}"


CASES = [
    pytest.param(p, path, id=f"{p.name}-{path.stem if path.suffix == '.uop' else 'docstring'}")
    for number, p in PIPELINE
    for path in (
        Path(p.module.__file__),
        *sorted((GOLDEN / folder(number, p)).glob("*.uop")),
    )
]
each_case = pytest.mark.parametrize(("p", "path"), CASES)


def read(path):
    return (
        golden_case.read_file(path) if path.suffix == ".uop" else golden_case.read_docstring(path)
    )


@each_case
def test_text(p, path, blessed):
    case = read(path)
    before, after = golden_case.run(case, p)
    blessed.check(path, case.block, case.write(before, after))


@each_case
def test_verifiers(p, path):
    case = read(path)
    verify(parse(case.before), Level[case.accepts.upper()], "before")
    verify(parse(case.after), Level[case.promises.upper()], "after")


@each_case
@pytest.mark.parametrize("seed", [0, 1, *[pytest.param(i, marks=pytest.mark.slow) for i in (2, 3)]])
def test_same_numbers(p, path, seed):
    case = read(path)
    before, after = parse(case.before), parse(case.after)
    nodes = walk.toposort(before)
    storage, variables = golden_case.draw_inputs(nodes, case.setting, seed)
    if case.setting.mesh and p.name == "partition":
        context = case.setting.context()
        made = run_pass(p, before, context)
        assert made is after
        wanted = interpret_graph(before, "tensor", storage, variables)
        got = golden_case.interpret_parts(after, context.sharding, wanted, storage, variables)
        pairs = list(zip(wanted, got, strict=True))
    elif case.setting.mesh:
        sides = [golden_case.interpret_devices(g, case.setting, seed) for g in (before, after)]
        pairs = list(zip(*sides, strict=True))
    elif case.promises == "program":
        made = interpret_program(after, storage, variables)
        run = interpret_program if case.accepts == "program" else golden_case.run_indexed
        wanted = run(before, storage, variables)
        hidden = {u for u in nodes if u.op is Ops.BUFFER} if before.op is Ops.SINK else set()
        hidden -= {storage_root(v) for v in before.src}  # what no output shows may not be written
        pairs = [(wanted[u], made[u]) for u in storage if u not in hidden]
    else:
        pairs = list(
            zip(
                interpret_graph(before, case.accepts, storage, variables),
                interpret_graph(after, case.promises, storage, variables),
                strict=True,
            )
        )
    assert pairs
    for i, (a, b) in enumerate(pairs):
        assert golden_case.same(a, b, p.reassociates, case.setting.ulps), (i, a, b)


# ---------------------------------------------------------------- the files themselves
def test_folders_are_the_pipeline():
    found = sorted(f.name for f in GOLDEN.iterdir() if f.is_dir())
    assert found == sorted(folder(number, p) for number, p in PIPELINE)


def test_numbers_go_up():
    numbers = [number for number, _ in PIPELINE]
    assert numbers == sorted(set(numbers)) and numbers[0] == 10


@pytest.mark.parametrize(("number", "p"), PIPELINE, ids=lambda v: getattr(v, "name", None))
def test_a_pass_is_one_file_and_has_goldens(number, p):
    function = getattr(p.module, p.name.replace("-", "_"))
    assert function.__module__ == p.module.__name__
    files = list((GOLDEN / folder(number, p)).glob("*.uop"))
    assert 3 <= len(files) <= 40, f"{p.name} has {len(files)} golden files"


@each_case
def test_heads(p, path):
    case = read(path)
    assert (case.accepts, case.promises) == (p.accepts.text, p.promises.text)
    if not case.title:
        return
    first, second = case.title.splitlines()
    assert first == f"// {p.name} / {path.stem.replace('_', '-')}"
    assert len(second) > 20 and second.endswith("."), "the second line says what there is to learn"
    assert len(case.block.splitlines()) <= MOST_LINES


def test_every_opt_has_a_golden():
    files = GOLDEN.glob("*_optimize/*.uop")
    asked = "".join([f.read_text("utf-8").partition("--- after")[0] for f in files])
    for name in OPTS:
        assert re.search(rf"sink .*opts=.*{name}\(", asked), name


def test_goldens_are_short():
    sizes = sorted(len(f.read_text("utf-8").splitlines()) for f in GOLDEN.rglob("*.uop"))
    assert sizes[len(sizes) // 2] <= 30, f"the median golden has {sizes[len(sizes) // 2]} lines"


# ---------------------------------------------------------------- the checks find errors
def test_wrong_text_is_found(tmp_path, request):
    """A golden with a wrong constant fails with a diff and the command that blesses it."""
    from tests.conftest import Blessed

    path = tmp_path / "case.uop"
    path.write_text("stored\n", "utf-8")
    checker = Blessed(request.config)
    checker.on = False
    with pytest.raises(pytest.fail.Exception) as failed:
        checker.check(path, "stored\n", "made\n")
    assert "-stored\n+made" in str(failed.value) and "--bless" in str(failed.value)
    checker.on = True
    checker.check(path, "stored\n", "made\n")
    assert path.read_text("utf-8") == "made\n"


def test_bless_is_refused_on_ci(monkeypatch, request):
    from tests import conftest

    class Config:
        def getoption(self, name):
            return True

    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.UsageError, match="refused on CI"):
        conftest.pytest_configure(Config())
    monkeypatch.setenv("CI", "")
    conftest.pytest_configure(Config())


def test_other_numbers_are_found():
    """The comparison sees one changed bit, a changed sign of zero, and a NaN."""
    import numpy as np

    a = np.array([1.0, 0.0, 3.0], np.float32)
    assert golden_case.same(a, a.copy(), False, 0)
    for at, value in ((0, np.nextafter(np.float32(1), np.float32(2))), (1, -0.0), (2, np.nan)):
        b = a.copy()
        b[at] = value
        assert not golden_case.same(a, b, False, 0)
    assert not golden_case.same(a, a + np.float32(1e-3), True, 0)


def test_docstring_blocks_round_trip():
    for _, p in PIPELINE:
        case = golden_case.read_docstring(Path(p.module.__file__))
        assert case.write(case.before, case.after) == case.block
        assert print_graph(parse(case.after)) == case.after
