"""L3: the profiles of agents and of the user, distilled from scenes and memories (SPEC W8)."""

from dataclasses import dataclass
from typing import Any

from memstore.agent_settings import AgentSettings
from memstore.apologies import is_apology
from memstore.errors import AlreadyRunning, LLMRejected
from memstore.ids import new_id
from memstore.pipelines.profile_reading import ProfileView, cursor_name, look, task_of
from memstore.pipelines.scene_timing import elapsed
from memstore.pipelines.sweeping import under_way
from memstore.pipelines.trusted import LEAST_TRUST, OWN_WORDS
from memstore.pipelines.values import Judgement, ProfileName
from memstore.pipelines.work import SECOND, Lease, NotDue, Pipelines, as_json, owner_of
from memstore.pipelines.written_text import clean_text, cut_text
from memstore.storage.base import Reader, Writer
from memstore.storage.pipeline_rows import Cursor, Job, Owner, ProfileRow, RunRow, SourceLink, job_key, sealed


def queue_profiles(tx: Writer, of: Owner, agent_id: str, settings: AgentSettings, now: int) -> None:
    """Queue a look at both profiles that the agent's work bears on: its own, and the user's."""
    for subject in (agent_id, None):
        cursor = tx.cursor(of, *cursor_name(subject))
        due = _due(tx, of, subject, cursor, settings, now)
        _enqueue(tx, of, subject, agent_id, now, due)


def _enqueue(tx: Writer, of: Owner, subject: str | None, agent_id: str, now: int, due: int) -> None:
    """:param subject: the agent whose profile it is; None: the user's."""
    # Settings are an agent's. The profile that all agents share is written by those of the one that called for it.
    agent = {"settings_of": agent_id} if subject is None else {"agent_id": agent_id}
    payload = {"team_id": of.team_id, "user_id": of.user_id, **agent}
    tx.enqueue(cursor_name(subject)[0], _key(of, subject), payload, now, due)


def _key(of: Owner, subject: str | None) -> str:
    parts = () if subject is None else (subject,)
    return job_key(cursor_name(subject)[0], of.team_id, of.user_id, *parts)


def _due(
    reader: Reader, of: Owner, subject: str | None, cursor: Cursor, settings: AgentSettings, since: int
) -> int:
    """When a profile is written, where there has been activity since then (or is now)."""
    new = reader.memories_after(of, cursor.arrival, subject, settings.profile_memories)
    if len(new) >= settings.profile_memories:
        return since
    if cursor.ran_at is None:
        return since + round(settings.profile_interval_s * SECOND)
    if elapsed(cursor.ran_at, since) is None:
        return since
    return max(since, cursor.ran_at + round(settings.profile_interval_s * SECOND))


class _Outdated(Exception):
    """What a run was decided on is no longer so."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: whose profile, and what it is made from. ``agent_id`` None: the user's."""

    of: Owner
    agent_id: str | None
    settings: AgentSettings
    view: ProfileView


