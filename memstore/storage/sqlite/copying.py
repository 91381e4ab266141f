"""The database as a whole: a consistent copy while others write, looking at such a copy, and giving space back."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import apsw

from memstore.config import MAINTENANCE_BUSY_TIMEOUT_S, sqlite_temporary_folder
from memstore.errors import StoreFull, StoreUnsound
from memstore.storage.migrate import check_not_newer
from memstore.storage.sqlite import vector_index
from memstore.storage.sqlite.checks import check_tables
from memstore.storage.sqlite.connection import (
    APPLICATION_ID,
    all_rows,
    driver_errors,
    open_connection,
    probe,
    scalar,
)
from memstore.storage.sqlite.text_index import ROW_TABLE
from memstore.types import LAYERS, Layer, Progress

STEP_PAGES = 256
"""Copied at a time: 2 MB, between which other threads run and progress is reported."""
MERGE_PAGES = 256
"""Of a text index merged in one transaction, so that other writers get their turn in between."""
_LEAST_CHANGES = 2
"""FTS5 changes fewer rows than this when there was nothing left to merge."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What identifies a state of a store. ``recorded_to`` is the latest instant at which a message was recorded,
    ``last_number`` the number of the fallback's last line, ``days`` how far each day file is contained."""

    store_id: str
    schema_version: int
    messages: int
    memories: int
    recorded_to: int
    last_number: int
    days: Mapping[str, int]


def _facts(connection: apsw.Connection) -> Facts:
    meta = dict(all_rows(connection, "SELECT key, value FROM store_meta"))
    return Facts(
        store_id=meta.get("store_id", ""),
        schema_version=int(scalar(connection, "PRAGMA user_version")),
        messages=int(scalar(connection, "SELECT count(*) FROM messages")),
        memories=int(scalar(connection, "SELECT count(*) FROM memory_versions")),
        recorded_to=int(scalar(connection, "SELECT max(recorded_at) FROM messages") or 0),
        last_number=int(meta.get("fallback_lines", 0)),
        days=dict(all_rows(connection, "SELECT day, applied_bytes FROM fallback_days")),
    )


# --- copying ------------------------------------------------------------------------------------------------


def size_of(path: Path, *, vfs: str | None = None) -> int:
    """Bytes that a copy of the database takes: its pages, those that are still in the log included."""
    connection = open_connection(
        path, busy_timeout_s=MAINTENANCE_BUSY_TIMEOUT_S, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs
    )
    try:
        with driver_errors(path):
            return bytes_of(connection)
    finally:
        connection.close()


def bytes_of(connection: apsw.Connection) -> int:
    """Bytes of the database as it is now, wherever its pages are."""
    return int(connection.pragma("page_count")) * int(connection.pragma("page_size"))


def copy_database(
    path: Path, target: Path, *, vfs: str | None = None, progress: Progress | None = None
) -> Facts:
    """Copy the database by SQLite's backup API into an empty file, which is not synced; returns what was copied.

    The source is read in one transaction. Without it every commit of another connection would make the copy begin
    again: under a writer that never rests it was seen not to end. The price is that the log cannot be reset
    meanwhile, and grows by what is written.
    """
    source = open_connection(
        path, busy_timeout_s=MAINTENANCE_BUSY_TIMEOUT_S, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs
    )
    try:
        with driver_errors(path):
            source.execute("BEGIN").fetchall()
            found = _facts(source)  # the first statement takes the snapshot
        with driver_errors(target):
            _copy_pages(source, target, progress)
        return found
    finally:
        source.close()


def _copy_pages(source: apsw.Connection, target: Path, progress: Progress | None) -> None:
    copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        copy.pragma("journal_mode", "off")  # a copy that was not completed is thrown away
        copy.pragma("synchronous", 0)
        with copy.backup("main", source, "main") as running:
            while not running.done:
                running.step(STEP_PAGES)
                if progress is not None:
                    progress(running.page_count - running.remaining, running.page_count)
    finally:
        copy.close()


