"""Counting how often each of very many keys comes."""

from typing import TYPE_CHECKING, Any

from memstore.storage.sqlite.connection import driver_errors
from memstore.storage.sqlite.scratch import open_scratch, scratch_name

if TYPE_CHECKING:
    import apsw


class Tally:
    """Counts by key. Memory stays the same however many keys there are: beyond a few megabytes they go to a temporary
    file, some 40 bytes each."""

    def __init__(self) -> None:
        self._connection: apsw.Connection | None = None
        self._name = scratch_name()

    def count(self, key: bytes) -> int:
        """How often the key came, this time included.

        :raises StoreFull: when the temporary folder is full.
        """
        with driver_errors(self._name):
            if self._connection is None:
                self._connection = open_scratch()
                self._connection.execute(
                    "CREATE TABLE seen (key BLOB PRIMARY KEY, times INTEGER) WITHOUT ROWID"
                )
            rows: list[Any] = self._connection.execute(
                "INSERT INTO seen VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET times = times + 1 RETURNING times",
                (key,),
            ).fetchall()
            return int(rows[0][0])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