class ProfileRunner:
    """Carries out the jobs that write the profiles of agents, or of users."""

    def __init__(self, pipelines: Pipelines, profile: ProfileName) -> None:
        self._pipelines = pipelines
        self._profile = profile

    @property
    def kind(self) -> str:
        return f"{self._profile}_profile"

    def sweep(self) -> None:
        """Queue the profiles of those with memories that no run has looked at, of those who spoke since and have none, and
        those that tell of what was taken back."""
        pending: list[tuple[Owner, str | None, str, int]] = []
        now = self._pipelines.now()
        with self._pipelines.storage.read() as reader:
            known = under_way(reader, self.kind)
            for of, agent_id in reader.agents_with_news(self._profile, OWN_WORDS, LEAST_TRUST):
                subject = agent_id if self._profile == "agent" else None
                if _key(of, subject) not in known:
                    due = self._pending(reader, of, subject, agent_id, now)
                    pending.append((of, subject, agent_id, due))
            pending += [one for one in self._losing(reader, now) if _key(one[0], one[1]) not in known]
        if not pending:
            return
        with self._pipelines.storage.write() as tx:
            for of, subject, agent_id, due in pending:
                _enqueue(tx, of, subject, agent_id, now, due)

    def _losing(self, reader: Reader, now: int) -> list[tuple[Owner, str | None, str, int]]:
        found = []
        for of, subject in reader.profiles_losing_sources():
            if (subject is None) == (self._profile == "user"):
                agent_id = subject or ""  # the user's profile is no agent's: by the default settings
                settings = self._pipelines.agent_settings(reader, of, agent_id)
                cursor = reader.cursor(of, *cursor_name(subject))
                found.append((of, subject, agent_id, _due(reader, of, subject, cursor, settings, now)))
        return found

    def _pending(self, reader: Reader, of: Owner, subject: str | None, agent_id: str, now: int) -> int:
        """When what no run has looked at is due."""
        cursor = reader.cursor(of, *cursor_name(subject))
        first = reader.memories_after(of, cursor.arrival, subject, 1)
        settings = self._pipelines.agent_settings(reader, of, agent_id)
        due = _due(reader, of, subject, cursor, settings, now)
        if cursor.ran_at is not None or not first or due == now:
            return due
        waits = elapsed(first[0].recorded_at, now)  # never written: since the first of them came
        return now if waits is None else max(now, due - waits)

    def run(self, lease: Lease, *, force: bool = False) -> NotDue | None:
        """See :class:`memstore.pipelines.work.Runner`."""
        now = lease.now()
        with self._pipelines.storage.read() as reader:
            run = self._looked(reader, lease.job, now)
            cursor = run.view.cursor
            # A first run waits by its job alone; for further ones a job may have been queued while one was under way.
            due = (
                now
                if cursor.ran_at is None
                else _due(reader, run.of, run.agent_id, cursor, run.settings, now)
            )
        if not force and due > now:
            return NotDue(due)
        if not run.view.is_news:
            with lease.write() as tx:
                self._finish(tx, lease, run, asked=False)
                if run.view.is_baseless:
                    _take_back(tx, run, now)
            return None
        try:
            self._write(lease, run)
        except _Outdated:
            return NotDue(lease.now())
        return None

    def _looked(self, reader: Reader, job: Job, now: int) -> _Run:
        of = owner_of(job)
        agent_id = job.payload["agent_id"] if self._profile == "agent" else None
        settings_of = job.payload.get("settings_of", "") if agent_id is None else agent_id
        settings = self._pipelines.agent_settings(reader, of, settings_of)
        return _Run(of, agent_id, settings, look(reader, of, agent_id, now))

    def _write(self, lease: Lease, run: _Run) -> None:
        judge = self._pipelines.judge_for(run.of, run.settings, lease)
        most = run.settings.profile_chars
        task = task_of(run.view, run.of, run.agent_id, most, lease.now(), self._pipelines.zone)
        lease.renew()
        judgement = judge.profile(task)
        replaceable = run.view.before is None or run.view.is_withdrawn
        if judgement.prompt is None and not clean_text(judgement.value) and replaceable:
            text = None  # the rules found nothing to say; of a model an empty answer is a failure
        else:
            text = _checked(judgement.value, most, judgement.by, self.kind)
        with lease.write() as tx:
            self._finish(tx, lease, run, asked=True)
            if text is not None:
                _apply(tx, run, text, judgement, lease)
            elif run.view.is_withdrawn:
                _take_back(tx, run, lease.now())

    def _finish(self, tx: Writer, lease: Lease, run: _Run, *, asked: bool) -> None:
        """End the job and move the cursor.

        :raises AlreadyRunning: when another run moved it meanwhile.
        """
        lease.finish(tx)
        stage, subject = cursor_name(run.agent_id)
        cursor = run.view.cursor
        if tx.cursor(run.of, stage, subject) != cursor:
            raise AlreadyRunning(f"the {self._profile} profile was written by another run meanwhile")
        ran_at = lease.now() if asked else cursor.ran_at
        note = run.view.note() if asked else cursor.note
        moved = Cursor(stage, subject, run.view.reached, 0, cursor.runs + asked, ran_at, note)
        tx.set_cursor(run.of, moved)


