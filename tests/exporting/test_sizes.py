"""`uopc export --set`: sizes of a graph or a model as numbers or bounds, which memory follows."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from uopc import config
from uopc.backends.plan import value_of
from uopc.cli import sizes
from uopc.cli.main import main as cli
from uopc.errors import UserError
from uopc.program.program import make_program
from uopc.program.request import prepare

SOURCE = """
import uopc
n, m = uopc.variable("n", 1, 4096), uopc.variable("m", 1, 10)
x = uopc.param("x", (n, m, 4))
graph = {"y": (x.exp().contiguous() + x.flip(0)).reshape(n * m, 4)}
"""
N, M = uopc.variable("n", 1, 4096), uopc.variable("m", 1, 10)
X = uopc.param("x", (N, M, 4))
GRAPHS = [
    X.reshape(N * M, 4), X.permute((1, 0, 2)), X.pad(((1, 2), (0, 0), (0, N))), X[1:], X.cat(X),
    uopc.param("y", (1, 4)).expand(N, 4) + X.max(1), uopc.arange(N) * M, uopc.zeros((N, 3)) + 1,
    X.argmax(0), X.sort(1), X.flip(0).max(0),
]  # fmt: skip


def exported(folder: Path, source: str, *options: str) -> str:
    """The header of an export from the shell."""
    assert cli(["export", source, "-o", str(folder / "f"), "--kind", "c", *options]) == 0
    return (folder / "f.h").read_text("utf-8")


def work_bytes(header: str) -> int:
    return int(header.partition("F_WORK_BYTES ")[2].split()[0])


def test_memory_follows_the_sizes(tmp_path: Path) -> None:
    source = tmp_path / "model.py"
    source.write_text(SOURCE, "utf-8")
    largest = exported(tmp_path, str(source))
    assert "size_t f_work_bytes(int64_t n, int64_t m);" in largest
    closer = exported(tmp_path, str(source), "--dims", "n=1:64")
    assert "n: 1 to 64 " in closer and work_bytes(closer) == work_bytes(largest) // 64
    fixed = exported(tmp_path, str(source), "--set", "n=8", "--set", "m=2")
    assert "int f(const float *x, float *y, void *work);" in fixed
    assert work_bytes(fixed) == 8 * 2 * 4 * 4 and "size_t f_work_bytes(void);" in fixed


def test_a_function_says_what_some_sizes_take(tmp_path: Path) -> None:
    """The bytes that the program takes, also of more than 32 bits; the constant is the most."""
    n, m = uopc.variable("n", 1, 1 << 20), uopc.variable("m", 1, 4096)
    x = uopc.param("x", (n, m))
    graph = (x.exp().contiguous() + x.flip(0)).sum(axis=1)[::2].contiguous().cumsum(0)
    made = uopc.export(graph, tmp_path / "f", kind="shared")
    library = ctypes.CDLL(str(made.files[-1]))
    library.f_work_bytes.restype = ctypes.c_size_t
    header = (tmp_path / "f.h").read_text("utf-8")
    assert "size_t f_work_bytes(int64_t n, int64_t m);" in header
    plan = uopc.compile(graph, threads=1)._runner.plan
    for own in ((1, 1), (7, 5), (1 << 20, 1), (1 << 19, 4095), (1 << 20, 4096)):
        given = [ctypes.c_int64(k) for k in own]
        nbytes = library.f_work_bytes(*given)
        assert nbytes == value_of(plan.arena_bytes, dict(zip("nm", own, strict=True)))
        assert 0 <= nbytes - 4 * own[0] * own[1] < 8 * own[0] + (1 << 16)
    assert nbytes == work_bytes(header) > 1 << 34
    f, given = uopc.load_exported(made.files[-1]), np.random.default_rng(0).random((9, 5), "f4")
    want = np.cumsum((np.exp(given) + given[::-1]).sum(axis=1)[::2])
    np.testing.assert_allclose(f(given), want, rtol=1e-6)


@pytest.mark.parametrize("given", [{"n": 5}, {"m": 3}, {"n": 5, "m": 3}, {"n": (2, 7), "m": 3}],
                         ids=str)  # fmt: skip
def test_graphs_compute_the_same(given: dict[str, Any]) -> None:
    """Each op that takes sizes, also in one graph with others that stay symbolic."""
    whole = {f"r{i}": u for i, u in enumerate(GRAPHS)}
    request = prepare(whole, None, True, 1, None, config.current())
    arrays = {"x": np.random.default_rng(0).random((5, 3, 4)).astype("f4"),
              "y": np.arange(4, dtype="f4")[None]}  # fmt: skip
    wanted = make_program(request)(**arrays)
    got = make_program(sizes.given(request, given))(**arrays)
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_a_size_out_of_its_bounds_or_of_no_graph() -> None:
    request = prepare(GRAPHS[0], None, True, 1, None, config.current())
    for name, size, message in (("n", 5000, "n must be within 1:4096, got 5000"),
                                ("m", (0, 4), "m must be within 1:10, got 0:4"),
                                ("k", 1, "unknown size 'k'; the sizes")):  # fmt: skip
        with pytest.raises(UserError, match=message):
            sizes.given(request, {name: size})


def test_a_model_says_which_sizes_it_leaves_open(tmp_path: Path, capsys: Any) -> None:
    onnx = pytest.importorskip("onnx")
    text = ('<ir_version: 8, opset_import: ["": 18]>g (float[batch, seq] x) => '
            '(float[batch, seq] y) {s = SplitToSequence <axis = 1> (x) '
            'y = ConcatFromSequence <axis = 1> (s)}')  # fmt: skip
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    source = str(tmp_path / "model.onnx")
    assert cli(["export", source, "-o", str(tmp_path / "f")]) == 1
    assert "leaves sizes open: batch, seq. Give them by --set, as --set batch=8" in (
        capsys.readouterr().err
    )
    header = exported(tmp_path, source, "--set", "seq=128", "--set", "batch=1:8")
    assert "batch: 1 to 8 " in header and "seq" not in header
