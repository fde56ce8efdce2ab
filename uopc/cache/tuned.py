"""The database of searches: Opts by kernel, machine and version. See docs/tuning.md."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Row:
    """The result of one search.

    `key`, `machine` and `version` are digests. `opts` is None where the schedule's own list stays.
    `before` and `after`: the seconds of a run. `said`: the sizes, and the reason.
    """

    key: str
    machine: str
    version: str
    name: str
    opts: str | None
    before: float
    after: float
    said: str
    made: float  # seconds since 1970

    @property
    def seal(self) -> str:
        """A digest of the content: a row without it is damaged."""
        return hashlib.blake2b(repr(astuple(self)).encode(), digest_size=8).hexdigest()


class Store:
    """The rows of one machine and version: those of this process."""

    def __init__(self, machine: str, version: str) -> None:
        self.machine, self.version = machine, version

    def __bool__(self) -> bool:
        return any((m, v) == (self.machine, self.version) for _, m, v in _rows)

    def find(self, key: str) -> Row | None:
        """The row of a kernel."""
        return _rows.get((key, self.machine, self.version))

    def put(self, row: Row) -> None:
        """Keep a row in place of that of the same kernel."""
        with _lock:
            _rows[row.key, row.machine, row.version] = row


_rows: dict[tuple[str, str, str], Row] = {}
_lock = threading.Lock()


def forget() -> None:
    """Drop the rows of this process."""
    with _lock:
        _rows.clear()
