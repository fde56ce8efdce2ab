"""Options of exports: where constants and buffers are, and what a small function calls."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests.exporting.test_c import checked, named
from tests.exporting.test_export import CC, Case, assert_same, convolution, floats, needs_c, run
from uopc import dtypes
from uopc.backends import elf
from uopc.cli import main as cli
from uopc.errors import UserError

FRAME = 1024  # bytes of a stack frame with no buffers: registers of a few loops
HALF, WHOLE = np.float16, np.float32


def packed() -> Case:
    """A product whose kernel has a copy of 16 KiB."""
    x = uopc.param("x", (64, 64))
    return Case(x.relu() @ x, [floats(64, 64)])


def layers(t: Any = WHOLE) -> Any:
    """Two matrices, of which one has 64 KiB."""
    x = uopc.param("x", (128,))
    large, small = floats(128, 128).astype(t), floats(4, 128)
    return uopc.constant(small) @ (uopc.constant(large).cast(dtypes.float32) @ x)


@needs_c
@pytest.mark.parametrize("t", [WHOLE, HALF, np.int64])
def test_large_constants_are_files(t: Any, tmp_path: Path) -> None:
    """The linked program has the bits; only the array of 64 KiB is a file, by itself."""
    made = uopc.export(layers(t), tmp_path / "f", kind="c", examples=[floats(128)])
    large = 128 * 128 * np.dtype(t).itemsize
    bins = [f for f in made.files if f.suffix == ".bin"]
    assert [f.stat().st_size for f in bins] == [large] * (large >= 1 << 16)
    assert set(made.manifest["files"]) == {f.name for f in made.files if f.suffix != ".json"}
    if bins:
        run(CC, "-I", str(tmp_path), "-c", str(tmp_path / "f_data.S"), "-o", "d.o", folder=tmp_path)
    code = (tmp_path / "f.c").read_text("utf-8")
    assert code.count("\n    ") < 4000 and ("f_data.S" in code) == bool(bins)
    objects = ["f.o", "d.o"] if bins else ["f.o"]
    run(CC, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-c", "f.c", folder=tmp_path)
    run(CC, "-std=c11", "f_test.c", *objects, "-o", "test", folder=tmp_path)
    assert "f: 0 wrong" in run("./test", folder=tmp_path)


@pytest.mark.parametrize(("weights", "files"), [("inline", 0), ("auto", 1), ("file", 2)])
def test_where_constants_are(weights: str, files: int, tmp_path: Path) -> None:
    made = uopc.export(layers(), tmp_path / "f", kind="c", weights=weights)
    arrays = [f for f in made.files if f.suffix == ".bin"]
    assert len(arrays) == files
    assert any(f.suffix == ".S" for f in made.files) == bool(files)
    code = (tmp_path / "f.c").read_text("utf-8")
    assert len(re.findall(r"extern const float f_c\d\[\d+\];", code)) == files


def test_object_code_has_its_constants_in_it(tmp_path: Path) -> None:
    made = uopc.export(layers(), tmp_path / "f", weights="file")
    assert [f.suffix for f in made.files] == [".h", ".json", ".o"]
    with pytest.raises(UserError, match="unknown weights 'text'; choose auto, inline, file"):
        uopc.export(layers(), tmp_path / "f", kind="c", weights="text")


@needs_c
def test_no_buffer_on_the_stack(tmp_path: Path) -> None:
    """gcc measures the frames; the work grows by what they lose, and bits stay."""
    case, works = convolution(), []
    for limit in (None, 1 << 14, 0):
        made = uopc.export(case.graph, tmp_path / "f", kind="c", target="x86-64",
                           stack_bytes=limit, examples=named(case))  # fmt: skip
        works.append(made.manifest["work"]["bytes"])
        checked(tmp_path, "-O1", *([f"-Wframe-larger-than={FRAME}"] if limit == 0 else []))
    assert works[0] == works[1] < works[2]
    with pytest.raises(AssertionError, match="frame size"):
        uopc.export(case.graph, tmp_path / "f", kind="c", target="x86-64", examples=named(case))
        checked(tmp_path, "-O1", f"-Wframe-larger-than={FRAME}")


@needs_c
@pytest.mark.parametrize("target", ["c11", "cortex-m4f"])
def test_frames_that_gcc_reports(target: str, tmp_path: Path) -> None:
    """On a microcontroller a kernel has 1 KiB of arrays on the stack, without an option."""
    uopc.export(packed().graph, tmp_path / "f", kind="c", target=target)
    if "gcc" not in run(CC, "--version", folder=tmp_path).lower():
        pytest.skip("-fstack-usage is gcc's")
    run(CC, "-std=c11", "-O1", "-fstack-usage", "-c", "f.c", folder=tmp_path)
    rows = (tmp_path / "f.su").read_text("utf-8").splitlines()
    frames = {row.split("\t")[0].split(":")[-1]: int(row.split("\t")[1]) for row in rows}
    assert "f" in frames
    most = max(frames.values())
    assert most < 2 * FRAME if target == "cortex-m4f" else most > 4 * FRAME, frames


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_the_stack_of_object_code(limit: int, tmp_path: Path) -> None:
    case = convolution()
    made = uopc.export(case.graph, tmp_path / "f", kind="shared", stack_bytes=limit)
    f = uopc.load_exported(made.files[-1])
    assert_same(f(*case.arrays), uopc.compile(case.graph, threads=1)(*case.arrays))


def test_wrong_stacks(tmp_path: Path) -> None:
    for limit in (-1, 1.5, True):
        with pytest.raises(UserError, match="stack_bytes must be a number of bytes"):
            uopc.export(uopc.param("x", (3,)), tmp_path / "f", stack_bytes=limit)  # type: ignore[arg-type]


def test_small_functions_call_nothing(tmp_path: Path) -> None:
    """Their kernels are part of them; those of large ones have functions of their own."""
    x = uopc.param("x", (8,), dtypes.float64)
    for graph, inlined in ((x * 2 + 1, True), (x.sin().tanh().erf().exp().sin().tanh(), False)):
        uopc.export(graph, tmp_path / "f")
        found = {s.name for s in elf.read((tmp_path / "f.o").read_bytes()).symbols}
        assert any(n.startswith("f_E") for n in found) != inlined, found


def test_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text('import uopc\ngraph = uopc.param("x", (3,)) * 2\n', "utf-8")
    options = ["--kind", "c", "--weights", "inline", "--stack-bytes", "256", "--no-vectors"]
    assert cli.main(["export", "model.py", "-o", "f", *options]) == 0
    assert "f.c" in capsys.readouterr().out