class Copy:
    """A database file that nobody else has open, read without making any file beside it.

    :param called: the file that errors are to name, if it is another.
    :raises StoreUnsound: when it is no store, or so damaged that it cannot be read.
    :raises StoreTooNew: when a newer memstore made it.
    """

    def __init__(self, path: Path, called: Path | None = None) -> None:
        self.path = called or path
        application_id, version = probe(path)
        if application_id != APPLICATION_ID:
            raise StoreUnsound(f"{self.path} is a database, but not a memstore store")
        check_not_newer(self.path, version)
        with driver_errors(self.path):
            self._connection = apsw.Connection(
                f"file:{quote(str(path))}?immutable=1",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )

    def facts(self) -> Facts:
        with driver_errors(self.path):
            return _facts(self._connection)

    def faults(self) -> list[str]:
        """What is wrong with the rows and their constraints. Damage of the text indexes alone is none: it is mended
        from the rows."""
        with driver_errors(self.path):
            if self.is_whole() and not all_rows(self._connection, "PRAGMA foreign_key_check"):
                return []
            return [finding.message for finding in check_tables(self._connection)]

    def is_whole(self) -> bool:
        """Whether SQLite finds nothing at all to say against the file."""
        with driver_errors(self.path):
            return all_rows(self._connection, "PRAGMA integrity_check(1)") == [("ok",)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()


def set_marks(path: Path, marks: Mapping[str, int]) -> None:
    """Replace what a copy says of how far it contains the day files. Every schema version has that table."""
    connection = open_connection(path, busy_timeout_s=1, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with driver_errors(path), connection:
            connection.execute("DELETE FROM fallback_days").fetchall()
            connection.executemany(
                "INSERT INTO fallback_days (day, applied_bytes) VALUES (?, ?)", marks.items()
            ).fetchall()
    finally:
        connection.close()


# --- space --------------------------------------------------------------------------------------------------


def check_room(needs: Iterable[tuple[Path, int]], what: str) -> None:
    """Compare what a work is going to take with what is free. Needs in one file system add up.

    :param needs: (folder, bytes).
    :raises StoreFull: with the figures.
    """
    wanted: dict[int, tuple[Path, int]] = {}
    for folder, size in needs:
        device = folder.stat().st_dev
        first, so_far = wanted.get(device, (folder, 0))
        wanted[device] = first, so_far + size
    for folder, size in wanted.values():
        room = os.statvfs(folder)
        free = room.f_bavail * room.f_frsize
        if free < size:
            raise StoreFull(
                f"{what} takes up to {size:,} bytes in {folder}, where {free:,} are free; nothing was changed. "
                "Free some space, then try again"
            )


def vacuum(connection: apsw.Connection, path: Path) -> None:
    """Write the database anew without its free pages. Other processes may read meanwhile; writers wait.

    SQLite builds it in its folder for temporary files, since memory may not hold it, and then in the log: the one
    commit is what makes it count.

    :raises StoreFull: before anything is changed, when there is no room for that.
    """
    pages = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
    size = pages * int(connection.pragma("page_size"))
    check_room(((path.parent, size), (sqlite_temporary_folder(), size)), f"a vacuum of {path}")
    kept_in = connection.pragma("temp_store")
    connection.pragma("temp_store", 1)
    try:
        connection.execute("VACUUM").fetchall()
    finally:
        connection.pragma("temp_store", kept_in)


def text_tables(connection: apsw.Connection) -> list[str]:
    """The text indexes, those being built included."""
    return [name for (name,) in all_rows(connection, "SELECT table_name FROM text_indexes ORDER BY 1")]


def merge_text(connection: apsw.Connection, name: str, *, begin: bool) -> bool:
    """One step of FTS5's ``optimize``, in one short transaction; whether there is more to do.

    It rewrites the index as one piece, without what is left of deleted rows.
    """
    before = connection.total_changes()
    connection.execute(
        f"INSERT INTO {name} ({name}, rank) VALUES ('merge', ?)", (-MERGE_PAGES if begin else MERGE_PAGES,)
    ).fetchall()
    return bool(connection.total_changes() - before >= _LEAST_CHANGES)


def remove_strays(connection: apsw.Connection) -> int:
    """Delete entries of text indexes, vectors and the waiting list whose row is deleted or gone; returns how many."""
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        gone = sum(
            _changes(
                connection,
                f"DELETE FROM {table} WHERE {key} NOT IN"
                f" (SELECT slot FROM {ROW_TABLE[layer]} WHERE state <> 'deleted')",
            )
            for table, key, layer in _derived_tables(connection)
        )
        for layer in LAYERS:
            gone += _changes(
                connection,
                f"DELETE FROM pending_vectors WHERE layer = '{layer}' AND slot NOT IN"
                f" (SELECT slot FROM {ROW_TABLE[layer]} WHERE state <> 'deleted')",
            )
        connection.execute("COMMIT").fetchall()
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK").fetchall()
        raise
    return gone


def _changes(connection: apsw.Connection, statement: str) -> int:
    connection.execute(statement).fetchall()
    return connection.changes()


def _derived_tables(connection: apsw.Connection) -> list[tuple[str, str, Layer]]:
    """(table, its key, layer) of every text index and every generation's vectors that exist."""
    indexes = all_rows(connection, "SELECT table_name, layer FROM text_indexes ORDER BY table_name")
    generations = all_rows(connection, "SELECT generation FROM embedding_generations ORDER BY generation")
    vectors = [
        (name, "slot", layer)
        for (generation,) in generations
        for layer in LAYERS
        if connection.table_exists("main", name := vector_index.table_name(generation, layer))
    ]
    return [*((name, "rowid", layer) for name, layer in indexes), *vectors]


def retired_generations(connection: apsw.Connection) -> list[int]:
    """Generations whose vectors are kept for going back, and answer nothing now."""
    return [
        number
        for (number,) in all_rows(
            connection, "SELECT generation FROM embedding_generations WHERE state = 'retired' ORDER BY 1"
        )
    ]
