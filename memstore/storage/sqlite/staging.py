"""What a recovery found, sorted on disk: where every line stands and what decides its place, never its text.

Memory stays the same however many lines there are; some 300 bytes a message go to SQLite's temporary folder.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from memstore.storage.rows import MessageRow
from memstore.storage.sqlite.connection import driver_errors
from memstore.storage.sqlite.scratch import open_scratch, scratch_name

_SCHEMA = """
CREATE TABLE messages (
  team_id, user_id, session, id, client_id, pos, arrival, recorded_at,
  number, place, first, count, file, start, length, line, PRIMARY KEY (team_id, id)
) WITHOUT ROWID;
CREATE TABLE placed (team_id, id, pos, arrival, number, first, count, PRIMARY KEY (team_id, id)) WITHOUT ROWID;
CREATE TABLE changes (
  number, place, digest, team_id, user_id, first, count, file, start, length, line, PRIMARY KEY (number, place)
) WITHOUT ROWID;
CREATE TABLE deletions (number, place, team_id, id, deleted_at, first, count, PRIMARY KEY (team_id, id, number, place))
  WITHOUT ROWID;
CREATE TABLE pending (id PRIMARY KEY, place, file, start, length) WITHOUT ROWID;
CREATE TABLE settled (id, first, count);
CREATE TABLE units (first, count, last, PRIMARY KEY (first, count)) WITHOUT ROWID;
CREATE TABLE voids (first, last);
"""

_INDEXES = """
CREATE INDEX of_client ON messages (team_id, user_id, session, client_id) WHERE client_id IS NOT NULL;
CREATE INDEX in_order ON messages (team_id, user_id, number, place);
CREATE INDEX changes_in_order ON changes (team_id, user_id, number, place);
"""

_TORN = """
CREATE TABLE torn AS SELECT first, count FROM units u WHERE last < first + count - 1 AND (
  last = ?1 OR EXISTS (SELECT 1 FROM voids v WHERE v.first <= u.last AND v.last >= u.first));
"""
"""A unit without its last line was cut short by a crash if it is the last of all, or if whoever opened the store after
the crash said so; else the file was damaged later, and what is sound of it counts."""

_RESENT = """
DELETE FROM messages AS m WHERE m.client_id IS NOT NULL AND EXISTS (
  SELECT 1 FROM messages l WHERE l.team_id = m.team_id AND l.user_id = m.user_id AND l.session = m.session
     AND l.client_id = m.client_id AND (l.number, l.place) > (m.number, m.place));
"""
"""Never committed, and sent again by the client under the same id."""

_CLAIMS = """
CREATE TABLE displaced AS
SELECT team_id, user_id, session, id, number, place FROM (
  SELECT *, row_number() OVER (PARTITION BY team_id, user_id, session, pos ORDER BY number DESC, place DESC) AS at_pos,
            row_number() OVER (PARTITION BY team_id, user_id, arrival ORDER BY number DESC, place DESC) AS at_arrival
    FROM messages) WHERE at_pos > 1 OR at_arrival > 1;
CREATE UNIQUE INDEX displaced_id ON displaced (team_id, id);
UPDATE messages AS m SET pos = d.pos, arrival = d.arrival FROM (
  SELECT team_id, id,
    row_number() OVER (PARTITION BY team_id, user_id, session ORDER BY number, place)
      + (SELECT coalesce(max(k.pos), 0) FROM messages k
          WHERE k.team_id = x.team_id AND k.user_id = x.user_id AND k.session = x.session AND NOT EXISTS (
            SELECT 1 FROM displaced y WHERE y.team_id = k.team_id AND y.id = k.id)) AS pos,
    row_number() OVER (PARTITION BY team_id, user_id ORDER BY number, place)
      + (SELECT coalesce(max(k.arrival), 0) FROM messages k
          WHERE k.team_id = x.team_id AND k.user_id = x.user_id AND NOT EXISTS (
            SELECT 1 FROM displaced y WHERE y.team_id = k.team_id AND y.id = k.id)) AS arrival
    FROM displaced x) AS d WHERE m.team_id = d.team_id AND m.id = d.id;
