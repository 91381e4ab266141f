"""From turns to the store: identity, batches, and the account of every line."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Protocol, cast
from zoneinfo import ZoneInfo

from memstore.errors import InvalidInput, NotPermitted
from memstore.importers.lines import read_lines
from memstore.importers.turns import Turn, read_turn
from memstore.session_key import SessionKey
from memstore.times import parse_instant
from memstore.types import ImportReport, Message, Progress, Receipt, Role, Scope, SkippedLine, SourceKind

BATCH_MESSAGES = 500
BATCH_BYTES = 8 * 1024 * 1024
PROGRESS_BYTES = 1024 * 1024

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Store(Protocol):
    """What an import needs of a :class:`memstore.store.MemoryStore`, which stands above this module."""

    @property
    def timezone(self) -> ZoneInfo: ...

    def record(
        self,
        scope: Scope,
        messages: Sequence[Message],
        session: str,
        *,
        source_kind: SourceKind | None = None,
    ) -> Receipt: ...

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


class Intake:
    """One import run.

    Lines wait in batches of a few hundred, grouped by session and in order inside each; what waits is bounded
    in number and bytes, whatever the size of the files.
    """

    def __init__(self, store: Store, files: Sequence[Path], progress: Progress | None) -> None:
        self._store = store
        self._progress = progress
        self._total = sum(size_of(path) for path in files)
        self._finished_bytes = self._done = self._told = 0
        self._groups: dict[_Session, tuple[Scope, list[_Waiting]]] = {}
        self._ids: set[tuple[_Session, str | None]] = set()
        self._count = self._bytes = 0
        self._file = ""
        self._files = self._read = self._stored = self._known = 0
        self._skipped: list[SkippedLine] = []
        self._empty: list[str] = []

    def file(self, path: Path, place: Callable[[Turn], Placed]) -> int:
        """Import one file; returns how many of its lines the store holds now.

        :param place: says where a turn goes, or raises InvalidInput with the reason why it goes nowhere.
        """
        self._file = shown(path)
        self._files += 1
        held_before, skipped_before = self._stored + self._known, len(self._skipped)
        try:
            stream = path.open("rb")
        except OSError as error:
            self.skip(path, f"the file cannot be opened: {error.strerror}")
        else:
            with stream:
                self._lines(stream, place)
        self._finish(path)
        self._skipped[skipped_before:] = sorted(self._skipped[skipped_before:], key=lambda s: s.line)
        held = self._stored + self._known - held_before
        if not held:
            self._empty.append(self._file)
        return held

    def _lines(self, stream: BinaryIO, place: Callable[[Turn], Placed]) -> None:
        identities = Identities()
        for line in read_lines(stream):
            self._read += 1
            self._reach(self._finished_bytes + line.offset)
            if line.record is None:
                self._skip_line(line.number, line.fault or "")
                continue
            try:
                placed = place(read_turn(line.record))
                message = identities.message(placed, self._store.timezone)
            except InvalidInput as error:
                self._skip_line(line.number, str(error))
                continue
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
        self._skipped.append(SkippedLine(shown(path), 0, reason))

    def report(self) -> ImportReport:
        """The account. Except for line 0, which stands for a whole file, every record and every unusable line
        is in exactly one of stored, known and skipped, and they make up ``read``."""
        self._tell(self._total)
        return ImportReport(
            files=self._files,
            read=self._read,
            stored=self._stored,
            known=self._known,
            skipped=tuple(self._skipped),
            empty_files=tuple(self._empty),
        )

    def _add(self, placed: Placed, waiting: _Waiting, size: int) -> None:
        session = (placed.scope.team_id, placed.scope.user_id, str(placed.key))
        identity = (session, waiting.message.id)
        scope, _ = self._groups.get(session, (placed.scope, []))
        # One record call has one scope, and each id once, so that a conflict in its receipt is one line's.
        if identity in self._ids or scope != placed.scope:
            self._flush()
        self._ids.add(identity)
        self._groups.setdefault(session, (placed.scope, []))[1].append(waiting)
        self._count += 1
        self._bytes += size
        if self._count >= BATCH_MESSAGES or self._bytes >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        groups, self._groups = self._groups, {}
        self._ids.clear()
        self._count = self._bytes = 0
        for (_, _, key), (scope, batch) in groups.items():
            self._record(scope, key, batch)
        if groups:
            self._tell(self._done)

    def _record(self, scope: Scope, session: str, batch: Sequence[_Waiting]) -> None:
        """Record a batch. The store is the judge of what it takes, and refuses a batch as a whole: it is then
        halved until the refused line stands alone."""
        try:
            receipt = self._store.record(scope, [w.message for w in batch], session, source_kind="import")
        except NotPermitted as error:
            for waiting in batch:
                self._skip_line(waiting.line, str(error))
            return
        except InvalidInput as error:
            if len(batch) == 1:
                self._skip_line(batch[0].line, str(error))
                return
            middle = len(batch) // 2
            self._record(scope, session, batch[:middle])
            self._record(scope, session, batch[middle:])
            return
        conflicts = [waiting for waiting in batch if waiting.message.id in receipt.conflicts]
        for waiting in conflicts:
            self._skip_line(
                waiting.line,
                f"id {waiting.message.id!r:.80} was used before with other content; the first was kept",
            )
        self._stored += receipt.new
        self._known += len(batch) - receipt.new - len(conflicts)

    def _skip_line(self, line: int, reason: str) -> None:
        self._skipped.append(SkippedLine(self._file, line, reason))

    def _reach(self, done: int) -> None:
        self._done = done
        if done - self._told >= PROGRESS_BYTES:  # also where nothing is found to record
            self._tell(done)

    def _tell(self, done: int) -> None:
        if self._progress is not None and self._total:
            self._told = done
            self._progress(min(done, self._total), self._total)


class Identities:
    """Client ids of one file's lines.

    A line without an id is known by its content and by how many lines like it stand before it, so that the file
    can be moved, appended to and mended. For counting, 8 bytes of hash are kept a line (some 100 bytes in a
    dict): 10 MB for 100,000 lines without ids, nothing for lines with ids.
    """

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

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
        counted = hash((placed.scope.team_id, placed.scope.user_id, digest))
        number = self._seen[counted] = self._seen.get(counted, 0) + 1
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
