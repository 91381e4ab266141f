"""The file itself, what is derived from its rows, and files that were made beside it."""

import json
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

from evidence import Call, Row, Tables, read_database
from look import Look

FLOAT_BYTES = 4
LAYERS = {"messages": "messages", "memories": "memory_versions"}


def check_file(look: Look) -> Iterator[str]:
    """Pages, keys, and text indexes and vectors against the rows."""
    yield from (
        f"integrity_check: {line}"
        for line in look.tables.values("PRAGMA integrity_check(20)")
        if line != "ok"
    )
    yield from (f"foreign_key_check: {row}" for row in look.tables.rows("PRAGMA foreign_key_check"))
    for index in look.tables.rows(
        "SELECT i.table_name, i.layer, t.team_id FROM text_indexes i JOIN teams t USING (team_no) WHERE i.state = 'active'"
    ):
        name = index["table_name"]
        try:
            look.tables.connection.execute(f"INSERT INTO {name} ({name}) VALUES ('integrity-check')")
        except sqlite3.DatabaseError as error:
            yield f"text index {name}: {error}"
        rows = f"SELECT slot FROM {LAYERS[index['layer']]} WHERE team_id = ? AND state <> 'deleted'"
        wanted = set(look.tables.values(rows, index["team_id"]))
        found = set(look.tables.values(f"SELECT rowid FROM {name}"))
        if wanted != found:
            yield f"text index {name}: {len(wanted - found)} rows are missing, {len(found - wanted)} are too many"
    for generation in look.tables.rows("SELECT generation, dim, state FROM embedding_generations"):
        for layer in LAYERS:
            yield from _check_vectors(look, layer, generation)


def _check_vectors(look: Look, layer: str, generation: Row) -> Iterator[str]:
    number, name = generation["generation"], f"vectors_{generation['generation']}_{layer}"
    indexed = set(look.tables.values(f"SELECT slot FROM {LAYERS[layer]} WHERE state <> 'deleted'"))
    found = look.tables.rows(f"SELECT slot, vector, checksum FROM {name}")
    orphans = {row["slot"] for row in found} - indexed
    if orphans:
        yield f"{name}: {len(orphans)} vectors without a row"
    for row in found:
        sealed = zlib.crc32(f"{number}/{layer}/{row['slot']}".encode("ascii"), zlib.crc32(row["vector"]))
        if row["checksum"] != sealed or len(row["vector"]) != FLOAT_BYTES * generation["dim"]:
            yield f"{name}: the vector of {row['slot']} is damaged"
    waiting = set(
        look.tables.values(
            "SELECT slot FROM pending_vectors WHERE generation = ? AND layer = ?", number, layer
        )
    )
    lost = indexed - {row["slot"] for row in found} - waiting
    if lost and generation["state"] == "active":
        yield f"{name}: {len(lost)} rows have no vector and do not wait for one"


# --- files beside -------------------------------------------------------------------------------------------


def check_files(look: Look) -> Iterator[str]:
    """Stores that were recovered or brought up to date beside the first one. What is settled is removed."""
    if look.mode == "live":
        return  # someone may be at work on them
    noted = look.folder / "checked"
    checked = set(noted.read_text().split()) if noted.exists() else set()
    for call in look.of("file"):
        path = look.folder / call["file"]
        if call["file"] in checked or call.refused is not None:
            continue
        if path.exists():
            yield from (f"{call.name} ({call['op']}): {fault}" for fault in _faults_of_file(look, call, path))
        elif look.is_acked(call):
            yield f"LOST {call.name} ({call['op']}): {path.name} is not there"
        if look.is_acked(call):
            with noted.open("a") as file:
                file.write(f"{call['file']}\n")
            for part in ("", "-wal", "-shm"):
                Path(f"{path}{part}").unlink(missing_ok=True)


def _faults_of_file(look: Look, call: Call, path: Path) -> Iterator[str]:
    tables = read_database(path, live=False)
    yield from (line for line in tables.values("PRAGMA integrity_check(5)") if line != "ok")
    if call["holds"] == "what it held":
        yield from _changed_rows(tables, look.folder / f"{path.name}.unpacked" / "expected.json")
        newest = look.tables.values("PRAGMA user_version")
        if look.is_acked(call) and tables.values("PRAGMA user_version") != newest:
            yield "it was opened and is of an older version still"
        return
    wanted = {row["id"] for row in look.tables.messages if look.said_before(row, call.begun)}
    lost = wanted - {row["id"] for row in tables.messages}
    if lost:
        yield f"{len(lost)} messages are not in {path.name}"
    if call["holds"] == "messages and memories":
        versions = {(r["id"], r["version"]) for r in look.tables.versions if look.said_before(r, call.begun)}
        if not versions <= {(r["id"], r["version"]) for r in tables.versions}:
            yield f"versions of memories are not in {path.name}"


def _changed_rows(tables: Tables, expected: Path) -> Iterator[str]:
    """Rows of an older store that its change of version lost or changed."""
    for table in ("messages", "memory_versions", "sessions"):
        held = json.loads(expected.read_text(encoding="utf-8"))[table]
        found = tables.rows(f"SELECT {', '.join(held['columns'])} FROM {table}")
        if sorted(json.dumps(list(row.values())) for row in found) != sorted(map(json.dumps, held["rows"])):
            yield f"its {table} are not what they were"


def compare_rebuilt(folder: Path) -> Iterator[str]:
    """The store and the one made from its fallback hold the same messages and sessions."""
    one, other = (
        read_database(folder / "store.db", live=False),
        read_database(folder / "rebuilt.db", live=False),
    )
    for table, left_out in (("messages", "slot"), ("sessions", "session_no")):
        ours, theirs = (
            {json.dumps({k: v for k, v in row.items() if k != left_out}, sort_keys=True) for row in t.rows(f"SELECT * FROM {table}")}
            for t in (one, other)
        )  # fmt: skip
        if ours != theirs:
            yield f"rebuilt from the fallback: {len(ours - theirs)} {table} are missing or differ, {len(theirs - ours)} are new; {sorted(ours ^ theirs)[:2]}"
