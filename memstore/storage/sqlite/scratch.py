"""A private database for work that is larger than memory should hold: it lies in SQLite's temporary folder, has no
name there, and is gone with its connection, however that ends."""

import apsw

from memstore.config import sqlite_temporary_folder

CACHE_KIB = 16_384


def open_scratch() -> apsw.Connection:
    """An empty database that nobody else can open. What fits into its cache is never written."""
    connection = apsw.Connection("")
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("journal_mode", "off")  # nothing of it is ever rolled back
    connection.pragma("synchronous", 0)
    connection.execute(
        "BEGIN"
    ).fetchall()  # one transaction that never ends: a commit would write what changed
    return connection


def scratch_name() -> str:
    """What errors call it."""
    return f"the temporary folder {sqlite_temporary_folder()}"
