"""Verdicts as callers get them."""

import json
from collections.abc import Iterable

from memstore.asking import principal
from memstore.cursor import not_ours, read_cursor, write_cursor
from memstore.pipelines.applying import Applied
from memstore.storage.base import Reader
from memstore.storage.pipeline_rows import Owner, RunRow, VerdictRow
from memstore.times import from_micros, optional_instant
from memstore.types import ExtractReport, Page, Scope, VerdictRecord

_MOST_NUMBER = 2**62


def verdict_record(row: VerdictRow, run: RunRow | None) -> VerdictRecord:
    """:param run: the one in which it was decided."""
    proposal = json.loads(row.proposal)
    return VerdictRecord(
        id=row.id,
        action=row.action,  # type: ignore[arg-type] # a CHECK constraint holds it
        content=proposal["content"],
        kind=proposal["kind"],
        priority=proposal["priority"],
        agent_id=row.agent_id,
        session=row.session,
        source_ids=tuple(proposal["source_ids"]),
        candidates=tuple((one["id"], one["content"]) for one in json.loads(row.candidates)),
        target_ids=tuple(json.loads(row.target_ids)),
        memory_id=row.memory_id,
        reason=row.reason,
        decided_by=row.decided_by,
        decided_at=from_micros(row.decided_at),
        run_id=row.run_id,
        prompt=None if run is None else run.prompt,
        reply=None if run is None else run.reply,
        undone_at=optional_instant(row.undone_at),
        undone_by=row.undone_by,
    )


def verdict_records(reader: Reader, rows: Iterable[VerdictRow]) -> list[VerdictRecord]:
    """With what the model answered."""
    runs: dict[tuple[str, str], RunRow | None] = {}
    records = []
    for row in rows:
        key = row.team_id, row.verdict_run_id or row.run_id
        if key not in runs:
            runs[key] = reader.run(*key)
        records.append(verdict_record(row, runs[key]))
    return records


def verdict_page(
    reader: Reader, scope: Scope, session: str | None, limit: int, cursor: str | None
) -> Page[VerdictRecord]:
    """A page of the verdicts that the asker's agent and task leave over, the newest first."""
    before = None if cursor is None else _read_cursor(cursor)
    if limit == 0 or not principal(reader, scope).is_member:
        return Page([], None)
    of = Owner(scope.team_id, scope.user_id)
    found = reader.verdicts(of, scope.agent_id, session, limit + 1, before, task_id=scope.task_id)
    shown = found[:limit]
    place = [shown[-1][0]] if len(found) > limit else None
    return Page(verdict_records(reader, [row for _, row in shown]), write_cursor(place))


def _read_cursor(cursor: str) -> int:
    match read_cursor(cursor):
        case [int(number)] if not isinstance(number, bool) and 0 < number < _MOST_NUMBER:
            return number
    raise not_ours(cursor)


def extract_report(session: str, scene: str, applied: Iterable[Applied]) -> ExtractReport:
    """What a forced extraction came to; ``scene`` is the one before it."""
    messages, by = 0, ""
    verdicts: list[VerdictRecord] = []
    refused: list[str] = []
    for one in applied:
        messages += one.messages
        verdicts += [verdict_record(row, run) for row, run in one.verdicts]
        refused += one.refused
        by, scene = one.decided_by or by, one.scene
    return ExtractReport(session, messages, scene, tuple(verdicts), tuple(refused), by)
