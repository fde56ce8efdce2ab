"""A folder of private files, checked before use; `config.py` has the default of its size limit.

Only this user can read and write the files. A file begins with a fixed line and the digest of its
content. It appears under its name in one step (a rename), so no reader sees half of it. The store
refuses a folder or file that belongs to someone else, that others may change, or that is a link.
Files of arrays are mapped, not read. An entry that refers to a file of arrays holds the file's
identity, so the entry is not used if the file was written later. Nothing here raises OSError:
Unusable says why the cache, or an entry of it, cannot be used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from uopc import config
from uopc.cache import statistics
from uopc.errors import InvalidIR, UserError
from uopc.ir.core.data import files
from uopc.ir.records import dataclass

T = TypeVar("T")

MAGIC = b"uopc cache\n"
# The subfolder of the entries. `config.cache_folder` gives the cache's folder.
FOLDER = "programs"
_SUFFIX, _ARRAYS = ".entry", ".arrays"
_PIECE = 1 << 20  # bytes of one write: longer writes are slow, because Linux looks for large pages
# A line is a kernel's key and the name of the entry with its code. A line may be wrong: whoever
# follows it checks the entry.
_INDEX = "kernels.index"
_LINE = re.compile(rb"^([0-9a-f]{32}) ([0-9a-f]{32})$", re.MULTILINE)
_LINE_BYTES = 66
_MOST_INDEX = 4 << 20  # bytes; beyond them, the older half of the lines is dropped
_UNFINISHED = ".tmp"
# A link is an error, and opening a pipe does not wait.
_NO_WAITING = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC if os.name == "posix" else 0
# Seconds after which an unfinished file counts as left behind by a process that died.
_ABANDONED = 3600.0
# True where files have owners and a file can be opened relative to an open folder.
_CHECKABLE = hasattr(os, "geteuid") and os.open in os.supports_dir_fd


class Unusable(Exception):
    """The cache, or an entry of it, cannot be used, for the given reason."""


class Missing(Unusable):
    """The folder, or the entry in it, does not exist."""


@dataclass(frozen=True)
class CachedFile:
    """A file of the cache: its name, size, and time of last use."""

    name: str
    nbytes: int
    used: float


@contextlib.contextmanager
def _reasons(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = Missing if isinstance(error, FileNotFoundError) else Unusable
        raise kind(f"{what}: {error.strerror or error}") from error


def _check_owner(
    found: os.stat_result, what: str, forbidden: int, others: tuple[int, ...] = ()
) -> None:
    """Unusable unless this user (or one in `others`) owns it, without forbidden mode bits."""
    if found.st_uid not in (os.geteuid(), *others):
        raise Unusable(f"{what} belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & forbidden:
        raise Unusable(f"{what} is open to others (mode {stat.S_IMODE(found.st_mode):o})")


@contextlib.contextmanager
def opened(root: Path, name: str, make: bool) -> Iterator[int]:
    """A descriptor of a folder of private files in the cache's folder; `make` creates the folder.
    Unusable if it, or the cache's folder, is open to others or belongs to someone else."""
    if not _CHECKABLE:
        raise Unusable("this system cannot say who owns a folder")
    if not root.is_absolute():
        raise Unusable(f"{root} is not an absolute path: set HOME or UOPC_CACHE_DIR")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = root / name
    with _reasons(str(folder)):
        if make:
            root.parent.mkdir(parents=True, exist_ok=True)
            for made in (root, folder):
                with contextlib.suppress(FileExistsError):
                    made.mkdir(mode=0o700)
        outer = os.open(root, flags)
        try:
            # No other user may replace our folder: the sticky bit prevents that, too.
            found = os.fstat(outer)
            sticky = found.st_mode & stat.S_ISVTX
            _check_owner(found, str(root), 0 if sticky else 0o022, others=(0,))
            inner = os.open(name, flags, dir_fd=outer)
        finally:
            os.close(outer)
    try:
        with _reasons(str(folder)):
            found = os.fstat(inner)
        _check_owner(found, str(folder), 0o077)
        yield inner
    finally:
        os.close(inner)


def check_file(found: os.stat_result, name: str) -> None:
    """Unusable unless it is a file of this user that nobody else can change."""
    if not stat.S_ISREG(found.st_mode):
        raise Unusable(f"{name} is not a file")
    _check_owner(found, name, 0o022)


