"""The queue in the database: leases, attempts, back-off, dead letters."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from memstore.canonical import canonical_json
from memstore.storage.pipeline_rows import Job, JobState, Owner
from memstore.storage.rows import column_names
from memstore.storage.sqlite.statements import Changes, Statements

MAX_ERROR_CHARS = 2_000
"""Of a failure that a job keeps."""
CLOCK_SLACK_US = 1_000_000
"""A stamp further than this in the future was made by a clock that was set back since."""

_FIELDS = column_names(Job)
_COLUMNS = ", ".join(_FIELDS)


def _job(row: Sequence[Any]) -> Job:
    values = dict(zip(_FIELDS, row, strict=True))
    values["payload"] = json.loads(values["payload"])
    values["cost"] = json.loads(values["cost"]) if values["cost"] else {}
    return Job(**values)


class JobReads(Statements):
    """See :class:`memstore.storage.pipeline_rows.PipelineReader`."""

    def jobs(self, state: JobState | None, kind: str | None, of: Owner | None, limit: int) -> list[Job]:
        owner = (None, None) if of is None else (of.team_id, of.user_id)
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM jobs WHERE (? IS NULL OR state = ?) AND (? IS NULL OR kind = ?)"
            " AND (? IS NULL OR (team_id = ? AND user_id = ?)) ORDER BY job_no DESC LIMIT ?",
            (state, state, kind, kind, owner[0], *owner, limit),
        )
        return [_job(row) for row in rows]

    def job(self, job_no: int) -> Job | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM jobs WHERE job_no = ?", (job_no,))
        return _job(rows[0]) if rows else None

    def next_due(self, kinds: Sequence[str]) -> int | None:
        due: int | None = self._value(
            "SELECT min(CASE state WHEN 'queued' THEN not_before ELSE lease_until END) FROM jobs"
            " WHERE state IN ('queued', 'running') AND kind IN (SELECT value FROM json_each(?))",
            (canonical_json(list(kinds)),),
        )
        return due

    def holds_lease(self, job: Job) -> bool:
        held = self._value(
            "SELECT 1 FROM jobs WHERE job_no = ? AND state = 'running' AND lease_token = ?",
            (job.job_no, job.lease_token),
        )
        return held is not None


class JobWrites(Changes):
    """See :class:`memstore.storage.pipeline_rows.PipelineWriter`."""

    def enqueue(
        self,
        kind: str,
        dedupe_key: str,
        payload: Mapping[str, Any],
        now: int,
        not_before: int = 0,
        *,
        latest: bool = False,
    ) -> None:
        # One that was tried in vain keeps its back-off: news do not make a broken model work.
        chosen = "max" if latest else "min"
        self._run(
            "INSERT INTO jobs (kind, team_id, user_id, agent_id, dedupe_key, payload, not_before, queued_at, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (dedupe_key) WHERE state = 'queued' AND dedupe_key IS NOT NULL DO UPDATE"
            f" SET not_before = {chosen}(not_before, excluded.not_before), queued_at = excluded.queued_at"
            f" WHERE attempts = 0 AND not_before <> {chosen}(not_before, excluded.not_before)",
            (
                kind,
                payload.get("team_id"),
                payload.get("user_id"),
                payload.get("agent_id"),
                dedupe_key,
                canonical_json(payload),
                not_before,
                now,
                now,
            ),
        )

    def claim(
        self,
        kind: str,
        lease_token: str,
        now: int,
        lease_until: int,
        *,
        job_no: int | None = None,
        dedupe_key: str | None = None,
        early: bool = False,
    ) -> Job | None:
        ahead = now + CLOCK_SLACK_US
        rows = self._rows(
            "UPDATE jobs SET state = 'running', attempts = attempts + 1, lease_token = ?, lease_until = ?, leased_at = ?"
            " WHERE job_no = (SELECT j.job_no FROM jobs j WHERE j.kind = ? AND (? IS NULL OR j.job_no = ?)"
            "   AND (? IS NULL OR j.dedupe_key = ?)"
            "   AND ((j.state = 'queued' AND (? OR j.not_before <= ? OR j.queued_at > ?))"
            "     OR (j.state = 'running' AND (j.lease_until <= ? OR j.leased_at > ?)))"
            "   AND NOT EXISTS (SELECT 1 FROM jobs r WHERE r.dedupe_key = j.dedupe_key AND r.state = 'running'"
            "     AND r.job_no <> j.job_no AND r.lease_until > ? AND r.leased_at <= ?)"
            "   ORDER BY j.job_no LIMIT 1)"
            f" RETURNING {_COLUMNS}",
            (
                lease_token,
                lease_until,
                now,
                kind,
                job_no,
                job_no,
                dedupe_key,
                dedupe_key,
                early,
                now,
                ahead,
                now,
                ahead,
                now,
                ahead,
            ),
        )
        return _job(rows[0]) if rows else None

    def renew(self, job: Job, now: int, lease_until: int) -> bool:
        return bool(
            self._run(
                "UPDATE jobs SET lease_until = ?, leased_at = ?"
                " WHERE job_no = ? AND state = 'running' AND lease_token = ?",
                (lease_until, now, job.job_no, job.lease_token),
            )
        )

    def finish(self, job: Job, now: int | None = None) -> None:
        if now is None:
            self._run("DELETE FROM jobs WHERE job_no = ? AND lease_token = ?", (job.job_no, job.lease_token))
            return
        finished = self._run(
            "UPDATE jobs SET state = 'done', finished_at = ?, lease_token = NULL, lease_until = NULL, leased_at = NULL,"
            " last_error = NULL WHERE job_no = ? AND lease_token = ?",
            (now, job.job_no, job.lease_token),
        )
        if finished:
            self._run("DELETE FROM jobs WHERE dedupe_key = ? AND state = 'dead'", (job.dedupe_key,))

    def postpone(self, job: Job, now: int, not_before: int) -> None:
        self._back_into_queue(job, now, not_before, max(0, job.attempts - 1), job.last_error)

    def fail(self, job: Job, error: str, not_before: int, *, dead: bool, now: int | None = None) -> None:
        if not dead:
            self._back_into_queue(job, now or 0, not_before, job.attempts, error[:MAX_ERROR_CHARS])
            return
        self._run(
            "UPDATE jobs SET state = 'dead', last_error = ?, finished_at = ?, lease_token = NULL, lease_until = NULL,"
            " leased_at = NULL WHERE job_no = ? AND lease_token = ?",
            (error[:MAX_ERROR_CHARS], now, job.job_no, job.lease_token),
        )

    def _back_into_queue(self, job: Job, now: int, not_before: int, attempts: int, error: str | None) -> None:
        """Where the like of it was queued meanwhile, that takes over, and with it what was tried in vain."""
        twin = self._value(
            "SELECT t.job_no FROM jobs j JOIN jobs t ON t.state = 'queued' AND t.dedupe_key = j.dedupe_key"
            " WHERE j.job_no = ? AND j.lease_token = ?",
            (job.job_no, job.lease_token),
        )
        if twin is None:
            self._run(
                "UPDATE jobs SET state = 'queued', last_error = ?, not_before = ?, queued_at = ?, attempts = ?,"
                " lease_token = NULL, lease_until = NULL, leased_at = NULL WHERE job_no = ? AND lease_token = ?",
                (error, not_before, now, attempts, job.job_no, job.lease_token),
            )
            return
        self._run(
            "UPDATE jobs SET attempts = max(attempts, ?), not_before = max(not_before, ?), queued_at = ?,"
            " last_error = coalesce(?, last_error) WHERE job_no = ?",
            (attempts, not_before, now, error, twin),
        )
        self._run("DELETE FROM jobs WHERE job_no = ?", (job.job_no,))

    def note_progress(self, job: Job, done: int, total: int) -> None:
        self._run(
            "UPDATE jobs SET done = ?, total = ? WHERE job_no = ? AND lease_token = ?",
            (done, total, job.job_no, job.lease_token),
        )

    def note_cost(self, job: Job, calls: int, input_tokens: int, output_tokens: int) -> None:
        known = self._value("SELECT cost FROM jobs WHERE job_no = ?", (job.job_no,))
        cost: dict[str, int] = json.loads(known) if known else {}
        added = {"calls": calls, "input_tokens": input_tokens, "output_tokens": output_tokens}
        total = {name: cost.get(name, 0) + value for name, value in added.items()}
        self._run(
            "UPDATE jobs SET cost = ? WHERE job_no = ? AND lease_token = ?",
            (canonical_json(total), job.job_no, job.lease_token),
        )

    def retry_job(self, job_no: int, now: int) -> bool:
        rows = self._rows("SELECT dedupe_key FROM jobs WHERE job_no = ? AND state = 'dead'", (job_no,))
        if not rows:
            return False
        twin = self._value("SELECT job_no FROM jobs WHERE dedupe_key = ? AND state = 'queued'", (rows[0][0],))
        if twin is not None:
            self._run("DELETE FROM jobs WHERE job_no = ?", (job_no,))
            job_no = twin
        self._run(
            "UPDATE jobs SET state = 'queued', attempts = 0, not_before = 0, queued_at = ?, finished_at = NULL"
            " WHERE job_no = ?",
            (now, job_no),
        )
        return True

    def drop_dead(self, kind: str) -> None:
        self._run("DELETE FROM jobs WHERE kind = ? AND state = 'dead'", (kind,))

    def prune_jobs(self, finished_before: int) -> int:
        return self._run("DELETE FROM jobs WHERE state = 'done' AND finished_at < ?", (finished_before,))
