"""Making anew what is derived: text indexes from rows, and a database from the daily fallback."""

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

from memstore.errors import StoreBusy, StoreExists, StoreMissing
from memstore.fallback import Fallback, Operation, day_files, folder_of, read_lines
from memstore.journal import LAST_NUMBER, apply_operation, insert_rows, message_row
from memstore.sessions import spoken
from memstore.storage.base import MessageRow, Reader, Storage, Writer
from memstore.text import Tokenizer
from memstore.tokenizers import Tokenizers
from memstore.types import Layer, Progress, SkippedLine

logger = logging.getLogger("memstore")

BATCH_ROWS = 500
FOLD_VARIANTS = "fold_variants"
"""The store's own setting that says whether it folds traditional and simplified characters."""
LAYERS: tuple[Layer, ...] = ("messages", "memories")


class Rebuilding:
    """Builds text indexes anew beside the ones that answer, in small transactions, and switches at the end.

    Whoever is killed at any moment leaves an index half-built, which the next one goes on with if it is of the
    tokenizer that is wanted; two at once fill the same one in turn. Every write keeps it in step.
    """

    def __init__(self, storage: Storage, progress: Progress | None = None) -> None:
        self._storage = storage
        self._progress = progress
        self.done = 0

    def prepare(self, layer: Layer, team_id: str, tokenizer: Tokenizer) -> None:
        """Fill an index of this tokenizer with every row; others may read and write meanwhile."""
        with self._storage.write(maintenance=True) as tx:
            if not tx.begin_text_index(layer, team_id, tokenizer.identity):
                return
        while True:
            with self._storage.read() as reader:
                building = reader.text_index(layer, team_id, "building")
                if building is None:  # another process was as far, and has switched
                    return
                if building.tokenizer != tokenizer.identity:
                    raise StoreBusy(
                        f"another process builds the text index of team {team_id!r} otherwise; wait for it to end "
                        "and run this again"
                    )
                rows = reader.text_rows(layer, team_id, building.filled_to, BATCH_ROWS)
            if not rows:
                return
            cut = [(row.ref, tokenizer.index(row.spoken)) for row in rows]
            with self._storage.write(maintenance=True) as tx:
                tx.fill_text_index(layer, team_id, building.filled_to, cut)
            self._report(len(rows))
            if (
                len(rows) < BATCH_ROWS
            ):  # what others write from now on is put in by the transaction that switches
                return

    def complete(self, tx: Writer, layer: Layer, team_id: str, tokenizer: Tokenizer) -> None:
        """Put what came in since into the prepared index, and switch to it, inside a transaction."""
        active = tx.text_index(layer, team_id, "active")
        prepared = tx.text_index(layer, team_id, "building")
        if prepared is None and active is not None and active.tokenizer == tokenizer.identity:
            return  # another process did it
        if not tx.begin_text_index(layer, team_id, tokenizer.identity):
            return
        while building := tx.text_index(layer, team_id, "building"):
            rows = tx.text_rows(layer, team_id, building.filled_to, BATCH_ROWS)
            if not rows:
                break
            cut = [(row.ref, tokenizer.index(row.spoken)) for row in rows]
            tx.fill_text_index(layer, team_id, building.filled_to, cut)
        tx.switch_text_index(layer, team_id)

    def _report(self, rows: int) -> None:
        self.done += rows
        if self._progress is not None:
            self._progress(self.done, self.done)


def rebuild_text_indexes(
    storage: Storage,
    tokenizers: Tokenizers,
    progress: Progress | None = None,
    *,
    fold_variants: bool | None = None,
) -> int:
    """Index every row anew with its team's tokenizer; returns the number of rows. Searches go on by the indexes that
    are there. Another folding of variants holds from one transaction on, for all teams at once."""
    rebuilding = Rebuilding(storage, progress)
    with storage.read() as reader:
        teams = reader.team_ids()
        changing = fold_variants is not None and fold_variants != reader.segmentation("").fold_variants
    for team_id in teams * (2 if changing else 1):  # once more: what was written while all were prepared
        for layer in LAYERS:
            switched = False
            while not switched:
                with storage.read() as reader:
                    tokenizer = _wanted(reader, tokenizers, team_id, fold_variants)
                rebuilding.prepare(layer, team_id, tokenizer)
                if changing:
                    break
                with storage.write(
                    maintenance=True
                ) as tx:  # the team's dictionary may have changed meanwhile
                    switched = _wanted(tx, tokenizers, team_id, fold_variants).identity == tokenizer.identity
                    if switched:
                        rebuilding.complete(tx, layer, team_id, tokenizer)
    if changing:
        with storage.write(maintenance=True) as tx:
            tx.set_meta(FOLD_VARIANTS, str(int(bool(fold_variants))))
            for team_id in tx.team_ids():
                for layer in LAYERS:
                    rebuilding.complete(tx, layer, team_id, tokenizers.of(tx, team_id))
    return rebuilding.done


def _wanted(reader: Reader, tokenizers: Tokenizers, team_id: str, fold_variants: bool | None) -> Tokenizer:
    segmentation = reader.segmentation(team_id)
    if fold_variants is not None:
        segmentation = replace(segmentation, fold_variants=fold_variants)
    return tokenizers.made_of(segmentation, reader.dictionary(team_id))


@dataclass(slots=True)
class Collected:
    """The day files of a fallback, read and sorted out. ``order`` says when each message was written."""

    header: Operation | None = None
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


def check_target(source: Path, target: Path) -> Path:
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
    return target


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


def header(store_id: str, zone: ZoneInfo) -> Operation:
    """The first line of a day file."""
    values: dict[str, Any] = {"op": "store", "store_id": store_id, "timezone": zone.key}
    return values


def marks(tx: Writer, fallback: Fallback) -> None:
    """Note that the database contains every day file whole."""
    for day in fallback.days():
        tx.set_fallback_mark(day, fallback.size(day))
