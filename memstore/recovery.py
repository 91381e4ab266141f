"""A database made anew from the daily fallback."""

import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from memstore.adoption import LAST_NUMBER
from memstore.clock import SystemClock
from memstore.collecting import Collected, collect, files_of
from memstore.config import Settings, machine_zone_name
from memstore.errors import StoreExists, StoreMissing
from memstore.fallback import Fallback, Operation, day_files, folder_of
from memstore.files import alone_in
from memstore.ids import new_id
from memstore.journal import Journal
from memstore.operations import apply_operation, message_row
from memstore.paths import quoted
from memstore.sessions import after_messages, new_session, spoken
from memstore.storage.base import Storage, Writer
from memstore.storage.rows import MessageRow
from memstore.storage.sqlite import SqliteStorage
from memstore.storage.sqlite.staging import Event, Owner, Staging
from memstore.text import IndexTokens, variant_table
from memstore.times import zone
from memstore.tokenizers import FOLD_VARIANTS, Tokenizers
from memstore.types import Progress, RecoverReport

logger = logging.getLogger("memstore")

CHUNK_BYTES = 2**20

STEP_ROWS = 500
BATCH_ROWS = 2_000
BATCH_BYTES = 8 * 1024 * 1024
"""What one transaction takes, about: what is held in memory at a time."""
PENDING_AT_ONCE = 100


def recover(
    source: Path, target: Path, settings: Settings, progress: Progress | None = None
) -> RecoverReport:
    """See :meth:`memstore.store.MemoryStore.recover`."""
    _check_target(source, target)
    folder = folder_of(source)
    with alone_in(folder, "recovery"), Staging() as staging, files_of(folder) as files:
        found = collect(staging, files)
        messages, sessions = _rebuilt(source, target, found, settings, progress)
    logger.warning(
        "messages and sessions were rebuilt; memories, dictionaries of teams and stored recalls are not in the fallback"
    )
    return RecoverReport(
        path=str(target),
        files=len(found.sizes),
        lines=found.lines,
        messages=messages,
        sessions=sessions,
        duplicates=found.duplicates,
        skipped=found.skipped.listed,
        skipped_lines=found.skipped.count,
    )


def _rebuilt(
    source: Path, target: Path, found: Collected, settings: Settings, progress: Progress | None
) -> tuple[int, int]:
    """Build beside the target, and give it the target's name when it is complete."""
    known = found.header or {}
    zone_name = known.get("timezone") or settings.timezone or machine_zone_name()
    building = target.parent / f".{target.name}.recovering"
    leftovers = (building, Path(f"{building}-wal"), Path(f"{building}-shm"))
    for leftover in leftovers:  # of a recovery that was killed
        leftover.unlink(missing_ok=True)
    store_id = known.get("store_id") or new_id(SystemClock().now())
    if settings.fold_variants is None:
        settings = replace(settings, fold_variants=found.folds)
    SqliteStorage.create(building, new_meta(store_id, zone_name, settings))
    try:
        storage = SqliteStorage(building, busy_timeout_s=settings.busy_timeout_s, durability="process")
        try:
            tokenizers = Tokenizers(zone=zone(zone_name))
            messages = fill_from(storage, tokenizers, found, progress)
            copy_fallback(source, target)
            first_line = header(store_id, zone(zone_name), fold_variants=bool(settings.fold_variants))
            fallback = Fallback(target, zone(zone_name), durable=True, header=first_line)
            with storage.write() as tx:
                for day, size in found.sizes.items():
                    tx.set_fallback_mark(day, size, fallback.tail(day, size))
            journal = Journal(storage, fallback, tokenizers, SystemClock())
            void(journal, found)
            messages += settle(journal, found.pending())
            with storage.read() as reader:
                sessions = sum(1 for _ in reader.dump_sessions())
        finally:
            storage.close()
        set_log_aside(target)
        SqliteStorage.publish(building, target)
    finally:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
    return messages, sessions


