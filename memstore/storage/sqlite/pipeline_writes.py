"""What the pipelines write, inside one transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

from memstore.canonical import canonical_json
from memstore.storage.pipeline_rows import (
    Breaker,
    Cursor,
    Owner,
    ProfileRow,
    QuarantineRow,
    RowName,
    RunRow,
    SceneRow,
    SourceLink,
    UsageRow,
    VerdictRow,
    sealed,
)
from memstore.storage.sqlite.jobs import JobWrites
from memstore.storage.sqlite.statements import (
    PROFILE_COLUMNS,
    RUN_COLUMNS,
    SCENE_COLUMNS,
    VERDICT_COLUMNS,
    insert_sql,
    values_of,
)


class PipelineWrites(JobWrites):
    """See :class:`memstore.storage.pipeline_rows.PipelineWriter`."""

    def set_cursor(self, of: Owner, cursor: Cursor) -> None:
        self._run(
            "INSERT INTO pipeline_cursors (team_id, user_id, stage, subject, arrival, pos, runs, ran_at, note)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (team_id, user_id, stage, subject) DO UPDATE"
            " SET arrival = excluded.arrival, pos = excluded.pos, runs = excluded.runs, ran_at = excluded.ran_at,"
            " note = excluded.note",
            (
                of.team_id,
                of.user_id,
                cursor.stage,
                cursor.subject,
                cursor.arrival,
                cursor.pos,
                cursor.runs,
                cursor.ran_at,
                cursor.note,
            ),
        )

    def cover(self, of: Owner, cursor: Cursor, positions: Sequence[int]) -> None:
        of_session = (of.team_id, of.user_id, cursor.subject)
        covered = canonical_json(list(positions))
        self._run(
            "DELETE FROM unread_messages WHERE team_id = ? AND user_id = ? AND session = ?"
            " AND pos IN (SELECT value FROM json_each(?))",
            (*of_session, covered),
        )
        self._run(
            "INSERT OR IGNORE INTO unread_messages (team_id, user_id, session, pos)"
            " SELECT team_id, user_id, session, pos FROM messages WHERE team_id = ? AND user_id = ? AND session = ?"
            " AND pos > coalesce((SELECT pos FROM pipeline_cursors WHERE team_id = ? AND user_id = ?"
            "  AND stage = 'extract' AND subject = ?), 0) AND pos <= ?"
            " AND state = 'live' AND hidden = 0 AND pos NOT IN (SELECT value FROM json_each(?))",
            (*of_session, *of_session, cursor.pos, covered),
        )
        self.set_cursor(of, cursor)

    def read_again(self, of: Owner, session: str, message_ids: Sequence[str]) -> None:
        self._run(
            "INSERT OR IGNORE INTO unread_messages (team_id, user_id, session, pos)"
            " SELECT m.team_id, m.user_id, m.session, m.pos FROM json_each(?) j CROSS JOIN messages m"
            " WHERE m.team_id = ? AND m.id = j.value AND m.user_id = ? AND m.session = ?",
            (canonical_json(list(message_ids)), of.team_id, of.user_id, session),
        )

    def put_run(self, row: RunRow) -> None:
        self._run(insert_sql("pipeline_runs", RUN_COLUMNS), values_of(sealed(row), RUN_COLUMNS))

    def put_verdict(self, row: VerdictRow) -> None:
        self._run(insert_sql("verdicts", VERDICT_COLUMNS), values_of(sealed(row), VERDICT_COLUMNS))

    def mark_verdict_undone(self, team_id: str, verdict_id: str, by: str, now: int) -> None:
        self._run(
            "UPDATE verdicts SET undone_at = ?, undone_by = ? WHERE team_id = ? AND id = ?",
            (now, by, team_id, verdict_id),
        )

    def mark_run_undone(self, team_id: str, run_id: str, by: str, now: int) -> None:
        self._run(
            "UPDATE pipeline_runs SET undone_at = ?, undone_by = ? WHERE team_id = ? AND id = ?",
            (now, by, team_id, run_id),
        )

    def add_sources(self, team_id: str, links: Sequence[SourceLink]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO sources (team_id, derived_kind, derived_id, derived_version, source_kind, source_id)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [
                (
                    team_id,
                    link.derived_kind,
                    link.derived_id,
                    link.derived_version,
                    link.source_kind,
                    link.source_id,
                )
                for link in links
            ],
        ).fetchall()

    # --- scenes and profiles -------------------------------------------------------------------------------------

    def put_scene(self, row: SceneRow) -> None:
        self._run(
            "UPDATE scene_versions SET state = 'superseded', superseded_at = ?"
            " WHERE team_id = ? AND id = ? AND state = 'live'",
            (row.recorded_at, row.team_id, row.id),
        )
        self._run(insert_sql("scene_versions", SCENE_COLUMNS), values_of(sealed(row), SCENE_COLUMNS))

    def set_scene_state(self, team_id: str, scene_id: str, version: int, state: str, at: int | None) -> None:
        self._run(
            "UPDATE scene_versions SET state = ?, superseded_at = ? WHERE team_id = ? AND id = ? AND version = ?",
            (state, at, team_id, scene_id, version),
        )

    def put_profile(self, row: ProfileRow) -> None:
        self._run(
            "UPDATE profile_versions SET state = 'superseded', superseded_at = ?"
            " WHERE team_id = ? AND user_id = ? AND coalesce(agent_id, '') = ? AND state = 'live'",
            (row.recorded_at, row.team_id, row.user_id, row.agent_id or ""),
        )
        self._run(insert_sql("profile_versions", PROFILE_COLUMNS), values_of(sealed(row), PROFILE_COLUMNS))

    def set_profile_state(self, team_id: str, version_id: str, state: str, at: int | None) -> None:
        self._run(
            "UPDATE profile_versions SET state = ?, superseded_at = ? WHERE team_id = ? AND id = ?",
            (state, at, team_id, version_id),
        )

    # --- settings, cost ------------------------------------------------------------------------------------------

    def set_agent_settings(self, of: Owner, agent_id: str, settings: Mapping[str, Any], now: int) -> None:
        self._run(
            "INSERT INTO agent_settings (team_id, user_id, agent_id, settings, updated_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (team_id, user_id, agent_id) DO UPDATE"
            " SET settings = excluded.settings, updated_at = excluded.updated_at",
            (of.team_id, of.user_id, agent_id, canonical_json(dict(settings)), now),
        )

    def add_usage(self, row: UsageRow) -> None:
        self._run(
            "INSERT INTO model_usage (team_id, day, model, task, calls, failures, input_tokens, output_tokens)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (team_id, day, model, task) DO UPDATE SET"
            " calls = calls + excluded.calls, failures = failures + excluded.failures,"
            " input_tokens = input_tokens + excluded.input_tokens, output_tokens = output_tokens + excluded.output_tokens",
            (
                row.team_id,
                row.day,
                row.model,
                row.task,
                row.calls,
                row.failures,
                row.input_tokens,
                row.output_tokens,
            ),
        )

    def set_breaker(self, row: Breaker) -> None:
        self._run(
            "INSERT INTO model_breakers (model, failures, opened_at, open_until, last_error) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (model) DO UPDATE SET failures = excluded.failures, opened_at = excluded.opened_at,"
            " open_until = excluded.open_until, last_error = excluded.last_error",
            (row.model, row.failures, row.opened_at, row.open_until, row.last_error),
        )

    # --- quarantine ----------------------------------------------------------------------------------------------

    def set_memory_state(self, team_id: str, memory_id: str, version: int, state: str) -> None:
        self._run(
            "UPDATE memory_versions SET state = ? WHERE team_id = ? AND id = ? AND version = ?",
            (state, team_id, memory_id, version),
        )

    def set_messages_quarantined(self, team_id: str, ids: Sequence[str], at: int | None) -> None:
        self._run(
            "UPDATE messages SET quarantined_at = ? WHERE team_id = ? AND id IN (SELECT value FROM json_each(?))",
            (at, team_id, canonical_json(list(ids))),
        )

    def put_quarantine(self, row: QuarantineRow, rows: Sequence[tuple[RowName, str]]) -> None:
        self._run(
            "INSERT INTO quarantines (team_id, id, user_id, criteria, made_by, made_at) VALUES (?, ?, ?, ?, ?, ?)",
            (row.team_id, row.id, row.user_id, row.criteria, row.made_by, row.made_at),
        )
        self._connection.executemany(
            "INSERT INTO quarantined_rows (team_id, quarantine_id, row_kind, row_id, version, prior_state)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [(row.team_id, row.id, name.kind, name.id, name.version, state) for name, state in rows],
        ).fetchall()

    def release_quarantine(self, team_id: str, quarantine_id: str, now: int) -> None:
        self._run(
            "UPDATE quarantines SET released_at = ? WHERE team_id = ? AND id = ?",
            (now, team_id, quarantine_id),
        )
