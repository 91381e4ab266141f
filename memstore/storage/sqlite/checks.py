"""What ``doctor`` finds inside the SQLite file."""

import stat
from collections.abc import Callable
from pathlib import Path

import apsw

from memstore.storage.migrate import edited_steps
from memstore.storage.sqlite import keys, text_index, vector_index
from memstore.storage.sqlite.connection import all_rows, scalar
from memstore.types import Finding

REINDEX = "memstore reindex"
RECOVER = "memstore recover --out NEW.db"
MAX_TEAMS = 500
HasTokens = Callable[[str], bool]
"""Whether the tokenizer finds anything to index in a text."""


def check_file(connection: apsw.Connection, path: Path, has_tokens: HasTokens) -> list[Finding]:
    """Tables, constraints, indexes, vectors, queue, and the modes of the files."""
    findings = _check_tables(connection)
    if findings:
        return findings  # what stands on damaged tables proves nothing
    return [
        *_check_migrations(connection),
        *_check_text(connection, has_tokens),
        *_check_vectors(connection),
        *_check_queue(connection),
        *_check_modes(path),
    ]


def counts(connection: apsw.Connection) -> dict[str, int]:
    """How many rows there are of each kind."""
    statements = {
        "teams": "SELECT count(*) FROM teams",
        "users": "SELECT count(*) FROM members",
        "sessions": "SELECT count(*) FROM sessions",
        "messages": "SELECT count(*) FROM messages WHERE state = 'live'",
        "memories": "SELECT count(*) FROM memory_versions WHERE state = 'live'",
        "pending_vectors": "SELECT count(*) FROM pending_vectors WHERE refused IS NULL",
        "refused_vectors": "SELECT count(*) FROM pending_vectors WHERE refused IS NOT NULL",
        "queued_jobs": "SELECT count(*) FROM jobs WHERE state <> 'dead'",
    }
    found = {name: int(scalar(connection, statement)) for name, statement in statements.items()}
    found["vectors"] = sum(
        int(scalar(connection, f"SELECT count(*) FROM {vector_index.table_name(generation, layer)}"))
        for (generation,) in all_rows(
            connection, "SELECT generation FROM embedding_generations WHERE state = 'active'"
        )
        for layer in vector_index.LAYERS
    )
    return found


def _check_tables(connection: apsw.Connection) -> list[Finding]:
    """Each ordinary table with its indexes; what belongs to the derived indexes is checked with them."""
    findings = []
    for (table,) in all_rows(
        connection,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        " AND name NOT LIKE 'text!_%' ESCAPE '!' AND name NOT LIKE 'vectors!_%' ESCAPE '!'"
        " OR name = 'text_indexes'",
    ):
        for (line,) in all_rows(connection, f"PRAGMA integrity_check({table})"):
            if line != "ok":
                findings.append(Finding("tables", "error", f"{table}: {line}", RECOVER))
    for table, rowid, parent, _ in all_rows(connection, "PRAGMA foreign_key_check"):
        message = f"row {rowid} of {table} points to a row of {parent} that is not there"
        findings.append(Finding("constraints", "error", message, RECOVER))
    return findings


def _check_migrations(connection: apsw.Connection) -> list[Finding]:
    return [
        Finding("migrations", "warning", f"migration {name} was applied in another form than this program's")
        for name in edited_steps(connection)
    ]


def _check_text(connection: apsw.Connection, has_tokens: HasTokens) -> list[Finding]:
    findings = []
    teams = int(scalar(connection, "SELECT count(*) FROM teams"))
    if teams > MAX_TEAMS:
        message = f"{teams} teams in one file slow its opening; use a file a team, or PostgreSQL"
        findings.append(Finding("text index", "warning", message))
    for name, team_no, layer in all_rows(connection, "SELECT table_name, team_no, layer FROM text_indexes"):
        fault = text_index.integrity_fault(connection, name) or _text_drift(
            connection, name, team_no, layer, has_tokens
        )
        if fault:
            findings.append(Finding("text index", "error", f"{name}: {fault}", REINDEX))
    return [*findings, *_unlisted(connection, has_tokens)]


