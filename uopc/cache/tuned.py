"""The database of searches: Opts by kernel, machine and version, and measured figures of machines.
See docs/tuning.md.

The database is an sqlite file beside the cache's entries, with the same care: only this user can
read and change it, and a row that is damaged, or of another machine or version, is ignored.
Processes may write at once. Without a cache on disk, the rows live in this process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from uopc.cache import statistics
from uopc.cache.disk import Missing, Unusable, check_file, opened
from uopc.ir import forks
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass

if TYPE_CHECKING:  # sqlite is imported where there is a database
    import sqlite3

FOLDER, FILE = "searches", "searches.db"
MOST_ROWS = 50_000
WAIT = 20.0  # seconds for other processes that write


class _Sealed:
    """A row of a table: the fields are its columns, followed by a seal."""

    @property
    def values(self) -> tuple[str | float | None, ...]:
        """The content, in the order of the fields."""
        return tuple(vars(self).values())

    @property
    def seal(self) -> str:
        """A digest of the content: a row with another seal is damaged."""
        return hashlib.blake2b(repr(self.values).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class SearchRow(_Sealed):
    """The result of one search.

    `key`, `machine` and `version` are digests. `opts`: None if the schedule's own list stays.
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


@dataclass(frozen=True)
class MachineFigures(_Sealed):
    """A measurement of a machine, as text. `machine`: the digest of the system's description of it;
    `made`: seconds since 1970."""

    machine: str
    figures: str
    made: float


_COLUMNS = ", ".join(f.name for f in fields(SearchRow))
_MAKE = f"""CREATE TABLE IF NOT EXISTS searches
    ({_COLUMNS}, seal, PRIMARY KEY (key, machine, version))"""
_GET = f"""SELECT {_COLUMNS}, seal FROM searches
    WHERE (? IS NULL OR machine = ?) AND (? IS NULL OR version = ?)"""
_PUT = f"INSERT OR REPLACE INTO searches VALUES ({', '.join('?' * (len(fields(SearchRow)) + 1))})"
_MAKE_MACHINES = """CREATE TABLE IF NOT EXISTS machines
    (machine PRIMARY KEY, figures, made, seal)"""
_PUT_MACHINE = "INSERT OR REPLACE INTO machines VALUES (?, ?, ?, ?)"
_SHRINK = """DELETE FROM searches WHERE rowid IN
    (SELECT rowid FROM searches ORDER BY made DESC LIMIT -1 OFFSET ?)"""


