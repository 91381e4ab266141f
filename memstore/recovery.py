"""A database made anew from the daily fallback."""

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from memstore.clock import SystemClock
from memstore.config import Settings, machine_zone_name
from memstore.errors import StoreBusy, StoreExists, StoreMissing
from memstore.fallback import Fallback, Operation, day_files, folder_of, read_lines
from memstore.ids import new_id
from memstore.journal import LAST_NUMBER, apply_operation, insert_rows, message_row
from memstore.sessions import spoken
from memstore.storage.base import MessageRow, Storage, Writer
from memstore.storage.sqlite import SqliteStorage
from memstore.text import variant_table
from memstore.times import zone
from memstore.tokenizers import FOLD_VARIANTS, Tokenizers
from memstore.types import Progress, RecoverReport, SkippedLine

logger = logging.getLogger("memstore")

BATCH_ROWS = 500


def recover(
    source: Path, target: Path, settings: Settings, progress: Progress | None = None
) -> RecoverReport:
    """See :meth:`memstore.store.MemoryStore.recover`."""
    _check_target(source, target)
    with sole_recovery(folder_of(source)):
        found = collect(folder_of(source))
        messages, sessions = _rebuilt(source, target, found, settings, progress)
    return RecoverReport(
        path=str(target),
        files=len(found.sizes),
        lines=found.lines,
        messages=messages,
        sessions=sessions,
        duplicates=found.duplicates,
        skipped=tuple(found.skipped),
    )


