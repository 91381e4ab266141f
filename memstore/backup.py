"""Backups: the whole database, compressed, taken while writers run and read back before it counts.

What bears the name ``<database>.<UTC instant>.v<schema>.<store id>.gz`` has been verified: it is written, synced and
read back under another name. Only then it is named, and recorded in the database that it is a copy of.
"""

import errno
import gzip
import hashlib
import logging
import os
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Protocol

from memstore.clock import Clock
from memstore.errors import (
    BackupUnsound,
    InvalidInput,
    StoreExists,
    StoreIO,
    StoreMissing,
    StoreUnsound,
)
from memstore.fallback import folder_of, holds_lines, store_of
from memstore.files import SYSTEM_FILES, Files, alone_in
from memstore.paths import quoted
from memstore.storage.base import BackupRow, Storage
from memstore.storage.migrate import newest_version
from memstore.storage.sqlite.connection import from_os_error
from memstore.storage.sqlite.copying import Copy, Facts, check_room, copy_database, size_of
from memstore.times import from_micros, to_micros
from memstore.types import BackupRecord, BackupReport, Progress

logger = logging.getLogger("memstore")

CHUNK_BYTES = 2**20
LEVEL = 6
PHASES = 3
"""Copying, compressing, reading back: each counts the bytes of the database once."""
_INSTANT = "%Y%m%dT%H%M%S.%fZ"
_NAME = re.compile(
    r"(?P<database>.+)\.(?P<instant>\d{8}T\d{6}\.\d{6}Z)\.v\d+\.(?P<store_id>\w+)\.gz\Z", re.ASCII | re.DOTALL
)
_UNFINISHED = (".copy", ".part")


class Readable(Protocol):
    """What bytes come from."""

    def read(self, size: int, /) -> bytes: ...


class Writable(Protocol):
    """What bytes go to."""

    def write(self, data: bytes, /) -> int: ...


def folder_of_backups(database: Path) -> Path:
    """Where a database's backups go if no other place is named."""
    return Path(f"{database}.backups")


