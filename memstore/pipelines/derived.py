"""What was derived from rows, over any number of steps, by the sources that each version keeps."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from memstore.storage.base import Reader
from memstore.storage.pipeline_rows import Owner, ProfileRow, RowKind, RowName, SceneRow

Root = tuple[RowKind, str]


@dataclass(slots=True)
class Held:
    """Rows with what came of them. ``states`` are those of now, of every version that is not deleted (a message's is
    ``live`` or ``quarantined``); ``scenes`` and ``profiles`` all versions of those that have one among them."""

    states: dict[RowName, str] = field(default_factory=dict)
    scenes: list[list[SceneRow]] = field(default_factory=list)
    profiles: list[list[ProfileRow]] = field(default_factory=list)

    def ids(self, kind: RowKind) -> set[str]:
        return {name.id for name in self.states if name.kind == kind}


def name_of(row: SceneRow | ProfileRow) -> RowName:
    return RowName("scene" if isinstance(row, SceneRow) else "profile", row.id, row.version)


def derived_rows(reader: Reader, of: Owner, roots: Iterable[Root]) -> Held:
    """The roots and all that was derived from them, of this owner's rows."""
    tracing = _Tracing(reader, of)
    tracing.follow(list(roots))
    return tracing.held()


def profile_histories(reader: Reader, of: Owner) -> list[list[ProfileRow]]:
    """All versions of the user's profile, and of that of each agent."""
    found = [reader.profile_history(of, agent_id) for agent_id in (None, *reader.agents(of))]
    return [versions for versions in found if versions]


class _Tracing:
    """Follows sources from one set of rows to the next, until nothing new comes."""

    def __init__(self, reader: Reader, of: Owner) -> None:
        self._reader = reader
        self._of = of
        self._seen: set[Root] = set()
        self._versions: dict[str, set[int]] = defaultdict(set)  # of scenes: those that leave
        self._histories: dict[str, list[SceneRow]] = {}
        self._profiles = profile_histories(reader, of)
        self._profile_ids: set[str] = set()

    def follow(self, roots: Sequence[Root]) -> None:
        waiting = list(roots)
        self._seen.update(waiting)
        while waiting:
            names = self._reader.derived_from(self._of.team_id, waiting)
            reached = [root for name in names for root in self._reached(name)]
            waiting = [root for root in dict.fromkeys(reached) if root not in self._seen]
            self._seen.update(waiting)

    def _reached(self, name: RowName) -> list[Root]:
        if name.kind == "scene":
            return self._reached_scene(name)
        if name.kind == "profile":
            return self._reached_profile(name)
        return [(name.kind, name.id)] if self._is_own_memory(name.id) else []

    def _is_own_memory(self, memory_id: str) -> bool:
        row = self._reader.memory(self._of.team_id, memory_id)
        return row is not None and row.user_id == self._of.user_id

    def _reached_scene(self, name: RowName) -> list[Root]:
        if name.id not in self._histories:
            self._histories[name.id] = self._reader.scene_history(self._of.team_id, name.id)
        versions = [row for row in self._histories[name.id] if row.user_id == self._of.user_id]
        self._versions[name.id].update(row.version for row in _carried_on(versions, {name.version}))
        return [("scene", name.id)] if versions else []

    def _reached_profile(self, name: RowName) -> list[Root]:
        """A profile's version has an id of its own."""
        for versions in self._profiles:
            first = {row.version for row in versions if row.id == name.id}
            if first:
                reached = [row.id for row in _carried_on(versions, first)]
                self._profile_ids.update(reached)
                return [("profile", row_id) for row_id in reached]
        return []

    def held(self) -> Held:
        held = Held()
        self._add_messages(held)
        self._add_memories(held)
        for scene_id, versions in self._versions.items():
            rows = self._histories[scene_id]
            held.states |= {name_of(row): row.state for row in rows if row.version in versions}
            held.scenes.append(rows)
        for profile in self._profiles:
            found = {name_of(row): row.state for row in profile if row.id in self._profile_ids}
            held.states |= found
            if found:
                held.profiles.append(profile)
        return held

    def _add_messages(self, held: Held) -> None:
        ids = sorted(row_id for kind, row_id in self._seen if kind == "message")
        already = set(self._reader.quarantined_messages(self._of.team_id, ids))
        for one in ids:
            held.states[RowName("message", one, 1)] = "quarantined" if one in already else "live"

    def _add_memories(self, held: Held) -> None:
        for memory_id in sorted(row_id for kind, row_id in self._seen if kind == "memory"):
            for row in self._reader.memory_history(self._of.team_id, memory_id):
                if row.state != "deleted":
                    held.states[RowName("memory", memory_id, row.version)] = row.state


def _carried_on(
    versions: Sequence[SceneRow] | Sequence[ProfileRow], first: set[int]
) -> list[SceneRow | ProfileRow]:
    """These versions and those that a run wrote on from them. One that a person wrote stands for itself: it is reached
    by its sources, or not."""
    found: list[SceneRow | ProfileRow] = []
    carried = False
    for row in versions:
        carried = row.version in first or (carried and row.run_id is not None)
        if carried:
            found.append(row)
    return found