"""
"""Where two lines claim one position or arrival number the later keeps it; the other goes to the end, as a message that
no transaction ever placed."""

_EVENTS = """
SELECT m.number, m.place, 0 AS kind, m.file, m.start, m.length, m.pos, m.arrival, NULL, NULL,
       EXISTS (SELECT 1 FROM deletions d WHERE d.team_id = m.team_id AND d.id = m.id)
  FROM messages m WHERE m.team_id = ?1 AND m.user_id = ?2
UNION ALL
SELECT number, place, 1, file, start, length, NULL, NULL, NULL, NULL, 0
  FROM changes WHERE team_id = ?1 AND user_id = ?2
UNION ALL
SELECT d.number, d.place, 2, NULL, NULL, NULL, NULL, NULL, d.id, d.deleted_at, 0
  FROM messages m CROSS JOIN deletions d ON d.team_id = m.team_id AND d.id = m.id
 WHERE m.team_id = ?1 AND m.user_id = ?2
ORDER BY 1, 2, 3
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line stands, and where in the order of all.

    :param number: the line's own, 0 for one without.
    :param read: counts lines as they were read.
    :param unit: the (first number, count) of the lines that it belongs together with.
    """

    file: int
    start: int
    length: int
    line: int
    read: int
    number: int
    unit: tuple[int, int] | None

    @property
    def order(self) -> tuple[int, int]:
        """A number gives a line's place whatever became of the order of lines; without one it is where it was read."""
        return self.number, 0 if self.number else self.read


@dataclass(frozen=True, slots=True)
class Owner:
    """A user with the time of the first message."""

    team_id: str
    user_id: str
    since: int


@dataclass(frozen=True, slots=True)
class Event:
    """One thing to replay. A ``message`` with the place that it takes in the end; a ``deletion`` names one message.

    :param kept: False for a message that a later event deletes.
    """

    kind: Literal["message", "change", "deletion"]
    file: int = 0
    start: int = 0
    length: int = 0
    pos: int = 0
    arrival: int = 0
    id: str = ""
    deleted_at: int = 0
    kept: bool = True


