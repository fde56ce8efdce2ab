"""Programs on disk for other processes: found again, never trusted, never fatal."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import uopc
from tests.cache.conftest import compiled, graph
from uopc import cache, config
from uopc.backends import detect
from uopc.cache import disk
from uopc.cache.disk import DiskCache, Unusable
from uopc.errors import UserError
from uopc.ir.core.serialize import fingerprint
from uopc.program.cached import key, record
from uopc.program.cpu import ObjectCode
from uopc.program.request import prepare

pytestmark = pytest.mark.usefixtures("folder")


# ---------------------------------------------------------------- hits
def test_found_again(stored):
    f = compiled()
    assert f.stats["cache"] == "disk" and f.stats["scheduled"] == f.stats["compiled"] == 0
    assert f.stats["render"] == f.stats["llvm"] == 0.0 and f.stats["passes"] == {}
    assert cache.counters()["disk_hits"] == 1 and cache.counters()["scheduled"] == 0
    with uopc.options(cache_dir=""):
        fresh = uopc.compile(graph(), verify=True)
    assert [k.source for k in f.kernels] == [k.source for k in fresh.kernels]
    assert [k.uops for k in f.kernels] == [k.uops for k in fresh.kernels]


def test_private(folder, stored):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(stored.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert b"pickle" not in stored.read_bytes()


PROCESS = """
import sys, numpy as np, uopc
outs = []
for i in range(100):
    p = uopc.param(f"p{i}", (i % 7 + 3, i + 5))
    outs.append((p * float(i % 5) + 1.5).sum(axis=1) if i % 2 else (p.exp() + p).max(axis=0))
import time
begin = time.process_time()
f = uopc.compile(outs)
seconds = time.process_time() - begin
results = f(*[np.full((i % 7 + 3, i + 5), 0.5, np.float32) for i in range(100)])
print(len(f.kernels), repr(f.stats["cache"]), seconds, sum(float(r.sum()) for r in results))
"""


def run_process(folder):
    env = dict(os.environ, UOPC_CACHE_DIR=str(folder))
    done = subprocess.run(
        [sys.executable, "-c", PROCESS], env=env, capture_output=True, text=True, check=True
    )
    kernels, where, seconds, total = done.stdout.split()
    return int(kernels), where, float(seconds), float(total)


@pytest.mark.slow
def test_a_second_process_starts_quickly(folder):
    """100 kernels: much faster than the first time, and the same results."""
    kernels, where, first, total = run_process(folder)
    assert where == "''"
    again, where, second, same = run_process(folder)
    assert where == "'disk'" and again == kernels and same == total
    print(f"\n{kernels} kernels: {first:.3f} s, from the disk {second:.3f} s of CPU time")
    assert second < first / 4


def test_what_a_program_may_have(folder):
    """Symbolic sizes, arguments written in place, numbers, own constants, every container."""
    n = uopc.variable("n", 1, 9)
    state = uopc.param("state", (4,))
    v = uopc.param("v", (n,))
    big = uopc.stack(*[uopc.constant(float(i)) for i in range(50)])
    graphs = {
        "sum": v.sum() * n.cast(uopc.dtypes.float32),
        "part": v[: n // 2 + 1] * 1.5,
        "new": state.assign(state + 2.5),
        "twice": state * 3.5,
        "big": big[::-1] + uopc.param("c", (50,)),
    }

    def run():
        cache.clear()
        f = uopc.compile(graphs, inputs=["state", "v", "c"])
        memory = np.arange(4, dtype=np.float32)
        values = np.arange(7, dtype=np.float32)
        got = f(memory, values, np.ones(50, np.float32))
        return f.stats["cache"], {k: a.copy() for k, a in got.items()}, memory.copy()

    first, again = run(), run()
    assert first[0] == "" and again[0] == "disk"
    np.testing.assert_array_equal(first[2], again[2])
    for k in graphs:
        np.testing.assert_array_equal(first[1][k], again[1][k])
    np.testing.assert_array_equal(again[1]["big"], 50.0 - np.arange(50))


def test_a_kernel_written_by_hand(folder):
    text = """\
