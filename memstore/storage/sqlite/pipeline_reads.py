"""What the pipelines read of one snapshot."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from memstore.canonical import canonical_json
from memstore.storage.pipeline_rows import (
    Backlog,
    Breaker,
    Cursor,
    Owner,
    ProfileRow,
    QuarantineRow,
    RowKind,
    RowName,
    RunRow,
    SceneRow,
    SessionTiming,
    Stage,
    UsageRow,
    VerdictRow,
)
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.storage.sqlite.jobs import JobReads
from memstore.storage.sqlite.statements import (
    MEMORIES,
    MEMORY_FROM,
    MESSAGES,
    PROFILES,
    RUNS,
    SCENES,
    VERDICTS,
)

_READABLE = "m.state = 'live' AND m.hidden = 0 AND m.branch = 0 AND m.quarantined_at IS NULL"
"""Messages that a pipeline may read."""

_SLOTS_UNREAD = (
    "SELECT m.slot FROM messages m WHERE m.team_id = s.team_id AND m.user_id = s.user_id AND m.session = s.session"
    f"  AND m.pos > coalesce(c.pos, 0) AND {_READABLE}"
    " UNION ALL SELECT m.slot FROM unread_messages u CROSS JOIN messages m ON m.team_id = u.team_id"
    "  AND m.user_id = u.user_id AND m.session = u.session AND m.pos = u.pos"
    f" WHERE u.team_id = s.team_id AND u.user_id = s.user_id AND u.session = s.session AND {_READABLE}"
)
"""Keys of a session's messages that no extraction covered and a pipeline may read. Whether it may is asked in here, lest
SQLite looks for those that may first."""

_WITH_CURSOR = (
    " LEFT JOIN pipeline_cursors c ON c.team_id = s.team_id AND c.user_id = s.user_id"
    "  AND c.stage = 'extract' AND c.subject = s.session"
)

_HAS_UNREAD = (
    "(s.last_pos > coalesce(c.pos, 0) OR EXISTS (SELECT 1 FROM unread_messages u CROSS JOIN messages m"
    "  ON m.team_id = u.team_id AND m.user_id = u.user_id AND m.session = u.session AND m.pos = u.pos"
    f" WHERE u.team_id = s.team_id AND u.user_id = s.user_id AND u.session = s.session AND {_READABLE}))"
)
"""The session's last position says without looking at messages whether there may be any behind the cursor."""

_BACKLOG = (
    "SELECT s.team_id, s.user_id, s.agent_id, s.session, s.task_id, count(m.slot),"
    " coalesce(sum(m.role = 'user'), 0), max(m.recorded_at)"
    f" FROM sessions s{_WITH_CURSOR} LEFT JOIN messages m ON m.slot IN ({_SLOTS_UNREAD})"
    " WHERE s.hidden = 0"
)

_TIMING = (
    "s.session, e.runs, e.ran_at, coalesce(c.pos, 0), coalesce(c.runs, 0), c.ran_at,"
    " (SELECT m.recorded_at FROM messages m WHERE m.team_id = s.team_id AND m.user_id = s.user_id"
    f"   AND m.session = s.session AND {_READABLE} ORDER BY m.pos DESC LIMIT 1)"
)
_TIMED = (
    " JOIN pipeline_cursors e ON e.team_id = s.team_id AND e.user_id = s.user_id"
    "  AND e.stage = 'extract' AND e.subject = s.session"
    " LEFT JOIN pipeline_cursors c ON c.team_id = s.team_id AND c.user_id = s.user_id"
    "  AND c.stage = 'session_scenes' AND c.subject = s.session"
    " WHERE s.hidden = 0"
)
_TIMINGS = (
    f"SELECT {_TIMING} FROM sessions s{_TIMED} AND s.team_id = ? AND s.user_id = ? AND s.agent_id = ?"
    " ORDER BY s.session"
)


_NEWEST_ARRIVALS = 100
_WORKING = (
    "SELECT team_id, user_id, agent_id FROM sessions WHERE hidden = 0"
    " UNION SELECT m.team_id, m.user_id, coalesce(m.agent_id, m.produced_by_agent) FROM owners o"
    " JOIN memory_versions m ON m.team_id = o.team_id AND m.user_id = o.user_id AND m.arrival >"
    "  coalesce((SELECT max(n.arrival) FROM memory_versions n WHERE n.team_id = o.team_id"
    f"   AND n.user_id = o.user_id), 0) - {_NEWEST_ARRIVALS}"
    " WHERE m.state = 'live' AND coalesce(m.agent_id, m.produced_by_agent) IS NOT NULL ORDER BY 1, 2, 3"
)


