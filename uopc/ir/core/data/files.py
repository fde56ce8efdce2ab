"""Arrays in files: mapped, never read as a whole, identified by their place and not by content.

A place is the path, device, inode, size and time of the last change of a file, and the byte range
of an array. Arrays with equal places are one constant, in every process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import mmap
import os
import stat
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from uopc.errors import InvalidIR, UserError
from uopc.ir.core import dtypes
from uopc.ir.records import dataclass

Array = npt.NDArray[Any]
Mode = Literal["r", "r+"]
_MAPS = "/proc/self/maps"
_TICK_NS = 2 * 10**9  # the coarsest clock of a file system: that of FAT


@dataclass(frozen=True)
class Identity:
    """The identity of a file, as far as the system tells without reading it."""

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int

    @staticmethod
    def of(path: str, found: os.stat_result) -> Identity:
        """The identity of an open file."""
        return Identity(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class Stamp:
    """The identity of a file and the time of its last change of content or attributes, which no
    program can set. So equal stamps prove that nobody wrote the file in between."""

    identity: Identity
    changed_ns: int

    @staticmethod
    def of(path: str) -> Stamp:
        """The stamp of the file at an absolute path, with links followed. OSError if there is no
        such file."""
        found = os.stat(path)
        return Stamp(Identity.of(path, found), found.st_ctime_ns)

    def check(self) -> None:
        """UserError if the file or its attributes changed since, or if the file is gone."""
        check_unchanged_since(self.identity)
        if Stamp.of(self.identity.path) != self:
            raise UserError(f"{self.identity.path} was changed since it was opened: open it again")

    def is_settled(self, now_ns: int) -> bool:
        """True if the file had not been written shortly before `now_ns`: another write at the same
        tick of the system's clock would not change the stamp."""
        return max(self.identity.mtime_ns, self.changed_ns) + _TICK_NS < now_ns


@dataclass(frozen=True)
class FilePlace:
    """Bytes of a file as an array of a dtype, by name."""

    identity: Identity
    offset: int
    dtype: str
    dims: tuple[int, ...]

    @property
    def key(self) -> str:
        """A digest, in the form of a content hash."""
        import hashlib  # see `serialize.fingerprint`

        return hashlib.blake2b(f"file {self!r}".encode(), digest_size=8).hexdigest()

    def as_text(self) -> str:
        """The place, as JSON."""
        import json  # here and below: few programs need it

        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def of_text(name: str, text: bytes) -> FilePlace:
        """The place in a text by `as_text`. InvalidIR if the text is damaged."""
        import json

        try:
            found = json.loads(text)
            identity = Identity(**found.pop("identity"))
            place = FilePlace(identity, dims=tuple(found.pop("dims")), **found)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            raise InvalidIR(f"{name}: expected the place of an array in a file") from None
        numbers = (identity.device, identity.inode, identity.size, identity.mtime_ns)
        sizes = (place.offset, *place.dims)
        if not all([type(n) is int for n in (*numbers, *sizes)]) or min(sizes) < 0:
            raise InvalidIR(
                f"{name}: the place of an array in a file must have integers of 0 or more"
            )
        if type(identity.path) is not str or type(place.dtype) is not str:
            raise InvalidIR(f"{name}: the place of an array in a file must have a path and a dtype")
        return place

    def open(self) -> Array:
        """The array. UserError if the file is gone or was replaced."""
        mapping = opened(self.identity.path)
        _check_same(self.identity, mapping.identity)
        t = dtypes.by_name(self.dtype).numpy
        end = self.offset + math.prod(self.dims) * t.itemsize
        if end > mapping.identity.size or self.offset % t.itemsize or end == self.offset:
            raise InvalidIR(
                f"bytes {self.offset} to {end} are not an array in {self.identity.path}"
            )
        return mapping.array(self.offset, t, self.dims)