%1 = param y slot=0 : f32[8]
%2 = range 8 axis=0 kind=loop : index
%3 = param x slot=1 : f32[8]
%4 = mul %3[%2], 3.0:f32 : f32
%5 = store %1[%2], %4
%6 = end %5, %2
sink %6 name=triple"""
    for where in ("", "disk"):
        cache.clear()
        f = uopc.compile(uopc.parse(text))
        out, x = np.zeros(8, np.float32), np.arange(8, dtype=np.float32)
        f(out, x)
        assert f.stats["cache"] == where and np.array_equal(out, 3 * x)


# ---------------------------------------------------------------- the key
def test_everything_that_changes_code_is_in_the_key(monkeypatch, stored):
    """Another processor, another version, other options: each is a miss, not a wrong hit."""
    with uopc.options(target_cpu="x86-64-v3"):
        assert compiled().stats["cache"] == ""
    parts = dict(key.process_components())
    for part in parts:
        changed = tuple((parts | {part: "another"}).items())
        monkeypatch.setattr(key, "process_components", lambda changed=changed: changed)
        assert compiled().stats["cache"] == ""
    monkeypatch.undo()
    assert compiled().stats["cache"] == "disk"


def test_the_source_is_in_the_key():
    """The digest is of the content of every file of the package."""
    assert key.source_digest() == dict(key.process_components())["uopc"]
    code = "from uopc.program.cached import key; print(key.source_digest())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == key.source_digest()


def test_an_entry_of_another_key_is_refused(stored, folder):
    """Even under the right name and with the right digest."""
    store = DiskCache(folder, 1 << 20)
    request_key = the_key()
    content = store.read(request_key.digest)
    other = record.Key(tuple((dict(request_key.components) | {"threads": "77"}).items()))
    with pytest.raises(Unusable, match="threads differ"):
        record.decode(content, other, ObjectCode)


def the_key():
    request = prepare(graph(), None, True, None, None, config.current())
    parts = key.request_components(request, detect.host(), fingerprint(request.graph))
    return key.with_process(parts)


def test_rules_of_known_content_are_stored(folder):
    """Equal patterns, code and captured values make one entry; any other value makes its own."""
    x = uopc.UPat.var("x")

    def compiled_with(factor):
        rules = uopc.PatternMatcher([(x * 2.0, lambda x: x * factor)])
        return uopc.compile(uopc.param("p", (4,)) * 2.0, rules=rules)

    for factor, where in ((3.0, ""), (4.0, ""), (3.0, "disk"), (4.0, "disk"), (5.0, "")):
        cache.clear()
        f = compiled_with(factor)
        assert f.stats["cache"] == where
        assert f(np.ones(4, "f4"))[0] == factor
        assert compiled_with(factor).stats["cache"] == "memory"
    assert len(list(folder.glob("*/*.entry"))) == 3


def test_rules_that_read_what_may_change_are_not_stored(folder):
    x, seen = uopc.UPat.var("x"), []
    rules = uopc.PatternMatcher([(x * 2.0, lambda x: seen.append(x))])
    for count in (1, 2):
        assert uopc.compile(uopc.param("p", (4,)) * 2.0, rules=rules).stats["cache"] == ""
        assert len(seen) >= count
    assert not list(folder.glob("*/*.entry"))


# ---------------------------------------------------------------- damage
def is_rejected(reason=""):
    """The program is compiled again, and the entry is replaced by a good one."""
    f = compiled()
    assert f.stats["cache"] == "" and cache.counters()["disk_rejected"] == 1
    assert any(reason in p for p in cache.problems()), cache.problems()
    assert compiled().stats["cache"] == "disk"


def test_every_region_of_the_file_is_checked(stored):
    """A flipped bit anywhere: 64 places spread over the file, and all of the head."""
    whole = stored.read_bytes()
    places = sorted({*range(48), *range(48, len(whole), len(whole) // 64)})
    for at in places:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(Unusable, match="damaged"):
            disk.checked(bytes(damaged), "it")
    for at in (3, 20, 60, len(whole) // 2, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        stored.write_bytes(bytes(damaged))
        is_rejected("damaged")


def test_truncated(stored):
    whole = stored.read_bytes()
    for length in (0, 5, len(disk.MAGIC), 43, 50, len(whole) // 2, len(whole) - 1):
        with pytest.raises(Unusable, match="damaged"):
            disk.checked(whole[:length], "it")
    for length in (0, len(whole) // 2):
        stored.write_bytes(whole[:length])
        is_rejected("damaged")
    stored.write_bytes(whole + b"more")
    is_rejected("damaged")


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.few(16)
def test_a_record_that_makes_no_sense(seed, stored, folder):
    """With a right digest, as a defect of ours would write it: refused, not run, not fatal."""
    rng = np.random.default_rng(seed)
    whole = the_key()
    content = bytearray(DiskCache(folder, 1 << 20).read(whole.digest))
    end = 8 + int.from_bytes(content[:8], "little")
    at = int(rng.integers(0, end))
    content[at : at + 1] = [b"", b"0", b"[", b"null", b"\xff"][seed % 5]
    try:
        made = record.decode(bytes(content), whole, ObjectCode)
    except Unusable as problem:
        assert "record" in str(problem) or "another key" in str(problem)
    else:  # a value only: against that there is the digest of the file
        assert isinstance(made, ObjectCode)


def test_code_that_is_none(stored, folder):
    """Machine code that no loader takes: an entry made with the right digests."""
    whole = the_key()
    store = DiskCache(folder, 1 << 20)
    made = record.decode(store.read(whole.digest), whole, ObjectCode)
    made.kernels = tuple([replace(k, code=k.code[:100]) for k in made.kernels])
    keys = [k.key for k in made.kernels]
    store.write(whole.digest, record.encode(whole, zip(made.names, made.sources(), keys), made))
    is_rejected()


# ---------------------------------------------------------------- owners
def as_another_user(monkeypatch, when):
    """Files that `when(status)` picks belong to somebody else."""
    real = os.fstat

    def fstat(file):
        found = real(file)
        if not when(found):
            return found
        return os.stat_result((*found[:4], 12345, *found[5:10]))

    monkeypatch.setattr(disk.os, "fstat", fstat)


def test_a_foreign_entry(monkeypatch, stored):
    as_another_user(monkeypatch, lambda s: stat.S_ISREG(s.st_mode))
    f = compiled()
    assert f.stats["cache"] == "" and "belongs to user 12345" in cache.problems()[0]


def test_a_foreign_folder(monkeypatch, stored):
    as_another_user(monkeypatch, lambda s: stat.S_ISDIR(s.st_mode))
    f = compiled()
    assert f.stats["cache"] == "" and "belongs to user 12345" in cache.problems()[0]
    assert cache.counters()["disk_failed"] == 1  # nor is anything written there


@pytest.mark.parametrize("mode", [0o622, 0o666, 0o620])
def test_an_entry_that_others_may_write(stored, mode):
    stored.chmod(mode)
    is_rejected("open to others")


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o770])
def test_a_folder_that_is_open(stored, mode):
    stored.parent.chmod(mode)
    assert compiled().stats["cache"] == "" and "open to others" in cache.problems()[0]
    stored.parent.chmod(0o700)
    assert compiled().stats["cache"] == "disk"


def test_a_root_that_others_may_write(stored, folder):
    folder.chmod(0o777)
    assert compiled().stats["cache"] == "" and "open to others" in cache.problems()[0]
    folder.chmod(0o1777)  # sticky, as /tmp is: nobody else can take our folder away
    assert compiled().stats["cache"] == "disk"


def test_links_are_not_followed(stored, folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    stored.rename(elsewhere)
    stored.symlink_to(elsewhere)
    assert compiled().stats["cache"] == "" and cache.counters()["disk_rejected"] == 1
    real = folder.rename(tmp_path / "real")
    folder.symlink_to(real)
    assert compiled().stats["cache"] == "" and cache.counters()["disk_failed"] == 1


def test_what_is_not_a_file(stored):
    stored.unlink()
    os.mkfifo(stored)
    f = compiled()  # and does not wait for a writer
    assert f.stats["cache"] == "" and "not a file" in cache.problems()[0]
    stored.unlink()
    stored.mkdir()
    compiled()
    assert cache.counters()["disk_rejected"] == 1


def test_a_file_that_no_process_wrote(stored):
    with stored.open("wb") as file:
        file.truncate(1 << 40)  # it has no blocks, and reading them would take hours
    assert compiled().stats["cache"] == "" and "larger than" in cache.problems()[0]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda p: os.symlink("/nowhere", p)])
def test_an_index_that_is_not_a_file(stored, make):
    """It is opened to read and to append: neither waits for the other end of a pipe."""
    index = stored.parent / "kernels.index"
    index.unlink()
    make(index)
    x = uopc.param("x", (41,))
    assert uopc.compile(x * 3)(np.ones(41, "f4"))[0] == 3
    assert cache.counters()["disk_failed"] == 1 and "kernels.index" in cache.problems()[-1]
    assert compiled().stats["cache"] == "disk"


# ---------------------------------------------------------------- a disk that does not want to
def failing(monkeypatch, name, error):
    def fail(*args, **kwargs):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(disk.os, name, fail)


def test_a_full_disk(monkeypatch, folder):
    class Full:
        def __init__(self, file, mode):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            os.close(self.file)

        def write(self, data):
            os.write(self.file, data[:20])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk.os, "fdopen", Full)
    assert compiled().stats["cache"] == ""
    assert os.strerror(errno.ENOSPC) in cache.problems()[0] and cache.counters()["disk_failed"] == 1
    assert not list((folder / disk.FOLDER).iterdir())  # nothing half-written stays


@pytest.mark.parametrize("name", ["open", "rename", "scandir"])
def test_a_disk_that_is_read_only(monkeypatch, folder, name):
    failing(monkeypatch, name, errno.EROFS)
    assert compiled().stats["cache"] == "" and cache.counters()["disk_failed"] == 1
    assert os.strerror(errno.EROFS) in cache.problems()[0]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("", "utf-8")
    with uopc.options(cache_dir=str(tmp_path / "file" / "below")):
        assert compiled().stats["cache"] == "" and cache.counters()["disk_failed"] == 1


# Compiles in each environment, and asks `uopc cache`, as a user who owns nothing. All imports and
# the digest of the sources come before the user changes: that one may not see the checkout.
AS_NOBODY = """
import contextlib, io, json, os, sys
import numpy as np
import uopc
from uopc import cache
from uopc.cli import load
from uopc.cli import main as cli
from uopc.program.cached import key
x = uopc.param("x", (3,))
def answers(graph):
    cache.clear()
    return uopc.compile(graph)(np.zeros(3, "f4")).tolist()
