"""A database made anew from a backup. What the fallback beside it holds beyond that is adopted when it is opened."""

import os
from dataclasses import dataclass
from pathlib import Path

from memstore.backup import digest, instant_of, unpack
from memstore.errors import BackupUnsound, StoreExists, StoreIO, StoreMissing, StoreUnsound
from memstore.fallback import day_files, folder_of, read_lines
from memstore.files import Files, alone_in
from memstore.paths import quoted
from memstore.recovery import set_log_aside
from memstore.storage.base import BackupRow
from memstore.storage.sqlite import SqliteStorage
from memstore.storage.sqlite.connection import from_os_error
from memstore.storage.sqlite.copying import Copy, Facts, check_room, set_marks
from memstore.times import to_micros
from memstore.types import Progress, RestoreReport

_MAGIC = b"\x1f\x8b"
_LENGTH_BYTES = 4
"""Of a gzip file's end: how long its content is, modulo 2^32."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A backup that stands at its target. ``lost_lines`` as in :class:`memstore.types.RestoreReport`."""

    source: Path
    facts: Facts
    bytes: int
    sha256: str
    lost_lines: int

    def row(self, now: int) -> BackupRow:
        """The record of this backup, which it could not hold itself."""
        taken = instant_of(self.source)
        return BackupRow(
            path=str(self.source),
            taken_at=self.facts.recorded_to if taken is None else to_micros(taken),
            bytes=self.bytes,
            sha256=self.sha256,
            verified_at=now,
        )

    def report(self, target: Path, adopted: int) -> RestoreReport:
        return RestoreReport(
            path=str(target),
            backup=str(self.source),
            schema_version=self.facts.schema_version,
            messages=self.facts.messages,
            memories=self.facts.memories,
            adopted=adopted,
            lost_lines=self.lost_lines,
        )


def restore(source: Path, target: Path, files: Files, progress: Progress | None = None) -> Restored:
    """See :meth:`memstore.store.MemoryStore.restore`."""
    _check_ends(source, target)
    building = target.parent / f".{target.name}.restoring"
    leftovers = (building, Path(f"{building}-wal"), Path(f"{building}-shm"))
    try:
        with alone_in(target.parent, "restore or upgrade"):
            try:
                check_room([(target.parent, _unpacked_size(source))], f"restoring {source}")
                unpack(source, building, files, progress or (lambda _done, _total: None))
                facts = _checked(source, building)
                lost = _settle_with_fallback(target, building, facts)
                set_log_aside(target)
                SqliteStorage.publish(building, target)
            finally:
                for leftover in leftovers:
                    leftover.unlink(missing_ok=True)
    except OSError as error:
        raise from_os_error(error, target) from error
    return Restored(source, facts, source.stat().st_size, digest(source), lost)


def _check_ends(source: Path, target: Path) -> None:
    if not source.is_file():
        raise StoreMissing(f"there is no backup {source}")
    if os.path.lexists(target):
        raise StoreExists(
            f"{target} exists and is never written over; move it away, or restore to another place, where what was "
            f"recorded since is missing: memstore restore {quoted(source)} --db NEW.db"
        )
    if not target.parent.is_dir():
        raise StoreIO(f"the folder {target.parent} does not exist; make it first")


def _unpacked_size(source: Path) -> int:
    """What it takes at least, by its own word; 0 where it is no gzip file."""
    with source.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return 0
        file.seek(max(0, source.stat().st_size - _LENGTH_BYTES))
        return int.from_bytes(file.read(_LENGTH_BYTES), "little")


def _checked(source: Path, building: Path) -> Facts:
    """:raises BackupUnsound: when what was unpacked is no sound store."""
    try:
        with Copy(building, called=source) as copy:
            faults = copy.faults()
            facts = copy.facts()
    except StoreUnsound as error:
        raise BackupUnsound(f"{source} holds no sound store; nothing was written. {error}") from error
    if faults:
        raise BackupUnsound(f"{source} holds a damaged store; nothing was written: {faults[0]}")
    return facts


def _settle_with_fallback(target: Path, building: Path, facts: Facts) -> int:
    """Make the copy's marks fit the day files beside the target; returns how many lines are in neither of both.

    :raises StoreExists: when the day files are another store's.
    """
    marks: dict[str, int] = {}
    beyond: list[int] = []
    for path in day_files(folder_of(target)):
        _check_ours(path, facts)
        mark, size = facts.days.get(path.stem, 0), path.stat().st_size
        if mark and not _is_boundary(path, mark, size):
            mark = size + 1  # cut short or written anew: only the numbers of its lines say what is contained
        if mark:
            marks[path.stem] = mark
        beyond += _numbers_beyond(path, mark if mark <= size else 0, facts.last_number)
    if marks != facts.days:  # of a file that is gone none may stay: a new one of its name is not contained
        set_marks(building, marks)
    return max(0, min(beyond) - facts.last_number - 1) if beyond else 0


def _check_ours(path: Path, facts: Facts) -> None:
    header = next((line.operation for line in read_lines(path) if line.operation), None)
    if header and header["op"] == "store" and header["store_id"] != facts.store_id:
        raise StoreExists(
            f"{path} is of another store than the backup; nothing was written. Move {path.parent} away, or restore "
            "to another place"
        )


def _is_boundary(path: Path, mark: int, size: int) -> bool:
    """Whether a line ends there, be it a torn one."""
    if mark >= size:
        return mark == size
    with path.open("rb") as file:
        file.seek(mark - 1)
        return b"\n" in file.read(2)


def _numbers_beyond(path: Path, start: int, last_number: int) -> list[int]:
    """The first number of a file that the copy does not contain."""
    for line in read_lines(path, start):
        number = int((line.operation or {}).get("n", 0))
        if number > last_number:
            return [number]
    return []
