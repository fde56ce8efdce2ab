"""Arrays in files: views that nobody copies or reads before a kernel does, as arguments and as
constants; parts of them; files that change, lie or are no files."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest

import uopc
from uopc import InvalidIR, Ops, UserError, dtypes
from uopc.dump import files as dump_files
from uopc.ir.builder import file_parts
from uopc.ir.core import walk
from uopc.ir.core.data import arrays, files
from uopc.ir.core.serialize import load, rows
from uopc.ir.interpret.interpreter import evaluate

TYPES = [t for t in dtypes.ARRAY_TYPES if t is not dtypes.bool_]


def written(path, array):
    np.ascontiguousarray(array).reshape(-1).view("u1").tofile(path)
    return path


@pytest.fixture
def numbers(tmp_path):
    return written(tmp_path / "numbers", np.arange(64, dtype="f4"))


def address(array):
    return array.__array_interface__["data"][0]


def anonymous_memory(code, *args):
    """The output of a process whose allocations are limited once it has imported and compiled."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)], text=True,
        capture_output=True, env={**os.environ, "UOPC_CACHE_DIR": ""},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


# ---------------------------------------------------------------- views
@pytest.mark.parametrize("t", dtypes.ARRAY_TYPES, ids=str)
def test_every_dtype_as_argument_and_as_constant(tmp_path, t):
    bytes_ = np.random.default_rng(0).integers(0, 2 if t is dtypes.bool_ else 100, 48, "u1")
    path = written(tmp_path / "x", bytes_)
    want = bytes_[16:].view(t.numpy)
    x = uopc.file(path, t, want.shape, offset=16)
    assert not x.flags.owndata and not x.flags.writeable and x.flags.aligned
    p = uopc.param("p", want.shape, t)
    for graph, given in ((p, (x,)), (uopc.constant(x), ())):
        flipped = uopc.compile(graph.flip(0))
        assert flipped(*given).tobytes() == want[::-1].tobytes()


def test_shapes_and_ends(tmp_path, numbers):
    assert uopc.file(numbers).shape == (64,) and uopc.file(numbers, offset=8)[0] == 2
    assert uopc.file(numbers, "f8", 3).shape == (3,)
    assert uopc.file(str(numbers), np.float32, [2, 3], 4)[1, 2] == 6
    assert uopc.file(numbers, "f4", (), 12)[()] == 3
    assert uopc.file(numbers, "f4", (1, 63, 1), 4).shape == (1, 63, 1)
    for empty in (uopc.file(numbers, "f4", (0, 5)), uopc.file(numbers, "f4", offset=256)):
        assert empty.size == 0 and empty.dtype == np.float32
        total = uopc.compile(uopc.param("e", empty.shape).sum())
        assert total(empty) == 0 == uopc.compile(uopc.constant(empty).sum())()


def test_a_constant_is_the_file_itself_and_its_key_is_no_hash_of_the_content(numbers, monkeypatch):
    x = uopc.file(numbers, np.float32, (8, 4), 32)
    made = uopc.constant(x)
    assert address(made.arg.array) == address(x) and made.arg.dims == (8, 4)
    assert uopc.constant(uopc.file(numbers, np.float32, (8, 4), 32)) is made
    assert uopc.constant(x[1:]) is not made and uopc.constant(x[1:]).shape == (7, 4)
    assert uopc.constant(x.view("i4")) is not made
    copied = uopc.constant(np.array(x))
    assert copied is not made and address(copied.arg.array) != address(x)
    np.testing.assert_array_equal(uopc.compile(made * 2)(), uopc.compile(copied * 2)())


