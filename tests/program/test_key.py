"""Facts of an installation are kept by the stamps of its files and its processor, never stale."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

import uopc
from uopc import cache
from uopc.backends import detect
from uopc.cache import disk
from uopc.ir.core.data import files
from uopc.program.cached import key


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two files in place of uopc's, and a cache."""
    folder = tmp_path / "package"
    (folder / "inner" / "__pycache__").mkdir(parents=True)
    (folder / "one.py").write_text("one", "utf-8")
    (folder / "inner" / "two.py").write_text("two", "utf-8")
    monkeypatch.setattr(key, "PACKAGE", folder)
    monkeypatch.setattr(files, "_TICK_NS", 0)
    monkeypatch.setattr(detect, "_known", [])
    cache.clear()
    with uopc.options(cache_dir=str(tmp_path / "cache")):
        yield folder
    cache.clear()


def found(monkeypatch: pytest.MonkeyPatch) -> tuple[key.Installation, bool]:
    """That of a new process, and whether it found it on disk."""
    made = []
    real = key.source_digest.__wrapped__

    def digest() -> str:
        made.append(1)
        return str(real())

    with monkeypatch.context() as patched:
        patched.setattr(key, "source_digest", digest)
        detect._known.clear()
        return key.installation.__wrapped__(), not made


def test_a_second_process_reads_no_source(package: Path, monkeypatch: Any) -> None:
    first, again = found(monkeypatch), found(monkeypatch)
    assert first == (again[0], False) and again[1]
    assert again[0].source == key.source_digest.__wrapped__()
    assert again[0].processor == llvm.get_host_cpu_name()
    assert again[0].features == llvm.get_host_cpu_features().flatten()
    assert detect.processor() == (again[0].processor, again[0].features)


def rewritten(file: Path) -> None:
    """Of the same size, with the time that it had."""
    before = os.stat(file)
    file.write_text("xyz", "utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "content": lambda p: rewritten(p / "inner" / "two.py"),
    "a new file": lambda p: (p / "inner" / "three.py").write_text("", "utf-8"),
    "gone": lambda p: (p / "one.py").unlink(),
    "another name": lambda p: (p / "one.py").rename(p / "other.py"),
    "replaced": lambda p: [(p / "n").write_text("uno", "utf-8"), (p / "n").rename(p / "one.py")],
}


@pytest.mark.parametrize("how", CHANGES)
def test_any_change_of_a_source_is_seen(package: Path, how: str, monkeypatch: Any) -> None:
    first, _ = found(monkeypatch)
    CHANGES[how](package)
    changed, on_disk = found(monkeypatch)
    assert not on_disk and changed.source != first.source
    assert changed.source == key.source_digest.__wrapped__()
    assert found(monkeypatch) == (changed, True)


def test_what_no_source_depends_on(package: Path, monkeypatch: Any) -> None:
    first, _ = found(monkeypatch)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "one.pyc").write_bytes(b"code")
    (package / "notes.txt").write_text("", "utf-8")
    assert found(monkeypatch) == (first, True)


def test_another_processor(package: Path, monkeypatch: Any) -> None:
    found(monkeypatch)
    stamp = detect.processor_stamp()
    monkeypatch.setattr(detect, "processor_stamp", lambda: f"{stamp} another")
    assert not found(monkeypatch)[1] and found(monkeypatch)[1]
    monkeypatch.setattr(detect, "processor_stamp", lambda: None)
    assert not found(monkeypatch)[1] and not found(monkeypatch)[1]


def test_sources_that_were_just_written(package: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(files, "_TICK_NS", 2 * 10**9)
    assert not found(monkeypatch)[1] and not found(monkeypatch)[1]


def test_a_damaged_entry(package: Path, tmp_path: Path, monkeypatch: Any) -> None:
    first, _ = found(monkeypatch)
    (entry,) = (tmp_path / "cache" / disk.FOLDER).glob("*.entry")
    data = bytearray(entry.read_bytes())
    data[-5] ^= 1
    entry.write_bytes(data)
    assert found(monkeypatch) == (first, False) and "damaged" in cache.problems()[0]
    assert found(monkeypatch) == (first, True)


def test_without_a_cache(package: Path, monkeypatch: Any) -> None:
    with uopc.options(cache_dir=""):
        assert not found(monkeypatch)[1] and not found(monkeypatch)[1]


INFO = """processor\t: 0
vendor_id\t: One
model\t\t: 7
model name\t: A processor
cpu MHz\t\t: 1234.5
flags\t\t: fpu avx2

processor\t: 1
vendor_id\t: Two
"""


def test_what_the_system_says_of_a_processor(tmp_path: Path, monkeypatch: Any) -> None:
    """Of the first one; how fast it runs at the moment does not count."""
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(detect, "_PROCESSORS", str(file))
    assert detect.processor_stamp() is None
    file.write_text(INFO, "utf-8")
    stamp = detect.processor_stamp()
    assert stamp is not None and "One" in stamp and "Two" not in stamp and "fpu avx2" in stamp
    file.write_text(INFO.replace("1234.5", "2000"), "utf-8")
    assert detect.processor_stamp() == stamp
    file.write_text(INFO.replace("avx2", "avx512f"), "utf-8")
    assert detect.processor_stamp() != stamp
    file.write_text("Hardware\t: of another kind\n", "utf-8")
    assert detect.processor_stamp() is None
