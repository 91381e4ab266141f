"""The copy of a store that is kept before its schema changes.

``<database>.before-v3`` is the whole store as it was before step 3, for the memstore of that time. It is made by
SQLite's backup, which reads what is committed, the write-ahead log included.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count, zip_longest
from pathlib import Path

import apsw

from memstore.errors import StoreError, StoreFull, StoreIO, StoreReadOnly
from memstore.files import SYSTEM_FILES

_BEHIND_THE_NAME = re.compile(r"\.before-v(\d+)(?:\.(\d+))?\Z")
_PAGES_AT_ONCE = 1024
_BUSY_TIMEOUT_MS = 5_000


def kept_copies(path: Path) -> list[Path]:
    """The copies beside a store from before its upgrades, oldest first."""
    found = []
    for beside in path.parent.iterdir():
        match = _BEHIND_THE_NAME.match(beside.name.removeprefix(path.name))
        if match and beside.name.startswith(path.name) and beside.is_file():
            found.append((int(match[1]), int(match[2] or 1), beside))
    return [copy for _, _, copy in sorted(found)]


def keep_copy(path: Path, step: int, *, vfs: str | None = None) -> Path:
    """Copy a store as it was committed last, and return where the copy is: complete and synced, or not there at all.

    The caller holds the write lock, so that nothing is committed between the copy and the step. No file is ever
    written over: a copy of the very same rows, left by an upgrade that was cut short, serves again; one of other
    rows keeps its name, and the new one gets a number behind its own.

    :raises StoreFull: when there is no room for it. :raises StoreReadOnly: when the folder takes no file.
    """
    names = _names(path, step)
    making = path.with_name(f".{path.name}.copying")
    try:
        with closing(_opened(path, apsw.SQLITE_OPEN_READWRITE, vfs)) as source, _scratch(making):
            while os.path.lexists(copy := next(names)):
                if copy.is_file() and _holds_the_same(source, copy, vfs):
                    return copy
            _fill(making, source, vfs)
            os.link(making, copy)  # a link, unlike a rename, never replaces what stands there
            SYSTEM_FILES.sync_folder(copy.parent)
            return copy
    except (apsw.Error, OSError) as error:
        raise _refusal(path, step, error) from error


def _names(path: Path, step: int) -> Iterator[Path]:
    yield Path(f"{path}.before-v{step}")
    for number in count(2):
        yield Path(f"{path}.before-v{step}.{number}")


@contextmanager
def _scratch(making: Path) -> Iterator[None]:
    """Neither a killed upgrade nor this one leaves a half copy behind."""
    leftovers = (making, Path(f"{making}-journal"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    try:
        yield
    finally:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)


def _fill(making: Path, source: apsw.Connection, vfs: str | None) -> None:
    os.close(os.open(making, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(_opened(making, apsw.SQLITE_OPEN_READWRITE, vfs)) as target:
        backup = target.backup("main", source, "main")
        try:
            while not backup.done:
                backup.step(_PAGES_AT_ONCE)
            backup.finish()
        finally:
            backup.close(True)  # without an error of its own: one is on its way, or all is done
        # One file that opens from a read-only folder too; a store that is put back takes up its mode again.
        if target.pragma("journal_mode", "delete") != "delete":
            raise OSError(errno.EIO, "the copy could not be closed as one file")


def _holds_the_same(source: apsw.Connection, copy: Path, vfs: str | None) -> bool:
    """Whether a file holds the same schema and rows, index entries of full text and vectors included."""
    try:
        with closing(_opened(copy, apsw.SQLITE_OPEN_READONLY, vfs)) as other:
            if source.pragma("user_version") != other.pragma("user_version"):
                return False
            tables = source.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"  # virtual tables have none
            ).fetchall()
            selects = [f'SELECT * FROM "{name}"' for name in ("sqlite_schema", *(row[0] for row in tables))]
            return all(
                ours == theirs
                for select in selects
                for ours, theirs in zip_longest(source.execute(select), other.execute(select))
            )
    except apsw.Error:  # no database, damaged, or without one of the tables: no copy of this store
        return False


def _opened(path: Path, flags: int, vfs: str | None) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
    connection.pragma("synchronous", 2)
    return connection


def _refusal(path: Path, step: int, error: apsw.Error | OSError) -> StoreError:
    what = f"{path} is not upgraded, and is as it was: a copy of it must be kept before schema version {step}, but"
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, apsw.FullError) or number in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(
            f"{what} no space is left in {path.parent}; free as much as the store takes, then try again"
        )
    if isinstance(error, apsw.ReadOnlyError) or number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(f"{what} no file can be made in {path.parent}; check its owner and mode")
    return StoreIO(f"{what} making it failed: {error}")