_SCENES_LOSING = (
    "SELECT DISTINCT v.team_id, v.user_id, v.agent_id FROM scene_versions v"
    " JOIN sources s ON s.team_id = v.team_id AND s.derived_kind = 'scene' AND s.derived_id = v.id"
    "  AND s.derived_version = v.version AND s.source_kind = 'memory'"
    " JOIN memories h ON h.team_id = s.team_id AND h.id = s.source_id"
    " JOIN memory_versions m ON m.team_id = h.team_id AND m.id = h.id AND m.version = h.version"
    " WHERE v.state = 'live' AND m.state <> 'live' ORDER BY 1, 2, 3"
)
_MEMORY_LEFT = "coalesce(m.state, 'deleted') IN ('deleted', 'quarantined')"
_MESSAGE_LEFT = "(g.id IS NULL OR g.state <> 'live' OR g.hidden = 1 OR g.quarantined_at IS NOT NULL)"
_PROFILES_LOSING = (
    "SELECT DISTINCT v.team_id, v.user_id, v.agent_id FROM profile_versions v"
    " JOIN sources s ON s.team_id = v.team_id AND s.derived_kind = 'profile' AND s.derived_id = v.id"
    "  AND s.derived_version = v.version AND s.source_kind IN ('memory', 'message')"
    " LEFT JOIN memories h ON s.source_kind = 'memory' AND h.team_id = s.team_id AND h.id = s.source_id"
    " LEFT JOIN memory_versions m ON m.team_id = h.team_id AND m.id = h.id AND m.version = h.version"
    " LEFT JOIN messages g ON s.source_kind = 'message' AND g.team_id = s.team_id AND g.id = s.source_id"
    f" WHERE v.state = 'live' AND CASE s.source_kind WHEN 'memory' THEN {_MEMORY_LEFT} ELSE {_MESSAGE_LEFT} END"
    " ORDER BY 1, 2, 3"
)
# A version and those that it was written on from, back to the first.
_HOLDS_WHAT_LEFT = (
    "WITH RECURSIVE line (id, version) AS ("
    " SELECT id, version FROM profile_versions WHERE team_id = ?1 AND id = ?2"
    " UNION SELECT p.id, p.version FROM line l JOIN sources s ON s.team_id = ?1 AND s.derived_kind = 'profile'"
    "   AND s.derived_id = l.id AND s.derived_version = l.version AND s.source_kind = 'profile'"
    "  JOIN profile_versions p ON p.team_id = s.team_id AND p.id = s.source_id)"
    " SELECT EXISTS (SELECT 1 FROM line l JOIN sources s ON s.team_id = ?1 AND s.derived_kind = 'profile'"
    "   AND s.derived_id = l.id AND s.derived_version = l.version AND s.source_kind IN ('memory', 'message')"
    "  LEFT JOIN memories h ON s.source_kind = 'memory' AND h.team_id = s.team_id AND h.id = s.source_id"
    "  LEFT JOIN memory_versions m ON m.team_id = h.team_id AND m.id = h.id AND m.version = h.version"
    "  LEFT JOIN messages g ON s.source_kind = 'message' AND g.team_id = s.team_id AND g.id = s.source_id"
    f"  WHERE CASE s.source_kind WHEN 'memory' THEN {_MEMORY_LEFT} ELSE {_MESSAGE_LEFT} END)"
)

_OF_WORKING = {
    "agent": ("w.agent_id", "(m.agent_id = w.agent_id OR m.produced_by_agent = w.agent_id)"),
    "user": ("''", "m.agent_id IS NULL"),
}
"""Of agents at work: the subject of a cursor, and which memories of the user are meant."""


