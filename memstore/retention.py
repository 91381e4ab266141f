"""How long day files of the fallback stay: until a verified backup holds them, and as long as their owner wants."""

from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

from memstore.backup import is_intact, is_present
from memstore.clock import Clock
from memstore.errors import FallbackError, InvalidInput
from memstore.fallback import Fallback, locked
from memstore.files import SYSTEM_FILES, Files
from memstore.storage.base import BackupRow, Storage
from memstore.types import FallbackDay, KeptDay, PruneReport

MAX_DAYS = 365_000
NO_BACKUP = "no backup holds it whole; run: memstore backup"
CHANGED_BACKUP = "the backups that held it are gone or were changed; run: memstore backup"
BEYOND = "it holds lines that are not in the database yet; they are adopted at the next write or opening"
Covered = list[tuple[BackupRow, dict[str, int]]]
"""Backups, the newest first, each with how many bytes of each day's file it holds."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The day files of one open store.

    :param zone: the store's, which says what day it is.
    """

    storage: Storage
    fallback: Fallback
    clock: Clock
    zone: ZoneInfo
    files: Files = SYSTEM_FILES

    def days(self) -> list[FallbackDay]:
        """Each day file, oldest first, and the newest backup that holds it."""
        with self.storage.read() as reader:
            marks = reader.fallback_marks()
        covered = self._covered()
        found = []
        for day in self.fallback.days():
            size = self.fallback.size(day)
            holding = next((row for row in _holding(covered, day, size) if is_present(row)), None)
            found.append(
                FallbackDay(
                    day=day,
                    bytes=size,
                    lines=sum(1 for _ in self.fallback.read(day)),
                    contained=marks.get(day, 0) == size,
                    backup=None if holding is None else holding.path,
                )
            )
        return found

    def prune(self, older_than_days: int) -> PruneReport:
        """See :meth:`memstore.store.MemoryStore.prune_fallback`."""
        before = self._first_day_to_stay(older_than_days)
        self._forget_vanished()
        covered = self._covered()
        intact: dict[int, bool] = {}
        removed, kept, freed = [], [], 0
        for day in self.fallback.days():
            if day >= before:
                continue
            size = self.fallback.size(day)
            reason = self._remove(day, size, covered, intact)
            if reason is None:
                removed.append(day)
                freed += size
            else:
                kept.append(KeptDay(day, size, reason))
        return PruneReport(tuple(removed), freed, tuple(kept))

    def _first_day_to_stay(self, older_than_days: int) -> str:
        """:raises InvalidInput: for what is no number of days."""
        if (
            isinstance(older_than_days, bool)
            or not isinstance(older_than_days, int)
            or not 0 <= older_than_days <= MAX_DAYS
        ):
            raise InvalidInput(
                f"older_than_days must be a whole number from 0 to {MAX_DAYS}, not {older_than_days!r:.60}"
            )
        today = self.clock.now().astimezone(self.zone).date()
        try:
            return (today - timedelta(days=older_than_days)).isoformat()
        except OverflowError:
            return ""  # before every day there is

    def _covered(self) -> Covered:
        with self.storage.read() as reader:
            return [(row, reader.backup_days(row.number)) for row in reversed(reader.backups())]

    def _forget_vanished(self) -> None:
        """Of files that are gone nothing may be taken for contained: a prune was killed, or somebody removed them."""
        with self.storage.read() as reader:
            gone = [day for day in reader.fallback_marks() if not self.fallback.path(day).exists()]
        if not gone:
            return
        with self.storage.write(maintenance=True) as tx:
            for day in gone:
                if not self.fallback.path(day).exists():
                    tx.forget_day(day)

    def _remove(self, day: str, size: int, covered: Covered, intact: dict[int, bool]) -> str | None:
        """Remove a day's file if a sound backup holds it; returns why it stayed, None when it is gone.

        The file goes before its mark does. Killed in between, the mark is of a file that is gone, which harms nobody;
        the other way round all its lines would be adopted anew.
        """
        holding = _holding(covered, day, size)
        backup = next((row for row in holding if _checked(row, intact)), None)
        if backup is None:
            return CHANGED_BACKUP if holding else NO_BACKUP
        with self.storage.write(maintenance=True) as tx:
            if tx.fallback_mark(day) != size:
                return BEYOND
            if tx.backup_days(backup.number).get(day, 0) < size or not is_present(backup):
                return CHANGED_BACKUP
            if not self._unlink(day, size):
                return BEYOND
            tx.forget_day(day)
        return None

    def _unlink(self, day: str, size: int) -> bool:
        """Under the file's lock: whoever waits for it notices that the file is gone, and begins a new one."""
        path = self.fallback.path(day)
        try:
            with locked(path) as (_, found):
                if found != size:
                    return False
                path.unlink()
                self.files.sync_folder(self.fallback.folder)
        except OSError as error:
            raise FallbackError(f"the fallback {path} could not be removed: {error}") from error
        return True


def _holding(covered: Covered, day: str, size: int) -> list[BackupRow]:
    return [row for row, days in covered if days.get(day, 0) >= size]


def _checked(row: BackupRow, intact: dict[int, bool]) -> bool:
    """Whether a backup is still what was verified; read once a run."""
    if row.number not in intact:
        intact[row.number] = is_intact(row)
    return intact[row.number]
