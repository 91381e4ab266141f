"""Writing what the fallback covers: rows and their JSONL lines as one, and healing where they parted.

The order inside a write: take the database's write lock, adopt lines that an earlier transaction left behind
without committing, place the new rows, append their lines, sync them, commit. So the fallback always holds at
least what the database holds, and a mark in the same transaction says how much of a day file is contained.
"""

import heapq
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from memstore.clock import Clock
from memstore.fallback import Fallback, Operation
from memstore.sessions import after_messages, new_session, spoken
from memstore.storage.base import MessageRow, SessionRow, Storage, Writer
from memstore.text import IndexTokens
from memstore.tokenizers import Tokenizers

logger = logging.getLogger("memstore")

_DEFAULTS: dict[str, Any] = {
    f.name: f.default
    for f in fields(MessageRow)
    if f.name in ("branch", "live", "state", "hidden", "complete")
}
_COLUMNS = tuple(f.name for f in fields(MessageRow))
_MISSING = object()
LAST_NUMBER = "fallback_lines"
"""The store's own setting that holds the number of the last line given out."""


class Journal:
    """Storage and fallback as one place to write to."""

    def __init__(self, storage: Storage, fallback: Fallback, tokenizers: Tokenizers, clock: Clock) -> None:
        self._storage = storage
        self._fallback = fallback
        self._tokenizers = tokenizers
        self._clock = clock
        self._settled_on: str | None = None  # the day on which other days' files were last looked through

    @contextmanager
    def writing(self) -> Iterator[tuple[Writer, list[Operation]]]:
        """A transaction, and the list of operations that its lines will be made of.

        An error before the commit takes the lines back, while the write lock still keeps others from adopting
        them. An error of the commit itself leaves its outcome unknown: the lines stay, and the next write or
        opening settles them by id.
        """
        with self._storage.write(covered=True) as tx:
            day = self._fallback.day(
                self._clock.now()
            )  # under the lock: so files follow the order of commits
            operations = self._adopt(tx, [day] if day == self._settled_on else {*self._fallback.days(), day})
            adopted = len(operations)
            yield tx, operations
            if operations:
                start, end = self._fallback.append(day, _numbered(tx, operations))
                try:
                    tx.set_fallback_mark(day, end)
                except BaseException:
                    self._fallback.withdraw(day, start, end)
                    raise
        self._settled_on = day
        if adopted:
            logger.warning("adopted %d messages of the fallback that no transaction had committed", adopted)

    def reconcile(self) -> int:
        """Adopt what any day file holds and the database does not; returns how many messages that were."""
        with self._storage.read() as reader:
            days = self._fallback.days()
            behind = any(self._fallback.size(day) > reader.fallback_mark(day) for day in days)
        if not behind:
            self._settled_on = self._fallback.day(self._clock.now())
            return 0
        with self.writing() as (_, placed):
            return len(placed)

    def _adopt(self, tx: Writer, days: Collection[str]) -> list[Operation]:
        """Apply lines beyond the marks, in the order in which they were written; returns the ``placed``
        operations that say where messages went."""
        sizes = {day: self._fallback.size(day) for day in days}
        marks = {day: mark for day in days if (mark := tx.fallback_mark(day)) < sizes[day]}
        if not marks:
            return []
        placed: list[Operation] = []
        last = _last_number(tx)
        for number, operation in heapq.merge(*(self._beyond(day, marks[day]) for day in marks), key=_number):
            last = max(last, number)
            if operation["op"] == "message":
                placed.extend(self._adopt_message(tx, message_row(operation)))
            else:
                apply_operation(tx, operation)
        tx.set_meta(LAST_NUMBER, str(last))
        for day in marks:
            tx.set_fallback_mark(day, sizes[day])
        return placed

    def _beyond(self, day: str, mark: int) -> Iterator[tuple[int, Operation]]:
        for line in self._fallback.read(day, mark):
            if line.operation is None:
                logger.warning(
                    "fallback %s, byte %d: %s; skipped", self._fallback.path(day), line.end, line.fault
                )
            elif self._fallback.is_foreign(line.operation):
                logger.error("fallback %s is another store's; none of it is taken", self._fallback.path(day))
                return
            else:
                yield line.operation.get("n", 0), line.operation

    def _adopt_message(self, tx: Writer, row: MessageRow) -> list[Operation]:
        if tx.message(row.team_id, row.id) is not None:
            return []
        if row.client_id and tx.known_client_ids(row.team_id, row.user_id, row.session, [row.client_id]):
            return []  # the client sent it again, and that copy was stored
        tx.join(row.team_id, row.user_id, row.recorded_at)
        session = tx.session(row.team_id, row.user_id, row.session)
        last_pos = session.last_pos if session else 0
        arrival = max(row.arrival, tx.next_arrivals(row.team_id, row.user_id, 1))
        tx.use_arrival(row.team_id, row.user_id, arrival)
        row = replace(row, pos=max(row.pos, last_pos + 1), arrival=arrival)
        tokenizer = self._tokenizers.of(tx, row.team_id)
        insert_rows(tx, lambda adopted: tokenizer.index(spoken(adopted)), session, [row])
        owner = {"team_id": row.team_id, "user_id": row.user_id}
        tx.enqueue("index", f"index:{row.team_id}:{row.user_id}", owner, row.recorded_at)
        return [
            {"op": "placed", "team_id": row.team_id, "id": row.id, "pos": row.pos, "arrival": row.arrival}
        ]


