"""What becomes of the scenes when a judge proposes changes: decided from values alone, before anything is written.

A judge proposes what it likes. Here ids that it was not shown fall away, a scene is changed once at most, a text that is
blank or an apology is refused, and there are never more scenes than there may be.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memstore.apologies import is_apology
from memstore.pipelines.values import SceneChange
from memstore.pipelines.written_text import DELETED, clean_line, clean_text, cut_text

MAX_NAME_CHARS = 80


@dataclass(frozen=True, slots=True)
class Standing:
    """A live scene. ``live`` are those of its sources that are still current memories, ``gone`` the others."""

    id: str
    name: str
    content: str
    live: tuple[str, ...]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """A version to write. ``scene_id`` None: of a new scene. ``merged``: scenes that it takes up."""

    scene_id: str | None
    name: str
    content: str
    source_ids: tuple[str, ...]
    merged: tuple[str, ...] = ()


@dataclass(slots=True)
class ScenePlan:
    """``deleted``: scene ids, those that were merged included, with why. ``refused``: a sentence each."""

    written: list[Written] = field(default_factory=list)
    deleted: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


def plan(
    changes: Sequence[SceneChange],
    scenes: Sequence[Standing],
    memory_ids: Collection[str],
    *,
    most: int,
    max_chars: int,
) -> ScenePlan:
    """:param memory_ids: the memories that the judge was shown."""
    planning = _Planning({scene.id: scene for scene in scenes}, memory_ids, max_chars)
    new = [change for change in changes if change.scene_id is None]
    for change in changes:  # what is given up and taken up first: it makes room for what is new
        if change.scene_id is not None:
            planning.change(change, change.scene_id)
    made = [written for change in new if (written := planning.creation(change)) is not None]
    planning.give_up_orphans()
    for written in made:
        planning.create(written, most)
    planning.keep_to(most)
    return planning.plan


class _Planning:
    def __init__(self, scenes: Mapping[str, Standing], memory_ids: Collection[str], max_chars: int) -> None:
        self.plan = ScenePlan()
        self._scenes = scenes
        self._max_chars = max_chars
        self._citable = {*memory_ids, *(source for scene in scenes.values() for source in scene.live)}
        self._touched: set[str] = set()

    def change(self, change: SceneChange, scene_id: str) -> None:
        """Of a scene that is there."""
        scene = self._scenes.get(scene_id)
        if scene is None:
            self._refuse(f"there is no scene {scene_id!r:.60} among those shown")
        elif scene_id in self._touched:
            self._refuse(f"scene {scene_id} was changed by an earlier change already")
        elif is_deletion(change.content):
            self._touched.add(scene_id)
            self.plan.deleted[scene_id] = "the judge deleted it"
        else:
            self._rewrite(change, scene)

    def _rewrite(self, change: SceneChange, scene: Standing) -> None:
        written = self._written(change, scene)
        if written is None:
            return
        repeated = not written.merged and (written.name, written.content) == (scene.name, scene.content)
        if repeated and (scene.gone or set(written.source_ids) <= set(scene.live)):
            return  # the same as before; a text that a gone memory is in is not cleared by repeating it
        self._touched.add(scene.id)
        self._take_up(written)
        self.plan.written.append(written)

    def creation(self, change: SceneChange) -> Written | None:
        """What a new scene would be; the scenes that it takes up are not free for others any more."""
        if is_deletion(change.content):
            self._refuse("a deletion names no scene")
            return None
        written = self._written(change, None)
        if written is not None:
            self._touched.update(written.merged)
        return written

    def create(self, written: Written, most: int) -> None:
        live = len(self._scenes) - len(self.plan.deleted)
        created = sum(one.scene_id is None for one in self.plan.written)
        freed = len([one for one in written.merged if one not in self.plan.deleted])
        if live + created - freed >= most:
            self._refuse(f"the new scene {written.name!r} is one too many: there may be {most}")
            return
        self._take_up(written)
        self.plan.written.append(written)

    def give_up_orphans(self) -> None:
        """A scene none of whose memories is left, and which was not written anew, goes."""
        for scene in self._scenes.values():
            if not scene.live and scene.id not in self._touched:
                self.plan.deleted[scene.id] = "none of the memories that it was written from is left"

    def keep_to(self, most: int) -> None:
        """Where there are more scenes than there may be by now, the oldest of those that were left as they are go; and of
        those that were written anew, where these alone are too many."""
        for scene_id in sorted(self._scenes, key=lambda one: one in self._touched):
            created = sum(one.scene_id is None for one in self.plan.written)
            if len(self._scenes) - len(self.plan.deleted) + created <= most:
                return
            if scene_id not in self.plan.deleted:
                self.plan.deleted[scene_id] = f"it is one too many: there may be {most}"
                self.plan.written = [one for one in self.plan.written if one.scene_id != scene_id]

    def _take_up(self, written: Written) -> None:
        self._touched.update(written.merged)
        for scene_id in written.merged:
            self.plan.deleted[scene_id] = f"taken up by the scene {written.name!r}"

    def _written(self, change: SceneChange, scene: Standing | None) -> Written | None:
        content = cut_text(clean_text(change.content), self._max_chars)
        first_line = content.split("\n", 1)[0].lstrip("# ")
        name = clean_line(change.name, MAX_NAME_CHARS) or (scene.name if scene else "")
        name = name or clean_line(first_line, MAX_NAME_CHARS)
        shown = name or "without a name"
        if not content or not name:
            self._refuse(f"the scene {shown!r} has no content")
            return None
        if DELETED in content.upper():
            self._refuse(
                f"the scene {shown!r} has the mark {DELETED} within a text: it is no deletion, and no scene"
            )
            return None
        if is_apology(content):
            self._refuse(f"the scene {shown!r} holds an apology: {content!r:.60}")
            return None
        own = scene.id if scene else None
        free = (one for one in change.merged_ids if one in self._scenes and one not in self._touched)
        merged = tuple(one for one in dict.fromkeys(free) if one != own)
        taken = (
            [scene, *(self._scenes[one] for one in merged)]
            if scene
            else [self._scenes[one] for one in merged]
        )
        carried = (source for one in taken for source in one.live)
        sources = _unique(one for one in (*carried, *change.memory_ids) if one in self._citable)
        if not sources:
            self._refuse(f"the scene {shown!r} names no memory that it was written from")
            return None
        return Written(own, name, content, sources, merged)

    def _refuse(self, why: str) -> None:
        self.plan.refused.append(why)


def is_deletion(content: str) -> bool:
    """Whether a content is the mark alone."""
    return clean_text(content) == DELETED


def _unique(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))
