"""One file for several levels of x86-64: on older processors by qemu, on this one as it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import uopc
from tests import machines
from tests.exporting.corpus import GOOD
from tests.exporting.test_c import named
from tests.exporting.test_export import (
    CC,
    CXX,
    WARNINGS,
    Case,
    assert_same,
    called,
    convolution,
    floats,
    integers,
    long_kernel,
    narrow_floats,
    needs_c,
    network,
    program,
    run,
    sparse,
    symbolic,
)  # fmt: skip
from uopc.backends import elf
from uopc.cli import main as cli
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.exporting import levels
from uopc.target import CPUS

LEVELS = list(CPUS)
QEMU = shutil.which("qemu-x86_64")
needs_qemu = pytest.mark.skipif(QEMU is None, reason="there is no qemu-x86_64 (qemu-user)")
# Processors of qemu, which has no AVX-512, and their best level.
PROCESSORS = {"core2duo": "x86-64", "Nehalem": "x86-64-v2", "Haswell": "x86-64-v3"}
SMALL, LARGE = (narrow_floats, symbolic, convolution), (network, sparse, integers, long_kernel)
each_case = pytest.mark.parametrize(
    "make", [*SMALL, *[pytest.param(c, marks=pytest.mark.slow) for c in LARGE]],
    ids=lambda c: c.__name__,
)  # fmt: skip


@pytest.fixture
def best() -> Iterator[str]:
    """The highest level that this machine runs, whatever machine the tests describe."""
    with machines.described(machines.THIS):
        yield machines.runnable(*LEVELS)[-1]


def large_sums() -> Case:
    """A kernel that is split among threads."""
    x, y = uopc.param("x", (600, 1)), uopc.param("y", (512,))
    return Case({"s": (x * y + 1).exp().sum(axis=1)}, [floats(600, 1), floats(512)])


def fused() -> Case:
    """Bits that tell processors apart: older ones round the product too."""
    x, y = uopc.param("x", (50, 64)), uopc.param("y", (50, 64))
    return Case((x * y + x).sum(axis=1), [floats(50, 64), floats(50, 64)])


@each_case
def test_this_processor_gets_its_best_level(make: Any, best: str, tmp_path: Path) -> None:
    """Also in functions that kernels share: levels pass vectors in registers of other sizes."""
    case = make()
    made = uopc.export(case.graph, tmp_path / "f", kind="shared", target=LEVELS[::-1])
    assert made.manifest["target"]["levels"] == LEVELS
    with uopc.options(target_cpu=best):
        wanted = called(program(case), case)
    assert_same(called(uopc.load_exported(tmp_path / "f.so"), case), wanted)


@needs_c
@needs_qemu
@each_case
@pytest.mark.few(2)
def test_other_processors_get_theirs(make: Any, best: str, tmp_path: Path) -> None:
    """The self-test of a level has its bits alone, and is linked with the file of all levels."""
    case = make()
    uopc.export(case.graph, tmp_path / "all", name="f", kind="static", target=LEVELS)
    for processor, level in PROCESSORS.items():
        if LEVELS.index(level) > LEVELS.index(best):
            continue  # its bits cannot be computed here
        folder = tmp_path / level
        uopc.export(case.graph, folder / "f", target=level, examples=named(case))
        run(CC, "-std=c11", "f_test.c", "../all.a", "-static", "-o", "test", folder=folder)
        assert GOOD in run(QEMU, "-cpu", processor, "./test", folder=folder)


@needs_c
@needs_qemu
def test_levels_that_have_other_bits_are_told_apart(tmp_path: Path) -> None:
    """So the tests above can fail."""
    case = fused()
    uopc.export(case.graph, tmp_path / "f", target="x86-64", examples=named(case))
    uopc.export(case.graph, tmp_path / "all", name="f", kind="static", target=LEVELS)
    run(CC, "-std=c11", "f_test.c", "all.a", "-static", "-o", "test", folder=tmp_path)
    assert GOOD in run(QEMU, "-cpu", "core2duo", "./test", folder=tmp_path)
    wrong = [QEMU, "-cpu", "Haswell", "./test"]
    assert subprocess.run(wrong, cwd=tmp_path, capture_output=True, check=False).returncode == 1


CALLS = """
#include "f.h"
#include <stdio.h>
int main(void)
{
    float x[8] = {1.0f}, y[8] = {0.0f};
    const f_function best = f_best();
    const int code = f(x, y, NULL);
    printf("%d %d %g\\n", code, best != NULL ? best(y, x, NULL) : -2, (double)y[0]);
    return 0;
}
"""


@needs_c
@needs_qemu
def test_a_processor_without_any_level_is_told_so(tmp_path: Path) -> None:
    """Nothing is written; the header is C89 and C++."""
    uopc.export(uopc.param("x", (8,)) * 3, tmp_path / "f", target=["x86-64-v3", "x86-64-v2"])
    (tmp_path / "main.c").write_text(CALLS, "utf-8")
    run(CC, *WARNINGS, "main.c", "f.o", "-static", "-o", "main", folder=tmp_path)
    for processor, wanted in (("core2duo", "-1 -2 0"), ("Nehalem", "0 0 3"), ("Haswell", "0 0 3")):
        assert run(QEMU, "-cpu", processor, "./main", folder=tmp_path) == f"{wanted}\n"
    (tmp_path / "h.c").write_text('#include "f.h"\nf_function best = NULL;\n', "utf-8")
    for command in ((CC, "-std=c89", "-Wno-long-long"), (CXX, "-x", "c++")):
        if command[0] is not None:
            run(*command, "-pedantic", "-Wall", "-Werror", "-c", "h.c", folder=tmp_path)


@each_case
def test_the_code_has_no_state_and_needs_no_other_file(make: Any, tmp_path: Path) -> None:
    made = uopc.export(make().graph, tmp_path / "f", target=LEVELS)
    found = elf.read(made.files[-1].read_bytes())
    assert found.undefined == []
    assert not [s.name for s in found.sections if s.flags & elf.WRITE and s.size]
    names = sorted(s.name for s in found.symbols if s.is_global)
    places = ("row", "col", "indptr")  # of a sparse result by columns
    tables = [f"{m['c_name']}_{kind}" for m in made.manifest["sparse"] for kind in places]
    assert names == sorted(["f", "f_best", "f_id", "f_work_bytes", *tables])


def test_constants_stand_in_the_file_once(tmp_path: Path) -> None:
    weights = floats(64, 64)
    x = uopc.param("x", (64,))
    made = uopc.export(uopc.constant(weights) @ x, tmp_path / "f", kind="static", target=LEVELS)
    assert made.files[-1].read_bytes().count(weights.tobytes()) == 1


@needs_c
def test_parts_are_run_by_the_caller(best: str, tmp_path: Path) -> None:
    case, more = large_sums(), {"name": "f", "threads": 3}
    uopc.export(case.graph, tmp_path / "f", target=best, examples=named(case), **more)
    uopc.export(case.graph, tmp_path / "all", target=LEVELS, kind="static", **more)
    run(CC, "-std=c11", "f_test.c", "all.a", "-o", "test", folder=tmp_path)
    assert GOOD in run("./test", folder=tmp_path)


def test_casadi_calls_the_best_level(tmp_path: Path) -> None:
    x = uopc.param("x", (3,), uopc.dtypes.float64)
    made = uopc.export({"y": x.sin()}, tmp_path / "f", target=LEVELS, abi="casadi")
    found = elf.read(made.files[-1].read_bytes())
    assert found.undefined == []
    assert {"f", "f_uopc", "f_uopc_best"} <= {s.name for s in found.symbols if s.is_global}


def test_the_answers_of_processors(best: str) -> None:
    """The bits of each level, by Linux's names of them, where it runs on an x86-64."""
    assert levels.ordered(LEVELS[::-1]) == LEVELS
    assert [levels.suffix(level) for level in LEVELS] == ["v1", "v2", "v3", "v4"]
    info = Path("/proc/cpuinfo")
    flags = re.search(r"(?m)^flags\s*: (.*)$", info.read_text("utf-8") if info.exists() else "")
    if flags is None:
        pytest.skip("the system does not list the features of an x86-64")
    has = set(flags[1].split())
    names = {
        "x86-64-v2": "pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm",
        "x86-64-v3": "fma movbe xsave avx f16c bmi1 avx2 bmi2 abm",
        "x86-64-v4": "avx512f avx512dq avx512cd avx512bw avx512vl",
    }
    found = "x86-64"
    for level, needed in names.items():
        if not set(needed.split()) <= has:
            break
        found = level
    assert best == found


