"""L2: the scenes of an agent, written from its memories (SPEC W7).

The judge is asked outside of any transaction. What it proposed is planned (:mod:`memstore.pipelines.scene_plan`) and
applied in one, together with the cursors, the run and the follow-up work: killed anywhere, a run is simply done again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memstore.agent_settings import AgentSettings
from memstore.clock import Clock
from memstore.errors import AlreadyRunning
from memstore.ids import new_id
from memstore.pipelines.profiles import queue_profiles
from memstore.pipelines.scene_plan import ScenePlan, Written, plan
from memstore.pipelines.scene_reading import SceneView, known, look, seen_scene
from memstore.pipelines.scene_timing import Waiting, due_after, next_due, waiting_sessions
from memstore.pipelines.sweeping import under_way
from memstore.pipelines.values import Judgement, SceneChange, SceneTask
from memstore.pipelines.work import SECOND, Lease, NotDue, Pipelines, as_json, owner_of
from memstore.pipelines.written_text import language_of
from memstore.storage.base import Reader, Writer
from memstore.storage.pipeline_rows import (
    Cursor,
    Owner,
    RunRow,
    SceneRow,
    SourceLink,
    job_key,
    sealed,
)
from memstore.times import from_micros, to_micros
from memstore.types import Scope


def queue_scenes(
    tx: Writer, of: Owner, agent_id: str, session: str, settings: AgentSettings, now: int
) -> None:
    """Queue a look at the agent's scenes, after an extraction of the session or after memories of it came or went."""
    last = tx.cursor(of, "session_scenes", session).ran_at
    _enqueue(tx, of, agent_id, now, due_after(now, last, settings, now))


def _enqueue(tx: Writer, of: Owner, agent_id: str, now: int, due: int) -> None:
    payload = {"team_id": of.team_id, "user_id": of.user_id, "agent_id": agent_id}
    tx.enqueue("scenes", _key(of, agent_id), payload, now, due)


def _key(of: Owner, agent_id: str) -> str:
    return job_key("scenes", of.team_id, of.user_id, agent_id)


def queue_look(tx: Writer, of: Owner, agent_id: str, settings: AgentSettings, now: int) -> None:
    """Queue a look at the agent's scenes where something else than a session calls for it."""
    ran_at = tx.cursor(of, "scenes", agent_id).ran_at
    _enqueue(tx, of, agent_id, now, due_after(now, ran_at, settings, now))


def _behind(reader: Reader, now: int) -> list[tuple[Owner, str, int]]:
    """Agents with memories that no run has looked at, and when the first active session is due that takes them along."""
    found: dict[tuple[Owner, str], int] = {}
    for of, agent_id, settings, timing in reader.scenes_behind():
        due = next_due(timing, AgentSettings(**settings), now)
        if due is not None:
            found[of, agent_id] = min(due, found.get((of, agent_id), due))
    return [(of, agent_id, due) for (of, agent_id), due in found.items()]


class _Outdated(Exception):
    """What a run was decided on is no longer so."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: whose scenes, and what they looked like."""

    of: Owner
    agent_id: str
    settings: AgentSettings
    view: SceneView
    waiting: list[Waiting]