def _unlisted(connection: apsw.Connection, has_tokens: HasTokens) -> list[Finding]:
    """Layers of a team that hold words and have no index: a search there finds nothing without saying why."""
    findings = []
    for layer, table in text_index.ROW_TABLE.items():
        for team_no, team_id in all_rows(
            connection,
            "SELECT team_no, team_id FROM teams WHERE team_no NOT IN (SELECT team_no FROM text_indexes WHERE layer = ?)",
            (layer,),
        ):
            slots = keys.team_range(team_no)
            rows = all_rows(
                connection,
                f"SELECT {text_index.TEXT_COLUMNS[layer]} FROM {table} m"
                " WHERE m.slot BETWEEN ? AND ? AND m.state <> 'deleted'",
                (slots.first, slots.last),
            )
            if any(has_tokens(text_index.row_text(*columns)) for columns in rows):
                message = f"the {layer} of team {team_id!r} are in no text index"
                findings.append(Finding("text index", "error", message, REINDEX))
    return findings


def _text_drift(
    connection: apsw.Connection, name: str, team_no: int, layer: str, has_tokens: HasTokens
) -> str | None:
    table = text_index.ROW_TABLE[layer]  # type: ignore[index] # a CHECK constraint holds it
    text = text_index.TEXT_COLUMNS[layer]  # type: ignore[index]
    try:
        missing = sum(
            has_tokens(text_index.row_text(*columns))
            for columns in all_rows(
                connection,
                f"SELECT {text} FROM {table} m JOIN teams t ON t.team_id = m.team_id"
                f" WHERE t.team_no = ? AND m.state <> 'deleted' AND m.slot NOT IN (SELECT rowid FROM {name})",
                (team_no,),
            )
        )
        orphans = scalar(
            connection,
            f"SELECT count(*) FROM {name} f LEFT JOIN {table} m ON m.slot = f.rowid"
            " WHERE m.slot IS NULL OR m.state = 'deleted'",
        )
    except apsw.Error as error:
        return f"unreadable: {error}"
    if missing or orphans:
        return f"{missing} rows are missing, {orphans} are too many"
    return None


def _check_vectors(connection: apsw.Connection) -> list[Finding]:
    findings = []
    for generation, dim in all_rows(
        connection, "SELECT generation, dim FROM embedding_generations WHERE state = 'active'"
    ):
        for layer in vector_index.LAYERS:
            name = vector_index.table_name(generation, layer)
            try:
                damaged = len(vector_index.damaged(connection, generation, layer, dim))
                lost, orphans = _vector_drift(connection, name, generation, layer)
            except apsw.Error as error:
                findings.append(Finding("vectors", "error", f"{name}: unreadable: {error}", REINDEX))
                continue
            if damaged or lost or orphans:
                message = f"{name}: {damaged} damaged, {lost} lost, {orphans} without a row"
                findings.append(Finding("vectors", "error", message, REINDEX))
    waiting = int(scalar(connection, "SELECT count(*) FROM pending_vectors WHERE refused IS NULL"))
    if waiting:
        findings.append(Finding("vectors", "info", f"{waiting} rows wait for a vector", "memstore index"))
    refused = int(scalar(connection, "SELECT count(*) FROM pending_vectors WHERE refused IS NOT NULL"))
    if refused:
        message = f"{refused} rows have no usable vector and are found by text only"
        findings.append(Finding("vectors", "info", message))
    return findings


def _vector_drift(connection: apsw.Connection, name: str, generation: int, layer: str) -> tuple[int, int]:
    lost = orphans = 0
    for (table,) in all_rows(connection, "SELECT table_name FROM text_indexes WHERE layer = ?", (layer,)):
        lost += scalar(
            connection,
            f"SELECT count(*) FROM {table} f WHERE NOT EXISTS (SELECT 1 FROM {name} v WHERE v.slot = f.rowid)"
            " AND NOT EXISTS (SELECT 1 FROM pending_vectors p"
            "   WHERE p.generation = ? AND p.layer = ? AND p.slot = f.rowid)",
            (generation, layer),
        )
    rows = text_index.ROW_TABLE[layer]  # type: ignore[index]
    orphans = scalar(
        connection,
        f"SELECT count(*) FROM {name} v LEFT JOIN {rows} m ON m.slot = v.slot"
        " WHERE m.slot IS NULL OR m.state = 'deleted'",
    )
    return lost, orphans


def _check_queue(connection: apsw.Connection) -> list[Finding]:
    return [
        Finding(
            "queue",
            "warning",
            f"job {job_no} ({kind}) gave up after its last attempt: {error}",
            "memstore index",
        )
        for job_no, kind, error in all_rows(
            connection,
            "SELECT job_no, kind, last_error FROM jobs WHERE state = 'dead' ORDER BY job_no LIMIT 20",
        )
    ]


def _check_modes(path: Path) -> list[Finding]:
    findings = []
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
            message = f"{file.name} may be read by other users of this machine"
            findings.append(Finding("file modes", "warning", message, f"chmod 600 {file}"))
    return findings