def _number(numbered: tuple[int, Operation]) -> int:
    return numbered[0]


def _last_number(tx: Writer) -> int:
    return int(tx.meta(LAST_NUMBER) or 0)


def _numbered(tx: Writer, operations: Sequence[Operation]) -> list[Operation]:
    """The operations with their numbers: the order of commits, whatever becomes of the order of lines."""
    last = _last_number(tx)
    tx.set_meta(LAST_NUMBER, str(last + len(operations)))
    return [{"n": number, **operation} for number, operation in enumerate(operations, last + 1)]


def insert_rows(
    tx: Writer,
    tokens: Callable[[MessageRow], IndexTokens],
    session: SessionRow | None,
    rows: Sequence[MessageRow],
) -> SessionRow:
    """Insert placed rows of one session and carry its record forward: the same for recording and rebuilding."""
    tx.insert_messages([(row, tokens(row)) for row in rows])
    base = session or new_session(rows[0])
    updated = after_messages(base, rows)
    tx.put_session(updated)
    return updated


def message_operation(row: MessageRow) -> Operation:
    """A message row as a fallback line: absent members are null or a column's default."""
    operation: Operation = {"op": "message"}
    for name in _COLUMNS:
        value = getattr(row, name)
        if value is not None and _DEFAULTS.get(name, _MISSING) != value:
            operation[name] = value
    return operation


def message_row(operation: Mapping[str, Any]) -> MessageRow:
    """The row of a message line."""
    return MessageRow(**{name: operation[name] for name in _COLUMNS if name in operation})


def apply_operation(tx: Writer, operation: Operation) -> None:
    """Apply an operation other than ``message``; applying one twice changes nothing."""
    match operation:
        case {"op": "live", "change": "fork"}:
            tx.fork_session(
                *_session_of(operation), operation["fork"], operation["from_pos"], operation["to_pos"]
            )
        case {"op": "live", "change": "restore"}:
            tx.restore_messages(*_session_of(operation), operation["ids"])
        case {"op": "live", "change": "clear"}:
            tx.clear_session(*_session_of(operation), operation["to_pos"])
        case {"op": "session"}:
            _apply_session(tx, operation)
        case {"op": "delete"}:
            tx.delete_messages(operation["team_id"], operation["ids"], operation["at"])


def _session_of(operation: Operation) -> tuple[str, str, str]:
    return operation["team_id"], operation["user_id"], operation["session"]


def _apply_session(tx: Writer, operation: Operation) -> None:
    row = tx.session(*_session_of(operation))
    if row is None:
        return
    if operation["hidden"]:
        tx.hide_session(*_session_of(operation), operation["to_pos"])
    tx.put_session(
        replace(
            row,
            title=operation["title"],
            titled_by=operation["titled_by"],
            pinned=operation["pinned"],
            created_at=operation["created_at"],
            hidden=int(operation["hidden"] and row.last_pos <= operation["to_pos"]),
        )
    )


def session_operation(row: SessionRow) -> Operation:
    """A session's record as a fallback line."""
    names = ("team_id", "user_id", "session", "title", "titled_by", "pinned", "hidden", "created_at")
    return {"op": "session", **{name: getattr(row, name) for name in names}, "to_pos": row.last_pos}
