"""What ``doctor`` finds in the rows themselves: what must hold between them, and whether they still say what their
checksums were taken of. Nothing here can be mended from elsewhere in the file."""

import json
from collections.abc import Callable
from typing import Any

import apsw

from memstore.canonical import checksum
from memstore.errors import InvalidInput
from memstore.storage.pipeline_rows import ProfileRow, RunRow, SceneRow, VerdictRow, row_checksum
from memstore.storage.rows import column_names
from memstore.storage.sqlite.connection import all_rows, scalar
from memstore.storage.sqlite.keys import MAX_NUMBER, NUMBER_BITS
from memstore.text import dictionary_digest, searchable_text
from memstore.types import Finding

NAMED_ROWS = 3
"""So many rows are named by id, the rest is counted."""

_SAME_SESSION = "m.team_id = s.team_id AND m.user_id = s.user_id AND m.session = s.session"
_RULES: tuple[tuple[str, str], ...] = (
    (
        "sessions that end before their last message",
        f"SELECT count(*) FROM sessions s WHERE s.last_pos < (SELECT max(m.pos) FROM messages m WHERE {_SAME_SESSION})",
    ),
    (
        "sessions with messages of a later fork than their last",
        f"SELECT count(*) FROM sessions s WHERE s.last_fork < (SELECT max(m.branch) FROM messages m WHERE {_SAME_SESSION})",
    ),
    (
        "sessions with messages and without a record",
        (
            "SELECT count(*) FROM (SELECT DISTINCT team_id, user_id, session FROM messages) m"
            f" WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE {_SAME_SESSION})"
        ),
    ),
    (
        "memories whose current version is not their last one, or is not there",
        (
            "SELECT count(*) FROM memories m WHERE m.version IS NOT"
            " (SELECT max(v.version) FROM memory_versions v WHERE v.team_id = m.team_id AND v.id = m.id)"
        ),
    ),
    (
        "versions of memories under another user than the memory's",
        (
            "SELECT count(*) FROM memory_versions v JOIN memories m ON m.team_id = v.team_id AND m.id = v.id"
            " WHERE m.user_id <> v.user_id"
        ),
    ),
    (
        "members without a range of keys",
        (
            "SELECT count(*) FROM members m WHERE NOT EXISTS"
            " (SELECT 1 FROM owners o WHERE o.team_id = m.team_id AND o.user_id = m.user_id)"
        ),
    ),
    (
        "memories, scenes or profiles that a pipeline made and that have no sources",
        (
            "SELECT (SELECT count(*) FROM memory_versions v WHERE v.verdict_id IS NOT NULL AND v.version = 1"
            "   AND v.state <> 'deleted' AND NOT EXISTS (SELECT 1 FROM sources s WHERE s.team_id = v.team_id"
            "   AND s.derived_kind = 'memory' AND s.derived_id = v.id))"
            " + (SELECT count(*) FROM scene_versions v WHERE NOT EXISTS (SELECT 1 FROM sources s"
            "   WHERE s.team_id = v.team_id AND s.derived_kind = 'scene' AND s.derived_id = v.id"
            "   AND s.derived_version = v.version))"
        ),
    ),
    (
        "sessions whose messages are covered beyond their last position",
        (
            "SELECT count(*) FROM pipeline_cursors c JOIN sessions s ON s.team_id = c.team_id AND s.user_id = c.user_id"
            " AND s.session = c.subject WHERE c.stage = 'extract' AND c.pos > s.last_pos"
        ),
    ),
    *(
        (
            f"rows of {table} under a key of somebody else's range",
            (
                f"SELECT count(*) FROM {table} m LEFT JOIN owners o ON o.owner_no = m.slot >> {NUMBER_BITS}"
                f" WHERE o.team_id IS NOT m.team_id OR o.user_id IS NOT m.user_id{shared}"
            ),
        )
        for table, shared in (("messages", ""), ("memory_versions", " AND o.user_id IS NOT NULL"))
    ),
    *(
        (
            f"owners whose last {what} number is smaller than one of {table}",
            f"SELECT count(*) FROM owners o WHERE o.{column} < {largest}",
        )
        for table in ("messages", "memory_versions")
        for what, column, largest in (
            (
                "key",
                "last_number",
                (
                    f"(SELECT max(slot) & {MAX_NUMBER} FROM {table} WHERE slot BETWEEN o.owner_no << {NUMBER_BITS}"
                    f" AND (o.owner_no << {NUMBER_BITS}) + {MAX_NUMBER})"
                ),
            ),
            (
                "arrival",
                "last_arrival",
                f"(SELECT max(arrival) FROM {table} WHERE team_id = o.team_id AND user_id = o.user_id)",
            ),
        )
    ),
)
"""What must hold between rows: in words of what breaks it, and as a count of the rows that do."""

