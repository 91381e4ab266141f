"""Writing what the fallback covers: rows and their JSONL lines as one, and healing where they parted.

The order inside a write: take the database's write lock, adopt lines that an earlier transaction left behind
without committing, place the new rows, append their lines, sync them, commit. So the fallback always holds at
least what the database holds, and a mark in the same transaction says how much of a day file is contained.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from memstore.clock import Clock
from memstore.fallback import Fallback, Operation
from memstore.sessions import after_messages, message_text, new_session
from memstore.storage.base import MessageRow, SessionRow, Storage, Writer
from memstore.text import IndexTokens, Tokenizer

logger = logging.getLogger("memstore")

_DEFAULTS: dict[str, Any] = {
    f.name: f.default
    for f in fields(MessageRow)
    if f.name in ("branch", "live", "state", "hidden", "complete")
}
_COLUMNS = tuple(f.name for f in fields(MessageRow))
_MISSING = object()


class Journal:
    """Storage and fallback as one place to write to."""

    def __init__(self, storage: Storage, fallback: Fallback, tokenizer: Tokenizer, clock: Clock) -> None:
        self._storage = storage
        self._fallback = fallback
        self._tokenizer = tokenizer
        self._clock = clock

    @contextmanager
    def writing(self) -> Iterator[tuple[Writer, list[Operation]]]:
        """A transaction, and the list of operations that its lines will be made of.

        An error before the commit takes the lines back. An error of the commit itself leaves its outcome
        unknown: the lines stay, and the next write or opening settles them by id.
        """
        day = self._fallback.day(self._clock.now())
        appended: tuple[int, int] | None = None
        committing = False
        try:
            with self._storage.write(covered=True) as tx:
                operations = self._adopt(tx, day)
                yield tx, operations
                if operations:
                    appended = self._fallback.append(day, operations)
                    tx.set_fallback_mark(day, appended[1])
                committing = True
        except BaseException:
            if appended is not None and not committing:
                self._fallback.withdraw(day, *appended)
            raise

    def reconcile(self) -> int:
        """Adopt what any day file holds and the database does not; returns how many messages that were."""
        with self._storage.read() as reader:
            behind = [
                day for day in self._fallback.days() if self._fallback.size(day) > reader.fallback_mark(day)
            ]
        adopted = 0
        for day in behind:
            with self._storage.write(covered=True) as tx:
                operations = self._adopt(tx, day)
                adopted += sum(operation["op"] == "placed" for operation in operations)
                end = self._fallback.size(day)
                if operations:
                    end = self._fallback.append(day, operations)[1]
                tx.set_fallback_mark(day, end)
        return adopted

    def _adopt(self, tx: Writer, day: str) -> list[Operation]:
        """Apply lines beyond the mark; returns the ``placed`` operations that say where messages went."""
        mark = tx.fallback_mark(day)
        if self._fallback.size(day) <= mark:
            return []
        placed: list[Operation] = []
        for line in self._fallback.read(day, mark):
            if line.operation is None:
                logger.warning(
                    "fallback %s, byte %d: %s; skipped", self._fallback.path(day), line.end, line.fault
                )
            elif line.operation["op"] == "message":
                placed.extend(self._adopt_message(tx, message_row(line.operation)))
            else:
                apply_operation(tx, line.operation)
        if placed:
            logger.warning("adopted %d messages of %s that no transaction had committed", len(placed), day)
        return placed

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
        insert_rows(tx, self._tokens, session, [row])
        return [
            {"op": "placed", "team_id": row.team_id, "id": row.id, "pos": row.pos, "arrival": row.arrival}
        ]

    def _tokens(self, row: MessageRow) -> IndexTokens:
        return self._tokenizer.index(message_text(row))


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
