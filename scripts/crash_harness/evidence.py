"""What is really there after a crash, read without memstore: the journal of acknowledgements, the database by the
standard library's SQLite, the fallback as plain JSON lines.
"""

import gzip
import json
import re
import shutil
import sqlite3
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TAG = re.compile(r"⟦(\S+) (\d+)/(\d+)⟧")
"""In every text: which call it is of, its place in it, and how many there are."""
CRC_AT, BODY_AT = len('{"crc":"'), len('{"crc":"00000000",')
Row = dict[str, Any]


@dataclass
class Call:
    """One call by the journal's lines. ``begun`` and ``ended`` are line numbers; ``done`` is its acknowledgement."""

    name: str
    begin: dict[str, Any]
    begun: int
    ended: int | None = None
    done: dict[str, Any] | None = None
    refused: str | None = None

    def __getitem__(self, key: str) -> Any:
        return self.begin.get(key)

    @property
    def tag(self) -> str:
        """The call whose texts it says: its own name, or that of the one it repeats."""
        return self.begin.get("again", self.name)

    @property
    def owner(self) -> tuple[str, str]:
        return self.begin["scope"][0], self.begin["scope"][1]


class Acknowledgements:
    """The journal as far as it was read: :meth:`read_on` reads what was said since."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.lines = 0
        self.calls: dict[str, Call] = {}
        self.read_on()

    def read_on(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            read = file.read()
        whole = read[: read.rfind(b"\n") + 1]
        self._offset += len(whole)
        for raw in whole.splitlines():
            self._hear(json.loads(raw), self.lines)
            self.lines += 1

    def _hear(self, line: dict[str, Any], number: int) -> None:
        if line["e"] == "begin":
            self.calls[line["call"]] = Call(line["call"], line, number)
            return
        call = self.calls[line["call"]]
        call.ended = number
        if line["e"] == "done":
            call.done = line
        else:
            call.refused = line["error"]


@dataclass
class Tables:
    """A consistent copy of the database in memory, and its rows."""

    connection: sqlite3.Connection
    messages: list[Row] = field(default_factory=list)
    versions: list[Row] = field(default_factory=list)

    def rows(self, statement: str, *values: object) -> list[Row]:
        return [dict(row) for row in self.connection.execute(statement, values)]

    def values(self, statement: str, *values: object) -> list[Any]:
        return [row[0] for row in self.connection.execute(statement, values)]


def read_database(path: Path, *, live: bool) -> Tables:
    """A copy of the database in memory. One that is open elsewhere is read through a reading connection; of one that
    nobody has open the files are copied first, so that looking changes nothing."""
    copy = sqlite3.connect(":memory:")
    copy.row_factory = sqlite3.Row
    with tempfile.TemporaryDirectory() as folder:
        source = path
        if path.suffix == ".gz":
            source = Path(folder) / path.stem
            with gzip.open(path) as packed, source.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
        elif not live:
            source = Path(folder) / path.name
            for part in ("", "-wal"):
                if Path(f"{path}{part}").exists():
                    shutil.copyfile(f"{path}{part}", f"{source}{part}")
        mode = "?mode=ro" if live else ""
        original = sqlite3.connect(f"file:{source}{mode}", uri=True, timeout=30)
        original.backup(copy)
        original.close()
    tables = Tables(copy)
    tables.messages = tables.rows("SELECT * FROM messages ORDER BY arrival")
    tables.versions = tables.rows("SELECT * FROM memory_versions ORDER BY id, version")
    return tables


@dataclass
class Lines:
    """The operations of all day files, and how many lines were not whole."""

    operations: list[dict[str, Any]] = field(default_factory=list)
    torn: int = 0
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)


def read_lines(folder: Path) -> Lines:
    found = Lines()
    for path in sorted(folder.glob("????-??-??.jsonl")):
        for raw in path.read_bytes().split(b"\n"):
            if raw and f"{zlib.crc32(raw[BODY_AT:]):08x}".encode() == raw[CRC_AT : CRC_AT + 8]:
                found.operations.append(json.loads(raw))
            elif raw:
                found.torn += 1
    void = [range(o["first"], o["last"] + 1) for o in found.operations if o["op"] == "void"]
    for operation in found.operations:
        if any(operation.get("n") in numbers for numbers in void):
            continue  # of a call whose lines were cut short
        match operation["op"]:
            case "message":
                _keep(found, operation)
                found.places.setdefault(operation["id"], (operation["pos"], operation["arrival"]))
            case "pending":
                for message in operation["messages"]:
                    found.messages.setdefault(message["id"], message)
            case "delete":
                found.deleted.update(operation["ids"])
    placed = [operation for operation in found.operations if operation["op"] == "placed"]
    for operation in sorted(placed, key=lambda o: o.get("n", 0)):
        found.places[operation["id"]] = (operation["pos"], operation["arrival"])
    return found


def _keep(found: Lines, operation: dict[str, Any]) -> None:
    if operation["id"] in found.messages and "pos" in found.messages[operation["id"]]:
        found.twice.append(operation["id"])
    found.messages[operation["id"]] = operation


def text_of(content: str) -> str:
    """The text of a message's content, which is JSON."""
    value = json.loads(content)
    return value if isinstance(value, str) else "".join(block.get("text", "") for block in value or [])


def by_tag(rows: list[Row], text: Any) -> dict[str, dict[int, list[Row]]]:
    """Rows by the call that their text names, and their place in it."""
    found: dict[str, dict[int, list[Row]]] = {}
    for row in rows:
        tag = TAG.search(text(row["content"]))
        if tag:
            found.setdefault(tag[1], {}).setdefault(int(tag[2]), []).append(row)
    return found