class Database:
    """The rows in the folder of a cache. Unusable if they cannot be read or written."""

    def __init__(self, root: Path) -> None:
        self.root, self.file = root, root / FOLDER / FILE

    def rows(self, machine: str | None = None, version: str | None = None) -> list[SearchRow]:
        """All undamaged rows, of one machine and version if given; none if there is no file."""
        own = machine, machine, version, version
        try:
            with self._connected(make=False) as connection:
                found = connection.execute(_GET, own).fetchall()
        except Missing:
            return []
        return [row for *values, seal in found if (row := SearchRow(*values)).seal == seal]

    def put(self, rows: Sequence[SearchRow]) -> None:
        """Store rows; each replaces the row with the same key, machine and version. A damaged file
        is first renamed to end in `.damaged`."""
        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(_PUT, [(*row.values, row.seal) for row in rows])
            connection.execute(_SHRINK, (MOST_ROWS,))

        self._repaired(write)

    def _repaired(self, write: Callable[[sqlite3.Connection], object]) -> None:
        """Write; first rename a damaged file."""
        try:
            self._write(write)
        except Unusable:
            if not self._is_damaged():
                raise
            os.replace(self.file, f"{self.file}.damaged")
            self._write(write)

    def _write(self, write: Callable[[sqlite3.Connection], object]) -> None:
        with self._connected(make=True) as connection, connection:
            connection.execute(_MAKE)
            connection.execute(_MAKE_MACHINES)
            write(connection)

    def machines(self) -> list[MachineFigures]:
        """The measured machines."""
        try:
            with self._connected(make=False) as connection:
                connection.execute(_MAKE_MACHINES)
                found = connection.execute("SELECT machine, figures, made, seal FROM machines")
                rows = found.fetchall()
        except Missing:
            return []
        return [m for *values, seal in rows if (m := MachineFigures(*values)).seal == seal]

    def put_machines(self, rows: Sequence[MachineFigures]) -> None:
        """Store machines; each replaces its earlier measurement."""
        self._repaired(lambda c: c.executemany(_PUT_MACHINE, [(*m.values, m.seal) for m in rows]))

    def clear(self) -> None:
        """Remove all rows."""
        with contextlib.suppress(Missing), opened(self.root, FOLDER, make=False) as folder:
            for name in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)

    def _is_damaged(self) -> bool:
        import sqlite3

        try:
            with self._connected(make=False) as connection:
                found = connection.execute("PRAGMA quick_check").fetchone()
                return bool(found[0] != "ok")
        except Unusable as problem:
            cause = problem.__cause__
            return isinstance(cause, sqlite3.DatabaseError) and not isinstance(
                cause, sqlite3.OperationalError
            )

    @contextlib.contextmanager
    def _connected(self, make: bool) -> Iterator[sqlite3.Connection]:
        """A connection to the file, which is checked; `make` creates the file."""
        import sqlite3

        with opened(self.root, FOLDER, make) as folder:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if make else 0)
            try:
                file = os.open(FILE, flags, 0o600, dir_fd=folder)
            except OSError as error:
                kind = Missing if isinstance(error, FileNotFoundError) else Unusable
                raise kind(f"{self.file}: {error.strerror}") from error
            try:
                check_file(os.fstat(file), str(self.file))
            finally:
                os.close(file)
            try:
                with contextlib.closing(sqlite3.connect(self.file, WAIT)) as connection:
                    yield connection
            except sqlite3.Error as error:
                raise Unusable(f"{self.file}: {error}") from error

    @property
    def state(self) -> tuple[int, int, int] | None:
        """A value that differs after each change of the file; None if there is no file."""
        try:
            found = os.stat(self.file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class Store:
    """The rows of one machine and version: of a database as it was at the first lookup, and of this
    process if there is no writable database."""

    def __init__(self, machine: str, version: str, database: Database | None = None) -> None:
        self.machine, self.version, self.database = machine, version, database

    def find(self, key: str) -> SearchRow | None:
        """The row of a kernel; None if there is none."""
        found = self._stored.get(key)
        return _rows.get((key, self.machine, self.version)) if found is None else found

    def put(self, row: SearchRow) -> None:
        """Keep a row; it replaces the row of the same kernel."""
        if self.database is not None:
            try:
                self.database.put([row])
                self._stored[row.key] = row
                return
            except Unusable as problem:
                statistics.note("disk_failed", problem)
        with _lock:
            _rows[row.key, row.machine, row.version] = row

    @cached_property
    def _stored(self) -> dict[str, SearchRow]:
        if self.database is None or (state := self.database.state) is None:
            return {}
        place = str(self.database.file), self.machine, self.version
        known = _read.get(place)
        if known is None or known[0] != state:
            rows: list[SearchRow] = []
            try:
                rows = self.database.rows(self.machine, self.version)
            except Unusable as problem:
                statistics.note("disk_rejected", problem)
            known = state, {r.key: r for r in rows}
            _read[place] = known
        return known[1]


_Known = tuple[tuple[int, int, int], dict[str, SearchRow]]
# The content of a file in a state, by its path, a machine and a version.
_read: dict[tuple[str, str, str], _Known] = {}
_rows: dict[tuple[str, str, str], SearchRow] = {}
_lock = threading.Lock()
forks.wait_for(_lock)


def forget() -> None:
    """Drop the rows of this process."""
    with _lock:
        _rows.clear()
        _read.clear()