def test_a_memmap_is_a_constant_without_a_copy(numbers):
    mapped = np.memmap(numbers, "f4", "r", offset=32, shape=(8, 4))
    made = uopc.constant(mapped)
    assert made is uopc.constant(uopc.file(numbers, np.float32, (8, 4), 32))
    part = uopc.constant(mapped[2:4])
    assert files.placed(part.arg.array)[0].offset == 32 + 2 * 16
    np.testing.assert_array_equal(uopc.compile(part + 1)(), np.arange(16, 24).reshape(2, 4) + 1)
    program = uopc.compile(uopc.param("m", (8, 4)).sum())
    assert program(mapped) == np.arange(8, 40).sum()


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_a_memmap_that_can_be_written_is_copied(numbers, mode):
    mapped = np.memmap(numbers, "f4", mode)
    made = uopc.constant(mapped)
    mapped[:] = 7
    np.testing.assert_array_equal(uopc.compile(made + 0)(), np.arange(64))


def test_a_memmap_of_a_file_that_was_replaced_is_what_it_shows(tmp_path, numbers):
    old = np.memmap(numbers, "f4", "r")
    os.replace(written(tmp_path / "other", np.ones(64, "f4")), numbers)
    new = np.memmap(numbers, "f4", "r")
    first, second = uopc.constant(old), uopc.constant(new)
    np.testing.assert_array_equal(uopc.compile(first + 0)(), np.arange(64))
    np.testing.assert_array_equal(uopc.compile(second + 0)(), np.ones(64))
    os.remove(numbers)
    np.testing.assert_array_equal(uopc.compile(uopc.constant(old) * 2)(), 2 * np.arange(64))


COPY = """
import os, resource, sys
import numpy as np, uopc

path, count = sys.argv[1], int(sys.argv[2])
x = uopc.param("x", (count,))
program = uopc.compile(x.sum(), threads=1)
program(np.zeros(count, "f4"))
uopc.compile(uopc.constant(np.ones(3)) * 2)()
with open("/proc/self/statm") as file:
    data = int(file.read().split()[5]) * resource.getpagesize()
limit = data + 2 * count
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
for a in (uopc.file(path), np.memmap(path, "f4", "r")):
    by_argument, by_constant = program(a), uopc.compile(uopc.constant(a).sum(), threads=1)()
    assert by_argument == by_constant == count, (by_argument, by_constant)
try:
    np.array(a)
    print("a copy fits")
except MemoryError:
    print("a copy does not fit")
"""


def test_neither_an_argument_nor_a_constant_is_copied(tmp_path):
    count = 1 << 24  # 64 MiB; the process may allocate 32
    path = written(tmp_path / "ones", np.ones(count, "f4"))
    assert anonymous_memory(COPY, path, count) == "a copy does not fit\n"


# ---------------------------------------------------------------- parts are views
def launches_and_reads(program):
    return [[(b.dtype.name, b.nbytes) for b in la.buffers] for la in program.launches]


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_parts_in_another_dtype_are_views(tmp_path, t):
    content = np.random.default_rng(1).integers(0, 100, 512, "u1")
    raw = uopc.constant(uopc.file(written(tmp_path / "x", content), np.uint8))
    n = t.itemsize
    part = raw[64 : 64 + 24 * n].bitcast(t).reshape(2, 3, 4)[1:].contiguous()
    want = content[64 + 12 * n : 64 + 24 * n].view(t.numpy).reshape(1, 3, 4)
    program = uopc.compile(part.permute(2, 0, 1))
    assert program().tobytes() == want.transpose(2, 0, 1).tobytes()
    ((_, read),) = launches_and_reads(program)
    assert read == (t.name, 12 * n)