def _rebuilt(
    source: Path, target: Path, found: "Collected", settings: Settings, progress: Progress | None
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
            counted = fill_from(storage, Tokenizers(zone=zone(zone_name)), found, progress)
            copy_fallback(source, target)
            with storage.write() as tx:
                marks(tx, Fallback(target, zone(zone_name), durable=True))
        finally:
            storage.close()
        set_log_aside(target)
        SqliteStorage.publish(building, target)
    finally:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
    return counted


def new_meta(store_id: str, zone_name: str, settings: Settings) -> dict[str, str]:
    """What a store says of itself.

    :raises ConfigError: when it is to fold variants and OpenCC is missing.
    """
    if settings.fold_variants:
        variant_table()
    folds = str(int(bool(settings.fold_variants)))
    return {"store_id": store_id, "timezone": zone_name, FOLD_VARIANTS: folds}


@dataclass(slots=True)
class Collected:
    """The day files of a fallback, read and sorted out. ``order`` says when each message was written."""

    header: Operation | None = None
    folds: bool = False
    messages: dict[tuple[str, str], MessageRow] = field(default_factory=dict)
    placed: dict[tuple[str, str], Operation] = field(default_factory=dict)
    order: dict[tuple[str, str], "Order"] = field(default_factory=dict)
    others: dict["Order", Operation] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    last_number: int = 0
    duplicates: int = 0
    skipped: list[SkippedLine] = field(default_factory=list)


Order = tuple[int, int]
"""A line's number, and for lines without one the place where it was read."""


def collect(folder: Path) -> Collected:
    """Read every line; the first copy of a message counts, a ``placed`` line says where it went later."""
    found = Collected()
    for path in day_files(folder):
        found.sizes[path.stem] = path.stat().st_size
        for line in read_lines(path):
            found.lines += 1
            if line.operation is None:
                found.skipped.append(SkippedLine(str(path), line.number, line.fault or "unreadable"))
            else:
                _sort_out(found, line.operation)
    return found


def _sort_out(found: Collected, operation: Operation) -> None:
    number = operation.get("n", 0)
    order = (number, 0 if number else found.lines)
    found.last_number = max(found.last_number, number)
    match operation["op"]:
        case "store":
            found.header = found.header or operation
            found.folds = bool(operation.get(FOLD_VARIANTS))  # the last day's holds
        case "message":
            row = message_row(operation)
            if (row.team_id, row.id) in found.messages:
                found.duplicates += 1
            else:
                found.messages[row.team_id, row.id] = row
                found.order[row.team_id, row.id] = (
                    order  # lines are adopted in their order, so it stays theirs
                )
        case "placed":
            key = operation["team_id"], operation["id"]
            if key not in found.placed or found.placed[key].get("n", 0) <= number:
                found.placed[key] = operation
        case _:
            if found.others.get(order, operation) != operation:  # no copy: a number was given out twice
                order = (number, found.lines)
            found.others[order] = operation


def placed_rows(found: Collected) -> list[MessageRow]:
    """All messages with the positions they hold, in the order in which they were written.

    Where two lines claim one position the later keeps it; the other goes to the end of its session, as a message
    that no transaction ever placed.
    """
    rows = []
    for key in sorted(found.messages, key=found.order.__getitem__):
        row, placed = found.messages[key], found.placed.get(key)
        rows.append(replace(row, pos=placed["pos"], arrival=placed["arrival"]) if placed else row)
    claims = {(row.team_id, row.user_id, row.session, row.pos): row.id for row in rows}
    arrivals = {(row.team_id, row.user_id, row.arrival): row.id for row in rows}
    client_ids = {
        (row.team_id, row.user_id, row.session, row.client_id): row.id
        for row in rows
        if row.client_id is not None
    }
    last_pos: dict[tuple[str, str, str], int] = {}
    last_arrival: dict[tuple[str, str], int] = {}
    kept: dict[str, MessageRow] = {}
    displaced = []
    for row in rows:
        session, owner = (row.team_id, row.user_id, row.session), (row.team_id, row.user_id)
        if row.client_id is not None and client_ids[*session, row.client_id] != row.id:
            continue  # never committed, and sent again by the client under the same id
        kept[row.id] = row
        if claims[*session, row.pos] == row.id and arrivals[*owner, row.arrival] == row.id:
            last_pos[session] = max(last_pos.get(session, 0), row.pos)
            last_arrival[owner] = max(last_arrival.get(owner, 0), row.arrival)
        else:
            displaced.append(row)
    for row in displaced:
        session, owner = (row.team_id, row.user_id, row.session), (row.team_id, row.user_id)
        last_pos[session] = last_pos.get(session, 0) + 1
        last_arrival[owner] = last_arrival.get(owner, 0) + 1
        kept[row.id] = replace(row, pos=last_pos[session], arrival=last_arrival[owner])
    return list(kept.values())


def fill_from(
    storage: Storage, tokenizers: Tokenizers, found: Collected, progress: Progress | None = None
) -> tuple[int, int]:
    """Replay collected messages and changes in an empty store; returns (messages, sessions)."""
    rows = placed_rows(found)
    events: list[tuple[Order, MessageRow | Operation]] = [
        *((found.order[row.team_id, row.id], row) for row in rows),
        *found.others.items(),
    ]
    events.sort(key=lambda event: event[0])
    done = 0
    for start in range(0, len(events), BATCH_ROWS):
        batch = [what for _, what in events[start : start + BATCH_ROWS]]
        with storage.write(covered=True) as tx:
            for session, group in groupby(batch, key=_session_of):
                part: list[Any] = list(group)
                if session is None:
                    for operation in part:
                        apply_operation(tx, operation)
                else:
                    _replay(tx, tokenizers, part)
                    done += len(part)
        if progress is not None:
            progress(done, len(rows))
    with storage.write() as tx:
        tx.set_meta(LAST_NUMBER, str(found.last_number))
        for team_id, user_id in {(row.team_id, row.user_id) for row in rows}:
            tx.enqueue("index", f"index:{team_id}:{user_id}", {"team_id": team_id, "user_id": user_id}, 0)
    with storage.read() as reader:
        return len(rows), sum(1 for _ in reader.dump_sessions())


def _session_of(what: MessageRow | Operation) -> tuple[str, str, str] | None:
    return (what.team_id, what.user_id, what.session) if isinstance(what, MessageRow) else None


def _replay(tx: Writer, tokenizers: Tokenizers, rows: list[Any]) -> None:
    """Messages of one session that came one after another."""
    team_id, user_id = rows[0].team_id, rows[0].user_id
    tx.join(team_id, user_id, rows[0].recorded_at)
    session = tx.session(team_id, user_id, rows[0].session)
    tokenizer = tokenizers.of(tx, team_id)
    insert_rows(tx, lambda row: tokenizer.index(spoken(row)), session, rows)
    tx.use_arrival(team_id, user_id, max(row.arrival for row in rows))


def _check_target(source: Path, target: Path) -> None:
    """Where a recovery may write: only where nothing is.

    :raises StoreExists: when the target is taken. :raises StoreMissing: when there is nothing to recover from.
    """
    if target.exists():
        raise StoreExists(
            f"{target} exists and is never written over; move it away, or name another file: "
            f"memstore recover --db {source} --out NEW.db"
        )
    if not day_files(folder_of(source)):
        raise StoreMissing(f"there is no fallback to recover from: {folder_of(source)} holds no day files")


@contextmanager
def sole_recovery(folder: Path) -> Iterator[None]:
    """One recovery at a time from one fallback.

    :raises StoreBusy: while another one runs.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreBusy(f"another recovery from {folder} is running; wait for it to end") from error
        yield
    finally:
        os.close(descriptor)


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


def marks(tx: Writer, fallback: Fallback) -> None:
    """Note that the database contains every day file whole."""
    for day in fallback.days():
        tx.set_fallback_mark(day, fallback.size(day))