def asked(action):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        return cli.main(["cache", action]), said.getvalue()
# All that is imported late is imported now: another user may be unable to read the checkout.
for folder in ("", sys.argv[2]):
    with uopc.options(cache_dir=folder):
        answers(x * 2.0)
        asked("ls")
        asked("clear")
key.process_components()
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for name, environment in json.loads(sys.argv[1]).items():
    for variable in ("HOME", "XDG_CACHE_HOME", "UOPC_CACHE_DIR"):
        os.environ.pop(variable, None)
    os.environ |= environment
    result = answers(x + 1.0)
    said = cache.counters(), cache.problems()
    print(json.dumps([name, result, *said, asked("ls"), asked("clear")]))
"""


@pytest.fixture
def open_folder():
    """A folder that every user may enter: those of pytest are of one user."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


def test_folders_of_others(open_folder, tmp_path):
    """Whatever a home is like, the program is compiled, and a reason says why it is not stored."""
    folders = {"closed": 0o000, "unsearchable": 0o600, "read-only": 0o555}
    environments = {"no home": {}, "no folder": {"HOME": str(open_folder / "file")}}
    (open_folder / "file").touch()
    for name, mode in folders.items():
        (open_folder / name / "cache").mkdir(parents=True)
        (open_folder / name).chmod(mode)
        environments[f"{name} home"] = {"HOME": str(open_folder / name)}
        environments[f"{name} folder"] = {"UOPC_CACHE_DIR": str(open_folder / name / "cache")}
    environments["read-only caches"] = {"XDG_CACHE_HOME": str(open_folder / "read-only")}
    if os.geteuid():  # their folder is their own
        (open_folder / "read-only" / "cache").chmod(0o555)
        del environments["no home"]
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, json.dumps(environments), str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for (name, *parts), wanted in zip(
        map(json.loads, done.stdout.splitlines()), environments, strict=True
    ):
        result, counters, problems, listed, cleared = parts
        assert name == wanted and result == [1, 1, 1]
        assert counters["disk_failed"] == 1 and problems, name
        for code, said in (listed, cleared):
            assert code == 0 or "the cache on disk is not used: " in said, (name, said)