def _take_back(tx: Writer, run: _Run, now: int) -> None:
    """End a profile of which nothing holds any more. What a person wrote before it is the profile again.

    :raises AlreadyRunning: when somebody wrote it meanwhile.
    """
    before, base = run.view.before, run.view.base
    held = tx.profile(run.of, run.agent_id)
    if before is None or held is None or held.id != before.id:
        raise AlreadyRunning("the profile was written by somebody else meanwhile")
    tx.set_profile_state(before.team_id, before.id, "deleted", now)
    if base is not None:
        tx.set_profile_state(base.team_id, base.id, "live", None)


def _checked(text: str, most: int, by: str, kind: str) -> str:
    """:raises LLMRejected: when it is none that may replace a profile."""
    clean = cut_text(clean_text(text), most)
    if not clean:
        raise LLMRejected(f"the {kind} that {by} wrote is empty; the one before stays, and it is asked again")
    if is_apology(clean):
        raise LLMRejected(
            f"the {kind} that {by} wrote is an apology; the one before stays, and it is asked again"
        )
    return clean


def _apply(tx: Writer, run: _Run, text: str, judgement: Judgement[str], lease: Lease) -> None:
    """Write the new version, where the text or what it is made from is another, and keep the run.

    :raises _Outdated: when somebody else wrote the profile, or a source went, since it was read.
    """
    _check(tx, run)
    run_id, now = new_id(lease.clock.now()), lease.now()
    result: dict[str, Any] = {"unchanged": True}
    if run.view.before is None or run.view.is_withdrawn or text != run.view.before.content:
        row = _row(tx, run, text, judgement.by, run_id, lease)
        tx.put_profile(sealed(row))
        links = [SourceLink("profile", row.id, row.version, kind, one) for kind, one in run.view.sources()]
        tx.add_sources(row.team_id, links)
        result = {"written": {"id": row.id, "version": row.version}}
    view = run.view
    inputs = {
        "profile": None if view.before is None else view.before.id,
        "scenes": [{"id": one.id, "version": one.version} for one in view.scenes],
        "memories": [one.id for one in view.memories],
        "messages": [one.id for one in view.messages],
    }
    stage, subject = cursor_name(run.agent_id)
    kept = RunRow(
        team_id=run.of.team_id,
        id=run_id,
        user_id=run.of.user_id,
        agent_id=run.agent_id,
        stage=stage,
        subject=subject,
        inputs=as_json(inputs),
        result=as_json(result),
        decided_by=judgement.by,
        finished_at=now,
        prompt=judgement.prompt,
        reply=judgement.reply,
        input_tokens=judgement.usage.input_tokens,
        output_tokens=judgement.usage.output_tokens,
    )
    tx.put_run(sealed(kept))


def _check(tx: Writer, run: _Run) -> None:
    of, view = run.of, run.view
    before = tx.profile(of, run.agent_id)
    if (before and before.id) != (view.before and view.before.id):
        raise _Outdated
    for memory in view.memories:
        held = tx.memory(of.team_id, memory.id)
        if held is None or (held.state, held.version) != (memory.state, memory.version):
            raise _Outdated
    for message in view.messages:
        there_still = tx.messages_up_to(of, message.session, message.pos, 1)
        if not there_still or there_still[0].id != message.id:
            raise _Outdated
    if view.scenes:
        there = {(row.id, row.version) for row in tx.scenes(of, run.agent_id)}
        if any((row.id, row.version) not in there for row in view.scenes):
            raise _Outdated


def _row(tx: Writer, run: _Run, text: str, by: str, run_id: str, lease: Lease) -> ProfileRow:
    source_kind, trust = run.view.least_trusted()
    versions = [row.version for row in tx.profile_history(run.of, run.agent_id)]
    return ProfileRow(
        team_id=run.of.team_id,
        id=new_id(lease.clock.now()),
        user_id=run.of.user_id,
        agent_id=run.agent_id,
        profile="user" if run.agent_id is None else "agent",
        version=1 + max(versions, default=0),
        content=text,
        source_kind=source_kind,
        trust=trust,
        recorded_at=lease.now(),
        actor=by,
        run_id=run_id,
    )