class DiskCache:
    """The entries in a folder, up to `limit` bytes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.root, self.limit = folder, limit
        self.folder = folder / FOLDER
        self._rejected: set[str] = set()

    @staticmethod
    def of(options: config.Options) -> DiskCache | None:
        """The cache of these options; None if it is turned off."""
        folder = config.cache_folder(options)
        return None if folder is None else DiskCache(folder, options.cache_mib << 20)

    def _opened(self, make: bool) -> contextlib.AbstractContextManager[int]:
        """A descriptor of the folder with the entries, checked; `make` creates the folder."""
        return opened(self.root, FOLDER, make)

    def load(self, name: str, decode: Callable[[bytes], T], counted: bool = True) -> T | None:
        """An entry, decoded; None if no entry can be used, with the reason in the statistics.

        `decode` raises Unusable or InvalidIR for content of another form. `counted`: the statistics
        count a hit or a miss.
        """
        try:
            content = self.read(name)
            found = None if content is None else decode(content)
        except (Unusable, InvalidIR) as problem:
            statistics.note("disk_rejected", problem)
            self._rejected.add(name)
            return None
        if counted:
            statistics.count(disk_misses=content is None, disk_hits=content is not None)
        return found

    def save(self, name: str, content: bytes, kernels: Iterable[str] = ()) -> None:
        """Store an entry; if that fails, note the reason in the statistics. `kernels`: the keys of
        kernels in the entry."""
        try:
            self.write(name, content)
            self._index(name, kernels)
            statistics.count(disk_stored=1)
        except Unusable as problem:
            statistics.note("disk_failed", problem)

    # ------------------------------------------------------------ the index of kernels
    def where(self, kernels: Iterable[str]) -> dict[str, str]:
        """For each key of a kernel in the index, the name of the entry with its code. Entries that
        could not be used are left out."""
        try:
            with self._opened(make=False) as folder:
                known = _read_index(folder)
        except Unusable:  # a miss, whose reason `load` has noted
            return {}
        places = {key: known[key] for key in kernels if key in known}
        return {key: name for key, name in places.items() if name not in self._rejected}

    def _index(self, name: str, kernels: Iterable[str]) -> None:
        """Note in the index that an entry has the code of these kernels."""
        with self._opened(make=True) as folder, _reasons(_INDEX):
            known = _read_index(folder)
            lines = {key: name for key in kernels if known.get(key) != name}
            if not lines:
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NO_WAITING
            if _LINE_BYTES * (len(known) + len(lines)) > _MOST_INDEX:
                lines = dict(list(known.items())[len(known) // 2 :]) | lines
                flags |= os.O_TRUNC
            file = os.open(_INDEX, flags, 0o600, dir_fd=folder)
            with os.fdopen(file, "wb") as opened:  # the last line may be cut off
                check_file(os.fstat(file), _INDEX)
                opened.write("".join([f"\n{key} {entry}" for key, entry in lines.items()]).encode())

    def has(self, name: str) -> bool:
        """True if there is an entry of this name, with any content."""
        try:
            with self._opened(make=False) as folder, _reasons(name):
                os.stat(name + _SUFFIX, dir_fd=folder, follow_symlinks=False)
        except Unusable:
            return False
        return True

    def read(self, name: str, touch: bool = True) -> bytes | None:
        """The content of an entry, or None; Unusable if damaged. `touch`: this counts as a use."""
        try:
            with self._opened(make=False) as folder, _reasons(name):
                file = _open(name + _SUFFIX, folder)
                with os.fdopen(file, "rb") as opened:
                    found = os.fstat(file)
                    check_file(found, name)
                    if found.st_size > self.limit:  # no process wrote so much
                        raise Unusable(f"{name}: larger than the cache may be")
                    content = checked(opened.read(), name)
                if touch:
                    with contextlib.suppress(OSError):  # on a read-only disk
                        os.utime(name + _SUFFIX, dir_fd=folder)
                return content
        except Missing:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Store an entry in one step, and drop the least recently used entries beyond the limit."""
        data = sealed(content)
        if len(data) > self.limit:
            raise Unusable(f"{name}: {len(data)} bytes are more than the cache may hold")
        with self._opened(make=True) as folder, _reasons(name):
            with _appearing(folder, name + _SUFFIX) as made:
                made.write(data)
            self._shrink(folder)

    # ------------------------------------------------------------ files of arrays
    def write_arrays(self, name: str, nbytes: int, parts: Iterable[memoryview]) -> files.Identity:
        """Store the parts of a file of arrays one after another, `nbytes` in all."""
        if nbytes > self.limit:
            raise Unusable(f"{name}: {nbytes} bytes of arrays are more than the cache may hold")
        file = name + _ARRAYS
        with self._opened(make=True) as folder, _reasons(name):
            with _appearing(folder, file) as made:
                for part in parts:
                    for begin in range(0, len(part), _PIECE):
                        made.write(part[begin : begin + _PIECE])
                made.flush()
                found = os.fstat(made.fileno())
            self._shrink(folder)
        return files.Identity.of(os.path.realpath(self.folder / file), found)

    def arrays(self, name: str) -> files.Mapping | None:
        """Map a file of arrays; None if there is none. This counts as a use, noted as the time of
        last access, because the time of last change is part of the file's identity."""
        file = name + _ARRAYS
        try:
            with self._opened(make=False) as folder, _reasons(file):
                handle = _open(file, folder)
                try:
                    found = os.fstat(handle)
                    check_file(found, file)
                    mapped = files.mapping(handle, str(self.folder / file))
                finally:
                    os.close(handle)
                with contextlib.suppress(OSError):  # on a read-only disk
                    times = time.time_ns(), found.st_mtime_ns
                    os.utime(file, ns=times, dir_fd=folder)
                return mapped
        except Missing:
            return None
        except UserError as error:  # it is empty, or memory is short
            raise Unusable(str(error)) from None

    def _shrink(self, folder: int) -> None:
        """Drop the least recently used entries beyond the limit, and dead processes' leftovers."""
        total, now = 0, time.time()
        for entry in sorted(_listed(folder), key=lambda e: -e.used):
            left = entry.name.endswith(_UNFINISHED)
            total += 0 if left else entry.nbytes
            if now - entry.used > _ABANDONED if left else total > self.limit:
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    os.unlink(entry.name, dir_fd=folder)

    def entries(self) -> list[CachedFile]:
        """The entries, last used first."""
        return self._named(_SUFFIX)

    def array_files(self) -> list[CachedFile]:
        """The files of arrays, last used first."""
        return self._named(_ARRAYS)

    def _named(self, suffix: str) -> list[CachedFile]:
        try:
            with self._opened(make=False) as folder, _reasons(str(self.folder)):
                found = [e for e in _listed(folder) if e.name.endswith(suffix)]
        except Missing:
            return []
        entries = [CachedFile(e.name.removesuffix(suffix), e.nbytes, e.used) for e in found]
        return sorted(entries, key=lambda e: (-e.used, e.name))

    def clear(self) -> tuple[int, int]:
        """Remove all entries, arrays and unfinished files; return the numbers of files and
        bytes."""
        count = nbytes = 0
        where = str(self.folder)
        with contextlib.suppress(Missing), self._opened(make=False) as folder, _reasons(where):
            for entry in _listed(folder):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.name, dir_fd=folder)
                    count, nbytes = count + 1, nbytes + entry.nbytes
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_INDEX, dir_fd=folder)
        return count, nbytes


