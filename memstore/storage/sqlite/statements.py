"""Running statements, and the columns that rows are made of."""

from collections.abc import Sequence
from typing import Any

import apsw

from memstore.storage.pipeline_rows import ProfileRow, RunRow, SceneRow, VerdictRow
from memstore.storage.rows import MemoryRow, MessageRow, SessionRow, TraceRow, column_names

MESSAGE_COLUMNS = column_names(MessageRow)
MEMORY_COLUMNS = column_names(MemoryRow)
SESSION_COLUMNS = column_names(SessionRow)
TRACE_COLUMNS = column_names(TraceRow)
RUN_COLUMNS = column_names(RunRow)
VERDICT_COLUMNS = column_names(VerdictRow)
SCENE_COLUMNS = column_names(SceneRow)
PROFILE_COLUMNS = column_names(ProfileRow)

MESSAGES = ", ".join(f"m.{name}" for name in MESSAGE_COLUMNS)
MEMORIES = ", ".join("h.created_at" if name == "created_at" else f"m.{name}" for name in MEMORY_COLUMNS)
MEMORY_FROM = "memory_versions m JOIN memories h ON h.team_id = m.team_id AND h.id = m.id"
SESSIONS = ", ".join(f"s.{name}" for name in SESSION_COLUMNS)
TRACES = ", ".join(TRACE_COLUMNS)
RUNS = ", ".join(RUN_COLUMNS)
VERDICTS = ", ".join(VERDICT_COLUMNS)
SCENES = ", ".join(SCENE_COLUMNS)
PROFILES = ", ".join(PROFILE_COLUMNS)


class Statements:
    """Statements of one snapshot or transaction."""

    _connection: apsw.Connection

    def _rows(self, statement: str, bindings: Sequence[Any] = ()) -> list[Any]:
        rows: list[Any] = self._connection.execute(statement, tuple(bindings)).fetchall()
        return rows

    def _value(self, statement: str, bindings: Sequence[Any] = ()) -> Any:
        rows = self._rows(statement, bindings)
        return rows[0][0] if rows else None


class Changes(Statements):
    """Statements that change rows, in one transaction."""

    def _run(self, statement: str, bindings: Sequence[Any] = ()) -> int:
        """Execute, and return how many rows the statement changed."""
        self._connection.execute(statement, tuple(bindings)).fetchall()
        return self._connection.changes()


def insert_sql(table: str, columns: Sequence[str]) -> str:
    """A statement that inserts one row."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def values_of(row: object, columns: Sequence[str]) -> list[Any]:
    """A row's values in the order of the columns."""
    return [getattr(row, column) for column in columns]
