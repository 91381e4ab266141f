"""SQL for people: a connection of its own, read-only unless told otherwise (SPEC S8).

This is the operator's raw view of the whole file: no access rule stands in front of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from memstore.config import BUSY_TIMEOUT_S
from memstore.errors import InvalidInput, StoreUnsound
from memstore.storage.migrate import check_not_newer
from memstore.storage.sqlite import connection as opening


@contextmanager
def inspecting(path: Path, *, write: bool = False) -> Iterator[apsw.Connection]:
    """A connection for SQL by hand, with sqlite-vec loaded."""
    application_id, version = opening.probe(path)
    if application_id != opening.APPLICATION_ID:
        raise StoreUnsound(f"{path} is a database, but not a memstore store")
    check_not_newer(path, version)
    connection = opening.open_connection(
        path, busy_timeout_s=BUSY_TIMEOUT_S, flags=apsw.SQLITE_OPEN_READWRITE
    )  # a read-only handle could not recover a WAL that a crash left behind
    try:
        if not write:
            connection.pragma("query_only", True)
            connection.authorizer = _reading_only
        with opening.driver_errors(path):
            yield connection
    finally:
        connection.close()


def _reading_only(
    action: int, first: str | None, _second: str | None, _db: str | None, _by: str | None
) -> int:
    """``query_only`` could be switched off again, and does not stop ``ATTACH`` or ``VACUUM INTO``."""
    if action in (apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH):
        return apsw.SQLITE_DENY
    if action == apsw.SQLITE_PRAGMA and (first or "").lower() in (
        "query_only",
        "writable_schema",
        "journal_mode",
    ):
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK


def query(path: Path, statement: str, *, write: bool = False) -> list[dict[str, Any]]:
    """The rows of a statement, as column → value.

    :raises InvalidInput: with SQLite's own words when the statement is not accepted.
    """
    with inspecting(path, write=write) as connection:
        try:
            cursor = connection.execute(statement)
            names: list[str] = []
            rows = []
            for row in cursor:
                names = names or [column[0] for column in cursor.get_description()]
                rows.append(dict(zip(names, row, strict=False)))
        except (apsw.SQLError, apsw.AuthError, apsw.ReadOnlyError) as error:
            raise InvalidInput(f"SQL: {error}") from error
    return rows
