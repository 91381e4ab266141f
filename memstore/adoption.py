"""Taking up what day files hold and the database does not: lines whose transaction never committed, and calls that
were accepted while the database could not be written."""

import heapq
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from memstore.fallback import Fallback, Operation
from memstore.operations import (
    apply_operation,
    is_torn,
    line_number,
    message_row,
    pending_rows,
    placed_operation,
    settled_operation,
    units,
    void_operation,
)
from memstore.placing import enqueue_index, insert_rows, place
from memstore.sessions import spoken
from memstore.storage.base import Reader, Writer
from memstore.storage.rows import MessageRow
from memstore.tokenizers import Tokenizers

logger = logging.getLogger("memstore")

Change = Callable[[Writer, Operation], None]
"""Carries out what a line says."""

LAST_NUMBER = "fallback_lines"
"""The store's own setting that holds the number of the last line given out."""


class Adoption:
    """Of one transaction. ``sizes`` says how much of each day's file it contains by now, ``messages`` how many came in.

    :param quarantine: carries out a line of a quarantine, which is about more than the messages that it names.
    """

    def __init__(
        self, tx: Writer, fallback: Fallback, tokenizers: Tokenizers, quarantine: Change = apply_operation
    ) -> None:
        self._tx = tx
        self._quarantine = quarantine
        self._fallback = fallback
        self._tokenizers = tokenizers
        self.sizes: dict[str, int] = {}
        self.messages = 0
        self._known: dict[str, int] = {}  # numbers below it are contained, whatever the mark says

    def take_up(self, days: Collection[str]) -> list[list[Operation]]:
        """Apply lines beyond the marks, numbered ones in the order in which they were written, then pending calls;
        returns the operations that say where messages went, in units that belong together."""
        marks: dict[str, int] = {}
        self._known = {}
        for day in days:
            mark, size = self._tx.fallback_mark(day), self._fallback.size(day)
            if size > mark and taken_up_to(self._tx, self._fallback, day) == mark:
                marks[day], size = mark, self._fallback.settled_size(day)
            elif size != mark:  # cut short or replaced: known by the numbers of its lines, not by its length
                marks[day], size = 0, self._fallback.settled_size(day)
                self._known[day] = last_number(self._tx) + 1
                self._tx.forget_day(day)  # no backup contains what comes to stand there
            self.sizes[day] = size
        if not marks:
            return []
        told: list[list[Operation]] = []
        pending: dict[str, Operation] = {}
        last = contained = last_number(self._tx)
        # What belongs together stands together in one file; between files numbers may have been given out twice.
        files = (units(self._beyond(day, marks[day], pending)) for day in sorted(marks))
        for unit in heapq.merge(*files, key=lambda unit: line_number(unit[0])):
            last = max(last, line_number(unit[-1]))
            if is_torn(unit):
                logger.warning("%d lines of a call that was cut short are left out", len(unit))
                # Else the database has them: a whole copy stands there too, or will.
                if line_number(unit[0]) > contained:
                    told.append([void_operation(unit)])
                continue
            told.extend(self._numbered_line(operation, pending) for operation in unit)
        self._tx.set_meta(LAST_NUMBER, str(last))
        for day in marks:
            self._tx.set_fallback_mark(day, self.sizes[day], self._fallback.tail(day, self.sizes[day]))
        told += [self.settle(call) for call in pending.values()]
        return [unit for unit in told if unit]

    def _numbered_line(self, operation: Operation, pending: dict[str, Operation]) -> list[Operation]:
        if operation["op"] == "message":
            return self._message(message_row(operation))
        if operation["op"] == "settled":
            pending.pop(operation["id"], None)
        elif operation["op"] == "quarantine":
            self._quarantine(self._tx, operation)
        else:
            apply_operation(self._tx, operation)
        return []

    def _beyond(self, day: str, mark: int, pending: dict[str, Operation]) -> Iterator[Operation]:
        """The numbered lines; calls that wait have no number and are put aside."""
        for line in self._fallback.read(day, mark, self.sizes[day]):
            operation = line.operation
            if operation is None:
                logger.warning(
                    "fallback %s, byte %d: %s; skipped", self._fallback.path(day), line.end, line.fault
                )
            elif self._fallback.is_foreign(operation):
                logger.error("fallback %s is another store's; none of it is taken", self._fallback.path(day))
                return
            elif operation["op"] == "pending":
                pending[operation["id"]] = operation
            elif line_number(operation) >= self._known.get(day, 0):
                yield operation

    def _message(self, row: MessageRow) -> list[Operation]:
        tx = self._tx
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
        enqueue_index(tx, row)
        self.messages += 1
        return [placed_operation(row)]

    def settle(self, pending: Operation) -> list[Operation]:
        """Record a call that was only accepted so far; the operations that tell of it."""
        tx = self._tx
        rows = pending_rows(pending)
        first = rows[0]
        of = (first.team_id, first.user_id, first.session)
        if not tx.join(first.team_id, first.user_id, first.recorded_at).is_member:
            reason = f"user {first.user_id!r} is not a member of team {first.team_id!r} any more"
            logger.error("%d messages of the fallback are not taken up: %s", len(rows), reason)
            return [settled_operation(pending, reason)]
        waiting = [row for row in rows if tx.message(row.team_id, row.id) is None]
        if not waiting:  # its lines stood, and so did these
            return [settled_operation(pending)]
        tokenizer = self._tokenizers.of(tx, first.team_id)
        planned, operations = place(
            tx, of, waiting, lambda row: tokenizer.index(spoken(row)), transcript=bool(pending["transcript"])
        )
        self.messages += len(planned.new)
        return [*operations, settled_operation(pending)]


def last_number(tx: Writer) -> int:
    """The number of the last line given out."""
    return int(tx.meta(LAST_NUMBER) or 0)


def taken_up_to(reader: Reader, fallback: Fallback, day: str) -> int:
    """The mark of a day, or 0 where another file has come into the place of the one that was taken up to it."""
    mark, tail = reader.fallback_mark(day), reader.fallback_tail(day)
    if fallback.size(day) < mark or (tail is not None and mark and tail != fallback.tail(day, mark)):
        return 0
    return mark
