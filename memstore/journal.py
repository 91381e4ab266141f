"""Writing what the fallback covers: rows and their JSONL lines as one, and healing where they parted.

The order inside a write: take the database's write lock, adopt lines that no transaction has taken up yet, place the
new rows, append their lines, sync them, commit. So the fallback always holds at least what the database holds, and a
mark in the same transaction says how much of a day file is contained.

Where one of the two cannot be written the other one keeps the call: lines that the fallback could not take wait in the
database, a record call that the database could not take waits in the fallback.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, TypeVar

from memstore.adoption import LAST_NUMBER, Adoption, Change, last_number, taken_up_to
from memstore.clock import Clock
from memstore.errors import (
    FallbackError,
    MemstoreError,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreIO,
    StoreUnsound,
)
from memstore.fallback import Appended, Fallback, Operation, named_days
from memstore.grouping import Call, Grouping
from memstore.operations import apply_operation, message_row, placed_operation
from memstore.storage.base import Reader, Storage, Writer
from memstore.tokenizers import Tokenizers
from memstore.types import Stored

logger = logging.getLogger("memstore")

T = TypeVar("T")
Work = Callable[[Writer, list[Operation]], T]
"""What a call does inside a transaction: it changes rows, adds the operations that its lines will be made of, and
returns its result. It is run again when the first transaction came to nothing."""

CANNOT_WRITE = (StoreBusy, StoreFull, StoreIO, StoreUnsound)
"""Faults of an open database after which a message is accepted into the fallback alone."""

MIN_DAY, MAX_DAY = date.min, date.max
OWED_LINES = 500
"""So many lines that the fallback is owed are appended by one write."""


@dataclass(slots=True, eq=False)
class JournalCall(Call[T]):
    """A call on its way through a shared transaction.

    :param stored: where it is now. ``fallback``: its lines are there, the commit failed with ``commit_error``, and
        the next write that succeeds takes them up.
    """

    operations: list[Operation] = field(default_factory=list)
    stored: Stored = "both"
    commit_error: StoreError | None = None


class _CommitFailed(Exception):
    """The lines of a transaction stand in the fallback, and its commit failed."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class Journal:
    """Storage and fallback as one place to write to.

    :param make_room: is given the error of a change that frees room; frees some for it if the error means that there
        is none, and says whether it did. :param quarantine: carries out a line of one that did not commit; without it the
        messages alone are put under quarantine, which is enough where nothing was derived from them.
    """

    def __init__(
        self,
        storage: Storage,
        fallback: Fallback,
        tokenizers: Tokenizers,
        clock: Clock,
        make_room: Callable[[BaseException], bool] = lambda _error: False,
        quarantine: Change = apply_operation,
    ) -> None:
        self._quarantine = quarantine
        self._make_room = make_room
        self._storage = storage
        self._fallback = fallback
        self._tokenizers = tokenizers
        self._clock = clock
        self._settled_on: str | None = None  # the day on which other days' files were last looked through
        self._sizes: dict[str, int] = {}  # of day files when they were last looked through
        self._tried_number = 0  # the highest that this process tried to append
        self._grouping = Grouping(self._carry_out)

    # --- calls ---------------------------------------------------------------------------------------------

    def write(self, works: Sequence[Work[T]]) -> list[JournalCall[T]]:
        """Run pieces of work in one transaction, together with those of other threads that came meanwhile.

        Each ends with a value or an error of its own. An error before the commit takes the lines back, while the
        write lock still keeps other processes from adopting them.
        """
        self._storage.check_open()  # before any lock: a forked child may have inherited one that no one releases
        calls = [JournalCall(work) for work in works]
        self._grouping.submit(calls)
        return calls

    def change(self, work: Work[T], *, frees: bool = False) -> T:
        """A piece of work that is no message: it is made in the database, or it failed.

        :param frees: a full disk must not keep it from being made.
        :raises StoreError: when the database could not take it.
        """
        call = self.write([work])[0]
        error = call.error or call.commit_error
        if frees and error is not None and self._make_room(error):
            if call.commit_error is None:
                call = self.write([work])[0]
            else:  # its lines stand: once they are taken up it is made
                self.reconcile()
                return call.value  # type: ignore[return-value] # it has one
        if call.error is not None:
            raise call.error
        if call.commit_error is not None:
            raise type(call.commit_error)(
                f"{call.commit_error}. The change stands in the fallback: the next write that succeeds makes it"
            ) from call.commit_error
        return call.value  # type: ignore[return-value] # a call without an error has one

    def _carry_out(self, group: list[Call[Any]]) -> None:
        calls = [call for call in group if isinstance(call, JournalCall)]
        try:
            self._commit(calls)
        except (StoreBusy, StoreFull, StoreIO) as error:  # the file's trouble, not one caller's
            for call in calls:
                call.fail(error)
        except Exception as error:  # noqa: BLE001 - carried to the thread whose call it is
            if len(calls) == 1:
                calls[0].fail(error)
                return
            for call in calls:  # one caller's fault is not the others'
                self._carry_out([call])

    def _commit(self, calls: list["JournalCall[Any]"]) -> None:
        try:
            self._covered(calls)
        except _CommitFailed as failed:
            self._take_up_again(calls, failed.error)
        except FallbackError as error:
            self._uncovered(calls)
            logger.warning("%s; the database keeps what the fallback could not take", error)
        for call in calls:
            call.done.set()

    def _take_up_again(self, calls: list["JournalCall[Any]"], error: StoreError) -> None:
        """The lines are safe. Where the fault has passed by, taking them up completes the calls."""
        try:
            self._covered([])
        except (StoreError, FallbackError, _CommitFailed):
            logger.warning("%s; what was said waits in the fallback", error)
            self._leave_mark()
            for call in calls:
                if call.operations:
                    call.stored, call.commit_error = "fallback", error

    def _leave_mark(self) -> None:
        """Whoever writes next looks through every day's file."""
        self._settled_on = None
        try:
            self._fallback.leave_mark(self._fallback.day(self._clock.now()))
        except FallbackError as error:  # this process knows, and any that opens the store looks
            logger.warning("no mark of it could be left: %s", error)

    def _covered(self, calls: list["JournalCall[Any]"]) -> int:
        """One transaction whose lines are synced before its commit; returns how many messages it adopted.

        :raises _CommitFailed: when the lines stand and the commit does not.
        """
        mark: list[tuple[str, int]] = []

        def stands(reader: Reader) -> bool:
            return all(reader.fallback_mark(day) >= end for day, end in mark) and bool(mark)

        waiting = self._fallback.pending_days()
        try:
            with self._storage.write(covered=True, stands=stands) as tx:
                now = self._clock.now()  # under the lock: files follow the order of commits
                day = self._fallback.day(now)
                adoption = Adoption(tx, self._fallback, self._tokenizers, self._quarantine)
                looked_through = day == self._settled_on and not waiting
                told = adoption.take_up(self._changed_days(day) if looked_through else self._all_days(day))
                owed = tx.unwritten_lines(OWED_LINES)
                self._run(tx, calls)
                units = [*told, *(call.operations for call in calls)]
                lines = [*(line for _, line in owed), *_numbered(tx, units)]
                if lines:
                    self._tried_number = lines[-1]["n"]
                    mark.append((day, self._append(tx, adoption, day, lines)))
                if owed:
                    tx.forget_unwritten_lines([number for number, _ in owed])
        except StoreError as error:
            if mark:
                raise _CommitFailed(error) from error
            raise
        self._settled_on = day
        self._sizes |= adoption.sizes
        if waiting:
            self._fallback.clear_pending(waiting)
        if adoption.messages:
            logger.warning(
                "adopted %d messages of the fallback that the database did not have", adoption.messages
            )
        return adoption.messages

    def _all_days(self, day: str) -> set[str]:
        return {*self._fallback.days(), day}

    def _changed_days(self, day: str) -> set[str]:
        """Today, and the days beside it whose files changed: clocks that are set back over midnight, or differ from
        process to process, leave lines there."""
        today = date.fromisoformat(day)
        beside = [str(today + timedelta(days=by)) for by in (-1, 1) if MIN_DAY < today < MAX_DAY]
        return {day, *(one for one in beside if self._fallback.size(one) != self._sizes.get(one, 0))}

    def _uncovered(self, calls: list["JournalCall[Any]"]) -> None:
        """One transaction whose lines the database keeps, synced, until the fallback takes them."""
        kept: list[tuple[int, Operation]] = []

        def stands(reader: Reader) -> bool:
            return bool(kept) and kept[-1] in reader.unwritten_lines(None)

        with self._storage.write(stands=stands) as tx:
            self._run(tx, calls)
            # Half a line, or a whole one that could not be taken back, may stand in the file: numbers that were tried
            # are not given out again, and the place given here holds.
            tx.set_meta(LAST_NUMBER, str(max(last_number(tx), self._tried_number)))
            units = [
                [one for operation in call.operations for one in (operation, *_placed(operation))]
                for call in calls
            ]
            kept += [(line["n"], line) for line in _numbered(tx, units)]
            tx.keep_unwritten_lines(kept)
        for call in calls:
            if call.operations:
                call.stored = "database"

    def _run(self, tx: Writer, calls: list["JournalCall[Any]"]) -> None:
        """Each call by itself: what one was refused, it alone is told. Faults of the file end the transaction."""
        for call in calls:
            call.operations, call.error = [], None
            try:
                with tx.part() if len(calls) > 1 else nullcontext():
                    call.value = call.work(tx, call.operations)
            except MemstoreError as error:
                if len(calls) == 1 or isinstance(error, StoreError | FallbackError):
                    raise
                call.operations, call.error = [], error

    def _append(self, tx: Writer, adoption: Adoption, day: str, lines: list[Operation]) -> int:
        """Append the lines and move the mark behind them; returns where that is."""
        while True:
            where = self._fallback.append(day, lines, expected_size=adoption.sizes[day])
            if where is not None:
                break
            # A process that cannot get the write lock left something meanwhile: it stands before ours.
            lines = [*lines, *_numbered(tx, adoption.take_up([day]))]
        try:
            tx.set_fallback_mark(day, where.end, where.tail)
        except BaseException:
            self._withdraw(day, where)
            raise
        return where.end

    def _withdraw(self, day: str, where: Appended) -> None:
        try:
            self._fallback.withdraw(day, where.start, where.end)
        except FallbackError as error:  # then they are adopted, and known by their ids
            logger.warning("lines of a write that failed could not be taken back: %s", error)

    # --- what the database cannot take ------------------------------------------------------------------------

    def accept(self, pending: Operation) -> None:
        """Keep a whole record call in the fallback alone; the next write of any process takes it up.

        :raises FallbackError: when it cannot be written either.
        """
        self._fallback.accept(self._fallback.day(self._clock.now()), pending)

    def unsettled(self, reader: Reader | None) -> Iterator[Operation]:
        """Pending calls beyond the marks, in the order in which they will be taken up; without a reader those of the days
        that the mark names."""
        if reader is None:
            days = sorted(set(named_days(self._fallback.pending_days())))
        else:
            days = self._fallback.days()
        found: dict[str, Operation] = {}
        for day in days:
            start = 0 if reader is None else taken_up_to(reader, self._fallback, day)
            for line in self._fallback.read(day, start) if self._fallback.size(day) > start else ():
                if line.operation is not None and line.operation["op"] == "pending":
                    found[line.operation["id"]] = line.operation
                elif line.operation is not None and line.operation["op"] == "settled":
                    found.pop(line.operation["id"], None)
        yield from found.values()

    def settle(self, pending: Iterable[Operation]) -> int:
        """Take up calls that stand before the marks, such as those of a rebuilt database; returns how many messages
        they brought."""
        calls = list(pending)

        def work(tx: Writer, operations: list[Operation]) -> int:
            adoption = Adoption(tx, self._fallback, self._tokenizers, self._quarantine)
            for call in calls:
                operations += adoption.settle(call)
            return adoption.messages

        return self.change(work) if calls else 0

    def reconcile(self) -> int:
        """Adopt what any day file holds and the database does not, and append what the fallback is owed; returns how
        many messages were adopted."""
        adopted = 0
        while self._parted():
            self._settled_on = None
            with self._grouping.leading:
                adopted += self._covered_or_error()
        self._settled_on = self._fallback.day(self._clock.now())
        return adopted

    def _covered_or_error(self) -> int:
        try:
            return self._covered([])
        except _CommitFailed as failed:
            raise failed.error from failed

    def _parted(self) -> bool:
        with self._storage.read() as reader:
            days = self._fallback.days()
            parted = any(self._fallback.size(day) != reader.fallback_mark(day) for day in days)
            return parted or bool(reader.unwritten_lines(1))


def _placed(operation: Operation) -> list[Operation]:
    return [placed_operation(message_row(operation))] if operation["op"] == "message" else []


def _numbered(tx: Writer, units: Sequence[Sequence[Operation]]) -> list[Operation]:
    """The operations with their numbers: the order of commits, whatever becomes of the order of lines. What belongs
    together says so: of a call whose lines were cut short nothing counts."""
    lines: list[Operation] = []
    first = last_number(tx) + 1
    for unit in units:
        together = {"unit": [first + len(lines), len(unit)]} if len(unit) > 1 else {}
        lines += [{"n": first + len(lines) + i, **together, **operation} for i, operation in enumerate(unit)]
    if lines:
        tx.set_meta(LAST_NUMBER, str(lines[-1]["n"]))
    return lines