@dataclass(frozen=True, slots=True)
class Backups:
    """The backups of one open store.

    :param store_id: files of another store are never touched, even where its database had the same name.
    """

    storage: Storage
    database: Path
    store_id: str
    clock: Clock
    vfs: str | None = None
    files: Files = SYSTEM_FILES

    def make(self, to: Path | None, keep: int, progress: Progress | None = None) -> BackupReport:
        """See :meth:`memstore.store.MemoryStore.backup`."""
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise InvalidInput(f"keep must be a whole number of at least 1, not {keep!r:.60}")
        folder, file = self._place(to)
        try:
            self._make_folder(folder)
            with alone_in(folder, "backup"):
                self._remove_unfinished(folder)
                report = self._made(folder, file, progress or _silent)
                removed = self._keep_newest(folder, keep, Path(report.path)) if file is None else ()
        except OSError as error:
            raise from_os_error(error, folder) from error
        return replace(report, removed=removed)

    def _place(self, to: Path | None) -> tuple[Path, Path | None]:
        """The folder, and the file where one was named."""
        if to is None:
            return folder_of_backups(self.database), None
        to = to.absolute()
        if to.suffix != ".gz" or to.is_dir():
            return to, None
        if os.path.lexists(to):
            raise StoreExists(f"{to} exists and is never written over; name another file, or a folder")
        return to.parent, to

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if os.path.lexists(folder):
            raise StoreExists(f"{folder} is there and is no folder; name another place for the backup")
        if not folder.parent.is_dir():
            raise StoreIO(f"the folder {folder.parent} does not exist; make it first")
        folder.mkdir(mode=0o700, exist_ok=True)
        self.files.sync_folder(folder.parent)

    def _remove_unfinished(self, folder: Path) -> None:
        """What backups of this store left behind that were killed; no other one runs in the folder now."""
        for path in list(folder.iterdir()):
            inside = path.name.removeprefix(".").removesuffix(path.suffix)
            if path.name.startswith(".") and path.suffix in _UNFINISHED and self._is_ours(inside):
                path.unlink(missing_ok=True)

    def _is_ours(self, name: str) -> bool:
        found = _NAME.match(name)
        ours = self.database.name, self.store_id
        return found is not None and (found["database"], found["store_id"]) == ours

    def _made(self, folder: Path, file: Path | None, progress: Progress) -> BackupReport:
        size = size_of(self.database, vfs=self.vfs)
        check_room([(folder, 2 * size)], f"a backup of {self.database}")
        taken_at = self.clock.now().astimezone(UTC)  # before the snapshot: what was recorded by then is in it
        while (folder / self._name(taken_at)).exists():  # of the same instant, by a clock that stands
            taken_at += timedelta(microseconds=1)
        name = self._name(taken_at)
        copy, packed = (folder / f".{name}{suffix}" for suffix in _UNFINISHED)
        try:
            facts = self._copied(copy, _phase(progress, 0, size))
            size = copy.stat().st_size
            pack(copy, packed, self.files, _phase(progress, 1, size))
            copy.unlink()
            unpack(packed, copy, self.files, _phase(progress, 2, size))
            _check_same(packed, copy, facts)
            return self._publish(packed, file or folder / name, taken_at, facts, size)
        finally:
            for leftover in (copy, packed):
                leftover.unlink(missing_ok=True)

    def _name(self, taken_at: datetime) -> str:
        return f"{self.database.name}.{taken_at.strftime(_INSTANT)}.v{newest_version()}.{self.store_id}.gz"

    def _copied(self, copy: Path, progress: Progress) -> Facts:
        make_empty(copy)
        facts = copy_database(self.database, copy, vfs=self.vfs, progress=progress)
        if facts.store_id != self.store_id:
            raise StoreMissing(
                f"{self.database} was replaced by another store while it was open here; no backup was made"
            )
        return facts

    def _publish(self, packed: Path, path: Path, taken_at: datetime, facts: Facts, size: int) -> BackupReport:
        """Name the file and record it. Where that fails there is none, or one that is whole and not recorded."""
        row = BackupRow(
            path=str(path),
            taken_at=to_micros(taken_at),
            bytes=packed.stat().st_size,
            sha256=digest(packed),
            verified_at=to_micros(self.clock.now()),
        )
        with self.storage.write(maintenance=True) as tx:
            if os.path.lexists(path):
                raise StoreExists(f"{path} exists and is never written over")
            packed.rename(path)
            self.files.sync_folder(path.parent)
            tx.put_backup(row, facts.days)
        return BackupReport(
            path=row.path,
            taken_at=taken_at,
            bytes=row.bytes,
            database_bytes=size,
            sha256=row.sha256,
            messages=facts.messages,
            memories=facts.memories,
        )

    def _keep_newest(self, folder: Path, keep: int, made: Path) -> tuple[str, ...]:
        """Remove this store's older backups of the folder. The one just made stays, whatever the clock did."""
        ours = [
            path for path in folder.iterdir() if path != made and self._is_ours(path.name) and path.is_file()
        ]
        ours.sort(key=lambda path: path.name, reverse=True)
        removed = []
        with self.storage.write(maintenance=True) as tx:
            for path in ours[keep - 1 :]:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    logger.warning("the old backup %s could not be removed: %s", path, error)
                else:
                    removed.append(str(path))
            self.files.sync_folder(folder)
            for row in tx.backups():
                if Path(row.path).parent == folder and not Path(row.path).exists():
                    tx.drop_backup(row.number)
        return tuple(removed)

    def records(self) -> list[BackupRecord]:
        """The recorded ones, oldest first."""
        with self.storage.read() as reader:
            rows = reader.backups()
        return [
            BackupRecord(
                path=row.path,
                taken_at=from_micros(row.taken_at),
                bytes=row.bytes,
                sha256=row.sha256,
                verified_at=from_micros(row.verified_at),
                present=is_present(row),
            )
            for row in rows
        ]


def _silent(_done: int, _total: int) -> None:
    pass


def _phase(progress: Progress, number: int, size: int) -> Progress:
    """Progress of one phase as a part of the whole, in bytes."""

    def report(done: int, total: int) -> None:
        part = size if total == 0 else size * done // total
        progress(number * size + part, PHASES * size)

    return report


def _check_same(packed: Path, copy: Path, facts: Facts) -> None:
    """:raises BackupUnsound: when what was read back is not what was copied."""
    try:
        with Copy(copy) as found:
            faults = found.faults()
            if found.facts() != facts:
                faults.append(f"it holds {found.facts()} instead of {facts}")
            if not faults and not found.is_whole():
                logger.warning(
                    "a text index of the store is damaged, in its backup too; run: memstore doctor"
                )
    except StoreUnsound as error:
        raise BackupUnsound(f"the backup was read back damaged and is not kept: {error}") from error
    if faults:
        raise BackupUnsound(
            f"the backup {packed.name} did not read back as the store was, and is not kept: {faults[0]}. "
            "Run memstore doctor, then back up again"
        )


