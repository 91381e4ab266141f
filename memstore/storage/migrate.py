"""Migrations: numbered ``.sql`` files, applied in order, each in one transaction with its own record.

``PRAGMA user_version`` is the schema version. The record keeps name and checksum of each step, so that an edited
step is noticed. A file newer than the program is refused untouched. Before its first step a store that holds rows is
copied (upgrade_copy.py).
"""

import fcntl
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw

from memstore.config import MAINTENANCE_BUSY_TIMEOUT_S
from memstore.errors import StoreBusy, StoreError, StoreIO, StoreReadOnly, StoreTooNew
from memstore.storage.upgrade_copy import keep_copy

logger = logging.getLogger("memstore")

BeforeStatement = Callable[[int, str], None]

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql\Z")
_LOOK_AGAIN_S = 0.02
_RECORD = """
CREATE TABLE IF NOT EXISTS schema_migrations (
  version    INTEGER PRIMARY KEY,
  name       TEXT    NOT NULL,
  checksum   TEXT    NOT NULL,
  applied_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations_folder() -> Path:
    """Where the steps are: inside the installed package, or beside it in a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


@lru_cache(maxsize=1)
def load_migrations() -> tuple[Migration, ...]:
    """All steps for SQLite, in order, numbered from 1 without gaps."""
    steps = []
    for path in sorted((migrations_folder() / "sqlite").glob("*.sql")):
        match = _NAME.match(path.name)
        if match is None:
            raise StoreError(f"{path.name} is no migration name; it must be like 0001_words.sql")
        steps.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        raise StoreError(f"migrations must be numbered from 0001 without gaps: {[s.version for s in steps]}")
    return tuple(steps)


def newest_version() -> int:
    """The schema version of this program."""
    return len(load_migrations())


def check_not_newer(path: Path, version: int) -> None:
    """:raises StoreTooNew: naming both versions."""
    if version > newest_version():
        raise StoreTooNew(
            f"{path} has schema version {version}, this program knows {newest_version()}; "
            "it is left untouched: upgrade memstore to open it"
        )


def statements(sql: str) -> Iterator[str]:
    """The statements of a step, one by one."""
    pending = ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if apsw.complete(pending):
            yield pending
            pending = ""
    if pending.strip():  # a comment, or a statement without its semicolon: never dropped in silence
        yield pending


def migrate(
    connection: apsw.Connection, path: Path, before_statement: BeforeStatement | None = None
) -> list[int]:
    """Bring the file to the newest version; returns the versions applied.

    Two processes may come at once: each step takes the write lock first and looks again. A store with rows is copied
    before its first step, by one process at a time, so that no second copy is made. ``before_statement`` is called
    with (version, statement), for tests that stop in between.

    :raises StoreFull: when there is no room for the copy; the file is untouched then.
    """
    found = _version(connection)
    if found < newest_version() and connection.readonly("main"):
        raise StoreReadOnly(
            f"{path} has schema version {found} and is to be brought to {newest_version()}, but cannot be written. "
            "Check the owner and mode of the file and its folder, or read it with the memstore that made it"
        )
    if found >= newest_version() or not _holds_rows(connection):
        applied = _apply_all(connection, path, before_statement)
    else:
        with _sole_upgrade(path):
            applied = _apply_all(connection, path, before_statement)
    check_not_newer(path, _version(connection))
    return applied


def _apply_all(
    connection: apsw.Connection, path: Path, before_statement: BeforeStatement | None
) -> list[int]:
    applied: list[int] = []
    for step in load_migrations():
        if _version(connection) >= step.version:
            continue
        connection.execute("BEGIN IMMEDIATE").fetchall()
        try:
            if _version(connection) < step.version:
                if not applied and _holds_rows(connection):
                    _copy_first(connection, path, step)
                _apply(connection, step, before_statement)
                applied.append(step.version)
            connection.execute("COMMIT").fetchall()
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK").fetchall()
            raise
    return applied


def _copy_first(connection: apsw.Connection, path: Path, step: Migration) -> None:
    copy = keep_copy(path, step.version, vfs=connection.open_vfs)
    logger.warning(
        "upgrading %s from schema version %d to %d; as it was before, it is kept as %s, which you may remove when you "
        "will not go back to the older memstore",
        path, _version(connection), newest_version(), copy,
    )  # fmt: skip


@contextmanager
def _sole_upgrade(path: Path) -> Iterator[None]:
    """One upgrade at a time in a folder, over all steps. The lock ends with its process, however that ends.

    :raises StoreBusy: when another one goes on for too long.
    """
    with _open_folder(path) as descriptor:
        deadline = time.monotonic() + MAINTENANCE_BUSY_TIMEOUT_S
        while not _locked(descriptor, path):
            if time.monotonic() > deadline:
                raise StoreBusy(
                    f"a store in {path.parent} is being upgraded by another process; try again later"
                )
            time.sleep(_LOOK_AGAIN_S)
        yield


@contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise _cannot_lock(path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _cannot_lock(path, error) from error
    return True


def _cannot_lock(path: Path, error: OSError) -> StoreIO:
    return StoreIO(
        f"{path} is not upgraded: its folder must be locked for that, so that two processes do not copy it at once, "
        f"and cannot be: {error}. Check the folder's mode and file system"
    )


def _version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def _holds_rows(connection: apsw.Connection) -> bool:
    """Whether anyone wrote to it: each row's team comes first."""
    return _version(connection) > 0 and bool(connection.execute("SELECT 1 FROM teams LIMIT 1").fetchall())


def _apply(connection: apsw.Connection, step: Migration, before_statement: BeforeStatement | None) -> None:
    for statement in (_RECORD, *statements(step.sql)):
        if before_statement is not None:
            before_statement(step.version, statement)
        connection.execute(statement).fetchall()
    connection.execute(
        "INSERT INTO schema_migrations (version, name, checksum) VALUES (?, ?, ?)",
        (step.version, step.name, step.checksum),
    ).fetchall()
    connection.pragma("user_version", step.version)


def edited_steps(connection: apsw.Connection) -> list[str]:
    """Names of applied steps whose file has another checksum now."""
    known = {step.version: step for step in load_migrations()}
    applied: list[Any] = connection.execute(
        "SELECT version, name, checksum FROM schema_migrations ORDER BY version"
    ).fetchall()
    return [
        name
        for version, name, checksum in applied
        if version in known and known[version].checksum != checksum
    ]
