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
``quarantine``  messages of a user put under quarantine, or released from it
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
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from memstore.canonical import ordered_json
from memstore.config import BUSY_TIMEOUT_S
from memstore.errors import FallbackError, LinesLeft
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
    "quarantine": ("team_id", "user_id", "ids", "at", "released", "memories", "asked"),
    "pending": (*_OF_SESSION, "id", "transcript", "messages"),
    "settled": ("team_id", "id"),
    "void": ("first", "last"),
}  # fmt: skip
"""The members that no line of an operation goes without."""
_OF_CHANGE = {"fork": ("fork", "from_pos", "to_pos"), "restore": ("ids",), "clear": ("to_pos",)}
Operation = dict[str, Any]

_POLL_S = 0.001
_PENDING = "pending"
_DAY_FILE = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl\Z", re.ASCII)
"""A copy under another name is none: its old changes would be applied again."""
_HEAD = '{"crc":"'
_BODY_AT = len('{"crc":"00000000",')


TAIL_BYTES = 64
"""So many bytes before a mark are remembered with it: what tells a file that goes on from another one in its place."""


class Appended(NamedTuple):
    """Where lines stand in a day's file: from ``start`` up to ``end``, and the CRC-32 of the last bytes before that."""

    start: int
    end: int
    tail: int


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
    """The folder of day files. Transactions append while they hold the database's write lock, which orders them across
    processes; :meth:`accept` needs no lock but the file's own."""

    def __init__(
        self,
        database: Path,
        zone: ZoneInfo,
        *,
        durable: bool,
        header: Operation | None = None,
        files: Files = SYSTEM_FILES,
        timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self.folder = folder_of(database)
        self._zone = zone
        self._durable = durable
        self._header = header
        self._files = files
        self._timeout_s = timeout_s
        self._ours: dict[str, bytes] = {}  # how day files begin that were looked at and are no other store's
        # Day files, by inode too, whose names this process has synced.
        self._named: set[tuple[str, int]] = set()

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
            with locked(self.path(day), self._timeout_s) as (_, size):
                return size
        except OSError as error:
            raise FallbackError(f"the fallback {self.path(day)} could not be read: {error}") from error

    def is_foreign(self, operation: Operation) -> bool:
        """Whether a line says that its file is another store's."""
        ours = (self._header or {}).get("store_id")
        return operation["op"] == "store" and ours is not None and operation.get("store_id") != ours

    def append(
        self, day: str, operations: Sequence[Operation], expected_size: int | None = None
    ) -> "Appended | None":
        """Append operations in one write, synced when the store is durable; returns where they stand.

        :param expected_size: append only if the file has this size: who holds the database's write lock must not
            pass over lines that another process, which cannot get that lock, has appended meanwhile. None is
            returned then, and nothing was written.
        :raises FallbackError: when not everything could be written, or the file is another store's; then nothing of
            it stays.
        """
        lines = b"".join(encode(operation) for operation in operations)
        try:
            self._make_folder()
            with locked(self.path(day), self._timeout_s) as (descriptor, size):
                if expected_size is not None and size != expected_size:
                    return None
                if size == 0 and self._header is not None:
                    lines = encode(self._header) + lines
                elif size and os.pread(descriptor, 1, size - 1) != b"\n":
                    lines = b"\n" + lines  # a torn last line must not swallow the next one
                self._check_ours(day, descriptor, size)
                self._write_all(day, descriptor, size, lines)
                return Appended(size, size + len(lines), zlib.crc32(lines[-TAIL_BYTES:]))
        except OSError as error:
            raise FallbackError(f"the fallback {self.path(day)} could not be written: {error}") from error

    def _check_ours(self, day: str, descriptor: int, size: int) -> None:
        """Lines behind another store's would be nobody's: neither store takes them up.

        :raises FallbackError: when the file begins with another store's header.
        """
        beginning = os.pread(descriptor, TAIL_BYTES, 0)
        if not size or beginning == self._ours.get(day):
            return
        first = next(read_lines(self.path(day)), None)
        if first is not None and first.operation is not None and self.is_foreign(first.operation):
            raise FallbackError(
                f"{self.path(day)} is another store's; move it beside that store, and nothing is written to it"
            )
        self._ours[day] = beginning

    def tail(self, day: str, end: int) -> int | None:
        """What :class:`Appended` says of the bytes before an offset; None where there are none."""
        try:
            with self.path(day).open("rb") as file:
                file.seek(max(0, end - TAIL_BYTES))
                before = file.read(min(end, TAIL_BYTES))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FallbackError(f"the fallback {self.path(day)} could not be read: {error}") from error
        return zlib.crc32(before) if before else None

    def _write_all(self, day: str, descriptor: int, size: int, lines: bytes) -> None:
        """Write and sync, or leave the file as it was."""
        try:
            written = self._files.write(descriptor, lines)
            if written == len(lines):
                if self._durable:
                    self._files.sync_data(descriptor)
                    self._sync_name(day, descriptor, size)
                return
        except BaseException:
            self._take_back(day, descriptor, size)
            raise
        self._take_back(day, descriptor, size)
        full = OSError(errno.ENOSPC, f"only {written} of {len(lines)} bytes were taken")
        raise FallbackError(f"the fallback cannot take the line: {full.strerror}; the disk is full") from full

    def _take_back(self, day: str, descriptor: int, size: int) -> None:
        """:raises LinesLeft: when the file cannot be cut back to its size."""
        try:
            self._files.truncate(descriptor, size)
        except OSError as error:
            raise LinesLeft(
                f"the fallback {self.path(day)} could neither be written nor cut back ({error}): what was said may come "
                "in later all the same, so look before you say it again"
            ) from error

    def _sync_name(self, day: str, descriptor: int, size: int) -> None:
        """Whoever made the file may have ended before its name was safe, or not have cared for that."""
        file = (day, os.fstat(descriptor).st_ino)
        if not size or file not in self._named:  # a number of an inode is soon given out again
            self._files.sync_folder(self.folder)
            self._files.sync_folder(self.folder.parent)
            self._named.add(file)

    def accept(self, day: str, operation: Operation) -> None:
        """Append a line without holding the database's write lock, and leave a mark for whoever gets it next.

        While calls wait they all go into one day's file, whatever the clock does: their order is that of its lines.

        :raises FallbackError: when it could not be written; then nothing of it stays.
        """
        self.append(self.leave_mark(day), [operation])

    def leave_mark(self, day: str) -> str:
        """Say that a day's file holds lines that no transaction has taken up; returns the day that waiting calls go to.

        :raises FallbackError: when the mark cannot be written.
        """
        try:
            self._make_folder()
            with locked(self.folder / _PENDING, self._timeout_s) as (descriptor, size):
                waiting = named_days(os.pread(descriptor, size, 0))
                day = waiting[-1] if waiting else day
                # Each time, whatever stands there: who looked before must look again.
                self._files.write(descriptor, f"{day}\n".encode())
        except OSError as error:
            raise FallbackError(f"the fallback {self.folder} could not be written: {error}") from error
        return day

    def pending_days(self) -> bytes:
        """The mark that :meth:`accept` leaves, see :func:`named_days`. Empty where nothing waits."""
        mark = self.folder / _PENDING
        try:
            if mark.exists() and not mark.is_file():
                raise FallbackError(f"{mark} is no file: move it away")
            return mark.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise FallbackError(
                f"the fallback {self.folder / _PENDING} could not be read: {error}"
            ) from error

    def clear_pending(self, seen: bytes) -> None:
        """Take the mark away, unless it says more than what was seen."""
        try:
            with locked(self.folder / _PENDING, self._timeout_s) as (descriptor, size):
                if os.pread(descriptor, size, 0) == seen:
                    (self.folder / _PENDING).unlink()
        except OSError as error:  # what it names was taken up: it costs the next write a look, and no line
            logger.warning("the mark %s could not be removed: %s", self.folder / _PENDING, error)

    def withdraw(self, day: str, start: int, end: int) -> None:
        """Take back what this transaction appended, as long as nothing stands behind it."""
        try:
            with locked(self.path(day), self._timeout_s) as (descriptor, size):
                if size == end:
                    self._files.truncate(descriptor, start)
                    if self._durable:  # or the refused line would be back after power loss
                        self._files.sync_data(descriptor)
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


def is_name_of_ours(name: str) -> bool:
    """Whether a file of that name in the folder is a day's or the mark."""
    return name == _PENDING or bool(_DAY_FILE.match(name))


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


def store_of(folder: Path) -> str | None:
    """The id of the store whose newest day file stands in a folder, where it says so."""
    for path in reversed(day_files(folder)):
        first = next(read_lines(path), None)
        if first is not None and first.operation is not None and first.operation["op"] == "store":
            store_id: str = first.operation["store_id"]
            return store_id
    return None


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
            body = raw.removesuffix(b"\n").removesuffix(b"\r")  # an editor may have changed the ends of lines
            if not body:
                continue
            try:
                yield Line(number, end, decode(body))  # whole even where only its end of line is lost
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                torn = "the line has no end: its write was cut off"
                yield Line(number, end, None, torn if body == raw else str(error))


class locked:  # noqa: N801 - reads as a verb at its use
    """An exclusive lock on a day file that is still the file of that name: an erasure may have renamed a new one in.

    :raises TimeoutError: when another process kept it for so long: one that was stopped, or whose disk hangs.
    """

    def __init__(self, path: Path, timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        self._deadline = time.monotonic() + timeout_s
        self._descriptor = -1

    def __enter__(self) -> tuple[int, int]:
        # Non-blocking concerns pipes alone, which are refused below and would wait for someone at the other end.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        while True:
            self._descriptor = os.open(self._path, flags, 0o600)
            try:
                self._lock()
                ours = os.fstat(self._descriptor)
                named = self._path.stat(follow_symlinks=False)
            except FileNotFoundError:
                named = None
            except BaseException:
                os.close(self._descriptor)
                raise
            if named is not None and (named.st_ino, named.st_dev) == (ours.st_ino, ours.st_dev):
                return self._descriptor, ours.st_size
            os.close(self._descriptor)

    def _lock(self) -> None:
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no file: move it away")
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > self._deadline:
                    raise TimeoutError(errno.ETIMEDOUT, "another process keeps it locked") from None
                time.sleep(_POLL_S)  # a lock is held for one append; flock itself knows no deadline
            else:
                return

    def __exit__(self, *_: object) -> Literal[False]:
        os.close(self._descriptor)
        return False
