"""What a scene run looks at: the live scenes of an agent, its memories since the last run, and what became of the
memories that the scenes were written from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from memstore.canonical import checksum
from memstore.pipelines.scene_plan import Standing
from memstore.pipelines.trusted import may_make_scenes
from memstore.pipelines.values import Known, Scene
from memstore.storage.base import Reader
from memstore.storage.pipeline_rows import Cursor, Owner, SceneRow
from memstore.storage.rows import MemoryRow
from memstore.times import from_micros

MAX_NEW_MEMORIES = 200
"""That one run looks at."""


@dataclass(frozen=True, slots=True)
class SceneView:
    """One snapshot.

    :param sources: of each scene, by its id. :param memories: every memory that is a source or new, by its id.
    :param new: those that a judge is shown, with those that came back since a scene was written without them.
    :param changed: earlier versions of new memories that scenes were written from, by their names among the sources.
    :param reached: arrival of the last memory that was looked at. :param full: there may be more behind it.
    """

    cursor: Cursor
    scenes: tuple[SceneRow, ...]
    sources: dict[str, tuple[str, ...]]
    memories: dict[str, MemoryRow]
    new: tuple[str, ...]
    returned: tuple[str, ...]
    changed: dict[str, dict[str, MemoryRow]]
    reached: int
    full: bool

    def standing(self) -> list[Standing]:
        return [
            Standing(row.id, row.name, row.content, tuple(self._live(row)), tuple(self._gone(row)))
            for row in self.scenes
        ]

    def gone(self) -> tuple[str, ...]:
        """Sources of the scenes that are no longer current."""
        return tuple(dict.fromkeys(one for row in self.scenes for one in self._gone(row)))

    def gone_rows(self) -> list[MemoryRow]:
        """What no longer holds: memories that are gone, and what the new ones said before they were changed."""
        earlier = [row for versions in self.changed.values() for row in versions.values()]
        return [*(self.memories[one] for one in self.gone()), *earlier]

    def shown_sources(self, scene: SceneRow) -> tuple[str, ...]:
        """The sources of a scene as the judge is told them. Of a memory that was changed since, the versions that it may
        tell of, under names of their own: the memory itself is new to it."""
        named = (tuple(self.changed.get(one, {one: None})) for one in self.sources[scene.id])
        return tuple(name for names in named for name in names)

    def note(self) -> str | None:
        """Names what became of the sources; None: nothing did."""
        if not self.gone() and not self.returned:
            return None
        changed = [[row.id, row.version, list(self._gone(row))] for row in self.scenes]
        return checksum(changed, sorted(self.returned))

    @property
    def is_news(self) -> bool:
        """Whether there is anything that no run has looked at."""
        return bool(self.new) or self.sources_changed

    @property
    def sources_changed(self) -> bool:
        note = self.note()
        return note is not None and note != self.cursor.note

    def _live(self, row: SceneRow) -> Iterable[str]:
        return (one for one in self.sources[row.id] if self.memories[one].state == "live")

    def _gone(self, row: SceneRow) -> Iterable[str]:
        return (one for one in self.sources[row.id] if self.memories[one].state != "live")


def look(reader: Reader, of: Owner, agent_id: str, now: int) -> SceneView:
    """Read everything of one run."""
    cursor = reader.cursor(of, "scenes", agent_id)
    scenes = reader.scenes(of, agent_id)
    arrived = reader.memories_after(of, cursor.arrival, agent_id, MAX_NEW_MEMORIES)
    memories = {row.id: row for row in arrived}
    sources: dict[str, tuple[str, ...]] = {}
    earlier = set(reader.memories_that_came_back(of, agent_id))
    for scene in scenes:
        sources[scene.id] = scene_sources(reader, scene)
        earlier.update(_earlier_sources(reader, scene))
    cited = {one for ids in sources.values() for one in ids}
    for memory_id in (*cited, *earlier):
        if memory_id not in memories:
            found = reader.memory(of.team_id, memory_id)
            if found is not None:
                memories[memory_id] = found
    sources = {scene: tuple(one for one in ids if one in memories) for scene, ids in sources.items()}
    returned = _usable(sorted(earlier - cited), memories, now)
    shown = _usable([row.id for row in arrived], memories, now)
    new = tuple(dict.fromkeys((*shown, *returned)))
    changed = {one: _versions(reader, memories[one]) for one in shown if one in cited}
    changed = {one: versions for one, versions in changed.items() if versions}
    reached = max([cursor.arrival, *(row.arrival for row in arrived)])
    full = len(arrived) == MAX_NEW_MEMORIES
    return SceneView(cursor, tuple(scenes), sources, memories, new, returned, changed, reached, full)


def _versions(reader: Reader, memory: MemoryRow) -> dict[str, MemoryRow]:
    """What a memory said before it was changed, by names that no memory has."""
    return {
        f"{row.id}#{row.version}": replace(row, id=f"{row.id}#{row.version}")
        for row in reader.memory_history(memory.team_id, memory.id)
        if row.version < memory.version and row.content != memory.content
    }


def scene_sources(reader: Reader, scene: SceneRow) -> tuple[str, ...]:
    """Ids of the memories that a version was written from."""
    found = reader.sources_of(scene.team_id, "scene", scene.id, scene.version)
    return tuple(row_id for kind, row_id in found if kind == "memory")


def _earlier_sources(reader: Reader, scene: SceneRow) -> Iterable[str]:
    """Of the versions before: one that was superseded or under quarantine may be current again."""
    for version in reader.scene_history(scene.team_id, scene.id):
        if version.version < scene.version and version.state == "superseded":
            yield from scene_sources(reader, version)


def _usable(ids: Sequence[str], memories: dict[str, MemoryRow], now: int) -> tuple[str, ...]:
    rows = [memories[one] for one in ids if one in memories]
    return tuple(row.id for row in rows if row.state == "live" and may_make_scenes(row, now))


def known(row: MemoryRow, zone: tzinfo) -> Known:
    """A memory as a judge sees it."""
    recorded = from_micros(row.recorded_at).astimezone(zone)
    return Known(row.id, row.kind, row.content, row.priority, recorded)  # type: ignore[arg-type] # a CHECK holds it


def seen_scene(row: SceneRow, sources: tuple[str, ...], zone: tzinfo) -> Scene:
    """A scene as a judge sees it."""
    return Scene(row.id, row.name, row.content, from_micros(row.recorded_at).astimezone(zone), sources)