def _open(name: str, folder: int) -> int:
    """A descriptor for reading a file."""
    return os.open(name, os.O_RDONLY | _NO_WAITING, dir_fd=folder)


@contextlib.contextmanager
def _appearing(folder: int, name: str) -> Iterator[BinaryIO]:
    """A new file in a folder; it appears under its name once it is written."""
    unfinished = f"{name}.{os.getpid()}.{os.urandom(8).hex()}{_UNFINISHED}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(unfinished, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as opened:
            yield opened
        os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(unfinished, dir_fd=folder)
        raise


def _listed(folder: int) -> list[CachedFile]:
    """The entries, arrays and unfinished files in a folder."""
    found = []
    with os.scandir(folder) as items:
        for item in items:
            if item.name.endswith((_SUFFIX, _ARRAYS, _UNFINISHED)):
                with contextlib.suppress(FileNotFoundError):  # dropped meanwhile
                    about = item.stat(follow_symlinks=False)
                    mapped = item.name.endswith(_ARRAYS)
                    used = about.st_atime if mapped else about.st_mtime
                    found.append(CachedFile(item.name, about.st_size, used))
    return found


def _read_index(folder: int) -> dict[str, str]:
    """The entry of each kernel by key. The last line about a key counts."""
    try:
        with _reasons(_INDEX):
            file = _open(_INDEX, folder)
            with os.fdopen(file, "rb") as opened:
                check_file(os.fstat(file), _INDEX)
                content = opened.read(2 * _MOST_INDEX)
    except Missing:
        return {}
    return {key.decode(): name.decode() for key, name in _LINE.findall(content)}


def _head(content: bytes) -> bytes:
    return MAGIC + hashlib.blake2b(content, digest_size=32).digest()


def sealed(content: bytes) -> bytes:
    """Prefix the content with its digest: see `checked`."""
    return _head(content) + content


def checked(data: bytes, name: str) -> bytes:
    """The bytes that `sealed` was given. Unusable if a byte has changed."""
    size = len(_head(b""))
    head, content = data[:size], data[size:]
    if head != _head(content):
        raise Unusable(f"{name} is damaged")
    return content
