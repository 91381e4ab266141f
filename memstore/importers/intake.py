"""From turns to the store: identity, batches, and the account of every line."""

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, cast
from zoneinfo import ZoneInfo

from memstore.canonical import checksum
from memstore.errors import (
    FallbackError,
    ImportStopped,
    InvalidInput,
    MemstoreError,
    NotPermitted,
    StoreError,
)
from memstore.importers.lines import read_lines
from memstore.importers.turns import Turn, read_turn
from memstore.session_key import SessionKey
from memstore.skipped import SkippedLines
from memstore.storage.sqlite.tally import Tally
from memstore.times import parse_instant
from memstore.types import ImportReport, Message, Progress, Receipt, Role, Scope, SkippedLine, SourceKind

BATCH_LINES = 500
BATCH_BYTES = 8 * 1024 * 1024
PROGRESS_BYTES = 1024 * 1024
AGAIN = "Run the same import again once that is mended: it goes on from there, and nothing is stored twice"
_BUFFERED_MESSAGES = 1_000_000
_BUFFERED_S = 1e6
"""Beyond any batch: one is written when all of it was handed in, not by the buffer's own clock."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Recording(Protocol):
    """What an import needs of a :class:`memstore.buffer.Buffer`."""

    def record(
        self,
        scope: Scope,
        messages: Sequence[Message],
        session: str,
        *,
        source_kind: SourceKind | None = None,
    ) -> Future[Receipt]: ...


class Store(Protocol):
    """What an import needs of a :class:`memstore.store.MemoryStore`, which stands above this module."""

    @property
    def timezone(self) -> ZoneInfo: ...

    def buffered(self, messages: int, seconds: float) -> AbstractContextManager[Recording]: ...

    def set_session(
        self,
        scope: Scope,
        session: str,
        *,
        title: str | None = None,
        pinned: bool | None = None,
        created_at: datetime | str | float | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Placed:
    """A turn with the place it goes to."""

    scope: Scope
    key: SessionKey
    turn: Turn


@dataclass(frozen=True, slots=True)
class _Waiting:
    line: int
    message: Message


_Session = tuple[str, str, str]
"""What the store knows a session by: team, user, key."""


@dataclass(slots=True)
class _Call:
    """Lines of one session and scope, each id once: so a conflict in its receipt is one line's."""

    scope: Scope
    session: str
    lines: list[_Waiting] = field(default_factory=list)
    ids: set[str | None] = field(default_factory=set)

    def takes(self, scope: Scope, message: Message) -> bool:
        return scope == self.scope and message.id not in self.ids

    def add(self, waiting: _Waiting) -> None:
        self.lines.append(waiting)
        self.ids.add(waiting.message.id)