# --- files --------------------------------------------------------------------------------------------------


def make_empty(path: Path) -> None:
    """A file that nobody else may read, whatever the umask; what a killed run left there is gone."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def pack(source: Path, packed: Path, files: Files, progress: Progress) -> None:
    """Compress a file that nobody has open, and sync it."""
    make_empty(packed)
    with source.open("rb") as content, packed.open("ab", buffering=0) as file:
        with gzip.GzipFile("", "wb", LEVEL, _Sink(file, files), mtime=0) as compressing:
            _pour(content, compressing, content, source.stat().st_size, progress)
        files.sync_data(file.fileno())


def unpack(packed: Path, target: Path, files: Files, progress: Progress) -> None:
    """Decompress and sync.

    :raises BackupUnsound: when it is no gzip file, cut short, or differs from its checksum.
    """
    make_empty(target)
    with packed.open("rb") as raw, target.open("ab", buffering=0) as file:
        try:
            with gzip.GzipFile(fileobj=raw) as content:
                _pour(content, _Sink(file, files), raw, packed.stat().st_size, progress)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BackupUnsound(f"{packed} is no backup, or is cut short or damaged: {error}") from error
        files.sync_data(file.fileno())


class _Sink:
    """A file to write to, through the seam by which tests let writes fail."""

    def __init__(self, file: IO[bytes], files: Files) -> None:
        self._descriptor = file.fileno()
        self._files = files

    def write(self, data: bytes) -> int:
        left = memoryview(data)
        while left:
            written = self._files.write(self._descriptor, bytes(left))
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left = left[written:]
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""


def _pour(content: Readable, into: Writable, counted: IO[bytes], size: int, progress: Progress) -> None:
    """``counted`` is the file whose position says how far it went."""
    while chunk := content.read(CHUNK_BYTES):
        into.write(chunk)
        progress(counted.tell(), size)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_present(row: BackupRow) -> bool:
    """Whether the file is where it was made, and of its size."""
    try:
        return Path(row.path).stat().st_size == row.bytes
    except OSError:
        return False


def is_intact(row: BackupRow) -> bool:
    """Whether it is still the file that was verified. Reads it whole."""
    try:
        return is_present(row) and digest(Path(row.path)) == row.sha256
    except OSError:
        return False


# --- what a lost database can be made from ----------------------------------------------------------------------


def newest_file(
    database: Path, now: datetime, store_id: str | None = None, changed: Collection[str] = ()
) -> Path | None:
    """The newest backup in the default place of a database that need not exist any more.

    One whose name lies in the future was named by a wrong clock: it counts only where there is no other.

    :param store_id: where it is known, backups of other stores do not count.
    :param changed: paths of files that are not what was verified any more.
    """
    folder = folder_of_backups(database)
    if not folder.is_dir():
        return None
    found = [
        (instant_of(path) or now, path)
        for path in folder.iterdir()
        if (match := _NAME.match(path.name))
        and match["database"] == database.name
        and store_id in (None, match["store_id"])
        and str(path) not in changed
    ]
    return max(found, key=lambda one: (one[0] <= now, one[0], one[1].name))[1] if found else None


def instant_of(path: Path) -> datetime | None:
    """When a backup was taken, by its name."""
    found = _NAME.match(path.name)
    return None if found is None else datetime.strptime(found["instant"], _INSTANT).replace(tzinfo=UTC)


def missing_but_not_lost(database: Path, now: datetime) -> str | None:
    """For a database that is missing: what there is of it and how to bring it back; None where there is nothing."""
    newest = newest_file(database, now, store_of(folder_of(database)))
    lines = holds_lines(database)
    if newest is not None:
        also = f", and {folder_of(database)} messages" if lines else ""
        return (
            f"{database} is missing, but {newest.parent} holds backups of it{also}. To bring it back run: "
            f"memstore restore {quoted(newest)} --db {quoted(database)}"
        )
    if lines:
        return (
            f"{database} is missing, but {folder_of(database)} holds messages of it. "
            f"To rebuild it run: memstore recover --db {quoted(database)}"
        )
    return None