def _with_working(cursor: str, profile: str) -> str:
    """Agents at work, with how far a cursor of theirs has come."""
    subject, _ = _OF_WORKING[profile]
    return (
        f"WITH working (team_id, user_id, agent_id) AS ({_WORKING}), w AS MATERIALIZED ("
        "SELECT w.team_id, w.user_id, w.agent_id, coalesce(k.arrival, 0) AS arrival FROM working w"
        " LEFT JOIN pipeline_cursors k ON k.team_id = w.team_id AND k.user_id = w.user_id"
        f"  AND k.stage = '{cursor}' AND k.subject = {subject})"
    )


def _has_memory(profile: str) -> str:
    _, meant = _OF_WORKING[profile]
    return (
        "SELECT 1 FROM memory_versions m WHERE m.team_id = w.team_id AND m.user_id = w.user_id AND m.state = 'live'"
        f" AND {meant}"
    )


_SCENES_BEHIND = (
    f"{_with_working('scenes', 'agent')}, behind AS MATERIALIZED (SELECT w.* FROM w WHERE EXISTS ("
    f"{_has_memory('agent')} AND m.arrival > w.arrival))"
    f" SELECT b.team_id, b.user_id, b.agent_id, coalesce(a.settings, '{{}}'), {_TIMING} FROM behind b"
    " LEFT JOIN agent_settings a ON a.team_id = b.team_id AND a.user_id = b.user_id AND a.agent_id = b.agent_id"
    " JOIN sessions s ON s.team_id = b.team_id AND s.user_id = b.user_id AND s.agent_id = b.agent_id"
    f"{_TIMED} ORDER BY 1, 2, 3, 5"
)


def _with_news(profile: str) -> str:
    return (
        f"{_with_working(f'{profile}_profile', profile)} SELECT w.team_id, w.user_id, w.agent_id FROM w"
        f" WHERE EXISTS ({_has_memory(profile)} AND m.arrival > w.arrival)"
        f" OR (NOT EXISTS ({_has_memory(profile)} AND m.trust >= ?"
        "   AND m.source_kind IN (SELECT value FROM json_each(?)))"
        "  AND EXISTS (SELECT 1 FROM sessions s JOIN messages g ON g.team_id = s.team_id AND g.user_id = s.user_id"
        "    AND g.session = s.session AND g.pos = s.last_pos WHERE s.team_id = w.team_id AND s.user_id = w.user_id"
        "    AND s.agent_id = w.agent_id AND s.hidden = 0 AND g.arrival > w.arrival))"
        " ORDER BY 1, 2, 3"
    )


_WITH_NEWS = {profile: _with_news(profile) for profile in _OF_WORKING}
_LIVE_OF = "m.team_id = ? AND m.user_id = ? AND m.state = 'live'"