def test_parts_that_are_no_views_are_read_where_they_lie(numbers):
    x = uopc.constant(uopc.file(numbers, np.float32, (8, 8)))
    raw = uopc.constant(uopc.file(numbers, np.uint8))
    cases = {
        "columns": (x[:, 2:4] + 1, np.arange(64).reshape(8, 8)[:, 2:4] + 1),
        "backwards": (x.flip(0) + 1, np.arange(64).reshape(8, 8)[::-1] + 1),
        "unaligned": (
            raw[1:9].bitcast(dtypes.float32) * 1,
            np.arange(64, dtype="f4").view("u1")[1:9].copy().view("f4"),
        ),
        "wider": (x[:2].pad([(1, 0), (0, 0)]) + 1, None),
    }
    for name, (graph, want) in cases.items():
        program = uopc.compile(graph)
        assert len(program.launches) == 1, name
        np.testing.assert_array_equal(program(), evaluate(graph, {}), err_msg=name)
        if want is not None:
            np.testing.assert_array_equal(program(), want, err_msg=name)


def copy(u, device="cpu"):
    return uopc.UOp(Ops.COPY, u.dtype, (u,), device)


def test_a_copy_takes_what_is_needed_and_in_the_order_of_the_file(numbers):
    after = file_parts.viewed
    x = uopc.constant(uopc.file(numbers, np.float32, (8, 8)))
    assert after(copy(x.permute(1, 0)).sum()) is copy(x).permute(1, 0).sum()
    assert after(copy(x.expand(5, 8, 8)).sum()) is copy(x).expand(5, 8, 8).sum()
    part = uopc.constant(uopc.file(numbers, np.float32, (2, 8), 3 * 32))
    assert after(copy(x)[3:5].sum()) is copy(part).sum()
    assert after(copy(x[3:5].permute(1, 0)).sum()) is copy(part).permute(1, 0).sum()
    p = uopc.param("p", (8, 8))
    assert after(copy(p.permute(1, 0)).sum()) is copy(p.permute(1, 0)).sum()
    # Two copies that are written are not one.
    one, two = copy(x.permute(1, 0)), copy(x)
    store = uopc.UOp(Ops.STORE, dtypes.void, (one, one + 1))
    graph = [uopc.UOp(Ops.AFTER, one.dtype, (one, store)).sum(), two.sum()]
    np.testing.assert_array_equal(uopc.compile(graph)(), [2016 + 64, 2016])


# ---------------------------------------------------------------- writing
def test_assign_writes_into_a_file(numbers):
    x = uopc.param("x", (16, 4))
    program = uopc.compile(x[4:8].assign(x[4:8] * 2 + uopc.param("s")))
    memory = uopc.file(numbers, np.float32, (16, 4), mode="r+")
    program(memory, np.float32(1))
    want = np.arange(64, dtype="f4").reshape(16, 4)
    want[4:8] = want[4:8] * 2 + 1
    np.testing.assert_array_equal(np.fromfile(numbers, "f4").reshape(16, 4), want)
    for read_only in (uopc.file(numbers, np.float32, (16, 4)), np.memmap(numbers, "f4", "r")):
        with pytest.raises(UserError, match="'x' is written, but the array is read-only"):
            program(read_only.reshape(16, 4), np.float32(1))
    np.testing.assert_array_equal(np.fromfile(numbers, "f4").reshape(16, 4), want)


def test_a_new_file_has_zeros_and_takes_results(tmp_path):
    path = tmp_path / "made"
    out = uopc.file(path, np.float64, (4, 2), 16, "w+")
    assert path.stat().st_size == 16 + 64 and not out.any()
    program = uopc.compile(uopc.param("x", (4, 2), np.float64) * 3)
    assert program(np.ones((4, 2)), out=out) is out
    np.testing.assert_array_equal(np.fromfile(path, "f8")[2:], 3)
    before = uopc.file(path, np.float64)
    uopc.file(path, np.float64, 1, mode="w+")[:] = 5
    np.testing.assert_array_equal(before[2:], 3)  # who has the old file keeps it
    assert np.fromfile(path, "f8") == [5] and os.listdir(tmp_path) == ["made"]
    assert uopc.file(path, np.float64, (0, 3), mode="w+").shape == (0, 3)