def test_no_home_is_known(monkeypatch):
    """A user whom the system does not list, as in `docker run --user 1000`, and no HOME."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    monkeypatch.delenv("UOPC_CACHE_DIR")
    with uopc.options(cache_dir=config.AUTO):
        assert compiled().stats["cache"] == "" and cache.counters()["disk_failed"] == 1
        assert "~/.cache/uopc is not an absolute path: set HOME" in cache.problems()[0]
    with uopc.options(cache_dir="~/a"), pytest.raises(UserError, match="no home folder is known"):
        compiled()


@pytest.mark.parametrize("path", ["a\0b", "~\0", "/\ud800", 3])
def test_what_is_no_path(path):
    for name in ("cache_dir", "viz"):
        with pytest.raises(UserError, match=rf"option {name} \(\w+\) must be a path"):
            uopc.options(**{name: path}).__enter__()


def test_a_path_that_is_too_long():
    with uopc.options(cache_dir="/" + "a" * 5000):
        assert compiled().stats["cache"] == "" and cache.counters()["disk_failed"] == 1
    assert os.strerror(errno.ENAMETOOLONG) in cache.problems()[0]
    too_long = os.strerror(errno.ENAMETOOLONG)
    with uopc.options(viz="/" + "a" * 5000), pytest.raises(UserError, match=too_long):
        compiled()


def test_no_descriptor_is_left_open(stored):
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(5):
        compiled()
        stored.write_bytes(b"x")
        compiled()
    after = len(os.listdir("/proc/self/fd")) if before else 0
    assert after <= before


# ---------------------------------------------------------------- several processes
def _write_many(folder, name, number):
    store = DiskCache(folder, 1 << 24)
    content = bytes([number]) * 200_000
    for _ in range(30):
        store.write(name, content)


@pytest.mark.slow
def test_concurrent_writers_and_a_reader(folder):
    """Whoever reads sees one writer's entry, whole."""
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_many, args=(folder, "same", i)) for i in (1, 2, 3)]
    for p in writers:
        p.start()
    store, seen = DiskCache(folder, 1 << 24), set()
    while any(p.is_alive() for p in writers):
        content = store.read("same")
        if content is not None:
            assert len(content) == 200_000 and len(set(content)) == 1
            seen.add(content[0])
    for p in writers:
        p.join()
        assert p.exitcode == 0
    assert seen and not list((folder / disk.FOLDER).glob("*.tmp"))