class Mapping(mmap.mmap):
    """A whole file in memory, shared with other processes that map it."""

    identity: Identity
    writable: bool

    def array(self, offset: int, dtype: np.dtype[Any], dims: tuple[int, ...]) -> Array:
        """Bytes of the file as an array; the bytes must be inside the file and aligned."""
        nbytes = math.prod(dims) * dtype.itemsize
        return np.frombuffer(self, np.uint8, nbytes, offset).view(dtype).reshape(dims)

    @property
    def address(self) -> int:
        """The address of the first byte."""
        return int(np.frombuffer(self, np.uint8, 1).ctypes.data)

    def advise(self, part: Array, advice: int) -> None:
        """Advise the system about the use of the pages that lie fully in a part."""
        begin = part.ctypes.data - self.address
        first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (begin + part.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self.madvise(advice, first, last - first)


# Files that are mapped for reading: all arrays of a file share a mapping.
_mapped: weakref.WeakValueDictionary[Identity, Mapping] = weakref.WeakValueDictionary()


def opened(path: str, mode: Mode = "r") -> Mapping:
    """A mapping of a file of at least one byte. UserError if it cannot be mapped."""
    flags = os.O_RDONLY if mode == "r" else os.O_RDWR
    try:
        # O_NONBLOCK: a pipe that nobody writes to is refused, not waited for.
        handle = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UserError(f"cannot open {path}: {error.strerror}") from None
    except ValueError as error:  # a null byte
        raise UserError(f"cannot open {path!r}: {error}") from None
    try:
        return mapping(handle, path, mode)
    finally:
        os.close(handle)


def mapping(handle: int, path: str, mode: Mode = "r") -> Mapping:
    """A mapping of an open file of at least one byte. UserError if it cannot be mapped."""
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UserError(f"cannot map {path}: it is not a regular file")
        identity = Identity.of(os.path.realpath(path), os.fstat(handle))
        if not identity.size:
            raise UserError(f"cannot map {path}: it is empty")
        found = _mapped.get(identity) if mode == "r" else None
        return found or _map(handle, identity, mode)
    except OSError as error:
        raise UserError(f"cannot map {path}: {error.strerror or error}") from None


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A new file that replaces `path` at the end; a process that has mapped the old file keeps it.
    UserError if the new file cannot be written; `path` then stays unchanged."""
    part = f"{path}.{os.getpid()}.part"
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise UserError(f"cannot write {path}: it is not a regular file")
        with open(part, "xb+") as made:
            try:
                yield made
                made.flush()
                os.replace(part, path)
            except BaseException:
                os.unlink(part)
                raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    except OverflowError as error:
        raise UserError(f"cannot write {path}: {error}") from None
    except ValueError as error:  # a null byte in the path
        raise UserError(f"cannot write {path!r}: {error}") from None


def _map(handle: int, identity: Identity, mode: Mode) -> Mapping:
    access = mmap.ACCESS_READ if mode == "r" else mmap.ACCESS_WRITE
    made = Mapping(handle, identity.size, access=access)
    made.identity, made.writable = identity, mode != "r"
    if mode == "r":
        _mapped[identity] = made
    return made


def _bases(array: Any) -> Iterator[Any]:
    """The array, the array that it is a view of, and so on, to the object that owns the memory."""
    while array is not None:
        yield array
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)


def mapping_of(array: Array) -> Mapping | None:
    """The file that an array of `uopc.file` is a view of."""
    return next((b for b in _bases(array) if isinstance(b, Mapping)), None)


def is_mapped(array: Array) -> bool:
    """True for a view of any mapping, such as np.memmap."""
    return any([isinstance(b, mmap.mmap) for b in _bases(array)])


def placed(array: Array) -> tuple[FilePlace, Array] | None:
    """The place of a read-only array in a file, and the array there; None for any other array."""
    if array.flags.writeable or not (array.flags.c_contiguous and array.flags.aligned):
        return None
    if not array.size:
        return None
    mapping = mapping_of(array)
    if mapping is None:
        found = _of_memmap(array)
        if found is None:
            return None
        mapping, array = found
    elif mapping.writable:
        return None
    offset = array.ctypes.data - mapping.address
    return FilePlace(
        mapping.identity, offset, dtypes.from_numpy(array.dtype).name, array.shape
    ), array


def _of_memmap(array: Array) -> tuple[Mapping, Array] | None:
    """A read-only np.memmap as an array in our own mapping; None if its path now names another
    file."""
    views = [b for b in _bases(array) if isinstance(b, np.memmap)]
    path = views[-1].filename if views and views[-1].mode == "r" else None
    if path is None:
        return None
    whole = views[-1]
    try:
        mapping = opened(os.fspath(path))
    except UserError:  # moved or removed: the content is all that is known
        return None
    offset = whole.offset + array.ctypes.data - whole.ctypes.data
    file = _file_at(array.ctypes.data)
    if file is None or file != _file_at(mapping.address):
        return None
    if offset + array.nbytes > mapping.identity.size:
        return None
    return mapping, mapping.array(offset, array.dtype, array.shape)


def _file_at(address: int) -> tuple[str, str] | None:
    """The device and inode, as the system writes them, of the file mapped at an address."""
    try:
        with open(_MAPS, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words = line.split(maxsplit=5)
                first, _, last = words[0].partition("-")
                if int(first, 16) <= address < int(last, 16):
                    return words[3], words[4]
    except OSError:  # no such system
        return None
    return None


def check_unchanged(arrays: Iterable[Array]) -> None:
    """UserError if one of the arrays is in a file that was written, replaced or removed since it
    was opened."""
    for mapping in dict.fromkeys(map(mapping_of, arrays)):
        if mapping is None:
            continue
        check_unchanged_since(mapping.identity, mapping.writable)


def check_unchanged_since(before: Identity, writable: bool = False) -> None:
    """UserError if a file was written, replaced or removed since the identity was taken."""
    path = before.path
    try:
        now = Identity.of(path, os.stat(path))
    except OSError as error:
        raise UserError(f"{path} has changed since it was opened: {error.strerror}") from None
    if writable:  # its own writes change the time
        now = dataclasses.replace(now, mtime_ns=before.mtime_ns)
    _check_same(before, now)


def _check_same(before: Identity, now: Identity) -> None:
    if before == now:
        return
    if before.size != now.size:
        what = f"had {before.size} bytes and has {now.size}"
    elif (before.device, before.inode) != (now.device, now.inode):
        what = "is another file"
    else:
        what = "was written"
    raise UserError(f"{before.path} {what} since it was opened: open it again")