def new_meta(store_id: str, zone_name: str, settings: Settings) -> dict[str, str]:
    """What a store says of itself.

    :raises ConfigError: when it is to fold variants and OpenCC is missing.
    """
    if settings.fold_variants:
        variant_table()
    folds = str(int(bool(settings.fold_variants)))
    return {"store_id": store_id, "timezone": zone_name, FOLD_VARIANTS: folds}


def fill_from(
    storage: Storage, tokenizers: Tokenizers, found: Collected, progress: Progress | None = None
) -> int:
    """Replay what was collected in an empty store; returns how many messages that were."""
    owners, total = found.staging.owners(), found.staging.count()
    with storage.write() as tx:
        for owner in owners:
            tx.join(owner.team_id, owner.user_id, owner.since)
    done = 0
    for batch in _batches(found, owners):
        with storage.write(covered=True) as tx:
            for step in batch:
                step.carry_out(tx, tokenizers)
                done += len(step.rows)
        if progress is not None:
            progress(done, total)
    with storage.write() as tx:
        tx.set_meta(LAST_NUMBER, str(found.last_number))
        for owner in owners:
            payload = {"team_id": owner.team_id, "user_id": owner.user_id}
            tx.enqueue("index", f"index:{owner.team_id}:{owner.user_id}", payload, 0)
    return total


@dataclass(slots=True)
class _Step:
    """Messages of one owner that came one after another, then what changed them. ``deleted``: those of the rows that a
    later step deletes; no words are cut for them."""

    owner: Owner
    rows: list[MessageRow] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    changes: list[Operation] = field(default_factory=list)
    bytes: int = 0

    def carry_out(self, tx: Writer, tokenizers: Tokenizers) -> None:
        if self.rows:
            tokenizer = tokenizers.of(tx, self.owner.team_id)
            tx.insert_messages(
                [
                    (row, _NO_TOKENS if row.id in self.deleted else tokenizer.index(spoken(row)))
                    for row in self.rows
                ]
            )
            self._carry_sessions_forward(tx)
            last = max(row.arrival for row in self.rows)
            tx.use_arrival(self.owner.team_id, self.owner.user_id, last)
        for operation in self.changes:
            apply_operation(tx, operation)

    def _carry_sessions_forward(self, tx: Writer) -> None:
        by_session: dict[str, list[MessageRow]] = {}
        for row in self.rows:
            by_session.setdefault(row.session, []).append(row)
        for session, rows in by_session.items():
            held = tx.session(self.owner.team_id, self.owner.user_id, session)
            tx.put_session(after_messages(held or new_session(rows[0]), rows))


_NO_TOKENS = IndexTokens("", "")


def _batches(found: Collected, owners: Sequence[Owner]) -> Iterator[list[_Step]]:
    """Steps in transactions of bounded size, one owner after the other: an owner's rows lie together in every table, and
    in no order of their own to another's."""
    batch: list[_Step] = []
    rows = size = 0
    for step in (step for owner in owners for step in _steps(found, owner)):
        batch.append(step)
        rows, size = rows + len(step.rows) + len(step.changes), size + step.bytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, rows, size = [], 0, 0
    if batch:
        yield batch


def _steps(found: Collected, owner: Owner) -> Iterator[_Step]:
    step = _Step(owner)
    for event in found.staging.events(owner):
        if event.kind == "message":
            if step.changes or len(step.rows) >= STEP_ROWS or step.bytes >= BATCH_BYTES:
                yield step
                step = _Step(owner)
            row = message_row(found.operation(event))
            step.rows.append(replace(row, pos=event.pos, arrival=event.arrival))
            step.bytes += event.length
            if not event.kept:
                step.deleted.add(row.id)
        elif event.kind == "change":
            step.changes.append(found.operation(event))
        else:
            _add_deletion(step, event)
    yield step


