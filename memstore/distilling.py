"""What a store makes of its conversations: the verbs around the pipelines."""

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from memstore.agent_settings import AgentSettings
from memstore.asking import Instant, check_scope, principal
from memstore.backup import Backups
from memstore.clock import Clock
from memstore.config import MAX_LIMIT, Settings
from memstore.embedding import Embedder
from memstore.errors import InvalidInput, NotFound
from memstore.fallback import Operation
from memstore.journal import Journal
from memstore.llm import LLM
from memstore.pipelines.agents import change_settings, settings_of
from memstore.pipelines.cost import local_day
from memstore.pipelines.extraction import ExtractRunner, extract_job
from memstore.pipelines.profile_versions import Profiles, TakenOver
from memstore.pipelines.profiles import ProfileRunner
from memstore.pipelines.quarantine import Quarantine, criteria_of
from memstore.pipelines.records import extract_report, verdict_page
from memstore.pipelines.scene_versions import scene_records, scene_versions, undo_run
from memstore.pipelines.scenes import SceneRunner
from memstore.pipelines.undoing import undo_verdict
from memstore.pipelines.upkeep_jobs import UPKEEP, BackupRunner, IndexRunner
from memstore.pipelines.values import ProfileName
from memstore.pipelines.work import Pipelines, Runner
from memstore.session_key import parse_session_key
from memstore.storage.base import Writer
from memstore.storage.pipeline_rows import JobState, Owner
from memstore.storage.sqlite import SqliteStorage
from memstore.times import to_micros
from memstore.tokenizers import Tokenizers
from memstore.types import (
    ExtractReport,
    JobRecord,
    Page,
    ProfileRecord,
    SceneRecord,
    Scope,
    UsageRecord,
    VerdictRecord,
    WorkReport,
    check_limit,
)
from memstore.worker import OnJob, Worker, WorkerThread, job_record

if TYPE_CHECKING:
    from memstore.pipelines.applying import Applied

JOB_STATES: tuple[JobState, ...] = ("queued", "running", "done", "dead")
_STARTING = threading.Lock()
"""Two threads that start the worker of one store get the same one."""


