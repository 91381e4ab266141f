"""L1: a session's new messages become memories (SPEC W3 to W6).

A window is read on one snapshot, judged outside of any transaction, and applied in one: killed at any point, it is simply
done again, and nothing twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from memstore.agent_settings import AgentSettings
from memstore.errors import AlreadyRunning
from memstore.ids import new_id
from memstore.pipelines.applying import Applied, Applying, Outcome, covering
from memstore.pipelines.checking import check_proposals, encodable
from memstore.pipelines.comparing import comparison, neighbourhood
from memstore.pipelines.settling import Batch, Settled, settle
from memstore.pipelines.sweeping import under_way
from memstore.pipelines.windows import Excerpt, excerpt
from memstore.pipelines.work import SECOND, Lease, NotDue, Pipelines, owner_of
from memstore.storage.base import Writer
from memstore.storage.pipeline_rows import Backlog, Cursor, Job, Owner, job_key
from memstore.text import IndexTokens

KIND: Literal["extract"] = "extract"
MAX_SCENE_CHARS = 300


@dataclass(frozen=True, slots=True)
class _Task:
    """A session's work as it was read."""

    of: Owner
    session: str
    agent_id: str
    settings: AgentSettings
    cursor: Cursor
    backlog: Backlog | None


class ExtractRunner:
    """Extracts memories from sessions in which enough was said, or nothing any more for a while.

    :param on_applied: called with what was made of each window, behind its transaction.
    """

    kind = KIND

    def __init__(self, pipelines: Pipelines, on_applied: Callable[[Applied], None] | None = None) -> None:
        self._pipelines = pipelines
        self._on_applied = on_applied

    def sweep(self) -> None:
        """Sessions with messages that no extraction covered get a job, unless one is there that waits, runs or gave up."""
        with self._pipelines.storage.read() as reader:
            known = under_way(reader, KIND)
            missing = [one for one in reader.backlogs() if _key(_owner(one), one.session) not in known]
        if not missing:
            return
        now = self._pipelines.now()
        with self._pipelines.storage.write() as tx:
            for backlog in missing:
                _enqueue(tx, _owner(backlog), backlog.agent_id, backlog.session, now)

    def run(self, lease: Lease, *, force: bool = False) -> NotDue | None:
        """One window after another, until what is left is not due."""
        done = total = 0
        while True:
            task = self._read(lease.job)
            if task.backlog is None or task.backlog.messages == 0:
                if self._nothing_left(lease, task):
                    return None
                continue
            total = total or task.backlog.messages
            due = due_at(task.backlog, task.cursor, task.settings, lease.now())
            if due is not None and not force and not done:
                return NotDue(due)
            step = self._window(lease, task, (done, total), force=force)
            if step is None:
                continue  # the messages changed while they were judged
            applied, finished = step
            done += applied.messages
            if self._on_applied is not None:
                self._on_applied(applied)
            if finished:
                return None

    # --- reading and judging -----------------------------------------------------------------------------------

    def _read(self, job: Job) -> _Task:
        of, session, agent_id = owner_of(job), job.payload["session"], job.payload["agent_id"]
        with self._pipelines.storage.read() as reader:
            return _Task(
                of,
                session,
                agent_id,
                self._pipelines.agent_settings(reader, of, agent_id),
                reader.cursor(of, KIND, session),
                reader.backlog(of, session),
            )

    def _window(
        self, lease: Lease, task: _Task, progress: tuple[int, int], *, force: bool
    ) -> tuple[Applied, bool] | None:
        """Judge the next window and apply it. Also whether the job ended with it; None: it has to be read anew."""
        assert task.backlog is not None  # noqa: S101 - asked by the caller
        with self._pipelines.storage.read() as reader:
            found = excerpt(reader, task.backlog, task.cursor, task.settings, self._pipelines.zone)
        outcome = self._judged(lease, task, found) if found.window.new else None
        cut = self._cut(task, outcome.settled if outcome is not None else ())
        with lease.write() as tx:
            self._check(tx, lease, task)
            if not _still_there(tx, task, found):
                return None
            if outcome is None:
                tx.cover(task.of, covering(task.cursor, found.covered), [row.pos for row in found.covered])
                applied = Applied(len(found.covered), task.cursor.note or "", "", (), ())
            else:
                tokenizer = self._pipelines.tokenizers.of(tx, task.of.team_id)
                applying = Applying(tx, outcome, task.settings, tokenizer, cut, self._new_id, lease.now())
                applied = applying.apply(task.cursor)
            tx.note_progress(lease.job, progress[0] + applied.messages, progress[1])
            return applied, self._finish(tx, lease, task, force=force)

    def _judged(self, lease: Lease, task: _Task, found: Excerpt) -> Outcome:
        """Ask the judge what the window holds, and what becomes of it. No transaction is open meanwhile."""
        judge, window = self._pipelines.judge_for(task.of, task.settings, lease), found.window
        lease.renew()
        extraction = judge.extract(window)
        scene = encodable(extraction.value.scene)[:MAX_SCENE_CHARS]
        extraction = replace(extraction, value=replace(extraction.value, scene=scene))
        items, refused = check_proposals(extraction.value, window)
        near = neighbourhood(self._pipelines, window.scope, items, task.settings.neighbours)
        compared = None
        # rules also compare the items of a batch with each other; a model is asked only about memories that are there
        if not near.empty or (len(items) > 1 and extraction.prompt is None):
            lease.renew()
            asked = comparison(window.scope, window.language, items, near, lease.now())
            compared = judge.verdicts(asked)
        batch = Batch(window, extraction.by, lease.now(), self._new_id)
        settled = settle(batch, items, near, None if compared is None else compared.value)
        return Outcome(window, found.covered, extraction, refused, near, compared, settled)

    def _cut(self, task: _Task, settled: Sequence[Settled]) -> dict[str, IndexTokens]:
        """The words of what may be stored, cut before the transaction."""
        tokenizer = self._pipelines.tokenizers.likely(task.of.team_id)
        rows = [row for one in settled for row in (one.row, one.plain) if row is not None]
        return {row.content: tokenizer.index(row.content) for row in rows}

    def _new_id(self) -> str:
        return new_id(self._pipelines.clock.now())

    # --- ending ------------------------------------------------------------------------------------------------

    @staticmethod
    def _check(tx: Writer, lease: Lease, task: _Task) -> None:
        """:raises AlreadyRunning: when another worker took the job, or did the same work."""
        if not tx.holds_lease(lease.job) or tx.cursor(task.of, KIND, task.session) != task.cursor:
            raise AlreadyRunning(f"session {task.session!r:.60} is extracted by another worker")

    def _finish(self, tx: Writer, lease: Lease, task: _Task, *, force: bool) -> bool:
        """End the job, unless so much is left that it goes on at once. What is left and not due waits in a new job."""
        cursor = tx.cursor(task.of, KIND, task.session)
        left = tx.backlog(task.of, task.session)
        if left is not None and left.messages > 0:
            due = None if force else due_at(left, cursor, task.settings, lease.now())
            if due is None:
                return False
            _enqueue(tx, task.of, task.agent_id, task.session, lease.now(), due)
        lease.finish(tx)
        return True

    def _nothing_left(self, lease: Lease, task: _Task) -> bool:
        """End the job; what lies behind the cursor cannot be read now, so that the cursor passes it by. False: something
        came in meanwhile."""
        with lease.write() as tx:
            self._check(tx, lease, task)
            left = tx.backlog(task.of, task.session)
            if left is not None and left.messages > 0:
                return False
            row = tx.session(task.of.team_id, task.of.user_id, task.session)
            if row is not None and row.last_pos > task.cursor.pos:
                tx.cover(task.of, replace(task.cursor, pos=row.last_pos), [])
            lease.finish(tx)
            return True


