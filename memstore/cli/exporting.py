"""Everything of one asker, row by row, read through the public verbs."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

from memstore.errors import InvalidInput, StoreExists
from memstore.types import Memory, Scope, SessionRecord, StoredMessage

if TYPE_CHECKING:
    from memstore.store import MemoryStore

PAGE_ROWS = 1_000


class Exported(NamedTuple):
    """One line of an export."""

    type: Literal["session", "message", "memory"]
    row: SessionRecord | StoredMessage | Memory


def export_rows(store: "MemoryStore", scope: Scope, *, include_history: bool = False) -> Iterator[Exported]:
    """The asker's sessions, each followed by its messages, then the memories, newest first.

    A memory that expired or is not true any more is still the asker's and is exported; versions that were
    superseded are with ``include_history`` only. What others share with the asker is theirs, and left out.
    """
    for session in store.sessions(scope):
        yield Exported("session", session)
        for message in store.messages(scope, session.session):
            yield Exported("message", message)
    for memory in all_memories(store, scope, include_history=True):
        if memory.user_id == scope.user_id and (include_history or memory.superseded_at is None):
            yield Exported("memory", memory)


def all_memories(store: "MemoryStore", scope: Scope, **filters: Any) -> Iterator[Memory]:
    """Every page of a listing."""
    cursor: str | None = None
    while True:
        page = store.get_all(scope, PAGE_ROWS, cursor, **filters)
        yield from page
        cursor = page.next_cursor
        if cursor is None:
            return


def check_target(out: Path, database: Path, *, force: bool) -> None:
    """Whether an export may be written there.

    :raises StoreExists: when a file is there. :raises InvalidInput: when it is the store, even with ``force``.
    """
    real, store = out.resolve(), database.resolve()
    own = (store, *(Path(f"{store}{suffix}") for suffix in ("-wal", "-shm", "-journal")))
    if real in own or Path(f"{store}.fallback") in (real, *real.parents):
        raise InvalidInput(f"{out} belongs to the store itself; name another file")
    if out.exists() and database.exists() and out.samefile(database):
        raise InvalidInput(f"{out} is the store itself; name another file")
    if out.exists() and not force:
        raise StoreExists(f"{out} exists and is not written over; name another file, or add --force")


@contextmanager
def private_file(out: Path, *, force: bool) -> Iterator[IO[str]]:
    """A new file that its owner alone may read. It has its name when it is complete, or not at all."""
    building = out.parent / f".{out.name}.{secrets.token_hex(4)}"
    descriptor = os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if force:
            building.replace(out)
        else:
            _name(building, out)
    finally:
        building.unlink(missing_ok=True)


def _name(building: Path, out: Path) -> None:
    try:
        os.link(building, out)  # unlike a rename it never replaces what came meanwhile
    except FileExistsError as error:
        raise StoreExists(
            f"{out} exists and is not written over; name another file, or add --force"
        ) from error