class Staging(AbstractContextManager["Staging"]):
    """Lines go in in any order; after :meth:`sort_out` they come out in theirs.

    :raises StoreFull: from any method, when the temporary folder is full.
    """

    def __init__(self) -> None:
        self._name = scratch_name()
        with driver_errors(self._name):
            self._connection = open_scratch()
            self._run_all(_SCHEMA)
        self.last_number = 0
        self._messages = 0

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _run(self, statement: str, bindings: Sequence[Any] = ()) -> list[Any]:
        with driver_errors(self._name):
            return self._connection.execute(statement, tuple(bindings)).fetchall()

    def _run_all(self, script: str) -> None:
        self._connection.execute(script).fetchall()

    # --- lines in ------------------------------------------------------------------------------------------

    def _note(self, at: Place) -> tuple[int | None, int | None]:
        """The line's number and unit; returns the unit's columns."""
        self.last_number = max(self.last_number, at.number)
        if at.unit is None:
            return None, None
        self._run(
            "INSERT INTO units VALUES (?, ?, ?) ON CONFLICT (first, count) DO UPDATE SET last = max(last, excluded.last)",
            (*at.unit, at.number),
        )
        return at.unit

    def add_message(self, at: Place, row: MessageRow) -> None:
        """The first copy of a message counts: lines are adopted in their order, so its place stays its own."""
        unit = self._note(at)
        self._messages += 1
        self._run(
            "INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(row.team_id, row.user_id, row.session, row.id, row.client_id, row.pos, row.arrival),
                *(row.recorded_at, *at.order, *unit, at.file, at.start, at.length, at.line),
            ),
        )

    def add_placed(self, at: Place, team_id: str, message_id: str, pos: int, arrival: int) -> None:
        """Where a message went later; the last such line counts."""
        unit = self._note(at)
        self._run(
            "INSERT INTO placed VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (team_id, id) DO UPDATE SET"
            " pos = excluded.pos, arrival = excluded.arrival, number = excluded.number, first = excluded.first,"
            " count = excluded.count WHERE excluded.number >= number",
            (team_id, message_id, pos, arrival, at.number, *unit),
        )

    def add_change(self, at: Place, digest: str, team_id: str, user_id: str) -> None:
        """Of an owner's sessions. A copy counts once; one of another content is none: its number was given out twice."""
        unit = self._note(at)
        number, place = at.order
        held = self._run("SELECT digest FROM changes WHERE number = ? AND place = ?", (number, place))
        if held and held[0][0] != digest:
            place = at.read
        self._run(
            "INSERT OR IGNORE INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, place, digest, team_id, user_id, *unit, at.file, at.start, at.length, at.line),
        )

    def add_deletion(self, at: Place, team_id: str, ids: Sequence[str], deleted_at: int) -> None:
        unit = self._note(at)
        with driver_errors(self._name):
            self._connection.executemany(
                "INSERT OR IGNORE INTO deletions VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(*at.order, team_id, one, deleted_at, *unit) for one in ids],
            ).fetchall()

    def add_pending(self, at: Place, call_id: str) -> None:
        self._note(at)
        self._run(
            "INSERT OR IGNORE INTO pending VALUES (?, ?, ?, ?, ?)",
            (call_id, at.read, at.file, at.start, at.length),
        )

    def add_settled(self, at: Place, call_id: str) -> None:
        self._run("INSERT INTO settled VALUES (?, ?, ?)", (call_id, *self._note(at)))

    def add_void(self, at: Place, first: int, last: int) -> None:
        self._note(at)
        self._run("INSERT INTO voids VALUES (?, ?)", (first, last))

    # --- sorted out ----------------------------------------------------------------------------------------

    def sort_out(self) -> int:
        """Decide what counts and where it goes; returns how many lines of messages were copies of others."""
        copies = self._messages - self.count()
        with driver_errors(self._name):
            self._run(_TORN, (self.last_number,))
            self._run("CREATE UNIQUE INDEX torn_unit ON torn (first, count)")
        return copies

    def torn(self) -> Iterator[tuple[int, int]]:
        """(file, line) of the messages whose call was cut short by a crash: none of it counts."""
        yield from self._run(
            "SELECT m.file, m.line FROM messages m JOIN torn USING (first, count) ORDER BY m.file, m.line"
        )

    def newly_torn(self) -> list[tuple[int, int]]:
        """(first, last) numbers of those calls of which no line says so yet."""
        return self._run(
            "SELECT u.first, u.last FROM torn t JOIN units u USING (first, count) WHERE NOT EXISTS ("
            "   SELECT 1 FROM voids v WHERE v.first <= u.last AND v.last >= u.first) ORDER BY u.first"
        )

    def place(self) -> None:
        """Leave out what does not count, and give every message its place."""
        with driver_errors(self._name):
            for table in ("messages", "placed", "changes", "deletions", "settled"):
                self._run(
                    f"DELETE FROM {table} WHERE first IS NOT NULL AND (first, count) IN (SELECT * FROM torn)"
                )
            self._run(
                "UPDATE messages AS m SET pos = p.pos, arrival = p.arrival FROM placed p"
                " WHERE p.team_id = m.team_id AND p.id = m.id"
            )
            self._run_all(_INDEXES)
            self._run_all(_RESENT)
            self._run_all(_CLAIMS)

    def count(self) -> int:
        """How many messages there are."""
        return int(self._run("SELECT count(*) FROM messages")[0][0])

    def owners(self) -> list[Owner]:
        """In the order of their first messages: the first of a team is its admin."""
        rows = self._run(
            "SELECT team_id, user_id, recorded_at FROM (SELECT *, row_number() OVER ("
            "   PARTITION BY team_id, user_id ORDER BY number, place) AS nth FROM messages)"
            " WHERE nth = 1 ORDER BY number, place"
        )
        return [Owner(*row) for row in rows]

    def events(self, owner: Owner) -> Iterator[Event]:
        """What becomes of an owner's rows, in order."""
        with driver_errors(self._name):
            for _, _, kind, *columns in self._connection.execute(_EVENTS, (owner.team_id, owner.user_id)):
                file, start, length, pos, arrival, one, deleted_at, deleted = columns
                if kind == 0:
                    yield Event("message", file, start, length, pos, arrival, kept=not deleted)
                elif kind == 1:
                    yield Event("change", file, start, length)
                else:
                    yield Event("deletion", id=one, deleted_at=deleted_at)

    def unsettled(self) -> list[tuple[int, int, int]]:
        """(file, start, length) of the calls that no line says were settled, in the order in which they came."""
        return self._run(
            "SELECT file, start, length FROM pending WHERE id NOT IN (SELECT id FROM settled) ORDER BY place"
        )
