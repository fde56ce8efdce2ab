"""Programs over arrays that are larger than memory, some rows at a time."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest

import uopc
from tests.tracing.files.test_mapped import anonymous_memory, written
from uopc import UserError

N = uopc.variable("n", 1, 100)


def rows_of(length, columns=3):
    return np.random.default_rng(length).standard_normal((length, columns)).astype("f4")


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 17])
@pytest.mark.parametrize("rows", [1, 4, 8, 100])
def test_pieces_come_in_order_and_cover_all_rows(tmp_path, length, rows):
    a = rows_of(length)
    path = written(tmp_path / "a", a)
    x = uopc.param("x", (N, 3))
    program = uopc.compile({"twice": x * 2, "sum": x.sum(0)})
    for array in (a, uopc.file(path, "f4", a.shape)):
        found = list(uopc.stream(program, array, rows=rows))
        assert [len(f["twice"]) for f in found] == [
            min(rows, length - k) for k in range(0, length, rows)
        ]
        if found:
            np.testing.assert_array_equal(np.concatenate([f["twice"] for f in found]), 2 * a)
            total = np.sum([f["sum"] for f in found], 0)
            np.testing.assert_allclose(total, a.sum(0), rtol=1e-4, atol=1e-5)


def test_results_are_combined_by_a_program_and_stored_in_a_file(tmp_path):
    a, b = rows_of(50), rows_of(51)[:50]
    files = [uopc.file(written(tmp_path / n, v), "f4", (50, 3)) for n, v in (("a", a), ("b", b))]
    x, y, s = uopc.param("x", (N, 3)), uopc.param("y", (N, 3)), uopc.param("s")
    greatest = uopc.compile((x * y * s).max(0))
    m = uopc.param("m", (3,))
    combine = uopc.compile(m.maximum(uopc.param("k", (3,))))
    pieces = uopc.stream(greatest, *files, rows=8, s=np.float32(2))
    np.testing.assert_array_equal(functools.reduce(combine, pieces), (a * b * 2).max(0))
    out = uopc.file(tmp_path / "out", "f4", (50, 3), mode="w+")
    add = uopc.compile(x + y)
    for k, piece in enumerate(uopc.stream(add, *files, rows=8)):
        out[8 * k : 8 * (k + 1)] = piece
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out", "f4").reshape(50, 3), a + b)


def test_a_program_of_fixed_size_and_an_array_that_it_writes(tmp_path):
    a = rows_of(12)
    path = written(tmp_path / "a", a)
    x = uopc.param("x", (4, 3))
    for _ in uopc.stream(uopc.compile(x.assign(x + 1)), uopc.file(path, "f4", (12, 3), mode="r+"),
                         rows=4):  # fmt: skip
        pass
    np.testing.assert_array_equal(np.fromfile(path, "f4").reshape(12, 3), a + 1)


def test_bad_arguments(tmp_path):
    a = rows_of(12)
    x, y = uopc.param("x", (N, 3)), uopc.param("y", (N, 3))
    program, fixed = uopc.compile(x + y), uopc.compile(uopc.param("z", (4, 3)) * 2)
    scalar = uopc.compile(uopc.param("s") * 2)
    cases = {
        "rows must be an int of 1 or more, got 0": lambda: uopc.stream(program, a, a, rows=0),
        "rows must be an int of 1 or more, got 2.0": lambda: uopc.stream(program, a, a, rows=2.0),
        "rows must be an int of 1 or more, got True": lambda: uopc.stream(program, a, a, rows=True),
        "takes 2 arrays, 3 were given": lambda: uopc.stream(program, a, a, a, rows=2),
        "takes 2 arrays, 0 were given": lambda: uopc.stream(program, rows=2),
        r"rows, got \[11, 12\]": lambda: uopc.stream(program, a, a[1:], rows=2),
        "takes 4 rows, but gets 12 rows in pieces of 3": lambda: uopc.stream(fixed, a, rows=3),
        "takes 4 rows, but gets 11 rows in pieces": lambda: uopc.stream(fixed, a[1:], rows=4),
        "'s' has no rows": lambda: uopc.stream(scalar, np.float32(1), rows=4),
        "'z': expected an array, got 3": lambda: uopc.stream(fixed, 3, rows=4),
        "missing 1 argument: 'y'": lambda: list(uopc.stream(program, a, rows=4)),
        "got float64": lambda: list(uopc.stream(fixed, a.astype("f8"), rows=4)),
        "expected 1..100": lambda: list(uopc.stream(program, np.ones((200, 3), "f4"),
                                                    np.ones((200, 3), "f4"), rows=150)),
    }  # fmt: skip
    for message, attempt in cases.items():
        with pytest.raises(UserError, match=message):
            attempt()


def test_a_file_that_changes_while_it_is_streamed_is_told(tmp_path):
    path = written(tmp_path / "a", rows_of(12))
    program = uopc.compile(uopc.param("x", (N, 3)).sum())
    pieces = uopc.stream(program, uopc.file(path, "f4", (12, 3)), rows=4)
    next(pieces)
    os.truncate(path, 40)  # read on, and the process would end
    with pytest.raises(UserError, match="had 144 bytes and has 40 since it was opened"):
        next(pieces)
    written(path, rows_of(12))
    pieces = uopc.stream(program, uopc.file(path, "f4", (12, 3)), rows=4)
    next(pieces)
    os.utime(path, ns=(1, 1))
    with pytest.raises(UserError, match="was written since it was opened"):
        next(pieces)


BOUNDED = """
import functools, resource, sys
import numpy as np, uopc

path, count, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
x = uopc.param("x", (uopc.variable("n", 1, rows),))
program = uopc.compile([x.cast(uopc.dtypes.float64).sum(), x.max()], threads=1)
program(np.zeros(rows, "f4"))

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

limit = status("VmData") + 2 * count
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
before = status("RssAnon"), status("RssFile")
most = 0
a = uopc.file(path)
total, greatest = 0.0, -np.inf
for s, m in uopc.stream(program, a, rows=rows):
    total, greatest = total + float(s), max(greatest, float(m))
    most = max(most, status("RssFile") - before[1])
print(total, greatest, most, status("RssAnon") - before[0])
"""


def test_resident_memory_is_bounded(tmp_path):
    count, rows = 1 << 24, (1 << 20) + 17  # 64 MiB in pieces of 4
    a = np.arange(count, dtype="i8") % 1013
    path = written(tmp_path / "a", a.astype("f4"))
    total, greatest, most, anonymous = anonymous_memory(BOUNDED, path, count, rows).split()
    assert float(total) == a.sum() and float(greatest) == 1012
    assert int(most) < 4 * 4 * rows and int(anonymous) < 4 << 20