def test_a_constant_of_a_file_that_can_be_written_is_copied(numbers):
    memory = uopc.file(numbers, np.float32, mode="r+")
    made = uopc.constant(memory)
    memory[:] = 0
    np.testing.assert_array_equal(uopc.compile(made + 0)(), np.arange(64))


# ---------------------------------------------------------------- other processes
def test_a_pickle_and_a_stage_hold_the_place(tmp_path, numbers):
    made = uopc.constant(uopc.file(numbers)) * 2
    program = uopc.compile(made)
    again = pickle.loads(pickle.dumps(program))
    np.testing.assert_array_equal(again(), program())
    assert load(pickle.loads(pickle.dumps(rows(made)))) is made
    uopc.save_schedule(program, tmp_path / "double.uop")
    (place,) = tmp_path.glob("*.json")
    assert not list(tmp_path.glob("*.npy"))
    np.testing.assert_array_equal(uopc.load_schedule(tmp_path / "double.uop")(), program())
    stored = pickle.dumps(program)
    written(numbers, np.zeros(3, "f4"))
    with pytest.raises(UserError, match="had 256 bytes and has 12 since it was opened"):
        pickle.loads(stored)
    with pytest.raises(UserError, match="had 256 bytes and has 12 since it was opened"):
        uopc.load_schedule(tmp_path / "double.uop")
    good = place.read_text("utf-8")
    for bad in ("", "[]", "{}", good.replace('"offset": 0', '"offset": -4'), "[" * 100_000):
        place.write_text(bad, "utf-8")
        with pytest.raises(InvalidIR, match="the place of an array"):
            dump_files.read_arrays(tmp_path / "double.uop", f"data @{place.stem} : f32[64]")


def test_the_disk_cache_knows_a_file_by_its_identity(tmp_path, numbers):
    def origin():
        uopc.cache.clear()
        with uopc.options(cache_dir=str(tmp_path / "cache")):
            program = uopc.compile(uopc.constant(uopc.file(numbers)).sum() * 3)
            return program.stats["cache"], program()

    assert origin() == ("", 2016 * 3)
    assert origin() == ("disk", 2016 * 3)
    written(numbers, np.full(64, 2, "f4"))
    os.utime(numbers, ns=(1, 1))
    assert origin() == ("", 128 * 3)
    written(numbers, np.full(64, 3, "f4"))
    os.utime(numbers, ns=(2, 2))
    assert origin() == ("", 192 * 3)


# ---------------------------------------------------------------- bad files
def test_a_file_that_changes_under_the_reader_is_told(tmp_path, numbers):
    x = uopc.file(numbers)
    graph = uopc.constant(x) * 2
    os.utime(numbers, ns=(1, 1))
    for attempt in (lambda: uopc.compile(graph), lambda: uopc.constant(x)):
        with pytest.raises(UserError, match="was written since it was opened: open it again"):
            attempt()
    x = uopc.file(numbers)
    graph = uopc.constant(x) * 2
    os.replace(written(tmp_path / "new", np.arange(64, dtype="f4")), numbers)
    with pytest.raises(UserError, match="is another file since it was opened"):
        uopc.compile(graph)
    np.testing.assert_array_equal(uopc.compile(uopc.param("x", (64,)) * 1)(x), np.arange(64))
    x = uopc.file(numbers)
    graph = uopc.constant(x) * 2
    os.remove(numbers)
    with pytest.raises(UserError, match="has changed since it was opened: No such file"):
        uopc.compile(graph)