@pytest.mark.parametrize(
    ("error", "words", "target", "more"),
    [
        (UserError, "'aarch64' is not a level", ["x86-64", "aarch64"], {}),
        (UserError, "3 is not a level", ["x86-64", 3], {}),
        (UserTypeError, "a name or a list of names", [], {}),
        (UserTypeError, "a name or a list of names", 3, {}),
        (Unsupported, "one level at a time", LEVELS, {"kind": "c"}),
        (Unsupported, "for one target", LEVELS, {"examples": [[1, 2, 3]]}),
    ],
)
def test_bad_levels(error: Any, words: str, target: Any, more: Any, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        uopc.export(uopc.param("x", (3,)) * 2, tmp_path / "f", target=target, **more)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("target", "kind"),
    [("x86-64-v3", "static"), ("aarch64", "object"), ("riscv64", "object"), ("c11", "c"),
     ("cortex-m4f", "static"), (LEVELS, "shared")],
    ids=str,
)  # fmt: skip
def test_files_for_a_named_target_do_not_depend_on_the_host(
    target: Any, kind: str, tmp_path: Path
) -> None:
    graph = narrow_floats().graph[0] + uopc.param("k", (9,)).exp().sum()
    for host in ("old", "server"):
        with machines.described(host):
            uopc.export(graph, tmp_path / host / "f", kind=kind, target=target)
    first, second = (
        {file.name: file.read_bytes() for file in (tmp_path / host).iterdir()}
        for host in ("old", "server")
    )
    assert len(first) == 3
    assert first == second


