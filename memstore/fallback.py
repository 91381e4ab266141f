"""The daily JSONL fallback beside the database: ``<database>.fallback/YYYY-MM-DD.jsonl`` (SPEC S7).

A line is one *operation*: a JSON object whose first member ``crc`` is the CRC-32 of the rest of the line, then
``v`` (format version), ``n`` (the line's number in the order of commits, whatever becomes of the order of lines)
and ``op``:

``store``    which store writes here, and its time zone; first line of every day file
``message``  one message row, complete enough to rebuild it identically
``placed``   a message line that was adopted later, with the position and arrival number it then took
``live``     a change of a session's live window: ``fork``, ``restore`` or ``clear``
``session``  title, pin, hidden and creation time of a session
``delete``   messages deleted by id
``pending``  a whole ``record`` call, accepted while the database could not take it; it has no number and no places
``void``     lines numbered ``first`` to ``last`` were cut short by a crash and do not count
``settled``  a pending call was reconciled, in this transaction's own ``message`` and ``live`` lines

A file ``pending`` in the folder names the days that hold lines which no transaction has taken up yet.
"""

import errno
import fcntl
import json
import logging
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from memstore.canonical import ordered_json
from memstore.errors import FallbackError
from memstore.files import SYSTEM_FILES, Files

logger = logging.getLogger("memstore")

FORMAT_VERSION = 1
_OF_SESSION = ("team_id", "user_id", "session")
OPERATIONS: dict[str, tuple[str, ...]] = {
    "store": ("store_id", "timezone"),
    "message": (
        *_OF_SESSION, "id", "agent_id", "pos", "arrival", "role", "content", "checksum", "source_kind", "trust",
        "created_at", "recorded_at",
    ),
    "placed": ("team_id", "id", "pos", "arrival"),
    "live": (*_OF_SESSION, "change"),
    "session": (*_OF_SESSION, "title", "titled_by", "pinned", "hidden", "created_at", "to_pos"),
    "delete": ("team_id", "ids", "at"),
    "pending": (*_OF_SESSION, "id", "transcript", "messages"),
    "settled": ("team_id", "id"),
    "void": ("first", "last"),
}  # fmt: skip
"""The members that no line of an operation goes without."""
_OF_CHANGE = {"fork": ("fork", "from_pos", "to_pos"), "restore": ("ids",), "clear": ("to_pos",)}
Operation = dict[str, Any]