def due_at(backlog: Backlog, cursor: Cursor, settings: AgentSettings, now: int) -> int | None:
    """None: a session is to be extracted from now; else when it will be if nothing more is said."""
    if backlog.rounds >= settings.rounds_for(cursor.runs) or backlog.last_recorded_at is None:
        return None
    quiet = now - backlog.last_recorded_at
    idle = round(settings.idle_s * SECOND)
    # negative: a clock was set back since, and it is long ago
    return None if quiet >= idle or quiet < 0 else backlog.last_recorded_at + idle


def _still_there(tx: Writer, task: _Task, found: Excerpt) -> bool:
    """Whether what was judged may be read still: nobody deleted it, or put it under quarantine, in the meantime."""
    if not found.covered:
        return False
    held = tx.unread_messages(task.of, task.session, len(found.covered))
    background = {message.id for message in found.window.background}
    before = (
        tx.messages_up_to(task.of, task.session, found.covered[0].pos - 1, task.settings.background_messages)
        if background
        else []
    )
    return [row.id for row in held] == [row.id for row in found.covered] and (
        background <= {row.id for row in before}
    )


def extract_job(of: Owner, agent_id: str, session: str) -> tuple[str, dict[str, str]]:
    """Key and payload of the job of a session."""
    payload = {"team_id": of.team_id, "user_id": of.user_id, "agent_id": agent_id, "session": session}
    return _key(of, session), payload


def _owner(backlog: Backlog) -> Owner:
    return Owner(backlog.team_id, backlog.user_id)


def _key(of: Owner, session: str) -> str:
    return job_key(KIND, of.team_id, of.user_id, session)


def _enqueue(
    tx: Writer, of: Owner, agent_id: str, session: str, now: int, not_before: int | None = None
) -> None:
    key, payload = extract_job(of, agent_id, session)
    tx.enqueue(KIND, key, payload, now, now if not_before is None else not_before)
