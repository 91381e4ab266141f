"""What operators ask of an open store: indexes, checks, copies and space."""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from zoneinfo import ZoneInfo

from memstore import doctor as checks
from memstore import generations, space
from memstore.backup import Backups, newest_file
from memstore.clock import Clock
from memstore.config import Settings
from memstore.embedding import Embedder
from memstore.errors import StoreBusy
from memstore.fallback import Fallback
from memstore.index import Indexer
from memstore.paths import checked_path
from memstore.rebuild import rebuild_text_indexes
from memstore.reserve import Reserve, with_room
from memstore.retention import Retention
from memstore.storage.sqlite import SqliteStorage
from memstore.storage.sqlite.checks import examine
from memstore.storage.sqlite.mending import mend
from memstore.text import variant_table
from memstore.times import to_micros
from memstore.tokenizers import Tokenizers
from memstore.types import (
    BackupRecord,
    BackupReport,
    Checkpoint,
    DoctorReport,
    FallbackDay,
    GenerationRecord,
    IndexReport,
    Progress,
    PruneReport,
    SpaceReport,
)


class Upkeep:
    """The part of :class:`memstore.store.MemoryStore` that concerns the file and not anybody's rows; no scope is asked
    for. The store itself makes what is declared here."""

    path: Path
    store_id: str
    settings: Settings
    timezone: ZoneInfo
    _storage: SqliteStorage
    _fallback: Fallback
    _embedder: Embedder | None
    _clock: Clock
    _tokenizers: Tokenizers
    _reserve: Reserve
    _backups: Backups
    _retention: Retention
    _vfs: str | None

    def index(self, progress: Progress | None = None) -> IndexReport:
        """Embed what has no vector yet. Can be stopped at any time and goes on where it was.

        :raises EmbedderMismatch: when the store's vectors are another model's; see :meth:`reindex`.
        :raises EmbeddingError: when the model fails; what was embedded stays.
        """
        return Indexer(self._storage, self._embedder, self._clock).run(progress)

    def reindex(self, progress: Progress | None = None, *, fold_variants: bool | None = None) -> IndexReport:
        """Make the text indexes anew, mend the vectors, and change over to the embedder of this store if it is
        another one: its vectors are built beside the old ones, which answer until the switch. So are the text indexes:
        reads and writes go on, and a run that was cut short is gone on with by the next.

        :param fold_variants: from now on let traditional and simplified characters find each other, or not.
        :raises ConfigError: when OpenCC, which that takes, is missing.
        """
        if fold_variants:
            variant_table()
        with self._storage.exclusive_connection():  # the file is still there, and no thread writes
            with_room(self._reserve, lambda: mend(self.path, vfs=self._vfs))
        rebuild_text_indexes(self._storage, self._tokenizers, progress, fold_variants=fold_variants)
        if fold_variants is not None:
            self.settings = replace(self.settings, fold_variants=fold_variants)
        return Indexer(self._storage, self._embedder, self._clock).change_over(progress)

    def generations(self) -> list[GenerationRecord]:
        """The embedding generations by number: which model's vectors there are, and what they take."""
        return generations.records(self._storage)

    def roll_back_generation(self, number: int | None = None) -> GenerationRecord:
        """Switch to an embedding generation that was active before, in one step and without any model.

        Rows that it lacks are found by text until :meth:`index` has embedded them. A store that is open with the
        other model answers by text from then on, and says so in ``degraded``.

        :param number: None: the one that was active before this one.
        :raises NotFound: when there is none. :raises InvalidInput: when it is active or was never complete.
        """
        return generations.roll_back(self._storage, self._clock, number)

    def drop_generation(self, number: int) -> GenerationRecord:
        """Delete the vectors of an embedding generation; returns what it was. One that is being built is given up.

        :raises NotFound: when there is none. :raises InvalidInput: when it is the active one.
        """
        return with_room(self._reserve, lambda: generations.drop(self._storage, number))

    def checkpoint(self) -> Checkpoint:
        """Empty the write-ahead log into the database file now, as far as readers let it. It is done without being
        asked when nothing was written for ``Settings.idle_checkpoint_s``, and when the store is closed."""
        wait_s = self.settings.busy_timeout_s
        done = with_room(self._reserve, lambda: self._storage.checkpoint(wait_s=wait_s))
        if done is None:
            raise StoreBusy("a write transaction is open in this thread")
        return done

    def doctor(self, *, full: bool = False) -> DoctorReport:
        """Look for damage and drift. Nothing is changed; each finding names the command that mends it.

        :param full: look at every row's checksum and tokens, every term, and the vectors of retired generations too; else
            at 2,000 rows of a larger table, spread evenly.
        """
        now = to_micros(self._clock.now())
        with self._storage.exclusive_connection():  # the file is still there, and no thread writes
            backups = checks.recorded_backups(self._storage)
            changed = checks.changed_backups(self._storage)
            newest = newest_file(self.path, self._clock.now(), self.store_id, changed)
            way_back = checks.way_back(self.path, newest)
            found = examine(
                self.path,
                self._tokenizers.of,
                full=full,
                now=now,
                repair=way_back,
                vfs=self._vfs,
            )
        findings = found.findings
        if found.sound:
            findings += checks.check_embedder(self._storage, self._embedder)
            findings += generations.check(self._storage)
            findings += checks.check_models(self._storage, now, self.timezone, self.settings.daily_tokens)
            covered = checks.backed_up_to(backups, now)
            findings += checks.check_fallback(self._storage, self._fallback, way_back, covered)
            rows = found.counts["messages"] + found.counts["memories"]
            findings += checks.check_backups(self.path, backups, now, rows=rows, full=full)
        place = checks.place(self.path, self._reserve)
        findings += checks.check_place(place, self._reserve)
        if newest is None:
            findings = [checks.with_what_recover_loses(finding) for finding in findings]
        ok = not any(finding.severity == "error" for finding in findings)
        return DoctorReport(ok, tuple(findings), found.counts, checks.versions() | found.versions, place)

    def make_reserve(self) -> int:
        """Bring the reserve to its size again, as opening the store does where there is room; returns its bytes."""
        self._reserve.make()
        return self._reserve.held()

    def release_reserve(self) -> int:
        """Give up the reserve, so that a full disk takes a few more writes; returns how many bytes that freed. Deletes
        do it by themselves when they find no room."""
        return self._reserve.release()

    def backup(
        self, to: str | PathLike[str] | None = None, keep: int = 7, progress: Progress | None = None
    ) -> BackupReport:
        """Copy the whole database into a compressed file while everybody goes on, read it back, and record it.

        It holds every row that was acknowledged before the call: messages, memories, dictionaries, stored recalls and
        vectors, deleted rows too. On disk it takes twice the database's size meanwhile, and the write-ahead log grows
        by what is written.

        :param to: a folder; None: ``<database>.backups`` beside the database; or a new file that ends in ``.gz``.
        :param keep: remove all but so many of this store's backups in that folder; with a file none is removed.
        :param progress: in bytes.
        :raises StoreFull: when there is no room; nothing half-made is left. :raises StoreBusy: while another backup
            runs in that folder. :raises BackupUnsound: when what was read back is not what the store holds.
        """
        return self._backups.make(None if to is None else checked_path(to), keep, progress)

    def backups(self) -> list[BackupRecord]:
        """The backups that this store knows of, oldest first."""
        return self._backups.records()

    def vacuum(self) -> SpaceReport:
        """Write the database anew without free pages, and cut the file. Others read meanwhile; writers wait.

        :raises StoreFull: before anything is changed, when there is no room for a second copy in SQLite's folder for
            temporary files (``SQLITE_TMPDIR``) and for a third in the write-ahead log.
        """
        wait_s = self.settings.busy_timeout_s
        return with_room(self._reserve, lambda: space.vacuum(self._storage, self.path, wait_s))

    def compact(self, progress: Progress | None = None) -> SpaceReport:
        """Rewrite the text indexes without what is left of deleted rows, remove entries without a row, then
        :meth:`vacuum`. Retired generations stay; the report names them, and :meth:`drop_generation` frees them."""
        wait_s = self.settings.busy_timeout_s
        return with_room(self._reserve, lambda: space.compact(self._storage, self.path, wait_s, progress))

    def fallback_days(self) -> list[FallbackDay]:
        """The day files of the fallback, oldest first, and which backup holds each."""
        return self._retention.days()

    def prune_fallback(self, older_than_days: int) -> PruneReport:
        """Remove day files that are older, are contained in the database, and that a recorded backup holds whole: one
        that is still there and still the file that was verified. Today's stays always.

        Afterwards ``recover`` alone lacks those days; :meth:`restore` brings everything.
        """
        return self._retention.prune(older_than_days)