_PENDING = "pending"
_DAY_FILE = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl\Z", re.ASCII)
"""A copy under another name is none: its old changes would be applied again."""
_HEAD = '{"crc":"'
_BODY_AT = len('{"crc":"00000000",')


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a day file: an operation, or the reason why it is none. ``end`` is the offset behind it."""

    number: int
    end: int
    operation: Operation | None
    fault: str | None = None


def encode(operation: Operation) -> bytes:
    """The line of an operation, with its checksum and its end of line."""
    body = ordered_json({"v": FORMAT_VERSION, **operation}, "a fallback line")[1:]
    return f'{_HEAD}{zlib.crc32(body.encode()):08x}",{body}\n'.encode()


def decode(line: bytes) -> Operation:
    """The operation of a line without its end of line.

    :raises ValueError: saying what is wrong with it.
    """
    if not line.startswith(_HEAD.encode()):
        raise ValueError("not a line of the fallback (no checksum)")
    if f"{zlib.crc32(line[_BODY_AT:]):08x}" != line[len(_HEAD) : len(_HEAD) + 8].decode("latin-1"):
        raise ValueError("checksum differs: the line is torn or was changed")
    operation = json.loads(line)
    if operation["v"] > FORMAT_VERSION or operation["op"] not in OPERATIONS:
        raise ValueError(
            f"written by a newer memstore (version {operation['v']}, operation {operation['op']!r})"
        )
    needed = OPERATIONS[operation["op"]] + _OF_CHANGE.get(operation.get("change"), ())
    missing = [name for name in needed if name not in operation]
    if missing:
        raise ValueError(f"the operation {operation['op']!r} lacks {', '.join(missing)}")
    return {key: value for key, value in operation.items() if key not in ("crc", "v")}


class Fallback:
    """The folder of day files. Callers hold the database's write lock, which orders appends across processes."""

    def __init__(
        self,
        database: Path,
        zone: ZoneInfo,
        *,
        durable: bool,
        header: Operation | None = None,
        files: Files = SYSTEM_FILES,
    ) -> None:
        self.folder = folder_of(database)
        self._zone = zone
        self._durable = durable
        self._header = header
        self._files = files
        self._named: set[tuple[str, int]] = (
            set()
        )  # day files, by inode too, whose names this process has synced

    def day(self, now: datetime) -> str:
        """The day file that an instant belongs to, by the store's time zone."""
        try:
            return f"{now.astimezone(self._zone):%Y-%m-%d}"
        except OverflowError:  # the last hours of year 9999, or the first of year 1, are no date there
            return f"{now.astimezone(UTC):%Y-%m-%d}"

    def path(self, day: str) -> Path:
        return self.folder / f"{day}.jsonl"

    def days(self) -> list[str]:
        """Days that have a file, oldest first."""
        return [path.stem for path in day_files(self.folder)]

    def size(self, day: str) -> int:
        """Bytes of a day's file, 0 where there is none."""
        try:
            return self.path(day).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError as error:
            raise FallbackError(f"the fallback {self.path(day)} could not be read: {error}") from error

    def settled_size(self, day: str) -> int:
        """The same, with no append of another process under way."""
        if self.size(day) == 0:
            return 0
        try:
            with locked(self.path(day)) as (_, size):
                return size
        except OSError as error:
            raise FallbackError(f"the fallback {self.path(day)} could not be read: {error}") from error

    def is_foreign(self, operation: Operation) -> bool:
        """Whether a line says that its file is another store's."""
        ours = (self._header or {}).get("store_id")
        return operation["op"] == "store" and ours is not None and operation.get("store_id") != ours

    def append(
        self, day: str, operations: Sequence[Operation], expected_size: int | None = None
    ) -> tuple[int, int] | None:
        """Append operations in one write, synced when the store is durable; returns (start, end) offsets.

        :param expected_size: append only if the file has this size: who holds the database's write lock must not
            pass over lines that another process, which cannot get that lock, has appended meanwhile. None is
            returned then, and nothing was written.
        :raises FallbackError: when not everything could be written; then nothing of it stays.
        """
        lines = b"".join(encode(operation) for operation in operations)
        try:
            self._make_folder()
            with locked(self.path(day)) as (descriptor, size):
                if expected_size is not None and size != expected_size:
                    return None
                if size == 0 and self._header is not None:
                    lines = encode(self._header) + lines
                elif size and os.pread(descriptor, 1, size - 1) != b"\n":
                    lines = b"\n" + lines  # a torn last line must not swallow the next one
                self._write_all(day, descriptor, size, lines)
                return size, size + len(lines)
        except OSError as error:
            raise FallbackError(f"the fallback {self.path(day)} could not be written: {error}") from error

    def _write_all(self, day: str, descriptor: int, size: int, lines: bytes) -> None:
        """Write and sync, or leave the file as it was."""
        try:
            written = self._files.write(descriptor, lines)
            if written == len(lines):
                if self._durable:
                    self._files.sync_data(descriptor)
                    self._sync_name(day, descriptor)
                return
        except BaseException:
            self._files.truncate(descriptor, size)
            raise
        self._files.truncate(descriptor, size)
        full = OSError(errno.ENOSPC, f"only {written} of {len(lines)} bytes were taken")
        raise FallbackError(f"the fallback cannot take the line: {full.strerror}; the disk is full") from full

    def _sync_name(self, day: str, descriptor: int) -> None:
        """Whoever made the file may have ended before its name was safe, or not have cared for that."""
        file = (day, os.fstat(descriptor).st_ino)
        if file not in self._named:
            self._files.sync_folder(self.folder)
            self._files.sync_folder(self.folder.parent)
            self._named.add(file)

    def accept(self, day: str, operation: Operation) -> None:
        """Append a line without holding the database's write lock, and leave a mark for whoever gets it next.

        While calls wait they all go into one day's file, whatever the clock does: their order is that of its lines.

        :raises FallbackError: when it could not be written; then nothing of it stays.
        """
        try:
            self._make_folder()
            with locked(self.folder / _PENDING) as (descriptor, size):
                waiting = named_days(os.pread(descriptor, size, 0))
                day = waiting[-1] if waiting else day
                self._files.write(
                    descriptor, f"{day}\n".encode()
                )  # each time: who looked before must look again
        except OSError as error:
            raise FallbackError(f"the fallback {self.folder} could not be written: {error}") from error
        self.append(day, [operation])

    def pending_days(self) -> bytes:
        """The mark that :meth:`accept` leaves, see :func:`named_days`. Empty where nothing waits."""
        try:
            return (self.folder / _PENDING).read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise FallbackError(
                f"the fallback {self.folder / _PENDING} could not be read: {error}"
            ) from error

    def clear_pending(self, seen: bytes) -> None:
        """Take the mark away, unless it says more than what was seen."""
        try:
            with locked(self.folder / _PENDING) as (descriptor, size):
                if os.pread(descriptor, size, 0) == seen:
                    (self.folder / _PENDING).unlink()
        except OSError as error:  # what it names was taken up: it costs the next write a look, and no line
            logger.warning("the mark %s could not be removed: %s", self.folder / _PENDING, error)

    def withdraw(self, day: str, start: int, end: int) -> None:
        """Take back what this transaction appended, as long as nothing stands behind it."""
        try:
            with locked(self.path(day)) as (descriptor, size):
                if size == end:
                    self._files.truncate(descriptor, start)
                    if self._durable:
                        self._files.sync_data(
                            descriptor
                        )  # or the refused line would be back after power loss
        except OSError as error:
            raise FallbackError(f"the fallback {self.path(day)} could not be written: {error}") from error

    def read(self, day: str, start: int = 0, end: int | None = None) -> Iterator[Line]:
        """The lines of a day between two offsets; a torn last line comes as a fault."""
        for line in read_lines(self.path(day), start):
            if end is not None and line.end > end:
                return
            yield line

    def _make_folder(self) -> None:
        if self.folder.is_symlink():
            raise FallbackError(f"{self.folder} is a symbolic link; the fallback must be a folder of its own")
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, exist_ok=True)


