"""What the tests of faults and power loss share: a store on doubles that can fail, and raw databases."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import apsw

from memstore.config import Settings
from memstore.fallback import day_files, folder_of
from memstore.store import MemoryStore
from memstore.testing import FaultPlan, FaultVFS, FaultyFiles, HashEmbedder, ManualClock, SimulatedDisk
from reliability_support import START, dump


class Doubles:
    """One plan, and a file layer and files on it; with a simulated disk below ``root`` if there is one."""

    def __init__(self, root: Path | None = None, *, default: bool = False) -> None:
        self.plan = FaultPlan()
        self.disk = SimulatedDisk(root) if root is not None else None
        self.files = FaultyFiles(self.plan, self.disk)
        self.vfs = FaultVFS(self.plan, self.disk, default=default)

    @property
    def options(self) -> dict[str, object]:
        """What a store takes to work on them."""
        return {"vfs": self.vfs.name, "files": self.files}


@contextmanager
def doubles(root: Path | None = None, *, default: bool = False) -> Iterator[Doubles]:
    """``default``: whatever names no file layer goes through this one too."""
    made = Doubles(root, default=default)
    try:
        yield made
    finally:
        made.vfs.close()


def run(connection: apsw.Connection, statement: str, *bindings: object) -> list[tuple]:
    return connection.execute(statement, bindings).fetchall()


@contextmanager
def database(path: Path, vfs: str, synchronous: str = "FULL") -> Iterator[apsw.Connection]:
    """A raw database in WAL mode with one table of numbers."""
    connection = apsw.Connection(str(path), vfs=vfs)
    try:
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", synchronous)
        run(connection, "CREATE TABLE IF NOT EXISTS numbers (n INTEGER PRIMARY KEY, filler BLOB)")
        yield connection
    finally:
        connection.close()


def numbers(path: Path) -> list[int]:
    """What a raw database holds. Fails on one that is damaged, also where ``integrity_check`` alone says so."""
    connection = apsw.Connection(str(path))
    try:
        found = [n for (n,) in run(connection, "SELECT n FROM numbers ORDER BY n")]
        checked = connection.pragma("integrity_check")
    finally:
        connection.close()
    if checked != "ok":
        raise apsw.CorruptError(checked)
    return found


# --- a store in the trouble ---------------------------------------------------------------------------------

ONE, TWO = "agent:chat:one", "agent:chat:two"
SETTINGS = Settings(
    timezone="UTC", durability="disk", busy_timeout_s=0.05, idle_checkpoint_s=None, reserve_bytes=4096
)


def open_on(made: Doubles | None, path: Path, **settings: object) -> MemoryStore:
    return MemoryStore(
        path,
        embedder=HashEmbedder(16),
        clock=ManualClock(START),
        settings=replace(SETTINGS, **settings),
        **(made.options if made is not None else {}),
    )


def facts(store: MemoryStore) -> dict[str, list]:
    """What callers can tell a store's content by, without the numbers that chance gave out."""
    rows = dump(store)
    kept = ("client_id", "branch", "live", "state", "hidden")
    with store._storage.read() as reader:
        memories = list(
            reader._connection.execute("SELECT content, version, state, kind, user_id FROM v_memory_history")
        )
    return {
        "messages": [
            (row["session"], row["role"], json.loads(row["content"]), *(row[name] for name in kept))
            for row in rows["messages"]
        ],
        "sessions": [
            (row["session"], row["title"], row["pinned"], row["hidden"]) for row in rows["sessions"]
        ],
        "memories": sorted(memories),
        "floors": sorted(store.floors().items()),
    }


def without(found: dict[str, list], *texts: str) -> dict[str, list]:
    """The same facts as if these messages had not been said."""
    return {
        **found,
        "messages": [row for row in found["messages"] if row[2] not in texts],
        "sessions": [
            row for row in found["sessions"] if row[1] not in texts
        ],  # the first message gives the title
    }


def said(found: dict[str, list], text: str) -> int:
    """How often a message is there."""
    return sum(row[2] == text for row in found["messages"])


def merged_lines(path: Path) -> list[str]:
    """Places where a line of the fallback begins inside another one."""
    found = []
    for file in day_files(folder_of(path)):
        for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
            if line.find(b'{"crc":"', 1) > 0:
                found.append(f"{file.name}:{number}")
    return found


def errors_in(store: MemoryStore) -> list[str]:
    """What doctor finds to be wrong; a torn line that no call was acknowledged for is a warning."""
    return [f"{one.check}: {one.message}" for one in store.doctor().findings if one.severity == "error"]