def test_a_changed_manifest_is_refused(tmp_path: Path) -> None:
    uopc.export(uopc.param("x", (3,)) * 2, tmp_path / "f", kind="shared", target=LEVELS)
    file = tmp_path / "f.json"
    whole = json.loads(file.read_text("utf-8"))
    for changed in ([], LEVELS[:2], 3, None):
        target = whole["target"] | {"levels": changed}
        file.write_text(json.dumps(whole | {"target": target}), "utf-8")
        with pytest.raises(UserError, match="was changed: the library"):
            uopc.load_exported(tmp_path / "f.so")


def test_one_level_in_a_list_is_that_level(tmp_path: Path) -> None:
    for name, target in (("a", "x86-64-v2"), ("b", ["x86-64-v2"])):
        uopc.export(uopc.param("x", (3,)) * 2, tmp_path / name, name="f", target=target)
    assert (tmp_path / "a.o").read_bytes() == (tmp_path / "b.o").read_bytes()


def test_the_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("import uopc\ngraph = uopc.param('x', (3,)) * 2\n", "utf-8")
    arguments = ["export", "model.py", "-o", "f", "--target"]
    assert cli.main([*arguments, "x86-64,x86-64-v3"]) == 0
    assert "f_function f_best(void);" in Path("f.h").read_text("utf-8")
    assert cli.main([*arguments, "z80"]) == 1
    assert "unknown target 'z80'" in capsys.readouterr().err
