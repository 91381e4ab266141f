"""Looking at a store with SQL of one's own (SPEC S8)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import apsw

from memstore.config import BUSY_TIMEOUT_S
from memstore.errors import StoreError, StoreReadOnly, StoreUnsound
from memstore.file_system import check_local, kind_of
from memstore.storage.migrate import check_not_newer
from memstore.storage.sqlite.connection import APPLICATION_ID, driver_errors, open_connection, probe

_WRITING_PRAGMAS = ("journal_mode", "query_only", "writable_schema", "user_version", "application_id")
STEPS_BETWEEN_SIGNALS = 100_000
"""Virtual-machine steps after which Python may notice Ctrl-C: a few milliseconds."""


class Inspection:
    """One connection for statements of the operator's, with sqlite-vec loaded.

    Read-only twice: the file is opened so, attached files included, and ``query_only`` holds for what is left.

    :param network_file_system: open it even on one.
    :raises StoreUnsound: when the file is no memstore store.
    """

    def __init__(self, path: Path, *, write: bool = False, network_file_system: bool = False) -> None:
        check_local(path, kind_of(path), forced=network_file_system)
        self._path = path
        self._write = write
        application_id, version = probe(path)
        if application_id != APPLICATION_ID:
            raise StoreUnsound(f"{path} is a database, but not a memstore store; it is left untouched")
        check_not_newer(path, version)
        flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
        self._connection = open_connection(path, busy_timeout_s=BUSY_TIMEOUT_S, flags=flags)
        if not write:
            self._connection.pragma("query_only", True)
            self._connection.authorizer = _reading_only
        self._connection.set_progress_handler(lambda: False, STEPS_BETWEEN_SIGNALS)

    def rows(self, statements: str) -> list[dict[str, Any]]:
        """Run one statement or several; the rows of all, by column name. Blobs come as hexadecimal text.

        :raises StoreError: saying what SQLite found wrong.
        """
        with self._sql_errors():
            cursor = self._connection.cursor()
            return [
                dict(zip(_names(cursor.getdescription()), map(_plain, row), strict=True))
                for row in cursor.execute(statements)
            ]

    def shell(self) -> None:
        """The interactive shell of apsw, until its user leaves it."""
        from apsw.shell import Shell

        Shell(db=self._connection).cmdloop()  # type: ignore[no-untyped-call]

    @contextmanager
    def _sql_errors(self) -> Iterator[None]:
        """SQLite's own words for what its user wrote; errors about the file as everywhere."""
        try:
            with driver_errors(self._path):
                try:
                    yield
                except apsw.ReadOnlyError as error:
                    if self._write:
                        raise
                    raise StoreReadOnly(
                        "the statement would change the store, which is open for reading; add --write"
                    ) from error
        except apsw.AuthError as error:
            raise StoreReadOnly(
                "the statement would attach or write another file, or change how this one is written; "
                "the store is open for reading: add --write"
            ) from error
        except (apsw.Error, UnicodeDecodeError) as error:
            raise StoreError(f"the statement failed: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _reading_only(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Deny what a read-only connection would still do: ``VACUUM INTO`` attaches a new file, and makes it."""
    if action == apsw.SQLITE_ATTACH:
        return apsw.SQLITE_DENY
    if action == apsw.SQLITE_PRAGMA and second is not None and (first or "").lower() in _WRITING_PRAGMAS:
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK


def _names(description: tuple[tuple[Any, ...], ...]) -> list[str]:
    """Column names, the second of a name as ``name_2``: a mapping would lose it."""
    names: list[str] = []
    for name, *_ in description:
        unique, number = name, 1
        while unique in names:
            number += 1
            unique = f"{name}_{number}"
        names.append(unique)
    return names


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    return value