class Intake:
    """One import run.

    Lines go in batches of a few hundred, each one transaction, grouped by session and in order inside each; what waits
    is bounded in number and bytes, whatever the size of the files. Nothing is held of a line that is through.

    :param skipped: is handed every line that could not be used, in the order of the files.
    """

    def __init__(
        self,
        store: Store,
        files: Sequence[Path],
        progress: Progress | None,
        skipped: Callable[[SkippedLine], None] | None = None,
    ) -> None:
        self._store = store
        self._progress = progress
        self._total = sum(size_of(path) for path in files)
        self._finished_bytes = self._done = self._told = 0
        self._calls: list[_Call] = []
        self._last_call: dict[_Session, _Call] = {}
        self._faults: list[SkippedLine] = []
        self._count = self._bytes = 0
        self._file = ""
        self._files = self._read = self._stored = self._known = 0
        self._skipped = SkippedLines(skipped)
        self._empty: list[str] = []

    def file(self, path: Path, place: Callable[[Turn], Placed]) -> int:
        """Import one file; returns how many of its lines the store holds now.

        :param place: says where a turn goes, or raises InvalidInput with the reason why it goes nowhere.
        """
        self._file = shown(path)
        self._files += 1
        held_before = self._stored + self._known
        try:
            stream = path.open("rb")
        except OSError as error:
            self.skip(path, f"the file cannot be opened: {error.strerror}")
        else:
            with stream:
                self._lines(stream, place)
        self._finish(path)
        held = self._stored + self._known - held_before
        if not held:
            self._empty.append(self._file)
        return held

    def _lines(self, stream: BinaryIO, place: Callable[[Turn], Placed]) -> None:
        with Identities() as identities:
            for line in read_lines(stream):
                self._read += 1
                self._reach(self._finished_bytes + line.offset)
                if line.record is None:
                    self._fault(line.number, line.fault or "")
                    continue
                try:
                    placed = place(read_turn(line.record))
                    message = identities.message(placed, self._store.timezone)
                except InvalidInput as error:
                    self._fault(line.number, str(error))
                    continue
                except StoreError as error:  # of the temporary folder
                    raise self._stopped(str(error)) from error
                self._add(placed, _Waiting(line.number, message), line.size)

    def _finish(self, path: Path) -> None:
        self._flush()
        self._finished_bytes += size_of(path)
        self._reach(self._finished_bytes)

    def refuse_file(self, path: Path, reason: str) -> None:
        """Count a file that cannot be imported at all."""
        self._files += 1
        self._empty.append(shown(path))
        self.skip(path, reason)
        self._finish(path)

    def skip(self, path: Path, reason: str) -> None:
        """Report something about a file as a whole: line 0."""
        self._skipped.add(SkippedLine(shown(path), 0, reason))

    def change(self, work: Callable[[], None]) -> None:
        """Change something else in the store as a part of this import.

        :raises ImportStopped: when the store cannot take it.
        """
        try:
            work()
        except (StoreError, FallbackError) as error:
            raise self._stopped(str(error)) from error

    def report(self) -> ImportReport:
        """The account. Except for line 0, which stands for a whole file, every record and every unusable line
        is in exactly one of stored, known and skipped, and they make up ``read``."""
        self._tell(self._total)
        return self._account()

    def _account(self) -> ImportReport:
        return ImportReport(
            files=self._files,
            read=self._read,
            stored=self._stored,
            known=self._known,
            skipped=self._skipped.listed,
            empty_files=tuple(self._empty),
            skipped_lines=self._skipped.count,
        )

    def _stopped(self, reason: str) -> ImportStopped:
        where = f"{self._file}, before line {self._read + 1}" if self._read else self._file
        return ImportStopped(
            f"the import stopped ({where}): {reason}. {self._stored} messages were stored, {self._known} were known. "
            f"{AGAIN}",
            self._account(),
        )

    # --- batches -------------------------------------------------------------------------------------------

    def _add(self, placed: Placed, waiting: _Waiting, size: int) -> None:
        session = (placed.scope.team_id, placed.scope.user_id, str(placed.key))
        call = self._last_call.get(session)
        if call is None or not call.takes(placed.scope, waiting.message):
            call = self._last_call[session] = _Call(placed.scope, str(placed.key))
            self._calls.append(call)
        call.add(waiting)
        self._bytes += size
        self._one_more()

    def _fault(self, line: int, reason: str) -> None:
        self._faults.append(SkippedLine(self._file, line, reason))
        self._one_more()

    def _one_more(self) -> None:
        self._count += 1
        if self._count >= BATCH_LINES or self._bytes >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        calls, self._calls = self._calls, []
        self._last_call.clear()
        self._count = self._bytes = 0
        handed_in: list[tuple[Sequence[_Waiting], Future[Receipt]]] = []
        waits = 0
        failed: MemstoreError | None = None
        try:
            with self._store.buffered(_BUFFERED_MESSAGES, _BUFFERED_S) as buffer:
                for call in calls:
                    self._hand_in(buffer, call, call.lines, handed_in)
        except (StoreError, FallbackError) as error:
            failed = error
        for batch, future in handed_in:
            try:
                waits += self._take_account(batch, future.result())
            except NotPermitted as error:
                self._refuse(batch, str(error))
            except MemstoreError as error:
                failed = failed or error
        for skipped in sorted(self._faults, key=lambda fault: fault.line):
            self._skipped.add(skipped)
        self._faults.clear()
        if failed is not None:
            raise self._stopped(str(failed)) from failed
        if waits:
            raise self._stopped(
                f"the store is short of one of its two places; {waits} messages stand in the other"
            )
        if calls:
            self._tell(self._done)

    def _hand_in(
        self,
        buffer: Recording,
        call: _Call,
        batch: Sequence[_Waiting],
        handed_in: list[tuple[Sequence[_Waiting], Future[Receipt]]],
    ) -> None:
        """The store is the judge of what it takes, and refuses a batch as a whole: it is then halved until the refused
        line stands alone."""
        messages = [waiting.message for waiting in batch]
        try:
            future = buffer.record(call.scope, messages, call.session, source_kind="import")
        except InvalidInput as error:
            if len(batch) == 1:
                self._refuse(batch, str(error))
                return
            middle = len(batch) // 2
            self._hand_in(buffer, call, batch[:middle], handed_in)
            self._hand_in(buffer, call, batch[middle:], handed_in)
        else:
            handed_in.append((batch, future))

    def _refuse(self, batch: Sequence[_Waiting], reason: str) -> None:
        self._faults.extend(SkippedLine(self._file, waiting.line, reason) for waiting in batch)

    def _take_account(self, batch: Sequence[_Waiting], receipt: Receipt) -> int:
        """Count a batch; returns how many messages of it stand in one of the store's two places alone."""
        conflicts = [waiting for waiting in batch if waiting.message.id in receipt.conflicts]
        for waiting in conflicts:
            reason = f"id {waiting.message.id!r:.80} was used before with other content; the first was kept"
            self._refuse([waiting], reason)
        self._stored += receipt.new
        self._known += len(batch) - receipt.new - len(conflicts)
        return receipt.new if receipt.stored != "both" else 0

    def _reach(self, done: int) -> None:
        self._done = done
        if done - self._told >= PROGRESS_BYTES:  # also where nothing is found to record
            self._tell(done)

    def _tell(self, done: int) -> None:
        if self._progress is not None and self._total:
            self._told = done
            self._progress(min(done, self._total), self._total)