class PipelineReads(JobReads):
    """See :class:`memstore.storage.pipeline_rows.PipelineReader`."""

    # --- how far they are ------------------------------------------------------------------------------------

    def cursor(self, of: Owner, stage: Stage, subject: str) -> Cursor:
        rows = self._rows(
            "SELECT arrival, pos, runs, ran_at, note FROM pipeline_cursors"
            " WHERE team_id = ? AND user_id = ? AND stage = ? AND subject = ?",
            (of.team_id, of.user_id, stage, subject),
        )
        return Cursor(stage, subject, *rows[0]) if rows else Cursor(stage, subject)

    def last_arrival(self, of: Owner) -> int:
        found = self._value(
            "SELECT last_arrival FROM owners WHERE team_id = ? AND user_id = ?", (of.team_id, of.user_id)
        )
        return int(found or 0)

    def backlogs(self, of: Owner | None = None, agent_id: str | None = None) -> list[Backlog]:
        clauses, bindings = f" AND {_HAS_UNREAD}", []
        if of is not None:
            clauses += " AND s.team_id = ? AND s.user_id = ?"
            bindings += [of.team_id, of.user_id]
        if agent_id is not None:
            clauses += " AND s.agent_id = ?"
            bindings.append(agent_id)
        rows = self._rows(
            f"{_BACKLOG}{clauses} GROUP BY s.session_no ORDER BY s.team_id, s.user_id, s.session", bindings
        )
        return [Backlog(*row) for row in rows]

    def backlog(self, of: Owner, session: str) -> Backlog | None:
        rows = self._rows(
            f"{_BACKLOG} AND s.team_id = ? AND s.user_id = ? AND s.session = ? GROUP BY s.session_no",
            (of.team_id, of.user_id, session),
        )
        return Backlog(*rows[0]) if rows else None

    def session_timings(self, of: Owner, agent_id: str) -> list[SessionTiming]:
        rows = self._rows(_TIMINGS, (of.team_id, of.user_id, agent_id))
        return [SessionTiming(*row) for row in rows]

    def scenes_behind(self) -> list[tuple[Owner, str, dict[str, Any], SessionTiming]]:
        return [
            (Owner(team_id, user_id), agent_id, json.loads(settings), SessionTiming(*timing))
            for team_id, user_id, agent_id, settings, *timing in self._rows(_SCENES_BEHIND)
        ]

    def agents_with_news(
        self, profile: Literal["agent", "user"], kinds: Sequence[str], least_trust: int
    ) -> list[tuple[Owner, str]]:
        rows = self._rows(_WITH_NEWS[profile], (least_trust, canonical_json(list(kinds))))
        return [(Owner(team_id, user_id), agent_id) for team_id, user_id, agent_id in rows]

    def scenes_losing_sources(self) -> list[tuple[Owner, str]]:
        rows = self._rows(_SCENES_LOSING)
        return [(Owner(team_id, user_id), agent_id) for team_id, user_id, agent_id in rows]

    def profiles_losing_sources(self) -> list[tuple[Owner, str | None]]:
        rows = self._rows(_PROFILES_LOSING)
        return [(Owner(team_id, user_id), agent_id) for team_id, user_id, agent_id in rows]

    def unread_messages(self, of: Owner, session: str, limit: int) -> list[MessageRow]:
        rows = self._rows(
            f"SELECT {MESSAGES} FROM sessions s{_WITH_CURSOR} CROSS JOIN messages m ON m.slot IN ({_SLOTS_UNREAD})"
            " WHERE s.team_id = ? AND s.user_id = ? AND s.session = ? ORDER BY m.pos LIMIT ?",
            (of.team_id, of.user_id, session, limit),
        )
        return [MessageRow(*row) for row in rows]

    def messages_after(self, of: Owner, session: str, pos: int, limit: int) -> list[MessageRow]:
        rows = self._rows(
            f"SELECT {MESSAGES} FROM messages m WHERE m.team_id = ? AND m.user_id = ? AND m.session = ?"
            f" AND m.pos > ? AND {_READABLE} ORDER BY m.pos LIMIT ?",
            (of.team_id, of.user_id, session, pos, limit),
        )
        return [MessageRow(*row) for row in rows]

    def messages_up_to(self, of: Owner, session: str, pos: int, limit: int) -> list[MessageRow]:
        rows = self._rows(
            f"SELECT {MESSAGES} FROM messages m WHERE m.team_id = ? AND m.user_id = ? AND m.session = ?"
            f" AND m.pos <= ? AND {_READABLE} ORDER BY m.pos DESC LIMIT ?",
            (of.team_id, of.user_id, session, pos, limit),
        )
        return [MessageRow(*row) for row in reversed(rows)]

    def last_messages(self, of: Owner, agent_id: str | None, sessions: int, each: int) -> list[MessageRow]:
        keys = self._rows(
            "SELECT session, last_pos FROM sessions WHERE team_id = ? AND user_id = ? AND hidden = 0"
            " AND (? IS NULL OR agent_id = ?) ORDER BY updated_at DESC, session_no DESC LIMIT ?",
            (of.team_id, of.user_id, agent_id, agent_id, sessions),
        )
        found = [
            row for session, last_pos in keys for row in self.messages_up_to(of, session, last_pos, each)
        ]
        return sorted(found, key=lambda row: row.arrival)

    def memories_after(self, of: Owner, arrival: int, agent_id: str | None, limit: int) -> list[MemoryRow]:
        by_agent, bindings = _of_agent(agent_id)
        rows = self._rows(
            f"SELECT {MEMORIES} FROM {MEMORY_FROM} WHERE {_LIVE_OF} AND m.arrival > ? AND {by_agent}"
            " ORDER BY m.arrival LIMIT ?",
            (of.team_id, of.user_id, arrival, *bindings, limit),
        )
        return [MemoryRow(*row) for row in rows]

    def newest_memories(self, of: Owner, agent_id: str | None, limit: int) -> list[MemoryRow]:
        by_agent, bindings = _of_agent(agent_id)
        rows = self._rows(
            f"SELECT {MEMORIES} FROM {MEMORY_FROM} WHERE {_LIVE_OF} AND {by_agent}"
            " ORDER BY m.arrival DESC LIMIT ?",
            (of.team_id, of.user_id, *bindings, limit),
        )
        return [MemoryRow(*row) for row in rows]

    def neighbours_by_age(
        self, of: Owner, agent_id: str | None, task_id: str | None, limit: int
    ) -> list[MemoryRow]:
        rows = self._rows(
            f"SELECT {MEMORIES} FROM {MEMORY_FROM} WHERE {_LIVE_OF} AND (m.agent_id IS NULL OR m.agent_id = ?)"
            " AND (m.task_id IS NULL OR m.task_id IS ?) ORDER BY m.arrival DESC LIMIT ?",
            (of.team_id, of.user_id, agent_id, task_id, limit),
        )
        return [MemoryRow(*row) for row in rows]

    # --- what they made ----------------------------------------------------------------------------------------

    def run(self, team_id: str, run_id: str) -> RunRow | None:
        rows = self._rows(f"SELECT {RUNS} FROM pipeline_runs WHERE team_id = ? AND id = ?", (team_id, run_id))
        return RunRow(*rows[0]) if rows else None

    def verdict(self, team_id: str, verdict_id: str) -> VerdictRow | None:
        rows = self._rows(
            f"SELECT {VERDICTS} FROM verdicts WHERE team_id = ? AND id = ?", (team_id, verdict_id)
        )
        return VerdictRow(*rows[0]) if rows else None

    def verdicts(
        self,
        of: Owner,
        agent_id: str | None,
        session: str | None,
        limit: int,
        before: int | None,
        *,
        task_id: str | None = None,
    ) -> list[tuple[int, VerdictRow]]:
        rows = self._rows(
            f"SELECT number, {VERDICTS} FROM verdicts WHERE team_id = ? AND user_id = ?"
            " AND (? IS NULL OR agent_id = ?) AND (? IS NULL OR task_id IS NULL OR task_id = ?)"
            " AND (? IS NULL OR session = ?) AND (? IS NULL OR number < ?) ORDER BY number DESC LIMIT ?",
            (
                *(of.team_id, of.user_id, agent_id, agent_id, task_id, task_id),
                *(session, session, before, before, limit),
            ),
        )
        return [(number, VerdictRow(*row)) for number, *row in rows]

    def verdicts_of_memory(self, team_id: str, memory_id: str) -> list[VerdictRow]:
        rows = self._rows(
            f"SELECT {VERDICTS} FROM verdicts v WHERE number IN ("
            "  SELECT number FROM verdicts WHERE team_id = ? AND memory_id = ?"
            "  UNION SELECT d.number FROM memory_versions m JOIN verdicts d ON d.team_id = m.team_id"
            "    AND d.memory_id = m.superseded_by WHERE m.team_id = ? AND m.id = ?)"
            " AND undone_at IS NULL ORDER BY number",
            (team_id, memory_id, team_id, memory_id),
        )
        return [VerdictRow(*row) for row in rows]

    def scenes(self, of: Owner, agent_id: str | None) -> list[SceneRow]:
        rows = self._rows(
            f"SELECT {SCENES} FROM scene_versions v WHERE team_id = ? AND user_id = ? AND state = 'live'"
            " AND (? IS NULL OR agent_id = ?) ORDER BY"
            " (SELECT min(f.number) FROM scene_versions f WHERE f.team_id = v.team_id AND f.id = v.id)",
            (of.team_id, of.user_id, agent_id, agent_id),
        )
        return [SceneRow(*row) for row in rows]

    def memories_that_came_back(self, of: Owner, agent_id: str) -> list[str]:
        rows = self._rows(
            "SELECT DISTINCT h.id FROM pipeline_runs r CROSS JOIN json_each(r.inputs, '$.gone') j"
            " JOIN memories h ON h.team_id = r.team_id AND h.id = j.value"
            " JOIN memory_versions v ON v.team_id = h.team_id AND v.id = h.id AND v.version = h.version"
            " WHERE r.team_id = ? AND r.user_id = ? AND r.stage = 'scenes' AND r.subject = ? AND v.state = 'live'"
            " ORDER BY h.id",
            (of.team_id, of.user_id, agent_id),
        )
        return [row_id for (row_id,) in rows]

    def scene_history(self, team_id: str, scene_id: str) -> list[SceneRow]:
        rows = self._rows(
            f"SELECT {SCENES} FROM scene_versions WHERE team_id = ? AND id = ? ORDER BY version",
            (team_id, scene_id),
        )
        return [SceneRow(*row) for row in rows]

    def scenes_of_run(self, team_id: str, run_id: str) -> list[SceneRow]:
        rows = self._rows(
            f"SELECT {SCENES} FROM scene_versions WHERE team_id = ? AND run_id = ? ORDER BY number",
            (team_id, run_id),
        )
        return [SceneRow(*row) for row in rows]

    def profile(self, of: Owner, agent_id: str | None) -> ProfileRow | None:
        rows = self._rows(
            f"SELECT {PROFILES} FROM profile_versions WHERE team_id = ? AND user_id = ? AND coalesce(agent_id, '') = ?"
            " AND state = 'live'",
            (of.team_id, of.user_id, agent_id or ""),
        )
        return ProfileRow(*rows[0]) if rows else None

    def profile_holds_what_left(self, team_id: str, profile_id: str) -> bool:
        return bool(self._value(_HOLDS_WHAT_LEFT, (team_id, profile_id)))

    def profile_history(self, of: Owner, agent_id: str | None) -> list[ProfileRow]:
        rows = self._rows(
            f"SELECT {PROFILES} FROM profile_versions WHERE team_id = ? AND user_id = ? AND coalesce(agent_id, '') = ?"
            " ORDER BY version",
            (of.team_id, of.user_id, agent_id or ""),
        )
        return [ProfileRow(*row) for row in rows]

    # --- provenance ----------------------------------------------------------------------------------------------

    def sources_of(self, team_id: str, kind: RowKind, row_id: str, version: int) -> list[tuple[RowKind, str]]:
        rows = self._rows(
            "SELECT source_kind, source_id FROM sources WHERE team_id = ? AND derived_kind = ? AND derived_id = ?"
            " AND derived_version = ? ORDER BY source_kind, source_id",
            (team_id, kind, row_id, version),
        )
        return [(source_kind, source_id) for source_kind, source_id in rows]

    def derived_from(self, team_id: str, sources: Sequence[tuple[RowKind, str]]) -> list[RowName]:
        rows = self._rows(
            "SELECT DISTINCT s.derived_kind, s.derived_id, s.derived_version FROM json_each(?) j CROSS JOIN sources s"
            " WHERE s.team_id = ? AND s.source_kind = j.value ->> '$[0]' AND s.source_id = j.value ->> '$[1]'"
            " ORDER BY 1, 2, 3",
            (canonical_json([list(source) for source in sources]), team_id),
        )
        return [RowName(*row) for row in rows]

    def agents(self, of: Owner) -> list[str]:
        whose = "team_id = ? AND user_id = ?"
        rows = self._rows(
            f"SELECT agent_id FROM sessions WHERE {whose} UNION SELECT agent_id FROM scene_versions WHERE {whose}"
            f" UNION SELECT agent_id FROM profile_versions WHERE {whose} AND agent_id IS NOT NULL ORDER BY 1",
            (of.team_id, of.user_id) * 3,
        )
        return [agent_id for (agent_id,) in rows]

    # --- settings, cost ------------------------------------------------------------------------------------------

    def began_at(self) -> int | None:
        began: int | None = self._value("SELECT min(created_at) FROM teams")
        return began

    def agent_settings(self, of: Owner, agent_id: str) -> dict[str, Any]:
        found = self._value(
            "SELECT settings FROM agent_settings WHERE team_id = ? AND user_id = ? AND agent_id = ?",
            (of.team_id, of.user_id, agent_id),
        )
        settings: dict[str, Any] = json.loads(found) if found else {}
        return settings

    def usage(self, team_id: str | None, since_day: str | None) -> list[UsageRow]:
        rows = self._rows(
            "SELECT team_id, day, model, task, calls, failures, input_tokens, output_tokens FROM model_usage"
            " WHERE (? IS NULL OR team_id = ?) AND (? IS NULL OR day >= ?) ORDER BY team_id, day, model, task",
            (team_id, team_id, since_day, since_day),
        )
        return [UsageRow(*row) for row in rows]

    def tokens_used(self, team_id: str, day: str) -> int:
        return int(
            self._value(
                "SELECT coalesce(sum(input_tokens + output_tokens), 0) FROM model_usage WHERE team_id = ? AND day = ?",
                (team_id, day),
            )
        )

    def breaker(self, model: str) -> Breaker:
        rows = self._rows(
            "SELECT failures, opened_at, open_until, last_error FROM model_breakers WHERE model = ?", (model,)
        )
        return Breaker(model, *rows[0]) if rows else Breaker(model)

    def breakers(self) -> list[Breaker]:
        rows = self._rows(
            "SELECT model, failures, opened_at, open_until, last_error FROM model_breakers ORDER BY model"
        )
        return [Breaker(*row) for row in rows]

    # --- quarantine ----------------------------------------------------------------------------------------------

    def quarantines(self, of: Owner) -> list[QuarantineRow]:
        rows = self._rows(
            "SELECT team_id, id, user_id, criteria, made_by, made_at, released_at FROM quarantines"
            " WHERE team_id = ? AND user_id = ? AND released_at IS NULL ORDER BY number",
            (of.team_id, of.user_id),
        )
        return [QuarantineRow(*row) for row in rows]

    def quarantined(self, team_id: str, quarantine_id: str) -> list[tuple[RowName, str]]:
        rows = self._rows(
            "SELECT row_kind, row_id, version, prior_state FROM quarantined_rows"
            " WHERE team_id = ? AND quarantine_id = ? ORDER BY row_kind, row_id, version",
            (team_id, quarantine_id),
        )
        return [(RowName(kind, row_id, version), state) for kind, row_id, version, state in rows]

    def messages_matching(
        self,
        of: Owner,
        *,
        ids: Sequence[str] | None = None,
        session: str | None = None,
        author: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> list[str]:
        listed = None if ids is None else canonical_json(list(ids))
        rows = self._rows(
            "SELECT id FROM messages WHERE team_id = ? AND user_id = ? AND state = 'live'"
            " AND (? IS NULL OR id IN (SELECT value FROM json_each(?))) AND (? IS NULL OR session = ?)"
            " AND (? IS NULL OR name = ? OR (name IS NULL AND role = 'user' AND user_id = ?))"
            " AND (? IS NULL OR recorded_at >= ?) AND (? IS NULL OR recorded_at < ?) ORDER BY arrival",
            (
                *(of.team_id, of.user_id, listed, listed, session, session, author, author, author),
                *(since, since, until, until),
            ),
        )
        return [row_id for (row_id,) in rows]

    def quarantined_messages(self, team_id: str, ids: Sequence[str]) -> list[str]:
        rows = self._rows(
            "SELECT m.id FROM json_each(?) j CROSS JOIN messages m WHERE m.team_id = ? AND m.id = j.value"
            " AND m.quarantined_at IS NOT NULL ORDER BY m.id",
            (canonical_json(list(ids)), team_id),
        )
        return [row_id for (row_id,) in rows]

    def memories_matching(
        self,
        of: Owner,
        *,
        ids: Sequence[str] | None = None,
        session: str | None = None,
        author: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> list[str]:
        listed = None if ids is None else canonical_json(list(ids))
        rows = self._rows(
            f"SELECT m.id FROM {MEMORY_FROM} WHERE m.team_id = ? AND m.user_id = ? AND m.version = h.version"
            " AND m.state <> 'deleted' AND (? IS NULL OR m.id IN (SELECT value FROM json_each(?)))"
            " AND (? IS NULL OR m.session = ?) AND (? IS NULL OR m.actor = ?)"
            " AND (? IS NULL OR m.recorded_at >= ?) AND (? IS NULL OR m.recorded_at < ?) ORDER BY m.arrival",
            (
                *(of.team_id, of.user_id, listed, listed, session, session, author, author),
                *(since, since, until, until),
            ),
        )
        return [row_id for (row_id,) in rows]


def _of_agent(agent_id: str | None) -> tuple[str, list[str]]:
    if agent_id is None:
        return "m.agent_id IS NULL", []
    return "(m.agent_id = ? OR m.produced_by_agent = ?)", [agent_id, agent_id]