_SEALED: dict[str, Any] = {
    "pipeline_runs": RunRow,
    "verdicts": VerdictRow,
    "scene_versions": SceneRow,
    "profile_versions": ProfileRow,
}
_MESSAGES = "m.id, m.role, m.name, m.content, m.tool_calls, m.tool_call_id, m.search_text, m.checksum"
_VERSIONS = "m.id, m.kind, m.content, m.checksum"


def check_rules(connection: apsw.Connection, repair: str) -> list[Finding]:
    """Rows that contradict each other."""
    findings = []
    for what, statement in _RULES:
        found = int(scalar(connection, statement))
        if found:
            findings.append(Finding("constraints", "error", f"{found} {what}", repair))
    for team_id, digest in all_rows(connection, "SELECT team_id, dictionary_digest FROM teams"):
        words = all_rows(
            connection, "SELECT word, frequency FROM dictionary_words WHERE team_id = ?", (team_id,)
        )
        if digest != dictionary_digest(dict(words)):
            message = f"the words of team {team_id!r} are not those that its digest was taken of"
            findings.append(Finding("constraints", "error", message, repair))
    return findings


def check_checksums(connection: apsw.Connection, repair: str, compared: int | None) -> list[Finding]:
    """Rows that say something else than was stored. ``compared``: of a larger table only about so many are looked at."""
    return [
        *_differing(connection, "messages", _MESSAGES, _message_holds, repair, compared),
        *_differing(connection, "memory_versions", _VERSIONS, _version_holds, repair, compared),
        *check_decisions(connection, repair),
    ]


def check_decisions(connection: apsw.Connection, repair: str) -> list[Finding]:
    """Runs, verdicts, scenes and profiles that are not what was stored."""
    findings = []
    for table, row_type in _SEALED.items():
        columns = ", ".join(column_names(row_type))
        wrong = [
            row.id
            for row in (row_type(*values) for values in connection.execute(f"SELECT {columns} FROM {table}"))
            if not _seal_holds(row)
        ]
        if wrong:
            named = ", ".join(map(str, wrong[:NAMED_ROWS])) + (
                " and others" if len(wrong) > NAMED_ROWS else ""
            )
            message = f"{len(wrong)} rows of {table} are not what their checksums were taken of: {named}"
            findings.append(Finding("tables", "error", message, repair))
    return findings


def _seal_holds(row: Any) -> bool:
    try:
        return bool(row_checksum(row) == row.checksum)
    except InvalidInput:
        return False  # bytes that are no text any more


def _differing(
    connection: apsw.Connection,
    table: str,
    columns: str,
    holds: Callable[..., bool],
    repair: str,
    compared: int | None,
) -> list[Finding]:
    total = int(scalar(connection, f"SELECT count(*) FROM {table}"))
    every = 1 if compared is None else max(1, -(-total // compared))
    wrong = [
        row_id
        for row_id, *values in connection.execute(
            f"SELECT {columns} FROM (SELECT slot, row_number() OVER (ORDER BY slot) AS number FROM {table}) n"
            f" CROSS JOIN {table} m ON m.slot = n.slot WHERE n.number % ? = 0",
            (every,),
        )
        if not holds(*values)
    ]
    findings = []
    if wrong:
        named = ", ".join(map(str, wrong[:NAMED_ROWS])) + (" and others" if len(wrong) > NAMED_ROWS else "")
        message = f"{len(wrong)} rows of {table} are not what their checksums were taken of: {named}"
        findings.append(Finding("tables", "error", message, repair))
    if every > 1:
        message = f"the checksums of {total - total // every} rows of {table} were not compared; memstore doctor --full does"
        findings.append(Finding("tables", "info", message))
    return findings


def _message_holds(
    role: str,
    name: str | None,
    content: str,
    tool_calls: str | None,
    tool_call_id: str | None,
    search_text: str | None,
    stored: str,
) -> bool:
    try:
        said: Any = json.loads(content)
        calls = json.loads(tool_calls) if tool_calls else []
        wanted = None if isinstance(said, str) else searchable_text(said)
        return search_text == wanted and checksum(role, name, said, calls, tool_call_id) == stored
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, InvalidInput):
        return False  # no JSON any more, or none that memstore writes


def _version_holds(kind: object, content: object, stored: str) -> bool:
    return isinstance(kind, str) and isinstance(content, str) and checksum(kind, content) == stored