class SceneRunner:
    """Carries out the jobs that write scenes."""

    kind = "scenes"

    def __init__(self, pipelines: Pipelines) -> None:
        self._pipelines = pipelines

    def sweep(self) -> None:
        """Queue the scenes of agents with memories that no run has looked at, by their sessions; and scenes that tell of
        memories which are gone."""
        now = self._pipelines.now()
        with self._pipelines.storage.read() as reader:
            known = under_way(reader, self.kind)
            found = [*_behind(reader, now), *self._losing(reader, now)]
            pending = [one for one in found if _key(one[0], one[1]) not in known]
        if not pending:
            return
        with self._pipelines.storage.write() as tx:
            for of, agent_id, due in pending:
                _enqueue(tx, of, agent_id, now, due)

    def _losing(self, reader: Reader, now: int) -> list[tuple[Owner, str, int]]:
        found = []
        for of, agent_id in reader.scenes_losing_sources():
            view = look(reader, of, agent_id, now)
            if view.sources_changed:
                settings = self._pipelines.agent_settings(reader, of, agent_id)
                found.append((of, agent_id, due_after(now, view.cursor.ran_at, settings, now)))
        return found

    def run(self, lease: Lease, *, force: bool = False) -> NotDue | None:
        """See :class:`memstore.pipelines.work.Runner`."""
        of, agent_id = owner_of(lease.job), lease.job.payload["agent_id"]
        now = lease.now()
        with self._pipelines.storage.read() as reader:
            settings = self._pipelines.agent_settings(reader, of, agent_id)
            waiting = waiting_sessions(reader.session_timings(of, agent_id), settings, now)
            run = _Run(of, agent_id, settings, look(reader, of, agent_id, now), waiting)
        active = [one for one in waiting if one.active]
        if not force and active and min(one.due for one in active) > now:
            return NotDue(min(one.due for one in active))
        left_alone = not force and bool(waiting) and not active and not run.view.sources_changed
        if (
            left_alone
        ):  # nobody spoke in these sessions for a day; the next one that is active takes them along
            with lease.write() as tx:
                lease.finish(tx)
            return None
        try:
            self._write(lease, run)
        except _Outdated:
            return NotDue(lease.now())
        return None

    def _write(self, lease: Lease, run: _Run) -> None:
        if not run.view.is_news:
            with lease.write() as tx:
                self._finish(tx, lease, run)
            return
        judge = self._pipelines.judge_for(run.of, run.settings, lease)
        lease.renew()
        judgement = judge.scenes(self._task(run, lease.now()))
        planned = plan(
            judgement.value,
            run.view.standing(),
            run.view.new,
            most=run.settings.scenes,
            max_chars=run.settings.scene_chars,
        )
        with lease.write() as tx:
            self._finish(tx, lease, run)
            _Applying(tx, run, planned, judgement, lease.clock).apply()

    def _task(self, run: _Run, now: int) -> SceneTask:
        view, zone = run.view, self._pipelines.zone
        memories = tuple(known(view.memories[one], zone) for one in view.new)
        return SceneTask(
            scope=Scope(run.of.team_id, run.of.user_id, run.agent_id),
            language=language_of([*(one.content for one in memories), *(row.content for row in view.scenes)]),
            scenes=tuple(seen_scene(row, view.shown_sources(row), zone) for row in view.scenes),
            memories=memories,
            gone=tuple(known(row, zone) for row in view.gone_rows()),
            most=run.settings.scenes,
            max_chars=run.settings.scene_chars,
            now=from_micros(now).astimezone(zone),
        )

    def _finish(self, tx: Writer, lease: Lease, run: _Run) -> None:
        """End the job and move the cursors.

        :raises AlreadyRunning: when another run moved them meanwhile.
        """
        lease.finish(tx)
        now = lease.now()
        cursor = run.view.cursor
        if tx.cursor(run.of, "scenes", run.agent_id) != cursor:
            raise AlreadyRunning(
                f"the scenes of agent {run.agent_id!r} were written by another run meanwhile"
            )
        asked = run.view.is_news
        ran_at = now if asked else cursor.ran_at
        note = run.view.note()
        moved = Cursor("scenes", run.agent_id, run.view.reached, 0, cursor.runs + asked, ran_at, note)
        tx.set_cursor(run.of, moved)
        for one in run.waiting:
            ran_at = now if asked else one.timing.ran_at
            runs, covered = one.timing.runs + asked, one.timing.extractions
            session = one.timing.session
            tx.set_cursor(run.of, Cursor("session_scenes", session, pos=covered, runs=runs, ran_at=ran_at))
        if run.view.full:
            again = now + round(run.settings.scene_min_interval_s * SECOND) if asked else now
            _enqueue(tx, run.of, run.agent_id, now, again)


