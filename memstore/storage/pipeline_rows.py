"""The part of the storage contract that the pipelines use: their rows, and what is read and written of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol, TypeVar

from memstore.canonical import canonical_json, checksum
from memstore.storage.rows import MemoryRow, MessageRow

Stage = Literal["extract", "session_scenes", "scenes", "agent_profile", "user_profile"]
RunStage = Literal["extract", "verdict", "scenes", "agent_profile", "user_profile"]
JobState = Literal["queued", "running", "done", "dead"]
RowKind = Literal["message", "memory", "scene", "profile"]

UNDER_WAY: tuple[JobState, ...] = ("queued", "running", "dead")
"""States in which a sweep leaves a job to itself."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose work it is: all of it belongs to one user of one team."""

    team_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a stage has come with a subject; see the table ``pipeline_cursors``. Times in microseconds."""

    stage: Stage
    subject: str
    arrival: int = 0
    pos: int = 0
    runs: int = 0
    ran_at: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What no extraction of a session covered: what lies behind its cursor, and what is to be read again.

    :param rounds: user messages among it. :param last_recorded_at: of its newest message; None without any.
    """

    team_id: str
    user_id: str
    agent_id: str
    session: str
    task_id: str | None
    messages: int
    rounds: int
    last_recorded_at: int | None


