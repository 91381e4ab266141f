"""Migrations: numbered ``.sql`` files, applied in order, each in one transaction with its own record.

``PRAGMA user_version`` is the schema version. The record keeps name and checksum of each step, so that an edited
step is noticed. A file newer than the program is refused untouched.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw

from memstore.errors import StoreError, StoreTooNew

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql\Z")
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
    connection: apsw.Connection, path: Path, before_statement: Callable[[int, str], None] | None = None
) -> list[int]:
    """Bring the file to the newest version; returns the versions applied.

    Two processes may come at once: each step takes the write lock first and looks again. ``before_statement``
    is called with (version, statement), for tests that stop in between.
    """
    applied = []
    for step in load_migrations():
        if int(connection.pragma("user_version")) >= step.version:
            continue
        connection.execute("BEGIN IMMEDIATE").fetchall()
        try:
            if int(connection.pragma("user_version")) < step.version:
                _apply(connection, step, before_statement)
                applied.append(step.version)
            connection.execute("COMMIT").fetchall()
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK").fetchall()
            raise
    check_not_newer(path, int(connection.pragma("user_version")))
    return applied


def _apply(
    connection: apsw.Connection, step: Migration, before_statement: Callable[[int, str], None] | None
) -> None:
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
