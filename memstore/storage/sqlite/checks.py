"""What ``doctor`` finds inside the SQLite file."""

import shlex
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw

from memstore.config import MAINTENANCE_BUSY_TIMEOUT_S
from memstore.storage.migrate import edited_steps, newest_version
from memstore.storage.sqlite import vector_index
from memstore.storage.sqlite.connection import all_rows, driver_errors, open_connection, scalar
from memstore.storage.sqlite.index_checks import (
    REINDEX,
    ROWS_COMPARED,
    TokenizerOf,
    check_text,
    check_vectors,
)
from memstore.storage.sqlite.reader import SqliteReader
from memstore.storage.sqlite.row_checks import check_checksums, check_rules
from memstore.text import Tokenizer
from memstore.types import Finding

RECOVER = "memstore recover --out NEW.db"
INDEX = "memstore index"
WORK = "memstore work --once"
VACUUM = "memstore vacuum"
LINES_SHOWN = 3
"""Of what SQLite says against one table."""
JOBS_SHOWN = 20
HOUR_US = 3_600 * 1_000_000
OVERDUE_US = 24 * HOUR_US
_UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Examined:
    """What ``doctor`` found in a file. Without ``sound`` rows nothing else is worth asking."""

    findings: list[Finding]
    counts: dict[str, int]
    versions: dict[str, str]
    sound: bool


def examine(
    path: Path,
    tokenizer_of: Callable[[SqliteReader, str], Tokenizer],
    *,
    full: bool,
    now: int,
    repair: str,
    vfs: str | None = None,
) -> Examined:
    """Look at a file through a connection of its own: what others have in their caches proves nothing of the disk, and
    after damage was met a connection is not to be used any more."""
    connection = open_connection(
        path, busy_timeout_s=MAINTENANCE_BUSY_TIMEOUT_S, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs
    )
    try:
        with driver_errors(path):
            reader = SqliteReader(connection)
            findings = check_file(
                connection,
                path,
                lambda team_id: tokenizer_of(reader, team_id),
                full=full,
                now=now,
                repair=repair,
            )
            sound = not any(
                finding.severity == "error" and finding.check in ("tables", "constraints")
                for finding in findings
            )
            versions = {
                "sqlite": str(scalar(connection, "SELECT sqlite_version()")),
                "sqlite-vec": str(scalar(connection, "SELECT vec_version()")),
                "apsw": apsw.apsw_version(),
                "schema": str(newest_version()),
            }
            found = Examined(findings, counts(connection) if sound else {}, versions, sound)
    finally:
        connection.close()
    if not any(finding.severity == "error" for finding in findings):
        findings += _check_free_pages(path, vfs)
    return found


def examine_rows(path: Path, repair: str, *, vfs: str | None = None) -> list[Finding]:
    """The same of the rows alone, for a store that says something of itself with which it cannot be used."""
    connection = open_connection(
        path, busy_timeout_s=MAINTENANCE_BUSY_TIMEOUT_S, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs
    )
    try:
        with driver_errors(path):
            return _readable("tables", repair, lambda: check_tables(connection, repair))
    finally:
        connection.close()


def check_file(
    connection: apsw.Connection,
    path: Path,
    tokenizer_of: TokenizerOf,
    *,
    full: bool = False,
    now: int | None = None,
    repair: str = RECOVER,
) -> list[Finding]:
    """Tables, constraints, checksums, indexes, vectors, queue, and the modes of the files.

    :param now: microseconds; leases that ended before count as left behind. :param repair: of damaged tables.
    """
    modes = check_modes(path)
    findings = _readable("tables", repair, lambda: check_tables(connection, repair))
    if findings:
        return [*findings, *modes]  # what stands on damaged tables proves nothing
    compared = None if full else ROWS_COMPARED
    findings = _readable("tables", repair, lambda: check_checksums(connection, repair, compared))
    if any(finding.severity == "error" for finding in findings):
        return [*findings, *modes]
    sections: tuple[tuple[str, str, Callable[[], list[Finding]]], ...] = (
        ("migrations", repair, lambda: _check_migrations(connection)),
        ("text index", REINDEX, lambda: check_text(connection, tokenizer_of, full=full)),
        ("vectors", REINDEX, lambda: check_vectors(connection, full=full)),
        ("queue", repair, lambda: _check_queue(connection, now)),
    )
    for check, command, look in sections:
        findings += _readable(check, command, look)
    return [*findings, *modes]


def _readable(check: str, repair: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """What a check finds; that the file cannot be read for it is a finding too."""
    try:
        return look()
    except apsw.ReadOnlyError:
        message = "not checked: the file cannot be written, which a part of this check needs"
        return [Finding(check, "info", message)]
    except _UNREADABLE as error:
        return [Finding(check, "error", f"unreadable: {error}", repair)]
    except (ValueError, TypeError, AttributeError, KeyError) as error:  # of values that nothing here writes
        message = f"a row holds what memstore never writes ({type(error).__name__}: {error}); memstore doctor --full finds it"
        return [Finding("tables", "error", message, repair)]


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
        "queued_jobs": "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')",
    }
    found = {name: int(scalar(connection, statement)) for name, statement in statements.items()}
    found["vectors"] = 0
    for (generation,) in all_rows(
        connection, "SELECT generation FROM embedding_generations WHERE state = 'active'"
    ):
        try:
            found["vectors"] += vector_index.count(connection, generation)
        except _UNREADABLE:
            continue  # the check of the vectors has named it
    return found