def named_days(mark: bytes) -> list[str]:
    """The days that a mark names, one a line, in the order of writing."""
    days = mark.decode("ascii", errors="replace").split("\n")
    return [day for day in days if _DAY_FILE.match(f"{day}.jsonl")]


def folder_of(database: Path) -> Path:
    """The fallback folder of a database."""
    return Path(f"{database}.fallback")


def day_files(folder: Path) -> list[Path]:
    """The day files of a folder, oldest first."""
    try:
        if not folder.is_dir():
            return []
        return sorted(path for path in folder.iterdir() if _DAY_FILE.match(path.name) and path.is_file())
    except PermissionError as error:
        raise FallbackError(f"{folder} cannot be read: check its owner and mode") from error


def holds_lines(database: Path) -> bool:
    """Whether a fallback with content stands beside a (missing) database."""
    return any(path.stat().st_size for path in day_files(folder_of(database)))


def read_lines(path: Path, start: int = 0) -> Iterator[Line]:
    """Lines by the byte ``\\n`` alone: text may hold other separators that Python would cut at."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        end, number = start, 0
        for raw in file:
            number += 1
            end += len(raw)
            body = raw.removesuffix(b"\n")
            if not body:
                continue
            try:
                yield Line(number, end, decode(body))  # whole even where only its end of line is lost
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                torn = "the line has no end: its write was cut off"
                yield Line(number, end, None, torn if body == raw else str(error))


class locked:  # noqa: N801 - reads as a verb at its use
    """An exclusive lock on a day file that is still the file of that name: an erasure may have renamed a new one in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> tuple[int, int]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            self._descriptor = os.open(self._path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            ours = os.fstat(self._descriptor)
            try:
                named = self._path.stat(follow_symlinks=False)
            except FileNotFoundError:
                named = None
            if named is not None and (named.st_ino, named.st_dev) == (ours.st_ino, ours.st_dev):
                return self._descriptor, ours.st_size
            os.close(self._descriptor)

    def __exit__(self, *_: object) -> Literal[False]:
        os.close(self._descriptor)
        return False