def _add_deletion(step: _Step, event: Event) -> None:
    """Deletions of one line, or of lines that follow each other in the same instant, are one."""
    last = step.changes[-1] if step.changes else None
    if last is not None and last["op"] == "delete" and last["at"] == event.deleted_at:
        last["ids"].append(event.id)
        return
    delete: Operation = {
        "op": "delete",
        "team_id": step.owner.team_id,
        "ids": [event.id],
        "at": event.deleted_at,
    }
    step.changes.append(delete)


def void(journal: Journal, found: Collected) -> None:
    """Say of calls that were cut short that they do not count: lines will stand behind them, which would look as if they
    had been complete and damaged later."""
    torn = found.staging.newly_torn()

    def work(_tx: Writer, operations: list[Operation]) -> None:
        operations += ({"op": "void", "first": first, "last": last} for first, last in torn)

    if torn:
        journal.change(work)


def settle(journal: Journal, pending: Iterator[Operation]) -> int:
    """Take up the calls that waited in the fallback when the database was lost; returns how many messages they
    brought. They come last, as they would have at the next write."""
    settled = 0
    while calls := list(islice(pending, PENDING_AT_ONCE)):
        settled += journal.settle(calls)
    return settled


def _check_target(source: Path, target: Path) -> None:
    """Where a recovery may write: only where nothing is.

    :raises StoreExists: when the target is taken. :raises StoreMissing: when there is nothing to recover from.
    """
    if target.exists():
        raise StoreExists(
            f"{target} exists and is never written over; move it away, or name another file: "
            f"memstore recover --db {quoted(source)} --out NEW.db"
        )
    for path in day_files(folder_of(target)):
        if folder_of(source) != folder_of(target) and not _is_copy(path, folder_of(source) / path.name):
            raise StoreExists(
                f"{path.parent} holds messages of another store and is never written over; move it away, or name another "
                f"file: memstore recover --db {quoted(source)} --out NEW.db"
            )
    if not day_files(folder_of(source)):
        raise StoreMissing(f"there is no fallback to recover from: {folder_of(source)} holds no day files")


def _is_copy(path: Path, of: Path) -> bool:
    """Whether a day file begins as another one does as far as both go: a recovery that was killed leaves such."""
    if not of.is_file():
        return False
    left = min(path.stat().st_size, of.stat().st_size)
    with path.open("rb") as one, of.open("rb") as other:
        while left > 0:
            chunk = min(left, CHUNK_BYTES)
            if one.read(chunk) != other.read(chunk):
                return False
            left -= chunk
    return True


def set_log_aside(target: Path) -> None:
    """Take the write-ahead log of a lost database out of the way of the new one, which SQLite would play it into.

    What it holds is kept under another name; an empty one holds nothing.
    """
    wal = Path(f"{target}-wal")
    if wal.exists() and not target.exists():
        if wal.stat().st_size:
            aside = Path(f"{wal}.lost-{wal.stat().st_mtime_ns}")
            wal.rename(aside)
            logger.warning("the log of the lost database was set aside as %s", aside)
        else:
            wal.unlink()
    if not target.exists():
        Path(f"{target}-shm").unlink(missing_ok=True)


def copy_fallback(source: Path, target: Path) -> None:
    """Give a store recovered under another name its own copy of the day files."""
    if folder_of(source) == folder_of(target):
        return
    folder_of(target).mkdir(mode=0o700, exist_ok=True)
    for path in day_files(folder_of(source)):
        copy = folder_of(target) / path.name
        shutil.copyfile(path, copy)
        copy.chmod(0o600)


def header(store_id: str, zone: ZoneInfo, *, fold_variants: bool) -> Operation:
    """The first line of a day file."""
    values: dict[str, Any] = {"op": "store", "store_id": store_id, "timezone": zone.key}
    return values | ({FOLD_VARIANTS: True} if fold_variants else {})
