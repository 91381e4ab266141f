"""Reading the day files of a fallback for a recovery: every line, whatever became of their order, and none of its text
kept in memory."""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from memstore.canonical import canonical_json, checksum
from memstore.fallback import Line, Operation, day_files, decode, read_lines
from memstore.operations import line_number, message_row
from memstore.skipped import SkippedLines
from memstore.storage.sqlite.staging import Event, Place, Staging
from memstore.tokenizers import FOLD_VARIANTS
from memstore.types import SkippedLine

OPEN_FILES = 64
_HEADER_MARK = b'"op":"store"'
_MARK_WITHIN = 60
"""Bytes at a line's beginning in which the mark of a header stands."""
_WHOLE_NUMBERS = ("pos", "arrival", "trust", "created_at", "recorded_at")


@dataclass(slots=True)
class Collected:
    """What a fallback's day files hold. ``sizes`` are theirs when they were read, by day."""

    staging: Staging
    files: "DayFiles"
    skipped: SkippedLines = field(default_factory=SkippedLines)
    header: Operation | None = None
    folds: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    duplicates: int = 0

    @property
    def last_number(self) -> int:
        return self.staging.last_number

    def operation(self, event: Event) -> Operation:
        """The line of an event, read again."""
        return self.files.operation(event.file, event.start, event.length)

    def pending(self) -> Iterator[Operation]:
        """Calls that were accepted while the database could not take them, and never settled."""
        for place in self.staging.unsettled():
            yield self.files.operation(*place)


class DayFiles:
    """Reads lines again by where they stand, with few files open at a time."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._open: OrderedDict[int, BinaryIO] = OrderedDict()

    def operation(self, file: int, start: int, length: int) -> Operation:
        if file not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            self._open[file] = self.paths[file].open("rb")
        stream = self._open[file]
        stream.seek(start)
        return decode(stream.read(length).strip(b"\n"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for stream in self._open.values():
            stream.close()


def collect(staging: Staging, files: DayFiles) -> Collected:
    """Read every line of every day file and sort them out."""
    found = Collected(staging, files)
    ours = _store_of(files.paths)
    for number, path in enumerate(files.paths):
        found.sizes[path.stem] = path.stat().st_size
        _collect_file(found, number, path, ours)
    found.duplicates = staging.sort_out()
    for file, line in staging.torn():
        reason = "of a call that a crash cut short; no part of it was acknowledged"
        found.skipped.add(SkippedLine(str(files.paths[file]), line, reason))
    staging.place()
    return found


def _collect_file(found: Collected, number: int, path: Path, ours: str | None) -> None:
    headers = _headers(path)
    foreign = bool(headers) and ours not in headers
    start = 0
    for line in read_lines(path):
        found.lines += 1
        fault = line.fault
        if line.operation is not None and line.operation["op"] == "store":
            foreign = line.operation["store_id"] != ours
        if line.operation is not None:
            fault = f"a line of another store than {ours}" if foreign else _fault(line.operation)
        if fault is not None or line.operation is None:
            found.skipped.add(SkippedLine(str(path), line.number, fault or "unreadable"))
        else:
            _sort_out(found, _place_of(found, number, start, line, line.operation), line.operation)
        start = line.end


def _headers(path: Path) -> list[str]:
    """The stores that a file says it is of, found without reading the other lines as JSON."""
    stores = []
    with path.open("rb") as stream:
        for raw in stream:
            if _HEADER_MARK in raw[:_MARK_WITHIN]:
                try:
                    stores.append(str(decode(raw.removesuffix(b"\n"))["store_id"]))
                except (ValueError, KeyError, TypeError, RecursionError):
                    continue  # reported with the other unreadable lines
    return stores


def _store_of(paths: Sequence[Path]) -> str | None:
    """The store that most files are of, and of several with as many the one that comes first."""
    votes = Counter(headers[0] for headers in map(_headers, paths) if headers)
    return votes.most_common(1)[0][0] if votes else None


def _fault(operation: Operation) -> str | None:
    """What is wrong with the members of a line that is otherwise sound: it must not stop what the others rebuild."""
    names = _WHOLE_NUMBERS if operation["op"] == "message" else ()
    for name in names:
        if type(operation[name]) is not int:
            return f"{name} is {operation[name]!r:.40} and no whole number"
    return None


def _place_of(found: Collected, file: int, start: int, line: Line, operation: Operation) -> Place:
    unit = operation.get("unit")
    return Place(
        file=file,
        start=start,
        length=line.end - start,
        line=line.number,
        read=found.lines,
        number=line_number(operation),
        unit=None if unit is None else (unit[0], unit[1]),
    )


def _sort_out(found: Collected, at: Place, operation: Operation) -> None:
    staging = found.staging
    match operation["op"]:
        case "store":
            found.header = found.header or operation
            found.folds = bool(operation.get(FOLD_VARIANTS))  # the last day's holds
        case "message":
            staging.add_message(at, message_row(operation))
        case "placed":
            staging.add_placed(at, *_members(operation, "team_id", "id", "pos", "arrival"))
        case "delete":
            staging.add_deletion(at, *_members(operation, "team_id", "ids", "at"))
        case "pending":
            staging.add_pending(at, operation["id"])
        case "settled":
            staging.add_settled(at, operation["id"])
        case "void":
            staging.add_void(at, *_members(operation, "first", "last"))
        case _:
            digest = checksum(canonical_json(operation))
            staging.add_change(at, digest, *_members(operation, "team_id", "user_id"))


def _members(operation: Operation, *names: str) -> tuple[Any, ...]:
    return tuple(operation[name] for name in names)


def files_of(folder: Path) -> DayFiles:
    """The day files of a fallback folder."""
    return DayFiles(day_files(folder))