def ordinary_tables(connection: apsw.Connection) -> list[str]:
    """The tables that hold rows of their own; what belongs to the derived indexes is checked with them."""
    return [
        name
        for (name,) in all_rows(
            connection,
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            " AND name NOT LIKE 'text!_%' ESCAPE '!' AND name NOT LIKE 'vectors!_%' ESCAPE '!'"
            " OR name = 'text_indexes' ORDER BY name",
        )
    ]


def check_tables(connection: apsw.Connection, repair: str = RECOVER) -> list[Finding]:
    """Each ordinary table with its indexes, and what must hold between rows."""
    findings = []
    for table in ordinary_tables(connection):
        findings += _readable("tables", repair, lambda name=table: _check_table(connection, name, repair))  # type: ignore[misc]
    if findings:
        return findings
    for table, rowid, parent, _ in all_rows(connection, "PRAGMA foreign_key_check"):
        message = f"row {rowid} of {table} points to a row of {parent} that is not there"
        command = REINDEX if table == "text_indexes" else repair
        findings.append(Finding("constraints", "error", message, command))
    if int(scalar(connection, "PRAGMA user_version")) < newest_version():
        return findings  # a copy of an older form, with other columns
    return [*findings, *check_rules(connection, repair)]


def _check_table(connection: apsw.Connection, table: str, repair: str) -> list[Finding]:
    # An empty tree is not looked into by the integrity check; a statement that opens it is refused.
    all_rows(connection, f"SELECT * FROM {table} NOT INDEXED LIMIT 1")
    lines = [line for (line,) in all_rows(connection, f"PRAGMA integrity_check({table})") if line != "ok"]
    if not lines:
        return []
    shown = "; ".join(lines[:LINES_SHOWN])
    more = f" (and {len(lines) - LINES_SHOWN} more)" if len(lines) > LINES_SHOWN else ""
    return [Finding("tables", "error", f"{table}: {shown}{more}", repair)]


def is_whole(connection: apsw.Connection) -> bool:
    """Whether SQLite finds nothing at all to say against the file."""
    try:
        return all_rows(connection, "PRAGMA integrity_check(1)") == [("ok",)]
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, UnicodeDecodeError):
        return False  # SQLError: a text index without one of the tables behind it


def _check_free_pages(path: Path, vfs: str | None) -> list[Finding]:
    """Whether every page belongs to one table, or to none. Only asked where nothing else is wrong.

    On a connection of its own: in one that has read a text index before, SQLite's integrity check was seen to take
    what another process has added since for damage of the index.
    """
    connection = open_connection(
        path, busy_timeout_s=MAINTENANCE_BUSY_TIMEOUT_S, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs
    )
    try:
        with driver_errors(path):
            if is_whole(connection):
                return []
    finally:
        connection.close()
    message = "pages belong to no table, or to two; all rows are sound, but writing on may spoil some"
    return [Finding("free pages", "error", message, VACUUM)]


def _check_migrations(connection: apsw.Connection) -> list[Finding]:
    return [
        Finding(
            "migrations",
            "warning",
            f"migration {name} was applied in another form than this program's; use the memstore release that made "
            "the store, or report this with both versions",
        )
        for name in edited_steps(connection)
    ]


def _check_queue(connection: apsw.Connection, now: int | None) -> list[Finding]:
    """Index jobs are done by ``memstore index``, with a model; all others by a worker."""
    given_up = [
        Finding(
            "queue",
            "warning",
            f"job {job_no} ({kind}) gave up after its last attempt: {error}",
            INDEX if kind == "index" else f"memstore jobs retry {job_no}",
        )
        for job_no, kind, error in all_rows(
            connection,
            "SELECT job_no, kind, last_error FROM jobs WHERE state = 'dead' ORDER BY job_no LIMIT ?",
            (JOBS_SHOWN,),
        )
    ]
    left = [
        Finding(
            "queue",
            "warning" if kind == "index" else "info",
            f"job {job_no} ({kind}) was left half-way by a worker that ended",
            INDEX if kind == "index" else WORK,
        )
        for job_no, kind in all_rows(
            connection,
            "SELECT job_no, kind FROM jobs WHERE state = 'running' AND coalesce(lease_until, 0) <= ?"
            " ORDER BY job_no LIMIT ?",
            (now or 0, JOBS_SHOWN),
        )
    ]
    return [*given_up, *left, *_check_overdue(connection, now or 0)]


def _check_overdue(connection: apsw.Connection, now: int) -> list[Finding]:
    """Nobody need run a worker: it is worth a word and no more."""
    waiting, since = all_rows(
        connection,
        "SELECT count(*), min(max(not_before, queued_at)) FROM jobs"
        " WHERE state = 'queued' AND kind <> 'index' AND max(not_before, queued_at) <= ?",
        (now - OVERDUE_US,),
    )[0]
    if not waiting:
        return []
    hours = (now - since) // HOUR_US
    message = (
        f"no worker runs: jobs are due for more than a day ({waiting}, the first for {hours} hours). What was said is kept "
        "and can be searched, but no memories are made of it"
    )
    return [Finding("worker", "info", message, WORK)]


def check_modes(path: Path) -> list[Finding]:
    """Files of the database that others may read."""
    findings = []
    for file in (path, *(Path(f"{path}{suffix}") for suffix in ("-wal", "-shm", ".reserve"))):
        if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
            message = f"{file.name} may be read by other users of this machine"
            findings.append(Finding("file modes", "warning", message, f"chmod 600 {shlex.quote(str(file))}"))
    return findings