class Distilling:
    """The part of :class:`memstore.store.MemoryStore` that concerns memories made from conversations: the worker and its
    jobs, verdicts, scenes, profiles, settings of agents, quarantine. The store itself makes what is declared here."""

    settings: Settings
    timezone: ZoneInfo
    _storage: SqliteStorage
    _journal: Journal
    _clock: Clock
    _tokenizers: Tokenizers
    _llm: LLM | None
    _pipelines: Pipelines
    _instant: Instant
    _embedder: Embedder | None
    _backups: Backups
    _worker_threads: Sequence[WorkerThread] = ()
    """One that goes on at most; the others were told to end, and wait for a model still."""

    # --- the worker (worker.py) --------------------------------------------------------------------------------

    def work(self, once: bool = True, *, force: bool = False, on_job: OnJob | None = None) -> WorkReport:
        """Carry out the background work that is due: make memories, scenes and profiles of what was recorded, index, and
        back up at night. Any number of workers, in any number of processes, may do this at the same time.

        :param once: return when nothing is due any more. False: go on until the store is closed by another thread, or
            until an exception such as KeyboardInterrupt ends the wait. Where a thread of :meth:`start_worker` is at work
            that one is waited for, and it goes on when the wait ends.
        :param force: whatever is queued, whether its time has come or not (once, at the beginning).
        :param on_job: called behind each job, with ``done``, ``failed``, ``dead`` or ``postponed``. What it raises is
            logged, and the work goes on.
        :raises InvalidInput: for ``force`` or ``on_job`` where it waits for a thread that works without them.
        :raises StoreError: when the queue cannot be read or written. What a job raises is kept with the job, and it is
            tried again: see :meth:`jobs`.
        """
        if once:
            return self._worker(on_job).run_due(force=force)
        thread, own = self._thread_at_work(1.0, force=force, on_job=on_job)
        if not own and (force or on_job is not None):
            raise InvalidInput(
                "a thread of this store is at work already, without this force and on_job: leave them out, or stop it first"
            )
        try:
            thread.join()
        finally:
            if own:
                thread.stop()
        return thread.report

    def start_worker(
        self, poll_s: float = 1.0, *, force: bool = False, on_job: OnJob | None = None
    ) -> WorkerThread:
        """Have a thread of this process do the background work, until its ``stop`` is called or the store is closed. Where
        one does already, and was not told to end, it is the one returned, as it is.

        :param poll_s: how often it looks into the queue. :param force: at its first look, see :meth:`work`.
        :param on_job: see :meth:`work`; called in that thread.
        """
        return self._thread_at_work(poll_s, force=force, on_job=on_job)[0]

    def _thread_at_work(
        self, poll_s: float, *, force: bool, on_job: OnJob | None
    ) -> tuple[WorkerThread, bool]:
        """The thread, and whether it was started for this."""
        with _STARTING:
            self._storage.check_open()
            running = [thread for thread in self._worker_threads if thread.running]
            at_work = next((thread for thread in running if not thread.ending), None)
            if at_work is not None:
                return at_work, False
            started = WorkerThread(self._worker(on_job), poll_s, force=force)
            self._worker_threads = [*running, started]
            return started, True

    def _stop_worker(self) -> None:
        """Before the store is closed. A transaction that is open then is waited for, a model that hangs is not."""
        for thread in self._worker_threads:
            thread.stop()

    def _worker(self, on_job: OnJob | None = None) -> Worker:
        runners = self._runners()
        if on_job is None:
            return Worker(self._pipelines, runners, first=UPKEEP)
        return Worker(self._pipelines, runners, on_job, first=UPKEEP)

    def _runners(self) -> list[Runner]:
        """Of all kinds of jobs that this store can do, in the order in which they build on each other."""
        made: list[Runner] = [
            ExtractRunner(self._pipelines),
            SceneRunner(self._pipelines),
            ProfileRunner(self._pipelines, "agent"),
            ProfileRunner(self._pipelines, "user"),
        ]
        if self._embedder is not None:
            made.append(IndexRunner(self._pipelines, self._embedder))
        return [*made, BackupRunner(self._pipelines, self._backups)]

    def jobs(
        self, state: JobState | None = None, kind: str | None = None, limit: int = 50
    ) -> list[JobRecord]:
        """The jobs of the whole store, the newest first: what waits, runs, was done in the last week or gave up."""
        if state is not None and state not in JOB_STATES:
            raise InvalidInput(f"state must be one of {', '.join(JOB_STATES)}, not {state!r:.40}")
        with self._storage.read() as reader:
            found = reader.jobs(state, kind, None, check_limit(limit, MAX_LIMIT))
        return [job_record(job) for job in found]

    def job(self, job_no: int) -> JobRecord:
        """One job, also one that is done.

        :raises NotFound: when there is none of that number.
        """
        with self._storage.read() as reader:
            found = reader.job(_job_number(job_no))
        if found is None:
            raise NotFound(f"no job {job_no}: it never was, or was done more than a week ago")
        return job_record(found)

    def retry_job(self, job_no: int) -> JobRecord:
        """Queue a job that gave up once more, as if it were new. Where the same work waits already, that is due at once;
        returns what waits now.

        :raises NotFound: when there is none of that number. :raises InvalidInput: when it did not give up.
        """
        with self._storage.write() as tx:
            found = tx.job(_job_number(job_no))
            if found is None:
                raise NotFound(f"no job {job_no}: it never was, or was done more than a week ago")
            if not tx.retry_job(job_no, to_micros(self._clock.now())):
                raise InvalidInput(
                    f"job {job_no} is {found.state}; only one that gave up (dead) is queued again"
                )
            waiting = tx.job(job_no) or (found.dedupe_key and tx.job_named(found.dedupe_key)) or found
        return job_record(waiting)

    def retry_jobs(self, kind: str | None = None) -> int:
        """Queue all jobs that gave up once more, or those of a kind; returns how many they were. See :meth:`retry_job`."""
        with self._storage.write() as tx:
            return tx.retry_jobs(kind, to_micros(self._clock.now()))

    # --- memories and verdicts (pipelines/extraction.py, verdicts.py) --------------------------------------------

    def extract(self, scope: Scope, session: str) -> ExtractReport:
        """Make memories of all that is pending of a session, now and here, whatever is due.

        :param session: as in :meth:`record`.
        :raises NotFound: when the asker has no such session. :raises AlreadyRunning: when a worker is at it.
        :raises LLMError: when the model gave nothing usable; the messages stay pending, and a worker tries again.
        """
        key = str(parse_session_key(session, check_scope(scope).agent_id))
        of = Owner(scope.team_id, scope.user_id)
        with self._storage.read() as reader:
            row = reader.session(scope.team_id, scope.user_id, key)
            if row is None or row.hidden or not principal(reader, scope).is_member:
                raise NotFound(f"no session {key!r:.60} for this asker")
            scene = reader.cursor(of, "extract", key).note or ""
        applied: list[Applied] = []
        runner = ExtractRunner(self._pipelines, applied.append)
        Worker(self._pipelines, [runner]).run_now(runner.kind, *extract_job(of, row.agent_id, key))
        return extract_report(key, scene, applied)

    def pending(self, scope: Scope) -> int:
        """How many messages no successful extraction has covered; with an agent, those said to it."""
        of = Owner(check_scope(scope).team_id, scope.user_id)
        with self._storage.read() as reader:
            if not principal(reader, scope).is_member:
                return 0
            return sum(backlog.messages for backlog in reader.backlogs(of, scope.agent_id))

    def verdicts(
        self, scope: Scope, session: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[VerdictRecord]:
        """What was decided about each proposed memory, the newest first, undone ones included.

        :param session: of that session alone. :param cursor: the ``next_cursor`` of a page, to go on behind it.
        """
        key = None if session is None else str(parse_session_key(session, check_scope(scope).agent_id))
        with self._storage.read() as reader:
            return verdict_page(reader, check_scope(scope), key, check_limit(limit, MAX_LIMIT), cursor)

    def undo(self, scope: Scope, id: str) -> VerdictRecord | None:  # noqa: A002
        """Take a verdict back: a memory that was stored leaves recall, what an update or merge replaced comes back, and
        what was skipped is stored after all (``memory_id`` of the answer names it). Or, with the id of a scene run, make
        the scenes what they were before it; the answer is None then.

        :raises NotFound: for missing and foreign ids alike. :raises InvalidInput: when it was undone before, or when what
            it made was changed, replaced or deleted since, or what would come back rests on a message that was deleted
            or is under quarantine, or is so itself: the message names what is in the way.
        """
        check_scope(scope)
        if undo_run(self._storage, self._clock, scope, id):
            return None
        return undo_verdict(self._pipelines, scope, id)

    # --- scenes and profiles (pipelines/scenes.py, profiles.py) ----------------------------------------------------

    def scenes(self, scope: Scope) -> list[SceneRecord]:
        """The user's scenes, the oldest first; without an agent those of all agents."""
        return scene_records(self._storage, check_scope(scope))

    def scene_history(self, scope: Scope, id: str) -> list[SceneRecord]:  # noqa: A002
        """All versions of a scene, oldest first, deleted ones included. :meth:`undo` takes back the run that wrote one.

        :raises NotFound: for missing and foreign ids alike.
        """
        return scene_versions(self._storage, check_scope(scope), id)

    def profile(self, scope: Scope, which: ProfileName) -> ProfileRecord | None:
        """The ``"agent"`` profile of the scope's agent, or the ``"user"`` profile, which all of the user's agents share;
        None before there is one. As text, a record is its content.

        :raises InvalidScope: for the agent profile when no agent is named.
        """
        return self._profiles.current(check_scope(scope), which)

    def profile_history(self, scope: Scope, which: ProfileName) -> list[ProfileRecord]:
        """All versions of a profile, oldest first."""
        return self._profiles.history(check_scope(scope), which)

    def roll_back_profile(self, scope: Scope, which: ProfileName, version: int) -> ProfileRecord:
        """Give a profile an earlier text again, as a new version with the sources of the old one.

        :raises NotFound: when there is no such version. :raises InvalidInput: when it was deleted or is under quarantine.
        """
        return self._profiles.roll_back(check_scope(scope), which, version)

    def read_memory(self, scope: Scope) -> str:
        """The text of the agent's profile; empty before there is one."""
        record = self.profile(scope, "agent")
        return "" if record is None else record.content

    def write_memory(self, scope: Scope, text: str) -> ProfileRecord:
        """Write the agent's profile, as a new version. The pipelines go on from this text.

        :raises InvalidInput: for a text that is blank, or longer than the agent's setting ``profile_chars``.
        """
        return self.write_profile(scope, "agent", text)

    def write_profile(self, scope: Scope, which: ProfileName, text: str) -> ProfileRecord:
        """Write either profile, as :meth:`write_memory` writes the agent's."""
        return self._profiles.write(check_scope(scope), which, text)

    def import_profile(self, scope: Scope, which: ProfileName, text: str) -> TakenOver:
        """Take a profile over from another store, as a new version. One that anybody or anything but an import wrote
        stays, and what was imported before is not written again."""
        return self._profiles.take_over(check_scope(scope), which, text)

    @property
    def _profiles(self) -> Profiles:
        return Profiles(self._storage, self._clock)

    # --- settings of agents, cost, quarantine ------------------------------------------------------------------------

    def agent_settings(
        self, scope: Scope, /, agent_id: str, *, reset: Sequence[str] = (), **changes: Any
    ) -> AgentSettings:
        """How the asker's conversations with an agent are worked on. Changes hold from the next piece of work on.

        :param reset: names of settings that are to have their defaults again. :param changes: settings by name.
        :raises InvalidInput: for a setting that there is not. :raises ConfigError: for a value that makes no sense;
            nothing is changed then. :raises NotPermitted: when the asker is no member of the team.
        """
        check_scope(scope)
        if not changes and not reset:
            return settings_of(self._storage, scope, agent_id)
        now = to_micros(self._clock.now())
        return change_settings(self._storage, scope, agent_id, changes, reset, now)

    def _take_up_quarantine(self, tx: Writer, operation: Operation) -> None:
        """A line of the fallback whose transaction did not commit."""
        Quarantine(self._journal, self._clock).take_up(tx, operation)

    def usage(self, team_id: str | None = None, since: object = None) -> list[UsageRecord]:
        """What chat models cost, by team, day, model and task: the operator's verb, no scope is asked for. Tokens are
        those that the models reported, else estimates.

        :param team_id: None: of all teams. :param since: on the day of that time, in the store's zone, or later.
        """
        instant = self._instant(since)
        day = None if instant is None else local_day(instant, self.timezone)
        with self._storage.read() as reader:
            return [UsageRecord(**asdict(row)) for row in reader.usage(team_id, day)]

    def quarantine(
        self,
        scope: Scope,
        source: str | Sequence[str] | None = None,
        session: str | None = None,
        author: str | None = None,
        since: object = None,
        until: object = None,
    ) -> int:
        """Take the asker's own messages and memories that meet all of the criteria out of recall, with every memory,
        scene and profile that was derived from them; returns how many rows that were. Their owner still lists them.

        What a memory that leaves had replaced comes back, so do the newest versions of scenes and profiles that are
        free of it, and the background work writes them anew. :meth:`release` brings everything back.

        :param source: ids of messages or memories. :param session: as in :meth:`record`.
        :param author: a speaker's name, or who made a memory: a user, or a judge such as ``rules-1``.
        :param since: recorded then or later; ``until``: before.
        :raises InvalidInput: without any criterion. :raises NotFound: for a source that the asker has not.
        """
        criteria = criteria_of(
            check_scope(scope),
            self._instant,
            source=source,
            session=session,
            author=author,
            since=since,
            until=until,
        )
        return Quarantine(self._journal, self._clock).put(scope, criteria)

    def release(
        self,
        scope: Scope,
        source: str | Sequence[str] | None = None,
        session: str | None = None,
        author: str | None = None,
        since: object = None,
        until: object = None,
    ) -> int:
        """End the quarantine of what meets the criteria, which are those of :meth:`quarantine`; returns how many rows
        came back. What was derived from it comes back where nothing else that it was derived from stays away. Rows that
        were changed meanwhile are left as they are; the log names them.
        """
        criteria = criteria_of(
            check_scope(scope),
            self._instant,
            source=source,
            session=session,
            author=author,
            since=since,
            until=until,
        )
        return Quarantine(self._journal, self._clock).release(scope, criteria)


def _job_number(value: object) -> int:
    """:raises InvalidInput: for what is no number of a job."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
        raise InvalidInput(f"a job's number is a whole number from 1 on, not {value!r:.40}")
    return value
