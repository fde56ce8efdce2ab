"""`threads=`: a caller of exported code runs the parts of kernels on threads of its own."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests.exporting.corpus import GOOD, sanitized
from tests.exporting.test_c import WARNINGS, named
from tests.exporting.test_export import CASES, CC, Case, assert_same, called, floats, needs_c, run
from uopc import dtypes
from uopc.cli import main as cli
from uopc.errors import UserError

THREADS = 3
POOL = """
#include <pthread.h>
#include <stdatomic.h>
struct job { uopc_part part; void *words; int64_t count; atomic_llong *next; };
static void *worker(void *given)
{
    struct job *job = given;
    for (;;) {
        const int64_t number = atomic_fetch_add_explicit(job->next, 1, memory_order_relaxed);
        if (number >= job->count) {
            return NULL;
        }
        job->part(job->words, number);
    }
}
static void by_threads(void *context, uopc_part part, void *words, int64_t count)
{
    pthread_t threads[3];
    atomic_llong next = 0;
    struct job job = {part, words, count, &next};
    (void)context;
    for (int i = 0; i < 3; ++i) {
        pthread_create(&threads[i], NULL, worker, &job);
    }
    for (int i = 0; i < 3; ++i) {
        pthread_join(threads[i], NULL);
    }
}
static size_t run("""


def layer() -> Case:
    """Rows of a free number: two results of several kernels."""
    x, w = uopc.param("x", (uopc.variable("n", 1, 600), 96)), uopc.param("w", (96, 80))
    y = (x @ w).tanh().contiguous()
    return Case({"y": y, "s": y.softmax(axis=1)}, [floats(500, 96), floats(96, 80)])


def stored() -> Case:
    """Kernels whose values between them are in the memory for work, and names that are taken."""
    a = uopc.param("run", (1200, 64), dtypes.float64)
    b = uopc.param("context", (64,), dtypes.float64)
    y = (a * b).exp().contiguous()
    return Case([y.sum(axis=0), (y + 1) * y.sum(axis=1, keepdims=True)],
                [floats(1200, 64, dtype="f8"), floats(64, dtype="f8")])  # fmt: skip


def sorts() -> Case:
    """Sorts of rows: kernels that hand values to each other."""
    x = uopc.param("x", (24, 9000))
    return Case(unp.sort(x, axis=1) * 2, [floats(24, 9000)])


def repeated() -> Case:
    """A loop of launches that the caller runs."""
    x, w = uopc.param("x", (200, 64)), uopc.param("w", (6, 64, 64))
    last, _ = uopc.scan(lambda x, w: ((x @ w).tanh(), x[0]), x, w)
    return Case(last, [floats(200, 64), floats(6, 64, 64)])


def odd() -> Case:
    """Loops of lengths that the parts do not divide: rows, columns and channels."""
    x, w = uopc.param("x", (7, 333)), uopc.param("w", (333, 517))
    y, image = uopc.param("y", (1001, 37)), uopc.param("image", (1, 5, 31, 29))
    k = uopc.param("k", (7, 5, 3, 3))
    results = [(x @ w).tanh(), y.softmax(axis=1), image.conv2d(k, padding=1)]
    shapes = [(7, 333), (333, 517), (1001, 37), (1, 5, 31, 29), (7, 5, 3, 3)]
    return Case(results, [floats(*shape) for shape in shapes])


PARALLEL = (layer, stored, sorts, repeated, odd)
each_case = pytest.mark.parametrize("make", PARALLEL, ids=lambda c: c.__name__)


def exported(make: Any, folder: Path, kind: str) -> Any:
    case = make()
    return uopc.export(case.graph, folder / "f", kind=kind, threads=THREADS, examples=named(case))


def with_threads(folder: Path) -> None:
    """Let the self-test run parts on threads, the second time."""
    text = (folder / "f_test.c").read_text("utf-8")
    changed = text.replace("static size_t run(", POOL.strip("\n"))
    changed = changed.replace("NULL : backwards", "NULL : by_threads")
    assert changed.count("by_threads") == 2
    (folder / "f_test.c").write_text(changed, "utf-8")


@needs_c
@each_case
@pytest.mark.few(2)
def test_c_on_threads_has_no_race_and_the_bits_of_the_jit(make: Any, tmp_path: Path) -> None:
    exported(make, tmp_path, "c")
    assert "run(context, " in (tmp_path / "f.c").read_text("utf-8")
    run(CC, *WARNINGS, "-O2", "-c", "f.c", "-o", "f.o", folder=tmp_path)
    run(CC, *WARNINGS, "f_test.c", "f.o", "-o", "test", folder=tmp_path)
    assert GOOD in run("./test", folder=tmp_path)
    with_threads(tmp_path)
    flags = ("-std=gnu11", "-O1", "-g", "-pthread", *sanitized(str(CC), "thread"))
    run(CC, *flags, "f_test.c", "f.c", "-o", "test", folder=tmp_path)
    assert GOOD in run("./test", folder=tmp_path)


@needs_c
@each_case
@pytest.mark.few(2)
def test_object_code_on_threads_has_the_bits_of_the_jit(make: Any, tmp_path: Path) -> None:
    exported(make, tmp_path, "static")
    run(CC, *WARNINGS, "f_test.c", "f.a", "-o", "test", folder=tmp_path)
    assert GOOD in run("./test", folder=tmp_path)
    with_threads(tmp_path)
    run(CC, "-std=gnu11", "-pthread", "f_test.c", "f.a", "-o", "test", folder=tmp_path)
    for _ in range(5):
        assert GOOD in run("./test", folder=tmp_path)


@needs_c
@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
@pytest.mark.few(3)
def test_small_programs_take_the_callback_and_call_it_or_not(make: Any, tmp_path: Path) -> None:
    exported(make, tmp_path, "c")
    run(CC, *WARNINGS, "-O1", "f_test.c", "f.c", "-o", "test", folder=tmp_path)
    assert GOOD in run("./test", folder=tmp_path)


@needs_c
def test_a_part_that_is_left_out_fails_the_self_test(tmp_path: Path) -> None:
    exported(layer, tmp_path, "static")
    file = tmp_path / "f_test.c"
    text = file.read_text("utf-8").replace("while (count > 0)", "while (count > 1)")
    file.write_text(text, "utf-8")
    run(CC, "-std=c11", "f_test.c", "f.a", "-o", "test", folder=tmp_path)
    assert subprocess.run([tmp_path / "test"], capture_output=True, check=False).returncode == 1


def test_a_callback_of_python(tmp_path: Path) -> None:
    """It gets its context back, and each part once; `load_exported` runs the parts in a row."""
    case = stored()
    made = exported(stored, tmp_path, "shared")
    assert made.manifest["threads"] == THREADS
    wanted = called(uopc.compile(case.graph, threads=THREADS), case)
    assert_same(called(uopc.load_exported(tmp_path / "f.so"), case), wanted)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    part_type = ctypes.CFUNCTYPE(None, pointer, number)
    seen: list[Any] = []

    @ctypes.CFUNCTYPE(None, pointer, part_type, pointer, number)
    def runner(context: Any, part: Any, words: Any, count: int) -> None:
        threads = [threading.Thread(target=part, args=(words, i)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen.append((context, count))

    arrays = [a.copy() for a in case.arrays] + [np.zeros_like(w) for w in wanted]
    work = np.zeros(made.manifest["work"]["bytes"] + 8, np.uint8)
    given = [pointer(a.ctypes.data) for a in [*arrays, work]]
    assert ctypes.CDLL(str(tmp_path / "f.so")).f(*given, runner, pointer(77)) == 0
    assert_same(arrays[len(case.arrays) :], wanted)
    assert seen and {context for context, _ in seen} == {77}
    assert all(count > 1 for _, count in seen)


@needs_c
def test_the_headers_of_two_functions_share_the_types(tmp_path: Path) -> None:
    for name in ("f", "g"):
        uopc.export(layer().graph, tmp_path / name, threads=2)
    uopc.export(layer().graph, tmp_path / "alone")
    assert "uopc_run" not in (tmp_path / "alone.h").read_text("utf-8")
    text = '#include "f.h"\n#include "g.h"\nuopc_run both = NULL;\n'
    (tmp_path / "h.c").write_text(text, "utf-8")
    for command in ((CC, "-std=c89", "-Wno-long-long"), (shutil.which("g++"), "-x", "c++")):
        if command[0] is not None:
            run(*command, "-pedantic", "-Wall", "-Werror", "-c", "h.c", folder=tmp_path)


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "2", None, 1 << 20])
def test_a_bad_number_of_threads_is_an_error(threads: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="threads must be a number of 1 to "):
        uopc.export(uopc.param("x", (3,)) * 2, tmp_path / "f", threads=threads)


def test_casadi_passes_no_callback(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="leave threads out"):
        x = uopc.param("x", (3,), dtypes.float64)
        uopc.export(x * 2, tmp_path / "f", threads=2, abi="casadi")


def test_the_command_takes_threads(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("import uopc\ngraph = uopc.param('x', (3,)) * 2\n", "utf-8")
    assert cli.main(["export", "model.py", "-o", "f", "--threads", "2"]) == 0
    assert "uopc_run run, void *context);" in Path("f.h").read_text("utf-8")