# ---------------------------------------------------------------- size
def test_the_least_used_entries_go(folder):
    store = DiskCache(folder, 10_000)
    for i in range(6):
        store.write(f"e{i}", bytes(2_000))
        os.utime(folder / disk.FOLDER / f"e{i}.entry", (1000 + i, 1000 + i))
    assert store.read("e2") is not None  # used now
    store.write("e6", bytes(2_000))
    names = [e.name for e in store.entries()]
    assert set(names[:2]) == {"e2", "e6"} and "e1" not in names and len(names) == 4
    assert sum(e.nbytes for e in store.entries()) <= 10_000
    with pytest.raises(Unusable, match="more than the cache may hold"):
        store.write("huge", bytes(20_000))


def test_what_dead_processes_left_goes(folder):
    store = DiskCache(folder, 10_000)
    store.write("a", b"content")
    old, young = [folder / disk.FOLDER / f"{n}.tmp" for n in ("old", "young")]
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    store.write("b", b"content")
    assert not old.exists() and young.exists()
    assert store.clear()[0] == 3 and not store.entries()


# ---------------------------------------------------------------- settings
def test_where_it_is(monkeypatch, tmp_path):
    def folder_for(**environment):
        return config.cache_folder(config.from_environment(environment))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder_for() == tmp_path / "uopc"
    assert folder_for(UOPC_CACHE_DIR="") is None and folder_for(UOPC_CACHE_DIR="0") is None
    assert folder_for(UOPC_CACHE_DIR="/a/b") == Path("/a/b")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder_for() == tmp_path / ".cache" / "uopc"


def test_off(folder):
    with uopc.options(cache_dir="0"):
        compiled()
    assert not folder.exists() and cache.counters()["disk_misses"] == 0


FIRST = """
import sys, uopc
from uopc.program.cached import key
uopc.compile(uopc.param("x", (3, 4)).exp().sum(axis=1))
print(key.source_digest.cache_info().misses, *sys.modules)
"""


def test_what_a_first_compile_needs_no_cache_for(folder):
    """Neither the digest of all sources, nor modules of what it does not do."""
    for where, digests in (("", 0), (str(folder), 1)):
        env = dict(os.environ, UOPC_CACHE_DIR=where)
        run = subprocess.run(
            [sys.executable, "-c", FIRST], env=env, capture_output=True, text=True, check=True
        )
        made, *names = run.stdout.split()
        assert int(made) == digests
        assert not {"html", "secrets"} & set(names)


def test_arrays_longer_than_one_write(folder):
    """Every byte of each part is in the file, in order, whatever the part's length."""
    store = DiskCache(folder, 1 << 24)
    lengths = [0, 1, disk._PIECE - 1, disk._PIECE, disk._PIECE + 1, 2 * disk._PIECE, 7]
    numbers = np.random.default_rng(0)
    parts = [numbers.integers(0, 256, n, np.uint8) for n in lengths]
    identity = store.write_arrays("x" * 32, sum(lengths), (p.data for p in parts))
    assert identity.size == sum(lengths)
    assert Path(identity.path).read_bytes() == b"".join([p.tobytes() for p in parts])
