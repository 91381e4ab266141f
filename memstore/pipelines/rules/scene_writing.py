"""Scenes without a model: memories that share words of substance, line by line, the newest first."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from memstore.pipelines.rules.topics import topics
from memstore.pipelines.values import Known, Scene, SceneChange, SceneTask
from memstore.pipelines.written_text import DELETED

_OTHER = {"zh": "其他", "en": "Other"}
_BETWEEN = {"zh": "、", "en": ", "}
_NAME_WORDS = 2
_CUT = "…"
_ENOUGH_SHARED = 2
_ENOUGH_PART = 0.25
"""A memory joins a scene with which it shares so many words, or such a part of its own."""


@dataclass(slots=True)
class _Group:
    """A scene in the making. ``lines`` are those of its text below the heading, bullets and others, in order."""

    name: str
    lines: list[str]
    heading: str | None = None
    scene: Scene | None = None
    added: list[Known] = field(default_factory=list)
    merged: list[Scene] = field(default_factory=list)
    changed: bool = False

    @property
    def words(self) -> Counter[str]:
        texts = (line.removeprefix("- ") for line in (*self.lines, *(one.content for one in self.added)))
        counted = Counter(word for text in texts for word in topics(text))
        counted.update(topics(self.name).keys())
        return counted


def scenes(task: SceneTask) -> list[SceneChange]:
    """The changes that bring the scenes up to date, those that make room first; none where nothing is new."""
    groups = [_parsed(scene) for scene in task.scenes]
    _forget(groups, task.gone)
    emptied = [group for group in groups if not group.lines and group.changed]
    groups = [group for group in groups if group not in emptied]
    news = _new_memories(task, groups)
    groups += _placed(news, groups, task)
    if news or len(groups) > task.most:
        _make_room(groups, task)
    changes = [SceneChange(g.scene.id, g.name, DELETED) for g in emptied if g.scene is not None]
    written = [change for group in groups if (change := _written(group, task)) is not None]
    written.sort(key=lambda change: (not change.merged_ids, change.scene_id is None))
    return changes + written


def _parsed(scene: Scene) -> _Group:
    lines = [line.rstrip() for line in scene.content.splitlines() if line.strip()]
    heading = lines.pop(0) if lines and lines[0].startswith("#") else None
    return _Group(scene.name, lines, heading, scene)


def _line(content: str) -> str:
    return f"- {' '.join(content.split())}"


def _forget(groups: Iterable[_Group], gone: Iterable[Known]) -> None:
    lines = {_line(memory.content) for memory in gone}
    for group in groups:
        kept = [line for line in group.lines if not _is_of(line, lines)]
        if len(kept) < len(group.lines):
            group.lines, group.changed = kept, True


def _is_of(line: str, lines: set[str]) -> bool:
    """Whether the line is one of these, or was cut from one."""
    if line in lines:
        return True
    return line.endswith(_CUT) and any(whole.startswith(line.removesuffix(_CUT)) for whole in lines)


def _new_memories(task: SceneTask, groups: Sequence[_Group]) -> list[Known]:
    """Memories that no scene tells yet and that are still in force, the oldest first."""
    gone = {memory.id for memory in task.gone}
    known = {identity for group in groups if group.scene for identity in group.scene.source_ids}
    told = {line for group in groups for line in group.lines}
    cut = [line.removesuffix(_CUT) for line in told if line.endswith(_CUT)]
    made: dict[str, Known] = {}
    for memory in task.memories:
        line = _line(memory.content)
        if memory.id in gone or memory.id in known or line in told or not memory.content.strip():
            continue
        if not any(line.startswith(start) for start in cut):
            made.setdefault(line, memory)
    return list(made.values())


def _placed(news: Sequence[Known], groups: Sequence[_Group], task: SceneTask) -> list[_Group]:
    """Put each new memory to its kin; returns the groups that were made for those without."""
    made: list[_Group] = []
    other = next((group for group in groups if group.name in _OTHER.values()), None)
    for memory in news:
        pool = [group for group in (*groups, *made) if group.name not in _OTHER.values()]
        home = _kin(memory, pool)
        if home is None and len(pool) >= max(1, task.most * 2 // 3):
            if other is None:
                other = _Group(_OTHER[task.language], [])
                made.append(other)
            home = other
        if home is None:
            home = _Group("", [])
            made.append(home)
        home.added.append(memory)
    _name(made, [group.name for group in groups], task)
    return made


def _kin(memory: Known, groups: Sequence[_Group]) -> _Group | None:
    """The group that shares most with the memory; of equals the first."""
    own = topics(memory.content)
    best, shared_most = None, 0
    for group in groups:
        shared = sum(1 for word in own if word in group.words)
        enough = shared >= _ENOUGH_SHARED or (shared and shared / len(own) >= _ENOUGH_PART)
        if enough and shared > shared_most:
            best, shared_most = group, shared
    return best


def _name(made: Sequence[_Group], taken: Iterable[str], task: SceneTask) -> None:
    """Name new groups by the words that most of their memories have; no two alike."""
    names = set(taken)
    for group in made:
        shown = {key: word for memory in group.added for key, word in topics(memory.content).items()}
        counted = Counter(word for memory in group.added for word in topics(memory.content))
        top = [shown[word] for word, _ in counted.most_common(_NAME_WORDS)]
        base = group.name or _BETWEEN[task.language].join(top)[:60] or _OTHER[task.language]
        name, number = base, 2
        while name in names and group.name == "":
            name, number = f"{base} {number}", number + 1
        group.name = name
        names.add(name)


def _make_room(groups: list[_Group], task: SceneTask) -> None:
    """Merge the most similar groups until there are no more than may be; near the cap, one pair that is alike, so
    that the next run finds room."""
    while len(groups) > max(1, task.most):
        _merge(groups, *_most_alike(groups)[:2])
    if len(groups) >= max(2, task.most - 1):
        one, other, shared = _most_alike(groups)
        if shared >= _ENOUGH_SHARED:
            _merge(groups, one, other)


def _most_alike(groups: Sequence[_Group]) -> tuple[int, int, float]:
    """The places of the two groups that share most, and how much: words in common, a part of the smaller one's as the
    tie-break, then the order."""
    words = [set(group.words) for group in groups]
    best = (0, 1, -1.0)
    for i in range(len(groups)):
        for j in range(i + 1, len(groups)):
            shared = len(words[i] & words[j])
            alike = shared + shared / (1 + min(len(words[i]), len(words[j])))
            if alike > best[2]:
                best = (i, j, alike)
    return best


def _merge(groups: list[_Group], one: int, other: int) -> None:
    into, taken = groups[one], groups.pop(other)
    if into.scene is None and taken.scene is not None:
        into.scene, into.name, into.heading = taken.scene, taken.name, taken.heading
    elif taken.scene is not None:
        into.merged.append(taken.scene)
    into.merged += taken.merged
    into.lines += [line for line in taken.lines if line not in into.lines]
    into.added += taken.added
    into.changed = True


def _written(group: _Group, task: SceneTask) -> SceneChange | None:
    if not group.added and not group.changed:
        return None
    content = _content(group, task.max_chars)
    if group.scene is not None and content == group.scene.content and not group.merged:
        return None
    return SceneChange(
        group.scene.id if group.scene else None,
        group.name.strip() or _OTHER[task.language],
        content,
        memory_ids=tuple(memory.id for memory in group.added),
        merged_ids=tuple(scene.id for scene in group.merged),
    )


def _content(group: _Group, most: int) -> str:
    """The heading, the new lines with the newest first, then the older ones; cut to the cap by whole lines.

    What goes first is the oldest line, then of the new ones those of the lowest priority.
    """
    heading = group.heading or f"# {group.name}"
    new = group.added[::-1]
    by_worth = sorted(new, key=lambda one: (one.priority != -1, -one.priority))
    room = most - len(heading)
    kept: set[str] = set()
    for memory in by_worth:
        line = _line(memory.content)
        if len(line) + 1 <= room:
            kept.add(memory.id)
            room -= len(line) + 1
    lines = [_line(memory.content) for memory in new if memory.id in kept]
    for line in group.lines:
        if len(line) + 1 > room:
            break
        lines.append(line)
        room -= len(line) + 1
    if not lines and (new or group.lines):
        lines = [_cut(_line(new[0].content) if new else group.lines[0], room - 1)]
    return "\n".join([heading, *filter(None, lines)])[: max(0, most)]


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[: most - 1]}{_CUT}" if most > len("- " + _CUT) else ""
