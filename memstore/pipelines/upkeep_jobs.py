"""Upkeep that a worker does by itself: vectors of what was recorded, and the nightly backup (SPEC S9)."""

from datetime import datetime
from pathlib import Path
from typing import Protocol

from memstore.embedding import Embedder
from memstore.errors import AlreadyRunning
from memstore.index import Indexer
from memstore.pipelines.work import Lease, NotDue, Pipelines
from memstore.storage.pipeline_rows import UNDER_WAY, job_key
from memstore.times import from_micros, to_micros
from memstore.types import BackupRecord, BackupReport, Progress

UPKEEP = ("index", "backup")
"""Kinds of jobs here: none asks a chat model."""
RENEWALS = 3
"""So many times within its term a lease is renewed, so that one that comes late costs nothing."""


def renewing(lease: Lease) -> Progress:
    """Progress of long work, which keeps the job while it goes on and shows how far it is.

    :raises AlreadyRunning: out of the work, when another worker took the job over.
    """
    last = lease.clock.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = lease.clock.monotonic()
        if now - last < lease.lease_s / RENEWALS:
            return
        last = now
        lease.renew()
        with lease.storage.write(covered=True) as tx:  # a figure on a screen: nothing is lost with it
            tx.note_progress(lease.job, done, total)

    return report


class IndexRunner:
    """Embeds what has no vector yet. Only of use where the store has an embedder."""

    kind = "index"

    def __init__(self, pipelines: Pipelines, embedder: Embedder) -> None:
        self._indexer = Indexer(pipelines.storage, embedder, pipelines.clock)

    def sweep(self) -> None:
        """Whatever is written queues its own."""

    def run(self, lease: Lease, *, force: bool = False) -> NotDue | None:  # noqa: ARG002 - as every runner has it
        """See :class:`memstore.pipelines.work.Runner`. One job embeds what waits, whosever it is, and the indexer settles
        the other jobs with it. None of them is kept once it is done: there is one for each few messages."""
        self._indexer.run(renewing(lease))
        with lease.storage.write() as tx:
            if not tx.holds_lease(lease.job):
                raise AlreadyRunning(f"job {lease.job.job_no} (index) was taken over by another worker")
            tx.finish(lease.job)
        return None


class BackupsOfStore(Protocol):
    """The backups of one store; see :class:`memstore.backup.Backups`."""

    def make(self, to: Path | None, keep: int, progress: Progress | None = None) -> BackupReport: ...

    def records(self) -> list[BackupRecord]: ...


class BackupRunner:
    """Makes one backup a day, in the default folder. A day on which no worker ran has none."""

    kind = "backup"

    def __init__(self, pipelines: Pipelines, backups: BackupsOfStore) -> None:
        self._pipelines = pipelines
        self._backups = backups

    def sweep(self) -> None:
        """Queue the day's backup once its hour has come. A store that was begun since has nothing of yesterday."""
        hour = self._pipelines.settings.nightly_backup_hour
        if hour is None:
            return
        now = self._pipelines.now()
        local = from_micros(now).astimezone(self._pipelines.zone)
        due = to_micros(datetime(local.year, local.month, local.day, hour, tzinfo=self._pipelines.zone))
        key = job_key(self.kind, local.date().isoformat())
        with self._pipelines.storage.read() as reader:
            began = reader.began_at()
            if now < due or began is None or began >= due or reader.job_named(key) is not None:
                return
        with self._pipelines.storage.write() as tx:
            tx.enqueue(self.kind, key, {"date": local.date().isoformat()}, now, unless=(*UNDER_WAY, "done"))

    def run(self, lease: Lease, *, force: bool = False) -> NotDue | None:  # noqa: ARG002 - as every runner has it
        """See :class:`memstore.pipelines.work.Runner`. One that was made before the worker could say so is the day's, too:
        it is not made twice."""
        queued_at = from_micros(lease.job.created_at)
        if not any(record.present and record.taken_at >= queued_at for record in self._backups.records()):
            self._backups.make(None, self._pipelines.settings.backup_keep, renewing(lease))
        with lease.storage.write() as tx:
            lease.finish(tx)
        return None
