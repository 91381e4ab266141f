"""The queue in the database: leases, attempts, back-off, dead letters."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memstore.canonical import canonical_json
from memstore.storage.pipeline_rows import Job, JobState, Owner
from memstore.storage.rows import column_names
from memstore.storage.sqlite.statements import Changes, Statements

MAX_ERROR_CHARS = 2_000
"""Of a failure that a job keeps."""
CLOCK_SLACK_US = 1_000_000
"""A stamp further than this in the future was made by a clock that was set back since."""

_BY_KIND = "j.kind = ?"
_BY_KEY = "+j.kind = ? AND j.dedupe_key = ?"
"""The sign keeps the planner from going through all that is due of the kind."""
_OF = "SELECT j.job_no FROM jobs j WHERE j.state = '{state}' AND {{of}} AND j.lease_token IS NOT ?"
"""Jobs of a kind that whoever holds the token has not had yet: one that went back into the queue keeps the token."""
_WAITING = (
    f"{_OF.format(state='queued')} AND NOT EXISTS"
    " (SELECT 1 FROM jobs r WHERE r.dedupe_key = j.dedupe_key AND r.state = 'running')"
)
"""The like of a job that runs waits, also where that lease ran out: the one that was left behind is taken over first,
which is what fences its old holder."""
_LEFT_BEHIND = (
    f"{_OF.format(state='running')} AND (j.lease_until <= ? OR j.leased_at > ?) ORDER BY j.job_no LIMIT 1"
)
_DUE = f"{_WAITING} AND j.not_before <= ? ORDER BY j.not_before, j.job_no LIMIT 1"
_SET_AHEAD = f"{_WAITING} AND j.queued_at > ? ORDER BY j.queued_at, j.job_no LIMIT 1"
_EARLY = (
    f"{_WAITING} AND NOT EXISTS (SELECT 1 FROM jobs d WHERE d.dedupe_key = j.dedupe_key AND d.state = 'done'"
    "  AND d.lease_token = ?) ORDER BY j.not_before, j.job_no LIMIT 1"
)
"""Before its time only what was not done under this token: work that queues itself again would never end."""

_HELD = "job_no = ? AND state = 'running' AND lease_token = ?"

_FIELDS = column_names(Job)
_COLUMNS = ", ".join(_FIELDS)


def _job(row: Sequence[Any]) -> Job:
    values = dict(zip(_FIELDS, row, strict=True))
    values["payload"] = json.loads(values["payload"])
    values["cost"] = json.loads(values["cost"]) if values["cost"] else {}
    return Job(**values)


def _tried_as_often(job: Job, twin: Job) -> Job:
    return replace(job, attempts=max(job.attempts, twin.attempts), outages=max(job.outages, twin.outages))


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
            f"SELECT 1 FROM jobs WHERE {_HELD}",
            (job.job_no, job.lease_token),
        )
        return held is not None

    def job_named(self, dedupe_key: str) -> Job | None:
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM jobs WHERE dedupe_key = ? ORDER BY CASE state WHEN 'running' THEN 0"
            " WHEN 'queued' THEN 1 ELSE 2 END, job_no DESC LIMIT 1",
            (dedupe_key,),
        )
        return _job(rows[0]) if rows else None

    def claimable(
        self,
        kind: str,
        lease_token: str,
        now: int,
        *,
        dedupe_key: str | None = None,
        early: bool = False,
    ) -> int | None:
        # Each case has an index of its own to walk from its beginning: with one condition for all of them the planner
        # walks the table.
        of: tuple[Any, ...] = (kind, lease_token) if dedupe_key is None else (kind, dedupe_key, lease_token)
        ahead = now + CLOCK_SLACK_US
        cases = [(_LEFT_BEHIND, (*of, now, ahead)), (_DUE, (*of, now)), (_SET_AHEAD, (*of, ahead))]
        if early:
            cases.append((_EARLY, (*of, lease_token)))
        found: int | None = self._value(
            f"SELECT coalesce({', '.join(f'({case.format(of=_BY_KIND if dedupe_key is None else _BY_KEY)})' for case, _ in cases)})",
            [value for _, bindings in cases for value in bindings],
        )
        return found


class JobWrites(JobReads, Changes):
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
        unless: Sequence[JobState] = (),
    ) -> None:
        # One that was tried in vain keeps its back-off: news do not make a broken model work.
        chosen = "max" if latest else "min"
        known = " WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE dedupe_key = ? AND state IN (SELECT value FROM json_each(?)))"
        self._run(
            "INSERT INTO jobs (kind, team_id, user_id, agent_id, dedupe_key, payload, not_before, queued_at, created_at)"
            f" SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?{known if unless else ' WHERE true'}"
            " ON CONFLICT (dedupe_key) WHERE state = 'queued' AND dedupe_key IS NOT NULL DO UPDATE"
            f" SET not_before = {chosen}(not_before, excluded.not_before), queued_at = excluded.queued_at,"
            " lease_token = NULL"
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
                *((dedupe_key, canonical_json(list(unless))) if unless else ()),
            ),
        )

    def claim(
        self,
        kind: str,
        lease_token: str,
        now: int,
        lease_until: int,
        *,
        dedupe_key: str | None = None,
        early: bool = False,
    ) -> Job | None:
        job_no = self.claimable(kind, lease_token, now, dedupe_key=dedupe_key, early=early)
        if job_no is None:
            return None
        rows = self._rows(
            "UPDATE jobs SET state = 'running', attempts = attempts + 1, lease_token = ?, lease_until = ?, leased_at = ?"
            f" WHERE job_no = ? RETURNING {_COLUMNS}",
            (lease_token, lease_until, now, job_no),
        )
        return _job(rows[0])

    def renew(self, job: Job, now: int, lease_until: int) -> bool:
        return bool(
            self._run(
                f"UPDATE jobs SET lease_until = ?, leased_at = ? WHERE {_HELD}",
                (lease_until, now, job.job_no, job.lease_token),
            )
        )

    def finish(self, job: Job, now: int | None = None) -> None:
        if now is None:
            self._run(f"DELETE FROM jobs WHERE {_HELD}", (job.job_no, job.lease_token))
            return
        finished = self._run(
            "UPDATE jobs SET state = 'done', finished_at = ?, lease_until = NULL, leased_at = NULL, last_error = NULL"
            f" WHERE {_HELD}",
            (now, job.job_no, job.lease_token),
        )
        if finished:
            self._forget_dead(job)

    def postpone(self, job: Job, now: int, not_before: int, why: str | None = None) -> None:
        if not self.holds_lease(job):
            return
        waits = replace(
            job,
            attempts=max(0, job.attempts - 1),
            not_before=not_before,
            last_error=why or job.last_error,
        )
        twin = self._twin_taken_in(job)
        if twin is None:
            self._back_into_queue(waits, now, job.lease_token)
            return
        # It was looked at before the news that queued the twin: they may be due at once, in this very pass too.
        waits = replace(_tried_as_often(waits, twin), not_before=min(not_before, twin.not_before))
        self._back_into_queue(waits, now, None)

    def fail(
        self,
        job: Job,
        error: str,
        not_before: int,
        *,
        dead: bool,
        now: int | None = None,
        outage: bool = False,
    ) -> None:
        if not self.holds_lease(job):
            return
        if dead:
            self._forget_dead(job)
            self._run(
                "UPDATE jobs SET state = 'dead', last_error = ?, not_before = ?, finished_at = ?, lease_until = NULL,"
                f" leased_at = NULL WHERE {_HELD}",
                (error[:MAX_ERROR_CHARS], not_before, now, job.job_no, job.lease_token),
            )
            return
        waits = replace(
            job,
            outages=job.outages + int(outage),
            not_before=not_before,
            last_error=error[:MAX_ERROR_CHARS],
        )
        twin = self._twin_taken_in(job)
        # News do not make a broken model work: the twin that they queued waits as long as this one.
        if twin is not None:
            waits = replace(_tried_as_often(waits, twin), not_before=max(not_before, twin.not_before))
        self._back_into_queue(waits, now or 0, job.lease_token)

    def _twin_taken_in(self, job: Job) -> Job | None:
        """The like of it that was queued meanwhile goes: of two with one key only one may be queued."""
        rows = self._rows(
            f"DELETE FROM jobs WHERE dedupe_key = ? AND state = 'queued' RETURNING {_COLUMNS}",
            (job.dedupe_key,),
        )
        return _job(rows[0]) if rows else None

    def _back_into_queue(self, job: Job, now: int, token: str | None) -> None:
        """As the job says, which still is held; the token is the one that it keeps."""
        self._run(
            "UPDATE jobs SET state = 'queued', last_error = ?, not_before = ?, queued_at = ?, attempts = ?, outages = ?,"
            f" lease_token = ?, lease_until = NULL, leased_at = NULL WHERE {_HELD}",
            (
                job.last_error,
                job.not_before,
                now,
                job.attempts,
                job.outages,
                token,
                job.job_no,
                job.lease_token,
            ),
        )

    def _forget_dead(self, job: Job) -> None:
        self._run("DELETE FROM jobs WHERE dedupe_key = ? AND state = 'dead'", (job.dedupe_key,))

    def note_progress(self, job: Job, done: int, total: int) -> None:
        self._run(
            f"UPDATE jobs SET done = ?, total = ? WHERE {_HELD}",
            (done, total, job.job_no, job.lease_token),
        )

    def note_cost(self, job: Job, calls: int, input_tokens: int, output_tokens: int) -> None:
        known = self._value("SELECT cost FROM jobs WHERE job_no = ?", (job.job_no,))
        cost: dict[str, int] = json.loads(known) if known else {}
        added = {"calls": calls, "input_tokens": input_tokens, "output_tokens": output_tokens}
        total = {name: cost.get(name, 0) + value for name, value in added.items()}
        self._run(
            f"UPDATE jobs SET cost = ? WHERE {_HELD}",
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
            "UPDATE jobs SET state = 'queued', attempts = 0, outages = 0, not_before = 0, queued_at = ?,"
            " finished_at = NULL, lease_token = NULL WHERE job_no = ?",
            (now, job_no),
        )
        return True

    def retry_jobs(self, kind: str | None, now: int) -> int:
        dead = self._rows(
            "SELECT job_no FROM jobs WHERE state = 'dead' AND (? IS NULL OR kind = ?)", (kind, kind)
        )
        return sum(self.retry_job(job_no, now) for (job_no,) in dead)

    def drop_dead(self, kind: str) -> None:
        self._run("DELETE FROM jobs WHERE kind = ? AND state = 'dead'", (kind,))

    def prune_jobs(self, finished_before: int) -> int:
        return self._run("DELETE FROM jobs WHERE state = 'done' AND finished_at < ?", (finished_before,))