@dataclass(frozen=True, slots=True)
class SessionTiming:
    """A session that was extracted from, and what its scenes wait by. Times in microseconds.

    :param extractions: of it so far, the last one at ``extracted_at``. :param covered: so many of them a scene run has
        covered, the last such run at ``ran_at``. :param last_recorded_at: of its newest message.
    """

    session: str
    extractions: int
    extracted_at: int | None
    covered: int
    runs: int
    ran_at: int | None
    last_recorded_at: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """A unit of background work. One that was claimed has a ``lease_token``, which fences what it writes.

    :param outages: so many of its attempts failed because no model could be asked.
    """

    job_no: int
    kind: str
    payload: dict[str, Any]
    attempts: int
    lease_token: str | None
    state: JobState = "running"
    dedupe_key: str | None = None
    team_id: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    not_before: int = 0
    lease_until: int | None = None
    outages: int = 0
    done: int = 0
    total: int = 0
    cost: dict[str, int] = field(default_factory=dict)
    last_error: str | None = None
    created_at: int = 0
    finished_at: int | None = None

    @property
    def counted(self) -> int:
        """Attempts that speak against the job itself; the one under way is among them."""
        return self.attempts - self.outages


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it is kept; JSON as text."""

    team_id: str
    id: str
    user_id: str
    agent_id: str | None
    stage: RunStage
    subject: str
    inputs: str
    result: str
    decided_by: str
    finished_at: int
    checksum: str = ""
    prompt: str | None = None
    reply: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    undone_at: int | None = None
    undone_by: str | None = None


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """A verdict as it is kept; JSON as text."""

    team_id: str
    id: str
    user_id: str
    agent_id: str | None
    task_id: str | None
    session: str
    run_id: str
    item: int
    action: str
    proposal: str
    candidates: str
    target_ids: str
    reason: str
    decided_by: str
    decided_at: int
    checksum: str = ""
    verdict_run_id: str | None = None
    memory_id: str | None = None
    undone_at: int | None = None
    undone_by: str | None = None


@dataclass(frozen=True, slots=True)
class SceneRow:
    """A version of a scene as it is kept."""

    team_id: str
    id: str
    version: int
    user_id: str
    agent_id: str
    name: str
    content: str
    source_kind: str
    trust: int
    recorded_at: int
    actor: str
    checksum: str = ""
    task_id: str | None = None
    visibility: str = "private"
    state: str = "live"
    superseded_at: int | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A version of a profile as it is kept; ``id`` is this version's. ``agent_id`` None: the user's profile."""

    team_id: str
    id: str
    user_id: str
    agent_id: str | None
    profile: str
    version: int
    content: str
    source_kind: str
    trust: int
    recorded_at: int
    actor: str
    checksum: str = ""
    visibility: str = "private"
    state: str = "live"
    superseded_at: int | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What a model cost a team on a day (in the store's zone), by task. ``failures``: questions that no whole answer came
    of."""

    team_id: str
    day: str
    model: str
    task: str
    calls: int
    failures: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Breaker:
    """Failures in a row of a model; open (left alone) until then, None: closed. ``last_error`` is a type's name: teams
    share a breaker, and no text of one is shown to another."""

    model: str
    failures: int = 0
    opened_at: int | None = None
    open_until: int | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class SourceLink:
    """``derived`` was made from ``source``."""

    derived_kind: RowKind
    derived_id: str
    derived_version: int
    source_kind: RowKind
    source_id: str


@dataclass(frozen=True, slots=True)
class RowName:
    """A row of any layer by what names it; ``version`` 1 for messages."""

    kind: RowKind
    id: str
    version: int


@dataclass(frozen=True, slots=True)
class QuarantineRow:
    """A quarantine as it is kept."""

    team_id: str
    id: str
    user_id: str
    criteria: str
    made_by: str
    made_at: int
    released_at: int | None = None


Row = TypeVar("Row", "RunRow", "VerdictRow", "SceneRow", "ProfileRow")
_CHANGING = {
    "checksum", "undone_at", "undone_by", "state", "superseded_at", "visibility",
}  # fmt: skip


def row_checksum(row: "RunRow | VerdictRow | SceneRow | ProfileRow") -> str:
    """Of everything in the row that never changes once it is written."""
    values = [getattr(row, column.name) for column in fields(row) if column.name not in _CHANGING]
    return checksum(*values)


def sealed(row: Row) -> Row:
    """The row with its checksum: what is stored."""
    return replace(row, checksum=row_checksum(row))


def job_key(kind: str, *parts: str) -> str:
    """Names the work that a job is: of two with one key only one is queued, and only one runs. No two different lists of
    parts give the same."""
    return canonical_json([kind, *parts])


class PipelineReader(Protocol):
    """What the pipelines read."""

    # --- how far they are ------------------------------------------------------------------------------------

    def cursor(self, of: Owner, stage: Stage, subject: str) -> Cursor:
        """One that never ran stands at 0."""
        ...

    def last_arrival(self, of: Owner) -> int:
        """The last arrival number of the user's rows."""
        ...

    def backlogs(self, of: Owner | None = None, agent_id: str | None = None) -> list[Backlog]:
        """Sessions with messages behind their cursor, or to be read again, by team, user and session."""
        ...

    def backlog(self, of: Owner, session: str) -> Backlog | None:
        """None where there is no such session (or it is hidden)."""
        ...

    def session_timings(self, of: Owner, agent_id: str) -> list[SessionTiming]:
        """Of the agent's visible sessions that were extracted from, by session."""
        ...

    def scenes_behind(self) -> list[tuple[Owner, str, dict[str, Any], SessionTiming]]:
        """Agents with memories behind the cursor of their scenes, with their settings, a row for each of their visible
        sessions that were extracted from; by team, user, agent and session."""
        ...

    def agents_with_news(
        self, profile: Literal["agent", "user"], kinds: Sequence[str], least_trust: int
    ) -> list[tuple[Owner, str]]:
        """Agents that have a visible session, or made or own one of their user's newest memories, and for whose profile (or
        that of their user) there is a memory behind the cursor; or, where no memory of these source kinds and this trust
        is for it, a message. By team, user and agent."""
        ...

    def scenes_losing_sources(self) -> list[tuple[Owner, str]]:
        """Agents with a live scene that was written from a memory which is not current any more."""
        ...

    def profiles_losing_sources(self) -> list[tuple[Owner, str | None]]:
        """Agents, and None for a user's profile, whose live profile was written from a memory or a message that was
        deleted, hidden or is under quarantine."""
        ...

    def unread_messages(self, of: Owner, session: str, limit: int) -> list[MessageRow]:
        """The first messages that no extraction covered and that a pipeline may read, in the order of the session: those
        behind the cursor, and those that it passed by (see :meth:`PipelineWriter.cover`) or that are to be read again."""
        ...

    def messages_after(self, of: Owner, session: str, pos: int, limit: int) -> list[MessageRow]:
        """The first messages of the current branch behind a position that a pipeline may read, in the order of the
        session: not deleted, hidden or under quarantine."""
        ...

    def messages_up_to(self, of: Owner, session: str, pos: int, limit: int) -> list[MessageRow]:
        """The last such messages up to a position, in the order of the session."""
        ...

    def last_messages(self, of: Owner, agent_id: str | None, sessions: int, each: int) -> list[MessageRow]:
        """Of the sessions that were active last, so many messages each that a pipeline may read, oldest first."""
        ...

    def memories_after(self, of: Owner, arrival: int, agent_id: str | None, limit: int) -> list[MemoryRow]:
        """Live memories of the user behind an arrival number, oldest first.

        :param agent_id: those that it produced or that belong to it; None: those that belong to no agent.
        """
        ...

    def newest_memories(self, of: Owner, agent_id: str | None, limit: int) -> list[MemoryRow]:
        """The same, the newest first."""
        ...

    def neighbours_by_age(
        self, of: Owner, agent_id: str | None, task_id: str | None, limit: int
    ) -> list[MemoryRow]:
        """The newest live memories that a new one of exactly this scope could stand beside: of the user's own, those
        with this agent or none, and this task or none."""
        ...

    # --- what they made ----------------------------------------------------------------------------------------

    def run(self, team_id: str, run_id: str) -> RunRow | None: ...

    def verdict(self, team_id: str, verdict_id: str) -> VerdictRow | None: ...

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
        """The newest first, with their numbers; ``before``: only smaller numbers. ``task_id``: those of the task and of
        none."""
        ...

    def verdicts_of_memory(self, team_id: str, memory_id: str) -> list[VerdictRow]:
        """Those that made the memory or name it as a target and were not undone, oldest first."""
        ...

    def scenes(self, of: Owner, agent_id: str | None) -> list[SceneRow]:
        """Live ones, the oldest first; agent None: of all agents."""
        ...

    def memories_that_came_back(self, of: Owner, agent_id: str) -> list[str]:
        """Live memories of which a scene run was told that they are gone."""
        ...

    def scene_history(self, team_id: str, scene_id: str) -> list[SceneRow]:
        """All versions, oldest first."""
        ...

    def scenes_of_run(self, team_id: str, run_id: str) -> list[SceneRow]:
        """The versions that a run wrote."""
        ...

    def profile(self, of: Owner, agent_id: str | None) -> ProfileRow | None:
        """The live version; agent None: the user's profile."""
        ...

    def profile_holds_what_left(self, team_id: str, profile_id: str) -> bool:
        """The same of one version, or of one that it was written on from."""
        ...

    def profile_history(self, of: Owner, agent_id: str | None) -> list[ProfileRow]:
        """All versions, oldest first."""
        ...

    # --- provenance ----------------------------------------------------------------------------------------------

    def sources_of(self, team_id: str, kind: RowKind, row_id: str, version: int) -> list[tuple[RowKind, str]]:
        """What a version was made from, by kind and id."""
        ...

    def derived_from(self, team_id: str, sources: Sequence[tuple[RowKind, str]]) -> list[RowName]:
        """What was made from any of these directly, deleted versions included."""
        ...

    def agents(self, of: Owner) -> list[str]:
        """Agents that sessions, scenes or profiles of the user's belong to."""
        ...

    # --- queue, settings, cost -------------------------------------------------------------------------------------

    def jobs(self, state: JobState | None, kind: str | None, of: Owner | None, limit: int) -> list[Job]:
        """The newest first."""
        ...

    def job(self, job_no: int) -> Job | None: ...

    def job_named(self, dedupe_key: str) -> Job | None:
        """The job of a key that runs, else the one that waits, else the last one that ended."""
        ...

    def claimable(
        self,
        kind: str,
        lease_token: str,
        now: int,
        *,
        dedupe_key: str | None = None,
        early: bool = False,
    ) -> int | None:
        """The number of the job that :meth:`PipelineWriter.claim` would lease; it costs no transaction to ask."""
        ...

    def holds_lease(self, job: Job) -> bool:
        """Whether nobody else took the job over."""
        ...

    def next_due(self, kinds: Sequence[str]) -> int | None:
        """When the next queued job of these kinds may run, in microseconds; None without any."""
        ...

    def began_at(self) -> int | None:
        """When the first team came into the store; None: it holds nobody's rows."""
        ...

    def agent_settings(self, of: Owner, agent_id: str) -> dict[str, Any]: ...

    def usage(self, team_id: str | None, since_day: str | None) -> list[UsageRow]:
        """By team, day, model and task."""
        ...

    def tokens_used(self, team_id: str, day: str) -> int:
        """Input and output tokens of all models."""
        ...

    def breaker(self, model: str) -> Breaker: ...

    def breakers(self) -> list[Breaker]: ...

    # --- quarantine ----------------------------------------------------------------------------------------------

    def quarantines(self, of: Owner) -> list[QuarantineRow]:
        """Those that were not released, oldest first."""
        ...

    def quarantined(self, team_id: str, quarantine_id: str) -> list[tuple[RowName, str]]:
        """The rows that left with it, with their state before."""
        ...

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
        """Ids of the user's messages that are not deleted and meet all of it. ``author`` is a speaker's name, or the
        user's own id for the user messages without a name; times are those of recording, ``until`` excluded."""
        ...

    def quarantined_messages(self, team_id: str, ids: Sequence[str]) -> list[str]:
        """Those of the messages that are under quarantine."""
        ...

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
        """The same of memories that are not deleted; ``author`` is who made the current version (``actor``)."""
        ...


class PipelineWriter(PipelineReader, Protocol):
    """What the pipelines write, in one transaction with the rows that it is about."""

    def set_cursor(self, of: Owner, cursor: Cursor) -> None: ...

    def cover(self, of: Owner, cursor: Cursor, positions: Sequence[int]) -> None:
        """Set the extraction cursor of a session, and note that the messages at these positions were covered. Others that it
        passes by, on another branch or under quarantine, are unread whenever they may be read."""
        ...

    def read_again(self, of: Owner, session: str, message_ids: Sequence[str]) -> None:
        """Messages of a session are unread, although an extraction covered them."""
        ...

    def put_run(self, row: RunRow) -> None: ...

    def put_verdict(self, row: VerdictRow) -> None: ...

    def mark_verdict_undone(self, team_id: str, verdict_id: str, by: str, now: int) -> None: ...

    def mark_run_undone(self, team_id: str, run_id: str, by: str, now: int) -> None: ...

    def add_sources(self, team_id: str, links: Sequence[SourceLink]) -> None:
        """Those that are there already stay."""
        ...

    def supersede_memory(self, team_id: str, memory_id: str, by: str, begin: int, now: int) -> None:
        """The live version ends where the one that replaces it begins; it stays for history and ``as_of``."""
        ...

    def revive_memory(self, team_id: str, memory_id: str) -> None:
        """Make the current version live again, with the end of validity that was stated; not one that was deleted."""
        ...

    def put_scene(self, row: SceneRow) -> None:
        """A new version; the live one before it is superseded at the time of recording."""
        ...

    def set_scene_state(self, team_id: str, scene_id: str, version: int, state: str, at: int | None) -> None:
        """``at``: since when it is no longer live."""
        ...

    def put_profile(self, row: ProfileRow) -> None:
        """A new version; the live one before it is superseded at the time of recording."""
        ...

    def set_profile_state(self, team_id: str, version_id: str, state: str, at: int | None) -> None: ...

    def set_memory_state(self, team_id: str, memory_id: str, version: int, state: str) -> None:
        """The state alone: the version stays in the indexes."""
        ...

    def set_messages_quarantined(self, team_id: str, ids: Sequence[str], at: int | None) -> None:
        """``at`` None: released."""
        ...

    # --- queue, settings, cost -------------------------------------------------------------------------------------

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
        """Queue work. Where the same is queued already and was not tried in vain it becomes due at the earlier of the two
        times (``latest``: at the later one).

        :param unless: nothing is done where there is a job of that key in one of these states. A sweep names
            :data:`UNDER_WAY`: what gave up is a person's, or the news', to queue again.
        """
        ...

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
        """Lease the first job of a kind that may run; counts as an attempt.

        First one that a worker left behind: its lease ran out. Then what was due longest (of equals what was queued
        first), and what a clock that was set back since put into the future. One whose like runs is left alone, and so
        is one that was leased under this token before: with a token of its own for each pass, none is tried twice in it.

        :param dedupe_key: only this job. :param early: whether its time has come or not; but what was done under this
            token before and is queued again runs at its time only.
        """
        ...

    def renew(self, job: Job, now: int, lease_until: int) -> bool:
        """Whether the lease still was this job's."""
        ...

    def finish(self, job: Job, now: int | None = None) -> None:
        """The work is done, if the job is still held. With ``now`` it is kept to be looked at, and dead ones of the same
        key go."""
        ...

    def postpone(self, job: Job, now: int, not_before: int, why: str | None = None) -> None:
        """Not due yet: back into the queue, and the attempt does not count. What was queued meanwhile keeps its time.

        :param why: kept as the job's last error.
        """
        ...

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
        """Back into the queue, or given up. Nothing happens where the lease was lost.

        :param outage: the attempt is one of ``Job.outages``.
        """
        ...

    def note_progress(self, job: Job, done: int, total: int) -> None: ...

    def note_cost(self, job: Job, calls: int, input_tokens: int, output_tokens: int) -> None:
        """Added to what the job cost before."""
        ...

    def retry_job(self, job_no: int, now: int) -> bool:
        """Queue a dead job anew, with no attempts counted; False where it is not dead. Where the same is queued already
        the dead one goes."""
        ...

    def retry_jobs(self, kind: str | None, now: int) -> int:
        """The same with all dead jobs, or those of a kind; how many they were."""
        ...

    def drop_dead(self, kind: str) -> None:
        """Forget jobs that gave up, once their work was done otherwise."""
        ...

    def prune_jobs(self, finished_before: int) -> int:
        """Forget jobs that were done before then."""
        ...

    def set_agent_settings(self, of: Owner, agent_id: str, settings: Mapping[str, Any], now: int) -> None: ...

    def add_usage(self, row: UsageRow) -> None:
        """Added to what is there."""
        ...

    def set_breaker(self, row: Breaker) -> None: ...

    def put_quarantine(self, row: QuarantineRow, rows: Sequence[tuple[RowName, str]]) -> None: ...

    def release_quarantine(self, team_id: str, quarantine_id: str, now: int) -> None: ...
