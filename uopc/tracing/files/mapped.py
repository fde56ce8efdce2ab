"""Views of files as NumPy arrays."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Literal

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks
from uopc.ir.builder.checks import element_dtype
from uopc.ir.core import dtypes
from uopc.ir.core.data import files
from uopc.ir.core.data.files import Array
from uopc.ir.core.dtypes import DType, DTypeLike

MODES = ("r", "r+", "w+")


def file(
    path: str | os.PathLike[str], dtype: DTypeLike = dtypes.float32, shape: Any = None,
    offset: int = 0, mode: Literal["r", "r+", "w+"] = "r",
) -> Array:  # fmt: skip
    """A part of a file as a NumPy array: it begins at byte `offset` and has the `shape` in C order.
    Without a shape it has one dimension and extends to the end of the file.

    Nothing is read before it is needed, and nothing is copied, neither as an argument of a program
    nor as `uopc.constant` (which identifies the array by path, device, inode, size, time of change
    and offset). mode: `r` for reading; `r+` also for writing, as by a program with `assign`; `w+`
    makes a new file of zeros, which replaces an existing file. Written values are at once in the
    file for all readers, and on the disk when the system finds time.

    UserError if the part leaves the file, the offset is no multiple of the item's size, or the path
    cannot be read or is no regular file. If another program shortens the file while it is in use,
    the process ends, as with every mapped file.

    Examples:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "numbers")
        >>> np.arange(6, dtype="f4").tofile(path)
        >>> x = uopc.file(path, np.float32, (2, 2), offset=8)
        >>> x
        array([[2., 3.],
               [4., 5.]], dtype=float32)
        >>> program = uopc.compile(uopc.constant(x) * uopc.param("s"))
        >>> program(np.float32(10))
        array([[20., 30.],
               [40., 50.]], dtype=float32)
        >>> folder.cleanup()
    """
    t = element_dtype(dtype)
    place = checks.path("file", path)
    if mode not in MODES:
        raise UserError(f"file: the mode must be one of {', '.join(MODES)}, got {mode!r}")
    begin = _checked_count("the offset", offset)
    if begin % t.itemsize:
        raise UserError(
            f"{place}: {t.name} at byte {begin} is not aligned: the offset must be a multiple of"
            f" {t.itemsize}"
        )
    dims = None if shape is None else _dims(shape)
    if mode == "w+":
        if dims is None:
            raise UserError("file: a new file needs a shape")
        _make(place, begin + math.prod(dims) * t.itemsize)
    return _view(place, t, dims, begin, mode != "r")


def _view(path: str, t: DType, dims: tuple[int, ...] | None, begin: int, writable: bool) -> Array:
    if dims is not None and not math.prod(dims):
        return np.empty(dims, t.numpy)
    mapping = files.opened(path, "r+" if writable else "r")
    size = mapping.identity.size
    if begin > size:
        raise UserError(f"{path}: the offset {begin} is behind the {size} bytes of the file")
    if dims is None:
        if (size - begin) % t.itemsize:
            raise UserError(f"{path}: {size - begin} bytes are not a whole number of {t.name}")
        dims = ((size - begin) // t.itemsize,)
    end = begin + math.prod(dims) * t.itemsize
    if end > size:
        shown = f"{t.name}{list(dims)}"
        raise UserError(f"{path}: {shown} needs bytes {begin} to {end}, the file has {size}")
    if begin == end:
        return np.empty(dims, t.numpy)
    made = mapping.array(begin, t.numpy, dims)
    check_bools(path, made)
    return made


def check_bools(what: str, array: Array) -> None:
    """UserError for an array of bools with bytes other than 0 and 1: kernels rely on these two."""
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise UserError(f"{what}: the bytes of bools must be 0 or 1, and the file has others")


def _make(path: str, size: int) -> None:
    """Make a file of `size` zeros, and reserve its space on the disk, so that no write can fail."""
    with files.replacing(path) as made:
        if size:
            os.posix_fallocate(made.fileno(), 0, size)


def _dims(shape: Any) -> tuple[int, ...]:
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    return tuple([_checked_count("a dimension", d) for d in given])


def _checked_count(what: str, value: Any) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        raise UserTypeError(f"file: {what} must be an int, got {value!r}") from None
    if isinstance(value, bool) or found < 0:
        raise UserError(f"file: {what} must be 0 or more, got {value!r}")
    return found