class Identities(AbstractContextManager["Identities"]):
    """Client ids of one file's lines.

    A line without an id is known by its content and by how many lines like it stand before it, so that the file
    can be moved, appended to and mended. They are counted on disk: memory does not grow with the file.
    """

    def __init__(self) -> None:
        self._seen = Tally()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._seen.close()

    def message(self, placed: Placed, zone: ZoneInfo) -> Message:
        """:raises InvalidInput: when its time is none, or its content cannot be kept."""
        turn = placed.turn
        if turn.time is not None:
            # The commonest fault: found here, it does not cost its batch the single transaction.
            parse_instant(turn.time, zone)
        return Message(
            role=cast("Role", turn.role),
            content=turn.content,
            id=turn.id or self._derived(placed),
            name=turn.name,
            created_at=turn.time,
            tool_calls=turn.tool_calls,
            tool_call_id=turn.tool_call_id,
            usage=turn.usage,
            meta=turn.meta,
        )

    def _derived(self, placed: Placed) -> str:
        digest = placed.turn.digest(str(placed.key))
        number = self._seen.count(bytes.fromhex(checksum(placed.scope.team_id, placed.scope.user_id, digest)))
        return f"line-{digest}" if number == 1 else f"line-{digest}-{number}"


def size_of(path: Path) -> int:
    """Bytes of a file, 0 where it cannot be asked."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def shown(path: Path) -> str:
    """A path as reports show it: what no terminal or UTF-8 file should be handed is escaped."""
    return _UNPRINTABLE.sub(lambda found: ascii(found.group())[1:-1], os.fspath(path))