def test_bad_files_are_refused(tmp_path, numbers):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "bools").write_bytes(b"\0\1\2")
    cases = {
        "No such file": lambda: uopc.file(tmp_path / "none"),
        "not a regular file": lambda: uopc.file(tmp_path),
        "not a regular fil": lambda: uopc.file(tmp_path / "pipe"),
        "not a regular": lambda: uopc.file("/dev/zero"),
        "it is empty": lambda: uopc.file(tmp_path / "empty"),
        r"float32\[65\] needs bytes 0 to 260": lambda: uopc.file(numbers, "f4", 65),
        "the file has 256": lambda: uopc.file(numbers, "f8", (1 << 40, 1 << 40)),
        "the offset 260 is behind": lambda: uopc.file(numbers, "f4", offset=260),
        "bytes are not a whole number of float64": lambda: uopc.file(tmp_path / "odd", "f8"),
        "float32 at byte 2 is not aligned": lambda: uopc.file(numbers, "f4", 4, offset=2),
        "offset must be 0 or more": lambda: uopc.file(numbers, "f4", 4, offset=-4),
        "offset must be an int": lambda: uopc.file(numbers, "f4", 4, offset=1.0),
        "dimension must be 0 or more": lambda: uopc.file(numbers, "f4", (4, -1)),
        "dimension must be an int": lambda: uopc.file(numbers, "f4", (4, "1")),
        "path must be a string": lambda: uopc.file(3),
        "embedded null": lambda: uopc.file("a\0b"),
        "expected a dtype": lambda: uopc.file(numbers, "c8"),
        "mode must be one of": lambda: uopc.file(numbers, mode="w"),
        "a new file needs a shape": lambda: uopc.file(tmp_path / "new", mode="w+"),
        "cannot write .*not a regular file": lambda: uopc.file(tmp_path, "f4", 3, mode="w+"),
        "cannot write .*No such file": lambda: uopc.file(tmp_path / "a/b", "f4", 3, mode="w+"),
        "cannot write": lambda: uopc.file(tmp_path / "vast", "f4", 1 << 62, mode="w+"),
        "bools must be 0 or 1": lambda: uopc.file(tmp_path / "bools", "?"),
    }
    (tmp_path / "odd").write_bytes(bytes(13))
    for message, attempt in cases.items():
        with pytest.raises(UserError, match=message):
            attempt()
    assert not list(tmp_path.glob("*.part")) and not (tmp_path / "vast").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission_is_refused(numbers):
    numbers.chmod(0o400)
    with pytest.raises(UserError, match="Permission denied"):
        uopc.file(numbers, mode="r+")
    numbers.chmod(0)
    with pytest.raises(UserError, match="Permission denied"):
        uopc.file(numbers)


def test_wrong_arrays_of_files_are_refused_by_programs(tmp_path, numbers):
    program = uopc.compile(uopc.param("x", (8,)) * 2)
    with pytest.raises(UserError, match="expected float32\\[8\\], got float64\\[8\\]"):
        program(uopc.file(numbers, "f8", 8))
    with pytest.raises(UserError, match="expected float32\\[8\\], got float32\\[7\\]"):
        program(uopc.file(numbers, "f4", 7))
    unaligned = np.memmap(numbers, "f4", "r", offset=1, shape=(8,))
    with pytest.raises(UserError, match="'x' lies in a file and is not aligned"):
        program(unaligned)
    np.testing.assert_array_equal(program(np.array(unaligned)), 2 * np.array(unaligned))
    made = uopc.constant(unaligned)  # a constant is copied, as every array that is not aligned
    np.testing.assert_array_equal(uopc.compile(made * 2)(), 2 * np.array(unaligned))


def test_places_are_found_through_views_of_views(numbers):
    x = uopc.file(numbers, np.float32, (8, 8))
    for part, offset in ((x[3:][1:], 128), (x.reshape(-1)[5:9], 20), (x.view("u1")[0, 8:], 8)):
        place, shown = files.placed(part)
        assert place.offset == offset and address(shown) == address(part)
    assert files.placed(x[:, 1:]) is None and files.placed(np.array(x)) is None
    assert all(d.op is not Ops.DATA for d in walk.nodes(uopc.param("x")))
    assert arrays.register(x).key == files.placed(x)[0].key
    assert ml_dtypes.bfloat16 == uopc.file(numbers, "bfloat16").dtype
