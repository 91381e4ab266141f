"""Scenes as their owner sees them, and taking a scene run back."""

import json
from dataclasses import dataclass, replace

from memstore.agent_settings import AgentSettings
from memstore.asking import principal
from memstore.clock import Clock
from memstore.errors import InvalidInput, NotFound
from memstore.ids import is_id
from memstore.pipelines.profiles import queue_profiles
from memstore.pipelines.scene_reading import scene_sources
from memstore.pipelines.scenes import queue_look
from memstore.storage.base import Reader, Storage, Writer
from memstore.storage.pipeline_rows import Owner, RunRow, SceneRow
from memstore.times import from_micros, render, to_micros
from memstore.types import SceneRecord, Scope


def scene_records(storage: Storage, scope: Scope) -> list[SceneRecord]:
    """The user's live scenes, the oldest first; without an agent those of all agents."""
    with storage.read() as reader:
        if not principal(reader, scope).is_member:
            return []
        rows = reader.scenes(Owner(scope.team_id, scope.user_id), scope.agent_id)
        return [_record(reader, row) for row in rows]


def scene_versions(storage: Storage, scope: Scope, scene_id: str) -> list[SceneRecord]:
    """All versions of a scene, oldest first.

    :raises NotFound: for missing and foreign ids alike.
    """
    with storage.read() as reader:
        member = principal(reader, scope).is_member
        rows = reader.scene_history(scope.team_id, scene_id) if member and is_id(scene_id) else []
        rows = [row for row in rows if _is_of(scope, row)]
        if not rows:
            raise NotFound(f"no scene {scene_id!r:.60} for this asker")
        return [_record(reader, row) for row in rows]


def _is_of(scope: Scope, row: SceneRow | RunRow) -> bool:
    return row.user_id == scope.user_id and scope.agent_id in (None, row.agent_id)


def _record(reader: Reader, row: SceneRow) -> SceneRecord:
    return SceneRecord(
        id=row.id,
        version=row.version,
        name=row.name,
        content=row.content,
        agent_id=row.agent_id,
        state=row.state,  # type: ignore[arg-type] # a CHECK constraint holds it
        updated_at=from_micros(row.recorded_at),
        actor=row.actor,
        run_id=row.run_id,
        sources=scene_sources(reader, row),
    )


# --- taking a run back -------------------------------------------------------------------------------------------


def undo_run(storage: Storage, clock: Clock, scope: Scope, run_id: str) -> bool:
    """Make the scenes what they were before a run: its versions go, and those that it replaced or deleted are live again.
    The memories that it looked at are not looked at again. False: the asker has no such scene run.

    What became of the memories of those that are live again is looked at anew.

    :raises InvalidInput: when it was undone before, when one of its scenes was changed since, when one that would be live
        again tells of a memory that was deleted or is under quarantine, or when there would be more scenes than there may
        be.
    """
    if not is_id(run_id):
        return False
    with storage.write() as tx:
        run = tx.run(scope.team_id, run_id)
        if (
            run is None
            or run.stage != "scenes"
            or not _is_of(scope, run)
            or not principal(tx, scope).is_member
        ):
            return False
        if run.undone_at is not None:
            when = render(from_micros(run.undone_at))
            raise InvalidInput(f"scene run {run_id} was undone already, at {when} by {run.undone_by!r}")
        _Undoing(tx, run, to_micros(clock.now())).undo(scope.user_id)
    return True


@dataclass(frozen=True, slots=True)
class _Change:
    """What a run did to a scene. ``written``: the version that it wrote, ``before``: the one that it ended."""

    scene_id: str
    written: int | None
    before: int | None


class _Undoing:
    def __init__(self, tx: Writer, run: RunRow, now: int) -> None:
        self._tx = tx
        self._run = run
        self._now = now
        self._of = Owner(run.team_id, run.user_id)
        self._agent_id = run.agent_id or ""
        result = json.loads(run.result)
        written = [_Change(one["id"], one["version"], one["before"]) for one in result["written"]]
        deleted = [_Change(one["id"], None, one["version"]) for one in result["deleted"]]
        self._changes = [*written, *deleted]

    def undo(self, by: str) -> None:
        for change in self._changes:
            self._check(change)
            self._check_sources(change)
        settings = AgentSettings(**self._tx.agent_settings(self._of, self._agent_id))
        self._check_count(settings.scenes)
        for change in self._changes:
            self._take_back(change)
        self._tx.mark_run_undone(self._run.team_id, self._run.id, by, self._now)
        if self._changes:
            cursor = self._tx.cursor(self._of, "scenes", self._agent_id)
            self._tx.set_cursor(self._of, replace(cursor, note=None))
            queue_look(self._tx, self._of, self._agent_id, settings, self._now)
            queue_profiles(self._tx, self._of, self._agent_id, settings, self._now)

    def _check(self, change: _Change) -> None:
        """The scene is as the run left it. Versions that came later and were undone since do not count."""
        versions = {row.version: row for row in self._tx.scene_history(self._run.team_id, change.scene_id)}
        left = {change.before: "deleted"} if change.written is None else {change.written: "live"}
        if change.written is not None and change.before is not None:
            left[change.before] = "superseded"
        if any(version is not None and versions[version].state != state for version, state in left.items()):
            newest = versions[max(versions)]
            later = newest.run_id if newest.run_id not in (None, self._run.id) else None
            raise InvalidInput(
                f"scene {change.scene_id} ({newest.name!r:.60}) was changed after run {self._run.id}, so that the run "
                f"cannot be undone any more; undo what came later first{'' if later is None else f': {later}'}"
            )

    def _check_sources(self, change: _Change) -> None:
        """What was deleted, or put under quarantine, does not come back inside of a scene."""
        if change.before is None:
            return
        found = self._tx.sources_of(self._run.team_id, "scene", change.scene_id, change.before)
        for memory_id in (one for kind, one in found if kind == "memory"):
            memory = self._tx.memory(self._run.team_id, memory_id)
            state = "deleted" if memory is None else memory.state
            if state in ("deleted", "quarantined"):
                raise InvalidInput(
                    f"run {self._run.id} cannot be undone: version {change.before} of scene {change.scene_id} would be live "
                    f"again, and it tells of memory {memory_id}, which is {state}"
                )

    def _check_count(self, most: int) -> None:
        live = len(self._tx.scenes(self._of, self._agent_id))
        there = live + sum(one.written is None for one in self._changes)
        there -= sum(one.before is None for one in self._changes)
        if there > max(most, live):
            raise InvalidInput(
                f"undoing run {self._run.id} would make {there} scenes, and there may be {most}: undo later runs first, "
                "or raise the agent's setting scenes"
            )

    def _take_back(self, change: _Change) -> None:
        team_id = self._run.team_id
        if change.written is not None:
            self._tx.set_scene_state(team_id, change.scene_id, change.written, "deleted", self._now)
        if change.before is not None:
            self._tx.set_scene_state(team_id, change.scene_id, change.before, "live", None)
