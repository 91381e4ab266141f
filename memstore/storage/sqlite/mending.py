"""Taking damaged derived tables out of a file without reading their pages.

``DROP TABLE`` walks a table's pages to free them. Where one of them is damaged it may lead into the pages of
another table, which would be freed with it. So a damaged text index or vector table is taken out of the schema
instead: its pages then belong to nobody until ``VACUUM`` leaves them behind.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from memstore.config import MAINTENANCE_BUSY_TIMEOUT_S
from memstore.errors import StoreUnsound
from memstore.paths import quoted
from memstore.storage.sqlite import text_index, vector_index
from memstore.storage.sqlite.checks import is_whole, ordinary_tables
from memstore.storage.sqlite.connection import all_rows, driver_errors, open_connection, scalar
from memstore.storage.sqlite.index_checks import structure_fault
from memstore.types import LAYERS, Layer

_TEXT_TABLE = re.compile(
    r"(text_(?:messages|memories)_\d+(?:_new)?)(?:_(?:data|idx|content|docsize|config))?\Z"
)


def mend(path: Path, *, vfs: str | None = None) -> bool:
    """Make a file fit for ``reindex``: replace damaged text indexes by empty ones, damaged vector tables by what can
    still be read of them, and take entries off the lists that stand for nothing. The rows are not touched. Returns
    whether pages were damaged.

    Costs a reading of the whole file.

    :raises StoreUnsound: when the rows' own tables are damaged; nothing is changed then.
    """
    with driver_errors(path):
        with _fresh(path, vfs) as connection:
            damaged = None if is_whole(connection) else _damaged(connection, path)
        # Other connections: what was read of damaged pages spoils a transaction that comes after it.
        if damaged is not None:
            with _fresh(path, vfs) as writing, _fresh(path, vfs) as reading, _transaction(writing):
                _replace_text_indexes(writing, damaged)
                _replace_vectors(writing, reading, damaged)
        with _fresh(path, vfs) as connection:
            if damaged is not None:
                connection.execute("VACUUM").fetchall()
            mend_lists(connection)
    return damaged is not None


def _damaged(connection: apsw.Connection, path: Path) -> set[str]:
    """Names of the derived tables whose pages are damaged.

    :raises StoreUnsound: when those of a table of the rows are.
    """
    fault = structure_fault(connection, ordinary_tables(connection))
    if fault:
        raise StoreUnsound(
            f"{path} is damaged in its rows ({fault}); reindex mends only what is derived from them, and has changed "
            f"nothing. Run: memstore doctor --db {quoted(path)}"
        )
    damaged = set()
    schema = [name for (name,) in all_rows(connection, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for name in sorted({match[1] for each in schema if (match := _TEXT_TABLE.match(each))}):
        fault = structure_fault(connection, text_index.shadows(name))
        if fault or (name in schema and text_index.integrity_fault(connection, name)):
            damaged.add(name)
    vectors = {name for name in schema if name.startswith("vectors_")}
    return damaged | {name for name in vectors if structure_fault(connection, [name])}


def mend_lists(connection: apsw.Connection) -> None:
    """Take entries out of the lists of text indexes and of waiting rows that stand for nothing."""
    with _transaction(connection):
        connection.execute(
            "DELETE FROM pending_vectors WHERE generation <> 0"
            " AND generation NOT IN (SELECT generation FROM embedding_generations WHERE state <> 'retired')"
        ).fetchall()
        for layer in LAYERS:
            connection.execute(
                "DELETE FROM pending_vectors WHERE layer = ? AND slot NOT IN"
                f" (SELECT slot FROM {text_index.ROW_TABLE[layer]} WHERE state <> 'deleted')",
                (layer,),
            ).fetchall()
        listed = all_rows(connection, "SELECT table_name, team_no, layer, state FROM text_indexes")
        teams = {team_no for (team_no,) in all_rows(connection, "SELECT team_no FROM teams")}
        for name, team_no, layer, state in listed:
            if team_no not in teams or name != text_index.table_name(layer, team_no, state):
                connection.execute("DELETE FROM text_indexes WHERE table_name = ?", (name,)).fetchall()
        _list_again(connection, teams)


def _list_again(connection: apsw.Connection, teams: set[int]) -> None:
    """An index that is there and on no list is put back on it, as one of an unknown tokenizer: what is recorded before
    it was made anew then finds it in its place."""
    for layer in LAYERS:
        for team_no in teams:
            name = text_index.table_name(layer, team_no)
            if connection.table_exists("main", name):
                connection.execute(
                    "INSERT OR IGNORE INTO text_indexes (table_name, team_no, layer, state, tokenizer)"
                    " VALUES (?, ?, ?, 'active', '')",
                    (name, team_no, layer),
                ).fetchall()


@contextmanager
def _fresh(path: Path, vfs: str | None) -> Iterator[apsw.Connection]:
    connection = open_connection(
        path, busy_timeout_s=MAINTENANCE_BUSY_TIMEOUT_S, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs
    )
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        yield
        connection.execute("COMMIT").fetchall()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK").fetchall()


def _replace_text_indexes(connection: apsw.Connection, damaged: set[str]) -> None:
    listed = dict(all_rows(connection, "SELECT table_name, state FROM text_indexes"))
    for name in sorted(name for name in damaged if _TEXT_TABLE.match(name)):
        _forget(connection, [name, *text_index.shadows(name)])
        if listed.get(name) == "active":  # what is recorded meanwhile needs a place
            text_index.create_table(connection, name)
        else:
            connection.execute("DELETE FROM text_indexes WHERE table_name = ?", (name,)).fetchall()


def _replace_vectors(connection: apsw.Connection, reading: apsw.Connection, damaged: set[str]) -> None:
    """A vector costs a call of a model: each that can still be read and fits its checksum is kept."""
    for generation, dim in all_rows(connection, "SELECT generation, dim FROM embedding_generations"):
        for layer in LAYERS:
            name = vector_index.table_name(generation, layer)
            if name not in damaged:
                continue
            kept = f"{name}_kept"
            vector_index.create_table(connection, kept)
            for slot, vector, checksum in _readable(reading, generation, layer, dim):
                connection.execute(
                    f"INSERT INTO {kept} (slot, vector, checksum) VALUES (?, ?, ?)", (slot, vector, checksum)
                ).fetchall()
            _forget(connection, [name])
            connection.execute(f"ALTER TABLE {kept} RENAME TO {name}").fetchall()


def _readable(
    connection: apsw.Connection, generation: int, layer: Layer, dim: int
) -> Iterator[tuple[int, bytes, int]]:
    """The sound vectors of a damaged table, sought one by one: a scan would end at the first damaged page."""
    name = vector_index.table_name(generation, layer)
    rows = f"SELECT slot FROM {text_index.ROW_TABLE[layer]} WHERE state <> 'deleted' ORDER BY slot"
    for (slot,) in all_rows(connection, rows):
        try:
            found = all_rows(connection, f"SELECT vector, checksum FROM {name} WHERE slot = ?", (slot,))
        except apsw.CorruptError:
            continue
        for vector, checksum in found:
            if vector_index.fits(generation, layer, slot, vector, checksum, dim):
                yield slot, vector, checksum


def _forget(connection: apsw.Connection, tables: Iterable[str]) -> None:
    connection.pragma("writable_schema", True)
    try:
        version = int(scalar(connection, "PRAGMA schema_version"))
        connection.execute(
            "DELETE FROM sqlite_schema WHERE tbl_name IN (SELECT value FROM json_each(?))",
            (json.dumps(list(tables)),),
        ).fetchall()
        connection.pragma("schema_version", version + 1)  # other connections read the schema anew
    finally:
        connection.pragma("writable_schema", "RESET")  # and so does this one
