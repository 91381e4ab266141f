"""What the tests of scenes and profiles share: a store whose extractions are told, and a judge that does as it is told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memstore import MemoryStore, Message, Scope
from memstore.agent_settings import AgentSettings
from memstore.canonical import checksum
from memstore.ids import new_id
from memstore.pipelines.profiles import ProfileRunner, queue_profiles
from memstore.pipelines.scenes import SceneRunner, queue_scenes
from memstore.pipelines.values import Judgement, ProfileTask, SceneChange, SceneTask
from memstore.pipelines.work import SECOND, Lease, NotDue
from memstore.storage.pipeline_rows import Job, Owner, job_key
from memstore.storage.rows import MemoryRow
from memstore.testing import ManualClock
from memstore.times import to_micros
from memstore.types import TRUST

WEB = "helper:web:1"


@dataclass
class ToldJudge:
    """Proposes what it was told, and keeps what it was asked."""

    writes: Callable[[SceneTask], Sequence[SceneChange]] = lambda task: ()
    tells: Callable[[ProfileTask], str] = lambda task: "a profile"
    scene_tasks: list[SceneTask] = field(default_factory=list)
    profile_tasks: list[ProfileTask] = field(default_factory=list)
    name: str = "told-1"

    def scenes(self, task: SceneTask) -> Judgement[Sequence[SceneChange]]:
        self.scene_tasks.append(task)
        return Judgement(self.writes(task), self.name, "scenes.en@1", "the reply")

    def profile(self, task: ProfileTask) -> Judgement[str]:
        self.profile_tasks.append(task)
        return Judgement(self.tells(task), self.name, "profile.en@1", "the reply")


class Desk:
    """One user's work with one agent."""

    def __init__(self, store: MemoryStore, clock: ManualClock, scope: Scope) -> None:
        self.store, self.clock, self.scope = store, clock, scope
        self.of = Owner(scope.team_id, scope.user_id)
        self.agent = scope.agent_id or "helper"
        self.judge = ToldJudge()
        self.pipelines = replace(store._pipelines, judge_for=lambda of, settings, lease: self.judge)
        self.runners: dict[str, Any] = {
            "scenes": SceneRunner(self.pipelines),
            "agent_profile": ProfileRunner(self.pipelines, "agent"),
            "user_profile": ProfileRunner(self.pipelines, "user"),
        }

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    def talk(self, text: str = "hello", session: str = WEB, **more: Any) -> None:
        self.store.record(self.scope, [Message("user", text, **more)], session)

    def memory(self, content: str, **columns: Any) -> str:
        """A memory as an extraction stores it, which queues nothing."""
        now = self.clock.now()
        columns = {
            "kind": "episodic",
            "source_kind": "user",
            "priority": 50,
            "agent_id": self.agent,
            **columns,
        }
        if columns["kind"] == "persona":
            columns["agent_id"] = None
        row = MemoryRow(
            id=new_id(now),
            version=1,
            team_id=self.of.team_id,
            user_id=self.of.user_id,
            content=content,
            checksum=checksum(columns["kind"], content),
            trust=columns.pop("trust", TRUST[columns["source_kind"]]),
            recorded_at=to_micros(now),
            created_at=to_micros(now),
            actor="told-1",
            produced_by_agent=columns.pop("produced_by_agent", self.agent),
            **columns,
        )
        tokens = self.store._tokenizers.likely(self.of.team_id).index(content)
        with self.store._storage.write() as tx:
            tx.join(self.of.team_id, self.of.user_id, row.recorded_at)
            return tx.insert_memory(row, tokens).id

    def extracted(self, *contents: str, session: str = WEB, **columns: Any) -> list[str]:
        """An extraction of a session that made these memories."""
        made = [self.memory(content, **columns) for content in contents]
        settings = self.settings()
        with self.store._storage.write() as tx:
            cursor = tx.cursor(self.of, "extract", session)
            tx.set_cursor(self.of, replace(cursor, runs=cursor.runs + 1, ran_at=self.now))
            queue_scenes(tx, self.of, self.agent, session, settings, self.now)
            queue_profiles(tx, self.of, self.agent, settings, self.now)
        return made

    def settings(self) -> AgentSettings:
        with self.store._storage.read() as reader:
            return AgentSettings(**reader.agent_settings(self.of, self.agent))

    def set(self, **changes: Any) -> None:
        with self.store._storage.write() as tx:
            tx.set_agent_settings(self.of, self.agent, changes, self.now)

    def claim(self, kind: str, *, early: bool = False) -> Job | None:
        agent = () if kind == "user_profile" else (self.agent,)
        key = job_key(kind, self.of.team_id, self.of.user_id, *agent)
        until = self.now + 60 * SECOND
        with self.store._storage.write() as tx:
            return tx.claim(kind, new_id(self.clock.now()), self.now, until, dedupe_key=key, early=early)

    def work(self, kind: str = "scenes", *, force: bool = False) -> str:
        """What became of the job: none due, ``waits``, or ``done``."""
        job = self.claim(kind, early=force)
        if job is None:
            return "none"
        outcome = self.run(job, force=force)
        if outcome is None:
            return "done"
        with self.store._storage.write() as tx:
            tx.postpone(job, self.now, outcome.until)
        return "waits"

    def run(self, job: Job, *, force: bool = False) -> NotDue | None:
        lease = Lease(job, self.store._storage, self.clock, 60.0)
        found: NotDue | None = self.runners[job.kind].run(lease, force=force)
        return found

    def due(self, kind: str = "scenes") -> float | None:
        """In how many seconds the queued job may run."""
        with self.store._storage.read() as reader:
            due = reader.next_due([kind])
        return None if due is None else (due - self.now) / SECOND

    def drop_jobs(self) -> None:
        with self.store._storage.write() as tx:
            tx._run("DELETE FROM jobs")

    def run_row(self, stage: str) -> Any:
        """The newest run of a stage."""
        with self.store._storage.read() as reader:
            rows = reader._rows(
                "SELECT id FROM pipeline_runs WHERE stage = ? AND user_id = ? ORDER BY number DESC",
                (stage, self.of.user_id),
            )
            return reader.run(self.of.team_id, rows[0][0])


def one_scene(task: SceneTask) -> Sequence[SceneChange]:
    """Writes all memories into one scene."""
    told = "\n".join(memory.content for memory in task.memories)
    ids = tuple(memory.id for memory in task.memories)
    scene = task.scenes[0] if task.scenes else None
    content = told if scene is None else f"{scene.content}\n{told}"
    return [SceneChange(scene.id if scene else None, "Everything", content, ids)]


def scene_each(task: SceneTask) -> Sequence[SceneChange]:
    """A new scene for every memory."""
    return [SceneChange(None, memory.content, memory.content, (memory.id,)) for memory in task.memories]