class _Applying:
    """Writes what was planned, inside the transaction that ends the job."""

    def __init__(
        self,
        tx: Writer,
        run: _Run,
        planned: ScenePlan,
        judgement: Judgement[Sequence[SceneChange]],
        clock: Clock,
    ) -> None:
        self._tx = tx
        self._run = run
        self._plan = planned
        self._judgement = judgement
        self._now = to_micros(clock.now())
        self._clock = clock
        self._run_id = new_id(clock.now())
        self._live = {row.id: row for row in run.view.scenes}

    def apply(self) -> None:
        """:raises _Outdated: when scenes or memories changed since they were read."""
        self._check()
        deleted = [self._delete(scene_id, why) for scene_id, why in self._plan.deleted.items()]
        written = [self._put(one) for one in self._plan.written]
        result = {"written": written, "deleted": deleted, "refused": self._plan.refused}
        self._check_count()
        self._tx.put_run(sealed(self._run_row(result)))
        if written or deleted:
            queue_profiles(self._tx, self._run.of, self._run.agent_id, self._run.settings, self._now)

    def _check(self) -> None:
        there = {(row.id, row.version) for row in self._tx.scenes(self._run.of, self._run.agent_id)}
        if there != {(row.id, row.version) for row in self._live.values()}:
            raise _Outdated
        view = self._run.view
        for memory_id in {source for one in self._plan.written for source in one.source_ids}:
            row = self._tx.memory(self._run.of.team_id, memory_id)
            seen = view.memories[memory_id]
            if row is None or (row.state, row.version) != (seen.state, seen.version):
                raise _Outdated

    def _check_count(self) -> None:
        """The plan keeps to the most that there may be, and counts by the scenes that are there still; the setting may
        have been changed meanwhile.

        :raises _Outdated: when there would be too many.
        """
        of, agent_id = self._run.of, self._run.agent_id
        most = AgentSettings(**self._tx.agent_settings(of, agent_id)).scenes
        if len(self._tx.scenes(of, agent_id)) > most:
            raise _Outdated

    def _delete(self, scene_id: str, why: str) -> dict[str, Any]:
        row = self._live[scene_id]
        self._tx.set_scene_state(row.team_id, row.id, row.version, "deleted", self._now)
        return {"id": row.id, "version": row.version, "why": why}

    def _put(self, written: Written) -> dict[str, Any]:
        row, before = self._row(written)
        self._tx.put_scene(sealed(row))
        links = [SourceLink("scene", row.id, row.version, "memory", one) for one in written.source_ids]
        self._tx.add_sources(row.team_id, links)
        merged = list(written.merged)
        return {"id": row.id, "version": row.version, "before": before, "name": row.name, "merged": merged}

    def _row(self, written: Written) -> tuple[SceneRow, int | None]:
        """The new version, and the number of the one that it replaces."""
        of, view = self._run.of, self._run.view
        before, version, scene_id = None, 1, new_id(self._clock.now())
        if written.scene_id is not None:
            scene_id = written.scene_id
            before = self._live[scene_id].version
            version = 1 + max(row.version for row in self._tx.scene_history(of.team_id, scene_id))
        least = min((view.memories[one] for one in written.source_ids), key=lambda row: row.trust)
        row = SceneRow(
            team_id=of.team_id,
            id=scene_id,
            version=version,
            user_id=of.user_id,
            agent_id=self._run.agent_id,
            name=written.name,
            content=written.content,
            source_kind=least.source_kind,
            trust=least.trust,
            recorded_at=self._now,
            actor=self._judgement.by,
            run_id=self._run_id,
        )
        return row, before

    def _run_row(self, result: dict[str, Any]) -> RunRow:
        view, judgement = self._run.view, self._judgement
        inputs = {
            "scenes": [{"id": row.id, "version": row.version} for row in view.scenes],
            "memories": list(view.new),
            "gone": list(view.gone()),
        }
        return RunRow(
            team_id=self._run.of.team_id,
            id=self._run_id,
            user_id=self._run.of.user_id,
            agent_id=self._run.agent_id,
            stage="scenes",
            subject=self._run.agent_id,
            inputs=as_json(inputs),
            result=as_json(result),
            decided_by=judgement.by,
            finished_at=self._now,
            prompt=judgement.prompt,
            reply=judgement.reply,
            input_tokens=judgement.usage.input_tokens,
            output_tokens=judgement.usage.output_tokens,
        )
