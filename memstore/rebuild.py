"""Making anew what is derived: text indexes from rows, and a database from the daily fallback."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from memstore.errors import StoreExists, StoreMissing
from memstore.fallback import Fallback, Operation, day_files, folder_of, read_lines
from memstore.journal import apply_operation, insert_rows, message_row
from memstore.sessions import message_text
from memstore.storage.base import MessageRow, Ref, Storage, Writer
from memstore.text import Tokenizer
from memstore.types import Layer, Progress, SkippedLine

BATCH_ROWS = 1_000
LAYERS: tuple[Layer, ...] = ("messages", "memories")


def rebuild_text_indexes(storage: Storage, tokenizer: Tokenizer, progress: Progress | None = None) -> int:
    """Index every row anew with this tokenizer; returns the number of rows. Each index changes in one step."""
    done = 0
    with storage.read() as reader:
        teams = reader.team_ids()
    for team_id in teams:
        for layer in LAYERS:
            with storage.write(maintenance=True) as tx:
                done = _rebuild(tx, tokenizer, layer, team_id, done, progress)
    with storage.write(maintenance=True) as tx:
        tx.set_meta("tokenizer", tokenizer.identity)
    return done


def _rebuild(
    tx: Writer, tokenizer: Tokenizer, layer: Layer, team_id: str, done: int, progress: Progress | None
) -> int:
    rows = tx.text_rows(layer, team_id, Ref(0), BATCH_ROWS)
    if not rows:
        return done
    tx.reset_text_index(layer, team_id)
    while rows:
        tx.put_text(layer, team_id, [(row.ref, tokenizer.index(row.text)) for row in rows])
        done += len(rows)
        if progress is not None:
            progress(done, done)
        rows = tx.text_rows(layer, team_id, rows[-1].ref, BATCH_ROWS)
    return done


@dataclass(slots=True)
class Collected:
    """The day files of a fallback, read and sorted out."""

    header: Operation | None = None
    messages: dict[tuple[str, str], MessageRow] = field(default_factory=dict)
    placed: dict[tuple[str, str], Operation] = field(default_factory=dict)
    others: list[Operation] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    duplicates: int = 0
    skipped: list[SkippedLine] = field(default_factory=list)


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
    match operation["op"]:
        case "store":
            found.header = found.header or operation
        case "message":
            row = message_row(operation)
            if (row.team_id, row.id) in found.messages:
                found.duplicates += 1
            else:
                found.messages[row.team_id, row.id] = row
        case "placed":
            found.placed[operation["team_id"], operation["id"]] = operation
        case _:
            found.others.append(operation)


def placed_rows(found: Collected) -> list[MessageRow]:
    """All messages with the positions they hold, by owner and arrival.

    Where two lines claim one position the later keeps it; the other goes to the end of its session, as a message
    that no transaction ever placed.
    """
    rows = []
    for key, row in found.messages.items():
        placed = found.placed.get(key)
        rows.append(replace(row, pos=placed["pos"], arrival=placed["arrival"]) if placed else row)
    claims = {(row.team_id, row.user_id, row.session, row.pos): row.id for row in rows}
    arrivals = {(row.team_id, row.user_id, row.arrival): row.id for row in rows}
    client_ids = {
        (row.team_id, row.user_id, row.session, row.client_id): row.id
        for row in rows
        if row.client_id is not None
    }
    kept: list[MessageRow] = []
    displaced: list[MessageRow] = []
    for row in rows:
        if (
            row.client_id is not None
            and client_ids[row.team_id, row.user_id, row.session, row.client_id] != row.id
        ):
            continue  # never committed, and sent again by the client under the same id
        holds_place = claims[row.team_id, row.user_id, row.session, row.pos] == row.id
        holds_arrival = arrivals[row.team_id, row.user_id, row.arrival] == row.id
        (kept if holds_place and holds_arrival else displaced).append(row)
    last_pos: dict[tuple[str, str, str], int] = {}
    last_arrival: dict[tuple[str, str], int] = {}
    for row in kept:
        session, owner = (row.team_id, row.user_id, row.session), (row.team_id, row.user_id)
        last_pos[session] = max(last_pos.get(session, 0), row.pos)
        last_arrival[owner] = max(last_arrival.get(owner, 0), row.arrival)
    for row in displaced:
        session, owner = (row.team_id, row.user_id, row.session), (row.team_id, row.user_id)
        last_pos[session] = last_pos.get(session, 0) + 1
        last_arrival[owner] = last_arrival.get(owner, 0) + 1
        kept.append(replace(row, pos=last_pos[session], arrival=last_arrival[owner]))
    kept.sort(key=lambda r: (r.team_id, r.user_id, r.arrival))
    return kept


def fill_from(
    storage: Storage, tokenizer: Tokenizer, found: Collected, progress: Progress | None = None
) -> tuple[int, int]:
    """Write collected messages and changes into an empty store; returns (messages, sessions)."""
    rows = placed_rows(found)
    for team_id, user_id, joined_at in _first_seen(found):
        with storage.write(covered=True) as tx:
            tx.join(team_id, user_id, joined_at)
    done = 0
    for batch in _batches(rows):
        with storage.write(covered=True) as tx:
            for (_, user_id, session_key), group in groupby(
                batch, key=lambda r: (r.team_id, r.user_id, r.session)
            ):
                part = list(group)
                session = tx.session(part[0].team_id, user_id, session_key)
                insert_rows(tx, lambda row: tokenizer.index(message_text(row)), session, part)
                tx.use_arrival(part[0].team_id, user_id, max(row.arrival for row in part))
        done += len(batch)
        if progress is not None:
            progress(done, len(rows))
    with storage.write() as tx:
        for operation in found.others:
            apply_operation(tx, operation)
        for team_id, user_id in {(row.team_id, row.user_id) for row in rows}:
            tx.enqueue("index", f"index:{team_id}:{user_id}", {"team_id": team_id, "user_id": user_id}, 0)
    with storage.read() as reader:
        return len(rows), sum(1 for _ in reader.dump_sessions())


def _first_seen(found: Collected) -> list[tuple[str, str, int]]:
    first: dict[tuple[str, str], int] = {}
    for row in found.messages.values():
        first.setdefault((row.team_id, row.user_id), row.recorded_at)
    return [(team_id, user_id, at) for (team_id, user_id), at in first.items()]


def _batches(rows: list[MessageRow]) -> Iterator[list[MessageRow]]:
    for start in range(0, len(rows), BATCH_ROWS):
        yield rows[start : start + BATCH_ROWS]


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
