"""Models in files that an earlier process loaded: found by the file, without a graph, never stale.

ONNX's reference evaluator says what the numbers are.
"""

from __future__ import annotations

import errno
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import uopc.onnx
from uopc import cache
from uopc.backends.cpu import native
from uopc.cache import disk
from uopc.errors import UserError
from uopc.ir.core.data import arrays, files
from uopc.onnx import reading, registry
from uopc.program.tuned import schedules

RNG = np.random.default_rng(11)
ROWS, COLUMNS = 130, 200
X = RNG.integers(-3, 4, (40, ROWS)).astype("f4")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of this test's own; files count as settled at once, as no two writes are at one tick
    of a clock here."""
    native.install()
    monkeypatch.setattr(files, "_TICK_NS", 0)
    cache.clear()
    with uopc.options(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache" / disk.FOLDER
    cache.clear()


def model(seed: int = 0, external: str = "", rows: Any = 40) -> onnx.ModelProto:
    """y = relu(x @ w) + b, and z, the sum of y along rows. `external`: the file with w."""
    rng = np.random.default_rng(seed)
    w = numpy_helper.from_array(rng.integers(-3, 4, (ROWS, COLUMNS)).astype("f4"), "w")
    b = numpy_helper.from_array(rng.integers(-3, 4, COLUMNS).astype("f4"), "b")
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["x 1", "w"], ["p"], "product"),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Add", ["r", "b"], ["y"]),
        helper.make_node("ReduceSum", ["y", "axes"], ["z"], keepdims=0),
    ]
    axes = numpy_helper.from_array(np.array([1]), "axes")
    graph = helper.make_graph(
        nodes, "g", [value("x 1", TensorProto.FLOAT, [rows, ROWS])],
        [value("y", TensorProto.FLOAT, None), value("z", TensorProto.FLOAT, None)], [w, b, axes],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if external:
        onnx.external_data_helper.convert_model_to_external_data(made, True, external, 1000)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model in a file."""
    onnx.save(model(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def wanted(m: onnx.ModelProto, x: np.ndarray = X) -> dict[str, np.ndarray]:
    return dict(zip(["y", "z"], ReferenceEvaluator(m).run(None, {"x 1": x})))


def check(f: Any, want: dict[str, np.ndarray], x: np.ndarray = X) -> None:
    for got in (f(x), f(**{"x 1": x})):
        assert list(got) == list(want)
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array)


_graphs = 0  # that were made since the last `load`


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    real = reading.graph_of

    def graph_of(*given: Any) -> Any:
        global _graphs
        _graphs += 1
        return real(*given)

    monkeypatch.setattr(reading, "graph_of", graph_of)


def load(file: Any, **options: Any) -> Any:
    """As in a new process: nothing in memory."""
    global _graphs
    cache.clear()
    _graphs = 0
    return uopc.onnx.load(file, **options)


def is_found(f: Any) -> bool:
    """True for a program that was found: no graph was made for it, and nothing was scheduled."""
    if not _graphs:
        assert cache.counters()["scheduled"] == 0 and f.program.stats["cache"] == "disk"
    return not _graphs


def array_file(folder: Path) -> Path:
    (found,) = folder.glob("*.arrays")
    return found


# ---------------------------------------------------------------- found again
@pytest.mark.parametrize("form", [str, Path])
def test_found_without_its_graph(file: Path, folder: Path, form: Callable[[Any], Any]) -> None:
    first = load(form(file))
    assert first.program.stats["cache"] == "" and first.program.stats["compiled"]
    again = load(form(file))
    assert is_found(again) and cache.problems() == []
    for f in (first, again):
        check(f, wanted(model()))
        assert f.inputs == ["x 1"] and f.outputs == ["y", "z"]
        assert "graph" not in vars(f._source)  # the first one let it go
    stats = again.program.stats
    assert stats["passes"] == {} and stats["render"] == stats["llvm"] == stats["compiled"] == 0
    assert {k: first.program.stats[k] for k in ("nodes", "launches", "arena")} == {
        k: stats[k] for k in ("nodes", "launches", "arena")
    }


def test_the_first_process_lets_the_graph_go(file: Path) -> None:
    """Also the arrays of its constants, whose other order is mapped."""
    gc.collect()
    before = set(arrays._alive)
    f = load(file)
    gc.collect()
    assert set(arrays._alive) <= before
    check(f, wanted(model()))
    assert set(arrays._alive) <= before
    assert f.graph and not set(arrays._alive) <= before


def test_in_one_process_too(file: Path) -> None:
    load(file)
    assert uopc.onnx.load(file).program.stats["cache"] == "memory"
    with uopc.options(programs=0):
        assert is_found(load(file))


@pytest.mark.machine("laptop")
def test_constants_are_mapped_in_the_order_of_the_kernels(file: Path, folder: Path) -> None:
    first, again = load(file), load(file)
    for f in (first, again):
        constants = f.program._runner.plan.constants
        assert constants
        for c in constants:
            mapping = files.mapping_of(c)
            assert mapping is not None and not c.flags.writeable
            assert Path(mapping.identity.path) == array_file(folder)
            assert c.ctypes.data % 64 == 0
    with uopc.options(cache_dir=""):
        plain = uopc.onnx.load(file)
    for c, d in zip(plain.program._runner.plan.constants, again.program._runner.plan.constants):
        np.testing.assert_array_equal(c, d)


def test_the_graph_is_made_when_it_is_asked_for(file: Path) -> None:
    load(file)
    f = load(file)
    assert is_found(f)
    assert list(f.graph.inputs) == ["x 1"] and f.graph is f.graph
    with uopc.options(cache_dir=""):
        plain = uopc.onnx.load(file)
    assert f.graph.outputs == plain.graph.outputs
    p, q = load(file).program, plain.program
    assert [str(v) for v in p.inputs] == [str(v) for v in q.inputs]
    assert [str(v) for v in p.outputs] == [str(v) for v in q.outputs]
    assert [k.uops for k in p.kernels] == [k.uops for k in q.kernels]
    assert str(p.launches) == str(q.launches) and repr(p) == repr(q)
    assert p.stages.keys() == q.stages.keys()


def test_what_a_program_can_do(file: Path, tmp_path: Path) -> None:
    load(file)
    f = load(file)
    bound = f.program.bind(**{"x 1": X})
    np.testing.assert_array_equal(bound()["y"], wanted(model())["y"])
    for other in (pickle.loads(pickle.dumps(load(file))), pickle.loads(pickle.dumps(f))):
        check(other, wanted(model()))
        assert other.outputs == ["y", "z"] and list(other.graph.outputs) == ["y", "z"]
    made = uopc.export(load(file).program, tmp_path / "f", kind="object")
    assert made.files
    file.unlink()  # the pickle and the program need it no more
    check(f, wanted(model()))


def test_symbolic_sizes(tmp_path: Path) -> None:
    onnx.save(model(rows="n"), tmp_path / "m.onnx")
    messages = []
    for expected in (False, True):
        f = load(tmp_path / "m.onnx", dims={"n": (2, 64)})
        assert is_found(f) is expected
        for rows in (2, 7, 40):
            check(f, wanted(model(rows="n"), X[:rows]), X[:rows])
        with pytest.raises(UserError) as error:
            f(X[:1])
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert not is_found(load(tmp_path / "m.onnx", dims={"n": (2, 65)}))
    assert not is_found(load(tmp_path / "m.onnx", dims={"n": 40}))
    assert is_found(load(tmp_path / "m.onnx", dims={"n": [2, 64]}))


CONDITION = """
g (float[n, 3] a) => (float[k, 6] y) <int64[2] s = {-1, 6}> { y = Reshape(a, s) }
"""


def test_conditions_have_the_lines_of_the_model(tmp_path: Path) -> None:
    """A size that must be even: the error of a call says which node needs it."""
    text = '<ir_version: 8, opset_import: ["": 18]>' + CONDITION
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    messages = []
    for expected in (False, True):
        f = load(tmp_path / "m.onnx", dims={"n": (2, 9)})
        assert is_found(f) is expected
        a = np.arange(12, dtype="f4").reshape(4, 3)
        np.testing.assert_array_equal(f(a), a.reshape(2, 6))
        with pytest.raises(UserError) as error:
            f(a[:3])
        messages.append(str(error.value))
    assert messages[0] == messages[1] and "m.onnx:1" in messages[0]


# ---------------------------------------------------------------- never stale
def rewritten(file: Path, m: onnx.ModelProto) -> None:
    """Another model of the same size, with the time that the first one had."""
    before = os.stat(file)
    data = m.SerializeToString()
    assert len(data) == before.st_size
    with open(file, "r+b") as opened:
        opened.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("how", ["write", "replace", "same time"])
def test_another_model_under_the_name(file: Path, tmp_path: Path, how: str) -> None:
    load(file)
    f = load(file)
    if how == "same time":
        rewritten(file, model(1))
    elif how == "replace":
        onnx.save(model(1), tmp_path / "new")
        os.replace(tmp_path / "new", file)
    else:
        onnx.save(model(1), file)
    other = load(file)
    assert not is_found(other)
    check(other, wanted(model(1)))
    check(f, wanted(model()))  # the one that is loaded stays what it was
    for asked in (lambda: f.graph, lambda: f.program.kernels, lambda: pickle.dumps(f)):
        with pytest.raises(UserError, match="since it was opened"):
            asked()
    again = load(file)
    assert is_found(again)
    check(again, wanted(model(1)))


def test_a_model_that_moves(file: Path, tmp_path: Path) -> None:
    load(file)
    os.rename(file, tmp_path / "n.onnx")
    with pytest.raises(UserError, match="cannot read"):
        load(file)
    assert not is_found(load(tmp_path / "n.onnx"))


def test_a_file_that_was_just_written(file: Path, folder: Path, monkeypatch: Any) -> None:
    """It may be written again at the same tick of the clock, so it is not stored."""
    monkeypatch.setattr(files, "_TICK_NS", 2 * 10**9)
    for _ in range(2):
        f = load(file)
        assert "graph" in vars(f._source)
        check(f, wanted(model()))
    assert not list(folder.glob("*.arrays"))


def test_weights_in_other_files(tmp_path: Path) -> None:
    """They stay where they are; a change of them is seen, also by a model that holds a copy."""
    onnx.save(model(external="w.bin"), tmp_path / "m.onnx")
    load(tmp_path / "m.onnx")
    f = load(tmp_path / "m.onnx")
    assert is_found(f)
    check(f, wanted(model()))
    paths = [files.mapping_of(c).identity.path for c in f.program._runner.plan.constants]
    assert str(tmp_path / "w.bin") in paths
    onnx.save(model(1, external="v.bin"), tmp_path / "other.onnx")
    with open(tmp_path / "w.bin", "r+b") as opened:
        opened.write((tmp_path / "v.bin").read_bytes())
    other = load(tmp_path / "m.onnx")
    assert not is_found(other)
    want = np.maximum(X @ numpy_helper.to_array(model(1).graph.initializer[0]), 0)
    b = numpy_helper.to_array(model(0).graph.initializer[1])
    np.testing.assert_array_equal(other(X)["y"], want + b)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(UserError, match=r"cannot read the weights of 'w'"):
        load(tmp_path / "m.onnx")


def test_a_link_that_leads_to_other_weights(tmp_path: Path) -> None:
    """Neither file is written."""
    link = tmp_path / "w.bin"
    onnx.save(model(1, external="w.bin"), tmp_path / "other.onnx")
    link.rename(tmp_path / "1.bin")
    onnx.save(model(external="w.bin"), tmp_path / "m.onnx")
    link.rename(tmp_path / "0.bin")
    link.symlink_to("0.bin")
    load(tmp_path / "m.onnx")
    f = load(tmp_path / "m.onnx")
    assert is_found(f)
    link.unlink()
    link.symlink_to("1.bin")
    other = load(tmp_path / "m.onnx")
    assert not is_found(other)
    want = np.maximum(X @ numpy_helper.to_array(model(1).graph.initializer[0]), 0)
    b = numpy_helper.to_array(model(0).graph.initializer[1])
    np.testing.assert_array_equal(other(X)["y"], want + b)
    with pytest.raises(UserError, match="since it was opened"):
        _ = f.graph


@pytest.mark.parametrize("how", ["folder", "link"])
def test_a_graph_that_is_asked_for_where_the_path_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is that of the file that was loaded, also in the first process."""
    for name, seed in (("a", 0), ("b", 1)):
        (tmp_path / name).mkdir()
        onnx.save(model(seed), tmp_path / name / "m.onnx")
    link = tmp_path / "link"
    link.symlink_to("a")
    monkeypatch.chdir(tmp_path / "a")
    path = "m.onnx" if how == "folder" else link / "m.onnx"
    loaded = [load(path), load(path)]
    assert is_found(loaded[1])
    monkeypatch.chdir(tmp_path / "b")
    link.unlink()
    link.symlink_to("b")
    for f in loaded:
        graph = f.graph
        got = uopc.compile(graph.outputs["y"], inputs=list(graph.inputs.values()))(X)
        np.testing.assert_array_equal(got, wanted(model())["y"])
        check(pickle.loads(pickle.dumps(f)), wanted(model()))


def test_what_else_changes_the_graph(file: Path) -> None:
    """Each is a miss the first time, and a hit the second time; the first one stays."""
    choices: list[dict[str, Any]] = [
        {}, {"threads": 2}, {"optimize": False}, {"name": "net"},
        {"constants": {"x 1": X}}, {"constants": {"x 1": X + 1}},
    ]  # fmt: skip
    for options in choices:
        assert not is_found(load(file, threads=1) if options == {} else load(file, **options))
    for options in choices[1:]:
        assert is_found(load(file, **options))
    assert is_found(load(file, threads=1))
    for option in ("fast_zeros", "noopt", "origins"):
        value = option != "origins"
        for expected in (False, True):
            with uopc.options(**{option: value}):
                f = load(file, threads=1)
            assert is_found(f) is expected or option == "noopt", option
            check(f, wanted(model()))
    f = load(file, constants={"x 1": X})
    np.testing.assert_array_equal(f()["z"], wanted(model())["z"])


def test_what_is_not_stored(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects, bytes, arguments of other kinds, and compiles that somebody wants to see."""
    data = file.read_bytes()
    for _ in range(2):
        check(load(data), wanted(model()))
        check(load(onnx.load(file)), wanted(model()))
        check(load(file, verify=True), wanted(model()))
        check(load(file, rules=[]), wanted(model()))
        with uopc.options(cache_dir=""):
            check(load(file), wanted(model()))
    with pytest.raises(UserError, match="threads"):
        load(file, threads=-1)
    with pytest.raises(UserError, match="no dimension 'n'"):
        load(file, dims={"n": 3})
    assert not list(folder.glob("*.arrays"))
    load(file)
    monkeypatch.setitem(registry.TABLE, ("", "Own"), [(1, lambda n: None)])
    assert "graph" in vars(load(file)._source)  # operators of somebody else may be others now


def test_outputs_that_are_no_tensors(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (float[2] a, float[2] b) => (seq(float[2]) s) { s = SequenceConstruct(a, b) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    for _ in range(2):
        f = load(tmp_path / "m.onnx")
        got = f(np.ones(2, "f4"), np.zeros(2, "f4"))
        np.testing.assert_array_equal(got, [[1, 1], [0, 0]])


def test_searches_that_found_more_since(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(file)
    monkeypatch.setattr(schedules, "holds", lambda request, machine, chosen: False)
    f = load(file)
    assert not is_found(f)
    check(f, wanted(model()))


# ---------------------------------------------------------------- the cache
def damaged(file: Path, at: int) -> None:
    with open(file, "r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte[0] ^ 64]))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a byte": lambda f: damaged(f, 1000),
    "short": lambda f: os.truncate(f, 100),
    "empty": lambda f: os.truncate(f, 0),
    "gone": lambda f: f.unlink(),
    "open": lambda f: f.chmod(0o666),
    "a folder": lambda f: (f.unlink(), f.mkdir()),
    "a link": lambda f: (f.rename(f.with_name("else")), f.symlink_to("else")),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_of_arrays(file: Path, folder: Path, how: str) -> None:
    load(file)
    DAMAGES[how](array_file(folder))
    f = load(file)
    assert not is_found(f) and cache.problems()
    check(f, wanted(model()))
    if how == "a folder":  # nothing takes its place
        return
    again = load(file)
    assert is_found(again)
    check(again, wanted(model()))


@pytest.mark.parametrize("how", ["a byte", "short", "empty", "gone", "open", "a link"])
@pytest.mark.parametrize("which", range(2))
@pytest.mark.few(3)
def test_a_damaged_entry(file: Path, folder: Path, how: str, which: int) -> None:
    """That of the description, or that of the program."""
    load(file)
    entries = sorted(folder.glob("*.entry"), key=lambda f: b'"model"' in f.read_bytes()[:2000])
    assert len(entries) == 2
    if how == "a byte":
        damaged(entries[which], 500)
    else:
        DAMAGES[how](entries[which])
    f = load(file)
    check(f, wanted(model()))
    assert bool(cache.problems()) is (how != "gone")
    again = load(file)
    assert is_found(again)
    check(again, wanted(model()))


def test_equal_arrays_are_stored_once(file: Path, folder: Path) -> None:
    """Another name of the same model, and other options, share the file."""
    load(file)
    identity = os.stat(array_file(folder)).st_ino
    os.link(file, file.with_name("n.onnx"))
    load(file.with_name("n.onnx"))
    load(file, name="net")
    assert os.stat(array_file(folder)).st_ino == identity


def test_a_full_cache(file: Path, folder: Path) -> None:
    """Arrays that are larger than the limit are not stored; the limit counts them."""
    with uopc.options(cache_mib=0):
        for _ in range(2):
            f = load(file)
            check(f, wanted(model()))
            assert "graph" in vars(f._source) and "more than the cache" in cache.problems()[0]
    load(file)
    store = disk.DiskCache(folder.parent, 1 << 20)
    (entry,) = store.array_files()
    assert entry.nbytes > 4 * ROWS * COLUMNS
    small = disk.DiskCache(folder.parent, entry.nbytes // 2)
    small.write("another", b"content")
    assert store.array_files() == [] and next(e.name for e in store.entries()) == "another"
    assert store.clear()[0] == len(store.entries()) or store.entries() == []


def test_use_keeps_arrays(file: Path, folder: Path) -> None:
    """The time of use is not that of the last change, by which the file is known."""
    load(file)
    found = array_file(folder)
    os.utime(found, ns=(0, os.stat(found).st_mtime_ns))
    (entry,) = disk.DiskCache(folder.parent, 1 << 20).array_files()
    assert entry.used == 0
    assert is_found(load(file))
    (entry,) = disk.DiskCache(folder.parent, 1 << 20).array_files()
    assert entry.used > 0


@pytest.mark.parametrize("call", ["rename", "write"])
def test_a_disk_that_is_read_only(file: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        if call == "rename":
            patched.setattr(disk.os, "rename", fail)
        else:
            patched.setattr(disk, "_appearing", fail)
        f = load(file)
        check(f, wanted(model()))
        assert os.strerror(errno.EROFS) in " ".join(cache.problems())
    load(file)
    with monkeypatch.context() as patched:
        patched.setattr(disk.os, "utime", fail)
        f = load(file)  # what is there is used
    assert is_found(f)


_PROCESS = """
import sys, numpy as np, uopc.onnx
from uopc.ir.core.data import arrays, files
files._TICK_NS = 0
f = uopc.onnx.load(sys.argv[1], threads=1)
x = np.load(sys.argv[2])
print(f.program.stats["cache"] or "made", float(f(x)["z"].sum()), "onnx" in sys.modules)
"""


def test_two_processes_at_once(file: Path, folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    command = [sys.executable, "-c", _PROCESS, str(file), str(tmp_path / "x.npy")]
    env = dict(os.environ, UOPC_CACHE_DIR=str(folder.parent))

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    total = str(float(wanted(model())["z"].sum()))
    both = [started(), started()]
    said = [p.communicate()[0].split() for p in both]
    assert [p.returncode for p in both] == [0, 0]
    assert all([words[1] == total for words in said])
    last = started().communicate()[0].split()
    if last[0] != "disk":  # one replaced the arrays of the other's entry: that is written again
        last = started().communicate()[0].split()
    assert last == ["disk", total, "False"]


_MEMORY = """
import sys, numpy as np, uopc.onnx
from uopc.ir.core.data import arrays, files
files._TICK_NS = 0
def memory(kind):
    rows = open("/proc/self/status")
    return int(next(row.split()[1] for row in rows if row.startswith(kind))) * 1024
x = np.ones((64, 2000), "f4")
f = uopc.onnx.load(sys.argv[1], threads=1)
f(x)
print(memory("VmHWM"), memory("RssAnon"))
"""


@pytest.mark.slow
def test_weights_are_in_memory_once(folder: Path, tmp_path: Path) -> None:
    """Of a model of 128 MB: the peak has them once in a first process too, and a second one has
    none that is its own."""

    def saved(count: int) -> Path:
        w = [numpy_helper.from_array(RNG.random((2000, 2000), "f4"), f"w{i}") for i in range(count)]
        value = helper.make_tensor_value_info
        nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"])
                 for i in range(count)]  # fmt: skip
        graph = helper.make_graph(
            nodes, "g", [value("v0", TensorProto.FLOAT, [64, 2000])],
            [value(f"v{count}", TensorProto.FLOAT, [64, 2000])], w,
        )  # fmt: skip
        onnx.save(helper.make_model(graph, ir_version=9), tmp_path / f"{count}.onnx")
        return tmp_path / f"{count}.onnx"

    found = []
    for file in (saved(1), saved(9)):
        for _ in range(2):
            env = dict(os.environ, UOPC_CACHE_DIR=str(folder.parent), UOPC_CACHE_MIB="1024")
            command = [sys.executable, "-c", _MEMORY, str(file)]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            found.append([int(n) for n in done.stdout.split()])
    more = 8 * 4 * 2000 * 2000
    first, second = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(found[:2], found[2:])]
    assert first[0] < 1.3 * more and second[0] < 1.1 * more
    assert first[1] < 0.2 * more and second[1] < 0.1 * more


@pytest.mark.parametrize("on", [True, False])
def test_the_cycle_collector_rests_while_a_model_is_loaded(
    file: Path, on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is as it was afterwards, also where the model is refused."""
    seen: list[bool] = []
    real = reading.graph_of

    def graph_of(*given: Any) -> Any:
        seen.append(gc.isenabled())
        return real(*given)

    monkeypatch.setattr(reading, "graph_of", graph_of)
    if not on:
        gc.disable()
    try:
        check(uopc.onnx.load(str(file)), wanted(model()))
        assert seen == [False] and gc.isenabled() == on
        with pytest.raises(UserError):
            uopc.onnx.load(str(file), dims={"nobody": 3})
        assert gc.isenabled() == on
    finally:
        gc.enable()
